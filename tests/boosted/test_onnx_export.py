"""Trees as ONNX: the scores of the file are those of the model."""

import numpy as np
import pytest

from plackett import BoostedRanker
from plackett.data import make_graded_lists


@pytest.fixture(scope="module")
def data():
    return make_graded_lists(30, mean_length=10, n_features=8, random_state=0)[0]


def scores_of(model, path, X):
    onnxruntime = pytest.importorskip("onnxruntime")
    model.export_onnx(path)
    session = onnxruntime.InferenceSession(path)
    (found,) = session.run(["scores"], {"features": np.asarray(X, np.float64)})
    return found


SETTINGS = {
    "exact tiers": {},
    "best rounds": {"early_stopping_rounds": 2, "n_estimators": 40},
    "expected gain": {"objective": "mcrank"},
    "random forest": {"objective": "lambdamart", "boosting_type": "rf", "subsample": 0.6},
    "dart": {"boosting_type": "dart", "leaves": "lightgbm"},
    "no tree": {"min_child_samples": 10_000, "lightgbm_params": {"feature_pre_filter": False}},
}


@pytest.mark.filterwarnings("ignore:no tree could be grown")
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("missing", [False, True])
def test_file_scores_like_the_model(tmp_path, data, name, missing):
    X, rng = data.X.copy(), np.random.default_rng(0)
    if missing:
        X[rng.random(X.shape) < 0.2] = np.nan
    settings = {"n_estimators": 8, "min_child_samples": 3, "random_state": 0, "progress": False} | SETTINGS[name]
    model = BoostedRanker(**settings).fit(X, data.y, qid=data.qid, eval_set=(X[::-1], data.y, data.qid))
    rows = rng.normal(size=(200, 8))
    rows[rng.random(rows.shape) < 0.2] = np.nan  # also where the training had none
    rows[:50] = X[:50]
    expected = model.predict(rows)
    np.testing.assert_allclose(scores_of(model, tmp_path / "model.onnx", rows), expected, rtol=0, atol=1e-12)


def test_file_takes_categories(tmp_path, data):
    rng = np.random.default_rng(1)
    X = np.column_stack([data.X[:, :3], rng.integers(0, 6, len(data.y))])
    y = (X[:, 3] % 2).astype(int) + (data.X[:, 0] > np.median(data.X[:, 0]))
    model = BoostedRanker(n_estimators=6, min_child_samples=3, categorical_features=[3], progress=False)
    model.set_params(lightgbm_params={"min_data_per_group": 1, "cat_smooth": 0.0, "max_cat_to_onehot": 2})
    model.fit(X, y, qid=data.qid)
    assert "==" in str(model.booster_.dump_model())
    rows = np.column_stack([rng.normal(size=(60, 3)), rng.integers(-1, 8, 60)])
    rows[:10, 3] = np.nan
    np.testing.assert_allclose(scores_of(model, tmp_path / "model.onnx", rows), model.predict(rows), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("params", "message"),
    [({"linear_tree": True}, "linear trees"), ({"zero_as_missing": True}, "zero_as_missing")],
)
def test_models_without_an_equal_are_refused(tmp_path, data, params, message):
    pytest.importorskip("onnx")
    X = data.X.copy()
    X[::3] = 0.0
    model = BoostedRanker(
        n_estimators=3, min_child_samples=3, leaves="lightgbm", lightgbm_params=params, progress=False
    )
    model.fit(X, data.y, qid=data.qid)
    with pytest.raises(ValueError, match=message):
        model.export_onnx(tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()
