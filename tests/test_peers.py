"""Agreement with other libraries, where they are right."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
rax = pytest.importorskip("rax")
losses = pytest.importorskip("plackett.losses")


@pytest.fixture(autouse=True)
def _double_precision():
    with jax.enable_x64(True):
        yield


@pytest.fixture
def lists(rng):
    scores = rng.standard_normal((8, 12))
    where = np.arange(12) < rng.integers(1, 13, (8, 1))
    return scores, rng.integers(0, 4, (8, 12)).astype(float), where


def values_and_gradients(mine, theirs, scores):
    """Our values of all lists and the gradient of their sum, and those of the other library."""
    leaf = torch.tensor(scores, requires_grad=True)
    value = mine(leaf)
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    their_value = theirs(jax.numpy.asarray(scores))
    their_gradient = jax.grad(lambda w: theirs(w).sum())(jax.numpy.asarray(scores))
    return (value.detach().numpy(), np.asarray(their_value)), (gradient.numpy(), np.asarray(their_gradient))


def assert_equal(pairs, where):
    for mine, theirs in pairs:
        keep = where if mine.ndim == 2 else where.any(1)
        np.testing.assert_allclose(mine[keep], theirs[keep], rtol=1e-9, atol=1e-10)


def test_listmle_agrees_with_rax(lists, rng):
    scores, _, where = lists
    labels = np.argsort(rng.random(scores.shape), axis=1).astype(float)  # without ties, which rax breaks in its own way
    pairs = values_and_gradients(
        lambda w: losses.listmle_loss(w, torch.tensor(labels), where=torch.tensor(where), reduction="none"),
        lambda w: rax.listmle_loss(w, labels, where=where, reduce_fn=None),
        scores,
    )
    assert_equal(pairs, where)


def test_softmax_agrees_with_rax(lists):
    scores, labels, where = lists
    exponentials = np.where(where, np.exp(labels), 0.0)
    target = exponentials / exponentials.sum(1, keepdims=True)
    pairs = values_and_gradients(
        lambda w: losses.listnet_loss(w, torch.tensor(labels), where=torch.tensor(where), reduction="none"),
        lambda w: rax.softmax_loss(w, target, where=where, reduce_fn=None),
        scores,
    )
    assert_equal(pairs, where)


@pytest.mark.parametrize("kind", ["ranknet", "ranksvm"])
def test_pairwise_losses_agree_with_rax(kind, lists):
    scores, labels, where = lists
    peer = rax.pairwise_logistic_loss if kind == "ranknet" else rax.pairwise_hinge_loss
    pairs = values_and_gradients(
        lambda w: losses.get_loss(kind)(w, torch.tensor(labels), where=torch.tensor(where), reduction="none"),
        lambda w: peer(w, labels, where=where, reduce_fn=None).reshape(len(w), -1).sum(1),  # one value per pair
        scores,
    )
    assert_equal(pairs, where)
