"""Objectives of trees, by name or of your own."""

from __future__ import annotations

from typing import Any

import numpy as np

from plackett.arguments import check_finite
from plackett.boosted.grades import GRADE_OBJECTIVES
from plackett.boosted.plrank import PLRankObjective
from plackett.boosted.tier_objective import LowerBoundObjective, PartitionObjective
from plackett.lists import IntArray
from plackett.losses.loss_objective import LossObjective
from plackett.losses.registry import check_item_weighting, find_loss, is_own_objective, loss_names
from plackett.objective import Floats, ListObjective

OBJECTIVES: dict[str, type[ListObjective]] = {
    "partition": PartitionObjective,
    "plrank": PLRankObjective,
    **GRADE_OBJECTIVES,
    "lower_bound": LowerBoundObjective,
}
"""Objectives that need no torch."""

LIGHTGBM_OBJECTIVES = {"lambdamart": "lambdarank", "xendcg": "rank_xendcg"}
"""Names for objectives that LightGBM computes itself; its own names work as well."""

OTHER_LIGHTGBM = (
    "lambdarank", "rank_xendcg", "regression", "regression_l1", "huber", "fair", "poisson", "quantile", "mape", "gamma",
    "tweedie", "binary", "cross_entropy", "cross_entropy_lambda",
)  # fmt: skip

MCRANK = "mcrank"


def objective_names() -> list[str]:
    """All names that trees take: ours, LightGBM's, and the losses that have a curvature."""
    names = [*OBJECTIVES, MCRANK, *LIGHTGBM_OBJECTIVES, *loss_names("curvature"), *OTHER_LIGHTGBM]
    return list(dict.fromkeys(names))


def is_in_table(objective: Any) -> bool:
    """Whether the objective is one of `OBJECTIVES`."""
    return type(objective) is str and objective in OBJECTIVES  # not the name that a saved function leaves


def check_objective(objective: Any) -> None:
    """A name, a `Loss` or a function."""
    if is_in_table(objective):
        return
    if is_own_objective(objective):
        find_loss(objective, form="curvature")
    elif objective not in objective_names():
        raise ValueError(f"objective must be one of {', '.join(objective_names())}, or a function, got {objective!r}")


def computes_gradients(objective: Any) -> bool:
    """Whether this package computes the gradients of the objective, rather than LightGBM."""
    return is_in_table(objective) or is_own_objective(objective) or objective in loss_names("curvature")


def make_objective(
    objective: Any, labels: Any, offsets: IntArray, weights: Any = None, **options: Any
) -> ListObjective:
    """An objective for the given lists.

    Args:
        objective: a name in `OBJECTIVES`, a loss of `plackett.losses` with a curvature, a `Loss`, or a function; see
            `plackett.losses.loss_objective.LossObjective`.
        labels: one per row, finite.
        offsets: list b holds the rows offsets[b] to offsets[b+1] - 1.
        weights: one per list; None: 1 each.
        options: options of the objective.
    """
    y = np.ascontiguousarray(labels, np.float64)
    check_finite("labels", y)
    list_weights = np.ones(len(offsets) - 1) if weights is None else np.ascontiguousarray(weights, np.float64)
    return prepare_objective(objective, y, offsets, list_weights, options)


def prepare_objective(
    objective: Any, labels: Floats, offsets: IntArray, weights: Floats, options: dict[str, Any]
) -> ListObjective:
    """As `make_objective`, for labels and weights that were checked before."""
    if not computes_gradients(objective):
        known = ", ".join(name for name in objective_names() if computes_gradients(name))
        raise ValueError(f"objective must be one of {known}, or a function, got {objective!r}")
    check_item_weighting(objective, options.get("item_weights"))
    kind = OBJECTIVES.get(objective) if isinstance(objective, str) else None
    if kind is None or "item_weights" in options:  # those of the table have no weights of items
        return LossObjective(objective, labels, offsets, weights, **options)
    unknown = sorted(set(options) - set(kind.options))
    if unknown:
        known = ", ".join(kind.options) or "none"
        raise ValueError(f"options of the objective {objective!r} must be among {known}, got {', '.join(unknown)}")
    return kind(labels, offsets, weights, **options)
