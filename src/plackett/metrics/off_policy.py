"""The value of a new policy, estimated from the logs of an old one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from plackett.arguments import as_numbers, check_choice, check_fraction, check_range, to_numpy
from plackett.metrics.metric_lists import FloatArray

ESTIMATORS = ("inverse-propensity", "self-normalised", "clipped")


@dataclass(frozen=True)
class CounterfactualEstimate:
    """An estimate of the mean reward of a policy, its standard error and a confidence interval.

    effective_samples  (sum of weights)^2 / sum of squared weights: how many observations the weights are worth
    largest_weight     the largest ratio of probabilities, after clipping
    clipped            the share of observations whose weight was clipped
    """

    value: float
    standard_error: float
    interval: tuple[float, float]
    effective_samples: float
    largest_weight: float
    clipped: float


def counterfactual(
    rewards: Any,
    target_log_prob: Any,
    logging_log_prob: Any,
    *,
    estimator: str = "inverse-propensity",
    clip: float | None = None,
    confidence: float = 0.95,
) -> CounterfactualEstimate:
    """Estimate what a new policy would have earned, from what an old one did.

    With w = P(what was done | target) / P(the same | logging), an estimate is

        inverse-propensity  mean of w * reward                        unbiased
        self-normalised     sum of w * reward / sum of w              biased by O(1/n), often with less variance
        clipped             mean of min(w, clip) * reward             biased towards 0 for rewards of at least 0

    The old policy must be able to do all that the new one does. Observations are independent: sessions, for instance,
    with the reward of each, and `PlackettLuce(scores).log_prob(order)` of the order shown under both models. Where
    users examine by position, an observation may be an item, with its exposures in place of probabilities.

    Args:
        rewards: one per observation.
        target_log_prob, logging_log_prob: log-probabilities of what was done, under the new and under the old policy;
            -inf is allowed for the new one.
        clip: the largest weight, for "clipped".
        confidence: confidence level of the interval, by the normal distribution.

    >>> logs = np.log([0.5, 0.5, 0.25, 0.25])
    >>> counterfactual([1, 0, 1, 0], np.log([0.25, 0.25, 0.5, 0.5]), logs).value
    0.625
    """
    check_choice("estimator", estimator, ESTIMATORS)
    check_fraction("confidence", confidence)
    if (clip is not None) != (estimator == "clipped"):
        raise ValueError(f'clip must be given with the estimator "clipped" and with no other, got {clip!r}')
    reward, target, logging = (
        as_numbers(name, to_numpy(values))
        for name, values in (
            ("rewards", rewards),
            ("target_log_prob", target_log_prob),
            ("logging_log_prob", logging_log_prob),
        )
    )
    _check(reward, target, logging)
    with np.errstate(over="ignore"):
        raw = np.exp(target - logging)
    if not np.isfinite(raw).all():
        raise ValueError("target_log_prob must exceed logging_log_prob by less than 709, got a ratio that overflows")
    weight = raw if clip is None else np.minimum(raw, check_range("clip", clip, 0.0))
    value, error = _estimate(weight, reward, estimator == "self-normalised")
    reach = _normal_quantile(confidence) * error
    squares = float(weight @ weight)
    return CounterfactualEstimate(
        value,
        error,
        (value - reach, value + reach),
        float(weight.sum()) ** 2 / squares if squares > 0.0 else 0.0,
        float(weight.max()),
        float(np.mean(weight < raw)),
    )


def _check(reward: FloatArray, target: FloatArray, logging: FloatArray) -> None:
    if reward.ndim != 1 or len(reward) < 2:
        raise ValueError(f"rewards must hold one value for each of at least two observations, got {reward.shape}")
    for name, values in (("target_log_prob", target), ("logging_log_prob", logging)):
        if values.shape != reward.shape:
            raise ValueError(f"{name} must hold one value for each of the {len(reward)} rewards, got {values.shape}")
        if np.isnan(values).any() or (values > 1e-9).any():
            raise ValueError(f"{name} must hold logarithms of probabilities, at most 0, got {np.max(values)}")
    if not np.isfinite(reward).all():
        raise ValueError(f"rewards must be finite, got {reward[np.argmin(np.isfinite(reward))]}")
    if np.isneginf(logging).any():
        at = int(np.argmax(np.isneginf(logging)))
        raise ValueError(
            f"logging_log_prob must be finite, got -inf at {at}: logged actions have positive probabilities"
        )


def _estimate(weight: FloatArray, reward: FloatArray, normalised: bool) -> tuple[float, float]:
    """The estimate and its standard error; for a ratio by the delta method."""
    count = len(reward)
    if not normalised:
        terms = weight * reward
        return float(terms.mean()), float(terms.std(ddof=1)) / math.sqrt(count)
    total = float(weight.sum())
    if total == 0.0:
        raise ValueError("target_log_prob must be above -inf somewhere: the new policy never takes a logged action")
    value = float(weight @ reward) / total
    return value, math.sqrt(float(np.square(weight * (reward - value)).sum()) * count / (count - 1)) / total


def _normal_quantile(confidence: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(0.5 + 0.5 * confidence))
