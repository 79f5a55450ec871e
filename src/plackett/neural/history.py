"""The history of a training, epoch by epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class History:
    """One row per epoch: epoch, loss, rate, seconds, and each metric of each validation set.

    >>> history = History([{"epoch": 1, "loss": 2.0}, {"epoch": 2, "loss": 1.5}])
    >>> history["loss"]
    [2.0, 1.5]
    """

    def __init__(self, rows: list[dict[str, Any]] | None = None) -> None:
        self.rows = [] if rows is None else rows

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def __getitem__(self, column: str) -> list[Any]:
        if column not in self.columns:
            raise KeyError(f"the history has the columns {', '.join(self.columns)}, not {column!r}")
        return [row.get(column) for row in self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __repr__(self) -> str:
        return f"History({len(self)} epochs: {', '.join(self.columns)})"
