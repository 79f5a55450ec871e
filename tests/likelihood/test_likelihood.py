"""The exact likelihood and its derivatives: high precision, enumeration, identities and extreme input."""

import itertools
import json
import math
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import (
    enumerated_log_likelihood,
    exact_derivatives,
    golden_scores,
    log_probability_from_its_complement,
    log_softmax_at,
    second_difference,
)
from strategies import ragged_lists, scores_far_apart, tiered_list

import plackett
from plackett import partition_derivatives, partition_log_likelihood, preference_log_probability

GOLDEN = json.loads((Path(__file__).parent / "golden" / "likelihood.json").read_text())


def golden_name(case):
    cut = "" if case["top"] is None else f"-top{case['top']}"
    return f"{'+'.join(map(str, case['tier_sizes']))}-spread{case['spread']}-gap{case['gap']}-shift{case['shift']}{cut}"


@pytest.mark.parametrize("case", GOLDEN, ids=golden_name)
def test_matches_30_digit_values(case):
    scores, labels = golden_scores(case)
    value, gradient, curvature = partition_derivatives(scores, labels, top=case["top"])
    exact = float(case["value"])
    # Scores of 3,500 (five gaps of 700) are themselves rounded to 5e-13, an error that each item adds to the value.
    assert abs(value[0] - exact) <= 1e-9 * max(1.0, abs(exact))
    tight = case["top"] is None
    np.testing.assert_allclose(
        gradient[case["items"]], np.float64(case["gradient"]), rtol=0, atol=1e-9 if tight else 1e-8
    )
    np.testing.assert_allclose(curvature[case["items"]], np.float64(case["curvature"]), rtol=0, atol=1e-8)


@pytest.mark.parametrize("case", GOLDEN, ids=golden_name)
def test_float32_matches_float64_on_the_same_scores(case):
    scores, labels = golden_scores(case)
    single = scores.astype(np.float32)
    value = partition_log_likelihood(single, labels, top=case["top"])
    exact = partition_log_likelihood(single.astype(np.float64), labels, top=case["top"])
    assert value.dtype == np.float32
    assert abs(value[0] - exact[0]) <= 2e-6 * max(1.0, abs(exact[0]))


def test_oracle_reproduces_the_stored_values():
    for case in GOLDEN[:40:7]:
        scores, labels = golden_scores(case)
        value, gradient, _ = exact_derivatives(scores.tolist(), labels.tolist(), case["top"])
        assert abs(float(value) - float(case["value"])) <= 1e-15 * max(1.0, abs(float(value)))
        assert float(gradient[case["items"][0]]) == pytest.approx(float(case["gradient"][0]), abs=1e-17)


@given(tiered_list(most=6), st.integers(1, 7))
def test_equals_the_sum_over_all_orders(pair, top):
    scores, labels = pair
    exact = float(enumerated_log_likelihood(scores, labels, top))
    assert partition_log_likelihood(scores, labels, top=top)[0] == pytest.approx(exact, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("labels", [[2, 2, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1, 0], [3, 2, 2, 2, 2, 0], [1, 1, 1, 0, 0]])
@pytest.mark.parametrize("top", [None, 1, 2, 3, 4, 5])
def test_derivatives_match_differences_of_the_enumerated_likelihood(labels, top, rng):
    scores = 2.0 * rng.standard_normal(len(labels))
    _, gradient, curvature = partition_derivatives(scores, np.array(labels), top=top)
    for i in (0, 2, len(labels) - 1):
        with mp.workdps(50):
            first, second = second_difference(lambda w: enumerated_log_likelihood(w, labels, top), scores.tolist(), i)
        assert gradient[i] == pytest.approx(float(first), abs=1e-10)
        assert curvature[i] == pytest.approx(float(second), abs=1e-10)


@given(ragged_lists())
def test_gradient_sums_to_zero_and_lists_are_independent(lists):
    scores, labels, offsets = lists
    value, gradient, curvature = partition_derivatives(scores, labels, offsets=offsets)
    for b, (first, last) in enumerate(itertools.pairwise(offsets)):
        assert abs(gradient[first:last].sum()) <= 1e-12 * max(1, last - first)
        alone = partition_derivatives(scores[first:last], labels[first:last])
        assert value[b] == alone.value[0]
        np.testing.assert_array_equal(gradient[first:last], alone.gradient)
        np.testing.assert_array_equal(curvature[first:last], alone.curvature)


@given(tiered_list(most=15, scores=scores_far_apart))
def test_curvature_without_a_cutoff_is_not_negative(pair):
    assert partition_derivatives(*pair).curvature.min() >= -1e-9


@given(tiered_list(most=15), st.floats(-500, 500), st.randoms(use_true_random=False))
def test_shift_and_permutation_change_nothing(pair, shift, random):
    scores, labels = pair
    plain = partition_derivatives(scores, labels)
    shifted = partition_derivatives(scores + shift, labels)
    np.testing.assert_allclose(shifted.value, plain.value, rtol=1e-12, atol=1e-11)
    np.testing.assert_allclose(shifted.gradient, plain.gradient, atol=1e-11)
    order = np.array(random.sample(range(len(scores)), len(scores)))
    moved = partition_derivatives(scores[order], labels[order])
    np.testing.assert_allclose(moved.value, plain.value, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(moved.gradient, plain.gradient[order], atol=1e-12)


@given(tiered_list(most=15), st.floats(0.1, 10), st.floats(-3, 3))
def test_only_the_order_of_the_labels_matters(pair, scale, move):
    scores, labels = pair
    small = np.unique(labels, return_inverse=True)[1]
    np.testing.assert_array_equal(
        partition_log_likelihood(scores, labels), partition_log_likelihood(scores, small * scale + move)
    )


@pytest.mark.parametrize("n", [2, 3, 10, 300])
def test_singleton_tiers_give_the_listmle_likelihood(n, rng):
    scores = 3.0 * rng.standard_normal(n)
    labels = rng.permutation(n)
    order = np.argsort(-labels)
    longhand = math.fsum(log_softmax_at(scores.tolist(), order[i], order[i:].tolist()) for i in range(n))
    assert partition_log_likelihood(scores, labels)[0] == pytest.approx(longhand, rel=1e-12)


@pytest.mark.parametrize("gap", [-700.0, -30.0, -1.0, 0.0, 2.0, 40.0, 700.0])
def test_two_singleton_tiers_give_the_logistic_function(gap):
    value, gradient, curvature = partition_derivatives(np.array([gap, 0.0]), np.array([1, 0]))
    loses = 1.0 / (1.0 + math.exp(gap)) if gap < 700 else math.exp(-gap)
    logistic = -math.log1p(math.exp(-gap)) if gap > 0 else gap - math.log1p(math.exp(gap))
    assert value[0] == pytest.approx(logistic, rel=1e-15)
    np.testing.assert_allclose(gradient, [loses, -loses], rtol=1e-13)
    np.testing.assert_allclose(curvature, loses * (1.0 - loses), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("top", [1, 3, 10])
def test_cutoff_at_a_tier_boundary_drops_the_lower_tiers(top, rng):
    sizes = [1, 2, 7, 5]
    labels = np.repeat([3.0, 2.0, 1.0, 0.0], sizes)
    scores = rng.standard_normal(15)
    merged = np.where(np.arange(15) < top, labels, -1.0)
    np.testing.assert_allclose(
        partition_log_likelihood(scores, labels, top=top), partition_log_likelihood(scores, merged), rtol=1e-13
    )


@pytest.mark.parametrize("n", [4, 50])
def test_cutoff_beyond_the_list_has_no_effect(n, rng):
    scores, labels = rng.standard_normal(n), rng.integers(0, 3, n)
    for top in (n, n + 1, 10**9):
        np.testing.assert_array_equal(
            partition_log_likelihood(scores, labels, top=top), partition_log_likelihood(scores, labels)
        )


def test_cutoff_inside_a_tier_can_have_negative_curvature():
    _, _, curvature = partition_derivatives(np.array([0.0, 0.0, 3.0]), np.array([1, 1, 0]), top=1)
    # P = (e^a + e^b) / (e^a + e^b + e^3): raising one of two equal items increases its share of the sum.
    assert curvature[0] < 0.0


@given(tiered_list(most=9, least=2), st.sampled_from([1e-3, 1e-6, 1e-9, 1e-12]))
def test_tol_bounds_the_error(pair, tol):
    scores, labels = pair
    exact = partition_log_likelihood(scores, labels, tol=1e-15)
    # One tol per tier, doubled because the error bound is itself an estimate.
    assert abs(partition_log_likelihood(scores, labels, tol=tol) - exact)[0] <= 2 * tol * len(np.unique(labels)) + 1e-14


@pytest.mark.parametrize("gap", [-20.0, -3.0, 0.0, 3.0, 8.0, 12.0, 20.0, 30.0])
@pytest.mark.parametrize("n", [5, 30, 1000])
@pytest.mark.parametrize("tol", [1e-4, 1e-7, 1e-10])
def test_tol_bounds_the_error_of_large_tiers(gap, n, tol, rng):
    labels = np.repeat([1.0, 0.0], n)
    scores = rng.standard_normal(2 * n) + gap * labels
    exact = partition_derivatives(scores, labels, tol=1e-15)
    rough = partition_derivatives(scores, labels, tol=tol)
    assert abs(rough.value - exact.value)[0] <= 3 * tol
    assert np.abs(rough.gradient - exact.gradient).max() <= 20 * tol * max(1.0, np.abs(exact.gradient).max())


@pytest.mark.parametrize(("n", "places"), [(8, 5), (50, 20), (100, 37), (200, 150), (400, 128), (1000, 300)])
@pytest.mark.parametrize("log_odds", [-700.0, -20.0, -1.5, 0.0, 3.0, 20.0, 300.0])
def test_cutoff_of_equal_scores_has_a_closed_form(n, places, log_odds):
    """The tier fills the next places one by one: prod over k of (n - k) a / ((n - k) a + 1)."""
    a = math.exp(log_odds)
    value, gradient, curvature = partition_derivatives(
        np.append(np.full(n, log_odds), 0.0), np.repeat([1, 0], [n, 1]), top=places
    )
    loses = [1.0 / ((n - k) * a + 1.0) for k in range(places)]
    exact = math.fsum(log_odds + math.log(n - k) + math.log(p) for k, p in enumerate(loses))
    assert value[0] == pytest.approx(exact, rel=1e-12, abs=1e-12)
    assert gradient[-1] == pytest.approx(-math.fsum(loses), rel=1e-10, abs=1e-10)
    assert curvature[-1] == pytest.approx(math.fsum(p * (1 - p) for p in loses), abs=1e-8)


@pytest.mark.parametrize("tol", [1e-4, 1e-7, 1e-10])
@pytest.mark.parametrize("places", [2, 7, 40])
def test_tol_bounds_the_error_of_cutoffs(tol, places, rng):
    labels = np.repeat([1.0, 0.0], [80, 20])
    for gap in (-10.0, -2.0, 0.0, 5.0):
        scores = rng.standard_normal(100) + gap * labels
        exact = partition_log_likelihood(scores, labels, top=places, tol=1e-15)
        assert abs(partition_log_likelihood(scores, labels, top=places, tol=tol) - exact)[0] <= 2 * tol


@pytest.mark.parametrize(
    ("n", "places", "gap"),
    [
        *((n, places, gap) for n, places in [(2, 2), (5, 5), (3, 2), (7, 3)] for gap in (2.0, 10.0, 30.0, 60.0, 300.0)),
        *((7, 7, gap) for gap in (2.0, 30.0, 300.0)),  # the reference sums over all subsets
        (9, 9, 10.0),
    ],
)
def test_log_probability_near_zero_keeps_its_relative_accuracy(n, places, gap, rng):
    """log P = -1e-130 is as accurate as log P = -1; derivatives are compared to the largest in the tier."""
    log_odds = gap + rng.uniform(0.0, 3.0, n)
    value, gradient, curvature = partition_derivatives(np.append(log_odds, 0.0), np.repeat([1, 0], [n, 1]), top=places)
    with mp.workdps(450):
        exact = log_probability_from_its_complement(log_odds.tolist(), places)
        derivatives = [
            second_difference(
                lambda moved: log_probability_from_its_complement(moved, places),
                log_odds.tolist(),
                i,
                mp.mpf(10) ** -60,
            )
            for i in range(n)
        ]
        exact_gradient, exact_curvature = (
            np.array([float(x) for x in column]) for column in zip(*derivatives, strict=True)
        )
    assert value[0] == pytest.approx(float(exact), rel=3e-13)
    np.testing.assert_allclose(gradient[:n], exact_gradient, rtol=0, atol=3e-13 * exact_gradient.max())
    np.testing.assert_allclose(curvature[:n], exact_curvature, rtol=0, atol=1e-11 * np.abs(exact_curvature).max())
    assert gradient[n] == pytest.approx(-exact_gradient.sum(), rel=3e-13)
    single = partition_log_likelihood(
        np.append(log_odds, 0.0).astype(np.float32), np.repeat([1, 0], [n, 1]), top=places
    )
    with mp.workdps(450):
        rounded = log_odds.astype(np.float32).tolist()
        exact = float(log_probability_from_its_complement(rounded, places))
    assert single[0] == pytest.approx(np.float32(exact), rel=2e-7)


@pytest.mark.parametrize("gap", [4.0, 15.0, 40.0, 200.0])
@pytest.mark.parametrize(("n", "places"), [(40, 40), (3000, 3000), (40, 2), (40, 39), (300, 150), (1000, 3)])
def test_large_tier_of_equal_scores_far_above_the_rest(n, places, gap):
    """The tier fills place k from the end with probability k a / (1 + k a)."""
    scores = np.append(np.full(n, gap), 0.0)
    value, gradient, curvature = partition_derivatives(scores, np.repeat([1, 0], [n, 1]), top=places)
    odds = math.exp(-gap) / np.arange(n - places + 1, n + 1)
    assert value[0] == pytest.approx(-np.log1p(odds).sum(), rel=1e-12)
    np.testing.assert_allclose(gradient[:n], (odds / (1.0 + odds)).sum() / n, rtol=1e-11)
    assert curvature[n] == pytest.approx((odds / (1.0 + odds) ** 2).sum(), rel=1e-11)


@pytest.mark.parametrize("offset", [1e12, 1e17, 1e30])
@pytest.mark.parametrize("labels", [[4, 3, 2, 1, 0], [1, 1, 0, 0, 0], [2, 1, 1, 0, 0]])
def test_large_scores_keep_full_accuracy(offset, labels):
    plain, moved = (partition_derivatives(np.full(5, x), np.array(labels)) for x in (0.0, offset))
    for a, b in zip(plain, moved, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("n", [20, 500, 1500])
@pytest.mark.parametrize("gap", [-700.0, 700.0])
def test_large_tiers_far_from_the_rest_reach_the_limit(n, gap, rng):
    """Far below the rest, all a_i vanish and P = n! prod a_i; far above, P is 1."""
    scores, labels = rng.standard_normal(2000), np.repeat([1.0, 0.0], [n, 2000 - n])
    value, gradient, curvature = partition_derivatives(scores + gap * labels, labels)
    if gap > 0:
        assert abs(value[0]) < 1e-12
        assert np.abs(gradient).max() < 1e-12
    else:
        log_odds = scores[:n] + gap - np.log(np.exp(scores[n:]).sum())
        assert value[0] == pytest.approx(log_odds.sum() + math.lgamma(n + 1), rel=1e-12)
        np.testing.assert_allclose(gradient[:n], 1.0, atol=1e-12)
    assert curvature.min() >= 0.0


def test_curvature_vanishes_for_a_cutoff_far_below_the_rest():
    scores, labels = np.append(np.linspace(-1, 1, 30) - 1e12, 0.0), np.repeat([1, 0], [30, 1])
    assert abs(partition_derivatives(scores, labels, top=10).curvature[-1]) < 1e-10


def test_integers_beyond_float64_stay_distinct():
    labels = np.array([2**60 + 1, 2**60, 0])
    for each in (labels, labels.tolist()):
        assert partition_log_likelihood(np.zeros(3), each)[0] == pytest.approx(-math.log(6), rel=1e-12)


@pytest.mark.parametrize("gap", [5.0, 33.0])
def test_curvature_is_not_negative_at_a_coarse_tol(gap):
    scores = np.append(np.full(20_000, gap), 0.0)
    assert partition_derivatives(scores, np.repeat([1, 0], [20_000, 1]), tol=1e-4).curvature.min() >= 0.0


EDGES = {
    "huge scores": ([1e30, -1e30, 0.0, 1e30], [1, 1, 0, 0]),
    "huge scores the wrong way": ([-1e30, -1e30, 1e30, 1e30], [1, 1, 0, 0]),
    "huge scores in one large tier": ([1e30, -1e30, 0.0, 5.0, -3.0, 1e29, 2.0], [1, 1, 1, 1, 1, 1, 0]),
    "all labels equal": ([1.0, 2.0, 3.0], [4, 4, 4]),
    "single item": ([5.0], [1]),
    "empty list": ([], []),
    "gap of 700 down": ([-700.0] * 6 + [0.0], [1] * 6 + [0]),
    "gap of 700 up": ([700.0] * 6 + [0.0], [1] * 6 + [0]),
}


@pytest.mark.parametrize("name", EDGES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("top", [None, 2, 3])
def test_edge_cases_are_finite(name, dtype, top):
    scores, labels = EDGES[name]
    value, gradient, curvature = partition_derivatives(np.array(scores, dtype), np.array(labels, dtype), top=top)
    assert np.isfinite(value).all()
    assert np.isfinite(gradient).all()
    assert np.isfinite(curvature).all()
    if name in ("all labels equal", "single item", "empty list"):
        assert value[0] == 0.0
        assert not gradient.any()


def test_empty_batches_and_lists_keep_their_shape():
    assert partition_log_likelihood(np.zeros(0), np.zeros(0), offsets=[0]).shape == (0,)
    assert partition_log_likelihood(np.zeros((0, 4)), np.zeros((0, 4))).shape == (0,)
    assert partition_log_likelihood(np.zeros((3, 0)), np.zeros((3, 0))).tolist() == [0.0, 0.0, 0.0]


def test_where_matches_offsets(rng):
    scores, labels = rng.standard_normal((4, 9)), rng.integers(0, 3, (4, 9))
    where = rng.random((4, 9)) < 0.6
    where[2] = False
    padded = np.where(where, scores, np.nan)  # padding may hold anything
    masked = partition_derivatives(padded, labels, where=where)
    offsets = np.concatenate(([0], np.cumsum(where.sum(axis=1))))
    flat = partition_derivatives(scores[where], labels[where], offsets=offsets)
    np.testing.assert_array_equal(masked.value, flat.value)
    np.testing.assert_array_equal(masked.gradient[where], flat.gradient)
    assert not masked.gradient[~where].any()
    assert not masked.curvature[~where].any()


def test_one_list_of_a_million_items(rng):
    labels = np.repeat(np.arange(10.0), 100_000)
    scores = rng.standard_normal(1_000_000)
    value, gradient, curvature = partition_derivatives(scores, labels)
    assert np.isfinite(value).all()
    assert abs(gradient.sum()) < 1e-6
    assert curvature.min() > 0.0
    # Directional derivative along the gradient, by central differences.
    step = 1e-6 * gradient / np.abs(gradient).max()
    up, down = (partition_log_likelihood(scores + s, labels)[0] for s in (step, -step))
    assert (up - down) / 2 == pytest.approx(gradient @ step, rel=1e-4)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_preference_matches_enumeration(batch, rng):
    preferred, others = rng.standard_normal((*batch, 3)), rng.standard_normal((*batch, 2))
    result = preference_log_probability(preferred, others)
    assert np.shape(result) == batch
    for index in np.ndindex(*batch):
        joined = np.concatenate([preferred[index], others[index]])
        exact = enumerated_log_likelihood(joined, [1, 1, 1, 0, 0])
        assert float(np.asarray(result)[index]) == pytest.approx(float(exact), rel=1e-12)


def test_preference_ignores_items_outside_both_sets():
    # Proposition 1: the sum over all orders of five items in which {0, 1} precede {2, 3} and item 4 is anywhere.
    import itertools

    scores = [0.3, -0.8, 0.5, 0.1, 1.5]
    total = 0.0
    for order in itertools.permutations(range(5)):
        if max(order.index(0), order.index(1)) < min(order.index(2), order.index(3)):
            total += math.exp(math.fsum(log_softmax_at(scores, order[i], order[i:]) for i in range(5)))
    found = preference_log_probability(np.array(scores[:2]), np.array(scores[2:4]))
    assert float(found) == pytest.approx(math.log(total), rel=1e-12)


def test_preference_broadcasts_and_accepts_empty_sets(rng):
    one, many = rng.standard_normal(2), rng.standard_normal((4, 3))
    result = preference_log_probability(one, many)
    assert result.shape == (4,)
    assert result[2] == preference_log_probability(one, many[2])
    assert preference_log_probability(np.zeros(0), one) == 0.0
    assert preference_log_probability(one, np.zeros(0)) == 0.0


def test_many_label_levels_are_sorted(rng):
    scores, labels = rng.standard_normal(120), rng.integers(0, 60, 120) / 7.0
    order = rng.permutation(120)
    np.testing.assert_allclose(
        partition_log_likelihood(scores, labels), partition_log_likelihood(scores[order], labels[order]), rtol=1e-13
    )
    assert plackett.partition_log_likelihood(scores, labels) == pytest.approx(
        float(exact_derivatives(scores.tolist(), labels.tolist())[0]), rel=1e-11
    )
