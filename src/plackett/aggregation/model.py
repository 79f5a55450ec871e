"""The objective: log-likelihood of rankings, less a ridge, as a function of scores or of coefficients of features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from plackett.aggregation.ballots import Rankings
from plackett.aggregation.kernels import GRADIENT, INFORMATION, VALUE, ballot_derivatives
from plackett.blas import calm_blas
from plackett.likelihood.partition import depth_of
from plackett.lists import IntArray
from plackett.threads import run_over_ranges

Floats = npt.NDArray[np.float64]

LARGEST_SPREAD = 600.0
"""Of scores: beyond it worths could not be held side by side in float64."""

_TOL = 1e-12  # of the probability of a tier that needs quadrature
# Of a diagonal element: a pivot this small has lost most of its digits, and so has what comes of it.
_SMALLEST_PIVOT = 1e-13
_MOST_BYTES = 2**28  # for copies of the matrix, one for each piece of work that may run side by side


class Derivatives(NamedTuple):
    """log P of all ballots, its gradient, and minus its second derivatives; the latter two empty if not asked for."""

    value: float
    gradient: Floats
    information: Floats


def derivatives(rankings: Rankings, scores: Floats, level: int, cost: IntArray) -> Derivatives:
    """The likelihood at `scores`, up to a level of `kernels`; `cost` says how to share out the ballots."""
    n = rankings.count
    top = scores.max()
    worths = np.exp(scores - top)
    relative = scores - top
    side = n if level >= INFORMATION else 0
    parts: dict[int, tuple[Floats, Floats, Floats]] = {}

    def call(first: int, last: int) -> int:
        part = np.zeros(1), np.zeros(n), np.zeros((side, side))
        parts[first] = part
        return int(
            ballot_derivatives(
                first, last, worths, relative, rankings.items, rankings.starts, rankings.ballot_tiers,
                rankings.weights, depth_of(_TOL), level, *part,
            )
        )  # fmt: skip

    if 8 * side * side > _MOST_BYTES // 8:
        call(0, len(rankings))
    else:
        run_over_ranges(call, cost)
    value, gradient, half = parts.pop(min(parts))
    for first in sorted(parts):  # in the same order in every run
        for total, part in zip((value, gradient, half), parts[first], strict=True):
            total += part
    if side:
        half += half.T
        half[np.diag_indices(n)] = -half.sum(axis=1)
    return Derivatives(float(value[0]), gradient, half)


@dataclass
class Objective:
    """log P(rankings) - ridge / 2 |parameters|^2, to be maximised. Scores are X @ parameters, or the parameters."""

    rankings: Rankings
    X: Floats | None = None
    ridge: float = 0.0

    @cached_property
    def _costs(self) -> tuple[IntArray, IntArray, IntArray]:
        gradient, information = self.rankings.costs()
        return gradient, gradient, information

    @cached_property
    def wins(self) -> Floats:
        return self.rankings.wins()

    @property
    def size(self) -> int:
        return self.rankings.count if self.X is None else self.X.shape[1]

    def cost(self, level: int) -> int:
        """Nanoseconds of an evaluation, roughly."""
        return int(self._costs[level][-1])

    def scores(self, parameters: Floats) -> Floats:
        return parameters if self.X is None else self.X @ parameters

    def allows(self, parameters: Floats) -> bool:
        return bool(np.ptp(self.scores(parameters)) <= LARGEST_SPREAD)

    def evaluate(self, parameters: Floats, level: int = GRADIENT) -> Derivatives:
        value, gradient, information = self._of_rankings(self.scores(parameters), level)
        if self.X is not None:
            gradient = self.X.T @ gradient
            information = self.X.T @ information @ self.X if level >= INFORMATION else information
        if self.ridge:
            value -= 0.5 * self.ridge * float(parameters @ parameters)
            gradient = gradient - self.ridge * parameters
            if level >= INFORMATION:
                information[np.diag_indices(self.size)] += self.ridge
        return Derivatives(value, gradient, information)

    def _of_rankings(self, scores: Floats, level: int) -> Derivatives:
        return derivatives(self.rankings, scores, level, self._costs[level])

    def log_likelihood(self, scores: Floats) -> float:
        """Of the rankings, without the ridge."""
        return self._of_rankings(scores, VALUE).value

    def as_counts(self) -> Objective:
        """The same, times a factor if ballots weigh less than 1 on average: tolerances are made for counts."""
        weights = self.rankings.weights
        total, ballots = float(weights.sum()) + self.ridge, len(self.rankings)
        if total >= ballots:
            return self
        rankings = replace(self.rankings, weights=weights / total * ballots)
        return replace(self, rankings=rankings, ridge=self.ridge / total * ballots)

    def factor(self, information: Floats, smallest_pivot: float = 0.0) -> tuple[Any, bool]:
        """For `cho_solve`. Something is added along the direction in which nothing changes: all scores alike."""
        if self.X is None and not self.ridge:
            information = information + np.trace(information) / len(information) ** 2
        try:
            factor = cho_factor(information)
            if (np.diag(factor[0]) ** 2 < smallest_pivot * np.diag(information)).any():
                raise LinAlgError
        except LinAlgError:
            remedy = (
                "raise prior or ridge, which draw scores together"
                if self.X is None
                else "the columns of X must be linearly independent of each other and of a constant, or ridge above 0"
            )
            raise ValueError(f"the information matrix is singular in float64: {remedy}") from None
        return factor

    def covariance(self, parameters: Floats) -> Floats:
        """Of the parameters: the inverse of the information, whatever it is along directions that change nothing."""
        information = self.evaluate(parameters, INFORMATION).information
        with calm_blas(self.size):
            inverse: Floats = cho_solve(self.factor(information, _SMALLEST_PIVOT), np.eye(self.size))
        return inverse
