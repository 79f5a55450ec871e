"""Whether a block is a tree of items and cuts (see `tree_kernels`), and its links."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from plackett.likelihood.partial_orders.tree_kernels import ABOVE, BELOW
from plackett.lists import IntArray

if TYPE_CHECKING:
    from plackett.likelihood.partial_orders.order_structure import Blocks

Cut = tuple[frozenset[int], frozenset[int]]
"""Items above the cut, and items below it."""


def tree_links(blocks: Blocks, number: int) -> IntArray | None:
    """(3, links): the item, the cut and the side of each link of a block; None if they do not form a tree.

    In a tree two items share at most one cut. So two items that have two items right below them in common are above the
    same cut, and the items below it are those that all items above it have in common. Every other edge is a cut of its
    own.
    """
    lo, hi = int(blocks.starts[number]), int(blocks.starts[number + 1])
    below = [_entries(blocks.child_starts, blocks.children, i, lo) for i in range(lo, hi)]
    above = [_entries(blocks.parent_starts, blocks.parents, i, lo) for i in range(lo, hi)]

    @cache
    def share_a_cut(a: int, b: int) -> bool:
        return len(below[a] & below[b]) > 1

    cuts: set[Cut] = set()
    for v in range(hi - lo):
        left = set(above[v])
        while left:
            first = left.pop()
            together = frozenset({first, *(other for other in left if share_a_cut(*sorted((first, other))))})
            left -= together
            common = frozenset.intersection(*(below[u] for u in together)) if len(together) > 1 else frozenset({v})
            cuts.add((together, common))
    edges = sum(len(items) for items in below)
    links = [
        (item, cut, side)
        for cut, sides in enumerate(sorted(cuts, key=lambda cut: (sorted(cut[0]), sorted(cut[1]))))
        for side, items in zip((ABOVE, BELOW), sides, strict=True)
        for item in sorted(items)
    ]
    covers_each_edge_once = sum(len(upper) * len(lower) for upper, lower in cuts) == edges
    # The block is connected, so that it is a tree if there is one link less than there are items and cuts.
    if covers_each_edge_once and len(links) == hi - lo + len(cuts) - 1:
        return np.array(links, np.int64).T.copy()
    return None


def _entries(starts: IntArray, others: IntArray, entry: int, lo: int) -> frozenset[int]:
    return frozenset((others[starts[entry] : starts[entry + 1]] - lo).tolist())
