"""Rows with features and few of very many labels, as networks and losses take them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from plackett.data.containers import has_grades
from plackett.lists import IntArray
from plackett.neural.networks import SparseRows, rows_on_device

ROWS_AT_ONCE = 1024


def row_slices(rows: int, size: int | None = None) -> Iterator[slice]:
    """All rows, `size` at a time; None: `ROWS_AT_ONCE`."""
    step = size or ROWS_AT_ONCE
    return (slice(first, min(first + step, rows)) for first in range(0, rows, step))


def batches_of_rows(rows: int, size: int, generator: np.random.Generator) -> list[IntArray]:
    """Rows in random order, in batches of `size`; the last may be smaller."""
    order = generator.permutation(rows)
    return [order[first : first + size] for first in range(0, rows, size)]


@dataclass(frozen=True)
class BatchLabels:
    """The labels of the rows of a batch."""

    indices: IntArray  # row after row
    offsets: IntArray
    grades: npt.NDArray[np.float64] | None  # one per index; None: all equal
    count: int  # labels in all
    lowest: float  # the grade of labels that a row does not have, for losses of a table

    def table(self) -> npt.NDArray[np.float64]:
        """Grades of all labels, (rows, labels)."""
        grades = np.ones(len(self.indices)) if self.grades is None else self.grades
        full = np.full((len(self.offsets) - 1, self.count), self.lowest)
        full[np.repeat(np.arange(len(full)), np.diff(self.offsets)), self.indices] = grades
        return full


class LabelledRows:
    """Scaled features, labels and weights of rows.

    Args:
        X: CSR, or a tensor.
        Y: grades of the labels that rows have.
        weights: one per row.
        device: where batches go.
    """

    def __init__(self, X: Any, Y: csr_array, weights: npt.NDArray[np.float64], device: torch.device) -> None:
        self.X, self.Y, self.weights, self.device = X, Y, weights, device
        self._has_grades = has_grades(Y)
        self._lowest = min(0.0, float(Y.data.min()) - 1.0) if self._has_grades else 0.0

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def features(self, rows: IntArray | slice) -> SparseRows | Tensor:
        """Features of some rows."""
        return rows_on_device(self.X[rows], self.device)

    def labels(self, rows: IntArray | slice) -> BatchLabels:
        """Labels of some rows."""
        chosen = self.Y[rows]
        grades = chosen.data.astype(np.float64) if self._has_grades else None
        indices, offsets = chosen.indices.astype(np.int64), chosen.indptr.astype(np.int64)
        return BatchLabels(indices, offsets, grades, self.Y.shape[1], self._lowest)


class LabelSampler:
    """Draws labels with replacement, in proportion to (count + 1) ** power."""

    def __init__(self, Y: csr_array, count: int, power: float, device: torch.device) -> None:
        frequency = (np.bincount(Y.indices, minlength=Y.shape[1]) + 1.0) ** power
        shares = frequency / frequency.sum()
        self._count = count
        self._cumulated = torch.from_numpy(np.cumsum(shares)).to(device)
        self._log_expected = torch.from_numpy(np.log(count * shares)).float().to(device)

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Columns, and for each the logarithm of its expected number in a sample."""
        points = torch.rand(self._count, generator=generator, device=self._cumulated.device, dtype=torch.float64)
        columns = torch.searchsorted(self._cumulated, points * self._cumulated[-1]).clamp_(max=len(self._cumulated) - 1)
        return columns, self._log_expected[columns]
