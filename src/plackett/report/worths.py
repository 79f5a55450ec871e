"""Worths of items as a table."""

from rich.table import Table

from plackett.aggregation.summary import WorthSummary
from plackett.report.terminal import shown


def worth_table(summary: WorthSummary, title: str | None = None) -> Table:
    """A row an item, best first, with intervals for its worth and its rank, and one for the items above or below all of
    these; under it how the model fits."""
    table = Table(title=None if title is None else shown(title), caption=shown(summary.fit()))
    for name in summary.header():
        table.add_column(name, justify="left" if name == "item" else "right", no_wrap=name != "item")
    for cells in summary.cells():
        table.add_row(*map(shown, cells))
    return table
