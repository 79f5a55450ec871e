"""Checkpoints of a training run: one file, replaced as a whole, read without executing anything."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import plackett
from plackett.data.files import atomic_write, check_target
from plackett.data.hashes import different_training
from plackett.data.untrusted import parse_arrays, parse_json
from plackett.errors import DataError

_VERSION = 1


@dataclass
class CheckpointState:
    """The model after some rounds, the scores of all sets, the history, the best value with its round, and the biases
    of positions after each round."""

    rounds: int
    model: str
    scores: list[Any]
    history: dict[str, dict[str, list[float]]]
    best: tuple[float, int] | None
    biases: list[list[float]]


class TreeCheckpoint:
    """A file that holds the state after every `every` rounds."""

    def __init__(self, path: str | os.PathLike[str], every: int, fingerprint: str) -> None:
        if every < 1:
            raise ValueError(f"checkpoint_every must be at least 1, got {every}")
        self._path, self.every, self._fingerprint = Path(path), every, fingerprint
        self.file = str(self._path)
        check_target(path)

    def load(self) -> CheckpointState | None:
        """The saved state, or None if there is none yet. The checkpoint of a different training is an error."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            arrays = parse_arrays(io.BytesIO(content))
            header = parse_json(str(arrays["header"]), finite=False)  # a measure may be NaN
            is_other = header["version"] != _VERSION or header["of"] != self._fingerprint
            state = None if is_other else _state(header, arrays)
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
            raise DataError(
                f"not a readable checkpoint ({error})", file=self.file, remedy="Delete it to start over"
            ) from error
        if state is None:
            raise DataError(
                different_training(header.get("plackett")),
                file=self.file,
                remedy="Delete it, or choose another file",
            )
        return state

    def save(
        self,
        rounds: int,
        model: str,
        scores: Sequence[Any],
        history: dict[str, Any],
        best: tuple[float, int] | None,
        biases: list[list[float]],
    ) -> None:
        """Replace the file."""
        header = {"version": _VERSION, "plackett": plackett.__version__, "of": self._fingerprint, "rounds": rounds}
        header |= {"history": history, "best": best, "biases": biases}
        arrays = {f"scores{i}": values for i, values in enumerate(scores)}
        with atomic_write(self._path) as file:
            np.savez(
                file,
                header=np.array(json.dumps(header)),
                model=np.frombuffer(model.encode(), np.uint8),
                **arrays,
            )


def _state(header: dict[str, Any], arrays: dict[str, Any]) -> CheckpointState:
    model = arrays["model"].tobytes().decode()
    scores = [arrays[f"scores{i}"] for i in range(len(arrays) - 2)]
    rounds, history, best = header["rounds"], header["history"], header["best"]
    if type(rounds) is not int or not 0 <= rounds <= model.count("\nTree="):  # a round has a tree, or several
        raise ValueError("rounds and trees do not match")
    rows = [row for metrics in history.values() for row in metrics.values()]
    if not all(isinstance(row, list) and len(row) <= rounds and all(map(_is_value, row)) for row in rows):
        raise ValueError("history and rounds do not match")
    if best is not None:
        value, at = best
        if not _is_value(value) or type(at) is not int or not 1 <= at <= rounds:
            raise ValueError("the best round is not one of the rounds")
        best = float(value), at
    history = {
        name: {metric: [float(value) for value in row] for metric, row in metrics.items()}
        for name, metrics in history.items()
    }
    if not all(np.isfinite(part).all() for part in scores):
        raise ValueError("scores must be finite")
    biases = header.get("biases", [])
    if not all(isinstance(row, list) and all(type(bias) is float for bias in row) for row in biases):
        raise ValueError("biases must be numbers")
    return CheckpointState(rounds, model, scores, history, best, biases)


def _is_value(value: Any) -> bool:
    """Whether it can be the value of a metric, which may be NaN."""
    return type(value) in (int, float)
