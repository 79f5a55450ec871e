"""The likelihood of many ballots over common items, with its gradient and information matrix, in compiled code.

Worths e_i = exp(w_i) are computed once for all ballots, so that a strict ballot costs one logarithm and no exponential.
A tier S above R, with a_i = e_i / e_R, contributes log P(S > R). Its derivatives by l_i = log a_i are written

    g_i = d log P / d l_i,   H_ik = d2 log P / d l_i d l_k,   h_i = sum_k H_ik,   G = sum_i g_i,   B = G + sum_i h_i

and those by the scores, with s the shares of the items of R (adding up to 1), are

    gradient:          g_i in S,   -s_j G in R
    -second, i != j:   -H_ik within S,   s_j h_i between S and R,   -s_j s_k B within R

All of them are zero or negative and every row adds up to zero with the diagonal: the information is the Laplacian of a
weighted graph, whose diagonal follows from the rest without cancellation. Sums over the tiers above are carried down a
ballot, as in `plackett.likelihood.list_kernels`, so that a ballot of N items costs N^2 / 2 additions to the matrix
however many tiers it has.

Small tiers are rational functions of a, by who comes first, without cancellation in P:

    P(T > R) = c_T  product of a / (1 + a),   c_T = sum over i in T of (1 + a_i) c_{T - i}  /  (1 + sum a)

with c = 1 for one item and (2 + a_i + a_j) / (1 + a_i + a_j) for two. Larger tiers come from the nodes of the
quadrature: H_ik = Cov[phi_i, phi_k] and h_i = Cov[phi_i, t] (see `plackett.likelihood.integral`).
"""

import math

import numpy as np

from plackett.compilation import inner, inner_sum, kernel
from plackett.likelihood.integral import tier_nodes
from plackett.likelihood.kernel_parts import (
    ITEM_ODDS,
    NODE_LOG,
    NODE_T,
    NODE_WEIGHT,
    NODE_Y,
    decay_rate,
    deep_threshold,
    dot,
    longest_list,
    longest_tiered_list,
    make_workspace,
)
from plackett.random_kernels import GOLDEN, scramble

VALUE, GRADIENT, INFORMATION = 0, 1, 2
LARGEST_RATIONAL = 4  # beyond it the number of subsets costs more than nodes do
# Beyond exp(230) an item comes before R with probability 1 in float64, and products of such numbers are finite.
_LARGEST_ODDS = 1e100
# A product of probabilities becomes a logarithm before the next factor, at least 1e-261, can make it underflow.
_SMALLEST_PRODUCT = 1e-40


@kernel
def hash_ballots(first, last, items, starts, ballot_tiers, count, hashes):
    """Two hashes of each ballot, the same for items of a tier in any order.

    Returns the position of an item that its ballot holds already, or -1. `count` is the number of items there are.
    """
    seen = np.full(count, -1, np.int64)
    for b in range(first, last):
        one, two = np.uint64(1), np.uint64(2)
        for m in range(ballot_tiers[b], ballot_tiers[b + 1]):
            tier_one, tier_two = np.uint64(0), np.uint64(0)
            for i in range(starts[m], starts[m + 1]):
                item = items[i]
                if seen[item] == b:
                    return i
                seen[item] = b
                key = scramble(np.uint64(item + 1) * GOLDEN)
                tier_one += key
                tier_two += scramble(key + GOLDEN)
            one = scramble(one * GOLDEN + tier_one)
            two = scramble(two * GOLDEN + tier_two)
        hashes[0, b] = one
        hashes[1, b] = two
    return -1


@inner
def _pair(a, i, k, subset, factor, gradient, second):
    """The items i < k: c, and the derivatives of log P, in row `subset`."""
    u = 1.0 / (2.0 + a[i] + a[k])
    v = 1.0 / (1.0 + a[i] + a[k])
    for j in (i, k):
        p = 1.0 / (1.0 + a[j])
        gradient[subset, j] = p - a[j] * v * u
        second[subset, j, j] = a[j] * v * u * (a[j] * (u + v) - 1.0) - a[j] * p * p
    second[subset, k, i] = a[i] * v * (a[k] * u) * (u + v)
    factor[subset] = v / u


@inner
def _mixture(a, n, subset, slopes, weights, factor, gradient, second):
    """Three items or more by who comes first, from the rows of the subsets without it.

    log P(T > R) is the logarithm of a mixture. With q the probability that i comes first given T > R, and x the
    gradient of log (a_i P(T - i > R)), its second derivatives are E[those of log P(T - i > R)] + Cov[x], less those of
    log (1 + sum a). Items outside T have zero derivatives.
    """
    total = 1.0
    weight = 0.0
    for i in range(n):
        weights[i] = 0.0
        if subset >> i & 1:
            total += a[i]
            weights[i] = (1.0 + a[i]) * factor[subset ^ (1 << i)]
            weight += weights[i]
    for k in range(n):
        gradient[subset, k] = 0.0
    for i in range(n):
        if subset >> i & 1:
            weights[i] /= weight
            for k in range(n):
                slopes[i, k] = gradient[subset ^ (1 << i), k]
            slopes[i, i] = 1.0
            for k in range(n):
                gradient[subset, k] += weights[i] * slopes[i, k]
    for j in range(n):
        for k in range(j + 1):
            mixed = 0.0
            for i in range(n):
                if subset >> i & 1:
                    away = (slopes[i, j] - gradient[subset, j]) * (slopes[i, k] - gradient[subset, k])
                    mixed += weights[i] * (second[subset ^ (1 << i), j, k] + away)
            second[subset, j, k] = mixed
    for j in range(n):
        if subset >> j & 1:
            share = a[j] / total
            gradient[subset, j] -= share
            second[subset, j, j] -= share
            for k in range(j + 1):
                if subset >> k & 1:
                    second[subset, j, k] += share * (a[k] / total)
    factor[subset] = weight / total


@inner
def _small_tier(a, n, slopes, weights, factor, gradient, second):
    """A tier of two items or a few more, in row 2^n - 1 of `factor`, `gradient` and the lower half of `second`."""
    if n == 2:
        _pair(a, 0, 1, 3, factor, gradient, second)
        return
    for k in range(1, n):
        for i in range(k):
            _pair(a, i, k, 1 << i | 1 << k, factor, gradient, second)
    for subset in range(7, 1 << n):
        if subset & (subset - 1) & ((subset & (subset - 1)) - 1):  # three bits or more
            _mixture(a, n, subset, slopes, weights, factor, gradient, second)


@inner_sum
def _node_moments(rate, t, q, root, mean_t, centred):
    """E[phi] and Cov[phi, t] of one item; `centred` receives (phi - E[phi]) sqrt(q) at every node."""
    mean = 0.0
    for k in range(t.size):
        centred[k] = decay_rate(rate * t[k])
        mean += q[k] * centred[k]
    covariance = 0.0
    for k in range(t.size):
        away = centred[k] - mean
        covariance += q[k] * away * (t[k] - mean_t)
        centred[k] = away * root[k]
    return mean, covariance


@inner
def _large_tier(log_odds, n, depth, level, room, gradient, row_sum, weight, tier_items, matrix):
    """log P of a tier by quadrature, with g and h; H is subtracted from the matrix at once, times the weight."""
    shallow, first = tier_nodes(log_odds, n, depth, room.nodes, room.exponent, room.items)
    odds, nodes = room.items[ITEM_ODDS], room.nodes
    y, t, f, q = nodes[NODE_Y, first:], nodes[NODE_T, first:], nodes[NODE_LOG, first:], nodes[NODE_WEIGHT, first:]
    best, mean_t = 0, 0.0
    root = np.empty(t.size)
    for k in range(t.size):
        if q[k] > q[best]:
            best = k
        mean_t += q[k] * t[k]
        root[k] = math.sqrt(q[k])
    value = f[best] - math.log(q[best]) + math.log(y[1] - y[0])
    keep = level >= INFORMATION
    centred = np.empty((shallow if keep else 1, t.size))
    threshold = deep_threshold(n)
    place = np.empty(shallow, np.int64)
    j = 0
    for i in range(n):
        if log_odds[i] > threshold:
            place[j] = i
            gradient[i], row_sum[i] = _node_moments(odds[j], t, q, root, mean_t, centred[j if keep else 0])
            j += 1
        else:  # phi is 1 at every node, and the odds stay outside the integral
            gradient[i], row_sum[i] = 1.0, 0.0
            value += log_odds[i]
    if keep:
        for i in range(1, shallow):
            row = matrix[tier_items[place[i]]]
            for k in range(i):
                row[tier_items[place[k]]] -= weight * dot(centred[i], centred[k])
    return value


@inner
def _add_shares(matrix, row, items, base, shares, first, last, factor):
    """Add factor * share to the row of the matrix, for the items first..last of a ballot."""
    for k in range(np.uint64(first), np.uint64(last)):
        matrix[row, np.uint64(items[np.uint64(base) + k])] += factor * shares[k]


@kernel
def ballot_derivatives(
    first, last, worths, scores, rows, items, starts, ballot_tiers, weights, scales, depth, level, value, gradient,
    matrix, scale_slopes,
):  # fmt: skip
    """Add the ballots first..last, times their weights, to value[0], `gradient` and `matrix`.

    Entry i has the utility scores[rows[i]], and worths[rows[i]], its exponential: rows are the items, or with `scales`,
    a factor of each ballot, the entries, whose utilities have this factor. `scale_slopes` then receives the derivative
    by each factor, times the factor; both may be None. The matrix receives each pair of items once, in either of its
    two places, and nothing on the diagonal. `scores` are at most 600 apart. Returns 0.
    """
    longest = longest_tiered_list(starts, ballot_tiers, first, last)
    most_tiers = longest_list(ballot_tiers, first, last)
    e, share = np.empty(longest), np.empty(longest)
    slope, row_sum = np.empty(longest), np.empty(longest)  # g and h of all tiers
    kept, pull, second = np.empty(most_tiers), np.empty(most_tiers), np.empty(most_tiers)
    odds, log_odds, room = np.empty(LARGEST_RATIONAL), np.empty(longest), make_workspace(longest)
    subsets = 1 << LARGEST_RATIONAL
    factors, slopes = np.ones(subsets), np.zeros((subsets, LARGEST_RATIONAL))
    seconds = np.zeros((subsets, LARGEST_RATIONAL, LARGEST_RATIONAL))
    mixed_slopes, mixed_weights = np.empty((LARGEST_RATIONAL, LARGEST_RATIONAL)), np.empty(LARGEST_RATIONAL)
    for b in range(first, last):
        begin, end = ballot_tiers[b], ballot_tiers[b + 1]
        base, size = starts[begin], starts[end] - starts[begin]
        ballot, own_rows = items[base : base + size], rows[base : base + size]
        scale = 1.0 if scales is None else scales[b]
        weight = weights[b] * scale * scale  # of second derivatives
        for i in range(size):
            e[i] = worths[own_rows[i]]
        bottom = starts[end - 1] - base
        rest = 0.0
        for i in range(bottom, size):
            rest += e[i]
        for i in range(bottom, size):
            share[i] = e[i] / rest
        log_p, product = 0.0, 1.0

        # Up the ballot: every tier against all below it. share becomes the part of an item in its tier and all below.
        for m in range(end - 2, begin - 1, -1):
            left, right = starts[m] - base, starts[m + 1] - base
            n = right - left
            total = rest
            for i in range(left, right):
                total += e[i]
            for i in range(left, right):
                share[i] = e[i] / total
            keep = rest / total
            if n == 1:
                p = share[left]
                product *= p
                slope[left] = keep
                row_sum[left] = -p * keep
            elif n <= LARGEST_RATIONAL:
                for i in range(n):
                    odds[i] = min(e[left + i] / rest, _LARGEST_ODDS)
                    product *= odds[i] / (1.0 + odds[i])
                    if product < _SMALLEST_PRODUCT:
                        log_p += math.log(product)
                        product = 1.0
                whole = (1 << n) - 1
                _small_tier(odds, n, mixed_slopes, mixed_weights, factors, slopes, seconds)
                product *= factors[whole]
                for i in range(n):
                    slope[left + i] = slopes[whole, i]
                    row_sum[left + i] = seconds[whole, i, i]
                for i in range(1, n):
                    for k in range(i):
                        mixed = seconds[whole, i, k]
                        row_sum[left + i] += mixed
                        row_sum[left + k] += mixed
                        if level >= INFORMATION:
                            matrix[ballot[left + i], ballot[left + k]] -= weight * mixed
            else:
                log_rest = math.log(rest)
                for i in range(n):
                    log_odds[i] = scores[own_rows[left + i]] - log_rest
                log_p += _large_tier(
                    log_odds, n, depth, level, room, slope[left:], row_sum[left:], weight, ballot[left:], matrix
                )
            if product < _SMALLEST_PRODUCT:
                log_p += math.log(product)
                product = 1.0
            pull[m - begin], second[m - begin] = 0.0, 0.0
            for i in range(left, right):
                pull[m - begin] += slope[i]
                second[m - begin] += slope[i] + row_sum[i]
            kept[m - begin] = keep
            rest = total
        value[0] += weights[b] * (log_p + math.log(product))
        if level < GRADIENT:
            continue

        # Down the ballot: what an item inherits from the tiers above, scaled by all that is left at its tier.
        carried, carried_second = 0.0, 0.0
        if scale_slopes is not None:
            scale_slopes[b] = 0.0
        for m in range(end - begin):
            left, right = starts[begin + m] - base, starts[begin + m + 1] - base
            is_bottom = m == end - begin - 1
            for i in range(left, right):
                own = 0.0 if is_bottom else slope[i]
                pulled = weights[b] * (own - share[i] * carried)
                gradient[ballot[i]] += scale * pulled
                if scale_slopes is not None:
                    scale_slopes[b] += pulled * scores[own_rows[i]]
            if is_bottom:
                break
            keep = kept[m]
            inherited = carried_second
            carried = carried * keep + pull[m]
            carried_second = carried_second * (keep * keep) + second[m]
            second[m] = inherited  # needed on the way up
        if level < INFORMATION:
            continue

        # Up again: share becomes the part of each item in all that is left, tier by tier.
        for i in range(bottom + 1, size):
            _add_shares(matrix, ballot[i], items, base, share, bottom, i, -weight * carried_second * share[i])
        for m in range(end - begin - 2, -1, -1):
            left, right = starts[begin + m] - base, starts[begin + m + 1] - base
            inherited = second[m] * weight
            for i in range(left, right):
                factor = weight * row_sum[i] - inherited * share[i] * kept[m]
                _add_shares(matrix, ballot[i], items, base, share, right, size, factor)
                _add_shares(matrix, ballot[i], items, base, share, left, i, -inherited * share[i])
            for i in range(np.uint64(right), np.uint64(size)):
                share[i] *= kept[m]
    return 0
