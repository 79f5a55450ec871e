"""Metrics of rows with few labels among many: napkinXC, explicit formulas, forms of scores and edge cases."""

import math

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix, random_array

from plackett import metrics

ROWS, LABELS = 60, 40


@pytest.fixture
def problem(rng):
    """Labels, some rows without any, and scores without ties."""
    Y = (rng.random((ROWS, LABELS)) < 0.08).astype(float)
    Y[[0, 7, 59]] = 0.0
    Y[5, :12] = 1.0
    Y[:, -1] = 0.0  # a label that no row has
    scores = rng.permuted(np.linspace(0.1, 1.0, LABELS) * np.ones((ROWS, 1)), axis=1) + 0.31 * Y
    return scores, Y


@pytest.fixture
def weights(problem):
    return metrics.inverse_propensity(problem[1])


OURS = {
    "precision_at_k": lambda s, Y, _, k: metrics.multilabel_precision(s, Y, k=k),
    "recall_at_k": lambda s, Y, _, k: metrics.multilabel_recall(s, Y, k=k),
    "ndcg_at_k": lambda s, Y, _, k: metrics.multilabel_ndcg(s, Y, k=k),
    "psprecision_at_k": lambda s, Y, q, k: metrics.propensity_scored_precision(s, Y, q, k=k),
    "psndcg_at_k": lambda s, Y, q, k: metrics.propensity_scored_ndcg(s, Y, q, k=k),
    "coverage_at_k": lambda s, Y, _, k: metrics.coverage(s, Y, k=k),
}


def sparse_scores(scores, rng):
    """A few entries per row; one row has none and one has fewer than k."""
    kept = scores * (rng.random(scores.shape) < 0.3)
    kept[3] = 0.0
    kept[4, 2:] = 0.0
    return csr_matrix(kept)


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("name", OURS)
def test_matches_napkinxc(name, form, problem, weights, rng):
    """Rows without labels count as 0 in means and add nothing to ratios of sums."""
    peer = getattr(pytest.importorskip("napkinxc.metrics"), name)
    scores, Y = problem
    if form == "sparse":
        scores = sparse_scores(scores, rng)
    arguments = [csr_matrix(Y), scores]
    theirs = peer(*arguments, *([weights] if name.startswith("ps") else []), k=15)
    for k in (1, 2, 5, 15):
        assert OURS[name](scores, Y, weights, k) == pytest.approx(theirs[k - 1], abs=1e-12)


@pytest.mark.parametrize("preset", metrics.PROPENSITY_PRESETS)
def test_propensities_match_napkinxc(preset, problem):
    peer = pytest.importorskip("napkinxc.metrics").Jain_et_al_inverse_propensity
    a, b = metrics.PROPENSITY_PRESETS[preset]
    expected = peer(problem[1], A=a, B=b)
    np.testing.assert_allclose(metrics.inverse_propensity(problem[1], preset=preset), expected, rtol=1e-13)
    np.testing.assert_allclose(metrics.inverse_propensity(csr_array(problem[1]), a=a, b=b), expected, rtol=1e-13)


def test_presets_match_the_extreme_classification_repository():
    assert metrics.PROPENSITY_PRESETS["Amazon-670K"] == metrics.PROPENSITY_PRESETS["amazon"] == (0.6, 2.6)
    assert metrics.PROPENSITY_PRESETS["WikiLSHTC-325K"] == metrics.PROPENSITY_PRESETS["wikipedia"] == (0.5, 0.4)
    assert metrics.PROPENSITY_PRESETS["default"] == (0.55, 1.5)


@pytest.mark.parametrize("discounted", [False, True])
def test_both_normalisations_match_the_formulas(discounted, problem, weights):
    scores, Y = problem
    metric = metrics.propensity_scored_ndcg if discounted else metrics.propensity_scored_precision
    k = 4
    discounts = [1 / math.log2(i + 2) if discounted else 1.0 for i in range(k)]
    ratios, achieved_sum, best_sum = [], 0.0, 0.0
    for row, labels in zip(scores, Y, strict=True):
        top = sorted(range(LABELS), key=lambda j: -row[j])[:k]
        own = sorted((weights[j] for j in range(LABELS) if labels[j]), reverse=True)[:k]
        achieved = sum(d * weights[j] for d, j in zip(discounts, top, strict=True) if labels[j])
        best = sum(d * w for d, w in zip(discounts, own, strict=False))
        reach = sum(discounts[: len(own)]) if discounted else 1.0
        ratios.append(achieved / best if own else math.nan)
        if own:
            achieved_sum += achieved / reach
            best_sum += best / reach
    assert metric(scores, Y, weights, k=k) == pytest.approx(achieved_sum / best_sum, abs=1e-12)
    values = metric(scores, Y, weights, k=k, normalisation="rows", empty="skip", reduction="none")
    np.testing.assert_allclose(values, ratios, rtol=1e-12)
    rows = {empty: metric(scores, Y, weights, k=k, normalisation="rows", empty=empty) for empty in ("skip", 0, 1)}
    assert rows["skip"] == pytest.approx(np.nanmean(ratios), abs=1e-12)
    assert rows[0] == pytest.approx(np.nansum(ratios) / ROWS, abs=1e-12)
    assert rows[1] == pytest.approx((np.nansum(ratios) + 3) / ROWS, abs=1e-12)
    assert abs(rows["skip"] - achieved_sum / best_sum) > 1e-3  # the two are different numbers


@pytest.mark.parametrize("name", OURS)
def test_every_form_of_scores_gives_the_same_values(name, problem, weights):
    scores, Y = problem
    expected = OURS[name](scores, Y, weights, 5)
    top = np.argsort(-scores, axis=1)[:, :7]
    labels = csr_array(Y)
    pair = (labels.indices, labels.indptr)
    graded = csr_array(Y * 3)
    for given_scores in (scores, csr_array(scores), csr_matrix(scores), top, top.astype(np.int32), scores.tolist()):
        for given_labels in (Y, labels, pair, graded, Y.astype(bool)):
            assert OURS[name](given_scores, given_labels, weights, 5) == pytest.approx(expected, abs=1e-13)
    torch = pytest.importorskip("torch")
    assert OURS[name](torch.tensor(scores), torch.tensor(Y), weights, 5) == pytest.approx(expected, abs=1e-13)
    # 40 evenly spaced scores stay distinct in single precision
    assert OURS[name](scores.astype(np.float32), Y, weights, 5) == pytest.approx(expected, abs=1e-13)


def test_entries_that_are_not_stored_are_not_predicted():
    scores = csr_array(np.array([[0.0, -1.0, 0.0]]))
    Y = np.array([[1, 1, 0]])
    assert metrics.multilabel_precision(scores, Y, k=2) == 0.5
    assert metrics.multilabel_precision(scores.toarray(), Y, k=2) == 0.5  # columns 0 and 2 rank above -1
    assert metrics.multilabel_recall(scores, Y, k=1) == 0.5
    assert metrics.multilabel_precision(np.array([[1, -1]]), Y, k=2) == 0.5
    assert metrics.multilabel_precision(np.array([[-1, -1]]), Y, k=2) == 0.0


def test_equal_scores_rank_the_lower_column_first():
    scores = np.array([[1.0, 2.0, 2.0, 2.0]])
    hits = [metrics.multilabel_precision(scores, np.eye(4)[[column]], k=2) * 2 for column in range(4)]
    assert hits == [0, 1, 1, 0]
    unsorted = csr_array((np.array([2.0, 2.0, 2.0]), np.array([3, 1, 2]), np.array([0, 3])), shape=(1, 4))
    hits = [metrics.multilabel_precision(unsorted, np.eye(4)[[column]], k=2) * 2 for column in range(4)]
    assert hits == [0, 1, 1, 0]


@pytest.mark.parametrize("form", ["dense", "sparse", "top"])
def test_ndcg_to_the_depth_of_the_labels_matches_the_formula(form, problem, rng):
    """DCG over IDCG, both of the first min(k, number of labels) places; rows with k labels or more do not differ."""
    scores, Y = problem
    if form == "sparse":
        scores = sparse_scores(scores, rng)
    dense = scores.toarray() if form == "sparse" else scores
    order = np.argsort(-dense, axis=1, kind="stable")
    given = order if form == "top" else scores
    for k in (1, 3, 12):
        values = []
        for row, labels, ranked in zip(dense, Y, order, strict=True):
            m = min(k, int(labels.sum()))
            gains = [labels[c] * (row[c] > 0) / math.log2(2 + place) for place, c in enumerate(ranked[:m])]
            values.append(sum(gains) / sum(1 / math.log2(2 + place) for place in range(m)) if m else 0.0)
        found = metrics.multilabel_ndcg(given, Y, k=k, depth="labels", reduction="none")
        np.testing.assert_allclose(found, values, rtol=0, atol=1e-12)
        is_long = Y.sum(1) >= k
        assert (found == metrics.multilabel_ndcg(given, Y, k=k, reduction="none"))[is_long].all()
        assert metrics.multilabel_ndcg(given, Y, k=k, depth="labels") == pytest.approx(np.mean(values), abs=1e-12)
    assert metrics.multilabel_ndcg(given, Y, k=12) > metrics.multilabel_ndcg(given, Y, k=12, depth="labels")
    with pytest.raises(ValueError, match="depth must be one of 'k', 'labels', got 'all'"):
        metrics.multilabel_ndcg(given, Y, depth="all")


def test_stored_zeros_and_duplicates_are_not_labels():
    zeros = csr_array((np.array([1.0, 0.0]), np.array([0, 2]), np.array([0, 2])), shape=(1, 3))
    assert metrics.multilabel_recall(np.array([[0]]), zeros, k=1) == 1.0
    twice = csr_array((np.array([1.0, 1.0, 1.0]), np.array([0, 0, 1]), np.array([0, 3])), shape=(1, 3))
    assert metrics.multilabel_recall(np.array([[0]]), twice, k=1) == 0.5
    assert zeros.nnz == 2  # the input is unchanged
    assert twice.nnz == 3


def test_empty_rows_follow_the_empty_option():
    Y, top = np.array([[0, 0], [1, 0]]), np.array([[0], [0]])
    for metric in (metrics.multilabel_precision, metrics.multilabel_ndcg, metrics.multilabel_recall):
        assert [metric(top, Y, k=1, empty=empty) for empty in (0, 1, "skip")] == [0.5, 1.0, 1.0]
    assert np.isnan(metrics.multilabel_ndcg(top, Y, k=1, empty="skip", reduction="none")).tolist() == [True, False]
    assert math.isnan(metrics.propensity_scored_precision(top[:1], Y[:1], [1.0, 1.0], k=1))
    assert math.isnan(metrics.coverage(top[:1], Y[:1], k=1))
    assert math.isnan(metrics.multilabel_precision(np.zeros((0, 3)), np.zeros((0, 3)), k=2))


def test_many_labels_need_no_dense_copy(rng):
    """A dense copy of these rows would take 80 GB."""
    shape = (10_000, 1_000_000)
    scores = random_array(shape, density=2e-5, format="csr", rng=rng)
    Y = random_array(shape, density=3e-6, format="csr", rng=rng)
    Y.data[:] = 1.0
    weights = metrics.inverse_propensity(Y)
    top = np.full((shape[0], 5), -1)
    for i in range(shape[0]):
        row = slice(scores.indptr[i], scores.indptr[i + 1])
        best = scores.indices[row][np.argsort(-scores.data[row])][:5]
        top[i, : len(best)] = best
    for metric in (metrics.propensity_scored_precision, metrics.propensity_scored_ndcg):
        assert metric(scores, Y, weights) == metric(top, Y, weights)


TOP, Y = np.array([[0, 1], [1, 2]]), np.array([[1, 0, 1], [0, 1, 0]])


@pytest.mark.parametrize(
    ("scores", "labels", "options", "message"),
    [
        (np.array([[0.0, np.nan, 1.0], [0.0, 0.0, 0.0]]), Y, {}, "scores must be finite, got nan in row 0"),
        (csr_array([[0.0, 1.0, 1.0], [0.0, np.inf, 0.0]]), Y, {}, "scores must be finite, got inf in row 1"),
        (np.zeros((2, 4)), Y, {}, "scores must have as many columns as Y, 3, got 4"),
        (np.zeros((3, 3)), Y, {}, r"a row for each of the 2 rows of Y, got float64 of shape \(3, 3\)"),
        (np.zeros(3), Y, {}, "scores must be numbers in two dimensions"),
        (np.array([[0, 0], [1, 2]]), Y, {}, r"each at most once in a row, got \[0, 0\] in row 0"),
        (np.array([[0, 1], [1, 3]]), Y, {}, r"scores must name columns of Y, .*got \[1, 3\] in row 1"),
        (TOP, Y, {"k": 3}, "scores must hold at least k = 3 columns in each row, got 2"),
        (TOP, Y, {"k": None}, "k must be a whole number of at least 1, got None"),
        (TOP, Y, {"k": 0}, "k must be a whole number of at least 1"),
        (TOP, -Y, {}, "Y must hold grades of at least 0, got -1"),
        (TOP, Y[0], {}, "Y must be a matrix of numbers or a pair"),
        (TOP, (np.array([0, -1]), np.array([0, 1, 2])), {}, "indices of Y must be at least 0, got -1"),
        (TOP, (np.array([0, 1]), np.array([0, 1, 3])), {}, "offsets of Y must end with the number of items, 2, got 3"),
        (TOP, (1, 2, 3), {}, r"Y must be a matrix or a pair \(indices, offsets\), got 3 values"),
        (TOP, Y, {"empty": "zero"}, "empty must be one of"),
        (TOP, Y, {"reduction": "sum"}, "reduction must be one of"),
    ],
)
def test_bad_input_is_refused(scores, labels, options, message):
    with pytest.raises(ValueError, match=message):
        metrics.multilabel_precision(scores, labels, **{"k": 2, **options})


@pytest.mark.parametrize("metric", [metrics.propensity_scored_precision, metrics.propensity_scored_ndcg])
def test_values_per_row_linearise_a_ratio_of_sums(metric):
    """Their mean is the ratio, and to first order they predict how it changes when a row is left out."""
    rng = np.random.default_rng(3)
    rows, columns = 400, 30
    labels, scores = (rng.random((rows, columns)) < 0.1).astype(float), rng.random((rows, columns))
    inverse = 1.0 + rng.random(columns)
    values = metric(scores, labels, inverse, k=3, reduction="none")
    ratio = metric(scores, labels, inverse, k=3)
    assert values.mean() == pytest.approx(ratio, abs=1e-12)
    for row in (0, 7, 200):
        kept = np.arange(rows) != row
        moved = metric(scores[kept], labels[kept], inverse, k=3)
        # The second-order term is smaller by a factor of the number of rows.
        assert moved - ratio == pytest.approx(-(values[row] - ratio) / rows, abs=20 / rows**2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inverse_propensity": [1.0, 2.0]}, r"a number for each of the 3 labels, got shape \(2,\)"),
        ({"inverse_propensity": [1.0, 0.0, 1.0]}, "inverse_propensity must be finite and above 0, got 0.0 to 1.0"),
        ({"normalisation": "mean"}, "normalisation must be one of 'sums', 'rows', got 'mean'"),
    ],
)
def test_bad_propensities_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        metrics.propensity_scored_precision(TOP, Y, **{"inverse_propensity": [1.0, 1.0, 1.0], "k": 2, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "amazon-1"}, "preset must be one of default, wikipedia, amazon, .*got 'amazon-1'"),
        ({"a": 0.5}, "a and b must be given together, got a=0.5 and b=None"),
        ({"a": 0.5, "b": -1.0}, "a and b must be at least 0, got a=0.5 and b=-1.0"),
        ({"a": 0.5, "b": 1.0, "preset": "amazon"}, "at most one of preset and a, b"),
        ({}, "Y must have at least 3 rows, .*got 2"),
    ],
)
def test_bad_propensity_models_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        metrics.inverse_propensity(Y, **options)


def test_metrics_are_found_by_name(problem, weights):
    scores, labels = problem
    get = metrics.get_metric
    assert get("p@1", multilabel=True)(scores, labels) == metrics.multilabel_precision(scores, labels, k=1)
    assert get("ndcg@5", multilabel=True)(scores, labels) == metrics.multilabel_ndcg(scores, labels, k=5)
    assert get("recall@3", multilabel=True)(scores, labels) == metrics.multilabel_recall(scores, labels, k=3)
    assert get("coverage@3", multilabel=True)(scores, labels) == metrics.coverage(scores, labels, k=3)
    for name, metric in (("psp", metrics.propensity_scored_precision), ("psndcg", metrics.propensity_scored_ndcg)):
        by_name = get(f"{name}@3", multilabel=True, inverse_propensity=weights)
        assert by_name(scores, labels) == metric(scores, labels, weights, k=3)
    with pytest.raises(ValueError, match="psp@3 needs inverse_propensity"):
        get("psp@3", multilabel=True)
    with pytest.raises(ValueError, match=r"metric must be one of p@k, .*psndcg@k, coverage@k, got 'mrr'"):
        get("mrr", multilabel=True)
