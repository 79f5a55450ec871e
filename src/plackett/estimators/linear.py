"""LinearRanker: a linear score under any Plackett-Luce likelihood, with standard errors."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from plackett.arguments import as_csr, check_fraction
from plackett.boosted.objectives import LOSS_OBJECTIVES
from plackett.data.stored import parse_array, regular_file
from plackett.errors import DataError
from plackett.estimators import parameters
from plackett.estimators.base import BaseRanker, ListedRows, as_rows
from plackett.estimators.saved import (
    COEFFICIENTS,
    COVARIANCE,
    check_numbers,
    field,
    measures_from_json,
    measures_to_json,
)
from plackett.linear.features import scaled_features
from plackett.linear.inference import Coordinates, covariance_of, finish, natural_coordinates
from plackett.linear.objectives import LIKELIHOODS, Objective, make_likelihood
from plackett.linear.solvers import SOLVERS, Problem, solve
from plackett.linear.summary import CoefficientSummary
from plackett.lists import check_positive
from plackett.metrics import get_metric

Floats = npt.NDArray[np.float64]

_MOST_FEATURES = 1000  # above it standard errors, which take a matrix of features x features, are made on request only
_PAPER_TOP, _PAPER_L2 = 10, 1.0  # of l-ListMLE
_MARGIN = 0.1  # solvers go by other norms, in other coordinates

_KINDS: dict[str, tuple[type, ...]] = {
    "n_iter_": (int,),
    "gradient_norm_": (float,),
    "converged_": (bool,),
    "concave_": (bool,),
    "loss_": (float,),
    "n_lists_": (int,),
    "note_": (str,),
    "evals_result_": (dict,),
    "objective_value_": (float,),
    "restart_values_": (list,),
}
"""Of what is stored beside the coefficients."""


class LinearModel(BaseRanker):
    """What linear rankers share: features without gaps, scores X @ coef_, models on disk."""

    coef_: Floats
    eval_metric: str | Sequence[str]
    standardise: bool
    parameter_kinds: ClassVar[Mapping[str, parameters.Check]] = {
        "standardise": parameters.flag,
        "eval_metric": parameters.ranking_metrics,
        "random_state": parameters.seed,
    }

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = True
        return tags

    def _features(self, X: Any, *, reset: bool, finite: bool = True) -> Any:
        checked: Any = validate_data(
            self, as_rows(X), reset=reset, accept_sparse="csr", dtype=np.float64, ensure_all_finite=finite
        )
        return as_csr("X", checked) if reset and issparse(checked) else checked  # products add up what is there twice

    def predict(self, X: Any) -> Floats:
        """The scores of rows, or of those of a RankingData."""
        check_is_fitted(self, "coef_")
        X = self._to_predict(X)
        # A stored value that is not finite makes the score of its row so: looking at scores alone takes half the time.
        scores = np.asarray(self._features(X, reset=False, finite=not issparse(X)) @ self.coef_)
        if not np.isfinite(scores).all():
            self._features(X, reset=False)
        return scores

    def _scaled(self, rows: ListedRows) -> tuple[Any, Floats, npt.NDArray[np.bool_]]:
        """Features as the solvers take them, their scales, and which of them vary within lists."""
        found = scaled_features(rows.X, rows.offsets, rows.weights, standardise=self.standardise)
        if found.lost.any():
            lost = [name for name, is_lost in zip(self._names(), found.lost, strict=True) if is_lost]
            warnings.warn(
                f"no coefficient is learned for {_shortened(lost)}: within each list the numbers differ by no more "
                "than the rounding of float64. Subtract a constant before converting to float64",
                stacklevel=3,
            )
        return found.X, found.scale, found.varies

    def _names(self) -> list[str]:
        return [str(name) for name in getattr(self, "feature_names_in_", range(self.n_features_in_))]

    def _evaluate(self, parts: Sequence[tuple[str, ListedRows]], coef: Floats) -> dict[str, dict[str, float]]:
        """Every metric of every evaluation set."""
        names = parameters.metric_names("eval_metric", self.eval_metric)
        return {name: {metric: metric_of(metric, rows, rows.X @ coef) for metric in names} for name, rows in parts}

    def _read_array(self, path: Path, shape: tuple[int, ...]) -> Floats:
        """An array that `np.save` wrote."""
        try:
            found = parse_array(regular_file(path).read_bytes())
            if found.shape == shape and found.dtype == np.float64:
                return found
            problem = f"an array of {found.dtype} and shape {found.shape}, expected float64 and {shape}"
        except (ValueError, OSError) as error:
            problem = f"not a readable array ({error})"
        raise DataError(problem, file=str(path), remedy="Write the model anew")

    evals_result_: dict[str, Any]
    _STATE: tuple[str, ...]
    """What is stored beside the coefficients."""

    def _save_state(self, folder: Path) -> dict[str, Any]:
        check_numbers("the coefficients", self.coef_)
        np.save(folder / COEFFICIENTS, self.coef_)
        found = {name: getattr(self, name) for name in self._STATE}
        return found | {"evals_result_": measures_to_json(self.evals_result_)}

    def _load_state(self, folder: Path, state: dict[str, Any]) -> None:
        self.coef_ = self._read_array(folder / COEFFICIENTS, (self.n_features_in_,))
        check_numbers("the coefficients", self.coef_)
        for name in self._STATE:
            setattr(self, name, field(state, name, *_KINDS[name]))
        self.evals_result_ = measures_from_json(self.evals_result_)


def _shortened(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def metric_of(name: str, rows: ListedRows, scores: Floats) -> float:
    return float(get_metric(name)(scores, rows.labels, offsets=rows.offsets, weights=rows.weights))


class LinearRanker(LinearModel):
    """A linear score w^T x, fitted by maximum (penalised) likelihood.

    Minimises the sum over lists of weight times loss, plus l1 |b|_1 + l2 |b|^2 / 2 where b are the coefficients of the
    features as `standardise` leaves them. The likelihoods are concave in b (unless `top` falls inside a tier), so
    there is one optimum, and whether it was reached is checked.

    Args:
        objective: "partition" (the exact likelihood of the tiers), "topk" (the same, refusing ties within the first
            `top` places), "listmle" (ties broken at random; l-ListMLE of the PLRank paper), "efron", "breslow",
            "lower_bound"; or one of the losses attrank, listnet, listpl, ranknet, ranksvm, approx_ndcg, which need
            torch and have no standard errors.
        top: count only the first `top` places; "auto": 10 for listmle, as in the paper, else all (None).
        l2, l1: penalties. l2 is the precision of a Gaussian prior; "auto": 1 for listmle, as in the paper, else 0.
        standardise: divide features by their standard deviation within lists for the penalties and the solver;
            `coef_` is on the scale of X all the same.
        solver: "lbfgs", or "newton-cg" (a trust region with exact Hessian products; not with l1).
        tol: the fit has converged when no component of the gradient, of the mean over lists, is larger.
        max_iter: of the solver.
        inference: whether to find the covariance of the coefficients. It takes a matrix of features x features; None:
            up to 1,000 features.
        objective_options: of the losses; for listmle bottom="unordered" leaves the last tier as it is.
        eval_metric: metrics of the `eval_set`.
        query_column: for DataFrames, the column that says which list a row belongs to.
        random_state: how listmle breaks ties, and what listpl draws (once).

    Attributes:
        coef_: the coefficients; loss_: the loss without penalties, minus the log-likelihood where there is one;
        converged_, gradient_norm_, n_iter_; concave_: whether the optimum is the only one;
        covariance_, standard_errors_: the inverse of the observed information (with the prior's, if l2 > 0) and the
        roots of its diagonal; infinite where the data do not determine a coefficient, NaN where there are none.
    """

    parameter_kinds: ClassVar[Mapping[str, parameters.Check]] = {
        **LinearModel.parameter_kinds,
        "inference": parameters.or_none(parameters.flag),
        "objective_options": parameters.options,
    }

    def __init__(
        self,
        objective: str = "partition",
        *,
        top: int | str | None = "auto",
        l2: float | str = "auto",
        l1: float = 0.0,
        standardise: bool = True,
        solver: str = "lbfgs",
        tol: float = 1e-6,
        max_iter: int = 1000,
        inference: bool | None = None,
        objective_options: dict[str, Any] | None = None,
        eval_metric: str | Sequence[str] = "ndcg@10",
        query_column: Any = None,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.objective = objective
        self.top = top
        self.l2 = l2
        self.l1 = l1
        self.standardise = standardise
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.inference = inference
        self.objective_options = objective_options
        self.eval_metric = eval_metric
        self.query_column = query_column
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        qid: Any = None,
        group: Any = None,
        sample_weight: Any = None,
        eval_set: Any = None,
    ) -> Self:
        """Fit to rows with labels.

        Args:
            X, y: features and labels, higher is better; or X a RankingData.
            qid, group: the list of each row, in any order, or sizes of consecutive lists. Neither: one list, with a
                warning.
            sample_weight: one per row, constant within a list.
            eval_set: RankingData, (X, y, qid) or a list of them, judged by `eval_metric` when the fit is done.
        """
        self._check_kinds()
        l1, l2 = self._penalties()
        rows = self._training_rows(X, y, qid, group, sample_weight)
        evaluation = list(self._evaluation_rows(eval_set))
        objective = self._objective(rows)
        features, scale, varies = self._scaled(rows)
        problem = Problem(objective, features, rows.offsets, float(rows.weights.sum()), l1, l2)
        max_iter = check_positive("max_iter", self.max_iter)
        coordinates = natural_coordinates(problem) if self._wants_inference(len(scale)) else None
        basis = None if coordinates is None else coordinates.basis
        b, self.n_iter_ = solve(problem, self.solver, _MARGIN * self.tol, max_iter, basis)
        b, covariance = self._conclude(problem, np.where(varies, b, 0.0), coordinates)
        self.coef_ = np.where(varies, b, 0.0) / scale
        self.covariance_ = covariance / np.outer(scale, scale) if covariance.size else covariance
        self.loss_ = objective.value_and_gradient(features @ b)[0]
        self.concave_ = objective.is_convex
        self.n_lists_ = len(rows.lists)
        self.evals_result_ = self._evaluate(evaluation, self.coef_)
        return self

    def _penalties(self) -> tuple[float, float]:
        l2 = (_PAPER_L2 if self.objective == "listmle" else 0.0) if self.l2 == "auto" else self.l2
        for name, value, otherwise in (("l1", self.l1, ""), ("l2", l2, ' or "auto"')):
            if not isinstance(value, int | float | np.number) or not 0.0 <= value < np.inf:
                raise ValueError(f"{name} must be a finite number of at least 0{otherwise}, got {value!r}")
        if self.solver not in SOLVERS:
            raise ValueError(f"solver must be one of {', '.join(SOLVERS)}, got {self.solver!r}")
        if self.solver == "newton-cg" and (self.l1 > 0.0 or self.objective not in LIKELIHOODS):
            raise ValueError("solver='newton-cg' needs second derivatives: l1 must be 0 and the objective a likelihood")
        if not isinstance(self.tol, int | float | np.number) or not self.tol > 0.0:
            raise ValueError(f"tol must be a number above 0, got {self.tol!r}")
        return float(self.l1), float(l2)

    def _objective(self, rows: ListedRows) -> Objective:
        others = [name for name in LOSS_OBJECTIVES if name not in LIKELIHOODS]
        if self.objective not in (*LIKELIHOODS, *others):
            raise ValueError(f"objective must be one of {', '.join([*LIKELIHOODS, *others])}, got {self.objective!r}")
        top = (_PAPER_TOP if self.objective == "listmle" else None) if self.top == "auto" else self.top
        options = dict(self.objective_options or {})
        lists = rows.labels, rows.offsets, rows.weights
        if self.objective in LIKELIHOODS:
            unknown = sorted(set(options) - {"bottom"})
            if unknown:
                raise ValueError(f"objective_options of {self.objective!r} may hold bottom, got {', '.join(unknown)}")
            return make_likelihood(self.objective, *lists, top=top, random_state=self.random_state, **options)
        if top is not None:
            options["top"] = top
        seed = int(np.random.default_rng(self.random_state).integers(2**31))
        return _TorchLoss(self.objective, *lists, random_state=seed, **options)

    def _conclude(self, problem: Problem, b: Floats, coordinates: Coordinates | None) -> tuple[Floats, Floats]:
        """The last steps to the optimum and the covariance there; sets what is said about convergence."""
        nothing = np.full((len(b), len(b)) if self._wants_inference(len(b)) else (0, 0), np.nan)
        covariance, trouble, self.note_ = nothing, None, ""
        reached = problem.gradient_norm(b) <= self.tol
        if self.objective not in LIKELIHOODS:
            self.note_ = f"no standard errors: the loss {self.objective!r} is not a likelihood"
        elif problem.l1 > 0.0:
            self.note_ = "no standard errors: an L1 penalty moves coefficients in a way that they do not describe"
        elif not reached:
            self.note_ = "no standard errors: the fit did not converge"
        elif coordinates is None:
            self.note_ = "no standard errors: they were not asked for, see inference"
            if problem.l2 == 0.0:
                trouble = (
                    f"whether the estimate is finite was not checked for {len(b):,} features without a penalty: set l2 "
                    "or inference=True"
                )
        elif not problem.objective.is_convex:  # a maximum, perhaps one of several
            found = covariance_of(problem, b, coordinates)
            covariance = nothing if found is None else found
            self.note_ = "" if found is not None else "no standard errors: the information is not positive here"
        else:
            done = finish(problem, b, coordinates)
            covariance = done.covariance
            if not done.separated.any():
                b = done.coefficients
            else:
                reached = False
                trouble = self._describe_separation(done.separated)
                self.note_ = "the estimate is infinite"
        self.gradient_norm_ = problem.gradient_norm(b)
        self.converged_ = bool(reached)
        if not reached and trouble is None:
            trouble = (
                f"the fit did not converge: the gradient is {self.gradient_norm_:.1e} after {self.n_iter_} iterations, "
                f"above tol={self.tol:g}. Raise max_iter, standardise, or add a penalty"
            )
        if trouble is not None:
            warnings.warn(trouble, ConvergenceWarning, stacklevel=3)
        return b, covariance

    def _wants_inference(self, features: int) -> bool:
        return features <= _MOST_FEATURES if self.inference is None else bool(self.inference)

    def _describe_separation(self, parts: Floats) -> str:
        names = self._names()
        involved = [names[i] for i in np.argsort(-parts) if parts[i] > 0.01]
        return (
            f"the estimate is infinite: a combination of {_shortened(involved)} never contradicts the labels, so the "
            "likelihood rises for ever along it (separation). The coefficients are where the solver stopped. Set l2 "
            "above 0, or leave features out"
        )

    # What is known about the coefficients

    @property
    def standard_errors_(self) -> Floats:
        """Of `coef_`."""
        check_is_fitted(self, "coef_")
        if self.covariance_.size == 0:
            return np.full(len(self.coef_), np.nan)
        return np.sqrt(np.diag(self.covariance_))

    def summary(self, level: float = 0.95) -> CoefficientSummary:
        """Coefficients with standard errors, z, p values and confidence intervals; prints as a table."""
        errors = self.standard_errors_
        return CoefficientSummary(
            self._names(), self.coef_, errors, check_fraction("level", level), self._summary_note()
        )

    def _summary_note(self) -> str:
        kind = "minus the log-likelihood" if self.objective in LIKELIHOODS else "the loss"
        parts = [f"{self.objective}, {self.n_lists_:,} lists, {kind} {self.loss_:,.2f}", self.note_]
        if np.isinf(self.standard_errors_).any():
            parts.append("infinite standard errors: the data do not determine these coefficients")
        return "; ".join(part for part in parts if part)

    def confidence_intervals(self, level: float = 0.95) -> Floats:
        """(features, 2): the coefficients, less and plus standard errors, by the normal distribution."""
        return self.summary(level).intervals

    _STATE = ("n_iter_", "gradient_norm_", "converged_", "concave_", "loss_", "n_lists_", "note_", "evals_result_")

    def _save_state(self, folder: Path) -> dict[str, Any]:
        np.save(folder / COVARIANCE, self.covariance_)
        return super()._save_state(folder)

    def _load_state(self, folder: Path, state: dict[str, Any]) -> None:
        super()._load_state(folder, state)
        size = self.n_features_in_ if self._wants_inference(self.n_features_in_) else 0
        self.covariance_ = self._read_array(folder / COVARIANCE, (size, size))


class _TorchLoss(Objective):
    """A loss of `plackett.losses` by its gradient. What it draws at random, it draws alike at every call."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        from plackett.boosted.torch_losses import LossObjective

        self._make = lambda: LossObjective(*arguments, **options)
        self._make()

    def value_and_gradient(self, scores: Floats) -> tuple[float, Floats]:
        return self._make().value(scores), self._make().gradient(scores)
