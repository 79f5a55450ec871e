"""Newton, L-BFGS and MM for `model.Objective`.

MM (Hunter 2004, here for tiers as well) is the EM algorithm whose latent data are the arrival times of items, which are
exponential with the worths as rates: given S > R, item i of S has arrived by time T_i, and by M = max T none of R has.
The expectations follow from the gradient, worth_i E[T_i] = 1 - g_i and worth_R E[M] = G, so that the update is

    worth_i <- worth_i wins_i / (wins_i - gradient_i)

with wins_i the ballots on which i is above others. For strict rankings this is Hunter's. Every step raises the
likelihood. wins_i - gradient_i is also the curvature of what MM maximises, an upper bound of the information's
diagonal, by which L-BFGS is scaled.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_solve
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from plackett.aggregation.kernels import GRADIENT, INFORMATION
from plackett.aggregation.model import LARGEST_SPREAD, Objective
from plackett.blas import calm_blas

Floats = npt.NDArray[np.float64]

SOLVERS = ("auto", "newton", "lbfgs", "mm")
# Evaluations that each takes, roughly, and nanoseconds of a third of a multiplication in a Cholesky factor.
_NEWTON_STEPS, _LBFGS_STEPS, _FACTOR = 6, 40, 0.1
_MOST_HALVINGS = 40
# A Newton step this small, in squared standard errors, squares what is left: after it there is nothing to gain.
_LAST_STEP = 1e-9


class Solution(NamedTuple):
    """`residual` is the largest gradient in units of about a standard error; `steps` are iterations.

    Where ballots weigh less than 1 on average, the error is that of ballots that weigh 1.
    """

    parameters: Floats
    residual: float
    steps: int
    converged: bool


def choose(objective: Objective) -> str:
    """Newton unless its matrices cost more than the many gradients of L-BFGS."""
    newton = _NEWTON_STEPS * (objective.cost(INFORMATION) + _FACTOR * objective.size**3)
    return "newton" if newton <= _LBFGS_STEPS * objective.cost(GRADIENT) or objective.size <= 500 else "lbfgs"


def _start(objective: Objective) -> Floats:
    """All scores equal, or a step of MM from there, which saves Newton a step that costs more."""
    start = np.zeros(objective.size)
    if objective.X is None:
        gradient = objective.evaluate(start).gradient
        start += np.log(np.maximum(objective.wins, 0.5) / np.maximum(objective.wins - gradient, 0.5))
    return np.asarray(start - start.mean())


def solve(objective: Objective, solver: str, tol: float, max_iter: int) -> Solution:
    """Maximise; a warning if the maximum was not reached within `tol`."""
    run = {"newton": _newton, "lbfgs": _lbfgs, "mm": _mm}[solver]
    objective = objective.as_counts()
    start = _start(objective)
    with calm_blas(objective.size):
        parameters, steps = run(objective, start, tol, max_iter)
    value, gradient, _ = objective.evaluate(parameters)
    residual = float(np.max(np.abs(gradient) / np.sqrt(_scale(objective, gradient)), initial=0.0))
    converged = residual <= max(tol, 10.0 * _rounding(value))
    if not converged and np.ptp(objective.scores(parameters)) > 0.99 * LARGEST_SPREAD:
        raise ValueError(
            f"the estimate lies beyond what float64 can hold, with scores more than {LARGEST_SPREAD:g} apart: "
            "draw them together by prior or ridge"
        )
    if not converged:
        warnings.warn(
            f"{solver} did not converge in {steps} steps: the gradient is still {residual:.1e} standard errors, where "
            f"{tol:.1e} was asked for; raise max_iter, or choose another solver",
            ConvergenceWarning,
            stacklevel=3,
        )
    return Solution(parameters, residual, steps, converged)


def _rounding(value: float) -> float:
    """A step of so many standard errors changes the value by as little as rounding does: there is no going further."""
    return float(np.sqrt(np.finfo(np.float64).eps * max(abs(value), 1.0)))


def _scale(objective: Objective, gradient: Floats) -> Floats:
    """The curvature of MM's surrogate for each parameter."""
    if objective.X is not None:
        weights = float(objective.wins.sum())
        return np.asarray(objective.ridge + np.maximum(weights * objective.X.var(axis=0), 1e-12))
    scale = objective.wins - gradient + objective.ridge
    return np.asarray(np.maximum(scale, 1e-12 * scale.max()))


def _newton(objective: Objective, start: Floats, _tol: float, max_iter: int) -> tuple[Floats, int]:
    parameters = start
    value, gradient, information = objective.evaluate(parameters, INFORMATION)
    for step in range(1, max_iter + 1):
        direction = cho_solve(objective.factor(information), gradient)
        gain = float(gradient @ direction)
        if gain <= _LAST_STEP:
            return parameters + direction, step
        length = min(1.0, LARGEST_SPREAD / max(float(np.ptp(objective.scores(direction))), 1e-300))
        for _ in range(_MOST_HALVINGS):
            new = parameters + length * direction
            if objective.allows(new):
                new_value, gradient, information = objective.evaluate(new, INFORMATION)
                if new_value >= value + 1e-4 * length * gain or length * gain <= 1e-9 * abs(value):
                    break
            length *= 0.5
        else:
            return parameters, step
        parameters, value = new, new_value
    return parameters, max_iter


def _lbfgs(objective: Objective, start: Floats, tol: float, max_iter: int) -> tuple[Floats, int]:
    value, gradient, _ = objective.evaluate(start)
    root = np.sqrt(_scale(objective, gradient))

    def negative(scaled: Floats) -> tuple[float, Floats]:
        parameters = scaled / root
        if not objective.allows(parameters):
            return np.inf, np.zeros_like(scaled)
        value, gradient, _ = objective.evaluate(parameters)
        return -value, -gradient / root

    found = minimize(
        negative,
        start * root,
        jac=True,
        method="L-BFGS-B",
        options={
            "maxiter": max_iter,
            "maxfun": 2 * max_iter,
            "maxcor": 20,
            "ftol": 0.0,
            "gtol": max(0.5 * tol, _rounding(value)),
        },
    )
    return found.x / root, int(found.nit)


def _mm(objective: Objective, start: Floats, tol: float, max_iter: int) -> tuple[Floats, int]:
    wins = objective.wins
    parameters = start
    for step in range(1, max_iter + 1):
        gradient = objective.evaluate(parameters).gradient
        exposure = wins - gradient
        if np.max(np.abs(gradient) / np.sqrt(exposure)) <= 0.5 * tol:
            return parameters, step
        new = parameters + np.log(wins / exposure)
        if not objective.allows(new):
            return parameters, step
        parameters = new
    return parameters, max_iter
