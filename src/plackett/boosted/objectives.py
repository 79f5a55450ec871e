"""Objectives by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from plackett.boosted.base import Objective
from plackett.boosted.grades import GRADE_OBJECTIVES
from plackett.boosted.partition import PartitionObjective
from plackett.boosted.plrank import PLRankObjective
from plackett.lists import IntArray

OBJECTIVES: dict[str, Callable[..., Objective]] = {
    "partition": PartitionObjective,
    "plrank": PLRankObjective,
    **GRADE_OBJECTIVES,
}
"""Objectives of our own."""

LOSS_OBJECTIVES = ("lower_bound", "attrank", "listnet", "listmle", "listpl", "ranknet", "ranksvm", "approx_ndcg")
"""Losses of `plackett.losses`, by their gradients; they need torch."""

LIGHTGBM_OBJECTIVES = {"lambdamart": "lambdarank", "xendcg": "rank_xendcg"}
"""Names for objectives that LightGBM brings along; its own names do as well."""

OTHER_LIGHTGBM = (
    "lambdarank", "rank_xendcg", "regression", "regression_l1", "huber", "fair", "poisson", "quantile", "mape", "gamma",
    "tweedie", "binary", "cross_entropy", "cross_entropy_lambda",
)  # fmt: skip

MCRANK = "mcrank"


def objective_names() -> list[str]:
    return [*OBJECTIVES, MCRANK, *LIGHTGBM_OBJECTIVES, *LOSS_OBJECTIVES, *OTHER_LIGHTGBM]


def check_objective(name: Any) -> str:
    if name not in objective_names():
        raise ValueError(f"objective must be one of {', '.join(objective_names())}, got {name!r}")
    return str(name)


def is_ours(name: str) -> bool:
    """Whether we compute the gradients, rather than LightGBM."""
    return name in OBJECTIVES or name in LOSS_OBJECTIVES


def make_objective(name: str, labels: Any, offsets: IntArray, weights: Any = None, **options: Any) -> Objective:
    """The objective of that name for the given lists. `weights` are one per list; `options` those of the objective."""
    if not is_ours(name):
        known = ", ".join([*OBJECTIVES, *LOSS_OBJECTIVES])
        raise ValueError(f"objective must be one of {known}, got {name!r}")
    factory = OBJECTIVES.get(name)
    if factory is None:
        from plackett.boosted.torch_losses import LossObjective

        factory = partial(LossObjective, name)
    else:
        known_options = set(inspect.signature(factory).parameters) - {"labels", "offsets", "weights"}
        unknown = sorted(set(options) - known_options)
        if unknown:
            takes = ", ".join(sorted(known_options)) or "none"
            raise ValueError(f"options of the objective {name!r} must be among {takes}, got {', '.join(unknown)}")
    y = np.ascontiguousarray(labels, np.float64)
    if not np.isfinite(y).all():
        at = int(np.argmin(np.isfinite(y)))
        raise ValueError(f"labels must be finite, got {y[at]} in row {at}")
    list_weights = np.ones(len(offsets) - 1) if weights is None else np.ascontiguousarray(weights, np.float64)
    return factory(y, offsets, list_weights, **options)
