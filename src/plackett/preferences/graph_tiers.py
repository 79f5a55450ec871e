"""Tiers that a graph of preferences implies."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.arguments import as_numbers, check_kind
from plackett.data import Ballots
from plackett.graph_kernels import longest_chain, tier_offsets
from plackett.graphs import CYCLES, raise_cycle, sorted_graph, strong_components
from plackett.lists import IntArray, offsets_from_sizes
from plackett.preferences.closure import pairs_inside_tiers
from plackett.preferences.edges import read_edges

FloatArray = npt.NDArray[np.float64]

_MODES = ("partition", "chain")


@dataclass(frozen=True, eq=False, repr=False)
class GraphTiers:
    """Items in tiers, with every pair from different tiers implied by a graph, and the part of the graph they lose.

    labels      one per item: equal in a tier, higher is better, NaN for items left out
    names       the items, in the order of labels
    edges       distinct edges of the graph
    edges_lost  edges that the tiers do not express: inside a tier, or at an item left out
    pairs       pairs of items that the tiers order, all of them implied by the graph
    pairs_lost  implied pairs that the tiers do not order; None if they were not counted
    in_cycles   items that are tied because they prefer each other in a cycle
    """

    labels: FloatArray
    names: Sequence[Hashable]
    edges: int
    edges_lost: int
    pairs: int
    pairs_lost: int | None
    in_cycles: int

    @property
    def tiers(self) -> list[list[Hashable]]:
        """The items of each tier, best tier first."""
        order = np.argsort(-self.labels, kind="stable")[: np.count_nonzero(~np.isnan(self.labels))]
        begins = np.flatnonzero(np.diff(self.labels[order])) + 1
        return [[self.names[i] for i in tier.tolist()] for tier in np.split(order, begins)]

    @property
    def left_out(self) -> list[Hashable]:
        """The items that are in no tier."""
        return [self.names[i] for i in np.flatnonzero(np.isnan(self.labels)).tolist()]

    @property
    def edges_lost_share(self) -> float:
        """Share of the distinct edges; 0 for a graph without edges."""
        return self.edges_lost / max(self.edges, 1)

    @property
    def pairs_lost_share(self) -> float | None:
        """Share of the implied pairs; 0 for a graph that implies none, None if they were not counted."""
        return None if self.pairs_lost is None else self.pairs_lost / max(self.pairs + self.pairs_lost, 1)

    def __repr__(self) -> str:
        left_out = int(np.count_nonzero(np.isnan(self.labels)))
        parts = [
            f"{len(self.labels) - left_out:,} items in {int(np.nanmax(self.labels)) + 1:,} tiers",
            f"{left_out:,} left out" if left_out else "",
            f"{self.in_cycles:,} tied by cycles" if self.in_cycles else "",
            f"{self.edges_lost:,} of {self.edges:,} edges lost ({self.edges_lost_share:.1%})",
        ]
        if self.pairs_lost is not None:
            implied = self.pairs + self.pairs_lost
            parts.append(f"{self.pairs_lost:,} of {implied:,} pairs lost ({self.pairs_lost_share:.1%})")
        return f"GraphTiers({', '.join(filter(None, parts))})"


def tiers_from_graph(
    edges: Any,
    *,
    items: Iterable[Hashable] | None = None,
    n_items: int | None = None,
    mode: str = "partition",
    cycles: str = "error",
    count_pairs: bool = False,
) -> GraphTiers:
    """The tiers that a directed graph of pairwise preferences implies, in time linear in its items and edges.

    An edge (a, b) says that a is preferred to b; a graph implies that a is preferred to b if a path leads from a to b.

    `mode="partition"` is the finest ordered partition of all items whose every pair from different tiers is implied. It
    is unique: the sets that are entirely preferred to the rest are nested, and the tiers are the differences of
    successive sets. Items that cannot be separated in this way share a tier; an item without edges ties all of them.

    `mode="chain"` may leave items out to get the most tiers possible: as many as a longest path has items. No item left
    out could be added, but another chain of that length may hold more items.

    Args:
        edges: integers of shape (edges, 2), a tuple of two arrays (the preferred, the others), an iterable of pairs of
            names, or a square scipy sparse matrix whose entry (i, j) is not zero where i is preferred to j. Any order,
            repeated or not. Integers are names too, sorted; other names keep the order in which they appear.
        items: all names in the order of the result, if some are in no edge or the order matters.
        n_items: the same for integers: items are 0 to n_items - 1.
        mode: "partition" or "chain".
        cycles: "error" raises a ValueError that shows a cycle; "merge" ties items that are in a cycle with each other.
            An edge from an item to itself is a cycle.
        count_pairs: count `pairs_lost` exactly, in edges x items / 64 steps within each tier of the partition.

    >>> result = tiers_from_graph([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("c", "e"), ("b", "e"), ("e", "f")])
    >>> result
    GraphTiers(6 items in 3 tiers, 1 of 7 edges lost (14.3%))
    >>> result.tiers
    [['a'], ['b', 'c'], ['d', 'e', 'f']]
    >>> result.labels
    array([2., 1., 1., 0., 0., 0.])
    >>> tiers_from_graph([(1, 2), (1, 3), (2, 4), (3, 4), (3, 5), (2, 5), (5, 6)], mode="chain").tiers
    [[1], [2, 3], [5], [6]]
    """
    if mode not in _MODES:
        raise ValueError(f'mode must be "partition" or "chain", got {mode!r}')
    if cycles not in CYCLES:
        raise ValueError(f'cycles must be "error" or "merge", got {cycles!r}')
    winners, losers, names = read_edges(edges, items, n_items)
    starts, successors, order = sorted_graph(winners, losers, len(names))
    winners, losers = np.repeat(np.arange(len(names), dtype=np.int32), np.diff(starts)), successors
    node_of_item: IntArray = np.arange(len(names))
    if len(order) < len(names):
        if cycles == "error":
            raise_cycle(winners, losers, order, names)
        node_of_item = strong_components(starts, successors)
        sides = node_of_item[winners], node_of_item[losers]
        between = sides[0] != sides[1]
        winner_nodes, loser_nodes = (side[between].astype(np.int32) for side in sides)
        starts, successors, order = sorted_graph(winner_nodes, loser_nodes, int(node_of_item.max()) + 1)

    offsets = np.empty(len(order) + 1, np.int64)
    offsets = offsets[: tier_offsets(order, starts, successors, offsets) + 1]
    partition = np.empty(len(order), np.int64)
    partition[order] = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    tier = partition
    if mode == "chain":
        tier = np.empty(len(order), np.int64)
        longest_chain(order, starts, successors, tier)
    labels = np.where(tier < 0, np.nan, tier.max() - tier)[node_of_item]
    pairs = _pairs_between(tier[node_of_item])
    pairs_lost = None
    if count_pairs:
        inside = pairs_inside_tiers(order, offsets, starts, successors, node_of_item)
        pairs_lost = _pairs_between(partition[node_of_item]) + inside - pairs
    return GraphTiers(
        labels=labels,
        names=names,
        edges=len(losers),
        edges_lost=len(losers) - int(np.count_nonzero(labels[winners] > labels[losers])),
        pairs=pairs,
        pairs_lost=pairs_lost,
        in_cycles=int(np.count_nonzero(np.bincount(node_of_item)[node_of_item] > 1)),
    )


def ballots_from_tiers(results: GraphTiers | Iterable[GraphTiers], *, weights: Any = None) -> Ballots:
    """One ballot per result, over the items of all of them; items left out are not on it.

    Args:
        results: one result, or one per voter. Equal names are the same item.
        weights: how often each ballot counts; once by default.

    >>> voters = [tiers_from_graph([("a", "b"), ("a", "c")]), tiers_from_graph([("c", "a")])]
    >>> ballots = ballots_from_tiers(voters)
    >>> ballots
    Ballots(2 ballots cast 2 times, 3 items)
    >>> ballots.items, ballots.labels, ballots.names
    (array([0, 1, 2, 2, 0]), array([1., 0., 0., 1., 0.]), ['a', 'b', 'c'])
    """
    check_kind("results", results, GraphTiers, Iterable)
    voters = [results] if isinstance(results, GraphTiers) else list(results)
    for voter in voters:
        check_kind("results", voter, GraphTiers)
    number: dict[Hashable, int] = {}
    items = [np.array([number.setdefault(name, len(number)) for name in voter.names], np.int64) for voter in voters]
    kept = [~np.isnan(voter.labels) for voter in voters]
    names = [str(name) for name in number]
    if len(set(names)) < len(names):
        raise ValueError("results must have names that differ as text, got names of different types with the same text")
    times = np.ones(len(voters)) if weights is None else as_numbers("weights", weights)
    if times.shape != (len(voters),):
        raise ValueError(f"weights must hold one number for each of the {len(voters)} results, got shape {times.shape}")
    return Ballots(
        items=np.concatenate([array[mask] for array, mask in zip(items, kept, strict=True)] or [np.empty(0, np.int64)]),
        labels=np.concatenate([voter.labels[mask] for voter, mask in zip(voters, kept, strict=True)] or [np.empty(0)]),
        offsets=offsets_from_sizes(np.array([np.count_nonzero(mask) for mask in kept], np.int64)),
        weights=times,
        names=names,
    )


def _pairs_between(tier: IntArray) -> int:
    """Pairs of items of different tiers, those of tier -1 left out."""
    sizes = np.bincount(tier[tier >= 0])
    return int(sizes.sum() ** 2 - (sizes**2).sum()) // 2
