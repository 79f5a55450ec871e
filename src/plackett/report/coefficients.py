"""Estimated coefficients of several methods beside the truth, as a table and as a figure."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.table import Table

from plackett.data.files import save_figure
from plackett.errors import MissingDependencyError

# Okabe and Ito's palette, which people with any colour vision can tell apart.
_COLOURS = ("#0072B2", "#D55E00")


def _mean_and_error(rows: npt.NDArray[np.float64]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    if len(rows) < 2:
        return rows.mean(axis=0), np.full(rows.shape[1], np.nan)
    return rows.mean(axis=0), rows.std(axis=0, ddof=1) / np.sqrt(len(rows))


def coefficient_table(estimates: Mapping[str, npt.NDArray[np.float64]], truth: Sequence[float]) -> Table:
    """Mean over repetitions and its standard error for each method, and how far the size of the coefficients is off."""
    table = Table(title="Recovered coefficients: mean over seeds ± standard error of the mean")
    table.add_column("treatment of ties")
    for i, value in enumerate(truth):
        table.add_column(f"coefficient {i + 1}\n(truth {value:g})", justify="right")
    table.add_column("size\noff by", justify="right")
    for name, rows in estimates.items():
        mean, error = _mean_and_error(rows)
        off = float(mean @ np.asarray(truth)) / float(np.square(truth).sum()) - 1.0
        cells = [f"{m:.3f} ± {e:.3f}" for m, e in zip(mean, error, strict=True)]
        table.add_row(name, *cells, f"{off:+.1%}")
    return table


def coefficient_figure(
    estimates: Mapping[str, npt.NDArray[np.float64]], truth: Sequence[float], path: str | Path
) -> None:
    """One row a method: every estimate as a dot, the mean as a bar, the truth as a line. Saved as PNG."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependencyError("matplotlib", "report", "a figure") from None
    figure = Figure(figsize=(8.0, 1.4 + 0.62 * len(estimates)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for i, (value, colour) in enumerate(zip(truth, _COLOURS, strict=False)):
        axes.axvline(value, color=colour, linewidth=1.2, linestyle="--", label=f"true coefficient {i + 1}: {value:g}")
        for row, rows in enumerate(estimates.values()):
            axes.plot(rows[:, i], np.full(len(rows), row), "o", color=colour, alpha=0.35, markersize=5, mew=0)
            axes.plot([rows[:, i].mean()] * 2, [row - 0.28, row + 0.28], color=colour, linewidth=2.5)
    axes.set_yticks(range(len(estimates)), list(estimates))
    axes.set_ylim(len(estimates) - 0.5, -0.5)
    axes.set_xlabel("estimate (dots: one a seed; bars: their mean)")
    axes.set_title("Approximate likelihoods shrink what is learnt from ties")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", alpha=0.25)
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    save_figure(figure, path)
