"""The likelihood of whole lists in compiled code: one pass up for every w_R, one pass down for value and derivatives.

The functions here run without the interpreter lock on the lists first..last, so that `plackett.threads` can distribute
them. `order` holds the items of each list by tier, best tier first; see `plackett.likelihood.core`.

Over the items of R the derivatives of log P(S > R) are, with s = softmax_R, G = sum_i g_i and A the second derivative
along all items of S together,

    gradient_j = -s_j G,      curvature_j = s_j G - s_j^2 (A + G)

An item sums this over all tiers above its own. Going down, w_R only falls, so the sums are carried along scaled by
exp(w_R) of the latest tier: each step multiplies by a number of at most 1, and the pass costs one exponential per item.

Loops that should be vectorised run over unsigned numbers: a signed index might be negative and count from the end.
"""

import math

import numpy as np

from plackett.compilation import inner, inner_part, inner_sum, light_kernel
from plackett.likelihood.constants import LARGEST_CLOSED_FORM, LARGEST_SCORE, MOST_NODES
from plackett.likelihood.elementary import fast_exp
from plackett.likelihood.integral import tier_log_probability
from plackett.likelihood.kernel_parts import longest_list, longest_tiered_list


@inner_sum
def _add_tier(w, first, last, highest, total):
    """logsumexp as a pair (highest, total): add the items first..last."""
    peak = w[first]
    for i in range(np.uint64(first), np.uint64(last)):
        peak = max(peak, w[i])
    if peak > highest:
        total *= math.exp(highest - peak)
        highest = peak
    added = 0.0
    for i in range(np.uint64(first), np.uint64(last)):
        added += fast_exp(w[i] - highest)
    return highest, total + added


@inner
def _rest_log_sums(w, starts, begin, end, rest_peak, rest_log):
    """For the tiers begin..end of a list, all but the last, logsumexp of all below as rest_peak + rest_log.

    The two are kept apart so that w - w_R keeps the digits of w - rest_peak, however large the scores.
    """
    highest = -math.inf
    total = 0.0
    base = starts[begin]
    for m in range(end - 1, begin, -1):
        highest, total = _add_tier(w, starts[m] - base, starts[m + 1] - base, highest, total)
        rest_peak[m - 1 - begin] = highest
        rest_log[m - 1 - begin] = math.log(total)


@inner
def _inherit(w, first, last, peak, log_total, carried, carried_square, gradient, curvature):
    """The contribution of the tiers above to the derivatives of the items first..last."""
    for i in range(np.uint64(first), np.uint64(last)):
        share = fast_exp(min((w[i] - peak) - log_total, 0.0))
        gradient[i] = -share * carried
        curvature[i] = share * carried - share * share * carried_square


@inner_part
def _strict_list(w, upper, size, top, weights, begin, chosen, kept, gradient, curvature):
    """A list whose first `upper` items are tiers of their own and whose other items are the bottom tier.

    With W_i = logsumexp of item i and all below it, item i is chosen with probability exp(w_i - W_i), and
    exp(W_{i+1} - W_i) is the probability that it is not. Both come from one exponential, and the sums over the tiers
    above are carried down by multiplying with the second.
    """
    places = upper if top is None else min(top, upper)
    peak, total = _add_tier(w, upper, size, -math.inf, 0.0)
    log_total = math.log(total)
    rest_peak, rest_log = peak, log_total  # kept apart, see `_rest_log_sums`
    value = 0.0
    for i in range(upper - 1, -1, -1):
        gap = (w[i] - rest_peak) - rest_log
        e = math.exp(-abs(gap))
        larger = 1.0 / (1.0 + e)
        log_sum = math.log1p(e)
        if gap > 0.0:
            rest_peak, rest_log = w[i], log_sum
        else:
            rest_log += log_sum
        if gradient is not None:
            chosen[i] = larger if gap > 0.0 else e * larger
            kept[i] = e * larger if gap > 0.0 else larger
        if i < places:
            weight = weights[begin + i] if weights.size else 1.0
            value += weight * (min(gap, 0.0) - log_sum)
    if gradient is not None:
        carried, carried_square = 0.0, 0.0
        for i in range(upper):
            p, keep = chosen[i], kept[i]
            gradient[i] = -p * carried
            curvature[i] = p * carried - p * p * carried_square
            if i < places:
                weight = weights[begin + i] if weights.size else 1.0
                gradient[i] += weight * keep
                curvature[i] += weight * p * keep
                carried += weight
                carried_square += weight
            carried *= keep
            carried_square *= keep * keep
        _inherit(w, upper, size, peak, log_total, carried, carried_square, gradient, curvature)
    return value


@inner_part
def _one_list(
    w, starts, begin, end, top, depth, weights,
    rest_peak, rest_log, log_odds, tier_gradient, tier_curvature, nodes, exponent, work, gradient, curvature,
):  # fmt: skip
    """Value and estimated error of one list, whose tiers are begin..end, and whether log P is concave in its scores.

    Derivatives are in the order of `w`.
    """
    _rest_log_sums(w, starts, begin, end, rest_peak, rest_log)
    base = starts[begin]
    value = 0.0
    error = 0.0
    carried = 0.0  # sum over the tiers above of G exp(latest w_R - w_R)
    carried_square = 0.0  # the same of (A + G), with the exponential squared
    concave = weights.size == 0
    for m in range(end - begin):
        first, last = starts[begin + m] - base, starts[begin + m + 1] - base
        if gradient is not None:
            above = max(m - 1, 0)
            _inherit(w, first, last, rest_peak[above], rest_log[above], carried, carried_square, gradient, curvature)
        if m == end - begin - 1:
            break
        peak, log_total = rest_peak[m], rest_log[m]
        if m > 0:
            shrink = math.exp((peak - rest_peak[m - 1]) + (log_total - rest_log[m - 1]))
            carried *= shrink
            carried_square *= shrink * shrink
        if top is not None and first >= top:
            continue
        n = last - first
        if top is not None:
            concave = concave and n <= top - first
        for i in range(n):
            log_odds[i] = (w[first + i] - peak) - log_total
        log_probability, second, log_error = tier_log_probability(
            log_odds, n, first, top, depth, nodes, exponent, work, tier_gradient, tier_curvature
        )
        weight = weights[begin + m] if weights.size else 1.0
        value += weight * log_probability
        error += math.exp(log_error)
        if gradient is not None:
            pull = 0.0
            for i in range(n):
                gradient[first + i] += weight * tier_gradient[i]
                curvature[first + i] += weight * tier_curvature[i]
                pull += tier_gradient[i]
            carried += weight * pull
            carried_square += weight * (second + pull)
    return value, error, concave


@light_kernel
def partition_lists(first, last, scores, order, starts, list_tiers, weights, top, depth, value, error, grad, curv):
    """Fill value and error for the lists first..last, and grad and curv for their items unless they are None.

    Tier m begins at position starts[m] of `order`; list b has the tiers list_tiers[b]..list_tiers[b + 1]. `weights`
    multiplies log P of each tier, unless it is empty. Only the first `top` places count, or all if it is None.
    Returns the position in `scores` of a score that is not finite or too large, or -1.
    """
    longest = max(longest_tiered_list(starts, list_tiers, first, last), LARGEST_CLOSED_FORM)
    most_tiers = longest_list(list_tiers, first, last)
    w, log_odds = np.empty(longest), np.empty(longest)
    if grad is None:
        gradient, curvature, tier_gradient, tier_curvature = None, None, None, None
    else:
        gradient, curvature = np.empty(longest), np.empty(longest)
        tier_gradient, tier_curvature = np.empty(longest), np.empty(longest)
    rest_peak, rest_log = np.empty(most_tiers), np.empty(most_tiers)
    nodes, exponent, work = np.empty((4, MOST_NODES)), np.empty(MOST_NODES, np.int64), np.empty((3, longest))
    for b in range(first, last):
        base = starts[list_tiers[b]]
        size = starts[list_tiers[b + 1]] - base
        for i in range(size):
            w[i] = scores[order[base + i]]
            if not abs(w[i]) <= LARGEST_SCORE:
                return order[base + i]
        concave = False
        upper = starts[max(list_tiers[b + 1] - 1, list_tiers[b])] - base  # items above the bottom tier
        if upper == 0:
            value[b], error[b] = 0.0, 0.0
            if grad is not None:
                for i in range(size):
                    gradient[i], curvature[i] = 0.0, 0.0
        elif upper == list_tiers[b + 1] - 1 - list_tiers[b]:
            value[b] = _strict_list(
                w, upper, size, top, weights, list_tiers[b], tier_gradient, tier_curvature, gradient, curvature
            )
            error[b] = 0.0
        else:
            value[b], error[b], concave = _one_list(
                w, starts, list_tiers[b], list_tiers[b + 1], top, depth, weights, rest_peak, rest_log,
                log_odds, tier_gradient, tier_curvature, nodes, exponent, work, gradient, curvature,
            )  # fmt: skip
        if grad is not None:
            for i in range(size):
                grad[order[base + i]] = gradient[i]
                # Rounding and a coarse tol must not make a concave function look convex.
                curv[order[base + i]] = max(curvature[i], 0.0) if concave else curvature[i]
    return -1
