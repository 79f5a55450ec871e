"""The page of a leaderboard: a table to sort and search, categories as tabs, and head-to-head results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from plackett.aggregation.connectivity import REASONS, listing
from plackett.aggregation.tie_models import TIE_MODELS, UNKNOWN
from plackett.report.page import Block, Column, KeyValues, Matrix, Page, Section, Span, Table, Tabs
from plackett.report.run_pages import Files, fit_facts, repeat_sections

_MOST_IN_MATRIX, _MOST_BY_CATEGORY = 60, 25
_MOST_LETTERS = 12  # longer strings of letters are unreadable


@dataclass(frozen=True)
class Scale:
    """The scale of the ratings, see `RankAggregator.ratings`."""

    scale: float = 400.0
    base: float = 10.0
    anchor: tuple[Any, float] | None = None


def board_page(
    aggregator: Any,
    *,
    title: str | None = None,
    scale: Scale | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    data: Any = None,
    files: Files | None = None,
    command: str | None = None,
) -> Page:
    """Page of a fitted `RankAggregator` of comparisons.

    Args:
        scale: the scale of the ratings.
        seed: random seed for simulated ranks, as `random_state` of `RankAggregator.summary`.
        data: the comparisons it was fitted to.
        files: the files of that data, under names of your choice.
        command: the command that fitted it.
    """
    scale = scale or Scale()
    boards: Mapping[str, Any] = {"All": aggregator} | {
        str(name): board for name, board in getattr(aggregator, "boards_", {}).items()
    }
    panels = {name: [_board(board, scale, confidence, seed)] for name, board in boards.items()}
    several = len(boards) > 1
    matrices = {
        name: [_matrix(board, _MOST_BY_CATEGORY if several else _MOST_IN_MATRIX)] for name, board in boards.items()
    }
    sections = [
        Section("Leaderboard", [Tabs(panels)] if several else panels["All"], _explanation(aggregator, confidence)),
        Section("Head to head", [Tabs(matrices)] if several else matrices["All"]),
        *_effects(aggregator),
        *_voters(aggregator),
        Section("Fit", [KeyValues(fit_facts(aggregator))]),
        *repeat_sections(aggregator.get_params(), {} if data is None else {"comparisons": data}, files, command),
    ]
    return Page(title or "Leaderboard", sections, _summary(aggregator, scale, confidence))


def _summary(aggregator: Any, scale: Scale, confidence: float) -> str:
    parts = [f"{len(aggregator.items_):,} items rated from {aggregator.n_ballots_:,.10g} comparisons."]
    if above := aggregator.outside_.get("above"):
        parts.append(
            f"The maximum likelihood estimate does not exist. Ranked first: {listing(above)}, {REASONS['above']}. "
            "The ratings are those of the other items."
        )
    else:
        rating = _rating(aggregator, scale, confidence)
        best = int(np.argmax(rating.ratings))
        parts.append(
            f"{aggregator.items_[best]} is first, with a rating of {rating.ratings[best]:.0f} ({confidence:.0%} "
            f"interval {rating.low[best]:.0f} to {rating.high[best]:.0f})."
        )
    return " ".join(parts)


def _explanation(aggregator: Any, confidence: float) -> str:
    model = TIE_MODELS[aggregator.ties or UNKNOWN]
    text = (
        f"Ranks: {confidence:.0%} interval for each item separately. Tested ranks hold for all items at once, with "
        "Holm's correction: from 1 plus the number of significantly better items to the number of items minus that of "
        "significantly worse ones. Items in one group (a shared letter) cannot be distinguished. "
        f"Standard errors: {aggregator.covariance_kind_}."
    )
    return text + (f"\n\nTies: {model.meaning}." if aggregator.ties else "")


def _rating(aggregator: Any, scale: Scale, confidence: float) -> Any:
    anchor = scale.anchor if scale.anchor and scale.anchor[0] in aggregator.items_ else None
    return aggregator.ratings(scale.scale, scale.base, anchor, confidence=confidence)


def _board(aggregator: Any, scale: Scale, confidence: float, seed: int) -> Block:
    found = _rating(aggregator, scale, confidence)
    ranks, tested = aggregator.rank_, aggregator.significant_ranks(confidence)
    alone = aggregator.rank_intervals(confidence, random_state=seed)
    groups = aggregator.letters(confidence)
    ends = float(found.low.min()), float(found.high.max())
    rows: list[list[Any]] = []
    for k in np.argsort(ranks, kind="stable").tolist():
        span = Span(float(found.ratings[k]), float(found.low[k]), float(found.high[k]), ends)
        rows.append([
            int(ranks[k]), str(aggregator.items_[k]), float(found.ratings[k]), (span.low, span.high), span,
            *((int(low[k]), int(high[k])) for low, high in (alone, tested)), _short_letters(groups[k]),
        ])  # fmt: skip
    above, below = (aggregator.outside_.get(where, []) for where in ("above", "below"))
    rows = [[1, str(name), *[None] * 5, ""] for name in above] + rows
    last = len(aggregator.items_) + len(above) + 1
    rows += [[last, str(name), *[None] * 5, ""] for name in below]
    columns: list[str | Column] = [
        "rank", "item", Column("rating", format=".0f"), Column(f"{confidence:.0%} interval", format=".0f"),
        Column("", format=".0f"), "ranks", "tested ranks", "group",
    ]  # fmt: skip
    return Table(columns, rows, interactive=True)


def _short_letters(letters: str) -> str:
    return letters if len(letters) <= _MOST_LETTERS else f"{letters[:6]} \N{HORIZONTAL ELLIPSIS}"


def _matrix(aggregator: Any, most: int) -> Block:
    items, values = aggregator.win_probabilities(most)
    values = values + 0.5 * (1.0 - values - values.T)
    caption = "Expected points of the row's item against the column's, in percent: wins plus half the ties"
    if len(aggregator.items_) > most:
        caption += f", for the best {most} items"
    return Matrix([str(item) for item in items], [[_or_none(x) for x in row] for row in values.tolist()], caption)


def _or_none(value: float) -> float | None:
    return None if value != value else value


def _effects(aggregator: Any) -> list[Section]:
    rows: list[list[Any]] = [
        [f"tie parameter {name}", found.value, found.standard_error]
        for name, found in aggregator.tie_parameters_.items()
    ]
    if hasattr(aggregator, "coef_"):
        numbers = zip(aggregator.coef_names_, aggregator.coef_, aggregator.coef_standard_errors_, strict=True)
        rows += [[name, float(value), float(error)] for name, value, error in numbers]
    columns: list[str | Column] = [
        "parameter",
        Column("estimate", format="+.4f"),
        Column("standard error", format=".4f"),
    ]
    return [Section("Ties and covariates", [Table(columns, rows)])] if rows else []


def _voters(aggregator: Any) -> list[Section]:
    voters = getattr(aggregator, "voters_", [])
    if not voters:
        return []
    rows = [[str(v.name), v.comparisons, v.reliability, v.gain, "random" if v.random else ""] for v in voters]
    columns: list[str | Column] = [
        "", "voter", Column("comparisons", format=",.0f"), Column("reliability", format=".2f"),
        Column("nats per comparison", format="+.3f"), "",
    ]  # fmt: skip
    numbered = [[place + 1, *row] for place, row in enumerate(rows)]
    text = "Reliability is the factor on a voter's scores; near 0, answers are random. The least reliable come first."
    return [Section("Voters", [Table(columns, numbered, interactive=True)], text)]
