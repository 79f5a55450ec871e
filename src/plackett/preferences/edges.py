"""The edges of a graph of preferences in any form become two arrays of item numbers and the items' names."""

from collections.abc import Hashable, Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from plackett.arguments import check_finite, check_positive, is_missing, whole_numbers
from plackett.lists import IntArray

NodeArray = npt.NDArray[np.int32]
_MOST_ITEMS = 2**31 - 1


class Edges(NamedTuple):
    """Item names[winners[e]] is preferred to names[losers[e]]."""

    winners: NodeArray
    losers: NodeArray
    names: Sequence[Hashable]


def read_edges(edges: Any, items: Iterable[Hashable] | None, n_items: int | None) -> Edges:
    """Edges in any of the forms that `tiers_from_graph` takes."""
    if items is not None and n_items is not None:
        raise ValueError("at most one of items and n_items may be given, got both")
    count = None if n_items is None else check_positive("n_items", n_items, ", or None")
    names = None if items is None else _check_items(items)
    if issparse(edges):
        return _from_matrix(edges, names, count)
    winners, losers = (side.tolist() if _holds_objects(side) else side for side in _columns(edges))
    if len(winners) == 0 and names is None and count is None:
        raise ValueError("edges must hold at least one pair unless items or n_items are given, got none")
    if names is None and _holds_numbers(winners) and _holds_numbers(losers):
        return _from_numbers(winners, losers, count)
    if count is not None:
        raise ValueError("n_items is for items numbered from 0, got edges between names: pass items instead")
    return _from_names(winners, losers, names)


def _check_items(items: Iterable[Hashable]) -> list[Hashable]:
    names = items.tolist() if isinstance(items, np.ndarray) else list(items)
    seen: set[Hashable] = set()
    for name in names:
        if is_missing(name):
            raise ValueError(f"items must not hold missing names, got {name!r}")
        if name in seen:
            raise ValueError(f"items must differ from each other, got {name!r} twice")
        seen.add(name)
    if not names:
        raise ValueError("items must hold at least one name, or be None, got none")
    return names


def _columns(edges: Any) -> tuple[Any, Any]:
    """The winners and the losers, arrays or lists."""
    if isinstance(edges, tuple) and len(edges) == 2 and all(hasattr(side, "__array__") for side in edges):
        winners, losers = map(np.asarray, edges)
        if winners.ndim != 1 or winners.shape != losers.shape:
            raise ValueError(
                "edges as a pair of arrays must be two one-dimensional arrays of the same length, got shapes "
                f"{winners.shape} and {losers.shape}"
            )
        return winners, losers
    if hasattr(edges, "__array__"):
        array = np.asarray(edges)
        if array.ndim != 2 or array.shape[1] != 2:
            raise ValueError(
                f"edges as an array must have the shape (edges, 2), got {array.shape}; a matrix with an entry for each "
                "edge can be passed as a scipy sparse matrix"
            )
        return array[:, 0], array[:, 1]
    try:
        pairs = list(edges)
    except TypeError:
        raise ValueError(f"edges must be an array or an iterable of pairs, got {type(edges).__name__}") from None
    for position, pair in enumerate(pairs):
        if isinstance(pair, str | bytes) or not hasattr(pair, "__len__") or len(pair) != 2:
            raise ValueError(f"edges must hold pairs (preferred, other), got {pair!r} at position {position}")
    return [winner for winner, _ in pairs], [loser for _, loser in pairs]


def _holds_objects(side: Any) -> bool:
    return isinstance(side, np.ndarray) and side.dtype == object


def _holds_numbers(side: Any) -> bool:
    if isinstance(side, np.ndarray):
        return side.dtype.kind in "biuf"
    return all(issubclass(kind, int | float | np.number | np.bool_) for kind in set(map(type, side)))


def _from_numbers(winners: Any, losers: Any, count: int | None) -> Edges:
    both = np.concatenate([np.asarray(winners), np.asarray(losers)])
    if both.dtype.kind == "f":
        check_finite("edges", both.reshape(2, -1).T)
    numbers = whole_numbers("edges", both)
    if numbers.size and numbers.min() < 0:
        raise ValueError(f"edges must hold item numbers of at least 0, got {numbers.min()}")
    if count is not None:
        if numbers.size and numbers.max() >= count:
            raise ValueError(f"edges must hold item numbers below n_items, {count}, got {numbers.max()}")
        return _make(numbers, range(count))
    # Numbers without gaps are below the number of entries.
    if numbers.max() < numbers.size and np.bincount(numbers).all():
        return _make(numbers, range(int(numbers.max()) + 1))
    names, numbers = np.unique(numbers, return_inverse=True)
    return _make(numbers, names.tolist())


def _from_names(winners: Any, losers: Any, names: list[Hashable] | None) -> Edges:
    sides = [side.tolist() if isinstance(side, np.ndarray) else side for side in (winners, losers)]
    number: dict[Hashable, int] = {}
    try:
        for name in chain.from_iterable(zip(*sides, strict=True)) if names is None else names:
            number.setdefault(name, len(number))
        numbers = np.array([number[name] for name in chain(*sides)], np.int64)
    except TypeError as error:
        raise ValueError(
            f"edges must hold names that can be keys of a dictionary, got one that cannot: {error}"
        ) from None
    except KeyError as error:
        raise ValueError(f"edges must name only members of items, got {error.args[0]!r}") from None
    for name in number:
        if is_missing(name):
            raise ValueError(f"edges must not hold missing names, got {name!r}")
    return _make(numbers, list(number))


def _from_matrix(matrix: Any, names: list[Hashable] | None, count: int | None) -> Edges:
    rows = matrix.shape[0]
    if matrix.ndim != 2 or matrix.shape[1] != rows or rows == 0:
        raise ValueError(
            f"edges as a sparse matrix must be square, one row and one column per item, got {matrix.shape}"
        )
    expected = count if names is None else len(names)
    if expected not in (None, rows):
        raise ValueError(f"items or n_items must agree with the {rows} rows of the sparse matrix, got {expected}")
    entries = matrix.tocoo()
    check_finite("edges", entries.data)
    is_edge = entries.data != 0
    numbers = np.concatenate([entries.row[is_edge], entries.col[is_edge]])
    return _make(numbers, range(rows) if names is None else names)


def _make(numbers: IntArray, names: Sequence[Hashable]) -> Edges:
    """Edges from the numbers of all winners, then of all losers."""
    if len(names) > _MOST_ITEMS:
        raise ValueError(f"there may be at most {_MOST_ITEMS} items, got {len(names)}")
    winners, losers = numbers.astype(np.int32).reshape(2, -1)
    return Edges(winners, losers, names)
