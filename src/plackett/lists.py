"""The structure of lists: many lists of different lengths, one after the other in flat arrays.

`offsets` describe a batch of lists: list b holds the items offsets[b] to offsets[b+1] - 1. Callers may also give

    qid     one identifier per row; rows of a list need not be adjacent
    group   the sizes of consecutive lists
    where   a boolean mask over a padded 2-D array whose rows are lists

All of them become offsets here, and every mistake in them is reported here. `flat_lists` turns scores and labels with
their offsets or mask into checked flat lists, the same way for NumPy and torch; `make_lists` handles rows with qid or
group. `reduce_losses` takes the mean over lists, with their weights. Checks of single arguments are in
`plackett.arguments`. Code that takes flat lists validates nothing.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from plackett.arguments import (
    IntArray,
    as_array,
    as_floats,
    as_tensor,
    check_choice,
    check_count,
    check_float_tensor,
    is_missing,
    is_torch,
    ranks_if_large,
    to_numpy,
    type_and_shape,
    whole_numbers,
)

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "FlatLists",
    "IntArray",
    "Lists",
    "check_offsets",
    "flat_lists",
    "lists_from_qid",
    "make_lists",
    "offsets_from_group",
    "offsets_from_sizes",
    "takes_mask",
]


REDUCTIONS = ("mean", "sum", "none")
_PADDING = -100  # of Hugging Face's batches
_Function = TypeVar("_Function", bound=Callable[..., Any])


def takes_mask(function: _Function) -> _Function:
    """Decorator: `mask` is another name for `where`."""

    @functools.wraps(function)
    def wrapped(*arguments: Any, mask: Any = None, **options: Any) -> Any:
        if mask is not None:
            if options.get("where") is not None:
                raise ValueError("mask is another name for where: at most one of them may be given, got both")
            options["where"] = mask
        return function(*arguments, **options)

    return cast("_Function", wrapped)


def offsets_from_sizes(sizes: Any) -> IntArray:
    """[2, 3] -> [0, 2, 5]."""
    array = as_array("sizes", sizes)
    if array.ndim != 1 or array.dtype.kind not in "biu":
        raise ValueError(f"sizes must be a row of whole numbers, got {array.dtype} of shape {array.shape}")
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(array, out=offsets[1:])
    return offsets


def check_offsets(offsets: Any, items: int, name: str = "offsets") -> IntArray:
    """Validated offsets of lists that hold `items` items in total."""
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
    """Lists over flat arrays whose rows may be in any order.

    `rows` is None if the rows of each list are adjacent and in order; otherwise rows[k] is the row of item k.
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

    @property
    def sort_order(self) -> IntArray | slice:
        """An index that takes values by row to values by item."""
        return slice(None) if self.rows is None else self.rows

    def sort(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Values by row -> values by item, list by list."""
        return values if self.rows is None else values[self.rows]

    def restore(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Values by item -> values by row."""
        if self.rows is None:
            return values
        restored = np.empty_like(values)
        restored[self.rows] = values
        return restored


def lists_from_qid(qid: Any, items: int) -> Lists:
    """One list for each qid, in order of first appearance."""
    array = as_array("qid", qid)
    if array.ndim != 1 or len(array) != items:
        raise ValueError(f"qid must hold one value for each of the {items} rows, got {type_and_shape(array)}")
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
    """Lists over `items` rows from at most one of offsets, qid and group; without any, one list."""
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


@dataclass(frozen=True)
class FlatLists:
    """Checked scores and labels of all lists, one after the other.

    NumPy arrays are contiguous float64. torch tensors keep their type, their device and their place in the graph.
    """

    scores: Any  # (items,)
    labels: Any  # (items,)
    offsets: IntArray
    shape: tuple[int, ...]  # of the input
    dtype: Any  # of the input's scores
    where: Any = None  # marks the items among the entries of the input; None: all are items

    def restore(self, values: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        """One value per item -> the shape and type of the input (NumPy); entries that are not items become zero."""
        if self.where is None:
            return values.astype(self.dtype, copy=False).reshape(self.shape)
        full = np.zeros(self.shape, self.dtype)
        full[self.where] = values
        return full


def flat_lists(scores: Any, labels: Any, *, offsets: Any = None, where: Any = None) -> FlatLists:
    """The items of a batch of lists; torch if `scores` is a tensor, else NumPy.

    1-D scores hold lists one after the other (`offsets`; without it, one list). 2-D scores hold one list per row. With
    `where` only the marked entries are items. Labels are real numbers in the shape of the scores; in NumPy, integers
    too large for float64 become their ranks.
    """
    if is_torch(scores):
        check_float_tensor("scores", scores)
        x, y = scores, as_tensor("labels", labels, scores.device)
        if y.is_complex():
            raise ValueError(f"labels must be real numbers, got {y.dtype}")
        mask = None if where is None else as_tensor("where", where, scores.device)
    else:
        x, y = as_floats("scores", scores), _float_labels(labels)
        mask = None if where is None else as_array("where", where)
    shape = tuple(x.shape)
    if tuple(y.shape) != shape:
        raise ValueError(f"labels must have the shape of scores, {shape}, got {tuple(y.shape)}")
    if len(shape) not in (1, 2):
        raise ValueError(f"scores must have one dimension (flat lists) or two (one list per row), got {len(shape)}")
    if mask is not None:
        _check_mask(mask, shape)
    elif len(shape) == 2 and _holds_padding(y):
        raise ValueError(
            f"labels must not hold {_PADDING}, which marks padding, without where: pass where=labels != {_PADDING}"
        )
    bounds = _offsets_of_entries(shape, offsets, mask)
    if mask is not None:
        flat_scores, flat_labels = x[mask], y[mask]
    elif len(shape) == 2:
        flat_scores, flat_labels = x.reshape(-1), y.reshape(-1)
    else:
        flat_scores, flat_labels = x, y
    if not is_torch(scores):
        flat_scores, flat_labels = (np.ascontiguousarray(z, np.float64) for z in (flat_scores, flat_labels))
    return FlatLists(flat_scores, flat_labels, bounds, shape, x.dtype, mask)


def _holds_padding(labels: Any) -> bool:
    """Usually the smallest label tells, in a quarter of the time. torch has no minimum of some unsigned integers."""
    if 0 in labels.shape or not getattr(labels.dtype, "is_signed", True):
        return False
    if is_torch(labels) and labels.device.type == "cpu" and not labels.is_floating_point():
        labels = labels.numpy()  # again half the time
    return not labels.min().item() > _PADDING and bool((labels == _PADDING).any())


def _float_labels(labels: Any) -> npt.NDArray[Any]:
    """Labels as floats that are equal only where the labels are."""
    if not is_torch(labels) and not isinstance(labels, np.ma.MaskedArray):
        labels = ranks_if_large(as_array("labels", labels))
    return as_floats("labels", labels)


def _check_mask(mask: Any, shape: tuple[int, ...]) -> None:
    if str(mask.dtype) not in ("bool", "torch.bool"):
        raise ValueError(f"where must be boolean, got {mask.dtype}")
    if tuple(mask.shape) != shape:
        raise ValueError(f"where must have the shape of scores, {shape}, got {tuple(mask.shape)}")


def _offsets_of_entries(shape: tuple[int, ...], offsets: Any, mask: Any) -> IntArray:
    """Offsets of the items of an array of one or two dimensions."""
    if offsets is not None:
        if mask is not None:
            raise ValueError("at most one of offsets and where may be given, got both")
        if len(shape) == 2:
            raise ValueError("offsets belong to one-dimensional scores, got them with two-dimensional scores")
        return check_offsets(to_numpy(offsets), shape[0])
    if mask is not None:
        return offsets_from_sizes(to_numpy(mask.sum(-1).reshape(-1)))
    if len(shape) == 1:
        return np.array([0, shape[0]], np.int64)
    return np.arange(shape[0] + 1, dtype=np.int64) * shape[1]


def reduce_losses(losses: "Tensor", weights: Any, reduction: str) -> "Tensor":
    """Reduce one loss per list to "mean" = sum(weight * loss) / sum(weight), "sum", or "none" = weight * loss.

    The mean over no lists, or over lists of weight 0, is 0.
    """
    check_choice("reduction", reduction, REDUCTIONS)
    if weights is None:
        weighted, total = losses, float(len(losses))
    else:
        weight = as_tensor("weights", weights, losses.device, losses.dtype)
        if weight.shape != losses.shape:
            raise ValueError(f"weights must hold one value per list, {tuple(losses.shape)}, got {tuple(weight.shape)}")
        if not bool((weight >= 0).all()):
            raise ValueError(f"weights must be at least 0, got {weight.min().item()}")
        weighted, total = losses * weight, float(weight.sum())
    if reduction == "none":
        return weighted
    return weighted.sum() if reduction == "sum" else weighted.sum() / (total if total > 0.0 else 1.0)
