"""A tier that straddles the cut-off: the next r picks all come from S, though S has more than r items.

Given the threshold u = exp(-t), item i is above it with probability p_i = 1 - exp(-a_i t), independently, so the
integrand is the tail of a Poisson-binomial distribution, T = P(at least r of S are above). It is found by dynamic
programming over the items: state k < r holds the probability that k of those seen so far are above, state r that r or
more are. Every term is positive: nothing cancels.

p_i can be as small as exp(-1e30), so state k is measured in units of b_1 ... b_k with b_k = min(1, a_(k)), a_(k) the
k-th largest. Items are taken in descending order; then item i enters state k only for k <= i, and a_i / b_k <= 1.
States still grow and shrink with the number of items, so each has a further scale, the same at all nodes: its value in
those units is states[k] exp(log_scale[k]). The units of state r are a constant that stays out of the integral.

For the derivatives, phi_i = z_i / expm1(z_i) as for whole tiers, weighted by omega_i = p_i (dT / dp_i) / T:

    d log P / d l_i = E[phi_i omega_i],   -d2 log P / d l_i^2 = g_i^2 - g_i + E[phi_i omega_i z_i]

(T is linear in each p_i). omega_i combines the states before item i with those needed after it: the probability that
exactly r - k of the later items are above.

Along a group of items that move together, T' and T'' come from the same recursion differentiated twice, with the items
of the group last, so that only they are differentiated (`tail_along`).
"""

import math

import numpy as np

from plackett.compilation import inner, inner_part
from plackett.likelihood.constants import LARGEST_LOG_ODDS
from plackett.likelihood.elementary import fast_expm1
from plackett.likelihood.kernel_parts import sort_descending

_ROOM = 200.0  # factors up to exp(200) may enter a state
_LARGEST_STATE = 1e100
_LARGEST_Z = 1e4  # exp(-z) is 0 long before
_ITEMS_BETWEEN_CHECKS = 16  # in which a state grows by less than exp(300): a factor of 1 + t each, t < e^17


@inner_part
def _item(log_odds, t, stay, enter, phi):
    """1 - p, p / min(1, a) and phi at every node."""
    a = math.exp(min(log_odds, LARGEST_LOG_ODDS))
    for j in range(t.size):
        z = max(a * t[j], 1e-300)
        e = fast_expm1(-z)
        stay[j] = 1.0 + e
        enter[j] = -e if log_odds >= 0.0 else -e / z * t[j]
        phi[j] = -z * (1.0 + e) / e


@inner
def _make_room(states, log_scale, k, incoming):
    """Raise the scale of state k so that a factor of scale `incoming` can enter it; returns that factor."""
    if incoming > log_scale[k] + _ROOM:
        shrink = math.exp(log_scale[k] - incoming)
        for j in range(states.shape[1]):
            states[k, j] *= shrink
        log_scale[k] = incoming
    return math.exp(incoming - log_scale[k])


@inner
def _shrink_large_states(states, log_scale):
    for k in range(states.shape[0]):
        peak = 0.0
        for j in range(states.shape[1]):
            peak = max(peak, states[k, j])
        if peak > _LARGEST_STATE:
            for j in range(states.shape[1]):
                states[k, j] /= peak
            log_scale[k] += math.log(peak)


@inner_part
def _advance(log_odds, units, seen, places, stay, enter, states, log_scale):
    """Take item number `seen` (from 0) into the states 0..places; the last one is never left."""
    for k in range(min(seen + 1, places), 0, -1):
        factor = _make_room(states, log_scale, k, log_scale[k - 1] + (min(log_odds, 0.0) - units[k]))
        if k == places:
            for j in range(stay.size):
                states[k, j] += states[k - 1, j] * (factor * enter[j])
        else:
            for j in range(stay.size):
                states[k, j] = states[k, j] * stay[j] + states[k - 1, j] * (factor * enter[j])
    for j in range(stay.size):
        states[0, j] *= stay[j]
    if seen % _ITEMS_BETWEEN_CHECKS == 0:
        _shrink_large_states(states, log_scale)


@inner
def _begin(states, log_scale, k):
    """State k with probability one."""
    for i in range(states.shape[0]):
        log_scale[i] = 0.0
        for j in range(states.shape[1]):
            states[i, j] = 1.0 if i == k else 0.0


@inner_part
def _copy(states, log_scale, to_states, to_scale):
    for k in range(states.shape[0]):
        to_scale[k] = log_scale[k]
        for j in range(states.shape[1]):
            to_states[k, j] = states[k, j]


@inner
def _descending(log_odds, n, places):
    """The order of the items, and log b_k for k = 1..places (index 0 unused)."""
    order, units = np.empty(n, np.int64), np.empty(places + 1)
    sort_descending(log_odds, order, 0, n, np.empty(n, np.int64))
    units[0] = 0.0
    for k in range(1, places + 1):
        units[k] = min(log_odds[order[k - 1]], 0.0)
    return order, units


@inner
def log_of_units(log_odds, n, places):
    """log b_1 ... b_places, the constant left out by `log_tail_probabilities`."""
    _, units = _descending(log_odds, n, places)
    total = 0.0
    for k in range(places + 1):
        total += units[k]
    return total


@inner
def log_time_of_place(log_odds, n, places):
    """The y = log t at which the expected number of items above the threshold is `places` - 1/2, within 0.01.

    It lies before a_(r) t = log 2n, where the item in that place is enough, and after the total a t of that item and
    those below it has reached 1/10.
    """
    order, _ = _descending(log_odds, n, places)
    decisive = log_odds[order[places - 1]]
    low, high = -math.log(10.0 * n), math.log(math.log(2.0 * n)) + 0.01
    while high - low > 0.01:
        y = 0.5 * (low + high)
        expected = 0.0
        for i in range(n):
            expected -= math.expm1(-math.exp(min(log_odds[i] - decisive, LARGEST_LOG_ODDS) + y))
        if expected < places - 0.5:
            low = y
        else:
            high = y
    return high - decisive


@inner
def log_tail_probabilities(log_odds, n, places, t, log_tail):
    """log P(at least `places` of the n items are above the threshold) at every node, less `log_of_units`."""
    order, units = _descending(log_odds, n, places)
    width = t.size
    states, log_scale = np.empty((places + 1, width)), np.empty(places + 1)
    stay, enter, phi = np.empty(width), np.empty(width), np.empty(width)
    _begin(states, log_scale, 0)
    for i in range(n):
        x = log_odds[order[i]]
        _item(x, t, stay, enter, phi)
        _advance(x, units, i, places, stay, enter, states, log_scale)
    for j in range(width):
        log_tail[j] = math.log(max(states[places, j], 1e-300)) + log_scale[places]


@inner_part
def _advance_along(log_odds, units, seen, places, moves, t, stay, enter, phi, values, firsts, seconds, log_scale):
    """As `_advance`, for items in any order, with two derivatives of the states if the item `moves`.

    d stay = -z stay, d2 stay = z (z - 1) stay, d enter = phi enter, d2 enter = phi (1 - z) enter.
    """
    a = math.exp(min(log_odds, LARGEST_LOG_ODDS))
    for k in range(min(seen + 1, places), 0, -1):
        incoming = log_scale[k - 1] + (min(log_odds, 0.0) - units[k])
        if k == seen + 1:  # the state is empty
            log_scale[k] = incoming
        before = log_scale[k]
        factor = _make_room(values, log_scale, k, incoming)
        if log_scale[k] != before:
            shrink = math.exp(before - log_scale[k])
            for j in range(t.size):
                firsts[k, j] *= shrink
                seconds[k, j] *= shrink
        for j in range(t.size):
            s = 1.0 if k == places else stay[j]
            e = factor * enter[j]
            if moves:
                z = min(a * t[j], _LARGEST_Z)
                s1 = 0.0 if k == places else -z * s
                s2 = -(z - 1.0) * s1
                e1 = phi[j] * e
                seconds[k, j] = (
                    seconds[k, j] * s + 2.0 * firsts[k, j] * s1 + values[k, j] * s2
                    + seconds[k - 1, j] * e + 2.0 * firsts[k - 1, j] * e1 + values[k - 1, j] * (e1 * (1.0 - z))
                )  # fmt: skip
                firsts[k, j] = firsts[k, j] * s + values[k, j] * s1 + firsts[k - 1, j] * e + values[k - 1, j] * e1
            values[k, j] = values[k, j] * s + values[k - 1, j] * e
    for j in range(t.size):
        if moves:
            z = min(a * t[j], _LARGEST_Z)
            seconds[0, j] = (seconds[0, j] - 2.0 * z * firsts[0, j] + z * (z - 1.0) * values[0, j]) * stay[j]
            firsts[0, j] = (firsts[0, j] - z * values[0, j]) * stay[j]
        values[0, j] *= stay[j]
    if seen % _ITEMS_BETWEEN_CHECKS == 0:
        for k in range(places + 1):
            before = log_scale[k]
            _shrink_large_states(values[k : k + 1], log_scale[k : k + 1])
            if log_scale[k] != before:
                shrink = math.exp(before - log_scale[k])
                for j in range(t.size):
                    firsts[k, j] *= shrink
                    seconds[k, j] *= shrink


@inner
def tail_along(log_odds, n, places, group, u, t, slope, second):
    """T' / T and T'' / T at every node when the log odds of the items with group[i] == u move together."""
    order, units = _descending(log_odds, n, places)
    width = t.size
    values, firsts, seconds = (
        np.empty((places + 1, width)),
        np.empty((places + 1, width)),
        np.empty((places + 1, width)),
    )
    log_scale = np.empty(places + 1)
    stay, enter, phi = np.empty(width), np.empty(width), np.empty(width)
    _begin(values, log_scale, 0)
    for k in range(places + 1):
        for j in range(width):
            firsts[k, j], seconds[k, j] = 0.0, 0.0
    seen = 0
    for moves in (False, True):
        for k in range(n):
            if (group[order[k]] == u) == moves:
                x = log_odds[order[k]]
                _item(x, t, stay, enter, phi)
                _advance_along(x, units, seen, places, moves, t, stay, enter, phi, values, firsts, seconds, log_scale)
                seen += 1
    for j in range(width):
        tail = max(values[places, j], 1e-300)
        slope[j] = firsts[places, j] / tail
        second[j] = seconds[places, j] / tail


@inner
def tail_moments(log_odds, n, places, t, q, phi_mean, phi_z_mean, total):
    """E[phi_i omega_i] and E[phi_i omega_i z_i] for every item, and the sum over items of phi_i omega_i at every node.

    States before each item are needed again on the way back; they are kept for one block of about sqrt(n) items at a
    time and recomputed from the state at the block's beginning, so the memory is O(sqrt(n) * places * nodes).
    """
    order, units = _descending(log_odds, n, places)
    width = t.size
    block = math.ceil(math.sqrt(n))
    blocks = (n + block - 1) // block
    starts, start_scales = np.empty((blocks, places + 1, width)), np.empty((blocks, places + 1))
    before, before_scales = np.empty((block, places + 1, width)), np.empty((block, places + 1))
    states, log_scale = np.empty((places + 1, width)), np.empty(places + 1)
    stay, enter, phi = np.empty(width), np.empty(width), np.empty(width)
    _begin(states, log_scale, 0)
    for i in range(n):
        if i % block == 0:
            _copy(states, log_scale, starts[i // block], start_scales[i // block])
        x = log_odds[order[i]]
        _item(x, t, stay, enter, phi)
        _advance(x, units, i, places, stay, enter, states, log_scale)
    log_total = log_scale[places]
    inverse = np.empty(width)
    for j in range(width):
        inverse[j] = 1.0 / max(states[places, j], 1e-300)
        total[j] = 0.0

    needed, needed_scale = np.empty((places + 1, width)), np.empty(places + 1)  # by the items after the current one
    _begin(needed, needed_scale, places)
    omega = np.empty(width)
    for b in range(blocks - 1, -1, -1):
        begin, end = b * block, min((b + 1) * block, n)
        _copy(starts[b], start_scales[b], states, log_scale)
        for i in range(begin, end):
            _copy(states, log_scale, before[i - begin], before_scales[i - begin])
            x = log_odds[order[i]]
            _item(x, t, stay, enter, phi)
            _advance(x, units, i, places, stay, enter, states, log_scale)
        for i in range(end - 1, begin - 1, -1):
            x = log_odds[order[i]]
            _item(x, t, stay, enter, phi)
            for j in range(width):
                omega[j] = 0.0
            for k in range(min(i, places - 1) + 1):
                incoming = needed_scale[k + 1] + (min(x, 0.0) - units[k + 1])
                share = math.exp(before_scales[i - begin, k] + incoming - log_total)
                factor = _make_room(needed, needed_scale, k, incoming)
                for j in range(width):
                    chosen = enter[j] * needed[k + 1, j]
                    omega[j] += before[i - begin, k, j] * (share * chosen)
                    needed[k, j] = needed[k, j] * stay[j] + factor * chosen
            for j in range(width):
                needed[places, j] *= stay[j]
            if i % _ITEMS_BETWEEN_CHECKS == 0:
                _shrink_large_states(needed, needed_scale)
            a = math.exp(min(x, LARGEST_LOG_ODDS))
            mean = 0.0
            z_mean = 0.0
            for j in range(width):
                share = omega[j] * phi[j] * inverse[j]
                total[j] += share
                weighted = q[j] * share
                mean += weighted
                z_mean += weighted * (a * t[j])
            phi_mean[order[i]] = mean
            phi_z_mean[order[i]] = z_mean
