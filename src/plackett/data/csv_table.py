"""Tables in CSV, row by row."""

from __future__ import annotations

import csv
import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase

from plackett.arguments import check_kind
from plackett.data.files import Source, ending, read_lines, source_name
from plackett.data.text import parse_csv_cell, parse_number
from plackett.errors import DataError

Columns = str | Sequence[str]


def find_duplicate(names: list[str]) -> str | None:
    """A name that occurs more than once."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _find_delimiter(header: str) -> str:
    """The most frequent of comma, semicolon and tab in a header; a comma if it has none."""
    return max(",;\t", key=header.count)


class CsvTable:
    """Iterates over the rows of a CSV file; errors name the line."""

    def __init__(self, source: Source, delimiter: str | None = None) -> None:
        self.name = source_name(source)
        lines = read_lines(source)
        header = next(lines, "")
        self.delimiter = delimiter or ("\t" if ending(source) == ".tsv" else _find_delimiter(header))
        self._reader = csv.reader(itertools.chain([header], lines), delimiter=self.delimiter, strict=True)
        self._rows = self._read()
        self.header = [parse_csv_cell(name.strip()) for name in next(self._rows, [])]
        if (name := find_duplicate(self.header)) is not None:
            raise DataError("duplicate column name", file=self.name, line=1, text=name)
        first = next(self._rows, None)
        if first is None:
            raise DataError("expected a header and at least one row", file=self.name)
        self._rows = itertools.chain([first], self._rows)

    def _read(self) -> Iterator[list[str]]:
        try:
            yield from filter(None, self._reader)
        except csv.Error as error:
            raise self.error(f"not a CSV table ({error})") from None

    def __iter__(self) -> Iterator[list[str]]:
        for row in self._rows:
            if len(row) != len(self.header):
                raise self.error(
                    f"expected {len(self.header)} cells as in the header, got {len(row)}",
                    self.delimiter.join(row),
                    "The line may be truncated",
                )
            yield row

    def error(self, problem: str, text: str | None = None, remedy: str | None = None) -> DataError:
        """An error about the row that was read last."""
        return DataError(problem, file=self.name, line=self._reader.line_num, text=text, remedy=remedy)

    def columns(self, argument: str, wanted: Columns | None, taken: list[int]) -> list[int]:
        """The numbers of the columns that match names or patterns, or of all that are not taken."""
        if wanted is None:
            return sorted(set(range(len(self.header))).difference(taken))
        check_kind(argument, wanted, str, Collection)
        found: list[int] = []
        for pattern in [wanted] if isinstance(wanted, str) else wanted:
            check_kind(argument, pattern, str)
            matching = [i for i, name in enumerate(self.header) if name == pattern or fnmatchcase(name, pattern)]
            if not matching:
                raise ValueError(
                    f"{argument} must match columns of {self.name} ({', '.join(self.header)}), got {pattern!r}"
                )
            found += matching
        return list(dict.fromkeys(found))

    def number(self, row: list[str], column: int) -> float:
        value = parse_number(row[column].strip())
        if not math.isfinite(value):
            raise self.error(f"expected a number in column {self.header[column]}", row[column])
        return value

    def weight(self, row: list[str], column: int) -> float:
        value = self.number(row, column)
        if value < 0:
            raise self.error("weights must be at least 0", row[column])
        return value
