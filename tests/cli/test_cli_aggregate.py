"""`plackett aggregate`."""

import csv
import errno
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Browser
from data_folder import real_data
from rich.cells import cell_len
from rich.console import Console

from plackett import RankAggregator, cli
from plackett.data import load_comparisons, load_preference_graphs, load_preflib

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
def ballots(tmp_path: Path) -> Path:
    path = tmp_path / "ballots.toi"
    path.write_text(TOC)
    return path


def test_table_and_warning_are_printed(plackett: Any, ballots: Path) -> None:
    code, output, error = plackett("aggregate", ballots)
    assert code == 0
    for part in ("95% interval", "Bob", "ranks", "ballots 8", "left out Zoe (on no ballot that ranks anything)"):
        assert part in " ".join(output.split())
    assert "Warning: left out: items on no ballot that ranks anything: Zoe" in error


def test_aggregate_writes_all_outputs(plackett: Any, ballots: Path, tmp_path: Path) -> None:
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


def test_json_and_model_agree_with_the_library(plackett: Any, ballots: Path, tmp_path: Path) -> None:
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


def test_page_does_not_call_a_lower_item_first(plackett: Any, tmp_path: Path) -> None:
    path, page = tmp_path / "skaters.toc", tmp_path / "page.html"
    path.write_text(SKATERS)
    code, output, error = plackett("aggregate", path, "--report", page)
    assert code == 0
    rows = _rows(output)
    assert [row[:2] for row in rows] == [["1", "Alexei"], ["2", "Alexander"], ["3", "Evgeni"], ["4", "Last"]]
    assert (rows[0][2], rows[-1][2]) == ("infinite", "0")
    reason = "of infinite worth, because none of the others beats them: Alexei"
    assert (
        f"items of worth 0, because they beat none of the others: Last; {reason}. They are ranked above and below"
        in error
    )
    assert "Warning: the maximum likelihood estimate does not exist" in error
    text = page.read_text()
    assert reason in text
    assert " is first" not in text
    assert re.search("Alexander.* is number 2, below the items that none of these beats,", text)
    with pytest.warns(UserWarning, match=reason):
        model = RankAggregator().fit(load_preflib(path))
    code, output, _ = plackett("aggregate", path, "--json")
    assert json.loads(output) == json.loads(json.dumps(model.summary().as_dict()))


def test_unbeaten_skater_is_reported(plackett: Any) -> None:
    code, output, _ = plackett("aggregate", real_data("preflib", "00006-00000001.toc"), "--json")
    assert code == 0
    found = json.loads(output)
    assert ("Alexei Yagudin", "above") in [(one["item"], one["where"]) for one in found["outside"]]
    assert (found["items"][0]["item"], found["items"][0]["rank"]) == ("Alexander Abt", 2)


def test_uninformative_ties_give_a_warning(plackett: Any, tmp_path: Path) -> None:
    path = tmp_path / "pairs.toi"
    path.write_text("# NUMBER ALTERNATIVES: 2\n3: 1,2\n2: 2,1\n5: {1,2}\n")
    code, _, error = plackett("aggregate", path)
    assert code == 1
    assert "5 of 10 ballots (50.0%) are pairs that ended level" in error
    code, _, error = plackett("aggregate", path, "--ties", "unknown")
    assert code == 0
    assert "Warning: 5 of 10 ballots (50.0%) are ties of two items, or of all that they rank" in error


def test_files_are_written_before_anything_is_printed(
    ballots: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `| true`: the output goes nowhere, but the files are complete."""
    paths = [tmp_path / name for name in ("worths.csv", "page.html", "worths.svg", "model")]

    class Closed(io.StringIO):
        def write(self, _text: str) -> int:
            assert all(path.exists() for path in paths)
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    options = [*("-o", paths[0]), *("--report", paths[1]), *("--plot", paths[2]), *("--model", paths[3])]
    monkeypatch.setattr(sys, "argv", ["plackett", "aggregate", str(ballots), *map(str, options)])
    monkeypatch.setattr(sys, "stdout", Closed())
    monkeypatch.setattr("plackett.cli.aggregate.console", Console())  # it remembers that the pipe is closed
    with pytest.raises(SystemExit):
        cli.main()
    assert all(path.exists() for path in paths)


def test_edges_are_read(plackett: Any, tmp_path: Path) -> None:
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


def test_approvals_need_their_layout(plackett: Any, tmp_path: Path) -> None:
    path = tmp_path / "approvals.csv"
    path.write_text("Ada,Bob,Eve\n1,0,0\n1,1,0\n0,1,0\n1,0,1\n0,1,1\n")
    code, _, error = plackett("aggregate", path)
    assert code == 1
    assert "got 0 in column Bob" in error
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
    assert "layout must be one of 'ranks', 'places', 'approvals', got 'votes'" in error


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_unencodable_characters_are_replaced(encoding: str, ballots: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert len(set(map(cell_len, lines))) == 1  # aligned
    assert ("Zo\\xeb" if encoding == "ascii" else "Zoë") in printed["aggregate"]
    assert ("李" if encoding == "utf-8" else "\\u674e") in printed["aggregate"]
    assert ("█" if encoding == "utf-8" else "####") in printed["info"]


def test_names_are_safe_for_spreadsheets_and_terminals(plackett: Any, ballots: Path, tmp_path: Path) -> None:
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


def test_csv_options_are_passed_on(plackett: Any) -> None:
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
        (("--edges", "--items", "L*"), "cannot be combined with"),
        (("--items", "L*", "--format", "preflib"), "--items can only be used with CSV files"),
        (("--edges",), "a weight must be a number"),
    ],
)
def test_impossible_requests_are_refused(plackett: Any, ballots: Path, options: Any, problem: str) -> None:
    code, _, error = plackett("aggregate", ballots, *options)
    assert code != 0
    assert problem in " ".join(error.split())


def test_data_without_rankings_is_refused(plackett: Any, tmp_path: Path) -> None:
    path = tmp_path / "lists.txt"
    path.write_text("1 qid:1 1:0.5\n0 qid:1 1:0.2\n")
    code, _, error = plackett("aggregate", path)
    assert code == 2
    assert "expected rankings, got RankingData" in error


VOTES = """model_a;model_b;winner;voter;kind;n
x;y;model_a;v;code;3
y;x;A;w;code;2
x;y;tie;v;code;1
y;z;left;w;text;3
z;y;model_a;v;text;2
x;z;draw;w;text;1
z;x;tie;v;code;2
x;z;model_b;w;code;1
y;z;tie;v;code;1
z;y;left;w;code;1
x;y;right;v;text;1
y;x;model_b;v;text;1
"""


def test_votes_become_a_board(plackett: Any, tmp_path: Path) -> None:
    path, board = tmp_path / "votes.csv", tmp_path / "board.html"
    path.write_text(VOTES)
    code, _, error = plackett("aggregate", path)
    assert code == 1
    assert "ended level" in error
    code, output, error = plackett(
        "aggregate", path, "--ties", "davidson", "--weight", "n", "--cluster", "voter", "--by", "kind",
        "--scale", "elo", "--anchor", "y=1000", "--prior", 0.5, "--report", board, "-o", tmp_path / "board.csv",
    )  # fmt: skip
    assert code == 0, error
    assert "Read as comparisons: model_a against model_b, outcome in winner" in error
    assert "kind: code" in output
    with (tmp_path / "board.csv").open() as file:
        ratings = {row["item"]: float(row["rating"]) for row in csv.DictReader(file)}
    assert ratings["y"] == 1000.0
    votes = load_comparisons(path, weight="n", cluster="voter")
    model = RankAggregator(ties="davidson", prior=0.5).fit(votes)
    expected = model.ratings(anchor=("y", 1000.0))
    assert ratings == pytest.approx(dict(zip(expected.items, expected.ratings.tolist(), strict=True)))
    text = board.read_text()
    shown = re.findall(r"<td[^>]*>([xyz])</td>.*?</svg></td><td[^>]*>(\d+) . (\d+)</td>", text)[:3]
    with (tmp_path / "board.csv").open() as file:
        assert shown == [(row["item"], row["rank_low"], row["rank_high"]) for row in csv.DictReader(file)]
    for part in ('role="tab">code<', "Head to head", "tie parameter delta", 'class="table interactive"'):
        assert part in text
    for option, value in (("--anchor", "y"), ("--scale", "big"), ("--features", "=a")):
        code, _, error = plackett("aggregate", path, "--ties", "half", option, value)
        assert code == 2
        assert "expected" in error


def test_board_shows_voters_and_covariates(plackett: Any, tmp_path: Path) -> None:
    path, board = tmp_path / "games.csv", tmp_path / "board.html"
    rng = np.random.default_rng(0)
    rows = ["home,away,home_goals,away_goals,judge,derby"]
    for game in range(120):
        home, away = rng.choice(4, 2, replace=False)
        goals = rng.poisson(1.0 + 0.4 * np.array([home, away]))
        rows.append(f"team {home},team {away},{goals[0]},{goals[1]},judge {game % 5},{rng.random():.3f}")
    path.write_text("\n".join(rows) + "\n")
    code, _, error = plackett(
        "aggregate", path, "--left", "home", "--right", "away", "--winner", "home_goals,away_goals", "--ties", "half",
        "--cluster", "judge", "--voters", "reliability", "--features", "derby", "--prior", 0.5, "--report", board,
    )  # fmt: skip
    assert code == 0, error
    text = board.read_text()
    for part in ("Voters", "judge 3", "reliability", "Ties and covariates", "derby"):
        assert part in text


def test_board_can_be_sorted_searched_and_switched(plackett: Any, tmp_path: Path) -> None:
    path, page = tmp_path / "votes.csv", tmp_path / "board.html"
    path.write_text(VOTES)
    options = ["--ties", "half", "--weight", "n", "--by", "kind", "--prior", 0.5, "--report", page]
    assert plackett("aggregate", path, *options)[0] == 0
    with Browser(tmp_path / "profile") as browser:
        for width, phone in ((1200, False), (390, True)):
            browser.resize(width, phone=phone)
            browser.open(page)
            items = "[...document.querySelectorAll('.interactive tbody tr')].filter(r => r.offsetParent && !r.hidden)"
            shown = f"{items}.map(r => r.cells[1].textContent)"
            before = browser.run(shown)
            assert sorted(before) == ["x", "y", "z"]
            browser.run("document.querySelectorAll('.interactive .sort')[1].click()")
            assert browser.run(shown) == ["x", "y", "z"]
            browser.run("document.querySelectorAll('.interactive .sort')[1].click()")
            assert browser.run(shown) == ["z", "y", "x"]
            search = "(i => { i.value = 'y'; i.dispatchEvent(new Event('input')); })(document.querySelector('input'))"
            browser.run(search)
            assert browser.run(shown) == ["y"]
            browser.run("document.querySelectorAll('[role=tab]')[1].click()")
            assert browser.run("document.querySelectorAll('[role=tabpanel]')[0].hidden")
            assert sorted(browser.run(shown)) == ["x", "y", "z"]
            assert browser.run("document.documentElement.scrollWidth") <= width  # nothing beyond the edge of a phone


def test_rankings_in_places_with_semicolons_are_read(plackett: Any, tmp_path: Path) -> None:
    path = tmp_path / "choices.csv"
    path.write_text("1st choice;2nd choice;3rd choice\nAda;Bob;Eve\nBob;Ada;Eve\nEve;Ada;Bob\nBob;Eve;Ada\n")
    code, output, error = plackett("aggregate", path, "--json")
    assert code == 0, error
    assert sorted(row["item"] for row in json.loads(output)["items"]) == ["Ada", "Bob", "Eve"]
    path.write_text("place1|place2|votes\nAda/Bob|Eve|2\nBob|Eve|1\nEve|Bob|1\nEve|Ada|1\n")
    code, output, error = plackett(
        "aggregate", path, "--delimiter", "|", "--tie", "/", "--weight", "votes", "--items", "place*", "--json"
    )
    assert code == 0, error
    assert json.loads(output)["ballots"] == 5.0


def test_graphs_of_preferences_are_fitted_as_graphs_tiers_or_pairs(plackett: Any, tmp_path: Path) -> None:
    path = tmp_path / "edges.csv"
    lists = {1: "ab ac bd", 2: "ba bc", 3: "cb dc", 4: "da db", 5: "bd ad"}
    rows = [f"{number},{x},{y}" for number, pairs in lists.items() for x, y in pairs.split()]
    path.write_text("\n".join(["list,better,worse", *rows]) + "\n")
    found = {}
    for method in ("graph", "tiers", "pairs"):
        code, output, error = plackett("aggregate", path, "--method", method, "--json")
        assert code == 0, error
        found[method] = json.loads(output)
    default = json.loads(plackett("aggregate", path, "--json", "--report", tmp_path / "page.html")[1])
    assert default == found["graph"]
    graphs = load_preference_graphs(path)
    worths = dict(zip("abcd", RankAggregator().fit(graphs).worths_, strict=True))
    for row in default["items"]:
        assert row["worth"] == pytest.approx(worths[row["item"]])
    assert found["graph"] != found["pairs"]
    for arguments, message in (
        (("--method", "best"), "must be graph, tiers or pairs"),
        (("--method", "graph", "--edges"), "cannot be combined"),
    ):
        code, _, error = plackett("aggregate", path, *arguments)
        assert code != 0
        assert message in " ".join(error.split())
    path.write_text("list,better,worse\n1,a,b\n1,b,a\n1,b,c\n2,c,a\n2,a,b\n")
    code, _, error = plackett("aggregate", path)
    assert code != 0
    assert "--merge-cycles ties the items of a cycle" in " ".join(error.split())
    code, output, error = plackett("aggregate", path, "--merge-cycles", "--json")
    assert code == 0, error
    assert len(json.loads(output)["items"]) == 3
    path.write_text("winner,loser\na,b\n")
    code, _, error = plackett("aggregate", path, "--merge-cycles")
    assert code != 0
    assert "--merge-cycles is for a file" in " ".join(error.split())
    code, _, error = plackett("aggregate", path, "--method", "graph")
    assert code != 0
    assert "must name the columns list, better and worse" in " ".join(error.split())
