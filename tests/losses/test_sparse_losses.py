"""Losses on wide rows against dense losses, fused against plain output layers, and negative sampling."""

from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch")
losses = pytest.importorskip("plackett.losses")
sparse = pytest.importorskip("plackett.losses.sparse_columns")
from plackett.likelihood.torch_op import Positives  # noqa: E402  # after the check for torch
from plackett.losses import pair_sums  # noqa: E402
from plackett.losses.fused_layer import GatheredColumns  # noqa: E402

COLUMNS = 30
POSITIVES = [[3, 1], [], [5, 7, 9, 2, 29, 0], list(range(COLUMNS)), [0, COLUMNS - 1], list(range(COLUMNS - 1)), [17]]
INDICES = np.concatenate(POSITIVES).astype(np.int64)
OFFSETS = np.concatenate(([0], np.cumsum([len(p) for p in POSITIVES])))
ROW = np.repeat(np.arange(len(POSITIVES)), np.diff(OFFSETS))

PAIRS = {
    "partition": (losses.sparse_partition_loss, losses.partition_loss),
    "lower_bound": (losses.sparse_lower_bound_loss, losses.lower_bound_loss),
    "ranknet": (losses.sparse_ranknet_loss, losses.ranknet_loss),
    "ranksvm": (losses.sparse_ranksvm_loss, losses.ranksvm_loss),
}


def dense_labels(grades=None):
    labels = np.zeros((len(POSITIVES), COLUMNS))
    labels[ROW, INDICES] = 1.0 if grades is None else grades
    return torch.tensor(labels)


def value_and_gradients(function, *leaves):
    leaves = [x.detach().clone().requires_grad_() for x in leaves]
    value = function(*leaves)
    weight = torch.linspace(0.5, 2.0, len(value), dtype=value.dtype)
    return value.detach(), torch.autograd.grad((value * weight).sum(), leaves)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sparse_losses_match_dense_losses(name, scale, dtype, rng):
    scores = torch.tensor(scale * rng.standard_normal((len(POSITIVES), COLUMNS)), dtype=dtype)
    in_rows, in_lists = PAIRS[name]
    value, (gradient,) = value_and_gradients(lambda w: in_rows(w, INDICES, OFFSETS, reduction="none"), scores)
    expected, (expected_gradient,) = value_and_gradients(
        lambda w: in_lists(w, dense_labels(), reduction="none"), scores.double()
    )
    digits = 1e-11 if dtype == torch.float64 else 3e-6
    np.testing.assert_allclose(value, expected, rtol=digits, atol=digits)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=digits, atol=10 * digits)


@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logistic_equals_the_cross_entropy_of_every_label(scale, dtype, rng):
    scores = torch.tensor(scale * rng.standard_normal((len(POSITIVES), COLUMNS)), dtype=dtype)

    def in_rows(w):
        return losses.sparse_logistic_loss(w, INDICES, OFFSETS, reduction="none")

    def by_label(w):
        every = torch.nn.functional.binary_cross_entropy_with_logits(w, dense_labels(), reduction="none")
        return every.sum(1)

    value, (gradient,) = value_and_gradients(in_rows, scores)
    expected, (expected_gradient,) = value_and_gradients(by_label, scores.double())
    digits = 1e-13 if dtype == torch.float64 else 3e-6
    np.testing.assert_allclose(value, expected, rtol=digits, atol=digits)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-12 if dtype == torch.float64 else 1e-5, atol=1e-6)
    weights = torch.arange(len(POSITIVES))
    mean = losses.sparse_logistic_loss(scores, INDICES, OFFSETS, weights=weights)
    np.testing.assert_allclose(mean, (expected * weights).sum() / weights.sum(), rtol=10 * digits)


def test_logistic_is_finite_for_huge_scores():
    scores = torch.tensor([[1e30, -1e30, 0.0]], requires_grad=True)
    value = losses.sparse_logistic_loss(scores, [0], [0, 1])
    value.backward()
    np.testing.assert_allclose(value.item(), np.log(2.0), rtol=1e-6)  # single precision
    np.testing.assert_allclose(scores.grad, [[0.0, 0.0, 0.5]], atol=1e-7)


@pytest.mark.parametrize("name", ["partition", "lower_bound"])
def test_graded_positives_match_the_dense_loss(name, rng):
    grades = rng.integers(1, 4, len(INDICES)).astype(float)
    scores = torch.tensor(rng.standard_normal((len(POSITIVES), COLUMNS)))
    in_rows, in_lists = PAIRS[name]
    mine = value_and_gradients(lambda w: in_rows(w, INDICES, OFFSETS, labels=grades, reduction="none"), scores)
    theirs = value_and_gradients(lambda w: in_lists(w, dense_labels(grades), reduction="none"), scores)
    np.testing.assert_allclose(mine[0], theirs[0], rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(mine[1][0], theirs[1][0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["partition", "lower_bound"])
def test_grades_beyond_float64_stay_distinct(name, rng):
    loss = getattr(losses, f"sparse_{name}_loss")
    scores = torch.tensor(rng.standard_normal((1, 6)))
    assert loss(scores, [1, 3, 4], [0, 3], labels=[2**60 + 1, 2**60, 2**60 + 2]) == loss(
        scores, [1, 3, 4], [0, 3], labels=[1, 0, 2]
    )


@pytest.mark.parametrize("name", ["partition", "lower_bound", "ranknet", "ranksvm", "logistic"])
def test_half_precision_is_computed_in_single_precision(name, rng):
    loss = getattr(losses, f"sparse_{name}_loss")
    scores = torch.tensor(rng.standard_normal((3, 9)), dtype=torch.bfloat16)
    exact = loss(scores.float(), [1, 3, 0], [0, 2, 2, 3])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = loss(scores, [1, 3, 0], [0, 2, 2, 3])
    assert found.dtype == torch.float32
    assert found == exact
    plain = loss(scores, [1, 3, 0], [0, 2, 2, 3])
    assert plain.dtype == torch.bfloat16
    assert plain == exact.to(torch.bfloat16)


@pytest.mark.parametrize("name", ["partition", "lower_bound"])
@pytest.mark.parametrize("negatives", [None, (torch.arange(9), torch.zeros(9))])
def test_fused_output_layer_supports_half_precision(name, negatives, rng):
    """Under autocast, hidden is half precision and the layer single: products are rounded, the loss is not."""
    loss = getattr(losses, f"linear_{name}_loss")
    hidden = torch.tensor(rng.standard_normal((3, 4)), dtype=torch.bfloat16, requires_grad=True)
    weight = torch.tensor(rng.standard_normal((9, 4)), dtype=torch.float32, requires_grad=True)
    bias = torch.zeros(9, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = loss(hidden, weight, bias, [1, 3, 0], [0, 2, 2, 3], negatives=negatives)
        exact = getattr(losses, f"sparse_{name}_loss")(
            torch.nn.functional.linear(hidden, weight, bias), [1, 3, 0], [0, 2, 2, 3]
        )
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(exact.item(), rel=0.02)
    found.backward()
    assert (hidden.grad.dtype, weight.grad.dtype, bias.grad.dtype) == (torch.bfloat16, torch.float32, torch.float32)
    assert loss(hidden, weight.bfloat16(), None, [1, 3, 0], [0, 2, 2, 3], negatives=negatives).dtype == torch.bfloat16


@pytest.mark.parametrize("kind", [pair_sums.LOGISTIC, pair_sums.HINGE])
def test_torch_version_of_pair_losses_matches_the_kernel(kind, rng):
    scores = torch.tensor(rng.standard_normal((len(POSITIVES), COLUMNS)))
    positives = Positives(INDICES, OFFSETS, None, *scores.shape)
    for mine, theirs in zip(
        sparse._pairs_compiled(scores, positives, kind), sparse._pairs_in_torch(scores, positives, kind), strict=True
    ):
        np.testing.assert_allclose(mine, theirs, rtol=1e-11, atol=1e-12)


def test_torch_version_of_the_lower_bound_matches_the_kernel(rng):
    from plackett.likelihood.torch_op import _forward_compiled, _forward_vectorised

    scores = torch.tensor(rng.standard_normal((len(POSITIVES), COLUMNS)))
    positives = Positives(INDICES, OFFSETS, rng.integers(1, 3, len(INDICES)), *scores.shape)
    short_lists = sparse.LowerBoundShortLists()
    mine = _forward_compiled(scores.numpy(), positives, short_lists)
    theirs = _forward_vectorised(scores, positives, short_lists)
    for i in (0, 3, 4):  # value, pull, gradient of the positives
        np.testing.assert_allclose(mine[i], theirs[i].numpy(), rtol=1e-11, atol=1e-12)


def linear_problem(rng, features=6):
    return (
        torch.tensor(rng.standard_normal((len(POSITIVES), features))),
        torch.tensor(rng.standard_normal((COLUMNS, features))),
        torch.tensor(rng.standard_normal(COLUMNS)),
    )


@pytest.mark.parametrize("name", ["partition", "lower_bound"])
@pytest.mark.parametrize("chunk", [1, 7, 30, None])
@pytest.mark.parametrize("with_bias", [True, False])
def test_fused_output_layer_matches_the_plain_one(name, chunk, with_bias, rng):
    hidden, weight, bias = linear_problem(rng)
    fused = {"partition": losses.linear_partition_loss, "lower_bound": losses.linear_lower_bound_loss}[name]
    leaves = (hidden, weight, bias) if with_bias else (hidden, weight)

    def in_chunks(h, w, b=None):
        return fused(h, w, b, INDICES, OFFSETS, chunk=chunk, reduction="none")

    def whole(h, w, b=None):
        return PAIRS[name][0](h @ w.T + (0.0 if b is None else b), INDICES, OFFSETS, reduction="none")

    mine, theirs = value_and_gradients(in_chunks, *leaves), value_and_gradients(whole, *leaves)
    np.testing.assert_allclose(mine[0], theirs[0], rtol=1e-11, atol=1e-12)
    for a, b in zip(mine[1], theirs[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


def test_fused_output_layer_matches_without_kernels(monkeypatch, rng):
    hidden, weight, bias = linear_problem(rng)

    def loss(h, w, b):
        return losses.linear_partition_loss(h, w, b, INDICES, OFFSETS, chunk=7, reduction="none")

    compiled = value_and_gradients(loss, hidden, weight, bias)
    linear = pytest.importorskip("plackett.losses.fused_layer")
    original = linear._Chunks.__init__

    def without_kernels(self, *arguments):
        original(self, *arguments)
        self.has_kernel = False

    monkeypatch.setattr(linear._Chunks, "__init__", without_kernels)
    in_torch = value_and_gradients(loss, hidden, weight, bias)
    np.testing.assert_allclose(compiled[0], in_torch[0], rtol=1e-12, atol=1e-12)
    for a, b in zip(compiled[1], in_torch[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["partition", "lower_bound"])
def test_sampled_negatives_with_all_columns_are_exact(name, rng):
    hidden, weight, bias = linear_problem(rng)
    everything = (torch.arange(COLUMNS), torch.zeros(COLUMNS, dtype=torch.float64))
    scores = hidden @ weight.T + bias
    exact = PAIRS[name][0](scores, INDICES, OFFSETS, reduction="none")
    sampled = PAIRS[name][0](scores, INDICES, OFFSETS, negatives=everything, reduction="none")
    fused = {"partition": losses.linear_partition_loss, "lower_bound": losses.linear_lower_bound_loss}[name]
    fused_sampled = fused(hidden, weight, bias, INDICES, OFFSETS, negatives=everything, reduction="none")
    np.testing.assert_allclose(sampled, exact, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(fused_sampled, exact, rtol=1e-11, atol=1e-12)


def test_sampled_rest_is_unbiased(rng):
    # 4,000 samples of 8 columns, drawn with replacement from an uneven distribution. |z| > 4 has probability 6e-5.
    scores = torch.tensor(rng.standard_normal((1, COLUMNS)))
    positives = Positives([3, 1], [0, 2], None, 1, COLUMNS)
    chances = rng.dirichlet(np.ones(COLUMNS))
    draws = torch.tensor(rng.choice(COLUMNS, (4000, 8), p=chances))
    log_counts = torch.log(8 * torch.tensor(chances))
    found = np.array([sparse.sampled_rest(scores[:, c], (c, log_counts[c]), positives).exp().item() for c in draws])
    exact = scores[0].exp().sum() - scores[0, [1, 3]].exp().sum()
    assert abs(found.mean() - exact.item()) < 4 * found.std(ddof=1) / np.sqrt(len(found))


@pytest.mark.parametrize("name", ["partition", "lower_bound"])
def test_gathered_columns_match_the_whole_layer(name, rng):
    """Gathering only the columns in use gives the same values and gradients as the whole layer."""
    loss = getattr(losses, f"linear_{name}_loss")
    indices, offsets = [1, 7, 3], [0, 2, 2, 3]
    negatives = torch.tensor([2, 7, 2, 5]), torch.tensor([0.1, 0.2, 0.1, 0.3])
    hidden, weight, bias = (torch.from_numpy(rng.normal(size=size)) for size in ((3, 4), (9, 4), 9))
    results = []
    for columns in (None, np.array([1, 2, 3, 5, 7])):
        leaves = [x.clone().requires_grad_() for x in (hidden, weight, bias)]
        chosen = slice(None) if columns is None else torch.from_numpy(columns)
        gathered = None if columns is None else GatheredColumns(columns, 9)
        value = loss(
            leaves[0], leaves[1][chosen], leaves[2][chosen], indices, offsets, labels=[1.0, 2.0, 1.0],
            negatives=negatives, gathered=gathered,
        )  # fmt: skip
        value.backward()
        results.append([value.detach(), *(leaf.grad for leaf in leaves)])
    for wanted, found in zip(*results, strict=True):
        assert torch.equal(wanted, found)


def test_gathered_columns_know_the_width_of_the_layer():
    """A row with all gathered columns still has others in the layer, unless it has every column there."""
    hidden, weight = torch.ones(1, 2), torch.ones(2, 2)
    sample = torch.tensor([0]), torch.zeros(1)
    call = partial(losses.linear_partition_loss, hidden, weight, None, [0, 1], [0, 2])
    assert call(negatives=sample, gathered=GatheredColumns(np.array([0, 1]), 2)) == 0.0
    with pytest.raises(ValueError, match="negatives must leave every row a column that is not positive"):
        call(negatives=sample, gathered=GatheredColumns(np.array([0, 1]), 3))
    with pytest.raises(ValueError, match=r"gathered= requires negatives=, got None"):
        call(gathered=GatheredColumns(np.array([0, 1]), 3))
    with pytest.raises(ValueError, match="gathered must name a column for each of the 2 rows of weight, got 3"):
        call(negatives=sample, gathered=GatheredColumns(np.array([0, 1, 2]), 3))
    with pytest.raises(ValueError, match="gathered must hold all positives and all negatives, got none for 1"):
        call(negatives=sample, gathered=GatheredColumns(np.array([0, 2]), 3))


def test_sampled_negatives_have_gradients(rng):
    hidden, weight, bias = (x.requires_grad_() for x in linear_problem(rng))
    sample = (torch.tensor([4, 4, 8, 11, 20]), torch.log(torch.tensor([0.2, 0.2, 0.5, 1.0, 2.0], dtype=torch.float64)))
    rows = [0, 2]
    indices, offsets = np.concatenate([POSITIVES[r] for r in rows]), [0, 2, 8]

    def loss(h, w, b):
        return losses.linear_partition_loss(h[rows], w, b, indices, offsets, negatives=sample)

    assert torch.autograd.gradcheck(loss, (hidden, weight, bias))


def test_scores_are_never_materialised(rng):
    """No tensor of the forward or backward pass has rows x columns elements."""
    from torch.utils._python_dispatch import TorchDispatchMode

    rows, columns, features, chunk = 16, 4096, 2, 256
    hidden = torch.tensor(rng.standard_normal((rows, features)), requires_grad=True)
    weight = torch.tensor(rng.standard_normal((columns, features)), requires_grad=True)

    class Largest(TorchDispatchMode):
        size = 0

        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            result = function(*arguments, **(options or {}))
            for x in result if isinstance(result, tuple | list) else [result]:
                if isinstance(x, torch.Tensor):
                    self.size = max(self.size, x.numel())
            return result

    with Largest() as largest:
        losses.linear_partition_loss(hidden, weight, None, np.arange(rows), np.arange(rows + 1), chunk=chunk).backward()
    assert largest.size <= columns * features  # the gradient of the weight
    assert rows * columns > columns * features


W = torch.zeros(2, 8)
BAD = {
    "negatives": (lambda: losses.sparse_partition_loss(W, [1], [0, 1, 1], negatives=[1]), "negatives must be a pair"),
    "columns": (
        lambda: losses.sparse_partition_loss(W, [1], [0, 1, 1], negatives=(torch.zeros(2), torch.zeros(2))),
        "negatives must begin with a 1-D tensor of int64 columns",
    ),
    "counts": (
        lambda: losses.sparse_partition_loss(W, [1], [0, 1, 1], negatives=(torch.tensor([2, 3]), torch.zeros(3))),
        "negatives must be .* of one length",
    ),
    "nothing left": (
        lambda: losses.sparse_partition_loss(W, [1], [0, 1, 1], negatives=(torch.tensor([1]), torch.zeros(1))),
        "negatives must leave every row a column that is not positive",
    ),
    "NaN": (lambda: losses.sparse_ranknet_loss(W * float("nan"), [1], [0, 1, 1]), "scores must be finite, got NaN"),
    "shapes": (
        lambda: losses.linear_partition_loss(W, torch.zeros(5, 7), None, [1], [0, 1, 1]),
        r"hidden and weight must be .* got \(2, 8\) and \(5, 7\)",
    ),
    "bias": (
        lambda: losses.linear_partition_loss(W, torch.zeros(5, 8), torch.zeros(4), [1], [0, 1, 1]),
        r"bias must hold one value per column, 5, got \(4,\)",
    ),
    "chunk": (
        lambda: losses.linear_partition_loss(W, torch.zeros(5, 8), None, [1], [0, 1, 1], chunk=0),
        "chunk must be a whole number of at least 1",
    ),
    "infinite weight": (
        lambda: losses.linear_partition_loss(W + 1, torch.full((5, 8), torch.inf), None, [1], [0, 1, 1]),
        "must be finite",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused(case):
    function, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        function()
