"""Value and gradient of losses on ragged lists, in compiled code, for CPU tensors.

Every kernel works on the lists first..last and writes one value per list and one gradient per item. Pairs are never
stored: `pair_sums` computes sums over them, or each item is compared with a run of others in vector instructions and
the sums are updated at once.
"""

import math

import numpy as np

from plackett.compilation import inner, inner_sum, kernel
from plackett.likelihood.elementary import fast_exp, fast_log1p_of_unit
from plackett.likelihood.kernel_parts import exponentials, gather, longest_list, longest_tiered_list, peak_of
from plackett.losses.pair_sums import LOGISTIC, pairs_between

_DEEPEST = 256  # two splits halve a list at least, so this is enough for 2^128 items


@inner_sum
def _cross_entropy(w, peak, log_total, target, scale):
    """sum_j scale target_j (peak + log_total - w_j)."""
    value = 0.0
    for j in range(w.size):
        value += target[j] * (log_total - (w[j] - peak))
    return scale * value


@kernel
def softmax_lists(first, last, scores, labels, only_positive, offsets, value, gradient):
    """Cross-entropy of softmax(scores) and softmax(labels), over all items or those with positive labels.

    The gradient is (mass of the target) softmax(scores) - target.
    """
    longest = longest_list(offsets, first, last)
    w_buffer, y_buffer, p_buffer = np.empty(longest), np.empty(longest), np.empty(longest)
    for b in range(first, last):
        begin, size = offsets[b], offsets[b + 1] - offsets[b]
        value[b] = 0.0
        if size == 0:
            continue
        w, y, p = w_buffer[:size], y_buffer[:size], p_buffer[:size]
        for i in range(size):
            w[i] = scores[begin + i]
            y[i] = labels[begin + i]
        label_total = exponentials(y, peak_of(y), p)
        if only_positive:
            label_total = 0.0
            for i in range(size):
                p[i] = p[i] if y[i] > 0.0 else 0.0
                label_total += p[i]
        peak = peak_of(w)
        total = exponentials(w, peak, y)  # the labels are no longer needed
        out = gradient[begin : begin + size]
        if label_total == 0.0:
            out[:] = 0.0
            continue
        value[b] = _cross_entropy(w, peak, math.log(total), p, 1.0 / label_total)
        for i in range(size):
            out[i] = y[i] / total - p[i] / label_total
    return -1


@inner
def _scatter(values, order, base, size, scattered):
    """The inverse of `gather`: values in the order of tiers go back to the places of their items."""
    for i in range(size):
        scattered[order[base + i]] = values[i]


@inner
def _middle_tier(starts, first, last):
    """The border between two of the tiers first..last - 1 that divides their items most evenly."""
    half = (starts[first] + starts[last]) // 2
    low, high = first + 1, last - 1
    while low < high:
        middle = (low + high) // 2
        if starts[middle] < half:
            low = middle + 1
        else:
            high = middle
    return low - 1 if low - 1 > first and half - starts[low - 1] < starts[low] - half else low


@kernel
def pair_lists(first, last, scores, order, starts, list_tiers, kind, table, value, gradient):
    """The sum of a loss over all pairs of an item and one of a lower tier.

    The tiers of a list are halved recursively: every item of the upper half is above every item of the lower half. Each
    level visits an item once, so the time grows with items * log(tiers).
    """
    longest = longest_tiered_list(starts, list_tiers, first, last)
    w, slopes = np.empty(longest), np.empty(longest)
    waiting = np.empty((_DEEPEST, 2), np.int64)
    for b in range(first, last):
        base = starts[list_tiers[b]]
        size = starts[list_tiers[b + 1]] - base
        total = 0.0
        for i in range(size):
            w[i] = scores[order[base + i]]
            slopes[i] = 0.0
            total += 0.0 * w[i]  # NaN if one is not finite
        waiting[0, 0], waiting[0, 1] = list_tiers[b], list_tiers[b + 1]
        depth = 1 if total == 0.0 else 0
        while depth > 0:
            depth -= 1
            begin, end = waiting[depth, 0], waiting[depth, 1]
            if end - begin < 2:
                continue
            middle = _middle_tier(starts, begin, end)
            at, border, until = starts[begin] - base, starts[middle] - base, starts[end] - base
            total += pairs_between(kind, w[at:border], w[border:until], table, slopes[at:border], slopes[border:until])
            waiting[depth, 0], waiting[depth, 1] = begin, middle
            waiting[depth + 1, 0], waiting[depth + 1, 1] = middle, end
            depth += 2
        value[b] = total
        _scatter(slopes, order, base, size, gradient)
    return -1


@inner_sum
def _logistic_curvature_row(w, lower, lower_curvature):
    """sum_j s (1 - s), s = sigmoid(lower_j - w), each also added to the lower item's curvature."""
    total = 0.0
    for j in range(lower.size):
        e = fast_exp(-abs(lower[j] - w))
        larger = 1.0 / (1.0 + e)
        curvature = e * larger * larger
        lower_curvature[j] += curvature
        total += curvature
    return total


@inner_sum
def _hinge_curvature_row(w, lower, lower_curvature):
    """As `_logistic_curvature_row`, of 1 / (2 max(|x|, 1/2)), x = 1 + lower_j - w; see `plackett.losses.curvature`."""
    total = 0.0
    for j in range(lower.size):
        curvature = 0.5 / max(abs(1.0 + (lower[j] - w)), 0.5)
        lower_curvature[j] += curvature
        total += curvature
    return total


@kernel
def pair_curvature_lists(first, last, scores, order, starts, list_tiers, kind, curvature):
    """The second derivative of the losses of `pair_lists` by each score; for the hinge, an upper bound."""
    longest = longest_tiered_list(starts, list_tiers, first, last)
    w, curvatures = np.empty(longest), np.empty(longest)
    for b in range(first, last):
        base = starts[list_tiers[b]]
        size = starts[list_tiers[b + 1]] - base
        gather(scores, order, base, size, w)
        curvatures[:size] = 0.0
        for m in range(list_tiers[b], list_tiers[b + 1] - 1):
            below = starts[m + 1] - base
            for i in range(starts[m] - base, below):
                if kind == LOGISTIC:
                    curvatures[i] += _logistic_curvature_row(w[i], w[below:size], curvatures[below:size])
                else:
                    curvatures[i] += _hinge_curvature_row(w[i], w[below:size], curvatures[below:size])
        _scatter(curvatures, order, base, size, curvature)
    return -1


@inner_sum
def _lambda_row(w, gain, discount, lower, lower_gain, lower_discount, lower_gradient):
    """sum_j of the logistic loss of each pair times the change of DCG when its items swap places, and its slopes."""
    value = 0.0
    pull = 0.0
    for j in range(lower.size):
        x = lower[j] - w
        e = fast_exp(-abs(x))
        larger = 1.0 / (1.0 + e)
        change = abs((gain - lower_gain[j]) * (discount - lower_discount[j]))
        slope = change * (larger if x > 0.0 else e * larger)
        value += change * (max(x, 0.0) + fast_log1p_of_unit(e))
        lower_gradient[j] += slope
        pull += slope
    return value, pull


@inner
def _ideal_dcg(gains, size, truncation):
    """DCG of the gains in descending order, up to the truncation level; they come in tiers, best first."""
    total = 0.0
    for i in range(min(size, truncation)):
        total += gains[i] / math.log2(2.0 + i)
    return total


@inner_sum
def _placed_row(w, gain, tier, discount, later, later_gain, later_tier, later_discount, later_gradient):
    """Like `_lambda_row`, for an item and all items in later places, whichever of the two is in the better tier."""
    value = 0.0
    pull = 0.0
    for j in range(later.size):
        # 1 if the item is preferred to j, -1 if j is, 0 if they tie
        side = (1.0 if later_tier[j] > tier else 0.0) - (1.0 if later_tier[j] < tier else 0.0)
        x = side * (later[j] - w)
        e = fast_exp(-abs(x))
        larger = 1.0 / (1.0 + e)
        change = abs(side * (gain - later_gain[j]) * (discount - later_discount[j]))
        slope = side * change * (larger if x > 0.0 else e * larger)
        value += change * (max(x, 0.0) + fast_log1p_of_unit(e))
        later_gradient[j] += slope
        pull += slope
    return value, pull


@kernel
def lambda_lists(first, last, scores, gains, order, starts, list_tiers, truncation, value, gradient):
    """LambdaRank: the logistic loss of all pairs, weighted by |change of NDCG|, the weights held constant.

    With truncation k only pairs with an item in the first k places count: those items are compared with all in later
    places, in time (items * k). Without, each item is compared with those of lower tiers.
    """
    longest = longest_tiered_list(starts, list_tiers, first, last)
    w, gain, discount, slopes = np.empty(longest), np.empty(longest), np.empty(longest), np.empty(longest)
    placed, placed_gain, tier = np.empty(longest), np.empty(longest), np.empty(longest)
    placed_tier, placed_slopes = np.empty(longest), np.empty(longest)
    for b in range(first, last):
        base = starts[list_tiers[b]]
        size = starts[list_tiers[b + 1]] - base
        gather(scores, order, base, size, w)
        gather(gains, order, base, size, gain)
        slopes[:size] = 0.0
        ideal = _ideal_dcg(gain, size, truncation)
        total = 0.0
        if ideal > 0.0:
            places = np.argsort(-w[:size], kind="mergesort")
            if truncation < size:
                for m in range(list_tiers[b], list_tiers[b + 1]):
                    for i in range(starts[m] - base, starts[m + 1] - base):
                        tier[i] = m
                for place in range(size):
                    i = places[place]
                    placed[place], placed_gain[place], placed_tier[place] = w[i], gain[i], tier[i]
                    placed_slopes[place] = 0.0
                    discount[place] = 1.0 / math.log2(2.0 + place)
                for place in range(truncation):
                    later = place + 1
                    loss, pull = _placed_row(
                        placed[place], placed_gain[place], placed_tier[place], discount[place], placed[later:size],
                        placed_gain[later:size], placed_tier[later:size], discount[later:size],
                        placed_slopes[later:size],
                    )  # fmt: skip
                    total += loss
                    placed_slopes[place] -= pull
                for place in range(size):
                    slopes[places[place]] = placed_slopes[place]
            else:
                for place in range(size):
                    discount[places[place]] = 1.0 / math.log2(2.0 + place)
                for m in range(list_tiers[b], list_tiers[b + 1] - 1):
                    below = starts[m + 1] - base
                    for i in range(starts[m] - base, below):
                        loss, pull = _lambda_row(
                            w[i], gain[i], discount[i], w[below:size], gain[below:size], discount[below:size],
                            slopes[below:size],
                        )  # fmt: skip
                        total += loss
                        slopes[i] -= pull
            total /= ideal
            for i in range(size):
                slopes[i] /= ideal
        value[b] = total
        _scatter(slopes, order, base, size, gradient)
    return -1


@inner_sum
def _smooth_place(w, others, sharpness):
    """1/2 + sum_j sigmoid((w_j - w) sharpness), over all j with the item itself, which adds the missing 1/2."""
    total = 0.5
    for j in range(others.size):
        x = (others[j] - w) * sharpness
        e = fast_exp(-abs(x))
        larger = 1.0 / (1.0 + e)
        total += larger if x > 0.0 else e * larger
    return total


@inner
def _smooth_discount(w, others, truncation, sharpness):
    """log2(1 + place), the factor of the truncation and its slope by the place, and minus the slope of 1 / log2."""
    place = _smooth_place(w, others, sharpness)
    log_place = math.log2(1.0 + place)
    kept, kept_slope = 1.0, 0.0
    if truncation < others.size:
        e = math.exp(-abs(truncation + 0.5 - place))
        kept = 1.0 / (1.0 + e) if place < truncation + 0.5 else e / (1.0 + e)
        kept_slope = -kept * (1.0 - kept)
    return log_place, kept, kept_slope, kept / (log_place * log_place * (1.0 + place) * math.log(2.0))


@inner_sum
def _place_slopes(w, slope, others, slopes, sharpness):
    """sum_j (slope_j - slope) s(x) s(-x), x = (w_j - w) sharpness."""
    total = 0.0
    for j in range(others.size):
        e = fast_exp(-abs((others[j] - w) * sharpness))
        larger = 1.0 / (1.0 + e)
        total += (slopes[j] - slope) * (e * larger * larger)
    return total


@kernel
def approx_ndcg_lists(first, last, scores, gains, order, starts, list_tiers, truncation, sharpness, value, gradient):
    """1 - DCG with smooth places / ideal DCG; a truncation level K multiplies gains by sigmoid(K + 1/2 - place)."""
    longest = longest_tiered_list(starts, list_tiers, first, last)
    w, gain, slopes = np.empty(longest), np.empty(longest), np.empty(longest)
    for b in range(first, last):
        base = starts[list_tiers[b]]
        size = starts[list_tiers[b + 1]] - base
        gather(scores, order, base, size, w)
        gather(gains, order, base, size, gain)
        ideal = _ideal_dcg(gain, size, truncation)
        if ideal <= 0.0 or list_tiers[b + 1] - list_tiers[b] < 2:
            value[b] = 0.0
            slopes[:size] = 0.0
            _scatter(slopes, order, base, size, gradient)
            continue
        total = 0.0
        # Gains come in descending order. Items without gain have no slope: only pairs with a gain count.
        gainful = 0
        while gainful < size and gain[gainful] > 0.0:
            gainful += 1
        items = w[:size]
        slopes[:size] = 0.0
        for i in range(gainful):
            log_place, kept, kept_slope, decay = _smooth_discount(w[i], items, truncation, sharpness)
            total += gain[i] * kept / log_place
            slopes[i] = gain[i] * (decay - kept_slope / log_place) / ideal  # of the loss, by the place
        value[b] = 1.0 - total / ideal
        for i in range(size):
            others = size if i < gainful else gainful
            slope = _place_slopes(w[i], slopes[i], w[:others], slopes[:others], sharpness)
            gradient[order[base + i]] = sharpness * slope
    return -1


@inner_sum
def _place_curvatures(w, slope, others, slopes, rises, sharpness):
    """Sums over j of (slope + slope_j) v, of v and of rise_j v^2, v = s(x) s(-x), x = (w_j - w) sharpness."""
    total = 0.0
    steepness = 0.0
    squares = 0.0
    for j in range(others.size):
        e = fast_exp(-abs((others[j] - w) * sharpness))
        larger = 1.0 / (1.0 + e)
        v = e * larger * larger
        total += (slope + slopes[j]) * v
        steepness += v
        squares += rises[j] * v * v
    return total, steepness, squares


@kernel
def approx_ndcg_curvature_lists(
    first, last, scores, gains, order, starts, list_tiers, truncation, sharpness, curvature
):
    """Upper bounds of the second derivatives of `approx_ndcg_lists`; see `plackett.losses.curvature`."""
    longest = longest_tiered_list(starts, list_tiers, first, last)
    w, gain, slopes, rises = np.empty(longest), np.empty(longest), np.empty(longest), np.empty(longest)
    for b in range(first, last):
        base = starts[list_tiers[b]]
        size = starts[list_tiers[b + 1]] - base
        gather(scores, order, base, size, w)
        gather(gains, order, base, size, gain)
        slopes[:size] = 0.0
        rises[:size] = 0.0
        ideal = _ideal_dcg(gain, size, truncation)
        gainful = 0
        if ideal > 0.0 and list_tiers[b + 1] - list_tiers[b] > 1:
            while gainful < size and gain[gainful] > 0.0:
                gainful += 1
        for i in range(gainful):
            log_place, _, kept_slope, decay = _smooth_discount(w[i], w[:size], truncation, sharpness)
            rises[i] = -gain[i] * kept_slope / log_place / ideal
            slopes[i] = gain[i] * decay / ideal + rises[i]
        for i in range(size):
            others = size if i < gainful else gainful
            total, steepness, squares = _place_curvatures(
                w[i], slopes[i], w[:others], slopes[:others], rises[:others], sharpness
            )
            if i < gainful:  # the item itself was counted, with v = 1/4
                total -= 0.5 * slopes[i]
                steepness -= 0.25
                squares -= 0.0625 * rises[i]
            bound = sharpness * sharpness * (total + rises[i] * steepness * steepness + squares)
            curvature[order[base + i]] = max(bound, 0.0)
    return -1


@kernel
def pairs_of_rows(first, last, scores, positives, offsets, kind, table, value, gradient):
    """Rows of many columns: the sum over all pairs of a positive and another column of a loss, and its gradient.

    `positives` are ascending within a row. A score that is not finite makes the value of its row NaN.
    """
    columns = scores.shape[1]
    w, slopes = np.empty(columns), np.empty(columns)
    for b in range(first, last):
        begin, end = offsets[b], offsets[b + 1]
        count = end - begin
        total = 0.0
        own, other, following = 0, count, begin
        for j in range(columns):  # positives first
            is_positive = following < end and positives[following] == j
            at = own if is_positive else other
            w[at] = scores[b, j]
            slopes[at] = 0.0
            total += 0.0 * w[at]
            own += is_positive
            other += not is_positive
            following += is_positive
        if total == 0.0:
            total = pairs_between(kind, w[:count], w[count:], table, slopes[:count], slopes[count:])
        value[b] = total
        own, other, following = 0, count, begin
        for j in range(columns):
            is_positive = following < end and positives[following] == j
            gradient[b, j] = slopes[own if is_positive else other]
            own += is_positive
            other += not is_positive
            following += is_positive
    return -1
