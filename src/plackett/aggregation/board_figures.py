"""Figures of a leaderboard: probabilities of wins as a heat map, and predicted against seen outcomes."""

from __future__ import annotations

from typing import Any

import numpy as np

from plackett.data.comparisons import TIE, Comparisons
from plackett.data.files import save_figure
from plackett.data.text import visible
from plackett.errors import MissingDependencyError
from plackett.objective import Floats

_BINS = 10
_COLOURS = ("#0072B2", "#D55E00")


def _figure(width: float, height: float) -> tuple[Any, Any]:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependencyError("matplotlib", "report", "a figure") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def probability_figure(items: list[Any], probabilities: Floats, path: Any) -> Any:
    """A cell for each two items: the probability that the item of the row wins."""
    side = 2.5 + 0.24 * len(items)
    figure, axes = _figure(side + 1.0, side)
    image = axes.imshow(probabilities, cmap="RdBu", vmin=0.0, vmax=1.0)
    names = [visible(str(item)) for item in items]
    axes.set_xticks(range(len(items)), names, rotation=90, parse_math=False)
    axes.set_yticks(range(len(items)), names, parse_math=False)
    figure.colorbar(image, ax=axes, label="probability that the row wins", shrink=0.7)
    if path is not None:
        save_figure(figure, path)
    return figure


def calibration(probabilities: Floats, comparisons: Comparisons, outcome: int) -> tuple[Floats, Floats, Floats]:
    """Mean prediction, share seen and weight of comparisons in ten groups of equal weight, for one outcome."""
    place = 1 - outcome
    predicted = probabilities[:, place]
    seen = (np.asarray(comparisons.outcome) == outcome).astype(np.float64)
    weights = comparisons.weights
    order = np.argsort(predicted, kind="stable")
    running = np.cumsum(weights[order])
    groups = np.minimum((_BINS * (running - 0.5 * weights[order]) / running[-1]).astype(np.int64), _BINS - 1)
    totals = np.bincount(groups, weights[order], minlength=_BINS).astype(np.float64)
    kept = totals > 0.0
    means = [np.bincount(groups, weights[order] * values[order], minlength=_BINS) for values in (predicted, seen)]
    return means[0][kept] / totals[kept], means[1][kept] / totals[kept], totals[kept]


def calibration_figure(probabilities: Floats, comparisons: Comparisons, path: Any) -> Any:
    """Points on the diagonal: what is predicted with a probability of p happens in a share p of the cases."""
    figure, axes = _figure(5.0, 5.0)
    axes.plot([0.0, 1.0], [0.0, 1.0], color="0.6", linewidth=1.0, linestyle="--")
    for name, outcome, colour in (("left wins", 1, _COLOURS[0]), ("tie", TIE, _COLOURS[1])):
        predicted, seen, totals = calibration(probabilities, comparisons, outcome)
        if outcome == TIE and not seen.any():
            continue
        errors = 1.96 * np.sqrt(np.maximum(seen * (1.0 - seen), 0.0) / totals)
        axes.errorbar(predicted, seen, errors, fmt="o", color=colour, capsize=2.5, label=name)
    axes.set_xlabel("predicted probability")
    axes.set_ylabel("share seen, with 95% intervals")
    axes.legend(frameon=False)
    axes.grid(alpha=0.25)
    if path is not None:
        save_figure(figure, path)
    return figure
