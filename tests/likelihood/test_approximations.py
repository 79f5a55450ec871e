"""Random, Efron and Breslow tie handling against explicit formulas, finite differences and identities."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from strategies import ragged_lists, scores_far_apart, tiered_list

from plackett import partition_derivatives, partition_log_likelihood
from plackett.likelihood import approximate_derivatives
from plackett.likelihood.approximations import break_ties
from plackett.likelihood.core import make_tiers


def longhand(scores, labels, ties, bottom):
    levels = sorted(set(labels), reverse=True)
    total = 0.0
    for level in levels if bottom == "ordered" else levels[:-1]:
        tier = [x for x, y in zip(scores, labels, strict=True) if y == level]
        everything = math.fsum(math.exp(x) for x, y in zip(scores, labels, strict=True) if y <= level)
        own = math.fsum(math.exp(x) for x in tier)
        for k, x in enumerate(tier):
            removed = k / len(tier) * own if ties == "efron" else 0.0
            total += x - math.log(everything - removed)
    return total


@given(tiered_list(most=10))
@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize("bottom", ["ordered", "unordered"])
def test_values_match_the_formulas(ties, bottom, pair):
    scores, labels = pair
    value = approximate_derivatives(scores, labels, ties=ties, bottom=bottom).value[0]
    assert value == pytest.approx(longhand(scores.tolist(), labels.tolist(), ties, bottom), rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("ties", ["random", "efron", "breslow"])
@pytest.mark.parametrize("bottom", ["ordered", "unordered"])
def test_derivatives_match_finite_differences(ties, bottom, rng):
    scores, labels, offsets = rng.standard_normal(30), rng.integers(0, 4, 30), [0, 12, 12, 13, 30]

    def value(w):
        return approximate_derivatives(w, labels, ties=ties, bottom=bottom, offsets=offsets, random_state=3).value.sum()

    _, gradient, curvature = approximate_derivatives(
        scores, labels, ties=ties, bottom=bottom, offsets=offsets, random_state=3
    )
    step = 1e-4
    for i in range(30):
        move = step * (np.arange(30) == i)
        up, here, down = value(scores + move), value(scores), value(scores - move)
        # The truncation error is of order step^2, the rounding errors are 1e-14 / step and 1e-14 / step^2.
        assert gradient[i] == pytest.approx((up - down) / (2 * step), abs=1e-7)
        assert curvature[i] == pytest.approx(-(up - 2 * here + down) / step**2, abs=1e-5)


@given(ragged_lists())
@pytest.mark.parametrize("ties", ["random", "efron", "breslow"])
def test_gradients_sum_to_zero_and_are_finite(ties, lists):
    scores, labels, offsets = lists
    value, gradient, curvature = approximate_derivatives(scores, labels, ties=ties, offsets=offsets, random_state=0)
    assert np.isfinite(value).all()
    assert np.isfinite(curvature).all()
    for first, last in itertools.pairwise(offsets):
        assert abs(gradient[first:last].sum()) < 1e-10


@given(tiered_list(most=12, scores=scores_far_apart))
def test_breslow_with_factorials_is_a_lower_bound(pair):
    scores, labels = pair
    sizes = np.unique(labels, return_counts=True)[1][1:]  # all but the bottom tier
    bound = approximate_derivatives(scores, labels, ties="breslow").value[0] + sum(math.lgamma(n + 1) for n in sizes)
    assert bound <= partition_log_likelihood(scores, labels)[0] + 1e-9 * max(1.0, abs(bound))


@pytest.mark.parametrize("ties", ["random", "efron", "breslow"])
def test_all_approximations_are_exact_without_ties(ties, rng):
    scores, labels = rng.standard_normal(20), rng.permutation(20)
    approximate = approximate_derivatives(scores, labels, ties=ties, random_state=0)
    for found, exact in zip(approximate, partition_derivatives(scores, labels), strict=True):
        np.testing.assert_allclose(found, exact, rtol=1e-10, atol=1e-12)


def test_random_ties_depend_on_the_seed(rng):
    scores, labels = rng.standard_normal(20), np.zeros(20)
    values = [
        approximate_derivatives(scores, labels, ties="random", bottom="ordered", random_state=seed).value[0]
        for seed in (1, 1, 2)
    ]
    assert values[0] == values[1] != values[2]


def test_broken_ties_respect_the_tiers(rng):
    labels, offsets = rng.integers(0, 3, 40).astype(float), np.array([0, 0, 25, 40])
    tiers = make_tiers(labels, offsets)
    broken = break_ties(tiers, rng, "ordered")
    assert (broken.sizes == 1).all()
    for first, last in itertools.pairwise(offsets):
        assert (np.diff(labels[broken.order[first:last]]) <= 0).all()
    unordered = break_ties(tiers, rng, "unordered")
    np.testing.assert_array_equal(
        np.sort(unordered.sizes)[-2:], np.sort([(labels[:25] == 0).sum(), (labels[25:] == 0).sum()])
    )


def test_random_order_is_uniform():
    # 6 orders of 3 tied items, 6,000 draws: chi-square with 5 degrees of freedom above 20.5 has probability 0.001;
    # the seed is fixed, so the test fails only if the code changes.
    generator = np.random.default_rng(5)
    tiers = make_tiers(np.zeros(3 * 6000), np.arange(6001) * 3)
    orders = break_ties(tiers, generator).order.reshape(-1, 3) % 3
    counts = np.unique(orders @ [9, 3, 1], return_counts=True)[1]
    assert len(counts) == 6
    assert ((counts - 1000) ** 2 / 1000).sum() < 20.5
