"""Rankings with dead heats, the Davidson-Luce model, in compiled code.

At each stage a set T of k <= D items is chosen from those left, A, with a weight proportional to
delta_k (product of alpha_i over T)^(1/k), delta_1 = 1 (Firth, Kosmidis and Turner 2019). With a_k,i = alpha_i^(1/k) and
e_j(k) the elementary symmetric polynomials of the a_k of A, the normaliser is

    Z = sum over k of delta_k e_k(k)

Going up a ballot, A only grows, and one more item changes e_j(k) to e_j(k) + a_k,i e_(j-1)(k): all stages together cost
O(N D^2), all terms are positive, and no set is enumerated.

The first derivatives are observed less expected shares, share_i = 1[i in T] / |T|. Leaving out one or two items of A is
a polynomial in their a_k, e_j(A - i) = sum over r of (-a)^r e_(j-r)(A), so that with the monomials

    v_i = (alpha_i, a_k,i^p for 2 <= k <= D and 1 <= p < k)

the expected share of i at stage s is c_s'v_i, and Cov[share_i, share_j] is v_i'(B_s - c_s c_s')v_j, with

    c_s:  (-1)^(p-1) delta_k e_(k-p)(k) / (k Z) for a_k^p,   sum over k of (-1)^(k-1) delta_k / (k Z) for alpha
    B_s:  (-1)^(p+q) delta_k e_(k-p-q)(k) / (k^2 Z) for a_k^p a_k^q, p + q <= k

An item is part of all stages down to its own, so sums over stages are carried down the ballot, and a pair of items
costs a product of vectors of length 1 + D (D - 1) / 2: two numbers where dead heats are of two. Terms of alternating
signs add up to probabilities, and each is at most about as large as the largest of them, so that errors are a few units
of rounding of probabilities.
"""

import math

import numpy as np

from plackett.aggregation.ballot_kernels import GRADIENT, INFORMATION
from plackett.compilation import inner, kernel

# A product of totals becomes a logarithm before the next factor, within 1e-131 and 1e131 where scores are at most 300
# apart, can make it leave the range of float64.
_SMALLEST_PRODUCT, _LARGEST_PRODUCT = 1e-150, 1e150


@inner
def _polynomials(k):
    """Where e_1(k) is; e_2(k) to e_k(k) follow."""
    return k * (k - 1) // 2


@inner
def _monomials(k):
    """Where a_k^1 is in v; a_k^2 to a_k^(k-1) follow."""
    return 1 + (k - 1) * (k - 2) // 2


@inner
def _add_item(state, roots, row, most):
    """One more item in A."""
    for k in range(1, most + 1):
        a = roots[row, k - 1]
        e = _polynomials(k)
        for j in range(e + k - 1, e, -1):
            state[j] += a * state[j - 1]
        state[e] += a


@inner
def _share_coefficients(state, deltas, most, total, shares, lasts, stage):
    """The c of a stage; shares[k] is the probability of a set of k items, lasts[k] its part of the first of c."""
    stage[0] = 0.0
    for k in range(1, most + 1):
        e, v = _polynomials(k), _monomials(k)
        factor = deltas[k - 1] / total
        shares[k] = factor * state[e + k - 1]
        factor /= k
        for p in range(1, k):
            stage[v + p - 1] = factor * state[e + k - p - 1]
            factor = -factor
        lasts[k] = factor
        stage[0] += factor


@inner
def _add_pair_coefficients(state, deltas, most, total, stage, carried):
    """Add B - c c' of a stage to the lower half of `carried`."""
    for m in range(stage.size):
        for h in range(m + 1):
            carried[m, h] -= stage[m] * stage[h]
    for k in range(2, most + 1):
        e, v = _polynomials(k), _monomials(k)
        factor = deltas[k - 1] / (k * k * total)
        for p in range(1, k):
            for q in range(1, min(p, k - p) + 1):
                term = factor if k == p + q else factor * state[e + k - p - q - 1]
                carried[v + p - 1, v + q - 1] += term if (p + q) % 2 == 0 else -term


@inner
def _add_tie_coefficients(most, shares, lasts, stage, weight, crossed, matrix, ties):
    """Add Cov[share, 1[|T| = k]] of a stage as a polynomial, and the information of the tie parameters."""
    for k in range(2, most + 1):
        v = _monomials(k)
        for m in range(stage.size):
            crossed[k, m] -= shares[k] * stage[m]
        for m in range(v, v + k - 1):
            crossed[k, m] += stage[m]
        crossed[k, 0] += lasts[k]
        matrix[ties + k - 2, ties + k - 2] += weight * shares[k]
        for h in range(2, k + 1):
            matrix[ties + k - 2, ties + h - 2] -= weight * shares[k] * shares[h]


@inner
def _add_products(matrix, item, items, base, factors, tables, joint, first, last):
    """Add the product of `factors` and the columns first..last of `tables` to the row of an item."""
    begin, end = np.uint64(first), np.uint64(last)  # unsigned, so that loops are vectorised
    f0, f1 = factors[0], factors[1]
    t0, t1 = tables[0], tables[1]
    for j in range(begin, end):
        joint[j] = f0 * t0[j] + f1 * t1[j]
    for m in range(2, factors.size, 2):
        f0, t0 = factors[m], tables[m]
        f1, t1 = (factors[m + 1], tables[m + 1]) if m + 1 < factors.size else (0.0, t0)
        for j in range(begin, end):
            joint[j] += f0 * t0[j] + f1 * t1[j]
    for j in range(begin, end):
        matrix[item, np.uint64(items[np.uint64(base) + j])] += joint[j]


@kernel
def dead_heat_derivatives(
    first, last, sizes, scores, roots, powers, log_deltas, deltas, rows, items, starts, ballot_tiers, weights, scales,
    order, values, slopes, tie_slopes, matrix,
):  # fmt: skip
    """log P of the ballots first..last and its derivatives.

    `sizes` is anything of length D; with a tuple D is known to the compiler, which makes small D twice as fast.
    Entry i has the utility scores[rows[i]]: rows are the items, or with `scales`, a factor of each ballot that may be
    None, the entries, whose utilities have this factor. roots[r, k - 1] is alpha_r^(1/k), powers[r] are the monomials
    v_r. `values` receives log P of each ballot, `slopes` the derivative by the utility of each entry, tie_slopes[b,
    k - 2] those by log delta_k. The matrix receives, times the weight of the ballot, the information: items first, then
    log delta_2 to log delta_D; each pair once, in either place, and of pairs of items only those off the diagonal.
    Returns 0.
    """
    most = len(sizes)
    size = 1 + most * (most - 1) // 2
    ties = matrix.shape[0] - most + 1
    tiers, longest = 1, 1
    for b in range(first, last):
        tiers = max(tiers, ballot_tiers[b + 1] - ballot_tiers[b])
        longest = max(longest, starts[ballot_tiers[b + 1]] - starts[ballot_tiers[b]])
    state = np.empty(_polynomials(most + 1))
    states, totals = np.empty((tiers, state.size)), np.empty(tiers)
    shares, lasts = np.empty(most + 1), np.empty(most + 1)
    stage, summed, product = np.empty(size), np.empty(size), np.empty(size)
    carried, crossed = np.empty((size, size)), np.empty((most + 1, size))
    tables, joint = np.empty((size, longest)), np.empty(longest)
    for b in range(first, last):
        begin, end = ballot_tiers[b], ballot_tiers[b + 1]
        base, entries = starts[begin], starts[end] - starts[begin]
        for k in range(state.size):
            state[k] = 0.0
        value, product_of_totals = 0.0, 1.0
        for m in range(end - 1, begin - 1, -1):
            left, right = starts[m], starts[m + 1]
            chosen = 0.0
            for i in range(left, right):
                _add_item(state, roots, rows[i], most)
                chosen += scores[rows[i]]
            total = 0.0
            for k in range(1, most + 1):
                total += deltas[k - 1] * state[_polynomials(k + 1) - 1]
            totals[m - begin] = total
            for k in range(state.size):
                states[m - begin, k] = state[k]
            value += log_deltas[0] if right - left == 1 else log_deltas[right - left - 1]
            value += chosen if right - left == 1 else chosen / (right - left)
            product_of_totals *= total
            if not _SMALLEST_PRODUCT < product_of_totals < _LARGEST_PRODUCT:
                value -= math.log(product_of_totals)
                product_of_totals = 1.0
        values[b] = value - math.log(product_of_totals)
        if order < GRADIENT:
            continue
        for i in range(entries):
            row = rows[base + i]
            for m in range(size):
                tables[m, i] = powers[row, m]
        for m in range(size):
            summed[m] = 0.0
            for h in range(m + 1):
                carried[m, h] = 0.0
            for k in range(2, most + 1):
                crossed[k, m] = 0.0
        for k in range(most - 1):
            tie_slopes[b, k] = 0.0
        weight = weights[b]
        scale = 1.0 if scales is None else scales[b]
        for t in range(begin, end):
            left, right = starts[t], starts[t + 1]
            total = totals[t - begin]
            _share_coefficients(states[t - begin], deltas, most, total, shares, lasts, stage)
            for m in range(size):
                summed[m] += stage[m]
            if right - left >= 2:
                tie_slopes[b, right - left - 2] += 1.0
            for k in range(2, most + 1):
                tie_slopes[b, k - 2] -= shares[k]
            for i in range(left, right):
                expected = 0.0
                for m in range(size):
                    expected += summed[m] * tables[m, i - base]
                slopes[i] = 1.0 / (right - left) - expected
            if order < INFORMATION:
                continue
            _add_pair_coefficients(states[t - begin], deltas, most, total, stage, carried)
            _add_tie_coefficients(most, shares, lasts, stage, weight, crossed, matrix, ties)
            for i in range(left, right):
                item = items[i]
                for m in range(size):
                    product[m] = 0.0
                    for h in range(size):
                        product[m] += carried[max(m, h), min(m, h)] * tables[h, i - base]
                    product[m] *= weight * scale * scale
                _add_products(matrix, item, items, base, product, tables, joint, i - base + 1, entries)
                for k in range(2, most + 1):
                    mixed = 0.0
                    for m in range(size):
                        mixed += crossed[k, m] * tables[m, i - base]
                    matrix[ties + k - 2, item] += weight * scale * mixed
    return 0
