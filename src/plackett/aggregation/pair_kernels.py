"""Likelihoods of comparisons of two items, with ties, in compiled code.

A row holds how often the first item won, how often it ended level and how often the second item won. With

    eta = scale (w_first - w_second + x'beta),   alpha = exp(w)

the probabilities of first : tie : second are

    HALF         1 / (1 + exp(-eta)) : none : ...     a tie counts as half a win for each side
    DAVIDSON     exp(eta / 2) : delta : exp(-eta / 2),   tie parameter tau = log delta            (Davidson 1970)
    RAO_KUPPER   F(eta - tau) : rest : F(-eta - tau), F the logistic function, tau = log theta    (Rao and Kupper 1967)

All three are concave in (w, beta, tau). Without ties in the data tau is no parameter: delta is 0, theta is 1. Every
function below divides by exponentials of minus |eta|, so that nothing overflows, and writes variances as sums of
products of probabilities, so that nothing cancels.

The derivatives of a row are functions of eta and tau alone: `pair_terms` gives them, and the kernels add them to
the items, the tie parameter and the features. `order` says how far: VALUE, GRADIENT, INFORMATION (minus the second
derivatives) or SQUARES, in which the squared first derivatives of the single comparisons take the place of the
information: the middle of a sandwich.
"""

import math

import numpy as np

from plackett.aggregation.ballot_kernels import GRADIENT, INFORMATION
from plackett.compilation import inner, kernel

SQUARES = 3
HALF, DAVIDSON, RAO_KUPPER = 0, 1, 2


@inner
def _half(eta, wins, ties, losses, order):
    r = math.exp(-abs(eta))
    high, low = 1.0 / (1.0 + r), r / (1.0 + r)
    p, q = (high, low) if eta >= 0.0 else (low, high)
    first, second = wins + 0.5 * ties, losses + 0.5 * ties
    favoured, other = (first, second) if eta >= 0.0 else (second, first)
    value = favoured * math.log(high) - other * (abs(eta) + math.log1p(r))
    slope = first * q - second * p
    if order == SQUARES:
        away = 0.5 - p
        return value, slope, 0.0, wins * q * q + losses * p * p + ties * away * away, 0.0, 0.0
    return value, slope, 0.0, (first + second) * p * q, 0.0, 0.0


@inner
def _davidson(eta, tau, delta, wins, ties, losses, order):
    root = math.exp(-0.5 * abs(eta))
    total = 1.0 + root * (root + delta)
    high, low, level = 1.0 / total, root * root / total, root * delta / total
    p, q = (high, low) if eta >= 0.0 else (low, high)
    log_total = math.log(total)
    other = losses if eta >= 0.0 else wins
    value = -other * abs(eta) - (wins + ties + losses) * log_total
    if ties > 0.0:
        value += ties * (tau - 0.5 * abs(eta))
    n = wins + ties + losses
    mean = 0.5 * (p - q)
    slope = 0.5 * (wins - losses) - n * mean
    tie_slope = ties - n * level
    if order == SQUARES:
        a, b = 0.5 - mean, -0.5 - mean
        aa = wins * a * a + losses * b * b + ties * mean * mean
        ab = -level * (wins * a + losses * b) - ties * mean * (1.0 - level)
        bb = (wins + losses) * level * level + ties * (1.0 - level) * (1.0 - level)
        return value, slope, tie_slope, aa, ab, bb
    decided = p + q
    return value, slope, tie_slope, 0.25 * n * (4.0 * p * q + level * decided), -n * mean * level, n * level * decided


@inner
def _log_logistic(x):
    return -math.log1p(math.exp(-x)) if x >= 0.0 else x - math.log1p(math.exp(x))


@inner
def _rao_kupper(eta, tau, wins, ties, losses, order):
    log_a, log_b = _log_logistic(eta - tau), _log_logistic(-eta - tau)
    a, b = math.exp(log_a), math.exp(log_b)
    not_a, not_b = math.exp(_log_logistic(tau - eta)), math.exp(_log_logistic(eta + tau))
    value = (wins + ties) * log_a + (losses + ties) * log_b
    up, down = (wins + ties) * not_a, (losses + ties) * not_b
    slope, tie_slope = up - down, -up - down
    rate, tie_curvature = 0.0, 0.0
    if ties > 0.0:
        gap = -math.expm1(-2.0 * tau)
        value += ties * (2.0 * tau + math.log(gap))
        rate = 2.0 / gap
        tie_curvature = ties * rate * rate * math.exp(-2.0 * tau)
        tie_slope += ties * rate
    if order == SQUARES:
        level, level_tie = not_a - not_b, rate - not_a - not_b
        aa = wins * not_a * not_a + losses * not_b * not_b + ties * level * level
        ab = -wins * not_a * not_a + losses * not_b * not_b + ties * level * level_tie
        bb = wins * not_a * not_a + losses * not_b * not_b + ties * level_tie * level_tie
        return value, slope, tie_slope, aa, ab, bb
    up, down = up * a, down * b
    return value, slope, tie_slope, up + down, down - up, up + down + tie_curvature


@inner
def pair_terms(kind, eta, tau, delta, wins, ties, losses, order):
    """Value, slopes by eta and tau, and the information (or squares) of eta, of eta with tau, and of tau."""
    if kind == HALF:
        return _half(eta, wins, ties, losses, order)
    if kind == DAVIDSON:
        return _davidson(eta, tau, delta, wins, ties, losses, order)
    return _rao_kupper(eta, tau, wins, ties, losses, order)


@inner
def _utility(r, scores, left, right, beta, features):
    found = scores[left[r]] - scores[right[r]]
    for k in range(beta.size):
        found += features[r, k] * beta[k]
    return found


@kernel
def pair_derivatives(
    first, last, kind, order, scores, tau, beta, left, right, counts, features, scales, value, gradient, scale_slopes,
    matrix,
):  # fmt: skip
    """Add the rows first..last to value[0], `gradient` and `matrix`.

    `tau` holds the tie parameter, or nothing; parameters are the scores, tau and beta, in this order. `scales` and
    `scale_slopes` have one entry per row, or none: the latter receives the derivative by the scale. The matrix receives
    each pair of parameters once, in either of its two places, and of pairs of items only those off the diagonal,
    because rows and columns of items add up to zero. Returns 0.
    """
    n, ties_free = scores.size, tau.size
    level = tau[0] if ties_free else 0.0
    delta = math.exp(level) if ties_free else 0.0
    for r in range(first, last):
        raw = _utility(r, scores, left, right, beta, features)
        scale = scales[r] if scales.size else 1.0
        v, slope, tie_slope, ee, et, tt = pair_terms(
            kind, scale * raw, level, delta, counts[r, 0], counts[r, 1], counts[r, 2], order
        )
        value[0] += v
        if order < GRADIENT:
            continue
        if scale_slopes.size:
            scale_slopes[r] += slope * raw
        slope *= scale
        i, j = left[r], right[r]
        gradient[i] += slope
        gradient[j] -= slope
        if ties_free:
            gradient[n] += tie_slope
        for k in range(beta.size):
            gradient[n + ties_free + k] += slope * features[r, k]
        if order < INFORMATION:
            continue
        ee *= scale * scale
        et *= scale
        matrix[i, j] -= ee
        if ties_free:
            matrix[n, i] += et
            matrix[n, j] -= et
            matrix[n, n] += tt
        for k in range(beta.size):
            row = n + ties_free + k
            x = features[r, k]
            matrix[row, i] += ee * x
            matrix[row, j] -= ee * x
            if ties_free:
                matrix[row, n] += et * x
            for h in range(k + 1):
                matrix[row, n + ties_free + h] += ee * x * features[r, h]
    return 0


@kernel
def clustered_squares(
    first, last, starts, kind, scores, tau, beta, left, right, counts, features, scales, matrix
):  # fmt: skip
    """Add s s' of every cluster first..last to the lower half of `matrix`, s the gradient of its rows.

    Rows of cluster c are starts[c] to starts[c + 1] - 1. Only parameters that occur in a cluster are visited.
    """
    n, ties_free = scores.size, tau.size
    level = tau[0] if ties_free else 0.0
    delta = math.exp(level) if ties_free else 0.0
    size = n + ties_free + beta.size
    own = np.zeros(size)
    touched = np.empty(size, np.int64)
    seen = np.zeros(n, np.bool_)
    for c in range(first, last):
        count = 0
        for r in range(starts[c], starts[c + 1]):
            scale = scales[r] if scales.size else 1.0
            eta = scale * _utility(r, scores, left, right, beta, features)
            _, slope, tie_slope, _, _, _ = pair_terms(
                kind, eta, level, delta, counts[r, 0], counts[r, 1], counts[r, 2], GRADIENT
            )
            slope *= scale
            for item, sign in ((left[r], 1.0), (right[r], -1.0)):
                own[item] += sign * slope
                if not seen[item]:
                    seen[item] = True
                    touched[count] = item
                    count += 1
            if ties_free:
                own[n] += tie_slope
            for k in range(beta.size):
                own[n + ties_free + k] += slope * features[r, k]
        for k in range(n, size):
            touched[count] = k
            count += 1
        for a in range(count):
            i = touched[a]
            for b in range(a + 1):
                j = touched[b]
                matrix[max(i, j), min(i, j)] += own[i] * own[j]
        for a in range(count):
            own[touched[a]] = 0.0
            if touched[a] < n:
                seen[touched[a]] = False
    return 0
