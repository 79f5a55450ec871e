"""Text with one row per line and features as `index:value`: shared by the LETOR and XMC readers.

The file is read in blocks of complete lines; while one is parsed, the next is read and decompressed. A block is cut
into pieces that threads parse in parallel, each into its own arrays. These are joined at the end, one after the other,
and freed as they are joined, so memory use is little more than that of the result.

The parser is our own and compiled, because existing ones are slower or less strict: see benchmarks/data.py.

Parsed arrays can be cached on disk (`cached`), keyed by a hash of their source. A change to the file, an option or the
parser changes the hash, so a cached entry equals what parsing would give. Cache files contain plain arrays with a
checksum and are written atomically; a damaged file counts as missing.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import mmap
import os
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from plackett.compilation import cache_directory, source_hash
from plackett.data import parsing_kernels
from plackett.data.files import OpenSource, Source, atomic_write, is_path
from plackett.data.hashes import content_hash
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
    parsing_kernels.BAD_LABEL: (
        "expected a number as the label",
        "A line has the form: label qid:list index:value ...",
    ),
    parsing_kernels.BAD_QID: ("expected a whole number after qid:", "Number the lists"),
    parsing_kernels.MIXED_QID: ("some rows have a qid and others do not", "Give a qid to all rows or to none"),
    parsing_kernels.LATE_QID: ("qid must come directly after the label", None),
    parsing_kernels.NO_COLON: ("expected index:value", "The line may be truncated"),
    parsing_kernels.BAD_INDEX: ("expected a whole number as the feature index", None),
    parsing_kernels.LOW_INDEX: ("feature index below the first one", "If indices start at 0, pass first_index=0"),
    parsing_kernels.HIGH_INDEX: (
        "feature index above the number of features given by n_features, the model or the header, or above 2^31",
        "Correct that number, or train the model with --features",
    ),
    parsing_kernels.REPEATED_INDEX: ("duplicate feature index", "Keep one of them"),
    parsing_kernels.FALLING_INDEX: ("feature indices must increase", 'Pass unsorted="sort" to sort them'),
    parsing_kernels.BAD_VALUE: ("expected a number as the feature value", "The line may be truncated"),
    parsing_kernels.INFINITE_VALUE: ("feature values must be finite, or nan if missing", None),
    parsing_kernels.BAD_BYTE: ("carriage return inside a line", "Convert line endings to line feeds"),
    parsing_kernels.REPEATED_LABEL: ("duplicate label in a row", "Keep one of them"),
    parsing_kernels.HIGH_LABEL: ("label above the number of labels declared by the header", "Correct the header"),
}


@dataclass
class Piece:
    """Some parsed lines and their features: row r has columns[starts[r]:starts[r+1]]."""

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


class Problem(Exception):  # noqa: N818 - becomes a DataError once its line is known
    """A problem at a byte position of a text."""

    def __init__(self, position: int, problem: str, remedy: str | None) -> None:
        self.position, self.problem, self.remedy = position, problem, remedy


def scratch(shape: int | tuple[int, ...], dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
    """Allocate an array whose memory returns to the system as soon as it is freed, unlike NumPy's own in many cases."""
    count = int(np.prod(shape))
    size = count * np.dtype(dtype).itemsize
    if size < 1 << 16:
        return np.empty(shape, dtype)
    return np.frombuffer(mmap.mmap(-1, size), dtype, count).reshape(shape)


def cast(piece: Piece, dtype: np.dtype[Any], row_start: Callable[[int], int]) -> None:
    """Convert values to `dtype`; one too large for it is a problem. `row_start` maps a row to its position."""
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
    """Yield the file in blocks of complete lines, each ending with a line feed."""
    parts: list[bytes] = []
    begun = False
    with (
        ThreadPoolExecutor(1, thread_name_prefix="plackett-read") as reader,
        progress_bar("reading", file.size) as update,
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
                raise DataError(f"lines must have at most {_LONGEST_LINE:,} bytes, got a longer one", file=file.name)
            update(file.position)
    rest = b"".join(parts)
    if rest:
        yield rest + b"\n"


def parse_pieces(
    file: OpenSource, parse: Callable[[Bytes, int, int], P], header: Callable[[bytes], bool] | None = None
) -> list[P]:
    """Parse all lines. `parse` takes a text, a start and an end; `header` says whether the first line is a header."""
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
            file.check_expansion(nbytes)  # as numbers, short lines take several times their size
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
        return DataError("found a NUL byte", file=name, line=line, text=text, remedy="The file is damaged or not text")
    return DataError(problem.problem, file=name, line=line, text=text, remedy=problem.remedy)


def check_piece(piece: Piece, text: Bytes, labels: npt.NDArray[Any] | None = None) -> None:
    """Raise the problem that the parser found, and fill in the numbers that it left to float()."""
    error, position, hard = piece.state[:3]
    for k, end in piece.hard[:hard].tolist():
        begin = end
        while begin > 0 and text[begin - 1] not in b": \t\r\n":
            begin -= 1
        value = float(text[begin:end].tobytes())
        if not np.isfinite(value):
            raise Problem(begin, *_PROBLEMS[parsing_kernels.INFINITE_VALUE])
        if k >= 0:
            piece.values[k] = value
        elif labels is not None and -1 - k < len(labels):  # otherwise the row has an error later on
            labels[-1 - k] = value
    if error:
        raise Problem(int(position), *_PROBLEMS[int(error)])


def line_start(text: Bytes, first: int, line: int) -> int:
    """The position where the given line starts; line 0 starts at `first`."""
    return first if line == 0 else first + 1 + int(np.flatnonzero(text[first:] == 10)[line - 1])


def sort_rows(piece: Piece, row_start: Callable[[int], int], problem: int = parsing_kernels.REPEATED_INDEX) -> None:
    """Sort each row by column. A duplicate column is a problem; `row_start` maps a row to its position in the text."""
    row = parsing_kernels.sort_rows(piece.starts, piece.columns, piece.values)
    if row >= 0:
        raise Problem(row_start(row), *_PROBLEMS[problem])


def row_offsets(pieces: list[Any]) -> IntArray:
    return offsets_from_sizes(np.array([piece.rows for piece in pieces], np.int64))


def widest(pieces: list[Any]) -> int:
    """The number of columns: one more than the greatest index."""
    return 1 + max((int(piece.columns.max()) for piece in pieces if len(piece.columns)), default=-1)


def join_dense(pieces: list[Any], columns: int, dtype: npt.DTypeLike, rows: IntArray | None = None) -> npt.NDArray[Any]:
    """Join all rows into a dense array, with row rows[k] of the file at index k. Frees the pieces' features."""
    offsets = row_offsets(pieces)
    places = np.arange(offsets[-1])
    if rows is not None:
        places[rows] = np.arange(offsets[-1])
    dense = np.zeros((int(offsets[-1]), columns), dtype)

    def run(first: int, last: int) -> int:
        for number in range(first, last):
            piece = pieces[number]
            part = places[offsets[number] : offsets[number + 1]]
            parsing_kernels.scatter(piece.starts, piece.columns, piece.values, part, dense)
            piece.columns = piece.values = piece.starts = np.zeros(0, np.int64)
        return 0

    run_over_ranges(run, offsets * max(1, columns))
    return dense


def join_sparse(pieces: list[Any], dtype: npt.DTypeLike) -> tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]:
    """Join all rows into data, indices and indptr of a CSR matrix. Frees the pieces' features."""
    counts = offsets_from_sizes(np.array([len(piece.columns) for piece in pieces], np.int64))
    offsets = row_offsets(pieces)
    total = int(counts[-1])
    # scipy wants both index arrays to have the same type.
    index_type = np.int32 if total <= LARGEST_INDEX else np.int64
    data, indices = np.empty(total, dtype), np.empty(total, index_type)
    indptr = np.zeros(int(offsets[-1]) + 1, index_type)
    for number, piece in enumerate(pieces):
        data[counts[number] : counts[number + 1]] = piece.values
        indices[counts[number] : counts[number + 1]] = piece.columns
        indptr[offsets[number] + 1 : offsets[number + 1] + 1] = piece.starts[1:] + counts[number]
        piece.columns = piece.values = piece.starts = np.zeros(0, np.int64)
    return data, indices, indptr


Arrays = Mapping[str, npt.NDArray[Any]]


def cached(
    source: Source, cache: bool | str | os.PathLike[str], options: Mapping[str, Any], parse: Callable[[], Arrays]
) -> Arrays:
    """Return the result of `parse`, from the cache if possible. `cache` is a folder, or True for the user's cache."""
    if cache is False:
        return parse()
    if not is_path(source):
        raise ValueError("cache must be False for a stream: only a file with a path can be cached")
    before = _stamp(source)
    folder = cache_directory() / "data" if cache is True else Path(cache)
    settings = json.dumps(options, sort_keys=True, default=str)
    key = f"{content_hash(source)}\n{settings}\n{source_hash(Path(__file__).parent)}"  # type: ignore[arg-type]
    path = folder / f"{hashlib.sha256(key.encode()).hexdigest()}.arrays"
    found = _read_arrays(path)
    if found is not None:
        return found
    arrays = parse()
    if _stamp(source) != before:  # changed during the read: the hash may not match the arrays
        return arrays
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            file.write(json.dumps([_checksum(arrays), *arrays]).encode() + b"\n")
            for array in arrays.values():
                np.save(file, array, allow_pickle=False)
    except OSError as error:
        warnings.warn(f"cannot cache the parsed data in {folder}: {error}", stacklevel=4)
    return arrays


def _stamp(source: Source) -> tuple[int, int, int]:
    stat = Path(source).stat()  # type: ignore[arg-type]
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


def _read_arrays(path: Path) -> Arrays | None:
    try:
        with path.open("rb") as file:
            checksum, *names = json.loads(file.readline())
            arrays = {name: np.load(file, allow_pickle=False) for name in names}
        return arrays if _checksum(arrays) == checksum else None
    except Exception:  # whatever is wrong with the file, parse again
        return None


def _checksum(arrays: Arrays) -> int:
    """A checksum of names, types, shapes and bytes: it finds damage, not forgery."""
    found = 0
    for name, array in arrays.items():
        found = zlib.crc32(f"{name} {array.dtype.str} {array.shape}".encode(), found)
        if array.nbytes:
            found = zlib.crc32(array.ravel(order="K").view(np.uint8).data, found)
    return found
