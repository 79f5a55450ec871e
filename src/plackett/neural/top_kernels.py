"""Compiled kernels of `top_labels`."""

import numpy as np

from plackett.compilation import inner, kernel

_AT_ONCE = 64


@inner
def _has_better(scores, row, start, worst):
    """Whether one of the next 64 scores of a row is above `worst`. It has no branches, so it is vectorised."""
    found = np.uint8(0)
    for j in range(np.uint64(_AT_ONCE)):
        found |= np.uint8(scores[row, start + j] > worst)
    return found != 0


@kernel
def keep_best(first, last, scores, offset, best, where):
    """Merge the scores of rows first to last - 1 into the best of each row.

    best, where (rows, k): scores, descending, and columns. Among equal scores the earlier one stays ahead.
    """
    k, columns = best.shape[1], scores.shape[1]
    for r in range(first, last):
        row = np.uint64(r)  # unsigned numbers cannot count from the end: less to check
        worst = best[row, k - 1]
        for start in range(0, columns, _AT_ONCE):
            end = min(start + _AT_ONCE, columns)
            if end - start == _AT_ONCE and not _has_better(scores, row, np.uint64(start), worst):
                continue
            for column in range(start, end):
                score = scores[row, column]
                if score > worst:
                    place = k - 1
                    while place > 0 and best[row, place - 1] < score:
                        best[row, place] = best[row, place - 1]
                        where[row, place] = where[row, place - 1]
                        place -= 1
                    best[row, place] = score
                    where[row, place] = column + offset
                    worst = best[row, k - 1]
