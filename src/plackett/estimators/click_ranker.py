"""The base of rankers that learn from clicks: where items were shown, which were seen, and weights of items."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import NoneType
from typing import Any, ClassVar

from plackett.arguments import check_same_index
from plackett.data.containers import RankingData
from plackett.data.listed_rows import ListedRows, check_examined, check_item_weights, in_memory, is_frame
from plackett.data.positions import PositionBias, make_positions
from plackett.data.untrusted import field
from plackett.estimators.ranker import BaseRanker


@dataclass(frozen=True)
class ClickColumns:
    """What `fit` was given for each row beside features and labels, in the order of the rows; None: not given."""

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
        """What a saved model keeps of this."""
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
