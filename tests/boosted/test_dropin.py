"""Objectives and metrics inside LightGBM and XGBoost."""

from typing import Any

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

from plackett import BoostedRanker
from plackett.boosted import lightgbm_metric, lightgbm_objective, make_objective, xgboost_metric, xgboost_objective
from plackett.data import RankingData, make_graded_lists
from plackett.metrics import ndcg

# Without force_row_wise, LightGBM times both methods and takes the faster one.
PARAMS = {
    "num_leaves": 7, "verbose": -1, "metric": "None", "min_data_in_leaf": 5, "deterministic": True, "seed": 0,
    "force_row_wise": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def data() -> RankingData:
    return make_graded_lists(60, mean_length=20, n_features=14, random_state=0)[0]


def value(scores: Any, data: RankingData) -> Any:
    return ndcg(scores, data.y, k=10, offsets=data.offsets)


@pytest.mark.parametrize("name", ["partition", "plrank", "c-klmart", "lower_bound"])
def test_lightgbm_train_accepts_objectives_and_metrics(name: str, data: RankingData) -> None:
    dataset = lgb.Dataset(data.X, data.y, group=np.diff(data.offsets))
    recorded: dict[str, Any] = {}
    params = {**PARAMS, "objective": lightgbm_objective(name, **({"random_state": 0} if name == "plrank" else {}))}
    booster = lgb.train(
        params, dataset, 10, valid_sets=[dataset], valid_names=["train"], feval=lightgbm_metric("ndcg@10"),
        callbacks=[lgb.record_evaluation(recorded)],
    )  # fmt: skip
    scores = booster.predict(data.X)
    assert value(scores, data) > value(np.zeros(len(data.y)), data) + 0.1
    assert recorded["train"]["ndcg@10"][-1] == pytest.approx(value(scores, data), abs=1e-12)


def test_matches_the_estimator_with_lightgbm_leaves(data: RankingData) -> None:
    dataset = lgb.Dataset(data.X, data.y, group=np.diff(data.offsets))
    params = {**PARAMS, "objective": lightgbm_objective("partition"), "lambda_l2": 1.0}
    booster = lgb.train(params, dataset, 5)
    model = BoostedRanker(n_estimators=5, num_leaves=7, min_child_samples=5, leaves="lightgbm").fit(data)
    np.testing.assert_allclose(booster.predict(data.X), model.predict(data.X), atol=1e-12)


def test_lgbm_ranker_accepts_objectives_and_metrics(data: RankingData) -> None:
    group, part = np.diff(data.offsets), data.select(range(30))
    ranker = lgb.LGBMRanker(
        objective=lightgbm_objective("partition"), n_estimators=10, num_leaves=7, verbose=-1, min_child_samples=5
    )
    ranker.fit(
        data.X, data.y, group=group, eval_X=(part.X,), eval_y=(part.y,), eval_group=[np.diff(part.offsets)],
        eval_metric=lightgbm_metric("ndcg@10"),
    )  # fmt: skip
    assert ranker.evals_result_["valid_0"]["ndcg@10"][-1] == pytest.approx(value(ranker.predict(part.X), part))


def test_weights_of_lightgbm_are_used(data: RankingData) -> None:
    lists = np.linspace(0.5, 2.0, len(data))
    rows = np.repeat(lists, np.diff(data.offsets))
    dataset = lgb.Dataset(data.X, data.y, group=np.diff(data.offsets), weight=rows).construct()
    gradient, hessian = lightgbm_objective("partition")(np.zeros(len(data.y)), dataset)
    wanted = make_objective("partition", data.y, data.offsets, lists.astype(np.float32)).derivatives(
        np.zeros(len(data.y))
    )
    np.testing.assert_allclose(gradient, wanted[0], atol=1e-12)
    np.testing.assert_allclose(hessian, wanted[1], atol=1e-12)
    uneven = lgb.Dataset(data.X, data.y, group=np.diff(data.offsets), weight=np.arange(len(data.y)) + 1.0).construct()
    with pytest.raises(ValueError, match="constant within a list"):
        lightgbm_objective("partition")(np.zeros(len(data.y)), uneven)


def test_objective_can_be_reused_with_other_data(data: RankingData) -> None:
    objective = lightgbm_objective("partition")
    sets = [data, data.select(range(10))]
    for part in sets:
        dataset = lgb.Dataset(part.X, part.y, group=np.diff(part.offsets)).construct()
        assert len(objective(np.zeros(len(part.y)), dataset)[0]) == len(part.y)


@pytest.mark.parametrize("by", ["group", "qid"])
def test_xgboost_train_accepts_objectives_and_metrics(by: str, data: RankingData) -> None:
    lists = {"group": np.diff(data.offsets)} if by == "group" else {"qid": data.qid}
    matrix = xgb.DMatrix(data.X, data.y, **lists)
    recorded: dict[str, Any] = {}
    booster = xgb.train(
        {"max_depth": 3, "min_child_weight": 1e-3, "disable_default_eval_metric": 1, "base_score": 0.0},
        matrix,
        10,
        obj=xgboost_objective("partition"),
        custom_metric=xgboost_metric("ndcg@10"),
        evals=[(matrix, "train")],
        evals_result=recorded,
        verbose_eval=False,
    )
    found = value(booster.predict(matrix), data)
    assert found > value(np.zeros(len(data.y)), data) + 0.1
    # XGBoost passes metrics on as text with six digits.
    assert recorded["train"]["ndcg@10"][-1] == pytest.approx(found, abs=1e-5)


def test_default_min_child_weight_of_xgboost_prevents_splits() -> None:
    """Long lists with few relevant items have little total curvature, so min_child_weight=1 forbids most splits."""
    lists = make_graded_lists(3, mean_length=200, n_features=14, random_state=0)[0]
    matrix = xgb.DMatrix(lists.X, (lists.y >= 3).astype(float), group=np.diff(lists.offsets))
    trees = {}
    for weight in (1.0, 1e-3):
        params = {"max_depth": 3, "min_child_weight": weight, "base_score": 0.0}
        booster = xgb.train(params, matrix, 1, obj=xgboost_objective("partition"))
        trees[weight] = booster.get_dump()[0].count("leaf")
    assert trees == {1.0: 4, 1e-3: 8}


def test_xgb_regressor_accepts_objectives_with_a_group(data: RankingData) -> None:
    with pytest.raises(ValueError, match="custom objective function not supported"):
        xgb.XGBRanker(objective=xgboost_objective("partition"))
    group = np.diff(data.offsets)
    options: dict[str, Any] = {"n_estimators": 10, "max_depth": 3, "min_child_weight": 1e-3, "base_score": 0.0}
    model = xgb.XGBRegressor(objective=xgboost_objective("partition", group=group), **options).fit(data.X, data.y)
    assert value(model.predict(data.X), data) > 0.4
    with pytest.raises(ValueError, match="group must be given"):
        xgb.XGBRegressor(objective=xgboost_objective("partition"), **options).fit(data.X, data.y)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="metric must be one of"):
        lightgbm_metric("ndgc")
    with pytest.raises(ValueError, match="objective must be one of partition"):
        make_objective("lambdamart", np.ones(2), np.array([0, 2]))
