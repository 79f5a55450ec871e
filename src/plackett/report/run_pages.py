"""Report pages of a training run, an aggregation, or a reproduction of published numbers.

Each page ends with everything needed to repeat the run: configuration, data with hashes, versions and the command.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from plackett.aggregation.connectivity import describe_outside, listing
from plackett.aggregation.summary import WorthSummary
from plackett.data.containers import MultilabelData, RankingData, without_zeros
from plackett.evaluation import Result
from plackett.metrics.comparison import PairedComparisons
from plackett.report.histories import metrics_of, runs_of
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
from plackett.report.versions import versions

Files = Mapping[str, str | os.PathLike[str]]

_EXTREMES = 10  # number of best and of worst lists in the tables
_MOST_LABELS = 50  # in the table of labels
_MOST_FEATURES = 100  # features in the plot
_IMPORTANCES = {"gain": "gain", "split": "number"}
_MOST_COMPARED = 1000  # items that get quasi-variances, which take cubic time


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
    """Page of a fitted model: metrics, curves, best and worst lists, features, and how to train it again.

    Args:
        data, results: by the name of the part, such as "train", "valid", "test"; the results are those of
            `plackett.evaluation.evaluate`. The last part comes first in the table, and its lists are shown.
        confidence: confidence level of the intervals in `results`.
        files: the file of each part.
        command: the command that trained the model.
    """
    if set(data) != set(results) or not data:
        raise ValueError(f"data and results must have the same parts, got {list(data)} and {list(results)}")
    last = list(data)[-1]
    result = _result_by_list(results[last])
    sections = [
        Section("Metrics", [_metric_grid({name: results[name] for name in reversed(list(data))}, confidence)]),
        Section("Training", _curves(model), _training_text(model)),
        *_list_sections(last, data[last], result),
        *_label_sections(model, last, data[last]),
        *_feature_sections(model, confidence),
        *repeat_sections(model.get_params(), data, files, command),
    ]
    kind = type(model).__name__
    objective = getattr(model, "objective", None)
    low, high = result.interval
    summary = (
        f"{kind}{f' with objective {objective}' if objective else ''}. On {last}, {_metric_title(result.metric)} is "
        f"{result.value:.4f} ({confidence:.0%} interval {low:.4f} to {high:.4f}) over {result.lists:,} lists."
    )
    return Page(title or f"Training of {kind}", [one for one in sections if one.blocks or one.text], summary)


def evaluation_page(
    data: RankingData | MultilabelData,
    results: Sequence[Result],
    comparisons: Mapping[str, PairedComparisons] | None = None,
    *,
    title: str | None = None,
    confidence: float = 0.95,
    files: Files | None = None,
    command: str | None = None,
) -> Page:
    """Page of evaluated systems: metrics with intervals, paired tests, and the best and worst lists of the first one.

    Args:
        data: the labels.
        results, comparisons: those of `plackett.evaluation.evaluate` and `compare_systems`.
        confidence: confidence level of the intervals.
        files: the files of the labels and scores, under names of your choice.
        command: the command that evaluated them.

    >>> from plackett.data import make_tiered_lists
    >>> from plackett.evaluation import evaluate
    >>> data = make_tiered_lists(20, random_state=0)
    >>> page = evaluation_page(data, evaluate(data, {"first feature": data.X[:, 0]}))
    >>> [section.title for section in page.sections]
    ['Metrics', 'NDCG@10 by query', 'Data', 'Versions']
    """
    systems = list(dict.fromkeys(result.system for result in results))
    by_system = {name: [result for result in results if result.system == name] for name in systems}
    first = _result_by_list(by_system[systems[0]])
    same = [result for result in results if result.metric == first.metric]
    low, high = zip(*(result.interval for result in same), strict=True)
    series = Series(_metric_title(first.metric), [result.value for result in same], low=low, high=high)
    axis = Axis(f"{_metric_title(first.metric)}, with {confidence:.0%} interval")
    plot = [ItemPlot(systems, [series], axis)] if len(systems) > 1 else []
    sections = [
        Section("Metrics", [*plot, _metric_grid(by_system, confidence)]),
        *([Section("Paired tests", [_comparison_block(comparisons)])] if comparisons else []),
        *_list_sections(systems[0], data, first),
        *repeat_sections({}, {"labels": data}, files, command),
    ]
    value = f"{_metric_title(first.metric)} of {systems[0]} is {first.value:.4f}"
    low_end, high_end = first.interval
    summary = f"{value} ({confidence:.0%} interval {low_end:.4f} to {high_end:.4f}) over {first.lists:,} lists."
    return Page(title or "Evaluation", sections, summary)


def _comparison_block(comparisons: Mapping[str, PairedComparisons]) -> Table:
    found = next(iter(comparisons.values()))
    columns: list[str | Column] = [
        "metric", "system", "against", Column("difference", format="+.4f"),
        Column(f"{found.confidence:.0%} interval", format="+.4f"), Column("t-test", "p", ".2g"),
        Column("Wilcoxon", "p", ".2g"),
    ]  # fmt: skip
    rows = [
        [_metric_title(metric), pair.first, pair.second, pair.difference, pair.interval, pair.t_test, pair.wilcoxon]
        for metric, pairs in comparisons.items()
        for pair in pairs
    ]
    return Table(columns, rows, caption=f"p-values with {found.correction.title()} correction")


def aggregation_page(
    aggregator: Any,
    summary: WorthSummary | None = None,
    *,
    title: str | None = None,
    data: Any = None,
    files: Files | None = None,
    command: str | None = None,
) -> Page:
    """Page of a fitted `RankAggregator`: worths and ranks with intervals, goodness of fit, and how to fit it again.

    Args:
        summary: `aggregator.summary()`, or one with other options.
        data: the data it was fitted to.
        files: the files of that data, under names of your choice.
        command: the command that fitted it.
    """
    summary = aggregator.summary() if summary is None else summary
    best = summary.rows[0]
    outside = f" Left out: items {describe_outside(summary.outside)}." if summary.outside else ""
    place = "first" if best.rank == 1 else f"number {best.rank}, below the items that none of these beats,"
    first = ""
    if above := summary.outside.get("above"):
        first = f"The maximum likelihood estimate does not exist. Ranked first: {listing(above)}. "
    text = (
        f"{first}{len(summary):,} items ranked by {aggregator.n_ballots_:,.10g} ballots.{outside} "
        f"{best.item} is {place} with a worth of {best.worth:.3g} "
        f"({_interval(summary)} {best.worth_low:.3g} to {best.worth_high:.3g})."
    )
    sections = [
        Section("Worths", _worth_plots(summary)),
        _item_section(aggregator, summary),
        Section("Fit", [KeyValues(fit_facts(aggregator))]),
        *repeat_sections(aggregator.get_params(), {} if data is None else {"ballots": data}, files, command),
    ]
    return Page(title or "Worths of items from rankings", sections, text)


@dataclass(frozen=True)
class Reproduced:
    """A published number and our own, each None if unknown. `names` describe it, one for each column of names."""

    names: Sequence[str]
    paper: float | None
    ours: float | None
    standard_error: float | None = None  # of our number, or of the difference if the paper's is known too

    @property
    def difference(self) -> float | None:
        return None if self.paper is None or self.ours is None else self.ours - self.paper


def reproduction_table(
    columns: Sequence[str], rows: Sequence[Reproduced], *, form: str = ".4f", unit: str = ""
) -> Table:
    """Table of the paper's numbers, ours, the differences and their standard errors.

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
    """Page of a reproduced experiment: the table of `reproduction_table`, if any, then the given sections."""
    repeat = repeat_sections(configuration, data or {}, files, command)
    compared = [Section("Comparison with the paper", [table])] if table else []
    return Page(title, [*compared, *sections, *repeat], summary)


# Parts of pages


def repeat_sections(
    configuration: Mapping[str, Any], data: Mapping[str, Any], files: Files | None, command: str | None
) -> list[Section]:
    provenance = KeyValues(_provenance(data, files or {}))
    return [
        *([Section("Configuration", [KeyValues(configuration)], fold=True)] if configuration else []),
        *([Section("Data", [provenance], fold=True)] if provenance.values else []),
        Section("Versions", [KeyValues(versions())], fold=True),
        *([Section("Command", [Command(command)])] if command else []),
    ]


def _provenance(data: Mapping[str, Any], files: Files) -> dict[str, str]:
    from plackett.estimators.persistence import hash_of

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


def _metric_title(metric: str) -> str:
    return metric.upper() if metric.startswith(("ndcg", "err", "map", "mrr")) else metric


def _result_by_list(results: Sequence[Result]) -> Result:
    """NDCG@10 if it was measured, else the first metric with values per list."""
    known = [result for result in results if len(result.values)]
    if not known:
        raise ValueError("results must contain a metric with values per list, got none")
    return next((result for result in known if result.metric == "ndcg@10"), known[0])


def _metric_grid(results: Mapping[str, Sequence[Result]], confidence: float) -> Table:
    """One row per metric; two columns, value and interval, per part or system."""
    columns: list[str | Column] = ["metric"]
    for name in results:
        columns += [Column(name, format=".4f"), Column(f"{confidence:.0%} interval", name, ".4f")]
    found = {name: {result.metric: result for result in own} for name, own in results.items()}
    rows: list[list[Any]] = []
    for metric in dict.fromkeys(result.metric for own in results.values() for result in own):
        cells = [found[name].get(metric) for name in results]
        pairs = [(None, None) if one is None else (one.value, one.interval) for one in cells]
        rows.append([_metric_title(metric), *(value for pair in pairs for value in pair)])
    return Table(columns, rows, caption=_counts(results))


def _counts(results: Mapping[str, Sequence[Result]]) -> str:
    """The number of lists, and of those that a metric skips because no item is relevant."""
    parts = []
    for name, own in results.items():
        counted = [result for result in own if len(result.values)]
        if counted:
            skipped = max(len(result.values) - result.lists for result in counted)
            several = f", {skipped:,} without a relevant item" if skipped else ""
            parts.append(f"{name} {len(counted[0].values):,}{several}")
    return f"Lists: {'; '.join(parts)}." if parts else ""


def _best(model: Any) -> int | None:
    """The epoch or round with the best validation metric."""
    return getattr(model, "best_iteration_", None) or getattr(model, "best_epoch_", None)


def _training_text(model: Any) -> str:
    best = _best(model)
    return f"The best {_step_name(model)} on the validation data was {best:,}." if best else ""


def _step_name(model: Any) -> str:
    return "epoch" if hasattr(model, "history_") else "round"


def _curves(model: Any) -> list[Block]:
    """Plot the loss, then each validation metric, with one line per data set, member and learning rate."""
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
                if isinstance(values, Sequence):  # a single number if the training has no rounds
                    by_metric.setdefault(metric, []).append(Series(name, values, range(first, first + len(values))))
    best = _best(model)
    axis = Axis(_step_name(model), reference=(best, "best") if best else None)
    return [LinePlot(series, axis, Axis(_metric_title(metric))) for metric, series in by_metric.items()]


def _list_sections(part: str, data: RankingData | MultilabelData, result: Result) -> list[Section]:
    if isinstance(data, RankingData):
        names, sizes, what = data.qid[np.minimum(data.offsets[:-1], len(data.qid) - 1)], np.diff(data.offsets), "query"
    else:
        names, sizes, what = np.arange(len(data)), np.diff(data.Y.indptr), "row"
    plural = "queries" if what == "query" else "rows"
    metric = _metric_title(result.metric)
    known = np.flatnonzero(~np.isnan(result.values))
    order = known[np.argsort(-result.values[known], kind="stable")]
    spread = Histogram(
        result.values,
        Axis(metric, reference=(result.value, "mean")),
        span=(0.0, 1.0) if np.all(np.abs(result.values[known] - 0.5) <= 0.5) else None,
        count_title=plural,
        caption=f"{metric} of the {plural} in {part}",
    )
    columns = [what, "documents" if what == "query" else "labels", Column(metric, format=".4f")]

    def table(lists: Any, caption: str) -> Table:
        return Table(columns, [[str(names[i]), int(sizes[i]), float(result.values[i])] for i in lists], caption)

    worst = table(order[::-1][:_EXTREMES], f"The worst {plural} in {part}")
    best = table(order[:_EXTREMES], f"The best {plural} in {part}")
    return [Section(f"{metric} by {what}", [spread, worst, best])]


def _label_sections(model: Any, part: str, data: RankingData | MultilabelData) -> list[Section]:
    """The most frequent labels, if they have names, and how often they are in the top five of a row that has them."""
    classes = getattr(model, "classes_", np.zeros(0))
    if not isinstance(data, MultilabelData) or classes.dtype != object:
        return []
    best = model.predict_top(data.X, min(5, len(classes)))[0]
    Y = without_zeros(data.Y)
    row = np.repeat(np.arange(len(data)), np.diff(Y.indptr))
    found = np.bincount(Y.indices, (best[row] == Y.indices[:, None]).any(1), minlength=len(classes))
    rows = np.bincount(Y.indices, minlength=len(classes))
    order = np.argsort(-rows, kind="stable")[:_MOST_LABELS]
    columns: list[str | Column] = ["label", "rows", Column("in the top five", format=".1%")]
    cells = [[str(classes[i]), int(rows[i]), float(found[i] / rows[i])] for i in order if rows[i]]
    return [Section("Labels", [Table(columns, cells, f"The most frequent labels in {part}")])]


def _feature_sections(model: Any, confidence: float) -> list[Section]:
    low = high = None
    if hasattr(model, "feature_importances_"):
        values = np.asarray(model.feature_importances_)
        title, text, axis = (
            "Feature importances",
            "",
            Axis(f"share of the {_IMPORTANCES[model.importance_type]} of all splits"),
        )
    elif hasattr(model, "coef_"):
        values = np.asarray(model.coef_)
        title, text = "Coefficients", "Compare sizes only between features on the same scale."
        axis = Axis("coefficient")
        if hasattr(model, "confidence_intervals"):
            low, high = model.confidence_intervals(confidence).T
            axis = Axis(f"coefficient, with {confidence:.0%} interval", reference=(0.0, "no effect"))
    else:
        return []
    names = model.feature_labels()
    if not hasattr(model, "feature_names_in_"):
        names = [f"feature {number}" for number in names]
    order = np.argsort(-np.abs(values), kind="stable")[:_MOST_FEATURES]
    if len(order) < len(values):
        text = f"{text} The plot shows the {len(order):,} largest of {len(values):,}.".strip()
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
        "An item of worth v is ranked above one of worth u with probability v / (v + u). The standard error is that "
        "of the difference between the score and the mean of all scores."
    )
    if len(summary) <= _MOST_COMPARED:
        quasi = aggregator.quasi_variances()
        variances = dict(zip(aggregator.items_, quasi.variances.tolist(), strict=True))
        columns.append(Column("quasi-variance", format="#.3g"))
        rows = [[*cells, variances[row.item]] for cells, row in zip(rows, summary, strict=True)]
        text += (
            " Quasi-variances compare any two items: the variance of the difference of their scores is about the sum "
            f"of their quasi-variances, here with an error of at most {quasi.worst_error:.1%} in the standard error."
        )
    return Section("Items", [Table(columns, rows)], text)


def fit_facts(aggregator: Any) -> dict[str, Any]:
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
