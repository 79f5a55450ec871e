"""Rankings in which tied items are dead heats: an outcome of its own, the Davidson-Luce model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, hstack
from scipy.special import comb

from plackett.aggregation.ballot_kernels import GRADIENT, INFORMATION
from plackett.aggregation.ballot_likelihood import RankingLikelihood
from plackett.aggregation.ballots import Rankings, make_rankings
from plackett.aggregation.connectivity import Steps, step_graph
from plackett.aggregation.dead_heat_kernels import dead_heat_derivatives
from plackett.aggregation.evidence import RankingEvidence
from plackett.aggregation.pair_likelihood import mirrored
from plackett.aggregation.problem import Derivatives, summed
from plackett.errors import NoMaximumError
from plackett.lists import IntArray
from plackett.objective import Floats

LARGEST_SPREAD = 300.0
"""Largest difference of scores: products of two inverse worths have to fit into float64."""
_MOST_NULL_STEPS = 100
_MOST_UNROLLED = 3  # items of a dead heat for which loops are compiled with their bounds


def tie_counts(rankings: Rankings, most: int) -> Floats:
    """How often dead heats of 1, 2, ..., `most` items were seen."""
    sizes = np.diff(rankings.starts)
    weights = np.repeat(rankings.weights, np.diff(rankings.ballot_tiers))
    return np.bincount(sizes, weights, minlength=most + 1)[1 : most + 1].astype(np.float64)


def _log_sums(logs: Floats) -> Floats:
    """log of the sum of exponentials of each row."""
    peaks = logs.max(axis=1)
    return np.asarray(peaks + np.log(np.exp(logs - peaks[:, None]).sum(axis=1)))


@dataclass
class BallotDerivatives:
    """log P of each ballot, the slope of each entry, and the slopes of log delta_2, log delta_3, ..."""

    values: Floats
    slopes: Floats
    tie_slopes: Floats
    half: Floats


@dataclass
class DeadHeatLikelihood(RankingLikelihood):
    """log P(rankings), a function of scores and of log delta_k for each size k of which there are dead heats.

    `free` says for each of delta_2, delta_3, ... whether it is estimated; it is 0 otherwise.
    """

    free: npt.NDArray[np.bool_]

    @classmethod
    def from_rankings(cls, rankings: Rankings, most: int) -> DeadHeatLikelihood:
        return cls(rankings, tie_counts(rankings, most)[1:] > 0.0)

    @property
    def ties(self) -> int:
        return int(self.free.sum())

    def free_ties(self) -> list[bool]:
        return [bool(one) for one in self.free]

    @cached_property
    def wins(self) -> Floats:
        """A dead heat of k items counts as 1 / k for each, above items left or last of all."""
        sizes = np.diff(self.rankings.starts)
        weights = np.repeat(self.rankings.weights, np.diff(self.rankings.ballot_tiers)) / sizes
        weights[self.rankings.ballot_tiers[1:] - 1] *= sizes[self.rankings.ballot_tiers[1:] - 1] > 1
        return np.bincount(self.rankings.items, np.repeat(weights, sizes), minlength=self.items).astype(np.float64)

    @cached_property
    def _costs(self) -> tuple[IntArray, IntArray, IntArray]:
        gradient, information = self.rankings.costs()
        size = 1 + len(self.free) * (len(self.free) + 1) // 2
        return gradient * size, gradient * size, information * size

    def log_deltas(self, ties: Floats) -> Floats:
        """log delta_1, log delta_2, ..., minus infinity where there are no such dead heats."""
        found = np.full(len(self.free) + 1, -np.inf)
        found[0] = 0.0
        found[1:][self.free] = ties
        return found

    def by_ballot(self, parameters: Floats, order: int) -> BallotDerivatives:
        """The derivatives of each ballot, and half of the information of all."""
        rankings, n, most = self.rankings, self.items, len(self.free) + 1
        utilities, rows = rankings.table(parameters[:n])
        logs = self.log_deltas(parameters[n:])
        roots = np.exp(utilities[:, None] / np.arange(1, most + 1))
        powers = np.column_stack(
            [roots[:, 0], *(roots[:, k - 1] ** p for k in range(2, most + 1) for p in range(1, k))]
        )  # fmt: skip
        found = BallotDerivatives(
            np.empty(len(rankings)), np.empty(len(rankings.items)), np.empty((len(rankings), most - 1)), np.zeros(0)
        )
        sizes = (0,) * most if most <= _MOST_UNROLLED else np.empty(most)

        def call(first: int, last: int, _value: Floats, _gradient: Floats, matrix: Floats) -> int:
            return int(
                dead_heat_derivatives(
                    first, last, sizes, utilities, roots, powers, logs, np.exp(logs), rows, rankings.items,
                    rankings.starts, rankings.ballot_tiers, rankings.weights, rankings.scales, order, found.values,
                    found.slopes, found.tie_slopes, matrix,
                )
            )  # fmt: skip

        _, _, found.half = summed(call, self._costs[order], n + most - 1, order)
        return found

    def _entry_scales(self) -> Floats | float:
        scales = self.rankings.scales
        return 1.0 if scales is None else np.repeat(scales, np.diff(self.rankings.offsets))

    def evaluate(self, parameters: Floats, order: int = GRADIENT) -> Derivatives:
        found = self.by_ballot(parameters, order)
        value = float(found.values @ self.rankings.weights)
        if order < GRADIENT:
            return Derivatives(value, np.zeros(0), np.zeros((0, 0)))
        gradient = self._gradient(found)
        if order < INFORMATION:
            return Derivatives(value, gradient, found.half)
        n = self.items
        kept = np.concatenate([np.ones(n, bool), self.free])
        return Derivatives(value, gradient, mirrored(found.half, n)[kept][:, kept])

    def _gradient(self, found: BallotDerivatives) -> Floats:
        weights = self.rankings.weights
        entries = np.repeat(weights, np.diff(self.rankings.offsets)) * found.slopes * self._entry_scales()
        scores = np.bincount(self.rankings.items, entries, minlength=self.items)
        return np.concatenate([scores, (weights @ found.tie_slopes)[self.free]])

    def scale_slopes(self, parameters: Floats) -> tuple[float, Floats, Floats]:
        found, rankings = self.by_ballot(parameters, GRADIENT), self.rankings
        utilities, rows = rankings.table(parameters[: self.items])
        by_entry = np.concatenate(([0.0], np.cumsum(found.slopes * utilities[rows])))
        slopes = rankings.weights * np.diff(by_entry[rankings.offsets])
        return float(found.values @ rankings.weights), self._gradient(found), slopes

    def gradients(self, parameters: Floats) -> csr_array:
        """The gradient of each ballot, (ballots, parameters)."""
        found = self.by_ballot(parameters, GRADIENT)
        rankings = self.rankings
        slopes = found.slopes * self._entry_scales()
        scores = csr_array((slopes, rankings.items, rankings.offsets), (len(rankings), self.items))
        return csr_array(hstack([scores, csr_array(found.tie_slopes[:, self.free])]))

    def null_value(self) -> float:
        """With equal worths only the sizes of tiers, and of what is left at each, matter."""
        ties = self.start_extras()
        counts, left, log_ways = self._stages
        return float(counts[1:][self.free] @ ties - left @ _log_sums(self.log_deltas(ties) + log_ways))

    def start_extras(self) -> Floats:
        """The best tie parameters if all worths are equal, by Newton's method: a concave problem of a few numbers."""
        return self._null_ties.copy()

    @cached_property
    def _null_ties(self) -> Floats:
        counts, left, log_ways = self._stages
        seen, found = counts[1:][self.free], np.zeros(self.ties)
        kept = np.flatnonzero(self.free) + 1
        for _ in range(_MOST_NULL_STEPS if self.ties else 0):
            logs = self.log_deltas(found) + log_ways
            shares = np.exp(logs - _log_sums(logs)[:, None])[:, kept]
            gradient = seen - left @ shares
            information = np.diag(left @ shares) - (left[:, None] * shares).T @ shares
            step = np.linalg.solve(information + 1e-12 * np.trace(information) * np.eye(len(found)), gradient)
            found += np.clip(step, -2.0, 2.0)
            if gradient @ step <= 1e-20 * seen.sum():
                break
        return found

    @cached_property
    def _stages(self) -> tuple[Floats, Floats, Floats]:
        """How often tiers of each size were seen, and each number of items left; log of the ways to choose k of them.

        The last is minus infinity where there are fewer than k.
        """
        rankings, most = self.rankings, len(self.free) + 1
        tiers = np.diff(rankings.ballot_tiers)
        weights = np.repeat(rankings.weights, tiers)
        remaining = np.repeat(rankings.starts[rankings.ballot_tiers[1:]], tiers) - rankings.starts[:-1]
        numbers, place = np.unique(remaining, return_inverse=True)
        left = np.bincount(place.reshape(-1), weights).astype(np.float64)
        k = np.arange(1, most + 1)
        with np.errstate(divide="ignore"):
            return tie_counts(rankings, most), left, np.log(comb(numbers[:, None], k))

    def extra_scale(self) -> Floats:
        return tie_counts(self.rankings, len(self.free) + 1)[1:][self.free]

    def allows(self, parameters: Floats) -> bool:
        scores, ties = parameters[: self.items], parameters[self.items :]
        largest = np.ptp(scores) * self.rankings.largest_scale
        return bool(largest <= LARGEST_SPREAD) and bool((np.abs(ties) <= LARGEST_SPREAD).all())


@dataclass(frozen=True)
class DeadHeatEvidence(RankingEvidence):
    """Ballots in memory whose ties are dead heats of up to `max_tie` items; None: of as many as the largest has."""

    max_tie: int | None = None
    keep_ties: ClassVar[bool] = True

    @cached_property
    def largest_dead_heat(self) -> int:
        """The size of the largest dead heat that the model knows, at least 2."""
        largest = int(np.diff(self.rankings.starts).max(initial=1))
        if self.max_tie is not None and largest > self.max_tie:
            raise ValueError(
                f"max_tie must be at least the size of the largest tie, {largest}, got {self.max_tie}: raise it, or "
                'take ties as unknown orders with ties="unknown"'
            )
        return max(largest, self.max_tie or 2)

    def restrict(self, kept: npt.NDArray[np.bool_]) -> DeadHeatEvidence:
        return replace(super().restrict(kept), max_tie=self.largest_dead_heat)

    def by_voter(self, factors: Floats) -> DeadHeatEvidence:
        return replace(super().by_voter(factors), max_tie=self.largest_dead_heat)

    def steps(self) -> Steps:
        """Steps down between neighbours, and both ways where they are in a dead heat."""
        rankings = self.rankings
        later = np.ones(len(rankings.items), bool)
        later[rankings.offsets[:-1]] = False
        tied = np.ones(len(rankings.items), bool)
        tied[rankings.starts[:-1]] = False
        one, other = rankings.items[np.flatnonzero(later) - 1], rankings.items[later]
        up = tied[later]
        source, target = np.concatenate([one, other[up]]), np.concatenate([other, one[up]])
        return Steps(step_graph(source, target, rankings.count), self.ranked)

    @cached_property
    def likelihood(self) -> DeadHeatLikelihood:
        return DeadHeatLikelihood.from_rankings(self.rankings, self.largest_dead_heat)

    @property
    def tie_names(self) -> list[str]:
        return [f"delta_{k}" for k in range(2, self.largest_dead_heat + 1)]

    def gradients(self, parameters: Floats) -> csr_array:
        every = make_rankings(self.source, keep_ties=True, merge=False, scales=self.scales)
        return replace(self.likelihood, rankings=every).gradients(parameters)

    def check_maximum(self, *, has_ridge: bool) -> None:
        del has_ridge
        if (np.diff(self.rankings.ballot_tiers) == 1).all():
            raise NoMaximumError("all ballots are ties, so that tie parameters have no finite estimate: use prior=0.5")
