"""From the model of a page to its file.

Texts, tables and facts become HTML here, so that they can be read and printed without a script. Plots become JSON that
`plots.js` draws. The page's policy allows the one script and the one style by their hashes, and no request at all: if
a name that looks like code were not escaped, it would still not run.
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
    Numbers,
    Page,
    Section,
    Series,
    Table,
    style_numbers,
)

_MISSING = _DASH = "\N{EN DASH}"
_MINUS = "\N{MINUS SIGN}"
_WHOLE = (int, np.integer)
_REAL = (float, np.floating)
_SHORT = 24  # letters that fit on a line of a table
_DIGITS = 7  # significant, of what plots show


def escape(text: str) -> str:
    """A text as HTML shows it: nothing in it is markup, and control characters are visible."""
    return escape_markup(visible(text))


def write_page(page: Page, path: str | os.PathLike[str]) -> None:
    """Write the page as one HTML file: whole, or not at all."""
    text = render_page(page)
    with atomic_write(path) as file:
        file.write(text.encode("utf-8", "replace"))


def render_page(page: Page) -> str:
    """The page as HTML.

    >>> from plackett.report.page import KeyValues, Page, Section
    >>> html = render_page(Page("Tea & coffee", [Section("Facts", [KeyValues({"cups": 3})])]))
    >>> "<h1>Tea &amp; coffee</h1>" in html
    True
    """
    plots: list[dict[str, Any]] = []
    sections = "\n".join(_section(number, section, plots) for number, section in enumerate(page.sections))
    style, script = _resource("style.css"), _resource("plots.js")
    return Template(_resource("template.html")).substitute(
        title=escape(page.title),
        summary=_paragraphs(page.summary),
        contents="".join(
            f'<li><a href="#section-{number}">{escape(section.title)}</a></li>'
            for number, section in enumerate(page.sections)
        ),
        sections=sections,
        # In JSON "<" stands only inside texts, where its escape is as good: no text can end the element.
        plots=json.dumps(plots, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


def _resource(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _hash(text: str) -> str:
    """As content security policies have it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{escape(part.strip())}</p>" for part in text.split("\n\n") if part.strip())


def _section(number: int, section: Section, plots: list[dict[str, Any]]) -> str:
    parts = [f'<section id="section-{number}">', f"<h2>{escape(section.title)}</h2>", _paragraphs(section.text)]
    styles = style_numbers(section.blocks)
    parts += [_block(block, plots, styles) for block in section.blocks]
    return "\n".join([*filter(None, parts), "</section>"])


def _block(block: Block, plots: list[dict[str, Any]], styles: Mapping[str, int]) -> str:
    if isinstance(block, Table):
        return _table(block)
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
            f"<td{kind}>{escape(cell_text(value, column.format))}</td>"
            for value, column, kind in zip(row, columns, kinds, strict=True)
        )
        for row in table.rows
    ]
    caption = f'<p class="caption">{escape(table.caption)}</p>' if table.caption else ""
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return (
        f'{caption}<div class="table" role="region" aria-label="{escape(table.caption or "table")}" tabindex="0">'
        f"<table><thead><tr>{''.join(heads)}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>"
    )


def _unit(unit: str) -> str:
    return f' <span class="unit">{escape(unit)}</span>' if unit else ""


def _kind(values: list[Any]) -> str:
    """Of a column: numbers go to the right, short texts stay on a line."""
    if all(
        value is None or (isinstance(value, (*_WHOLE, *_REAL, tuple)) and not isinstance(value, bool))
        for value in values
    ):
        return ' class="number"'
    return ' class="short"' if all(len(str(value)) <= _SHORT for value in values) else ""


def cell_text(value: Any, form: str) -> str:
    """A value of a table as readers see it."""
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
    """Short enough to keep files small; null where there is no finite number."""
    found: list[float | int | None] = []
    for value in values:
        number = math.nan if value is None else float(value)
        if not math.isfinite(number):
            found.append(None)
        else:
            rounded = float(f"{number:.{_DIGITS}g}")
            found.append(int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded)
    return found
