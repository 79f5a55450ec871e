"""Slow but certain reference values: enumeration of orders, 30-digit integrals and explicit formulas."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import mpmath as mp
import numpy as np

DIGITS = 30


def enumerated_log_likelihood(scores: Sequence[Any], labels: Sequence[float], top: int | None = None) -> Any:
    """log of the sum over all orders of the first `top` places that agree with the tiers, for few items."""
    n = len(scores)
    places = n if top is None else min(top, n)
    labels_by_place = sorted(labels, reverse=True)
    worths = [mp.e ** mp.mpf(x) for x in scores]
    total = mp.mpf(0)
    for order in itertools.permutations(range(n), places):
        if all(labels[i] == label for i, label in zip(order, labels_by_place, strict=False)):
            left = mp.fsum(worths)
            probability = mp.mpf(1)
            for i in order:
                probability *= worths[i] / left
                left -= worths[i]
            total += probability
    return mp.log(total)


def log_probability_from_its_complement(log_odds: Sequence[Any], places: int) -> Any:
    """log P that the first `places` items of a tier precede the rest, which has worth 1, computed from 1 - P.

    1 - P is the sum over sets K of fewer than `places` items of P(K precedes the rest, which precedes all other items).
    Each term is the sum over subsets J of K of (-1)^|J| / (1 + worth of J and of all items outside K). This needs twice
    the digits of P / (1 - P).
    """
    worths = [mp.e ** mp.mpf(x) for x in log_odds]
    complement = mp.mpf(0)
    for size in range(places):
        for before in itertools.combinations(worths, size):
            outside = 1 + mp.fsum(worths) - mp.fsum(before)
            for count in range(size + 1):
                for also in itertools.combinations(before, count):
                    complement += (-1) ** count / (outside + mp.fsum(also))
    return mp.log1p(-complement)


def second_difference(function: Any, scores: Sequence[float], i: int, step: Any = None) -> tuple[Any, Any]:
    """d f / d score_i and -d2 f / d score_i^2 of a high-precision function by central differences."""
    step = mp.mpf(10) ** -8 if step is None else step

    def at(move: Any) -> Any:
        moved = [mp.mpf(x) for x in scores]
        moved[i] += move
        return function(moved)

    up, here, down = at(step), at(mp.mpf(0)), at(-step)
    return (up - down) / (2 * step), -(up - 2 * here + down) / step**2


def _log_sum(values: Sequence[Any]) -> Any:
    peak = max(values)
    return peak + mp.log(mp.fsum(mp.e ** (x - peak) for x in values))


def _tail(probabilities: Sequence[Any], places: int) -> tuple[Any, list[Any]]:
    """P(at least `places` successes) and its derivative by each probability, from prefixes and suffixes."""
    n = len(probabilities)
    if places == n:
        product = mp.fprod(probabilities)
        return product, [product / p for p in probabilities]
    before = [[mp.mpf(1)] + [mp.mpf(0)] * (places - 1)]
    for p in probabilities:
        old = before[-1]
        before.append([old[k] * (1 - p) + (old[k - 1] * p if k else 0) for k in range(places)])
    after = [[mp.mpf(1)] + [mp.mpf(0)] * (places - 1)]
    for p in reversed(probabilities):
        old = after[-1]
        after.append([old[k] * (1 - p) + (old[k - 1] * p if k else 0) for k in range(places)])
    after.reverse()
    tail = mp.fsum(before[i][places - 1] * p for i, p in enumerate(probabilities))
    slopes = [mp.fsum(before[i][k] * after[i + 1][places - 1 - k] for k in range(places)) for i in range(n)]
    return tail, slopes


def _tier(log_odds: list[Any], places: int) -> tuple[Any, list[Any], list[Any], Any]:
    """log P(S > R), its gradient, -second derivatives, and second derivative along all items, to about 28 digits.

    Uses the trapezoid rule in y on an interval outside which the integrand is below 1e-38 of its peak, and doubles the
    number of nodes until the result no longer changes.
    """
    odds = [mp.e**x for x in log_odds]

    def log_integrand(y: Any) -> Any:
        t = mp.e**y
        above = [-mp.expm1(-a * t) for a in odds]
        if places == len(odds):
            return y - t + mp.fsum(mp.log(p) for p in above)
        return y - t + mp.log(_tail(above, places)[0])

    grid = [mp.mpf(-90) + mp.mpf(k) * (100 + mp.log(len(odds) + 1)) / 100 for k in range(101)]
    rough = [log_integrand(y) for y in grid]
    peak = max(rough)
    inside = [k for k in range(101) if rough[k] > peak - 90]
    low, high = grid[max(inside[0] - 1, 0)], grid[min(inside[-1] + 1, 100)]

    def sums(points: list[Any]) -> list[Any]:
        total = [mp.mpf(0)] * (3 + 2 * len(odds))
        for y in points:
            t = mp.e**y
            z = [a * t for a in odds]
            above = [-mp.expm1(-x) for x in z]
            if places == len(odds):
                weight = mp.e ** (y - t - peak + mp.fsum(mp.log(p) for p in above))
                slopes = [weight / p for p in above]
            else:
                tail, by_probability = _tail(above, places)
                outer = mp.e ** (y - t - peak)
                weight = outer * tail
                slopes = [outer * s for s in by_probability]
            total[0] += weight
            total[1] += weight * t
            total[2] += weight * t * t
            for i, (slope, x) in enumerate(zip(slopes, z, strict=True)):
                rate = slope * x * mp.e**-x
                total[3 + i] += rate
                total[3 + len(odds) + i] += rate * x
        return total

    intervals = 64
    total = sums([low + (high - low) * k / intervals for k in range(intervals + 1)])
    while True:
        step = (high - low) / intervals
        between = sums([low + (k + mp.mpf(1) / 2) * step for k in range(intervals)])
        converged = abs(total[0] / between[0] - 1) < mp.mpf(10) ** -16  # combined, they are far more accurate
        total = [x + y for x, y in zip(total, between, strict=True)]
        intervals *= 2
        if converged:
            break
    mass = total[0]
    value = peak + mp.log(mass * (high - low) / intervals)
    gradient = [x / mass for x in total[3 : 3 + len(odds)]]
    curvature = [g * g - g + x / mass for g, x in zip(gradient, total[3 + len(odds) :], strict=True)]
    mean = total[1] / mass
    return value, gradient, curvature, total[2] / mass - mean * mean - mean


def exact_derivatives(
    scores: Sequence[float], labels: Sequence[float], top: int | None = None
) -> tuple[Any, list[Any], list[Any]]:
    """Value, gradient and curvature of one list in high precision."""
    with mp.workdps(DIGITS + 10):
        w = [mp.mpf(float(x)) for x in scores]
        places_left = len(w) if top is None else top
        value = mp.mpf(0)
        gradient = [mp.mpf(0)] * len(w)
        curvature = [mp.mpf(0)] * len(w)
        for level in sorted(set(labels), reverse=True)[:-1]:
            tier = [i for i in range(len(w)) if labels[i] == level]
            rest = [i for i in range(len(w)) if labels[i] < level]
            if places_left <= 0:
                break
            w_rest = _log_sum([w[j] for j in rest])
            log_p, g, c, along_all = _tier([w[i] - w_rest for i in tier], min(len(tier), places_left))
            places_left -= len(tier)
            value += log_p
            pull = mp.fsum(g)
            for i, gi, ci in zip(tier, g, c, strict=True):
                gradient[i] += gi
                curvature[i] += ci
            for j in rest:
                share = mp.e ** (w[j] - w_rest)
                gradient[j] -= share * pull
                curvature[j] += share * pull - share * share * (along_all + pull)
        return value, gradient, curvature


def spread_out(n: int, seed: int) -> np.ndarray[Any, Any]:
    """n numbers in [-1, 1] by a formula, so that stored cases do not depend on a random generator."""
    return 2.0 * np.modf((np.arange(n) + 1.0) * 0.6180339887498949 + 0.13 * seed)[0] - 1.0


def golden_scores(case: dict[str, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Scores and labels of a stored case."""
    sizes = case["tier_sizes"]
    labels = np.repeat(np.arange(len(sizes))[::-1].astype(float), sizes)
    scores = case["spread"] * spread_out(len(labels), case["seed"]) + case["gap"] * labels + case["shift"]
    return scores, labels


def log_softmax_at(scores: Sequence[float], chosen: int, remaining: Sequence[int]) -> float:
    """log of exp(score of the chosen item) over the sum of exp(score) over the remaining items."""
    return scores[chosen] - math.log(math.fsum(math.exp(scores[j]) for j in remaining))
