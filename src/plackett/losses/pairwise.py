"""Losses over pairs of items with different labels, and metric-driven ones. Ties in the labels form no pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from plackett.arguments import check_top
from plackett.likelihood.torch_op import exact_labels
from plackett.lists import reduce_losses
from plackett.losses import pair_sums
from plackett.losses.closed_form import approx_ndcg, lambda_loss, pair_loss
from plackett.losses.loss_lists import LossLists, make_loss_lists, takes_lists

Gain = str | Callable[[Tensor], Tensor]


@takes_lists
def ranknet_loss(
    scores: Tensor,
    labels: Any,
    *,
    where: Any = None,
    offsets: Any = None,
    weights: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """RankNet (Burges et al. 2005): sum over pairs, i preferred to j, of log(1 + exp(w_j - w_i)).

    Ties: pairs with equal labels do not count. On the CPU the sum is computed without looking at the pairs, exactly
    (`plackett.losses.pair_sums`): time grows with items * log(tiers). On other devices it grows with the pairs.
    """
    return reduce_losses(
        pair_loss(make_loss_lists(scores, labels, offsets, where), pair_sums.LOGISTIC), weights, reduction
    )


@takes_lists
def ranksvm_loss(
    scores: Tensor,
    labels: Any,
    *,
    where: Any = None,
    offsets: Any = None,
    weights: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """RankSVM (Joachims 2002): sum over pairs, i preferred to j, of max(0, 1 - (w_i - w_j)).

    Ties: pairs with equal labels do not count. Time as for `ranknet_loss`.
    """
    return reduce_losses(
        pair_loss(make_loss_lists(scores, labels, offsets, where), pair_sums.HINGE), weights, reduction
    )


@takes_lists
def lambdarank_loss(
    scores: Tensor,
    labels: Any,
    *,
    where: Any = None,
    offsets: Any = None,
    weights: Any = None,
    reduction: str = "mean",
    truncation: int | None = None,
    gain: Gain = "exp2",
) -> Tensor:
    """LambdaRank (Burges et al. 2006): RankNet with each pair weighted by |change of NDCG when its items swap places|.

    The weights are held constant in the gradient. Ties: pairs with equal labels do not count; items with equal scores
    are placed in the order of the tiers and rows.

    Args:
        truncation: k; only pairs with an item among the k highest scores count, and the ideal DCG is that of k places.
            The discounts of a pair are those of its places in the whole list, as in LightGBM's lambdarank: the weight
            is |gain_i - gain_j| |discount_i - discount_j| / ideal DCG@k, discount = 1 / log2(1 + place). That is not
            the change of NDCG@k, in which places beyond k have a discount of 0.
        gain: "exp2" (2^label - 1), "linear" (the label), or a function of the labels.
    """
    lists = make_loss_lists(scores, labels, offsets, where)
    losses = lambda_loss(lists, label_gains(lists, gain), check_top(truncation))
    return reduce_losses(losses, weights, reduction)


@takes_lists
def approx_ndcg_loss(
    scores: Tensor,
    labels: Any,
    *,
    where: Any = None,
    offsets: Any = None,
    weights: Any = None,
    reduction: str = "mean",
    truncation: int | None = None,
    gain: Gain = "exp2",
    temperature: float = 0.1,
) -> Tensor:
    """ApproxNDCG (Qin et al. 2010): 1 - NDCG with smooth places, 1 + sum_j sigmoid((w_j - w_i) / temperature).

    Ties: equal labels have equal gains, so their order does not matter. A list without a preference contributes 0.

    Args:
        truncation: NDCG@truncation; the cut is made smooth by a sigmoid of the place.
        gain: as in `lambdarank_loss`.
    """
    if not isinstance(temperature, int | float) or not temperature > 0.0:
        raise ValueError(f"temperature must be above 0, got {temperature!r}")
    lists = make_loss_lists(scores, labels, offsets, where)
    losses = approx_ndcg(lists, label_gains(lists, gain), check_top(truncation), float(temperature))
    return reduce_losses(losses, weights, reduction)


def label_gains(lists: LossLists, gain: Gain) -> Tensor:
    labels = exact_labels(lists.labels)
    if callable(gain):
        gains = gain(labels)
    elif gain == "exp2":
        gains = torch.exp2(labels) - 1.0
    elif gain == "linear":
        gains = labels
    else:
        raise ValueError(f'gain must be "exp2", "linear" or a function, got {gain!r}')
    if not bool(((gains >= 0) & torch.isfinite(gains)).all()):
        raise ValueError(f"labels must have finite gains of at least 0, got a gain of {gains.min().item()}")
    return gains
