"""The coefficients that minimise a loss of scores X b, with penalties.

Everything is divided by the total weight of the lists, so that a tolerance means the same for few lists and for many.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy.optimize import Bounds, minimize
from scipy.sparse import eye_array, hstack

from plackett.linear.features import Floats
from plackett.lists import IntArray
from plackett.objective import Objective
from plackett.threads import single_threaded_blas

SOLVERS = ("lbfgs", "newton-cg")
_CORRECTIONS = 20  # that L-BFGS keeps: more than usual, because an evaluation costs far more than they do
_COLUMNS = 16  # directions per Hessian product


@dataclass(frozen=True)
class LinearProblem:
    """loss(X b) + l1 |b|_1 + l2 |b|^2 / 2, over the total weight of the lists.

    The last `positions` columns are not features but differences of positions, with a penalty of their own:
    `position_penalty` |b|^2 / 2 instead of l1 and l2.
    """

    objective: Objective
    X: Any  # (items, features), dense or CSR
    offsets: IntArray
    total: float
    l1: float = 0.0
    l2: float = 0.0
    positions: int = 0
    position_penalty: float = 0.0

    @property
    def features(self) -> int:
        """The number of coefficients."""
        return int(self.X.shape[1])

    @cached_property
    def ridge(self) -> Floats:
        """The L2 penalty of each coefficient."""
        return np.repeat([self.l2, self.position_penalty], [self.features - self.positions, self.positions])

    @cached_property
    def lasso(self) -> Floats:
        """The L1 penalty of each coefficient."""
        return np.repeat([self.l1, 0.0], [self.features - self.positions, self.positions])

    def smooth(self, b: Floats) -> tuple[float, Floats]:
        """Value and gradient without the L1 penalty."""
        value, by_score = self.objective.value_and_gradient(self.X @ b)
        gradient = self.X.T @ by_score + self.ridge * b
        return (value + 0.5 * float((self.ridge * b) @ b)) / self.total, gradient / self.total

    def split(self, halves: Floats) -> tuple[float, Floats]:
        """As `smooth`, with the L1 penalty, for b = first half - second half, both nonnegative."""
        b = halves[: self.features] - halves[self.features :]
        value, gradient = self.smooth(b)
        penalty = np.concatenate((self.lasso, self.lasso)) / self.total
        return value + float(penalty @ halves), np.concatenate((gradient, -gradient)) + penalty

    def hessian_product(self, b: Floats, direction: Floats) -> Floats:
        moved = self.objective.hessian_products(self.X @ b, (self.X @ direction)[:, None])[:, 0]
        return np.asarray((self.X.T @ moved + self.ridge * direction) / self.total)

    def information(self, b: Floats) -> Floats:
        """The Hessian times the total weight: for a likelihood the observed information, including the prior's."""
        scores = self.X @ b
        matrix = np.empty((self.features, self.features))
        for start in range(0, self.features, _COLUMNS):
            block = self.X[:, start : start + _COLUMNS]
            directions = block if isinstance(block, np.ndarray) else block.toarray()
            matrix[:, start : start + _COLUMNS] = self.X.T @ self.objective.hessian_products(scores, directions)
        matrix.flat[:: self.features + 1] += self.ridge
        return 0.5 * (matrix + matrix.T)

    def gradient_norm(self, b: Floats) -> float:
        """The largest component of the gradient; with an L1 penalty, of the smallest subgradient."""
        _, gradient = self.smooth(b)
        penalty = self.lasso / self.total
        inside = np.maximum(np.abs(gradient) - penalty, 0.0)
        return float(np.abs(np.where(b == 0.0, inside, gradient + penalty * np.sign(b))).max(initial=0.0))


def solve(problem: LinearProblem, solver: str, tol: float, max_iter: int, basis: Floats | None) -> tuple[Floats, int]:
    """The minimum and the number of iterations.

    The columns of `basis` are coordinates in which the problem is well conditioned. Without one, and with an L1
    penalty, whose corners lie on the axes of b, the coordinates are b itself.
    """
    # Only the gradient decides when to stop: the value changes by less than rounding long before.
    limits = {"gtol": tol, "ftol": 0.0, "maxiter": max_iter, "maxfun": 10 * max_iter, "maxcor": _CORRECTIONS}
    how: dict[str, Any] = {"method": "L-BFGS-B", "jac": True, "options": limits}
    if problem.l1 > 0.0:
        # |b| is not smooth, but its two halves are; where both are at their bound, b is exactly zero.
        how |= {"fun": problem.split, "x0": np.zeros(2 * problem.features), "bounds": Bounds(0.0, np.inf)}
        axes: Any = hstack((eye_array(problem.features), -eye_array(problem.features)))
    else:
        axes = eye_array(problem.features) if basis is None else basis
        how |= {"fun": partial(_smooth_on_axes, problem, axes), "x0": np.zeros(axes.shape[1])}
    if solver == "newton-cg":
        how |= {"method": "trust-ncg", "options": {"gtol": tol, "maxiter": max_iter}}
        how["hessp"] = lambda c, direction: axes.T @ problem.hessian_product(axes @ c, axes @ direction)
    # L-BFGS solves systems so small that other threads make them ten times slower.
    with single_threaded_blas():
        found = minimize(**how)
    return axes @ found.x, int(found.nit)


def _smooth_on_axes(problem: LinearProblem, axes: Any, c: Floats) -> tuple[float, Floats]:
    """Value and gradient in the coordinates of the columns of `axes`."""
    value, gradient = problem.smooth(axes @ c)
    return value, axes.T @ gradient
