"""The arguments of LightGBM's LGBMRanker: those that rankers take as well, and what replaces the others."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from numbers import Number
from typing import Any, NoReturn

from plackett.arguments import check_count, metric_names
from plackett.boosted.lightgbm_parameters import remedy_for
from plackett.data.containers import RankingData
from plackett.metrics.registry import check_metrics

_OF_ESTIMATOR = ("early_stopping_rounds", "eval_metric", "n_jobs", "verbose")
_REMEDIES = {
    "categorical_feature": "set categorical_features of the estimator",
    "class_weight": "pass sample_weight to fit, one per row and constant within a list",
    "eval_at": 'name metrics with their cut-offs, eval_metric=["ndcg@1", "ndcg@5"] of the estimator',
    "eval_class_weight": "pass eval_sample_weight",
    "eval_init_score": "pass init_model, whose scores are added in evaluation too",
    "feature_name": "give X as a DataFrame, whose columns name the features",
    "init_score": "pass init_model, whose scores the training starts from",
    "pred_early_stop": "leave it out: all trees are used",
    "start_iteration": "use num_iteration for the first rounds, or staged_predict for each of them",
    "validate_features": "leave it out: names of features are always checked",
} | {name: f"set {name} of the estimator" for name in _OF_ESTIMATOR}  # fmt: skip


def refuse_others(method: str, others: Mapping[str, Any]) -> None:
    """Raise an error for an argument that a method does not take, with what to do instead; "auto" is no argument."""
    for name, value in others.items():
        if not isinstance(value, str) or value != "auto":
            _refuse(method, name, _REMEDIES.get(name, "see help() for its arguments"))


def names_right_parameter(init: Callable[..., None]) -> Callable[..., None]:
    """Decorator of `__init__`: an error for a parameter that it does not have says what to set instead."""
    known = set(inspect.signature(init).parameters)

    @functools.wraps(init)
    def checked(self: Any, *arguments: Any, **parameters: Any) -> None:
        for name in parameters:
            if name not in known:
                _refuse(type(self).__name__, name, _REMEDIES.get(name) or remedy_for(name))
        init(self, *arguments, **parameters)

    return checked


def _refuse(method: str, name: str, remedy: str) -> NoReturn:
    raise TypeError(f"{method} takes no argument {name!r}: {remedy}")


def metrics_at(eval_metric: Any, eval_at: Any) -> list[str]:
    """Metrics with the cut-offs of `eval_at`: "ndcg" at (1, 5) is ndcg@1 and ndcg@5."""
    names = metric_names("eval_metric", eval_metric)
    if eval_at is not None:
        cutoffs = [eval_at] if isinstance(eval_at, Number) else list(eval_at)
        if not cutoffs:
            raise ValueError("eval_at must hold at least one cut-off, or be None, got none")
        plain = list(dict.fromkeys(name.partition("@")[0] for name in names))
        names = [f"{name}@{check_count('eval_at', k, least=1)}" for name in plain for k in cutoffs]
    check_metrics("eval_metric", names)
    return names


def evaluation_sets(
    eval_set: Any, eval_group: Any = None, eval_names: Any = None, eval_sample_weight: Any = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The names of evaluation sets, and X, y, qid, group and sample_weight of each.

    A single set is "valid", several are "valid_0", "valid_1", ...; with `eval_group` a single one is "valid_0" too, as
    in LightGBM.
    """
    if eval_set is None:
        for name, value in (("eval_group", eval_group), ("eval_names", eval_names)):
            if value is not None:
                raise ValueError(f"{name} must be None without an eval_set, got {type(value).__name__}")
        return
    is_list = isinstance(eval_set, list)
    sets = eval_set if is_list else [eval_set]
    groups = _one_per_set("eval_group", eval_group, len(sets), is_list)
    weights = _one_per_set("eval_sample_weight", eval_sample_weight, len(sets), is_list)
    names = _names(eval_names, len(sets), is_numbered=len(sets) > 1 or eval_group is not None)
    for name, one, group, weight in zip(names, sets, groups, weights, strict=True):
        if isinstance(one, RankingData):
            given: dict[str, Any] = {"X": one, "y": None}
        elif isinstance(one, tuple) and len(one) in (2, 3):
            given = dict(zip(("X", "y", "qid"), one, strict=False))
        else:
            raise ValueError(f"eval_set must be RankingData, (X, y, qid) or a list of them, got {type(one).__name__}")
        optional = {"group": group, "sample_weight": weight}
        yield name, given | {key: value for key, value in optional.items() if value is not None}


def _one_per_set(name: str, values: Any, count: int, is_list: bool) -> Sequence[Any]:
    """One value per evaluation set; the value itself for a set that is not in a list."""
    if values is None:
        return [None] * count
    if not is_list and (not isinstance(values, list | tuple) or not len(values) or isinstance(values[0], Number)):
        return [values]
    if not isinstance(values, list | tuple) or len(values) != count:
        got = f"{len(values)}" if isinstance(values, list | tuple) else type(values).__name__
        raise ValueError(f"{name} must be a list with one entry for each of {count} evaluation sets, got {got}")
    return values


def _names(names: Any, count: int, *, is_numbered: bool) -> Sequence[str]:
    if names is None:
        return [f"valid_{number}" for number in range(count)] if is_numbered else ["valid"] * count
    given = [names] if isinstance(names, str) else list(names)
    if len(given) != count or len(set(given)) != count or not all(isinstance(name, str) for name in given):
        raise ValueError(f"eval_names must hold a different name for each of {count} evaluation sets, got {given}")
    return given
