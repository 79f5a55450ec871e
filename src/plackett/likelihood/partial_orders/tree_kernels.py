"""Partial orders whose structure is a tree: one-dimensional integrals, nested along it.

Items are exponential times T_i. A cut stands for "all items of a set P come before all items of a set V". If the graph
whose nodes are items and cuts is a tree, messages along its edges are functions of one time, as in belief propagation:

    item i to a cut below it    A_i(m) = P(T_i < m and all that is beyond i),        from the left end of the integral
    item i to a cut above it    B_i(m) = P(T_i > m and all that is beyond i),        from the right end
    cut to an item v of V       integral over m < x of d(prod_P A)(m) prod_{V - v} B(m);   prod_P A(x) if V is {v}
    cut to an item p of P       integral over m > x of -d(prod_V B)(m) prod_{P - p} A(m);  prod_V B(x) if P is {p}

Every term is positive. The integral over the time of any one item is P, so that all items give the same number up to
the error of the integration, which is thereby known; E[T_i | graph] and Var[T_i | graph] give derivatives.

Functions are kept as logarithms on Gauss-Legendre nodes of equal panels in y = log t; integrals up to a node are those
of the polynomial through the nodes of its panel. All integrands are smooth in y, and the panels are halved until the
items agree.
"""

import math

import numpy as np

from plackett.compilation import inner, kernel
from plackett.likelihood.kernel_parts import log_add

NODES = 16
ABOVE, BELOW = 0, 1
_LEFT, _RIGHT = 40.0, 60.0  # e^-40 and e^-60 are the shares of times outside
MOST_POINTS = 1 << 15
_SMALLEST_SLOPE = 1e-300  # where a function has stopped to change: not zero, so that its logarithm is finite
# Rows of `links`: an item and a cut, and on which side of the cut the item is.
ITEM, CUT, SIDE = 0, 1, 2


@inner
def span_of_times(items, lowest):
    """The logarithms of times between which to integrate, for scores relative to the log of summed worths."""
    return -_LEFT, math.log(_RIGHT + 4.0 * math.log(items)) - lowest


@inner
def integrate(log_f, panels, width, matrix, rightwards, scratch, e, result):
    """result[e] = log of the integral of exp(log_f) up to each point, from the left end or from the right end."""
    running = log_f[0 if rightwards else panels * NODES - 1]  # beyond the end: negligible, but not zero
    for step in range(panels):
        base = (step if rightwards else panels - 1 - step) * NODES
        peak = log_f[base]
        for k in range(NODES):
            peak = max(peak, log_f[base + k])
        whole = 0.0
        for k in range(NODES):
            scratch[k] = math.exp(log_f[base + k] - peak)
            whole += matrix[NODES, k] * scratch[k]
        for j in range(NODES):
            part = 0.0
            for k in range(NODES):
                part += (matrix[j, k] if rightwards else matrix[NODES, k] - matrix[j, k]) * scratch[k]
            result[e, base + j] = running
            if part > 0.0:
                result[e, base + j] = log_add(running, peak + math.log(0.5 * width * part))
        running = log_add(running, peak + math.log(0.5 * width * whole))


@inner
def _item_to_cut(
    e, score, link, y, t, panels, width, matrix, again, log_f, scratch, item_says, cut_says, item_sum, cut_sum, slope
):
    """Message of link e from its item; `again` 1: the item has heard from the cut, which is taken out."""
    i, c, side = link[ITEM, e], link[CUT, e], link[SIDE, e]
    worth = math.exp(score)
    for k in range(panels * NODES):
        log_f[k] = score - worth * t[k] + y[k] + item_sum[i, k]
        if again == 1:
            log_f[k] -= cut_says[e, k]
    integrate(log_f, panels, width, matrix, side == ABOVE, scratch, e, item_says)
    for k in range(panels * NODES):
        cut_sum[side, c, k] += item_says[e, k]
        slope[side, c, k] += math.exp(min(log_f[k] - item_says[e, k], 700.0))


@inner
def _cut_to_item(
    e, link, sizes, panels, width, matrix, again, log_f, scratch, item_says, cut_says, item_sum, cut_sum, slope
):
    """Message of link e from its cut; `again` 1: the cut has heard from the item, which is taken out."""
    i, c, side = link[ITEM, e], link[CUT, e], link[SIDE, e]
    other = BELOW if side == ABOVE else ABOVE
    is_alone = sizes[side, c] == 1
    for k in range(panels * NODES):
        log_f[k] = cut_sum[other, c, k]
        if not is_alone:
            log_f[k] += cut_sum[side, c, k] + math.log(max(slope[other, c, k], _SMALLEST_SLOPE))
            if again == 1:
                log_f[k] -= item_says[e, k]
    if not is_alone:
        integrate(log_f, panels, width, matrix, side == BELOW, scratch, e, cut_says)
    for k in range(panels * NODES):
        if is_alone:
            cut_says[e, k] = log_f[k]
        item_sum[i, k] += cut_says[e, k]


@inner
def _walk(n, link, visited, queue, to_item):
    """Fill `queue` with the links, those nearer to item 0 first; to_item: 1 for links that lead away from it to items.

    Takes as many rounds as the tree is deep.
    """
    for k in range(visited.size):
        visited[k] = 0
    visited[0] = 1
    found = 0
    while found < queue.size:
        for e in range(queue.size):
            i, c = link[ITEM, e], n + link[CUT, e]
            if visited[i] != visited[c]:
                to_item[e] = visited[c]
                visited[i], visited[c] = 1, 1
                queue[found] = e
                found += 1


@inner
def _marginal(i, score, y, t, panels, width, matrix, item_sum):
    """log P, and the mean and second moment of exp(w_i) T_i, from the time of item i."""
    worth = math.exp(score)
    peak = -math.inf
    for k in range(panels * NODES):
        peak = max(peak, score - worth * t[k] + y[k] + item_sum[i, k])
    total, mean, square = 0.0, 0.0, 0.0
    for k in range(panels * NODES):
        log_f = score - worth * t[k] + y[k] + item_sum[i, k]
        weight = matrix[NODES, k % NODES] * math.exp(log_f - peak)
        z = worth * t[k]
        total += weight
        mean += weight * z
        square += weight * z * z
    return peak + math.log(0.5 * width * total), mean / total, square / total


@kernel
def tree_blocks(
    first, last, block_starts, link_starts, links, nodes, matrix, scores, tol, value, error, gradient, curvature
):
    """Value, error and derivatives of the blocks first..last, whose items and cuts form a tree.

    Items and cuts are numbered within their block, and scores are relative to the log of the block's summed worths. The
    error is infinite where scores spread so far that the nodes would be too many.
    """
    log_f, scratch = np.empty(MOST_POINTS), np.empty(NODES)
    y, t = np.empty(MOST_POINTS), np.empty(MOST_POINTS)
    for b in range(first, last):
        lo = block_starts[b]
        n = block_starts[b + 1] - lo
        count = link_starts[b + 1] - link_starts[b]
        cuts = count - n + 1
        link, sizes = np.empty((3, count), np.int64), np.zeros((2, cuts), np.int64)
        for e in range(count):
            for row in range(3):
                link[row, e] = links[row, link_starts[b] + e]
            sizes[link[SIDE, e], link[CUT, e]] += 1
        lowest = 0.0
        for i in range(n):
            lowest = min(lowest, scores[lo + i])
        visited, queue, to_item = np.empty(n + cuts, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
        _walk(n, link, visited, queue, to_item)
        begin, stop = span_of_times(n, lowest)
        panels = math.ceil(min(stop - begin, 1e6) * max(1.0, math.sqrt(n) / 4.0))
        error[b] = math.inf
        while not error[b] <= tol and panels * NODES <= MOST_POINTS:
            width = (stop - begin) / panels
            points = panels * NODES
            for k in range(points):
                y[k] = begin + width * (k // NODES + 0.5 * (1.0 + nodes[k % NODES]))
                t[k] = math.exp(y[k])
            item_says, cut_says = np.empty((count, points)), np.empty((count, points))
            item_sum, cut_sum, slope = np.zeros((n, points)), np.zeros((2, cuts, points)), np.zeros((2, cuts, points))
            for turn in range(2 * count):  # towards item 0, then away from it
                e = queue[count - 1 - turn if turn < count else turn - count]
                again = 0 if turn < count else 1
                if to_item[e] + again == 1:
                    _item_to_cut(
                        e, scores[lo + link[ITEM, e]], link, y, t, panels, width, matrix, again, log_f, scratch,
                        item_says, cut_says, item_sum, cut_sum, slope,
                    )  # fmt: skip
                else:
                    _cut_to_item(
                        e, link, sizes, panels, width, matrix, again, log_f, scratch,
                        item_says, cut_says, item_sum, cut_sum, slope,
                    )  # fmt: skip
            error[b] = 0.0
            for i in range(n):
                log_p, mean, square = _marginal(i, scores[lo + i], y, t, panels, width, matrix, item_sum)
                if i == 0:
                    value[b] = log_p
                if not abs(log_p - value[b]) <= error[b]:
                    error[b] = abs(log_p - value[b])
                gradient[lo + i] = 1.0 - mean
                curvature[lo + i] = max(mean - (square - mean * mean), 0.0)
            panels *= 2
    return 0
