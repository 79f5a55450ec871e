"""Coefficients of a linear model as a table."""

from rich.table import Table

from plackett.linear.summary import CoefficientSummary
from plackett.report.terminal import terminal_text


def summary_table(summary: CoefficientSummary) -> Table:
    """One row per feature: coefficient, standard error, z, p-value and confidence interval."""
    table = Table(caption=terminal_text(summary.note))
    for number, name in enumerate(summary.columns):
        table.add_column(name, justify="right" if number else "left")
    for row in summary.rows():
        table.add_row(*map(terminal_text, row))
    return table
