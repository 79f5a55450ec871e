"""Positions at which items were shown, and what models learn about them.

A position is anything that attention may depend on: the place in the list, a screen, a layout. Models take the values
as categories; the order of numbers, of texts, or of pandas' categories only decides which comes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import IOBase
from numbers import Real
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.arguments import as_array, as_numbers, check_kind, is_missing, to_numpy, type_and_shape
from plackett.data.files import save_figure
from plackett.data.text import visible
from plackett.errors import MissingDependencyError
from plackett.lists import IntArray

Floats = npt.NDArray[np.float64]

_COLOUR = "#0072B2"


@dataclass(frozen=True, eq=False)
class Positions:
    """The position of each row.

    values  the different positions, ascending
    codes   (rows,), which of them each row has
    """

    values: npt.NDArray[Any]
    codes: IntArray

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Any) -> Positions:
        """The positions of some rows, by index or mask, in this order; `values` stays the same."""
        return Positions(self.values, self.codes[rows])


def make_positions(position: Any, rows: int) -> Positions:
    """Checked positions: numbers of at least 0, or categories; one for each of the rows."""
    array = as_array("position", to_numpy(position))
    if array.shape != (rows,):
        raise ValueError(
            f"position must hold one value for each of the {rows} rows of X, or name a column of it, got "
            f"{type_and_shape(array)}"
        )
    if array.dtype.kind == "O":
        missing = np.array([is_missing(value) for value in array], bool)
    else:
        missing = np.asarray(array != array)  # NaN and NaT
    if missing.any():
        raise ValueError(
            f"position must not be missing or NaN, got one at row {int(np.argmax(missing))}: leave out rows whose "
            "position is unknown, or give these a category of their own"
        )
    values, codes = _distinct(array)
    given = getattr(getattr(position, "dtype", None), "categories", None)
    if given is not None:  # pandas' categories have an order of their own
        rank = {value: number for number, value in enumerate(given)}
        order = np.argsort([rank[value] for value in values.tolist()])
        values, codes = values[order], np.argsort(order)[codes]
    if len(values) >= rows > 1:
        raise ValueError(
            f"position must have fewer different values than rows, got {len(values)} for {rows} rows: the effect of a "
            "position shows only where it occurs with several items"
        )
    return Positions(values, codes.astype(np.int64))


def _distinct(array: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], IntArray]:
    """The different values, ascending, and the number of each entry's."""
    if array.dtype.kind == "O" and all(isinstance(value, Real) for value in array):
        array = as_numbers("position", array)
    if array.dtype.kind not in "biufUO":
        raise ValueError(f"position must hold numbers or categories, got {array.dtype}")
    if array.dtype.kind in "if":
        bad = ~(array >= 0) | ~np.isfinite(array)
        if bad.any():
            at = int(np.argmax(bad))
            raise ValueError(
                f"position must be a finite number of at least 0, or a category, got {array[at]} at row {at}"
            )
    try:
        values, codes = np.unique(array, return_inverse=True)
    except TypeError:
        raise ValueError("position must hold values of one kind, got kinds that cannot be compared") from None
    return values, codes


@dataclass(frozen=True, eq=False)
class PositionBias:
    """What a model learned about positions: utility in training = score + bias[position].

    positions        the different positions, ascending
    bias             (positions,), relative to the first one, whose bias is 0
    standard_errors  (positions,), of the differences from the first; NaN if there are none

    exp(bias) estimates how likely an item is examined at a position, relative to the first.
    """

    positions: npt.NDArray[Any]
    bias: Floats
    standard_errors: Floats

    @property
    def propensities(self) -> Floats:
        """exp(bias)."""
        return np.exp(self.bias)

    def propensity(self, position: Any) -> Floats:
        """exp(bias) at the position of each row; its inverse is a weight for `item_weight`."""
        wanted = as_array("position", to_numpy(position))
        known = dict(zip(self.positions.tolist(), self.propensities.tolist(), strict=True))
        unknown = [value for value in np.unique(wanted).tolist() if value not in known]
        if unknown:
            raise ValueError(f"position must be one that the model was fitted to, got {unknown[0]!r}")
        return np.array([known[value] for value in wanted.reshape(-1).tolist()]).reshape(wanted.shape)

    def __str__(self) -> str:
        rows = [["position", "bias", "standard error", "exp(bias)"]]
        numbers = zip(self.positions, self.bias, self.standard_errors, self.propensities, strict=True)
        rows += [[visible(str(value)), f"{b:.3f}", f"{error:.3f}", f"{p:.3f}"] for value, b, error, p in numbers]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)

    def plot(self, path: str | Path | None = None, *, truth: Any = None) -> Any:
        """The biases as a matplotlib Figure, with intervals of two standard errors where there are any.

        Args:
            path: where to save it, in the format that the ending names; None: nowhere.
            truth: the true bias of each position, if it is known, drawn next to the estimates.
        """
        check_kind("path", path, str, PathLike, IOBase, NoneType)
        try:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
        except ImportError:
            raise MissingDependencyError("matplotlib", "report", "a figure") from None
        places = np.arange(len(self.positions))
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        reach = 2.0 * np.nan_to_num(self.standard_errors, nan=0.0, posinf=0.0)
        axes.errorbar(places, self.bias, yerr=reach, fmt="o", color=_COLOUR, markersize=5, label="learned")
        if truth is not None:
            axes.plot(places, as_numbers("truth", truth), "--", color="0.4", label="true")
            axes.legend(frameon=False)
        step = max(1, len(places) // 20)
        names = [visible(str(value)) for value in self.positions[::step]]
        axes.set_xticks(places[::step], names, parse_math=False)
        axes.set_xlabel("position")
        axes.set_ylabel("bias, relative to the first position")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.25)
        if path is not None:
            save_figure(figure, path)
        return figure

    # On disk

    def to_json(self) -> dict[str, Any]:
        """Plain values: NaN and infinity become None."""
        errors = [float(error) if np.isfinite(error) else None for error in self.standard_errors]
        return {"positions": self.positions.tolist(), "bias": self.bias.tolist(), "standard_errors": errors}

    @classmethod
    def from_json(cls, stored: Any) -> PositionBias:
        """The inverse of `to_json`, for a description that anyone may have written."""
        positions, bias, errors = (stored[name] for name in ("positions", "bias", "standard_errors"))
        if not all(isinstance(part, list) for part in (positions, bias, errors)):
            raise ValueError("position_bias must hold lists")
        if not len(positions) == len(bias) == len(errors) or not {type(b) for b in bias} <= {int, float}:
            raise ValueError("position_bias must hold a number for each position")
        if not {type(error) for error in errors} <= {int, float, NoneType}:
            raise ValueError("standard errors of position_bias must be numbers")
        if len({type(value) for value in positions}) > 1 or not {type(v) for v in positions} <= {int, float, bool, str}:
            raise ValueError("positions must be numbers or strings")
        found = np.array([np.nan if error is None else error for error in errors], np.float64)
        return cls(np.array(positions), np.array(bias, np.float64), found)


def make_position_bias(values: npt.NDArray[Any], bias: Floats, covariance: Floats | None = None) -> PositionBias:
    """Biases relative to the first position, with the errors of the differences from it."""
    errors = np.full(len(bias), np.nan)
    if covariance is not None:
        variance = np.diag(covariance) + covariance[0, 0] - 2.0 * covariance[0]
        errors = np.sqrt(np.maximum(variance, 0.0))
        errors[0] = 0.0
    return PositionBias(values, bias - bias[0] if len(bias) else bias, errors)
