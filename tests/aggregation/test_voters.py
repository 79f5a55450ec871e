"""Voters of ballots and comparisons: their reliability, their weight in the bootstrap, how far they agree."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from plackett import RankAggregator
from plackett.aggregation import agreements, voters
from plackett.aggregation.ballot_kernels import INFORMATION
from plackett.aggregation.ballots import as_ballots, make_rankings
from plackett.aggregation.dead_heats import DeadHeatLikelihood
from plackett.aggregation.evidence import BallotLikelihood, BallotsInMemory
from plackett.aggregation.reading import Reading, read_evidence
from plackett.aggregation.solvers import solve
from plackett.data import Ballots, Comparisons, Factor

Floats = np.ndarray[Any, Any]

R_ORDERS = [
    ["apple", "banana", "orange"],
    ["banana", "orange", "pear"],
    ["banana", "apple", "pear"],
    ["apple", "banana", "orange"],
    ["orange", "apple", "pear"],
    ["apple", "pear", "orange"],
    ["apple", "banana"],
    ["banana", "orange"],
]


def drawn_ballots(rng: np.random.Generator, factors: Floats, items: int = 5, tied: float = 0.0) -> Ballots:
    """One ballot for each factor: all items, in an order drawn from scores times the factor."""
    scores = np.linspace(1.5, -1.5, items)
    order = np.argsort(-(factors[:, None] * scores + rng.gumbel(size=(len(factors), items))), axis=1)
    drops = np.where(rng.random(order.shape) < tied, 0.0, 1.0)
    labels = -np.cumsum(drops, axis=1)
    offsets = items * np.arange(len(factors) + 1)
    names = [f"item {k}" for k in range(items)]
    return Ballots(order.reshape(-1), labels.reshape(-1), offsets, np.ones(len(factors)), names)


@pytest.mark.parametrize("ties", ["unknown", "davidson"])
@given(seed=st.integers(0, 10_000))
def test_derivatives_of_scaled_ballots_match_differences(ties: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scales = rng.uniform(0.3, 2.0, 6)
    ballots = drawn_ballots(rng, scales, items=6, tied=0.35)
    likelihood: Any
    if ties == "unknown":
        likelihood = BallotLikelihood(make_rankings(ballots, scales=scales))
    else:
        likelihood = DeadHeatLikelihood.from_rankings(make_rankings(ballots, keep_ties=True, scales=scales), 6)
    x = rng.standard_normal(likelihood.items + likelihood.ties)
    found = likelihood.evaluate(x, INFORMATION)
    steps = 1e-5 * np.eye(len(x))
    slopes = [(likelihood.evaluate(x + e).value - likelihood.evaluate(x - e).value) / 2e-5 for e in steps]
    bends = [(likelihood.evaluate(x + e).gradient - likelihood.evaluate(x - e).gradient) / 2e-5 for e in steps]
    # Central differences: rounding of the value over the step, and its third derivative.
    np.testing.assert_allclose(found.gradient, slopes, atol=1e-8, rtol=1e-7)
    np.testing.assert_allclose(found.information, -np.array(bends), atol=1e-8, rtol=1e-7)
    own = likelihood.rankings.scales
    value, gradient, by_scale = likelihood.scale_slopes(x)
    assert value == pytest.approx(found.value, abs=1e-12)
    np.testing.assert_allclose(gradient, found.gradient, atol=1e-12)
    for k in range(len(own)):
        change = 1e-5 * (np.arange(len(own)) == k)
        up, down = (likelihood.scaled(own * np.exp(sign * change)).evaluate(x).value for sign in (1, -1))
        assert by_scale[k] == pytest.approx((up - down) / 2e-5, abs=1e-8, rel=1e-7)


@pytest.mark.parametrize("ties", ["unknown", "davidson"])
def test_equal_scales_are_a_change_of_units(ties: str) -> None:
    """Utilities times 2 for every ballot: half the scores, the same likelihood, half the errors."""
    ballots = drawn_ballots(np.random.default_rng(0), np.ones(60), tied=0.2)
    cluster = np.arange(60) % 7
    evidence: Any = read_evidence(ballots, Reading(ties), None, cluster)
    scaled = evidence.by_voter(np.full(7, 2.0))
    plain, doubled = (solve(one.problem(), "newton", 1e-9, 100).parameters for one in (evidence, scaled))
    n = 5
    np.testing.assert_allclose(2 * doubled[:n], plain[:n], atol=1e-9)
    np.testing.assert_allclose(doubled[n:], plain[n:], atol=1e-9)
    for how in ("squares", "clustered_squares"):
        one, other = getattr(evidence, how)(plain), getattr(scaled, how)(doubled)
        np.testing.assert_allclose(other[:n, :n], 4 * one[:n, :n], rtol=1e-7)
        np.testing.assert_allclose(other[n:, :n], 2 * one[n:, :n], atol=1e-7)


@pytest.mark.parametrize("ties", ["unknown", "davidson"])
@pytest.mark.parametrize("prior", [0.0, 0.5])
def test_random_voters_of_ballots_are_found(ties: str, prior: float) -> None:
    rng = np.random.default_rng(1)
    factors = np.repeat([1.0, 1.0, 0.0, 1.0, 3.0], 60)
    ballots = drawn_ballots(rng, factors, tied=0.1)
    names = np.repeat(["ann", "bob", "coin", "dan", "expert"], 60)
    model = RankAggregator(ties=ties, voters="reliability", prior=prior).fit(ballots, cluster=names)
    assert [voter.name for voter in model.voters_][:: len(model.voters_) - 1] == ["coin", "expert"]
    assert [voter.name for voter in model.voters_ if voter.reliability < 0.5] == ["coin"]
    assert model.covariance_kind_ == "cluster"
    assert all(voter.comparisons == 60 for voter in model.voters_)
    plain = RankAggregator(ties=ties, prior=prior).fit(ballots)
    assert np.ptp(model.scores_) > np.ptp(plain.scores_)  # without the noise of the coin


def test_reliability_of_pairs_and_of_lists_of_two_agree() -> None:
    rng = np.random.default_rng(2)
    left = rng.integers(0, 4, 200)
    right = (left + rng.integers(1, 4, 200)) % 4
    outcome = np.where(rng.random(200) < 1 / (1 + np.exp(right - left)), 1, -1)
    who = (np.arange(200) % 5).astype(np.int32)
    pairs = Comparisons(left, right, outcome, list("abcd"), cluster=Factor(who, list("vwxyz")))
    one = RankAggregator(voters="reliability", prior=0.5).fit(pairs)
    other = RankAggregator(voters="reliability", prior=0.5).fit(
        pairs.to_ballots(), cluster=np.array(list("vwxyz"))[who]
    )
    np.testing.assert_allclose(one.scores_, other.scores_, atol=1e-4)  # L-BFGS stops there
    for first, second in zip(one.voters_, other.voters_, strict=True):
        assert first.name == second.name
        assert first.reliability == pytest.approx(second.reliability, abs=1e-4)
        assert first.gain == pytest.approx(second.gain, abs=1e-4)
    np.testing.assert_allclose(one.covariance_, other.covariance_, atol=1e-4)


def test_reliability_matches_r(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stored result of R's PlackettLuce for its test of estimated adherence with pseudo-rankings.

    R alternates between worths and adherence and stops when neither changes much: after two rounds here.
    """
    monkeypatch.setattr(voters, "SHAPE", 100.0)
    model = RankAggregator(voters="reliability", prior=0.5).fit(R_ORDERS, cluster=np.arange(8))
    worths = np.array([2.20098389, 1.47977409, 0.2832371, 0.19216854])
    np.testing.assert_allclose(model.worths_, worths / worths.sum(), atol=1e-4)
    adherence = [0.99560284, 0.99597636, 0.99080292, 0.99560284, 0.97604704, 0.99166396, 0.99157188, 0.99266463]
    found = {voter.name: voter.reliability for voter in model.voters_}
    np.testing.assert_allclose([found[k] for k in range(8)], adherence, atol=1e-4)


def test_voters_of_ballots_must_be_known() -> None:
    with pytest.raises(ValueError, match="voters='reliability' needs to know who voted"):
        RankAggregator(voters="reliability").fit(R_ORDERS)
    with pytest.raises(ValueError, match="covariance='cluster' needs at least two clusters, got one cluster"):
        RankAggregator(voters="reliability").fit(R_ORDERS, cluster=["ann"] * 8)
    with pytest.raises(ValueError, match="voters='reliability' needs at least two voters, got 1"):
        RankAggregator(voters="reliability", covariance="model").fit(R_ORDERS, cluster=["ann"] * 8)
    with pytest.raises(ValueError, match="voters='reliability' takes no X"):
        RankAggregator(voters="reliability").fit(R_ORDERS, cluster=np.arange(8), X=np.eye(4))


# The bootstrap of clusters


@pytest.mark.parametrize("ties", ["unknown", "davidson"])
def test_bootstrap_of_clusters_matches_clustered_errors(ties: str) -> None:
    """Forty voters cast the same ballot ten times: errors are those of forty ballots, not of four hundred."""
    rng = np.random.default_rng(3)
    single = drawn_ballots(rng, np.ones(40), tied=0.15)
    rows = np.repeat(np.arange(40), 10)
    ballots = Ballots(
        single.items.reshape(40, -1)[rows].reshape(-1), single.labels.reshape(40, -1)[rows].reshape(-1),
        5 * np.arange(401), np.ones(400), single.names,
    )  # fmt: skip
    options: dict[str, Any] = {"ties": ties, "covariance": "bootstrap", "bootstrap_samples": 400}
    clustered = RankAggregator(**options).fit(ballots, cluster=rows).standard_errors_
    alone = RankAggregator(**options).fit(single).standard_errors_
    apart = RankAggregator(**options).fit(ballots).standard_errors_
    # The error of an error from 400 samples is 3.5%, of a quotient 5%: four of these.
    np.testing.assert_allclose(clustered / alone, 1.0, atol=0.2)
    np.testing.assert_allclose(apart / alone, np.sqrt(0.1), atol=0.07)


@pytest.mark.parametrize("X", [None, np.linspace(-1.0, 1.0, 4)[:, None]])
def test_bootstrap_of_pairs_knows_clusters_with_and_without_item_features(X: Floats | None) -> None:
    rng = np.random.default_rng(4)
    left = rng.integers(0, 4, 40)
    right = (left + rng.integers(1, 4, 40)) % 4
    outcome = np.where(rng.random(40) < 1 / (1 + np.exp(0.5 * (right - left))), 1, -1)
    rows = np.repeat(np.arange(40), 10)
    alone = Comparisons(left, right, outcome, list("abcd"))
    many = Comparisons(left[rows], right[rows], outcome[rows], list("abcd"))
    options: dict[str, Any] = {"covariance": "bootstrap", "bootstrap_samples": 400, "ridge": 1e-6}
    one = RankAggregator(**options).fit(alone, X=X).standard_errors_
    other = RankAggregator(**options).fit(many, X=X, cluster=rows).standard_errors_
    np.testing.assert_allclose(other / one, 1.0, atol=0.2)  # as above


def test_bootstrap_knows_reliability_and_the_centre_of_a_ridge() -> None:
    """Rounds scatter around the estimate; without scales, or drawn to 0, they are elsewhere."""
    rng = np.random.default_rng(5)
    left = rng.integers(0, 4, 3000)
    right = (left + rng.integers(1, 4, 3000)) % 4
    who = (np.arange(3000) % 6).astype(np.int32)
    strength = np.array([0.0, 0.2, 1.0, 1.0, 2.0, 3.0])[who]
    outcome = np.where(rng.random(3000) < 1 / (1 + np.exp(strength * (right - left))), 1, -1)
    data = Comparisons(left, right, outcome, list("abcd"), cluster=Factor(who, list("uvwxyz")))
    model = RankAggregator(voters="reliability", covariance="bootstrap", bootstrap_samples=50).fit(data)
    middle = model._fit.bootstrapped[:, :4].mean(axis=0)  # type: ignore[union-attr]
    np.testing.assert_allclose(middle, model.scores_, atol=0.15 * np.ptp(model.scores_))
    by = Factor(rng.integers(0, 2, 3000).astype(np.int32), ["day", "night"])
    both = Comparisons(left, right, outcome, list("abcd"), by=by)
    shared = RankAggregator(groups="shared", covariance="bootstrap", bootstrap_samples=50).fit(both)
    board = shared.boards_["day"]
    assert board.ridge > 1000  # the categories do not differ, so that the centre alone determines the scores
    np.testing.assert_allclose(board._fit.bootstrapped[:, :4].mean(axis=0), board.scores_, atol=0.02)  # type: ignore[union-attr]


# Agreement


@given(seed=st.integers(0, 10_000))
def test_agreement_of_strict_rankings_is_kendalls_tau(seed: int) -> None:
    rng = np.random.default_rng(seed)
    orders = np.array([rng.permutation(6) for _ in range(3)])
    found = agreements(orders)
    assert [(one.first, one.second, one.shared) for one in found] == [(0, 1, 15), (0, 2, 15), (1, 2, 15)]
    for one in found:
        places = np.argsort(orders[[one.first, one.second]], axis=1)
        assert one.kappa == pytest.approx(kendalltau(*places).statistic, abs=1e-12)


def test_agreement_of_rankings_with_ties_matches_longhand() -> None:
    """x: a > b = c; y: b > a, c > b, in two ballots. Shared: a-b (differ), b-c (x: level, y: c)."""
    (found,) = agreements([["a", {"b", "c"}], ["b", "a"], ["c", "b"]], cluster=["x", "y", "y"])
    chance = 0.5 * 0.0 + 0.5 * 0.5 * 1.0
    assert found == ("x", "y", 2, 0.0, pytest.approx((0.0 - chance) / (1.0 - chance)))
    (found,) = agreements([["a", {"b", "c"}], [{"b", "c"}]], cluster=["x", "y"])
    assert found[2:4] == (1, 1.0)
    assert np.isnan(found.kappa)  # both always tie what both compared
    assert agreements([["a", "b"], ["c", "d"]]) == []
    assert len(agreements([["a", "b", "c"], ["c", "b", "a"]], least=4)) == 0


@given(seed=st.integers(0, 10_000))
def test_agreement_does_not_depend_on_names(seed: int) -> None:
    rng = np.random.default_rng(seed)
    left = rng.integers(0, 4, 40)
    right = (left + rng.integers(1, 4, 40)) % 4
    cluster = Factor(rng.integers(0, 3, 40).astype(np.int32), list("xyz"))
    data = Comparisons(left, right, rng.integers(-1, 2, 40), list("abcd"), cluster=cluster)
    turn = rng.permutation(4)
    renamed = Comparisons(turn[left], turn[right], data.outcome, list("efgh"), cluster=cluster)
    np.testing.assert_allclose(
        [one[2:] for one in agreements(data)], [one[2:] for one in agreements(renamed)], atol=1e-12
    )


def test_agreement_needs_to_know_who_voted() -> None:
    with pytest.raises(ValueError, match="agreement needs outcomes and clusters"):
        agreements(Comparisons(np.array([0]), np.array([1]), np.array([1]), ["a", "b"]))
    with pytest.raises(ValueError, match="cluster must hold one value for each of the 1 rows, got 2"):
        agreements([["a", "b"]], cluster=["x", "y"])


def test_unmerged_ballots_keep_their_voters() -> None:
    """Ballots without information are left out of the likelihood, and so are their voters."""
    source = as_ballots([["a", "b"], ["a"], ["b", "a"], ["a", "b"]])
    evidence = BallotsInMemory(source, Factor(np.array([2, 1, 0, 2], np.int32), list("xyz"))).by_voter(np.ones(3))
    assert evidence.voters.tolist() == [2, 0, 2]
    assert BallotsInMemory(source).rankings.places.tolist() == [0, -1, 1, 0]  # type: ignore[union-attr]
