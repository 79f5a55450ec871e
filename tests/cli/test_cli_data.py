"""`plackett info` and `plackett evaluate`."""

import io
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_folder import real_data

from plackett import BoostedRanker, LinearRanker
from plackett.cli.data import FormatName
from plackett.data import (
    FORMATS,
    RankingData,
    dump_letor,
    dump_parquet,
    dump_scores,
    dump_xmc,
    load_scores,
    load_xmc,
    make_graded_lists,
    make_multilabel,
    make_tiered_lists,
)
from plackett.errors import DataError
from plackett.metrics import inverse_propensity, ndcg, propensity_scored_precision


def test_the_command_knows_every_format() -> None:
    assert {name.value for name in FormatName} == set(FORMATS)


def test_info_describes_lists(plackett: Any) -> None:
    path = real_data("mq2008", "S1.txt.xz")
    code, output, _ = plackett("info", path)
    assert code == 0
    for part in ("LETOR / SVMlight text", "lists", "157", "2,933", "46", "52 (33.1%)", "grades", "█"):
        assert part in " ".join(output.split())  # long paths are wrapped
    code, output, _ = plackett("info", path, "--json")
    found = json.loads(output)
    assert (found["lists"], found["items"], found["features"]) == (157, 2933, 46)
    assert dict(found["histograms"]["grades"]) == {"0": 2316, "1": 427, "2": 190}


@pytest.mark.parametrize(
    ("parts", "options", "words"),
    [
        (("eurlex-4k", "test.txt.xz"), (), ("XMC sparse text", "3,809", "5,000", "3,993", "rows without labels")),
        (("preflib", "00001-00000001.toc"), (), ("PrefLib ballots", "19,297", "43,942", "ballots with ties")),
        (("rankings", "nascar-2002.csv"), (), ("CSV of rankings", "36", "87")),
        (("label-ranking", "vowel.csv.xz"), ("--items", "L*", "--features", "A*"), ("528", "11")),
    ],
)
def test_info_describes_every_kind_of_data(plackett: Any, parts: Any, options: Any, words: Any) -> None:
    code, output, _ = plackett("info", real_data(*parts), *options)
    assert code == 0
    assert all(word in " ".join(output.split()) for word in words)  # long paths are wrapped


def test_info_reads_parquet_and_standard_input(plackett: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = make_tiered_lists(4, random_state=0)
    dump_parquet(data, tmp_path / "data.parquet")
    assert "Parquet" in plackett("info", tmp_path / "data.parquet")[1]
    file = io.BytesIO()
    dump_letor(data, file)
    file.seek(0)
    monkeypatch.setattr(sys, "stdin", type("Stdin", (), {"buffer": file}))
    code, output, _ = plackett("info", "-")
    assert code == 0
    assert "items" in output


def test_errors_are_one_line(plackett: Any, tmp_path: Path) -> None:
    path = tmp_path / "bad.txt"
    path.write_text("1 qid:1 1:x\n")
    code, output, error = plackett("info", path)
    assert (code, output) == (1, "")
    assert "line 1: expected a number as the feature value" in error
    assert "Traceback" not in error
    code, _, error = plackett("info", tmp_path / "nothing.txt")
    assert code == 1
    assert "nothing.txt" in error
    code, _, error = plackett("info", path, "--items", "L*", "--format", "letor")
    assert code == 2


@pytest.fixture
def scored(tmp_path: Path) -> Any:
    data = make_tiered_lists(60, tier_sizes=(1, 2, 5), random_state=1)
    good, bad = data.X @ [1.0, -0.5], np.random.default_rng(0).standard_normal(len(data.y))
    dump_letor(data, tmp_path / "data.txt")
    dump_scores(good, tmp_path / "good.txt")
    dump_scores(bad, tmp_path / "bad.txt.gz")
    return tmp_path, data, good


def test_evaluate_one_system(plackett: Any, scored: Any) -> None:
    folder, data, good = scored
    code, output, _ = plackett("evaluate", folder / "data.txt", folder / "good.txt", "-m", "ndcg@5", "-m", "tau-b")
    assert code == 0
    value = ndcg(good, data.y, k=5, offsets=data.offsets)
    assert f"{value:.4f}" in output
    assert "95% interval" in output
    assert "tau-b" in output
    code, output, _ = plackett("evaluate", folder / "data.txt", folder / "good.txt", "-m", "ndcg@5", "--json")
    (found,) = json.loads(output)["results"]
    assert found["value"] == pytest.approx(value, abs=1e-12)
    assert found["interval"][0] < value < found["interval"][1]


def test_evaluate_compares_systems(plackett: Any, scored: Any) -> None:
    folder, data, _ = scored
    paths = folder / "good.txt", folder / "bad.txt.gz"
    values = folder / "values.csv"
    report = values.with_suffix(".html")
    code, output, _ = plackett("evaluate", folder / "data.txt", *paths, "--per-list", values, "--report", report)
    assert "Paired tests" in report.read_text()
    assert "plackett evaluate" in report.read_text()
    assert code == 0
    assert "t-test" in output
    assert "bad.txt.gz" in output
    assert "Holm correction" in output
    lines = values.read_text().splitlines()
    assert len(lines) == 1 + len(data)
    assert lines[0].startswith("list,ndcg@1 good.txt,ndcg@1 bad.txt.gz")


def test_evaluate_options_reach_the_metric(plackett: Any, scored: Any) -> None:
    folder, data, _ = scored
    dump_scores(np.zeros(len(data.y)), folder / "constant.txt")
    arguments = folder / "data.txt", folder / "constant.txt", "-m", "ndcg", "--json"
    found = [
        json.loads(plackett("evaluate", *arguments, *extra)[1])["results"][0]["value"]
        for extra in ((), ("--ties", "stable"), ("--gain", "linear"))
    ]
    wanted = [
        ndcg(np.zeros(len(data.y)), data.y, offsets=data.offsets, **extra)
        for extra in ({}, {"ties": "stable"}, {"gain": "linear"})
    ]
    assert found == pytest.approx(wanted, abs=1e-12)


def test_evaluate_scores_labels_of_rows(plackett: Any, tmp_path: Path) -> None:
    data = make_multilabel(200, 300, 60, labels_per_row=3, features_per_row=10, random_state=0)
    train, test = data.select(range(150)), data.select(range(150, 200))
    dump_xmc(train, tmp_path / "train.txt")
    dump_xmc(test, tmp_path / "test.txt")
    scores = test.Y.copy()
    scores.data = np.random.default_rng(0).random(len(scores.data))
    scores.indices = np.random.default_rng(1).permutation(scores.indices)
    scores.sum_duplicates()
    dump_scores(scores, tmp_path / "scores.txt")
    arguments = tmp_path / "test.txt", tmp_path / "scores.txt", "-m", "p@1", "-m", "psp@3"
    code, output, _ = plackett("evaluate", *arguments, "--train", tmp_path / "train.txt", "--json")
    assert code == 0
    found = {r["metric"]: r["value"] for r in json.loads(output)["results"]}
    wanted = propensity_scored_precision(scores, test.Y, inverse_propensity(train.Y), k=3)
    assert found["psp@3"] == pytest.approx(wanted, abs=1e-12)
    code, _, error = plackett("evaluate", *arguments)
    assert code == 1
    assert "inverse_propensity must be given for" in error


def test_options_apply_to_the_metrics_that_have_them(plackett: Any, scored: Any) -> None:
    folder, _, _ = scored
    files = folder / "data.txt", folder / "good.txt"
    assert plackett("evaluate", *files, "--gain", "linear")[0] == 0  # err has no gains, ndcg has
    code, _, error = plackett("evaluate", *files, "-m", "tau-b", "--ties", "stable")
    assert code == 1
    assert "options must belong to one of the metrics" in error
    code, _, error = plackett("evaluate", *files, folder / "good.txt")
    assert code == 2


def test_metrics_without_values_per_row_have_no_interval(plackett: Any, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("2 1 4\n0 0:1\n3 0:1\n")
    (tmp_path / "scores.txt").write_text("0:1\n1:1\n")
    files = tmp_path / "data.txt", tmp_path / "scores.txt"
    code, output, _ = plackett("evaluate", *files, "-m", "coverage@1", "-m", "p@1", "--json")
    assert code == 0
    found = json.loads(output)["results"][0]
    assert (found["value"], found["interval"]) == (0.5, [None, None])
    assert plackett("evaluate", *files, "-m", "coverage@1", "--per-list", tmp_path / "x.csv", "-m", "p@1")[0] == 0


def test_evaluating_ballots_is_refused(plackett: Any, tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("a,b\n1,2\n")
    (tmp_path / "s.txt").write_text("1\n")
    code, _, error = plackett("evaluate", tmp_path / "b.csv", tmp_path / "s.txt")
    assert code == 1
    assert "Traceback" not in error


def test_named_pipes_are_read(plackett: Any, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for extra in ((), ("--format", "letor")):
        writer = threading.Thread(target=lambda: pipe.write_text("1 qid:1 1:2\n0 qid:1 1:3\n"))
        writer.start()
        code, output, _ = plackett("info", pipe, *extra)
        writer.join()
        assert code == 0
        assert "LETOR" in " ".join(output.split())


def test_scores_round_trip(tmp_path: Path) -> None:
    data = make_tiered_lists(3, random_state=0)
    scores = np.random.default_rng(0).standard_normal(len(data.y))
    dump_scores(scores, tmp_path / "scores.txt.xz")
    assert (load_scores(tmp_path / "scores.txt.xz", data) == scores).all()
    np.save(tmp_path / "scores.npy", scores)
    assert (load_scores(tmp_path / "scores.npy", data) == scores).all()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no scores"),
        ("1\n2\n", "expected scores for 20 rows of data, got 2"),
        ("1\nx\n", "line 2: expected one finite number per line"),
        ("1\n" * 4 + "1 1:2\n" * 16, "line 5: expected one finite number"),
        ("nan\n" * 20, "expected one finite number"),
        ("1e999\n" * 20, "expected one finite number"),
    ],
)
def test_bad_scores_are_refused(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "scores.txt"
    path.write_text(text)
    with pytest.raises(DataError, match=problem):
        load_scores(path, make_tiered_lists(1, random_state=0))


def test_scores_with_a_header_are_read(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("2 1 4\n0 0:1\n3 0:1\n")
    data = load_xmc(tmp_path / "data.txt")
    for header in ("", "2 4\n"):
        (tmp_path / "scores.txt").write_text(header + "3:0.5 0:2\n\n")
        assert load_scores(tmp_path / "scores.txt", data).toarray().tolist() == [[2, 0, 0, 0.5], [0, 0, 0, 0]]
    (tmp_path / "scores.txt").write_text("4:1\n\n")
    with pytest.raises(DataError, match="index above the number"):
        load_scores(tmp_path / "scores.txt", data)


def test_predict_uses_the_trained_model(plackett: Any, tmp_path: Path) -> None:
    parts = make_graded_lists(90, mean_length=15, n_features=10, random_state=0)[0]
    for name, lists in (("train", range(50)), ("valid", range(50, 70)), ("test", range(70, 90))):
        dump_letor(parts.select(lists), tmp_path / f"{name}.txt.gz")
    files = [tmp_path / f"{name}.txt.gz" for name in ("train", "valid", "test")]
    arguments = ["-p", "num_leaves=5", "-p", "n_estimators=30", "--seed", "3", "-o", tmp_path / "model"]
    code, output, _ = plackett(
        "train", files[0], "--valid", files[1], "--test", files[2], "--objective", "partition", *arguments
    )
    assert code == 0
    for word in ("train", "valid", "test", "ndcg@10", "Model written to", "best after"):
        assert word in " ".join(output.split())
    code, output, _ = plackett("predict", tmp_path / "model", files[2], "-o", tmp_path / "scores.txt")
    assert code == 0
    model = BoostedRanker.load(tmp_path / "model")
    assert (model.num_leaves, model.random_state) == (5, 3)
    test = parts.select(range(70, 90))
    assert (load_scores(tmp_path / "scores.txt", test) == model.predict(test.X)).all()
    code, output, _ = plackett("evaluate", files[2], tmp_path / "scores.txt")
    assert code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--objective", "x"], 1, "objective must be one of partition"),
        (["--model", "x"], 1, "model must be one of boosted"),
        (["-p", "leafs=3"], 1, "parameters of boosted must be among"),
        (["-p", "nonsense"], 2, "expected name=value"),
    ],
)
def test_bad_training_arguments_are_refused(
    plackett: Any, tmp_path: Path, arguments: Any, code: int, words: str
) -> None:
    dump_letor(make_tiered_lists(3, random_state=0), tmp_path / "data.txt")
    found, _, error = plackett("train", tmp_path / "data.txt", "-o", tmp_path / "model", *arguments)
    assert found == code
    assert words in " ".join(error.replace("│", " ").split())
    assert not (tmp_path / "model").exists()


def test_predict_without_a_model_is_refused(plackett: Any, tmp_path: Path) -> None:
    dump_letor(make_tiered_lists(3, random_state=0), tmp_path / "data.txt")
    code, _, error = plackett("predict", tmp_path, tmp_path / "data.txt", "-o", tmp_path / "scores.txt")
    assert code == 1
    assert "not a model" in error


def test_width_comes_from_the_model(plackett: Any, tmp_path: Path) -> None:
    """LETOR text omits zeros, so the width comes from the model, not from the indices in the file."""
    data = make_tiered_lists(20, tier_sizes=(1, 2, 2), coefficients=(1.0, -0.5, 0.5), random_state=0)
    train, short = data.select(range(10)), data.select(range(10, 20))
    short.X[:, 2] = 0.0
    long = RankingData(np.column_stack([data.X, data.X[:, 0]]), data.y, data.qid, data.offsets)
    for name, part in (("train", train), ("long", long)):
        dump_letor(part, tmp_path / f"{name}.txt")
    dump_letor(RankingData(short.X[:, :2], short.y, short.qid, short.offsets), tmp_path / "short.txt")
    options = ["train", tmp_path / "train.txt", "--model", "linear", "-o", tmp_path / "model"]
    code, out, err = plackett(*options, "--valid", tmp_path / "short.txt", "--test", tmp_path / "short.txt")
    assert (code, err) == (0, "")
    code, out, _ = plackett("predict", tmp_path / "model", tmp_path / "short.txt", "-o", tmp_path / "scores")
    assert code == 0
    scores = np.loadtxt(tmp_path / "scores")
    np.testing.assert_array_equal(scores, LinearRanker.load(tmp_path / "model").predict(short.X))
    code, _, err = plackett("predict", tmp_path / "model", tmp_path / "long.txt", "-o", "-")
    assert code == 1
    assert "feature index above the number of features" in err
    assert "--features" in err
    code, _, err = plackett(*options, "--features", 4, "--test", tmp_path / "long.txt")
    assert (code, err) == (0, "")
    assert LinearRanker.load(tmp_path / "model").n_features_in_ == 4
    code, out, _ = plackett("predict", tmp_path / "model", tmp_path / "short.txt", "-o", "-")
    assert len(out.split()) == len(short.y)
