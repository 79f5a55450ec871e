"""Objectives of boosted trees on orders and grades, against explicit formulas."""

import itertools
import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from strategies import ragged_lists

from plackett import partition_derivatives, partition_log_likelihood
from plackett.boosted import plrank
from plackett.boosted.grades import GRADE_OBJECTIVES
from plackett.boosted.objectives import OBJECTIVES, LowerBoundObjective
from plackett.boosted.plrank import PLRankObjective, contexts_of
from plackett.objective import Objective
from plackett.threads import set_num_threads

Array = np.ndarray[Any, Any]


def drawn_orders(objective: PLRankObjective) -> list[list[Array]]:
    """For each list, the rows that each order chooses, best first."""
    c = objective.contexts
    return [
        [c.rows[c.offsets[b] + chosen] for chosen in c.chosen[:, c.places[b] : c.places[b + 1]]]
        for b in range(len(c.offsets) - 1)
    ]


def longhand_plrank(objective: PLRankObjective, scores: Array, leaf: Array, leaves: int) -> tuple[Any, Any, Any, Any]:
    """Value, gradient, and slope and curvature of each leaf, order by order and place by place without sharing."""
    value, gradient, curvature = 0.0, np.zeros(len(scores)), np.zeros(leaves)
    for b, orders in enumerate(drawn_orders(objective)):
        for order in orders:
            left = list(range(objective.offsets[b], objective.offsets[b + 1]))
            weight = objective.weights[b] / len(orders)
            for row in order:
                log_z = logsumexp(scores[left])
                p = np.exp(scores[left] - log_z)
                value += weight * (log_z - scores[row])
                gradient[left] += weight * p
                gradient[row] -= weight
                share = np.bincount(leaf[left], p, leaves)
                curvature += weight * share * (1.0 - share)
                left.remove(row)
    return value, gradient, np.bincount(leaf, gradient, leaves), curvature


def random_lists(rng: np.random.Generator, sizes: list[int]) -> tuple[Array, Array, Array, Array]:
    """Scores, labels in five grades, offsets and weights."""
    n = sum(sizes)
    return (
        rng.normal(size=n),
        rng.integers(0, 5, n).astype(float),
        np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
        rng.uniform(0.5, 2.0, len(sizes)),
    )


def slopes_by_differences(objective: Objective, scores: Array, directions: Array) -> Array:
    """The derivative of the value in each direction by central differences, with an error of about 1e-9."""
    step = 1e-5
    return np.array(
        [(objective.value(scores + step * v) - objective.value(scores - step * v)) / (2 * step) for v in directions]
    )


# Formulas of the paper


def test_example_of_four_documents_matches_the_paper() -> None:
    """Section 3.2: d1 > d2 > d3 > d4, the first two places, d1 and d3 in one leaf."""
    s = np.array([0.3, -1.2, 0.8, 0.1])
    objective = PLRankObjective(np.array([3.0, 2.0, 1.0, 0.0]), np.array([0, 4]), np.ones(1), top=2)
    e1, e2, e3, e4 = (math.exp(x) for x in s)
    c1, c2 = e1 + e2 + e3 + e4, e2 + e3 + e4
    log_likelihood = s[0] - math.log(c1) + s[1] - math.log(c2)
    slopes = [1 - e1 / c1, 1 - e2 / c1 - e2 / c2, -e3 / c1 - e3 / c2, -e4 / c1 - e4 / c2]
    assert objective.value(s) == pytest.approx(-log_likelihood, rel=1e-14)
    gradient, hessian = objective.derivatives(s)
    np.testing.assert_allclose(gradient, np.negative(slopes), rtol=1e-13)
    np.testing.assert_array_equal(hessian, 1.0)
    slope, curvature = objective.leaf_derivatives(s, np.array([0, 1, 0, 1], np.int32), 2)
    p13 = (e1 + e3) / c1
    assert slope[0] == pytest.approx(-(1 - e1 / c1 - (e3 / c1 + e3 / c2)), rel=1e-13)
    assert curvature[0] == pytest.approx(-(p13 * (p13 - 1) + e3 / c2 * (e3 / c2 - 1)), rel=1e-13)


def test_example_of_shared_contexts_matches_the_paper() -> None:
    """Section 3.2.2: after d1, d3, d4, d2 the order d1, d4, d3, d2 adds one context, {d2, d3}."""
    contexts = contexts_of(np.array([[0, 2, 3], [0, 3, 2]]), np.array([0, 3]), np.array([0, 4]))
    np.testing.assert_array_equal(contexts.owner, [[0, 0, 0], [0, 0, 1]])
    np.testing.assert_array_equal(contexts.count, [[2, 2, 1], [0, 0, 1]])
    stored = {
        frozenset(range(1, 5)) - {int(contexts.rows[d]) + 1 for d in contexts.chosen[q, :j]}
        for q, j in zip(*np.nonzero(contexts.count), strict=True)
    }
    assert stored == {frozenset(x) for x in ({1, 2, 3, 4}, {2, 3, 4}, {2, 4}, {2, 3})}


def test_equal_sets_are_shared_for_any_order_of_removal() -> None:
    contexts = contexts_of(np.array([[0, 1, 2], [1, 0, 2], [1, 2, 0]]), np.array([0, 3]), np.array([0, 4]))
    np.testing.assert_array_equal(contexts.owner, [[0, 0, 0], [0, 1, 0], [0, 1, 2]])


# PLRank


@given(
    ragged_lists(),
    st.integers(1, 5),
    st.sampled_from([None, 1, 2, 5]),
    st.integers(1, 4),
    st.integers(0, 2**32 - 1),
)
def test_sharing_does_not_change_the_result(lists: Any, orders: int, top: int | None, leaves: int, seed: int) -> None:
    scores, labels, offsets = lists
    rng = np.random.default_rng(seed)
    weights, leaf = rng.uniform(0.5, 2.0, len(offsets) - 1), rng.integers(0, leaves, len(scores)).astype(np.int32)
    objective = PLRankObjective(labels, offsets, weights, n_permutations=orders, top=top, random_state=seed)
    value, gradient, slope, curvature = longhand_plrank(objective, scores, leaf, leaves)
    # With scores up to 700, differences of logarithms are accurate to 1e-13.
    np.testing.assert_allclose(objective.value(scores), value, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(objective.derivatives(scores)[0], gradient, atol=1e-11)
    computed_slope, computed_curvature = objective.leaf_derivatives(scores, leaf, leaves)
    np.testing.assert_allclose(computed_slope, slope, atol=1e-10)
    np.testing.assert_allclose(computed_curvature, curvature, atol=1e-10)
    assert (computed_curvature >= 0.0).all()


@given(ragged_lists(), st.integers(1, 4), st.sampled_from([None, 1, 3]))
def test_orders_sort_the_labels_of_their_list(lists: Any, orders: int, top: int | None) -> None:
    _, labels, offsets = lists
    objective = PLRankObjective(labels, offsets, np.ones(len(offsets) - 1), n_permutations=orders, top=top)
    for b, drawn in enumerate(drawn_orders(objective)):
        own = labels[offsets[b] : offsets[b + 1]]
        places = min(len(own) if top is None else top, max(len(own) - 1, 0))
        for rows in drawn:
            assert len(set(rows)) == places
            assert all(offsets[b] <= row < offsets[b + 1] for row in rows)
            np.testing.assert_array_equal(labels[rows], np.sort(own)[::-1][:places])


def test_ties_are_broken_uniformly() -> None:
    """Six orders of three equal documents, 6,000 lists: the statistic exceeds 20.5 for one seed in a thousand."""
    lists = 6000
    labels = np.tile([2.0, 2.0, 2.0, 1.0], lists)
    objective = PLRankObjective(labels, np.arange(lists + 1) * 4, np.ones(lists), random_state=1)
    drawn = [tuple(rows[0] % 4) for rows in drawn_orders(objective)]
    counts = [drawn.count((*order,)) for order in itertools.permutations(range(3))]
    assert sum(counts) == lists
    assert sum((count - 1000) ** 2 / 1000 for count in counts) < 20.5


@pytest.mark.parametrize("top", [None, 1, 4, 100])
@pytest.mark.parametrize("orders", [1, 3])
def test_plrank_without_ties_equals_the_partition_likelihood(
    top: int | None, orders: int, rng: np.random.Generator
) -> None:
    scores, _, offsets, weights = random_lists(rng, [7, 1, 12, 0, 30])
    labels = rng.permutation(len(scores)).astype(float)
    objective = PLRankObjective(labels, offsets, weights, n_permutations=orders, top=top)
    value = partition_log_likelihood(scores, labels, offsets=offsets, top=top)
    assert objective.value(scores) == pytest.approx(-float(value @ weights), rel=1e-12)
    wanted = partition_derivatives(scores, labels, offsets=offsets, top=top)
    row_weights = np.repeat(weights, np.diff(offsets))
    gradient, _ = objective.derivatives(scores)
    np.testing.assert_allclose(gradient, -row_weights * wanted.gradient, atol=1e-12)
    # One leaf per document: the diagonal.
    leaf = np.arange(len(scores), dtype=np.int32)
    slope, curvature = objective.leaf_derivatives(scores, leaf, len(scores))
    np.testing.assert_array_equal(slope, gradient)
    np.testing.assert_allclose(curvature, row_weights * wanted.curvature, atol=1e-12)


def test_mean_over_all_orders_bounds_the_exact_likelihood(rng: np.random.Generator) -> None:
    """The log of the mean is at least the mean of the logs, over all orders of a list with few ties."""
    labels, scores = np.array([1.0, 1.0, 1.0, 0.0]), rng.normal(size=4)
    objective = PLRankObjective(labels, np.array([0, 4]), np.ones(1), n_permutations=500, random_state=0)
    assert len({tuple(rows) for rows in drawn_orders(objective)[0]}) == 6
    exact = float(partition_log_likelihood(scores, labels)[0])
    assert -objective.value(scores) < exact - math.log(6)


def test_plrank_derivatives_match_finite_differences(rng: np.random.Generator) -> None:
    scores, labels, offsets, weights = random_lists(rng, [9, 20, 1, 6])
    objective = PLRankObjective(labels, offsets, weights, n_permutations=4, top=5, random_state=2)
    by_score = slopes_by_differences(objective, scores, np.eye(len(scores)))
    np.testing.assert_allclose(objective.derivatives(scores)[0], by_score, atol=1e-8)  # error of the differences


def leaf_directions(leaf: Array, leaves: int) -> Array:
    return (leaf == np.arange(leaves)[:, None]).astype(float)


def assert_leaves_match_differences(objective: Objective, scores: Array, leaf: Array, leaves: int) -> None:
    directions = leaf_directions(leaf, leaves)
    slope, curvature = objective.leaf_derivatives(scores, leaf, leaves)
    np.testing.assert_allclose(slope, slopes_by_differences(objective, scores, directions), atol=1e-8)
    step = 1e-4
    for number, v in enumerate(directions):
        up, down = (objective.leaf_derivatives(scores + move * v, leaf, leaves)[0][number] for move in (step, -step))
        assert curvature[number] == pytest.approx((up - down) / (2 * step), abs=1e-7)  # step^2


def test_plrank_leaves_match_finite_differences(rng: np.random.Generator) -> None:
    scores, labels, offsets, weights = random_lists(rng, [9, 20, 1, 6])
    objective = PLRankObjective(labels, offsets, weights, n_permutations=4, top=5, random_state=2)
    assert_leaves_match_differences(objective, scores, rng.integers(0, 4, len(scores)).astype(np.int32), 5)


def test_list_in_one_leaf_has_zero_curvature(rng: np.random.Generator) -> None:
    scores, labels, offsets, weights = random_lists(rng, [9, 20])
    leaf = np.repeat(np.arange(2, dtype=np.int32), [9, 20])
    slope, curvature = PLRankObjective(labels, offsets, weights, random_state=0).leaf_derivatives(scores, leaf, 2)
    np.testing.assert_allclose(slope, 0.0, atol=1e-13)
    np.testing.assert_array_equal(curvature, 0.0)


@pytest.mark.parametrize("labels", [[4.0, 3.0, 2.0, 1.0, 0.0, 0.0], [1.0] * 6])
def test_distant_scores_have_accurate_derivatives(labels: list[float]) -> None:
    """Once its best documents are removed, the rest of the list is out of the range of exp.

    With six equal documents and many orders, every document is removed at some point.
    """
    steps, leaf = np.arange(6.0)[::-1], np.array([0, 0, 1, 1, 0, 1], np.int32)
    objective = PLRankObjective(
        np.array(labels), np.array([0, 6]), np.ones(1), n_permutations=20, top=None, random_state=0
    )
    for scores in (1e3 * steps, -1e3 * steps, 1e3 * steps + 1e6):
        value, gradient, slope, curvature = longhand_plrank(objective, scores, leaf, 2)
        # A score of 1e6 is accurate to 1e-10.
        np.testing.assert_allclose(objective.value(scores), value, rtol=1e-12, atol=1e-9)
        np.testing.assert_allclose(objective.derivatives(scores)[0], gradient, atol=1e-9)
        for computed, wanted in zip(objective.leaf_derivatives(scores, leaf, 2), (slope, curvature), strict=True):
            np.testing.assert_allclose(computed, wanted, atol=1e-9)


def test_leaves_with_nearly_a_whole_list_have_nonnegative_curvature(rng: np.random.Generator) -> None:
    """Rounding lifts shares above 1: the last document of each list has a negligible share."""
    lists, size = 200, 12
    scores = rng.normal(size=(lists, size))
    scores[:, -1] = -60.0
    leaf = 2 * np.repeat(np.arange(lists, dtype=np.int32), size) + np.tile(np.arange(size) == size - 1, lists)
    labels, offsets = np.tile(np.arange(size)[::-1].astype(float), lists), np.arange(lists + 1) * size
    objective = PLRankObjective(labels, offsets, np.ones(lists))
    _, curvature = objective.leaf_derivatives(scores.ravel(), leaf.astype(np.int32), 2 * lists)
    assert (curvature >= 0.0).all()
    np.testing.assert_allclose(curvature, 0.0, atol=1e-14)


def test_leaf_sums_are_added_in_list_order(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """No matter which range of lists finishes first."""
    scores, labels, offsets, weights = random_lists(rng, [20] * 60)
    leaf = rng.integers(0, 5, len(scores)).astype(np.int32)
    objective = PLRankObjective(labels, offsets, weights, random_state=0)

    def curvatures(ranges: list[tuple[int, int]]) -> Array:
        monkeypatch.setattr(plrank, "run_over_ranges", lambda call, _: [call(*pair) for pair in ranges])
        return objective.leaf_derivatives(scores, leaf, 5)[1]

    ranges = [(first, first + 10) for first in range(0, 60, 10)]
    np.testing.assert_array_equal(curvatures(ranges), curvatures(ranges[::-1]))


def test_compression_counts_distinct_sets(rng: np.random.Generator) -> None:
    _, labels, offsets, weights = random_lists(rng, [40, 3, 1, 0, 15])
    objective = PLRankObjective(labels, offsets, weights, n_permutations=6, top=5, random_state=3)
    for include_full in (True, False):
        stored = total = 0
        for orders in drawn_orders(objective):
            for j in range(0 if include_full else 1, len(orders[0])):
                stored += len({frozenset(rows[:j]) for rows in orders})
                total += len(orders)
        assert 0.2 < stored / total < 0.9
        assert objective.compression(include_full=include_full) == pytest.approx(stored / total, rel=1e-15)


def test_compression_has_the_right_extremes() -> None:
    offsets, weights = np.array([0, 5]), np.ones(1)
    assert PLRankObjective(np.zeros(5), offsets, weights).compression() == 1.0
    assert PLRankObjective(np.arange(5.0), offsets, weights, n_permutations=4).compression() == 0.25
    assert PLRankObjective(np.zeros(1), np.array([0, 1]), weights, n_permutations=4).compression() == 1.0


def test_random_state_determines_the_orders(rng: np.random.Generator) -> None:
    scores, labels, offsets, weights = random_lists(rng, [30, 30])
    before = np.random.get_state()[1].copy()  # noqa: NPY002 - to see that it is left alone

    def value(random_state: Any) -> float:
        return PLRankObjective(labels, offsets, weights, random_state=random_state).value(scores)

    assert value(5) == value(5) == value(np.random.default_rng(5))
    assert value(5) != value(6)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


@pytest.mark.parametrize("number", [0, -1, 1.5, True, None])
def test_bad_n_permutations_is_refused(number: Any) -> None:
    with pytest.raises(ValueError, match="n_permutations must be a whole number of at least 1, got"):
        PLRankObjective(np.zeros(2), np.array([0, 2]), np.ones(1), n_permutations=number)


def test_bad_top_is_refused() -> None:
    with pytest.raises(ValueError, match="top must be a whole number of at least 1, or None, got 0"):
        PLRankObjective(np.zeros(2), np.array([0, 2]), np.ones(1), top=0)


# Losses on grades


def ideal_dcg(grades: Array) -> float:
    return math.fsum((2.0**grade - 1.0) / math.log2(2.0 + place) for place, grade in enumerate(sorted(grades)[::-1]))


def normalised(grades: Array) -> Array:
    ideal = ideal_dcg(grades)
    return (2.0**grades - 1.0) / ideal if ideal else 0.0 * grades


def cosine_loss(s: Array, gains: Array) -> float:
    lengths = math.hypot(*s) * math.hypot(*gains)
    return 0.0 if not math.hypot(*gains) else 1.0 - (float(s @ gains) / lengths if lengths else 0.0)


def kl(p: Array, s: Array) -> float:
    q = softmax(s)
    return math.fsum(x * math.log(x / y) for x, y in zip(p, q, strict=True) if x > 0.0)


def kl_of_masses(g: Array, s: Array) -> float:
    return float(g.sum()) * kl(g / g.sum(), s) if g.any() else 0.0


# The loss of one non-empty list.
LONGHAND = {
    "mart": lambda s, r: math.fsum((s - r) ** 2) / 2,
    "mart-gain": lambda s, r: math.fsum((s - (2.0**r - 1.0)) ** 2) / 2,
    "c-mart": lambda s, r: math.fsum((s - normalised(r)) ** 2) / 2,
    "cosmart": lambda s, r: cosine_loss(s, 2.0**r - 1.0),
    "c-cosmart": lambda s, r: math.hypot(*normalised(r)) * cosine_loss(s, normalised(r)),
    "klmart": lambda s, r: kl(softmax(2.0**r - 1.0), s),
    "c-klmart": lambda s, r: kl_of_masses(normalised(r), s),
}
SIZES = [5, 1, 0, 12, 3, 0]
each_objective = pytest.mark.parametrize("name", GRADE_OBJECTIVES)
# By default `partition` is less exact than the differences and identities below.
OPTIONS: dict[str, dict[str, Any]] = {"plrank": {"random_state": 0}, "partition": {"tol": 1e-13}}
EVERY: dict[str, Any] = {name: partial(kind, **OPTIONS.get(name, {})) for name, kind in OBJECTIVES.items()}
every_objective = pytest.mark.parametrize("name", EVERY)


def test_every_objective_has_a_formula_here() -> None:
    assert GRADE_OBJECTIVES.keys() == LONGHAND.keys()
    assert all(objective.name == name for name, objective in GRADE_OBJECTIVES.items())


@each_objective
def test_value_matches_the_formula(name: str, rng: np.random.Generator) -> None:
    scores, labels, offsets, weights = random_lists(rng, SIZES)
    labels[offsets[4] : offsets[5]] = 0.0  # nothing relevant
    wanted = math.fsum(
        weight * LONGHAND[name](scores[begin:end], labels[begin:end])
        for weight, begin, end in zip(weights, offsets, offsets[1:], strict=False)
        if end > begin
    )
    assert GRADE_OBJECTIVES[name](labels, offsets, weights).value(scores) == pytest.approx(wanted, rel=1e-12)


@every_objective
def test_gradient_matches_finite_differences(name: str, rng: np.random.Generator) -> None:
    scores, labels, offsets, weights = random_lists(rng, SIZES)
    objective = EVERY[name](labels, offsets, weights)
    wanted = slopes_by_differences(objective, scores, np.eye(len(scores)))
    # Squared gains are up to 1e3, which scales the error of the differences.
    np.testing.assert_allclose(objective.derivatives(scores)[0], wanted, rtol=1e-7, atol=1e-7)


def hessian_by_differences(objective: Objective, scores: Array) -> Array:
    step = 1e-5
    return np.array(
        [
            (objective.derivatives(scores + step * v)[0] - objective.derivatives(scores - step * v)[0]) / (2 * step)
            for v in np.eye(len(scores))
        ]
    )


@pytest.mark.parametrize("name", [name for name in GRADE_OBJECTIVES if "cos" not in name])
def test_hessian_is_exact(name: str, rng: np.random.Generator) -> None:
    scores, labels, offsets, weights = random_lists(rng, SIZES)
    objective = GRADE_OBJECTIVES[name](labels, offsets, weights)
    hessian = objective.derivatives(scores)[1]
    np.testing.assert_allclose(hessian, np.diag(hessian_by_differences(objective, scores)), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", ["cosmart", "c-cosmart"])
def test_cosine_hessian_is_a_tight_bound(name: str, rng: np.random.Generator) -> None:
    """No direction has more curvature, and at a cosine of 1 / sqrt(3) one has as much."""
    labels, offsets, weights = np.array([2.0, 1.0, 0.0, 3.0]), np.array([0, 4]), np.array([1.5])
    objective = GRADE_OBJECTIVES[name](labels, offsets, weights)
    across = np.array([0.0, 0.0, 1.0, 0.0])  # the document without gain
    attained = objective.direction + math.sqrt(2.0) * across
    for scores in (*rng.normal(size=(20, 4)), attained):
        largest = np.linalg.eigvalsh(hessian_by_differences(objective, scores)).max()
        bound = objective.derivatives(scores)[1]
        assert np.ptp(bound) == 0.0
        assert largest <= bound[0] * (1.0 + 1e-8)  # error of the differences
    assert largest == pytest.approx(bound[0], rel=1e-8)


@pytest.mark.parametrize("name", [name for name, kind in OBJECTIVES.items() if kind.has_newton_leaves])
def test_leaves_match_finite_differences(name: str, rng: np.random.Generator) -> None:
    scores, labels, offsets, weights = random_lists(rng, SIZES)
    objective = EVERY[name](np.minimum(labels, 2.0), offsets, weights)
    assert_leaves_match_differences(objective, scores, rng.integers(0, 3, len(scores)).astype(np.int32), 4)


def test_which_objectives_have_newton_leaves() -> None:
    assert {name for name, kind in OBJECTIVES.items() if not kind.has_newton_leaves} == {
        "cosmart", "c-cosmart", "lower_bound",
    }  # fmt: skip


@every_objective
@given(lists=ragged_lists())
def test_derivatives_are_finite_and_curvature_is_nonnegative(name: str, lists: Any) -> None:
    scores, labels, offsets = lists
    objective = EVERY[name](np.clip(labels, 0.0, 31.0), offsets, np.ones(len(offsets) - 1))
    gradient, hessian = objective.derivatives(scores)
    assert np.isfinite(objective.value(scores))
    assert np.isfinite(gradient).all()
    assert np.isfinite(hessian).all()
    assert (hessian >= 0.0).all()
    if objective.has_newton_leaves:
        leaf = np.arange(len(scores), dtype=np.int32) % 3
        slope, curvature = objective.leaf_derivatives(scores, leaf, 3)
        assert slope.dtype == curvature.dtype == np.float64
        # Slopes of leaves round as numbers of size 1 do, also where a tier far above the rest has a tiny gradient.
        rounding = 1e-11 * np.abs(gradient).sum() + 1e-15 * len(scores)
        np.testing.assert_allclose(slope, np.bincount(leaf, gradient, 3), rtol=1e-11, atol=rounding)
        assert (curvature >= -1e-14 * (1 + len(scores))).all()  # rounding; the trainer does not move such leaves


@every_objective
def test_list_of_weight_two_counts_as_two_lists(name: str, rng: np.random.Generator) -> None:
    scores, _, offsets, _ = random_lists(rng, [8])
    labels = np.array([4.0, 3.0, 2.5, 2.0, 1.5, 1.0, 0.5, 0.0])  # without ties, which are broken at random
    heavy = EVERY[name](labels, offsets, np.array([2.0]))
    twice = EVERY[name](np.tile(labels, 2), np.array([0, 8, 16]), np.ones(2))
    both = np.tile(scores, 2)
    assert heavy.value(scores) == pytest.approx(twice.value(both), rel=1e-14)
    for one, two in zip(heavy.derivatives(scores), twice.derivatives(both), strict=True):
        np.testing.assert_allclose(one, two[:8] + two[8:], rtol=1e-13)
    if heavy.has_newton_leaves:
        leaf = np.arange(8, dtype=np.int32) % 3
        one_leaf, two_leaf = heavy.leaf_derivatives(scores, leaf, 3), twice.leaf_derivatives(both, np.tile(leaf, 2), 3)
        np.testing.assert_allclose(one_leaf, two_leaf, rtol=1e-12, atol=1e-14)


@every_objective
def test_results_do_not_depend_on_timing(name: str, rng: np.random.Generator) -> None:
    """Every run gives the same bits; other numbers of threads only change the order of the sums over lists."""
    scores, labels, offsets, weights = random_lists(rng, [50] * 2000)
    leaf = rng.integers(0, 31, len(scores)).astype(np.int32)
    objective = EVERY[name](labels, offsets, weights)

    def results(threads: int) -> list[Any]:
        set_num_threads(threads)
        found = [objective.value(scores), *objective.derivatives(scores)]
        return found + list(objective.leaf_derivatives(scores, leaf, 31) if objective.has_newton_leaves else ())

    try:
        for threads in (1, 2, 3):
            runs = [results(threads) for _ in range(3)]
            for run in runs[1:]:
                for one, other in zip(runs[0], run, strict=True):
                    np.testing.assert_array_equal(one, other)
            if threads == 1:
                alone = runs[0]
            for one, other in zip(alone, runs[0], strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-12)
    finally:
        set_num_threads(None)


@every_objective
@pytest.mark.parametrize("sizes", [[], [0], [0, 0], [1], [1, 0, 1]])
def test_lists_with_nothing_to_rank_have_no_loss(name: str, sizes: list[int], rng: np.random.Generator) -> None:
    scores, labels, offsets, weights = random_lists(rng, sizes)
    objective = EVERY[name](labels, offsets, weights)
    gradient, hessian = objective.derivatives(scores)
    assert gradient.shape == hessian.shape == scores.shape
    if objective.compares_items:
        assert objective.value(np.abs(scores)) == pytest.approx(0.0, abs=1e-15)
        np.testing.assert_allclose(objective.derivatives(np.abs(scores))[0], 0.0, atol=1e-15)
    if objective.has_newton_leaves:
        slope, curvature = objective.leaf_derivatives(scores, np.zeros(len(scores), np.int32), 2)
        assert slope.shape == curvature.shape == (2,)
        assert slope.dtype == curvature.dtype == np.float64


@pytest.mark.parametrize("name", ["c-mart", "cosmart", "c-cosmart", "c-klmart"])
def test_lists_without_a_relevant_document_follow_the_definition(name: str, rng: np.random.Generator) -> None:
    """g = 0 is the regression target; the other objectives have no loss."""
    scores = rng.normal(size=4)
    objective = GRADE_OBJECTIVES[name](np.zeros(4), np.array([0, 4]), np.ones(1))
    gradient, _ = objective.derivatives(scores)
    np.testing.assert_array_equal(gradient, scores if name == "c-mart" else np.zeros(4))


def test_starts_match_the_definition() -> None:
    labels, offsets = np.array([3.0, 0.0, 1.0, 0.0]), np.array([0, 2, 4])
    starts = {name: objective(labels, offsets, np.ones(2)).start() for name, objective in GRADE_OBJECTIVES.items()}
    assert starts == {
        "mart": 1.0, "mart-gain": 2.0, "c-mart": 0.5, "cosmart": 1.0, "c-cosmart": 1.0, "klmart": 0.0, "c-klmart": 0.0,
    }  # fmt: skip
    assert PLRankObjective(labels, offsets, np.ones(2)).start() == 0.0
    assert GRADE_OBJECTIVES["mart"](np.zeros(0), np.zeros(1, np.int64), np.zeros(0)).start() == 0.0
    # Weighted like lists: the second one counts three times.
    assert GRADE_OBJECTIVES["mart"](labels, offsets, np.array([1.0, 3.0])).start() == 0.75


def test_cosine_start_has_a_gradient_and_zero_has_none() -> None:
    objective = GRADE_OBJECTIVES["cosmart"](np.array([2.0, 0.0]), np.array([0, 2]), np.ones(1))
    gradient, hessian = objective.derivatives(np.ones(2))
    assert gradient[0] < 0.0 < gradient[1]
    assert (hessian > 0.0).all()
    assert objective.value(np.zeros(2)) == 1.0
    np.testing.assert_array_equal(objective.derivatives(np.zeros(2))[0], 0.0)


@each_objective
@pytest.mark.parametrize("labels", [[-1.0, 0.0], [0.0, 61.0]])
def test_labels_that_are_not_grades_are_refused(name: str, labels: list[float]) -> None:
    with pytest.raises(ValueError, match=f"labels must be grades from 0 to 60 for the objective '{name}', got"):
        GRADE_OBJECTIVES[name](np.array(labels), np.array([0, 2]), np.ones(1))


# Consistency with NDCG: a query whose documents are graded (2, 3, 2) or (3, 0, 0), and one graded (1, 0) or (0, 3).

GRADINGS = {
    "three": ([(0.7, (2.0, 3.0, 2.0)), (0.3, (3.0, 0.0, 0.0))], (0, 1, 2)),
    "two": ([(0.6, (1.0, 0.0)), (0.4, (0.0, 3.0))], (0, 1)),
}


def best_order(name: str, gradings: list[tuple[float, tuple[float, ...]]]) -> tuple[int, ...]:
    """The order of the scores that minimise the mean loss over the gradings."""
    size = len(gradings[0][1])
    labels = np.array([grades for _, grades in gradings]).ravel()
    offsets = np.arange(len(gradings) + 1) * size
    objective = GRADE_OBJECTIVES[name](labels, offsets, np.array([p for p, _ in gradings]))

    def value_and_gradient(scores: Array) -> tuple[float, Array]:
        everywhere = np.tile(scores, len(gradings))
        return objective.value(everywhere), objective.derivatives(everywhere)[0].reshape(-1, size).sum(axis=0)

    start = np.full(size, objective.start())
    found = minimize(value_and_gradient, start, jac=True, tol=1e-10)
    assert np.abs(found.jac).max() < 1e-6
    assert np.diff(np.sort(found.x)).min() > 1e-2  # far above the error of the minimiser
    return tuple(np.argsort(-found.x))


def mean_ndcg(order: tuple[int, ...], gradings: list[tuple[float, tuple[float, ...]]]) -> float:
    return math.fsum(
        p * math.fsum(normalised(np.array(grades))[d] / math.log2(2.0 + place) for place, d in enumerate(order))
        for p, grades in gradings
    )


@pytest.mark.parametrize(("gradings", "ideal"), GRADINGS.values(), ids=GRADINGS)
def test_consistent_forms_find_the_best_ranking(gradings: Any, ideal: tuple[int, ...]) -> None:
    assert max(itertools.permutations(range(len(ideal))), key=lambda order: mean_ndcg(order, gradings)) == ideal
    for name in ("c-mart", "c-cosmart", "c-klmart"):
        assert best_order(name, gradings) == ideal


@pytest.mark.parametrize(
    ("name", "query"), [("mart", "two"), ("mart-gain", "three"), ("cosmart", "three"), ("klmart", "three")]
)
def test_plain_forms_miss_the_best_ranking(name: str, query: str) -> None:
    gradings, ideal = GRADINGS[query]
    assert best_order(name, gradings) != ideal


def test_lower_bound_without_torch_agrees_with_the_loss(rng):
    from plackett.losses.loss_objective import LossObjective

    labels, offsets, weights = rng.integers(0, 3, 30).astype(float), np.array([0, 7, 7, 8, 30]), rng.uniform(0.5, 2, 4)
    scores = 3.0 * rng.standard_normal(30)
    ours, loss = (
        kind(labels, offsets, weights) for kind in (LowerBoundObjective, partial(LossObjective, "lower_bound"))
    )
    assert ours.value(scores) == pytest.approx(loss.value(scores), rel=1e-12)
    for found, expected in zip(ours.derivatives(scores), loss.derivatives(scores), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", ["cosmart", "c-cosmart"])
@pytest.mark.parametrize("size", [0.0, 1e-300, 1e-158, 1e-141, 1e-139, 1e-100])
def test_cosine_of_tiny_scores_has_finite_derivatives(name: str, size: float) -> None:
    objective = GRADE_OBJECTIVES[name](np.array([0.0, 1.0]), np.array([0, 2]), np.ones(1))
    for derivative in objective.derivatives(np.array([size, 0.0])):
        assert np.isfinite(derivative).all()
        assert derivative.any() or size < 1e-140
