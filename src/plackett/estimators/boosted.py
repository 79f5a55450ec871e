"""BoostedRanker: gradient-boosted trees, grown by LightGBM, for every objective of `plackett.boosted`."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted, validate_data

from plackett.arguments import (
    Check,
    check_above_zero,
    check_choice,
    check_count,
    check_flag,
    check_options,
    check_parameters,
    check_positive,
    check_range,
    check_sequence,
    check_share,
    check_text,
    check_whole_number,
    is_dask,
    or_none,
)
from plackett.boosted.fitting import TreeModel, TreePredictor, TreeSettings, fit_trees
from plackett.boosted.lightgbm_parameters import check_params, check_stored_params, not_stored
from plackett.boosted.model_text import check_model_text
from plackett.boosted.objectives import check_objective
from plackett.boosted.trainer import first_rounds, has_no_tree, import_lightgbm, read_booster
from plackett.boosted.tree_checkpoints import TreeCheckpoint
from plackett.data.hashes import fingerprint
from plackett.data.listed_rows import ListedRows
from plackett.data.positions import make_position_bias
from plackett.data.preference_graphs import PreferenceGraphs
from plackett.data.untrusted import field
from plackett.distributed import DaskRows, map_rows
from plackett.errors import DataError
from plackett.estimators.lightgbm_arguments import metrics_at, names_right_parameter, refuse_others
from plackett.estimators.persistence import TREES, hash_of, measures_from_json, measures_to_json
from plackett.estimators.ranker import ClickRanker, check_graph_options
from plackett.losses.registry import check_item_weighting, function_name, is_function
from plackett.metrics.registry import check_metrics
from plackett.objective import Floats

_LIGHTGBM_NAMES = ("boosting_type", "min_split_gain", "min_child_weight", "subsample_for_bin", "verbose")


class BoostedRanker(ClickRanker):
    """Boosted trees for lists of items with graded, tied or partial feedback.

    Args:
        objective: the loss to minimise. "partition" is the exact likelihood of tiers; "plrank" that of sampled orders
            (trees with the Plackett-Luce loss; not to be confused with PL-Rank of Oosterhuis 2021); "mart",
            "mart-gain", "c-mart", "cosmart", "c-cosmart", "klmart", "c-klmart", "mcrank"; "lambdamart" and "xendcg" of
            LightGBM; any loss of `plackett.losses` with a curvature, and LightGBM's other objectives by name.
            Or a loss of your own: a function f(scores, labels, offsets, **options) -> one value per list, in torch and
            differentiable, or a `plackett.losses.Loss`. Its gradient comes from autograd; without a `curvature` the
            second derivative of each row is 1 times the weight of its list. A saved model holds the function's name
            only: to fit a loaded model again, pass the function by load(path, objective=f). It works on Dask if the
            workers can unpickle the function.
        n_estimators, learning_rate, num_leaves, min_child_samples: as in LightGBM.
        leaves: "newton" puts the exact Newton step of the objective into each leaf, "lightgbm" keeps LightGBM's value.
            "auto" takes the former if the objective supports it, unless monotone_constraints, path_smooth, linear_tree,
            dart or rf need LightGBM's values: then the latter, with a warning.
        top: partition and plrank: only the first `top` places count. None: all of them; 10 for plrank.
        early_stopping_rounds: stop when the first metric of the first evaluation set has not improved for this many
            rounds.
        eval_metric: metrics by name, such as "ndcg@10" or ["ndcg@10", "err"].
        random_state: the same seed and number of threads give the same model.

    Other Args:
        max_depth, subsample, subsample_freq, colsample_bytree, reg_lambda, reg_alpha, max_delta_step: as in LightGBM.
        boosting_type, min_split_gain, min_child_weight, subsample_for_bin, verbose: as in LightGBM; None: its default,
            and no messages.
        importance_type: what `feature_importances_` counts, "gain" or "split".
        tier_weights: partition: a weight for each tier; "gain": the difference of 2^grade.
        n_permutations: plrank: number of orders of tied items to draw.
        objective_options: other options of the objective by name.
        position_penalty: L2 penalty on the biases of positions, where `fit` is given any.
        monotone_constraints: -1, 0 or 1 for each feature.
        categorical_features: columns by number or name; pandas' own categories are found without it.
        query_column: for DataFrames, the column with the list of each row.
        lightgbm_params: other parameters of LightGBM, by any of their names.
        n_jobs: threads of `fit` and `predict`, at most one per processor; -1: all of `plackett.get_num_threads`; None:
            as many of these as pay off for the size of the data.
        progress: show a bar on a terminal.

    Attributes:
        booster_: the LightGBM model; after early stopping it ends with the best round.
        evals_result_: for every evaluation set and metric one value per round of this fit, including those after the
            best.
        best_iteration_: the best round by the first metric of the first evaluation set, or None. It counts rounds of
            `booster_`, including those of `init_model`, as `num_iteration` of `predict` does.
        initial_iterations_: the number of rounds of `init_model`.
        feature_importances_: the share of each feature in the gain, or the number, of all splits.
        best_score_: every metric of every evaluation set at the best round, or at the last.
        position_bias_: the learned `plackett.data.PositionBias` at the last round of `booster_`; None without position.
    """

    defaults_with_validation: ClassVar[dict[str, Any]] = {"n_estimators": 1000, "early_stopping_rounds": 50}
    takes_categories: ClassVar[bool] = True
    saved_by_name: ClassVar[tuple[str, ...]] = ("objective",)
    parameter_kinds: ClassVar[Mapping[str, Check]] = {
        "n_estimators": check_positive,
        "learning_rate": check_above_zero,
        "num_leaves": partial(check_count, least=2),
        "max_depth": check_whole_number,
        "min_child_samples": partial(check_count, least=0),
        "subsample": check_share,
        "subsample_freq": check_whole_number,
        "colsample_bytree": check_share,
        "reg_lambda": partial(check_range, least=0.0),
        "reg_alpha": partial(check_range, least=0.0),
        "max_delta_step": partial(check_range, least=-math.inf),
        "boosting_type": or_none(check_text),
        "min_split_gain": or_none(partial(check_range, least=0.0)),
        "min_child_weight": or_none(partial(check_range, least=0.0)),
        "subsample_for_bin": or_none(check_positive),
        "importance_type": partial(check_choice, choices=("gain", "split")),
        "verbose": or_none(check_whole_number),
        "n_permutations": check_positive,
        "objective_options": check_options,
        "position_penalty": partial(check_range, least=0.0),
        "early_stopping_rounds": or_none(partial(check_positive, otherwise=", or None")),
        "eval_metric": check_metrics,
        "monotone_constraints": or_none(check_sequence),
        "categorical_features": or_none(check_sequence),
        "lightgbm_params": check_options,
        "n_jobs": or_none(check_whole_number),
        "random_state": or_none(partial(check_count, least=0)),
        "progress": check_flag,
    }

    kinds_on_disk: ClassVar[Mapping[str, Check]] = {
        "lightgbm_params": check_stored_params,
        "n_jobs": parameter_kinds["n_jobs"],
    }

    @names_right_parameter
    def __init__(
        self,
        objective: Any = "partition",
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
        boosting_type: str | None = None,
        min_split_gain: float | None = None,
        min_child_weight: float | None = None,
        subsample_for_bin: int | None = None,
        leaves: str = "auto",
        top: int | None = None,
        tier_weights: Any = None,
        n_permutations: int = 1,
        objective_options: dict[str, Any] | None = None,
        position_penalty: float = 1.0,
        early_stopping_rounds: int | None = None,
        eval_metric: str | Sequence[str] = "ndcg@10",
        monotone_constraints: Any = None,
        categorical_features: Any = None,
        query_column: Any = None,
        importance_type: str = "gain",
        lightgbm_params: dict[str, Any] | None = None,
        n_jobs: int | None = None,
        random_state: int | None = None,
        verbose: int | None = None,
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
        self.boosting_type = boosting_type
        self.min_split_gain = min_split_gain
        self.min_child_weight = min_child_weight
        self.subsample_for_bin = subsample_for_bin
        self.leaves = leaves
        self.top = top
        self.tier_weights = tier_weights
        self.n_permutations = n_permutations
        self.objective_options = objective_options
        self.position_penalty = position_penalty
        self.early_stopping_rounds = early_stopping_rounds
        self.eval_metric = eval_metric
        self.monotone_constraints = monotone_constraints
        self.categorical_features = categorical_features
        self.query_column = query_column
        self.importance_type = importance_type
        self.lightgbm_params = lightgbm_params
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
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
        position: Any = None,
        examined: Any = None,
        item_weight: Any = None,
        eval_set: Any = None,
        eval_group: Any = None,
        eval_names: Any = None,
        eval_sample_weight: Any = None,
        eval_metric: Any = None,
        eval_at: Any = None,
        init_model: Any = None,
        callbacks: Sequence[Any] | None = (),
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int = 50,
        client: Any = None,
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
                lower_bound, attrank and listnet.
                `position`, `examined` and `item_weight` may also name a column of a DataFrame (docs/clicks.md).
            eval_set: RankingData, (X, y, qid), or (X, y) with `eval_group`, or a list of them.
            eval_group, eval_names, eval_sample_weight: the sizes of lists, the names and the weights of the evaluation
                sets, one entry for each.
            eval_metric: replaces the parameter `eval_metric` in this fit.
            eval_at: cut-offs of these metrics: "ndcg" at (1, 5) is ndcg@1 and ndcg@5.
            init_model: a fitted BoostedRanker or a LightGBM model to continue from.
            callbacks: LightGBM's callbacks, or functions like them.
            checkpoint: a file that holds the state after every `checkpoint_every` rounds; if it exists, the training
                resumes from there.
            client: train on the workers of a Dask cluster: a `distributed.Client`, or the address of its scheduler.
                None: the default client if X is a Dask array or DataFrame (docs/dask.md).
        """
        refuse_others("fit", others)
        check_objective(self.objective)
        check_parameters(self)
        check_params(self._lightgbm_params())
        if item_weight is not None:
            check_item_weighting(self.objective, item_weight)
        initial = _booster_of(init_model)
        metrics = metrics_at(self.eval_metric if eval_metric is None else eval_metric, eval_at)
        settings = self._settings(metrics)
        about_sets = {"eval_group": eval_group, "eval_names": eval_names, "eval_sample_weight": eval_sample_weight}
        if client is not None or is_dask(X):
            if callbacks or checkpoint is not None:
                raise ValueError("callbacks and checkpoint are not supported on Dask: continue a model with init_model")
            if position is not None or examined is not None or item_weight is not None:
                raise ValueError("position, examined and item_weight are not supported on Dask: fit in memory")
            sets = self._evaluation_sets(eval_set, **about_sets)
            data = {"X": X, "y": y, "qid": qid, "group": group, "sample_weight": sample_weight}
            self._fit_on_workers(settings, client, initial, sets, data)
            self.row_columns_ = []
        else:
            graphs = y if isinstance(y, PreferenceGraphs) else None
            columns = self._click_columns(X, position, examined, item_weight)
            if graphs is None:
                train = self._with_clicks(self._training_rows(X, y, qid, group, sample_weight), columns)
            else:
                options = {"top": self.top, "tier_weights": self.tier_weights, "checkpoint": checkpoint}
                given = {"qid": qid, "group": group, "sample_weight": sample_weight}
                clicks = {"position": position, "examined": examined, "item_weight": item_weight}
                check_graph_options(self.objective, options | given | clicks)
                train = self._graph_rows(X, graphs)
            evaluation = [rows for _, rows in self._evaluation_rows(eval_set, **about_sets)]
            state = None
            if checkpoint is not None:
                state = TreeCheckpoint(checkpoint, checkpoint_every, self._fingerprint(train, evaluation, initial))
            model = fit_trees(
                settings,
                train,
                evaluation,
                init_model=initial,
                init_bias=_initial_bias(init_model, train),
                callbacks=callbacks or (),
                checkpoint=state,
                graphs=graphs,
            )
            self._take(model)
            bias = model.trees.bias
            if train.positions is not None and bias is not None:
                self.position_bias_ = make_position_bias(train.positions.values, bias)
        if has_no_tree(self.booster_):
            warnings.warn(
                "no tree could be grown: lists without a preference, or too few rows for min_child_samples",
                stacklevel=2,
            )
        return self

    def _settings(self, metrics: Sequence[str]) -> TreeSettings:
        given = {setting.name: getattr(self, setting.name) for setting in fields(TreeSettings)}
        return TreeSettings(**given | {"eval_metric": metrics, "lightgbm_params": self._lightgbm_params()})

    def _lightgbm_params(self) -> dict[str, Any]:
        """`lightgbm_params` and the parameters that have LightGBM's names."""
        named = {name: getattr(self, name) for name in _LIGHTGBM_NAMES if getattr(self, name) is not None}
        return named | (self.lightgbm_params or {})

    def _take(self, model: TreeModel) -> None:
        self.booster_, self.gains_, self._is_forest_ = model.trees.booster, model.gains, model.is_forest
        self.evals_result_ = model.trees.history
        self.best_iteration_ = model.trees.best_round
        self.initial_iterations_ = model.trees.initial_rounds
        self.position_bias_ = None

    def _fit_on_workers(
        self, settings: TreeSettings, client: Any, initial: Any, sets: Iterator[Any], data: dict[str, Any]
    ) -> None:
        from plackett.distributed.dask_boosted import fit_on_workers

        reader = clone(self)  # which learns names and number of features: a fit that fails leaves this model unchanged
        train = reader._rows_anywhere("train", data, reset=True)
        evaluation = [reader._rows_anywhere(name, given) for name, given in sets]
        model = fit_on_workers(settings, client, train, evaluation, initial)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(reader, name):
                setattr(self, name, getattr(reader, name))
        self._take(model)

    def _rows_anywhere(self, name: str, data: dict[str, Any], *, reset: bool = False) -> ListedRows | DaskRows:
        """Rows in memory, checked and listed; or rows on Dask, whose names and number of features are checked."""
        if not is_dask(data["X"]):
            return self._rows(**data, name=name, reset=reset)
        rows = DaskRows(**data, name=name).split_query(self.query_column)
        validate_data(self, rows.features_without_rows(), reset=reset, skip_check_array=True)
        return rows

    def _fingerprint(self, train: ListedRows, evaluation: Sequence[ListedRows], init_model: Any) -> str:
        """What a checkpoint and the training run that resumes it must have in common."""
        parameters = {k: str(v) for k, v in self.get_params().items() if k not in ("n_estimators", "progress")}
        if is_function(self.objective):  # its address in memory differs from run to run
            code = getattr(getattr(self.objective, "__code__", None), "co_code", b"")
            parameters["objective"] = f"{function_name(self.objective)} {code.hex()}"
        parts: list[Any] = [parameters]
        for rows in (train, *evaluation):
            X = rows.X.to_numpy() if hasattr(rows.X, "iloc") else rows.X
            dense = isinstance(X, np.ndarray) and X.dtype != object
            parts += [X] if dense or hasattr(X, "indptr") else [str(X.tolist())]
            parts += [rows.labels, rows.offsets, rows.weights]
            if rows.positions is not None:
                parts += [str(rows.positions.values.tolist()), rows.positions.codes]
            if rows.item_weights is not None:
                parts.append(rows.item_weights)
        if init_model is not None:
            parts.append(init_model.model_to_string(num_iteration=-1))
        return fingerprint(parts)

    # Using the model

    def _check_predict(self, X: Any) -> Any:
        check_is_fitted(self, "booster_")
        return self._features(self._to_predict(X), reset=False)

    def _predictor(self) -> TreePredictor:
        return TreePredictor(self.booster_, self.gains_, self._is_forest_, self.n_jobs)

    def predict(
        self,
        X: Any,
        *,
        contributions: bool = False,
        num_iteration: int | None = None,
        raw_score: bool = False,
        pred_leaf: bool = False,
        pred_contrib: bool = False,
        **others: Any,
    ) -> Any:
        """The scores of rows; with `contributions` the part of each feature in them (SHAP values), the constant last.

        The first `num_iteration` rounds are used; None: all, which after early stopping end with the best. For a Dask
        array or DataFrame the scores are a Dask array. LightGBM's `pred_contrib` is `contributions`, `pred_leaf` gives
        the leaf of each row in each tree, and `raw_score` changes nothing: scores are raw.
        """
        refuse_others("predict", others)
        check_is_fitted(self, "booster_")
        contributions = contributions or pred_contrib
        if raw_score and self.gains_ is not None:
            raise ValueError("raw_score must be False for the objective 'mcrank', whose scores are expected gains")
        if pred_leaf:
            return self._leaves(X, contributions, num_iteration)
        if is_dask(X):
            predict = partial(self.predict, contributions=contributions, num_iteration=num_iteration)
            return map_rows(predict, X, self.n_features_in_ + 1 if contributions else None)
        features = self._check_predict(X)
        rounds = -1 if num_iteration is None else num_iteration
        if not contributions:
            return self._predictor().scores(features, rounds)
        if self.gains_ is not None:
            raise ValueError("contributions are not defined for the objective 'mcrank'")
        try:
            return self._predictor().contributions(features, rounds)
        except import_lightgbm().basic.LightGBMError as error:  # with linear trees
            raise ValueError(f"this model cannot compute contributions: {error}") from error

    def _leaves(self, X: Any, contributions: bool, num_iteration: int | None) -> npt.NDArray[np.int32]:
        if contributions or is_dask(X):
            raise ValueError("pred_leaf needs rows in memory and cannot be combined with contributions")
        features = self._check_predict(X)
        return self._predictor().leaves(features, -1 if num_iteration is None else num_iteration)

    def staged_predict(self, X: Any) -> Iterator[npt.NDArray[np.float64]]:
        """The scores after 1, 2, ... rounds."""
        features = self._check_predict(X)
        yield from self._predictor().staged_scores(features)

    @property
    def feature_importances_(self) -> npt.NDArray[np.float64]:
        """The gain, or the number, of all splits on each feature, as a share of the sum; see `importance_type`."""
        check_is_fitted(self, "booster_")
        found = np.asarray(self.booster_.feature_importance(self.importance_type, iteration=-1), np.float64)
        return found / found.sum() if found.sum() > 0 else found

    @property
    def best_score_(self) -> dict[str, dict[str, float]]:
        """Every metric of every evaluation set at the best round, or at the last if no round is the best."""
        check_is_fitted(self, "booster_")
        best = -1 if self.best_iteration_ is None else self.best_iteration_ - self.initial_iterations_ - 1
        return {name: {metric: values[best] for metric, values in found.items()} for name, found in self._measured()}

    def _measured(self) -> Iterator[tuple[str, dict[str, list[float]]]]:
        """The evaluation sets with their metrics that have a value."""
        for name, found in self.evals_result_.items():
            yield name, {metric: values for metric, values in found.items() if values}

    @property
    def feature_name_(self) -> list[str]:
        """The names of the features."""
        check_is_fitted(self, "booster_")
        return list(getattr(self, "feature_names_in_", self.booster_.feature_name()))

    @property
    def n_features_(self) -> int:
        """The number of features."""
        check_is_fitted(self, "booster_")
        return int(self.n_features_in_)

    @property
    def n_estimators_(self) -> int:
        """The number of rounds of the model."""
        check_is_fitted(self, "booster_")
        return int(self.booster_.current_iteration())

    def export_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write the model for ONNX runtimes, in the standard operator TreeEnsemble (ai.onnx.ml 5).

        Input "features", float64 (rows, features); output "scores", float64 (rows,). Models with linear trees, with
        zero_as_missing or with pandas' categories cannot be written.
        """
        check_is_fitted(self, "booster_")
        from plackett.boosted.onnx_export import write_onnx

        write_onnx(path, self.booster_, self.gains_, self._is_forest_)

    def _stored_parameters(self) -> dict[str, Any]:
        stored = super()._stored_parameters()
        names = not_stored(stored["lightgbm_params"] or {})
        if names:
            warnings.warn(
                f"lightgbm_params {', '.join(names)} describe files and devices of this machine and are not stored",
                stacklevel=3,
            )
            stored["lightgbm_params"] = {k: v for k, v in stored["lightgbm_params"].items() if k not in names}
        return stored

    def _save_state(self, folder: Path) -> dict[str, Any]:
        path = folder / TREES
        text = self.booster_.model_to_string(num_iteration=-1)
        check_model_text(text, "the trained model")  # so that it can be read again
        path.write_bytes(text.encode())
        return {
            "sha256": hash_of(path),
            "best_iteration": self.best_iteration_,
            "initial_iterations": self.initial_iterations_,
            "evals_result": measures_to_json(self.evals_result_),
            "gains": self.gains_,
            **self._click_state(),
        }

    def _load_state(self, folder: Path, state: dict[str, Any]) -> None:
        if not is_function(self.objective):
            check_objective(self.objective)
        path = folder / TREES
        if hash_of(path) != state["sha256"]:
            raise DataError(
                "the trees differ from those that were saved: truncated, changed, or from another model",
                file=str(path),
                remedy="Save the model again",
            )
        text = path.read_bytes().decode()
        self.booster_ = read_booster(text, str(path))
        self._is_forest_ = "\naverage_output\n" in text.partition("\n\n")[0]
        self.best_iteration_ = field(state, "best_iteration", int, NoneType)
        self.initial_iterations_ = field({"initial_iterations": 0} | state, "initial_iterations", int)
        self.evals_result_ = measures_from_json(field(state, "evals_result", dict))
        self.gains_ = self._read_gains(field(state, "gains", list, NoneType))
        self._load_click_state(state)
        if self.booster_.num_feature() != self.n_features_in_:
            raise ValueError(f"the trees have {self.booster_.num_feature()} features, expected {self.n_features_in_}")
        if self.best_iteration_ is not None and not 0 <= self.best_iteration_ <= self.booster_.current_iteration():
            raise ValueError(f"best_iteration must be one of the rounds, got {self.best_iteration_}")
        if not 0 <= self.initial_iterations_ <= self.booster_.current_iteration():
            raise ValueError(f"initial_iterations must be a number of rounds, got {self.initial_iterations_}")
        if self.early_stopping_rounds and self.best_iteration_:  # older models hold later rounds as well
            self.booster_ = first_rounds(self.booster_, self.best_iteration_)

    def _read_gains(self, gains: list[Any] | None) -> list[float] | None:
        """The gains of mcrank, one for each class of its trees. Other objectives have one class and no gains."""
        classes = self.booster_.num_model_per_iteration()
        if gains is None:
            if classes != 1:
                raise ValueError(f"gains must hold a number for each of {classes} classes, got none")
            return None
        if classes < 2 or len(gains) != classes or not {type(gain) for gain in gains} <= {int, float}:
            raise ValueError(f"gains must hold a number for each of {classes} classes, of at least two")
        return [float(gain) for gain in gains]


def _booster_of(model: Any) -> Any:
    if model is None:
        return None
    if isinstance(model, BoostedRanker):
        check_is_fitted(model, "booster_")
    booster = getattr(model, "booster_", model)
    if not hasattr(booster, "num_trees"):
        raise ValueError(f"init_model must be a BoostedRanker or a LightGBM model, got {type(model).__name__}")
    # LightGBM predicts with the best rounds of a model that it stopped early, but would continue from all rounds.
    return first_rounds(booster, booster.best_iteration) if booster.best_iteration > 0 else booster


def _initial_bias(model: Any, train: ListedRows) -> Floats | None:
    """The biases of a model to continue from, at the positions of the training rows; 0 at those it does not know."""
    known = getattr(model, "position_bias_", None)
    if known is None or train.positions is None:
        return None
    found = dict(zip(known.positions.tolist(), known.bias.tolist(), strict=True))
    return np.array([found.get(value, 0.0) for value in train.positions.values.tolist()])
