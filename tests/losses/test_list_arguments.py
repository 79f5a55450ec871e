"""Lists of losses and metrics by any name: where or mask, offsets, qid or group. Padding must be marked."""

from functools import partial

import numpy as np
import pytest
import torch

from plackett import losses, metrics, partition_derivatives, partition_log_likelihood
from plackett.likelihood import approximate_derivatives
from plackett.losses import LOSSES, loss_names
from plackett.metrics.registry import METRICS

NAMES = [name for name in loss_names() if LOSSES[name].takes_ties]
SIZES = [3, 1, 4]


@pytest.fixture
def items():
    generator = torch.Generator().manual_seed(0)
    labels = torch.tensor([2, 0, 1, 1, 0, 2, 1, 1])
    return torch.randn(8, generator=generator, dtype=torch.float64), labels


def value(name, *arguments, **options):
    if LOSSES[name].random:
        options["generator"] = torch.Generator().manual_seed(1)
    return losses.get_loss(name)(*arguments, **options)


@pytest.mark.parametrize("name", NAMES)
def test_lists_of_losses_by_any_name(name, items):
    scores, labels = items
    expected = value(name, scores, labels, offsets=[0, 3, 4, 8])
    qid = ["a"] * 3 + ["b"] + ["c"] * 4
    for given in ({"group": SIZES}, {"group": np.array(SIZES)}, {"qid": qid}, {"qid": np.repeat([5, 9, 7], SIZES)}):
        torch.testing.assert_close(value(name, scores, labels, **given), expected)
    marks = torch.ones(2, 4, dtype=torch.bool)
    marks[0, 3] = False
    padded = torch.cat([scores, scores[:0]]).reshape(2, 4), labels.reshape(2, 4)
    torch.testing.assert_close(value(name, *padded, mask=marks), value(name, *padded, where=marks))
    if not LOSSES[name].random:  # the draws go by position
        order = torch.tensor([0, 4, 1, 3, 5, 2, 6, 7])
        mixed = value(name, scores[order], labels[order], qid=[qid[i] for i in order], reduction="sum")
        torch.testing.assert_close(mixed, value(name, scores, labels, offsets=[0, 3, 4, 8], reduction="sum"))


@pytest.mark.parametrize("name", METRICS)
def test_mask_is_where_for_metrics(name):
    rng = np.random.default_rng(0)
    scores, labels, marks = rng.normal(size=(3, 6)), rng.integers(0, 3, (3, 6)), rng.random((3, 6)) < 0.8
    info = METRICS[name]
    found = info.function(scores, labels, mask=marks, **info.options)
    assert found == info.function(scores, labels, where=marks, **info.options)
    with pytest.raises(ValueError, match="mask is another name for where"):
        info.function(scores, labels, mask=marks, where=marks, **info.options)


@pytest.mark.parametrize(
    "function", [partition_log_likelihood, partition_derivatives, partial(approximate_derivatives, ties="efron")]
)
def test_mask_is_where_for_likelihoods(function):
    rng = np.random.default_rng(1)
    scores, labels, marks = rng.normal(size=(3, 6)), rng.integers(0, 3, (3, 6)), rng.random((3, 6)) < 0.8
    np.testing.assert_equal(function(scores, labels, mask=marks), function(scores, labels, where=marks))
    with pytest.raises(ValueError, match="mask is another name for where"):
        function(scores, labels, mask=marks, where=marks)


@pytest.mark.parametrize(
    "loss", ["partition", lambda scores, labels, offsets: (scores * labels).cumsum(0)[offsets[1:] - 1]]
)
def test_lists_of_modules_and_own_losses_by_any_name(loss, items):
    scores, labels = items
    module = losses.RankingLoss(loss, reduction="none")
    expected = module(scores, labels, offsets=[0, 4, 8])
    marks = torch.ones(2, 4, dtype=torch.bool)
    assert torch.equal(module(scores, labels, group=[4, 4]), expected)
    assert torch.equal(module(scores, labels, qid=[3] * 4 + [1] * 4), expected)
    assert torch.equal(module(scores.reshape(2, 4), labels.reshape(2, 4), mask=marks), expected)


def test_padding_must_be_marked(items):
    scores, labels = items[0].reshape(2, 4), items[1].reshape(2, 4).clone()
    labels[0, 3] = -100
    marks = labels != -100
    for function, arguments in (
        (losses.partition_loss, (scores, labels)),
        (losses.ranknet_loss, (scores, labels)),
        (metrics.ndcg, (scores.numpy(), labels.numpy())),
        (partition_log_likelihood, (scores.numpy(), labels.numpy())),
    ):
        with pytest.raises(ValueError, match=r"labels must not hold -100, .* pass where=labels != -100"):
            function(*arguments)
    lower = labels.clone()
    lower[1, 1] = -200
    with pytest.raises(ValueError, match="labels must not hold -100"):
        losses.partition_loss(scores, lower)
    lower[0, 3] = -101
    assert torch.isfinite(losses.partition_loss(scores, lower))
    assert torch.isfinite(losses.partition_loss(scores, labels, where=marks))
    assert torch.isfinite(losses.partition_loss(scores.reshape(-1), labels.reshape(-1)))  # one list: a grade like any


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"qid": [1, 1], "group": [2]}, "at most one of offsets, qid and group"),
        ({"group": [3]}, "group must add up"),
        ({"qid": [1]}, "qid must hold one value for each of the 2 rows"),
        ({"qid": [1, 1], "where": [True, True]}, "qid belongs to one-dimensional scores without where"),
        ({"mask": [True, True], "where": [True, True]}, "mask is another name for where"),
    ],
)
def test_conflicting_lists_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        losses.partition_loss(torch.zeros(2), torch.tensor([1, 0]), **options)
