"""Labels of rows: a matrix of grades, or tags, lists of names as people label texts."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse

from plackett.arguments import as_array, as_csr, check_exact
from plackett.data.containers import without_zeros

Names = npt.NDArray[np.object_]


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
