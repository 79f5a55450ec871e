"""The core of the exact likelihood: value and derivatives of prepared tiers.

Callers pass flat float64 scores and `Tiers`, and checked options; nothing is validated here. The kernels notice scores
that are not finite in passing, and `raise_bad_score` reports them.
"""

import math
import warnings

import numpy as np
import numpy.typing as npt

from plackett.arguments import NO_CUTOFF
from plackett.errors import AccuracyWarning
from plackett.likelihood.constants import LARGEST_SCORE
from plackett.likelihood.list_kernels import partition_lists, values_of_lists
from plackett.likelihood.tiers import Tiers
from plackett.threads import run_over_ranges

_COST_PER_ITEM = 100
# Nats by which the quadrature aims below tol: its own estimate was seen to be off by a factor of up to 30.
_SAFETY = 3.0


def depth_of(tol: float) -> float:
    """How far below its peak the kernels follow an integrand, in nats."""
    return -math.log(tol) + _SAFETY


def evaluate(
    scores: npt.NDArray[np.float64],
    tiers: Tiers,
    *,
    top: int = NO_CUTOFF,
    tol: float,
    derivatives: bool,
    tier_weights: npt.NDArray[np.float64] | None = None,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Value of each list; gradient and curvature of each item, empty without `derivatives`.

    `tier_weights` multiplies log P of each tier, in the order of `tiers`.
    """
    weights = np.empty(0) if tier_weights is None else np.ascontiguousarray(tier_weights, np.float64)
    lists = len(tiers.offsets) - 1
    value, error = np.empty(lists), np.empty(lists)
    gradient, curvature = (np.empty(len(scores)), np.empty(len(scores))) if derivatives else (None, None)
    places = kernel_cutoff(top, tiers)
    depth = depth_of(tol)

    fill = partition_lists if derivatives else values_of_lists

    def call(first: int, last: int) -> int:
        return int(
            fill(
                first, last, scores, tiers.order, tiers.starts, tiers.list_tiers, weights,
                places, depth, value, error, gradient, curvature,
            )
        )  # fmt: skip

    for position in run_over_ranges(call, tiers.offsets * _COST_PER_ITEM):
        if position >= 0:
            raise_bad_score(float(scores[position]), position)
    if lists:
        _warn_if_inaccurate(error, tiers, tol)
    if gradient is None or curvature is None:
        return value, np.empty(0), np.empty(0)
    return value, gradient, curvature


def kernel_cutoff(top: int, tiers: Tiers) -> int | None:
    """The cut-off for a kernel: None, for which it is compiled without one, if no list is longer than `top`."""
    return None if top == NO_CUTOFF or np.diff(tiers.offsets).max(initial=0) <= top else top


def raise_bad_score(score: float, position: int) -> None:
    """Report a score that a kernel refused."""
    raise ValueError(f"scores must be finite and at most {LARGEST_SCORE:g} in size, got {score} at item {position}")


def _warn_if_inaccurate(error: npt.NDArray[np.float64], tiers: Tiers, tol: float) -> None:
    worst = int(np.argmax(error))  # NaN counts as largest
    if not error[worst] <= 100.0 * tol * (tiers.list_tiers[worst + 1] - tiers.list_tiers[worst]):
        warnings.warn(
            f"the log-likelihood of list {worst} has an estimated error of {error[worst]:.1e} where tol={tol:.1e} was "
            "requested: please report these scores",
            AccuracyWarning,
            stacklevel=4,
        )
