"""A linear path from sparse features to all labels beside the networks, fitted in closed form by ridge regression.

Least squares of the labels, 1 for those a row has and 0 for the others, on scaled rows and a constant:

    W = (X'X + c I)^-1 X'Y,    c = 0.25 x mean squared norm of a row

All labels share the matrix, so one factorisation solves them all. The penalty holds rare labels back, whose few rows
cannot outweigh it. To balance this, each label's score has 0.25 x log inverse propensity (Jain et al. 2016) added.

The path is added to the mean score of the networks with a weight. Ridge regression is good where rows have many
features for their number, so that a linear function comes close to all that can be learned, and poor where they have
few. The effective number of parameters per row, r = tr(X (X'X + c I)^-1 X') / rows, tells these cases apart: the weight
is 300 r^2, at most 12. The constants were chosen on validation rows of Eurlex-4K (weight 12) and Delicious-1K (0.5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array, diags_array, hstack
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from plackett.neural.extreme_network import Rows

LARGEST_WIDTH = 10_000
"""Features: a matrix of features x features is factorised."""
LARGEST_SIZE = 1 << 27
"""Numbers in the path, features x labels."""
LARGEST_WEIGHT = 12.0
_PENALTY, _BALANCE = 0.25, 0.25
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
        penalty = _PENALTY * self._unit**2
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
        path.bias.data = solution[-1] * self._unit + labels.balance(_BALANCE * weight).float()
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
