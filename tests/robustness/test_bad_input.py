"""Bad input raises a ValueError that names the argument, what was expected and what was given."""

import io
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import plackett
from plackett import data, estimators, evaluation, lists, metrics
from plackett.aggregation import worth_figure as figure
from plackett.arguments import as_numbers, check_finite
from plackett.data import Ballots, MultilabelData, RankingData, make_tiered_lists
from plackett.likelihood import approximate_derivatives
from plackett.lists import make_lists
from plackett.preferences import ballots_from_tiers

SCORES = np.array([0.5, -0.5, 1.0])
LABELS = np.array([1, 0, 0])
BOTH = (plackett.partition_log_likelihood, plackett.partition_derivatives)

CASES = {
    "NaN score": ({"scores": np.array([0.0, np.nan, 1.0])}, r"scores must be finite.*got nan at item 1"),
    "infinite score": ({"scores": np.array([0.0, 1.0, np.inf])}, r"scores must be finite.*got inf at item 2"),
    "score out of range": ({"scores": np.array([0.0, 1.0, 1e305])}, r"scores must be .*at most 1e\+300"),
    "wrong length": ({"labels": np.array([1, 0])}, r"labels must have the shape of scores, \(3,\), got \(2,\)"),
    "NaN label": ({"labels": np.array([1.0, np.nan, 0.0])}, r"labels must be finite, got nan at item 1"),
    "complex scores": ({"scores": SCORES * 1j}, r"scores must be real numbers, got an array of complex128"),
    "text labels": ({"labels": np.array(["a", "b", "c"])}, r"labels must be real numbers"),
    "three dimensions": ({"scores": np.zeros((1, 1, 3)), "labels": np.zeros((1, 1, 3))}, r"scores must have one dim"),
    "decreasing offsets": ({"offsets": [0, 2, 1, 3]}, r"offsets must not decrease, got 2 followed by 1 at position 1"),
    "offsets from 1": ({"offsets": [1, 3]}, r"offsets must begin with 0, got 1"),
    "offsets too short": ({"offsets": [0, 2]}, r"offsets must end with the number of items, 3, got 2"),
    "no offsets": ({"offsets": []}, r"offsets must hold at least one number"),
    "fractional offsets": ({"offsets": [0, 1.5, 3]}, r"offsets must hold whole numbers"),
    "offsets with rows": ({"scores": SCORES[None], "labels": LABELS[None], "offsets": [0, 3]}, "offsets belong to"),
    "where not boolean": ({"where": np.array([1, 0, 1])}, r"where must be boolean, got int64"),
    "where of another shape": ({"where": np.array([True])}, r"where must have the shape of scores, \(3,\), got \(1,\)"),
    "offsets and where": ({"offsets": [0, 3], "where": LABELS == 1}, r"at most one of offsets and where"),
    "top=0": ({"top": 0}, r"top must be a whole number of at least 1, or None, got 0"),
    "top=True": ({"top": True}, r"top must be a whole number of at least 1, or None, got True"),
    "masked array": ({"scores": np.ma.masked_invalid(SCORES)}, r"scores must not be a masked array.*where="),
    "top=1.5": ({"top": 1.5}, r"top must be a whole number of at least 1, or None, got 1.5"),
    "tol=0": ({"tol": 0.0}, r"tol must be a number from 1e-15 to 0.1, or None, got 0.0"),
    "tol=NaN": ({"tol": float("nan")}, r"tol must be a number"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("function", BOTH)
def test_likelihood_errors_name_the_argument(name, function):
    arguments, message = CASES[name]
    given = {"scores": SCORES, "labels": LABELS, **arguments}
    with pytest.raises(ValueError, match=message):
        function(given.pop("scores"), given.pop("labels"), **given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"quadrature": "simpson"}, "quadrature must be one of 'adaptive', 'midpoint', got 'simpson'"),
        ({"quadrature": "midpoint", "intervals": 0}, "intervals must be a whole number of at least 1, got 0"),
        ({"quadrature": "midpoint", "shift": float("inf")}, "shift must be a finite number, got inf"),
        ({"quadrature": "midpoint", "scores": np.array([0.0, np.nan, 1.0])}, "scores must be finite, got nan"),
        ({"quadrature": "midpoint", "top": 2}, "top must be None, got 2"),
    ],
)
def test_quadrature_errors_name_the_argument(options, message):
    with pytest.raises(ValueError, match=message):
        plackett.partition_log_likelihood(options.pop("scores", SCORES), LABELS, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"qid": [1, 1, 2], "group": [2, 1]}, "at most one of offsets, qid and group may be given, got qid and group"),
        ({"group": [2, 2]}, "group must add up to the number of rows, 3, got a sum of 4"),
        ({"group": [4, -1]}, "group must hold sizes of at least 0, got -1 at position 1"),
        ({"group": [[3]]}, "group must be one-dimensional, got 2 dimensions"),
        ({"group": ["3"]}, "group must hold whole numbers"),
        ({"group": [2**62] * 4 + [3]}, "group must hold whole numbers of at most"),
        ({"offsets": [0, 1e30, 3]}, "offsets must hold whole numbers of at most"),
        ({"qid": np.array(["a", float("nan"), "b"], dtype=object)}, "qid must not be missing or NaN, got one at row 1"),
        ({"qid": np.array(["a", 1, "b"], dtype=object)}, "qid must hold values of one kind"),
        ({"qid": [1, 1]}, "qid must hold one value for each of the 3 rows"),
        ({"qid": [1.0, np.nan, 2.0]}, "qid must not be missing or NaN, got one at row 1"),
    ],
)
def test_list_errors_name_the_argument(options, message):
    with pytest.raises(ValueError, match=message):
        make_lists(3, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ties": "exact"}, "ties must be one of 'random', 'efron', 'breslow', got 'exact'"),
        ({"ties": "efron", "bottom": "no"}, "bottom must be one of 'unordered', 'ordered', got 'no'"),
    ],
)
def test_approximation_errors_name_the_argument(options, message):
    with pytest.raises(ValueError, match=message):
        approximate_derivatives(SCORES, LABELS, **options)


@pytest.mark.parametrize("ties", ["efron", "breslow", "random"])
def test_approximations_refuse_nan(ties):
    with pytest.raises(ValueError, match=r"scores must be finite.*got nan at item 2"):
        approximate_derivatives(np.array([0.0, 1.0, np.nan]), LABELS, ties=ties, random_state=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tier_sizes": (1, 0)}, "tier_sizes must hold sizes of at least 1"),
        ({"coefficients": (1.0, float("nan"))}, "coefficients must be a sequence of finite numbers"),
        ({"n_lists": -1}, "n_lists must be at least 0, got -1"),
    ],
)
def test_generator_errors_name_the_argument(options, message):
    with pytest.raises(ValueError, match=message):
        make_tiered_lists(**options)


@pytest.mark.parametrize("number", [0, -1, 1.5, "two", True])
def test_thread_errors_name_the_argument(number):
    with pytest.raises(ValueError, match="number must be a whole number of at least 1, or None, got"):
        plackett.set_num_threads(number)


def test_single_number_is_refused_for_a_set():
    with pytest.raises(ValueError, match="others must have at least one dimension"):
        plackett.preference_log_probability(SCORES, 1.0)


def test_errors_name_sets():
    with pytest.raises(ValueError, match="others must be finite, got nan at position 1"):
        plackett.preference_log_probability(SCORES, np.array([0.0, np.nan]))
    with pytest.raises(ValueError, match=r"others must have batch dimensions that broadcast .* \(2,\), got \(3,\)"):
        plackett.preference_log_probability(np.zeros((2, 1)), np.zeros((3, 1)))
    assert plackett.preference_log_probability(np.zeros((0, 2)), np.zeros((0, 3))).shape == (0,)


def test_error_for_tensors_suggests_autograd():
    with pytest.raises(TypeError, match="partition_derivatives takes NumPy arrays"):
        plackett.partition_derivatives(torch.zeros(3), LABELS)


RAGGED = [[1.0, 2.0], [3.0]]
RANKING = make_tiered_lists(8, tier_sizes=(1, 2, 2), random_state=0)
BALLOTS = Ballots(np.array([0, 1, 1, 0]), np.array([2.0, 1.0, 2.0, 1.0]), np.array([0, 2, 4]), np.ones(2), ["A", "B"])
ROWS = MultilabelData(np.eye(3), np.eye(3))
FRAME = pd.DataFrame({"q": [1], "l": [1]})
CSV = b"place1,place2\nA,B\n"
X, Y, QID = RANKING.X, RANKING.y, RANKING.qid


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plackett.partition_log_likelihood(RAGGED, RAGGED), "scores must be .* nested lists of equal lengths"),
        (lambda: plackett.partition_log_likelihood(SCORES, RAGGED), "labels must be .* nested lists of equal lengths"),
        (lambda: plackett.preference_log_probability(RAGGED, SCORES), "preferred must be .* of equal lengths"),
        (lambda: metrics.ndcg(SCORES, RAGGED), "labels must be .* nested lists of equal lengths"),
        (lambda: metrics.ndcg(SCORES, LABELS, qid=RAGGED), "qid must be .* nested lists of equal lengths"),
        (lambda: metrics.ndcg(SCORES, LABELS, where=RAGGED), "where must be .* nested lists of equal lengths"),
        (lambda: metrics.correct(RAGGED), "p_values must be .* nested lists of equal lengths"),
        (lambda: metrics.multilabel_precision(np.eye(2), RAGGED), "Y must be .* nested lists of equal lengths"),
        (lambda: metrics.multilabel_precision(RAGGED, np.eye(2)), "scores must be .* nested lists of equal lengths"),
        (
            lambda: metrics.propensity_scored_precision(np.eye(2), np.eye(2), "x", k=1),
            "inverse_propensity must hold numbers, got <U1",
        ),
        (lambda: as_numbers("y", np.array(["1", 2], object)), "y must hold numbers, got object"),
        (lambda: check_finite("x", "abc"), "x must hold numbers, got <U3"),
        (lambda: lists.make_lists("abc"), "items must be a whole number, got 'abc'"),
        (lambda: lists.offsets_from_sizes("abc"), r"sizes must be a row of whole numbers, got <U3 of shape \(\)"),
    ],
)
def test_array_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: RankingData(X.tolist(), Y, QID, RANKING.offsets),
            "X must be a two-dimensional array or a CSR array, got list",
        ),
        (lambda: RankingData(None, Y, QID, RANKING.offsets), "X must be .* got NoneType"),
        (lambda: RankingData(X, None, QID, RANKING.offsets), "y must hold one value .* got NoneType"),
        (lambda: MultilabelData(None, np.eye(3)), "X must be .* got NoneType"),
        (lambda: MultilabelData(np.eye(3), np.ones(3)), r"Y must be .* got ndarray of shape \(3,\)"),
        (lambda: Ballots([0, 1], np.ones(2), [0, 2], np.ones(1), ["A", "B"]), "items must be ndarray, got list"),
        (
            lambda: Ballots(np.array([0, 1]), np.ones(2), [0, 2], np.ones(1), None),
            "names must be Collection, got NoneType",
        ),
        (lambda: data.concatenate(5), "parts must be Sequence, got 5"),
        (lambda: data.concatenate([BALLOTS]), "parts must be RankingData, got Ballots"),
        (lambda: data.letor_folds([X] * 5), "parts must be RankingData, got ndarray"),
        (lambda: data.k_fold(X), "data must be RankingData or MultilabelData or Ballots, got ndarray of shape"),
        (lambda: data.train_validation_split(None), "data must be .* got NoneType"),
        (lambda: data.train_validation_split(RANKING, "a"), "validation must be a number between 0 and 1, got 'a'"),
        (lambda: data.make_clicks(BALLOTS), "data must be RankingData, got Ballots"),
        (lambda: data.make_clicks(RANKING, scores="a"), "scores must hold numbers, got <U1"),
        (lambda: data.make_multilabel_like(["wiki10-31k"]), "shape must be str, got list"),
        (lambda: make_tiered_lists(coefficients="a"), "coefficients must hold numbers, got <U1"),
        (lambda: ballots_from_tiers(5), "results must be GraphTiers or Iterable, got 5"),
        (lambda: ballots_from_tiers([BALLOTS]), "results must be GraphTiers, got Ballots"),
    ],
)
def test_container_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda file: data.dump_letor(BALLOTS, file), "data must be RankingData, got Ballots"),
        (lambda file: data.dump_xmc(RANKING, file), "data must be MultilabelData, got RankingData"),
        (lambda file: data.dump_parquet(BALLOTS, file), "data must be RankingData, got Ballots"),
        (lambda file: data.dump_preflib(RANKING, file), "ballots must be Ballots, got RankingData"),
        (lambda file: data.dump_rankings_csv(RANKING, file), "ballots must be Ballots, got RankingData"),
        (
            lambda file: data.dump_scores("abc", file),
            r"scores must be a 1-D array .*, got <U3 of shape \(\)",
        ),
        (lambda file: data.dump_group(None, file), "group must be one-dimensional, got 0 dimensions"),
        (lambda file: data.dump_group(RAGGED, file), "group must be .* nested lists of equal lengths"),
        (lambda _: data.to_arrow(BALLOTS), "data must be RankingData, got Ballots"),
        (lambda _: data.from_frame(FRAME, query="q", label="l", features=5), "features must be .* got 5"),
        (lambda _: data.load_rankings_csv(io.BytesIO(CSV), items=5), "items must be str or Collection, got 5"),
        (lambda _: data.load_rankings_csv(io.BytesIO(CSV), weight=5), "weight must be str, got 5"),
        (lambda _: data.load_rankings_csv(io.BytesIO(CSV), tie=""), "tie must be a non-empty separator between"),
        (
            lambda _: data.load_letor(io.BytesIO(b"1 qid:1 1:1\n"), n_features=10**30, sparse=True),
            "n_features .*at most",
        ),
        (lambda _: data.load_letor(io.BytesIO(b"1 qid:1 1:1\n"), n_features=True), "n_features .* got True"),
    ],
)
def test_file_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call(io.BytesIO())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: evaluation.dump_per_list([], io.BytesIO()), "results must contain .* a value per list, got none"),
        (lambda: evaluation.dump_per_list([1], io.BytesIO()), "results must be Result, got 1"),
        (lambda: evaluation.compare_systems(None), "results must be Sequence, got NoneType"),
        (lambda: metrics.get_metric(5), "metric must be one of .* got 5"),
    ],
)
def test_result_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.fixture(scope="module")
def aggregator():
    return estimators.RankAggregator().fit(BALLOTS)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *(
            (
                lambda model, name=name, value=value: getattr(model, name)(confidence=value),
                "confidence must be a number",
            )
            for name in ("summary", "score_intervals", "worth_intervals", "rank_intervals")
            for value in ("a", None)
        ),
        (lambda model: model.likelihood_ratio_test(5), "restricted must be RankAggregator or None, got 5"),
        (lambda model: model.plot(5), "path must be str or PathLike or IOBase or None, got 5"),
        (lambda model: figure.worth_figure(model.summary(), top=0), "top must be .* at least 1, or None, got 0"),
        (lambda model: model.fit(BALLOTS, sample_weight="a"), "weights must hold numbers, got <U1"),
        (lambda model: model.fit(BALLOTS, X="a"), "X must hold numbers, got <U1"),
    ],
)
def test_aggregation_errors_name_the_argument(aggregator, call, message):
    with pytest.raises(ValueError, match=message):
        call(aggregator)


@pytest.mark.parametrize("shape", [5, None, "z", (0.5,), (-1,)])
@pytest.mark.parametrize("method", ["sample", "sample_utilities", "sample_given_tiers"])
def test_sample_shape_errors_name_the_argument(method, shape):
    distribution = plackett.PlackettLuce(torch.zeros(3))
    arguments = (LABELS,) if method == "sample_given_tiers" else ()
    with pytest.raises(ValueError, match="sample_shape must be a sequence of whole numbers of at least 0, got"):
        getattr(distribution, method)(*arguments, shape)


NOT_A_NUMBER = ("zzz", None, [], float("nan"))
NOT_A_FLAG = ("zzz", -3)
NOT_OPTIONS = ("zzz", -3)
NOT_METRICS = (None, 5, [], [5], "zzz")
BAD_PARAMETERS: dict[str, dict[str, tuple[Any, ...]]] = {
    "LinearRanker": {
        "standardise": (None, *NOT_A_FLAG),
        "inference": NOT_A_FLAG,
        "objective_options": NOT_OPTIONS,
        "eval_metric": NOT_METRICS,
        "random_state": ("zzz", -3),
    },
    "CoordinateAscentRanker": {
        "objective": (5, None, "zzz"),
        "standardise": (None, *NOT_A_FLAG),
        "eval_metric": NOT_METRICS,
        "random_state": ("zzz", -3),
    },
    "BoostedRanker": {
        "n_estimators": (*NOT_A_NUMBER, 0, -3),
        "learning_rate": (*NOT_A_NUMBER, 0.0, -3),
        "num_leaves": (*NOT_A_NUMBER, 1),
        "max_depth": NOT_A_NUMBER,
        "min_child_samples": (*NOT_A_NUMBER, -3),
        "subsample": (*NOT_A_NUMBER, 0.0, 2.0),
        "subsample_freq": NOT_A_NUMBER,
        "colsample_bytree": (*NOT_A_NUMBER, 0.0, 2.0),
        "reg_lambda": (*NOT_A_NUMBER, -3),
        "reg_alpha": (*NOT_A_NUMBER, -3),
        "max_delta_step": NOT_A_NUMBER,
        "n_permutations": (*NOT_A_NUMBER, 0),
        "objective_options": NOT_OPTIONS,
        "early_stopping_rounds": ("zzz", 0),
        "eval_metric": NOT_METRICS,
        "monotone_constraints": ("zzz", -3),
        "categorical_features": ("zzz", -3),
        "lightgbm_params": NOT_OPTIONS,
        "n_jobs": ("zzz", 0.5),
        "random_state": ("zzz", -3, []),
        "progress": NOT_A_FLAG,
    },
    "NeuralRanker": {
        "objective": ([],),
        "objective_options": NOT_OPTIONS,
        "activation": ([],),
        "layer_norm": NOT_A_FLAG,
        "residual": NOT_A_FLAG,
        "attention_heads": ("zzz", 0),
        "schedule": ([],),
        "eval_metric": NOT_METRICS,
        "precision": ([],),
        "compile": NOT_A_FLAG,
        "optimizer_options": NOT_OPTIONS,
    },
    "ExtremeClassifier": {
        "objective_options": NOT_OPTIONS,
        "activation": ([],),
        "eval_metric": NOT_METRICS,
        "precision": ([],),
        "compile": NOT_A_FLAG,
        "optimizer_options": NOT_OPTIONS,
    },
}


@pytest.mark.parametrize(
    ("model", "name", "value"),
    [
        (model, name, value)
        for model, parameters in BAD_PARAMETERS.items()
        for name, values in parameters.items()
        for value in values
    ],
)
def test_parameter_errors_name_the_argument(model, name, value):
    arguments = (X, (np.arange(len(X))[:, None] % 3 == np.arange(3)).astype(int)) if "Extreme" in model else (RANKING,)
    with pytest.raises(ValueError, match=rf"^{name}(:| must) "):
        getattr(estimators, model)(**{name: value}).fit(*arguments)


RANKERS = ("LinearRanker", "CoordinateAscentRanker", "BoostedRanker", "NeuralRanker")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": Y.astype(str)}, "y must hold numbers, got <U"),
        ({"y": Y.astype(str).astype(object)}, "y must hold numbers, got object"),
        ({"sample_weight": "a"}, "sample_weight must hold numbers, got <U1"),
    ],
)
@pytest.mark.parametrize("model", RANKERS)
def test_row_errors_name_the_argument(model, change, message):
    with pytest.raises(ValueError, match=message):
        getattr(estimators, model)().fit(**{"X": X, "y": Y, "qid": QID, **change})


@pytest.mark.parametrize("kind", [np.asarray, pd.DataFrame])
@pytest.mark.parametrize("model", ["BoostedRanker", "NeuralRanker"])
def test_all_nan_features_are_refused(model, kind):
    with pytest.raises(ValueError, match="X must hold at least one number, got only NaN"):
        getattr(estimators, model)().fit(kind(np.full_like(X, np.nan)), Y, qid=QID)


@pytest.mark.parametrize("model", RANKERS)
def test_prediction_errors_name_the_argument(model):
    with pytest.raises(ValueError, match="data must be RankingData, got ndarray of shape"):
        getattr(estimators, model)().predict_data(X)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.full((3, 2), np.nan), "Y must grade at least one label, got NaN alone"),
        (np.array([[-np.inf, 1.0], [np.nan, 1.0], [2.0, 1.0]]), "Y must be finite or NaN, got infinity"),
        (RAGGED, "Y must be .* nested lists of equal lengths"),
    ],
)
def test_label_errors_name_the_argument(labels, message):
    with pytest.raises(ValueError, match=message):
        estimators.ExtremeClassifier().fit(np.eye(3), labels)


def test_too_few_rows_for_a_split_are_refused():
    few = RANKING.select([0, 1, 2])
    with pytest.raises(ValueError, match=r"X must have a feature that can be split.* 15 rows .* min_child_samples=20"):
        estimators.BoostedRanker(n_estimators=1).fit(few)
