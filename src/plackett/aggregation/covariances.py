"""The covariance of estimated parameters: of the model, robust, by clusters.

With B the information of the data and s the gradient of an observation,

    model      B^-1
    sandwich   B^-1 (sum of s s') B^-1                         right even if the model of ties is wrong (White 1982)
    cluster    B^-1 (sum over clusters of s s') B^-1 G/(G-1)   right if observations of a cluster depend on each other

and "bootstrap" (`bootstrap`) fits the model again to reweighted observations. Ridge and prior are not data: they
affect the estimate, but neither B nor s.
"""

from __future__ import annotations

import warnings

from plackett.aggregation.evidence import Evidence
from plackett.aggregation.problem import WorthProblem
from plackett.objective import Floats

COVARIANCES = ("model", "sandwich", "cluster", "bootstrap")


def choose_covariance(covariance: str | None, clusters: int) -> str:
    """The kind of covariance: by default clustered if there are clusters. Raises an error if there are too few."""
    if covariance is None:
        covariance = "cluster" if clusters else "model"
    if covariance == "cluster" and clusters < 2:
        given = "one cluster" if clusters else "none"
        raise ValueError(
            f"covariance='cluster' needs at least two clusters, got {given}: name the column of voters or prompts with "
            "load_comparisons(..., cluster=), or choose covariance='sandwich'"
        )
    return covariance


def parameter_covariance(
    kind: str, evidence: Evidence, data: WorthProblem, penalised: WorthProblem, parameters: Floats
) -> Floats:
    """The covariance of all parameters of `data`, the problem without ridge and prior."""
    bread = _bread(data, penalised, parameters)
    natural = data.natural(parameters)
    if kind == "model":
        middle = evidence.variance_of_gradient(natural)
        if middle is None:
            return bread
    elif kind == "sandwich":
        middle = evidence.squares(natural)
    else:
        groups = evidence.clusters
        middle = evidence.clustered_squares(natural) * (groups / (groups - 1))
    return bread @ data.transformed(middle) @ bread


def _bread(data: WorthProblem, penalised: WorthProblem, parameters: Floats) -> Floats:
    try:
        return data.covariance(parameters)
    except ValueError:
        if not (penalised.ridge or penalised.feature_ridge) and penalised.size == data.size:
            raise
        warnings.warn(
            "the data alone do not determine all scores: their standard errors depend on the ridge or prior as well",
            stacklevel=5,
        )
        full = penalised.covariance(_with_ghost(penalised, data, parameters))
        kept = [*range(data.head), *range(penalised.head, penalised.size)]
        return full[kept][:, kept]


def _with_ghost(penalised: WorthProblem, data: WorthProblem, parameters: Floats) -> Floats:
    """The parameters with a score for the artificial item of a prior, if there is one: the mean of the others."""
    import numpy as np

    if penalised.size == data.size:
        return parameters
    head = parameters[: data.head]
    return np.concatenate([head, [head.mean()], parameters[data.head :]])
