"""LEML and SLEEC: steps checked against dense algebra, planted structure, predictions by hand, bad input."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, ShuffleSplit

from plackett.data import MultilabelData, make_multilabel
from plackett.experiments import DataFolder, run_experiment
from plackett.experiments.baselines import LEML, SLEEC, base, leml, sleec
from plackett.experiments.multilabel_data import load, measure_top_labels
from plackett.experiments.pl_partition import embeddings
from plackett.metrics import multilabel_ndcg, multilabel_precision

MODELS: list[Any] = [
    LEML(8, 0.5, alternations=4, random_state=3, progress=False),
    SLEEC(8, 0.5, learners=2, clusters=2, neighbours=10, votes=5, random_state=3, progress=False),
]


@pytest.fixture(scope="module")
def data() -> MultilabelData:
    """Features that predict labels well; the first two rows have no labels."""
    made = make_multilabel(300, 400, 40, labels_per_row=3, features_per_row=25, signal=0.6, random_state=1)
    labels = made.Y.toarray()
    labels[:2] = 0
    return MultilabelData(X=made.X.astype(np.float64), Y=csr_array(labels))


def sparse_problem(rng: np.random.Generator, n: int = 40, d: int = 15, labels: int = 12) -> tuple[csr_array, csr_array]:
    X = csr_array(random_array((n, d), density=0.4, rng=rng))
    Y = csr_array((rng.random((n, labels)) < 0.2).astype(float))
    return X, Y


def dense_objective(X: Any, W: Any, H: Any, Y: Any, penalty: float) -> float:
    return float(np.sum((Y - X @ W @ H.T) ** 2) / 2 + penalty * (np.sum(W**2) + np.sum(H**2)) / 2)


# Ridge regression


@pytest.mark.parametrize("formed", [True, False])
def test_gram_product_is_the_same_whether_formed_or_not(rng: np.random.Generator, formed: bool) -> None:
    X = csr_array(random_array((30, 10), density=0.5 if formed else 0.02, rng=rng))
    assert (X.shape[1] ** 2 <= 8 * X.nnz) == formed
    V = rng.standard_normal((10, 3))
    np.testing.assert_allclose(base.gram_product(X)(V), X.toarray().T @ X.toarray() @ V, atol=1e-12)


def test_conjugate_gradients_solve_the_normal_equations(rng: np.random.Generator) -> None:
    X, _ = sparse_problem(rng)
    B = rng.standard_normal((15, 6))
    B[:, 2] = 0.0
    scale = np.array([0.0, 0.1, 1.0, 1.0, 5.0, 50.0])
    options: dict[str, Any] = {"scale": scale, "steps": 200, "tolerance": 1e-12}
    product = base.gram_product(X)
    gram = X.toarray().T @ X.toarray()
    expected = np.stack(
        [np.linalg.solve(s * gram + 0.3 * np.eye(15), b) for s, b in zip(scale, B.T, strict=True)], axis=1
    )
    from_zero = base.solve_ridge(product, B, 0.3, **options)
    from_elsewhere = base.solve_ridge(product, B, 0.3, start=rng.standard_normal(B.shape), **options)
    np.testing.assert_allclose(from_zero, expected, atol=1e-9)
    np.testing.assert_allclose(from_elsewhere, expected, atol=1e-9)
    assert np.array_equal(base.solve_ridge(product, B, 0.3, start=expected, **{**options, "tolerance": 1e-6}), expected)


def test_every_step_lowers_the_quadratic(rng: np.random.Generator) -> None:
    X, _ = sparse_problem(rng)
    product, B, scale = base.gram_product(X), rng.standard_normal((15, 4)), np.array([0.5, 1.0, 2.0, 9.0])
    start = rng.standard_normal(B.shape)

    def quadratic(W: Any) -> Any:
        return (scale * np.sum((X @ W) ** 2, 0) + 0.1 * np.sum(W**2, 0)) / 2 - np.sum(B * W, 0)

    values = [
        quadratic(base.solve_ridge(product, B, 0.1, scale=scale, start=start, steps=steps, tolerance=1e-14))
        for steps in range(1, 8)
    ]
    assert (np.diff([quadratic(start), *values], axis=0) < 0.0).all()


# LEML


def test_objective_without_the_dense_residual(rng: np.random.Generator) -> None:
    X, Y = sparse_problem(rng)
    W, H = rng.standard_normal((15, 4)), rng.standard_normal((12, 4))
    ours = leml.objective(X @ W, H, W, Y, 0.7)
    assert ours == pytest.approx(dense_objective(X.toarray(), W, H, Y.toarray(), 0.7), rel=1e-12)


def test_best_labels_have_no_gradient(rng: np.random.Generator) -> None:
    """Check central differences of the dense objective in all directions."""
    X, Y = sparse_problem(rng)
    W = rng.standard_normal((15, 4))
    H = leml.best_labels(X @ W, Y, 0.7)
    for index in np.ndindex(H.shape):
        change = np.zeros_like(H)
        change[index] = 1e-4
        up, down = (dense_objective(X.toarray(), W, H + sign * change, Y.toarray(), 0.7) for sign in (1, -1))
        # The numerator is a difference of two sums of about 100, each with an error of 1e-14; the step is 2e-4.
        assert abs(up - down) / 2e-4 < 1e-8


def test_fit_is_a_stationary_point(rng: np.random.Generator) -> None:
    """After many exact alternations, both gradients vanish: in dense form, and by finite differences."""
    X, Y = sparse_problem(rng, d=6, labels=5)
    plain: dict[str, Any] = {"normalise": False, "bias": False, "random_state": 0, "progress": False}
    model = LEML(2, 1.0, alternations=400, steps=100, tolerance=1e-12, **plain).fit(X, Y)
    W, H, dense, labels = model.W_, model.H_, X.toarray(), Y.toarray()
    residual = dense @ W @ H.T - labels
    np.testing.assert_allclose(dense.T @ residual @ H + W, 0.0, atol=1e-8)
    np.testing.assert_allclose(residual.T @ dense @ W + H, 0.0, atol=1e-8)
    direction = rng.standard_normal(W.shape)
    up, down = (dense_objective(dense, W + sign * 1e-4 * direction, H, labels, 1.0) for sign in (1, -1))
    assert abs(up - down) / 2e-4 < 1e-7  # same bound as above, for all entries of W together


def test_fit_reaches_the_global_minimum(rng: np.random.Generator) -> None:
    """For orthonormal columns, J is minimal at the singular values of X' Y shrunk by the penalty."""
    X, Y = sparse_problem(rng)
    orthonormal = np.linalg.qr(X.toarray())[0]
    model = LEML(5, 0.2, alternations=500, tolerance=1e-10, normalise=False, bias=False, random_state=0, progress=False)
    model.fit(csr_array(orthonormal), Y)
    left, singular, right = np.linalg.svd(orthonormal.T @ Y.toarray())
    kept = np.maximum(singular[:5] - 0.2, 0.0)
    # The subspace of the fifth singular value converges geometrically, not exactly.
    np.testing.assert_allclose(model.W_ @ model.H_.T, left[:, :5] * kept @ right[:5], atol=1e-7)


def test_objective_never_rises(data: MultilabelData) -> None:
    model = LEML(8, 0.5, alternations=12, steps=3, random_state=0, progress=False).fit(data)
    assert len(model.objectives_) == 12
    assert (np.diff(model.objectives_) <= 0.0).all()
    rows = model._features(data.X, reset=False)
    expected = dense_objective(rows.toarray(), model.W_, model.H_, data.Y.toarray(), 0.5)
    assert model.objectives_[-1] == pytest.approx(expected, rel=1e-12)


def test_leml_finds_planted_factors(rng: np.random.Generator) -> None:
    """Labels that are a function of three feature groups are recovered without error."""
    groups = rng.integers(3, size=200)
    X = np.eye(3)[groups] + 0.01 * rng.standard_normal((200, 3))
    labels = np.zeros((200, 9))
    labels[np.arange(200)[:, None], 3 * groups[:, None] + [0, 1, 2]] = 1
    top, _ = LEML(3, 1e-3, random_state=0, progress=False).fit(csr_array(X), csr_array(labels)).predict_top(X, 3)
    assert np.array_equal(np.sort(top, 1), 3 * groups[:, None] + [0, 1, 2])


# SLEEC


def label_vectors(rng: np.random.Generator, rows: int = 60, labels: int = 5) -> csr_array:
    dense = (rng.random((rows, labels)) < 0.4).astype(float)
    dense[np.arange(rows), rng.integers(labels, size=rows)] = 1
    return csr_array(dense)


def test_embedding_is_exact_where_one_exists(rng: np.random.Generator) -> None:
    """Five labels need five dimensions, and all pairs are known, so similarities are preserved exactly."""
    Y = label_vectors(rng)
    Z, errors = sleec.embed(Y, 5, 60, 1, rng)
    unit = Y.toarray() / np.linalg.norm(Y.toarray(), axis=1, keepdims=True)
    np.testing.assert_allclose(Z @ Z.T, unit @ unit.T, atol=1e-12)
    assert errors[-1] < 1e-20


def test_embedding_completes_missing_similarities(rng: np.random.Generator) -> None:
    Y = label_vectors(rng, 40, 3)
    unit = Y.toarray() / np.linalg.norm(Y.toarray(), axis=1, keepdims=True)
    assert sleec._similar_pairs(csr_array(unit), 20).nnz < 0.8 * 40 * 40
    Z, errors = sleec.embed(Y, 3, 20, 300, rng)
    # The missing ones are recovered too. Projections converge geometrically; after 300 this much error remains.
    assert errors[-1] < 1e-10
    np.testing.assert_allclose(Z @ Z.T, unit @ unit.T, atol=1e-4)


@pytest.mark.parametrize("rank", [4, 30])
def test_embedding_error_never_rises(rng: np.random.Generator, rank: int) -> None:
    """Cover both eigenvalue solvers."""
    Y = label_vectors(rng, 80, 40)
    Z, errors = sleec.embed(Y, rank, 8, 25, rng)
    assert Z.shape == (80, rank)
    assert (np.diff(errors) < 0.0).all()


def test_pairs_and_their_products_longhand(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sleec, "SCORES_HELD", 7 * 20)  # several blocks, the last one smaller
    vectors = rng.standard_normal((20, 4))
    unit = csr_array(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    products = (unit @ unit.T).toarray()
    nearest = np.argsort(-products, axis=1)[:, :5]
    expected = {(i, j) for i in range(20) for j in nearest[i]}
    expected |= {(j, i) for i, j in expected}
    pairs = sleec._similar_pairs(unit, 5)
    row, column = pairs.nonzero()
    assert set(zip(row.tolist(), column.tolist(), strict=True)) == expected
    np.testing.assert_allclose(sleec._products_of_pairs(unit, pairs), products[row, column], atol=1e-12)
    np.testing.assert_allclose(sleec._products_of_pairs(unit.toarray(), pairs), products[row, column], atol=1e-12)


def test_projection_keeps_the_largest_positive_eigenvalues(rng: np.random.Generator) -> None:
    basis = np.linalg.qr(rng.standard_normal((40, 40)))[0]
    eigenvalues = np.concatenate(([5.0, 3.0, 1.0, 0.5], -np.arange(36.0)))
    residual = csr_array(basis * eigenvalues @ basis.T)
    for rank, kept in ((2, 2), (6, 4), (20, 4)):
        Z = sleec._project(np.zeros((40, rank)), residual, rank, rng.standard_normal(40))
        np.testing.assert_allclose(Z @ Z.T, basis[:, :kept] * eigenvalues[:kept] @ basis[:, :kept].T, atol=1e-12)


def test_regression_matches_the_dense_solution(data: MultilabelData) -> None:
    model = SLEEC(5, 0.3, clusters=1, learners=1, steps=300, tolerance=1e-12, random_state=0, progress=False).fit(data)
    rows = model._features(data.X, reset=False).toarray()[2:]
    generator = np.random.default_rng(0)
    generator.integers(2**31)
    Z, _ = sleec.embed(csr_array(data.Y[2:].astype(float)), 5, 50, 10, generator)
    expected = np.linalg.solve(rows.T @ rows + 0.3 * np.eye(rows.shape[1]), rows.T @ Z)
    np.testing.assert_allclose(model.learners_[0].clusters[0].V, expected, atol=1e-9)


def test_votes_longhand(data: MultilabelData) -> None:
    """For one row at a time, find each learner's nearest cluster and the rows in it with the smallest angles."""
    model = clone(MODELS[1]).fit(data)
    new = data.X[:30]
    rows = model._features(new, reset=False).toarray()
    train, labels = model._features(data.X, reset=False).toarray()[2:], data.Y.toarray()[2:]
    expected = np.zeros((30, 40))
    for learner in model.learners_:
        centres = learner.centres.cluster_centers_
        for i, row in enumerate(rows):
            number = int(np.argmin(np.sum((centres - row) ** 2, 1)))
            V = learner.clusters[number].V
            members = np.flatnonzero(learner.centres.labels_ == number)
            z, others = row @ V, train[members] @ V
            cosines = others @ z / np.linalg.norm(others, axis=1) / np.linalg.norm(z)
            for voter in members[np.argsort(-cosines)[:5]]:
                expected[i] += labels[voter] / 5 / 2
    top, scores = model.predict_top(new, 40)
    np.testing.assert_allclose(scores, np.take_along_axis(expected, top, 1), atol=1e-12)
    assert np.array_equal(top, np.argsort(-scores_by_label(top, scores), axis=1, kind="stable"))


def scores_by_label(top: Any, scores: Any) -> Any:
    found = np.empty_like(scores)
    np.put_along_axis(found, top, scores, 1)
    return found


def test_sleec_finds_planted_clusters(rng: np.random.Generator) -> None:
    """Each small group of rows has its own labels, so no low-rank model can represent them."""
    groups = rng.integers(40, size=300)
    X = np.eye(40)[groups] + 0.05 * rng.standard_normal((300, 40))
    labels = np.zeros((300, 80))
    labels[np.arange(300)[:, None], 2 * groups[:, None] + [0, 1]] = 1
    model = SLEEC(20, 0.1, learners=1, clusters=3, neighbours=8, votes=3, random_state=0, progress=False)
    top, _ = model.fit(csr_array(X), csr_array(labels)).predict_top(X, 2)
    assert np.mean(np.all(np.sort(top, 1) == 2 * groups[:, None] + [0, 1], axis=1)) > 0.97


def test_small_clusters(data: MultilabelData) -> None:
    """Clusters with fewer rows than dimensions, neighbours and votes."""
    model = SLEEC(50, clusters=40, learners=1, neighbours=50, votes=60, random_state=0, progress=False).fit(data)
    sizes = np.bincount(model.learners_[0].centres.labels_)
    assert sizes.min() < 10
    assert multilabel_precision(model.predict_top(data.X, 5)[0], data.Y, k=1) > 0.5


# Both


@pytest.mark.parametrize("model", MODELS)
def test_predictions_are_good_and_repeatable(data: MultilabelData, model: Any) -> None:
    first, again = (clone(model).fit(data).predict_top(data.X, 5) for _ in range(2))
    by_parts = clone(model).fit(data.X, data.Y).predict_top(data.X, 5)
    for one in (again, by_parts):
        assert np.array_equal(first[0], one[0])
        assert np.array_equal(first[1], one[1])
    other = clone(model).set_params(random_state=4).fit(data).predict_top(data.X, 5)
    assert not np.array_equal(first[1], other[1])
    assert (np.diff(first[1], axis=1) <= 0.0).all()
    frequent = np.argsort(-data.Y.sum(0))[:5]
    always = multilabel_precision(np.tile(frequent, (300, 1)), data.Y, k=3)
    assert multilabel_precision(first[0], data.Y, k=3) > 1.5 * always


@pytest.mark.parametrize("model", MODELS)
def test_score_is_ndcg_at_5(data: MultilabelData, model: Any) -> None:
    fitted = clone(model).fit(data)
    expected = multilabel_ndcg(fitted.predict_top(data.X, 5)[0], data.Y, k=5)
    assert fitted.score(data.X, data.Y) == fitted.score(data) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("model", MODELS)
def test_blocks_of_rows_change_nothing(data: MultilabelData, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = clone(model).fit(data)
    whole = fitted.predict_top(data.X, 4)
    monkeypatch.setattr(base, "SCORES_HELD", 7 * 40)
    labels, scores = fitted.predict_top(data.X, 4)
    # Blocks of a different size are summed in a different order.
    np.testing.assert_allclose(scores, whole[1], atol=1e-12)
    assert np.mean(labels == whole[0]) > 0.99


@pytest.mark.parametrize("model", MODELS)
def test_single_precision(data: MultilabelData, model: Any) -> None:
    top, scores = clone(model).fit(data.X.astype(np.float32), data.Y).predict_top(data.X.astype(np.float32), 3)
    assert scores.dtype == np.float32
    double = clone(model).fit(data).predict_top(data.X, 3)[0]
    assert np.mean(top[:, 0] == double[:, 0]) > 0.9  # near ties may be ranked differently


@pytest.mark.parametrize("model", MODELS)
def test_rows_and_bias(data: MultilabelData, model: Any) -> None:
    rows = clone(model)._features(data.X, reset=True)
    np.testing.assert_allclose(np.sum(rows.toarray() ** 2, axis=1), 2.0, atol=1e-12)
    assert (rows.toarray()[:, -1] == 1.0).all()
    plain = clone(model).set_params(normalise=False, bias=False)._features(data.X, reset=True)
    assert np.array_equal(plain.toarray(), data.X.toarray())


@pytest.mark.parametrize("model", MODELS)
def test_grid_search_chooses_on_a_quarter_and_fits_to_all(data: MultilabelData, model: Any) -> None:
    quarter = ShuffleSplit(1, test_size=0.25, random_state=0)
    search = GridSearchCV(clone(model), {"rank": [1, 8]}, cv=quarter).fit(data.X, data.Y)
    kept, held = next(quarter.split(data.X))
    by_hand = [
        clone(model).set_params(rank=rank).fit(data.X[kept], data.Y[kept]).score(data.X[held], data.Y[held])
        for rank in (1, 8)
    ]
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], by_hand, atol=1e-12)
    assert search.best_params_ == {"rank": 8}
    whole = clone(model).fit(data)
    assert np.array_equal(search.best_estimator_.predict_top(data.X)[1], whole.predict_top(data.X)[1])


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rank": 0}, "rank must be a whole number of at least 1, got 0"),
        ({"rank": 2.5}, "rank must be a whole number of at least 1, got 2.5"),
        ({"penalty": 0.0}, "penalty must be a number above 0, got 0.0"),
        ({"penalty": "1"}, "penalty must be a number above 0, got '1'"),
        ({"tolerance": float("nan")}, "tolerance must be a number above 0, got nan"),
        ({"steps": True}, "steps must be a whole number of at least 1, got True"),
    ],
)
def test_bad_parameters_are_refused(data: MultilabelData, model: Any, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        clone(model).set_params(**change).fit(data)


def test_bad_parameters_of_one_model_are_refused(data: MultilabelData) -> None:
    with pytest.raises(ValueError, match=r"rank must be at most the numbers of rows and labels, \(300, 40\), got 41"):
        LEML(41).fit(data)
    with pytest.raises(ValueError, match="alternations must be a whole number of at least 1, got 0"):
        LEML(3, alternations=0).fit(data)
    with pytest.raises(ValueError, match="clusters must be at most the 298 rows with labels, got 299"):
        SLEEC(3, clusters=299).fit(data)
    with pytest.raises(ValueError, match="votes must be a whole number of at least 1, got -1"):
        SLEEC(3, votes=-1).fit(data)


@pytest.mark.parametrize("model", MODELS)
def test_bad_data_are_refused(data: MultilabelData, model: Any) -> None:
    fresh = clone(model)
    with pytest.raises(ValueError, match=r"Y must be a matrix \(rows, labels\), got None"):
        fresh.fit(data.X)
    with pytest.raises(ValueError, match="Y must be None when X is a MultilabelData"):
        fresh.fit(data, data.Y)
    with pytest.raises(ValueError, match="Y must have a row for each of the 300 rows of X, got 299"):
        fresh.fit(data.X, data.Y[1:])
    with pytest.raises(ValueError, match=r"Y must contain only 0 and 1, got 2\.0"):
        fresh.fit(data.X, data.Y * 2.0)
    with pytest.raises(ValueError, match="Y must have at least one label in some row, got none"):
        fresh.fit(data.X, csr_array(data.Y.shape))
    with pytest.raises(ValueError, match="Input X contains NaN"):
        fresh.fit(data.X * np.nan, data.Y)
    fresh.fit(data)
    with pytest.raises(ValueError, match="k must be at most the number of labels, 40, got 41"):
        fresh.predict_top(data.X, 41)
    with pytest.raises(ValueError, match="k must be a whole number of at least 1, got 0"):
        fresh.predict_top(data.X, 0)
    with pytest.raises(ValueError, match=r"X has 399 features, but .* is expecting 400 features"):
        fresh.predict_top(data.X[:, :399], 3)


@pytest.mark.parametrize("model", MODELS)
def test_stored_zeros_are_not_labels(data: MultilabelData, model: Any) -> None:
    stored = data.Y.copy()
    extra = csr_array(np.ones(stored.shape))
    with_zeros = stored + extra
    with_zeros.data -= 1.0
    assert with_zeros.nnz == 300 * 40
    before = with_zeros.data.copy()
    plain, same = (clone(model).fit(data.X, Y).predict_top(data.X, 3)[1] for Y in (data.Y, with_zeros))
    assert np.array_equal(plain, same)
    assert np.array_equal(with_zeros.data, before)  # the caller's matrix is unchanged


# Table 2

SMALL = "wiki10-31k stand-in 1/200"


def small_configuration() -> dict[str, Any]:
    quick = embeddings.EXPERIMENT.configurations["quick"]
    own = quick["data"]["wiki10-31k stand-in 1/20"]
    return {
        "training": quick["training"],
        "data": {
            SMALL: {
                "seeds": 2,
                "PL-Partition": {**own["PL-Partition"], "seeds": 2, "epochs": 1, "rates": [1e-3, 1e-2]},
                "LEML": {"grid": {"rank": [2, 8]}, "in_search": {"alternations": 1}, "parameters": {"penalty": 0.5}},
                "SLEEC": {
                    "grid": {"votes": [2, 8]},
                    "in_search": {"learners": 1},
                    "parameters": {"rank": 5, "clusters": 2, "learners": 2, "neighbours": 5},
                },
            }
        },
    }


def test_experiment_chooses_once_and_fits_to_all_rows(tmp_path: Path) -> None:
    experiment = replace(embeddings.EXPERIMENT, configurations={"quick": small_configuration()})
    results = run_experiment(experiment, "quick", tmp_path, data=DataFolder(tmp_path), progress=False)
    assert [(cell["method"], cell["seed"]) for cell, _ in results] == [
        (method, seed) for method in ("PL-Partition", "SLEEC", "LEML") for seed in range(2)
    ]
    train, test = load(SMALL, DataFolder(tmp_path))
    for method, kind, grid in (("SLEEC", SLEEC, "votes"), ("LEML", LEML, "rank")):
        own = [result for cell, result in results if cell["method"] == method]
        assert own[0]["chosen"] == own[1]["chosen"]
        assert own[0]["chosen"][grid] in (2, 8)
        parameters = small_configuration()["data"][SMALL][method]["parameters"]
        for seed, result in enumerate(own):
            model: Any = kind(random_state=seed, progress=False, **parameters, **own[0]["chosen"])
            expected = measure_top_labels(model.fit(train).predict_top(test.X, 10)[0], train, test)
            assert {measure: result[measure] for measure in expected} == expected
    findings = embeddings.find({}, results)
    assert len(findings.rows) == 3 * 6
    assert [section.title for section in findings.sections] == ["W-31K stand-in 1/200"]
    assert not findings.compared  # the paper has no number for a stand-in


def made_results(points: dict[str, list[float]]) -> list[Any]:
    """Build results from offsets to the published numbers on E-4K: one seed per offset."""
    return [
        (
            {"data": "eurlex-4k", "method": method, "seed": seed},
            {
                "rate": 1e-3,
                "chosen": {"rank": 100, "penalty": 0.3},
                "P": [value + extra for value in (60.0, 50.0, 40.0, 30.0)],
                "PSP": [value + extra for value in (34.0, 35.0, 36.0, 37.0)],
            },
        )
        for method, extras in points.items()
        for seed, extra in enumerate(extras)
    ]


def test_findings_of_table_2() -> None:
    findings = embeddings.find({}, made_results({"PL-Partition": [0.5], "SLEEC": [1.0, 3.0], "LEML": [-1.0, 2.0]}))
    by = {(row["method"], row["measure"]): row for row in findings.rows}
    assert (by["SLEEC", "P@3"]["value"], by["SLEEC", "P@3"]["se"], by["SLEEC", "P@3"]["paper"]) == (52.0, 1.0, 64.30)
    assert by["PL-Partition", "P@5"]["paper"] == 51.75
    assert by["PL-Partition", "PSP@5"]["paper"] is None  # the paper uses other propensities
    assert by["PL-Partition", "PSP@1"]["se"] is None
    compared = {tuple(one.names): one for one in findings.compared}
    assert len(compared) == 3 * 6 - 3
    assert compared["E-4K", "LEML", "PSP@5"].paper == 29.09
    assert compared["E-4K", "LEML", "PSP@5"].ours == 36.5
    assert {claim.text: claim.holds for claim in findings.claims} == {
        "SLEEC is ahead of LEML in P@k and PSP@k on E-4K": True,
        "PL-Partition is ahead of SLEEC in PSP@k on E-4K": False,
        "PL-Partition is ahead of LEML in PSP@k on E-4K": False,
    }


def test_configurations_name_parameters_that_exist() -> None:
    for configuration in embeddings.EXPERIMENT.configurations.values():
        for own in configuration["data"].values():
            for method in set(own) & set(embeddings.METHODS) - {"PL-Partition"}:
                model = embeddings._make(method, own[method]["parameters"], 0)
                model.set_params(**own[method]["in_search"])
                model.set_params(**{name: values[0] for name, values in own[method]["grid"].items()})
