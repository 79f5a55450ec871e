"""A tier that straddles the cut-off: the next r picks all come from S, though S has more than r items.

Given the threshold u = exp(-t), item i is above it with probability p_i = 1 - exp(-a_i t), independently, so the
integrand is the tail of a Poisson-binomial distribution, T = P(at least r of S are above). It is found by dynamic
programming over the items: F[k] is the probability that k of those seen so far are above, k < r.

p_i can be as small as exp(-1e30), so the states are scaled: F[k] = B_k G[k] with B_k = b_1 ... b_k and

    b_k = min(1, (a_(k) + a_(k+1) + ...) / k)        (a_(k) the k-th largest)

which is about F[k] / F[k-1] when the p_i are small. Items are taken in descending order; then item i enters state k
only for k <= i, and p_i / b_k is at most k t: nothing overflows. Every term is positive: nothing cancels.

For the derivatives, phi_i = z_i / expm1(z_i) as for whole tiers, weighted by omega_i = p_i (dT / dp_i) / T:

    d log P / d l_i = E[phi_i omega_i],   -d2 log P / d l_i^2 = g_i^2 - g_i + E[phi_i omega_i z_i]

(T is linear in each p_i). omega_i combines the states before item i with those needed after it, W[k]: the probability,
divided by B_r / B_k, that exactly r - k of the later items are above.
"""

import math

import numpy as np

from plackett.compilation import inner
from plackett.likelihood.elementary import fast_expm1

_LARGEST_LOG_ODDS = 690.0


@inner
def _descending(log_odds, n, places):
    """The order of the items, and log b_k for k = 1..places (index 0 unused)."""
    order = np.argsort(-log_odds[:n], kind="mergesort")
    log_scale = np.zeros(places + 1)
    highest = -math.inf
    total = 0.0
    for j in range(n - 1, -1, -1):
        x = log_odds[order[j]]
        if x > highest:
            total = total * math.exp(highest - x) + 1.0
            highest = x
        else:
            total += math.exp(x - highest)
        if j < places:
            log_scale[j + 1] = min(0.0, highest + math.log(total) - math.log(j + 1.0))
    return order, log_scale


@inner
def _item(log_odds, t, stay, enter, phi):
    """1 - p, t (1 - exp(-z)) / z and phi at every node.

    `enter` times exp(l_i - log b_k) is p_i / b_k, also where a_i itself underflows.
    """
    a = math.exp(min(log_odds, _LARGEST_LOG_ODDS))
    for k in range(t.size):
        z = max(a * t[k], 1e-300)
        e = fast_expm1(-z)
        stay[k] = 1.0 + e
        enter[k] = -e / z * t[k]
        phi[k] = -z * (1.0 + e) / e


@inner
def _ratio(log_odds, log_scale):
    """exp(l_i - log b_k), with l_i cut where a_i was."""
    return math.exp(min(log_odds, _LARGEST_LOG_ODDS) - log_scale)


@inner
def _advance(log_odds, seen, places, log_scale, stay, enter, states):
    """Take the item number `seen` (from 0) into the states G[0..places-1]."""
    for k in range(min(seen + 1, places - 1), 0, -1):
        ratio = _ratio(log_odds, log_scale[k])
        for j in range(stay.size):
            states[k, j] = states[k, j] * stay[j] + states[k - 1, j] * ratio * enter[j]
    for j in range(stay.size):
        states[0, j] *= stay[j]


@inner
def log_tail_probabilities(log_odds, n, places, t, log_tail):
    """log P(at least `places` of the n items are above the threshold) at every node."""
    order, log_scale = _descending(log_odds, n, places)
    width = t.size
    states = np.zeros((places, width))
    states[0] = 1.0
    stay, enter, phi = np.empty(width), np.empty(width), np.empty(width)
    tail = np.zeros(width)
    for i in range(n):
        x = log_odds[order[i]]
        _item(x, t, stay, enter, phi)
        if i >= places - 1:
            ratio = _ratio(x, log_scale[places])
            for j in range(width):
                tail[j] += states[places - 1, j] * ratio * enter[j]
        _advance(x, i, places, log_scale, stay, enter, states)
    log_all_scales = log_scale.sum()
    for j in range(width):
        log_tail[j] = math.log(tail[j]) + log_all_scales


@inner
def tail_moments(log_odds, n, places, t, q, phi_mean, phi_z_mean):
    """E[phi_i omega_i] and E[phi_i omega_i z_i] for every item.

    States before each item are needed again on the way back; they are kept for one block of about sqrt(n) items at a
    time and made anew from the state at the block's beginning, so the memory is O(sqrt(n) * places * nodes).
    """
    order, log_scale = _descending(log_odds, n, places)
    width = t.size
    block = math.ceil(math.sqrt(n))
    blocks = (n + block - 1) // block
    starts = np.zeros((blocks, places, width))
    before = np.empty((block, places, width))
    stay, enter, phi = np.empty(width), np.empty(width), np.empty(width)
    states = np.zeros((places, width))
    states[0] = 1.0
    tail = np.zeros(width)
    for i in range(n):
        if i % block == 0:
            starts[i // block] = states
        x = log_odds[order[i]]
        _item(x, t, stay, enter, phi)
        if i >= places - 1:
            ratio = _ratio(x, log_scale[places])
            for j in range(width):
                tail[j] += states[places - 1, j] * ratio * enter[j]
        _advance(x, i, places, log_scale, stay, enter, states)
    weight = q / tail

    needed = np.zeros((places + 1, width))  # W[k] over the items after the current one
    needed[places] = 1.0
    omega = np.empty(width)
    for b in range(blocks - 1, -1, -1):
        begin, end = b * block, min((b + 1) * block, n)
        states[:] = starts[b]
        for i in range(begin, end):
            before[i - begin] = states
            x = log_odds[order[i]]
            _item(x, t, stay, enter, phi)
            _advance(x, i, places, log_scale, stay, enter, states)
        for i in range(end - 1, begin - 1, -1):
            x = log_odds[order[i]]
            _item(x, t, stay, enter, phi)
            omega[:] = 0.0
            reachable = min(i, places - 1)
            for k in range(reachable + 1):
                ratio = _ratio(x, log_scale[k + 1])
                for j in range(width):
                    chosen = ratio * enter[j] * needed[k + 1, j]
                    omega[j] += before[i - begin, k, j] * chosen
                    needed[k, j] = needed[k, j] * stay[j] + chosen
            if places <= i:
                for j in range(width):
                    needed[places, j] *= stay[j]
            a = math.exp(min(x, _LARGEST_LOG_ODDS))
            mean = 0.0
            z_mean = 0.0
            for j in range(width):
                weighted = weight[j] * omega[j] * phi[j]
                mean += weighted
                z_mean += weighted * (a * t[j])
            phi_mean[order[i]] = mean
            phi_z_mean[order[i]] = z_mean
