"""What all rankers share: reading their arguments, ranks from scores, the score."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix
from sklearn.utils.validation import validate_data

from plackett.arguments import as_numbers, check_kind
from plackett.cluster import is_spread
from plackett.data.containers import Ballots, MultilabelData, RankingData
from plackett.estimators.saved import SavedModel
from plackett.lists import IntArray, Lists, make_lists
from plackett.metrics import ndcg


@dataclass
class ListedRows:
    """Rows sorted by list. `lists` remembers how they came."""

    X: Any
    labels: npt.NDArray[np.float64]
    lists: Lists
    weights: npt.NDArray[np.float64]  # one per list

    @property
    def offsets(self) -> IntArray:
        return self.lists.offsets


def is_frame(X: Any) -> bool:
    return hasattr(X, "columns") and hasattr(X, "dtypes")


def _count_rows(X: Any) -> int:
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def _take_rows(X: Any, rows: IntArray | None) -> Any:
    if rows is None:
        return X
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def _is_all_nan(X: Any) -> bool:
    if hasattr(X, "indptr"):  # what is not stored is 0
        return False
    parts = (X[:1], X)  # most often the first row has a number, and the others need not be read
    return all(bool((part.isna().to_numpy() if is_frame(part) else np.isnan(part)).all()) for part in parts)


def _list_weights(sample_weight: Any, lists: Lists) -> npt.NDArray[np.float64]:
    """Weights of lists from weights of rows, which must agree within a list."""
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
        raise ValueError(
            "sample_weight must be constant within a list, for lists are weighted as wholes, got "
            f"{ordered[np.argmax(differs)]} and others in one list"
        )
    return firsts


def evaluation_sets(eval_set: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names of evaluation sets, and X, y and qid of each."""
    if eval_set is None:
        return
    several = isinstance(eval_set, list)
    for number, one in enumerate(eval_set if several else [eval_set]):
        name = f"valid_{number}" if several and len(eval_set) > 1 else "valid"
        if isinstance(one, RankingData):
            yield name, {"X": one, "y": None}
        elif isinstance(one, tuple) and len(one) in (2, 3):
            yield name, dict(zip(("X", "y", "qid"), one, strict=False))
        else:
            raise ValueError(f"eval_set must be RankingData, (X, y, qid) or a list of them, got {type(one).__name__}")


class BaseRanker(SavedModel):
    """A model that gives every row a score; higher is better."""

    query_column: Any

    @abstractmethod
    def predict(self, X: Any) -> Any:
        """The scores of rows."""

    # Arguments

    def _split_query(self, X: Any, qid: Any) -> tuple[Any, Any]:
        """Features and qid; the latter from the column named `query_column`."""
        if is_spread(X):
            raise ValueError(
                f"X must be in memory, got a Dask {type(X).__name__}: only fit and predict of BoostedRanker take one, "
                "and plackett.evaluation.evaluate its scores"
            )
        if self.query_column is None:
            return X, qid
        if not is_frame(X):
            raise ValueError(f"query_column needs a DataFrame, got {type(X).__name__}")
        if qid is not None:
            raise ValueError("qid must be None when query_column is set, got both")
        if self.query_column not in X.columns:
            raise ValueError(f"query_column {self.query_column!r} is not among the columns {', '.join(X.columns)}")
        return X.drop(columns=[self.query_column]), X[self.query_column].to_numpy()

    def _features(self, X: Any, *, reset: bool) -> Any:
        """X in a form that LightGBM and friends take: an array, CSR, or a pandas table as it is."""
        if is_frame(X):
            X = X if hasattr(X, "iloc") else X.to_pandas()
            validate_data(self, X, reset=reset, skip_check_array=True)
            return X
        checked: Any = validate_data(
            self, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_all_finite="allow-nan"
        )
        return csr_matrix(checked) if hasattr(checked, "indptr") else checked  # LightGBM knows matrices only

    def _rows(
        self, X: Any, y: Any, qid: Any = None, group: Any = None, sample_weight: Any = None, *, reset: bool = False
    ) -> ListedRows:
        """Checked rows in the order of their lists."""
        if isinstance(X, RankingData):
            if y is not None or qid is not None or group is not None:
                raise ValueError("y, qid and group must be None when X is a RankingData, which holds them")
            y, group, X = X.y, np.diff(X.offsets), X.X
        elif isinstance(X, MultilabelData | Ballots):
            raise ValueError(f"X must be lists of items with features, got {type(X).__name__}")
        elif y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        else:
            X, qid = self._split_query(X, qid)
        X = self._features(X, reset=reset)
        labels = as_numbers("y", y)
        if labels.shape != (X.shape[0],):
            raise ValueError(f"y must hold one label for each of the {X.shape[0]} rows of X, got shape {labels.shape}")
        if not np.isfinite(labels).all():
            raise ValueError(f"y must be finite, got {labels[np.argmin(np.isfinite(labels))]}: Input y contains NaN")
        if qid is None and group is None:
            warnings.warn("neither qid nor group is given: all rows are taken as one list", stacklevel=4)
        lists = make_lists(X.shape[0], qid=qid, group=group)
        return ListedRows(_take_rows(X, lists.rows), lists.sort(labels), lists, _list_weights(sample_weight, lists))

    def _training_rows(self, X: Any, y: Any, qid: Any, group: Any, sample_weight: Any) -> ListedRows:
        """Rows from which something can be learned."""
        rows = self._rows(X, y, qid, group, sample_weight, reset=True)
        if len(rows.labels) < 2:
            raise ValueError(f"X must hold at least two rows, got {len(rows.labels)}: 1 sample cannot be ranked")
        if _is_all_nan(rows.X):
            raise ValueError("X must hold at least one number, got NaN alone")
        return rows

    def _evaluation_rows(self, eval_set: Any) -> Iterator[tuple[str, ListedRows]]:
        """Names and rows of evaluation sets, however they are given."""
        for name, arguments in evaluation_sets(eval_set):
            yield name, self._rows(**arguments)

    # What follows from scores

    def rank(self, X: Any, *, qid: Any = None, group: Any = None) -> npt.NDArray[np.int64]:
        """The place of each row within its list, from 1; equal scores in the order of rows."""
        X, qid = self._split_query(X, qid)
        lists = make_lists(_count_rows(X), qid=qid, group=group)
        scores = self._predict_lists(X, lists)
        number = np.repeat(np.arange(len(lists)), lists.sizes)
        order = np.lexsort((-lists.sort(scores), number))
        places = np.empty(len(scores), np.int64)
        places[order] = np.arange(len(scores)) - np.repeat(lists.offsets[:-1], lists.sizes) + 1
        return lists.restore(places)

    def predict_data(self, data: RankingData) -> npt.NDArray[Any]:
        """The scores of the rows of data that know their lists."""
        check_kind("data", data, RankingData)
        return self._predict_lists(data.X, Lists(data.offsets))

    def _predict_lists(self, X: Any, lists: Lists) -> npt.NDArray[Any]:  # noqa: ARG002 (for those that need it)
        """The scores of rows, in their order. Models that look at whole lists are told of them."""
        return np.asarray(self.predict(X))

    def score(self, X: Any, y: Any, *, qid: Any = None, group: Any = None, sample_weight: Any = None) -> float:
        """NDCG@10, the mean over lists that have a relevant item."""
        X, qid = self._split_query(X, qid)
        lists = make_lists(_count_rows(X), qid=qid, group=group)
        scores = self._predict_lists(X, lists)
        weights = _list_weights(sample_weight, lists)
        labels = as_numbers("y", y)
        return float(ndcg(lists.sort(scores), lists.sort(labels), k=10, offsets=lists.offsets, weights=weights))
