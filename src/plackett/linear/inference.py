"""Statistical inference about coefficients at the optimum of a likelihood.

Every direction is measured by the information about it at zero scores. Directions without any are not determined by the
data (features that are constant in every list, or combinations of others) and are left alone. In units of the others
the problem is well conditioned, and solvers are fast.

`polish` takes Newton steps from where a solver stopped: they lead to the optimum with all digits, or show that there is
none. Where a direction orders all lists correctly, the likelihood increases along it without bound (separation):
gradient and curvature both fall like exp(-distance), the solver stops somewhere by its tolerance, but the Newton step,
their ratio, does not get shorter. Or the information has vanished altogether, though there was some at zero scores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from plackett.linear.features import Bools, Floats, largest_spread
from plackett.linear.solvers import LinearProblem
from plackett.linear.tier_likelihood import TieredLikelihood

_UNDETERMINED = 1e-10  # share of the largest information at zero; features have been scaled, or are the user's choice
_VANISHED = 1e-9  # share of its information at zero that is left in a direction: scores are some 20 apart
_MOST_STEPS = 20
_LONGEST_STEP = 2.0  # in scores
_DONE, _SHORT = 1e-9, 0.1  # changes of scores: none, and too small for a direction of separation
_INVOLVED = 1e-3  # a feature takes part in a direction if its share of the largest component exceeds this


@dataclass(frozen=True)
class Coordinates:
    """`basis`: directions in which the mean information of a list at zero scores is 1, as columns.

    `undetermined`: which features take part in directions about which there is none.
    """

    basis: Floats
    undetermined: Bools


def natural_coordinates(problem: LinearProblem) -> Coordinates | None:
    """None for losses that are not likelihoods, and for an L1 penalty."""
    if not isinstance(problem.objective, TieredLikelihood) or problem.l1 > 0.0:
        return None
    if not problem.objective.is_convex:
        problem = replace(problem, objective=problem.objective.without_cutoff())
    information, axes = np.linalg.eigh(problem.information(np.zeros(problem.features)))
    known = information > _UNDETERMINED * max(float(information[-1]), 0.0)
    basis = axes[:, known] * np.sqrt(problem.total / information[known])
    return Coordinates(basis, np.abs(axes[:, ~known]).max(axis=1, initial=0.0) > _INVOLVED)


@dataclass(frozen=True)
class PolishedFit:
    """Coefficients at the optimum and their covariance, and each feature's part in directions of separation.

    The covariance is infinite on the diagonal for features that are undetermined or separated, NaN off it.
    """

    coefficients: Floats
    covariance: Floats
    separated: Floats  # relative to the largest; zero throughout if there is an optimum


def polish(problem: LinearProblem, b: Floats, coordinates: Coordinates) -> PolishedFit:
    """Newton steps from b to the optimum, and the inverse of the information there."""
    change = 0.0
    for _ in range(_MOST_STEPS):
        shares, directions = _information(problem, b, coordinates.basis)
        vanished = not problem.ridge.all() and shares.min(initial=1.0) < _VANISHED
        if vanished:
            break
        step = -directions @ ((directions.T @ problem.smooth(b)[1]) / shares)
        change = largest_spread(problem.X @ step, problem.offsets)
        if change < _DONE:
            break
        b = b + step * min(1.0, _LONGEST_STEP / change)
    separated = np.zeros(len(b))
    if vanished or change > _SHORT:
        gone = shares <= max(_VANISHED, float(shares[0]))
        parts = np.abs(directions[:, gone])
        separated = (parts / parts.max(axis=0)).max(axis=1)
        shares = np.where(gone, np.inf, shares)  # the rest is known as well as without these directions
    unknown = coordinates.undetermined | (separated > _INVOLVED)
    return PolishedFit(b, _inverse(shares, directions, problem.total, unknown), separated)


def covariance_of(problem: LinearProblem, b: Floats, coordinates: Coordinates) -> Floats | None:
    """The inverse of the information at b; None if it is not positive, so that b is not a strict maximum."""
    shares, directions = _information(problem, b, coordinates.basis)
    if shares.min(initial=1.0) < _VANISHED:
        return None
    return _inverse(shares, directions, problem.total, coordinates.undetermined)


def _information(problem: LinearProblem, b: Floats, basis: Floats) -> tuple[Floats, Floats]:
    """The mean information of a list about uncorrelated directions, and these directions as columns."""
    shares, directions = np.linalg.eigh(basis.T @ problem.information(b) @ basis / problem.total)
    return shares, basis @ directions


def _inverse(shares: Floats, directions: Floats, total: float, unknown: Bools) -> Floats:
    covariance = (directions / (shares * total)) @ directions.T
    covariance[unknown, :] = np.nan
    covariance[:, unknown] = np.nan
    covariance[unknown, unknown] = np.inf
    return np.asarray(covariance)
