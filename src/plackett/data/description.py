"""Summary of a data set: counts, grades, ties, sizes."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.data.containers import Ballots, MultilabelData, RankingData, without_zeros
from plackett.lists import IntArray

Bars = list[tuple[str, int]]

_MOST_BARS = 12


@dataclass(frozen=True)
class Description:
    """`facts` by name; `histograms` by title, each a list of (value or bin, count)."""

    facts: dict[str, int | float | str]
    histograms: dict[str, Bars]


@singledispatch
def describe(data: Any) -> Description:
    """Counts of a RankingData, MultilabelData or Ballots."""
    raise TypeError(f"data must be RankingData, MultilabelData or Ballots, got {type(data).__name__}")


def _range_text(values: npt.NDArray[Any]) -> str:
    if len(values) == 0:
        return "none"
    return f"{values.min():,g} to {values.max():,g}, mean {values.mean():,.2f}, median {np.median(values):,g}"


def _bars(values: npt.NDArray[Any], zeros: int = 0) -> Bars:
    """How often each value occurs, in bins if there are many distinct values. `zeros` are counted in addition."""
    found, counts = np.unique(values, return_counts=True)
    if zeros:
        found, counts = np.append(0, found), np.append(zeros, counts)
    if len(found) <= _MOST_BARS:
        return [(f"{value:g}", int(count)) for value, count in zip(found, counts, strict=True)]
    if found[0] >= 0 and (found == np.floor(found)).all():  # counts have long tails: 0, 1, 2, 3 - 4, 5 - 8, ...
        ends = 2.0 ** np.arange(np.ceil(np.log2(found[-1])) + 1)
        first = np.append([0.0, 1.0], ends[:-1] + 1)
        ends = np.append(0.0, ends)
        sums = np.diff(np.searchsorted(np.sort(values), np.append(first, np.inf)))
        sums[0] += zeros
        texts = [f"{a:g}" if a == b else f"{a:g} - {b:g}" for a, b in zip(first, ends, strict=True)]
    else:
        sums, edges = np.histogram(values, _MOST_BARS)
        texts = [f"{a:.3g} - {b:.3g}" for a, b in itertools.pairwise(edges)]
    used = np.flatnonzero(sums)
    return list(zip(texts, sums.tolist(), strict=True))[used[0] : used[-1] + 1]


def _tier_sizes(labels: npt.NDArray[Any], offsets: IntArray) -> tuple[IntArray, IntArray]:
    """The size of every tier, and the number of tiers in every list."""
    lists = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    order = np.lexsort((labels, lists))
    starts = np.ones(len(order), bool)
    starts[1:] = (labels[order][1:] != labels[order][:-1]) | (lists[order][1:] != lists[order][:-1])
    sizes = np.diff(np.append(np.flatnonzero(starts), len(order)))
    return sizes, np.bincount(lists[order][starts], minlength=len(offsets) - 1)


def _share(part: float, whole: float) -> str:
    return f"{int(part):,} ({part / whole:.1%})" if whole else "0"


@describe.register
def _(data: RankingData) -> Description:
    sizes = np.diff(data.offsets)
    tier_sizes, tiers = _tier_sizes(data.y, data.offsets)
    filled = sizes > 0
    best = np.maximum.reduceat(data.y, data.offsets[:-1][filled]) if filled.any() else np.zeros(0)
    stored = data.X.data if hasattr(data.X, "indptr") else data.X
    nonzero, missing = int(np.count_nonzero(stored)), int(np.isnan(stored).sum())
    cells = data.X.shape[0] * data.X.shape[1]
    return Description(
        facts={
            "lists": len(data),
            "items": len(data.y),
            "features": data.X.shape[1],
            "feature values that are not zero": _share(nonzero, cells),
            "feature values that are missing": _share(missing, cells),
            "items with an identifier": 0 if data.ids is None else int((np.asarray(data.ids) != "").sum()),
            "items in a list": _range_text(sizes),
            "tiers in a list": _range_text(tiers),
            "items in a tier": _range_text(tier_sizes),
            "items tied with another of their list": _share(tier_sizes[tier_sizes > 1].sum(), len(data.y)),
            "lists without a preference (all items tied)": _share((tiers <= 1).sum(), len(data)),
            "lists without a relevant item (no label above 0)": _share((best <= 0).sum() + (~filled).sum(), len(data)),
        },
        histograms={
            "grades": _bars(data.y),
            "items in a list": _bars(sizes),
            "items in a tier": _bars(tier_sizes),
        },
    )


@describe.register
def _(data: MultilabelData) -> Description:
    Y = without_zeros(data.Y)
    labels, features = np.diff(Y.indptr), np.diff(data.X.indptr)
    given = np.sort(np.unique(Y.indices, return_counts=True)[1])[::-1]
    unused, top = Y.shape[1] - len(given), max(1, Y.shape[1] // 10)
    histograms = {"labels in a row": _bars(labels), "rows with a label": _bars(given, unused)}
    if len(np.unique(Y.data)) > 1:
        histograms["grades"] = _bars(Y.data)
    return Description(
        facts={
            "rows": len(data),
            "features": data.X.shape[1],
            "labels": Y.shape[1],
            "features in a row": _range_text(features),
            "labels in a row": _range_text(labels),
            "rows without labels": _share((labels == 0).sum(), len(data)),
            "rows without features": _share((features == 0).sum(), len(data)),
            "labels that no row has": _share(unused, Y.shape[1]),
            "labels given that are among the most frequent tenth": _share(given[:top].sum(), Y.nnz),
        },
        histograms=histograms,
    )


@describe.register
def _(data: Ballots) -> Description:
    sizes = np.diff(data.offsets)
    tier_sizes, tiers = _tier_sizes(data.labels, data.offsets)
    strict, complete = tiers == sizes, sizes == len(data.names)
    facts: dict[str, int | float | str] = {
        "different ballots": len(data),
        "ballots cast": float(np.sum(data.weights)),
        "items": len(data.names),
        "features of a ballot": 0 if data.X is None else data.X.shape[1],
        "items on a ballot": _range_text(sizes),
        "tiers on a ballot": _range_text(tiers),
        "items in a tier": _range_text(tier_sizes),
        "ballots with ties": _share((~strict).sum(), len(data)),
        "ballots that rank all items": _share(complete.sum(), len(data)),
        "ballots without a preference": _share((tiers <= 1).sum(), len(data)),
        "items that no ballot ranks": len(data.names) - len(np.unique(data.items)),
    }
    return Description(facts, {"items on a ballot": _bars(sizes), "items in a tier": _bars(tier_sizes)})
