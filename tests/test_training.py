"""The training loop: optimisers, schedules, early stopping; checkpoints that go on as if nothing had happened."""

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

from plackett.errors import DataError
from plackett.networks.extreme import SparseLinear
from plackett.report import history_table, plot_history
from plackett.training import (
    Checkpoint,
    History,
    Settings,
    Workers,
    batches_of_lists,
    batches_of_rows,
    shards,
    train,
    train_members,
)
from plackett.training import checkpoints as checkpoint_module
from plackett.training.checkpoints import read_tensors, reserved, write_tensors
from plackett.training.loop import clip_gradients
from plackett.training.optimisers import OPTIMISERS, make_optimisers, rate_at
from plackett.training.search import check_rates


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Small products wait longer for each other than they take."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Regression:
    """A small task: least squares with dropout and noise in the loss, measured on other rows."""

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
def test_batches_hold_whole_lists(sizes: list[int], documents: int, seed: int) -> None:
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
        for one, other in pairwise(batches):  # none could have held more
            assert given_sizes[one].sum() + given_sizes[other[0]] > documents


@given(st.integers(0, 50), st.integers(1, 60))
def test_batches_of_rows_hold_all_rows_once(rows: int, size: int) -> None:
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
def test_optimisers_are_those_of_torch(name: str, rng: np.random.Generator) -> None:
    """Weights decay, biases and norms do not."""
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
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)  # single precision, the fused form of the step


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # torch's AdaGrad itself; training keeps it quiet
@pytest.mark.parametrize("name", OPTIMISERS)
def test_sparse_layers_step_as_torch_does(name: str, rng: np.random.Generator) -> None:
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


def test_sparse_layers_take_the_options_too() -> None:
    layer = SparseLinear(6, 3, sparse_gradient=True)
    dense, sparse = make_optimisers(layer, "adam", 0.05, 0.0, {"betas": (0.5, 0.6), "amsgrad": True})
    assert dense.param_groups[0]["betas"] == sparse.param_groups[0]["betas"] == (0.5, 0.6)


def test_schedules() -> None:
    assert [rate_at(d, 2.0, "constant", 0.0) for d in (0.0, 0.5, 1.0)] == [2.0, 2.0, 2.0]
    assert [rate_at(d, 2.0, "linear", 0.0) for d in (0.0, 0.25, 1.0)] == [2.0, 1.5, 0.0]
    assert [rate_at(d, 2.0, "cosine", 0.0) for d in (0.0, 0.5, 1.0)] == pytest.approx([2.0, 1.0, 0.0], abs=1e-15)
    # A fifth of the training rises, the rest goes down.
    assert [rate_at(d, 2.0, "linear", 0.2) for d in (0.0, 0.1, 0.2, 0.6, 1.0)] == pytest.approx([0, 1, 2, 1, 0])


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_the_rate_of_every_step(schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = []
    original = torch.optim.SGD.step
    monkeypatch.setattr(
        torch.optim.SGD, "step", lambda self, *a: rates.append(self.param_groups[0]["lr"]) or original(self, *a)
    )
    settings = Settings(epochs=3, optimizer="sgd", learning_rate=0.1, schedule=schedule, warmup=0.25)
    outcome = train(Regression(0), settings)
    assert rates == pytest.approx([rate_at(i / 12, 0.1, schedule, 0.25) for i in range(12)])
    assert outcome.history["rate"] == pytest.approx([rate_at(i / 3, 0.1, schedule, 0.25) for i in (1, 2, 3)])


@pytest.mark.parametrize("largest", [0.5, 1e9])
def test_clipping(largest: float, rng: np.random.Generator) -> None:
    network = torch.nn.ModuleList([torch.nn.Linear(3, 2), SparseLinear(5, 2, sparse_gradient=True)])
    dense = torch.from_numpy(rng.standard_normal((2, 3)).astype(np.float32))
    network[0].weight.grad = dense.clone()
    rows = torch.tensor([[1, 4, 1]])  # a row twice: its gradient is the sum
    values = torch.from_numpy(rng.standard_normal((3, 2)).astype(np.float32))
    network[1].weight.grad = torch.sparse_coo_tensor(rows, values, (5, 2), check_invariants=True)
    whole = network[1].weight.grad.to_dense()
    norm = float(torch.sqrt((dense**2).sum() + (whole**2).sum()))
    clip_gradients(network, largest)
    factor = min(1.0, largest / norm)
    torch.testing.assert_close(network[0].weight.grad, factor * dense)
    torch.testing.assert_close(network[1].weight.grad.to_dense(), factor * whole)


def test_clipping_is_part_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    norms = []
    original = torch.optim.SGD.step

    def noted(self: Any, *arguments: Any) -> Any:
        gradients = [p.grad for group in self.param_groups for p in group["params"]]
        norms.append(float(torch.sqrt(sum((g**2).sum() for g in gradients))))
        return original(self, *arguments)

    monkeypatch.setattr(torch.optim.SGD, "step", noted)
    train(Regression(0), Settings(epochs=2, optimizer="sgd", clip_norm=0.01))
    assert norms == pytest.approx([0.01] * 8, rel=1e-5)  # single precision


# The loop


def test_one_step_by_hand() -> None:
    """The mean loss of a batch, one step of gradient descent."""
    task, other = Regression(3), Regression(3)
    for part in (task, other):
        part.network[1].p = 0.0
        part.batches = lambda _: [np.arange(8)]  # type: ignore[method-assign]
    train(task, Settings(epochs=1, optimizer="sgd", learning_rate=0.1, seed=7))
    number = int(np.random.SeedSequence([7, 0, 0]).generate_state(1, np.uint64)[0]) >> 1
    total, weight = other.loss(np.arange(8), torch.Generator().manual_seed(number))
    (total / weight).backward()
    with torch.no_grad():
        for parameter in other.network.parameters():
            parameter -= 0.1 * parameter.grad
    for a, b in zip(task.network.parameters(), other.network.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7)  # single precision


def test_history() -> None:
    outcome = train(Regression(0), Settings(epochs=20, learning_rate=0.05))
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


def test_history_as_a_table_and_a_picture(tmp_path: Path) -> None:
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
    """A task whose measures are given beforehand."""

    def __init__(self, values: list[float]) -> None:
        super().__init__(0)
        self.values = iter(values)

    def evaluate(self) -> dict[str, float]:
        return {"valid x": next(self.values), "valid other": 0.0}


def test_early_stopping_returns_to_the_best() -> None:
    kept = []
    task = Scripted([0.1, 0.5, 0.3, 0.5, 0.4, 0.9])
    outcome = train(task, Settings(epochs=6, patience=3), callbacks=[lambda e: kept.append(weights_of(e.network))])
    assert len(outcome.history) == 5  # three epochs without a rise: a tie is none
    assert (outcome.best_epoch, outcome.best) == (2, 0.5)
    assert_same(weights_of(task.network), kept[1])
    assert not task.network.training
    unstopped = Scripted([0.1, 0.5, 0.3, 0.5, 0.4, 0.2])
    outcome = train(unstopped, Settings(epochs=6), callbacks=[lambda e: kept.append(weights_of(e.network))])
    assert len(outcome.history) == 6
    assert_same(weights_of(unstopped.network), kept[-1])


def test_a_measure_that_is_nothing_is_never_the_best() -> None:
    outcome = train(Scripted([math.nan, 0.5, math.nan, 0.6]), Settings(epochs=4))
    assert (outcome.best_epoch, outcome.best) == (4, 0.6)
    with pytest.raises(ValueError, match="early stopping needs a number, got NaN as valid x"):
        train(Scripted([0.5, math.nan]), Settings(epochs=2, patience=3))


def test_callbacks() -> None:
    told = []
    outcome = train(
        Regression(0), Settings(epochs=10), callbacks=[lambda e: told.append(e.number), lambda e: e.number == 3]
    )
    assert told == [1, 2, 3]
    assert len(outcome.history) == 3


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_no_number(value: float) -> None:
    task = Regression(0)
    task.loss = lambda *_: (value * task.network(task.X[:1]).sum(), 1.0)  # type: ignore[method-assign]
    with pytest.raises(ValueError, match=r"the loss became -?(nan|inf) in epoch 1: lower learning_rate, set clip_norm"):
        train(task, Settings(epochs=2))


def test_batches_without_weight_change_nothing() -> None:
    task = Regression(0)
    before = weights_of(task.network)
    task.loss = lambda *_: (0.0 * task.network(task.X[:1]).sum(), 0.0)  # type: ignore[method-assign]
    outcome = train(task, Settings(epochs=2, weight_decay=0.1))
    assert_same(before, weights_of(task.network))
    assert outcome.history["loss"] == [0.0, 0.0]


def test_the_same_seed_gives_the_same_weights() -> None:
    torch.manual_seed(11)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002 (that it is left alone)
    found = []
    for seed in (1, 1, 2):
        task = Regression(0)
        train(task, Settings(epochs=3, seed=seed))
        found.append(weights_of(task.network))
    assert_same(found[0], found[1])
    assert not torch.equal(found[0]["0.weight"], found[2]["0.weight"])
    assert torch.equal(before[0], torch.get_rng_state())
    assert (before[1] == np.random.get_state()[1]).all()  # noqa: NPY002


def test_two_threads_at_once() -> None:
    def run(seed: int, task: Regression, found: dict[int, Any]) -> None:
        train(task, Settings(epochs=12, seed=seed))
        found[seed] = weights_of(task.network)

    alone: dict[int, Any] = {}
    together: dict[int, Any] = {}
    for seed in (1, 2):
        run(seed, Regression(seed), alone)
    # Made beforehand: their first weights come from the process's generator, which the other thread would be using.
    threads = [threading.Thread(target=run, args=(seed, Regression(seed), together)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in (1, 2):
        assert_same(alone[seed], together[seed])


# Several trainings


def test_the_rate_is_chosen_on_validation() -> None:
    found = train_members(Regression, Settings(epochs=4), rates=[1e-5, 0.1, 1e-4], members=2)
    assert found.rate == 0.1
    assert found.rates[0.1] == max(found.rates.values())
    assert len(found.networks) == 2
    alone = Regression(0)
    train(alone, Settings(epochs=4, learning_rate=0.1))
    assert_same(weights_of(found.networks[0]), weights_of(alone.network))
    second = Regression(1)
    train(second, Settings(epochs=4, learning_rate=0.1, seed=1))
    assert_same(weights_of(found.networks[1]), weights_of(second.network))
    assert [(row["member"], row["learning_rate"]) for row in found.history if row["epoch"] == 1] == [
        (0, 1e-5), (0, 0.1), (0, 1e-4), (1, 0.1),
    ]  # fmt: skip


@pytest.mark.parametrize("rates", [[], 0, -1.0, True, "x", [0.1, 0], [None], math.nan])
def test_bad_rates(rates: Any) -> None:
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
def test_bad_settings(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train(Regression(0), Settings(**options))


# Checkpoints


class Cut(Exception):  # noqa: N818 (no error of the program)
    """The training is cut short."""


def interrupted(task: Any, after: int) -> Any:
    """The task, cut short in its loss after so many steps."""
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
def test_cut_short_at_every_step(options: dict[str, Any], tmp_path: Path) -> None:
    settings = Settings(epochs=3, learning_rate=0.05, seed=4, **options)
    whole = Regression(0)
    outcome = train(whole, settings)
    for step in range(13):
        file = Checkpoint(tmp_path / f"{step}.safetensors", 0.0, "this")
        task = interrupted(Regression(0), step)
        try:
            train(task, settings, checkpoint=file)
        except Cut:
            task = Regression(1)  # its weights are replaced
            again = train(task, settings, checkpoint=Checkpoint(file.path, 0.0, "this"))
            assert again.history["loss"] == outcome.history["loss"]
            assert (again.best, again.best_epoch) == (outcome.best, outcome.best_epoch)
        assert_same(weights_of(task.network), weights_of(whole.network))
    assert not list(tmp_path.glob(".*"))


def test_checkpoints_are_written_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(10_000))
    monkeypatch.setattr(checkpoint_module.time, "monotonic", lambda: float(next(now)))
    saves = []
    original = Checkpoint.save
    monkeypatch.setattr(Checkpoint, "save", lambda self, *a: saves.append(a) or original(self, *a))
    train(Regression(0), Settings(epochs=4), checkpoint=Checkpoint(tmp_path / "a", 5.0, ""))
    # The clock goes on by one a look, one a step and one an epoch: twenty looks, every sixth finds it due.
    assert 3 <= len(saves) <= 5
    assert saves[-1][1]["position"]["is_done"]


def test_a_finished_training_is_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "state"
    first, second = Regression(0), interrupted(Regression(1), 0)
    train(first, Settings(epochs=3, patience=1), checkpoint=Checkpoint(path, 1e9, "x"))
    train(second, Settings(epochs=3, patience=1), checkpoint=Checkpoint(path, 1e9, "x"))
    assert_same(weights_of(first.network), weights_of(second.network))
    stopped = Regression(0)
    train(stopped, Settings(epochs=3), checkpoint=Checkpoint(tmp_path / "b", 1e9, ""), callbacks=[lambda _: True])
    again = train(interrupted(Regression(0), 0), Settings(epochs=3), checkpoint=Checkpoint(tmp_path / "b", 1e9, ""))
    assert len(again.history) == 1


def state_of(path: Path, of: str = "x", epochs: int = 3) -> Any:
    """A training that was cut short at its last step, whose checkpoint and the one before it are at `path`."""
    with pytest.raises(Cut):
        train(interrupted(Regression(0), 4 * epochs - 1), Settings(epochs=epochs), checkpoint=Checkpoint(path, 0.0, of))
    whole = Regression(0)
    train(whole, Settings(epochs=epochs))
    return weights_of(whole.network)


def damaged(content: bytes) -> Iterator[bytes]:
    header = 8 + struct.unpack("<Q", content[:8])[0]
    for size in (0, 4, 8, header // 2, header, (header + len(content)) // 2, len(content) - 1):
        yield content[:size]
    rng = np.random.default_rng(0)
    yield rng.bytes(len(content))
    for place in (3, header // 2, header + 5, (header + len(content)) // 2, len(content) - 1):
        yield content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :]


def test_damaged_checkpoints(tmp_path: Path) -> None:
    path, before = tmp_path / "state", tmp_path / "state.before"
    whole = state_of(path)
    good, good_before = path.read_bytes(), before.read_bytes()
    for bad in damaged(good):
        path.write_bytes(bad)
        before.write_bytes(good_before)
        task = Regression(1)
        with pytest.warns(UserWarning, match="Taking the checkpoint before it"):
            train(task, Settings(epochs=3), checkpoint=Checkpoint(path, 0.0, "x"))
        assert_same(weights_of(task.network), whole)
        path.write_bytes(bad)
        before.write_bytes(bad[:-1] if bad else b"x")
        with pytest.raises(DataError, match="say resume=False, to begin anew"):
            train(Regression(1), Settings(epochs=3), checkpoint=Checkpoint(path, 0.0, "x"))


def test_the_checkpoint_before_it_alone(tmp_path: Path) -> None:
    """A kill between the two renames leaves only the older one."""
    path = tmp_path / "state"
    whole = state_of(path)
    path.unlink()
    task = Regression(1)
    train(task, Settings(epochs=3), checkpoint=Checkpoint(path, 0.0, "x"))
    assert_same(weights_of(task.network), whole)


def test_killed_while_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed process was about to write is swept away, and the file that is whole is taken."""
    path = tmp_path / "state"
    whole = state_of(path)
    with monkeypatch.context() as patch:  # a kill leaves no time for tidying up
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        patch.setattr(checkpoint_module, "write_alone", lambda file, *_: 1 / (file.write(b"half") - 4))
        with pytest.raises(ZeroDivisionError):
            train(Regression(0), Settings(epochs=3), checkpoint=Checkpoint(path, 0.0, "x"))
    assert list(tmp_path.glob(".*.part"))
    task = Regression(1)
    train(task, Settings(epochs=3), checkpoint=Checkpoint(path, 0.0, "x"))
    assert_same(weights_of(task.network), whole)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["state", "state.before"]


def test_two_trainings_in_one_folder(tmp_path: Path) -> None:
    with (
        reserved(tmp_path, Workers()),
        pytest.raises(DataError, match="another training writes to this folder"),
    ):
        train_members(Regression, Settings(epochs=1), rates=[0.1], folder=tmp_path)
    train_members(Regression, Settings(epochs=1), rates=[0.1], folder=tmp_path)


def test_errors_that_are_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that cannot read a checkpoint now says nothing against it."""
    path = tmp_path / "state"
    state_of(path)

    def fail(*_: Any) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr(shards.StoredTensors, "read", fail)
        with pytest.raises(OSError, match="Cannot allocate memory"):
            Checkpoint(path, 0.0, "x").load()
    assert Checkpoint(path, 0.0, "x").load() is not None


def test_checkpoints_of_other_trainings(tmp_path: Path) -> None:
    path = tmp_path / "state"
    state_of(path)
    with pytest.raises(DataError, match="of another training"):
        train(Regression(0), Settings(epochs=3), checkpoint=Checkpoint(path, 0.0, "y"))
    save_file({"a": torch.zeros(2)}, path, {"plackett": "[]"})
    (tmp_path / "state.before").unlink()
    with pytest.raises(DataError):
        Checkpoint(path, 0.0, "x").load()
    Checkpoint(path, 0.0, "x").clear()
    assert Checkpoint(path, 0.0, "x").load() is None


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state"
    whole = state_of(path)
    good = path.read_bytes()

    def full(file: Any, *_: Any) -> None:
        file.write(good[:100])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_module, "write_alone", full)
        with pytest.raises(OSError, match="No space left"):
            train(Regression(0), Settings(epochs=3), checkpoint=Checkpoint(path, 0.0, "x"))
        assert path.read_bytes() == good
        assert not list(tmp_path.glob("*.part")) + list(tmp_path.glob(".*"))
        # Where the newer one is damaged, the older one must outlive the failure.
        path.write_bytes(good[:50])
        for _ in range(2):
            with (
                pytest.raises(OSError, match="No space left"),
                pytest.warns(UserWarning, match="Taking the checkpoint before it"),
            ):
                train(Regression(0), Settings(epochs=3), checkpoint=Checkpoint(path, 0.0, "x"))
    task = Regression(1)
    with pytest.warns(UserWarning, match="Taking the checkpoint before it"):
        train(task, Settings(epochs=3), checkpoint=Checkpoint(path, 0.0, "x"))
    assert_same(weights_of(task.network), whole)


def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    """The same with a real failure to write: the limit lets a small file through and no larger one."""
    file = Checkpoint(tmp_path / "state", 0.0, "x")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        file.save({"a": torch.arange(100.0)}, {"step": 1})
        with pytest.raises(OSError, match="File too large"):
            file.save({"a": torch.arange(100_000.0)}, {"step": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    tensors, about = Checkpoint(file.path, 0.0, "x").load()  # type: ignore[misc]
    assert about["step"] == 1
    assert torch.equal(tensors["a"], torch.arange(100.0))
    assert [p.name for p in tmp_path.iterdir()] == ["state"]


def test_files_of_tensors(tmp_path: Path) -> None:
    """All kinds, shared storage included: the format itself has none."""
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


def test_bad_intervals(tmp_path: Path) -> None:
    for seconds in (-1, math.nan, "x"):
        with pytest.raises(ValueError, match="checkpoint_every must be seconds, at least 0"):
            Checkpoint(tmp_path / "x", seconds, "")


def test_mixed_precision(tmp_path: Path) -> None:
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
            # bfloat16 has 8 bits: losses agree to about 2^-8.
            assert mixed == pytest.approx(exact, rel=0.02)
