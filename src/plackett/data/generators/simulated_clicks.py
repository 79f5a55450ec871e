"""Clicks on ranked lists, simulated from graded relevance."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.arguments import as_numbers, check_choice, check_count, check_finite, check_kind, check_range
from plackett.data.containers import RankingData
from plackett.lists import IntArray, offsets_from_sizes

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

MODELS = ("position", "cascade")
POLICIES = ("sorted", "plackett-luce")


@dataclass(frozen=True, eq=False)
class ClickTruth:
    """What a simulation of clicks knows and a log does not; one value per row of the clicks, except the last two.

    position     where the item was shown, from 1
    examined     whether the user looked at it
    examination  the probability of that: by position, or in the cascade model given the clicks above
    attraction   the probability of a click if examined, without trust in the position
    grade        the relevance that it comes from
    row          the row of the data that was shown
    query        (sessions,), the list of the data that was shown
    log_policy   (sessions,), log P(the positions shown) under the logging policy "plackett-luce"; None for "sorted"
    """

    position: IntArray
    examined: Bools
    examination: Floats
    attraction: Floats
    grade: Floats
    row: IntArray
    query: IntArray
    log_policy: Floats | None


def make_clicks(
    data: RankingData,
    *,
    scores: Any = None,
    policy: str = "sorted",
    temperature: float = 1.0,
    model: str = "position",
    eta: float | None = None,
    examination: Any = None,
    trust: float = 0.0,
    noise: float = 0.1,
    shown: int | None = None,
    sessions: int = 1,
    random_state: int | np.random.Generator | None = None,
) -> tuple[RankingData, ClickTruth]:
    """Simulate sessions: lists shown to users, with y = 1 for a click, and the truth behind the clicks.

    A user who examines an item of grade g at position p clicks on it, independently of all others, with probability

        a + (1 - a) trust / p,   a = noise + (1 - noise) (2^g - 1) / (2^G - 1),   G the highest grade of the data.

    With trust above 0, users believe what is on top to be better than it looks (Agarwal et al. 2019). The model decides
    which items are examined:

        "position"  an item at position p with probability p^-eta, or `examination`[p - 1]
        "cascade"   all from the top down to the first click, none after it (Craswell et al. 2008)

    **The clicks have position bias**: an item without a click may not have been seen. `fit(..., position=)` of the
    rankers corrects for it, see docs/clicks.md.

    Session i shows list i % len(data) and becomes list i of the result, with its items in the order of `data`. `ids`
    are those of `data`, or its row numbers if it has none.

    Args:
        data: lists whose labels are grades of at least 0.
        scores: one for each row, of the logging policy. Default: all equal, so that the order is random.
        policy: "sorted" shows items by descending score, ties at random; "plackett-luce" draws an order from the
            Plackett-Luce model of scores / temperature for every session.
        temperature: for "plackett-luce": the higher, the more random.
        eta: how fast attention fades with the position, for the position model. Default: 1.
        examination: instead of eta, a probability for each position from the first on; 0 for all others.
        trust: how much the position makes up for what an examined item lacks.
        noise: the probability of a click on an examined item of grade 0.
        shown: how many positions of each list are shown; items below them are left out. Default: all.
        sessions: how often each list is shown.

    >>> from plackett.data import make_tiered_lists
    >>> clicks, truth = make_clicks(make_tiered_lists(500, random_state=0), shown=3, random_state=0)
    >>> [round(float(clicks.y[truth.position == place].mean()), 2) for place in (1, 2, 3)]
    [0.23, 0.13, 0.08]
    """
    check_kind("data", data, RankingData)
    grades = _check_grades(data)
    value = np.zeros(len(grades)) if scores is None else as_numbers("scores", scores)
    if value.shape != grades.shape:
        raise ValueError(f"scores must hold one value for each of the {len(grades)} rows, got shape {value.shape}")
    check_finite("scores", value)
    check_choice("policy", policy, POLICIES)
    if check_range("temperature", temperature, 0.0) == 0.0:
        raise ValueError(f"temperature must be above 0, got {temperature}: policy='sorted' is the limit")
    check_choice("model", model, MODELS)
    check_range("noise", noise, 0.0, 1.0)
    check_range("trust", trust, 0.0, 1.0)
    check_count("sessions", sessions, 1)
    places = len(grades) if shown is None else check_count("shown", shown, 1)
    longest = int(np.diff(data.offsets).max(initial=0))
    by_position = _examination(model, eta, examination, longest)
    generator = np.random.default_rng(random_state)

    is_sampled = policy == "plackett-luce"
    utilities, session, rows = _utilities(data, value, sessions, temperature if is_sampled else None, generator)
    place, order = _places(utilities, session, generator)
    log_policy = _log_policy(value / temperature, rows, order, session, place, places) if is_sampled else None
    kept = place <= places
    session, rows, place = session[kept], rows[kept], place[kept]

    gain = np.exp2(grades) - 1.0
    # noise only, if no item has a gain
    attraction = (noise + (1.0 - noise) * gain / max(float(gain.max(initial=0.0)), 1e-300))[rows]
    would_click = generator.random(len(rows)) < attraction + (1.0 - attraction) * trust / place
    if model == "position":
        seen_with = by_position[place - 1]
        examined = generator.random(len(rows)) < seen_with
    else:
        examined = place <= _first_click(would_click, session, place, sessions * len(data))
        seen_with = examined.astype(np.float64)
    clicks = RankingData(
        X=data.X[rows],
        y=(would_click & examined).astype(np.float64),
        qid=session,
        offsets=offsets_from_sizes(np.bincount(session, minlength=sessions * len(data))),
        ids=rows if data.ids is None else data.ids[rows],
        first_feature=data.first_feature,
    )
    query = np.tile(np.arange(len(data)), sessions)
    return clicks, ClickTruth(place, examined, seen_with, attraction, grades[rows], rows, query, log_policy)


def _check_grades(data: RankingData) -> Floats:
    grades = as_numbers("data.y", data.y)
    check_finite("data.y", grades)
    if grades.size and grades.min() < 0.0:
        raise ValueError(f"data.y must hold grades of at least 0, got {grades.min()}")
    return grades


def _examination(model: str, eta: Any, examination: Any, longest: int) -> Floats:
    """The probability that each position is examined, for the position model."""
    if model == "cascade" and (eta is not None or examination is not None):
        name, given = ("eta", eta) if eta is not None else ("examination", examination)
        raise ValueError(f"{name} must be None with the cascade model, got {given}")
    fading = check_range("eta", 1.0 if eta is None else eta, 0.0)
    if examination is None:
        return np.asarray(np.arange(1, longest + 1) ** -fading, np.float64)
    if eta is not None:
        raise ValueError("at most one of eta and examination may be given, got both")
    given = as_numbers("examination", examination)
    if given.ndim != 1 or not ((given >= 0.0) & (given <= 1.0)).all():
        raise ValueError(f"examination must hold a probability for each position, got {examination!r}")
    return np.append(given, np.zeros(longest))[:longest]


def _utilities(
    data: RankingData, scores: Floats, sessions: int, temperature: float | None, generator: np.random.Generator
) -> tuple[Floats, IntArray, IntArray]:
    """The keys by which items are shown, their session and their row of `data`; without a temperature, their scores."""
    session = np.repeat(np.arange(sessions * len(data)), np.tile(np.diff(data.offsets), sessions))
    rows = np.tile(np.arange(len(scores)), sessions)
    utilities = scores[rows]
    if temperature is not None:
        utilities = utilities / temperature + generator.gumbel(size=len(rows))
    return utilities, session, rows


def _places(utilities: Floats, session: IntArray, generator: np.random.Generator) -> tuple[IntArray, IntArray]:
    """The position of every item, from 1, and the items in the order of sessions and positions."""
    order = np.lexsort((generator.random(len(session)), -utilities, session))
    firsts = np.flatnonzero(np.append(True, np.diff(session) > 0)[: len(session)])
    place = np.empty(len(session), np.int64)
    place[order] = np.arange(1, len(session) + 1) - firsts[np.searchsorted(session[firsts], session)]
    return place, order


def _log_policy(
    scores: Floats, rows: IntArray, order: IntArray, session: IntArray, place: IntArray, places: int
) -> Floats:
    """log P of the first places of each session: the sum over them of score - logsumexp of the items left."""
    ranked, list_of = scores[rows[order]], session[order]
    count = int(session.max(initial=-1)) + 1
    best = np.full(count, -np.inf)
    np.maximum.at(best, list_of, ranked)
    left = np.exp(ranked - best[list_of])[::-1]
    total = np.cumsum(left)
    ends = np.append(np.flatnonzero(np.diff(list_of[::-1])), len(left) - 1)  # the last item of each session, reversed
    before = np.concatenate(([0.0], total[ends]))[np.cumsum(np.append(False, np.diff(list_of[::-1]) != 0))]
    remaining = np.log(np.maximum(total - before, 1e-300))[::-1] + best[list_of]
    terms = np.where(place[order] <= places, ranked - remaining, 0.0)
    return np.asarray(np.bincount(list_of, terms, count), np.float64)


def _first_click(clicked: Bools, session: IntArray, place: IntArray, sessions: int) -> IntArray:
    """The position of the first click of each row's session; beyond all positions if there is none."""
    first = np.full(sessions, np.iinfo(np.int64).max)
    np.minimum.at(first, session[clicked], place[clicked])
    return first[session]
