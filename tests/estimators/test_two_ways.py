"""Consistency: every way to compute the scores of a model, or a metric of them, gives the same result.

CASES contains fitted models with rows to score; WAYS lists, by estimator, the ways to compute their scores. A new
estimator needs a few cases and its ways; the tests below then cover it too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from typer.testing import CliRunner

from plackett import BoostedRanker
from plackett.boosted import objective_names
from plackett.cli import app
from plackett.data import RankingData, dump_letor, load_scores, make_graded_lists
from plackett.estimators import load_model
from plackett.evaluation import evaluate

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Fitted:
    """A model, rows for `predict`, and their labels and lists."""

    model: Any
    X: Any
    data: RankingData

    @property
    def is_plain(self) -> bool:
        """Whether a text file can store the rows: numbers without names or categories."""
        return isinstance(self.X, np.ndarray)


@dataclass(frozen=True)
class Setup:
    """Input of a way to compute scores: a fitted model, where it is saved, and a folder to write to."""

    fitted: Fitted
    saved: Path
    folder: Path


Way = Callable[[Setup], "Floats | None"]
"""The scores of the rows, or None where the way is not open to the model."""


# Ways of all rankers


def reloaded(setup: Setup) -> Floats:
    return np.asarray(type(setup.fitted.model).load(setup.saved).predict(setup.fitted.X))


def loaded_by_kind(setup: Setup) -> Floats:
    return np.asarray(load_model(setup.saved).predict(setup.fitted.X))


def saved_again(setup: Setup) -> Floats:
    load_model(setup.saved).save(setup.folder / "again")
    return np.asarray(load_model(setup.folder / "again").predict(setup.fitted.X))


def row_by_row(setup: Setup) -> Floats:
    X = setup.fitted.X
    parts = [X[:1], X[1:4], X[4:]]
    return np.concatenate([setup.fitted.model.predict(part) for part in parts])


def in_another_order(setup: Setup) -> Floats:
    X = setup.fitted.X
    order = np.random.default_rng(5).permutation(len(X))
    scores = np.empty(len(X))
    scores[order] = setup.fitted.model.predict(X.iloc[order] if hasattr(X, "iloc") else X[order])
    return scores


def on_the_command_line(setup: Setup) -> Floats | None:
    if not setup.fitted.is_plain:
        return None
    rows, scores = setup.folder / "rows.txt", setup.folder / "scores.txt"
    dump_letor(setup.fitted.data, rows)
    done = CliRunner().invoke(app, ["predict", str(setup.saved), str(rows), "-o", str(scores)])
    assert done.exit_code == 0, done.output
    return np.asarray(load_scores(scores, setup.fitted.data))


def on_dask(setup: Setup) -> Floats | None:
    array = pytest.importorskip("dask.array")
    if not setup.fitted.is_plain:
        return None
    scores = setup.fitted.model.predict(array.from_array(setup.fitted.X, chunks=(37, -1)))
    return np.asarray(scores.compute(scheduler="synchronous"))


# Ways of boosted trees


def _scores_of_lightgbm(setup: Setup, trees: lgb.Booster) -> Floats:
    """The scores that plain LightGBM gives.

    mcrank: it gives probabilities of grades, and the score is the expected gain. Objectives with a link function, such
    as binary: the score is the number before the link, which LightGBM gives with raw_score=True.
    """
    model = setup.fitted.model
    found = trees.predict(setup.fitted.X, raw_score=model.objective in _LINKED)
    return np.asarray(found if model.gains_ is None else found @ np.array(model.gains_))


def booster(setup: Setup) -> Floats:
    return _scores_of_lightgbm(setup, setup.fitted.model.booster_)


def plain_lightgbm(setup: Setup) -> Floats:
    return _scores_of_lightgbm(setup, lgb.Booster(model_file=setup.saved / "model.txt"))


def _sum_of_shap_values(setup: Setup, trees: lgb.Booster) -> Floats | None:
    model = setup.fitted.model
    if model.gains_ is not None:
        return None
    # For forests, LightGBM predicts the mean of the trees and explains their sum.
    explained = trees.current_iteration() if "rf" in (model.lightgbm_params or {}).values() else 1
    return np.asarray(trees.predict(setup.fitted.X, pred_contrib=True).sum(axis=1)) / explained


def shap_values(setup: Setup) -> Floats | None:
    return _sum_of_shap_values(setup, setup.fitted.model.booster_)


def shap_values_of_the_text(setup: Setup) -> Floats | None:
    return _sum_of_shap_values(setup, lgb.Booster(model_file=setup.saved / "model.txt"))


def contributions(setup: Setup) -> Floats | None:
    if setup.fitted.model.gains_ is not None:
        return None
    return np.asarray(setup.fitted.model.predict(setup.fitted.X, contributions=True).sum(axis=1))


def last_stage(setup: Setup) -> Floats:
    return list(setup.fitted.model.staged_predict(setup.fitted.X))[-1]


_ALL = (reloaded, loaded_by_kind, saved_again, row_by_row, in_another_order, on_the_command_line)

WAYS: dict[type, tuple[Way, ...]] = {
    BoostedRanker: (
        *_ALL, on_dask, booster, plain_lightgbm, shap_values, shap_values_of_the_text, contributions, last_stage,
    ),
}  # fmt: skip

SUMS = (shap_values, shap_values_of_the_text, contributions, last_stage, booster, plain_lightgbm)
"""Ways that add the same numbers in another order; all others must agree to the last bit."""


# Cases


def _lists(seed: int) -> RankingData:
    """Seven numeric features, and one with category codes."""
    data = make_graded_lists(40, mean_length=12, n_features=8, random_state=seed)[0]
    data.X[:, 7] = np.floor(np.abs(4.0 * data.X[:, 1])) % 5
    return data


def _with_gaps(data: RankingData) -> RankingData:
    X = data.X.copy()
    X[::5, 0] = np.nan
    X[1::7, 3] = np.nan
    return RankingData(X, data.y, data.qid, data.offsets)


def _frame(X: Any) -> pd.DataFrame:
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(X.shape[1])])
    frame["kind"] = pd.Categorical(np.where(X[:, 1] > 0.5, "a", np.where(X[:, 2] > 0, "b", "c")))
    return frame


_LINKED = ("poisson", "gamma", "tweedie", "binary", "cross_entropy", "cross_entropy_lambda")
"""LightGBM's objectives with a link function."""
_LABELS: dict[str, Callable[[Any], Any]] = {
    "gamma": lambda y: y + 1.0,
    **dict.fromkeys(("binary", "cross_entropy", "cross_entropy_lambda"), lambda y: np.where(y > 1, 1.0, 0.0)),
}
"""Labels for objectives that do not take grades from 0."""

_TREES: dict[str, Any] = {
    "n_estimators": 12, "num_leaves": 6, "min_child_samples": 4, "learning_rate": 0.4, "random_state": 0,
    "progress": False, "n_jobs": 1,
}  # fmt: skip


def boosted(
    objective: str = "partition",
    *,
    stopped: bool = False,
    continued: bool = False,
    weighted: bool = False,
    gaps: bool = False,
    frame: bool = False,
    **options: Any,
) -> Callable[[], Fitted]:
    def fit() -> Fitted:
        train, valid, test = (_with_gaps(_lists(seed)) if gaps else _lists(seed) for seed in range(3))
        labels = _LABELS.get(objective, np.asarray)(train.y)
        as_rows: Callable[[Any], Any] = _frame if frame else np.asarray
        stopping = {"n_estimators": 60, "early_stopping_rounds": 4} if stopped else {}
        model = BoostedRanker(objective, **_TREES | stopping | options)
        arguments: dict[str, Any] = {"qid": train.qid}
        if stopped:
            arguments["eval_set"] = (as_rows(valid.X), valid.y, valid.qid)
        if weighted:
            arguments["sample_weight"] = np.repeat(1.0 + np.arange(len(train)) % 3, np.diff(train.offsets))
        if continued:
            initial = BoostedRanker(objective, **_TREES | {"n_estimators": 5} | options)
            arguments["init_model"] = initial.fit(as_rows(train.X), labels, qid=train.qid)
        model.fit(as_rows(train.X), labels, **arguments)
        rounds = model.booster_.current_iteration()
        if stopped:  # otherwise it would not be such a case
            assert (
                rounds == model.best_iteration_ < (5 if continued else 0) + len(model.evals_result_["valid"]["ndcg@10"])
            )
        assert rounds > (5 if continued else 0)
        return Fitted(model, as_rows(test.X), test)

    return fit


CASES: dict[str, Callable[[], Fitted]] = {
    "partition": boosted(),
    "partition, LightGBM's leaves": boosted(leaves="lightgbm"),
    "partition, stopped": boosted(stopped=True),
    "partition, continued and stopped": boosted(stopped=True, continued=True),
    "partition, weighted, top, stopped": boosted(stopped=True, weighted=True, top=3),
    "partition, missing values": boosted(gaps=True, stopped=True),
    "partition, named columns and categories": boosted(frame=True, gaps=True, stopped=True),
    "partition, numbered categories": boosted(categorical_features=[7], lightgbm_params={"cat_smooth": 1}),
    "partition, sampled": boosted(subsample=0.6, colsample_bytree=0.6),
    "partition, monotone": boosted(leaves="lightgbm", monotone_constraints=[1, 0, 0, 0, 0, -1, 0, 0]),
    "plrank": boosted("plrank", weighted=True),
    "plrank, top, continued": boosted("plrank", top=2, continued=True, n_permutations=3),
    "mart, stopped": boosted("mart", stopped=True),
    "mart, continued": boosted("mart", continued=True, gaps=True),
    "lambdamart, stopped": boosted("lambdamart", stopped=True, weighted=True),
    "lambdamart, dart": boosted("lambdamart", lightgbm_params={"boosting_type": "dart", "drop_rate": 0.5}),
    "lambdamart, forest": boosted("lambdamart", subsample=0.5, lightgbm_params={"boost": "rf"}),
    "listnet, stopped": boosted("listnet", stopped=True, continued=True),
    "mcrank, stopped": boosted("mcrank", stopped=True),
    "mcrank": boosted("mcrank", frame=True, weighted=True),
    "mcrank, forest": boosted("mcrank", subsample=0.5, lightgbm_params={"boosting": "random_forest"}),
}
CASES |= {
    f"{name}, weighted, missing values": boosted(name, weighted=True, gaps=True)
    for name in objective_names()
    if not any(name == case.split(",")[0] for case in CASES)
}


@cache
def fitted(name: str) -> Fitted:
    return CASES[name]()


@pytest.mark.parametrize("name", CASES)
def test_all_ways_give_the_same_scores(name: str, tmp_path: Path) -> None:
    case = fitted(name)
    expected = np.asarray(case.model.predict(case.X))
    assert np.ptp(expected) > 0.1
    case.model.save(tmp_path / "model")
    for way in WAYS[type(case.model)]:
        folder = tmp_path / way.__name__
        folder.mkdir()
        found = way(Setup(case, tmp_path / "model", folder))
        if found is not None:
            tolerance = {"rtol": 0.0, "atol": 1e-12 * np.abs(expected).max()} if way in SUMS else {"rtol": 0.0}
            np.testing.assert_allclose(found, expected, **tolerance, err_msg=f"{name}: {way.__name__}")


# Metrics of the scores


def ndcg_by_hand(scores: Floats, data: RankingData, k: int = 10) -> float:
    """Items with equal scores get the mean of their gains at each of their places."""
    values = []
    for first, last in zip(data.offsets[:-1], data.offsets[1:], strict=True):
        own, gains = scores[first:last], 2.0 ** data.y[first:last] - 1.0
        place, found = 1, 0.0
        for score in sorted(set(own), reverse=True):
            tied = gains[own == score]
            found += tied.mean() * sum(1.0 / math.log2(1 + p) for p in range(place, place + len(tied)) if p <= k)
            place += len(tied)
        ideal = sum(gain / math.log2(1 + p) for p, gain in enumerate(sorted(gains, reverse=True)[:k], 1))
        if ideal > 0.0:
            values.append(found / ideal)
    return float(np.mean(values))


@pytest.mark.parametrize("name", CASES)
def test_all_ways_give_the_same_metrics(name: str) -> None:
    case = fitted(name)
    data, scores = case.data, np.asarray(case.model.predict(case.X))
    expected = ndcg_by_hand(scores, data)
    assert case.model.score(case.X, data.y, qid=data.qid) == pytest.approx(expected, abs=1e-12)
    assert case.model.score(case.X, data.y, group=np.diff(data.offsets)) == pytest.approx(expected, abs=1e-12)
    (result,) = evaluate(data, {"model": scores}, ["ndcg@10"])
    assert result.value == pytest.approx(expected, abs=1e-12)
    order = np.random.default_rng(7).permutation(len(scores))
    X = case.X.iloc[order] if hasattr(case.X, "iloc") else case.X[order]
    assert case.model.score(X, data.y[order], qid=data.qid[order]) == pytest.approx(expected, abs=1e-12)
    backwards = RankingData(case.data.X, data.y, data.qid, data.offsets).select(range(len(data))[::-1])
    rows = np.concatenate([np.arange(*data.offsets[i : i + 2]) for i in range(len(data))[::-1]])
    assert evaluate(backwards, {"model": scores[rows]}, ["ndcg@10"])[0].value == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_ranks_follow_scores(name: str) -> None:
    case = fitted(name)
    scores, places = np.asarray(case.model.predict(case.X)), case.model.rank(case.X, qid=case.data.qid)
    for first, last in zip(case.data.offsets[:-1], case.data.offsets[1:], strict=True):
        assert (scores[first:last][np.argsort(places[first:last])] == np.sort(scores[first:last])[::-1]).all()
        assert sorted(places[first:last]) == list(range(1, 1 + last - first))


@pytest.mark.parametrize("name", [name for name in CASES if "column" in name])
def test_columns_are_matched_by_name(name: str) -> None:
    """Columns in another order are refused, as in scikit-learn, and never matched by position."""
    case = fitted(name)
    with pytest.raises(ValueError, match="feature names"):
        case.model.predict(case.X[case.X.columns[::-1]])
    renamed = case.X[case.X.columns[::-1]][case.X.columns]
    np.testing.assert_array_equal(case.model.predict(renamed), case.model.predict(case.X))


@pytest.mark.parametrize("name", [name for name in CASES if "stopped" in name])
def test_model_predicts_with_the_best_round(name: str) -> None:
    """The validation metric of the best round equals the score of the model on the same rows."""
    case = fitted(name)
    valid = _with_gaps(_lists(1)) if "missing" in name or "column" in name else _lists(1)
    scores = case.model.predict(_frame(valid.X) if "column" in name else valid.X)
    assert ndcg_by_hand(scores, valid) == pytest.approx(max(case.model.evals_result_["valid"]["ndcg@10"]), abs=1e-9)
