"""Whether a block is series-parallel, and the steps that build it (see `series_kernels`)."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from plackett.likelihood.partial_orders.series_kernels import ITEM, PARALLEL, SERIES
from plackett.likelihood.partial_orders.tree_kernels import NODES
from plackett.lists import IntArray

if TYPE_CHECKING:
    from plackett.likelihood.partial_orders.order_structure import Blocks

_BITS = 54  # of a float: x below 2^-54 t leaves t - x as it is


def series_steps(blocks: Blocks, number: int) -> IntArray | None:
    """(3, steps): the kind of each step, and its item or the two earlier steps that it joins; None if not possible.

    Items that no chain of comparable items connects are parallel. Items that no chain of incomparable ones connects are
    in series. An order of two or more items in which both connect all of them is not series-parallel.
    """
    lo, n = int(blocks.starts[number]), int(blocks.starts[number + 1] - blocks.starts[number])
    every = (1 << n) - 1
    comparable = _comparable(blocks, lo, n)
    incomparable = [every & ~related & ~(1 << i) for i, related in enumerate(comparable)]
    steps: list[tuple[int, int, int]] = []
    results: list[int] = []
    waiting: list[tuple[int, int]] = [(-1, every)]  # a set of items, or after its parts: how to join the last two
    while waiting:
        join, items = waiting.pop()
        if join >= 0:
            second, first = results.pop(), results.pop()
            steps.append((join, first, second))
            results.append(len(steps) - 1)
            continue
        if items.bit_count() == 1:
            steps.append((ITEM, items.bit_length() - 1, -1))
            results.append(len(steps) - 1)
            continue
        kind, parts = PARALLEL, _components(items, comparable)
        if len(parts) == 1:
            kind, parts = SERIES, _components(items, incomparable)
        if len(parts) == 1:
            return None
        for part in parts[:0:-1]:  # taken from the end: the first part, the second, joined, the third, joined, ...
            waiting += [(kind, 0), (-1, part)]
        waiting.append((-1, parts[0]))
    return np.array(steps, np.int64).T.copy()


def _comparable(blocks: Blocks, lo: int, n: int) -> list[int]:
    """For each item the set of those above and below it, as bits. Items are in topological order."""
    below, above = [0] * n, [0] * n
    for i in range(n - 1, -1, -1):
        for child in blocks.children[blocks.child_starts[lo + i] : blocks.child_starts[lo + i + 1]].tolist():
            below[i] |= below[child - lo] | 1 << (child - lo)
    for i in range(n):
        for parent in blocks.parents[blocks.parent_starts[lo + i] : blocks.parent_starts[lo + i + 1]].tolist():
            above[i] |= above[parent - lo] | 1 << (parent - lo)
    return [x | y for x, y in zip(below, above, strict=True)]


def _components(items: int, neighbours: list[int]) -> list[int]:
    """The connected parts of a set, in the order of their first items: parts in series come from the top down."""
    parts = []
    while items:
        part, new = 0, items & -items
        while new:
            part |= new
            reached = 0
            while new:
                i = (new & -new).bit_length() - 1
                reached |= neighbours[i]
                new &= new - 1
            new = reached & items & ~part
        parts.append(part)
        items &= ~part
    return parts


@cache
def interpolation(splits: int) -> tuple[IntArray, npt.NDArray[np.float64]]:
    """Where t - x lies, t node j and x node k of a panel splits + o panels below, with panels of log 2 / splits.

    The first table, (j, o, k), says how many panels below that of t; the second, (j, o, k, nodes), has the weights of
    the polynomial through the nodes of that panel, in barycentric form.
    """
    nodes, _ = np.polynomial.legendre.leggauss(NODES)
    width = np.log(2.0) / splits
    below = splits + np.arange((_BITS - 1) * splits)
    log_ratio = width * (0.5 * (nodes - nodes[:, None])[:, None, :] - below[:, None])  # (j, o, k): log(x / t)
    place = 0.5 * (1.0 + nodes)[:, None, None] + np.log1p(-np.exp(log_ratio)) / width  # in panels, from that of t
    shifts = -np.floor(place).astype(np.int64)
    away = (2.0 * (place + shifts) - 1.0)[..., None] - nodes
    away[away == 0.0] = 1e-300  # a node itself
    inverse = np.array([1.0 / np.prod(np.delete(x - nodes, i)) for i, x in enumerate(nodes)]) / away
    return shifts, inverse / inverse.sum(axis=-1, keepdims=True)
