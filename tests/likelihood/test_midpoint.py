"""The paper's fixed midpoint rule: when it is accurate, when it is not, and the bounds of theorem 1."""

import math

import numpy as np
import pytest

from plackett import partition_log_likelihood
from plackett.likelihood.midpoint import midpoint_log_probability


def test_matches_the_adaptive_rule_with_a_suitable_shift(rng):
    scores, labels = rng.uniform(-0.5, 0.5, 40) - 2.0, rng.integers(0, 3, 40)
    midpoint = partition_log_likelihood(scores, labels, quadrature="midpoint", intervals=20_000, shift=2.0)
    np.testing.assert_allclose(midpoint, partition_log_likelihood(scores, labels), rtol=1e-6)


def test_is_inaccurate_with_an_unsuitable_shift():
    scores = np.concatenate([np.full(20, 8.0), np.full(5, 10.0)])
    labels = np.repeat([1, 0], [20, 5])
    midpoint = partition_log_likelihood(scores, labels, quadrature="midpoint")
    assert abs(midpoint - partition_log_likelihood(scores, labels))[0] > 1.0


def _theorem_case(rng, n, below):
    """Scores shifted so that 2 < exp(w_R + c) for the lower set and the whole list; C is just above the larger."""
    scores = rng.uniform(-1.0, 1.0, n)
    rest = math.log(below)
    shift = math.log(2.01) - rest
    bound = 1.01 * (np.exp(scores).sum() + below) * math.exp(shift)
    return scores, rest, shift, bound


@pytest.mark.parametrize("n", [2, 5, 10])
@pytest.mark.parametrize("below", [1.0, 5.0, 20.0])
@pytest.mark.parametrize("error", [0.1, 0.01, 0.001])
def test_value_satisfies_theorem_1a(n, below, error, rng):
    scores, rest, shift, C = _theorem_case(rng, n, below)
    intervals = math.ceil(C**2 * (n + 1) / (2 * math.sqrt(3) * error))
    labels = np.repeat([1, 0], [n, 1])
    exact = math.exp(partition_log_likelihood(np.append(scores, rest), labels)[0])
    found = math.exp(midpoint_log_probability(scores, rest, intervals, shift))
    assert abs(found - exact) < error


@pytest.mark.parametrize("error", [0.1, 0.01])
def test_gradient_satisfies_theorem_1b(error):
    """At most sqrt(6) C^5.5 n^2 / (C0^2 eps) intervals reduce the error of each gradient integral to eps / n.

    The bound is about 1e9 here. That 1e5 intervals are enough shows that it holds, and how loose it is.
    """
    n, b, e_rest = 9, 0.6, 7.0  # exp(w_i + c), exp(w_R + c)
    a, C, C0 = b * e_rest, 1.01 * (e_rest + n * b), 0.59
    assert a > 4
    assert a + 2 * b > 5
    intervals = 100_000
    assert intervals < math.sqrt(6) * C**5.5 * n**2 / (C0**2 * error)

    def integral(count):
        v = (np.arange(count) + 0.5) / count
        others = (1 - v**b) ** (n - 1)
        return e_rest**2 * float(np.mean(others * v ** (a / b + b - 1) * np.log(v)))

    assert abs(integral(intervals) - integral(4_000_000)) < error / n


def test_lists_and_tensors_give_the_same_values(rng):
    torch = pytest.importorskip("torch")
    scores, labels, offsets = rng.standard_normal(20), rng.integers(0, 3, 20), [0, 8, 8, 20]
    options = {"offsets": offsets, "quadrature": "midpoint", "intervals": 500, "shift": 1.0}
    tensor = torch.tensor(scores, requires_grad=True)
    value = partition_log_likelihood(tensor, torch.tensor(labels), **options)
    np.testing.assert_allclose(value.detach().numpy(), partition_log_likelihood(scores, labels, **options), rtol=1e-12)
    value.sum().backward()
    assert abs(tensor.grad.sum()) < 1e-3  # zero up to the error of the rule
