"""Options of tables of comparisons."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

_TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".pq")


@dataclass(frozen=True)
class ColumnOptions:
    """The columns that the user named; None for the others."""

    left: str | None
    right: str | None
    winner: str | None
    weight: str | None
    cluster: str | None
    by: str | None
    time: str | None
    features: dict[str, Any] | None
    delimiter: str | None

    @property
    def are_named(self) -> bool:
        """Whether an option was given that only comparisons have."""
        own = (self.left, self.right, self.winner, self.cluster, self.by, self.time, self.features)
        return any(value is not None for value in own)


def has_comparisons(source: Path, delimiter: str | None) -> bool:
    """Whether a file is a table whose columns have the usual names of two sides and of an outcome."""
    from plackett.data.comparison_tables import header_of, names_comparisons
    from plackett.data.files import ending, is_path

    if str(source) == "-" or not is_path(source) or ending(source) not in _TABLES:
        return False
    return names_comparisons(header_of(source, delimiter))


def load_votes(source: Path, columns: ColumnOptions) -> tuple[Any, str]:
    """The comparisons, and how their columns were understood."""
    from plackett.data import load_comparisons
    from plackett.data.comparison_tables import choose_columns, header_of

    winner: Any = columns.winner
    if winner is not None and "," in winner:
        winner = tuple(part.strip() for part in winner.split(","))
    data = load_comparisons(
        str(source), left=columns.left, right=columns.right, winner=winner, weight=columns.weight,
        cluster=columns.cluster, by=columns.by, time=columns.time, features=columns.features,
        delimiter=columns.delimiter,
    )  # fmt: skip
    if columns.left is not None and winner is not None:
        return data, ""
    if str(source) == "-":
        return data, "Columns of the two sides and of the outcome were guessed from their names."
    found = choose_columns(header_of(source, columns.delimiter), str(source), columns.left, columns.right, winner)
    return data, f"Read as comparisons: {found}. Name other columns with --left, --right and --winner."


def parse_features(text: str | None) -> dict[str, Any] | None:
    """name=left_column:right_column or name=column or column, separated by commas."""
    if text is None:
        return None
    found: dict[str, Any] = {}
    for part in text.split(","):
        name, _, column = part.strip().partition("=")
        sides = tuple(side.strip() for side in (column or name).split(":"))
        if not name or len(sides) > 2 or not all(sides):
            raise typer.BadParameter(
                f"expected name=column or name=left_column:right_column, got {part!r}", param_hint="--features"
            )
        found[name] = sides[0] if len(sides) == 1 else sides
    return found


def parse_scale(text: str | None) -> tuple[float, float]:
    """elo, or the difference that means odds of base to 1, and the base."""
    if text is None or text == "elo":
        return 400.0, 10.0
    try:
        scale, base = (float(part) for part in text.split(":"))
    except ValueError:
        raise typer.BadParameter(
            f"expected elo or scale:base, such as 400:10, got {text!r}", param_hint="--scale"
        ) from None
    return scale, base


def parse_anchor(text: str | None) -> tuple[str, float] | None:
    """item=rating."""
    if text is None:
        return None
    name, _, value = text.rpartition("=")
    try:
        rating = float(value)
    except ValueError:
        name = ""
    if not name:
        raise typer.BadParameter(f"expected item=rating, such as gpt-4=1000, got {text!r}", param_hint="--anchor")
    return name, rating
