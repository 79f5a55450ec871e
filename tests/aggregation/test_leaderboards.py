"""Leaderboards: dead heats of lists, covariances, ratings, groups, voters, categories, files."""

import itertools
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from data_folder import real_data
from duels import probabilities, simulated
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from plackett import RankAggregator
from plackett.aggregation.ballot_kernels import INFORMATION, VALUE
from plackett.aggregation.ballots import as_ballots, make_rankings
from plackett.aggregation.dead_heats import DeadHeatLikelihood
from plackett.aggregation.simultaneous import PairwiseTests, corrected, letters, significant_ranks
from plackett.aggregation.voters import agreements
from plackett.data import Comparisons, Factor, load_comparisons
from plackett.errors import NoMaximumError

Floats = np.ndarray[Any, Any]


# Dead heats of lists


def enumerated(tiers: list[list[int]], scores: Floats, deltas: list[float]) -> float:
    """log P by all sets that could be chosen at each stage."""
    left = [item for tier in tiers for item in tier]
    total = 0.0
    for tier in tiers:
        weights = [
            deltas[k - 1] * math.exp(math.fsum(scores[i] for i in chosen) / k)
            for k in range(1, min(len(deltas), len(left)) + 1)
            for chosen in itertools.combinations(left, k)
        ]
        own = deltas[len(tier) - 1] * math.exp(math.fsum(scores[i] for i in tier) / len(tier))
        total += math.log(own / math.fsum(weights))
        left = [item for item in left if item not in tier]
    return total


def random_tiers(rng: np.random.Generator, items: int, most: int) -> list[list[int]]:
    order = rng.permutation(items)[: rng.integers(2, items + 1)].tolist()
    tiers = []
    while order:
        size = int(rng.integers(1, most + 1))
        tiers.append(order[:size])
        order = order[size:]
    return tiers


@settings(max_examples=15)
@given(seed=st.integers(0, 10_000), most=st.integers(2, 5), spread=st.sampled_from([0.3, 3.0, 12.0]))
def test_dead_heats_match_enumeration_and_differences(seed: int, most: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    ballots = [random_tiers(rng, 7, most) for _ in range(4)]
    rankings = make_rankings(as_ballots(ballots, names=list(range(7))), keep_ties=True, merge=False)
    likelihood = DeadHeatLikelihood(rankings, np.ones(most - 1, bool))
    x = np.concatenate([spread * rng.standard_normal(7), rng.standard_normal(most - 1)])
    deltas = [1.0, *np.exp(x[7:]).tolist()]
    expected = [enumerated(tiers, x[:7], deltas) for tiers in ballots]
    np.testing.assert_allclose(likelihood.by_ballot(x, VALUE).values, expected, rtol=1e-12, atol=1e-12)
    found = likelihood.evaluate(x, INFORMATION)
    steps = 1e-5 * np.eye(len(x))
    slopes = [(likelihood.evaluate(x + e).value - likelihood.evaluate(x - e).value) / 2e-5 for e in steps]
    bends = [(likelihood.evaluate(x + e).gradient - likelihood.evaluate(x - e).gradient) / 2e-5 for e in steps]
    # Rounding of the value over the step.
    np.testing.assert_allclose(found.gradient, slopes, atol=1e-7)
    np.testing.assert_allclose(found.information, -np.array(bends), atol=1e-6)


def test_dead_heats_fit_matches_a_direct_optimisation() -> None:
    rng = np.random.default_rng(4)
    ballots = [random_tiers(rng, 5, 3) for _ in range(60)]
    model = RankAggregator(ties="davidson").fit(ballots)
    assert model.converged_

    def loss(z: Floats) -> float:
        return -math.fsum(enumerated(tiers, np.append(z[:4], 0.0), [1.0, *np.exp(z[4:])]) for tiers in ballots)

    found = minimize(loss, np.zeros(6), method="BFGS", options={"gtol": 1e-4})
    assert model.log_likelihood_ == pytest.approx(-found.fun, abs=1e-6)
    values = [tie.value for tie in model.tie_parameters_.values()]
    np.testing.assert_allclose(values, np.exp(found.x[4:]), rtol=1e-3)  # BFGS stops there
    assert list(model.tie_parameters_) == ["delta_2", "delta_3"]
    total = model.predict_proba([[0, 1], [{0, 1}], [1, 0]]).sum()
    assert total == pytest.approx(1.0)
    with pytest.raises(ValueError, match="max_tie must be at least the size of the largest tie, 3, got 2"):
        RankAggregator(ties="davidson", max_tie=2).fit(ballots)
    with pytest.raises(ValueError, match="ties='rao-kupper' is for pairs, got a ballot of 5 items"):
        RankAggregator(ties="rao-kupper").fit(ballots)


def test_lists_without_ties_are_strict_ones() -> None:
    rng = np.random.default_rng(0)
    orders = np.array([rng.permutation(5) for _ in range(40)])
    strict, model = RankAggregator().fit(orders), RankAggregator(ties="davidson").fit(orders)
    np.testing.assert_allclose(model.scores_, strict.scores_, atol=1e-9)
    np.testing.assert_allclose(model.covariance_, strict.covariance_, atol=1e-9)
    assert model.log_likelihood_ == pytest.approx(strict.log_likelihood_, abs=1e-9)
    assert model.null_log_likelihood_ == pytest.approx(strict.null_log_likelihood_, abs=1e-9)
    assert model.tie_parameters_["delta_2"].value == 0.0


def test_dead_heats_of_pairs_agree_with_the_model_of_pairs() -> None:
    """One longer ballot sends all through the model of lists; its weight is next to nothing."""
    data = simulated(5)
    pairs = RankAggregator(ties="davidson").fit(data)
    ballots = [[[data.names[i] for i in tier] for tier in tiers] for tiers in _tiers(data)]
    longer = [*ballots, [["item 0"], ["item 1"], ["item 2"]]]
    lists = RankAggregator(ties="davidson").fit(longer, sample_weight=[1.0] * len(ballots) + [1e-9])
    np.testing.assert_allclose(lists.scores_, pairs.scores_, atol=1e-7)
    assert lists.tie_parameters_["delta_2"].value == pytest.approx(pairs.tie_parameters_["delta"].value, rel=1e-7)
    np.testing.assert_allclose(lists.standard_errors_, pairs.standard_errors_, rtol=1e-6)
    for kind in ("sandwich", "cluster"):
        cluster = np.append(np.arange(len(data)) % 20, 0)
        one = RankAggregator(ties="davidson", covariance=kind).fit(
            longer, sample_weight=[1.0] * len(data) + [1e-9], cluster=cluster
        )
        other = RankAggregator(ties="davidson", covariance=kind).fit(data, cluster=cluster[:-1])
        np.testing.assert_allclose(one.standard_errors_, other.standard_errors_, rtol=1e-6)


def _tiers(data: Comparisons) -> list[list[list[int]]]:
    from plackett.data.preflib import tiers_of

    return tiers_of(data.to_ballots())


# Covariances


def longhand_gradients(data: Comparisons, scores: Floats, delta: float) -> Floats:
    """The gradient of each comparison by scores and log delta, in Davidson's model."""
    assert data.outcome is not None
    found = np.zeros((len(data), len(scores) + 1))
    for r in range(len(data)):
        i, j = data.left[r], data.right[r]
        win, tie, loss = probabilities("davidson", scores[i] - scores[j], delta)
        slope = 0.5 * data.outcome[r] - 0.5 * (win - loss)
        found[r, i], found[r, j], found[r, -1] = slope, -slope, (data.outcome[r] == 0) - tie
    return found


def test_sandwich_and_clustered_errors_match_longhand() -> None:
    data = simulated(6, rows=200)
    cluster = np.random.default_rng(0).integers(0, 15, len(data))
    model = RankAggregator(ties="davidson", covariance="model").fit(data)
    gradients = longhand_gradients(data, model.scores_, model.tie_parameters_["delta"].value)
    fit = model._fit
    assert fit is not None
    information = fit.data.evaluate(fit.parameters, INFORMATION).information
    bread = np.linalg.pinv(information)
    centre = np.eye(5) - 0.2
    for kind, middle in (
        ("sandwich", gradients.T @ gradients),
        ("cluster", 15 / 14 * sum(np.outer(s, s) for s in (gradients[cluster == c].sum(axis=0) for c in range(15)))),
    ):
        expected = (bread @ middle @ bread)[:5, :5]
        found = RankAggregator(ties="davidson", covariance=kind).fit(data, cluster=cluster)
        np.testing.assert_allclose(found.covariance_, centre @ expected @ centre, rtol=1e-7, atol=1e-12)


def test_ballots_have_robust_errors_too() -> None:
    data = simulated(7, tied=0.0)
    cluster = np.arange(len(data)) % 10
    for kind in ("sandwich", "cluster"):
        pairs = RankAggregator(covariance=kind).fit(data, cluster=cluster)
        ballots = RankAggregator(covariance=kind).fit(data.to_ballots(), cluster=cluster)
        np.testing.assert_allclose(ballots.standard_errors_, pairs.standard_errors_, rtol=1e-7)


@pytest.mark.parametrize("ties", ["davidson", "rao-kupper", "half"])
@pytest.mark.parametrize("clustered", [False, True])
def test_bootstrap_agrees_with_the_sandwich(ties: str, clustered: bool) -> None:
    data = simulated(8, rows=600)
    if clustered:
        data = replace(data, cluster=Factor((np.arange(600) % 60).astype(np.int32), list(range(60))))
    boot = RankAggregator(ties=ties, covariance="bootstrap", bootstrap_samples=2000).fit(data)
    other = RankAggregator(ties=ties, covariance="cluster" if clustered else "sandwich").fit(data)
    # 2,000 rounds: 1.6 % sampling error; the rest is the difference between the two in finite samples.
    np.testing.assert_allclose(boot.standard_errors_, other.standard_errors_, rtol=0.12)
    again = RankAggregator(ties=ties, covariance="bootstrap", bootstrap_samples=2000).fit(data)
    np.testing.assert_array_equal(again.covariance_, boot.covariance_)


def test_each_bootstrap_round_is_a_maximum() -> None:
    """Rounds of the compiled bootstrap have the gradient zero for some positive weights: their mean is the estimate."""
    data = simulated(9, rows=2000)
    model = RankAggregator(ties="davidson").fit(data)
    fit = model._fit
    assert fit is not None
    drawn = fit.draw(400, np.random.default_rng(0))
    errors = np.sqrt(np.diag(model.covariance_))
    np.testing.assert_allclose(drawn[:, :5].mean(axis=0), model.scores_, atol=5 * errors.max() / math.sqrt(400))
    assert 0.8 < (drawn[:, :5].std(axis=0) / errors).mean() < 1.2


def simulated_board(rng: np.random.Generator, clustered: bool) -> tuple[Comparisons, Floats]:
    """Six items, 40 voters; with `clustered`, voters have tastes of their own and vote 15 times each."""
    items, voters, each = 6, 40, 15
    truth = np.linspace(-1.0, 1.0, items)
    voter = np.repeat(np.arange(voters), each)
    left = rng.integers(0, items, voters * each)
    right = (left + rng.integers(1, items, voters * each)) % items
    tastes = rng.standard_normal((voters, items)) if clustered else np.zeros((voters, items))
    eta = truth[left] - truth[right] + tastes[voter, left] - tastes[voter, right]
    chances = np.array([probabilities("davidson", float(e), 0.8) for e in eta])
    draws = rng.random(len(eta))
    outcome = np.where(draws < chances[:, 0], 1, np.where(draws < chances[:, 0] + chances[:, 1], 0, -1))
    cluster = Factor(voter.astype(np.int32), list(range(voters)))
    return Comparisons(left, right, outcome, [str(k) for k in range(items)], cluster=cluster), truth


def coverage(kind: str, clustered: bool, boards: int) -> float:
    """The share of 95% intervals of scores that hold what they estimate."""
    rng = np.random.default_rng(1)
    made = [simulated_board(rng, clustered)[0] for _ in range(boards)]
    models = [RankAggregator(ties="davidson", covariance=kind).fit(data) for data in made]
    # With tastes, what is estimated is the score of the population, which the mean of the boards gives.
    aim = np.mean([model.scores_ for model in models], axis=0) if clustered else np.linspace(-1.0, 1.0, 6)
    inside = [abs(model.scores_ - aim) <= 1.96 * model.standard_errors_ for model in models]
    return float(np.mean(inside))


def test_intervals_cover_the_truth() -> None:
    """500 boards of six scores, so that the share has a standard error below one percent."""
    assert 0.93 <= coverage("model", clustered=False, boards=500) <= 0.97


def test_only_clustered_intervals_cover_the_truth_of_clustered_votes() -> None:
    assert coverage("model", clustered=True, boards=200) < 0.90
    assert 0.93 <= coverage("cluster", clustered=True, boards=500) <= 0.97


def test_too_few_clusters_are_refused() -> None:
    data = simulated(1)
    with pytest.raises(ValueError, match="covariance='cluster' needs at least two clusters, got none"):
        RankAggregator(ties="half", covariance="cluster").fit(data)
    with pytest.raises(ValueError, match="needs at least two clusters, got one cluster"):
        RankAggregator(ties="half").fit(data, cluster=["me"] * len(data))


def test_collinear_and_separating_features_are_refused() -> None:
    data = simulated(1, features=1)
    assert data.features is not None
    twice = np.repeat(data.features, 2, axis=1)
    items = (data.left == 2).astype(float) - (data.right == 2)
    for prior in (0.0, 0.5):
        for name, columns in (("b", {"a": twice[:, 0], "b": twice[:, 1]}), ("z", {"z": np.zeros(len(data))})):
            with pytest.raises(ValueError, match=f"features must be linearly independent of .*, got '{name}', which"):
                RankAggregator(ties="half", prior=prior).fit(data, features=pd.DataFrame(columns))
    with pytest.raises(ValueError, match="got 'feature1', which the items and the other features determine"):
        RankAggregator(ties="davidson").fit(data, features=items)
    with pytest.warns(UserWarning, match="the data alone do not determine all scores"):
        assert RankAggregator(ties="davidson", ridge=1.0).fit(data, features=items).converged_
    telling = np.asarray(data.outcome, float)[:, None]
    with pytest.raises(NoMaximumError, match="especially 'feature1', separate wins from losses perfectly"):
        RankAggregator(ties="half").fit(data, features=telling)
    assert RankAggregator(ties="half", feature_ridge=1.0).fit(data, features=telling).coef_[0] > 1.0
    with pytest.raises(ValueError, match=r"features must be among those of the comparisons \(x0\), got 'x7'"):
        RankAggregator(ties="half").fit(data, features=["x7"])
    assert not hasattr(RankAggregator(ties="half").fit(data, features=[]), "coef_")


# Presentation


def test_ratings_have_the_scale_of_elo() -> None:
    model = RankAggregator(ties="half").fit(simulated(2))
    plain = model.ratings()
    assert plain.ratings.mean() == pytest.approx(1000.0)
    odds = math.exp(model.scores_[0] - model.scores_[1])
    assert 10 ** ((plain.ratings[0] - plain.ratings[1]) / 400) == pytest.approx(odds)
    fixed = model.ratings(anchor=("item 2", 1500.0))
    assert fixed["item 2"] == 1500.0
    np.testing.assert_allclose(fixed.high - fixed.low, plain.high - plain.low)
    np.testing.assert_allclose((fixed.high - fixed.low) / 2, 1.959964 * 400 / math.log(10) * model.standard_errors_)
    with pytest.raises(ValueError, match="anchor must be one of the model's 5 items, got 'nobody'"):
        model.ratings(anchor=("nobody", 1.0))
    for library in ("pandas", "polars"):
        frame = model.to_frame(library, anchor=("item 2", 1500.0))
        assert frame["rating"].to_list() == sorted(fixed.ratings.tolist(), reverse=True)
        assert set(frame["group"].to_list()) == set(model.letters())


def test_holm_matches_its_definition() -> None:
    p = np.array([0.01, 0.04, 0.03, 0.005])
    np.testing.assert_allclose(corrected(p, "holm"), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(corrected(p, "bonferroni"), [0.04, 0.16, 0.12, 0.02])
    np.testing.assert_allclose(corrected(p, "none"), p)


def test_pairwise_tests_list_every_pair_once_best_items_first() -> None:
    model = RankAggregator(ties="half").fit(simulated(2))
    order = np.argsort(-model.scores_)
    rows = list(model.pairwise_tests())
    assert [row[:2] for row in rows] == list(itertools.combinations([model.items_[k] for k in order], 2))
    for first, second, difference, error, _ in rows:
        found = model.difference(first, second)
        assert (difference, error) == (pytest.approx(found.difference), pytest.approx(found.standard_error))


@pytest.mark.parametrize("features", [0, 1])
def test_clusters_of_dropped_items_are_left_out(features: int) -> None:
    """An item that always loses is dropped; errors are those of the comparisons without it."""
    data = simulated(4, rows=200, features=features)
    data = replace(data, cluster=Factor(np.arange(200, dtype=np.int32) % 20, list(range(20))))
    x = None if data.features is None else np.concatenate([data.features, np.zeros((20, features))])
    more = Comparisons(
        np.concatenate([data.left, np.arange(20) % 5]), np.concatenate([data.right, np.full(20, 5)]),
        np.concatenate([data.outcome, np.ones(20, np.int8)]), [*data.names, "last"], features=x,
        feature_names=data.feature_names, cluster=Factor(np.arange(220, dtype=np.int32) % 20, list(range(20))),
    )  # fmt: skip
    wanted = RankAggregator(ties="half").fit(data)
    with pytest.warns(UserWarning, match="of worth 0, because they beat none of the others: last"):
        found = RankAggregator(ties="half").fit(more)
    assert found.outside_ == {"below": ["last"]}
    np.testing.assert_allclose(found.standard_errors_, wanted.standard_errors_, rtol=1e-6)


def test_counts_of_many_items_match_those_of_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    data = simulated(5)
    wanted = RankAggregator(ties="davidson").fit(data).scores_
    monkeypatch.setattr("plackett.aggregation.pair_rows._LARGEST_TABLE", 0)
    np.testing.assert_array_equal(RankAggregator(ties="davidson").fit(data).scores_, wanted)


@given(st.integers(0, 10_000), st.integers(2, 9), st.floats(0.0, 1.0))
def test_items_share_a_letter_exactly_if_they_cannot_be_distinguished(seed: int, n: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    scores = np.sort(rng.standard_normal(n))[::-1]
    p_values = np.where(np.triu(rng.random((n, n)) < share, 1), 0.0, 1.0)
    p_values = np.minimum(p_values, p_values.T)
    tests = PairwiseTests(list(range(n)), scores[:, None] - scores[None, :], np.ones((n, n)), p_values, "none")
    found = [set(re.findall(r"[a-z]\d*", text)) for text in letters(tests, 0.95)]
    for i, j in itertools.combinations(range(n), 2):
        assert bool(found[i] & found[j]) == (p_values[i, j] > 0.5)
    low, high = significant_ranks(tests, 0.95)
    assert [int(k) for k in low] == [1 + int((p_values[i, :i] < 0.5).sum()) for i in range(n)]
    assert [int(k) for k in high] == [n - int((p_values[i, i:] < 0.5).sum()) for i in range(n)]


def test_figures_are_drawn(tmp_path: Path) -> None:
    data = simulated(3)
    model = RankAggregator(ties="davidson").fit(data)
    for kind in ("worths", "probabilities", "calibration"):
        model.plot(tmp_path / f"{kind}.svg", kind=kind, data=data)
        assert "<svg" in (tmp_path / f"{kind}.svg").read_text()
    with pytest.raises(ValueError, match="needs data=, Comparisons with outcomes"):
        model.plot(kind="calibration")


# Categories, time, voters, more comparisons


def test_categories_have_boards_of_their_own(tmp_path: Path) -> None:
    data = simulated(4, rows=400)
    data = replace(data, by=Factor((np.arange(400) % 2).astype(np.int32), ["even", "odd"]))
    model = RankAggregator(ties="davidson").fit(data)
    for k, name in enumerate(("even", "odd")):
        alone = RankAggregator(ties="davidson").fit(replace(data.select(np.arange(400) % 2 == k), by=None))
        np.testing.assert_array_equal(model.boards_[name].scores_, alone.scores_)
    shared = RankAggregator(ties="davidson", groups="shared").fit(data)
    away = [abs(m.boards_["odd"].scores_ - m.scores_).sum() for m in (model, shared)]
    assert away[1] < away[0]
    differences = model.category_differences()
    assert len(differences) == 5
    gap = model.boards_["even"].scores_[0] - model.boards_["odd"].scores_[0]
    assert differences[0].difference == pytest.approx(gap)
    model.save(tmp_path / "model")
    loaded = RankAggregator.load(tmp_path / "model")
    assert loaded.category_differences() == differences
    few = replace(data, by=Factor(np.where(np.arange(400) == 0, 1, 0).astype(np.int32), ["most", "one"]))
    with pytest.raises(ValueError, match=r"category 'one' cannot be fitted: .* Leave it out, or set a prior"):
        RankAggregator(ties="half").fit(few)


def test_age_weighs_comparisons() -> None:
    data = replace(simulated(5, rows=100), time=np.arange(100.0))
    found = RankAggregator(ties="half", half_life=20.0).fit(data)
    by_hand = RankAggregator(ties="half").fit(data, sample_weight=0.5 ** ((99.0 - data.time) / 20.0))  # type: ignore
    np.testing.assert_allclose(found.scores_, by_hand.scores_, atol=1e-9)
    recent = RankAggregator(ties="half", window=49.0).fit(data)
    np.testing.assert_allclose(
        recent.scores_, RankAggregator(ties="half").fit(data.select(np.arange(50, 100))).scores_, atol=1e-9
    )
    with pytest.raises(ValueError, match="half_life and window need the time of comparisons"):
        RankAggregator(ties="half", half_life=1.0).fit(simulated(5))


@pytest.mark.parametrize("groups", ["separate", "shared"])
def test_boards_of_categories_use_the_arguments_of_fit(groups: str) -> None:
    """Features, weights and clusters as arguments of `fit`, or as parts of the comparisons."""
    rng = np.random.default_rng(0)
    data = replace(simulated(4, rows=600), by=Factor(rng.integers(0, 2, 600).astype(np.int32), ["day", "night"]))
    x, weight, voter = rng.standard_normal((600, 1)), rng.integers(0, 4, 600), rng.integers(0, 30, 600)
    whole = replace(
        data, features=x, feature_names=("x",), weight=weight.astype(np.float64),
        cluster=Factor(voter.astype(np.int32), list(range(30))),
    )  # fmt: skip
    one = RankAggregator(ties="davidson", groups=groups).fit(whole)
    other = RankAggregator(ties="davidson", groups=groups).fit(
        data, features=pd.DataFrame({"x": x[:, 0]}), sample_weight=weight, cluster=voter
    )
    for name in ("day", "night"):
        for attribute in ("scores_", "coef_", "standard_errors_", "coef_standard_errors_"):
            np.testing.assert_allclose(
                getattr(one.boards_[name], attribute), getattr(other.boards_[name], attribute), atol=1e-12
            )
        assert one.boards_[name].covariance_kind_ == other.boards_[name].covariance_kind_ == "cluster"


def test_partial_fit_starts_from_the_estimate() -> None:
    data = simulated(7, rows=5000, features=1)
    parts = RankAggregator(ties="davidson").fit(data.select(np.arange(4999)))
    again = RankAggregator(ties="davidson").fit(data)
    parts.partial_fit(data.select(np.arange(4999, 5000)))
    assert parts.n_iter_ < again.n_iter_
    np.testing.assert_allclose(parts.coef_, again.coef_, atol=1e-8)


def test_random_voters_are_found() -> None:
    rng = np.random.default_rng(0)
    data = simulated(6, rows=1200, items=5, tied=0.1)
    voter = np.arange(1200) % 12
    outcome = np.where(voter == 7, rng.integers(-1, 2, 1200), data.outcome)
    outcome = np.where((voter == 3) & (outcome != 0), np.sign(data.left - data.right), outcome)
    data = replace(data, outcome=outcome.astype(np.int8), cluster=Factor(voter.astype(np.int32), list(range(12))))
    model = RankAggregator(ties="davidson", voters="reliability").fit(data)
    assert model.voters_[0].name == 7
    assert model.voters_[0].reliability < 0.5
    assert model.voters_[-1].name == 3
    plain = RankAggregator(ties="davidson").fit(data)
    assert np.ptp(model.scores_) > np.ptp(plain.scores_)  # without the noise of voter 7
    with pytest.raises(ValueError, match="voters='reliability' needs to know who voted"):
        RankAggregator(ties="davidson", voters="reliability").fit(replace(data, cluster=None))


def test_agreement_of_voters_matches_longhand() -> None:
    votes = {"left": ["a", "b", "a", "b", "c"], "right": ["b", "a", "c", "c", "b"]}
    votes |= {"winner": ["left", "left", "tie", "right", "left"], "who": ["x", "y", "x", "x", "y"]}
    (found,) = agreements(load_comparisons(votes, cluster="who"))
    # Shared: a-b, on which they differ (x: a, y: b), and b-c, on which both say c.
    assert (found.first, found.second, found.shared, found.agreement) == ("x", "y", 2, 0.5)
    assert found.kappa == pytest.approx((0.5 - 0.5) / (1 - 0.5))


def test_partial_fit_is_the_fit_to_all(tmp_path: Path) -> None:
    data = simulated(7, rows=300)
    whole = RankAggregator(ties="davidson").fit(data)
    parts = RankAggregator(ties="davidson").partial_fit(data.select(np.arange(100)))
    parts.save(tmp_path / "model")
    for model in (parts, RankAggregator.load(tmp_path / "model")):
        model.partial_fit(data.select(np.arange(100, 200))).partial_fit(data.select(np.arange(200, 300)))
        np.testing.assert_allclose(model.scores_, whole.scores_, atol=1e-9)
        assert model.ballots_hash_ == whole.ballots_hash_
    x = simulated(7, rows=300, features=2)
    whole = RankAggregator(ties="davidson").fit(x)
    parts = RankAggregator(ties="davidson").fit(x.select(np.arange(200))).partial_fit(x.select(np.arange(200, 300)))
    np.testing.assert_allclose(parts.coef_, whole.coef_, atol=1e-8)


def test_saved_models_of_comparisons_can_be_loaded(tmp_path: Path) -> None:
    data = simulated(8, features=2)
    data = replace(data, cluster=Factor((np.arange(300) % 30).astype(np.int32), list(range(30))))
    model = RankAggregator(ties="rao-kupper", voters="reliability", covariance="sandwich").fit(data)
    model.save(tmp_path / "model")
    loaded = RankAggregator.load(tmp_path / "model")
    for name in ("scores_", "covariance_", "coef_", "coef_standard_errors_"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(model, name))
    for name in ("tie_parameters_", "coef_names_", "voters_", "covariance_kind_", "items_"):
        assert getattr(loaded, name) == getattr(model, name)
    np.testing.assert_array_equal(loaded.predict_proba(data), model.predict_proba(data))


# Peers


def test_evalica_agrees() -> None:
    evalica = pytest.importorskip("evalica")
    data = load_comparisons(real_data("llmfao", "crowd-comparisons.csv.xz"))
    names, words = list(data.names), {1: evalica.Winner.X, 0: evalica.Winner.Draw, -1: evalica.Winner.Y}
    assert data.outcome is not None
    sides = [[names[k] for k in side] for side in (data.left, data.right)]
    votes = [words[int(o)] for o in data.outcome]
    options = {"limit": 100_000, "tolerance": 1e-14}
    strict = data.outcome != 0
    found = evalica.bradley_terry(
        [s for s, keep in zip(sides[0], strict, strict=True) if keep],
        [s for s, keep in zip(sides[1], strict, strict=True) if keep],
        [v for v, keep in zip(votes, strict, strict=True) if keep], **options,
    )  # fmt: skip
    ours = RankAggregator(prior=0.0).fit(data.select(strict))
    theirs = np.log(found.scores[ours.items_].to_numpy(float))
    np.testing.assert_allclose(ours.scores_, theirs - theirs.mean(), atol=1e-6)
    found = evalica.bradley_terry(*sides, votes, win_weight=1.0, tie_weight=0.5, **options)
    ours = RankAggregator(ties="half").fit(data)
    theirs = np.log(found.scores[ours.items_].to_numpy(float))
    np.testing.assert_allclose(ours.scores_, theirs - theirs.mean(), atol=1e-6)
    found = evalica.newman(*sides, votes, **options)
    ours = RankAggregator(ties="davidson").fit(data)
    theirs = np.log(found.scores[ours.items_].to_numpy(float))
    np.testing.assert_allclose(ours.scores_, theirs - theirs.mean(), atol=1e-6)
