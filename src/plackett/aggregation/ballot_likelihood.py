"""The likelihood of rankings in tiers, whose order inside is unknown, as an objective of scores."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

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
class RankingLikelihood(WorthLikelihood):
    """What likelihoods of rankings share, whatever a tie means in them."""

    rankings: Rankings

    @property
    @abstractmethod
    def _costs(self) -> tuple[IntArray, IntArray, IntArray]:
        """The cost of all ballots up to each, by order of derivatives."""

    @property
    def items(self) -> int:
        return self.rankings.count

    @property
    def ballots(self) -> int:
        return len(self.rankings)

    @property
    def weight(self) -> float:
        return float(self.rankings.weights.sum())

    @property
    def nbytes(self) -> int:
        """The size of the data."""
        return int(self.rankings.items.nbytes + self.rankings.starts.nbytes)

    def cost(self, order: int) -> int:
        return int(self._costs[order][-1])

    def scaled(self, scales: Floats) -> Self:
        return replace(self, rankings=replace(self.rankings, scales=scales))

    def select(self, rows: IntArray) -> Self:
        return replace(self, rankings=self.rankings.select(rows, self.rankings.weights[rows]))

    def reweighted(self, weights: Floats) -> Self:
        """The same rankings with other weights."""
        return replace(self, rankings=replace(self.rankings, weights=weights))

    def rescaled(self, weight: float, ballots: int) -> Self:
        return self.reweighted(self.rankings.weights / weight * ballots)


@dataclass
class BallotLikelihood(Objective, RankingLikelihood):
    """Minus log P(rankings), a function of one score per item. It is convex.

    `evaluate` gives the derivatives of the log-likelihood itself, all in one pass.
    """

    is_convex = True

    @cached_property
    def _costs(self) -> tuple[IntArray, IntArray, IntArray]:
        gradient, information = self.rankings.costs()
        return gradient, gradient, information

    @cached_property
    def wins(self) -> Floats:
        """How often each item was ranked above others."""
        return self.rankings.wins()

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

    def null_value(self) -> float:
        return self.evaluate(np.zeros(self.items), VALUE).value

    def allows(self, parameters: Floats) -> bool:
        return bool(np.ptp(parameters) * self.rankings.largest_scale <= LARGEST_SPREAD)

    def scale_slopes(self, parameters: Floats) -> tuple[float, Floats, Floats]:
        slopes = np.zeros(len(self.rankings))
        value, gradient, _ = log_likelihood_derivatives(
            self.rankings, parameters, GRADIENT, self._costs[GRADIENT], slopes
        )
        return value, gradient, slopes
