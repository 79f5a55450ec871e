import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plackett.errors import DataError
from plackett.experiments import (
    EXPERIMENTS,
    Claim,
    DataFolder,
    Experiment,
    Findings,
    get_experiment,
    read_results,
    run_experiment,
    write_results,
)
from plackett.experiments.framework import CellStore
from plackett.report import Reproduced
from plackett.report.page import Axis, LinePlot, Section, Series, Table


def squares(configuration: Mapping[str, Any], cell: dict[str, Any], _: DataFolder) -> dict[str, Any]:
    return {"square": cell["number"] ** configuration["power"]}


EXAMPLE = Experiment(
    name="example",
    paper="nobody",
    title="Squares",
    configurations={"quick": {"power": 2, "numbers": [1, 2, 3]}, "full": {"power": 2, "numbers": list(range(10))}},
    cells=lambda configuration, _: [{"number": number} for number in configuration["numbers"]],
    run=squares,
    find=lambda _, results: Findings(
        [
            Section(
                "Squares",
                [
                    Table(["n", "square"], [[c["number"], r["square"]] for c, r in results]),
                    LinePlot([Series("square", [r["square"] for _, r in results])], Axis("n"), Axis("square", "m²")),
                ],
            )
        ],
        [Claim("squares grow", True, "1, 4, 9")],
        [{"n": cell["number"], "square": result["square"]} for cell, result in results],
        compared=[Reproduced(["4"], 17.0, 16.0)],
        compared_columns=["n"],
        remarks=["squares are larger on paper"],
    ),
    minutes={"quick": 1, "full": 1},
)


def test_an_interrupted_run_resumes_where_it_stopped(tmp_path: Path) -> None:
    calls: list[int] = []

    def fails_at_three(configuration: Mapping[str, Any], cell: dict[str, Any], data: DataFolder) -> dict[str, Any]:
        calls.append(cell["number"])
        if cell["number"] == 3 and calls.count(3) == 1:
            raise KeyboardInterrupt
        return squares(configuration, cell, data)

    experiment = replace(EXAMPLE, run=fails_at_three)
    with pytest.raises(KeyboardInterrupt):
        run_experiment(experiment, "quick", tmp_path)
    results = run_experiment(experiment, "quick", tmp_path)
    assert calls == [1, 2, 3, 3]
    assert [result["square"] for _, result in results] == [1, 4, 9]
    assert run_experiment(EXAMPLE, "quick", tmp_path) == results


def test_another_configuration_has_its_own_results(tmp_path: Path) -> None:
    run_experiment(EXAMPLE, "quick", tmp_path)
    cubes = replace(EXAMPLE, configurations={"quick": {"power": 3, "numbers": [1, 2, 3]}})
    assert [result["square"] for _, result in run_experiment(cubes, "quick", tmp_path)] == [1, 8, 27]


def test_a_damaged_result_is_named(tmp_path: Path) -> None:
    run_experiment(EXAMPLE, "quick", tmp_path)
    store = CellStore(tmp_path, EXAMPLE, "quick")
    path = sorted(store.folder.iterdir())[0]
    path.write_text(path.read_text()[:10])
    with pytest.raises(DataError, match=r"cannot read the result .*Delete the file to compute it again"):
        run_experiment(EXAMPLE, "quick", tmp_path)


def test_result_files(tmp_path: Path) -> None:
    results = run_experiment(EXAMPLE, "quick", tmp_path / "cells")
    command = "plackett reproduce example"
    found = write_results(EXAMPLE, "quick", results, tmp_path, data=DataFolder(), command=command)
    assert [path.suffix for path in found] == [".json", ".csv", ".html", ".png"]
    stored = json.loads(found[0].read_text())
    assert stored["rows"] == [{"n": 1, "square": 1}, {"n": 2, "square": 4}, {"n": 3, "square": 9}]
    assert stored["claims"][0]["holds"] is True
    assert read_results(found[0]) == (stored, results)
    assert found[1].read_text() == "n,square\n1,1\n2,4\n3,9\n"
    page = found[2].read_text()
    for text in (
        "squares grow",
        "1 not judged",
        "squares are larger on paper",
        "plackett reproduce example",
    ):
        assert text in page
    assert found[3].read_bytes().startswith(b"\x89PNG")
    found[0].write_text(found[0].read_text()[:40])
    with pytest.raises(DataError, match="this is not a results file"):
        read_results(found[0])
    with pytest.raises(ValueError, match="scale must be one of quick, full, got 'huge'"):
        run_experiment(EXAMPLE, "huge", tmp_path)


KILLED = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_experiments import EXAMPLE, squares
from plackett.experiments import DataFolder, run_experiment, write_results

def noted(configuration, cell, data):
    with open({log!r}, "a") as file:
        file.write(f"{{cell['number']}}\\n")
    if cell["number"] == {last}:
        os.kill(os.getpid(), signal.SIGKILL)
    return squares(configuration, cell, data)

experiment = replace(EXAMPLE, run=noted)
out = Path({out!r})
results = run_experiment(experiment, "full", out / "cells")
write_results(experiment, "full", results, out, data=DataFolder(), command="plackett reproduce example")
"""


def test_restart_after_a_kill(tmp_path: Path) -> None:
    """After kill -9 during a cell, finished cells are not repeated, and the final files are the same."""
    log, killed, whole = tmp_path / "log", tmp_path / "killed", tmp_path / "whole"

    def run(out: Path, last: int = -1) -> int:
        script = KILLED.format(tests=str(Path(__file__).parent), log=str(log), out=str(out), last=last)
        return subprocess.run([sys.executable, "-c", script], check=False).returncode  # noqa: S603 - our own script

    for last in (1, 4):
        assert run(killed, last) == -signal.SIGKILL
    assert not list(killed.glob("*.json"))
    assert run(killed) == 0
    assert log.read_text().split() == [*"01", *"1234", *"456789"]  # only the cell that was running is repeated
    log.unlink()
    assert run(whole) == 0
    assert log.read_text().split() == [*"0123456789"]
    for path in sorted(whole.glob("*.*")):
        assert path.read_bytes() == (killed / path.name).read_bytes()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiment_declarations_are_complete(name: str) -> None:
    experiment = get_experiment(name)
    assert experiment.name == name
    for scale in ("quick", "full"):
        cells = experiment.cells(experiment.configurations[scale], DataFolder())
        assert cells
        assert len({json.dumps(cell, sort_keys=True) for cell in cells}) == len(cells)
        assert experiment.minutes[scale] <= {"quick": 5, "full": 60}[scale]


def test_exact_likelihood_recovers_utilities_best(tmp_path: Path) -> None:
    """Run figure 1 at its smallest size; with N = 40 and 160 rankings the order matches the paper."""
    experiment = get_experiment("pl-partition-figure-1")
    configuration = {**experiment.configurations["quick"], "points": [[40, 160]], "seeds": 1}
    results = run_experiment(replace(experiment, configurations={"quick": configuration}), "quick", tmp_path)
    findings = experiment.find(configuration, results)
    error = {row["method"]: row["mse"] for row in findings.rows}
    assert error["PL-TopK"] < error["PL-Partition"] < min(error["RankNet"], error["RankSVM"])
    assert max(error["RankNet"], error["RankSVM"]) < min(error["PL-LB"], error["AttRank"])
    assert findings.claims[0].holds


def test_claims_are_judged_at_full_scale_on_real_data_only() -> None:
    real, stand_in = Claim("a beats b", True, "by 2"), Claim("a beats b", False, "yahoo stand-in: by -2")
    assert [real.verdict("full"), real.verdict("quick"), stand_in.verdict("full")] == [
        "yes",
        "not judged",
        "not judged",
    ]
    findings = Findings([], [real, stand_in, replace(real, holds=False)])
    assert findings.tally("full") == "1 of 2, 1 not judged"
    assert findings.tally("quick") == "3 not judged"
    assert Findings([]).tally("full") == ""


def test_command_line(tmp_path: Path, plackett: Callable[..., tuple[int, str, str]]) -> None:
    code, listed, _ = plackett("reproduce", "--list", columns=20)
    assert code == 0
    assert set(EXPERIMENTS) <= set(listed.split())  # no name is cut or wrapped
    code, _, error = plackett("reproduce", "figure-0", "-o", tmp_path)
    assert code == 1
    assert "experiment must be one of" in error


def test_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mq2008").mkdir()
    (tmp_path / "mq2008" / "S1.txt.gz").touch()
    monkeypatch.setenv("PLACKETT_DATA", str(tmp_path))
    for folder in (DataFolder(tmp_path), DataFolder()):
        assert folder.find("mq2008") == tmp_path / "mq2008"
        assert folder.find("yahoo-ltrc") is None
        assert folder.file("mq2008", "S1.txt").name == "S1.txt.gz"
    with pytest.raises(FileNotFoundError, match=r"no S2\.txt in"):
        folder.file("mq2008", "S2.txt")
    with pytest.raises(FileNotFoundError, match="no folder yahoo-ltrc; set PLACKETT_DATA"):
        folder.file("yahoo-ltrc", "set1.train.txt")
    with pytest.raises(ValueError, match=r"name must be one of .*, got 'letor'"):
        folder.find("letor")
    with pytest.raises(ValueError, match="data must be a folder"):
        DataFolder(tmp_path / "nowhere")
