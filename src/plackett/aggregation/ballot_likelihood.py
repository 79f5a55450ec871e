"""The likelihood of rankings in tiers, whose order inside is unknown, as an objective of scores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from plackett.aggregation.ballot_kernels import GRADIENT, INFORMATION, VALUE, ballot_derivatives
from plackett.aggregation.ballots import Rankings
from plackett.aggregation.problem import LARGEST_SPREAD, Derivatives, WorthLikelihood, summed
from plackett.likelihood.core import depth_of
from plackett.lists import IntArray
from plackett.objective import Floats, Objective

_TOL = 1e-12  # relative error of the probability of a tier that needs quadrature


def log_likelihood_derivatives(
    rankings: Rankings, scores: Floats, order: int, cost: IntArray, slopes: Floats | None = None
) -> Derivatives:
    """Derivatives up to `order`: VALUE, GRADIENT or INFORMATION; `cost` says how to divide the work.

    `slopes`, if given, receives the derivative by the logarithm of each ballot's scale.
    """
    n = rankings.count
    utilities, rows = rankings.table(scores)
    worths = np.exp(utilities)

    def call(first: int, last: int, value: Floats, gradient: Floats, matrix: Floats) -> int:
        return int(
            ballot_derivatives(
                first, last, worths, utilities, rows, rankings.items, rankings.starts, rankings.ballot_tiers,
                rankings.weights, rankings.scales, depth_of(_TOL), order, value, gradient, matrix, slopes,
            )
        )  # fmt: skip

    value, gradient, half = summed(call, cost, n, order)
    if order >= INFORMATION:
        half += half.T
        half[np.diag_indices(n)] = -half.sum(axis=1)
    return Derivatives(value, gradient, half)


@dataclass
class BallotLikelihood(Objective, WorthLikelihood):
    """Minus log P(rankings), a function of one score per item. It is convex.

    `evaluate` gives the derivatives of the log-likelihood itself, all in one pass.
    """

    rankings: Rankings
    has_hessian_products: ClassVar[bool] = True
    is_convex = True

    @cached_property
    def _costs(self) -> tuple[IntArray, IntArray, IntArray]:
        gradient, information = self.rankings.costs()
        return gradient, gradient, information

    @property
    def items(self) -> int:
        """The number of items."""
        return self.rankings.count

    @cached_property
    def wins(self) -> Floats:
        """How often each item was ranked above others."""
        return self.rankings.wins()

    @property
    def ballots(self) -> int:
        """The number of different ballots."""
        return len(self.rankings)

    @property
    def weight(self) -> float:
        """The total weight of the ballots."""
        return float(self.rankings.weights.sum())

    def cost(self, order: int) -> int:
        """Nanoseconds of an evaluation, roughly."""
        return int(self._costs[order][-1])

    def evaluate(self, scores: Floats, order: int = GRADIENT) -> Derivatives:
        """The log-likelihood with derivatives up to `order`: VALUE, GRADIENT or INFORMATION."""
        return log_likelihood_derivatives(self.rankings, scores, order, self._costs[order])

    def value(self, scores: Floats) -> float:
        return -self.evaluate(scores, VALUE).value

    def value_and_gradient(self, scores: Floats) -> tuple[float, Floats]:
        value, gradient, _ = self.evaluate(scores, GRADIENT)
        return -value, -gradient

    def gradient(self, scores: Floats) -> Floats:
        return self.value_and_gradient(scores)[1]

    def derivatives(self, scores: Floats) -> tuple[Floats, Floats]:
        _, gradient, information = self.evaluate(scores, INFORMATION)
        return -gradient, np.diag(information).copy()

    def hessian_products(self, scores: Floats, directions: Floats) -> Floats:
        return np.asarray(self.evaluate(scores, INFORMATION).information @ directions)

    @property
    def nbytes(self) -> int:
        """The size of the data."""
        return int(self.rankings.items.nbytes + self.rankings.starts.nbytes)

    def null_value(self) -> float:
        return self.evaluate(np.zeros(self.items), VALUE).value

    def allows(self, parameters: Floats) -> bool:
        return bool(np.ptp(parameters) * self.rankings.largest_scale <= LARGEST_SPREAD)

    def scaled(self, scales: Floats) -> BallotLikelihood:
        return BallotLikelihood(replace(self.rankings, scales=scales))

    def scale_slopes(self, parameters: Floats) -> tuple[float, Floats, Floats]:
        slopes = np.zeros(len(self.rankings))
        value, gradient, _ = log_likelihood_derivatives(
            self.rankings, parameters, GRADIENT, self._costs[GRADIENT], slopes
        )
        return value, gradient, slopes

    def select(self, rows: IntArray) -> BallotLikelihood:
        return BallotLikelihood(self.rankings.select(rows, self.rankings.weights[rows]))

    def reweighted(self, weights: Floats) -> BallotLikelihood:
        """The same rankings with other weights."""
        return BallotLikelihood(replace(self.rankings, weights=weights))

    def rescaled(self, weight: float, ballots: int) -> BallotLikelihood:
        """All weights times ballots / weight."""
        return self.reweighted(self.rankings.weights / weight * ballots)
