"""Files of predicted scores: one number per line for lists of items, `label:score ...` lines for multilabel rows."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.arguments import as_array, check_finite
from plackett.data import letor, sparse_text, xmc
from plackett.data.containers import MultilabelData, RankingData
from plackett.data.files import Source, ending, open_source, open_target, source_name
from plackett.data.text import number_texts
from plackett.data.untrusted import parse_array
from plackett.errors import DataError


def load_scores(source: Source, data: RankingData | MultilabelData) -> Any:
    """Read the scores that a system predicted for `data`, in the order of its rows.

    For lists of items, reads text with one number per line or a .npy file, and returns an array. For rows with labels,
    reads text with `label:score` pairs, after an optional line `rows labels`, and returns a CSR array of the scores.
    """
    if not isinstance(data, RankingData | MultilabelData):
        raise ValueError(f"data must be RankingData or MultilabelData to have scores, got {type(data).__name__}")
    scores = _load_array(source) if isinstance(data, RankingData) else _load_pairs(source, data.Y.shape[1])
    expected = len(data.y) if isinstance(data, RankingData) else len(data)
    if scores.shape[0] != expected:
        raise DataError(
            f"expected scores for {expected:,} rows of data, got {scores.shape[0]:,}",
            file=source_name(source),
            remedy="Pass the scores of this data, in the same order",
        )
    return scores


def _load_array(source: Source) -> npt.NDArray[np.float64]:
    name = source_name(source)
    if ending(source) == ".npy":
        return _load_npy(source)
    parse = letor.piece_parser(1, sparse_text.LARGEST_INDEX, "error", np.dtype(np.float64), False)
    expected = "expected one finite number per line"
    try:
        with open_source(source) as file:
            pieces = sparse_text.parse_pieces(file, parse)
    except DataError as error:
        if error.line is None:
            raise
        raise DataError(expected, file=name, line=error.line, text=error.text) from None
    for piece in pieces:
        if len(piece.columns) or piece.state[5]:
            row = int(np.argmax(np.diff(piece.starts) > 0))
            raise DataError(expected, file=name, line=int(piece.first_line + piece.lines[row]))
    scores = np.concatenate([np.zeros(0), *(piece.y for piece in pieces)])
    if not len(scores):
        raise DataError("the file contains no scores", file=name)
    return scores


def _load_npy(source: Source) -> npt.NDArray[np.float64]:
    name = source_name(source)
    with open_source(source) as file:
        content = file.read()
    try:
        scores = parse_array(content)
    except ValueError as error:
        raise DataError(f"not a readable .npy file ({error})", file=name) from error
    if scores.ndim != 1 or scores.dtype.kind not in "iuf" or not np.isfinite(scores).all():
        raise DataError(
            f"expected a 1-D array of finite numbers, got {scores.dtype} of shape {scores.shape}", file=name
        )
    return np.asarray(scores, np.float64)


def _load_pairs(source: Source, labels: int) -> Any:
    from scipy.sparse import csr_array

    def header(line: bytes) -> bool:
        words = line.split()
        return len(words) == 2 and all(word.isdigit() for word in words)

    dtype = np.dtype(np.float64)
    with open_source(source) as file:
        pieces = sparse_text.parse_pieces(
            file, lambda text, first, last: xmc.parse_piece(text, first, last, (labels, 0), "sort", dtype), header
        )
    if not pieces:
        raise DataError("the file contains no scores", file=source_name(source))
    for piece in pieces:
        if np.isnan(piece.values).any():
            row = int(np.searchsorted(piece.starts, np.argmax(np.isnan(piece.values)), side="right")) - 1
            raise DataError(
                "expected label:score with finite scores", file=source_name(source), line=piece.first_line + row
            )
    data, indices, indptr = sparse_text.join_sparse(pieces, dtype)
    return csr_array((data, indices, indptr), shape=(len(indptr) - 1, labels))


def dump_scores(scores: Any, target: Source) -> None:
    """Write an array of scores, one per line, or a CSR array as `label:score` pairs, for `load_scores` to read."""
    if not hasattr(scores, "indptr"):
        array = as_array("scores", scores)
        if array.ndim != 1 or array.dtype.kind not in "iuf":
            raise ValueError(
                f"scores must be a 1-D array of numbers or a CSR array, got {array.dtype} of shape {array.shape}"
            )
        check_finite("scores", array)
        with open_target(target) as file:
            file.write("".join(f"{text}\n" for text in number_texts(array)).encode())
        return
    check_finite("scores", scores.data)
    with open_target(target) as file:
        texts = number_texts(scores.data)
        for first, last in itertools.pairwise(scores.indptr):
            pairs = zip(scores.indices[first:last].tolist(), texts[first:last], strict=True)
            file.write((" ".join(f"{label}:{text}" for label, text in pairs) + "\n").encode())
