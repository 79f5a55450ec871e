"""What all rankers share: how they are told of lists, and which rows they take."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_predict, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from plackett import BoostedRanker, CoordinateAscentRanker, ExtremeClassifier, LinearRanker, NeuralRanker, metrics
from plackett.data import MultilabelData, RankingData, make_tiered_lists
from plackett.estimators.base import BaseRanker

DATA = make_tiered_lists(30, tier_sizes=(1, 2, 4), coefficients=(1.0, -0.5, 0.0), random_state=0)
X, Y, QID, GROUP = DATA.X, DATA.y, DATA.qid, np.diff(DATA.offsets)
NAMES = ["a", "b", "c"]
MODELS: dict[str, BaseRanker] = {
    "boosted": BoostedRanker(n_estimators=3, num_leaves=4, random_state=0, n_jobs=1, progress=False),
    "linear": LinearRanker(),
    "coordinate": CoordinateAscentRanker(n_restarts=1, max_sweeps=2, tol=1.0, random_state=0),
    "neural": NeuralRanker(hidden_sizes=(4,), epochs=1, random_state=0, device="cpu", progress=False),
}
ATTENTION = NeuralRanker(
    hidden_sizes=(4,), attention_layers=1, attention_heads=2, epochs=1, random_state=0, device="cpu", progress=False
)


@pytest.fixture(params=MODELS, scope="module")
def model(request: Any) -> BaseRanker:
    """Not fitted."""
    return clone(MODELS[request.param])


@pytest.fixture(scope="module")
def fitted(model: BaseRanker) -> BaseRanker:
    return clone(model).fit(DATA)


# Lists


@pytest.mark.parametrize("call", ["score", "rank"])
def test_lists_are_not_guessed(fitted: Any, call: str) -> None:
    arguments = (X, Y) if call == "score" else (X,)
    with pytest.raises(ValueError, match=rf"{call} must be given the lists.*group=\[210\].*enable_metadata_routing"):
        getattr(fitted, call)(*arguments)
    one = getattr(fitted, call)(*arguments, group=[len(Y)])
    np.testing.assert_array_equal(one, getattr(fitted, call)(*arguments, qid=np.zeros(len(Y))))


def test_evaluation_sets_say_their_lists(model: Any) -> None:
    with pytest.raises(ValueError, match=r"eval_set must say which list each row belongs to.*np.zeros\(len\(y\)\)"):
        clone(model).fit(DATA, eval_set=(X, Y))
    frame = pd.DataFrame(X, columns=NAMES).assign(q=QID)
    found = clone(model).set_params(query_column="q").fit(frame, Y, eval_set=(frame, Y))
    np.testing.assert_allclose(found.predict(frame), clone(model).fit(DATA).predict(X), atol=1e-9)


def test_fit_without_lists_warns(model: Any) -> None:
    with pytest.warns(UserWarning, match="all rows are taken as one list"):
        clone(model).fit(X, Y)


def test_networks_that_see_lists_are_told_of_them() -> None:
    import torch

    class Own(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

        def forward(self, x: Any, offsets: Any = None) -> Any:
            del offsets
            return self.layer(x)

    for network in (clone(ATTENTION), NeuralRanker(network=Own(), epochs=1, device="cpu", progress=False)):
        network.fit(DATA)
        with pytest.raises(ValueError, match="predict must be given the lists"):
            network.predict(X)
        np.testing.assert_array_equal(network.predict(X, qid=QID), network.predict(DATA))
        np.testing.assert_array_equal(network.predict(X, group=GROUP), network.predict_data(DATA))


GRIDS = {
    "boosted": {"num_leaves": [2, 4]},
    "linear": {"l2": [0.0, 10.0]},
    "coordinate": {"standardise": [True, False]},
    "neural": {"hidden_sizes": [(), (4,)]},
}


@pytest.mark.parametrize("name", GRIDS)
def test_cross_validation_with_the_routing_of_scikit_learn(name: str) -> None:
    """With nothing but the switch of scikit-learn each fold is scored list by list."""
    model, folds = clone(MODELS[name]), list(GroupKFold(3).split(X, groups=QID))
    by_hand = [
        metrics.ndcg(clone(model).fit(X[a], Y[a], qid=QID[a]).predict(X[b]), Y[b], k=10, qid=QID[b]) for a, b in folds
    ]
    lists = {"qid": QID, "groups": QID}
    with sklearn.config_context(enable_metadata_routing=True):
        np.testing.assert_allclose(cross_val_score(model, X, Y, cv=GroupKFold(3), params=lists), by_hand, rtol=1e-12)
        found = cross_validate(model, X, Y, cv=GroupKFold(3), params=lists)["test_score"]
        np.testing.assert_allclose(found, by_hand, rtol=1e-12)
        search = GridSearchCV(model, GRIDS[name], cv=GroupKFold(3)).fit(X, Y, **lists)
        assert search.score(X, Y, qid=QID) == search.best_estimator_.score(X, Y, qid=QID)
        first = search.cv_results_["mean_test_score"][0]
        wanted = cross_val_score(clone(model).set_params(**search.cv_results_["params"][0]), X, Y, cv=GroupKFold(3),
                                 params=lists)  # fmt: skip
        assert first == pytest.approx(np.mean(wanted), rel=1e-12)
        pipeline = make_pipeline(StandardScaler(), model)
        for value, (a, b) in zip(cross_val_score(pipeline, X, Y, cv=GroupKFold(3), params=lists), folds, strict=True):
            scaler = StandardScaler().fit(X[a])
            part = clone(model).fit(scaler.transform(X[a]), Y[a], qid=QID[a])
            assert value == pytest.approx(part.score(scaler.transform(X[b]), Y[b], qid=QID[b]), rel=1e-12)


def test_attention_in_a_pipeline() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(StandardScaler(), ATTENTION).fit(X, Y, qid=QID)
        scaled = pipeline[0].transform(X)
        np.testing.assert_array_equal(pipeline.predict(X, qid=QID), pipeline[1].predict(scaled, qid=QID))
        with pytest.raises(ValueError, match="predict must be given the lists"):
            cross_val_predict(ATTENTION, X, Y, cv=GroupKFold(3), params={"qid": QID, "groups": QID})


def test_cross_validation_without_routing_is_refused() -> None:
    """There scikit-learn hands qid to fit alone."""
    search = GridSearchCV(LinearRanker(), {"l2": [0.0, 10.0]}, cv=GroupKFold(3), error_score="raise")
    with pytest.raises(ValueError, match="score must be given the lists"):
        search.fit(X, Y, groups=QID, qid=QID)
    search.set_params(error_score=np.nan)
    with (
        pytest.warns(UserWarning, match=r"Scoring failed.*\n(.*\n)*.*enable_metadata_routing"),
        pytest.warns(UserWarning, match="test scores are non-finite"),
    ):
        search.fit(X, Y, groups=QID, qid=QID)
    assert np.isnan(search.best_score_)
    pipeline = make_pipeline(StandardScaler(), LinearRanker()).fit(X, Y, linearranker__qid=QID)
    with pytest.raises(ValueError, match="score must be given the lists"):
        pipeline.score(X, Y)


# RankingData


def test_data_are_taken_as_they_are(fitted: Any) -> None:
    np.testing.assert_array_equal(fitted.predict(DATA), fitted.predict(X))
    np.testing.assert_array_equal(fitted.predict(DATA), fitted.predict_data(DATA))
    np.testing.assert_array_equal(fitted.rank(DATA), fitted.rank(X, qid=QID))
    assert fitted.score(DATA) == fitted.score(X, Y, qid=QID)
    with pytest.raises(ValueError, match="y, qid and group must be None when X is a RankingData"):
        fitted.score(DATA, Y)
    with pytest.raises(ValueError, match="X must be lists of items with features, got MultilabelData"):
        fitted.score(MultilabelData(sp.csr_array(np.eye(3)), sp.csr_array(np.eye(3))))
