"""Output layers sharded by label: losses, top labels, training, checkpoints and models against the whole layer."""

import hashlib
import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from processes import run_alone
from safetensors.torch import load_file

from plackett import ExtremeClassifier, LinearRanker
from plackett.data import make_multilabel
from plackett.distributed import ProcessMesh
from plackett.errors import DataError
from plackett.losses import linear_lower_bound_loss, linear_partition_loss, sparse_logistic_loss
from plackett.losses import sharded_layer as sharded
from plackett.losses.sparse_columns import Shard
from plackett.neural import ExtremeNetwork, top_columns
from plackett.neural.checkpoints import read_tensors, write_tensors
from plackett.neural.tensor_files import checksum

_LARGEST_WAIT = 600  # seconds: far more than anything here needs on a busy machine

# Shards as threads of one process, to test what they compute


@dataclass(frozen=True)
class Meeting:
    """Exchanges data between the threads of a group, and counts messages and their sizes."""

    count: int
    barrier: threading.Barrier
    slots: list[Any]
    messages: list[tuple[str, int]] = field(default_factory=list)

    def exchange(self, number: int, values: torch.Tensor, kind: str) -> torch.Tensor:
        self.slots[number] = values.clone()
        self.barrier.wait(_LARGEST_WAIT)
        found = torch.stack(list(self.slots))
        if number == 0:
            self.messages.append((kind, values.numel() * values.element_size()))
        self.barrier.wait(_LARGEST_WAIT)
        return found


@dataclass(frozen=True)
class ThreadShard(Shard):
    def add(self, values: torch.Tensor) -> torch.Tensor:
        return values.copy_(self.group.exchange(self.number, values, "sum").sum(0))

    def largest(self, values: torch.Tensor) -> torch.Tensor:
        return values.copy_(self.group.exchange(self.number, values, "max").amax(0))

    def gather(self, values: torch.Tensor) -> list[torch.Tensor]:
        return list(self.group.exchange(self.number, values, "gather"))


def on_shards(columns: int, count: int, work: Callable[[Shard], Any]) -> tuple[list[Any], list[tuple[str, int]]]:
    """The results of `work` on each shard, and the messages."""
    meeting = Meeting(count, threading.Barrier(count), [None] * count)
    with ThreadPoolExecutor(count) as pool:
        waiting = [pool.submit(work, ThreadShard(columns, number, count, meeting)) for number in range(count)]
        return [one.result() for one in waiting], meeting.messages


@dataclass
class Layer:
    hidden: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor
    indices: Any
    offsets: Any
    grades: Any
    weights: torch.Tensor


def layer_of(rows: list[list[int]], labels: int, seed: int, spread: float = 2.0) -> Layer:
    rng = np.random.default_rng(seed)
    numbers = [torch.from_numpy(spread * rng.standard_normal(size)) for size in ((len(rows), 3), (labels, 3), labels)]
    indices = np.concatenate([np.zeros(0, np.int64), *(np.array(row, np.int64) for row in rows)])
    offsets = np.concatenate(([0], np.cumsum([len(row) for row in rows])))
    grades = rng.integers(0, 3, len(indices)).astype(float)
    return Layer(*numbers, indices, offsets, grades, torch.from_numpy(rng.uniform(0.5, 2.0, len(rows))))


LOSSES: dict[str, tuple[Any, Any, bool]] = {
    "partition": (sharded.sharded_partition_loss, linear_partition_loss, True),
    "lower_bound": (sharded.sharded_lower_bound_loss, linear_lower_bound_loss, True),
    "logistic": (
        sharded.sharded_logistic_loss,
        lambda hidden, weight, bias, *a, **k: sparse_logistic_loss(hidden @ weight.T + bias, *a, **k),
        False,
    ),
}


def assert_matches_whole_layer(name: str, layer: Layer, count: int, **options: Any) -> list[tuple[str, int]]:
    """Compares the value and all gradients to 1e-9: the same sums in a different order."""
    ours, theirs, takes_grades = LOSSES[name]
    common: dict[str, Any] = {"weights": layer.weights, "reduction": "sum", **options}
    if takes_grades:
        common["labels"] = layer.grades
    leaves = [x.clone().requires_grad_() for x in (layer.hidden, layer.weight, layer.bias)]
    wanted = theirs(*leaves, layer.indices, layer.offsets, **common)
    wanted.backward()

    def work(shard: Shard) -> Any:
        part = slice(shard.first, shard.last)
        own = [x.clone().requires_grad_() for x in (layer.hidden, layer.weight[part], layer.bias[part])]
        value = ours(*own, layer.indices, layer.offsets, shard, **common)
        value.backward()
        return value.detach(), [x.grad for x in own]

    found, messages = on_shards(len(layer.weight), count, work)
    for value, (hidden, _, _) in found:
        torch.testing.assert_close(value, wanted.detach(), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(hidden, leaves[0].grad, rtol=1e-9, atol=1e-9)
    for place in (1, 2):
        together = torch.cat([gradients[place] for _, gradients in found])
        torch.testing.assert_close(together, leaves[place].grad, rtol=1e-9, atol=1e-9)
    return messages


@given(data=st.data(), labels=st.integers(1, 12), count=st.integers(1, 4), name=st.sampled_from(sorted(LOSSES)))
def test_losses_match_the_whole_layer(data: st.DataObject, labels: int, count: int, name: str) -> None:
    """Rows with no or all labels, shards of one label, and numbers of labels that shards do not divide."""
    row = st.lists(st.integers(0, labels - 1), unique=True, max_size=labels)
    rows = data.draw(st.lists(row, min_size=1, max_size=5))
    layer = layer_of(rows, labels, data.draw(st.integers(0, 99)), data.draw(st.sampled_from([0.1, 2.0, 30.0])))
    assert_matches_whole_layer(name, layer, min(count, labels))


EDGES = {
    "all positives on one shard": [[0, 1, 2], [0, 2], [1]],
    "all on the other": [[5, 6], [4, 5, 6], [6]],
    "a shard that is all positive": [[0, 1, 2], [0, 1, 2, 5], [3, 4, 5, 6]],
    "rows without labels": [[], [2, 5], []],
    "rows with all labels": [[*range(7)], [1, 4], [*range(7)]],
    "no positives at all": [[], []],
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("rows", EDGES.values(), ids=EDGES)
def test_positives_can_be_on_any_shard(rows: list[list[int]], name: str) -> None:
    for count in (2, 3, 7):
        assert_matches_whole_layer(name, layer_of(rows, 7, 0), count)


def test_options_of_the_likelihood_match_the_whole_layer() -> None:
    layer = layer_of([[0, 5, 6], [3, 4], []], 7, 0)
    assert_matches_whole_layer("partition", layer, 2, top=2)
    assert_matches_whole_layer("partition", layer, 2, chunk=2)
    columns = torch.tensor([1, 1, 2, 6])  # all positives of the second row on one shard
    for name in ("partition", "lower_bound"):
        assert_matches_whole_layer(name, layer, 2, negatives=(columns, torch.log(torch.tensor([0.5, 0.5, 2.0, 1.0]))))


@pytest.mark.parametrize("count", [2, 4])
def test_each_loss_exchanges_few_messages(count: int) -> None:
    """One all-reduce each: maxima, sums with the scores of the positives, and the hidden gradient."""
    rows = [[0, 5, 6], [3, 4], [], [1]]
    layer = layer_of(rows, 8, 0)
    hidden = 8 * len(rows) * 3
    for name in ("partition", "lower_bound"):
        messages = assert_matches_whole_layer(name, layer, count)
        assert messages == [("max", 8 * len(rows)), ("sum", 8 * (len(rows) + 6)), ("sum", hidden)]
    assert assert_matches_whole_layer("logistic", layer, count) == [("sum", 8 * len(rows)), ("sum", hidden)]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_non_finite_scores_raise_on_all_shards(bad: float) -> None:
    """No matter on which shard they are: if one raised alone, the others would wait."""
    for column in (1, 6):
        layer = layer_of([[0, 5], [3]], 7, 0)
        layer.bias[column] = bad

        def work(shard: Shard, layer: Layer = layer) -> str:
            part = slice(shard.first, shard.last)
            arguments = layer.weight[part], layer.bias[part], layer.indices, layer.offsets, shard
            with pytest.raises(ValueError, match="must be finite") as found:
                sharded.sharded_partition_loss(layer.hidden, *arguments)
            return str(found.value)

        assert len(set(on_shards(7, 3, work)[0])) == 1


def test_bad_shapes_are_refused() -> None:
    layer = layer_of([[0]], 7, 0)
    with pytest.raises(ValueError, match="a row for each of the 3 columns held here, got 7"):
        sharded.sharded_partition_loss(
            layer.hidden, layer.weight, layer.bias, layer.indices, layer.offsets, Shard(7, 0, 2)
        )


@given(
    rows=st.lists(st.lists(st.integers(0, 3), min_size=6, max_size=6), min_size=1, max_size=4),
    count=st.integers(1, 6),
    k=st.integers(1, 6),
)
def test_top_labels_match_the_whole_layer(rows: list[list[int]], count: int, k: int) -> None:
    """Most scores are tied: the lower label comes first, as with the whole layer."""
    scores = torch.tensor(rows, dtype=torch.float32)
    wanted = top_columns([scores], k)
    found, _ = on_shards(
        6, count, lambda shard: top_columns([scores[:, shard.first : shard.last].contiguous()], k, shard)
    )
    for columns, values in found:
        assert torch.equal(columns, wanted[0])
        assert torch.equal(values, wanted[1])


@pytest.mark.parametrize("labels", [7, 300_000])
def test_initial_weights_match_the_whole_layer(labels: int) -> None:
    """At the larger size, weights are drawn in several blocks."""

    def begin(shard: Shard | None) -> Any:
        with torch.random.fork_rng([]):
            torch.manual_seed(5)
            return ExtremeNetwork(4, labels, (17,), shard=shard)

    whole, parts = begin(None), [begin(Shard(labels, number, 3)) for number in range(3)]
    assert torch.equal(torch.cat([part.output.weight for part in parts]), whole.output.weight)
    assert all(torch.equal(part.first.weight, whole.first.weight) for part in parts)
    with torch.random.fork_rng([]):
        torch.manual_seed(5)
        torch.randn(4, 17)  # the first layer
        assert torch.equal(torch.nn.Linear(17, labels).weight, whole.output.weight)


# Training with several processes

CURVE = """
    import json
    import numpy as np, torch
    from forks import together
    from scipy.sparse import csr_array
    from plackett.losses import sharded_layer as sharded
    from plackett.neural import ExtremeNetwork, SparseRows, top_columns
    from plackett.neural import TrainingSettings, batches_of_rows, train
    from plackett.distributed import ProcessMesh, join_process_group

    torch.set_num_threads(1)
    LABELS = 11  # no number of shards divides it

    class Rows:
        def __init__(self, name, workers):
            rng = np.random.default_rng(0)
            self.X = csr_array(np.where(rng.random((23, 9)) < 0.4, rng.standard_normal((23, 9)), 0.0))
            self.Y = rng.random((23, LABELS)) < 0.3
            # No labels, all labels, only the first ones, only the last ones, all of the first shard.
            self.Y[:5] = [np.arange(LABELS) < n for n in (0, LABELS, 2, 0, LABELS // 2)]
            self.Y[3, -2:] = True
            torch.manual_seed(3)
            shard = workers.shard(LABELS)
            network = ExtremeNetwork(9, LABELS, (6,), activation="tanh", shard=shard, sparse_gradient=True)
            self.network = network.double()
            self.loss_of = getattr(sharded, f"sharded_{name}_loss")
        def batches(self, generator):
            return batches_of_rows(23, 4, generator)  # the last one has fewer rows than there are processes
        def sizes(self, batch):
            return np.ones(len(batch), np.int64)
        def loss(self, batch, generator):
            weights = torch.from_numpy(1.0 + 0.1 * batch)
            hidden = self.network(SparseRows(self.X[batch], torch.device("cpu"), torch.float64))
            output, labels = self.network.output, csr_array(self.Y[batch])
            total = self.loss_of(hidden, output.weight, output.bias, labels.indices.astype(np.int64), labels.indptr,
                                 self.network.shard, weights=weights, reduction="sum")
            return total, float(weights.sum())
        def top(self):
            with torch.no_grad():
                rows = SparseRows(self.X, torch.device("cpu"), torch.float64)
                layer = self.network(rows).float(), self.network.output.weight.float(), self.network.output.bias.float()
                return top_columns([layer], 4, self.network.shard)[0]
        def evaluate(self):
            found = self.top().numpy()
            return {"hits": float(np.take_along_axis(self.Y, found, 1).mean())}

    def runs(shards):
        found = {}
        with join_process_group():
            workers = ProcessMesh(shards)
            for name, clip in (("partition", None), ("lower_bound", 0.05), ("logistic", None), ("partition", 0.05)):
                task = Rows(name, workers)
                settings = TrainingSettings(epochs=9, learning_rate=0.02, clip_norm=clip, patience=8, progress=False)
                outcome = train(task, settings, processes=workers)
                weights = {key: value.tolist() for key, value in task.network.state_dict().items()}
                found[f"{name} {clip}"] = {"loss": outcome.history["loss"], "hits": outcome.history["hits"],
                                           "weights": weights, "top": task.top().tolist()}
        return found

    alone = [runs(1)]  # compile kernels before forking
    print(json.dumps([alone] + [together(*mesh) for mesh in ((2, lambda: runs(2)), (4, lambda: runs(2)))]))
"""
MESHES = [(1, 1), (2, 2), (4, 2)]


@pytest.fixture(scope="module")
def learned() -> Any:
    return run_alone(CURVE)


@pytest.mark.parametrize("mesh", [1, 2], ids=["labels", "data x labels"])
def test_training_matches_the_whole_layer(mesh: int, learned: Any) -> None:
    """54 steps in double precision. Only the order of rounding in sums over processes differs: 1e-9."""
    (unsharded,), together, (processes, shards) = learned[0], learned[mesh], MESHES[mesh]
    for run, wanted in unsharded.items():
        for one in together:
            np.testing.assert_allclose(one[run]["loss"], wanted["loss"], rtol=1e-9)
            assert one[run]["hits"] == wanted["hits"]
            assert one[run]["top"] == wanted["top"]
            for name in ("first.weight", "first.bias"):
                np.testing.assert_allclose(one[run]["weights"][name], wanted["weights"][name], rtol=1e-9, atol=1e-9)
        for name in ("output.weight", "output.bias"):
            for begin in range(0, processes, shards):
                parts = [one[run]["weights"][name] for one in together[begin : begin + shards]]
                np.testing.assert_allclose(np.concatenate(parts), wanted["weights"][name], rtol=1e-9, atol=1e-9)
    assert len(unsharded["partition None"]["loss"]) == 9


ESTIMATORS = """
    import fcntl, json, os, shutil, sys, warnings
    from contextlib import redirect_stdout
    from io import StringIO
    from pathlib import Path
    import torch
    from forks import forks, together
    from plackett import ExtremeClassifier
    from plackett.cli import main
    from plackett.data import dump_xmc, make_multilabel
    from plackett.neural import tensor_files
    from plackett.distributed import ProcessMesh, join_process_group
    from plackett.neural.tensor_files import write_together

    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    data = make_multilabel(60, 80, 31, labels_per_row=3, features_per_row=8, signal=0.9, random_state=0)
    train, test = data.select(range(40)), data.select(range(40, 60))
    SETTINGS = {"ensemble": 2, "hidden_sizes": (8,), "batch_size": 16, "input_dropout": 0.0, "hidden_dropout": 0.0,
                "learning_rate": 0.02, "random_state": 0, "sparse_gradients": True, "progress": False,
                "eval_metric": ["p@3", "ndcg@3", "tau-x"]}
    WAYS = {"exact": {"propensity": 0.5, "early_stopping_rounds": 2, "clip_norm": 0.5, "input_dropout": 0.2},
            "sampled": {"negatives": 20, "ensemble": 1, "objective": "lower_bound"},
            "logistic": {"objective": "logistic", "ensemble": 1}}

    def described(model):
        labels, scores = model.predict_top(test.X, 5)
        return {"labels": labels.tolist(), "scores": scores.tolist(), "all": model.predict(test.X).tolist(),
                "score": model.score(test), "history": [list(row.values()) for row in model.history_],
                "best": model.best_epoch_, "held": len(model.networks_[0].output.weight),
                "path": model.path_ is not None and model.path_.weight.shape[1]}

    class Cut(Exception):
        pass

    def fit(way, shards, checkpoint=None, stop=0, save=None):
        def cut(epoch):
            if epoch.number == stop:
                raise Cut

        with join_process_group():
            model = ExtremeClassifier(epochs=4, label_shards=shards, **SETTINGS | WAYS[way])
            try:
                model.fit(train, eval_set=test, checkpoint=checkpoint, checkpoint_every=0.0, callbacks=[cut])
            except Cut:
                return None
            if save is not None:
                model.save(save)
            return described(model)

    def load(path, shards):
        with join_process_group():
            return described(ExtremeClassifier.load(path, label_shards=shards))

    def error_of(work):
        try:
            work()
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    found = {}
    for way in WAYS:
        found[f"{way} whole"] = [fit(way, 1)]  # compile kernels before forking
        found[f"{way} shards"] = together(2, lambda: fit(way, 2, save=folder / way))
    found["logistic mesh"] = together(4, lambda: fit("logistic", 2))
    found["loaded whole"] = together(1, lambda: load(folder / "exact", 1))
    found["loaded in three"] = together(3, lambda: load(folder / "exact", 3))
    # Interrupted after two epochs, and resumed with other numbers of shards.
    for name, before, after, processes in (("3 to 1", 3, 1, 1), ("1 to 2", 1, 2, 2), ("3 to 2x2", 3, 2, 4)):
        together(before, lambda: fit("logistic", before, folder / name, stop=2))
        found[name] = together(processes, lambda: fit("logistic", after, folder / name))
    # The same with early stopping, also with the newest checkpoint damaged in rows that only one process reads.
    together(2, lambda: fit("exact", 2, folder / "stale", stop=2))
    shutil.copytree(folder / "stale", folder / "damaged")
    found["stale"] = together(1, lambda: fit("exact", 1, folder / "stale"))

    def damage(path, name, row):
        # Flip a bit of the last number of a row, which has 8 numbers of 4 bytes.
        content = bytearray(path.read_bytes())
        start = 8 + int.from_bytes(content[:8], "little")
        content[start + json.loads(content[8:start])[name]["data_offsets"][0] + 32 * row + 31] ^= 1
        path.write_bytes(content)

    def fit_damaged():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            return fit("exact", 2, folder / "damaged"), [str(one.message) for one in caught]

    damage(next((folder / "damaged").glob("*.safetensors")), "network.output.weight", 30)
    found["damaged"] = together(2, fit_damaged)
    shutil.copytree(folder / "exact", folder / "damaged model")
    damage(folder / "damaged model" / "weights.safetensors", "0.output.weight", 30)

    def load_damaged():
        with join_process_group():
            return error_of(lambda: ExtremeClassifier.load(folder / "damaged model", label_shards=2))

    found["damaged model"] = together(2, load_damaged)

    def three_of_two():
        with join_process_group():
            return error_of(lambda: ExtremeClassifier(label_shards=3).fit(train))

    found["three of two"] = together(2, three_of_two)

    def left_alone(work):
        # Process 1 exits before the others do their work, which frees the lock that it took before they connected.
        alive = (folder / "alive").open("w")
        if os.environ["RANK"] == "1":
            fcntl.flock(alive, fcntl.LOCK_EX)
        with join_process_group() as workers:
            model = ExtremeClassifier.load(folder / "exact", label_shards=2) if work == "predict" else None
            if workers.rank == 1:
                os._exit(0)
            fcntl.flock(alive, fcntl.LOCK_EX)
            return error_of(lambda: ProcessMesh(2) if model is None else model.predict_top(test.X, 5))

    found["alone"] = [forks(2, lambda: left_alone(work), PLACKETT_TIMEOUT="600")[0].outcome()
                      for work in ("groups", "predict")]

    def write(path):
        # The metadata differ in length, as seconds do: those of the first process are used.
        with join_process_group():
            workers = ProcessMesh(2)
            shard = workers.shard(5)
            rows = torch.arange(10.0).reshape(5, 2)[shard.first : shard.last]
            about = {"seconds": "long" * workers.number}
            write_together(path, {"rows": rows, "number": torch.tensor(7)}, about, {"rows": shard}, workers)

    def fail(path):
        # One process cannot write: none writes, and all get an error.
        with join_process_group():
            workers = ProcessMesh(2)
            assert ProcessMesh(2)._labels is workers._labels  # groups are created once
            shard = workers.shard(5)
            rows = torch.zeros(shard.width, 2)
            if workers.number == 1:
                tensor_files.contents = lambda tensor: 1 / 0
            try:
                write_together(path, {"rows": rows}, {}, {"rows": shard}, workers)
            except Exception as error:
                return f"{type(error).__name__}: {error}"

    together(2, lambda: write(folder / "rows"))
    together(4, lambda: write(folder / "rows of a mesh"))
    found["failures"] = together(2, lambda: fail(folder / "rows"))

    TRAIN = ["train", folder / "train.txt", "--valid", folder / "test.txt", "--model", "extreme",
             "-p", "hidden_sizes=[8]", "-p", "epochs=2", "-p", "ensemble=1", "-p", "batch_size=16",
             "-p", "input_dropout=0", "-p", "hidden_dropout=0"]
    PREDICT = ["predict", folder / "alone", folder / "test.txt"]

    def command(*arguments):
        sys.argv = ["plackett", *map(str, arguments)]
        with redirect_stdout(StringIO()) as output:
            try:
                main()
            except SystemExit as end:
                assert not end.code, end.code
        return output.getvalue()

    dump_xmc(train, folder / "train.txt")
    dump_xmc(test, folder / "test.txt")
    found["commands"] = [together(1, lambda: command(*TRAIN, "-o", folder / "alone")),
                         together(2, lambda: command(*TRAIN, "-o", folder / "data")),
                         together(2, lambda: command(*TRAIN, "-o", folder / "labels", "--label-shards", "2"))]
    together(1, lambda: command(*PREDICT, "-o", folder / "one.txt"))
    found["predict"] = together(2, lambda: command(*PREDICT, "-o", folder / "two.txt", "--label-shards", "2"))
    print(json.dumps(found))
"""


def centred(scores: Any) -> Any:
    """Scores are defined up to a shift: its gradient is rounding noise, which Adam takes for a direction."""
    return np.array(scores) - np.mean(scores, axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("models")
    return {**run_alone(ESTIMATORS, folder), "folder": folder}


def assert_same_model(one: Any, wanted: Any) -> None:
    """Single precision and Adam: some twenty steps agree to 1e-4, and near ties may be broken differently.

    Each one changes a metric of the twenty rows by at most 1/60, in p@3.
    """
    np.testing.assert_allclose(centred(one["all"]), centred(wanted["all"]), rtol=1e-4, atol=1e-4)
    assert np.mean(np.array(one["labels"]) == np.array(wanted["labels"])) > 0.95
    assert one["best"] == wanted["best"]
    np.testing.assert_allclose(*([row[:-4] for row in model["history"]] for model in (one, wanted)), rtol=1e-4)
    np.testing.assert_allclose(*([row[-3:] for row in model["history"]] for model in (one, wanted)), atol=0.02)


@pytest.mark.parametrize("way", ["exact", "sampled", "logistic"])
def test_sharded_estimators_match_the_whole_layer(way: str, fitted: Any) -> None:
    (whole,), parts = fitted[f"{way} whole"], fitted[f"{way} shards"]
    assert [part["held"] for part in parts] == [15, 16]
    assert whole["held"] == 31
    has_path = way != "logistic"
    assert [part["path"] for part in [*parts, whole]] == ([15, 16, 31] if has_path else [False] * 3)
    for part in parts:
        assert_same_model(part, whole)
        assert part["labels"] == parts[0]["labels"]
    everything = np.array(parts[0]["all"])
    np.testing.assert_array_equal(parts[0]["labels"], np.argsort(-everything, 1, kind="stable")[:, :5])


def test_estimators_on_a_mesh_match_the_whole_layer(fitted: Any) -> None:
    assert [part["held"] for part in fitted["logistic mesh"]] == [15, 16, 15, 16]
    for part in fitted["logistic mesh"]:
        assert_same_model(part, fitted["logistic whole"][0])


def test_saved_models_do_not_depend_on_shards(fitted: Any) -> None:
    """A model written by two processes, loaded by one and by three."""
    path, wanted = fitted["folder"] / "exact", fitted["exact shards"][0]
    for name in ("loaded whole", "loaded in three"):
        for one in fitted[name]:
            assert one["labels"] == wanted["labels"]
            # Products of other widths may be summed in a different order.
            np.testing.assert_allclose(one["all"], wanted["all"], rtol=1e-5, atol=1e-6)
    assert [one["held"] for one in fitted["loaded in three"]] == [10, 10, 11]
    assert sorted(file.name for file in path.iterdir()) == ["plackett.json", "weights.safetensors"]
    assert "label_shards" not in json.loads((path / "plackett.json").read_text())["parameters"]
    assert not [file for file in path.parent.iterdir() if file.name.startswith(".")]
    model = ExtremeClassifier.load(path)
    tensors = load_file(path / "weights.safetensors")
    for number, network in enumerate(model.networks_):
        for name, tensor in network.state_dict().items():
            assert torch.equal(tensors[f"{number}.{name}"], tensor)


@pytest.mark.parametrize("way", ["3 to 1", "1 to 2", "3 to 2x2"])
def test_training_resumes_with_another_number_of_shards(way: str, fitted: Any) -> None:
    for one in fitted[way]:
        assert_same_model(one, fitted["logistic whole"][0])


def test_training_with_early_stopping_resumes(fitted: Any) -> None:
    """One process resumes from two; two resume from the previous checkpoint if the newest is damaged for one."""
    for one, *warned in ([fitted["stale"][0]], *fitted["damaged"]):
        assert_same_model(one, fitted["exact whole"][0])
        assert all("Resuming from the checkpoint before it" in text for texts in warned for text in texts)
    assert [len(warned) for _, warned in fitted["damaged"]] == [1, 1]


def test_loading_a_shard_reads_only_its_rows(fitted: Any) -> None:
    """The model is damaged in the last row, which the first shard does not read."""
    first, second = fitted["damaged model"]
    assert first is None
    assert second.startswith("DataError")
    assert second.endswith("(the checksum of 0.output.weight, rows 15 to 30, differs)")


def test_more_shards_than_processes_are_refused(fitted: Any) -> None:
    for error in fitted["three of two"]:
        assert error.startswith("ValueError: label_shards must divide the number of processes, 2, got 3")


def test_lost_process_is_an_error_for_the_others(fitted: Any) -> None:
    for error, _ in fitted["alone"]:
        assert error.startswith("LostProcessError: another process of this training failed or is gone")


def test_processes_write_one_file_together(fitted: Any) -> None:
    for name in ("rows", "rows of a mesh"):
        tensors, about = read_tensors(fitted["folder"] / name)
        assert about == {"seconds": ""}
        assert torch.equal(tensors["rows"], torch.arange(10.0).reshape(5, 2))
        assert tensors["number"] == 7
    first, second = fitted["failures"]
    assert first.startswith("LostProcessError: another process of this training failed or is gone (process 1: ZeroDiv")
    assert second.startswith("ZeroDivisionError")
    assert not list(fitted["folder"].glob(".*"))


def test_command_trains_with_shards(fitted: Any) -> None:
    """Only the first process prints; all three models are equal."""
    (alone,), data, labels = fitted["commands"]
    for output in (alone, data[0], labels[0]):
        assert "Model written" in output
        assert "valid p@1" in output
    assert data[1] == labels[1] == ""
    models = [ExtremeClassifier.load(fitted["folder"] / name) for name in ("alone", "data", "labels")]
    rows = make_multilabel(60, 80, 31, labels_per_row=3, features_per_row=8, signal=0.9, random_state=0).X
    for model in models[1:]:
        wanted, found = (centred(x.predict(rows)) for x in (models[0], model))
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)  # single precision, Adam


def test_command_predicts_with_shards(fitted: Any) -> None:
    """All processes compute, the first one writes."""
    first, second = fitted["predict"]
    assert "20 lines written" in first
    assert second == ""
    one, two = ((fitted["folder"] / f"{name}.txt").read_text().split() for name in ("one", "two"))
    assert [entry.split(":")[0] for entry in one] == [entry.split(":")[0] for entry in two]


def test_damage_is_detected_by_the_shards_that_read_it(fitted: Any, tmp_path: Path) -> None:
    """A flipped bit is detected by any shard that reads its row; one in the header is detected by all."""
    path = fitted["folder"] / "exact" / "weights.safetensors"
    good = path.read_bytes()
    tensors, _ = read_tensors(path)
    assert tensors["0.output.weight"].shape == (31, 8)
    places = {name: good.index(bytes(tensors[name].numpy())) for name in ("0.output.weight", "0.first.weight")}
    copy = tmp_path / "x"
    for place in (200, places["0.first.weight"] + 1, places["0.output.weight"] + 30 * 32):
        copy.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
        with pytest.raises(DataError):
            read_tensors(copy)
        with pytest.raises(DataError):
            read_tensors(copy, {"0.output.weight": Shard(31, 1, 2)})
    others = read_tensors(copy, {"0.output.weight": Shard(31, 0, 3)})[0]  # the damage is in the last row
    assert torch.equal(others["0.output.weight"], tensors["0.output.weight"][:10])
    for size in range(0, len(good), 97):
        copy.write_bytes(good[:size])
        with pytest.raises(DataError):
            read_tensors(copy)


def test_shards_read_their_rows_of_a_whole_file(tmp_path: Path) -> None:
    """From a file written by one process, each takes its rows of the named tensors and of their state."""
    tensors = {"w": torch.arange(14.0).reshape(7, 2), "o.1.mean": torch.arange(7.0), "o.1.step": torch.tensor(3.0)}
    write_tensors(tmp_path / "x", tensors, {})
    found, _ = read_tensors(tmp_path / "x", {"w": Shard(7, 1, 2), "o.1": Shard(7, 1, 2)})
    assert torch.equal(found["w"], tensors["w"][3:])
    assert torch.equal(found["o.1.mean"], tensors["o.1.mean"][3:])
    assert torch.equal(found["o.1.step"], tensors["o.1.step"])
    with pytest.raises(DataError, match="must have 8 rows, got 7"):
        read_tensors(tmp_path / "x", {"w": Shard(8, 1, 2)})


def test_shards_can_be_read_from_files_larger_than_memory(tmp_path: Path) -> None:
    """From a sparse file four times as large as memory, a shard reads only its rows."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    shards, row = 1 << 14, 1024
    height = 4 * memory // row // shards
    whole, empty = Shard(shards * height, 5, shards), hashlib.sha256(bytes(height * row)).hexdigest()
    parts = {"w": [[height * number, height * (number + 1), empty] for number in range(shards)]}
    layer, text = {"w": torch.empty(whole.columns, row // 4, device="meta")}, "{}"
    stored = {"sha256": checksum(layer, text, parts, lambda _: []), "about": text, "parts": parts}
    place = {"dtype": "F32", "shape": [whole.columns, row // 4], "data_offsets": [0, whole.columns * row]}
    header = json.dumps({"__metadata__": {"plackett": json.dumps(stored)}, "w": place}).encode()
    with (tmp_path / "x").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        try:
            file.truncate(8 + len(header) + whole.columns * row)
        except OSError as error:
            pytest.skip(f"no such files here: {error}")
    found, _ = read_tensors(tmp_path / "x", {"w": whole})
    assert found["w"].shape == (height, row // 4)


# Bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label_shards": 0}, "label_shards must be a whole number of at least 1"),
        ({"label_shards": 2}, "label_shards must divide the number of processes, 1, got 2"),
        (
            {"label_shards": 2, "objective": "ranknet"},
            "label_shards= requires objective partition, lower_bound or logistic, got 'ranknet'",
        ),
        ({"label_shards": 2, "hidden_sizes": ()}, "label_shards= requires a hidden layer"),
        ({"label_shards": 2, "precision": "float16"}, "label_shards= requires precision float32 or bfloat16"),
    ],
)
def test_bad_parameters_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ExtremeClassifier(**options).fit(np.eye(10), np.eye(10))


def test_bad_numbers_of_shards_are_not_reported_as_damage(fitted: Any) -> None:
    path = fitted["folder"] / "exact"
    for shards, message in ((2, "must divide the number of processes, 1, got 2"), (0, "must be a whole number")):
        with pytest.raises(ValueError, match=f"^label_shards {message}") as found:
            ExtremeClassifier.load(path, label_shards=shards)
        assert not isinstance(found.value, DataError)


def test_command_refuses_shards_for_other_models(tmp_path: Path, plackett: Callable[..., tuple[int, str, str]]) -> None:
    LinearRanker(l2=1.0).fit(np.eye(4), np.arange(4), group=[4]).save(tmp_path / "model")
    for command in (["train", "x", "--model", "neural"], ["predict", str(tmp_path / "model"), "x"]):
        code, _, error = plackett(*command, "-o", "y", "--label-shards", 2)
        assert code == 2
        assert "the model must be extreme, got" in error


def test_more_shards_than_labels_are_refused() -> None:
    workers = ProcessMesh()
    workers.shards = 4
    with pytest.raises(ValueError, match="label_shards must be at most the number of labels, 3, got 4"):
        workers.shard(3)
