"""Sampling of orders that agree with a graph: importance sampling for P, Gibbs sampling for derivatives.

**Importance sampling.** An order is drawn item by item, the next one among those available in proportion to m_i, where
m_i is the worth of the item and its share of what is below it: what an item passes on is divided evenly among the items
right above it. The weight, the product of exp(w_i) / (worth of the rest) / (probability of the draw), is an unbiased
estimate of P; in a forest m_i is the worth of the subtree and the weight is P itself. Where weights become uneven, the
orders of a group are drawn anew in proportion to them, which keeps the mean unbiased. Groups are independent.

**Gibbs sampling.** The times T_i are exponential with rate exp(w_i), an item comes before another if its time is
shorter, and by Fisher's identity d log P / d w_i = 1 - exp(w_i) E[T_i | graph]. A sweep has two steps. Given the order,
the times between arrivals are independent and exponential with the worth of the rest as rate: all are drawn anew.
Given all others, T_i is exponential between the latest time above it and the earliest below it: each is drawn in turn.
The first step moves all times at once, where single draws would diffuse. In place of T_i two of its conditional means
are averaged, which have less variance: that given the other times, which is exact for items that are hardly bound, and
that given the order, the sum of 1 / (worth of the rest) over the places up to that of i, which is exact where the order
is known. For products, E[T_i T_j | order] is the product of both means and the sum of the squared terms up to the
earlier place.

Each group or chain has its own stream of random numbers, so that results do not depend on the number of threads.
"""

import math

import numpy as np

from plackett.compilation import inner, kernel
from plackett.likelihood.kernel_parts import longest_list
from plackett.random_kernels import GOLDEN, scramble

_SMALLEST_WORTH = 1e-140  # of the largest: worths below count as this one, so that squares stay above zero
_SHORT = 1e-5  # then the mean differs from the middle by 1e-6 of the interval
_EXACT_SHARE = 1e-3  # a sum from which more than the rest has been subtracted is computed anew


@inner
def _uniform(states, b, g):
    """The next number of a stream in (0, 1)."""
    states[b, g] += GOLDEN
    return (float(scramble(states[b, g]) >> np.uint64(11)) + 0.5) * 2.0**-53


@inner
def _fill_worths(lo, n, scores, worth):
    """exp of the scores, relative to the largest; returns their sum."""
    peak = scores[lo]
    for i in range(n):
        peak = max(peak, scores[lo + i])
    total = 0.0
    for i in range(n):
        worth[i] = max(math.exp(scores[lo + i] - peak), _SMALLEST_WORTH)
        total += worth[i]
    return total


@inner
def _fill_masses(lo, n, child_starts, children, parent_starts, worth, mass):
    for i in range(n - 1, -1, -1):
        mass[i] = worth[i]
        for k in range(child_starts[lo + i], child_starts[lo + i + 1]):
            c = children[k]
            mass[i] += mass[c - lo] / (parent_starts[c + 1] - parent_starts[c])


@inner
def _start_order(m, lo, n, parent_starts, waiting, available):
    """Nothing placed yet; returns how many items are available."""
    free = 0
    for i in range(n):
        waiting[m, i] = parent_starts[lo + i + 1] - parent_starts[lo + i]
        if waiting[m, i] == 0:
            available[m, free] = i
            free += 1
    return free


@inner
def _draw_next(m, free, u, mass, available):
    """The position among the available items of one drawn in proportion to mass, and the sum of their masses."""
    total = 0.0
    for a in range(free):
        total += mass[available[m, a]]
    left = u * total
    for a in range(free - 1):
        left -= mass[available[m, a]]
        if left < 0.0:
            return a, total
    return free - 1, total


@inner
def _place(m, a, free, lo, child_starts, children, waiting, available):
    """Take item a of the available ones; returns how many are available then."""
    i = available[m, a]
    waiting[m, i] = -1
    available[m, a] = available[m, free - 1]
    free -= 1
    for k in range(child_starts[lo + i], child_starts[lo + i + 1]):
        c = children[k] - lo
        waiting[m, c] -= 1
        if waiting[m, c] == 0:
            available[m, free] = c
            free += 1
    return free


@inner
def _mean_weight(log_weight, particles):
    """log of the mean of the weights, and the effective number of them."""
    peak = log_weight[0]
    for m in range(particles):
        peak = max(peak, log_weight[m])
    total, squares = 0.0, 0.0
    for m in range(particles):
        w = math.exp(log_weight[m] - peak)
        total += w
        squares += w * w
    return peak + math.log(total / particles), total * total / squares


@inner
def _resample(particles, n, u, log_weight, log_mean, source, waiting, available, free, rest, reference):
    """Systematic resampling: particle m is copied floor or ceil of its share times. The copies replace the dropped."""
    copied, cumulated = 0, 0.0
    for m in range(particles):
        cumulated += math.exp(log_weight[m] - log_mean)
        source[m] = 0
        while copied + u < cumulated and copied < particles:
            source[m] += 1
            copied += 1
    while copied < particles:  # rounding
        source[particles - 1] += 1
        copied += 1
    taker = 0
    for m in range(particles):
        while source[m] > 1:
            while source[taker] > 0:
                taker += 1
            for i in range(n):
                waiting[taker, i] = waiting[m, i]
                available[taker, i] = available[m, i]
            free[taker], rest[taker], reference[taker] = free[m], rest[m], reference[m]
            source[taker] = 1
            source[m] -= 1
    for m in range(particles):
        log_weight[m] = 0.0


@kernel
def importance_blocks(
    first, last, block_starts, child_starts, children, parent_starts, scores, particles, states, log_means, effective
):
    """Importance sampling for the blocks first..last: log of each group's estimate and its effective sample size."""
    longest = longest_list(block_starts, first, last)
    worth, mass = np.empty(longest), np.empty(longest)
    waiting, available = np.empty((particles, longest), np.int32), np.empty((particles, longest), np.int32)
    free, source = np.empty(particles, np.int64), np.empty(particles, np.int64)
    log_weight, rest, reference = np.empty(particles), np.empty(particles), np.empty(particles)
    for b in range(first, last):
        lo = block_starts[b]
        n = block_starts[b + 1] - lo
        total = _fill_worths(lo, n, scores, worth)
        _fill_masses(lo, n, child_starts, children, parent_starts, worth, mass)
        for g in range(states.shape[1]):
            log_estimate = 0.0
            for m in range(particles):
                free[m] = _start_order(m, lo, n, parent_starts, waiting, available)
                log_weight[m], rest[m], reference[m] = 0.0, total, total
            for step in range(n):
                for m in range(particles):
                    a, masses = _draw_next(m, free[m], _uniform(states, b, g), mass, available)
                    i = available[m, a]
                    log_weight[m] += math.log(worth[i] / mass[i] * (masses / rest[m]))
                    free[m] = _place(m, a, free[m], lo, child_starts, children, waiting, available)
                    rest[m] -= worth[i]
                    if rest[m] < _EXACT_SHARE * reference[m]:
                        exact = 0.0
                        for k in range(n):
                            if waiting[m, k] >= 0:
                                exact += worth[k]
                        rest[m], reference[m] = exact, exact
                if step < n - 1 and step % 8 == 7:
                    log_mean, share = _mean_weight(log_weight, particles)
                    if share < 0.5 * particles:
                        log_estimate += log_mean
                        u = _uniform(states, b, g)
                        _resample(
                            particles, n, u, log_weight, log_mean, source, waiting, available, free, rest, reference
                        )
            log_mean, effective[b, g] = _mean_weight(log_weight, particles)
            log_means[b, g] = log_estimate + log_mean
    return 0


@inner
def _draw_order(lo, n, b, g, child_starts, children, parent_starts, mass, states, waiting, available, order):
    free = _start_order(0, lo, n, parent_starts, waiting, available)
    for step in range(n):
        a, _ = _draw_next(0, free, _uniform(states, b, g), mass, available)
        order[step] = available[0, a]
        free = _place(0, a, free, lo, child_starts, children, waiting, available)


@inner
def _draw_times(n, b, g, worth, states, order, rest, time):
    """All times given the order; fills `rest`, the worth of the items from each place on."""
    total = 0.0
    for place in range(n - 1, -1, -1):
        total += worth[order[place]]
        rest[place] = total
    now = 0.0
    for place in range(n):
        now -= math.log(_uniform(states, b, g)) / rest[place]
        time[order[place]] = now


@inner
def _move_times(lo, n, b, g, child_starts, children, parent_starts, parents, worth, states, time, given_others):
    """Each time in turn, given all others, and its mean given these."""
    for i in range(n):
        earliest, latest = 0.0, math.inf
        for k in range(parent_starts[lo + i], parent_starts[lo + i + 1]):
            earliest = max(earliest, time[parents[k] - lo])
        for k in range(child_starts[lo + i], child_starts[lo + i + 1]):
            latest = min(latest, time[children[k] - lo])
        share = -1.0  # minus the probability of the interval after `earliest`
        given_others[i] = earliest + 1.0 / worth[i]
        if latest < math.inf:
            share = math.expm1(-worth[i] * (latest - earliest))
            if share > -_SHORT:  # an interval so short that the density is level
                given_others[i] = 0.5 * (earliest + latest)
            else:
                given_others[i] += (latest - earliest) * (1.0 + share) / share
        drawn = earliest - math.log1p(_uniform(states, b, g) * share) / worth[i]
        time[i] = min(max(drawn, earliest), latest)


@inner
def _sort_by_time(n, time, order):
    """Insertion: the order has changed little. Equal times, which only rounding makes, keep their order."""
    for place in range(1, n):
        i = order[place]
        k = place
        while k > 0 and time[order[k - 1]] > time[i]:
            order[k] = order[k - 1]
            k -= 1
        order[k] = i


@kernel
def gibbs_blocks(
    first, last, block_starts, child_starts, children, parent_starts, parents, scores, states, orders, started, burn,
    sweeps, square_starts, means, squares, products,
):  # fmt: skip
    """Gibbs sampling for the blocks first..last.

    `orders` holds the state of every chain, (chains, items). Where started[b] is 0 it is drawn first and `burn` sweeps
    are not used, otherwise one. `means` becomes the mean of exp(w_i) T_i in each chain, `squares` that of its square,
    and `products`, if it is not empty, collects the means over all chains of products of two items, n x n for each
    block from square_starts on. The means are then those given the order, so that covariances along a common shift of
    all scores come out exactly.
    """
    longest = longest_list(block_starts, first, last)
    worth, mass, rest, time = np.empty(longest), np.empty(longest), np.empty(longest), np.empty(longest)
    waiting, available = np.empty((1, longest), np.int32), np.empty((1, longest), np.int32)
    order = np.empty(longest, np.int64)
    given_others, mean, square = np.empty(longest), np.empty(longest), np.empty(longest)
    chains = states.shape[1]
    for b in range(first, last):
        lo = block_starts[b]
        n = block_starts[b + 1] - lo
        _fill_worths(lo, n, scores, worth)
        unused = 1 if started[b] == 1 else burn
        if started[b] == 0:
            _fill_masses(lo, n, child_starts, children, parent_starts, worth, mass)
        for g in range(chains):
            for i in range(n):
                order[i] = orders[g, lo + i]
                means[g, lo + i], squares[g, lo + i] = 0.0, 0.0
            if started[b] == 0:
                _draw_order(lo, n, b, g, child_starts, children, parent_starts, mass, states, waiting, available, order)
            for sweep in range(unused + sweeps):
                _draw_times(n, b, g, worth, states, order, rest, time)
                _move_times(
                    lo, n, b, g, child_starts, children, parent_starts, parents, worth, states, time, given_others
                )
                _sort_by_time(n, time, order)
                if sweep < unused:
                    continue
                total = 0.0
                for place in range(n - 1, -1, -1):
                    total += worth[order[place]]
                    rest[place] = total
                waited, waited_square = 0.0, 0.0
                for place in range(n):
                    i = order[place]
                    waited += 1.0 / rest[place]
                    waited_square += 1.0 / (rest[place] * rest[place])
                    mean[place], square[place] = waited, waited_square
                    best = waited if products.size > 0 else 0.5 * (waited + given_others[i])
                    means[g, lo + i] += worth[i] * best / sweeps
                    squares[g, lo + i] += worth[i] * worth[i] * (waited * waited + waited_square) / sweeps
                if products.size > 0:
                    for place in range(n):
                        i = order[place]
                        for later in range(place, n):
                            j = order[later]
                            product = worth[i] * worth[j] * (mean[place] * mean[later] + square[place])
                            at = square_starts[b] + (i * n + j if i < j else j * n + i)
                            products[at] += product / (sweeps * chains)
            for i in range(n):
                orders[g, lo + i] = order[i]
    return 0
