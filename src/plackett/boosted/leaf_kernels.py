"""Which leaf each row fell into, from the change of its score."""

from plackett.compilation import light_kernel


@light_kernel
def nearest_leaves(first, last, change, values, numbers, leaf):
    """For the rows first..last the number of the leaf whose value is nearest to the change; `values` are sorted."""
    for i in range(first, last):
        x = change[i]
        low, high = 0, values.size - 1
        while low < high:
            middle = (low + high) // 2
            if values[middle] + values[middle + 1] < 2.0 * x:
                low = middle + 1
            else:
                high = middle
        leaf[i] = numbers[low]
    return 0


@light_kernel
def add_leaf_values(first, last, leaf, values, scores):
    """scores += values of their leaves."""
    for i in range(first, last):
        scores[i] += values[leaf[i]]
    return 0
