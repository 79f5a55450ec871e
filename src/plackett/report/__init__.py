"""Tables and figures for people to look at."""

from plackett.report.coefficients import coefficient_figure, coefficient_table
from plackett.report.description import description_table
from plackett.report.evaluation import comparison_table, result_table
from plackett.report.summary import summary_table
from plackett.report.training import history_table, plot_history
from plackett.report.worths import worth_table

__all__ = [
    "coefficient_figure",
    "coefficient_table",
    "comparison_table",
    "description_table",
    "history_table",
    "plot_history",
    "result_table",
    "summary_table",
    "worth_table",
]
