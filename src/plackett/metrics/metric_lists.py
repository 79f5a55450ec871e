"""Common parts of all ranking metrics: lists of scores and labels, random ties, and the mean over lists."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.arguments import as_floats, check_choice, check_exact, check_positive, check_same_index, to_numpy
from plackett.lists import IntArray, Lists, flat_lists, make_lists

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

REDUCTIONS = ("mean", "none")
TIES = ("average", "stable", "random")


@dataclass(frozen=True)
class MetricLists:
    """Scores and labels list by list; `lists` holds the rows they came from."""

    scores: FloatArray  # (items,)
    labels: FloatArray  # (items,)
    lists: Lists

    @property
    def offsets(self) -> IntArray:
        return self.lists.offsets

    @property
    def sizes(self) -> IntArray:
        return self.lists.sizes

    def shuffled(self, random_state: Any) -> "MetricLists":
        """The items of each list in random order."""
        list_of = np.repeat(np.arange(len(self.lists)), self.sizes)
        rows = np.lexsort((np.random.default_rng(random_state).random(len(list_of)), list_of))
        before = self.lists.rows
        return MetricLists(
            self.scores[rows], self.labels[rows], Lists(self.offsets, rows if before is None else before[rows])
        )

    def raise_bad(self, position: int, lowest: float, highest: float, reason: str) -> None:
        """Report the invalid item at a position; `reason` explains the limits of labels."""
        item = position if self.lists.rows is None else int(self.lists.rows[position])
        score, label = self.scores[position], self.labels[position]
        if not np.isfinite(score):
            raise ValueError(f"scores must be finite, got {score} at item {item}")
        if not np.isfinite(label):
            raise ValueError(f"labels must be finite, got {label} at item {item}")
        raise ValueError(f"labels must be from {lowest:g} to {highest:g} {reason}, got {label:g} at item {item}")


def _exact_floats(name: str, values: Any) -> npt.NDArray[Any]:
    """Floats; an integer that would be rounded is refused, because it could tie with another."""
    found = as_floats(name, values)
    check_exact(name, np.asarray(values))
    return found


def make_metric_lists(scores: Any, labels: Any, *, offsets: Any, qid: Any, group: Any, where: Any) -> MetricLists:
    """Flat scores and labels by the rules of the module docstring of `plackett.metrics`."""
    check_same_index(scores=scores, labels=labels, qid=qid)
    x, y = (_exact_floats(name, to_numpy(values)) for name, values in (("scores", scores), ("labels", labels)))
    if x.shape != y.shape:
        raise ValueError(f"labels must have the shape of scores, {x.shape}, got {y.shape}")
    if x.ndim == 1 and where is None:
        lists = make_lists(len(x), offsets=to_numpy(offsets), qid=to_numpy(qid), group=to_numpy(group))
        return MetricLists(
            np.ascontiguousarray(lists.sort(x), np.float64), np.ascontiguousarray(lists.sort(y), np.float64), lists
        )
    for name, value in (("qid", qid), ("group", group)):
        if value is not None:
            raise ValueError(f"{name} belongs to one-dimensional scores without where, got scores of shape {x.shape}")
    flat = flat_lists(x, y, offsets=offsets, where=to_numpy(where))
    return MetricLists(flat.scores, flat.labels, Lists(flat.offsets))


def check_k(k: Any) -> int | None:
    """A cut-off: a whole number of at least 1, or None."""
    return None if k is None else check_positive("k", k, ", or None")


def check_empty(empty: Any) -> float:
    """The value of a list where the metric is undefined; NaN for "skip"."""
    check_choice("empty", empty, ("skip", 0, 1, 0.0, 1.0))
    return float("nan") if empty == "skip" else float(empty)


def reduce_values(
    values: FloatArray, defined: BoolArray, empty: Any, weights: Any, reduction: str
) -> float | FloatArray:
    """One value per list, or sum(weight * value) / sum(weight) over the lists not skipped; NaN if all are skipped."""
    check_choice("reduction", reduction, REDUCTIONS)
    values = np.where(defined, values, check_empty(empty))
    if reduction == "none":
        if weights is not None:
            raise ValueError(
                'weights must be None with reduction="none", which returns values as they are, got weights'
            )
        return values
    kept = ~np.isnan(values)
    if weights is None:
        return float(values[kept].mean()) if kept.any() else float("nan")
    weight = as_floats("weights", to_numpy(weights)).astype(np.float64, copy=False)
    if weight.shape != values.shape:
        raise ValueError(f"weights must hold one value per list, {values.shape}, got {weight.shape}")
    if not (np.isfinite(weight) & (weight >= 0.0)).all():
        raise ValueError(f"weights must be finite and at least 0, got {weight.min()} to {weight.max()}")
    total = weight[kept].sum()
    return float(weight[kept] @ values[kept] / total) if total > 0.0 else float("nan")
