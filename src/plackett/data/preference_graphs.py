"""Graphs of preferences, one per list or voter, and how they are read."""

from __future__ import annotations

import csv
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.arguments import as_array, as_numbers, check_kind, is_missing, whole_numbers
from plackett.data.comparisons import Comparisons
from plackett.data.containers import rows_of_lists
from plackett.data.files import Source, read_lines, source_name
from plackett.errors import DataError
from plackett.graphs import raise_cycle, sorted_graph
from plackett.likelihood.partial_orders.order_structure import merge_cycles
from plackett.lists import IntArray, check_offsets, offsets_from_sizes

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PreferenceGraphs:
    """For each list, or voter, some pairs of items of which one is known to be better.

    edges    (edges, 2): the first entry of each row is better than the second
    items    the item of each entry, an index into `names`
    offsets  list b holds the entries offsets[b] to offsets[b+1] - 1
    weights  how often each list counts, (lists,)
    names    the names of all items

    Entries are the items of all lists, one list after the other. For rankers they are the rows of the features.
    `len` is the number of lists; `graphs.select([0, 2])` holds those lists.

    >>> PreferenceGraphs.from_edges([[("ale", "beer"), ("ale", "cider")], [("cider", "beer")]])
    PreferenceGraphs(2 lists, 3 edges, 3 items)
    """

    edges: IntArray
    items: IntArray
    offsets: IntArray
    weights: FloatArray
    names: Sequence[Hashable]

    def __post_init__(self) -> None:
        items = whole_numbers("items", self.items)
        offsets = check_offsets(self.offsets, len(items))
        edges = as_array("edges", self.edges)
        edges = np.empty((0, 2), np.int64) if edges.size == 0 else edges
        if edges.ndim != 2 or edges.shape[1] != 2:
            raise ValueError(f"edges must have the shape (edges, 2), got {edges.shape}")
        edges = whole_numbers("edges", edges.reshape(-1)).reshape(-1, 2)
        for name, numbers, count in (("items", items, len(self.names)), ("edges", edges, len(items))):
            if numbers.size and (numbers.min() < 0 or numbers.max() >= count):
                raise ValueError(f"{name} must be from 0 to {count - 1}, got {numbers.min()} to {numbers.max()}")
        lists = np.searchsorted(offsets, edges, side="right") - 1
        if (lists[:, 0] != lists[:, 1]).any():
            row = int(np.argmax(lists[:, 0] != lists[:, 1]))
            raise ValueError(f"edges must join entries of the same list, got {edges[row].tolist()} at position {row}")
        weights = as_numbers("weights", self.weights)
        rows = len(offsets) - 1
        if weights.shape != (rows,) or not (np.isfinite(weights) & (weights >= 0.0)).all():
            got = f"shape {weights.shape}" if weights.shape != (rows,) else f"{weights.min()} to {weights.max()}"
            raise ValueError(f"weights must hold one finite number of at least 0 for each of {rows} lists, got {got}")
        for name, value in (("edges", edges), ("items", items), ("offsets", offsets), ("weights", weights)):
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        return f"PreferenceGraphs({len(self):,} lists, {len(self.edges):,} edges, {len(self.names):,} items)"

    @property
    def lists_of_edges(self) -> IntArray:
        """The list of each edge."""
        return np.searchsorted(self.offsets, self.edges[:, 0], side="right") - 1

    def select(self, lists: Any) -> PreferenceGraphs:
        """Return the lists with these numbers, each once, in this order."""
        numbers = whole_numbers("lists", lists)
        if numbers.size and (numbers.min() < 0 or numbers.max() >= len(self)):
            raise ValueError(f"lists must be from 0 to {len(self) - 1}, got {numbers.min()} to {numbers.max()}")
        if len(np.unique(numbers)) < len(numbers):
            raise ValueError("lists must differ from each other, got one twice")
        entries = rows_of_lists(self.offsets, numbers)
        place = np.full(len(self.items), -1, np.int64)
        place[entries] = np.arange(len(entries))
        return PreferenceGraphs(
            edges=place[self.edges[place[self.edges[:, 0]] >= 0]].reshape(-1, 2),
            items=self.items[entries],
            offsets=offsets_from_sizes(np.diff(self.offsets)[numbers]),
            weights=self.weights[numbers],
            names=self.names,
        )

    def merge_cycles(self) -> PreferenceGraphs:
        """Return graphs in which items that are in a cycle with each other are tied.

        Each is then above and below everything that any of them is above and below; the order among them is unknown.
        """
        return replace(self, edges=merge_cycles(self.edges, len(self.items)))

    def check_acyclic(self, remedy: str = "graphs.merge_cycles() ties the items of a cycle") -> None:
        """Raise ValueError if there is a cycle, and show it."""
        winners, losers = (np.ascontiguousarray(side, np.int32) for side in self.edges.T)
        _, _, order = sorted_graph(winners, losers, len(self.items))
        if len(order) < len(self.items):
            names = [self.names[item] for item in self.items.tolist()]
            raise_cycle(winners, losers, order, names, remedy)

    @classmethod
    def from_rows(cls, edges: Any, offsets: Any, *, weights: Any = None) -> PreferenceGraphs:
        """Graphs over the rows of a table of features, for rankers: edges are numbers of rows.

        >>> PreferenceGraphs.from_rows([(0, 1), (2, 1), (3, 4)], offsets=[0, 3, 5])
        PreferenceGraphs(2 lists, 3 edges, 5 items)
        """
        bounds = whole_numbers("offsets", offsets)
        rows = int(bounds[-1]) if bounds.size else 0
        times = np.ones(max(len(bounds) - 1, 0)) if weights is None else weights
        return cls(edges, np.arange(rows), bounds, times, range(rows))

    @classmethod
    def from_edges(
        cls, graphs: Iterable[Any], *, names: Sequence[Hashable] | None = None, weights: Any = None
    ) -> PreferenceGraphs:
        """One graph per list, each a sequence of pairs of names (better, worse).

        Args:
            graphs: pairs of anything hashable; equal names are the same item.
            names: all names in the order of the result; None: in the order of their first appearance.
            weights: how often each list counts; once by default.
        """
        sizes, better, worse = [], [], []
        for number, graph in enumerate(graphs):
            pairs = graph.tolist() if isinstance(graph, np.ndarray) else list(graph)
            for pair in pairs:
                if isinstance(pair, str | bytes) or not hasattr(pair, "__len__") or len(pair) != 2:
                    raise ValueError(f"graphs must hold pairs (better, worse), got {pair!r} in list {number}")
            sizes.append(len(pairs))
            better += [pair[0] for pair in pairs]
            worse += [pair[1] for pair in pairs]
        lists = np.repeat(np.arange(len(sizes)), sizes)
        return cls._from_names(lists, len(sizes), better, worse, names, weights)

    @classmethod
    def from_frame(
        cls, table: Any, *, by: str = "list", better: str = "better", worse: str = "worse", weight: str | None = None
    ) -> PreferenceGraphs:
        """Read a table with one row per preference: pandas, polars, or a dictionary of columns.

        Comparisons grouped by voter are such a table: from_frame(table, by="voter", better="winner", worse="loser").

        Args:
            by, better, worse: the columns of the list (or voter) and of both items. Rows of a list may be apart.
            weight: a column with how often the list counts, the same in all its rows.
        """
        columns = {}
        for name in (by, better, worse, *((weight,) if weight else ())):
            try:
                columns[name] = as_array(name, table[name])
            except (KeyError, IndexError, TypeError, ValueError) as error:
                raise ValueError(f"table must have the column {name!r}, got one that cannot be read: {error}") from None
        keys = columns[by].tolist()
        for row, key in enumerate(keys):
            if is_missing(key):
                raise ValueError(f"column {by!r} must not be missing, got {key!r} in row {row}")
        number: dict[Hashable, int] = {}
        lists = np.array([number.setdefault(key, len(number)) for key in keys], np.int64)
        weights = None
        if weight is not None:
            values = as_numbers(weight, columns[weight])
            weights = np.ones(len(number))
            weights[lists] = values
            if (weights[lists] != values).any():
                row = int(np.argmax(weights[lists] != values))
                raise ValueError(
                    f"column {weight!r} must be the same in all rows of a list, got a different one in row {row}"
                )
        sides = columns[better].tolist(), columns[worse].tolist()
        return cls._from_names(lists, len(number), *sides, None, weights)

    @classmethod
    def from_comparisons(cls, comparisons: Comparisons) -> PreferenceGraphs:
        """The comparisons of each voter as one graph; `Comparisons.cluster` says who the voter is.

        This is right if each voter has one order of the items in mind. Ties, which prefer neither side, are left out,
        and a comparison that a voter makes twice counts once.
        """
        check_kind("comparisons", comparisons, Comparisons)
        if comparisons.cluster is None or comparisons.outcome is None:
            raise ValueError("comparisons must have outcomes and a cluster, the voter: load_comparisons(..., cluster=)")
        if (comparisons.weights != 1.0).any():
            raise ValueError("comparisons must have weight 1 to be grouped by voter, got other weights")
        decided = np.flatnonzero(comparisons.outcome)
        left_won = comparisons.outcome[decided] > 0
        left, right = comparisons.left[decided], comparisons.right[decided]
        names = list(comparisons.names)
        better, worse = np.where(left_won, left, right).tolist(), np.where(left_won, right, left).tolist()
        return cls._from_names(
            comparisons.cluster.codes[decided].astype(np.int64),
            len(comparisons.cluster.names),
            [names[item] for item in better],
            [names[item] for item in worse],
            names,
            None,
        )

    @classmethod
    def _from_names(
        cls, lists: IntArray, count: int, better: Any, worse: Any, names: Any, weights: Any
    ) -> PreferenceGraphs:
        number: dict[Hashable, int] = {} if names is None else {name: place for place, name in enumerate(names)}
        both = [name for pair in zip(better, worse, strict=True) for name in pair]
        for name in both:
            if is_missing(name):
                raise ValueError(f"edges must not hold missing names, got {name!r}")
            if names is not None and name not in number:
                raise ValueError(f"edges must name only members of names, got {name!r}")
            number.setdefault(name, len(number))
        if names is not None and len(number) < len(names):
            raise ValueError("names must differ from each other, got one twice")
        item = np.array([number[name] for name in both], np.int64)
        key = np.repeat(lists, 2) * max(len(number), 1) + item
        entries, place = np.unique(key, return_inverse=True)
        entry_lists, items = np.divmod(entries, max(len(number), 1))
        offsets = offsets_from_sizes(np.bincount(entry_lists, minlength=count))
        times = np.ones(count) if weights is None else weights
        return cls(place.reshape(-1, 2), items, offsets, times, [*number])


_HEADINGS = {"list": ("list", "voter", "judge", "user"), "better": ("better", "winner"), "worse": ("worse", "loser")}


def load_preference_graphs(source: Source) -> PreferenceGraphs:
    """Read a CSV file with a heading and one preference per line: list, better, worse, and weight if there is one.

    The columns may be in any order. Also accepted: voter, judge or user for list, winner for better, loser for worse.

    >>> import io
    >>> load_preference_graphs(io.BytesIO(b"list,better,worse\\n1,ale,beer\\n1,ale,cider\\n2,beer,ale\\n"))
    PreferenceGraphs(2 lists, 3 edges, 3 items)
    """
    file = source_name(source)
    rows = csv.reader(line for line in read_lines(source) if line.strip() and not line.lstrip().startswith("#"))
    heading = [cell.strip().lower() for cell in next(rows, [])]
    columns = graph_columns(heading)
    if columns is None:
        raise DataError(
            "the first line must name the columns list, better and worse",
            file=file,
            line=1,
            text=",".join(heading),
            remedy="Also accepted: voter, judge or user for list, winner for better, loser for worse",
        )
    table: dict[str, list[Any]] = {name: [] for name in columns}
    for number, row in enumerate(rows, 2):
        cells = [cell.strip() for cell in row]
        if len(cells) != len(heading) or not all(cells[column] for column in columns.values()):
            raise DataError(
                f"expected {len(heading)} cells, none of them empty", file=file, line=number, text=",".join(row)
            )
        for name, column in columns.items():
            table[name].append(cells[column])
    if not table["list"]:
        raise DataError("the file holds no preferences", file=file)
    if "weight" in table:
        try:
            table["weight"] = [float(cell) for cell in table["weight"]]
        except ValueError as error:
            raise DataError(f"a weight must be a number ({error})", file=file) from None
    return PreferenceGraphs.from_frame(table, weight="weight" if "weight" in table else None)


def graph_columns(heading: Sequence[str]) -> dict[str, int] | None:
    """Which columns of a file hold list, better, worse and weight; None if it does not hold graphs."""
    found = {}
    for name, words in _HEADINGS.items():
        places = [place for place, word in enumerate(heading) if word in words]
        if len(places) != 1:
            return None
        found[name] = places[0]
    weights = [place for place, word in enumerate(heading) if word in ("weight", "count")]
    return found | ({"weight": weights[0]} if weights else {})
