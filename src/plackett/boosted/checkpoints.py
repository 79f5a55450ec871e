"""The state of a training on disk: one file, replaced whole, read without executing anything."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from plackett.data.files import atomic_write
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

    def load(self) -> State | None:
        """What was saved, or None if there is nothing yet. Another training's checkpoint is an error."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            with np.load(io.BytesIO(content), allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
            header = json.loads(str(arrays["header"]))
            model = arrays["model"].tobytes().decode()
            scores = [arrays[f"scores{i}"] for i in range(header["sets"])]
        except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise DataError(
                f"not a readable checkpoint ({error})", file=str(self._path), remedy="Delete it to begin anew"
            ) from error
        if header["version"] != _VERSION or header["of"] != self._of:
            raise DataError(
                "the checkpoint is of another training (data, parameters or version differ)",
                file=str(self._path),
                remedy="Delete it, or name another file",
            )
        best = None if header["best"] is None else (header["best"][0], header["best"][1])
        return State(header["rounds"], model, scores, header["history"], best)

    def save(
        self, rounds: int, model: str, scores: Sequence[Any], history: dict[str, Any], best: tuple[float, int] | None
    ) -> None:
        header = {"version": _VERSION, "of": self._of, "rounds": rounds, "sets": len(scores)}
        header |= {"history": history, "best": best}
        arrays = {f"scores{i}": values for i, values in enumerate(scores)}
        with atomic_write(self._path) as file:
            np.savez(
                file,
                header=np.array(json.dumps(header)),
                model=np.frombuffer(model.encode(), np.uint8),
                **arrays,
            )
