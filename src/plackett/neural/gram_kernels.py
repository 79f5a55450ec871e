"""Kernel for the normal equations of sparse rows."""

from plackett.compilation import light_kernel


@light_kernel
def add_gram(offsets, columns, values, weights, matrix):
    """Add the sum over rows of weight x x' to the lower triangle of `matrix`; columns of a row in ascending order.

    A product of sparse matrices would search and sort the entries of its result, which is nearly dense.
    """
    for row in range(weights.size):
        for i in range(offsets[row], offsets[row + 1]):
            scaled = weights[row] * values[i]
            target = matrix[columns[i]]
            for j in range(offsets[row], i + 1):
                target[columns[j]] += scaled * values[j]
    return -1
