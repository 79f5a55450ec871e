"""The exact likelihood of tiers as an objective of trees."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from plackett.boosted.base import Floats, Objective
from plackett.likelihood.kernel import NO_CUTOFF
from plackett.likelihood.leaves import denominator_curvature, leaf_derivatives
from plackett.likelihood.partition import check_tol, check_top, evaluate
from plackett.likelihood.tiers import check_weighting, make_tiers
from plackett.lists import IntArray

_TOL = 1e-5
"""Of each tier's probability: a thousand times finer than the noise of a gradient that one more list would bring."""


class PartitionObjective(Objective):
    """PL-Partition: minus the exact log-likelihood of the tiers.

    Args:
        top: count only the first `top` places.
        tier_weights: multiplies the term of each tier: "gain", or a function, as in `plackett.losses.partition_loss`.
    """

    has_newton_leaves: ClassVar[bool] = True

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
        if self._top != NO_CUTOFF:  # inside a tier a cut-off makes the likelihood convex in some directions
            np.maximum(curvature, denominator_curvature(scores, self._tiers, self._top), out=curvature)
        gradient *= -self.row_weights
        curvature *= self.row_weights
        return gradient, curvature

    def leaf_derivatives(self, scores: Floats, leaf: npt.NDArray[np.int32], leaves: int) -> tuple[Floats, Floats]:
        slope, bend = leaf_derivatives(
            scores,
            self._tiers,
            leaf,
            leaves,
            list_weights=self.weights,
            tier_weights=self._tier_weights,
            top=self._top,
            tol=self._tol,
        )
        return -slope, -bend
