"""Series-parallel orders: one-dimensional integrals, nested along the structure.

Such an order is an item, or two orders side by side (parallel), or one wholly above the other (series). Items are
exponential times, which start anew at any time at which none of them has come. So an order needs one function of one
time, the probability G(t) that it holds and all its items have come t after its start, with its density g = G':

    an item                g(t) = exp(w) exp(-exp(w) t)
    P beside Q             G(t) = G_P(t) G_Q(t)
    P above Q              g(t) = integral over x < t of g_P(x) exp(-L_Q x) g_Q(t - x),   L_Q the summed worths of Q
    P above an item        g(t) = exp(w) exp(-exp(w) t) G_P(t), the same in closed form

and G at infinity is the probability. Every term is positive.

Functions are kept as logarithms on the nodes of equal panels in y = log t, as in `tree_kernels`. Each half of the
integral, x < t / 2 and t - x < t / 2, takes one density at its nodes and interpolates the logarithm of the other. The
width of panels divides log 2. Then the halves end at nodes, and where t - x lies among the nodes depends only on the
node of t, the node of x and the number of panels between them: the weights of the interpolation are a table.

At time t at most (t L)^k / k! of the probability has k items, L the summed worths: the gaps between arrivals are
exponential with no higher rate. So g of k items follows its power law, t^(k-1), where that is below rounding.

The gradient is that of the computation, step by step in reverse. Moving all scores changes nothing, so that its sum,
which no step forces to be zero, tells the error of the integration.
"""

import math

import numpy as np

from plackett.compilation import inner, inner_part, kernel
from plackett.likelihood.kernel_parts import log_add
from plackett.likelihood.partial_orders.tree_kernels import MOST_POINTS, NODES, integrate, span_of_times

# Rows of `steps`: what it is, and its item, or the steps that it joins.
KIND, FIRST, SECOND = 0, 1, 2
ITEM, SERIES, PARALLEL = 0, 1, 2
# Rows of `functions`: log g, log G, and the derivatives of log P by both.
DENSITY, REACHED, BY_DENSITY, BY_REACHED = 0, 1, 2, 3
_NEGLIGIBLE = 40.0  # e^-40 of a sum is below rounding
_SMALLEST_SHARE = 1e-25  # derivatives of log P by one node that are left out


@inner
def _interpolate(j, o, k, panel, f, shifts, weights):
    """f at the logarithm of t - x, where t is node j of `panel` and x is node k of the panel o below."""
    base = (panel - shifts[j, o, k]) * NODES
    total = 0.0
    for i in range(NODES):
        total += weights[j, o, k, i] * f[base + i]
    return total


@inner
def _highest(panel, j, splits, far):
    """The largest value of `far` at t - x for x < t / 2, t node j of the panel."""
    highest = far[panel * NODES + j]
    for k in range(max(panel - splits - 2, 0) * NODES, panel * NODES + j):
        highest = max(highest, far[k])
    return highest


@inner_part
def _fill_below(panels, width, matrix, y, f, below):
    """below[m] = log of the integral of exp(f) up to the left end of panel m."""
    below[0] = f[0] + y[0]  # before the first node: negligible, but not zero
    for panel in range(panels):
        base = panel * NODES
        peak = -math.inf
        for k in range(NODES):
            peak = max(peak, f[base + k] + y[base + k])
        whole = 0.0
        for k in range(NODES):
            whole += matrix[NODES, k] * math.exp(f[base + k] + y[base + k] - peak)
        below[panel + 1] = log_add(below[panel], peak + math.log(0.5 * width * whole))


@inner_part
def _fill_below_backward(panels, width, matrix, y, f, below, by_below, by_f):
    """Pass the derivatives by `below` on to f. `later` is scaled by what is below the end of the panel."""
    later = 0.0
    for panel in range(panels - 1, -1, -1):
        later += by_below[panel + 1]
        if later != 0.0:
            for k in range(panel * NODES, (panel + 1) * NODES):
                by_f[k] += 0.5 * width * later * matrix[NODES, k % NODES] * math.exp(f[k] + y[k] - below[panel + 1])
        later *= math.exp(below[panel] - below[panel + 1])


@inner_part
def _half(panel, j, splits, width, matrix, shifts, weights, y, near, far, below, scratch):
    """log of the integral over x < t / 2 of exp(near(x) + far(t - x)), t node j of the panel; `below` is that of near.

    Where x is so small that t - x is t, that is all of `near` times far(t).
    """
    highest = _highest(panel, j, splits, far)
    peak, total = -math.inf, 0.0
    end = min(panel + 1, splits + shifts.shape[1])
    for o in range(splits, end):
        base = (panel - o) * NODES
        own_peak = -math.inf
        for k in range(NODES):
            scratch[k] = near[base + k] + y[base + k] + _interpolate(j, o - splits, k, panel, far, shifts, weights)
            own_peak = max(own_peak, scratch[k])
        own = 0.0
        for k in range(NODES):
            own += matrix[j if o == splits else NODES, k] * math.exp(scratch[k] - own_peak)
        if own_peak > peak:
            total, peak = total * math.exp(peak - own_peak) + own, own_peak
        else:
            total += own * math.exp(own_peak - peak)
        if total > 0.0 and below[panel - o] + highest < peak + math.log(0.5 * width * total) - _NEGLIGIBLE:
            return peak + math.log(0.5 * width * total)
    value = peak + math.log(0.5 * width * total) if total > 0.0 else -math.inf
    return log_add(value, below[panel - end + 1] + far[panel * NODES + j])


@inner_part
def _half_backward(
    panel, j, splits, width, matrix, shifts, weights, y, near, far, below, log_value, share, by_near, by_far, by_below
):
    """Add share times the derivatives of exp(log of the half) / exp(log_value) by near and far, and by `below`."""
    highest = _highest(panel, j, splits, far)
    end = min(panel + 1, splits + shifts.shape[1])
    for o in range(splits, end):
        base = (panel - o) * NODES
        for k in range(NODES):
            log_term = near[base + k] + y[base + k] + _interpolate(j, o - splits, k, panel, far, shifts, weights)
            part = 0.5 * width * share * matrix[j if o == splits else NODES, k] * math.exp(log_term - log_value)
            by_near[base + k] += part
            there = (panel - shifts[j, o - splits, k]) * NODES
            for i in range(NODES):
                by_far[there + i] += part * weights[j, o - splits, k, i]
        if below[panel - o] + highest < log_value - _NEGLIGIBLE:
            return
    part = share * math.exp(below[panel - end + 1] + far[panel * NODES + j] - log_value)
    by_far[panel * NODES + j] += part
    by_below[panel - end + 1] += part


@inner
def _first_panel(items, begin, width, splits):
    """The first panel that the density of so many items is computed in."""
    return max(int((-_NEGLIGIBLE / items - begin) / width), splits + 3)


@inner
def _tilt(s, rate, points, t, functions, tilted):
    """log of g_P(x) exp(-L_Q x)."""
    for k in range(points):
        tilted[k] = functions[DENSITY, s, k] - rate * t[k]


@inner_part
def _join_series(
    s, p, q, rate, items, begin, panels, width, splits, matrix, shifts, weights, y, t, functions, tilted, below, scratch
):
    """log g of P above Q."""
    _tilt(p, rate, panels * NODES, t, functions, tilted)
    _fill_below(panels, width, matrix, y, tilted, below[0])
    _fill_below(panels, width, matrix, y, functions[DENSITY, q], below[1])
    first = _first_panel(items, begin, width, splits)
    for panel in range(first, panels):
        for j in range(NODES):
            functions[DENSITY, s, panel * NODES + j] = log_add(
                _half(
                    panel, j, splits, width, matrix, shifts, weights, y, tilted, functions[DENSITY, q], below[0],
                    scratch,
                ),
                _half(
                    panel, j, splits, width, matrix, shifts, weights, y, functions[DENSITY, q], tilted, below[1],
                    scratch,
                ),
            )  # fmt: skip
    known = first * NODES
    for k in range(known):
        functions[DENSITY, s, k] = functions[DENSITY, s, known] + (items - 1) * (y[k] - y[known])


@inner_part
def _join_series_backward(
    s, p, q, rate, items, begin, panels, width, splits, matrix, shifts, weights, y, t, functions, tilted, by_tilted,
    below, by_below,
):  # fmt: skip
    """Pass the derivative by log g on to both parts; returns that by L_Q."""
    points = panels * NODES
    _tilt(p, rate, points, t, functions, tilted)
    _fill_below(panels, width, matrix, y, tilted, below[0])
    _fill_below(panels, width, matrix, y, functions[DENSITY, q], below[1])
    for k in range(points):
        by_tilted[k] = 0.0
    for panel in range(panels + 1):
        by_below[0, panel] = by_below[1, panel] = 0.0
    for panel in range(_first_panel(items, begin, width, splits), panels):
        for j in range(NODES):
            at = panel * NODES + j
            share, log_value = functions[BY_DENSITY, s, at], functions[DENSITY, s, at]
            if abs(share) < _SMALLEST_SHARE:
                continue
            _half_backward(
                panel, j, splits, width, matrix, shifts, weights, y, tilted, functions[DENSITY, q], below[0], log_value,
                share, by_tilted, functions[BY_DENSITY, q], by_below[0],
            )  # fmt: skip
            _half_backward(
                panel, j, splits, width, matrix, shifts, weights, y, functions[DENSITY, q], tilted, below[1], log_value,
                share, functions[BY_DENSITY, q], by_tilted, by_below[1],
            )  # fmt: skip
    _fill_below_backward(panels, width, matrix, y, tilted, below[0], by_below[0], by_tilted)
    _fill_below_backward(
        panels, width, matrix, y, functions[DENSITY, q], below[1], by_below[1], functions[BY_DENSITY, q]
    )
    by_rate = 0.0
    for k in range(points):
        functions[BY_DENSITY, p, k] += by_tilted[k]
        by_rate -= t[k] * by_tilted[k]
    return by_rate


@inner_part
def _integrate_backward(s, panels, width, matrix, y, functions):
    """Pass the derivative by log G, the integral of g, on to log g. `later` is scaled by G at the end of the panel."""
    later = 0.0
    for panel in range(panels - 1, -1, -1):
        base = panel * NODES
        end = functions[REACHED, s, min(base + NODES, panels * NODES - 1)]
        for k in range(NODES):
            log_f = functions[DENSITY, s, base + k] + y[base + k]
            total = later * matrix[NODES, k] * math.exp(log_f - end)
            for j in range(NODES):
                share = functions[BY_REACHED, s, base + j]
                if share != 0.0:
                    total += share * matrix[j, k] * math.exp(log_f - functions[REACHED, s, base + j])
            functions[BY_DENSITY, s, base + k] += 0.5 * width * total
        start = functions[REACHED, s, base]
        later *= math.exp(start - end)
        for j in range(NODES):
            later += functions[BY_REACHED, s, base + j] * math.exp(start - functions[REACHED, s, base + j])


@inner_part
def _item_functions(s, score, points, t, functions):
    worth = math.exp(score)
    for k in range(points):
        functions[DENSITY, s, k] = score - worth * t[k]
        functions[REACHED, s, k] = math.log(-math.expm1(-worth * t[k]))


@inner_part
def _item_derivative(s, score, points, t, functions):
    """The derivative of log P by the score of an item, through its own functions."""
    worth, total = math.exp(score), 0.0
    for k in range(points):
        z = worth * t[k]
        total += functions[BY_DENSITY, s, k] * (1.0 - z)
        total += functions[BY_REACHED, s, k] * (z / math.expm1(z) if z < 700.0 else 0.0)
    return total


@inner_part
def _join_parallel(s, p, q, points, functions):
    for k in range(points):
        functions[REACHED, s, k] = functions[REACHED, p, k] + functions[REACHED, q, k]
        functions[DENSITY, s, k] = log_add(
            functions[DENSITY, p, k] + functions[REACHED, q, k], functions[DENSITY, q, k] + functions[REACHED, p, k]
        )


@inner_part
def _join_parallel_backward(s, p, q, points, functions):
    for k in range(points):
        by_density, by_reached = functions[BY_DENSITY, s, k], functions[BY_REACHED, s, k]
        last_is_p = math.exp(functions[DENSITY, p, k] + functions[REACHED, q, k] - functions[DENSITY, s, k])
        functions[BY_DENSITY, p, k] += by_density * last_is_p
        functions[BY_DENSITY, q, k] += by_density * (1.0 - last_is_p)
        functions[BY_REACHED, p, k] += by_reached + by_density * (1.0 - last_is_p)
        functions[BY_REACHED, q, k] += by_reached + by_density * last_is_p


@kernel
def series_blocks(
    first, last, block_starts, step_starts, steps, splits, nodes, matrix, shifts, weights, scores, tol, value, error,
    gradient,
):  # fmt: skip
    """Value, error and gradient of the blocks first..last whose error is above `tol`, with panels of log 2 / splits.

    Items and steps are numbered within their block, a step comes after those that it joins, and scores are relative to
    the log of the block's summed worths. The error stays as it is where scores spread so far that the nodes would be
    too many.
    """
    width = math.log(2.0) / splits
    scratch = np.empty(NODES)
    for b in range(first, last):
        lo, first_step = block_starts[b], step_starts[b]
        n, count = block_starts[b + 1] - lo, step_starts[b + 1] - first_step
        lowest = 0.0
        for i in range(n):
            lowest = min(lowest, scores[lo + i])
        begin, stop = span_of_times(n, lowest)
        if error[b] <= tol or stop - begin > width * (MOST_POINTS // NODES):
            continue
        panels = math.ceil((stop - begin) / width)
        points = panels * NODES
        y, t, log_f = np.empty(points), np.empty(points), np.empty(points)
        tilted, by_tilted = np.empty(points), np.empty(points)
        below, by_below = np.empty((2, panels + 1)), np.empty((2, panels + 1))
        for k in range(points):
            y[k] = begin + width * (k // NODES + 0.5 * (1.0 + nodes[k % NODES]))
            t[k] = math.exp(y[k])
        functions = np.zeros((4, count, points))
        rates, by_rate, items = np.empty(count), np.zeros(count), np.empty(count, np.int64)
        for s in range(count):
            kind, p, q = steps[KIND, first_step + s], steps[FIRST, first_step + s], steps[SECOND, first_step + s]
            if kind == ITEM:
                rates[s], items[s] = math.exp(scores[lo + p]), 1
                _item_functions(s, scores[lo + p], points, t, functions)
                continue
            rates[s], items[s] = rates[p] + rates[q], items[p] + items[q]
            if kind == PARALLEL:
                _join_parallel(s, p, q, points, functions)
                continue
            if items[q] == 1:
                for k in range(points):
                    functions[DENSITY, s, k] = functions[DENSITY, q, k] + functions[REACHED, p, k]
            else:
                _join_series(
                    s, p, q, rates[q], items[s], begin, panels, width, splits, matrix, shifts, weights, y, t,
                    functions, tilted, below, scratch,
                )  # fmt: skip
            for k in range(points):
                log_f[k] = functions[DENSITY, s, k] + y[k]
            integrate(log_f, panels, width, matrix, True, scratch, s, functions[REACHED])
        root = count - 1
        value[b] = functions[REACHED, root, points - 1]
        functions[BY_REACHED, root, points - 1] = 1.0
        for s in range(root, -1, -1):
            kind, p, q = steps[KIND, first_step + s], steps[FIRST, first_step + s], steps[SECOND, first_step + s]
            if kind == ITEM:
                own = _item_derivative(s, scores[lo + p], points, t, functions)
                gradient[lo + p] = own + rates[s] * by_rate[s]
                continue
            by_rate[p] += by_rate[s]
            by_rate[q] += by_rate[s]
            if kind == PARALLEL:
                _join_parallel_backward(s, p, q, points, functions)
                continue
            _integrate_backward(s, panels, width, matrix, y, functions)
            if items[q] == 1:
                for k in range(points):
                    functions[BY_DENSITY, q, k] += functions[BY_DENSITY, s, k]
                    functions[BY_REACHED, p, k] += functions[BY_DENSITY, s, k]
            else:
                by_rate[q] += _join_series_backward(
                    s, p, q, rates[q], items[s], begin, panels, width, splits, matrix, shifts, weights, y, t,
                    functions, tilted, by_tilted, below, by_below,
                )  # fmt: skip
        total = 0.0
        for i in range(n):
            total += gradient[lo + i]
        error[b] = abs(total)
    return 0
