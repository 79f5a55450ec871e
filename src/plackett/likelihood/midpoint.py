"""The midpoint rule of Ma et al. (2021), equations 15 and 19, kept as the reference that the adaptive rule replaces.

    log P(S > R) ~ w_R + c - log T + logsumexp_k [ (e^{w_R + c} - 1) log v_k + sum_i log(1 - v_k^{exp(w_i + c)}) ]

at v_k = (k - 1/2) / T. It is accurate only where c suits the scores: theorem 1 requires 2 < exp(w_R + c) < C.
"""

import itertools
import math

import numpy as np
import numpy.typing as npt

from plackett.likelihood.core import Tiers

_ITEMS_AT_ONCE = 64  # rows of the table items x intervals held in memory


def midpoint_log_probability(scores: npt.NDArray[np.float64], rest: float, intervals: int, shift: float) -> float:
    """log P(S > R) for the scores of S and rest = w_R."""
    from scipy.special import logsumexp

    log_v = np.log((np.arange(intervals) + 0.5) / intervals)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        integrand = (np.exp(rest + shift) - 1.0) * log_v
        for i in range(0, len(scores), _ITEMS_AT_ONCE):
            powers = np.exp(scores[i : i + _ITEMS_AT_ONCE, None] + shift) * log_v  # (items, intervals)
            integrand += np.log(-np.expm1(powers)).sum(axis=0)
    return float(rest + shift - math.log(intervals) + logsumexp(integrand))


def midpoint_log_likelihood(
    scores: npt.NDArray[np.float64], tiers: Tiers, *, intervals: int, shift: float
) -> npt.NDArray[np.float64]:
    """One value per list."""
    from scipy.special import logsumexp

    value = np.zeros(len(tiers.offsets) - 1)
    for b in range(len(value)):
        bounds = tiers.starts[tiers.list_tiers[b] : tiers.list_tiers[b + 1] + 1]
        for first, last in itertools.pairwise(bounds[:-1]):
            rest = float(logsumexp(scores[tiers.order[last : bounds[-1]]]))
            value[b] += midpoint_log_probability(scores[tiers.order[first:last]], rest, intervals, shift)
    return value
