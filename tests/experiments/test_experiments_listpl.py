"""Figure 2 of ListPL: training at a small size, and conclusions from results written by hand."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_folder import real_data

from plackett.data import dump_letor, make_graded_lists
from plackett.experiments import DataFolder, read_results, run_experiment, write_results
from plackett.experiments.framework import Claim, Experiment
from plackett.experiments.listpl import curves
from plackett.experiments.listpl.curves import EXPERIMENT, METHODS, PAPER_P, RIVALS

FAST = {"learning_rate": 1e-2, "epochs": 4, "batch_size": 256, "hidden_sizes": [8], "optimizer": "adam"}
SMALL = {
    "schedules": {"fast": FAST},
    "plans": [{"data": "mslr stand-in", "schedule": "fast", "lists": 6, "folds": 2, "seeds": 2, "methods": 4}],
}


@pytest.fixture
def nothing(tmp_path: Path) -> DataFolder:
    (tmp_path / "data").mkdir()
    return DataFolder(tmp_path / "data")


@pytest.fixture
def small() -> Experiment:
    return replace(EXPERIMENT, configurations={"quick": SMALL})


def test_from_training_to_the_page(small: Experiment, nothing: DataFolder, tmp_path: Path) -> None:
    results = run_experiment(small, "quick", tmp_path / "cells", data=nothing, progress=False)
    assert len(results) == 4 * 2
    for _, result in results:
        for weights, chosen in (("last", [4, 4]), ("best", result["best_epochs"])):
            by_seed = [result["curves"]["test"][seed][epoch - 1] for seed, epoch in enumerate(chosen)]
            known = [value for value in result["ndcg"][weights] if value is not None]
            # Results are stored with five digits.
            assert np.mean(known) == pytest.approx(np.mean(by_seed), abs=2e-5)
    findings = small.find(SMALL, results)
    assert [row["method"] for row in findings.rows if row["minus_partition"] is None] == ["partition"]
    assert {row["method"] for row in findings.rows} == set(list(METHODS)[:4])
    assert all(row.paper is None for row in findings.compared)
    assert len(findings.claims) == 5
    assert [plot.caption.split(";")[0].split(": ")[1] for plot in findings.sections[0].blocks[:3]] == [  # type: ignore[union-attr]
        "train", "validation", "test",
    ]  # fmt: skip
    paths = write_results(small, "quick", results, tmp_path, data=nothing, command="plackett reproduce")
    assert [path.suffix for path in paths] == [".json", ".csv", ".html", ".png"]
    assert small.find(SMALL, read_results(paths[0])[1]).claims == findings.claims


def test_results_do_not_depend_on_threads_and_thread_counts_are_restored(
    small: Experiment, nothing: DataFolder
) -> None:
    cell = {"data": "mslr stand-in", "schedule": "fast", "method": "ListPL", "fold": 1}
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(small.run(SMALL, cell, nothing))
            assert torch.get_num_threads() == threads
        assert found[0] == found[1]
    finally:
        torch.set_num_threads(before)


def test_cells_cover_the_available_data(nothing: DataFolder, tmp_path: Path) -> None:
    full = EXPERIMENT.configurations["full"]
    assert {cell["data"] for cell in EXPERIMENT.cells(full, nothing)} == {"mslr stand-in"}
    folder = tmp_path / "data" / "mslr-web10k"
    for number in range(1, 6):
        (folder / f"Fold{number}").mkdir(parents=True)
        for place, part in enumerate(("train", "vali", "test")):
            data, _ = make_graded_lists(3, mean_length=12, n_features=7, random_state=10 * number + place)
            dump_letor(data, folder / f"Fold{number}" / f"{part}.txt")
    cells = [cell for cell in EXPERIMENT.cells(full, nothing) if cell["data"] == "mslr-web10k"]
    assert len(cells) == 4 * 5
    small = {**full, "schedules": {"short": FAST}}
    results = [(cell, EXPERIMENT.run(small, cell, nothing)) for cell in cells if cell["fold"] < 2]
    paper = {row.names[2]: row.paper for row in EXPERIMENT.find(small, results).compared if row.names[3] == "p value"}
    assert paper == PAPER_P


def test_mslr_sample() -> None:
    folder = DataFolder(real_data("mslr-sample").parent)
    quick = EXPERIMENT.configurations["quick"]
    (cell,) = (c for c in EXPERIMENT.cells(quick, folder) if (c["data"], c["method"]) == ("mslr-sample", "ListNet"))
    result = EXPERIMENT.run({**quick, "schedules": {cell["schedule"]: {**FAST, "epochs": 2}}}, cell, folder)
    assert len(result["ndcg"]["last"]) == 43


def test_curves_are_thinned_to_means_of_stretches() -> None:
    assert curves._mean_by_range([0.25] * 30) == [0.25] * 30
    thinned = curves._mean_by_range(np.arange(1000.0).tolist())
    assert len(thinned) == 50
    assert thinned[:2] == [9.5, 29.5]


def by_hand(ndcg: dict[str, float], validation: Callable[[str], list[float]], data: str = "mq2008") -> Any:
    """Build results of two folds with ten epochs. Queries differ in nearly the same way for all methods."""
    results = []
    for fold in range(2):
        noise = np.random.default_rng(fold).normal(0.0, 0.2, 40)
        for number, (method, mean) in enumerate(ndcg.items()):
            own = noise + mean + np.random.default_rng([fold, number]).normal(0.0, 0.01, 40)
            curve = [value + 0.001 * fold for value in validation(method)]
            result = {
                "curves": {"train": [np.linspace(0.5, 0.9, 10).tolist()], "validation": [curve], "test": [curve]},
                "best_epochs": [3],
                "ndcg": {weights: [None, *own.tolist()] for weights in ("last", "best")},
            }
            results.append(({"data": data, "schedule": "fast", "method": method, "fold": fold}, result))
    return results


def claims_of(ndcg: dict[str, float], validation: Callable[[str], list[float]]) -> dict[str, Claim]:
    configuration = {"schedules": {"fast": {"epochs": 10}}}
    found = EXPERIMENT.find(configuration, by_hand(ndcg, validation)).claims
    return {claim.text.split(" (")[0]: claim for claim in found}


ABOVE = "ListPL ranks test queries better than ListNet and ListMLE, p < 0.05, after the last epoch"
OVERFIT = "ListNet and ListMLE overfit: they keep rising on train and fall on validation"
LEAST = "ListPL falls the least of the three on validation"
RISING = np.linspace(0.4, 0.5, 10).tolist()
FALLING = [0.4, 0.5, *np.linspace(0.5, 0.42, 8).tolist()]


def test_claims_that_hold() -> None:
    claims = claims_of(
        {"ListPL": 0.5, "ListNet": 0.48, "ListMLE": 0.48, "partition": 0.5},
        lambda method: FALLING if method in RIVALS else RISING,
    )
    assert all(claim.holds for claim in claims.values())
    assert "+0.02" in claims[ABOVE].evidence
    assert "80 queries" in claims[ABOVE].evidence
    assert "ListNet: train +0.3556, validation -0.0800" in claims[OVERFIT].evidence


def test_claims_that_do_not_hold() -> None:
    claims = claims_of(
        {"ListPL": 0.5, "ListNet": 0.48, "ListMLE": 0.5, "partition": 0.5},
        lambda method: FALLING if method == "ListPL" else RISING,
    )
    assert not claims[ABOVE].holds
    assert not claims[OVERFIT].holds
    assert not claims[LEAST].holds
    assert "ListNet: train +0.0000, validation +0.0000" in claims[OVERFIT].evidence


def test_a_fall_within_its_error_is_not_overfitting() -> None:
    results = by_hand({"ListPL": 0.5, "ListNet": 0.5, "ListMLE": 0.5, "partition": 0.5}, lambda _: FALLING)
    for cell, result in results:
        if cell["fold"] == 1 and cell["method"] == "ListNet":
            result["curves"]["validation"] = [RISING]
    configuration = {"schedules": {"fast": {"epochs": 10}}}
    claims = {claim.text.split(" (")[0]: claim.holds for claim in EXPERIMENT.find(configuration, results).claims}
    assert not claims[OVERFIT]


def test_published_numbers_are_compared_only_on_the_papers_data() -> None:
    ndcg = {"ListPL": 0.5, "ListNet": 0.48, "ListMLE": 0.48, "partition": 0.5}
    configuration = {"schedules": {"fast": {"epochs": 10}}}
    for data, paper in (("mslr stand-in", None), ("mq2008", None), ("mslr-web10k", 0.00078)):
        found = EXPERIMENT.find(configuration, by_hand(ndcg, lambda _: RISING, data)).compared
        assert found[0].names == [data, "fast", "ListNet", "p value"]
        assert found[0].paper == paper
        assert found[1].ours == pytest.approx(0.02, abs=0.005)  # the noise of 80 queries
        assert found[1].standard_error == pytest.approx(0.01 * np.sqrt(2 / 80), rel=0.3)  # same noise
