"""Models of ties: against published estimates, formulas written out, differences, and each other."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from data_folder import real_data
from duels import probabilities, simulated
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from plackett import RankAggregator
from plackett.aggregation.ballot_kernels import INFORMATION
from plackett.aggregation.pair_kernels import DAVIDSON, HALF, RAO_KUPPER
from plackett.aggregation.pair_likelihood import PairLikelihood
from plackett.aggregation.pair_rows import PairRows
from plackett.data import Comparisons, load_comparisons
from plackett.errors import NoMaximumError

KINDS = {"half": HALF, "davidson": DAVIDSON, "rao-kupper": RAO_KUPPER}
Floats = np.ndarray[Any, Any]


def pudding() -> Comparisons:
    table = pd.read_csv(real_data("rankings", "pudding.csv"))
    rows = [
        (row.i, row.j, outcome, count)
        for row in table.itertuples()
        for outcome, count in (("left", row.w_ij), ("tie", row.t_ij), ("right", row.w_ji))
    ]
    return load_comparisons(pd.DataFrame(rows, columns=["left", "right", "winner", "count"]), weight="count")


def longhand(ties: str, data: Comparisons, scores: Floats, parameter: float, beta: Floats) -> float:
    """log P of all comparisons, one by one."""
    assert data.outcome is not None
    total = 0.0
    for r in range(len(data)):
        eta = scores[data.left[r]] - scores[data.right[r]]
        if data.features is not None:
            eta += float(data.features[r] @ beta)
        if ties == "half":
            win = 1 / (1 + math.exp(-eta))
            share = (1 + data.outcome[r]) / 2
            found = share * math.log(win) + (1 - share) * math.log(1 - win)
        else:
            found = math.log(probabilities(ties, eta, parameter)[1 - data.outcome[r]])
        total += data.weights[r] * found
    return total


def test_davidson_on_pudding_matches_published_estimates() -> None:
    """Davidson (1970), to the digits printed there."""
    model = RankAggregator(ties="davidson").fit(pudding())
    assert model.worths_.round(3).tolist() == [0.139, 0.173, 0.162, 0.165, 0.159, 0.202]
    assert round(model.tie_parameters_["delta"].value, 3) == 0.747


R_RANKINGS = [
    ["apple", "banana"],
    ["banana", "orange", "pear", "apple"],
    [{"banana", "orange", "pear"}, "apple"],
    ["apple", "banana", "orange"],
    [{"banana", "orange"}, "apple"],
    ["apple", "pear", "orange"],
]


def test_dead_heats_match_published_estimates_of_r() -> None:
    """The example on the help page of R's `PlackettLuce`, which prints coefficients relative to the first item.

    R stops where sums agree to 1e-6.
    """
    model = RankAggregator(ties="davidson", prior=0.5).fit(R_RANKINGS)
    np.testing.assert_allclose(model.scores_ - model.scores_[0], [0.0, 0.25287380, -0.61350684, -0.08688469], atol=1e-6)
    found = [math.log(estimate.value) for estimate in model.tie_parameters_.values()]
    np.testing.assert_allclose(found, [-2.15068112, -0.79245362], atol=1e-6)


def test_dead_heats_match_stored_results_of_r() -> None:
    """R's own test of `summary`, with standard errors, in which it counts the pseudo-rankings no more than we do."""
    rankings: list[Any] = [
        ["a", "b"],
        ["b", "c", "a"],
        [{"b", "c"}, "a"],
        ["a", "b", "c"],
        [{"b", "c"}, "a"],
        ["a", "c"],
    ]
    model = RankAggregator(ties="davidson", prior=0.5).fit(rankings)
    delta = model.tie_parameters_["delta_2"]
    assert [round(model.difference(name, "a").difference, 4) for name in "bc"] == [0.2868, -0.4637]
    assert [round(model.difference(name, "a").standard_error, 4) for name in "bc"] == [1.0129, 1.0280]
    assert (round(math.log(delta.value), 4), round(delta.standard_error / delta.value, 4)) == (-1.0701, 0.9043)
    assert round(-2 * model.log_likelihood_, 2) == 21.61
    # Probabilities of the choices, as `fitted` gives them: b = c first of three, b first of a, b, c.
    chosen = model.predict_proba([["a", "b"], [{"b", "c"}, "a"], ["a", "c"]])
    np.testing.assert_allclose(chosen, [0.36656777, 0.07962156, 0.52604625], atol=1e-6)


@pytest.mark.parametrize("ties", KINDS)
@pytest.mark.parametrize("features", [0, 2])
def test_fits_match_a_direct_optimisation(ties: str, features: int) -> None:
    data = simulated(1, rows=120, features=features)
    model = RankAggregator(ties=ties).fit(data)
    n = len(data.names)

    def loss(z: Floats) -> float:
        parameter = 1 + math.exp(z[n]) if ties == "rao-kupper" else math.exp(z[n])
        return -longhand(ties, data, np.append(z[: n - 1], 0.0), parameter, z[n + 1 :])

    found = minimize(loss, np.zeros(n + 1 + features), method="BFGS", options={"gtol": 1e-5})
    scores = np.append(found.x[: n - 1], 0.0)
    assert model.log_likelihood_ == pytest.approx(-found.fun, abs=1e-7)
    np.testing.assert_allclose(model.scores_, scores - scores.mean(), atol=1e-4)  # BFGS stops there
    if features:
        np.testing.assert_allclose(model.coef_, found.x[n + 1 :], atol=1e-4)


@pytest.mark.parametrize("ties", KINDS)
@given(seed=st.integers(0, 10_000), scaled=st.booleans(), spread=st.sampled_from([0.1, 1.0, 5.0]))
def test_derivatives_match_differences(ties: str, seed: int, scaled: bool, spread: float) -> None:
    rng = np.random.default_rng(seed)
    rows, items, features = 6, 4, 2
    left = rng.integers(0, items, rows)
    right = (left + rng.integers(1, items, rows)) % items
    data = PairRows(
        left.astype(np.int32), right.astype(np.int32), rng.random((rows, 3)), items,
        rng.standard_normal((rows, features)), rng.random(rows) if scaled else np.zeros(0),
    )  # fmt: skip
    likelihood = PairLikelihood.from_rows(data, KINDS[ties])
    x = spread * rng.standard_normal(items + likelihood.ties + features)
    if ties == "rao-kupper":
        x[items] = 0.1 + abs(x[items])
    found = likelihood.evaluate(x, INFORMATION)
    steps = 1e-5 * np.eye(len(x))
    slopes = [(likelihood.evaluate(x + e).value - likelihood.evaluate(x - e).value) / 2e-5 for e in steps]
    bends = [(likelihood.evaluate(x + e).gradient - likelihood.evaluate(x - e).gradient) / 2e-5 for e in steps]
    # Central differences: rounding of the value over the step, and its third derivative.
    np.testing.assert_allclose(found.gradient, slopes, atol=1e-7, rtol=1e-6)
    np.testing.assert_allclose(found.information, -np.array(bends), atol=1e-6, rtol=1e-6)
    np.testing.assert_allclose(found.information[:, :items].sum(axis=1), 0.0, atol=1e-12)


@pytest.mark.parametrize("ties", KINDS)
def test_probabilities_of_outcomes_match_the_formulas(ties: str) -> None:
    data = simulated(2)
    model = RankAggregator(ties=ties).fit(data)
    found = model.predict_proba(data)
    assert found.shape == (len(data), 3)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, atol=1e-15)
    scores = dict(zip(model.items_, model.scores_, strict=True))
    eta = scores[data.names[data.left[0]]] - scores[data.names[data.right[0]]]
    if ties == "half":
        assert found[0].tolist() == pytest.approx([1 / (1 + math.exp(-eta)), 0.0, 1 / (1 + math.exp(eta))])
    else:
        (parameter,) = model.tie_parameters_.values()
        np.testing.assert_allclose(found[0], probabilities(ties, eta, parameter.value), rtol=1e-12)
        left, right = data.names[data.left[0]], data.names[data.right[0]]
        ranked = model.predict_proba([[left, right], [{left, right}], [right, left]])
        np.testing.assert_allclose(ranked, found[0], rtol=1e-12)


@pytest.mark.parametrize("ties", KINDS)
def test_without_ties_all_models_are_the_strict_one(ties: str) -> None:
    data = simulated(3, tied=0.0)
    model, strict = RankAggregator(ties=ties).fit(data), RankAggregator().fit(data)
    ballots = RankAggregator().fit(data.to_ballots())
    for one in (strict, ballots):
        np.testing.assert_allclose(model.scores_, one.scores_, atol=1e-9)
        np.testing.assert_allclose(model.standard_errors_, one.standard_errors_, rtol=1e-8)
        assert model.log_likelihood_ == pytest.approx(one.log_likelihood_, rel=1e-12)
        assert model.n_parameters_ == one.n_parameters_
    expected = {"half": {}, "davidson": {"delta": 0.0}, "rao-kupper": {"theta": 1.0}}[ties]
    assert {name: found.value for name, found in model.tie_parameters_.items()} == expected


@pytest.mark.parametrize("ties", ["unknown", *KINDS])
@given(seed=st.integers(0, 1000))
def test_order_sides_repetition_and_names_change_nothing(ties: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = simulated(seed, rows=80, items=4, features=seed % 2)

    def fit(data: Comparisons, **options: Any) -> RankAggregator:
        return RankAggregator(ties=ties, prior=0.5).fit(data, **options)

    with pytest.warns() if ties == "unknown" else _nothing():
        model = fit(data)
        turned = rng.random(len(data)) < 0.5
        some = data.swapped().select(turned)
        others = data.select(~turned)
        mixed = _joined(others, some).select(rng.permutation(len(data)))
        doubled = fit(data, sample_weight=np.full(len(data), 2.0))
        repeated = fit(data.select(np.repeat(np.arange(len(data)), 2)))
        again = fit(mixed)
        renamed = fit(_renamed(data))
    np.testing.assert_allclose(again.scores_, model.scores_, atol=1e-8)
    np.testing.assert_allclose(repeated.scores_, doubled.scores_, atol=1e-8)
    np.testing.assert_allclose(renamed.scores_, model.scores_[::-1], atol=1e-8)
    if ties not in ("unknown", "half"):
        (found,), (wanted,) = again.tie_parameters_.values(), model.tie_parameters_.values()
        assert found.value == pytest.approx(wanted.value)


def _joined(one: Comparisons, other: Comparisons) -> Comparisons:
    from plackett.data.comparisons import concatenate_comparisons

    return concatenate_comparisons(one, other)


def _renamed(data: Comparisons) -> Comparisons:
    """The same items in reverse order."""
    from dataclasses import replace

    last = len(data.names) - 1
    return replace(data, left=last - data.left, right=last - data.right, names=list(data.names)[::-1])


def _nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()


def test_ties_that_can_grow_without_bound_are_refused() -> None:
    """A beat B once and tied once: with a tie parameter, ever larger differences fit better."""
    data = Comparisons(np.array([0, 0]), np.array([1, 1]), np.array([1, 0]), ["a", "b"])
    for ties in ("davidson", "rao-kupper"):
        with pytest.raises(NoMaximumError, match="there is no cycle of wins"):
            RankAggregator(ties=ties).fit(data)
        assert RankAggregator(ties=ties, prior=0.5).fit(data).converged_
    assert RankAggregator(ties="half").fit(data).scores_[0] > 0
    level = Comparisons(np.array([0, 0]), np.array([1, 1]), np.array([0, 0]), ["a", "b"])
    with pytest.raises(NoMaximumError, match="all comparisons are ties"):
        RankAggregator(ties="davidson").fit(level)


@pytest.mark.filterwarnings("ignore:left out. items on no ballot")
@pytest.mark.parametrize("seed", range(20))
def test_existence_of_the_tie_parameter_matches_its_condition(seed: int) -> None:
    """Few comparisons, so that both cases occur: bounded estimates exactly if no error is raised."""
    data = simulated(seed, rows=5, items=3, tied=0.5)
    try:
        model = RankAggregator(ties="davidson", on_infinite="error").fit(data)
    except NoMaximumError:
        # With almost no ridge the estimate runs away.
        loose = RankAggregator(ties="davidson", ridge=1e-6).fit(data) if data.outcome.any() else None  # type: ignore
        assert loose is None or np.ptp(loose.scores_) > 6
        return
    assert model.converged_
    assert np.ptp(model.scores_) < 6
