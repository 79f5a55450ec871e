"""RankAggregator on Dask: ballots stay in their partitions, which return sums over their ballots.

Each partition is converted to the form of the kernels once. A step of a solver then sends the scores to every partition
and adds up the derivatives. Whether a maximum exists depends only on which items can be reached from which by wins, so
a partition sends only that much of its graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from plackett.aggregation.ballot_kernels import GRADIENT, INFORMATION
from plackett.aggregation.ballot_likelihood import BallotLikelihood
from plackett.aggregation.ballots import (
    Floats,
    Rankings,
    as_ballots,
    ballots_hash,
    check_names,
    make_rankings,
    restrict,
    weighted,
    with_ghost,
)
from plackett.aggregation.connectivity import Steps, steps_of
from plackett.aggregation.evidence import Evidence
from plackett.aggregation.problem import Derivatives, WorthLikelihood, WorthProblem
from plackett.data.containers import Ballots
from plackett.data.hashes import fingerprint
from plackett.distributed.dask_lists import import_dask, row_blocks
from plackett.lists import IntArray, offsets_from_sizes

_SUMMED_AT_ONCE = 8  # partitions


def _partitions(name: str, collection: Any) -> list[Any]:
    if isinstance(collection, list | tuple):
        return list(collection)
    if hasattr(collection, "columns"):
        raise ValueError(
            f"{name} must be a Dask bag, an array with a ranking in each row or a list of delayed partitions, got a "
            "DataFrame: use to_dask_array(), or from_frame of each of to_delayed()"
        )
    return row_blocks(name, collection)


@dataclass(frozen=True)
class _PartitionFacts:
    """Facts about a partition."""

    ballots: int
    weight: float
    wins: Floats
    costs: tuple[int, int]
    steps: Steps
    hash: str
    tied_weight: float
    tied_pairs: float


@dataclass(frozen=True)
class DaskBallots(Evidence):
    """`plackett.aggregation.evidence.Evidence` of ballots in partitions; `sources` are delayed `Ballots`."""

    names: list[Any]
    sources: Sequence[Any]
    stays: ClassVar[bool] = False

    @cached_property
    def _likelihoods(self) -> list[Any]:
        """The likelihood of each partition, which stays on its worker."""
        dask = import_dask()
        return list(dask.persist(*[dask.delayed(_likelihood_of)(source) for source in self.sources]))

    @cached_property
    def _facts(self) -> list[_PartitionFacts]:
        dask = import_dask()
        return list(dask.compute(*[dask.delayed(_facts_of)(part, self.names) for part in self._likelihoods]))

    @property
    def ballots(self) -> int:
        return sum(facts.ballots for facts in self._facts)

    @property
    def weight(self) -> float:
        return float(sum(facts.weight for facts in self._facts))

    @property
    def tied_weight(self) -> float:
        return sum(facts.tied_weight for facts in self._facts)

    @property
    def tied_pairs(self) -> float:
        return sum(facts.tied_pairs for facts in self._facts)

    @property
    def ranked(self) -> npt.NDArray[np.bool_]:
        return np.asarray(np.any([facts.steps.ranked for facts in self._facts], axis=0))

    def steps(self) -> Steps:
        return _union([facts.steps for facts in self._facts])

    def restrict(self, kept: npt.NDArray[np.bool_]) -> DaskBallots:
        dask = import_dask()
        names = [name for name, keep in zip(self.names, kept, strict=True) if keep]
        return DaskBallots(names, [dask.delayed(restrict)(source, kept) for source in self.sources])

    def hash(self) -> str:
        return fingerprint([facts.hash for facts in self._facts])

    def problem(
        self, X: Floats | None = None, ridge: float = 0.0, prior: float = 0.0, feature_ridge: float = 0.0
    ) -> WorthProblem:
        facts = self._facts
        parts = [part for part, own in zip(self._likelihoods, facts, strict=True) if own.ballots]
        likelihood = DaskLikelihood(
            parts,
            len(self.names),
            self.ballots,
            self.weight,
            np.sum([part.wins for part in facts], axis=0),
            np.sum([part.costs for part in facts], axis=0),
        )
        return WorthProblem(likelihood.with_prior(prior) if prior else likelihood, X, ridge, feature_ridge)


def read_partitions(ballots: Any, sample_weight: Any, unranked: str) -> DaskBallots:
    """Ballots in the forms that `RankAggregator.fit` takes, partition by partition."""
    dask = import_dask()
    parts = _partitions("ballots", ballots)
    found = dask.compute(*[dask.delayed(_names_of)(part) for part in parts])
    names = list(dict.fromkeys(name for _, own in found for name in own))
    if not all(are_named for are_named, _ in found):
        with suppress(TypeError):  # kinds that cannot be compared stay in the order of appearance
            names = sorted(names)
    check_names(names)
    weights = [None] * len(parts) if sample_weight is None else _partitions("sample_weight", sample_weight)
    if len(weights) != len(parts):
        raise ValueError(f"sample_weight must have the {len(parts)} partitions of ballots, got {len(weights)}")
    read = dask.delayed(_read)
    return DaskBallots(
        names, [read(part, names, weight, unranked) for part, weight in zip(parts, weights, strict=True)]
    )


# On the workers


def _names_of(part: Any) -> tuple[bool, list[Any]]:
    """Whether a partition has names, in its own order, and the names."""
    return isinstance(part, Ballots), list(as_ballots(part).names)


def _read(part: Any, names: list[Any], weights: Any, unranked: str) -> Ballots:
    return weighted(as_ballots(part, names), weights, unranked)


def _likelihood_of(ballots: Ballots) -> BallotLikelihood:
    return BallotLikelihood(make_rankings(ballots))


def _facts_of(part: BallotLikelihood, names: list[Any]) -> _PartitionFacts:
    rankings = part.rankings
    return _PartitionFacts(
        len(rankings),
        float(rankings.weights.sum()),
        part.wins,
        (part.cost(GRADIENT), part.cost(INFORMATION)),
        _condensed(steps_of(rankings)),
        ballots_hash(rankings, names),
        rankings.tied_weight,
        rankings.tied_pairs,
    )


def _condensed(steps: Steps) -> Steps:
    """A small graph in which the same items can be reached from each item.

    Items that reach each other are joined to the first of them, both ways, and steps between such sets come once. Nodes
    that only join tiers stay if nothing leads back to them.
    """
    graph, n = steps.graph.tocoo(), len(steps.ranked)
    _, component = connected_components(graph, directed=True, connection="strong")
    first = np.full(component.max(initial=-1) + 1, -1)
    items = np.arange(n)[::-1]
    first[component[items]] = items
    without = first < 0
    first[without] = n + np.arange(without.sum())
    leader = first[component]
    own = np.flatnonzero(leader[:n] != np.arange(n))
    source = np.concatenate([leader[graph.row], own, leader[own]])
    target = np.concatenate([leader[graph.col], leader[own], own])
    edges = np.unique(np.stack([source, target])[:, source != target], axis=1)
    size = n + int(without.sum())
    return Steps(coo_array((np.ones(edges.shape[1], np.int8), tuple(edges)), (size, size)).tocsr(), steps.ranked)


def _union(parts: Sequence[Steps]) -> Steps:
    """All steps together: items are the same in all parts, nodes that join tiers are not."""
    n = len(parts[0].ranked)
    nodes = offsets_from_sizes(np.array([part.graph.shape[0] - n for part in parts]))
    ends = []
    for part, first in zip(parts, nodes, strict=False):
        edges = np.stack(part.graph.tocoo().coords)
        ends.append(edges + np.where(edges >= n, first, 0))
    source, target = np.concatenate(ends, axis=1)
    size = n + int(nodes[-1])
    graph = coo_array((np.ones(len(source), np.int8), (source, target)), (size, size)).tocsr()
    graph.data[:] = 1  # steps that several partitions know
    return Steps(graph, np.any([part.ranked for part in parts], axis=0))


# The sum over partitions


class DaskLikelihood(BallotLikelihood):
    """`BallotLikelihood` of ballots in partitions, times a scale. `ghost` holds the ballots of a prior, in memory."""

    def __init__(
        self,
        parts: Sequence[Any],
        items: int,
        ballots: int,
        weight: float,
        wins: Floats,
        costs: IntArray,
        ghost: BallotLikelihood | None = None,
        scale: float = 1.0,
    ) -> None:
        self._parts, self._ghost, self._scale = parts, ghost, scale
        self._items, self._ballots, self._weight, self._wins, self._totals = items, ballots, weight, wins, costs

    @property
    def items(self) -> int:
        return self._items

    @property
    def ballots(self) -> int:
        return self._ballots

    @property
    def weight(self) -> float:
        return self._weight

    @property
    def wins(self) -> Floats:
        return self._wins * self._scale

    def allows(self, parameters: Floats) -> bool:
        return WorthLikelihood.allows(self, parameters)  # voters have no scales here

    def cost(self, order: int) -> int:
        return int(self._totals[int(order == INFORMATION)])

    def with_prior(self, prior: float) -> DaskLikelihood:
        """One more item, which every other beats and loses to with the weight `prior`."""
        nothing = Rankings(
            np.zeros(0, np.int32), np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(0), self._items
        )
        ghost = BallotLikelihood(with_ghost(nothing, prior))
        return DaskLikelihood(
            self._parts,
            self._items + 1,
            self._ballots + ghost.ballots,
            self._weight + ghost.weight,
            np.append(self._wins, 0.0) + ghost.wins,
            self._totals + np.array([ghost.cost(GRADIENT), ghost.cost(INFORMATION)]),
            ghost,
        )

    def rescaled(self, weight: float, ballots: int) -> DaskLikelihood:
        return DaskLikelihood(
            self._parts, self._items, self._ballots, self._weight, self._wins, self._totals, self._ghost,
            ballots / weight,
        )  # fmt: skip

    def evaluate(self, scores: Floats, order: int = GRADIENT) -> Derivatives:
        dask = import_dask()
        evaluate, add = dask.delayed(_evaluate), dask.delayed(_add)
        sums = [evaluate(part, scores, order) for part in self._parts]
        while len(sums) > 1:
            sums = [add(sums[i : i + _SUMMED_AT_ONCE]) for i in range(0, len(sums), _SUMMED_AT_ONCE)]
        (found,) = dask.compute(*sums)
        if self._ghost is not None:
            value, gradient, information = found
            information = np.pad(information, (0, 1)) if order >= INFORMATION else information
            widened = Derivatives(value, np.pad(gradient, (0, 1)), information)
            found = _add([widened, self._ghost.evaluate(scores, order)])
        return Derivatives(*(self._scale * part for part in found))


def _evaluate(part: BallotLikelihood, scores: Floats, order: int) -> Derivatives:
    return part.evaluate(scores[: part.items], order)


def _add(parts: Sequence[Derivatives]) -> Derivatives:
    values, gradients, informations = zip(*parts, strict=True)
    return Derivatives(sum(values), np.sum(gradients, axis=0), np.sum(informations, axis=0))
