"""LinearRanker: a linear score under any Plackett-Luce likelihood, with standard errors."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from plackett.arguments import (
    Check,
    as_csr,
    as_rows,
    check_flag,
    check_fraction,
    check_options,
    check_parameters,
    check_positive,
    check_range,
    check_scores,
    check_seed,
    is_checked,
    metric_names,
    or_none,
)
from plackett.data.listed_rows import ListedRows
from plackett.data.positions import PositionBias, Positions, make_position_bias
from plackett.data.preference_graphs import PreferenceGraphs
from plackett.data.untrusted import check_numbers, field, parse_array, regular_file
from plackett.errors import DataError
from plackett.estimators.lightgbm_arguments import refuse_others
from plackett.estimators.persistence import COEFFICIENTS, COVARIANCE, measures_from_json, measures_to_json
from plackett.estimators.ranker import BaseRanker, ClickRanker, check_graph_options
from plackett.likelihood.partial_orders.order_objective import PartialOrderObjective
from plackett.linear.features import scaled_features, with_position_columns
from plackett.linear.inference import Coordinates, covariance_of, natural_coordinates, polish
from plackett.linear.solvers import SOLVERS, LinearProblem, solve
from plackett.linear.summary import CoefficientSummary
from plackett.linear.tier_likelihood import LIKELIHOODS, TieredLikelihood, make_likelihood
from plackett.losses.loss_objective import LossObjective
from plackett.losses.registry import (
    check_item_weighting,
    find_loss,
    function_name,
    is_function,
    is_own_objective,
    loss_names,
)
from plackett.metrics import get_metric
from plackett.metrics.registry import check_metrics
from plackett.objective import Floats, Objective
from plackett.preferences.graph_fitting import GraphProblem, inverse_information, solve_graphs

_MOST_FEATURES = 1000  # above this standard errors, which need a features x features matrix, are only made on request
_PAPER_TOP, _PAPER_L2 = 10, 1.0  # settings of l-ListMLE
_MARGIN = 0.1  # a smaller tolerance for solvers, which use other norms in other coordinates

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
"""The types of the attributes that are stored with the coefficients."""


class LinearModel(BaseRanker):
    """The base of linear rankers: features without missing values, scores X @ coef_, models on disk."""

    coef_: Floats
    eval_metric: str | Sequence[str]
    standardise: bool
    parameter_kinds: ClassVar[Mapping[str, Check]] = {
        "standardise": check_flag,
        "eval_metric": check_metrics,
        "random_state": check_seed,
    }

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = True
        return tags

    def _features(self, X: Any, *, reset: bool, finite: bool = True) -> Any:
        if not reset and is_checked(X, self):
            return X
        checked: Any = validate_data(
            self, as_rows(X), reset=reset, accept_sparse="csr", dtype=np.float64, ensure_all_finite=finite
        )
        return as_csr("X", checked) if reset and issparse(checked) else checked  # sums duplicate entries

    def predict(self, X: Any) -> Floats:
        """The scores of rows, or of the rows of a RankingData."""
        check_is_fitted(self, "coef_")
        X = self._to_predict(X)
        # A stored value that is not finite makes its score not finite: checking only scores takes half the time.
        scores = np.asarray(self._features(X, reset=False, finite=not issparse(X)) @ self.coef_)
        check_scores(scores, partial(self._reason, X))
        return scores

    def _reason(self, X: Any, row: int) -> str:
        """Why the score of a row is not finite, unless X is to blame, which is an error of its own."""
        rows = self._features(X, reset=False)[[row]]
        values = (rows.toarray() if hasattr(rows, "toarray") else rows)[0]
        column = int(np.argmax(np.abs(values) * np.abs(self.coef_)))
        name, coef = self._names()[column], self.coef_[column]
        return f"feature {name} is {values[column]}, too large for its coefficient, {coef}"

    def _scaled(self, rows: ListedRows) -> tuple[Any, Floats, npt.NDArray[np.bool_]]:
        """Features for the solvers, their scales, and which of them vary within lists."""
        found = scaled_features(rows.X, rows.offsets, rows.weights, standardise=self.standardise)
        if found.lost.any():
            lost = [name for name, is_lost in zip(self._names(), found.lost, strict=True) if is_lost]
            warnings.warn(
                f"no coefficient is learned for {_name_list(lost)}: within each list the numbers differ by no more "
                "than the rounding of float64. Subtract a constant before converting to float64",
                stacklevel=3,
            )
        return found.X, found.scale, found.varies

    def _names(self) -> list[str]:
        return self.feature_labels()

    def _evaluate(self, parts: Sequence[tuple[str, ListedRows]], coef: Floats) -> dict[str, dict[str, float]]:
        """Every metric of every evaluation set."""
        names = metric_names("eval_metric", self.eval_metric)
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
        raise DataError(problem, file=str(path), remedy="Save the model again")

    evals_result_: dict[str, Any]
    _STATE: tuple[str, ...]
    """The attributes that are stored with the coefficients."""

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


def _name_list(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def metric_of(name: str, rows: ListedRows, scores: Floats) -> float:
    """The weighted mean of a metric over lists."""
    return float(get_metric(name)(scores, rows.labels, offsets=rows.offsets, weights=rows.weights))


def _bias_of(positions: Positions | None, basis: Floats, b: Floats, covariance: Floats) -> PositionBias | None:
    """Biases from the coefficients of their differences, and the covariance of these, which may be empty."""
    if positions is None:
        return None
    known = basis @ covariance @ basis.T if covariance.size and np.isfinite(covariance).all() else None
    return make_position_bias(positions.values, basis @ b, known)


def linear_objectives() -> list[str]:
    """The names of objectives that `LinearRanker` takes."""
    return list(dict.fromkeys([*LIKELIHOODS, *loss_names("curvature")]))


def check_linear_objective(objective: Any) -> None:
    """A name, a `Loss` or a function."""
    if is_own_objective(objective):
        find_loss(objective)
    elif objective not in linear_objectives():
        names = ", ".join(linear_objectives())
        raise ValueError(f"objective must be one of {names}, or a function, got {objective!r}")


class LinearRanker(ClickRanker, LinearModel):
    """A linear score w^T x, fitted by maximum (penalised) likelihood.

    Minimises the sum over lists of weight times loss, plus l1 |b|_1 + l2 |b|^2 / 2 where b are the coefficients of the
    features as `standardise` leaves them. The likelihoods are concave in b (unless `top` falls inside a tier), so that
    there is one optimum; `fit` checks whether it was reached.

    Args:
        objective: "partition" (the exact likelihood of the tiers), "topk" (the same, refusing ties within the first
            `top` places), "listmle" (ties broken at random; l-ListMLE of the PLRank paper), "efron", "breslow",
            "lower_bound"; or one of the losses attrank, listnet, listpl, ranknet, ranksvm, approx_ndcg, which need
            torch and have no standard errors. Or a loss of your own: a function f(scores, labels, offsets, **options)
            -> one value per list, in torch and differentiable, or a `plackett.losses.Loss`; its gradient comes from
            autograd. A saved model holds the function's name only: to fit a loaded model again, pass the function by
            load(path, objective=f).
        top: count only the first `top` places; "auto": 10 for listmle, as in the paper, else all (None).
        l2, l1: penalties. l2 is the precision of a Gaussian prior; "auto": 1 for listmle, as in the paper, else 0.
        standardise: divide features by their standard deviation within lists for the penalties and the solver;
            `coef_` is on the scale of X in any case.
        solver: "lbfgs", or "newton-cg" (a trust region with exact Hessian products; not with l1).
        tol: largest component of the gradient, of the mean over lists, at convergence.
        max_iter: largest number of iterations of the solver.
        position_penalty: L2 penalty on the biases of positions, where `fit` is given any.
        inference: whether to compute the covariance of the coefficients, a features x features matrix; None: with up
            to 1,000 features.
        objective_options: options of the loss; for listmle bottom="unordered" leaves the last tier as it is.
        eval_metric: metrics of the `eval_set`.
        query_column: for DataFrames, the column with the list of each row.
        random_state: seed of the ties that listmle breaks and of the orders that listpl draws (once).

    Attributes:
        coef_: the coefficients; loss_: the loss without penalties, minus the log-likelihood where there is one;
        converged_, gradient_norm_, n_iter_; concave_: whether the optimum is the only one;
        covariance_, standard_errors_: the inverse of the observed information (including the prior's if l2 > 0) and
        the roots of its diagonal; infinite if the data do not determine a coefficient, NaN if there are none;
        position_bias_: the learned `plackett.data.PositionBias` with its standard errors; None without position.
    """

    saved_by_name: ClassVar[tuple[str, ...]] = ("objective",)
    parameter_kinds: ClassVar[Mapping[str, Check]] = {
        **LinearModel.parameter_kinds,
        "position_penalty": partial(check_range, least=0.0),
        "inference": or_none(check_flag),
        "objective_options": check_options,
    }

    def __init__(
        self,
        objective: Any = "partition",
        *,
        top: int | str | None = "auto",
        l2: float | str = "auto",
        l1: float = 0.0,
        standardise: bool = True,
        solver: str = "lbfgs",
        tol: float = 1e-6,
        max_iter: int = 1000,
        position_penalty: float = 1.0,
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
        self.position_penalty = position_penalty
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
        position: Any = None,
        examined: Any = None,
        item_weight: Any = None,
        eval_set: Any = None,
        eval_group: Any = None,
        eval_names: Any = None,
        **others: Any,
    ) -> Self:
        """Fit to rows with labels.

        Args:
            X, y: features and labels, higher is better; or X a RankingData. Or y a `PreferenceGraphs` whose entries are
                the rows of X and which holds lists and weights: the likelihood is then that of the graphs.
            qid, group: the list of each row, in any order, or sizes of consecutive lists. Without either all rows are
                one list, with a warning.
            sample_weight: one per row, constant within a list.
            position: where each row was shown, numbers or categories: the utility in training is score +
                bias[position]. Left out at prediction.
            examined: which rows were seen; the others are neither above nor below any row.
            item_weight: weight of each row within its list, such as an inverse propensity; only for the objectives
                lower_bound, attrank and listnet, without standard errors.
                `position`, `examined` and `item_weight` may also name a column of a DataFrame (docs/clicks.md).
            eval_set: RankingData, (X, y, qid) or a list of them, evaluated by `eval_metric` after the fit.
            eval_group, eval_names: the sizes of lists and the names of the evaluation sets, one entry for each.
        """
        refuse_others("fit", others)
        check_parameters(self)
        check_linear_objective(self.objective)
        check_item_weighting(self.objective, item_weight)
        l1, l2 = self._penalties()
        if isinstance(y, PreferenceGraphs):
            clicks = {"position": position, "examined": examined, "item_weight": item_weight}
            given = {"qid": qid, "group": group, "sample_weight": sample_weight}
            return self._fit_graphs(X, y, l2, eval_set, **given, **clicks)
        columns = self._click_columns(X, position, examined, item_weight)
        rows = self._with_clicks(self._training_rows(X, y, qid, group, sample_weight), columns)
        evaluation = list(self._evaluation_rows(eval_set, eval_group=eval_group, eval_names=eval_names))
        objective = self._objective(rows)
        features, scale, varies = self._scaled(rows)
        width, position_basis = len(scale), np.zeros((0, 0))
        if rows.positions is not None:
            features, position_basis = with_position_columns(features, rows.positions, rows.offsets)
        differences = position_basis.shape[1]
        varies = np.append(varies, np.ones(differences, bool))
        problem = LinearProblem(
            objective, features, rows.offsets, float(rows.weights.sum()), l1, l2, differences, self.position_penalty
        )
        max_iter = check_positive("max_iter", self.max_iter)
        coordinates = natural_coordinates(problem) if self._wants_inference(width) else None
        basis = None if coordinates is None else coordinates.basis
        b, self.n_iter_ = solve(problem, self.solver, _MARGIN * self.tol, max_iter, basis)
        b, covariance = self._conclude(problem, np.where(varies, b, 0.0), coordinates)
        b = np.where(varies, b, 0.0)
        self.coef_ = b[:width] / scale
        of_features = covariance[:width, :width]
        self.covariance_ = of_features / np.outer(scale, scale) if covariance.size else covariance
        self.position_bias_ = _bias_of(rows.positions, position_basis, b[width:], covariance[width:, width:])
        self.loss_ = objective.value_and_gradient(features @ b)[0]
        self.concave_ = objective.is_convex
        self.n_lists_ = len(rows.lists)
        self.evals_result_ = self._evaluate(evaluation, self.coef_)
        return self

    def _fit_graphs(self, X: Any, graphs: PreferenceGraphs, l2: float, eval_set: Any, **given: Any) -> Self:
        """The likelihood of graphs whose entries are the rows of X, by Monte Carlo EM."""
        top = None if self.top == "auto" else self.top
        check_graph_options(self.objective, {"l1": self.l1 or None, "top": top, **given})
        self._click_columns(X, None, None, None)
        rows = self._graph_rows(X, graphs)
        evaluation = list(self._evaluation_rows(eval_set))
        features, scale, varies = self._scaled(rows)
        objective = PartialOrderObjective(graphs.edges, graphs.offsets, graphs.weights, random_state=self.random_state)
        problem = GraphProblem(objective, features, np.full(len(scale), l2))
        max_iter = check_positive("max_iter", self.max_iter)
        b, residual, self.n_iter_, self.converged_ = solve_graphs(problem, np.zeros(len(scale)), self.tol, max_iter)
        self.coef_ = np.where(varies, b, 0.0) / scale
        size = len(scale) if self._wants_inference(len(scale)) else 0
        self.covariance_ = np.empty((size, size))
        if size:
            information = problem.information(b)
            found = inverse_information(information)
            unknown = np.diag(information) <= 1e-9 * max(float(np.diag(information).max()), 1e-300)
            found[unknown, unknown] = np.inf
            self.covariance_ = found / np.outer(scale, scale)
        self.loss_ = -problem.value(b)
        self.gradient_norm_ = float(np.abs(problem.gradient(b)[0]).max(initial=0.0) / graphs.weights.sum())
        self.concave_ = True
        self.position_bias_ = None
        self.n_lists_ = len(graphs)
        self.note_ = "" if objective.is_exact else f"sampled graphs add {residual:.0%} to standard errors"
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
            raise ValueError(
                "solver='newton-cg' needs second derivatives: l1 must be 0 and the objective a likelihood, got "
                f"l1={self.l1} and objective={self.objective!r}"
            )
        if not isinstance(self.tol, int | float | np.number) or not self.tol > 0.0:
            raise ValueError(f"tol must be a number above 0, got {self.tol!r}")
        return float(self.l1), float(l2)

    def _objective(self, rows: ListedRows) -> Objective:
        top = (_PAPER_TOP if self.objective == "listmle" else None) if self.top == "auto" else self.top
        options = dict(self.objective_options or {})
        lists = rows.labels, rows.offsets, rows.weights
        if rows.item_weights is not None:
            if self.solver == "newton-cg":
                raise ValueError("solver='newton-cg' needs second derivatives, which losses with item_weight lack")
            options["item_weights"] = rows.item_weights
        elif self.objective in LIKELIHOODS:
            unknown = sorted(set(options) - {"bottom"})
            if unknown:
                raise ValueError(f"objective_options of {self.objective!r} may hold bottom, got {', '.join(unknown)}")
            return make_likelihood(self.objective, *lists, top=top, random_state=self.random_state, **options)
        if top is not None:
            options["top"] = top
        seed = int(np.random.default_rng(self.random_state).integers(2**31))
        return LossObjective(self.objective, *lists, random_state=seed, redraw=False, **options)

    def _conclude(self, problem: LinearProblem, b: Floats, coordinates: Coordinates | None) -> tuple[Floats, Floats]:
        """The last steps to the optimum and the covariance there; sets the attributes about convergence."""
        wanted = self._wants_inference(len(b) - problem.positions)
        nothing = np.full((len(b), len(b)) if wanted else (0, 0), np.nan)
        covariance, trouble, self.note_ = nothing, None, ""
        reached = problem.gradient_norm(b) <= self.tol
        if not isinstance(problem.objective, TieredLikelihood):
            self.note_ = f"no standard errors: the loss {function_name(self.objective)!r} is not a likelihood"
        elif problem.l1 > 0.0:
            self.note_ = "no standard errors: they do not describe the effect of an L1 penalty"
        elif not reached:
            self.note_ = "no standard errors: the fit did not converge"
        elif coordinates is None:
            self.note_ = "no standard errors: not requested, see inference"
            if not problem.ridge.all():
                trouble = (
                    f"whether the estimate is finite was not checked for {len(b):,} features without a penalty: set l2 "
                    "or inference=True"
                )
        elif not problem.objective.is_convex:  # a maximum, perhaps one of several
            found = covariance_of(problem, b, coordinates)
            covariance = nothing if found is None else found
            self.note_ = "" if found is not None else "no standard errors: the information is not positive here"
        else:
            done = polish(problem, b, coordinates)
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
        names += ["positions"] * (len(parts) - len(names))
        involved = [names[i] for i in np.argsort(-parts) if parts[i] > 0.01]
        return (
            f"the estimate is infinite: a combination of {_name_list(involved)} never contradicts the labels, so the "
            "likelihood increases along it without bound (separation). The coefficients are where the solver stopped. "
            "Set l2 above 0, or leave features out"
        )

    # Inference

    @property
    def standard_errors_(self) -> Floats:
        """The standard errors of `coef_`."""
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
        parts = [f"{function_name(self.objective)}, {self.n_lists_:,} lists, {kind} {self.loss_:,.2f}", self.note_]
        if np.isinf(self.standard_errors_).any():
            parts.append("infinite standard errors: the data do not determine these coefficients")
        return "; ".join(part for part in parts if part)

    def confidence_intervals(self, level: float = 0.95) -> Floats:
        """(features, 2): lower and upper ends of confidence intervals, by the normal distribution."""
        return self.summary(level).intervals

    _STATE = ("n_iter_", "gradient_norm_", "converged_", "concave_", "loss_", "n_lists_", "note_", "evals_result_")

    def _save_state(self, folder: Path) -> dict[str, Any]:
        np.save(folder / COVARIANCE, self.covariance_)
        return super()._save_state(folder) | self._click_state()

    def _load_state(self, folder: Path, state: dict[str, Any]) -> None:
        if not is_function(self.objective):
            check_linear_objective(self.objective)
        super()._load_state(folder, state)
        self._load_click_state(state)
        size = self.n_features_in_ if self._wants_inference(self.n_features_in_) else 0
        self.covariance_ = self._read_array(folder / COVARIANCE, (size, size))
