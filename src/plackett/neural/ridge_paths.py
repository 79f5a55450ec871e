"""Paths from features to all labels alongside the networks, fitted in closed form: ridge regression, linear or with a
kernel.

Ridge regression estimates the labels, 1 for those a row has and 0 for the others. Its errors differ from those of
networks, so the two together are better than either. With the estimate p of a label, networks and path are joined as
a product of probabilities:

    score = mean score of the networks + w (log(max(p, 0) + 0.02) + b log inverse propensity)

The penalty of ridge regression holds rare labels back, whose few rows cannot outweigh it; the inverse propensity (Jain
et al. 2016) balances this. As a factor it moves only labels that the path holds possible. Added to p itself, it would
also raise labels that are out of the question.

**Linear.** On scaled rows and a constant,

    W = (X'X + c I)^-1 X'Y = X' (XX' + c I)^-1 Y,    c = 0.25 x mean squared norm of a row

All labels share the matrix, so one factorisation solves them all: of features x features in the first form, of
rows x rows in the second, which is the smaller matrix where rows are few. Where both are too large, conjugate gradients
solve the first form.

**Kernel.** The Laplace kernel of scaled rows,

    k(x, z) = exp(-|x - z| / 2u),    u^2 = mean squared norm of a row

is close to that of a wide network (Geifman et al. 2020), but its optimum is found exactly, by one factorisation for all
labels: A = (K + 0.1 I)^-1 (Y - mean of Y). It keeps the rows and a weight for each row and label.

The same factor gives the estimate of each row by the regression of all other rows, without solving that:
y - a / d, with the row a of A and the element d of the diagonal of (K + 0.1 I)^-1, which random signs estimate. These
estimates, which no row has influenced for itself, serve twice.

First, regression estimates each label by itself. Where labels depend on each other, the estimates of the others say
more about a label, and a second ridge regression, of the labels on the left-out estimates P of all labels, uses them:

    C = (P'P + 15 I)^-1 P'Y,    corrected estimate = (P + 3 P C) / 4

Second, where the kernel path fits, the default is the better of the kernel path and the linear path. Both decisions are
made by left-out estimates, with the balance b for rare labels, by the geometric mean of nDCG@5 and PSnDCG@5.

**The weight w.** Where rows have many features for their number, regression comes close to all that can be learned;
where they have few, networks are better. The effective number of parameters of the linear path per row,
r = tr(X (X'X + c I)^-1 X') / rows, tells these cases apart: w = 300 r^2, at most 12 (8 beside
an ensemble of five), and for the kernel at least 3.

All constants were chosen on held-out training rows of Delicious-1K (r = 0.03) and Eurlex-4K (0.21), and on descriptions
of Debian packages with their tags (0.28), whole and cut to fewer rows and features.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csc_array, csr_array, diags_array, hstack
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from plackett.data.containers import without_grades
from plackett.losses.sparse_columns import Shard
from plackett.metrics import multilabel_ndcg, propensity_scored_ndcg
from plackett.neural.gram_kernels import add_gram
from plackett.neural.networks import Rows, SparseRows

LARGEST_WIDTH = 10_000
"""Features of a linear path, if rows are many: a matrix of features x features is factorised."""
LARGEST_PART = 16_384
"""Rows solved at once: a matrix of rows x rows is factorised."""
_WEIGHT_OF_SQUARE = 300.0
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
        self.shift.data = (labels.shift() * importance).float()

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
            this power, which takes the place of the balance.
        balance: b, how much rare labels are raised.
    """

    Y: csr_array
    inverse_propensity: npt.NDArray[np.float64]
    propensity: float = 0.0
    balance: float = 0.8

    def select(self, kept: slice) -> PathLabels:
        """Some of the labels."""
        return replace(self, Y=self.Y[:, kept], inverse_propensity=self.inverse_propensity[kept])

    def of_rows(self, rows: slice) -> PathLabels:
        """All labels of some rows."""
        return replace(self, Y=self.Y[rows])

    def quality(self, estimates: npt.NDArray[np.floating[Any]]) -> float:
        """How well estimates (rows, labels), balanced for rare labels, order the labels."""
        scores = np.log(np.maximum(estimates, 0.0) + _SMALLEST_ESTIMATE) + self.shift().numpy()
        labels, places = without_grades(self.Y), min(5, self.Y.shape[1])
        common = multilabel_ndcg(scores, labels, k=places)
        return float(np.sqrt(common * propensity_scored_ndcg(scores, labels, self.inverse_propensity, k=places)))

    def targets(self) -> csr_array:
        """The value that each label of a row counts; the others count 0."""
        values = (self.inverse_propensity**self.propensity)[self.Y.indices]
        return csr_array((values, self.Y.indices, self.Y.indptr), shape=self.Y.shape)

    def shift(self) -> Tensor:
        """Added to the logarithms of the estimates for the sake of rare labels."""
        return torch.from_numpy(np.log(self.inverse_propensity) * (self.balance if self.propensity == 0 else 0.0))


# Linear

_LINEAR_PENALTY = 0.25
_LARGEST_DENSITY = 0.1  # of sparse rows; denser ones are multiplied faster as dense matrices
_PROBES = 64
_SMALLEST_REST = 1e-3  # the influence of other rows on the estimate of a row; at 0 they say nothing
_SMALLEST_RESIDUAL, _MOST_STEPS, _SIDES_AT_ONCE, _FEATURES_TOGETHER = 0.001, 100, 64, 2_000  # of conjugate gradients
LARGEST_SIZE = 1 << 27
"""Weights of a linear path."""
LARGEST_WORK = 1 << 32
"""Products of a step of conjugate gradients, entries x labels."""


def linear_path_fits(rows: int, width: int, labels: int, entries: int) -> bool:
    """Whether the path is small enough to be fitted and stored; entries: of all rows."""
    is_fast = width <= LARGEST_WIDTH or rows <= LARGEST_PART or entries * labels <= LARGEST_WORK
    return is_fast and width * labels <= LARGEST_SIZE


class Ridge(ABC):
    """Ridge regression of scaled rows, for all labels at once.

    Args:
        X: features.
        row_weights: one per row, relative to their mean: a row of weight 2 is not the same as two rows.
    """

    def __init__(self, X: csr_array, row_weights: npt.NDArray[np.float64]) -> None:
        self._unit = float(np.sqrt(np.average(squared_norms(X), weights=row_weights))) or 1.0
        constant = csr_array(np.full((X.shape[0], 1), self._unit))
        self._design: Any = hstack([X.astype(np.float64), constant], format="csr")
        self._row_weights = row_weights / row_weights.mean()
        self._penalty = _LINEAR_PENALTY * self._unit**2
        self.weight = _WEIGHT_OF_SQUARE * (_effective_parameters(self._prepare(), self._solve) / X.shape[0]) ** 2
        """Of the path beside the networks, from the effective number of parameters."""

    @abstractmethod
    def _prepare(self) -> Tensor:
        """Prepare the equations; return what the penalty adds to the diagonal of their matrix."""

    @abstractmethod
    def _solve(self, sides: Tensor) -> Tensor:
        """The equations, for several right-hand sides."""

    @abstractmethod
    def _solution(self, labels: PathLabels) -> Tensor:
        """(features + 1, labels)."""

    def _moments(self, labels: PathLabels) -> Any:
        """X'Y, sparse."""
        return self._design.T @ (diags_array(self._row_weights) @ labels.targets())

    def path(self, labels: PathLabels, weight: float) -> LinearPath:
        """Fit to labels; `weight` is that of the path beside the networks."""
        solution = self._solution(labels)
        path = LinearPath(len(solution) - 1, solution.shape[1])
        path.weight.data = solution[:-1].contiguous()
        path.bias.data = solution[-1] * self._unit
        path.join(labels, weight)
        return path


class FactorisedRidge(Ridge):
    """By a Cholesky factor, which also gives estimates of left-out rows."""

    def _factorise(self, matrix: Tensor, penalties: Tensor) -> Tensor:
        """Factorise the matrix, of which the lower triangle is read, with penalties on its diagonal."""
        matrix.diagonal().add_(penalties)
        # The condition number is at most rows / 0.25, so that scores in single precision are right to four digits.
        self._factor = torch.linalg.cholesky(matrix.float())
        return penalties

    def _solve(self, sides: Tensor) -> Tensor:
        return torch.cholesky_solve(sides, self._factor)

    @abstractmethod
    def left_out_estimates(self, labels: PathLabels, rows: slice) -> npt.NDArray[np.float32]:
        """Of some rows, each by the regression of all others."""


class NormalRidge(FactorisedRidge):
    """By the normal equations, features x features."""

    def _prepare(self) -> Tensor:
        matrix = torch.from_numpy(_gram(self._design, self._row_weights))
        return self._factorise(matrix, torch.full((len(matrix),), self._penalty))

    def _solution(self, labels: PathLabels) -> Tensor:
        return self._solve(torch.from_numpy(self._moments(labels).toarray()).float())

    def left_out_estimates(self, labels: PathLabels, rows: slice) -> npt.NDArray[np.float32]:
        design = torch.from_numpy(self._design[rows].toarray()).float()
        halves = torch.linalg.solve_triangular(self._factor, design.T, upper=False)
        leverage = halves.square().sum(0).numpy() * self._row_weights[rows].astype(np.float32)
        fitted = (design @ self._solution(labels)).numpy()
        return _left_out(fitted, labels.of_rows(rows).targets().toarray().astype(np.float32), leverage)


class DualRidge(FactorisedRidge):
    """By the dual equations, rows x rows."""

    def _prepare(self) -> Tensor:
        rows = SparseRows(self._design, torch.device("cpu"))
        count, width = self._design.shape
        matrix, size = torch.empty(count, count), max(1, _PRODUCTS_AT_ONCE // width)
        for first in range(0, count, size):
            part = torch.from_numpy(self._design[first : first + size].T.toarray()).float()
            matrix[:, first : first + size] = product(rows, part)
        return self._factorise(matrix, torch.from_numpy(self._penalty / self._row_weights).float())

    def _solution(self, labels: PathLabels) -> Tensor:
        return product(SparseRows(csr_array(self._design.T), torch.device("cpu")), self._weights_of_rows(labels))

    def left_out_estimates(self, labels: PathLabels, rows: slice) -> npt.NDArray[np.float32]:
        """As the kernel regression has them, with the exact diagonal of the inverse."""
        chosen = torch.arange(len(self._factor))[rows]
        unit_vectors = torch.zeros(len(self._factor), len(chosen))
        unit_vectors[chosen, torch.arange(len(chosen))] = 1.0
        solved = torch.linalg.solve_triangular(self._factor, unit_vectors, upper=False)
        targets: Any = labels.of_rows(rows).targets().astype(np.float32).toarray()
        residuals = self._weights_of_rows(labels)[rows] / solved.square().sum(0)[:, None]
        return np.asarray(targets - residuals.numpy(), np.float32)

    def _weights_of_rows(self, labels: PathLabels) -> Tensor:
        """(XX' + c I)^-1 Y."""
        targets: Any = labels.targets().astype(np.float32).toarray()
        return self._solve(torch.from_numpy(targets))


class IterativeRidge(Ridge):
    """By conjugate gradients, where both matrices are too large: the normal equations up to a small residual.

    The preconditioner solves the equations of the largest features, and takes the others for independent: they are rare
    and seldom meet.
    """

    def _prepare(self) -> Tensor:
        cpu = torch.device("cpu")
        weighted = csr_array(diags_array(self._row_weights) @ self._design)
        self._rows, self._columns = SparseRows(self._design, cpu), SparseRows(csr_array(weighted.T), cpu)
        diagonal = np.asarray(weighted.multiply(self._design).sum(0)).ravel() + self._penalty
        self._diagonal = torch.from_numpy(diagonal).float()[:, None]
        largest = np.sort(np.argsort(-diagonal)[:_FEATURES_TOGETHER])
        matrix = torch.from_numpy(_gram(csr_array(self._design[:, largest]), self._row_weights))
        matrix.diagonal().add_(self._penalty)
        self._largest, self._factor = torch.from_numpy(largest), torch.linalg.cholesky(matrix.float())
        return torch.full((len(diagonal),), self._penalty)

    def _preconditioned(self, residual: Tensor) -> Tensor:
        found = residual / self._diagonal
        found[self._largest] = torch.cholesky_solve(residual[self._largest], self._factor)
        return found

    def _solve(self, sides: Tensor) -> Tensor:
        solution, residual = torch.zeros_like(sides), sides.clone()
        direction = self._preconditioned(residual)
        errors = (residual * direction).sum(0)
        goal = _SMALLEST_RESIDUAL**2 * errors
        for _ in range(_MOST_STEPS):
            is_open = errors > goal
            if not bool(is_open.any()):
                break
            image = product(self._columns, product(self._rows, direction)).add_(direction, alpha=self._penalty)
            step = torch.where(is_open, errors / (direction * image).sum(0), 0.0)
            solution.addcmul_(direction, step)
            residual.addcmul_(image, step, value=-1.0)
            corrected = self._preconditioned(residual)
            former, errors = errors, (residual * corrected).sum(0)
            direction.mul_(torch.where(is_open, errors / former, 0.0)).add_(corrected)
        else:
            from sklearn.exceptions import ConvergenceWarning

            warnings.warn(
                f"the path beside the networks is approximate: after {_MOST_STEPS} steps its error is still above "
                f"{_SMALLEST_RESIDUAL:.1%}; skip=None leaves it out",
                ConvergenceWarning,
                stacklevel=2,
            )
        return solution

    def _solution(self, labels: PathLabels) -> Tensor:
        """Some labels at once, because each needs several columns of memory."""
        moments = csc_array(self._moments(labels))
        solution = torch.empty(moments.shape)
        for first in range(0, moments.shape[1], _SIDES_AT_ONCE):
            part = slice(first, first + _SIDES_AT_ONCE)
            sides = moments[:, part].astype(np.float32).toarray(order="C")  # products are slow in the other order
            solution[:, part] = self._solve(torch.from_numpy(sides))
        return solution


def make_ridge(X: csr_array, row_weights: npt.NDArray[np.float64]) -> Ridge:
    """Solve the smaller equations."""
    rows, width = X.shape
    if min(rows / LARGEST_PART, width / LARGEST_WIDTH) > 1.0:
        return IterativeRidge(X, row_weights)
    return DualRidge(X, row_weights) if rows < width else NormalRidge(X, row_weights)


def _left_out(
    fitted: npt.NDArray[np.float32], targets: npt.NDArray[np.float32], leverage: npt.NDArray[np.float32]
) -> npt.NDArray[np.float32]:
    """Estimates of each row by the ridge regression of all others, from those of the regression of all rows."""
    rest = np.maximum(1.0 - leverage, _SMALLEST_REST).astype(np.float32)[:, None]
    return (fitted - (1.0 - rest) * targets) / rest


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


def _effective_parameters(penalties: Tensor, solve: Callable[[Tensor], Tensor]) -> float:
    """The trace of (X'X + c I)^-1 X'X = size - c tr (X'X + c I)^-1, by Hutchinson's estimator with random signs."""
    size = len(penalties)
    signs = torch.randint(0, 2, (size, _PROBES), generator=torch.Generator().manual_seed(0)).float() * 2.0 - 1.0
    return size - float((penalties[:, None] * signs * solve(signs)).sum() / _PROBES)


# Kernel

LARGEST_COUNT = 32_768
"""Rows, which the model keeps."""
LARGEST_TABLE = 1 << 25
"""Weights of a kernel path, rows x labels: every prediction multiplies them all."""
LARGEST_POINTS = 160_000_000
"""Entries of the rows that are kept."""
LARGEST_CORRECTED = 4_096
"""Labels whose estimates are corrected: a matrix of labels x labels is factorised."""
_FEWEST_ROWS = 100  # fewer tell too little of the quality of estimates
_ROWS_JUDGED = 4_096
_SIGNS = 256
_KERNEL_PENALTY, _CORRECTION_PENALTY, _CORRECTED_SHARE, _SMALLEST_KERNEL_WEIGHT = 0.1, 15.0, 0.75, 3.0


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
    return rows <= LARGEST_COUNT and rows * labels <= LARGEST_TABLE and rows * width <= LARGEST_POINTS


class KernelRegression:
    """Kernel ridge regression of scaled rows. A row of weight v has the penalty 0.1 / v, v relative to the mean.

    More rows than `rows_at_once` are divided into parts of equal size, each is solved alone, and estimates are the mean
    of the parts (Zhang, Duchi and Wainwright 2013). Two parts take less than half of the operations. Left-out estimates
    are then those of the row's own part.
    """

    def __init__(
        self,
        X: csr_array,
        labels: PathLabels,
        row_weights: npt.NDArray[np.float64],
        rows_at_once: int = LARGEST_PART,
    ) -> None:
        self._X, self._labels, self._row_weights = X, labels, row_weights
        self._parts = -(-X.shape[0] // rows_at_once)
        targets: Any = labels.targets().astype(np.float32).toarray()
        mean = (row_weights / row_weights.sum()).astype(np.float32) @ targets
        self.path = self._make_path(mean)
        self._left_out = targets  # filled part by part
        for part in range(self._parts):
            rows = slice(part, None, self._parts)
            penalties = (_KERNEL_PENALTY * row_weights.mean() / row_weights[rows]).astype(np.float32)
            solution, diagonal = _solve(self.path, X[rows], targets[rows] - mean, penalties)
            self.path.weight.data[rows] = torch.from_numpy(solution / self._parts)
            self._left_out[rows] -= solution / diagonal[:, None]
        self._judged = _judged_rows(X.shape[0], self._parts)
        self._judged_estimates = self._left_out[self._judged]
        if labels.propensity == 0 and labels.Y.shape[1] <= LARGEST_CORRECTED and self.has_enough_rows:
            self._correct(Correction(self._left_out, labels, row_weights))

    def _make_path(self, mean: npt.NDArray[np.float32]) -> KernelPath:
        """A path with all rows as points, whose weights are not known yet."""
        points = torch.from_numpy(self._X.T.toarray().astype(np.float32, order="C"))
        path = KernelPath(points.shape[0], points.shape[1], len(mean))
        path.points.data, path.bias.data = points, torch.from_numpy(mean)
        unit = float(np.sqrt(np.average(squared_norms(self._X), weights=self._row_weights))) or 1.0
        path.rate.data = torch.tensor(0.5 / unit)
        return path

    @property
    def has_enough_rows(self) -> bool:
        return bool(self._X.shape[0] >= _FEWEST_ROWS)

    def _correct(self, correction: Correction) -> None:
        """Correct the estimates where that helps."""
        labels, corrected = self._labels.of_rows(self._judged), correction.left_out_estimates(self._judged)
        if labels.quality(corrected) > labels.quality(self._judged_estimates):
            self._judged_estimates = corrected
            matrix = torch.from_numpy(correction.matrix)
            self.path.weight.data.lerp_(self.path.weight.data @ matrix, _CORRECTED_SHARE)
            self.path.bias.data.lerp_(self.path.bias.data @ matrix, _CORRECTED_SHARE)

    def is_better_than(self, ridge: FactorisedRidge) -> bool:
        """Whether left-out estimates are better than those of the linear regression of the same rows.

        With several parts, both are judged as fitted to the first part.
        """
        rows, step = slice(0, None, self._parts), self._judged.step // self._parts
        if self._parts > 1:
            ridge = type(ridge)(self._X[rows], self._row_weights[rows])
        linear = ridge.left_out_estimates(self._labels.of_rows(rows), slice(0, None, step))
        labels = self._labels.of_rows(self._judged)
        return labels.quality(self._judged_estimates) > labels.quality(linear)


def _judged_rows(rows: int, parts: int = 1) -> slice:
    """Rows of the first part, by which estimates are judged."""
    return slice(0, None, parts * -(-rows // (parts * _ROWS_JUDGED)))


class Correction:
    """Ridge regression of labels on the estimates (rows, labels) of all labels, each made without its row.

    matrix: C, (labels, labels).
    """

    def __init__(
        self, estimates: npt.NDArray[np.float32], labels: PathLabels, row_weights: npt.NDArray[np.float64]
    ) -> None:
        self._estimates, self._labels = estimates, labels
        self._row_weights = (row_weights / row_weights.mean()).astype(np.float32)
        weighted = estimates.T * self._row_weights
        matrix = weighted @ estimates
        matrix.reshape(-1)[:: len(matrix) + 1] += np.float32(_CORRECTION_PENALTY)
        self._factor = cho_factor(matrix, overwrite_a=True, check_finite=False)
        moments = (labels.targets().T @ weighted.T).T.astype(np.float32)
        self.matrix: npt.NDArray[np.float32] = cho_solve(self._factor, moments, check_finite=False)

    def left_out_estimates(self, rows: slice) -> npt.NDArray[np.float32]:
        """The corrected estimates of some rows, each by the regression of all others."""
        given = self._estimates[rows]
        solved = cho_solve(self._factor, given.T, check_finite=False).T
        leverage = (given * solved).sum(1) * self._row_weights[rows]
        targets = self._labels.of_rows(rows).targets().toarray().astype(np.float32)
        left_out = _left_out(given @ self.matrix, targets, leverage)
        return given + np.float32(_CORRECTED_SHARE) * (left_out - given)


def _solve(
    path: KernelPath, X: csr_array, targets: npt.NDArray[np.float32], penalties: npt.NDArray[np.float32]
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """(K + penalties)^-1 targets and the diagonal of (K + penalties)^-1, K the kernel of the rows.

    The diagonal is estimated with random signs (Bekas, Kokiopoulou and Saad 2007).
    """
    points = torch.from_numpy(X.T.toarray().astype(np.float32, order="C"))
    matrix = np.empty((len(penalties), len(penalties)), np.float32)  # only the lower triangle is filled and read
    shared = torch.from_numpy(matrix)  # torch writes with all threads: the first touch of memory takes seconds
    size = max(1, _PRODUCTS_AT_ONCE // len(penalties))
    for first in range(0, len(penalties), size):
        rows = SparseRows(X[first : first + size], torch.device("cpu"))
        last = first + rows.shape[0]
        shared[first:last, :last] = path.kernel(rows, points[:, :last])
    matrix.reshape(-1)[:: len(matrix) + 1] += penalties
    signs = np.random.default_rng(0).choice(np.array([-1.0, 1.0], np.float32), (len(penalties), _SIGNS))
    sides = np.empty((len(penalties), targets.shape[1] + signs.shape[1]), np.float32, order="F")
    sides[:, : targets.shape[1]], sides[:, targets.shape[1] :] = targets, signs
    # scipy's factorisation is faster than that of torch. It counts columns first, so the triangle is the upper one.
    factor = cho_factor(matrix.T, overwrite_a=True, check_finite=False)
    solved: Any = cho_solve(factor, sides, overwrite_b=True, check_finite=False)
    estimated = (signs * solved[:, targets.shape[1] :]).mean(1)
    # The kernel has eigenvalues of at least 0 and the diagonal 1.
    diagonal = np.clip(estimated, 1.0 / (1.0 + penalties), 1.0 / penalties).astype(np.float32)
    return solved[:, : targets.shape[1]], diagonal


# Both


LIMITS = {
    "linear": f"at most {LARGEST_SIZE:,} weights, features x labels, and with more than {LARGEST_WIDTH:,} features and "
    f"{LARGEST_PART:,} rows at most {LARGEST_WORK:,} products, entries of X x labels",
    "kernel": f"at most {LARGEST_COUNT:,} rows, {LARGEST_TABLE:,} weights, rows x labels, and {LARGEST_POINTS:,} "
    "values, rows x features",
}
"""The sizes that a path of each kind can have, for people."""


def fit_path(
    X: csr_array | Tensor,
    labels: PathLabels,
    row_weights: npt.NDArray[np.float64],
    kind: str,
    *,
    weight: float | None = None,
    largest_weight: float = 12.0,
    shard: Shard | None = None,
    rows_at_once: int = LARGEST_PART,
) -> LinearPath | KernelPath:
    """Fit a path to scaled rows.

    Args:
        kind: "linear" or "kernel"; "auto": the better one if the kernel path fits, otherwise "linear".
        weight: of a linear path beside the networks; None: from the effective number of parameters.
        largest_weight: the largest that follows from the effective number of parameters.
        shard: the labels that the path is to hold; None: all.
        rows_at_once: see `KernelRegression`.
    """
    held = slice(None) if shard is None else slice(shard.first, shard.last)
    rows = csr_array(X.cpu().numpy()) if isinstance(X, Tensor) else X
    ridge = make_ridge(rows, row_weights)
    by_data = min(largest_weight, ridge.weight)
    width, count = rows.shape[1], labels.Y.shape[1]
    if kind == "kernel" or (kind == "auto" and kernel_path_fits(rows.shape[0], width, count)):
        regression = KernelRegression(rows, labels, row_weights, rows_at_once)
        can_choose = kind == "auto" and width * count <= LARGEST_SIZE and regression.has_enough_rows
        if not (can_choose and isinstance(ridge, FactorisedRidge)) or regression.is_better_than(ridge):
            path = regression.path
            path.join(labels, max(by_data, _SMALLEST_KERNEL_WEIGHT))
            path.keep_labels(held)  # corrections need all labels
            return path
    return ridge.path(labels.select(held), by_data if weight is None else weight)
