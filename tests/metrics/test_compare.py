"""Paired tests, intervals and corrections against scipy, known coverage and explicit formulas."""

import io
import math

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from plackett import metrics


@pytest.fixture
def systems(rng):
    base = rng.random(50)
    return {
        "base": base,
        "same": base.copy(),
        "better": base + 0.05 + 0.1 * rng.standard_normal(50),
        "worse": base - 0.2 * rng.random(50),
    }


def test_p_values_match_scipy(systems):
    result = metrics.compare(systems["better"], systems["base"])
    assert result.t_test == pytest.approx(stats.ttest_rel(systems["better"], systems["base"]).pvalue, rel=1e-10)
    assert result.wilcoxon == stats.wilcoxon(systems["better"] - systems["base"]).pvalue
    assert result.difference == pytest.approx(np.mean(systems["better"] - systems["base"]), abs=1e-14)
    assert (result.first_mean, result.second_mean) == (systems["better"].mean(), systems["base"].mean())
    assert result.interval[0] < result.difference < result.interval[1]
    assert (result.lists, result.dropped) == (50, 0)


def test_swapping_the_systems_flips_the_difference(systems):
    one = metrics.compare(systems["better"], systems["base"])
    other = metrics.compare(systems["base"], systems["better"])
    assert other.difference == -one.difference
    assert other.t_test == pytest.approx(one.t_test, rel=1e-12)
    assert other.wilcoxon == pytest.approx(one.wilcoxon, rel=1e-12)


def test_zero_and_tied_differences_match_scipy():
    """The Wilcoxon test drops lists on which both systems are equal, as scipy does by default."""
    a = np.array([1.0, 0.5, 0.5, 0.75, 0.25, 1.0, 0.0, 0.5, 0.5, 0.25])
    b = np.array([0.5, 0.5, 0.25, 0.5, 0.5, 0.5, 0.0, 0.25, 0.5, 0.0])
    expected = stats.wilcoxon((a - b)[a != b]).pvalue
    assert metrics.compare(a, b).wilcoxon == expected


def test_equal_systems_have_p_value_one(systems):
    result = metrics.compare(systems["base"], systems["same"])
    assert (result.t_test, result.wilcoxon) == (1.0, 1.0)
    assert result.interval == (0.0, 0.0)
    for method in ("percentile", "bca"):
        assert metrics.confidence_interval([0.25] * 5, method=method) == (0.25, 0.25)


def test_constant_difference_has_a_degenerate_interval():
    result = metrics.compare([1.0, 0.5, 0.75], [0.75, 0.25, 0.5])
    assert result.t_test == 0.0
    assert result.wilcoxon == 0.25  # the smallest value possible with three lists
    assert result.interval == (0.25, 0.25)


def test_lists_without_a_value_are_dropped(systems):
    a, b = systems["better"].copy(), systems["base"].copy()
    a[3] = b[7] = b[8] = np.nan
    kept = ~np.isnan(a + b)
    result, expected = metrics.compare(a, b), metrics.compare(a[kept], b[kept])
    assert (result.lists, result.dropped) == (47, 3)
    assert (result.t_test, result.wilcoxon, result.interval) == (
        expected.t_test,
        expected.wilcoxon,
        expected.interval,
    )


def test_several_systems_are_compared_in_pairs(systems):
    every = metrics.compare(systems, correction="none")
    assert [(pair.first, pair.second) for pair in every] == [
        ("base", "same"), ("base", "better"), ("base", "worse"),
        ("same", "better"), ("same", "worse"), ("better", "worse"),
    ]  # fmt: skip
    against = metrics.compare(systems, baseline="base", correction="bonferroni")
    assert [(pair.first, pair.second) for pair in against] == [("same", "base"), ("better", "base"), ("worse", "base")]
    alone = metrics.compare(systems["better"], systems["base"])
    assert against[1].t_test == pytest.approx(min(1.0, 3 * alone.t_test), rel=1e-12)
    assert against[1].wilcoxon == pytest.approx(min(1.0, 3 * alone.wilcoxon), rel=1e-12)
    assert against[0].t_test == 1.0
    assert len(against) == 3


P_VALUES = [0.01, 0.5, 0.02, 0.03, 0.9]


def test_corrections_match_the_formulas():
    ranked = sorted(P_VALUES)
    n = len(ranked)
    holm = {p: min(1.0, max(ranked[j] * (n - j) for j in range(i + 1))) for i, p in enumerate(ranked)}
    discovery = {p: min(ranked[j] * n / (j + 1) for j in range(i, n)) for i, p in enumerate(ranked)}
    np.testing.assert_allclose(metrics.correct(P_VALUES, "holm"), [holm[p] for p in P_VALUES], rtol=1e-14)
    np.testing.assert_allclose(
        metrics.correct(P_VALUES, "benjamini-hochberg"), [discovery[p] for p in P_VALUES], rtol=1e-14
    )
    np.testing.assert_allclose(
        metrics.correct(P_VALUES, "benjamini-hochberg"), stats.false_discovery_control(P_VALUES), rtol=1e-14
    )
    np.testing.assert_array_equal(metrics.correct(P_VALUES, "bonferroni"), np.minimum(1.0, 5 * np.array(P_VALUES)))
    np.testing.assert_array_equal(metrics.correct(P_VALUES, "none"), P_VALUES)
    assert metrics.correct([]).tolist() == []


@pytest.mark.parametrize("method", ["percentile", "bca"])
def test_interval_matches_scipy(method, rng):
    """The 10,000 draws differ: the ends move by about a hundredth of the width (five standard errors)."""
    values = rng.exponential(size=40)
    ours = metrics.confidence_interval(values, method=method, confidence=0.9)
    theirs = stats.bootstrap(
        (values,), np.mean, method=method, confidence_level=0.9, n_resamples=10_000, rng=np.random.default_rng(3)
    ).confidence_interval
    np.testing.assert_allclose(ours, theirs, atol=0.05 * (theirs.high - theirs.low))


def test_bca_interval_shifts_towards_the_long_tail(rng):
    values = rng.exponential(size=30)
    plain, corrected = (metrics.confidence_interval(values, method=m) for m in ("percentile", "bca"))
    assert corrected[0] > plain[0]
    assert corrected[1] > plain[1]


def test_intervals_have_the_stated_coverage(rng):
    """300 samples of 60 normal values. Percentile intervals cover the mean in about 94 % of such samples: fewer than
    264 of the 300 in 1 of 100,000 experiments, all 300 in 1 of a million."""
    hits = 0
    for sample in rng.standard_normal((300, 60)):
        low, high = metrics.confidence_interval(sample, resamples=500, random_state=rng)
        hits += low <= 0.0 <= high
    assert 264 <= hits < 300


def test_intervals_depend_only_on_the_seed(rng, monkeypatch):
    values = rng.random(100)
    assert metrics.confidence_interval(values) == metrics.confidence_interval(values, random_state=0)
    assert metrics.confidence_interval(values) != metrics.confidence_interval(values, random_state=1)
    with_nan = np.insert(values, 5, np.nan)
    assert metrics.confidence_interval(with_nan) == metrics.confidence_interval(values)
    whole = metrics.confidence_interval(values)
    monkeypatch.setattr("plackett.metrics.comparison._DRAWS_AT_ONCE", 1000)  # drawing in pieces gives the same numbers
    assert metrics.confidence_interval(values) == whole
    assert all(math.isnan(end) for end in metrics.confidence_interval([np.nan]))


def test_comparison_is_printed_as_a_table(systems):
    table = metrics.compare(systems, baseline="base")
    lines = str(table).splitlines()
    assert len(lines) == 4
    assert lines[0].split()[:4] == ["first", "second", "mean", "mean"]
    assert lines[2].startswith("better")
    assert f"{table[1].difference:+.4f}" in lines[2]
    assert str(table[1]).splitlines()[1].split() == lines[2].split()
    shown = io.StringIO()
    Console(file=shown, width=140).print(table)
    assert f"[{table[1].interval[0]:+.4f}, {table[1].interval[1]:+.4f}]" in shown.getvalue()
    assert "correction: holm" in shown.getvalue()


def test_metric_values_can_be_compared(rng):
    labels, offsets = rng.integers(0, 3, 400), np.arange(41) * 10
    good, bad = labels + rng.standard_normal(400), rng.standard_normal(400)
    values = {
        name: metrics.ndcg(scores, labels, offsets=offsets, k=5, reduction="none")
        for name, scores in (("good", good), ("bad", bad))
    }
    result = metrics.compare(values)[0]
    assert result.difference > 0.1
    assert result.t_test < 0.001


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([0.1, 0.2], [0.1]), {}, "b must hold a value for each of the 2 lists of a, got 1"),
        (([0.1, np.nan], [0.1, 0.2]), {}, "a and b must share at least two lists with values, got 1"),
        (([0.1, np.inf], [0.1, 0.2]), {}, "a must be finite or NaN, got inf"),
        (([[0.1]], [[0.2]]), {}, "a must hold one value per list, got 2 dimensions"),
        (({"x": [0.1, 0.2]},), {}, "a must be a dict of at least two systems"),
        (([0.1, 0.2],), {}, "a must be a dict of at least two systems"),
        (({"x": [0.1, 0.2], "y": [0.1, 0.3]},), {"baseline": "z"}, "baseline must be one of x, y, got 'z'"),
        (([0.1, 0.2], [0.1, 0.3]), {"baseline": "a"}, "baseline None when b is given"),
        (([0.1, 0.2], [0.1, 0.3]), {"correction": "sidak"}, "correction must be one of 'holm', .*got 'sidak'"),
        (([0.1, 0.2], [0.1, 0.3]), {"confidence": 95}, "confidence must be a number between 0 and 1, got 95"),
        (([0.1, 0.2], [0.1, 0.3]), {"method": "basic"}, "method must be one of 'percentile', 'bca', got 'basic'"),
        (([0.1, 0.2], [0.1, 0.3]), {"resamples": 0}, "resamples must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_input_is_refused(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        metrics.compare(*arguments, **options)
