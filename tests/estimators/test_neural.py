"""NeuralRanker: learning, the scikit-learn contract, saved models, ONNX and resumed training."""

import json
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pandas as pd
import polars as pl
import pytest
import sklearn
import torch
from contract import failures_of_rankers
from data_folder import real_data
from networks import assert_same, check_function_is_saved_by_name, weights_of
from processes import run_alone
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from plackett import BoostedRanker, NeuralRanker, partition_log_likelihood
from plackett.data import Ballots, RankingData, load_letor, make_graded_lists, make_tiered_lists
from plackett.errors import DataError
from plackett.estimators import load_model, make_model, persistence
from plackett.losses import LOSSES, loss_names, own_loss
from plackett.metrics import ndcg
from plackett.neural import checkpoints as checkpoint_module

pytestmark = pytest.mark.usefixtures("one_thread")

SETTINGS: dict[str, Any] = {
    "hidden_sizes": (8, 8), "epochs": 3, "batch_size": 200, "learning_rate": 0.01, "random_state": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def data() -> RankingData:
    return make_graded_lists(40, mean_length=15, n_features=14, random_state=0)[0]


@pytest.fixture(scope="module")
def other() -> RankingData:
    return make_graded_lists(30, mean_length=15, n_features=14, random_state=1)[0]


# Learning


@pytest.mark.parametrize("name", loss_names())
def test_every_objective_learns(name: str, data: RankingData, other: RankingData) -> None:
    if not LOSSES[name].takes_ties:  # break ties of grades with noise that keeps their order
        noise = np.random.default_rng(0).random(len(data.y))
        data = RankingData(data.X, data.y + 0.5 * noise, data.qid, data.offsets)
    model = NeuralRanker(name, **{**SETTINGS, "epochs": 25, "scaling": "quantile"}).fit(data)
    loss = model.history_["loss"]
    assert loss[-1] < loss[0]
    start = ndcg(np.zeros(len(other.y)), other.y, k=10, offsets=other.offsets)
    assert model.score(other.X, other.y, qid=other.qid) > start + 0.1


def test_linear_network_recovers_the_coefficients() -> None:
    data = make_tiered_lists(1500, tier_sizes=(1, 2, 3), coefficients=(1.0, -0.5), random_state=0)
    options = {"hidden_sizes": (), "scaling": "none", "epochs": 20, "learning_rate": 0.05, "schedule": "linear"}
    model = NeuralRanker(**options, random_state=0).fit(data)
    found = model.networks_[0].output.weight.detach().numpy()[0]
    # 1,500 lists of 6 with 5 comparisons each: standard errors of about 0.03.
    np.testing.assert_allclose(found, [1.0, -0.5], atol=0.1)


def test_options_reach_the_loss(data: RankingData) -> None:
    plain, cut = (
        NeuralRanker(**SETTINGS, objective_options=options).fit(data).history_["loss"] for options in (None, {"top": 1})
    )
    assert cut[0] < plain[0]


def test_attention_uses_the_list(other: RankingData) -> None:
    """The label says whether an item is above the mean of its list, which an item alone cannot show."""
    rng = np.random.default_rng(0)
    sizes = np.full(60, 8)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    level = np.repeat(5.0 * rng.standard_normal(60), 8)
    x = level + rng.standard_normal(480)
    sign = np.repeat(rng.choice([-1.0, 1.0], 60), 8)  # the better direction is a feature of the list only
    X = np.stack([x, sign], 1)
    labels = (sign * (x - level) > 0).astype(float)
    qid = np.repeat(np.arange(60), 8)
    data = RankingData(X, labels, qid, offsets)
    options = {**SETTINGS, "epochs": 30, "hidden_sizes": (16,), "attention_layers": 1, "attention_heads": 2}
    model = NeuralRanker(**options).fit(data)
    assert model.score(X, labels, qid=qid) > 0.9
    order = rng.permutation(len(X))
    shuffled = model.predict(X[order], qid=qid[order])
    np.testing.assert_allclose(shuffled, model.predict(X, qid=qid)[order], atol=1e-4)  # single precision
    np.testing.assert_allclose(model.predict_data(data), model.predict(X, group=sizes), atol=0)
    assert not np.allclose(model.predict(X, group=[len(X)]), model.predict(X, qid=qid))
    del other


def test_lists_of_weight_zero_have_no_influence(data: RankingData, rng: np.random.Generator) -> None:
    """Not through the loss, the scaling of features or the batches."""
    weights = np.repeat(rng.integers(0, 3, len(data)).astype(float), np.diff(data.offsets))
    changed = data.X.copy()
    changed[weights == 0] = 1e3 * rng.standard_normal((int((weights == 0).sum()), 14))
    labels = np.where(weights == 0, 7.0, data.y)
    first = NeuralRanker(**SETTINGS).fit(data.X, data.y, qid=data.qid, sample_weight=weights)
    second = NeuralRanker(**SETTINGS).fit(changed, labels, qid=data.qid, sample_weight=weights)
    kept = weights > 0
    third = NeuralRanker(**SETTINGS).fit(data.X[kept], data.y[kept], qid=data.qid[kept], sample_weight=weights[kept])
    assert_same(first, second)
    assert_same(first, third)
    equal = NeuralRanker(**SETTINGS).fit(data.X[kept], data.y[kept], qid=data.qid[kept])
    assert not torch.equal(weights_of(first)[0], weights_of(equal)[0])


def test_scale_of_the_weights_does_not_matter(data: RankingData) -> None:
    """The loss of a batch is a weighted mean, so scaling all weights changes nothing."""
    options = {**SETTINGS, "batch_size": 10_000}
    first, second = (
        NeuralRanker(**options).fit(data.X, data.y, qid=data.qid, sample_weight=np.full(len(data.y), w)) for w in (1, 4)
    )
    for a, b in zip(weights_of(first), weights_of(second), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)  # single precision


def test_rows_can_be_in_any_order(data: RankingData) -> None:
    """Interleaving the rows of lists gives the same model if the order of lists and within lists is kept.

    To the last bit, since rows are sorted by list first.
    """
    size = np.diff(data.offsets)
    within = np.arange(len(data.y)) - np.repeat(data.offsets[:-1], size)
    order = np.lexsort((data.qid, within))
    # The first rows of all lists come first, so lists appear in the same order.
    assert (np.diff(order) != 1).any()
    plain = NeuralRanker(**SETTINGS).fit(data)
    mixed = NeuralRanker(**SETTINGS).fit(data.X[order], data.y[order], qid=data.qid[order])
    assert_same(plain, mixed)
    np.testing.assert_array_equal(mixed.predict(data.X[order], qid=data.qid[order]), plain.predict(data.X)[order])
    assert plain.score(data.X, data.y, qid=data.qid) == pytest.approx(
        mixed.score(data.X[order], data.y[order], qid=data.qid[order]), abs=1e-12
    )
    np.testing.assert_array_equal(
        plain.rank(data.X[order], qid=data.qid[order]), plain.rank(data.X, qid=data.qid)[order]
    )


def test_predictions_do_not_depend_on_batches(data: RankingData, monkeypatch: pytest.MonkeyPatch) -> None:
    from plackett.neural import ranking_task

    for attention in (0, 1):
        model = NeuralRanker(**SETTINGS, attention_layers=attention).fit(data)
        whole = model.predict(data.X, qid=data.qid)
        with monkeypatch.context() as patch:
            patch.setattr(ranking_task, "_ITEMS_AT_ONCE", 20)
            parts = model.predict(data.X, qid=data.qid)
        np.testing.assert_allclose(parts, whole, rtol=1e-4, atol=1e-5)  # single precision


class ByItem(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(width, 6)
        self.second = nn.Linear(6, 6)
        self.second.weight = self.first.weight if width == 6 else self.second.weight
        self.last = nn.Linear(6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.last(torch.relu(self.second(torch.relu(self.first(x)))))
        return scores


class ByList(nn.Module):
    """Each item against the mean of its list."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.last = nn.Linear(width, 1)

    def forward(self, x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        sizes = torch.diff(offsets)
        number = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
        means = torch.zeros(len(sizes), x.shape[1]).index_add(0, number, x) / sizes[:, None].clamp(min=1)
        scores: torch.Tensor = self.last(x - means[number])[:, 0]
        return scores


@pytest.mark.parametrize("kind", [ByItem, ByList])
def test_user_networks_are_trained(kind: Any, data: RankingData, tmp_path: Path) -> None:
    options = {**SETTINGS, "epochs": 8, "scaling": "quantile"}
    made = NeuralRanker(**options, network=kind).fit(data)
    assert made.history_["loss"][-1] < made.history_["loss"][0]
    module = kind(14)
    before = [p.detach().clone() for p in module.parameters()]
    model = NeuralRanker(**options, network=module).fit(data)
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))  # it is a copy
    assert_same(model, NeuralRanker(**options, network=module).fit(data))
    assert clone(model).network is not None
    model.save(tmp_path / "model")
    with pytest.raises(
        ValueError, match=r"a network of your own, which is not saved with it. Pass it: load\(path, network="
    ):
        NeuralRanker.load(tmp_path / "model")
    for network in (module, kind):
        again = NeuralRanker.load(tmp_path / "model", network=network)
        np.testing.assert_array_equal(again.predict(data.X, qid=data.qid), model.predict(data.X, qid=data.qid))
    with pytest.raises(DataError, match="do not fit"):
        NeuralRanker.load(tmp_path / "model", network=lambda width: nn.Linear(width, 1))


def test_tied_weights_stay_tied(tmp_path: Path) -> None:
    data = make_graded_lists(10, mean_length=10, n_features=7, random_state=0)[0]
    X = data.X[:, :6]
    model = NeuralRanker(**SETTINGS, network=ByItem).fit(X, data.y, qid=data.qid)
    network = model.networks_[0].module
    assert network.first.weight is network.second.weight
    model.save(tmp_path / "model")
    again = NeuralRanker.load(tmp_path / "model", network=ByItem)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_validation_metrics_match_the_model(data: RankingData, other: RankingData) -> None:
    model = NeuralRanker(**{**SETTINGS, "epochs": 6}, eval_metric=["ndcg@10", "tau-b"])
    model.fit(data, eval_set=[(other.X, other.y, other.qid), data])
    assert model.history_.columns[4:] == ["valid_0 ndcg@10", "valid_0 tau-b", "valid_1 ndcg@10", "valid_1 tau-b"]
    assert model.history_["valid_0 ndcg@10"][-1] == pytest.approx(
        model.score(other.X, other.y, qid=other.qid), abs=1e-12
    )
    assert model.best_epoch_ == int(np.argmax(model.history_["valid_0 ndcg@10"])) + 1
    assert NeuralRanker(**SETTINGS).fit(data).best_epoch_ is None


def test_early_stopping_keeps_the_best_epoch(data: RankingData, other: RankingData) -> None:
    options = {**SETTINGS, "epochs": 60, "learning_rate": [1e-6, 0.05], "early_stopping_rounds": 3, "ensemble": 2}
    model = NeuralRanker(**options).fit(data, eval_set=other)
    assert model.learning_rate_ == 0.05
    rows = [r for r in model.history_ if r["learning_rate"] == 0.05]
    best = [max(r["valid ndcg@10"] for r in rows if r["member"] == member) for member in (0, 1)]
    assert model.best_epoch_ == next(r["epoch"] for r in rows if r["valid ndcg@10"] == best[0])
    for member in (0, 1):
        alone = clone(model)
        alone.fit(data, eval_set=other)
        alone.networks_ = [alone.networks_[member]]
        assert alone.score(other.X, other.y, qid=other.qid) == pytest.approx(best[member], abs=1e-12)
    assert len(rows) < 120


def test_ensembles_average_their_members(data: RankingData) -> None:
    both = NeuralRanker(**SETTINGS, ensemble=2).fit(data)
    scores = [NeuralRanker(**{**SETTINGS, "random_state": seed}).fit(data).predict(data.X) for seed in (0, 1)]
    np.testing.assert_allclose(both.predict(data.X), np.mean(scores, axis=0), rtol=1e-12)


def test_validation_fraction_holds_out_whole_lists(data: RankingData) -> None:
    """Validation uses whole lists, and training does not use them."""
    model = NeuralRanker(**SETTINGS, validation_fraction=0.25)
    kept, held = model._held_out(len(data), "lists")
    assert len(held) == 10
    assert sorted([*kept, *held]) == list(range(len(data)))
    by_hand = NeuralRanker(**SETTINGS).fit(data.select(kept), eval_set=data.select(held))
    model.fit(data)
    assert_same(model, by_hand)
    assert model.history_["valid ndcg@10"] == by_hand.history_["valid ndcg@10"]


def test_validation_without_relevant_items_has_no_best_epoch(data: RankingData, tmp_path: Path) -> None:
    """The metric has no value, and the model can still be saved."""
    nothing = (data.X, np.zeros(len(data.y)), data.qid)
    with pytest.raises(ValueError, match=r"needs a number, got NaN as valid ndcg@10.*no item is relevant"):
        NeuralRanker(**SETTINGS, early_stopping_rounds=2).fit(data, eval_set=nothing)
    model = NeuralRanker(**SETTINGS).fit(data, eval_set=nothing)
    assert np.isnan(model.history_["valid ndcg@10"]).all()
    assert model.best_epoch_ is None
    model.save(tmp_path / "model")
    again = NeuralRanker.load(tmp_path / "model")
    assert np.isnan(again.history_["valid ndcg@10"]).all()


def test_callbacks_can_stop_the_training(data: RankingData) -> None:
    losses_seen = []
    model = NeuralRanker(**{**SETTINGS, "epochs": 50})
    model.fit(data, callbacks=[lambda epoch: losses_seen.append(epoch.history["loss"][-1]) or epoch.number == 2])
    assert losses_seen == model.history_["loss"]
    assert len(losses_seen) == 2


def test_the_same_seed_gives_the_same_model(data: RankingData) -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002 (that it is left alone)
    options = {**SETTINGS, "dropout": 0.2, "objective": "listpl"}
    first, second = (NeuralRanker(**options).fit(data) for _ in range(2))
    third = NeuralRanker(**{**options, "random_state": 1}).fit(data)
    assert_same(first, second)
    assert not torch.equal(weights_of(first)[0], weights_of(third)[0])
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()  # noqa: NPY002


@pytest.mark.usefixtures("one_thread")  # MKL splits products by the threads that are free, and rounds accordingly
def test_two_threads_can_train_at_once(data: RankingData) -> None:
    options = {**SETTINGS, "dropout": 0.2, "hidden_sizes": (64, 64)}
    models = {seed: NeuralRanker(**{**options, "random_state": seed}, ensemble=4) for seed in range(2)}
    alone = {seed: clone(model).fit(data) for seed, model in models.items()}
    threads = [threading.Thread(target=model.fit, args=(data,)) for model in models.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, model in models.items():
        assert_same(model, alone[seed])


def test_real_lists_are_learned() -> None:
    data = load_letor(real_data("mq2008", "S1.txt.xz"))
    train, test = data.select(range(100)), data.select(range(100, len(data)))
    model = NeuralRanker(epochs=30, scaling="quantile", learning_rate=3e-3, random_state=0).fit(train)
    start = ndcg(np.zeros(len(test.y)), test.y, k=10, offsets=test.offsets)
    assert model.score(test.X, test.y, qid=test.qid) > start + 0.1


# Features


def test_missing_values_are_learned_from(rng: np.random.Generator) -> None:
    """Whether a value is missing determines the label, which only an indicator can show."""
    data = make_tiered_lists(150, tier_sizes=(2, 4), random_state=0)
    X = rng.standard_normal((len(data.y), 2))
    X[data.y == data.y.max(), 0] = np.nan
    found = {}
    for missing in ("mean", "indicator"):
        options = {**SETTINGS, "epochs": 20, "missing": missing, "hidden_sizes": ()}
        model = NeuralRanker(**options).fit(X, data.y, qid=data.qid)
        found[missing] = model.score(X, data.y, qid=data.qid)
    assert found["indicator"] > 0.99
    assert found["mean"] < 0.9


def test_sparse_single_precision_and_huge_features_work(data: RankingData) -> None:
    sparse = csr_array(np.where(data.X > 0.5, data.X, 0.0))
    model = NeuralRanker(**SETTINGS).fit(sparse, data.y, qid=data.qid)
    np.testing.assert_array_equal(model.predict(sparse), model.predict(sparse.toarray()))  # made dense first
    single = NeuralRanker(**SETTINGS).fit(data.X.astype(np.float32), data.y, qid=data.qid)
    assert np.isfinite(single.predict(data.X.astype(np.float32))).all()
    X = data.X.copy()
    X[:, 0] *= 1e300
    for scaling in ("standard", "log1p", "quantile"):
        huge = NeuralRanker(**SETTINGS, scaling=scaling).fit(X, data.y, qid=data.qid)
        assert np.isfinite(huge.predict(X)).all()


def test_tables_are_accepted(data: RankingData, tmp_path: Path) -> None:
    frame = pd.DataFrame(data.X, columns=[f"f{i}" for i in range(14)])
    frame.insert(0, "query", data.qid)
    model = NeuralRanker(**SETTINGS, query_column="query").fit(frame, data.y)
    assert list(model.feature_names_in_) == [f"f{i}" for i in range(14)]
    scores = model.predict(frame)
    np.testing.assert_array_equal(scores, model.predict(frame.drop(columns="query")))
    assert model.score(frame, data.y) == pytest.approx(ndcg(scores, data.y, k=10, qid=data.qid))
    model.save(tmp_path / "model")
    again = NeuralRanker.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(frame), scores)
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame.rename(columns={"f3": "z"}))
    narrow = pl.DataFrame(data.X, schema=[f"f{i}" for i in range(14)])
    np.testing.assert_array_equal(model.predict(narrow.to_pandas()), scores)
    np.testing.assert_array_equal(model.predict(narrow), scores)


def test_tables_must_contain_finite_numbers(data: RankingData) -> None:
    frame = pd.DataFrame(data.X)
    frame.columns = [f"f{i}" for i in range(14)]
    for value, message in ((np.inf, "X must hold finite numbers or NaN, got infinity"), ("a", "X must hold numbers")):
        bad = frame.astype(object)
        bad.iloc[3, 2] = value
        with pytest.raises(ValueError, match=message):
            NeuralRanker(**SETTINGS).fit(bad, data.y, qid=data.qid)


# scikit-learn


@pytest.mark.filterwarnings("ignore:neither qid nor group")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [NeuralRanker(epochs=2, hidden_sizes=(4,)), NeuralRanker(epochs=2, hidden_sizes=(4,), missing="error")],
    expected_failed_checks=failures_of_rankers,
)
def test_passes_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_grid_search_routes_lists(data: RankingData) -> None:
    weights = np.repeat(1.0 + np.arange(len(data)) % 3, np.diff(data.offsets))
    lists = {"qid": data.qid, "sample_weight": weights}
    with sklearn.config_context(enable_metadata_routing=True):
        model = NeuralRanker(**{**SETTINGS, "epochs": 8, "scaling": "quantile"})
        model.set_fit_request(qid=True, sample_weight=True).set_score_request(qid=True, sample_weight=True)
        grid = {"hidden_sizes": [(), (8,)], "objective": ["partition", "listnet"]}
        search = GridSearchCV(model, grid, cv=GroupKFold(2)).fit(data.X, data.y, **lists, groups=data.qid)
        assert search.best_score_ > 0.3
        found = cross_val_score(model, data.X, data.y, cv=GroupKFold(2), params={**lists, "groups": data.qid})
        for value, (train, test) in zip(found, GroupKFold(2).split(data.X, groups=data.qid), strict=True):
            by_hand = clone(model).fit(data.X[train], data.y[train], qid=data.qid[train], sample_weight=weights[train])
            wanted = by_hand.score(data.X[test], data.y[test], qid=data.qid[test], sample_weight=weights[test])
            assert value == pytest.approx(wanted, abs=1e-12)
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        pipeline = make_pipeline(scaler, model).fit(data.X, data.y, **lists)
        assert pipeline.score(data.X, data.y, **lists) > 0.3


def test_clone_keeps_parameters(data: RankingData) -> None:
    model = NeuralRanker("listnet", hidden_sizes=(4,), optimizer_options={"eps": 1e-6}, random_state=5)
    assert clone(model).get_params() == model.get_params()
    assert not hasattr(clone(model.fit(data)), "networks_")
    assert make_model("neural", {"epochs": 7}).epochs == 7


# Saved models


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"hidden_sizes": (), "scaling": "none"},
        {"scaling": "quantile", "missing": "indicator", "ensemble": 2, "learning_rate": [1e-3, 1e-2]},
        {"scaling": "log1p", "attention_layers": 1, "layer_norm": True, "residual": True, "validation_fraction": 0.3},
    ],
)
def test_loaded_model_matches_the_saved_one(
    options: dict[str, Any], data: RankingData, other: RankingData, tmp_path: Path
) -> None:
    X = data.X.copy()
    X[::5, 3] = np.nan
    evaluation = other if options.get("ensemble") else None
    model = NeuralRanker(**{**SETTINGS, **options}).fit(X, data.y, qid=data.qid, eval_set=evaluation)
    for _ in range(2):  # the second time replaces the first
        model.save(tmp_path / "model")
    for found in (NeuralRanker.load(tmp_path / "model"), load_model(tmp_path / "model")):
        np.testing.assert_array_equal(found.predict(X, qid=data.qid), model.predict(X, qid=data.qid))
        assert found.history_.rows == model.history_.rows
        assert (found.best_epoch_, found.learning_rate_) == (model.best_epoch_, model.learning_rate_)
        assert found.n_features_in_ == 14
        assert {k: v for k, v in found.get_params().items() if k != "hidden_sizes"} == {
            k: v for k, v in model.get_params().items() if k != "hidden_sizes"
        }
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model"]
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == ["plackett.json", "weights.safetensors"]


def test_invalid_models_are_refused(data: RankingData, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a model"):
        NeuralRanker.load(tmp_path)
    with pytest.raises(DataError, match="not a model"):
        load_model(tmp_path / "nothing")
    path = tmp_path / "model"
    model = NeuralRanker(**SETTINGS).fit(data)
    model.save(path)
    with pytest.raises(DataError, match="a model of class NeuralRanker"):
        BoostedRanker.load(path)
    good, weights = (path / "plackett.json").read_text(), (path / "weights.safetensors").read_bytes()
    description = json.loads(good)

    def changed(**entries: Any) -> str:
        return json.dumps({**description, **entries})

    parameters, state = description["parameters"], description["state"]
    for bad in (
        "", "{", "[]", "{}", "null", "3", '"NeuralRanker"', "[" * 100_000, "\x00", "\xff",
        changed(format=99), changed(format=None), changed(parameters=[]), changed(parameters={"x": 1}),
        changed(parameters={**parameters, "hidden_sizes": 80}), changed(parameters={**parameters, "hidden_sizes": [5]}),
        changed(parameters={**parameters, "hidden_sizes": ["x"]}),
        changed(parameters={**parameters, "hidden_sizes": [10**15]}),
        changed(parameters={**parameters, "scaling": "x"}), changed(parameters={**parameters, "scaling": "quantile"}),
        changed(parameters={**parameters, "device": "nonsense"}),
        changed(parameters={**parameters, "activation": "__import__('os').system('touch hacked')"}),
        changed(state=None), changed(state={}), changed(state=[]), changed(state={**state, "sha256": 3}),
        changed(state={**state, "members": 2}), changed(state={**state, "members": "x"}),
        changed(state={**state, "about": None}), changed(state={**state, "about": {"features": 3}}),
        changed(state={**state, "about": {**state["about"], "features": 3}}),
        changed(state={**state, "about": {**state["about"], "features": -3}}),
    ):  # fmt: skip
        (path / "plackett.json").write_text(bad, encoding="latin-1")
        for load in (NeuralRanker.load, load_model):
            with pytest.raises(DataError):
                load(path)
    (path / "plackett.json").write_text(changed(parameters={**parameters, "device": "nonsense"}))
    assert_same(NeuralRanker.load(path, device="cpu"), model)
    (path / "plackett.json").write_text(good)
    flipped = bytearray(weights)
    flipped[-3] ^= 1
    for bad_weights in (b"", b"nonsense", weights[: len(weights) // 3], weights[:-1], bytes(flipped)):
        (path / "weights.safetensors").write_bytes(bad_weights)
        with pytest.raises(DataError, match="the weights are not those that were saved"):
            NeuralRanker.load(path)
    (path / "weights.safetensors").unlink()
    with pytest.raises(DataError, match="there is no such file"):
        NeuralRanker.load(path)
    with pytest.raises(DataError):
        NeuralRanker.load(path / "plackett.json")  # a file
    with pytest.raises(DataError):
        load_model(path / "plackett.json")


def test_saving_replaces_another_model(data: RankingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "occupied").mkdir()
    first, second = (NeuralRanker(**{**SETTINGS, "random_state": seed}).fit(data) for seed in (0, 1))
    with pytest.raises(FileExistsError, match="is not a model"):
        first.save(tmp_path / "occupied")
    first.save(tmp_path / "new" / "model")
    path = tmp_path / "new" / "model"

    def refuse(*arguments: Any) -> None:
        del arguments
        raise OSError("No space left on device")

    original = Path.rename

    def rename(self: Path, target: Any) -> Any:
        if self.name.endswith(".part"):
            raise OSError("No space left on device")
        return original(self, target)

    for place, name, function in ((checkpoint_module, "write_alone", refuse), (Path, "rename", rename)):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, function)
            patch.setattr(persistence, "_exchange", lambda *_: False)  # as on systems that cannot swap names
            with pytest.raises(OSError, match="No space left"):
                second.save(path)
        assert_same(NeuralRanker.load(path), first)
        assert [p.name for p in path.parent.iterdir()] == ["model"]
    with pytest.raises(sklearn.exceptions.NotFittedError):
        NeuralRanker().save(tmp_path / "unfitted")


def test_model_replaced_during_loading_is_read_again(
    data: RankingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The description of the first model does not match the weights of the second, so all is read again."""
    first, second = (NeuralRanker(**{**SETTINGS, "random_state": seed}).fit(data) for seed in (0, 1))
    first.save(tmp_path / "model")
    original, waiting = persistence.read_description, [second]

    def read(path: Any) -> Any:
        found = original(path)
        if waiting:
            waiting.pop().save(tmp_path / "model")
        return found

    monkeypatch.setattr(persistence, "read_description", read)
    assert_same(NeuralRanker.load(tmp_path / "model"), second)


# ONNX


@pytest.mark.parametrize(
    "options",
    [
        {"scaling": "quantile", "missing": "indicator", "ensemble": 2, "dropout": 0.2},
        {"scaling": "log1p", "attention_layers": 1, "layer_norm": True},
        {"scaling": "standard", "hidden_sizes": ()},
    ],
    ids=["quantile", "log1p", "standard"],
)
def test_onnx_matches_predict(options: dict[str, Any], data: RankingData, tmp_path: Path) -> None:
    X = data.X.astype(np.float32)
    X[::4, 2] = np.nan
    model = NeuralRanker(**{**SETTINGS, **options}).fit(X, data.y, qid=data.qid)
    model.export_onnx(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["model.onnx"]
    wanted = model.predict(X, qid=data.qid)
    for first, last in zip(data.offsets[:-1], data.offsets[1:], strict=True):
        (found,) = session.run(None, {"features": X[first:last]})
        np.testing.assert_allclose(found, wanted[first:last], rtol=1e-5, atol=1e-5)  # single precision
    assert model.networks_[0].training is False


# Checkpoints


class Cut(Exception):  # noqa: N818 (no error of the program)
    """Interrupts the training."""


def cut_after(monkeypatch: pytest.MonkeyPatch, steps: int) -> Any:
    """A patch that interrupts training after `steps` steps."""
    from plackett.neural.training import Training

    patch = monkeypatch.context()
    original, left = Training.step, iter(range(steps))

    def step(self: Any, *arguments: Any) -> None:
        if next(left, None) is None:
            raise Cut
        original(self, *arguments)

    return patch, lambda p: p.setattr(Training, "step", step)


@pytest.mark.parametrize(
    "options",
    [
        {"dropout": 0.3, "early_stopping_rounds": 1, "validation_fraction": 0.3},
        {"objective": "listpl"},
        {"ensemble": 2, "learning_rate": [0.001, 0.01], "validation_fraction": 0.3, "epochs": 2},
    ],
    ids=["dropout", "random loss", "ensemble"],
)
def test_training_resumes_from_every_step(
    options: dict[str, Any], data: RankingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**SETTINGS, **options}
    whole = NeuralRanker(**settings).fit(data)
    steps = 0
    while True:
        place = {"checkpoint": tmp_path / str(steps), "checkpoint_every": 0.0}
        context, apply = cut_after(monkeypatch, steps)
        try:
            with context as patch:
                apply(patch)
                model = NeuralRanker(**settings).fit(data, **place)
            break
        except Cut:
            model = NeuralRanker(**settings).fit(data, **place)
            assert_same(model, whole)
            assert model.history_["loss"] == whole.history_["loss"]
        steps += 1
    assert_same(model, whole)
    assert steps >= 6


def test_checkpoints_of_other_trainings_are_refused(data: RankingData, other: RankingData, tmp_path: Path) -> None:
    place = {"checkpoint": tmp_path / "state"}
    weights = np.repeat(1.0 + np.arange(len(data)), np.diff(data.offsets))
    first = NeuralRanker(**SETTINGS).fit(data, **place)
    for refused in (
        lambda: NeuralRanker(**SETTINGS).fit(other, **place),
        lambda: NeuralRanker(**{**SETTINGS, "dropout": 0.1}).fit(data, **place),
        lambda: NeuralRanker(**SETTINGS).fit(data, eval_set=other, **place),
        lambda: NeuralRanker(**SETTINGS).fit(data.X, data.y, qid=data.qid, sample_weight=weights, **place),
        lambda: NeuralRanker(**SETTINGS, network=ByItem).fit(data, **place),
    ):
        with pytest.raises(DataError, match="a different training"):
            refused()
    other_seed = NeuralRanker(**{**SETTINGS, "random_state": 1}).fit(data, **place, resume=False)
    assert not torch.equal(weights_of(first)[0], weights_of(other_seed)[0])
    # Parameters without influence on the result may change.
    assert_same(NeuralRanker(**{**SETTINGS, "random_state": 1}, progress=False).fit(data, **place), other_seed)


def test_training_starts_over_without_resume(data: RankingData, tmp_path: Path) -> None:
    calls: list[int] = []
    for resume in (True, True, False):
        NeuralRanker(**SETTINGS).fit(
            data, checkpoint=tmp_path, resume=resume, callbacks=[lambda epoch: calls.append(epoch.number)]
        )
    assert calls == [1, 2, 3, 1, 2, 3]


KILLED = """
    import itertools, json, os, random, signal, sys, torch
    from pathlib import Path
    from plackett import ExtremeClassifier, NeuralRanker
    from plackett.data import make_multilabel, make_tiered_lists
    torch.set_num_threads(1)
    place, moments = Path(sys.argv[1]), random.Random(0)
    lists = make_tiered_lists(20, tier_sizes=(1, 2, 3), random_state=0)
    rows = make_multilabel(60, 100, 20, labels_per_row=2, features_per_row=10, random_state=0)
    ranker = NeuralRanker("listpl", hidden_sizes=(8,), dropout=0.2, epochs=12, batch_size=30, random_state=0)
    wide = ExtremeClassifier(hidden_sizes=(8,), epochs=12, batch_size=16, random_state=0, sparse_gradients=True,
                             negatives=8, validation_fraction=0.2, early_stopping_rounds=9, ensemble=2)

    def run(folder):
        for model, data, name in ((ranker, lists, "ranker"), (wide, rows, "wide")):
            model.fit(data, checkpoint=folder / name, checkpoint_every=0.0)
            model.save(folder / f"{name}.model")

    def run_in_child(folder, last=None):
        # The exit status and the number of function calls; the child is killed at call number `last`.
        child = os.fork()
        if child == 0:
            calls = itertools.count()

            def count(frame, event, argument):
                if next(calls) == last:
                    os.kill(os.getpid(), signal.SIGKILL)

            sys.setprofile(count)
            run(folder)
            sys.setprofile(None)
            (place / "calls").write_text(str(next(calls)))
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        return status, None if status else int((place / "calls").read_text())

    run(place / "whole")  # compile kernels before forking
    _, calls = run_in_child(place / "counted")
    # Each kill is within the first twelfth of the work, so ten kills leave work for the last run.
    kills = [run_in_child(place / "parts", moments.randrange(calls // 12))[0] for _ in range(10)]
    _, left = run_in_child(place / "parts")
    print(json.dumps([kills, left / calls]))
"""


def test_training_survives_ten_kills(tmp_path: Path) -> None:
    """kill -9 at random moments, resumed each time, gives the weights of an uninterrupted run."""
    kills, left = run_alone(KILLED, tmp_path)
    assert kills == [signal.SIGKILL] * 10
    assert 0 < left < 0.9  # the last run continues from the others
    for name in ("ranker", "wide"):
        found, wanted = (tmp_path / part / f"{name}.model" / "weights.safetensors" for part in ("parts", "whole"))
        assert found.read_bytes() == wanted.read_bytes()
        assert {p.name.partition(".safetensors")[2] for p in (tmp_path / "parts" / name).iterdir()} == {"", ".before"}


def test_functions_are_identified_by_name(data: RankingData, tmp_path: Path) -> None:
    """In the next process, the function of a network or option has another address."""

    def make() -> Any:
        def network(width: int) -> Any:
            return nn.Linear(width, 1)

        return network

    calls: list[int] = []
    first, second = make(), make()
    assert str(first) != str(second)
    for network in (first, second):
        NeuralRanker(**SETTINGS, network=network).fit(data, checkpoint=tmp_path, callbacks=[calls.append])
    assert len(calls) == 3


COMPILED = """
    import os, sys
    # torch would take code that it compiled for another processor from its common cache.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = sys.argv[1] + "/inductor"
    import json, warnings, numpy as np, torch
    from functools import partial
    warnings.simplefilter("ignore")  # of the compiler itself
    from plackett import ExtremeClassifier, NeuralRanker
    from plackett.data import make_multilabel, make_tiered_lists
    torch.set_num_threads(1)
    lists = make_tiered_lists(20, random_state=0)
    rows = make_multilabel(60, 100, 20, labels_per_row=2, features_per_row=10, random_state=0)
    found = {}
    for kind, data, sizes in ((NeuralRanker, lists, (8,)), (ExtremeClassifier, rows, (8, 8))):
        options = {"hidden_sizes": sizes, "epochs": 2, "random_state": 0, "batch_size": 1000}
        options |= {"hidden_dropout": 0.0, "input_dropout": 0.0} if kind is ExtremeClassifier else {}
        plain, compiled = (kind(**options, compile=chosen).fit(data) for chosen in (False, True))
        path = f"{sys.argv[1]}/{kind.__name__}"
        compiled.save(path)
        scores = [model.predict(data.X) for model in (plain, compiled, kind.load(path))]
        # Scores have no level of their own.
        scores = [x - x.mean(-1, keepdims=True) for x in scores]
        found[kind.__name__] = [float(np.abs(x - scores[0]).max()) for x in scores[1:]]
        torch.compile = partial(torch.compile, backend="aot_eager")  # the second time without the compiler itself
    found["graphs"] = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    print(json.dumps(found))
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_compiled_network_gives_the_same_model(tmp_path: Path) -> None:
    """torch.compile changes only rounding, and keeps the names of weights."""
    found = run_alone(COMPILED, tmp_path)
    assert found["graphs"] >= 2
    for name in ("NeuralRanker", "ExtremeClassifier"):
        assert max(found[name]) < 1e-4  # single precision, different kernels


# User-defined losses


def own_partition(scores: Any, labels: Any, offsets: Any, *, top: int | None = None) -> Any:
    return -partition_log_likelihood(scores, labels, offsets=offsets, top=top)


@pytest.mark.parametrize("options", [{}, {"top": 3}])
def test_user_loss_matches_the_built_in_one(options: dict[str, Any], data: RankingData) -> None:
    settings = {**SETTINGS, "objective_options": options}
    wanted = NeuralRanker("partition", **settings).fit(data)
    for objective in (own_partition, own_loss(own_partition, "mine"), LOSSES["partition"]):
        found = NeuralRanker(objective, **settings).fit(data)
        assert_same(found, wanted)
        assert_same(clone(found).fit(data), wanted)
    assert clone(NeuralRanker(own_partition)).get_params()["objective"] is own_partition


def test_models_with_a_user_loss_are_saved_by_name(data: RankingData, tmp_path: Path) -> None:
    check_function_is_saved_by_name(
        lambda objective: NeuralRanker(objective, **SETTINGS), own_partition, data, tmp_path
    )


def test_function_with_the_name_of_an_objective_is_not_confused_with_it(data: RankingData, tmp_path: Path) -> None:
    """Not even after loading."""

    def partition(scores: Any, labels: Any, offsets: Any) -> Any:
        return own_partition(scores, labels, offsets) * 2.0

    NeuralRanker(partition, **SETTINGS).fit(data).save(tmp_path / "model")
    loaded = clone(NeuralRanker.load(tmp_path / "model"))
    with pytest.raises(ValueError, match="objective 'partition' is a function"):
        loaded.fit(data)
    NeuralRanker(LOSSES["partition"], **SETTINGS).fit(data).save(tmp_path / "model")
    NeuralRanker.load(tmp_path / "model").fit(data)  # registered: the name is enough


@pytest.mark.parametrize("functions", [3, {"objective": 3}, {"network": "x"}])
def test_bad_function_names_are_refused(functions: Any, data: RankingData, tmp_path: Path) -> None:
    NeuralRanker(own_partition, **SETTINGS).fit(data).save(tmp_path / "model")
    file = tmp_path / "model" / "plackett.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "functions": functions}))
    with pytest.raises(DataError, match="functions must"):
        NeuralRanker.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (lambda scores, labels, offsets: scores, r"must return one value per list, shape \(\d+,\), got \(\d+,\)"),  # noqa: ARG005
        (lambda scores, labels, offsets: 3.0, r"must return one value per list, shape \(\d+,\), got float"),  # noqa: ARG005
        (LOSSES["logistic"], "objective must be a loss with a dense form, got 'logistic', which has none"),
        ("logistic", "objective must be one of partition, topk.*, or a function, got 'logistic'"),
        (3, "objective must be one of partition, topk.*, or a function, got 3"),
    ],
)
def test_bad_losses_are_refused(objective: Any, message: str, data: RankingData) -> None:
    with pytest.raises(ValueError, match=message):
        NeuralRanker(objective, **SETTINGS).fit(data)
    with pytest.raises(ValueError, match="objective_options of own_partition must be among top, got x"):
        NeuralRanker(own_partition, **{**SETTINGS, "objective_options": {"x": 1}}).fit(data)


# Bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "nonsense"}, "objective must be one of partition, topk"),
        ({"objective_options": {"x": 1}}, "objective_options of partition must be among"),
        ({"objective_options": {"reduction": "none"}}, "objective_options of partition must be among"),
        ({"objective_options": {"top": 0}}, "top must be"),
        ({"optimizer": "x"}, "optimizer must be one of adam"),
        ({"optimizer_options": {"x": 1}}, "optimizer_options must be options of adam"),
        ({"schedule": "x"}, "schedule must be one of constant"),
        ({"precision": "x"}, "precision must be one of float32"),
        ({"device": "nonsense"}, "device must be 'auto' or a device of torch"),
        ({"device": None}, "device must be 'auto' or a device of torch"),
        ({"device": "meta:x"}, "device must be 'auto' or a device of torch"),
        ({"device": "meta"}, "device must be 'auto' or a device of torch"),
        ({"scaling": "x"}, "scaling must be one of none"),
        ({"missing": "x"}, "missing must be one of mean"),
        ({"activation": "x"}, "activation must be one of relu"),
        ({"dropout": -0.1}, "dropout must be a number from 0"),
        ({"dropout": "x"}, "dropout must be a number from 0"),
        ({"hidden_sizes": 80}, "hidden_sizes must be a sequence"),
        ({"hidden_sizes": (0,)}, "hidden_sizes must be a whole number"),
        ({"attention_layers": 1, "attention_heads": 3}, "attention_heads must divide"),
        ({"epochs": 0}, "epochs must be"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"ensemble": 0}, "ensemble must be"),
        ({"learning_rate": []}, "learning_rate must be a number above 0, or a list of them"),
        ({"learning_rate": "x"}, "learning_rate must be"),
        ({"learning_rate": [0.1, 0.2]}, "learning_rate as a list needs an eval_set or validation_fraction"),
        ({"early_stopping_rounds": 5}, "early_stopping_rounds needs an eval_set or validation_fraction"),
        ({"early_stopping_rounds": 5, "eval_metric": [], "validation_fraction": 0.5}, "eval_metric must name"),
        ({"validation_fraction": 1.5}, "validation_fraction must be a number between 0 and 1"),
        ({"validation_fraction": 0.001}, "validation_fraction=0.001 of 40 lists leaves one side empty"),
        ({"eval_metric": "ndgc"}, "metric must be one of"),
        ({"network": 3}, "network must be a torch module, or a function"),
        ({"network": lambda _: 3}, "network must be a torch module, or a function"),
        ({"network": nn.Linear(14, 2)}, "network must give one score per row"),
        ({"query_column": "q"}, "query_column needs a DataFrame"),
        ({"random_state": "x"}, "random_state must be a whole number of at least 0, or None"),
        ({"random_state": -1}, "random_state must be a whole number of at least 0, or None"),
        ({"warmup": 2}, "warmup must be"),
        ({"weight_decay": -1}, "weight_decay must be"),
        ({"clip_norm": 0}, "clip_norm must be"),
    ],
)
def test_bad_parameters_are_refused(options: dict[str, Any], message: str, data: RankingData) -> None:
    with pytest.raises(ValueError, match=message):
        NeuralRanker(**{**SETTINGS, **options}).fit(data.X, data.y, qid=data.qid)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: {"X": np.where(np.arange(14) == 3, np.inf, d.X)}, "infinity"),
        (lambda d: {"y": d.y[:-1]}, "y must hold one label for each of the"),
        (lambda d: {"y": np.where(d.y == 0, np.nan, d.y)}, "y must be finite"),
        (lambda _: {"y": None}, "requires y to be passed"),
        (lambda d: {"qid": d.qid[:-1]}, "qid must hold one value for each"),
        (lambda _: {"qid": None, "group": [3, 4]}, "group must add up"),
        (lambda d: {"sample_weight": np.arange(len(d.y)) + 1.0}, "constant within a list"),
        (lambda d: {"sample_weight": np.zeros(len(d.y))}, "sample_weight must not be zero everywhere"),
        (lambda _: {"eval_set": 3}, "eval_set must be"),
        (lambda d: {"eval_set": (d.X[:, :3], d.y, d.qid)}, "14 features"),
        (lambda _: {"checkpoint": "x", "checkpoint_every": -1}, "checkpoint_every must be seconds"),
    ],
)
def test_bad_data_are_refused(change: Any, message: str, data: RankingData, tmp_path: Path) -> None:
    given = {"X": data.X, "y": data.y, "qid": data.qid} | change(data)
    if "checkpoint" in given:
        given["checkpoint"] = tmp_path / "x"
    with pytest.raises(ValueError, match=message):
        NeuralRanker(**SETTINGS).fit(given.pop("X"), given.pop("y"), **given)


def test_divergence_suggests_a_lower_rate(data: RankingData) -> None:
    with pytest.raises(ValueError, match=r"in epoch [1-3]: lower learning_rate, set clip_norm"):
        NeuralRanker(**{**SETTINGS, "learning_rate": 1e30, "optimizer": "sgd"}).fit(data)


def test_other_containers_are_refused() -> None:
    ballots = Ballots(np.array([0, 1]), np.array([2.0, 1.0]), np.array([0, 2]), np.ones(1), ["a", "b"])
    with pytest.raises(ValueError, match="X must be lists of items with features, got Ballots"):
        NeuralRanker().fit(ballots)


def test_lists_without_any_preference_are_accepted(data: RankingData) -> None:
    """There is nothing to learn, but fitting does not fail."""
    model = NeuralRanker(**SETTINGS).fit(data.X, np.ones(len(data.y)), qid=data.qid)
    assert model.history_["loss"] == [0.0, 0.0, 0.0]
    single = NeuralRanker(**SETTINGS).fit(data.X, data.y, qid=np.arange(len(data.y)))
    assert np.isfinite(single.predict(data.X)).all()
    empty = NeuralRanker(**SETTINGS).fit(data.X[:5], data.y[:5], group=[0, 2, 0, 3, 0])
    assert np.isfinite(empty.predict(data.X)).all()


def test_fit_without_lists_warns(data: RankingData) -> None:
    with pytest.warns(UserWarning, match="all rows are taken as one list"):
        NeuralRanker(**SETTINGS).fit(data.X, data.y)


def test_little_work_is_done_by_one_thread():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 4)), rng.integers(0, 3, 60)
    model = NeuralRanker(epochs=1, random_state=0, progress=False).fit(X, y, qid=np.arange(60) // 6)
    seen = []
    model.networks_[0].register_forward_hook(lambda *_: seen.append(torch.get_num_threads()))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        model.predict(X)
        model.predict(np.tile(X, (20_000_000 // 60 // sum(p.numel() for p in model.networks_[0].parameters()) + 1, 1)))
        assert (seen[0], seen[-1], torch.get_num_threads()) == (1, 2, 2)
    finally:
        torch.set_num_threads(before)
