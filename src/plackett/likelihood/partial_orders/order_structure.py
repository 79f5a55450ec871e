"""Graphs of lists taken apart into blocks, once for all evaluations with the same graphs.

The probability of a graph is the product of the probabilities of its blocks (see `structure_kernels.decompose`). A
block with items below all of it has one more item, whose worth is the sum of theirs. Scores are therefore extended: one
for each item of all lists, then one for each such rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.graphs import raise_cycle, sorted_graph, strong_components
from plackett.likelihood.core import Tiers
from plackett.likelihood.partial_orders.down_set_kernels import COUNT, down_set_blocks
from plackett.likelihood.partial_orders.series_steps import series_steps
from plackett.likelihood.partial_orders.structure_kernels import (
    COMPLEX,
    FOREST,
    PARENT,
    PLACE,
    TIERS,
    WORK_ROWS,
    decompose,
    mark_covers,
)
from plackett.likelihood.partial_orders.tree_links import tree_links
from plackett.lists import IntArray, offsets_from_sizes
from plackett.threads import run_over_ranges

NONE, FORESTS, TIERED, TREES, IN_SERIES, DOWN_SETS, SAMPLED = range(7)
METHOD_NAMES = np.array(["none", "forest", "tiers", "trees", "series-parallel", "down-sets", "sampling"])
"""How a list was evaluated: the last of these that one of its blocks needed."""

METHODS = ("auto", "exact", "trees", "series-parallel", "down-sets", "sampling")

MOST_STATES = 1_000_000
"""Down-sets up to which a block is evaluated exactly."""

_FEW_STATES = 4096  # so few cost less than nested integrals
_MOST_REDUCED = 1 << 14  # items of a block whose redundant edges are removed, which takes 32 MiB
_MOST_NESTED_ITEMS = 512  # whose functions take about 100 MiB
_COST_PER_ITEM, _COST_PER_EDGE = 30, 20
_COST_PER_STATE = 400


@dataclass(frozen=True)
class Forests:
    """Blocks of places begin..end of `arranged`; parents by place, -1 for roots."""

    begin: IntArray
    end: IntArray
    lists: IntArray
    parents: IntArray


@dataclass(frozen=True)
class TierBlocks:
    """Tiers over `items`, which are numbers of extended scores."""

    tiers: Tiers
    items: IntArray
    lists: IntArray


@dataclass(frozen=True)
class Blocks:
    """Complex blocks: graphs without redundant edges over consecutive entries, in topological order.

    starts         block b has the entries starts[b] to starts[b+1] - 1
    items          the number of the extended score of each entry
    lists          the list of each block
    child_starts, children, parent_starts, parents
                   the entries right below and right above each entry
    """

    starts: IntArray
    items: IntArray
    lists: IntArray
    child_starts: IntArray
    children: IntArray
    parent_starts: IntArray
    parents: IntArray

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def entries(self) -> int:
        return int(self.starts[-1])

    @property
    def cost(self) -> IntArray:
        """A running total over blocks of items and edges."""
        return self.starts * _COST_PER_ITEM + self.child_starts[self.starts] * _COST_PER_EDGE

    def select(self, chosen: IntArray) -> Blocks:
        """The blocks with these numbers."""
        sizes = np.diff(self.starts)[chosen]
        entries = ranges(self.starts[:-1][chosen], sizes)
        number = np.full(self.entries, -1, np.int64)
        number[entries] = np.arange(len(entries))
        sides = []
        for starts, others in ((self.child_starts, self.children), (self.parent_starts, self.parents)):
            counts = np.diff(starts)[entries]
            sides += [offsets_from_sizes(counts), number[others[ranges(starts[:-1][entries], counts)]]]
        return Blocks(offsets_from_sizes(sizes), self.items[entries], self.lists[chosen], *sides)


@dataclass(frozen=True)
class NestedBlocks:
    """Blocks that are integrated along their structure, which (3, parts) integers describe: those of block b begin at
    part_starts[b]. They are the links of trees, or the steps of series-parallel orders.
    """

    blocks: Blocks
    part_starts: IntArray
    parts: IntArray

    @classmethod
    def make(cls, blocks: Blocks, parts: list[IntArray]) -> NestedBlocks:
        counts = np.array([part.shape[1] for part in parts], np.int64)
        return cls(blocks, offsets_from_sizes(counts), np.concatenate([np.empty((3, 0), np.int64), *parts], axis=1))

    def select(self, chosen: IntArray, blocks: Blocks) -> NestedBlocks:
        """The blocks with these numbers, which are given."""
        counts = np.diff(self.part_starts)[chosen]
        return NestedBlocks(
            blocks, offsets_from_sizes(counts), self.parts[:, ranges(self.part_starts[:-1][chosen], counts)]
        )


@dataclass(frozen=True)
class PartialOrders:
    """Everything about graphs that does not depend on scores.

    offsets      the lists
    arranged     items, list by list, so that blocks and rests are consecutive
    rest_begin, rest_end
                 the places of each rest in `arranged`
    forests, tiers, trees, in_series, down_sets, sampled
                 the blocks by method
    states       the number of down-sets of each block of `down_sets`
    methods      of each list, numbers of METHOD_NAMES
    """

    offsets: IntArray
    arranged: IntArray
    rest_begin: IntArray
    rest_end: IntArray
    forests: Forests
    tiers: TierBlocks
    trees: NestedBlocks
    in_series: NestedBlocks
    down_sets: Blocks
    states: IntArray
    sampled: Blocks
    methods: npt.NDArray[np.int64]

    @property
    def items(self) -> int:
        return int(self.offsets[-1])

    @property
    def lists(self) -> int:
        return len(self.offsets) - 1

    def select(self, lists: IntArray) -> PartialOrders:
        """The graphs of some lists, each once, in the given order."""
        sizes = np.diff(self.offsets)[lists]
        old = ranges(self.offsets[:-1][lists], sizes)  # both items and places: each list has its own range of either
        number = np.full(self.items, -1, np.int64)
        number[old] = np.arange(len(old))
        new_list = np.full(self.lists, -1, np.int64)
        new_list[lists] = np.arange(len(lists))

        def chosen(of_list: IntArray) -> IntArray:
            found = np.flatnonzero(new_list[of_list] >= 0)
            return found[np.argsort(new_list[of_list[found]], kind="stable")]

        rests = chosen(np.searchsorted(self.offsets, self.rest_begin, side="right") - 1)
        extended = np.full(self.items + len(self.rest_begin), -1, np.int64)
        extended[: self.items] = number
        extended[self.items + rests] = len(old) + np.arange(len(rests))
        moved = number[self.rest_begin[rests]] - self.rest_begin[rests]

        def blocks(of: Blocks) -> tuple[IntArray, Blocks]:
            which = chosen(of.lists)
            found = of.select(which)
            return which, replace(found, items=extended[found.items], lists=new_list[found.lists])

        down_sets, down_set_blocks = blocks(self.down_sets)
        forests, parents = chosen(self.forests.lists), self.forests.parents[old]
        shift = number[self.forests.begin[forests]] - self.forests.begin[forests]
        return PartialOrders(
            offsets=offsets_from_sizes(sizes),
            arranged=number[self.arranged[old]],
            rest_begin=self.rest_begin[rests] + moved,
            rest_end=self.rest_end[rests] + moved,
            forests=Forests(
                self.forests.begin[forests] + shift,
                self.forests.end[forests] + shift,
                new_list[self.forests.lists[forests]],
                np.where(parents >= 0, number[parents], -1),
            ),
            tiers=self._select_tiers(chosen(self.tiers.lists), extended, new_list),
            trees=self.trees.select(*blocks(self.trees.blocks)),
            in_series=self.in_series.select(*blocks(self.in_series.blocks)),
            down_sets=down_set_blocks,
            states=self.states[down_sets],
            sampled=blocks(self.sampled)[1],
            methods=self.methods[lists],
        )

    def _select_tiers(self, chosen: IntArray, extended: IntArray, new_list: IntArray) -> TierBlocks:
        tiers = self.tiers.tiers
        sizes, counts = np.diff(tiers.offsets)[chosen], np.diff(tiers.list_tiers)[chosen]
        items = extended[self.tiers.items[ranges(tiers.offsets[:-1][chosen], sizes)]]
        starts = offsets_from_sizes(tiers.sizes[ranges(tiers.list_tiers[:-1][chosen], counts)])
        made = Tiers(np.arange(len(items)), starts, offsets_from_sizes(counts), offsets_from_sizes(sizes))
        return TierBlocks(made, items, new_list[self.tiers.lists[chosen]])


def ranges(begin: IntArray, sizes: IntArray) -> IntArray:
    """begin[0], begin[0] + 1, ... (sizes[0] numbers), begin[1], ..."""
    starts = offsets_from_sizes(sizes)
    return np.repeat(begin - starts[:-1], sizes) + np.arange(starts[-1])


def merge_cycles(edges: IntArray, items: int) -> IntArray:
    """Edges in which the items of a cycle are tied: each is above and below what any of them is above and below."""
    winners, losers = (side.astype(np.int32) for side in edges.T)
    starts, successors, order = sorted_graph(winners, losers, items)
    if len(order) == items:
        return edges
    node = strong_components(starts, successors)
    members = np.argsort(node, kind="stable")
    sizes = np.bincount(node)
    first = offsets_from_sizes(sizes)
    between = node[edges[:, 0]] != node[edges[:, 1]]
    upper, lower = np.unique(node[edges[between]].reshape(-1, 2), axis=0).T
    pairs = sizes[upper] * sizes[lower]
    position = ranges(np.zeros_like(pairs), pairs)
    width = np.repeat(sizes[lower], pairs)
    return np.stack(
        [
            members[np.repeat(first[upper], pairs) + position // width],
            members[np.repeat(first[lower], pairs) + position % width],
        ],
        1,
    )


def prepare_orders(
    edges: IntArray, offsets: IntArray, method: str = "auto", most_states: int = MOST_STATES
) -> PartialOrders:
    """Take the graphs of lists apart. `edges` are checked: (better, worse) numbers of items of the same list.

    Raises ValueError if there is a cycle, or if the method cannot evaluate a graph.
    """
    items = int(offsets[-1])
    winners, losers = (np.ascontiguousarray(side, np.int32) for side in edges.T)
    starts, successors, order = sorted_graph(winners, losers, items)
    if len(order) < items:
        raise_cycle(winners, losers, order, range(items))
    sorted_items = order.astype(np.int64)
    if len(offsets) > 2:
        list_of = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        sorted_items = sorted_items[np.argsort(list_of[sorted_items], kind="stable")]
    starts, successors = _renumbered(starts, successors, sorted_items)
    arranged = np.arange(items)
    work = np.empty((WORK_ROWS, items), np.int64)
    work[PLACE] = arranged
    is_start = np.zeros(items, np.bool_)
    kind, begin, end, rest_end = np.empty((4, items), np.int64)
    counts = np.empty(len(offsets) - 1, np.int64)
    split = int(method in ("auto", "exact"))
    run_over_ranges(
        lambda first, last: decompose(
            first, last, offsets, starts, successors, split, arranged, work, is_start, kind, begin, end, rest_end,
            counts,
        ),
        offsets * _COST_PER_ITEM + starts[offsets] * _COST_PER_EDGE,
    )  # fmt: skip
    found = ranges(offsets[:-1], counts)
    kind, begin, end, rest_end = kind[found], begin[found], end[found], rest_end[found]
    lists = np.repeat(np.arange(len(counts)), counts)
    has_rest = rest_end > end
    rest = np.where(has_rest, items + np.cumsum(has_rest) - 1, -1)  # numbers of extended scores

    forests = kind == FOREST
    tiered = kind == TIERS
    complex_ones = np.flatnonzero(kind == COMPLEX)
    blocks = _complex_blocks(
        begin[complex_ones], end[complex_ones], rest[complex_ones], lists[complex_ones], arranged, work[PLACE], starts,
        successors,
    )  # fmt: skip
    parents, in_forests = np.full(items, -1, np.int64), ranges(begin[forests], (end - begin)[forests])
    parents[in_forests] = work[PARENT, in_forests]
    tiers = _tier_blocks(begin[tiered], end[tiered], rest[tiered], lists[tiered], arranged, is_start)
    extended_items = np.concatenate([sorted_items, np.arange(items, items + np.count_nonzero(has_rest))])
    tiers = replace(tiers, items=extended_items[tiers.items])
    blocks = replace(blocks, items=extended_items[blocks.items])
    chosen, states, nested = _choose(blocks, method, most_states)
    methods = np.zeros(len(counts), np.int64)
    for which, number in ((forests, FORESTS), (tiered, TIERED)):
        np.maximum.at(methods, lists[which], number)
    np.maximum.at(methods, blocks.lists, chosen)
    return PartialOrders(
        offsets=offsets,
        arranged=sorted_items[arranged],
        rest_begin=end[has_rest],
        rest_end=rest_end[has_rest],
        forests=Forests(begin[forests], end[forests], lists[forests], parents),
        tiers=tiers,
        trees=_nested(blocks, chosen == TREES, nested),
        in_series=_nested(blocks, chosen == IN_SERIES, nested),
        down_sets=blocks.select(np.flatnonzero(chosen == DOWN_SETS)),
        states=states[chosen == DOWN_SETS],
        sampled=blocks.select(np.flatnonzero(chosen == SAMPLED)),
        methods=methods,
    )


def _renumbered(starts: IntArray, successors: Any, sorted_items: IntArray) -> tuple[IntArray, Any]:
    """The graph with items numbered by their places in topological order: neighbours are then close in memory."""
    place = np.empty(len(sorted_items), np.int32)
    place[sorted_items] = np.arange(len(sorted_items), dtype=np.int32)
    counts = np.diff(starts)[sorted_items]
    return offsets_from_sizes(counts), place[successors[ranges(starts[sorted_items], counts)]]


def _with_rests(begin: IntArray, end: IntArray, rest: IntArray, arranged: IntArray) -> tuple[IntArray, IntArray]:
    """Where blocks start, and the number of the extended score of each entry: the block's items, then its rest."""
    sizes = end - begin
    starts = offsets_from_sizes(sizes + (rest >= 0))
    items = np.empty(starts[-1], np.int64)
    items[ranges(starts[:-1], sizes)] = arranged[ranges(begin, sizes)]
    items[starts[1:][rest >= 0] - 1] = rest[rest >= 0]
    return starts, items


def _tier_blocks(
    begin: IntArray, end: IntArray, rest: IntArray, lists: IntArray, arranged: IntArray, is_start: npt.NDArray[np.bool_]
) -> TierBlocks:
    offsets, items = _with_rests(begin, end, rest, arranged)
    begins = np.ones(len(items), np.bool_)  # a rest is a tier of its own
    begins[ranges(offsets[:-1], end - begin)] = is_start[ranges(begin, end - begin)]
    tier_starts = np.append(np.flatnonzero(begins), len(items))
    return TierBlocks(
        Tiers(np.arange(len(items)), tier_starts, np.searchsorted(tier_starts, offsets), offsets), items, lists
    )


def _complex_blocks(
    begin: IntArray,
    end: IntArray,
    rest: IntArray,
    lists: IntArray,
    arranged: IntArray,
    place: IntArray,
    starts: IntArray,
    successors: Any,
) -> Blocks:
    block_starts, items = _with_rests(begin, end, rest, arranged)
    sizes = end - begin
    entries = ranges(block_starts[:-1], sizes)
    own_items = items[entries]
    entry_of = np.full(len(place), -1, np.int64)
    entry_of[own_items] = entries
    counts = np.diff(starts)[own_items]
    edges = ranges(starts[own_items], counts)
    upper, lower = np.repeat(entries, counts), entry_of[successors[edges]]
    block_of = np.repeat(np.arange(len(sizes)), np.diff(block_starts))
    inside = (lower >= 0) & (block_of[upper] == block_of[np.maximum(lower, 0)])
    is_cover = np.ones(len(successors), np.bool_)
    small = np.flatnonzero(sizes <= _MOST_REDUCED)
    run_over_ranges(
        lambda first, last: mark_covers(
            first, last, begin[small], end[small], starts, successors, arranged, place, is_cover
        ),
        offsets_from_sizes(sizes[small] ** 2),
    )
    kept = inside & is_cover[edges]
    upper, lower = upper[kept], lower[kept]
    is_sink = np.ones(len(items), np.bool_)
    is_sink[upper] = False
    is_sink[block_starts[1:][rest >= 0] - 1] = False
    sinks = np.flatnonzero(is_sink & (rest >= 0)[block_of])
    upper = np.concatenate([upper, sinks])
    lower = np.concatenate([lower, block_starts[1:][block_of[sinks]] - 1])
    child_starts, children = _sorted_pairs(upper, lower, len(items))
    parent_starts, parents = _sorted_pairs(lower, upper, len(items))
    return Blocks(block_starts, items, lists, child_starts, children, parent_starts, parents)


def _sorted_pairs(key: IntArray, other: IntArray, entries: int) -> tuple[IntArray, IntArray]:
    return offsets_from_sizes(np.bincount(key, minlength=entries)), other[np.lexsort((other, key))]


def count_down_sets(blocks: Blocks, limit: int) -> IntArray:
    """The number of down-sets of each block, -1 if there are more than `limit`."""
    states = np.empty(len(blocks), np.int64)
    limits = np.full(len(blocks), limit)
    scores, value, nothing = np.zeros(blocks.entries), np.empty(len(blocks)), np.empty(0)
    run_over_ranges(
        lambda first, last: down_set_blocks(
            first, last, blocks.starts, blocks.parent_starts, blocks.parents, scores, limits, COUNT, states, value,
            nothing, nothing,
        ),
        blocks.cost * 100,
    )  # fmt: skip
    return states


def _nested(blocks: Blocks, which: npt.NDArray[np.bool_], parts: dict[int, IntArray]) -> NestedBlocks:
    numbers = np.flatnonzero(which)
    return NestedBlocks.make(blocks.select(numbers), [parts[b] for b in numbers.tolist()])


def _choose(blocks: Blocks, method: str, most_states: int) -> tuple[IntArray, IntArray, dict[int, IntArray]]:
    """The method of each block, its down-sets, and the structure of those that are integrated along it."""
    chosen = np.full(len(blocks), SAMPLED, np.int64)
    states = np.full(len(blocks), -1, np.int64)
    nested: dict[int, IntArray] = {}
    if method == "sampling" or len(blocks) == 0:
        return chosen, states, nested
    if method in ("auto", "exact", "down-sets"):
        states = count_down_sets(blocks, min(_FEW_STATES, most_states))
    finders = [(TREES, tree_links), (IN_SERIES, series_steps)]
    for number, find in finders:
        if method in ("auto", "exact", METHOD_NAMES[number]):
            for b in np.flatnonzero((states < 0) & (chosen == SAMPLED)).tolist():
                is_small = blocks.starts[b + 1] - blocks.starts[b] <= _MOST_NESTED_ITEMS
                found = find(blocks, b) if is_small else None
                if found is not None:
                    nested[b], chosen[b] = found, number
    if method in ("auto", "exact", "down-sets"):
        left = np.flatnonzero((states < 0) & (chosen == SAMPLED))
        states[left] = count_down_sets(blocks.select(left), most_states)
        chosen[states >= 0] = DOWN_SETS
    impossible = np.flatnonzero(chosen == SAMPLED)
    if method != "auto" and len(impossible):
        _raise_impossible(method, int(blocks.lists[impossible[0]]))
    return chosen, states, nested


def _raise_impossible(method: str, number: int) -> None:
    reason = {
        "exact": f"which is neither a tree nor series-parallel and has more than {MOST_STATES:,} down-sets",
        "trees": "whose items and cuts form no tree",
        "series-parallel": f"which is not series-parallel, or has a part of more than {_MOST_NESTED_ITEMS} items",
        "down-sets": f"which has more than {MOST_STATES:,} down-sets",
    }[method]
    raise ValueError(f'method="{method}" cannot evaluate the graph of list {number}, {reason}: use method="auto"')
