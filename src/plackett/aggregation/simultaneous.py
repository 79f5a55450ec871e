"""Comparisons of many items at once: tests of all pairs with correction, ranks as intervals, groups by letters."""

from __future__ import annotations

import string
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr

from plackett.aggregation.inference import Floats, Intervals, difference_variances
from plackett.arguments import check_choice, check_fraction

CORRECTIONS = ("holm", "bonferroni", "none")


@dataclass(frozen=True)
class PairwiseTests:
    """Tests of each pair of items: entry (i, j) is about the score of item i minus that of item j.

    differences, standard_errors, p_values   (items, items); p values are corrected for the number of pairs
    """

    items: list[Any]
    differences: Floats
    standard_errors: Floats
    p_values: Floats
    correction: str

    def __iter__(self) -> Iterator[tuple[Any, Any, float, float, float]]:
        """One row per pair: both items, difference, standard error and p value, best items first."""
        order = np.argsort(-self.differences.mean(axis=1), kind="stable").tolist()
        for place, i in enumerate(order):
            for j in order[place + 1 :]:
                numbers = (self.differences[i, j], self.standard_errors[i, j], self.p_values[i, j])
                yield self.items[i], self.items[j], *map(float, numbers)


def pairwise_tests(items: list[Any], scores: Floats, covariance: Floats, correction: str) -> PairwiseTests:
    """Normal tests of all differences; equal scores without error have a p value of 1."""
    check_choice("correction", correction, CORRECTIONS)
    differences = scores[:, None] - scores[None, :]
    errors = np.sqrt(difference_variances(covariance))
    with np.errstate(divide="ignore", invalid="ignore"):
        raw = np.where(errors > 0.0, 2.0 * ndtr(-np.abs(differences) / errors), 1.0)
    np.fill_diagonal(errors, 0.0)
    upper = np.triu_indices(len(scores), 1)
    p_values = np.ones_like(raw)
    p_values[upper] = corrected(raw[upper], correction)
    return PairwiseTests(items, differences, errors, np.minimum(p_values, p_values.T), correction)


def corrected(p_values: Floats, correction: str) -> Floats:
    """p values such that the chance of any false rejection is bounded: by Holm (1979), or by Bonferroni."""
    count = len(p_values)
    if correction == "none" or not count:
        return p_values
    if correction == "bonferroni":
        return np.minimum(count * p_values, 1.0)
    order = np.argsort(p_values, kind="stable")
    found = np.empty(count)
    found[order] = np.minimum(np.maximum.accumulate((count - np.arange(count)) * p_values[order]), 1.0)
    return found


def significant_ranks(tests: PairwiseTests, confidence: float) -> Intervals:
    """From 1 plus the number of significantly better items to the number of items minus the worse ones."""
    rejected = tests.p_values < 1.0 - check_fraction("confidence", confidence)
    better = (rejected & (tests.differences < 0.0)).sum(axis=1)
    worse = (rejected & (tests.differences > 0.0)).sum(axis=1)
    return Intervals(1 + better, len(tests.items) - worse)


def letters(tests: PairwiseTests, confidence: float) -> list[str]:
    """A text for each item: two items share a letter exactly if they cannot be distinguished.

    Piepho's (2004) insert and absorb: start with one group of all items; for each significant pair split every group
    that holds both, and drop groups inside others. Letters go from the best items to the worst.
    """
    apart = tests.p_values < 1.0 - check_fraction("confidence", confidence)
    order = np.argsort(-tests.differences.mean(axis=1), kind="stable")
    groups: list[frozenset[int]] = [frozenset(range(len(order)))]
    for i, j in np.argwhere(np.triu(apart[np.ix_(order, order)])).tolist():
        if any(i in group and j in group for group in groups):
            split = [group for group in groups if not {i, j} <= group]
            halves = [group - {k} for group in groups if {i, j} <= group for k in (i, j)]
            groups = split + [half for half in halves if not any(half <= other for other in split)]
            groups = [group for group in dict.fromkeys(groups) if not any(group < other for other in groups)]
    names = _letter_names(len(groups))
    groups.sort(key=lambda group: sorted(group))
    found = [""] * len(order)
    for name, group in zip(names, groups, strict=True):
        for place in group:
            found[int(order[place])] += name
    return found


def _letter_names(count: int) -> list[str]:
    """a to z, then a1 to z1, a2, ..."""
    alphabet = string.ascii_lowercase
    return [alphabet[k % 26] + (str(k // 26) if k >= 26 else "") for k in range(count)]
