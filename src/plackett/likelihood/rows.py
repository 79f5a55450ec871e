"""Rows of many columns of which a few are positive, in compiled code: logsumexp of the others, and their gradient.

Only w_R of the other columns enters the likelihood, so a row acts as a short list of its positives and one item that
stands for the rest; what remains to be done on all columns is one pass over the row forward and one backward.
The positives are left out by stepping over them, never by subtracting, which would cancel when they dominate.
"""

import math

import numpy as np

from plackett.compilation import inner, inner_sum, kernel
from plackett.likelihood.elementary import exp_nonpositive

_LANES = 64
_BLOCK = 2048  # columns that stay in the first-level cache between the two looks at them


@inner
def _peak(row, first, last, lanes):
    """The maximum of a stretch. It may miss a NaN; the sum over the same stretch does not.

    A chain of comparisons is not vectorised, a loop over independent ones is.
    """
    width = min(lanes.size, last - first)
    for k in range(width):
        lanes[k] = row[first + k]
    for i in range(first + width, last, width):
        for k in range(min(width, last - i)):
            lanes[k] = row[i + k] if row[i + k] > lanes[k] else lanes[k]
    peak = lanes[0]
    for k in range(1, width):
        peak = max(peak, lanes[k])
    return peak


@inner_sum
def _sum_of_exponentials(row, first, last, peak):
    """The sum of exp(row - peak) over a stretch; NaN if there is a NaN in it."""
    total = peak - peak  # a zero in the type of the row
    for i in range(first, last):
        total += exp_nonpositive(row[i] - peak)
    return total


@inner
def _add_stretch(row, first, last, peak, total, lanes):
    """logsumexp as a pair (peak, total): add the columns first..last, block by block."""
    for begin in range(first, last, _BLOCK):
        end = min(begin + _BLOCK, last)
        highest = _peak(row, begin, end, lanes)
        if highest == -math.inf:
            for i in range(begin, end):
                if row[i] != -math.inf:
                    total = math.nan
            continue
        if highest > peak:
            total *= math.exp(peak - highest)
            peak = highest
        # Each block is summed against its own maximum, which has the type of the row.
        total += _sum_of_exponentials(row, begin, end, highest) * math.exp(highest - peak)
    return peak, total


@kernel
def log_sum_of_others(first, last, scores, positives, offsets, result):
    """logsumexp over the columns that are not positive, for the rows first..last; -inf where there is none.

    `positives` holds the positive columns of each row in ascending order. A NaN or +inf in a row gives NaN.
    """
    lanes = np.empty(_LANES, scores.dtype)
    for b in range(first, last):
        row = scores[b]
        peak = -math.inf
        total = 0.0
        begin = 0
        for i in range(offsets[b], offsets[b + 1]):
            peak, total = _add_stretch(row, begin, positives[i], peak, total, lanes)
            begin = positives[i] + 1
        peak, total = _add_stretch(row, begin, row.size, peak, total, lanes)
        result[b] = peak + math.log(total)
    return -1


@kernel
def gradient_of_others(first, last, scores, log_sum, pull, positives, offsets, positive_gradient, gradient):
    """gradient[b, j] = -pull[b] exp(scores[b, j] - log_sum[b]), and at the positives `positive_gradient`."""
    scalars = np.empty(3, scores.dtype)  # typed as the row, or float32 arithmetic would turn into float64
    scalars[0] = 0.0
    for b in range(first, last):
        row = scores[b]
        out = gradient[b]
        scalars[2] = log_sum[b]
        # What rounding to the type of the row takes off log_sum goes into the factor.
        scalars[1] = -pull[b] * math.exp(scalars[2] - log_sum[b]) if pull[b] != 0.0 else 0.0
        zero, factor, reference = scalars[0], scalars[1], scalars[2]
        for j in range(row.size):
            out[j] = factor * exp_nonpositive(min(row[j] - reference, zero))
        for i in range(offsets[b], offsets[b + 1]):
            out[positives[i]] = positive_gradient[i]
    return -1
