"""Worths of items as a table."""

from rich.table import Table

from plackett.aggregation.summary import WorthSummary
from plackett.report.terminal import terminal_text


def worth_table(summary: WorthSummary, title: str | None = None) -> Table:
    """One row per item, best first, with intervals for its worth and its rank.

    Items above or below all of these share one row. The caption describes the goodness of fit.
    """
    table = Table(title=None if title is None else terminal_text(title), caption=terminal_text(summary.fit()))
    for name in summary.header():
        table.add_column(name, justify="left" if name == "item" else "right", no_wrap=name != "item")
    for cells in summary.cells():
        table.add_row(*map(terminal_text, cells))
    return table
