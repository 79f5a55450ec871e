"""Rankings in which tied items are dead heats: an outcome of its own, the Davidson-Luce model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array, hstack
from scipy.special import gammaln

from plackett.aggregation.ballot_kernels import GRADIENT, INFORMATION, VALUE
from plackett.aggregation.ballots import Rankings, ballots_hash, make_rankings, patterns, restrict, with_ghost
from plackett.aggregation.connectivity import Steps, steps_of
from plackett.aggregation.dead_heat_kernels import dead_heat_derivatives
from plackett.aggregation.evidence import Evidence, summed_squares, weighted_squares
from plackett.aggregation.pair_likelihood import mirrored
from plackett.aggregation.problem import Derivatives, WorthLikelihood, WorthProblem
from plackett.aggregation.solvers import solve
from plackett.data.containers import Ballots
from plackett.errors import NoMaximumError
from plackett.lists import IntArray
from plackett.objective import Floats
from plackett.threads import run_over_ranges

LARGEST_SPREAD = 300.0
"""Largest difference of scores: products of two inverse worths have to fit into float64."""

_MOST_BYTES = 2**26  # for copies of the matrix, one for each piece of work that may run in parallel


def tie_counts(rankings: Rankings, most: int) -> Floats:
    """How often dead heats of 1, 2, ..., `most` items were seen."""
    sizes = np.diff(rankings.starts)
    weights = np.repeat(rankings.weights, np.diff(rankings.ballot_tiers))
    return np.bincount(sizes, weights, minlength=most + 1)[1 : most + 1].astype(np.float64)


@dataclass
class BallotDerivatives:
    """Of each ballot: log P, the slope of each entry, and the slopes of log delta_2, log delta_3, ..."""

    values: Floats
    slopes: Floats
    tie_slopes: Floats
    half: Floats


@dataclass
class DeadHeatLikelihood(WorthLikelihood):
    """log P(rankings), a function of scores and of log delta_k for each size k of which there are dead heats.

    `free` says for each of delta_2, delta_3, ... whether it is estimated; it is 0 otherwise.
    """

    rankings: Rankings
    free: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, rankings: Rankings, most: int) -> DeadHeatLikelihood:
        return cls(rankings, tie_counts(rankings, most)[1:] > 0.0)

    @property
    def items(self) -> int:
        return self.rankings.count

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

    @cached_property
    def _costs(self) -> tuple[IntArray, IntArray, IntArray]:
        gradient, information = self.rankings.costs()
        size = 1 + len(self.free) * (len(self.free) + 1) // 2
        return gradient * size, gradient * size, information * size

    def cost(self, order: int) -> int:
        return int(self._costs[order][-1])

    def log_deltas(self, ties: Floats) -> Floats:
        """log delta_1, log delta_2, ..., minus infinity where there are no such dead heats."""
        found = np.full(len(self.free) + 1, -np.inf)
        found[0] = 0.0
        found[1:][self.free] = ties
        return found

    def by_ballot(self, parameters: Floats, order: int) -> BallotDerivatives:
        """The derivatives of each ballot, and half of the information of all."""
        rankings, n, most = self.rankings, self.items, len(self.free) + 1
        scores = parameters[:n] - parameters[:n].max()
        logs = self.log_deltas(parameters[n:])
        roots = np.exp(scores[:, None] / np.arange(1, most + 1))
        powers = np.column_stack(
            [roots[:, 0], *(roots[:, k - 1] ** p for k in range(2, most + 1) for p in range(1, k))]
        )  # fmt: skip
        side = n + most - 1 if order >= INFORMATION else 0
        found = BallotDerivatives(
            np.empty(len(rankings)), np.empty(len(rankings.items)), np.empty((len(rankings), most - 1)), np.zeros(0)
        )
        parts: dict[int, Floats] = {}

        def call(first: int, last: int) -> int:
            parts[first] = np.zeros((side, side))
            return int(
                dead_heat_derivatives(
                    first, last, scores, roots, powers, logs, np.exp(logs), rankings.items, rankings.starts,
                    rankings.ballot_tiers, rankings.weights, order, found.values, found.slopes, found.tie_slopes,
                    parts[first],
                )
            )  # fmt: skip

        if 8 * side * side > _MOST_BYTES or len(rankings) == 0:
            call(0, len(rankings))
        else:
            run_over_ranges(call, self._costs[order])
        found.half = np.sum([parts[first] for first in sorted(parts)], axis=0)
        return found

    def evaluate(self, parameters: Floats, order: int = GRADIENT) -> Derivatives:
        n, weights = self.items, self.rankings.weights
        found = self.by_ballot(parameters, order)
        value = float(found.values @ weights)
        if order < GRADIENT:
            return Derivatives(value, np.zeros(0), np.zeros((0, 0)))
        entries = np.repeat(weights, np.diff(self.rankings.offsets)) * found.slopes
        scores = np.bincount(self.rankings.items, entries, minlength=n)
        gradient = np.concatenate([scores, (weights @ found.tie_slopes)[self.free]])
        if order < INFORMATION:
            return Derivatives(value, gradient, found.half)
        kept = np.concatenate([np.ones(n, bool), self.free])
        return Derivatives(value, gradient, mirrored(found.half, n)[kept][:, kept])

    def gradients(self, parameters: Floats) -> csr_array:
        """The gradient of each ballot, (ballots, parameters)."""
        found = self.by_ballot(parameters, GRADIENT)
        rankings = self.rankings
        scores = csr_array((found.slopes, rankings.items, rankings.offsets), (len(rankings), self.items))
        return csr_array(hstack([scores, csr_array(found.tie_slopes[:, self.free])]))

    def null_value(self) -> float:
        """With equal worths only the sizes of tiers matter, so that few different ballots are left."""
        likelihood = replace(self, rankings=patterns(self.rankings))
        alone = WorthProblem(likelihood, X=np.zeros((likelihood.items, 0)))
        best = solve(alone, "newton", 1e-6, 1000).parameters if self.ties else np.zeros(0)
        return likelihood.evaluate(np.concatenate([np.zeros(likelihood.items), best]), VALUE).value

    def start_extras(self) -> Floats:
        """From how often dead heats of each size were seen, among sets of the mean size."""
        counts = tie_counts(self.rankings, len(self.free) + 1)
        mean = max(float(np.diff(self.rankings.offsets).mean()), 2.0)
        k = np.arange(1, len(counts) + 1)
        ways = gammaln(mean + 1) - gammaln(np.maximum(mean - k, 0.0) + 1) - gammaln(k + 1)
        logs = np.log(np.maximum(counts, 0.5) / max(counts[0], 0.5)) - ways + ways[0]
        return np.asarray(logs[1:][self.free])

    def extra_scale(self) -> Floats:
        return tie_counts(self.rankings, len(self.free) + 1)[1:][self.free]

    def allows(self, parameters: Floats) -> bool:
        scores, ties = parameters[: self.items], parameters[self.items :]
        return bool(np.ptp(scores) <= LARGEST_SPREAD) and bool((np.abs(ties) <= LARGEST_SPREAD).all())

    def reweighted(self, weights: Floats) -> DeadHeatLikelihood:
        """The same rankings with other weights."""
        return replace(self, rankings=replace(self.rankings, weights=weights))

    def rescaled(self, weight: float, ballots: int) -> DeadHeatLikelihood:
        return self.reweighted(self.rankings.weights / weight * ballots)


def check_longest_tie(rankings: Rankings, max_tie: int | None) -> int:
    """The largest dead heat, or `max_tie` if that is larger; an error if it is smaller."""
    largest = int(np.diff(rankings.starts).max(initial=1))
    if max_tie is not None and largest > max_tie:
        raise ValueError(
            f"max_tie must be at least the size of the largest tie, {largest}, got {max_tie}: raise it, or take ties "
            'as unknown orders with ties="unknown"'
        )
    return max(largest, max_tie or 2)


@dataclass(frozen=True)
class DeadHeatEvidence(Evidence):
    """Ballots in memory whose ties are dead heats of up to `most` items."""

    source: Ballots
    most: int
    cluster: npt.NDArray[np.int32] | None = None
    stays: ClassVar[bool] = True

    @classmethod
    def of(cls, source: Ballots, max_tie: int | None, cluster: npt.NDArray[np.int32] | None) -> DeadHeatEvidence:
        return cls(source, check_longest_tie(make_rankings(source, keep_ties=True), max_tie), cluster)

    @cached_property
    def rankings(self) -> Rankings:
        return make_rankings(self.source, keep_ties=True)

    @property
    def names(self) -> list[Any]:  # type: ignore[override]
        return list(self.source.names)

    @property
    def ballots(self) -> int:
        return len(self.rankings)

    @property
    def weight(self) -> float:
        return float(self.rankings.weights.sum())

    @property
    def tied_weight(self) -> float:
        return 0.0

    @property
    def tied_pairs(self) -> float:
        return 0.0

    @property
    def ranked(self) -> npt.NDArray[np.bool_]:
        return np.bincount(self.rankings.items, minlength=self.rankings.count) > 0

    def steps(self) -> Steps:
        """Steps down, and both ways between neighbours in a dead heat."""
        graph, ranked = steps_of(self.rankings)
        inside = np.ones(len(self.rankings.items), bool)
        inside[self.rankings.starts[:-1]] = False
        later = np.flatnonzero(inside)
        one, other = self.rankings.items[later - 1], self.rankings.items[later]
        source, target = np.concatenate([one, other]), np.concatenate([other, one])
        ties = coo_array((np.ones(len(source), np.int8), (source, target)), graph.shape).tocsr()
        joined = csr_array(graph + ties)
        joined.data[:] = 1
        return Steps(joined, ranked)

    def restrict(self, kept: npt.NDArray[np.bool_]) -> DeadHeatEvidence:
        return replace(self, source=restrict(self.source, kept))

    def hash(self) -> str:
        return ballots_hash(self.rankings, self.names)

    def problem(
        self, X: Floats | None = None, ridge: float = 0.0, prior: float = 0.0, feature_ridge: float = 0.0
    ) -> WorthProblem:
        likelihood = DeadHeatLikelihood.of(self.rankings, self.most)
        if prior:
            likelihood = replace(likelihood, rankings=with_ghost(self.rankings, prior))
        return WorthProblem(likelihood, X, ridge, feature_ridge)

    @property
    def tie_names(self) -> list[str]:
        return [f"delta_{k}" for k in range(2, self.most + 1)]

    @property
    def clusters(self) -> int:
        return 0 if self.cluster is None else len(np.unique(self.cluster))

    def _unmerged(self) -> DeadHeatLikelihood:
        """One ballot for each row of the source, in its order."""
        return DeadHeatLikelihood(make_rankings(self.source, keep_ties=True, merge=False), self._free())

    def _free(self) -> npt.NDArray[np.bool_]:
        return tie_counts(self.rankings, self.most)[1:] > 0.0

    def squares(self, parameters: Floats) -> Floats:
        return weighted_squares(self._unmerged().gradients(parameters), np.sqrt(self.source.weights))

    def clustered_squares(self, parameters: Floats) -> Floats:
        weights = np.asarray(self.source.weights, np.float64)
        return summed_squares(self._unmerged().gradients(parameters), weights, self.cluster)

    def check_maximum(self, *, has_ridge: bool) -> None:
        del has_ridge
        if (np.diff(self.rankings.ballot_tiers) == 1).all():
            raise NoMaximumError("all ballots are ties, so that tie parameters have no finite estimate: use prior=0.5")
