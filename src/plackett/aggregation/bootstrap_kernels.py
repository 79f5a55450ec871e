"""The bootstrap of comparisons in compiled code: random weights, and quasi-Newton steps from one matrix.

A round starts at the estimate, with the inverse of its information, which is close to that of the round, and corrects
it by the steps it takes (BFGS). A step costs one pass over the rows and a product with the matrix; about five are
enough. Rounds draw from generators of their own, so that the result does not depend on threads.
"""

import math

import numpy as np

from plackett.aggregation.ballot_kernels import GRADIENT
from plackett.aggregation.pair_kernels import DAVIDSON, RAO_KUPPER, pair_terms
from plackett.compilation import inner, inner_sum, kernel
from plackett.likelihood.elementary import fast_exp
from plackett.likelihood.kernel_parts import dot
from plackett.random_kernels import GOLDEN, scramble

_MOST_FACTORS = 12  # uniform numbers whose product cannot underflow


@inner
def _uniform(x):
    """A uniform number in (0, 1] from a counter."""
    # Signed integers become floats in one instruction.
    return (np.float64(np.int64(scramble(x) >> np.uint64(11))) + 1.0) * 1.1102230246251565e-16  # 2^-53


@inner
def _next(state):
    """The next uniform number; the counter is in an array of one."""
    state[0] += GOLDEN
    return _uniform(state[0])


@inner
def _normal(state):
    while True:
        a, b = 2.0 * _next(state) - 1.0, 2.0 * _next(state) - 1.0
        square = a * a + b * b
        if 0.0 < square < 1.0:
            return a * math.sqrt(-2.0 * math.log(square) / square)


@inner
def gamma_number(shape, state):
    """A gamma number: a sum of exponential ones if that is short, else by Marsaglia and Tsang (2000)."""
    whole = int(shape)
    if whole == shape and 0 < whole <= _MOST_FACTORS:
        counter, product = state[0], 1.0
        for _ in range(whole):
            counter += GOLDEN
            product *= _uniform(counter)
        state[0] = counter
        return -math.log(product)
    boost = 1.0
    if shape < 1.0:
        boost = _next(state) ** (1.0 / shape)
        shape += 1.0
    d = shape - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = _normal(state)
        v = 1.0 + c * x
        if v > 0.0:
            v = v * v * v
            if math.log(_next(state)) < 0.5 * x * x + d * (1.0 - v + math.log(v)):
                return boost * d * v


@inner
def _draw(counts, shapes, factors, sources, clusters, source_counts, state, drawn):
    """Random counts, (3, rows): of each outcome by itself, or all of a cluster with one weight."""
    own = shapes.shape[0]
    for r in range(counts.shape[0]):
        for k in range(3):
            drawn[k, r] = counts[r, k] if clusters == 0 or r >= own else 0.0
    if clusters == 0:
        for r in range(own):
            for k in range(3):
                if shapes[r, k] > 0.0:
                    drawn[k, r] = max(factors[r, k] * gamma_number(shapes[r, k], state), 1e-9 * counts[r, k])
        return
    weights = np.empty(clusters)
    for c in range(clusters):
        weights[c] = max(-math.log(_next(state)), 1e-9)
    for s in range(sources.shape[0]):
        row, weight = sources[s, 0], weights[sources[s, 1]]
        for k in range(3):
            drawn[k, row] += weight * source_counts[s, k]


@inner_sum
def _davidson_slopes(eta, delta, wins, ties, losses, slopes):
    """The derivatives of all rows by eta, as in `pair_terms`, with vectorised exponentials; returns that by tau."""
    level = 0.0
    for r in range(eta.size):
        root = fast_exp(-0.5 * abs(eta[r]))
        weight = (wins[r] + ties[r] + losses[r]) / (1.0 + root * (root + delta))
        mean = weight * (1.0 - root * root)
        slopes[r] = 0.5 * (wins[r] - losses[r] - math.copysign(mean, eta[r]))
        level += ties[r] - weight * root * delta
    return level


@inner_sum
def _half_slopes(eta, wins, ties, losses, slopes):
    """As `_davidson_slopes`, with ties as half wins."""
    for r in range(eta.size):
        small = fast_exp(-abs(eta[r]))
        mean = (wins[r] + ties[r] + losses[r]) * (0.5 * (1.0 - small) / (1.0 + small))
        slopes[r] = 0.5 * (wins[r] - losses[r]) - math.copysign(mean, eta[r])
    return 0.0


@inner
def _threshold_slopes(eta, tau, wins, ties, losses, slopes):
    """As `_davidson_slopes`, for the model of Rao and Kupper."""
    level = 0.0
    for r in range(eta.size):
        _, slopes[r], own, _, _, _ = pair_terms(RAO_KUPPER, eta[r], tau, 0.0, wins[r], ties[r], losses[r], GRADIENT)
        level += own
    return level


@inner
def _gradient(
    kind, parameters, items, ties, left, right, drawn, features, scales, penalties, centres, eta, slopes, gradient
):  # fmt: skip
    beta = parameters.size - items - ties
    tau = parameters[items] if ties else 0.0
    for k in range(gradient.size):
        gradient[k] = -penalties[k] * (parameters[k] - centres[k])
    for r in range(left.size):
        eta[r] = parameters[left[r]] - parameters[right[r]]
        for k in range(beta):
            eta[r] += features[r, k] * parameters[items + ties + k]
        if scales.size:
            eta[r] *= scales[r]
    if kind == DAVIDSON:
        level = _davidson_slopes(eta, math.exp(tau) if ties else 0.0, drawn[0], drawn[1], drawn[2], slopes)
    elif kind == RAO_KUPPER:
        level = _threshold_slopes(eta, tau, drawn[0], drawn[1], drawn[2], slopes)
    else:
        level = _half_slopes(eta, drawn[0], drawn[1], drawn[2], slopes)
    for r in range(left.size):
        slope = slopes[r] * scales[r] if scales.size else slopes[r]
        gradient[left[r]] += slope
        gradient[right[r]] -= slope
        for k in range(beta):
            gradient[items + ties + k] += slope * features[r, k]
    if ties:
        gradient[items] += level


@inner
def _direction(gradient, inverse, moves, changes, rates, count, direction):
    """The step of BFGS in the form of Nocedal (1980), from the inverse of the information."""
    shares = np.empty(count)
    rest = gradient.copy()
    for m in range(count - 1, -1, -1):
        shares[m] = rates[m] * dot(moves[m], rest)
        for k in range(rest.size):
            rest[k] -= shares[m] * changes[m, k]
    for k in range(rest.size):
        direction[k] = dot(inverse[k], rest)
    for m in range(count):
        share = shares[m] - rates[m] * dot(changes[m], direction)
        for k in range(rest.size):
            direction[k] += share * moves[m, k]


@inner
def _length(kind, parameters, direction, items, ties):
    """1, or less if the threshold of ties would not stay above 0."""
    length = 1.0
    if kind == RAO_KUPPER and ties:
        while parameters[items] + length * direction[items] <= 0.0:
            length *= 0.5
    return length


@kernel
def bootstrap_pairs(
    first, last, seed, kind, start, items, ties, left, right, counts, features, scales, shapes, factors, sources,
    clusters, source_counts, penalties, centres, inverse, tolerance, most_steps, found,
):  # fmt: skip
    """Parameters for random counts in the rows first..last of `found`; returns the number of rounds not converged.

    The last rows may be those of a prior, beyond `shapes`: they keep their counts. Where a round does not converge, its
    first number is NaN.
    """
    failed, size = 0, start.size
    state = np.empty(1, np.uint64)
    gradient, before, direction = np.empty(size), np.empty(size), np.empty(size)
    drawn, eta, slopes = np.empty((3, left.size)), np.empty(left.size), np.empty(left.size)
    moves, changes, rates = np.empty((most_steps, size)), np.empty((most_steps, size)), np.empty(most_steps)
    for b in range(first, last):
        state[0] = seed
        state[0] ^= np.uint64(b + 1) * np.uint64(0xD1342543DE82EF95)
        for _ in range(4):
            _next(state)
        _draw(counts, shapes, factors, sources, clusters, source_counts, state, drawn)
        parameters = found[b]
        parameters[:] = start
        kept, length = 0, 1.0
        converged = False
        for step in range(most_steps):
            before[:] = gradient
            _gradient(
                kind, parameters, items, ties, left, right, drawn, features, scales, penalties, centres, eta, slopes,
                gradient,
            )  # fmt: skip
            if step > 0:
                for k in range(size):
                    moves[kept, k] = length * direction[k]
                    changes[kept, k] = before[k] - gradient[k]
                curvature = dot(moves[kept], changes[kept])
                if curvature > 0.0:  # always, as the likelihood is concave, but for rounding
                    rates[kept] = 1.0 / curvature
                    kept += 1
            _direction(gradient, inverse, moves, changes, rates, kept, direction)
            decrement = dot(gradient, direction)
            length = _length(kind, parameters, direction, items, ties)
            for k in range(size):
                parameters[k] += length * direction[k]
            if decrement < tolerance:
                converged = decrement >= 0.0
                break
        if not converged:
            parameters[0] = np.nan
            failed += 1
    return failed
