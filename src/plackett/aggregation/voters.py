"""How reliable voters are: the utilities of each voter are scaled by a factor of their own.

A voter of reliability eta sees the scores eta w: at 0 the answers are random, above 1 they are clearer than those of
the others. This is the adherence of R's PlackettLuce; as there, the estimate is the maximum a posteriori with a gamma
prior of mean 1, which fixes the common scale.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, triu

from plackett.aggregation.ballot_kernels import VALUE
from plackett.aggregation.ballots import as_ballots
from plackett.aggregation.evidence import Evidence
from plackett.aggregation.fitting import WorthFit, WorthSettings, fit_worths
from plackett.aggregation.reading import cluster_of, with_cluster
from plackett.data.comparisons import Comparisons, Factor
from plackett.lists import IntArray
from plackett.objective import Floats

SHAPE = 10.0
"""Shape and rate of the gamma prior, as in R: a standard deviation of 0.32."""


@dataclass(frozen=True)
class Voter:
    """A voter: number of comparisons and reliability; `random` says whether coin tosses would explain them better."""

    name: Any
    comparisons: float
    reliability: float
    gain: float
    """Log-likelihood per comparison above that of coin tosses."""

    @property
    def random(self) -> bool:
        return self.gain <= 0.0


def fit_voters(evidence: Evidence, settings: WorthSettings) -> tuple[WorthFit, list[Voter]]:
    """Estimate the reliability of voters, then the worths with the votes scaled by it."""
    plain = fit_worths(evidence, None, settings)
    reliability = estimate_reliability(plain.evidence, settings.ridge, settings.prior, settings.feature_ridge)
    scaled = plain.evidence.by_voter(reliability)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about items, said before
        fit = replace(fit_worths(scaled, None, settings), outside=plain.outside, dropped=plain.dropped)
    return fit, describe_voters(scaled, reliability, fit.parameters)


def estimate_reliability(evidence: Evidence, ridge: float, prior: float, feature_ridge: float) -> Floats:
    """The reliability of each cluster, from the joint maximum over scores, tie parameters, coefficients and voters.

    The artificial item of a prior is compared with reliability 1, as in R.
    """
    count = evidence.clusters
    if count == 1:
        raise ValueError("voters='reliability' needs at least two voters, got 1")
    scaled = evidence.by_voter(np.ones(count))
    voters = scaled.voters
    problem = scaled.problem(None, ridge, prior, feature_ridge)
    beyond = np.ones(problem.likelihood.ballots - len(voters))  # observations of the prior
    penalties = problem.penalties + 1e-9  # where nothing else fixes the common shift of all scores
    start = problem.start()

    def loss(z: Floats) -> tuple[float, Floats]:
        parameters, factors = z[: len(start)], np.exp(z[len(start) :])
        likelihood = problem.likelihood.scaled(np.concatenate([factors[voters], beyond]))
        if not likelihood.allows(parameters):
            return np.inf, np.zeros_like(z)
        value, gradient, slopes = likelihood.scale_slopes(parameters)
        by_voter = np.bincount(voters, slopes[: len(voters)], minlength=count)
        value += float(((SHAPE - 1.0) * np.log(factors) - SHAPE * factors).sum())
        value -= 0.5 * float(penalties @ parameters**2)
        gradient = gradient - penalties * parameters
        return -value, -np.concatenate([gradient, by_voter + SHAPE - 1.0 - SHAPE * factors])

    from scipy.optimize import minimize

    begin = np.concatenate([start, np.zeros(count)])
    found = minimize(loss, begin, jac=True, method="L-BFGS-B", options={"maxiter": 2000, "maxcor": 30, "gtol": 1e-6})
    return np.exp(found.x[len(start) :])


def describe_voters(evidence: Evidence, reliability: Floats, parameters: Floats) -> list[Voter]:
    """One row per voter, the least reliable first; `evidence` is that `by_voter`."""
    likelihood = evidence.problem().likelihood
    null = np.zeros_like(parameters)
    null[likelihood.items :] = likelihood.start_extras()
    order = np.argsort(evidence.voters, kind="stable")
    starts = np.searchsorted(evidence.voters[order], np.arange(evidence.clusters + 1))
    found = []
    for number, name in enumerate(evidence.cluster_names):
        part = likelihood.select(order[starts[number] : starts[number + 1]])
        weight = float(part.weight)
        gain = part.evaluate(parameters, VALUE).value - part.evaluate(null, VALUE).value
        found.append(Voter(name, weight, float(reliability[number]), gain / max(weight, 1e-300)))
    return sorted(found, key=lambda voter: voter.reliability)


class Agreement(NamedTuple):
    """How far two voters agree on the pairs of items that both compared.

    `agreement` is the share of pairs on which they have the same opinion. `kappa` is the agreement beyond chance, which
    knows how often each of them ties items but not which item wins: 1 is perfect, 0 is chance; NaN where chance alone
    agrees. Without ties it is Kendall's tau.
    """

    first: Any
    second: Any
    shared: int
    agreement: float
    kappa: float


def agreements(data: Comparisons | Any, *, cluster: Any = None, least: int = 1) -> list[Agreement]:
    """Each pair of voters who compared at least `least` of the same pairs of items.

    Args:
        data: `Comparisons`, or rankings in any form that `RankAggregator.fit` takes, each of which compares each pair
            of its items.
        cluster: the voter of each row; comparisons may hold theirs. Rankings without it have one voter each, numbered.
        least: the smallest number of shared pairs.

    Two comparisons are the same if they have the same items, in any orientation, and, where there are categories, the
    same category. Of several by one voter, the last one counts.

    >>> agreements([["ale", "beer", "cider"], ["ale", "cider", "beer"]])
    [Agreement(first=0, second=1, shared=3, agreement=0.6666666666666666, kappa=0.33333333333333326)]
    """
    voters, low, high, outcome, category = _votes(data, cluster)
    turned = low > high
    low, high = np.where(turned, high, low), np.where(turned, low, high)
    outcome = np.where(turned, -outcome, outcome)
    _, units = np.unique(np.stack([category, low, high]), axis=1, return_inverse=True)
    units = units.reshape(-1)
    rows = _last_rows(voters.codes.astype(np.int64) * (units.max(initial=0) + 1) + units)
    shape = len(voters.names), int(units.max(initial=0)) + 1

    def marked(chosen: npt.NDArray[np.bool_]) -> csr_array:
        own = rows[chosen[rows]]
        return csr_array((np.ones(len(own)), (voters.codes[own], units[own])), shape)

    ties, every = marked(outcome == 0), marked(np.ones(len(outcome), bool))
    same: Any = sum(one @ one.T for one in (marked(outcome == k) for k in (-1, 0, 1)))
    shared = triu(every @ every.T, 1).tocsr()
    shared.sort_indices()
    same, tied = same.tocsr(), (ties @ every.T).tocsr()
    found = []
    for i, j, pairs in zip(*(part.tolist() for part in (*shared.tocoo().coords, shared.data)), strict=True):
        if pairs >= max(least, 1):
            agreement, one, other = (float(x) / pairs for x in (same[i, j], tied[i, j], tied[j, i]))
            chance = one * other + 0.5 * (1.0 - one) * (1.0 - other)
            kappa = (agreement - chance) / (1.0 - chance) if chance < 1.0 else float("nan")
            found.append(Agreement(voters.names[i], voters.names[j], int(pairs), agreement, kappa))
    return found


def _votes(data: Any, cluster: Any) -> tuple[Factor, IntArray, IntArray, IntArray, IntArray]:
    """The voter, the two items, the outcome and the category of each comparison."""
    if isinstance(data, Comparisons):
        data = with_cluster(data, cluster)
        if data.cluster is None or data.outcome is None:
            raise ValueError("agreement needs outcomes and clusters: use load_comparisons(..., cluster=)")
        category = np.zeros(len(data), np.int64) if data.by is None else data.by.codes.astype(np.int64)
        left, right = data.left.astype(np.int64), data.right.astype(np.int64)
        return data.cluster, left, right, data.outcome.astype(np.int64), category
    ballots = as_ballots(data)
    voters = cluster_of(range(len(ballots)) if cluster is None else cluster, len(ballots))
    pairs = [np.zeros((2, 0), np.int64)]
    for first, last in pairwise(ballots.offsets.tolist()):
        pairs.append(first + np.array(np.triu_indices(last - first, 1)))
    left, right = np.concatenate(pairs, axis=1)
    own = np.repeat(np.arange(len(ballots)), [part.shape[1] for part in pairs[1:]])
    items, labels = np.asarray(ballots.items, np.int64), np.asarray(ballots.labels)
    outcome = np.sign(labels[left] - labels[right]).astype(np.int64)
    return voters.select(own), items[left], items[right], outcome, np.zeros(len(own), np.int64)


def _last_rows(keys: IntArray) -> IntArray:
    """The numbers of the rows whose key does not occur again."""
    _, places = np.unique(keys[::-1], return_index=True)
    return len(keys) - 1 - places
