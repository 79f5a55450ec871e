"""Text with a row a line and features as `index:value`: what the LETOR and XMC readers share.

The file is read in blocks of whole lines; while one is parsed, the next is read and decompressed. A block is cut into
pieces that threads parse side by side, each into arrays of its own, which are joined at the end one after the other,
each being freed when it is done: little more memory than the result takes.

A compiled parser of our own, because what exists is slower or less careful: see benchmarks/data.py.
"""

from __future__ import annotations

import codecs
import mmap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from plackett.data import kernels
from plackett.data.files import OpenSource
from plackett.errors import DataError
from plackett.lists import IntArray, offsets_from_sizes
from plackett.progress import progress_bar
from plackett.threads import run_over_ranges

Bytes = npt.NDArray[np.uint8]
Unsorted = Literal["error", "sort"]
P = TypeVar("P", bound="Piece")

LARGEST_INDEX = 2**31 - 2
_BLOCK = 1 << 24
_PIECE = 1 << 20
_LONGEST_LINE = 1 << 26

_PROBLEMS = {
    kernels.BAD_LABEL: ("expected a number as label", "A line is: label qid:list index:value ..."),
    kernels.BAD_QID: ("expected a whole number after qid:", "Number the lists"),
    kernels.MIXED_QID: ("some rows have a qid and others have none", "Give all rows one, or none"),
    kernels.LATE_QID: ("qid must stand directly after the label", None),
    kernels.NO_COLON: ("expected index:value", "The line may be cut off"),
    kernels.BAD_INDEX: ("expected a whole number as feature index", None),
    kernels.LOW_INDEX: ("feature index below the first one", "If indices begin with 0, pass first_index=0"),
    kernels.HIGH_INDEX: (
        "feature index beyond the number of features that n_features, the model or the header gives, or beyond 2^31",
        "Correct the number, or train the model with --features",
    ),
    kernels.REPEATED_INDEX: ("feature index given twice", "Keep one of them"),
    kernels.FALLING_INDEX: ("feature indices must increase", 'Pass unsorted="sort" to have them sorted'),
    kernels.BAD_VALUE: ("expected a number as feature value", "The line may be cut off"),
    kernels.INFINITE_VALUE: ("feature values must be finite, or nan where missing", None),
    kernels.BAD_BYTE: ("a carriage return inside a line", "Convert line ends to line feeds"),
    kernels.REPEATED_LABEL: ("a label given twice in a row", "Keep one of them"),
    kernels.HIGH_LABEL: ("label beyond the number of labels that the header declares", "Correct the header"),
}


@dataclass
class Piece:
    """Some lines and their features: row r holds columns[starts[r]:starts[r+1]]."""

    starts: IntArray
    columns: npt.NDArray[np.int32]
    values: npt.NDArray[np.floating[Any]]
    state: IntArray
    hard: IntArray
    first_line: int = field(default=0, kw_only=True)

    @property
    def rows(self) -> int:
        return len(self.starts) - 1

    @property
    def nbytes(self) -> int:
        return sum(value.nbytes for value in vars(self).values() if isinstance(value, np.ndarray | Piece))


class Problem(Exception):  # noqa: N818 - what becomes an error when its line is known
    """Something wrong at a byte of a text."""

    def __init__(self, position: int, problem: str, remedy: str | None) -> None:
        self.position, self.problem, self.remedy = position, problem, remedy


def scratch(shape: int | tuple[int, ...], dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
    """An array whose memory goes back to the system at once when it is freed, which that of NumPy often does not."""
    count = int(np.prod(shape))
    size = count * np.dtype(dtype).itemsize
    if size < 1 << 16:
        return np.empty(shape, dtype)
    return np.frombuffer(mmap.mmap(-1, size), dtype, count).reshape(shape)


def cast(piece: Piece, dtype: np.dtype[Any], row_start: Callable[[int], int]) -> None:
    """Values in the type wanted; one too large for it is a problem. `row_start` tells where in the text a row is."""
    if dtype == np.float64:
        return
    large = np.flatnonzero(np.abs(piece.values) > np.finfo(dtype).max)
    if len(large):
        row = int(np.searchsorted(piece.starts, large[0], side="right")) - 1
        value = float(piece.values[large[0]])
        raise Problem(row_start(row), f"a feature value of {value:g} is too large for {dtype}", "Pass dtype=float64")
    values = scratch(len(piece.values), dtype)
    values[:] = piece.values
    piece.values = values


def _blocks(file: OpenSource) -> Iterator[bytes]:
    """The file in stretches of whole lines, each ended by a line feed."""
    parts: list[bytes] = []
    begun = False
    with (
        ThreadPoolExecutor(1, thread_name_prefix="plackett-read") as reader,
        progress_bar("reading", file.size) as tell,
    ):
        coming = reader.submit(file.read, _BLOCK)
        while data := coming.result():
            coming = reader.submit(file.read, _BLOCK)
            if not begun:
                data, begun = data.removeprefix(codecs.BOM_UTF8), True
            cut = data.rfind(b"\n") + 1
            if cut:
                yield b"".join([*parts, data[:cut]])
                parts = []
            parts.append(data[cut:])
            if sum(map(len, parts)) > _LONGEST_LINE:
                raise DataError(f"a line of more than {_LONGEST_LINE:,} bytes", file=file.name)
            tell(file.position)
    rest = b"".join(parts)
    if rest:
        yield rest + b"\n"


def parse_pieces(
    file: OpenSource, parse: Callable[[Bytes, int, int], P], header: Callable[[bytes], bool] | None = None
) -> list[P]:
    """Parse all lines; `parse` takes a text and where to begin and end in it; `header` tells if the first is one."""
    pieces: list[P] = []
    lines = nbytes = 0
    for block in _blocks(file):
        cuts = [0]
        if header is not None:
            first_end = block.find(b"\n") + 1
            if header(block[:first_end]):
                cuts, lines = [first_end], 1
            header = None
        while cuts[-1] < len(block):
            cuts.append(block.find(b"\n", min(cuts[-1] + _PIECE, len(block) - 1)) + 1)
        for piece, first, last in zip(_parse_block(block, cuts, parse), cuts, cuts[1:], strict=False):
            if isinstance(piece, Problem):
                raise _located(piece, block, lines, first, file.name)
            piece.first_line = lines + 1
            pieces.append(piece)
            lines += block.count(b"\n", first, last)
            nbytes += piece.nbytes
            file.check_expansion(nbytes)  # short lines take several times their bytes as numbers
    return pieces


def _parse_block(block: bytes, cuts: list[int], parse: Callable[[Bytes, int, int], P]) -> list[P | Problem]:
    text = np.frombuffer(block, np.uint8)
    found: dict[int, P | Problem] = {}

    def run(first: int, last: int) -> int:
        for number in range(first, last):
            try:
                found[number] = parse(text, cuts[number], cuts[number + 1])
            except Problem as problem:
                found[number] = problem
        return 0

    run_over_ranges(run, np.asarray(cuts, np.int64) - cuts[0])
    return [found[number] for number in range(len(cuts) - 1)]


def _located(problem: Problem, block: bytes, lines_before: int, piece_start: int, name: str) -> DataError:
    begin = block.rfind(b"\n", 0, problem.position) + 1
    line = lines_before + block.count(b"\n", piece_start, begin) + 1
    end = min(x for x in (block.find(c, problem.position) for c in (b" ", b"\t", b"\n")) if x >= 0)
    text = block[problem.position : end].decode("utf-8", "replace")
    if "\0" in text:
        return DataError("a NUL byte", file=name, line=line, text=text, remedy="The file is damaged or not a text")
    return DataError(problem.problem, file=name, line=line, text=text, remedy=problem.remedy)


def check_piece(piece: Piece, text: Bytes, labels: npt.NDArray[Any] | None = None) -> None:
    """Raise the problem that the parser met, and put in the numbers that it left to float()."""
    error, position, hard = piece.state[:3]
    for k, end in piece.hard[:hard].tolist():
        begin = end
        while begin > 0 and text[begin - 1] not in b": \t\r\n":
            begin -= 1
        value = float(text[begin:end].tobytes())
        if not np.isfinite(value):
            raise Problem(begin, *_PROBLEMS[kernels.INFINITE_VALUE])
        if k >= 0:
            piece.values[k] = value
        elif labels is not None and -1 - k < len(labels):  # else the row has an error further on
            labels[-1 - k] = value
    if error:
        raise Problem(int(position), *_PROBLEMS[int(error)])


def line_start(text: Bytes, first: int, line: int) -> int:
    """Where the given line, counted from 0 at `first`, begins."""
    return first if line == 0 else first + 1 + int(np.flatnonzero(text[first:] == 10)[line - 1])


def sort_rows(piece: Piece, row_start: Callable[[int], int], problem: int = kernels.REPEATED_INDEX) -> None:
    """Sort each row by column. A column that comes twice is a problem; `row_start` tells where in the text a row is."""
    row = kernels.sort_rows(piece.starts, piece.columns, piece.values)
    if row >= 0:
        raise Problem(row_start(row), *_PROBLEMS[problem])


def row_offsets(pieces: list[Any]) -> IntArray:
    return offsets_from_sizes(np.array([piece.rows for piece in pieces], np.int64))


def widest(pieces: list[Any]) -> int:
    """One more than the greatest column."""
    return 1 + max((int(piece.columns.max()) for piece in pieces if len(piece.columns)), default=-1)


def join_dense(pieces: list[Any], columns: int, dtype: npt.DTypeLike, rows: IntArray | None = None) -> npt.NDArray[Any]:
    """All rows as one dense array, row rows[k] of the file at place k. Takes features out of the pieces as it goes."""
    offsets = row_offsets(pieces)
    places = np.arange(offsets[-1])
    if rows is not None:
        places[rows] = np.arange(offsets[-1])
    dense = np.zeros((int(offsets[-1]), columns), dtype)

    def run(first: int, last: int) -> int:
        for number in range(first, last):
            piece = pieces[number]
            part = places[offsets[number] : offsets[number + 1]]
            kernels.scatter(piece.starts, piece.columns, piece.values, part, dense)
            piece.columns = piece.values = piece.starts = np.zeros(0, np.int64)
        return 0

    run_over_ranges(run, offsets * max(1, columns))
    return dense


def join_sparse(pieces: list[Any], dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """All rows as data, indices and indptr of a CSR matrix. Takes the features out of the pieces as it goes."""
    counts = offsets_from_sizes(np.array([len(piece.columns) for piece in pieces], np.int64))
    offsets = row_offsets(pieces)
    total = int(counts[-1])
    # scipy wants both index arrays of one type.
    index_type = np.int32 if total <= LARGEST_INDEX else np.int64
    data, indices = np.empty(total, dtype), np.empty(total, index_type)
    indptr = np.zeros(int(offsets[-1]) + 1, index_type)
    for number, piece in enumerate(pieces):
        data[counts[number] : counts[number + 1]] = piece.values
        indices[counts[number] : counts[number + 1]] = piece.columns
        indptr[offsets[number] + 1 : offsets[number + 1] + 1] = piece.starts[1:] + counts[number]
        piece.columns = piece.values = piece.starts = np.zeros(0, np.int64)
    return data, indices, indptr
