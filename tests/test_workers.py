"""Several processes that train one model."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from processes import run_alone, run_together

from plackett.training import Workers

CURVE = """
    import json, sys
    import numpy as np, torch
    from plackett.losses import partition_loss
    from plackett.training import Settings, batches_of_lists, joined, train

    class Lists:
        # Ragged lists, the last batch of an epoch with fewer lists than processes.
        def __init__(self):
            rng = np.random.default_rng(0)
            self.list_sizes = rng.integers(2, 30, 41)
            self.offsets = np.concatenate(([0], np.cumsum(self.list_sizes)))
            self.X = torch.from_numpy(rng.standard_normal((self.offsets[-1], 5)))
            self.y = torch.from_numpy(rng.integers(0, 4, self.offsets[-1]).astype(float))
            torch.manual_seed(3)
            layers = torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1, bias=False)
            self.network = torch.nn.Sequential(*layers).double()
            self.losses = []
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
            with torch.no_grad():
                return {"fit": -float(partition_loss(self.network(self.X)[:, 0], self.y, offsets=self.offsets))}

    with joined() as workers:
        task = Lists()
        settings = Settings(epochs=10, learning_rate=0.01, clip_norm=float(sys.argv[1]), patience=9, progress=False)
        outcome = train(task, settings)
        weights = torch.cat([p.detach().reshape(-1) for p in task.network.parameters()]).tolist()
    print(json.dumps({"loss": outcome.history["loss"], "fit": outcome.history["fit"], "weights": weights}))
"""


@pytest.mark.parametrize("clip", [1000.0, 0.05])
def test_two_processes_learn_what_one_learns(clip: float) -> None:
    """Some 60 steps. Sums over processes are rounded in another order, and no more: 1e-9 after all steps."""
    alone = run_alone(CURVE, clip)
    together = run_together(2, CURVE, clip)
    assert together[0] == together[1]
    for name in ("loss", "fit", "weights"):
        np.testing.assert_allclose(together[0][name], alone[name], rtol=1e-9, atol=1e-9)


ESTIMATORS = """
    import json, sys
    import numpy as np, torch
    import plackett
    from plackett.data import make_multilabel, make_tiered_lists
    from plackett.training import joined

    with joined() as workers:
        epochs, folder = int(sys.argv[1]), sys.argv[2]
        lists = make_tiered_lists(30, random_state=0)
        options = {"random_state": 0, "progress": False, "learning_rate": 0.01}
        ranker = plackett.NeuralRanker(hidden_sizes=(8,), epochs=epochs, batch_size=100, validation_fraction=0.2,
                                       schedule="linear", **options)
        stop = (lambda epoch: epoch.number == int(sys.argv[3])) if sys.argv[3] != "0" else (lambda epoch: False)
        ranker.fit(lists, checkpoint=folder, checkpoint_every=0.0, callbacks=[stop])
        data = make_multilabel(40, 60, 30, labels_per_row=3, features_per_row=6, random_state=0)
        extreme = plackett.ExtremeClassifier(hidden_sizes=(8,), epochs=2, batch_size=16, input_dropout=0.0,
                                             hidden_dropout=0.0, sparse_gradients=True, **options).fit(data)
    print(json.dumps({"ranker": ranker.predict(lists.X[:5]).tolist(), "extreme": extreme.predict(data.X)[0].tolist(),
                      "history": ranker.history_["valid ndcg@10"]}))
"""


def test_estimators_in_a_process_group(tmp_path: Path) -> None:
    """Single precision, Adam: some thirty steps agree to 1e-4. Sparse gradients and rows without a share included."""
    alone = run_alone(ESTIMATORS, 4, tmp_path / "alone", 0)
    together = run_together(2, ESTIMATORS, 4, tmp_path / "together", 0)
    assert together[0] == together[1]
    for name in ("ranker", "extreme"):
        np.testing.assert_allclose(centred(together[0][name]), centred(alone[name]), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(together[0]["history"], alone["history"], atol=0.01)  # near ties may fall otherwise


def centred(scores: list[float]) -> np.ndarray:
    """Scores have no zero: the gradient of a common shift is rounding, which Adam takes for a direction."""
    return np.array(scores) - np.mean(scores)


def test_resuming_with_another_number_of_processes(tmp_path: Path) -> None:
    whole = run_alone(ESTIMATORS, 4, tmp_path / "whole", 0)
    interrupted = tmp_path / "interrupted"
    run_together(2, ESTIMATORS, 4, interrupted, 2)  # a callback ends it after two epochs
    checkpoint = next(interrupted.glob("*.safetensors"))
    reopen(checkpoint)
    resumed = run_together(3, ESTIMATORS, 4, interrupted, 0)
    np.testing.assert_allclose(centred(resumed[0]["ranker"]), centred(whole["ranker"]), rtol=1e-4, atol=1e-4)


def reopen(checkpoint: Path) -> None:
    """A training that a callback ended counts as done: make it one that was cut off after the same epoch."""
    from plackett.training.checkpoints import read_tensors, write_tensors

    tensors, about = read_tensors(checkpoint)
    about["position"]["is_done"] = False
    write_tensors(checkpoint, tensors, about)


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
