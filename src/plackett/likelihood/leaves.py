"""Derivatives of the likelihood when all scores of a group of items move together: the leaves of a regression tree.

Moving the items of a leaf U by v moves the log odds l_i = w_i - w_R of a tier's items at the rate delta_i - pi, where
delta_i says whether i is in U and pi is U's share of softmax_R; pi itself moves at the rate pi (1 - pi). With H the
second derivatives of log P by the log odds, g the first ones, G their sum,

    L'  = sum_U g_i - pi G
    L'' = H_UU - 2 pi H_U1 + pi^2 H_11 - pi (1 - pi) G

H_UU sums H over pairs of U, H_U1 over pairs of U and all, H_11 over all pairs. From the nodes of the quadrature, with
A = sum over i in U of phi_i (see `integral`),

    H_UU = Var[A] + sum_U E[phi_i (1 - z_i - phi_i)],    H_U1 = Cov[A, t],    H_11 = Var[t] - E[t]

so a tier costs one pass over its nodes and items, and one over nodes and leaves. For a tier that a cut-off divides, and
T the tail probability of `cutoff` with primes for its derivatives along U,

    sum_U g_i = E[T' / T],    H_UU = E[T'' / T] - E[T' / T]^2,    H_U1 = Cov[T' / T, t]

Such a tier is not concave. Where its L'' is not negative, that of the denominators alone stands for it: r places times
-p (1 - p), p the leaf's share of the tier and all below it.
"""

import math

import numpy as np
import numpy.typing as npt

from plackett.compilation import inner, inner_sum, kernel
from plackett.likelihood.cutoff import tail_along
from plackett.likelihood.elementary import fast_exp
from plackett.likelihood.integral import (
    MOST_NODES,
    cutoff_nodes,
    decay_rate,
    deep_threshold,
    first_place,
    tier_nodes,
)
from plackett.likelihood.kernel import LARGEST_SCORE, NO_CUTOFF
from plackett.likelihood.partition import depth_of, raise_bad_score
from plackett.likelihood.tiers import Tiers
from plackett.threads import run_over_ranges

_COST_PER_ITEM = 100


@inner
def _local_leaves(leaf, order, base, size, number, local, found):
    """Number the leaves of a list 0, 1, ...; returns how many. `number` must be -1 everywhere and is so again after."""
    count = 0
    for i in range(size):
        u = leaf[order[base + i]]
        if number[u] < 0:
            number[u] = count
            found[count] = u
            count += 1
        local[i] = number[u]
    for k in range(count):
        number[found[k]] = -1
    return count


@inner_sum
def _add_item(rate, t, q, phi, row):
    """phi of one item at every node into `phi`, added to `row`; returns E[phi] and E[phi (1 - z - phi)]."""
    mean = 0.0
    bend = 0.0
    for k in range(t.size):
        z = rate * t[k]
        x = decay_rate(z)
        phi[k] = x
        mean += q[k] * x
        bend += q[k] * x * (1.0 - z - x)
    for k in range(t.size):
        row[k] += phi[k]
    return mean, bend


@inner_sum
def _spread(row, t, q, mean_t):
    """Var[A] and Cov[A, t] of a leaf's sum A at every node."""
    mean = 0.0
    for k in range(t.size):
        mean += q[k] * row[k]
    variance = 0.0
    covariance = 0.0
    for k in range(t.size):
        away = row[k] - mean
        variance += q[k] * away * away
        covariance += q[k] * away * (t[k] - mean_t)
    return variance, covariance


@inner
def _whole_tier(log_odds, n, first, local, leaves, depth, nodes, exponent, work, sums, own_slope, own_bend, mixed):
    """For every leaf of a tier sum_U g_i, H_UU and H_U1; returns G and H_11."""
    for u in range(leaves):
        own_slope[u], own_bend[u], mixed[u] = 0.0, 0.0, 0.0
    if n == 1:
        first_place(log_odds, 1, own_slope[leaves:], own_bend[leaves:])
        slope, bend = own_slope[leaves], -own_bend[leaves]
        u = local[first]
        own_slope[u], own_bend[u], mixed[u] = slope, bend, bend
        return slope, bend
    shallow, begin = tier_nodes(log_odds, n, depth, nodes, exponent, work)
    t, q = nodes[1, begin:], nodes[3, begin:]
    mean_t = 0.0
    for k in range(t.size):
        mean_t += q[k] * t[k]
    variance_t = 0.0
    for k in range(t.size):
        variance_t += q[k] * (t[k] - mean_t) * (t[k] - mean_t)
    for u in range(leaves):
        row = sums[u, : t.size]
        for k in range(t.size):
            row[k] = 0.0
    phi = sums[leaves, : t.size]
    total = 0.0
    j = 0
    for i in range(n):
        u = local[first + i]
        if shallow == n or log_odds[i] > deep_threshold(n):
            mean, bend = _add_item(work[0, j], t, q, phi, sums[u, : t.size])
            own_slope[u] += mean
            own_bend[u] += bend
            total += mean
            j += 1
        else:  # its phi is 1 at every node
            own_slope[u] += 1.0
            total += 1.0
    for u in range(leaves):
        if own_slope[u] > 0.0:
            variance, covariance = _spread(sums[u, : t.size], t, q, mean_t)
            own_bend[u] += variance
            mixed[u] = covariance
    return total, variance_t - mean_t


@inner
def _divided_tier(log_odds, n, places, first, local, leaves, depth, nodes, exponent, sums, own_slope, own_bend, mixed):
    """As `_whole_tier`, for a tier that a cut-off divides."""
    begin = cutoff_nodes(log_odds, n, places, depth, nodes, exponent)
    t, q = nodes[1, begin:], nodes[3, begin:]
    mean_t = 0.0
    for k in range(t.size):
        mean_t += q[k] * t[k]
    variance_t = 0.0
    for k in range(t.size):
        variance_t += q[k] * (t[k] - mean_t) * (t[k] - mean_t)
    for u in range(leaves):
        own_slope[u], own_bend[u], mixed[u] = 0.0, 0.0, 0.0
    for i in range(n):
        own_slope[local[first + i]] = 1.0  # a leaf with items in the tier
    group, slope, bend = local[first : first + n], sums[0, : t.size], sums[1, : t.size]
    total = 0.0
    for u in range(leaves):
        if own_slope[u] == 0.0:
            continue
        tail_along(log_odds, n, places, group, u, t, slope, bend)
        mean, second = 0.0, 0.0
        for k in range(t.size):
            mean += q[k] * slope[k]
            second += q[k] * bend[k]
        _, covariance = _spread(slope, t, q, mean_t)
        own_slope[u], own_bend[u], mixed[u] = mean, second - mean * mean, covariance
        total += mean
    return total, variance_t - mean_t


@inner
def _add_to_rest(w, local, first, last, leaves, highest, total, mass):
    """Add the items first..last to logsumexp as a pair (highest, total) and to the masses of their leaves."""
    peak = highest
    for i in range(first, last):
        peak = max(peak, w[i])
    if peak > highest:
        shrink = math.exp(highest - peak)
        total *= shrink
        for u in range(leaves):
            mass[u] *= shrink
    for i in range(first, last):
        e = fast_exp(w[i] - peak)
        total += e
        mass[local[i]] += e
    return peak, total


@inner
def _denominator_shares(w, local, first, last, leaves, highest, total, mass, shares):
    """Each leaf's share of the items first..last and all below them, whose logsumexp is the pair (highest, total)."""
    peak = highest
    for i in range(first, last):
        peak = max(peak, w[i])
    shrink = math.exp(highest - peak)
    whole = total * shrink
    for u in range(leaves):
        shares[u] = mass[u] * shrink
    for i in range(first, last):
        e = fast_exp(w[i] - peak)
        whole += e
        shares[local[i]] += e
    for u in range(leaves):
        shares[u] /= whole


@kernel
def leaf_lists(first, last, scores, leaf, order, starts, list_tiers, weights, list_weights, top, depth, slope, bend):
    """Add the lists first..last to slope and bend, L' and L'' of every leaf.

    Returns the position in `scores` of a score that is not finite or too large, or -1.
    """
    longest = 1
    for b in range(first, last):
        longest = max(longest, starts[list_tiers[b + 1]] - starts[list_tiers[b]])
    most = min(longest, slope.size)
    w, log_odds, local = np.empty(longest), np.empty(longest), np.empty(longest, np.int64)
    number, found = np.full(slope.size, -1), np.empty(most, np.int64)
    mass, shares, mixed = np.empty(most), np.empty(most), np.empty(most)
    own_slope, own_bend = np.empty(most + 1), np.empty(most + 1)
    nodes, exponent, work = np.empty((4, MOST_NODES)), np.empty(MOST_NODES, np.int64), np.empty((3, max(longest, 6)))
    sums = np.empty((most + 1, MOST_NODES))
    for b in range(first, last):
        base, end = starts[list_tiers[b]], list_tiers[b + 1]
        size = starts[end] - base
        if end - list_tiers[b] < 2 or list_weights[b] == 0.0:
            continue
        for i in range(size):
            w[i] = scores[order[base + i]]
            if not abs(w[i]) <= LARGEST_SCORE:
                return order[base + i]
        leaves = _local_leaves(leaf, order, base, size, number, local, found)
        mass[:leaves] = 0.0
        highest, total = -math.inf, 0.0
        for m in range(end - 1, list_tiers[b], -1):
            highest, total = _add_to_rest(
                w, local, starts[m] - base, starts[m + 1] - base, leaves, highest, total, mass
            )
            begin, stop = starts[m - 1] - base, starts[m] - base
            if begin >= top:
                continue
            n, log_total = stop - begin, math.log(total)
            places = min(n, top - begin)
            for i in range(n):
                log_odds[i] = (w[begin + i] - highest) - log_total
            weight = list_weights[b] * (weights[m - 1] if weights.size else 1.0)
            if places == n:
                pull, second = _whole_tier(
                    log_odds, n, begin, local, leaves, depth, nodes, exponent, work, sums, own_slope, own_bend, mixed
                )
            else:
                pull, second = _divided_tier(
                    log_odds, n, places, begin, local, leaves, depth, nodes, exponent, sums, own_slope, own_bend, mixed
                )
                _denominator_shares(w, local, begin, stop, leaves, highest, total, mass, shares)
            for u in range(leaves):
                share = mass[u] / total
                slope[found[u]] += weight * (own_slope[u] - share * pull)
                exact = own_bend[u] - 2.0 * share * mixed[u] + share * share * second - share * (1.0 - share) * pull
                if places < n and exact >= 0.0:
                    exact = -places * shares[u] * (1.0 - shares[u])
                bend[found[u]] += weight * exact
    return -1


@kernel
def _denominators(first, last, scores, order, starts, list_tiers, top, curvature):
    """For every item of the lists first..last the sum over tiers of places p (1 - p), p its share of what is left."""
    for b in range(first, last):
        begin, end = list_tiers[b], list_tiers[b + 1]
        base = starts[begin]
        for i in range(base, starts[end]):
            curvature[order[i]] = 0.0
        for m in range(begin, end - 1):
            places = min(starts[m + 1] - starts[m], top - (starts[m] - base))
            if places <= 0:
                break
            peak = -math.inf
            for i in range(starts[m], starts[end]):
                peak = max(peak, scores[order[i]])
            total = 0.0
            for i in range(starts[m], starts[end]):
                total += fast_exp(scores[order[i]] - peak)
            for i in range(starts[m], starts[end]):
                p = fast_exp(scores[order[i]] - peak) / total
                curvature[order[i]] += places * p * (1.0 - p)
    return 0


def denominator_curvature(
    scores: npt.NDArray[np.float64], tiers: Tiers, top: int = NO_CUTOFF
) -> npt.NDArray[np.float64]:
    """-d2 of the denominators alone, as if every place were drawn from all that is left at the beginning of its tier.

    Positive also where a cut-off makes the likelihood convex.
    """
    curvature = np.empty(len(scores))
    run_over_ranges(
        lambda first, last: int(
            _denominators(first, last, scores, tiers.order, tiers.starts, tiers.list_tiers, top, curvature)
        ),
        tiers.offsets * _COST_PER_ITEM,
    )
    return curvature


def leaf_derivatives(
    scores: npt.NDArray[np.float64],
    tiers: Tiers,
    leaf: npt.NDArray[np.int32],
    leaves: int,
    *,
    list_weights: npt.NDArray[np.float64],
    tier_weights: npt.NDArray[np.float64] | None = None,
    top: int = NO_CUTOFF,
    tol: float,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """First and second derivative of sum(list weight * log P) when all scores of a leaf move together, for each leaf.

    `leaf` holds the leaf of each item, from 0 to leaves - 1.
    """
    weights = np.empty(0) if tier_weights is None else np.ascontiguousarray(tier_weights, np.float64)
    parts: dict[int, tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]] = {}

    def call(first: int, last: int) -> int:
        slope, bend = np.zeros(leaves), np.zeros(leaves)
        parts[first] = slope, bend
        return int(
            leaf_lists(
                first, last, scores, leaf, tiers.order, tiers.starts, tiers.list_tiers, weights, list_weights, top,
                depth_of(tol), slope, bend,
            )
        )  # fmt: skip

    for position in run_over_ranges(call, tiers.offsets * _COST_PER_ITEM):
        if position >= 0:
            raise_bad_score(float(scores[position]), position)
    slope, bend = np.zeros(leaves), np.zeros(leaves)
    for first in sorted(parts):  # in the same order in every run
        slope += parts[first][0]
        bend += parts[first][1]
    return slope, bend
