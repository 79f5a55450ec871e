"""Checks of arguments. Each error names the argument, what was expected and what came."""

import math
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

_LARGEST = sys.float_info.max  # Python's whole numbers go beyond it


def describe(value: Any) -> str:
    """The kind of a value, and its shape if it has one."""
    shape = getattr(value, "shape", None)
    return f"{type(value).__name__} of shape {tuple(shape)}" if isinstance(shape, tuple) else type(value).__name__


def check_kind(name: str, value: Any, *kinds: type) -> None:
    """An instance of one of the kinds."""
    if not isinstance(value, kinds):
        expected = dict.fromkeys("None" if kind is type(None) else kind.__name__ for kind in kinds)
        got = repr(value) if isinstance(value, str | int | float) else describe(value)
        raise ValueError(f"{name} must be {' or '.join(expected)}, got {got}")


def as_array(name: str, values: Any) -> npt.NDArray[Any]:
    """An array of any type."""
    try:
        return np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} must be an array, or nested lists of equal lengths, got others: {error}") from None


def as_numbers(name: str, values: Any) -> npt.NDArray[np.float64]:
    """An array of float64. Texts are no numbers, even if they spell one."""
    array = as_array(name, values)
    is_numeric = array.dtype.kind in "biuf"
    if array.dtype.kind == "O":
        is_numeric = not any(isinstance(value, str | bytes) for value in array.flat)
    try:
        if is_numeric:
            return array.astype(np.float64, copy=False)
    except (TypeError, ValueError):
        pass
    raise ValueError(f"{name} must hold numbers, got {array.dtype}")


def check_count(name: str, value: Any, least: int, most: int | None = None) -> int:
    """A whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    check_range(name, value, least, _LARGEST if most is None else most)
    return int(value)


def check_range(name: str, value: Any, least: float, most: float = _LARGEST) -> float:
    """A finite number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ValueError(f"{name} must be a number, got {value!r}")
    if not -math.inf < value < math.inf:
        raise ValueError(f"{name} must be finite, got {value}")
    if value < least:
        raise ValueError(f"{name} must be at least {least:g}, got {value}")
    if value > most:
        raise ValueError(f"{name} must be at most {most:g}, got {value}")
    return float(value)


def check_fraction(name: str, value: Any) -> float:
    """A number between 0 and 1, neither of which it is."""
    if not isinstance(value, int | float | np.number) or not 0.0 < value < 1.0:
        raise ValueError(f"{name} must be a number between 0 and 1, got {value!r}")
    return float(value)
