"""Rows of many columns of which a few are positive, in compiled code: logsumexp of the others, and their gradient.

Only w_R of the other columns enters the likelihood, so a row acts as a short list of its positives and one item for
the rest; all columns are read once forward and once backward.
The positives are skipped, never subtracted, which would cancel where they dominate.
"""

import math

import numpy as np

from plackett.compilation import inner, inner_sum, kernel
from plackett.likelihood.elementary import fast_exp

_LANES = 64
# Exponents are cut at _LIMIT, which fast_exp takes in single precision too; a sum near its exponential is not trusted.
_LIMIT = 80.0
_FAR_ABOVE = math.exp(60.0)
_BLOCK = 2048  # columns that stay in the first-level cache between the two looks at them


@inner
def _peak_by_lanes(x, lanes):
    """The maximum of x. It may miss a NaN; the sum over the same values does not.

    A chain of comparisons is not vectorised, a loop over independent ones is.
    """
    width = min(lanes.size, x.size)
    for k in range(width):
        lanes[k] = x[k]
    for i in range(width, x.size, width):
        piece = x[i : i + width]
        for k in range(piece.size):
            lanes[k] = piece[k] if piece[k] > lanes[k] else lanes[k]
    peak = lanes[0]
    for k in range(1, width):
        peak = max(peak, lanes[k])
    return peak


@inner_sum
def _sum_of_exponentials(x, reference, highest):
    """The sum of exp(min(x - reference, highest)); NaN if there is a NaN in x."""
    total = reference - reference  # a zero in the type of x
    for i in range(x.size):
        total += fast_exp(min(x[i] - reference, highest))
    return total


@inner
def _add_stretch(x, peak, total, limit, lanes):
    """logsumexp as a pair (peak, total): add the values x, block by block.

    A block is first summed against the peak so far. Only if the sum shows a value far above it is the
    maximum of the block computed.
    """
    for begin in range(0, x.size, _BLOCK):
        block = x[begin : begin + _BLOCK]
        if peak > -math.inf:
            added = _sum_of_exponentials(block, peak, limit)
            if added < _FAR_ABOVE:
                total += added
                continue
        highest = _peak_by_lanes(block, lanes)
        if highest == -math.inf:
            for i in range(block.size):
                if block[i] != -math.inf:
                    total = math.nan
            continue
        if peak > -math.inf:
            total *= math.exp(peak - highest)
        peak = highest
        total += _sum_of_exponentials(block, peak, limit)
    return peak, total


@kernel
def log_sum_of_others(first, last, scores, positives, offsets, peaks, log_totals):
    """logsumexp over the columns that are not positive, as peak + log_total; -inf and 0 where there is none.

    The two are kept apart to lose no digits to large scores. `positives` holds the positive columns of each row in
    ascending order. A NaN or +inf in a row makes log_total NaN.
    """
    lanes = np.empty(_LANES, scores.dtype)
    scalars = np.array([-math.inf, _LIMIT], scores.dtype)  # typed as the rows, to keep float32 arithmetic
    for b in range(first, last):
        row = scores[b]
        peak = scalars[0]
        total = 0.0
        begin = 0
        for i in range(offsets[b], offsets[b + 1]):
            peak, total = _add_stretch(row[begin : positives[i]], peak, total, scalars[1], lanes)
            begin = positives[i] + 1
        peak, total = _add_stretch(row[begin:], peak, total, scalars[1], lanes)
        peaks[b] = peak
        log_totals[b] = math.log(total) if total != 0.0 else 0.0
    return -1


@kernel
def gradient_of_others(first, last, scores, peaks, log_totals, pull, positives, offsets, positive_gradient, gradient):
    """gradient[b, j] = -pull[b] exp(scores[b, j] - peak[b] - log_total[b]); at the positives `positive_gradient`."""
    scalars = np.empty(3, scores.dtype)  # typed as the row, or float32 arithmetic would turn into float64
    scalars[0] = _LIMIT  # no other column is that far above the peak, see `_add_stretch`; the positives may be
    for b in range(first, last):
        row = scores[b]
        out = gradient[b]
        scalars[2] = peaks[b]
        # The rounding of the peak to the type of the row goes into the factor.
        scalars[1] = -pull[b] * math.exp((scalars[2] - peaks[b]) - log_totals[b]) if pull[b] != 0.0 else 0.0
        limit, factor, reference = scalars[0], scalars[1], scalars[2]
        for j in range(row.size):
            out[j] = factor * fast_exp(min(row[j] - reference, limit))
        for i in range(offsets[b], offsets[b + 1]):
            out[positives[i]] = positive_gradient[i]
    return -1
