"""Rows of features with labels in the order of their lists: the one container of all rankers, trainers and kernels.

Everything that users give is checked once. Features go through `plackett.arguments.as_features` or scikit-learn's
`validate_data` (`plackett.estimators.ranker`), the rest through `make_listed_rows`; code that gets a `ListedRows` need
not check it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.arguments import as_array, as_numbers, type_and_shape
from plackett.data.containers import rows_of_lists
from plackett.data.positions import Positions
from plackett.lists import IntArray, Lists, offsets_from_sizes

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ListedRows:
    """Labelled rows, those of a list next to each other.

    X             features, (rows, features): an array, CSR or a pandas table
    labels        (rows,), finite; higher is better, equal labels are tied
    lists         the offsets of the lists, and how to restore the order in which the rows were given
    weights       (lists,), at least 0
    name          what results call these rows
    positions     where the rows were shown; None: not given
    item_weights  (rows,), at least 0, of the rows within their lists; None: all equal
    """

    X: Any
    labels: Floats
    lists: Lists
    weights: Floats
    name: str = "train"
    positions: Positions | None = None
    item_weights: Floats | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def offsets(self) -> IntArray:
        """List b holds the rows offsets[b] to offsets[b+1] - 1."""
        return self.lists.offsets

    def select(self, lists: IntArray) -> ListedRows:
        """Some of the lists."""
        sizes = np.diff(self.offsets)[lists]
        return self._take(rows_of_lists(self.offsets, lists), sizes, self.weights[lists])

    def keep(self, kept: npt.NDArray[np.bool_]) -> ListedRows:
        """Some of the rows, by a mask; a list may become empty.

        For a Plackett-Luce model this is exact: what it says about some items of a list does not depend on the others.
        """
        before = np.concatenate(([0], np.cumsum(kept)))
        return self._take(np.flatnonzero(kept), np.diff(before[self.offsets]), self.weights)

    def _take(self, rows: IntArray, sizes: IntArray, weights: Floats) -> ListedRows:
        return ListedRows(
            take_rows(self.X, rows),
            self.labels[rows],
            Lists(offsets_from_sizes(sizes)),
            weights,
            self.name,
            None if self.positions is None else self.positions.take(rows),
            None if self.item_weights is None else self.item_weights[rows],
        )

    def between(self, first: int, last: int) -> ListedRows:
        """The rows first..last-1, which must be whole lists; empty lists are left out."""
        starts, ends = self.offsets[:-1], self.offsets[1:]
        kept = (starts >= first) & (ends <= last) & (ends > starts)
        offsets = np.append(starts[kept], last) - first
        return ListedRows(
            self.X[first:last], self.labels[first:last], Lists(offsets), self.weights[kept], self.name
        )  # fmt: skip


def make_listed_rows(X: Any, y: Any, lists: Lists, sample_weight: Any = None, name: str = "train") -> ListedRows:
    """Rows in the order of their lists, from checked features X and from y and sample_weight in the order of X."""
    labels = check_labels(y, X.shape[0])
    return ListedRows(take_rows(X, lists.rows), lists.sort(labels), lists, list_weights(sample_weight, lists), name)


def check_labels(y: Any, rows: int) -> Floats:
    """One finite label per row."""
    labels = as_numbers("y", y)
    if labels.shape != (rows,):
        raise ValueError(f"y must hold one label for each of the {rows} rows of X, got shape {labels.shape}")
    if not np.isfinite(labels).all():
        raise ValueError(f"y must be finite, got {labels[np.argmin(np.isfinite(labels))]}: Input y contains NaN")
    return labels


def list_weights(sample_weight: Any, lists: Lists) -> Floats:
    """One weight per list from one per row; the weights of a list's rows must be equal."""
    if sample_weight is None:
        return np.ones(len(lists))
    weights = as_numbers("sample_weight", sample_weight)
    if weights.shape != (lists.items,):
        raise ValueError(f"sample_weight must hold one value for each of the {lists.items} rows, got {weights.shape}")
    if not (np.isfinite(weights) & (weights >= 0.0)).all():
        raise ValueError(f"sample_weight must be finite and at least 0, got {weights.min()} to {weights.max()}")
    if not weights.any():
        raise ValueError("sample_weight must not be zero everywhere")
    ordered = lists.sort(weights)
    firsts = np.ones(len(lists))
    filled = lists.sizes > 0
    firsts[filled] = ordered[lists.offsets[:-1][filled]]
    differs = ordered != np.repeat(firsts, lists.sizes)
    if differs.any():
        at = int(np.argmax(differs))
        expected = np.repeat(firsts, lists.sizes)[at]
        raise ValueError(
            f"sample_weight must be constant within a list, because each list has one weight, got {expected} and "
            f"{ordered[at]} in one list: pass weights of items, such as inverse propensities, as item_weight="
        )
    return firsts


def check_item_weights(item_weight: Any, rows: int) -> Floats:
    """One weight of at least 0 per row."""
    weights = as_numbers("item_weight", item_weight)
    if weights.shape != (rows,):
        raise ValueError(f"item_weight must hold one value for each of the {rows} rows of X, got shape {weights.shape}")
    if not (np.isfinite(weights) & (weights >= 0.0)).all():
        raise ValueError(f"item_weight must be finite and at least 0, got {weights.min()} to {weights.max()}")
    return weights


def check_examined(examined: Any, labels: Floats) -> npt.NDArray[np.bool_]:
    """Which rows were seen: true or false, or 1 or 0. An item with a positive label, such as a click, was seen."""
    array = as_array("examined", examined)
    if array.shape != labels.shape:
        raise ValueError(
            f"examined must hold true or false for each of the {len(labels)} rows of X, got {type_and_shape(array)}"
        )
    if array.dtype != bool:
        numbers_ = as_numbers("examined", array)
        if not np.isin(numbers_, (0.0, 1.0)).all():
            raise ValueError(f"examined must hold true or false, got {numbers_[~np.isin(numbers_, (0.0, 1.0))][0]}")
        array = numbers_ == 1.0
    contradicting = ~array & (labels > 0.0)
    if contradicting.any():
        at = int(np.argmax(contradicting))
        raise ValueError(
            f"examined must be true where y is above 0, got false at row {at} with y = {labels[at]:g}: an item that "
            "was clicked was seen"
        )
    return array


def take_rows(X: Any, rows: IntArray | None) -> Any:
    if rows is None:
        return X
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]
