import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from plackett.cli.app import app
from plackett.errors import DataError
from plackett.experiments import EXPERIMENTS, Claim, Experiment, Findings, get_experiment, run_experiment, write_results
from plackett.experiments.framework import CellStore
from plackett.report.page import Section, Table


def squares(configuration: Mapping[str, Any], cell: dict[str, Any]) -> dict[str, Any]:
    return {"square": cell["number"] ** configuration["power"]}


EXAMPLE = Experiment(
    name="example",
    paper="nobody",
    title="Squares",
    configurations={"quick": {"power": 2, "numbers": [1, 2, 3]}, "full": {"power": 2, "numbers": list(range(10))}},
    cells=lambda configuration: [{"number": number} for number in configuration["numbers"]],
    run=squares,
    find=lambda _, results: Findings(
        [Section("Squares", [Table(["n", "square"], [[c["number"], r["square"]] for c, r in results])])],
        [Claim("squares grow", True, "1, 4, 9")],
        [{"n": cell["number"], "square": result["square"]} for cell, result in results],
    ),
    minutes={"quick": 1, "full": 1},
)


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    calls: list[int] = []

    def fails_at_three(configuration: Mapping[str, Any], cell: dict[str, Any]) -> dict[str, Any]:
        calls.append(cell["number"])
        if cell["number"] == 3 and calls.count(3) == 1:
            raise KeyboardInterrupt
        return squares(configuration, cell)

    experiment = replace(EXAMPLE, run=fails_at_three)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(experiment, "quick", tmp_path)
    results = run_experiment(experiment, "quick", tmp_path)
    assert calls == [1, 2, 3, 3]
    assert [result["square"] for _, result in results] == [1, 4, 9]
    assert run_experiment(EXAMPLE, "quick", tmp_path) == results


def test_another_configuration_has_other_results(tmp_path: Path) -> None:
    run_experiment(EXAMPLE, "quick", tmp_path)
    cubes = replace(EXAMPLE, configurations={"quick": {"power": 3, "numbers": [1, 2, 3]}})
    assert [result["square"] for _, result in run_experiment(cubes, "quick", tmp_path)] == [1, 8, 27]


def test_a_damaged_result_is_named(tmp_path: Path) -> None:
    run_experiment(EXAMPLE, "quick", tmp_path)
    store = CellStore(tmp_path, EXAMPLE, "quick")
    path = sorted(store.folder.iterdir())[0]
    path.write_text(path.read_text()[:10])
    with pytest.raises(DataError, match=r"not a readable result .*Delete it to compute it again"):
        run_experiment(EXAMPLE, "quick", tmp_path)


def test_files_of_results(tmp_path: Path) -> None:
    results = run_experiment(EXAMPLE, "quick", tmp_path / "cells")
    findings = EXAMPLE.find(EXAMPLE.configurations["quick"], results)
    found = write_results(EXAMPLE, "quick", results, findings, tmp_path, "plackett reproduce example")
    assert [path.suffix for path in found] == [".json", ".csv", ".html"]
    stored = json.loads(found[0].read_text())
    assert stored["rows"] == [{"n": 1, "square": 1}, {"n": 2, "square": 4}, {"n": 3, "square": 9}]
    assert stored["claims"][0]["holds"] is True
    assert found[1].read_text() == "n,square\n1,1\n2,4\n3,9\n"
    assert "squares grow" in found[2].read_text()
    with pytest.raises(ValueError, match="scale must be one of quick, full, got 'huge'"):
        run_experiment(EXAMPLE, "huge", tmp_path)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments_are_declared_in_full(name: str) -> None:
    experiment = get_experiment(name)
    assert experiment.name == name
    for scale in ("quick", "full"):
        cells = experiment.cells(experiment.configurations[scale])
        assert cells
        assert len({json.dumps(cell, sort_keys=True) for cell in cells}) == len(cells)
        assert experiment.minutes[scale] <= {"quick": 5, "full": 60}[scale]


def test_utilities_are_recovered_best_by_the_exact_likelihood(tmp_path: Path) -> None:
    """Figure 1 at its smallest; at N = 40 and 160 rankings the order is that of the paper."""
    experiment = get_experiment("pl-partition-figure-1")
    configuration = {**experiment.configurations["quick"], "points": [[40, 160]], "seeds": 1}
    results = run_experiment(replace(experiment, configurations={"quick": configuration}), "quick", tmp_path)
    findings = experiment.find(configuration, results)
    error = {row["method"]: row["mse"] for row in findings.rows}
    assert error["PL-TopK"] < error["PL-Partition"] < min(error["RankNet"], error["RankSVM"])
    assert max(error["RankNet"], error["RankSVM"]) < min(error["PL-LB"], error["AttRank"])
    assert findings.claims[0].holds


def test_command_line(tmp_path: Path) -> None:
    listed = CliRunner().invoke(app, ["reproduce", "--list"])
    assert listed.exit_code == 0
    assert "figure-1" in listed.output.replace("\n", "")
    unknown = CliRunner().invoke(app, ["reproduce", "figure-0", "-o", str(tmp_path)])
    assert unknown.exit_code == 1
    assert "experiment must be one of" in str(unknown.exception)
