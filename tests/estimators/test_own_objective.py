"""User-defined functions as objectives: fitting, cloning, saving, loading and error handling."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest
import torch
import xgboost
from sklearn.base import clone

from plackett import BoostedRanker, LinearRanker
from plackett.boosted import lightgbm_objective, make_objective, xgboost_objective
from plackett.data import RankingData, make_graded_lists
from plackett.errors import DataError
from plackett.losses.registry import LOSSES, Loss, own_loss
from plackett.metrics import ndcg

SETTINGS: dict[str, Any] = {"n_estimators": 6, "num_leaves": 7, "min_child_samples": 5, "random_state": 0}


def my_listnet(scores: torch.Tensor, labels: torch.Tensor, offsets: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """ListNet written out: the cross entropy of softmax(scores) relative to softmax(labels), list by list."""
    return torch.stack(
        [
            -(torch.softmax(labels[a:b], 0) * torch.log_softmax(scale * scores[a:b], 0)).sum()
            for a, b in pairwise(offsets.tolist())
        ]
    )


def listnet_curvature(lists: Any, scale: float = 1.0) -> Any:
    assert scale == 1.0
    return LOSSES["listnet"].form("curvature")(lists)  # type: ignore[misc]


MY_LOSS: Loss = replace(own_loss(my_listnet), curvature=listnet_curvature)


@pytest.fixture(scope="module")
def data() -> RankingData:
    return make_graded_lists(25, mean_length=8, n_features=7, random_state=0)[0]


def test_trees_of_a_loss_with_a_curvature_match_the_built_in_loss(data: RankingData) -> None:
    weights = np.repeat(1.0 + np.arange(len(data)) % 3, np.diff(data.offsets))
    mine = BoostedRanker(MY_LOSS, **SETTINGS).fit(data, sample_weight=weights, eval_set=data)
    known = BoostedRanker("listnet", **SETTINGS).fit(data, sample_weight=weights, eval_set=data)
    np.testing.assert_allclose(mine.predict(data), known.predict(data), atol=1e-9)
    np.testing.assert_allclose(mine.evals_result_["valid"]["ndcg@10"], known.evals_result_["valid"]["ndcg@10"])


def test_function_without_a_curvature_has_a_unit_second_derivative(data: RankingData, rng: np.random.Generator) -> None:
    weights = 1.0 + np.arange(len(data)) % 3
    scores = rng.standard_normal(len(data.y))
    mine = make_objective(my_listnet, data.y, data.offsets, weights)
    known = make_objective("listnet", data.y, data.offsets, weights)
    gradient, curvature = mine.derivatives(scores)
    np.testing.assert_allclose(mine.value(scores), known.value(scores), rtol=1e-12)
    np.testing.assert_allclose(gradient, known.derivatives(scores)[0], atol=1e-12)
    np.testing.assert_array_equal(curvature, np.repeat(weights, np.diff(data.offsets)))
    model = BoostedRanker(my_listnet, **SETTINGS).fit(data)
    assert model.score(data) > ndcg(np.zeros(len(data.y)), data.y, k=10, offsets=data.offsets) + 0.05


def test_coefficients_match_the_built_in_loss(data: RankingData) -> None:
    mine, known = (LinearRanker(objective, l2=0.1).fit(data) for objective in (my_listnet, "listnet"))
    np.testing.assert_allclose(mine.coef_, known.coef_, atol=1e-6)
    assert mine.loss_ == pytest.approx(known.loss_, rel=1e-9)
    assert mine.converged_
    assert "the loss 'my_listnet' is not a likelihood" in str(mine.summary())


def test_options_reach_the_function(data: RankingData) -> None:
    doubled = LinearRanker(my_listnet, objective_options={"scale": 2.0}, standardise=False, tol=1e-7).fit(data)
    plain = LinearRanker(my_listnet, standardise=False, tol=1e-7).fit(data)
    np.testing.assert_allclose(2.0 * doubled.coef_, plain.coef_, atol=1e-5)
    for model in (LinearRanker, BoostedRanker):
        with pytest.raises(ValueError, match="objective_options of my_listnet must be among scale, got nonsense"):
            model(my_listnet, objective_options={"nonsense": 1}).fit(data)


def test_other_libraries_accept_functions(data: RankingData) -> None:
    params = {"verbosity": -1, "num_leaves": 7, "min_data_in_leaf": 5, "seed": 0}
    group = np.diff(data.offsets)
    found = [
        lgb.train(params | {"objective": lightgbm_objective(one)}, lgb.Dataset(data.X, data.y, group=group), 4)
        for one in (MY_LOSS, "listnet")
    ]
    np.testing.assert_allclose(found[0].predict(data.X), found[1].predict(data.X), atol=1e-9)
    matrix = xgboost.DMatrix(data.X, data.y, group=group)
    trees = [
        xgboost.train({"max_depth": 3, "min_child_weight": 1e-3}, matrix, 3, obj=xgboost_objective(one))
        for one in (MY_LOSS, "listnet")
    ]
    np.testing.assert_allclose(trees[0].predict(matrix), trees[1].predict(matrix), atol=1e-4)


def wrong_shape(scores: torch.Tensor, labels: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    del labels, offsets
    return scores


def no_tensor(scores: torch.Tensor, labels: torch.Tensor, offsets: torch.Tensor) -> Any:
    del scores, labels, offsets
    return 1.0


def detached(scores: torch.Tensor, labels: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    return my_listnet(scores.detach(), labels, offsets)


@pytest.mark.parametrize("model", [BoostedRanker(**SETTINGS), LinearRanker()], ids=["trees", "linear"])
@pytest.mark.parametrize(
    ("function", "message"),
    [
        (wrong_shape, r"wrong_shape must return one value per list, shape \(25,\), got"),
        (no_tensor, r"no_tensor must return one value per list, shape \(25,\), got float"),
        (detached, "'detached' must compute its value from the scores with torch operations alone"),
    ],
)
def test_functions_that_are_not_losses_are_refused(model: Any, function: Any, message: str, data: RankingData) -> None:
    with pytest.raises(ValueError, match=message):
        clone(model).set_params(objective=function).fit(data)


def test_curvature_of_the_wrong_shape_is_refused(data: RankingData) -> None:
    loss = replace(MY_LOSS, curvature=lambda lists: np.ones(lists.count))
    with pytest.raises(ValueError, match="the curvature of my_listnet must hold one value per item"):
        BoostedRanker(loss, **SETTINGS).fit(data)


@pytest.mark.parametrize("model", [BoostedRanker(**SETTINGS), LinearRanker(l2=0.1)], ids=["trees", "linear"])
@pytest.mark.parametrize("objective", [my_listnet, MY_LOSS], ids=["function", "Loss"])
def test_saved_models_contain_only_the_name(model: Any, objective: Any, data: RankingData, tmp_path: Path) -> None:
    model = clone(model).set_params(objective=objective)
    assert clone(model).get_params()["objective"] == objective
    model.fit(data).save(tmp_path / "model")
    description = json.loads((tmp_path / "model" / "plackett.json").read_text())
    assert description["parameters"]["objective"] == "my_listnet"
    assert description["functions"] == {"objective": "my_listnet"}
    loaded = type(model).load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(data), model.predict(data))
    with pytest.raises(ValueError, match=r"'my_listnet' is a function.*pass it again, load\(path, objective="):
        loaded.fit(data)
    loaded.save(tmp_path / "again")
    again = type(model).load(tmp_path / "again", objective=objective).fit(data)
    np.testing.assert_allclose(again.predict(data), model.predict(data), atol=1e-9)
    loaded.set_params(objective="listnet").fit(data)

    del description["functions"]
    (tmp_path / "model" / "plackett.json").write_text(json.dumps(description))
    with pytest.raises(DataError, match="objective must be one of"):
        type(model).load(tmp_path / "model")


def test_function_named_like_a_built_in_loss_is_not_confused_with_it(data: RankingData, tmp_path: Path) -> None:
    def listnet(scores: torch.Tensor, labels: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        return my_listnet(scores, labels, offsets)

    LinearRanker(listnet, l2=0.1).fit(data).save(tmp_path / "model")
    loaded = LinearRanker.load(tmp_path / "model")
    with pytest.raises(ValueError, match="'listnet' is a function, which is not saved"):
        loaded.fit(data)


def test_checkpoint_of_another_function_is_refused(data: RankingData, tmp_path: Path) -> None:
    whole = BoostedRanker(my_listnet, **SETTINGS).fit(data, checkpoint=tmp_path / "a", checkpoint_every=2)
    BoostedRanker(my_listnet, **{**SETTINGS, "n_estimators": 4}).fit(
        data, checkpoint=tmp_path / "b", checkpoint_every=2
    )
    resumed = BoostedRanker(my_listnet, **SETTINGS).fit(data, checkpoint=tmp_path / "b", checkpoint_every=2)
    np.testing.assert_array_equal(resumed.predict(data), whole.predict(data))
    with pytest.raises(DataError, match="belongs to a different training"):
        BoostedRanker(detached, **SETTINGS).fit(data, checkpoint=tmp_path / "b", checkpoint_every=2)
