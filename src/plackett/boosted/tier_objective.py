"""The likelihood of tiers, exact and by its lower bound, as objectives for trees."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from plackett.arguments import NO_CUTOFF, check_tol, check_top
from plackett.likelihood.approximations import efron_or_breslow
from plackett.likelihood.core import evaluate
from plackett.likelihood.leaves import denominator_curvature, leaf_derivatives
from plackett.likelihood.tiers import check_weighting, make_tiers
from plackett.lists import IntArray
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
        return evaluate(
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
