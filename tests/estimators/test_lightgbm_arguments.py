"""Arguments of LGBMRanker that rankers take, and those that they refuse with the name of the right one."""

import numpy as np
import pytest

from plackett import BoostedRanker, CoordinateAscentRanker, LinearRanker, NeuralRanker
from plackett.data import make_graded_lists


@pytest.fixture(scope="module")
def data():
    return make_graded_lists(20, mean_length=8, n_features=8, random_state=0)[0]


def trees(**settings):
    return BoostedRanker(**{"n_estimators": 4, "min_child_samples": 3, "random_state": 0, "progress": False} | settings)


RANKERS = {
    "trees": trees,
    "network": lambda: NeuralRanker(hidden_sizes=(4,), epochs=2, random_state=0, progress=False),
    "linear": LinearRanker,
    "ascent": lambda: CoordinateAscentRanker(max_sweeps=3, n_restarts=1, random_state=0),
}


@pytest.mark.filterwarnings("ignore:ascent 1 still gained")
@pytest.mark.parametrize("name", RANKERS)
def test_eval_group_is_the_qid_of_evaluation_sets(data, name):
    if name == "network":
        pytest.importorskip("torch")
    sizes, plain = np.diff(data.offsets), (data.X, data.y)
    by_qid = RANKERS[name]().fit(data, eval_set=[(*plain, data.qid), (*plain, data.qid)])
    by_group = RANKERS[name]().fit(data, eval_set=[plain, plain], eval_group=[sizes, sizes], eval_names=["a", "b"])
    if name == "network":
        assert by_group.history_["a ndcg@10"] == by_qid.history_["valid_0 ndcg@10"]
    else:
        assert list(by_group.evals_result_) == ["a", "b"]
        assert list(by_group.evals_result_.values()) == list(by_qid.evals_result_.values())
    with pytest.raises(ValueError, match="or eval_group"):
        RANKERS[name]().fit(data, eval_set=[plain])
    with pytest.raises(TypeError, match="fit takes no argument 'init_score': pass init_model"):
        RANKERS[name]().fit(data, init_score=np.zeros(len(data.y)))


def test_one_set_is_named_as_in_lightgbm_if_it_has_a_group(data):
    sizes = np.diff(data.offsets)
    for sets, groups in (([(data.X, data.y)], [sizes]), ((data.X, data.y), sizes), ((data.X, data.y), [sizes])):
        assert list(trees().fit(data, eval_set=sets, eval_group=groups).evals_result_) == ["valid_0"]
    assert list(trees().fit(data, eval_set=data).evals_result_) == ["valid"]


def test_metrics_of_a_fit_replace_those_of_the_model(data):
    model = trees().fit(data, eval_set=data, eval_metric=["ndcg", "map"], eval_at=(1, 3))
    assert list(model.evals_result_["valid"]) == ["ndcg@1", "ndcg@3", "map@1", "map@3"]
    assert model.eval_metric == "ndcg@10"
    named = trees(eval_metric=["ndcg@1", "ndcg@3", "map@1", "map@3"]).fit(data, eval_set=data)
    assert named.evals_result_ == model.evals_result_
    assert list(trees().fit(data, eval_set=data, eval_at=5).evals_result_["valid"]) == ["ndcg@5"]


def test_weights_of_evaluation_sets_count(data):
    lists = np.arange(len(np.diff(data.offsets))) < 10
    weight = np.repeat(lists.astype(float), np.diff(data.offsets))
    half = data.offsets[10]
    weighted = trees().fit(data, eval_set=[(data.X, data.y, data.qid)], eval_sample_weight=[weight])
    first = trees().fit(data, eval_set=[(data.X[:half], data.y[:half], data.qid[:half])])
    np.testing.assert_allclose(
        weighted.evals_result_["valid"]["ndcg@10"], first.evals_result_["valid"]["ndcg@10"], rtol=1e-12
    )


def test_parameters_with_the_names_of_lightgbm_are_its_parameters(data):
    names = {"boosting_type": "goss", "min_split_gain": 0.1, "min_child_weight": 0.5, "subsample_for_bin": 50}
    by_name = trees(**names).fit(data)
    by_params = trees(lightgbm_params=names).fit(data)
    np.testing.assert_array_equal(by_name.predict(data), by_params.predict(data))
    assert not np.array_equal(by_name.predict(data), trees().fit(data).predict(data))
    with pytest.raises(ValueError, match="must hold 'boosting' once"):
        trees(boosting_type="dart", lightgbm_params={"boosting": "gbdt"}).fit(data)


def test_importances_count_gain_or_splits(data):
    gain, split = (trees(importance_type=kind).fit(data) for kind in ("gain", "split"))
    for model, kind in ((gain, "gain"), (split, "split")):
        raw = model.booster_.feature_importance(kind)
        np.testing.assert_allclose(model.feature_importances_, raw / raw.sum())
    assert not np.allclose(gain.feature_importances_, split.feature_importances_)
    with pytest.raises(ValueError, match="importance_type must be one of 'gain', 'split', got 'weight'"):
        trees(importance_type="weight").fit(data)


def test_predictions_by_the_names_of_lightgbm(data):
    model = trees().fit(data)
    np.testing.assert_array_equal(model.predict(data.X, raw_score=True), model.predict(data.X))
    np.testing.assert_array_equal(model.predict(data.X, pred_contrib=True), model.predict(data.X, contributions=True))
    leaves = model.predict(data.X, pred_leaf=True)
    values = [[model.booster_.get_leaf_output(tree, leaf) for tree, leaf in enumerate(row)] for row in leaves]
    np.testing.assert_allclose(np.sum(values, 1), model.predict(data.X), rtol=1e-12)
    assert model.predict(data.X, pred_leaf=True, num_iteration=2).shape == (len(data.y), 2)
    with pytest.raises(TypeError, match="predict takes no argument 'start_iteration': use num_iteration"):
        model.predict(data.X, start_iteration=1)
    with pytest.raises(ValueError, match="raw_score must be False for the objective 'mcrank'"):
        trees(objective="mcrank").fit(data).predict(data.X, raw_score=True)


def test_attributes_have_the_names_of_lightgbm(data, tmp_path):
    model = trees(n_estimators=30, early_stopping_rounds=2, eval_metric=["ndcg@3", "err"]).fit(data, eval_set=data)
    best = model.best_iteration_
    assert model.best_score_ == {"valid": {m: v[best - 1] for m, v in model.evals_result_["valid"].items()}}
    assert model.n_estimators_ == best
    assert model.n_features_ == 8
    assert model.feature_name_ == [f"Column_{number}" for number in range(8)]
    model.save(tmp_path / "model")
    assert BoostedRanker.load(tmp_path / "model").best_score_ == model.best_score_


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("class_weight", "pass sample_weight to fit"),
        ("metric", "set eval_metric"),
        ("num_iterations", "set n_estimators"),
        ("label_gain", r"set lightgbm_params=\{'label_gain': ...\}"),
        ("machines", "pass client= to fit"),
        ("no_such_name", "see help"),
    ],
)
def test_other_parameters_are_refused_with_the_right_name(name, remedy):
    with pytest.raises(TypeError, match=f"BoostedRanker takes no argument '{name}': .*{remedy}"):
        BoostedRanker(**{name: 1})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"eval_group": [[1]]}, "eval_group must be None without an eval_set"),
        ({"eval_set": [1, 2], "eval_names": ["a", "a"]}, "a different name for each of 2"),
        ({"eval_set": [1, 2], "eval_group": [[1]]}, "one entry for each of 2 evaluation sets, got 1"),
        ({"eval_set": [1]}, "eval_set must be RankingData"),
        ({"eval_at": []}, "eval_at must hold at least one cut-off"),
        ({"eval_at": [0]}, "eval_at must be at least 1"),
        ({"eval_metric": "auc"}, "eval_metric: metric must be one of"),
    ],
)
def test_malformed_evaluation_is_refused(data, arguments, message):
    with pytest.raises(ValueError, match=message):
        trees().fit(data, **arguments)
