"""The likelihood of partial orders as a torch operation: the gradient is computed with the value."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from plackett.arguments import to_numpy
from plackett.likelihood.partial_orders.order_evaluation import Sampler, evaluate_orders
from plackett.likelihood.partial_orders.order_likelihood import (
    PartialOrderLikelihood,
    check_samples,
    likelihood_of,
    make_orders,
)
from plackett.likelihood.partial_orders.order_structure import PartialOrders
from plackett.likelihood.torch_op import numpy_of, outside_graphs, tol_for, with_gradient
from plackett.lists import check_offsets
from plackett.threads import at_most


def torch_log_likelihood(
    scores: Tensor,
    edges: Any,
    *,
    offsets: Any,
    method: str,
    samples: int | None,
    random_state: Any,
    tol: float | None,
    cycles: str,
) -> PartialOrderLikelihood:
    """`plackett.partial_order_log_likelihood` of a tensor of floats."""
    if scores.dim() != 1:
        raise ValueError(f"scores must be one-dimensional, lists one after the other, got {scores.dim()} dimensions")
    bounds = np.array([0, len(scores)]) if offsets is None else check_offsets(to_numpy(offsets), len(scores))
    sampler = Sampler(np.random.default_rng(random_state), check_samples(samples))
    orders = make_orders(edges, bounds, method=method, cycles=cycles)
    found: PartialOrderLikelihood = evaluate_tensor(scores, orders, sampler, tol)
    return found


@outside_graphs
def evaluate_tensor(
    scores: Tensor, orders: PartialOrders, sampler: Sampler, tol: float | None = None
) -> PartialOrderLikelihood:
    """Prepared graphs at flat scores; the value is differentiable once."""
    with at_most(torch.get_num_threads()):
        found = evaluate_orders(
            orders, numpy_of(scores.cpu(), np.float64), derivatives=True, tol=tol_for(scores, tol), sampler=sampler
        )
    value, gradient = (torch.from_numpy(x).to(scores.device, scores.dtype) for x in (found.value, found.gradient))
    return likelihood_of(found, orders, with_gradient(scores, value, gradient, orders.offsets))
