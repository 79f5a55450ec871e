"""ExtremeClassifier with tags: names, probabilities, thresholds, pipelines, models on disk, command line."""

import json

import numpy as np
import pytest
from scipy.sparse import csr_array

pytest.importorskip("torch")

from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import Pipeline

from plackett import ExtremeClassifier
from plackett.data import MultilabelData, dump_xmc
from plackett.neural.calibration import fit_calibration

pytestmark = pytest.mark.usefixtures("one_thread")
TAGS = ["cooking", "gardening", "machine learning", "music", "sport"]
WORDS = {tag: [f"{tag.split()[0]}{number}" for number in range(6)] for tag in TAGS}


def make_texts(count, seed):
    """Texts with three words of each of their tags and two of any other."""
    rng = np.random.default_rng(seed)
    texts, tags = [], []
    for _ in range(count):
        own = [tag for tag in TAGS if rng.random() < 0.35]
        words = [word for tag in own for word in rng.choice(WORDS[tag], 3)]
        words += [str(rng.choice(WORDS[tag])) for tag in rng.choice(TAGS, 2)]
        texts.append(" ".join(words))
        tags.append(own)
    return texts, tags


def classifier(**settings):
    defaults = {"hidden_sizes": (16,), "epochs": 15, "batch_size": 16, "ensemble": 1, "random_state": 0}
    return ExtremeClassifier(**defaults | settings, progress=False)


@pytest.fixture(scope="module")
def texts():
    return make_texts(300, 0), make_texts(200, 1)


@pytest.fixture(scope="module")
def vectors(texts):
    vectorizer = TfidfVectorizer().fit(texts[0][0])
    return [(vectorizer.transform(one), tags) for one, tags in texts]


@pytest.fixture(scope="module")
def model(vectors):
    return classifier(calibrate=True, validation_fraction=0.3).fit(*vectors[0])


def matrix_of(tags):
    return np.array([[name in row for name in TAGS] for row in tags], float)


def test_tags_are_a_matrix_with_names(vectors):
    X, tags = vectors[0]
    by_tags, by_matrix = classifier(epochs=2).fit(X, tags), classifier(epochs=2).fit(X, matrix_of(tags))
    np.testing.assert_array_equal(by_tags.predict(X), by_matrix.predict(X))
    assert by_tags.classes_.tolist() == TAGS
    assert by_matrix.classes_.tolist() == [0, 1, 2, 3, 4]
    named = classifier(epochs=2).fit(X, csr_array(matrix_of(tags)), label_names=TAGS)
    assert named.classes_.tolist() == TAGS
    assert named.predict_tags(X, k=2) == by_tags.predict_tags(X, k=2)
    for kind in (np.array([*map(tuple, tags), ()], dtype=object)[:-1], list(map(set, tags))):
        np.testing.assert_array_equal(classifier(epochs=2).fit(X, kind).predict(X), by_tags.predict(X))


def test_tags_of_validation_and_score_are_read_by_name(vectors):
    (X, tags), (X_test, tags_test) = vectors
    model = classifier(epochs=2, eval_metric="p@1").fit(X, tags, eval_set=(X_test, tags_test))
    by_matrix = classifier(epochs=2, eval_metric="p@1").fit(X, matrix_of(tags), eval_set=(X_test, matrix_of(tags_test)))
    assert model.history_["valid p@1"] == by_matrix.history_["valid p@1"]
    assert model.score(X_test, tags_test) == by_matrix.score(X_test, matrix_of(tags_test))
    with pytest.warns(UserWarning, match="Y: 1 tags that do not occur in the training data are ignored: 'chess'"):
        model.score(X_test, [[*row, "chess"] for row in tags_test])
    with pytest.raises(ValueError, match="pass label_names to fit"):
        by_matrix.score(X_test, tags_test)


def test_best_tags_are_the_best_labels(model, vectors):
    X = vectors[1][0]
    labels, _ = model.predict_top(X, 3)
    assert model.predict_tags(X, k=3) == [[TAGS[i] for i in row] for row in labels]


def test_tags_above_a_threshold_are_the_probable_ones(model, vectors):
    X, tags = vectors[1]
    probabilities = model.predict_proba(X)
    found = model.predict_tags(X, threshold=0.5)
    assert [set(row) for row in found] == [{TAGS[i] for i in np.flatnonzero(row >= 0.5)} for row in probabilities]
    assert all(row == found[n][:2] for n, row in enumerate(model.predict_tags(X, k=2, threshold=0.5)))
    right = np.mean(matrix_of(found) == matrix_of(tags))
    assert right > 0.75  # 0.65 without a model


def test_probabilities_are_calibrated(model, vectors):
    """On rows that neither training nor calibration has seen: in each fifth the share of labels is as predicted."""
    X, tags = vectors[1]
    p, has = model.predict_proba(X).ravel(), matrix_of(tags).ravel()
    order = np.argsort(p)
    for part in np.array_split(order, 5):
        spread = np.sqrt((p[part] * (1 - p[part])).sum()) / len(part)
        assert abs(p[part].mean() - has[part].mean()) < 4 * spread + 0.05
    assert np.mean((p - has) ** 2) < 0.8 * has.mean() * (1 - has.mean())


def test_calibration_finds_the_truth():
    """Labels drawn with known slope and intercept; standard errors of a logistic regression decide."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(4000, 10)) * 2.0
    x = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    has = rng.random(x.shape) < 1 / (1 + np.exp(-(0.7 * x + 1.5)))
    found = fit_calibration([(scores[:1500], has[:1500]), (scores[1500:] + 100.0, has[1500:])])
    p = 1 / (1 + np.exp(-(0.7 * x + 1.5)))
    design = np.stack([x.ravel(), np.ones(x.size)])
    errors = np.sqrt(np.diag(np.linalg.inv((design * (p * (1 - p)).ravel()) @ design.T)))
    assert abs(found.slope - 0.7) < 4 * errors[0]
    assert abs(found.intercept - 1.5) < 4 * errors[1]
    assert found.probabilities(scores).mean() == pytest.approx(has.mean(), abs=1e-3)  # bins are 0.003 wide


@pytest.mark.parametrize("best", [0, 1])
def test_calibration_of_perfect_scores_stays_finite(best):
    scores = np.tile([10.0, -10.0], (20, 1))
    has = np.zeros(scores.shape, bool)
    has[:, best] = True
    found = fit_calibration([(scores, has)])
    assert np.isfinite(found.slope)
    assert found.probabilities(scores)[0, best] > 0.9


def test_probabilities_need_calibration(vectors):
    X, tags = vectors[0]
    plain = classifier(epochs=1).fit(X, tags)
    assert not hasattr(plain, "predict_proba")
    with pytest.raises(ValueError, match="set calibrate=True"):
        plain.predict_tags(X, threshold=0.5)
    with pytest.raises(ValueError, match="needs k or threshold"):
        plain.predict_tags(X)
    with pytest.raises(ValueError, match="calibrate needs an eval_set or validation_fraction"):
        classifier(calibrate=True).fit(X, tags)
    with pytest.raises(ValueError, match="calibrate must be bool"):
        classifier(calibrate="yes").fit(X, tags)


def test_pipeline_from_texts_to_tags(texts):
    (train, tags), (test, _) = texts
    settings = {"calibrate": True, "validation_fraction": 0.3}
    pipeline = Pipeline([("words", TfidfVectorizer()), ("tags", classifier(epochs=4, **settings))]).fit(train, tags)
    probabilities = pipeline.predict_proba(test)
    assert probabilities.shape == (len(test), len(TAGS))
    assert pipeline.classes_.tolist() == TAGS
    found = pipeline[-1].predict_tags(pipeline[:-1].transform(test), k=1)
    assert found == [[TAGS[i]] for i in pipeline.predict(test).argmax(1)]


def test_names_and_calibration_are_saved(model, vectors, tmp_path):
    X = vectors[1][0]
    model.save(tmp_path / "model")
    loaded = ExtremeClassifier.load(tmp_path / "model")
    assert loaded.classes_.tolist() == TAGS
    assert loaded.calibration_ == model.calibration_
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert loaded.predict_tags(X, threshold=0.4) == model.predict_tags(X, threshold=0.4)
    path = tmp_path / "model" / "plackett.json"
    text = path.read_text()
    for key, value in (("names", TAGS[:4]), ("names", [*TAGS[:4], 5]), ("calibration", [1.0]), ("calibration", "a")):
        description = json.loads(text)
        description["state"]["about"][key] = value
        path.write_text(json.dumps(description))
        with pytest.raises(ValueError, match="not a readable model"):
            ExtremeClassifier.load(tmp_path / "model")


@pytest.mark.parametrize(
    ("Y", "message"),
    [
        ([["a"], "b"], "a list of tags .* got 'b' in row 1: write one tag as"),
        ([["a"], ["b", 3]], r"got \['b', 3\] in row 1"),
        ([["a"], [""]], "not empty"),
        (["a", "b"], "got 'a' in row 0"),
        ([["a"]], "a row for each of the 2 rows"),
    ],
)
def test_malformed_tags_are_refused(Y, message):
    with pytest.raises(ValueError, match=message):
        classifier().fit(np.ones((2, 3)), Y)


def test_label_names_must_fit(vectors):
    X, tags = vectors[0]
    with pytest.raises(ValueError, match="a different name for each of 5 labels, got 2 names"):
        classifier().fit(X, matrix_of(tags), label_names=["a", "b"])
    with pytest.raises(ValueError, match="label_names must be None when Y holds tags"):
        classifier().fit(X, tags, label_names=TAGS)


def test_command_line_writes_names(plackett, vectors, tmp_path):
    X, tags = vectors[0]
    dump_xmc(MultilabelData(csr_array(X), csr_array(matrix_of(tags))), tmp_path / "data.txt")
    (tmp_path / "names.txt").write_text("\n".join(TAGS) + "\n")
    model, report = tmp_path / "model", tmp_path / "report.html"
    options = ("--model", "extreme", "-p", "epochs=2", "-p", "ensemble=1", "-p", "hidden_sizes=[8]")
    names = ("--label-names", tmp_path / "names.txt")
    code, _, error = plackett("train", tmp_path / "data.txt", "-o", model, *options, *names, "--report", report)
    assert code == 0, error
    assert "machine learning" in report.read_text()
    code, _, error = plackett("predict", model, tmp_path / "data.txt", "-o", tmp_path / "out.txt", "--top", 2)
    assert code == 0, error
    rows = [line.split("\t") for line in (tmp_path / "out.txt").read_text().splitlines()]
    assert {part.rpartition(":")[0] for row in rows for part in row} <= set(TAGS)
    assert all(len(row) == 2 for row in rows)
    code, _, error = plackett("train", tmp_path / "data.txt", "-o", model, *names)
    assert code == 2
    assert "the model must be extreme" in error
