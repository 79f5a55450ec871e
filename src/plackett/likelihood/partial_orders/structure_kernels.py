"""Compiled steps that take partial orders apart, in time linear in items + edges but for the transitive reduction.

The successors of item u are successors[starts[u]] to successors[starts[u + 1] - 1]. `arranged` holds the items of each
list in topological order, and PLACE says where each item is in it.
"""

import math

import numpy as np

from plackett.compilation import inner, kernel

FOREST, TIERS, COMPLEX = 0, 1, 2
"""Kinds of blocks."""

# Rows of `work`, one entry per item: of the item itself, or of a place in `arranged`.
PLACE, PARENT, ROOT, SIZE, ENTRY, FIRST, LAST, SINKS, SOURCES, EDGES, STACK_BEGIN, STACK_END = range(12)
WORK_ROWS = 12


@inner
def _root(work, item):
    """The representative of the item's component; halves the path to it."""
    while work[ROOT, item] != item:
        work[ROOT, item] = work[ROOT, work[ROOT, item]]
        item = work[ROOT, item]
    return item


@inner
def _split_components(lo, hi, starts, successors, arranged, work):
    """Arrange the places lo..hi by weak component, each in topological order; FIRST marks where they begin."""
    for p in range(lo, hi):
        work[ROOT, arranged[p]] = arranged[p]
    for p in range(lo, hi):
        u = arranged[p]
        for k in range(starts[u], starts[u + 1]):
            v = successors[k]
            if lo <= work[PLACE, v] < hi:
                work[ROOT, _root(work, v)] = _root(work, u)
    components = 0
    for p in range(lo, hi):
        work[SIZE, _root(work, arranged[p])] = 0
    for p in range(lo, hi):
        work[SIZE, _root(work, arranged[p])] += 1
    total = lo
    for p in range(lo, hi):  # where each component begins, in the order of their first items
        r = _root(work, arranged[p])
        if work[SIZE, r] > 0:
            work[FIRST, lo + components] = total
            components += 1
            total += work[SIZE, r]
            work[ENTRY, r] = work[FIRST, lo + components - 1]
            work[SIZE, r] = 0
    if components == 1:
        return 1
    for p in range(lo, hi):
        r = _root(work, arranged[p])
        work[LAST, work[ENTRY, r]] = arranged[p]
        work[ENTRY, r] += 1
    for p in range(lo, hi):
        arranged[p] = work[LAST, p]
        work[PLACE, arranged[p]] = p
    return components


@inner
def _is_forest(lo, hi, starts, successors, arranged, work):
    """Whether every item has at most one item right above it; fills PARENT by place, -1 for roots.

    In a forest the items above v are a chain, so the one right above it comes last of them in every topological order.
    Take that one as the parent; the order is a forest if and only if all edges lead from an ancestor to a descendant,
    which intervals of a depth-first numbering show.
    """
    for p in range(lo, hi):
        work[PARENT, p] = -1
        work[SIZE, p] = 1
    for p in range(lo, hi):
        u = arranged[p]
        for k in range(starts[u], starts[u + 1]):
            q = work[PLACE, successors[k]]
            if lo <= q < hi:
                work[PARENT, q] = p
    for p in range(hi - 1, lo - 1, -1):
        if work[PARENT, p] >= 0:
            work[SIZE, work[PARENT, p]] += work[SIZE, p]
    free = 0
    for p in range(lo, hi):  # FIRST: the next free number below an item
        parent = work[PARENT, p]
        if parent < 0:
            work[ENTRY, p] = free
            free += work[SIZE, p]
        else:
            work[ENTRY, p] = work[FIRST, parent]
            work[FIRST, parent] += work[SIZE, p]
        work[FIRST, p] = work[ENTRY, p] + 1
    for p in range(lo, hi):
        u = arranged[p]
        for k in range(starts[u], starts[u + 1]):
            q = work[PLACE, successors[k]]
            if lo <= q < hi and not work[ENTRY, p] <= work[ENTRY, q] < work[ENTRY, p] + work[SIZE, p]:
                return False
    return True


@inner
def _find_parts(lo, hi, starts, successors, arranged, work, is_start):
    """Mark in `is_start` where the parts begin whose every item is above all items of later parts.

    The counting of `plackett.graph_kernels.tier_offsets`, whose docstring proves it, on places lo..hi.
    """
    for p in range(lo, hi):
        work[FIRST, p], work[LAST, p] = hi, lo - 1
        work[SINKS, p] = work[SOURCES, p] = work[EDGES, p] = 0
        is_start[p] = False
    for p in range(lo, hi):
        u = arranged[p]
        for k in range(starts[u], starts[u + 1]):
            q = work[PLACE, successors[k]]
            if lo <= q < hi:
                work[FIRST, p] = min(work[FIRST, p], q)
                work[LAST, q] = max(work[LAST, q], p)
    for p in range(lo, hi):
        _count(work, SINKS, p + 1, work[FIRST, p] + 1, hi)
        _count(work, SOURCES, work[LAST, p] + 1, p + 1, hi)
        u = arranged[p]
        for k in range(starts[u], starts[u + 1]):
            q = work[PLACE, successors[k]]
            if lo <= q < hi and work[LAST, q] + 1 <= work[FIRST, p]:
                _count(work, EDGES, work[LAST, q] + 1, work[FIRST, p] + 1, hi)
    is_start[lo] = True
    for p in range(lo + 1, hi):
        work[SINKS, p] += work[SINKS, p - 1]
        work[SOURCES, p] += work[SOURCES, p - 1]
        work[EDGES, p] += work[EDGES, p - 1]
        is_start[p] = work[EDGES, p] == work[SINKS, p] * work[SOURCES, p]


@inner
def _count(work, row, begin, end, hi):
    """Add 1 to the places begin..end of a row of differences."""
    if begin < hi:
        work[row, begin] += 1
    if end < hi:
        work[row, end] -= 1


@inner
def _part_end(p, hi, is_start):
    p += 1
    while p < hi and not is_start[p]:
        p += 1
    return p


@inner
def _has_edge(lo, hi, starts, successors, arranged, work):
    for p in range(lo, hi):
        u = arranged[p]
        for k in range(starts[u], starts[u + 1]):
            if lo <= work[PLACE, successors[k]] < hi:
                return True
    return False


@kernel
def decompose(
    first, last, offsets, starts, successors, split, arranged, work, is_start, kind, begin, end, rest_end, counts
):
    """Take the graphs of the lists first..last apart into blocks; their probabilities multiply.

    Weak components are independent, and single items say nothing. A component is a forest, or a series of parts. Parts
    without edges inside are tiers, consecutive ones form one block; the last part may consist of components again. All
    others are complex. A block holds the places begin..end and, up to rest_end, the items below all of it, of which
    only the sum of their worths matters. With `split` 0 every component is one complex block.

    Blocks of list b are numbered from offsets[b]; counts[b] says how many there are. `is_start` marks tiers.
    """
    for b in range(first, last):
        base = offsets[b]
        found, top = base, 0
        if base < offsets[b + 1]:
            work[STACK_BEGIN, base], work[STACK_END, base] = base, offsets[b + 1]
            top = 1
        while top > 0:
            top -= 1
            lo, hi = work[STACK_BEGIN, base + top], work[STACK_END, base + top]
            if hi - lo < 2:
                continue
            components = _split_components(lo, hi, starts, successors, arranged, work)
            if components > 1:
                for c in range(components):
                    work[STACK_BEGIN, base + top] = work[FIRST, lo + c]
                    work[STACK_END, base + top] = work[FIRST, lo + c + 1] if c + 1 < components else hi
                    top += 1
                continue
            kind[found], begin[found], end[found], rest_end[found] = COMPLEX, lo, hi, hi
            if split == 0:
                found += 1
                continue
            if _is_forest(lo, hi, starts, successors, arranged, work):
                kind[found] = FOREST
                found += 1
                continue
            _find_parts(lo, hi, starts, successors, arranged, work, is_start)
            if _part_end(lo, hi, is_start) == hi:
                found += 1
                continue
            p = lo
            while p < hi:
                q = _part_end(p, hi, is_start)
                if _has_edge(p, q, starts, successors, arranged, work):
                    if q == hi:
                        work[STACK_BEGIN, base + top], work[STACK_END, base + top] = p, q
                        top += 1
                    else:
                        kind[found], begin[found], end[found], rest_end[found] = COMPLEX, p, q, hi
                        found += 1
                    p = q
                    continue
                while q < hi and not _has_edge(q, _part_end(q, hi, is_start), starts, successors, arranged, work):
                    q = _part_end(q, hi, is_start)
                if q < hi or _part_end(p, hi, is_start) < hi:
                    kind[found], begin[found], end[found], rest_end[found] = TIERS, p, q, hi
                    found += 1
                p = q
        counts[b] = found - base
    return 0


@kernel
def mark_covers(first, last, begin, end, starts, successors, arranged, place, is_cover):
    """Mark the edges u > v inside the blocks first..last between which there is no other item.

    Upwards from the last item, the items that u's successors reach are collected, one bit each: v is right below u
    unless another successor reaches it. items x edges / 64 steps.
    """
    most = 1
    for b in range(first, last):
        most = max(most, end[b] - begin[b])
    words = (most + 63) // 64
    reached = np.zeros((most, words), np.uint64)
    one = np.uint64(1)
    for b in range(first, last):
        lo, hi = begin[b], end[b]
        used = (hi - lo + 63) // 64
        for p in range(hi - 1, lo - 1, -1):
            row = p - lo
            for w in range(used):
                reached[row, w] = np.uint64(0)
            u = arranged[p]
            for k in range(starts[u], starts[u + 1]):
                q = place[successors[k]]
                if lo <= q < hi:
                    for w in range((q - lo) // 64, used):
                        reached[row, w] |= reached[q - lo, w]
            for k in range(starts[u], starts[u + 1]):
                q = place[successors[k]]
                if lo <= q < hi:
                    bit = one << np.uint64((q - lo) & 63)
                    is_cover[k] = reached[row, (q - lo) >> 6] & bit == np.uint64(0)
            for k in range(starts[u], starts[u + 1]):
                q = place[successors[k]]
                if lo <= q < hi:
                    reached[row, (q - lo) >> 6] |= one << np.uint64((q - lo) & 63)
    return 0


@kernel
def sum_rests(rest_begin, rest_end, arranged, scores, log_worths):
    """log_worths[k] = log of the summed worths of places rest_begin[k]..rest_end[k].

    Rests with the same end are nested and come one after the other, the smallest last: each continues the sum of the
    next one.
    """
    peak, total, reached, current = -math.inf, 0.0, -1, -1
    for k in range(rest_begin.size - 1, -1, -1):
        if rest_end[k] != current or rest_begin[k] > reached:
            peak, total, reached, current = -math.inf, 0.0, rest_end[k], rest_end[k]
        for p in range(reached - 1, rest_begin[k] - 1, -1):
            w = scores[arranged[p]]
            if w > peak:
                total = total * math.exp(peak - w) + 1.0
                peak = w
            else:
                total += math.exp(w - peak)
        reached = rest_begin[k]
        log_worths[k] = peak + math.log(total)
    return 0


@kernel
def spread_rests(
    rest_begin, rest_end, arranged, scores, log_worths, rest_gradient, rest_curvature, gradient, curvature
):
    """Add the derivatives by each log_worths[k] to those of the items that it sums.

    With p = exp(w_j - log_worth) the gradient of item j is G p and its curvature -G p + (C + G) p^2, where G and C are
    the gradient and curvature by the log worth. Sums over nested rests are carried from the largest to the smallest,
    scaled by the worth of the latest.
    """
    carried, carried_square = 0.0, 0.0
    for k in range(rest_begin.size):
        is_nested = k > 0 and rest_end[k] == rest_end[k - 1] and rest_begin[k] >= rest_begin[k - 1]
        shrink = math.exp(log_worths[k] - log_worths[k - 1]) if is_nested else 0.0
        carried = carried * shrink + rest_gradient[k]
        carried_square = carried_square * shrink * shrink + rest_curvature[k] + rest_gradient[k]
        stop = rest_end[k]
        if k + 1 < rest_begin.size and rest_end[k + 1] == stop and rest_begin[k + 1] >= rest_begin[k]:
            stop = rest_begin[k + 1]
        for p in range(rest_begin[k], stop):
            share = math.exp(scores[arranged[p]] - log_worths[k])
            gradient[arranged[p]] += carried * share
            curvature[arranged[p]] += carried_square * share * share - carried * share
    return 0
