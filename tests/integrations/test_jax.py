"""The loss in JAX against the compiled kernel, and in rax's conventions."""

from importlib.util import find_spec
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rax

import plackett
from plackett.integrations.jax import partition_loss

SHAPE = (6, 11)  # used by most tests: every shape is compiled
# Differences of scores of several hundred are known to float32 to 1e-5 only.
TOLERANCE = {np.float32: 1e-5, np.float64: 1e-9}


@pytest.fixture(params=[np.float32, np.float64], ids=["float32", "float64"])
def dtype(request):
    with jax.enable_x64(request.param is np.float64):
        yield request.param


# These compile for more than a minute: only in the environment of `make test-integrations`.
compiles_long = pytest.mark.skipif(find_spec("trl") is None, reason="compiles long: run make test-integrations")


@jax.jit
def losses_and_gradients(scores, labels, where):
    values, pull = jax.vjp(lambda w: partition_loss(w, labels, where=where, reduce_fn=None), scores)
    return values, pull(jnp.ones_like(values))[0]


def losses(*arguments):
    return losses_and_gradients(*arguments)[0]


def gradients(*arguments):
    return losses_and_gradients(*arguments)[1]


def check(scores, labels, where, dtype):
    scores = scores.astype(dtype)
    expected, gradient, _ = plackett.partition_derivatives(scores.astype(np.float64), labels, where=where)
    found, own = np.asarray(losses(scores, labels, where)), np.asarray(gradients(scores, labels, where))
    assert found.dtype == dtype
    np.testing.assert_allclose(found, -expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    scale = 1.0 + np.abs(gradient).max(initial=0.0)
    np.testing.assert_allclose(own, -gradient, rtol=0, atol=TOLERANCE[dtype] * scale)


def test_agrees_with_the_kernel(dtype):
    rng = np.random.default_rng(0)
    for spread, gap in product((0.1, 1.0, 5.0, 40.0), (-200.0, -30.0, -3.0, 0.0, 3.0, 30.0, 200.0)):
        labels = rng.integers(0, rng.integers(1, 5), SHAPE)
        scores = spread * rng.normal(size=SHAPE) + gap * labels
        check(scores, labels, rng.random(SHAPE) < 0.8, dtype)


@compiles_long
def test_large_tiers_agree_with_the_kernel(dtype):
    rng = np.random.default_rng(5)
    scores, labels = 2.0 * rng.normal(size=(1, 500)), (rng.random((1, 500)) < 0.6).astype(int)
    check(scores, labels, np.ones(labels.shape, bool), dtype)


@compiles_long
@pytest.mark.parametrize("segmented", [False, True])
def test_without_ties_it_is_the_listmle_of_rax(segmented):
    """Shapes, masks, segments and reductions included; one list has no item."""
    rng = np.random.default_rng(1)
    shape = (2, 3, 11)
    scores = jnp.asarray(rng.normal(size=shape))
    labels = jnp.asarray(rng.permutation(66).reshape(shape))
    options = {"where": jnp.asarray((rng.random(shape) < 0.7) & (np.arange(3) != 1)[:, None])}
    if segmented:
        options["segments"] = jnp.sort(jnp.asarray(rng.integers(0, 3, shape)), -1)  # rax needs them adjacent
    for reduce_fn in (jnp.mean, jnp.sum, None):
        found, theirs = (f(scores, labels, reduce_fn=reduce_fn, **options) for f in (partition_loss, rax.listmle_loss))
        assert found.shape == theirs.shape
        np.testing.assert_allclose(found, theirs, rtol=1e-5, atol=1e-5)  # both in float32


@compiles_long
def test_segments_are_lists():
    rng = np.random.default_rng(2)
    scores, labels, segments = rng.normal(size=SHAPE), rng.integers(0, 3, SHAPE), rng.integers(0, 3, SHAPE)
    placed = np.asarray(partition_loss(scores, labels, segments=segments, reduce_fn=None))
    expected = np.zeros(SHAPE)
    for row, number in product(range(SHAPE[0]), range(3)):
        inside = segments[row] == number
        own = plackett.partition_log_likelihood(scores[row, inside], labels[row, inside])
        expected[row, np.argmax(inside)] = -own[0]
    np.testing.assert_allclose(placed, expected, rtol=1e-5, atol=1e-5)
    assert float(partition_loss(scores, labels, segments=segments)) == pytest.approx(expected.sum() / 18, rel=1e-5)


def test_padding_does_not_matter():
    """Padding of any content, NaN included, and where it stands."""
    rng = np.random.default_rng(3)
    scores, labels = np.full(SHAPE, np.nan, np.float32), np.full(SHAPE, -100)
    marks = np.zeros(SHAPE, bool)
    marks[:, 2:7] = True
    scores[marks], labels[marks] = rng.normal(size=30), rng.integers(0, 2, 30)
    moved = [np.where(np.roll(marks, 3, 1), np.roll(x, 3, 1), 0) for x in (scores, labels)]
    np.testing.assert_allclose(losses(scores, labels, marks), losses(*moved, np.roll(marks, 3, 1)), rtol=1e-6)
    gradient, other = gradients(scores, labels, marks), gradients(*moved, np.roll(marks, 3, 1))
    np.testing.assert_allclose(np.roll(gradient, 3, 1), other, rtol=0, atol=1e-6)
    assert not np.asarray(gradient)[~marks].any()


@compiles_long
def test_lists_may_be_mapped():
    rng = np.random.default_rng(4)
    scores, labels = rng.normal(size=SHAPE), rng.integers(0, 3, SHAPE)
    together = partition_loss(scores, labels, reduce_fn=None)
    np.testing.assert_allclose(jax.vmap(partition_loss)(scores, labels), together, rtol=1e-6, atol=1e-6)


@compiles_long
def test_second_derivatives_are_right():
    with jax.enable_x64(True):
        rng = np.random.default_rng(5)
        scores, labels = rng.normal(size=8), rng.integers(0, 3, 8)
        hessian = jax.jacfwd(jax.grad(partition_loss))(scores, labels)
        _, _, curvature = plackett.partition_derivatives(scores, labels)
        np.testing.assert_allclose(np.diag(hessian), curvature, rtol=0, atol=1e-9)
        np.testing.assert_allclose(hessian, hessian.T, rtol=0, atol=1e-9)


@compiles_long
def test_weights_of_lists_are_repetitions():
    rng = np.random.default_rng(6)
    scores, labels = rng.normal(size=SHAPE), rng.integers(0, 2, SHAPE)
    scores[1], labels[1] = scores[0], labels[0]
    repeated = partition_loss(scores, labels)
    weighted = partition_loss(scores, labels, weights=np.array([2.0, 0.0, 1.0, 1.0, 1.0, 1.0]))
    assert float(weighted) == pytest.approx(float(repeated), abs=1e-6)


@pytest.mark.parametrize("shape", [(3, 0), (0, 4)])
def test_no_items_cost_nothing(shape):
    value, gradient = jax.value_and_grad(partition_loss)(jnp.ones(shape), jnp.zeros(shape, int))
    assert float(value) == 0.0
    assert gradient.shape == shape


def test_lists_without_a_preference_cost_nothing():
    """Equal labels, one item, no item."""
    marks = np.ones(SHAPE, bool)
    marks[1, 1:], marks[2] = False, False
    arguments = np.ones(SHAPE, np.float32), np.zeros(SHAPE, int), marks
    assert not np.asarray(losses(*arguments)).any()
    assert not np.asarray(gradients(*arguments)).any()


def test_huge_scores_stay_finite(dtype):
    scores = np.zeros(SHAPE, dtype)
    scores[:, 0], scores[:, 1] = 1e30, -1e30
    arguments = scores, np.arange(66).reshape(SHAPE) % 3, np.ones(SHAPE, bool)
    assert np.isfinite(losses(*arguments)).all()
    assert np.isfinite(gradients(*arguments)).all()


@compiles_long
@pytest.mark.parametrize("name", ["scores", "labels"])
def test_numbers_that_are_none_are_not_hidden(name):
    given = {"scores": np.ones(SHAPE), "labels": np.arange(66.0).reshape(SHAPE)}
    given[name][0, 1] = np.nan
    assert np.isnan(partition_loss(**given))
    marks = np.ones(SHAPE, bool)
    marks[0, 1] = False
    assert np.isfinite(partition_loss(**given, where=marks))


@compiles_long
def test_labels_that_single_precision_would_round_stay_apart():
    labels = np.zeros(SHAPE)
    labels[:, :2] = 16777216, 16777217
    expected = np.log(11) + np.log(10)  # the first of eleven, then the next
    assert float(partition_loss(np.zeros(SHAPE), labels)) == pytest.approx(expected, abs=1e-6)


@compiles_long
def test_half_precision_is_computed_in_single():
    scores = jnp.linspace(-1, 1, 66).reshape(SHAPE).astype(jnp.bfloat16)
    labels = np.arange(66).reshape(SHAPE) % 3
    found = partition_loss(scores, labels)
    assert found.dtype == jnp.float32
    assert float(found) == float(partition_loss(scores.astype(jnp.float32), labels))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": jnp.array([1, 2, 3])}, "scores must be floating point, got int32"),
        ({"scores": jnp.array(1.0)}, "at least one dimension"),
        ({"labels": jnp.zeros(2)}, r"labels must have the shape of scores, \(3,\), got \(2,\)"),
        ({"where": jnp.ones(3)}, "where must be boolean"),
        ({"mask": jnp.ones(2, bool)}, r"where must have the shape of scores, \(3,\), got \(2,\)"),
        ({"mask": jnp.ones(3, bool), "where": jnp.ones(3, bool)}, "mask is another name for where"),
        ({"segments": jnp.ones((1, 3))}, "segments must have the shape"),
        ({"weights": jnp.ones(3)}, "weights must hold one value per list"),
    ],
)
def test_bad_arguments_are_refused(changes, message):
    given = {"scores": jnp.ones(3), "labels": jnp.arange(3)} | changes
    with pytest.raises(ValueError, match=message):
        partition_loss(given.pop("scores"), given.pop("labels"), **given)
