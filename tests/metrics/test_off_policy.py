"""The value of a policy from the logs of another: against the sum over all orders, and bad input."""

import itertools

import numpy as np
import pytest

from plackett.metrics import counterfactual


def log_probabilities(scores):
    """Of all orders of the items."""
    return np.array(
        [
            sum(scores[order[i]] - np.logaddexp.reduce(scores[list(order[i:])]) for i in range(len(order)))
            for order in itertools.permutations(range(len(scores)))
        ]
    )


LOGGING, TARGET = (log_probabilities(np.array(scores)) for scores in ([0.0, 0.5, -0.3, 0.2], [1.0, -1.0, 0.4, 0.0]))
REWARDS = np.random.default_rng(0).random(24)


def test_inverse_propensity_is_unbiased():
    """Every order counts as often as the old policy shows it."""
    share = np.exp(LOGGING)
    assert counterfactual(REWARDS * share * 24, TARGET, LOGGING).value == pytest.approx(np.exp(TARGET) @ REWARDS)


@pytest.mark.parametrize("estimator", ["inverse-propensity", "self-normalised", "clipped"])
def test_estimates_from_drawn_logs(estimator):
    """Within 4.9 standard errors, and the standard error is that of repeated logs within a fifth (seeded)."""
    rng, truth = np.random.default_rng(1), float(np.exp(TARGET) @ REWARDS)
    clip = 1e6 if estimator == "clipped" else None
    found = []
    for _ in range(200):
        drawn = rng.choice(24, 500, p=np.exp(LOGGING) / np.exp(LOGGING).sum())
        found.append(counterfactual(REWARDS[drawn], TARGET[drawn], LOGGING[drawn], estimator=estimator, clip=clip))
    values, errors = (np.array([getattr(one, name) for one in found]) for name in ("value", "standard_error"))
    assert abs(values.mean() - truth) < 4.9 * values.std() / np.sqrt(200)
    assert errors.mean() == pytest.approx(values.std(), rel=0.2)
    covered = np.mean([low <= truth <= high for low, high in (one.interval for one in found)])
    assert 0.9 < covered < 0.99


def test_clipping_and_diagnostics():
    weight = np.exp(TARGET - LOGGING)
    found = counterfactual(REWARDS, TARGET, LOGGING, estimator="clipped", clip=1.5)
    assert found.value == pytest.approx(np.mean(np.minimum(weight, 1.5) * REWARDS))
    assert found.clipped == pytest.approx(np.mean(weight > 1.5))
    assert found.largest_weight == 1.5
    plain = counterfactual(REWARDS, TARGET, LOGGING)
    assert plain.effective_samples == pytest.approx(weight.sum() ** 2 / (weight @ weight))
    same = counterfactual(REWARDS, LOGGING, LOGGING, estimator="self-normalised")
    assert same.value == pytest.approx(REWARDS.mean())
    assert same.effective_samples == pytest.approx(24)


BAD = {
    "estimator": ({"estimator": "ips"}, "estimator must be one of 'inverse-propensity'"),
    "clip": ({"clip": 2.0}, 'clip must be given with the estimator "clipped" and with no other, got 2.0'),
    "no clip": ({"estimator": "clipped"}, "clip must be given"),
    "shape": ({"rewards": [1.0]}, "rewards must hold one value for each of at least two observations"),
    "lengths": ({"target_log_prob": [0.0]}, "target_log_prob must hold one value for each of the 24 rewards"),
    "probabilities": ({"target_log_prob": np.exp(TARGET)}, "must hold logarithms of probabilities, at most 0"),
    "impossible": ({"logging_log_prob": np.where(np.arange(24) == 3, -np.inf, LOGGING)}, "finite, got -inf at 3"),
    "nan": ({"rewards": np.full(24, np.nan)}, "rewards must be finite"),
    "overflow": ({"logging_log_prob": LOGGING - 1e3}, "a ratio that overflows"),
    "never": ({"target_log_prob": np.full(24, -np.inf), "estimator": "self-normalised"}, "never takes a logged action"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_explained(case):
    given, message = BAD[case]
    options = {"rewards": REWARDS, "target_log_prob": TARGET, "logging_log_prob": LOGGING} | given
    with pytest.raises(ValueError, match=message):
        counterfactual(**options)
