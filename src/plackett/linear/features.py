"""Features as linear models take them: what is the same for all items of a list has no bearing on its order."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse

from plackett.lists import IntArray

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

# The variance within lists of a column that is constant in each comes out as rounding: this share of its mean square.
_ROUNDING = 1e-14


def list_sums(X: Any, offsets: IntArray) -> Any:
    """The sum of the rows of each list, (lists, ...)."""
    items = int(offsets[-1])
    indicator = csr_array((np.ones(items), np.arange(items), offsets), (len(offsets) - 1, items))
    return indicator @ X


def scaled_features(X: Any, offsets: IntArray, *, standardise: bool) -> tuple[Any, Floats, Bools]:
    """X with columns centred within lists and divided by scales, the scales, and which columns vary within lists.

    The scale of a column is its standard deviation within lists; without `standardise`, or if it does not vary, 1.
    Columns that do not vary become zero. A sparse X stays sparse: it is not centred, which gives the same order.
    """
    is_sparse = bool(issparse(X))
    sizes = np.diff(offsets)
    square_mean = np.asarray((X.multiply(X) if is_sparse else np.square(X)).mean(axis=0)).reshape(-1)
    sums = list_sums(X, offsets)
    if is_sparse:
        of_means = sums.multiply(sums).multiply(1.0 / np.maximum(sizes, 1)[:, None]).sum(axis=0)
        variance = square_mean - np.asarray(of_means).reshape(-1) / X.shape[0]
    else:
        X = X - np.repeat(sums / np.maximum(sizes, 1)[:, None], sizes, axis=0)
        variance = np.square(X).mean(axis=0)
    varies = variance > _ROUNDING * square_mean
    scale = np.sqrt(np.where(varies & standardise, variance, 1.0))
    factor = np.where(varies, 1.0 / scale, 0.0)
    return (csr_array(X.multiply(factor[None, :])) if is_sparse else X * factor), scale, varies


def largest_spread(scores: Floats, offsets: IntArray) -> float:
    """The largest difference of two scores of one list."""
    starts = offsets[:-1][np.diff(offsets) > 0]
    if len(starts) == 0:
        return 0.0
    return float((np.maximum.reduceat(scores, starts) - np.minimum.reduceat(scores, starts)).max())
