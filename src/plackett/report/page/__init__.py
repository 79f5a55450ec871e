"""Self-contained HTML pages: one file that makes no network requests.

A `Page` has sections, and a section has blocks: tables, plots, lists of facts, commands. `write_page` writes the file.
Start with `model`, the parts of a page; `html` renders them, with `template.html`, `style.css` and `plots.js`, and
`picture` draws its plots as PNG. May import `data` (files, safe text) and the foundation.
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
    Matrix,
    Page,
    Section,
    Series,
    Span,
    Table,
    Tabs,
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
    "Matrix",
    "Page",
    "Section",
    "Series",
    "Span",
    "Table",
    "Tabs",
    "cell_text",
    "draw_picture",
    "render_page",
    "write_page",
]
