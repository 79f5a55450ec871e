"""The core of the exact likelihood: labels of ragged lists turned into tiers, and value and derivatives of those tiers.

`make_tiers` sorts labels once for all evaluations with the same labels. `evaluate_tiers` takes flat float64 scores,
`Tiers` and checked options; it validates nothing. The kernels notice scores that are not finite in passing, and
`raise_bad_score` reports them.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.arguments import NO_CUTOFF
from plackett.compilation import light_kernel
from plackett.errors import AccuracyWarning
from plackett.likelihood.constants import LARGEST_SCORE
from plackett.likelihood.kernel_parts import longest_list, sort_descending
from plackett.likelihood.list_kernels import partition_lists
from plackett.lists import IntArray, offsets_from_sizes
from plackett.threads import run_over_ranges

# Tiers

TierWeighting = Callable[[Any, Any, Any], Any]
"""(labels of tiers, labels of the tiers below them, items above them) -> weights; NumPy arrays or torch tensors."""


def gain_weights(upper: Any, lower: Any, _places: Any) -> Any:
    """2^grade of a tier minus 2^grade of the tier below it: what NDCG gains by separating the two."""
    return 2.0**upper - 2.0**lower


def check_tier_weights(finite: Any, labels: Any) -> None:
    """Raise ValueError unless the weights of all tiers are finite; `labels` are those of the tiers."""
    if not bool(finite.all()):
        label = float(labels[~finite][0])
        raise ValueError(
            f'tier_weights must be finite, got infinity or NaN for a tier of label {label:g}: "gain" is 2^label, so '
            "labels must be grades below 1024; pass smaller ones, or a function"
        )


def check_weighting(tier_weights: Any) -> TierWeighting | None:
    """The function that an argument `tier_weights` stands for."""
    if isinstance(tier_weights, str) and tier_weights == "gain":
        return gain_weights
    if tier_weights is not None and not callable(tier_weights):
        raise ValueError(f'tier_weights must be "gain", a function or None, got {tier_weights!r}')
    weighting: TierWeighting | None = tier_weights
    return weighting


_MOST_LEVELS = 16  # lists with more distinct labels are sorted
_MANY_LEVELS = -1
_SORTING_COST = 20  # per item


@dataclass(frozen=True)
class Tiers:
    """The items of each list ordered by descending label.

    order       positions in the flat arrays, list by list, best tier first
    starts      where each tier begins in `order`, and at the end the number of items
    list_tiers  which tiers belong to which list: list_tiers[b] to list_tiers[b+1] - 1
    offsets     the lists themselves
    """

    order: IntArray
    starts: IntArray
    list_tiers: IntArray
    offsets: IntArray

    @property
    def sizes(self) -> IntArray:
        return np.diff(self.starts)

    def log_factorials(self) -> npt.NDArray[np.float64]:
        """One value per list: the sum of log n! over the sizes n of its tiers, without the last."""
        from scipy.special import gammaln

        terms = gammaln(self.sizes + 1.0)
        terms[self.list_tiers[1:][np.diff(self.list_tiers) > 0] - 1] = 0.0
        running = np.concatenate(([0.0], np.cumsum(terms)))
        return np.asarray(running[self.list_tiers[1:]] - running[self.list_tiers[:-1]])

    def weights(self, weighting: TierWeighting, labels: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """One weight per tier; 0 for bottom tiers, which are compared with nothing."""
        upper = labels[self.order[self.starts[:-1]]]
        places = self.starts[:-1] - np.repeat(self.offsets[:-1], np.diff(self.list_tiers))
        is_bottom = np.zeros(len(upper), np.bool_)
        is_bottom[self.list_tiers[1:][np.diff(self.list_tiers) > 0] - 1] = True
        weights = np.zeros(len(upper))
        active = np.flatnonzero(~is_bottom)
        with np.errstate(over="ignore", invalid="ignore"):
            weights[active] = weighting(upper[active], upper[active + 1], places[active])
        check_tier_weights(np.isfinite(weights), upper)
        return weights


@light_kernel
def _sort_lists(first, last, labels, offsets, order, begins, counts):  # type: ignore[no-untyped-def]
    """Order the items of the lists first..last by tier, mark where tiers begin and count them.

    Most lists have few distinct labels: those are collected in a short sorted table and the items counted into place,
    in time linear in the list. Lists with many labels are left for `_sort_many_labels`, which is compiled only if there
    are any. Returns the position of a NaN or infinity, or -1.
    """
    levels = np.empty(_MOST_LEVELS)
    number = np.empty(_MOST_LEVELS + 1, np.int64)
    for b in range(first, last):
        begin, end = offsets[b], offsets[b + 1]
        found = 0
        for i in range(begin, end):
            x = labels[i]
            if not np.isfinite(x):
                return i
            if found > _MOST_LEVELS:
                continue
            place = 0
            while place < found and levels[place] > x:
                place += 1
            if place < found and levels[place] == x:
                number[place] += 1
            elif found == _MOST_LEVELS:
                found += 1
            else:
                for k in range(found, place, -1):
                    levels[k] = levels[k - 1]
                    number[k] = number[k - 1]
                levels[place] = x
                number[place] = 1
                found += 1
        if found > _MOST_LEVELS:
            counts[b] = _MANY_LEVELS
            continue
        total = begin
        for k in range(found):
            begins[total] = True
            size = number[k]
            number[k] = total
            total += size
        for i in range(begin, end):
            place = 0
            while levels[place] != labels[i]:
                place += 1
            order[number[place]] = i
            number[place] += 1
        counts[b] = found
    return -1


@light_kernel
def _sort_many_labels(first, last, labels, offsets, order, begins, counts):  # type: ignore[no-untyped-def]
    """As `_sort_lists`, for the lists that it left."""
    room = np.empty(longest_list(offsets, first, last), np.int64)
    for b in range(first, last):
        if counts[b] == _MANY_LEVELS:
            begin, end = offsets[b], offsets[b + 1]
            sort_descending(labels, order, begin, end, room)
            counts[b] = 0
            for i in range(begin, end):
                new = i == begin or labels[order[i]] != labels[order[i - 1]]
                begins[i] = new
                counts[b] += new
    return -1


def make_tiers(labels: npt.NDArray[np.float64], offsets: IntArray) -> Tiers:
    """Tiers of flat labels: equal labels of a list share a tier, higher labels come first."""
    order = np.empty(len(labels), np.int64)
    begins = np.zeros(len(labels), np.bool_)
    counts = np.empty(len(offsets) - 1, np.int64)
    bad = run_over_ranges(
        lambda first, last: _sort_lists(first, last, labels, offsets, order, begins, counts),
        offsets * _SORTING_COST,
    )
    for position in bad:
        if position >= 0:
            raise ValueError(f"labels must be finite, got {labels[position]} at item {position}")
    if counts.min(initial=0) == _MANY_LEVELS:
        run_over_ranges(
            lambda first, last: _sort_many_labels(first, last, labels, offsets, order, begins, counts),
            offsets * _SORTING_COST,
        )
    starts = np.append(np.flatnonzero(begins), len(labels)).astype(np.int64)
    return Tiers(order, starts, offsets_from_sizes(counts), offsets)


# Value and derivatives

_EVALUATION_COST = 100  # per item
# Nats by which the quadrature aims below tol: its own estimate was seen to be off by a factor of up to 30.
_SAFETY = 3.0


def depth_of(tol: float) -> float:
    """How far below its peak the kernels follow an integrand, in nats."""
    return -math.log(tol) + _SAFETY


def evaluate_tiers(
    scores: npt.NDArray[np.float64],
    tiers: Tiers,
    *,
    top: int = NO_CUTOFF,
    tol: float,
    derivatives: bool,
    tier_weights: npt.NDArray[np.float64] | None = None,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Value of each list; gradient and curvature of each item, empty without `derivatives`.

    `tier_weights` multiplies log P of each tier, in the order of `tiers`.
    """
    weights = np.empty(0) if tier_weights is None else np.ascontiguousarray(tier_weights, np.float64)
    lists = len(tiers.offsets) - 1
    value, error = np.empty(lists), np.empty(lists)
    gradient, curvature = (np.empty(len(scores)), np.empty(len(scores))) if derivatives else (None, None)
    places = kernel_cutoff(top, tiers)
    depth = depth_of(tol)

    def call(first: int, last: int) -> int:
        return int(
            partition_lists(
                first, last, scores, tiers.order, tiers.starts, tiers.list_tiers, weights,
                places, depth, value, error, gradient, curvature,
            )
        )  # fmt: skip

    for position in run_over_ranges(call, tiers.offsets * _EVALUATION_COST):
        if position >= 0:
            raise_bad_score(float(scores[position]), position)
    if lists:
        _warn_if_inaccurate(error, tiers, tol)
    if gradient is None or curvature is None:
        return value, np.empty(0), np.empty(0)
    return value, gradient, curvature


def kernel_cutoff(top: int, tiers: Tiers) -> int | None:
    """The cut-off for a kernel: None, for which it is compiled without one, if no list is longer than `top`."""
    return None if top == NO_CUTOFF or np.diff(tiers.offsets).max(initial=0) <= top else top


def raise_bad_score(score: float, position: int) -> None:
    """Report a score that a kernel refused."""
    raise ValueError(f"scores must be finite and at most {LARGEST_SCORE:g} in size, got {score} at item {position}")


def _warn_if_inaccurate(error: npt.NDArray[np.float64], tiers: Tiers, tol: float) -> None:
    worst = int(np.argmax(error))  # NaN counts as largest
    if not error[worst] <= 100.0 * tol * (tiers.list_tiers[worst + 1] - tiers.list_tiers[worst]):
        warnings.warn(
            f"the log-likelihood of list {worst} has an estimated error of {error[worst]:.1e} where tol={tol:.1e} was "
            "requested: please report these scores",
            AccuracyWarning,
            stacklevel=4,
        )
