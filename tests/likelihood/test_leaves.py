"""Derivatives per leaf against finite differences of the exact likelihood."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import ragged_lists

from plackett import set_num_threads
from plackett.arguments import NO_CUTOFF
from plackett.likelihood.core import check_weighting, evaluate_tiers, make_tiers
from plackett.likelihood.leaves import denominator_curvature, leaf_derivatives

TOL = 1e-14


def finite_differences(scores: Any, tiers: Any, leaf: Any, leaves: int, weights: Any, **options: Any) -> Any:
    """L' and L'' for each leaf by central differences, with a step that balances rounding and truncation."""
    h = 2e-4

    def value(u: int, v: float) -> float:
        moved = scores + v * (leaf == u)
        return float(evaluate_tiers(moved, tiers, tol=TOL, derivatives=False, **options)[0] @ weights)

    up, down = (np.array([value(u, v) for u in range(leaves)]) for v in (h, -h))
    return (up - down) / (2 * h), (up - 2 * value(-1, 0.0) + down) / h**2


def problem(rng: np.random.Generator, spread: float = 2.0, longest: int = 40) -> Any:
    sizes = rng.integers(0, longest, 30)
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    n = int(offsets[-1])
    labels = rng.integers(0, 4, n).astype(np.float64)
    return spread * rng.standard_normal(n), labels, offsets, rng.integers(0, 7, n).astype(np.int32), rng.random(30)


@pytest.mark.parametrize("spread", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("tier_weights", [None, "gain"])
def test_leaf_derivatives_match_finite_differences(rng: np.random.Generator, spread: float, tier_weights: Any) -> None:
    scores, labels, offsets, leaf, weights = problem(rng, spread)
    tiers = make_tiers(labels, offsets)
    weighting = check_weighting(tier_weights)
    options = {"tier_weights": None if weighting is None else tiers.weights(weighting, labels)}
    slope, second_derivative = leaf_derivatives(scores, tiers, leaf, 7, list_weights=weights, tol=TOL, **options)
    first, second = finite_differences(scores, tiers, leaf, 7, weights, **options)
    # Central differences with h = 2e-4 are accurate to about h^2 plus rounding / h^2.
    np.testing.assert_allclose(slope, first, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(second_derivative, second, rtol=1e-4, atol=1e-3)


@given(ragged_lists(scores=st.floats(-3, 3)))
def test_single_item_leaves_give_the_gradient_and_curvature(lists: Any) -> None:
    scores, labels, offsets = lists
    n = len(scores)
    if n == 0:
        return
    tiers = make_tiers(labels, offsets)
    slope, second_derivative = leaf_derivatives(
        scores, tiers, np.arange(n, dtype=np.int32), n, list_weights=np.ones(len(offsets) - 1), tol=TOL
    )
    _, gradient, curvature = evaluate_tiers(scores, tiers, tol=TOL, derivatives=True)
    np.testing.assert_allclose(slope, gradient, atol=1e-9)
    np.testing.assert_allclose(-second_derivative, curvature, atol=1e-9)


def test_one_leaf_for_all_items_has_zero_derivatives(rng: np.random.Generator) -> None:
    scores, labels, offsets, leaf, weights = problem(rng)
    slope, second_derivative = leaf_derivatives(
        scores, make_tiers(labels, offsets), np.zeros_like(leaf), 1, list_weights=weights, tol=TOL
    )
    assert abs(slope[0]) < 1e-9
    assert abs(second_derivative[0]) < 1e-9


def test_cutoffs_are_exact_except_for_the_curvature_inside_a_tier(rng: np.random.Generator) -> None:
    scores, labels, offsets, leaf, weights = problem(rng)
    tiers = make_tiers(labels, offsets)
    for top in (1, 3, 7):
        slope, second_derivative = leaf_derivatives(scores, tiers, leaf, 7, list_weights=weights, top=top, tol=TOL)
        first, second = finite_differences(scores, tiers, leaf, 7, weights, top=top)
        np.testing.assert_allclose(slope, first, rtol=1e-5, atol=1e-5)
        assert (second_derivative <= second + 1e-3).all()  # convex tiers use the curvature of the denominators
    labels = np.repeat([2.0, 1.0, 1.0, 0.0, 0.0], 1)
    tiers = make_tiers(labels, np.array([0, 5]))
    w, leaf = rng.standard_normal(5), np.array([0, 1, 0, 1, 0], np.int32)
    slope, second_derivative = leaf_derivatives(w, tiers, leaf, 2, list_weights=np.ones(1), top=3, tol=TOL)
    whole = leaf_derivatives(w, tiers, leaf, 2, list_weights=np.ones(1), top=NO_CUTOFF, tol=TOL)
    np.testing.assert_allclose(slope, whole[0], atol=1e-12)
    np.testing.assert_allclose(second_derivative, whole[1], atol=1e-12)


@pytest.mark.parametrize("spread", [0.3, 2.0, 8.0])
@pytest.mark.parametrize("top", [1, 2, 5, 11])
def test_curvature_of_a_cut_tier_is_exact_where_it_is_concave(
    rng: np.random.Generator, spread: float, top: int
) -> None:
    labels, leaf = np.repeat([1.0, 0.0], [12, 4]), rng.integers(0, 4, 16).astype(np.int32)
    tiers, concave = make_tiers(labels, np.array([0, 16])), 0
    for _ in range(20):
        scores = spread * rng.standard_normal(16)
        slope, second_derivative = leaf_derivatives(scores, tiers, leaf, 4, list_weights=np.ones(1), top=top, tol=TOL)
        first, second = finite_differences(scores, tiers, leaf, 4, np.ones(1), top=top)
        np.testing.assert_allclose(slope, first, rtol=1e-5, atol=1e-6)
        share = np.array([np.exp(scores[leaf == u]).sum() for u in range(4)]) / np.exp(scores).sum()
        for u in range(4):
            if abs(second[u]) > 1e-4:
                wanted = second[u] if second[u] < 0.0 else -top * share[u] * (1.0 - share[u])
                # Values of about 100, accurate to 1e-15, over the squared step of 4e-8: an error of 2.5e-6, doubled.
                assert second_derivative[u] == pytest.approx(wanted, rel=1e-3, abs=1e-5)
                concave += second[u] < 0.0
    assert concave > 10


def test_cut_tier_with_nearly_linear_denominators() -> None:
    """Two of the scores 8, 0, -8 precede 0. The curvature of the denominators is 0.0007 for the second item."""
    tiers, scores = make_tiers(np.array([1.0, 1, 1, 0]), np.array([0, 4])), np.array([8.0, 0.0, -8.0, 0.0])
    _, second_derivative = leaf_derivatives(
        scores, tiers, np.array([0, 1, 0, 0], np.int32), 2, list_weights=np.ones(1), top=2, tol=TOL
    )
    np.testing.assert_allclose(second_derivative, -0.2497, atol=1e-3)


@pytest.mark.parametrize(
    "scores", [[0.0, -900, -900, 3], [900, 0, 0, 0], [-900.0, -1800, -2700, 0], [1e30, -1e30, 0, 0]]
)
def test_cut_tier_derivatives_are_finite_for_distant_scores(scores: list[float]) -> None:
    tiers = make_tiers(np.array([1.0, 1, 1, 0]), np.array([0, 4]))
    for u in range(3):
        leaf = (np.arange(4) == u).astype(np.int32)
        for derivative in leaf_derivatives(np.array(scores), tiers, leaf, 2, list_weights=np.ones(1), top=2, tol=1e-6):
            assert np.isfinite(derivative).all()
            assert np.abs(derivative).max() < 3.0


def test_leaf_derivatives_are_finite_for_distant_scores(rng: np.random.Generator) -> None:
    scores, labels, offsets, leaf, weights = problem(rng, 200.0)
    slope, second_derivative = leaf_derivatives(
        scores, make_tiers(labels, offsets), leaf, 7, list_weights=weights, tol=1e-6
    )
    assert np.isfinite(slope).all()
    assert np.isfinite(second_derivative).all()
    with pytest.raises(ValueError, match="scores must be finite"):
        leaf_derivatives(scores * np.nan, make_tiers(labels, offsets), leaf, 7, list_weights=weights, tol=1e-6)


def test_denominator_curvature_matches_the_formula(rng: np.random.Generator) -> None:
    scores, labels, offsets, _, _ = problem(rng)
    tiers = make_tiers(labels, offsets)
    for top in (4, NO_CUTOFF):
        found = denominator_curvature(scores, tiers, top)
        wanted = np.zeros(len(scores))
        for a, b in itertools.pairwise(offsets):
            before = 0
            for grade in np.unique(labels[a:b])[::-1][:-1]:
                left = labels[a:b] <= grade
                p = np.where(left, np.exp(scores[a:b]), 0.0)
                p /= p.sum()
                n = int((labels[a:b] == grade).sum())
                wanted[a:b] += max(0, min(n, top - before)) * p * (1 - p)
                before += n
        np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_threads_change_only_rounding(rng: np.random.Generator) -> None:
    sizes = np.full(400, 120)
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    n = int(offsets[-1])
    scores, labels = rng.standard_normal(n), rng.integers(0, 5, n).astype(np.float64)
    leaf, tiers = rng.integers(0, 31, n).astype(np.int32), make_tiers(labels, offsets)

    def run() -> Any:
        return leaf_derivatives(scores, tiers, leaf, 31, list_weights=np.ones(400), tol=1e-6)

    several = [run() for _ in range(3)]
    assert all((x[0] == several[0][0]).all() and (x[1] == several[0][1]).all() for x in several)
    try:
        set_num_threads(1)
        single = run()
    finally:
        set_num_threads(None)
    np.testing.assert_allclose(single, several[0], rtol=1e-10)
