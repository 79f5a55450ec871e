"""The exact likelihood of tiered rankings under Plackett-Luce.

May import the foundation (arguments, lists, threads, compilation, graphs, objective, errors) and nothing else of
Plackett. torch is imported only by torch_op, vectorised and partial_orders.torch_value. Start reading in `partition`,
then `integral`.

border       partition (NumPy, dispatch to torch); torch_op (autograd: lists, and few positives among many columns)
core         make_tiers: labels -> tiers; evaluate_tiers: value and derivatives of tiers
one tier     integral: node placement, closed forms, derivatives; cutoff: a tier that straddles the cut-off
lists        list_kernels, hessian (along directions), leaves (along leaves of trees), vectorised (torch operations)
shared       kernel_parts, constants, elementary (exponentials that vectorise), sparse_kernels
other orders partial_orders: graphs of preferences that form no tiers
other models approximations (random order, Efron, Breslow), midpoint (the paper's fixed rule, for reference)
"""

from plackett.likelihood.approximations import approximate_derivatives
from plackett.likelihood.partial_orders import (
    PartialOrderDerivatives,
    PartialOrderLikelihood,
    partial_order_derivatives,
    partial_order_log_likelihood,
)
from plackett.likelihood.partition import (
    PartitionDerivatives,
    partition_derivatives,
    partition_log_likelihood,
    preference_log_probability,
)

__all__ = [
    "PartialOrderDerivatives",
    "PartialOrderLikelihood",
    "PartitionDerivatives",
    "approximate_derivatives",
    "partial_order_derivatives",
    "partial_order_log_likelihood",
    "partition_derivatives",
    "partition_log_likelihood",
    "preference_log_probability",
]
