"""CoordinateAscentRanker: a linear score that maximises a metric directly."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from plackett.arguments import Check, check_parameters, check_positive
from plackett.data.listed_rows import ListedRows
from plackett.estimators.lightgbm_arguments import refuse_others
from plackett.estimators.linear import LinearModel, metric_of
from plackett.linear.features import Floats
from plackett.linear.line_search import ascend, place_metric
from plackett.metrics.registry import check_metric


class CoordinateAscentRanker(LinearModel):
    """A linear score w^T x whose weights maximise a metric of the training lists, one weight at a time.

    Each weight goes to the best of all its values, which is found exactly from the points where the order of a list
    changes. Several ascents from different starts are compared; the first start weighs all features equally, the others
    are random directions.

    Args:
        objective: the metric: ndcg, err, map, mrr, p or recall, with a cut-off as in "ndcg@10" or without, tau-b or
            tau-x. Gains, thresholds and grades are the defaults of `plackett.metrics`.
        n_restarts: number of ascents.
        max_sweeps: largest number of sweeps over all features in each ascent.
        tol: an ascent ends when a sweep gains less.
        penalty: gain that a move must bring for each radian by which it turns the weight vector.
        standardise: divide features by their standard deviation within lists, for the starts and for measuring moves;
            `coef_` is on the scale of X in any case.
        eval_metric: metrics of the `eval_set`.
        query_column: for DataFrames, the column with the list of each row.
        random_state: seed of the starts and the order of features.

    Attributes:
        coef_: the weights; objective_value_: the metric of the training lists;
        restart_values_: the metric at the end of each ascent; n_iter_: number of sweeps to the chosen weights;
        evals_result_: the metrics of evaluation sets at the chosen weights.
    """

    parameter_kinds: ClassVar[Mapping[str, Check]] = {
        **LinearModel.parameter_kinds,
        "objective": check_metric,
    }

    def __init__(
        self,
        objective: str = "ndcg@10",
        *,
        n_restarts: int = 5,
        max_sweeps: int = 25,
        tol: float = 1e-4,
        penalty: float = 0.0,
        standardise: bool = True,
        eval_metric: str | Sequence[str] = "ndcg@10",
        query_column: Any = None,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.objective = objective
        self.n_restarts = n_restarts
        self.max_sweeps = max_sweeps
        self.tol = tol
        self.penalty = penalty
        self.standardise = standardise
        self.eval_metric = eval_metric
        self.query_column = query_column
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True  # labels are grades
        return tags

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        qid: Any = None,
        group: Any = None,
        sample_weight: Any = None,
        eval_set: Any = None,
        eval_group: Any = None,
        eval_names: Any = None,
        **others: Any,
    ) -> Self:
        """Fit to rows with labels.

        Args:
            X, y: features and labels, higher is better; or X a RankingData.
            qid, group: the list of each row, in any order, or sizes of consecutive lists. Without either all rows are
                one list, with a warning.
            sample_weight: one per row, constant within a list.
            eval_set: RankingData, (X, y, qid) or a list of them. The weights of the best sweep are kept, judged by the
                first metric of the first set; without a set, by the objective on the training lists.
            eval_group, eval_names: the sizes of lists and the names of the evaluation sets, one entry for each.
        """
        refuse_others("fit", others)
        check_parameters(self)
        for name, value in (("tol", self.tol), ("penalty", self.penalty)):
            if not isinstance(value, int | float | np.number) or not 0.0 <= value < np.inf:
                raise ValueError(f"{name} must be a finite number of at least 0, got {value!r}")
        sweeps = check_positive("max_sweeps", self.max_sweeps)
        rows = self._training_rows(X, y, qid, group, sample_weight)
        evaluation = list(self._evaluation_rows(eval_set, eval_group=eval_group, eval_names=eval_names))
        metric = place_metric(self.objective, rows.labels, rows.offsets, rows.weights)
        features, scale, varies = self._scaled(rows)
        generator = np.random.default_rng(self.random_state)
        self.restart_values_ = []
        best = -np.inf
        for number in range(check_positive("n_restarts", self.n_restarts)):
            start = np.where(varies, generator.standard_normal(len(scale)) if number else 1.0, 0.0)
            ascent = ascend(metric, features, varies, rows.offsets, start, generator, self.penalty)
            value, converged = metric_of(self.objective, rows, features @ start), False
            for sweep, weights in enumerate(islice(ascent, sweeps), 1):
                before, value = value, metric_of(self.objective, rows, features @ weights)
                converged = value - before < self.tol
                coef = weights / scale
                merit = self._merit(evaluation, coef, value)
                if merit > best:
                    best, self.coef_, self.n_iter_, self.objective_value_ = merit, coef, sweep, value
                if converged:
                    break
            self.restart_values_.append(value)
            if not converged:
                warnings.warn(
                    f"ascent {number + 1} still gained {value - before:.1e} in sweep {sweeps}: raise max_sweeps or tol",
                    ConvergenceWarning,
                    stacklevel=2,
                )
        self.evals_result_ = self._evaluate(evaluation, self.coef_)
        return self

    def _merit(self, evaluation: list[tuple[str, ListedRows]], coef: Floats, value: float) -> float:
        """The number by which sweeps are compared."""
        if not evaluation:
            return value
        (found,) = self._evaluate(evaluation[:1], coef).values()
        metric, merit = next(iter(found.items()))
        if np.isnan(merit):
            raise ValueError(f"eval_set must give at least one list a value of {metric}, got none")
        return merit

    _STATE = ("n_iter_", "objective_value_", "restart_values_", "evals_result_")
