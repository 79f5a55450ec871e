"""Evaluation of one or several systems by any metrics, with confidence intervals and paired tests."""

from __future__ import annotations

import csv
import inspect
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.arguments import check_kind
from plackett.data.containers import MultilabelData, RankingData
from plackett.data.files import Source, open_target
from plackett.data.text import csv_cell, visible
from plackett.distributed import DaskLabels
from plackett.metrics import compare, confidence_interval, err, get_metric
from plackett.metrics.comparison import PairedComparisons

DEFAULT_METRICS: dict[type, Sequence[str]] = {
    RankingData: ("ndcg@1", "ndcg@5", "ndcg@10", "err@10", "map"),
    MultilabelData: ("p@1", "p@3", "p@5", "ndcg@5"),
}

__all__ = ["DEFAULT_METRICS", "Result", "compare_systems", "dump_per_list", "evaluate"]

_HIGHEST_GRADE = inspect.signature(err).parameters["max_grade"].default
_SET_BY_DATA = {"scores", "labels", "Y", "offsets", "qid", "group", "where", "reduction"}


@dataclass(frozen=True)
class Result:
    """The value of a metric for a system, with its bootstrap interval, and the values per list, NaN if skipped."""

    system: str
    metric: str
    value: float
    interval: tuple[float, float]
    values: npt.NDArray[np.float64]

    @property
    def lists(self) -> int:
        """The number of lists that have a value."""
        return int((~np.isnan(self.values)).sum())


def evaluate(
    data: RankingData | MultilabelData | DaskLabels,
    systems: Mapping[str, Any],
    metrics: Sequence[str] | None = None,
    *,
    confidence: float = 0.95,
    inverse_propensity: Any = None,
    **options: Any,
) -> list[Result]:
    """Compute every metric for every system.

    Args:
        data: the labels. With `plackett.distributed.DaskLabels`, scores must be Dask collections too.
        systems: scores by name.
        metrics: names such as "ndcg@10". Default: the usual ones for this kind of data, without ERR if labels exceed 4.
        inverse_propensity: one number per label, for psp and psndcg.
        options: options of the metrics, such as ties="stable" or empty=0.
    """
    if not isinstance(data, RankingData | MultilabelData | DaskLabels):
        raise ValueError(f"data must be RankingData, MultilabelData or DaskLabels, got {type(data).__name__}")
    if not isinstance(systems, Mapping):
        raise ValueError(f"systems must map names to scores, as in {{'model': scores}}, got {type(systems).__name__}")
    if not systems:
        raise ValueError("systems must contain the scores of at least one system, got none")
    if metrics is not None and (isinstance(metrics, str) or not isinstance(metrics, Collection) or not len(metrics)):
        raise ValueError(f"metrics must be a sequence of names, such as ['ndcg@10'], got {metrics!r}")
    multilabel = data.is_multilabel if isinstance(data, DaskLabels) else isinstance(data, MultilabelData)
    if metrics is None:
        metrics = without_err([data], DEFAULT_METRICS[MultilabelData if multilabel else RankingData])
    functions = {metric: _function(metric, multilabel, inverse_propensity, options) for metric in metrics}
    for name in options:
        if not any(name in _options_of(function) for function in functions.values()):
            raise ValueError(f"options must belong to one of the metrics {', '.join(metrics)}, got {name}")
    if isinstance(data, DaskLabels):
        return _evaluate_dask(data, systems, functions, confidence)
    results = []
    for metric, function in functions.items():
        for system, scores in systems.items():
            if "reduction" not in _parameters(function):  # a single number for all rows, such as coverage
                value = float(function(scores, data.Y))  # type: ignore[union-attr]
                results.append(Result(system, metric, value, (float("nan"), float("nan")), np.zeros(0)))
                continue
            if isinstance(data, RankingData):
                values = function(scores, data.y, offsets=data.offsets, reduction="none")
            else:
                values = function(scores, data.Y, reduction="none")
            results.append(_result(system, metric, values, confidence))
    return results


def without_err(parts: Iterable[Any], metrics: Sequence[str]) -> list[str]:
    """The metrics, without ERR if a label is above 4, the highest grade that it is defined for by default."""
    highest = max((part.y.max(initial=0.0) for part in parts if isinstance(part, RankingData)), default=0.0)
    return [name for name in metrics if highest <= _HIGHEST_GRADE or not name.startswith("err")]


def _result(system: str, metric: str, values: npt.NDArray[np.float64], confidence: float) -> Result:
    known = values[~np.isnan(values)]
    mean = float(known.mean()) if len(known) else float("nan")
    return Result(system, metric, mean, confidence_interval(values, confidence=confidence), values)


def _evaluate_dask(
    data: DaskLabels, systems: Mapping[str, Any], functions: Mapping[str, Any], confidence: float
) -> list[Result]:
    for metric, function in functions.items():
        if "reduction" not in _parameters(function):
            raise ValueError(f"metrics must be means over lists or rows on Dask, got {metric}")
        if _parameters(function).get("normalisation") == "sums":
            raise ValueError(
                f'normalisation must be "rows" on Dask, which has no sums over all rows, got "sums" for {metric}'
            )
        if _parameters(function).get("ties") == "random":
            raise ValueError(
                'ties must be "average" or "stable" on Dask, which has no random numbers for all lists, got "random"'
            )
    values = data.values(systems, functions)
    return [_result(system, metric, values[system, metric], confidence) for metric in functions for system in systems]


def _parameters(function: Any) -> dict[str, Any]:
    """Names and defaults of the parameters of a function."""
    return {name: parameter.default for name, parameter in inspect.signature(function).parameters.items()}


def _options_of(function: Any) -> set[str]:
    """The parameters of a metric that callers can choose."""
    return set(_parameters(function)) - _SET_BY_DATA


def _function(metric: str, multilabel: bool, inverse_propensity: Any, options: Mapping[str, Any]) -> Any:
    """The metric, with the options that it takes."""
    check_kind("metrics", metric, str)
    needed = {}
    if metric.startswith("ps"):
        if inverse_propensity is None:
            raise ValueError(f"inverse_propensity must be given for {metric}, got None: compute it from training data")
        needed["inverse_propensity"] = inverse_propensity
    function = get_metric(metric, multilabel=multilabel, **needed)
    known = _options_of(function)
    return partial(function, **{name: value for name, value in options.items() if name in known})


def _with_values(results: Sequence[Result]) -> list[Result]:
    """The results that have a value per list."""
    check_kind("results", results, Sequence)
    for result in results:
        check_kind("results", result, Result)
    return [result for result in results if len(result.values)]


def dump_per_list(results: Sequence[Result], target: Source) -> None:
    """Write a CSV table with one row per list and one column per metric and system; skipped lists have empty cells."""
    results = _with_values(results)
    if not results:
        raise ValueError("results must contain a metric with a value per list, got none")
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
) -> dict[str, PairedComparisons]:
    """Compare all systems with the first one, by metric."""
    by_metric: dict[str, dict[str, npt.NDArray[np.float64]]] = {}
    for result in _with_values(results):
        by_metric.setdefault(result.metric, {})[result.system] = result.values
    return {
        metric: compare(systems, baseline=next(iter(systems)), correction=correction, confidence=confidence)
        for metric, systems in by_metric.items()
    }
