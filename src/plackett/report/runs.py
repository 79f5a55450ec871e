"""Pages of what was done: a training, an aggregation, published numbers reproduced.

Each ends with what is needed to do it again: configuration, data with their hashes, versions, the command.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from plackett.aggregation.connectivity import describe_outside
from plackett.aggregation.summary import WorthSummary
from plackett.data.containers import MultilabelData, RankingData
from plackett.environment import versions
from plackett.evaluation import Result
from plackett.report.page import (
    Axis,
    Block,
    Column,
    Command,
    Histogram,
    ItemPlot,
    KeyValues,
    LinePlot,
    Page,
    Section,
    Series,
    Table,
)
from plackett.report.training import metrics_of, runs_of

Files = Mapping[str, str | os.PathLike[str]]

_EXTREMES = 10  # best and worst lists shown
_MOST_FEATURES = 100  # shown
_MOST_COMPARED = 1000  # items with quasi-variances, which take time with the third power of their number


def training_page(
    model: Any,
    data: Mapping[str, RankingData | MultilabelData],
    results: Mapping[str, Sequence[Result]],
    *,
    title: str | None = None,
    confidence: float = 0.95,
    files: Files | None = None,
    command: str | None = None,
) -> Page:
    """A fitted model: its metrics, curves, best and worst lists, features, and how to train it again.

    Args:
        data, results: by the name of the part, such as "train", "valid", "test"; the results are those of
            `plackett.evaluation.evaluate`. Lists are shown of the last part.
        confidence: that of the intervals in `results`.
        files: where the parts were read from.
        command: what trained the model.
    """
    if set(data) != set(results) or not data:
        raise ValueError(f"data and results must be of the same parts, got {list(data)} and {list(results)}")
    last = list(data)[-1]
    result = _result_by_list(results[last])
    sections = [
        Section("Metrics", [_metric_table(results, confidence)]),
        Section("Training", _curves(model), _training_text(model)),
        *_list_sections(last, data[last], result),
        *_feature_sections(model, confidence),
        *_repeat_sections(model.get_params(), data, files, command),
    ]
    kind = type(model).__name__
    objective = getattr(model, "objective", None)
    low, high = result.interval
    summary = (
        f"{kind}{f' with objective {objective}' if objective else ''}. On {last}, {_named(result.metric)} is "
        f"{result.value:.4f} ({confidence:.0%} interval {low:.4f} to {high:.4f}) over {result.lists:,} lists."
    )
    return Page(title or f"Training of {kind}", [one for one in sections if one.blocks or one.text], summary)


def aggregation_page(
    aggregator: Any,
    summary: WorthSummary | None = None,
    *,
    title: str | None = None,
    data: Any = None,
    files: Files | None = None,
    command: str | None = None,
) -> Page:
    """A fitted `RankAggregator`: worths and ranks with intervals, how the model fits, how to fit it again.

    Args:
        summary: `aggregator.summary()`, or one with other options.
        data: what it was fitted to.
        files: where that was read from, by any name.
        command: what fitted it.
    """
    summary = aggregator.summary() if summary is None else summary
    best = summary.rows[0]
    outside = f" Left out are items {describe_outside(summary.outside)}." if summary.outside else ""
    place = "First" if best.rank == 1 else f"On place {best.rank}, after the items that none of these beats,"
    said = (
        f"{len(summary):,} items ranked by {aggregator.n_ballots_:,.10g} ballots.{outside} {place} is {best.item}, "
        f"with a worth of {best.worth:.3g} ({_interval(summary)} {best.worth_low:.3g} to {best.worth_high:.3g})."
    )
    sections = [
        Section("Worths", _worth_plots(summary)),
        _item_section(aggregator, summary),
        Section("Fit", [KeyValues(_fit_facts(aggregator))]),
        *_repeat_sections(aggregator.get_params(), {} if data is None else {"ballots": data}, files, command),
    ]
    return Page(title or "Worths of items from rankings", sections, said)


@dataclass(frozen=True)
class Reproduced:
    """A published number beside one's own. `names` say what it is, one for each column; None where there is none."""

    names: Sequence[str]
    paper: float | None
    ours: float | None
    standard_error: float | None = None  # of ours, or of the difference where the paper's is known too

    @property
    def difference(self) -> float | None:
        return None if self.paper is None or self.ours is None else self.ours - self.paper


def reproduction_table(
    columns: Sequence[str], rows: Sequence[Reproduced], *, form: str = ".4f", unit: str = ""
) -> Table:
    """The paper's numbers, ours, the differences and their standard errors.

    >>> reproduction_table(["data"], [Reproduced(["D-1K"], 0.67, 0.66, 0.004)]).rows[0][:3]
    ['D-1K', 0.67, 0.66]
    """
    numbers = [
        Column("paper", unit, form),
        Column("ours", unit, form),
        Column("difference", unit, f"+{form}"),
        Column("standard error", unit, form),
    ]
    cells = [[*row.names, row.paper, row.ours, row.difference, row.standard_error] for row in rows]
    return Table([*columns, *numbers], cells)


def reproduction_page(
    title: str,
    table: Table | None,
    sections: Sequence[Section] = (),
    *,
    summary: str = "",
    configuration: Mapping[str, Any],
    data: Mapping[str, Any] | None = None,
    files: Files | None = None,
    command: str | None = None,
) -> Page:
    """An experiment of a paper, done again: the table of `reproduction_table`, if any, then sections of one's own."""
    repeat = _repeat_sections(configuration, data or {}, files, command)
    compared = [Section("The paper and this", [table])] if table else []
    return Page(title, [*compared, *sections, *repeat], summary)


# Parts of pages


def _repeat_sections(
    configuration: Mapping[str, Any], data: Mapping[str, Any], files: Files | None, command: str | None
) -> list[Section]:
    provenance = KeyValues(_provenance(data, files or {}))
    return [
        Section("Configuration", [KeyValues(configuration)]),
        *([Section("Data", [provenance])] if provenance.values else []),
        Section("Versions", [KeyValues(versions())]),
        *([Section("To repeat it", [Command(command)])] if command else []),
    ]


def _provenance(data: Mapping[str, Any], files: Files) -> dict[str, str]:
    from plackett.estimators.saved import hash_of

    found = {}
    for name in dict.fromkeys([*data, *files]):
        if name in data:
            found[name] = repr(data[name])
        if name in files:
            path = Path(files[name])
            found[f"{name}: file"] = str(path)
            if path.is_file():  # not a pipe
                found[f"{name}: size"] = f"{path.stat().st_size:,} bytes"
                found[f"{name}: SHA-256"] = hash_of(path)
    return found


def _named(metric: str) -> str:
    return metric.upper() if metric.startswith(("ndcg", "err", "map", "mrr")) else metric


def _result_by_list(results: Sequence[Result]) -> Result:
    """NDCG@10 if it was measured, else the first that has values per list."""
    known = [result for result in results if len(result.values)]
    if not known:
        raise ValueError("results must hold a metric with values per list, got none")
    return next((result for result in known if result.metric == "ndcg@10"), known[0])


def _metric_table(results: Mapping[str, Sequence[Result]], confidence: float) -> Table:
    columns: list[str | Column] = [
        "part", "metric", Column("value", format=".4f"), Column(f"{confidence:.0%} interval", format=".4f"),
        "lists", "skipped",
    ]  # fmt: skip
    rows = [
        [part, result.metric, result.value, result.interval, result.lists, len(result.values) - result.lists]
        for part, found in results.items()
        for result in found
    ]
    return Table(columns, rows, caption="Skipped are lists for which a metric is not defined: none is relevant.")


def _best(model: Any) -> int | None:
    """The epoch or round that was best on validation."""
    return getattr(model, "best_iteration_", None) or getattr(model, "best_epoch_", None)


def _training_text(model: Any) -> str:
    best = _best(model)
    return f"The best {_unit(model)} on validation was {best:,}." if best else ""


def _unit(model: Any) -> str:
    return "epoch" if hasattr(model, "history_") else "round"


def _curves(model: Any) -> list[Block]:
    """The loss, then a plot for each metric of validation, with a line for each set, member and learning rate."""
    by_metric: dict[str, list[Series]] = {}
    if hasattr(model, "history_"):
        for run, rows in runs_of(model.history_).items():
            epochs = [row["epoch"] for row in rows]
            by_metric.setdefault("training loss", []).append(
                Series(run or "training loss", [row["loss"] for row in rows], epochs)
            )
            for column in metrics_of(model.history_):
                name, _, metric = column.partition(" ")
                label = ", ".join(part for part in (name, run) if part)
                by_metric.setdefault(metric, []).append(Series(label, [row.get(column) for row in rows], epochs))
    else:
        first = getattr(model, "initial_iterations_", 0) + 1
        for name, metrics in getattr(model, "evals_result_", {}).items():
            for metric, values in metrics.items():
                if isinstance(values, Sequence):  # one number where training has no rounds
                    by_metric.setdefault(metric, []).append(Series(name, values, range(first, first + len(values))))
    best = _best(model)
    axis = Axis(_unit(model), reference=(best, "best") if best else None)
    return [LinePlot(series, axis, Axis(_named(metric))) for metric, series in by_metric.items()]


def _list_sections(part: str, data: RankingData | MultilabelData, result: Result) -> list[Section]:
    if isinstance(data, RankingData):
        names, sizes, what = data.qid[np.minimum(data.offsets[:-1], len(data.qid) - 1)], np.diff(data.offsets), "query"
    else:
        names, sizes, what = np.arange(len(data)), np.diff(data.Y.indptr), "row"
    plural = "queries" if what == "query" else "rows"
    metric = _named(result.metric)
    known = np.flatnonzero(~np.isnan(result.values))
    order = known[np.argsort(-result.values[known], kind="stable")]
    spread = Histogram(
        result.values,
        Axis(metric, reference=(result.value, "mean")),
        span=(0.0, 1.0) if np.all(np.abs(result.values[known] - 0.5) <= 0.5) else None,
        count_title=plural,
        caption=f"{metric} of the {plural} of {part}",
    )
    columns = [what, "documents" if what == "query" else "labels", Column(metric, format=".4f")]

    def table(lists: Any, caption: str) -> Table:
        return Table(columns, [[str(names[i]), int(sizes[i]), float(result.values[i])] for i in lists], caption)

    worst = table(order[::-1][:_EXTREMES], f"The worst {plural} of {part}")
    best = table(order[:_EXTREMES], f"The best {plural} of {part}")
    return [Section(f"{metric} by {what}", [spread, worst, best])]


def _feature_sections(model: Any, confidence: float) -> list[Section]:
    low = high = None
    if hasattr(model, "feature_importances_"):
        values = np.asarray(model.feature_importances_)
        title, text, axis = "Feature importances", "", Axis("share of the gain of all splits")
    elif hasattr(model, "coef_"):
        values = np.asarray(model.coef_)
        title, text = "Coefficients", "Sizes can be compared only between features of the same scale."
        axis = Axis("coefficient")
        if hasattr(model, "confidence_intervals"):
            low, high = model.confidence_intervals(confidence).T
            axis = Axis(f"coefficient, with {confidence:.0%} interval", reference=(0.0, "no effect"))
    else:
        return []
    names = getattr(model, "feature_names_in_", [f"feature {i}" for i in range(len(values))])
    order = np.argsort(-np.abs(values), kind="stable")[:_MOST_FEATURES]
    if len(order) < len(values):
        text = f"{text} Shown are the {len(order):,} largest of {len(values):,}.".strip()
    ends = {} if low is None or high is None else {"low": low[order], "high": high[order]}
    series = Series(axis.title, values[order], **ends)
    return [Section(title, [ItemPlot([str(names[i]) for i in order], [series], axis, bars=low is None)], text)]


def _interval(summary: WorthSummary) -> str:
    return f"{summary.confidence:.0%} interval"


def _worth_plots(summary: WorthSummary) -> list[Block]:
    names = [str(row.item) for row in summary]
    equal = (1.0 / len(summary), "all equal")
    axes = {
        "worth": Axis(f"worth, with {_interval(summary)}", "sum over items is 1", log=True, reference=equal),
        "rank": Axis(f"rank, with {_interval(summary)}", "1 is best"),
    }
    return [
        ItemPlot(
            names,
            [
                Series(
                    what, summary.column(what), low=summary.column(f"{what}_low"), high=summary.column(f"{what}_high")
                )
            ],
            axis,
            caption=f"{what.capitalize()}s",
        )
        for what, axis in axes.items()
    ]


def _item_section(aggregator: Any, summary: WorthSummary) -> Section:
    columns: list[str | Column] = [
        "rank", "item", "worth", Column(_interval(summary), format="#.3g"), Column("score", "log-worth", "+.3f"),
        Column("standard error", format=".3f"), f"ranks, {_interval(summary)}",
    ]  # fmt: skip
    rows: list[list[Any]] = [
        [row.rank, str(row.item), row.worth, (row.worth_low, row.worth_high), row.score, row.standard_error,
         (row.rank_low, row.rank_high)]
        for row in summary
    ]  # fmt: skip
    text = (
        "An item of worth v comes before one of worth u with probability v / (v + u). The standard error is that of "
        "the score's difference from the mean of all scores."
    )
    if len(summary) <= _MOST_COMPARED:
        quasi = aggregator.quasi_variances()
        variances = dict(zip(aggregator.items_, quasi.variances.tolist(), strict=True))
        columns.append(Column("quasi-variance", format="#.3g"))
        rows = [[*cells, variances[row.item]] for cells, row in zip(rows, summary, strict=True)]
        text += (
            " Quasi-variances are to compare any two items by: the variance of the difference of their scores is about "
            f"the sum of theirs, here within {quasi.worst_error:.1%} in the standard error."
        )
    return Section("Items", [Table(columns, rows)], text)


def _fit_facts(aggregator: Any) -> dict[str, Any]:
    return {
        "items": len(aggregator.items_),
        "ballots": aggregator.n_ballots_,
        "parameters": aggregator.n_parameters_,
        "log-likelihood": aggregator.log_likelihood_,
        "log-likelihood, all worths equal": aggregator.null_log_likelihood_,
        "AIC": aggregator.aic_,
        "BIC": aggregator.bic_,
        "solver": f"{aggregator.solver_}, {aggregator.n_iter_} steps",
        "converged": aggregator.converged_,
        "left out": describe_outside(aggregator.outside_) or "nothing",
    }
