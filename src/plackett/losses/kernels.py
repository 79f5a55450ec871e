"""Value and gradient of losses on ragged lists, in compiled code, for tensors in main memory.

Every kernel works on the lists first..last and writes one value a list and one gradient an item. Pairs are never
stored: each item is compared with a stretch of others, in vector instructions, and the sums are updated at once.
"""

import math

import numpy as np

from plackett.compilation import inner, inner_sum, kernel
from plackett.likelihood.elementary import fast_exp, fast_log1p_of_unit

LOGISTIC, HINGE = 0, 1
_BLOCK = 1024


@inner
def _peak(x):
    peak = x[0]
    for i in range(x.size):
        peak = max(peak, x[i])
    return peak


@inner_sum
def _exponentials(x, peak, result):
    """result = exp(x - peak); returns its sum."""
    total = 0.0
    for i in range(x.size):
        result[i] = fast_exp(x[i] - peak)
        total += result[i]
    return total


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
    longest = 1
    for b in range(first, last):
        longest = max(longest, offsets[b + 1] - offsets[b])
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
        label_total = _exponentials(y, _peak(y), p)
        if only_positive:
            label_total = 0.0
            for i in range(size):
                p[i] = p[i] if y[i] > 0.0 else 0.0
                label_total += p[i]
        peak = _peak(w)
        total = _exponentials(w, peak, y)  # the labels are no longer needed
        out = gradient[begin : begin + size]
        if label_total == 0.0:
            out[:] = 0.0
            continue
        value[b] = _cross_entropy(w, peak, math.log(total), p, 1.0 / label_total)
        for i in range(size):
            out[i] = y[i] / total - p[i] / label_total
    return -1


@inner_sum
def _logistic_row(w, lower, lower_gradient):
    """sum_j log(1 + exp(lower_j - w)), and the sum of its slopes, which are added to the lower items' gradient."""
    value = 0.0
    pull = 0.0
    for j in range(lower.size):
        x = lower[j] - w
        e = fast_exp(-abs(x))
        larger = 1.0 / (1.0 + e)
        slope = larger if x > 0.0 else e * larger
        value += max(x, 0.0) + fast_log1p_of_unit(e)
        lower_gradient[j] += slope
        pull += slope
    return value, pull


@inner_sum
def _hinge_row(w, lower, lower_gradient):
    """sum_j max(0, 1 + lower_j - w), likewise. At the corner the slope is 0."""
    value = 0.0
    pull = 0.0
    for j in range(lower.size):
        x = 1.0 + (lower[j] - w)
        slope = 1.0 if x > 0.0 else 0.0
        value += max(x, 0.0)
        lower_gradient[j] += slope
        pull += slope
    return value, pull


@kernel
def pair_lists(first, last, scores, order, starts, list_tiers, kind, value, gradient):
    """The sum of a loss over all pairs of an item and one of a lower tier."""
    longest = 1
    for b in range(first, last):
        longest = max(longest, starts[list_tiers[b + 1]] - starts[list_tiers[b]])
    w = np.empty(longest)
    slopes = np.empty(longest)
    for b in range(first, last):
        base = starts[list_tiers[b]]
        size = starts[list_tiers[b + 1]] - base
        for i in range(size):
            w[i] = scores[order[base + i]]
            slopes[i] = 0.0
        total = 0.0
        for m in range(list_tiers[b], list_tiers[b + 1] - 1):
            below = starts[m + 1] - base
            lower, lower_slopes = w[below:size], slopes[below:size]
            for i in range(starts[m] - base, below):
                if kind == LOGISTIC:
                    loss, pull = _logistic_row(w[i], lower, lower_slopes)
                else:
                    loss, pull = _hinge_row(w[i], lower, lower_slopes)
                total += loss
                slopes[i] -= pull
        value[b] = total
        for i in range(size):
            gradient[order[base + i]] = slopes[i]
    return -1


@inner_sum
def _lambda_row(w, gain, discount, weight, lower, lower_gain, lower_discount, lower_weight, lower_gradient):
    """As `_logistic_row`, each pair weighted by the change of DCG when its items swap places.

    `weight` is 1 for items within the truncation level and 0 for others; pairs of two others do not count.
    """
    value = 0.0
    pull = 0.0
    for j in range(lower.size):
        x = lower[j] - w
        e = fast_exp(-abs(x))
        larger = 1.0 / (1.0 + e)
        counts = max(weight, lower_weight[j])
        change = counts * abs((gain - lower_gain[j]) * (discount - lower_discount[j]))
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


@kernel
def lambda_lists(first, last, scores, gains, order, starts, list_tiers, truncation, value, gradient):
    """LambdaRank: the logistic loss of all pairs, weighted by |change of NDCG|, the weights held constant."""
    longest = 1
    for b in range(first, last):
        longest = max(longest, starts[list_tiers[b + 1]] - starts[list_tiers[b]])
    w, gain, discount, weight, slopes = (
        np.empty(longest), np.empty(longest), np.empty(longest), np.empty(longest), np.empty(longest)
    )  # fmt: skip
    for b in range(first, last):
        base = starts[list_tiers[b]]
        size = starts[list_tiers[b + 1]] - base
        for i in range(size):
            w[i] = scores[order[base + i]]
            gain[i] = gains[order[base + i]]
            slopes[i] = 0.0
        ideal = _ideal_dcg(gain, size, truncation)
        total = 0.0
        if ideal > 0.0:
            places = np.argsort(-w[:size], kind="mergesort")
            for place in range(size):
                i = places[place]
                weight[i] = 1.0 if place < truncation else 0.0
                discount[i] = 1.0 / math.log2(2.0 + place)
            for m in range(list_tiers[b], list_tiers[b + 1] - 1):
                below = starts[m + 1] - base
                for i in range(starts[m] - base, below):
                    loss, pull = _lambda_row(
                        w[i], gain[i], discount[i], weight[i], w[below:size], gain[below:size], discount[below:size],
                        weight[below:size], slopes[below:size],
                    )  # fmt: skip
                    total += loss
                    slopes[i] -= pull
            total /= ideal
            for i in range(size):
                slopes[i] /= ideal
        value[b] = total
        for i in range(size):
            gradient[order[base + i]] = slopes[i]
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
    longest = 1
    for b in range(first, last):
        longest = max(longest, starts[list_tiers[b + 1]] - starts[list_tiers[b]])
    w, gain, slopes = np.empty(longest), np.empty(longest), np.empty(longest)
    for b in range(first, last):
        base = starts[list_tiers[b]]
        size = starts[list_tiers[b + 1]] - base
        for i in range(size):
            w[i] = scores[order[base + i]]
            gain[i] = gains[order[base + i]]
        ideal = _ideal_dcg(gain, size, truncation)
        if ideal <= 0.0 or list_tiers[b + 1] - list_tiers[b] < 2:
            value[b] = 0.0
            for i in range(size):
                gradient[order[base + i]] = 0.0
            continue
        total = 0.0
        # Gains come in descending order. Items without gain have no slope of their own: only pairs with a gain count.
        gainful = 0
        while gainful < size and gain[gainful] > 0.0:
            gainful += 1
        items = w[:size]
        slopes[:size] = 0.0
        for i in range(gainful):
            place = _smooth_place(w[i], items, sharpness)
            log_place = math.log2(1.0 + place)
            kept, kept_slope = 1.0, 0.0
            if truncation < size:
                e = math.exp(-abs(truncation + 0.5 - place))
                kept = 1.0 / (1.0 + e) if place < truncation + 0.5 else e / (1.0 + e)
                kept_slope = -kept * (1.0 - kept)
            total += gain[i] * kept / log_place
            decay = kept / (log_place * log_place * (1.0 + place) * math.log(2.0))
            slopes[i] = gain[i] * (decay - kept_slope / log_place) / ideal  # of the loss, by the place
        value[b] = 1.0 - total / ideal
        for i in range(size):
            others = size if i < gainful else gainful
            slope = _place_slopes(w[i], slopes[i], w[:others], slopes[:others], sharpness)
            gradient[order[base + i]] = sharpness * slope
    return -1


@kernel
def pairs_of_rows(first, last, scores, positives, offsets, kind, value, gradient):
    """Rows of many columns: the sum over all pairs of a positive and another column of a loss, and its gradient.

    `positives` are ascending within a row. Other columns are taken block by block, each of which stays in the cache for
    all positives. A score that is not finite makes the value of its row NaN.
    """
    w = np.empty(scores.shape[1])
    slopes = np.empty(scores.shape[1])
    for b in range(first, last):
        begin, end = offsets[b], offsets[b + 1]
        total = 0.0
        for j in range(w.size):
            w[j] = scores[b, j]
            slopes[j] = 0.0
            total += 0.0 * w[j]
        start = 0
        for i in range(begin, end + 1):
            stop = positives[i] if i < end else w.size
            for at in range(start, stop, _BLOCK):
                until = min(at + _BLOCK, stop)
                block, block_slopes = w[at:until], slopes[at:until]
                for k in range(begin, end):
                    if kind == LOGISTIC:
                        loss, pull = _logistic_row(w[positives[k]], block, block_slopes)
                    else:
                        loss, pull = _hinge_row(w[positives[k]], block, block_slopes)
                    total += loss
                    slopes[positives[k]] -= pull
            start = stop + 1
        value[b] = total
        for j in range(w.size):
            gradient[b, j] = slopes[j]
    return -1
