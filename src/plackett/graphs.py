"""Directed graphs of preferences: sorting, cycles, and items that prefer each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from plackett.graph_kernels import adjacency, topological_order
from plackett.lists import IntArray

CYCLES = ("error", "merge")
"""Treatments of cycles: an error that shows one, or ties between their items."""

_LONGEST_SHOWN = 10


def sorted_graph(winners: Any, losers: Any, nodes: int) -> tuple[IntArray, Any, Any]:
    """Each node's successors, and the nodes in topological order, which lacks those behind cycles."""
    starts, successors, order = (
        np.empty(nodes + 1, np.int64),
        np.empty(len(winners), np.int32),
        np.empty(nodes, np.int32),
    )
    successors = successors[: adjacency(winners, losers, starts, successors)]
    return starts, successors, order[: topological_order(starts, successors, order)]


def strong_components(starts: IntArray, successors: Any) -> IntArray:
    """A number for each item, the same for items that reach each other, in the order of their first items."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    shape = len(starts) - 1, len(starts) - 1
    graph = csr_array((np.ones(len(successors)), successors, starts), shape=shape)
    _, first_item, component = np.unique(
        connected_components(graph, connection="strong")[1], return_index=True, return_inverse=True
    )
    return np.unique(first_item[component], return_inverse=True)[1]


_MERGE = 'cycles="merge" ties the items of a cycle'


def raise_cycle(winners: Any, losers: Any, order: Any, names: Sequence[Any], remedy: str = _MERGE) -> NoReturn:
    """Items that are in no topological order have a predecessor among themselves: walking up from one meets a cycle."""
    stuck = np.ones(len(names), bool)
    stuck[order] = False
    inside = stuck[winners] & stuck[losers]
    predecessor = dict(zip(losers[inside].tolist(), winners[inside].tolist(), strict=True))
    walk: dict[int, None] = {}
    item = int(np.argmax(stuck))
    while item not in walk:
        walk[item] = None
        item = predecessor[item]
    upward = list(walk)
    cycle = [str(names[i]) for i in [item, *reversed(upward[upward.index(item) :])]]
    if len(cycle) > _LONGEST_SHOWN:
        cycle[_LONGEST_SHOWN - 1 : -1] = [f"... ({len(cycle) - _LONGEST_SHOWN:,} more)"]
    raise ValueError(f"edges must not form a cycle, got {' > '.join(cycle)}; {remedy}")
