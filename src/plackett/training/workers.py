"""The processes that train together: this one alone, or those of torch.distributed's process group.

They form a mesh, data x labels. All hold the same data and draw the same batches. Along the first axis each computes
the loss of its share of a batch; sums of weights and gradients make it the gradient of the whole batch. Along the
second axis each holds a range of the labels, see `plackett.losses.sharded`; what is not sharded is the same on all of
them. The first process writes checkpoints and tells the others what was measured.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import distributed, nn

from plackett.errors import PlackettError
from plackett.lists import IntArray, check_positive
from plackett.losses.sharded import Shard
from plackett.training.optimisers import sparse_parameters

Found = TypeVar("Found")

_WAIT = 1800.0
_LONGEST_WAIT = 1e9
_SUBGROUPS: WeakKeyDictionary[Any, dict[int, tuple[Any, Any]]] = WeakKeyDictionary()


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
            self._labels, self._data = self._subgroups()

    def _subgroups(self) -> tuple[Any, Any]:
        """The groups of labels and of data, made once: each takes files and threads as long as the default group."""
        known = _SUBGROUPS.setdefault(distributed.group.WORLD, {})
        if self.shards not in known:
            # Making a group waits for one that is gone until the time is over; this hears of it at once.
            self.agree({"label_shards": str(self.shards)})
            ranks = np.arange(self.world).reshape(self.count, self.shards)
            with losses_told():
                known[self.shards] = self._group_of(ranks), self._group_of(ranks.T)
        return known[self.shards]

    @staticmethod
    def _group_of(ranks: IntArray) -> Any:
        """The one of the groups, one a row, that this process is in. They wait as long as the default group does."""
        kind = "cpu" if "gloo" in distributed.get_backend() else "cuda"
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
        """Sum the gradients over the data. Dense ones travel together, in one message for each type.

        What has no gradient on any process is left without: a zero would let weights decay that take no part.
        """
        if self.count == 1:
            return
        dense: dict[torch.dtype, list[nn.Parameter]] = {}
        sparse = sparse_parameters(network)  # known to all alike, also to those with nothing to add
        for parameter in (p for p in network.parameters() if p.requires_grad):
            if id(parameter) in sparse:
                parameter.grad = self._add_sparse(parameter)
            else:
                dense.setdefault(parameter.dtype, []).append(parameter)
        for parameters in dense.values():
            parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
            has_gradient = parts[0].new_tensor([p.grad is not None for p in parameters])
            message = torch.cat([*(part.reshape(-1) for part in parts), has_gradient])
            distributed.all_reduce(message, group=self._data)
            *sums, holders = message.split([*(p.numel() for p in parameters), len(parameters)])
            for parameter, summed, count in zip(parameters, sums, holders.tolist(), strict=True):
                parameter.grad = summed.view_as(parameter) if count else None

    def _add_sparse(self, parameter: nn.Parameter) -> torch.Tensor | None:
        gathered: list[torch.Tensor] = []
        is_missing = parameter.grad is None
        gradient = torch.zeros_like(parameter, layout=torch.sparse_coo) if parameter.grad is None else parameter.grad
        gradient = gradient.coalesce()
        own = torch.tensor([-1 if is_missing else gradient._nnz()], device=gradient.device)
        sizes = [torch.zeros_like(own) for _ in range(self.count)]
        distributed.all_gather(sizes, own, group=self._data)
        most = int(torch.cat(sizes).max())
        if most < 0:
            return None
        sizes = [size.clamp(min=0) for size in sizes]
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

    def all_have(self, value: Hashable) -> bool:
        """Whether all processes have the same value."""
        return len(set(self.gather(lambda: value))) == 1

    def agree(self, named: Mapping[str, str]) -> None:
        """An error on all processes if they differ in what must be the same."""
        everywhere = self.gather(lambda: dict(named))
        for name in named:
            values = [str(one.get(name)) for one in everywhere]
            if len(set(values)) > 1:
                raise ValueError(f"{name} must be the same on all processes, got {', '.join(values)}")

    def spread(self, tensors: Iterable[torch.Tensor]) -> None:
        """Give all processes what the first one has in tensors that all of them have."""
        if self.world == 1:
            return
        for tensor in tensors:
            values = tensor.detach().contiguous()
            distributed.broadcast(values, src=0)
            tensor.detach().copy_(values)


@contextmanager
def joined() -> Iterator[Workers]:
    """Join the process group that torchrun started this process for, if it did and nobody joined yet.

    Processes wait for each other for half an hour, or $PLACKETT_TIMEOUT seconds.
    """
    joins = distributed.is_available() and not distributed.is_initialized() and _launched() > 1
    if joins:
        _join()
    try:
        yield Workers()
    finally:
        if joins:
            distributed.destroy_process_group()


def _launched() -> int:
    """How many processes torchrun, or who sets the same variables, started."""
    text = os.environ.get("WORLD_SIZE", "1")
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"WORLD_SIZE, of the environment, must be a whole number of at least 1, got {text!r}")
    if int(text) > 1 and "RANK" not in os.environ:
        raise ValueError(f"RANK must be in the environment where WORLD_SIZE is, {text}: start processes with torchrun")
    return int(text)


def _timeout() -> timedelta:
    text = os.environ.get("PLACKETT_TIMEOUT", str(_WAIT))
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0.0 < seconds <= _LONGEST_WAIT:
        raise ValueError(
            f"PLACKETT_TIMEOUT, of the environment, must be seconds, above 0 and up to {_LONGEST_WAIT:g}, got {text!r}"
        )
    return timedelta(seconds=seconds)


def _join() -> None:
    from torch.distributed.rendezvous import rendezvous  # not in every build of torch

    timeout = _timeout()
    backend = "gloo"
    if torch.cuda.is_available():
        backend = "cpu:gloo,cuda:nccl"  # a model may be on the CPU all the same
        # One process a GPU; there may be more processes where they compute on the CPU.
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    with losses_told():
        store, rank, count = next(rendezvous("env://", timeout=timeout))
        # torchrun's store outlives a restart: under the same names one would find the addresses of the dead.
        restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        own = distributed.PrefixStore(f"restart {restart}", store)  # type: ignore[attr-defined]
        distributed.init_process_group(backend, store=own, rank=rank, world_size=count, timeout=timeout)
