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
        table.add_column(name)
    for name in ("value", f"{confidence:.0%} interval", "lists", "skipped"):
        table.add_column(name, justify="right")
    for result in results:
        low, high = result.interval
        names = [terminal_text(name) for name in (result.metric, *([result.system] if several else []))]
        skipped = len(result.values) - result.lists
        interval = f"{low:.4f} - {high:.4f}" if low == low else "-"
        table.add_row(*names, f"{result.value:.4f}", interval, f"{result.lists:,}", f"{skipped:,}")
    return table


def comparison_table(comparisons: Mapping[str, PairedComparisons]) -> Table:
    """Paired tests, one row per metric and pair of systems."""
    first = next(iter(comparisons.values()))
    table = Table(caption=f"{first.confidence:.0%} intervals; p-values with {first.correction} correction")
    for name in ("metric", "system", "against"):
        table.add_column(name)
    for name in ("difference", "interval", "t-test p", "Wilcoxon p"):
        table.add_column(name, justify="right")
    for metric, pairs in comparisons.items():
        for pair in pairs:
            low, high = pair.interval
            tests = f"{pair.t_test:.3g}", f"{pair.wilcoxon:.3g}"
            names = map(terminal_text, (metric, pair.first, pair.second))
            table.add_row(*names, f"{pair.difference:+.4f}", f"{low:+.4f} - {high:+.4f}", *tests)
    return table
