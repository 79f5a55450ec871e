"""Column sizes declared in a Parquet file, read without Arrow.

Arrow checks them only while it reads. If it is asked for them earlier and the file is damaged, it ends the process: a
C++ exception leaves a method that Cython assumes never throws. So this module reads the few numbers that are needed to
refuse a file before reading it. They are in structures of Thrift's compact protocol: the footer describes chunks, one
for each column and row group, and each page of a chunk starts with its own header.

    https://parquet.apache.org/docs/file-format/metadata/
    https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import IO, Any, NamedTuple, TypeVar

T = TypeVar("T")

LARGEST_PAGE = 2**31
"""In bytes: page lengths are 32-bit numbers."""

_MAGIC = b"PAR1"
_DEEPEST = 16
_HEADER = 1 << 16  # bytes for a page header, which may include the minimum and maximum value
_PADDING = 100  # bytes that old writers left after the last page
_DELTA_BYTE_ARRAY = 7


class ColumnChunk(NamedTuple):
    """A column of a row group: its number of values, and where its pages are."""

    values: int
    start: int
    stored: int


class Pages(NamedTuple):
    """The decompressed bytes of all pages of a chunk.

    Strings may be stored as the end that differs from the one before (`shares_prefixes`), and are then longer than
    their stored bytes.
    """

    expanded: int
    shares_prefixes: bool


class _Thrift:
    """Reads a structure as a dictionary by field number. ValueError or IndexError if it is malformed."""

    def __init__(self, content: bytes) -> None:
        self._content, self.position = content, 0

    def _varint(self) -> int:
        content, position = self._content, self.position
        byte = content[position]
        value, shift = byte & 127, 7
        while byte > 127:
            if shift > 63:
                raise ValueError("a number with more than 64 bits")
            position += 1
            byte = content[position]
            value |= (byte & 127) << shift
            shift += 7
        self.position = position + 1
        return value

    def _number(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def struct(self, depth: int = 0) -> dict[int, Any]:
        if depth > _DEEPEST:
            raise ValueError("structures nested too deeply")
        fields: dict[int, Any] = {}
        field = 0
        while head := self._content[self.position]:
            self.position += 1
            kind = head & 15
            field = field + (head >> 4) if head > 15 else self._number()
            fields[field] = kind == 1 if kind in (1, 2) else self._value(kind, depth)
        self.position += 1
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        match kind:
            case 5 | 6 | 4:
                return self._number()
            case 8:
                return self._bytes(self._varint())
            case 9 | 10:
                head = self._content[self.position]
                self.position += 1
                size = self._varint() if head >> 4 == 15 else head >> 4
                # Every element takes at least one byte, so the size of the content limits their number.
                return [self._value(head & 15, depth + 1) for _ in range(size)]
            case 12:
                return self.struct(depth + 1)
            case 1 | 2 | 3:  # inside lists, booleans take one byte
                return self._bytes(1)
            case 7:
                return self._bytes(8)
            case 11 if size := self._varint():
                kinds = self._bytes(1)[0]
                return [(self._value(kinds >> 4, depth + 1), self._value(kinds & 15, depth + 1)) for _ in range(size)]
            case 11:
                return []
        raise ValueError(f"a field of unknown type {kind}")

    def _bytes(self, size: int) -> bytes:
        found = self._content[self.position : self.position + size]
        if len(found) < size:
            raise IndexError("unexpected end of data")
        self.position += size
        return found


def row_groups(file: IO[bytes]) -> list[tuple[int, list[ColumnChunk]]]:
    """The number of rows and the column chunks of each row group, as described by the footer."""
    size = file.seek(0, io.SEEK_END)
    file.seek(max(0, size - 8))
    end = file.read(8)
    length = int.from_bytes(end[:4], "little")
    if end[4:] != _MAGIC or length > size - 8:
        raise ValueError("no footer")
    file.seek(size - 8 - length)
    groups = _field(_Thrift(file.read(length)).struct(), 4, list)
    return [
        (_field(group, 3, int), [_chunk(_field(column, 3, dict)) for column in _field(group, 1, list)])
        for group in groups
    ]


def _field(fields: Any, number: int, kind: type[T], default: T | None = None) -> T:
    found = fields.get(number, default) if isinstance(fields, dict) else None
    if not isinstance(found, kind):
        raise ValueError(f"field {number} must be {kind.__name__}, got {found!r:.40}")
    return found


def _chunk(about: dict[int, Any]) -> ColumnChunk:
    dictionary, start = _field(about, 11, int, 0), _field(about, 9, int)
    return ColumnChunk(
        values=_field(about, 5, int),
        start=dictionary if 0 < dictionary < start else start,
        stored=_field(about, 7, int),
    )


def pages_of(file: IO[bytes], chunk: ColumnChunk) -> Pages:
    """Sizes from the page headers, which Arrow relies on: the sizes in the footer may differ from them."""
    expanded, encodings = 0, set()
    for page in _page_headers(file, chunk):
        expanded += max(0, _field(page, 2, int))
        first, second = _field(page, 5, dict, {}), _field(page, 8, dict, {})  # versions of the format
        encodings |= {_field(first, 2, int, -1), _field(second, 4, int, -1)}
    return Pages(expanded, _DELTA_BYTE_ARRAY in encodings)


def _page_headers(file: IO[bytes], chunk: ColumnChunk) -> Iterator[dict[int, Any]]:
    position, end = chunk.start, chunk.start + chunk.stored
    while end - position > _PADDING or position == chunk.start < end:
        file.seek(position)
        header = _Thrift(file.read(min(_HEADER, end - position)))
        page = header.struct()
        yield page
        length = _field(page, 3, int)
        if length < 0:
            raise ValueError("a page with a negative length")
        position += header.position + length
