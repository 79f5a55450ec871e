"""A fitted model as a table: for printing, for files, for figures."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.aggregation.connectivity import REASONS, listing
from plackett.aggregation.ratings import Ratings
from plackett.data.files import open_target
from plackett.data.text import csv_cell, visible


@dataclass(frozen=True)
class WorthRow:
    """An item, with intervals for its worth and its place."""

    rank: int
    item: Any
    worth: float
    worth_low: float
    worth_high: float
    score: float
    standard_error: float
    rank_low: int
    rank_high: int


COLUMNS = tuple(column.name for column in fields(WorthRow))
"""The columns of files of worths."""


@dataclass(frozen=True)
class WorthSummary:
    """Items, best first, and how well the model fits."""

    rows: list[WorthRow]
    confidence: float
    facts: dict[str, Any]
    outside: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Items that are not ranked, by a key of `connectivity.REASONS`."""
    ratings: Ratings | None = None
    """The scores on another scale, shown in place of worths."""

    def with_ratings(self, ratings: Ratings) -> WorthSummary:
        return replace(self, ratings=ratings)

    def __iter__(self) -> Iterator[WorthRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> npt.NDArray[Any]:
        return np.array([getattr(row, name) for row in self.rows])

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        outside = [
            {"item": name, "where": where, "reason": REASONS[where]}
            for where, names in self.outside.items()
            for name in names
        ]
        rows = [asdict(row) | self._rating(row) for row in self.rows]
        return {"confidence": self.confidence, **self.facts, "outside": outside, "items": rows}

    def save(self, path: str | Path) -> None:
        """Write one row per item to a file that ends with .csv or .json, compressed if .gz or the like follows."""
        if table_format(path) == ".json":
            text = json.dumps(self.as_dict(), indent=1, default=str) + "\n"
        else:
            table = io.StringIO(newline="")
            extra = [] if self.ratings is None else list(self._rating(self.rows[0]))
            writer = csv.DictWriter(table, [*COLUMNS, *extra], lineterminator="\n")
            writer.writeheader()
            writer.writerows(asdict(row) | {"item": _item_cell(row.item)} | self._rating(row) for row in self.rows)
            text = table.getvalue()
        with open_target(path) as file:
            file.write(text.encode())

    def _rating(self, row: WorthRow) -> dict[str, float]:
        if self.ratings is None:
            return {}
        place = self.ratings.items.index(row.item)
        ends = {"rating": self.ratings.ratings, "rating_low": self.ratings.low, "rating_high": self.ratings.high}
        return {name: float(values[place]) for name, values in ends.items()}

    def __str__(self) -> str:
        header = self.header()
        cells = [header, *self.cells()]
        widths = [max(len(row[k]) for row in cells) for k in range(len(header))]
        lines = [
            "  ".join(
                text.ljust(w) if k == 1 else text.rjust(w) for k, (text, w) in enumerate(zip(row, widths, strict=True))
            )
            for row in cells
        ]
        return "\n".join([*(line.rstrip() for line in lines), "", self.fit()])

    def header(self) -> list[str]:
        """The header of the printed table."""
        what = "worth" if self.ratings is None else "rating"
        return ["rank", "item", what, f"{self.confidence:.0%} interval", "score", "error", "ranks"]

    def cells(self) -> list[list[str]]:
        """The rows of the printed table: items by rank, and those that are not ranked."""
        above, below = (self.outside.get(where, ()) for where in ("above", "below"))
        last = len(above) + len(self.rows)
        found = [_outside_cells(_places(1, len(above)), above, "infinite")] if above else []
        found += [self._with_rating(row) for row in self.rows]
        found += [_outside_cells(_places(last + 1, last + len(below)), below, "0")] if below else []
        beside = (names for where, names in self.outside.items() if where not in ("above", "below"))
        return found + [_outside_cells("", names, "unknown") for names in beside]

    def _with_rating(self, row: WorthRow) -> list[str]:
        cells = row_cells(row)
        if self.ratings is not None:
            value, low, high = self._rating(row).values()
            cells[2:4] = [f"{value:.0f}", f"{low:.0f} - {high:.0f}"]
        return cells

    def fit(self) -> str:
        """How well the model fits, and why items are left out, in one line."""
        texts = []
        for name, value in self.facts.items():
            number = isinstance(value, float)
            text = f"{value:,.2f}".removesuffix(".00") if number else listing(value)
            texts += [f"{name} {text}"] if text and not (name == "left out" and self.outside) else []
        texts += [f"left out {listing(names)} ({REASONS[where]})" for where, names in self.outside.items()]
        return "; ".join(texts)


def table_format(path: str | Path) -> str:
    """.csv or .json, as the name says; an error if it says neither."""
    suffixes = [suffix for suffix in Path(path).suffixes if suffix in (".csv", ".json")]
    if not suffixes:
        raise ValueError(f"the file name must end with .csv or .json, got {str(path)!r}")
    return suffixes[-1]


def _item_cell(item: Any) -> Any:
    return csv_cell(visible(item)) if isinstance(item, str) else item


def _places(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} - {last}"


def _outside_cells(places: str, names: Sequence[Any], worth: str) -> list[str]:
    return [places, listing(names), worth, "", "", "", ""]


def row_cells(row: WorthRow) -> list[str]:
    """The cells of an item in the printed table."""
    return [
        str(row.rank),
        str(row.item),
        f"{row.worth:#.3g}",
        f"{row.worth_low:#.2g} - {row.worth_high:#.2g}",
        f"{row.score:+.3f}",
        f"{row.standard_error:.3f}",
        f"{row.rank_low} - {row.rank_high}",
    ]
