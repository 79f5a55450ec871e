"""Weights of items, such as inverse propensities, in the losses that are sums over items."""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from plackett.losses import LOSSES, loss_names  # noqa: E402  # after the check for torch
from plackett.losses.loss_lists import make_loss_lists  # noqa: E402
from plackett.losses.registry import check_item_weighting  # noqa: E402

WEIGHTED = [name for name in loss_names() if LOSSES[name].takes_item_weights]
OFFSETS = np.array([0, 5, 5, 6, 10, 17])


def lists(dtype=torch.float64):
    rng = np.random.default_rng(0)
    scores = torch.tensor(rng.standard_normal(17), dtype=dtype, requires_grad=True)
    return scores, torch.tensor(rng.integers(0, 3, 17)), torch.tensor(rng.uniform(0.2, 4.0, 17))


def test_the_losses_with_a_consistent_form_take_weights():
    assert WEIGHTED == ["lower_bound", "attrank", "listnet"]


@pytest.mark.parametrize("name", WEIGHTED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weights_of_one_change_nothing(name, dtype):
    scores, labels, _ = lists(dtype)
    loss = LOSSES[name].function
    plain, weighted = (
        loss(scores, labels, offsets=OFFSETS, item_weights=item, reduction="none") for item in (None, torch.ones(17))
    )
    assert torch.allclose(plain, weighted, rtol=1e-5 if dtype == torch.float32 else 1e-12)
    curvature = LOSSES[name].form("curvature")
    flat = make_loss_lists(scores.detach(), labels, OFFSETS, None)
    assert np.allclose(curvature(flat), curvature(flat, item_weights=torch.ones(17)), rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("name", WEIGHTED)
def test_gradient_and_curvature_match_differences(name):
    scores, labels, weights = lists()
    loss, curvature = LOSSES[name].function, LOSSES[name].form("curvature")

    def total(w):
        return loss(w, labels, offsets=OFFSETS, item_weights=weights, reduction="sum")

    assert torch.autograd.gradcheck(total, [scores])
    found = curvature(make_loss_lists(scores.detach(), labels, OFFSETS, None), item_weights=weights)
    for i in range(17):
        step = 1e-5 * (torch.arange(17) == i)
        up, down = (torch.autograd.grad(total(w), w)[0][i] for w in (scores + step, scores - step))
        assert found[i] == pytest.approx(float(up - down) / 2e-5, abs=1e-7)


def test_inverse_propensities_are_consistent():
    """The mean over all patterns of examination is the gradient of full examination, for the lower bound exactly."""
    scores = torch.tensor([0.3, -0.7, 1.1, 0.2], dtype=torch.float64, requires_grad=True)
    relevant, examination = torch.tensor([1.0, 0.0, 1.0, 1.0]), torch.tensor([0.9, 0.5, 0.4, 0.2])
    loss = LOSSES["lower_bound"].function
    (full,) = torch.autograd.grad(loss(scores, relevant), scores)
    mean = torch.zeros_like(scores)
    for seen in itertools.product((0.0, 1.0), repeat=4):
        examined = torch.tensor(seen)
        p = torch.where(examined > 0, examination, 1.0 - examination).prod()
        value = loss(scores, relevant * examined, item_weights=1.0 / examination)
        mean += p * torch.autograd.grad(value, scores, allow_unused=True)[0]
    # With nothing clicked, or everything, there is no second tier and no term; all four are never clicked here.
    assert torch.allclose(mean, full, rtol=1e-6)


@pytest.mark.parametrize("name", sorted(set(loss_names()) - set(WEIGHTED)))
def test_other_losses_refuse_weights_and_say_why(name):
    with pytest.raises(ValueError, match=r"the exact likelihood of a tier is not, because .* lower_bound, attrank or"):
        check_item_weighting(name, [1.0])
    check_item_weighting(name, None)


@pytest.mark.parametrize("name", WEIGHTED)
def test_masks_and_bad_weights(name):
    scores, labels = torch.randn(2, 3, dtype=torch.float64), torch.tensor([[1, 0, 0], [0, 2, 1]])
    where, weights = torch.tensor([[True, True, False], [True, True, True]]), torch.rand(2, 3)
    loss = LOSSES[name].function
    masked = loss(scores, labels, where=where, item_weights=weights, reduction="none")
    alone = loss(scores[0, :2], labels[0, :2], item_weights=weights[0, :2])
    assert torch.isclose(masked[0], alone)
    for bad, message in ((weights[:1], "item_weights must hold one value per item"), (-weights, "at least 0")):
        with pytest.raises(ValueError, match=message):
            loss(scores, labels, item_weights=bad)
    with pytest.raises(ValueError, match="item_weights must be None with top above 1"):
        LOSSES["listnet"].function(scores, labels, item_weights=weights, top=2)
