"""The processes that train together: this one alone, or those of torch.distributed's process group.

They form a mesh, data x labels. All hold the same data and draw the same batches. Along the first axis each computes
the loss of its share of a batch; sums of weights and gradients make it the gradient of the whole batch. Along the
second axis each holds a range of the labels, see `plackett.losses.sharded`; what is not sharded is the same on all of
them. The first process writes checkpoints and tells the others what was measured.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
from torch import distributed, nn

from plackett.errors import PlackettError
from plackett.lists import IntArray, check_positive
from plackett.losses.sharded import Shard
from plackett.training.optimisers import sparse_parameters

Found = TypeVar("Found")

_WAIT = 1800.0


class LostProcessError(PlackettError, RuntimeError):
    """Another process of the training failed, ended, or does not answer."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"another process of this training failed or is gone ({reason}). Start all of them again: with a "
            "checkpoint, they go on from the last one"
        )


@contextmanager
def losses_told() -> Iterator[None]:
    """Turns what the backends of torch.distributed raise when a process is gone into an error that says so."""
    try:
        yield
    except LostProcessError:
        raise
    except RuntimeError as error:  # gloo's have no class of their own
        told = "gloo" in str(error) or "Application timeout" in str(error)
        if not told and not isinstance(error, getattr(distributed, "DistError", ())):
            raise
        raise LostProcessError(str(error).split("] ", 1)[-1].split(". This is", 1)[0]) from error


class Workers:
    """The process group that is initialised when this is made, if any, as a mesh with `label_shards` columns.

    count, rank: of the first axis, the data; shards, number: of the second, the labels.
    """

    def __init__(self, label_shards: int = 1) -> None:
        together = distributed.is_available() and distributed.is_initialized()
        self.world = distributed.get_world_size() if together else 1
        self.shards = check_positive("label_shards", label_shards)
        if self.world % self.shards:
            raise ValueError(
                f"label_shards must divide the number of processes, {self.world}, got {label_shards}: start them with "
                "torchrun, or initialise a process group"
            )
        own = distributed.get_rank() if together else 0
        self.count, self.rank, self.number = self.world // self.shards, own // self.shards, own % self.shards
        self._data = self._labels = None  # the default group, with all processes in it
        if self.shards > 1:
            ranks = np.arange(self.world).reshape(self.count, self.shards)
            self._labels, self._data = self._group_of(ranks), self._group_of(ranks.T)

    @staticmethod
    def _group_of(ranks: IntArray) -> Any:
        """The one of the groups, one a row, that this process is in. They wait as long as the default group does."""
        kind = "cuda" if distributed.get_backend() == "nccl" else "cpu"
        timeout: timedelta | None = None
        if distributed.group.WORLD is not None:
            backend = distributed.group.WORLD._get_backend(torch.device(kind))
            timeout = getattr(getattr(backend, "options", None), "_timeout", None)
        return distributed.new_subgroups_by_enumeration(ranks.tolist(), timeout=timeout)[0]

    @property
    def is_first(self) -> bool:
        return self.rank == 0 and self.number == 0

    def shard(self, columns: int) -> Shard:
        """The columns that this process holds."""
        if self.shards > columns:
            raise ValueError(f"label_shards must be at most the number of labels, {columns}, got {self.shards}")
        return Shard(columns, self.number, self.shards, self._labels)

    def share(self, batch: IntArray, sizes: IntArray) -> IntArray:
        """This process's part of a batch: neighbours with about as many items as any other process gets."""
        if self.count == 1:
            return batch
        middles = np.cumsum(sizes) - 0.5 * sizes
        owner = np.minimum((middles * self.count / max(1, sizes.sum())).astype(np.int64), self.count - 1)
        return batch[owner == self.rank]

    def totals(self, *values: float, device: torch.device) -> list[float]:
        """The sums over the data."""
        if self.count == 1:
            return list(values)
        kind = torch.float32 if device.type == "mps" else torch.float64
        summed = torch.tensor(values, dtype=kind, device=device)
        distributed.all_reduce(summed, group=self._data)
        return summed.tolist()

    def add_gradients(self, network: nn.Module) -> None:
        """Sum the gradients over the data. Dense ones travel together, in one message for each type."""
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
            distributed.all_reduce(message, group=self._data)
            for parameter, summed in zip(parameters, message.split([p.numel() for p in parameters]), strict=True):
                parameter.grad = summed.view_as(parameter)

    def _add_sparse(self, gradient: torch.Tensor) -> torch.Tensor:
        gathered: list[torch.Tensor] = []
        gradient = gradient.coalesce()
        sizes = [torch.zeros(1, dtype=torch.int64, device=gradient.device) for _ in range(self.count)]
        distributed.all_gather(sizes, torch.tensor([gradient._nnz()], device=gradient.device), group=self._data)
        most = int(torch.cat(sizes).max())
        for part in (gradient.indices()[0], gradient.values()):
            padded = part.new_zeros((most, *part.shape[1:]))
            padded[: len(part)] = part
            parts = [torch.empty_like(padded) for _ in range(self.count)]
            distributed.all_gather(parts, padded, group=self._data)
            gathered.append(torch.cat([p[: int(size)] for p, size in zip(parts, sizes, strict=True)]))
        rows, values = gathered
        return torch.sparse_coo_tensor(rows[None], values, gradient.shape, check_invariants=False).coalesce()

    def gather(self, find: Callable[[], Found]) -> list[Found]:
        """What each process finds, in the order of their ranks. If one of them fails, all do."""
        if self.world == 1:
            return [find()]
        answer: tuple[Any, str | None] = None, None
        failure: Exception | None = None
        with losses_told():
            try:
                answer = find(), None
            except Exception as error:
                failure, answer = error, (None, f"{type(error).__name__}: {error}")
            answers: list[tuple[Any, str | None]] = [answer] * self.world
            distributed.all_gather_object(answers, answer)
        if failure is not None:
            raise failure
        for rank, (_, problem) in enumerate(answers):
            if problem is not None:
                raise LostProcessError(f"process {rank}: {problem}")
        return [found for found, _ in answers]

    def from_first(self, find: Callable[[], Found]) -> Found:
        """What the first process finds, on all of them. All processes that hold a shard with it take part in it."""
        return self.gather(lambda: find() if self.rank == 0 else None)[0]  # type: ignore[return-value]

    def decide(self, flag: bool, device: torch.device) -> bool:
        """What the first process says, on all of them."""
        if self.world == 1:
            return flag
        said = torch.tensor([int(flag)], device=device)
        distributed.broadcast(said, src=0)
        return bool(said.item())

    def agree(self, value: Any, what: str) -> None:
        """An error on all processes if they differ in what must be the same."""
        values = self.gather(lambda: value)
        if len(set(values)) > 1:
            raise ValueError(f"{what} must be the same on all processes, got {values}")


@contextmanager
def joined() -> Iterator[Workers]:
    """Join the process group that torchrun started this process for, if it did and nobody joined yet.

    Processes wait for each other for half an hour, or $PLACKETT_TIMEOUT seconds.
    """
    joins = (
        int(os.environ.get("WORLD_SIZE", "1")) > 1
        and "RANK" in os.environ
        and distributed.is_available()
        and not distributed.is_initialized()
    )
    if joins:
        from torch.distributed.rendezvous import rendezvous  # not in every build of torch

        timeout = timedelta(seconds=float(os.environ.get("PLACKETT_TIMEOUT", _WAIT)))
        backend = "nccl" if torch.cuda.is_available() else "gloo"
        with losses_told():
            store, rank, count = next(rendezvous("env://", timeout=timeout))
            # torchrun's store outlives a restart: under the same names one would find the addresses of the dead.
            restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
            own = distributed.PrefixStore(f"restart {restart}", store)  # type: ignore[attr-defined]
            distributed.init_process_group(backend, store=own, rank=rank, world_size=count, timeout=timeout)
    try:
        yield Workers()
    finally:
        if joins:
            distributed.destroy_process_group()
