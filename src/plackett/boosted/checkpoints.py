"""The state of a training on disk: one file, replaced whole, read without executing anything."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from plackett.data.files import atomic_write, check_target
from plackett.data.stored import parse_arrays, parse_json
from plackett.errors import DataError

_VERSION = 1


@dataclass
class State:
    rounds: int
    model: str
    scores: list[Any]
    history: dict[str, dict[str, list[float]]]
    best: tuple[float, int] | None


class Checkpoint:
    """A file that holds the state after every `every` rounds."""

    def __init__(self, path: str | os.PathLike[str], every: int, of: str) -> None:
        if every < 1:
            raise ValueError(f"checkpoint_every must be at least 1, got {every}")
        self._path, self.every, self._of = Path(path), every, of
        self.file = str(self._path)
        check_target(path)

    def load(self) -> State | None:
        """What was saved, or None if there is nothing yet. Another training's checkpoint is an error."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            arrays = parse_arrays(io.BytesIO(content))
            header = parse_json(str(arrays["header"]), finite=False)  # a measure may be NaN
            is_other = header["version"] != _VERSION or header["of"] != self._of
            state = None if is_other else _state(header, arrays)
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
            raise DataError(
                f"not a readable checkpoint ({error})", file=self.file, remedy="Delete it to begin anew"
            ) from error
        if state is None:
            raise DataError(
                "the checkpoint is of another training (data, parameters or version differ)",
                file=self.file,
                remedy="Delete it, or name another file",
            )
        return state

    def save(
        self, rounds: int, model: str, scores: Sequence[Any], history: dict[str, Any], best: tuple[float, int] | None
    ) -> None:
        header = {"version": _VERSION, "of": self._of, "rounds": rounds}
        header |= {"history": history, "best": best}
        arrays = {f"scores{i}": values for i, values in enumerate(scores)}
        with atomic_write(self._path) as file:
            np.savez(
                file,
                header=np.array(json.dumps(header)),
                model=np.frombuffer(model.encode(), np.uint8),
                **arrays,
            )


def _state(header: dict[str, Any], arrays: dict[str, Any]) -> State:
    model = arrays["model"].tobytes().decode()
    scores = [arrays[f"scores{i}"] for i in range(len(arrays) - 2)]
    rounds, history, best = header["rounds"], header["history"], header["best"]
    if type(rounds) is not int or not 0 <= rounds <= model.count("\nTree="):  # a round has a tree, or several
        raise ValueError("the rounds are not those of the trees")
    rows = [row for metrics in history.values() for row in metrics.values()]
    if not all(isinstance(row, list) and len(row) <= rounds and all(map(_is_value, row)) for row in rows):
        raise ValueError("the history is not that of the rounds")
    if best is not None:
        value, at = best
        if not _is_value(value) or type(at) is not int or not 1 <= at <= rounds:
            raise ValueError("the best round is none of the rounds")
        best = float(value), at
    history = {
        name: {metric: [float(value) for value in row] for metric, row in metrics.items()}
        for name, metrics in history.items()
    }
    if not all(np.isfinite(part).all() for part in scores):
        raise ValueError("scores that are not finite")
    return State(rounds, model, scores, history, best)


def _is_value(value: Any) -> bool:
    """Of a metric. It may be NaN."""
    return type(value) in (int, float)
