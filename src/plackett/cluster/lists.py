"""Dask collections of rows, cut where lists end.

A list may begin in one partition and end in another: its rows are put together. That takes two passes. The first reads
only which list each row belongs to, and what comes back is a number for each list; the second moves rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.errors import MissingDependencyError
from plackett.lists import IntArray, lists_from_qid, offsets_from_group, offsets_from_sizes

Block = dict[str, Any]
"""Columns by name: features X, and arrays with a value for each row."""


def import_dask() -> Any:
    try:
        import dask
    except ImportError:
        raise MissingDependencyError("dask", "distributed", "work on several machines") from None
    return dask


def is_spread(collection: Any) -> bool:
    """Whether it is a collection of Dask."""
    return hasattr(collection, "__dask_graph__")


def are_spread(collections: Any) -> bool:
    """Whether it is a collection of Dask, or a list of them, such as delayed partitions."""
    if isinstance(collections, list | tuple):
        return len(collections) > 0 and all(map(is_spread, collections))
    return is_spread(collections)


def row_blocks(name: str, collection: Any) -> list[Any]:
    """The partitions of a collection, as delayed objects that hold rows."""
    if not is_spread(collection) or not hasattr(collection, "to_delayed"):
        raise ValueError(f"{name} must be a Dask array, DataFrame or Series, got {type(collection).__name__}")
    if getattr(collection, "ndim", 1) == 2 and hasattr(collection, "rechunk"):
        collection = collection.rechunk({1: -1})
    return list(np.ravel(np.array(collection.to_delayed(), object)))


def aligned_blocks(columns: Mapping[str, Any]) -> list[Block]:
    """Columns partition by partition. Arrays are cut as the first column is, in so far as its sizes are known."""
    first, *others = columns
    blocks = {first: row_blocks(first, columns[first])}
    sizes = getattr(columns[first], "chunks", ((np.nan,),))[0]
    for name in others:
        column = columns[name]
        if not np.isnan(sum(sizes)) and hasattr(column, "rechunk") and not np.isnan(column.shape[0]):
            if column.shape[0] != columns[first].shape[0]:
                raise ValueError(
                    f"{name} must hold one value for each of the {columns[first].shape[0]} rows, got {column.shape[0]}"
                )
            column = column.rechunk({0: sizes})
        blocks[name] = row_blocks(name, column)
        if len(blocks[name]) != len(blocks[first]):
            raise ValueError(
                f"{name} must have the {len(blocks[first])} partitions of {first}, got {len(blocks[name])}"
            )
    return [dict(zip(blocks, block, strict=True)) for block in zip(*blocks.values(), strict=True)]


def map_rows(function: Callable[[Any], Any], X: Any, width: int | None = None) -> Any:
    """A Dask array of what `function` makes of each partition: a number for each row, or `width` of them."""
    call = import_dask().delayed(_of_rows)
    from dask.array import concatenate, from_delayed

    sizes = getattr(X, "chunks", ((np.nan,),))[0]
    blocks = row_blocks("X", X)
    sizes = sizes if len(sizes) == len(blocks) else (np.nan,) * len(blocks)
    tail = () if width is None else (width,)
    parts = [
        from_delayed(call(function, block, tail), (size, *tail), np.float64)
        for block, size in zip(blocks, sizes, strict=True)
    ]
    return concatenate(parts, allow_unknown_chunksizes=True)


def _of_rows(function: Callable[[Any], Any], block: Any, tail: tuple[int, ...]) -> npt.NDArray[np.float64]:
    return np.asarray(function(block)) if _count_rows(block) else np.zeros((0, *tail))


def _runs(qid: Any) -> tuple[npt.NDArray[Any], IntArray]:
    """The lists of a partition, in their order, and how many rows each has."""
    values = np.asarray(qid)
    lists = lists_from_qid(values, len(values))
    if lists.rows is not None:
        raise ValueError(
            "qid must keep the rows of a list next to each other on Dask, got a list in several places: sort by qid"
        )
    return values[lists.offsets[:-1]], lists.sizes


def _count_rows(block: Any) -> int:
    return int(block.shape[0])


@dataclass(frozen=True)
class Layout:
    """Where lists are: the rows of each partition, and the offsets of lists over all rows (both running totals)."""

    partitions: IntArray
    lists: IntArray

    @property
    def rows(self) -> int:
        return int(self.lists[-1])

    def cut(self, parts: int) -> IntArray:
        """Rows at which to cut into at most `parts` parts of whole lists, about equally large, none empty."""
        wanted = np.arange(1, parts) * (self.rows / parts)
        after = np.clip(np.searchsorted(self.lists, wanted), 1, len(self.lists) - 1)
        low, high = self.lists[after - 1], self.lists[after]
        return np.unique(np.concatenate(([0], np.where(wanted - low < high - wanted, low, high), [self.rows])))

    def sizes(self, first: int, last: int) -> IntArray:
        """Of the lists that hold the rows first..last-1."""
        edges = self.lists[(self.lists >= first) & (self.lists <= last)]
        return np.diff(edges)


def make_layout(blocks: Sequence[Block], qid: Any, group: Any) -> Layout:
    """The layout of the lists that `qid`, delayed and partition by partition, or `group` describes.

    Raises ValueError unless the rows of a list follow each other.
    """
    dask = import_dask()
    if group is not None:
        first = next(iter(blocks[0]))
        rows = dask.compute(*[dask.delayed(_count_rows)(block[first]) for block in blocks])
        partitions = offsets_from_sizes(np.array(rows, np.int64))
        group = group.compute() if is_spread(group) else group
        return Layout(partitions, np.unique(offsets_from_group(group, int(partitions[-1]))))
    runs = dask.compute(*[dask.delayed(_runs)(part) for part in qid])
    partitions = offsets_from_sizes(np.array([sizes.sum() for _, sizes in runs], np.int64))
    values = np.concatenate([values for values, _ in runs])
    starts = offsets_from_sizes(np.concatenate([sizes for _, sizes in runs]))
    begins = np.append(True, values[1:] != values[:-1])[: len(values)]
    values = values[begins]
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) < len(values):
        again = distinct[np.argmax(counts > 1)]
        raise ValueError(
            f"qid must keep the rows of a list next to each other on Dask, got {again!r} in several places: sort by qid"
        )
    return Layout(partitions, np.append(starts[:-1][begins], starts[-1]))


def whole_lists(blocks: Sequence[Block], layout: Layout, cuts: IntArray) -> list[Any]:
    """Delayed blocks of the rows between the cuts, with `group`, the sizes of their lists."""
    dask = import_dask()
    take, join = dask.delayed(_take, pure=False), dask.delayed(_join, pure=False)
    parts = []
    for first, last in pairwise(cuts.tolist()):
        edges = layout.partitions
        pieces = [
            take(block, int(edges[i + 1] - edges[i]), int(max(first - edges[i], 0)), int(last - edges[i]))
            for i, block in enumerate(blocks)
            if edges[i] < last and edges[i + 1] > first
        ]
        parts.append(join(pieces, layout.sizes(first, last)))
    return parts


def _take(block: Block, rows: int, first: int, last: int) -> Block:
    for name, column in block.items():
        if _count_rows(column) != rows:
            raise ValueError(f"{name} must be partitioned like the rest, got {_count_rows(column)} rows beside {rows}")
    if first == 0 and last >= rows:
        return block
    return {name: column.iloc[first:last] if hasattr(column, "iloc") else column[first:last]
            for name, column in block.items()}  # fmt: skip


def _join(pieces: Sequence[Block], group: IntArray) -> Block:
    return {name: join_rows([piece[name] for piece in pieces]) for name in pieces[0]} | {"group": group}


def join_rows(blocks: Sequence[Any]) -> Any:
    """Rows one after the other: of arrays, CSR matrices or pandas tables."""
    if len(blocks) == 1:
        return blocks[0]
    if hasattr(blocks[0], "iloc"):
        import pandas

        return pandas.concat(blocks)
    if hasattr(blocks[0], "indptr"):
        from scipy.sparse import vstack

        return vstack(blocks, format="csr")
    return np.concatenate(blocks)
