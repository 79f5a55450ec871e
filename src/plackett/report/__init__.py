"""Tables and figures for people to look at."""

from plackett.report.coefficients import coefficient_figure, coefficient_table
from plackett.report.description import description_table
from plackett.report.evaluation import comparison_table, result_table

__all__ = ["coefficient_figure", "coefficient_table", "comparison_table", "description_table", "result_table"]
