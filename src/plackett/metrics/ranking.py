"""Metrics of ranked lists; the shape rule and the common arguments are in the docstring of `plackett.metrics`."""

import math
from typing import Any

import numpy as np

from plackett.arguments import check_choice
from plackett.likelihood.core import make_tiers
from plackett.likelihood.partition import partition_log_likelihood
from plackett.lists import takes_mask
from plackett.metrics.metric_lists import TIES, FloatArray, MetricLists, check_k, make_metric_lists, reduce_values
from plackett.metrics.ranking_kernels import (
    BINARY,
    CASCADE,
    DISCOUNTED,
    EXP2,
    FIRST,
    LINEAR,
    PRECISIONS,
    SHARE_OF_IDEAL,
    kendall_lists,
    rank_lists,
)
from plackett.threads import run_over_ranges

_COST_PER_ITEM = 10
_COST_PER_SORTED_ITEM = 60
_LARGEST = float(np.finfo(np.float64).max)
_POSITIVE = float(np.nextafter(0.0, 1.0))
# Up to these labels no sum over a list overflows.
_HIGHEST_GAIN = {"exp2": 960.0, "linear": 1e290}


def discounts_of(places: int) -> FloatArray:
    """1 / log2(1 + place)."""
    return np.asarray(1.0 / np.log2(np.arange(2.0, places + 2.0)))


def _evaluate(
    lists: MetricLists,
    rule: int,
    kind: int,
    k: Any,
    ties: str,
    random_state: Any,
    *,
    threshold: Any = _POSITIVE,
    lowest: float = -_LARGEST,
    highest: float = _LARGEST,
    reason: str = "",
    scale: float = 1.0,
) -> tuple[FloatArray, FloatArray]:
    """Value and number of relevant items of each list."""
    check_choice("ties", ties, TIES)
    if not isinstance(threshold, int | float | np.number) or not math.isfinite(threshold):
        raise ValueError(f"threshold must be a finite number, got {threshold!r}")
    if ties == "random":
        lists = lists.shuffled(random_state)
    longest = int(lists.sizes.max(initial=0))
    cutoff = min(check_k(k) or longest, longest)
    discounts = discounts_of(cutoff) if rule == SHARE_OF_IDEAL else np.ones(cutoff)
    value, relevant = np.empty(len(lists.lists)), np.empty(len(lists.lists))
    by_blocks = None if rule in (DISCOUNTED, SHARE_OF_IDEAL) else True

    def call(first: int, last: int) -> int:
        return int(
            rank_lists(
                first, last, lists.scores, lists.labels, lists.offsets, cutoff, ties == "average", rule, kind,
                float(threshold), lowest, highest, scale, discounts, value, relevant, by_blocks,
            )
        )  # fmt: skip

    cost = _COST_PER_SORTED_ITEM if 2 * cutoff > longest else _COST_PER_ITEM
    bad = max(run_over_ranges(call, lists.offsets * cost), default=-1)
    if bad >= 0:
        lists.raise_bad(bad, lowest, highest, reason)
    return value, relevant


@takes_mask
def ndcg(
    scores: Any,
    labels: Any,
    *,
    k: int | None = None,
    offsets: Any = None,
    qid: Any = None,
    group: Any = None,
    where: Any = None,
    weights: Any = None,
    reduction: str = "mean",
    gain: str = "exp2",
    ties: str = "average",
    empty: Any = "skip",
    random_state: Any = None,
) -> float | FloatArray:
    """Normalised discounted cumulative gain: sum of gain / log2(1 + place), over that of the best order.

    Args:
        gain: "exp2" for 2^label - 1, "linear" for the label.

    >>> round(ndcg([0.0, 0.0, 0.0, 0.0, 0.0], [0, 0, 1, 0, 1]), 3)         # the mean over all orders
    0.723
    """
    check_choice("gain", gain, tuple(_HIGHEST_GAIN))
    lists = make_metric_lists(scores, labels, offsets=offsets, qid=qid, group=group, where=where)
    value, relevant = _evaluate(
        lists, SHARE_OF_IDEAL, EXP2 if gain == "exp2" else LINEAR, k, ties, random_state,
        lowest=0.0, highest=_HIGHEST_GAIN[gain], reason=f'for gain="{gain}"',
    )  # fmt: skip
    return reduce_values(value, relevant > 0, empty, weights, reduction)


@takes_mask
def err(
    scores: Any,
    labels: Any,
    *,
    k: int | None = None,
    offsets: Any = None,
    qid: Any = None,
    group: Any = None,
    where: Any = None,
    weights: Any = None,
    reduction: str = "mean",
    max_grade: float = 4,
    ties: str = "average",
    empty: Any = "skip",
    random_state: Any = None,
) -> float | FloatArray:
    """Expected reciprocal rank (Chapelle et al. 2009): E[1 / the place at which the user stops].

    The user goes down the list and stops at an item with probability (2^label - 1) / 2^max_grade.

    Args:
        max_grade: the highest grade of the data set, 4 in most; higher labels are refused.

    >>> err([2.0, 1.0], [4, 0])
    0.9375
    """
    if not isinstance(max_grade, int | float | np.number) or not 0 < max_grade <= _HIGHEST_GAIN["exp2"]:
        raise ValueError(f"max_grade must be a number above 0 and at most 960, got {max_grade!r}")
    lists = make_metric_lists(scores, labels, offsets=offsets, qid=qid, group=group, where=where)
    value, relevant = _evaluate(
        lists, CASCADE, EXP2, k, ties, random_state,
        lowest=0.0, highest=float(max_grade), reason="(max_grade)", scale=0.5 ** float(max_grade),
    )  # fmt: skip
    return reduce_values(value, relevant > 0, empty, weights, reduction)


@takes_mask
def average_precision(
    scores: Any,
    labels: Any,
    *,
    k: int | None = None,
    offsets: Any = None,
    qid: Any = None,
    group: Any = None,
    where: Any = None,
    weights: Any = None,
    reduction: str = "mean",
    threshold: float = 1,
    ties: str = "average",
    empty: Any = "skip",
    random_state: Any = None,
) -> float | FloatArray:
    """The sum of the precision at the place of each relevant item, over the number of relevant items in the list.

    Its mean over lists is MAP.

    >>> average_precision([3.0, 2.0, 1.0], [1, 0, 1])
    0.8333333333333333
    """
    lists = make_metric_lists(scores, labels, offsets=offsets, qid=qid, group=group, where=where)
    value, relevant = _evaluate(lists, PRECISIONS, BINARY, k, ties, random_state, threshold=threshold)
    return reduce_values(value / np.maximum(relevant, 1.0), relevant > 0, empty, weights, reduction)


@takes_mask
def reciprocal_rank(
    scores: Any,
    labels: Any,
    *,
    k: int | None = None,
    offsets: Any = None,
    qid: Any = None,
    group: Any = None,
    where: Any = None,
    weights: Any = None,
    reduction: str = "mean",
    threshold: float = 1,
    ties: str = "average",
    empty: Any = "skip",
    random_state: Any = None,
) -> float | FloatArray:
    """1 / the place of the first relevant item; 0 if it comes after place k. Its mean over lists is MRR.

    >>> reciprocal_rank([3.0, 2.0, 1.0], [0, 1, 1])
    0.5
    """
    lists = make_metric_lists(scores, labels, offsets=offsets, qid=qid, group=group, where=where)
    value, relevant = _evaluate(lists, FIRST, BINARY, k, ties, random_state, threshold=threshold)
    return reduce_values(value, relevant > 0, empty, weights, reduction)


@takes_mask
def precision(
    scores: Any,
    labels: Any,
    *,
    k: int | None = None,
    offsets: Any = None,
    qid: Any = None,
    group: Any = None,
    where: Any = None,
    weights: Any = None,
    reduction: str = "mean",
    threshold: float = 1,
    ties: str = "average",
    empty: Any = "skip",
    random_state: Any = None,
) -> float | FloatArray:
    """Relevant items among the first k places, over k (or the length of the list if k is None).

    >>> precision([3.0, 2.0, 1.0], [0, 1, 1], k=2)
    0.5
    """
    lists = make_metric_lists(scores, labels, offsets=offsets, qid=qid, group=group, where=where)
    value, relevant = _evaluate(lists, DISCOUNTED, BINARY, k, ties, random_state, threshold=threshold)
    return reduce_values(value / (k or np.maximum(lists.sizes, 1)), relevant > 0, empty, weights, reduction)


@takes_mask
def recall(
    scores: Any,
    labels: Any,
    *,
    k: int | None = None,
    offsets: Any = None,
    qid: Any = None,
    group: Any = None,
    where: Any = None,
    weights: Any = None,
    reduction: str = "mean",
    threshold: float = 1,
    ties: str = "average",
    empty: Any = "skip",
    random_state: Any = None,
) -> float | FloatArray:
    """Relevant items among the first k places, over all relevant items of the list.

    >>> recall([3.0, 2.0, 1.0], [0, 1, 1], k=2)
    0.5
    """
    lists = make_metric_lists(scores, labels, offsets=offsets, qid=qid, group=group, where=where)
    value, relevant = _evaluate(lists, DISCOUNTED, BINARY, k, ties, random_state, threshold=threshold)
    return reduce_values(value / np.maximum(relevant, 1.0), relevant > 0, empty, weights, reduction)


@takes_mask
def kendall_tau(
    scores: Any,
    labels: Any,
    *,
    offsets: Any = None,
    qid: Any = None,
    group: Any = None,
    where: Any = None,
    weights: Any = None,
    reduction: str = "mean",
    variant: str = "b",
    empty: Any = "skip",
) -> float | FloatArray:
    """Kendall's rank correlation of scores and labels, both of which may tie; O(n log n) per list.

    With C concordant and D discordant pairs out of n(n-1)/2:

        "b"   (C - D) / sqrt(pairs not tied in scores x pairs not tied in labels)
        "x"   (C - D + pairs tied in both) / all pairs, by Emond & Mason (2002): a tie is information, not a lack of it

    `empty` is for lists of fewer than two items and, in tau-b, lists whose labels are all equal. Scores that are all
    equal where labels differ give tau-b = 0: they carry no information, and skipping them would reward that.

    >>> round(kendall_tau([4.0, 3.0, 2.0, 1.0], [2, 2, 1, 0]), 4)
    0.9129
    """
    check_choice("variant", variant, ("b", "x"))
    lists = make_metric_lists(scores, labels, offsets=offsets, qid=qid, group=group, where=where)
    value, defined = np.empty(len(lists.lists)), np.empty(len(lists.lists), np.bool_)

    def call(first: int, last: int) -> int:
        x, y = lists.scores, lists.labels
        return int(kendall_lists(first, last, x, y, lists.offsets, variant == "x", value, defined))

    bad = max(run_over_ranges(call, lists.offsets * 3 * _COST_PER_SORTED_ITEM), default=-1)
    if bad >= 0:
        lists.raise_bad(bad, -_LARGEST, _LARGEST, "")
    return reduce_values(value, defined, empty, weights, reduction)


@takes_mask
def log_likelihood(
    scores: Any,
    labels: Any,
    *,
    k: int | None = None,
    offsets: Any = None,
    qid: Any = None,
    group: Any = None,
    where: Any = None,
    weights: Any = None,
    reduction: str = "mean",
    empty: Any = "skip",
) -> float | FloatArray:
    """Exact Plackett-Luce log-likelihood of the tiers of the labels, or of their first k places.

    Unlike the other metrics it also measures how confident the scores are, not only their order.

    `empty` is for lists whose labels are all equal, which have likelihood one under any scores.

    >>> round(log_likelihood([1.0, 0.0], [1, 0]), 4)
    -0.3133
    """
    lists = make_metric_lists(scores, labels, offsets=offsets, qid=qid, group=group, where=where)
    value = partition_log_likelihood(lists.scores, lists.labels, offsets=lists.offsets, top=check_k(k))
    tiers = np.diff(make_tiers(lists.labels, lists.offsets).list_tiers)
    return reduce_values(np.asarray(value), tiers > 1, empty, weights, reduction)
