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


@inner
def _monomial(k, p):
    """The place of a_k^p in v."""
    return 1 + (k - 1) * (k - 2) // 2 + p - 1


@inner
def _add_item(state, roots, item, most):
    """One more item in A: state[k, j] is e_j(k)."""
    for k in range(1, most + 1):
        a = roots[item, k - 1]
        for j in range(k, 0, -1):
            state[k, j] += a * state[k, j - 1]


@inner
def _share_coefficients(state, deltas, most, total, shares, own):
    """The c of a stage, and own[k], the part of it that comes from sets of k items; shares[k] is their probability."""
    size = own.shape[1]
    for k in range(1, most + 1):
        for m in range(size):
            own[k, m] = 0.0
        factor = deltas[k - 1] / (k * total)
        shares[k] = deltas[k - 1] * state[k, k] / total
        sign = 1.0
        for p in range(1, k):
            own[k, _monomial(k, p)] = sign * factor * state[k, k - p]
            sign = -sign
        own[k, 0] = sign * factor


@inner
def _add_pair_coefficients(state, deltas, most, total, carried):
    """Add the B of a stage."""
    for k in range(2, most + 1):
        factor = deltas[k - 1] / (k * k * total)
        for p in range(1, k):
            for q in range(1, k - p + 1):
                sign = 1.0 if (p + q) % 2 == 0 else -1.0
                carried[_monomial(k, p), _monomial(k, q)] += sign * factor * state[k, k - p - q]


@kernel
def dead_heat_derivatives(
    first, last, scores, roots, powers, log_deltas, deltas, items, starts, ballot_tiers, weights, order, values, slopes,
    tie_slopes, matrix,
):  # fmt: skip
    """log P of the ballots first..last and its derivatives.

    roots[i, k - 1] is alpha_i^(1/k), powers[i] are the monomials v_i. `values` receives log P of each ballot, `slopes`
    the derivative by the score of each entry, tie_slopes[b, k - 2] those by log delta_k. The matrix receives, times the
    weight of the ballot, the information: items first, then log delta_2 to log delta_D; each pair once, in either
    place, and of pairs of items only those off the diagonal. Returns 0.
    """
    most, count, size = deltas.size, scores.size, powers.shape[1]
    longest = 1
    for b in range(first, last):
        longest = max(longest, ballot_tiers[b + 1] - ballot_tiers[b])
    states = np.zeros((longest, most + 1, most + 1))
    totals = np.empty(longest)
    state = np.zeros((most + 1, most + 1))
    shares = np.empty(most + 1)
    own = np.empty((most + 1, size))
    stage, summed, product = np.empty(size), np.empty(size), np.empty(size)
    carried, crossed = np.empty((size, size)), np.empty((most + 1, size))
    for b in range(first, last):
        begin, end = ballot_tiers[b], ballot_tiers[b + 1]
        for k in range(most + 1):
            for j in range(most + 1):
                state[k, j] = 1.0 if j == 0 else 0.0
        value = 0.0
        for m in range(end - 1, begin - 1, -1):
            left, right = starts[m], starts[m + 1]
            chosen = 0.0
            for i in range(left, right):
                _add_item(state, roots, items[i], most)
                chosen += scores[items[i]]
            total = 0.0
            for k in range(1, most + 1):
                total += deltas[k - 1] * state[k, k]
            totals[m - begin] = total
            for k in range(1, most + 1):
                for j in range(k + 1):
                    states[m - begin, k, j] = state[k, j]
            value += chosen / (right - left) + log_deltas[right - left - 1] - math.log(total)
        values[b] = value
        if order < GRADIENT:
            continue
        for m in range(size):
            summed[m] = 0.0
            for h in range(size):
                carried[m, h] = 0.0
            for k in range(2, most + 1):
                crossed[k, m] = 0.0
        for k in range(most - 1):
            tie_slopes[b, k] = 0.0
        weight = weights[b]
        last_entry = starts[end]
        for t in range(begin, end):
            left, right = starts[t], starts[t + 1]
            total = totals[t - begin]
            _share_coefficients(states[t - begin], deltas, most, total, shares, own)
            for m in range(size):
                stage[m] = 0.0
                for k in range(1, most + 1):
                    stage[m] += own[k, m]
                summed[m] += stage[m]
            if right - left >= 2:
                tie_slopes[b, right - left - 2] += 1.0
            for k in range(2, most + 1):
                tie_slopes[b, k - 2] -= shares[k]
            for i in range(left, right):
                expected = 0.0
                for m in range(size):
                    expected += summed[m] * powers[items[i], m]
                slopes[i] = 1.0 / (right - left) - expected
            if order < INFORMATION:
                continue
            _add_pair_coefficients(states[t - begin], deltas, most, total, carried)
            for m in range(size):
                for h in range(size):
                    carried[m, h] -= stage[m] * stage[h]
            for k in range(2, most + 1):
                for m in range(size):
                    crossed[k, m] += own[k, m] - shares[k] * stage[m]
                matrix[count + k - 2, count + k - 2] += weight * shares[k]
                for h in range(2, k + 1):
                    matrix[count + k - 2, count + h - 2] -= weight * shares[k] * shares[h]
            for i in range(left, right):
                item = items[i]
                for m in range(size):
                    product[m] = 0.0
                    for h in range(size):
                        product[m] += carried[m, h] * powers[item, h]
                    product[m] *= weight
                for j in range(i + 1, last_entry):
                    other = items[j]
                    joint = product[0] * powers[other, 0]
                    for m in range(1, size):
                        joint += product[m] * powers[other, m]
                    matrix[item, other] += joint
                for k in range(2, most + 1):
                    mixed = 0.0
                    for m in range(size):
                        mixed += crossed[k, m] * powers[item, m]
                    matrix[count + k - 2, item] += weight * mixed
    return 0
