"""Comparisons of two items reduced to counts: millions of votes become one row for each two items that met."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.data.comparisons import TIE, Comparisons
from plackett.lists import IntArray

Floats = npt.NDArray[np.float64]

WINS, TIES, LOSSES = 0, 1, 2
_OUTCOMES = 3
_LARGEST_TABLE = 1 << 24  # cells that are counted without sorting the comparisons


@dataclass(frozen=True)
class PairRows:
    """Rows of two items with the number of each outcome.

    left, right  the items, (rows,); left < right where rows were merged
    counts       wins of left, ties, wins of right, (rows, 3)
    items        the number of items
    features     (rows, features), those of left minus those of right
    scales       a factor of each row's utilities, (rows,), or none
    starts       where the rows of each cluster begin, and their number; None without clusters
    order        the number that each row had before it was sorted by cluster, or none
    """

    left: npt.NDArray[np.int32]
    right: npt.NDArray[np.int32]
    counts: Floats
    items: int
    features: Floats
    scales: Floats
    starts: IntArray | None = None
    order: IntArray | None = None

    def __len__(self) -> int:
        return len(self.left)

    @property
    def weight(self) -> float:
        return float(self.counts.sum())

    @property
    def ties(self) -> float:
        return float(self.counts[:, TIES].sum())

    def occurring_items(self) -> npt.NDArray[np.bool_]:
        """Which items occur."""
        found = np.zeros(self.items, bool)
        found[self.left] = found[self.right] = True
        return found

    def points(self) -> Floats:
        """Wins of each item, and half its ties."""
        one = self.counts[:, WINS] + 0.5 * self.counts[:, TIES]
        other = self.counts[:, LOSSES] + 0.5 * self.counts[:, TIES]
        found = np.bincount(self.left, one, minlength=self.items) + np.bincount(self.right, other, minlength=self.items)
        return found.astype(np.float64)

    def select(self, rows: IntArray) -> PairRows:
        """The rows with these numbers, without clusters."""
        return replace(self, **_rows_of(self, rows), starts=None, order=None)

    def restrict(self, kept: npt.NDArray[np.bool_]) -> PairRows:
        """The rows of which both items are marked, renumbered."""
        rows = kept[self.left] & kept[self.right]
        numbers = (np.cumsum(kept) - 1).astype(np.int32)
        found = _rows_of(self, rows)
        found |= {"left": numbers[found["left"]], "right": numbers[found["right"]]}
        if self.starts is not None:
            found["starts"] = np.concatenate(([0], np.cumsum(rows)))[self.starts]
        if self.order is not None:
            whole = np.empty(len(rows), bool)
            whole[self.order] = rows
            found["order"] = (np.cumsum(whole) - 1)[self.order[rows]]
        return replace(self, **found, items=int(kept.sum()))

    def with_ghost(self, weight: float) -> PairRows:
        """One more item, which every other beats and loses to with this weight."""
        n = self.items
        ghost = np.zeros((n, _OUTCOMES))
        ghost[:, WINS] = ghost[:, LOSSES] = weight
        return replace(
            self,
            left=np.concatenate([self.left, np.arange(n, dtype=np.int32)]),
            right=np.concatenate([self.right, np.full(n, n, np.int32)]),
            counts=np.concatenate([self.counts, ghost]),
            items=n + 1,
            features=np.concatenate([self.features, np.zeros((n, self.features.shape[1]))]),
            scales=np.concatenate([self.scales, np.ones(n)]) if self.scales.size else self.scales,
            starts=None,
        )


def _rows_of(rows: PairRows, kept: npt.NDArray[Any]) -> dict[str, Any]:
    return {
        "left": rows.left[kept],
        "right": rows.right[kept],
        "counts": rows.counts[kept],
        "features": rows.features[kept],
        "scales": rows.scales[kept] if rows.scales.size else rows.scales,
    }


def single_rows(comparisons: Comparisons, weights: Floats) -> PairRows:
    """One row per comparison, in the given order; for features, or to look at comparisons one by one."""
    counts = np.zeros((len(comparisons), _OUTCOMES))
    counts[np.arange(len(comparisons)), TIE + 1 - _outcome(comparisons)] = weights
    features = comparisons.features
    return PairRows(
        comparisons.left,
        comparisons.right,
        counts,
        len(comparisons.names),
        np.zeros((len(comparisons), 0)) if features is None else features,
        np.zeros(0),
    )


def merged_rows(comparisons: Comparisons, weights: Floats) -> PairRows:
    """One row for each two items that met, without features."""
    return merge(len(comparisons.names), *_cells(comparisons), weights)


def clustered_rows(comparisons: Comparisons, weights: Floats, cluster: npt.NDArray[Any]) -> PairRows:
    """One row for each two items that met in a cluster, sorted by cluster, without features."""
    n = len(comparisons.names)
    pairs, outcomes = _cells(comparisons)
    keys = cluster.astype(np.int64) * n * n + pairs
    found, place = np.unique(keys, return_inverse=True)
    counts = np.bincount(_OUTCOMES * place.reshape(-1) + outcomes, weights, minlength=_OUTCOMES * len(found))
    left, right = np.divmod(found % (n * n), n)
    sizes = np.bincount(found // (n * n), minlength=int(cluster.max(initial=-1)) + 1)
    starts = np.concatenate(([0], np.cumsum(sizes[sizes > 0])))
    return _rows_without_features(left, right, counts.reshape(-1, _OUTCOMES), n, starts)


def sorted_by_cluster(rows: PairRows, cluster: npt.NDArray[Any]) -> PairRows:
    """Single rows in the order of their clusters."""
    order = np.argsort(cluster, kind="stable")
    sizes = np.bincount(cluster)
    found = _rows_of(rows, order)
    return replace(rows, **found, starts=np.concatenate(([0], np.cumsum(sizes[sizes > 0]))), order=order)


def _outcome(comparisons: Comparisons) -> npt.NDArray[np.int8]:
    if comparisons.outcome is None:
        raise ValueError("comparisons must have outcomes to fit a model, got none")
    return comparisons.outcome


def _cells(comparisons: Comparisons) -> tuple[IntArray, npt.NDArray[np.int64]]:
    """The number of each row's two items, left * n + right with left < right, and of its outcome."""
    n = len(comparisons.names)
    left, right = comparisons.left, comparisons.right
    turned = left > right
    pairs = np.where(turned, right, left).astype(np.int64) * n + np.where(turned, left, right)
    outcome = _outcome(comparisons)
    return pairs, TIE + 1 - np.where(turned, -outcome, outcome).astype(np.int64)


def merge(items: int, pairs: IntArray, outcomes: IntArray, weights: Floats | None) -> PairRows:
    """Count the outcomes of each pair of items."""
    cells = items * items
    if cells <= min(_LARGEST_TABLE, 4 * max(len(pairs), 1024)):
        counts = np.bincount(_OUTCOMES * pairs + outcomes, weights, minlength=_OUTCOMES * cells)
        counts = counts.reshape(cells, _OUTCOMES).astype(np.float64)
        found = np.flatnonzero(counts.any(axis=1))
        counts = counts[found]
    else:
        found, place = np.unique(pairs, return_inverse=True)
        counts = np.bincount(_OUTCOMES * place.reshape(-1) + outcomes, weights, minlength=_OUTCOMES * len(found))
        counts = counts.reshape(-1, _OUTCOMES).astype(np.float64)
        kept = counts.any(axis=1)
        found, counts = found[kept], counts[kept]
    left, right = np.divmod(found, items)
    return _rows_without_features(left, right, counts, items)


def _rows_without_features(
    left: IntArray, right: IntArray, counts: npt.NDArray[Any], items: int, starts: IntArray | None = None
) -> PairRows:  # fmt: skip
    return PairRows(
        left.astype(np.int32), right.astype(np.int32), counts.astype(np.float64), items, np.zeros((len(left), 0)),
        np.zeros(0), starts,
    )  # fmt: skip
