"""LinearRanker: optima, standard errors, separation, penalties, scikit-learn, saved models."""

import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from contract import failures_of_rankers
from data_folder import real_data
from rich.console import Console
from scipy.sparse import csr_array
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from plackett import LinearRanker, partition_derivatives
from plackett.data import RankingData, dump_letor, load_letor, make_graded_lists, make_tiered_lists
from plackett.errors import DataError
from plackett.estimators import load_model
from plackett.experiments.tie_bias import TRUTH, fit_linear, methods
from plackett.likelihood import approximate_derivatives
from plackett.linear import solvers
from plackett.linear.features import scaled_features
from plackett.linear.solvers import LinearProblem
from plackett.linear.tier_likelihood import LIKELIHOODS, TieredLikelihood, make_likelihood
from plackett.losses import lower_bound_loss
from plackett.metrics import ndcg
from plackett.report import summary_table


@pytest.fixture(scope="module")
def data() -> RankingData:
    return make_tiered_lists(60, tier_sizes=(1, 2, 3, 4), coefficients=(1.0, -0.5, 0.0), random_state=0)


# Features


@pytest.mark.parametrize("kind", [np.asarray, csr_array])
def test_features_far_from_zero_keep_their_variation(kind: Any, data: RankingData) -> None:
    """1.7e9 + age is judged by its variation within lists."""
    far = data.X.copy()
    far[:, 0] = 1.7e9 + 20.0 * far[:, 0]
    near = data.X.copy()
    near[:, 0] = far[:, 0] - 1.7e9
    wanted, found = (LinearRanker().fit(kind(X), data.y, qid=data.qid) for X in (near, far))
    assert wanted.coef_[0] != 0.0
    np.testing.assert_allclose(found.coef_, wanted.coef_, rtol=1e-6)
    np.testing.assert_allclose(found.standard_errors_, wanted.standard_errors_, rtol=1e-6)


@pytest.mark.parametrize("kind", [np.asarray, csr_array])
def test_features_that_vary_only_by_rounding_are_named(kind: Any, data: RankingData) -> None:
    X = np.column_stack([data.X, np.full(len(data.y), 7.0), 1.0 + np.arange(len(data.y)) % 2 * 2.0**-52])
    with pytest.warns(UserWarning, match="no coefficient is learned for 4: within each list"):
        model = LinearRanker(l2=1.0).fit(kind(X), data.y, qid=data.qid)
    assert (model.coef_ == 0.0).tolist() == [False, False, False, True, True]


# Optima


def losses(name: str, scores: Any, data: RankingData) -> float:
    """Negative log-likelihoods from independent code."""
    import torch

    given = {"offsets": data.offsets}
    if name in ("partition", "topk"):
        return -float(partition_derivatives(scores, data.y, **given).value.sum())
    if name == "lower_bound":
        tensor = torch.from_numpy(np.ascontiguousarray(scores))
        return float(lower_bound_loss(tensor, data.y, reduction="sum", **given))
    ties = {"listmle": "random"}.get(name, name)
    bottom = "ordered" if name == "listmle" else "unordered"
    return -float(
        approximate_derivatives(scores, data.y, ties=ties, bottom=bottom, random_state=3, **given).value.sum()
    )


@pytest.mark.parametrize("name", [n for n in LIKELIHOODS if n != "topk"])
@pytest.mark.parametrize("solver", ["lbfgs", "newton-cg"])
def test_every_likelihood_reaches_its_optimum(name: str, solver: str, data: RankingData) -> None:
    model = LinearRanker(name, top=None, l2=0, solver=solver, random_state=3).fit(data)
    assert model.converged_
    assert model.concave_
    assert model.gradient_norm_ < 1e-9
    assert model.loss_ == pytest.approx(losses(name, data.X @ model.coef_, data), rel=1e-12)
    # By second order, other coefficients are worse by half of (move / standard error)^2, and never better.
    for move in 1e-3 * np.eye(3):
        moved = [losses(name, data.X @ (model.coef_ + s * move), data) - model.loss_ for s in (1.0, -1.0)]
        expected = 0.5 * move @ np.linalg.inv(model.covariance_) @ move
        # The third derivative adds a relative error of 1e-3 to each, and its square to the mean.
        assert np.mean(moved) == pytest.approx(expected, rel=1e-5)


def test_matches_the_demonstration() -> None:
    """Every tie handling of the demonstration, whose fit stops at a gradient of 1e-7."""
    data = make_tiered_lists(100, coefficients=TRUTH, random_state=1)
    ours = {
        "exact tiers": LinearRanker(),
        "ties at random, bottom unordered": LinearRanker(
            "listmle", top=None, l2=0, objective_options={"bottom": "unordered"}, random_state=1
        ),
        "Efron, bottom unordered": LinearRanker("efron"),
        "Breslow / lower bound, bottom unordered": LinearRanker("lower_bound"),
        "ties at random, all tiers": LinearRanker("listmle", top=None, l2=0, random_state=1),
    }
    for method in methods(1):
        expected = fit_linear(data, method.likelihood)
        np.testing.assert_allclose(ours[method.name].fit(data).coef_, expected, atol=1e-6)


def test_exact_ties_recover_coefficients_and_others_are_biased() -> None:
    """Exact: the mean over seeds is within two standard errors. Others: the biases of the demonstration, from an
    independent experiment with standard errors of about 0.006."""
    made = [make_tiered_lists(300, tier_sizes=(1, 3, 6, 10), coefficients=TRUTH, random_state=s) for s in range(12)]
    exact = [LinearRanker().fit(data) for data in made]
    error = np.sqrt(np.mean([m.standard_errors_**2 for m in exact], axis=0) / len(made))
    assert (np.abs(np.mean([m.coef_ for m in exact], axis=0) - TRUTH) < 2 * error).all()
    within = [np.abs(m.coef_ - TRUTH) < 2 * m.standard_errors_ for m in exact]
    assert np.mean(within) > 0.85  # 95% of 24 on average; 20 or fewer with probability 0.01
    for name, size in (("efron", 0.901), ("breslow", 0.768), ("lower_bound", 0.768)):
        coefficients = np.mean([LinearRanker(name).fit(data).coef_ for data in made], axis=0)
        np.testing.assert_allclose(coefficients[0], size, atol=0.024)
    random = partial(LinearRanker, "listmle", top=None, l2=0)
    coefficients = np.mean([random(random_state=s).fit(data).coef_ for s, data in enumerate(made)], axis=0)
    np.testing.assert_allclose(coefficients, (0.550, -0.281), atol=0.024)


def test_solvers_and_scales_agree(data: RankingData) -> None:
    expected = LinearRanker().fit(data)
    for options in ({"solver": "newton-cg"}, {"standardise": False}):
        found = LinearRanker(**options).fit(data)
        assert found.converged_
        np.testing.assert_allclose(found.coef_, expected.coef_, atol=1e-9)
    # Without the final steps for inference, L-BFGS reaches gradients of about 1e-8: below, the value does not change.
    found = LinearRanker(inference=False, l2=1e-12, tol=1e-7).fit(data)
    assert found.converged_
    np.testing.assert_allclose(found.coef_, expected.coef_, atol=1e-6)  # gradients of 1e-7, curvatures of 0.1
    stretched = RankingData(data.X * [1e-3, 1.0, 1e4], data.y, data.qid, data.offsets)
    found = LinearRanker().fit(stretched)
    np.testing.assert_allclose(found.coef_ * [1e-3, 1.0, 1e4], expected.coef_, rtol=1e-9)
    np.testing.assert_allclose(found.standard_errors_ * [1e-3, 1.0, 1e4], expected.standard_errors_, rtol=1e-9)


def test_listmle_defaults_match_the_paper(data: RankingData) -> None:
    """The defaults are top 10 and a Gaussian prior with variance one."""
    long = make_tiered_lists(20, tier_sizes=(5, 10, 10), random_state=2)
    default = LinearRanker("listmle", random_state=0).fit(long)
    same = LinearRanker("listmle", top=10, l2=1.0, random_state=0).fit(long)
    other = LinearRanker("listmle", top=None, l2=0.0, random_state=0).fit(long)
    assert (default.coef_ == same.coef_).all()
    assert np.abs(default.coef_ - other.coef_).min() > 1e-3
    assert LinearRanker("partition").fit(data).coef_ == pytest.approx(LinearRanker(top=None, l2=0).fit(data).coef_)


def test_topk_equals_partition_without_ties_in_the_top(data: RankingData) -> None:
    rng = np.random.default_rng(0)
    strict = RankingData(data.X, rng.permutation(len(data.y)).astype(float), data.qid, data.offsets)
    found = LinearRanker("topk", top=3).fit(strict)
    assert found.coef_ == pytest.approx(LinearRanker("partition", top=3).fit(strict).coef_, abs=1e-12)
    with pytest.raises(ValueError, match="must not tie within the top places for the objective 'topk', got a tie in"):
        LinearRanker("topk", top=3).fit(data)
    assert LinearRanker("topk", top=1).fit(data).converged_  # the first tier has one item


def test_cutoff_inside_a_tier_is_not_concave(data: RankingData) -> None:
    """The information then comes from differences of the exact gradient."""
    model = LinearRanker(top=5).fit(data)
    assert model.converged_
    assert not model.concave_
    assert LinearRanker(top=6).fit(data).concave_
    h = 1e-4

    def gradient(b: Any) -> Any:
        return data.X.T @ partition_derivatives(data.X @ b, data.y, offsets=data.offsets, top=5).gradient

    rows = [(gradient(model.coef_ + h * e) - gradient(model.coef_ - h * e)) / (2 * h) for e in np.eye(3)]
    # Two central differences with different steps, accurate to their squares.
    np.testing.assert_allclose(np.linalg.inv(model.covariance_), -np.array(rows), rtol=1e-5, atol=1e-5)


# Information


@pytest.mark.parametrize("name", [n for n in LIKELIHOODS if n != "topk"])
@pytest.mark.parametrize("sparse", [False, True])
def test_information_matches_differences_of_the_gradient(
    name: str, sparse: bool, data: RankingData, rng: np.random.Generator
) -> None:
    X = np.hstack([data.X, rng.standard_normal((len(data.y), 20))])  # more columns than one block
    weights = rng.random(len(data))
    objective = make_likelihood(name, data.y, data.offsets, weights, top=None, random_state=0)
    problem = LinearProblem(objective, csr_array(X) if sparse else X, data.offsets, float(weights.sum()), l2=0.3)
    b, h = 0.3 * rng.standard_normal(X.shape[1]), 1e-5
    information = problem.information(b)
    for j, unit in enumerate(np.eye(len(b))):
        difference = (problem.smooth(b + h * unit)[1] - problem.smooth(b - h * unit)[1]) / (2 * h) * problem.total
        # Central differences with h = 1e-5, of gradients of size 100 with 14 digits.
        np.testing.assert_allclose(information[:, j], difference, rtol=1e-6, atol=1e-6)
        assert problem.hessian_product(b, unit) * problem.total == pytest.approx(information[:, j], abs=1e-9)


def test_intervals_have_the_stated_coverage() -> None:
    """500 replications with tied data; the standard error of 1,000 shares of 95% is 0.7%."""
    truth = np.array([1.0, -0.5])
    hits = []
    for seed in range(500):
        data = make_tiered_lists(40, tier_sizes=(1, 2, 4), coefficients=tuple(truth), random_state=seed)
        intervals = LinearRanker().fit(data).confidence_intervals(0.95)
        hits.append((intervals[:, 0] < truth) & (truth < intervals[:, 1]))
    assert 0.93 < np.mean(hits) < 0.97


def test_weights_count_as_repeated_lists(data: RankingData) -> None:
    """A list of weight 2 counts as two lists, for coefficients and their errors."""
    twice = data.select([*range(60), *range(20)])
    weights = np.repeat([2.0] * 20 + [1.0] * 40, np.diff(data.offsets))
    weighted = LinearRanker().fit(data.X, data.y, group=np.diff(data.offsets), sample_weight=weights)
    repeated = LinearRanker().fit(twice.X, twice.y, group=np.diff(twice.offsets))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=1e-9)
    np.testing.assert_allclose(weighted.covariance_, repeated.covariance_, atol=1e-9)
    without = LinearRanker().fit(data.select(range(20)))
    zero = np.repeat([1.0] * 20 + [0.0] * 40, np.diff(data.offsets))
    ignored = LinearRanker().fit(data.X, data.y, group=np.diff(data.offsets), sample_weight=zero)
    np.testing.assert_allclose(ignored.coef_, without.coef_, atol=1e-8)  # scaled by different rows


def test_undetermined_coefficients_have_infinite_errors(data: RankingData) -> None:
    """A feature constant in each list and a duplicated one have infinite errors; the others are unaffected."""
    X = np.column_stack((data.X, 2.0 * data.X[:, 2], np.repeat(np.arange(60.0), np.diff(data.offsets))))
    model = LinearRanker().fit(X, data.y, qid=data.qid)
    plain = LinearRanker().fit(data)
    assert model.converged_
    assert np.isinf(model.standard_errors_).tolist() == [False, False, True, True, True]
    np.testing.assert_allclose(model.standard_errors_[:2], plain.standard_errors_[:2], rtol=1e-9)
    np.testing.assert_allclose(model.coef_[:2], plain.coef_[:2], atol=1e-9)
    np.testing.assert_allclose(model.coef_[2] + 2.0 * model.coef_[3], plain.coef_[2], atol=1e-9)
    assert model.coef_[4] == 0.0
    assert "do not determine" in str(model.summary())
    nothing = LinearRanker().fit(data.X, np.zeros(len(data.y)), qid=data.qid)
    assert (nothing.coef_ == 0).all()
    assert np.isinf(nothing.standard_errors_).all()


# Infinite estimates


def separated_problems() -> dict[str, tuple[Any, Any, Any, set[str]]]:
    data = make_tiered_lists(40, tier_sizes=(1, 2, 4), random_state=0)
    group = np.diff(data.offsets)
    mark = np.zeros(len(data.y))
    mark[np.flatnonzero(data.y == 2)[:3]] = 1.0  # only the winners of three lists
    tilted = np.column_stack((data.X[:, 0] + mark, data.X[:, 1], data.X[:, 0]))
    return {
        "perfect feature": (1e-3 * data.y[:, None], data.y, group, {"0"}),
        "a mark of winners": (np.column_stack((data.X, mark)), data.y, group, {"2"}),
        "hidden in a difference": (tilted, data.y, group, {"0", "2"}),
    }


@pytest.mark.parametrize("name", [*separated_problems()])
@pytest.mark.parametrize("solver", ["lbfgs", "newton-cg"])
def test_separation_gives_a_warning(name: str, solver: str) -> None:
    X, y, group, features = separated_problems()[name]
    with pytest.warns(ConvergenceWarning, match="the estimate is infinite") as caught:
        model = LinearRanker(solver=solver).fit(X, y, group=group)
    named = str(caught[0].message).split("a combination of ")[1].split(" never")[0]
    assert set(named.split(", ")) == features
    assert not model.converged_
    assert set(np.flatnonzero(np.isinf(model.standard_errors_)).astype(str)) == features
    assert "infinite" in str(model.summary())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert LinearRanker(l2=0.1, solver=solver).fit(X, y, group=group).converged_


@pytest.mark.parametrize("size", [3.0, 30.0, 300.0])
def test_strong_effects_are_not_reported_as_separation(size: float) -> None:
    data = make_tiered_lists(200, tier_sizes=(1, 2, 4), coefficients=(size, -size), random_state=1)
    model = LinearRanker().fit(data)
    assert model.converged_
    assert np.isfinite(model.standard_errors_).all()
    assert model.gradient_norm_ < 1e-9


def test_many_features_without_a_penalty_give_a_warning(data: RankingData) -> None:
    with pytest.warns(ConvergenceWarning, match="whether the estimate is finite was not checked for 3 features"):
        model = LinearRanker(inference=False).fit(data)
    assert model.converged_
    assert np.isnan(model.standard_errors_).all()
    assert "not requested" in str(model.summary())


def test_many_sparse_features_need_no_square_matrix(rng: np.random.Generator) -> None:
    """Sparse and penalised: no array of size features x features is allocated."""
    offsets = np.arange(0, 1001, 10)
    columns, ends = rng.integers(0, 20_000, 20_000), np.arange(0, 20_001, 20)
    X = csr_array((rng.random(20_000), columns, ends), (1000, 20_000))
    X.sum_duplicates()
    truth = rng.standard_normal(20_000)
    labels = np.floor(X @ truth + rng.gumbel(size=1000)).clip(-2, 2)
    for standardise in (True, False):
        model = LinearRanker(l2=1.0, standardise=standardise).fit(X, labels, group=np.diff(offsets))
        assert model.converged_
        assert model.covariance_.size == 0
        assert np.corrcoef(model.predict(X), X @ truth)[0, 1] > 0.5


def test_a_step_of_lbfgs_evaluates_the_loss_once(data: RankingData, monkeypatch: pytest.MonkeyPatch) -> None:
    """For value and gradient together."""
    counts, evaluations = [], []
    minimise, evaluate = solvers.minimize, TieredLikelihood._evaluate

    def counted(**how: Any) -> Any:
        before = len(evaluations)
        found = minimise(**how)
        counts.append((len(evaluations) - before, found.nfev))
        return found

    monkeypatch.setattr(solvers, "minimize", counted)
    monkeypatch.setattr(TieredLikelihood, "_evaluate", lambda self, s: evaluations.append(1) or evaluate(self, s))
    LinearRanker().fit(data)
    ((evaluated, steps),) = counts
    assert evaluated == steps > 5


def test_fit_that_does_not_converge_warns(data: RankingData) -> None:
    with pytest.warns(ConvergenceWarning, match="did not converge: the gradient is .* after 1 iterations"):
        model = LinearRanker(max_iter=1).fit(data)
    assert not model.converged_
    assert model.gradient_norm_ > 1e-6
    assert np.isnan(model.standard_errors_).all()


# Penalties


def penalty_gradient(model: LinearRanker, data: RankingData, scale: Any) -> Any:
    """d log-likelihood / d coefficients of scaled features, at the fitted coefficients."""
    derivatives = partition_derivatives(data.X @ model.coef_, data.y, offsets=data.offsets)
    return data.X.T @ derivatives.gradient / scale


@pytest.mark.parametrize("standardise", [True, False])
def test_ridge_satisfies_the_optimality_conditions(standardise: bool, data: RankingData) -> None:
    scale = scaled_features(data.X, data.offsets, np.ones(len(data)), standardise=standardise).scale
    model = LinearRanker(l2=20.0, standardise=standardise).fit(data)
    np.testing.assert_allclose(penalty_gradient(model, data, scale), 20.0 * model.coef_ * scale, atol=1e-7)
    plain = LinearRanker().fit(data)
    assert (np.abs(model.coef_[:2]) < np.abs(plain.coef_[:2])).all()
    assert (model.standard_errors_ < plain.standard_errors_).all()


@pytest.mark.parametrize("l1", [1.0, 10.0, 60.0, 1e4])
@pytest.mark.parametrize("l2", [0.0, 5.0])
def test_lasso_satisfies_the_optimality_conditions(l1: float, l2: float, data: RankingData) -> None:
    """|gradient| <= l1 where the coefficient is 0, and = l1 elsewhere."""
    scale = scaled_features(data.X, data.offsets, np.ones(len(data)), standardise=True).scale
    model = LinearRanker(l1=l1, l2=l2).fit(data)
    b = model.coef_ * scale
    slope = penalty_gradient(model, data, scale) - l2 * b
    room = 2e-6 * len(data)  # tol = 1e-6 of the mean over lists
    assert (np.abs(slope[b == 0.0]) <= l1 + room).all()
    np.testing.assert_allclose(slope[b != 0.0], l1 * np.sign(b[b != 0.0]), atol=room)
    assert model.converged_
    assert (b == 0.0).sum() == {1.0: 0, 10.0: 1, 60.0: 1, 1e4: 3}[l1]
    assert np.isnan(model.standard_errors_).all()
    assert "L1 penalty" in str(model.summary())


# Losses that are not likelihoods


@pytest.mark.parametrize("name", ["attrank", "listnet", "listpl", "ranknet", "approx_ndcg"])
def test_every_loss_learns(name: str) -> None:
    train, test = (make_graded_lists(60, mean_length=15, n_features=7, random_state=s)[0] for s in (0, 1))
    start = ndcg(np.zeros(len(test.y)), test.y, k=10, offsets=test.offsets)
    model = LinearRanker(name, l2=1.0, random_state=0).fit(train)
    assert model.converged_
    assert model.score(test.X, test.y, qid=test.qid) > start + 0.1
    assert np.isnan(model.standard_errors_).all()
    assert "is not a likelihood" in str(model.summary())


def test_ranksvm_matches_a_linear_svm_of_differences(data: RankingData) -> None:
    pairs = [
        (i, j)
        for a, b in zip(data.offsets[:-1], data.offsets[1:], strict=True)
        for i in range(a, b)
        for j in range(a, b)
        if data.y[i] > data.y[j]
    ]
    first, second = np.array(pairs).T
    differences = data.X[first] - data.X[second]
    sign = np.where(np.arange(len(pairs)) % 2, 1.0, -1.0)
    svm = LinearSVC(C=0.1, loss="hinge", fit_intercept=False, max_iter=100_000, tol=1e-8, random_state=0)
    expected = svm.fit(differences * sign[:, None], sign).coef_[0]

    def value(b: Any) -> float:
        return 0.5 * 10.0 * b @ b + np.maximum(0.0, 1.0 - differences @ b).sum()

    with warnings.catch_warnings():  # the hinge has corners, so the gradient need not vanish
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = LinearRanker("ranksvm", l2=10.0, standardise=False).fit(data).coef_
    assert value(found) == pytest.approx(value(expected), rel=1e-4)


def test_torch_is_not_imported() -> None:
    code = (
        "import sys, numpy as np; from plackett import LinearRanker, CoordinateAscentRanker; "
        "X = np.arange(12.0).reshape(6, 2) % 5; y = [2, 1, 0, 0, 2, 1]; "
        "[m.fit(X, y, group=[3, 3]) for m in (LinearRanker(l2=1), CoordinateAscentRanker())]; "
        "print('torch' in sys.modules)"
    )
    result = subprocess.run(  # noqa: S603  # our own interpreter
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"


# The estimator


def test_summary_shows_coefficients_and_intervals(data: RankingData) -> None:
    frame = pd.DataFrame(data.X, columns=["price", "stars", "noise"])
    model = LinearRanker().fit(frame, data.y, qid=data.qid)
    summary = model.summary(0.9)
    assert list(summary.names) == ["price", "stars", "noise"]
    z = model.coef_ / model.standard_errors_
    np.testing.assert_allclose(summary.z_values, z)
    np.testing.assert_allclose(summary.p_values, 2 * norm.sf(np.abs(z)), rtol=1e-9)
    reach = norm.ppf(0.95) * model.standard_errors_
    np.testing.assert_allclose(model.confidence_intervals(0.9), np.stack((model.coef_ - reach, model.coef_ + reach), 1))
    text = str(summary)
    assert text.splitlines()[0].split() == ["feature", "coefficient", "standard", "error", "z", "p", "0.9", "interval"]
    assert f"{model.coef_[0]:.4g}" in text
    assert "60 lists" in text
    console = Console(width=120)
    with console.capture() as shown:
        console.print(summary_table(summary))
    assert all(cell in shown.get() for row in summary.rows() for cell in row)
    for level in (0.0, 1.0, "a"):
        with pytest.raises(ValueError, match="level must be"):
            model.summary(level)


def test_sparse_features_and_tables_give_the_same_model(data: RankingData) -> None:
    plain = LinearRanker().fit(data)
    sparse = LinearRanker().fit(csr_array(data.X), data.y, qid=data.qid)
    np.testing.assert_allclose(sparse.coef_, plain.coef_, atol=1e-9)
    np.testing.assert_allclose(sparse.covariance_, plain.covariance_, atol=1e-9)
    np.testing.assert_allclose(sparse.predict(csr_array(data.X)), data.X @ plain.coef_, atol=1e-8)
    frame = pd.DataFrame(data.X, columns=["a", "b", "c"]).assign(query=data.qid)
    named = LinearRanker(query_column="query").fit(frame, data.y)
    np.testing.assert_allclose(named.coef_, plain.coef_, atol=1e-12)
    assert named.score(frame, data.y) == pytest.approx(plain.score(data.X, data.y, qid=data.qid))
    assert named.rank(frame).min() == 1
    polars = LinearRanker().fit(pl.DataFrame(data.X, schema=["a", "b", "c"]), data.y, qid=data.qid)
    assert (polars.coef_ == plain.coef_).all()


def test_rows_can_be_in_any_order(data: RankingData, rng: np.random.Generator) -> None:
    order = rng.permutation(len(data.y))
    shuffled = LinearRanker().fit(data.X[order], data.y[order], qid=data.qid[order])
    np.testing.assert_allclose(shuffled.coef_, LinearRanker().fit(data).coef_, atol=1e-9)


def test_evaluation_sets_are_scored(data: RankingData) -> None:
    model = LinearRanker(eval_metric=["ndcg@5", "tau-b"]).fit(data, eval_set=[data, (data.X, data.y, data.qid)])
    expected = ndcg(data.X @ model.coef_, data.y, k=5, offsets=data.offsets)
    assert [set(found) for found in model.evals_result_.values()] == [{"ndcg@5", "tau-b"}] * 2
    assert model.evals_result_["valid_0"]["ndcg@5"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "lambdarank"}, "objective must be one of partition, topk"),
        ({"l2": -1.0}, 'l2 must be a finite number of at least 0 or "auto", got -1'),
        ({"l1": np.inf}, "l1 must be a finite number of at least 0, got inf"),
        ({"l2": "strong"}, "l2 must be"),
        ({"solver": "sgd"}, "solver must be one of lbfgs, newton-cg, got 'sgd'"),
        ({"solver": "newton-cg", "l1": 1.0}, "solver='newton-cg' needs second derivatives"),
        ({"solver": "newton-cg", "objective": "ranknet"}, "solver='newton-cg' needs second derivatives"),
        ({"tol": 0.0}, "tol must be a number above 0"),
        ({"max_iter": 0}, "max_iter must be a whole number of at least 1"),
        ({"top": 0}, "top must be a whole number of at least 1"),
        ({"objective": "efron", "top": 3}, "top must be None for the objective 'efron', got 3"),
        ({"objective_options": {"samples": 3}}, "objective_options of 'partition' may hold bottom, got samples"),
        ({"objective_options": {"bottom": "ordered"}}, "bottom must be .* only for listmle, got 'ordered'"),
        ({"objective": "listmle", "objective_options": {"bottom": "up"}}, "bottom must be .* got 'up'"),
    ],
)
def test_bad_parameters_are_refused(options: dict[str, Any], message: str, data: RankingData) -> None:
    with pytest.raises(ValueError, match=message):
        LinearRanker(**options).fit(data)


def test_bad_data_are_refused(data: RankingData) -> None:
    X = data.X.copy()
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="contains NaN"):
        LinearRanker().fit(X, data.y, qid=data.qid)
    with pytest.raises(ValueError, match="at least two rows"):
        LinearRanker().fit([[1.0]], [1.0], qid=[0])
    with pytest.raises(ValueError, match="sample_weight must be constant within a list"):
        LinearRanker().fit(data.X, data.y, qid=data.qid, sample_weight=np.arange(len(data.y)))


@pytest.mark.filterwarnings("ignore:neither qid nor group")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks([LinearRanker(l2=1.0)], expected_failed_checks=failures_of_rankers)
def test_passes_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_grid_search_routes_lists(data: RankingData) -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        model = LinearRanker().set_fit_request(qid=True).set_score_request(qid=True)
        search = GridSearchCV(model, {"l2": [0.0, 10.0]}, cv=GroupKFold(3))
        assert search.fit(data.X, data.y, qid=data.qid, groups=data.qid).best_score_ > 0.5
        pipeline = make_pipeline(StandardScaler(), model).fit(data.X, data.y, qid=data.qid)
        assert pipeline.score(data.X, data.y, qid=data.qid) > 0.5
    assert clone(LinearRanker("efron", l2=3.0)).get_params() == LinearRanker("efron", l2=3.0).get_params()


# Saved models


def test_loaded_model_matches_the_saved_one(data: RankingData, tmp_path: Path) -> None:
    frame = pd.DataFrame(data.X, columns=["a", "b", "c"])
    constant = frame.assign(d=1.0)
    for number, (X, options) in enumerate(((frame, {}), (constant, {"l1": 2.0}), (constant, {}))):
        model = LinearRanker(**options).fit(X, data.y, qid=data.qid, eval_set=(X, data.y, data.qid))
        model.save(tmp_path / str(number))
        for found in (LinearRanker.load(tmp_path / str(number)), load_model(tmp_path / str(number))):
            assert (found.predict(X) == model.predict(X)).all()
            np.testing.assert_array_equal(found.covariance_, model.covariance_)
            assert str(found.summary()) == str(model.summary())
            assert found.evals_result_ == model.evals_result_
            assert found.get_params() == model.get_params()


def test_hostile_files_are_refused(data: RankingData, tmp_path: Path) -> None:
    path = tmp_path / "model"
    LinearRanker().fit(data).save(path)
    good = {name: (path / name).read_bytes() for name in ("coefficients.npy", "covariance.npy", "plackett.json")}
    huge = good["coefficients.npy"].replace(b"(3,)", b"(3000000000000,)").replace(b" " * 13 + b"\n", b"\n")
    bad = {
        "coefficients.npy": [b"", b"x" * 200, good["coefficients.npy"][:-8], good["covariance.npy"], huge],
        "covariance.npy": [b"", good["covariance.npy"][:100], good["coefficients.npy"]],
        "plackett.json": [b"", b"{}", good["plackett.json"].replace(b'"loss_"', b'"loss"')],
    }
    objects = tmp_path / "objects.npy"
    np.save(objects, np.array([print, len, open], dtype=object), allow_pickle=True)
    bad["coefficients.npy"].append(objects.read_bytes())
    np.save(objects, np.array([1.0, np.nan, 0.0]))
    bad["coefficients.npy"].append(objects.read_bytes())
    for name, contents in bad.items():
        for content in contents:
            (path / name).write_bytes(content)
            with pytest.raises(DataError):
                LinearRanker.load(path)
        (path / name).write_bytes(good[name])
    (path / "covariance.npy").unlink()
    with pytest.raises(DataError):
        LinearRanker.load(path)


def test_command_line_trains_and_predicts(tmp_path: Path, plackett: Callable[..., tuple[int, str, str]]) -> None:
    data = make_tiered_lists(30, random_state=0)
    dump_letor(data, tmp_path / "train.txt")
    output, scores = tmp_path / "model", tmp_path / "scores.txt"
    for model, options in (("linear", ["--objective", "efron", "-p", "l2=2"]), ("coordinate_ascent", [])):
        code, _, error = plackett("train", tmp_path / "train.txt", "-o", output, "--model", model, *options)
        assert code == 0, error
        code, _, error = plackett("predict", output, tmp_path / "train.txt", "-o", scores)
        assert code == 0, error
        read = load_letor(tmp_path / "train.txt")
        np.testing.assert_allclose(np.loadtxt(scores), load_model(output).predict(read.X), rtol=1e-6)


def test_mq2008_converges_with_good_scores() -> None:
    """46 features, some constant and many nearly collinear; as good as other linear rankers on this data."""
    train, test = (load_letor(real_data("mq2008", f"S{k}.txt.xz")) for k in (1, 5))
    model = LinearRanker().fit(train)
    assert model.converged_
    assert model.gradient_norm_ < 1e-9
    assert np.isinf(model.standard_errors_).sum() == 6  # always zero in this part
    assert model.score(test.X, test.y, qid=test.qid) > 0.65
