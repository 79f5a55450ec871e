"""Losses: every ranking loss of the literature with one signature, and a registry of all of them.

Start with `registry` (every loss by name, in all its forms), then `listwise`. May import `data`, `distribution`,
`likelihood` and the foundation; never the model families above. The registry needs no torch, all other modules do.

    name_loss(scores, labels, *, where=None, offsets=None, weights=None, reduction="mean", ...)

scores and labels: 1-D tensors hold one list after the other (`offsets`; without it, one list), 2-D tensors one list per
row; with `where` only the marked entries are items. weights: one per list. reduction: "mean" = sum(weight * loss) /
sum(weight) over lists, "sum", or "none" for one value per list. Each docstring states how ties are treated.

    registry         every loss by name, in all its forms, and losses of your own
    listwise         likelihoods of tiers and orders, cross-entropies
    pairwise         pairs of items, metric-driven losses; pair_sums has their sums
    policy           what a ranking drawn from the model earns (PL-Rank)
    item_weights     likelihoods of tiers with a weight for each item
    sparse_columns   few positives among many columns, and the range of columns that a process holds
    fused_layer      the same, fused with a linear output layer
    sharded_layer    the same, for an output layer whose columns several processes hold
    module           a loss as a torch module
    curvature        second derivatives, for boosted trees
    partial_order    graphs of preferences, which take no labels
    closed_form      values with gradients in closed form; loss_kernels has the compiled version for the CPU
    loss_objective   a loss as an objective of trees and linear models
    loss_lists       checked input
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from plackett.losses.registry import LOSSES, Loss, get_loss, loss_names, own_loss

if TYPE_CHECKING:
    from plackett.losses.fused_layer import linear_lower_bound_loss as linear_lower_bound_loss
    from plackett.losses.fused_layer import linear_partition_loss as linear_partition_loss
    from plackett.losses.listwise import attrank_loss as attrank_loss
    from plackett.losses.listwise import listmle_loss as listmle_loss
    from plackett.losses.listwise import listnet_loss as listnet_loss
    from plackett.losses.listwise import listpl_loss as listpl_loss
    from plackett.losses.listwise import lower_bound_loss as lower_bound_loss
    from plackett.losses.listwise import partition_loss as partition_loss
    from plackett.losses.listwise import topk_loss as topk_loss
    from plackett.losses.module import RankingLoss as RankingLoss
    from plackett.losses.pairwise import approx_ndcg_loss as approx_ndcg_loss
    from plackett.losses.pairwise import lambdarank_loss as lambdarank_loss
    from plackett.losses.pairwise import ranknet_loss as ranknet_loss
    from plackett.losses.pairwise import ranksvm_loss as ranksvm_loss
    from plackett.losses.partial_order import GraphChains as GraphChains
    from plackett.losses.partial_order import partial_order_loss as partial_order_loss
    from plackett.losses.policy import expected_utility_loss as expected_utility_loss
    from plackett.losses.sparse_columns import sparse_logistic_loss as sparse_logistic_loss
    from plackett.losses.sparse_columns import sparse_lower_bound_loss as sparse_lower_bound_loss
    from plackett.losses.sparse_columns import sparse_partition_loss as sparse_partition_loss
    from plackett.losses.sparse_columns import sparse_ranknet_loss as sparse_ranknet_loss
    from plackett.losses.sparse_columns import sparse_ranksvm_loss as sparse_ranksvm_loss

_HOME = {
    "GraphChains": "partial_order",
    "RankingLoss": "module",
    "approx_ndcg_loss": "pairwise",
    "attrank_loss": "listwise",
    "expected_utility_loss": "policy",
    "lambdarank_loss": "pairwise",
    "linear_lower_bound_loss": "fused_layer",
    "linear_partition_loss": "fused_layer",
    "listmle_loss": "listwise",
    "listnet_loss": "listwise",
    "listpl_loss": "listwise",
    "lower_bound_loss": "listwise",
    "partial_order_loss": "partial_order",
    "partition_loss": "listwise",
    "ranknet_loss": "pairwise",
    "ranksvm_loss": "pairwise",
    "sparse_logistic_loss": "sparse_columns",
    "sparse_lower_bound_loss": "sparse_columns",
    "sparse_partition_loss": "sparse_columns",
    "sparse_ranknet_loss": "sparse_columns",
    "sparse_ranksvm_loss": "sparse_columns",
    "topk_loss": "listwise",
}

__all__ = [
    "LOSSES",
    "GraphChains",
    "Loss",
    "RankingLoss",
    "approx_ndcg_loss",
    "attrank_loss",
    "expected_utility_loss",
    "get_loss",
    "lambdarank_loss",
    "linear_lower_bound_loss",
    "linear_partition_loss",
    "listmle_loss",
    "listnet_loss",
    "listpl_loss",
    "loss_names",
    "lower_bound_loss",
    "own_loss",
    "partial_order_loss",
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


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"plackett.losses.{_HOME[name]}"), name)
    raise AttributeError(f"module 'plackett.losses' has no attribute {name!r}")
