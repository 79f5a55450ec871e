"""`plackett aggregate`."""

import csv
import errno
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from data_folder import real_data
from rich.cells import cell_len
from rich.console import Console

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
    for part in ("95% interval", "Bob", "ranks", "ballots 8", "left out Zoe (on no ballot that ranks anything)"):
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
    assert code == 2
    assert "must end with .csv or .json" in error


def test_json_and_the_model(plackett: Any, ballots: Path, tmp_path: Path) -> None:
    code, output, _ = plackett("aggregate", ballots, "--prior", 0.5, "--json", "--model", tmp_path / "model")
    assert code == 0
    found = json.loads(output)
    assert found["left out"] == ["Zoe"]
    assert found["outside"] == [{"item": "Zoe", "where": "unranked", "reason": "on no ballot that ranks anything"}]
    assert [row["item"] for row in found["items"]] == RankAggregator.load(tmp_path / "model").summary().column(
        "item"
    ).tolist()  # fmt: skip


SKATERS = """# DATA TYPE: toc
# NUMBER ALTERNATIVES: 4
# ALTERNATIVE NAME 1: Alexander
# ALTERNATIVE NAME 2: Evgeni
# ALTERNATIVE NAME 3: Alexei
# ALTERNATIVE NAME 4: Last
5: 3,1,2,4
2: {3,2},1,4
"""


def _rows(output: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in output.splitlines() if "│" in line]


def test_no_first_is_announced_that_is_none(plackett: Any, tmp_path: Path) -> None:
    path, page = tmp_path / "skaters.toc", tmp_path / "page.html"
    path.write_text(SKATERS)
    code, output, error = plackett("aggregate", path, "--report", page)
    assert code == 0
    rows = _rows(output)
    assert [row[:2] for row in rows] == [["1", "Alexei"], ["2", "Alexander"], ["3", "Evgeni"], ["4", "Last"]]
    assert (rows[0][2], rows[-1][2]) == ("infinite", "0")
    said = "of infinite worth, for none of the rest beats them: Alexei"
    assert f"Warning: left out are items of worth 0, for they beat none of the rest: Last; {said}" in error
    text = page.read_text()
    assert said in text
    assert "First is" not in text
    assert "On place 2, after the items that none of these beats, is Alexander" in text
    with pytest.warns(UserWarning, match=said):
        model = RankAggregator().fit(load_preflib(path))
    code, output, _ = plackett("aggregate", path, "--json")
    assert json.loads(output) == json.loads(json.dumps(model.summary().as_dict()))


def test_the_skater_whom_nobody_beat(plackett: Any) -> None:
    code, output, _ = plackett("aggregate", real_data("preflib", "00006-00000001.toc"), "--json")
    assert code == 0
    found = json.loads(output)
    assert ("Alexei Yagudin", "above") in [(one["item"], one["where"]) for one in found["outside"]]
    assert (found["items"][0]["item"], found["items"][0]["rank"]) == ("Alexander Abt", 2)


def test_ties_that_say_nothing(plackett: Any, tmp_path: Path) -> None:
    path = tmp_path / "pairs.toi"
    path.write_text("# NUMBER ALTERNATIVES: 2\n3: 1,2\n2: 2,1\n5: {1,2}\n")
    code, _, error = plackett("aggregate", path)
    assert code == 0
    assert "Warning: 5 of 10 ballots (50.0%) are ties of two items, or of all that they rank" in error


def test_files_are_written_before_anything_is_printed(
    ballots: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As into `| true`: what is printed goes nowhere, and the files are complete all the same."""
    paths = [tmp_path / name for name in ("worths.csv", "page.html", "worths.svg", "model")]

    class Closed(io.StringIO):
        def write(self, _text: str) -> int:
            assert all(path.exists() for path in paths)
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    options = [*("-o", paths[0]), *("--report", paths[1]), *("--plot", paths[2]), *("--model", paths[3])]
    monkeypatch.setattr(sys, "argv", ["plackett", "aggregate", str(ballots), *map(str, options)])
    monkeypatch.setattr(sys, "stdout", Closed())
    monkeypatch.setattr("plackett.cli.aggregate.console", Console())  # it remembers that nobody reads
    with pytest.raises(SystemExit):
        cli.main()
    assert all(path.exists() for path in paths)


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


def test_approvals(plackett: Any, tmp_path: Path) -> None:
    path = tmp_path / "approvals.csv"
    path.write_text("Ada,Bob,Eve\n1,0,0\n1,1,0\n0,1,0\n1,0,1\n0,1,1\n")
    code, _, error = plackett("aggregate", path)
    assert code == 1
    assert "line 2: rank 0 in column Bob" in error
    assert "--layout approvals" in error
    code, output, _ = plackett("aggregate", path, "--layout", "approvals", "--json")
    assert code == 0
    votes = [["Ada", ["Bob", "Eve"]], [["Ada", "Bob"], "Eve"], ["Bob", ["Ada", "Eve"]], [["Ada", "Eve"], "Bob"],
             [["Bob", "Eve"], "Ada"]]  # fmt: skip
    model = RankAggregator().fit(votes)
    found = {row["item"]: row["worth"] for row in json.loads(output)["items"]}
    assert [found[item] for item in model.items_] == pytest.approx(model.worths_.tolist(), abs=1e-9)
    code, output, _ = plackett("info", path, "--layout", "approvals")
    assert code == 0
    assert "CSV of rankings" in output
    code, _, error = plackett("info", path, "--layout", "votes")
    assert "layout must be one of ranks, places, approvals, got 'votes'" in error


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_terminals_without_all_characters(encoding: str, ballots: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ballots.write_text(TOC.replace("Ada", "Zoë").replace("Bob", "李"))
    printed: dict[str, str] = {}
    for command in ("aggregate", "info"):
        raw = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
        monkeypatch.setattr(sys, "argv", ["plackett", command, str(ballots)])
        monkeypatch.setenv("COLUMNS", "120")
        with pytest.raises(SystemExit) as stop:
            cli.main()
        assert not stop.value.code
        sys.stdout.flush()
        printed[command] = raw.getvalue().decode(encoding)
    lines = [line for line in printed["aggregate"].splitlines() if ("|" if encoding != "utf-8" else "│") in line]
    assert len(set(map(cell_len, lines))) == 1  # straight
    assert ("Zo\\xeb" if encoding == "ascii" else "Zoë") in printed["aggregate"]
    assert ("李" if encoding == "utf-8" else "\\u674e") in printed["aggregate"]
    assert ("█" if encoding == "utf-8" else "####") in printed["info"]


def test_names_that_spreadsheets_compute_and_terminals_obey(plackett: Any, ballots: Path, tmp_path: Path) -> None:
    ballots.write_text(TOC.replace("Ada", "=1+1").replace("Bob", "-5").replace("Eve", "Eve\u202eevil\x1b"))
    files = [tmp_path / name for name in ("worths.csv", "worths.svg", "page.html")]
    options = zip(("-o", "--plot", "--report"), files, strict=True)
    code, output, _ = plackett("aggregate", ballots, *(part for option in options for part in option))
    assert code == 0
    with files[0].open() as file:
        assert {row["item"] for row in csv.DictReader(file)} == {"'=1+1", "-5", "Eve\\u202eevil\\x1b"}
    for text in (output, *(path.read_text() for path in files)):
        assert "\u202e" not in text
        assert "\x1b" not in text
        assert "\\u202e" in text or "\\\\u202e" in text


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
        (("--edges", "--items", "L*"), "goes with none of"),
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
