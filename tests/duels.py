"""Simulated comparisons, and the probabilities of their outcomes written out."""

import math

import numpy as np

from plackett.data import Comparisons


def simulated(seed: int, rows: int = 300, items: int = 5, tied: float = 0.3, features: int = 0) -> Comparisons:
    """Random comparisons, in which the higher number wins more often."""
    rng = np.random.default_rng(seed)
    left = rng.integers(0, items, rows)
    right = (left + rng.integers(1, items, rows)) % items
    wins = rng.random(rows) < 1 / (1 + np.exp(-0.5 * (left - right)))
    outcome = np.where(rng.random(rows) < tied, 0, np.where(wins, 1, -1))
    x = rng.standard_normal((rows, features)) if features else None
    names = [f"item {k}" for k in range(items)]
    feature_names = tuple(f"x{k}" for k in range(features))
    return Comparisons(left, right, outcome, names, features=x, feature_names=feature_names)


def probabilities(ties: str, eta: float, parameter: float) -> tuple[float, float, float]:
    """Of a win, a tie and a loss, by the formulas of the papers."""
    a, b = math.exp(eta), 1.0
    if ties == "davidson":
        total = a + b + parameter * math.sqrt(a * b)
        return a / total, parameter * math.sqrt(a * b) / total, b / total
    win, loss = a / (a + parameter * b), b / (b + parameter * a)
    return win, (parameter**2 - 1) * a * b / ((a + parameter * b) * (b + parameter * a)), loss
