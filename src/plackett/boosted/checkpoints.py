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

from plackett.data.files import atomic_write
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
        except (ValueError, TypeError, LookupError, AttributeError) as error:
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
    best = None if header["best"] is None else (float(header["best"][0]), int(header["best"][1]))
    rounds, history = header["rounds"], header["history"]
    is_history = all(isinstance(row, list) for metrics in history.values() for row in metrics.values())
    if type(rounds) is not int or rounds < 0 or not is_history or not all(np.isfinite(part).all() for part in scores):
        raise ValueError("rounds, history or scores are not what they should be")
    return State(rounds, model, scores, history, best)
