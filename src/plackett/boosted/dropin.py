"""Objectives and metrics for people who keep their own training code in LightGBM or XGBoost.

    lightgbm.train({"objective": lightgbm_objective("partition")}, dataset, feval=lightgbm_metric("ndcg@10"))
    LGBMRanker(objective=lightgbm_objective("partition"))
    xgboost.train(params, matrix, obj=xgboost_objective("partition"), custom_metric=xgboost_metric("ndcg@10"))

Lists come from the data set (`group`, or `qid` in XGBoost); without any, all rows are one list. With `position` a bias
for each position is learned along with the trees; it is the attribute `position_bias_` of the objective after training.
Leaves keep the values of the library, which come from the diagonal of the Hessian, not from the curvature along the
leaf (`plackett.likelihood.leaves`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from plackett.arguments import check_range
from plackett.boosted.objectives import make_objective
from plackett.boosted.position_steps import PositionedObjective
from plackett.data.positions import PositionBias, make_position_bias, make_positions
from plackett.lists import IntArray, make_lists
from plackett.metrics import get_metric
from plackett.objective import Floats, Objective


class _LabelledLists(NamedTuple):
    labels: npt.NDArray[Any]
    offsets: IntArray
    weights: Any  # one per list, or None


def _list_weights(row_weights: Any, offsets: IntArray) -> Any:
    """One weight per list, from one per row or one per list."""
    if row_weights is None or len(row_weights) == 0:
        return None
    weights = np.asarray(row_weights, np.float64)
    if len(weights) == len(offsets) - 1:
        return weights
    filled = np.diff(offsets) > 0
    result = np.ones(len(offsets) - 1)
    result[filled] = weights[offsets[:-1][filled]]
    if not np.array_equal(np.repeat(result, np.diff(offsets)), weights):
        raise ValueError("weight must be constant within a list: each list has one weight")
    return result


def _from_dataset(dataset: Any) -> _LabelledLists:
    """The lists of a LightGBM Dataset."""
    labels = np.asarray(dataset.get_label())
    offsets = make_lists(len(labels), group=dataset.get_group()).offsets
    return _LabelledLists(labels, offsets, _list_weights(dataset.get_weight(), offsets))


def _from_matrix(matrix: Any) -> _LabelledLists:
    """The lists of an XGBoost DMatrix."""
    labels = np.asarray(matrix.get_label())
    pointer = np.asarray(matrix.get_uint_info("group_ptr"), np.int64)
    offsets = pointer if len(pointer) else np.array([0, len(labels)], np.int64)
    return _LabelledLists(labels, offsets, _list_weights(matrix.get_weight(), offsets))


class _Prepared:
    """An objective that is made when the data is first seen, and kept as long as the data stays the same."""

    def __init__(self, objective: Any, options: dict[str, Any], position: Any, penalty: float) -> None:
        self._chosen, self._options = objective, options
        self._position, self._penalty = position, penalty
        self._data: Any = None
        self._objective: Objective | None = None

    def __deepcopy__(self, memo: Any) -> Any:  # LightGBM copies parameters deeply; this one may be shared
        del memo
        return self

    def _make_objective(self, lists: _LabelledLists) -> Objective:
        made = make_objective(self._chosen, lists.labels, lists.offsets, lists.weights, **self._options)
        if self._position is None:
            return made
        positions = make_positions(self._position, len(lists.labels))
        self._values = positions.values
        return PositionedObjective(made, positions, lists.offsets, self._penalty)

    def _derivatives(self, objective: Objective, scores: Any) -> tuple[Floats, Floats]:
        scores = np.ascontiguousarray(scores, np.float64)
        gradient, curvature = objective.derivatives(scores)
        if isinstance(objective, PositionedObjective):
            objective.learn(scores, gradient, curvature)
        return gradient, curvature

    def derivatives(self, scores: Any, data: Any, lists: Any) -> tuple[Floats, Floats]:
        """For scores of a data set of the library, which `lists` reads; biases start over with equal scores."""
        begins = self._position is not None and bool(np.all(scores == scores[0]))
        if self._objective is None or self._data is not data or begins:
            self._objective, self._data = self._make_objective(lists(data)), data
        return self._derivatives(self._objective, scores)

    def plain_derivatives(self, scores: Any, lists: _LabelledLists) -> tuple[Floats, Floats]:
        """For scores and arrays that are new in every round."""
        if self._position is None:
            return self._derivatives(self._make_objective(lists), scores)
        return self.derivatives(scores, self, lambda _: lists)

    @property
    def position_bias_(self) -> PositionBias:
        """The biases of positions after the last round of training."""
        if not isinstance(self._objective, PositionedObjective):
            raise AttributeError("position_bias_ exists only after training with position=")
        return make_position_bias(self._values, self._objective.bias)


class _LightGBMObjective(_Prepared):
    def __call__(self, first: Any, second: Any, weight: Any = None, group: Any = None) -> tuple[Floats, Floats]:
        """(predictions, Dataset) from lightgbm.train; (labels, predictions, weight, group) from LGBMRanker."""
        if hasattr(second, "get_label"):
            return self.derivatives(first, second, _from_dataset)
        offsets = make_lists(len(first), group=group).offsets
        return self.plain_derivatives(second, _LabelledLists(first, offsets, _list_weights(weight, offsets)))


class _XGBoostObjective(_Prepared):
    def __init__(self, objective: Any, group: Any, options: dict[str, Any], position: Any, penalty: float) -> None:
        super().__init__(objective, options, position, penalty)
        self._group = group

    def __call__(self, first: Any, second: Any) -> tuple[Floats, Floats]:
        """(predictions, DMatrix) from xgboost.train; (labels, predictions) from XGBoost's scikit-learn models."""
        if hasattr(second, "get_label"):
            return self.derivatives(first, second, _from_matrix)
        if self._group is None:
            raise ValueError("group must be given to xgboost_objective when XGBoost passes no lists")
        offsets = make_lists(len(first), group=self._group).offsets
        return self.plain_derivatives(second, _LabelledLists(first, offsets, None))


def lightgbm_objective(
    objective: Any = "partition", *, position: Any = None, position_penalty: float = 1.0, **options: Any
) -> Any:
    """An objective for `lightgbm.train(params={"objective": ...})` and `LGBMRanker(objective=...)`.

    Args:
        objective: a name in `plackett.boosted.OBJECTIVES`, a loss of `plackett.losses` with a curvature, a `Loss`, or a
            function f(scores, labels, offsets, **options) -> one value per list, in torch and differentiable. Without a
            curvature the second derivative of each row is the weight of its list.
        position: where each row of the training data was shown; the utility in training is score + bias[position].
            Training learns the biases, which `position_bias_` of the objective gives afterwards (docs/clicks.md).
        position_penalty: L2 penalty on the biases.
        options: options of the objective, such as top=10.
    """
    penalty = check_range("position_penalty", position_penalty, 0.0)
    return _LightGBMObjective(objective, options, position, penalty)


def xgboost_objective(
    objective: Any = "partition",
    *,
    group: Any = None,
    position: Any = None,
    position_penalty: float = 1.0,
    **options: Any,
) -> Any:
    """An objective for `xgboost.train(obj=...)`. All arguments but `group` are those of `lightgbm_objective`.

    `XGBRanker` does not support custom objectives; with `group` (sizes of the training lists) the objective also works
    in `XGBRegressor(objective=...)`, which ranks as well. Second derivatives within lists are small: XGBoost's default
    min_child_weight=1 allows few splits, so set it to about 1e-3.
    """
    penalty = check_range("position_penalty", position_penalty, 0.0)
    return _XGBoostObjective(objective, group, options, position, penalty)


def lightgbm_metric(name: str = "ndcg@10", **options: Any) -> Any:
    """A metric of `plackett.metrics` as `feval` of lightgbm.train and `eval_metric` of LGBMRanker."""
    metric = get_metric(name, **options)

    def evaluate(first: Any, second: Any, weight: Any = None, group: Any = None) -> tuple[str, float, bool]:
        if hasattr(second, "get_label"):
            lists, scores = _from_dataset(second), first
        else:
            offsets = make_lists(len(first), group=group).offsets
            lists, scores = _LabelledLists(first, offsets, _list_weights(weight, offsets)), second
        return name, metric(scores, lists.labels, offsets=lists.offsets, weights=lists.weights), True

    return evaluate


def xgboost_metric(name: str = "ndcg@10", **options: Any) -> Any:
    """A metric of `plackett.metrics` as `custom_metric` of xgboost.train; higher is better (maximize=True)."""
    metric = get_metric(name, **options)

    def evaluate(scores: Any, matrix: Any) -> tuple[str, float]:
        lists = _from_matrix(matrix)
        return name, metric(scores, lists.labels, offsets=lists.offsets, weights=lists.weights)

    return evaluate
