"""CoordinateAscentRanker: line searches against brute force, ascents, the scikit-learn contract, saved models."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn
from contract import failures_of_rankers
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.utils.estimator_checks import parametrize_with_checks

from plackett import CoordinateAscentRanker, set_num_threads
from plackett.data import RankingData, make_graded_lists
from plackett.errors import DataError
from plackett.estimators import load_model
from plackett.linear import line_search
from plackett.linear.line_search import best_weight, place_metric
from plackett.metrics import get_metric, ndcg

METRICS = (
    "ndcg", "ndcg@1", "ndcg@3", "err", "err@2", "map", "map@3", "mrr", "mrr@2", "p@2", "recall@2", "tau-b", "tau-x",
)  # fmt: skip
AVERAGED = ("ndcg", "p", "recall")  # exact means over items that are tied for every weight
FAST = {"n_restarts": 2, "max_sweeps": 10, "tol": 1e-3, "random_state": 0}


@pytest.fixture(scope="module")
def data() -> RankingData:
    return make_graded_lists(30, mean_length=12, n_features=7, random_state=0)[0]


# Line search


def longhand(name: str, scores: Any, labels: Any, offsets: Any, weights: Any) -> float:
    """The metric. If it cannot average over ties like the line search, the item with the lower label is first."""
    if name.split("@")[0] in AVERAGED or name.startswith("tau"):
        return float(get_metric(name)(scores, labels, offsets=offsets, weights=weights))
    rows = np.lexsort((labels, np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))))
    return float(get_metric(name, ties="stable")(scores[rows], labels[rows], offsets=offsets, weights=weights))


def breakpoints(rest: Any, feature: Any, offsets: Any) -> Any:
    """All weights at which two items of a list have the same score, from all pairs."""
    pairs = [(i, j) for first, last in pairwise(offsets) for i in range(first, last) for j in range(first, i)]
    return np.unique([(rest[j] - rest[i]) / (feature[i] - feature[j]) for i, j in pairs if feature[i] != feature[j]])


def intervals(name: str, rest: Any, feature: Any, labels: Any, offsets: Any, weights: Any) -> Any:
    """Ends (as angles) and values of all intervals, with neighbours of equal value merged."""
    angles = np.concatenate(([-np.pi / 2], np.arctan(breakpoints(rest, feature, offsets)), [np.pi / 2]))
    found: list[list[float]] = []
    for left, right in pairwise(angles):
        if right - left < 1e-9:  # the same weight up to rounding
            continue
        value = longhand(name, rest + np.tan((left + right) / 2) * feature, labels, offsets, weights)
        if found and abs(found[-1][2] - value) < 1e-10:
            found[-1][1] = right
        else:
            found.append([left, right, value])
    return np.array(found).T


@st.composite
def lines(draw: Any) -> Any:
    """Lists with labels, scores from the other features, and one feature; integers give many ties."""
    sizes = draw(st.lists(st.integers(1, 7), min_size=1, max_size=3))
    n = sum(sizes)
    whole = st.integers(-2, 2).map(float)
    numbers = draw(st.sampled_from([whole, st.floats(-3, 3).map(lambda x: round(x, 3))]))
    rest, feature = (np.array(draw(st.lists(numbers, min_size=n, max_size=n))) for _ in range(2))
    labels = np.array(draw(st.lists(st.integers(0, 3).map(float), min_size=n, max_size=n)))
    weights = np.array(draw(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=len(sizes), max_size=len(sizes))))
    return rest, feature, labels, np.concatenate(([0], np.cumsum(sizes))).astype(np.int64), weights


def test_buffer_grows_with_the_number_of_changes(data: RankingData, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = CoordinateAscentRanker(**FAST).fit(data.X, data.y, qid=data.qid).coef_
    monkeypatch.setattr(line_search, "_CHANGES_PER_ITEM", 0)
    np.testing.assert_array_equal(CoordinateAscentRanker(**FAST).fit(data.X, data.y, qid=data.qid).coef_, expected)


@pytest.mark.parametrize("name", METRICS)
def test_line_search_is_exact(name: str) -> None:
    checked = []

    @given(lines(), st.sampled_from([-1.7, 0.0123, 0.9]), st.sampled_from([0.0, 0.05]))
    def check(line: Any, now: float, penalty: float) -> None:
        rest, feature, labels, offsets, weights = line
        if np.isnan(longhand(name, rest, labels, offsets, weights)):
            with pytest.raises(ValueError, match=f"at least one list a value of {name}"):
                place_metric(name, labels, offsets, weights)
            return
        ties = [np.unique(np.stack((rest, feature))[:, a:b], axis=1).shape[1] < b - a for a, b in pairwise(offsets)]
        if name.startswith("tau") and any(ties):
            return  # tau-b divides by the number of untied pairs
        metric = place_metric(name, labels, offsets, weights)
        found = best_weight(metric, offsets, rest, feature, now, 1.0, penalty)
        left, right, values = intervals(name, rest, feature, labels, offsets, weights)
        present = longhand(name, rest + now * feature, labels, offsets, weights)
        if found is None:
            assert len(values) == 1
            return
        middles = (left + right) / 2
        merits = values - penalty * np.abs(middles - np.arctan(now))
        assert found.gain == pytest.approx(merits.max() - present, abs=1e-9)
        widest = (right - left)[merits >= merits.max() - 1e-9].max()
        chosen = np.argmin(np.abs(middles - np.arctan(found.weight)))
        assert np.arctan(found.weight) == pytest.approx(middles[chosen], abs=1e-9)
        assert (right - left)[chosen] == pytest.approx(widest, abs=1e-9)
        grid = [longhand(name, rest + c * feature, labels, offsets, weights) for c in np.linspace(-5, 5, 21) + 0.0077]
        if penalty == 0.0:
            assert max(grid) <= present + found.gain + 1e-9
        checked.append(found.gain)

    check()
    assert sum(gain > 1e-9 for gain in checked) > 5  # some are not trivial


@pytest.mark.parametrize("name", ["ndcg@10", "ndcg", "map", "err@5", "p@3"])
def test_line_search_handles_long_lists(name: str, rng: np.random.Generator) -> None:
    """Longer than any cutoff, with few feature values and enough lists for several threads."""
    offsets = np.array([0, 30, 31, 80, 80, 120])
    rest, labels = rng.standard_normal(120), rng.integers(0, 4, 120).astype(float)
    weights = rng.random(5)
    for feature in (rng.standard_normal(120), rng.integers(0, 2, 120).astype(float), rng.integers(0, 5, 120) / 3.0):
        found = best_weight(place_metric(name, labels, offsets, weights), offsets, rest, feature, 0.2, 1.0, 0.0)
        assert found is not None
        present, reached = (longhand(name, rest + c * feature, labels, offsets, weights) for c in (0.2, found.weight))
        values = intervals(name, rest, feature, labels, offsets, weights)[2]
        assert reached == pytest.approx(values.max(), abs=1e-10)
        assert found.gain == pytest.approx(reached - present, abs=1e-10)


def test_line_search_takes_the_middle_of_the_widest_best_interval() -> None:
    """Scores 0, c - 1 and c + 5: the relevant middle item is never first, and second for c from -5 to 1."""
    offsets, labels = np.array([0, 3]), np.array([0.0, 1.0, 0.0])
    rest, feature = np.array([0.0, -1.0, 5.0]), np.array([0.0, 1.0, -1.0])  # first for c > 3
    found = best_weight(place_metric("mrr", labels, offsets, np.ones(1)), offsets, rest, feature, 0.0, 1.0, 0.0)
    assert found is not None
    assert found.weight == pytest.approx(np.tan((np.arctan(3.0) + np.pi / 2) / 2))
    assert found.gain == pytest.approx(1.0 - 1.0 / 3.0)
    constant = best_weight(place_metric("mrr", labels, offsets, np.ones(1)), offsets, rest, np.ones(3), 0.0, 1.0, 0.0)
    assert constant is None


# Ascents


def test_no_single_weight_can_be_improved(data: RankingData) -> None:
    model = CoordinateAscentRanker(n_restarts=1, tol=0.0, max_sweeps=50, standardise=False, random_state=0)
    with pytest.warns(ConvergenceWarning):  # a gain of 0 is not below a tol of 0
        model.fit(data)
    assert model.objective_value_ == pytest.approx(ndcg(data.X @ model.coef_, data.y, k=10, offsets=data.offsets))
    metric = place_metric("ndcg@10", data.y, data.offsets, np.ones(len(data)))
    for f in range(7):
        rest = data.X @ model.coef_ - model.coef_[f] * data.X[:, f]
        found = best_weight(metric, data.offsets, rest, data.X[:, f], model.coef_[f], 1.0, 0.0)
        assert found is None or found.gain < 1e-9


@pytest.mark.parametrize("name", ["ndcg@10", "err@5", "map", "mrr@10", "p@3", "recall@5", "tau-b"])
def test_every_metric_is_improved(name: str, data: RankingData) -> None:
    values = {}
    for objective in (name, "ndcg@10"):
        model = CoordinateAscentRanker(objective, **FAST).fit(data)
        values[objective] = get_metric(name)(model.predict(data.X), data.y, offsets=data.offsets)
    start = get_metric(name)(data.X @ np.ones(7), data.y, offsets=data.offsets)
    assert values[name] > start + 0.02
    assert values[name] >= values["ndcg@10"] - 0.01  # an ascent ends at a local maximum


def test_more_sweeps_and_restarts_are_not_worse(data: RankingData) -> None:
    with pytest.warns(ConvergenceWarning, match="still gained"):
        by_sweeps = [
            CoordinateAscentRanker(n_restarts=1, max_sweeps=s, tol=0.0, random_state=0).fit(data) for s in (1, 2, 4)
        ]
    values = [model.objective_value_ for model in by_sweeps]
    assert values == sorted(values)
    model = CoordinateAscentRanker(n_restarts=4, random_state=3).fit(data)
    assert len(model.restart_values_) == 4
    assert len(set(model.restart_values_)) > 1
    assert model.objective_value_ == max(model.restart_values_)


def test_perfect_feature_is_found(data: RankingData, rng: np.random.Generator) -> None:
    X = np.column_stack((data.X, -data.y + 0.1 * rng.random(len(data.y))))
    model = CoordinateAscentRanker(**FAST).fit(X, data.y, qid=data.qid)
    assert model.objective_value_ == pytest.approx(1.0)


def test_penalty_keeps_weights_near_the_start(data: RankingData) -> None:
    start = np.array([1, 1, 1, 1, 1, 0, 1]) / np.sqrt(6.0)  # the sixth feature is constant in each list

    def distance(penalty: float) -> float:
        model = CoordinateAscentRanker(n_restarts=1, penalty=penalty, standardise=False, random_state=0).fit(data)
        return float(np.linalg.norm(model.coef_ - start))

    assert distance(0.0) > 0.5
    assert distance(10.0) == pytest.approx(0.0, abs=1e-12)


def test_evaluation_sets_choose_the_sweep(data: RankingData) -> None:
    other = make_graded_lists(30, mean_length=12, n_features=7, random_state=1)[0]
    model = CoordinateAscentRanker(n_restarts=3, random_state=0, eval_metric=["ndcg@3", "map"]).fit(
        data, eval_set=other
    )
    plain = CoordinateAscentRanker(n_restarts=3, random_state=0).fit(data)
    value = ndcg(model.predict(other.X), other.y, k=3, offsets=other.offsets)
    assert model.evals_result_["valid"]["ndcg@3"] == pytest.approx(value)
    assert value >= ndcg(plain.predict(other.X), other.y, k=3, offsets=other.offsets)
    assert plain.objective_value_ >= model.objective_value_


def test_the_same_seed_gives_the_same_model(data: RankingData) -> None:
    fits = [CoordinateAscentRanker(**{**FAST, "random_state": s}).fit(data).coef_ for s in (0, 0, 1)]
    assert (fits[0] == fits[1]).all()
    assert (fits[0] != fits[2]).any()
    generator = CoordinateAscentRanker(**{**FAST, "random_state": np.random.default_rng(0)}).fit(data)
    assert (generator.coef_ == fits[0]).all()
    try:
        set_num_threads(3)
        assert (CoordinateAscentRanker(**FAST).fit(data).coef_ == fits[0]).all()
    finally:
        set_num_threads(None)


def test_lists_of_weight_zero_are_ignored(data: RankingData) -> None:
    zero = np.repeat([1.0] * 20 + [0.0] * 10, np.diff(data.offsets))
    options = {**FAST, "standardise": False}
    ignored = CoordinateAscentRanker(**options).fit(data.X, data.y, qid=data.qid, sample_weight=zero)
    without = CoordinateAscentRanker(**options).fit(data.select(range(20)))
    np.testing.assert_allclose(ignored.coef_, without.coef_, atol=1e-9)


def test_sparse_features_match_dense_ones(data: RankingData) -> None:
    X = np.where(data.X > 0.5, data.X, 0.0)
    dense, sparse = (CoordinateAscentRanker(**FAST).fit(m, data.y, qid=data.qid) for m in (X, csr_array(X)))
    assert sparse.objective_value_ == pytest.approx(dense.objective_value_, abs=0.02)  # rounding may change the ascent
    np.testing.assert_allclose(sparse.predict(csr_array(X)), X @ sparse.coef_, atol=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "log-likelihood"}, "objective must be a metric of places, got 'log-likelihood'"),
        ({"objective": "ndgc"}, "metric must be one of ndcg"),
        ({"n_restarts": 0}, "n_restarts must be a whole number of at least 1"),
        ({"max_sweeps": 1.5}, "max_sweeps must be a whole number of at least 1"),
        ({"tol": -1.0}, "tol must be a finite number of at least 0, got -1.0"),
        ({"penalty": np.nan}, "penalty must be a finite number of at least 0, got nan"),
    ],
)
def test_bad_parameters_are_refused(options: dict[str, Any], message: str, data: RankingData) -> None:
    with pytest.raises(ValueError, match=message):
        CoordinateAscentRanker(**options).fit(data)


def test_labels_that_are_not_grades_are_refused(data: RankingData) -> None:
    with pytest.raises(ValueError, match="labels must be from 0"):
        CoordinateAscentRanker().fit(data.X, data.y - 1.0, qid=data.qid)
    with pytest.raises(ValueError, match="y must give at least one list a value of ndcg@10, got none"):
        CoordinateAscentRanker().fit(data.X, np.zeros(len(data.y)), qid=data.qid)


def test_uninformative_evaluation_set_is_refused(data: RankingData) -> None:
    with pytest.raises(ValueError, match="eval_set must give at least one list a value of ndcg@10, got none"):
        CoordinateAscentRanker(**FAST).fit(data, eval_set=(data.X, np.zeros(len(data.y)), data.qid))


def test_uninformative_features_give_zero_weights(data: RankingData) -> None:
    model = CoordinateAscentRanker(**FAST).fit(np.ones((len(data.y), 2)), data.y, qid=data.qid)
    assert (model.coef_ == 0).all()


# The estimator


@pytest.mark.filterwarnings("ignore:neither qid nor group")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([CoordinateAscentRanker(**FAST)], expected_failed_checks=failures_of_rankers)
def test_passes_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_grid_search_routes_lists(data: RankingData) -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        model = CoordinateAscentRanker(**FAST).set_fit_request(qid=True).set_score_request(qid=True)
        search = GridSearchCV(model, {"objective": ["ndcg@10", "map"]}, cv=GroupKFold(3))
        assert search.fit(data.X, data.y, qid=data.qid, groups=data.qid).best_score_ > 0.5
    assert clone(model).get_params() == model.get_params()


def test_loaded_model_matches_the_saved_one(data: RankingData, tmp_path: Path) -> None:
    model = CoordinateAscentRanker(**FAST).fit(data, eval_set=data)
    model.save(tmp_path / "model")
    for found in (CoordinateAscentRanker.load(tmp_path / "model"), load_model(tmp_path / "model")):
        assert (found.predict(data.X) == model.predict(data.X)).all()
        assert found.restart_values_ == model.restart_values_
        assert found.evals_result_ == model.evals_result_
    (tmp_path / "model" / "coefficients.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(DataError, match="not a readable array"):
        CoordinateAscentRanker.load(tmp_path / "model")
