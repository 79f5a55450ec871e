"""Paths from features to all labels alongside the networks, fitted in closed form: ridge regression, linear or with a
kernel.

Ridge regression estimates the labels, 1 for those a row has and 0 for the others. Its errors differ from those of
networks, so the two together are better than either. With the estimate p of a label, networks and path are joined as
a product of probabilities:

    score = mean score of the networks + w (log(max(p, 0) + 0.02) + 0.8 log inverse propensity)

The penalty of ridge regression holds rare labels back, whose few rows cannot outweigh it; the inverse propensity (Jain
et al. 2016) balances this. As a factor it moves only labels that the path holds possible. Added to p itself, it would
also raise labels that are out of the question.

**Linear.** On scaled rows and a constant,

    W = (X'X + c I)^-1 X'Y,    c = 0.25 x mean squared norm of a row

All labels share the matrix, so one factorisation solves them all.

**Kernel.** The Laplace kernel of scaled rows,

    k(x, z) = exp(-|x - z| / 2u),    u^2 = mean squared norm of a row

is close to that of a wide network (Geifman et al. 2020), but its optimum is found exactly, by one factorisation for all
labels: A = (K + 0.1 I)^-1 (Y - mean of Y). It keeps the rows and a weight for each row and label. Where it fits and is
better than the linear path on rows that both were not fitted to (by nDCG@5), it is chosen by default.

Regression estimates each label by itself. Where labels depend on each other, the estimates of the others say more
about a label, and a second ridge regression, of the labels on the estimates P of all labels, uses them:

    C = (P'P + 15 I)^-1 P'Y,    corrected estimate = (P + P C) / 2

It is fitted to rows that the estimates were not fitted to, and used if it improves others of them.

**The weight w.** Where rows have many features for their number, regression comes close to all that can be learned;
where they have few, networks are better. The effective number of parameters of the linear path per row,
r = tr(X (X'X + c I)^-1 X') / rows, tells these cases apart: w = 300 r^2, at most 12, and for the kernel at least 2.

All constants were chosen on held-out training rows of Delicious-1K (r = 0.03) and Eurlex-4K (0.21), and on descriptions
of Debian packages with their tags (0.28), whole and cut to fewer rows and features.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array, diags_array, hstack
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from plackett.data.containers import without_grades
from plackett.losses.sparse_columns import Shard
from plackett.metrics import multilabel_ndcg
from plackett.neural.gram_kernels import add_gram
from plackett.neural.networks import Rows, SparseRows

LARGEST_WIDTH = 10_000
"""Features: a matrix of features x features is factorised."""
LARGEST_WEIGHT = 12.0
_WEIGHT_OF_SQUARE = 300.0
_BALANCE = 0.8
_SMALLEST_ESTIMATE = 0.02
_PRODUCTS_AT_ONCE = 1 << 23
_ROUNDING = 1e-6  # of squared distances, with 2u as the unit


def product(rows: Rows, weight: Tensor) -> Tensor:
    """rows @ weight, without gradients."""
    if isinstance(rows, Tensor):
        return rows @ weight
    return embedding_bag(
        rows.columns, weight, rows.offsets, per_sample_weights=rows.values, mode="sum", include_last_offset=True
    )


class _Path(nn.Module, ABC):
    """Scores of labels from estimates inputs @ weight + bias; weight (inputs, labels).

    Args:
        inputs, labels: shape of the weight.
        is_logarithmic: True: the scores are importance * log(max(estimate, 0) + 0.02) + shift. False: they are the
            estimates, as in models saved before importance and shift existed.
    """

    def __init__(self, inputs: int, labels: int, is_logarithmic: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(inputs, labels), requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(labels), requires_grad=False)
        self.is_logarithmic = is_logarithmic
        if is_logarithmic:
            self.importance = nn.Parameter(torch.ones(()), requires_grad=False)
            self.shift = nn.Parameter(torch.zeros(labels), requires_grad=False)

    @abstractmethod
    def estimates(self, rows: Rows) -> Tensor:
        """(rows, labels)."""

    def forward(self, rows: Rows) -> Tensor:
        estimates = self.estimates(rows)
        if not self.is_logarithmic:
            return estimates
        return torch.log(estimates.clamp(min=0.0) + _SMALLEST_ESTIMATE) * self.importance + self.shift

    def join(self, labels: PathLabels, importance: float) -> None:
        """Set how much the path counts beside the networks."""
        self.importance.data = torch.tensor(importance)
        self.shift.data = labels.balance(_BALANCE * importance).float()

    def keep_labels(self, kept: slice) -> None:
        """Drop the other labels."""
        self.weight.data = self.weight.data[:, kept].contiguous()
        self.bias.data, self.shift.data = self.bias.data[kept].clone(), self.shift.data[kept].clone()


class LinearPath(_Path):
    """Estimates rows @ weight + bias; inputs: features."""

    def estimates(self, rows: Rows) -> Tensor:
        return product(rows, self.weight) + self.bias


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

    def select(self, kept: slice) -> PathLabels:
        """Some of the labels."""
        return PathLabels(self.Y[:, kept], self.inverse_propensity[kept], self.propensity)

    def of_rows(self, rows: slice) -> PathLabels:
        """All labels of some rows."""
        return PathLabels(self.Y[rows], self.inverse_propensity, self.propensity)

    def ndcg(self, estimates: npt.NDArray[np.floating[Any]]) -> float:
        """nDCG@5 of estimates (rows, labels)."""
        return float(multilabel_ndcg(estimates, without_grades(self.Y), k=min(5, self.Y.shape[1])))

    def targets(self) -> csr_array:
        """The value that each label of a row counts; the others count 0."""
        values = (self.inverse_propensity**self.propensity)[self.Y.indices]
        return csr_array((values, self.Y.indices, self.Y.indptr), shape=self.Y.shape)

    def balance(self, share: float) -> Tensor:
        """Added to the scores for the sake of rare labels."""
        return torch.from_numpy(np.log(self.inverse_propensity) * (share if self.propensity == 0 else 0.0))


# Linear

_LINEAR_PENALTY = 0.25
_LARGEST_DENSITY = 0.1  # of sparse rows; denser ones are multiplied faster as dense matrices
_PROBES = 64
LARGEST_SIZE = 1 << 27
"""Weights of a linear path."""


def linear_path_fits(width: int, labels: int) -> bool:
    """Whether the path is small enough to be fitted and stored."""
    return width <= LARGEST_WIDTH and width * labels <= LARGEST_SIZE


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
        matrix = torch.from_numpy(_gram(design, row_weights / row_weights.mean()))
        matrix.diagonal().add_(penalty)
        # The condition number is at most rows / 0.25, so that scores in single precision are right to four digits.
        self._factor = torch.linalg.cholesky(matrix.float())
        share = _effective_parameters(self._factor, penalty) / X.shape[0]
        self.weight = min(LARGEST_WEIGHT, _WEIGHT_OF_SQUARE * share**2)
        """Of the path beside the networks, from the effective number of parameters."""

    def path(self, labels: PathLabels, weight: float | None = None) -> LinearPath:
        """Fit to labels; `weight` is that of the path beside the networks, None: `self.weight`."""
        moments = torch.from_numpy((self._weighted @ labels.targets()).toarray()).float()
        solution = torch.cholesky_solve(moments, self._factor)
        path = LinearPath(len(solution) - 1, solution.shape[1])
        path.weight.data = solution[:-1].contiguous()
        path.bias.data = solution[-1] * self._unit
        path.join(labels, self.weight if weight is None else weight)
        return path


def _gram(X: csr_array, row_weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The lower triangle of X' diag(row_weights) X. What is above it has no meaning."""
    rows, width = X.shape
    matrix = np.zeros((width, width))
    if X.nnz <= _LARGEST_DENSITY * rows * width:
        X = X.sorted_indices()
        add_gram(X.indptr.astype(np.int64), X.indices.astype(np.int64), X.data, row_weights, matrix)
        return matrix
    size = max(1, _PRODUCTS_AT_ONCE // width)
    for first in range(0, rows, size):
        block = X[first : first + size].toarray()
        matrix += (block * row_weights[first : first + size, None]).T @ block
    return matrix


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

LARGEST_PART = 16_384
"""Rows solved at once: matrices of rows x rows are factorised."""
LARGEST_COUNT = 32_768
"""Rows, which the model keeps."""
LARGEST_TABLE = 1 << 25
"""Weights of a kernel path, rows x labels: every prediction multiplies them all."""
LARGEST_POINTS = 160_000_000
"""Entries of the rows that are kept."""
LARGEST_CORRECTED = 4_096
"""Labels whose estimates are corrected: a matrix of labels x labels is factorised."""
_FEWEST_HELD_OUT = 50  # rows; fewer tell too little of the quality of estimates
_KERNEL_PENALTY, _CORRECTION_PENALTY, _SMALLEST_KERNEL_WEIGHT = 0.1, 15.0, 2.0


class KernelPath(_Path):
    """Estimates k(rows, points) @ weight + bias; inputs: points.

    points (features, points), each point a row of the training data; rate: 1 / 2u.
    """

    def __init__(self, width: int, points: int, labels: int, is_logarithmic: bool = True) -> None:
        super().__init__(points, labels, is_logarithmic)
        self.points = nn.Parameter(torch.zeros(width, points), requires_grad=False)
        self.rate = nn.Parameter(torch.ones(()), requires_grad=False)

    def kernel(self, rows: Rows, points: Tensor | None = None) -> Tensor:
        """(rows, points), for some points instead of all if given."""
        points = self.points if points is None else points
        squares = product(rows, points).mul_(-2.0).add_(_squares(rows)[:, None]).add_(points.square().sum(0))
        # Of equal rows, what is left is rounding, whose root would be a thousand times as large.
        squares.mul_(squares > _ROUNDING / self.rate.square())
        return squares.sqrt_().mul_(-self.rate).exp_()  # in place: this takes as long as the product

    def estimates(self, rows: Rows) -> Tensor:
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
    """Whether the path is small enough to be fitted, stored and used."""
    is_small = rows * labels <= LARGEST_TABLE and rows * width <= LARGEST_POINTS
    return rows <= LARGEST_COUNT and width <= LARGEST_WIDTH and is_small


class KernelRegression:
    """Kernel ridge regression of scaled rows. A row of weight v has the penalty 0.1 / v, v relative to the mean.

    More rows than `rows_at_once` are divided into parts of equal size, each is solved alone, and estimates are the mean
    of the parts (Zhang, Duchi and Wainwright 2013). Two parts take less than half of the operations.
    """

    def __init__(
        self,
        X: csr_array,
        labels: PathLabels,
        row_weights: npt.NDArray[np.float64],
        rows_at_once: int = LARGEST_PART,
    ) -> None:
        self._X, self._labels, self._row_weights = X, labels, row_weights
        self._targets: Any = labels.targets().astype(np.float32).toarray(order="F")
        mean = (row_weights / row_weights.sum()).astype(np.float32) @ self._targets
        self._targets -= mean
        self._path = self._make_path(slice(None), mean)
        self._parts = -(-X.shape[0] // rows_at_once)
        self._step = max(2, self._parts)
        self._solutions: dict[tuple[int, int], Tensor] = {}

    def _make_path(self, rows: slice, mean: npt.NDArray[np.float32]) -> KernelPath:
        """A path with some rows as points, whose weights are not known yet."""
        points = torch.from_numpy(self._X[rows].T.toarray().astype(np.float32, order="C"))
        path = KernelPath(points.shape[0], points.shape[1], len(mean))
        path.points.data, path.bias.data = points, torch.from_numpy(mean)
        unit = float(np.sqrt(np.average(squared_norms(self._X), weights=self._row_weights))) or 1.0
        path.rate.data = torch.tensor(0.5 / unit)
        return path

    def _solve(self, first: int, step: int) -> Tensor:
        """(K + penalties)^-1 targets of rows first, first + step, ..."""
        if (first, step) not in self._solutions:
            rows = slice(first, None, step)
            penalties = (_KERNEL_PENALTY * self._row_weights.mean() / self._row_weights[rows]).astype(np.float32)
            targets = self._targets[rows].copy("F")
            self._solutions[first, step] = torch.from_numpy(_solve(self._path, self._X[rows], targets, penalties))
        return self._solutions[first, step]

    @property
    def has_held_out_rows(self) -> bool:
        return bool(self._X.shape[0] >= _FEWEST_HELD_OUT * self._step)

    @cached_property
    def _held_out_estimates(self) -> npt.NDArray[np.float32]:
        """Of rows 1, 1 + step, ..., by a regression of rows 0, step, ..."""
        path = self._make_path(slice(0, None, self._step), self._path.bias.data.numpy())
        path.weight.data = self._solve(0, self._step)
        return _estimates(path, self._X[1 :: self._step])

    def is_better_than_linear(self) -> bool:
        """Whether the estimates of held-out rows are better than those of a linear path."""
        fitted, held = slice(0, None, self._step), slice(1, None, self._step)
        linear = Ridge(self._X[fitted], self._row_weights[fitted]).path(self._labels.of_rows(fitted))
        labels = self._labels.of_rows(held)
        return labels.ndcg(self._held_out_estimates) > labels.ndcg(_estimates(linear, self._X[held]))

    def path(self, weight: float) -> KernelPath:
        """The path alongside the networks; `weight` is that of the linear path there."""
        path, labels = self._path, self._labels
        for part in range(self._parts):
            path.weight.data[part :: self._parts] = self._solve(part, self._parts) / self._parts
        if labels.propensity == 0 and labels.Y.shape[1] <= LARGEST_CORRECTED and self.has_held_out_rows:
            held = slice(1, None, self._step)
            correction = find_correction(self._held_out_estimates, labels.of_rows(held), self._row_weights[held])
            if correction is not None:
                path.weight.data = (path.weight.data + path.weight.data @ correction) / 2.0
                path.bias.data = (path.bias.data + path.bias.data @ correction) / 2.0
        path.join(labels, max(weight, _SMALLEST_KERNEL_WEIGHT))
        return path


def _estimates(path: LinearPath | KernelPath, X: csr_array) -> npt.NDArray[np.float32]:
    size = max(1, _PRODUCTS_AT_ONCE // len(path.weight))
    blocks = (SparseRows(X[first : first + size], torch.device("cpu")) for first in range(0, X.shape[0], size))
    return np.concatenate([path.estimates(rows).numpy() for rows in blocks])


def find_correction(
    estimates: npt.NDArray[np.float32], labels: PathLabels, row_weights: npt.NDArray[np.float64]
) -> Tensor | None:
    """The matrix C for estimates (rows, labels) that were not fitted to these rows, or None if it does not help."""

    def fit(rows: slice) -> npt.NDArray[np.float32]:
        weighted = estimates[rows].T * (row_weights[rows] / row_weights.mean()).astype(np.float32)
        matrix = weighted @ estimates[rows]
        matrix.reshape(-1)[:: len(matrix) + 1] += np.float32(_CORRECTION_PENALTY)
        moments = (labels.of_rows(rows).targets().T @ weighted.T).T.astype(np.float32)
        return np.asarray(cho_solve(cho_factor(matrix, check_finite=False), moments, check_finite=False))

    others, others_labels = estimates[1::2], labels.of_rows(slice(1, None, 2))
    corrected = (others + others @ fit(slice(0, None, 2))) / 2.0
    return torch.from_numpy(fit(slice(None))) if others_labels.ndcg(corrected) > others_labels.ndcg(others) else None


def _solve(path: KernelPath, X: csr_array, targets: Any, penalties: npt.NDArray[np.float32]) -> Any:
    """(K + penalties)^-1 targets, K the kernel of the rows. Overwrites targets."""
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


# Both

LIMITS = {
    "linear": f"at most {LARGEST_WIDTH:,} features and {LARGEST_SIZE:,} weights, features x labels",
    "kernel": f"at most {LARGEST_COUNT:,} rows, {LARGEST_WIDTH:,} features, {LARGEST_TABLE:,} weights, rows x labels, "
    f"and {LARGEST_POINTS:,} values, rows x features",
}
"""The sizes that a path of each kind can have, for people."""


def fit_path(
    X: csr_array | Tensor,
    labels: PathLabels,
    row_weights: npt.NDArray[np.float64],
    kind: str,
    *,
    weight: float | None = None,
    shard: Shard | None = None,
    rows_at_once: int = LARGEST_PART,
) -> LinearPath | KernelPath:
    """Fit a path to scaled rows.

    Args:
        kind: "linear" or "kernel"; "auto": "kernel" if it fits and is better on held-out rows, otherwise "linear".
        weight: of a linear path beside the networks; None: from the effective number of parameters.
        shard: the labels that the path is to hold; None: all.
        rows_at_once: see `KernelRegression`.
    """
    held = slice(None) if shard is None else slice(shard.first, shard.last)
    rows = csr_array(X.cpu().numpy()) if isinstance(X, Tensor) else X
    ridge = Ridge(rows, row_weights)
    width, count = rows.shape[1], labels.Y.shape[1]
    if kind == "kernel" or (kind == "auto" and kernel_path_fits(rows.shape[0], width, count)):
        regression = KernelRegression(rows, labels, row_weights, rows_at_once)
        is_open = kind == "auto" and linear_path_fits(width, count) and regression.has_held_out_rows
        if not is_open or regression.is_better_than_linear():
            path = regression.path(ridge.weight)
            path.keep_labels(held)  # corrections need all labels
            return path
    return ridge.path(labels.select(held), weight)
