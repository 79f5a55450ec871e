"""Monte Carlo EM: parameters of scores from graphs of preferences, for aggregation and linear models.

The latent data are the arrival times of items. The E step gives the gradient by scores, 1 - exp(w_i) E[T_i | graph],
exactly or by Gibbs sampling. The M step of EM would divide it by the information of the arrival times; by Louis's
identity the samples also tell how much of that is missing, and dividing by the rest is Newton's step, which needs few
iterations where EM needs many. The information is always sampled, and kept once steps are short: an error of a few per
cent in it only makes the last steps a little longer or shorter.

Where gradients are exact, this goes on until they vanish. Where they are sampled, steps shorten as 1 / k once the
gradient is no larger than its noise, so that the estimate is the mean of where the steps lead (Robbins and Monro). The
fit has converged if the gradient is still no larger than its noise, and if the standard error that sampling adds is
less than a tenth of the estimate's own for every parameter.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from plackett.likelihood.partial_orders.order_objective import PartialOrderObjective
from plackett.objective import Floats
from plackett.threads import single_threaded_blas

_STEP_SAMPLES = 64  # of each list, for the information of a step
# For errors: of all lists together, and at least and at most of one list. The information then errs by about 1%.
_INFORMATION_SAMPLES, _FEWEST_SAMPLES, _MOST_SAMPLES = 50_000, 32, 4096
_LONGEST_STEP = 2.0  # of a score
_SHORT_STEP = 0.1  # how far the gradient must fall in a step, or the information is sampled again
_FEWEST_AVERAGED = 20
_LARGEST_SHARE = 0.1  # of the standard error, that sampling may add
_LARGEST_Z = 2.0  # root mean square of a gradient in its standard errors that is mostly noise
# Shares of the largest information in directions about which the data say nothing, or little compared with a penalty.
_UNDETERMINED, _BARELY_DETERMINED = 1e-9, 1e-3


@dataclass(frozen=True)
class GraphProblem:
    """log P of graphs whose scores are design @ parameters, less penalties / 2 times the squared parameters."""

    objective: PartialOrderObjective
    design: Any  # (entries, parameters), dense or CSR
    penalties: Floats

    @property
    def size(self) -> int:
        return int(self.design.shape[1])

    @cached_property
    def _squared_design(self) -> Any:
        return self.design**2 if isinstance(self.design, np.ndarray) else self.design.power(2)

    def gradient(self, parameters: Floats) -> tuple[Floats, Floats]:
        """The gradient and its variance by sampling."""
        found = self.objective.evaluate(self.design @ parameters, value=False)
        weights = self.objective.row_weights
        gradient = self.design.T @ (weights * found.gradient) - self.penalties * parameters
        return np.asarray(gradient), np.asarray(self._squared_design.T @ (weights * found.gradient_error) ** 2)

    def information(self, parameters: Floats, samples: int | None = None) -> Floats:
        """Minus the Hessian, sampled; with `samples` None well enough for standard errors."""
        if samples is None:
            samples = _INFORMATION_SAMPLES // max(len(self.objective.weights), 1)
            samples = max(_FEWEST_SAMPLES, min(_MOST_SAMPLES, samples))
        found = self.objective.information(self.design @ parameters, self.design, samples)
        found[np.diag_indices(self.size)] += self.penalties
        return found

    def value(self, parameters: Floats) -> float:
        """The log-likelihood without penalties."""
        return -self.objective.value(self.design @ parameters)


class GraphSolution(NamedTuple):
    """`residual`: the largest gradient in standard errors; or, if sampled, the largest share of them that it adds."""

    parameters: Floats
    residual: float
    steps: int
    converged: bool


def inverse_information(information: Floats, least: float = _UNDETERMINED) -> Floats:
    """The inverse, 0 along directions about which there is no more than this share of the largest information."""
    values, axes = np.linalg.eigh(information)
    known = values > least * max(float(values[-1]), 0.0)
    return np.asarray((axes[:, known] / values[known]) @ axes[:, known].T)


def solve_graphs(problem: GraphProblem, start: Floats, tol: float, max_iter: int) -> GraphSolution:
    """The maximum; warns if it was not reached."""
    with single_threaded_blas(problem.size):
        run = _solve_exact if problem.objective.is_exact else _solve_sampled
        return run(problem, start, tol, max_iter)


def _bounded_step(problem: GraphProblem, direction: Floats) -> Floats:
    moved = np.abs(problem.design @ direction)
    return np.asarray(direction * min(1.0, _LONGEST_STEP / max(float(moved.max(initial=0.0)), 1e-300)))


def _solve_exact(problem: GraphProblem, start: Floats, tol: float, max_iter: int) -> GraphSolution:
    parameters = start
    residual, inverse = np.inf, np.empty(0)
    for step in range(1, max_iter + 1):
        gradient, _ = problem.gradient(parameters)
        before = residual
        if inverse.size:
            residual = _residual(gradient, inverse)
            if residual <= tol:
                return GraphSolution(parameters, residual, step, True)
        if not inverse.size or residual > _SHORT_STEP * before:
            inverse = inverse_information(problem.information(parameters, _STEP_SAMPLES))
            residual = _residual(gradient, inverse)
        parameters = parameters + _bounded_step(problem, inverse @ gradient)
    _warn(f"the gradient is still {residual:.1e} standard errors, above tol={tol:.1e}", max_iter)
    return GraphSolution(parameters, residual, max_iter, False)


def _residual(gradient: Floats, inverse: Floats) -> float:
    """The largest component of the gradient in standard errors of a parameter."""
    return float(np.max(np.abs(gradient) * np.sqrt(np.maximum(np.diag(inverse), 0.0)), initial=0.0))


def _solve_sampled(problem: GraphProblem, start: Floats, _tol: float, max_iter: int) -> GraphSolution:
    parameters, information, inverse = start, np.empty(0), np.empty(0)
    averaged, share = 0, np.inf
    total_variance = np.zeros(problem.size)
    for step in range(1, max_iter + 1):
        gradient, variance = problem.gradient(parameters)
        is_noise = np.sqrt(np.mean(gradient**2 / np.maximum(variance, 1e-300))) < _LARGEST_Z
        if averaged == 0:
            information = problem.information(parameters, _STEP_SAMPLES)
            inverse = inverse_information(information)
            averaged = int(is_noise)
        parameters = parameters + _bounded_step(problem, inverse @ gradient) / max(averaged, 1)
        if not averaged:
            continue
        total_variance += variance
        if averaged >= _FEWEST_AVERAGED:
            share = _sampling_share(information, total_variance / averaged**2)
            if share <= _LARGEST_SHARE and is_noise:
                return GraphSolution(parameters, share, step, True)
        averaged += 1
    _warn("the sampled gradient has not settled", max_iter)
    return GraphSolution(parameters, share, max_iter, False)


def _sampling_share(information: Floats, variance: Floats) -> float:
    """The largest standard error that sampling adds, as a share of the estimate's own standard error.

    Directions about which only a penalty says something do not count.
    """
    inverse = inverse_information(information, _BARELY_DETERMINED)
    added = np.sqrt(np.einsum("ij,j,ij->i", inverse, variance, inverse))
    return float(np.max(added / np.sqrt(np.maximum(np.diag(inverse), 1e-300))))


def _warn(problem: str, steps: int) -> None:
    from sklearn.exceptions import ConvergenceWarning

    warnings.warn(
        f"em did not converge in {steps} steps: {problem}; raise max_iter, or penalise large parameters",
        ConvergenceWarning,
        stacklevel=6,
    )
