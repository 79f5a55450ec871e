"""One tier against everything below it: log P(S > R) with its first and second derivatives, in compiled code.

With l_i = w_i - w_R and a_i = exp(l_i),

    P = integral exp(f(y)) dy,   f(y) = y - t + log T(y),   t = e^y,   T(y) = prod_i (1 - exp(-a_i t))

(the substitution u = exp(-e^y) in the integral over u of prod (1 - u^{a_i}), which is also the exact treatment of tied
times in Cox regression: Kalbfleisch and Prentice 1973, DeLong, Guirguis and So 1994). When only the first r places of
the tier count, T is the probability that at least r items of S have a utility above the threshold, see `cutoff`.

f is concave and the integrand entire, so the trapezoid rule with spacing h converges exponentially. Shifting the line
of integration by an angle theta multiplies the integrand near y by about exp(kappa theta^2 / 2), kappa = -f''(y), and
the error by exp(-2 pi theta / h); `_spacing` chooses h by this and `_needed_spacing` checks it, node by node. No number
of nodes is fixed anywhere.

Derivatives come from the same nodes. With q the normalised integrand, E over q, z_i = a_i t, phi_i = z_i / expm1(z_i):

    d log P / d l_i     = g_i = E[phi_i]
    -d2 log P / d l_i^2 = g_i^2 - g_i + E[phi_i z_i]
    d2 log P / d s^2    = Var[t] - E[t]        when all l_i move together by s

The second line is E[phi (1 - z - phi)] + Var[phi] with phi^2 cancelled. In the third, moving all l_i by s moves T(y) to
T(y + s), so the derivatives act on the weight exp(y - e^y) instead, which leaves no sum over items.

Where the tier is far above the rest P is close to 1, and log P = log1p(-C) needs the digits of C = 1 - P. T is the
distribution function of the time M at which the last place of the tier is filled, and C = E[1 - e^-M]:

    C = integral (1 - e^-t) T Phi dy,    d P / d l_i = integral t e^-t T phi_i dy,    Phi = sum_i phi_i = d log T / dy

(Phi and phi_i weighted as in `cutoff` where the cut-off divides the tier). Nothing cancels, but the integrands live
where M does, near y = -L for a tier that is L above the rest, not near the mode of f. With t = epsilon s and
epsilon = e^-L they live where the integrand s e^-s T of the same tier moved down by L does: they are that one times
(1 - e^-t) e^s Phi / s and times epsilon e^(s - t) phi_i, which vary slowly there. So the nodes of the moved tier serve.

Functions that take `places` compile the cut-off only if it is a number; None means that the whole tier counts. Likewise
derivatives are compiled only where `gradient` is an array, not None.
"""

import math

from plackett.compilation import inner, inner_part, inner_sum
from plackett.likelihood.constants import LARGEST_ANGLE, LARGEST_CLOSED_FORM, LARGEST_LOG_ODDS
from plackett.likelihood.cutoff import log_of_units, log_tail_probabilities, log_time_of_place, tail_moments
from plackett.likelihood.elementary import (
    bits_of_float64,
    fast_exp,
    fast_expm1,
    float64_from_bits,
)
from plackett.likelihood.kernel_parts import (
    ITEM_ODDS,
    ITEM_PHI,
    ITEM_PHI_Z,
    NODE_LOG,
    NODE_T,
    NODE_WEIGHT,
    NODE_Y,
    decay_rate,
    deep_threshold,
    exponentials,
    mean_and_variance,
)

_VECTOR = 8
_STRIDE = 16
# Below this z the Gaussian estimate of an item's factor is nearly exact; above it is too cautious.
_CLIFF = 3.0
# The tail of a Poisson-binomial distribution is less smooth than its curvature suggests: the depth aimed at by the
# spacing of its nodes is larger by this factor. Without it, values were off by 5,000 tol, with it by less than tol.
_CUTOFF_CAUTION = 1.5
# Nodes beyond the point where f has dropped by `depth`, in nats. To the right the second moment of t is summed, whose
# integrand is t^2 larger; the tail there is double exponential, so this costs at most two nodes.
_LEFT_MARGIN, _RIGHT_MARGIN = 1.0, 6.0
# Above this, log P of a divided tier is computed from 1 - P. Below it, little is lost by computing it from P.
_CLOSE_TO_ONE = -0.1
# Nats by which the nodes for 1 - P go deeper, because they are chosen for a slightly different integrand.
_COMPLEMENT_MARGIN = 3.0
_MANTISSA = (1 << 52) - 1
_EXPONENT_OF_ONE = 1023 << 52
_LN2 = 0.6931471805599453


@inner_sum
def _slope_and_curvature(a, n, deep, t):
    """f' and -f'' at one point; `deep` items have z = 0 and slope 1."""
    slope = 1.0 - t + deep
    curvature = t
    for i in range(n):
        z = a[i] * t
        phi = decay_rate(z)
        slope += phi
        curvature += phi * (z + phi - 1.0)
    return slope, curvature


@inner_part
def _mode(a, n, deep):
    """A point within a tenth of a standard deviation of the maximum of f, and the curvature there."""
    low = 0.0
    high = math.log(n + deep + 1.0)
    guess = 1.0 + deep
    for i in range(n):
        guess += 1.0 / (1.0 + a[i] * 0.5 * (1.0 + n))
    y = min(math.log(guess), high)
    curvature = 1.0
    for _ in range(60):
        slope, curvature = _slope_and_curvature(a, n, deep, math.exp(y))
        if slope * slope < 0.01 * curvature:
            break
        if slope > 0.0:
            low = y
        else:
            high = y
        y += slope / curvature
        if not low < y < high:
            y = 0.5 * (low + high)
    return y, curvature


@inner_part
def _log_products(a, n, t, log_product, exponent):
    """log prod_i (1 - exp(-a_i t_k)) for every node, with one logarithm per node.

    Products are kept as mantissa * 2^exponent. Four factors of at least exp(-100) each fit between two normalisations.
    """
    for k in range(t.size):
        log_product[k] = 1.0
        exponent[k] = 0
    for i in range(n):
        rate = a[i]
        for k in range(t.size):
            log_product[k] *= -fast_expm1(-rate * t[k])
        if i % 4 == 3:
            for k in range(t.size):
                bits = bits_of_float64(log_product[k])
                exponent[k] += (bits >> 52) - 1023
                log_product[k] = float64_from_bits((bits & _MANTISSA) | _EXPONENT_OF_ONE)
    for k in range(t.size):
        log_product[k] = math.log(log_product[k]) + exponent[k] * _LN2


@inner_sum
def _moments(a, n, t, q, phi_mean, phi_z_mean):
    """E[phi_i] and E[phi_i z_i] for every item."""
    for i in range(n):
        rate = a[i]
        mean = 0.0
        z_mean = 0.0
        for k in range(t.size):
            z = rate * t[k]
            weighted = q[k] * decay_rate(z)
            mean += weighted
            z_mean += weighted * z
        phi_mean[i] = mean
        phi_z_mean[i] = z_mean


@inner
def _spacing(curvature, depth):
    """The largest h with 2 pi theta / h - curvature theta^2 / 2 >= depth for some theta up to the largest angle."""
    angle = min(math.sqrt(2.0 * depth / curvature), LARGEST_ANGLE)
    return 2.0 * math.pi * angle / (depth + 0.5 * curvature * angle * angle)


@inner
def _reach(t, depth):
    """How far from the mode, to the left and to the right, f has certainly dropped by `depth` and the margin.

    By concavity f falls by at least t (e^d - 1 - d) at distance d to the right of the mode and t (d - 1 + e^-d) to the
    left of it, t taken at the mode. Both are convex, so Newton's method from too large a d comes down to the root.
    """
    left_ratio = (depth + _LEFT_MARGIN) / t
    right_ratio = (depth + _RIGHT_MARGIN) / t
    left = left_ratio + 1.0
    right = min(math.sqrt(2.0 * right_ratio), math.log1p(right_ratio) + 2.0)
    for _ in range(4):
        decay = math.exp(-left)
        left -= (left - 1.0 + decay - left_ratio) / (1.0 - decay)
        growth = math.exp(right)
        right -= (growth - 1.0 - right - right_ratio) / (growth - 1.0)
    return left, right


@inner_part
def _spacing_on_a_cliff(slope, z, t, depth):
    """As `_spacing` for a node at which items well above the rest begin to fall behind.

    There log T = -sum exp(-z_i), which an angle theta turns into -loss e^{z (1 - cos theta)} cos(z sin theta), where
    loss = -log T and slope = loss z is its slope in y. The integrand grows by little more than the loss, where the
    Gaussian estimate has no bound.
    """
    best = 0.0
    loss = slope / z
    angle = LARGEST_ANGLE
    for _ in range(12):
        swing = min(z * math.sin(angle), math.pi)
        growth = loss * (1.0 - math.exp(min(z * (1.0 - math.cos(angle)), 100.0)) * math.cos(swing))
        growth = max(growth, 0.0) + 0.5 * t * angle * angle
        best = max(best, 2.0 * math.pi * angle / (depth + growth))
        angle *= 0.8
    return best


@inner_part
def _needed_spacing(nodes, deep, first, last, top, h, depth):
    """The spacing that the nodes require, at most h, and the logarithm of the estimated relative error with h.

    Each node contributes exp(f - top) times the factor by which the rule with spacing h misses a peak of the local
    curvature. Slope and curvature of f come from differences.
    """
    t, f = nodes[NODE_T], nodes[NODE_LOG]
    needed = h
    log_error = -math.inf if f[first] < top - depth else f[first] - top  # a tail that was cut off
    for k in range(first + 1, last - 1):
        remaining = depth - (top - f[k])
        if remaining > 0.0:
            curvature = max((2.0 * f[k] - f[k - 1] - f[k + 1]) / (h * h), 1e-3)
            angle = min(2.0 * math.pi / (h * curvature), LARGEST_ANGLE)
            gain = 2.0 * math.pi * angle / h - 0.5 * curvature * angle * angle
            if gain < remaining:
                local = _spacing(curvature, remaining)
                # For log T = -loss the slope is loss z and the curvature loss (z^2 - z); large z means a cliff.
                slope = (f[k + 1] - f[k - 1]) / (2.0 * h) - (1.0 + deep) + t[k]
                z = 1.0 + max(curvature - t[k], 0.0) / max(slope, 1e-300)
                if z > _CLIFF:
                    local = max(local, _spacing_on_a_cliff(slope, z, t[k], remaining))
                needed = min(needed, local)
                gain = min(remaining * local / h, remaining)
            log_error = max(log_error, remaining - depth - gain)
    return needed, log_error


@inner_part
def _log_integrand(a, log_odds, n, deep, places, y, t, f, exponent):
    """Fill t and f for nodes whose y is set.

    The arrays must be contiguous and exactly as long as there are nodes, or the loops over them are not vectorised.
    """
    for k in range(y.size):
        t[k] = fast_exp(y[k])
    if places is None:
        _log_products(a, n, t, f, exponent)
        for k in range(y.size):
            f[k] += (1.0 + deep) * y[k] - t[k]
    else:
        log_tail_probabilities(log_odds, n, places, t, f)
        for k in range(y.size):
            f[k] += y[k] - t[k]


@inner_part
def _mode_of_cutoff(log_odds, n, places, nodes, exponent):
    """As `_mode`, from 24 points that cover the interval [0, log(places + 1)], which contains it, and a margin."""
    points = 24
    y, f = nodes[NODE_Y], nodes[NODE_LOG]
    width = math.log(places + 1.0) + 1.0
    for k in range(points):
        y[k] = -0.5 + width * k / (points - 1)
    _log_integrand(log_odds, log_odds, n, 0, places, y[:points], nodes[NODE_T, :points], f[:points], exponent)
    best = 1
    for k in range(2, points - 1):
        if f[k] > f[best]:
            best = k
    step = width / (points - 1)
    return y[best], max((2.0 * f[best] - f[best - 1] - f[best + 1]) / (step * step), 1.0)


@inner_part
def _evaluate_nodes(first, last, centre, mode, h, a, log_odds, n, deep, places, nodes, exponent):
    """Place the nodes first..last and fill t and f; returns the largest f."""
    for k in range(first, last):
        nodes[NODE_Y, k] = mode + (k - centre) * h
    _log_integrand(
        a, log_odds, n, deep, places,
        nodes[NODE_Y, first:last], nodes[NODE_T, first:last], nodes[NODE_LOG, first:last], exponent,
    )  # fmt: skip
    top = nodes[NODE_LOG, first]
    for k in range(first + 1, last):
        top = max(top, nodes[NODE_LOG, k])
    return top


@inner
def _whole_vectors(nodes):
    """The number of nodes rounded up to whole vector registers: a partial vector costs as much as a whole one."""
    return (nodes + _VECTOR - 1) // _VECTOR * _VECTOR


@inner_sum
def _normalised_exponentials(f, top, q):
    """q = exp(f - top) divided by its sum, which is returned."""
    total = exponentials(f, top, q)
    for k in range(f.size):
        q[k] /= total
    return total


@inner_part
def _odds(log_odds, n, threshold, a):
    """Write exp of the log odds above the threshold into a; returns their number and the sum of the other log odds."""
    lowest = log_odds[0]
    for i in range(n):
        lowest = min(lowest, log_odds[i])
    if lowest > threshold:
        for i in range(n):
            a[i] = fast_exp(min(log_odds[i], LARGEST_LOG_ODDS))
        return n, 0.0
    shallow = 0
    deep_log_odds = 0.0
    for i in range(n):
        if log_odds[i] > threshold:
            a[shallow] = math.exp(min(log_odds[i], LARGEST_LOG_ODDS))
            shallow += 1
        else:
            deep_log_odds += log_odds[i]
    return shallow, deep_log_odds


@inner_part
def _trapezoid(a, log_odds, n, deep, places, depth, nodes, exponent):
    """Choose the nodes and weigh them: (log P without the factors outside f, first node, log error).

    The nodes end at the end of `nodes`, whose rows become y, t, f and the normalised weights q.
    """
    f, q = nodes[NODE_LOG], nodes[NODE_WEIGHT]
    if places is None:
        mode, curvature = _mode(a, n, deep)
    else:
        mode, curvature = _mode_of_cutoff(log_odds, n, places, nodes, exponent)
    resolution = depth if places is None else _CUTOFF_CAUTION * depth
    h = 0.9 * _spacing(curvature, resolution)  # f is steeper to the right of the mode, and a second round costs more
    left, right = _reach(math.exp(mode), depth)
    last = nodes.shape[1]
    for _ in range(8):
        steps_right = math.ceil(right / h)
        steps_left = math.ceil(left / h)
        centre = last - 1 - steps_right
        # The bound on the left end is far too wide where items are well above the rest: approach it in strides.
        first = last - _whole_vectors(steps_right + 1 + min(steps_left, _STRIDE))
        top = _evaluate_nodes(first, last, centre, mode, h, a, log_odds, n, deep, places, nodes, exponent)
        while f[first] > top - depth - _LEFT_MARGIN and centre - first < steps_left and first >= _STRIDE:
            first -= _STRIDE
            new_top = _evaluate_nodes(
                first, first + _STRIDE, centre, mode, h, a, log_odds, n, deep, places, nodes, exponent
            )
            top = max(top, new_top)
        needed, log_error = _needed_spacing(nodes, deep, first, last, top, h, resolution)
        if needed > 0.95 * h:
            break
        h = max(0.98 * needed, 0.25 * h)
    while first < last - _VECTOR and f[first + _VECTOR - 1] < top - depth - _LEFT_MARGIN:
        first += _VECTOR
    total = _normalised_exponentials(f[first:], top, q[first:])
    return top + math.log(total * h), first, log_error


@inner
def tier_nodes(log_odds, n, depth, nodes, exponent, work):
    """Nodes of a whole tier: how many of its items are above `deep_threshold`, and the first node.

    `nodes` is filled from the first node on, work[ITEM_ODDS] with the odds of those items; see `Workspace`.
    """
    shallow, _ = _odds(log_odds, n, deep_threshold(n), work[ITEM_ODDS])
    _, first, _ = _trapezoid(work[ITEM_ODDS], log_odds, shallow, n - shallow, None, depth, nodes, exponent)
    return shallow, first


@inner
def cutoff_nodes(log_odds, n, places, depth, nodes, exponent):
    """As `tier_nodes` for a tier that a cut-off divides; returns the first node."""
    _, first, _ = _trapezoid(log_odds, log_odds, n, 0, places, depth, nodes, exponent)
    return first


@inner
def _is_far_above(log_odds, n):
    """Whether 1 - P is guaranteed to be at most 1/4, and the lowest log odds.

    The largest of n exponentials of mean m has a mean of at most m (1 + log n). Where that does not suffice, 1 - P is
    at least 1 / (5 + 4 log n), and little is lost by computing log P from P.
    """
    lowest = log_odds[0]
    for i in range(n):
        lowest = min(lowest, log_odds[i])
    return lowest > math.log(4.0 + 4.0 * math.log(n)), lowest


@inner_sum
def _total_decay(a, n, t, total):
    """The sum over items of phi at every node."""
    for k in range(t.size):
        total[k] = 0.0
    for i in range(n):
        rate = a[i]
        for k in range(t.size):
            total[k] += decay_rate(rate * t[k])


@inner
def _weigh_complement(log_value, epsilon, s, q):
    """Turn the weights q of a tier moved down by L, whose log P is `log_value`, into those of d P / d l_i."""
    for k in range(s.size):
        q[k] *= epsilon * math.exp(log_value + (1.0 - epsilon) * s[k])


@inner_sum
def _complement(epsilon, s, q, total_decay):
    """C, d P / ds and d2 P / ds2 when all items move together; the last is integral t (t - 1) e^-t T Phi dy."""
    value = 0.0
    first = 0.0
    second = 0.0
    for k in range(s.size):
        t = epsilon * s[k]
        x = q[k] * total_decay[k]
        value += x * (fast_expm1(t) / t if t > 0.0 else 1.0)
        first += x
        second += x * (t - 1.0)
    return value, first, second


@inner_part
def _by_complement(log_odds, n, places, level, depth, nodes, exponent, work, gradient, curvature):
    """As `_by_quadrature` for a tier with P close to 1, whose last place is filled at about t = e^-level."""
    moved = work[ITEM_ODDS]
    for i in range(n):
        moved[i] = log_odds[i] - level
        if places is None:
            moved[i] = fast_exp(min(moved[i], LARGEST_LOG_ODDS))
    depth += _COMPLEMENT_MARGIN
    log_value, first, log_error = _trapezoid(moved, moved, n, 0, places, depth, nodes, exponent)
    if places is not None:
        log_value += log_of_units(moved, n, places)
    # y is no longer needed: its row takes the sum of phi.
    s, q, total_decay = nodes[NODE_T, first:], nodes[NODE_WEIGHT, first:], nodes[NODE_Y, first:]
    epsilon = math.exp(-level)
    _weigh_complement(log_value, epsilon, s, q)
    if places is not None:
        tail_moments(moved, n, places, s, q, work[ITEM_PHI], work[ITEM_PHI_Z], total_decay)
    else:
        _total_decay(moved, n, s, total_decay)
        if gradient is not None:
            _moments(moved, n, s, q, work[ITEM_PHI], work[ITEM_PHI_Z])
    complement, slope, second = _complement(epsilon, s, q, total_decay)
    probability = 1.0 - complement
    if gradient is not None:
        for i in range(n):
            gradient[i] = work[ITEM_PHI, i] / probability
            curvature[i] = gradient[i] * (gradient[i] - 1.0) + work[ITEM_PHI_Z, i] / probability
    slope /= probability
    return math.log1p(-complement), second / probability - slope * slope, log_error


@inner_part
def _by_quadrature(log_odds, n, depth, nodes, exponent, work, gradient, curvature):
    """As `tier_log_probability` for a whole tier, by the trapezoid rule."""
    a = work[ITEM_ODDS]
    threshold = deep_threshold(n)
    shallow, deep_log_odds = _odds(log_odds, n, threshold, a)
    value, first, log_error = _trapezoid(a, log_odds, shallow, n - shallow, None, depth, nodes, exponent)
    second = 0.0
    if gradient is not None:
        t, q = nodes[NODE_T, first:], nodes[NODE_WEIGHT, first:]
        second = _second_of_all(t, q)
        _moments(a, shallow, t, q, work[ITEM_PHI], work[ITEM_PHI_Z])
        j = 0
        for i in range(n):
            if log_odds[i] > threshold:
                _item_derivatives(work, j, i, gradient, curvature)
                j += 1
            else:
                gradient[i] = 1.0
                curvature[i] = 0.0
    return value + deep_log_odds, second, log_error


@inner_part
def _divided_by_quadrature(log_odds, n, places, depth, nodes, exponent, work, gradient, curvature):
    """As `_by_quadrature` for a tier that the cut-off divides."""
    value, first, log_error = _trapezoid(log_odds, log_odds, n, 0, places, depth, nodes, exponent)
    second = 0.0
    if gradient is not None:
        t, q = nodes[NODE_T, first:], nodes[NODE_WEIGHT, first:]
        second = _second_of_all(t, q)
        tail_moments(log_odds, n, places, t, q, work[ITEM_PHI], work[ITEM_PHI_Z], nodes[NODE_Y, first:])
        for i in range(n):
            _item_derivatives(work, i, i, gradient, curvature)
    return value + log_of_units(log_odds, n, places), second, log_error  # the units can be huge


@inner
def _second_of_all(t, q):
    """The second derivative of log P along all items together, Var[t] - E[t]."""
    mean, variance = mean_and_variance(t, q)
    return variance - mean


@inner
def _item_derivatives(work, j, i, gradient, curvature):
    """The derivatives of item i, from its moments number j."""
    mean = work[ITEM_PHI, j]
    gradient[i] = mean
    curvature[i] = mean * (mean - 1.0) + work[ITEM_PHI_Z, j]


@inner
def _fill_subsets(odds, factor, n, odds_of_rest, constant, q, inverse):
    """q(T) = (constant + sum_{i in T} factor_i q(T - i)) inverse(T), inverse(T) = 1 / (odds_of_rest + sum_T odds).

    For all subsets T of n items in the order of their bits; q of the empty one is given.
    """
    for subset in range(1, 1 << n):
        total = odds_of_rest
        numerator = constant
        for i in range(n):
            if subset >> i & 1:
                total += odds[i]
                numerator += factor[i] * q[subset ^ (1 << i)]
        inverse[subset] = 1.0 / total
        q[subset] = numerator * inverse[subset]


@inner
def _by_recursion(log_odds, n, nodes, work, gradient, curvature):
    """Small tiers in closed form, without cancellation: a sum over the item that comes first.

    For T a subset of S,  Q(T) (1 + sum_T a) = sum_{i in T} a_i Q(T - i)  with Q(nothing) = 1: all terms are positive.
    An item with a_i < 1 leaves its a_i outside (`factor` 1 in place of a_i), so that nothing underflows. Derivatives
    along the n axes and along all items together follow by differentiating the recursion; a' = a'' = a.
    """
    subsets = 1 << n
    a, factor = work[0], work[1]
    value = 0.0
    for i in range(n):
        a[i] = math.exp(min(log_odds[i], LARGEST_LOG_ODDS))
        factor[i] = 1.0
        if log_odds[i] < 0.0:
            value += log_odds[i]
        else:
            factor[i] = a[i]
    q, q1, q2, inverse = nodes[0], nodes[1], nodes[2], nodes[3]  # one entry per subset
    q[0], q1[0], q2[0] = 1.0, 0.0, 0.0
    _fill_subsets(a, factor, n, 1.0, 0.0, q, inverse)
    whole = subsets - 1
    value += math.log(q[whole])
    second_of_all = 0.0
    if gradient is not None:
        for direction in range(n + 1):  # direction n moves all items
            for subset in range(1, subsets):
                growth = 0.0
                first = 0.0
                second = 0.0
                for i in range(n):
                    if subset >> i & 1:
                        rest = subset ^ (1 << i)
                        first += factor[i] * q1[rest]
                        second += factor[i] * q2[rest]
                        if direction in (i, n):
                            growth += a[i]
                            if log_odds[i] >= 0.0:
                                first += a[i] * q[rest]
                                second += a[i] * (q[rest] + 2.0 * q1[rest])
                q1[subset] = (first - growth * q[subset]) * inverse[subset]
                q2[subset] = (second - growth * (q[subset] + 2.0 * q1[subset])) * inverse[subset]
            slope = q1[whole] / q[whole]
            second = q2[whole] / q[whole] - slope * slope
            if direction == n:
                second_of_all = second
            else:
                gradient[direction] = slope + (1.0 if log_odds[direction] < 0.0 else 0.0)
                curvature[direction] = -second
    return value, second_of_all


@inner
def _complement_by_recursion(log_odds, n, lowest, nodes, work, gradient, curvature):
    """As `_by_recursion` for a tier that `_is_far_above`, through 1 - P = epsilon D, epsilon = exp(-lowest).

    With odds b_i = exp(l_i - lowest) and A(T) = epsilon + sum_T b the recursion of Q = 1 - epsilon D becomes

        A(T) D(T) = 1 + sum_{i in T} b_i D(T - i),    D(nothing) = 0

    Along item i, with the increment G(T) = D(T) - D(T - i), sums over k in T other than i,

        A(T) G(T)   = sum_k b_k G(T - k),   A(i) G(i) = 1
        A(T) D'(T)  = sum_k b_k D'(T - k) - b_i G(T)
        A(T) D''(T) = sum_k b_k D''(T - k) - b_i (G(T) + 2 D'(T))

    and along all items together, sums over all of T,

        A(T) D'(T)  = sum_k b_k D'(T - k) - (1 - epsilon D(T))
        A(T) D''(T) = sum_k b_k D''(T - k) + (1 - epsilon D(T)) + 2 epsilon D'(T)

    D, G and -D' are sums of positive terms, so every gradient keeps its digits, however small.
    """
    subsets = 1 << n
    b = work[0]
    epsilon = math.exp(-lowest)
    for i in range(n):
        b[i] = math.exp(min(log_odds[i] - lowest, LARGEST_LOG_ODDS))
    d, inverse = nodes[0], nodes[1]  # one entry per subset
    d1, d2, increment = nodes[2], nodes[3], nodes[2, subsets:]
    d[0] = 0.0
    _fill_subsets(b, b, n, epsilon, 1.0, d, inverse)
    whole = subsets - 1
    complement = epsilon * d[whole]
    second_of_all = 0.0
    if gradient is not None:
        odds = epsilon / (1.0 - complement)
        for direction in range(n + 1):  # direction n moves all items
            bit = 1 << direction if direction < n else 0
            d1[0], d2[0], increment[0] = 0.0, 0.0, 0.0
            for subset in range(1, subsets):
                if subset & bit != bit:
                    d1[subset], d2[subset], increment[subset] = 0.0, 0.0, 0.0
                    continue
                first = 0.0
                second = 0.0
                added = 1.0 if subset == bit else 0.0
                for k in range(n):
                    if (subset ^ bit) >> k & 1:
                        rest = subset ^ (1 << k)
                        first += b[k] * d1[rest]
                        second += b[k] * d2[rest]
                        added += b[k] * increment[rest]
                if direction < n:
                    increment[subset] = added * inverse[subset]
                    d1[subset] = (first - b[direction] * increment[subset]) * inverse[subset]
                    second -= b[direction] * (increment[subset] + 2.0 * d1[subset])
                else:
                    wins = 1.0 - epsilon * d[subset]
                    d1[subset] = (first - wins) * inverse[subset]
                    second += wins + 2.0 * epsilon * d1[subset]
                d2[subset] = second * inverse[subset]
            slope = -odds * d1[whole]
            second = odds * d2[whole] + slope * slope
            if direction == n:
                second_of_all = -second
            else:
                gradient[direction] = slope
                curvature[direction] = second
    return math.log1p(-complement), second_of_all


@inner
def _logistic(x):
    """log s(x), s(-x) and s(x) s(-x) of the logistic function s, with one exponential."""
    e = math.exp(-abs(x))
    smaller = e / (1.0 + e)
    return min(x, 0.0) - math.log1p(e), smaller if x > 0.0 else 1.0 / (1.0 + e), smaller / (1.0 + e)


@inner
def first_place(log_odds, n, gradient, curvature):
    """log P that the best of S beats R: S acts as one item of log odds logsumexp(l). Covers tiers of one item."""
    if n == 1:
        value, loses, spread = _logistic(log_odds[0])
        if gradient is not None:
            gradient[0], curvature[0] = loses, spread
        return value, -spread
    highest = log_odds[0]
    for i in range(1, n):
        highest = max(highest, log_odds[i])
    total = 0.0
    for i in range(n):
        total += math.exp(log_odds[i] - highest)
    value, loses, spread = _logistic(highest + math.log(total))
    if gradient is not None:
        for i in range(n):
            share = math.exp(log_odds[i] - highest) / total
            gradient[i] = share * loses
            curvature[i] = share * share * spread - share * (1.0 - share) * loses
    return value, -spread


@inner
def _divided_tier(log_odds, n, places, depth, nodes, exponent, work, gradient, curvature):
    """As `tier_log_probability` for a tier that the cut-off divides."""
    if places == 1:
        value, second = first_place(log_odds, n, gradient, curvature)
        return value, second, -math.inf
    value, second, log_error = _divided_by_quadrature(
        log_odds, n, places, depth, nodes, exponent, work, gradient, curvature
    )
    if value < _CLOSE_TO_ONE:
        return value, second, log_error
    level = -log_time_of_place(log_odds, n, places)
    return _by_complement(log_odds, n, places, level, depth, nodes, exponent, work, gradient, curvature)


@inner
def tier_log_probability(log_odds, n, first, top, depth, nodes, exponent, work, gradient, curvature):
    """log P that the n items of a tier come before everything below.

    With a cut-off `top`, not None, only the places first..top count, where `first` is the number of items above.

    `gradient` receives d log P / d l_i and `curvature` -d2 log P / d l_i^2, unless it is None. Returns log P, its
    second derivative along all items together (meaningless without gradient), and the log of the estimated error.
    """
    if top is not None and top - first < n:
        return _divided_tier(log_odds, n, top - first, depth, nodes, exponent, work, gradient, curvature)
    if n == 1:
        value, second = first_place(log_odds, 1, gradient, curvature)
        return value, second, -math.inf
    far_above, level = _is_far_above(log_odds, n)
    if n <= LARGEST_CLOSED_FORM:
        if far_above:
            value, second = _complement_by_recursion(log_odds, n, level, nodes, work, gradient, curvature)
        else:
            value, second = _by_recursion(log_odds, n, nodes, work, gradient, curvature)
        return value, second, -math.inf
    if far_above:
        return _by_complement(log_odds, n, None, level, depth, nodes, exponent, work, gradient, curvature)
    return _by_quadrature(log_odds, n, depth, nodes, exponent, work, gradient, curvature)
