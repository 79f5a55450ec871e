"""Clicks on ranked lists, simulated from graded relevance."""

from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.arguments import as_numbers, check_count, check_kind, check_range
from plackett.data.containers import RankingData
from plackett.lists import IntArray, check_finite, offsets_from_sizes


def make_clicks(
    data: RankingData,
    *,
    scores: Any = None,
    model: str = "position",
    eta: float | None = None,
    noise: float = 0.1,
    shown: int | None = None,
    sessions: int = 1,
    random_state: int | np.random.Generator | None = None,
) -> tuple[RankingData, IntArray]:
    """Sessions in which users saw the lists of `data`, y = 1 where they clicked, and the place of each item (1 = top).

    An item of grade g that is examined attracts a click with probability

        noise + (1 - noise) (2^g - 1) / (2^G - 1),   G the highest grade of the data,

    independently of all others. Which are examined depends on the model:

        "position"  an item at place p with probability p^-eta
        "cascade"   all from the top down to the first click, none after it (Craswell et al. 2008)

    **The clicks carry position bias**: an item without a click may not have been seen. No loss corrects that by itself;
    the places are there for methods that do.

    Session i shows list i % len(data) and is a list of its own, number i, with its items in the order of `data`. `ids`
    are those of `data`, or row numbers of `data` where it has none.

    Args:
        data: lists whose labels are grades of at least 0.
        scores: one for each row; items are shown by descending score, ties at random. Without scores, in random order.
        eta: how fast attention fades with the place, for the position model; 1 unless given.
        noise: the probability of a click on an examined item of grade 0.
        shown: how many places of each list are shown; the items on later ones are left out. All unless given.
        sessions: how often each list is shown.

    >>> from plackett.data import make_tiered_lists
    >>> clicks, places = make_clicks(make_tiered_lists(500, random_state=0), shown=3, random_state=0)
    >>> [round(float(clicks.y[places == place].mean()), 2) for place in (1, 2, 3)]
    [0.23, 0.13, 0.07]
    """
    check_kind("data", data, RankingData)
    grades = as_numbers("data.y", data.y)
    check_finite("data.y", grades)
    if grades.size and grades.min() < 0.0:
        raise ValueError(f"data.y must hold grades of at least 0, got {grades.min()}")
    value = np.zeros(len(grades)) if scores is None else as_numbers("scores", scores)
    if value.shape != grades.shape:
        raise ValueError(f"scores must hold one value for each of the {len(grades)} rows, got shape {value.shape}")
    check_finite("scores", value)
    if model not in ("position", "cascade"):
        raise ValueError(f'model must be "position" or "cascade", got {model!r}')
    if model == "cascade" and eta is not None:
        raise ValueError(f"eta belongs to the position model, got {eta} with the cascade model")
    fading = check_range("eta", 1.0 if eta is None else eta, 0.0)
    check_range("noise", noise, 0.0, 1.0)
    check_count("sessions", sessions, 1)
    places = len(grades) if shown is None else check_count("shown", shown, 1)
    generator = np.random.default_rng(random_state)

    session, rows, place = _shown(data, value, sessions, places, generator)
    gain = np.exp2(grades) - 1.0
    attraction = noise + (1.0 - noise) * gain / max(float(gain.max(initial=0.0)), 1e-300)  # without gains, noise
    luck = generator.random(len(rows))
    if model == "position":
        clicked = luck < attraction[rows] * place**-fading
    else:
        clicked = _first_of_each(luck < attraction[rows], session, place, sessions * len(data))
    return RankingData(
        X=data.X[rows],
        y=clicked.astype(np.float64),
        qid=session,
        offsets=offsets_from_sizes(np.bincount(session, minlength=sessions * len(data))),
        ids=rows if data.ids is None else data.ids[rows],
    ), place


def _shown(
    data: RankingData, scores: npt.NDArray[np.float64], sessions: int, places: int, generator: np.random.Generator
) -> tuple[IntArray, IntArray, IntArray]:
    """Of each item that is shown: the session, the row of `data`, and the place."""
    sizes = np.tile(np.diff(data.offsets), sessions)
    session = np.repeat(np.arange(len(sizes)), sizes)
    rows = np.tile(np.arange(len(scores)), sessions)
    order = np.lexsort((generator.random(len(rows)), -scores[rows], session))
    place = np.empty(len(rows), np.int64)
    place[order] = np.arange(1, len(rows) + 1) - np.repeat(offsets_from_sizes(sizes)[:-1], sizes)
    is_shown = place <= places
    return session[is_shown], rows[is_shown], place[is_shown]


def _first_of_each(
    marked: npt.NDArray[np.bool_], session: IntArray, place: IntArray, sessions: int
) -> npt.NDArray[np.bool_]:
    """Of the marked items, those at the first place of their session."""
    first = np.full(sessions, np.iinfo(np.int64).max)
    np.minimum.at(first, session[marked], place[marked])
    is_first: npt.NDArray[np.bool_] = place == first[session]
    return marked & is_first
