"""Simulated ranking data with known truth. Every generator takes a seed or numpy generator; equal seeds, equal data."""

from collections.abc import Sequence

import numpy as np

from plackett.data.containers import RankingData
from plackett.lists import offsets_from_sizes, whole_numbers


def make_tiered_lists(
    n_lists: int = 300,
    *,
    tier_sizes: Sequence[int] = (1, 3, 6, 10),
    coefficients: Sequence[float] = (1.0, -0.5),
    random_state: int | np.random.Generator | None = None,
) -> RankingData:
    """Lists ranked by Plackett-Luce with a linear score, of which only the tiers are kept.

    Features are standard normal, the score is their product with `coefficients`, and a full order is drawn by adding
    Gumbel noise. The best tier_sizes[0] items get the highest label, the next tier_sizes[1] the next, down to 0.

    >>> data = make_tiered_lists(2, tier_sizes=(1, 2), random_state=0)
    >>> data.X.shape, data.offsets.tolist(), sorted(data.y[:3].tolist())
    ((6, 2), [0, 3, 6], [0.0, 0.0, 1.0])
    """
    sizes = whole_numbers("tier_sizes", tier_sizes)
    if sizes.size == 0 or sizes.min() < 1:
        raise ValueError(f"tier_sizes must hold sizes of at least 1, got {list(tier_sizes)}")
    if n_lists < 0:
        raise ValueError(f"n_lists must be at least 0, got {n_lists}")
    beta = np.asarray(coefficients, np.float64)
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
