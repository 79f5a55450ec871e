"""Products of the Hessian of the log-likelihood with directions: exact, for whole tiers, Efron and Breslow.

Moving the scores of a list at the rate u moves the log odds l_i = w_i - w_R of a tier S at delta_i = u_i - m, m the
mean of u over softmax_R. With H the second derivatives of log P(S > R) by the log odds, g the first ones and G their
sum, c = H delta and C the sum of c, the gradient of log P(S > R) moves at

    c_i                               for i in S
    -s_j (u_j G - (m G - C))          for j in R,  s = softmax_R

From the nodes of the quadrature (see `integral`), with A = sum_i phi_i delta_i,

    c_i = E[phi_i (1 - z_i - phi_i)] delta_i + Cov[phi_i, A]

so a direction costs two passes over the nodes and items of a tier, and never a table of S x S. An item of R sums its
line over all tiers above; as in `list_kernels`, G and m G - C are carried down, scaled by exp(w_R) of the latest tier.

Efron's term number k of a tier, -log D_k with D_k the sum of exp(w) over R and a share left_k of that over S (Breslow:
all of it), has c_i = -exp(w_i) left_k / D_k (u_i - m_k), m_k the mean of u under its own softmax; R likewise with 1 in
place of left_k.
"""

import math

import numpy as np
import numpy.typing as npt

from plackett.arguments import NO_CUTOFF
from plackett.compilation import inner, inner_sum, kernel
from plackett.likelihood.constants import MOST_NODES
from plackett.likelihood.core import Tiers, depth_of, raise_bad_score
from plackett.likelihood.elementary import fast_exp
from plackett.likelihood.integral import tier_nodes
from plackett.likelihood.kernel_parts import (
    ITEM_ODDS,
    NODE_T,
    NODE_WEIGHT,
    deep_threshold,
    dot,
    gather_scores,
    longest_list,
    longest_tiered_list,
    make_workspace,
    phi_at_nodes,
)
from plackett.threads import run_over_ranges

TREATMENTS = {"exact": 0, "efron": 1, "breslow": 2}
_EXACT, _EFRON = TREATMENTS["exact"], TREATMENTS["efron"]
_COST_PER_ITEM = 200


@inner_sum
def _weigh_deviations(row, q):
    """row -> q (row - E[row])."""
    mean = 0.0
    for k in range(q.size):
        mean += q[k] * row[k]
    for k in range(q.size):
        row[k] = q[k] * (row[k] - mean)


@inner
def _single_item(log_odds, moves, mean, own):
    """A tier of one item: log P is the logistic function of its log odds. As `_moved_tier`."""
    e = math.exp(-abs(log_odds))
    smaller = e / (1.0 + e)
    for c in range(mean.size):
        own[c, 0] = -smaller / (1.0 + e) * (moves[c, 0] - mean[c])
    return smaller if log_odds > 0.0 else 1.0 / (1.0 + e)


@inner
def _moved_tier(log_odds, n, moves, mean, own, depth, room, sums):
    """own[c, i] = c_i of each direction; returns G. moves[c, i] is u, mean[c] its mean over R."""
    shallow, begin = tier_nodes(log_odds, n, depth, room.nodes, room.exponent, room.items)
    odds, t, q = room.items[ITEM_ODDS], room.nodes[NODE_T, begin:], room.nodes[NODE_WEIGHT, begin:]
    directions = mean.size
    phi = sums[directions, : t.size]
    for c in range(directions):
        row = sums[c, : t.size]
        for k in range(t.size):
            row[k] = 0.0
    threshold = deep_threshold(n)
    pull = 0.0
    j = 0
    for i in range(n):
        if shallow < n and log_odds[i] <= threshold:  # its phi is 1 at every node
            pull += 1.0
            for c in range(directions):
                own[c, i] = 0.0
            continue
        slope, curvature = phi_at_nodes(odds[j], t, q, phi)
        pull += slope
        j += 1
        for c in range(directions):
            away = moves[c, i] - mean[c]
            own[c, i] = curvature * away
            row = sums[c, : t.size]
            for k in range(t.size):
                row[k] += away * phi[k]
    for c in range(directions):
        _weigh_deviations(sums[c, : t.size], q)
    j = 0
    for i in range(n):
        if shallow < n and log_odds[i] <= threshold:
            continue
        phi_at_nodes(odds[j], t, q, phi)  # recomputed: a table of all items would not fit into the cache
        j += 1
        for c in range(directions):
            own[c, i] += dot(phi, sums[c, : t.size])
    return pull


@inner
def _approximate_tier(log_odds, n, efron, moves, mean, own, e, carried):
    """own[c, i] as in `_moved_tier`; sum_k m_k / D_k is added to `carried`, sum_k 1 / D_k returned, in units of R."""
    highest = 0.0
    for i in range(n):
        highest = max(highest, log_odds[i])
    rest, tier = math.exp(-highest), 0.0
    for i in range(n):
        e[i] = math.exp(log_odds[i] - highest)
        tier += e[i]
    below, within = 0.0, 0.0  # sums over k of 1 / D_k and left_k / D_k
    for k in range(n):
        left = 1.0 - k / n if efron else 1.0
        below += 1.0 / (rest + left * tier)
        within += left / (rest + left * tier)
    for c in range(mean.size):
        tier_sum = 0.0
        for i in range(n):
            tier_sum += e[i] * moves[c, i]
        below_mean, within_mean = 0.0, 0.0
        for k in range(n):
            left = 1.0 - k / n if efron else 1.0
            total = rest + left * tier
            mean_k = (rest * mean[c] + left * tier_sum) / total
            below_mean += mean_k / total
            within_mean += left * mean_k / total
        for i in range(n):
            own[c, i] = -e[i] * (moves[c, i] * within - within_mean)
        carried[c] += rest * below_mean
    return rest * below


@inner
def _rest_means(w, u, starts, begin, end, rest_peak, rest_log, rest_mean):
    """For the tiers begin..end of a list, all but the last, w_R as rest_peak + rest_log, and the means of u over R."""
    directions = rest_mean.shape[1]
    highest, total = -math.inf, 0.0
    sums = np.zeros(directions)
    base = starts[begin]
    for m in range(end - 1, begin, -1):
        first, last = starts[m] - base, starts[m + 1] - base
        peak = highest
        for i in range(first, last):
            peak = max(peak, w[i])
        shrink = math.exp(highest - peak)
        total *= shrink
        sums *= shrink
        highest = peak
        for i in range(first, last):
            e = fast_exp(w[i] - peak)
            total += e
            for c in range(directions):
                sums[c] += e * u[c, i]
        rest_peak[m - 1 - begin], rest_log[m - 1 - begin] = highest, math.log(total)
        for c in range(directions):
            rest_mean[m - 1 - begin, c] = sums[c] / total


@kernel
def hessian_lists(first, last, scores, moves, order, starts, list_tiers, top, treatment, depth, products):
    """Fill `products` for the items of the lists first..last. No tier may straddle `top`.

    Returns the position in `scores` of a score that is not finite or too large, or -1.
    """
    longest = longest_tiered_list(starts, list_tiers, first, last)
    most_tiers = longest_list(list_tiers, first, last)
    directions = moves.shape[1]
    w, log_odds = np.empty(longest), np.empty(longest)
    u, h, own = np.empty((directions, longest)), np.empty((directions, longest)), np.empty((directions, longest))
    rest_peak, rest_log, rest_mean = np.empty(most_tiers), np.empty(most_tiers), np.empty((most_tiers, directions))
    room = make_workspace(longest)
    sums, carried = np.empty((directions + 1, MOST_NODES)), np.empty(directions)
    for b in range(first, last):
        begin, end = list_tiers[b], list_tiers[b + 1]
        base = starts[begin]
        bad = gather_scores(scores, order, base, starts[end] - base, w)
        if bad >= 0:
            return bad
        for i in range(starts[end] - base):
            for c in range(directions):
                u[c, i] = moves[order[base + i], c]
        _rest_means(w, u, starts, begin, end, rest_peak, rest_log, rest_mean)
        pull = 0.0  # the sum over the tiers above of G, in units of the latest w_R; `carried` that of m G - C
        carried[:] = 0.0
        for m in range(end - begin):
            start, stop = starts[begin + m] - base, starts[begin + m + 1] - base
            n = stop - start
            above = max(m - 1, 0)
            for i in range(start, stop):
                share = 0.0 if m == 0 else math.exp(min((w[i] - rest_peak[above]) - rest_log[above], 0.0))
                for c in range(directions):
                    h[c, i] = -share * (u[c, i] * pull - carried[c])
            if m == end - begin - 1:
                break
            if m > 0:
                shrink = math.exp((rest_peak[m] - rest_peak[m - 1]) + (rest_log[m] - rest_log[m - 1]))
                pull *= shrink
                carried *= shrink
            if start >= top:
                continue
            for i in range(n):
                log_odds[i] = (w[start + i] - rest_peak[m]) - rest_log[m]
            mean = rest_mean[m]
            if treatment == _EXACT:
                if n == 1:
                    own_pull = _single_item(log_odds[0], u[:, start:stop], mean, own)
                else:
                    own_pull = _moved_tier(log_odds, n, u[:, start:stop], mean, own, depth, room, sums)
                for c in range(directions):
                    carried[c] += mean[c] * own_pull
                    for i in range(n):
                        carried[c] -= own[c, i]
            else:
                own_pull = _approximate_tier(
                    log_odds, n, treatment == _EFRON, u[:, start:stop], mean, own, room.items[ITEM_ODDS], carried
                )
            pull += own_pull
            for c in range(directions):
                for i in range(n):
                    h[c, start + i] += own[c, i]
        for i in range(starts[end] - base):
            for c in range(directions):
                products[order[base + i], c] = h[c, i]
    return -1


def divides_a_tier(tiers: Tiers, top: int) -> bool:
    """Whether a cut-off falls inside a tier of some list (other than its last), where log P is not concave."""
    places = tiers.starts[:-1] - np.repeat(tiers.offsets[:-1], np.diff(tiers.list_tiers))
    is_bottom = np.zeros(len(places), np.bool_)
    is_bottom[tiers.list_tiers[1:][np.diff(tiers.list_tiers) > 0] - 1] = True
    return bool(((places < top) & (top - places < tiers.sizes) & ~is_bottom).any())


def hessian_products(
    scores: npt.NDArray[np.float64],
    tiers: Tiers,
    moves: npt.NDArray[np.float64],
    *,
    top: int = NO_CUTOFF,
    treatment: str = "exact",
    tol: float,
) -> npt.NDArray[np.float64]:
    """The Hessian of each list's log-likelihood times directions.

    Args:
        moves: the directions as columns, (items, directions).
        top: must not fall inside a tier (`divides_a_tier`).
        treatment: how tied items are treated: "exact", "efron" or "breslow".

    Returns:
        (items, directions); the products of a list sum to zero.
    """
    products = np.empty(moves.shape)
    moves = np.ascontiguousarray(moves, np.float64)

    def call(first: int, last: int) -> int:
        return int(
            hessian_lists(
                first, last, scores, moves, tiers.order, tiers.starts, tiers.list_tiers, top,
                TREATMENTS[treatment], depth_of(tol), products,
            )
        )  # fmt: skip

    for position in run_over_ranges(call, tiers.offsets * _COST_PER_ITEM * max(moves.shape[1], 1)):
        if position >= 0:
            raise_bad_score(float(scores[position]), position)
    return products
