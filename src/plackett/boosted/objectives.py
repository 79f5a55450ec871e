"""Objectives of trees: the likelihood of tiers, exact and by its lower bound, and the table of all objectives."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from plackett.arguments import NO_CUTOFF, check_finite, check_tol, check_top
from plackett.boosted.grades import GRADE_OBJECTIVES
from plackett.boosted.plrank import PLRankObjective
from plackett.likelihood.approximations import efron_or_breslow
from plackett.likelihood.core import check_weighting, evaluate_tiers, make_tiers
from plackett.likelihood.leaves import denominator_curvature, leaf_derivatives
from plackett.lists import IntArray
from plackett.losses.loss_objective import LossObjective
from plackett.losses.registry import check_item_weighting, find_loss, is_own_objective, loss_names
from plackett.objective import Floats, Leaves, ListObjective

_TOL = 1e-5
"""Relative error of each tier's probability: a thousandth of what one more list would change in the gradient."""


class PartitionObjective(ListObjective):
    """PL-Partition: minus the exact log-likelihood of the tiers.

    Args:
        top: count only the first `top` places; None: all of them.
        tier_weights: factors of the tiers' terms: "gain", or a function, as in `plackett.losses.partition_loss`.
        tol: largest relative error of a tier's probability.
    """

    has_newton_leaves: ClassVar[bool] = True
    options: ClassVar[tuple[str, ...]] = ("tier_weights", "tol", "top")

    def __init__(
        self,
        labels: Floats,
        offsets: IntArray,
        weights: Floats,
        *,
        top: int | None = None,
        tier_weights: Any = None,
        tol: float = _TOL,
    ) -> None:
        super().__init__(labels, offsets, weights)
        self._tiers = make_tiers(labels, offsets)
        weighting = check_weighting(tier_weights)
        self._tier_weights = None if weighting is None else self._tiers.weights(weighting, labels)
        if self._tier_weights is not None and not (self._tier_weights >= 0.0).all():
            raise ValueError(f"tier_weights must be at least 0 for trees, got {np.nanmin(self._tier_weights)}")
        self._top, self._tol = check_top(top), check_tol(tol, np.dtype(np.float64))
        self.is_convex = self._top == NO_CUTOFF

    def _evaluate(self, scores: Floats, derivatives: bool) -> tuple[Floats, Floats, Floats]:
        return evaluate_tiers(
            scores,
            self._tiers,
            top=self._top,
            tol=self._tol,
            derivatives=derivatives,
            tier_weights=self._tier_weights,
        )

    def value(self, scores: Floats) -> float:
        return -float(self._evaluate(scores, False)[0] @ self.weights)

    def derivatives(self, scores: Floats) -> tuple[Floats, Floats]:
        _, gradient, curvature = self._evaluate(scores, True)
        if self._top != NO_CUTOFF:  # a cut-off inside a tier makes the loss concave in some directions
            np.maximum(curvature, denominator_curvature(scores, self._tiers, self._top), out=curvature)
        gradient *= -self.row_weights
        curvature *= self.row_weights
        return gradient, curvature

    def leaf_derivatives(self, scores: Floats, leaf: Leaves, leaves: int) -> tuple[Floats, Floats]:
        slope, curvature = leaf_derivatives(
            scores,
            self._tiers,
            leaf,
            leaves,
            list_weights=self.weights,
            tier_weights=self._tier_weights,
            top=self._top,
            tol=self._tol,
        )
        return -slope, -curvature


class LowerBoundObjective(ListObjective):
    """Minus the lower bound of the likelihood of tiers, `plackett.losses.lower_bound_loss`: Breslow's plus log n_m!."""

    is_convex = True

    def __init__(self, labels: Floats, offsets: IntArray, weights: Floats) -> None:
        super().__init__(labels, offsets, weights)
        self._tiers = make_tiers(labels, offsets)
        self._constant = float(self._tiers.log_factorials() @ weights)

    def value(self, scores: Floats) -> float:
        value, _, _ = efron_or_breslow(scores, self._tiers, efron=False, bottom=False)
        return -float(value @ self.weights) - self._constant

    def derivatives(self, scores: Floats) -> tuple[Floats, Floats]:
        _, gradient, curvature = efron_or_breslow(scores, self._tiers, efron=False, bottom=False)
        return -self.row_weights * gradient, self.row_weights * curvature


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
    if "item_weights" in options:
        check_item_weighting(objective, options["item_weights"])
    kind = OBJECTIVES.get(objective) if isinstance(objective, str) else None
    if kind is None or "item_weights" in options:  # those of the table have no weights of items
        return LossObjective(objective, labels, offsets, weights, **options)
    unknown = sorted(set(options) - set(kind.options))
    if unknown:
        known = ", ".join(kind.options) or "none"
        raise ValueError(f"options of the objective {objective!r} must be among {known}, got {', '.join(unknown)}")
    return kind(labels, offsets, weights, **options)
