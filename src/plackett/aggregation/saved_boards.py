"""Fitted models as arrays and plain values for files, and back; files may come from a stranger and are checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from plackett.aggregation.ballots import check_names
from plackett.aggregation.connectivity import REASONS
from plackett.aggregation.fitting import Estimate
from plackett.aggregation.leaderboard import MOST_SAVED
from plackett.aggregation.voters import Voter
from plackett.data.comparisons import Comparisons
from plackett.data.untrusted import check_numbers, field
from plackett.objective import Floats

Arrays = dict[str, Any]
State = dict[str, Any]

# Missing from models that were saved before there were models of ties.
_OLDER: State = {
    "outside": {}, "covariance_kind": "model", "tie_parameters": [], "coef_names": [], "voters": [], "boards": [],
}  # fmt: skip

_FACTS: dict[str, tuple[type, ...]] = {
    "log_likelihood": (int, float),
    "null_log_likelihood": (int, float),
    "n_parameters": (int,),
    "n_ballots": (int, float),
    "ballots_hash": (str,),
    "converged": (bool,),
    "n_iter": (int,),
    "solver": (str,),
    "residual": (int, float),
}


def describe_model(model: Any) -> tuple[Arrays, State]:
    """The arrays and the other facts of a model, its categories and the counts of its comparisons."""
    arrays, state = _described(model, "")
    state["boards"] = []
    for number, (name, board) in enumerate(getattr(model, "boards_", {}).items()):
        own, described = _described(board, f"board{number}_")
        arrays |= own
        state["boards"].append({"name": name, **described})
    source = getattr(model, "_source", None)
    if source is not None and _is_reduced(source):
        arrays |= {"pairs": np.stack([source.left, source.right]).astype(np.float64)}
        arrays |= {"outcomes": source.outcome.astype(np.float64), "counts": source.weights}
        _check_saved(list(source.names))
        state["pair_names"] = list(source.names)
    return arrays, state


def _described(model: Any, prefix: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays and the other facts of one board."""
    _check_saved(model.items_ + model.dropped_items_)
    arrays: dict[str, Any] = {"scores": model.scores_}
    if len(model.items_) <= MOST_SAVED:
        arrays["covariance"] = model.covariance_
    if hasattr(model, "coef_"):
        arrays |= {"coef": model.coef_, "coef_standard_errors": model.coef_standard_errors_}
    if model.tie_parameters_:
        arrays["ties"] = np.array(list(model.tie_parameters_.values()), np.float64)
    _check_arrays(arrays)
    state = {
        "items": model.items_,
        "dropped_items": model.dropped_items_,
        "outside": model.outside_,
        "covariance_kind": model.covariance_kind_,
        "tie_parameters": list(model.tie_parameters_),
        "coef_names": getattr(model, "coef_names_", []),
        "voters": [[v.name, v.comparisons, v.reliability, v.gain] for v in getattr(model, "voters_", [])],
        **{name: getattr(model, f"{name}_") for name in _FACTS},
    }
    return {prefix + name: array for name, array in arrays.items()}, state


def restore_model(model: Any, arrays: Arrays, state: State) -> list[tuple[Any, Arrays, State]]:
    """Set the fitted attributes of a model. Returns the name, arrays and facts of each of its categories."""
    state = _OLDER | state
    own = {name: array for name, array in arrays.items() if not name.startswith("board")}
    counts: Arrays = {name: own.pop(name) for name in ("pairs", "outcomes", "counts") if name in own}
    _restore(model, own, state)
    if counts:
        model._source = _restored_source(counts, field(state, "pair_names", list))
    found = []
    for number, described in enumerate(field(state, "boards", list)):
        prefix = f"board{number}_"
        part = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
        found.append((field(described, "name", str, int, float), part, described))
    return found


def _restore(model: Any, arrays: dict[str, Any], state: dict[str, Any]) -> None:
    model.items_, model.dropped_items_ = field(state, "items", list), field(state, "dropped_items", list)
    check_names(model.items_)
    _check_saved(model.items_ + model.dropped_items_)
    model.outside_ = field(state, "outside", dict)
    _check_outside(model.outside_, model.dropped_items_)
    n = len(model.items_)
    ties, names = field(state, "tie_parameters", list), field(state, "coef_names", list)
    _check_texts("tie_parameters", ties)
    _check_texts("coef_names", names)
    coefficients = len(names) or getattr(model, "n_features_in_", None) or 0
    model.covariance_kind_ = field(state, "covariance_kind", str)
    shapes = {"scores": (n,), "covariance": (n, n), "coef": (coefficients,), "ties": (len(ties), 2)}
    shapes["coef_standard_errors"] = shapes["coef"]
    for name, array in arrays.items():
        if array.shape != shapes[name] or array.dtype != np.float64:
            raise ValueError(f"{name} must be float64 of shape {shapes[name]}, got {array.dtype} of {array.shape}")
    _check_arrays(arrays)
    model.scores_ = arrays["scores"]
    model._covariance = arrays.get("covariance")
    if model._covariance is None and n <= MOST_SAVED:
        raise ValueError(f"covariance is missing: models of up to {MOST_SAVED:,} items must have one, got {n} items")
    if ("coef" in arrays) != bool(coefficients):
        raise ValueError(f"coef must be stored for the {coefficients} features of the model, and only for these")
    if "coef" in arrays:
        model.coef_, model.coef_standard_errors_ = arrays["coef"], arrays["coef_standard_errors"]
        model.coef_names_ = names or [f"x{k + 1}" for k in range(coefficients)]
    given = arrays["ties"].tolist() if ties else []
    model.tie_parameters_ = {name: Estimate(*pair) for name, pair in zip(ties, given, strict=True)}
    if voters := field(state, "voters", list):
        model.voters_ = [Voter(name, float(many), float(how), float(gain)) for name, many, how, gain in voters]
    model._fit = None
    for name, kinds in _FACTS.items():
        setattr(model, f"{name}_", field(state, name, *kinds))
    if model.n_ballots_ <= 0:
        raise ValueError(f"n_ballots must be above 0, got {model.n_ballots_}")


def _is_reduced(source: Comparisons | None) -> bool:
    """Whether comparisons are counts, which are saved with the model."""
    return source is not None and all(
        part is None for part in (source.cluster, source.by, source.time, source.features)
    )  # fmt: skip


def _restored_source(arrays: Mapping[str, Floats], names: list[Any]) -> Comparisons:
    left, right = arrays["pairs"]
    check_names(names)
    return Comparisons(left, right, arrays["outcomes"].astype(np.int8), names, arrays["counts"])


def _check_arrays(arrays: Mapping[str, Floats]) -> None:
    """Check the arrays of a model on disk, except standard errors, which may be NaN."""
    for name in ("scores", "covariance", "coef"):
        if name in arrays:
            check_numbers(name, arrays[name])


def _check_texts(name: str, values: list[Any]) -> None:
    if not all(isinstance(value, str) for value in values):
        raise ValueError(f"{name} must be strings, got {values}")


def _check_saved(names: list[Any]) -> None:
    if not all(isinstance(name, str | int | float) for name in names):
        raise ValueError("item names must be strings or numbers to save the model")


def _check_outside(outside: dict[str, Any], dropped: list[Any]) -> None:
    names = [name for group in outside.values() if isinstance(group, list) for name in group]
    if not set(outside) <= set(REASONS) or (outside and sorted(map(str, names)) != sorted(map(str, dropped))):
        raise ValueError(f"outside must hold the dropped items by {', '.join(REASONS)}")
