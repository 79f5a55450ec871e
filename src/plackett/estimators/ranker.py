"""The base classes of all rankers: reading their arguments, clicks and positions, ranks from scores, and `score`."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from types import NoneType
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from plackett.arguments import as_features, check_kind, check_same_index, in_memory, is_all_nan, is_checked, is_frame
from plackett.data.containers import Ballots, MultilabelData, RankingData
from plackett.data.listed_rows import (
    ListedRows,
    check_examined,
    check_item_weights,
    check_labels,
    list_weights,
    make_listed_rows,
)
from plackett.data.positions import PositionBias, make_positions
from plackett.data.preference_graphs import PreferenceGraphs
from plackett.data.untrusted import field
from plackett.estimators.lightgbm_arguments import evaluation_sets
from plackett.estimators.persistence import SavedModel
from plackett.lists import Lists, make_lists
from plackett.metrics import ndcg

_ROUTING = (
    "In grid search, cross-validation and pipelines scikit-learn passes qid to score only with metadata routing: "
    "sklearn.set_config(enable_metadata_routing=True), then GridSearchCV(...).fit(X, y, groups=qid, qid=qid) or "
    'cross_val_score(..., params={"groups": qid, "qid": qid})'
)


def check_graph_options(objective: Any, given: dict[str, Any]) -> None:
    """Raise ValueError if an argument is given that cannot be combined with graphs of preferences."""
    if objective != "partition":
        raise ValueError(f"objective must be 'partition' for graphs of preferences, got {objective!r}")
    for name, value in given.items():
        if value is not None:
            remedy = "they hold lists and weights" if name in ("qid", "group", "sample_weight") else "leave it out"
            raise ValueError(f"{name} cannot be combined with graphs of preferences: {remedy}")


def ranks_of(scores: npt.NDArray[Any], lists: Lists) -> npt.NDArray[np.int64]:
    """The place of each row within its list, from 1; equal scores keep the order of rows."""
    number = np.repeat(np.arange(len(lists)), lists.sizes)
    order = np.lexsort((-lists.sort(scores), number))
    places = np.empty(len(scores), np.int64)
    places[order] = np.arange(len(scores)) - np.repeat(lists.offsets[:-1], lists.sizes) + 1
    return lists.restore(places)


class BaseRanker(SavedModel, BaseEstimator):
    """A model that gives every row a score; higher is better."""

    query_column: Any
    first_feature_: int = 0
    """The number of the first feature, for messages and reports: 1 if the training data came from a LETOR file."""
    takes_categories: ClassVar[bool] = False
    """Whether columns of a table may be categorical."""

    # scikit-learn's metadata routing always passes qid to a ranker: lists are never optional.
    __metadata_request__fit: ClassVar = {"qid": True}
    __metadata_request__score: ClassVar = {"qid": True}

    @abstractmethod
    def predict(self, X: Any) -> Any:
        """The scores of rows."""

    def feature_labels(self) -> list[str]:
        """What reports call the features: names of the table's columns, else numbers as in the file or array."""
        names = getattr(self, "feature_names_in_", None)
        first = self.first_feature_
        return [str(name) for name in (range(first, first + self.n_features_in_) if names is None else names)]

    # Arguments

    def _without_row_columns(self, X: Any) -> Any:
        """X without the columns that are not features; see `ClickRanker`."""
        return X

    def _split_query(self, X: Any, qid: Any) -> tuple[Any, Any]:
        """Features and qid; the latter from the column named `query_column`, if that is set."""
        X = self._without_row_columns(X)
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

    def _read_input(
        self, X: Any, y: Any, qid: Any, group: Any, sample_weight: Any = None
    ) -> tuple[Any, Any, Lists | None]:
        """Features, labels and lists in any form that users have them; None if there are no lists."""
        if isinstance(X, RankingData):
            if y is not None or qid is not None or group is not None:
                raise ValueError("y, qid and group must be None when X is a RankingData, which holds them")
            return X.X, X.y, Lists(X.offsets)
        if isinstance(X, MultilabelData | Ballots):
            raise ValueError(f"X must be lists of items with features, got {type(X).__name__}")
        X = in_memory(X)
        check_same_index(X=X, y=y, qid=qid, sample_weight=sample_weight)
        X, qid = self._split_query(X, qid)
        return X, y, None if qid is None and group is None else make_lists(X.shape[0], qid=qid, group=group)

    def _to_predict(self, X: Any) -> Any:
        """The features of rows whose lists do not matter: RankingData, or a table with or without its query column."""
        if isinstance(X, RankingData):
            return X.X
        X = self._without_row_columns(in_memory(X))
        has_query = self.query_column is not None and self.query_column in getattr(X, "columns", ())
        return self._split_query(X, None)[0] if has_query else X

    def _features(self, X: Any, *, reset: bool) -> Any:
        """X as an array, a CSR matrix, or a pandas table unchanged."""
        if not reset and is_checked(X, self):
            return X
        return as_features(X, categories=self.takes_categories, validate=partial(validate_data, self, reset=reset))

    def _rows(
        self,
        X: Any,
        y: Any,
        qid: Any = None,
        group: Any = None,
        sample_weight: Any = None,
        *,
        name: str = "train",
        reset: bool = False,
    ) -> ListedRows:
        """Checked rows in the order of their lists."""
        if y is None and not isinstance(X, RankingData | MultilabelData | Ballots):
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        X, y, lists = self._read_input(X, y, qid, group, sample_weight)
        X = self._features(X, reset=reset)
        rows = make_listed_rows(X, y, make_lists(X.shape[0]) if lists is None else lists, sample_weight, name)
        if lists is None:
            warnings.warn("neither qid nor group is given: all rows are taken as one list", stacklevel=4)
        return rows

    def _training_rows(self, X: Any, y: Any, qid: Any, group: Any, sample_weight: Any) -> ListedRows:
        """Rows that a model can learn from."""
        rows = self._rows(X, y, qid, group, sample_weight, reset=True)
        self.first_feature_ = X.first_feature if isinstance(X, RankingData) else 0
        if len(rows) < 2:
            raise ValueError(f"X must hold at least two rows, got {len(rows)}: 1 sample cannot be ranked")
        if is_all_nan(rows.X):
            raise ValueError("X must hold at least one number, got only NaN")
        return rows

    def _graph_rows(self, X: Any, graphs: PreferenceGraphs) -> ListedRows:
        """The rows of graphs whose entries are the rows of X, in lists as the graphs have them; their labels are 0."""
        rows = len(graphs.items)
        graphs.check_acyclic()
        if isinstance(X, RankingData) or getattr(X, "shape", (len(X),))[0] != rows:
            raise ValueError(f"X must have one row of features for each of the {rows} entries of the graphs")
        found = self._training_rows(X, np.zeros(rows), None, np.diff(graphs.offsets), None)
        return replace(found, weights=graphs.weights)

    def _evaluation_sets(self, eval_set: Any, **options: Any) -> Iterator[tuple[str, dict[str, Any]]]:
        """The names of evaluation sets, and X, y and qid or group of each; `options`: see `evaluation_sets`."""
        for name, given in evaluation_sets(eval_set, **options):
            is_listed = isinstance(given["X"], RankingData) or self.query_column is not None
            if not is_listed and given.get("qid") is None and given.get("group") is None:
                raise ValueError(
                    "eval_set must say which list each row belongs to, got X and y without qid: pass (X, y, qid), for "
                    "a single list with np.zeros(len(y)) as qid, or eval_group"
                )
            yield name, given

    def _evaluation_rows(self, eval_set: Any, **options: Any) -> Iterator[tuple[str, ListedRows]]:
        """The names and rows of evaluation sets."""
        for name, arguments in self._evaluation_sets(eval_set, **options):
            yield name, self._rows(**arguments, name=name)

    # Ranks and the score

    def _need_lists(self, method: str, X: Any, lists: Lists | None) -> Lists:
        """The lists of rows to be ranked. Without any it is an error: one list of all rows is mostly a wrong guess."""
        if lists is not None:
            return lists
        self._features(X, reset=False)  # report a wrong X first
        raise ValueError(
            f"{method} must be given the lists, got neither qid nor group: pass qid= (one value per row) or group= "
            f"(sizes of consecutive lists; group=[{X.shape[0]}] for a single one). " + _ROUTING
        )

    def rank(self, X: Any, *, qid: Any = None, group: Any = None) -> npt.NDArray[np.int64]:
        """The place of each row within its list, from 1; equal scores keep the order of rows. X: or a RankingData."""
        X, _, given = self._read_input(X, None, qid, group)
        lists = self._need_lists("rank", X, given)
        return ranks_of(self._predict_lists(X, lists), lists)

    def predict_data(self, data: RankingData) -> npt.NDArray[Any]:
        """The scores of the rows of a RankingData."""
        check_kind("data", data, RankingData)
        return self._predict_lists(data.X, Lists(data.offsets))

    def _predict_lists(self, X: Any, lists: Lists) -> npt.NDArray[Any]:  # noqa: ARG002 (for models that need it)
        """The scores of rows, in their order; models that look at whole lists use `lists`."""
        return np.asarray(self.predict(X))

    def score(self, X: Any, y: Any = None, *, qid: Any = None, group: Any = None, sample_weight: Any = None) -> float:
        """NDCG@10, the mean over lists that have a relevant item. X: features, or a RankingData, which holds the rest.

        In grid search and cross-validation scikit-learn passes qid only with metadata routing:
        `sklearn.set_config(enable_metadata_routing=True)`.
        """
        X, y, given = self._read_input(X, y, qid, group, sample_weight)
        lists = self._need_lists("score", X, given)
        labels = check_labels(y, X.shape[0])
        scores = self._predict_lists(X, lists)
        weights = list_weights(sample_weight, lists)
        return float(ndcg(lists.sort(scores), lists.sort(labels), k=10, offsets=lists.offsets, weights=weights))


@dataclass(frozen=True)
class ClickColumns:
    """What `fit` was given for each row besides features and labels, in the order of the rows; None: not given."""

    position: Any = None
    examined: Any = None
    item_weight: Any = None


class ClickRanker(BaseRanker):
    """A ranker whose `fit` takes `position`, `examined` and `item_weight`.

    Attributes:
        position_bias_: a `plackett.data.PositionBias`; None if the model was fitted without `position`.
        row_columns_: the columns of a table that `fit` took for these arguments; `predict` ignores them.
    """

    position_bias_: PositionBias | None
    row_columns_: list[str]

    __metadata_request__fit: ClassVar = {"qid": True, "position": True, "examined": True, "item_weight": True}

    def _without_row_columns(self, X: Any) -> Any:
        named = [name for name in getattr(self, "row_columns_", ()) if name in getattr(X, "columns", ())]
        return X.drop(columns=named) if named else X

    def _click_columns(self, X: Any, position: Any, examined: Any, item_weight: Any) -> ClickColumns:
        """The arguments of `fit`, with those that name a column of X replaced by the column. Sets `row_columns_`."""
        given = {"position": position, "examined": examined, "item_weight": item_weight}
        self.row_columns_ = [column for column in given.values() if isinstance(column, str)]
        if not isinstance(X, RankingData):
            indexed = {name: value for name, value in given.items() if value is not None and not isinstance(value, str)}
            check_same_index(X=X, **indexed)
        if self.row_columns_:
            X = None if isinstance(X, RankingData) else in_memory(X)
            for name, column in given.items():
                if isinstance(column, str):
                    given[name] = _column(X, name, column)
        return ClickColumns(**given)

    def _with_clicks(self, rows: ListedRows, columns: ClickColumns) -> ListedRows:
        """The rows with their positions and weights, without those that were not seen."""
        lists = rows.lists
        if columns.position is not None:
            rows = replace(rows, positions=make_positions(columns.position, len(rows)).take(lists.sort_order))
        if columns.item_weight is not None:
            weights = lists.sort(check_item_weights(columns.item_weight, len(rows)))
            rows = replace(rows, item_weights=weights)
        if columns.examined is not None:
            seen = lists.sort(check_examined(columns.examined, lists.restore(rows.labels)))
            rows = rows.keep(seen)
            if len(rows) < 2:
                raise ValueError(f"examined must mark at least two rows, got {len(rows)}")
        return rows

    def _click_state(self) -> dict[str, Any]:
        """The part of the state that a saved model keeps."""
        bias = self.position_bias_
        return {"position_bias": None if bias is None else bias.to_json(), "row_columns": self.row_columns_}

    def _load_click_state(self, state: dict[str, Any]) -> None:
        """Restore the result of `_click_state`; models of earlier versions have none."""
        stored = field({"position_bias": None} | state, "position_bias", dict, NoneType)
        self.position_bias_ = None if stored is None else PositionBias.from_json(stored)
        self.row_columns_ = field({"row_columns": []} | state, "row_columns", list)
        if not all(isinstance(name, str) for name in self.row_columns_):
            raise ValueError("row_columns must hold names of columns")


def _column(X: Any, name: str, column: str) -> Any:
    if not is_frame(X):
        what = "a RankingData" if X is None else type(X).__name__
        raise ValueError(f"{name} as the name of a column needs a DataFrame, got {column!r} with {what}")
    if column not in X.columns:
        raise ValueError(f"{name} {column!r} is not among the columns {', '.join(map(str, X.columns))}")
    return X[column]
