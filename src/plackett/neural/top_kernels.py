"""Compiled kernels of `top_labels`."""

from plackett.compilation import kernel


@kernel
def keep_best(first, last, scores, offset, best, where):
    """Merge the scores of rows first to last - 1 into the best of each row.

    best, where (rows, k): scores, descending, and columns. Among equal scores the earlier one stays ahead.
    """
    k = best.shape[1]
    for row in range(first, last):
        worst = best[row, k - 1]
        for column in range(scores.shape[1]):
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
