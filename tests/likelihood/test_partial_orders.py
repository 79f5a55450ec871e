"""The likelihood of partial orders against enumeration, 30-digit arithmetic, the likelihood of tiers and identities."""

import itertools
import math
from decimal import Decimal, localcontext

import mpmath as mp
import numpy as np
import pytest
from partial_order_cases import all_enumerated, enumerated, many_graphs, random_graph, random_series_parallel

import plackett
from plackett import partial_order_derivatives, partial_order_log_likelihood
from plackett.errors import AccuracyWarning
from plackett.likelihood.partial_orders.order_evaluation import Sampler, evaluate_orders, sample_times
from plackett.likelihood.partial_orders.order_structure import prepare_orders

CASES = many_graphs(np.random.default_rng(0), 2500, [1, 2, 3, 4, 5, 6, 6, 6, 7, 7, 8], spread=1.5)


@pytest.fixture(scope="module")
def truth():
    return all_enumerated(*CASES)


@pytest.mark.parametrize("method", ["auto", "exact", "down-sets"])
def test_exact_methods_agree_with_enumeration(method, truth):
    scores, edges, offsets = CASES
    found = partial_order_derivatives(scores, edges, offsets=offsets, method=method)
    np.testing.assert_allclose(found.value, truth[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.gradient, truth[1], rtol=0, atol=1e-12)
    assert not found.standard_error.any()
    assert not found.gradient_standard_error.any()
    used = set(found.method)
    assert used == ({"none", "down-sets"} if method == "down-sets" else {"none", "forest", "tiers", "down-sets"})
    values = partial_order_log_likelihood(scores, edges, offsets=offsets, method=method).value
    np.testing.assert_allclose(values, found.value, rtol=0, atol=1e-12)


def test_trees_agree_with_enumeration(truth):
    scores, edges, offsets = CASES
    checked = 0
    for b in range(250):
        first, last = offsets[b], offsets[b + 1]
        graph = edges[(edges[:, 0] >= first) & (edges[:, 0] < last)] - first
        try:
            found = partial_order_derivatives(scores[first:last], graph, method="trees")
        except ValueError:
            continue  # no tree
        checked += found.method[0] == "trees"
        np.testing.assert_allclose(found.value, truth[0][b], rtol=0, atol=1e-11)
        np.testing.assert_allclose(found.gradient, truth[1][first:last], rtol=0, atol=1e-11)
    assert checked > 120


def test_series_parallel_orders_agree_with_enumeration():
    rng = np.random.default_rng(16)
    used = 0
    for n in (3, 4, 5, 6, 7, 7, 8, 8, 8) * 3:
        scores = rng.normal(0.0, 2.0, n)
        edges = random_series_parallel(rng, rng.permutation(n).tolist(), bool(rng.integers(2)))
        found = partial_order_derivatives(scores, edges, method="series-parallel")
        value, gradient = enumerated(scores, edges)
        np.testing.assert_allclose(found.value, value, rtol=0, atol=1e-11)
        np.testing.assert_allclose(found.gradient, gradient, rtol=0, atol=1e-11)
        used += found.method[0] == "series-parallel"
    assert used > 20
    fence = [(0, 1), (2, 1), (2, 3)]  # the smallest order that is not series-parallel
    with pytest.raises(ValueError, match=r'method="series-parallel" cannot evaluate the graph of list 0'):
        partial_order_derivatives(np.zeros(4), fence, method="series-parallel")


@pytest.mark.parametrize("spread", [5.0, 15.0, 60.0])
def test_nested_integrals_are_exact_for_scores_far_apart(spread):
    """Parts may come and go within times that are 10^-20 and less of those of others."""
    rng = np.random.default_rng(18)
    fence = [(0, 1), (2, 1), (2, 3), (4, 3), (4, 5)]
    for method in ("series-parallel", "series-parallel", "trees", "trees"):
        in_series = random_series_parallel(rng, rng.permutation(6).tolist(), True)
        edges = fence if method == "trees" else in_series
        scores = rng.normal(0.0, spread, 6)
        found = partial_order_derivatives(scores, edges, method=method)
        exact = partial_order_derivatives(scores, edges, method="down-sets")
        np.testing.assert_allclose(found.value, exact.value, rtol=1e-14, atol=1e-11)
        np.testing.assert_allclose(found.gradient, exact.gradient, rtol=0, atol=1e-11)


def test_large_series_parallel_orders_are_exact():
    """Diamonds of nine items above one item: each has 130 down-sets, so that three have more than two million."""
    rng = np.random.default_rng(17)

    def diamonds(count):
        last = 9 * count
        edges = [(9 * d, 9 * d + k) for d in range(count) for k in range(1, 8)]
        edges += [(9 * d + k, 9 * d + 8) for d in range(count) for k in range(1, 8)]
        return np.array([*edges, *((9 * d + 8, last) for d in range(count))])

    for count in (1, 2):
        scores = rng.normal(0.0, 1.0, 9 * count + 1)
        found = partial_order_derivatives(scores, diamonds(count), method="series-parallel")
        exact = partial_order_derivatives(scores, diamonds(count), method="down-sets")
        np.testing.assert_allclose(found.value, exact.value, rtol=0, atol=1e-11)
        np.testing.assert_allclose(found.gradient, exact.gradient, rtol=0, atol=1e-11)
    scores = rng.normal(0.0, 1.0, 28)
    found = partial_order_derivatives(scores, diamonds(3))
    assert found.method[0] == "series-parallel"
    assert found.gradient.sum() == pytest.approx(0.0, abs=1e-11)
    sampled = partial_order_derivatives(scores, diamonds(3), method="sampling", random_state=0)
    assert abs(found.value[0] - sampled.value[0]) < 4 * sampled.standard_error[0]
    assert (np.abs(found.gradient - sampled.gradient) < 5 * sampled.gradient_standard_error).all()
    moved = partial_order_derivatives(scores + 3.7, diamonds(3))  # other nodes
    np.testing.assert_allclose(moved.value, found.value, rtol=0, atol=1e-11)
    np.testing.assert_allclose(moved.gradient, found.gradient, rtol=0, atol=1e-11)


def test_sampled_values_and_gradients_are_off_by_their_standard_errors(truth):
    """4 standard errors of 32 groups are exceeded by 4 in 10,000 (Student's t, 31 degrees); 2 by 5.4%."""
    scores, edges, offsets = (CASES[0][: CASES[2][400]], CASES[1], CASES[2][:401])
    edges = edges[edges[:, 0] < offsets[-1]]
    found = partial_order_derivatives(scores, edges, offsets=offsets, method="sampling", samples=1024, random_state=1)
    for value, error, exact in (
        (found.value, found.standard_error, truth[0][:400]),
        (found.gradient, found.gradient_standard_error, truth[1][: offsets[-1]]),
    ):
        sampled = error > 1e-9  # where all orders have the same weight, the estimate is exact up to rounding
        np.testing.assert_allclose(value[~sampled], exact[~sampled], rtol=0, atol=1e-8)
        z = (value - exact)[sampled] / error[sampled]
        assert np.mean(np.abs(z) > 4.0) < 0.004
        assert 0.92 < np.mean(np.abs(z) < 2.0) < 0.97
    assert (found.effective_samples[found.method == "sampling"] <= 1024.0 + 1e-6).all()
    assert np.isinf(found.effective_samples[found.method == "none"]).all()


def test_random_graphs_of_twenty_items_by_samples_and_down_sets():
    scores, edges, offsets = many_graphs(np.random.default_rng(2), 12, [20, 25], spread=1.0)
    exact = partial_order_derivatives(scores, edges, offsets=offsets, method="exact")
    found = partial_order_derivatives(scores, edges, offsets=offsets, method="sampling", random_state=3)
    assert np.abs((found.value - exact.value) / np.maximum(found.standard_error, 1e-9)).max() < 4.0
    error = np.abs(found.gradient - exact.gradient) / np.maximum(found.gradient_standard_error, 1e-6)
    assert error.max() < 5.0  # 270 items: 4 is exceeded with a probability of 10%, 5 with 1%
    assert np.linalg.norm(found.gradient - exact.gradient) < 0.02 * np.linalg.norm(exact.gradient)


def test_forest_of_100000_items_agrees_with_30_digits():
    rng = np.random.default_rng(4)
    items = 100_000
    scores = rng.normal(0.0, 3.0, items)
    parents = np.array([-1, *(int(rng.integers(max(0, i - 50), i)) for i in range(1, items))])
    names = rng.permutation(items)
    edges = np.stack([names[parents[1:]], names[1:]], 1)
    found = partial_order_derivatives(scores[np.argsort(names)], edges)
    assert found.method[0] == "forest"
    with localcontext(prec=30):
        worth = [Decimal(x).exp() for x in scores.tolist()]
        subtree = list(worth)
        for i in range(items - 1, 0, -1):
            subtree[parents[i]] += subtree[i]
        value = sum(map(Decimal, scores.tolist())) - math.prod(subtree).ln()
        waited = [1 / subtree[0]]
        for i in range(1, items):
            waited.append(waited[parents[i]] + 1 / subtree[i])
        gradient = np.array([float(1 - worth[i] * waited[i]) for i in range(items)])
        assert abs(Decimal(found.value[0]) / value - 1) < 1e-13
    np.testing.assert_allclose(found.gradient[names], gradient, rtol=0, atol=1e-12)


def test_tiers_given_as_graphs_have_the_likelihood_of_tiers():
    rng = np.random.default_rng(5)
    offsets = np.arange(0, 1001, 20)
    scores, labels = rng.normal(0.0, 2.0, 1000), rng.integers(0, 5, 1000)
    edges = [
        (a, b)
        for first, last in itertools.pairwise(offsets)
        for a, b in itertools.permutations(range(first, last), 2)
        if labels[a] > labels[b]
    ]
    found = partial_order_derivatives(scores, rng.permutation(edges), offsets=offsets)
    expected = plackett.partition_derivatives(scores, labels, offsets=offsets)
    assert set(found.method) == {"tiers"}
    np.testing.assert_allclose(found.value, expected.value, rtol=0, atol=1e-11)
    np.testing.assert_allclose(found.gradient, expected.gradient, rtol=0, atol=1e-11)
    sampled = partial_order_derivatives(scores, edges, offsets=offsets, method="sampling", random_state=0)
    assert np.abs((sampled.value - expected.value) / sampled.standard_error).max() < 4.5  # 50 lists


def test_curvature_is_exact_or_an_upper_bound():
    """Trees and tiers give -d2 log P; down-sets and series-parallel orders a bound above it; samples an estimate."""
    rng = np.random.default_rng(6)
    scores, edges, offsets = many_graphs(rng, 60, [4, 6, 7])
    step = 1e-5

    def gradient_at(x):
        return partial_order_derivatives(x, edges, offsets=offsets, method="exact").gradient

    exact = np.empty(len(scores))
    for i in range(int(np.diff(offsets).max())):  # the i-th item of all lists at once: lists are independent
        move = np.zeros(len(scores))
        mine = (offsets[:-1] + i)[offsets[:-1] + i < offsets[1:]]
        move[mine] = step
        exact[mine] = -((gradient_at(scores + move) - gradient_at(scores - move)) / (2 * step))[mine]
    sampler = Sampler(np.random.default_rng(0))
    bound = evaluate_orders(
        prepare_orders(edges, offsets, "down-sets"), scores, derivatives=True, tol=1e-13, sampler=sampler
    )
    assert (bound.curvature >= exact - 1e-8).all()
    drawn = evaluate_orders(
        prepare_orders(edges, offsets, "sampling"), scores, derivatives=True, tol=1e-13, sampler=sampler
    )
    error = np.abs(drawn.curvature - exact)  # of 4,096 samples, of variances whose distribution has long tails
    assert np.median(error) < 0.01
    assert error.max() < 0.3
    mixed = prepare_orders(edges, offsets, "exact")
    known = evaluate_orders(mixed, scores, derivatives=True, tol=1e-13, sampler=sampler)
    simple = np.isin(np.repeat(mixed.methods, np.diff(offsets)), (0, 1, 2))  # none, forest, tiers
    np.testing.assert_allclose(known.curvature[simple], exact[simple], rtol=0, atol=1e-8)
    fence, diamond = [(0, 1), (2, 1), (2, 3), (4, 3)], [(0, 1), (0, 2), (1, 3), (2, 3), (4, 3)]
    for graph, method in ((fence, "trees"), (diamond, "series-parallel")):
        orders = prepare_orders(np.array(graph), np.array([0, 5]), method)
        found = evaluate_orders(orders, scores[:5], derivatives=True, tol=1e-13, sampler=sampler)
        up, down = (
            np.array([partial_order_derivatives(scores[:5] + move, graph).gradient[i] for i, move in enumerate(moves)])
            for moves in (step * np.eye(5), -step * np.eye(5))
        )
        curvature = -(up - down) / (2 * step)
        if method == "trees":
            np.testing.assert_allclose(found.curvature, curvature, rtol=0, atol=1e-8)
        else:
            assert (found.curvature >= curvature).all()


def test_decomposition_changes_nothing():
    """A series of parallel parts, some complex, each inside the last part of the one before."""
    fence = [(0, 1), (2, 1), (2, 3)]  # complex
    below = [(u, v) for u in range(4) for v in (4, 5, 6, 7, 8, 9, 10)]  # all above the rest
    rest = [(4, 6), (4, 7), (5, 6), (5, 7), (4, 8), (5, 8)]  # tiers {4, 5} > {6, 7, 8}, beside the chain 9 > 10
    edges = np.array([*fence, *below, *rest, (9, 10)])
    scores = np.random.default_rng(7).normal(size=11)
    split = partial_order_derivatives(scores, edges)
    whole = partial_order_derivatives(scores, edges, method="down-sets")
    np.testing.assert_allclose(split.value, whole.value, rtol=0, atol=1e-12)
    np.testing.assert_allclose(split.gradient, whole.gradient, rtol=0, atol=1e-12)
    assert split.gradient.sum() == pytest.approx(0.0, abs=1e-12)
    closure = np.concatenate([edges, [(0, 10), (2, 9)], edges[::-1]])  # implied and repeated edges
    again = partial_order_derivatives(scores + 5.0, closure)
    np.testing.assert_allclose(again.value, split.value, rtol=0, atol=1e-12)
    np.testing.assert_allclose(again.gradient, split.gradient, rtol=0, atol=1e-12)


def test_large_tree_agrees_with_samples():
    """A fence of bicliques of 60 items, of far more than a million down-sets."""
    edges, first = [], 0
    for _ in range(10):
        upper, lower = range(first, first + 3), range(first + 3, first + 6)
        edges += [(a, b) for a in upper for b in lower]
        if first:
            edges.append((first, first - 1))
        first += 6
    scores = np.random.default_rng(8).normal(size=60)
    found = partial_order_derivatives(scores, edges)
    assert found.method[0] == "trees"
    sampled = partial_order_derivatives(scores, edges, method="sampling", samples=20_000, random_state=0)
    assert abs(found.value[0] - sampled.value[0]) < 4 * sampled.standard_error[0]
    assert (np.abs(found.gradient - sampled.gradient) < 5 * sampled.gradient_standard_error).all()
    assert found.gradient.sum() == pytest.approx(0.0, abs=1e-10)


def test_graph_beyond_all_exact_methods_is_sampled():
    rng = np.random.default_rng(9)
    edges = random_graph(rng, 150, 0.02)
    with pytest.warns(AccuracyWarning, match=r"sampled value of list 0 rests on few orders \(\d+ effective samples\)"):
        found = partial_order_derivatives(rng.normal(size=150), edges, random_state=0, samples=512)
    assert found.method[0] == "sampling"
    assert found.standard_error[0] > 0.0
    assert (found.gradient_standard_error > 0.0).sum() > 40
    with pytest.raises(ValueError, match=r'method="exact" cannot evaluate the graph of list 0.*1,000,000 down-sets'):
        partial_order_log_likelihood(np.zeros(150), edges, method="exact")


@pytest.mark.parametrize("spread", [30.0, 500.0, 1e30])
@pytest.mark.parametrize("method", ["auto", "down-sets", "sampling"])
def test_extreme_scores_give_finite_derivatives(spread, method):
    edges = [(0, 1), (2, 1), (2, 3), (4, 3), (4, 5), (5, 6), (0, 6)]
    scores = spread * np.array([0.0, 1.0, -1.0, 0.5, -0.5, 0.2, 0.9])
    found = partial_order_derivatives(scores, edges, method=method, random_state=0)
    assert np.isfinite(found.value).all()
    assert np.isfinite(found.gradient).all()
    if method == "auto" and spread == 30.0:
        with mp.workdps(30):
            total = mp.mpf(0)
            for order in itertools.permutations(range(7)):
                if all(order.index(a) < order.index(b) for a, b in edges):
                    worths = [mp.e ** mp.mpf(scores[i]) for i in order]
                    total += mp.fprod(worths[k] / mp.fsum(worths[k:]) for k in range(7))
            assert found.value[0] == pytest.approx(float(mp.log(total)), rel=1e-13)


def test_samples_repeat_with_their_seed_on_any_number_of_threads():
    scores, edges, offsets = many_graphs(np.random.default_rng(10), 40, [6, 8])
    options = {"offsets": offsets, "method": "sampling", "samples": 4000}
    one = partial_order_derivatives(scores, edges, random_state=1, **options)
    plackett.set_num_threads(3)
    try:
        same = partial_order_derivatives(scores, edges, random_state=1, **options)
    finally:
        plackett.set_num_threads(None)
    np.testing.assert_array_equal(one.value, same.value)
    np.testing.assert_array_equal(one.gradient, same.gradient)
    assert (one.value != partial_order_derivatives(scores, edges, random_state=2, **options).value).any()


def test_persistent_chains_estimate_means_and_products():
    scores, edges, offsets = many_graphs(np.random.default_rng(11), 10, [6])
    blocks = prepare_orders(edges, offsets, "sampling").sampled
    exact = partial_order_derivatives(scores, edges, offsets=offsets).gradient[blocks.items]
    sampler = Sampler(np.random.default_rng(0), samples=256)
    sizes = np.diff(blocks.starts)
    square_starts = np.concatenate(([0], np.cumsum(sizes**2)))
    means, products = [], []
    for _ in range(40):
        mean, _, product = sample_times(blocks, scores[blocks.items], sampler, products=square_starts)
        means.append(mean.mean(axis=0))
        products.append(product)
    np.testing.assert_allclose(1.0 - np.mean(means, axis=0), exact, rtol=0, atol=0.06)  # 10,240 samples
    first = np.mean(products, axis=0)[: sizes[0] ** 2].reshape(sizes[0], sizes[0])
    assert (np.tril(first, -1) == 0.0).all()  # the upper triangle holds them
    mean = np.mean(means, axis=0)[: sizes[0]]
    items, step = blocks.items[: sizes[0]], 1e-5
    for i in range(sizes[0]):
        for j in range(i, sizes[0]):
            move = np.zeros(len(scores))
            move[items[j]] = step
            up, down = (
                partial_order_derivatives(scores + s * move, edges, offsets=offsets).gradient[items[i]] for s in (1, -1)
            )
            # Louis: -d2 log P = diag(E[x]) - Cov[x], x = exp(w) T
            expected = (i == j) * mean[i] - (first[i, j] - mean[i] * mean[j])
            assert -(up - down) / (2 * step) == pytest.approx(expected, abs=0.12)


def test_cycles_are_shown_or_merged():
    scores = np.random.default_rng(12).normal(size=5)
    edges = [(0, 1), (1, 2), (2, 0), (2, 3), (4, 0)]
    with pytest.raises(
        ValueError, match=r"edges must not form a cycle, got (0 > 1 > 2 > 0|1 > 2 > 0 > 1|2 > 0 > 1 > 2)"
    ):
        partial_order_log_likelihood(scores, edges)
    merged = partial_order_log_likelihood(scores, edges, cycles="merge").value
    tiers = plackett.partition_log_likelihood(scores, np.array([2.0, 2.0, 2.0, 1.0, 3.0]))
    np.testing.assert_allclose(merged, tiers, rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="edges must join different items, got 1 > 1 in edge 1"):
        partial_order_log_likelihood(scores, [(0, 1), (1, 1)])
    alone = partial_order_log_likelihood(scores, [(0, 1), (1, 1)], cycles="merge").value
    np.testing.assert_allclose(alone, partial_order_log_likelihood(scores, [(0, 1)]).value, rtol=0, atol=1e-15)


def test_empty_graphs_and_lists_say_nothing():
    found = partial_order_derivatives(np.zeros(3), [], offsets=[0, 2, 2, 3])
    assert found.value.tolist() == [0.0, 0.0, 0.0]
    assert found.gradient.tolist() == [0.0, 0.0, 0.0]
    assert found.method.tolist() == ["none"] * 3
    assert partial_order_derivatives(np.zeros(0), [], offsets=[0]).value.shape == (0,)


@pytest.mark.parametrize(
    ("edges", "options", "message"),
    [
        ([(0, 4)], {}, "edges must hold item numbers from 0 to 3, got 4 in edge 0"),
        ([(0, -1)], {}, "edges must hold item numbers from 0 to 3, got -1"),
        ([(0, 1), (1, 2)], {"offsets": [0, 2, 4]}, "items of the same list, got 1 of list 0 and 2 of list 1 in edge 1"),
        ([0, 1], {}, r"edges must have the shape \(edges, 2\)"),
        ([(0.5, 1)], {}, "edges must hold whole numbers"),
        ([(0, 1)], {"method": "fast"}, "method must be one of 'auto', 'exact'"),
        ([(0, 1)], {"samples": 0}, "samples must be a whole number of at least 1"),
        ([(0, 1)], {"tol": 2.0}, "tol must be a number from"),
        ([(0, 1)], {"cycles": "drop"}, "cycles must be one of 'error', 'merge'"),
        ([(0, 1), (0, 2), (3, 1), (3, 2), (0, 3)], {"method": "trees", "offsets": [0, 4]}, None),
    ],
)
def test_bad_arguments_are_named(edges, options, message):
    if message is None:
        partial_order_log_likelihood(np.zeros(4), edges, **options)
        return
    with pytest.raises(ValueError, match=message):
        partial_order_log_likelihood(np.zeros(4), edges, **options)


def test_scores_that_are_not_finite_are_named():
    with pytest.raises(ValueError, match=r"scores must be finite .* got nan at item 1"):
        partial_order_log_likelihood(np.array([0.0, np.nan]), [(0, 1)])
    with pytest.raises(ValueError, match="scores must be one-dimensional"):
        partial_order_log_likelihood(np.zeros((2, 2)), [(0, 1)])


def test_tensors_give_differentiable_values():
    torch = pytest.importorskip("torch")
    scores, edges, offsets = many_graphs(np.random.default_rng(13), 20, [3, 5, 6])
    expected = partial_order_derivatives(scores, edges, offsets=offsets)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        leaf = torch.tensor(scores, dtype=dtype, requires_grad=True)
        found = partial_order_log_likelihood(leaf, torch.tensor(edges), offsets=torch.tensor(offsets))
        assert found.value.dtype == dtype
        np.testing.assert_allclose(found.value.detach().numpy(), expected.value, rtol=0, atol=tolerance)
        found.value.sum().backward()
        np.testing.assert_allclose(leaf.grad.numpy(), expected.gradient, rtol=0, atol=tolerance)
    single = partial_order_log_likelihood(scores.astype(np.float32), edges, offsets=offsets)
    assert single.value.dtype == np.float32
    with pytest.raises(TypeError, match="takes NumPy arrays, got a torch tensor"):
        partial_order_derivatives(leaf, edges)
