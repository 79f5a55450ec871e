"""Behaviour shared by all rankers: how lists are given, and which rows are accepted."""

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
from plackett.estimators.ranker import BaseRanker

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
    """An unfitted model."""
    return clone(MODELS[request.param])


@pytest.fixture(scope="module")
def fitted(model: BaseRanker) -> BaseRanker:
    return clone(model).fit(DATA)


# Rows that need no check


def test_short_checks_accept_only_what_the_long_ones_do(fitted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    some = X[:9]
    large = np.where(np.arange(27).reshape(9, 3) == 4, np.inf, some)
    others = [
        some.astype(np.float32),
        some.astype(">f8"),
        np.asfortranarray(some),
        some.tolist(),
        large,
        some[0],
    ]
    others += [some[:, :2], some[:0], np.hstack([some, some]), some.astype(object), np.where(some > 1.0, np.nan, some)]

    def found(rows: Any) -> Any:
        try:
            return fitted.predict(rows).tolist()
        except ValueError as error:
            return str(error)

    short = [found(rows) for rows in [some, *others]]
    for module in ("ranker", "linear"):
        monkeypatch.setattr(f"plackett.estimators.{module}.is_checked", lambda X, model: False)  # noqa: ARG005
    assert short == [found(rows) for rows in [some, *others]]
    assert isinstance(short[0], list)


# Lists


@pytest.mark.parametrize("call", ["score", "rank"])
def test_lists_are_not_guessed(fitted: Any, call: str) -> None:
    arguments = (X, Y) if call == "score" else (X,)
    with pytest.raises(ValueError, match=rf"{call} must be given the lists.*group=\[210\].*enable_metadata_routing"):
        getattr(fitted, call)(*arguments)
    one = getattr(fitted, call)(*arguments, group=[len(Y)])
    np.testing.assert_array_equal(one, getattr(fitted, call)(*arguments, qid=np.zeros(len(Y))))


def test_evaluation_sets_need_their_lists(model: Any) -> None:
    with pytest.raises(ValueError, match=r"eval_set must say which list each row belongs to.*np.zeros\(len\(y\)\)"):
        clone(model).fit(DATA, eval_set=(X, Y))
    frame = pd.DataFrame(X, columns=NAMES).assign(q=QID)
    found = clone(model).set_params(query_column="q").fit(frame, Y, eval_set=(frame, Y))
    np.testing.assert_allclose(found.predict(frame), clone(model).fit(DATA).predict(X), atol=1e-9)


def test_fit_without_lists_warns(model: Any) -> None:
    with pytest.warns(UserWarning, match="all rows are taken as one list"):
        clone(model).fit(X, Y)


def test_networks_over_lists_get_the_offsets() -> None:
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
def test_cross_validation_routes_lists(name: str) -> None:
    """With metadata routing enabled in scikit-learn, each fold is scored list by list."""
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


def test_attention_works_in_a_pipeline() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(StandardScaler(), ATTENTION).fit(X, Y, qid=QID)
        scaled = pipeline[0].transform(X)
        np.testing.assert_array_equal(pipeline.predict(X, qid=QID), pipeline[1].predict(scaled, qid=QID))
        with pytest.raises(ValueError, match="predict must be given the lists"):
            cross_val_predict(ATTENTION, X, Y, cv=GroupKFold(3), params={"qid": QID, "groups": QID})


def test_cross_validation_without_routing_is_refused() -> None:
    """Without routing, scikit-learn passes qid only to fit."""
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


def test_ranking_data_are_accepted(fitted: Any) -> None:
    np.testing.assert_array_equal(fitted.predict(DATA), fitted.predict(X))
    np.testing.assert_array_equal(fitted.predict(DATA), fitted.predict_data(DATA))
    np.testing.assert_array_equal(fitted.rank(DATA), fitted.rank(X, qid=QID))
    assert fitted.score(DATA) == fitted.score(X, Y, qid=QID)
    with pytest.raises(ValueError, match="y, qid and group must be None when X is a RankingData"):
        fitted.score(DATA, Y)
    with pytest.raises(ValueError, match="X must be lists of items with features, got MultilabelData"):
        fitted.score(MultilabelData(sp.csr_array(np.eye(3)), sp.csr_array(np.eye(3))))


# Tables


def _frame(**more: Any) -> pd.DataFrame:
    return pd.DataFrame(X, columns=NAMES).assign(**more)


def test_polars_frames_are_accepted(model: Any) -> None:
    plain = clone(model).fit(_frame(), Y, qid=QID)
    found = clone(model).set_params(query_column="q").fit(pl.from_pandas(_frame(q=QID)), pl.Series(Y))
    table = pl.from_pandas(_frame(q=QID))
    np.testing.assert_allclose(found.predict(table), plain.predict(_frame()), rtol=1e-9)
    np.testing.assert_allclose(found.predict(table.drop("q")), plain.predict(_frame()), rtol=1e-9)
    assert found.score(table, Y) == pytest.approx(plain.score(_frame(), Y, qid=QID), rel=1e-9)
    np.testing.assert_array_equal(found.rank(table), plain.rank(_frame(), qid=QID))
    with pytest.raises(ValueError, match=r"X must be a table in memory, got a LazyFrame: pass X.collect\(\)"):
        found.predict(table.lazy())
    with pytest.raises(ValueError, match=r"X must be a table in memory, got a LazyFrame: pass X.collect\(\)"):
        found.fit(table.lazy(), Y)


COLUMNS = {
    "text": np.array(["1.5", "2"], object)[np.arange(len(Y)) % 2],
    "string": pd.array(np.array(["1.5", "2"], object)[np.arange(len(Y)) % 2], "string"),
    "datetime": pd.date_range("2020-01-01", periods=len(Y)),
    "timedelta": pd.to_timedelta(np.arange(len(Y)), "s"),
    "complex": np.arange(len(Y)) * (1.0 + 2.0j),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_non_numeric_columns_are_named(kind: str, model: Any) -> None:
    with pytest.raises(ValueError, match=r"column 'extra' of X must hold numbers.*leave it out"):
        clone(model).fit(_frame(extra=COLUMNS[kind]), Y, qid=QID)


@pytest.mark.parametrize("kind", ["text", "datetime", "timedelta"])
def test_non_numeric_arrays_are_refused(kind: str, fitted: Any) -> None:
    wrong = np.column_stack([np.asarray(COLUMNS[kind])] * 3)
    for call in (fitted.predict, lambda rows: fitted.fit(rows, Y, qid=QID)):
        with pytest.raises(ValueError, match="X must hold numbers, got"):
            call(wrong)


def test_only_trees_accept_categories() -> None:
    frame = _frame(colour=pd.Categorical(np.array(["red", "blue"])[np.arange(len(Y)) % 2]))
    assert np.isfinite(clone(MODELS["boosted"]).fit(frame, Y, qid=QID).predict(frame)).all()
    with pytest.raises(ValueError, match="column 'colour' of X must hold numbers, got category"):
        LinearRanker().fit(frame, Y, qid=QID)


@pytest.mark.parametrize("name", ["y", "qid", "sample_weight"])
def test_rows_are_not_matched_across_indices(name: str, model: Any) -> None:
    frame = _frame()
    given = {"y": pd.Series(Y), "qid": pd.Series(QID), "sample_weight": pd.Series(np.ones(len(Y)))}
    expected = clone(model).fit(frame, Y, qid=QID).predict(frame)
    np.testing.assert_array_equal(clone(model).fit(frame, **given).predict(frame), expected)
    given[name] = given[name].iloc[::-1]
    with pytest.raises(ValueError, match=rf"{name} must have the index of X.*{name}.loc\[X.index\].*{name}.to_numpy"):
        clone(model).fit(frame, **given)
    given[name] = given[name].loc[frame.index]
    np.testing.assert_array_equal(clone(model).fit(frame, **given).predict(frame), expected)


def test_metrics_do_not_match_rows_across_indices() -> None:
    labels = pd.Series(Y)
    scores = pd.Series(X[:, 0])
    with pytest.raises(ValueError, match="labels must have the index of scores"):
        metrics.ndcg(scores, labels.iloc[::-1], qid=QID)
    with pytest.raises(ValueError, match="qid must have the index of labels"):
        metrics.ndcg(scores.to_numpy(), labels, qid=pd.Series(QID).iloc[::-1])
    assert metrics.ndcg(scores, labels, qid=pd.Series(QID)) == metrics.ndcg(X[:, 0], Y, qid=QID)


@pytest.mark.parametrize("given", [None, 5, "rows"])
def test_arguments_that_are_not_rows_are_refused(given: Any, fitted: Any) -> None:
    for call in (fitted.predict, lambda rows: fitted.rank(rows, qid=QID), lambda rows: fitted.score(rows, Y, qid=QID)):
        with pytest.raises(ValueError, match="X must be rows of features, got"):
            call(given)


def test_masked_arrays_are_refused(fitted: Any) -> None:
    mask = np.ma.masked_less(X, -1.0)
    for call in (
        lambda: fitted.predict(mask),
        lambda: fitted.rank(mask, qid=QID),
        lambda: clone(fitted).fit(mask, Y, qid=QID),
        lambda: clone(fitted).fit(X, np.ma.masked_equal(Y, 0), qid=QID),
        lambda: clone(fitted).fit(X, Y, qid=np.ma.masked_equal(QID, 0)),
        lambda: clone(fitted).fit(X, Y, group=np.ma.masked_equal(GROUP, 0)),
        lambda: clone(fitted).fit(X, Y, qid=QID, sample_weight=np.ma.ones(len(Y))),
        lambda: metrics.ndcg(X[:, 0], Y, qid=np.ma.array(QID)),
        lambda: metrics.ndcg(X[:, 0], np.ma.array(Y), qid=QID),
        lambda: metrics.multilabel_precision(np.eye(3), np.ma.array(np.eye(3)), k=1),
        lambda: RankingData(mask, Y, QID, DATA.offsets),
        lambda: RankingData(X, np.ma.array(Y), QID, DATA.offsets),
        lambda: ExtremeClassifier().fit(mask, np.eye(3)[np.arange(len(Y)) % 3]),
        lambda: ExtremeClassifier().fit(X, np.ma.array(np.eye(3)[np.arange(len(Y)) % 3])),
    ):
        with pytest.raises(ValueError, match="must not be a masked array"):
            call()


# Sparse


def _spoiled(part: str, value: int, kind: Any = sp.csr_array) -> Any:
    """A sparse matrix whose arrays were modified after construction."""
    matrix = kind(np.where(X > 0, X, 0.0))
    getattr(matrix, part)[-3] = value
    return matrix


BAD_INDICES = {
    "beyond the columns": lambda: _spoiled("indices", 10**6),
    "below zero": lambda: _spoiled("indices", -1),
    "falling pointers": lambda: _spoiled("indptr", 3),
    "pointers beyond the values": lambda: _spoiled("indptr", 10**8),
    "CSC": lambda: _spoiled("indices", 10**6, sp.csc_array),
    "COO": lambda: _spoiled("row", 10**6, sp.coo_array),
    "BSR": lambda: _spoiled("indices", 10**6, sp.bsr_array),
}


@pytest.mark.parametrize("kind", BAD_INDICES)
def test_indices_out_of_range_are_refused(kind: str, model: Any, fitted: Any) -> None:
    expected = r"(indices|indptr|rows|columns) of X must (be from 0 to|hold)"
    for call in (
        lambda rows: clone(model).fit(rows, Y, qid=QID),
        lambda rows: clone(model).fit(DATA, eval_set=(rows, Y, QID)),
        fitted.predict,
        lambda rows: fitted.rank(rows, qid=QID),
        lambda rows: fitted.score(rows, Y, qid=QID),
    ):
        with pytest.raises(ValueError, match=expected):
            call(BAD_INDICES[kind]())


@pytest.mark.parametrize("kind", BAD_INDICES)
def test_label_indices_out_of_range_are_refused(kind: str) -> None:
    bad = BAD_INDICES[kind]
    dense, good = np.where(X > 0, X, 0.0), sp.csr_array(np.eye(3)[np.arange(len(Y)) % 3])
    for call in (
        lambda: ExtremeClassifier().fit(bad(), good),
        lambda: ExtremeClassifier().fit(dense, bad()),
        lambda: metrics.multilabel_precision(dense, bad(), k=1),
        lambda: metrics.multilabel_ndcg(bad(), good, k=1),
        lambda: metrics.inverse_propensity(bad()),
    ):
        with pytest.raises(ValueError, match=r"(indices|indptr|rows|columns) of (X|Y|scores) must (be from 0 to|hold)"):
            call()
    if kind not in ("COO",):  # containers refuse it
        with pytest.raises(ValueError, match=r"(indices|indptr) of (X|Y) must"):
            MultilabelData(good, bad())


def test_duplicate_and_unsorted_entries_are_handled(model: Any) -> None:
    """Duplicates are summed and the order does not matter, as in scipy."""
    plain = sp.csr_array(np.where(X > 0, X, 0.0))
    twice = sp.csr_array(
        (np.repeat(plain.data / 2.0, 2), np.repeat(plain.indices, 2), 2 * plain.indptr), shape=plain.shape
    )
    backwards = plain.copy()
    for first, last in zip(plain.indptr, plain.indptr[1:], strict=False):
        for part in (backwards.data, backwards.indices):
            part[first:last] = part[first:last][::-1].copy()
    backwards = sp.csr_array((backwards.data, backwards.indices, backwards.indptr), shape=plain.shape)
    expected = clone(model).fit(plain, Y, qid=QID)
    for matrix in (twice, backwards):
        found = clone(model).fit(matrix, Y, qid=QID)
        np.testing.assert_allclose(found.predict(plain), expected.predict(plain), rtol=1e-9)
        np.testing.assert_allclose(found.predict(matrix), expected.predict(plain), rtol=1e-9)
    assert not twice.has_canonical_format  # the caller's arrays are unchanged


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_values_are_refused(value: float) -> None:
    model = LinearRanker().fit(DATA)
    model.coef_[1] = 0.0
    matrix = sp.csr_array(X)
    matrix.data[1] = value
    with pytest.raises(ValueError, match="Input X contains"):
        model.predict(matrix)


# Labels


LARGE = 2**53 + np.arange(len(Y)) % 5


def test_integer_labels_are_not_rounded(model: Any) -> None:
    for labels in (LARGE, LARGE.astype(np.uint64), LARGE.tolist(), [10**30 + int(label) for label in LARGE]):
        with pytest.raises(ValueError, match=r"y must hold whole numbers that float64 holds exactly.*pass their ranks"):
            clone(model).fit(X, labels, qid=QID)
    with pytest.raises(ValueError, match="y must hold whole numbers that float64 holds exactly"):
        clone(model).fit(RankingData(X, LARGE, QID, DATA.offsets))


def test_large_exact_labels_are_accepted() -> None:
    labels = (Y * 2**60).astype(np.int64)
    found, wanted = (LinearRanker(eval_metric="tau-b").fit(X, y, qid=QID) for y in (labels, Y))
    np.testing.assert_array_equal(found.coef_, wanted.coef_)


@pytest.mark.parametrize("metric", ["ndcg", "average_precision", "kendall_tau", "log_likelihood"])
def test_metrics_do_not_round_integers(metric: str) -> None:
    function = getattr(metrics, metric)
    with pytest.raises(ValueError, match="labels must hold whole numbers that float64 holds exactly"):
        function(X[:, 0], LARGE, qid=QID)
    with pytest.raises(ValueError, match="scores must hold whole numbers that float64 holds exactly"):
        function(LARGE, Y, qid=QID)


def test_grades_of_labels_are_not_rounded() -> None:
    table = np.where(np.eye(3)[np.arange(len(Y)) % 3] > 0, LARGE[:, None], 0)
    for grades in (table, sp.csr_array(table)):
        with pytest.raises(ValueError, match="Y must hold whole numbers that float64 holds exactly"):
            ExtremeClassifier().fit(X, grades)


# Scores that are not finite


def _linear_trees() -> BoostedRanker:
    few: dict[str, Any] = {"n_estimators": 2, "num_leaves": 2, "progress": False}
    return BoostedRanker("regression", **few, lightgbm_params={"linear_tree": True}).fit(X, Y * 1e12, qid=QID)


def _large(name: str) -> Any:
    fitted: Any = clone(MODELS[name]).fit(DATA)
    fitted.coef_ *= 1e120
    return fitted


def _small_scale(model: Any) -> Any:
    fitted = clone(model).fit(pd.DataFrame(X, columns=NAMES), Y, qid=QID)
    fitted.scaling_.scale[1] = 1e-300
    return fitted


BROKEN = {
    "trees": (_linear_trees, X * 1e300, "row 0: the sum of its leaves"),
    "linear": (lambda: _large("linear"), X * 1e200, r"feature . is .*e\+\d*, too large for its coefficient, .*e\+"),
    "coordinate": (lambda: _large("coordinate"), X * 1e200, "too large for its coefficient"),
    "neural": (lambda: _small_scale(MODELS["neural"]), X, r"X\[0, 1\] \(feature b\) is .*inf after feature scaling"),
    "attention": (lambda: _small_scale(ATTENTION), X, r"X\[0, 1\] \(feature b\) is .*inf after feature scaling"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_scores_that_are_not_finite_are_refused(name: str) -> None:
    make, rows, reason = BROKEN[name]
    model = make()
    rows = pd.DataFrame(rows, columns=NAMES) if hasattr(model, "feature_names_in_") else rows
    lists = {"qid": QID} if name == "attention" else {}
    calls = (
        lambda: model.rank(rows, qid=QID),
        lambda: model.score(rows, Y, qid=QID),
        lambda: model.predict(rows, **lists),
    )
    with np.errstate(over="ignore", invalid="ignore"):
        for call in calls:
            with pytest.raises(ValueError, match=f"scores must be finite, got .*{reason}"):
                call()
