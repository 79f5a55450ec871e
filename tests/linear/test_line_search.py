"""Line searches along one weight, against brute force."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plackett.linear.line_search import best_weight, place_metric
from plackett.metrics import get_metric

METRICS = (
    "ndcg", "ndcg@1", "ndcg@3", "err", "err@2", "map", "map@3", "mrr", "mrr@2", "p@2", "recall@2", "tau-b", "tau-x",
)  # fmt: skip
AVERAGED = ("ndcg", "p", "recall")  # exact means over items that are tied for every weight


def longhand(name: str, scores: Any, labels: Any, offsets: Any, weights: Any) -> float:
    """The metric. If it cannot average over ties like the line search, the item with the lower label is first."""
    if name.split("@")[0] in AVERAGED or name.startswith("tau"):
        return float(get_metric(name)(scores, labels, offsets=offsets, weights=weights))
    rows = np.lexsort((labels, np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))))
    return float(get_metric(name, ties="stable")(scores[rows], labels[rows], offsets=offsets, weights=weights))


def breakpoints(rest: Any, feature: Any, offsets: Any) -> Any:
    """All weights at which two items of a list have the same score, from all pairs."""
    pairs = [(i, j) for first, last in pairwise(offsets) for i in range(first, last) for j in range(first, i)]
    return np.unique([(rest[j] - rest[i]) / (feature[i] - feature[j]) for i, j in pairs if feature[i] != feature[j]])


def intervals(name: str, rest: Any, feature: Any, labels: Any, offsets: Any, weights: Any) -> Any:
    """Ends (as angles) and values of all intervals, with neighbours of equal value merged."""
    angles = np.concatenate(([-np.pi / 2], np.arctan(breakpoints(rest, feature, offsets)), [np.pi / 2]))
    found: list[list[float]] = []
    for left, right in pairwise(angles):
        if right - left < 1e-9:  # the same weight up to rounding
            continue
        value = longhand(name, rest + np.tan((left + right) / 2) * feature, labels, offsets, weights)
        if found and abs(found[-1][2] - value) < 1e-10:
            found[-1][1] = right
        else:
            found.append([left, right, value])
    return np.array(found).T


@st.composite
def lines(draw: Any) -> Any:
    """Lists with labels, scores from the other features, and one feature; integers give many ties."""
    sizes = draw(st.lists(st.integers(1, 7), min_size=1, max_size=3))
    n = sum(sizes)
    whole = st.integers(-2, 2).map(float)
    numbers = draw(st.sampled_from([whole, st.floats(-3, 3).map(lambda x: round(x, 3))]))
    rest, feature = (np.array(draw(st.lists(numbers, min_size=n, max_size=n))) for _ in range(2))
    labels = np.array(draw(st.lists(st.integers(0, 3).map(float), min_size=n, max_size=n)))
    weights = np.array(draw(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=len(sizes), max_size=len(sizes))))
    return rest, feature, labels, np.concatenate(([0], np.cumsum(sizes))).astype(np.int64), weights


@pytest.mark.parametrize("name", METRICS)
def test_line_search_is_exact(name: str) -> None:
    checked = []

    @given(lines(), st.sampled_from([-1.7, 0.0123, 0.9]), st.sampled_from([0.0, 0.05]))
    def check(line: Any, now: float, penalty: float) -> None:
        rest, feature, labels, offsets, weights = line
        if np.isnan(longhand(name, rest, labels, offsets, weights)):
            with pytest.raises(ValueError, match=f"at least one list a value of {name}"):
                place_metric(name, labels, offsets, weights)
            return
        ties = [np.unique(np.stack((rest, feature))[:, a:b], axis=1).shape[1] < b - a for a, b in pairwise(offsets)]
        if name.startswith("tau") and any(ties):
            return  # tau-b divides by the number of untied pairs
        metric = place_metric(name, labels, offsets, weights)
        found = best_weight(metric, offsets, rest, feature, now, 1.0, penalty)
        left, right, values = intervals(name, rest, feature, labels, offsets, weights)
        present = longhand(name, rest + now * feature, labels, offsets, weights)
        if found is None:
            assert len(values) == 1
            return
        middles = (left + right) / 2
        merits = values - penalty * np.abs(middles - np.arctan(now))
        assert found.gain == pytest.approx(merits.max() - present, abs=1e-9)
        widest = (right - left)[merits >= merits.max() - 1e-9].max()
        chosen = np.argmin(np.abs(middles - np.arctan(found.weight)))
        assert np.arctan(found.weight) == pytest.approx(middles[chosen], abs=1e-9)
        assert (right - left)[chosen] == pytest.approx(widest, abs=1e-9)
        grid = [longhand(name, rest + c * feature, labels, offsets, weights) for c in np.linspace(-5, 5, 21) + 0.0077]
        if penalty == 0.0:
            assert max(grid) <= present + found.gain + 1e-9
        checked.append(found.gain)

    check()
    assert sum(gain > 1e-9 for gain in checked) > 5  # some are not trivial


@pytest.mark.parametrize("name", ["ndcg@10", "ndcg", "map", "err@5", "p@3"])
def test_line_search_handles_long_lists(name: str, rng: np.random.Generator) -> None:
    """Longer than any cutoff, with few feature values and enough lists for several threads."""
    offsets = np.array([0, 30, 31, 80, 80, 120])
    rest, labels = rng.standard_normal(120), rng.integers(0, 4, 120).astype(float)
    weights = rng.random(5)
    for feature in (rng.standard_normal(120), rng.integers(0, 2, 120).astype(float), rng.integers(0, 5, 120) / 3.0):
        found = best_weight(place_metric(name, labels, offsets, weights), offsets, rest, feature, 0.2, 1.0, 0.0)
        assert found is not None
        present, reached = (longhand(name, rest + c * feature, labels, offsets, weights) for c in (0.2, found.weight))
        values = intervals(name, rest, feature, labels, offsets, weights)[2]
        assert reached == pytest.approx(values.max(), abs=1e-10)
        assert found.gain == pytest.approx(reached - present, abs=1e-10)


def test_line_search_takes_the_middle_of_the_widest_best_interval() -> None:
    """Scores 0, c - 1 and c + 5: the relevant middle item is never first, and second for c from -5 to 1."""
    offsets, labels = np.array([0, 3]), np.array([0.0, 1.0, 0.0])
    rest, feature = np.array([0.0, -1.0, 5.0]), np.array([0.0, 1.0, -1.0])  # first for c > 3
    found = best_weight(place_metric("mrr", labels, offsets, np.ones(1)), offsets, rest, feature, 0.0, 1.0, 0.0)
    assert found is not None
    assert found.weight == pytest.approx(np.tan((np.arctan(3.0) + np.pi / 2) / 2))
    assert found.gain == pytest.approx(1.0 - 1.0 / 3.0)
    constant = best_weight(place_metric("mrr", labels, offsets, np.ones(1)), offsets, rest, np.ones(3), 0.0, 1.0, 0.0)
    assert constant is None
