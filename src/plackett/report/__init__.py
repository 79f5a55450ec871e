"""Tables, figures and pages for people to look at."""

from plackett.report.coefficients import coefficient_figure, coefficient_table
from plackett.report.description import description_table
from plackett.report.evaluation import comparison_table, result_table
from plackett.report.page import render_page, write_page
from plackett.report.runs import Reproduced, aggregation_page, reproduction_page, reproduction_table, training_page
from plackett.report.summary import summary_table
from plackett.report.training import history_table, plot_history, plot_rounds
from plackett.report.worths import worth_table

__all__ = [
    "Reproduced",
    "aggregation_page",
    "coefficient_figure",
    "coefficient_table",
    "comparison_table",
    "description_table",
    "history_table",
    "plot_history",
    "plot_rounds",
    "render_page",
    "reproduction_page",
    "reproduction_table",
    "result_table",
    "summary_table",
    "training_page",
    "worth_table",
    "write_page",
]
