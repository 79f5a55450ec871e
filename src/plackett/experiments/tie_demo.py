"""Demonstration: how the treatment of ties changes which item is ranked first.

Search results are simulated from Plackett-Luce with a known score, text match + freshness. Feedback is mixed, as it
often is: editors put the results of reference queries, which differ in text match, in full order; users of news
queries, whose results differ in freshness, only say which eight of twenty results they liked. A treatment of ties that
shrinks what is learned from the news queries makes freshness count for too little, and the wrong result comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.data import RankingData, concatenate
from plackett.estimators import BoostedRanker
from plackett.evaluation import Result, compare_systems, evaluate
from plackett.experiments.tie_bias import TRUTH
from plackett.lists import offsets_from_sizes
from plackett.metrics.comparison import PairedComparisons
from plackett.report.page import Axis, Block, Column, Command, ItemPlot, Page, Section, Series, Table

FEATURES = ("text match", "freshness", "length")
LENGTH = 20
LIKED = 8
_WIDE, _NARROW = 1.5, 0.2  # how much a feature varies in the queries where results differ in it, and elsewhere
_TEST_TIERS = (1, 3, 6, 10)
_CONFIDENCE = 0.95

_TREES: dict[str, Any] = {"n_estimators": 100, "num_leaves": 8, "random_state": 0, "progress": False}
# Labels of full orders are places, whose gains lambdarank needs to be linear; 2^label makes it clearly worse.
_LINEAR_GAINS = {"label_gain": list(range(LENGTH))}
SYSTEMS: Mapping[str, Mapping[str, Any]] = {
    "exact likelihood": {"objective": "partition"},
    "ListMLE": {"objective": "plrank", "n_permutations": 1, "top": LENGTH},
    "lower bound": {"objective": "lower_bound"},
    "lambdarank": {"objective": "lambdarank", "lightgbm_params": _LINEAR_GAINS},
}
"""The same trees on four objectives; ListMLE breaks ties at random, as most of its implementations do."""

_AXES = {"ndcg@10": "NDCG@10", "log-likelihood": "log-likelihood per query", "p@1": "share of queries"}
METRICS = {"ndcg@10": "NDCG@10", "log-likelihood": "log-likelihood", "p@1": "best result first"}
"""The metrics of held-out queries and what they are called."""


def _queries(
    count: int, spread: Sequence[float], tier_sizes: Sequence[int], first: int, generator: np.random.Generator
) -> tuple[RankingData, npt.NDArray[np.float64]]:
    """Queries with numbers from `first` on, and the true score of every result."""
    X = generator.standard_normal((count, LENGTH, len(FEATURES))) * np.asarray([*spread, 1.0])
    truth = X[..., 0] + X[..., 1]
    order = np.argsort(-truth - generator.gumbel(size=truth.shape), axis=1)
    labels = np.repeat(np.arange(float(len(tier_sizes)))[::-1], tier_sizes)
    y = np.empty_like(truth)
    np.put_along_axis(y, order, np.broadcast_to(labels, y.shape), axis=1)
    qid = np.repeat(np.arange(first, first + count), LENGTH)
    offsets = offsets_from_sizes(np.full(count, LENGTH))
    return RankingData(X.reshape(-1, len(FEATURES)), y.reshape(-1), qid, offsets), truth.reshape(-1)


@dataclass(frozen=True)
class DemoData:
    """Training queries with mixed feedback, held-out queries with graded results, and their true scores."""

    train: RankingData
    test: RankingData
    truth: npt.NDArray[np.float64]


def make_data(queries: int = 300, test_queries: int = 1000, *, random_state: int = 0) -> DemoData:
    """Simulate `queries` reference queries, as many news queries, and held-out queries that differ in both features."""
    generator = np.random.default_rng(random_state)
    ordered, _ = _queries(queries, (_WIDE, _NARROW), (1,) * LENGTH, 1, generator)
    liked, _ = _queries(queries, (_NARROW, _WIDE), (LIKED, LENGTH - LIKED), queries + 1, generator)
    test, truth = _queries(test_queries, (1.0, 1.0), _TEST_TIERS, 2 * queries + 1, generator)
    return DemoData(concatenate([ordered, liked]), test, truth)


def fit_systems(data: DemoData) -> Iterator[tuple[str, npt.NDArray[np.float64]]]:
    """Train each system and yield its name and its scores of the held-out queries."""
    for name, settings in SYSTEMS.items():
        yield name, BoostedRanker(**_TREES, **settings).fit(data.train).predict(data.test.X)


@dataclass(frozen=True)
class Outcome:
    """What the demonstration found."""

    data: DemoData
    scores: Mapping[str, npt.NDArray[np.float64]]
    results: Sequence[Result]
    comparisons: Mapping[str, PairedComparisons]
    """Every system compared with the first one, by metric."""


def run_demo(data: DemoData, track: Callable[[Iterator[Any], int], Iterable[Any]] = lambda steps, _: steps) -> Outcome:
    """Train and evaluate all systems. `track(steps, total)` may show progress."""
    scores = dict(track(fit_systems(data), len(SYSTEMS)))
    usual = evaluate(data.test, scores, ["ndcg@10", "log-likelihood"], confidence=_CONFIDENCE)
    truth = data.truth.reshape(-1, LENGTH)
    is_best = (truth == truth.max(axis=1, keepdims=True)).astype(float).reshape(-1)
    first = evaluate(replace(data.test, y=is_best), scores, ["p@1"], confidence=_CONFIDENCE)
    results = [*usual, *first]
    return Outcome(data, scores, results, compare_systems(results, confidence=_CONFIDENCE))


def bias_line(estimates: Mapping[str, npt.NDArray[np.float64]]) -> str:
    """The first coefficient of every treatment of ties, as a share of the truth."""
    shares = "; ".join(f"{name} {rows[:, 0].mean() / TRUTH[0]:.0%}" for name, rows in estimates.items())
    return f"Share of a true coefficient that a linear score learns from tiers: {shares}."


def _result_rows(outcome: Outcome) -> list[list[Any]]:
    by_metric = {metric: {r.system: r for r in outcome.results if r.metric == metric} for metric in METRICS}
    differences = {
        (metric, pair.second if pair.first == next(iter(SYSTEMS)) else pair.first): pair
        for metric, pairs in outcome.comparisons.items()
        for pair in pairs
    }
    rows = []
    for metric, title in METRICS.items():
        for system, result in by_metric[metric].items():
            pair = differences.get((metric, system))
            p = None if pair is None else pair.t_test
            rows.append([title, system, result.value, result.interval, p])
    return rows


def disagreement(outcome: Outcome) -> int:
    """The held-out query where only the exact likelihood finds the best result, and by the widest margin."""
    truth = outcome.data.truth.reshape(-1, LENGTH)
    firsts = {name: scores.reshape(-1, LENGTH).argmax(axis=1) for name, scores in outcome.scores.items()}
    exact, *others = firsts.values()
    rows = np.arange(len(truth))
    loss = np.stack([truth.max(axis=1) - truth[rows, first] for first in others]).min(axis=0)
    return int(np.argmax(np.where(exact == truth.argmax(axis=1), loss, -1.0)))


def _query_table(outcome: Outcome, query: int) -> Table:
    part = slice(query * LENGTH, (query + 1) * LENGTH)
    truth, X = outcome.data.truth[part], outcome.data.test.X[part]
    places = {name: np.argsort(np.argsort(-scores[part])) + 1 for name, scores in outcome.scores.items()}
    columns: list[str | Column] = [
        "true place", *(Column(name, format="+.2f") for name in FEATURES[:2]), *(f"{name}: place" for name in places),
    ]  # fmt: skip
    order = np.argsort(-truth)[:6]
    rows = [[place, *X[i, :2].tolist(), *(int(own[i]) for own in places.values())] for place, i in enumerate(order, 1)]
    return Table(columns, rows, caption=f"The six best results of query {outcome.data.test.qid[part.start]}")


def _bias_table(estimates: Mapping[str, npt.NDArray[np.float64]]) -> Table:
    columns: list[str | Column] = ["treatment of ties"]
    for number, value in enumerate(TRUTH, 1):
        columns += [Column(f"coefficient {number}", f"truth {value:g}", ".3f"), Column("standard error", format=".3f")]
    rows: list[list[Any]] = []
    for name, found in estimates.items():
        errors = found.std(axis=0, ddof=1) / np.sqrt(len(found)) if len(found) > 1 else np.full(len(TRUTH), np.nan)
        pairs = zip(found.mean(axis=0).tolist(), errors.tolist(), strict=True)
        rows.append([name, *(number for pair in pairs for number in pair)])
    return Table(columns, rows)


def comparison_plots(outcome: Outcome) -> list[Block]:
    """One plot per metric: every system with its interval."""
    plots: list[Block] = []
    for metric, title in METRICS.items():
        found = [result for result in outcome.results if result.metric == metric]
        low, high = zip(*(result.interval for result in found), strict=True)
        series = Series(title, [result.value for result in found], low=low, high=high)
        axis = Axis(f"{_AXES[metric]}, with {_CONFIDENCE:.0%} interval", "higher is better")
        plots.append(ItemPlot([result.system for result in found], [series], axis, caption=title))
    return plots


def demo_page(outcome: Outcome, estimates: Mapping[str, npt.NDArray[np.float64]], commands: Sequence[str]) -> Page:
    """The comparison as a page, with the bias of a linear score and the commands to try next."""
    lists = len(outcome.data.test)
    columns: list[str | Column] = [
        "metric", "system", Column("value", format=".4f"), Column(f"{_CONFIDENCE:.0%} interval", format=".4f"),
        Column("p, compared with exact", format=".1g"),
    ]  # fmt: skip
    query = disagreement(outcome)
    sections = [
        Section("Data", text=" ".join(__doc__.split("\n\n")[1].split())),
        Section(
            "Comparison",
            [*comparison_plots(outcome), Table(columns, _result_rows(outcome))],
            f"The same boosted trees, trained on four objectives and evaluated on {lists:,} held-out queries. Paired "
            "t-tests over queries, with Holm's correction.",
        ),
        Section("A query where the first result changes", [_query_table(outcome, query)]),
        Section(
            "Bias of a linear score",
            [_bias_table(estimates)],
            f"{len(next(iter(estimates.values())))} data sets of 300 lists of 20 items, of which only tiers of 1, 3, 6 "
            "and 10 are observed; mean over data sets.",
        ),
        Section("Try next", [Command(command) for command in commands]),
    ]
    return Page("Ties decide who is ranked first", sections, _summary(outcome))


def _summary(outcome: Outcome) -> str:
    shares = {result.system: result.value for result in outcome.results if result.metric == "p@1"}
    exact, *others = shares.items()
    listed = ", ".join(f"{name} in {share:.0%}" for name, share in others)
    return f"Trained by the {exact[0]}, trees put the best result first in {exact[1]:.0%} of queries; {listed}."
