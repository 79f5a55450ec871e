"""The state of a training on disk: tensors and JSON in one file, replaced whole, read without executing anything."""

from __future__ import annotations

import hashlib
import json
import os
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from plackett.data.files import atomic_path
from plackett.errors import DataError

_VERSION = 1
_KEY = "plackett"

Tensors = dict[str, Tensor]


def write_tensors(path: str | os.PathLike[str], tensors: Tensors, about: dict[str, Any]) -> None:
    """Tensors by name and a description, as a safetensors file: whole, or not at all."""
    seen: set[int] = set()
    own: Tensors = {}
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        # The format has no shared storage: a tied weight is written twice.
        storage = plain.untyped_storage().data_ptr()
        own[name] = plain.clone() if plain.numel() and storage in seen else plain
        seen.add(storage)
    text = json.dumps(about)
    with atomic_path(path) as temporary:
        save_file(own, temporary, {_KEY: json.dumps({"sha256": _checksum(own, text), "about": text})})


def _checksum(tensors: Tensors, text: str) -> str:
    """The format itself has none: a flipped bit would go unnoticed."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def read_tensors(path: str | os.PathLike[str]) -> tuple[Tensors, dict[str, Any]]:
    """What `write_tensors` wrote."""
    try:
        with safe_open(path, framework="pt") as file:
            stored = json.loads((file.metadata() or {})[_KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
        if stored["sha256"] != _checksum(tensors, stored["about"]):
            raise ValueError("its checksum differs")
        about = json.loads(stored["about"])
    except FileNotFoundError:
        raise DataError("there is no such file", file=os.fspath(path)) from None
    except (SafetensorError, ValueError, KeyError, TypeError, OSError) as error:
        raise DataError(f"not a readable file of tensors ({error})", file=os.fspath(path)) from error
    return tensors, about


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
    state: dict[int, dict[str, Any]] = {}
    for name, value in {**tensors, **numbers}.items():
        parameter, key = name.split(".", 1)
        state.setdefault(int(parameter), {})[key] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


class Checkpoint:
    """A file that holds the state of a training, written at most every `seconds`, and the one before it.

    Args:
        of: fingerprint of data and settings; the checkpoint of another training is refused.
    """

    def __init__(self, path: str | os.PathLike[str], seconds: float, of: str) -> None:
        if not isinstance(seconds, int | float) or not seconds >= 0:
            raise ValueError(f"checkpoint_every must be seconds, at least 0, got {seconds!r}")
        self.path, self._seconds, self._of = Path(path), seconds, of
        self._before, self._next = (self.path.with_name(f"{self.path.name}.{which}") for which in ("before", "next"))
        self._last = time.monotonic()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for left in self.path.parent.glob(f".{self.path.name}.*.part"):  # by a process that was killed while writing
            left.unlink()

    @property
    def is_due(self) -> bool:
        return time.monotonic() - self._last >= self._seconds

    def load(self) -> tuple[Tensors, dict[str, Any]] | None:
        """The last state that is whole; None if there is none yet."""
        failure: DataError | None = None
        for path in (self.path, self._before):
            if not path.exists():
                continue
            try:
                tensors, about = read_tensors(path)
            except DataError as error:
                failure = error
                continue
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
                str(failure), file=str(self.path), remedy="Delete it, or say resume=False, to begin anew"
            ) from failure
        return None

    def save(self, tensors: Tensors, about: dict[str, Any]) -> None:
        """Keep this state. The one before it stays beside it; neither moves before the new one is on disk."""
        write_tensors(self._next, tensors, {"version": _VERSION, "of": self._of, **about})
        if self.path.exists():
            self.path.replace(self._before)
        self._next.replace(self.path)
        self._last = time.monotonic()

    def clear(self) -> None:
        """Begin anew."""
        for path in (self.path, self._before, self._next):
            path.unlink(missing_ok=True)
