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
from plackett.aggregation.dead_heats import DeadHeatEvidence
from plackett.aggregation.evidence import BallotsInMemory, Evidence
from plackett.aggregation.pair_evidence import PairEvidence
from plackett.aggregation.problem import WorthProblem
from plackett.aggregation.solvers import solve
from plackett.objective import Floats
from plackett.threads import run_over_ranges

_MOST_STEPS = 60
_TOLERANCE = 1e-6  # of the squared distance in standard errors: a thousand rounds have a sampling error of 2e-2
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
        if refit.problem.X is None:
            return _compiled(evidence, refit, samples, generator)
        return _repeated(_reweighted_pairs(evidence, refit.problem), refit, samples, generator)
    if not isinstance(evidence, BallotsInMemory | DeadHeatEvidence):
        raise ValueError("covariance='bootstrap' needs the data in memory, not on Dask")
    if evidence.cluster is not None:
        raise ValueError("the bootstrap of ballots has no clusters: choose covariance='cluster'")
    return _repeated(_reweighted_ballots(evidence, refit.problem), refit, samples, generator)


def _repeated(
    reweighted: Callable[[np.random.Generator], Any], refit: Refit, samples: int, generator: np.random.Generator
) -> Floats:  # fmt: skip
    return np.array([refit.solve(reweighted(generator)) for _ in range(samples)])


def _reweighted_ballots(evidence: Any, problem: WorthProblem) -> Callable[[np.random.Generator], Any]:
    weights = problem.likelihood.rankings.weights
    data = weights[: evidence.ballots]  # those of a prior follow

    def draw(generator: np.random.Generator) -> Any:
        drawn = weights.copy()
        drawn[: len(data)] = np.maximum(generator.standard_gamma(data), 1e-9 * data)  # above 0
        return problem.likelihood.reweighted(drawn)

    return draw


def _reweighted_pairs(evidence: PairEvidence, problem: WorthProblem) -> Callable[[np.random.Generator], Any]:
    rows, data = problem.likelihood.rows, evidence.rows.counts

    def draw(generator: np.random.Generator) -> Any:
        drawn = rows.counts.copy()
        drawn[: len(data)] = np.maximum(generator.standard_gamma(data), 1e-9 * data)
        return replace(problem.likelihood, rows=replace(rows, counts=drawn))

    return draw


# Comparisons, compiled


def _compiled(evidence: PairEvidence, refit: Refit, samples: int, generator: np.random.Generator) -> Floats:
    problem = refit.problem
    likelihood, rows = problem.likelihood, problem.likelihood.rows
    inverse = np.ascontiguousarray(problem.covariance(refit.parameters))
    sources, source_counts, clusters = _sources(evidence)
    shapes, factors = _gammas(evidence)
    seed = np.uint64(generator.integers(0, 2**63))
    found = np.empty((samples, problem.size))
    cost = np.arange(samples + 1, dtype=np.int64) * (_COST_PER_ROW * max(len(rows), 1))

    def call(first: int, last: int) -> int:
        return int(
            bootstrap_pairs(
                first, last, seed, likelihood.kind, refit.parameters, likelihood.items, likelihood.ties, rows.left,
                rows.right, rows.counts, rows.features, shapes, factors, sources, clusters, source_counts,
                problem.penalties, inverse, _TOLERANCE, _MOST_STEPS, found,
            )
        )  # fmt: skip

    if sum(run_over_ranges(call, cost)):
        lost = np.flatnonzero(np.isnan(found[:, 0]))
        again = _reweighted_pairs(evidence, problem)
        found[lost] = [refit.solve(again(generator)) for _ in lost]
    return found


def _gammas(evidence: PairEvidence) -> tuple[Floats, Floats]:
    """Shape and scale of each count: the sum of exponential numbers times the decay of each observation."""
    counts = evidence.rows.counts
    squares = counts if evidence.squared is None else evidence.squared.counts
    factors = np.divide(squares, counts, out=np.ones_like(counts), where=counts > 0.0)
    return counts / factors, factors


def _sources(evidence: PairEvidence) -> tuple[npt.NDArray[np.int64], Floats, int]:
    """The row and the cluster of each row by cluster, its counts, and the number of clusters."""
    clustered = evidence.clustered
    if clustered is None or clustered.starts is None:
        return np.zeros((0, 2), np.int64), np.zeros((0, 3)), 0
    clusters = np.repeat(np.arange(evidence.clusters), np.diff(clustered.starts))
    rows = clustered.order
    if rows is None:
        n = evidence.rows.items
        keys = evidence.rows.left.astype(np.int64) * n + evidence.rows.right
        rows = np.searchsorted(keys, clustered.left.astype(np.int64) * n + clustered.right)
    seen = clustered.counts.any(axis=1)  # ties that say nothing have no row of their own
    return np.column_stack([rows[seen], clusters[seen]]), clustered.counts[seen], evidence.clusters
