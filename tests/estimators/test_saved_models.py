"""Models that an earlier version of Plackett saved, kept in `saved_models`, load and predict as they did then.

Regenerate nothing here: a model that no longer loads is a break of compatibility, to be stated in the changelog.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

import plackett

FOLDER = Path(__file__).parent / "saved_models"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())
# Networks and trees compute the same sums on every machine, but instruction sets differ in the rounding.
RTOL = 1e-6


@pytest.mark.parametrize(
    ("name", "kind", "package"),
    [
        ("boosted", "BoostedRanker", "lightgbm"),
        ("linear", "LinearRanker", "sklearn"),
        ("coordinate_ascent", "CoordinateAscentRanker", "sklearn"),
        ("neural", "NeuralRanker", "torch"),
    ],
)
def test_rankers_of_an_earlier_version_predict_as_before(name, kind, package):
    pytest.importorskip(package)
    model = getattr(plackett, kind).load(FOLDER / name)
    np.testing.assert_allclose(model.predict(np.array(EXPECTED["rows"])), EXPECTED["scores"][name], rtol=RTOL)


def test_a_classifier_of_an_earlier_version_predicts_as_before():
    pytest.importorskip("torch")
    model = plackett.ExtremeClassifier.load(FOLDER / "extreme")
    _, scores = model.predict_top(csr_array(np.array(EXPECTED["sparse_rows"])), 2)
    np.testing.assert_allclose(scores, EXPECTED["top"], rtol=RTOL)


def test_an_aggregator_of_an_earlier_version_has_the_same_worths():
    model = plackett.RankAggregator.load(FOLDER / "aggregator")
    assert model.scores_.tolist() == EXPECTED["worths"]
    assert np.isfinite(model.standard_errors_).all()
