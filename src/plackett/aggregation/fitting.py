"""From evidence to fitted worths: which items have finite ones, the maximum, and its errors."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from plackett.aggregation.bootstrap import Refit, bootstrapped
from plackett.aggregation.connectivity import connectivity, describe_outside, is_separated
from plackett.aggregation.covariances import choose_covariance, parameter_covariance
from plackett.aggregation.evidence import Evidence
from plackett.aggregation.problem import WorthProblem
from plackett.aggregation.solvers import WorthSolution, choose, solve
from plackett.objective import Floats


@dataclass(frozen=True)
class WorthSettings:
    """How to fit; the parameters of `plackett.RankAggregator` with these names."""

    solver: str = "auto"
    ridge: float = 0.0
    feature_ridge: float = 0.0
    prior: float = 0.0
    on_infinite: str = "drop"
    tol: float = 1e-6
    max_iter: int = 1000
    covariance: str | None = None
    bootstrap_samples: int = 1000
    random_state: Any = 0


class Estimate(NamedTuple):
    """A parameter with its standard error, NaN where it has none."""

    value: float
    standard_error: float


@dataclass(frozen=True)
class WarmStart:
    """Estimates to start from: scores by item, then tie parameters and coefficients."""

    scores: Mapping[Any, float]
    extras: Floats

    def parameters(self, names: Sequence[Any], problem: WorthProblem) -> Floats | None:
        """The parameters of a problem, with 0 for new items; None if it has other tie parameters or coefficients."""
        scores = np.zeros(problem.head)  # the last one may be that of a prior's item
        scores[: len(names)] = [self.scores.get(name, 0.0) for name in names]
        found = np.concatenate([scores, self.extras])
        return found if len(found) == problem.size else None


@dataclass
class WorthFit:
    """A maximum of the likelihood.

    evidence    the data about the items that have finite worths
    penalised   the problem that was solved, with ridge and prior
    data        the same without them, for errors and for the likelihood
    outside     items without a finite worth, by a key of `connectivity.REASONS`
    covariance_kind  one of `covariances.COVARIANCES`
    """

    evidence: Evidence
    penalised: WorthProblem
    data: WorthProblem
    solution: WorthSolution
    solver: str
    outside: dict[str, list[Any]]
    dropped: list[Any]
    covariance_kind: str
    settings: WorthSettings

    @property
    def names(self) -> list[Any]:
        return self.evidence.names

    @cached_property
    def parameters(self) -> Floats:
        """The parameters of `data`: without the artificial item of a prior, scores with mean zero."""
        found = self.solution.parameters
        if self.penalised.size > self.data.size:
            found = np.delete(found, self.data.head)
        if self.data.X is None:
            found = found.copy()
            found[: self.data.head] -= found[: self.data.head].mean()
        return found

    @cached_property
    def scores(self) -> Floats:
        scores = self.data.scores(self.parameters)
        return np.asarray(scores - scores.mean())

    @cached_property
    def parameter_covariance(self) -> Floats:
        """The covariance of all parameters; that of scores is arbitrary along their common shift."""
        if self.covariance_kind == "bootstrap":
            return np.atleast_2d(np.cov(self.bootstrapped, rowvar=False))
        return parameter_covariance(
            self.covariance_kind, self.evidence, self.data, self.penalised, self.parameters
        )  # fmt: skip

    @cached_property
    def bootstrapped(self) -> Floats:
        """Parameters of the model fitted to reweighted data, (samples, parameters)."""
        return self.draw(self.settings.bootstrap_samples, np.random.default_rng(self.settings.random_state))

    def draw(self, samples: int, generator: np.random.Generator) -> Floats:
        """Parameters of `data` for reweighted observations, or clusters if there are some, (samples, parameters)."""
        settings = self.settings
        refit = Refit(self.penalised, self.solution.parameters, self.solver, settings.tol, settings.max_iter)
        found = bootstrapped(self.evidence, refit, samples, generator)
        if self.penalised.size > self.data.size:
            found = np.delete(found, self.data.head, axis=1)
        if self.data.X is None:
            found[:, : self.data.head] -= found[:, : self.data.head].mean(axis=1, keepdims=True)
        return found

    def score_covariance(self) -> Floats:
        """The covariance of the scores as deviations from their mean."""
        head = self.data.head
        found = self.parameter_covariance[:head, :head]
        if self.data.X is not None:
            found = self.data.X @ found @ self.data.X.T
        found = found - found.mean(axis=0)
        return np.asarray(found - found.mean(axis=1, keepdims=True))

    def tie_parameters(self) -> dict[str, Estimate]:
        """Tie parameters on their usual scale; without ties in the data at the end of their range, without an error."""
        names, ties = self.evidence.tie_names, self.data.likelihood.ties
        if not names:
            return {}
        free = self.data.likelihood.free_ties() if ties else [False] * len(names)
        at_rest = 1.0 if names == ["theta"] else 0.0
        values = np.exp(self.parameters[self.data.head : self.data.head + ties])
        errors = values * self._errors()[self.data.head : self.data.head + ties]
        found = iter(zip(values.tolist(), errors.tolist(), strict=True))
        return {
            name: Estimate(*next(found)) if is_free else Estimate(at_rest, float("nan"))
            for name, is_free in zip(names, free, strict=True)
        }

    def coefficients(self) -> tuple[Floats, Floats]:
        """The coefficients of X and of the features of comparisons, with their standard errors."""
        chosen = np.zeros(self.data.size, bool)
        chosen[: self.data.head] = self.data.X is not None
        chosen[self.data.size - self.data.likelihood.coefficients :] = True
        return self.parameters[chosen], self._errors()[chosen]

    def _errors(self) -> Floats:
        return np.sqrt(np.maximum(np.diag(self.parameter_covariance), 0.0))

    def log_likelihood(self) -> float:
        return float(self.data.likelihood.evaluate(self.data.natural(self.parameters), 0).value)

    def count_parameters(self) -> int:
        likelihood = self.data.likelihood
        head = self.data.head - (self.data.X is None)
        return int(head + likelihood.ties + likelihood.coefficients)


def fit_worths(
    evidence: Evidence,
    X: Floats | None,
    settings: WorthSettings,
    start: WarmStart | None = None,
    centre: Mapping[Any, float] | None = None,
) -> WorthFit:
    """The maximum of the likelihood of the items that have finite worths; warns about the others.

    `start` are estimates close to it, `centre` scores that the ridge shrinks towards, by item.
    """
    outside: dict[str, list[Any]] = {}
    before = evidence
    if not (settings.ridge or settings.prior):
        evidence, outside = _with_maximum(evidence, X, settings.on_infinite)
    elif X is None and not (ranked := evidence.ranked).all():
        names = [name for name, known in zip(evidence.names, ranked, strict=True) if not known]
        evidence, outside = evidence.restrict(ranked), {"unranked": names}
    if not settings.prior:
        evidence.check_maximum(has_ridge=settings.ridge > 0.0)
    if evidence.feature_names and not settings.feature_ridge and X is None:
        evidence.check_features(has_penalty=settings.ridge > 0.0 or settings.prior > 0.0)
    kept = set(evidence.names)
    dropped = [name for name in before.names if name not in kept]
    if outside:
        warnings.warn(_warning(outside), stacklevel=4)
    kind = choose_covariance(settings.covariance, evidence.clusters)
    penalised = evidence.problem(X, settings.ridge, settings.prior, settings.feature_ridge)
    if centre is not None:
        penalised = replace(penalised, centre=np.array([centre[name] for name in evidence.names]))
    solver = choose(penalised) if settings.solver == "auto" else settings.solver
    begin = None if start is None or X is not None else start.parameters(evidence.names, penalised)
    solution = solve(penalised, solver, settings.tol, settings.max_iter, begin)
    fit = WorthFit(evidence, penalised, evidence.problem(X), solution, solver, outside, dropped, kind, settings)
    if penalised.likelihood.coefficients and not settings.feature_ridge:
        evidence.check_separation(fit.data.natural(fit.parameters))
    return fit


def _warning(outside: dict[str, list[Any]]) -> str:
    if not {"above", "below"} & set(outside):
        return f"left out: items {describe_outside(outside)}"
    return (
        "the maximum likelihood estimate does not exist: there are items "
        f"{describe_outside(outside)}. They are ranked above and below the others, which are estimated without them; "
        "prior=0.5 gives all items a finite worth"
    )


def _with_maximum(
    evidence: Evidence, X: Floats | None, on_infinite: str
) -> tuple[Evidence, dict[str, list[Any]]]:  # fmt: skip
    """The data restricted to items for which the likelihood has a maximum, and the others."""
    steps = evidence.steps()
    found = connectivity(steps)
    if found.kept.all():
        return evidence, {}
    if X is not None:
        if is_separated(steps, X):
            raise ValueError(
                "the maximum likelihood estimate does not exist: some combination of the columns of X agrees with "
                "every ballot. Use ridge above 0, or fewer features"
            )
        return evidence, {}
    if on_infinite == "error" or found.kept.sum() < 2:
        raise found.error(evidence.names)
    return evidence.restrict(found.kept), found.outside(evidence.names)
