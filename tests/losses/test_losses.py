"""Every loss: explicit formulas, the torch versions for other devices, and invariances."""

import itertools
import math

import numpy as np
import pytest
from oracles import enumerated_log_likelihood, log_softmax_at

torch = pytest.importorskip("torch")
losses = pytest.importorskip("plackett.losses")
closed_form = pytest.importorskip("plackett.losses.closed_form")
lists_module = pytest.importorskip("plackett.losses.loss_lists")
vectorised = pytest.importorskip("plackett.likelihood.vectorised")
from plackett.likelihood.core import check_weighting  # noqa: E402  # after the check for torch
from plackett.losses import LOSSES, loss_names, pair_sums  # noqa: E402  # after the check for torch
from plackett.losses.loss_lists import LossLists  # noqa: E402  # after the check for torch

SIZES = [7, 1, 12, 0, 5, 3]
OFFSETS = np.concatenate(([0], np.cumsum(SIZES)))


def random_lists(seed=0, ties=True, dtype=torch.float64):
    rng = np.random.default_rng(seed)
    n = int(OFFSETS[-1])
    labels = rng.integers(0, 4, n).astype(float) if ties else np.concatenate([rng.permutation(s) for s in SIZES])
    return torch.tensor(rng.standard_normal(n), dtype=dtype, requires_grad=True), torch.tensor(labels)


def call(name, scores, labels, seed=0, **options):
    if LOSSES[name].random:
        options.setdefault("generator", torch.Generator().manual_seed(seed))
    return LOSSES[name].function(scores, labels, **options)


def each_list(scores, labels):
    for first, last in itertools.pairwise(OFFSETS):
        yield scores.detach().numpy()[first:last].tolist(), labels.numpy()[first:last].tolist()


# Explicit formulas, one list at a time.


def log_softmax(w):
    return [log_softmax_at(w, i, range(len(w))) for i in range(len(w))]


def long_partition(w, y):
    return -float(enumerated_log_likelihood(w, y)) if len(w) <= 7 else None


def long_order(w, order):
    return -math.fsum(log_softmax_at(w, order[i], order[i:]) for i in range(len(order)))


def long_lower_bound(w, y):
    total = 0.0
    for level in sorted(set(y))[1:]:
        tier = [x for x, label in zip(w, y, strict=True) if label == level]
        below = math.log(math.fsum(math.exp(x) for x, label in zip(w, y, strict=True) if label <= level))
        total -= math.lgamma(len(tier) + 1) + math.fsum(x - below for x in tier)
    return total


def long_cross_entropy(w, target):
    return -math.fsum(t * x for t, x in zip(target, log_softmax(w), strict=True)) if w else 0.0


def long_attrank(w, y):
    attention = [math.exp(label) if label > 0 else 0.0 for label in y]
    total = math.fsum(attention)
    return long_cross_entropy(w, [a / total for a in attention]) if total else 0.0


def long_listnet(w, y):
    total = math.fsum(math.exp(label) for label in y)
    return long_cross_entropy(w, [math.exp(label) / total for label in y])


def pairs(w, y):
    return [(a, b) for a in range(len(w)) for b in range(len(w)) if y[a] > y[b]]


def long_ranknet(w, y):
    return math.fsum(math.log1p(math.exp(w[b] - w[a])) for a, b in pairs(w, y))


def long_ranksvm(w, y):
    return math.fsum(max(0.0, 1.0 - (w[a] - w[b])) for a, b in pairs(w, y))


def ideal_dcg(gains, k=10**9):
    return math.fsum(g / math.log2(2 + i) for i, g in enumerate(sorted(gains, reverse=True)[:k]))


def long_lambdarank(w, y, k=10**9):
    gains = [2.0**label - 1 for label in y]
    ideal = ideal_dcg(gains, k)
    place = {i: p for p, i in enumerate(sorted(range(len(w)), key=lambda i: -w[i]))}
    total = 0.0
    for a, b in pairs(w, y):
        if ideal and min(place[a], place[b]) < k:
            swap = abs((gains[a] - gains[b]) * (1 / math.log2(2 + place[a]) - 1 / math.log2(2 + place[b])))
            total += swap / ideal * math.log1p(math.exp(w[b] - w[a]))
    return total


def long_approx_ndcg(w, y, temperature=0.1):
    gains = [2.0**label - 1 for label in y]
    if len(set(y)) < 2:
        return 0.0
    smooth = [1 + math.fsum(1 / (1 + math.exp((a - b) / temperature)) for b in w) - 0.5 for a in w]
    return 1 - math.fsum(g / math.log2(1 + p) for g, p in zip(gains, smooth, strict=True)) / ideal_dcg(gains)


LONGHAND = {
    "partition": long_partition,
    "lower_bound": long_lower_bound,
    "attrank": long_attrank,
    "listnet": long_listnet,
    "ranknet": long_ranknet,
    "ranksvm": long_ranksvm,
    "lambdarank": long_lambdarank,
    "approx_ndcg": long_approx_ndcg,
}


@pytest.mark.parametrize("name", LONGHAND)
@pytest.mark.parametrize("seed", range(5))
def test_matches_the_formula(name, seed):
    scores, labels = random_lists(seed)
    found = call(name, scores, labels, offsets=OFFSETS, reduction="none")
    for value, (w, y) in zip(found.tolist(), each_list(scores, labels), strict=True):
        expected = LONGHAND[name](w, y)
        if expected is not None:
            assert value == pytest.approx(expected, rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("truncation", [1, 2, 7, 59, 60])
def test_truncated_lambdarank_matches_the_formula(truncation, rng):
    scores, labels = rng.standard_normal(60), rng.integers(0, 4, 60)
    found = losses.lambdarank_loss(torch.tensor(scores), torch.tensor(labels), truncation=truncation)
    assert found.item() == pytest.approx(long_lambdarank(scores.tolist(), labels.tolist(), truncation), rel=1e-11)


@pytest.mark.parametrize("truncation", [1, 3, 5])
def test_truncated_lambdarank_uses_the_discounts_of_the_whole_list(truncation):
    scores, labels = random_lists(2)
    found = call("lambdarank", scores, labels, offsets=OFFSETS, reduction="none", truncation=truncation)
    for value, (w, y) in zip(found.tolist(), each_list(scores, labels), strict=True):
        assert value == pytest.approx(long_lambdarank(w, y, truncation), rel=1e-10, abs=1e-12)


@pytest.mark.parametrize("name", ["topk", "listmle"])
@pytest.mark.parametrize("top", [None, 1, 3])
def test_orders_without_ties_match_the_formula(name, top):
    scores, labels = random_lists(1, ties=False)
    found = call(name, scores, labels, offsets=OFFSETS, reduction="none", top=top)
    for value, (w, y) in zip(found.tolist(), each_list(scores, labels), strict=True):
        order = sorted(range(len(w)), key=lambda i: -y[i])
        places = len(w) if top is None else min(top, len(w))
        expected = -math.fsum(log_softmax_at(w, order[i], order[i:]) for i in range(places))
        assert value == pytest.approx(expected, rel=1e-11, abs=1e-12)


# Covered by the next test; the gradient of a policy is an estimate of its own, see test_policy.py.
@pytest.mark.parametrize("name", sorted(set(loss_names()) - {"lambdarank", "expected_utility"}))
@pytest.mark.parametrize("seed", range(2))
def test_gradients_match_finite_differences(name, seed):
    scores, labels = random_lists(seed, ties=LOSSES[name].takes_ties)
    assert torch.autograd.gradcheck(
        lambda w: call(name, w, labels, offsets=OFFSETS, reduction="none"), [scores], atol=1e-6
    )


def test_lambdarank_gradient_treats_the_weights_as_constant():
    scores, labels = random_lists(3)
    (gradient,) = torch.autograd.grad(call("lambdarank", scores, labels, offsets=OFFSETS, reduction="sum"), scores)
    for i in range(len(scores)):
        step = 1e-6 * (torch.arange(len(scores)) == i)  # too small to change the ranking
        up, down = (
            call("lambdarank", (scores + s).detach(), labels, offsets=OFFSETS, reduction="sum") for s in (step, -step)
        )
        assert gradient[i].item() == pytest.approx(((up - down) / 2e-6).item(), abs=1e-6)


# Invariances of every registered loss.


@pytest.fixture(params=loss_names())
def name(request):
    return request.param


def values_and_gradient(name, scores, labels, **options):
    leaf = scores.detach().clone().requires_grad_()
    value = call(name, leaf, labels, reduction="none", **options)
    (gradient,) = torch.autograd.grad(value.sum(), leaf)
    return value.detach(), gradient


def test_padding_changes_nothing(name):
    scores, labels = random_lists(4, ties=LOSSES[name].takes_ties)
    where = torch.arange(max(SIZES) + 2) < torch.tensor(SIZES)[:, None]
    padded_scores = torch.full(where.shape, 1e30, dtype=torch.float64).masked_scatter(where, scores.detach())
    padded_labels = torch.full(where.shape, 99.0, dtype=torch.float64).masked_scatter(where, labels.double())
    flat = values_and_gradient(name, scores, labels, offsets=OFFSETS)
    padded = values_and_gradient(name, padded_scores, padded_labels, where=where)
    np.testing.assert_allclose(padded[0], flat[0], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(padded[1][where], flat[1], rtol=1e-12, atol=1e-14)
    assert not padded[1][~where].any()


def test_order_of_rows_and_lists_does_not_matter(name):
    if LOSSES[name].random:
        pytest.skip("holds in expectation: see test_random_losses_ignore_the_order_of_rows_in_expectation")
    scores, labels = random_lists(5, ties=LOSSES[name].takes_ties)
    value, gradient = values_and_gradient(name, scores, labels, offsets=OFFSETS)
    rng = np.random.default_rng(0)
    parts = [rng.permutation(np.arange(a, b)) for a, b in itertools.pairwise(OFFSETS)]
    lists = rng.permutation(len(parts))
    rows = np.concatenate([parts[b] for b in lists]).astype(int)
    offsets = np.concatenate(([0], np.cumsum([SIZES[b] for b in lists])))
    moved = values_and_gradient(name, scores[rows], labels[rows], offsets=offsets)
    np.testing.assert_allclose(moved[0], value[lists], rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(moved[1], gradient[rows], rtol=1e-10, atol=1e-12)


def test_reductions_and_split_batches_are_consistent(name):
    scores, labels = random_lists(6, ties=LOSSES[name].takes_ties)
    weights = torch.linspace(0.0, 2.0, len(SIZES), dtype=torch.float64)
    each = call(name, scores, labels, offsets=OFFSETS, reduction="none")
    assert call(name, scores, labels, offsets=OFFSETS, reduction="sum").item() == pytest.approx(each.sum().item())
    mean = call(name, scores, labels, offsets=OFFSETS, weights=weights)
    assert mean.item() == pytest.approx(((weights * each).sum() / weights.sum()).item())
    assert call(name, scores, labels, offsets=OFFSETS, weights=torch.zeros(len(SIZES))).item() == 0.0
    if not LOSSES[name].random:
        cut = int(OFFSETS[3])
        halves = [
            call(name, scores[:cut], labels[:cut], offsets=OFFSETS[:4], reduction="sum"),
            call(name, scores[cut:], labels[cut:], offsets=OFFSETS[3:] - cut, reduction="sum"),
        ]
        assert sum(halves).item() == pytest.approx(each.sum().item(), rel=1e-12)


def test_lists_without_a_preference_have_no_loss_where_documented(name):
    if not LOSSES[name].takes_ties:
        pytest.skip("refuses ties")
    scores = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    value, gradient = values_and_gradient(name, scores, torch.full((3,), 2.0))
    if LOSSES[name].silent_without_preference:
        assert value.item() == 0.0
        assert not gradient.any()
    else:
        assert value.item() != 0.0


def test_adding_a_constant_changes_nothing_where_documented(name):
    if not LOSSES[name].ignores_shift:
        pytest.skip("depends on the level of scores")
    scores, labels = random_lists(7, ties=LOSSES[name].takes_ties)
    plain = values_and_gradient(name, scores, labels, offsets=OFFSETS)
    moved = values_and_gradient(name, scores + 100.0, labels, offsets=OFFSETS)
    np.testing.assert_allclose(moved[0], plain[0], rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(moved[1], plain[1], rtol=1e-9, atol=1e-11)


def test_float32_gap_of_700_has_gradients_of_the_right_sign(name):
    if name in ("approx_ndcg", "expected_utility"):
        scores, wrong = torch.tensor([-0.05, 0.05]), torch.tensor([1.0, 0.0])  # flat far from a swap
    else:
        scores, wrong = torch.tensor([-350.0, 350.0]), torch.tensor([1.0, 0.0])
    if LOSSES[name].random and name == "listpl":
        wrong = wrong * 100.0  # labels this far apart are always drawn in order
    _, gradient = values_and_gradient(name, scores, wrong)
    assert torch.isfinite(gradient).all()
    assert gradient[0] < 0 < gradient[1]
    value, gradient = values_and_gradient(name, -scores, wrong)
    assert torch.isfinite(value).all()
    assert torch.isfinite(gradient).all()


EDGES = {
    "huge": [1e30, -1e30, 0.0],
    "single": [5.0],
    "empty": [],
    "equal": [1.0, 1.0, 1.0],
}


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_edge_cases_are_finite(name, edge, dtype):
    scores = torch.tensor(EDGES[edge], dtype=dtype)
    value, gradient = values_and_gradient(name, scores, torch.arange(len(scores)).double())
    assert torch.isfinite(value).all()
    assert torch.isfinite(gradient).all()
    assert value.dtype == gradient.dtype == dtype


def test_no_lists_have_mean_zero(name):
    empty = torch.zeros(0, requires_grad=True)
    assert call(name, empty, torch.zeros(0), offsets=[0]).item() == 0.0
    masked = call(name, torch.zeros(2, 3), torch.ones(2, 3), where=torch.zeros(2, 3, dtype=torch.bool))
    assert masked.item() == 0.0


def test_second_derivatives_are_right_or_refused(name):
    scores, labels = random_lists(8, ties=LOSSES[name].takes_ties)
    (gradient,) = torch.autograd.grad(call(name, scores, labels, offsets=OFFSETS), scores, create_graph=True)
    refusal = None
    try:
        gradient.square().sum().backward()
    except RuntimeError as error:
        refusal = str(error)
    if refusal is None:
        assert torch.autograd.gradgradcheck(lambda x: call(name, x, labels, offsets=OFFSETS), scores)
    else:
        assert "cannot be differentiated twice" in refusal


# Half precision, handled as in torch's cross_entropy.


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", loss_names())
def test_half_precision_is_computed_in_single_precision(name, dtype):
    scores, labels = random_lists(10, ties=LOSSES[name].takes_ties, dtype=dtype)
    single = scores.detach().float().requires_grad_()
    weights = torch.arange(1.0, len(SIZES) + 1)
    exact = call(name, single, labels, offsets=OFFSETS, weights=weights)
    with torch.autocast("cpu", dtype=dtype):
        found = call(name, scores, labels, offsets=OFFSETS, weights=weights)
        each = call(name, scores, labels, offsets=OFFSETS, reduction="none")
    assert found.dtype == each.dtype == torch.float32
    assert found.item() == exact.item()
    exact.backward()
    found.backward()
    assert scores.grad.dtype == dtype
    assert torch.equal(scores.grad, single.grad.to(dtype))
    plain = call(name, scores, labels, offsets=OFFSETS, weights=weights)
    assert plain.dtype == dtype
    assert plain == exact.to(dtype)  # rounded once, at the end


# Integer labels beyond the range of float64.


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int16, torch.float32])
def test_labels_of_every_type_give_the_same_loss(name, dtype, rng):
    """torch has no minimum and maximum of some unsigned integers."""
    scores, labels = torch.tensor(rng.standard_normal((2, 5))), torch.tensor([[3, 2, 0, 1, 4], [0, 3, 2, 4, 1]])
    assert call(name, scores, labels.to(dtype)).item() == call(name, scores, labels).item()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("argument", ["scores", "labels"])
def test_numbers_that_are_not_finite_are_refused(name, argument, bad):
    given = {"scores": torch.tensor([0.0, 1.0, 2.0]), "labels": torch.tensor([2.0, 0.0, 1.0])}
    given[argument][1] = bad
    with pytest.raises(ValueError, match=rf"{argument} must be finite"):
        call(name, given["scores"], given["labels"])


@pytest.mark.parametrize("name", ["partition", "topk", "lower_bound", "listmle", "ranknet", "ranksvm"])
def test_labels_beyond_float64_stay_distinct(name):
    scores = torch.tensor([0.3, -1.0, 0.5], dtype=torch.float64)
    large = torch.tensor([2**60 + 1, 2**60, 2**60 + 2])
    assert call(name, scores, large) == call(name, scores, torch.tensor([1, 0, 2]))
    assert call(name, scores, large.tolist()) == call(name, scores, torch.tensor([1, 0, 2]))


def test_labels_beyond_float64_stay_distinct_in_the_torch_version():
    scores = torch.tensor([0.3, -1.0, 0.5], dtype=torch.float64)
    both = [
        closed_form._pair_loss_in_torch(lists_module.make_loss_lists(scores, labels, None, None), pair_sums.LOGISTIC)
        for labels in (torch.tensor([2**60 + 1, 2**60, 2**60 + 2]), torch.tensor([1, 0, 2]))
    ]
    assert both[0] == both[1]


@pytest.mark.parametrize("name", ["attrank", "listnet", "listpl", "lambdarank", "approx_ndcg"])
def test_labels_beyond_float64_are_refused_where_their_size_matters(name):
    with pytest.raises(ValueError, match=r"labels must be at most 9,007,199,254,740,992 .* 1152921504606846978: pass"):
        call(name, torch.zeros(2), torch.tensor([2**60 + 1, 2**60 + 2]))


@pytest.mark.parametrize("labels", [[5000.0, 0.0, 1.0], [2**60, 0, 1]])
def test_gain_weights_of_huge_grades_are_refused(labels):
    with pytest.raises(
        ValueError, match=r"tier_weights must be finite, got infinity or NaN for a tier of label .*: \"gain\" is 2"
    ):
        losses.partition_loss(torch.zeros(3), torch.tensor(labels), tier_weights="gain")
    with pytest.raises(ValueError, match="tier_weights must be finite"):
        vectorised.log_likelihood_and_gradient(
            torch.zeros(3), torch.tensor(labels), torch.tensor([0, 3]), top=9, tol=1e-8,
            weighting=check_weighting("gain"),
        )  # fmt: skip


# Torch versions for other devices, run on the CPU.


@pytest.mark.parametrize("truncation", [3, closed_form.NO_TRUNCATION])
def test_torch_versions_match_the_kernels(truncation):
    scores, labels = random_lists(9)
    flat = lists_module.make_loss_lists(scores, labels, OFFSETS, None)
    gains = 2.0**labels - 1.0
    for kernel, in_torch, arguments in (
        (closed_form.pair_loss, closed_form._pair_loss_in_torch, (pair_sums.LOGISTIC,)),
        (closed_form.pair_loss, closed_form._pair_loss_in_torch, (pair_sums.HINGE,)),
        (closed_form.lambda_loss, closed_form._lambda_loss_in_torch, (gains, truncation)),
        (closed_form.approx_ndcg, closed_form._approx_ndcg_in_torch, (gains, truncation, 0.3)),
    ):
        mine, theirs = kernel(flat, *arguments), in_torch(flat, *arguments)
        np.testing.assert_allclose(mine.detach(), theirs.detach(), rtol=1e-11, atol=1e-12)
        gradients = [torch.autograd.grad(x.sum(), scores)[0] for x in (mine, theirs)]
        np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("only_positive", [True, False])
def test_torch_version_of_cross_entropy_matches_the_kernel(only_positive):
    scores, labels = random_lists(9)
    flat = lists_module.make_loss_lists(scores, labels, OFFSETS, None)
    mine = closed_form.softmax_cross_entropy(flat, labels, only_positive=only_positive)
    theirs = closed_form._softmax_cross_entropy_in_torch(flat, labels, only_positive)
    np.testing.assert_allclose(mine.detach(), theirs.detach(), rtol=1e-11, atol=1e-12)
    gradients = [torch.autograd.grad(x.sum(), scores)[0] for x in (mine, theirs)]
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("efron", [True, False])
@pytest.mark.parametrize("bottom", [True, False])
def test_torch_versions_of_efron_and_breslow_match_the_kernels(efron, bottom):
    scores, labels = random_lists(10)
    flat = lists_module.make_loss_lists(scores, labels, OFFSETS, None)
    in_torch = vectorised.approximate_log_likelihood(
        scores, labels, flat.list_of(), flat.count, efron=efron, bottom=bottom
    )
    options = {"ties": "efron" if efron else "breslow", "bottom": "ordered" if bottom else "unordered"}
    mine = losses.listmle_loss(scores, labels, offsets=OFFSETS, reduction="none", **options)
    np.testing.assert_allclose(-mine.detach(), in_torch.detach(), rtol=1e-11)
    gradients = [torch.autograd.grad(x.sum(), scores)[0] for x in (-mine, in_torch)]
    np.testing.assert_allclose(gradients[0], gradients[1], atol=1e-11)


# Relations between losses.


def test_listmle_with_exact_ties_equals_partition():
    scores, labels = random_lists(11)
    for top in (None, 2, 4):
        exact = losses.listmle_loss(scores, labels, offsets=OFFSETS, ties="exact", top=top)
        assert exact.item() == losses.partition_loss(scores, labels, offsets=OFFSETS, top=top).item()


def test_lower_bound_loss_is_at_least_partition_and_equal_for_singletons():
    scores, labels = random_lists(12)
    bound = losses.lower_bound_loss(scores, labels, offsets=OFFSETS, reduction="none")
    exact = losses.partition_loss(scores, labels, offsets=OFFSETS, reduction="none")
    assert (bound >= exact - 1e-12).all()
    scores, labels = random_lists(12, ties=False)
    np.testing.assert_allclose(
        losses.lower_bound_loss(scores, labels, offsets=OFFSETS, reduction="none").detach(),
        losses.partition_loss(scores, labels, offsets=OFFSETS, reduction="none").detach(),
        rtol=1e-12,
    )


def test_attrank_equals_the_lower_bound_per_positive_on_two_tiers():
    """Per list, AttRank = (lower bound + log n!) / n with n positives, so batches weight lists differently."""
    rng = np.random.default_rng(13)
    scores, labels = torch.tensor(rng.standard_normal((20, 9))), torch.tensor(rng.integers(0, 2, (20, 9)))
    n = labels.sum(1).double()
    keep = (n > 0) & (n < 9)
    attrank = losses.attrank_loss(scores, labels, reduction="none")
    bound = losses.lower_bound_loss(scores, labels, reduction="none")
    np.testing.assert_allclose(attrank[keep], ((bound + torch.lgamma(n + 1)) / n)[keep], rtol=1e-12)


def test_listnet_top_k_matches_enumeration():
    rng = np.random.default_rng(14)
    w, y = rng.standard_normal(4), rng.integers(0, 3, 4).astype(float)
    for top in (1, 2, 3, 4, 6):
        expected = 0.0
        for prefix in itertools.permutations(range(4), min(top, 4)):
            rest = [i for i in range(4) if i not in prefix]
            log_p, log_q = (
                math.fsum(log_softmax_at(x.tolist(), prefix[m], [*prefix[m:], *rest]) for m in range(len(prefix)))
                for x in (y, w)
            )
            expected -= math.exp(log_p) * log_q
        found = losses.listnet_loss(torch.tensor(w), torch.tensor(y), top=top)
        assert found.item() == pytest.approx(expected, rel=1e-12)


def mean_and_error(draw, count):
    values = np.array([draw(torch.Generator().manual_seed(seed)) for seed in range(count)])
    return values.mean(), values.std(ddof=1) / math.sqrt(count)


@pytest.mark.parametrize("loss", ["listpl", "listnet"])
def test_sampled_losses_estimate_the_exact_cross_entropy(loss):
    # 400 draws of 5 orders with fixed seeds; |z| > 4 has probability 6e-5.
    rng = np.random.default_rng(15)
    w, y = torch.tensor(rng.standard_normal(5)), torch.tensor(rng.integers(0, 3, 5))
    top = 5 if loss == "listpl" else 2
    exact = losses.listnet_loss(w, y, top=top).item()
    options = {} if loss == "listpl" else {"top": 2}
    mean, error = mean_and_error(lambda g: losses.get_loss(loss)(w, y, samples=5, generator=g, **options).item(), 400)
    assert abs(mean - exact) < 4 * error


def test_random_losses_ignore_the_order_of_rows_in_expectation():
    # With the rows of a list reordered, the means over 400 seeds agree within 4 standard errors.
    rng = np.random.default_rng(16)
    w, y = torch.tensor(rng.standard_normal(6)), torch.tensor(rng.integers(0, 2, 6))
    order = torch.tensor(rng.permutation(6))
    for loss in ("listmle", "listpl"):
        function = losses.get_loss(loss)
        a, error_a = mean_and_error(lambda g, f=function: f(w, y, generator=g).item(), 400)
        b, error_b = mean_and_error(lambda g, f=function: f(w[order], y[order], generator=g).item(), 400)
        assert abs(a - b) < 4 * math.hypot(error_a, error_b)


def test_listmle_breaks_ties_in_order_or_at_random():
    w, y = torch.tensor([0.3, -0.2, 1.0, 0.1], dtype=torch.float64), torch.tensor([1, 1, 1, 0])
    stable = losses.listmle_loss(w, y, ties="stable")
    assert stable.item() == pytest.approx(long_order(w.tolist(), [0, 1, 2, 3]), rel=1e-12)
    drawn = {round(losses.listmle_loss(w, y, generator=torch.Generator().manual_seed(s)).item(), 9) for s in range(60)}
    every = {round(long_order(w.tolist(), [*p, 3]), 9) for p in itertools.permutations(range(3))}
    assert drawn == every  # 60 draws miss one of 6 orders with probability 1e-4; the seeds are fixed


def test_listmle_with_an_unordered_bottom_tier_equals_partition():
    w, y = torch.tensor([0.3, -0.2, 1.0, 0.1], dtype=torch.float64), torch.tensor([1, 0, 0, 0])
    found = losses.listmle_loss(w, y, ties="stable", bottom="unordered")
    assert found.item() == pytest.approx(losses.partition_loss(w, y).item(), rel=1e-12)


def test_position_weights_multiply_the_terms_of_places():
    w, y = torch.tensor([0.3, -0.2, 1.0], dtype=torch.float64, requires_grad=True), torch.tensor([2, 1, 0])
    alpha = torch.tensor([4.0, 2.0, 1.0])
    found = losses.listmle_loss(w, y, ties="stable", position_weights=alpha)
    x = w.detach().tolist()
    assert found.item() == pytest.approx(
        -4 * log_softmax_at(x, 0, [0, 1, 2]) - 2 * log_softmax_at(x, 1, [1, 2]), rel=1e-12
    )
    assert torch.autograd.gradcheck(lambda v: losses.listmle_loss(v, y, ties="stable", position_weights=alpha), [w])


@pytest.mark.parametrize("weighting", ["gain", lambda upper, lower, places: 1.0 + places + upper * lower])
def test_tier_weights_multiply_the_terms_of_tiers(weighting):
    scores, labels = random_lists(17)
    found = losses.partition_loss(scores, labels, offsets=OFFSETS, tier_weights=weighting, reduction="none")
    for value, (w, y) in zip(found.tolist(), each_list(scores, labels), strict=True):
        expected, above = 0.0, 0
        for upper, lower in itertools.pairwise(sorted(set(y), reverse=True)):
            weight = 2.0**upper - 2.0**lower if weighting == "gain" else weighting(upper, lower, above)
            chosen = [i for i in range(len(w)) if y[i] <= upper]
            term = losses.partition_loss(
                torch.tensor([w[i] for i in chosen], dtype=torch.float64),
                torch.tensor([float(y[i] == upper) for i in chosen]),
            )
            expected += weight * term.item()
            above += sum(label == upper for label in y)
        assert value == pytest.approx(expected, rel=1e-10, abs=1e-12)
    assert torch.autograd.gradcheck(
        lambda w: losses.partition_loss(w, labels, offsets=OFFSETS, tier_weights=weighting), [scores]
    )
    value, gradient = vectorised.log_likelihood_and_gradient(
        scores.detach(), labels, torch.tensor(OFFSETS), top=10**9, tol=1e-13,
        weighting=check_weighting(weighting),
    )  # fmt: skip
    np.testing.assert_allclose(-value, found.detach(), rtol=1e-10)
    (expected_gradient,) = torch.autograd.grad(found.sum(), scores)
    np.testing.assert_allclose(-gradient, expected_gradient, atol=1e-9)


def test_listmle_is_accurate_where_allrank_is_not():
    """An epsilon inside the logarithm gives 14.95 and gradients of the wrong sign for scores 0, -30, -31."""
    scores = torch.tensor([0.0, -30.0, -31.0], dtype=torch.float64, requires_grad=True)
    loss = losses.listmle_loss(scores, torch.tensor([2, 1, 0]))
    assert loss.item() == pytest.approx(math.log1p(math.exp(-1)) + math.exp(-30) + math.exp(-31), rel=1e-12)
    observation = torch.flip(torch.cumsum(torch.flip(torch.exp(scores), [0]), 0), [0])
    with_epsilon = (torch.log(observation + 1e-10) - scores).sum()
    assert with_epsilon.item() > 14
    loss.backward()
    assert scores.grad[1] < 0 < scores.grad[2]


# Modules and bad input


def test_losses_are_found_by_name():
    scores, labels = random_lists(18)
    module = losses.RankingLoss("partition", top=3)
    assert module(scores, labels, offsets=OFFSETS) == losses.partition_loss(scores, labels, offsets=OFFSETS, top=3)
    assert repr(module) == "RankingLoss('partition', top=3)"
    with pytest.raises(ValueError, match=r"loss must be one of partition, topk, .*, got 'nothing'"):
        losses.get_loss("nothing")
    with pytest.raises(ValueError, match=r"options of partition must be among .*, got k"):
        losses.RankingLoss("partition", k=3)


W, Y = torch.tensor([0.5, -0.5, 1.0]), torch.tensor([1, 0, 0])
BAD = {
    "reduction": (lambda: losses.ranknet_loss(W, Y, reduction="max"), "reduction must be one of 'mean', 'sum', 'none'"),
    "weights": (lambda: losses.ranknet_loss(W, Y, weights=[1.0, 2.0]), r"weights must hold one value per list, \(1,\)"),
    "negative weight": (lambda: losses.ranknet_loss(W, Y, weights=[-1.0]), "weights must be at least 0, got -1.0"),
    "NaN": (lambda: losses.ranknet_loss(W * math.nan, Y), "scores must be finite, got nan at position 0"),
    "NaN label": (lambda: losses.listnet_loss(W, Y * math.nan), "labels must be finite, got nan at position 0"),
    "ties": (lambda: losses.topk_loss(W, Y), "labels must not tie within the top places .* got 0 more than once"),
    "tier_weights": (lambda: losses.partition_loss(W, Y, tier_weights="dcg"), 'tier_weights must be "gain"'),
    "listmle ties": (lambda: losses.listmle_loss(W, Y, ties="no"), "ties must be one of random, stable, efron"),
    "listmle top": (lambda: losses.listmle_loss(W, Y, ties="efron", top=2), "top must be None with ties='efron'"),
    "positions": (lambda: losses.listmle_loss(W, Y, position_weights=[1.0]), "position_weights must hold a weight"),
    "samples": (lambda: losses.listpl_loss(W, Y, samples=0), "samples must be a whole number of at least 1, got 0"),
    "listnet": (lambda: losses.listnet_loss(torch.zeros(500), torch.zeros(500), top=4), "draw the choices with"),
    "gain": (lambda: losses.lambdarank_loss(W, Y, gain="log"), 'gain must be "exp2", "linear" or a function'),
    "negative gain": (lambda: losses.lambdarank_loss(W, Y - 1, gain="linear"), "labels must have finite gains"),
    "temperature": (lambda: losses.approx_ndcg_loss(W, Y, temperature=0.0), "temperature must be above 0, got 0.0"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused(case):
    function, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        function()


def test_topk_allows_ties_below_the_top():
    assert losses.topk_loss(W, Y, top=1).item() == pytest.approx(-log_softmax_at(W.tolist(), 0, [0, 1, 2]), rel=1e-6)


# Other devices than the CPU: the versions in torch operations.


@pytest.mark.parametrize(
    ("name", "options"),
    [("lower_bound", {}), ("listmle", {"ties": "efron"}), ("listmle", {"ties": "breslow", "bottom": "ordered"})],
)
def test_approximations_without_kernels_match_the_kernels(name, options, monkeypatch):
    scores, labels = random_lists(12)
    expected = call(name, scores, labels, offsets=OFFSETS, reduction="none", **options)
    (gradient,) = torch.autograd.grad(expected.sum(), scores)
    monkeypatch.setattr(LossLists, "on_cpu", property(lambda _: False))
    found = call(name, scores, labels, offsets=OFFSETS, reduction="none", **options)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found.sum(), scores)[0], gradient)
    with pytest.raises(ValueError, match="scores must be finite"):
        call(name, torch.full_like(scores, torch.nan), labels, offsets=OFFSETS, **options)
