"""Coordinate ascent on a metric: one weight at a time goes to the best of all its values (Metzler and Croft 2007).

Metrics of places are constant between the weights at which the order of some list changes. `line_search_kernels` finds
these and what each changes; sorted together they give the metric as a function of one weight, exactly, and its maximum.

A metric does not depend on the length of the weight vector, so lengths along the line are measured by the angle through
which the vector turns: the line from -inf to +inf is half a circle. The middle of the widest best
interval is chosen, so that the weights are as far as possible from any change of order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csc_array

from plackett.linear.features import Bools, Floats
from plackett.linear.line_search_kernels import ADDITIVE, CASCADE, PAIRS, PRECISIONS, changes_along_line
from plackett.lists import IntArray
from plackett.metrics import get_metric, ranking
from plackett.metrics.ranking import discounts_of
from plackett.threads import run_over_ranges

_COST_PER_ITEM = 100
_CHANGES_PER_ITEM = 32  # room at first; if there are more changes, the lists are processed twice
_NARROW = 1e-9  # radians; crossings this close are at the same weight, up to rounding
_MAX_GRADE = 4  # the default of ERR
_ROUNDING = 1e-10  # error of sums of changes of a metric that is at most 1


@dataclass(frozen=True)
class PlaceMetric:
    """A metric as the kernel takes it: sum over lists of factor times terms of the worths of items at places."""

    rule: int
    worths: Floats  # of items
    factors: Floats  # of lists
    cutoff: int
    discounts: Floats


def place_metric(name: str, labels: Floats, offsets: IntArray, weights: Floats) -> PlaceMetric:
    """The metric of that name, such as "ndcg@10", as the weighted mean over lists that have a value."""
    metric: Any = get_metric(name)
    if metric.func is ranking.log_likelihood:
        raise ValueError("objective must be a metric of places, got 'log-likelihood': LinearRanker maximises it")
    k = metric.keywords.get("k")
    values = metric(np.zeros(len(labels)), labels, offsets=offsets, reduction="none")  # checks the labels
    sizes = np.diff(offsets)
    longest = int(sizes.max(initial=1))
    cutoff = longest if k is None else min(k, longest)
    share = np.where(np.isnan(values), 0.0, weights)
    if not share.any():
        raise ValueError(f"y must give at least one list a value of {name}, got none: no relevant item, or no weight")
    share /= share.sum()
    list_of = np.repeat(np.arange(len(sizes)), sizes)

    def per_list(of_items: Floats) -> Floats:
        """Sums over lists, to divide by."""
        return np.maximum(np.bincount(list_of, of_items, len(sizes)), 1e-300)

    ones = np.ones(cutoff)
    relevant = (labels >= 1.0).astype(np.float64)
    if metric.func is ranking.ndcg:
        gains, discounts = np.exp2(labels) - 1.0, discounts_of(cutoff)
        best = np.lexsort((-labels, list_of))
        place = np.arange(len(labels)) - np.repeat(offsets[:-1], sizes)
        ideal = per_list(gains[best] * np.append(discounts, 0.0)[np.minimum(place, cutoff)])
        return PlaceMetric(ADDITIVE, gains, share / ideal, cutoff, discounts)
    if metric.func is ranking.kendall_tau:
        pairs = sizes * (sizes - 1.0) / 2.0
        different = per_list(_different_labels(labels, offsets)) if metric.keywords["variant"] == "b" else pairs
        return PlaceMetric(PAIRS, labels, share / np.maximum(np.sqrt(pairs * different), 1e-300), longest, ones)
    if metric.func is ranking.precision:
        return PlaceMetric(ADDITIVE, relevant, share / (k or np.maximum(sizes, 1)), cutoff, ones)
    if metric.func is ranking.recall:
        return PlaceMetric(ADDITIVE, relevant, share / per_list(relevant), cutoff, ones)
    if metric.func is ranking.average_precision:
        return PlaceMetric(PRECISIONS, relevant, share / per_list(relevant), cutoff, ones)
    stops = relevant if metric.func is ranking.reciprocal_rank else (np.exp2(labels) - 1.0) / 2.0**_MAX_GRADE
    return PlaceMetric(CASCADE, stops, share, cutoff, ones)


def _different_labels(labels: Floats, offsets: IntArray) -> Floats:
    """For each item half the number of items of its list with another label."""
    list_of = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    _, group, count = np.unique(np.stack((list_of, labels)), axis=1, return_inverse=True, return_counts=True)
    return np.asarray(0.5 * (np.diff(offsets)[list_of] - count[group.reshape(-1)]))


@dataclass(frozen=True)
class LineMaximum:
    weight: float
    gain: float  # of the metric, minus the penalty


def best_weight(
    metric: PlaceMetric,
    offsets: IntArray,
    rest: Floats,
    feature: Floats,
    now: float,
    others: float,
    penalty: float,
) -> LineMaximum | None:
    """The best weight c of a feature for scores rest + c feature, or None if no weight changes anything.

    Args:
        now: the present weight, from which gains are counted.
        others: the length of the vector of the other weights.
        penalty: on each radian that the weights turn.
    """
    parts: dict[int, tuple[Floats, Floats]] = {}

    def call(first: int, last: int) -> int:
        sizes = np.diff(offsets[first : last + 1])
        pairs = sizes * (sizes - 1) // 2  # each changes places at most once
        most = pairs if metric.rule == PAIRS else np.minimum(pairs, _CHANGES_PER_ITEM * sizes)
        room, wanted = -1, int(most.sum())
        while room < wanted:  # at most twice
            room = wanted
            at, change = np.empty(room), np.empty(room)
            wanted = int(changes_along_line(
                first, last, rest, feature, metric.worths, offsets, metric.factors, metric.cutoff, metric.rule,
                metric.discounts, at, change,
            ))  # fmt: skip
        parts[first] = at[:wanted], change[:wanted]
        return 0

    run_over_ranges(call, offsets * _COST_PER_ITEM)
    ordered = [parts[first] for first in sorted(parts)]  # the same order of sums in every run
    at, change = (np.concatenate([part[i] for part in ordered]) for i in (0, 1))
    if len(at) == 0:
        return None
    order = np.argsort(at)
    at = at[order]
    values = np.concatenate(([0.0], np.cumsum(change[order])))  # between the changes
    present = values[np.searchsorted(at, now)]
    radius = others if others > 0.0 else 1.0
    angles = np.concatenate(([-0.5 * math.pi], np.arctan(at / radius), [0.5 * math.pi]))
    left, right, values = _merged(angles, values)
    middles = 0.5 * (left + right)
    merits = values - penalty * np.abs(middles - math.atan(now / radius))
    is_best = merits >= merits.max() - _ROUNDING
    chosen = int(np.argmax(np.where(is_best, right - left, 0.0)))
    return LineMaximum(radius * math.tan(middles[chosen]), float(merits[chosen] - present))


def _merged(angles: Floats, values: Floats) -> tuple[Floats, Floats, Floats]:
    """Ends and values of intervals, without those between changes at one weight; neighbours of equal value as one."""
    wide = np.diff(angles) > _NARROW
    left, right, values = angles[:-1][wide], angles[1:][wide], values[wide]
    firsts = np.flatnonzero(np.concatenate(([True], np.abs(np.diff(values)) > _ROUNDING)))
    return left[firsts], right[np.append(firsts[1:], len(right)) - 1], values[firsts]


def ascend(
    metric: PlaceMetric,
    X: Any,
    varies: Bools,
    offsets: IntArray,
    start: Floats,
    generator: np.random.Generator,
    penalty: float,
) -> Iterator[Floats]:
    """The weights, of length 1, after each sweep over all features in random order."""
    columns: Any = np.asfortranarray(X) if isinstance(X, np.ndarray) else csc_array(X)
    weights = start / (np.linalg.norm(start) or 1.0)
    while True:
        scores = np.asarray(X @ weights)
        for f in generator.permutation(np.flatnonzero(varies)):
            feature = columns[:, f] if isinstance(X, np.ndarray) else columns[:, [f]].toarray().reshape(-1)
            rest = scores - weights[f] * feature
            others = float(np.linalg.norm(np.delete(weights, f)))
            found = best_weight(metric, offsets, rest, feature, float(weights[f]), others, penalty)
            if found is not None and found.gain > _ROUNDING:
                weights[f] = found.weight
                length = float(np.linalg.norm(weights))
                weights /= length
                scores = (rest + found.weight * feature) / length
        yield weights.copy()
