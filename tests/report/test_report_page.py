"""Report pages: the content of the file, and how a real browser renders it."""

import base64
import hashlib
import json
import math
import re
import warnings
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Browser
from command_line import run
from hypothesis import given
from hypothesis import strategies as st

import plackett.data
from plackett import BoostedRanker, ExtremeClassifier, LinearRanker, NeuralRanker, RankAggregator
from plackett.data import dump_letor, load_letor, make_graded_lists, make_multilabel
from plackett.data.text import CONTROL, visible
from plackett.evaluation import compare_systems, evaluate
from plackett.report import (
    Reproduced,
    aggregation_page,
    evaluation_page,
    render_page,
    reproduction_page,
    reproduction_table,
    training_page,
    write_page,
)
from plackett.report.page import (
    Axis,
    Column,
    Command,
    Histogram,
    ItemPlot,
    KeyValues,
    LinePlot,
    Page,
    Section,
    Series,
    Table,
)

DASH, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"
HOSTILE = "</script><img src=x onerror=alert(1)>\"'&<!--"


class Read(HTMLParser):
    """The elements of a page with their texts, read by an independent parser."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "img"):
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts[self._open[-1]][-1] += data

    @property
    def plots(self) -> list[dict[str, Any]]:
        return list(json.loads(self.texts["script"][0]))


def read(*blocks: Any) -> Read:
    return Read(render_page(Page("page", [Section("section", list(blocks))])))


def line(*series: Series, **options: Any) -> LinePlot:
    return LinePlot(series, Axis("x"), Axis("y"), **options)


# The file


def test_hostile_names_are_only_text() -> None:
    everywhere = [
        Table([HOSTILE, Column(HOSTILE, HOSTILE)], [[HOSTILE, 1.0]], HOSTILE),
        LinePlot([Series(HOSTILE, [1.0])], Axis(HOSTILE, HOSTILE), Axis("y", reference=(1.0, HOSTILE)), HOSTILE),
        ItemPlot([HOSTILE], [Series(HOSTILE, [1.0])], Axis(HOSTILE), HOSTILE),
        Histogram([1.0], Axis(HOSTILE), count_title=HOSTILE, caption=HOSTILE),
        KeyValues({HOSTILE: HOSTILE}),
        Command(HOSTILE),
    ]
    found = Read(render_page(Page(HOSTILE, [Section(HOSTILE, everywhere, HOSTILE)], HOSTILE)))
    assert {tag for tag, _ in found.tags}.isdisjoint({"img", "iframe", "object"})
    assert sum(tag == "script" for tag, _ in found.tags) == 2
    assert not any(name.startswith("on") for _, attributes in found.tags for name in attributes)
    for tag in ("title", "h1", "h2", "p", "th", "td", "figcaption", "dt", "dd", "code"):
        assert HOSTILE in found.texts[tag], tag
    assert found.plots[0]["series"][0]["name"] == found.plots[1]["items"][0] == HOSTILE


def test_policy_allows_only_the_own_script_and_style() -> None:
    found = read(Command("run"))
    policy = next(a["content"] for _, a in found.tags if a.get("http-equiv") == "Content-Security-Policy") or ""
    rules = dict(rule.split(maxsplit=1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    for kind, text in (("script-src", found.texts["script"][1]), ("style-src", found.texts["style"][0])):
        digest = hashlib.sha256(text.encode()).digest()
        assert rules[kind] == f"'sha256-{base64.b64encode(digest).decode()}'"
    addresses = set(re.findall(r"\w+://[^\s\"']+", render_page(Page("page", []))))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the SVG namespace, never fetched
    loaded = {a.get("src") or a.get("href") for tag, a in found.tags if tag in ("script", "link", "img")} - {None}
    assert loaded == {"data:,"}


def test_cells_are_formatted() -> None:
    cells = [
        ("text", "text"), (True, "yes"), (np.bool_(False), "no"), (Path("a/b"), "a/b"),
        (None, DASH), (math.nan, DASH), (math.inf, "∞"), (-math.inf, f"{MINUS}∞"),
        (1234567, "1,234,567"), (np.int64(7), "7"), (-0.123456, f"{MINUS}0.1235"), (np.float32(0.5), "0.5000"),
        ((0.5, 2.25), f"0.5000 {DASH} 2.250"), ((math.nan, math.nan), DASH), ((1, None), f"1 {DASH} {DASH}"),
    ]  # fmt: skip
    found = read(Table(["cell"], [[value] for value, _ in cells]))
    assert found.texts["td"] == [text for _, text in cells]
    formatted = read(Table([Column("a", "%", "+.1f"), Column("b", format=".0%")], [[1.25, 0.5]]))
    assert formatted.texts["td"] == ["+1.2", "50%"]
    assert formatted.texts["span"] == ["%"]


def test_numbers_are_right_aligned() -> None:
    found = read(Table(["name", "mixed", "number", "interval", "flag"], [["a", 1, 2.0, (1.0, 2.0), True],
                                                                      ["b", "c", None, None, False]]))  # fmt: skip
    kinds = [attributes.get("class") for tag, attributes in found.tags if tag == "td"]
    assert kinds == ["short", "short", "number", "number", "short"] * 2


def test_facts_are_formatted() -> None:
    found = read(KeyValues({"none": None, "flag": True, "count": 12345, "rate": 1e-6, "list": [1, 2], 3: 0.1}))
    assert found.texts["dd"] == [DASH, "yes", "12,345", "1e-06", "[1, 2]", "0.1"]
    assert found.texts["dt"][-1] == "3"


def test_missing_numbers_are_gaps_in_plots() -> None:
    series = Series("a", np.array([1.0, np.nan, np.inf, 4.0]), low=[0.5, None, 1, -np.inf], high=[2.0, None, 1, 5.0])
    plot = read(line(series, Series("empty", []))).plots[0]
    assert plot["series"][0] == {
        "name": "a", "style": 0, "x": [1, 2, 3, 4], "y": [1, None, None, 4],
        "low": [0.5, None, 1, None], "high": [2, None, 1, 5],
    }  # fmt: skip
    assert plot["series"][1] == {"name": "empty", "style": 1, "x": [], "y": []}
    unknown = LinePlot([], Axis("x", "s", log=True, reference=(math.nan, "?")), Axis("y"))
    assert read(unknown).plots[0]["x"] == {"title": "x (s)", "log": True, "reference": {"value": None, "text": "?"}}


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=30))
def test_any_numbers_become_json_to_seven_digits(values: list[float]) -> None:
    kept = read(line(Series("a", values))).plots[0]["series"][0]["y"]
    for value, found in zip(values, kept, strict=True):
        if math.isfinite(value):
            assert found == pytest.approx(value, rel=6e-7)  # the digits that files keep, see html.py
        else:
            assert found is None


@given(st.text(), st.text())
def test_any_text_round_trips(title: str, name: str) -> None:
    html = render_page(Page(title, [Section("s", [ItemPlot([name], [Series("a", [1.0])], Axis("x"))])]))
    plots = re.search(r'<script type="application/json" id="plots">(.*?)</script>', html, re.DOTALL)
    assert plots is not None
    assert json.loads(plots[1])[0]["items"] == [visible(name)]
    assert not CONTROL.search(html)


def test_histograms_count_every_finite_value(rng: np.random.Generator) -> None:
    values = np.concatenate([rng.random(500), [np.nan, np.inf, 0.0, 1.0]])
    plot = read(Histogram(values, Axis("x"), bins=10, span=(0.0, 1.0))).plots[0]
    assert plot["counts"] == [
        int(sum(low <= v < high or v == high == 1.0 for v in values))
        for low, high in zip(plot["edges"], plot["edges"][1:], strict=False)
    ]
    assert sum(plot["counts"]) == 502
    assert sum(read(Histogram([], Axis("x"))).plots[0]["counts"]) == 0


def test_blank_lines_separate_paragraphs() -> None:
    found = Read(render_page(Page("t", [Section("s", (), "one\n\ntwo < 3\n\n")], "summary")))
    assert found.texts["p"] == ["summary", "one", "two < 3"]


def test_huge_tables_are_rendered() -> None:
    found = read(Table(["a", "b"], [[f"row {i}", i / 7] for i in range(20_000)]))
    assert len(found.texts["td"]) == 40_000
    assert found.texts["td"][-1] == "2857."  # 19999 / 7


def test_the_same_page_gives_the_same_bytes() -> None:
    assert render_page(everything()) == render_page(everything())


def test_writing_is_atomic(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_page(Page("é \udcff", []), path)  # an undecodable file name is shown as well as possible
    assert "<h1>é ?</h1>" in path.read_text("utf-8")
    with pytest.raises(AttributeError):
        write_page(Page("t", [Section("s", ["no block"])]), path)  # type: ignore[list-item]
    assert "<h1>é ?</h1>" in path.read_text("utf-8")
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Table(["a"], [[1], [1, 2]]), "row 1 must hold one value for each of the 1 columns, got 2"),
        (lambda: Series("s", [1, 2], [1]), "x of series 's' must hold one value for each of the 2 values of y, got 1"),
        (lambda: Series("s", [1], low=[0]), "low and high of series 's' must be given together"),
        (lambda: ItemPlot(["a"], [Series("s", [1, 2])], Axis("x")), "series 's' must hold one value for each of the 1"),
        (lambda: ItemPlot(["a"], [Series("s", [1], [1])], Axis("x")), "x of series 's' must be None in a plot by item"),
        (lambda: Histogram([1], Axis("x"), bins=0), "bins must be at least 1, got 0"),
    ],
)
def test_inconsistent_blocks_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make()


# Pages of runs


@pytest.fixture(scope="module")
def lists() -> dict[str, Any]:
    data = make_graded_lists(60, mean_length=10, n_features=8, random_state=0)[0]
    return {"train": data.select(range(30)), "valid": data.select(range(30, 60))}


def page_of(model: Any, parts: dict[str, Any], **options: Any) -> Page:
    results = {
        name: evaluate(part, {"m": model.predict_data(part)}, ["err", "ndcg@10"]) for name, part in parts.items()
    }
    return training_page(model, parts, results, **options)


def block(page: Page, section: str, kind: type) -> Any:
    return next(b for s in page.sections if s.title == section for b in s.blocks if isinstance(b, kind))


@pytest.fixture(scope="module")
def boosted(lists: dict[str, Any]) -> BoostedRanker:
    model = BoostedRanker(
        n_estimators=8, early_stopping_rounds=8, num_leaves=4, random_state=0, n_jobs=1, progress=False
    )
    return model.fit(lists["train"], eval_set=lists["valid"])


def test_page_of_boosted_trees_has_all_sections(lists: dict[str, Any], boosted: BoostedRanker, tmp_path: Path) -> None:
    file = tmp_path / "train.txt"
    dump_letor(lists["train"], file)
    page = page_of(boosted, lists, files={"train": file}, command="plackett train")
    curve = block(page, "Training", LinePlot)
    assert [(s.name, list(s.y)) for s in curve.series] == [("valid", boosted.evals_result_["valid"]["ndcg@10"])]
    assert curve.x.reference == (boosted.best_iteration_, "best")
    model = BoostedRanker(n_estimators=3, num_leaves=4, random_state=0, n_jobs=1, progress=False)
    model.fit(lists["train"], eval_set=lists["valid"], init_model=boosted)
    first = boosted.booster_.current_iteration() + 1
    assert list(block(page_of(model, lists), "Training", LinePlot).series[0].x) == [first, first + 1, first + 2]
    importances = block(page, "Feature importances", ItemPlot)
    assert importances.items[0] == f"feature {np.argmax(boosted.feature_importances_)}"
    np.testing.assert_array_equal(importances.series[0].y, np.sort(boosted.feature_importances_)[::-1])
    facts = block(page, "Data", KeyValues).values
    assert facts["train: SHA-256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert facts["valid"] == repr(lists["valid"])
    assert block(page, "Configuration", KeyValues).values["num_leaves"] == 4
    assert block(page, "Versions", KeyValues).values["numpy"] == np.__version__
    assert block(page, "Command", Command).text == "plackett train"
    metrics = block(page, "Metrics", Table)
    assert [column if isinstance(column, str) else column.title for column in metrics.columns] == [
        "metric", "valid", "95% interval", "train", "95% interval",
    ]  # fmt: skip
    assert [row[0] for row in metrics.rows] == ["ERR", "NDCG@10"]
    assert metrics.rows[1][1] == pytest.approx(boosted.score(lists["valid"]))
    assert metrics.rows[1][3] == pytest.approx(boosted.score(lists["train"]))
    assert [section.title for section in page.sections if section.fold] == ["Configuration", "Data", "Versions"]
    render_page(page)


def test_best_and_worst_lists_are_shown(lists: dict[str, Any], boosted: BoostedRanker) -> None:
    page = page_of(boosted, lists)
    valid = lists["valid"]
    worst, best = (b for s in page.sections if s.title == "NDCG@10 by query" for b in s.blocks if isinstance(b, Table))
    scores = boosted.predict_data(valid)
    for row in (*worst.rows, *best.rows):
        mine = valid.qid.astype(str) == row[0]
        assert row[1] == mine.sum()
        assert row[2] == pytest.approx(plackett.metrics.ndcg(scores[mine], valid.y[mine], k=10), abs=1e-12)
    values = plackett.metrics.ndcg(scores, valid.y, k=10, offsets=valid.offsets, reduction="none")
    known = np.sort(values[~np.isnan(values)])
    np.testing.assert_allclose([row[2] for row in worst.rows], known[:10], rtol=0, atol=1e-12)
    np.testing.assert_allclose([row[2] for row in best.rows], known[::-1][:10], rtol=0, atol=1e-12)
    spread = block(page, "NDCG@10 by query", Histogram)
    assert spread.axis.reference[0] == pytest.approx(known.mean(), abs=1e-12)
    assert f"{known.mean():.4f}" in page.summary


def test_features_are_numbered_as_in_the_file(lists: dict[str, Any], tmp_path: Path) -> None:
    dump_letor(lists["train"], tmp_path / "train.txt")
    letor = load_letor(tmp_path / "train.txt")
    model = LinearRanker().fit(letor)
    best = int(np.argmax(np.abs(model.coef_)))
    assert block(page_of(model, {"train": letor}), "Coefficients", ItemPlot).items[0] == f"feature {best + 1}"
    assert str(model.summary()).splitlines()[1].split()[0] == "1"
    model.save(tmp_path / "model")
    assert LinearRanker.load(tmp_path / "model").feature_labels() == [str(k) for k in range(1, 9)]
    in_memory = LinearRanker().fit(lists["train"])
    assert in_memory.feature_labels() == [str(k) for k in range(8)]
    assert letor.select([0]).first_feature == 1


def test_page_of_an_evaluation_compares_systems(lists: dict[str, Any]) -> None:
    data = lists["valid"]
    scores = {"first": data.X[:, 0], "second": data.X[:, 1]}
    results = evaluate(data, scores, ["ndcg@10", "map"])
    page = evaluation_page(data, results, compare_systems(results), command="plackett evaluate")
    grid = block(page, "Metrics", Table)
    assert [row[0] for row in grid.rows] == ["NDCG@10", "MAP"]
    assert grid.rows[0][3] == pytest.approx(plackett.metrics.ndcg(scores["second"], data.y, k=10, offsets=data.offsets))
    tests = block(page, "Paired tests", Table)
    assert [row[:3] for row in tests.rows] == [["NDCG@10", "second", "first"], ["MAP", "second", "first"]]
    assert tests.rows[0][3] == pytest.approx(grid.rows[0][3] - grid.rows[0][1])
    assert "Lists: first 30" in grid.caption
    assert f"{grid.rows[0][1]:.4f}" in page.summary
    render_page(page)


def test_page_of_a_linear_model_has_coefficients(lists: dict[str, Any]) -> None:
    model = LinearRanker().fit(lists["train"], eval_set=lists["valid"])
    page = page_of(model, lists)
    assert "Training" not in [section.title for section in page.sections]  # no rounds, no curves
    plot = block(page, "Coefficients", ItemPlot)
    order = np.argsort(-np.abs(model.coef_), kind="stable")
    np.testing.assert_array_equal(plot.series[0].y, model.coef_[order])
    np.testing.assert_array_equal(np.column_stack((plot.series[0].low, plot.series[0].high)),
                                  model.confidence_intervals()[order])  # fmt: skip


def test_page_of_networks_has_curves(lists: dict[str, Any]) -> None:
    model = NeuralRanker(hidden_sizes=[2], epochs=3, learning_rate=[0.01, 0.1], random_state=0, progress=False)
    model.fit(lists["train"], eval_set=lists["valid"])
    page = page_of(model, lists)
    plots = [b for s in page.sections if s.title == "Training" for b in s.blocks]
    assert [plot.y.title for plot in plots] == ["training loss", "NDCG@10"]
    assert [s.name for s in plots[0].series] == ["learning rate 0.01", "learning rate 0.1"]
    losses = [value for series in plots[0].series for value in series.y]
    assert losses == model.history_["loss"]
    assert not any(section.title in ("Coefficients", "Feature importances") for section in page.sections)


def test_page_of_labels_has_rows() -> None:
    data = make_multilabel(60, 50, 20, labels_per_row=2, features_per_row=5, random_state=0)
    model = ExtremeClassifier(epochs=1, random_state=0, progress=False).fit(data)
    results = {"train": evaluate(data, {"m": model.predict_top(data.X, 5)[0]}, ["p@1", "p@3"])}
    page = training_page(model, {"train": data}, results)
    table = block(page, "p@1 by row", Table)
    assert [row[1] for row in table.rows] == [np.diff(data.Y.indptr)[int(row[0])] for row in table.rows]


def test_parts_of_data_and_results_must_agree(lists: dict[str, Any], boosted: BoostedRanker) -> None:
    with pytest.raises(ValueError, match="data and results must have the same parts"):
        training_page(boosted, lists, {})


@pytest.fixture(scope="module")
def aggregator() -> RankAggregator:
    rng = np.random.default_rng(0)
    votes = [[f"item {i}" for i in np.argsort(-(np.arange(6) / 2 + rng.gumbel(size=6)))] for _ in range(40)]
    return RankAggregator().fit(votes)


def test_page_of_an_aggregation_has_all_sections(aggregator: RankAggregator) -> None:
    page = aggregation_page(aggregator, aggregator.summary(confidence=0.9), command="plackett aggregate")
    worths, ranks = page.sections[0].blocks
    order = np.argsort(-aggregator.scores_)
    assert worths.items == [aggregator.items_[i] for i in order]
    np.testing.assert_array_equal(worths.series[0].y, aggregator.worths_[order])
    np.testing.assert_array_equal(worths.series[0].low, aggregator.worth_intervals(0.9).low[order])
    np.testing.assert_array_equal(ranks.series[0].y, np.arange(1, 7))
    np.testing.assert_array_equal(ranks.series[0].high, aggregator.rank_intervals(0.9, random_state=0).high[order])
    assert "90% interval" in worths.axis.title
    table = block(page, "Items", Table)
    np.testing.assert_array_equal([row[-1] for row in table.rows], aggregator.quasi_variances().variances[order])
    facts = block(page, "Fit", KeyValues).values
    assert (facts["AIC"], facts["log-likelihood"]) == (aggregator.aic_, aggregator.log_likelihood_)
    render_page(page)


def test_page_of_a_reproduction_has_all_sections() -> None:
    rows = [Reproduced(["D-1K", "P@1"], 67.1, 66.8, 0.2), Reproduced(["E-4K", "P@1"], 80.0, None)]
    table = reproduction_table(["data", "metric"], rows, form=".2f", unit="%")
    found = read(table)
    assert found.texts["td"] == ["D-1K", "P@1", "67.10", "66.80", f"{MINUS}0.30", "0.20",
                                 "E-4K", "P@1", "80.00", DASH, DASH, DASH]  # fmt: skip
    assert [text.strip() for text in found.texts["th"]][2:] == ["paper", "ours", "difference", "standard error"]
    page = reproduction_page(
        "Table 1", table, [Section("More")], configuration={"seeds": 5}, command="plackett reproduce"
    )
    titles = [section.title for section in page.sections]
    assert titles == ["Comparison with the paper", "More", "Configuration", "Versions", "Command"]


# The command line


def test_train_writes_a_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lists: dict[str, Any], tmp_path: Path
) -> None:
    for name, part in lists.items():
        dump_letor(part, tmp_path / f"{name}.txt")
    arguments = ["train", tmp_path / "train.txt", "--valid", tmp_path / "valid.txt", "-o", tmp_path / "model",
                 "-p", "n_estimators=5", "-p", "num_leaves=4", "-p", "n_jobs=1"]  # fmt: skip
    code, _, error = run(monkeypatch, capsys, *arguments, "--report", tmp_path / "my run.html")
    assert code == 0, error
    found = Read((tmp_path / "my run.html").read_text("utf-8"))
    assert {plot["kind"] for plot in found.plots} == {"lines", "items", "histogram"}
    assert found.texts["code"][0].startswith("plackett train ")
    assert found.texts["code"][0].endswith("/my run.html'")  # quoted for the shell
    assert hashlib.sha256((tmp_path / "valid.txt").read_bytes()).hexdigest() in found.texts["dd"]
    code, _, error = run(monkeypatch, capsys, *arguments, "--report", tmp_path / "nowhere" / "run.html")
    assert code == 2
    assert "does not exist" in error


def test_aggregate_writes_a_page(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ballots = tmp_path / "ballots.csv"
    ballots.write_text("winner,loser\nale,beer\nbeer,ale\nale,cider\ncider,ale\nale,beer\n")
    page = tmp_path / "page.html"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code, _, error = run(monkeypatch, capsys, "aggregate", ballots, "--edges", "--report", page)
    assert code == 0, error
    found = Read(page.read_text("utf-8"))
    assert sorted(found.plots[0]["items"]) == ["ale", "beer", "cider"]
    assert hashlib.sha256(ballots.read_bytes()).hexdigest() in found.texts["dd"]


# The browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def everything() -> Page:
    """All kinds of blocks, with names and numbers meant to break them."""
    rng = np.random.default_rng(0)
    sizes = [100, 1000, 10_000, 100_000]
    methods = [
        Series(name, y := f / np.sqrt(sizes), sizes, low=0.8 * y, high=1.2 * y)
        for name, f in (("PL-Partition", 1.0), ("PL-LB", 3.0), (HOSTILE, 8.0))
    ]
    epochs = np.arange(1, 5001)
    noisy = Series("noisy", np.sin(epochs / 500) + 0.1 * rng.normal(size=5000), epochs)
    gaps = Series("gaps", [1.0, None, 3.0, math.nan, 5.0, 6.0], low=[None] * 6, high=[None] * 6)
    items = [f"item {i} {'of a long name ' * (i % 5)}" for i in range(80)]
    worths = np.exp(-np.arange(80) / 15)
    plots = [
        LinePlot(methods, Axis("items", "N", log=True), Axis("error", "nats²", log=True), "figure", error_bars=True),
        LinePlot([noisy], Axis("epoch", reference=(700, "best")), Axis("value", reference=(0.5, "paper")), "noisy"),
        LinePlot([gaps, Series("empty", [])], Axis("x"), Axis("y"), "gaps"),
        LinePlot([], Axis("x"), Axis("y"), "nothing"),
        ItemPlot(items, [Series("worth", worths, low=worths / 2, high=2 * worths)], Axis("worth", log=True), "worths"),
        ItemPlot(["a", HOSTILE], [Series("p", [1, -2]), Series("q", [None, 3])], Axis("gain"), "bars", bars=True),
        Histogram(rng.beta(3, 2, 500), Axis("NDCG@10", reference=(0.98, "upper bound")), span=(0, 1), caption="spread"),
        LinePlot([Series("one", [5.0])], Axis("x"), Axis("y"), "a point"),
        LinePlot([Series("from zero", [0.0, 1.0, 100.0])], Axis("x"), Axis("y", log=True), "no logarithm of zero"),
    ]
    table = Table(["item", *"abcdefgh"], [[HOSTILE, *rng.random(8)] for _ in range(200)], "a caption " * 20)
    facts = KeyValues({"word": "w" * 300, HOSTILE: HOSTILE})
    blocks = [table, facts, Command("plackett train " + "x" * 300)]
    folded = Section("Facts", [KeyValues({"threads": 2})], fold=True)
    sections = [Section("Plots", plots), Section("Others", blocks, "text " * 100), folded]
    return Page("Everything & more", sections, HOSTILE)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "everything.html"
    write_page(everything(), path)
    return path


@pytest.fixture
def opened(browser: Browser, page: Path) -> Browser:
    browser.resize(1000)
    browser.media()
    browser.move_to(0, 0)
    browser.open(page)
    browser.run("0")
    return browser


def figure(number: int) -> str:
    return f"document.querySelectorAll('figure.plot')[{number}]"


def box(browser: Browser, element: str) -> tuple[float, float, float, float]:
    """Left, top, width and height in the window, after scrolling to the element."""
    found = browser.run(f"({element}.scrollIntoView({{block: 'center'}}), {element}.getBoundingClientRect().toJSON())")
    return found["x"], found["y"], found["width"], found["height"]


def click(browser: Browser, element: str) -> None:
    x, y, width, height = box(browser, element)
    browser.click(x + width / 2, y + height / 2)


def troubles(browser: Browser) -> list[Any]:
    """Errors, warnings and other console messages of the page."""
    message_events = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
    return [event["params"] for event in browser.events if event["method"] in message_events]


def test_page_opens_without_errors_or_requests(opened: Browser, page: Path) -> None:
    assert troubles(opened) == []
    asked = [e["params"]["request"]["url"] for e in opened.events if e["method"] == "Network.requestWillBeSent"]
    assert [url for url in asked if not url.startswith("data:")] == [page.as_uri()]
    assert opened.run("document.title") == "Everything & more"
    assert opened.run("document.querySelectorAll('img').length") == 0
    assert opened.run("document.querySelector('main p').textContent") == HOSTILE


def test_policy_blocks_injected_scripts_and_requests(opened: Browser) -> None:
    """Shows that the checks above can fail: an added script, handler and request only cause policy errors."""
    opened.run("""(() => {
        const script = document.createElement("script");
        script.textContent = "window.intruder = 1";
        const image = document.createElement("img");
        image.setAttribute("onerror", "window.intruder = 2");
        image.src = "http://127.0.0.1:9/x.png";
        document.body.append(script, image);
    })()""")
    assert opened.run("typeof window.intruder") == "undefined"
    assert sum("Content Security Policy" in str(trouble) for trouble in troubles(opened)) >= 2


def test_plots_draw_inside_their_frames(opened: Browser) -> None:
    found = opened.run("""[...document.querySelectorAll("figure.plot > svg")].map(svg => {
        const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
        const marks = [...svg.querySelectorAll(".line, .marker, .bar, .interval, .band")].map(mark => mark.getBBox());
        const texts = [...svg.querySelectorAll("text")].map(text => text.getBBox());
        const inside = b => b.x >= -1 && b.y >= -1 && b.x + b.width <= width + 1 && b.y + b.height <= height + 1;
        return {width, shown: svg.getBoundingClientRect().width, marks: marks.length, texts: texts.length,
                size: Math.max(0, ...marks.map(b => Math.max(b.width, b.height))),
                inside: [...marks, ...texts].every(inside)};
    })""")
    assert len(found) == 9
    assert all(plot["inside"] for plot in found)
    assert all(plot["width"] == pytest.approx(plot["shown"], abs=1.0) for plot in found)  # pixels
    assert all(plot["texts"] > 3 for plot in found)
    assert [plot["marks"] > 0 for plot in found] == [True, True, True, False, True, True, True, True, True]
    assert [plot["size"] > 200 for plot in found] == [True, True, True, False, True, True, True, False, True]


@pytest.mark.parametrize("width", [360, 1000])
def test_labels_do_not_overlap(opened: Browser, width: int) -> None:
    opened.resize(width)
    assert (
        opened.run("""[...document.querySelectorAll("figure.plot > svg")].flatMap(svg =>
        ["x", "y"].flatMap(axis => {
            const boxes = [...svg.querySelectorAll(`.tick.${axis}`)].map(text => text.getBoundingClientRect());
            return boxes.flatMap((a, i) => boxes.slice(i + 1).filter(b =>
                a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom).map(b => [axis, a, b]));
        }))""")
        == []
    )


def test_points_match_the_axes(opened: Browser) -> None:
    """The marks of a line, read back using the tick labels, are its values."""
    places = opened.run(f"""(() => {{
        const svg = {figure(0)}.querySelector(":scope > svg");
        const place = axis => [...svg.querySelectorAll(`.tick.${{axis}}`)].map(text =>
            [Number(text.textContent.replace(",", "")), Number(text.getAttribute(axis))]);
        const line = svg.querySelector(".s0 .line").getAttribute("d").slice(1).split("L");
        return {{x: place("x"), y: place("y"), line: line.map(point => point.split(",").map(Number))}};
    }})()""")
    for axis, values in ((0, [100, 1000, 10_000, 100_000]), (1, 1 / np.sqrt([100, 1000, 10_000, 100_000]))):
        (first, a), (last, b) = places["xy"[axis]][0], places["xy"[axis]][-1]
        share = (np.array(places["line"])[:, axis] - a) / (b - a)
        found = np.log(first) + share * (np.log(last) - np.log(first))
        np.testing.assert_allclose(found, np.log(values), atol=0.01)  # coordinates are kept to a tenth of a pixel


def test_legend_hides_and_shows_a_series(opened: Browser) -> None:
    button = f"{figure(0)}.querySelectorAll('.series')[1]"
    lines = f"[...{figure(0)}.querySelectorAll('svg g[class] .line')].map(l => l.parentNode.getAttribute('class'))"
    assert opened.run(f"{button}.textContent") == "PL-LB"
    assert opened.run(lines) == ["s0", "s1", "s2"]
    click(opened, button)
    assert opened.run(lines) == ["s0", "s2"]
    assert opened.run(f"{button}.getAttribute('aria-pressed')") == "false"
    click(opened, button)
    assert opened.run(lines) == ["s0", "s1", "s2"]
    assert opened.run(f"{figure(1)}.querySelectorAll('.series').length") == 0  # one line needs no legend
    for number in range(3):
        click(opened, f"{figure(0)}.querySelectorAll('.series')[{number}]")
    assert opened.run(lines) == []
    assert troubles(opened) == []


def test_axes_switch_between_linear_and_logarithmic(opened: Browser) -> None:
    ticks = f"[...{figure(0)}.querySelectorAll('.tick.x')].map(t => Number(t.textContent.replace(',', '')))"
    switch = f"[...{figure(0)}.querySelectorAll('.switch')].find(b => b.textContent === 'log x')"
    logarithmic = opened.run(ticks)
    click(opened, switch)
    linear = opened.run(ticks)
    assert opened.run(f"{switch}.getAttribute('aria-pressed')") == "false"
    assert np.ptp(np.diff(linear)) == pytest.approx(0.0, abs=1e-6)  # even steps
    assert np.diff(logarithmic)[-1] > 100 * np.diff(logarithmic)[0]
    click(opened, switch)
    assert opened.run(ticks) == logarithmic
    offered = opened.run("[...document.querySelectorAll('figure.plot')].map(f => [...f.querySelectorAll('.switch')]"
                         ".map(b => b.textContent))")  # fmt: skip
    assert offered[1] == ["log x"]  # y is negative in places
    assert offered[4] == ["log axis", "all 80"]
    assert offered[5] == offered[6] == []
    assert offered[8] == ["log x"]
    assert opened.run(f"{figure(8)}.querySelector('.line').getAttribute('d')").count("L") == 2  # zero is drawn


def test_all_items_are_shown_on_demand(opened: Browser) -> None:
    rows = f"{figure(4)}.querySelectorAll('text.item').length"
    assert opened.run(rows) == 30
    click(opened, f"{figure(4)}.querySelectorAll('.switch')[1]")
    assert opened.run(rows) == 80
    assert opened.run(f"{figure(4)}.querySelector('text.item title').textContent").startswith("item 0")


@pytest.mark.parametrize(
    ("number", "share", "expected"),
    [
        (0, (0.04, 0.5), ["items (N): 100", f"PL-Partition: 0.1 (0.08 {DASH} 0.12)", HOSTILE]),
        (4, (0.5, 0.06), ["item 0", f"1 (0.5 {DASH} 2)"]),
        (5, (0.5, 0.6), [HOSTILE, f"p: {MINUS}2", "q: 3"]),
        (6, (0.62, 0.5), [f"NDCG@10: 0.6 {DASH} 0.65", "count: "]),
        (7, (0.1, 0.1), ["x: 1", "one: 5"]),
    ],
)
def test_pointing_shows_values(opened: Browser, number: int, share: tuple[float, float], expected: list[str]) -> None:
    x, y, width, height = box(opened, f"{figure(number)}.querySelector(':scope > svg')")
    opened.move_to(x + share[0] * width, y + share[1] * height)
    tip = f"{figure(number)}.querySelector('.tip')"
    shown = opened.run(f"{tip}.textContent")
    assert all(text in shown for text in expected), shown
    left, _, tip_width, _ = box(opened, tip)
    assert left >= 0
    assert left + tip_width <= 1000
    opened.move_to(1, 1)
    assert opened.run(f"{tip}.hidden") is True


def test_touch_shows_values(opened: Browser) -> None:
    opened.resize(360, phone=True)
    x, y, width, height = box(opened, f"{figure(0)}.querySelector(':scope > svg')")
    opened.call("Emulation.setTouchEmulationEnabled", enabled=True)
    place = [{"x": x + width * 0.9, "y": y + height / 2}]
    opened.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=place)
    opened.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    assert "items (N): 100,000" in opened.run(f"{figure(0)}.querySelector('.tip').textContent")
    opened.call("Emulation.setTouchEmulationEnabled", enabled=False)


def test_keys_show_values(opened: Browser) -> None:
    opened.run(f"{figure(0)}.querySelector(':scope > svg').focus()")
    tip = f"{figure(0)}.querySelector('.tip')"
    for key, expected in (("ArrowRight", "100"), ("ArrowRight", "1,000"), ("ArrowLeft", "100"), ("ArrowLeft", "100")):
        opened.press(key)
        assert opened.run(f"{tip}.querySelector('strong').textContent") == f"items (N): {expected}"
    opened.press("Escape")
    assert opened.run(f"{tip}.hidden") is True


def test_buttons_are_reachable_and_labelled(opened: Browser) -> None:
    unnamed = opened.run(
        "[...document.querySelectorAll('button')].filter(b => !b.textContent || b.tabIndex < 0).length"
    )
    assert unnamed == 0
    assert opened.run("[...document.querySelectorAll('figure.plot > svg')].every(s => s.tabIndex === 0 && "
                      "s.getAttribute('aria-label'))")  # fmt: skip


@pytest.mark.parametrize("width", [320, 360])
def test_phone_needs_no_horizontal_scrolling(opened: Browser, page: Path, width: int) -> None:
    opened.resize(width, phone=True)
    opened.open(page)
    assert opened.run("document.documentElement.scrollWidth") == width
    assert (
        opened.run("""[...document.querySelectorAll("body *")].filter(e => !e.closest(".table, svg, script, style") &&
        e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))""")
        == []
    )


def test_wide_tables_show_that_they_scroll(opened: Browser, page: Path) -> None:
    opened.resize(360, phone=True)
    opened.open(page)
    table = "document.querySelector('.table')"
    assert opened.run(f"{table}.scrollWidth > {table}.clientWidth")
    assert opened.run(f"getComputedStyle({table}).backgroundImage.split('linear-gradient').length") == 5
    assert opened.run(f"getComputedStyle({table}).backgroundAttachment") == "local, local, scroll, scroll"


def test_facts_are_folded_on_phones_only(opened: Browser, page: Path) -> None:
    fold = "document.querySelector('details')"
    assert opened.run(f"{fold}.open")
    opened.resize(360, phone=True)
    opened.open(page)
    assert not opened.run(f"{fold}.open")
    assert opened.run("document.querySelector('details dd').checkVisibility()") is False
    click(opened, "document.querySelector('summary')")
    assert opened.run("document.querySelector('details dd').checkVisibility()") is True


COLOURS = """(() => {
    const of = (selector, name) => getComputedStyle(document.querySelector(selector))[name];
    return [of("body", "backgroundColor"), of("body", "color"), of("svg .s0 .line", "stroke"), of("svg .tick", "fill")];
})()"""


def test_theme_button_switches_light_and_dark(opened: Browser) -> None:
    light = opened.run(COLOURS)
    opened.media(scheme="dark")
    dark = opened.run(COLOURS)
    assert all(a != b for a, b in zip(light, dark, strict=True))
    assert opened.run("document.getElementById('theme').textContent") == "Light"
    click(opened, "document.getElementById('theme')")
    assert opened.run(COLOURS) == light
    opened.media(scheme="light")
    click(opened, "document.getElementById('theme')")
    assert opened.run(COLOURS) == dark


def test_colours_have_enough_contrast(opened: Browser) -> None:
    """Contrast by WCAG 2: 4.5 for text; 2 for marks, which are large and also differ in shape and dash."""
    for scheme in ("light", "dark"):
        opened.media(scheme=scheme)
        ground, *texts = (
            luminance(c)
            for c in opened.run("""["body", "p", ".axis-title", "a", ".caption", "dt"].map((s, i) =>
            getComputedStyle(document.querySelector(s))[i ? "color" : "backgroundColor"])""")
        )
        marks = opened.run("""[...Array(7).keys()].map(i => {
            const probe = document.body.appendChild(document.createElement("i"));
            probe.style.color = `var(--series-${i})`;
            return getComputedStyle(probe).color;
        })""")
        assert all(contrast(ground, text) >= 4.5 for text in texts)
        assert all(contrast(ground, luminance(mark)) >= 2.0 for mark in marks)


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a: float, b: float) -> float:
    return (max(a, b) + 0.05) / (min(a, b) + 0.05)


def test_print_is_white_without_controls(opened: Browser) -> None:
    light = opened.run(COLOURS)
    opened.run("document.documentElement.dataset.theme = 'dark'")
    click(opened, f"{figure(0)}.querySelectorAll('.series')[1]")
    opened.media(scheme="dark", medium="print")
    assert opened.run(COLOURS) == light
    shown = "[...document.querySelectorAll('button')].filter(b => b.offsetParent).map(b => b.textContent)"
    assert opened.run(f"{shown}.slice(0, 2)") == ["PL-Partition", HOSTILE]  # the legend, without hidden series
    assert opened.run(f"{shown}.filter(t => ['Copy', 'Dark', 'Light', 'log x', 'log y'].includes(t))") == []
    assert opened.run("document.querySelector('.table').scrollHeight <= document.querySelector('.table').clientHeight")
    printed = opened.call("Page.printToPDF")["data"]
    assert len(printed) > 10_000


def copy_button(opened: Browser) -> Any:
    """The label of the button after a click, once the clipboard has answered."""
    click(opened, "document.querySelector('.copy')")
    return opened.run(
        "new Promise(answer => { const look = () => { const text = document.querySelector('.copy').textContent;"
        " text === 'Copy' ? setTimeout(look, 10) : answer(text) }; look() })"
    )


def test_commands_are_copied(opened: Browser) -> None:
    opened.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    assert copy_button(opened) == "Copied"
    assert opened.run("navigator.clipboard.readText()") == "plackett train " + "x" * 300


def test_commands_are_selected_if_there_is_no_clipboard(opened: Browser) -> None:
    opened.run("navigator.clipboard.writeText = () => Promise.reject(new Error('refused'))")
    assert copy_button(opened) == "Selected"
    assert opened.run("getSelection().toString()") == "plackett train " + "x" * 300


def test_run_pages_open_without_errors(
    opened: Browser, lists: dict[str, Any], boosted: BoostedRanker, aggregator: RankAggregator, tmp_path: Path
) -> None:
    for number, made in enumerate((page_of(boosted, lists), aggregation_page(aggregator))):
        path = tmp_path / f"{number}.html"
        write_page(made, path)
        opened.open(path)
        assert troubles(opened) == []
        assert opened.run(
            "[...document.querySelectorAll('figure.plot > svg')].every(s => s.querySelector('.marker, .line, .bar'))"
        )
