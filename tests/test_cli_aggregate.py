"""`plackett aggregate`."""

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from data_folder import real_data

from plackett import RankAggregator, cli
from plackett.data import load_preflib

TOC = """# TITLE: test
# DATA TYPE: toi
# NUMBER ALTERNATIVES: 4
# NUMBER VOTERS: 8
# NUMBER UNIQUE ORDERS: 4
# ALTERNATIVE NAME 1: Ada
# ALTERNATIVE NAME 2: Bob
# ALTERNATIVE NAME 3: Eve
# ALTERNATIVE NAME 4: Zoe
3: 2,{1,3}
2: 3,2,1
1: {1,2},3
2: 1,3
"""


@pytest.fixture
def plackett(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*arguments: Any) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["plackett", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "200")
        try:
            cli.main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def ballots(tmp_path: Path) -> Path:
    path = tmp_path / "ballots.toi"
    path.write_text(TOC)
    return path


def test_the_table_and_the_warning(plackett: Any, ballots: Path) -> None:
    code, output, error = plackett("aggregate", ballots)
    assert code == 0
    for part in ("95% interval", "Bob", "ranks", "ballots 8", "left out Zoe"):
        assert part in " ".join(output.split())
    assert "Warning: left out are items on no ballot that ranks anything: Zoe" in error


def test_files(plackett: Any, ballots: Path, tmp_path: Path) -> None:
    for name in ("worths.csv", "worths.json"):
        code, *_ = plackett("aggregate", ballots, "-o", tmp_path / name, "--plot", tmp_path / "worths.svg")
        assert code == 0
    with (tmp_path / "worths.csv").open() as file:
        rows = list(csv.DictReader(file))
    stored = json.loads((tmp_path / "worths.json").read_text())
    with pytest.warns(UserWarning, match="Zoe"):
        model = RankAggregator(on_infinite="drop").fit(load_preflib(ballots))
    expected = dict(zip(model.items_, model.worths_, strict=True))
    for found in (rows, stored["items"]):
        assert {row["item"]: float(row["worth"]) for row in found} == expected
        assert [int(row["rank"]) for row in found] == [1, 2, 3]
    assert stored["left out"] == ["Zoe"]
    assert stored["AIC"] == model.aic_
    assert "<svg" in (tmp_path / "worths.svg").read_text()
    code, _, error = plackett("aggregate", ballots, "-o", tmp_path / "worths.xls")
    assert code == 1
    assert "must end with .csv or .json" in error


def test_json_and_the_model(plackett: Any, ballots: Path, tmp_path: Path) -> None:
    code, output, _ = plackett("aggregate", ballots, "--prior", 0.5, "--json", "--model", tmp_path / "model")
    assert code == 0
    found = json.loads(output)
    assert found["left out"] == []
    assert [row["item"] for row in found["items"]] == RankAggregator.load(tmp_path / "model").summary().column(
        "item"
    ).tolist()  # fmt: skip


def test_edges(plackett: Any, tmp_path: Path) -> None:
    path = tmp_path / "games.csv"
    path.write_text("a,b,3\nb,a\nb,c,2\nc,a\n")
    code, output, _ = plackett("aggregate", path, "--edges", "--json")
    assert code == 0
    pairs = [("a", "b")] * 3 + [("b", "a"), ("b", "c"), ("b", "c"), ("c", "a")]
    model = RankAggregator().fit(pairs)
    found = {row["item"]: row["score"] for row in json.loads(output)["items"]}
    assert [found[item] for item in model.items_] == pytest.approx(model.scores_.tolist(), abs=1e-9)
    path.write_text("loser,winner,weight\nb,a,3\na,b\nc,b,2\na,c\n")
    assert plackett("aggregate", path, "--edges", "--json") == (0, output, "")
    path.write_text("a,b\nc,c\n")
    code, _, error = plackett("aggregate", path, "--edges")
    assert code == 1
    assert "games.csv, line 2: an item cannot beat itself" in error


def test_csv_of_rankings(plackett: Any) -> None:
    code, output, error = plackett("aggregate", real_data("rankings", "nascar-2002.csv"), "--json")
    assert code == 0
    assert len(json.loads(output)["items"]) == 83
    assert "84, 87, 85, 86" in error


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--strict",), "the maximum likelihood estimate does not exist"),
        (("--prior", "-1"), "prior must be a number of at least 0"),
        (("--confidence", "95"), "confidence must be a number between 0 and 1"),
        (("--unranked", "first"), "unranked must be one of"),
        (("--edges", "--items", "L*"), "goes with neither"),
        (("--items", "L*", "--format", "preflib"), "--items belongs to CSV files"),
        (("--edges",), "a weight must be a number"),
    ],
)
def test_what_cannot_be_done(plackett: Any, ballots: Path, options: Any, problem: str) -> None:
    code, _, error = plackett("aggregate", ballots, *options)
    assert code != 0
    assert problem in " ".join(error.split())


def test_data_that_are_no_rankings(plackett: Any, tmp_path: Path) -> None:
    path = tmp_path / "lists.txt"
    path.write_text("1 qid:1 1:0.5\n0 qid:1 1:0.2\n")
    code, _, error = plackett("aggregate", path)
    assert code == 2
    assert "expected rankings, got RankingData" in error
