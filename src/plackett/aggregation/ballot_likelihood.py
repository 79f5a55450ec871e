"""The likelihood of rankings in tiers, whose order inside is unknown, as an objective of scores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from plackett.aggregation.ballot_kernels import GRADIENT, INFORMATION, VALUE, ballot_derivatives
from plackett.aggregation.ballots import Rankings
from plackett.aggregation.problem import Derivatives, WorthLikelihood
from plackett.likelihood.core import depth_of
from plackett.lists import IntArray
from plackett.objective import Floats, Objective
from plackett.threads import run_over_ranges

_TOL = 1e-12  # relative error of the probability of a tier that needs quadrature
_MOST_BYTES = 2**28  # for copies of the matrix, one for each piece of work that may run in parallel


def log_likelihood_derivatives(rankings: Rankings, scores: Floats, order: int, cost: IntArray) -> Derivatives:
    """Derivatives up to `order`: VALUE, GRADIENT or INFORMATION; `cost` says how to divide the work."""
    n = rankings.count
    top = scores.max()
    worths = np.exp(scores - top)
    relative = scores - top
    side = n if order >= INFORMATION else 0
    parts: dict[int, tuple[Floats, Floats, Floats]] = {}

    def call(first: int, last: int) -> int:
        part = np.zeros(1), np.zeros(n), np.zeros((side, side))
        parts[first] = part
        return int(
            ballot_derivatives(
                first, last, worths, relative, rankings.items, rankings.starts, rankings.ballot_tiers,
                rankings.weights, depth_of(_TOL), order, *part,
            )
        )  # fmt: skip

    if 8 * side * side > _MOST_BYTES // 8 or len(rankings) == 0:
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

    def reweighted(self, weights: Floats) -> BallotLikelihood:
        """The same rankings with other weights."""
        return BallotLikelihood(replace(self.rankings, weights=weights))

    def rescaled(self, weight: float, ballots: int) -> BallotLikelihood:
        """All weights times ballots / weight."""
        return self.reweighted(self.rankings.weights / weight * ballots)
