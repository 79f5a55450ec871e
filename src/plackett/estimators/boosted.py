"""Gradient-boosted trees, grown by LightGBM, for every objective of `plackett.boosted`."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from plackett.arguments import check_count, check_range
from plackett.boosted.checkpoints import Checkpoint
from plackett.boosted.model_text import check_model_text
from plackett.boosted.objectives import (
    LIGHTGBM_OBJECTIVES,
    MCRANK,
    OBJECTIVES,
    check_objective,
    is_ours,
    make_objective,
)
from plackett.boosted.parameters import boosting_of, check_params, check_stored_params, not_stored, ruler_of_leaves
from plackett.boosted.threads import threads_to_fit, threads_to_predict
from plackett.boosted.training import (
    Boosting,
    LabelledRows,
    Machine,
    Settings,
    first_rounds,
    has_no_tree,
    import_lightgbm,
    read_booster,
)
from plackett.cluster import is_spread, map_rows
from plackett.errors import DataError
from plackett.estimators import parameters
from plackett.estimators.base import BaseRanker, ListedRows
from plackett.estimators.saved import TREES, field, hash_of, measures_from_json, measures_to_json
from plackett.fingerprint import fingerprint
from plackett.lists import check_positive

_OBJECTIVE_OPTIONS = ("top", "tier_weights", "n_permutations")


class BoostedRanker(BaseRanker):
    """Boosted trees for lists of items with graded, tied or partial feedback.

    Args:
        objective: what is learned. "partition" is the exact likelihood of tiers; "plrank" that of sampled orders (trees
            with the Plackett-Luce loss; not to be confused with PL-Rank of Oosterhuis 2021); "mart", "mart-gain",
            "c-mart", "cosmart", "c-cosmart", "klmart", "c-klmart", "mcrank"; "lambdamart" and "xendcg" of LightGBM;
            any loss of `plackett.losses`, and LightGBM's other objectives by name.
        n_estimators, learning_rate, num_leaves, max_depth, min_child_samples, subsample, subsample_freq,
            colsample_bytree, reg_lambda, reg_alpha, max_delta_step: as in LightGBM.
        leaves: "newton" puts the exact Newton step of the objective into each leaf, "lightgbm" keeps LightGBM's value.
            "auto" takes the former where the objective has it, unless monotone_constraints, path_smooth, linear_tree,
            dart or rf rule the leaves: then the latter, with a warning.
        top: partition and plrank: only the first `top` places count. None: all of them; 10 for plrank.
        tier_weights: partition: a weight for each tier, "gain" for the difference of 2^grade.
        n_permutations: plrank: how many orders of tied items to draw.
        objective_options: other options of the objective by name.
        early_stopping_rounds: stop when the first metric of the first evaluation set has not risen for so many rounds.
        eval_metric: metrics by name, such as "ndcg@10" or ["ndcg@10", "err"].
        monotone_constraints: -1, 0 or 1 for each feature.
        categorical_features: columns by number or name; pandas' own categories are found without it.
        query_column: for DataFrames, the column that says which list a row belongs to.
        lightgbm_params: parameters of LightGBM that have no argument here, by any of their names.
        n_jobs: threads of `fit` and `predict`, at most one per processor; -1: all of `plackett.get_num_threads`; None:
            as many of these as the size of the data is worth.
        random_state: the same seed and number of threads give the same model.
        progress: show a bar on a terminal.

    Attributes:
        booster_: the LightGBM model; after early stopping it ends with the best round.
        evals_result_: for every evaluation set and metric one value per round of this fit, also after the best.
        best_iteration_: the round that was best by the first metric of the first evaluation set, or None. It counts
            rounds of `booster_`, those of `init_model` included, as `num_iteration` of `predict` does.
        initial_iterations_: the rounds that `init_model` had.
        feature_importances_: the share of each feature in the gain of all splits.
    """

    defaults_with_validation: ClassVar[dict[str, Any]] = {"n_estimators": 1000, "early_stopping_rounds": 50}
    takes_categories: ClassVar[bool] = True
    parameter_kinds: ClassVar[Mapping[str, parameters.Check]] = {
        "n_estimators": check_positive,
        "learning_rate": parameters.above_zero,
        "num_leaves": partial(check_count, least=2),
        "max_depth": parameters.whole_number,
        "min_child_samples": partial(check_count, least=0),
        "subsample": parameters.share,
        "subsample_freq": parameters.whole_number,
        "colsample_bytree": parameters.share,
        "reg_lambda": partial(check_range, least=0.0),
        "reg_alpha": partial(check_range, least=0.0),
        "max_delta_step": partial(check_range, least=-math.inf),
        "n_permutations": check_positive,
        "objective_options": parameters.options,
        "early_stopping_rounds": parameters.or_none(partial(check_positive, otherwise=", or None")),
        "eval_metric": parameters.ranking_metrics,
        "monotone_constraints": parameters.or_none(parameters.sequence),
        "categorical_features": parameters.or_none(parameters.sequence),
        "lightgbm_params": parameters.options,
        "n_jobs": parameters.or_none(parameters.whole_number),
        "random_state": parameters.or_none(partial(check_count, least=0)),
        "progress": parameters.flag,
    }

    kinds_on_disk: ClassVar[Mapping[str, parameters.Check]] = {
        "lightgbm_params": check_stored_params,
        "n_jobs": parameter_kinds["n_jobs"],
    }

    def __init__(
        self,
        objective: str = "partition",
        *,
        n_estimators: int = 100,
        learning_rate: float = 0.1,
        num_leaves: int = 31,
        max_depth: int = -1,
        min_child_samples: int = 20,
        subsample: float = 1.0,
        subsample_freq: int = 1,
        colsample_bytree: float = 1.0,
        reg_lambda: float = 1.0,
        reg_alpha: float = 0.0,
        max_delta_step: float = 0.0,
        leaves: str = "auto",
        top: int | None = None,
        tier_weights: Any = None,
        n_permutations: int = 1,
        objective_options: dict[str, Any] | None = None,
        early_stopping_rounds: int | None = None,
        eval_metric: str | Sequence[str] = "ndcg@10",
        monotone_constraints: Any = None,
        categorical_features: Any = None,
        query_column: Any = None,
        lightgbm_params: dict[str, Any] | None = None,
        n_jobs: int | None = None,
        random_state: int | None = None,
        progress: bool = True,
    ) -> None:
        self.objective = objective
        self.n_estimators = n_estimators
        self.learning_rate = learning_rate
        self.num_leaves = num_leaves
        self.max_depth = max_depth
        self.min_child_samples = min_child_samples
        self.subsample = subsample
        self.subsample_freq = subsample_freq
        self.colsample_bytree = colsample_bytree
        self.reg_lambda = reg_lambda
        self.reg_alpha = reg_alpha
        self.max_delta_step = max_delta_step
        self.leaves = leaves
        self.top = top
        self.tier_weights = tier_weights
        self.n_permutations = n_permutations
        self.objective_options = objective_options
        self.early_stopping_rounds = early_stopping_rounds
        self.eval_metric = eval_metric
        self.monotone_constraints = monotone_constraints
        self.categorical_features = categorical_features
        self.query_column = query_column
        self.lightgbm_params = lightgbm_params
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.progress = progress

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
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
        init_model: Any = None,
        callbacks: Sequence[Any] = (),
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 50,
        client: Any = None,
    ) -> Self:
        """Fit to rows with labels.

        Args:
            X, y: features and labels, higher is better; or X a RankingData.
            qid, group: the list of each row, in any order, or sizes of consecutive lists. Neither: one list, with a
                warning.
            sample_weight: one per row, constant within a list.
            eval_set: RankingData, (X, y, qid) or a list of them.
            init_model: a fitted BoostedRanker or a LightGBM model to continue from.
            callbacks: LightGBM's callbacks, or functions of their kind.
            checkpoint: a file to keep the state in, every `checkpoint_every` rounds; if it exists, the training is
                taken up from there.
            client: train on the workers of a Dask cluster: a `distributed.Client`, or the address of its scheduler.
                The default one where X is a Dask array or DataFrame (docs/dask.md).
        """
        check_objective(self.objective)
        self._check_kinds()
        check_params(self.lightgbm_params or {})
        initial = _booster_of(init_model)
        if client is not None or is_spread(X):
            from plackett.cluster.boosted import fit_on_workers

            if callbacks or checkpoint is not None:
                raise ValueError("callbacks and checkpoint must not be given on Dask: continue a model by init_model")
            data = {"X": X, "y": y, "qid": qid, "group": group, "sample_weight": sample_weight}
            fitted = fit_on_workers(self, client, data, list(self._evaluation_sets(eval_set)), initial)
            for name, value in fitted.items():
                setattr(self, name, value)
        else:
            train = _labelled(self._training_rows(X, y, qid, group, sample_weight), "train")
            evaluation = [_labelled(part, set_name) for set_name, part in self._evaluation_rows(eval_set)]
            state = None
            if checkpoint is not None:
                state = Checkpoint(checkpoint, checkpoint_every, self._fingerprint(train, evaluation, initial))
            self._grow(train, evaluation, initial, Machine(), callbacks, state)
        if has_no_tree(self.booster_):
            warnings.warn(
                "no tree could be grown: lists without a preference, or too few rows for min_child_samples",
                stacklevel=2,
            )
        return self

    def _grow(
        self,
        train: LabelledRows,
        evaluation: Sequence[LabelledRows],
        init_model: Any,
        machine: Machine,
        callbacks: Sequence[Any] = (),
        checkpoint: Checkpoint | None = None,
    ) -> None:
        """Fit to the rows of one machine."""
        name = check_objective(self.objective)
        if self.early_stopping_rounds is not None and not evaluation:
            raise ValueError("early_stopping_rounds needs an eval_set, got none")
        seed = 0 if self.random_state is None else int(self.random_state)
        objective = None
        if is_ours(name):
            options = self._options(name, seed, machine)
            objective = make_objective(name, train.labels, train.offsets, train.weights, **options)
        self.gains_ = self._gains(name, train.labels, machine)
        params = self._parameters(name, objective, seed) | machine.params
        params["num_threads"] = threads_to_fit(self.n_jobs, train.X)
        if self.early_stopping_rounds is not None and boosting_of(params) == "dart":
            raise ValueError("early_stopping_rounds must be None with boosting='dart', which changes earlier trees")
        newton = self._uses_newton(name, objective, params)
        settings = Settings(
            params=params,
            rounds=self.n_estimators,
            newton=newton,
            metrics=parameters.metric_names("eval_metric", self.eval_metric),
            stopping_rounds=self.early_stopping_rounds,
            to_scores=self._to_scores,
            callbacks=callbacks,
            show_progress=self.progress,
            seed=seed,
            machine=machine,
        )
        dataset_options: dict[str, Any] = {"params": settings.params}
        if self.categorical_features is not None:
            dataset_options["categorical_feature"] = list(self.categorical_features)
        boosting = Boosting(train, evaluation, objective, settings, machine.dataset_options(dataset_options))
        try:
            with machine.connected():
                trained = boosting.run(init_model=init_model, checkpoint=checkpoint)
        except import_lightgbm().basic.LightGBMError as error:
            if "num_features()) > (0)" in str(error):
                raise ValueError(
                    f"X must have a feature that can be split, got none: {len(train.labels)} rows are too few for "
                    f"min_child_samples={self.min_child_samples}, or no feature varies"
                ) from None
            raise ValueError(f"LightGBM refuses the data or the parameters: {error}") from error
        self.booster_ = trained.booster
        self.evals_result_ = trained.history
        self.best_iteration_ = trained.best_round
        self.initial_iterations_ = trained.initial_rounds
        self._is_forest_ = boosting_of(params) == "rf"

    def _options(self, name: str, seed: int, machine: Machine) -> dict[str, Any]:
        """Options of the objective: those that were set, in so far as it knows them."""
        given = {"top": self.top, "tier_weights": self.tier_weights}
        options = {key: value for key, value in given.items() if value is not None}
        if name == "plrank":
            options |= {"n_permutations": self.n_permutations, "random_state": machine.row_draws(seed)}
        elif name not in OBJECTIVES:
            options["random_state"] = seed + machine.rank
        return options | (self.objective_options or {})

    def _uses_newton(self, name: str, objective: Any, params: dict[str, Any]) -> bool:
        if self.leaves not in ("auto", "newton", "lightgbm"):
            raise ValueError(f"leaves must be one of auto, newton, lightgbm, got {self.leaves!r}")
        possible = objective is not None and objective.has_newton_leaves
        if self.leaves == "newton" and not possible:
            raise ValueError(f"leaves='newton' needs an objective with Newton leaves, which {name!r} has not")
        if self.leaves == "lightgbm" or not possible:
            return False
        ruler = ruler_of_leaves(params)
        if ruler is not None and self.leaves == "newton":
            raise ValueError(f"leaves='newton' does not go with {ruler}, which needs LightGBM's own values of leaves")
        if ruler is not None:
            warnings.warn(
                f"leaves hold LightGBM's values, which {ruler} needs, not Newton steps: choose leaves='lightgbm'",
                stacklevel=4,
            )
        return ruler is None

    def _parameters(self, name: str, objective: Any, seed: int) -> dict[str, Any]:
        params: dict[str, Any] = {
            "learning_rate": self.learning_rate,
            "num_leaves": self.num_leaves,
            "max_depth": self.max_depth,
            "min_data_in_leaf": self.min_child_samples,
            "bagging_fraction": self.subsample,
            "bagging_freq": self.subsample_freq if self.subsample < 1.0 else 0,
            "feature_fraction": self.colsample_bytree,
            "lambda_l2": self.reg_lambda,
            "lambda_l1": self.reg_alpha,
            "max_delta_step": self.max_delta_step,
            "seed": seed,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
            "metric": "None",
        }
        if self.monotone_constraints is not None:
            params["monotone_constraints"] = self._constraints()
        if objective is None:
            params["objective"] = "multiclass" if name == MCRANK else LIGHTGBM_OBJECTIVES.get(name, name)
            if name == MCRANK:
                params["num_class"] = len(self.gains_ or [])
        chosen = check_params(self.lightgbm_params or {})
        if "force_col_wise" in chosen:
            del params["force_row_wise"]
        return params | chosen

    def _constraints(self) -> list[int]:
        constraints = [int(one) if one in (-1, 0, 1) else None for one in self.monotone_constraints]
        if len(constraints) != self.n_features_in_ or None in constraints:
            raise ValueError(
                f"monotone_constraints must hold -1, 0 or 1 for each of {self.n_features_in_} features, got "
                f"{list(self.monotone_constraints)}"
            )
        return [one for one in constraints if one is not None]

    def _gains(self, name: str, labels: npt.NDArray[np.float64], machine: Machine) -> list[float] | None:
        """mcrank: the gain 2^grade - 1 of each class."""
        if name != MCRANK:
            return None
        if labels.size == 0 or labels.min() < 0 or labels.max() > 60 or (labels != np.floor(labels)).any():
            raise ValueError("y must hold whole grades from 0 to 60 for the objective 'mcrank'")
        counts = machine.total(np.bincount(labels.astype(np.int64), minlength=61).astype(np.float64))
        highest = int(np.flatnonzero(counts).max())
        if highest == 0:
            raise ValueError("y must hold at least two grades for the objective 'mcrank', got 0 alone")
        return [float(2.0**grade - 1.0) for grade in range(highest + 1)]

    def _to_scores(self, predictions: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Predictions of the trees as scores: themselves, or the expected gain of mcrank's classes."""
        if self.gains_ is None:
            return predictions
        classes = predictions.reshape(len(self.gains_), -1).T if predictions.ndim == 1 else predictions
        # Class by class: the rounding of a matrix product depends on how many rows there are.
        return np.sum([gain * classes[:, grade] for grade, gain in enumerate(self.gains_)], axis=0)

    def _fingerprint(self, train: LabelledRows, evaluation: Sequence[LabelledRows], init_model: Any) -> str:
        parts: list[Any] = [{k: str(v) for k, v in self.get_params().items() if k not in ("n_estimators", "progress")}]
        for rows in (train, *evaluation):
            X = rows.X.to_numpy() if hasattr(rows.X, "iloc") else rows.X
            dense = isinstance(X, np.ndarray) and X.dtype != object
            parts += [X] if dense or hasattr(X, "indptr") else [str(X.tolist())]
            parts += [rows.labels, rows.offsets, rows.weights]
        if init_model is not None:
            parts.append(init_model.model_to_string(num_iteration=-1))
        return fingerprint(parts)

    # Using the model

    def _check_predict(self, X: Any) -> Any:
        check_is_fitted(self, "booster_")
        return self._features(self._to_predict(X), reset=False)

    def predict(self, X: Any, *, contributions: bool = False, num_iteration: int | None = None) -> Any:
        """The scores of rows; with `contributions` what each feature adds to them (SHAP values), the constant last.

        The first `num_iteration` rounds are used; None: all, which after early stopping end with the best. Of a Dask
        array or DataFrame the scores are a Dask array.
        """
        check_is_fitted(self, "booster_")
        if is_spread(X):
            predict = partial(self.predict, contributions=contributions, num_iteration=num_iteration)
            return map_rows(predict, X, self.n_features_in_ + 1 if contributions else None)
        features = self._check_predict(X)
        rounds = -1 if num_iteration is None else num_iteration
        if contributions:
            if self.gains_ is not None:
                raise ValueError("contributions are not defined for the objective 'mcrank'")
            try:
                found = self._run_trees(features, num_iteration=rounds, pred_contrib=True)
            except import_lightgbm().basic.LightGBMError as error:  # of linear trees
                raise ValueError(f"contributions are not to be had of this model: {error}") from error
            return np.asarray(found.toarray() if hasattr(found, "toarray") else found)
        raw = self.gains_ is None
        return self._to_scores(np.asarray(self._run_trees(features, num_iteration=rounds, raw_score=raw)))

    def _run_trees(self, features: Any, *, num_iteration: int, **options: Any) -> Any:
        rounds = self.booster_.current_iteration()
        rounds = min(rounds, num_iteration) if num_iteration > 0 else rounds
        trees = rounds * self.booster_.num_model_per_iteration()
        threads = threads_to_predict(self.n_jobs, features.shape[0], trees)
        found = self.booster_.predict(features, num_iteration=num_iteration, num_threads=threads, **options)
        # A random forest is the mean of its trees; LightGBM gives the sum of raw scores and of SHAP values.
        is_sum = self._is_forest_ and (options.get("raw_score") or options.get("pred_contrib"))
        return found / max(1, rounds) if is_sum else found

    def staged_predict(self, X: Any) -> Iterator[npt.NDArray[np.float64]]:
        """The scores after 1, 2, ... rounds."""
        features = self._check_predict(X)
        total = None
        for number in range(self.booster_.current_iteration()):
            step = np.asarray(self._run_trees(features, start_iteration=number, num_iteration=1, raw_score=True))
            total = step if total is None else total + step
            raw = total / (number + 1) if self._is_forest_ else total.copy()
            if self.gains_ is None:
                yield raw
            else:
                weights = np.exp(raw - raw.max(axis=1, keepdims=True))
                yield self._to_scores(weights / weights.sum(axis=1, keepdims=True))

    @property
    def feature_importances_(self) -> npt.NDArray[np.float64]:
        """The gain of all splits on each feature, as a share of the sum."""
        check_is_fitted(self, "booster_")
        gain = np.asarray(self.booster_.feature_importance("gain", iteration=-1), np.float64)
        return gain / gain.sum() if gain.sum() > 0 else gain

    def _stored_parameters(self) -> dict[str, Any]:
        stored = super()._stored_parameters()
        names = not_stored(stored["lightgbm_params"] or {})
        if names:
            warnings.warn(
                f"lightgbm_params {', '.join(names)}: about files and devices of this machine, not stored", stacklevel=3
            )
            stored["lightgbm_params"] = {k: v for k, v in stored["lightgbm_params"].items() if k not in names}
        return stored

    def _save_state(self, folder: Path) -> dict[str, Any]:
        path = folder / TREES
        text = self.booster_.model_to_string(num_iteration=-1)
        check_model_text(text, "the trained model")  # so that what is written can be read
        path.write_bytes(text.encode())
        return {
            "sha256": hash_of(path),
            "best_iteration": self.best_iteration_,
            "initial_iterations": self.initial_iterations_,
            "evals_result": measures_to_json(self.evals_result_),
            "gains": self.gains_,
        }

    def _load_state(self, folder: Path, state: dict[str, Any]) -> None:
        path = folder / TREES
        if hash_of(path) != state["sha256"]:
            raise DataError(
                "the trees are not those that were saved: cut off, changed, or of another model",
                file=str(path),
                remedy="Write the model anew",
            )
        text = path.read_bytes().decode()
        self.booster_ = read_booster(text, str(path))
        self._is_forest_ = "\naverage_output\n" in text.partition("\n\n")[0]
        self.best_iteration_ = field(state, "best_iteration", int, NoneType)
        self.initial_iterations_ = field({"initial_iterations": 0} | state, "initial_iterations", int)
        self.evals_result_ = measures_from_json(field(state, "evals_result", dict))
        self.gains_ = self._read_gains(field(state, "gains", list, NoneType))
        if self.booster_.num_feature() != self.n_features_in_:
            raise ValueError(f"trees of {self.booster_.num_feature()} features, expected {self.n_features_in_}")
        if self.best_iteration_ is not None and not 0 <= self.best_iteration_ <= self.booster_.current_iteration():
            raise ValueError(f"best_iteration must number one of the rounds, got {self.best_iteration_}")
        if not 0 <= self.initial_iterations_ <= self.booster_.current_iteration():
            raise ValueError(f"initial_iterations must be a number of rounds, got {self.initial_iterations_}")
        if self.early_stopping_rounds and self.best_iteration_:  # older models hold later rounds too
            self.booster_ = first_rounds(self.booster_, self.best_iteration_)

    def _read_gains(self, gains: list[Any] | None) -> list[float] | None:
        """Those of mcrank, one for each class of its trees. Other objectives have one class, and none."""
        classes = self.booster_.num_model_per_iteration()
        if gains is None:
            if classes != 1:
                raise ValueError(f"gains must hold a number for each of {classes} classes, got none")
            return None
        if classes < 2 or len(gains) != classes or not {type(gain) for gain in gains} <= {int, float}:
            raise ValueError(f"gains must hold a number for each of {classes} classes, of at least two")
        return [float(gain) for gain in gains]


def _labelled(rows: ListedRows, name: str) -> LabelledRows:
    return LabelledRows(rows.X, rows.labels, rows.offsets, rows.weights, name)


def _booster_of(model: Any) -> Any:
    if model is None:
        return None
    if isinstance(model, BoostedRanker):
        check_is_fitted(model, "booster_")
    booster = getattr(model, "booster_", model)
    if not hasattr(booster, "num_trees"):
        raise ValueError(f"init_model must be a BoostedRanker or a LightGBM model, got {type(model).__name__}")
    # LightGBM itself predicts with the best rounds of a model that it stopped early, and would continue from all.
    return first_rounds(booster, booster.best_iteration) if booster.best_iteration > 0 else booster
