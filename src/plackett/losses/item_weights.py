"""Breslow's likelihood of tiers with a weight for each item, such as the inverse propensity of a click.

    sum over tiers m but the last, over i in S_m, of v_i (w_i - d_m),   d_m = logsumexp of S_m and everything below

The terms are a sum over items, so weights have a meaning: in a list of clicks and non-clicks d is the logsumexp of the
whole list, whatever was clicked, and the expectation over examination of a click weighted by 1 / P(examined) is the
click under full examination. The exact likelihood has no such form: a tier is one product inside an integral.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from plackett.distribution.primitives import suffix_logsumexp
from plackett.likelihood.torch_op import distinct_labels
from plackett.losses.loss_lists import LossLists


def _ranked(lists: LossLists) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of (lists, longest) arrays sorted by descending label: scores, the order, the first place of each item's tier,
    and which items are above the last tier."""
    labels = lists.padded(distinct_labels(lists.labels), -torch.inf)
    ranked, order = labels.sort(dim=-1, descending=True, stable=True)
    scores = lists.padded(lists.scores, -torch.inf).gather(-1, order)
    starts = torch.ones_like(ranked, dtype=torch.bool)
    starts[:, 1:] = ranked[:, 1:] != ranked[:, :-1]
    place = torch.arange(ranked.shape[-1], device=ranked.device).expand(ranked.shape)
    first = torch.where(starts, place, 0).cummax(-1).values
    lowest = torch.where(ranked > -torch.inf, ranked, torch.inf).amin(-1, keepdim=True)
    return scores, order, first, ranked > lowest


def _denominators(scores: Tensor, first: Tensor) -> Tensor:
    """d of each item's tier; 0 for padding."""
    found = suffix_logsumexp(scores).gather(-1, first)
    return torch.where(scores > -torch.inf, found, 0.0)


def weighted_lower_bound(lists: LossLists, weights: Tensor) -> Tensor:
    """One value per list, differentiable."""
    if len(lists.scores) == 0:
        return lists.scores.new_zeros(lists.count)
    scores, order, first, counts = _ranked(lists)
    weight = torch.where(counts, lists.padded(weights, 0.0).gather(-1, order), 0.0)
    terms = torch.where(counts, scores, 0.0) - torch.where(counts, _denominators(scores, first), 0.0)
    value = (weight * terms).sum(-1)
    if not bool(value.isfinite().all()):
        lists.raise_not_finite()
    return value


def weighted_lower_bound_curvature(lists: LossLists, weights: Tensor) -> npt.NDArray[np.float64]:
    """-d2 / d w_j^2 = sum over tiers at or above j's of V_m p (1 - p), p = exp(w_j - d_m), V_m the tier's weight."""
    if len(lists.scores) == 0:
        return np.zeros(0)
    exact = LossLists(lists.scores.detach().double(), lists.labels, lists.offsets)
    scores, order, first, counts = _ranked(exact)
    weight = torch.where(counts, exact.padded(weights.double(), 0.0).gather(-1, order), 0.0)
    denominator = _denominators(scores, first)
    # The sum over choices up to the end of the item's tier, in logarithms: p is at most 1, the parts of it may be huge.
    place = torch.arange(scores.shape[-1]).expand(scores.shape)
    is_last = torch.ones_like(counts)
    is_last[:, :-1] = first[:, 1:] != first[:, :-1]
    last = torch.where(is_last, place, scores.shape[-1] - 1).flip(-1).cummin(-1).values.flip(-1)
    chosen, squares = (
        torch.exp(power * scores + (weight.log() - power * denominator).logcumsumexp(-1).gather(-1, last))
        for power in (1.0, 2.0)
    )
    curvature = torch.empty_like(scores).scatter(-1, order, torch.nan_to_num(chosen - squares).clamp(min=0.0))
    return np.ascontiguousarray(exact.unpadded(curvature).numpy(), np.float64)
