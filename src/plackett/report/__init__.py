"""Tables, figures and HTML pages for people to read.

Start with `run_pages`, which builds the pages of a training run, an aggregation or a reproduced experiment from the
blocks of `page.model`, and `board`, which builds that of a leaderboard; `page.html` renders them and `page.picture`
draws them as PNG. Tables for the terminal are in `metric_tables`, `data_tables`, `histories`, `numeric_tables` and
`worths`; `terminal` makes untrusted text safe to print, and `versions` describes the environment. May import
`evaluation`, the estimators and everything below them; only `experiments` and `cli` import this package.
"""

from plackett.report import page
from plackett.report.board import Scale, board_page
from plackett.report.data_tables import description_table
from plackett.report.histories import history_table, plot_history, plot_rounds
from plackett.report.metric_tables import comparison_table, result_table
from plackett.report.numeric_tables import summary_table
from plackett.report.page import render_page, write_page
from plackett.report.run_pages import (
    Reproduced,
    aggregation_page,
    evaluation_page,
    reproduction_page,
    reproduction_table,
    training_page,
)
from plackett.report.worths import worth_table

__all__ = [
    "Reproduced",
    "Scale",
    "aggregation_page",
    "board_page",
    "comparison_table",
    "description_table",
    "evaluation_page",
    "history_table",
    "page",
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
