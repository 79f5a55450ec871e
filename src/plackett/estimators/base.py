"""What all rankers share: reading their arguments, ranks from scores, the score."""

from __future__ import annotations

import numbers
import warnings
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, issparse
from sklearn.utils.validation import validate_data

from plackett.arguments import as_array, as_csr, as_numbers, check_kind, check_same_index, check_sparse, describe
from plackett.cluster import is_spread
from plackett.data.containers import Ballots, MultilabelData, RankingData
from plackett.estimators.saved import SavedModel
from plackett.lists import IntArray, Lists, is_missing, make_lists
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


def in_memory(X: Any) -> Any:
    """X as it is if it is there, not elsewhere nor yet to be computed; lists as arrays, tables of polars as pandas'."""
    if X is None:
        raise ValueError("X must be rows of features, got None")
    if is_spread(X):
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
        raise ValueError(f"X must be rows of features, got {describe(X)}")
    return X


def as_rows(X: Any, *, categories: bool = False) -> Any:
    """X if it can be rows of features: an array, a sparse matrix, or a table of numbers (`categories`: and of those).

    Refused is what scikit-learn and LightGBM would convert or read past: masks, texts that spell numbers, dates,
    imaginary parts, indices out of range.
    """
    X = in_memory(X)
    if issparse(X):
        return check_sparse("X", X)
    if is_frame(X):
        for number, (name, kind) in enumerate(X.dtypes.items()):
            if not _holds_numbers(X, number, kind, categories):
                raise ValueError(
                    f"column {name!r} of X must hold numbers{' or a category' if categories else ''}, got {kind}: "
                    "leave it out, or convert it"
                )
    elif isinstance(X, np.ndarray):
        is_text = X.dtype.kind == "O" and any(isinstance(value, str | bytes) for value in X.flat)
        if is_text or X.dtype.kind in "USMm":
            raise ValueError(f"X must hold numbers, got {'texts' if is_text else X.dtype}")
    return X


def _holds_numbers(table: Any, number: int, kind: Any, categories: bool) -> bool:
    """Whether a column of a pandas table does."""
    if hasattr(kind, "categories"):
        return categories or bool(kind.categories.dtype.kind in "biuf")
    if isinstance(kind, np.dtype) and kind.kind == "O":
        return all(isinstance(value, numbers.Real | Decimal) or is_missing(value) for value in table.iloc[:, number])
    return bool(kind.kind in "biuf")


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


_ROUTING = (
    "In grid search, cross-validation and pipelines scikit-learn passes qid on to score only if told so: "
    "sklearn.set_config(enable_metadata_routing=True), then GridSearchCV(...).fit(X, y, groups=qid, qid=qid) or "
    'cross_val_score(..., params={"groups": qid, "qid": qid})'
)


class BaseRanker(SavedModel):
    """A model that gives every row a score; higher is better."""

    query_column: Any
    takes_categories: ClassVar[bool] = False
    """Whether columns of a table may be categories."""

    # What scikit-learn's metadata routing hands to a ranker without being asked: lists are never optional.
    __metadata_request__fit: ClassVar = {"qid": True}
    __metadata_request__score: ClassVar = {"qid": True}

    @abstractmethod
    def predict(self, X: Any) -> Any:
        """The scores of rows."""

    # Arguments

    def _split_query(self, X: Any, qid: Any) -> tuple[Any, Any]:
        """Features and qid; the latter from the column named `query_column`."""
        if self.query_column is None:
            return X, qid
        if not is_frame(X):
            raise ValueError(f"query_column needs a DataFrame, got {type(X).__name__}")
        if qid is not None:
            raise ValueError("qid must be None when query_column is set, got both")
        if self.query_column not in X.columns:
            names = ", ".join(map(str, X.columns))
            raise ValueError(f"query_column {self.query_column!r} is not among the columns {names}")
        return X.drop(columns=[self.query_column]), X[self.query_column].to_numpy()

    def _given(self, X: Any, y: Any, qid: Any, group: Any, sample_weight: Any = None) -> tuple[Any, Any, Any, Any]:
        """X, y, qid and group, however they are given; their rows belong together."""
        if isinstance(X, RankingData):
            if y is not None or qid is not None or group is not None:
                raise ValueError("y, qid and group must be None when X is a RankingData, which holds them")
            return X.X, X.y, None, np.diff(X.offsets)
        if isinstance(X, MultilabelData | Ballots):
            raise ValueError(f"X must be lists of items with features, got {type(X).__name__}")
        X = in_memory(X)
        check_same_index(X=X, y=y, qid=qid, sample_weight=sample_weight)
        X, qid = self._split_query(X, qid)
        return X, y, qid, group

    def _to_predict(self, X: Any) -> Any:
        """Features of rows whose lists do not matter: of a RankingData, or of a table with or without its query."""
        if isinstance(X, RankingData):
            return X.X
        X = in_memory(X)
        has_query = self.query_column is not None and self.query_column in getattr(X, "columns", ())
        return self._split_query(X, None)[0] if has_query else X

    def _features(self, X: Any, *, reset: bool) -> Any:
        """X in a form that LightGBM and friends take: an array, CSR, or a pandas table as it is."""
        X = as_rows(X, categories=self.takes_categories)
        if is_frame(X):
            validate_data(self, X, reset=reset, skip_check_array=True)
            return X
        checked: Any = validate_data(
            self, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_all_finite="allow-nan"
        )
        return csr_matrix(as_csr("X", checked)) if issparse(checked) else checked  # LightGBM knows matrices only

    def _rows(
        self, X: Any, y: Any, qid: Any = None, group: Any = None, sample_weight: Any = None, *, reset: bool = False
    ) -> ListedRows:
        """Checked rows in the order of their lists."""
        if y is None and not isinstance(X, RankingData | MultilabelData | Ballots):
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        X, y, qid, group = self._given(X, y, qid, group, sample_weight)
        X = self._features(X, reset=reset)
        labels = self._labels(y, X.shape[0])
        if qid is None and group is None:
            warnings.warn("neither qid nor group is given: all rows are taken as one list", stacklevel=4)
        lists = make_lists(X.shape[0], qid=qid, group=group)
        return ListedRows(_take_rows(X, lists.rows), lists.sort(labels), lists, _list_weights(sample_weight, lists))

    def _labels(self, y: Any, rows: int) -> npt.NDArray[np.float64]:
        labels = as_numbers("y", y)
        if labels.shape != (rows,):
            raise ValueError(f"y must hold one label for each of the {rows} rows of X, got shape {labels.shape}")
        if not np.isfinite(labels).all():
            raise ValueError(f"y must be finite, got {labels[np.argmin(np.isfinite(labels))]}: Input y contains NaN")
        return labels

    def _training_rows(self, X: Any, y: Any, qid: Any, group: Any, sample_weight: Any) -> ListedRows:
        """Rows from which something can be learned."""
        rows = self._rows(X, y, qid, group, sample_weight, reset=True)
        if len(rows.labels) < 2:
            raise ValueError(f"X must hold at least two rows, got {len(rows.labels)}: 1 sample cannot be ranked")
        if _is_all_nan(rows.X):
            raise ValueError("X must hold at least one number, got NaN alone")
        return rows

    def _evaluation_sets(self, eval_set: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        """Names of evaluation sets, and X, y and qid of each."""
        if eval_set is None:
            return
        several = isinstance(eval_set, list)
        for number, one in enumerate(eval_set if several else [eval_set]):
            name = f"valid_{number}" if several and len(eval_set) > 1 else "valid"
            if isinstance(one, RankingData):
                yield name, {"X": one, "y": None}
            elif isinstance(one, tuple) and len(one) in (2, 3):
                given = dict(zip(("X", "y", "qid"), one, strict=False))
                if given.get("qid") is None and self.query_column is None:
                    raise ValueError(
                        "eval_set must say which list each row belongs to, got X and y without qid: pass (X, y, qid), "
                        "for a single list with np.zeros(len(y)) as qid"
                    )
                yield name, given
            else:
                raise ValueError(
                    f"eval_set must be RankingData, (X, y, qid) or a list of them, got {type(one).__name__}"
                )

    def _evaluation_rows(self, eval_set: Any) -> Iterator[tuple[str, ListedRows]]:
        """Names and rows of evaluation sets, however they are given."""
        for name, arguments in self._evaluation_sets(eval_set):
            yield name, self._rows(**arguments)

    # What follows from scores

    def _lists(self, method: str, X: Any, qid: Any, group: Any) -> Lists:
        """The lists of rows to be ranked; without any, an error: all rows as one list are a guess, mostly wrong."""
        if qid is None and group is None:
            self._features(X, reset=False)  # a wrong X is the first thing to say
            raise ValueError(
                f"{method} must be given the lists, got neither qid nor group: pass qid= (one value per row) or group= "
                f"(sizes of consecutive lists; group=[{X.shape[0]}] for a single one). " + _ROUTING
            )
        return make_lists(X.shape[0], qid=qid, group=group)

    def rank(self, X: Any, *, qid: Any = None, group: Any = None) -> npt.NDArray[np.int64]:
        """The place of each row within its list, from 1; equal scores in the order of rows. X: or a RankingData."""
        X, _, qid, group = self._given(X, None, qid, group)
        lists = self._lists("rank", X, qid, group)
        scores = self._predict_lists(X, lists)
        if np.isnan(scores).any():
            raise ValueError(f"scores must be numbers to be ranked, got NaN for row {int(np.argmax(np.isnan(scores)))}")
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

    def score(self, X: Any, y: Any = None, *, qid: Any = None, group: Any = None, sample_weight: Any = None) -> float:
        """NDCG@10, the mean over lists that have a relevant item. X: features, or a RankingData, which holds the rest.

        In grid search and cross-validation scikit-learn passes qid on if its metadata routing is on:
        `sklearn.set_config(enable_metadata_routing=True)`.
        """
        X, y, qid, group = self._given(X, y, qid, group, sample_weight)
        lists = self._lists("score", X, qid, group)
        labels = self._labels(y, X.shape[0])
        scores = self._predict_lists(X, lists)
        weights = _list_weights(sample_weight, lists)
        return float(ndcg(lists.sort(scores), lists.sort(labels), k=10, offsets=lists.offsets, weights=weights))
