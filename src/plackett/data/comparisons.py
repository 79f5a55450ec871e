"""Comparisons of two sides: who met whom, how it ended, and the circumstances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.arguments import as_numbers, check_finite, check_kind, whole_numbers
from plackett.data.containers import Ballots

LEFT, TIE, RIGHT = 1, 0, -1
"""The outcomes of a comparison: which side won."""


@dataclass(frozen=True, eq=False)
class Factor:
    """A column of few different values: row r has the value names[codes[r]]."""

    codes: npt.NDArray[np.int32]
    names: Sequence[Any]

    def __len__(self) -> int:
        return len(self.codes)

    def select(self, rows: Any) -> Factor:
        """Return these rows; all names stay."""
        return Factor(self.codes[rows], self.names)

    def used(self) -> Factor:
        """Return the same rows, without the names that none of them has."""
        seen = np.bincount(self.codes, minlength=len(self.names)) > 0
        numbers = (np.cumsum(seen) - 1).astype(np.int32)
        return Factor(numbers[self.codes], [name for name, keep in zip(self.names, seen, strict=True) if keep])


@dataclass(frozen=True, eq=False)
class Comparisons:
    """Comparisons of two sides, one row each, as `load_comparisons` reads them.

    left, right    the two sides, (rows,): indices into `names`
    outcome        1 if the left side won, 0 if it was a tie, -1 if the right side won, (rows,); None: not known yet
    names          the names of all items
    weight         how often each row was seen, (rows,); None: once
    cluster        who or what the rows share, such as the voter: a `Factor`, or None
    by             the category of each row: a `Factor`, or None
    time           when each row was seen, (rows,), as numbers (days, if they were dates), or None
    features       features of the left side minus those of the right side, (rows, features), or None
    feature_names  the names of the features

    `len` is the number of rows; `data.select(rows)` is the data of those rows, by number or mask.
    """

    left: npt.NDArray[np.int32]
    right: npt.NDArray[np.int32]
    outcome: npt.NDArray[np.int8] | None
    names: Sequence[Any]
    weight: npt.NDArray[np.float64] | None = None
    cluster: Factor | None = None
    by: Factor | None = None
    time: npt.NDArray[np.float64] | None = None
    features: npt.NDArray[np.float64] | None = None
    feature_names: Sequence[str] = ()

    def __post_init__(self) -> None:
        count = len(self.names)
        for side in ("left", "right"):
            codes = whole_numbers(side, getattr(self, side))
            if codes.size and not 0 <= codes.min() <= codes.max() < count:
                raise ValueError(f"{side} must be from 0 to {count - 1}, got {codes.min()} to {codes.max()}")
            object.__setattr__(self, side, codes.astype(np.int32))
        self._check_lengths()
        if (same := np.flatnonzero(self.left == self.right)).size:
            row = int(same[0])
            raise ValueError(f"the sides of row {row} must differ, got {self.names[self.left[row]]!r} twice")
        if self.outcome is not None:
            object.__setattr__(self, "outcome", _check_outcome(self.outcome))
        if self.weight is not None:
            object.__setattr__(self, "weight", _check_weight(self.weight))
        if self.time is not None:
            check_finite("time", self.time)
        if self.features is not None:
            object.__setattr__(self, "features", _check_features(self.features, self.feature_names))

    def _check_lengths(self) -> None:
        for name in ("right", "outcome", "weight", "cluster", "by", "time", "features"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.left):
                raise ValueError(f"{name} must hold one value for each of the {len(self):,} rows, got {len(values):,}")
        for name in ("cluster", "by"):
            check_kind(name, getattr(self, name), Factor, type(None))

    def __len__(self) -> int:
        return len(self.left)

    def __repr__(self) -> str:
        ties = "" if self.outcome is None else f", {int(np.count_nonzero(self.outcome == TIE)):,} ties"
        parts = [f"{len(self):,} comparisons of {len(self.names):,} items{ties}"]
        for name, plural in (("cluster", "clusters"), ("by", "categories")):
            if (factor := getattr(self, name)) is not None:
                parts.append(f"{len(factor.names):,} {plural}")
        if self.features is not None:
            parts.append(f"features {', '.join(self.feature_names)}")
        return f"Comparisons({', '.join(parts)})"

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """How often each row was seen."""
        return np.ones(len(self)) if self.weight is None else self.weight

    def select(self, rows: Any) -> Comparisons:
        """Return the rows with these numbers, in this order, or those that a mask marks; all names stay."""
        rows = np.asarray(rows)
        if rows.dtype != bool:
            rows = whole_numbers("rows", rows)
            if rows.size and not 0 <= rows.min() <= rows.max() < len(self):
                raise ValueError(f"rows must be from 0 to {len(self) - 1}, got {rows.min()} to {rows.max()}")
        elif rows.shape != (len(self),):
            raise ValueError(f"rows must mark each of the {len(self):,} rows, got shape {rows.shape}")
        found: dict[str, Any] = {}
        for name in ("left", "right", "outcome", "weight", "time", "features"):
            values = getattr(self, name)
            found[name] = None if values is None else values[rows]
        for name in ("cluster", "by"):
            factor = getattr(self, name)
            found[name] = None if factor is None else factor.select(rows)
        return replace(self, **found)

    def categories(self) -> dict[Any, Comparisons]:
        """The rows of each category, by name."""
        if self.by is None:
            raise ValueError("comparisons have no categories: name their column with load_comparisons(..., by=)")
        rows = {name: self.select(self.by.codes == code) for code, name in enumerate(self.by.names)}
        return {name: replace(part, by=None) for name, part in rows.items()}

    def swapped(self) -> Comparisons:
        """The same comparisons with left and right exchanged."""
        return replace(
            self,
            left=self.right,
            right=self.left,
            outcome=None if self.outcome is None else -self.outcome,
            features=None if self.features is None else -self.features,
        )

    def to_ballots(self) -> Ballots:
        """Rankings of two items each: the winner above the loser, or both in one tier."""
        if self.outcome is None:
            raise ValueError("outcomes must be known to make ballots, got comparisons without outcomes")
        items = np.stack([self.left, self.right], axis=1)
        labels = np.stack([self.outcome, -self.outcome], axis=1).astype(np.float64)
        offsets = 2 * np.arange(len(self) + 1, dtype=np.int64)
        return Ballots(items.reshape(-1), labels.reshape(-1), offsets, self.weights, list(self.names))


def _check_outcome(outcome: Any) -> npt.NDArray[np.int8]:
    numbers = whole_numbers("outcome", outcome)
    if numbers.size and not -1 <= numbers.min() <= numbers.max() <= 1:
        row = int(np.argmax(np.abs(numbers) > 1))
        raise ValueError(f"outcome must be 1 (left), 0 (tie) or -1 (right), got {numbers[row]} in row {row}")
    return numbers.astype(np.int8)


def _check_weight(weight: Any) -> npt.NDArray[np.float64]:
    numbers = as_numbers("weight", weight)
    check_finite("weight", numbers)
    if numbers.size and numbers.min() < 0.0:
        raise ValueError(f"weight must be at least 0, got {numbers.min()} in row {int(np.argmin(numbers))}")
    if numbers.size and numbers.max() == 0.0:
        raise ValueError("weight must be above 0 for some row, got 0 for all")
    return numbers


def _check_features(features: Any, names: Sequence[str]) -> npt.NDArray[np.float64]:
    numbers = as_numbers("features", features)
    if numbers.ndim != 2 or numbers.shape[1] != len(names):
        raise ValueError(f"features must have the columns {', '.join(names)}, got shape {numbers.shape}")
    check_finite("features", numbers)
    return numbers


def used_items(comparisons: Comparisons) -> Comparisons:
    """The same rows, without the names that no row has."""
    both = Factor(np.concatenate([comparisons.left, comparisons.right]), comparisons.names).used()
    left, right = np.split(both.codes, 2)
    return replace(comparisons, left=left, right=right, names=list(both.names))


def reduced(comparisons: Comparisons) -> Comparisons:
    """The same comparisons with equal rows merged, if nothing but items and outcome tells them apart."""
    parts = (comparisons.cluster, comparisons.by, comparisons.time, comparisons.features, comparisons.outcome)
    if any(part is not None for part in parts[:-1]) or comparisons.outcome is None:
        return comparisons
    n = len(comparisons.names)
    turned = comparisons.left > comparisons.right
    low = np.where(turned, comparisons.right, comparisons.left).astype(np.int64)
    high = np.where(turned, comparisons.left, comparisons.right).astype(np.int64)
    outcome = np.where(turned, -comparisons.outcome, comparisons.outcome)
    keys = (low * n + high) * 3 + outcome + 1
    if 3 * n * n <= 4 * len(keys):
        counts = np.bincount(keys, comparisons.weights, minlength=3 * n * n)
        found = np.flatnonzero(counts)
        counts = counts[found]
    else:
        found, place = np.unique(keys, return_inverse=True)
        counts = np.bincount(place.reshape(-1), comparisons.weights)
    pairs, outcomes = np.divmod(found, 3)
    return Comparisons(
        pairs // n, pairs % n, (outcomes - 1).astype(np.int8), comparisons.names, counts.astype(np.float64)
    )


def concatenate_comparisons(first: Comparisons, second: Comparisons) -> Comparisons:
    """The rows of both, matched by names; whatever only one of them has is an error."""
    for name in ("cluster", "by", "time", "features", "outcome"):
        if (getattr(first, name) is None) != (getattr(second, name) is None):
            raise ValueError(f"both comparisons must have {name}, or neither, got one with and one without")
    if list(first.feature_names) != list(second.feature_names):
        raise ValueError(
            f"feature_names must be {', '.join(first.feature_names)}, got {', '.join(second.feature_names)}"
        )
    sides = _union([first.names, second.names])
    moved = [sides.numbers[k] for k in range(2)]
    found: dict[str, Any] = {"names": sides.names, "feature_names": first.feature_names}
    for side in ("left", "right"):
        own = [getattr(one, side) for one in (first, second)]
        found[side] = np.concatenate([numbers[codes] for numbers, codes in zip(moved, own, strict=True)])
    for field in fields(Comparisons):
        if field.name in found:
            continue
        one, other = getattr(first, field.name), getattr(second, field.name)
        if isinstance(one, Factor):
            both = _union([one.names, other.names])
            codes = [numbers[factor.codes] for numbers, factor in zip(both.numbers, (one, other), strict=True)]
            found[field.name] = Factor(np.concatenate(codes), both.names)
        elif field.name == "weight":
            unweighted = one is None and other is None
            found["weight"] = None if unweighted else np.concatenate([first.weights, second.weights])
        else:
            found[field.name] = None if one is None else np.concatenate([one, other])
    return Comparisons(**found)


@dataclass(frozen=True)
class _Union:
    names: list[Any]
    numbers: list[npt.NDArray[np.int32]]


def _union(lists: Sequence[Sequence[Any]]) -> _Union:
    """All names, and the number of each list's names among them."""
    names = sorted_names({name for own in lists for name in own}, [name for own in lists for name in own])
    places = {name: number for number, name in enumerate(names)}
    return _Union(names, [np.array([places[name] for name in own], np.int32) for own in lists])


def sorted_names(names: set[Any], order: Sequence[Any]) -> list[Any]:
    """The names sorted, or by first appearance in `order` if they cannot be compared."""
    try:
        return sorted(names)
    except TypeError:
        return list(dict.fromkeys(order))
