"""Lists with their rows in random order: files have tied documents in an order of their own, which tells something."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from plackett.data.containers import RankingData


def with_shuffled_rows(data: RankingData, seed: int) -> RankingData:
    """The same lists, the rows of each in random order."""
    list_of = np.repeat(np.arange(len(data)), np.diff(data.offsets))
    order = np.lexsort((np.random.default_rng(seed).random(len(list_of)), list_of))
    ids = None if data.ids is None else data.ids[order]
    return replace(data, X=data.X[order], y=data.y[order], ids=ids)
