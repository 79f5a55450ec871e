"""How many ordered pairs of items a graph implies, without storing its transitive closure."""

import numpy as np

from plackett.graph_kernels import WORDS, pairs_within
from plackett.lists import IntArray
from plackett.preferences.edges import NodeArray
from plackett.threads import run_over_ranges

_COST_PER_EDGE, _COST_PER_NODE = 8, 40


def pairs_inside_tiers(
    order: NodeArray, offsets: IntArray, starts: IntArray, successors: NodeArray, node_of_item: IntArray
) -> int:
    """Pairs of items of the same tier of the finest partition, one reachable from the other.

    A path between items of a tier stays inside it. The items of a tier are taken in blocks, one bit per item, and every
    node of the tier above the block collects the bits of its successors: edges x items of the tier / 64 steps, and
    memory for one block.

    Args:
        order, offsets: nodes in topological order, and where tiers begin in it.
        starts, successors: the edges between nodes.
        node_of_item: the node that stands for each item.
    """
    place = np.empty_like(order)
    place[order] = np.arange(len(order), dtype=np.int32)
    item_places = np.sort(place[node_of_item])
    tier_items = np.searchsorted(item_places, offsets)
    blocks = -(-np.diff(tier_items) // (64 * WORDS))
    first_block = np.repeat(np.cumsum(blocks) - blocks, blocks)
    block_items = np.repeat(tier_items[:-1], blocks) + (np.arange(len(first_block)) - first_block) * 64 * WORDS
    block_items = np.append(block_items, len(item_places))
    block_tops = np.repeat(offsets[:-1], blocks)
    sizes = np.bincount(item_places, minlength=len(order))

    edges_before = np.concatenate(([0], np.cumsum(np.diff(starts)[order])))
    block_ends = item_places[block_items[1:] - 1] + 1
    cost = _COST_PER_EDGE * (edges_before[block_ends] - edges_before[block_tops])
    cost += _COST_PER_NODE * (block_ends - block_tops)

    def call(first: int, last: int) -> int:
        return int(
            pairs_within(
                first, last, order, place, starts, successors, sizes, item_places, block_items, block_tops,
            )
        )  # fmt: skip

    return sum(run_over_ranges(call, np.concatenate(([0], np.cumsum(cost)))))
