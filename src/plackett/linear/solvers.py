"""The coefficients that minimise a loss of scores X b, with penalties.

All is divided by the total weight of the lists, so that a gradient means the same for few lists and for many.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import Bounds, minimize
from scipy.sparse import eye_array, hstack

from plackett.blas import calm_blas
from plackett.linear.features import Floats
from plackett.linear.objectives import Objective
from plackett.lists import IntArray

SOLVERS = ("lbfgs", "newton-cg")
_CORRECTIONS = 20  # of the past that L-BFGS keeps: more than usual, for an evaluation costs far more than they do
_COLUMNS = 16  # directions whose second derivatives are made together


@dataclass(frozen=True)
class Problem:
    """loss(X b) + l1 |b|_1 + l2 |b|^2 / 2, over the total weight of the lists."""

    objective: Objective
    X: Any  # (items, features), dense or CSR
    offsets: IntArray
    total: float
    l1: float = 0.0
    l2: float = 0.0

    @property
    def features(self) -> int:
        return int(self.X.shape[1])

    def smooth(self, b: Floats) -> tuple[float, Floats]:
        """Value and gradient without the L1 penalty."""
        value, by_score = self.objective.value_and_gradient(self.X @ b)
        gradient = self.X.T @ by_score + self.l2 * b
        return (value + 0.5 * self.l2 * float(b @ b)) / self.total, gradient / self.total

    def split(self, halves: Floats) -> tuple[float, Floats]:
        """As `smooth`, with the L1 penalty, for b = first half - second half, neither negative."""
        b = halves[: self.features] - halves[self.features :]
        value, gradient = self.smooth(b)
        penalty = self.l1 / self.total
        return value + penalty * float(halves.sum()), np.concatenate((gradient, -gradient)) + penalty

    def curvature_product(self, b: Floats, direction: Floats) -> Floats:
        moved = self.objective.curvature_products(self.X @ b, (self.X @ direction)[:, None])[:, 0]
        return np.asarray((self.X.T @ moved + self.l2 * direction) / self.total)

    def information(self, b: Floats) -> Floats:
        """The Hessian, times the total weight: for a likelihood the observed information, the prior's with it."""
        scores = self.X @ b
        matrix = np.empty((self.features, self.features))
        for start in range(0, self.features, _COLUMNS):
            block = self.X[:, start : start + _COLUMNS]
            moves = block if isinstance(block, np.ndarray) else block.toarray()
            matrix[:, start : start + _COLUMNS] = self.X.T @ self.objective.curvature_products(scores, moves)
        matrix.flat[:: self.features + 1] += self.l2
        return 0.5 * (matrix + matrix.T)

    def gradient_norm(self, b: Floats) -> float:
        """The largest component of the gradient; with an L1 penalty, of the smallest subgradient."""
        _, gradient = self.smooth(b)
        penalty = self.l1 / self.total
        inside = np.maximum(np.abs(gradient) - penalty, 0.0)
        return float(np.abs(np.where(b == 0.0, inside, gradient + penalty * np.sign(b))).max(initial=0.0))


def solve(problem: Problem, solver: str, tol: float, max_iter: int, basis: Floats | None) -> tuple[Floats, int]:
    """The minimum, and after how many iterations.

    `basis` has coordinates in which the problem is round as its columns. None, and with an L1 penalty, which has
    corners in the coordinates b alone: b itself.
    """
    # The gradient alone says when to stop: the value changes by less than rounding long before.
    limits = {"gtol": tol, "ftol": 0.0, "maxiter": max_iter, "maxfun": 10 * max_iter, "maxcor": _CORRECTIONS}
    how: dict[str, Any] = {"method": "L-BFGS-B", "jac": True, "options": limits}
    if problem.l1 > 0.0:
        # |b| is not smooth, its two halves are; where both are at their bound, b is exactly zero.
        how |= {"fun": problem.split, "x0": np.zeros(2 * problem.features), "bounds": Bounds(0.0, np.inf)}
        axes: Any = hstack((eye_array(problem.features), -eye_array(problem.features)))
    else:
        axes = eye_array(problem.features) if basis is None else basis
        how |= {"fun": partial(_along, problem, axes), "x0": np.zeros(axes.shape[1])}
    if solver == "newton-cg":
        how |= {"method": "trust-ncg", "options": {"gtol": tol, "maxiter": max_iter}}
        how["hessp"] = lambda c, direction: axes.T @ problem.curvature_product(axes @ c, axes @ direction)
    # L-BFGS solves systems so small that handing them to other threads takes ten times as long.
    with calm_blas():
        found = minimize(**how)
    return axes @ found.x, int(found.nit)


def _along(problem: Problem, axes: Any, c: Floats) -> tuple[float, Floats]:
    """Value and gradient in the coordinates of the columns of `axes`."""
    value, gradient = problem.smooth(axes @ c)
    return value, axes.T @ gradient
