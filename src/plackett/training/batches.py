"""Which lists or rows go together, in an order drawn anew for every epoch."""

import numpy as np

from plackett.lists import IntArray


def batches_of_rows(rows: int, size: int, generator: np.random.Generator) -> list[IntArray]:
    """Rows in batches of `size`; the last may be smaller."""
    order = generator.permutation(rows)
    return [order[first : first + size] for first in range(0, rows, size)]


def batches_of_lists(sizes: IntArray, documents: int, generator: np.random.Generator | None) -> list[IntArray]:
    """Whole lists in batches of at most `documents` items; a longer list is a batch of its own.

    Without a generator the lists stay in their order.
    """
    order = np.arange(len(sizes)) if generator is None else generator.permutation(len(sizes))
    batches, first, total = [], 0, 0
    for position, size in enumerate(sizes[order].tolist()):
        if position > first and total + size > documents:
            batches.append(order[first:position])
            first, total = position, 0
        total += size
    if first < len(order):
        batches.append(order[first:])
    return batches
