"""Results that do not depend on the number of processors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from plackett.blas import calm_blas
from plackett.threads import at_most


@contextmanager
def one_thread() -> Iterator[None]:
    """Within this block torch, BLAS and the kernels use one thread: sums in several have another rounding."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with calm_blas(), at_most(1):
            yield
    finally:
        torch.set_num_threads(before)
