"""How linear scores w^T x are fitted. The estimators are `plackett.LinearRanker` and `plackett.CoordinateAscentRanker`.

Start with `solvers`: a `LinearProblem` is an objective of scores, features and penalties, which L-BFGS or a trust
region minimises. `tier_likelihood` has the likelihoods of tiers, `features` centres and scales columns, `inference` and
`summary` give standard errors, `line_search` maximises a metric coordinate by coordinate. May import: `losses`,
`data`, `metrics`, `likelihood` and the foundation; never torch.
"""
