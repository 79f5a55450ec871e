"""What a ranking drawn from the model earns, and its gradient: exact, by PL-Rank and by REINFORCE."""

import itertools
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from plackett.distribution.primitives import decaying_sums  # noqa: E402  # after the check for torch
from plackett.losses import expected_utility_loss  # noqa: E402

SIZES = (5, 1, 3, 0, 4)
OFFSETS = np.concatenate(([0], np.cumsum(SIZES)))


def lists(seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(int(OFFSETS[-1]), generator=generator, dtype=torch.float64).requires_grad_()
    return scores, torch.randint(0, 4, (int(OFFSETS[-1]),), generator=generator)


def enumerated(scores, gains, discounts):
    """The expected discounted gain of one list, over all orders."""
    total = scores.new_zeros(())
    for order in itertools.permutations(range(len(scores))):
        log_p = sum(scores[order[i]] - torch.logsumexp(scores[list(order[i:])], 0) for i in range(len(order)))
        total = total + torch.exp(torch.as_tensor(log_p)) * sum(
            d * gains[i] for d, i in zip(discounts, order, strict=False)
        )
    return total


@pytest.mark.parametrize("top", [None, 2])
@pytest.mark.parametrize("discount", ["dcg", [1.0, 0.5, 0.5, 0.0]])
def test_exact_value_and_gradient_match_enumeration(top, discount):
    scores, labels = lists()
    found = expected_utility_loss(
        scores, labels, offsets=OFFSETS, discount=discount, top=top, method="exact", reduction="none"
    )
    worths = [1 / math.log2(place + 2) for place in range(5)] if discount == "dcg" else discount
    expected = torch.stack(
        [
            -enumerated(scores[a:b], 2.0 ** labels[a:b].double() - 1.0, worths[:top])
            for a, b in itertools.pairwise(OFFSETS.tolist())
        ]
    )
    assert torch.allclose(found, expected, rtol=1e-12)
    ours, theirs = (torch.autograd.grad(x.sum(), scores)[0] for x in (found, expected))
    assert torch.allclose(ours, theirs, rtol=1e-10, atol=1e-13)


def test_exact_gradient_matches_differences():
    scores, labels = lists(1)
    assert torch.autograd.gradcheck(
        lambda w: expected_utility_loss(w, labels, offsets=OFFSETS, top=3, method="exact", gain="linear"), [scores]
    )


@pytest.mark.parametrize("method", ["pl-rank", "reinforce"])
@pytest.mark.parametrize(("top", "samples"), [(None, 50), (2, 50), (3, 1)])
def test_estimates_are_unbiased(method, top, samples):
    """Each of 13 gradients and 5 values within 4.9 standard errors: a failure rate of 1e-5 for any other seed."""
    scores, labels = lists(2)
    options = {"offsets": OFFSETS, "top": top, "reduction": "none"}
    exact = expected_utility_loss(scores, labels, method="exact", **options)
    (gradient,) = torch.autograd.grad(exact.sum(), scores)
    copies = 400 if samples > 1 else 4000  # of all lists, in one call
    offsets = np.concatenate(([0], np.cumsum(np.tile(SIZES, copies))))
    drawn = scores.detach().repeat(copies).requires_grad_()
    values = expected_utility_loss(
        drawn, labels.repeat(copies), method=method, samples=samples, offsets=offsets, top=top, reduction="none",
        generator=torch.Generator().manual_seed(3),
    )  # fmt: skip
    (gradients,) = torch.autograd.grad(values.sum(), drawn)
    for found, expected in ((values.detach(), exact.detach()), (gradients, gradient)):
        each = found.reshape(copies, -1)
        error = each.std(0) / math.sqrt(copies)
        assert bool(((each.mean(0) - expected).abs() <= 4.9 * error + 1e-12).all())


def test_pl_rank_varies_less_than_reinforce():
    generator = torch.Generator().manual_seed(4)
    scores = torch.randn(100, generator=generator, dtype=torch.float64).requires_grad_()
    labels = torch.randint(0, 3, (100,), generator=generator)
    variance = {}
    for method in ("pl-rank", "reinforce"):
        draws = [
            torch.autograd.grad(
                expected_utility_loss(scores, labels, top=10, samples=20, method=method, generator=generator), scores
            )[0]
            for _ in range(40)
        ]
        variance[method] = float(torch.stack(draws).var(0).sum())
    assert variance["pl-rank"] < variance["reinforce"] / 200  # about 1,000


def test_decaying_sums_match_the_recurrence():
    x, decay = torch.randn(3, 13, dtype=torch.float64), torch.rand(3, 13, dtype=torch.float64)
    decay[1, 4] = 0.0
    expected, last = [], torch.zeros(3, dtype=torch.float64)
    for place in range(13):
        last = x[:, place] + decay[:, place] * last
        expected.append(last)
    torch.testing.assert_close(decaying_sums(x, decay), torch.stack(expected, 1), rtol=1e-13, atol=1e-14)
    assert decaying_sums(x[:, :0], decay[:, :0]).shape == (3, 0)


def test_certain_results_do_not_vary():
    """With equal gains, or an order that is certain, all samples agree with the exact value and gradient."""
    scores = torch.tensor([0.0, 1.0, -1.0, 0.5], dtype=torch.float64, requires_grad=True)
    for labels, scale in ((torch.ones(4), 1.0), (torch.tensor([3, 0, 1, 2]), 1e4)):
        exact, drawn = (
            expected_utility_loss(scale * scores, labels, top=3, method=method, samples=3)
            for method in ("exact", "pl-rank")
        )
        torch.testing.assert_close(drawn, exact, rtol=1e-12, atol=0.0)
        gradients = (torch.autograd.grad(loss, scores)[0] for loss in (drawn, exact))
        torch.testing.assert_close(*gradients, rtol=0.0, atol=1e-12)


def test_masks_weights_and_reductions():
    scores, labels = torch.randn(3, 4, dtype=torch.float64), torch.tensor([[0, 1, 2, 0], [1, 0, 0, 0], [2, 2, 0, 1]])
    where = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]], dtype=torch.bool)
    full = expected_utility_loss(scores, labels, where=where, method="exact", reduction="none")
    for row in range(3):
        kept = where[row]
        alone = expected_utility_loss(scores[row][kept], labels[row][kept], method="exact")
        assert torch.isclose(full[row], alone)
    mean = expected_utility_loss(scores, labels, where=where, method="exact", weights=[1.0, 2.0, 0.0])
    assert torch.isclose(mean, (full[0] + 2 * full[1]) / 3)


@pytest.mark.parametrize("method", ["pl-rank", "reinforce"])
def test_huge_scores_have_finite_gradients(method):
    scores = torch.tensor([1e30, 0.0, 0.0, -1e30], dtype=torch.float64, requires_grad=True)
    loss = expected_utility_loss(scores, torch.tensor([0, 1, 0, 2]), method=method, samples=7)
    assert bool(torch.isfinite(torch.autograd.grad(loss, scores)[0]).all())
    single = torch.zeros(2, requires_grad=True)
    assert (
        expected_utility_loss(single, torch.tensor([1.0, 1.0]), offsets=[0, 1, 2], method=method).dtype == single.dtype
    )


BAD = {
    "method": ({"method": "plrank"}, "method must be one of 'pl-rank', 'exact', 'reinforce', got 'plrank'"),
    "long list": ({"method": "exact"}, "lists of up to 12 items, got one of 13"),
    "samples": ({"samples": 0}, "samples must be a whole number of at least 1"),
    "discount": ({"discount": "log"}, 'discount must be "dcg", or a number for each place'),
    "negative": ({"discount": [1.0, -1.0]}, "discount must be finite and at least 0"),
    "table": ({"discount": [[1.0]]}, "discount must hold a number for each place"),
    "top": ({"top": 0}, "top must be a whole number of at least 1"),
    "labels": ({"gain": "linear", "labels": -torch.ones(13)}, "labels must have finite gains of at least 0"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_explained(case):
    options, message = BAD[case]
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        expected_utility_loss(torch.zeros(13), **{"labels": torch.ones(13)} | options)
