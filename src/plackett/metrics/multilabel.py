"""Metrics of extreme multi-label classification: rows, each with a few labels among many.

Scores come as

    dense         2-D array of floats, (rows, labels)
    sparse        CSR of the same shape: only stored entries are predicted
    top columns   2-D array of integers, (rows, at least k): columns, best first; -1 = no more

Equal scores: the lower column comes first. Labels come as a matrix Y of that shape, CSR or anything that converts to
it, where positive entries are the labels of a row (a stored zero is not a label), or as a pair (indices, offsets): row
b has the labels indices[offsets[b]:offsets[b+1]].

`empty` is the value of a row without labels: 0 as in napkinXC, 1, or "skip". reduction: "mean", or "none" for one
value per row. Sparse input is never copied into a dense array, and rows are never sorted completely.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.arguments import as_array, as_csr, as_numbers, check_choice, to_numpy, whole_numbers
from plackett.lists import IntArray, check_offsets
from plackett.metrics.metric_lists import REDUCTIONS, FloatArray, check_k, reduce_values
from plackett.metrics.multilabel_kernels import rank_columns, score_rows
from plackett.metrics.ranking import discounts_of
from plackett.threads import run_over_ranges

PROPENSITY_PRESETS: dict[str, tuple[float, float]] = {
    "default": (0.55, 1.5),
    "wikipedia": (0.5, 0.4),
    "amazon": (0.6, 2.6),
    "WikiLSHTC-325K": (0.5, 0.4),
    "Wikipedia-500K": (0.5, 0.4),
    "Amazon-670K": (0.6, 2.6),
    "Amazon-3M": (0.6, 2.6),
}
"""(A, B) of Jain et al. (2016) by data set, as in the extreme classification repository."""

# A file may declare any number of labels: an array of them must not take far more memory than the data.
_MOST_LABELS = 1 << 24
_LABELS_PER_ENTRY = 50

_COST_PER_ENTRY = 5
_COST_PER_ROW = 200


@dataclass(frozen=True)
class _LabelLists:
    """The labels of each row. There are `count` labels, or more if Y does not say how many (`is_open`)."""

    indices: IntArray
    offsets: IntArray
    count: int
    is_open: bool = False

    @property
    def sizes(self) -> IntArray:
        return np.diff(self.offsets)

    def admits(self, count: int) -> bool:
        """Whether there can be `count` labels."""
        return count == self.count or (self.is_open and count > self.count)


def _label_lists(Y: Any, name: str = "Y") -> _LabelLists:
    if isinstance(Y, tuple):
        if len(Y) != 2:
            raise ValueError(f"{name} must be a matrix or a pair (indices, offsets), got {len(Y)} values")
        indices = whole_numbers(f"indices of {name}", to_numpy(Y[0]))
        if indices.size and indices.min() < 0:
            raise ValueError(f"indices of {name} must be at least 0, got {indices.min()}")
        offsets = check_offsets(to_numpy(Y[1]), len(indices), f"offsets of {name}")
        return _LabelLists(indices, offsets, int(indices.max(initial=-1)) + 1, is_open=True)
    from scipy.sparse import issparse

    matrix = to_numpy(Y)
    if not issparse(matrix):
        matrix = as_array(name, matrix)
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} must be a matrix of numbers or a pair (indices, offsets), got {matrix.ndim} dimensions of "
            f"{matrix.dtype}"
        )
    csr = as_csr(name, matrix)
    if not (csr.data > 0).all():
        if not (csr.data >= 0).all():
            raise ValueError(f"{name} must hold grades of at least 0, got {csr.data.min()}")
        csr = csr.copy()
        csr.eliminate_zeros()
    return _LabelLists(csr.indices.astype(np.int64), csr.indptr.astype(np.int64), csr.shape[1])


def _top_of(scores: Any, labels: _LabelLists, k: int) -> IntArray:
    """The columns in the first k places of each row."""
    from scipy.sparse import issparse

    rows = len(labels.offsets) - 1
    scores = to_numpy(scores)
    if not issparse(scores):
        scores = as_array("scores", scores)
    if scores.ndim != 2 or scores.shape[0] != rows or scores.dtype.kind not in "iuf":
        raise ValueError(
            f"scores must be numbers in two dimensions, a row for each of the {rows} rows of Y, got {scores.dtype} of "
            f"shape {scores.shape}"
        )
    if not issparse(scores) and scores.dtype.kind in "iu":
        if scores.shape[1] < k:
            raise ValueError(f"scores must hold at least k = {k} columns in each row, got {scores.shape[1]}")
        return np.ascontiguousarray(scores[:, :k], np.int64)
    if not labels.admits(scores.shape[1]):
        raise ValueError(f"scores must have as many columns as Y, {labels.count}, got {scores.shape[1]}")
    if issparse(scores):
        csr = as_csr("scores", scores)
        data, columns, offsets = csr.data, csr.indices.astype(np.int64), csr.indptr.astype(np.int64)
    else:
        data, columns = scores.reshape(-1), np.empty(0, np.int64)
        offsets = np.arange(rows + 1, dtype=np.int64) * scores.shape[1]
    # Single precision is ranked as it is: a copy in double precision could be large.
    data = np.ascontiguousarray(data, data.dtype if data.dtype == np.float32 else np.float64)
    top = np.empty((rows, k), np.int64)

    def call(first: int, last: int) -> int:
        return int(rank_columns(first, last, data, columns, offsets, top))

    bad = max(run_over_ranges(call, offsets * _COST_PER_ENTRY + np.arange(rows + 1) * _COST_PER_ROW), default=-1)
    if bad >= 0:
        row = int(np.searchsorted(offsets, bad, side="right")) - 1
        raise ValueError(f"scores must be finite, got {data[bad]} in row {row}")
    return top


@dataclass(frozen=True)
class _Gains:
    """The gain of each row, the best possible one, its number of labels, and whether each label was found."""

    achieved: FloatArray
    best: FloatArray
    sizes: IntArray
    found: npt.NDArray[np.bool_]

    @property
    def defined(self) -> npt.NDArray[np.bool_]:
        return self.sizes > 0


_UNIT = np.empty(0)
"""Weights of labels that all weigh 1."""


def _score(scores: Any, labels: _LabelLists, weights: FloatArray, discounts: FloatArray) -> _Gains:
    top = _top_of(scores, labels, len(discounts))
    count = labels.count
    if labels.is_open:  # columns may be named that no row has
        count = max(count, int(top.max(initial=-1)) + 1)
    rows = len(labels.offsets) - 1
    achieved, best, found = np.empty(rows), np.empty(rows), np.zeros(len(labels.indices), np.bool_)

    def call(first: int, last: int) -> int:
        return int(
            score_rows(
                first, last, top, labels.indices, labels.offsets, count, weights, discounts, achieved, best, found
            )
        )  # fmt: skip

    cost = (labels.offsets * len(discounts) + np.arange(rows + 1) * _COST_PER_ROW).astype(np.int64)
    bad = max(run_over_ranges(call, cost), default=-1)
    if bad >= 0:
        raise ValueError(
            f"scores must name columns of Y, each at most once in a row, got {top[bad].tolist()} in row {bad}"
        )
    return _Gains(achieved, best, labels.sizes, found)


def _places(k: Any) -> int:
    number = check_k(k)
    if number is None:
        raise ValueError("k must be a whole number of at least 1, got None")
    return number


def multilabel_precision(
    scores: Any, Y: Any, *, k: int = 5, empty: Any = 0, reduction: str = "mean"
) -> float | FloatArray:
    """P@k: labels of the row among its first k places, over k.

    >>> multilabel_precision(np.array([[2, 0], [1, 2]]), np.array([[1, 0, 1], [0, 1, 0]]), k=2)
    0.75
    """
    places, labels = _places(k), _label_lists(Y)
    outcome = _score(scores, labels, _UNIT, np.ones(places))
    return reduce_values(outcome.achieved / places, outcome.defined, empty, None, reduction)


def multilabel_recall(
    scores: Any, Y: Any, *, k: int = 5, empty: Any = 0, reduction: str = "mean"
) -> float | FloatArray:
    """Labels of the row among its first k places, over all labels of the row."""
    places, labels = _places(k), _label_lists(Y)
    outcome = _score(scores, labels, _UNIT, np.ones(places))
    return reduce_values(outcome.achieved / np.maximum(outcome.sizes, 1), outcome.defined, empty, None, reduction)


def multilabel_ndcg(
    scores: Any, Y: Any, *, k: int = 5, depth: str = "k", empty: Any = 0, reduction: str = "mean"
) -> float | FloatArray:
    """nDCG@k: sum of 1 / log2(1 + place) over the row's labels in the first k places, over the best possible.

    Args:
        depth: "k" counts the labels found in the first k places, as in the extreme classification repository; "labels"
            only those in the first min(k, number of the row's labels) places, as many as the best ranking needs.

    >>> top, Y = np.array([[1, 0]]), np.array([[1, 0]])
    >>> round(multilabel_ndcg(top, Y, k=2), 4), multilabel_ndcg(top, Y, k=2, depth="labels")
    (0.6309, 0.0)
    """
    check_choice("depth", depth, ("k", "labels"))
    places, labels = _places(k), _label_lists(Y)
    if depth == "labels":
        is_counted = np.arange(places) < labels.sizes[:, None]
        scores = np.where(is_counted, _top_of(scores, labels, places), -1)
    outcome = _score(scores, labels, _UNIT, discounts_of(places))
    return reduce_values(_ratio(outcome), outcome.defined, empty, None, reduction)


def _ratio(outcome: _Gains) -> FloatArray:
    return outcome.achieved / np.where(outcome.defined, outcome.best, 1.0)


def _propensity_scored(
    scores: Any, Y: Any, inverse: Any, k: int, discounted: bool, normalisation: str, empty: Any, reduction: str
) -> float | FloatArray:
    check_choice("normalisation", normalisation, ("sums", "rows"))
    check_choice("reduction", reduction, REDUCTIONS)
    places, labels = _places(k), _label_lists(Y)
    weights = np.ascontiguousarray(as_numbers("inverse_propensity", to_numpy(inverse)))
    if weights.ndim != 1 or not labels.admits(len(weights)):
        raise ValueError(
            f"inverse_propensity must hold a number for each of the {labels.count} labels, got shape {weights.shape}"
        )
    if not (np.isfinite(weights) & (weights > 0.0)).all():
        raise ValueError(f"inverse_propensity must be finite and above 0, got {weights.min()} to {weights.max()}")
    discounts = discounts_of(places) if discounted else np.ones(places)
    outcome = _score(scores, labels, weights, discounts)
    if normalisation == "rows":
        return reduce_values(_ratio(outcome), outcome.defined, empty, None, reduction)
    # Rows with fewer labels than places have less to gain: PSnDCG divides each by the discounts its labels can take.
    reach = np.concatenate(([1.0], np.cumsum(discounts)))[np.minimum(labels.sizes, places)] if discounted else 1.0
    achieved, best = outcome.achieved / reach, outcome.best / reach
    total = float(np.sum(best))
    ratio = float(np.sum(achieved)) / total if total > 0.0 else float("nan")
    if reduction == "mean":
        return ratio
    # To first order a row moves the ratio by this much: the mean is the ratio, the spread that of the ratio.
    return np.asarray(ratio + (achieved - ratio * best) * (len(best) / total if total > 0.0 else 1.0))


def propensity_scored_precision(
    scores: Any,
    Y: Any,
    inverse_propensity: Any,
    *,
    k: int = 5,
    normalisation: str = "sums",
    empty: Any = 0,
    reduction: str = "mean",
) -> float | FloatArray:
    """PSP@k (Jain et al. 2016): precision in which a label counts with its inverse propensity, over the best possible.

    Args:
        inverse_propensity: one number per label, see `inverse_propensity`.
        normalisation: "sums" for the sum of gains over rows divided by the sum of best possible gains, as in published
            tables; "rows" for the mean over rows of the ratio. Rows without labels add nothing to sums.
        reduction: "none" gives one value per row. "sums" has none; its linearisation is returned instead, whose mean
            is the ratio and whose spread is that of the ratio (the delta method), for intervals and paired tests.

    >>> propensity_scored_precision(np.array([[2], [0]]), np.array([[1, 0, 1], [0, 1, 0]]), [1.0, 3.0, 5.0], k=1)
    0.625
    """
    return _propensity_scored(scores, Y, inverse_propensity, k, False, normalisation, empty, reduction)


def propensity_scored_ndcg(
    scores: Any,
    Y: Any,
    inverse_propensity: Any,
    *,
    k: int = 5,
    normalisation: str = "sums",
    empty: Any = 0,
    reduction: str = "mean",
) -> float | FloatArray:
    """PSnDCG@k: as `propensity_scored_precision`, with the discount 1 / log2(1 + place)."""
    return _propensity_scored(scores, Y, inverse_propensity, k, True, normalisation, empty, reduction)


def coverage(scores: Any, Y: Any, *, k: int = 5) -> float:
    """The share of the labels in Y that are found in the first k places of at least one row that has them.

    NaN if Y has no labels.
    """
    places, labels = _places(k), _label_lists(Y)
    outcome = _score(scores, labels, _UNIT, np.ones(places))
    occurring = len(np.unique(labels.indices))
    return len(np.unique(labels.indices[outcome.found])) / occurring if occurring else float("nan")


def inverse_propensity(
    Y: Any, *, a: float | None = None, b: float | None = None, preset: str = "default"
) -> FloatArray:
    """1 / propensity of each label by the model of Jain et al. (2016), from the labels of the training rows.

        1 + C (n + b)^-a,   C = (log N - 1) (b + 1)^a,   n rows of N have the label

    Args:
        a, b: the constants; or
        preset: a name in `PROPENSITY_PRESETS`, a data set or a family of them.

    >>> inverse_propensity(np.eye(20, 3), preset="amazon").round(3).tolist()
    [2.996, 2.996, 2.996]
    """
    if (a is None) != (b is None):
        raise ValueError(f"a and b must be given together, got a={a} and b={b}")
    if a is None or b is None:
        if preset not in PROPENSITY_PRESETS:
            raise ValueError(f"preset must be one of {', '.join(PROPENSITY_PRESETS)}, got {preset!r}")
        a, b = PROPENSITY_PRESETS[preset]
    elif preset != "default":
        raise ValueError(f"at most one of preset and a, b may be given, got preset={preset!r} and a={a}, b={b}")
    if not (a >= 0.0 and b >= 0.0):
        raise ValueError(f"a and b must be at least 0, got a={a} and b={b}")
    labels = _label_lists(Y)
    rows = len(labels.offsets) - 1
    if rows < 3:
        raise ValueError(f"Y must have at least 3 rows, because the model is undefined for fewer, got {rows}")
    if labels.count > max(_MOST_LABELS, _LABELS_PER_ENTRY * len(labels.indices)):
        raise ValueError(
            f"Y has {labels.count:,} columns and {len(labels.indices):,} labels in them: too many columns for an array "
            "of their propensities"
        )
    counts = np.bincount(labels.indices, minlength=labels.count)
    scale = (np.log(rows) - 1.0) * (b + 1.0) ** a
    return np.asarray(1.0 + scale * (counts + b) ** -a)
