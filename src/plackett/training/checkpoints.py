"""The state of a training on disk: tensors and JSON in one file, replaced whole, read without executing anything."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from plackett.data.files import atomic_write
from plackett.errors import DataError
from plackett.losses.sharded import Shard
from plackett.training.shards import open_tensors, write_alone, write_together
from plackett.training.workers import Workers

_VERSION = 1

Tensors = dict[str, Tensor]


def write_tensors(path: str | os.PathLike[str], tensors: Tensors, about: dict[str, Any]) -> None:
    """Tensors by name and a description, as a safetensors file: whole, or not at all."""
    with atomic_write(path) as file:
        write_alone(file, tensors, about)


def read_tensors(
    path: str | os.PathLike[str], shards: Mapping[str, Shard] | None = None
) -> tuple[Tensors, dict[str, Any]]:
    """What `write_tensors` or `write_together` wrote; of tensors in shards the rows held here."""
    with open_tensors(path) as stored:
        return stored.read(shards or {})


def under(prefix: str, tensors: Tensors) -> Tensors:
    """The tensors whose names begin with the prefix and a dot, without it."""
    return {name[len(prefix) + 1 :]: t for name, t in tensors.items() if name.startswith(f"{prefix}.")}


def with_prefix(prefix: str, tensors: Tensors) -> Tensors:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def optimiser_state(optimiser: torch.optim.Optimizer) -> tuple[Tensors, dict[str, Any]]:
    """Tensors, and the plain numbers, of an optimiser's state by "parameter.name"."""
    tensors: Tensors = {}
    numbers: dict[str, Any] = {}
    for parameter, values in optimiser.state_dict()["state"].items():
        for name, value in values.items():
            target: dict[str, Any] = tensors if isinstance(value, Tensor) else numbers
            target[f"{parameter}.{name}"] = value
    return tensors, numbers


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: Tensors, numbers: dict[str, Any]) -> None:
    shapes = [parameter.shape for group in optimiser.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, Any]] = {}
    for name, value in {**tensors, **numbers}.items():
        parameter, key = name.split(".", 1)
        is_right = (
            value.shape in ((), shapes[int(parameter)]) if isinstance(value, Tensor) else type(value) in (int, float)
        )
        if not is_right:
            raise ValueError(f"state {name!r} of the optimiser is of another kind or shape")
        state.setdefault(int(parameter), {})[key] = value
    if len({tuple(sorted(values)) for values in state.values()}) > 1:
        raise ValueError("parts of the optimiser's state are missing")
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


class Checkpoint:
    """A file that holds the state of a training, written at most every `seconds`, and the one before it.

    Args:
        of: fingerprint of data and settings; the checkpoint of another training is refused.
        workers: the processes that train together. The first one writes, of what is held in shards each its own;
            `load` and `save` are called by all.
    """

    def __init__(self, path: str | os.PathLike[str], seconds: float, of: str, workers: Workers | None = None) -> None:
        if not isinstance(seconds, int | float) or not seconds >= 0:
            raise ValueError(f"checkpoint_every must be seconds, at least 0, got {seconds!r}")
        self.path, self._seconds, self._of, self._workers = Path(path), seconds, of, workers or Workers()
        self._before, self._next = (self.path.with_name(f"{self.path.name}.{which}") for which in ("before", "next"))
        self._last = time.monotonic()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for left in self.path.parent.glob(f".{self.path.name}.*.part"):  # by a process that was killed while writing
            left.unlink(missing_ok=True)  # another process of this training may be faster

    @property
    def is_due(self) -> bool:
        return time.monotonic() - self._last >= self._seconds

    def load(self, shards: Mapping[str, Shard] | None = None) -> tuple[Tensors, dict[str, Any]] | None:
        """The last state that is whole; None if there is none yet."""
        failure: DataError | None = None
        # "next" is there, and complete, where a kill came between the renames of `save`.
        for path in (self._next, self.path, self._before):
            try:
                found = self._read(path, shards or {})
            except DataError as error:
                failure = error
                continue
            if found is None:
                continue
            tensors, about = found
            if about.get("version") != _VERSION or about.get("of") != self._of:
                raise DataError(
                    "the checkpoint is of another training (data, parameters or version differ)",
                    file=str(path),
                    remedy="Delete it, name another place, or say resume=False",
                )
            if failure is not None:
                warnings.warn(f"{failure}. Taking the checkpoint before it", stacklevel=2)
            return tensors, about
        if failure is not None:
            raise DataError(
                _problem(failure), file=str(failure.file), remedy="Delete it, or say resume=False, to begin anew"
            ) from failure
        return None

    def _read(self, path: Path, shards: Mapping[str, Shard]) -> tuple[Tensors, dict[str, Any]] | None:
        """What is in a file, None without it. If one process cannot read its part, none takes it."""
        found: list[tuple[Tensors, dict[str, Any]]] = []

        def read() -> str | None:
            """What is damaged. Other errors, such as of memory, say nothing of the file, and end all processes."""
            try:
                found.append(read_tensors(path, shards))
            except DataError as error:
                return _problem(error)
            return None

        answers = self._workers.gather(lambda: (path.exists(), read() if path.exists() else None))
        if len({exists for exists, _ in answers}) > 1:
            raise ValueError(f"checkpoint must be in a folder that all processes share, got {path}, which some lack")
        problems = [problem for _, problem in answers if problem is not None]
        if problems:
            raise DataError(problems[0], file=str(path))
        return found[0] if found else None

    def save(self, tensors: Tensors, about: dict[str, Any], shards: Mapping[str, Shard] | None = None) -> None:
        """Keep this state. The one before it stays beside it; neither moves before the new one is on disk."""
        about = {"version": _VERSION, "of": self._of, **about}
        if shards:
            write_together(self._next, tensors, about, shards, self._workers)
        self._workers.from_first(lambda: self._take_its_place(None if shards else tensors, about))
        self._last = time.monotonic()

    def _take_its_place(self, tensors: Tensors | None, about: dict[str, Any]) -> None:
        if not self._workers.is_first:
            return
        if tensors is not None:
            write_tensors(self._next, tensors, about)
        if self.path.exists():
            self.path.replace(self._before)
        self._next.replace(self.path)

    def clear(self) -> None:
        """Begin anew."""
        for path in (self.path, self._before, self._next):
            path.unlink(missing_ok=True)


def _problem(error: DataError) -> str:
    """What an error says of a file, without the name of the file."""
    return str(error).removeprefix(f"{error.file}: ")


@contextmanager
def reserved(folder: Path, workers: Workers) -> Iterator[None]:
    """Keep other trainings out of a folder. The first process does so for all that train together."""
    with ExitStack() as stack:
        workers.from_first(lambda: stack.enter_context(_locked(folder)) if workers.is_first else None)
        yield


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Locked until the process ends, however it does. Where there are no locks nothing is kept out."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # Windows has none
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(
                "another training writes to this folder", file=str(folder), remedy="End it, or name another folder"
            ) from None
        except OSError:  # a file system without them
            pass
        yield
    finally:
        os.close(handle)
