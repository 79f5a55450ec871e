"""One thread for little work.

torch hands even small products to all its threads and waits for the last of them. On a busy machine that took 20 ms for
100 rows, which one thread scores in 0.2 ms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import torch
from torch import nn

# Multiplications that one thread does in a quarter of a millisecond, in which waking others does not pay.
_LITTLE = 5_000_000
_sizes: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()  # counting takes longer than scoring a row


def _number_of_weights(network: nn.Module) -> int:
    if network not in _sizes:
        _sizes[network] = sum(parameter.numel() for parameter in network.parameters())
    return _sizes[network]


@contextmanager
def threads_for(rows: int, networks: Sequence[nn.Module]) -> Iterator[None]:
    """Within this block torch uses one thread if scoring this many rows is little work."""
    threads = torch.get_num_threads()
    if threads == 1 or rows * sum(map(_number_of_weights, networks)) > _LITTLE:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
