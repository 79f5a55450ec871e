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

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array, diags_array, hstack
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from plackett.losses.shard import Shard
from plackett.neural.extreme_network import Rows

LARGEST_WIDTH = 10_000
"""Features: a matrix of features x features is factorised."""
LARGEST_SIZE = 1 << 27
"""Numbers in the path, features x labels."""
_PENALTY, _BALANCE = 0.25, 0.25
_WEIGHT_OF_SQUARE, _LARGEST_WEIGHT = 300.0, 12.0
_PROBES = 64


class LinearPath(nn.Module):
    """Scores rows @ weight + bias; weight (features, labels)."""

    def __init__(self, width: int, labels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width, labels), requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(labels), requires_grad=False)

    def forward(self, rows: Rows) -> Tensor:
        if isinstance(rows, Tensor):
            return rows @ self.weight + self.bias
        product: Tensor = embedding_bag(
            rows.columns, self.weight, rows.offsets, per_sample_weights=rows.values, mode="sum",
            include_last_offset=True,
        )  # fmt: skip
        return product + self.bias


def path_fits(width: int, labels: int) -> bool:
    """Whether the path is small enough to be fitted and stored."""
    return width <= LARGEST_WIDTH and width * labels <= LARGEST_SIZE


def fit_linear_path(
    X: csr_array,
    Y: csr_array,
    row_weights: npt.NDArray[np.float64],
    inverse_propensity: npt.NDArray[np.float64],
    propensity: float = 0.0,
    weight: float | None = None,
    shard: Shard | None = None,
) -> LinearPath:
    """Fit to scaled rows.

    Args:
        X: features.
        Y: the stored entries are the labels of a row.
        row_weights: one per row, relative to their mean: a row of weight 2 is not the same as two rows.
        inverse_propensity: one per label.
        propensity: 0 predicts labels as observed; otherwise a label that a row has counts as its inverse propensity to
            this power, which takes the place of the balance for rare labels.
        weight: of the path beside the networks; None: from the effective number of parameters.
        shard: the labels to fit; None: all.
    """
    shard = Shard(Y.shape[1]) if shard is None else shard
    Y, inverse_propensity = Y[:, shard.first : shard.last], inverse_propensity[shard.first : shard.last]
    unit = float(np.sqrt(np.average(_squared_norms(X), weights=row_weights))) or 1.0
    constant = np.full((X.shape[0], 1), unit)
    design: Any = hstack([X.astype(np.float64), csr_array(constant)], format="csr")
    targets = csr_array(((inverse_propensity**propensity)[Y.indices], Y.indices, Y.indptr), shape=Y.shape)
    weighted = (diags_array(row_weights / row_weights.mean()) @ design).T.tocsr()  # (features + 1, rows)
    penalty = _PENALTY * unit**2
    matrix = torch.from_numpy((weighted @ design).toarray())
    matrix.diagonal().add_(penalty)
    factor = torch.linalg.cholesky(matrix)
    if weight is None:
        share = _effective_parameters(factor, penalty) / X.shape[0]
        weight = min(_LARGEST_WEIGHT, _WEIGHT_OF_SQUARE * share**2)
    solution = torch.cholesky_solve(torch.from_numpy((weighted @ targets).toarray()), factor) * weight
    path = LinearPath(X.shape[1], Y.shape[1])
    path.weight.data = solution[:-1].float().contiguous()
    balance = np.log(inverse_propensity) * (_BALANCE * weight if propensity == 0 else 0.0)
    path.bias.data = (solution[-1] * unit + torch.from_numpy(balance)).float()
    return path


def _squared_norms(X: csr_array) -> npt.NDArray[np.float64]:
    row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    return np.asarray(np.bincount(row, X.data.astype(np.float64) ** 2, X.shape[0]), np.float64)


def _effective_parameters(factor: Tensor, penalty: float) -> float:
    """The trace of (X'X + c I)^-1 X'X = size - c tr (X'X + c I)^-1, by Hutchinson's estimator with random signs."""
    size = len(factor)
    signs = torch.randint(0, 2, (size, _PROBES), generator=torch.Generator().manual_seed(0)).double() * 2.0 - 1.0
    trace = float((signs * torch.cholesky_solve(signs, factor)).sum() / _PROBES)
    return size - penalty * trace
