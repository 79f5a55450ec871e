"""The processes that train a network together, as the training loop sees them.

`SingleProcess` is this process alone. `plackett.distributed.ProcessMesh` is its subclass for the process groups of
torch.distributed. The loop is written against this interface, so it is the same for one process and for many.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from torch import distributed, nn

from plackett.lists import IntArray
from plackett.losses.sparse_columns import Shard

Found = TypeVar("Found")


def has_process_group() -> bool:
    """Whether this process has joined a process group of torch.distributed."""
    return distributed.is_available() and distributed.is_initialized()


class SingleProcess:
    """One process that holds all data and all labels.

    The interface is that of a mesh, data x labels. All processes hold the same data and draw the same batches. Along
    the first axis (`count`, `rank`) each computes the loss of its share of a batch. Along the second axis (`shards`,
    `number`) each holds a range of the labels. `world` is the number of processes.
    """

    world = 1
    count, rank = 1, 0
    shards, number = 1, 0

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0 and self.number == 0

    def guarded(self) -> AbstractContextManager[Any]:
        """A block in which the loss of another process becomes an error that says so."""
        return nullcontext()

    def shard(self, columns: int) -> Shard:
        """The columns that this process holds."""
        return Shard(columns)

    def share(self, batch: IntArray, sizes: IntArray) -> IntArray:  # noqa: ARG002 (the interface)
        """This process's part of a batch whose lists have these sizes."""
        return batch

    def totals(self, *values: float, device: torch.device) -> list[float]:  # noqa: ARG002
        """The sums over the data axis."""
        return list(values)

    def add_gradients(self, network: nn.Module) -> None:
        """Sum the gradients over the data axis, in place."""

    def gather(self, find: Callable[[], Found]) -> list[Found]:
        """What each process finds, in the order of ranks. If one of them fails, all do."""
        return [find()]

    def from_first(self, find: Callable[[], Found]) -> Found:
        """What the first process finds, on all of them. Processes that hold a shard with it take part."""
        return find()

    def decide(self, flag: bool, device: torch.device) -> bool:  # noqa: ARG002
        """The first process's flag, on all of them."""
        return flag

    def all_have(self, value: Hashable) -> bool:
        """Whether all processes have the same value."""
        return len(set(self.gather(lambda: value))) == 1

    def agree(self, named: Mapping[str, str]) -> None:
        """Raise an error on all processes if they differ in values that must be the same."""
        everywhere = self.gather(lambda: dict(named))
        for name in named:
            values = [str(one.get(name)) for one in everywhere]
            if len(set(values)) > 1:
                raise ValueError(f"{name} must be the same on all processes, got {', '.join(values)}")

    def broadcast(self, tensors: Iterable[torch.Tensor]) -> None:
        """Copy the first process's tensors to all processes, in place."""
