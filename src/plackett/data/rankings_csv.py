"""Rankings in CSV, a ballot a row, in two layouts.

    ranks     a column an item, a cell its rank: 1 is best, equal ranks are tied, an empty cell is not ranked
    places    a column a place, a cell the item there; "Ada = Bob" are tied, an empty cell is a gap

Other columns may hold how often a ballot was cast, or features of the ballot.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Literal

import numpy as np
import numpy.typing as npt

from plackett.data.containers import Ballots
from plackett.data.files import Source, ending, open_target, read_text, source_name
from plackett.data.letor import check_choice, number_texts
from plackett.data.preflib import ballots_from_tiers, check_ballots, tiers_of
from plackett.errors import DataError
from plackett.lists import offsets_from_sizes

Layout = Literal["ranks", "places"]
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
        layout: "ranks" or "places"; None: places if the columns are named place1, rank 2 and so on, else ranks.
        items: the columns that hold the ranking, names or patterns such as "L*"; None: all that are nothing else.
        features: the columns that hold features of a ballot, names or patterns; None: feature1, feature2, ...
        weight: the column that says how often a ballot was cast; None: one named weight, if there is one.
        delimiter: None: a tab if the name ends with .tsv, else a comma.
        tie: what stands between tied items of a cell, in the layout of places.
    """
    if layout is not None:
        check_choice("layout", layout, ("ranks", "places"))
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
    weights = table.numbers(weight_columns)[:, 0] if weight else np.ones(len(table.rows))
    if (weights < 0).any():
        raise table.error("weights must be at least 0", int(np.argmax(weights < 0)), str(weights.min()))
    X = table.numbers(feature_columns) if feature_columns else None
    read = _by_rank if layout == "ranks" else _by_place
    ballots = read(table, item_columns, tie)
    return Ballots(ballots.items, ballots.labels, ballots.offsets, weights, ballots.names, X)


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
    """The cells of a CSV file, with errors that say where."""

    def __init__(self, source: Source, delimiter: str) -> None:
        self.name = source_name(source)
        text = read_text(source)
        if "\0" in text:
            line = text.count("\n", 0, text.index("\0")) + 1
            raise DataError("a NUL byte", file=self.name, line=line, remedy="The file is damaged or not a text")
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        self.rows: list[list[str]] = []
        self._lines: list[int] = []
        try:
            self.header = [name.strip() for name in next(reader, [])]
            for row in reader:
                if row:
                    self.rows.append(row)
                    self._lines.append(reader.line_num)
        except csv.Error as error:
            raise DataError(f"not a CSV table ({error})", file=self.name, line=reader.line_num) from None
        if not self.rows:
            raise DataError("expected a header and at least one row", file=self.name)
        if (name := _doubled(self.header)) is not None:
            raise DataError("a column name comes twice", file=self.name, line=1, text=name)
        for number, row in enumerate(self.rows):
            if len(row) != len(self.header):
                raise self.error(
                    f"expected {len(self.header)} cells as in the header, got {len(row)}",
                    number,
                    delimiter.join(row),
                    "The line may be cut off",
                )

    def error(self, problem: str, row: int, text: str, remedy: str | None = None) -> DataError:
        return DataError(problem, file=self.name, line=self._lines[row], text=text, remedy=remedy)

    def columns(self, argument: str, wanted: Columns | None, taken: list[int]) -> list[int]:
        """The numbers of the columns that names or patterns pick, or of all that are not taken."""
        if wanted is None:
            return sorted(set(range(len(self.header))).difference(taken))
        found: list[int] = []
        for pattern in [wanted] if isinstance(wanted, str) else wanted:
            matching = [i for i, name in enumerate(self.header) if name == pattern or fnmatchcase(name, pattern)]
            if not matching:
                raise ValueError(
                    f"{argument}: no column {pattern!r} in {self.name}, which has {', '.join(self.header)}"
                )
            found += matching
        return list(dict.fromkeys(found))

    def numbers(self, columns: list[int], empty: float | None = None) -> npt.NDArray[np.float64]:
        """The cells of these columns; empty ones become `empty`, or are an error."""
        result = np.empty((len(self.rows), len(columns)))
        for number, row in enumerate(self.rows):
            for place, column in enumerate(columns):
                cell = row[column].strip()
                if empty is not None and cell.lower() in _EMPTY:
                    result[number, place] = empty
                    continue
                try:
                    value = float(cell)
                except ValueError:
                    value = np.nan
                if not np.isfinite(value):
                    raise self.error(f"expected a number in column {self.header[column]}", number, row[column])
                result[number, place] = value
        return result


def _by_rank(table: _Table, columns: list[int], _: str) -> Ballots:
    ranks = table.numbers(columns, empty=np.nan)
    given = ~np.isnan(ranks)
    # Halves come from averaged ranks of ties.
    odd = given & ((ranks < 0) | (ranks > len(columns)) | (2 * ranks != np.floor(2 * ranks)))
    if odd.any():
        number, place = (int(i) for i in np.argwhere(odd)[0])
        raise table.error(
            f"expected a rank in column {table.header[columns[place]]}",
            number,
            table.rows[number][columns[place]],
            f"Ranks are from 1 to {len(columns)}: name their columns by items=, others by features= and weight=",
        )
    row, items = np.nonzero(given)
    sizes = given.sum(axis=1)
    return Ballots(
        items=items,
        labels=-ranks[row, items],
        offsets=offsets_from_sizes(sizes),
        weights=np.ones(len(ranks)),
        names=[table.header[i] for i in columns],
    )


def _by_place(table: _Table, columns: list[int], tie: str) -> Ballots:
    numbers: dict[str, int] = {}
    ballots = []
    for number, row in enumerate(table.rows):
        cells = [row[column].strip() for column in columns]
        tiers = [[name.strip() for name in cell.split(tie)] for cell in cells if cell.lower() not in _EMPTY]
        items = [name for tier in tiers for name in tier]
        if "" in items:
            raise table.error(f"expected an item on both sides of {tie!r}", number, ",".join(cells))
        if (twice := _doubled(items)) is not None:
            raise table.error("an item comes twice", number, twice)
        ballots.append([[numbers.setdefault(name, len(numbers)) for name in tier] for tier in tiers])
    return ballots_from_tiers(ballots, [1.0] * len(ballots), list(numbers))


def _ranks(ballots: Ballots) -> npt.NDArray[np.float64]:
    """Minus the labels where these are ranks, else the number of the tier, from 1."""
    ranks = -np.asarray(ballots.labels, np.float64)
    if ((ranks >= 0) & (ranks <= len(ballots.names)) & (2 * ranks == np.floor(2 * ranks))).all():
        return ranks + 0.0  # no minus zero
    for first, last in itertools.pairwise(ballots.offsets):
        ranks[first:last] = 1 + np.unique(ranks[first:last], return_inverse=True)[1]
    return ranks


def dump_rankings_csv(
    ballots: Ballots, target: Source, *, layout: Layout = "ranks", delimiter: str = ",", tie: str = "="
) -> None:
    """Write ballots as CSV, with columns `weight` unless each was cast once, and `feature1`, `feature2`, ...

    `load_rankings_csv` gives back the tiers; in the layout of ranks also the labels, if they are minus ranks.
    """
    check_choice("layout", layout, ("ranks", "places"))
    check_ballots(ballots)
    names = list(ballots.names)
    if len(set(names)) != len(names) or any(name.strip() != name or not name for name in names):
        raise ValueError("names must be different, not empty and without blanks around them")
    if layout == "ranks" and (
        any(name == "weight" or _FEATURE.fullmatch(name) for name in names)
        or all(_PLACE.fullmatch(name) for name in names)
    ):
        raise ValueError("names must not be weight, feature1, ... or all be place1, ...: they would be misread")
    extra: list[tuple[str, list[str]]] = []
    if (np.asarray(ballots.weights) != 1).any():
        extra.append(("weight", number_texts(np.asarray(ballots.weights))))
    if ballots.X is not None:
        extra += [(f"feature{i + 1}", number_texts(np.asarray(column))) for i, column in enumerate(ballots.X.T)]
    if layout == "ranks":
        header = list(ballots.names)
        cells = [[""] * len(header) for _ in range(len(ballots))]
        row = np.repeat(np.arange(len(ballots)), np.diff(ballots.offsets))
        for r, item, text in zip(row.tolist(), ballots.items.tolist(), number_texts(_ranks(ballots)), strict=True):
            cells[r][item] = text
    else:
        tiers = tiers_of(ballots)
        header = [f"place{i + 1}" for i in range(max(map(len, tiers), default=0))]
        if any(tie in name or name.strip() != name or name.lower() in _EMPTY for name in ballots.names):
            raise ValueError(f"names must not be empty, hold {tie!r} or have blanks around them")
        cells = [[tie.join(ballots.names[i] for i in tier) for tier in ballot] for ballot in tiers]
        cells = [row + [""] * (len(header) - len(row)) for row in cells]
    table = io.StringIO(newline="")
    writer = csv.writer(table, delimiter=delimiter, lineterminator="\n")
    writer.writerow(header + [name for name, _ in extra])
    writer.writerows(row + [values[i] for _, values in extra] for i, row in enumerate(cells))
    with open_target(target) as file:
        file.write(table.getvalue().encode())
