"""Features for linear models: what all items of a list share does not affect its order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array, csr_array, hstack, issparse

from plackett.data.positions import Positions
from plackett.lists import IntArray

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

# Numbers of one list that differ by no more than this share of the largest may differ by the rounding of sums alone.
_ROUNDING = 8.0 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Scaled:
    """Features centred within lists and divided by scales.

    X       dense or CSR, zero in columns that do not vary
    scale   of each column: its standard deviation within lists; 1 if it does not vary, or is not to be standardised
    varies  whether a column differs within a list by more than rounding
    lost    whether it differs, but by no more than rounding
    """

    X: Any
    scale: Floats
    varies: Bools
    lost: Bools


def scaled_features(X: Any, offsets: IntArray, weights: Floats, *, standardise: bool) -> Scaled:
    """X, centred and scaled; lists count by their weights, so that one of weight 2 is a list seen twice.

    A sparse X stays sparse: zeros that are not stored stay zero, which gives the same order.

    Rows are first taken relative to the first of their list, which is exact for numbers close to each other: a
    column such as 1.7e9 + age keeps all digits of age.
    """
    centred: Any
    centred, variance, differs, varies = (_centred_sparse if issparse(X) else _centred_dense)(X, offsets, weights)
    scale = np.sqrt(np.where(varies & standardise, variance, 1.0))
    factor = np.where(varies, 1.0 / scale, 0.0)
    X = csr_array(centred.multiply(factor[None, :])) if issparse(X) else centred * factor
    return Scaled(X, scale, varies, differs & ~varies)


def _centred_dense(X: Floats, offsets: IntArray, weights: Floats) -> tuple[Floats, Floats, Bools, Bools]:
    """X centred within lists; for each column its variance, and whether it varies at all and by more than rounding."""
    filled = np.diff(offsets) > 0
    starts, sizes = offsets[:-1][filled], np.diff(offsets)[filled]
    shifted = X - np.repeat(X[starts], sizes, axis=0)
    spread, largest = (np.maximum.reduceat(np.abs(part), starts, axis=0) for part in (shifted, X))
    shifted -= np.repeat(np.add.reduceat(shifted, starts, axis=0) / sizes[:, None], sizes, axis=0)
    spread *= weights[filled, None] > 0.0
    differs, varies = (np.asarray(found.any(axis=0)) for found in (spread > 0.0, spread > _ROUNDING * largest))
    of_row = np.repeat(weights, np.diff(offsets))
    return shifted, of_row @ np.square(shifted) / of_row.sum(), differs, varies


def _centred_sparse(X: Any, offsets: IntArray, weights: Floats) -> tuple[Any, Floats, Bools, Bools]:
    """The same for CSR; a column is centred in the lists that store it for all their items."""
    columns = csc_array(X)
    width = X.shape[1]
    column = np.repeat(np.arange(width), np.diff(columns.indptr))
    of_list = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))[columns.indices]
    # The entries of a list in a column follow each other.
    begins = np.append(True, (of_list[1:] != of_list[:-1]) | (column[1:] != column[:-1]))[: len(column)]
    starts = np.flatnonzero(begins)
    if not len(starts):
        return X, np.zeros(width), np.zeros(width, bool), np.zeros(width, bool)
    count = np.diff(np.append(starts, len(column)))
    first, items = columns.data[starts], np.diff(offsets)[of_list[starts]]
    absent = items - count
    shifted = columns.data - np.repeat(first, count)
    mean = (np.add.reduceat(shifted, starts) - absent * first) / items
    squares = np.add.reduceat(np.square(shifted), starts) + absent * np.square(first) - items * np.square(mean)
    spread, largest = (np.maximum.reduceat(np.abs(part), starts) for part in (shifted, columns.data))
    weight = weights[of_list[starts]]
    spread = np.where(absent > 0, largest, spread) * (weight > 0.0)
    centred = np.where(np.repeat(absent == 0, count), shifted - np.repeat(mean, count), columns.data)
    differs, varies = (
        np.bincount(column[starts], found, width) > 0 for found in (spread > 0.0, spread > _ROUNDING * largest)
    )
    total = float(weights @ np.diff(offsets))
    variance = np.maximum(np.bincount(column[starts], weight * squares, width), 0.0) / total
    return csc_array((centred, columns.indices, columns.indptr), X.shape).tocsr(), variance, differs, varies


def largest_spread(scores: Floats, offsets: IntArray) -> float:
    """The largest difference of two scores of one list."""
    starts = offsets[:-1][np.diff(offsets) > 0]
    if len(starts) == 0:
        return 0.0
    return float((np.maximum.reduceat(scores, starts) - np.minimum.reduceat(scores, starts)).max())


def with_position_columns(X: Any, positions: Positions, offsets: IntArray) -> tuple[Any, Floats]:
    """X with columns for the differences of positions, and the basis of these: bias = basis @ coefficients.

    The columns of the basis are orthonormal and sum to 0, so that biases have mean 0, the constant that lists do not
    determine, and the sum of their squares is that of the coefficients. The new columns are centred within lists.
    """
    count = len(positions)
    basis = np.linalg.qr(np.eye(count)[:, 1:] - 1.0 / count)[0] if count > 1 else np.zeros((count, 0))
    columns = _centred_dense(basis[positions.codes], offsets, np.ones(len(offsets) - 1))[0]
    if not issparse(X):
        return np.hstack((X, columns)), basis
    sparse: Any = X
    return csr_array(hstack([sparse, csr_array(columns)])), basis
