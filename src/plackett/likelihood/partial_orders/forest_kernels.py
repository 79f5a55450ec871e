"""Forests, where every item has at most one item right above it: a closed form.

Item i comes first in its subtree with probability exp(w_i) / S_i, S_i the sum of exp(w) over the subtree, and what
follows is independent of it:

    log P = sum_i (w_i - log S_i),    d log P / d w_j = 1 - sum over i, j itself and all above it, of exp(w_j) / S_i
"""

import math

import numpy as np

from plackett.compilation import kernel


@kernel
def forest_blocks(first, last, begin, end, arranged, parents, scores, value, gradient, curvature):
    """Value, and if `gradient` is not empty derivatives, of the blocks first..last; `parents` by place."""
    longest = 1
    for b in range(first, last):
        longest = max(longest, end[b] - begin[b])
    peak, total = np.empty(longest), np.empty(longest)
    inverse, inverse_square = np.empty(longest), np.empty(longest)
    for b in range(first, last):
        lo = begin[b]
        n = end[b] - lo
        log_probability = 0.0
        for i in range(n):
            peak[i], total[i] = scores[arranged[lo + i]], 1.0
        for i in range(n - 1, -1, -1):  # total * exp(peak) is the worth of the subtree
            log_probability += (scores[arranged[lo + i]] - peak[i]) - math.log(total[i])
            up = parents[lo + i] - lo
            if parents[lo + i] >= 0:
                if peak[i] > peak[up]:
                    total[up] = total[up] * math.exp(peak[up] - peak[i]) + total[i]
                    peak[up] = peak[i]
                else:
                    total[up] += total[i] * math.exp(peak[i] - peak[up])
        value[b] = log_probability
        if gradient.size == 0:
            continue
        for i in range(n):  # inverse * exp(-peak): the sum of 1 / S over the item and all above it
            inverse[i], inverse_square[i] = 1.0 / total[i], 1.0 / (total[i] * total[i])
            up = parents[lo + i] - lo
            if parents[lo + i] >= 0:
                shrink = math.exp(peak[i] - peak[up])
                inverse[i] += inverse[up] * shrink
                inverse_square[i] += inverse_square[up] * shrink * shrink
            worth = math.exp(scores[arranged[lo + i]] - peak[i])
            gradient[arranged[lo + i]] = 1.0 - worth * inverse[i]
            curvature[arranged[lo + i]] = max(worth * inverse[i] - worth * worth * inverse_square[i], 0.0)
    return 0
