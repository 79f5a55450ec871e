"""Aggregation, linear models and trees fitted to graphs of preferences."""

import warnings

import numpy as np
import pytest
from partial_order_cases import observed_graphs
from scipy.optimize import minimize

import plackett
from plackett import BoostedRanker, LinearRanker, RankAggregator, partial_order_derivatives
from plackett.data import PreferenceGraphs
from plackett.errors import NoMaximumError
from plackett.preferences import ballots_from_graphs, graph_fitting


@pytest.fixture(scope="module")
def voters():
    rng = np.random.default_rng(0)
    worths = rng.uniform(0.0, 2.0, 7)
    return observed_graphs(rng, worths, 60, 0.4), worths - worths.mean()


def negative_log_likelihood(scores, graphs, ridge=0.0):
    found = partial_order_derivatives(scores[graphs.items], graphs.edges, offsets=graphs.offsets)
    weights = np.repeat(graphs.weights, np.diff(graphs.offsets))
    gradient = np.bincount(graphs.items, weights * found.gradient, minlength=len(scores))
    value = -graphs.weights @ found.value + 0.5 * ridge * scores @ scores
    return value, -gradient + ridge * scores


@pytest.mark.parametrize("ridge", [0.0, 0.5])
def test_worths_maximise_the_likelihood_of_graphs(voters, ridge):
    graphs, _ = voters
    model = RankAggregator(ridge=ridge).fit(graphs)
    best = minimize(negative_log_likelihood, np.zeros(7), (graphs, ridge), jac=True, options={"gtol": 1e-8}).x
    np.testing.assert_allclose(model.scores_, best - best.mean(), rtol=0, atol=1e-5)
    assert model.converged_
    assert model.solver_ == "em"
    assert model.log_likelihood_ == pytest.approx(-negative_log_likelihood(model.scores_, graphs)[0], abs=1e-8)
    assert model.n_ballots_ == 60


def test_solvers_agree(voters):
    graphs, _ = voters
    em = RankAggregator().fit(graphs)
    for solver in ("lbfgs", "mm"):
        np.testing.assert_allclose(RankAggregator(solver=solver).fit(graphs).scores_, em.scores_, rtol=0, atol=1e-5)


def test_standard_errors_are_those_of_the_observed_information(voters):
    graphs, worths = voters
    model = RankAggregator().fit(graphs)
    step, information = 1e-4, np.empty((7, 7))
    for i in range(7):
        up, down = (negative_log_likelihood(model.scores_ + s * np.eye(7)[i], graphs)[1] for s in (step, -step))
        information[i] = (up - down) / (2 * step)
    expected = np.sqrt(np.diag(np.linalg.pinv(0.5 * (information + information.T), rcond=1e-6)))
    np.testing.assert_allclose(model.standard_errors_, expected, rtol=0.03)  # from about 50,000 samples
    assert np.abs((model.scores_ - worths) / model.standard_errors_).max() < 4.0
    robust = RankAggregator(covariance="sandwich").fit(graphs)
    np.testing.assert_allclose(robust.standard_errors_, expected, rtol=0.5)  # 60 voters


def test_sampled_graphs_give_the_same_worths_within_a_tenth_of_their_errors(voters, monkeypatch):
    graphs, _ = voters
    exact = RankAggregator().fit(graphs)
    monkeypatch.setattr("plackett.likelihood.partial_orders.order_objective._MOST_STATES", 1)
    sampled = RankAggregator(random_state=1).fit(graphs)
    assert sampled.converged_
    assert sampled.residual_ <= 0.1
    # The largest of 7 errors of at most 0.1 standard errors each.
    assert np.abs((sampled.scores_ - exact.scores_) / exact.standard_errors_).max() < 0.3
    assert sampled.log_likelihood_ == pytest.approx(exact.log_likelihood_, abs=1.0)
    with pytest.raises(ValueError, match="graphs that have to be sampled need the solver 'em'"):
        RankAggregator(solver="lbfgs").fit(graphs)
    monkeypatch.setattr(graph_fitting, "_FEWEST_AVERAGED", 100)
    with pytest.warns(Warning, match="em did not converge in 5 steps"):
        RankAggregator(max_iter=5).fit(graphs)


def test_tiers_and_pairs_given_as_graphs_are_fitted_as_ballots():
    rng = np.random.default_rng(1)
    graphs = observed_graphs(rng, rng.normal(size=5), 80, 1.0)  # all pairs: full rankings
    expected = RankAggregator().fit(ballots_from_graphs(graphs))
    found = RankAggregator().fit(graphs)
    np.testing.assert_allclose(found.scores_, expected.scores_, rtol=0, atol=1e-5)
    np.testing.assert_allclose(found.standard_errors_, expected.standard_errors_, rtol=0.03)
    with_prior = RankAggregator(prior=0.5).fit(graphs)
    np.testing.assert_allclose(
        with_prior.scores_, RankAggregator(prior=0.5).fit(ballots_from_graphs(graphs)).scores_, rtol=0, atol=1e-5
    )


def test_items_without_a_finite_worth_are_left_out():
    graphs = PreferenceGraphs.from_edges([[("a", "b"), ("b", "c")], [("c", "b")], [("b", "c")], [("c", "d")]])
    with pytest.warns(UserWarning, match="of infinite worth.*a"):
        model = RankAggregator().fit(graphs)
    assert model.items_ == ["b", "c"]
    assert model.outside_ == {"below": ["d"], "above": ["a"]}
    with pytest.raises(NoMaximumError):
        RankAggregator(on_infinite="error").fit(graphs)


def test_model_of_graphs_is_saved_and_loaded(voters, tmp_path):
    graphs, _ = voters
    model = RankAggregator().fit(graphs)
    model.save(tmp_path / "model")
    again = RankAggregator.load(tmp_path / "model")
    np.testing.assert_array_equal(again.scores_, model.scores_)
    np.testing.assert_array_equal(again.standard_errors_, model.standard_errors_)
    assert again.solver_ == "em"


def test_weights_count_lists():
    rng = np.random.default_rng(2)
    graphs = observed_graphs(rng, rng.normal(size=4), 30, 0.6)
    weights = rng.integers(1, 4, 30)
    repeated = PreferenceGraphs.from_edges(
        [
            [(one.names[one.items[u]], one.names[one.items[v]]) for u, v in one.edges]
            for b, times in enumerate(weights)
            for one in [graphs.select([b])] * times
        ],
        names=graphs.names,
    )
    weighted = RankAggregator().fit(graphs, sample_weight=weights)
    np.testing.assert_allclose(weighted.scores_, RankAggregator().fit(repeated).scores_, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "fit_options", "message"),
    [
        ({"ties": "davidson"}, {}, "ties does not apply to graphs"),
        ({"unranked": "last"}, {}, "unranked does not apply to graphs"),
        ({}, {"cluster": [0] * 60}, "cluster does not apply to graphs"),
        ({}, {"sample_weight": [1.0]}, "one number for each of 60 lists"),
    ],
)
def test_options_that_graphs_do_not_take_are_refused(voters, options, fit_options, message):
    with pytest.raises(ValueError, match=message):
        RankAggregator(**options).fit(voters[0], **fit_options)
    with pytest.raises(ValueError, match="solver 'em' is for graphs"):
        RankAggregator(solver="em").fit([["a", "b"], ["b", "a"]])


def test_cycles_are_shown_by_name_or_merged():
    graphs = PreferenceGraphs.from_edges([[("a", "b"), ("b", "a"), ("b", "c")], [("c", "b")], [("b", "a")]])
    with pytest.raises(ValueError, match=r"cycle, got (a > b > a|b > a > b); graphs.merge_cycles\(\) ties"):
        RankAggregator().fit(graphs)
    merged = graphs.merge_cycles()
    first = merged.select([0])
    pairs = {(first.names[first.items[u]], first.names[first.items[v]]) for u, v in first.edges}
    assert pairs == {("a", "c"), ("b", "c")}
    assert RankAggregator().fit(merged).items_ == ["a", "b", "c"]


# Rankers with features


@pytest.fixture(scope="module")
def rows():
    """Rows in lists of six, and graphs of 40% of the pairs."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(600, 3))
    truth = np.array([1.0, -0.5, 0.0])
    times = rng.exponential(np.exp(-(X @ truth)))
    pairs = [(first + a, first + b) for first in range(0, 600, 6) for a in range(6) for b in range(a)]
    edges = [(a, b) if times[a] < times[b] else (b, a) for a, b in pairs if rng.random() < 0.4]
    return X, PreferenceGraphs.from_rows(edges, np.arange(0, 601, 6)), truth


def test_linear_model_maximises_the_likelihood_of_graphs(rows, tmp_path):
    X, graphs, truth = rows
    model = LinearRanker().fit(X, graphs)

    def loss(b):
        value, gradient = negative_log_likelihood(X @ b, graphs)
        return value, X.T @ gradient

    best = minimize(loss, np.zeros(3), jac=True, options={"gtol": 1e-8}).x
    np.testing.assert_allclose(model.coef_, best, rtol=0, atol=1e-5)
    assert model.loss_ == pytest.approx(loss(best)[0], abs=1e-6)
    assert model.converged_
    step = 1e-4
    information = np.array([(loss(best + step * e)[1] - loss(best - step * e)[1]) / (2 * step) for e in np.eye(3)])
    np.testing.assert_allclose(model.standard_errors_, np.sqrt(np.diag(np.linalg.inv(information))), rtol=0.03)
    assert np.abs((model.coef_ - truth) / model.standard_errors_).max() < 3.5
    model.save(tmp_path / "model")
    again = LinearRanker.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.standard_errors_, model.standard_errors_)


def test_linear_model_of_sampled_graphs_agrees_within_a_fraction_of_its_errors(rows, monkeypatch):
    X, graphs, _ = rows
    exact = LinearRanker().fit(X, graphs)
    monkeypatch.setattr("plackett.likelihood.partial_orders.order_objective._MOST_STATES", 1)
    sampled = LinearRanker(random_state=0).fit(X, graphs)
    assert sampled.converged_
    assert "sampled graphs add" in sampled.note_
    assert np.abs((sampled.coef_ - exact.coef_) / exact.standard_errors_).max() < 0.3


def test_trees_learn_from_graphs(rows):
    pytest.importorskip("lightgbm")
    X, graphs, truth = rows
    model = BoostedRanker(n_estimators=60, min_child_samples=10, progress=False, random_state=0).fit(X, graphs)
    assert np.corrcoef(model.predict(X), X @ truth)[0, 1] > 0.8
    before = negative_log_likelihood(np.zeros(600), graphs)[0]
    assert negative_log_likelihood(model.predict(X), graphs)[0] < 0.8 * before


@pytest.mark.parametrize("kind", [LinearRanker, BoostedRanker])
def test_rankers_refuse_arguments_that_graphs_exclude(kind, rows):
    X, graphs, _ = rows
    with pytest.raises(ValueError, match="qid cannot be combined with graphs"):
        kind().fit(X, graphs, qid=np.zeros(600))
    with pytest.raises(ValueError, match="X must have one row of features for each of the 600 entries"):
        kind().fit(X[:10], graphs)
    with pytest.raises(ValueError, match="objective must be 'partition' for graphs"):
        kind(objective="ranknet").fit(X, graphs)
    with pytest.raises(ValueError, match="top cannot be combined"):
        kind(top=3).fit(X, graphs)


# Breaking


def test_separators_have_the_weights_of_khetan_and_oh():
    graphs = PreferenceGraphs.from_edges([[("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]], weights=[2.0])
    ballots = ballots_from_graphs(graphs, method="separators")
    pairs = [tuple(ballots.names[i] for i in pair) for pair in ballots.items.reshape(-1, 2)]
    assert sorted(zip(pairs, ballots.weights, strict=True)) == [
        (("a", "b"), 2 / 3), (("a", "c"), 2 / 3), (("a", "d"), 2 / 3),
    ]  # fmt: skip


def test_full_rankings_broken_at_separators_are_consistent():
    """Every item is a separator: pairs of weight 1 / (items below) estimate the worths without bias."""
    rng = np.random.default_rng(4)
    worths = np.array([1.0, 0.0, -1.0])
    graphs = observed_graphs(rng, worths, 3000, 1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = RankAggregator().fit(ballots_from_graphs(graphs, method="separators"))
    assert np.abs(found.scores_ - worths).max() < 0.1
    exact = plackett.RankAggregator().fit(ballots_from_graphs(graphs))
    assert np.abs(found.scores_ - exact.scores_).max() < 0.1


BAD_TABLES = {
    "list": ({"list": [1, None], "a": ["x", "y"], "b": ["y", "z"]}, {}, "column 'list' must not be missing, got None"),
    "weight": (
        {"list": [1, 1], "a": ["x", "y"], "b": ["y", "z"], "n": [1.0, 2.0]},
        {"weight": "n"},
        "column 'n' must be the same in all rows of a list, got a different one in row 0",
    ),
}


@pytest.mark.parametrize(("table", "options", "message"), BAD_TABLES.values(), ids=[*BAD_TABLES])
def test_bad_tables_of_graphs_are_refused(table, options, message):
    with pytest.raises(ValueError, match=message):
        PreferenceGraphs.from_frame(table, by="list", better="a", worse="b", **options)


def test_bad_edges_and_names_of_graphs_are_refused():
    with pytest.raises(ValueError, match=r"edges must have the shape \(edges, 2\), got \(1, 3\)"):
        PreferenceGraphs(np.zeros((1, 3), int), [0, 1], [0, 2], [1.0], ["a", "b"])
    with pytest.raises(ValueError, match="names must differ from each other, got one twice"):
        PreferenceGraphs.from_edges([[("a", "b")]], names=["a", "b", "a"])
    graphs = PreferenceGraphs.from_edges([[("a", "b")], [("b", "a")]])
    with pytest.raises(ValueError, match="lists must differ from each other, got one twice"):
        graphs.select([1, 1])
