"""Losses whose value and gradient are computed together: by compiled kernels on the CPU, in torch operations elsewhere.

The torch versions work on padded arrays (lists, longest) and loop over blocks of items, so that no table of all pairs
is ever held.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plackett.likelihood.torch_op import distinct_labels, exact_labels, with_gradient
from plackett.losses import loss_kernels, pair_sums
from plackett.losses.loss_lists import LossLists
from plackett.threads import at_most, run_over_ranges

_LARGEST_BLOCK = 1 << 22  # pairs in memory at once
NO_TRUNCATION = np.iinfo(np.int64).max


def _run(lists: LossLists, cost: Any, call: Callable[..., int], *arguments: Any) -> Tensor:
    """Call a kernel on all lists; `arguments` are those between the range and the results."""
    value, gradient = np.zeros(lists.count), np.empty(len(lists.scores), arguments[0].dtype)
    with at_most(torch.get_num_threads()):
        run_over_ranges(lambda first, last: call(first, last, *arguments, value, gradient), cost)
    if not np.isfinite(value).all():
        lists.raise_not_finite()
    return with_gradient(lists.scores, torch.from_numpy(value), torch.from_numpy(gradient), lists.offsets)


def pairs_cost(lists: LossLists, truncation: int = NO_TRUNCATION) -> Any:
    sizes = np.diff(lists.offsets)
    return np.concatenate(([0], np.cumsum(sizes * np.minimum(sizes, truncation))))


def _pair_sums_cost(lists: LossLists) -> Any:
    sizes = np.diff(lists.offsets)
    return np.concatenate(([0], np.cumsum(np.minimum(5 * sizes * sizes, 100 * sizes))))


def softmax_cross_entropy(
    lists: LossLists, labels: Tensor, *, only_positive: bool = False, item_weights: Tensor | None = None
) -> Tensor:
    """Cross-entropy of softmax(scores) and softmax(labels), over all items of a list or those with positive labels.

    Weights multiply the terms of items. A list without an item to put weight on contributes 0. torch's own operations
    are fastest on lists of equal length; the kernel avoids padding for all others.
    """
    labels = exact_labels(labels)
    has_kernel = lists.on_cpu and lists.scores.dtype in (torch.float32, torch.float64) and item_weights is None
    if has_kernel and not lists.have_one_length:
        return _run(
            lists, lists.offsets * 5, loss_kernels.softmax_lists,
            lists.scores.detach().numpy(), labels.numpy(), only_positive, lists.offsets,
        )  # fmt: skip
    value = _softmax_cross_entropy_in_torch(lists, labels, only_positive, item_weights)
    if not math.isfinite(value.detach().sum().item()):
        lists.raise_not_finite()
    return value


def softmax_target(lists: LossLists, labels: Tensor, only_positive: bool, item_weights: Tensor | None) -> Tensor:
    """softmax(labels) over the items of a list or those with positive labels, times weights, (lists, longest)."""
    target = labels.to(lists.scores.dtype)
    if only_positive:
        target = torch.where(labels > 0, target, -torch.inf)
    goal = torch.softmax(lists.padded(target, -torch.inf), -1)
    if only_positive or not lists.have_one_length:
        goal = torch.nan_to_num(goal)  # lists without any weight
    return goal if item_weights is None else goal * lists.padded(item_weights, 0.0)


def _softmax_cross_entropy_in_torch(
    lists: LossLists, labels: Tensor, only_positive: bool, item_weights: Tensor | None = None
) -> Tensor:
    goal = softmax_target(lists, labels, only_positive, item_weights)
    log_p = torch.log_softmax(lists.padded(lists.scores, -torch.inf), -1)
    if not lists.have_one_length:
        log_p = torch.where(goal != 0, log_p, 0.0)
    return -(goal * log_p).sum(-1)


def pair_loss(lists: LossLists, kind: int) -> Tensor:
    """The logistic or hinge loss of all pairs with different labels, summed for each list."""
    if lists.on_cpu:
        tiers = lists.tiers()
        return _run(
            lists, _pair_sums_cost(lists), loss_kernels.pair_lists,
            lists.numpy_scores(), tiers.order, tiers.starts, tiers.list_tiers, kind, pair_sums.tables(),
        )  # fmt: skip
    return _pair_loss_in_torch(lists, kind)


def _pair_loss_in_torch(lists: LossLists, kind: int) -> Tensor:
    w, y = _padded_scores_and_labels(lists)
    value, gradient = w.new_zeros(len(w)), torch.zeros_like(w)
    for block in _blocks(w):
        x = w[:, None, :] - w[:, block, None]  # (lists, block, longest): how far j is above i
        preferred = (y[:, block, None] > y[:, None, :]) & (y[:, None, :] > -torch.inf)
        if kind == pair_sums.LOGISTIC:
            loss, slope = torch.nn.functional.softplus(x), torch.sigmoid(x)
        else:
            loss, slope = (1.0 + x).clamp(min=0.0), (x > -1.0).to(x.dtype)
        loss, slope = torch.where(preferred, loss, 0.0), torch.where(preferred, slope, 0.0)
        value += loss.sum((1, 2))
        gradient += slope.sum(1)
        gradient[:, block] -= slope.sum(2)
    return with_gradient(lists.scores, value, lists.unpadded(gradient), lists.offsets)


def lambda_loss(lists: LossLists, gains: Tensor, truncation: int) -> Tensor:
    """The logistic loss of all pairs, weighted by the change of NDCG when they swap places."""
    if lists.on_cpu:
        tiers = lists.tiers()
        return _run(
            lists, pairs_cost(lists, truncation), loss_kernels.lambda_lists, lists.numpy_scores(),
            gains.double().numpy(), tiers.order, tiers.starts, tiers.list_tiers, truncation,
        )  # fmt: skip
    return _lambda_loss_in_torch(lists, gains, truncation)


def _lambda_loss_in_torch(lists: LossLists, gains: Tensor, truncation: int) -> Tensor:
    w, y = _padded_scores_and_labels(lists)
    gain = lists.padded(gains.to(w.dtype), 0.0)
    present = y > -torch.inf
    by_score = torch.argsort(torch.where(present, w, -torch.inf), dim=-1, descending=True, stable=True)
    place = torch.argsort(by_score, dim=-1).to(w.dtype)
    discount = 1.0 / torch.log2(2.0 + place)
    counts = place < truncation
    ideal = _ideal_dcg_of_rows(gain, truncation)
    scale = torch.where(ideal > 0.0, 1.0 / ideal.clamp(min=torch.finfo(w.dtype).tiny), 0.0)
    value, gradient = w.new_zeros(len(w)), torch.zeros_like(w)
    for block in _blocks(w):
        x = w[:, None, :] - w[:, block, None]
        change = ((gain[:, block, None] - gain[:, None, :]) * (discount[:, block, None] - discount[:, None, :])).abs()
        used = (y[:, block, None] > y[:, None, :]) & present[:, None, :] & (counts[:, block, None] | counts[:, None, :])
        change = torch.where(used, change, 0.0)
        slope = change * torch.sigmoid(x)
        value += (change * torch.nn.functional.softplus(x)).sum((1, 2))
        gradient += slope.sum(1)
        gradient[:, block] -= slope.sum(2)
    return with_gradient(lists.scores, value * scale, lists.unpadded(gradient * scale[:, None]), lists.offsets)


def approx_ndcg(lists: LossLists, gains: Tensor, truncation: int, temperature: float) -> Tensor:
    """1 - NDCG with places made smooth by a sigmoid of that temperature."""
    if lists.on_cpu:
        tiers = lists.tiers()
        return _run(
            lists, pairs_cost(lists) * 4, loss_kernels.approx_ndcg_lists, lists.numpy_scores(), gains.double().numpy(),
            tiers.order, tiers.starts, tiers.list_tiers, truncation, 1.0 / temperature,
        )  # fmt: skip
    return _approx_ndcg_in_torch(lists, gains, truncation, temperature)


def _approx_ndcg_in_torch(lists: LossLists, gains: Tensor, truncation: int, temperature: float) -> Tensor:
    w, y = _padded_scores_and_labels(lists)
    gain = lists.padded(gains.to(w.dtype), 0.0)
    present = y > -torch.inf
    place = torch.full_like(w, 0.5)
    for block in _blocks(w):
        place[:, block] += torch.where(
            present[:, None, :], torch.sigmoid((w[:, None, :] - w[:, block, None]) / temperature), 0.0
        ).sum(2)
    log_place = torch.log2(1.0 + place)
    truncated = present.sum(-1, keepdim=True) > truncation
    kept = torch.where(truncated, torch.sigmoid(min(truncation, w.shape[-1]) + 0.5 - place), 1.0)
    kept_slope = torch.where(truncated, -kept * (1.0 - kept), 0.0)
    ideal = _ideal_dcg_of_rows(gain, truncation)
    lowest = torch.where(present, y, torch.inf).amin(-1)
    usable = (ideal > 0.0) & (y.amax(-1) > lowest)
    scale = torch.where(usable, 1.0 / ideal.clamp(min=torch.finfo(w.dtype).tiny), 0.0)
    value = torch.where(usable, 1.0 - (gain * kept / log_place).sum(-1) * scale, 0.0)
    decay = kept / (log_place.square() * (1.0 + place) * np.log(2.0))
    slope = gain * (decay - kept_slope / log_place) * scale[:, None]
    gradient = torch.zeros_like(w)
    for block in _blocks(w):
        s = torch.sigmoid((w[:, None, :] - w[:, block, None]) / temperature)
        steepness = torch.where(present[:, None, :], s * (1.0 - s), 0.0) / temperature
        gradient[:, block] = ((slope[:, None, :] - slope[:, block, None]) * steepness).sum(2)
    return with_gradient(lists.scores, value, lists.unpadded(gradient), lists.offsets)


def _padded_scores_and_labels(lists: LossLists) -> tuple[Tensor, Tensor]:
    """Padding has score 0 and label -inf; the label identifies it as the lower item of a pair."""
    scores = lists.scores.detach()
    return lists.padded(scores, 0.0), lists.padded(distinct_labels(lists.labels), -torch.inf)


def _blocks(padded: Tensor) -> Iterator[slice]:
    rows, longest = padded.shape
    width = max(1, _LARGEST_BLOCK // max(1, rows * longest))
    for first in range(0, longest, width):
        yield slice(first, min(first + width, longest))


def _ideal_dcg_of_rows(gain: Tensor, truncation: int) -> Tensor:
    best = gain.sort(-1, descending=True).values
    place = torch.arange(gain.shape[-1], device=gain.device, dtype=gain.dtype)
    return torch.where(place < truncation, best / torch.log2(2.0 + place), 0.0).sum(-1)
