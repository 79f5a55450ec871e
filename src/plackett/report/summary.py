"""Coefficients of a linear model as a table."""

from rich.table import Table

from plackett.linear.summary import CoefficientSummary
from plackett.report.terminal import shown


def summary_table(summary: CoefficientSummary) -> Table:
    """A row a feature: coefficient, standard error, z, p value and confidence interval."""
    table = Table(caption=shown(summary.note))
    for number, name in enumerate(summary.columns):
        table.add_column(name, justify="right" if number else "left")
    for row in summary.rows():
        table.add_row(*map(shown, row))
    return table
