"""The heart: the exact likelihood of tiered rankings under Plackett-Luce.

partition       log-likelihood and derivatives of lists (NumPy), probability of one set before another
torch_op        the same for torch tensors, differentiable, on any device
sparse          few positives among many columns
approximations  what others do with ties: random order, Efron, Breslow
midpoint        the fixed rule of the paper, for reference
integral        one tier's integral: node placement, closed forms, derivatives (compiled)
cutoff          a tier that straddles the cut-off (compiled)
kernel          whole lists (compiled)
hessian         second derivatives along directions (compiled)
leaves          second derivatives along leaves of trees (compiled)
tiers           labels -> tiers
elementary      exponentials that vectorise
"""

from plackett.likelihood.approximations import approximate_derivatives
from plackett.likelihood.partition import (
    PartitionDerivatives,
    partition_derivatives,
    partition_log_likelihood,
    preference_log_probability,
)

__all__ = [
    "PartitionDerivatives",
    "approximate_derivatives",
    "partition_derivatives",
    "partition_log_likelihood",
    "preference_log_probability",
]
