# mypy: allow-untyped-defs
# Compiled functions are typed by numba from their arguments.
"""Parts that several compiled kernels share: the longest list, sums, the scores of a list, leaves, and a tier's nodes.

Kernels work on lists first..last. A tiered list b has the tiers list_tiers[b]..list_tiers[b + 1], and tier m begins at
position starts[m] of `order` (see `plackett.likelihood.core`).
"""

import math
from typing import Any, NamedTuple

import numpy as np

from plackett.compilation import inner, inner_part, inner_sum
from plackett.likelihood.constants import DEEP_ITEMS, DEEP_LOG_Z, LARGEST_CLOSED_FORM, LARGEST_SCORE, MOST_NODES
from plackett.likelihood.elementary import fast_exp, fast_expm1

# Rows of `Workspace.nodes`: y, t = e^y, the log integrand f(y), and its normalised weight q.
NODE_Y, NODE_T, NODE_LOG, NODE_WEIGHT = 0, 1, 2, 3
# Rows of `Workspace.items`: the odds a_i of the items inside the integral, E[phi_i] and E[phi_i z_i].
ITEM_ODDS, ITEM_PHI, ITEM_PHI_Z = 0, 1, 2
_RUN = 16


class Workspace(NamedTuple):
    """Room for the integral of one tier."""

    nodes: Any  # (4, MOST_NODES)
    exponent: Any  # (MOST_NODES,) int64, powers of two of products
    items: Any  # (3, at least LARGEST_CLOSED_FORM)


@inner
def make_workspace(longest):
    return Workspace(
        np.empty((4, MOST_NODES)), np.empty(MOST_NODES, np.int64), np.empty((3, max(longest, LARGEST_CLOSED_FORM)))
    )


@inner
def longest_list(offsets, first, last):
    """The length of the longest list, at least 1."""
    longest = 1
    for b in range(first, last):
        longest = max(longest, offsets[b + 1] - offsets[b])
    return longest


@inner
def longest_tiered_list(starts, list_tiers, first, last):
    """The number of items of the longest tiered list, at least 1."""
    longest = 1
    for b in range(first, last):
        longest = max(longest, starts[list_tiers[b + 1]] - starts[list_tiers[b]])
    return longest


@inner
def log_add(x, y):
    """log(exp(x) + exp(y)); -inf stands for 0."""
    if x < y:
        x, y = y, x
    return x + math.log1p(math.exp(y - x)) if y > -math.inf else x


@inner
def gather(values, order, base, size, gathered):
    """gathered = the values of a list in the order of its tiers."""
    for i in range(size):
        gathered[i] = values[order[base + i]]


@inner
def gather_scores(scores, order, base, size, w):
    """As `gather`; returns the position of the first score that is not finite or too large, or -1."""
    for i in range(size):
        w[i] = scores[order[base + i]]
        if not abs(w[i]) <= LARGEST_SCORE:
            return order[base + i]
    return -1


@inner_part
def sort_descending(keys, order, begin, end, room):
    """Fill order[begin:end] with the positions begin..end - 1 by descending key; equal keys keep their order.

    Runs of a few positions are sorted by insertion and merged. `room` takes as many integers as there are positions.
    """
    for low in range(begin, end, _RUN):
        for i in range(low, min(low + _RUN, end)):
            k = i
            while k > low and keys[order[k - 1]] < keys[i]:
                order[k] = order[k - 1]
                k -= 1
            order[k] = i
    width = _RUN
    while width < end - begin:
        for low in range(begin, end - width, 2 * width):
            high = min(low + 2 * width, end)
            for i in range(width):
                room[i] = order[low + i]
            i, j = 0, low + width
            for k in range(low, high):
                if i == width:  # the rest is in place
                    break
                if j < high and keys[order[j]] > keys[room[i]]:
                    order[k] = order[j]
                    j += 1
                else:
                    order[k] = room[i]
                    i += 1
        width *= 2


@inner
def number_leaves(leaf, rows, number, found, local):
    """Number the leaves that the rows of a list fall into 0, 1, ... and return how many there are.

    local[i] becomes the number of row i's leaf and found[k] the leaf numbered k. `number` has one entry per leaf, which
    must be -1 and is -1 again afterwards.
    """
    count = 0
    for i in range(rows.size):
        u = leaf[rows[i]]
        if number[u] < 0:
            number[u] = count
            found[count] = u
            count += 1
        local[i] = number[u]
    for k in range(count):
        number[found[k]] = -1
    return count


@inner
def peak_of(x):
    peak = x[0]
    for i in range(x.size):
        peak = max(peak, x[i])
    return peak


@inner_sum
def exponentials(x, peak, result):
    """result = exp(x - peak); returns its sum."""
    total = 0.0
    for i in range(x.size):
        result[i] = fast_exp(x[i] - peak)
        total += result[i]
    return total


@inner_sum
def dot(x, y):
    total = 0.0
    for k in range(x.size):
        total += x[k] * y[k]
    return total


@inner
def mean_and_variance(t, q):
    """E[t] and Var[t] over the weights q."""
    mean = 0.0
    for k in range(t.size):
        mean += q[k] * t[k]
    variance = 0.0
    for k in range(t.size):
        variance += q[k] * (t[k] - mean) * (t[k] - mean)
    return mean, variance


@inner
def deep_threshold(n):
    """Log odds below this leave the integral of a tier of n items; see `constants`."""
    return DEEP_LOG_Z - math.log(n + DEEP_ITEMS)


@inner
def decay_rate(z):
    """phi(z) = z / expm1(z) for z > 0: the slope of log(1 - exp(-z)) in log z, from 1 at 0 down to 0."""
    e = fast_expm1(-z)
    return -z * (1.0 + e) / e


@inner_sum
def phi_at_nodes(rate, t, q, phi):
    """phi of one item at every node; returns E[phi] and E[phi (1 - z - phi)]."""
    mean, curvature = 0.0, 0.0
    for k in range(np.uint64(t.size)):
        z = rate * t[k]
        x = decay_rate(z)
        phi[k] = x
        mean += q[k] * x
        curvature += q[k] * x * (1.0 - z - x)
    return mean, curvature
