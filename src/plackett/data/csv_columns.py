"""Columns of a CSV file as codes of their different texts, by a compiled parser.

The file is read in blocks; memory holds one block, a code for each cell of the chosen columns, and each different text
once. Files with anything out of the ordinary are left to `CsvTable`, which reads them or says what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from plackett.data.comparisons import Factor
from plackett.data.csv_kernels import FINE, fill_slots, number_cells, split_rows
from plackett.data.factors import merge_names
from plackett.data.files import Source, is_path, open_source
from plackett.data.text import parse_csv_cell

_BLOCK = 1 << 22  # bytes
_ROWS = 1 << 16
_MARK = b"\xef\xbb\xbf"

Bytes = npt.NDArray[np.uint8]


@dataclass
class _Names:
    """The different texts of a column, and the code of each row."""

    slots: npt.NDArray[np.int32] = field(default_factory=lambda: np.full(1024, -1, np.int32))
    hashes: npt.NDArray[np.uint64] = field(default_factory=lambda: np.empty(512, np.uint64))
    starts: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(513, np.int64))
    text: Bytes = field(default_factory=lambda: np.empty(1 << 14, np.uint8))
    count: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))
    doubled: set[int] = field(default_factory=set)
    codes: list[npt.NDArray[np.int32]] = field(default_factory=list)

    def add(self, text: Bytes, spans: npt.NDArray[np.int64], doubled: npt.NDArray[np.bool_], rows: int) -> None:
        codes = np.empty(rows, np.int32)
        done = 0
        while True:
            done = number_cells(
                text, spans, doubled, done, rows, self.slots, self.hashes, self.starts, self.text, self.count, codes
            )
            if done == rows:
                break
            self._grow(int(spans[done, 1] - spans[done, 0]))
        self.doubled.update(np.unique(codes[doubled[:rows]]).tolist())
        self.codes.append(codes)

    def _grow(self, longest: int) -> None:
        count = int(self.count[0])
        if count == len(self.hashes):
            self.hashes = np.concatenate([self.hashes, np.empty_like(self.hashes)])
            self.starts = np.concatenate([self.starts, np.empty(count, np.int64)])
            self.slots = np.full(2 * len(self.slots), -1, np.int32)
            fill_slots(self.slots, self.hashes, count)
        if self.starts[count] + longest > len(self.text):
            self.text = np.concatenate([self.text, np.empty(max(len(self.text), longest), np.uint8)])

    def factor(self) -> Factor:
        whole = self.text.tobytes()
        ends = self.starts[: int(self.count[0]) + 1].tolist()
        names = [whole[a:b].decode() for a, b in pairwise(ends)]
        for code in self.doubled:
            names[code] = names[code].replace('""', '"')
        return merge_names(np.concatenate(self.codes), [parse_csv_cell(name.strip()) for name in names])


def read_csv_columns(source: Source, delimiter: str, columns: int, wanted: Sequence[int]) -> list[Factor] | None:
    """The wanted ones of the columns, without the header; None if another reader has to look at the file."""
    if not is_path(source) or str(source) == "-" or not delimiter.isascii():
        return None
    parser = _Parser(ord(delimiter), columns, wanted)
    with suppress(UnicodeDecodeError), open_source(source) as file:
        block = file.read(_BLOCK).removeprefix(_MARK)
        if block.startswith(_MARK):
            return None
        while True:
            used = parser.parse(block)
            if used is None or b"\0" in block:
                return None
            block[:used].decode()  # an error if this is not UTF-8
            read = file.read(_BLOCK)
            if not read and used == len(block):
                return [names.factor() for names in parser.names]
            if not read and block.endswith(b"\n"):
                return None  # in the middle of a row
            block = block[used:] + (read or b"\n")
    return None


class _Parser:
    """Parses blocks of rows, of which the first is the header."""

    def __init__(self, delimiter: int, columns: int, wanted: Sequence[int]) -> None:
        self._delimiter = delimiter
        self._places = np.full(columns, -1, np.int64)
        self._places[list(wanted)] = np.arange(len(wanted))
        self._spans = np.empty((len(wanted), _ROWS, 2), np.int64)
        self._doubled = np.empty((len(wanted), _ROWS), bool)
        self._headers = 1
        self.names = [_Names() for _ in wanted]

    def parse(self, block: bytes) -> int | None:
        """Parse the complete rows of a block. Returns where they end, or None if there is something unusual."""
        text, used, state = np.frombuffer(block, np.uint8), 0, np.zeros(2, np.int64)
        while True:
            part = text[used:]
            rows = split_rows(part, len(part), self._delimiter, self._places, self._spans, self._doubled, state)
            if state[1] != FINE:
                return None
            first = min(self._headers, rows)
            self._headers -= first
            for names, spans, doubled in zip(self.names, self._spans, self._doubled, strict=True):
                names.add(part, spans[first:], doubled[first:], rows - first)
            used += int(state[0])
            if rows < _ROWS:
                return used
