"""Vectorised exponentials against libm."""

import numba
import numpy as np
import pytest

from plackett.likelihood.elementary import fast_exp, fast_expm1


@numba.njit
def _exp(x, out):
    for i in range(x.size):
        out[i] = fast_exp(x[i])


@numba.njit
def _expm1(x, out):
    for i in range(x.size):
        out[i] = fast_expm1(x[i])


def points(dtype, deepest):
    return -np.concatenate([[0.0], np.logspace(-30, np.log10(deepest), 200_001), np.linspace(0, 50, 100_001)]).astype(
        dtype
    )


@pytest.mark.parametrize(("dtype", "deepest", "error"), [(np.float64, 699.0, 6e-16), (np.float32, 86.9, 2e-7)])
def test_exp_matches_libm(dtype, deepest, error):
    x = points(dtype, deepest)
    out = np.empty_like(x)
    _exp(x, out)
    np.testing.assert_allclose(out, np.exp(x.astype(np.longdouble)).astype(np.float64), rtol=error)


def test_expm1_matches_libm():
    x = points(np.float64, 1e4)
    out = np.empty_like(x)
    _expm1(x, out)
    np.testing.assert_allclose(out, np.expm1(x), rtol=8e-16)


@pytest.mark.parametrize("function", [_exp, _expm1])
def test_extreme_arguments_give_the_limits(function):
    x = np.array([-np.inf, -1e300, -1e30, -0.0, np.nan])
    out = np.empty_like(x)
    function(x, out)
    shift = 0.0 if function is _exp else -1.0
    np.testing.assert_allclose(out[:3], shift, atol=1e-300)
    assert out[3] == 1.0 + shift
    assert np.isnan(out[4])
