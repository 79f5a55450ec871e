"""Compiled steps on directed graphs, all but the last in time and memory linear in nodes + edges.

Results are written to the arrays passed in.

A graph is kept as `starts` and `successors`: the successors of node u are successors[starts[u]:starts[u+1]], each once.
"""

import numpy as np

from plackett.compilation import inner, kernel

WORDS = 8  # 64 targets each, followed together in `pairs_within`: a row is one cache line


@kernel
def adjacency(winners, losers, starts, successors):
    """Fill `starts` and `successors` of a graph from its edges in any order; returns how many differ.

    `successors` has room for all edges; repeated ones are dropped.
    """
    nodes = starts.size - 1
    starts[:] = 0
    for e in range(winners.size):
        starts[winners[e] + 1] += 1
    for u in range(nodes):
        starts[u + 1] += starts[u]
    free = starts[:-1].copy()
    for e in range(winners.size):
        u = winners[e]
        successors[free[u]] = losers[e]
        free[u] += 1
    last_winner = np.full(nodes, -1, np.int64)
    kept = 0
    for u in range(nodes):
        begin, end = starts[u], starts[u + 1]
        starts[u] = kept
        for k in range(begin, end):
            v = successors[k]
            if last_winner[v] != u:
                last_winner[v] = u
                successors[kept] = v
                kept += 1
    starts[nodes] = kept
    return kept


@kernel
def topological_order(starts, successors, order):
    """Fill `order` with nodes such that edges lead forward, in order of depth (the longest path to a node).

    Returns their number: nodes behind cycles are missing.

    The queue is first in, first out: a node enters behind the deepest of its predecessors, so depth never falls.
    """
    nodes = starts.size - 1
    waiting_for = np.zeros(nodes, np.int64)
    for k in range(successors.size):
        waiting_for[successors[k]] += 1
    end = 0
    for u in range(nodes):
        if waiting_for[u] == 0:
            order[end] = u
            end += 1
    done = 0
    while done < end:
        u = order[done]
        done += 1
        for k in range(starts[u], starts[u + 1]):
            v = successors[k]
            waiting_for[v] -= 1
            if waiting_for[v] == 0:
                order[end] = v
                end += 1
    return end


@kernel
def tier_offsets(order, starts, successors, offsets):
    """Where the tiers of the finest ordered partition begin in a topological order, and its length; how many tiers.

    A cut into U, the first p nodes, and D, the others, is valid if every node of U reaches every node of D.

    All valid cuts are among these: if every node of U reaches every node of D, then U comes first in every topological
    order. And it is enough to look at edges: the cut is valid if and only if every sink u of the graph on U has an edge
    to every source d of the graph on D. For a path from u to d leaves U with its first edge, as u has no successor in
    U, and no edge leads back; it enters d straight from U, as d has no predecessor in D; so it is the edge (u, d). On
    the other hand every node of U reaches a sink of U or is one, and every node of D is reached from a source of D or
    is one.

    u is a sink of U for p from its place + 1 to the place of its first successor, d is a source of D for p from the
    place of its last predecessor + 1 to its own. An edge (u, d) joins a sink and a source for p from the place of d's
    last predecessor + 1 to that of u's first successor. So three running sums over p count sinks, sources and such
    edges, and the cut is valid where edges = sinks x sources.
    """
    nodes = order.size
    place = np.empty(nodes, np.int64)
    for p in range(nodes):
        place[order[p]] = p
    first_successor = np.full(nodes, nodes, np.int64)
    last_predecessor = np.full(nodes, -1, np.int64)
    for u in range(nodes):
        for k in range(starts[u], starts[u + 1]):
            v = successors[k]
            first_successor[u] = min(first_successor[u], place[v])
            last_predecessor[v] = max(last_predecessor[v], place[u])
    sinks, sources, edges = np.zeros(nodes + 2, np.int64), np.zeros(nodes + 2, np.int64), np.zeros(nodes + 2, np.int64)
    for u in range(nodes):
        sinks[place[u] + 1] += 1
        sinks[first_successor[u] + 1] -= 1
        sources[last_predecessor[u] + 1] += 1
        sources[place[u] + 1] -= 1
        for k in range(starts[u], starts[u + 1]):
            begin = last_predecessor[successors[k]] + 1
            if begin <= first_successor[u]:
                edges[begin] += 1
                edges[first_successor[u] + 1] -= 1
    offsets[0] = 0
    tiers = 1
    for p in range(1, nodes):
        sinks[p] += sinks[p - 1]
        sources[p] += sources[p - 1]
        edges[p] += edges[p - 1]
        if edges[p] == sinks[p] * sources[p]:
            offsets[tiers] = p
            tiers += 1
    offsets[tiers] = nodes
    return tiers


@kernel
def longest_chain(order, starts, successors, tier):
    """Fill in the tier of each node in a longest chain of tiers, 0 the best; -1 for nodes left out. `order` by depth.

    Let a longest path have h nodes. One node from each tier of a chain makes a path, so no chain has more than h tiers.
    In a chain of h tiers a node of tier i has a path of i nodes down to it and one of h - i + 1 down from it: it lies
    on a longest path, at depth i. A path between nodes whose depths differ by one is an edge. So a chain of h tiers is:
    at each depth some of the nodes that lie on longest paths, with all edges from one depth to the next.

    One longest path is chosen, the one with most edges between its nodes and others on longest paths one step deeper or
    shallower. Downward from its head, a tier takes all nodes that are below the whole tier above and above the path's
    next node. A node left out is not below all of the tier above, or not above that node of the tier below: none can be
    added.
    """
    nodes = order.size
    depth, height = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
    for u in order:
        for k in range(starts[u], starts[u + 1]):
            v = successors[k]
            depth[v] = max(depth[v], depth[u] + 1)
    for u in order[::-1]:
        for k in range(starts[u], starts[u + 1]):
            height[u] = max(height[u], height[successors[k]] + 1)
    deepest = depth[order[nodes - 1]]
    tier[:] = np.where(depth + height == deepest, depth, -1)

    worth = np.zeros(nodes, np.int64)  # of a node: its edges to neighbouring tiers; then, of the best path from it down
    for u in order:
        for k in range(starts[u], starts[u + 1]):
            v = successors[k]
            if tier[u] >= 0 and tier[v] == tier[u] + 1:
                worth[u] += 1
                worth[v] += 1
    following = np.full(nodes, -1, np.int64)
    head = -1
    for u in order[::-1]:
        if tier[u] < 0:
            continue
        for k in range(starts[u], starts[u + 1]):
            v = successors[k]
            if tier[v] == tier[u] + 1 and _is_better(v, following[u], worth):
                following[u] = v
        if following[u] >= 0:
            worth[u] += worth[following[u]]
        if tier[u] == 0 and _is_better(u, head, worth):
            head = u

    path = np.full(deepest + 2, -1, np.int64)  # ends with -1
    path[0] = head
    for level in range(deepest):
        path[level + 1] = following[path[level]]
    sizes, better = np.zeros(deepest + 1, np.int64), np.zeros(nodes, np.int64)
    for u in order:
        level = tier[u]
        if level < 0:
            continue
        fits = level == deepest
        for k in range(starts[u], starts[u + 1]):
            fits |= successors[k] == path[level + 1]
        if not fits or (level > 0 and better[u] < sizes[level - 1]):
            tier[u] = -1
            continue
        sizes[level] += 1
        for k in range(starts[u], starts[u + 1]):
            if tier[successors[k]] == level + 1:
                better[successors[k]] += 1


@inner
def _is_better(u, other, worth):
    """Whether u has more worth; ties go to the lower number, so that the order of edges does not matter."""
    return other < 0 or worth[u] > worth[other] or (worth[u] == worth[other] and u < other)


@inner
def _bits(row):
    """How many bits of a row are set."""
    total = 0
    for word in row:
        x = word - ((word >> np.uint64(1)) & np.uint64(0x5555555555555555))
        x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
        x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
        total += np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))
    return total


@kernel
def pairs_within(first, last, order, place, starts, successors, sizes, item_places, block_items, block_tops):
    """The number of pairs of an item and one that it reaches, the second in blocks first..last of items.

    Node order[p] stands for sizes[p] items; item_places are the places of all items, ascending. Block b holds the items
    block_items[b] to block_items[b + 1], at most 64 WORDS, and is followed up to place block_tops[b].
    """
    most = 0
    for b in range(first, last):
        most = max(most, item_places[block_items[b + 1] - 1] - block_tops[b] + 1)
    rows = np.empty((most, WORDS), np.uint64)
    total = 0
    for b in range(first, last):
        top, bottom = block_tops[b], item_places[block_items[b + 1] - 1]
        rows[: bottom - top + 1] = 0
        for bit in range(block_items[b + 1] - block_items[b]):
            rows[item_places[block_items[b] + bit] - top, bit >> 6] |= np.uint64(1) << np.uint64(bit & 63)
        for p in range(bottom, top - 1, -1):
            row = rows[p - top]
            own = _bits(row)
            for k in range(starts[order[p]], starts[order[p] + 1]):
                q = place[successors[k]]
                if q <= bottom:
                    for w in range(WORDS):
                        row[w] |= rows[q - top, w]
            total += sizes[p] * (_bits(row) - own)
    return total
