"""Rankings drawn from Plackett-Luce, reduced to tiers."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.arguments import as_numbers, check_count, whole_numbers
from plackett.data.containers import Ballots, RankingData
from plackett.lists import offsets_from_sizes

_BLOCK = 2**18  # arrival times drawn at once: few calls if rankings are short, and in cache if they are long


def make_tiered_lists(
    n_lists: int = 300,
    *,
    tier_sizes: Sequence[int] = (1, 3, 6, 10),
    coefficients: Sequence[float] = (1.0, -0.5),
    random_state: int | np.random.Generator | None = None,
) -> RankingData:
    """Simulate lists ranked by Plackett-Luce with a linear score, and keep only the tiers.

    Features are standard normal, the score is their product with `coefficients`, and a full order is drawn by adding
    Gumbel noise. The best tier_sizes[0] items get the highest label, the next tier_sizes[1] the next, down to 0.

    >>> data = make_tiered_lists(2, tier_sizes=(1, 2), random_state=0)
    >>> data.X.shape, data.offsets.tolist(), sorted(data.y[:3].tolist())
    ((6, 2), [0, 3, 6], [0.0, 0.0, 1.0])
    """
    sizes = whole_numbers("tier_sizes", tier_sizes)
    if sizes.size == 0 or sizes.min() < 1:
        raise ValueError(f"tier_sizes must hold sizes of at least 1, got {list(tier_sizes)}")
    check_count("n_lists", n_lists, 0)
    beta = as_numbers("coefficients", coefficients)
    if beta.ndim != 1 or not np.isfinite(beta).all():
        raise ValueError(f"coefficients must be a sequence of finite numbers, got {coefficients!r}")
    generator = np.random.default_rng(random_state)
    length = int(sizes.sum())
    X = generator.standard_normal((n_lists, length, len(beta)))
    utilities = X @ beta + generator.gumbel(size=(n_lists, length))
    labels_by_place = np.repeat(np.arange(len(sizes))[::-1], sizes).astype(np.float64)
    y = np.empty((n_lists, length))
    np.put_along_axis(y, np.argsort(-utilities, axis=1), np.broadcast_to(labels_by_place, y.shape), axis=1)
    return RankingData(
        X=X.reshape(-1, len(beta)),
        y=y.reshape(-1),
        qid=np.repeat(np.arange(n_lists), length),
        offsets=offsets_from_sizes(np.full(n_lists, length)),
    )


def make_partitions(
    n_rankings: int,
    n_items: int,
    *,
    n_tiers: int = 4,
    max_top: int = 500,
    random_state: int | np.random.Generator | None = None,
) -> tuple[Ballots, npt.NDArray[np.float64]]:
    """Run the simulation of Ma et al. (2021), section 4.1: ballots with tiers, and the utilities they are drawn from.

    Utilities are uniform(0, log n_items), the worths are their softmax, and every ranking is drawn from Plackett-Luce.
    It is split at n_tiers - 1 distinct places, uniform over all choices among the first min(max_top, n_items - 1), and
    the order within tiers is dropped. So no tier is empty, and all tiers but the last have at most `max_top` items in
    total. (The paper only says that the split is random within that limit; uniform places, drawn for each ranking, are
    our choice.)

    Every ballot lists all items in index order, so labels.reshape(n_rankings, n_items) is a table. Labels go from
    n_tiers - 1 for the best tier down to 0. An item and its label take 4 bytes each.

    >>> ballots, utilities = make_partitions(3, 1000, n_tiers=3, max_top=20, random_state=0)
    >>> ballots
    Ballots(3 ballots cast 3 times, 1,000 items)
    >>> labels = ballots.labels.reshape(3, 1000)
    >>> [(labels == tier).sum(axis=1).tolist() for tier in (2, 1, 0)]
    [[4, 4, 10], [2, 5, 4], [994, 991, 986]]
    """
    check_count("n_rankings", n_rankings, 0)
    check_count("n_items", n_items, 2)
    top = min(check_count("max_top", max_top, 1), n_items - 1)
    check_count("n_tiers", n_tiers, 2, top + 1)
    generator = np.random.default_rng(random_state)
    utilities = generator.uniform(0.0, math.log(n_items), n_items)
    worths = np.exp(utilities)
    labels = np.zeros((n_rankings, n_items), np.float32)
    times = np.empty((max(1, _BLOCK // n_items), n_items))  # reused for all blocks: new memory costs more than drawing
    for first in range(0, n_rankings, len(times)):
        table = labels[first : first + len(times)]
        best = _first_places(worths, top, times[: len(table)], generator)
        cuts = generator.random(best.shape).argpartition(n_tiers - 2, axis=1)[:, : n_tiers - 1]
        is_last = np.zeros(best.shape, np.float32)  # 1 at the last place of a tier
        np.put_along_axis(is_last, cuts, 1.0, axis=1)
        np.put_along_axis(table, best, is_last[:, ::-1].cumsum(axis=1)[:, ::-1], axis=1)
    # 32 bits rather than the container's usual 64: a thousand rankings of 100,000 items are large enough already.
    items: npt.NDArray[Any] = np.tile(np.arange(n_items, dtype=np.int32), n_rankings)
    ballots = Ballots(
        items=items,
        labels=labels.reshape(-1),
        offsets=offsets_from_sizes(np.full(n_rankings, n_items)),
        weights=np.ones(n_rankings),
        names=[str(item) for item in range(n_items)],
    )
    return ballots, utilities


def _first_places(
    worths: npt.NDArray[np.float64], places: int, times: npt.NDArray[np.float64], generator: np.random.Generator
) -> npt.NDArray[np.intp]:
    """The items in the first places of rankings drawn from Plackett-Luce, (rankings, places).

    Items that arrive after exponential times with their worths as rates arrive in Plackett-Luce order. This is
    equivalent to utilities with Gumbel noise, -log of the times, but exponentials are faster to draw. They are written
    to `times`, (rankings, items).
    """
    generator.standard_exponential(out=times)
    times /= worths
    best = times.argpartition(places - 1, axis=1)[:, :places]
    return np.take_along_axis(best, np.take_along_axis(times, best, axis=1).argsort(axis=1), axis=1)
