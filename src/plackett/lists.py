"""Ragged lists: many lists of different length, one after the other in flat arrays.

A batch of lists is described by `offsets` (list b holds the items offsets[b] to offsets[b+1] - 1). People also have

    qid     one identifier per row; rows of a list need not be next to each other
    group   the sizes of consecutive lists
    where   a boolean mask over a padded 2-D array whose rows are lists

All of them become offsets here, and everything that can be wrong with them is found here.
"""

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.arguments import as_array, check_count, check_kind, describe

IntArray = npt.NDArray[np.int64]

_LARGEST = 2**48  # far beyond what fits into memory, far below where sums of many could overflow


def check_finite(name: str, values: Any) -> None:
    """Raise ValueError at the first NaN or infinity."""
    array = as_array(name, values)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold numbers, got {array.dtype}")
    finite = np.isfinite(array)
    if not finite.all():
        position = np.unravel_index(int(np.argmin(finite)), array.shape)
        where = int(position[0]) if len(position) == 1 else tuple(int(p) for p in position)
        raise ValueError(f"{name} must be finite, got {array[position]} at position {where}")


def whole_numbers(name: str, values: Any) -> IntArray:
    """A 1-D array of int64, or an error if that would change a value."""
    array = as_array(name, values)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got {array.ndim} dimensions")
    if array.size == 0:
        return array.astype(np.int64)
    is_whole = array.dtype.kind in "iu" or (array.dtype.kind == "f" and bool(np.all(array == np.floor(array))))
    if not is_whole:
        raise ValueError(f"{name} must hold whole numbers, got {array.dtype}")
    if array.max() > _LARGEST or array.min() < -_LARGEST:
        raise ValueError(f"{name} must hold whole numbers of at most {_LARGEST}, got {array.max()} and {array.min()}")
    return array.astype(np.int64)


def check_positive(name: str, value: Any, otherwise: str = "") -> int:
    """A whole number of at least 1; `otherwise` says in the message what else the caller takes."""
    try:
        number = 0 if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise ValueError(f"{name} must be a whole number of at least 1{otherwise}, got {value!r}")
    return number


def offsets_from_sizes(sizes: Any) -> IntArray:
    """[2, 3] -> [0, 2, 5]."""
    array = as_array("sizes", sizes)
    if array.ndim != 1 or array.dtype.kind not in "biu":
        raise ValueError(f"sizes must be a row of whole numbers, got {array.dtype} of shape {array.shape}")
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(array, out=offsets[1:])
    return offsets


def check_offsets(offsets: Any, items: int, name: str = "offsets") -> IntArray:
    """Validated offsets of lists that hold `items` items together."""
    array = whole_numbers(name, offsets)
    if array.size == 0:
        raise ValueError(f"{name} must hold at least one number (a leading 0), got none")
    if array[0] != 0:
        raise ValueError(f"{name} must begin with 0, got {array[0]}")
    steps = np.diff(array)
    if steps.size and steps.min() < 0:
        at = int(np.argmax(steps < 0))
        raise ValueError(f"{name} must not decrease, got {array[at]} followed by {array[at + 1]} at position {at}")
    if array[-1] != items:
        raise ValueError(f"{name} must end with the number of items, {items}, got {array[-1]}")
    return array


def offsets_from_group(group: Any, items: int) -> IntArray:
    """Offsets of consecutive lists of the given sizes."""
    sizes = whole_numbers("group", group)
    if sizes.size and sizes.min() < 0:
        raise ValueError(f"group must hold sizes of at least 0, got {sizes.min()} at position {int(np.argmin(sizes))}")
    offsets = offsets_from_sizes(sizes)
    if offsets[-1] != items:
        raise ValueError(f"group must add up to the number of rows, {items}, got a sum of {offsets[-1]}")
    return offsets


@dataclass(frozen=True)
class Lists:
    """Lists over flat arrays whose rows may be in another order than the lists need.

    `rows` is None when they already follow each other; otherwise rows[k] is the row of the lists' item k.
    """

    offsets: IntArray
    rows: IntArray | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def items(self) -> int:
        return int(self.offsets[-1])

    @property
    def sizes(self) -> IntArray:
        return np.diff(self.offsets)

    def sort(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Rows as given -> items list by list."""
        return values if self.rows is None else values[self.rows]

    def restore(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Items list by list -> rows as given."""
        if self.rows is None:
            return values
        restored = np.empty_like(values)
        restored[self.rows] = values
        return restored


def is_missing(value: Any) -> bool:
    """None, NaN, NaT or the NA of pandas."""
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


def lists_from_qid(qid: Any, items: int) -> Lists:
    """Lists of the rows that share a qid, in the order in which the qids first appear."""
    array = as_array("qid", qid)
    if array.ndim != 1 or len(array) != items:
        raise ValueError(f"qid must hold one value for each of the {items} rows, got {describe(array)}")
    if array.dtype.kind == "O":
        missing = np.array([is_missing(value) for value in array], bool)
    else:
        missing = np.asarray(array != array)  # NaN and NaT
    if missing.any():
        raise ValueError(f"qid must not be missing or NaN, got one at row {int(np.argmax(missing))}")
    if items == 0:
        return Lists(np.zeros(1, np.int64))
    starts = np.concatenate(([True], array[1:] != array[:-1]))
    runs = np.flatnonzero(starts)
    try:
        _, first_seen, inverse = np.unique(array[runs], return_index=True, return_inverse=True)
    except TypeError:
        raise ValueError("qid must hold values of one kind, got kinds that cannot be compared") from None
    if len(first_seen) == len(runs):
        return Lists(np.append(runs, items).astype(np.int64))
    # Number the lists by first appearance, then sort rows stably by list number.
    rank = np.empty(len(first_seen), np.int64)
    rank[np.argsort(first_seen)] = np.arange(len(first_seen))
    number = rank[inverse][np.cumsum(starts) - 1]
    rows = np.argsort(number, kind="stable").astype(np.int64)
    return Lists(offsets_from_sizes(np.bincount(number)), rows)


def make_lists(items: int, *, offsets: Any = None, qid: Any = None, group: Any = None) -> Lists:
    """Lists over `items` rows from at most one of offsets, qid and group; without any, all rows are one list."""
    check_count("items", items, 0)
    given = [name for name, value in (("offsets", offsets), ("qid", qid), ("group", group)) if value is not None]
    if len(given) > 1:
        raise ValueError(f"at most one of offsets, qid and group may be given, got {' and '.join(given)}")
    if qid is not None:
        return lists_from_qid(qid, items)
    if group is not None:
        return Lists(offsets_from_group(group, items))
    if offsets is not None:
        return Lists(check_offsets(offsets, items))
    return Lists(np.array([0, items], np.int64))


def check_where(where: Any, shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    """A boolean mask of the given shape."""
    mask = as_array("where", where)
    if mask.dtype != np.bool_:
        raise ValueError(f"where must be boolean, got {mask.dtype}")
    if mask.shape != shape:
        raise ValueError(f"where must have the shape of scores, {shape}, got {mask.shape}")
    return mask


@dataclass(frozen=True)
class Batch:
    """How an input array maps to flat lists.

    A 1-D input is flat already. A 2-D input has a list in each row; with `where` only the marked entries are items.
    """

    offsets: IntArray
    shape: tuple[int, ...]
    where: npt.NDArray[np.bool_] | None = None


def make_batch(shape: tuple[int, ...], *, offsets: Any = None, where: Any = None) -> Batch:
    """The lists of an input array of the given shape, by the rules of `Batch`."""
    check_kind("shape", shape, tuple)
    if len(shape) == 1:
        mask = None if where is None else check_where(where, shape)
        items = shape[0] if mask is None else int(mask.sum())
        if offsets is not None and where is not None:
            raise ValueError("at most one of offsets and where may be given, got both")
        if offsets is None:
            return Batch(np.array([0, items], np.int64), shape, mask)
        return Batch(check_offsets(offsets, items), shape)
    if len(shape) != 2:
        raise ValueError(f"scores must have one dimension (flat lists) or two (a list in each row), got {len(shape)}")
    if offsets is not None:
        raise ValueError("offsets belong to one-dimensional scores, got them with two-dimensional scores")
    if where is None:
        return Batch(np.arange(shape[0] + 1, dtype=np.int64) * shape[1], shape)
    mask = check_where(where, shape)
    return Batch(offsets_from_sizes(mask.sum(axis=1).astype(np.int64)), shape, mask)
