"""Worths with their intervals as a figure."""

from __future__ import annotations

from io import IOBase
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np

from plackett.aggregation.connectivity import listing
from plackett.aggregation.summary import WorthSummary
from plackett.arguments import check_kind, check_positive
from plackett.data.files import save_figure
from plackett.data.text import visible
from plackett.errors import MissingDependencyError

_COLOUR = "#0072B2"


def worth_figure(summary: WorthSummary, path: str | Path | None = None, *, top: int | None = 100) -> Any:
    """One row per item, the best on top: its worth as a dot and the interval as a line, on a logarithmic axis.

    The best `top` items are shown; None: all. Returns the matplotlib Figure; it is saved if a path is given, in the
    format that the path's ending names.
    """
    check_kind("path", path, str, PathLike, IOBase, NoneType)
    if top is not None:
        check_positive("top", top, ", or None")
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import LogLocator, NullFormatter
    except ImportError:
        raise MissingDependencyError("matplotlib", "report", "a figure") from None
    worths, low, high = (summary.column(name)[:top] for name in ("worth", "worth_low", "worth_high"))
    places = np.arange(len(worths))
    figure = Figure(figsize=(7.0, 1.3 + 0.24 * len(worths)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.hlines(places, low, high, color=_COLOUR, linewidth=2.0, alpha=0.45)
    axes.plot(worths, places, "o", color=_COLOUR, markersize=5)
    axes.axvline(1.0 / len(summary), color="0.5", linewidth=1.0, linestyle="--")
    axes.set_xscale("log")
    low_end, high_end = axes.get_xlim()
    steps = (1.0, 2.0, 5.0) if high_end < 300 * low_end else (1.0,)  # further apart, the labels of steps would touch
    axes.xaxis.set_major_locator(LogLocator(subs=steps))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    # Names are not formulas, even if they contain two $.
    axes.set_yticks(places, [visible(str(row.item)) for row in summary.rows[:top]], parse_math=False)
    axes.set_ylim(len(worths) - 0.5, -0.5)
    axes.set_xlabel(f"worth, with {summary.confidence:.0%} intervals (dashed: all worths equal)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", alpha=0.25)
    if above := summary.outside.get("above"):
        title = visible(f"above all of these, because none of these beats them: {listing(above)}")
        axes.set_title(title, fontsize="small", wrap=True, parse_math=False)
    if path is not None:
        save_figure(figure, path)
    return figure
