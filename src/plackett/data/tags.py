"""Tags: lists of names per row, as people label texts, and their matrix."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse

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
