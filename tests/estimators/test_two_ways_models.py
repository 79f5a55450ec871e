"""Consistency of linear models, networks and extreme classifiers: every way gives the same scores."""

import json
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from command_line import run
from scipy.sparse import csr_array, vstack
from sklearn.base import clone

from plackett import (
    BoostedRanker,
    CoordinateAscentRanker,
    ExtremeClassifier,
    LinearRanker,
    NeuralRanker,
    RankAggregator,
    metrics,
)
from plackett.aggregation.ballots import as_ballots
from plackett.data import (
    MultilabelData,
    RankingData,
    dump_letor,
    dump_preflib,
    dump_xmc,
    load_letor,
    load_scores,
    make_multilabel,
    make_tiered_lists,
)
from plackett.estimators import load_model
from plackett.evaluation import evaluate

DATA = make_tiered_lists(40, tier_sizes=(1, 2, 4), coefficients=(1.0, -0.5, 0.3), random_state=0)
LABELLED = make_multilabel(80, 40, 20, labels_per_row=2, features_per_row=4, signal=0.9, random_state=0)
NAMES = ["a", "b", "c"]
NETWORK: dict[str, Any] = {"epochs": 2, "random_state": 0, "device": "cpu", "progress": False}
STOPPED = NETWORK | {"epochs": 8, "learning_rate": 0.1, "validation_fraction": 0.3, "early_stopping_rounds": 1}
# Single precision for scores of size 1; the order of rows changes how matrix products are summed.
SINGLE = {"rtol": 1e-5, "atol": 1e-6}
DOUBLE = {"rtol": 1e-9, "atol": 1e-9}


def _attention() -> NeuralRanker:
    return NeuralRanker(hidden_sizes=(8,), attention_layers=1, attention_heads=2, **NETWORK)


MODELS: dict[str, Callable[[], Any]] = {
    "linear": LinearRanker,
    "linear with penalties": lambda: LinearRanker("listmle", l2=2.0, l1=0.1, random_state=0),
    "linear, first places": lambda: LinearRanker(top=2, l2=1.0),
    "coordinate ascent": lambda: CoordinateAscentRanker(n_restarts=2, max_sweeps=3, tol=1.0, random_state=0),
    "neural": lambda: NeuralRanker(hidden_sizes=(8,), **NETWORK),
    "neural, missing values": lambda: NeuralRanker(hidden_sizes=(8,), missing="indicator", ensemble=2, **NETWORK),
    "neural, stopped early": lambda: NeuralRanker(
        hidden_sizes=(8,),
        **NETWORK | {"epochs": 8, "validation_fraction": 0.3, "early_stopping_rounds": 1, "learning_rate": 0.1},
    ),
    "attention": _attention,
}


def _precision(model: Any) -> dict[str, float]:
    return SINGLE if isinstance(model, NeuralRanker) else DOUBLE


def _data(name: str) -> RankingData:
    """With missing values for the model that accepts them."""
    if "missing" not in name:
        return DATA
    X = DATA.X.copy()
    X[::5, 1] = np.nan
    return RankingData(X, DATA.y, DATA.qid, DATA.offsets)


@pytest.fixture(params=MODELS, scope="module")
def name(request: Any) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def data(name: str) -> RankingData:
    return _data(name)


@pytest.fixture(scope="module")
def model(name: str, data: RankingData) -> Any:
    return MODELS[name]().fit(data)


def test_saved_model_and_command_line_give_the_same_scores(
    model: Any,
    data: RankingData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    scores = model.predict(data)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict(data), scores)
    np.testing.assert_array_equal(type(model).load(tmp_path / "model").predict(data), scores)
    dump_letor(data, tmp_path / "data.txt")
    code, _, err = run(
        monkeypatch, capsys, "predict", tmp_path / "model", tmp_path / "data.txt", "-o", tmp_path / "scores"
    )
    assert (code, err) == (0, "")
    np.testing.assert_array_equal(load_scores(tmp_path / "scores", data), scores)
    code, _, err = run(
        monkeypatch, capsys,
        "predict", tmp_path / "model", tmp_path / "data.txt", "-o", tmp_path / "run", "--top", 3,
    )  # fmt: skip
    assert (code, err) == (0, "")
    lines = [line.split() for line in (tmp_path / "run").read_text().splitlines()]
    ranks = model.rank(load_letor(tmp_path / "data.txt"))
    assert [(int(row[2]), int(row[3])) for row in lines] == [
        (row, rank) for rank, row in _first_places(ranks, data.offsets, 3)
    ]


def _first_places(ranks: Any, offsets: Any, top: int) -> list[tuple[int, int]]:
    """Ranks and rows, list by list, best first."""
    found = []
    for first, last in pairwise(offsets):
        found += sorted((int(ranks[row]), int(row)) for row in range(first, last) if ranks[row] <= top)
    return found


def test_score_matches_the_metric(model: Any, data: RankingData) -> None:
    scores = model.predict(data)
    by_hand = np.mean([_ndcg(scores[a:b], data.y[a:b], 10) for a, b in pairwise(data.offsets)])
    assert model.score(data) == pytest.approx(by_hand, rel=1e-12)
    assert model.score(data.X, data.y, qid=data.qid) == pytest.approx(by_hand, rel=1e-12)
    assert model.score(data.X, data.y, group=np.diff(data.offsets)) == pytest.approx(by_hand, rel=1e-12)
    (result,) = evaluate(data, {"model": scores}, ["ndcg@10"])
    assert result.value == pytest.approx(by_hand, rel=1e-12)
    assert metrics.ndcg(scores, data.y, k=10, qid=data.qid) == pytest.approx(by_hand, rel=1e-12)
    weights = 1.0 + np.arange(len(data)) % 3
    weighted = model.score(data, sample_weight=np.repeat(weights, np.diff(data.offsets)))
    assert weighted == pytest.approx(np.average(result.values, weights=weights), rel=1e-12)


def _ndcg(scores: Any, labels: Any, k: int) -> float:
    """NDCG of scores without ties."""
    gains = 2.0**labels - 1.0
    discounts = 1.0 / np.log2(2.0 + np.arange(len(scores)))
    discounts[k:] = 0.0
    return float(gains[np.argsort(-scores)] @ discounts / (np.sort(gains)[::-1] @ discounts))


def test_order_of_rows_and_lists_does_not_matter(model: Any, data: RankingData, rng: np.random.Generator) -> None:
    """Neither for prediction nor for fitting, unless fitting draws at random in that order."""
    scores, order = model.predict(data), rng.permutation(len(data.y))
    mixed = {"X": data.X[order], "y": data.y[order], "qid": data.qid[order]}
    lists = {"qid": mixed["qid"]} if model.__class__ is NeuralRanker else {}
    np.testing.assert_allclose(model.predict(mixed["X"], **lists), scores[order], **_precision(model))
    np.testing.assert_array_equal(model.rank(mixed["X"], qid=mixed["qid"]), model.rank(data)[order])
    assert model.score(**mixed) == pytest.approx(model.score(data), rel=1e-12)
    backwards = data.select(np.arange(len(data))[::-1])
    assert model.score(backwards) == pytest.approx(model.score(data), rel=1e-12)
    if isinstance(model, LinearRanker) and model.objective == "partition":
        for again in (clone(model).fit(**mixed), clone(model).fit(backwards)):
            np.testing.assert_allclose(again.coef_, model.coef_, rtol=1e-6)


def test_columns_are_matched_by_name(model: Any, name: str, data: RankingData) -> None:
    """Columns in another order are refused, and never matched by position."""
    frame = pd.DataFrame(data.X, columns=NAMES)
    named = MODELS[name]().fit(frame, data.y, qid=data.qid)
    lists = {"qid": data.qid} if isinstance(model, NeuralRanker) else {}
    np.testing.assert_allclose(named.predict(frame, **lists), model.predict(data), **_precision(model))
    with pytest.raises(ValueError, match="eature names must be in the same order"):
        named.predict(frame[NAMES[::-1]], **lists)
    np.testing.assert_array_equal(named.predict(frame[NAMES[::-1]][NAMES], **lists), named.predict(frame, **lists))
    if "missing" not in name:
        sparse = MODELS[name]().fit(csr_array(data.X), data.y, qid=data.qid)
        np.testing.assert_allclose(
            sparse.predict(csr_array(data.X), **lists), model.predict(data), rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("name", ["linear", "linear, first places", "coordinate ascent"])
def test_weight_of_two_counts_as_two_lists(name: str) -> None:
    weights = 1.0 + (np.arange(len(DATA)) % 2)
    twice = DATA.select(np.repeat(np.arange(len(DATA)), weights.astype(int)))
    by_weight = MODELS[name]().fit(DATA, sample_weight=np.repeat(weights, np.diff(DATA.offsets)))
    by_list = MODELS[name]().fit(twice)
    np.testing.assert_allclose(by_weight.coef_, by_list.coef_, rtol=1e-6)
    if isinstance(by_list, LinearRanker):
        np.testing.assert_allclose(by_weight.covariance_, by_list.covariance_, rtol=1e-5)
        assert by_weight.loss_ == pytest.approx(by_list.loss_, rel=1e-9)


@pytest.mark.parametrize("name", ["neural", "attention"])
def test_weight_of_two_counts_as_two_lists_in_one_batch(name: str) -> None:
    """With all lists in every batch, the steps are the same."""
    options = {"batch_size": 10**6, "scaling": "none"}
    weights = 1.0 + (np.arange(len(DATA)) % 2)
    twice = DATA.select(np.repeat(np.arange(len(DATA)), weights.astype(int)))
    model = MODELS[name]().set_params(**options)
    by_weight = clone(model).fit(DATA, sample_weight=np.repeat(weights, np.diff(DATA.offsets)))
    by_list = clone(model).fit(twice)
    found, wanted, plain = (_centred(one.predict(DATA)) for one in (by_weight, by_list, clone(model).fit(DATA)))
    np.testing.assert_allclose(found, wanted, atol=2e-5)
    assert np.abs(wanted - plain).max() > 2e-4


def _centred(scores: Any) -> Any:
    """Scores minus the mean of each list, which the likelihood does not determine: Adam moves it at random."""
    table = scores.reshape(len(DATA), -1)
    return table - table.mean(axis=1, keepdims=True)


def _onnx(path: Path, X: Any) -> Any:
    runtime = pytest.importorskip("onnxruntime")
    return runtime.InferenceSession(path).run(None, {"features": np.asarray(X, np.float32)})[0]


@pytest.mark.parametrize("name", ["neural, missing values", "neural, stopped early", "attention"])
def test_networks_match_in_onnx(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    data = _data(name)
    model = MODELS[name]().fit(data)
    model.export_onnx(tmp_path / "model.onnx")
    # In ONNX, a network with attention takes one list at a time.
    parts = np.split(data.X, data.offsets[1:-1]) if name == "attention" else [data.X]
    found = np.concatenate([_onnx(tmp_path / "model.onnx", part) for part in parts])
    np.testing.assert_allclose(found, model.predict(data), rtol=1e-4, atol=1e-5)


# Trees, whose other ways are in test_two_ways


def test_order_of_rows_and_lists_does_not_matter_when_fitting_trees(rng: np.random.Generator) -> None:
    """Histograms are summed in another order, so leaves agree to rounding."""
    order = rng.permutation(len(DATA.y))
    make = partial(BoostedRanker, n_estimators=5, min_child_samples=2, random_state=0)
    wanted = make().fit(DATA).predict(DATA)
    mixed = make().fit(DATA.X[order], DATA.y[order], qid=DATA.qid[order])
    np.testing.assert_allclose(mixed.predict(DATA.X), wanted, rtol=1e-9, atol=1e-9)
    backwards = make().fit(DATA.select(np.arange(len(DATA))[::-1]))
    np.testing.assert_allclose(backwards.predict(DATA.X), wanted, rtol=1e-9, atol=1e-9)


# Aggregation


def test_saved_aggregator_and_command_line_give_the_same_worths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    orders = np.random.default_rng(0).permuted([list("abcd")] * 60, axis=1)
    ballots = as_ballots([[first, {one, other}, last] for first, one, other, last in orders])
    model = RankAggregator().fit(ballots)
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    np.testing.assert_array_equal(loaded.scores_, model.scores_)
    np.testing.assert_array_equal(loaded.covariance_, model.covariance_)
    np.testing.assert_array_equal(loaded.predict_proba(ballots), model.predict_proba(ballots))
    dump_preflib(ballots, tmp_path / "ballots.toc")
    code, out, _ = run(monkeypatch, capsys, "aggregate", tmp_path / "ballots.toc", "--json")
    assert code == 0
    printed = {row["item"]: row["score"] for row in json.loads(out)["items"]}
    assert printed == pytest.approx(dict(zip(map(str, model.items_), model.scores_, strict=True)), abs=1e-6)


# Many labels


@pytest.fixture(scope="module")
def classifier() -> ExtremeClassifier:
    return ExtremeClassifier(hidden_sizes=(16,), **NETWORK).fit(LABELLED)


def test_saved_classifier_and_command_line_give_the_same_scores(
    classifier: ExtremeClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    classifier.save(tmp_path / "model")
    scores = classifier.predict(LABELLED)
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict(LABELLED), scores)
    labels, best = classifier.predict_top(LABELLED, 20)
    np.testing.assert_allclose(np.take_along_axis(scores, labels, 1), best, **SINGLE)
    np.testing.assert_array_equal(
        np.take_along_axis(classifier.rank(LABELLED), labels, 1), np.tile(np.arange(1, 21), (80, 1))
    )
    dump_xmc(LABELLED, tmp_path / "data.txt")
    code, _, err = run(
        monkeypatch, capsys,
        "predict", tmp_path / "model", tmp_path / "data.txt", "-o", tmp_path / "scores", "--top", 20,
    )  # fmt: skip
    assert (code, err) == (0, "")
    np.testing.assert_allclose(load_scores(tmp_path / "scores", LABELLED).toarray(), scores, rtol=1e-4, atol=1e-5)


def test_score_of_a_classifier_matches_the_metric(classifier: ExtremeClassifier) -> None:
    top = classifier.predict_top(LABELLED, 10)[0]
    table, discounts = LABELLED.Y.toarray() > 0, 1.0 / np.log2(2.0 + np.arange(10))
    ideal = np.array([discounts[: int(row.sum())].sum() for row in table])
    achieved = np.take_along_axis(table, top, 1) @ discounts
    values = np.where(ideal > 0, achieved / np.where(ideal > 0, ideal, 1.0), 0.0)
    assert classifier.score(LABELLED) == pytest.approx(values.mean(), rel=1e-12)
    assert classifier.score(LABELLED.X, LABELLED.Y.toarray()) == pytest.approx(values.mean(), rel=1e-12)
    (result,) = evaluate(LABELLED, {"model": top}, ["ndcg@10"])
    assert result.value == pytest.approx(values.mean(), rel=1e-12)
    weights = 1.0 + np.arange(len(LABELLED)) % 2
    expected = np.average(values, weights=weights)
    assert classifier.score(LABELLED, sample_weight=weights) == pytest.approx(expected, rel=1e-12)
    (dense,) = evaluate(LABELLED, {"model": classifier.predict(LABELLED)}, ["ndcg@10"])
    assert dense.value == pytest.approx(values.mean(), rel=1e-12)


def test_order_of_rows_does_not_matter_to_a_classifier(classifier: ExtremeClassifier, rng: np.random.Generator) -> None:
    order = rng.permutation(len(LABELLED))
    np.testing.assert_allclose(classifier.predict(LABELLED.X[order]), classifier.predict(LABELLED)[order], **SINGLE)
    assert classifier.score(LABELLED.select(order)) == pytest.approx(classifier.score(LABELLED), rel=1e-12)
    dense = classifier.predict(LABELLED.X.toarray())
    np.testing.assert_allclose(dense, classifier.predict(LABELLED), **SINGLE)


def test_weight_of_two_counts_as_two_rows_in_one_batch() -> None:
    weights = 1.0 + np.arange(len(LABELLED)) % 2
    twice = np.repeat(np.arange(len(LABELLED)), weights.astype(int))
    # Not so in the linear path: its weights are relative, and its propensities count rows.
    options = {**NETWORK, "hidden_sizes": (16,), "input_dropout": 0.0, "hidden_dropout": 0.0, "batch_size": 10**6,
               "ensemble": 1, "skip": None}  # fmt: skip
    by_weight = ExtremeClassifier(**options).fit(LABELLED, sample_weight=weights)
    rows = MultilabelData(vstack([LABELLED.X[[row]] for row in twice], "csr"), LABELLED.Y[twice])
    by_row = ExtremeClassifier(**options).fit(rows)
    np.testing.assert_allclose(by_weight.predict(LABELLED), by_row.predict(LABELLED), rtol=1e-3, atol=1e-4)
    plain = ExtremeClassifier(**options).fit(LABELLED).predict(LABELLED)
    assert np.abs(by_row.predict(LABELLED) - plain).max() > 1e-3


def test_classifier_matches_in_onnx(classifier: ExtremeClassifier, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    classifier.export_onnx(tmp_path / "model.onnx")
    found = _onnx(tmp_path / "model.onnx", LABELLED.X.toarray())
    np.testing.assert_allclose(found, classifier.predict(LABELLED), rtol=1e-4, atol=1e-5)
