"""LEML: low-rank least squares from features to labels (Yu et al. 2014).

For rows X (n, d) and labels Y (n, L) of zeros and ones, W (d, r) and H (L, r) minimise

    J(W, H) = |Y - X W H'|^2 / 2 + penalty (|W|^2 + |H|^2) / 2

over all n L entries, zeros as well as ones. The scores of a row x are H W' x. We minimise J over W and H in turn. Each
half is a ridge regression, so J never rises, and no matrix of size n x L is ever formed:

    over H     H = Y' A (A' A + penalty)^-1,   A = X W                               factor an r x r matrix
    over W     X' X W (H' H) + penalty W = X' Y H                                    conjugate gradients

Rotating W and H to the basis of the eigenvectors of H' H changes neither W H' nor J. In that basis the second equation
splits into one system per column, (e_j X' X + penalty) w_j = b_j. The identity

    |Y - A H'|^2 = |Y|^2 - 2 <Y H, A> + <A' A, H' H>

needs only the ones of Y. H starts as the right singular vectors of Y times the square roots of their singular values,
and W starts at zero.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh
from scipy.sparse import csr_array
from sklearn.utils.extmath import randomized_svd

from plackett.arguments import check_positive
from plackett.experiments.baselines.base import Baseline, FloatArray, check_number, gram_product, solve_ridge
from plackett.progress import progress_bar


class LEML(Baseline):
    """Low-rank least squares from features to labels.

    Args:
        rank: r, the number of dimensions between features and labels.
        penalty: the weight of the squared norms of W and H.
        alternations: how often to solve both halves.
        steps, tolerance: limits of the conjugate gradients in each alternation, see `solve_ridge`.
        normalise, bias, random_state, progress: see `Baseline`.

    Attributes:
        W_, H_: the factors. objectives_: J after each alternation.

    >>> from plackett.data import make_multilabel
    >>> data = make_multilabel(400, 600, 30, labels_per_row=2, features_per_row=30, signal=0.5, random_state=0)
    >>> labels, scores = LEML(rank=10, random_state=0).fit(data).predict_top(data.X, 3)
    >>> labels.shape
    (400, 3)
    """

    W_: FloatArray
    H_: FloatArray
    objectives_: list[float]

    def __init__(
        self,
        rank: int = 100,
        penalty: float = 1.0,
        *,
        alternations: int = 10,
        steps: int = 10,
        tolerance: float = 1e-3,
        normalise: bool = True,
        bias: bool = True,
        random_state: int | np.random.Generator | None = None,
        progress: bool = True,
    ) -> None:
        self.rank = rank
        self.penalty = penalty
        self.alternations = alternations
        self.steps = steps
        self.tolerance = tolerance
        self.normalise = normalise
        self.bias = bias
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, Y: Any = None) -> Self:
        """Fit to features X and labels Y of zeros and ones, sparse or dense; or to a MultilabelData."""
        rank, penalty = check_positive("rank", self.rank), check_number("penalty", self.penalty)
        check_positive("alternations", self.alternations)
        check_positive("steps", self.steps)
        check_number("tolerance", self.tolerance)
        rows, labels = self._training_data(X, Y)
        if rank > min(labels.shape):
            raise ValueError(f"rank must be at most the numbers of rows and labels, {labels.shape}, got {rank}")
        product = gram_product(rows)
        W = np.zeros((rows.shape[1], rank), rows.dtype)
        H = _start(labels, rank, self.random_state)
        self.objectives_ = []
        with progress_bar("LEML", self.alternations, self.progress) as update:
            for number in range(self.alternations):
                update(number, f"objective {self.objectives_[-1]:,.1f}" if number else "")
                eigenvalues, basis = eigh(H.T @ H)
                H, W = H @ basis, W @ basis
                W = solve_ridge(
                    product, rows.T @ (labels @ H), penalty, scale=np.maximum(eigenvalues, 0.0), start=W,
                    steps=self.steps, tolerance=self.tolerance,
                )  # fmt: skip
                A = rows @ W
                H = best_labels(A, labels, penalty)
                self.objectives_.append(objective(A, H, W, labels, penalty))
        self.W_, self.H_ = W, H
        return self

    def _scores(self, rows: csr_array) -> FloatArray:
        scores: FloatArray = (rows @ self.W_) @ self.H_.T
        return scores


def _start(labels: csr_array, rank: int, random_state: int | np.random.Generator | None) -> FloatArray:
    seed = np.random.default_rng(random_state).integers(2**31)  # scikit-learn takes no Generator
    _, singular, right = randomized_svd(labels, rank, random_state=int(seed))
    found: FloatArray = np.ascontiguousarray((right.T * np.sqrt(singular)).astype(labels.dtype))
    return found


def best_labels(A: FloatArray, labels: csr_array, penalty: float) -> FloatArray:
    """Return the H that minimises J, given X W = A."""
    gram = A.T @ A
    gram[np.diag_indices_from(gram)] += penalty
    found: FloatArray = cho_solve(cho_factor(gram), (labels.T @ A).T).T
    return found


def objective(A: FloatArray, H: FloatArray, W: FloatArray, labels: csr_array, penalty: float) -> float:
    """Return J, given A = X W. Large terms cancel, so sums use double precision."""
    fit = labels.nnz - 2.0 * np.sum((labels @ H) * A, dtype=np.float64) + np.sum((A.T @ A) * (H.T @ H), dtype=float)
    squares = np.sum(W * W, dtype=np.float64) + np.sum(H * H, dtype=np.float64)
    return float(0.5 * fit + 0.5 * penalty * squares)
