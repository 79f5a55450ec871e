"""Fit boosted trees to listed rows, and compute their scores.

`fit_trees` takes plain `TreeSettings`, in memory and on the workers of Dask; `TreePredictor` is a fitted model.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.arguments import check_scores
from plackett.boosted.lightgbm_parameters import (
    boosting_of,
    check_params,
    reason_for_own_leaves,
    threads_to_fit,
    threads_to_predict,
)
from plackett.boosted.objectives import (
    LIGHTGBM_OBJECTIVES,
    MCRANK,
    check_objective,
    computes_gradients,
    is_in_table,
    prepare_objective,
)
from plackett.boosted.position_steps import PositionedObjective
from plackett.boosted.trainer import BoostedTrees, Boosting, LoopOptions, TrainingPeers, import_lightgbm
from plackett.boosted.tree_checkpoints import TreeCheckpoint
from plackett.data.listed_rows import ListedRows
from plackett.data.preference_graphs import PreferenceGraphs
from plackett.likelihood.partial_orders.order_objective import PartialOrderObjective
from plackett.losses.registry import function_name
from plackett.objective import Floats, Objective

Gains = list[float] | None
"""mcrank: the gain of each class. Other objectives have no classes."""


@dataclass(frozen=True)
class TreeSettings:
    """How to fit trees. `plackett.BoostedRanker` describes each setting under the same name."""

    objective: Any
    n_estimators: int
    learning_rate: float
    num_leaves: int
    max_depth: int
    min_child_samples: int
    subsample: float
    subsample_freq: int
    colsample_bytree: float
    reg_lambda: float
    reg_alpha: float
    max_delta_step: float
    leaves: str
    top: int | None
    tier_weights: Any
    n_permutations: int
    objective_options: dict[str, Any] | None
    position_penalty: float
    early_stopping_rounds: int | None
    eval_metric: Sequence[str]
    monotone_constraints: Any
    categorical_features: Any
    lightgbm_params: dict[str, Any] | None
    n_jobs: int | None
    random_state: int | None
    progress: bool

    @property
    def seed(self) -> int:
        return 0 if self.random_state is None else int(self.random_state)


@dataclass(frozen=True)
class TreeModel:
    """Fitted trees, the history of their training, and what turns their predictions into scores."""

    trees: BoostedTrees
    gains: Gains
    is_forest: bool


def fit_trees(
    settings: TreeSettings,
    train: ListedRows,
    evaluation: Sequence[ListedRows] = (),
    *,
    init_model: Any = None,
    init_bias: Floats | None = None,
    peers: TrainingPeers | None = None,
    callbacks: Sequence[Callable[..., Any]] = (),
    checkpoint: TreeCheckpoint | None = None,
    graphs: PreferenceGraphs | None = None,
) -> TreeModel:
    """Fit trees to the rows of this machine.

    Args:
        settings: see `TreeSettings`.
        train, evaluation: checked rows; the evaluation sets have different names.
        init_model: a LightGBM model to continue from.
        init_bias: biases of the positions of `train` to start from; None: zeros.
        peers: the machines that train together; None: this one only.
        callbacks: LightGBM's callbacks, or functions like them.
        checkpoint: where to keep the state and to resume from.
        graphs: the known preferences of the rows, in place of their labels.
    """
    check_objective(settings.objective)
    peers = TrainingPeers() if peers is None else peers
    if settings.early_stopping_rounds is not None and not evaluation:
        raise ValueError("early_stopping_rounds needs an eval_set, got none")
    objective: Objective | None = None
    if graphs is not None:
        objective = PartialOrderObjective(graphs.edges, graphs.offsets, graphs.weights, random_state=settings.seed)
    elif computes_gradients(settings.objective):
        options = _objective_options(settings, peers, train)
        objective = prepare_objective(settings.objective, train.labels, train.offsets, train.weights, options)
        if train.positions is not None:
            penalty = settings.position_penalty
            objective = PositionedObjective(objective, train.positions, train.offsets, penalty, init_bias)
    elif train.positions is not None:
        raise ValueError(
            f"position needs an objective whose gradients this package computes, got {settings.objective!r}, which "
            "LightGBM computes itself: choose partition, or pass position to lightgbm.Dataset"
        )
    gains = _class_gains(train.labels, peers) if settings.objective == MCRANK else None
    params = _parameters(settings, gains, train.X.shape[1]) | peers.params
    params["num_threads"] = threads_to_fit(settings.n_jobs, train.X)
    if settings.early_stopping_rounds is not None and boosting_of(params) == "dart":
        raise ValueError("early_stopping_rounds must be None with boosting='dart', which changes earlier trees")
    loop = LoopOptions(
        params=params,
        rounds=settings.n_estimators,
        newton=_uses_newton(settings, objective, params),
        metrics=settings.eval_metric,
        stopping_rounds=settings.early_stopping_rounds,
        to_scores=lambda predictions: scores_of_predictions(predictions, gains),
        callbacks=callbacks,
        show_progress=settings.progress,
        seed=settings.seed,
        peers=peers,
    )
    dataset_options: dict[str, Any] = {"params": params}
    if settings.categorical_features is not None:
        dataset_options["categorical_feature"] = list(settings.categorical_features)
    boosting = Boosting(train, evaluation, objective, loop, peers.dataset_options(dataset_options, train))
    try:
        with peers.connected():
            trees = boosting.run(init_model=init_model, checkpoint=checkpoint)
    except import_lightgbm().basic.LightGBMError as error:
        if "num_features()) > (0)" in str(error):
            raise ValueError(
                f"X must have a feature that can be split, got none: {len(train)} rows are too few for "
                f"min_child_samples={settings.min_child_samples}, or no feature varies"
            ) from None
        raise ValueError(f"LightGBM rejects the data or the parameters: {error}") from error
    return TreeModel(trees, gains, boosting_of(params) == "rf")


def _objective_options(settings: TreeSettings, peers: TrainingPeers, train: ListedRows) -> dict[str, Any]:
    """The options that were set, the weights of items, and the source of random numbers if the objective draws any."""
    given = {"top": settings.top, "tier_weights": settings.tier_weights}
    options = {key: value for key, value in given.items() if value is not None}
    if settings.objective == "plrank":
        options |= {"n_permutations": settings.n_permutations, "random_state": peers.row_draws(settings.seed)}
    elif not is_in_table(settings.objective):
        options["random_state"] = settings.seed + peers.rank
    if train.item_weights is not None:
        options["item_weights"] = train.item_weights
    return options | (settings.objective_options or {})


def _class_gains(labels: Floats, peers: TrainingPeers) -> list[float]:
    """mcrank: the gain 2^grade - 1 of each class."""
    odd = labels[~((labels >= 0) & (labels <= 60) & (labels == np.floor(labels)))]
    if labels.size == 0 or odd.size:
        got = f"{odd[0]:g}" if odd.size else "none"
        raise ValueError(f"y must hold whole-number grades from 0 to 60 for the objective 'mcrank', got {got}")
    counts = peers.total(np.bincount(labels.astype(np.int64), minlength=61).astype(np.float64))
    highest = int(np.flatnonzero(counts).max())
    if highest == 0:
        raise ValueError("y must hold a grade above 0 for the objective 'mcrank', got only 0")
    return [float(2.0**grade - 1.0) for grade in range(highest + 1)]


def _parameters(settings: TreeSettings, gains: Gains, features: int) -> dict[str, Any]:
    """LightGBM's parameters, by their main names."""
    params: dict[str, Any] = {
        "learning_rate": settings.learning_rate,
        "num_leaves": settings.num_leaves,
        "max_depth": settings.max_depth,
        "min_data_in_leaf": settings.min_child_samples,
        "bagging_fraction": settings.subsample,
        "bagging_freq": settings.subsample_freq if settings.subsample < 1.0 else 0,
        "feature_fraction": settings.colsample_bytree,
        "lambda_l2": settings.reg_lambda,
        "lambda_l1": settings.reg_alpha,
        "max_delta_step": settings.max_delta_step,
        "seed": settings.seed,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
        "metric": "None",
    }
    if settings.monotone_constraints is not None:
        params["monotone_constraints"] = _constraints(settings.monotone_constraints, features)
    if gains is not None:
        params |= {"objective": "multiclass", "num_class": len(gains)}
    elif not computes_gradients(settings.objective):
        params["objective"] = LIGHTGBM_OBJECTIVES.get(settings.objective, settings.objective)
    chosen = check_params(settings.lightgbm_params or {})
    if "force_col_wise" in chosen:
        del params["force_row_wise"]
    return params | chosen


def _constraints(given: Any, features: int) -> list[int]:
    constraints = [int(one) if one in (-1, 0, 1) else None for one in given]
    if len(constraints) != features or None in constraints:
        raise ValueError(
            f"monotone_constraints must hold -1, 0 or 1 for each of {features} features, got {list(given)}"
        )
    return [one for one in constraints if one is not None]


def _uses_newton(settings: TreeSettings, objective: Objective | None, params: dict[str, Any]) -> bool:
    """Whether leaves hold exact Newton steps rather than LightGBM's values."""
    leaves = settings.leaves
    if leaves not in ("auto", "newton", "lightgbm"):
        raise ValueError(f"leaves must be one of auto, newton, lightgbm, got {leaves!r}")
    possible = objective is not None and objective.has_newton_leaves
    if leaves == "newton" and not possible:
        name = function_name(settings.objective)
        raise ValueError(f"leaves must be auto or lightgbm: the objective {name!r} does not support Newton leaves")
    if leaves == "lightgbm" or not possible:
        return False
    reason = reason_for_own_leaves(params)
    if reason is not None and leaves == "newton":
        raise ValueError(f"leaves='newton' cannot be combined with {reason}, which needs LightGBM's own leaf values")
    if reason is not None:
        warnings.warn(
            f"leaves hold LightGBM's values, which {reason} needs, not Newton steps: set leaves='lightgbm'",
            stacklevel=4,
        )
    return reason is None


def scores_of_predictions(predictions: Floats, gains: Gains) -> Floats:
    """The predictions of trees as scores: unchanged, or the expected gain if they are probabilities of classes."""
    if gains is None:
        return predictions
    classes = predictions.reshape(len(gains), -1).T if predictions.ndim == 1 else predictions
    # Class by class, because the rounding of a matrix product depends on the number of rows.
    return np.asarray(np.sum([gain * classes[:, grade] for grade, gain in enumerate(gains)], axis=0))


@dataclass(frozen=True)
class TreePredictor:
    """A LightGBM model, the gains of its classes, whether it is a random forest, and the number of threads wanted."""

    booster: Any
    gains: Gains
    is_forest: bool
    n_jobs: int | None

    def scores(self, X: Any, rounds: int = -1) -> Floats:
        """The scores of rows by the first rounds; -1: all of them."""
        found = self._run(X, num_iteration=rounds, raw_score=self.gains is None)
        scores = scores_of_predictions(np.asarray(found), self.gains)
        check_scores(scores, lambda _: "the sum of its leaves, which for linear trees grow with X, is too large")
        return scores

    def contributions(self, X: Any, rounds: int = -1) -> Floats:
        """SHAP values, (rows, features + 1), the constant last."""
        found = self._run(X, num_iteration=rounds, pred_contrib=True)
        return np.asarray(found.toarray() if hasattr(found, "toarray") else found)

    def leaves(self, X: Any, rounds: int = -1) -> npt.NDArray[np.int32]:
        """The leaf of each row in each tree, (rows, trees)."""
        found = np.asarray(self._run(X, num_iteration=rounds, pred_leaf=True))
        return found.reshape(X.shape[0], -1).astype(np.int32)

    def staged_scores(self, X: Any) -> Iterator[Floats]:
        """The scores after 1, 2, ... rounds."""
        total = None
        for number in range(self.booster.current_iteration()):
            step = np.asarray(self._run(X, start_iteration=number, num_iteration=1, raw_score=True))
            total = step if total is None else total + step
            raw = total / (number + 1) if self.is_forest else total.copy()
            if self.gains is None:
                yield raw
            else:
                weights = np.exp(raw - raw.max(axis=1, keepdims=True))
                yield scores_of_predictions(weights / weights.sum(axis=1, keepdims=True), self.gains)

    def _run(self, X: Any, *, num_iteration: int, **options: Any) -> Any:
        rounds = self.booster.current_iteration()
        rounds = min(rounds, num_iteration) if num_iteration > 0 else rounds
        trees = rounds * self.booster.num_model_per_iteration()
        threads = threads_to_predict(self.n_jobs, X.shape[0], trees)
        found = self.booster.predict(X, num_iteration=num_iteration, num_threads=threads, **options)
        # A random forest is the mean of its trees, but LightGBM returns the sum of raw scores and of SHAP values.
        is_sum = self.is_forest and (options.get("raw_score") or options.get("pred_contrib"))
        return found / max(1, rounds) if is_sum else found
