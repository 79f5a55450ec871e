"""CoordinateAscentRanker: ascents, the scikit-learn contract, saved models."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn
from contract import failures_of_rankers
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

FAST = {"n_restarts": 2, "max_sweeps": 10, "tol": 1e-3, "random_state": 0}


@pytest.fixture(scope="module")
def data() -> RankingData:
    return make_graded_lists(30, mean_length=12, n_features=7, random_state=0)[0]


def test_buffer_grows_with_the_number_of_changes(data: RankingData, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = CoordinateAscentRanker(**FAST).fit(data.X, data.y, qid=data.qid).coef_
    monkeypatch.setattr(line_search, "_CHANGES_PER_ITEM", 0)
    np.testing.assert_array_equal(CoordinateAscentRanker(**FAST).fit(data.X, data.y, qid=data.qid).coef_, expected)


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
