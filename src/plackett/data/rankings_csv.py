"""Rankings in CSV, a ballot a row, in three layouts.

    ranks      a column an item, a cell its rank: 1 is best, equal ranks are tied, an empty cell is not ranked
    places     a column a place, a cell the item there; "Ada = Bob" are tied, an empty cell is a gap
    approvals  a column an item, a cell 1 if it was approved, else 0: those with 1 are above those with 0

Other columns may hold how often a ballot was cast, or features of the ballot. Names that a spreadsheet would compute
have ' before them (`plackett.data.text`).
"""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Literal

import numpy as np
import numpy.typing as npt

from plackett.arguments import check_kind
from plackett.data.containers import Ballots
from plackett.data.files import Source, ending, open_target, read_lines, source_name
from plackett.data.letor import check_choice, number_of, number_texts
from plackett.data.preflib import BallotArrays, check_ballots, labelled, tiers_of
from plackett.data.text import CONTROL, csv_cell, text_of_cell
from plackett.errors import DataError

Layout = Literal["ranks", "places", "approvals"]
LAYOUTS = ("ranks", "places", "approvals")
Columns = str | Sequence[str]

_PLACE = re.compile(r"(place|rank|position|pos)[ _.-]?(\d{1,9})", re.IGNORECASE)
_FEATURE = re.compile(r"feature\d+")
_EMPTY = ("", "na", "nan", "null", "-")


def load_rankings_csv(
    source: Source,
    *,
    layout: Layout | None = None,
    items: Columns | None = None,
    features: Columns | None = None,
    weight: str | None = None,
    delimiter: str | None = None,
    tie: str = "=",
) -> Ballots:
    """Read rankings from CSV with a header.

    Args:
        layout: "ranks", "places" or "approvals"; None: places if the columns are named place1, rank 2 and so on, else
            ranks.
        items: the columns that hold the ranking, names or patterns such as "L*"; None: all that are nothing else.
        features: the columns that hold features of a ballot, names or patterns; None: feature1, feature2, ...
        weight: the column that says how often a ballot was cast; None: one named weight, if there is one.
        delimiter: None: a tab if the name ends with .tsv, else a comma.
        tie: what stands between tied items of a cell, in the layout of places.
    """
    if layout is not None:
        check_choice("layout", layout, LAYOUTS)
    check_kind("tie", tie, str)
    if not tie:
        raise ValueError("tie must be a text that stands between tied items, got ''")
    table = _Table(source, delimiter or ("\t" if ending(source) == ".tsv" else ","))
    if features is None:
        feature_columns = [i for i, name in enumerate(table.header) if _FEATURE.fullmatch(name)]
    else:
        feature_columns = table.columns("features", features, [])
    if weight is None and "weight" in table.header and items is None:
        weight = "weight"
    weight_columns = [] if weight is None else table.columns("weight", [weight], [])
    item_columns = table.columns("items", items, feature_columns + weight_columns)
    names = [table.header[i] for i in item_columns]
    if layout is None:
        layout = "places" if all(_PLACE.fullmatch(name) for name in names) else "ranks"
    if layout == "places":
        item_columns = _by_number(item_columns, table)
    read: _Ranks | _Places
    if layout == "places":
        read = _Places(table, item_columns, tie)
    else:
        read = _Ranks(table, item_columns) if layout == "ranks" else _Approvals(table, item_columns)
    ballots, X = BallotArrays(), array("d")
    for row in table:
        X.extend([table.number(row, column) for column in feature_columns])
        cast = table.weight(row, weight_columns[0]) if weight_columns else 1.0
        ballots.add(*read(row), cast)
    shape = len(ballots), len(feature_columns)
    return ballots.build(read.names, np.array(X).reshape(shape) if feature_columns else None)


def _doubled(names: list[str]) -> str | None:
    """A name that comes more than once."""
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _by_number(columns: list[int], table: _Table) -> list[int]:
    """Columns of places in the order of their numbers, where they have any; else as they stand."""
    found = [_PLACE.fullmatch(table.header[i]) for i in columns]
    if not all(found):
        return columns
    numbers = [int(match[2]) for match in found if match]
    if len(set(numbers)) != len(numbers):
        raise DataError("two columns have the same place", file=table.name, line=1, text=",".join(table.header))
    return [column for _, column in sorted(zip(numbers, columns, strict=True))]


class _Table:
    """The rows of a CSV file one after the other, with errors that say where."""

    def __init__(self, source: Source, delimiter: str) -> None:
        self.name = source_name(source)
        self._delimiter = delimiter
        self._reader = csv.reader(read_lines(source), delimiter=delimiter, strict=True)
        self._rows = self._read()
        self.header = [text_of_cell(name.strip()) for name in next(self._rows, [])]
        if (name := _doubled(self.header)) is not None:
            raise DataError("a column name comes twice", file=self.name, line=1, text=name)
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
                    self._delimiter.join(row),
                    "The line may be cut off",
                )
            yield row

    def error(self, problem: str, text: str | None = None, remedy: str | None = None) -> DataError:
        """About the row that was read last."""
        return DataError(problem, file=self.name, line=self._reader.line_num, text=text, remedy=remedy)

    def columns(self, argument: str, wanted: Columns | None, taken: list[int]) -> list[int]:
        """The numbers of the columns that names or patterns pick, or of all that are not taken."""
        if wanted is None:
            return sorted(set(range(len(self.header))).difference(taken))
        check_kind(argument, wanted, str, Collection)
        found: list[int] = []
        for pattern in [wanted] if isinstance(wanted, str) else wanted:
            check_kind(argument, pattern, str)
            matching = [i for i, name in enumerate(self.header) if name == pattern or fnmatchcase(name, pattern)]
            if not matching:
                raise ValueError(
                    f"{argument}: no column {pattern!r} in {self.name}, which has {', '.join(self.header)}"
                )
            found += matching
        return list(dict.fromkeys(found))

    def number(self, row: list[str], column: int) -> float:
        value = number_of(row[column].strip())
        if not math.isfinite(value):
            raise self.error(f"expected a number in column {self.header[column]}", row[column])
        return value

    def weight(self, row: list[str], column: int) -> float:
        value = self.number(row, column)
        if value < 0:
            raise self.error("weights must be at least 0", row[column])
        return value


class _Ranks:
    """Items and labels of a row of ranks, where each column is an item."""

    def __init__(self, table: _Table, columns: list[int]) -> None:
        self._table, self._columns = table, columns
        self.names = [table.header[i] for i in columns]
        if "" in self.names:
            raise DataError(
                "a column without a name is no item",
                file=table.name,
                line=1,
                text=",".join(table.header),
                remedy="Name it, or name the columns of the ranking by items=",
            )

    def __call__(self, row: list[str]) -> tuple[list[int], list[float]]:
        given = {i: c for i, c in enumerate(self._columns) if row[c].strip().lower() not in _EMPTY}
        return list(given), [self._label(row, column) for column in given.values()]

    def _label(self, row: list[str], column: int) -> float:
        rank = self._table.number(row, column)
        # Halves come from averaged ranks of ties.
        if not (1 <= rank <= len(self._columns) and (2 * rank).is_integer()):
            name = self._table.header[column]
            if rank == 0:
                raise self._table.error(
                    f"rank 0 in column {name}, where ranks begin with 1, the best",
                    row[column],
                    'If 1 is for an approved item and 0 for another, pass layout="approvals" (--layout approvals); '
                    "else add 1 to all ranks",
                )
            raise self._table.error(
                f"expected a rank in column {name}",
                row[column],
                f"Ranks are from 1 to {len(self._columns)}: name their columns by items=, others by features= and "
                "weight=",
            )
        return -rank


class _Approvals(_Ranks):
    """Items and labels of a row of approvals, which are the labels."""

    def _label(self, row: list[str], column: int) -> float:
        value = self._table.number(row, column)
        if value not in (0.0, 1.0):
            raise self._table.error(
                f"expected 1 for an approved item or 0 for another in column {self._table.header[column]}",
                row[column],
                "Name the columns of the approvals by items=, others by features= and weight=",
            )
        return value


class _Places:
    """Items and labels of a row of places, where cells name the items."""

    def __init__(self, table: _Table, columns: list[int], tie: str) -> None:
        self._table, self._columns, self._tie = table, columns, tie
        self._numbers: dict[str, int] = {}

    @property
    def names(self) -> list[str]:
        return list(self._numbers)

    def __call__(self, row: list[str]) -> tuple[list[int], list[float]]:
        cells = [text_of_cell(row[column].strip()) for column in self._columns]
        tiers = [[name.strip() for name in cell.split(self._tie)] for cell in cells if cell.lower() not in _EMPTY]
        items = [name for tier in tiers for name in tier]
        if "" in items:
            raise self._table.error(f"expected an item on both sides of {self._tie!r}", ",".join(cells))
        if (twice := _doubled(items)) is not None:
            raise self._table.error("an item comes twice", twice)
        return labelled([[self._numbers.setdefault(name, len(self._numbers)) for name in tier] for tier in tiers])


def _ranks(ballots: Ballots) -> npt.NDArray[np.float64]:
    """Minus the labels where these are ranks, else the number of the tier, from 1."""
    ranks = -np.asarray(ballots.labels, np.float64)
    if ((ranks >= 1) & (ranks <= len(ballots.names)) & (2 * ranks == np.floor(2 * ranks))).all():
        return ranks
    for first, last in itertools.pairwise(ballots.offsets):
        ranks[first:last] = 1 + np.unique(ranks[first:last], return_inverse=True)[1]
    return ranks


def dump_rankings_csv(
    ballots: Ballots, target: Source, *, layout: Layout = "ranks", delimiter: str = ",", tie: str = "="
) -> None:
    """Write ballots as CSV, with columns `weight` unless each was cast once, and `feature1`, `feature2`, ...

    `load_rankings_csv` gives back the tiers; in the layout of ranks also the labels, if they are minus ranks, and in
    that of approvals, where they must be 0 or 1.
    """
    check_choice("layout", layout, LAYOUTS)
    check_ballots(ballots)
    names = list(ballots.names)
    if len(set(names)) != len(names) or any(name.strip() != name or name[:1] in ("", "\ufeff") for name in names):
        raise ValueError("names must be different, not empty, without blanks around them or a byte-order mark before")
    if any(CONTROL.search(name) for name in names):
        raise ValueError("names must not hold control characters to be written")
    if layout != "places" and (
        any(name == "weight" or _FEATURE.fullmatch(name) for name in names)
        or all(_PLACE.fullmatch(name) for name in names)
    ):
        raise ValueError("names must not be weight, feature1, ... or all be place1, ...: they would be misread")
    extra: list[tuple[str, list[str]]] = []
    if (np.asarray(ballots.weights) != 1).any():
        extra.append(("weight", number_texts(np.asarray(ballots.weights))))
    if ballots.X is not None:
        extra += [(f"feature{i + 1}", number_texts(np.asarray(column))) for i, column in enumerate(ballots.X.T)]
    if layout == "approvals" and not np.isin(ballots.labels, (0.0, 1.0)).all():
        raise ValueError("labels must be 0 or 1 to be written as approvals")
    if layout != "places":
        header = list(map(csv_cell, ballots.names))
        cells = [[""] * len(header) for _ in range(len(ballots))]
        row = np.repeat(np.arange(len(ballots)), np.diff(ballots.offsets))
        values = _ranks(ballots) if layout == "ranks" else np.asarray(ballots.labels, np.float64)
        for r, item, text in zip(row.tolist(), ballots.items.tolist(), number_texts(values), strict=True):
            cells[r][item] = text
    else:
        tiers = tiers_of(ballots)
        header = [f"place{i + 1}" for i in range(max(map(len, tiers), default=0))]
        if any(tie in name or name.strip() != name or name.lower() in _EMPTY for name in ballots.names):
            raise ValueError(f"names must not be empty, hold {tie!r} or have blanks around them")
        cells = [[csv_cell(tie.join(ballots.names[i] for i in tier)) for tier in ballot] for ballot in tiers]
        cells = [row + [""] * (len(header) - len(row)) for row in cells]
    table = io.StringIO(newline="")
    writer = csv.writer(table, delimiter=delimiter, lineterminator="\n")
    writer.writerow(header + [name for name, _ in extra])
    writer.writerows(row + [texts[i] for _, texts in extra] for i, row in enumerate(cells))
    with open_target(target) as file:
        file.write(table.getvalue().encode())
