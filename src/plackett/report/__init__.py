"""Tables and figures for people to look at."""

from plackett.report.coefficients import coefficient_figure, coefficient_table

__all__ = ["coefficient_figure", "coefficient_table"]
