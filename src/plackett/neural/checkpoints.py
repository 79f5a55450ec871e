"""Checkpoints of a training run: tensors and JSON in one file, replaced atomically, read without executing anything."""

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

import plackett
from plackett.data.files import atomic_write
from plackett.data.hashes import different_training
from plackett.errors import DataError
from plackett.losses.sparse_columns import Shard
from plackett.neural.networks import sharded_weights
from plackett.neural.tensor_files import open_tensors, write_alone, write_together
from plackett.neural.training import History, Position, SingleProcess, Training
from plackett.neural.weights import set_weights

_VERSION = 1

Tensors = dict[str, Tensor]


def write_tensors(path: str | os.PathLike[str], tensors: Tensors, about: dict[str, Any]) -> None:
    """Write tensors by name and a description as a safetensors file, completely or not at all."""
    with atomic_write(path) as file:
        write_alone(file, tensors, about)


def read_tensors(
    path: str | os.PathLike[str], shards: Mapping[str, Shard] | None = None
) -> tuple[Tensors, dict[str, Any]]:
    """Read what `write_tensors` or `write_together` wrote. Of tensors in shards only the rows held here are read."""
    with open_tensors(path) as stored:
        return stored.read(shards or {})


def strip_prefix(prefix: str, tensors: Tensors) -> Tensors:
    """The tensors whose names start with the prefix and a dot, with that removed."""
    return {name[len(prefix) + 1 :]: t for name, t in tensors.items() if name.startswith(f"{prefix}.")}


def add_prefix(prefix: str, tensors: Tensors) -> Tensors:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def optimiser_state(optimiser: torch.optim.Optimizer) -> tuple[Tensors, dict[str, Any]]:
    """The tensors and the plain numbers of an optimiser's state, each by "parameter.name"."""
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
            raise ValueError(f"the optimiser state {name!r} has another type or shape")
        state.setdefault(int(parameter), {})[key] = value
    if len({tuple(sorted(values)) for values in state.values()}) > 1:
        raise ValueError("parts of the optimiser's state are missing")
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


class NetworkCheckpoint:
    """A file with the state of a training run, written at most every `seconds`, and next to it the previous state.

    Args:
        fingerprint: identifies data and settings; the checkpoint of another training is refused.
        processes: the processes that train together. The first one writes; tensors in shards are written by all. All
            processes call `load` and `save`.
    """

    def __init__(
        self, path: str | os.PathLike[str], seconds: float, fingerprint: str, processes: SingleProcess | None = None
    ) -> None:
        if not isinstance(seconds, int | float) or not seconds >= 0:
            raise ValueError(f"checkpoint_every must be seconds, at least 0, got {seconds!r}")
        self.path, self._seconds, self._fingerprint = Path(path), seconds, fingerprint
        self._processes = processes or SingleProcess()
        self._before, self._next = (self.path.with_name(f"{self.path.name}.{which}") for which in ("before", "next"))
        self._last = time.monotonic()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for leftover in self.path.parent.glob(f".{self.path.name}.*.part"):  # of a process killed while writing
            leftover.unlink(missing_ok=True)  # another process of this training may be faster

    @property
    def is_due(self) -> bool:
        return time.monotonic() - self._last >= self._seconds

    def load(self, shards: Mapping[str, Shard] | None = None) -> tuple[Tensors, dict[str, Any]] | None:
        """The last complete state; None if there is none yet."""
        failure: DataError | None = None
        # "next" exists, and is complete, if the process was killed between the renames of `save`.
        for path in (self._next, self.path, self._before):
            try:
                found = self._read(path, shards or {})
            except DataError as error:
                failure = error
                continue
            if found is None:
                continue
            tensors, about = found
            if about.get("version") != _VERSION or about.get("of") != self._fingerprint:
                raise DataError(
                    different_training(about.get("plackett")),
                    file=str(path),
                    remedy="Delete it, choose another folder, or pass resume=False",
                )
            if failure is not None:
                warnings.warn(f"{failure}. Resuming from the checkpoint before it", stacklevel=2)
            return tensors, about
        if failure is not None:
            raise DataError(
                _problem(failure), file=str(failure.file), remedy="Delete it, or pass resume=False, to start over"
            ) from failure
        return None

    def _read(self, path: Path, shards: Mapping[str, Shard]) -> tuple[Tensors, dict[str, Any]] | None:
        """The contents of a file; None if there is no file. If one process cannot read its part, no process uses it."""
        found: list[tuple[Tensors, dict[str, Any]]] = []

        def read() -> str | None:
            """The damage, if any. Other errors, such as lack of memory, do not concern the file: they end all."""
            try:
                found.append(read_tensors(path, shards))
            except DataError as error:
                return _problem(error)
            return None

        answers = self._processes.gather(lambda: (path.exists(), read() if path.exists() else None))
        if len({exists for exists, _ in answers}) > 1:
            raise ValueError(f"checkpoint must be in a folder that all processes share, got {path}, which some lack")
        problems = [problem for _, problem in answers if problem is not None]
        if problems:
            raise DataError(problems[0], file=str(path))
        return found[0] if found else None

    def save(self, tensors: Tensors, about: dict[str, Any], shards: Mapping[str, Shard] | None = None) -> None:
        """Save a state. The previous one stays next to it; neither is renamed before the new one is on disk."""
        about = {"version": _VERSION, "plackett": plackett.__version__, "of": self._fingerprint, **about}
        if shards:
            write_together(self._next, tensors, about, shards, self._processes)
        self._processes.from_first(lambda: self._replace_previous(None if shards else tensors, about))
        self._last = time.monotonic()

    def _replace_previous(self, tensors: Tensors | None, about: dict[str, Any]) -> None:
        if not self._processes.is_first:
            return
        if tensors is not None:
            write_tensors(self._next, tensors, about)
        if self.path.exists():
            self.path.replace(self._before)
        self._next.replace(self.path)

    def save_training(self, training: Training) -> None:
        """Save weights, optimisers, position and history of a training run."""
        network = training.task.network
        tensors = add_prefix("network", network.state_dict()) | add_prefix("best", training.best_weights)
        numbers = []
        for number, optimiser in enumerate(training.optimisers):
            state_tensors, state_numbers = optimiser_state(optimiser)
            tensors |= add_prefix(f"optimiser{number}", state_tensors)
            numbers.append(state_numbers)
        about = {"position": vars(training.position), "history": training.history.rows, "optimisers": numbers}
        self.save(tensors, {**about, "scaler": training.scaler.state_dict()}, _sharded_state(training))

    def restore_training(self, training: Training) -> bool:
        """Set a training run to its last complete state. Returns whether there is one."""
        found = self.load(_sharded_state(training))
        if found is None:
            return False
        try:
            _restore_state(training, *found)
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise DataError(f"not a checkpoint of this training ({error})", file=str(self.path)) from error
        return True

    def clear(self) -> None:
        """Delete all states."""
        for path in (self.path, self._before, self._next):
            path.unlink(missing_ok=True)


def _problem(error: DataError) -> str:
    """The message of an error about a file, without the file's name."""
    return str(error).removeprefix(f"{error.file}: ")


def _sharded_state(training: Training) -> dict[str, Shard]:
    """The tensors of the state that are held in shards: weights, and the optimiser state of those weights."""
    network = training.task.network
    weights = sharded_weights(network)
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    found = {f"{kind}.{name}": shard for kind in ("network", "best") for name, shard in weights.items()}
    for number, optimiser in enumerate(training.optimisers):
        parameters = [p for group in optimiser.param_groups for p in group["params"]]
        for place, parameter in enumerate(parameters):
            if names[id(parameter)] in weights:
                found[f"optimiser{number}.{place}"] = weights[names[id(parameter)]]
    return found


def _restore_state(training: Training, tensors: Tensors, about: dict[str, Any]) -> None:
    set_weights(training.task.network, strip_prefix("network", tensors))
    training.best_weights = strip_prefix("best", tensors)
    for number, optimiser in enumerate(training.optimisers):
        restore_optimiser(optimiser, strip_prefix(f"optimiser{number}", tensors), about["optimisers"][number])
    training.position = Position(**about["position"])
    if training.position.epoch > training.settings.epochs:
        raise ValueError(f"epoch must be at most {training.settings.epochs}, got {training.position.epoch}")
    training.history = History(about["history"])
    if not all(isinstance(value, int | float) for row in training.history for value in row.values()):
        raise ValueError("the history must hold numbers")
    if about["scaler"]:
        training.scaler.load_state_dict(about["scaler"])


@contextmanager
def reserved(folder: Path, processes: SingleProcess) -> Iterator[None]:
    """Keep other training runs out of a folder. The first process locks it for all that train together."""
    with ExitStack() as stack:
        processes.from_first(lambda: stack.enter_context(_locked(folder)) if processes.is_first else None)
        yield


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder; the lock ends with the process. Without support for locks this does nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DataError(
                "another training writes to this folder", file=str(folder), remedy="Stop it, or choose another folder"
            ) from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(handle)
