"""The likelihood of any partial order: graphs of known preferences.

Start reading in `order_likelihood`, then `order_structure`, which takes graphs apart, and `order_evaluation`, which
puts the parts together. May import the rest of `likelihood` and what that may import.

structure    structure_kernels (components, forests, series, redundant edges), tree_links (which blocks are trees),
             series_steps (which are series-parallel)
exact        forest_kernels (closed form), tree_kernels and series_kernels (nested integrals), down_set_kernels (dynamic
             programming)
sampled      sampling_kernels: importance sampling for values, Gibbs sampling for derivatives
repeated     order_chains (chains that go on from one evaluation to the next), order_objective (for solvers)
torch        torch_value, the only module that imports torch
"""

from plackett.likelihood.partial_orders.order_likelihood import (
    PartialOrderDerivatives,
    PartialOrderLikelihood,
    partial_order_derivatives,
    partial_order_log_likelihood,
)

__all__ = [
    "PartialOrderDerivatives",
    "PartialOrderLikelihood",
    "partial_order_derivatives",
    "partial_order_log_likelihood",
]
