"""Two ways to one number: whatever computes the scores of a model, or a measure of them, computes the same.

CASES holds fitted models with rows to score; WAYS, by estimator, the ways to their scores. A new estimator needs a few
cases and its ways; the properties below then hold for it too, or fail.
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
from plackett.cli import app
from plackett.data import RankingData, dump_letor, load_scores, make_graded_lists
from plackett.estimators import load_model
from plackett.evaluation import evaluate

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Fitted:
    """A model, rows as `predict` takes them, and the labels and lists of these rows."""

    model: Any
    X: Any
    data: RankingData

    @property
    def is_plain(self) -> bool:
        """Whether a text file can hold the rows: numbers, without names or categories."""
        return isinstance(self.X, np.ndarray)


@dataclass(frozen=True)
class Asked:
    """What a way to the scores starts from: a fitted model, where it is saved, and a folder to write to."""

    fitted: Fitted
    saved: Path
    folder: Path


Way = Callable[[Asked], "Floats | None"]
"""The scores of the rows, or None where the way is not open to the model."""


# Ways that all rankers have


def reloaded(asked: Asked) -> Floats:
    return np.asarray(type(asked.fitted.model).load(asked.saved).predict(asked.fitted.X))


def loaded_by_kind(asked: Asked) -> Floats:
    return np.asarray(load_model(asked.saved).predict(asked.fitted.X))


def saved_again(asked: Asked) -> Floats:
    load_model(asked.saved).save(asked.folder / "again")
    return np.asarray(load_model(asked.folder / "again").predict(asked.fitted.X))


def row_by_row(asked: Asked) -> Floats:
    X = asked.fitted.X
    parts = [X[:1], X[1:4], X[4:]]
    return np.concatenate([asked.fitted.model.predict(part) for part in parts])


def in_another_order(asked: Asked) -> Floats:
    X = asked.fitted.X
    order = np.random.default_rng(5).permutation(len(X))
    scores = np.empty(len(X))
    scores[order] = asked.fitted.model.predict(X.iloc[order] if hasattr(X, "iloc") else X[order])
    return scores


def on_the_command_line(asked: Asked) -> Floats | None:
    if not asked.fitted.is_plain:
        return None
    rows, scores = asked.folder / "rows.txt", asked.folder / "scores.txt"
    dump_letor(asked.fitted.data, rows)
    done = CliRunner().invoke(app, ["predict", str(asked.saved), str(rows), "-o", str(scores)])
    assert done.exit_code == 0, done.output
    return np.asarray(load_scores(scores, asked.fitted.data))


def on_dask(asked: Asked) -> Floats | None:
    array = pytest.importorskip("dask.array")
    if not asked.fitted.is_plain:
        return None
    scores = asked.fitted.model.predict(array.from_array(asked.fitted.X, chunks=(37, -1)))
    return np.asarray(scores.compute(scheduler="synchronous"))


# Ways of boosted trees


def _of_classes(model: Any, found: Any) -> Floats:
    """mcrank: LightGBM gives probabilities of grades, the score is the expected gain."""
    return np.asarray(found if model.gains_ is None else found @ np.array(model.gains_))


def booster(asked: Asked) -> Floats:
    return _of_classes(asked.fitted.model, asked.fitted.model.booster_.predict(asked.fitted.X))


def plain_lightgbm(asked: Asked) -> Floats:
    plain = lgb.Booster(model_file=asked.saved / "model.txt")
    return _of_classes(asked.fitted.model, plain.predict(asked.fitted.X))


def _sum_of_shap_values(asked: Asked, trees: lgb.Booster) -> Floats | None:
    model = asked.fitted.model
    if model.gains_ is not None:
        return None
    # LightGBM predicts the mean of a forest's trees, and explains their sum.
    explained = trees.current_iteration() if "rf" in (model.lightgbm_params or {}).values() else 1
    return np.asarray(trees.predict(asked.fitted.X, pred_contrib=True).sum(axis=1)) / explained


def shap_values(asked: Asked) -> Floats | None:
    return _sum_of_shap_values(asked, asked.fitted.model.booster_)


def shap_values_of_the_text(asked: Asked) -> Floats | None:
    return _sum_of_shap_values(asked, lgb.Booster(model_file=asked.saved / "model.txt"))


def contributions(asked: Asked) -> Floats | None:
    if asked.fitted.model.gains_ is not None:
        return None
    return np.asarray(asked.fitted.model.predict(asked.fitted.X, contributions=True).sum(axis=1))


def last_stage(asked: Asked) -> Floats:
    return list(asked.fitted.model.staged_predict(asked.fitted.X))[-1]


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
    """Seven features that are numbers, and one that numbers categories."""
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
            arguments["init_model"] = initial.fit(as_rows(train.X), train.y, qid=train.qid)
        model.fit(as_rows(train.X), train.y, **arguments)
        rounds = model.booster_.current_iteration()
        if stopped:  # or it would not be a case of it
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


@cache
def fitted(name: str) -> Fitted:
    return CASES[name]()


@pytest.mark.parametrize("name", CASES)
def test_scores(name: str, tmp_path: Path) -> None:
    case = fitted(name)
    expected = np.asarray(case.model.predict(case.X))
    assert np.ptp(expected) > 0.1
    case.model.save(tmp_path / "model")
    for way in WAYS[type(case.model)]:
        folder = tmp_path / way.__name__
        folder.mkdir()
        found = way(Asked(case, tmp_path / "model", folder))
        if found is not None:
            tolerance = {"rtol": 0.0, "atol": 1e-12 * np.abs(expected).max()} if way in SUMS else {"rtol": 0.0}
            np.testing.assert_allclose(found, expected, **tolerance, err_msg=f"{name}: {way.__name__}")


# Measures of the scores


def ndcg_by_hand(scores: Floats, data: RankingData, k: int = 10) -> float:
    """Items with equal scores share the mean of their gains at each of their places."""
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
def test_measures(name: str) -> None:
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
def test_places_follow_scores(name: str) -> None:
    case = fitted(name)
    scores, places = np.asarray(case.model.predict(case.X)), case.model.rank(case.X, qid=case.data.qid)
    for first, last in zip(case.data.offsets[:-1], case.data.offsets[1:], strict=True):
        assert (scores[first:last][np.argsort(places[first:last])] == np.sort(scores[first:last])[::-1]).all()
        assert sorted(places[first:last]) == list(range(1, 1 + last - first))


@pytest.mark.parametrize("name", [name for name in CASES if "column" in name])
def test_columns_go_by_name(name: str) -> None:
    """Columns in another order are refused, as scikit-learn does: they are never taken by their places."""
    case = fitted(name)
    with pytest.raises(ValueError, match="feature names"):
        case.model.predict(case.X[case.X.columns[::-1]])
    renamed = case.X[case.X.columns[::-1]][case.X.columns]
    np.testing.assert_array_equal(case.model.predict(renamed), case.model.predict(case.X))


@pytest.mark.parametrize("name", [name for name in CASES if "stopped" in name])
def test_the_best_round_is_the_model(name: str) -> None:
    """What validation measured at the best round is what the model scores on the same rows."""
    case = fitted(name)
    valid = _with_gaps(_lists(1)) if "missing" in name or "column" in name else _lists(1)
    scores = case.model.predict(_frame(valid.X) if "column" in name else valid.X)
    assert ndcg_by_hand(scores, valid) == pytest.approx(max(case.model.evals_result_["valid"]["ndcg@10"]), abs=1e-9)
