"""What the columns of a Parquet file say of their sizes, read without Arrow.

Arrow checks this only while it reads. Asked for it before, it ends the process where the file is damaged: an exception
of C++ leaves a method that Cython takes for one without any. So the few numbers that are needed to refuse a file before
it is read come from here. They stand in structures of Thrift's compact protocol: the footer describes chunks, one for
each column and group of rows, and each page of a chunk begins with a header of its own.

    https://parquet.apache.org/docs/file-format/metadata/
    https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import IO, Any, NamedTuple, TypeVar

T = TypeVar("T")

LARGEST_PAGE = 2**31
"""Bytes: lengths of pages are 32-bit numbers."""

_MAGIC = b"PAR1"
_DEEPEST = 16
_HEADER = 1 << 16  # bytes for the header of a page, which may hold the least and the greatest value
_PADDING = 100  # bytes after the last page, which old writers left
_DELTA_BYTE_ARRAY = 7


class Chunk(NamedTuple):
    """A column of a group of rows: how many values it has, and where its pages are."""

    values: int
    start: int
    stored: int


class Pages(NamedTuple):
    """The bytes of all pages of a chunk when they are decompressed.

    Texts may begin as the one before (`share_beginnings`), and are then longer than the bytes that hold them.
    """

    expanded: int
    share_beginnings: bool


class _Thrift:
    """A structure as a dictionary by the numbers of its fields. ValueError or IndexError if it is none."""

    def __init__(self, content: bytes) -> None:
        self._content, self.position = content, 0

    def _varint(self) -> int:
        content, position = self._content, self.position
        byte = content[position]
        value, shift = byte & 127, 7
        while byte > 127:
            if shift > 63:
                raise ValueError("a number of more than 64 bits")
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
                # Every element takes a byte at least, so that the content limits their number.
                return [self._value(head & 15, depth + 1) for _ in range(size)]
            case 12:
                return self.struct(depth + 1)
            case 1 | 2 | 3:  # truth values take a byte inside lists
                return self._bytes(1)
            case 7:
                return self._bytes(8)
            case 11 if size := self._varint():
                kinds = self._bytes(1)[0]
                return [(self._value(kinds >> 4, depth + 1), self._value(kinds & 15, depth + 1)) for _ in range(size)]
            case 11:
                return []
        raise ValueError(f"a field of the unknown kind {kind}")

    def _bytes(self, size: int) -> bytes:
        found = self._content[self.position : self.position + size]
        if len(found) < size:
            raise IndexError("the end comes too early")
        self.position += size
        return found


def row_groups(file: IO[bytes]) -> list[tuple[int, list[Chunk]]]:
    """For each group of rows their number, and the chunks of its columns as the footer describes them."""
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


def _chunk(about: dict[int, Any]) -> Chunk:
    dictionary, start = _field(about, 11, int, 0), _field(about, 9, int)
    return Chunk(
        values=_field(about, 5, int),
        start=dictionary if 0 < dictionary < start else start,
        stored=_field(about, 7, int),
    )


def pages_of(file: IO[bytes], chunk: Chunk) -> Pages:
    """What the pages say of themselves, which Arrow goes by: the footer, which says it too, may say anything."""
    expanded, encodings = 0, set()
    for page in _page_headers(file, chunk):
        expanded += max(0, _field(page, 2, int))
        first, second = _field(page, 5, dict, {}), _field(page, 8, dict, {})  # versions of the format
        encodings |= {_field(first, 2, int, -1), _field(second, 4, int, -1)}
    return Pages(expanded, _DELTA_BYTE_ARRAY in encodings)


def _page_headers(file: IO[bytes], chunk: Chunk) -> Iterator[dict[int, Any]]:
    position, end = chunk.start, chunk.start + chunk.stored
    while end - position > _PADDING or position == chunk.start < end:
        file.seek(position)
        header = _Thrift(file.read(min(_HEADER, end - position)))
        page = header.struct()
        yield page
        length = _field(page, 3, int)
        if length < 0:
            raise ValueError("a page of a length below 0")
        position += header.position + length
