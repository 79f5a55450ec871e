"""The problem of finding scores, tie parameters and coefficients, for any kind of likelihood.

A `WorthLikelihood` is a function of the scores of items followed by its own parameters: those of ties, then the
coefficients of comparisons' features. `WorthProblem` adds features of items and ridges, and is what solvers maximise:
`evaluate` gives them value, gradient and information in one pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from plackett.aggregation.ballot_kernels import GRADIENT, INFORMATION
from plackett.lists import IntArray
from plackett.objective import Floats
from plackett.threads import run_over_ranges, single_threaded_blas

LARGEST_SPREAD = 600.0
"""Largest difference of scores: beyond it float64 cannot hold the worths side by side."""

# As a share of the diagonal element: a smaller pivot has lost most of its digits, and so has the result.
_SMALLEST_PIVOT = 1e-13
_MOST_BYTES = 2**26  # for copies of the matrix, one for each piece of work that may run in parallel


class Derivatives(NamedTuple):
    """log P of the data, its gradient, and the information, which is minus the Hessian; empty if not requested."""

    value: float
    gradient: Floats
    information: Floats


def summed(
    call: Callable[[int, int, Floats, Floats, Floats], int], cost: IntArray, size: int, order: int
) -> tuple[float, Floats, Floats]:
    """Run call(first, last, value, gradient, matrix), which adds up observations, on ranges of them.

    The matrix is empty below the order INFORMATION. Sums are taken in the same order in every run.
    """
    side = size if order >= INFORMATION else 0
    parts: dict[int, tuple[Floats, Floats, Floats]] = {}

    def run(first: int, last: int) -> int:
        parts[first] = np.zeros(1), np.zeros(size), np.zeros((side, side))
        return call(first, last, *parts[first])

    if 8 * side * side > _MOST_BYTES or len(cost) == 1:
        run(0, len(cost) - 1)
    else:
        run_over_ranges(run, cost)
    value, gradient, half = parts.pop(0)
    for first in sorted(parts):
        for total, part in zip((value, gradient, half), parts[first], strict=True):
            total += part
    return float(value[0]), gradient, half


class WorthLikelihood(Protocol):
    """A log-likelihood as a function of scores, tie parameters and coefficients, concave in all of them together."""

    @property
    def items(self) -> int:
        """The number of items."""

    @property
    def ties(self) -> int:
        """The number of tie parameters."""
        return 0

    @property
    def coefficients(self) -> int:
        """The number of coefficients of comparisons' features."""
        return 0

    def free_ties(self) -> list[bool]:
        """Which of the model's tie parameters are estimated; the others are at the end of their range."""
        return [True] * self.ties

    @property
    def wins(self) -> Floats:
        """How often each item was ranked above others, ties counted in part."""

    @property
    def ballots(self) -> int:
        """The number of different observations."""

    @property
    def weight(self) -> float:
        """The total weight of the observations."""

    def cost(self, order: int) -> int:
        """Nanoseconds of an evaluation, roughly."""

    def evaluate(self, parameters: Floats, order: int = GRADIENT) -> Derivatives:
        """The log-likelihood with derivatives up to `order`: VALUE, GRADIENT or INFORMATION."""

    def null_value(self) -> float:
        """The log-likelihood with all worths equal, no features and the best tie parameters."""

    def rescaled(self, weight: float, ballots: int) -> Self:
        """All weights times ballots / weight."""

    def scaled(self, scales: Floats) -> Self:
        """The same observations, each with a factor of its utilities."""

    def scale_slopes(self, parameters: Floats) -> tuple[float, Floats, Floats]:
        """Value, gradient, and the derivative by the logarithm of each observation's factor."""

    def select(self, rows: IntArray) -> Self:
        """The observations with these numbers."""

    def start_extras(self) -> Floats:
        """Initial tie parameters and coefficients: roughly the best ones if all worths are equal."""
        return np.zeros(0)

    def extra_scale(self) -> Floats:
        """The information of each tie parameter and coefficient, roughly."""
        return np.zeros(0)

    def allows(self, parameters: Floats) -> bool:
        """Whether the parameters are inside the domain of the likelihood."""
        return bool(np.ptp(parameters[: self.items]) <= LARGEST_SPREAD)


@dataclass
class WorthProblem:
    """log-likelihood - ridge / 2 |scores or coefficients of X|^2 - feature_ridge / 2 |coefficients of features|^2.

    With a `centre`, one number per score, the ridge shrinks scores towards it rather than towards zero.

    Parameters are the scores, or the coefficients of X, whose scores are X @ coefficients; then those of ties and those
    of the comparisons' features.
    """

    likelihood: Any
    X: Floats | None = None
    ridge: float = 0.0
    feature_ridge: float = 0.0
    centre: Floats | None = None

    @property
    def wins(self) -> Floats:
        return np.asarray(self.likelihood.wins)

    @property
    def head(self) -> int:
        """The number of parameters that determine the scores."""
        return int(self.likelihood.items if self.X is None else self.X.shape[1])

    @property
    def size(self) -> int:
        """The number of parameters."""
        return int(self.head + self.likelihood.ties + self.likelihood.coefficients)

    def cost(self, order: int) -> int:
        """Nanoseconds of an evaluation, roughly."""
        return int(self.likelihood.cost(order))

    def scores(self, parameters: Floats) -> Floats:
        return parameters[: self.head] if self.X is None else self.X @ parameters[: self.head]

    def natural(self, parameters: Floats) -> Floats:
        """The parameters of the likelihood."""
        return np.concatenate([self.scores(parameters), parameters[self.head :]]) if self.X is not None else parameters

    def allows(self, parameters: Floats) -> bool:
        """Whether float64 can hold the worths, and the other parameters are in their domain."""
        return bool(self.likelihood.allows(self.natural(parameters)))

    @property
    def penalties(self) -> Floats:
        """The ridge of each parameter."""
        found = np.zeros(self.size)
        found[: self.head] = self.ridge
        if self.likelihood.coefficients:
            found[-self.likelihood.coefficients :] = self.feature_ridge
        return found

    @property
    def centres(self) -> Floats:
        """The values that the ridges shrink parameters towards."""
        return np.zeros(self.size) if self.centre is None else np.pad(self.centre, (0, self.size - len(self.centre)))

    def evaluate(self, parameters: Floats, order: int = GRADIENT) -> Derivatives:
        """Value, gradient and information by the parameters, up to `order`."""
        value, gradient, information = self.likelihood.evaluate(self.natural(parameters), order)
        if self.X is not None:
            gradient = self._pulled(gradient)
            information = self.transformed(information) if order >= INFORMATION else information
        if self.ridge or self.feature_ridge:
            penalties, away = self.penalties, parameters - self.centres
            value -= 0.5 * float(penalties @ away**2)
            gradient = gradient - penalties * away
            if order >= INFORMATION:
                information[np.diag_indices(self.size)] += penalties
        return Derivatives(value, gradient, information)

    def _pulled(self, rows: Floats) -> Floats:
        """Derivatives by the scores and others as derivatives by the parameters, along the first dimension."""
        if self.X is None:
            return rows
        n = self.likelihood.items
        return np.concatenate([self.X.T @ rows[:n], rows[n:]])

    def transformed(self, matrix: Floats) -> Floats:
        """A matrix of second derivatives, or of products of first ones, by the parameters."""
        return self._pulled(self._pulled(matrix).T)

    def start(self) -> Floats:
        """All scores equal, or one step of MM from there, which saves a more expensive step of Newton."""
        start = np.zeros(self.head)
        extras = self.likelihood.start_extras()
        if self.X is None:
            gradient = self.evaluate(np.concatenate([start, extras])).gradient[: self.head]
            start += np.log(np.maximum(self.wins, 0.5) / np.maximum(self.wins - gradient, 0.5))
            start -= start.mean()
        return np.concatenate([start, extras])

    def scale(self, gradient: Floats) -> Floats:
        """The curvature of MM's surrogate for each score, and about the information of other parameters."""
        if self.X is not None:
            weights = float(self.wins.sum())
            head = np.maximum(weights * self.X.var(axis=0), 1e-12)
        else:
            head = self.wins - gradient[: self.head]
            head = np.maximum(head, 1e-12 * head.max(initial=0.0))
        return np.concatenate([head, np.maximum(self.likelihood.extra_scale(), 1e-12)]) + self.penalties

    def as_counts(self) -> WorthProblem:
        """The same problem, times a factor if ballots weigh less than 1 on average: tolerances are made for counts."""
        total, ballots = self.likelihood.weight + self.ridge, self.likelihood.ballots
        if total >= ballots:
            return self
        return replace(
            self,
            likelihood=self.likelihood.rescaled(total, ballots),
            ridge=self.ridge / total * ballots,
            feature_ridge=self.feature_ridge / total * ballots,
        )

    def factor(self, information: Floats, smallest_pivot: float = 0.0) -> tuple[Any, bool]:
        """The Cholesky factor for `cho_solve`.

        Without features and ridge a constant is added, because moving all scores together changes nothing.
        """
        if self.X is None and not self.ridge:
            information = information.copy()
            n = self.head
            information[:n, :n] += np.trace(information[:n, :n]) / n**2
        try:
            factor = cho_factor(information)
            if (np.diag(factor[0]) ** 2 < smallest_pivot * np.diag(information)).any():
                raise LinAlgError
        except LinAlgError:
            raise ValueError(f"the information matrix is singular in float64: {self._remedy()}") from None
        return factor

    def _remedy(self) -> str:
        if self.X is not None:
            return "the columns of X must be linearly independent of each other and of a constant, or ridge above 0"
        if self.likelihood.coefficients:
            return (
                "features must be linearly independent of each other and of the items, or feature_ridge above 0; "
                "scores that are too far apart need a prior or ridge"
            )
        return "raise prior or ridge, which bring scores together"

    def covariance(self, parameters: Floats) -> Floats:
        """The inverse of the information, arbitrary where nothing changes."""
        information = self.evaluate(parameters, INFORMATION).information
        with single_threaded_blas(self.size):
            inverse: Floats = cho_solve(self.factor(information, _SMALLEST_PIVOT), np.eye(self.size))
        return inverse
