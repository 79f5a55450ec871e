"""Leaderboards of categories: how they differ, and how much of the difference is noise."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from plackett.aggregation.simultaneous import corrected
from plackett.objective import Floats

_SMALLEST_VARIANCE = 1e-4


class CategoryDifference(NamedTuple):
    """The score of an item in one category minus that in another; scores are relative to the items of both."""

    item: Any
    first: Any
    second: Any
    difference: float
    standard_error: float
    p_value: float


class Board(NamedTuple):
    """Items, scores and their covariance in one category."""

    items: list[Any]
    scores: Floats
    covariance: Floats


def common_scores(board: Board, items: list[Any]) -> tuple[Floats, Floats]:
    """Scores and their covariance as deviations from the mean of the given items."""
    places = [board.items.index(item) for item in items]
    centre = np.eye(len(items)) - 1.0 / len(items)
    return centre @ board.scores[places], centre @ board.covariance[np.ix_(places, places)] @ centre


def category_differences(boards: Mapping[Any, Board], correction: str) -> list[CategoryDifference]:
    """All items in each pair of categories that have them, with corrected p values."""
    found: list[CategoryDifference] = []
    for one, other in combinations(boards, 2):
        items = [item for item in boards[one].items if item in set(boards[other].items)]
        if len(items) < 2:
            continue
        first, second = common_scores(boards[one], items), common_scores(boards[other], items)
        gaps = first[0] - second[0]
        errors = np.sqrt(np.maximum(np.diag(first[1]) + np.diag(second[1]), 0.0))
        p_values = 2.0 * ndtr(-np.abs(gaps) / np.maximum(errors, 1e-300))
        rows = zip(items, gaps.tolist(), errors.tolist(), p_values.tolist(), strict=True)
        found += [CategoryDifference(item, one, other, *numbers) for item, *numbers in rows]
    p_values = corrected(np.array([row.p_value for row in found]), correction)
    return [row._replace(p_value=float(p)) for row, p in zip(found, p_values, strict=True)]


def deviation_variance(boards: Mapping[Any, Board], overall: Board) -> float:
    """The variance of the scores of categories about the overall ones, beyond that of their errors."""
    excess: list[float] = []
    for board in boards.values():
        items = [item for item in board.items if item in set(overall.items)]
        scores, covariance = common_scores(board, items)
        whole, _ = common_scores(overall, items)
        excess += ((scores - whole) ** 2 - np.diag(covariance)).tolist()
    return max(float(np.mean(excess)) if excess else 0.0, _SMALLEST_VARIANCE)
