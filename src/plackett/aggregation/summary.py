"""A fitted model as a table: for printing, for files, for figures."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.data.files import open_target


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


COLUMNS = tuple(field.name for field in fields(WorthRow))
"""Of files of worths."""


@dataclass(frozen=True)
class WorthSummary:
    """Items from the best down, and how the model fits."""

    rows: list[WorthRow]
    confidence: float
    facts: dict[str, Any]

    def __iter__(self) -> Iterator[WorthRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def column(self, name: str) -> npt.NDArray[Any]:
        return np.array([getattr(row, name) for row in self.rows])

    def save(self, path: str | Path) -> None:
        """Write a row an item to a file that ends with .csv or .json, compressed if .gz or the like follows."""
        suffix = table_format(path)
        rows = [asdict(row) for row in self.rows]
        if suffix == ".json":
            text = (
                json.dumps({"confidence": self.confidence, **self.facts, "items": rows}, indent=1, default=str) + "\n"
            )
        else:
            table = io.StringIO(newline="")
            writer = csv.DictWriter(table, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
            text = table.getvalue()
        with open_target(path) as file:
            file.write(text.encode())

    def __str__(self) -> str:
        header = self.header()
        cells = [header, *map(row_cells, self.rows)]
        widths = [max(len(row[k]) for row in cells) for k in range(len(header))]
        lines = [
            "  ".join(
                text.ljust(w) if k == 1 else text.rjust(w) for k, (text, w) in enumerate(zip(row, widths, strict=True))
            )
            for row in cells
        ]
        return "\n".join([*(line.rstrip() for line in lines), "", self.fit()])

    def header(self) -> list[str]:
        """Of the table that people see."""
        return ["rank", "item", "worth", f"{self.confidence:.0%} interval", "score", "error", "ranks"]

    def fit(self) -> str:
        """How the model fits, in a line."""
        texts = []
        for name, value in self.facts.items():
            number = isinstance(value, float)
            text = f"{value:,.2f}".removesuffix(".00") if number else ", ".join(map(str, value))
            texts += [f"{name} {text}"] if text else []
        return "; ".join(texts)


def table_format(path: str | Path) -> str:
    """.csv or .json, as the name says; an error if it says neither."""
    suffixes = [suffix for suffix in Path(path).suffixes if suffix in (".csv", ".json")]
    if not suffixes:
        raise ValueError(f"the file must end with .csv or .json, got {str(path)!r}")
    return suffixes[-1]


def row_cells(row: WorthRow) -> list[str]:
    """What is shown of an item."""
    return [
        str(row.rank),
        str(row.item),
        f"{row.worth:#.3g}",
        f"{row.worth_low:#.2g} - {row.worth_high:#.2g}",
        f"{row.score:+.3f}",
        f"{row.standard_error:.3f}",
        f"{row.rank_low} - {row.rank_high}",
    ]
