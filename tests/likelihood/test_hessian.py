"""Hessian products: differences of gradients, semidefiniteness, cut-offs."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import ragged_lists

from plackett.likelihood.approximations import efron_or_breslow
from plackett.likelihood.core import Tiers, evaluate_tiers, make_tiers
from plackett.likelihood.hessian import divides_a_tier, hessian_products

TOL = 1e-14
TREATMENTS = ("exact", "efron", "breslow")


def gradient_of(scores: Any, tiers: Tiers, treatment: str, top: int = 2**62) -> Any:
    if treatment == "exact":
        return evaluate_tiers(scores, tiers, top=top, tol=1e-15, derivatives=True)[1]
    return efron_or_breslow(scores, tiers, efron=treatment == "efron", bottom=False)[1]


@pytest.mark.parametrize("treatment", TREATMENTS)
@pytest.mark.parametrize("spread", [0.0, 1.0, 5.0])
def test_hessian_products_match_differences_of_the_gradient(
    treatment: str, spread: float, rng: np.random.Generator
) -> None:
    sizes = rng.integers(0, 60, 20)
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    n = int(offsets[-1])
    tiers = make_tiers(rng.integers(0, 5, n).astype(np.float64), offsets)
    scores, moves, h = spread * rng.standard_normal(n), rng.standard_normal((n, 3)), 1e-5
    found = hessian_products(scores, tiers, moves, treatment=treatment, tol=TOL)
    for column in range(3):
        up, down = (gradient_of(scores + s * h * moves[:, column], tiers, treatment) for s in (1, -1))
        # Central differences with h = 1e-5 of gradients of size 10 with 15 digits.
        np.testing.assert_allclose(found[:, column], (up - down) / (2 * h), atol=1e-8)


@given(ragged_lists(), st.sampled_from(TREATMENTS))
def test_hessian_is_semidefinite_for_any_scores(lists: Any, treatment: str) -> None:
    """Also symmetric, zero along constants and with the known diagonal, for scores up to 700 apart."""
    scores, labels, offsets = lists
    n, tiers = len(scores), make_tiers(labels, offsets)
    matrix = hessian_products(scores, tiers, np.eye(n), treatment=treatment, tol=TOL)
    assert np.isfinite(matrix).all()
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-9)
    np.testing.assert_allclose(matrix @ np.ones(n), 0.0, atol=1e-9)
    assert np.linalg.eigvalsh(matrix).max(initial=0.0) < 1e-9
    if treatment == "exact":
        curvature = evaluate_tiers(scores, tiers, tol=TOL, derivatives=True)[2]
    else:
        curvature = efron_or_breslow(scores, tiers, efron=treatment == "efron", bottom=False)[2]
    np.testing.assert_allclose(-np.diag(matrix), curvature, atol=1e-9)


def test_hessian_supports_a_cutoff_on_a_tier_boundary(rng: np.random.Generator) -> None:
    labels, offsets = np.repeat([3.0, 2.0, 1.0, 0.0], [1, 2, 3, 4]), np.array([0, 10])
    tiers, scores, move = make_tiers(labels, offsets), rng.standard_normal(10), rng.standard_normal((10, 1))
    assert [divides_a_tier(tiers, top) for top in range(1, 11)] == [False, True, False, True, True] + [False] * 5
    for top in (1, 3, 6):
        up, down = (gradient_of(scores + s * 1e-5 * move[:, 0], tiers, "exact", top) for s in (1, -1))
        found = hessian_products(scores, tiers, move, top=top, tol=TOL)[:, 0]
        np.testing.assert_allclose(found, (up - down) / 2e-5, atol=1e-8)  # as above


def test_hessian_refuses_non_finite_scores() -> None:
    tiers = make_tiers(np.array([1.0, 0.0]), np.array([0, 2]))
    with pytest.raises(ValueError, match="scores must be finite"):
        hessian_products(np.array([0.0, np.nan]), tiers, np.eye(2), tol=TOL)
