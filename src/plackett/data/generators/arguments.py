"""Checks of the arguments that generators share."""

import math
from typing import Any

import numpy as np


def check_count(name: str, value: Any, least: int, most: int | None = None) -> int:
    """A whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    check_range(name, value, least, math.inf if most is None else most)
    return int(value)


def check_range(name: str, value: Any, least: float, most: float = math.inf) -> float:
    """A finite number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ValueError(f"{name} must be a number, got {value!r}")
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}")
    if value < least:
        raise ValueError(f"{name} must be at least {least:g}, got {value}")
    if value > most:
        raise ValueError(f"{name} must be at most {most:g}, got {value}")
    return float(value)
