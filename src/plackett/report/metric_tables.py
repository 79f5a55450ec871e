"""Evaluation results as tables."""

from collections.abc import Mapping, Sequence

from rich.table import Table

from plackett.evaluation import Result
from plackett.metrics.comparison import PairedComparisons
from plackett.report.terminal import terminal_text


def result_table(results: Sequence[Result], confidence: float) -> Table:
    """One row per metric and system: the value, its interval, and the number of lists."""
    several = len({result.system for result in results}) > 1
    table = Table()
    for name in ("metric", *(["system"] if several else [])):
        table.add_column(name, overflow="fold")  # users look for these names: a narrow terminal must not cut them
    for name in ("value", f"{confidence:.0%} interval", "lists", "skipped"):
        table.add_column(name, justify="right", no_wrap=True)
    for result in results:
        low, high = result.interval
        names = [terminal_text(name) for name in (result.metric, *([result.system] if several else []))]
        skipped = len(result.values) - result.lists
        interval = f"{low:.4f} to {high:.4f}" if low == low else "-"
        table.add_row(*names, f"{result.value:.4f}", interval, f"{result.lists:,}", f"{skipped:,}")
    return table


def comparison_table(comparisons: Mapping[str, PairedComparisons]) -> Table:
    """Paired tests, one row per metric and pair of systems: the difference above its interval, and p-values."""
    first = next(iter(comparisons.values()))
    table = Table(caption=f"{first.confidence:.0%} intervals; p-values with {first.correction.title()} correction")
    for name in ("metric", "system", "against"):
        table.add_column(name, overflow="fold")
    for name in ("difference", "t-test", "Wilcoxon"):
        table.add_column(name, justify="right", no_wrap=True)
    for metric, pairs in comparisons.items():
        for pair in pairs:
            low, high = pair.interval
            names = map(terminal_text, (metric, pair.first, pair.second))
            difference = f"{pair.difference:+.4f}\n{low:+.4f} to {high:+.4f}"
            table.add_row(*names, difference, f"{pair.t_test:.3g}", f"{pair.wilcoxon:.3g}")
    return table
