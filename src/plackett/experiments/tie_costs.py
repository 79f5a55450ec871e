"""The cost of exact ties on this machine: value, gradient and curvature, compared with the approximations."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from plackett.data import RankingData, make_tiered_lists
from plackett.experiments.timing import interleaved
from plackett.likelihood import approximate_derivatives, partition_derivatives

EXACT = "exact"
METHODS: Mapping[str, Callable[..., Any]] = {
    EXACT: partition_derivatives,
    "exact, tol=1e-6": partial(partition_derivatives, tol=1e-6),
    "Efron": partial(approximate_derivatives, ties="efron"),
    "Breslow / lower bound": partial(approximate_derivatives, ties="breslow"),
    "ties at random": partial(approximate_derivatives, ties="random", random_state=0),
}
SHAPES = {  # number of lists, and tier sizes from best to worst
    "graded search results": (2_000, (2, 8, 30, 80)),
    "clicks on a page": (20_000, (3, 17)),
    "short ballots": (50_000, (1, 2, 2)),
    "a wide tier": (10, (2_000, 18_000)),
}


@dataclass(frozen=True)
class Timing:
    """The time of one method on one set of lists; `ratio` is relative to the exact likelihood in the same run."""

    lists: str
    items: int
    method: str
    seconds: float
    ratio: float


def simulated() -> dict[str, RankingData]:
    """Generate lists of several shapes; return them by name."""
    return {
        f"{name}: {count:,} lists, tiers {', '.join(map(str, tiers))}": make_tiered_lists(
            count, tier_sizes=tiers, random_state=0
        )
        for name, (count, tiers) in SHAPES.items()
    }


def measure(name: str, data: RankingData, repeats: int = 5) -> list[Timing]:
    """Time all methods on the lists, with random scores."""
    if not len(data.y):
        raise ValueError(f"data must contain at least one item, got none in {name}")
    scores = np.random.default_rng(0).normal(size=len(data.y))
    sides = {
        method: partial(derivatives, scores, data.y, offsets=data.offsets) for method, derivatives in METHODS.items()
    }
    seconds = interleaved(sides, repeats)
    return [Timing(name, len(data.y), method, seconds[method], seconds[method] / seconds[EXACT]) for method in METHODS]
