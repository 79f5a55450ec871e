"""Objectives of linear models: minus log-likelihoods of tiers, with exact gradients and Hessian products."""

from __future__ import annotations

from typing import Any

import numpy as np

from plackett.arguments import DEFAULT_TOL, NO_CUTOFF, check_top
from plackett.likelihood.approximations import break_ties, efron_or_breslow
from plackett.likelihood.core import Tiers, evaluate_tiers, make_tiers
from plackett.likelihood.hessian import divides_a_tier, hessian_products
from plackett.likelihood.leaves import denominator_curvature
from plackett.lists import IntArray
from plackett.objective import Floats, Objective

_TOL = DEFAULT_TOL[np.dtype(np.float64)]
_STEP = 1e-5  # of central differences: truncation and rounding errors both leave about ten digits


class TieredLikelihood(Objective):
    """Minus the log-likelihood of tiers: exact, or by Efron's or Breslow's approximation."""

    def __init__(
        self, tiers: Tiers, weights: Floats, *, top: int = NO_CUTOFF, treatment: str = "exact", constant: float = 0.0
    ) -> None:
        self._tiers, self._weights, self._top, self._treatment = tiers, weights, top, treatment
        self._constant = constant  # added to the log-likelihood
        self._row_weights = np.repeat(weights, np.diff(tiers.offsets))
        self.is_convex = not divides_a_tier(tiers, top)

    def _evaluate(self, scores: Floats) -> tuple[float, Floats, Floats]:
        if self._treatment == "exact":
            value, gradient, curvature = evaluate_tiers(scores, self._tiers, top=self._top, tol=_TOL, derivatives=True)
        else:
            is_efron = self._treatment == "efron"
            value, gradient, curvature = efron_or_breslow(scores, self._tiers, efron=is_efron, bottom=False)
        return -float(value @ self._weights) - self._constant, -self._row_weights * gradient, curvature

    def value(self, scores: Floats) -> float:
        return self._evaluate(scores)[0]

    def value_and_gradient(self, scores: Floats) -> tuple[float, Floats]:
        return self._evaluate(scores)[:2]

    def derivatives(self, scores: Floats) -> tuple[Floats, Floats]:
        _, gradient, curvature = self._evaluate(scores)
        if not self.is_convex:  # a cut-off inside a tier makes the loss concave in some directions
            curvature = np.maximum(curvature, denominator_curvature(scores, self._tiers, self._top))
        return gradient, self._row_weights * curvature

    def without_cutoff(self) -> TieredLikelihood:
        """The same tiers with all places counted: convex, and of similar shape."""
        return TieredLikelihood(self._tiers, self._weights, treatment=self._treatment)

    def hessian_products(self, scores: Floats, directions: Floats) -> Floats:
        if not self.is_convex:
            return self._differences(scores, directions)
        products = hessian_products(scores, self._tiers, directions, top=self._top, treatment=self._treatment, tol=_TOL)
        return -self._row_weights[:, None] * products

    def _differences(self, scores: Floats, directions: Floats) -> Floats:
        """Hessian products by central differences of the gradient, for tiers that a cut-off divides."""
        products = np.zeros_like(directions)
        for column in range(directions.shape[1]):
            step = _STEP / max(float(np.abs(directions[:, column]).max(initial=0.0)), 1e-300)
            up, down = (self.value_and_gradient(scores + h * directions[:, column])[1] for h in (step, -step))
            products[:, column] = (up - down) / (2.0 * step)
        return products


LIKELIHOODS = ("partition", "topk", "listmle", "efron", "breslow", "lower_bound")


def make_likelihood(
    name: str,
    labels: Floats,
    offsets: IntArray,
    weights: Floats,
    *,
    top: Any,
    random_state: Any,
    bottom: str | None = None,
) -> TieredLikelihood:
    """The likelihood of that name in `LIKELIHOODS` as a loss. `bottom` is an option of listmle."""
    tiers, cutoff = make_tiers(labels, offsets), check_top(top)
    if bottom not in ((None, "ordered", "unordered") if name == "listmle" else (None,)):
        raise ValueError(f'bottom must be "ordered" or "unordered", and is only for listmle, got {bottom!r} for {name}')
    if name in ("efron", "breslow", "lower_bound"):
        if cutoff != NO_CUTOFF:
            raise ValueError(f"top must be None for the objective {name!r}, got {top}")
        constant = float(tiers.log_factorials() @ weights) if name == "lower_bound" else 0.0
        return TieredLikelihood(tiers, weights, treatment="efron" if name == "efron" else "breslow", constant=constant)
    if name == "listmle":
        tiers = break_ties(tiers, np.random.default_rng(random_state), bottom or "ordered")
    elif name == "topk":
        _refuse_ties(tiers, cutoff)
    return TieredLikelihood(tiers, weights, top=cutoff)


def _refuse_ties(tiers: Tiers, top: int) -> None:
    places = tiers.starts[:-1] - np.repeat(tiers.offsets[:-1], np.diff(tiers.list_tiers))
    tied = (places < top) & (tiers.sizes > 1)
    if tied.any():
        b = int(np.searchsorted(tiers.list_tiers, int(np.argmax(tied)), side="right")) - 1
        raise ValueError(
            f"y must not tie within the top places for the objective 'topk', got a tie in list {b}: use 'partition', "
            "which treats ties exactly"
        )
