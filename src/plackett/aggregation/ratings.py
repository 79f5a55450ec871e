"""Scores on the scale of Elo ratings and the like."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from plackett.aggregation.inference import Floats, check_confidence
from plackett.arguments import check_range

MEAN = 1000.0
"""The mean of ratings that are not anchored."""


@dataclass(frozen=True)
class Ratings:
    """One rating per item, in the order of `items`, with its standard error and the ends of its interval."""

    items: list[Any]
    ratings: Floats
    standard_errors: Floats
    low: Floats
    high: Floats

    def __getitem__(self, item: Any) -> float:
        """The rating of an item."""
        return float(self.ratings[self.items.index(item)])


def rate(
    items: list[Any],
    scores: Floats,
    errors: Floats,
    scale: float,
    base: float,
    anchor: tuple[Any, float] | None,
    confidence: float,
) -> Ratings:
    """scale * log_base(worth), shifted so that the mean is 1000 or the anchor has its rating.

    A difference of `scale` means odds of `base` to 1. The anchor shifts all ratings; intervals remain those of the
    differences from the mean.
    """
    if check_range("scale", scale, 0.0) == 0.0 or check_range("base", base, 1.0) == 1.0:
        raise ValueError(f"scale must be above 0 and base above 1, got {scale} and {base}")
    unit = scale / math.log(base)
    ratings = MEAN + unit * scores
    if anchor is not None:
        name, value = _check_anchor(anchor, items)
        ratings = ratings + (value - ratings[items.index(name)])
    reach = check_confidence(confidence) * unit * errors
    return Ratings(items, ratings, np.asarray(unit * errors), ratings - reach, ratings + reach)


def _check_anchor(anchor: Any, items: list[Any]) -> tuple[Any, float]:
    if not isinstance(anchor, tuple | list) or len(anchor) != 2:
        raise ValueError(f"anchor must be an item and its rating, such as ('gpt-4', 1000), got {anchor!r}")
    name, value = anchor
    if name not in items:
        raise ValueError(f"anchor must be one of the model's {len(items)} items, got {name!r}")
    return name, check_range("anchor", value, -1e12, 1e12)
