"""Objectives and metrics for people who keep their own training code in LightGBM or XGBoost.

    lightgbm.train({"objective": lightgbm_objective("partition")}, dataset, feval=lightgbm_metric("ndcg@10"))
    LGBMRanker(objective=lightgbm_objective("partition"))
    xgboost.train(params, matrix, obj=xgboost_objective("partition"), custom_metric=xgboost_metric("ndcg@10"))

Lists come from the data set (`group`, or `qid` in XGBoost); without any, all rows are one list. The library's own leaf
values are used: they stand on the diagonal of the curvature, not on that along the leaf (`plackett.likelihood.leaves`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from plackett.boosted.base import Floats, Objective
from plackett.boosted.objectives import make_objective
from plackett.lists import IntArray, make_lists
from plackett.metrics import get_metric


class _Lists(NamedTuple):
    labels: npt.NDArray[Any]
    offsets: IntArray
    weights: Any  # one per list, or None


def _list_weights(row_weights: Any, offsets: IntArray) -> Any:
    """Weights of lists from weights of rows or of lists."""
    if row_weights is None or len(row_weights) == 0:
        return None
    weights = np.asarray(row_weights, np.float64)
    if len(weights) == len(offsets) - 1:
        return weights
    filled = np.diff(offsets) > 0
    result = np.ones(len(offsets) - 1)
    result[filled] = weights[offsets[:-1][filled]]
    if not np.array_equal(np.repeat(result, np.diff(offsets)), weights):
        raise ValueError("weight must be constant within a list, for lists are weighted as wholes")
    return result


def _from_dataset(dataset: Any) -> _Lists:
    """Of a LightGBM Dataset."""
    labels = np.asarray(dataset.get_label())
    offsets = make_lists(len(labels), group=dataset.get_group()).offsets
    return _Lists(labels, offsets, _list_weights(dataset.get_weight(), offsets))


def _from_matrix(matrix: Any) -> _Lists:
    """Of an XGBoost DMatrix."""
    labels = np.asarray(matrix.get_label())
    pointer = np.asarray(matrix.get_uint_info("group_ptr"), np.int64)
    offsets = pointer if len(pointer) else np.array([0, len(labels)], np.int64)
    return _Lists(labels, offsets, _list_weights(matrix.get_weight(), offsets))


class _Prepared:
    """An objective, made when the data is first seen and kept for it."""

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        self._name, self._options = name, options
        self._data: Any = None
        self._objective: Objective | None = None

    def __deepcopy__(self, memo: Any) -> Any:  # LightGBM copies parameters deeply; this one may be shared
        del memo
        return self

    def derivatives(self, scores: Any, data: Any, lists: Any) -> tuple[Floats, Floats]:
        if self._objective is None or self._data is not data:
            found = lists(data)
            self._objective = make_objective(self._name, found.labels, found.offsets, found.weights, **self._options)
            self._data = data
        return self._objective.derivatives(np.ascontiguousarray(scores, np.float64))


class _LightGBMObjective(_Prepared):
    def __call__(self, first: Any, second: Any, weight: Any = None, group: Any = None) -> tuple[Floats, Floats]:
        """(predictions, Dataset) from lightgbm.train; (labels, predictions, weight, group) from LGBMRanker."""
        if hasattr(second, "get_label"):
            return self.derivatives(first, second, _from_dataset)
        offsets = make_lists(len(first), group=group).offsets
        made = make_objective(self._name, first, offsets, _list_weights(weight, offsets), **self._options)
        return made.derivatives(np.ascontiguousarray(second, np.float64))


class _XGBoostObjective(_Prepared):
    def __init__(self, name: str, group: Any, options: dict[str, Any]) -> None:
        super().__init__(name, options)
        self._group = group

    def __call__(self, first: Any, second: Any) -> tuple[Floats, Floats]:
        """(predictions, DMatrix) from xgboost.train; (labels, predictions) from XGBoost's scikit-learn models."""
        if hasattr(second, "get_label"):
            return self.derivatives(first, second, _from_matrix)
        if self._group is None:
            raise ValueError("group must be given to xgboost_objective when XGBoost passes no lists")
        offsets = make_lists(len(first), group=self._group).offsets
        made = make_objective(self._name, first, offsets, None, **self._options)
        return made.derivatives(np.ascontiguousarray(second, np.float64))


def lightgbm_objective(name: str = "partition", **options: Any) -> Any:
    """An objective for `lightgbm.train(params={"objective": ...})` and `LGBMRanker(objective=...)`.

    Args:
        name: an objective of `plackett.boosted.OBJECTIVES` or a loss of `plackett.losses`.
        options: those of the objective, such as top=10.
    """
    return _LightGBMObjective(name, options)


def xgboost_objective(name: str = "partition", *, group: Any = None, **options: Any) -> Any:
    """An objective for `xgboost.train(obj=...)`.

    `XGBRanker` refuses objectives of others; with `group` (sizes of the training lists) the objective also serves
    `XGBRegressor(objective=...)`, which ranks as well. Curvatures of lists are small: with XGBoost's default
    min_child_weight=1 few splits are allowed, so set it to 1e-3 or so.
    """
    return _XGBoostObjective(name, group, options)


def lightgbm_metric(name: str = "ndcg@10", **options: Any) -> Any:
    """A metric of `plackett.metrics` as `feval` of lightgbm.train and `eval_metric` of LGBMRanker."""
    metric = get_metric(name, **options)

    def evaluate(first: Any, second: Any, weight: Any = None, group: Any = None) -> tuple[str, float, bool]:
        if hasattr(second, "get_label"):
            lists, scores = _from_dataset(second), first
        else:
            offsets = make_lists(len(first), group=group).offsets
            lists, scores = _Lists(first, offsets, _list_weights(weight, offsets)), second
        return name, metric(scores, lists.labels, offsets=lists.offsets, weights=lists.weights), True

    return evaluate


def xgboost_metric(name: str = "ndcg@10", **options: Any) -> Any:
    """A metric of `plackett.metrics` as `custom_metric` of xgboost.train; higher is better (maximize=True)."""
    metric = get_metric(name, **options)

    def evaluate(scores: Any, matrix: Any) -> tuple[str, float]:
        lists = _from_matrix(matrix)
        return name, metric(scores, lists.labels, offsets=lists.offsets, weights=lists.weights)

    return evaluate
