"""Worths of items from rankings: what `plackett.RankAggregator` is made of.

ballots       any form of rankings -> Ballots -> checked, sorted, merged `Rankings`
kernels       likelihood, gradient and information of rankings, compiled
model         the objective over scores or coefficients, with a prior
solvers       Newton, L-BFGS, MM
evidence      ballots as the model sees them, in memory or on a cluster
connectivity  whether a maximum exists, and for which items not
inference     quasi-variances, ranks, tests
edges         files of pairwise comparisons
summary, figure   worths with intervals as a table and as a figure
"""

from plackett.aggregation.edges import load_edges
from plackett.errors import NoMaximumError

__all__ = ["NoMaximumError", "load_edges"]
