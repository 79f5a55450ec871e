"""The processes that train together: this one alone, or those of torch.distributed's process group.

All hold the whole model and the same data, and draw the same batches. Each computes the loss of its share of a batch;
sums of weights and gradients make it the gradient of the whole batch. The first one measures, writes checkpoints and
tells the others what it found.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
import torch
from torch import distributed, nn

from plackett.lists import IntArray
from plackett.training.optimisers import sparse_parameters

Found = TypeVar("Found")


class Workers:
    """The process group that is initialised when this is made, if any."""

    def __init__(self) -> None:
        together = distributed.is_available() and distributed.is_initialized()
        self.count = distributed.get_world_size() if together else 1
        self.rank = distributed.get_rank() if together else 0

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def share(self, batch: IntArray, sizes: IntArray) -> IntArray:
        """This process's part of a batch: neighbours with about as many items as any other process gets."""
        if self.count == 1:
            return batch
        middles = np.cumsum(sizes) - 0.5 * sizes
        owner = np.minimum((middles * self.count / max(1, sizes.sum())).astype(np.int64), self.count - 1)
        return batch[owner == self.rank]

    def totals(self, *values: float, device: torch.device) -> list[float]:
        """The sums over all processes."""
        if self.count == 1:
            return list(values)
        kind = torch.float32 if device.type == "mps" else torch.float64
        summed = torch.tensor(values, dtype=kind, device=device)
        distributed.all_reduce(summed)
        return summed.tolist()

    def add_gradients(self, network: nn.Module) -> None:
        """Give every process the sum of all gradients. Dense ones travel together, in one message for each type."""
        if self.count == 1:
            return
        dense: dict[torch.dtype, list[nn.Parameter]] = {}
        sparse = sparse_parameters(network)  # known to all alike, also to those with nothing to add
        for parameter in (p for p in network.parameters() if p.requires_grad):
            if id(parameter) in sparse:
                own = torch.zeros_like(parameter, layout=torch.sparse_coo) if parameter.grad is None else parameter.grad
                parameter.grad = self._add_sparse(own)
            else:
                dense.setdefault(parameter.dtype, []).append(parameter)
        for parameters in dense.values():
            parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
            message = torch.cat([part.reshape(-1) for part in parts])
            distributed.all_reduce(message)
            for parameter, summed in zip(parameters, message.split([p.numel() for p in parameters]), strict=True):
                parameter.grad = summed.view_as(parameter)

    def _add_sparse(self, gradient: torch.Tensor) -> torch.Tensor:
        gathered: list[torch.Tensor] = []
        gradient = gradient.coalesce()
        sizes = [torch.zeros(1, dtype=torch.int64, device=gradient.device) for _ in range(self.count)]
        distributed.all_gather(sizes, torch.tensor([gradient._nnz()], device=gradient.device))
        most = int(torch.cat(sizes).max())
        for part in (gradient.indices()[0], gradient.values()):
            padded = part.new_zeros((most, *part.shape[1:]))
            padded[: len(part)] = part
            parts = [torch.empty_like(padded) for _ in range(self.count)]
            distributed.all_gather(parts, padded)
            gathered.append(torch.cat([p[: int(size)] for p, size in zip(parts, sizes, strict=True)]))
        rows, values = gathered
        return torch.sparse_coo_tensor(rows[None], values, gradient.shape, check_invariants=False).coalesce()

    def from_first(self, find: Callable[[], Found]) -> Found:
        """What the first process finds, on all of them."""
        if self.count == 1:
            return find()
        message = [find() if self.is_first else None]
        distributed.broadcast_object_list(message, src=0)
        return message[0]  # type: ignore[return-value]

    def agree(self, value: float, what: str) -> None:
        """An error on all processes if they differ in a number that must be the same."""
        if self.count == 1:
            return
        values: list[float] = [0.0] * self.count
        distributed.all_gather_object(values, value)
        if len(set(values)) > 1:
            raise ValueError(f"{what} must be the same on all processes, got {values}")


@contextmanager
def joined() -> Iterator[Workers]:
    """Join the process group that torchrun started this process for, if it did and nobody joined yet."""
    joins = (
        int(os.environ.get("WORLD_SIZE", "1")) > 1
        and "RANK" in os.environ
        and distributed.is_available()
        and not distributed.is_initialized()
    )
    if joins:
        distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield Workers()
    finally:
        if joins:
            distributed.destroy_process_group()
