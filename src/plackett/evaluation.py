"""Scores of one or several systems against labels, by any metrics, with intervals and paired tests."""

from __future__ import annotations

import csv
import inspect
import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.arguments import check_kind
from plackett.cluster import SpreadLabels
from plackett.data.containers import MultilabelData, RankingData
from plackett.data.files import Source, open_target
from plackett.data.text import csv_cell, visible
from plackett.metrics import compare, confidence_interval, get_metric
from plackett.metrics.comparison import Comparisons

DEFAULT_METRICS: dict[type, Sequence[str]] = {
    RankingData: ("ndcg@1", "ndcg@5", "ndcg@10", "err@10", "map"),
    MultilabelData: ("p@1", "p@3", "p@5", "ndcg@5"),
}

_SET_BY_DATA = {"scores", "labels", "Y", "offsets", "qid", "group", "where", "reduction"}


@dataclass(frozen=True)
class Result:
    """A system's value of a metric with its bootstrap interval, and the values per list, NaN where skipped."""

    system: str
    metric: str
    value: float
    interval: tuple[float, float]
    values: npt.NDArray[np.float64]

    @property
    def lists(self) -> int:
        """How many lists have a value."""
        return int((~np.isnan(self.values)).sum())


def evaluate(
    data: RankingData | MultilabelData | SpreadLabels,
    systems: Mapping[str, Any],
    metrics: Sequence[str] | None = None,
    *,
    confidence: float = 0.95,
    inverse_propensity: Any = None,
    **options: Any,
) -> list[Result]:
    """Every metric of every system.

    Args:
        data: labels; `plackett.cluster.SpreadLabels` are those of a Dask collection, where scores are one, too.
        systems: scores by name.
        metrics: names such as "ndcg@10"; None: the usual ones.
        inverse_propensity: one number per label, for psp and psndcg.
        options: of the metrics, such as ties="stable" or empty=0.
    """
    if not isinstance(data, RankingData | MultilabelData | SpreadLabels):
        raise ValueError(f"data must be lists of items or rows with labels, got {type(data).__name__}")
    if not isinstance(systems, Mapping):
        raise ValueError(f"systems must be scores by name, such as {{'model': scores}}, got {type(systems).__name__}")
    if not systems:
        raise ValueError("systems must hold scores of at least one system, got none")
    if metrics is not None and (isinstance(metrics, str) or not isinstance(metrics, Collection) or not len(metrics)):
        raise ValueError(f"metrics must be a sequence of names, such as ['ndcg@10'], got {metrics!r}")
    multilabel = data.is_multilabel if isinstance(data, SpreadLabels) else isinstance(data, MultilabelData)
    metrics = DEFAULT_METRICS[MultilabelData if multilabel else RankingData] if metrics is None else metrics
    functions = {metric: _function(metric, multilabel, inverse_propensity, options) for metric in metrics}
    for name in options:
        if not any(name in _options_of(function) for function in functions.values()):
            raise ValueError(f"{name} is an option of none of the metrics {', '.join(metrics)}")
    if isinstance(data, SpreadLabels):
        return _evaluate_spread(data, systems, functions, confidence)
    results = []
    for metric, function in functions.items():
        for system, scores in systems.items():
            if "reduction" not in _parameters(function):  # one number for all rows, such as coverage
                value = float(function(scores, data.Y))  # type: ignore[union-attr]
                results.append(Result(system, metric, value, (float("nan"), float("nan")), np.zeros(0)))
                continue
            if isinstance(data, RankingData):
                values = function(scores, data.y, offsets=data.offsets, reduction="none")
            else:
                values = function(scores, data.Y, reduction="none")
            results.append(_result(system, metric, values, confidence))
    return results


def _result(system: str, metric: str, values: npt.NDArray[np.float64], confidence: float) -> Result:
    known = values[~np.isnan(values)]
    mean = float(known.mean()) if len(known) else float("nan")
    return Result(system, metric, mean, confidence_interval(values, confidence=confidence), values)


def _evaluate_spread(
    data: SpreadLabels, systems: Mapping[str, Any], functions: Mapping[str, Any], confidence: float
) -> list[Result]:
    for metric, function in functions.items():
        if "reduction" not in _parameters(function):
            raise ValueError(f"metrics must be means over lists or rows on Dask, got {metric}")
        if _parameters(function).get("normalisation") == "sums":
            raise ValueError(
                f'normalisation must be "rows" on Dask, where no one sums for all rows, got "sums" for {metric}'
            )
        if _parameters(function).get("ties") == "random":
            raise ValueError(
                'ties must be "average" or "stable" on Dask, where no one draws for all lists, got "random"'
            )
    values = data.values(systems, functions)
    return [_result(system, metric, values[system, metric], confidence) for metric in functions for system in systems]


def _parameters(function: Any) -> dict[str, Any]:
    """Names and defaults."""
    return {name: parameter.default for name, parameter in inspect.signature(function).parameters.items()}


def _options_of(function: Any) -> set[str]:
    """Those of the parameters that are free to choose."""
    return set(_parameters(function)) - _SET_BY_DATA


def _function(metric: str, multilabel: bool, inverse_propensity: Any, options: Mapping[str, Any]) -> Any:
    """The metric with those of the options that it takes."""
    check_kind("metrics", metric, str)
    needed = {}
    if metric.startswith("ps"):
        if inverse_propensity is None:
            raise ValueError(f"{metric} needs inverse_propensity: give the training data to find it from")
        needed["inverse_propensity"] = inverse_propensity
    function = get_metric(metric, multilabel=multilabel, **needed)
    known = _options_of(function)
    return partial(function, **{name: value for name, value in options.items() if name in known})


def _with_values(results: Sequence[Result]) -> list[Result]:
    """Those that have a value per list."""
    check_kind("results", results, Sequence)
    for result in results:
        check_kind("results", result, Result)
    return [result for result in results if len(result.values)]


def dump_per_list(results: Sequence[Result], target: Source) -> None:
    """Write a CSV table with a row a list and a column a metric and system; empty where a list is skipped."""
    results = _with_values(results)
    if not results:
        raise ValueError("results must hold one of a metric with a value per list, got none")
    several = len({result.system for result in results}) > 1
    names = [f"{result.metric} {result.system}" if several else result.metric for result in results]
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["list", *(csv_cell(visible(name)) for name in names)])
    for number, row in enumerate(np.stack([result.values for result in results], 1).tolist()):
        writer.writerow([number, *("" if np.isnan(value) else repr(value) for value in row)])
    with open_target(target) as file:
        file.write(text.getvalue().encode())


def compare_systems(
    results: Sequence[Result], *, correction: str = "holm", confidence: float = 0.95
) -> dict[str, Comparisons]:
    """By metric, all systems against the first."""
    by_metric: dict[str, dict[str, npt.NDArray[np.float64]]] = {}
    for result in _with_values(results):
        by_metric.setdefault(result.metric, {})[result.system] = result.values
    return {
        metric: compare(systems, baseline=next(iter(systems)), correction=correction, confidence=confidence)
        for metric, systems in by_metric.items()
    }
