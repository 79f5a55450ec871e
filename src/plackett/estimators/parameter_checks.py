"""Checks of the parameters of estimators, made by `fit`: scikit-learn wants parameters untouched until then."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from types import NoneType
from typing import Any

import numpy as np

from plackett.arguments import check_count, check_kind, check_range
from plackett.metrics import get_metric

Check = Callable[[str, Any], Any]
"""Called with the name of a parameter and its value."""


def check_parameters(estimator: Any) -> None:
    """Check each parameter that the `parameter_kinds` of an estimator name."""
    for name, check in estimator.parameter_kinds.items():
        check(name, getattr(estimator, name))


whole_number: Check = partial(check_count, least=-(2**31), most=2**31 - 1)


def or_none(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


def flag(name: str, value: Any) -> None:
    check_kind(name, value, bool, np.bool_)


def text(name: str, value: Any) -> None:
    check_kind(name, value, str)


def options(name: str, value: Any) -> None:
    check_kind(name, value, dict, NoneType)


def above_zero(name: str, value: Any) -> None:
    if check_range(name, value, 0.0) == 0.0:
        raise ValueError(f"{name} must be above 0, got {value}")


def share(name: str, value: Any) -> None:
    above_zero(name, value)
    check_range(name, value, 0.0, 1.0)


def sequence(name: str, value: Any) -> None:
    if isinstance(value, str) or not isinstance(value, Collection):
        raise ValueError(f"{name} must be a sequence or None, got {value!r}")


def seed(name: str, value: Any) -> None:
    try:
        np.random.default_rng(value)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} must be a whole number of at least 0, a NumPy generator or None, got {value!r}"
        ) from None


def metric_names(name: str, value: Any) -> list[str]:
    """One metric, or several, as a list."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, Collection) or not len(names) or not all(isinstance(one, str) for one in names):
        raise ValueError(f"{name} must name metrics, such as 'ndcg@10' or ['ndcg@10', 'err'], got {value!r}")
    return list(names)


def ranking_metric(name: str, value: Any) -> None:
    try:
        get_metric(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def ranking_metrics(name: str, value: Any) -> None:
    for metric in metric_names(name, value):
        ranking_metric(name, metric)
