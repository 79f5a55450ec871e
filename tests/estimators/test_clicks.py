"""Learning from clicks: `position`, `examined` and `item_weight` of all rankers and of the drop-in objectives."""

import numpy as np
import pandas as pd
import pytest

from plackett import BoostedRanker, LinearRanker, NeuralRanker
from plackett.boosted import lightgbm_objective, position_steps, xgboost_objective
from plackett.boosted.objectives import make_objective
from plackett.boosted.position_steps import PositionedObjective
from plackett.data import PositionBias, make_clicks, make_tiered_lists
from plackett.data.positions import make_positions
from plackett.errors import DataError

TREES = {"n_estimators": 10, "num_leaves": 4, "n_jobs": 1, "progress": False, "random_state": 0}
NETWORK = {"hidden_sizes": (), "epochs": 12, "learning_rate": 1e-2, "batch_size": 2000, "progress": False}
MODELS = {
    "trees": lambda **options: BoostedRanker(**TREES | options),
    "linear": LinearRanker,
    "network": lambda **options: NeuralRanker(**NETWORK | {"random_state": 0} | options),
}
TORCH = {"network"}


@pytest.fixture(params=MODELS)
def make(request):
    if request.param in TORCH:
        pytest.importorskip("torch")
    return MODELS[request.param]


@pytest.fixture(scope="module")
def log():
    """Clicks in an order that has nothing to do with relevance; attention fades like 1 / position."""
    lists = make_tiered_lists(1500, tier_sizes=(1, 2, 5), coefficients=(1.0, -0.5), random_state=0)
    return make_clicks(lists, scores=2.0 * lists.X[:, 1], policy="plackett-luce", eta=1.0, noise=0.02, random_state=1)


# Position bias


def test_equal_positions_change_nothing(make, log):
    clicks, _ = log
    plain, placed = make().fit(clicks), make().fit(clicks, position=np.full(len(clicks.y), 3))
    assert np.array_equal(plain.predict(clicks.X), placed.predict(clicks.X))
    assert plain.position_bias_ is None
    assert placed.position_bias_.positions.tolist() == [3]
    assert placed.position_bias_.bias.tolist() == [0.0]


def test_biases_are_those_of_the_users(log):
    """exp(bias) is 1 / position."""
    clicks, truth = log
    found = LinearRanker(position_penalty=0.0).fit(clicks, position=truth.position).position_bias_
    assert found.positions.tolist() == list(range(1, 9))
    assert np.abs((found.bias + np.log(np.arange(1, 9)))[1:] / found.standard_errors[1:]).max() < 3.5  # seeded


def test_trees_and_networks_learn_the_biases_of_linear_models(make, log):
    """Their penalties and few rounds hold scores back, and with them a part of the biases: a quarter of the last."""
    clicks, truth = log
    linear = LinearRanker().fit(clicks, position=truth.position)
    model = make(**{"n_estimators": 30} if make is MODELS["trees"] else {}).fit(clicks, position=truth.position)
    assert np.abs(model.position_bias_.bias - linear.position_bias_.bias).max() < 0.45
    # Items were shown by the second feature, which users do not like: without positions it seems good.
    liked, disliked = model.predict(np.array([[0.0, -1.0], [0.0, 1.0]]))
    assert liked > disliked


def test_linear_biases_are_coefficients_with_errors(log):
    """The same fit with a column for each position but the first, and no penalty."""
    clicks, truth = log
    columns = (truth.position[:, None] == np.arange(2, 9)).astype(float)
    by_hand = LinearRanker().fit(np.hstack((clicks.X, columns)), clicks.y, qid=clicks.qid)
    model = LinearRanker(position_penalty=0.0).fit(clicks, position=truth.position)
    assert np.allclose(model.coef_, by_hand.coef_[:2], rtol=1e-7)
    assert np.allclose(model.standard_errors_, by_hand.standard_errors_[:2], rtol=1e-6)
    assert np.allclose(model.position_bias_.bias[1:], by_hand.coef_[2:], rtol=1e-6)
    assert np.allclose(model.position_bias_.standard_errors[1:], by_hand.standard_errors_[2:], rtol=1e-6)
    assert model.position_bias_.standard_errors[0] == 0.0
    strong = LinearRanker(position_penalty=1e4).fit(clicks, position=truth.position)
    assert np.abs(strong.position_bias_.bias).max() < 0.05
    sparse = LinearRanker().fit(pd_sparse(clicks.X), clicks.y, qid=clicks.qid, position=truth.position)
    assert np.allclose(sparse.coef_, LinearRanker().fit(clicks, position=truth.position).coef_, rtol=1e-4)


def pd_sparse(X):
    from scipy.sparse import csr_array

    return csr_array(X)


@pytest.mark.parametrize("objective", ["partition", "mart"])
@pytest.mark.parametrize("repeats", [False, True])
def test_derivatives_by_scores_and_biases_match_differences(objective, repeats):
    rng = np.random.default_rng(2)
    offsets = np.array([0, 4, 9, 12])
    place = np.concatenate([np.arange(n) for n in np.diff(offsets)])
    positions = make_positions(np.minimum(place, 2) if repeats else place, 12)
    plain = make_objective(objective, rng.integers(0, 3, 12), offsets)
    placed = PositionedObjective(plain, positions, offsets, penalty=0.7, start=rng.standard_normal(len(positions)))
    scores, bias = rng.standard_normal(12), placed.bias.copy()
    gradient, curvature = placed.derivatives(scores)

    def loss(scores, bias):
        placed.bias = bias
        return placed.value(scores) + 0.35 * bias @ bias

    def slope(moved):
        placed.bias = moved
        return placed.bias_derivatives(scores, *placed.derivatives(scores))[0]

    step = 1e-5
    for i in range(12):
        move = step * (np.arange(12) == i)
        numeric = (loss(scores + move, bias) - loss(scores - move, bias)) / (2 * step)
        assert gradient[i] == pytest.approx(numeric, abs=2e-4)  # the tolerance of the objective's integrals, 1e-5
    placed.bias = bias
    first, second = placed.bias_derivatives(scores, gradient, curvature)
    for p in range(len(bias)):
        move = step * (np.arange(len(bias)) == p)
        assert first[p] == pytest.approx((loss(scores, bias + move) - loss(scores, bias - move)) / (2 * step), abs=2e-4)
        if objective == "partition":
            numeric = (slope(bias + move)[p] - slope(bias - move)[p]) / (2 * step)
            assert second[p] == pytest.approx(numeric, rel=1e-2, abs=1e-2)


def test_two_positions_converge_in_half_steps():
    """Where biases alone explain the clicks, the rule of trees reaches the maximum of the likelihood."""
    place = np.tile([0, 1, 2], 200)
    clicked = np.zeros(600)
    clicked[np.arange(200) * 3 + np.repeat([0, 1, 2], [120, 60, 20])] = 1.0
    offsets = np.arange(0, 601, 3)
    for places, shares in ((place, [120, 60, 20]), (np.minimum(place, 1), [120, 40])):
        placed = PositionedObjective(
            make_objective("partition", clicked, offsets), make_positions(places, 600), offsets, penalty=0.0
        )
        for _ in range(60):
            placed.learn(np.zeros(600), *placed.derivatives(np.zeros(600)))
        assert np.allclose(placed.bias - placed.bias[0], np.log(np.array(shares) / 120), atol=1e-4)


def test_biases_go_with_scores_of_full_size(monkeypatch):
    """The old ranker shows the better items first: scores that are too small must not make the biases too steep."""
    rng = np.random.default_rng(0)
    offsets = np.arange(0, 8001, 4)
    true = -np.sort(-rng.standard_normal((2000, 4)), axis=1) + 0.5 * rng.standard_normal((2000, 4))
    bias = np.log([1.0, 0.6, 0.4, 0.3])
    clicked = np.zeros((2000, 4))
    clicked[np.arange(2000), np.argmax(true + bias + rng.gumbel(size=(2000, 4)), axis=1)] = 1.0

    def learned(scores):
        objective = make_objective("partition", clicked.ravel(), offsets)
        placed = PositionedObjective(objective, make_positions(np.tile(np.arange(4), 2000), 8000), offsets, penalty=0.0)
        for _ in range(40):
            placed.learn(scores, *placed.derivatives(scores))
        return placed.bias - placed.bias[0]

    full, half = learned(true.ravel()), learned(0.5 * true.ravel())
    assert np.allclose(full, bias, atol=0.15)  # about twice the standard error
    assert np.allclose(half, full, atol=0.12)  # two steps come close to the factor 2
    monkeypatch.setattr(position_steps, "_FACTOR_STEPS", 0)
    assert learned(0.5 * true.ravel())[-1] < full[-1] - 0.6


@pytest.mark.parametrize("objective", ["listnet", "plrank", "mart"])
def test_other_objectives_of_trees_learn_positions(objective, log):
    clicks, truth = log
    model = MODELS["trees"](objective=objective).fit(clicks, position=truth.position)
    assert model.position_bias_.bias[-1] < -0.1


def test_best_round_checkpoints_and_continued_training_have_their_biases(tmp_path, log):
    clicks, truth = log
    whole = MODELS["trees"](n_estimators=6).fit(clicks, position=truth.position, checkpoint=tmp_path / "a")
    MODELS["trees"](n_estimators=3).fit(clicks, position=truth.position, checkpoint=tmp_path / "b", checkpoint_every=3)
    resumed = MODELS["trees"](n_estimators=6).fit(
        clicks, position=truth.position, checkpoint=tmp_path / "b", checkpoint_every=3
    )
    assert np.allclose(resumed.position_bias_.bias, whole.position_bias_.bias, atol=1e-9)
    with pytest.raises(DataError, match="different training"):
        MODELS["trees"](n_estimators=6).fit(clicks, position=truth.position % 3, checkpoint=tmp_path / "b")
    stopped = MODELS["trees"](n_estimators=6, early_stopping_rounds=1).fit(
        clicks, position=truth.position, eval_set=clicks
    )
    upto = MODELS["trees"](n_estimators=stopped.best_iteration_).fit(clicks, position=truth.position)
    assert np.allclose(stopped.position_bias_.bias, upto.position_bias_.bias, atol=1e-12)
    # From the biases of a model, one more round moves hardly; from zeros it could move by 1 at most.
    more = MODELS["trees"](n_estimators=1).fit(clicks, position=truth.position, init_model=whole)
    assert np.abs(more.position_bias_.bias - whole.position_bias_.bias).max() < 0.1


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_drop_in_objectives_learn_positions(library, log):
    clicks, truth = log
    trees = pytest.importorskip(library)
    sizes, found = np.diff(clicks.offsets), {}
    for name, position in (("with", truth.position), ("equal", np.ones(len(clicks.y))), ("without", None)):
        if library == "lightgbm":
            objective = lightgbm_objective(position=position)
            params = {"objective": objective, "verbosity": -1, "num_leaves": 4, "num_threads": 1, "deterministic": True}
            data = trees.Dataset(clicks.X, clicks.y, group=sizes, params={"verbosity": -1})
            scores = trees.train(params, data, 10).predict(clicks.X)
        else:
            objective = xgboost_objective(position=position)
            matrix = trees.DMatrix(clicks.X, clicks.y)
            matrix.set_group(sizes)
            params = {"max_depth": 2, "nthread": 1, "min_child_weight": 1e-3, "base_score": 0.0}
            params["disable_default_eval_metric"] = True
            scores = trees.train(params, matrix, 10, obj=objective).predict(matrix)
        found[name] = scores
        if name == "with":  # after ten rounds, two thirds of the last one
            assert np.allclose(objective.position_bias_.bias, -np.log(np.arange(1, 9)), atol=0.9)
            assert objective.position_bias_.bias[-1] < -1.0
    assert np.array_equal(found["equal"], found["without"])
    assert not np.array_equal(found["with"], found["without"])
    with pytest.raises(AttributeError, match="position_bias_ exists only after training with position="):
        _ = objective.position_bias_


def test_drop_in_objectives_of_scikit_learn_models_learn_positions(log):
    lightgbm = pytest.importorskip("lightgbm")
    clicks, truth = log
    objective = lightgbm_objective(position=truth.position)
    model = lightgbm.LGBMRanker(objective=objective, n_estimators=10, num_leaves=4, n_jobs=1, verbosity=-1)
    model.fit(clicks.X, clicks.y, group=np.diff(clicks.offsets))
    first = objective.position_bias_.bias
    assert first[-1] < -1.0
    model.fit(clicks.X, clicks.y, group=np.diff(clicks.offsets))  # starts over
    assert np.array_equal(objective.position_bias_.bias, first)


# Items that were not seen


def test_items_not_examined_are_left_out(make, log):
    clicks, truth = log
    seen = truth.examined | (np.arange(len(clicks.y)) % 2 == 0)
    masked = make().fit(clicks, position=truth.position, examined=seen)
    kept = make().fit(clicks.X[seen], clicks.y[seen], qid=clicks.qid[seen], position=truth.position[seen])
    assert np.array_equal(masked.predict(clicks.X), kept.predict(clicks.X))
    assert np.array_equal(masked.position_bias_.bias, kept.position_bias_.bias)


@pytest.mark.parametrize("name", ["trees", "linear"])
def test_rows_in_any_order_keep_their_positions(name, log):
    clicks, truth = log
    order = np.random.default_rng(3).permutation(len(clicks.y))
    mixed = MODELS[name]().fit(clicks.X[order], clicks.y[order], qid=clicks.qid[order], position=truth.position[order])
    ordered = MODELS[name]().fit(clicks, position=truth.position)
    # Trees may split elsewhere where sums round differently.
    assert np.allclose(mixed.position_bias_.bias, ordered.position_bias_.bias, atol=0.02 if name == "trees" else 1e-6)


def test_positions_have_no_effect_if_examination_is_known(log):
    clicks, truth = log
    found = LinearRanker().fit(clicks, position=truth.position, examined=truth.examined).position_bias_
    assert np.abs(found.bias[1:] / found.standard_errors[1:]).max() < 3.5  # seeded


# Weights of items


@pytest.mark.parametrize("objective", ["lower_bound", "listnet", "attrank"])
def test_item_weights(make, objective, log):
    pytest.importorskip("torch")
    clicks, truth = log
    ones = make(objective=objective).fit(clicks, item_weight=np.ones(len(clicks.y)))
    plain = make(objective=objective).fit(clicks)

    def centred(model):
        """Losses leave a constant of the scores open: the bias of a network drifts as its gradient is rounded."""
        scores = model.predict(clicks.X)
        return scores - scores.mean()

    # The same optimum by other code: networks and trees sum in another order, in single precision for networks.
    assert np.allclose(centred(ones), centred(plain), atol=2e-2)
    weighted = make(objective=objective).fit(clicks, item_weight=1.0 / truth.examination)
    assert not np.allclose(centred(weighted), centred(plain), atol=1e-2)


def test_objectives_without_a_consistent_form_refuse_weights(make, log):
    clicks, _ = log
    with pytest.raises(
        ValueError, match=r"item_weight must be None with the objective 'partition'.*one product inside"
    ):
        make().fit(clicks, item_weight=np.ones(len(clicks.y)))
    with pytest.raises(ValueError, match="pass weights of items, such as inverse propensities, as item_weight="):
        make().fit(clicks, sample_weight=np.random.default_rng(0).random(len(clicks.y)))


def test_known_propensities_and_learned_biases_agree_in_direction(log):
    pytest.importorskip("torch")
    clicks, truth = log
    by_bias = LinearRanker().fit(clicks, position=truth.position)
    by_weight = LinearRanker("lower_bound").fit(clicks, item_weight=1.0 / truth.examination)
    naive = LinearRanker().fit(clicks)
    ratio = [model.coef_[1] / model.coef_[0] for model in (by_bias, by_weight, naive)]
    assert ratio[0] == pytest.approx(-0.5, abs=0.15)
    assert ratio[1] == pytest.approx(-0.5, abs=0.3)
    assert ratio[2] > 0.0
    with pytest.raises(ValueError, match="newton-cg"):
        LinearRanker("lower_bound", solver="newton-cg").fit(clicks, item_weight=np.ones(len(clicks.y)))


# Tables, models on disk, scikit-learn


def test_columns_of_tables(make, tmp_path, log):
    clicks, truth = log
    table = pd.DataFrame(clicks.X, columns=["a", "b"])
    named = table.assign(place=truth.position, seen=truth.examined)
    model = make().fit(named, clicks.y, qid=clicks.qid, position="place", examined="seen")
    arrays = make().fit(table, clicks.y, qid=clicks.qid, position=truth.position, examined=truth.examined)
    assert np.array_equal(model.predict(named), arrays.predict(table))
    assert np.array_equal(model.predict(table), arrays.predict(table))  # positions are never needed there
    assert model.n_features_in_ == 2
    model.save(tmp_path / "model")
    loaded = type(model).load(tmp_path / "model")
    assert np.array_equal(loaded.predict(named), model.predict(named))
    assert loaded.row_columns_ == ["place", "seen"]
    for name in ("positions", "bias", "standard_errors"):
        before, after = (getattr(one.position_bias_, name) for one in (model, loaded))
        assert np.array_equal(before, after, equal_nan=True)
    with pytest.raises(ValueError, match="position 'rank' is not among the columns a, b, place, seen"):
        make().fit(named, clicks.y, qid=clicks.qid, position="rank")
    with pytest.raises(
        ValueError, match="position as the name of a column needs a DataFrame, got 'place' with ndarray"
    ):
        make().fit(clicks.X, clicks.y, qid=clicks.qid, position="place")
    with pytest.raises(ValueError, match="position must have the index of X"):
        make().fit(table, clicks.y, qid=clicks.qid, position=pd.Series(truth.position).sample(frac=1.0, random_state=0))


def test_categories(log):
    clicks, truth = log
    screens = pd.Series(np.where(truth.position < 4, "top", "below"))
    by_name = LinearRanker().fit(clicks, position=screens)
    assert by_name.position_bias_.positions.tolist() == ["below", "top"]
    assert by_name.position_bias_.bias[1] > 0.5
    ordered = screens.astype(pd.CategoricalDtype(["top", "below", "unused"], ordered=True))
    by_rank = LinearRanker().fit(clicks, position=ordered)
    assert by_rank.position_bias_.positions.tolist() == ["top", "below"]
    assert by_rank.position_bias_.bias[1] == pytest.approx(-by_name.position_bias_.bias[1])
    trees = MODELS["trees"](n_estimators=30).fit(clicks, position=ordered)  # a position several times in a list
    assert trees.position_bias_.bias[1] == pytest.approx(by_rank.position_bias_.bias[1], abs=0.2)


def test_cross_validation_passes_positions(log):
    import sklearn
    from sklearn.model_selection import GroupKFold, cross_val_score

    clicks, truth = log
    with sklearn.config_context(enable_metadata_routing=True):
        params = {"groups": clicks.qid, "qid": clicks.qid, "position": truth.position}
        scores = cross_val_score(LinearRanker(), clicks.X, clicks.y, cv=GroupKFold(3), params=params)
    assert np.isfinite(scores).all()


# Bad input

ROWS = 6
BAD = {
    "missing": ({"position": [1, 2, np.nan, 1, 2, 3]}, "position must not be missing or NaN, got one at row 2"),
    "None": ({"position": ["a", None, "b", "a", "b", "a"]}, "position must not be missing or NaN, got one at row 1"),
    "negative": ({"position": [1, 2, -1, 1, 2, 3]}, "finite number of at least 0, or a category, got -1 at row 2"),
    "infinite": ({"position": [1, 2, np.inf, 1, 2, 3]}, "finite number of at least 0, or a category, got inf at row 2"),
    "too many": ({"position": range(7)}, "one value for each of the 6 rows of X, or name a column of it, got ndarray"),
    "identifiers": ({"position": range(6)}, "position must have fewer different values than rows, got 6 for 6 rows"),
    "kinds": ({"position": np.array(["a", 1] * 3, object)}, "values of one kind"),
    "dates": ({"position": np.full(6, "2020-01-01", "M8[D]")}, "position must hold numbers or categories, got"),
    "clicked unseen": ({"examined": [True, False, True, True, True, True]}, "examined must be true where y is above 0"),
    "unseen": ({"examined": [0, 1, 0, 0, 0, 0]}, "examined must mark at least two rows, got 1"),
    "half seen": ({"examined": [0.5] * 6}, "examined must hold true or false, got 0.5"),
    "seen length": ({"examined": [True]}, "examined must hold true or false for each of the 6 rows"),
    "weights": ({"item_weight": [-1.0] * 6}, "item_weight must be finite and at least 0"),
    "weights length": ({"item_weight": [1.0]}, "item_weight must hold one value for each of the 6 rows"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_explained(case):
    given, message = BAD[case]
    objective = "lower_bound" if "item_weight" in given else "partition"
    X, y = np.arange(12.0).reshape(6, 2) % 5, [0, 1, 0, 0, 0, 0]
    with pytest.raises(ValueError, match=message):
        LinearRanker(objective).fit(X, y, group=[3, 3], **given)


def test_lightgbm_objectives_and_penalties_are_refused(log):
    clicks, truth = log
    with pytest.raises(ValueError, match="position needs an objective whose gradients this package computes"):
        MODELS["trees"](objective="lambdamart").fit(clicks, position=truth.position)
    with pytest.raises(ValueError, match="position_penalty must be at least 0, got -1"):
        MODELS["trees"](position_penalty=-1.0).fit(clicks, position=truth.position)
    with pytest.raises(ValueError, match="are not supported on Dask"):
        MODELS["trees"]().fit(clicks, position=truth.position, client="tcp://nowhere")


# The report on positions


def test_position_bias_prints_plots_and_gives_propensities(tmp_path):
    bias = PositionBias(np.array([1, 2, 5]), np.array([0.0, -0.7, -1.6]), np.array([0.0, 0.1, np.nan]))
    assert str(bias).splitlines()[1].split() == ["1", "0.000", "0.000", "1.000"]
    assert np.allclose(bias.propensity([5, 1]), np.exp([-1.6, 0.0]))
    with pytest.raises(ValueError, match="position must be one that the model was fitted to, got 3"):
        bias.propensity([3])
    pytest.importorskip("matplotlib")
    figure = bias.plot(tmp_path / "bias.png", truth=-np.log([1, 2, 5]))
    assert (tmp_path / "bias.png").stat().st_size > 1000
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["1", "2", "5"]


@pytest.mark.parametrize(
    "stored",
    [
        {"positions": [1], "bias": ["a"], "standard_errors": [None]},
        {"positions": [1, 2], "bias": [0.0], "standard_errors": [None]},
        {"positions": [1, "a"], "bias": [0.0, 0.0], "standard_errors": [None, None]},
        {"positions": [1], "bias": [0.0], "standard_errors": ["x"]},
        {"positions": 1, "bias": [0.0], "standard_errors": [None]},
    ],
)
def test_damaged_descriptions_are_refused(stored):
    with pytest.raises(ValueError, match="must"):
        PositionBias.from_json(stored)
