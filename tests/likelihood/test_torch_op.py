"""The torch operation: compiled and vectorised paths, gradients, transforms and error handling."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import ragged_lists

from plackett import partition_derivatives, partition_log_likelihood, preference_log_probability
from plackett.arguments import NO_CUTOFF

torch = pytest.importorskip("torch")
vectorised = pytest.importorskip("plackett.likelihood.vectorised")


@given(ragged_lists(), st.sampled_from([None, 1, 2, 5]))
def test_vectorised_path_matches_the_kernel(lists, top):
    scores, labels, offsets = lists
    value, gradient, _ = partition_derivatives(scores, labels, offsets=offsets, top=top)
    found, found_gradient = vectorised.log_likelihood_and_gradient(
        torch.tensor(scores),
        torch.tensor(labels),
        torch.tensor(offsets),
        top=NO_CUTOFF if top is None else top,
        tol=1e-13,
    )
    np.testing.assert_allclose(found.numpy(), value, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(found_gradient.numpy(), gradient, atol=1e-9)


@pytest.mark.parametrize("gap", [-30.0, 0.0, 5.0, 12.0, 25.0])
@pytest.mark.parametrize("n", [20, 500])
def test_vectorised_path_handles_large_tiers(gap, n, rng):
    labels = np.repeat([2.0, 1.0, 0.0], n)
    scores = rng.standard_normal(3 * n) + gap * labels
    value, gradient, _ = partition_derivatives(scores, labels)
    found, found_gradient = vectorised.log_likelihood_and_gradient(
        torch.tensor(scores), torch.tensor(labels), torch.tensor([0, 3 * n]), top=NO_CUTOFF, tol=1e-13
    )
    np.testing.assert_allclose(found.numpy(), value, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(found_gradient.numpy(), gradient, atol=1e-10)


@pytest.mark.parametrize("gap", [4.0, 15.0, 40.0, 200.0])
def test_vectorised_path_is_accurate_for_probabilities_near_one(gap, rng):
    labels = np.repeat([2.0, 1.0, 0.0], [2, 40, 3])
    scores = rng.standard_normal(45) + (gap + 4.0) * labels
    value, gradient, _ = partition_derivatives(scores, labels)
    found, found_gradient = vectorised.log_likelihood_and_gradient(
        torch.tensor(scores), torch.tensor(labels), torch.tensor([0, 45]), top=NO_CUTOFF, tol=1e-13
    )
    assert found.item() == pytest.approx(value[0], rel=1e-11)
    assert 0.0 < -value[0] < 0.2
    np.testing.assert_allclose(found_gradient.numpy(), gradient, rtol=1e-7, atol=1e-11 * np.abs(gradient).max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_value_and_gradient_keep_the_dtype(dtype, rng):
    scores = torch.tensor(rng.standard_normal(12)).to(dtype).requires_grad_()
    labels = torch.tensor(rng.integers(0, 3, 12))
    value = partition_log_likelihood(scores, labels, offsets=[0, 5, 12])
    (value * torch.tensor([1.0, -2.0], dtype=dtype)).sum().backward()
    assert value.dtype == dtype == scores.grad.dtype
    exact = partition_derivatives(scores.detach().double().numpy(), labels.numpy(), offsets=[0, 5, 12])
    weight = np.repeat([1.0, -2.0], [5, 7])
    digits = {torch.float32: 1e-6, torch.float64: 1e-14, torch.bfloat16: 1e-2}[dtype]
    np.testing.assert_allclose(scores.grad.double().numpy(), exact.gradient * weight, rtol=digits, atol=digits)


@pytest.mark.parametrize("top", [None, 3, 6])
def test_gradients_pass_gradcheck(top, rng):
    scores = torch.tensor(rng.standard_normal(14), requires_grad=True)
    labels = torch.tensor(rng.integers(0, 3, 14))

    def value(w):
        return partition_log_likelihood(w, labels, offsets=[0, 6, 14], top=top)

    assert torch.autograd.gradcheck(value, [scores])


def test_padded_rows_match_flat_lists(rng):
    scores = torch.tensor(rng.standard_normal((3, 8)), requires_grad=True)
    labels = torch.tensor(rng.integers(0, 3, (3, 8)))
    where = torch.tensor(rng.random((3, 8)) < 0.7)
    value = partition_log_likelihood(scores, labels, where=where)
    offsets = np.concatenate(([0], np.cumsum(where.sum(1).numpy())))
    np.testing.assert_array_equal(
        value.detach().numpy(),
        partition_log_likelihood(scores.detach()[where].numpy(), labels[where].numpy(), offsets=offsets),
    )
    value.sum().backward()
    assert not scores.grad[~where].any()
    assert torch.isfinite(scores.grad).all()


def test_non_contiguous_tensors_give_the_same_values(rng):
    scores = torch.tensor(rng.standard_normal((6, 5)))
    labels = torch.tensor(rng.integers(0, 3, (6, 5)))
    np.testing.assert_array_equal(
        partition_log_likelihood(scores.T, labels.T).numpy(),
        partition_log_likelihood(scores.T.contiguous(), labels.T.contiguous()).numpy(),
    )


def test_second_derivatives_are_refused(rng):
    scores = torch.tensor(rng.standard_normal(6), requires_grad=True)
    labels = torch.tensor([1, 1, 1, 0, 0, 0])
    (gradient,) = torch.autograd.grad(partition_log_likelihood(scores, labels).sum(), scores, create_graph=True)
    with pytest.raises(RuntimeError, match="cannot be differentiated twice"):
        gradient.square().sum().backward()


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # in torch itself
def test_forward_mode_is_refused(rng):
    scores, labels = torch.tensor(rng.standard_normal(4)), torch.tensor([1, 1, 0, 0])
    with pytest.raises(RuntimeError, match="no forward-mode derivative"):
        torch.func.jvp(lambda w: partition_log_likelihood(w, labels), (scores,), (scores,))


@pytest.mark.parametrize("offset", [1e12, 1e17])
def test_vectorised_path_handles_large_scores(offset):
    labels = torch.tensor([1.0, 1.0, 0.0, 0.0])
    plain, moved = (
        vectorised.log_likelihood_and_gradient(
            torch.full((4,), x, dtype=torch.float64), labels, torch.tensor([0, 4]), top=NO_CUTOFF, tol=1e-13
        )
        for x in (0.0, offset)
    )
    for a, b in zip(plain, moved, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_vmap_over_an_empty_batch():
    value = torch.func.vmap(lambda w: partition_log_likelihood(w, torch.tensor([1, 0])))(torch.zeros(0, 2))
    assert value.shape == (0, 1)


def test_vmap_over_scores_and_labels(rng):
    scores, labels = torch.tensor(rng.standard_normal((4, 7))), torch.tensor(rng.integers(0, 3, (4, 7)))
    rows = partition_log_likelihood(scores, labels)
    both = torch.func.vmap(lambda w, y: partition_log_likelihood(w, y)[0])(scores, labels)
    np.testing.assert_array_equal(both.numpy(), rows.numpy())
    one = torch.func.vmap(lambda w: partition_log_likelihood(w, labels[0])[0], in_dims=1)(scores.T)
    np.testing.assert_array_equal(one.numpy(), partition_log_likelihood(scores, labels[:1].expand(4, -1)).numpy())


def test_vmap_of_grad_gives_per_list_gradients(rng):
    scores, labels = torch.tensor(rng.standard_normal((4, 7))), torch.tensor(rng.integers(0, 3, (4, 7)))
    found = torch.func.vmap(torch.func.grad(lambda w, y: partition_log_likelihood(w, y)[0]))(scores, labels)
    np.testing.assert_allclose(found.numpy(), partition_derivatives(scores.numpy(), labels.numpy()).gradient)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # in torch itself
def test_compile_works_with_a_graph_break(rng):
    torch._dynamo.reset()
    scores = torch.tensor(rng.standard_normal(6), requires_grad=True)
    labels = torch.tensor([1, 1, 1, 0, 0, 0])

    def loss(w):
        return -partition_log_likelihood(2.0 * w, labels).sum()

    compiled = torch.compile(loss, backend="eager")
    (found,) = torch.autograd.grad(compiled(scores), scores)
    (plain,) = torch.autograd.grad(loss(scores), scores)
    np.testing.assert_array_equal(found.numpy(), plain.numpy())


def test_no_table_is_kept_for_the_backward_pass(rng):
    scores = torch.tensor(rng.standard_normal(5000), requires_grad=True)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (saved.append(t.numel()), t)[1], lambda t: t):
        partition_log_likelihood(scores, torch.tensor(rng.integers(0, 2, 5000)))
    assert sum(saved) == 2 * 5000  # the scores themselves and one gradient


def test_preference_has_correct_gradients(rng):
    preferred = torch.tensor(rng.standard_normal((2, 3)), requires_grad=True)
    others = torch.tensor(rng.standard_normal((1, 4)), requires_grad=True)
    value = preference_log_probability(preferred, others)
    np.testing.assert_allclose(
        value.detach().numpy(), preference_log_probability(preferred.detach().numpy(), others.detach().numpy())
    )
    assert torch.autograd.gradcheck(preference_log_probability, (preferred, others))


BAD = {
    "integer scores": ({"scores": torch.zeros(3, dtype=torch.int64)}, "scores must be of a floating-point type"),
    "NaN": ({"scores": torch.tensor([0.0, float("nan"), 1.0])}, "scores must be finite.*got nan at item 1"),
    "labels": ({"labels": torch.zeros(2)}, r"labels must have the shape of scores, \(3,\), got \(2,\)"),
    "NaN label": ({"labels": torch.tensor([0.0, float("nan"), 1.0])}, "labels must be finite, got nan at item 1"),
    "offsets": ({"offsets": torch.tensor([0, 2, 1, 3])}, "offsets must not decrease"),
    "no labels": ({"labels": None}, "labels must be a tensor or an array of numbers, got NoneType"),
    "where as text": ({"where": "x"}, "where must be a tensor or an array of numbers, got str"),
    "where": ({"where": torch.ones(3)}, "where must be boolean"),
    "top": ({"top": 0}, "top must be a whole number of at least 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(name):
    arguments, message = BAD[name]
    given_arguments = {"scores": torch.zeros(3), "labels": torch.tensor([1, 0, 0]), **arguments}
    with pytest.raises(ValueError, match=message):
        partition_log_likelihood(given_arguments.pop("scores"), given_arguments.pop("labels"), **given_arguments)


def test_mixing_arrays_and_tensors_is_refused():
    with pytest.raises(TypeError, match="others must be a torch tensor"):
        preference_log_probability(torch.zeros(2), np.zeros(2))
