"""The processes that train together: this one alone, or those of torch.distributed's process group.

They form a mesh, data x labels. All hold the same data and draw the same batches. Along the first axis each computes
the loss of its share of a batch; sums of weights and gradients make it the gradient of the whole batch. Along the
second axis each holds a range of the labels, see `plackett.losses.sharded_layer`; what is not sharded is the same on
all of them. The first process writes checkpoints and shares its measurements with the others.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import distributed, nn

from plackett.arguments import check_positive
from plackett.errors import PlackettError
from plackett.lists import IntArray
from plackett.losses.sparse_columns import Shard
from plackett.neural.training import Found, SingleProcess, has_process_group, sparse_parameters

_WAIT = 1800.0
_LONGEST_WAIT = 1e9
_SUBGROUPS: WeakKeyDictionary[Any, dict[int, tuple[Any, Any]]] = WeakKeyDictionary()


class LostProcessError(PlackettError, RuntimeError):
    """Another process of the training failed, ended, or does not answer."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"another process of this training failed or is gone ({reason}). Start all of them again; with a "
            "checkpoint they resume from the last one"
        )


@contextmanager
def raising_lost_process() -> Iterator[None]:
    """Turn the errors that backends of torch.distributed raise when a process is lost into one that says so."""
    try:
        yield
    except LostProcessError:
        raise
    except RuntimeError as error:  # gloo has no error class
        is_known = "gloo" in str(error) or "Application timeout" in str(error)
        if not is_known and not isinstance(error, getattr(distributed, "DistError", ())):
            raise
        raise LostProcessError(str(error).split("] ", 1)[-1].split(". This is", 1)[0]) from error


def current_processes(label_shards: int = 1) -> SingleProcess:
    """The process group that is initialised now, as a mesh with `label_shards` columns; without one, this process."""
    shards = check_positive("label_shards", label_shards)
    return ProcessMesh(shards) if has_process_group() or shards > 1 else SingleProcess()


class ProcessMesh(SingleProcess):
    """The process group that is initialised when this is made, as a mesh with `label_shards` columns."""

    def __init__(self, label_shards: int = 1) -> None:
        together = has_process_group()
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
        """The groups of labels and of data, made once: each uses files and threads while the default group exists."""
        known = _SUBGROUPS.setdefault(distributed.group.WORLD, {})
        if self.shards not in known:
            # Making a group would wait for a lost process until the timeout; this notices it at once.
            self.agree({"label_shards": str(self.shards)})
            ranks = np.arange(self.world).reshape(self.count, self.shards)
            with raising_lost_process():
                known[self.shards] = self._group_of(ranks), self._group_of(ranks.T)
        return known[self.shards]

    @staticmethod
    def _group_of(ranks: IntArray) -> Any:
        """The group, one per row of `ranks`, that contains this process, with the timeout of the default group."""
        kind = "cpu" if "gloo" in distributed.get_backend() else "cuda"
        timeout: timedelta | None = None
        if distributed.group.WORLD is not None:
            backend = distributed.group.WORLD._get_backend(torch.device(kind))
            timeout = getattr(getattr(backend, "options", None), "_timeout", None)
        return distributed.new_subgroups_by_enumeration(ranks.tolist(), timeout=timeout)[0]

    def guarded(self) -> AbstractContextManager[Any]:
        return raising_lost_process()

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

        A weight without a gradient on all processes stays without: a zero gradient would let unused weights decay.
        """
        if self.count == 1:
            return
        dense: dict[torch.dtype, list[nn.Parameter]] = {}
        sparse = sparse_parameters(network)  # the same on all processes, even those with nothing to add
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
        with raising_lost_process():
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

    def broadcast(self, tensors: Iterable[torch.Tensor]) -> None:
        """Copy the first process's tensors to all processes, in place."""
        if self.world == 1:
            return
        for tensor in tensors:
            values = tensor.detach().contiguous()
            distributed.broadcast(values, src=0)
            tensor.detach().copy_(values)


@contextmanager
def join_process_group() -> Iterator[SingleProcess]:
    """Join the process group of torchrun, if torchrun started this process and no group is initialised yet.

    Processes wait for each other for half an hour, or $PLACKETT_TIMEOUT seconds.
    """
    joins = distributed.is_available() and not distributed.is_initialized() and _launched() > 1
    if joins:
        _join()
    try:
        yield current_processes()
    finally:
        if joins:
            distributed.destroy_process_group()


def _launched() -> int:
    """The number of processes that torchrun, or a launcher that sets the same variables, started."""
    text = os.environ.get("WORLD_SIZE", "1")
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"the environment variable WORLD_SIZE must be a whole number of at least 1, got {text!r}")
    if int(text) > 1 and "RANK" not in os.environ:
        raise ValueError(f"the environment variable RANK must be set, since WORLD_SIZE is {text}: use torchrun")
    return int(text)


def _timeout() -> timedelta:
    text = os.environ.get("PLACKETT_TIMEOUT", str(_WAIT))
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0.0 < seconds <= _LONGEST_WAIT:
        raise ValueError(
            f"the environment variable PLACKETT_TIMEOUT must be seconds, above 0 and at most {_LONGEST_WAIT:g}, "
            f"got {text!r}"
        )
    return timedelta(seconds=seconds)


def _join() -> None:
    from torch.distributed.rendezvous import rendezvous  # not in every build of torch

    timeout = _timeout()
    backend = "gloo"
    if torch.cuda.is_available():
        backend = "cpu:gloo,cuda:nccl"  # a model may still be on the CPU
        # One process per GPU; there may be more processes if they compute on the CPU.
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    with raising_lost_process():
        store, rank, count = next(rendezvous("env://", timeout=timeout))
        # torchrun's store outlives a restart: under the same names, processes would find the addresses of ended ones.
        restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        own = distributed.PrefixStore(f"restart {restart}", store)  # type: ignore[attr-defined]
        distributed.init_process_group(backend, store=own, rank=rank, world_size=count, timeout=timeout)
