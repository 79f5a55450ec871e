"""Pages for people to read: one HTML file that holds all it shows and asks the network for nothing.

A `Page` has sections, a section has blocks: tables, plots, lists of facts, commands. `write_page` makes the file.
"""

from plackett.report.page.html import cell_text, render_page, write_page
from plackett.report.page.model import (
    Axis,
    Block,
    Column,
    Command,
    Histogram,
    ItemPlot,
    KeyValues,
    LinePlot,
    Page,
    Section,
    Series,
    Table,
)
from plackett.report.page.picture import draw_picture

__all__ = [
    "Axis",
    "Block",
    "Column",
    "Command",
    "Histogram",
    "ItemPlot",
    "KeyValues",
    "LinePlot",
    "Page",
    "Section",
    "Series",
    "Table",
    "cell_text",
    "draw_picture",
    "render_page",
    "write_page",
]
