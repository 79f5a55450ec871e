"""Sums of the logistic and the hinge loss over all pairs of two sets of scores, without visiting the pairs.

For uppers y and lowers x, with f the logistic loss log(1 + exp(x - y)) or the hinge loss max(0, 1 + x - y):

    value = sum over x and y of f(x - y),   slope of x = sum_y f'(x - y),   slope of y = -sum_x f'(x - y)

**Logistic.** f is smooth: its singularities are pi away from the real axis. So scores are put into cells of width 1,
[c, c + 1), and within a cell f is a polynomial: with t = 2 (x - c) - 1 in [-1, 1],

    f(x - y) = sum_nm G_d[n, m] T_n(t_x) T_m(t_y),   d = c_x - c_y,

T_n the Chebyshev polynomials. The error falls like 12.6^-terms, so 13 terms leave 1e-14. A set enters by its moments
sum T_m(t_y) alone, and the slopes are polynomials that each item evaluates. Cells more than four apart need no table:
there f(z) = max(z, 0) + sum_k (-1)^(k+1) exp(-k |z|) / k converges to rounding within ten terms, which are
products of a term of x and a term of y, so that running sums over the cells suffice. All errors are relative, for f
and f' change by at most a factor of e within a cell: sums of 1e-300 are as exact as others. floor(x) and x - floor(x)
are exact, so wide scores lose nothing either. Time: items * terms + cells * terms^2.

**Hinge.** The smaller set is sorted, a binary search finds for each item of the other set how many pairs it is part of,
and running sums of gaps, all positive, give the loss: time (items) log(smaller set).

Small sets are cheaper pair by pair, in vector instructions.
"""

import math
from functools import cache

import numpy as np
import numpy.typing as npt

from plackett.compilation import inner, inner_sum
from plackett.likelihood.elementary import fast_exp, fast_log1p_of_unit

LOGISTIC, HINGE = 0, 1

TERMS = 13
_NEAR = 4  # cells at most this far apart use the tables
_EXPONENTIALS = 10  # exp(-4)^10 is 4e-18
# In units of one pair of the logistic loss taken by itself (5.5 ns), measured.
_COST_OF_ITEM = 5
_COST_OF_CELL = 200
_SMALLEST_SORTED = 100  # below this size the hinge loss is cheaper pair by pair
_SHORT = 16


@cache
def tables() -> npt.NDArray[np.float64]:
    """G for the value and for the slope, and the series of exp(k x) and exp(-k x) within a cell.

    One array, (rows, TERMS): 9 tables of TERMS rows for the value, 9 for the slope, _EXPONENTIALS rows for exp(k x) and
    as many for exp(-k x).
    """
    count = 40  # nodes; enough for the coefficients to be right to rounding
    angle = np.pi * (np.arange(count) + 0.5) / count
    # (TERMS, nodes): values at the nodes -> coefficients
    transform = np.cos(np.arange(TERMS)[:, None] * angle) * 2.0 / count
    transform[0] /= 2.0
    within = (np.cos(angle) + 1.0) / 2.0
    z = np.arange(-_NEAR, _NEAR + 1)[:, None, None] + (within[:, None] - within)
    value = np.logaddexp(0.0, z)
    slope = np.exp(-np.logaddexp(0.0, -z))
    both = np.concatenate([transform @ value @ transform.T, transform @ slope @ transform.T])
    powers = np.arange(1, _EXPONENTIALS + 1)[:, None] * within
    series = np.concatenate([np.exp(powers), np.exp(-powers)]) @ transform.T
    return np.ascontiguousarray(np.concatenate([both.reshape(-1, TERMS), series]))


@inner_sum
def _logistic_row(w, lower, lower_gradient):
    """sum_j log(1 + exp(lower_j - w)), and the sum of its slopes, which are added to the lower items' gradient."""
    value = 0.0
    pull = 0.0
    for j in range(lower.size):
        x = lower[j] - w
        e = fast_exp(-abs(x))
        larger = 1.0 / (1.0 + e)
        slope = larger if x > 0.0 else e * larger
        value += max(x, 0.0) + fast_log1p_of_unit(e)
        lower_gradient[j] += slope
        pull += slope
    return value, pull


@inner_sum
def _hinge_row(w, lower, lower_gradient):
    """As `_logistic_row`, of max(0, 1 + lower_j - w). At the corner the slope is 0."""
    value = 0.0
    pull = 0.0
    for j in range(lower.size):
        x = 1.0 + (lower[j] - w)
        slope = 1.0 if x > 0.0 else 0.0
        value += max(x, 0.0)
        lower_gradient[j] += slope
        pull += slope
    return value, pull


@inner
def pair_by_pair(kind, upper, lower, upper_slopes, lower_slopes):
    """The value; slopes are added to those given."""
    total = 0.0
    for i in range(upper.size):
        if kind == LOGISTIC:
            loss, pull = _logistic_row(upper[i], lower, lower_slopes)
        else:
            loss, pull = _hinge_row(upper[i], lower, lower_slopes)
        total += loss
        upper_slopes[i] -= pull
    return total


@inner
def sort_ascending(values, other):
    """Merge sort in place; `other` is a buffer of the same size."""
    size = values.size
    for first in range(0, size, _SHORT):
        for i in range(first + 1, min(first + _SHORT, size)):
            value = values[i]
            at = i
            while at > first and values[at - 1] > value:
                values[at] = values[at - 1]
                at -= 1
            values[at] = value
    width = _SHORT
    while width < size:
        for first in range(0, size, 2 * width):
            middle, last = min(first + width, size), min(first + 2 * width, size)
            a, b = first, middle
            for at in range(first, last):
                if a < middle and (b >= last or values[a] <= values[b]):
                    other[at] = values[a]
                    a += 1
                else:
                    other[at] = values[b]
                    b += 1
        for i in range(size):
            values[i] = other[i]
        width *= 2


@inner
def _find_cells(upper, lower, cells, other):
    """Write floor(score) of all scores, each once and ascending, into `cells`. Returns how many there are."""
    lowest, highest = math.inf, -math.inf
    for i in range(upper.size):
        lowest, highest = min(lowest, upper[i]), max(highest, upper[i])
    for i in range(lower.size):
        lowest, highest = min(lowest, lower[i]), max(highest, lower[i])
    first, last = np.floor(lowest), np.floor(highest)
    if last - first < cells.size:
        count = int(last - first) + 1
        for c in range(count):
            cells[c] = first + c
        return count
    for i in range(upper.size):  # fewer items than cells in between: only those that hold one
        cells[i] = np.floor(upper[i])
    for i in range(lower.size):
        cells[upper.size + i] = np.floor(lower[i])
    sort_ascending(cells, other)
    count = 1
    for i in range(1, cells.size):
        if cells[i] != cells[count - 1]:
            cells[count] = cells[i]
            count += 1
    return count


@inner
def _cell_of(score, cells, count):
    """The number of the cell that holds the score."""
    floor = np.floor(score)
    if cells[count - 1] - cells[0] == count - 1:  # no gaps
        return int(floor - cells[0])
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) // 2
        if cells[middle] < floor:
            low = middle + 1
        else:
            high = middle
    return low


@inner
def _add_moments(scores, cells, count, moments):
    """moments[c, n] = sum over the scores in cell c of T_n(t)."""
    for c in range(count):
        for n in range(TERMS):
            moments[c, n] = 0.0
    for i in range(scores.size):
        x = scores[i]
        c = _cell_of(x, cells, count)
        t = 2.0 * (x - cells[c]) - 1.0
        before, now = 1.0, t
        moments[c, 0] += 1.0
        moments[c, 1] += t
        for n in range(2, TERMS):
            before, now = now, 2.0 * t * now - before
            moments[c, n] += now


@inner
def _add_polynomials(scores, cells, count, coefficients, sign, slopes):
    """Add to the slope of each score the polynomial of its cell, by Clenshaw's recurrence."""
    for i in range(scores.size):
        x = scores[i]
        c = _cell_of(x, cells, count)
        t = 2.0 * (x - cells[c]) - 1.0
        after, now = 0.0, 0.0
        for n in range(TERMS - 1, 0, -1):
            after, now = now, 2.0 * t * now - after + coefficients[c, n]
        slopes[i] += sign * (t * now - after + coefficients[c, 0])


@inner
def _add_near(lower, upper, cells, count, table, lower_slope, upper_slope):
    """The pairs of cells at most four apart: the value, and the coefficients of the slopes."""
    total = 0.0
    for c in range(count):
        if lower[c, 0] == 0.0:
            continue
        for d in range(max(0, c - _NEAR), min(count, c + _NEAR + 1)):
            distance = cells[c] - cells[d]
            if abs(distance) > _NEAR or upper[d, 0] == 0.0:
                continue
            row = int(distance + _NEAR) * TERMS
            slope_row = row + (2 * _NEAR + 1) * TERMS
            for n in range(TERMS):
                of_value, of_slope = 0.0, 0.0
                for m in range(TERMS):
                    of_value += table[row + n, m] * upper[d, m]
                    of_slope += table[slope_row + n, m] * upper[d, m]
                    upper_slope[d, m] += table[slope_row + n, m] * lower[c, n]
                total += of_value * lower[c, n]
                lower_slope[c, n] += of_slope
    return total


@inner
def _add_far(sources, targets, cells, count, table, upwards, saturated, coefficients):
    """The pairs of targets and sources more than four cells away: the value, and the coefficients of the slopes.

    `upwards`: sources lie below their targets, otherwise above. `saturated`: x - y is large and the slope nearly 1,
    otherwise nearly 0. A running sum over the cells, brought along from cell to cell, holds for each k

        sum over sources of exp(-k (distance of the cells)) exp(k (place within the cell))       (upwards)

    and likewise downwards with the other sign; targets have the opposite one.
    """
    rising = 2 * (2 * _NEAR + 1) * TERMS
    falling = rising + _EXPONENTIALS
    of_source, of_target = (rising, falling) if upwards else (falling, rising)
    running = np.zeros(_EXPONENTIALS)
    number, gap, total = 0.0, 0.0, 0.0  # of sources, and the sum over them of (cell of target - source)
    following = 0
    for step in range(count):
        c = step if upwards else count - 1 - step
        if step > 0:
            moved = abs(cells[c] - cells[c - 1 if upwards else c + 1])
            gap += moved * number
            decay = math.exp(-moved)
            factor = 1.0
            for k in range(_EXPONENTIALS):
                factor *= decay
                running[k] *= factor
        while following < count:
            d = following if upwards else count - 1 - following
            distance = abs(cells[c] - cells[d])
            if distance <= _NEAR or following >= step:
                break
            following += 1
            if sources[d, 0] == 0.0:
                continue
            number += sources[d, 0]
            gap += distance * sources[d, 0] - 0.5 * (sources[d, 0] + sources[d, 1])
            decay = math.exp(-distance)
            factor = 1.0
            for k in range(_EXPONENTIALS):
                factor *= decay
                terms = 0.0
                for n in range(TERMS):
                    terms += table[of_source + k, n] * sources[d, n]
                running[k] += factor * terms
        if number == 0.0 or targets[c, 0] == 0.0:
            continue
        if saturated:
            total += targets[c, 0] * gap + 0.5 * (targets[c, 0] + targets[c, 1]) * number
            coefficients[c, 0] += number
        sign = 1.0
        for k in range(_EXPONENTIALS):
            weight = -sign * running[k] if saturated else sign * running[k]
            terms = 0.0
            for n in range(TERMS):
                terms += table[of_target + k, n] * targets[c, n]
                coefficients[c, n] += weight * table[of_target + k, n]
            total += sign * running[k] * terms / (k + 1)
            sign = -sign
    return total


@inner
def _logistic_by_cells(upper, lower, cells, count, table, upper_slopes, lower_slopes):
    of_upper, of_lower = np.empty((count, TERMS)), np.empty((count, TERMS))
    _add_moments(upper, cells, count, of_upper)
    _add_moments(lower, cells, count, of_lower)
    upper_slope, lower_slope = np.zeros((count, TERMS)), np.zeros((count, TERMS))
    total = _add_near(of_lower, of_upper, cells, count, table, lower_slope, upper_slope)
    for upwards in (True, False):
        total += _add_far(of_upper, of_lower, cells, count, table, upwards, upwards, lower_slope)
        _add_far(of_lower, of_upper, cells, count, table, upwards, not upwards, upper_slope)
    _add_polynomials(lower, cells, count, lower_slope, 1.0, lower_slopes)
    _add_polynomials(upper, cells, count, upper_slope, -1.0, upper_slopes)
    return total


@inner
def _search(score, margin, ordered, low, high):
    """The number of scores s in the ascending `ordered` with margin + (score - s) > 0; at least low, at most high."""
    rest = high - low
    while rest > 0:
        half = (rest + 1) // 2
        # No branch on the comparison: the processor would mispredict every other one.
        low += half * (margin + (score - ordered[low + half - 1]) > 0.0)
        rest -= half
    return low


@inner
def _bucket(distance, scale, buckets):
    at = distance * scale
    return int(min(at, buckets - 1.0)) if at > 0.0 else 0


@inner
def _make_index(ordered, starts):
    """Evenly spaced buckets: starts[b] of the scores are in buckets before b. Returns buckets per unit of score."""
    buckets = starts.size - 1
    width = ordered[ordered.size - 1] - ordered[0]
    scale = buckets / width if width > 0.0 else 0.0
    filled = 0
    for i in range(ordered.size):
        bucket = _bucket(ordered[i] - ordered[0], scale, buckets)
        while filled <= bucket:
            starts[filled] = i
            filled += 1
    for b in range(filled, buckets + 1):
        starts[b] = ordered.size
    return scale


@inner
def _count_below(score, margin, ordered, starts, scale):
    """The number of scores s in `ordered` with margin + (score - s) > 0, by a search in their and adjacent buckets."""
    buckets = starts.size - 1
    bucket = _bucket(score + margin - ordered[0], scale, buckets)
    low, high = starts[max(bucket - 1, 0)], starts[min(bucket + 2, buckets)]
    found = _search(score, margin, ordered, low, high)
    # Rounding may put a score into a bucket beyond those: then the search ends at the border.
    is_too_low = found == high and high < ordered.size and margin + (score - ordered[high]) > 0.0
    is_too_high = found == low and low > 0 and not margin + (score - ordered[low - 1]) > 0.0
    return _search(score, margin, ordered, 0, ordered.size) if is_too_low or is_too_high else found


@inner
def _hinge_by_order(sorted_set, other_set, sign, sorted_slopes, other_slopes):
    """The hinge loss with one set sorted: the uppers (sign = 1), or the lowers (sign = -1), all scores negated."""
    size = sorted_set.size
    ordered, room = np.empty(size), np.empty(size)
    for i in range(size):
        ordered[i] = sign * sorted_set[i]
    sort_ascending(ordered, room)
    gaps = room  # sum over those before i of (ordered[i] - theirs): grows by i times each step, so nothing cancels
    gaps[0] = 0.0
    for i in range(1, size):
        gaps[i] = gaps[i - 1] + i * (ordered[i] - ordered[i - 1])
    starts = np.empty(size + 1, np.int64)
    scale = _make_index(ordered, starts)
    reached = np.zeros(size + 1)
    total = 0.0
    for j in range(other_set.size):
        k = _count_below(sign * other_set[j], 1.0, ordered, starts, scale)
        reached[k] += 1.0
        other_slopes[j] += sign * k
        if k > 0:
            total += gaps[k - 1] + k * (1.0 + (sign * other_set[j] - ordered[k - 1]))
    for k in range(size - 1, -1, -1):
        reached[k] += reached[k + 1]
    for i in range(size):
        sorted_slopes[i] -= sign * reached[_count_below(sign * sorted_set[i], 0.0, ordered, starts, scale) + 1]
    return total


@inner
def pairs_between(kind, upper, lower, table, upper_slopes, lower_slopes):
    """The sum of the loss over all pairs of two sets; slopes are added to those given. Scores must be finite."""
    items, pairs = upper.size + lower.size, upper.size * lower.size
    if kind == HINGE and min(upper.size, lower.size) >= _SMALLEST_SORTED:
        if upper.size <= lower.size:
            return _hinge_by_order(upper, lower, 1.0, upper_slopes, lower_slopes)
        return _hinge_by_order(lower, upper, -1.0, lower_slopes, upper_slopes)
    if kind == LOGISTIC and pairs > _COST_OF_ITEM * items + _COST_OF_CELL:
        cells, room = np.empty(items), np.empty(items)
        count = _find_cells(upper, lower, cells, room)
        if pairs > _COST_OF_ITEM * items + _COST_OF_CELL * count:
            return _logistic_by_cells(upper, lower, cells, count, table, upper_slopes, lower_slopes)
    return pair_by_pair(kind, upper, lower, upper_slopes, lower_slopes)
