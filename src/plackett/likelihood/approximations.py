"""Approximate treatments of ties: their likelihoods with derivatives, NumPy in and NumPy out.

A tier S of n items, D the sum of exp(w) over S and everything below it, D_S over S alone:

    random    the items of S in an order drawn at random, then the ordinary (ListMLE) likelihood of that order
    breslow   sum_S w_i - n log D
    efron     sum_S w_i - sum_{k=0}^{n-1} log(D - (k/n) D_S)

Breslow's form plus log n! is the lower bound of Hino et al. (2010); the names come from tied times in Cox regression.
With bottom="unordered" the last tier contributes nothing, as in the exact likelihood; with "ordered" it is treated as
any other tier, as in tools that merely sort by label.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.arguments import DEFAULT_TOL, check_choice, is_torch
from plackett.compilation import kernel
from plackett.likelihood.constants import LARGEST_SCORE
from plackett.likelihood.core import Tiers, evaluate_tiers, make_tiers, raise_bad_score
from plackett.likelihood.partition import PartitionDerivatives
from plackett.lists import flat_lists, offsets_from_sizes, takes_mask
from plackett.threads import run_over_ranges

TIES = ("random", "efron", "breslow")
_COST_PER_ITEM = 30


@takes_mask
def approximate_derivatives(
    scores: Any,
    labels: Any,
    *,
    ties: str,
    bottom: str = "unordered",
    offsets: Any = None,
    where: Any = None,
    random_state: int | np.random.Generator | None = None,
) -> PartitionDerivatives:
    """Value, gradient and curvature of an approximate log-likelihood of tiered lists.

    Args:
        scores, labels, offsets, where: as in `plackett.partition_derivatives`.
        ties: "random", "efron" or "breslow".
        bottom: "unordered" or "ordered", the assumption about the last tier.
        random_state: for ties="random", a seed or generator. The same seed gives the same order.

    >>> import numpy as np
    >>> approximate_derivatives(np.zeros(3), np.array([1, 1, 0]), ties="breslow").value.round(6)  # exact: -1.098612
    array([-2.197225])
    """
    check_choice("ties", ties, TIES)
    check_choice("bottom", bottom, ("unordered", "ordered"))
    if is_torch(scores):
        raise TypeError("approximate_derivatives takes NumPy arrays, got a torch tensor: pass scores.detach().numpy()")
    lists = flat_lists(scores, labels, offsets=offsets, where=where)
    tiers = make_tiers(lists.labels, lists.offsets)
    if ties == "random":
        broken = break_ties(tiers, np.random.default_rng(random_state), bottom)
        derivatives = evaluate_tiers(lists.scores, broken, tol=DEFAULT_TOL[np.dtype(np.float64)], derivatives=True)
    else:
        derivatives = efron_or_breslow(lists.scores, tiers, efron=ties == "efron", bottom=bottom == "ordered")
    value, gradient, curvature = derivatives
    return PartitionDerivatives(
        value.astype(lists.dtype, copy=False), lists.restore(gradient), lists.restore(curvature)
    )


def break_ties(tiers: Tiers, generator: np.random.Generator, bottom: str = "ordered") -> Tiers:
    """Tiers of one item each in an order drawn at random; an "unordered" bottom tier stays whole."""
    items = len(tiers.order)
    tier_of = np.repeat(np.arange(len(tiers.sizes)), tiers.sizes)
    order = tiers.order[np.lexsort((generator.random(items), tier_of))]
    begins = np.ones(items, np.bool_)
    if bottom == "unordered":
        is_bottom = np.zeros(len(tiers.sizes), np.bool_)
        nonempty = np.diff(tiers.list_tiers) > 0
        is_bottom[tiers.list_tiers[1:][nonempty] - 1] = True
        begins[is_bottom[tier_of]] = False
        begins[tiers.starts[:-1]] = True
    starts = np.append(np.flatnonzero(begins), items).astype(np.int64)
    running = np.concatenate(([0], np.cumsum(begins)))
    counts = running[tiers.offsets[1:]] - running[tiers.offsets[:-1]]
    return Tiers(order, starts, offsets_from_sizes(counts.astype(np.int64)), tiers.offsets)


def efron_or_breslow(
    scores: npt.NDArray[np.float64], tiers: Tiers, *, efron: bool, bottom: bool
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Value of each list, gradient and curvature of each item; with `bottom` the last tier counts too."""
    value = np.empty(len(tiers.offsets) - 1)
    gradient, curvature = np.empty(len(scores)), np.empty(len(scores))

    def call(first: int, last: int) -> int:
        return int(
            _approximate_lists(
                first, last, scores, tiers.order, tiers.starts, tiers.list_tiers,
                efron, bottom, value, gradient, curvature,
            )
        )  # fmt: skip

    for position in run_over_ranges(call, tiers.offsets * _COST_PER_ITEM):
        if position >= 0:
            raise_bad_score(float(scores[position]), position)
    return value, gradient, curvature


@kernel
def _approximate_lists(first, last, scores, order, starts, list_tiers, efron, bottom, value, gradient, curvature):  # type: ignore[no-untyped-def]
    """One pass up for log D of every tier, one down for the derivatives, whose sums over the tiers above are carried
    along scaled by D of the latest tier (see `plackett.likelihood.list_kernels`)."""
    for b in range(first, last):
        tiers = starts[list_tiers[b] : list_tiers[b + 1] + 1]
        count = tiers.size - 1
        log_all = np.empty(count)  # log D as peak + log_all, D over the tier and all below
        peaks = np.empty(count)
        shares = np.empty(count)  # D_S / D
        peak = -math.inf
        total = 0.0
        for m in range(count - 1, -1, -1):
            highest = peak
            for i in range(tiers[m], tiers[m + 1]):
                w = scores[order[i]]
                if not abs(w) <= LARGEST_SCORE:
                    return order[i]
                highest = max(highest, w)
            below = total * math.exp(peak - highest) if total > 0.0 else 0.0
            own = 0.0
            for i in range(tiers[m], tiers[m + 1]):
                own += math.exp(scores[order[i]] - highest)
            peak = highest
            total = below + own
            peaks[m], log_all[m], shares[m] = peak, math.log(total), own / total
        result = 0.0
        carried, carried_square = 0.0, 0.0
        for m in range(count):
            n = tiers[m + 1] - tiers[m]
            if m > 0:
                shrink = math.exp((peaks[m] - peaks[m - 1]) + (log_all[m] - log_all[m - 1]))
                carried *= shrink
                carried_square *= shrink * shrink
            active = m < count - 1 or bottom
            # Sums over k of 1 / x and 1 / x^2 with x = D_k / D, for items below, and weighted for the tier's own.
            below, below_square, own, own_square, logs = 0.0, 0.0, 0.0, 0.0, 0.0
            if active and efron:
                for k in range(n):
                    left = 1.0 - k / n
                    x = (1.0 - shares[m]) + left * shares[m]
                    below += 1.0 / x
                    below_square += 1.0 / (x * x)
                    own += left / x
                    own_square += left * left / (x * x)
                    logs += math.log(x)
            elif active:
                below = below_square = own = own_square = float(n)
            for i in range(tiers[m], tiers[m + 1]):
                share = math.exp((scores[order[i]] - peaks[m]) - log_all[m])
                first_order = share * (carried + own)
                gradient[order[i]] = (1.0 if active else 0.0) - first_order
                curvature[order[i]] = first_order - share * share * (carried_square + own_square)
                if active:
                    result += (scores[order[i]] - peaks[m]) - log_all[m]
            result -= logs
            carried += below
            carried_square += below_square
        value[b] = result
    return -1
