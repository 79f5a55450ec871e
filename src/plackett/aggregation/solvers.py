"""Newton, L-BFGS and MM for a `WorthProblem`; `plackett.preferences.graph_fitting` has EM, for graphs.

MM (Hunter 2004, here for tiers as well) is the EM algorithm whose latent data are the arrival times of items, which are
exponential with the worths as rates: given S > R, item i of S has arrived by time T_i, and by M = max T none of R has.
The expectations follow from the gradient, worth_i E[T_i] = 1 - g_i and worth_R E[M] = G, so that the update is

    worth_i <- worth_i wins_i / (wins_i - gradient_i)

with wins_i the ballots on which i is above others. For strict rankings this is Hunter's update. Every step increases
the likelihood. wins_i - gradient_i is also the curvature of MM's surrogate, an upper bound of the information's
diagonal, by which L-BFGS is scaled.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve

from plackett.aggregation.ballot_kernels import GRADIENT, INFORMATION
from plackett.aggregation.graph_evidence import GraphLikelihood
from plackett.aggregation.problem import LARGEST_SPREAD, WorthProblem
from plackett.objective import Floats
from plackett.preferences.graph_fitting import GraphProblem, solve_graphs
from plackett.threads import single_threaded_blas

SOLVERS = ("auto", "newton", "lbfgs", "mm", "em")
# Rough numbers of evaluations, and nanoseconds of a third of a multiplication in a Cholesky factorisation.
_NEWTON_STEPS, _LBFGS_STEPS, _FACTOR = 6, 40, 0.1
_MOST_HALVINGS = 40
# After a Newton step this small, in squared standard errors, there is nothing left to gain.
_LAST_STEP = 1e-9


class WorthSolution(NamedTuple):
    """`residual` is the largest component of the gradient in units of about a standard error; `steps` are iterations.

    If ballots weigh less than 1 on average, the standard error is that of ballots that weigh 1.
    """

    parameters: Floats
    residual: float
    steps: int
    converged: bool


def choose(problem: WorthProblem) -> str:
    """Newton unless its matrices cost more than the many gradients of L-BFGS; EM for graphs."""
    if isinstance(problem.likelihood, GraphLikelihood):
        return "em"
    newton = _NEWTON_STEPS * (problem.cost(INFORMATION) + _FACTOR * problem.size**3)
    return "newton" if newton <= _LBFGS_STEPS * problem.cost(GRADIENT) or problem.size <= 500 else "lbfgs"


def solve(problem: WorthProblem, solver: str, tol: float, max_iter: int, start: Floats | None = None) -> WorthSolution:
    """Maximise, from parameters that are known to be close if given; warns if the maximum is not reached."""
    problem = problem.as_counts()
    start = problem.start() if start is None else start
    if _check_em(problem, solver):
        return WorthSolution(*solve_graphs(_graph_problem(problem), start, tol, max_iter))
    run = {"newton": _newton, "lbfgs": _lbfgs, "mm": _mm}[solver]
    with single_threaded_blas(problem.size):
        parameters, steps = run(problem, start, tol, max_iter)
    value, gradient, _ = problem.evaluate(parameters)
    residual = float(np.max(np.abs(gradient) / np.sqrt(problem.scale(gradient)), initial=0.0))
    converged = residual <= max(tol, 10.0 * _rounding(value))
    if not converged and np.ptp(problem.scores(parameters)) > 0.99 * LARGEST_SPREAD:
        raise ValueError(
            f"the estimate exceeds the range of float64, with scores more than {LARGEST_SPREAD:g} apart: "
            "bring them together with prior= or ridge="
        )
    if not converged:
        from sklearn.exceptions import ConvergenceWarning

        warnings.warn(
            f"{solver} did not converge in {steps} steps: the gradient is still {residual:.1e} standard errors, above "
            f"tol={tol:.1e}; raise max_iter, or choose another solver",
            ConvergenceWarning,
            stacklevel=3,
        )
    return WorthSolution(parameters, residual, steps, converged)


def _check_em(problem: WorthProblem, solver: str) -> bool:
    """Whether the solver is EM, which is for graphs, and the only one for graphs that have to be sampled."""
    graphs = isinstance(problem.likelihood, GraphLikelihood)
    if solver == "em" and not graphs:
        raise ValueError("solver 'em' is for graphs of preferences: choose 'auto'")
    if graphs and solver != "em" and not problem.likelihood.is_exact:
        raise ValueError(f"graphs that have to be sampled need the solver 'em', got {solver!r}: choose 'auto'")
    return solver == "em"


def _graph_problem(problem: WorthProblem) -> GraphProblem:
    likelihood = problem.likelihood
    design = likelihood.design if problem.X is None else likelihood.design @ problem.X
    return GraphProblem(likelihood.objective, design, problem.penalties)


def _rounding(value: float) -> float:
    """A step of this many standard errors changes the value only by rounding, so that no solver can get closer."""
    return float(np.sqrt(np.finfo(np.float64).eps * max(abs(value), 1.0)))


def _newton(problem: WorthProblem, start: Floats, _tol: float, max_iter: int) -> tuple[Floats, int]:
    parameters = start
    value, gradient, information = problem.evaluate(parameters, INFORMATION)
    for step in range(1, max_iter + 1):
        direction = cho_solve(problem.factor(information), gradient)
        gain = float(gradient @ direction)
        if gain <= _LAST_STEP:
            return parameters + direction, step
        length = min(1.0, LARGEST_SPREAD / max(float(np.ptp(problem.scores(direction))), 1e-300))
        for _ in range(_MOST_HALVINGS):
            new = parameters + length * direction
            if problem.allows(new):
                new_value, gradient, information = problem.evaluate(new, INFORMATION)
                if new_value >= value + 1e-4 * length * gain or length * gain <= 1e-9 * abs(value):
                    break
            length *= 0.5
        else:
            return parameters, step
        parameters, value = new, new_value
    return parameters, max_iter


def _lbfgs(problem: WorthProblem, start: Floats, tol: float, max_iter: int) -> tuple[Floats, int]:
    from scipy.optimize import minimize

    value, gradient, _ = problem.evaluate(start)
    root = np.sqrt(problem.scale(gradient))

    def negative(scaled: Floats) -> tuple[float, Floats]:
        parameters = scaled / root
        if not problem.allows(parameters):
            return np.inf, np.zeros_like(scaled)
        value, gradient, _ = problem.evaluate(parameters)
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


def _mm(problem: WorthProblem, start: Floats, tol: float, max_iter: int) -> tuple[Floats, int]:
    wins = problem.wins
    parameters = start
    for step in range(1, max_iter + 1):
        gradient = problem.evaluate(parameters).gradient
        exposure = wins - gradient
        if np.max(np.abs(gradient) / np.sqrt(exposure)) <= 0.5 * tol:
            return parameters, step
        new = parameters + np.log(wins / exposure)
        if not problem.allows(new):
            return parameters, step
        parameters = new
    return parameters, max_iter
