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

Such a tier is not concave. Where its L'' is not negative, that of the denominators alone replaces it: r places times
-p (1 - p), p the leaf's share of the tier and all below it.

Loops that should be vectorised run over unsigned numbers; see `list_kernels`.
"""

import math

import numpy as np
import numpy.typing as npt

from plackett.arguments import NO_CUTOFF
from plackett.compilation import inner, inner_sum, kernel, light_kernel
from plackett.likelihood.constants import MOST_NODES
from plackett.likelihood.core import Tiers, depth_of, kernel_cutoff, raise_bad_score
from plackett.likelihood.cutoff import tail_along
from plackett.likelihood.elementary import fast_exp
from plackett.likelihood.integral import cutoff_nodes, first_place, tier_nodes
from plackett.likelihood.kernel_parts import (
    ITEM_ODDS,
    NODE_T,
    NODE_WEIGHT,
    deep_threshold,
    gather_scores,
    longest_tiered_list,
    make_workspace,
    mean_and_variance,
    number_leaves,
    phi_at_nodes,
)
from plackett.threads import run_over_ranges

_COST_PER_ITEM = 100


@inner_sum
def _variance_and_covariance(row, t, q, mean_t):
    """Var[A] and Cov[A, t] of a leaf's sum A at every node."""
    mean = 0.0
    for k in range(np.uint64(t.size)):
        mean += q[k] * row[k]
    variance = 0.0
    covariance = 0.0
    for k in range(np.uint64(t.size)):
        away = row[k] - mean
        variance += q[k] * away * away
        covariance += q[k] * away * (t[k] - mean_t)
    return variance, covariance


@inner
def _undivided_tier(log_odds, n, first, local, leaves, depth, room, sums, own_slope, own_second, mixed):
    """For every leaf of a tier sum_U g_i, H_UU and H_U1; returns G and H_11."""
    for u in range(leaves):
        own_slope[u], own_second[u], mixed[u] = 0.0, 0.0, 0.0
    if n == 1:
        first_place(log_odds, 1, own_slope[leaves:], own_second[leaves:])
        slope, second = own_slope[leaves], -own_second[leaves]
        u = local[first]
        own_slope[u], own_second[u], mixed[u] = slope, second, second
        return slope, second
    shallow, begin = tier_nodes(log_odds, n, depth, room.nodes, room.exponent, room.items)
    odds, t, q = room.items[ITEM_ODDS], room.nodes[NODE_T, begin:], room.nodes[NODE_WEIGHT, begin:]
    mean_t, variance_t = mean_and_variance(t, q)
    for u in range(leaves):
        row = sums[u, : t.size]
        for k in range(np.uint64(t.size)):
            row[k] = 0.0
    phi = sums[leaves, : t.size]
    total = 0.0
    j = 0
    for i in range(n):
        u = local[first + i]
        if shallow == n or log_odds[i] > deep_threshold(n):
            mean, second = phi_at_nodes(odds[j], t, q, phi)
            row = sums[u, : t.size]
            for k in range(np.uint64(t.size)):
                row[k] += phi[k]
            own_slope[u] += mean
            own_second[u] += second
            total += mean
            j += 1
        else:  # its phi is 1 at every node
            own_slope[u] += 1.0
            total += 1.0
    for u in range(leaves):
        if own_slope[u] > 0.0:
            variance, covariance = _variance_and_covariance(sums[u, : t.size], t, q, mean_t)
            own_second[u] += variance
            mixed[u] = covariance
    return total, variance_t - mean_t


@inner
def _divided_tier(log_odds, n, places, first, local, leaves, depth, room, sums, own_slope, own_second, mixed):
    """As `_undivided_tier`, for a tier that a cut-off divides."""
    begin = cutoff_nodes(log_odds, n, places, depth, room.nodes, room.exponent)
    t, q = room.nodes[NODE_T, begin:], room.nodes[NODE_WEIGHT, begin:]
    mean_t, variance_t = mean_and_variance(t, q)
    for u in range(leaves):
        own_slope[u], own_second[u], mixed[u] = 0.0, 0.0, 0.0
    for i in range(n):
        own_slope[local[first + i]] = 1.0  # a leaf with items in the tier
    group, slope, curve = local[first : first + n], sums[0, : t.size], sums[1, : t.size]
    total = 0.0
    for u in range(leaves):
        if own_slope[u] == 0.0:
            continue
        tail_along(log_odds, n, places, group, u, t, slope, curve)
        mean, second = 0.0, 0.0
        for k in range(t.size):
            mean += q[k] * slope[k]
            second += q[k] * curve[k]
        _, covariance = _variance_and_covariance(slope, t, q, mean_t)
        own_slope[u], own_second[u], mixed[u] = mean, second - mean * mean, covariance
        total += mean
    return total, variance_t - mean_t


@inner
def _add_to_rest(w, local, first, last, leaves, highest, total, mass):
    """Add the items first..last to logsumexp as a pair (highest, total) and to the masses of their leaves."""
    peak = highest
    for i in range(np.uint64(first), np.uint64(last)):
        peak = max(peak, w[i])
    if peak > highest:
        shrink = math.exp(highest - peak)
        total *= shrink
        for u in range(leaves):
            mass[u] *= shrink
    for i in range(np.uint64(first), np.uint64(last)):
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


@light_kernel
def leaf_lists(first, last, scores, leaf, order, starts, list_tiers, weights, list_weights, top, depth, slope, second):
    """Add the lists first..last to slope and second, L' and L'' of every leaf; `top` None means no cut-off.

    Returns the position in `scores` of a score that is not finite or too large, or -1.
    """
    longest = longest_tiered_list(starts, list_tiers, first, last)
    most = min(longest, slope.size)
    w, log_odds, local = np.empty(longest), np.empty(longest), np.empty(longest, np.int64)
    number, found = np.full(slope.size, -1), np.empty(most, np.int64)
    mass, shares, mixed = np.empty(most), np.empty(most), np.empty(most)
    own_slope, own_second = np.empty(most + 1), np.empty(most + 1)
    room = make_workspace(longest)
    sums = np.empty((most + 1, MOST_NODES))
    for b in range(first, last):
        base, end = starts[list_tiers[b]], list_tiers[b + 1]
        size = starts[end] - base
        if end - list_tiers[b] < 2 or list_weights[b] == 0.0:
            continue
        bad = gather_scores(scores, order, base, size, w)
        if bad >= 0:
            return bad
        leaves = number_leaves(leaf, order[base : base + size], number, found, local)
        for u in range(leaves):
            mass[u] = 0.0
        highest, total = -math.inf, 0.0
        for m in range(end - 1, list_tiers[b], -1):
            highest, total = _add_to_rest(
                w, local, starts[m] - base, starts[m + 1] - base, leaves, highest, total, mass
            )
            begin, stop = starts[m - 1] - base, starts[m] - base
            if top is not None and begin >= top:
                continue
            n, log_total = stop - begin, math.log(total)
            places = n if top is None else min(n, top - begin)
            for i in range(n):
                log_odds[i] = (w[begin + i] - highest) - log_total
            weight = list_weights[b] * (weights[m - 1] if weights.size else 1.0)
            if top is not None and places < n:
                pull, second_of_all = _divided_tier(
                    log_odds, n, places, begin, local, leaves, depth, room, sums, own_slope, own_second, mixed
                )
                _denominator_shares(w, local, begin, stop, leaves, highest, total, mass, shares)
            else:
                pull, second_of_all = _undivided_tier(
                    log_odds, n, begin, local, leaves, depth, room, sums, own_slope, own_second, mixed
                )
            for u in range(leaves):
                share = mass[u] / total
                slope[found[u]] += weight * (own_slope[u] - share * pull)
                exact = (
                    own_second[u]
                    - 2.0 * share * mixed[u]
                    + share * share * second_of_all
                    - share * (1.0 - share) * pull
                )
                if places < n and exact >= 0.0:
                    exact = -places * shares[u] * (1.0 - shares[u])
                second[found[u]] += weight * exact
    return -1


@kernel
def _denominators(first, last, scores, order, starts, list_tiers, top, curvature):
    """For every item of the lists first..last the sum over tiers of places p (1 - p), p its share of the items left."""
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
    """-d2 of the denominators alone, as if every place were drawn from all items left at the start of its tier.

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
    places = kernel_cutoff(top, tiers)
    parts: dict[int, tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]] = {}

    def call(first: int, last: int) -> int:
        slope, second = np.zeros(leaves), np.zeros(leaves)
        parts[first] = slope, second
        return int(
            leaf_lists(
                first, last, scores, leaf, tiers.order, tiers.starts, tiers.list_tiers, weights, list_weights, places,
                depth_of(tol), slope, second,
            )
        )  # fmt: skip

    for position in run_over_ranges(call, tiers.offsets * _COST_PER_ITEM):
        if position >= 0:
            raise_bad_score(float(scores[position]), position)
    slope, second = np.zeros(leaves), np.zeros(leaves)
    for first in sorted(parts):  # in the same order in every run
        slope += parts[first][0]
        second += parts[first][1]
    return slope, second
