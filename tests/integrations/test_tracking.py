"""Callbacks for trackers, with the real packages, offline; the same for trees and networks."""

import json

import numpy as np
import pytest

from plackett import BoostedRanker, NeuralRanker
from plackett.data import make_graded_lists
from plackett.integrations.tracking import (
    MLflowCallback,
    TensorBoardCallback,
    TrackingCallback,
    WandbCallback,
    measures_of,
)


@pytest.fixture(scope="module")
def data():
    return [make_graded_lists(20, mean_length=8, n_features=8, random_state=seed)[0] for seed in (0, 1)]


MODELS = {
    "trees": lambda: BoostedRanker(n_estimators=3, min_child_samples=2, eval_metric=["ndcg@10", "err"], progress=False),
    "network": lambda: NeuralRanker(
        hidden_sizes=(4,), epochs=3, eval_metric=["ndcg@10", "err"], random_state=0, progress=False
    ),
    "two networks": lambda: NeuralRanker(hidden_sizes=(4,), epochs=2, ensemble=2, random_state=0, progress=False),
}


class Record(TrackingCallback):
    """Keeps what a tracker would get."""

    def __init__(self):
        super().__init__()
        self.steps = []

    def log(self, measures, step):
        self.steps.append((step, dict(measures)))

    def values(self, name):
        return [measures[name] for _, measures in self.steps if name in measures]


@pytest.fixture(params=MODELS)
def fitted(request, data):
    """Fit with a callback, and what it should have got."""

    def fit(callback):
        record = Record()
        MODELS[request.param]().fit(data[0], eval_set=data[1], callbacks=[record, callback])
        return record

    return fit


def test_measures_are_those_of_the_history(data):
    record, own = Record(), Record()
    trees = MODELS["trees"]().fit(data[0], eval_set=data[1], callbacks=[record])
    assert [step for step, _ in record.steps] == [1, 2, 3]
    assert record.values("valid/ndcg@10") == trees.evals_result_["valid"]["ndcg@10"]
    assert record.values("valid/err") == trees.evals_result_["valid"]["err"]
    network = MODELS["network"]().fit(data[0], eval_set=data[1], callbacks=[own])
    assert [step for step, _ in own.steps] == [1, 2, 3]
    assert own.values("valid/ndcg@10") == network.history_["valid ndcg@10"]
    assert own.values("loss") == network.history_["loss"]


def test_networks_of_an_ensemble_have_their_own_names(data):
    record = Record()
    MODELS["two networks"]().fit(data[0], eval_set=data[1], callbacks=[record])
    assert [step for step, _ in record.steps] == [1, 2, 1, 2]
    assert len(record.values("valid/ndcg@10")) == len(record.values("training_2/valid/ndcg@10")) == 2


def test_lightgbm_itself_takes_the_callbacks(data):
    import lightgbm

    record = Record()
    train, valid = (lightgbm.Dataset(one.X, one.y, group=np.diff(one.offsets)) for one in data)
    params = {"objective": "lambdarank", "verbosity": -1, "min_data_in_leaf": 2, "eval_at": [10]}
    lightgbm.train(params, train, 2, valid_sets=[valid], valid_names=["valid"], callbacks=[record])
    assert [step for step, _ in record.steps] == [1, 2]
    assert len(record.values("valid/ndcg@10")) == 2


def test_rounds_without_evaluation_send_nothing():
    from types import SimpleNamespace

    assert measures_of(SimpleNamespace(iteration=4, evaluation_result_list=None)) == (5, {})


def test_tensorboard_gets_the_measures(fitted, tmp_path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator", reason="needs tensorboard")
    record = fitted(TensorBoardCallback(tmp_path))
    events = reader.EventAccumulator(str(tmp_path)).Reload()
    for step, measures in record.steps:
        for name, value in measures.items():
            assert (step, np.float32(value)) in [(e.step, np.float32(e.value)) for e in events.Scalars(name)]


def test_tensorboard_takes_a_writer(fitted):
    class Writer:
        def __init__(self):
            self.found = []

        def add_scalar(self, *arguments):
            self.found.append(arguments)

        def flush(self):
            pass

    writer = Writer()
    record = fitted(TensorBoardCallback(writer=writer))
    assert writer.found == [(name, value, step) for step, m in record.steps for name, value in m.items()]
    with pytest.raises(ValueError, match="either log_dir or writer must be given, got neither"):
        TensorBoardCallback()
    with pytest.raises(ValueError, match="got both"):
        TensorBoardCallback("runs", writer=writer)


def test_mlflow_gets_the_measures(fitted, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # no database for a test
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    mlflow = pytest.importorskip("mlflow", reason="needs mlflow")
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    try:
        with mlflow.start_run() as run:
            record = fitted(MLflowCallback())
        client = mlflow.MlflowClient()
        for step, measures in record.steps:
            for name, value in measures.items():
                history = client.get_metric_history(run.info.run_id, name.replace("@", "_at_"))
                assert (step, value) in [(metric.step, metric.value) for metric in history]
    finally:
        mlflow.set_tracking_uri(None)


def test_wandb_gets_the_measures(fitted, tmp_path):
    wandb = pytest.importorskip("wandb", reason="needs wandb")
    with pytest.raises(ValueError, match=r"call wandb.init\(\) first"):
        WandbCallback()
    settings = wandb.Settings(silent=True, x_disable_stats=True, x_disable_meta=True, console="off")
    run = wandb.init(mode="offline", dir=str(tmp_path), project="plackett", settings=settings)
    try:
        sent = []
        log, run.log = run.log, lambda row: (sent.append(row), log(row))
        record = fitted(WandbCallback(run))
        summary = json.loads(json.dumps(dict(run.summary)))
    finally:
        run.finish()
    assert [{k: v for k, v in row.items() if "round" not in k} for row in sent] == [m for _, m in record.steps]
    assert summary["valid/ndcg@10"] == record.values("valid/ndcg@10")[-1]
