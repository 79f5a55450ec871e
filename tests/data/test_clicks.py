"""Labels and masks from logs of clicks."""

import numpy as np
import pytest

from plackett.data import cascade_labels, last_click_labels

QUERY = ["a", "b", "a", "a", "b", "a", "c", "c"]
POSITION = [3, 1, 1, 2, 2, 4, 7, 5]
CLICK = [0, 0, 1, 0, 1, 0, 0, 0]


def test_last_click_sees_down_to_the_lowest_click_and_one_more():
    found = last_click_labels(QUERY, POSITION, CLICK)
    assert found.labels.tolist() == CLICK
    assert found.examined.tolist() == [False, True, True, True, True, False, False, False]
    assert found.sessions.tolist() == [0, 1, 0, 0, 1, 0, 2, 2]
    deeper = last_click_labels(QUERY, POSITION, CLICK, beyond=2)
    assert deeper.examined.tolist() == [True, True, True, True, True, False, False, False]


def test_cascade_ends_with_the_first_click():
    found = cascade_labels([1] * 4 + [2] * 2, [1, 2, 3, 4, 1, 2], [False, True, False, True, False, False])
    assert found.labels.tolist() == [0, 1, 0, 0, 0, 0]
    assert found.examined.tolist() == [True, True, False, False, True, True]  # without a click everything was seen


def test_time_separates_sessions_and_orders_clicks():
    time = np.array([0, 1, 20, 5000, 5001, 5002])
    query, position = ["q"] * 6, [1, 2, 3, 1, 2, 3]
    click = [1, 0, 1, 1, 1, 0]
    found = last_click_labels(query, position, click, time=time, prefer_last=True)
    assert found.sessions.tolist() == [0, 0, 0, 1, 1, 1]
    assert found.labels.tolist() == [1, 0, 2, 1, 2, 0]
    # The user clicked at 3 first, and went back to 1.
    back = cascade_labels(query, position, click, time=[9, 1, 2, 5000, 5001, 5002])
    assert back.labels.tolist() == [0, 0, 1, 1, 0, 0]
    assert back.examined.tolist() == [True, True, True, True, False, False]


def test_an_empty_log_has_no_sessions():
    assert last_click_labels([], [], []).sessions.size == 0
    assert cascade_labels([], [], [], time=[]).labels.size == 0


BAD = {
    "repeated": (lambda: last_click_labels(["a", "a"], [1, 1], [0, 1]), "position must occur once in a session"),
    "negative": (lambda: cascade_labels(["a"], [-1], [0]), "position must be at least 0, got -1"),
    "missing": (lambda: cascade_labels(["a"], [np.nan], [0]), "position must be finite, got nan at row 0"),
    "click": (lambda: last_click_labels(["a"], [1], [2]), "click must be true or false, 1 or 0, got 2 at row 0"),
    "length": (lambda: last_click_labels(["a", "b"], [1, 2], [0]), "click must hold one value for each of the 2 rows"),
    "time": (lambda: last_click_labels(["a"], [1], [0], time=[np.inf]), "time must be finite"),
    "last": (lambda: last_click_labels(["a"], [1], [0], prefer_last=True), "prefer_last needs time"),
    "beyond": (lambda: last_click_labels(["a"], [1], [0], beyond=-1), "beyond must be at least 0"),
    "query": (
        lambda: cascade_labels(["a", None], [1, 2], [0, 1]),
        "query must not be missing or NaN, got one at row 1",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_logs_are_explained(case):
    call, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        call()
