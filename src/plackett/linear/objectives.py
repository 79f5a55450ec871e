"""Losses of scores: minus log-likelihoods of tiers, with exact gradients and products of their Hessian."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.likelihood.approximations import break_ties, efron_or_breslow
from plackett.likelihood.hessian import divides_a_tier, hessian_products
from plackett.likelihood.kernel import NO_CUTOFF
from plackett.likelihood.partition import DEFAULT_TOL, check_top, evaluate
from plackett.likelihood.tiers import Tiers, make_tiers
from plackett.lists import IntArray

Floats = npt.NDArray[np.float64]

_TOL = DEFAULT_TOL[np.dtype(np.float64)]
_STEP = 1e-5  # of central differences: truncation and rounding both leave about ten digits


class Objective(ABC):
    """A loss to minimise, the sum over lists of weight times the list's loss."""

    is_convex = False
    """Whether a minimum is the only one."""

    @abstractmethod
    def value_and_gradient(self, scores: Floats) -> tuple[float, Floats]:
        """The loss and its derivative by each score."""

    def curvature_products(self, scores: Floats, moves: Floats) -> Floats:
        """The Hessian of the loss times directions, (items, directions)."""
        del scores, moves
        raise TypeError(f"{type(self).__name__} has no second derivatives")


class TieredLikelihood(Objective):
    """Minus the log-likelihood of tiers, or of what Efron or Breslow make of them."""

    def __init__(
        self, tiers: Tiers, weights: Floats, *, top: int = NO_CUTOFF, treatment: str = "exact", constant: float = 0.0
    ) -> None:
        self._tiers, self._weights, self._top, self._treatment = tiers, weights, top, treatment
        self._constant = constant  # of the log-likelihood
        self._row_weights = np.repeat(weights, np.diff(tiers.offsets))
        self.is_convex = not divides_a_tier(tiers, top)

    def value_and_gradient(self, scores: Floats) -> tuple[float, Floats]:
        if self._treatment == "exact":
            value, gradient, _ = evaluate(scores, self._tiers, top=self._top, tol=_TOL, derivatives=True)
        else:
            value, gradient, _ = efron_or_breslow(scores, self._tiers, efron=self._treatment == "efron", bottom=False)
        return -float(value @ self._weights) - self._constant, -self._row_weights * gradient

    def without_cutoff(self) -> TieredLikelihood:
        """The same tiers with all places: convex, and of similar shape."""
        return TieredLikelihood(self._tiers, self._weights, treatment=self._treatment)

    def curvature_products(self, scores: Floats, moves: Floats) -> Floats:
        if not self.is_convex:
            return self._differences(scores, moves)
        products = hessian_products(scores, self._tiers, moves, top=self._top, treatment=self._treatment, tol=_TOL)
        return -self._row_weights[:, None] * products

    def _differences(self, scores: Floats, moves: Floats) -> Floats:
        """Central differences of the gradient, for tiers that a cut-off divides."""
        products = np.zeros_like(moves)
        for column in range(moves.shape[1]):
            step = _STEP / max(float(np.abs(moves[:, column]).max(initial=0.0)), 1e-300)
            up, down = (self.value_and_gradient(scores + h * moves[:, column])[1] for h in (step, -step))
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
    """The likelihood of that name in `LIKELIHOODS` as a loss. `bottom` belongs to listmle."""
    tiers, cutoff = make_tiers(labels, offsets), check_top(top)
    if bottom not in ((None, "ordered", "unordered") if name == "listmle" else (None,)):
        raise ValueError(f'bottom must be "ordered" or "unordered", and only for listmle, got {bottom!r} for {name}')
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
            "which takes ties exactly"
        )
