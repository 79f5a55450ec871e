"""Paths from sparse features to all labels beside the networks, fitted in closed form: ridge regression, linear or
with a kernel.

**Linear.** Least squares of the labels, 1 for those a row has and 0 for the others, on scaled rows and a constant:

    W = (X'X + c I)^-1 X'Y,    c = 0.25 x mean squared norm of a row

All labels share the matrix, so one factorisation solves them all. The penalty holds rare labels back, whose few rows
cannot outweigh it. To balance this, each label's score has 0.25 x log inverse propensity (Jain et al. 2016) added.

The path is added to the mean score of the networks with a weight. Ridge regression is good where rows have many
features for their number, so that a linear function comes close to all that can be learned, and poor where they have
few. The effective number of parameters per row, r = tr(X (X'X + c I)^-1 X') / rows, tells these cases apart: the weight
is 300 r^2, at most 12. The constants were chosen on validation rows of Eurlex-4K (weight 12) and Delicious-1K (0.5).

**Kernel.** Where rows have few features, a linear function is too simple. The Laplace kernel of scaled rows,

    k(x, z) = exp(-|x - z| / 2u),    u^2 = mean squared norm of a row

is close to that of a wide network (Geifman et al. 2020), but its optimum is found exactly, by one factorisation for all
labels: A = (K + 0.25 I)^-1 (Y - mean of Y). Its errors differ from those of networks, so the sum is better than either.
Its weight is 2.5, and 0.1 x log inverse propensity is added before. The constants were chosen on validation rows of
Delicious-1K, whole and cut to 4,000 rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array, diags_array, hstack
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from plackett.losses.sparse_columns import Shard
from plackett.neural.networks import Rows, SparseRows

LARGEST_SIZE = 1 << 27
"""Weights of a path."""


# Linear

LARGEST_WIDTH = 10_000
"""Features: a matrix of features x features is factorised."""
LARGEST_WEIGHT = 12.0
_LINEAR_PENALTY, _LINEAR_BALANCE = 0.25, 0.25
_WEIGHT_OF_SQUARE = 300.0
_PROBES = 64


def product(rows: Rows, weight: Tensor) -> Tensor:
    """rows @ weight, without gradients."""
    if isinstance(rows, Tensor):
        return rows @ weight
    return embedding_bag(
        rows.columns, weight, rows.offsets, per_sample_weights=rows.values, mode="sum", include_last_offset=True
    )


class LinearPath(nn.Module):
    """Scores rows @ weight + bias; weight (features, labels)."""

    def __init__(self, width: int, labels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width, labels), requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(labels), requires_grad=False)

    def forward(self, rows: Rows) -> Tensor:
        return product(rows, self.weight) + self.bias


def linear_path_fits(width: int, labels: int) -> bool:
    """Whether the path is small enough to be fitted and stored."""
    return width <= LARGEST_WIDTH and width * labels <= LARGEST_SIZE


@dataclass(frozen=True)
class PathLabels:
    """The labels that a path is fitted to.

    Args:
        Y: the stored entries are the labels of a row.
        inverse_propensity: one per label.
        propensity: 0 predicts labels as observed; otherwise a label that a row has counts as its inverse propensity to
            this power, which takes the place of the balance for rare labels.
    """

    Y: csr_array
    inverse_propensity: npt.NDArray[np.float64]
    propensity: float = 0.0

    def targets(self) -> csr_array:
        """The value that each label of a row counts; the others count 0."""
        values = (self.inverse_propensity**self.propensity)[self.Y.indices]
        return csr_array((values, self.Y.indices, self.Y.indptr), shape=self.Y.shape)

    def balance(self, share: float) -> Tensor:
        """Added to the scores for the sake of rare labels."""
        return torch.from_numpy(np.log(self.inverse_propensity) * (share if self.propensity == 0 else 0.0))


class Ridge:
    """The factorised normal equations of scaled rows.

    Args:
        X: features.
        row_weights: one per row, relative to their mean: a row of weight 2 is not the same as two rows.
    """

    def __init__(self, X: csr_array, row_weights: npt.NDArray[np.float64]) -> None:
        self._unit = float(np.sqrt(np.average(squared_norms(X), weights=row_weights))) or 1.0
        design: Any = hstack([X.astype(np.float64), csr_array(np.full((X.shape[0], 1), self._unit))], format="csr")
        self._weighted = (diags_array(row_weights / row_weights.mean()) @ design).T.tocsr()  # (features + 1, rows)
        penalty = _LINEAR_PENALTY * self._unit**2
        matrix = torch.from_numpy((self._weighted @ design).toarray())
        matrix.diagonal().add_(penalty)
        # The condition number is at most rows / 0.25, so that scores in single precision are right to four digits.
        self._factor = torch.linalg.cholesky(matrix.float())
        share = _effective_parameters(self._factor, penalty) / X.shape[0]
        self.weight = min(LARGEST_WEIGHT, _WEIGHT_OF_SQUARE * share**2)
        """Of the path beside the networks, from the effective number of parameters."""

    def path(self, labels: PathLabels, weight: float | None = None) -> LinearPath:
        """Fit to labels; `weight` is that of the path beside the networks, None: `self.weight`."""
        weight = self.weight if weight is None else weight
        moments = torch.from_numpy((self._weighted @ labels.targets()).toarray()).float()
        solution = torch.cholesky_solve(moments, self._factor) * weight
        path = LinearPath(len(solution) - 1, solution.shape[1])
        path.weight.data = solution[:-1].contiguous()
        path.bias.data = solution[-1] * self._unit + labels.balance(_LINEAR_BALANCE * weight).float()
        return path


def squared_norms(X: csr_array) -> npt.NDArray[np.float64]:
    row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    return np.asarray(np.bincount(row, X.data.astype(np.float64) ** 2, X.shape[0]), np.float64)


def _effective_parameters(factor: Tensor, penalty: float) -> float:
    """The trace of (X'X + c I)^-1 X'X = size - c tr (X'X + c I)^-1, by Hutchinson's estimator with random signs."""
    size = len(factor)
    signs = torch.randint(0, 2, (size, _PROBES), generator=torch.Generator().manual_seed(0)).to(factor) * 2.0 - 1.0
    trace = float((signs * torch.cholesky_solve(signs, factor)).sum() / _PROBES)
    return size - penalty * trace


# Kernel

LARGEST_COUNT = 16_384
"""Rows: matrices of rows x rows are factorised, and the model keeps the rows."""
_KERNEL_PENALTY, _KERNEL_BALANCE, _KERNEL_WEIGHT = 0.25, 0.1, 2.5
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
    the parts (Zhang, Duchi and Wainwright 2013). Two parts take less than half of the operations.
    """
    path = KernelPath(X.shape[1], X.shape[0], labels.Y.shape[1])
    unit = float(np.sqrt(np.average(squared_norms(X), weights=row_weights))) or 1.0
    path.points.data = torch.from_numpy(X.T.toarray().astype(np.float32, order="C"))
    path.rate.data = torch.tensor(0.5 / unit)
    penalties = (_KERNEL_PENALTY * row_weights.mean() / row_weights).astype(np.float32)
    targets: Any = labels.targets().astype(np.float32).toarray(order="F")
    mean = (row_weights / row_weights.sum()).astype(np.float32) @ targets
    targets -= mean
    parts = -(-X.shape[0] // rows_at_once)
    for part in range(parts):
        chosen = slice(part, None, parts)
        path.weight.data[chosen] = torch.from_numpy(_solve(path, X[chosen], targets[chosen], penalties[chosen]))
    path.weight.data *= _KERNEL_WEIGHT / parts
    path.bias.data = (
        torch.from_numpy(mean) * _KERNEL_WEIGHT + labels.balance(_KERNEL_BALANCE * _KERNEL_WEIGHT)
    ).float()
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
