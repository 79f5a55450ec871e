"""A path from sparse features to all labels by kernel ridge regression, and the choice between it and a linear one.

Where rows have few features, a linear function is too simple. The Laplace kernel of scaled rows,

    k(x, z) = exp(-|x - z| / 2u),    u^2 = mean squared norm of a row

is close to that of a wide network (Geifman et al. 2020), but its optimum is found exactly, by one factorisation for all
labels: A = (K + 0.25 I)^-1 (Y - mean of Y). Its errors differ from those of networks, so the sum is better than either.

The path is added to the mean score of the networks with the weight 2.5, and each label's score has 0.1 x log inverse
propensity added before, see `plackett.neural.linear_path`. The constants were chosen on validation rows of
Delicious-1K, whole and cut to 4,000 rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array
from torch import Tensor, nn

from plackett.losses.shard import Shard
from plackett.neural.extreme_network import Rows, SparseRows
from plackett.neural.linear_path import (
    LARGEST_SIZE,
    LARGEST_WEIGHT,
    LinearPath,
    PathLabels,
    Ridge,
    product,
    squared_norms,
)

LARGEST_COUNT = 16_384
"""Rows: matrices of rows x rows are factorised, and the model keeps the rows."""
_PENALTY, _BALANCE, _WEIGHT = 0.25, 0.1, 2.5
_PRODUCTS_AT_ONCE = 1 << 23


class KernelPath(nn.Module):
    """Scores k(rows, points) @ weight + bias.

    points (features, points), each point a row of the training data; weight (points, labels); rate: 1 / 2u.
    """

    def __init__(self, width: int, points: int, labels: int) -> None:
        super().__init__()
        self.points = nn.Parameter(torch.zeros(width, points), requires_grad=False)
        self.rate = nn.Parameter(torch.ones(()), requires_grad=False)
        self.weight = nn.Parameter(torch.zeros(points, labels), requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(labels), requires_grad=False)

    def kernel(self, rows: Rows, points: Tensor | None = None) -> Tensor:
        """(rows, points), for some points instead of all if given."""
        points = self.points if points is None else points
        squares = _squares(rows)[:, None] + points.square().sum(0)
        squares.sub_(product(rows, points), alpha=2.0)
        return squares.clamp_(min=0.0).sqrt_().mul_(-self.rate).exp_()  # in place: this takes as long as the product

    def forward(self, rows: Rows) -> Tensor:
        return self.kernel(rows) @ self.weight + self.bias


def _squares(rows: Rows) -> Tensor:
    """The squared norm of each row."""
    if isinstance(rows, Tensor):
        return rows.square().sum(1)
    row = torch.repeat_interleave(rows.offsets.diff())
    return torch.zeros(rows.shape[0], dtype=rows.values.dtype, device=row.device).index_add_(
        0, row, rows.values.square()
    )


def kernel_path_fits(rows: int, width: int, labels: int) -> bool:
    """Whether the path is small enough to be fitted and stored."""
    return rows <= LARGEST_COUNT and rows * (width + labels) <= LARGEST_SIZE


def fit_kernel_path(
    X: csr_array, labels: PathLabels, row_weights: npt.NDArray[np.float64], rows_at_once: int = LARGEST_COUNT
) -> KernelPath:
    """Fit to scaled rows. A row of weight w has the penalty 0.25 / w, w relative to the mean.

    More rows than `rows_at_once` are divided into parts of equal size, each is solved alone, and scores are the mean of
    the parts (Zhang, Duchi and Wainwright 2013): two parts take two fifths of the time.
    """
    path = KernelPath(X.shape[1], X.shape[0], labels.Y.shape[1])
    unit = float(np.sqrt(np.average(squared_norms(X), weights=row_weights))) or 1.0
    path.points.data = torch.from_numpy(X.T.toarray().astype(np.float32, order="C"))
    path.rate.data = torch.tensor(0.5 / unit)
    penalties = (_PENALTY * row_weights.mean() / row_weights).astype(np.float32)
    targets: Any = labels.targets().astype(np.float32).toarray(order="F")
    mean = (row_weights / row_weights.sum()).astype(np.float32) @ targets
    targets -= mean
    parts = -(-X.shape[0] // rows_at_once)
    for part in range(parts):
        chosen = slice(part, None, parts)
        path.weight.data[chosen] = torch.from_numpy(_solve(path, X[chosen], targets[chosen], penalties[chosen]))
    path.weight.data *= _WEIGHT / parts
    path.bias.data = (torch.from_numpy(mean) * _WEIGHT + labels.balance(_BALANCE * _WEIGHT)).float()
    return path


def _solve(path: KernelPath, X: csr_array, targets: Any, penalties: npt.NDArray[np.float32]) -> Any:
    """(K + penalties)^-1 targets, K the kernel of the rows. May overwrite targets."""
    points = torch.from_numpy(X.T.toarray().astype(np.float32, order="C"))
    matrix = np.empty((len(penalties), len(penalties)), np.float32)  # only the lower triangle is filled and read
    size = max(1, _PRODUCTS_AT_ONCE // len(penalties))
    for first in range(0, len(penalties), size):
        rows = SparseRows(X[first : first + size], torch.device("cpu"))
        last = first + rows.shape[0]
        matrix[first:last, :last] = path.kernel(rows, points[:, :last].contiguous()).numpy()
    matrix.reshape(-1)[:: len(matrix) + 1] += penalties
    # scipy's factorisation is faster than that of torch. It counts columns first, so the triangle is the upper one.
    factor = cho_factor(matrix.T, overwrite_a=True, check_finite=False)
    return cho_solve(factor, targets, overwrite_b=True, check_finite=False)


def fit_path(
    X: csr_array,
    Y: csr_array,
    row_weights: npt.NDArray[np.float64],
    inverse_propensity: npt.NDArray[np.float64],
    propensity: float = 0.0,
    skip: Any = "auto",
    shard: Shard | None = None,
    rows_at_once: int = LARGEST_COUNT,
) -> LinearPath | KernelPath:
    """Fit a path to scaled rows and the labels of a shard.

    Args:
        X, Y, row_weights, inverse_propensity, propensity: see `Ridge` and `PathLabels`.
        skip: "linear" or "kernel"; a number: "linear" with this weight; "auto": "kernel" where the weight of the linear
            path is below its maximum, which means that a linear function is too simple, and the kernel path fits.
        shard: the labels to fit; None: all.
        rows_at_once: see `fit_kernel_path`.
    """
    shard = Shard(Y.shape[1]) if shard is None else shard
    held = slice(shard.first, shard.last)
    labels = PathLabels(Y[:, held], inverse_propensity[held], propensity)
    if skip != "kernel":
        ridge = Ridge(X, row_weights)
        is_too_simple = ridge.weight < LARGEST_WEIGHT and kernel_path_fits(X.shape[0], X.shape[1], Y.shape[1])
        if skip != "auto" or not is_too_simple:
            return ridge.path(labels, None if isinstance(skip, str) else float(skip))
    return fit_kernel_path(X, labels, row_weights, rows_at_once)
