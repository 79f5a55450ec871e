"""Code shared by the baselines: checking rows and labels, finding the best labels of a row, and ridge regression."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, hstack
from sklearn.base import BaseEstimator
from sklearn.preprocessing import normalize
from sklearn.utils.validation import check_is_fitted, validate_data

from plackett.arguments import check_positive
from plackett.data.containers import MultilabelData, label_matrix
from plackett.lists import IntArray
from plackett.metrics import multilabel_ndcg
from plackett.metrics.multilabel_kernels import rank_columns
from plackett.threads import run_over_ranges

FloatArray = npt.NDArray[np.floating[Any]]

SCORES_HELD = 1 << 24
_SCORED_PLACES = 5
_DENSE_ENTRIES_PER_STORED = 8
_NANOSECONDS = 1  # to inspect one score


class Baseline(BaseEstimator, ABC):
    """A classifier from sparse features to many labels. It computes in the precision of X, single or double.

    Args of all subclasses:
        normalise: whether to scale rows to length 1.
        bias: whether to add a feature that is 1 in every row.
        random_state: the seed.
        progress: whether to show a progress bar.
    """

    normalise: bool
    bias: bool
    n_labels_: int

    def _features(self, X: Any, *, reset: bool) -> csr_array:
        checked: Any = validate_data(self, X, reset=reset, accept_sparse="csr", dtype=[np.float32, np.float64])
        rows = csr_array(checked)
        if self.normalise:
            rows = normalize(rows)
        if self.bias:
            rows = hstack([rows, csr_array(np.ones((rows.shape[0], 1), rows.dtype))], format="csr")
        return csr_array(rows)

    def _training_data(self, X: Any, Y: Any) -> tuple[csr_array, csr_array]:
        if isinstance(X, MultilabelData):
            if Y is not None:
                raise ValueError("Y must be None when X is a MultilabelData, which already contains Y")
            X, Y = X.X, X.Y
        elif Y is None:
            raise ValueError("Y must be a matrix (rows, labels), got None")
        rows = self._features(X, reset=True)
        labels = label_matrix(Y, rows.shape[0]).astype(rows.dtype)
        if not (labels.data == 1).all():
            raise ValueError(f"Y must contain only 0 and 1, got {labels.data[labels.data != 1][0]}")
        if not labels.nnz:
            raise ValueError("Y must have at least one label in some row, got none")
        self.n_labels_ = int(labels.shape[1])
        return rows, labels

    @abstractmethod
    def _scores(self, rows: csr_array) -> FloatArray:
        """Return the scores of all labels, (rows, labels)."""

    def predict_top(self, X: Any, k: int = 5) -> tuple[IntArray, FloatArray]:
        """Return the k best labels of each row and their scores, best first, (rows, k) each.

        Among equal scores, the lower label comes first.
        """
        check_is_fitted(self, "n_labels_")
        k = check_positive("k", k)
        if k > self.n_labels_:
            raise ValueError(f"k must be at most the number of labels, {self.n_labels_}, got {k}")
        rows = self._features(X, reset=False)
        labels = np.empty((rows.shape[0], k), np.int64)
        scores = np.empty((rows.shape[0], k), rows.dtype)
        size = max(1, SCORES_HELD // self.n_labels_)
        for first in range(0, rows.shape[0], size):
            block = np.ascontiguousarray(self._scores(rows[first : first + size]))
            found = _top(block, k)
            labels[first : first + size] = found
            scores[first : first + size] = np.take_along_axis(block, found, 1)
        return labels, scores

    def score(self, X: Any, Y: Any = None) -> float:
        """Return nDCG@5, or nDCG over all places if there are fewer labels. Grid searches use this score."""
        if isinstance(X, MultilabelData):
            X, Y = X.X, X.Y
        k = min(_SCORED_PLACES, self.n_labels_)
        return float(multilabel_ndcg(self.predict_top(X, k)[0], Y, k=k))


def _top(scores: FloatArray, k: int) -> IntArray:
    """Return the columns with the k highest scores of each row, best first."""
    rows, columns = scores.shape
    offsets = np.arange(rows + 1, dtype=np.int64) * columns
    found = np.empty((rows, k), np.int64)
    flat, every_column = scores.reshape(-1), np.empty(0, np.int64)
    run_over_ranges(
        lambda first, last: int(rank_columns(first, last, flat, every_column, offsets, found)), offsets * _NANOSECONDS
    )
    return found


def gram_product(X: csr_array) -> Callable[[FloatArray], FloatArray]:
    """Return the function V -> X' X V. It forms X' X only if that is not much larger than X, and so is faster."""
    transposed = X.T.tocsr()
    if X.shape[1] ** 2 <= _DENSE_ENTRIES_PER_STORED * X.nnz:
        gram = (transposed @ X).toarray()
        return lambda V: gram @ V
    return lambda V: transposed @ (X @ V)


def solve_ridge(
    product: Callable[[FloatArray], FloatArray],
    B: FloatArray,
    penalty: float,
    *,
    scale: FloatArray | None = None,
    start: FloatArray | None = None,
    steps: int,
    tolerance: float,
) -> FloatArray:
    """Solve (s X' X + penalty) w = b for each column b of B, each with its own s, by conjugate gradients.

    Every step lowers s |X w|^2 / 2 + penalty |w|^2 / 2 - b' w. A column is done when its residual is at most
    `tolerance` times the length of b, or after `steps` steps.

    Args:
        product: V -> X' X V, see `gram_product`.
        scale: s of each column; None for ones.
        start: the initial w; None for zeros.
    """
    W = np.zeros_like(B) if start is None else start.copy()
    s = np.ones(B.shape[1], B.dtype) if scale is None else scale
    residual = B - (product(W) * s + penalty * W) if start is not None else B.copy()
    squares = _column_dots(residual, residual)
    limits = tolerance**2 * _column_dots(B, B)
    direction, columns = residual.copy(), np.arange(B.shape[1])
    for step in range(steps + 1):
        open_ = squares > limits[columns]
        if not open_.all():
            columns, squares = columns[open_], squares[open_]
            residual, direction = residual[:, open_], direction[:, open_]
        if not len(columns) or step == steps:
            break
        image = product(direction) * s[columns] + penalty * direction
        length = squares / _column_dots(direction, image)
        W[:, columns] += length * direction
        residual -= length * image
        before, squares = squares, _column_dots(residual, residual)
        direction *= squares / before
        direction += residual
    return W


def _column_dots(A: FloatArray, B: FloatArray) -> FloatArray:
    dots: FloatArray = np.einsum("ij,ij->j", A, B)
    return dots


def check_number(name: str, value: Any, least: float = 0.0) -> float:
    """Check that `value` is a finite number above `least`."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not least < value < np.inf:
        raise ValueError(f"{name} must be a number above {least:g}, got {value!r}")
    return float(value)
