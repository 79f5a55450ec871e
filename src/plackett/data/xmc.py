"""Sparse text of the extreme classification repository: a header `rows features labels`, then `labels index:value ...`.

Labels are separated by commas; a row without labels starts with a blank or a feature. All indices start at 0.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from plackett.arguments import check_choice, check_float_type, check_kind
from plackett.data import parsing_kernels, sparse_text
from plackett.data.containers import MultilabelData, without_zeros
from plackett.data.files import Source, open_source, open_target, source_name
from plackett.data.sparse_text import Arrays, Bytes, Piece, Unsorted, cached, line_start, scratch
from plackett.data.text import number_texts
from plackett.errors import DataError


@dataclass
class XmcRows(Piece):
    """Parsed lines with their labels."""

    labels: Piece


def load_xmc(
    source: Source,
    *,
    dtype: npt.DTypeLike = np.float64,
    unsorted: Unsorted = "error",
    cache: bool | str | os.PathLike[str] = False,
) -> MultilabelData:
    """Read rows of sparse features and labels; arguments as in `load_letor`. Labels may come in any order."""
    check_choice("unsorted", unsorted, ("error", "sort"))
    check_float_type("dtype", dtype)
    options = {"reader": "xmc", "dtype": np.dtype(dtype).name, "unsorted": unsorted}
    arrays = cached(source, cache, options, lambda: _parse(source, np.dtype(dtype), unsorted))
    rows, features, labels = arrays["shape"].tolist()
    X = csr_array((arrays["X_data"], arrays["X_indices"], arrays["X_indptr"]), shape=(rows, features))
    Y = csr_array((arrays["Y_data"], arrays["Y_indices"], arrays["Y_indptr"]), shape=(rows, labels))
    return MultilabelData(X, Y)


class _Header:
    """Reads the three numbers in the first line."""

    shape: tuple[int, int, int] | None = None

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, line: bytes) -> bool:
        words = line.split()
        if len(words) != 3 or not all(word.isdigit() and len(word) < 10 for word in words):
            text = line.decode("utf-8", "replace").strip()
            raise DataError(
                "expected a header with the numbers of rows, features and labels", file=self._name, line=1, text=text
            )
        self.shape = int(words[0]), int(words[1]), int(words[2])
        return True


def _parse(source: Source, dtype: np.dtype[Any], unsorted: Unsorted) -> Arrays:
    name = source_name(source)
    header = _Header(name)

    def parse(text: Bytes, first: int, last: int) -> XmcRows:
        assert header.shape is not None  # noqa: S101 - the first line has been read
        return parse_piece(text, first, last, header.shape[1:], unsorted, dtype)

    with open_source(source) as file:
        pieces = sparse_text.parse_pieces(file, parse, header)
    if header.shape is None:
        raise DataError("the file is empty", file=name)
    found = sum(piece.rows for piece in pieces)
    if found > header.shape[0]:
        found = _drop_blank_end(pieces, header.shape[0])
    if found != header.shape[0]:
        raise DataError(
            f"the header declares {header.shape[0]:,} rows, but {found:,} follow",
            file=name,
            line=1,
            remedy="Check whether the file is truncated, or correct the header",
        )
    X = sparse_text.join_sparse(pieces, dtype)
    Y = sparse_text.join_sparse([piece.labels for piece in pieces], dtype)
    arrays = {"shape": np.array(header.shape)}
    for letter, parts in (("X", X), ("Y", Y)):
        arrays |= {f"{letter}_{part}": a for part, a in zip(("data", "indices", "indptr"), parts, strict=True)}
    return arrays


def _drop_blank_end(pieces: list[XmcRows], wanted: int) -> int:
    """Drop blank lines after the last row that the header declares. Returns the number of rows left."""
    rows = sum(piece.rows for piece in pieces)
    for piece in reversed(pieces):
        blank = (np.diff(piece.starts) == 0) & (np.diff(piece.labels.starts) == 0)
        while rows > wanted and piece.rows and blank[piece.rows - 1]:
            piece.starts, piece.labels.starts = piece.starts[:-1], piece.labels.starts[:-1]
            rows -= 1
        if piece.rows:
            break
    return rows


def parse_piece(
    text: Bytes, first: int, last: int, shape: tuple[int, ...], unsorted: Unsorted, dtype: np.dtype[Any]
) -> XmcRows:
    part = text[first:last]
    lines, colons = int(np.count_nonzero(part == 10)), int(np.count_nonzero(part == 58))
    commas = int(np.count_nonzero(part == 44))
    starts, columns, values = scratch(lines + 1, np.int64), scratch(colons, np.int32), scratch(colons)
    label_starts, labels = scratch(lines + 1, np.int64), scratch(lines + commas, np.int32)
    hard, state = scratch((colons, 2), np.int64), np.zeros(6, np.int64)
    parsing_kernels.parse_xmc(
        text, first, last, shape[0], unsorted == "error", shape[1],
        (starts, columns, values, label_starts, labels, hard, state),
    )  # fmt: skip
    rows, count, label_count = state[3:6]
    ones = np.ones(label_count, dtype)
    label_piece = Piece(label_starts[: rows + 1], labels[:label_count], ones, state, hard[:0])
    piece = XmcRows(starts[: rows + 1], columns[:count], values[:count], state, hard, label_piece)
    sparse_text.check_piece(piece, text)
    if unsorted == "sort":
        sparse_text.sort_rows(piece, lambda row: line_start(text, first, row))
    sparse_text.sort_rows(label_piece, lambda row: line_start(text, first, row), parsing_kernels.REPEATED_LABEL)
    sparse_text.cast(piece, dtype, lambda row: line_start(text, first, row))
    piece.hard = np.empty((0, 2), np.int64)
    return piece


def dump_xmc(data: MultilabelData, target: Source) -> None:
    """Write rows that `load_xmc` reads back exactly. The format has no grades, so stored values of Y must be 1."""
    check_kind("data", data, MultilabelData)
    X, Y = _sorted(csr_array(data.X)), without_zeros(_sorted(csr_array(data.Y)))
    if np.isinf(X.data).any():
        raise ValueError("X must be finite or NaN to be written as text")
    if not (Y.data == 1).all():
        raise ValueError("Y must contain only ones: the format has no grades")
    with open_target(target) as file:
        file.write(f"{X.shape[0]} {X.shape[1]} {Y.shape[1]}\n".encode())
        for row in range(X.shape[0]):
            labels = ",".join(map(str, Y.indices[Y.indptr[row] : Y.indptr[row + 1]].tolist()))
            part = slice(X.indptr[row], X.indptr[row + 1])
            pairs = zip(X.indices[part].tolist(), number_texts(X.data[part]), strict=True)
            file.write(f"{labels} {' '.join([f'{i}:{v}' for i, v in pairs])}\n".encode())


def _sorted(matrix: Any) -> Any:
    if matrix.has_canonical_format:
        return matrix
    copy = matrix.copy()
    copy.sum_duplicates()
    return copy
