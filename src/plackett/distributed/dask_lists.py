"""Dask collections of rows, cut where lists end.

A list may begin in one partition and end in another; its rows are then brought together. That takes two passes: the
first reads only the list of each row and returns one number per list, the second moves rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.arguments import is_dask
from plackett.errors import MissingDependencyError
from plackett.lists import IntArray, lists_from_qid, offsets_from_group, offsets_from_sizes

Block = dict[str, Any]
"""Columns by name: features X, and arrays with one value per row."""


def import_dask() -> Any:
    """The package, or an error that says how to install it."""
    try:
        import dask
    except ImportError:
        raise MissingDependencyError("dask", "distributed", "work on several machines") from None
    return dask


def are_dask(collections: Any) -> bool:
    """Whether this is a Dask collection, or a list of them, such as delayed partitions."""
    if isinstance(collections, list | tuple):
        return len(collections) > 0 and all(map(is_dask, collections))
    return is_dask(collections)


@dataclass(frozen=True, eq=False)
class DaskRows:
    """Labelled rows of Dask collections that are partitioned in the same way; `group` may also be in memory."""

    X: Any
    y: Any
    qid: Any = None
    group: Any = None
    sample_weight: Any = None
    name: str = "train"

    def split_query(self, column: Any) -> DaskRows:
        """The same rows with a column of X as qid; None: unchanged."""
        if column is None:
            return self
        if self.qid is not None:
            raise ValueError("qid must be None when query_column is set, got both")
        if column not in getattr(self.X, "columns", ()):
            raise ValueError(f"query_column {column!r} is not among the columns of X")
        return replace(self, X=self.X.drop(columns=[column]), qid=self.X[column])

    def features_without_rows(self) -> Any:
        """An array or table of no rows with the columns of X."""
        if hasattr(self.X, "columns"):
            return self.X._meta
        if getattr(self.X, "ndim", 0) != 2 or np.isnan(self.X.shape[1]):
            raise ValueError(f"X must have rows and a known number of columns, got a Dask {type(self.X).__name__}")
        return np.empty((0, self.X.shape[1]))

    def blocks(self) -> tuple[list[Block], Layout]:
        """Partitions with features, labels and weights, and how lists lie in them."""
        if self.y is None:
            raise ValueError("BoostedRanker requires y to be passed, but the target y is None")
        if (self.group is None) == (self.qid is None):
            raise ValueError("exactly one of qid and group must be given on Dask, got both or none")
        columns = {"X": self.X, "y": self.y, "qid": self.qid, "sample_weight": self.sample_weight}
        blocks = aligned_blocks({name: column for name, column in columns.items() if column is not None})
        qid = None if self.qid is None else [block.pop("qid") for block in blocks]
        return blocks, make_layout(blocks, qid, self.group)


def row_blocks(name: str, collection: Any) -> list[Any]:
    """The partitions of a collection as delayed objects, each of which holds rows."""
    if not is_dask(collection) or not hasattr(collection, "to_delayed"):
        raise ValueError(f"{name} must be a Dask array, DataFrame or Series, got {type(collection).__name__}")
    if getattr(collection, "ndim", 1) == 2 and hasattr(collection, "rechunk"):
        collection = collection.rechunk({1: -1})
    return list(np.ravel(np.array(collection.to_delayed(), object)))


def aligned_blocks(columns: Mapping[str, Any]) -> list[Block]:
    """Columns, partition by partition. Arrays are rechunked like the first column if its chunk sizes are known."""
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
    """A Dask array of the results of `function` for each partition: one number per row, or `width` of them."""
    call = import_dask().delayed(_call_on_rows)
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


def _call_on_rows(function: Callable[[Any], Any], block: Any, tail: tuple[int, ...]) -> npt.NDArray[np.float64]:
    return np.asarray(function(block)) if _count_rows(block) else np.zeros((0, *tail))


def _runs(qid: Any) -> tuple[npt.NDArray[Any], IntArray]:
    """The lists of a partition, in their order, and the number of rows of each."""
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
    """Where lists are: offsets of the partitions and offsets of the lists, both over all rows."""

    partitions: IntArray
    lists: IntArray

    @property
    def rows(self) -> int:
        return int(self.lists[-1])

    def cut(self, parts: int) -> IntArray:
        """Rows at which to cut into at most `parts` nonempty parts of whole lists, of about equal size."""
        wanted = np.arange(1, parts) * (self.rows / parts)
        after = np.clip(np.searchsorted(self.lists, wanted), 1, len(self.lists) - 1)
        low, high = self.lists[after - 1], self.lists[after]
        return np.unique(np.concatenate(([0], np.where(wanted - low < high - wanted, low, high), [self.rows])))

    def sizes(self, first: int, last: int) -> IntArray:
        """The sizes of the lists that hold the rows first..last-1."""
        edges = self.lists[(self.lists >= first) & (self.lists <= last)]
        return np.diff(edges)


def make_layout(blocks: Sequence[Block], qid: Any, group: Any) -> Layout:
    """The layout of the lists that `qid`, as delayed partitions, or `group` describes.

    Raises ValueError unless the rows of every list are next to each other.
    """
    dask = import_dask()
    if group is not None:
        first = next(iter(blocks[0]))
        rows = dask.compute(*[dask.delayed(_count_rows)(block[first]) for block in blocks])
        partitions = offsets_from_sizes(np.array(rows, np.int64))
        group = group.compute() if is_dask(group) else group
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
            raise ValueError(
                f"{name} must be partitioned like the other columns, got {_count_rows(column)} rows, not {rows}"
            )
    if first == 0 and last >= rows:
        return block
    return {name: column.iloc[first:last] if hasattr(column, "iloc") else column[first:last]
            for name, column in block.items()}  # fmt: skip


def _join(pieces: Sequence[Block], group: IntArray) -> Block:
    return {name: join_rows([piece[name] for piece in pieces]) for name in pieces[0]} | {"group": group}


def join_rows(blocks: Sequence[Any]) -> Any:
    """Concatenate the rows of arrays, CSR matrices or pandas tables."""
    if len(blocks) == 1:
        return blocks[0]
    if hasattr(blocks[0], "iloc"):
        import pandas

        return pandas.concat(blocks)
    if hasattr(blocks[0], "indptr"):
        from scipy.sparse import vstack

        return vstack(blocks, format="csr")
    return np.concatenate(blocks)
