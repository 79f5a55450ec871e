"""`plackett train` and `plackett predict` with networks."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from scipy.sparse import csr_array

from plackett import BoostedRanker, ExtremeClassifier, LinearRanker, NeuralRanker
from plackett.data import (
    MultilabelData,
    RankingData,
    dump_letor,
    dump_xmc,
    load_letor,
    load_scores,
    load_xmc,
    make_graded_lists,
    make_multilabel,
)
from plackett.neural import NetworkCheckpoint
from plackett.neural.training import Training

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lists")
    data = make_graded_lists(60, mean_length=12, n_features=8, random_state=0)[0]
    data = RankingData(data.X, data.y, data.qid, data.offsets, np.array([f"doc{i}" for i in range(len(data.y))]))
    for name, part in (("train", range(30)), ("valid", range(30, 45)), ("test", range(45, 60))):
        dump_letor(data.select(part), folder / f"{name}.txt")
    return folder


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    data = make_multilabel(200, 100, 30, labels_per_row=3, features_per_row=10, signal=0.9, random_state=0)
    for name, part in (("train", range(120)), ("valid", range(120, 160)), ("test", range(160, 200))):
        dump_xmc(data.select(part), folder / f"{name}.txt")
    return folder


def words_of(text: str) -> str:
    return " ".join(text.replace("│", " ").split())


def files(folder: Path) -> list[Any]:
    return [folder / "train.txt", "--valid", folder / "valid.txt", "--test", folder / "test.txt"]


def test_train_and_predict_lists(plackett: Any, lists: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    code, output, _ = plackett(
        "train", *files(lists), "--model", "neural", "--objective", "listnet", "--metric", "ndcg@5", "--seed", 3,
        "-p", "hidden_sizes=[8]", "-p", "epochs=30", "-p", "learning_rate=0.02", "-p", "scaling=quantile",
        "-p", "batch_size=100", "--plot", tmp_path / "plot.png", "-o", model,
    )  # fmt: skip
    assert code == 0
    for word in (
        "train:",
        "valid:",
        "test:",
        "ndcg@10",
        "epoch",
        "loss",
        "valid ndcg@5",
        "Model written",
        "best after",
    ):
        assert word in words_of(output)
    assert (tmp_path / "plot.png").read_bytes()[:4] == b"\x89PNG"
    found = NeuralRanker.load(model)
    assert (found.objective, found.random_state, found.eval_metric) == ("listnet", 3, "ndcg@5")
    assert found.early_stopping_rounds == 10  # the default with validation data
    assert f"best after {found.best_epoch_} epochs" in words_of(output)
    test = load_letor(lists / "test.txt")
    value = found.score(test.X, test.y, group=np.diff(test.offsets))
    assert f"{value:.4f}" in output

    code, output, _ = plackett("predict", model, lists / "test.txt", "-o", tmp_path / "scores.txt")
    assert code == 0
    assert f"{len(test.y):,} scores written" in words_of(output)
    assert (load_scores(tmp_path / "scores.txt", test) == found.predict(test.X)).all()
    assert plackett("evaluate", lists / "test.txt", tmp_path / "scores.txt")[0] == 0


def test_top_of_lists_is_a_trec_run(plackett: Any, lists: Path, tmp_path: Path) -> None:
    """A TREC run: query, Q0, document, rank, score, name."""
    test = load_letor(lists / "test.txt")
    model = NeuralRanker(hidden_sizes=(4,), epochs=1, random_state=0).fit(load_letor(lists / "train.txt"))
    model.save(tmp_path / "model")
    code, output, _ = plackett(
        "predict", tmp_path / "model", lists / "test.txt", "--top", 3, "-o", tmp_path / "run.txt"
    )
    assert code == 0
    lines = [line.split() for line in (tmp_path / "run.txt").read_text().splitlines()]
    assert f"{len(lines)} lines written" in words_of(output)
    scores = model.predict(test.X)
    wanted = []
    for first, last in zip(test.offsets[:-1], test.offsets[1:], strict=True):
        order = first + np.argsort(-scores[first:last], kind="stable")[:3]
        names = np.arange(len(scores)) if test.ids is None else test.ids
        wanted += [[str(test.qid[i]), "Q0", str(names[i]), str(place)] for place, i in enumerate(order, 1)]
    assert [line[:4] for line in lines] == wanted
    assert all(line[5] == "plackett" for line in lines)
    assert all(float(a[4]) >= float(b[4]) for a, b in pairwise(lines) if a[0] == b[0])
    code, output, _ = plackett("predict", tmp_path / "model", lists / "test.txt", "--top", 1, "-o", "-")
    assert (code, len(output.splitlines())) == (0, 15)


def test_top_of_lists_scores_once(plackett: Any, lists: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    LinearRanker().fit(load_letor(lists / "train.txt")).save(tmp_path / "model")
    calls, predict = [], LinearRanker.predict
    monkeypatch.setattr(LinearRanker, "predict", lambda self, X: (calls.append(X), predict(self, X))[1])
    assert plackett("predict", tmp_path / "model", lists / "test.txt", "--top", 1, "-o", "-")[0] == 0
    assert len(calls) == 1


def test_train_and_predict_rows(plackett: Any, rows: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    code, output, _ = plackett(
        "train", *files(rows), "--model", "extreme", "--metric", "p@3", "--plot", tmp_path / "plot.svg",
        "-p", "hidden_sizes=[16]", "-p", "epochs=8", "-p", "learning_rate=[0.001, 0.02]", "-p", "ensemble=2",
        "-o", model,
    )  # fmt: skip
    assert code == 0
    for word in ("p@1", "psp@5", "valid p@3", "learning_rate", "member", "Model written", "best after"):
        assert word in words_of(output)
    assert "<svg" in (tmp_path / "plot.svg").read_text()
    found, test = ExtremeClassifier.load(model), load_xmc(rows / "test.txt")
    for extra, count in (((), 5), (("--top", 3), 3)):
        code, output, _ = plackett("predict", model, rows / "test.txt", *extra, "-o", tmp_path / "top.txt")
        assert code == 0
        assert "40 lines written" in words_of(output)
        labels, scores = found.predict_top(test.X, count)
        for line, wanted, values in zip((tmp_path / "top.txt").read_text().splitlines(), labels, scores, strict=True):
            pairs = [pair.split(":") for pair in line.split()]
            assert [int(label) for label, _ in pairs] == wanted.tolist()
            # Six digits are written.
            assert [float(value) for _, value in pairs] == pytest.approx(values.tolist(), rel=1e-5)
    # `evaluate` reads the file that `predict` writes.
    assert plackett("evaluate", rows / "test.txt", tmp_path / "top.txt", "-m", "p@3")[0] == 0


def test_fewer_labels_than_metrics_ask_for(plackett: Any, tmp_path: Path) -> None:
    data = MultilabelData(csr_array(np.eye(6)), csr_array(np.tile(np.eye(3), (2, 1))))
    dump_xmc(data, tmp_path / "data.txt")
    arguments = "-p", "epochs=1", "-p", "hidden_sizes=[4]", "-o", tmp_path / "model"
    assert plackett("train", tmp_path / "data.txt", "--model", "extreme", *arguments)[0] == 0
    assert plackett("predict", tmp_path / "model", tmp_path / "data.txt", "-o", tmp_path / "top.txt")[0] == 0
    assert len((tmp_path / "top.txt").read_text().splitlines()[0].split()) == 3
    code, _, error = plackett("predict", tmp_path / "model", tmp_path / "data.txt", "--top", 4, "-o", tmp_path / "x")
    assert code == 1
    assert "k must be at most the number of labels, 3, got 4" in words_of(error)
    assert not (tmp_path / "x").exists()


class Cut(Exception):  # noqa: N818 (not an error of the program)
    """Interrupts the training."""


@pytest.mark.parametrize("kind", ["neural", "extreme"])
def test_training_resumes_from_a_checkpoint(
    kind: str, plackett: Any, lists: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = lists if kind == "neural" else rows
    common = [
        "train", *files(folder)[:3], "--model", kind, "-p", "hidden_sizes=[4]", "-p", "epochs=4", "-p", "batch_size=60",
    ]  # fmt: skip
    assert plackett(*common, "-o", tmp_path / "whole")[0] == 0
    arguments = [*common, "--checkpoint", tmp_path / "state", "-o", tmp_path / "model"]
    original, left = Training.step, iter(range(7))

    def step(self: Any, *given: Any) -> None:
        if next(left, None) is None:
            raise Cut
        original(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "step", step)
        patch.setattr(NetworkCheckpoint, "is_due", True)
        with pytest.raises(Cut):
            plackett(*arguments)
    assert not (tmp_path / "model").exists()
    assert list((tmp_path / "state").iterdir())
    assert plackett(*arguments)[0] == 0
    first, second = (load_file(tmp_path / name / "weights.safetensors") for name in ("whole", "model"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    code, _, error = plackett(*arguments, "-p", "epochs=5")
    assert code == 1
    assert "a different training" in words_of(error)


@pytest.mark.parametrize(
    ("data", "arguments", "code", "message"),
    [
        ("rows", ["--model", "neural"], 1, "X must be lists of items with features, got MultilabelData"),
        ("lists", ["--model", "extreme"], 1, "X must be rows with labels, got RankingData"),
        ("lists", ["--model", "neural", "--objective", "x"], 1, "objective must be one of partition"),
        ("lists", ["--model", "neural", "--metric", "x"], 1, "metric must be one of"),
        ("lists", ["--model", "neural", "-p", "hidden_sizes=80"], 1, "hidden_sizes must be a sequence"),
        ("lists", ["--model", "neural", "-p", "hidden=80"], 1, "parameters of neural must be among"),
        ("rows", ["--model", "extreme", "-p", "early_stopping_rounds=3"], 1, "early_stopping_rounds needs an eval_set"),
        (
            "lists",
            ["--model", "linear", "--plot", "x.png"],
            2,
            "cannot plot the training of a linear model",
        ),
    ],
)
def test_bad_trainings_are_refused(
    data: str, arguments: list[str], code: int, message: str, plackett: Any, lists: Path, rows: Path, tmp_path: Path
) -> None:
    file = {"lists": lists, "rows": rows}[data] / "train.txt"
    found, _, error = plackett("train", file, *arguments, "-o", tmp_path / "model")
    assert found == code
    assert message in words_of(error)
    assert "Traceback" not in error
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("arguments", "names", "metrics"),
    [
        ([], ["train"], ["ndcg@10"]),
        (["--valid"], ["valid"], ["ndcg@10"]),
        (["--valid", "-p", 'eval_metric=["ndcg@5", "err"]'], ["valid"], ["ndcg@5", "err"]),
    ],
)
def test_boosted_training_is_plotted(
    arguments: list[Any], names: list[str], metrics: list[str], plackett: Any, lists: Path, tmp_path: Path
) -> None:
    if "--valid" in arguments:
        arguments = ["--valid", lists / "valid.txt", *arguments[1:]]
    code, _, error = plackett(
        "train", lists / "train.txt", *arguments, "-p", "n_estimators=3", "--plot", tmp_path / "plot.svg",
        "-o", tmp_path / "model",
    )  # fmt: skip
    assert code == 0, error
    texts = re.findall(r"<!-- (.*?) -->", (tmp_path / "plot.svg").read_text())  # matplotlib draws letters as curves
    assert "round" in texts
    assert [text for text in texts if text in ("train", "valid")] == names * len(metrics)
    assert set(metrics) <= set(texts)


def test_bad_predictions_are_refused(plackett: Any, lists: Path, rows: Path, tmp_path: Path) -> None:
    ranker, wide = tmp_path / "ranker", tmp_path / "wide"
    options: dict[str, Any] = {"hidden_sizes": (4,), "epochs": 1, "random_state": 0}
    lists_data, rows_data = load_letor(lists / "train.txt"), load_xmc(rows / "train.txt")
    assert isinstance(rows_data, MultilabelData)
    NeuralRanker(**options).fit(lists_data).save(ranker)
    ExtremeClassifier(**options).fit(rows_data).save(wide)
    BoostedRanker("lambdamart", n_estimators=2, random_state=0).fit(lists_data).save(tmp_path / "trees")
    target = ["-o", tmp_path / "out.txt"]
    for arguments, code, message in (
        ([ranker, rows / "test.txt"], 1, "data must be RankingData to be scored by NeuralRanker, got MultilabelData"),
        ([tmp_path / "trees", rows / "test.txt", "--top", 2], 1, "data must be RankingData to be scored by Boosted"),
        ([wide, lists / "test.txt"], 1, "data must be MultilabelData to be scored by ExtremeClassifier"),
        ([ranker, lists / "test.txt", "--top", 0], 2, "Invalid value for '--top'"),
        ([wide, rows / "test.txt", "--top", -1], 2, "Invalid value for '--top'"),
        ([tmp_path, lists / "test.txt"], 1, "not a model"),
        ([lists / "test.txt", lists / "test.txt"], 1, "not a readable model"),
        ([ranker, tmp_path / "nothing.txt"], 1, "nothing.txt"),
    ):
        found, _, error = plackett("predict", *arguments, *target)
        assert found == code
        assert message in words_of(error)
        assert "Traceback" not in error
        assert not target[1].exists()
    (ranker / "weights.safetensors").write_bytes(b"")
    found, _, error = plackett("predict", ranker, lists / "test.txt", *target)
    assert found == 1
    assert "the weights are not those that were saved" in words_of(error)
