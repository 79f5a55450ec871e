"""Tables 1, 3 and 4 and figures 2 and 4 of Ma et al. (2021)."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_folder import real_data

from plackett.data import MultilabelData, dump_xmc, make_multilabel
from plackett.experiments import DataFolder, Experiment, Findings, run_experiment, write_results
from plackett.experiments.multilabel_data import (
    LABEL_NDCG,
    MEASURES,
    PLACES,
    load,
    measure_top_labels,
    short_name,
    usable_data,
)
from plackett.experiments.pl_partition import costs, midpoint_errors, multilabel_table, statistics

STAND_IN = "wiki10-31k stand-in 1/100"


@pytest.fixture(scope="module")
def small() -> tuple[MultilabelData, MultilabelData]:
    data = make_multilabel(90, 60, 40, labels_per_row=3, features_per_row=6, random_state=0)
    return data.select(range(60)), data.select(range(60, 90))


@pytest.fixture(scope="module")
def folder(small: tuple[MultilabelData, MultilabelData], tmp_path_factory: Any) -> DataFolder:
    """A data folder that contains only a small Delicious-1K."""
    root = tmp_path_factory.mktemp("data")
    (root / "delicious-1k").mkdir()
    for name, part in zip(("train.txt.gz", "test.txt"), small, strict=True):
        dump_xmc(part, root / "delicious-1k" / name)
    return DataFolder(root)


def with_quick(experiment: Experiment, configuration: dict[str, Any]) -> Experiment:
    return replace(experiment, configurations={"quick": configuration})


def findings_of(
    experiment: Experiment, configuration: dict[str, Any], data: DataFolder, tmp_path: Path
) -> tuple[Any, Findings]:
    """Run, write all files, and run again from the stored cells."""
    changed = with_quick(experiment, configuration)
    results = run_experiment(changed, "quick", tmp_path / "cells", data=data, progress=False)
    stopped = replace(changed, run=lambda *_: pytest.fail("a finished cell was run again"))
    assert run_experiment(stopped, "quick", tmp_path / "cells", data=data, progress=False) == results
    paths = write_results(changed, "quick", results, tmp_path, data=data, command="plackett reproduce")
    assert json.loads(paths[0].read_text())["cells"] == [[cell, result] for cell, result in results]
    return results, experiment.find(configuration, results)


# Data


def test_load_reads_real_data_and_generates_stand_ins(
    folder: DataFolder, small: tuple[MultilabelData, MultilabelData]
) -> None:
    for read, written in zip(load("delicious-1k", folder), small, strict=True):
        assert (read.Y != written.Y).nnz == 0
        assert read.X.shape == written.X.shape
    train, test = load("delicious-200k stand-in 1/1000", folder)
    assert (len(train), len(test), train.X.shape[1], test.Y.shape[1]) == (196, 100, 782, 205)
    assert short_name("delicious-200k stand-in 1/1000") == "D-200K stand-in 1/1000"
    for wrong in ("delicious-1k stand-in", "wiki10-31", "mq2008"):
        with pytest.raises(ValueError, match=f"name must be one of delicious-1k, .*stand-in, got '{wrong}'"):
            load(wrong, folder)
    with pytest.raises(FileNotFoundError, match="no folder wiki10-31k; set PLACKETT_DATA"):
        load("wiki10-31k", folder)


def test_real_data_replace_their_stand_in(folder: DataFolder, tmp_path: Path) -> None:
    names = ["delicious-1k", "wiki10-31k", STAND_IN]
    assert usable_data(names, folder) == ["delicious-1k", STAND_IN]
    (tmp_path / "wiki10-31k").mkdir()
    other = DataFolder(tmp_path)
    assert usable_data(names, other) == ["wiki10-31k"]
    assert usable_data([STAND_IN], other) == [STAND_IN]  # an experiment that does not use the data set itself


def test_judge_longhand(small: tuple[MultilabelData, MultilabelData]) -> None:
    train, test = small
    top = np.argsort(np.random.default_rng(0).random((len(test), 40)), axis=1)
    rows, count = len(train), np.asarray(train.Y.sum(0)).ravel()
    inverse = 1.0 + (math.log(rows) - 1.0) * 2.5**0.55 * (count + 1.5) ** -0.55
    found = measure_top_labels(top, train, test)
    for number, k in enumerate(PLACES):
        p = ndcg = label_ndcg = 0.0
        psp, psndcg = np.zeros(2), np.zeros(2)
        for row in range(len(test)):
            own = set(test.Y[[row]].indices.tolist())
            best = sorted((inverse[label] for label in own), reverse=True)[:k]
            discount = [1.0 / math.log2(place + 2) for place in range(k)]
            reach = sum(discount[: len(own)])
            hits = [(place, label) for place, label in enumerate(top[row, :k]) if label in own]
            p += len(hits) / k
            ndcg += sum(discount[place] for place, _ in hits) / reach
            label_ndcg += sum(discount[place] for place, _ in hits if place < len(own)) / reach
            psp += [sum(inverse[label] for _, label in hits), sum(best)]
            gains = sum(inverse[label] * discount[place] for place, label in hits)
            psndcg += [gains / reach, sum(a * b for a, b in zip(best, discount, strict=False)) / reach]
        expected = (p / len(test), ndcg / len(test), psp[0] / psp[1], psndcg[0] / psndcg[1], label_ndcg / len(test))
        values = [found[name][number] for name in (*MEASURES, LABEL_NDCG)]
        assert values == pytest.approx([100 * x for x in expected], abs=5.1e-4)  # rounded to three decimals
    assert found["nDCG"][3] > found[LABEL_NDCG][3]  # rows with fewer than ten labels


# Tables 1 and 4


def protocol(seeds: int, **other: Any) -> dict[str, Any]:
    return {"seeds": seeds, "epochs": 2, "scaling": "norm", "validation": 0.25, "rates": [1e-3, 0.05], **other}


def test_table_1_from_end_to_end(folder: DataFolder, tmp_path: Path) -> None:
    quick = multilabel_table.EXPERIMENT.configurations["quick"]
    configuration = {
        "training": {**quick["training"], "hidden_sizes": [8], "batch_size": 16},
        "data": {"delicious-1k": protocol(2), "eurlex-4k": protocol(9), STAND_IN: protocol(1)},
    }
    results, findings = findings_of(multilabel_table.EXPERIMENT, configuration, folder, tmp_path)
    assert len(results) == 4 * 3
    chosen = {(cell["data"], cell["method"], cell["seed"]): result["rate"] for cell, result in results}
    for method in multilabel_table.METHODS:
        assert chosen["delicious-1k", method, 1] == chosen["delicious-1k", method, 0]
    assert len(findings.rows) == 2 * 4 * 20
    assert {row["paper"] is None for row in findings.rows if row["data"] == STAND_IN} == {True}
    assert {row.names[0] for row in findings.compared} == {"D-1K"}
    assert len(findings.compared) == 4 * 12
    assert len(findings.claims) == 4
    assert [section.title for section in findings.sections] == ["D-1K", "W-31K stand-in 1/100"]
    by_hand = [result["P"][2] for cell, result in results if cell["method"] == "PL-LB" and cell["data"] != STAND_IN]
    row = next(row for row in findings.rows if (row["method"], row["measure"]) == ("PL-LB", "P@5"))
    assert row["value"] == pytest.approx(sum(by_hand) / 2, abs=5.1e-4)  # rounded
    assert row["se"] == pytest.approx(abs(by_hand[0] - by_hand[1]) / 2, abs=5.1e-4)


def test_the_rate_of_the_first_seed_is_inherited() -> None:
    cell = {"data": "delicious-1k", "method": "PL-LB", "seed": 2}
    before = [({**cell, "seed": 0}, {"rate": 0.5}), ({**cell, "seed": 0, "method": "RankNet"}, {"rate": 0.1})]
    assert multilabel_table.inherit(cell, before) == {"rate": 0.5}
    assert multilabel_table.inherit(cell, before[1:]) == {}
    model = multilabel_table.make_model(multilabel_table.EXPERIMENT.configurations["full"], {**cell, "rate": 0.5})
    assert (model.learning_rate, model.objective, model.random_state) == (0.5, "lower_bound", 2)


def results_of(name: str, leads: dict[str, list[float]]) -> list[Any]:
    """Build results in which PL-Partition scores 50 everywhere and each other method trails by its lead, per seed."""
    values = {"PL-Partition": [0.0] * len(leads["PL-LB"]), **leads}
    return [
        (
            {"data": name, "method": method, "seed": seed},
            {"rate": 1e-3, "epoch": 1, **{m: [50.0 - lead] * len(PLACES) for m in multilabel_table.SHOWN}},
        )
        for method, seeds in values.items()
        for seed, lead in enumerate(seeds)
    ]


@pytest.mark.parametrize(
    ("name", "leads", "holds"),
    [
        ("delicious-1k", {"PL-LB": [1, 1.1], "RankNet": [2, 2.1], "RankSVM": [3, 3.1]}, [True, True]),
        ("delicious-1k", {"PL-LB": [-1, 0.9], "RankNet": [2, 2], "RankSVM": [3, 3]}, [False, True]),
        ("delicious-1k", {"PL-LB": [1, 1], "RankNet": [2, 2], "RankSVM": [3, -3.1]}, [True, False]),
        ("eurlex-4k", {"PL-LB": [9, 9], "RankNet": [-1.9, -1.9], "RankSVM": [1.9, 1.9]}, [True, True]),
        ("eurlex-4k", {"PL-LB": [9, 9], "RankNet": [0.0, 0.0], "RankSVM": [2.1, 2.1]}, [True, False]),
        (STAND_IN, {"PL-LB": [1], "RankNet": [1], "RankSVM": [0]}, [True, False]),
    ],
)
def test_claims_of_table_1(name: str, leads: dict[str, list[float]], holds: list[bool]) -> None:
    claims = multilabel_table.find({}, results_of(name, leads)).claims
    assert [claim.holds for claim in claims] == holds
    assert all(short_name(name) in claim.text for claim in claims)


def test_evidence_of_table_1() -> None:
    leads = {"PL-LB": [1.0, 1.5, 2.0], "RankNet": [1.0] * 3, "RankSVM": [1.0] * 3}
    evidence = multilabel_table.find({}, results_of("delicious-1k", leads)).claims[0].evidence
    # t = 1.5 / (0.5 / sqrt 3) with two degrees of freedom: p = 0.0351, which Holm multiplies by 16.
    assert evidence.startswith("lead in points over PL-LB: from +1.50 (P@1) to +1.50, paired t-test over 3 seeds")
    assert evidence.endswith("largest p of 16 (Holm) 0.56")


def test_measures_that_the_paper_defines_differently_are_not_compared() -> None:
    leads = {"PL-LB": [1.0], "RankNet": [1.0], "RankSVM": [1.0]}
    found = multilabel_table.find({}, [*results_of("delicious-1k", leads), *results_of("eurlex-4k", leads)])
    compared = {
        name: [row.names[2] for row in found.compared if row.names[:2] == [name, "RankNet"]]
        for name in ("D-1K", "E-4K")
    }
    every = {m: [f"{m}@{k}" for k in PLACES] for m in multilabel_table.SHOWN}
    assert compared == {"D-1K": every["P"] + every["nDCG"] + every["PSP"], "E-4K": every["P"] + every[LABEL_NDCG]}
    row = next(row for row in found.compared if row.names == ["E-4K", "PL-LB", f"{LABEL_NDCG}@5"])
    assert (row.paper, row.ours) == (48.71, 49.0)


def test_published_numbers_agree_with_each_other() -> None:
    """At k = 1, precision equals nDCG, and so do their propensity-scored forms."""
    for methods in multilabel_table.PUBLISHED.values():
        assert list(methods) == list(multilabel_table.METHODS)
        for figures in methods.values():
            assert figures["P"][0] == figures["nDCG"][0]
            assert figures["PSP"][0] == figures["PSnDCG"][0]
            assert all(a > b for a, b in zip(figures["P"], figures["P"][1:], strict=False))


# Table 3


def test_table_3_from_end_to_end(folder: DataFolder, small: Any, tmp_path: Path) -> None:
    configuration = {"data": ["delicious-1k", STAND_IN]}
    _, findings = findings_of(statistics.EXPERIMENT, configuration, folder, tmp_path)
    ours, stand_in = findings.rows
    train, test = small
    given = train.Y.nnz + test.Y.nnz
    assert [ours[name] for name in statistics.COUNTS] == [60, 40, 60, 30]
    assert [ours[name] for name in statistics.MEANS] == [round(given / 40, 3), round(given / 90, 3)]
    assert stand_in["rows per label"] * stand_in["labels"] == pytest.approx(
        stand_in["labels per row"] * stand_in["training rows"],
        rel=1e-3,  # rounded
    )
    assert [row.names[0] for row in findings.compared] == ["D-1K"] * 6
    (claim,) = findings.claims
    assert not claim.holds
    assert "labels 40 here, 983 in the paper" in claim.evidence


def test_published_means_cover_the_declared_rows() -> None:
    for name, (_, labels, train, test, per_label, per_row) in statistics.PUBLISHED.items():
        rows = train + test if name in statistics.OVER_ALL_ROWS else train
        # Means have two decimals; labels per row of D-1K is one unit too high in the second.
        assert per_label == pytest.approx(per_row * rows / labels, rel=0.011 / per_row + 0.005 / per_label)


def test_table_3_on_real_data() -> None:
    data = DataFolder(real_data("delicious-1k").parent)
    result = statistics.run({}, {"data": "delicious-1k"}, data)
    assert statistics.find({}, [({"data": "delicious-1k"}, result)]).claims[0].holds


# Figure 2

COSTS = {**costs.EXPERIMENT.configurations["quick"], "batch": 2, "top": 10, "warm_up": 1, "steps": 2, "seconds": 1e-6}


def test_figure_2_runs_in_its_own_process(tmp_path: Path) -> None:
    configuration = {**COSTS, "items": [40], "methods": ["AttRank"]}
    ((_, result),) = run_experiment(
        with_quick(costs.EXPERIMENT, configuration), "quick", tmp_path, data=DataFolder(tmp_path), progress=False
    )
    assert result["seconds"] > 0.0
    assert result["megabytes"] >= 0.01


@pytest.mark.parametrize("method", costs.METHODS)
def test_all_methods_take_steps(method: str) -> None:
    result = costs.measure(COSTS, {"items": 40, "method": method})
    assert 0.0 < result["seconds"] < math.inf


def test_memory_grows_with_items() -> None:
    few, many = (
        costs.run(COSTS, {"items": items, "method": "AttRank"}, DataFolder())["megabytes"] for items in (40, 400_000)
    )
    assert many > 2 * 400_000 * 4 / 1e6 > few  # a table of two rows in single precision


def timed(seconds: dict[str, tuple[float, float, float]]) -> list[Any]:
    """Build results from times at N = 100, 1,000 and 10,000."""
    return [
        (
            {"items": items, "method": method},
            {"seconds": value, "over_reference": value / reference, "megabytes": 1.0},
        )
        for method, values in seconds.items()
        for items, value, reference in zip((100, 1_000, 10_000), values, seconds["PL-LB"], strict=True)
    ]


@pytest.mark.parametrize(
    ("partition", "ranknet", "midpoint_rule", "holds"),
    [
        ((1.0, 1.5, 2.2), (1, 10, 100), (9, 9, 9), [True, True, True]),
        ((9.0, 1.2, 2.5), (1, 10, 21), (9, 9, 2.4), [False, True, False]),  # 1.2 times, then 1.25
        ((1.0, 1.5, 2.6), (1, 10, 17), (9, 9, 9), [False, False, True]),
    ],
)
def test_claims_of_figure_2(partition: Any, ranknet: Any, midpoint_rule: Any, holds: list[bool]) -> None:
    seconds = {
        "PL-Partition": partition, "PL-LB": (1, 1, 2), "AttRank": (1, 1, 1.7), "RankNet": ranknet,
        "RankSVM": (1, 1, 99), costs.MIDPOINT: midpoint_rule,
    }  # fmt: skip
    findings = costs.find({"top": 500}, timed(seconds))
    assert [claim.holds for claim in findings.claims] == holds
    assert "at N = 1,000" in findings.claims[0].evidence
    assert "N = 100," not in findings.claims[0].evidence  # the upper tiers still grow there
    assert len(findings.rows) == 18


# Figure 4


def test_figure_4_from_end_to_end(folder: DataFolder, tmp_path: Path) -> None:
    quick = midpoint_errors.EXPERIMENT.configurations["quick"]
    own = {"seeds": 1, "epochs": 2, "scaling": "norm", "norm": 4.0}
    rules = [[5, 5.0], [50, 5.0], [50, 1.0], [50, 400.0]]
    configuration = {
        **quick, "hidden_sizes": [8], "batch": 30, "base": {"T": 50, "c": 5.0}, "rules": rules,
        "data": {"delicious-1k": own, "wiki10-31k": own},
    }  # fmt: skip
    _, findings = findings_of(midpoint_errors.EXPERIMENT, configuration, folder, tmp_path)
    found = {(row["method"], row["T"], row["c"]): row["P@5"] for row in findings.rows}
    assert len(found) == 6
    assert found.pop((midpoint_errors.MIDPOINT, 50, 400.0)) is None  # exp(400) is infinite
    assert all(0.0 < value < 100.0 for value in found.values())
    assert not findings.claims[0].holds
    assert "not finite (T = 50, c = 400)" in findings.claims[0].evidence


def test_many_intervals_match_the_adaptive_rule() -> None:
    scores = torch.tensor([[0.5, -0.3, 0.2, 0.9], [0.1, 0.4, -0.8, 0.0]], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0]])
    values, gradients = [], []
    for cell in ({"method": midpoint_errors.ADAPTIVE}, {"method": midpoint_errors.MIDPOINT, "T": 4_000, "c": 1.0}):
        loss = midpoint_errors._loss(cell, scores, labels)
        values.append(loss.item())
        gradients.append(torch.autograd.grad(loss, scores)[0].numpy())
    # The error of the midpoint rule falls with the square of the 4,000 intervals, or slower at the ends.
    assert values[1] == pytest.approx(values[0], abs=1e-5)
    np.testing.assert_allclose(gradients[1], gradients[0], atol=1e-5)


@pytest.mark.parametrize(
    ("adaptive", "intervals", "shifts", "holds"),
    [
        (50.0, (49.3, 50.0, 50.2), (49.5, None), [True, True]),
        (49.0, (49.0, 50.1, 50.2), (49.5, None), [False, False]),  # only T = 100 and 300 are near the best
        (60.0, (49.3, 50.0, 50.2), (49.0, 50.0), [False, True]),  # only c = 5 and 9
    ],
)
def test_claims_of_figure_4(adaptive: float, intervals: Any, shifts: Any, holds: list[bool]) -> None:
    base = {"T": 300, "c": 5.0}
    rules = [[30, 5.0], [100, 5.0], [300, 5.0], [300, 0.0], [300, 9.0]]
    results = [
        ({"data": STAND_IN, "method": midpoint_errors.ADAPTIVE, "seed": 0}, {"P@5": adaptive}),
        ({"data": STAND_IN, "method": midpoint_errors.REFERENCE, "seed": 0}, {"P@5": 40.0}),
        *(
            ({"data": STAND_IN, "method": midpoint_errors.MIDPOINT, "T": T, "c": c, "seed": 0}, {"P@5": value})
            for (T, c), value in zip(rules, (*intervals, *shifts), strict=True)
        ),
    ]
    findings = midpoint_errors.find({"base": base}, results)
    assert [claim.holds for claim in findings.claims] == holds
    by_intervals, by_shifts = findings.sections[0].blocks[:2]
    assert [list(series.y) for series in by_intervals.series] == [list(intervals), [adaptive] * 3, [40.0] * 3]
    assert list(by_shifts.series[0].x) == [0.0, 5.0, 9.0]
    assert list(by_shifts.series[0].y) == [shifts[0], intervals[2], shifts[1]]
