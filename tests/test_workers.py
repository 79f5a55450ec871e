"""Several processes that train one model."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from processes import run_alone

from plackett.training import Workers

CURVE = """
    import json
    import numpy as np, torch
    from forks import together
    from plackett.losses import partition_loss
    from plackett.training import Settings, batches_of_lists, joined, loop, train

    torch.set_num_threads(1)
    original = loop._Training.step

    def step(self, *arguments):
        before = self.position.total
        original(self, *arguments)
        self.task.curve.append(self.position.total - before)

    loop._Training.step = step

    class Lists:
        # Ragged lists, the last batch of an epoch with fewer lists than processes.
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
        with joined() as workers:
            task = Lists(measures)
            settings = Settings(epochs=10, learning_rate=0.01, clip_norm=clip, patience=patience, progress=False)
            says = [lambda epoch: (workers.rank, epoch.number) == stop]
            outcome = train(task, settings, callbacks=says)
            weights = torch.cat([p.detach().reshape(-1) for p in task.network.parameters()]).tolist()
        return {"curve": task.curve, "loss": outcome.history["loss"], "fit": outcome.history["fit"],
                "weights": weights, "measured": task.measured, "best": outcome.best_epoch}

    found = {f"1, {clip}": [run(clip)] for clip in (1000.0, 0.05)}  # here, so that the forks have their kernels
    for processes, clip in ((2, 1000.0), (2, 0.05), (3, 1000.0)):
        found[f"{processes}, {clip}"] = together(processes, lambda: run(clip))
    found["stale"] = together(2, lambda: run(1000.0, 2, [0.1, 0.5, 0.3, 0.4, 0.9]))
    found["told by the first"] = together(2, lambda: run(1000.0, stop=(0, 4)))
    found["told by the second"] = together(2, lambda: run(1000.0, stop=(1, 4)))
    print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def curves() -> Any:
    return run_alone(CURVE)


@pytest.mark.parametrize(("processes", "clip"), [(2, 1000.0), (2, 0.05), (3, 1000.0)])
def test_processes_learn_what_one_learns(processes: int, clip: float, curves: Any) -> None:
    """The loss of every step. Sums over processes are rounded in another order, and no more: 1e-9."""
    (alone,), together = curves[f"1, {clip}"], curves[f"{processes}, {clip}"]
    assert len(alone["curve"]) >= 50
    for one in together:
        for name in ("curve", "loss", "fit", "weights"):
            np.testing.assert_allclose(one[name], alone[name], rtol=1e-9, atol=1e-9)
    assert [one["measured"] for one in together] == [10] + [0] * (processes - 1)


def test_all_stop_together(curves: Any) -> None:
    """Two epochs after the best, which only the first process sees; or when the first one's callback says so."""
    for one in curves["stale"]:
        assert one["fit"] == [0.1, 0.5, 0.3, 0.4]
        assert one["best"] == 2
        assert one["weights"] == curves["stale"][0]["weights"]
    assert [len(one["loss"]) for one in curves["told by the first"]] == [4, 4]
    assert [len(one["loss"]) for one in curves["told by the second"]] == [10, 10]


ESTIMATORS = """
    import json, sys
    from pathlib import Path
    import torch
    import plackett
    from forks import together
    from plackett.data import make_multilabel, make_tiered_lists
    from plackett.training import checkpoints, joined

    torch.set_num_threads(1)
    written, save_file = [], checkpoints.save_file
    checkpoints.save_file = lambda *arguments: written.append(save_file(*arguments))
    folder = Path(sys.argv[1])

    class Cut(Exception):
        pass

    def fit(checkpoint, stop=None):
        def cut(epoch):
            if epoch.number == stop:
                raise Cut

        written.clear()
        with joined():
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
    print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run_alone(ESTIMATORS, tmp_path_factory.mktemp("states"))


def test_estimators_in_a_process_group(fitted: Any) -> None:
    """Single precision, Adam: some thirty steps agree to 1e-4. Sparse gradients and rows without a share included."""
    alone, (first, second) = fitted["alone"], fitted["two"]
    assert first.pop("written") == alone["written"] > 4
    assert second.pop("written") == 0  # one writes
    assert first == second
    for name in ("ranker", "extreme"):
        np.testing.assert_allclose(centred(first[name]), centred(alone[name]), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(first["history"], alone["history"], atol=0.01)  # near ties may fall otherwise


def centred(scores: list[float]) -> np.ndarray:
    """Scores have no zero: the gradient of a common shift is rounding, which Adam takes for a direction."""
    return np.array(scores) - np.mean(scores)


def test_resuming_with_another_number_of_processes(fitted: Any) -> None:
    for one in fitted["resumed by three"]:
        np.testing.assert_allclose(centred(one["ranker"]), centred(fitted["alone"]["ranker"]), rtol=1e-4, atol=1e-4)
        assert one["written"] < fitted["alone"]["written"]


def test_shares_are_even_and_whole() -> None:
    workers = Workers()
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


def test_one_process_is_left_alone() -> None:
    network = torch.nn.Linear(2, 1)
    workers = Workers()
    assert (workers.count, workers.rank, workers.is_first) == (1, 0, True)
    assert workers.totals(1.5, 2.0, device=torch.device("cpu")) == [1.5, 2.0]
    workers.add_gradients(network)
    assert network.weight.grad is None
    assert workers.from_first(lambda: json.loads("[1]")) == [1]
