"""LETOR / SVMlight text: `label qid:list index:value ... # comment`, one line per item (MSLR, Yahoo, Istella, MQ)."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from plackett.arguments import check_choice, check_count, check_float_type, check_kind, is_exact, whole_numbers
from plackett.data import parsing_kernels, sparse_text
from plackett.data.containers import RankingData
from plackett.data.files import (
    OpenSource,
    Source,
    is_compressed_name,
    is_path,
    open_source,
    open_target,
    read_lines,
    source_name,
)
from plackett.data.sparse_text import Arrays, Bytes, Piece, Unsorted, cached, line_start, scratch
from plackett.data.text import number_texts
from plackett.errors import DataError
from plackett.lists import IntArray, lists_from_qid, offsets_from_group

Scattered = Literal["error", "group"]
Unread = Literal["error", "ignore"]

_UNREAD = {".weight": "weights of rows", ".init": "initial scores", ".position": "positions of items"}
"""Endings of files that LightGBM reads next to its data, and what they hold."""

_LONGEST_ID = 256
_MOST_CHARACTERS = 1 << 24
_PADDING = 16
_LONGEST_LABEL = 400  # characters of a finite label, except for leading zeros
_MOST_DENSE, _DENSE = 1 << 25, 50  # cells that a dense array may always have, and cells per stored value


@dataclass
class LetorRows(Piece):
    """Parsed lines with their labels. `lines` counts from the first line of the piece; `ids` are bytes or None."""

    y: npt.NDArray[np.float64]
    qid: IntArray
    lines: IntArray
    ids: npt.NDArray[np.bytes_] | None


def load_letor(
    source: Source,
    *,
    n_features: int | None = None,
    first_index: int = 1,
    sparse: bool = False,
    dtype: npt.DTypeLike = np.float64,
    scattered: Scattered = "error",
    unsorted: Unsorted = "error",
    group: Any = None,
    ids: bool = True,
    cache: bool | str | os.PathLike[str] = False,
    unread: Unread = "error",
) -> RankingData:
    """Read lists of items from LETOR or SVMlight text.

    A missing feature is 0; `nan` is kept. Comments become `ids`: the word after `docid =`, else the entire comment.
    Blank lines and comment lines are skipped.

    Args:
        source: a path, "-" for standard input, or a binary stream; compressed or not.
        n_features: the width of X. Default: the greatest index found.
        first_index: the index of the first feature, 1 or 0.
        sparse: whether to return X as a CSR array instead of a dense one.
        dtype: type of X, float64 or float32.
        scattered: what to do if a qid returns after other lists: "error", or "group" its rows together.
        unsorted: what to do if the indices in a line do not increase: "error", or "sort" them.
        group: for files without qid: the sizes of the lists, or the path of a LightGBM file with them. Default: the
            name of the source with `.query` appended, if that file exists; for a compressed rank.train.xz also
            rank.train.query and rank.train.query.xz.
        ids: whether to keep the comments, of at most 256 bytes each.
        cache: keep the parsed arrays on disk and load them from there next time: True, or a folder.
        unread: what to do if LightGBM would also read weights, initial scores or positions from a file next to the
            source, such as rank.train.weight: "error", or "ignore" them.

    Raises:
        DataError: with the file, the line and the text of the error.
    """
    check_choice("unread", unread, ("error", "ignore"))
    check_choice("scattered", scattered, ("error", "group"))
    check_choice("unsorted", unsorted, ("error", "sort"))
    check_float_type("dtype", dtype)
    if first_index not in (0, 1):
        raise ValueError(f"first_index must be 0 or 1, got {first_index!r}")
    if n_features is not None:
        check_count("n_features", n_features, 0, sparse_text.LARGEST_INDEX)
    if unread == "error":
        _refuse_unread(source)
    options = {"reader": "letor", "n_features": n_features, "first_index": first_index, "sparse": sparse}
    options |= {"dtype": np.dtype(dtype).name, "scattered": scattered, "unsorted": unsorted, "ids": ids}

    def parse() -> Arrays:
        limit = sparse_text.LARGEST_INDEX if n_features is None else int(n_features)
        parser = piece_parser(first_index, limit, unsorted, np.dtype(dtype), ids, exact=True)
        with open_source(source) as file:
            pieces = sparse_text.parse_pieces(file, parser)
            return _join(pieces, file, n_features, sparse, np.dtype(dtype), scattered)

    arrays = dict(cached(source, cache, options, parse))
    X = _features(arrays, sparse)
    y, names = arrays["y"], arrays.get("ids")
    if "qid" in arrays:
        if group is not None:
            raise ValueError(f"group must be None for a file with qids, such as {source_name(source)}")
        return RankingData(X, y, arrays["qid"], arrays["offsets"], names, first_index)
    offsets = _offsets_without_qid(source, group, len(y))
    qid = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return RankingData(X, y, qid, offsets, names, first_index)


def load_lightgbm(source: Source, **options: Any) -> RankingData:
    """Read LightGBM's ranking text, with its numbers of features: index k is column k, so column 0 may be empty.

    LightGBM counts features from 0 even if a file counts from 1. Models that it trained on files, and files that it is
    to read, thus fit data read by this function. `load_letor` leaves out the empty column of a file that counts from 1.

    Args:
        source: a path or a binary stream. The sizes of the lists come from `qid:` in the lines, or from a file of the
            same name with `.query` appended.
        options: other arguments of `load_letor`.

    >>> import io
    >>> data = load_lightgbm(io.BytesIO(b"1 1:0.5 3:2\\n0 1:0.1\\n"), group=[2])
    >>> data.X.tolist()
    [[0.0, 0.5, 0.0, 2.0], [0.0, 0.1, 0.0, 0.0]]
    """
    if "first_index" in options:
        raise ValueError(
            f"first_index must not be given, because LightGBM counts from 0, got {options['first_index']!r}"
        )
    return load_letor(source, first_index=0, **options)


def _features(arrays: Arrays, sparse: bool) -> Any:
    if not sparse:
        return arrays["X"]
    parts = (arrays["X_data"], arrays["X_indices"], arrays["X_indptr"])
    return csr_array(parts, shape=tuple(arrays["X_shape"].tolist()))


def _offsets_without_qid(source: Source, group: Any, rows: int) -> IntArray:
    name = source_name(source)
    if group is None:
        group = _query_file(source)
        if group is None:
            raise DataError(
                "the rows have no qid",
                file=name,
                remedy=f"Pass the sizes of the lists, or a file with them, as group=, or name that file {name}.query",
            )
    if isinstance(group, str | os.PathLike):
        sizes = load_group(group)
        if sizes.max() > rows or sizes.sum() != rows:  # huge sizes could overflow to the right sum
            raise DataError(
                f"the sizes must add up to the {rows:,} rows of {name}, got {sizes.sum():,}", file=source_name(group)
            )
        group = sizes
    return offsets_from_group(group, rows)


def _query_file(source: Source) -> Path | None:
    """LightGBM's file of list sizes next to the source."""
    return _file_beside(source, ".query")


def _file_beside(source: Source, ending: str) -> Path | None:
    """The file named like the source with this ending added; for rank.train.xz also that of rank.train."""
    if not is_path(source):
        return None
    name = source_name(source)
    names = [name, str(Path(name).with_suffix(""))] if is_compressed_name(source) else [name]
    endings = (ending, f"{ending}{Path(name).suffix}") if is_compressed_name(source) else (ending,)
    found = [path for base in names for ending in endings if (path := Path(base + ending)).is_file()]
    return found[0] if found else None


def _refuse_unread(source: Source) -> None:
    for ending, content in _UNREAD.items():
        if (found := _file_beside(source, ending)) is not None:
            raise DataError(
                f"{found.name} holds {content} for LightGBM, which are not read here",
                file=source_name(source),
                remedy='Move it away to ignore them, or pass unread="ignore"; weights go to fit as sample_weight=',
            )


def _join(
    pieces: list[LetorRows],
    file: OpenSource,
    n_features: int | None,
    sparse: bool,
    dtype: np.dtype[Any],
    scattered: Scattered,
) -> Arrays:
    name = file.name
    pieces = [piece for piece in pieces if piece.rows]
    if not pieces:
        raise DataError("the file contains no rows", file=name)
    arrays: dict[str, npt.NDArray[Any]] = {"y": np.concatenate([piece.y for piece in pieces])}
    lists = None
    if _has_qid(pieces, name):
        qid = np.concatenate([piece.qid for piece in pieces])
        lists = lists_from_qid(qid, len(qid))
        if lists.rows is not None and scattered == "error":
            raise _scattered_error(qid, lists.rows, pieces, name)
        arrays |= {"qid": lists.sort(qid), "offsets": lists.offsets, "y": lists.sort(arrays["y"])}
    file.check_expansion(sum(piece.nbytes + (0 if piece.ids is None else 4 * piece.ids.nbytes) for piece in pieces))
    ids = _join_ids(pieces, name)  # four bytes per character
    if ids is not None:
        arrays["ids"] = ids if lists is None else lists.sort(ids)
    width = sparse_text.widest(pieces) if n_features is None else int(n_features)
    if sparse:
        data, indices, indptr = sparse_text.join_sparse(pieces, dtype)
        if lists is not None and lists.rows is not None:
            rows: Any = csr_array((data, indices, indptr), shape=(len(indptr) - 1, width))[lists.rows]
            data, indices, indptr = rows.data, rows.indices, rows.indptr
        shape = np.array([len(indptr) - 1, width])
        return {**arrays, "X_data": data, "X_indices": indices, "X_indptr": indptr, "X_shape": shape}
    _check_dense(pieces, width, dtype, file)
    rows = None if lists is None else lists.rows
    return {**arrays, "X": sparse_text.join_dense(pieces, width, dtype, rows)}


def piece_parser(
    first_index: int, limit: int, unsorted: Unsorted, dtype: np.dtype[Any], ids: bool, *, exact: bool = False
) -> Callable[[Bytes, int, int], LetorRows]:
    """Make a parser of lines; `exact` refuses integer labels that float64 would round."""

    def parse(text: Bytes, first: int, last: int) -> LetorRows:
        part = text[first:last]
        lines, colons = int(np.count_nonzero(part == 10)), int(np.count_nonzero(part == 58))
        y, qid, starts = scratch(lines), scratch(lines, np.int64), scratch(lines + 1, np.int64)
        columns, values = scratch(colons, np.int32), scratch(colons)
        line, comments = scratch(lines, np.int64), scratch((lines, 2), np.int64)
        hard, state = scratch((lines + colons, 2), np.int64), np.zeros(6, np.int64)
        parsing_kernels.parse_letor(
            text, first, last, first_index, limit, unsorted == "error",
            (y, qid, starts, columns, values, line, comments, hard, state),
        )  # fmt: skip
        rows, count = state[3:5]
        piece = LetorRows(
            starts[: rows + 1], columns[:count], values[:count], state, hard, y[:rows], qid[:rows], line[:rows], None
        )
        sparse_text.check_piece(piece, text, piece.y)
        if exact:
            _check_labels(piece, text, first, last)
        if unsorted == "sort":
            sparse_text.sort_rows(piece, lambda row: line_start(text, first, int(piece.lines[row])))
        piece.ids = _ids(text, comments[:rows]) if ids else None
        sparse_text.cast(piece, dtype, lambda row: line_start(text, first, int(piece.lines[row])))
        piece.hard = np.empty((0, 2), np.int64)
        return piece

    return parse


def _check_labels(piece: LetorRows, text: Bytes, first: int, last: int) -> None:
    large = np.flatnonzero(np.abs(piece.y) >= 2.0**53)
    if not len(large):
        return
    begins = np.append(first, first + 1 + np.flatnonzero(text[first:last] == 10))
    for begin in begins[piece.lines[large]].tolist():
        line = text[begin : begin + _LONGEST_LABEL].tobytes()
        word = line.split(None, 1)[0]
        if word.lstrip(b"+-").isdigit() and not is_exact(int(word)):
            raise sparse_text.Problem(
                begin + line.index(word),
                "integer label above 2^53 that float64 would round",
                "Use ranks instead of labels",
            )


def _ids(text: Bytes, comments: IntArray) -> npt.NDArray[np.bytes_] | None:
    width = parsing_kernels.find_ids(text, comments)
    if width == 0:  # no comments, or only blank ones
        return None
    if width > _LONGEST_ID:
        begin = int(comments[np.argmax(comments[:, 1] - comments[:, 0]), 0])
        raise sparse_text.Problem(
            begin, f"identifiers must have at most {_LONGEST_ID} bytes, got a comment of {width:,}", "Pass ids=False"
        )
    lengths = comments[:, 1] - comments[:, 0]
    problem = _too_much_padding(len(comments), width, int(lengths.sum()))
    if problem:
        raise sparse_text.Problem(int(comments[np.argmax(lengths), 0]), problem, "Pass ids=False")
    found = np.zeros((len(comments), width), np.uint8)
    parsing_kernels.gather(text, comments, found)
    return found.view(f"S{width}")[:, 0]


def _too_much_padding(rows: int, width: int, given: int) -> str:
    """Describe the problem if identifiers, all padded to the longest, take far more memory than their bytes."""
    if rows * width <= max(_MOST_CHARACTERS, _PADDING * given):
        return ""
    return f"an array of {rows:,} identifiers of {width} bytes is too large for the {given:,} bytes in the file"


def _join_ids(pieces: list[LetorRows], name: str) -> npt.NDArray[np.str_] | None:
    if all(piece.ids is None for piece in pieces):
        return None
    parts = [np.zeros(piece.rows, "S1") if piece.ids is None else piece.ids for piece in pieces]
    given = sum(int(np.count_nonzero(part.view(np.uint8))) for part in parts)
    problem = _too_much_padding(sum(map(len, parts)), max(part.itemsize for part in parts), given)
    if problem:
        raise DataError(problem, file=name, remedy="Pass ids=False")
    joined = np.concatenate(parts)
    flat = joined.view(np.uint8)
    if (flat < 128).all():  # ASCII is a fast copy
        return flat.astype(np.uint32).view(f"U{joined.dtype.itemsize}")
    try:
        return np.char.decode(joined, "utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"a comment is not UTF-8 text ({error})", file=name, remedy="Pass ids=False") from None


def _has_qid(pieces: list[LetorRows], name: str) -> bool:
    with_qid = [piece.state[5] > 0 for piece in pieces]
    if len(set(with_qid)) > 1:
        at = with_qid.index(not with_qid[0])
        raise DataError(
            "some rows have a qid and others do not",
            file=name,
            line=int(pieces[at].first_line + pieces[at].lines[0]),
            remedy="Give a qid to all rows or to none",
        )
    return bool(with_qid[0])


def _scattered_error(qid: IntArray, rows: IntArray, pieces: list[LetorRows], name: str) -> DataError:
    """Locate the first row of a list that does not directly follow the previous row of that list."""
    same_list = qid[rows[1:]] == qid[rows[:-1]]
    back = int(rows[1:][same_list & (rows[1:] != rows[:-1] + 1)].min())
    number = int(np.searchsorted(sparse_text.row_offsets(pieces), back, side="right")) - 1
    piece = pieces[number]
    line = int(piece.first_line + piece.lines[back - sparse_text.row_offsets(pieces)[number]])
    return DataError(
        "a qid returns after other lists",
        file=name,
        line=line,
        text=f"qid:{qid[back]}",
        remedy='Sort the file by qid, or pass scattered="group"',
    )


def _check_dense(pieces: list[LetorRows], width: int, dtype: np.dtype[Any], file: OpenSource) -> None:
    rows = sum(piece.rows for piece in pieces)
    stored = sum(len(piece.columns) for piece in pieces)
    if rows * width > max(_MOST_DENSE, _DENSE * stored):
        raise DataError(
            f"a dense array of {rows:,} rows and {width:,} features is too large for the {stored:,} values in the file",
            file=file.name,
            remedy="Pass sparse=True, or set n_features= to refuse indices that are too large",
        )
    file.check_expansion(sum(piece.nbytes for piece in pieces) + rows * width * dtype.itemsize)


def load_group(source: Source) -> IntArray:
    """Read list sizes, one per line: the `.query` file of LightGBM."""
    sizes = array("q")
    for number, line in enumerate(read_lines(source), 1):
        word = line.strip()
        if not word:
            continue
        if not (word.isascii() and word.isdecimal() and len(word) < 16):
            raise DataError("expected the size of a list", file=source_name(source), line=number, text=word)
        sizes.append(int(word))
    if not sizes:
        raise DataError("the file contains no sizes", file=source_name(source))
    return np.array(sizes, np.int64)


def dump_group(group: Any, target: Source) -> None:
    """Write list sizes, or those of a RankingData, as a LightGBM `.query` file."""
    sizes = whole_numbers("group", np.diff(group.offsets) if isinstance(group, RankingData) else group)
    offsets_from_group(sizes, int(sizes.sum()))  # checks
    with open_target(target) as file:
        file.write("".join(f"{size}\n" for size in sizes.tolist()).encode())


def dump_letor(data: RankingData, target: Source, *, first_index: int = 1) -> None:
    """Write lists as LETOR text that `load_letor` reads back exactly, or refuse.

    Read sparse X back with sparse=True and n_features set to its width, because zeros are not written.
    """
    if first_index not in (0, 1):
        raise ValueError(f"first_index must be 0 or 1, got {first_index!r}")
    check_kind("data", data, RankingData)
    data = _canonical_rows(data)
    for name, values in (("X", data.X.data if _is_sparse(data.X) else data.X), ("y", data.y)):
        if np.isinf(values).any() or (name == "y" and np.isnan(values).any()):
            raise ValueError(f"{name} must be finite{' or NaN' if name == 'X' else ''} to be written as text")
    if np.asarray(data.qid).dtype.kind not in "iu":
        raise ValueError(f"qid must hold whole numbers to be written as text, got {np.asarray(data.qid).dtype}")
    with open_target(target) as file:
        _write_rows(data, file, first_index)


def _canonical_rows(data: RankingData) -> RankingData:
    """Return the data with canonical rows and float64 labels; refuse what the text format cannot represent."""
    X = data.X
    if hasattr(X, "tocsr"):
        X = csr_array(X.tocsr())
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
    if (np.diff(data.offsets) == 0).any():
        raise ValueError("lists must not be empty to be written")
    firsts = np.asarray(data.qid)[data.offsets[:-1]]
    if len(np.unique(firsts)) != len(firsts) or (np.repeat(firsts, np.diff(data.offsets)) != data.qid).any():
        raise ValueError("qid must be constant within a list and unique to it to be written")
    if firsts.dtype.kind in "iu" and len(firsts) and not -(10**18) < int(firsts.min()) <= int(firsts.max()) < 10**18:
        raise ValueError("qid must have at most 18 digits to be written as text")
    return RankingData(X, np.asarray(data.y, np.float64), data.qid, data.offsets, data.ids, data.first_feature)


def _is_sparse(X: Any) -> bool:
    return hasattr(X, "indptr")


def _write_rows(data: RankingData, file: IO[bytes], first_index: int) -> None:
    ids = [""] * data.X.shape[0] if data.ids is None else [_comment(str(x)) for x in data.ids]
    labels, qids = number_texts(data.y), np.asarray(data.qid).tolist()
    names = [] if _is_sparse(data.X) else [f" {i + first_index}:" for i in range(data.X.shape[1])]
    for row in range(data.X.shape[0]):
        if _is_sparse(data.X):
            part = slice(data.X.indptr[row], data.X.indptr[row + 1])
            columns = (data.X.indices[part].astype(np.int64) + first_index).tolist()
            pairs = "".join([f" {c}:{v}" for c, v in zip(columns, number_texts(data.X.data[part]), strict=True)])
        else:
            pairs = "".join([c + v for c, v in zip(names, number_texts(data.X[row]), strict=True)])
        file.write(f"{labels[row]} qid:{qids[row]}{pairs}{ids[row]}\n".encode())


def _comment(identifier: str) -> str:
    if not identifier:
        return ""
    clean = identifier.strip() == identifier and identifier.isprintable() and not identifier.startswith("docid")
    if not clean or "#" in identifier or len(identifier.encode()) > _LONGEST_ID:
        raise ValueError(
            "ids must be printable, at most 256 bytes, without surrounding blanks or #, and not start with docid, "
            f"got {identifier!r}"
        )
    return f" # {identifier}"
