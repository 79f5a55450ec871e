"""The parts of a page. Numbers may be None, NaN or infinite everywhere and are shown as gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Numbers: TypeAlias = "Sequence[float | None] | Any"
"""A sequence or array of numbers, None for a missing one."""


def _check_length(name: str, values: Numbers | None, expected: int, what: str) -> None:
    if values is not None and len(values) != expected:
        raise ValueError(f"{name} must hold one value for each of the {expected} {what}, got {len(values)}")


@dataclass(frozen=True)
class Column:
    """A column of a table. `format` is a Python format such as ".4f" or "+.2%"; default: four significant digits."""

    title: str
    unit: str = ""
    format: str = ""


@dataclass(frozen=True)
class Span:
    """A cell that draws a value with its interval, between the ends that all cells of its column share."""

    value: float
    low: float
    high: float
    ends: tuple[float, float]


@dataclass(frozen=True)
class Table:
    """A table. Cells are strings, numbers, pairs of numbers (intervals), spans or None. Numbers are right-aligned.

    Readers can sort and search an `interactive` one.
    """

    columns: Sequence[str | Column]
    rows: Sequence[Sequence[Any]]
    caption: str = ""
    interactive: bool = False

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            _check_length(f"row {number}", row, len(self.columns), "columns")


@dataclass(frozen=True)
class Axis:
    """An axis. `log` is the initial scale if all values are positive; readers can switch it.

    `reference` is a value with a label, drawn as a dashed line, such as the truth or the best round.
    """

    title: str
    unit: str = ""
    log: bool = False
    reference: tuple[float, str] | None = None


@dataclass(frozen=True)
class Series:
    """Values y at x, by default 1, 2, ...; `low` and `high` are the ends of their intervals."""

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
    """One line per series; intervals are a band, or bars at the points with `error_bars`."""

    series: Sequence[Series]
    x: Axis
    y: Axis
    caption: str = ""
    error_bars: bool = False


@dataclass(frozen=True)
class ItemPlot:
    """One row per item, the first on top: a dot, or a bar from zero, for each series, with its interval."""

    items: Sequence[str]
    series: Sequence[Series]
    axis: Axis
    caption: str = ""
    bars: bool = False

    def __post_init__(self) -> None:
        for series in self.series:
            if series.x is not None:
                raise ValueError(f"x of series {series.name!r} must be None in a plot by item, got {series.x!r}")
            _check_length(f"series {series.name!r}", series.y, len(self.items), "items")


@dataclass(frozen=True)
class Histogram:
    """A histogram of the values; `span` is the range of the bins, by default that of the values."""

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
    """Facts by name: configuration, versions, origin of the data."""

    values: Mapping[str, Any]


@dataclass(frozen=True)
class Command:
    """A line for the terminal, with a button that copies it."""

    text: str


@dataclass(frozen=True)
class Matrix:
    """Probabilities for each pair of items, shaded; rows and columns have the same names, and None is a gap."""

    names: Sequence[str]
    values: Sequence[Sequence[float | None]]
    caption: str = ""

    def __post_init__(self) -> None:
        for number, row in enumerate(self.values):
            _check_length(f"row {number}", row, len(self.names), "names")


@dataclass(frozen=True)
class Tabs:
    """Blocks under names, of which readers see one at a time."""

    panels: Mapping[str, Sequence[Any]]


def style_numbers(blocks: Sequence[Any]) -> dict[str, int]:
    """A style number for each series name, so that a series looks the same in all plots."""
    plots = [block for block in blocks if isinstance(block, LinePlot | ItemPlot)]
    names = dict.fromkeys(series.name for plot in plots for series in plot.series)
    return {name: number for number, name in enumerate(names)}


Block: TypeAlias = Table | Matrix | Tabs | LinePlot | ItemPlot | Histogram | KeyValues | Command


@dataclass(frozen=True)
class Section:
    """A heading, paragraphs (separated by blank lines), and blocks; phones hide the blocks of a `fold` at first."""

    title: str
    blocks: Sequence[Block] = ()
    text: str = ""
    fold: bool = False


@dataclass(frozen=True)
class Page:
    """A page. `summary` gives the result in a few sentences."""

    title: str
    sections: Sequence[Section]
    summary: str = ""
