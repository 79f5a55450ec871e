"""What a page consists of. Numbers that are None, NaN or infinite are allowed everywhere and shown as gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Numbers: TypeAlias = "Sequence[float | None] | Any"
"""A sequence or array of numbers, None where there is none."""


def _check_length(name: str, values: Numbers | None, expected: int, what: str) -> None:
    if values is not None and len(values) != expected:
        raise ValueError(f"{name} must hold one value for each of the {expected} {what}, got {len(values)}")


@dataclass(frozen=True)
class Column:
    """Of a table. `format` is Python's, such as ".4f" or "+.2%"; without one, numbers have four significant digits."""

    title: str
    unit: str = ""
    format: str = ""


@dataclass(frozen=True)
class Table:
    """Cells are texts, numbers, pairs of numbers (intervals) or None. Columns of numbers are aligned to the right."""

    columns: Sequence[str | Column]
    rows: Sequence[Sequence[Any]]
    caption: str = ""

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            _check_length(f"row {number}", row, len(self.columns), "columns")


@dataclass(frozen=True)
class Axis:
    """`log`: how it is at first, where all values are positive; readers can change it.

    `reference` is a value with a text, drawn as a dashed line: the truth, the round that was best.
    """

    title: str
    unit: str = ""
    log: bool = False
    reference: tuple[float, str] | None = None


@dataclass(frozen=True)
class Series:
    """Values by x, or by 1, 2, ... without it; `low` and `high` are the ends of their intervals."""

    name: str
    y: Numbers
    x: Numbers | None = None
    low: Numbers | None = None
    high: Numbers | None = None

    def __post_init__(self) -> None:
        for name in ("x", "low", "high"):
            _check_length(f"{name} of series {self.name!r}", getattr(self, name), len(self.y), "values of y")
        if (self.low is None) != (self.high is None):
            raise ValueError(f"low and high of series {self.name!r} must be given together, got one of them")


@dataclass(frozen=True)
class LinePlot:
    """A line a series; intervals are a band, or bars at the points with `error_bars`."""

    series: Sequence[Series]
    x: Axis
    y: Axis
    caption: str = ""
    error_bars: bool = False


@dataclass(frozen=True)
class ItemPlot:
    """A row an item, the first on top: a dot, or a bar from zero, for its value in each series, with its interval."""

    items: Sequence[str]
    series: Sequence[Series]
    axis: Axis
    caption: str = ""
    bars: bool = False

    def __post_init__(self) -> None:
        for series in self.series:
            if series.x is not None:
                raise ValueError(f"series {series.name!r} must have no x, for the items have it, got {series.x!r}")
            _check_length(f"series {series.name!r}", series.y, len(self.items), "items")


@dataclass(frozen=True)
class Histogram:
    """How many of the values fall where; `span` is the range of the bins, that of the values if None."""

    values: Numbers
    axis: Axis
    bins: int = 20
    span: tuple[float, float] | None = None
    count_title: str = "count"
    caption: str = ""

    def __post_init__(self) -> None:
        if self.bins < 1:
            raise ValueError(f"bins must be at least 1, got {self.bins}")


@dataclass(frozen=True)
class KeyValues:
    """Facts by name: configuration, versions, where data come from."""

    values: Mapping[str, Any]


@dataclass(frozen=True)
class Command:
    """A line for the terminal, with a button that copies it."""

    text: str


def style_numbers(blocks: Sequence[Any]) -> dict[str, int]:
    """A number for each name of a series in the plots: what has the same name looks the same in all of them."""
    plots = [block for block in blocks if isinstance(block, LinePlot | ItemPlot)]
    names = dict.fromkeys(series.name for plot in plots for series in plot.series)
    return {name: number for number, name in enumerate(names)}


Block: TypeAlias = Table | LinePlot | ItemPlot | Histogram | KeyValues | Command


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs (divided by blank lines), and blocks."""

    title: str
    blocks: Sequence[Block] = ()
    text: str = ""


@dataclass(frozen=True)
class Page:
    """`summary` says in a few sentences what the reader is to know."""

    title: str
    sections: Sequence[Section]
    summary: str = ""
