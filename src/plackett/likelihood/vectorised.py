"""The likelihood in torch operations, for devices that the compiled kernel does not reach.

The same mathematics as `integral` and `list_kernels`, vectorised over all tiers of all lists and looped over nodes, so
that memory stays linear in the number of items. All tiers use the same number of nodes, each over its own interval; the
number is doubled until the values no longer change. A tier that straddles the cut-off goes through the compiled kernel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from plackett.likelihood.constants import DEEP_ITEMS, DEEP_LOG_Z, LARGEST_ANGLE, LARGEST_LOG_ODDS
from plackett.likelihood.core import TierWeighting, check_tier_weights, evaluate_tiers, make_tiers

_MOST_DOUBLINGS = 8


def work_type(device: torch.device) -> torch.dtype:
    """The most precise floating-point type of a device."""
    return torch.float32 if device.type == "mps" else torch.float64


@dataclass(frozen=True)
class SortedTiers:
    """Items sorted by list and descending label; tiers are numbered consecutively over all lists."""

    order: Tensor  # (items,) position of each sorted item in the input
    tier: Tensor  # (items,) tier of each sorted item
    size: Tensor  # (tiers,) items in it
    before: Tensor  # (tiers,) items of the same list above it
    list: Tensor  # (tiers,)
    is_last: Tensor  # (tiers,) the bottom tier of its list
    label: Tensor  # (tiers,)


def sort_into_tiers(labels: Tensor, list_of: Tensor) -> SortedTiers:
    """Tiers of flat labels; `list_of` is the list of each item."""
    order = torch.argsort(labels, descending=True, stable=True)
    order = order[torch.argsort(list_of[order], stable=True)]
    sorted_list, sorted_label = list_of[order], labels[order]
    new = torch.ones_like(order, dtype=torch.bool)
    new[1:] = (sorted_list[1:] != sorted_list[:-1]) | (sorted_label[1:] != sorted_label[:-1])
    tier = torch.cumsum(new, 0) - 1
    begin = torch.nonzero(new)[:, 0]
    size = torch.diff(begin, append=begin.new_tensor([len(order)]))
    of_list = sorted_list[begin]
    is_last = torch.ones_like(of_list, dtype=torch.bool)
    is_last[:-1] = of_list[1:] != of_list[:-1]
    is_first = torch.ones_like(is_last)
    is_first[1:] = is_last[:-1]
    list_begin = torch.cummax(torch.where(is_first, begin, torch.zeros_like(begin)), 0).values
    return SortedTiers(order, tier, size, begin - list_begin, of_list, is_last, sorted_label[begin])


def _log_sum_per_tier(w: Tensor, tiers: SortedTiers) -> Tensor:
    count = len(tiers.size)
    peak = w.new_full((count,), -math.inf).scatter_reduce(0, tiers.tier, w.detach(), "amax")
    return peak + torch.log(w.new_zeros(count).index_add(0, tiers.tier, torch.exp(w - peak[tiers.tier])))


def _running_log_sum(x: Tensor, of_list: Tensor, *, reverse: bool) -> Tensor:
    """logsumexp of all tiers up to and including each within its list (from the end if `reverse`), by doubling steps"""
    if reverse:
        return _running_log_sum(x.flip(0), of_list.flip(0), reverse=False).flip(0)
    step = 1
    while step < len(x):
        same = of_list[step:] == of_list[:-step]
        if not bool(same.any()):
            break
        shifted = torch.where(same, x[:-step], -math.inf)
        x = torch.cat([x[:step], torch.logaddexp(x[step:], shifted)])
        step *= 2
    return x


@dataclass(frozen=True)
class TierIntegrand:
    """exp(f(y)) of many tiers side by side, f(y) = y - e^y + sum_i log(1 - exp(-z_i)), z_i = exp(log_odds_i + y)."""

    log_odds: Tensor  # (items,) small enough for z to be finite near the mode
    tier: Tensor  # (items,)

    def log(self, y: Tensor) -> Tensor:
        """f at one y per tier."""
        z = torch.exp(self.log_odds + y[self.tier])
        return (y - torch.exp(y)).index_add(0, self.tier, torch.log(-torch.expm1(-z)))

    def phi(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """phi_i = z_i / expm1(z_i) and z_i of each item."""
        z = torch.exp(self.log_odds + y[self.tier])
        return z * torch.exp(-z) / -torch.expm1(-z), z

    def slope_and_curvature(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """f' = 1 - t + sum phi_i and -f'' = t + sum phi_i (z_i + phi_i - 1), t = e^y."""
        t = torch.exp(y)
        phi, z = self.phi(y)
        slope = (1.0 - t).index_add(0, self.tier, phi)
        return slope, t.index_add(0, self.tier, phi * (z + phi - 1.0))

    def of_tiers(self, kept: Tensor) -> TierIntegrand:
        """The tiers marked in `kept`, renumbered."""
        items = kept[self.tier]
        return TierIntegrand(self.log_odds[items], (torch.cumsum(kept, 0) - 1)[self.tier[items]])

    def repeat(self, tiers: int, times: int) -> TierIntegrand:
        """`times` copies of all `tiers` tiers, one after the other."""
        shift = tiers * torch.arange(times, device=self.tier.device)
        return TierIntegrand(self.log_odds.repeat(times), (self.tier + shift[:, None]).flatten())


def _newton_mode(integrand: TierIntegrand, size: Tensor) -> tuple[Tensor, Tensor]:
    """The maximum of f for each tier and the curvature there."""
    low = torch.zeros_like(size)
    high = torch.log1p(size)
    y = 0.5 * high
    curvature = torch.ones_like(y)
    for _ in range(30):
        slope, curvature = integrand.slope_and_curvature(y)
        if bool((slope.abs() < 0.1 * curvature.sqrt()).all()):
            break
        low = torch.where(slope > 0, y, low)
        high = torch.where(slope > 0, high, y)
        step = y + slope / curvature
        y = torch.where((step > low) & (step < high), step, 0.5 * (low + high))
    return y, curvature


def _ends(integrand: TierIntegrand, mode: Tensor, depth: float) -> tuple[Tensor, Tensor]:
    """Where f has dropped by `depth` on both sides of the mode.

    f is concave: from a point far enough to the left Newton's method climbs to the left end without passing it.
    """
    t = torch.exp(mode)
    right = torch.sqrt(2.0 * depth / t).clamp(max=math.log1p(depth) + 2.0)
    floor = integrand.log(mode) - depth
    left = mode - depth / t - 1.0
    for _ in range(12):
        slope, _ = integrand.slope_and_curvature(left)
        step = (floor - integrand.log(left)) / slope
        left = torch.minimum(left + step.clamp(min=0.0), mode)
        if bool((step < 0.1).all()):
            break
    return left, mode + right


def _quadrature(log_odds: Tensor, tier: Tensor, size: Tensor, tol: float) -> tuple[Tensor, Tensor]:
    """log P of each tier and d log P / d l of each item.

    Items whose z would underflow are cut at a log odds below which their factor is z itself. Tiers far above the rest
    are moved down by their `level`, and log P and its derivatives are taken from 1 - P, see `integral`.
    """
    lowest = torch.full_like(size, math.inf).scatter_reduce(0, tier, log_odds, "amin")
    far_above = lowest > torch.log(4.0 + 4.0 * torch.log(size))
    level = torch.where(far_above, lowest, 0.0)
    moved = log_odds - level[tier]
    floor = DEEP_LOG_Z - torch.log(size + DEEP_ITEMS)
    shallow = moved.clamp(max=LARGEST_LOG_ODDS).maximum(floor[tier])
    outside = torch.zeros_like(size).index_add(0, tier, (moved - floor[tier]).clamp(max=0.0))
    depth = -math.log(tol)
    integrand = TierIntegrand(shallow, tier)
    mode, curvature = _newton_mode(integrand, size)
    angle = torch.sqrt(2.0 * depth / curvature).clamp(max=LARGEST_ANGLE)
    spacing = 2.0 * math.pi * angle / (depth + 0.5 * curvature * angle**2)
    left, right = _ends(integrand, mode, depth + 3.0)
    intervals = max(8, int(torch.ceil((right - left) / spacing).max()))

    f = torch.stack([integrand.log(left + (right - left) * (k / intervals)) for k in range(intervals + 1)])
    value = torch.logsumexp(f, 0) + torch.log((right - left) / intervals)
    for _ in range(_MOST_DOUBLINGS):
        between = [(k + 0.5) / intervals for k in range(intervals)]
        g = torch.stack([integrand.log(left + (right - left) * x) for x in between])
        interleaved = torch.stack([f[:-1], g], 1).flatten(0, 1)
        f = torch.cat([interleaved, f[-1:]])
        intervals *= 2
        before, value = value, torch.logsumexp(f, 0) + torch.log((right - left) / intervals)
        # The error falls at least quadratically when the spacing is halved.
        if bool(((value - before).abs() <= tol**0.75).all()):
            break
    log_weight = torch.log_softmax(f, 0)  # (nodes, tiers)
    epsilon = torch.exp(-level)
    gradient = torch.zeros_like(log_odds)
    complement = torch.zeros_like(size)
    for k in range(intervals + 1):
        y = left + (right - left) * (k / intervals)
        s = torch.exp(y)
        t = epsilon * s
        log_scale = torch.where(far_above, value - level + (s - t), 0.0)
        weight = torch.exp(log_weight[k] + log_scale)
        pull = weight[tier] * integrand.phi(y)[0]
        gradient += pull
        growth = torch.where(t > 0.0, torch.expm1(t) / t, 1.0)
        complement.index_add_(0, tier, pull * growth[tier])
    complement = torch.where(far_above, complement, 0.0)
    return torch.where(far_above, torch.log1p(-complement), value + outside), gradient / (1.0 - complement)[tier]


def _straddling(log_odds: Tensor, tier: Tensor, places: Tensor, tol: float) -> tuple[Tensor, Tensor]:
    """Tiers of which only some places count: by the compiled kernel, each as a list with one item (score 0) below."""
    count = len(places)
    sizes = torch.bincount(tier, minlength=count).cpu().numpy()
    offsets = np.concatenate(([0], np.cumsum(sizes + 1)))
    scores = np.zeros(offsets[-1])
    is_item = np.ones(len(scores), np.bool_)
    is_item[offsets[1:] - 1] = False
    scores[is_item] = log_odds.cpu().numpy()
    all_tiers = make_tiers(is_item.astype(np.float64), offsets)
    value, gradient = np.empty(count), np.empty(len(scores))
    cutoffs = places.cpu().numpy()
    for cutoff in np.unique(cutoffs):
        values, gradients, _ = evaluate_tiers(scores, all_tiers, top=int(cutoff), tol=tol, derivatives=True)
        chosen = cutoffs == cutoff
        value[chosen] = values[chosen]
        of_item = np.repeat(chosen, sizes + 1)
        gradient[of_item] = gradients[of_item]
    return log_odds.new_tensor(value), log_odds.new_tensor(gradient[is_item])


def _probabilities(log_odds: Tensor, tier: Tensor, size: Tensor, places: Tensor, tol: float) -> tuple[Tensor, Tensor]:
    """log P of each tier and d log P / d l of each of its items, each kind of tier by its own method."""
    value = log_odds.new_zeros(len(size))
    gradient = torch.zeros_like(log_odds)
    single = size == 1
    whole = (size == places) & ~single
    for kind, chosen in (("single", single), ("whole", whole), ("straddling", ~single & ~whole)):
        if not bool(chosen.any()):
            continue
        items = chosen[tier]
        number = torch.cumsum(chosen, 0) - 1
        x, of_tier = log_odds[items], number[tier[items]]
        if kind == "single":
            value[chosen] = torch.nn.functional.logsigmoid(x)
            gradient[items] = torch.sigmoid(-x)
        elif kind == "whole":
            value[chosen], gradient[items] = _quadrature(x, of_tier, size[chosen].to(x.dtype), tol)
        else:
            value[chosen], gradient[items] = _straddling(x, of_tier, places[chosen], tol)
    return value, gradient


def log_likelihood_and_gradient(
    scores: Tensor, labels: Tensor, offsets: Tensor, *, top: int, tol: float, weighting: TierWeighting | None = None
) -> tuple[Tensor, Tensor]:
    """Value of each list and gradient of each item, on the scores' device, in double precision where it has it."""
    lists = len(offsets) - 1
    if len(scores) == 0:
        return scores.new_zeros(lists), torch.zeros_like(scores)
    list_of = torch.repeat_interleave(torch.arange(lists, device=scores.device), torch.diff(offsets))
    tiers = sort_into_tiers(labels, list_of)
    w = scores.detach().to(work_type(scores.device))
    # Only differences matter, and logarithms of sums would be lost next to large scores.
    w = (w - w.new_full((lists,), -math.inf).scatter_reduce(0, list_of, w, "amax")[list_of])[tiers.order]
    with_below = _running_log_sum(_log_sum_per_tier(w, tiers), tiers.list, reverse=True)
    rest = torch.full_like(with_below, math.inf)
    rest[:-1] = torch.where(tiers.is_last[:-1], math.inf, with_below[1:])  # w_R of each tier
    active = ~tiers.is_last & (tiers.before < top)

    total = w.new_zeros(lists)
    gradient = torch.zeros_like(w)
    if bool(active.any()):
        items = active[tiers.tier]
        number = torch.cumsum(active, 0) - 1
        places = torch.minimum(tiers.size, top - tiers.before)[active]
        value, own = _probabilities(
            w[items] - rest[tiers.tier[items]], number[tiers.tier[items]], tiers.size[active], places, tol
        )
        if weighting is not None:
            above_rest = torch.nonzero(active)[:, 0]
            weight = weighting(tiers.label[above_rest], tiers.label[above_rest + 1], tiers.before[above_rest])
            weight = torch.as_tensor(weight, device=value.device, dtype=value.dtype)
            check_tier_weights(torch.isfinite(weight), tiers.label[above_rest])
            value, own = value * weight, own * weight[number[tiers.tier[items]]]
        total.index_add_(0, tiers.list[active], value)
        gradient[items] = own
        pull = w.new_zeros(len(tiers.size)).index_add(0, tiers.tier, gradient)
        above = _running_log_sum(torch.log(pull) - rest, tiers.list, reverse=False)  # log sum of G exp(-w_R)
        inherited = torch.full_like(above, -math.inf)
        inherited[1:] = torch.where(tiers.is_last[:-1], -math.inf, above[:-1])
        # An item's share of a tier's pull is at most the whole; rounding of huge scores must not exceed it.
        most = torch.log(w.new_zeros(lists).index_add(0, tiers.list, pull))[tiers.list]
        gradient -= torch.exp(torch.minimum(w + inherited[tiers.tier], most[tiers.tier]))
    restored = torch.empty_like(gradient)
    restored[tiers.order] = gradient
    return total.to(scores.dtype), restored.to(scores.dtype)


def approximate_log_likelihood(
    scores: Tensor, labels: Tensor, list_of: Tensor, lists: int, *, efron: bool, bottom: bool
) -> Tensor:
    """Efron's or Breslow's log-likelihood (see `approximations`), one value per list, with autograd's own backward."""
    if len(scores) == 0:
        return scores.new_zeros(lists)
    tiers = sort_into_tiers(labels, list_of)
    w = scores[tiers.order]
    own = _log_sum_per_tier(w, tiers)
    everything = _running_log_sum(own, tiers.list, reverse=True)  # log D, over the tier and all below
    terms = w - everything[tiers.tier]
    if efron:
        begin = torch.cumsum(tiers.size, 0) - tiers.size
        before = torch.arange(len(w), device=w.device) - begin[tiers.tier]
        taken = before.to(w.dtype) / tiers.size[tiers.tier]  # k / n
        share = torch.exp(own - everything)[tiers.tier]  # D_S / D
        terms = terms - torch.log1p(-taken * share)
    if not bottom:
        terms = torch.where(tiers.is_last[tiers.tier], 0.0, terms)
    return w.new_zeros(lists).index_add(0, tiers.list[tiers.tier], terms)
