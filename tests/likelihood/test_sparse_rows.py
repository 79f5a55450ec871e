"""The likelihood of few positives among many columns against the dense likelihood of the same rows."""

import numpy as np
import pytest

from plackett import partition_log_likelihood

torch = pytest.importorskip("torch")
sparse = pytest.importorskip("plackett.likelihood.torch_op")
from plackett.losses import sparse_partition_loss  # noqa: E402  # after the check for torch

COLUMNS = 40
POSITIVES = [[3, 1], [], [5, 7, 9, 2, 30, 31], list(range(COLUMNS)), [0, COLUMNS - 1], list(range(COLUMNS - 1)), [17]]


def log_likelihood(scores, indices, offsets, **options):
    return -sparse_partition_loss(scores, indices, offsets, reduction="none", **options)


def problem(rng, grades=False, scale=1.0, dtype=torch.float64):
    indices = np.concatenate(POSITIVES).astype(np.int64)
    offsets = np.concatenate(([0], np.cumsum([len(p) for p in POSITIVES])))
    labels = rng.integers(1, 4, len(indices)).astype(float) if grades else np.ones(len(indices))
    dense = np.zeros((len(POSITIVES), COLUMNS))
    dense[np.repeat(np.arange(len(POSITIVES)), np.diff(offsets)), indices] = labels
    scores = torch.tensor(scale * rng.standard_normal(dense.shape), dtype=dtype, requires_grad=True)
    return scores, indices, offsets, labels if grades else None, torch.tensor(dense)


@pytest.mark.parametrize("grades", [False, True])
@pytest.mark.parametrize("scale", [1.0, 30.0, 300.0])
@pytest.mark.parametrize("top", [None, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_matches_the_dense_form(grades, scale, top, dtype, rng):
    scores, indices, offsets, labels, dense = problem(rng, grades, scale, dtype)
    value = log_likelihood(scores, indices, offsets, labels=labels, top=top)
    expected = partition_log_likelihood(scores.double(), dense, top=top)
    weight = torch.linspace(-1.0, 2.0, len(value), dtype=torch.float64)
    (gradient,) = torch.autograd.grad((value * weight).sum(), scores)
    (expected_gradient,) = torch.autograd.grad((expected * weight).sum(), scores)
    rtol, atol = (1e-12, 1e-12) if dtype == torch.float64 else (2e-6, 2e-6)
    np.testing.assert_allclose(value.detach().numpy(), expected.detach().numpy(), rtol=rtol, atol=atol)
    np.testing.assert_allclose(gradient.numpy(), expected_gradient.numpy(), rtol=rtol, atol=10 * atol)


@pytest.mark.parametrize("grades", [False, True])
def test_vectorised_path_matches_the_compiled_one(grades, rng):
    scores, indices, offsets, labels, _ = problem(rng, grades)
    positives = sparse.Positives(indices, offsets, labels, *scores.shape)
    exact = sparse.ExactShortLists(10**9, 1e-13)
    compiled = sparse._forward_compiled(scores.detach().numpy(), positives, exact)
    with_torch = sparse._forward_vectorised(scores.detach(), positives, exact)
    rest = [x[1] + x[2] for x in (compiled, [np.asarray(x) for x in with_torch])]
    np.testing.assert_allclose(rest[0][positives.has_rest], rest[1][positives.has_rest], rtol=1e-12)
    for i in (0, 3, 4):  # value, pull, gradient of the positives
        np.testing.assert_allclose(compiled[i], with_torch[i].numpy(), rtol=1e-11, atol=1e-11)
    gradients = []
    for backward, results in (
        (sparse._backward_compiled, [torch.as_tensor(x) for x in compiled]),
        (sparse._backward_vectorised, with_torch),
    ):
        _, peaks, log_totals, pull, own = results
        gradients.append(backward(scores.detach(), peaks, log_totals, pull, positives, own).numpy())
    np.testing.assert_allclose(gradients[0], gradients[1], atol=1e-11)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_single_precision(dtype, rng):
    scores = torch.tensor(20.0 + rng.standard_normal((2, 30_000)), dtype=dtype, requires_grad=True)
    value = log_likelihood(scores, [1, 2, 7], [0, 2, 3])
    exact = log_likelihood(scores.detach().float(), [1, 2, 7], [0, 2, 3])
    assert value.dtype == dtype
    np.testing.assert_allclose(value.detach().float(), exact, rtol=0.01)  # one rounding to half precision
    value.sum().backward()
    assert abs(scores.grad.float().sum()) < 0.02


@pytest.mark.parametrize("offset", [0.0, 1e12, 1e30])
def test_large_scores_keep_full_accuracy(offset):
    scores = torch.full((1, 30_000), offset, dtype=torch.float64, requires_grad=True)
    value = log_likelihood(scores, [0], [0, 1])
    assert value.item() == pytest.approx(-np.log(30_000), rel=1e-12)
    value.sum().backward()
    assert scores.grad[0, 0].item() == pytest.approx(1 - 1 / 30_000, rel=1e-12)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # in torch itself
def test_func_grad_works_and_forward_mode_is_refused(rng):
    scores = torch.tensor(rng.standard_normal((2, 9)))

    def value(w):
        return log_likelihood(w, [1, 2, 7], [0, 2, 3]).sum()

    leaf = scores.clone().requires_grad_()
    value(leaf).backward()
    np.testing.assert_array_equal(torch.func.grad(value)(scores), leaf.grad)
    with pytest.raises(RuntimeError, match="no forward-mode derivative"):
        torch.func.jvp(value, (scores,), (scores,))


def test_rising_rows_and_late_peaks_match_the_dense_form():
    rising = np.linspace(-700.0, 700.0, 20_000)
    late = np.full(20_000, -50.0)
    late[-1] = 300.0
    scores = torch.tensor(np.stack([rising, rising[::-1], late]), requires_grad=True)
    value = log_likelihood(scores, [5, 6, 7], [0, 1, 2, 3])
    dense = torch.zeros(3, 20_000)
    dense[[0, 1, 2], [5, 6, 7]] = 1.0
    expected = partition_log_likelihood(scores, dense)
    np.testing.assert_allclose(value.detach(), expected.detach(), rtol=1e-12)
    gradients = [torch.autograd.grad(x.sum(), scores)[0] for x in (value, expected)]
    np.testing.assert_allclose(gradients[0], gradients[1], atol=1e-12)


def test_dominant_positives_do_not_cancel():
    scores = torch.zeros(1, 5000, requires_grad=True)
    with torch.no_grad():
        scores[0, :3] = 40.0
    value = log_likelihood(scores, [0, 1, 2], [0, 3])
    dense = partition_log_likelihood(scores.detach().double(), torch.tensor([[1.0] * 3 + [0.0] * 4997]))
    assert value.item() == pytest.approx(dense.item(), rel=1e-5)
    value.sum().backward()
    assert (scores.grad[0, 3:] < 0).all()


def test_masked_columns_are_ignored(rng):
    scores = torch.tensor(rng.standard_normal((2, 5000)))
    masked = torch.cat([scores, torch.full((2, 3000), -torch.inf)], 1).requires_grad_()
    value = log_likelihood(masked, [1, 2, 7], [0, 2, 3])
    np.testing.assert_allclose(value.detach().numpy(), log_likelihood(scores, [1, 2, 7], [0, 2, 3]).numpy(), rtol=1e-13)
    value.sum().backward()
    assert torch.isfinite(masked.grad).all()
    assert masked.grad[:, 5000:].abs().max() < 1e-300


def test_second_derivatives_are_refused(rng):
    scores, indices, offsets, _, _ = problem(rng)
    value = log_likelihood(scores, indices, offsets)
    (gradient,) = torch.autograd.grad(value.sum(), scores, create_graph=True)
    with pytest.raises(RuntimeError, match="cannot be differentiated twice"):
        gradient.square().sum().backward()


BAD = {
    "repeated": ({"indices": [1, 1, 2]}, "indices must not repeat a column in a row, got 1 twice in row 0"),
    "too large": ({"indices": [1, 2, 8]}, "indices must be columns from 0 to 7, got 8 at position 2"),
    "negative": ({"indices": [-1, 2, 3]}, "indices must be columns from 0 to 7, got -1 at position 0"),
    "offsets": ({"offsets": [0, 3]}, "offsets must have one entry per row and one more, 3, got 2"),
    "labels": ({"labels": [1.0]}, r"labels must hold one value per index, \(3,\), got shape \(1,\)"),
    "NaN label": ({"labels": [1.0, float("nan"), 2.0]}, "labels must be finite, got nan"),
    "one dimension": ({"scores": torch.zeros(8)}, "scores must have two dimensions"),
    "NaN score": ({"scores": torch.full((2, 8), float("nan"))}, "scores must be finite"),
    "NaN positive": ({"scores": torch.tensor([[0.0, float("nan")] + [0.0] * 6] * 2)}, "scores must be finite"),
    "infinite score": ({"scores": torch.full((2, 8), float("inf"))}, "scores must be finite"),
    "NaN beside masked": (
        {"scores": torch.tensor([[0.0] * 4 + [float("nan")] + [-torch.inf] * 3] * 2), "indices": [1, 2, 3]},
        "scores must be finite",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused(name):
    arguments, message = BAD[name]
    given = {"scores": torch.zeros(2, 8), "indices": [1, 2, 5], "offsets": [0, 2, 3], **arguments}
    with pytest.raises(ValueError, match=message):
        log_likelihood(given.pop("scores"), given.pop("indices"), given.pop("offsets"), **given)
