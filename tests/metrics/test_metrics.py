"""Ranking metrics: enumeration of all orders, explicit formulas, other libraries and edge cases."""

import itertools
import math
import shutil
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import plackett
from plackett import metrics
from plackett.metrics import METRICS

POSITIONAL = {
    "ndcg": metrics.ndcg,
    "err": metrics.err,
    "map": metrics.average_precision,
    "mrr": metrics.reciprocal_rank,
    "p": metrics.precision,
    "recall": metrics.recall,
}
ALL = {name: metrics.get_metric(name) for name in METRICS}


def gain_of(label, gain):
    return 2.0**label - 1.0 if gain == "exp2" else label


def longhand(name, labels, k, gain="exp2"):
    """The metric of labels in ranked order, place by place."""
    n = len(labels)
    depth = n if k is None else min(k, n)
    relevant = sum(y >= 1 for y in labels)
    hits = [y >= 1 for y in labels]
    if name == "ndcg":
        best = sorted(labels, reverse=True)
        dcg, ideal = (sum(gain_of(y[i], gain) / math.log2(i + 2) for i in range(depth)) for y in (labels, best))
        return dcg / ideal
    if name == "err":
        value, survives = 0.0, 1.0
        for i in range(depth):
            stops = (2.0 ** labels[i] - 1.0) / 16.0
            value += survives * stops / (i + 1)
            survives *= 1.0 - stops
        return value
    if name == "map":
        return sum(sum(hits[: i + 1]) / (i + 1) for i in range(depth) if hits[i]) / relevant
    if name == "mrr":
        return next((1.0 / (i + 1) for i in range(depth) if hits[i]), 0.0)
    return sum(hits[:depth]) / ((k or n) if name == "p" else relevant)


def enumerated(name, scores, labels, k, gain="exp2"):
    """The mean over all orders with non-increasing scores."""
    values = [
        longhand(name, [labels[i] for i in order], k, gain)
        for order in itertools.permutations(range(len(scores)))
        if all(scores[i] >= scores[j] for i, j in itertools.pairwise(order))
    ]
    return math.fsum(values) / len(values)


few_scores = st.lists(st.sampled_from([-1.0, 0.0, 0.5]), min_size=1, max_size=6)


@pytest.mark.parametrize("name", POSITIONAL)
@given(data=st.data())
def test_ties_are_averaged_over_all_orders(name, data):
    scores = data.draw(few_scores)
    n = len(scores)
    labels = data.draw(st.lists(st.integers(0, 4), min_size=n, max_size=n).filter(any))
    k = data.draw(st.sampled_from([None, 1, 2, 3, 5, 9]))
    assert POSITIONAL[name](scores, labels, k=k) == pytest.approx(enumerated(name, scores, labels, k), abs=1e-12)


@given(data=st.data())
def test_ndcg_supports_linear_gain_and_fractional_labels(data):
    scores = data.draw(few_scores)
    n = len(scores)
    labels = data.draw(st.lists(st.sampled_from([0.0, 0.3, 1.0, 2.5]), min_size=n, max_size=n).filter(any))
    for gain in ("linear", "exp2"):
        value = metrics.ndcg(scores, labels, gain=gain, k=3)
        assert value == pytest.approx(enumerated("ndcg", scores, labels, 3, gain), abs=1e-12)


@pytest.mark.parametrize("name", POSITIONAL)
@pytest.mark.parametrize("k", [None, 1, 7, 40, 1000])
@pytest.mark.parametrize("levels", [3, 50, 10**9])
def test_stable_ties_on_longer_lists_match_the_formula(name, k, levels, rng):
    """Lengths chosen so that selection, counting sort and merge sort are all used."""
    for n in (1, 2, 15, 16, 17, 33, 200):
        scores, labels = rng.integers(0, levels, n).astype(float), rng.integers(0, 5, n)
        labels[0] = 1
        ranked = [int(labels[i]) for i in sorted(range(n), key=lambda i: (-scores[i], i))]
        value = POSITIONAL[name](scores, labels, k=k, ties="stable")
        assert value == pytest.approx(longhand(name, ranked, k), abs=1e-12)


@pytest.mark.parametrize("name", POSITIONAL)
def test_average_ties_equal_the_mean_of_random_ties(name, rng):
    """Within 4.5 standard errors of 4,000 draws with a fixed seed: one metric in 150,000 would fail by chance."""
    scores, labels = rng.integers(0, 4, 30).astype(float), rng.integers(0, 3, 30)
    copies = {"scores": np.tile(scores, 4000), "labels": np.tile(labels, 4000), "offsets": np.arange(4001) * 30}
    values = POSITIONAL[name](**copies, k=12, ties="random", random_state=1, reduction="none")
    exact = POSITIONAL[name](scores, labels, k=12)
    assert abs(values.mean() - exact) <= 4.5 * values.std() / math.sqrt(4000) + 1e-12
    again = POSITIONAL[name](**copies, k=12, ties="random", random_state=np.random.default_rng(1), reduction="none")
    np.testing.assert_array_equal(values, again)


@pytest.mark.parametrize("arrangement", ["ascending", "descending", "organ pipe", "constant", "two values"])
def test_every_arrangement_is_fast_and_correct(arrangement):
    """Quadratic selection would not finish here."""
    n = 200_000
    rows = np.arange(n)
    scores = {
        "ascending": rows,
        "descending": -rows,
        "organ pipe": np.minimum(rows, n - rows),
        "constant": np.zeros(n),
        "two values": rows % 2,
    }[arrangement].astype(float)
    labels = (rows % 7 == 0).astype(float)
    order = np.lexsort((rows, -scores))
    expected = labels[order[:10]] @ (1 / np.log2(np.arange(2, 12))) / np.sum(1 / np.log2(np.arange(2, 12)))
    assert metrics.ndcg(scores, labels, k=10, ties="stable") == pytest.approx(expected, abs=1e-12)
    if arrangement == "constant":
        assert metrics.precision(scores, labels, k=10) == pytest.approx(labels.mean(), abs=1e-12)
        # Ten of 200,000 drawn without replacement are independent up to about 10 / 200,000.
        stops = labels.mean() / 2
        independent = sum(stops * (1 - stops) ** i / (i + 1) for i in range(10))
        assert metrics.err(scores, labels, k=10, max_grade=1) == pytest.approx(independent, abs=1e-5)


def test_err_skips_only_negligible_terms(rng):
    """A block deep enough to be cut by Maclaurin's inequality, against the full recurrence."""
    labels = rng.integers(0, 5, 400)
    q = 1.0 - (2.0**labels - 1.0) / 16.0
    means = [1.0] + [0.0] * 400
    for n, keep in enumerate(q, start=1):
        for j in range(n, 0, -1):
            means[j] = ((n - j) * means[j] + j * keep * means[j - 1]) / n
    expected = math.fsum((means[j] - means[j + 1]) / (j + 1) for j in range(400))
    assert metrics.err(np.zeros(400), labels) == pytest.approx(expected, rel=1e-13)


# Kendall's tau and the likelihood


def pairs_longhand(scores, labels):
    """Sums over pairs i < j: agreement of signs, ties in scores, ties in labels."""
    total = tied_scores = tied_labels = 0
    for i, j in itertools.combinations(range(len(scores)), 2):
        x, y = np.sign(scores[i] - scores[j]), np.sign(labels[i] - labels[j])
        total += x * y
        tied_scores += x == 0
        tied_labels += y == 0
    return total, tied_scores, tied_labels


@given(data=st.data())
def test_kendall_matches_the_sum_over_pairs(data):
    n = data.draw(st.integers(2, 40))
    scores = data.draw(st.lists(st.integers(0, 9).map(float), min_size=n, max_size=n))
    labels = data.draw(st.lists(st.integers(0, 4).map(float), min_size=n, max_size=n))
    total, tied_scores, tied_labels = pairs_longhand(scores, labels)
    pairs = n * (n - 1) // 2
    matrix = [[1 if a >= b else -1 for b in scores] for a in scores]
    other = [[1 if a >= b else -1 for b in labels] for a in labels]
    emond_mason = sum(matrix[i][j] * other[i][j] for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
    assert metrics.kendall_tau(scores, labels, variant="x") == pytest.approx(emond_mason, abs=1e-12)
    value = metrics.kendall_tau(scores, labels)
    if pairs == tied_labels:
        assert math.isnan(value)
    elif pairs == tied_scores:
        assert value == 0.0
    else:
        assert value == pytest.approx(total / math.sqrt((pairs - tied_scores) * (pairs - tied_labels)), abs=1e-12)


def test_kendall_matches_scipy(rng):
    from scipy.stats import kendalltau

    for n in (2, 17, 500):
        scores, labels = rng.integers(0, 60, n).astype(float), rng.integers(0, 5, n)
        labels[:2] = 0, 1
        expected = kendalltau(scores, labels).statistic
        if math.isnan(expected):  # all scores equal: scipy gives NaN, we give 0
            expected = 0.0
        assert metrics.kendall_tau(scores, labels) == pytest.approx(expected, abs=1e-12)


def test_constant_scores_have_tau_zero():
    assert metrics.kendall_tau([1.0, 1.0, 1.0], [0, 1, 2]) == 0.0
    assert metrics.kendall_tau([1.0, 1.0, 1.0], [2, 2, 2], variant="x") == 1.0
    assert metrics.kendall_tau([1.0], [1], variant="x", empty=1) == 1.0


def test_log_likelihood_matches_the_likelihood_module(rng):
    scores, labels = rng.standard_normal(12), np.array([2, 0, 1, 1, 0, 0, 1, 1, 1, 0, 3, 0])
    offsets = [0, 6, 9, 9, 12]
    values = metrics.log_likelihood(scores, labels, offsets=offsets, reduction="none")
    expected = plackett.partition_log_likelihood(scores, labels, offsets=offsets)
    np.testing.assert_array_equal(values[[0, 3]], expected[[0, 3]])
    assert np.isnan(values[[1, 2]]).all()  # equal labels, no items
    top = metrics.log_likelihood(scores[:6], labels[:6], k=1)
    assert top == pytest.approx(plackett.partition_log_likelihood(scores[:6], labels[:6], top=1)[0], abs=1e-12)


# Rules shared by all metrics


@pytest.fixture
def ragged(rng):
    sizes = np.array([5, 1, 0, 8, 3, 30])
    scores, labels = rng.integers(0, 6, sizes.sum()).astype(float), rng.integers(0, 4, sizes.sum()).astype(float)
    labels[6:14] = 0.0  # a list without a relevant item
    return scores, labels, sizes


@pytest.mark.parametrize("name", ALL)
def test_every_form_of_lists_gives_the_same_values(name, ragged, rng):
    scores, labels, sizes = ragged
    metric = ALL[name]
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    values = metric(scores, labels, offsets=offsets, reduction="none")
    assert values.dtype == np.float64
    assert values.shape == (6,)
    assert np.isnan(values[[2, 3] if name != "tau-x" else [2]]).all()  # nothing relevant: tau-x is still defined
    one_by_one = [metric(scores[a:b], labels[a:b]) for a, b in itertools.pairwise(offsets)]
    np.testing.assert_allclose(values, one_by_one, rtol=1e-13)
    np.testing.assert_array_equal(metric(scores, labels, group=sizes, reduction="none"), values)

    qid = np.repeat(np.array(["a", "b", "none", "c", "d", "e"]), sizes)
    order = np.argsort(rng.random(len(qid)))
    mixed = metric(scores[order], labels[order], qid=qid[order], reduction="none")
    _, first = np.unique(qid[order], return_index=True)
    names = qid[order][np.sort(first)]
    by_name = dict(zip("ab-cde", values, strict=True))
    np.testing.assert_allclose(mixed, [by_name[n] for n in names], rtol=1e-12)

    where = np.arange(30) < sizes[:, None]
    padded_scores, padded_labels = np.full(where.shape, np.nan), np.full(where.shape, -7.0)
    padded_scores[where], padded_labels[where] = scores, labels
    for mask in ("where", "mask"):
        np.testing.assert_array_equal(metric(padded_scores, padded_labels, reduction="none", **{mask: where}), values)


@pytest.mark.parametrize("name", ALL)
def test_mean_skips_or_fills_lists_without_a_value(name, ragged):
    scores, labels, sizes = ragged
    metric = ALL[name]
    values = metric(scores, labels, group=sizes, reduction="none")
    kept = ~np.isnan(values)
    mean = metric(scores, labels, group=sizes)
    assert type(mean) is float
    assert mean == pytest.approx(values[kept].mean(), abs=1e-13)
    for empty in (0, 1):
        filled = np.where(kept, values, empty)
        assert metric(scores, labels, group=sizes, empty=empty) == pytest.approx(filled.mean(), abs=1e-13)
    weights = np.arange(6.0)
    expected = np.sum((weights * values)[kept]) / weights[kept].sum()
    assert metric(scores, labels, group=sizes, weights=weights) == pytest.approx(expected, abs=1e-13)
    for nothing in (metric([1.0], [0]), metric([], []), metric([], [], offsets=[0])):
        assert type(nothing) is float
        assert math.isnan(nothing)
    assert metric([], [], empty=1) == 1.0


@pytest.mark.parametrize("name", ALL)
def test_values_do_not_depend_on_row_order_dtype_or_threads(name, ragged, rng):
    """Nor on monotone transformations of the scores."""
    scores, labels, sizes = ragged
    metric = ALL[name]
    expected = metric(scores, labels, group=sizes)
    order = np.lexsort((rng.random(len(scores)), np.repeat(np.arange(6), sizes)))
    assert metric(scores[order], labels[order], group=sizes) == pytest.approx(expected, abs=1e-12)
    if name != "log-likelihood":
        assert metric(np.exp(scores) - 1e6, labels, group=sizes) == pytest.approx(expected, abs=1e-12)
    assert metric(scores.astype(np.float32), labels.astype(np.int8), group=sizes) == pytest.approx(expected, abs=1e-6)
    # with single-precision scores the likelihood is computed in single precision
    copies = 3000
    many = [np.tile(scores, copies), np.tile(labels, copies)]
    plackett.set_num_threads(1)
    try:
        alone = metric(*many, group=np.tile(sizes, copies), reduction="none")
    finally:
        plackett.set_num_threads(None)
    np.testing.assert_array_equal(metric(*many, group=np.tile(sizes, copies), reduction="none"), alone)


@pytest.mark.parametrize("name", ALL)
def test_torch_tensors_give_the_same_values(name, ragged):
    torch = pytest.importorskip("torch")
    scores, labels, sizes = ragged
    tensor = torch.tensor(scores, requires_grad=True)
    value = ALL[name](tensor, torch.tensor(labels), group=torch.tensor(sizes))
    assert value == ALL[name](scores, labels, group=sizes)
    half = ALL[name](tensor.bfloat16(), torch.tensor(labels).long(), group=sizes)  # small integers are exact
    assert half == pytest.approx(value, abs=1e-12)


def test_metrics_do_not_load_torch():
    code = "import sys; from plackett import metrics; metrics.ndcg([1.0, 0.0], [0, 1]); print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert result.stdout.strip() == "False"


def test_perfect_worst_and_single_item_rankings():
    labels = [3, 2, 1, 0, 0]
    for metric in (metrics.ndcg, metrics.average_precision, metrics.reciprocal_rank, metrics.recall):
        assert metric([5.0, 4.0, 3.0, 2.0, 1.0], labels) == 1.0
        assert metric([1.0], [1]) == 1.0
    assert metrics.reciprocal_rank([1.0, 2.0, 3.0, 4.0, 5.0], labels, k=2) == 0.0
    assert metrics.precision([1.0], [1], k=5) == 0.2
    assert metrics.ndcg([1e300, -1e300, 0.0], [1, 0, 0]) == 1.0
    assert metrics.average_precision([2.0, 1.0], [1, 2], threshold=2) == 0.5
    assert metrics.ndcg([0.0, 1.0], [959.5, 960.0]) == 1.0


def test_gain_of_tiny_labels_does_not_round_to_zero():
    """2^y - 1 would round to 0, and so would the ideal DCG."""
    assert metrics.ndcg([1.0, 2.0], [1e-20, 0.0]) == pytest.approx(1 / math.log2(3), rel=1e-12)


BAD = {
    "NaN score": ({"scores": [0.0, np.nan, 1.0]}, "scores must be finite.* got nan at item 1"),
    "infinite score": ({"scores": [0.0, 1.0, np.inf]}, "scores must be finite.* got inf at item 2"),
    "NaN label": ({"labels": [0.0, np.nan, 1.0]}, "labels must be finite, got nan at item 1"),
    "infinite label": ({"labels": [0.0, 1.0, np.inf]}, "labels must be finite, got inf at item 2"),
    "shapes": ({"labels": [1, 0]}, r"labels must have the shape of scores, \(3,\), got \(2,\)"),
    "text": ({"labels": ["a", "b", "c"]}, "labels must be real numbers"),
    "two kinds of lists": ({"qid": [1, 1, 2], "group": [3]}, "at most one of offsets, qid and group"),
    "qid with where": ({"qid": [1, 1, 2], "where": np.ones(3, bool)}, "qid belongs to one-dimensional scores"),
    "group with rows": ({"scores": [[1.0]], "labels": [[1]], "group": [1]}, "group belongs to one-dimensional"),
    "three dimensions": ({"scores": np.zeros((1, 1, 1)), "labels": np.zeros((1, 1, 1))}, "scores must have one dim"),
    "reduction": ({"reduction": "sum"}, "reduction must be one of 'mean', 'none', got 'sum'"),
    "empty": ({"empty": 2}, "empty must be one of 'skip', 0, 1.*got 2"),
    "weights": ({"weights": [1.0, 2.0]}, r"weights must hold one value per list, \(1,\), got \(2,\)"),
    "negative weight": ({"weights": [-1.0]}, "weights must be finite and at least 0, got -1.0"),
    "weights unused": ({"weights": [1.0], "reduction": "none"}, "weights must be None"),
}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused(name, case):
    arguments, message = BAD[case]
    given_ = {"scores": [0.5, -0.5, 1.0], "labels": [1, 0, 0], **arguments}
    with pytest.raises(ValueError, match=message):
        ALL[name](given_.pop("scores"), given_.pop("labels"), **given_)


@pytest.mark.parametrize(
    ("metric", "options", "message"),
    [
        ("ndcg", {"k": 0}, "k must be a whole number of at least 1, or None, got 0"),
        ("ndcg", {"k": 1.5}, "k must be a whole number of at least 1, or None, got 1.5"),
        ("err", {"k": True}, "k must be a whole number of at least 1, or None, got True"),
        ("ndcg", {"gain": "cubic"}, "gain must be one of 'exp2', 'linear', got 'cubic'"),
        ("mrr", {"ties": "first"}, "ties must be one of 'average', 'stable', 'random', got 'first'"),
        ("p", {"threshold": math.nan}, "threshold must be a finite number, got nan"),
        ("err", {"max_grade": 0}, "max_grade must be a number above 0 and at most 960, got 0"),
        ("err", {"labels": [5, 0]}, r"labels must be from 0 to 4 \(max_grade\), got 5 at item 0"),
        ("err", {"labels": [1, -1]}, r"labels must be from 0 to 4 \(max_grade\), got -1 at item 1"),
        ("ndcg", {"labels": [1, -1]}, 'labels must be from 0 to 960 for gain="exp2", got -1 at item 1'),
        ("ndcg", {"labels": [1000, 1]}, 'labels must be from 0 to 960 for gain="exp2", got 1000 at item 0'),
        ("ndcg", {"labels": [0, -2], "gain": "linear"}, 'labels must be from 0 to 1e.290 for gain="linear", got -2'),
        ("ndcg", {"labels": [0, -2], "qid": [1, 0]}, "got -2 at item 1"),
        ("tau-b", {"variant": "c"}, "variant must be one of 'b', 'x', got 'c'"),
    ],
)
def test_bad_options_are_refused(metric, options, message):
    given_ = {"labels": [1, 0], **options}
    with pytest.raises(ValueError, match=message):
        ALL[metric]([0.5, -0.5], given_.pop("labels"), **given_)


def test_errors_name_the_rows_of_the_caller():
    """Items are sorted by list internally; the message uses the row numbers of the caller."""
    with pytest.raises(ValueError, match="scores must be finite, got nan at item 1"):
        metrics.ndcg([0.0, np.nan, 1.0, 2.0], [1, 1, 0, 0], qid=[1, 2, 1, 2])


# The registry


def test_metrics_are_found_by_name(ragged):
    scores, labels, sizes = ragged
    for name, function in POSITIONAL.items():
        for key, options in ((name, {}), (f"{name}@3", {"k": 3})):
            expected = function(scores, labels, group=sizes, **options)
            assert metrics.get_metric(key)(scores, labels, group=sizes) == expected
    assert metrics.get_metric("tau-x")(scores, labels) == metrics.kendall_tau(scores, labels, variant="x")
    assert metrics.get_metric("tau-b")(scores, labels) == metrics.kendall_tau(scores, labels)
    assert metrics.get_metric("log-likelihood")(scores, labels) == metrics.log_likelihood(scores, labels)
    assert metrics.get_metric("err", max_grade=8)(scores, labels) == metrics.err(scores, labels, max_grade=8)


@pytest.mark.parametrize("name", ["ndgc", "ndcg@", "ndcg@0", "ndcg@-1", "NDCG", "tau-b@3", "psp@3", ""])
def test_unknown_names_are_refused(name):
    with pytest.raises(ValueError, match=r"metric must be one of ndcg\[@k\], .*tau-b, tau-x, .*got"):
        metrics.get_metric(name)


# Other libraries


@pytest.fixture
def rows(rng):
    """Scores without ties, and grades; every list has a relevant item."""
    scores = rng.permuted(np.linspace(-1, 1, 25) * np.ones((40, 1)), axis=1)
    labels = rng.integers(0, 5, (40, 25))
    labels[:, 0] = 2
    return scores, labels


def as_run(values, kind):
    """The format of TREC evaluation tools: {query: {document: value}}."""
    return {str(q): {f"d{i:02d}": kind(x) for i, x in enumerate(row)} for q, row in enumerate(values)}


def test_tie_averaged_ndcg_matches_scikit_learn(rng):
    ndcg_score = pytest.importorskip("sklearn.metrics").ndcg_score
    scores, labels = rng.integers(0, 5, (60, 20)).astype(float), rng.integers(0, 4, (60, 20))
    labels[7] = 0  # 0 in scikit-learn
    for k in (None, 1, 4, 19):
        for gain, values in (("linear", labels), ("exp2", 2.0**labels - 1)):
            expected = ndcg_score(values, scores, k=k)
            assert metrics.ndcg(scores, labels, k=k, gain=gain, empty=0) == pytest.approx(expected, abs=1e-12)


def test_constant_scores_in_other_libraries():
    """One list with equal scores: libraries take the expectation, reverse order of names, or the given order."""
    sklearn_metrics = pytest.importorskip("sklearn.metrics")
    pytrec_eval = pytest.importorskip("pytrec_eval")
    scores, labels = [0.0] * 5, [0, 0, 1, 0, 1]
    assert metrics.ndcg(scores, labels) == pytest.approx(sklearn_metrics.ndcg_score([labels], [scores]), abs=1e-12)
    assert metrics.ndcg(scores, labels) == pytest.approx(0.723, abs=5e-4)  # as quoted, to three digits
    reverse = pytrec_eval.RelevanceEvaluator(as_run([labels], int), {"ndcg"}).evaluate(as_run([scores], float))
    assert reverse["0"]["ndcg"] == pytest.approx(0.920, abs=5e-4)
    assert metrics.ndcg(scores, labels[::-1], ties="stable") == pytest.approx(reverse["0"]["ndcg"], abs=1e-12)
    ranx_value = ranx_evaluate([scores], [labels], "ndcg")
    assert ranx_value == pytest.approx(0.544, abs=5e-4)
    assert metrics.ndcg(scores, labels, ties="stable") == pytest.approx(ranx_value, abs=1e-12)


PYTREC = {
    "ndcg": (metrics.ndcg, {"gain": "linear"}),
    "ndcg_cut_5": (metrics.ndcg, {"gain": "linear", "k": 5}),
    "map": (metrics.average_precision, {}),
    "map_cut_10": (metrics.average_precision, {"k": 10}),
    "recip_rank": (metrics.reciprocal_rank, {}),
    "P_5": (metrics.precision, {"k": 5}),
    "P_100": (metrics.precision, {"k": 100}),
    "recall_5": (metrics.recall, {"k": 5}),
}


def test_matches_trec_eval(rows):
    pytrec_eval = pytest.importorskip("pytrec_eval")
    scores, labels = rows
    measures = {"ndcg", "ndcg_cut.5", "map", "map_cut.10", "recip_rank", "P.5,100", "recall.5"}
    theirs = pytrec_eval.RelevanceEvaluator(as_run(labels, int), measures).evaluate(as_run(scores, float))
    for name, (metric, options) in PYTREC.items():
        values = metric(scores, labels, reduction="none", **options)
        np.testing.assert_allclose(values, [theirs[str(q)][name] for q in range(40)], rtol=1e-12)


def test_trec_eval_counts_lists_without_a_relevant_item_as_0():
    pytrec_eval = pytest.importorskip("pytrec_eval")
    scores, labels = [[0.3, 0.2]], [[0, 0]]
    theirs = pytrec_eval.RelevanceEvaluator(as_run(labels, int), {"ndcg", "map"}).evaluate(as_run(scores, float))
    assert theirs["0"] == {"ndcg": 0.0, "map": 0.0}
    for metric in (metrics.ndcg, metrics.average_precision):
        assert metric(scores, labels, empty=0) == 0.0
        assert math.isnan(metric(scores, labels))


def test_matches_ir_measures(rows):
    ir_measures = pytest.importorskip("ir_measures")
    scores, labels = rows
    from ir_measures import AP, RR, P, R, nDCG

    ours = {
        nDCG @ 10: metrics.ndcg(scores, labels, k=10, gain="linear"),
        AP(rel=2): metrics.average_precision(scores, labels, threshold=2),
        RR @ 3: metrics.reciprocal_rank(scores, labels, k=3),
        P(rel=3) @ 5: metrics.precision(scores, labels, k=5, threshold=3),
        R @ 5: metrics.recall(scores, labels, k=5),
    }
    theirs = ir_measures.calc_aggregate(list(ours), as_run(labels, int), as_run(scores, float))
    for measure, value in ours.items():
        assert value == pytest.approx(theirs[measure], abs=1e-12), measure


@pytest.mark.skipif(shutil.which("perl") is None, reason="gdeval is a Perl program")
def test_err_and_exponential_gain_match_gdeval(rows):
    ir_measures = pytest.importorskip("ir_measures")
    from ir_measures import ERR, nDCG

    scores, labels = rows
    theirs = ir_measures.calc_aggregate(
        [ERR @ 10, nDCG(dcg="exp-log2") @ 10], as_run(labels, int), as_run(scores, float)
    )
    # gdeval prints five digits per list
    assert metrics.err(scores, labels, k=10) == pytest.approx(theirs[ERR @ 10], abs=1e-5)
    assert metrics.ndcg(scores, labels, k=10) == pytest.approx(theirs[nDCG(dcg="exp-log2") @ 10], abs=1e-5)


def ranx_evaluate(scores, labels, measures):
    # numba warns about casts of unsigned integers when it compiles the code of ranx.
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="unsafe cast from uint64 to int64")
        ranx = pytest.importorskip("ranx")
        return ranx.evaluate(ranx.Qrels(as_run(labels, int)), ranx.Run(as_run(scores, float)), measures)


def test_matches_ranx(rows):
    scores, labels = rows
    ours = {
        "ndcg@10": metrics.ndcg(scores, labels, k=10, gain="linear"),
        "ndcg_burges@10": metrics.ndcg(scores, labels, k=10),
        "map": metrics.average_precision(scores, labels),
        "mrr@5": metrics.reciprocal_rank(scores, labels, k=5),
        "precision@5": metrics.precision(scores, labels, k=5),
        "recall@5": metrics.recall(scores, labels, k=5),
    }
    theirs = ranx_evaluate(scores, labels, list(ours))
    for name, value in ours.items():
        assert value == pytest.approx(theirs[name], abs=1e-12), name


def test_negative_labels_in_long_lists_avoid_the_shortcut_for_grades():
    """There is a fast path for grades from 0 to 4, which other labels must not use."""
    for low in (-1.0, -50.0, -5e15):
        labels = np.full(100, low)
        labels[-1] = 1.0
        scores = -np.arange(100.0)
        assert metrics.precision(scores, labels, k=5) == 0.0
        assert metrics.recall(scores, labels, k=5) == 0.0
        assert metrics.recall(-scores, labels, k=5) == 1.0
