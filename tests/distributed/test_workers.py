"""Training one model with several processes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from processes import run_alone

from plackett import NeuralRanker
from plackett.data import dump_letor, make_tiered_lists
from plackett.distributed import ProcessMesh, join_process_group

CURVE = """
    import json
    import numpy as np, torch
    from forks import together
    from plackett.losses import partition_loss
    from plackett.neural import TrainingSettings, batches_of_lists, train, training
    from plackett.distributed import join_process_group

    torch.set_num_threads(1)
    original = training.Training.step

    def step(self, *arguments):
        before = self.position.total
        original(self, *arguments)
        self.task.curve.append(self.position.total - before)

    training.Training.step = step

    class Lists:
        # Ragged lists; the last batch of an epoch has fewer lists than there are processes.
        def __init__(self, measures=None):
            rng = np.random.default_rng(0)
            self.list_sizes = rng.integers(2, 30, 41)
            self.offsets = np.concatenate(([0], np.cumsum(self.list_sizes)))
            self.X = torch.from_numpy(rng.standard_normal((self.offsets[-1], 5)))
            self.y = torch.from_numpy(rng.integers(0, 4, self.offsets[-1]).astype(float))
            torch.manual_seed(3)
            layers = torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1, bias=False)
            self.network = torch.nn.Sequential(*layers).double()
            self.curve, self.measures, self.measured = [], measures, 0
        def batches(self, generator):
            return batches_of_lists(self.list_sizes, 120, generator)
        def sizes(self, batch):
            return self.list_sizes[batch]
        def loss(self, batch, generator):
            rows = torch.from_numpy(np.concatenate([np.arange(self.offsets[b], self.offsets[b + 1]) for b in batch]))
            offsets = np.concatenate(([0], np.cumsum(self.list_sizes[batch])))
            weights = torch.from_numpy(1.0 + 0.1 * batch)
            total = partition_loss(self.network(self.X[rows])[:, 0], self.y[rows], offsets=offsets, weights=weights,
                                   reduction="sum")
            return total, float(weights.sum())
        def evaluate(self):
            self.measured += 1
            if self.measures is not None:
                return {"fit": self.measures[self.measured - 1]}
            with torch.no_grad():
                return {"fit": -float(partition_loss(self.network(self.X)[:, 0], self.y, offsets=self.offsets))}

    def run(clip, patience=9, measures=None, stop=None):
        with join_process_group() as workers:
            task = Lists(measures)
            options = {"clip_norm": clip, "patience": patience, "progress": False}
            settings = TrainingSettings(epochs=10, learning_rate=0.01, **options)
            callbacks = [lambda epoch: (workers.rank, epoch.number) == stop]
            outcome = train(task, settings, callbacks=callbacks, processes=workers)
            weights = torch.cat([p.detach().reshape(-1) for p in task.network.parameters()]).tolist()
        return {"curve": task.curve, "loss": outcome.history["loss"], "fit": outcome.history["fit"],
                "weights": weights, "measured": task.measured, "best": outcome.best_epoch}

    found = {f"1, {clip}": [run(clip)] for clip in (1000.0, 0.05)}  # compile kernels before forking
    for processes, clip in ((2, 1000.0), (2, 0.05), (3, 1000.0)):
        found[f"{processes}, {clip}"] = together(processes, lambda: run(clip))
    found["stale"] = together(2, lambda: run(1000.0, 2, [0.1, 0.5, 0.3, 0.4, 0.9]))
    found["stopped by the first"] = together(2, lambda: run(1000.0, stop=(0, 4)))
    found["stopped by the second"] = together(2, lambda: run(1000.0, stop=(1, 4)))
    print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def curves() -> Any:
    return run_alone(CURVE)


@pytest.mark.parametrize(("processes", "clip"), [(2, 1000.0), (2, 0.05), (3, 1000.0)])
def test_training_matches_a_single_process(processes: int, clip: float, curves: Any) -> None:
    """Compares the loss of every step. Only the order of rounding in sums over processes differs: 1e-9."""
    (alone,), together = curves[f"1, {clip}"], curves[f"{processes}, {clip}"]
    assert len(alone["curve"]) >= 50
    for one in together:
        for name in ("curve", "loss", "fit", "weights"):
            np.testing.assert_allclose(one[name], alone[name], rtol=1e-9, atol=1e-9)
    assert [one["measured"] for one in together] == [10] + [0] * (processes - 1)


def test_all_processes_stop_together(curves: Any) -> None:
    """Two epochs after the best, which only the first process knows, or when its callback asks for it."""
    for one in curves["stale"]:
        assert one["fit"] == [0.1, 0.5, 0.3, 0.4]
        assert one["best"] == 2
        assert one["weights"] == curves["stale"][0]["weights"]
    assert [len(one["loss"]) for one in curves["stopped by the first"]] == [4, 4]
    assert [len(one["loss"]) for one in curves["stopped by the second"]] == [10, 10]


ESTIMATORS = """
    import json, os, signal, sys
    from pathlib import Path
    import torch
    import plackett
    from forks import Fork, together
    from plackett.data import make_multilabel, make_tiered_lists
    from plackett.neural import checkpoints
    from plackett.distributed import ProcessMesh, join_process_group

    torch.set_num_threads(1)
    written, write_alone = [], checkpoints.write_alone
    checkpoints.write_alone = lambda *arguments: written.append(write_alone(*arguments))
    folder = Path(sys.argv[1])

    class Cut(Exception):
        pass

    def fit(checkpoint, stop=None):
        def cut(epoch):
            if epoch.number == stop:
                raise Cut

        written.clear()
        with join_process_group():
            lists = make_tiered_lists(30, random_state=0)
            options = {"random_state": 0, "progress": False, "learning_rate": 0.01}
            ranker = plackett.NeuralRanker(hidden_sizes=(8,), epochs=4, batch_size=100, validation_fraction=0.2,
                                           schedule="linear", **options)
            try:
                ranker.fit(lists, checkpoint=folder / checkpoint, checkpoint_every=0.0, callbacks=[cut])
            except Cut:
                return None
            data = make_multilabel(40, 60, 30, labels_per_row=3, features_per_row=6, random_state=0)
            extreme = plackett.ExtremeClassifier(hidden_sizes=(8,), epochs=2, batch_size=16, input_dropout=0.0,
                                                 hidden_dropout=0.0, sparse_gradients=True, **options).fit(data)
        return {"ranker": ranker.predict(lists.X[:5]).tolist(), "extreme": extreme.predict(data.X)[0].tolist(),
                "history": ranker.history_["valid ndcg@10"], "written": len(written)}

    found = {"alone": fit("alone"), "two": together(2, lambda: fit("two"))}
    together(2, lambda: fit("cut", stop=2))
    found["resumed by three"] = together(3, lambda: fit("cut"))

    class Own(torch.nn.Module):
        # Different weights on each process, running means of its own rows, and an unused layer.
        def __init__(self, width):
            super().__init__()
            torch.seed()
            self.layers = torch.nn.Sequential(torch.nn.Linear(width, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
            self.idle = torch.nn.Linear(2, 2)
            torch.nn.init.ones_(self.idle.weight)
        def forward(self, rows):
            return self.layers(rows)[:, 0]

    lists = make_tiered_lists(30, random_state=0)
    options = {"epochs": 2, "batch_size": 100, "learning_rate": 0.01, "progress": False}

    def fit_own():
        with join_process_group():
            ranker = plackett.NeuralRanker(network=Own(lists.X.shape[1]), optimizer="adamw", weight_decay=0.5,
                                           early_stopping_rounds=1, validation_fraction=0.2, **options)
            ranker.fit(lists, checkpoint=folder / "own")
        state = {name: tensor.tolist() for name, tensor in ranker.networks_[0].state_dict().items()}
        return {"state": state, "history": ranker.history_["loss"]}

    found["own"] = together(2, fit_own)

    def refused(arrange):
        with join_process_group() as workers:
            given, changed = arrange(workers.rank)
            try:
                plackett.NeuralRanker(**options | changed).fit(given)
            except ValueError as error:
                return str(error)

    found["refused"] = [together(2, lambda: refused(arrange)) for arrange in (
        lambda rank: (lists.select(range(15 * rank, 15 * rank + 15)), {}),
        lambda rank: (lists.select(range(20 + rank)), {}),
        lambda rank: (lists, {"learning_rate": 0.01 * (1 + rank)}),
        lambda rank: (lists, {"network": lambda width: torch.nn.Linear(width, 1, bias=rank == 0)}),
    )]

    def hold():
        with checkpoints.reserved(folder / "held", ProcessMesh()):
            os.kill(os.getpid(), signal.SIGKILL)

    found["held"] = Fork(hold).outcome()[1]
    with checkpoints.reserved(folder / "held", ProcessMesh()):
        pass  # the lock was released with the process
    print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run_alone(ESTIMATORS, tmp_path_factory.mktemp("states"))


def test_estimators_match_a_single_process(fitted: Any) -> None:
    """Single precision, Adam: some thirty steps agree to 1e-4, including sparse gradients and empty shares."""
    alone, (first, second) = fitted["alone"], fitted["two"]
    assert first.pop("written") == alone["written"] > 4
    assert second.pop("written") == 0  # only one process writes
    assert first == second
    for name in ("ranker", "extreme"):
        np.testing.assert_allclose(centred(first[name]), centred(alone[name]), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(first["history"], alone["history"], atol=0.01)  # near ties may be broken differently


def centred(scores: list[float]) -> np.ndarray:
    """Scores are defined up to a shift: its gradient is rounding noise, which Adam takes for a direction."""
    return np.array(scores) - np.mean(scores)


def test_training_resumes_with_another_number_of_processes(fitted: Any) -> None:
    for one in fitted["resumed by three"]:
        np.testing.assert_allclose(centred(one["ranker"]), centred(fitted["alone"]["ranker"]), rtol=1e-4, atol=1e-4)
        assert one["written"] < fitted["alone"]["written"]


def test_user_modules_are_the_same_on_all_processes(fitted: Any) -> None:
    first, second = fitted["own"]
    assert first == second
    assert first["state"]["module.idle.weight"] == [[1.0, 1.0], [1.0, 1.0]]  # no gradient, hence no decay
    assert first["state"]["module.layers.1.running_mean"] != [0.0] * 4


def test_different_arguments_per_process_are_refused(fitted: Any) -> None:
    own_halves, own_counts, rates, layers = fitted["refused"]
    for message in (*own_halves, *own_counts):
        assert "must be the same on all processes: each process takes all data, and works on its own share" in message
    assert rates == ["learning_rate must be the same on all processes, got 0.01, 0.02"] * 2
    assert layers == ["the network must have the same layers on all processes, got different ones"] * 2


def test_killed_process_releases_its_folder(fitted: Any) -> None:
    assert fitted["held"] == "killed"


def test_command_runs_under_torchrun(tmp_path: Path) -> None:
    """The command as in the documentation."""
    dump_letor(make_tiered_lists(30, random_state=0), tmp_path / "train.txt")
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = ["-m", "plackett", "train", tmp_path / "train.txt", "--model", "neural", "-p", "epochs=2"]
    places = ["-o", tmp_path / "model", "--checkpoint", tmp_path / "state"]
    done = subprocess.run(  # noqa: S603 (our own code)
        [*launch, *command, *places],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Model written to") == 1
    assert len(NeuralRanker.load(tmp_path / "model").history_) == 2


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"WORLD_SIZE": "two"}, "the environment variable WORLD_SIZE must be a whole number of at least 1, got 'two'"),
        ({"WORLD_SIZE": "0"}, "the environment variable WORLD_SIZE must be a whole number of at least 1, got '0'"),
        ({"WORLD_SIZE": "2"}, "the environment variable RANK must be set, since WORLD_SIZE is 2"),
        *(
            (
                {"WORLD_SIZE": "2", "RANK": "0", "PLACKETT_TIMEOUT": text},
                "the environment variable PLACKETT_TIMEOUT must be",
            )
            for text in ("abc", "nan", "inf", "0", "-5")
        ),
    ],
)
def test_bad_environments_are_refused(
    environment: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=message), join_process_group():
        pass


def test_each_process_uses_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors on the CPU can still be exchanged."""
    called: list[Any] = []
    for name, value in {"WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", called.append)
    meeting = sys.modules["torch.distributed.rendezvous"]
    monkeypatch.setattr(meeting, "rendezvous", lambda *_, **__: iter([(torch.distributed.HashStore(), 3, 4)]))
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda backend, **_: called.append(backend))
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: called.append("end"))
    with join_process_group():
        pass
    assert called == [1, "cpu:gloo,cuda:nccl", "end"]


def test_shares_are_even_and_whole() -> None:
    workers = ProcessMesh()
    rng = np.random.default_rng(0)
    batch, sizes = rng.permutation(50), rng.integers(1, 20, 50)
    np.testing.assert_array_equal(workers.share(batch, sizes), batch)
    workers.count = 4
    shares = []
    for rank in range(4):
        workers.rank = rank
        shares.append(workers.share(batch, sizes))
    np.testing.assert_array_equal(np.concatenate(shares), batch)
    by_item = dict(zip(batch.tolist(), sizes.tolist(), strict=True))
    loads = [sum(by_item[i] for i in share.tolist()) for share in shares]
    assert max(loads) - min(loads) <= 2 * sizes.max()


def test_single_process_exchanges_nothing() -> None:
    network = torch.nn.Linear(2, 1)
    workers = ProcessMesh()
    assert (workers.count, workers.rank, workers.is_first) == (1, 0, True)
    assert workers.totals(1.5, 2.0, device=torch.device("cpu")) == [1.5, 2.0]
    workers.add_gradients(network)
    assert network.weight.grad is None
    assert workers.from_first(lambda: json.loads("[1]")) == [1]
