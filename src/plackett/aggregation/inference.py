"""Inference about worths from scores and their covariance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc, expit, ndtr, ndtri

from plackett.arguments import check_fraction
from plackett.threads import single_threaded_blas

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_MOST_STEPS = 100
EQUAL_SCORES = 1e-9
"""Scores that are closer differ by rounding: they share a place."""
# As a share of the two variances: a smaller one is rounding, the difference of items with equal features has none.
_NO_VARIANCE = 1e-14


class Intervals(NamedTuple):
    low: npt.NDArray[np.float64] | npt.NDArray[np.int64]
    high: npt.NDArray[np.float64] | npt.NDArray[np.int64]


class Difference(NamedTuple):
    """The score of one item minus that of another; `p_value` tests whether they are equal."""

    difference: float
    standard_error: float
    low: float
    high: float
    p_value: float


class QuasiVariances(NamedTuple):
    """One number per item, so that Var(score_i - score_j) is about their sum, off by at most a factor 1 + worst_error
    in the standard error."""

    variances: Floats
    worst_error: float


class LikelihoodRatio(NamedTuple):
    statistic: float
    degrees_of_freedom: int
    p_value: float


def check_confidence(confidence: float) -> float:
    """How many standard errors an interval reaches to either side."""
    return float(ndtri(0.5 + 0.5 * check_fraction("confidence", confidence)))


def worths_of(scores: Floats) -> Floats:
    worths = np.exp(scores - scores.max())
    return np.asarray(worths / worths.sum())


def worth_intervals(scores: Floats, covariance: Floats, confidence: float) -> Intervals:
    """Intervals by the delta method on log(worth / (1 - worth)), so that they stay between 0 and 1.

    The derivatives of that logit are (1[i = j] - worth_j) / (1 - worth_i).
    """
    worths = worths_of(scores)
    mixed = covariance @ worths  # Cov[w_i, log sum exp w]
    variance = np.diag(covariance) - 2.0 * mixed + worths @ mixed
    rest = -np.expm1(np.log(worths))
    logit = np.log(worths) - np.log(rest)
    reach = check_confidence(confidence) * np.sqrt(np.maximum(variance, 0.0)) / rest
    return Intervals(expit(logit - reach), expit(logit + reach))


def ranks_of(scores: Floats) -> Ints:
    """Places from 1 along the last dimension; equal scores share the first of theirs."""
    order = np.argsort(-scores, axis=-1, kind="stable")
    falls = np.diff(np.take_along_axis(scores, order, axis=-1), axis=-1) < -EQUAL_SCORES
    starts = np.zeros(scores.shape, np.int64)
    starts[..., 1:] = np.where(falls, np.arange(1, scores.shape[-1]), 0)
    ranks = np.empty(scores.shape, np.int64)
    np.put_along_axis(ranks, order, 1 + np.maximum.accumulate(starts, axis=-1), axis=-1)
    return ranks


def simulated_scores(scores: Floats, covariance: Floats, samples: int, generator: np.random.Generator) -> Floats:
    """(samples, items), from their asymptotic normal distribution."""
    with single_threaded_blas(len(scores)):
        values, vectors = np.linalg.eigh(covariance)
        rounding = len(scores) * np.finfo(np.float64).eps * values[-1]
        root = vectors * np.sqrt(np.where(values > rounding, values, 0.0))
        return np.asarray(scores + generator.standard_normal((samples, len(scores))) @ root.T)


def rank_intervals(drawn: Floats, confidence: float) -> Intervals:
    """Quantiles of the places of items, from draws of their scores."""
    tail = 0.5 - 0.5 * confidence
    low, high = np.quantile(ranks_of(drawn), [tail, 1.0 - tail], axis=0, method="inverted_cdf")
    return Intervals(low.astype(np.int64), high.astype(np.int64))


def difference_variances(covariance: Floats) -> Floats:
    """Var(w_i - w_j) of each pair of items, 0 where only rounding is left of it."""
    variance = np.diag(covariance)
    total = variance[:, None] + variance[None, :]
    found = total - 2.0 * covariance
    return np.where(found > _NO_VARIANCE * total, found, 0.0)


def difference(scores: Floats, covariance: Floats, i: int, j: int, confidence: float) -> Difference:
    """Items with equal features differ by 0, without error, and with a p value of 1."""
    gap = float(scores[i] - scores[j])
    error = math.sqrt(difference_variances(covariance[np.ix_([i, j], [i, j])])[0, 1])
    reach = check_confidence(confidence) * error
    p_value = float(2.0 * ndtr(-abs(gap) / error)) if error > 0.0 else 1.0
    return Difference(gap, error, gap - reach, gap + reach, p_value)


def quasi_variances(covariance: Floats, names: Sequence[Any]) -> QuasiVariances:
    """Firth and de Menezes (2004): q that minimise the sum over pairs of (log(q_i + q_j) - log Var(w_i - w_j))^2.

    Gauss-Newton with halved steps from the best additive fit to the variances; q may be negative, their sums may not.
    """
    n = len(covariance)
    target = difference_variances(covariance)
    np.fill_diagonal(target, 1.0)
    if target.min() <= 0.0:
        i, j = np.argwhere(target <= 0.0)[0]
        raise ValueError(
            f"quasi-variances need items with different features, got {names[i]!r} and {names[j]!r} with equal ones"
        )
    if n == 2:
        return QuasiVariances(np.full(2, 0.5 * target[0, 1]), 0.0)
    off_diagonal = ~np.eye(n, dtype=bool)

    def misfit(q: Floats) -> Floats | None:
        sums = q[:, None] + q[None, :]
        np.fill_diagonal(sums, 1.0)
        return np.log(sums / target) if sums.min() > 0.0 else None

    pairs = np.where(off_diagonal, target, 0.0)
    q = (pairs.sum(axis=1) - pairs.sum() / (2.0 * (n - 1))) / (n - 2)
    error = misfit(q)
    if error is None:
        q = np.full(n, 0.5 * pairs.sum() / (n * (n - 1)))
        error = misfit(q)
    assert error is not None  # noqa: S101 - positive numbers have positive sums
    for _ in range(_MOST_STEPS):
        slopes = np.where(off_diagonal, 1.0 / (q[:, None] + q[None, :]), 0.0)
        normal = slopes * slopes
        normal[np.diag_indices(n)] = normal.sum(axis=1)
        with single_threaded_blas(n):
            step = -np.linalg.solve(normal, (slopes * error).sum(axis=1))
        length, before = 1.0, float((error * error).sum())
        while (found := misfit(q + length * step)) is None or float((found * found).sum()) > before:
            length *= 0.5
            if length < 1e-10:
                break
        else:
            q, error = q + length * step, found
            if np.abs(length * step).max() > 1e-12 * np.abs(q).max():
                continue
        break
    return QuasiVariances(q, float(np.abs(np.expm1(0.5 * error)).max()))


def likelihood_ratio(smaller: float, larger: float, degrees_of_freedom: int) -> LikelihoodRatio:
    """Twice the gain in log-likelihood, which is chi-square if the smaller model holds."""
    statistic = max(2.0 * (larger - smaller), 0.0)
    p_value = float(chdtrc(degrees_of_freedom, statistic)) if degrees_of_freedom > 0 else math.nan
    return LikelihoodRatio(statistic, degrees_of_freedom, p_value)
