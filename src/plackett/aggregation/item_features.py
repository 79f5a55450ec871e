"""Features of items, found by name where they have names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from plackett.arguments import as_numbers, check_finite, type_and_shape
from plackett.objective import Floats


def check_item_features(X: Any, names: Sequence[Any]) -> Floats:
    """Features of items as deviations from their mean, because a constant changes nothing."""
    features = as_numbers("X", _by_name(X, names) if hasattr(X, "columns") else X)
    if features.ndim != 2 or features.shape[0] != len(names) or features.shape[1] == 0:
        raise ValueError(
            f"X must have a row of features for each of the {len(names)} items, got shape {features.shape}"
        )
    check_finite("X", features)
    return np.asarray(features - features.mean(axis=0))


def _by_name(X: Any, names: Sequence[Any]) -> Any:
    """The rows of a table in the order of the names, found by its index."""
    remedy = "or pass an array whose rows are in the order of the names"
    if not hasattr(X, "iloc"):
        raise ValueError(
            f"X must be a table with an index, got {type_and_shape(X)}: use X.to_pandas().set_index(...), {remedy}"
        )
    missing = [name for name in names if name not in X.index]
    if missing or not X.index.is_unique:
        problem = f"none for {missing[0]!r}" if missing else "a name twice"
        raise ValueError(
            f"X must have the name of each item once in its index, got {problem}: use X.set_index(...), {remedy}"
        )
    return X.loc[list(names)]
