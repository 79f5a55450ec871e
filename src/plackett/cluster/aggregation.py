"""RankAggregator on Dask: ballots stay in their partitions, and what is a sum over ballots comes from there.

A partition is turned into the form of the kernels once. A step of a solver then takes the scores to every partition and
the sum of the derivatives back. Whether a maximum exists depends only on which items can be reached from which by wins,
so that a partition tells of its graph no more than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from plackett.aggregation.ballots import (
    Floats,
    Rankings,
    as_ballots,
    ballots_hash,
    check_names,
    prepare,
    restrict,
    weighted,
    with_ghost,
)
from plackett.aggregation.connectivity import Steps, steps_of
from plackett.aggregation.kernels import GRADIENT, INFORMATION
from plackett.aggregation.model import Derivatives, Objective
from plackett.cluster.lists import import_dask, row_blocks
from plackett.data.containers import Ballots
from plackett.fingerprint import fingerprint
from plackett.lists import IntArray, offsets_from_sizes

_SUMMED_AT_ONCE = 8  # partitions


def _partitions(name: str, collection: Any) -> list[Any]:
    if isinstance(collection, list | tuple):
        return list(collection)
    if hasattr(collection, "columns"):
        raise ValueError(
            f"{name} must be a Dask bag, an array with a ranking in each row or a list of delayed partitions, got a "
            "DataFrame: take to_dask_array(), or from_frame of each of to_delayed()"
        )
    return row_blocks(name, collection)


@dataclass(frozen=True)
class _Facts:
    """What a partition says of itself."""

    ballots: int
    weight: float
    wins: Floats
    costs: tuple[int, int]
    steps: Steps
    hash: str
    level: float


@dataclass(frozen=True)
class BallotsOnCluster:
    """`plackett.aggregation.evidence.Evidence` of ballots in partitions; `sources` are delayed `Ballots`."""

    names: list[Any]
    sources: Sequence[Any]
    stays: ClassVar[bool] = False

    @cached_property
    def _objectives(self) -> list[Any]:
        """The likelihood of each partition, kept where it is computed."""
        dask = import_dask()
        return list(dask.persist(*[dask.delayed(_objective_of)(source) for source in self.sources]))

    @cached_property
    def _facts(self) -> list[_Facts]:
        dask = import_dask()
        return list(dask.compute(*[dask.delayed(_facts_of)(part, self.names) for part in self._objectives]))

    @property
    def ballots(self) -> int:
        return sum(facts.ballots for facts in self._facts)

    @property
    def weight(self) -> float:
        return float(sum(facts.weight for facts in self._facts))

    @property
    def level(self) -> float:
        return sum(facts.level for facts in self._facts)

    @property
    def ranked(self) -> npt.NDArray[np.bool_]:
        return np.asarray(np.any([facts.steps.ranked for facts in self._facts], axis=0))

    def steps(self) -> Steps:
        return _union([facts.steps for facts in self._facts])

    def restrict(self, kept: npt.NDArray[np.bool_]) -> BallotsOnCluster:
        dask = import_dask()
        names = [name for name, keep in zip(self.names, kept, strict=True) if keep]
        return BallotsOnCluster(names, [dask.delayed(restrict)(source, kept) for source in self.sources])

    def hash(self) -> str:
        return fingerprint([facts.hash for facts in self._facts])

    def objective(self, X: Floats | None = None, ridge: float = 0.0, prior: float = 0.0) -> Objective:
        facts = self._facts
        parts = [part for part, own in zip(self._objectives, facts, strict=True) if own.ballots]
        totals = _Totals(
            len(self.names),
            self.ballots,
            self.weight,
            np.sum([part.wins for part in facts], axis=0),
            np.sum([part.costs for part in facts], axis=0),
        )
        if not prior:
            return SpreadObjective(totals, X, ridge, parts=parts)  # type: ignore[arg-type]
        nothing = Rankings(
            np.zeros(0, np.int32), np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(0), totals.count
        )
        ghost = Objective(with_ghost(nothing, prior))
        totals = _Totals(
            totals.count + 1,
            totals.ballots + len(ghost.rankings),
            totals.weight + float(ghost.rankings.weights.sum()),
            np.append(totals.wins, 0.0) + ghost.wins,
            totals.costs + np.array([ghost.cost(GRADIENT), ghost.cost(INFORMATION)]),
        )
        return SpreadObjective(totals, X, ridge, parts=parts, ghost=ghost)  # type: ignore[arg-type]


def read_partitions(ballots: Any, sample_weight: Any, unranked: str) -> BallotsOnCluster:
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
    return BallotsOnCluster(
        names, [read(part, names, weight, unranked) for part, weight in zip(parts, weights, strict=True)]
    )


# On the workers


def _names_of(part: Any) -> tuple[bool, list[Any]]:
    """Whether a partition brings names along, in an order of its own, and the names."""
    return isinstance(part, Ballots), list(as_ballots(part).names)


def _read(part: Any, names: list[Any], weights: Any, unranked: str) -> Ballots:
    return weighted(as_ballots(part, names), weights, unranked)


def _objective_of(ballots: Ballots) -> Objective:
    return Objective(prepare(ballots))


def _facts_of(part: Objective, names: list[Any]) -> _Facts:
    rankings = part.rankings
    return _Facts(
        len(rankings),
        float(rankings.weights.sum()),
        part.wins,
        (part.cost(GRADIENT), part.cost(INFORMATION)),
        _condensed(steps_of(rankings)),
        ballots_hash(rankings, names),
        rankings.level,
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


@dataclass(frozen=True)
class _Totals:
    """Of all partitions, in place of their `Rankings`: the number of items, of ballots, ..."""

    count: int
    ballots: int
    weight: float
    wins: Floats
    costs: IntArray


@dataclass
class SpreadObjective(Objective):
    """`Objective` of ballots in partitions, times a scale. `ghost` are those of a prior, in memory."""

    parts: Sequence[Any] = field(default_factory=list)
    ghost: Objective | None = None
    scale: float = 1.0

    @property
    def _totals(self) -> _Totals:
        return cast(_Totals, self.rankings)

    @property
    def wins(self) -> Floats:
        return self._totals.wins * self.scale

    def cost(self, level: int) -> int:
        return int(self._totals.costs[int(level == INFORMATION)])

    def as_counts(self) -> SpreadObjective:
        total, ballots = self._totals.weight + self.ridge, self._totals.ballots
        if total >= ballots:
            return self
        return replace(self, scale=ballots / total, ridge=self.ridge * ballots / total)

    def _of_rankings(self, scores: Floats, level: int) -> Derivatives:
        dask = import_dask()
        evaluate, add = dask.delayed(_evaluate), dask.delayed(_add)
        sums = [evaluate(part, scores, level) for part in self.parts]
        while len(sums) > 1:
            sums = [add(sums[i : i + _SUMMED_AT_ONCE]) for i in range(0, len(sums), _SUMMED_AT_ONCE)]
        (found,) = dask.compute(*sums)
        if self.ghost is not None:
            value, gradient, information = found
            information = np.pad(information, (0, 1)) if level >= INFORMATION else information
            widened = Derivatives(value, np.pad(gradient, (0, 1)), information)
            found = _add([widened, self.ghost.evaluate(scores, level)])
        return Derivatives(*(self.scale * part for part in found))


def _evaluate(part: Objective, scores: Floats, level: int) -> Derivatives:
    return part.evaluate(scores[: part.size], level)


def _add(parts: Sequence[Derivatives]) -> Derivatives:
    values, gradients, informations = zip(*parts, strict=True)
    return Derivatives(sum(values), np.sum(gradients, axis=0), np.sum(informations, axis=0))
