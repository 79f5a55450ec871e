"""Features of linear models: centred and scaled within lists."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from plackett.linear.features import scaled_features


@pytest.mark.parametrize("standardise", [True, False])
def test_features_are_scaled_within_lists(standardise: bool, rng: np.random.Generator) -> None:
    offsets = np.array([0, 3, 3, 10])
    X = rng.standard_normal((10, 4)) * [1.0, 100.0, 1.0, 1.0] + 7.0
    X[:, 2] = np.repeat([1.0, 2.0], [3, 7])
    found = scaled_features(X, offsets, np.ones(3), standardise=standardise)
    expected = X.copy()
    for rows in (slice(0, 3), slice(3, 10)):
        expected[rows] -= expected[rows].mean(axis=0)
    deviations = np.sqrt((expected**2).mean(axis=0))
    deviations[2] = 1.0
    np.testing.assert_allclose(found.scale, deviations if standardise else np.ones(4))
    np.testing.assert_allclose(found.X, expected / found.scale, atol=1e-12)
    assert found.varies.tolist() == [True, True, False, True]
    assert not found.lost.any()
    # Sparse: centred in lists that store the whole column, otherwise unchanged; the spread is the same.
    X[rng.random(X.shape) < 0.3] = 0.0
    X[3:, 3] = np.arange(1.0, 8.0)
    weights = np.array([2.0, 1.0, 0.5])
    dense, sparse = (
        scaled_features(kind(X), offsets, weights, standardise=standardise) for kind in (np.asarray, csr_array)
    )
    np.testing.assert_allclose(sparse.scale, dense.scale)
    assert (sparse.varies == dense.varies).all()
    for rows in (slice(0, 3), slice(3, 10)):
        steps = np.diff(sparse.X.toarray()[rows], axis=0)
        np.testing.assert_allclose(steps, np.diff(dense.X[rows], axis=0), atol=1e-12)
    assert (sparse.X.toarray() == 0.0)[X == 0.0].all()
