"""Containers that readers and generators return, and the label matrices of `MultilabelData`.

Each container checks on creation that its arrays are consistent. `label_matrix` and `tag_matrix` make the matrix of
labels from grades or tags.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse

from plackett.arguments import (
    as_array,
    as_csr,
    check_count,
    check_exact,
    check_kind,
    check_sparse,
    check_unmasked,
    type_and_shape,
    whole_numbers,
)
from plackett.lists import IntArray, check_offsets, offsets_from_sizes

FloatArray = npt.NDArray[np.floating[Any]]
Names = npt.NDArray[np.object_]

_COMPLETED = 41  # bytes per item on a ballot at the peak of `complete`


def _check_matrix(name: str, values: Any) -> None:
    check_unmasked(name, values)
    if len(getattr(values, "shape", ())) != 2:
        raise ValueError(f"{name} must be a two-dimensional array or a CSR array, got {type_and_shape(values)}")
    if hasattr(values, "indptr"):
        check_sparse(name, values)


def _check_length(name: str, values: Any, rows: int, what: str) -> None:
    check_unmasked(name, values)
    if not hasattr(values, "__len__"):
        raise ValueError(f"{name} must hold one value for each of the {rows} {what}, got {type_and_shape(values)}")
    if len(values) != rows:
        raise ValueError(f"{name} must hold one value for each of the {rows} {what}, got {len(values)}")


def rows_of_lists(offsets: IntArray, lists: IntArray) -> IntArray:
    """The row numbers of the given lists, in order."""
    sizes = np.diff(offsets)[lists]
    starts = np.repeat(offsets[lists] - offsets_from_sizes(sizes)[:-1], sizes)
    return starts + np.arange(len(starts))


def _check_numbers(name: str, numbers: Any, count: int) -> IntArray:
    array = whole_numbers(name, numbers)
    _check_range(name, array, count)
    return array


def _check_range(name: str, array: npt.NDArray[Any], count: int) -> None:
    if array.size and (array.min() < 0 or array.max() >= count):
        raise ValueError(f"{name} must be from 0 to {count - 1}, got {array.min()} to {array.max()}")


@dataclass(frozen=True, eq=False)
class RankingData:
    """Lists of items with features and labels: one row per item, the rows of a list next to each other.

    X              features, (items, features), dense or CSR
    y              labels, (items,); higher is better, equal labels are tied
    qid            the list each row belongs to, (items,)
    offsets        list b is the rows offsets[b] to offsets[b+1] - 1
    ids            an identifier for each item, or None
    first_feature  the number of the first column of X, for messages and reports: 0 as in arrays, 1 as in LETOR files

    `len` is the number of lists; `data.select([0, 2])` is the data of those lists.
    """

    X: Any
    y: FloatArray
    qid: npt.NDArray[Any]
    offsets: IntArray
    ids: npt.NDArray[Any] | None = None
    first_feature: int = 0

    def __post_init__(self) -> None:
        _check_matrix("X", self.X)
        rows = self.X.shape[0]
        _check_length("y", self.y, rows, "rows of X")
        _check_length("qid", self.qid, rows, "rows of X")
        object.__setattr__(self, "offsets", check_offsets(self.offsets, rows))  # int64, whatever was given
        if self.ids is not None:
            _check_length("ids", self.ids, rows, "rows of X")
        check_count("first_feature", self.first_feature, 0, 1)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        return f"RankingData({len(self):,} lists, {self.X.shape[0]:,} items, {self.X.shape[1]:,} features)"

    def select(self, lists: Any) -> RankingData:
        """Return the lists with these numbers, in this order."""
        numbers = _check_numbers("lists", lists, len(self))
        rows = rows_of_lists(self.offsets, numbers)
        return RankingData(
            X=self.X[rows],
            y=self.y[rows],
            qid=self.qid[rows],
            offsets=offsets_from_sizes(np.diff(self.offsets)[numbers]),
            ids=None if self.ids is None else self.ids[rows],
            first_feature=self.first_feature,
        )


@dataclass(frozen=True, eq=False)
class MultilabelData:
    """Rows with sparse features and a few labels out of many.

    X   features, CSR (rows, features)
    Y   labels, CSR (rows, labels); the stored value is the grade, 1 without grades; a stored zero is not a label

    `len` is the number of rows; `data.select([0, 2])` is the data of those rows.
    """

    X: csr_array
    Y: csr_array

    def __post_init__(self) -> None:
        _check_matrix("X", self.X)
        _check_matrix("Y", self.Y)
        if self.X.shape[0] != self.Y.shape[0]:
            raise ValueError(f"X and Y must have the same number of rows, got {self.X.shape[0]} and {self.Y.shape[0]}")

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def __repr__(self) -> str:
        return f"MultilabelData({len(self):,} rows, {self.X.shape[1]:,} features, {self.Y.shape[1]:,} labels)"

    def select(self, rows: Any) -> MultilabelData:
        """Return the rows with these numbers, in this order."""
        numbers = _check_numbers("rows", rows, len(self))
        return MultilabelData(self.X[numbers], self.Y[numbers])


@dataclass(frozen=True, eq=False)
class Ballots:
    """Rankings of items from a common set. A ballot ranks all of them or some of them, with or without ties.

    items    the ranked items of all ballots, concatenated: indices into `names`
    labels   the rank of each: higher is better, equal labels on a ballot are tied
    offsets  ballot b is the entries offsets[b] to offsets[b+1] - 1
    weights  how often each ballot was cast, (ballots,)
    names    the names of all items, including those that no ballot ranks
    X        features of each ballot, (ballots, features), or None

    `len` is the number of distinct ballots; `data.select([0, 2])` is the data of those ballots.
    """

    items: npt.NDArray[np.integer[Any]]
    labels: FloatArray
    offsets: IntArray
    weights: FloatArray
    names: Sequence[str]
    X: FloatArray | None = None

    def __post_init__(self) -> None:
        check_kind("items", self.items, np.ndarray)
        check_kind("names", self.names, Collection)
        check_offsets(self.offsets, len(self.items))
        _check_length("labels", self.labels, len(self.items), "ranked items")
        _check_length("weights", self.weights, len(self), "ballots")
        if self.items.dtype.kind not in "iu":
            raise ValueError(f"items must hold whole numbers, got {self.items.dtype}")
        _check_range("items", self.items, len(self.names))
        if self.X is not None:
            _check_length("X", self.X, len(self), "ballots")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        return f"Ballots({len(self):,} ballots cast {float(np.sum(self.weights)):,g} times, {len(self.names):,} items)"

    def complete(self) -> Ballots:
        """Return the same ballots with every unranked item tied below the ranked ones."""
        from plackett.arguments import ranks_if_large  # slow to import, and reading a file does not need it
        from plackett.data.files import check_expansion

        sizes = np.diff(self.offsets)
        given = sum(array.nbytes for array in (self.items, np.asarray(self.labels), self.offsets))
        what = f"{len(self):,} ballots with all {len(self.names):,} items"
        check_expansion(given, _COMPLETED * len(self) * len(self.names), what)
        missing = np.ones((len(self), len(self.names)), bool)
        ballot = np.repeat(np.arange(len(self)), sizes)
        missing[ballot, self.items] = False
        rows, items = np.nonzero(missing)
        labels = ranks_if_large(np.asarray(self.labels))
        lowest = np.full(len(self), 1.0)
        np.minimum.at(lowest, ballot, labels)
        below = np.minimum(lowest - 1.0, np.nextafter(lowest, -np.inf))  # beyond 2^53, x - 1 == x
        order = np.argsort(np.concatenate([ballot, rows]), kind="stable")
        return Ballots(
            items=np.concatenate([self.items, items])[order],
            labels=np.concatenate([labels, below[rows]])[order],
            offsets=np.arange(len(self) + 1) * len(self.names),
            weights=self.weights,
            names=self.names,
            X=self.X,
        )

    def select(self, ballots: Any) -> Ballots:
        """Return the ballots with these numbers, in this order."""
        numbers = _check_numbers("ballots", ballots, len(self))
        entries = rows_of_lists(self.offsets, numbers)
        return Ballots(
            items=self.items[entries],
            labels=self.labels[entries],
            offsets=offsets_from_sizes(np.diff(self.offsets)[numbers]),
            weights=self.weights[numbers],
            names=self.names,
            X=None if self.X is None else self.X[numbers],
        )


# Labels of rows: a matrix of grades, or tags, lists of names as people label texts.


def is_tags(Y: Any) -> bool:
    """Whether labels are lists of names, one per row, rather than a matrix. A row may be empty, but not every row."""
    if issparse(Y) or hasattr(Y, "columns") or (not isinstance(Y, Sequence | np.ndarray) and not hasattr(Y, "iloc")):
        return False
    if isinstance(Y, np.ndarray) and (Y.ndim != 1 or Y.dtype != object):
        return False
    first = next((row for row in Y if isinstance(row, str) or (_is_row(row) and len(row))), None)
    return isinstance(first, str) or (first is not None and isinstance(next(iter(first)), str))


def _is_row(row: Any) -> bool:
    return isinstance(row, Collection) and not isinstance(row, str | bytes)


def checked_tags(name: str, Y: Iterable[Any]) -> list[list[str]]:
    """The tags of each row, each once."""
    rows = []
    for number, row in enumerate(Y):
        if not _is_row(row) or not all(isinstance(tag, str) and tag for tag in row):
            raise ValueError(
                f"{name} must hold a list of tags (strings that are not empty) for each row, got {row!r:.80} in row "
                f"{number}: write one tag as ['tag'], and none as []"
            )
        rows.append(list(dict.fromkeys(row)))
    return rows


def learn_names(rows: Iterable[Iterable[str]]) -> Names:
    """All tags, sorted."""
    return np.array(sorted({tag for row in rows for tag in row}), dtype=object)


def check_names(name: str, names: Any, count: int) -> Names:
    """A different name for each of `count` labels."""
    given = list(names)
    if len(given) != count or len(set(given)) != count or not all(isinstance(one, str) and one for one in given):
        raise ValueError(f"{name} must hold a different name for each of {count} labels, got {len(set(given))} names")
    return np.array(given, dtype=object)


def tag_matrix(name: str, rows: Sequence[Sequence[str]], names: Names) -> csr_array:
    """The tags as a matrix, (rows, names). Tags that are not among the names are left out, with a warning."""
    column = {tag: number for number, tag in enumerate(names)}
    unknown = sorted({tag for row in rows for tag in row if tag not in column})
    if unknown:
        shown = ", ".join(map(repr, unknown[:3])) + (", ..." if len(unknown) > 3 else "")
        warnings.warn(f"{name}: {len(unknown)} tags that do not occur in the training data are ignored: {shown}",
                      stacklevel=2)  # fmt: skip
    found = [sorted(column[tag] for tag in row if tag in column) for row in rows]
    offsets = np.concatenate(([0], np.cumsum([len(row) for row in found]))).astype(np.int64)
    columns = np.array([number for row in found for number in row], np.int64)
    return csr_array((np.ones(len(columns)), columns, offsets), shape=(len(rows), len(names)))


def is_sparse(X: Any) -> bool:
    return bool(issparse(X))  # bool(): no type narrowing


def has_grades(Y: csr_array) -> bool:
    return Y.nnz > 0 and bool((Y.data != Y.data[0]).any())


def label_matrix(Y: Any, rows: int) -> csr_array:
    """Y as CSR: the grades of the labels above the lowest tier of each row, columns ascending."""
    matrix: csr_array
    if is_sparse(Y):
        matrix = without_zeros(as_csr("Y", Y))
        check_exact("Y", matrix.data)
    else:
        dense = as_array("Y", Y)
        if dense.dtype.kind not in "biuf":
            raise ValueError(f"Y must hold numbers, got {dense.dtype}. Unknown label type")
        if dense.ndim != 2:
            raise ValueError(f"Y must have two dimensions, (rows, labels), got shape {dense.shape}")
        if np.isinf(dense).any():
            raise ValueError("Y must be finite or NaN, got infinity")
        if dense.size and np.isnan(dense).all():
            raise ValueError("Y must grade at least one label, got NaN alone")
        check_exact("Y", dense)
        is_indicator = bool(((dense == 0) | (dense == 1)).all())  # a row may have all labels, or none
        matrix = csr_array(dense) if is_indicator else _above_lowest(dense.astype(np.float64))
    if matrix.shape[0] != rows:
        raise ValueError(f"Y must have a row for each of the {rows} rows of X, got {matrix.shape[0]}")
    if matrix.shape[1] == 0:
        raise ValueError("Y must have at least one label, got none")
    if not np.isfinite(matrix.data).all():
        raise ValueError("Y must be finite, got NaN or infinity")
    return matrix


def _above_lowest(grades: npt.NDArray[np.float64]) -> csr_array:
    """Dense grades as CSR, without the lowest tier of each row: NaN if there is any, otherwise the smallest grade."""
    has_missing = np.isnan(grades).any(1, keepdims=True)
    lowest = np.where(has_missing, -np.inf, np.nan_to_num(grades, nan=np.inf).min(1, keepdims=True, initial=np.inf))
    row, column = np.nonzero(grades > lowest)
    counts = np.bincount(row, minlength=len(grades))
    return csr_array((grades[row, column], column, np.concatenate(([0], np.cumsum(counts)))), shape=grades.shape)


def without_grades(Y: csr_array) -> csr_array:
    """The same labels, all with grade 1."""
    return csr_array((np.ones(Y.nnz), Y.indices, Y.indptr), shape=Y.shape)


def without_zeros(Y: Any) -> Any:
    """Drop stored zeros from the CSR labels of rows: a zero is not a label."""
    if Y.data.all():
        return Y
    kept = Y.copy()
    kept.eliminate_zeros()
    return kept
