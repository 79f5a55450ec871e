"""Losses of complete lists: likelihoods of tiers and orders, and cross-entropies."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from plackett.arguments import check_finite, check_top
from plackett.likelihood import vectorised
from plackett.likelihood.approximations import efron_or_breslow
from plackett.likelihood.core import TierWeighting, check_weighting
from plackett.likelihood.torch_op import (
    distinct_labels,
    exact_labels,
    flat_log_likelihood,
    partition_log_likelihood,
    with_gradient,
)
from plackett.lists import reduce_losses
from plackett.losses.closed_form import softmax_cross_entropy
from plackett.losses.item_weights import weighted_lower_bound
from plackett.losses.loss_lists import LossLists, flat_item_weights, make_loss_lists, takes_lists

_LARGEST_TABLE = 1 << 25  # numbers in the largest array of the exact top-k of ListNet

Psi = float | Callable[[Tensor], Tensor]


@takes_lists
def partition_loss(
    scores: Tensor,
    labels: Any,
    *,
    where: Any = None,
    offsets: Any = None,
    weights: Any = None,
    reduction: str = "mean",
    top: int | None = None,
    tier_weights: str | TierWeighting | None = None,
    tol: float | None = None,
) -> Tensor:
    """PL-Partition: minus the exact log-likelihood of the tiers (Ma et al. 2021).

    Ties: items with equal labels form a tier, whose order is unknown; exact.

    Args:
        top: count only the first `top` places.
        tier_weights: multiplies the term of each tier: "gain" for the difference of 2^grade - 1 between a tier and the
            next, or a function of (labels of tiers, labels of the tiers below, items above), all 1-D tensors or arrays.
    """
    value = partition_log_likelihood(
        scores, labels, offsets=offsets, where=where, top=top, tol=tol, weighting=check_weighting(tier_weights)
    )
    return reduce_losses(-value, weights, reduction)


@takes_lists
def topk_loss(
    scores: Tensor,
    labels: Any,
    *,
    where: Any = None,
    offsets: Any = None,
    weights: Any = None,
    reduction: str = "mean",
    top: int | None = None,
) -> Tensor:
    """PL-TopK: minus the log-likelihood of the first `top` places, whose exact order is known (None: all places).

    Ties: refused among the first `top` places, and between them and the rest.
    """
    lists = make_loss_lists(scores, labels, offsets, where)
    cutoff = check_top(top)
    _refuse_ties(lists, cutoff)
    value = flat_log_likelihood(lists.scores, lists.labels, lists.offsets, top=cutoff)
    return reduce_losses(-value, weights, reduction)


def _refuse_ties(lists: LossLists, cutoff: int) -> None:
    y = lists.padded(distinct_labels(lists.labels), -math.inf)
    ranked = y.sort(-1, descending=True).values
    tied = (ranked[:, 1:] == ranked[:, :-1]) & (ranked[:, 1:] > -math.inf)
    tied &= torch.arange(tied.shape[1], device=tied.device) < cutoff
    if bool(tied.any()):
        b = int(torch.nonzero(tied)[0, 0])
        label = lists.labels[distinct_labels(lists.labels) == ranked[:, 1:][tied][0]][0].item()
        raise ValueError(
            f"labels must not tie within the top places for topk_loss, got {label} more than once in list {b}: "
            "use partition_loss, which takes ties exactly"
        )


@takes_lists
def lower_bound_loss(
    scores: Tensor,
    labels: Any,
    *,
    where: Any = None,
    offsets: Any = None,
    weights: Any = None,
    item_weights: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """PL-LB (Hino et al. 2010): minus the log of n_m! prod exp(w_i) / sum over S_m and below, for each tier S_m.

    Ties: each item of a tier is drawn as if the others of the tier were still there. Never below `partition_loss`, and
    equal to it when all tiers but the last hold one item.

    Args:
        item_weights: in the shape of the scores; each multiplies the term of its item, w_i - log of the sum. With
            inverse propensities of clicks the expectation over what was examined is the loss of full examination.
    """
    lists = make_loss_lists(scores, labels, offsets, where)
    item = flat_item_weights(lists, item_weights, where)
    value = _lower_bound(lists) if item is None else weighted_lower_bound(lists, item) + _log_factorials(lists)
    return reduce_losses(-value, weights, reduction)


def _log_factorials(lists: LossLists) -> Tensor:
    """sum over all tiers but the last of log n_m!, of each list, where there is no kernel."""
    if len(lists.labels) == 0:
        return lists.scores.new_zeros(lists.count)
    tiers = vectorised.sort_into_tiers(lists.labels, lists.list_of())
    terms = torch.where(tiers.is_last, 0.0, torch.lgamma(tiers.size.to(lists.scores.dtype) + 1.0))
    return lists.scores.new_zeros(lists.count).index_add(0, tiers.list, terms)


def _lower_bound(lists: LossLists) -> Tensor:
    """Breslow's log-likelihood of each list and log n_m! of its tiers."""
    if not lists.on_cpu:
        return _approximate(lists, "breslow", "unordered") + _log_factorials(lists)
    tiers = lists.tiers()
    value, gradient, _ = efron_or_breslow(lists.numpy_scores(), tiers, efron=False, bottom=False)
    value += tiers.log_factorials()
    return with_gradient(lists.scores, torch.from_numpy(value), torch.from_numpy(gradient), lists.offsets)


def _approximate(lists: LossLists, ties: str, bottom: str) -> Tensor:
    """Efron's or Breslow's log-likelihood of each list."""
    if lists.on_cpu:
        value, gradient, _ = efron_or_breslow(
            lists.numpy_scores(), lists.tiers(), efron=ties == "efron", bottom=bottom == "ordered"
        )
        return with_gradient(lists.scores, torch.from_numpy(value), torch.from_numpy(gradient), lists.offsets)
    return vectorised.approximate_log_likelihood(
        lists.scores, lists.labels, lists.list_of(), lists.count, efron=ties == "efron", bottom=bottom == "ordered"
    )


@takes_lists
def attrank_loss(
    scores: Tensor,
    labels: Any,
    *,
    where: Any = None,
    offsets: Any = None,
    weights: Any = None,
    item_weights: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """AttRank (Ai et al. 2018): cross-entropy of softmax(scores) and the attention of the labels.

    The attention is exp(label) over the items with positive labels, normalised, and 0 for the others; a list without a
    positive label contributes 0. Ties: equal labels get equal attention.

    Args:
        item_weights: in the shape of the scores; each multiplies the term of its item.
    """
    lists = make_loss_lists(scores, labels, offsets, where)
    item = flat_item_weights(lists, item_weights, where)
    losses = softmax_cross_entropy(lists, lists.labels, only_positive=True, item_weights=item)
    return reduce_losses(losses, weights, reduction)


@takes_lists
def listnet_loss(
    scores: Tensor,
    labels: Any,
    *,
    where: Any = None,
    offsets: Any = None,
    weights: Any = None,
    item_weights: Any = None,
    reduction: str = "mean",
    top: int = 1,
    samples: int | None = None,
    psi: Psi = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """ListNet (Cao et al. 2007): cross-entropy of the distributions of the first `top` places under labels and scores.

    Ties: labels are scores of a Plackett-Luce model; equal labels are equally likely to come first.

    Args:
        top: 1 is the softmax cross-entropy. More places are summed over all ordered choices, with
            longest^top numbers per list, unless `samples` is given.
        samples: estimate the sum without bias from this many choices drawn from the labels (Luo et al. 2015).
        psi: the labels are multiplied by this number, or mapped by this function.
        item_weights: in the shape of the scores; each multiplies the term of its item. Only with top=1 and without
            samples: a choice of several items is not a sum over them.
        generator: for samples.
    """
    lists = make_loss_lists(scores, labels, offsets, where)
    item = flat_item_weights(lists, item_weights, where)
    if item is not None and (check_top(top) != 1 or samples is not None):
        raise ValueError(f"item_weights must be None with top above 1 or samples, got them with top={top!r}")
    if check_top(top) == 1 and samples is None:
        mapped = lists.labels if psi == 1.0 else mapped_labels(lists, psi)
        losses = softmax_cross_entropy(lists, mapped, item_weights=item)
    elif samples is None:
        losses = _exact_listnet(lists, mapped_labels(lists, psi), top)
    else:
        losses = _sampled_orders(lists, psi, samples, top, generator)
    return reduce_losses(losses, weights, reduction)


def _exact_listnet(lists: LossLists, labels: Tensor, top: int) -> Tensor:
    longest = int(max(lists.offsets[1:] - lists.offsets[:-1], default=0))
    check_finite("scores", lists.scores)
    check_finite("labels", labels)
    if lists.count * longest**top > _LARGEST_TABLE:
        raise ValueError(
            f"top must be small enough for lists x longest^top to be at most {_LARGEST_TABLE}, got {lists.count} x "
            f"{longest}^{top}: draw the choices with samples="
        )
    return _expected_surprise(*padded_for_choices(lists, labels), top)


def padded_for_choices(lists: LossLists, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, labels and which of them are items, (lists, longest)."""
    w = lists.padded(lists.scores, 0.0)
    return w, lists.padded(labels.to(w.dtype), 0.0), lists.padded(torch.ones_like(lists.scores), 0.0) > 0


def _expected_surprise(w: Tensor, y: Tensor, left: Tensor, places: int) -> Tensor:
    """E[-log q(choices)] over choices drawn one after the other by softmax(y) from the items left, q = softmax(w).

    V(T, places) = sum_{i in T} p_i(T) (-log q_i(T) + V(T - i, places - 1)); (..., items) -> (...).
    """
    p = torch.where(left, torch.exp(masked_log_softmax(y, left)), 0.0)
    cost = torch.where(left, -masked_log_softmax(w, left), 0.0)
    if places > 1:
        apart = ~torch.eye(w.shape[-1], dtype=torch.bool, device=w.device)
        after = _expected_surprise(w.unsqueeze(-2), y.unsqueeze(-2), left.unsqueeze(-2) & apart, places - 1)
        cost = cost + after
    return (p * cost).sum(-1)


def masked_log_softmax(x: Tensor, mask: Tensor) -> Tensor:
    """Log-softmax over the marked entries; the others are finite without a gradient. Zeros if none is marked."""
    x = x.expand(torch.broadcast_shapes(x.shape, mask.shape))
    nothing = ~mask.any(-1, keepdim=True)
    safe = torch.where(mask | nothing, x, -math.inf)
    return torch.where(mask, x - torch.logsumexp(safe, -1, keepdim=True), 0.0)


def mapped_labels(lists: LossLists, psi: Psi) -> Tensor:
    labels = exact_labels(lists.labels)
    mapped = psi(labels) if callable(psi) else labels * psi
    if mapped.shape != labels.shape:
        raise ValueError(f"psi must keep the shape of the labels, {tuple(labels.shape)}, got {tuple(mapped.shape)}")
    return mapped


def _uniform(like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Uniform on (0, 1)."""
    u = torch.rand(like.shape, dtype=like.dtype, device=like.device, generator=generator)
    return u.clamp_(min=torch.finfo(like.dtype).tiny)


def _check_samples(samples: Any) -> int:
    if not isinstance(samples, int) or samples < 1:
        raise ValueError(f"samples must be a whole number of at least 1, got {samples!r}")
    return samples


def _sampled_orders(
    lists: LossLists, psi: Psi, samples: int, top: int | None, generator: torch.Generator | None
) -> Tensor:
    """The mean over orders drawn from the Plackett-Luce distribution of the labels of minus their log-likelihood."""
    total, cutoff = lists.scores.new_zeros(lists.count), check_top(top)
    for keys in drawn_orders(lists, psi, samples, generator):
        total = total - flat_log_likelihood(lists.scores, keys, lists.offsets, top=cutoff)
    return total / samples


def drawn_orders(lists: LossLists, psi: Psi, samples: int, generator: torch.Generator | None) -> Iterator[Tensor]:
    """Labels without ties whose order is drawn from the Plackett-Luce distribution of the labels."""
    mapped = mapped_labels(lists, psi)
    for _ in range(_check_samples(samples)):
        yield mapped - torch.log(-torch.log(_uniform(mapped, generator)))


@takes_lists
def listpl_loss(
    scores: Tensor,
    labels: Any,
    *,
    where: Any = None,
    offsets: Any = None,
    weights: Any = None,
    reduction: str = "mean",
    psi: Psi = 1.0,
    samples: int = 1,
    top: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """ListPL: minus the log-likelihood of an order that each call draws from the distribution of the labels.

    Its mean over calls is the full cross-entropy of the two Plackett-Luce distributions.
    Ties: equal labels are equally likely to come first, and lower labels can come before higher ones.

    Args:
        psi: the labels are multiplied by this number, or mapped by this function, before orders are drawn.
        samples: number of orders to average over.
    """
    lists = make_loss_lists(scores, labels, offsets, where)
    return reduce_losses(_sampled_orders(lists, psi, samples, top, generator), weights, reduction)


BOTTOM = {"random": "ordered", "stable": "ordered", "efron": "unordered", "breslow": "unordered"}


@takes_lists
def listmle_loss(
    scores: Tensor,
    labels: Any,
    *,
    where: Any = None,
    offsets: Any = None,
    weights: Any = None,
    reduction: str = "mean",
    ties: str = "random",
    bottom: str | None = None,
    top: int | None = None,
    position_weights: Any = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """ListMLE (Xia et al. 2008): minus the log-likelihood of one order that sorts the labels.

    Args:
        ties: "random" breaks ties at random in every call, "stable" by the order of the rows, "efron" and "breslow"
            approximate the sum over all orders, "exact" is `partition_loss`.
        bottom: whether the last tier is "ordered" too, or "unordered". None: ordered when ties are broken, else
            unordered.
        top: count only the first `top` places (not with efron and breslow).
        position_weights: weight of each place from the first on, 1-D, for as many places as the longest list has
            (position-aware ListMLE; with ties="random" or "stable").
        generator: for ties="random".
    """
    if ties not in (*BOTTOM, "exact"):
        raise ValueError(f"ties must be one of {', '.join(BOTTOM)}, exact, got {ties!r}")
    if bottom not in (None, "ordered", "unordered") or (ties == "exact" and bottom == "ordered"):
        raise ValueError(
            f'bottom must be "ordered", "unordered" or None (and not "ordered" with exact), got {bottom!r}'
        )
    if position_weights is not None and ties not in ("random", "stable"):
        raise ValueError(f'position_weights need ties="random" or "stable", got ties={ties!r}')
    if top is not None and ties in ("efron", "breslow"):
        raise ValueError(f"top must be None with ties={ties!r}, got {top!r}")
    lists = make_loss_lists(scores, labels, offsets, where)
    if ties == "exact":
        value = flat_log_likelihood(lists.scores, lists.labels, lists.offsets, top=check_top(top))
    elif ties in ("efron", "breslow"):
        value = _approximate(lists, ties, bottom or BOTTOM[ties])
    else:
        keys = broken_ties(lists, ties, bottom or BOTTOM[ties], generator)
        weighting = None if position_weights is None else position_weighting(lists, position_weights)
        value = flat_log_likelihood(lists.scores, keys, lists.offsets, top=check_top(top), weighting=weighting)
    return reduce_losses(-value, weights, reduction)


def broken_ties(lists: LossLists, ties: str, bottom: str, generator: torch.Generator | None) -> Tensor:
    """Labels without ties: the rank of each label among all, plus a fraction that decides within a tie."""
    if len(lists.labels) == 0:
        return lists.labels
    inverse: Tensor = torch.unique(lists.labels, return_inverse=True)[1]
    rank = inverse.to(torch.float32 if lists.scores.device.type == "mps" else torch.float64)
    if ties == "random":
        fraction = _uniform(rank, generator)
    else:
        fraction = 1.0 - torch.arange(1, len(rank) + 1, device=rank.device, dtype=rank.dtype) / (len(rank) + 1)
    if bottom == "unordered":
        list_of = lists.list_of()
        lowest = rank.new_full((lists.count,), math.inf).scatter_reduce(0, list_of, rank, "amin")
        fraction = torch.where(rank == lowest[list_of], 0.0, fraction)
    return rank + fraction


def position_weighting(lists: LossLists, position_weights: Any) -> TierWeighting:
    table = torch.as_tensor(position_weights).double()
    longest = int(max(lists.offsets[1:] - lists.offsets[:-1], default=0))
    if table.dim() != 1 or len(table) < longest:
        raise ValueError(
            f"position_weights must hold a weight for each of the {longest} places of the longest list, got shape "
            f"{tuple(table.shape)}"
        )
    return lambda _upper, _lower, places: table[torch.as_tensor(places).cpu()]
