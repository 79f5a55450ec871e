"""The Bayesian bootstrap of Rubin (1981): the model fitted to observations with random weights.

Each observation has an exponential weight, so w of them have a gamma weight. None drops out, so that there is a maximum
whenever the data have one. With clusters, all observations of a cluster share one weight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.aggregation.bootstrap_kernels import bootstrap_pairs
from plackett.aggregation.evidence import Evidence, RankingEvidence
from plackett.aggregation.pair_evidence import PairEvidence
from plackett.aggregation.problem import WorthProblem
from plackett.aggregation.solvers import solve
from plackett.objective import Floats
from plackett.threads import run_over_ranges

_MOST_STEPS = 60
_SMALLEST = 1e-9  # weight, so that no observation drops out
# Of the squared length of the last step in standard errors: what is left is a fraction of it, and a thousand rounds
# have a sampling error of 2e-2.
_TOLERANCE = 1e-4
_COST_PER_ROW = 150  # nanoseconds of a round, roughly


@dataclass(frozen=True)
class Refit:
    """A fitted problem, and how to solve it again."""

    problem: WorthProblem
    parameters: Floats
    solver: str
    tol: float
    max_iter: int

    def solve(self, likelihood: Any) -> Floats:
        """The parameters for another likelihood of the same kind."""
        problem = replace(self.problem, likelihood=likelihood)
        return solve(problem, self.solver, self.tol, self.max_iter, self.parameters).parameters


def bootstrapped(evidence: Evidence, refit: Refit, samples: int, generator: np.random.Generator) -> Floats:
    """Parameters of the problem for reweighted observations, (samples, parameters)."""
    if isinstance(evidence, PairEvidence):
        sources = _sources(evidence)
        if refit.problem.X is None:
            return _compiled(evidence, sources, refit, samples, generator)
        return _repeated(_reweighted_pairs(evidence, sources, refit.problem), refit, samples, generator)
    if not isinstance(evidence, RankingEvidence):
        raise ValueError("covariance='bootstrap' needs ballots or comparisons in memory: choose covariance='model'")
    return _repeated(_reweighted_ballots(evidence, refit.problem), refit, samples, generator)


def _repeated(
    reweighted: Callable[[np.random.Generator], Any], refit: Refit, samples: int, generator: np.random.Generator
) -> Floats:  # fmt: skip
    return np.array([refit.solve(reweighted(generator)) for _ in range(samples)])


def _cluster_weights(clusters: int, generator: np.random.Generator) -> Floats:
    return np.maximum(generator.standard_exponential(clusters), _SMALLEST)


def _gamma_weights(shapes: Floats, generator: np.random.Generator) -> Floats:
    return np.maximum(generator.standard_gamma(shapes), _SMALLEST * shapes)


def _reweighted_ballots(
    evidence: RankingEvidence, problem: WorthProblem
) -> Callable[[np.random.Generator], Any]:  # fmt: skip
    weights = problem.likelihood.rankings.weights
    count = evidence.ballots  # those of a prior follow

    def draw(generator: np.random.Generator) -> Any:
        drawn = weights.copy()
        if evidence.cluster is None:
            drawn[:count] = _gamma_weights(weights[:count], generator)
        else:
            factors = _cluster_weights(evidence.clusters, generator)[evidence.cluster.codes]
            places: Any = evidence.rankings.places
            used = places >= 0
            drawn[:count] = np.bincount(places[used], (factors * evidence.source.weights)[used], minlength=count)
        return problem.likelihood.reweighted(drawn)

    return draw


@dataclass(frozen=True)
class _Sources:
    """How the counts of clusters make up those of the rows; all of size 0 without clusters.

    row, cluster  of each part, (parts, 2)
    counts        (parts, 3)
    clusters      their number
    """

    places: npt.NDArray[np.int64]
    counts: Floats
    clusters: int


def _reweighted_pairs(
    evidence: PairEvidence, sources: _Sources, problem: WorthProblem
) -> Callable[[np.random.Generator], Any]:
    rows = problem.likelihood.rows
    shapes, factors = _gammas(evidence)

    def draw(generator: np.random.Generator) -> Any:
        drawn = rows.counts.copy()
        own = drawn[: len(shapes)]
        if sources.clusters:
            own[:] = 0.0
            weights = _cluster_weights(sources.clusters, generator)[sources.places[:, 1]]
            np.add.at(own, sources.places[:, 0], weights[:, None] * sources.counts)
        else:
            own[:] = factors * _gamma_weights(shapes, generator)
        return replace(problem.likelihood, rows=replace(rows, counts=drawn))

    return draw


# Comparisons, compiled


def _compiled(
    evidence: PairEvidence, sources: _Sources, refit: Refit, samples: int, generator: np.random.Generator
) -> Floats:
    problem = refit.problem
    likelihood, rows = problem.likelihood, problem.likelihood.rows
    inverse = np.ascontiguousarray(problem.covariance(refit.parameters))
    shapes, factors = _gammas(evidence)
    seed = np.uint64(generator.integers(0, 2**63))
    found = np.empty((samples, problem.size))
    cost = np.arange(samples + 1, dtype=np.int64) * (_COST_PER_ROW * max(len(rows), 1))

    def call(first: int, last: int) -> int:
        return int(
            bootstrap_pairs(
                first, last, seed, likelihood.kind, refit.parameters, likelihood.items, likelihood.ties, rows.left,
                rows.right, rows.counts, rows.features, rows.scales, shapes, factors, sources.places, sources.clusters,
                sources.counts, problem.penalties, problem.centres, inverse, _TOLERANCE, _MOST_STEPS, found,
            )
        )  # fmt: skip

    if sum(run_over_ranges(call, cost)):
        lost = np.flatnonzero(np.isnan(found[:, 0]))
        again = _reweighted_pairs(evidence, sources, problem)
        found[lost] = [refit.solve(again(generator)) for _ in lost]
    return found


def _gammas(evidence: PairEvidence) -> tuple[Floats, Floats]:
    """Shape and scale of each count: the sum of exponential numbers times the decay of each observation."""
    counts = evidence.rows.counts
    squares = counts if evidence.squared is None else evidence.squared.counts
    factors = np.divide(squares, counts, out=np.ones_like(counts), where=counts > 0.0)
    return counts / factors, factors


def _sources(evidence: PairEvidence) -> _Sources:
    clustered = evidence.clustered
    if clustered is None or clustered.starts is None:
        return _Sources(np.zeros((0, 2), np.int64), np.zeros((0, 3)), 0)
    rows = clustered.order
    if rows is None:
        n = evidence.rows.items
        keys = evidence.rows.left.astype(np.int64) * n + evidence.rows.right
        rows = np.searchsorted(keys, clustered.left.astype(np.int64) * n + clustered.right)
    seen = clustered.counts.any(axis=1)  # ties that say nothing have no row of their own
    places = np.column_stack([rows[seen], evidence.voters[seen]])
    return _Sources(places, clustered.counts[seen], evidence.clusters)
