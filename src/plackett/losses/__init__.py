"""Every ranking loss of the field on one footing.

All losses have the signature

    name_loss(scores, labels, *, where=None, offsets=None, weights=None, reduction="mean", ...)

scores and labels: 1-D tensors hold lists one after the other (`offsets`; without it, one list), 2-D tensors a list in
each row; with `where` only the marked entries are items. weights: one per list. reduction: "mean" = sum(weight * loss)
/ sum(weight) over lists, "sum", or "none" for one value per list. Each docstring says how ties are treated.

    listwise     likelihoods of tiers and orders, cross-entropies
    pairwise     pairs of items, metric-driven losses
    sparse       few positives among many columns
    linear       the same, fused with a linear output layer
    sharded      the same, of an output layer whose columns several processes hold
    registry     losses by name, and as modules
    curvature    second derivatives, for boosted trees
    closed_form  values with gradients in closed form
    kernels      the same, compiled, for the CPU
    lists        the border and the reduction
"""

from plackett.losses.linear import linear_lower_bound_loss, linear_partition_loss
from plackett.losses.listwise import (
    attrank_loss,
    listmle_loss,
    listnet_loss,
    listpl_loss,
    lower_bound_loss,
    partition_loss,
    topk_loss,
)
from plackett.losses.pairwise import approx_ndcg_loss, lambdarank_loss, ranknet_loss, ranksvm_loss
from plackett.losses.registry import LOSSES, RankingLoss, get_loss
from plackett.losses.sparse import (
    sparse_logistic_loss,
    sparse_lower_bound_loss,
    sparse_partition_loss,
    sparse_ranknet_loss,
    sparse_ranksvm_loss,
)

__all__ = [
    "LOSSES",
    "RankingLoss",
    "approx_ndcg_loss",
    "attrank_loss",
    "get_loss",
    "lambdarank_loss",
    "linear_lower_bound_loss",
    "linear_partition_loss",
    "listmle_loss",
    "listnet_loss",
    "listpl_loss",
    "lower_bound_loss",
    "partition_loss",
    "ranknet_loss",
    "ranksvm_loss",
    "sparse_logistic_loss",
    "sparse_lower_bound_loss",
    "sparse_partition_loss",
    "sparse_ranknet_loss",
    "sparse_ranksvm_loss",
    "topk_loss",
]
