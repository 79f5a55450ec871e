"""ExtremeClassifier: steps against dense losses, predictions, the scikit-learn contract and saved models."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import sklearn
import torch
from data_folder import real_data
from networks import assert_same, check_function_is_saved_by_name, weights_of
from processes import run_alone
from scipy.linalg import hadamard
from scipy.sparse import coo_array, csr_array, hstack, random_array, vstack
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from plackett import ExtremeClassifier, NeuralRanker, losses, partition_log_likelihood
from plackett.data import Ballots, MultilabelData, describe, dump_xmc, load_rankings_csv, make_multilabel
from plackett.data.containers import label_matrix
from plackett.errors import DataError
from plackett.estimators import load_model, make_model
from plackett.losses import LOSSES, loss_names
from plackett.losses.sparse_columns import Shard
from plackett.metrics import (
    get_metric,
    inverse_propensity,
    multilabel_ndcg,
    multilabel_precision,
    propensity_scored_ndcg,
    propensity_scored_precision,
)
from plackett.neural import (
    ExtremeNetwork,
    RowScaling,
    SparseRows,
    extreme_fitting,
    extreme_prediction,
    ridge_paths,
    training,
)
from plackett.neural.extreme_fitting import EFFORTS, batches_of_rows, make_recipe
from plackett.neural.ridge_paths import (
    Correction,
    DualRidge,
    IterativeRidge,
    KernelPath,
    KernelRegression,
    LinearPath,
    NormalRidge,
    PathLabels,
    Ridge,
    fit_path,
)

pytestmark = pytest.mark.usefixtures("one_thread")

SETTINGS: dict[str, Any] = {
    "ensemble": 1, "hidden_sizes": (16,), "epochs": 3, "batch_size": 64, "random_state": 0, "learning_rate": 0.01,
    "hidden_dropout": 0.1, "input_dropout": 0.1,
}  # fmt: skip


def simulated(rows: int, random_state: int) -> MultilabelData:
    return make_multilabel(
        rows, 100, 30, labels_per_row=3, features_per_row=10, signal=0.9, exponent=0.5, random_state=random_state
    )


@pytest.fixture(scope="module")
def data() -> MultilabelData:
    return simulated(400, 0).select(range(300))


@pytest.fixture(scope="module")
def other() -> MultilabelData:
    return simulated(400, 0).select(range(300, 400))


# Single steps

ONE_STEP: dict[str, Any] = {
    "ensemble": 1, "hidden_sizes": (6,), "epochs": 1, "batch_size": 1000, "optimizer": "sgd", "learning_rate": 0.5,
    "weight_decay": 0.0, "schedule": "constant", "hidden_dropout": 0.0, "input_dropout": 0.0, "scaling": "none",
    "random_state": 3,
}  # fmt: skip


def step_by_hand(X: Any, loss: Any, labels: int, sizes: Any = (6,), penalty: Any = None) -> list[Any]:
    """The weights after one step of gradient descent on loss(scores) + penalty(weights of labels)."""
    with torch.random.fork_rng([]):
        torch.manual_seed(3)
        network = ExtremeNetwork(X.shape[1], labels, list(sizes))
    value = loss(network.scores(torch.from_numpy(X.astype(np.float32))))
    (value if penalty is None else value + penalty(network.output.weight)).backward()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter -= 0.5 * parameter.grad
    return [tensor.detach() for tensor in network.state_dict().values()]


def assert_close(model: Any, weights: list[Any]) -> None:
    for mine, theirs in zip(weights_of(model), weights, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)  # single precision


def small(rng: np.random.Generator, rows: int = 12, features: int = 9, labels: int = 7) -> tuple[Any, Any]:
    """Features with zeros, and grades that are mostly absent (NaN); some rows have no labels, some have all."""
    X = np.where(rng.random((rows, features)) < 0.4, rng.standard_normal((rows, features)), 0.0)
    grades = np.where(rng.random((rows, labels)) < 0.4, rng.integers(-1, 3, (rows, labels)), np.nan)
    grades[2], grades[5] = np.nan, np.arange(labels) - 2
    X[4] = 0.0
    return X, grades


def stored(grades: Any) -> csr_array:
    """A sparse matrix of the known grades."""
    row, column = np.nonzero(~np.isnan(grades))
    return coo_array((grades[row, column], (row, column)), shape=grades.shape).tocsr()


@pytest.mark.parametrize("held", [0, 1 << 24], ids=["fused", "plain"])
@pytest.mark.parametrize("name", ["partition", "lower_bound"])
@pytest.mark.parametrize("weighted", [False, True])
def test_step_with_grades_matches_the_dense_loss(
    name: str, held: int, weighted: bool, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Absent labels form the lowest tier, below negative grades; sparse and dense forms agree."""
    monkeypatch.setattr(extreme_fitting, "_SCORES_HELD", held)
    X, grades = small(rng)
    weights = torch.from_numpy(rng.integers(0, 3, len(X)).astype(np.float32)) if weighted else None
    table = torch.from_numpy(np.nan_to_num(grades, nan=-99.0))
    wanted = step_by_hand(X, lambda s: losses.get_loss(name)(s, table, weights=weights), 7)
    given = None if weights is None else weights.numpy()
    for features in (X, csr_array(X)):
        for Y in (stored(grades + 3.0), grades):  # all above 0
            assert_close(ExtremeClassifier(name, **ONE_STEP).fit(features, Y, sample_weight=given), wanted)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("sizes", [(6,), ()])
def test_step_of_every_objective_matches_the_dense_loss(name: str, sizes: Any, rng: np.random.Generator) -> None:
    """Binary labels, in the form the objective needs."""
    X, grades = small(rng)
    if not LOSSES[name].takes_ties:
        Y = np.argsort(rng.random(grades.shape), 1).astype(float)
    else:
        Y = (~np.isnan(grades)).astype(float)
    table = torch.from_numpy(Y)
    number = int(np.random.SeedSequence([3, 0, 0]).generate_state(1, np.uint64)[0]) >> 1
    random = {"generator": torch.Generator().manual_seed(number)} if LOSSES[name].random or name == "listmle" else {}

    def loss(scores: Any) -> Any:
        if name == "logistic":
            every = torch.nn.functional.binary_cross_entropy_with_logits(scores, table.float(), reduction="none")
            return every.sum(1).mean()
        # Batches are shuffled, so a random loss sees rows in that order.
        order = np.random.default_rng([3, 0]).permutation(len(X)) if random else np.arange(len(X))
        return LOSSES[name].function(scores[order], table[order], **random)

    wanted = step_by_hand(X, loss, 7, sizes)
    options = {**ONE_STEP, "hidden_sizes": sizes}
    for given in (csr_array(Y), Y):
        assert_close(ExtremeClassifier(name, **options).fit(X, given), wanted)


@pytest.mark.parametrize("name", ["ranknet", "ranksvm", "lambdarank", "listnet"])
def test_step_with_grades_matches_a_dense_table(name: str, rng: np.random.Generator) -> None:
    X, grades = small(rng)
    table = np.nan_to_num(grades + 2.0, nan=0.0)  # grades from 1; the lowest tier is 0
    known = stored(np.where(table > 0, table, np.nan))
    wanted = step_by_hand(X, lambda s: losses.get_loss(name)(s, torch.from_numpy(table)), 7)
    assert_close(ExtremeClassifier(name, **ONE_STEP).fit(X, known), wanted)


def test_lowest_tier_is_the_same_in_every_batch() -> None:
    """Objectives that use the size of grades must treat absent labels the same in every batch."""
    X = np.eye(4)
    Y = stored(np.array([[2.0, np.nan, np.nan], [3.0, 1.0, np.nan], [np.nan, -5.0, 1.0], [np.nan, np.nan, 4.0]]))
    model = ExtremeClassifier("listnet", **{**ONE_STEP, "batch_size": 1, "hidden_sizes": ()}).fit(X, Y)
    table = torch.tensor([[2.0, -6.0, -6.0], [3.0, 1.0, -6.0], [-6.0, -5.0, 1.0], [-6.0, -6.0, 4.0]])
    weight, bias = torch.zeros(4, 3), torch.zeros(3)
    for i in np.random.default_rng([3, 0]).permutation(4):
        scores = (weight[i] + bias).requires_grad_()
        losses.listnet_loss(scores[None], table[i][None]).backward()
        weight[i] -= 0.5 * scores.grad
        bias -= 0.5 * scores.grad
    assert_close(model, [weight, bias])


@pytest.mark.parametrize("name", ["partition", "lower_bound"])
def test_sampling_all_columns_gives_the_exact_step(
    name: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sample contains every column once."""
    X, grades = small(rng)
    everything = (torch.arange(7), torch.zeros(7))
    monkeypatch.setattr(extreme_fitting.LabelSampler, "draw", lambda self, generator: everything)  # noqa: ARG005
    table = torch.from_numpy(np.nan_to_num(grades, nan=-99.0))
    wanted = step_by_hand(X, lambda s: losses.get_loss(name)(s, table), 7)
    assert_close(ExtremeClassifier(name, **ONE_STEP, negatives=7).fit(X, stored(grades + 3.0)), wanted)


def test_negatives_follow_their_distribution() -> None:
    Y = csr_array(np.array([[1, 1, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]))
    for power in (0.0, 1.0):
        sampler = extreme_fitting.LabelSampler(Y, 20_000, power, torch.device("cpu"))
        columns, log_expected = sampler.draw(torch.Generator().manual_seed(0))
        share = np.array([4.0, 2.0, 1.0, 1.0]) ** power
        share /= share.sum()
        found = np.bincount(columns.numpy(), minlength=4) / 20_000
        # Standard errors of at most 0.0036; fixed seed.
        np.testing.assert_allclose(found, share, atol=0.015)
        np.testing.assert_allclose(
            np.exp(log_expected.numpy()), 20_000 * share[columns.numpy()], rtol=1e-6
        )  # single precision


def test_negatives_estimate_the_loss(data: MultilabelData) -> None:
    """With many sampled columns and a fixed network, the loss of an epoch is close to the exact one."""
    options = {**SETTINGS, "epochs": 1, "learning_rate": 1e-12, "hidden_dropout": 0.0, "input_dropout": 0.0}
    exact, sampled, uneven = (
        ExtremeClassifier(**options, negatives=negatives, negative_power=power).fit(data).history_["loss"][0]
        for negatives, power in ((None, 0.0), (3000, 0.0), (3000, 1.0))
    )
    # w_R from 3,000 draws of 30 columns has an error of about 1/50 per row, over five batches.
    assert sampled == pytest.approx(exact, rel=0.02)
    assert uneven == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sparse_adam", "adagrad", "sgd"])
def test_sparse_gradients_learn(optimizer: str, data: MultilabelData) -> None:
    """Warnings are errors, and torch's sparse optimisers give some."""
    options = {**SETTINGS, "optimizer": optimizer, "learning_rate": 0.1, "epochs": 8}
    model = ExtremeClassifier(**options, sparse_gradients=True, negatives=40, clip_norm=1.0).fit(data)
    assert model.history_["loss"][-1] < model.history_["loss"][0]


def test_sparse_gradients_depend_on_the_number_of_features() -> None:
    rng = np.random.default_rng(0)
    X = csr_array((np.ones(40), rng.integers(0, 20_001, 40), np.arange(0, 41, 2)), shape=(20, 20_001))
    Y = csr_array(np.tile(np.eye(4), (5, 1)))
    options = {**SETTINGS, "epochs": 1, "input_dropout": 0.0}
    wide = ExtremeClassifier(**options).fit(X, Y)
    assert wide.networks_[0].first.sparse_gradient
    touched = np.unique(X.indices)
    start = ExtremeClassifier(**{**options, "learning_rate": 1e-30}).fit(X, Y)
    moved = (wide.networks_[0].first.weight != start.networks_[0].first.weight).any(1)
    assert np.flatnonzero(moved.numpy()).tolist() == touched.tolist()
    narrow = ExtremeClassifier(**options).fit(X[:, :20_000], Y)
    assert not narrow.networks_[0].first.sparse_gradient


# Learning


@pytest.mark.parametrize("name", [*loss_names("sparse"), "attrank"])
def test_every_objective_learns(name: str, data: MultilabelData, other: MultilabelData) -> None:
    model = ExtremeClassifier(name, **{**SETTINGS, "epochs": 15, "learning_rate": 0.03}).fit(data)
    assert model.history_["loss"][-1] < model.history_["loss"][0]
    popular = np.tile(np.argsort(-np.bincount(data.Y.indices, minlength=30))[:1], (100, 1))
    start = multilabel_precision(popular, other.Y, k=1)
    assert multilabel_precision(model.predict_top(other.X, 1)[0], other.Y, k=1) > start + 0.3


def test_propensity_helps_rare_labels() -> None:
    """Ten kinds of rows: three in five have a label shared by all kinds, the others a rare one of their kind."""
    kind = np.repeat(np.arange(10), 30)
    label = np.where(np.tile(np.arange(30) < 18, 10), 0, 1 + kind)
    X, Y = np.eye(10)[kind], csr_array(np.eye(11)[label])
    inverse = inverse_propensity(Y)
    assert 0.6 * inverse[0] < 0.4 * inverse[1:].min()
    options = {
        **SETTINGS,
        "hidden_sizes": (),
        "epochs": 20,
        "learning_rate": 0.1,
        "scaling": "none",
        "input_dropout": 0,
    }
    top = [ExtremeClassifier(**options, propensity=share).fit(X, Y).predict_top(X, 1)[0] for share in (0.0, 1.0)]
    assert (top[0] == 0).all()
    assert (top[1][:, 0] == 1 + kind).all()
    found = [propensity_scored_precision(labels, Y, inverse, k=1) for labels in top]
    assert found[1] > found[0]


def test_propensity_shifts_scores_by_its_logarithm(rng: np.random.Generator) -> None:
    """One step of a linear model from zero scores; the loss uses scores - log inverse propensity."""
    X, grades = small(rng)
    table = torch.from_numpy((~np.isnan(grades)).astype(float))
    inverse = torch.from_numpy(inverse_propensity(csr_array(table.numpy()))).float()
    wanted = step_by_hand(X, lambda s: losses.partition_loss(s - 0.5 * torch.log(inverse), table), 7)
    assert_close(ExtremeClassifier(**ONE_STEP, propensity=0.5).fit(X, csr_array(table.numpy())), wanted)


def glas_by_hand(table: Any) -> Any:
    """The penalty over all pairs of labels that some row has, one by one."""
    used = [label for label in range(table.shape[1]) if table[:, label].any()]

    def share(a: int, b: int) -> float:
        both = float((table[:, a] * table[:, b]).sum())
        return (both / float(table[:, a].sum()) + both / float(table[:, b].sum())) / 2

    return lambda V: sum((V[a] @ V[b] - share(a, b)) ** 2 for a in used for b in used) / len(used) ** 2


def mixed_by_hand(rows: int, alpha: float) -> tuple[float, Any, Any]:
    """The share, the rows and their partners of the first batch of a training with seed 3."""
    first = batches_of_rows(rows, rows, np.random.default_rng([3, 0]))[0]
    with training._randomness((3, 0, 0), torch.device("cpu")) as generator:
        rng = np.random.default_rng(int(torch.randint(1 << 62, (1,), generator=generator)))
    return rng.beta(alpha, alpha), first, first[rng.permutation(rows)]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ["glas", "smoothing", "mixup", "tail"])
def test_step_with_a_regularizer_matches_its_formula(name: str, weighted: bool, rng: np.random.Generator) -> None:
    X, grades = small(rng)
    table = (~np.isnan(grades)).astype(float)
    table[:, 6] = 0.0  # a label that no row has
    has, rows = torch.from_numpy(table), len(X)
    w = torch.from_numpy(rng.uniform(0.5, 2.0, rows)).float() if weighted else torch.ones(rows)

    def mean(values: Any, weights: Any = w) -> Any:
        return (weights * values).sum() / w.sum()

    def plain(scores: Any, tiers: Any = has) -> Any:
        return losses.partition_loss(scores, tiers, reduction="none")

    penalty: Any = None
    if name == "glas":
        strength, loss, given = 3.0, lambda s: mean(plain(s)), X
        penalty = lambda V: strength * glas_by_hand(table)(V)  # noqa: E731
    elif name == "smoothing":
        strength, given = 0.3, X
        loss = lambda s: 0.7 * mean(plain(s)) + 0.3 * mean(-has.sum(1) * torch.log_softmax(s, 1).mean(1))  # noqa: E731
    elif name == "mixup":
        strength = 0.8
        share, first, second = mixed_by_hand(rows, strength)
        given = share * X[first] + (1 - share) * X[second]
        loss = lambda s: sum(  # noqa: E731
            a * mean(plain(s, has[i]), w[i]) for a, i in ((share, first), (1 - share, second))
        )
    else:
        strength, given, log_counts = 0.4, X, np.log(table.sum(0) + 1)
        tiers = table.copy()
        for row in range(rows):
            own = np.flatnonzero(table[row])
            tiers[row, own] += log_counts[own] < log_counts[own].sum() / max(len(own), 1) - 1e-9
        assert (tiers == 2).any()
        loss = lambda s: 0.6 * mean(plain(s)) + 0.4 * mean(plain(s, torch.from_numpy(tiers)))  # noqa: E731
    wanted = step_by_hand(given, loss, 7, penalty=penalty)
    options = {**ONE_STEP, "regularizer": name, "regularizer_strength": strength, "skip": None}
    weights = {"sample_weight": w.numpy()} if weighted else {}
    for rows_given in (X, csr_array(X)):
        assert_close(ExtremeClassifier(**options).fit(rows_given, csr_array(table), **weights), wanted)


def test_regularizers_work_with_dropout_and_empty_rows(data: MultilabelData) -> None:
    empty = csr_array(data.Y.shape)
    for name in ("glas", "smoothing", "mixup", "tail"):
        found = ExtremeClassifier(**SETTINGS, regularizer=name).fit(data)
        plain = ExtremeClassifier(**SETTINGS).fit(data)
        assert np.abs(found.predict(data.X) - plain.predict(data.X)).max() > 1e-6
        assert np.isfinite(ExtremeClassifier(**SETTINGS, regularizer=name).fit(data.X, empty).predict(data.X)).all()


def test_label_rankings_are_learned(rng: np.random.Generator) -> None:
    """Tied rankings of a fixed set of labels from dense features."""
    truth = rng.standard_normal((4, 6))
    X = rng.standard_normal((300, 4))
    utility = X @ truth
    Y = np.floor(utility)  # tiers
    options = {"hidden_sizes": (), "epochs": 40, "learning_rate": 0.1, "eval_metric": "tau-x", "random_state": 0}
    model = ExtremeClassifier(**options, input_dropout=0.0).fit(X[:200], Y[:200], eval_set=(X[200:], Y[200:]))
    tau = get_metric("tau-x")
    found = np.mean([tau(s, y) for s, y in zip(model.predict(X[200:]), Y[200:], strict=True)])
    # tau-x counts pairs tied in Y but not in the scores as half wrong.
    assert found > 0.75
    assert model.history_["valid tau-x"][-1] == pytest.approx(found, abs=1e-9)
    ranks = model.rank(X[200:])
    assert (np.sort(ranks, 1) == np.arange(1, 7)).all()
    np.testing.assert_array_equal(np.argsort(ranks, 1), np.argsort(-model.predict(X[200:]), 1, kind="stable"))


def test_real_label_rankings_beat_the_mean_ranking() -> None:
    """Tied rankings of eleven labels against the mean ranking and the best value possible without ties."""
    ballots = load_rankings_csv(real_data("label-ranking", "vowel.csv.xz"), items="L*", features="A*")
    Y = np.full((len(ballots), len(ballots.names)), np.nan)
    Y[np.repeat(np.arange(len(Y)), np.diff(ballots.offsets)), ballots.items] = ballots.labels
    X, order = np.asarray(ballots.X), np.random.default_rng(0).permutation(len(Y))
    train, test = order[:400], order[400:]
    options = {"hidden_sizes": (64,), "epochs": 25, "learning_rate": 0.01, "random_state": 0}
    model = ExtremeClassifier(**options, input_dropout=0.0, hidden_dropout=0.2).fit(X[train], Y[train])
    tau = get_metric("tau-x")
    mean = np.broadcast_to(np.nanmean(Y[train], 0), (len(test), Y.shape[1]))
    best = tau(Y[test] - 1e-6 * np.arange(Y.shape[1]), Y[test])
    found = tau(model.predict(X[test]), Y[test])
    assert tau(mean, Y[test]) < 0.3 * best
    assert found > 0.8 * best


def test_validation_metrics_match_the_model(data: MultilabelData, other: MultilabelData) -> None:
    names = ["p@1", "p@5", "ndcg@5", "psp@3", "psndcg@3", "recall@5", "coverage@3", "tau-x", "mrr"]
    model = ExtremeClassifier(**SETTINGS, eval_metric=names).fit(data, eval_set=[other, (data.X, data.Y)])
    top, scores = model.predict_top(other.X, 5)[0], model.predict(other.X)
    last = model.history_.rows[-1]
    inverse = inverse_propensity(data.Y)
    for name in names[:7]:
        needed = {"inverse_propensity": inverse} if name.startswith("ps") else {}
        wanted = get_metric(name, multilabel=True, **needed)(top, other.Y)
        assert last[f"valid_0 {name}"] == pytest.approx(wanted, abs=1e-12)
        assert f"valid_1 {name}" in last
    for name in ("tau-x", "mrr"):
        wanted = get_metric(name)(scores, other.Y.toarray())
        assert last[f"valid_0 {name}"] == pytest.approx(wanted, abs=1e-9)


def test_all_metrics_of_an_evaluation_come_from_one_pass(
    data: MultilabelData, other: MultilabelData, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, forward = [], ExtremeNetwork.forward
    monkeypatch.setattr(ExtremeNetwork, "forward", lambda self, rows: calls.append(1) or forward(self, rows))
    passes = []
    for names in ("p@1", ["p@1", "p@3", "ndcg@2", "tau-b", "map"]):
        ExtremeClassifier(**{**SETTINGS, "epochs": 1}, eval_metric=names).fit(data, eval_set=other)
        passes.append(len(calls))
        calls.clear()
    assert passes[0] == passes[1]


def test_metrics_work_with_few_labels() -> None:
    """A cutoff beyond the number of labels, and rows without a metric value."""
    X, Y = np.eye(6), csr_array(np.eye(6)[:, :3])
    model = ExtremeClassifier(**{**SETTINGS, "epochs": 1}, eval_metric=["p@5", "tau-b", "ndcg@5"])
    model.fit(X, Y, eval_set=(X[3:], Y[3:]))  # no labels at all
    assert model.history_["valid p@5"] == [0.0]
    assert np.isnan(model.history_["valid tau-b"]).all()


def test_early_stopping_keeps_the_best_epoch(data: MultilabelData, other: MultilabelData) -> None:
    options = {**SETTINGS, "epochs": 40, "learning_rate": [1e-7, 0.02], "early_stopping_rounds": 3, "skip": None}
    model = ExtremeClassifier(**options).fit(data, eval_set=other)
    assert model.learning_rate_ == 0.02
    best = max(row["valid p@1"] for row in model.history_)
    assert multilabel_precision(model.predict_top(other.X, 1)[0], other.Y, k=1) == pytest.approx(best, abs=1e-12)
    assert len([r for r in model.history_ if r["learning_rate"] == 0.02]) == model.best_epoch_ + 3


def test_validation_fraction_matches_an_evaluation_set(data: MultilabelData) -> None:
    model = ExtremeClassifier(**SETTINGS, validation_fraction=0.25)
    kept, held = model._held_out(len(data), "rows")
    assert sorted([*kept, *held]) == list(range(300))
    by_hand = ExtremeClassifier(**SETTINGS).fit(data.select(kept), eval_set=data.select(held))
    assert_same(model.fit(data), by_hand)


def test_rows_of_weight_zero_have_no_influence(data: MultilabelData, rng: np.random.Generator) -> None:
    weights = rng.integers(0, 3, 300).astype(float)
    options = {**SETTINGS, "scaling": "tfidf", "propensity": 0.5}
    kept = data.select(np.flatnonzero(weights))
    first = ExtremeClassifier(**options).fit(data.X, data.Y, sample_weight=weights)
    second = ExtremeClassifier(**options).fit(kept.X, kept.Y, sample_weight=weights[weights > 0])
    assert_same(first, second)
    np.testing.assert_array_equal(first.predict(data.X), second.predict(data.X))
    assert not torch.equal(weights_of(first)[0], weights_of(ExtremeClassifier(**options).fit(kept))[0])


def test_ensembles_average_their_members(data: MultilabelData) -> None:
    for sizes in ((16,), ()):
        options = {**SETTINGS, "hidden_sizes": sizes}
        both = ExtremeClassifier(**{**options, "ensemble": 2}).fit(data)
        each = [ExtremeClassifier(**{**options, "random_state": seed}).fit(data).predict(data.X) for seed in (0, 1)]
        np.testing.assert_allclose(both.predict(data.X), np.mean(each, axis=0), rtol=1e-5, atol=1e-6)  # single
        top, scores = both.predict_top(data.X, 4)
        np.testing.assert_allclose(np.take_along_axis(both.predict(data.X), top, 1), scores, rtol=1e-5, atol=1e-6)


# The path beside the networks


def joined_by_hand(estimates: Any, weight: float, Y: Any, propensity: float) -> Any:
    """Scores of a path from its estimates."""
    balance = 0.8 * np.log(inverse_propensity(Y)) if propensity == 0 else 0.0
    return weight * (np.log(np.maximum(estimates, 0.0) + 0.02) + balance)


def linear_path_by_hand(X: Any, Y: Any, row_weights: Any, propensity: float) -> tuple[Any, float]:
    """Ridge regression of each label by itself, from its normal equations in dense double precision: estimates of the
    rows, and the weight that follows the data."""
    rows = X.toarray().astype(np.float64)
    unit = np.sqrt(np.average((rows**2).sum(1), weights=row_weights))
    design = np.column_stack([rows, np.full(len(rows), unit)])
    w = row_weights / row_weights.mean()
    gram = design.T @ (w[:, None] * design)
    inverse = np.linalg.inv(gram + 0.25 * unit**2 * np.eye(len(gram)))
    targets = (Y.toarray() > 0) * inverse_propensity(Y) ** propensity
    estimates = design @ inverse @ design.T @ (w[:, None] * targets)
    return estimates, min(12.0, 300.0 * (np.trace(inverse @ gram) / len(rows)) ** 2)


@pytest.mark.parametrize(("propensity", "weight"), [(0.0, 2.0), (0.7, 2.0), (0.0, None)])
@pytest.mark.parametrize("kind", [NormalRidge, DualRidge, IterativeRidge])
def test_linear_path_is_a_ridge_regression(
    kind: type[Ridge],
    propensity: float,
    weight: float | None,
    data: MultilabelData,
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The weight that follows the data comes from an estimated trace: 64 probes, one standard error below 2 %."""
    monkeypatch.setattr("plackett.neural.ridge_paths.make_ridge", kind)
    monkeypatch.setattr("plackett.neural.ridge_paths._SMALLEST_RESIDUAL", 1e-6)
    monkeypatch.setattr("plackett.neural.ridge_paths._FEATURES_TOGETHER", 20)
    X, row_weights = norm_rows(data.X), rng.uniform(0.5, 2.0, len(data))
    labels = PathLabels(data.Y, inverse_propensity(data.Y), propensity)
    path = fit_path(X, labels, row_weights, "linear", weight=weight)
    estimates, by_data = linear_path_by_hand(X, data.Y, row_weights, propensity)
    wanted = joined_by_hand(estimates, weight or by_data, data.Y, propensity)
    tolerance = {"rtol": 1e-4, "atol": 1e-3} if weight else {"rtol": 0.1, "atol": 1e-3}  # log(0.02 + x), x near 0
    for rows in (SparseRows(X, torch.device("cpu")), torch.from_numpy(X.toarray().astype(np.float32))):
        np.testing.assert_allclose(path(rows).numpy(), wanted, **tolerance)


@pytest.mark.parametrize("density", [0.04, 0.5])
def test_normal_equations_of_sparse_and_dense_rows(density: float, rng: np.random.Generator) -> None:
    X = random_array((300, 40), density=density, format="csr", rng=rng)
    X.indices[:2], X.data[:2] = X.indices[1::-1].copy(), X.data[1::-1].copy()  # not sorted
    X.has_sorted_indices = False
    weights, dense = rng.uniform(0.5, 2.0, 300), X.toarray()
    found = np.tril(ridge_paths._gram(X, weights))
    np.testing.assert_allclose(found, np.tril(dense.T @ (weights[:, None] * dense)), rtol=1e-12, atol=1e-14)


def kernel_by_hand(a: Any, b: Any, unit: float) -> Any:
    """The Laplace kernel in double precision, from distances of differences."""
    return np.exp(-0.5 / unit * np.linalg.norm(a[:, None] - b[None], axis=2))


def kernel_path_by_hand(X: Any, Y: Any, row_weights: Any, propensity: float, other: Any) -> Any:
    """Kernel ridge regression in double precision: estimates of other rows."""
    rows, others = X.toarray().astype(np.float64), other.toarray().astype(np.float64)
    unit = np.sqrt(np.average((rows**2).sum(1), weights=row_weights))
    targets = (Y.toarray() > 0) * inverse_propensity(Y) ** propensity
    mean = np.average(targets, axis=0, weights=row_weights)
    penalties = np.diag(0.1 * row_weights.mean() / row_weights)
    solution = np.linalg.solve(kernel_by_hand(rows, rows, unit) + penalties, targets - mean)
    return kernel_by_hand(others, rows, unit) @ solution + mean


@pytest.fixture
def without_corrections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plackett.neural.ridge_paths.LARGEST_CORRECTED", 0)


@pytest.mark.usefixtures("without_corrections")
@pytest.mark.parametrize("propensity", [0.0, 0.7])
def test_kernel_path_is_a_kernel_ridge_regression(
    propensity: float, data: MultilabelData, other: MultilabelData, rng: np.random.Generator
) -> None:
    X, row_weights = norm_rows(data.X), rng.uniform(0.5, 2.0, len(data))
    path = fit_path(X, PathLabels(data.Y, inverse_propensity(data.Y), propensity), row_weights, "kernel")
    empty = csr_array((1, X.shape[1]), dtype=np.float32)  # a row without features is at the distance of its norm
    rows = csr_array(vstack([norm_rows(other.X), X[:3], empty]))
    weight = float(path.importance)
    assert weight == pytest.approx(linear_path_by_hand(X, data.Y, row_weights, propensity)[1], rel=0.1)
    wanted = joined_by_hand(kernel_path_by_hand(X, data.Y, row_weights, propensity, rows), weight, data.Y, propensity)
    for given in (SparseRows(rows, torch.device("cpu")), torch.from_numpy(rows.toarray().astype(np.float32))):
        # Distance 0 is rounded to 0.005, and log(0.02 + x) has slopes up to 50.
        np.testing.assert_allclose(path(given).numpy(), wanted, rtol=1e-3, atol=5e-2 * weight)


@pytest.mark.usefixtures("without_corrections")
def test_kernel_path_of_many_rows_is_the_mean_of_parts(data: MultilabelData, other: MultilabelData) -> None:
    X, inverse = norm_rows(data.X), inverse_propensity(data.Y)
    path = fit_path(X, PathLabels(data.Y, inverse), np.ones(300), "kernel", rows_at_once=149)
    dense, targets = X.toarray().astype(np.float64), (data.Y.toarray() > 0).astype(np.float64)
    kernel = kernel_by_hand(dense, dense, 16.0)
    weight = np.empty(targets.shape)
    for part in (slice(start, None, 3) for start in range(3)):
        weight[part] = np.linalg.solve(kernel[part, part] + 0.1 * np.eye(100), (targets - targets.mean(0))[part])
    to_other = path.kernel(SparseRows(norm_rows(other.X), torch.device("cpu")))
    estimates = to_other.numpy() @ weight / 3.0 + targets.mean(0)
    found = path(SparseRows(norm_rows(other.X), torch.device("cpu"))).numpy()
    wanted = joined_by_hand(estimates, float(path.importance), data.Y, 0.0)
    # Single precision, and 12 log(0.02 + x) has slopes up to 600.
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=5e-3)


def twin_labels(rng: np.random.Generator, rows: int, noise: float) -> tuple[Any, csr_array]:
    """Estimates of 20 labels and the labels; each second label is that before it, but estimated by noise alone."""
    truth = rng.random((rows, 10)) < 0.3
    estimates = truth + rng.normal(0.0, 0.3, truth.shape)
    guesses = rng.normal(0.3, noise, truth.shape)
    return np.stack([estimates, guesses], 2).reshape(rows, 20).astype(np.float32), csr_array(
        np.repeat(truth, 2, axis=1)
    )


def as_path_labels(Y: csr_array) -> PathLabels:
    return PathLabels(Y, inverse_propensity(Y))


def test_corrections_are_a_ridge_regression(rng: np.random.Generator) -> None:
    """Of labels on the estimates of all labels. Left-out estimates are those of a regression without the row."""
    estimates, Y = twin_labels(rng, 400, 0.3)
    row_weights = rng.uniform(0.5, 2.0, 400)
    weights = row_weights / row_weights.mean()

    def by_hand(kept: Any) -> Any:
        weighted = estimates[kept].astype(np.float64).T * weights[kept]
        return np.linalg.solve(weighted @ estimates[kept] + 15.0 * np.eye(20), weighted @ Y.toarray()[kept])

    correction = Correction(estimates, as_path_labels(Y), row_weights)
    wanted = by_hand(slice(None))
    np.testing.assert_allclose(correction.matrix, wanted, rtol=1e-4, atol=1e-5)  # single precision
    assert np.abs(wanted[0, :2] - wanted[0, 2:].max()).min() > 0.3  # the first label tells of its twin
    found = correction.left_out_estimates(slice(0, None, 50))
    for row, left_out in zip(range(0, 400, 50), found, strict=True):
        without = by_hand(np.arange(400) != row)
        np.testing.assert_allclose(
            left_out, estimates[row] / 4.0 + estimates[row] @ without * 0.75, rtol=1e-3, atol=1e-4
        )


@pytest.mark.parametrize("kind", [NormalRidge, DualRidge])
def test_linear_estimates_of_left_out_rows(kind: type[Ridge], data: MultilabelData, rng: np.random.Generator) -> None:
    """They are those of a regression without the row. Its own unit of rows would differ, so all rows have one norm."""
    X, row_weights = norm_rows(data.X), rng.uniform(0.5, 2.0, len(data))
    labels = as_path_labels(data.Y)
    found = kind(X, row_weights).left_out_estimates(labels, slice(0, None, 60))
    design = np.column_stack([X.toarray(), np.full(len(data), 16.0)]).astype(np.float64)
    weights, targets = row_weights / row_weights.mean(), (data.Y.toarray() > 0).astype(np.float64)
    for row, left_out in zip(range(0, 300, 60), found, strict=True):
        kept = np.arange(len(data)) != row
        gram = design[kept].T @ (weights[kept, None] * design[kept]) + 64.0 * np.eye(design.shape[1])
        wanted = design[row] @ np.linalg.solve(gram, design[kept].T @ (weights[kept, None] * targets[kept]))
        np.testing.assert_allclose(left_out, wanted, rtol=1e-3, atol=1e-4)  # single precision


@pytest.mark.usefixtures("without_corrections")
@pytest.mark.parametrize("rows_at_once", [16_384, 149])
def test_kernel_estimates_of_left_out_rows(rows_at_once: int, data: MultilabelData) -> None:
    """They are those of a regression without the row, of the row's part if there are several.

    Here the signs are all columns of a matrix of Hadamard, whose estimates of diagonals are exact.
    """
    X, labels = norm_rows(data.X), as_path_labels(data.Y)
    parts = 1 if rows_at_once > 300 else 3
    size = 300 // parts

    class Signs:
        def choice(self, _values: Any, shape: tuple[int, int]) -> Any:
            rows = 1 << (shape[0] - 1).bit_length()
            return hadamard(rows)[: shape[0]].astype(np.float32)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("plackett.neural.ridge_paths.np.random.default_rng", lambda _: Signs())
        found = KernelRegression(X, labels, np.ones(300), rows_at_once)._left_out
    estimated = KernelRegression(X, labels, np.ones(300), rows_at_once)._left_out
    assert 0.0 < np.sqrt(np.mean((estimated - found) ** 2)) < 0.05 * np.sqrt(np.mean((found - data.Y.toarray()) ** 2))
    dense, targets = X.toarray().astype(np.float64), (data.Y.toarray() > 0).astype(np.float64)
    kernel, mean = kernel_by_hand(dense, dense, 16.0), targets.mean(0)
    for row in range(0, 300, 37):
        kept = [other for other in range(row % parts, 300, parts) if other != row]
        assert len(kept) == size - 1
        solution = np.linalg.solve(kernel[np.ix_(kept, kept)] + 0.1 * np.eye(size - 1), targets[kept] - mean)
        np.testing.assert_allclose(found[row], kernel[row, kept] @ solution + mean, rtol=1e-3, atol=1e-3)  # single


def test_estimates_are_corrected_where_that_helps(
    data: MultilabelData, other: MultilabelData, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, rows = norm_rows(data.X), SparseRows(norm_rows(other.X), torch.device("cpu"))
    labels = as_path_labels(data.Y)
    monkeypatch.setattr("plackett.neural.ridge_paths.LARGEST_CORRECTED", 0)
    plain = fit_path(X, labels, np.ones(300), "kernel").estimates(rows)
    monkeypatch.setattr("plackett.neural.ridge_paths.LARGEST_CORRECTED", 30)
    given = []

    class Exchange:
        """A correction that moves the labels by one, and whose left-out estimates are perfect or useless."""

        matrix = np.eye(30, dtype=np.float32)[:, np.r_[29, :29]]

        def __init__(self, estimates: Any, labels: PathLabels, _row_weights: Any) -> None:
            given.append(estimates)
            self._targets = labels.targets().toarray().astype(np.float32)

        def left_out_estimates(self, rows: slice) -> Any:
            return self._targets[rows] if is_perfect else 1.0 - self._targets[rows]

    monkeypatch.setattr("plackett.neural.ridge_paths.Correction", Exchange)
    for is_perfect in (True, False):
        found = fit_path(X, labels, np.ones(300), "kernel").estimates(rows)
        wanted = plain / 4.0 + plain.roll(1, 1) * 0.75 if is_perfect else plain
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    regression = KernelRegression(X, labels, np.ones(300))
    np.testing.assert_array_equal(given[0], regression._left_out)


def test_kind_of_path_is_chosen_by_left_out_rows(data: MultilabelData, monkeypatch: pytest.MonkeyPatch) -> None:
    """By nDCG@5 and PSnDCG@5 of estimates balanced for rare labels."""
    X, labels = norm_rows(data.X), as_path_labels(data.Y)
    truth = (data.Y.toarray() > 0).astype(np.float32)
    half = truth.copy()
    half[:, :15] = 0.0
    regression = KernelRegression(X, labels, np.ones(300))
    for kernel, linear, is_better in ((truth, half, True), (half, truth, False)):
        regression._judged_estimates = kernel
        monkeypatch.setattr(NormalRidge, "left_out_estimates", lambda *_, linear=linear: linear)
        assert regression.is_better_than(NormalRidge(X, np.ones(300))) is is_better
    scores = np.log(half + 0.02) + 0.8 * np.log(inverse_propensity(data.Y))
    product = multilabel_ndcg(scores, data.Y, k=5) * propensity_scored_ndcg(
        scores, data.Y, inverse_propensity(data.Y), k=5
    )
    assert labels.quality(half) == pytest.approx(product**0.5, rel=1e-12)


def test_a_shard_of_a_path_is_a_part_of_the_whole(data: MultilabelData, other: MultilabelData) -> None:
    rows = SparseRows(norm_rows(other.X), torch.device("cpu"))
    labels = PathLabels(data.Y, inverse_propensity(data.Y))
    for kind in ("linear", "kernel"):
        whole, part = (
            fit_path(norm_rows(data.X), labels, np.ones(300), kind, shard=shard)(rows)
            for shard in (None, Shard(30, 1, 2))
        )
        torch.testing.assert_close(part, whole[:, 15:], rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("without_corrections")
def test_efforts_divide_the_rows_of_a_kernel_path(data: MultilabelData, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [EFFORTS[effort].rows_at_once for effort in ("fast", "default", "best")] == [8_192, 16_384, 16_384]
    monkeypatch.setitem(EFFORTS, "fast", replace(EFFORTS["fast"], rows_at_once=149))
    whole, parts = (ExtremeClassifier(**SETTINGS, effort=e, skip="kernel").fit(data).path_ for e in ("default", "fast"))
    X, labels = norm_rows(data.X), PathLabels(data.Y, inverse_propensity(data.Y))
    for found, rows_at_once in ((whole, 16_384), (parts, 149)):
        wanted = fit_path(X, labels, np.ones(300), "kernel", rows_at_once=rows_at_once)
        torch.testing.assert_close(found.weight, wanted.weight, rtol=1e-4, atol=1e-4)  # single precision
    assert float((whole.weight - parts.weight).abs().max()) > 0.01


@pytest.mark.parametrize(("effort", "balance"), [("default", None), ("best", None), ("default", 0.3), ("best", 0)])
def test_balance_raises_rare_labels(effort: str, balance: float | None, data: MultilabelData) -> None:
    model = ExtremeClassifier(**SETTINGS, effort=effort, balance=balance).fit(data)
    used = {"default": 0.8, "best": 0.6}[effort] if balance is None else balance
    importance = float(model.path_.importance)
    assert importance == {"default": 12.0, "best": 8.0}[effort]  # the largest: there are few rows
    wanted = importance * used * np.log(inverse_propensity(data.Y))
    np.testing.assert_allclose(model.path_.shift.numpy(), wanted, rtol=1e-5, atol=1e-6)  # single precision


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"balance": -0.1}, "balance must be .*, got -0.1"),
        ({"balance": "high"}, "balance must be .*, got 'high'"),
        ({"balance": 0.5, "propensity": 1.0}, "balance= requires propensity=0, got 1.0"),
        ({"balance": 0.5, "skip": None}, "balance= requires a path alongside the networks, and skip=None makes none"),
        ({"balance": 0.5, "objective": "logistic"}, "balance= requires a path .*skip='auto' makes none here"),
    ],
)
def test_balance_that_does_nothing_is_refused(options: dict[str, Any], message: str, data: MultilabelData) -> None:
    with pytest.raises(ValueError, match=message):
        ExtremeClassifier(**SETTINGS, **options).fit(data)


def test_path_follows_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel path only where it fits and is better on left-out rows."""
    options = {**SETTINGS, "epochs": 1}
    rng = np.random.default_rng(0)
    X, wide = rng.normal(size=(300, 2)), rng.normal(size=(900, 20))
    is_outside = np.linalg.norm(X, axis=1) > 1.2
    rings = csr_array(np.column_stack([is_outside, ~is_outside]))  # no line separates them
    sides = csr_array(np.column_stack([wide > 1, wide < -1]))
    assert isinstance(ExtremeClassifier(**options).fit(X, rings).path_, KernelPath)
    for rows in (wide, csr_array(wide)):
        assert isinstance(ExtremeClassifier(**options).fit(rows, sides).path_, LinearPath)
        assert isinstance(ExtremeClassifier(**options, skip="kernel").fit(rows, sides).path_, KernelPath)
    for limit, value in (("COUNT", 299), ("TABLE", 300 * 2 - 1), ("POINTS", 300 * 2 - 1)):
        with monkeypatch.context() as patch:
            patch.setattr(f"plackett.neural.ridge_paths.LARGEST_{limit}", value)
            assert isinstance(ExtremeClassifier(**options).fit(X, rings).path_, LinearPath)
            with pytest.raises(ValueError, match=r"skip='kernel' requires at most 32,768 rows.*got 300 rows, 2 feat"):
                ExtremeClassifier(**options, skip="kernel").fit(X, rings)


def norm_rows(X: Any) -> csr_array:
    return RowScaling(X.shape[1], "sqrt", 16.0).fit(X).apply_to(csr_array(X))


@pytest.mark.parametrize("skip", ["linear", "kernel"])
def test_path_is_added_to_the_networks(skip: str, data: MultilabelData, other: MultilabelData) -> None:
    """To scores, best labels and validation metrics; the networks are those of a model without it."""
    options = {**SETTINGS, "ensemble": 2, "eval_metric": ["p@3", "tau-x"]}
    plain = ExtremeClassifier(**options, skip=None).fit(data)
    model = ExtremeClassifier(**options, skip=skip).fit(data, eval_set=other)
    assert plain.path_ is None
    assert_same(plain, model)
    added = model.path_(torch.from_numpy(model._scaled(other.X).toarray())).numpy()
    assert np.abs(added).max() > 0.1
    scores = model.predict(other.X)
    # Sparse and dense products in single precision; 12 log(0.02 + x) of estimates has slopes up to 600.
    np.testing.assert_allclose(scores, plain.predict(other.X) + added, rtol=1e-5, atol=2e-3)
    top, values = model.predict_top(other.X, 4)
    np.testing.assert_array_equal(top, np.argsort(-scores, axis=1, kind="stable")[:, :4])
    np.testing.assert_allclose(values, np.take_along_axis(scores, top, 1), rtol=1e-5, atol=1e-5)
    one = ExtremeClassifier(**{**options, "ensemble": 1}, skip=skip).fit(data, eval_set=other)
    row = one.history_.rows[-1]
    assert row["valid p@3"] == pytest.approx(multilabel_precision(one.predict(other.X), other.Y, k=3), abs=1e-12)
    tau = get_metric("tau-x")(one.predict(other.X), other.Y.toarray())
    assert row["valid tau-x"] == pytest.approx(tau, abs=1e-9)


def test_linear_path_grows_with_features(data: MultilabelData) -> None:
    """Its weight grows with the features per row; "auto" leaves it out where it does not apply."""
    path = ExtremeClassifier(**SETTINGS, skip="linear").fit(data).path_
    twice = MultilabelData(csr_array(vstack([data.X] * 4)), csr_array(vstack([data.Y] * 4)))
    many = ExtremeClassifier(**{**SETTINGS, "epochs": 1}, skip="linear").fit(twice).path_
    assert 0.0 < float(many.importance) < float(path.importance) <= 12.0
    grades = data.Y.copy()
    grades.data = 1.0 + np.arange(grades.nnz) % 2
    for options, Y in (
        ({"objective": "logistic"}, data.Y),
        ({"hidden_sizes": ()}, data.Y),
        ({"scaling": "none"}, data.Y),
        ({}, grades),
    ):
        model = ExtremeClassifier(**{**SETTINGS, "epochs": 1, **options}).fit(data.X, Y)
        assert model.path_ is None
        if "objective" not in options:
            with pytest.raises(ValueError, match=r"skip='linear' requires .*; set skip=None"):
                ExtremeClassifier(**{**SETTINGS, **options, "skip": "linear"}).fit(data.X, Y)


def test_linear_path_of_many_features(data: MultilabelData, monkeypatch: pytest.MonkeyPatch) -> None:
    """The smaller equations are solved, or if both are large, conjugate gradients: to the same solution."""
    options = {**SETTINGS, "epochs": 1}
    features = data.X.shape[1]
    wide = csr_array(hstack([data.X, csr_array((300, 10_001 - features))]))

    def fitted(X: Any, kind: type[Ridge]) -> Any:
        assert type(ridge_paths.make_ridge(norm_rows(X), np.ones(300))) is kind
        return ExtremeClassifier(**options, skip=2.0).fit(X, data.Y).path_.weight.numpy()

    wanted = fitted(data.X, NormalRidge)
    found = fitted(wide, DualRidge)
    np.testing.assert_allclose(found[:features], wanted, rtol=1e-3, atol=1e-5)  # single precision
    np.testing.assert_array_equal(found[features:], 0.0)
    assert ExtremeClassifier(**options).fit(wide, data.Y).path_ is not None
    monkeypatch.setattr("plackett.neural.ridge_paths.LARGEST_PART", 299)
    monkeypatch.setattr("plackett.neural.ridge_paths._SIDES_AT_ONCE", 7)
    monkeypatch.setattr("plackett.neural.ridge_paths._FEATURES_TOGETHER", 20)
    iterated = fitted(wide, IterativeRidge)
    error = norm_rows(data.X) @ (iterated[:features] - wanted)
    assert 0.0 < np.abs(error).max() < 0.01  # not exact; scores take log(0.02 + estimate)
    np.testing.assert_array_equal(iterated[features:], 0.0)
    monkeypatch.setattr("plackett.neural.ridge_paths._MOST_STEPS", 1)
    with pytest.warns(ConvergenceWarning, match=r"approximate: after 1 steps .* above 0\.1%; skip=None"):
        ExtremeClassifier(**options, skip=2.0).fit(wide, data.Y)
    monkeypatch.setattr("plackett.neural.ridge_paths.LARGEST_POINTS", 0)
    monkeypatch.setattr("plackett.neural.ridge_paths.LARGEST_WORK", data.X.nnz * 30 - 1)
    message = r"skip=2\.0 requires at most 134,217,728 weights.*got 300 rows, 10,001 features, .* entries and 30 labels"
    with pytest.raises(ValueError, match=message):
        ExtremeClassifier(**options, skip=2.0).fit(wide, data.Y)
    assert ExtremeClassifier(**options).fit(wide, data.Y).path_ is None


def test_square_roots_keep_signs_and_norms(rng: np.random.Generator) -> None:
    X = csr_array(np.round(rng.normal(size=(6, 5)), 1) * (rng.random((6, 5)) < 0.6))
    found = RowScaling(5, "sqrt", 3.0).fit(X).apply_to(X).toarray()
    rooted = np.sign(X.toarray()) * np.sqrt(np.abs(X.toarray()))
    norms = np.linalg.norm(rooted, axis=1, keepdims=True)
    np.testing.assert_allclose(found, 3.0 * rooted / np.where(norms > 0, norms, 1.0), rtol=1e-6, atol=1e-7)
    labels = csr_array(np.eye(6, 4))
    kinds = {True: "norm", False: "sqrt"}
    for is_signed, kind in kinds.items():
        model = ExtremeClassifier(**SETTINGS).fit(X if is_signed else abs(X), labels)
        assert model.scaling_.scaling == kind


def test_the_same_seed_gives_the_same_model(data: MultilabelData) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002 (that it is left alone)
    options = {**SETTINGS, "negatives": 30, "sparse_gradients": True}
    first, second = (ExtremeClassifier(**options).fit(data) for _ in range(2))
    third = ExtremeClassifier(**{**options, "random_state": 1}).fit(data)
    assert_same(first, second)
    assert not torch.equal(weights_of(first)[0], weights_of(third)[0])
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()  # noqa: NPY002


# Predictions


@pytest.mark.parametrize("sizes", [(), (8,), (8, 6)])
def test_predict_top_matches_sorted_scores(sizes: Any, data: MultilabelData, monkeypatch: pytest.MonkeyPatch) -> None:
    model = ExtremeClassifier(**{**SETTINGS, "hidden_sizes": sizes}).fit(data)
    scores = model.predict(data.X)
    assert scores.shape == (300, 30)
    for k in (1, 5, 30):
        labels, values = model.predict_top(data.X, k)
        assert labels.shape == values.shape == (300, k)
        order = np.argsort(-scores, 1, kind="stable")[:, :k]
        # Both are in single precision with different product blocks: equal except for near ties.
        np.testing.assert_allclose(values, np.take_along_axis(scores, order, 1), rtol=1e-5, atol=1e-5)
        assert (labels == order).mean() > 0.99
    monkeypatch.setattr(extreme_prediction, "ROWS_AT_ONCE", 7)
    np.testing.assert_allclose(model.predict(data.X), scores, rtol=1e-5, atol=1e-5)
    assert model.score(data.X, data.Y) == pytest.approx(
        multilabel_ndcg(model.predict_top(data.X, 10)[0], data.Y, k=10), abs=1e-12
    )
    with pytest.raises(ValueError, match="k must be at most the number of labels, 30, got 31"):
        model.predict_top(data.X, 31)
    for k in (0, 1.5, -1):
        with pytest.raises(ValueError, match="k must be a whole number of at least 1"):
            model.predict_top(data.X, k)


def test_dense_and_sparse_rows_give_the_same_model(data: MultilabelData) -> None:
    """The same to the last bit, since rows are first converted to CSR, or to dense with "standard"."""
    dense = data.X.toarray()
    for scaling in ("norm", "sqrt", "tfidf", "none"):
        first, second = (ExtremeClassifier(**SETTINGS, scaling=scaling).fit(X, data.Y) for X in (data.X, dense))
        assert_same(first, second)
        np.testing.assert_array_equal(first.predict(data.X), first.predict(dense))
    standard = ExtremeClassifier(**SETTINGS).fit(dense, data.Y)
    np.testing.assert_array_equal(standard.predict(data.X), standard.predict(dense))


def test_duplicate_entries_are_summed(data: MultilabelData) -> None:
    """Non-canonical CSR is the same matrix and gives the same model.

    To the last bit, since the sum of two halves is exact and entries are summed first.
    """

    def twice(matrix: Any) -> Any:
        halves = np.repeat(matrix.data / 2.0, 2)
        return csr_array((halves, np.repeat(matrix.indices, 2), 2 * matrix.indptr), shape=matrix.shape)

    X = data.X.astype(np.float64)
    for scaling in ("norm", "tfidf"):
        plain = ExtremeClassifier(**SETTINGS, scaling=scaling).fit(X, data.Y)
        doubled = ExtremeClassifier(**SETTINGS, scaling=scaling).fit(twice(X), twice(data.Y.astype(np.float64)))
        assert_same(plain, doubled)
        np.testing.assert_array_equal(plain.predict(X), plain.predict(twice(X)))


def test_few_labels_are_learned() -> None:
    """A single label that some rows have; rows with no labels and rows with all."""
    X = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    for Y in (np.array([[1], [1], [0], [0]]), np.array([[True], [True], [False], [False]])):
        for given in (Y, csr_array(Y)):
            options = {**SETTINGS, "hidden_sizes": (), "epochs": 60, "learning_rate": 0.1, "input_dropout": 0.0}
            model = ExtremeClassifier("logistic", **options).fit(X, given)
            scores = model.predict(X)[:, 0]
            assert scores[:2].min() > 0 > scores[2:].max()
            assert model.predict_top(X, 1)[0].tolist() == [[0]] * 4
    nothing = ExtremeClassifier(**SETTINGS).fit(X, csr_array((4, 3)))
    assert nothing.history_["loss"] == [0.0] * 3
    both = np.array([[1, 1], [1, 0], [0, 1], [0, 0]])
    model = ExtremeClassifier("logistic", **{**SETTINGS, "epochs": 1}, eval_metric="p@2").fit(
        X, both, eval_set=(X, both)
    )
    assert model.history_["valid p@2"] == [pytest.approx(0.5)]  # (2 + 1 + 1 + 0) of 8


def test_stored_zeros_are_not_labels(data: MultilabelData) -> None:
    """Neither for the classifier nor for the metrics."""
    Y = data.Y.copy()
    Y.data[::3] = 0.0
    without = Y.copy()
    without.eliminate_zeros()
    found, wanted = (ExtremeClassifier(**SETTINGS).fit(data.X, labels) for labels in (Y, without))
    np.testing.assert_array_equal(found.predict(data.X), wanted.predict(data.X))
    assert found.score(data.X, Y) == wanted.score(data.X, without) == found.score(MultilabelData(data.X, Y))
    top = found.predict_top(data.X, 5)[0]
    assert found.score(data.X, Y) == pytest.approx(multilabel_ndcg(found.predict_top(data.X, 10)[0], Y, k=10))
    assert multilabel_precision(top, Y) == multilabel_precision(top, without)
    assert describe(MultilabelData(data.X, Y)).facts == describe(MultilabelData(data.X, without)).facts
    files = io.BytesIO(), io.BytesIO()
    for labels, file in zip((Y, without), files, strict=True):
        dump_xmc(MultilabelData(data.X, labels), file)
    assert files[0].getvalue() == files[1].getvalue()
    assert len(Y.data) == len(data.Y.data)  # the caller's array is unchanged


def test_multilabel_data_are_accepted(data: MultilabelData) -> None:
    model = ExtremeClassifier(**SETTINGS).fit(data)
    np.testing.assert_array_equal(model.predict(data), model.predict(data.X))
    np.testing.assert_array_equal(model.rank(data), model.rank(data.X))
    for found, wanted in zip(model.predict_top(data, 3), model.predict_top(data.X, 3), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("hidden", [(), (4,)])
def test_scores_that_are_not_finite_are_refused(hidden: tuple[int, ...], data: MultilabelData) -> None:
    """A hidden unit may be finite and a label's score overflow: that label must not be left out of the best."""
    model = ExtremeClassifier(**{**SETTINGS, "hidden_sizes": hidden, "scaling": "none"}).fit(data)
    rows = data.X.toarray()
    rows[3, 2] = 1e38
    for scores in (model.predict(rows), model.predict_top(rows, 2)[1]):
        assert np.isfinite(scores).all()
    with torch.no_grad():
        [parameter for parameter in model.networks_[0].parameters() if parameter.ndim == 2][-1].mul_(1e6)
    for call in (model.predict, model.rank, lambda X: model.predict_top(X, 2)):
        with pytest.raises(ValueError, match=r"scores must be finite, got .* for row 3: X\[3, 2\] is 1e\+38"):
            call(rows)


def test_dense_grades_become_sparse() -> None:
    """The lowest grade of a row is left out; with NaN, only NaN is."""
    Y = label_matrix(np.array([[3.0, 1.0, 2.0], [np.nan, 0.0, -1.0], [2.0, 2.0, 2.0], [np.nan] * 3]), 4)
    assert Y.shape == (4, 3)
    assert Y.indptr.tolist() == [0, 2, 4, 4, 4]
    assert (Y.indices.tolist(), Y.data.tolist()) == ([0, 2, 1, 2], [3.0, 2.0, 0.0, -1.0])


# scikit-learn


def _expected_failures(estimator: Any) -> dict[str, str]:
    del estimator
    return {
        "check_n_features_in_after_fitting": "it gives score its labels by the name y; they are Y here",
        "check_sample_weight_equivalence_on_dense_data": "stochastic: repeated rows are drawn into other batches",
        "check_sample_weight_equivalence_on_sparse_data": "stochastic: repeated rows are drawn into other batches",
    }


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([ExtremeClassifier(epochs=2, hidden_sizes=(4,))], expected_failed_checks=_expected_failures)
def test_passes_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_cross_validation_and_pipelines_work(data: MultilabelData) -> None:
    options = {**SETTINGS, "epochs": 6}
    Y = data.Y.toarray()  # cross_val_score does not accept sparse targets
    found = cross_val_score(ExtremeClassifier(**options), data.X, Y, cv=3)
    assert len(found) == 3
    assert found.min() > 0.3
    dense = make_pipeline(StandardScaler(with_mean=False), ExtremeClassifier(**options)).fit(data.X, Y)
    assert dense.score(data.X, Y) > 0.3
    grid = GridSearchCV(ExtremeClassifier(**options), {"objective": ["partition", "logistic"]}, cv=2)
    assert grid.fit(data.X, Y).best_score_ > 0.3
    weights = 1.0 + np.arange(300) % 3
    with sklearn.config_context(enable_metadata_routing=True):
        model = ExtremeClassifier(**options).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        routed = cross_val_score(model, data.X, Y, cv=2, params={"sample_weight": weights})
        half = data.select(range(150)), data.select(range(150, 300))
        by_hand = clone(model).fit(half[1].X, half[1].Y, sample_weight=weights[150:])
        wanted = by_hand.score(half[0].X, half[0].Y, sample_weight=weights[:150])
        assert routed[0] == pytest.approx(wanted, abs=1e-12)
        assert wanted != by_hand.score(half[0].X, half[0].Y)


def test_clone_keeps_parameters(data: MultilabelData) -> None:
    model = ExtremeClassifier("logistic", hidden_sizes=(4,), scaling="tfidf", random_state=5)
    assert clone(model).get_params() == model.get_params()
    assert not hasattr(clone(model.fit(data)), "networks_")
    assert make_model("extreme", {"epochs": 7}).epochs == 7


# Efforts


def test_effort_sets_what_is_left_open(data: MultilabelData, tmp_path: Path) -> None:
    """Parameters that are given win; a loaded model knows its recipe."""
    model = ExtremeClassifier(effort="fast", epochs=1, hidden_sizes=None, progress=False, random_state=0).fit(data)
    assert model.recipe_ == make_recipe("fast", 300, 100, 30)
    assert [len(model.networks_), len(model.history_.rows)] == [1, 1]
    assert model.networks_[0].output.weight.shape == (30, 512)
    assert model.get_params()["hidden_sizes"] is None
    given = ExtremeClassifier(epochs=1, hidden_sizes=(512,), ensemble=1, progress=False, random_state=0).fit(data)
    assert_same(model, given)
    model.save(tmp_path / "model")
    found = ExtremeClassifier.load(tmp_path / "model")
    assert found.recipe_ == model.recipe_
    np.testing.assert_array_equal(found.predict(data.X), model.predict(data.X))
    description = json.loads((tmp_path / "model" / "plackett.json").read_text())
    for recipe in (None, {}, {"hidden_sizes": 3}, {"hidden_sizes": [4]}, {"hidden_sizes": [512] * 99}):
        description["state"]["about"]["recipe"] = recipe
        (tmp_path / "model" / "plackett.json").write_text(json.dumps(description))
        with pytest.raises(DataError):
            ExtremeClassifier.load(tmp_path / "model")


def test_recipes_follow_the_size_of_the_data() -> None:
    efforts = [make_recipe(effort, 10_000, 5_000, 4_000) for effort in ("fast", "default", "best")]
    assert [recipe["ensemble"] for recipe in efforts] == [1, 2, 5]
    assert [make_recipe("default", rows, 10, 10)["epochs"] for rows in (1, 20_000, 80_000, 10**8)] == [20, 20, 10, 5]
    widths = [make_recipe("default", 10, width, width)["hidden_sizes"] for width in (100_000, 100_001, 10**8)]
    assert widths == [[1024], [512], [128]]
    paths = LinearPath(5, 4), KernelPath(5, 3, 4)
    saved = [make_recipe("default", 10_000, 5_000, 4_000, path) for path in paths]
    assert saved == [
        {"hidden_sizes": [1024], "epochs": 15, "ensemble": 1},
        {"hidden_sizes": [512], "epochs": 12, "ensemble": 1},
    ]
    with pytest.raises(ValueError, match="effort must be one of 'fast', 'default', 'best', got 'quick'"):
        make_recipe("quick", 10, 10, 10)


# Saved models


@pytest.mark.parametrize("skip", ["linear", "kernel"])
def test_models_of_earlier_versions_keep_their_scores(
    skip: str, data: MultilabelData, other: MultilabelData, tmp_path: Path
) -> None:
    """They have no importance and shift of the path, and add its estimates to the scores of the networks."""
    model = ExtremeClassifier(**SETTINGS, skip=skip).fit(data)
    path = model.path_
    inputs, kind = (100, LinearPath) if skip == "linear" else ((100, 300), KernelPath)
    old = kind(*np.atleast_1d(inputs), 30, is_logarithmic=False)
    old.load_state_dict({name: tensor for name, tensor in path.state_dict().items() if name in old.state_dict()})
    model.path_ = old
    model.save(tmp_path / "model")
    found = ExtremeClassifier.load(tmp_path / "model").predict(other.X)
    rows = torch.from_numpy(model._scaled(other.X).toarray())
    estimates = (rows if skip == "linear" else path.kernel(rows)) @ path.weight + path.bias
    model.path_ = None
    np.testing.assert_allclose(found, model.predict(other.X) + estimates.numpy(), rtol=1e-4, atol=1e-4)  # single


@pytest.mark.parametrize(
    "options",
    [
        {"scaling": "tfidf", "ensemble": 2, "negatives": 20},
        {"hidden_sizes": (), "sparse_gradients": True},
        {"hidden_sizes": (8, 8), "scaling": "standard"},
        {"skip": "kernel"},
        {"skip": None},
        {"skip": 3.0, "propensity": 0.5},
    ],
)
def test_loaded_model_matches_the_saved_one(options: dict[str, Any], data: MultilabelData, tmp_path: Path) -> None:
    X = data.X.toarray() if options.get("scaling") == "standard" else data.X
    model = ExtremeClassifier(**{**SETTINGS, **options}).fit(X, data.Y)
    for _ in range(2):
        model.save(tmp_path / "model")
    for found in (ExtremeClassifier.load(tmp_path / "model"), load_model(tmp_path / "model")):
        np.testing.assert_array_equal(found.predict(X), model.predict(X))
        np.testing.assert_array_equal(found.predict_top(X, 3)[0], model.predict_top(X, 3)[0])
        assert found.history_.rows == model.history_.rows
        assert found.n_labels_ == 30
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    with pytest.raises(DataError, match="a model of class ExtremeClassifier"):
        NeuralRanker.load(tmp_path / "model")
    description = json.loads((tmp_path / "model" / "plackett.json").read_text())
    about = description["state"]["about"]
    for change in ({"labels": 3}, {"features": 2}, {"scaling": "x"}, {"scaling": None}, {"labels": None}):
        changed = {**description, "state": {**description["state"], "about": {**about, **change}}}
        (tmp_path / "model" / "plackett.json").write_text(json.dumps(changed))
        with pytest.raises(DataError):
            ExtremeClassifier.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("scaling", "skip"), [("tfidf", "auto"), ("sqrt", "linear"), ("standard", "kernel"), ("standard", None)]
)
def test_onnx_matches_predict(scaling: str, skip: Any, data: MultilabelData, tmp_path: Path) -> None:
    X = data.X.toarray().astype(np.float32)
    X[3] = 0.0
    X[4] *= -1.0
    options = {**SETTINGS, "scaling": scaling, "skip": skip, "ensemble": 2 if scaling == "tfidf" else 1}
    model = ExtremeClassifier(**options).fit(X, data.Y)
    model.export_onnx(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    for rows in (slice(0, 1), slice(0, 300)):
        (found,) = session.run(None, {"features": X[rows]})
        # Single precision; a kernel path takes the root of distances, which are rounded near 0 for rows of training,
        # and 12 log(0.02 + x) of its estimates has slopes up to 600.
        tolerance = 5e-2 if skip in ("kernel", "auto") else 1e-3 if skip == "linear" else 1e-5
        np.testing.assert_allclose(found, model.predict(X[rows]), rtol=tolerance, atol=tolerance)


# Checkpoints


class Cut(Exception):  # noqa: N818 (no error of the program)
    """Interrupts the training."""


@pytest.mark.parametrize(
    "options",
    [
        {"negatives": 40, "sparse_gradients": True, "optimizer": "sparse_adam", "early_stopping_rounds": 1},
        {"optimizer": "adagrad", "sparse_gradients": True, "ensemble": 2, "epochs": 1},
        {"optimizer": "sgd", "sparse_gradients": True, "epochs": 1},
    ],
    ids=lambda options: options["optimizer"],
)
def test_training_resumes_from_every_step(
    options: dict[str, Any], data: MultilabelData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from plackett.neural.training import Training

    settings = {**SETTINGS, "validation_fraction": 0.3, "epochs": 2, **options}
    whole = ExtremeClassifier(**settings).fit(data)
    original, steps = Training.step, 0
    while True:
        left = iter(range(steps))

        def step(self: Any, *arguments: Any, left: Any = left) -> None:
            if next(left, None) is None:
                raise Cut
            original(self, *arguments)

        place = {"checkpoint": tmp_path / str(steps), "checkpoint_every": 0.0}
        try:
            with monkeypatch.context() as patch:
                patch.setattr(Training, "step", step)
                model = ExtremeClassifier(**settings).fit(data, **place)
            break
        except Cut:
            assert_same(ExtremeClassifier(**settings).fit(data, **place), whole)
        steps += 1
    assert_same(model, whole)
    assert steps >= 4


def test_checkpoints_of_other_trainings_are_refused(
    data: MultilabelData, other: MultilabelData, tmp_path: Path
) -> None:
    place = {"checkpoint": tmp_path / "state"}
    ExtremeClassifier(**SETTINGS).fit(data, **place)
    wider = csr_array((data.Y.data, data.Y.indices, data.Y.indptr), shape=(300, 31))
    for refused in (
        lambda: ExtremeClassifier(**SETTINGS).fit(other, **place),
        lambda: ExtremeClassifier(**{**SETTINGS, "negatives": 9}).fit(data, **place),
        lambda: ExtremeClassifier(**SETTINGS).fit(data, eval_set=other, **place),
        lambda: ExtremeClassifier(**SETTINGS).fit(data, sample_weight=np.arange(300), **place),
        lambda: ExtremeClassifier(**SETTINGS).fit(data.X, wider, **place),
    ):
        with pytest.raises(DataError, match="a different training"):
            refused()
    ExtremeClassifier(**{**SETTINGS, "random_state": 1}).fit(data, **place, resume=False)


# User-defined losses


def own_partition(scores: Any, labels: Any, offsets: Any, *, scale: float = 1.0) -> Any:
    return -partition_log_likelihood(scores * scale, labels, offsets=offsets)


@pytest.mark.parametrize("graded", [False, True])
def test_user_loss_matches_the_built_in_one(graded: bool, data: MultilabelData) -> None:
    """It gets a dense table of labels; the built-in objective computes the same from sparse labels."""
    Y = data.Y.copy()
    Y.data = 1.0 + np.arange(Y.nnz) % 3 if graded else np.ones(Y.nnz)
    wanted = ExtremeClassifier("partition", **SETTINGS, skip=None).fit(data.X, Y)
    for objective in (own_partition, losses.own_loss(own_partition), LOSSES["partition"]):
        found = ExtremeClassifier(objective, **SETTINGS, skip=None).fit(data.X, Y)
        np.testing.assert_allclose(found.predict(data.X), wanted.predict(data.X), atol=1e-4)
        np.testing.assert_allclose(found.history_["loss"], wanted.history_["loss"], rtol=1e-6)
        assert clone(found).get_params()["objective"] is objective or isinstance(objective, losses.Loss)
    scaled = ExtremeClassifier(own_partition, objective_options={"scale": 0.5}, **SETTINGS).fit(data.X, Y)
    assert np.abs(scaled.predict(data.X) - wanted.predict(data.X)).max() > 1e-3


def test_models_with_a_user_loss_are_saved_by_name(data: MultilabelData, tmp_path: Path) -> None:
    check_function_is_saved_by_name(
        lambda objective: ExtremeClassifier(objective, **SETTINGS), own_partition, data, tmp_path
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"negatives": 5}, "negatives= requires objective partition or lower_bound, got 'own_partition'"),
        ({"label_shards": 2}, "label_shards= requires objective partition, lower_bound or logistic, got 'own"),
        ({"objective_options": {"top": 3}}, "objective_options of own_partition must be among scale, got top"),
        ({"objective": lambda scores, labels, offsets: scores.sum()}, r"one value per list, shape \(64,\), got \(\)"),  # noqa: ARG005
        ({"objective": losses.Loss("x")}, "objective must be a loss with a sparse form, got 'x', which has none"),
    ],
)
def test_bad_user_losses_are_refused(options: dict[str, Any], message: str, data: MultilabelData) -> None:
    with pytest.raises(ValueError, match=message):
        ExtremeClassifier(**{"objective": own_partition, **SETTINGS, **options}).fit(data)


def test_single_process_does_not_use_shards() -> None:
    """Fitting in one process uses neither the losses of sharded layers nor collectives of torch.distributed."""
    program = """
    import sys
    import numpy as np
    import torch
    from plackett import ExtremeClassifier

    def refuse(*_, **__):
        raise AssertionError("a collective operation")

    for name in ("all_reduce", "all_gather", "all_gather_object", "broadcast", "broadcast_object_list", "barrier"):
        setattr(torch.distributed, name, refuse)
    for options in ({}, {"negatives": 40}, {"objective": "logistic"}):
        model = ExtremeClassifier(**options, hidden_sizes=(4,), epochs=1, progress=False)
        model.fit(np.eye(6), np.eye(6)).predict_top(np.eye(6), 1)
    print(int("plackett.losses.sharded_layer" in sys.modules))
    """
    assert run_alone(program) == 0


# Bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "nonsense"}, "objective must be one of partition, lower_bound"),
        ({"objective_options": {"x": 1}}, "objective_options of partition must be among"),
        (
            {"objective": "logistic", "objective_options": {"top": 1}},
            "objective_options of logistic must be among none",
        ),
        ({"hidden_sizes": 80}, "hidden_sizes must be a sequence"),
        ({"hidden_sizes": (0,)}, "hidden_sizes must be a whole number"),
        ({"hidden_sizes": (4, -1)}, "hidden_sizes must be a whole number"),
        ({"activation": "x"}, "activation must be one of"),
        ({"input_dropout": -0.1}, "input_dropout must be a number from 0"),
        ({"hidden_dropout": 1.0}, "hidden_dropout must be a number from 0"),
        ({"scaling": "x"}, "scaling must be one of auto"),
        ({"skip": "x"}, "skip must be 'auto', 'linear', 'kernel', a number above 0, or None, got 'x'"),
        ({"skip": -1.0}, "skip must be 'auto', 'linear', 'kernel', a number above 0, or None, got -1.0"),
        ({"skip": True}, "skip must be 'auto', 'linear', 'kernel', a number above 0, or None, got True"),
        ({"regularizer": "x"}, "regularizer must be one of 'glas', 'smoothing', 'mixup', 'tail', None, got 'x'"),
        ({"regularizer_strength": 1.0}, "regularizer_strength must be None without a regularizer, got 1.0"),
        (
            {"regularizer": "smoothing", "regularizer_strength": 1.5},
            "regularizer_strength of smoothing must be a number above 0 and at most 1, got 1.5",
        ),
        (
            {"regularizer": "glas", "regularizer_strength": -1},
            "regularizer_strength of glas must be a number above 0, got -1",
        ),
        ({"regularizer": "glas", "negatives": 5}, "regularizer='glas' requires all labels at once: negatives=None"),
        ({"regularizer": "glas", "hidden_sizes": ()}, "regularizer= requires a hidden layer"),
        (
            {"regularizer": "tail", "objective": "ranknet"},
            "regularizer='tail' requires labels without grades and objective partition or lower_bound, got 'ranknet'",
        ),
        ({"scaling": "standard"}, "scaling='standard' needs dense X"),
        ({"input_scale": 0}, "input_scale must be a number above 0"),
        ({"input_scale": "x"}, "input_scale must be a number above 0"),
        ({"negatives": 0}, "negatives must be a whole number of at least 1, or None"),
        (
            {"negatives": 5, "objective": "logistic"},
            "negatives= requires objective partition or lower_bound, got 'logistic'",
        ),
        ({"negatives": 5, "hidden_sizes": ()}, "negatives= requires a hidden layer"),
        ({"negatives": 5, "negative_power": "x"}, "negative_power must be a number"),
        ({"propensity": "x"}, "propensity must be a number"),
        ({"propensity": np.nan}, "propensity must be a number"),
        ({"sparse_gradients": "x"}, "sparse_gradients must be True, False or 'auto'"),
        ({"optimizer": "x"}, "optimizer must be one of"),
        (
            {"optimizer": "sgd", "optimizer_options": {"momentum": 0.9}, "sparse_gradients": True},
            "optimizer_options must not have momentum where gradients are sparse",
        ),
        ({"schedule": "x"}, "schedule must be one of"),
        ({"precision": "x"}, "precision must be one of"),
        ({"device": "x"}, "device must be 'auto' or a device of torch"),
        ({"epochs": 0}, "epochs must be"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"ensemble": 1.5}, "ensemble must be"),
        ({"learning_rate": []}, "learning_rate must be"),
        ({"learning_rate": [1, 2]}, "learning_rate as a list needs an eval_set"),
        ({"early_stopping_rounds": 3}, "early_stopping_rounds needs an eval_set"),
        ({"validation_fraction": 1.5}, "validation_fraction must be"),
        ({"eval_metric": "p@x"}, "eval_metric must have a whole number of at least 1 after @"),
        ({"eval_metric": "zzz"}, "eval_metric must be one of"),
        ({"eval_metric": ["p@1", "tau-x@3"]}, "eval_metric must have no cut-off for tau-x"),
        ({"eval_metric": []}, "eval_metric must name"),
        ({"random_state": -1}, "random_state must be"),
    ],
)
def test_bad_parameters_are_refused(options: dict[str, Any], message: str, data: MultilabelData) -> None:
    with pytest.raises(ValueError, match=message):
        ExtremeClassifier(**{**SETTINGS, **options}).fit(data.X, data.Y)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: {"X": d.X * np.nan}, "NaN"),
        (lambda d: {"X": d.X.toarray() + np.inf}, "infinity"),
        (lambda d: {"Y": d.Y[:-1]}, "Y must have a row for each of the 300 rows of X, got 299"),
        (lambda d: {"Y": d.Y.toarray()[:, 0]}, "Y must have two dimensions"),
        (lambda d: {"Y": d.Y * np.nan}, "Y must be finite"),
        (lambda d: {"Y": np.where(d.Y.toarray() > 0, np.inf, 0.0)}, "Y must be finite"),
        (lambda d: {"Y": d.Y[:, :0]}, "Y must have at least one label"),
        (lambda d: {"Y": d.Y.toarray().astype(str)}, "Y must hold numbers"),
        (lambda _: {"Y": None}, "Y must be given"),
        (lambda _: {"sample_weight": np.ones(3)}, "sample_weight must hold one value for each of the 300 rows"),
        (
            lambda _: {"sample_weight": np.zeros(300)},
            "sample_weight must be finite, at least 0, and not zero everywhere",
        ),
        (lambda _: {"sample_weight": -np.ones(300)}, "sample_weight must be"),
        (lambda _: {"eval_set": 3}, "eval_set must be"),
        (lambda d: {"eval_set": (d.X, d.Y[:, :4])}, "eval_set must have 30 labels"),
        (lambda d: {"eval_set": (d.X[:, :4], d.Y)}, "100 features"),
    ],
)
def test_bad_data_are_refused(change: Any, message: str, data: MultilabelData) -> None:
    given = {"X": data.X, "Y": data.Y} | change(data)
    with pytest.raises(ValueError, match=message):
        ExtremeClassifier(**SETTINGS).fit(given.pop("X"), given.pop("Y"), **given)


def test_grades_are_refused_by_objectives_without_grades(data: MultilabelData) -> None:
    Y = data.Y.copy()
    Y.data = 1.0 + np.arange(Y.nnz) % 2
    with pytest.raises(ValueError, match="Y must not carry different grades for the objective 'logistic'"):
        ExtremeClassifier("logistic", **SETTINGS).fit(data.X, Y)


@pytest.mark.parametrize("name", ["partition", "logistic"])
def test_divergence_suggests_a_lower_rate(name: str, data: MultilabelData) -> None:
    with pytest.raises(ValueError, match=r"in epoch [1-3]: lower learning_rate|must be finite"):
        ExtremeClassifier(name, **{**SETTINGS, "learning_rate": 1e35, "optimizer": "sgd"}).fit(data)


def test_other_containers_are_refused(data: MultilabelData) -> None:
    ballots = Ballots(np.array([0, 1]), np.array([2.0, 1.0]), np.array([0, 2]), np.ones(1), ["a", "b"])
    with pytest.raises(ValueError, match="X must be rows with labels, got Ballots"):
        ExtremeClassifier().fit(ballots)
    with pytest.raises(ValueError, match="Y must be None when X is a MultilabelData"):
        ExtremeClassifier().fit(data, data.Y)
    with pytest.raises(sklearn.exceptions.NotFittedError):
        ExtremeClassifier().predict_top(data.X, 3)
    with pytest.raises(sklearn.exceptions.NotFittedError):
        ExtremeClassifier().predict(data.X)


@pytest.mark.parametrize("objective", ["partition", "lower_bound"])
def test_samples_without_a_negative_are_refused(objective: str) -> None:
    """The row lacks only one label, so its sample alone does not distinguish it from a row with all labels."""
    Y = np.array([[1.0, 1.0, 1.0, 0.0]])
    model = ExtremeClassifier(objective, hidden_sizes=(2,), negatives=1, epochs=40, random_state=0, progress=False)
    with pytest.raises(ValueError, match="negatives must leave every row a column that is not positive; draw more"):
        model.fit(np.eye(1), Y)
    model.fit(np.eye(1), np.ones((1, 4)))  # a row with all labels needs no negatives


def test_export_before_fitting_is_refused(tmp_path: Path) -> None:
    with pytest.raises(sklearn.exceptions.NotFittedError):
        ExtremeClassifier().export_onnx(tmp_path / "x")
