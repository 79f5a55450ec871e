"""Renders the model of a page as HTML.

Texts, tables and facts become HTML here, so that they can be read and printed without a script. Plots become JSON that
`plots.js` draws. The content security policy allows only the one script and the one style sheet, by their hashes, and
no requests: even a name that looks like code and was not escaped would not run.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from html import escape as escape_markup
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np

from plackett.data.files import atomic_write
from plackett.data.text import visible
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
    Numbers,
    Page,
    Section,
    Series,
    Span,
    Table,
    Tabs,
    style_numbers,
)

_MISSING = _DASH = "\N{EN DASH}"
_MINUS = "\N{MINUS SIGN}"
_WHOLE = (int, np.integer)
_REAL = (float, np.floating)
_SHORT = 24  # characters that fit on one line of a table cell
_DIGITS = 7  # significant digits in plots


def escape(text: str) -> str:
    """Escape a text for HTML: nothing in it is markup, and control characters are visible."""
    return escape_markup(visible(text))


def write_page(page: Page, path: str | os.PathLike[str]) -> None:
    """Write the page as one HTML file, atomically."""
    text = render_page(page)
    with atomic_write(path) as file:
        file.write(text.encode("utf-8", "replace"))


def render_page(page: Page) -> str:
    """Render the page as HTML.

    >>> from plackett.report.page import KeyValues, Page, Section
    >>> html = render_page(Page("Tea & coffee", [Section("Facts", [KeyValues({"cups": 3})])]))
    >>> "<h1>Tea &amp; coffee</h1>" in html
    True
    """
    plots: list[dict[str, Any]] = []
    sections = "\n".join(_section(number, section, plots) for number, section in enumerate(page.sections))
    style, script = _resource("style.css"), _resource("plots.js") + _resource("tables.js")
    return Template(_resource("template.html")).substitute(
        title=escape(page.title),
        summary=_paragraphs(page.summary),
        contents="".join(
            f'<li><a href="#section-{number}">{escape(section.title)}</a></li>'
            for number, section in enumerate(page.sections)
        ),
        sections=sections,
        # In JSON, "<" occurs only inside strings, where its escape is equivalent: no string can end the element.
        plots=json.dumps(plots, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


def _resource(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    """The hash in the format of content security policies."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{escape(part.strip())}</p>" for part in text.split("\n\n") if part.strip())


def _section(number: int, section: Section, plots: list[dict[str, Any]]) -> str:
    heading, styles = f"<h2>{escape(section.title)}</h2>", style_numbers(section.blocks)
    parts = [_paragraphs(section.text), *(_block(block, plots, styles) for block in section.blocks)]
    if section.fold:
        parts = ["<details open>", f"<summary>{heading}</summary>", *parts, "</details>"]
    else:
        parts = [heading, *parts]
    return "\n".join([f'<section id="section-{number}">', *filter(None, parts), "</section>"])


def _block(block: Block, plots: list[dict[str, Any]], styles: Mapping[str, int]) -> str:
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Matrix):
        return _matrix(block)
    if isinstance(block, Tabs):
        return _tabs(block, plots, styles)
    if isinstance(block, KeyValues):
        facts = (f"<dt>{escape(str(name))}</dt><dd>{escape(_fact(value))}</dd>" for name, value in block.values.items())
        return f"<dl>{''.join(facts)}</dl>"
    if isinstance(block, Command):
        button = '<button type="button" class="copy">Copy</button>'
        return f'<div class="command"><pre tabindex="0"><code>{escape(block.text)}</code></pre>{button}</div>'
    plots.append(_plot(block, styles))
    caption = f"<figcaption>{escape(block.caption)}</figcaption>" if block.caption else ""
    return f'<figure class="plot" data-plot="{len(plots) - 1}">{caption}</figure>'


# Tables and facts


def _table(table: Table) -> str:
    columns = [Column(column) if isinstance(column, str) else column for column in table.columns]
    kinds = [_kind([row[k] for row in table.rows]) for k in range(len(columns))]
    heads = [
        f'<th scope="col"{kind}>{escape(column.title)}{_unit(column.unit)}</th>'
        for column, kind in zip(columns, kinds, strict=True)
    ]
    rows = [
        "".join(
            f"<td{kind}{_sort_value(value) if table.interactive else ''}>{_cell(value, column.format)}</td>"
            for value, column, kind in zip(row, columns, kinds, strict=True)
        )
        for row in table.rows
    ]
    caption = f'<p class="caption">{escape(table.caption)}</p>' if table.caption else ""
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f'{caption}<div class="{"table interactive" if table.interactive else "table"}" role="region" '
        f'aria-label="{escape(table.caption or "table")}" tabindex="0">'
        f"<table><thead><tr>{''.join(heads)}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def _cell(value: Any, form: str) -> str:
    if not isinstance(value, Span):
        return escape(cell_text(value, form))
    least, most = value.ends
    width = max(most - least, 1e-300)
    low, middle, high = (100.0 * (x - least) / width for x in (value.low, value.value, value.high))
    title = escape(f"{cell_text(value.value, form)} ({cell_text((value.low, value.high), form)})")
    return (
        f'<svg class="span" viewBox="-3 0 106 12" preserveAspectRatio="none" role="img" aria-label="{title}">'
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="6" y2="6"/><circle cx="{middle:.1f}" cy="6" r="2.5"/></svg>'
    )


def _sort_value(value: Any) -> str:
    """The attribute by which a script sorts a cell, if it is a number."""
    if isinstance(value, Span):
        value = value.value
    if isinstance(value, tuple):
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, (*_WHOLE, *_REAL)):
        return ""
    return f' data-value="{float(value):.10g}"'


def _matrix(matrix: Matrix) -> str:
    heads = "".join(f'<th scope="col"><span>{escape(name)}</span></th>' for name in matrix.names)
    rows = []
    for name, values in zip(matrix.names, matrix.values, strict=True):
        cells = "".join(_tone(value) for value in values)
        rows.append(f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>')
    caption = f'<p class="caption">{escape(matrix.caption)}</p>' if matrix.caption else ""
    return (
        f'{caption}<div class="table matrix" role="region" aria-label="{escape(matrix.caption or "matrix")}" '
        f'tabindex="0"><table><thead><tr><th></th>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _tone(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "<td></td>"
    return f'<td class="tone-{min(int(10.0 * value), 9)}">{100.0 * value:.0f}</td>'


def _tabs(tabs: Tabs, plots: list[dict[str, Any]], styles: Mapping[str, int]) -> str:
    buttons, panels = [], []
    for name, blocks in tabs.panels.items():
        buttons.append(f'<button type="button" role="tab">{escape(name)}</button>')
        inside = "\n".join(_block(block, plots, styles) for block in blocks)
        panels.append(f'<div role="tabpanel" aria-label="{escape(name)}">{inside}</div>')
    return f'<div class="tabs"><div role="tablist">{"".join(buttons)}</div>{"".join(panels)}</div>'


def _unit(unit: str) -> str:
    return f' <span class="unit">{escape(unit)}</span>' if unit else ""


def _kind(values: list[Any]) -> str:
    """The class attribute of a column: numbers are right-aligned, short texts are not wrapped."""
    if all(
        value is None or (isinstance(value, (*_WHOLE, *_REAL, tuple, Span)) and not isinstance(value, bool))
        for value in values
    ):
        return ' class="number"'
    return ' class="short"' if all(len(str(value)) <= _SHORT for value in values) else ""


def cell_text(value: Any, form: str) -> str:
    """Format the value of a table cell."""
    if isinstance(value, tuple):
        ends = [cell_text(end, form) for end in value]
        return _MISSING if set(ends) == {_MISSING} else f" {_DASH} ".join(ends)
    if isinstance(value, bool) or not isinstance(value, (*_WHOLE, *_REAL)):
        return _fact(value)
    if math.isnan(value):
        return _MISSING
    if math.isinf(value):
        return "∞" if value > 0 else f"{_MINUS}∞"
    return format(value, form or (",d" if isinstance(value, _WHOLE) else "#.4g")).replace("-", _MINUS)


def _fact(value: Any) -> str:
    if value is None:
        return _MISSING
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, _WHOLE):
        return f"{value:,d}"
    return f"{value:,.8g}" if isinstance(value, _REAL) else str(value)


# Plots


def _plot(block: LinePlot | ItemPlot | Histogram, styles: Mapping[str, int]) -> dict[str, Any]:
    if isinstance(block, LinePlot):
        return {
            "kind": "lines",
            "x": _axis(block.x),
            "y": _axis(block.y),
            "bars": block.error_bars,
            "series": [_series(one, styles[one.name]) for one in block.series],
        }
    if isinstance(block, ItemPlot):
        return {
            "kind": "items",
            "x": _axis(block.axis),
            "items": [visible(str(item)) for item in block.items],
            "bars": block.bars,
            "series": [_series(one, styles[one.name]) for one in block.series],
        }
    values = np.asarray(block.values, np.float64)
    counts, edges = np.histogram(values[np.isfinite(values)], block.bins, block.span)
    return {
        "kind": "histogram",
        "x": _axis(block.axis),
        "y": _axis(Axis(block.count_title)),
        "edges": _numbers(edges),
        "counts": counts.tolist(),
    }


def _axis(axis: Axis) -> dict[str, Any]:
    title = f"{axis.title} ({axis.unit})" if axis.unit else axis.title
    found: dict[str, Any] = {"title": visible(title), "log": axis.log, "reference": None}
    if axis.reference is not None:
        value, text = axis.reference
        found["reference"] = {"value": _numbers([value])[0], "text": visible(text)}
    return found


def _series(series: Series, style: int) -> dict[str, Any]:
    x = range(1, len(series.y) + 1) if series.x is None else series.x
    found: dict[str, Any] = {"name": visible(series.name), "style": style, "x": _numbers(x), "y": _numbers(series.y)}
    if series.low is not None and series.high is not None:
        found |= {"low": _numbers(series.low), "high": _numbers(series.high)}
    return found


def _numbers(values: Numbers | Iterable[float]) -> list[float | int | None]:
    """Round numbers to keep files small; None if not finite."""
    found: list[float | int | None] = []
    for value in values:
        number = math.nan if value is None else float(value)
        if not math.isfinite(number):
            found.append(None)
        else:
            rounded = float(f"{number:.{_DIGITS}g}")
            found.append(int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded)
    return found
