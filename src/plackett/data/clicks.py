"""Labels and masks from logs of clicks: what a click says about the items around it.

A log has one row per item shown: the query, the position, whether it was clicked, and optionally the time. Each rule
turns it into lists for `fit(X, labels, qid=sessions, examined=examined)`. An item that was not examined is neither
above nor below any other: it says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.arguments import as_array, as_numbers, check_count, check_range, to_numpy, type_and_shape
from plackett.lists import IntArray, lists_from_qid

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class ClickLabels:
    """One value for each row of a log, in its order.

    labels    higher is better: 0 without a click
    examined  whether the user saw the item, by the rule; False says that nothing is known
    sessions  numbers of the sessions, the `qid` of `fit`
    """

    labels: Floats
    examined: Bools
    sessions: IntArray


def last_click_labels(
    query: Any,
    position: Any,
    click: Any,
    *,
    time: Any = None,
    gap: float = 1800.0,
    beyond: int = 1,
    prefer_last: bool = False,
) -> ClickLabels:
    """Users see everything down to their lowest click and `beyond` items after it (Joachims et al. 2005).

    In a session without a click nothing counts as seen.

    Args:
        query: the query of each row; the rows of a query are one session, unless `time` separates them.
        position: where each item was shown, at least 0; each position once per session.
        click: whether each item was clicked: true or false, 1 or 0.
        time: the time of each row in seconds, when it was shown or clicked. A pause of more than `gap` seconds in the
            rows of a query begins a new session.
        prefer_last: the latest click of a session gets the label 2, above the other clicks: the search ended there.
            Needs `time`.

    >>> last_click_labels(["a"] * 5, [1, 2, 3, 4, 5], [0, 1, 0, 0, 0]).examined.tolist()
    [True, True, True, False, False]
    """
    log = _read_log(query, position, click, time, gap)
    check_count("beyond", beyond, 0)
    lowest = np.full(log.count, -np.inf)
    np.maximum.at(lowest, log.sessions[log.clicked], log.rank[log.clicked])
    labels = log.clicked.astype(np.float64)
    if prefer_last:
        if log.time is None:
            raise ValueError("prefer_last needs time, got none: without it the last click is unknown")
        latest = np.full(log.count, -np.inf)
        np.maximum.at(latest, log.sessions[log.clicked], log.time[log.clicked])
        labels[log.clicked & (log.time == latest[log.sessions])] = 2.0
    return ClickLabels(labels, log.rank <= lowest[log.sessions] + beyond, log.sessions)


def cascade_labels(query: Any, position: Any, click: Any, *, time: Any = None, gap: float = 1800.0) -> ClickLabels:
    """Users read from the top and leave with their first click (Craswell et al. 2008): only that one counts.

    Everything above it was seen and rejected; nothing below it was seen. In a session without a click everything was
    seen. The first click is the earliest if `time` is given, else the highest. Arguments as in `last_click_labels`.

    >>> found = cascade_labels(["a"] * 4, [1, 2, 3, 4], [0, 1, 0, 1])
    >>> found.labels.tolist(), found.examined.tolist()
    ([0.0, 1.0, 0.0, 0.0], [True, True, False, False])
    """
    log = _read_log(query, position, click, time, gap)
    order = log.rank if log.time is None else log.time
    rows = np.flatnonzero(log.clicked)
    rows = rows[np.lexsort((log.rank[rows], order[rows], log.sessions[rows]))]
    with_click, firsts = np.unique(log.sessions[rows], return_index=True)
    end = np.full(log.count, np.inf)
    end[with_click] = log.rank[rows[firsts]]
    labels = np.zeros(len(log.rank))
    labels[rows[firsts]] = 1.0
    return ClickLabels(labels, log.rank <= end[log.sessions], log.sessions)


@dataclass(frozen=True)
class _Log:
    """A checked log: `rank` is the position within the session, from 0, without gaps."""

    rank: IntArray
    clicked: Bools
    time: Floats | None
    sessions: IntArray
    count: int


def _read_log(query: Any, position: Any, click: Any, time: Any, gap: Any) -> _Log:
    places = as_numbers("position", to_numpy(position))
    rows = len(places) if places.ndim == 1 else -1
    columns = {"position": places, "click": as_array("click", to_numpy(click))}
    if time is not None:
        columns["time"] = as_numbers("time", to_numpy(time))
    for name, values in columns.items():
        if values.shape != (rows,):
            raise ValueError(f"{name} must hold one value for each of the {rows} rows, got {type_and_shape(values)}")
    for name in ("position", "time"):
        if name in columns and not np.isfinite(columns[name]).all():
            at = int(np.argmin(np.isfinite(columns[name])))
            raise ValueError(f"{name} must be finite, got {columns[name][at]} at row {at}")
    if rows and places.min() < 0.0:
        raise ValueError(f"position must be at least 0, got {places.min():g} at row {int(np.argmin(places))}")
    clicked = as_numbers("click", columns["click"])
    if not np.isin(clicked, (0.0, 1.0)).all():
        at = int(np.argmin(np.isin(clicked, (0.0, 1.0))))
        raise ValueError(f"click must be true or false, 1 or 0, got {clicked[at]:g} at row {at}")
    sessions = _sessions(query, columns.get("time"), check_range("gap", gap, 0.0), rows)
    order = np.lexsort((places, sessions))
    ordered, by_place = sessions[order], places[order]
    repeated = (ordered[1:] == ordered[:-1]) & (by_place[1:] == by_place[:-1])
    if repeated.any():
        row = int(order[1:][np.argmax(repeated)])
        raise ValueError(
            f"position must occur once in a session, got {places[row]:g} again at row {row}: pass time, or a query "
            "that differs for each page shown"
        )
    count = int(sessions.max(initial=-1)) + 1
    starts = np.searchsorted(ordered, np.arange(count))
    rank = np.empty(rows, np.int64)
    rank[order] = np.arange(rows) - starts[ordered]
    return _Log(rank, clicked == 1.0, columns.get("time"), sessions, count)


def _sessions(query: Any, time: Floats | None, gap: float, rows: int) -> IntArray:
    """The number of each row's session, in the order of queries and of time."""
    try:
        lists = lists_from_qid(to_numpy(query), rows)
    except ValueError as error:
        raise ValueError(str(error).replace("qid", "query", 1)) from None
    number = lists.restore(np.repeat(np.arange(len(lists)), lists.sizes))
    if time is None:
        return number
    order = np.lexsort((time, number))
    begins = np.append(True, (np.diff(number[order]) > 0) | (np.diff(time[order]) > gap))[:rows]
    sessions = np.empty(rows, np.int64)
    sessions[order] = np.cumsum(begins) - 1
    return sessions
