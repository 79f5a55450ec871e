"""The likelihood of comparisons of two items, with ties as outcomes or as half wins, and with features."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from plackett.aggregation.ballot_kernels import GRADIENT, INFORMATION
from plackett.aggregation.pair_kernels import (
    HALF,
    RAO_KUPPER,
    SQUARES,
    clustered_squares,
    pair_derivatives,
)
from plackett.aggregation.pair_rows import TIES, PairRows
from plackett.aggregation.problem import LARGEST_SPREAD, Derivatives, WorthLikelihood, summed
from plackett.lists import IntArray
from plackett.objective import Floats

# Nanoseconds, roughly: a row, and a feature of a row, with first and with second derivatives.
_COST_PER_ROW, _COST_PER_FEATURE = 30, 3


def mirrored(half: Floats, items: int) -> Floats:
    """The whole matrix from one that has each pair of parameters once, and no diagonal for items."""
    diagonal = np.diag(half).copy()
    whole = half + half.T
    whole[np.diag_indices(len(half))] = diagonal
    own = whole[:items, :items]
    own[np.diag_indices(items)] = 0.0
    own[np.diag_indices(items)] = -own.sum(axis=1)
    return whole


@dataclass
class PairLikelihood(WorthLikelihood):
    """log P(rows) of one of the models in `pair_kernels`, a function of scores, tie parameter and coefficients.

    `has_ties` is whether the tie parameter is free; without a tie in the data its best value is at the end of its
    range, where a tie has probability 0.
    """

    rows: PairRows
    kind: int
    has_ties: bool

    @classmethod
    def from_rows(cls, rows: PairRows, kind: int) -> PairLikelihood:
        return cls(rows, kind, kind != HALF and rows.ties > 0.0)

    @property
    def items(self) -> int:
        return self.rows.items

    @property
    def ties(self) -> int:
        return int(self.has_ties)

    @property
    def coefficients(self) -> int:
        return int(self.rows.features.shape[1])

    @cached_property
    def wins(self) -> Floats:
        return self.rows.points()

    @property
    def ballots(self) -> int:
        return len(self.rows)

    @cached_property
    def weight(self) -> float:
        return self.rows.weight

    @property
    def nbytes(self) -> int:
        """The size of the data."""
        return int(self.rows.left.nbytes + self.rows.right.nbytes + self.rows.counts.nbytes)

    def cost(self, order: int) -> int:
        features = self.coefficients
        own = features * (features if order >= INFORMATION else 1)
        return len(self.rows) * (_COST_PER_ROW + _COST_PER_FEATURE * own)

    def _costs(self, order: int) -> IntArray:
        return np.arange(len(self.rows) + 1, dtype=np.int64) * max(self.cost(order) // max(len(self.rows), 1), 1)

    def _split(self, parameters: Floats) -> tuple[Floats, Floats, Floats]:
        n = self.items
        return parameters[:n], parameters[n : n + self.ties], parameters[n + self.ties :]

    def evaluate(self, parameters: Floats, order: int = GRADIENT) -> Derivatives:
        return self._sum(parameters, order, np.zeros(0))

    def scaled(self, scales: Floats) -> PairLikelihood:
        return replace(self, rows=replace(self.rows, scales=scales))

    def scale_slopes(self, parameters: Floats) -> tuple[float, Floats, Floats]:
        slopes = np.zeros(len(self.rows))
        value, gradient, _ = self._sum(parameters, GRADIENT, slopes)
        return value, gradient, self.rows.scales * slopes

    def select(self, rows: IntArray) -> PairLikelihood:
        return replace(self, rows=self.rows.select(rows))

    def _sum(self, parameters: Floats, order: int, slopes: Floats) -> Derivatives:
        size = self.items + self.ties + self.coefficients
        scores, tau, beta = self._split(np.ascontiguousarray(parameters))
        rows = self.rows

        def call(first: int, last: int, value: Floats, gradient: Floats, matrix: Floats) -> int:
            return int(
                pair_derivatives(
                    first, last, self.kind, order, scores, tau, beta, rows.left, rows.right, rows.counts,
                    rows.features, rows.scales, value, gradient, slopes, matrix,
                )
            )  # fmt: skip

        value, gradient, half = summed(call, self._costs(order), size, order)
        return Derivatives(value, gradient, mirrored(half, self.items) if order >= INFORMATION else half)

    def squares(self, parameters: Floats) -> Floats:
        """The sum over comparisons of s s', s the gradient of one comparison."""
        return self._sum(parameters, SQUARES, np.zeros(0)).information

    def clustered_squares(self, parameters: Floats) -> Floats:
        """The sum over clusters of s s', s the gradient of a cluster."""
        rows = self.rows
        if rows.starts is None:
            raise ValueError("rows must be sorted by cluster")
        size = self.items + self.ties + self.coefficients
        half = np.zeros((size, size))
        scores, tau, beta = self._split(np.ascontiguousarray(parameters))
        clustered_squares(
            0, len(rows.starts) - 1, rows.starts, self.kind, scores, tau, beta, rows.left, rows.right, rows.counts,
            rows.features, rows.scales, half,
        )  # fmt: skip
        return half + np.tril(half, -1).T

    def null_value(self) -> float:
        """With equal worths a tie has any probability, and the two wins share the rest."""
        total, tied = self.weight, self.rows.ties
        if self.kind == HALF or not tied:
            return -total * math.log(2.0)
        decided = total - tied
        value = tied * math.log(tied / total)
        return value + (decided * math.log(0.5 * decided / total) if decided else 0.0)

    def start_extras(self) -> Floats:
        """The best tie parameter if all worths are equal: a tie has the probability delta / (2 + delta)."""
        found = np.zeros(self.ties + self.coefficients)
        if self.has_ties:
            tied = min(max(self.rows.ties / self.weight, 1e-6), 1.0 - 1e-6)
            delta = 2.0 * tied / (1.0 - tied)
            found[0] = math.log1p(delta) if self.kind == RAO_KUPPER else math.log(delta)
        return found

    def extra_scale(self) -> Floats:
        counts = self.rows.counts.sum(axis=1)
        ties = [0.5 * float(self.rows.counts[:, TIES].sum())] if self.has_ties else []
        return np.concatenate([ties, 0.25 * counts @ self.rows.features**2])

    def allows(self, parameters: Floats) -> bool:
        scores, tau, _ = self._split(parameters)
        inside = not self.has_ties or abs(tau[0]) <= 300.0
        if self.kind == RAO_KUPPER and self.has_ties:
            inside = inside and tau[0] > 0.0
        largest = self.rows.scales.max(initial=1.0)
        return inside and bool(np.ptp(scores) * largest <= LARGEST_SPREAD) and bool(np.isfinite(parameters).all())

    def rescaled(self, weight: float, ballots: int) -> PairLikelihood:
        return replace(self, rows=replace(self.rows, counts=self.rows.counts * (ballots / weight)))
