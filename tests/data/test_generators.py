"""Data generators follow their stated distributions, and equal seeds give equal data.

Statistical tests have fixed seeds. With a random seed each would fail with a probability of about 1e-6, unless stated
otherwise: z-scores are below 4.9, p-values above 1e-6.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import plackett
from plackett.data.generators import (
    MULTILABEL_SHAPES,
    make_clicks,
    make_graded_lists,
    make_multilabel,
    make_multilabel_like,
    make_partitions,
    make_tiered_lists,
)
from plackett.data.generators.tagged_row_kernels import draw_rows

LIMIT_Z, LIMIT_P = 4.9, 1e-6


def small_multilabel(**options):
    return make_multilabel(
        **{"n_rows": 3000, "n_features": 2000, "n_labels": 200, "labels_per_row": 3, "features_per_row": 40, **options}
    )


# Calls each generator with a seed and returns its arrays.
GENERATORS = {
    "tiered": lambda seed: arrays_of_lists(make_tiered_lists(5, random_state=seed)),
    "partitions": lambda seed: arrays_of_partitions(*make_partitions(5, 30, random_state=seed)),
    "graded": lambda seed: arrays_of_lists(*make_graded_lists(5, random_state=seed)),
    "multilabel": lambda seed: arrays_of_multilabel(small_multilabel(n_rows=50, random_state=seed)),
    "clicks": lambda seed: arrays_of_clicks(
        *make_clicks(
            make_tiered_lists(5, random_state=0), policy="plackett-luce", trust=0.2, shown=9, random_state=seed
        )
    ),
}


def arrays_of_lists(data, *truth):
    return [data.X, data.y, data.qid, data.offsets, *truth]


def arrays_of_clicks(clicks, truth):
    return arrays_of_lists(clicks, truth.position, truth.examined, truth.log_policy)


def arrays_of_partitions(ballots, utilities):
    return [ballots.items, ballots.labels, ballots.offsets, utilities]


def arrays_of_multilabel(data):
    return [part for matrix in (data.X, data.Y) for part in (matrix.data, matrix.indices, matrix.indptr)]


def all_equal(some, others):
    return all(np.array_equal(a, b) for a, b in zip(some, others, strict=True))


@pytest.mark.parametrize("name", GENERATORS)
def test_equal_seeds_give_equal_data(name):
    generate = GENERATORS[name]
    assert all_equal(generate(7), generate(7))
    assert all_equal(generate(7), generate(np.random.default_rng(7)))
    assert not all_equal(generate(7), generate(8))
    assert not all_equal(generate(None), generate(None))


def test_threads_do_not_change_the_data():
    before = arrays_of_multilabel(small_multilabel(random_state=3))
    try:
        plackett.set_num_threads(1)
        alone = arrays_of_multilabel(small_multilabel(random_state=3))
        plackett.set_num_threads(3)
        shared = arrays_of_multilabel(small_multilabel(random_state=3))
    finally:
        plackett.set_num_threads(None)
    assert all_equal(before, alone)
    assert all_equal(before, shared)


def assert_wins_follow(difference, won):
    """Check P(won) = 1 / (1 + exp(-difference)), on average and in slope."""
    p = 1.0 / (1.0 + np.exp(-difference))
    for weight in (np.ones(len(p)), difference, np.abs(difference) - np.abs(difference).mean()):
        z = np.sum(weight * (won - p)) / math.sqrt(np.sum(weight**2 * p * (1.0 - p)))
        assert abs(z) < LIMIT_Z


def test_tiered_lists_of_two_items_follow_the_logistic_law():
    coefficients = np.array([1.5, -0.7, 0.3])
    data = make_tiered_lists(20_000, tier_sizes=(1, 1), coefficients=coefficients, random_state=1)
    scores = (data.X @ coefficients).reshape(-1, 2)
    assert_wins_follow(scores[:, 0] - scores[:, 1], data.y[::2] > data.y[1::2])


# Partitions


def probabilities_of_labels(utilities, n_tiers, max_top):
    """Enumerate all orders and all places to cut."""
    n = len(utilities)
    worths = np.exp(utilities)
    cuts = list(itertools.combinations(range(1, min(max_top, n - 1) + 1), n_tiers - 1))
    result = {}
    for order in itertools.permutations(range(n)):
        p = math.prod(worths[order[i]] / sum(worths[j] for j in order[i:]) for i in range(n))
        for places in cuts:
            labels = [0] * n
            for place, item in enumerate(order):
                labels[item] = sum(cut > place for cut in places)
            result[tuple(labels)] = result.get(tuple(labels), 0.0) + p / len(cuts)
    return result


@pytest.mark.parametrize(("n_items", "n_tiers", "max_top"), [(4, 3, 500), (4, 2, 2), (5, 4, 3), (3, 3, 2)])
def test_partition_probabilities_agree_with_enumeration(n_items, n_tiers, max_top):
    ballots, utilities = make_partitions(20_000, n_items, n_tiers=n_tiers, max_top=max_top, random_state=2)
    expected = probabilities_of_labels(utilities, n_tiers, max_top)
    seen = dict.fromkeys(expected, 0)
    for labels in ballots.labels.astype(int).reshape(-1, n_items).tolist():
        seen[tuple(labels)] += 1
    assert stats.chisquare(list(seen.values()), 20_000 * np.array(list(expected.values()))).pvalue > LIMIT_P


@given(st.data())
def test_partitions_have_the_requested_tiers(data):
    n_items = data.draw(st.integers(2, 40))
    max_top = data.draw(st.integers(1, 50))
    n_tiers = data.draw(st.integers(2, min(max_top, n_items - 1) + 1))
    n_rankings = data.draw(st.integers(0, 5))
    ballots, utilities = make_partitions(n_rankings, n_items, n_tiers=n_tiers, max_top=max_top, random_state=0)
    assert len(ballots) == n_rankings
    assert len(utilities) == n_items
    assert ballots.items.reshape(n_rankings, n_items).tolist() == [list(range(n_items))] * n_rankings
    for labels in ballots.labels.reshape(n_rankings, n_items):
        assert sorted(set(labels.tolist())) == list(range(n_tiers))
        assert np.sum(labels > 0) <= max_top


def test_partitions_of_many_items_follow_the_worths():
    """There are more rankings than are drawn at once, each with its own noise and cuts."""
    ballots, utilities = make_partitions(20, 100_000, random_state=4)
    labels = ballots.labels.reshape(20, -1)
    assert len({row.tobytes() for row in labels}) == 20
    assert (labels > 0).sum(axis=1).max() <= 500
    assert stats.kstest(utilities, stats.uniform(0.0, math.log(100_000)).cdf).pvalue > LIMIT_P
    # So few of so many items are ranked that they are almost draws with replacement, weighted by worth.
    ranked = utilities[np.nonzero(labels)[1]]
    expected = np.average(utilities, weights=np.exp(utilities))
    assert ranked.mean() == pytest.approx(expected, abs=0.1)  # about 7,000 draws with a deviation of 1, and "nearly"


# Graded lists


@pytest.fixture(scope="module")
def graded():
    return make_graded_lists(3000, n_features=16, random_state=5)


def test_graded_lists_are_shaped_like_mslr(graded):
    data, _ = graded
    sizes = np.diff(data.offsets)
    assert abs(sizes.mean() - 120.0) < LIMIT_Z * sizes.std() / math.sqrt(len(sizes))
    assert sizes.min() >= 1
    assert sizes.max() <= 900
    assert 85 < np.median(sizes) < 105
    counts = np.array([np.add.reduceat(data.y == grade, data.offsets[:-1]) for grade in range(5)])
    assert np.array_equal(counts.sum(axis=0), sizes)
    for shares, expected in zip(counts / sizes, (0.52, 0.32, 0.13, 0.02, 0.01), strict=True):
        assert abs(shares.mean() - expected) < LIMIT_Z * shares.std() / math.sqrt(len(shares))
        # Var = E[p (1 - p)] / n + Var[p] for the share p of a list: those of a Dirichlet with concentration 6.
        variance = expected * (1 - expected) * np.mean((6.0 / sizes + 1.0) / 7.0)
        assert shares.var() == pytest.approx(variance, rel=0.25)  # a variance of 3,000 heavy-tailed shares


def test_true_scores_of_graded_lists_follow_the_formula(graded):
    data, truth = graded
    for row in range(0, len(truth), 1009):
        x = data.X[row]
        expected = 5 * x[0] + 2 * x[0] * x[3] - (math.log(1 + x[1]) - 1) ** 2 / 2 + math.log(1 + x[2])
        if x[5] > 1:
            expected += 0.2 * x[4]
        assert truth[row] == pytest.approx(expected, rel=1e-12)


def test_graded_lists_have_seven_kinds_of_feature(graded):
    data, _ = graded
    for j in range(16):
        x, first = data.X[:, j], np.repeat(data.X[data.offsets[:-1], j], np.diff(data.offsets))
        kind = j % 7
        assert (x >= 0).all() or kind == 6
        assert (kind == 0) == bool((x < 1).all())
        assert (kind in (2, 3)) == bool((x == np.floor(x)).all())
        assert (kind == 3) == (set(np.unique(x)) == {0.0, 1.0})
        assert (kind == 5) == np.array_equal(x, first)
        if kind in (2, 4):
            assert np.mean(x == 0) == pytest.approx(0.5, abs=0.02)  # rows of a list correlate: no binomial bound
    z = np.stack([np.log(data.X[:, 0] / (1 - data.X[:, 0])), np.log(data.X[:, 8]) / 2])
    # Sample moments of 3,000 lists with a variance of 0.16 between them: 0.4 / sqrt(3000) is a standard error.
    np.testing.assert_allclose(z.mean(axis=1), 0.0, atol=LIMIT_Z * 0.4 / math.sqrt(3000))
    np.testing.assert_allclose(np.cov(z), [[1.0, 0.25], [0.25, 1.0]], atol=0.05)


def test_true_scores_maximise_the_likelihood_of_the_grades(graded):
    """If scores are multiplied by 1 + h, or shifted along a feature, the expected likelihood has its maximum at h = 0,
    so the mean slope over lists is 0.
    """
    data, truth = graded
    gradient = plackett.partition_derivatives(truth, data.y, offsets=data.offsets).gradient
    for direction in (truth, data.X[:, 0], np.log(data.X[:, 1]), data.X[:, 6]):
        slopes = np.add.reduceat(gradient * direction, data.offsets[:-1])
        assert abs(slopes.mean()) < LIMIT_Z * slopes.std() / math.sqrt(len(slopes))


def test_single_precision_is_the_same_data_rounded():
    double, truth = make_graded_lists(10, random_state=0)
    single, same_truth = make_graded_lists(10, dtype=np.float32, random_state=0)
    assert single.X.dtype == np.float32
    assert np.array_equal(single.X, double.X.astype(np.float32))
    assert np.array_equal(single.y, double.y)
    assert np.array_equal(same_truth, truth)


# Clicks


@pytest.fixture(scope="module")
def shown_lists():
    """2,000 lists of four items with grades 0 to 3, in random order."""
    return make_tiered_lists(2000, tier_sizes=(1, 1, 1, 1), random_state=8)


def assert_rate(hits, probability):
    n = len(hits)
    assert n > 0
    assert abs(hits.mean() - probability) <= LIMIT_Z * math.sqrt(probability * (1 - probability) / n)


@pytest.mark.parametrize(("eta", "noise"), [(None, 0.1), (0.0, 0.0), (2.0, 0.3), (0.5, 1.0)])
def test_clicks_follow_the_position_model(shown_lists, eta, noise):
    clicks, truth = make_clicks(shown_lists, eta=eta, noise=noise, sessions=3, random_state=9)
    places = truth.position
    grades = np.tile(shown_lists.y, 3)
    for place, grade in itertools.product(range(1, 5), range(4)):
        attraction = noise + (1 - noise) * (2**grade - 1) / 7
        examined = place ** -(1.0 if eta is None else eta)
        assert_rate(clicks.y[(places == place) & (grades == grade)], examined * attraction)


def test_clicks_follow_the_cascade_model(shown_lists):
    noise = 0.2
    # Shown worst first: grade g is at position g + 1, and is reached if no worse item was clicked.
    clicks, truth = make_clicks(
        shown_lists, scores=-shown_lists.y, model="cascade", noise=noise, sessions=5, random_state=10
    )
    places = truth.position
    assert np.array_equal(truth.examined, truth.examination == 1.0)
    assert np.add.reduceat(clicks.y, clicks.offsets[:-1]).max() == 1
    reached = 1.0
    for place in range(1, 5):
        attraction = noise + (1 - noise) * (2 ** (place - 1) - 1) / 7
        assert_rate(clicks.y[places == place], reached * attraction)
        reached *= 1 - attraction


def test_positions_follow_the_scores_and_ties_are_random():
    data = make_tiered_lists(3000, tier_sizes=(1, 2), random_state=11)
    places = make_clicks(data, scores=data.y, random_state=12)[1].position
    assert set(places[data.y == 1]) == {1}
    first_of_tied = np.array([np.flatnonzero(y == 0)[0] for y in data.y.reshape(-1, 3)]) + data.offsets[:-1]
    assert_rate(places[first_of_tied] == 2, 0.5)
    places = make_clicks(data, random_state=12)[1].position
    for place in (1, 2, 3):
        assert_rate(places[::3] == place, 1 / 3)


def test_sessions_contain_the_shown_items():
    data = make_graded_lists(6, mean_length=8, n_features=7, random_state=13)[0]
    clicks, truth = make_clicks(data, shown=5, sessions=4, random_state=14)
    places = truth.position
    assert len(clicks) == 24
    assert np.array_equal(clicks.X, data.X[clicks.ids])
    for session in range(24):
        rows = slice(clicks.offsets[session], clicks.offsets[session + 1])
        length = np.diff(data.offsets)[session % 6]
        assert set(clicks.qid[rows]) == {session}
        assert set(data.qid[clicks.ids[rows]]) == {data.qid[data.offsets[session % 6]]}
        assert sorted(places[rows]) == list(range(1, min(5, length) + 1))
        assert list(clicks.ids[rows]) == sorted(set(clicks.ids[rows]))


def test_clicks_keep_ids_and_accept_lists_without_grades(shown_lists):
    names = np.array([f"item {i}" for i in range(len(shown_lists.y))])
    data = type(shown_lists)(shown_lists.X, np.zeros(len(names)), shown_lists.qid, shown_lists.offsets, names)
    clicks, truth = make_clicks(data, eta=0.0, noise=0.25, shown=2, random_state=15)
    assert set(clicks.ids) <= set(names)
    assert_rate(clicks.y, 0.25)
    assert truth.position.max() == 2


def test_examination_trust_and_the_truth_of_clicks(shown_lists):
    looks = [0.9, 0.5, 0.0, 0.2]
    clicks, truth = make_clicks(shown_lists, examination=looks, trust=0.4, noise=0.1, sessions=6, random_state=17)
    assert not (clicks.y.astype(bool) & ~truth.examined).any()
    assert np.array_equal(truth.grade, shown_lists.y[truth.row])
    assert np.array_equal(truth.query[clicks.qid], np.searchsorted(shown_lists.offsets, truth.row, "right") - 1)
    assert np.array_equal(truth.examination, np.array(looks)[truth.position - 1])
    for place in range(1, 5):
        here = truth.position == place
        assert_rate(truth.examined[here], looks[place - 1])
        for grade in range(4):
            chosen = here & (truth.grade == grade)
            attraction = 0.1 + 0.9 * (2**grade - 1) / 7
            assert np.allclose(truth.attraction[chosen], attraction)
            assert_rate(clicks.y[chosen], looks[place - 1] * (attraction + (1 - attraction) * 0.4 / place))


def test_logging_policy_draws_orders_and_knows_their_probability(shown_lists):
    scores = np.tile([1.0, -0.5, 0.25, 2.0], len(shown_lists))
    for shown in (None, 2):
        _, truth = make_clicks(
            shown_lists, scores=scores, policy="plackett-luce", temperature=2.0, shown=shown, random_state=18
        )
        orders = np.argsort(truth.position.reshape(-1, shown or 4), axis=1)
        items = np.take_along_axis(truth.row.reshape(-1, shown or 4) % 4, orders, 1)
        for order in itertools.permutations(range(4), shown or 4):
            left, p = list(range(4)), 1.0
            for item in order:
                worths = np.exp(scores[left] / 2.0)
                p *= worths[left.index(item)] / worths.sum()
                left.remove(item)
            is_this = (items == order).all(1)
            assert_rate(is_this, p)
            assert np.allclose(truth.log_policy[is_this], np.log(p))
    assert make_clicks(shown_lists, random_state=0)[1].log_policy is None


# Multi-label data


def law(n, exponent):
    """The integral of x^-exponent from r to r + 1, for r = 1..n, as shares."""
    ends = np.arange(1.0, n + 2)
    antiderivative = np.log(ends) if exponent == 1 else ends ** (1 - exponent) / (1 - exponent)
    steps = np.diff(antiderivative)
    return steps / steps.sum()


@pytest.mark.parametrize("exponent", [0.0, 0.6, 1.0, 1.7])
def test_labels_are_the_first_places_of_plackett_luce(exponent):
    """Two of four labels are drawn: check all six pairs, with labels identified by frequency."""
    n_rows, p = 20_000, law(4, exponent)
    offsets = 2 * np.arange(n_rows + 1)
    labels = np.empty(2 * n_rows, np.int32)
    no_features = np.zeros(n_rows + 1, np.int64)
    draw_rows(
        0, n_rows, np.random.default_rng(16).integers(2**64, size=n_rows, dtype=np.uint64), offsets, no_features,
        np.arange(4, dtype=np.int32), np.arange(4, dtype=np.int32), np.zeros((4, 8), np.int32), exponent, 0.1,
        labels, np.empty(0, np.int32), np.empty(0, np.float32),
    )  # fmt: skip
    pairs = list(itertools.permutations(range(4), 2))
    seen = [np.sum((labels[::2] == i) & (labels[1::2] == j)) for i, j in pairs]
    expected = [p[i] * p[j] / (1 - p[i]) for i, j in pairs]
    assert stats.chisquare(seen, n_rows * np.array(expected)).pvalue > LIMIT_P


def test_words_come_from_signatures_or_background():
    n_rows, n_features, signal = 20_000, 20, 0.4
    features, counts = np.empty(n_rows, np.int32), np.empty(n_rows, np.float32)
    signature = np.array([[3, 3, 3, 3, 7, 7, 11, 0]], np.int32)
    one_each = np.arange(n_rows + 1)
    draw_rows(
        0, n_rows, np.random.default_rng(17).integers(2**64, size=n_rows, dtype=np.uint64), one_each, one_each,
        np.zeros(1, np.int32), np.arange(n_features, dtype=np.int32), signature, 1.0, signal,
        np.empty(n_rows, np.int32), features, counts,
    )  # fmt: skip
    from_label = np.bincount(signature[0], minlength=n_features) / 8
    expected = signal * from_label + (1 - signal) * law(n_features, 1.0)
    assert stats.chisquare(np.bincount(features, minlength=n_features), n_rows * expected).pvalue > LIMIT_P
    assert set(counts) == {1.0}


@pytest.mark.parametrize("exponent", [0.8, 1.0, 1.3])
def test_label_frequencies_follow_a_power_law(exponent):
    data = small_multilabel(
        n_rows=100_000, n_labels=1000, labels_per_row=1, features_per_row=1, exponent=exponent, random_state=18
    )
    frequency = np.sort(np.bincount(data.Y.indices, minlength=1000))[::-1]
    ranks = np.unique(np.geomspace(5, 100, 20).astype(int))
    slope = np.polyfit(np.log(ranks), np.log(frequency[ranks - 1]), 1)[0]
    # The counts are 100 to 5,000, errors of 1 to 10 % over a range of log 20; the law itself is off by 1 / (2 rank).
    assert slope == pytest.approx(-exponent, abs=0.06)


def test_multilabel_data_has_the_requested_sizes():
    data = small_multilabel(n_rows=20_000, random_state=19)
    for matrix, mean, n_columns in ((data.Y, 3, 200), (data.X, 40, 2000)):
        sizes = np.diff(matrix.indptr)
        assert matrix.shape == (20_000, n_columns)
        assert sizes.min() >= 1
        # 1 + Poisson((mean - 1) G), G of variance 1/2.
        variance = (mean - 1) + (mean - 1) ** 2 / 2
        assert abs(sizes.mean() - mean) < LIMIT_Z * math.sqrt(variance / len(sizes))
        assert sizes.var() == pytest.approx(variance, rel=0.1)  # five standard errors of the variance of a gamma
        assert matrix.dtype == np.float32
        assert matrix.indices.dtype == np.int32
        row_of = np.repeat(np.arange(20_000), sizes)
        assert (np.diff(row_of.astype(np.int64) * n_columns + matrix.indices) > 0).all()  # sorted, none twice
    assert (data.Y.data == 1).all()


def test_values_are_tf_idf():
    data = small_multilabel(n_rows=500, random_state=20)
    rows_with = np.bincount(data.X.indices, minlength=2000)
    rarity = 1 + np.log(501 / (1 + rows_with))
    most = 0
    for row in range(500):
        entries = slice(data.X.indptr[row], data.X.indptr[row + 1])
        values = data.X.data[entries].astype(float)
        assert np.sum(values**2) == pytest.approx(1.0, rel=1e-5)  # float32
        tf = values / rarity[data.X.indices[entries]]
        counts = np.exp(tf / tf.min() - 1)  # the last word drawn occurs once
        np.testing.assert_allclose(counts, np.rint(counts), rtol=1e-4)  # float32, and an exponential of it
        most = max(most, counts.max())
    assert most > 3


def advantage_of_centroids(data):
    """Precision at 3 of centroids, the simplest linear classifier, minus that of the most frequent labels."""
    train, test = data.select(np.arange(3000)), data.select(np.arange(3000, 4000))
    truth = test.Y.toarray()
    frequency = np.bincount(train.Y.indices, minlength=200)
    centroids = (train.Y.T @ train.X).toarray() / np.maximum(frequency, 1)[:, None]
    scores = test.X @ (centroids - train.X.mean(axis=0)).T * np.sqrt(frequency)

    def precision(values):
        return np.take_along_axis(truth, np.argsort(-values, axis=1)[:, :3], axis=1).mean()

    return precision(scores) - precision(np.broadcast_to(frequency, truth.shape))


def test_labels_can_be_learned_from_features():
    assert advantage_of_centroids(small_multilabel(n_rows=4000, random_state=21)) > 0.1
    assert advantage_of_centroids(small_multilabel(n_rows=4000, signal=0.0, random_state=21)) < 0.0


def test_wiki10_has_its_published_shape():
    train, test = make_multilabel_like("wiki10-31k", random_state=22)
    assert (train.X.shape, train.Y.shape) == ((14_146, 101_938), (14_146, 30_938))
    assert (test.X.shape, test.Y.shape) == ((6_616, 101_938), (6_616, 30_938))
    labels = np.diff(train.Y.indptr)
    assert abs(labels.mean() - 18.64) < LIMIT_Z * labels.std() / math.sqrt(len(labels))
    assert np.bincount(train.Y.indices).max() / len(train) == pytest.approx(0.65, abs=0.05)


def test_delicious_has_its_published_shape():
    shape = MULTILABEL_SHAPES["delicious-200k"]
    assert shape[:5] == (196_606, 100_095, 782_585, 205_443, 75.54)
    # The average number of rows per label of the same table.
    assert shape.n_train * shape.labels_per_row / shape.n_labels == pytest.approx(72.29, abs=0.005)  # as printed


# Bad input

LISTS = make_tiered_lists(3, random_state=0)
SIZES = {"n_rows": 5, "n_features": 100, "n_labels": 100, "labels_per_row": 2, "features_per_row": 5}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_tiered_lists(2.5), "n_lists must be a whole number, got 2.5"),
        (lambda: make_partitions(-1, 5), "n_rankings must be at least 0, got -1"),
        (lambda: make_partitions(True, 5), "n_rankings must be a whole number, got True"),
        (lambda: make_partitions(3, 1), "n_items must be at least 2, got 1"),
        (lambda: make_partitions(3, 3), "n_tiers must be at most 3, got 4"),
        (lambda: make_partitions(3, 30, max_top=2), "n_tiers must be at most 3, got 4"),
        (lambda: make_partitions(3, 30, max_top=0), "max_top must be at least 1, got 0"),
        (lambda: make_partitions(3, 30, n_tiers=1), "n_tiers must be at least 2, got 1"),
        (lambda: make_graded_lists(-3), "n_lists must be at least 0, got -3"),
        (lambda: make_graded_lists(n_features=6), "n_features must be at least 7, got 6"),
        (lambda: make_graded_lists(mean_length=0.5), "mean_length must be at least 1, got 0.5"),
        (lambda: make_graded_lists(mean_length="ten"), "mean_length must be a number, got 'ten'"),
        (lambda: make_graded_lists(dtype=np.int32), "dtype must be float64 or float32, got int32"),
        (lambda: make_multilabel(**{**SIZES, "labels_per_row": 11}), "labels_per_row must be at most 10, got 11"),
        (lambda: make_multilabel(**{**SIZES, "features_per_row": 0}), "features_per_row must be at least 1, got 0"),
        (lambda: make_multilabel(**{**SIZES, "n_labels": 5}), "n_labels must be at least 10, got 5"),
        (lambda: make_multilabel(**SIZES, exponent=math.nan), "exponent must be finite, got nan"),
        (lambda: make_multilabel(**SIZES, exponent=3), "exponent must be at most 2, got 3"),
        (lambda: make_multilabel(**SIZES, signal=1), "signal must be at most 0.9, got 1"),
        (lambda: make_multilabel_like("wiki"), "shape must be one of wiki10-31k, delicious-200k, got 'wiki'"),
        (lambda: make_clicks(LISTS, model="dbn"), "model must be one of 'position', 'cascade', got 'dbn'"),
        (lambda: make_clicks(LISTS, policy="best"), "policy must be one of 'sorted', 'plackett-luce', got 'best'"),
        (lambda: make_clicks(LISTS, temperature=0.0), "temperature must be above 0, got 0.0"),
        (lambda: make_clicks(LISTS, trust=2.0), "trust must be at most 1, got 2.0"),
        (lambda: make_clicks(LISTS, eta=1.0, examination=[1.0]), "at most one of eta and examination may be given"),
        (lambda: make_clicks(LISTS, examination=[2.0]), "examination must hold a probability for each position"),
        (lambda: make_clicks(LISTS, model="cascade", eta=1.0), "eta must be None with the cascade model, got 1.0"),
        (lambda: make_clicks(LISTS, eta=-1), "eta must be at least 0, got -1"),
        (lambda: make_clicks(LISTS, noise=1.1), "noise must be at most 1, got 1.1"),
        (lambda: make_clicks(LISTS, shown=0), "shown must be at least 1, got 0"),
        (lambda: make_clicks(LISTS, sessions=0), "sessions must be at least 1, got 0"),
        (lambda: make_clicks(LISTS, scores=[1.0]), r"scores must hold one value for each of the 60 rows, got shape"),
        (lambda: make_clicks(LISTS, scores=np.full(60, np.nan)), "scores must be finite, got nan at position 0"),
        (
            lambda: make_clicks(type(LISTS)(LISTS.X, LISTS.y - 1, LISTS.qid, LISTS.offsets)),
            "data.y must hold grades of at least 0, got -1",
        ),
    ],
)
def test_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_empty_data_can_be_generated():
    assert len(make_partitions(0, 5)[0]) == 0
    assert len(make_graded_lists(0)[0]) == 0
    assert len(make_multilabel(**{**SIZES, "n_rows": 0})) == 0
    assert len(make_clicks(make_tiered_lists(0))[0]) == 0
