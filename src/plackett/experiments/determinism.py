"""Make results independent of the row order in a file and of the number of processors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from plackett.data.containers import RankingData
from plackett.threads import at_most, single_threaded_blas


def with_shuffled_rows(data: RankingData, seed: int) -> RankingData:
    """Return the same lists with the rows of each in random order.

    The order in which a file lists tied documents often carries information that would leak.
    """
    list_of = np.repeat(np.arange(len(data)), np.diff(data.offsets))
    order = np.lexsort((np.random.default_rng(seed).random(len(list_of)), list_of))
    ids = None if data.ids is None else data.ids[order]
    return replace(data, X=data.X[order], y=data.y[order], ids=ids)


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch, BLAS and the kernels to one thread, because sums over several threads round differently."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with single_threaded_blas(), at_most(1):
            yield
    finally:
        torch.set_num_threads(before)
