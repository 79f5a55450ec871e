"""Losses for CrossEncoder, with the real package."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments
from sentence_transformers.cross_encoder import losses as library
from tiny_models import WORDS, save_cross_encoder

import plackett
from plackett.integrations.sentence_transformers import (
    ListMLELoss,
    ListPLLoss,
    ListwiseLoss,
    LowerBoundLoss,
    PartitionLoss,
)
from plackett.losses import partition_loss

TESTS = Path(__file__).parents[1]
OURS = (PartitionLoss, ListPLLoss, ListMLELoss, LowerBoundLoss)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_cross_encoder(tmp_path_factory.mktemp("model"))


@pytest.fixture
def model(folder):
    return CrossEncoder(folder, device="cpu")


def text(rng, length=5):
    return " ".join(rng.choice(WORDS, length))


def make_batch(sizes=(4, 1, 3, 5), grades=3, seed=0):
    rng = np.random.default_rng(seed)
    queries = [text(rng) for _ in sizes]
    documents = [[text(rng) for _ in range(size)] for size in sizes]
    labels = [torch.from_numpy(rng.integers(0, grades, size)) for size in sizes]
    return [queries, documents], labels


def gradients(loss, *batch):
    loss.model.zero_grad()
    value = loss(*batch)
    value.backward()
    found = {name: p.grad.clone() for name, p in loss.model.named_parameters() if p.grad is not None}
    return float(value.detach()), found


def same(one, other, tolerance=1e-6):
    assert one[0] == pytest.approx(other[0], abs=tolerance)
    assert set(one[1]) == set(other[1])
    for name, gradient in one[1].items():
        torch.testing.assert_close(gradient, other[1][name], rtol=0, atol=tolerance, msg=name)


class PaddedLoss(torch.nn.Module):
    """The loss as users of padded batches write it: -100 marks padding."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, inputs, labels):
        queries, documents = inputs
        width = max(map(len, documents))
        texts = [(q, d) for q, ds in zip(queries, documents, strict=True) for d in [*ds, *["a"] * (width - len(ds))]]
        padded = torch.full((len(queries), width), -100)
        for row, grades in zip(padded, labels, strict=True):
            row[: len(grades)] = grades
        scores = self.model(self.model.preprocess(texts))["scores"].view(padded.shape)
        return partition_loss(scores, padded, where=padded != -100)


def test_ragged_and_padded_batches_agree(model):
    batch = make_batch()
    same(gradients(PartitionLoss(model), *batch), gradients(PaddedLoss(model), *batch))


def test_value_is_the_exact_likelihood(model):
    (queries, documents), labels = make_batch()
    pairs = [(q, d) for q, ds in zip(queries, documents, strict=True) for d in ds]
    scores = model.predict(pairs, activation_fn=torch.nn.Identity()).astype(np.float64)
    offsets = np.cumsum([0, *map(len, documents)])
    expected = -plackett.partition_log_likelihood(scores, torch.cat(labels).numpy(), offsets=offsets).mean()
    found = PartitionLoss(model, mini_batch_size=3)([queries, documents], labels)
    assert found.dtype == torch.float32
    assert float(found.detach()) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("size", [None, 1, 4, 0, 100])
@pytest.mark.parametrize("cached", [False, True])
def test_mini_batches_do_not_change_the_gradient(model, size, cached):
    batch = make_batch()
    loss = PartitionLoss(model, mini_batch_size=size, cache_mini_batches=cached)
    same(gradients(loss, *batch), gradients(PartitionLoss(model, mini_batch_size=-1), *batch))


def test_cached_mini_batches_keep_the_dropout_of_the_forward_pass(tmp_path):
    model = CrossEncoder(save_cross_encoder(tmp_path, dropout=0.5), device="cpu").train()
    found = []
    for cached in (False, True):
        torch.manual_seed(3)
        found.append(gradients(PartitionLoss(model, None, 2, cache_mini_batches=cached), *make_batch()))
    same(*found)
    torch.manual_seed(4)
    assert gradients(PartitionLoss(model, None, 2), *make_batch())[0] != found[0][0]  # dropout is on


def test_activation_is_applied_to_the_scores(model):
    batch = make_batch()
    scaled = type("Half", (torch.nn.Module,), {"forward": lambda _, x: x / 2})()
    plain = float(PartitionLoss(model)(*batch).detach())
    assert float(PartitionLoss(model, scaled)(*batch).detach()) != pytest.approx(plain, abs=1e-3)


@pytest.mark.parametrize("kind", [PartitionLoss, LowerBoundLoss])
def test_lists_without_a_preference_teach_nothing(model, kind):
    value, found = gradients(kind(model), *make_batch((3, 1), grades=1))
    assert value == 0.0
    assert all(float(gradient.abs().max()) == 0.0 for gradient in found.values())


@pytest.mark.parametrize("sizes", [(), (0,), (0, 0)])
@pytest.mark.parametrize("kind", OURS)
def test_empty_batches_have_gradients_of_zero(model, kind, sizes):
    batch = make_batch(sizes)
    value, found = gradients(kind(model), *batch)
    assert value == 0.0
    assert set(found) == {name for name, _ in model.named_parameters()}
    assert all(float(gradient.abs().max()) == 0.0 for gradient in found.values())


def test_empty_lists_count_as_lists(model):
    (queries, documents), labels = one = make_batch((3,))
    both = [[*queries, "a"], [*documents, []]], [*labels, torch.zeros(0)]
    assert float(PartitionLoss(model)(*both).detach()) == pytest.approx(
        float(PartitionLoss(model)(*one).detach()) / 2, abs=1e-6
    )


def reordered(batch, seed):
    (queries, documents), labels = batch
    orders = [np.random.default_rng(seed).permutation(len(row)) for row in labels]
    moved = [[row[i] for i in order] for row, order in zip(documents, orders, strict=True)]
    return [queries, moved], [row[order] for row, order in zip(labels, orders, strict=True)]


def test_order_of_tied_documents_changes_the_library_but_not_ours(model):
    """The library's ListMLE takes the order of the data, or of a sort, for the order of tied documents."""
    batch = make_batch((6, 6), grades=2)
    spread = {}
    for name, loss in {
        "partition": PartitionLoss(model),
        "lower_bound": LowerBoundLoss(model),
        "library": library.ListMLELoss(model),
        "library, sorted": library.ListMLELoss(model, respect_input_order=False),
    }.items():
        values = [float(loss(*reordered(batch, seed)).detach()) for seed in range(8)]
        spread[name] = max(values) - min(values)
    assert spread["partition"] < 1e-6
    assert spread["lower_bound"] < 1e-6
    assert spread["library"] > 0.1
    assert spread["library, sorted"] > 0.1


def test_random_losses_repeat_with_their_seed(model):
    batch = make_batch((6, 6), grades=2)
    for kind in (ListPLLoss, ListMLELoss):
        one, other, third = kind(model), kind(model), kind(model, random_state=7)
        first = [float(one(*batch).detach()) for _ in range(3)]
        torch.manual_seed(99)  # the global generator plays no part
        assert [float(other(*batch).detach()) for _ in range(3)] == first
        assert [float(third(*batch).detach()) for _ in range(3)] != first
        assert len(set(first)) == 3


def test_options_reach_the_loss(model):
    batch = make_batch((6, 6))
    exact = float(PartitionLoss(model)(*batch).detach())
    assert float(ListMLELoss(model, ties="exact")(*batch).detach()) == pytest.approx(exact, abs=1e-6)
    assert float(PartitionLoss(model, top=1)(*batch).detach()) < exact
    assert float(PartitionLoss(model, tier_weights="gain")(*batch).detach()) != pytest.approx(exact, abs=1e-3)
    assert float(LowerBoundLoss(model)(*batch).detach()) > exact
    squares = ListwiseLoss(model, lambda s, y, offsets: torch.segment_reduce((s - y) ** 2, "sum", offsets=offsets))
    assert float(squares(*batch).detach()) > 0.0


@pytest.mark.parametrize(
    ("inputs", "labels", "message"),
    [
        ([["a"]], [torch.zeros(1)], "two columns"),
        ([["a"], [["b", "c"]]], torch.zeros(1), "a list of grades for each query"),
        ([["a"], [["b", "c"]]], [torch.zeros(1)], r"one grade per document, \[2\].*got \[1\]"),
        ([["a"], ["b"]], [torch.zeros(1)], "single texts"),
    ],
)
def test_malformed_batches_are_refused(model, inputs, labels, message):
    with pytest.raises(ValueError, match=message):
        PartitionLoss(model)(inputs, labels)


def test_bad_arguments_are_refused(model, folder):
    with pytest.raises(ValueError, match=r"one output \(num_labels=1\), got 3"):
        PartitionLoss(CrossEncoder(folder, num_labels=3, device="cpu", model_kwargs={"ignore_mismatched_sizes": True}))
    with pytest.raises(ValueError, match="mini_batch_size must be a whole number"):
        PartitionLoss(model, mini_batch_size=1.5)
    with pytest.raises(ValueError, match="cache_mini_batches must be bool"):
        PartitionLoss(model, cache_mini_batches=1)
    with pytest.raises(ValueError, match="objective_options of partition"):
        ListwiseLoss(model, "partition", psi=2.0)


@pytest.mark.parametrize("kind", OURS)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_trainer_learns(folder, tmp_path, kind, precision):
    """More shared words, a better grade: learnt from 64 queries, with accumulation and cached mini-batches."""
    rng = np.random.default_rng(0)
    queries = [text(rng) for _ in range(64)]
    documents = [[text(rng) for _ in range(rng.integers(2, 7))] for _ in queries]
    grades = [
        [min(2, len(set(q.split()) & set(d.split()))) for d in ds] for q, ds in zip(queries, documents, strict=True)
    ]
    data = Dataset.from_dict({"query": queries, "documents": documents, "labels": grades})
    model = CrossEncoder(folder, device="cpu")
    loss = kind(model, mini_batch_size=8, cache_mini_batches=True)
    args = CrossEncoderTrainingArguments(
        output_dir=str(tmp_path), per_device_train_batch_size=8, gradient_accumulation_steps=2, num_train_epochs=6,
        learning_rate=3e-2, logging_steps=4, report_to=[], use_cpu=True, bf16=precision == "bfloat16",
        save_strategy="no", disable_tqdm=True, seed=0,
    )  # fmt: skip
    trainer = CrossEncoderTrainer(model=model, args=args, train_dataset=data, loss=loss)
    trainer.train()
    history = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    assert history[-1] < history[0] - 0.02
    model.save_pretrained(str(tmp_path / "saved"))
    card = (tmp_path / "saved" / "README.md").read_text()
    assert kind.__name__ in card
    assert "cache_mini_batches" in card


def test_loss_is_single_precision_under_autocast(model):
    batch = make_batch()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = PartitionLoss(model)(*batch)
    assert value.dtype == torch.float32
    value.backward()


TOGETHER = """
import sys
import numpy as np
import torch
from datasets import Dataset
from sentence_transformers.cross_encoder import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments
from plackett.integrations.sentence_transformers import PartitionLoss
from tiny_models import WORDS

folder, output, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
rng = np.random.default_rng(5)
sizes = [3, 0, 4, 2, 5, 1, 3, 4]
texts = lambda count: [" ".join(rng.choice(WORDS, 4)) for _ in range(count)]
data = {"query": texts(8), "documents": list(map(texts, sizes))}
data["labels"] = [rng.integers(0, 2, n).tolist() for n in sizes]
model = CrossEncoder(folder, device="cpu")
args = CrossEncoderTrainingArguments(
    output_dir=output, per_device_train_batch_size=size, num_train_epochs=3, learning_rate=0.1, optim="sgd",
    lr_scheduler_type="constant", max_grad_norm=0.0, report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True,
)
loss = PartitionLoss(model, mini_batch_size=2, cache_mini_batches=True)
trainer = CrossEncoderTrainer(model=model, args=args, train_dataset=Dataset.from_dict(data), loss=loss)
trainer.train()
if trainer.args.process_index == 0:
    torch.save({"world": trainer.args.world_size, "state": model.state_dict()}, output + "/weights.pt")
"""


def train_together(folder, output, processes):
    """The weights after three steps of eight queries, with so many processes."""
    output.mkdir()
    (output / "script.py").write_text(TOGETHER)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(  # noqa: S603 (our own code)
        [*command, str(output / "script.py"), folder, str(output), str(8 // processes)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = torch.load(output / "weights.pt")
    assert found["world"] == processes
    return found["state"]


def test_two_processes_learn_what_one_learns(folder, tmp_path):
    """One of the lists is empty, one has a single document."""
    one, two = (train_together(folder, tmp_path / str(count), count) for count in (1, 2))
    before = CrossEncoder(folder, device="cpu").state_dict()
    moved = max(float((one[name] - before[name]).abs().max()) for name in one)
    assert moved > 1e-3
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=0, atol=1e-6, msg=name)
