"""How reliable voters are: the utilities of each voter are scaled by a factor of their own.

A voter of reliability eta sees the scores eta w: at 0 the answers are random, above 1 they are clearer than those of
the others. This is the adherence of R's PlackettLuce; like there, the estimate is the maximum a posteriori with a gamma
prior of mean 1, which fixes the common scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from plackett.aggregation.pair_evidence import PairEvidence
from plackett.aggregation.pair_likelihood import PairLikelihood
from plackett.data.comparisons import Comparisons
from plackett.objective import Floats

SHAPE = 10.0
"""Shape and rate of the gamma prior, as in R: a standard deviation of 0.32."""


@dataclass(frozen=True)
class Voter:
    """A voter: how many comparisons, and how reliable; `random` is whether coins would explain them better."""

    name: Any
    comparisons: float
    reliability: float
    gain: float
    """Log-likelihood per comparison above that of coins."""

    @property
    def random(self) -> bool:
        return self.gain <= 0.0


def estimate_reliability(evidence: PairEvidence, ridge: float, feature_ridge: float) -> Floats:
    """The reliability of each cluster, from the joint maximum over scores, tie parameters, coefficients and voters."""
    rows = evidence.clustered
    if rows is None or rows.starts is None:
        raise ValueError(
            "voters='reliability' needs to know who voted: use load_comparisons(..., cluster=), or fit(..., cluster=)"
        )
    begins = rows.starts[:-1]
    voters = len(begins)
    if voters < 2:
        raise ValueError(f"voters='reliability' needs at least two voters, got {voters}")
    sizes = np.diff(rows.starts)
    problem = evidence.problem(None, ridge, 0.0, feature_ridge)
    penalties = problem.penalties + 1e-9  # where nothing else fixes the common shift of all scores
    start = problem.start()

    def loss(z: Floats) -> tuple[float, Floats]:
        parameters, factors = z[: len(start)], np.exp(z[len(start) :])
        scaled = replace(rows, scales=np.repeat(factors, sizes))
        likelihood = PairLikelihood(scaled, evidence.kind, problem.likelihood.ties > 0)
        if not likelihood.allows(parameters):
            return np.inf, np.zeros_like(z)
        value, gradient, slopes = likelihood.scale_slopes(parameters)
        by_voter = np.add.reduceat(slopes, begins)
        value += float(((SHAPE - 1.0) * np.log(factors) - SHAPE * factors).sum())
        value -= 0.5 * float(penalties @ parameters**2)
        gradient = gradient - penalties * parameters
        return -value, -np.concatenate([gradient, factors * by_voter + SHAPE - 1.0 - SHAPE * factors])

    begin = np.concatenate([start, np.zeros(voters)])
    found = minimize(loss, begin, jac=True, method="L-BFGS-B", options={"maxiter": 2000, "maxcor": 30, "gtol": 1e-6})
    return np.exp(found.x[len(start) :])


def with_reliability(evidence: PairEvidence, reliability: Floats) -> PairEvidence:
    """The same evidence with the utilities of each voter scaled."""
    rows = evidence.clustered
    if rows is None or rows.starts is None:
        raise ValueError("clusters must be given")
    scaled = replace(rows, scales=np.repeat(reliability, np.diff(rows.starts)))
    plain = replace(scaled, starts=None, order=None)
    return replace(evidence, rows=plain, clustered=replace(scaled, order=np.arange(len(scaled))))


def describe_voters(
    names: Sequence[Any], evidence: PairEvidence, reliability: Floats, parameters: Floats
) -> list[Voter]:  # fmt: skip
    """One row per voter, the least reliable first."""
    rows = evidence.clustered
    if rows is None or rows.starts is None:
        raise ValueError("clusters must be given")
    likelihood = PairLikelihood(rows, evidence.kind, evidence.rows.ties > 0.0 and evidence.model.parameter is not None)
    null = np.zeros_like(parameters)
    null[evidence.rows.items :] = likelihood.start_extras()
    found = []
    for number, name in enumerate(names):
        first, last = rows.starts[number], rows.starts[number + 1]
        part = replace(likelihood, rows=_slice(rows, first, last))
        weight = float(part.rows.counts.sum())
        gain = part.evaluate(parameters, 0).value - part.evaluate(null, 0).value
        found.append(Voter(name, weight, float(reliability[number]), gain / max(weight, 1e-300)))
    return sorted(found, key=lambda voter: voter.reliability)


def _slice(rows: Any, first: int, last: int) -> Any:
    part = slice(first, last)
    return replace(
        rows, left=rows.left[part], right=rows.right[part], counts=rows.counts[part], features=rows.features[part],
        scales=rows.scales[part] if rows.scales.size else rows.scales, starts=None, order=None,
    )  # fmt: skip


class Agreement(NamedTuple):
    """How far two voters agree on the comparisons that both made."""

    first: Any
    second: Any
    shared: int
    agreement: float
    kappa: float
    """Cohen's: the agreement beyond chance; NaN where chance alone agrees."""


def agreements(comparisons: Comparisons, *, least: int = 1) -> list[Agreement]:
    """Every two clusters that made at least `least` of the same comparisons, in any orientation, once each.

    Two comparisons are the same if they have the same items and, where there are categories, the same category. Of
    several by one voter, the last one counts.
    """
    if comparisons.cluster is None or comparisons.outcome is None:
        raise ValueError("agreement needs outcomes and clusters: use load_comparisons(..., cluster=)")
    n = len(comparisons.names)
    turned = comparisons.left > comparisons.right
    low = np.where(turned, comparisons.right, comparisons.left).astype(np.int64)
    high = np.where(turned, comparisons.left, comparisons.right).astype(np.int64)
    outcome = np.where(turned, -comparisons.outcome, comparisons.outcome)
    units = low * n + high
    if comparisons.by is not None:
        units += comparisons.by.codes.astype(np.int64) * n * n
    votes: dict[int, dict[int, int]] = {}
    for voter, unit, vote in zip(comparisons.cluster.codes.tolist(), units.tolist(), outcome.tolist(), strict=True):
        votes.setdefault(voter, {})[unit] = vote
    names = comparisons.cluster.names
    found = []
    for one, other in combinations(sorted(votes), 2):
        shared = votes[one].keys() & votes[other].keys()
        if len(shared) >= max(least, 1):
            pairs = np.array([(votes[one][unit], votes[other][unit]) for unit in shared])
            found.append(Agreement(names[one], names[other], len(shared), *_kappa(pairs)))
    return found


def _kappa(pairs: npt.NDArray[np.int64]) -> tuple[float, float]:
    agreement = float((pairs[:, 0] == pairs[:, 1]).mean())
    shares = [[float((pairs[:, k] == vote).mean()) for vote in (-1, 0, 1)] for k in range(2)]
    chance = float(np.dot(shares[0], shares[1]))
    return agreement, (agreement - chance) / (1.0 - chance) if chance < 1.0 else float("nan")
