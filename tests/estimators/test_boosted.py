"""BoostedRanker: leaves, scores, the scikit-learn contract, saved models and resumed training."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from contract import failures_of_rankers
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import plackett
from plackett import BoostedRanker
from plackett.boosted import OBJECTIVES, make_objective, objective_names
from plackett.boosted.lightgbm_parameters import _CELLS, _VISITS, ARGUMENTS, LOCAL, STORED, check_params
from plackett.boosted.trainer import _find_leaves, _TrackedScores
from plackett.data import Ballots, RankingData, make_graded_lists
from plackett.data.listed_rows import ListedRows
from plackett.errors import DataError
from plackett.estimators import load_model, make_model
from plackett.lists import Lists
from plackett.losses.registry import loss_names
from plackett.metrics import ndcg

SETTINGS: dict[str, Any] = {"n_estimators": 8, "num_leaves": 7, "min_child_samples": 5, "random_state": 0}


@pytest.fixture(scope="module")
def data() -> RankingData:
    return make_graded_lists(60, mean_length=20, n_features=14, random_state=0)[0]


@pytest.fixture(scope="module")
def other() -> RankingData:
    return make_graded_lists(40, mean_length=20, n_features=14, random_state=1)[0]


# Objectives


@pytest.mark.parametrize("name", [*OBJECTIVES, "mcrank", "lambdamart", "xendcg", "listmle", "poisson"])
def test_every_objective_learns(name: str, data: RankingData, other: RankingData) -> None:
    model = BoostedRanker(name, **{**SETTINGS, "n_estimators": 30}).fit(data)
    start = ndcg(np.zeros(len(other.y)), other.y, k=10, offsets=other.offsets)
    assert model.score(other.X, other.y, qid=other.qid) > start + 0.1


@pytest.mark.parametrize("name", loss_names("curvature"))
def test_gradients_match_finite_differences(name: str, data: RankingData, rng: np.random.Generator) -> None:
    part = data.select(range(5))
    options = {} if name in OBJECTIVES else {"random_state": 3}
    made = [make_objective(name, part.y, part.offsets, **options) for _ in range(2)]
    scores = rng.standard_normal(len(part.y))
    gradient, _ = made[0].derivatives(scores)
    if name not in ("listmle", "listpl"):  # random losses draw again on every call
        step = 1e-6 * rng.standard_normal(len(scores))
        difference = (made[1].value(scores + step) - made[1].value(scores - step)) / 2
        # Central differences of a loss of size 1e2 to 1e3 with steps of 1e-6.
        assert gradient @ step == pytest.approx(difference, rel=1e-4, abs=1e-10)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("lower_bound", {}), ("attrank", {}), ("listnet", {}), ("listnet", {"top": 2}), ("listnet", {"samples": 3}),
        ("listmle", {}), ("listmle", {"ties": "efron"}), ("listmle", {"ties": "exact"}), ("listpl", {"samples": 2}),
        ("ranknet", {}),
    ],
)  # fmt: skip
def test_curvatures_match_finite_differences(
    name: str, options: dict[str, Any], data: RankingData, rng: np.random.Generator
) -> None:
    part, weights = data.select(range(3)), np.array([1.0, 2.0, 0.5])
    scores, step = 2.0 * rng.standard_normal(len(part.y)), 1e-5

    def derivatives(at: Any) -> Any:  # created again, so that random losses draw the same
        seed = {} if name in OBJECTIVES else {"random_state": 3}
        return make_objective(name, part.y, part.offsets, weights, **seed, **options).derivatives(at)

    _, curvature = derivatives(scores)
    for i in range(len(scores)):
        move = np.zeros(len(scores))
        move[i] = step
        difference = (derivatives(scores + move)[0][i] - derivatives(scores - move)[0][i]) / (2 * step)
        assert curvature[i] == pytest.approx(difference, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize(
    "options", [{}, {"truncation": 3}, {"temperature": 0.7}, {"truncation": 5, "temperature": 1.0}]
)
def test_curvature_of_approx_ndcg_is_a_bound(
    options: dict[str, Any], data: RankingData, rng: np.random.Generator
) -> None:
    part, step = data.select(range(5)), 1e-5
    made = make_objective("approx_ndcg", part.y, part.offsets, np.array([1.0, 2.0, 0.5, 1.0, 1.0]), **options)
    for spread in (0.0, 0.1, 1.0):
        scores = spread * rng.standard_normal(len(part.y))
        gradient, curvature = made.derivatives(scores)
        assert (curvature >= 0.0).all()
        # A Newton step is at most the temperature, the scale on which ranks change.
        assert (np.abs(gradient) <= curvature * options.get("temperature", 0.1) + 1e-15).all()
        for i in range(len(scores)):
            move = np.zeros(len(scores))
            move[i] = step
            difference = (made.derivatives(scores + move)[0][i] - made.derivatives(scores - move)[0][i]) / (2 * step)
            assert curvature[i] >= difference - 1e-6 * (1.0 + abs(difference))


def test_curvature_of_ranksvm_gives_a_parabola_above_the_loss(data: RankingData, rng: np.random.Generator) -> None:
    """For scores that keep every pair half a margin away from the corner of the hinge."""
    part = data.select(range(3))
    made = make_objective("ranksvm", part.y, part.offsets, np.array([1.0, 2.0, 0.5]))
    scores = 1.6 * rng.integers(0, 4, len(part.y))
    gradient, curvature = made.derivatives(scores)
    here = made.value(scores)
    for i in range(len(scores)):
        for size in (-5.0, -1.0, -0.1, 0.1, 0.5, 1.0, 5.0):
            move = np.zeros(len(scores))
            move[i] = size
            parabola = here + gradient[i] * size + 0.5 * curvature[i] * size**2
            assert made.value(scores + move) <= parabola + 1e-9


# Weights


def _distinct_labels(lists: int = 40, length: int = 8) -> tuple[Any, Any, Any]:
    """Lists without ties, so that nothing is random, and few values, so that LightGBM uses the same bins."""
    rng = np.random.default_rng(0)
    y = np.concatenate([rng.permutation(length) + 2 * (b < 15) for b in range(lists)]).astype(float)
    X = np.clip(np.rint(y[:, None] / 2 + rng.normal(scale=1.5, size=(len(y), 4))), 0, 4)
    return X, y, np.repeat(np.arange(lists), length)


_WEIGHED = list(dict.fromkeys([*OBJECTIVES, "mcrank", "lambdamart", *loss_names("curvature")]))


def _fitted(name: str, data: tuple[Any, Any, Any], weights: Any, **settings: Any) -> Any:
    options = {"psi": 1e3} if name == "listpl" else {}  # the drawn order is then the order of the labels
    model = BoostedRanker(
        name, n_estimators=8, num_leaves=5, min_child_samples=1, learning_rate=0.3, n_jobs=1, objective_options=options,
        **settings,
    )  # fmt: skip
    X, y, qid = data
    return model.fit(X, y, qid=qid, sample_weight=weights)


@pytest.mark.parametrize("name", _WEIGHED)
def test_weight_of_two_counts_as_two_lists(name: str) -> None:
    X, y, qid = data = _distinct_labels()
    weights = np.where(qid < 15, 2.0, 1.0)
    rows = np.concatenate([np.arange(len(y)), np.flatnonzero(qid < 15)])
    twice = X[rows], y[rows], np.concatenate([qid, 1000 + qid[qid < 15]])
    weighted, doubled, plain = (
        _fitted(name, *arguments).predict(X) for arguments in ((data, weights), (twice, None), (data, None))
    )
    # LightGBM keeps gradients in single precision.
    np.testing.assert_allclose(weighted, doubled, rtol=1e-5, atol=1e-6 * np.abs(doubled).max())
    assert np.abs(weighted - plain).max() > 1e-3 * np.abs(plain).max()


@pytest.mark.parametrize("name", _WEIGHED)
def test_uniform_weights_change_nothing_without_a_penalty(name: str) -> None:
    X, y, _ = data = _distinct_labels()
    weighted, plain = (_fitted(name, data, w, reg_lambda=0.0).predict(X) for w in (np.full(len(y), 5.0), None))
    np.testing.assert_allclose(weighted, plain, rtol=1e-5, atol=1e-6 * np.abs(plain).max())


def test_partition_objective_matches_the_likelihood(data: RankingData, rng: np.random.Generator) -> None:
    from plackett import partition_derivatives

    scores, weights = rng.standard_normal(len(data.y)), rng.random(len(data))
    made = make_objective("partition", data.y, data.offsets, weights, tol=1e-12)
    value, gradient, curvature = partition_derivatives(scores, data.y, offsets=data.offsets)
    rows = np.repeat(weights, np.diff(data.offsets))
    assert made.value(scores) == pytest.approx(-(value @ weights), rel=1e-10)
    found = made.derivatives(scores)
    np.testing.assert_allclose(found[0], -gradient * rows, atol=1e-10)
    np.testing.assert_allclose(found[1], curvature * rows, atol=1e-10)


def test_cutoff_keeps_the_hessian_positive(data: RankingData, rng: np.random.Generator) -> None:
    made = make_objective("partition", data.y, data.offsets, top=5)
    _, hessian = made.derivatives(3.0 * rng.standard_normal(len(data.y)))
    assert (hessian >= 0).all()
    assert hessian.sum() > 0


# Leaves and scores


def assert_newton_leaves(model: BoostedRanker, data: RankingData, rates: tuple[float, ...] = (0.5, 0.5, 0.5)) -> None:
    """Compares the leaves of each tree with the derivatives at the scores of the previous trees."""
    name, bound = model.objective, model.max_delta_step
    made = make_objective(name, data.y, data.offsets, **({"random_state": 0} if name == "plrank" else {}))
    start = made.start()
    scores = np.full(len(data.y), start)
    for tree, rate in enumerate(rates):
        leaf = model.booster_.predict(data.X, start_iteration=tree, num_iteration=1, pred_leaf=True).reshape(-1)
        count = int(leaf.max()) + 1
        assert count > 1
        slope, curvature_of_leaves = made.leaf_derivatives(scores, leaf.astype(np.int32), count)
        step = -np.where(np.abs(slope) > model.reg_alpha, slope - np.sign(slope) * model.reg_alpha, 0.0)
        step /= curvature_of_leaves + model.reg_lambda
        step = rate * (np.clip(step, -bound, bound) if bound else step)
        found = np.array([model.booster_.get_leaf_output(tree, u) for u in range(count)])
        np.testing.assert_allclose(found - (start if tree == 0 else 0.0), step, atol=1e-12)
        scores = scores + step[leaf]


@pytest.mark.parametrize("name", ["partition", "plrank", "mart", "klmart"])
@pytest.mark.parametrize("options", [{}, {"max_delta_step": 0.3}, {"reg_alpha": 2.0}], ids=str)
def test_leaves_are_newton_steps(name: str, options: dict[str, Any], data: RankingData) -> None:
    model = BoostedRanker(name, **SETTINGS, **options, reg_lambda=2.0, learning_rate=0.5).fit(data)
    assert_newton_leaves(model, data)


@pytest.mark.parametrize(
    "params",
    [
        {"extra_tree": True},
        {"interaction_constraints": [[0, 1, 2], [3, 4]]},
        {"cegb_penalty_split": 5e-3},
        {"boosting_type": "goss"},
        {"use_quantized_grad": True},
        {"colsample_bynode": 0.5},
        {"feature_penalty": [1.0] * 7 + [0.5] * 7},
        {"min_split_gain": 3.0},
        {"force_col_wise": True},
        {"path_smooth": 0.0, "linear_trees": False, "boost": "GBDT"},
    ],
    ids=str,
)
def test_parameters_for_splits_work_with_newton_leaves(params: dict[str, Any], data: RankingData) -> None:
    options = {**SETTINGS, "leaves": "newton", "learning_rate": 0.5}
    model = BoostedRanker(**options, lightgbm_params=params).fit(data)
    assert_newton_leaves(model, data)
    plain = BoostedRanker(**options).fit(data)
    changes_nothing = set(params) & {"force_col_wise", "path_smooth"}
    assert (model.predict(data.X) == plain.predict(data.X)).all() == bool(changes_nothing)


@pytest.mark.parametrize(
    ("options", "ruler"),
    [
        ({"lightgbm_params": {"boosting_type": "dart"}}, "boosting='dart'"),
        ({"lightgbm_params": {"boost": "DART"}}, "boosting='DART'"),
        ({"lightgbm_params": {"linear_trees": True}}, "linear_tree"),
        ({"lightgbm_params": {"path_smooth": 3.0}}, "path_smooth"),
        ({"monotone_constraints": [1] + [0] * 13}, "monotone_constraints"),
    ],
    ids=str,
)
def test_options_that_need_lightgbm_leaves_disable_newton_leaves(
    options: dict[str, Any], ruler: str, data: RankingData
) -> None:
    with pytest.raises(ValueError, match=f"leaves='newton' cannot be combined with {ruler}"):
        BoostedRanker(**SETTINGS, **options, leaves="newton").fit(data)
    with pytest.warns(UserWarning, match=f"leaves hold LightGBM's values, which {ruler} needs"):
        chosen = BoostedRanker(**SETTINGS, **options).fit(data)
    expected = BoostedRanker(**SETTINGS, **options, leaves="lightgbm").fit(data)
    assert (chosen.predict(data.X) == expected.predict(data.X)).all()


def test_random_forest_accepts_lightgbm_objectives(data: RankingData) -> None:
    forest = {**SETTINGS, "subsample": 0.5, "lightgbm_params": {"boost": "random_forest"}}
    model = BoostedRanker("lambdamart", **forest).fit(data)
    assert "average_output" in model.booster_.model_to_string()
    with pytest.raises(ValueError, match="LightGBM rejects"):
        BoostedRanker(**forest, leaves="lightgbm").fit(data)


@pytest.mark.parametrize("params", [{"boosting": "dart", "drop_rate": 0.9, "skip_drop": 0.0}, {"linear_tree": True}])
def test_training_scores_match_the_model(params: dict[str, Any], data: RankingData) -> None:
    """Least squares on grades starts with their mean, unless trees cannot store it."""
    cached: list[Any] = []

    def keep(predictions: Any, _: Any) -> tuple[str, float, bool]:
        cached.append(predictions.copy())
        return "kept", 0.0, True

    model = BoostedRanker("mart", **SETTINGS, leaves="lightgbm", lightgbm_params=params)
    model.fit(data, eval_set=data, callbacks=[lambda env: env.model.eval_valid(keep)])
    # During training, LightGBM keeps the features of linear leaves in single precision.
    np.testing.assert_allclose(model.predict(data.X), cached[-1], atol=1e-6)


def test_steps_of_a_cut_tier_are_limited() -> None:
    """Two of the scores 16, 8, 0 precede 8: the curvature of the denominators would give a step of 746."""
    X = np.tile([[0.0], [1.0], [2.0], [3.0]], (30, 1))
    y, qid = np.tile([1.0, 1.0, 1.0, 0.0], 30), np.repeat(np.arange(30), 4)
    settings = {"n_estimators": 5, "learning_rate": 1.0, "reg_lambda": 0.0, "min_child_samples": 1, "num_leaves": 4}
    start = BoostedRanker("mart", **settings).fit(X, np.tile([16.0, 8, 0, 8], 30), qid=qid)
    model = BoostedRanker("partition", top=2, **settings).fit(X, y, qid=qid, init_model=start)
    made = make_objective("partition", y, np.arange(31) * 4, top=2)
    losses = [made.value(scores) for scores in model.staged_predict(X)]
    assert (np.diff(losses) <= 1e-4).all()
    assert np.abs(model.predict(X)).max() < 100.0


def test_newton_leaves_increase_the_likelihood(data: RankingData) -> None:
    model = BoostedRanker(**{**SETTINGS, "n_estimators": 20}, learning_rate=0.5).fit(data)
    made = make_objective("partition", data.y, data.offsets)
    losses = [made.value(scores) for scores in model.staged_predict(data.X)]
    assert (np.diff(losses) < 0).all()


@pytest.mark.parametrize("leaves", ["newton", "lightgbm"])
@pytest.mark.parametrize("name", ["partition", "mart"])
def test_plain_lightgbm_gives_the_same_scores(name: str, leaves: str, data: RankingData, tmp_path: Path) -> None:
    model = BoostedRanker(name, **SETTINGS, leaves=leaves).fit(data)
    model.save(tmp_path / "model")
    plain = lgb.Booster(model_file=str(tmp_path / "model" / "model.txt"))
    assert (plain.predict(data.X) == model.predict(data.X)).all()


def test_evaluation_during_training_matches_the_model(data: RankingData, other: RankingData) -> None:
    for name, leaves in (
        ("partition", "newton"),
        ("partition", "lightgbm"),
        ("mart", "newton"),
        ("lambdamart", "auto"),
        ("mcrank", "auto"),
    ):
        model = BoostedRanker(name, **SETTINGS, leaves=leaves, eval_metric=["ndcg@10", "tau-b"])
        model.fit(data, eval_set=[other, data])
        assert set(model.evals_result_) == {"valid_0", "valid_1"}
        for rounds, scores in enumerate(model.staged_predict(other.X)):
            value = ndcg(scores, other.y, k=10, offsets=other.offsets)
            assert model.evals_result_["valid_0"]["ndcg@10"][rounds] == pytest.approx(value, abs=1e-9)


def test_leaves_are_found_from_the_change_of_scores(data: RankingData) -> None:
    model = BoostedRanker(**SETTINGS, leaves="lightgbm").fit(data)
    booster, rows = model.booster_, ListedRows(data.X, data.y, Lists(data.offsets), np.ones(len(data)))
    truth = booster.predict(data.X, start_iteration=2, num_iteration=1, pred_leaf=True).reshape(-1)
    before = booster.predict(data.X, num_iteration=2, raw_score=True)
    values = np.array([booster.get_leaf_output(2, u) for u in range(int(truth.max()) + 1)])
    tracked = _TrackedScores(rows, None, 0.0)
    tracked.cached = before
    assert (_find_leaves(tracked, before + values[truth], values, booster, 2) == truth).all()
    values[1] = values[0]  # two leaves with the same change
    assert (_find_leaves(tracked, before + values[truth], values, booster, 2) == truth).all()


def test_early_stopping_keeps_the_best_round(data: RankingData, other: RankingData) -> None:
    model = BoostedRanker(**{**SETTINGS, "n_estimators": 200}, learning_rate=0.5, early_stopping_rounds=5)
    model.fit(data, eval_set=(other.X, other.y, other.qid))
    history = model.evals_result_["valid"]["ndcg@10"]
    assert model.best_iteration_ == int(np.argmax(history)) + 1
    assert len(history) == model.best_iteration_ + 5
    assert model.score(other.X, other.y, qid=other.qid) == pytest.approx(max(history), abs=1e-12)


def assert_one_model(model: BoostedRanker, X: Any, folder: Path) -> None:
    """predict, LightGBM's own prediction, the sum of SHAP values and the model on disk agree."""
    model.save(folder)
    plain = lgb.Booster(model_file=folder / "model.txt")
    scores = model.predict(X)
    assert (model.booster_.predict(X) == scores).all()
    assert (plain.predict(X) == scores).all()
    assert (BoostedRanker.load(folder).predict(X) == scores).all()
    for booster in (model.booster_, plain):
        np.testing.assert_allclose(booster.predict(X, pred_contrib=True).sum(axis=1), scores, atol=1e-12)


STOPPED: dict[str, Any] = {**SETTINGS, "n_estimators": 200, "learning_rate": 0.5, "early_stopping_rounds": 5}


@pytest.mark.parametrize("name", ["partition", "mart", "lambdamart", "listmle"])
def test_early_stopping_removes_later_rounds(name: str, data: RankingData, other: RankingData, tmp_path: Path) -> None:
    model = BoostedRanker(name, **STOPPED).fit(data, eval_set=other)
    assert len(model.evals_result_["valid"]["ndcg@10"]) == model.best_iteration_ + 5
    assert model.booster_.current_iteration() == model.best_iteration_
    assert len(list(model.staged_predict(other.X[:3]))) == model.best_iteration_
    assert_one_model(model, other.X, tmp_path / "model")


def test_early_stopping_by_a_callback_keeps_the_best_round(
    data: RankingData, other: RankingData, tmp_path: Path
) -> None:
    model = BoostedRanker(**{**STOPPED, "early_stopping_rounds": None})
    model.fit(data, eval_set=other, callbacks=[lgb.early_stopping(5, verbose=False)])
    expected = BoostedRanker(**STOPPED).fit(data, eval_set=other)
    assert model.best_iteration_ == expected.best_iteration_ == model.booster_.current_iteration()
    assert (model.predict(other.X) == expected.predict(other.X)).all()
    assert_one_model(model, other.X, tmp_path / "model")


def test_early_stopping_works_with_a_checkpoint(data: RankingData, other: RankingData, tmp_path: Path) -> None:
    """Interrupted, resumed, and called again once finished."""
    keep: dict[str, Any] = {"eval_set": other, "checkpoint_every": 4}
    whole = BoostedRanker(**STOPPED).fit(data, **keep, checkpoint=tmp_path / "whole")
    BoostedRanker(**{**STOPPED, "n_estimators": 4}).fit(data, **keep, checkpoint=tmp_path / "part")
    for _ in range(2):
        resumed = BoostedRanker(**STOPPED).fit(data, **keep, checkpoint=tmp_path / "part")
        assert resumed.booster_.current_iteration() == resumed.best_iteration_ == whole.best_iteration_
        assert (resumed.predict(other.X) == whole.predict(other.X)).all()
        assert_one_model(resumed, other.X, tmp_path / "model")


def test_models_with_rounds_beyond_the_best_can_be_loaded(
    data: RankingData, other: RankingData, tmp_path: Path
) -> None:
    """Earlier versions saved all rounds and the number of the best one."""
    model = BoostedRanker(**SETTINGS).fit(data, eval_set=other)
    model.save(tmp_path / "model")
    path = tmp_path / "model" / "plackett.json"
    description = json.loads(path.read_text())
    description["parameters"]["early_stopping_rounds"] = 3
    description["state"]["best_iteration"] = 5
    del description["state"]["initial_iterations"]
    path.write_text(json.dumps(description))
    loaded = BoostedRanker.load(tmp_path / "model")
    assert (loaded.predict(other.X) == model.predict(other.X, num_iteration=5)).all()
    assert (loaded.initial_iterations_, loaded.best_iteration_, loaded.booster_.current_iteration()) == (0, 5, 5)
    assert_one_model(loaded, other.X, tmp_path / "again")


@pytest.mark.parametrize("name", ["partition", "lambdamart"])
def test_continued_model_keeps_its_initial_rounds(
    name: str, data: RankingData, other: RankingData, tmp_path: Path
) -> None:
    first = BoostedRanker(name, **{**SETTINGS, "n_estimators": 12}).fit(data)
    model = BoostedRanker(name, **STOPPED).fit(data, eval_set=other, init_model=first)
    history = model.evals_result_["valid"]["ndcg@10"]
    assert model.initial_iterations_ == 12
    assert model.best_iteration_ == 12 + int(np.argmax(history)) + 1 == model.booster_.current_iteration()
    assert model.score(other.X, other.y, qid=other.qid) == pytest.approx(max(history), abs=1e-12)
    assert_one_model(model, other.X, tmp_path / "model")
    all_rounds = BoostedRanker(name, **{**SETTINGS, "n_estimators": 9}).fit(data, eval_set=other, init_model=first)
    best = all_rounds.predict(other.X, num_iteration=all_rounds.best_iteration_)
    expected = max(all_rounds.evals_result_["valid"]["ndcg@10"])
    assert ndcg(best, other.y, k=10, offsets=other.offsets) == pytest.approx(expected, abs=1e-12)


def test_continued_training_starts_from_the_best_rounds_of_lightgbm(data: RankingData) -> None:
    """LightGBM predicts with the best rounds of a model stopped early, so training continues from those."""
    first = BoostedRanker(**{**SETTINGS, "n_estimators": 6}).fit(data)
    best = BoostedRanker(**{**SETTINGS, "n_estimators": 4}).fit(data)
    first.booster_.best_iteration = 4
    models = [BoostedRanker(**SETTINGS).fit(data, init_model=start) for start in (first.booster_, best)]
    assert models[0].booster_.num_trees() == models[1].booster_.num_trees() == 12
    assert (models[0].predict(data.X) == models[1].predict(data.X)).all()


def test_rows_can_be_in_any_order(data: RankingData, rng: np.random.Generator) -> None:
    order = rng.permutation(len(data.y))
    shuffled = BoostedRanker(**SETTINGS).fit(data.X[order], data.y[order], qid=data.qid[order])
    # With lists in another order, sums differ by rounding, which may move a split but not change the quality.
    plain = BoostedRanker(**SETTINGS).fit(data.X, data.y, group=np.diff(data.offsets))
    assert shuffled.score(data.X, data.y, qid=data.qid) == pytest.approx(
        plain.score(data.X, data.y, group=np.diff(data.offsets)), abs=0.02
    )
    places = plain.rank(data.X[order], qid=data.qid[order])
    expected = plain.rank(data.X, qid=data.qid)[order]
    scores = plain.predict(data.X)
    untied = np.array([(scores[data.qid == q] == s).sum() == 1 for q, s in zip(data.qid, scores, strict=True)])[order]
    assert (places[untied] == expected[untied]).all()


def test_the_same_seed_gives_the_same_model(data: RankingData) -> None:
    options = {**SETTINGS, "subsample": 0.7, "colsample_bytree": 0.5}
    first, second = (BoostedRanker(**options).fit(data).predict(data.X) for _ in range(2))
    third = BoostedRanker(**{**options, "random_state": 1}).fit(data).predict(data.X)
    assert (first == second).all()
    assert (first != third).any()


def test_weighted_list_counts_as_repeated(data: RankingData) -> None:
    """A list of weight 2 counts as two lists."""
    part = data.select(range(20))
    twice = data.select([*range(20), *range(10)])
    twice = RankingData(twice.X, twice.y, np.repeat(np.arange(30), np.diff(twice.offsets)), twice.offsets)
    weights = np.repeat([2.0] * 10 + [1.0] * 10, np.diff(part.offsets))
    bins = {"min_sum_hessian_in_leaf": 0, "max_bin": 5000, "min_data_in_bin": 1}  # one bin per value
    one = {**SETTINGS, "n_estimators": 1, "min_child_samples": 1, "lightgbm_params": bins}
    weighted = BoostedRanker(**one).fit(part.X, part.y, group=np.diff(part.offsets), sample_weight=weights)
    repeated = BoostedRanker(**one).fit(twice)
    np.testing.assert_allclose(weighted.predict(part.X), repeated.predict(part.X), rtol=1e-6)


def test_contributions_sum_to_the_score_and_importances_find_features(data: RankingData) -> None:
    model = BoostedRanker(**SETTINGS).fit(data)
    parts = model.predict(data.X, contributions=True)
    assert parts.shape == (len(data.y), data.X.shape[1] + 1)
    np.testing.assert_allclose(parts.sum(axis=1), model.predict(data.X), atol=1e-9)
    assert model.feature_importances_.sum() == pytest.approx(1.0)
    assert model.feature_importances_[:7].sum() > 0.9  # the others are noise


def test_continued_training_adds_trees(data: RankingData) -> None:
    first = BoostedRanker(**{**SETTINGS, "n_estimators": 4}).fit(data)
    more = BoostedRanker(**{**SETTINGS, "n_estimators": 4}).fit(data, init_model=first)
    at_once = BoostedRanker(**SETTINGS).fit(data)
    assert more.booster_.num_trees() == 8
    np.testing.assert_allclose(more.predict(data.X), at_once.predict(data.X), atol=1e-9)
    with pytest.raises(ValueError, match="init_model must be"):
        BoostedRanker(**SETTINGS).fit(data, init_model=3)


def test_sparse_and_missing_values_are_accepted(data: RankingData) -> None:
    X = data.X.copy()
    X[::7, 0] = np.nan
    model = BoostedRanker(**SETTINGS).fit(X, data.y, qid=data.qid)
    assert np.isfinite(model.predict(X)).all()
    sparse = csr_array(np.where(data.X > 0.5, data.X, 0.0))
    model = BoostedRanker(**SETTINGS).fit(sparse, data.y, qid=data.qid)
    np.testing.assert_allclose(model.predict(sparse), model.predict(sparse.toarray()))


def test_tables_are_accepted(data: RankingData) -> None:
    frame = pd.DataFrame(data.X, columns=[f"f{i}" for i in range(14)])
    frame["kind"] = pd.Categorical(np.where(data.X[:, 1] > 0, "a", "b"))
    frame.insert(0, "query", data.qid)
    model = BoostedRanker(**SETTINGS, query_column="query").fit(frame, data.y)
    assert list(model.feature_names_in_) == [f"f{i}" for i in range(14)] + ["kind"]
    assert model.booster_.feature_name() == list(model.feature_names_in_)
    scores = model.predict(frame)
    assert (scores == model.predict(frame.drop(columns="query"))).all()
    assert model.score(frame, data.y) == pytest.approx(ndcg(scores, data.y, k=10, qid=data.qid))
    assert model.rank(frame).min() == 1
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"f3": "z"}))
    narrow = pl.DataFrame(data.X, schema=[f"f{i}" for i in range(14)])
    assert len(BoostedRanker(**SETTINGS).fit(narrow, data.y, qid=data.qid).predict(narrow)) == len(data.y)


def test_categorical_features_can_be_named(data: RankingData) -> None:
    X = data.X.copy()
    X[:, 0] = np.arange(len(X)) % 5
    labels = (X[:, 0] % 2).astype(float)  # classes 1 and 3 are best: no threshold separates them
    found = BoostedRanker(**{**SETTINGS, "n_estimators": 1, "num_leaves": 2}, categorical_features=[0])
    scores = found.fit(X, labels, qid=data.qid).predict(X)
    assert scores[labels == 1].min() > scores[labels == 0].max()


def test_other_containers_are_refused() -> None:
    ballots = Ballots(np.array([0, 1]), np.array([2.0, 1.0]), np.array([0, 2]), np.ones(1), ["a", "b"])
    with pytest.raises(ValueError, match="X must be lists of items with features, got Ballots"):
        BoostedRanker().fit(ballots)


def test_monotone_constraints_are_respected(data: RankingData) -> None:
    constraints = [1] + [0] * 13
    values = np.linspace(data.X[:, 0].min(), data.X[:, 0].max(), 50)
    grid = np.repeat(data.X[:40], 50, axis=0)  # 40 rows with 50 values of the first feature each
    grid[:, 0] = np.tile(values, 40)
    options = {**SETTINGS, "n_estimators": 40, "num_leaves": 15}
    with pytest.warns(UserWarning, match="leaves hold LightGBM's values, which monotone_constraints needs"):
        model = BoostedRanker(**options, monotone_constraints=constraints).fit(data)
    assert (np.diff(model.predict(grid).reshape(40, 50)) >= 0).all()
    free = BoostedRanker(**options).fit(data)
    assert (np.diff(free.predict(grid).reshape(40, 50)) < 0).any()
    for bad in ([1], [2] + [0] * 13, ["1"] + [0] * 13, ["0 machines=127.0.0.1:1"] * 14):
        with pytest.raises(ValueError, match="monotone_constraints must hold -1, 0 or 1 for each of 14 features"):
            BoostedRanker(**SETTINGS, monotone_constraints=bad).fit(data)
    free = BoostedRanker(**SETTINGS, leaves="newton", monotone_constraints=[0] * 14).fit(data)
    assert (free.predict(data.X) == BoostedRanker(**SETTINGS).fit(data).predict(data.X)).all()


def test_lightgbm_callbacks_are_called(data: RankingData, other: RankingData) -> None:
    recorded: dict[str, Any] = {}
    rates = lgb.reset_parameter(learning_rate=lambda i: 0.5 if i == 0 else 1e-12)
    model = BoostedRanker(**SETTINGS).fit(data, eval_set=other, callbacks=[lgb.record_evaluation(recorded), rates])
    assert recorded["valid"]["ndcg@10"] == model.evals_result_["valid"]["ndcg@10"]
    one = BoostedRanker(**{**SETTINGS, "n_estimators": 1}, learning_rate=0.5).fit(data)
    np.testing.assert_allclose(model.predict(data.X), one.predict(data.X), atol=1e-9)
    stopped = BoostedRanker(**{**SETTINGS, "n_estimators": 100}, learning_rate=0.5)
    stopped.fit(data, eval_set=other, callbacks=[lgb.early_stopping(3, verbose=False)])
    assert stopped.booster_.num_trees() < 100


def test_callbacks_can_set_parameters_by_any_alias(data: RankingData) -> None:
    rates = lgb.reset_parameter(eta=[0.5, 0.25, 0.125] + [0.1] * 5)
    model = BoostedRanker(**SETTINGS).fit(data, callbacks=[rates])
    assert_newton_leaves(model, data, (0.5, 0.25, 0.125))


def test_dart_learns_and_refuses_early_stopping(data: RankingData) -> None:
    options = {**SETTINGS, "leaves": "lightgbm", "lightgbm_params": {"boosting": "dart"}}
    assert BoostedRanker(**options).fit(data).score(data.X, data.y, qid=data.qid) > 0.4
    with pytest.raises(ValueError, match="early_stopping_rounds must be None with boosting='dart'"):
        BoostedRanker(**options, early_stopping_rounds=3).fit(data, eval_set=data)


# Parameters of LightGBM


def all_names() -> dict[str, list[str]]:
    return dict(lgb.basic._ConfigAliases._get_all_param_aliases())


def test_every_lightgbm_parameter_is_classified(data: RankingData) -> None:
    table = all_names()
    assert set(ARGUMENTS) | STORED | LOCAL <= set(table) | {"gpu_device_id_list"}  # which is new in LightGBM 4.7
    assert len(ARGUMENTS) + len(STORED) + len(LOCAL) == len(set(ARGUMENTS) | STORED | LOCAL)
    known = BoostedRanker().get_params()
    for main, names in table.items():
        for name in names:
            if main in ARGUMENTS:
                assert ARGUMENTS[main] in known
                message = f"lightgbm_params must not hold '{name}', which the argument {ARGUMENTS[main]} sets"
            elif main in STORED | LOCAL:
                assert check_params({name: 1}) == {main: 1}
                continue
            else:
                message = f"lightgbm_params must not hold '{name}'"
            with pytest.raises(ValueError, match=message):
                BoostedRanker(**SETTINGS, lightgbm_params={name: 1}).fit(data)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"max_bins_": 7}, "must hold parameters of LightGBM, got 'max_bins_', which LightGBM does not know"),
        ({"max_bin": 7, "max_bins": 9}, "must hold 'max_bin' once, got 'max_bin' and 'max_bins'"),
        ({"boosting": "gbdt machines=127.0.0.1:1"}, "must not contain blanks"),
        ({"label_gain": ["1", "3\tmachines=127.0.0.1:1"]}, "must not contain blanks or control characters"),
        ({"alpha": {}}, "must hold numbers or strings, got dict"),
        ({"nodes": "127.0.0.1:1"}, "to train on several machines use fit"),
        ({"save_period": 1}, "has no effect in BoostedRanker"),
    ],
)
def test_bad_lightgbm_parameters_are_refused(params: dict[str, Any], message: str, data: RankingData) -> None:
    with pytest.raises(ValueError, match=message):
        BoostedRanker(**SETTINGS, lightgbm_params=params).fit(data)


def test_untrusted_model_cannot_set_files_or_connections(data: RankingData, tmp_path: Path) -> None:
    """Parameters that make a later fit open something are refused on loading, under every LightGBM alias."""
    path = tmp_path / "model"
    harmless = {"max_bins": 63, "boosting_type": "gbdt", "feature_fraction_bynode": 0.5}
    BoostedRanker(**SETTINGS, lightgbm_params=harmless).fit(data).save(path)
    good = json.loads((path / "plackett.json").read_text())
    loaded = BoostedRanker.load(path)
    assert loaded.lightgbm_params == harmless
    loaded.fit(data)
    hostile: list[dict[str, Any]] = [
        {name: "127.0.0.1:9"}
        for main, names in all_names().items()
        for name in names
        if main not in STORED | set(ARGUMENTS)
    ]
    named = {name for params in hostile for name in params}
    for kind in ("machines", "workers", "port", "num_machine", "mlist", "fs", "forcedbins_filename", "config_file",
                 "model_in", "model_out", "train_data", "test", "parser_config_file", "is_save_binary", "convert_model",
                 "save_period", "pred_name", "device", "unheard_of"):  # fmt: skip
        assert kind in named or kind == "unheard_of"
    good["parameters"]["n_jobs"] = "8"
    (path / "plackett.json").write_text(json.dumps(good))
    with pytest.raises(DataError, match="n_jobs must be"):
        BoostedRanker.load(path)
    good["parameters"]["n_jobs"] = None
    hostile += [{"unheard_of": 1}, {"boosting": "gbdt machines=127.0.0.1:9"}, {"label_gain": ["1 fs=/etc/passwd"]}]
    for params in hostile:
        good["parameters"]["lightgbm_params"] = harmless | params
        (path / "plackett.json").write_text(json.dumps(good))
        with pytest.raises(DataError, match="not a readable model"):
            BoostedRanker.load(path)
        with pytest.raises(DataError, match="not a readable model"):
            load_model(path)
    assert (BoostedRanker.load(path, lightgbm_params=None).predict(data.X) == loaded.predict(data.X)).any()


def test_machine_specific_parameters_are_not_saved(data: RankingData, tmp_path: Path) -> None:
    splits = tmp_path / "splits.json"
    splits.write_text('{"feature": 9, "threshold": 0.0}')
    model = BoostedRanker(**SETTINGS, lightgbm_params={"fs": str(splits), "max_bin": 63}).fit(data)
    assert model.booster_.trees_to_dataframe().split_feature[0] == "Column_9"
    with pytest.warns(
        UserWarning, match="lightgbm_params fs describe files and devices of this machine and are not stored"
    ):
        model.save(tmp_path / "model")
    assert BoostedRanker.load(tmp_path / "model").lightgbm_params == {"max_bin": 63}


# Metrics that are NaN


def test_early_stopping_refuses_nan_metrics(data: RankingData, other: RankingData, tmp_path: Path) -> None:
    nothing = RankingData(other.X, np.zeros(len(other.y)), other.qid, other.offsets)
    model = BoostedRanker(**STOPPED)
    with pytest.raises(ValueError, match=r"got NaN for ndcg@10 on the evaluation set 'valid'.*no item is relevant"):
        model.fit(data, eval_set=nothing)
    assert not hasattr(model, "booster_")
    unstopped = BoostedRanker(**SETTINGS).fit(data, eval_set=nothing)
    assert unstopped.best_iteration_ is None
    unstopped.save(tmp_path / "model")
    loaded = BoostedRanker.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.evals_result_["valid"]["ndcg@10"], [np.nan] * 8)
    np.testing.assert_array_equal(unstopped.evals_result_["valid"]["ndcg@10"], [np.nan] * 8)


# Tables that a model could be trained with but not saved


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("two\nlines", [1.0, 2.0], r"column 'two\\nlines' of X must have a name of one line"),
        ("", [1.0, 2.0], "column '' of X must have a name of one line that is not empty"),
        ("a", [1.0, np.inf], "column 'a' of X must hold finite numbers or NaN"),
        ("a", pd.Categorical(pd.to_datetime(["2020-01-01", "2021-01-01"])), "categories that are texts or finite"),
        ("a", pd.cut([0.0, 1.0], 2), "categories that are texts or finite numbers, got category: leave it out"),
        ("a", pd.Categorical([1.0, np.inf]), "categories that are texts or finite numbers"),
    ],
)
def test_columns_that_cannot_be_saved_are_refused(name: str, values: Any, message: str) -> None:
    table = pd.DataFrame({name: pd.Series(values).repeat(30).reset_index(drop=True), "b": np.arange(60.0)})
    with pytest.raises(ValueError, match=message):
        BoostedRanker(**SETTINGS).fit(table, np.arange(60) % 3, group=[60])


# scikit-learn


@pytest.mark.filterwarnings("ignore:neither qid nor group")
@pytest.mark.filterwarnings("ignore:no tree could be grown")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [BoostedRanker(n_estimators=3, min_child_samples=1)], expected_failed_checks=failures_of_rankers
)
def test_passes_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_grid_search_routes_lists(data: RankingData) -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        model = BoostedRanker(**SETTINGS).set_fit_request(qid=True).set_score_request(qid=True)
        grid = {"num_leaves": [3, 7], "objective": ["partition", "lambdamart"]}
        search = GridSearchCV(model, grid, cv=GroupKFold(3)).fit(data.X, data.y, qid=data.qid, groups=data.qid)
        assert search.best_score_ > 0.3
        found = cross_val_score(model, data.X, data.y, cv=GroupKFold(3), params={"qid": data.qid, "groups": data.qid})
        assert len(found) == 3
        pipeline = make_pipeline(StandardScaler(), model).fit(data.X, data.y, qid=data.qid)
        assert pipeline.score(data.X, data.y, qid=data.qid) > 0.3
        grouped = BoostedRanker(**SETTINGS).set_fit_request(group=True).set_score_request(group=True)
        with pytest.raises(ValueError, match="group must add up"):
            cross_val_score(grouped, data.X, data.y, params={"group": np.diff(data.offsets)}, error_score="raise")


def test_clone_keeps_parameters(data: RankingData) -> None:
    model = BoostedRanker("plrank", n_permutations=3, lightgbm_params={"max_bin": 31}, random_state=5)
    assert clone(model).get_params() == model.get_params()
    assert not hasattr(clone(model.fit(data)), "booster_")


# Saved models


def test_loaded_model_matches_the_saved_one(data: RankingData, tmp_path: Path) -> None:
    for name in ("partition", "mcrank"):
        model = BoostedRanker(name, **SETTINGS).fit(data, eval_set=data)
        for _ in range(2):  # the second time replaces the first
            model.save(tmp_path / name)
        for found in (BoostedRanker.load(tmp_path / name), load_model(tmp_path / name)):
            assert (found.predict(data.X) == model.predict(data.X)).all()
            assert found.get_params() == model.get_params()
            assert found.evals_result_ == model.evals_result_
        assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []
    with pytest.raises(sklearn.exceptions.NotFittedError):
        BoostedRanker().save(tmp_path / "unfitted")


def test_invalid_models_are_refused(data: RankingData, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a model"):
        BoostedRanker.load(tmp_path)
    with pytest.raises(DataError, match="not a model"):
        load_model(tmp_path / "nothing")
    path = tmp_path / "model"
    BoostedRanker(**SETTINGS).fit(data).save(path)
    good = (path / "plackett.json").read_text()
    trees = (path / "model.txt").read_text()
    for bad in ("", "{", "[]", "{}", good.replace('"format": 1', '"format": 99'), good.replace("n_estimators", "n_x")):
        (path / "plackett.json").write_text(bad)
        for load in (BoostedRanker.load, load_model):
            with pytest.raises(DataError):
                load(path)
    (path / "plackett.json").write_text(good)
    for bad in ("", "nonsense", trees[: len(trees) // 3]):
        (path / "model.txt").write_text(bad)
        with pytest.raises(DataError):
            BoostedRanker.load(path)
    (tmp_path / "occupied").mkdir()
    with pytest.raises(FileExistsError, match="is not a model"):
        BoostedRanker(**SETTINGS).fit(data).save(tmp_path / "occupied")


# Checkpoints


@pytest.mark.parametrize("sampling", [{}, {"subsample": 0.6, "colsample_bytree": 0.6}])
def test_resumed_training_gives_the_same_model(
    sampling: dict[str, Any], data: RankingData, other: RankingData, tmp_path: Path
) -> None:
    options = {**SETTINGS, **sampling, "n_estimators": 12}
    whole = BoostedRanker(**options).fit(data, eval_set=other, checkpoint=tmp_path / "whole", checkpoint_every=5)
    BoostedRanker(**{**options, "n_estimators": 5}).fit(
        data, eval_set=other, checkpoint=tmp_path / "part", checkpoint_every=5
    )
    resumed = BoostedRanker(**options).fit(data, eval_set=other, checkpoint=tmp_path / "part", checkpoint_every=5)
    assert resumed.booster_.model_to_string() == whole.booster_.model_to_string()
    assert resumed.evals_result_ == whole.evals_result_
    if not sampling:
        plain = BoostedRanker(**options).fit(data)
        assert (plain.predict(data.X) == whole.predict(data.X)).all()


def test_checkpoint_of_another_training_is_refused(data: RankingData, other: RankingData, tmp_path: Path) -> None:
    path = tmp_path / "state"
    BoostedRanker(**SETTINGS).fit(data, checkpoint=path, checkpoint_every=3)
    with pytest.raises(DataError, match="belongs to a different training"):
        BoostedRanker(**SETTINGS).fit(other, checkpoint=path)
    with pytest.raises(DataError, match="belongs to a different training"):
        BoostedRanker(**{**SETTINGS, "num_leaves": 5}).fit(data, checkpoint=path)
    with pytest.raises(DataError, match="belongs to a different training"):
        BoostedRanker(**SETTINGS).fit(data, checkpoint=path, init_model=BoostedRanker(**SETTINGS).fit(data))
    content = path.read_bytes()
    for size in (0, 10, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        with pytest.raises(DataError, match="not a readable checkpoint"):
            BoostedRanker(**SETTINGS).fit(data, checkpoint=path)


def test_killed_training_resumes(tmp_path: Path) -> None:
    """kill -9 between two checkpoints; the next run resumes and gives the same model."""
    code = textwrap.dedent("""
        import os, signal, sys
        from plackett import BoostedRanker
        from plackett.data import make_graded_lists
        data = make_graded_lists(60, mean_length=20, n_features=14, random_state=0)[0]
        model = BoostedRanker(n_estimators=60, num_leaves=7, min_child_samples=5, subsample=0.7, random_state=0)
        rounds = []

        def note(env):
            rounds.append(env.iteration)
            if env.iteration == int(sys.argv[2]):
                os.kill(os.getpid(), signal.SIGKILL)

        model.fit(data, checkpoint=sys.argv[1] + "/state", checkpoint_every=7, callbacks=[note])
        model.save(sys.argv[1] + "/model")
        print(rounds[0], len(rounds))
    """)
    interrupted, whole = tmp_path / "interrupted", tmp_path / "whole"
    interrupted.mkdir()
    whole.mkdir()

    def run(folder: Path, last: int) -> tuple[int, str]:
        command = [sys.executable, "-c", code, str(folder), str(last)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603 (our own code)
        return done.returncode, done.stdout.strip()

    assert run(interrupted, 24) == (-signal.SIGKILL, "")
    assert not (interrupted / "model").exists()
    assert run(interrupted, -1) == (0, "21 39")
    assert run(whole, -1) == (0, "0 60")
    assert (interrupted / "model" / "model.txt").read_bytes() == (whole / "model" / "model.txt").read_bytes()


# Bad input


@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        ({"objective": "nonsense"}, {}, "objective must be one of partition, plrank, mart"),
        ({"leaves": "x"}, {}, "leaves must be one of"),
        (
            {"objective": "lambdamart", "leaves": "newton"},
            {},
            "'lambdamart' does not support Newton leaves",
        ),
        ({"early_stopping_rounds": 5}, {}, "early_stopping_rounds needs an eval_set"),
        ({"tier_weights": "x"}, {}, "tier_weights must be"),
        ({"top": 0}, {}, "top must be"),
        ({"objective": "mart", "top": 3}, {}, "options of the objective 'mart'"),
        ({"eval_metric": "ndgc"}, {"eval_set": "data"}, "metric must be one of"),
        ({}, {"eval_set": 3}, "eval_set must be"),
        ({}, {"sample_weight": "rows"}, "constant within a list"),
        ({}, {"group": [3, 4]}, "group must add up to the number of rows"),
        ({"query_column": "q"}, {}, "query_column needs a DataFrame"),
        ({"lightgbm_params": {"max_bin": 1}}, {}, "LightGBM rejects"),
    ],
)
def test_bad_arguments_are_refused(
    options: dict[str, Any], arguments: dict[str, Any], message: str, data: RankingData
) -> None:
    given = {"qid": data.qid} if "group" not in arguments else {}
    given |= arguments
    if given.get("sample_weight") == "rows":
        given["sample_weight"] = np.arange(len(data.y)) + 1.0
    if given.get("eval_set") == "data":
        given["eval_set"] = data
    with pytest.raises(ValueError, match=message):
        BoostedRanker(**{**SETTINGS, **options}).fit(data.X, data.y, **given)


def test_bad_labels_are_refused(data: RankingData) -> None:
    for name, change, message in (
        ("partition", np.nan, "y must be finite"),
        ("mart", -1.0, "labels must be grades"),
        ("mcrank", 0.5, "y must hold whole-number grades from 0 to 60"),
        ("lambdamart", -1.0, "LightGBM rejects"),
    ):
        labels = data.y.copy()
        labels[3] = change
        with pytest.raises(ValueError, match=message):
            BoostedRanker(name, **SETTINGS).fit(data.X, labels, qid=data.qid)


def test_lists_without_any_preference_are_accepted(data: RankingData) -> None:
    with pytest.warns(UserWarning, match="no tree could be grown"):
        model = BoostedRanker(**SETTINGS).fit(data.X, np.ones(len(data.y)), qid=data.qid)
    assert (model.predict(data.X) == 0).all()


def test_other_features_at_prediction_are_refused(data: RankingData) -> None:
    model = BoostedRanker(**SETTINGS).fit(data)
    with pytest.raises(ValueError, match="14 features"):
        model.predict(data.X[:, :5])


def test_fit_without_lists_warns(data: RankingData) -> None:
    with pytest.warns(UserWarning, match="all rows are taken as one list"):
        BoostedRanker(**SETTINGS).fit(data.X, data.y)


def test_models_are_made_by_name() -> None:
    assert isinstance(make_model("boosted", {"top": 5}), BoostedRanker)
    with pytest.raises(ValueError, match="model must be one of boosted"):
        make_model("x", {})
    with pytest.raises(ValueError, match="parameters of boosted"):
        make_model("boosted", {"leafs": 3})
    assert "partition" in objective_names()


# Threads


@pytest.fixture
def threads_used(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int | None]]:
    """The number of threads that training and prediction pass to LightGBM."""
    used: list[tuple[str, int | None]] = []
    train, predict = lgb.train, lgb.Booster.predict

    def training(params: dict[str, Any], *arguments: Any, **options: Any) -> Any:
        used.append(("fit", params.get("num_threads")))
        return train(params, *arguments, **options)

    def predicting(self: lgb.Booster, X: Any, **options: Any) -> Any:
        used.append(("predict", options.get("num_threads")))
        return predict(self, X, **options)

    monkeypatch.setattr(lgb, "train", training)
    monkeypatch.setattr(lgb.Booster, "predict", predicting)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    plackett.set_num_threads(3)
    yield used
    plackett.set_num_threads(None)


def test_number_of_threads_follows_n_jobs_and_size(
    threads_used: list[tuple[str, int | None]], data: RankingData
) -> None:
    X, y = np.tile(data.X, (15, 1)), np.tile(data.y, 15)
    assert 2 * _CELLS < X.size < 3 * _CELLS
    options = {**SETTINGS, "n_estimators": 1}
    for n_jobs, small_fit, large_fit, small_predict in (
        (None, 1, 2, 1),
        (2, 2, 2, 2),
        (1, 1, 1, 1),
        (-1, 3, 3, 3),
        (-2, 2, 2, 2),
        (10**6, 4, 4, 4),  # never more than the number of processors
    ):
        model = BoostedRanker("mart", **options, n_jobs=n_jobs).fit(data)
        model.fit(X, y, group=[len(y)])
        model.predict(data.X)
        model.predict(data.X, contributions=True)
        next(model.staged_predict(data.X))
        expected = [("fit", small_fit), ("fit", large_fit)] + [("predict", small_predict)] * 3
        assert threads_used == expected, n_jobs
        threads_used.clear()
    model = BoostedRanker("mart", **{**options, "n_estimators": 20}).fit(data)
    model.predict(data.X)
    plackett.set_num_threads(1)
    model.predict(data.X)
    assert threads_used == [("fit", 1), ("predict", 2), ("predict", 1)]
    assert 2 * _VISITS < 20 * len(data.y) < 3 * _VISITS
    threads_used.clear()
    model.fit(data, init_model=model)
    assert {number for _, number in threads_used} == {1}


def test_saved_models_contain_no_code(data: RankingData, tmp_path: Path) -> None:
    model = BoostedRanker(**SETTINGS, tier_weights=lambda upper, lower, places: upper - lower).fit(data)  # noqa: ARG005
    model.save(tmp_path / "model")
    assert json.loads((tmp_path / "model" / "plackett.json").read_text())["parameters"]["tier_weights"] is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (BoostedRanker.load(tmp_path / "model").predict(data.X) == model.predict(data.X)).all()
