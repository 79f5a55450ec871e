"""Rankings in any form, checked, sorted by tier, with equal ones merged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.aggregation.ballot_kernels import LARGEST_RATIONAL, hash_ballots
from plackett.arguments import as_numbers, check_finite, is_missing, is_torch, ranks_if_large
from plackett.data.containers import Ballots, RankingData, rows_of_lists
from plackett.data.hashes import fingerprint
from plackett.likelihood.core import make_tiers
from plackett.lists import IntArray, offsets_from_sizes
from plackett.threads import run_over_ranges

Floats = npt.NDArray[np.float64]

# Nanoseconds, roughly: a ranked item, a pair of them in the information matrix, a tier that needs quadrature.
COST_PER_ITEM, COST_PER_PAIR, COST_PER_LARGE_TIER = 15, 1, 2500
_TIES = (set, frozenset, list, tuple)


def as_ballots(rankings: Any, names: Sequence[Any] | None = None) -> Ballots:
    """Ballots from rankings in any of the forms that `RankAggregator.fit` takes.

    With `names` given, items must be among them; otherwise they are those that occur, sorted if they can be.
    """
    if isinstance(rankings, Ballots):
        if names is None or list(rankings.names) == list(names):
            return rankings
        used, items = np.unique(rankings.items, return_inverse=True)
        numbers = _numbers_of([rankings.names[item] for item in used], names)
        return replace(rankings, items=numbers[items], names=list(names))
    if isinstance(rankings, RankingData):
        if rankings.ids is None:
            raise ValueError("ballots must say which item each row is: a RankingData needs ids, got none")
        return _assemble(rankings.ids, rankings.y, np.diff(rankings.offsets), names)
    if _is_array(rankings):
        array = _without_padding(rankings)
        if array.ndim != 2:
            raise ValueError(f"ballots given as an array must have a ranking in each row, got {array.ndim} dimensions")
        labels = np.tile(np.arange(array.shape[1], 0, -1.0), len(array))
        return _assemble(array.reshape(-1), labels, np.full(len(array), array.shape[1]), names)
    if isinstance(rankings, str | bytes | Mapping) or not isinstance(rankings, Iterable):
        raise ValueError(
            "ballots must be Ballots, RankingData with ids, an array with a ranking in each row or a sequence of "
            f"rankings, got {type(rankings).__name__}"
        )
    return _from_sequences(rankings, names)


def _is_array(values: Any) -> bool:
    return isinstance(values, np.ndarray) or is_torch(values)


def _without_padding(values: Any) -> npt.NDArray[Any]:
    """An array or tensor as an array, all of whose entries are items."""
    array: npt.NDArray[Any] = values.numpy(force=True) if is_torch(values) else values
    if isinstance(array, np.ma.MaskedArray):
        raise ValueError("ballots must not be masked arrays: pass lists of different lengths")
    if array.dtype.kind in "if" and (array < 0).any():
        raise ValueError(
            f"ballots given as arrays must not hold numbers below 0, got {array.min()}: pass lists without them if "
            "they are padding"
        )
    return array


def _from_sequences(rankings: Iterable[Any], names: Sequence[Any] | None) -> Ballots:
    """Rankings best first; a set, list or tuple inside a ranking is a tier."""
    values: list[Any] = []
    labels: list[int] = []
    sizes = []
    for number, ranking in enumerate(rankings):
        if isinstance(ranking, str | bytes | set | frozenset | Mapping) or not isinstance(ranking, Iterable):
            raise ValueError(f"ballot {number} must be a sequence of items, best first, got {ranking!r}")
        before = len(values)
        tiers = list(_without_padding(ranking) if _is_array(ranking) else ranking)
        for label, tier in zip(range(len(tiers), 0, -1), tiers, strict=True):
            members = list(tier) if isinstance(tier, _TIES) else [tier]
            values += members
            labels += [label] * len(members)
        sizes.append(len(values) - before)
    return _assemble(values, np.array(labels, np.float64), np.array(sizes, np.int64), names)


def _assemble(values: Any, labels: npt.NDArray[Any], sizes: npt.NDArray[Any], names: Sequence[Any] | None) -> Ballots:
    found, items = _distinct(values)
    if names is not None:
        found, items = names, _numbers_of(found, names)[items]
    return Ballots(items, labels, offsets_from_sizes(sizes.astype(np.int64)), np.ones(len(sizes)), found)


def _distinct(values: Any) -> tuple[Sequence[Any], IntArray]:
    """The items that occur, sorted if they can be, and the number of each value among them."""
    if isinstance(values, np.ndarray) and values.dtype != object:
        found, items = np.unique(values, return_inverse=True)
        return found.tolist(), items.reshape(-1)
    try:
        names = list(dict.fromkeys(values))
    except TypeError:
        raise ValueError("items must be strings, numbers or other hashable values") from None
    with suppress(TypeError):  # kinds that cannot be compared stay in the order of appearance
        names = sorted(names)
    return names, _numbers_of(values, names)


def _numbers_of(values: Sequence[Any], names: Sequence[Any]) -> IntArray:
    numbers = {name: number for number, name in enumerate(names)}
    try:
        return np.array([numbers[value] for value in values], np.int64)
    except KeyError as error:
        raise ValueError(f"ballots must hold only items of the model, got {error.args[0]!r}") from None


def check_names(names: Sequence[Any]) -> None:
    """Raise ValueError unless they can be the names of items."""
    for name in names:
        if is_torch(name):  # equal to none but itself
            raise ValueError(f"items must not be tensors, got {name!r}: use ranking.tolist()")
        if is_missing(name) or name != name:
            raise ValueError(f"items must not be missing, got {name!r}: pass rankings of different lengths, unpadded")
    if len(names) < 2:
        raise ValueError(f"ballots must name at least two items, got {len(names)}")
    if len(set(names)) < len(names):
        doubled = next(name for name, count in Counter(names).items() if count > 1)
        raise ValueError(f"item names must be unique, got {doubled!r} twice")


def restrict(ballots: Ballots, kept: npt.NDArray[np.bool_]) -> Ballots:
    """The same ballots over the items marked in `kept`, renumbered."""
    entries = kept[np.asarray(ballots.items)]
    running = np.concatenate(([0], np.cumsum(entries)))
    return Ballots(
        items=(np.cumsum(kept) - 1)[np.asarray(ballots.items)[entries]],
        labels=np.asarray(ballots.labels)[entries],
        offsets=running[ballots.offsets],
        weights=ballots.weights,
        names=[name for name, keep in zip(ballots.names, kept, strict=True) if keep],
    )


def check_ballot_weights(weights: Any, ballots: int) -> Floats:
    array = as_numbers("weights", weights)
    if array.shape != (ballots,):
        raise ValueError(f"weights must hold one number for each of the {ballots} ballots, got shape {array.shape}")
    check_finite("weights", array)
    if array.size and array.min() < 0.0:
        raise ValueError(f"weights must be at least 0, got {array.min()} for ballot {int(np.argmin(array))}")
    return array


def weighted(ballots: Ballots, sample_weight: Any, unranked: str) -> Ballots:
    """Ballots times weights; with unranked="last" the items that a ballot leaves out are tied below the others."""
    if sample_weight is not None:
        own = check_ballot_weights(ballots.weights, len(ballots))
        ballots = replace(ballots, weights=own * check_ballot_weights(sample_weight, len(ballots)))
    return ballots.complete() if unranked == "last" else ballots


@dataclass(frozen=True)
class Rankings:
    """Ballots that rank some item above another, best tier first, in the form that the kernels take.

    items         ranked items, numbers from 0 to count - 1
    starts        where each tier begins in `items`, and at the end their number
    ballot_tiers  ballot b has the tiers ballot_tiers[b] to ballot_tiers[b+1] - 1, at least two
    weights       how often each ballot was cast, above 0
    count         the number of all items, ranked or not
    tied_weight   how often ballots were cast that tie all their items, two or more; they hold no information and are
                  left out
    tied_pairs    the same, of ballots of two items
    places        for each ballot that these were made from, the number here of the one it is part of, or -1
    scales        a factor of the utilities of each ballot, or None
    """

    items: npt.NDArray[np.int32]
    starts: IntArray
    ballot_tiers: IntArray
    weights: Floats
    count: int
    tied_weight: float = 0.0
    tied_pairs: float = 0.0
    places: IntArray | None = None
    scales: Floats | None = None

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def offsets(self) -> IntArray:
        return self.starts[self.ballot_tiers]

    @property
    def largest_scale(self) -> float:
        return 1.0 if self.scales is None else float(self.scales.max(initial=1.0))

    def costs(self) -> tuple[IntArray, IntArray]:
        """Nanoseconds of a gradient and of an information matrix, as running totals over ballots."""
        tier_sizes = np.diff(self.starts)
        large = np.where(tier_sizes > LARGEST_RATIONAL, COST_PER_LARGE_TIER + 300 * tier_sizes, 0)
        large[self.ballot_tiers[1:] - 1] = 0
        running = np.concatenate(([0], np.cumsum(large)))
        sizes = np.diff(self.offsets)
        first = COST_PER_ITEM * sizes + np.diff(running[self.ballot_tiers])
        return offsets_from_sizes(first), offsets_from_sizes(first + COST_PER_PAIR * sizes * sizes // 2)

    def wins(self) -> Floats:
        """How often each item was ranked above others."""
        weights = np.repeat(self.weights, np.diff(self.offsets))
        weights[rows_of_lists(self.starts, self.ballot_tiers[1:] - 1)] = 0.0
        return np.bincount(self.items, weights, minlength=self.count).astype(np.float64)

    def select(self, ballots: IntArray, weights: Floats) -> Rankings:
        """The ballots with these numbers, with new weights."""
        tiers = rows_of_lists(self.ballot_tiers, ballots)
        return Rankings(
            self.items[rows_of_lists(self.starts, tiers)],
            offsets_from_sizes(np.diff(self.starts)[tiers]),
            offsets_from_sizes(np.diff(self.ballot_tiers)[ballots]),
            weights,
            self.count,
            self.tied_weight,
            self.tied_pairs,
            scales=None if self.scales is None else self.scales[ballots],
        )

    def table(self, scores: Floats) -> tuple[Floats, npt.NDArray[np.int32]]:
        """Utilities, relative to the largest score, and where in them each entry of `items` finds its own."""
        relative = scores - scores.max()
        if self.scales is None:
            return relative, self.items
        utilities = np.repeat(self.scales, np.diff(self.offsets)) * relative[self.items]
        return utilities, np.arange(len(self.items), dtype=np.int32)


def make_rankings(
    ballots: Ballots, *, keep_ties: bool = False, merge: bool = True, scales: Floats | None = None
) -> Rankings:
    """Checked ballots in the form of the kernels, without ballots of weight 0 or with a single tier.

    `keep_ties` keeps ballots that tie all their items, for models in which that says something. Without `merge`, all
    ballots stay, in their order. With `scales`, one for each ballot, equal ballots are not merged.
    """
    cast = check_ballot_weights(ballots.weights, len(ballots))
    offsets = np.asarray(ballots.offsets, np.int64)
    labels = np.ascontiguousarray(ranks_if_large(np.asarray(ballots.labels)), np.float64)
    check_finite("labels", labels)
    items = np.asarray(ballots.items).astype(np.int32)
    inside = np.ones(len(items), bool)  # an item that is not the first of its ballot
    inside[offsets[:-1][np.diff(offsets) > 0]] = False
    if (inside[1:] & (labels[1:] > labels[:-1])).any():
        order = make_tiers(labels, offsets).order
        items, labels = items[order], labels[order]
    begins = ~inside
    begins[1:] |= labels[1:] != labels[:-1]
    tiers_before = np.concatenate(([0], np.cumsum(begins)))
    is_level, sizes = np.diff(tiers_before[offsets]) == 1, np.diff(offsets)
    rankings = Rankings(
        items,
        np.append(np.flatnonzero(begins), len(items)).astype(np.int64),
        tiers_before[offsets],
        cast,
        len(ballots.names),
        tied_weight=float(cast[is_level & (sizes > 1)].sum()),
        tied_pairs=float(cast[is_level & (sizes == 2)].sum()),
        scales=scales,
    )
    return _merge(rankings, ballots, keep_ties) if merge else rankings


def _hashes(rankings: Rankings) -> tuple[npt.NDArray[np.uint64], int]:
    """Two hashes of each ballot, and the position of an item that its ballot holds twice, or -1."""
    hashes = np.empty((2, len(rankings)), np.uint64)

    def call(first: int, last: int) -> int:
        return int(
            hash_ballots(
                first, last, rankings.items, rankings.starts, rankings.ballot_tiers, rankings.count, hashes
            )
        )  # fmt: skip

    doubled = [position for position in run_over_ranges(call, rankings.offsets * COST_PER_ITEM) if position >= 0]
    return hashes, doubled[0] if doubled else -1


def ballots_hash(rankings: Rankings, names: Sequence[Any]) -> str:
    """A hash that equal ballots share, whatever the order of ballots, names, and items of a tier."""
    texts = np.array([str(name) for name in names])
    by_name = np.argsort(texts, kind="stable")
    places = np.empty(len(names), np.int32)
    places[by_name] = np.arange(len(names))
    hashes, _ = _hashes(replace(rankings, items=places[rankings.items]))
    weights = np.rint(1e6 * np.log(rankings.weights)).astype(np.int64)  # without the rounding of their sums
    by_hash = np.argsort(hashes[0])
    return fingerprint([texts[by_name].tolist(), hashes[:, by_hash], weights[by_hash]])


def _merge(rankings: Rankings, ballots: Ballots, keep_ties: bool) -> Rankings:
    """Merge equal ballots, unless they have scales, and add their weights; those without information are left out."""
    hashes, doubled = _hashes(rankings)
    if doubled >= 0:
        ballot = int(np.searchsorted(rankings.offsets, doubled, side="right")) - 1
        name = ballots.names[rankings.items[doubled]]
        raise ValueError(f"a ballot must name each item at most once, got {name!r} twice on ballot {ballot}")
    compares = np.diff(rankings.offsets if keep_ties else rankings.ballot_tiers) > 1
    useful = np.flatnonzero(compares & (rankings.weights > 0.0))
    if len(useful) < len(rankings):
        hashes = hashes[:, useful]
    first, group = _sets_of_equals(hashes) if rankings.scales is None else (np.arange(len(useful)),) * 2
    places = np.full(len(rankings), -1)
    places[useful] = group
    if len(first) == len(rankings):
        return replace(rankings, places=places)
    weights = np.bincount(group, rankings.weights[useful], minlength=len(first)).astype(np.float64)
    return replace(rankings.select(useful[first], weights), places=places)


def _sets_of_equals(hashes: npt.NDArray[np.uint64]) -> tuple[IntArray, IntArray]:
    """The first of each set of equal ballots, by appearance, and the number of the set of each ballot.

    As np.unique, whose stable sort takes longer.
    """
    count = hashes.shape[1]
    by_hash = np.argsort(hashes[0])
    one, two = hashes[:, by_hash]
    begins = np.ones(count, bool)
    begins[1:] = one[1:] != one[:-1]
    if (two[1:] != two[:-1])[~begins[1:]].any():  # by one chance in 10^7 even with a million ballots
        return np.arange(count), np.arange(count)
    starts = np.flatnonzero(begins)
    first = np.minimum.reduceat(by_hash, starts) if count else by_hash
    order = np.argsort(first)
    numbers = np.empty_like(order)
    numbers[order] = np.arange(len(order))
    group = np.empty_like(by_hash)
    group[by_hash] = np.repeat(numbers, np.diff(starts, append=count))
    return first[order], group


def with_ghost(rankings: Rankings, weight: float) -> Rankings:
    """One more item, which every other beats and loses to with this weight."""
    n = rankings.count
    others, ghost = np.arange(n, dtype=np.int32), np.full(n, n, np.int32)
    pairs = np.concatenate([np.column_stack([others, ghost]), np.column_stack([ghost, others])]).reshape(-1)
    starts = len(rankings.items) + np.arange(1, 4 * n + 1)
    return Rankings(
        np.concatenate([rankings.items, pairs]),
        np.concatenate([rankings.starts, starts]),
        np.concatenate([rankings.ballot_tiers, rankings.ballot_tiers[-1] + 2 * np.arange(1, 2 * n + 1)]),
        np.concatenate([rankings.weights, np.full(2 * n, weight)]),
        n + 1,
        scales=None if rankings.scales is None else np.concatenate([rankings.scales, np.ones(2 * n)]),
    )
