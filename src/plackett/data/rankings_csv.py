"""Rankings in CSV, one ballot per row, in three layouts.

    ranks      one column per item with its rank: 1 is best, equal ranks are tied, an empty cell is not ranked
    places     one column per place with the item there; "Ada = Bob" are tied, an empty cell is a gap
    approvals  one column per item, 1 if it was approved, else 0: items with 1 are above those with 0

Other columns may give how often a ballot was cast, or features of the ballot. Names that a spreadsheet would evaluate
are prefixed with ' (`plackett.data.text`).
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from array import array
from typing import Literal

import numpy as np
import numpy.typing as npt

from plackett.arguments import check_choice, check_kind
from plackett.data.containers import Ballots
from plackett.data.csv_table import Columns, CsvTable, find_duplicate
from plackett.data.files import Source, open_target
from plackett.data.preflib import BallotArrays, check_ballots, items_and_labels, tiers_of
from plackett.data.text import CONTROL, csv_cell, number_texts, parse_csv_cell
from plackett.errors import DataError

Layout = Literal["ranks", "places", "approvals"]
LAYOUTS = ("ranks", "places", "approvals")

_PLACE = re.compile(
    r"(place|rank|position|pos|choice|preference)[ _.-]?(\d{1,9})"
    r"|(\d{1,9})(st|nd|rd|th)?[ _.-]?(place|rank|choice|preference)",
    re.IGNORECASE,
)
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
        layout: "ranks", "places" or "approvals". Default: places if the columns are named place1, rank 2 and so on,
            else ranks.
        items: the columns of the ranking, names or patterns such as "L*". Default: all columns without another role.
        features: the columns with features of a ballot, names or patterns. Default: feature1, feature2, ...
        weight: the column with the number of times a ballot was cast. Default: the column weight, if it exists.
        delimiter: default: a tab if the file name ends with .tsv, else the one of comma, semicolon and tab that the
            header has most of.
        tie: the separator between tied items in a cell, for the places layout.
    """
    if layout is not None:
        check_choice("layout", layout, LAYOUTS)
    check_kind("tie", tie, str)
    if not tie:
        raise ValueError("tie must be a non-empty separator between tied items, got ''")
    table = CsvTable(source, delimiter)
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
        item_columns = _sort_by_number(item_columns, table)
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


def _sort_by_number(columns: list[int], table: CsvTable) -> list[int]:
    """Sort columns of places by their numbers; if some have no number, keep the order."""
    found = [_PLACE.fullmatch(table.header[i]) for i in columns]
    if not all(found):
        return columns
    numbers = [int(match[2] or match[3]) for match in found if match]
    if len(set(numbers)) != len(numbers):
        raise DataError("two columns are for the same place", file=table.name, line=1, text=",".join(table.header))
    return [column for _, column in sorted(zip(numbers, columns, strict=True))]


class _Ranks:
    """Reads the items and labels of a row of ranks, where each column is an item."""

    def __init__(self, table: CsvTable, columns: list[int]) -> None:
        self._table, self._columns = table, columns
        self.names = [table.header[i] for i in columns]
        if "" in self.names:
            raise DataError(
                "a column without a name cannot be an item",
                file=table.name,
                line=1,
                text=",".join(table.header),
                remedy="Name the column, or select the columns of the ranking with items=",
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
                    f"ranks must start at 1 (the best), got 0 in column {name}",
                    row[column],
                    'If 1 means approved and 0 not approved, pass layout="approvals" (--layout approvals); '
                    "otherwise add 1 to all ranks",
                )
            raise self._table.error(
                f"expected a rank in column {name}",
                row[column],
                f"Ranks go from 1 to {len(self._columns)}. Select their columns with items=, other columns with "
                "features= and weight=",
            )
        return -rank


class _Approvals(_Ranks):
    """Reads the items and labels of a row of approvals; the cells are the labels."""

    def _label(self, row: list[str], column: int) -> float:
        value = self._table.number(row, column)
        if value not in (0.0, 1.0):
            raise self._table.error(
                f"expected 1 (approved) or 0 (not approved) in column {self._table.header[column]}",
                row[column],
                "Select the columns of the approvals with items=, other columns with features= and weight=",
            )
        return value


class _Places:
    """Reads the items and labels of a row of places, where cells name the items."""

    def __init__(self, table: CsvTable, columns: list[int], tie: str) -> None:
        self._table, self._columns, self._tie = table, columns, tie
        self._numbers: dict[str, int] = {}

    @property
    def names(self) -> list[str]:
        return list(self._numbers)

    def __call__(self, row: list[str]) -> tuple[list[int], list[float]]:
        cells = [parse_csv_cell(row[column].strip()) for column in self._columns]
        tiers = [[name.strip() for name in cell.split(self._tie)] for cell in cells if cell.lower() not in _EMPTY]
        items = [name for tier in tiers for name in tier]
        if "" in items:
            raise self._table.error(f"expected an item on both sides of {self._tie!r}", ",".join(cells))
        if (twice := find_duplicate(items)) is not None:
            raise self._table.error("an item occurs twice", twice)
        return items_and_labels(
            [[self._numbers.setdefault(name, len(self._numbers)) for name in tier] for tier in tiers]
        )


def _ranks(ballots: Ballots) -> npt.NDArray[np.float64]:
    """Minus the labels if these are negated ranks, else the number of the tier, from 1."""
    ranks = -np.asarray(ballots.labels, np.float64)
    if ((ranks >= 1) & (ranks <= len(ballots.names)) & (2 * ranks == np.floor(2 * ranks))).all():
        return ranks
    for first, last in itertools.pairwise(ballots.offsets):
        ranks[first:last] = 1 + np.unique(ranks[first:last], return_inverse=True)[1]
    return ranks


def dump_rankings_csv(
    ballots: Ballots, target: Source, *, layout: Layout = "ranks", delimiter: str = ",", tie: str = "="
) -> None:
    """Write ballots as CSV, with columns `feature1`, `feature2`, ... and, unless each was cast once, `weight`.

    `load_rankings_csv` restores the tiers. It also restores the labels in the ranks layout if they are negated ranks,
    and in the approvals layout, where they must be 0 or 1.
    """
    check_choice("layout", layout, LAYOUTS)
    check_ballots(ballots)
    names = list(ballots.names)
    if len(set(names)) != len(names) or any(name.strip() != name or name[:1] in ("", "\ufeff") for name in names):
        raise ValueError("names must be unique and not empty, without surrounding blanks or a leading byte-order mark")
    if any(CONTROL.search(name) for name in names):
        raise ValueError("names must not contain control characters to be written")
    if layout != "places" and (
        any(name == "weight" or _FEATURE.fullmatch(name) for name in names)
        or all(_PLACE.fullmatch(name) for name in names)
    ):
        raise ValueError("names must not be weight, feature1, ... nor all be place1, ...: they would be misread")
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
            raise ValueError(f"names must not be empty, contain {tie!r} or have surrounding blanks")
        cells = [[csv_cell(tie.join(ballots.names[i] for i in tier)) for tier in ballot] for ballot in tiers]
        cells = [row + [""] * (len(header) - len(row)) for row in cells]
    table = io.StringIO(newline="")
    writer = csv.writer(table, delimiter=delimiter, lineterminator="\n")
    writer.writerow(header + [name for name, _ in extra])
    writer.writerows(row + [texts[i] for _, texts in extra] for i, row in enumerate(cells))
    with open_target(target) as file:
        file.write(table.getvalue().encode())
