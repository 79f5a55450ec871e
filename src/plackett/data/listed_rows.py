"""Rows of features with labels in the order of their lists: the one container of all rankers, trainers and kernels.

Everything that users give is checked here once. Features go through `as_features` or scikit-learn's `validate_data`
(`plackett.estimators.ranker`), the rest through `make_listed_rows`; code that gets a `ListedRows` need not check it.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.arguments import as_array, as_csr, as_numbers, check_sparse, is_missing, type_and_shape
from plackett.data.containers import rows_of_lists
from plackett.data.positions import Positions
from plackett.lists import IntArray, Lists, offsets_from_sizes

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ListedRows:
    """Labelled rows, those of a list next to each other.

    X             features, (rows, features): an array, CSR or a pandas table
    labels        (rows,), finite; higher is better, equal labels are tied
    lists         the offsets of the lists, and how to restore the order in which the rows were given
    weights       (lists,), at least 0
    name          what results call these rows
    positions     where the rows were shown; None: not given
    item_weights  (rows,), at least 0, of the rows within their lists; None: all equal
    """

    X: Any
    labels: Floats
    lists: Lists
    weights: Floats
    name: str = "train"
    positions: Positions | None = None
    item_weights: Floats | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def offsets(self) -> IntArray:
        """List b holds the rows offsets[b] to offsets[b+1] - 1."""
        return self.lists.offsets

    def select(self, lists: IntArray) -> ListedRows:
        """Some of the lists."""
        sizes = np.diff(self.offsets)[lists]
        return self._take(rows_of_lists(self.offsets, lists), sizes, self.weights[lists])

    def keep(self, kept: npt.NDArray[np.bool_]) -> ListedRows:
        """Some of the rows, by a mask; a list may become empty.

        For a Plackett-Luce model this is exact: what it says about some items of a list does not depend on the others.
        """
        before = np.concatenate(([0], np.cumsum(kept)))
        return self._take(np.flatnonzero(kept), np.diff(before[self.offsets]), self.weights)

    def _take(self, rows: IntArray, sizes: IntArray, weights: Floats) -> ListedRows:
        return ListedRows(
            take_rows(self.X, rows),
            self.labels[rows],
            Lists(offsets_from_sizes(sizes)),
            weights,
            self.name,
            None if self.positions is None else self.positions.take(rows),
            None if self.item_weights is None else self.item_weights[rows],
        )

    def between(self, first: int, last: int) -> ListedRows:
        """The rows first..last-1, which must be whole lists; empty lists are left out."""
        starts, ends = self.offsets[:-1], self.offsets[1:]
        kept = (starts >= first) & (ends <= last) & (ends > starts)
        offsets = np.append(starts[kept], last) - first
        return ListedRows(
            self.X[first:last], self.labels[first:last], Lists(offsets), self.weights[kept], self.name
        )  # fmt: skip


def make_listed_rows(X: Any, y: Any, lists: Lists, sample_weight: Any = None, name: str = "train") -> ListedRows:
    """Rows in the order of their lists, from checked features X and from y and sample_weight in the order of X."""
    labels = check_labels(y, X.shape[0])
    return ListedRows(take_rows(X, lists.rows), lists.sort(labels), lists, list_weights(sample_weight, lists), name)


def check_labels(y: Any, rows: int) -> Floats:
    """One finite label per row."""
    labels = as_numbers("y", y)
    if labels.shape != (rows,):
        raise ValueError(f"y must hold one label for each of the {rows} rows of X, got shape {labels.shape}")
    if not np.isfinite(labels).all():
        raise ValueError(f"y must be finite, got {labels[np.argmin(np.isfinite(labels))]}: Input y contains NaN")
    return labels


def list_weights(sample_weight: Any, lists: Lists) -> Floats:
    """One weight per list from one per row; the weights of a list's rows must be equal."""
    if sample_weight is None:
        return np.ones(len(lists))
    weights = as_numbers("sample_weight", sample_weight)
    if weights.shape != (lists.items,):
        raise ValueError(f"sample_weight must hold one value for each of the {lists.items} rows, got {weights.shape}")
    if not (np.isfinite(weights) & (weights >= 0.0)).all():
        raise ValueError(f"sample_weight must be finite and at least 0, got {weights.min()} to {weights.max()}")
    if not weights.any():
        raise ValueError("sample_weight must not be zero everywhere")
    ordered = lists.sort(weights)
    firsts = np.ones(len(lists))
    filled = lists.sizes > 0
    firsts[filled] = ordered[lists.offsets[:-1][filled]]
    differs = ordered != np.repeat(firsts, lists.sizes)
    if differs.any():
        at = int(np.argmax(differs))
        expected = np.repeat(firsts, lists.sizes)[at]
        raise ValueError(
            f"sample_weight must be constant within a list, because each list has one weight, got {expected} and "
            f"{ordered[at]} in one list: pass weights of items, such as inverse propensities, as item_weight="
        )
    return firsts


def check_item_weights(item_weight: Any, rows: int) -> Floats:
    """One weight of at least 0 per row."""
    weights = as_numbers("item_weight", item_weight)
    if weights.shape != (rows,):
        raise ValueError(f"item_weight must hold one value for each of the {rows} rows of X, got shape {weights.shape}")
    if not (np.isfinite(weights) & (weights >= 0.0)).all():
        raise ValueError(f"item_weight must be finite and at least 0, got {weights.min()} to {weights.max()}")
    return weights


def check_examined(examined: Any, labels: Floats) -> npt.NDArray[np.bool_]:
    """Which rows were seen: true or false, or 1 or 0. An item with a positive label, such as a click, was seen."""
    array = as_array("examined", examined)
    if array.shape != labels.shape:
        raise ValueError(
            f"examined must hold true or false for each of the {len(labels)} rows of X, got {type_and_shape(array)}"
        )
    if array.dtype != bool:
        numbers_ = as_numbers("examined", array)
        if not np.isin(numbers_, (0.0, 1.0)).all():
            raise ValueError(f"examined must hold true or false, got {numbers_[~np.isin(numbers_, (0.0, 1.0))][0]}")
        array = numbers_ == 1.0
    contradicting = ~array & (labels > 0.0)
    if contradicting.any():
        at = int(np.argmax(contradicting))
        raise ValueError(
            f"examined must be true where y is above 0, got false at row {at} with y = {labels[at]:g}: an item that "
            "was clicked was seen"
        )
    return array


def take_rows(X: Any, rows: IntArray | None) -> Any:
    if rows is None:
        return X
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


# Features


def is_frame(X: Any) -> bool:
    """Whether X is a table with named columns."""
    return hasattr(X, "columns") and hasattr(X, "dtypes")


def is_dask(collection: Any) -> bool:
    """Whether this is a Dask collection."""
    return hasattr(collection, "__dask_graph__")


def in_memory(X: Any) -> Any:
    """X unless it is lazy or on a cluster; nested lists become arrays, polars tables become pandas tables."""
    if X is None:
        raise ValueError("X must be rows of features, got None")
    if is_dask(X):
        raise ValueError(
            f"X must be in memory, got a Dask {type(X).__name__}: only fit and predict of BoostedRanker take one, "
            "and plackett.evaluation.evaluate its scores"
        )
    if hasattr(X, "collect") and not hasattr(X, "to_numpy"):
        raise ValueError(f"X must be a table in memory, got a {type(X).__name__}: pass X.collect()")
    if is_frame(X) and not hasattr(X, "iloc"):
        return X.to_pandas()
    if isinstance(X, np.ndarray) or not hasattr(X, "shape"):
        X = as_array("X", X)
    if not X.shape:
        raise ValueError(f"X must be rows of features, got {type_and_shape(X)}")
    return X


def as_rows(X: Any, *, categories: bool = False) -> Any:
    """X if it can be rows of features: an array, a sparse matrix, or a table of numbers (`categories`: or categories).

    This refuses input that scikit-learn and LightGBM would silently convert or misread: masked arrays, text that spells
    numbers, dates, complex numbers, indices out of range.
    """
    from scipy.sparse import issparse

    X = in_memory(X)
    if issparse(X):
        return check_sparse("X", X)
    if is_frame(X):
        _check_columns(X, categories)
    elif isinstance(X, np.ndarray):
        is_text = X.dtype.kind == "O" and any(isinstance(value, str | bytes) for value in X.flat)
        if is_text or X.dtype.kind in "USMm":
            raise ValueError(f"X must hold numbers, got {'texts' if is_text else X.dtype}")
    return X


def _check_columns(table: Any, categories: bool) -> None:
    """Raise ValueError at a column of a pandas table that models cannot be trained with, or cannot store."""
    kinds = list(table.dtypes.items())
    for number, (name, kind) in enumerate(kinds):
        if not _holds_numbers(table, number, kind, categories):
            allowed = "numbers, or categories that are texts or finite numbers" if categories else "numbers"
            raise ValueError(f"column {name!r} of X must hold {allowed}, got {kind}: leave it out, or convert it")
        if categories and str(name).splitlines() != [str(name)]:  # LightGBM stores all names in a line
            raise ValueError(f"column {name!r} of X must have a name of one line that is not empty")
    if categories:  # otherwise scikit-learn checks the numbers
        _refuse_infinity(table, [number for number, (_, kind) in enumerate(kinds) if not hasattr(kind, "categories")])


def _refuse_infinity(table: Any, columns: list[int]) -> None:
    """Raise ValueError at a number that is infinite."""
    found = table if len(columns) == table.shape[1] else table.iloc[:, columns]
    infinite = np.isinf(found.to_numpy(np.float64, na_value=np.nan))
    if infinite.any():
        name = found.columns[int(np.argmax(infinite.any(axis=0)))]
        raise ValueError(f"column {name!r} of X must hold finite numbers or NaN: Input X contains infinity")


def _holds_numbers(table: Any, number: int, kind: Any, categories: bool) -> bool:
    """Whether a column of a pandas table holds numbers, or categories if these are allowed."""
    if hasattr(kind, "categories"):
        if categories:
            return all(_is_plain(value) for value in kind.categories.tolist())
        return bool(kind.categories.dtype.kind in "biuf")
    if isinstance(kind, np.dtype) and kind.kind == "O":
        return all(isinstance(value, numbers.Real | Decimal) or is_missing(value) for value in table.iloc[:, number])
    return bool(kind.kind in "biuf")


def _is_plain(category: Any) -> bool:
    """Whether JSON can store a category."""
    return isinstance(category, str) or (isinstance(category, int | float) and math.isfinite(category))


def is_checked(X: Any, model: Any) -> bool:
    """Whether X needs no further check: a plain array of finite doubles with the features of the model.

    scikit-learn's checks take longer than scoring a few rows.
    """
    is_plain = type(X) is np.ndarray and X.dtype == np.float64 and X.ndim == 2 and len(X) > 0
    if not is_plain or hasattr(model, "feature_names_in_") or not 0 < X.shape[1] == model.n_features_in_:
        return False
    return math.isfinite(X.min()) and math.isfinite(X.max())


def as_features(X: Any, *, categories: bool, validate: Callable[..., Any] | None = None) -> Any:
    """Checked rows in a form that LightGBM takes: an array, a CSR matrix, or a pandas table unchanged.

    `validate` is `validate_data` of an estimator, which also compares names and number of features; None:
    `check_array`.
    """
    X = as_rows(X, categories=categories)
    if is_frame(X):
        if validate is not None:
            validate(X, skip_check_array=True)
        return X
    from scipy.sparse import csr_matrix, issparse
    from sklearn.utils.validation import check_array

    options: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}
    found = (validate or check_array)(X, ensure_all_finite="allow-nan", **options)
    return csr_matrix(as_csr("X", found)) if issparse(found) else found  # LightGBM does not take sparse arrays


def is_all_nan(X: Any) -> bool:
    """Whether features hold no number at all."""
    if hasattr(X, "indptr"):  # entries that are not stored are 0
        return False
    parts = (X[:1], X)  # usually the first row has a number, and the others need not be read
    return all(bool((part.isna().to_numpy() if is_frame(part) else np.isnan(part)).all()) for part in parts)
