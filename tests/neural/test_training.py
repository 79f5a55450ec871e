"""The training loop: optimisers, schedules, early stopping, and exact resumption from checkpoints."""

import copy
import errno
import math
import resource
import struct
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from processes import run_alone
from safetensors.torch import load_file, save_file

from plackett.distributed import ProcessMesh
from plackett.errors import DataError
from plackett.neural import (
    History,
    NetworkCheckpoint,
    TrainingSettings,
    batches_of_lists,
    batches_of_rows,
    tensor_files,
    train,
    train_members,
)
from plackett.neural import checkpoints as checkpoint_module
from plackett.neural.checkpoints import read_tensors, reserved, write_tensors
from plackett.neural.extreme_fitting import fastest_precision
from plackett.neural.networks import SparseLinear
from plackett.neural.training import OPTIMISERS, check_rates, clip_gradients, make_optimisers, rate_at
from plackett.report import history_table, plot_history

pytestmark = pytest.mark.usefixtures("one_thread")


class Regression:
    """A small task: least squares with dropout and noise in the loss, evaluated on other rows."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(5)
        self.X = torch.from_numpy(rng.standard_normal((40, 4)).astype(np.float32))
        self.y = self.X @ torch.tensor([1.0, -2.0, 0.5, 0.0])
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            self.network = torch.nn.Sequential(
                torch.nn.Linear(4, 6), torch.nn.Dropout(0.3), torch.nn.Tanh(), torch.nn.Linear(6, 1)
            )

    def batches(self, generator: np.random.Generator) -> Any:
        return batches_of_rows(30, 8, generator)

    def sizes(self, batch: Any) -> Any:
        return np.ones(len(batch), np.int64)

    def loss(self, batch: Any, generator: torch.Generator) -> Any:
        noise = 0.1 * torch.randn(len(batch), generator=generator)
        found = self.network(self.X[batch])[:, 0]
        return ((found - self.y[batch] + noise) ** 2).sum(), float(len(batch))

    def evaluate(self) -> dict[str, float]:
        with torch.no_grad():
            return {"valid fit": -float(((self.network(self.X[30:])[:, 0] - self.y[30:]) ** 2).mean())}


def weights_of(network: torch.nn.Module) -> dict[str, Any]:
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


def assert_same(first: dict[str, Any], second: dict[str, Any]) -> None:
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


# Batches


@given(st.lists(st.integers(0, 30), max_size=40), st.integers(1, 50), st.integers(0, 1000))
def test_batches_contain_whole_lists(sizes: list[int], documents: int, seed: int) -> None:
    given_sizes = np.array(sizes, np.int64)
    for generator in (None, np.random.default_rng(seed)):
        batches = batches_of_lists(given_sizes, documents, generator)
        numbers = np.concatenate([*batches, np.zeros(0, np.int64)])
        assert sorted(numbers.tolist()) == list(range(len(sizes)))
        if generator is None:
            assert numbers.tolist() == list(range(len(sizes)))
        for batch in batches:
            filled = batch[given_sizes[batch] > 0]
            assert len(batch) > 0
            assert given_sizes[batch].sum() <= documents or len(filled) == 1
        for one, other in pairwise(batches):  # no batch has room for another list
            assert given_sizes[one].sum() + given_sizes[other[0]] > documents


@given(st.integers(0, 50), st.integers(1, 60))
def test_batches_of_rows_contain_every_row_once(rows: int, size: int) -> None:
    batches = batches_of_rows(rows, size, np.random.default_rng(0))
    assert sorted(np.concatenate([*batches, np.zeros(0, int)]).tolist()) == list(range(rows))
    assert all(len(batch) == size for batch in batches[:-1])
    assert len(batches) == math.ceil(rows / size)


# Optimisers

PEERS = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adagrad": torch.optim.Adagrad,
    "sgd": torch.optim.SGD,
}


@pytest.mark.parametrize("name", PEERS)
def test_optimisers_match_torch(name: str, rng: np.random.Generator) -> None:
    """Weight decay applies to weights, but not to biases and norms."""
    torch.manual_seed(0)
    mine = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 2))
    theirs = copy.deepcopy(mine)
    options = {"momentum": 0.9} if name == "sgd" else {"eps": 1e-6}
    (optimiser,) = make_optimisers(mine, name, 0.01, 0.1, options)
    decaying = [p for key, p in theirs.named_parameters() if key in ("0.weight", "2.weight")]
    others = [p for key, p in theirs.named_parameters() if key not in ("0.weight", "2.weight")]
    peers = [
        PEERS[name](decaying, lr=0.01, weight_decay=0.1, **options),
        PEERS[name](others, lr=0.01, weight_decay=0.0, **options),
    ]
    for _ in range(5):
        for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
            a.grad = torch.from_numpy(rng.standard_normal(a.shape).astype(np.float32))
            b.grad = a.grad.clone()
        for one in (optimiser, *peers):
            one.step()
    for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)  # single precision, fused steps


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # raised by torch's AdaGrad; training silences it
@pytest.mark.parametrize("name", OPTIMISERS)
def test_steps_of_sparse_layers_match_torch(name: str, rng: np.random.Generator) -> None:
    torch.manual_seed(0)
    mine = SparseLinear(6, 3, sparse_gradient=True)
    theirs = copy.deepcopy(mine)
    found = make_optimisers(mine, name, 0.05, 0.3, {})
    if name in ("adagrad", "sgd"):
        peer = PEERS[name]([theirs.weight], lr=0.05)
    else:
        peer = torch.optim.SparseAdam([theirs.weight], lr=0.05)
    for _ in range(4):
        rows = torch.from_numpy(np.sort(rng.choice(6, 2, replace=False))[None])
        values = torch.from_numpy(rng.standard_normal((2, 3)).astype(np.float32))
        for layer in (mine, theirs):
            layer.weight.grad = torch.sparse_coo_tensor(rows, values.clone(), (6, 3), check_invariants=True)
        mine.bias.grad = torch.zeros(3)
        for one in (*found, peer):
            one.step()
    torch.testing.assert_close(mine.weight, theirs.weight, rtol=0, atol=0)


def test_training_does_not_import_the_compiler_of_torch() -> None:
    """Importing it takes longer than a short training."""
    code = """
    import json, sys
    import numpy as np, plackett
    X, y, qid = np.random.default_rng(0).standard_normal((30, 3)), np.arange(30) % 3, np.arange(30) // 10
    for optimizer in ("adamw", "adam", "adagrad", "sgd"):
        plackett.NeuralRanker(optimizer=optimizer, hidden_sizes=(4,), epochs=2, progress=False).fit(X, y, qid=qid)
    print(json.dumps("torch._dynamo" in sys.modules))
    """
    assert run_alone(code) is False


def test_options_apply_to_sparse_layers() -> None:
    layer = SparseLinear(6, 3, sparse_gradient=True)
    dense, sparse = make_optimisers(layer, "adam", 0.05, 0.0, {"betas": (0.5, 0.6), "amsgrad": True})
    assert dense.param_groups[0]["betas"] == sparse.param_groups[0]["betas"] == (0.5, 0.6)


def test_schedules_give_the_right_rates() -> None:
    assert [rate_at(d, 2.0, "constant", 0.0) for d in (0.0, 0.5, 1.0)] == [2.0, 2.0, 2.0]
    assert [rate_at(d, 2.0, "linear", 0.0) for d in (0.0, 0.25, 1.0)] == [2.0, 1.5, 0.0]
    assert [rate_at(d, 2.0, "cosine", 0.0) for d in (0.0, 0.5, 1.0)] == pytest.approx([2.0, 1.0, 0.0], abs=1e-15)
    # The rate rises for a fifth of the training and then falls.
    assert [rate_at(d, 2.0, "linear", 0.2) for d in (0.0, 0.1, 0.2, 0.6, 1.0)] == pytest.approx([0, 1, 2, 1, 0])


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_every_step_uses_the_scheduled_rate(schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = []
    original = torch.optim.SGD.step
    monkeypatch.setattr(
        torch.optim.SGD, "step", lambda self, *a: rates.append(self.param_groups[0]["lr"]) or original(self, *a)
    )
    settings = TrainingSettings(epochs=3, optimizer="sgd", learning_rate=0.1, schedule=schedule, warmup=0.25)
    outcome = train(Regression(0), settings)
    assert rates == pytest.approx([rate_at(i / 12, 0.1, schedule, 0.25) for i in range(12)])
    assert outcome.history["rate"] == pytest.approx([rate_at(i / 3, 0.1, schedule, 0.25) for i in (1, 2, 3)])


@pytest.mark.parametrize("largest", [0.5, 1e9])
def test_clipping_limits_the_norm_of_all_gradients(largest: float, rng: np.random.Generator) -> None:
    network = torch.nn.ModuleList([torch.nn.Linear(3, 2), SparseLinear(5, 2, sparse_gradient=True)])
    dense = torch.from_numpy(rng.standard_normal((2, 3)).astype(np.float32))
    network[0].weight.grad = dense.clone()
    rows = torch.tensor([[1, 4, 1]])  # a repeated row: its gradient is the sum
    values = torch.from_numpy(rng.standard_normal((3, 2)).astype(np.float32))
    network[1].weight.grad = torch.sparse_coo_tensor(rows, values, (5, 2), check_invariants=True)
    whole = network[1].weight.grad.to_dense()
    norm = float(torch.sqrt((dense**2).sum() + (whole**2).sum()))
    clip_gradients(network, largest)
    factor = min(1.0, largest / norm)
    torch.testing.assert_close(network[0].weight.grad, factor * dense)
    torch.testing.assert_close(network[1].weight.grad.to_dense(), factor * whole)


def test_each_step_clips_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    norms = []
    original = torch.optim.SGD.step

    def recorded_call(self: Any, *arguments: Any) -> Any:
        gradients = [p.grad for group in self.param_groups for p in group["params"]]
        norms.append(float(torch.sqrt(sum((g**2).sum() for g in gradients))))
        return original(self, *arguments)

    monkeypatch.setattr(torch.optim.SGD, "step", recorded_call)
    train(Regression(0), TrainingSettings(epochs=2, optimizer="sgd", clip_norm=0.01))
    assert norms == pytest.approx([0.01] * 8, rel=1e-5)  # single precision


# The loop


def test_one_step_matches_the_formula() -> None:
    """One step of gradient descent on the mean loss of a batch."""
    task, other = Regression(3), Regression(3)
    for part in (task, other):
        part.network[1].p = 0.0
        part.batches = lambda _: [np.arange(8)]  # type: ignore[method-assign]
    train(task, TrainingSettings(epochs=1, optimizer="sgd", learning_rate=0.1, seed=7))
    number = int(np.random.SeedSequence([7, 0, 0]).generate_state(1, np.uint64)[0]) >> 1
    total, weight = other.loss(np.arange(8), torch.Generator().manual_seed(number))
    (total / weight).backward()
    with torch.no_grad():
        for parameter in other.network.parameters():
            parameter -= 0.1 * parameter.grad
    for a, b in zip(task.network.parameters(), other.network.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)  # single precision


def test_history_has_one_row_per_epoch() -> None:
    outcome = train(Regression(0), TrainingSettings(epochs=20, learning_rate=0.05))
    history = outcome.history
    assert history.columns == ["epoch", "loss", "rate", "seconds", "valid fit"]
    assert history["epoch"] == list(range(1, 21))
    assert history["loss"][-1] < 0.5 * history["loss"][0]
    assert history["seconds"] == sorted(history["seconds"])
    assert len(history) == 20
    assert outcome.best == max(history["valid fit"])
    assert outcome.best_epoch == history["valid fit"].index(outcome.best) + 1
    assert "20 epochs" in repr(history)
    with pytest.raises(KeyError, match="the history has the columns epoch, loss"):
        history["x"]


def test_history_becomes_a_table_and_a_plot(tmp_path: Path) -> None:
    rows = [
        {"member": 0, "learning_rate": rate, "epoch": epoch, "loss": 1 / epoch, "seconds": 0.1, "valid p@1": 0.5}
        for rate in (0.1, 0.01)
        for epoch in range(1, 21)
    ]
    table = history_table(History(rows), rows=5)
    assert table.row_count == 5
    assert [column.header for column in table.columns] == list(rows[0])
    assert list(table.columns[2].cells)[-1] == "20"
    assert next(iter(table.columns[3].cells)) == "1.0000"
    assert history_table(History(rows[:3])).row_count == 3
    assert history_table(History()).row_count == 0
    for number, part in enumerate((rows, rows[:1], [{"epoch": 1, "loss": 2.0}])):
        plot_history(History(part), tmp_path / f"{number}.png")
        assert (tmp_path / f"{number}.png").read_bytes()[:4] == b"\x89PNG"
    plot_history(History(rows), tmp_path / "a.svg")
    assert "learning rate 0.01" in (tmp_path / "a.svg").read_text()


class Scripted(Regression):
    """A task with predefined metric values."""

    def __init__(self, values: list[float]) -> None:
        super().__init__(0)
        self.values = iter(values)

    def evaluate(self) -> dict[str, float]:
        return {"valid x": next(self.values), "valid other": 0.0}


def test_early_stopping_restores_the_best_epoch() -> None:
    kept = []
    task = Scripted([0.1, 0.5, 0.3, 0.5, 0.4, 0.9])
    outcome = train(
        task, TrainingSettings(epochs=6, patience=3), callbacks=[lambda e: kept.append(weights_of(e.network))]
    )
    assert len(outcome.history) == 5  # three epochs without improvement: a tie does not count
    assert (outcome.best_epoch, outcome.best) == (2, 0.5)
    assert_same(weights_of(task.network), kept[1])
    assert not task.network.training
    unstopped = Scripted([0.1, 0.5, 0.3, 0.5, 0.4, 0.2])
    outcome = train(unstopped, TrainingSettings(epochs=6), callbacks=[lambda e: kept.append(weights_of(e.network))])
    assert len(outcome.history) == 6
    assert_same(weights_of(unstopped.network), kept[-1])


def test_nan_metric_is_never_the_best() -> None:
    outcome = train(Scripted([math.nan, 0.5, math.nan, 0.6]), TrainingSettings(epochs=4))
    assert (outcome.best_epoch, outcome.best) == (4, 0.6)
    with pytest.raises(ValueError, match="early stopping needs a number, got NaN as valid x"):
        train(Scripted([0.5, math.nan]), TrainingSettings(epochs=2, patience=3))


def test_callbacks_can_stop_the_training() -> None:
    epochs_seen = []
    outcome = train(
        Regression(0),
        TrainingSettings(epochs=10),
        callbacks=[lambda e: epochs_seen.append(e.number), lambda e: e.number == 3],
    )
    assert epochs_seen == [1, 2, 3]
    assert len(outcome.history) == 3


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nan_loss_is_an_error(value: float) -> None:
    task = Regression(0)
    task.loss = lambda *_: (value * task.network(task.X[:1]).sum(), 1.0)  # type: ignore[method-assign]
    with pytest.raises(ValueError, match=r"the loss became -?(nan|inf) in epoch 1: lower learning_rate, set clip_norm"):
        train(task, TrainingSettings(epochs=2))


def test_batches_without_weight_change_nothing() -> None:
    task = Regression(0)
    before = weights_of(task.network)
    task.loss = lambda *_: (0.0 * task.network(task.X[:1]).sum(), 0.0)  # type: ignore[method-assign]
    outcome = train(task, TrainingSettings(epochs=2, weight_decay=0.1))
    assert_same(before, weights_of(task.network))
    assert outcome.history["loss"] == [0.0, 0.0]


def test_the_same_seed_gives_the_same_weights() -> None:
    torch.manual_seed(11)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002 (that it is left alone)
    found = []
    for seed in (1, 1, 2):
        task = Regression(0)
        train(task, TrainingSettings(epochs=3, seed=seed))
        found.append(weights_of(task.network))
    assert_same(found[0], found[1])
    assert not torch.equal(found[0]["0.weight"], found[2]["0.weight"])
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()  # noqa: NPY002


def test_two_threads_can_train_at_once() -> None:
    def run(seed: int, task: Regression, found: dict[int, Any]) -> None:
        train(task, TrainingSettings(epochs=12, seed=seed))
        found[seed] = weights_of(task.network)

    alone: dict[int, Any] = {}
    together: dict[int, Any] = {}
    for seed in (1, 2):
        run(seed, Regression(seed), alone)
    # Created first: initial weights come from the process-wide generator, which the other thread would also use.
    threads = [threading.Thread(target=run, args=(seed, Regression(seed), together)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in (1, 2):
        assert_same(alone[seed], together[seed])


# Training several networks


def test_rate_is_chosen_on_validation_data() -> None:
    found = train_members(Regression, TrainingSettings(epochs=4), rates=[1e-5, 0.1, 1e-4], members=2)
    assert found.rate == 0.1
    assert found.rates[0.1] == max(found.rates.values())
    assert len(found.networks) == 2
    alone = Regression(0)
    train(alone, TrainingSettings(epochs=4, learning_rate=0.1))
    assert_same(weights_of(found.networks[0]), weights_of(alone.network))
    second = Regression(1)
    train(second, TrainingSettings(epochs=4, learning_rate=0.1, seed=1))
    assert_same(weights_of(found.networks[1]), weights_of(second.network))
    assert [(row["member"], row["learning_rate"]) for row in found.history if row["epoch"] == 1] == [
        (0, 1e-5), (0, 0.1), (0, 1e-4), (1, 0.1),
    ]  # fmt: skip


@pytest.mark.parametrize("rates", [[], 0, -1.0, True, "x", [0.1, 0], [None], math.nan])
def test_bad_rates_are_refused(rates: Any) -> None:
    with pytest.raises(ValueError, match="learning_rate must be a number above 0, or a list of them"):
        check_rates(rates)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs must be a whole number of at least 1, got 0"),
        ({"epochs": 1.5}, "epochs must be"),
        ({"schedule": "x"}, "schedule must be one of constant, linear, cosine, got 'x'"),
        ({"precision": "float8"}, "precision must be one of float32, bfloat16, float16, got 'float8'"),
        ({"patience": 0}, "early_stopping_rounds must be a whole number of at least 1, or None, got 0"),
        ({"weight_decay": -0.1}, "weight_decay must be a number of at least 0, got -0.1"),
        ({"weight_decay": math.inf}, "weight_decay must be"),
        ({"weight_decay": None}, "weight_decay must be"),
        ({"warmup": 1.0}, "warmup must be a share from 0 to less than 1, got 1.0"),
        ({"warmup": "x"}, "warmup must be"),
        ({"clip_norm": 0}, "clip_norm must be a number above 0, or None, got 0"),
        ({"clip_norm": math.nan}, "clip_norm must be"),
        ({"learning_rate": math.inf}, "learning_rate must be a number above 0"),
        ({"optimizer": "x"}, "optimizer must be one of adam, adamw, sparse_adam, adagrad, sgd, got 'x'"),
        ({"optimizer_options": {"x": 1}}, "optimizer_options must be options of adam, got {'x': 1}"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train(Regression(0), TrainingSettings(**options))


# Checkpoints


class Cut(Exception):  # noqa: N818 (no error of the program)
    """Interrupts the training."""


def interrupted(task: Any, after: int) -> Any:
    """The task, interrupted in its loss after `steps` steps."""
    original, calls = task.loss, iter(range(after))

    def loss(*arguments: Any) -> Any:
        if next(calls, None) is None:
            raise Cut
        return original(*arguments)

    task.loss = loss
    return task


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "adam"},
        {"optimizer": "adamw", "weight_decay": 0.1, "schedule": "cosine", "warmup": 0.3, "clip_norm": 0.1},
        {"optimizer": "sgd", "optimizer_options": {"momentum": 0.9, "nesterov": True}},
        {"optimizer": "adagrad", "patience": 1},
    ],
    ids=lambda options: options["optimizer"],
)
def test_training_resumes_from_every_step(options: dict[str, Any], tmp_path: Path) -> None:
    settings = TrainingSettings(epochs=3, learning_rate=0.05, seed=4, **options)
    whole = Regression(0)
    outcome = train(whole, settings)
    for step in range(13):
        file = NetworkCheckpoint(tmp_path / f"{step}.safetensors", 0.0, "this")
        task = interrupted(Regression(0), step)
        try:
            train(task, settings, checkpoint=file)
        except Cut:
            task = Regression(1)  # its weights will be replaced
            again = train(task, settings, checkpoint=NetworkCheckpoint(file.path, 0.0, "this"))
            assert again.history["loss"] == outcome.history["loss"]
            assert (again.best, again.best_epoch) == (outcome.best, outcome.best_epoch)
        assert_same(weights_of(task.network), weights_of(whole.network))
    assert not list(tmp_path.glob(".*"))


def test_checkpoints_are_written_at_intervals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(10_000))
    monkeypatch.setattr(checkpoint_module.time, "monotonic", lambda: float(next(now)))
    saves = []
    original = NetworkCheckpoint.save
    monkeypatch.setattr(NetworkCheckpoint, "save", lambda self, *a: saves.append(a) or original(self, *a))
    train(Regression(0), TrainingSettings(epochs=4), checkpoint=NetworkCheckpoint(tmp_path / "a", 5.0, ""))
    # The clock ticks once per look, with one look per step and per epoch: of twenty looks, every sixth is due.
    assert 3 <= len(saves) <= 5
    assert saves[-1][1]["position"]["is_done"]


def test_finished_training_is_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "state"
    first, second = Regression(0), interrupted(Regression(1), 0)
    train(first, TrainingSettings(epochs=3, patience=1), checkpoint=NetworkCheckpoint(path, 1e9, "x"))
    train(second, TrainingSettings(epochs=3, patience=1), checkpoint=NetworkCheckpoint(path, 1e9, "x"))
    assert_same(weights_of(first.network), weights_of(second.network))
    stopped = Regression(0)
    train(
        stopped,
        TrainingSettings(epochs=3),
        checkpoint=NetworkCheckpoint(tmp_path / "b", 1e9, ""),
        callbacks=[lambda _: True],
    )
    again = train(
        interrupted(Regression(0), 0), TrainingSettings(epochs=3), checkpoint=NetworkCheckpoint(tmp_path / "b", 1e9, "")
    )
    assert len(again.history) == 1


def state_of(path: Path, of: str = "x", epochs: int = 3) -> Any:
    """Interrupt a training run at its last step, leaving its checkpoint and the previous one at `path`."""
    with pytest.raises(Cut):
        train(
            interrupted(Regression(0), 4 * epochs - 1),
            TrainingSettings(epochs=epochs),
            checkpoint=NetworkCheckpoint(path, 0.0, of),
        )
    whole = Regression(0)
    train(whole, TrainingSettings(epochs=epochs))
    return weights_of(whole.network)


def damaged(content: bytes) -> Iterator[bytes]:
    header = 8 + struct.unpack("<Q", content[:8])[0]
    for size in (0, 4, 8, header // 2, header, (header + len(content)) // 2, len(content) - 1):
        yield content[:size]
    rng = np.random.default_rng(0)
    yield rng.bytes(len(content))
    for place in (3, header // 2, header + 5, (header + len(content)) // 2, len(content) - 1):
        yield content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :]


def test_damaged_checkpoints_fall_back_to_the_previous_one(tmp_path: Path) -> None:
    path, before = tmp_path / "state", tmp_path / "state.before"
    whole = state_of(path)
    good, good_before = path.read_bytes(), before.read_bytes()
    for bad in damaged(good):
        path.write_bytes(bad)
        before.write_bytes(good_before)
        task = Regression(1)
        with pytest.warns(UserWarning, match="Resuming from the checkpoint before it"):
            train(task, TrainingSettings(epochs=3), checkpoint=NetworkCheckpoint(path, 0.0, "x"))
        assert_same(weights_of(task.network), whole)
        path.write_bytes(bad)
        before.write_bytes(bad[:-1] if bad else b"x")
        with pytest.raises(DataError, match="pass resume=False, to start over"):
            train(Regression(1), TrainingSettings(epochs=3), checkpoint=NetworkCheckpoint(path, 0.0, "x"))


def test_previous_checkpoint_is_enough(tmp_path: Path) -> None:
    """A kill between the two renames leaves only the previous checkpoint."""
    path = tmp_path / "state"
    whole = state_of(path)
    path.unlink()
    task = Regression(1)
    train(task, TrainingSettings(epochs=3), checkpoint=NetworkCheckpoint(path, 0.0, "x"))
    assert_same(weights_of(task.network), whole)


def test_kill_during_writing_keeps_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The partial file of the killed process is removed, and the complete one is used."""
    path = tmp_path / "state"
    whole = state_of(path)
    with monkeypatch.context() as patch:  # a killed process does not clean up
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        patch.setattr(checkpoint_module, "write_alone", lambda file, *_: 1 / (file.write(b"half") - 4))
        with pytest.raises(ZeroDivisionError):
            train(Regression(0), TrainingSettings(epochs=3), checkpoint=NetworkCheckpoint(path, 0.0, "x"))
    assert list(tmp_path.glob(".*.part"))
    task = Regression(1)
    train(task, TrainingSettings(epochs=3), checkpoint=NetworkCheckpoint(path, 0.0, "x"))
    assert_same(weights_of(task.network), whole)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["state", "state.before"]


def test_two_trainings_in_one_folder_are_refused(tmp_path: Path) -> None:
    with (
        reserved(tmp_path, ProcessMesh()),
        pytest.raises(DataError, match="another training writes to this folder"),
    ):
        train_members(Regression, TrainingSettings(epochs=1), rates=[0.1], folder=tmp_path)
    train_members(Regression, TrainingSettings(epochs=1), rates=[0.1], folder=tmp_path)


def test_read_errors_are_not_treated_as_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint that cannot be read at the moment may still be good."""
    path = tmp_path / "state"
    state_of(path)

    def fail(*_: Any) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr(tensor_files.StoredTensors, "read", fail)
        with pytest.raises(OSError, match="Cannot allocate memory"):
            NetworkCheckpoint(path, 0.0, "x").load()
    assert NetworkCheckpoint(path, 0.0, "x").load() is not None


def test_checkpoints_of_other_trainings_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "state"
    state_of(path)
    with pytest.raises(DataError, match="a different training"):
        train(Regression(0), TrainingSettings(epochs=3), checkpoint=NetworkCheckpoint(path, 0.0, "y"))
    save_file({"a": torch.zeros(2)}, path, {"plackett": "[]"})
    (tmp_path / "state.before").unlink()
    with pytest.raises(DataError):
        NetworkCheckpoint(path, 0.0, "x").load()
    NetworkCheckpoint(path, 0.0, "x").clear()
    assert NetworkCheckpoint(path, 0.0, "x").load() is None


def test_full_disk_keeps_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state"
    whole = state_of(path)
    good = path.read_bytes()

    def full(file: Any, *_: Any) -> None:
        file.write(good[:100])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_module, "write_alone", full)
        with pytest.raises(OSError, match="No space left"):
            train(Regression(0), TrainingSettings(epochs=3), checkpoint=NetworkCheckpoint(path, 0.0, "x"))
        assert path.read_bytes() == good
        assert not list(tmp_path.glob("*.part")) + list(tmp_path.glob(".*"))
        # If the newer one is damaged, the older one must survive the failure.
        path.write_bytes(good[:50])
        for _ in range(2):
            with (
                pytest.raises(OSError, match="No space left"),
                pytest.warns(UserWarning, match="Resuming from the checkpoint before it"),
            ):
                train(Regression(0), TrainingSettings(epochs=3), checkpoint=NetworkCheckpoint(path, 0.0, "x"))
    task = Regression(1)
    with pytest.warns(UserWarning, match="Resuming from the checkpoint before it"):
        train(task, TrainingSettings(epochs=3), checkpoint=NetworkCheckpoint(path, 0.0, "x"))
    assert_same(weights_of(task.network), whole)


def test_file_size_limit_keeps_the_checkpoint(tmp_path: Path) -> None:
    """As above with a real write error: the limit allows a small file but no larger one."""
    file = NetworkCheckpoint(tmp_path / "state", 0.0, "x")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        file.save({"a": torch.arange(100.0)}, {"step": 1})
        with pytest.raises(OSError, match="File too large"):
            file.save({"a": torch.arange(100_000.0)}, {"step": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    tensors, about = NetworkCheckpoint(file.path, 0.0, "x").load()  # type: ignore[misc]
    assert about["step"] == 1
    assert torch.equal(tensors["a"], torch.arange(100.0))
    assert [p.name for p in tmp_path.iterdir()] == ["state"]


def test_tensor_files_round_trip(tmp_path: Path) -> None:
    """All dtypes, and shared storage, which the format itself does not support."""
    base = torch.arange(12.0).reshape(3, 4)
    tensors = {
        "a": base, "same": base, "part": base[1:], "turned": base.T, "number": torch.tensor(3),
        "empty": torch.zeros(0, 3), "half": torch.ones(2, dtype=torch.bfloat16), "whole": torch.arange(3),
    }  # fmt: skip
    write_tensors(tmp_path / "x", tensors, {"key": [1, None, math.inf]})
    found, about = read_tensors(tmp_path / "x")
    assert about == {"key": [1, None, math.inf]}
    assert_same(found, tensors)
    assert_same(load_file(tmp_path / "x"), tensors)
    with pytest.raises(DataError, match="no such file"):
        read_tensors(tmp_path / "y")


def test_bad_intervals_are_refused(tmp_path: Path) -> None:
    for seconds in (-1, math.nan, "x"):
        with pytest.raises(ValueError, match="checkpoint_every must be seconds, at least 0"):
            NetworkCheckpoint(tmp_path / "x", seconds, "")


def test_mixed_precision_matches_single_precision(tmp_path: Path) -> None:
    code = """
        import json, sys, torch
        from pathlib import Path
        from plackett import ExtremeClassifier, NeuralRanker
        from plackett.data import make_multilabel, make_tiered_lists
        torch.set_num_threads(1)
        lists = make_tiered_lists(60, random_state=0)
        rows = make_multilabel(200, 100, 40, labels_per_row=3, features_per_row=10, signal=0.5, random_state=0)
        class Cut(Exception):
            pass
        def cut(epoch):
            if epoch.number == 2:
                raise Cut
        found = {}
        for precision in ("float32", "bfloat16", "float16"):
            ranker = NeuralRanker(hidden_sizes=(16,), epochs=3, precision=precision, clip_norm=1.0, random_state=0)
            wide = ExtremeClassifier(hidden_sizes=(16,), epochs=3, precision=precision, random_state=0,
                                     sparse_gradients=True, negatives=20, progress=False)
            for model, data in ((ranker, lists), (wide, rows)):
                name = f"{precision} {type(model).__name__}"
                model.fit(data)
                assert {p.dtype for p in model.networks_[0].parameters()} == {torch.float32}
                found[name] = model.history_["loss"]
                options = {"checkpoint": Path(sys.argv[1]) / name, "checkpoint_every": 0.0}
                weights = [p.clone() for p in model.networks_[0].parameters()]
                try:
                    model.fit(data, **options, callbacks=[cut])
                except Cut:
                    model.fit(data, **options)
                assert all(torch.equal(a, b) for a, b in zip(weights, model.networks_[0].parameters()))
        print(json.dumps(found))
    """
    found = run_alone(code, tmp_path)
    for model in ("NeuralRanker", "ExtremeClassifier"):
        exact = found[f"float32 {model}"]
        assert exact[-1] < exact[0]
        for precision in ("bfloat16", "float16"):
            mixed = found[f"{precision} {model}"]
            assert mixed != exact
            # bfloat16 has 8 bits of precision: losses agree to about 2^-8.
            assert mixed == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize(
    ("instructions", "tiles", "weights", "expected"),
    [
        (True, False, 1 << 18, "bfloat16"),
        (True, False, (1 << 18) - 1, "float32"),
        (True, True, 1 << 18, "float32"),
        (False, False, 1 << 18, "float32"),
        (True, None, 1 << 18, "float32"),
    ],
)
def test_large_layers_use_bfloat16_where_it_is_safe(monkeypatch, instructions, tiles, weights, expected):
    for name, answer in (("avx512_bf16", instructions), ("amx_tile", tiles)):
        name = f"_is_{name}_supported"
        if answer is None:
            monkeypatch.delattr(torch.cpu, name, raising=False)
        else:
            monkeypatch.setattr(torch.cpu, name, lambda answer=answer: answer, raising=False)
    assert fastest_precision(torch.device("cpu"), weights) == expected
