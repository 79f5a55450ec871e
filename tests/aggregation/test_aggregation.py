"""Rank aggregation: likelihood and information, solvers, existence of the estimate and real data."""

import itertools
import json
import math
import pickle
import warnings
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from data_folder import real_data
from hypothesis import given
from hypothesis import strategies as st
from oracles import enumerated_log_likelihood
from sklearn.exceptions import ConvergenceWarning

import plackett.errors
from plackett import RankAggregator, partition_derivatives, partition_log_likelihood
from plackett.aggregation import NoMaximumError
from plackett.aggregation.ballot_kernels import INFORMATION
from plackett.aggregation.ballot_likelihood import BallotLikelihood
from plackett.aggregation.ballots import as_ballots, make_rankings
from plackett.aggregation.connectivity import connectivity
from plackett.aggregation.tie_models import TIE_MODELS
from plackett.data import Ballots, load_preflib
from plackett.data.preflib import tiers_of
from plackett.errors import DataError


def random_ballots(rng: np.random.Generator, ballots: int, items: int, most: int, tied: float = 0.5) -> Ballots:
    """Ballots of 2 to `most` items with weights of 1 to 3; neighbours are tied with the given probability."""
    rankings = []
    for _ in range(ballots):
        order = rng.permutation(items)[: rng.integers(2, most + 1)].tolist()
        tiers: list[list[int]] = [[order[0]]]
        for item in order[1:]:
            if rng.random() < tied:
                tiers[-1].append(item)
            else:
                tiers.append([item])
        rankings.append(tiers)
    made = as_ballots(rankings, names=list(range(items)))
    return Ballots(made.items, made.labels, made.offsets, rng.integers(1, 4, ballots).astype(float), made.names)


def connected_ballots(seed: int, ballots: int = 60, items: int = 6, most: int = 6, tied: float = 0.5) -> Ballots:
    made = random_ballots(np.random.default_rng(seed), ballots, items, most, tied)
    assert connectivity(make_rankings(made)).kept.all()
    return made


# The likelihood


def test_no_ballots_have_likelihood_one() -> None:
    value, gradient, information = BallotLikelihood(make_rankings(as_ballots([[{0, 1}]]))).evaluate(
        np.zeros(2), INFORMATION
    )
    assert value == 0.0
    assert not gradient.any()
    assert not information.any()


@given(st.integers(0, 10_000), st.floats(0.0, 0.9), st.floats(0.1, 40.0))
def test_value_and_gradient_match_the_list_likelihood(seed: int, tied: float, spread: float) -> None:
    rng = np.random.default_rng(seed)
    ballots = random_ballots(rng, 5, 9, 9, tied)
    scores = spread * rng.standard_normal(9)
    value, gradient, information = BallotLikelihood(make_rankings(ballots)).evaluate(scores, INFORMATION)
    expected = partition_derivatives(scores[ballots.items], ballots.labels, offsets=ballots.offsets)
    per_item = np.repeat(ballots.weights, np.diff(ballots.offsets))
    assert value == pytest.approx(float(expected.value @ ballots.weights), rel=1e-11)
    for found, parts in ((gradient, expected.gradient), (np.diag(information), expected.curvature)):
        # Quadrature aims at 1e-12 of a probability, and its second moments are less accurate than the value.
        np.testing.assert_allclose(found, np.bincount(ballots.items, per_item * parts, 9), atol=1e-9)


@pytest.mark.parametrize("tiers", [[1, 1, 1, 1], [2, 1, 1], [3, 1], [1, 2, 2], [2, 3], [4, 1], [1, 3, 1]])
def test_information_matches_the_second_derivative_of_enumerated_orders(tiers: list[int]) -> None:
    n = sum(tiers)
    scores = np.random.default_rng(n).normal(0.0, 1.5, n)
    labels = np.repeat(np.arange(len(tiers))[::-1], tiers)
    ballots = as_ballots([[np.flatnonzero(labels == level).tolist() for level in range(len(tiers) - 1, -1, -1)]])
    found = BallotLikelihood(make_rankings(ballots)).evaluate(scores, INFORMATION).information
    step = mp.mpf(10) ** -8

    def log_p(i: int, j: int, a: int, b: int) -> Any:
        moved = [mp.mpf(float(x)) for x in scores]
        moved[i] += a * step
        moved[j] += b * step
        return enumerated_log_likelihood(moved, labels.tolist())

    with mp.workdps(40):
        for i, j in itertools.combinations(range(n), 2):
            mixed = sum(a * b * log_p(i, j, a, b) for a in (1, -1) for b in (1, -1)) / (4 * step**2)
            assert found[i, j] == pytest.approx(float(-mixed), abs=1e-11)


@pytest.mark.parametrize("size", [4, 9, 40])
def test_information_of_large_tiers_matches_finite_differences(size: int) -> None:
    rng = np.random.default_rng(size)
    ballots = as_ballots([[list(range(3)), list(range(3, 3 + size)), [3 + size], list(range(4 + size, 10 + size))]])
    scores = 2.0 * rng.standard_normal(10 + size)
    objective = BallotLikelihood(make_rankings(ballots))
    found = objective.evaluate(scores, INFORMATION).information
    step = 1e-4
    for i in rng.permutation(len(scores))[:6]:
        move = np.zeros(len(scores))
        move[i] = step
        slope = [objective.evaluate(scores + k * move).gradient for k in (-2, -1, 1, 2)]
        # Fourth-order differences: step^4 and rounding / step add up to 1e-10.
        expected = -(slope[0] - 8 * slope[1] + 8 * slope[2] - slope[3]) / (12 * step)
        np.testing.assert_allclose(found[i], expected, atol=1e-9)


@given(st.integers(0, 10_000), st.floats(0.1, 60.0))
def test_information_is_a_laplacian(seed: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    objective = BallotLikelihood(make_rankings(random_ballots(rng, 4, 10, 10, 0.6)))
    scores = spread * rng.uniform(-1.0, 1.0, 10)
    information = objective.evaluate(scores, INFORMATION).information
    np.testing.assert_array_equal(information, information.T)
    assert (information[~np.eye(10, dtype=bool)] <= 1e-12).all()
    np.testing.assert_allclose(information.sum(axis=1), 0.0, atol=1e-12)


def test_distant_scores_give_the_limit() -> None:
    """Three items 300 nats apart, in the order of the ballots and in the opposite order."""
    scores = np.array([300.0, 0.0, -300.0])
    objective = BallotLikelihood(make_rankings(as_ballots([[0, 1, 2], [2, 1, 0], [[0, 2], 1], [[1, 2], 0]])))
    value, gradient, information = objective.evaluate(scores, INFORMATION)
    # Up to rounding, log P is minus the gaps: 0, w_1 + w_2 - 2 w_0, w_2 - w_1, log 2 + w_1 + w_2 - 2 w_0.
    assert value == pytest.approx(-900.0 - 300.0 - 900.0 + math.log(2.0), rel=1e-12)
    np.testing.assert_allclose(gradient, [-4.0, 1.0, 3.0], atol=1e-12)
    np.testing.assert_allclose(information, 0.0, atol=1e-12)


def test_equal_ballots_are_merged() -> None:
    ballots = as_ballots([["a", ["b", "c"]], ["a", {"c", "b"}], ["b", "a"], ["a"], ["b", "a"], [["a", "b"]], []])
    rankings = make_rankings(ballots)
    assert rankings.weights.tolist() == [2.0, 2.0]
    assert rankings.items[: rankings.offsets[1]].tolist()[0] == 0
    assert rankings.wins().tolist() == [2.0, 2.0, 0.0]


def test_hash_collisions_merge_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def collide(first: int, last: int, *others: Any) -> int:
        others[-1][0, first:last] = 7
        others[-1][1, first:last] = np.arange(first, last)
        return -1

    monkeypatch.setattr("plackett.aggregation.ballots.hash_ballots", collide)
    rankings = make_rankings(as_ballots([["a", "b"], ["b", "a"], ["a", "b"]]))
    assert rankings.weights.tolist() == [1.0, 1.0, 1.0]


# Solvers


@pytest.mark.filterwarnings("ignore:.* are ties of two items")  # raised for some of the drawn problems
@pytest.mark.parametrize("tied", [0.0, 0.5])
def test_solvers_agree(tied: float) -> None:
    ballots = connected_ballots(1, tied=tied)
    newton, lbfgs, mm = (RankAggregator(solver=s, ties="unknown").fit(ballots) for s in ("newton", "lbfgs", "mm"))
    for other in (lbfgs, mm):
        # Gradients are 1e-6 standard errors; errors are about 0.2 here.
        np.testing.assert_allclose(other.scores_, newton.scores_, atol=1e-6)
    assert newton.converged_
    assert newton.residual_ < 1e-9


@pytest.mark.parametrize("solver", ["newton", "lbfgs", "mm"])
@pytest.mark.parametrize("weight", [1e-12, 1e-9, 1e-300])
def test_scale_of_the_weights_does_not_change_the_scores(solver: str, weight: float) -> None:
    rankings = [["a", "b", "c"], ["b", "a", "c"], ["c", {"a", "b"}], ["a", "c"], ["a", "b"]]
    whole = RankAggregator(solver=solver).fit(rankings)
    small = RankAggregator(solver=solver).fit(rankings, sample_weight=np.full(5, weight))
    assert small.converged_
    np.testing.assert_allclose(small.scores_, whole.scores_, atol=1e-9)
    np.testing.assert_allclose(small.standard_errors_ * math.sqrt(weight), whole.standard_errors_, rtol=1e-9)
    ridge = RankAggregator(ridge=0.3).fit(rankings)
    small = RankAggregator(ridge=0.3 * weight).fit(rankings, sample_weight=np.full(5, weight))
    np.testing.assert_allclose(small.scores_, ridge.scores_, atol=1e-9)


@given(st.integers(0, 10_000))
def test_mm_never_decreases_the_likelihood(seed: int) -> None:
    rng = np.random.default_rng(seed)
    objective = BallotLikelihood(make_rankings(random_ballots(rng, 12, 6, 6, 0.5)))
    parameters = rng.standard_normal(6)
    value, gradient, _ = objective.evaluate(parameters)
    stepped = parameters + np.log(np.maximum(objective.wins, 1e-3) / np.maximum(objective.wins - gradient, 1e-3))
    assert -objective.value(stepped) >= value - 1e-9


def test_mm_of_strict_rankings_matches_hunter() -> None:
    from choix.mm import _mm_rankings

    ballots = connected_ballots(3, tied=0.0)
    parameters = np.random.default_rng(0).standard_normal(6)
    rankings = [[item for (item,) in ballot] for ballot in tiers_of(ballots)]
    repeated = [r for r, w in zip(rankings, ballots.weights, strict=True) for _ in range(int(w))]
    wins, denominators = _mm_rankings(6, repeated, parameters)
    objective = BallotLikelihood(make_rankings(ballots))
    found = parameters + np.log(objective.wins / (objective.wins - objective.evaluate(parameters).gradient))
    expected = np.log(wins / denominators)  # choix uses worths with mean score zero
    np.testing.assert_allclose(found - found.mean(), expected - expected.mean(), atol=1e-12)


@pytest.mark.filterwarnings("ignore:.* are ties of two items")
def test_fit_that_does_not_converge_warns() -> None:
    with pytest.warns(ConvergenceWarning, match="mm did not converge in 2 steps.*raise max_iter"):
        model = RankAggregator(solver="mm", max_iter=2, ties="unknown").fit(connected_ballots(1))
    assert not model.converged_


def test_large_problems_use_lbfgs() -> None:
    rng = np.random.default_rng(0)
    n = 1500
    ring = np.column_stack([np.arange(n), (np.arange(n) + 1) % n])
    ballots = np.concatenate([ring, rng.integers(0, n, (6 * n, 2))])
    model = RankAggregator().fit(ballots[ballots[:, 0] != ballots[:, 1]])
    assert model.solver_ == "lbfgs"
    assert model.converged_
    newton = RankAggregator(solver="newton").fit(ballots[ballots[:, 0] != ballots[:, 1]])
    # Errors are about 0.7, the gradient is 1e-6 of them, and the graph is sparsely connected.
    np.testing.assert_allclose(model.scores_, newton.scores_, atol=1e-4)


# Existence


def falls_in_every_direction(ballots: Ballots) -> bool:
    """Whether the likelihood goes to 0 along the indicator of every set of items, by evaluating it."""
    n = len(ballots.names)

    def log_likelihood(scores: np.ndarray[Any, Any]) -> float:
        lists = partition_log_likelihood(scores[ballots.items], ballots.labels, offsets=ballots.offsets)
        return float(lists @ ballots.weights)

    for subset in range(1, 2**n - 1):
        direction = np.array([float(subset >> i & 1) for i in range(n)])
        if log_likelihood(80.0 * direction) > log_likelihood(40.0 * direction) - 20.0:
            return False
    return True


@given(st.integers(0, 100_000), st.integers(2, 5), st.integers(1, 7), st.sampled_from([0.0, 0.4, 0.7]))
def test_maximum_exists_if_and_only_if_connected(seed: int, items: int, ballots: int, tied: float) -> None:
    made = random_ballots(np.random.default_rng(seed), ballots, items, items, tied)
    assert bool(connectivity(make_rankings(made)).kept.all()) == falls_in_every_direction(made)


def test_ties_do_not_connect() -> None:
    """a and b are above c and below d, and always tied with each other, so nothing compares them directly."""
    found = connectivity(make_rankings(as_ballots([[["a", "b"], "c"], ["c", ["a", "b"]]])))
    assert found.kept.all()
    found = connectivity(make_rankings(as_ballots([[["a", "b"], "c"], ["c", "a"]])))
    assert found.kept.tolist() == [True, False, True]
    assert found.above.tolist() == [False, True, False]


def test_error_names_the_items_without_a_finite_worth() -> None:
    core = [["a", "b"], ["b", "c"], ["c", "a"]]
    cases = {
        "of worth 0, because they beat none of the others: x": [["a", "x"]],
        "of infinite worth, because none of the others beats them: x": [["x", "a"]],
        "not compared with the others: x, y": [["x", "y"]],
    }
    for words, more in cases.items():
        with pytest.raises(NoMaximumError, match=words) as caught:
            RankAggregator(on_infinite="error").fit(core + more)
        assert "x" in caught.value.items
        with pytest.warns(UserWarning, match=words):
            model = RankAggregator().fit(core + more)
        assert model.items_ == ["a", "b", "c"]
        assert "x" in model.dropped_items_
        np.testing.assert_allclose(model.scores_, RankAggregator().fit(core).scores_, atol=1e-12)
    ballots = as_ballots(core, names=["a", "b", "c", "z"])
    with pytest.raises(NoMaximumError, match=r"on no ballot that ranks anything: z.*drop.*prior=0\.5"):
        RankAggregator(on_infinite="error").fit(ballots)


def test_error_can_be_pickled() -> None:
    with pytest.raises(NoMaximumError) as caught:
        RankAggregator(on_infinite="error").fit([["a", "b"], ["b", "a"], ["a", "x"]])
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301
    assert (str(again), again.items) == (str(caught.value), ["x"])
    assert plackett.errors.NoMaximumError is NoMaximumError


def test_dropping_every_item_is_refused() -> None:
    with pytest.raises(NoMaximumError, match=r"No two items beat each other.*through others\. Give all.*prior=0\.5"):
        RankAggregator(on_infinite="drop").fit([["a", "b"]])


def test_error_counts_many_items() -> None:
    with pytest.raises(NoMaximumError, match="and 11 more"):
        RankAggregator(on_infinite="error").fit([["a", "b"], ["b", "a"], *(["a", f"x{i:02}"] for i in range(21))])


def test_unbeaten_items_rank_above_the_rest(tmp_path: Path) -> None:
    """Ranks count the items above, whose mutual order is unknown; items below make no difference."""
    core = [["a", "b"], ["b", "c"], ["c", "a"], ["a", "c"]]
    with pytest.warns(UserWarning, match="none of the others beats them: x, y"):
        model = RankAggregator().fit([*core, ["x", "a"], ["y", "b"], ["c", "z"], ["p", "q"]])
    whole = RankAggregator().fit(core)
    assert model.outside_ == {"below": ["z"], "above": ["x", "y"], "apart": ["p", "q"]}
    np.testing.assert_array_equal(model.rank_, whole.rank_ + 2)
    for found, expected in zip(model.rank_intervals(random_state=0), whole.rank_intervals(random_state=0), strict=True):
        np.testing.assert_array_equal(found, expected + 2)
    summary = model.summary()
    assert [row.rank for row in summary] == [3, 4, 5]
    lines = [line.split() for line in str(summary).splitlines()]
    assert lines[1] == ["1", "-", "2", "x,", "y", "infinite"]
    assert lines[5] == ["6", "z", "0"]
    assert lines[6] == ["p,", "q", "unknown"]
    assert "left out x, y (of infinite worth, because none of the others beats them)" in str(summary)
    summary.save(tmp_path / "worths.json")
    stored = json.loads((tmp_path / "worths.json").read_text())
    assert [(row["item"], row["where"]) for row in stored["outside"][:2]] == [("z", "below"), ("x", "above")]
    model.save(tmp_path / "model")
    again = RankAggregator.load(tmp_path / "model")
    assert again.outside_ == model.outside_
    np.testing.assert_array_equal(again.rank_, model.rank_)
    description = json.loads((tmp_path / "model" / "plackett.json").read_text())
    for wrong in ({"above": ["x"]}, {"beside": []}, {"above": "xy"}):
        description["state"]["outside"] = wrong
        (tmp_path / "model" / "plackett.json").write_text(json.dumps(description))
        with pytest.raises(DataError, match="outside must hold the dropped items"):
            RankAggregator.load(tmp_path / "model")


@pytest.mark.parametrize("options", [{"prior": 0.5}, {"ridge": 1.0}])
def test_items_on_no_ballot_are_reported_and_left_out(options: dict[str, Any]) -> None:
    ballots = as_ballots([["a", "b"], ["b", "c"]], names=["a", "b", "c", *(f"x{i}" for i in range(9997))])
    with pytest.warns(UserWarning, match="on no ballot that ranks anything: x0, .* and 9,987 more"):
        model = RankAggregator(**options).fit(ballots)
    whole = RankAggregator(**options).fit([["a", "b"], ["b", "c"]])
    assert model.items_ == ["a", "b", "c"]
    assert len(model.outside_["unranked"]) == 9997
    np.testing.assert_array_equal(model.scores_, whole.scores_)


def test_covariance_too_large_for_the_ballots_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plackett.aggregation.leaderboard._FREE_COVARIANCE", 1 << 20)
    n = 1000
    model = RankAggregator(prior=0.5).fit(np.column_stack([np.arange(n), (np.arange(n) + 1) % n]))
    with pytest.raises(ValueError, match=r"the covariance of 1,000 items: .* PLACKETT_MAX_EXPANSION higher"):
        model.summary()
    monkeypatch.setenv("PLACKETT_MAX_EXPANSION", "inf")
    assert len(model.standard_errors_) == n


def test_completed_ballots_that_are_too_large_are_refused() -> None:
    """Refused before allocating memory for 4 * 10^9 entries."""
    ballots = as_ballots([["a"]] * 40_000, names=["a", *map(str, range(100_000))])
    with pytest.raises(ValueError, match=r"40,000 ballots with all 100,001 items: .* PLACKETT_MAX_EXPANSION higher"):
        RankAggregator(unranked="last").fit(ballots)
    assert len(as_ballots([["a"]] * 5, names=["a", "b"]).complete().items) == 10


def test_uninformative_ties_are_counted() -> None:
    votes = [["a", "b"], ["b", "a"], [["a", "b"]], [["a", "b", "c"]], ["a"], ["a", ["b", "c"]], ["c", "b"], ["c", "a"]]
    with pytest.warns(UserWarning, match=r"3 of 8\.5 ballots \(35\.3%\) are ties of two items, or of all") as caught:
        RankAggregator(ties="unknown").fit(votes, sample_weight=[1, 1, 2, 1, 5, 1, 1.5, 1])
    assert len(caught) == 1
    RankAggregator(unranked="last").fit([v for v in votes if v != [["a", "b", "c"]]])  # there all ties are informative


@pytest.mark.parametrize("others", [[], [["a", "b", "c"], ["c", "b", "a"]], [[["a", "b", "c"]], ["c", "a", "b"]]])
def test_level_pairs_must_be_given_a_meaning(others: list[Any]) -> None:
    """Also among longer ballots, which do not ask by their own ties."""
    votes = [["a", "b"], ["b", "a"], [["a", "b"]], *others]
    total = 4 + len(others)
    with pytest.raises(ValueError, match=rf"2 of {total} ballots \(.*\) are pairs that ended level") as error:
        RankAggregator().fit(votes, sample_weight=[1, 1, 2, *(1 for _ in others)])
    assert [line.split('"')[1] for line in str(error.value).splitlines()[1:]] == list(TIE_MODELS)


def test_long_cycle_is_one_component() -> None:
    """200,000 items, each beating the next and the last beating the first; found without recursion."""
    n = 200_000
    ring = np.column_stack([np.arange(n), (np.arange(n) + 1) % n])
    made = as_ballots(ring)
    assert connectivity(make_rankings(made)).kept.all()
    assert connectivity(make_rankings(made.select(np.arange(n - 1)))).kept.sum() == 1


# Real data


def brute_force(ballots: Ballots, scores: np.ndarray[Any, Any]) -> float:
    """The sum of log P over ballots, with each tier above the bottom computed over its subsets."""
    worths = np.exp(scores)
    total = 0.0
    for weight, tiers in zip(ballots.weights, tiers_of(ballots), strict=True):
        rest = 0.0
        for place, tier in enumerate(reversed(tiers)):
            if place > 0:
                members = worths[tier].tolist()
                all_before = [1.0]  # P that all of a set precede the rest, split by which of its items is first
                for subset in range(1, 2 ** len(tier)):
                    inside = [i for i in range(len(tier)) if subset >> i & 1]
                    ways = math.fsum(members[i] * all_before[subset ^ (1 << i)] for i in inside)
                    all_before.append(ways / (rest + math.fsum(members[i] for i in inside)))
                total += weight * math.log(all_before[-1])
            rest += math.fsum(worths[tier])
    return total


@pytest.mark.parametrize(
    "name",
    ["00001-00000001.toc", "00003-00000001.toc", "00005-00000001.toi", "00006-00000001.toc"],
)
def test_real_ballots_with_ties_match_enumeration(name: str) -> None:
    """At the estimate, the likelihood matches enumeration of orders and is highest."""
    ballots = load_preflib(real_data("preflib", name))
    if len(ballots) > 500:
        ballots = ballots.select(np.arange(500))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about items that must be left out
        model = RankAggregator(ties="unknown", on_infinite="drop").fit(ballots)
    if model.dropped_items_:
        kept = np.isin(np.array(ballots.names), model.items_)
        numbers = np.cumsum(kept) - 1
        rankings = [[[numbers[i] for i in tier if kept[i]] for tier in ballot] for ballot in tiers_of(ballots)]
        made = as_ballots([[t for t in r if t] for r in rankings], names=list(range(len(model.items_))))
        ballots = Ballots(made.items, made.labels, made.offsets, ballots.weights, made.names)
    expected = brute_force(ballots, model.scores_)
    assert model.log_likelihood_ == pytest.approx(expected, rel=1e-11)
    assert model.converged_
    rng = np.random.default_rng(0)
    for _ in range(3):
        move = rng.standard_normal(len(model.scores_)) * 0.3 * model.standard_errors_
        assert brute_force(ballots, model.scores_ + move) < expected
