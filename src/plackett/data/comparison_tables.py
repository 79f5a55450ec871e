"""Tables of comparisons: one row says who met whom and how it ended.

`load_comparisons` reads tables of pandas, polars and Arrow, and CSV, Parquet and JSON lines files. Columns that are not
named are guessed from the names in use; how outcomes are spelled is guessed from their values. A guess that could be
wrong is an error that names the row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.arguments import check_kind, is_missing
from plackett.data.comparisons import LEFT, RIGHT, TIE, Comparisons, Factor, sorted_names
from plackett.data.csv_columns import read_csv_columns
from plackett.data.csv_table import CsvTable
from plackett.data.factors import MISSING, factorise
from plackett.data.files import Source, ending, read_lines, source_name
from plackett.data.frames import as_table, column_names, column_numbers, read_parquet_columns, table_column
from plackett.data.text import parse_csv_cell
from plackett.errors import DataError

_SIDES = (
    ("left", "right"),
    ("model_a", "model_b"),
    ("a", "b"),
    ("item_a", "item_b"),
    ("player_a", "player_b"),
    ("team_a", "team_b"),
    ("home", "away"),
    ("home_team", "away_team"),
    ("white", "black"),
    ("model_1", "model_2"),
    ("model1", "model2"),
    ("item1", "item2"),
    ("player1", "player2"),
    ("team1", "team2"),
    ("winner", "loser"),
)
_OUTCOMES = ("winner", "outcome", "result", "label", "vote", "preference", "choice")
_SCORES = (("home_goals", "away_goals"), ("home_score", "away_score"), ("score_a", "score_b"), ("score1", "score2"))
_WORDS = {
    LEFT: ("left", "a", "model_a", "first", "home", "white", "1-0", "win", "won"),
    RIGHT: ("right", "b", "model_b", "second", "away", "black", "0-1", "loss", "lost"),
    TIE: (
        "tie", "tied", "draw", "drawn", "equal", "both", "neither", "bothbad", "both_bad", "both bad", "both good",
        "tie (bothbad)", "tie (both bad)", "tie_bothbad", "tie (bothgood)", "1/2-1/2", "½-½",
    ),
}  # fmt: skip
_SPELLED = {word: outcome for outcome, words in _WORDS.items() for word in words}
_POINTS = {1.0: LEFT, 0.5: TIE, 0.0: RIGHT}
_MEANINGS = {"left": LEFT, "right": RIGHT, "tie": TIE}
_NOT_YET = -2
_ROWS_AT_ONCE = 50_000
_DAY = np.timedelta64(1, "D")

Features = Mapping[str, str | tuple[str, str]] | Sequence[str]


def load_comparisons(
    source: Any,
    *,
    left: str | None = None,
    right: str | None = None,
    winner: str | tuple[str, str] | None = None,
    weight: str | None = None,
    cluster: str | None = None,
    by: str | None = None,
    time: str | None = None,
    features: Features | None = None,
    outcomes: Mapping[Any, str] | None = None,
    delimiter: str | None = None,
) -> Comparisons:
    """Read comparisons of two sides.

    Args:
        source: a table of pandas, polars or Arrow, a dict of columns, or a CSV, Parquet or JSON lines file.
        left, right: the columns with the two sides. Default: the usual names, such as left and right, model_a and
            model_b, home and away.
        winner: the column with the outcome: "left", "right", "A", "model_a", the name of either column or of the
            winning item; "tie", "draw", "tie (bothbad)"; or the points of the left side, 1, 0.5 or 0. Or two columns
            with the scores of the two sides. Default: the usual names. Without such a column, columns winner and loser
            are the sides.
        weight: the column with the number of times that a row was seen.
        cluster: the column of the voter, prompt or whatever makes rows depend on each other, for standard errors.
        by: the column of the category, for one leaderboard per category.
        time: the column of the time: numbers, or dates, which become days.
        features: names of covariates, each with its column, or with the columns of the left and the right side, whose
            difference is taken: {"length": ("length_a", "length_b"), "home": "at_home"}. A list of names: columns that
            hold the differences themselves.
        outcomes: the meaning of other spellings of outcomes: {2: "right", "void": "tie"}.
        delimiter: delimiter of a CSV file. Default: comma, semicolon or tab, whichever the header has.

    Outcomes that are not understood, missing names, and rows in which a side meets itself are errors that name the row,
    counted from 1.

    >>> votes = {"model_a": ["x", "y", "x"], "model_b": ["y", "z", "z"], "winner": ["model_a", "tie", "model_b"]}
    >>> load_comparisons(votes)
    Comparisons(3 comparisons of 3 items, 1 ties)
    """
    table = _open(source, delimiter)
    columns = choose_columns(table.columns, table.name, left, right, winner)
    chosen = _feature_columns(features)
    table.load([columns, *chosen.values(), weight, cluster, by, time])
    sides = [table.factor(column) for column in (columns.left, columns.right)]
    for column, factor in zip((columns.left, columns.right), sides, strict=True):
        table.check_present(column, factor)
    names, (left_codes, right_codes) = _common_names(sides)
    _check_differ(table, columns, left_codes, right_codes, names)
    outcome = _read_outcome(table, columns, left_codes, right_codes, names, outcomes or {})
    found = [_difference(table, column) for column in chosen.values()]
    return Comparisons(
        left=left_codes,
        right=right_codes,
        outcome=outcome,
        names=names,
        weight=None if weight is None else _weights(table, weight),
        cluster=None if cluster is None else _sorted_factor(table, cluster),
        by=None if by is None else _sorted_factor(table, by),
        time=None if time is None else _times(table, time),
        features=np.column_stack(found) if found else None,
        feature_names=tuple(chosen),
    )


# Tables


@dataclass(frozen=True)
class _ComparisonTable:
    """A table by columns: `column` gives one of them in any form that `factorise` takes."""

    name: str
    columns: list[str]
    column: Callable[[str], Any]
    read: Callable[[list[str]], None] | None = None
    """Reads some of the columns, before any of them is asked for."""

    def load(self, wanted: list[ComparisonColumns | str | tuple[str, str] | None]) -> None:
        """Read the wanted columns."""
        if self.read is None:
            return
        names: list[str] = []
        for one in wanted:
            parts = [one.left, one.right, one.winner] if isinstance(one, ComparisonColumns) else [one]
            for part in parts:
                names += [] if part is None else [part] if isinstance(part, str) else part
        for name in names:
            self._check(name)
        self.read(list(dict.fromkeys(names)))

    def _check(self, column: str) -> None:
        if column not in self.columns:
            raise DataError(f"expected a column {column!r}, got {', '.join(map(str, self.columns))}", file=self.name)

    def factor(self, column: str) -> Factor:
        self._check(column)
        found = self.column(column)
        return found if isinstance(found, Factor) else factorise(found)

    def numbers(self, column: str) -> npt.NDArray[np.float64]:
        """A column of numbers, each of them finite."""
        self._check(column)
        found = self.column(column)
        if isinstance(found, Factor):
            values = np.append(_numbers(found.names), np.nan)[found.codes]
        else:
            values = column_numbers(found)
        if not np.isfinite(values).all():
            row = int(np.argmin(np.isfinite(values)))
            raise self.error(f"column {column!r} must hold finite numbers", row)
        return values

    def check_present(self, column: str, factor: Factor) -> None:
        if (lost := np.flatnonzero(factor.codes == MISSING)).size:
            raise self.error(f"column {column!r} must not be empty", int(lost[0]))

    def error(self, problem: str, row: int, remedy: str | None = None) -> DataError:
        return DataError(f"row {row + 1:,}: {problem}", file=self.name, remedy=remedy)


def _numbers(texts: Sequence[Any]) -> npt.NDArray[np.float64]:
    """Texts as numbers, NaN where they are none."""
    try:
        return np.array(texts).astype(np.float64)
    except (TypeError, ValueError):
        return np.array([_number(text) for text in texts], np.float64)


def _number(text: Any) -> float:
    try:
        return float(text)
    except (TypeError, ValueError):
        return float("nan")


def _open(source: Any, delimiter: str | None) -> _ComparisonTable:
    if isinstance(source, Mapping):
        lengths = {name: len(column) for name, column in source.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"all columns must have the same length, got {lengths}")
        return _ComparisonTable("table", list(source), source.__getitem__)
    if not isinstance(source, str | bytes) and not hasattr(source, "__fspath__") and not hasattr(source, "read"):
        frame = as_table(source)
        return _ComparisonTable("table", column_names(frame), lambda name: table_column(frame, name))
    match ending(source):
        case ".parquet" | ".pq":
            read = read_parquet_columns(source)
            return _ComparisonTable(source_name(source), read.names, read.column)
        case ".jsonl" | ".ndjson" | ".json":
            columns, rows = _read_json_lines(source)
            whole = dict(zip(columns, _factors(source_name(source), len(columns), rows), strict=True))
            return _ComparisonTable(source_name(source), columns, whole.__getitem__)
    return _csv_table(source, delimiter)


def _csv_table(source: Source, delimiter: str | None) -> _ComparisonTable:
    """Only the columns that are needed are read, by the compiled parser if it can."""
    table = CsvTable(source, delimiter)
    found: dict[str, Factor] = {}

    def read(names: list[str]) -> None:
        wanted = [table.header.index(name) for name in names]
        factors = read_csv_columns(source, table.delimiter, len(table.header), wanted)
        if factors is None:
            rows = ([parse_csv_cell(row[k].strip()) for k in wanted] for row in table)
            factors = _factors(table.name, len(wanted), rows)
        found.update(zip(names, factors, strict=True))

    return _ComparisonTable(table.name, table.header, found.__getitem__, read)


def _factors(name: str, columns: int, rows: Iterator[Sequence[Any]]) -> list[Factor]:
    """Read all rows, a part at a time, so that memory holds codes and each different text once."""
    parts: list[list[Factor]] = [[] for _ in range(columns)]
    while chunk := list(islice(rows, _ROWS_AT_ONCE)):
        for own, values in zip(parts, zip(*chunk, strict=True), strict=True):
            own.append(factorise(values))
    if not parts or not parts[0]:
        raise DataError("the file holds no comparisons", file=name)
    return [_join(own) for own in parts]


def _join(parts: list[Factor]) -> Factor:
    names = dict.fromkeys(name for part in parts for name in part.names)
    places = {name: number for number, name in enumerate(names)}
    codes = [np.array([*(places[name] for name in part.names), MISSING], np.int32)[part.codes] for part in parts]
    return Factor(np.concatenate(codes), list(names))


def _read_json_lines(source: Source) -> tuple[list[str], Iterator[Sequence[Any]]]:
    name = source_name(source)
    lines = (line for line in enumerate(read_lines(source), 1) if line[1].strip())
    number, text = next(lines, (1, ""))
    if not text:
        raise DataError("the file holds no comparisons", file=name)
    first = _json_object(text, name, number)
    columns = list(first)

    def rows() -> Iterator[Sequence[Any]]:
        yield [_name_or_text(value) for value in first.values()]
        for number, line in lines:
            found = _json_object(line, name, number)
            yield [_name_or_text(found.get(column)) for column in columns]

    return columns, rows()


def _json_object(line: str, file: str, number: int) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise DataError(f"not JSON ({error})", file=file, line=number, text=line) from None
    if not isinstance(found, dict):
        raise DataError("expected one object per line", file=file, line=number, text=line)
    return found


def _name_or_text(value: Any) -> Any:
    """A value that can be a name; nested ones become text."""
    return value if isinstance(value, str | int | float | type(None)) else json.dumps(value)


# Columns


def header_of(source: Source, delimiter: str | None = None) -> list[str]:
    """The columns of a file of comparisons, without reading its rows."""
    match ending(source):
        case ".parquet" | ".pq":
            return read_parquet_columns(source).names
        case ".jsonl" | ".ndjson" | ".json":
            return _read_json_lines(source)[0]
    return CsvTable(source, delimiter).header


@dataclass(frozen=True)
class ComparisonColumns:
    """The columns that say who met whom, and how it ended; `winner` is None if the left side always won."""

    left: str
    right: str
    winner: str | tuple[str, str] | None

    def __str__(self) -> str:
        ends = f"won by {self.left}" if self.winner is None else f"outcome in {_winner_columns(self.winner)}"
        return f"{self.left} against {self.right}, {ends}"


def _winner_columns(winner: str | tuple[str, str]) -> str:
    return winner if isinstance(winner, str) else " and ".join(winner)


def choose_columns(
    columns: Sequence[str], file: str, left: str | None, right: str | None, winner: str | tuple[str, str] | None
) -> ComparisonColumns:
    """The columns given, and those with the usual names for the others."""
    if (left is None) != (right is None):
        raise ValueError(f"left and right must be given together, got left={left!r} and right={right!r}")
    if winner is not None and not isinstance(winner, str) and len(winner) != 2:
        raise ValueError(f"winner must be a column, or the columns with the scores of both sides, got {winner!r}")
    if left is None or right is None:
        left, right = _guess_sides(columns, file, winner)
    for column in (left, right, *([] if winner is None else [winner] if isinstance(winner, str) else winner)):
        if column not in columns:
            raise DataError(f"expected a column {column!r}, got {', '.join(map(str, columns))}", file=file)
    if winner is None and (left.lower(), right.lower()) != ("winner", "loser"):
        winner = _guess_winner(columns, file, (left, right))
    return ComparisonColumns(left, right, winner)


def find_sides(columns: Sequence[str]) -> tuple[str, str] | None:
    """The columns with the usual names of two sides; None if there are none, or two such pairs."""
    by_name = {str(column).strip().lower(): column for column in columns}
    found = [(by_name[one], by_name[other]) for one, other in _SIDES if one in by_name and other in by_name]
    return found[0] if len(found) == 1 else None


def names_comparisons(columns: Sequence[str]) -> bool:
    """Whether columns have the usual names of two sides and of an outcome."""
    try:
        choose_columns(columns, "", None, None, None)
    except DataError:
        return False
    return True


def _guess_sides(columns: Sequence[str], file: str, winner: Any) -> tuple[str, str]:
    given = [column for column in columns if column != winner]
    found = find_sides(given)
    if found is None:
        raise DataError(
            f"cannot tell which columns are the two sides among {', '.join(map(str, columns))}",
            file=file,
            remedy="Name them with left= and right= (--left and --right)",
        )
    return found


def _guess_winner(columns: Sequence[str], file: str, sides: tuple[str, str]) -> str | tuple[str, str]:
    by_name = {str(column).strip().lower(): column for column in columns if column not in sides}
    found: list[str | tuple[str, str]] = [by_name[name] for name in _OUTCOMES if name in by_name]
    if not found:
        found += [(by_name[one], by_name[other]) for one, other in _SCORES if one in by_name and other in by_name]
    if len(found) != 1:
        raise DataError(
            f"cannot tell which column is the outcome among {', '.join(map(str, columns))}",
            file=file,
            remedy="Name it with winner= (--winner), or the columns with the scores of both sides",
        )
    return found[0]


def _feature_columns(features: Features | None) -> dict[str, str | tuple[str, str]]:
    if features is None:
        return {}
    if isinstance(features, str):
        raise ValueError(f"features must be a list of columns, or names with their columns, got {features!r}")
    if not isinstance(features, Mapping):
        return {name: name for name in features}
    for name, column in features.items():
        if not isinstance(column, str) and len(column) != 2:
            raise ValueError(f"feature {name!r} must have one column, or those of both sides, got {column!r}")
    return dict(features)


# Values


def _common_names(sides: Sequence[Factor]) -> tuple[list[Any], list[npt.NDArray[np.int32]]]:
    """The names of both sides, sorted if they can be, and the codes of each side among them."""
    order = [name for side in sides for name in side.names]
    names = sorted_names(set(order), order)
    places = {name: number for number, name in enumerate(names)}
    return names, [np.array([places[name] for name in side.names], np.int32)[side.codes] for side in sides]


def _check_differ(
    table: _ComparisonTable,
    columns: ComparisonColumns,
    left: npt.NDArray[Any],
    right: npt.NDArray[Any],
    names: list[Any],
) -> None:
    if (same := np.flatnonzero(left == right)).size:
        row = int(same[0])
        raise table.error(f"{columns.left} and {columns.right} must differ, got {names[left[row]]!r} twice", row)


def _read_outcome(
    table: _ComparisonTable,
    columns: ComparisonColumns,
    left: npt.NDArray[Any],
    right: npt.NDArray[Any],
    names: list[Any],
    outcomes: Mapping[Any, str],
) -> npt.NDArray[np.int8]:
    if columns.winner is None:
        return np.full(len(left), LEFT, np.int8)
    if not isinstance(columns.winner, str):
        one, other = (table.numbers(column) for column in columns.winner)
        return np.sign(one - other).astype(np.int8)
    winners = table.factor(columns.winner)
    table.check_present(columns.winner, winners)
    spelled = _spelling(columns, outcomes)
    by_word = np.array([_outcome_of_word(value, spelled) for value in winners.names], np.int8)[winners.codes]
    by_name = _outcomes_of_names(winners, left, right, names)
    unknown = (by_word == _NOT_YET) & (by_name == _NOT_YET)
    unclear = (by_word != by_name) & (by_word != _NOT_YET) & (by_name != _NOT_YET)
    for rows, problem, remedy in (
        (unknown, "must name the winner, got {!r}", '(or "right" or "tie")'),
        (unclear, "has {!r}, which is the name of an item and may also mean a side", ", or rename the items"),
    ):
        if rows.any():
            row = int(np.argmax(rows))
            value = winners.names[winners.codes[row]]
            raise table.error(
                f"column {columns.winner!r} {problem.format(value)}",
                row,
                f'Say what it means with outcomes={{{value!r}: "left"}} {remedy}'.replace(" ,", ","),
            )
    return np.where(by_word != _NOT_YET, by_word, by_name).astype(np.int8)


def _spelling(columns: ComparisonColumns, outcomes: Mapping[Any, str]) -> dict[Any, int]:
    """The outcome of each word, and of the names of the two columns."""
    found: dict[Any, int] = dict(_SPELLED)
    found |= {columns.left.strip().lower(): LEFT, columns.right.strip().lower(): RIGHT}
    for value, meaning in outcomes.items():
        check_kind("outcomes", meaning, str)
        if meaning not in _MEANINGS:
            raise ValueError(f"outcomes must be left, right or tie, got {meaning!r} for {value!r}")
        found[_key(value)] = _MEANINGS[meaning]
    return found


def _key(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


def _outcome_of_word(value: Any, spelled: Mapping[Any, int]) -> int:
    if _key(value) in spelled:
        return spelled[_key(value)]
    return _POINTS.get(_number(value), _NOT_YET)


def _outcomes_of_names(
    winners: Factor, left: npt.NDArray[Any], right: npt.NDArray[Any], names: list[Any]
) -> npt.NDArray[np.int8]:
    places = {name: number for number, name in enumerate(names)}
    numbers = np.array([places.get(value, MISSING) for value in winners.names], np.int32)
    if (numbers == MISSING).all():
        return np.full(len(left), _NOT_YET, np.int8)
    item = numbers[winners.codes]
    return np.where(item == left, LEFT, np.where(item == right, RIGHT, _NOT_YET)).astype(np.int8)


def _difference(table: _ComparisonTable, column: str | tuple[str, str]) -> npt.NDArray[np.float64]:
    if isinstance(column, str):
        return table.numbers(column)
    one, other = column
    return table.numbers(one) - table.numbers(other)


def _weights(table: _ComparisonTable, column: str) -> npt.NDArray[np.float64]:
    values = table.numbers(column)
    if values.min(initial=0.0) < 0.0:
        row = int(np.argmin(values))
        raise table.error(f"column {column!r} must be at least 0, got {values[row]:g}", row)
    return values


def _sorted_factor(table: _ComparisonTable, column: str) -> Factor:
    factor = table.factor(column)
    table.check_present(column, factor)
    names, (codes,) = _common_names([factor])
    numbers = _numbers(names)
    if np.isnan(numbers).any():
        return Factor(codes, names)
    order = np.argsort(numbers, kind="stable")  # 2 before 10, although they are texts
    return Factor(np.argsort(order).astype(np.int32)[codes], [names[k] for k in order])


def _times(table: _ComparisonTable, column: str) -> npt.NDArray[np.float64]:
    factor = table.factor(column)
    table.check_present(column, factor)
    numbers = np.array([_time(name) for name in factor.names], np.float64)
    if not np.isfinite(numbers).all():
        value = factor.names[int(np.argmin(np.isfinite(numbers)))]
        row = int(np.argmax(factor.codes == int(np.argmin(np.isfinite(numbers)))))
        raise table.error(f"column {column!r} must hold numbers or dates such as 2026-01-31, got {value!r}", row)
    return numbers[factor.codes]


def _time(value: Any) -> float:
    """A number as it is, a date as days since 1970."""
    number = _number(value)
    if number == number:
        return number
    try:
        moment = np.datetime64(value.isoformat() if hasattr(value, "isoformat") else str(value).replace("/", "-"))
    except ValueError:
        return float("nan")
    return float((moment - np.datetime64(0, "s")) / _DAY) if not is_missing(value) else float("nan")
