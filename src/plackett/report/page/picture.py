"""The plots of a page as one PNG image, for documents that cannot embed the page itself."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from plackett.data.text import visible
from plackett.errors import MissingDependencyError
from plackett.report.page.model import Axis, ItemPlot, LinePlot, Section, Series, style_numbers

# Okabe and Ito's palette, which is distinguishable with any kind of colour vision; marks and dashes differ too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKS = "osD^vPX"
_DASHES = ("-", "--", "-.", ":")
_MANY = 12  # lines with more points get no marks
_COLUMNS, _LARGEST = 2, 3
_WIDTHS = {1: 7.5, 2: 7.5, 3: 6.5}  # inches of a plot, by columns


def draw_picture(sections: Sequence[Section]) -> bytes | None:
    """Draw all line and item plots of the sections as PNG, two per row, or three if all counts are multiples of 3."""
    by_section = [[block for block in section.blocks if isinstance(block, LinePlot | ItemPlot)] for section in sections]
    plots = [plot for own in by_section for plot in own]
    if not plots:
        return None
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependencyError("matplotlib", "report", "a picture") from None
    styles = style_numbers(plots)
    columns = _LARGEST if all(len(own) % _LARGEST == 0 for own in by_section) else min(_COLUMNS, len(plots))
    rows = -(-len(plots) // columns)
    height = max(3.6, *(0.28 * len(plot.items) + 1.2 for plot in plots if isinstance(plot, ItemPlot)), 0.0)
    figure = Figure(figsize=(_WIDTHS[columns] * columns, height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    for number, plot in enumerate(plots):
        axes = figure.add_subplot(rows, columns, number + 1)
        if isinstance(plot, LinePlot):
            _lines(axes, plot, styles)
        else:
            _items(axes, plot, styles)
        axes.set_title(plain(plot.caption), fontsize="medium", wrap=True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        if len(axes.get_legend_handles_labels()[1]) > 1:
            axes.legend(fontsize="small", frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    picture = io.BytesIO()
    figure.savefig(picture, dpi=80, format="png", metadata={"Software": None})
    return picture.getvalue()


def plain(text: str) -> str:
    """Escape a text so that matplotlib draws it verbatim, with control characters visible.

    Matplotlib would read the text between two $ as mathematics, and fail if it is not.
    """
    return visible(text).replace("$", r"\$")


def _numbers(values: Any) -> Any:
    return np.array([np.nan if value is None else float(value) for value in values])


def _lines(axes: Any, plot: LinePlot, styles: Mapping[str, int]) -> None:
    for series in plot.series:
        number = styles[series.name]
        y = _numbers(series.y)
        x = np.arange(1.0, len(y) + 1.0) if series.x is None else _numbers(series.x)
        style = {
            "color": COLOURS[number % len(COLOURS)],
            "linestyle": _DASHES[number % len(_DASHES)],
            "marker": _MARKS[number % len(_MARKS)] if len(y) <= _MANY else None,
            "markersize": 5,
            "label": plain(series.name),
        }
        if plot.error_bars and series.low is not None:
            axes.errorbar(x, y, _reach(series, y), capsize=2.5, **style)
            continue
        axes.plot(x, y, **style)
        if series.low is not None:
            axes.fill_between(x, _numbers(series.low), _numbers(series.high), color=style["color"], alpha=0.15, lw=0)
    _axis(axes, "x", plot.x)
    _axis(axes, "y", plot.y)


def _items(axes: Any, plot: ItemPlot, styles: Mapping[str, int]) -> None:
    places = np.arange(len(plot.items), dtype=float)
    width = 0.7 / len(plot.series)
    for place, series in enumerate(plot.series):
        x = _numbers(series.y)
        own = places + (place - (len(plot.series) - 1) / 2.0) * width
        number = styles[series.name]
        colour = COLOURS[number % len(COLOURS)]
        if plot.bars:
            axes.barh(own, x, width, color=colour, label=plain(series.name), xerr=_reach(series, x))
        else:
            axes.errorbar(
                x, own, xerr=_reach(series, x), fmt=_MARKS[number % len(_MARKS)], color=colour, markersize=5,
                capsize=2.5, label=plain(series.name),
            )  # fmt: skip
    axes.set_yticks(places, [plain(item) for item in plot.items])
    axes.invert_yaxis()
    _axis(axes, "x", plot.axis)


def _reach(series: Series, values: Any) -> Any:
    """The lengths of the interval below and above the value."""
    if series.low is None or series.high is None:
        return None
    return np.abs(np.stack([values - _numbers(series.low), _numbers(series.high) - values]))


def _axis(axes: Any, which: str, axis: Axis) -> None:
    getattr(axes, f"set_{which}label")(plain(f"{axis.title} ({axis.unit})" if axis.unit else axis.title))
    if axis.log:
        getattr(axes, f"set_{which}scale")("log")
    if axis.reference is not None:
        value, text = axis.reference
        draw = axes.axvline if which == "x" else axes.axhline
        draw(value, color="#666666", linestyle=":", linewidth=1.2, label=plain(text))
