"""The likelihood of graphs of preferences as a loss for networks."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from plackett.arguments import check_float_tensor, check_kind, check_positive
from plackett.data import PreferenceGraphs
from plackett.likelihood.partial_orders.order_chains import OrderChains
from plackett.likelihood.partial_orders.torch_value import evaluate_tensor
from plackett.lists import reduce_losses


class GraphChains:
    """Graphs of preferences prepared for training: taken apart once, with Gibbs chains that continue between epochs.

    Args:
        graphs: the graphs of all training lists.
        samples: orders drawn for each graph that cannot be evaluated exactly, at each evaluation.
        random_state: seed of the draws.
        method, cycles: as in `plackett.partial_order_log_likelihood`.
    """

    def __init__(
        self,
        graphs: PreferenceGraphs,
        *,
        samples: int = 64,
        random_state: int | np.random.Generator | None = None,
        method: str = "auto",
        cycles: str = "error",
    ) -> None:
        check_kind("graphs", graphs, PreferenceGraphs)
        samples = check_positive("samples", samples)
        options: dict[str, Any] = {"samples": samples, "random_state": random_state, "method": method, "cycles": cycles}
        self._chains = OrderChains(graphs.edges, graphs.offsets, **options)
        self.weights = graphs.weights

    def __len__(self) -> int:
        return len(self.weights)

    def log_likelihood(self, scores: Tensor, lists: Any = None) -> Tensor:
        """log P of the given lists (None: all), one after the other in `scores`; differentiable."""
        check_float_tensor("scores", scores)
        orders, sampler = self._chains.start(lists)
        if tuple(scores.shape) != (orders.items,):
            raise ValueError(f"scores must hold one number for each of {orders.items} items, got {tuple(scores.shape)}")
        value: Tensor = evaluate_tensor(scores, orders, sampler).value
        self._chains.keep(lists, sampler)
        return value


def partial_order_loss(
    scores: Tensor,
    graphs: PreferenceGraphs | GraphChains,
    *,
    lists: Any = None,
    weights: Any = None,
    reduction: str = "mean",
    samples: int = 64,
    random_state: int | np.random.Generator | None = None,
) -> Tensor:
    """-log P(graph): the loss of lists of which some pairs of items are known to be in order.

    Exact where the structure of a graph allows it. Otherwise the value is an estimate by importance sampling and the
    gradient one by Gibbs sampling (Fisher's identity: d log P / d w_i = 1 - exp(w_i) E[T_i | graph]), without bias but
    for the transient of the chains. Pass `GraphChains` in training: their chains continue where they were.

    Args:
        scores: of the items of all lists, one list after the other; 1-D.
        graphs: `plackett.data.PreferenceGraphs`, or `GraphChains` of them.
        lists: the numbers of the lists that `scores` holds, in this order; None: all.
        weights: one per list; None: those of `graphs`.
        reduction: "mean", "sum" or "none".
        samples, random_state: of graphs that cannot be evaluated exactly; ignored for `GraphChains`.

    >>> import torch
    >>> graphs = PreferenceGraphs.from_rows([(0, 1), (0, 2), (3, 4)], offsets=[0, 3, 5])
    >>> partial_order_loss(torch.zeros(5), graphs, reduction="none")
    tensor([1.0986, 0.6931])
    """
    check_kind("graphs", graphs, PreferenceGraphs, GraphChains)
    if isinstance(graphs, PreferenceGraphs):
        graphs = GraphChains(graphs, samples=samples, random_state=random_state)
    if weights is None:
        weights = graphs.weights if lists is None else graphs.weights[np.asarray(lists)]
    return reduce_losses(-graphs.log_likelihood(scores, lists), weights, reduction)
