"""ExtremeClassifier: from sparse features to very many labels."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from plackett.arguments import (
    Check,
    as_csr,
    as_numbers,
    as_rows,
    check_choice,
    check_flag,
    check_parameters,
    check_positive,
    check_range,
    check_same_index,
    is_checked,
    metric_names,
)
from plackett.data.containers import (
    Ballots,
    MultilabelData,
    RankingData,
    check_names,
    checked_tags,
    is_sparse,
    is_tags,
    label_matrix,
    learn_names,
    tag_matrix,
    without_grades,
)
from plackett.data.untrusted import field
from plackett.estimators.network_estimator import NeuralEstimator, find_processes, import_torch
from plackett.estimators.persistence import check_folder
from plackett.losses.registry import Loss, find_loss
from plackett.metrics import METRICS, MULTILABEL_METRICS, multilabel_ndcg

if TYPE_CHECKING:
    from plackett.losses.sparse_columns import Shard
    from plackett.neural import ExtremeNetwork
    from plackett.neural.extreme_fitting import ExtremeSettings

_SCORES_HELD = 1 << 24  # in one block of rows
_FEATURES_WITH_DENSE_GRADIENTS = 20_000


_NOT_CALIBRATED = "probabilities need a calibrated model: set calibrate=True and fit with validation rows"


def _is_calibrated(model: Any) -> bool:
    if not model.calibrate:
        raise AttributeError(_NOT_CALIBRATED)
    return True


def _check_metrics(name: str, value: Any) -> None:
    """Metrics of the best labels of each row, or of the ranking of all labels."""
    known = {**METRICS, **MULTILABEL_METRICS}
    for metric in metric_names(name, value):
        base, at, cutoff = metric.partition("@")
        check_choice(name, base, tuple(known))
        if at and not known[base].takes_k:
            raise ValueError(f"{name} must have no cut-off for {base}, got {metric!r}")
        if at and not re.fullmatch("[1-9][0-9]*", cutoff):
            raise ValueError(f"{name} must have a whole number of at least 1 after @, got {metric!r}")


class ExtremeClassifier(NeuralEstimator):
    """A network from sparse features to many labels, of which each row has a few, or to a ranking of all labels.

    The labels of a row form a tier above all others. If the values of `Y` differ, they are grades: labels of equal
    grade form a tier, and labels that a row does not have form the lowest tier.

    Args:
        objective: "partition", the exact likelihood of the tiers; "lower_bound", "ranknet", "ranksvm", "logistic" (one
            binary problem per label); for moderate numbers of labels any other loss of `plackett.losses`, or a function
            of your own, f(scores, labels, offsets, **options) -> one value per row, in torch, see
            `plackett.losses.own_loss`. It gets all labels of a row as a list.
        effort: "fast", "default" or "best" sets hidden_sizes, epochs and ensemble where they are None, according to the
            size of the data (docs/extreme.md has the table).
        hidden_sizes: sizes of the hidden layers; () is a linear model.
        epochs, batch_size: number of passes over all rows; rows per batch.
        negatives: number of labels to draw for each batch, with replacement, in place of all labels that its rows lack;
            None: use all of them, exactly.
        propensity: 1 learns scores for the propensity-scored metrics: labels are missing at random with the
            propensities of Jain et al. (2016), and the log propensity is added to the scores in training. 0 learns
            scores for the labels as observed. Values in between interpolate.
        skip: a path from the features to all labels, alongside the networks, fitted in closed form and added to their
            mean score (`plackett.neural.ridge_paths`): "linear", ridge regression, weighted by the shape of the data; a
            number, the same with that weight; "kernel", kernel ridge regression, which keeps the training rows in the
            model; None, no path. "auto": for the objectives partition and lower_bound, scaled features, labels without
            grades and a hidden layer, "linear" if it is small enough (docs/extreme.md has the limits), or for data of
            moderate size the better of "linear" and "kernel" on rows left out one by one.
        balance: how much the path raises rare labels: by their inverse propensity to this power. Lower values gain
            precision, higher ones the propensity-scored metrics. None: set by `effort`.
        regularizer: "glas" pulls the inner products of labels' weights towards their co-occurrence; "smoothing" softens
            the bottom tier; "mixup" trains on mixtures of rows; "tail" ranks the rare labels of a row above its others;
            None, no regularizer. `plackett.neural.regularizers` states their forms.
        ensemble: number of networks to train; scores are their mean.
        eval_metric: metrics such as "p@1", "ndcg@5", "psp@3", or "tau-x" and other ranking metrics.
        learning_rate, early_stopping_rounds, random_state: as in NeuralRanker.

    Other Args:
        objective_options: options of the objective by name.
        activation: relu, gelu, silu, tanh or elu.
        input_dropout, hidden_dropout: dropout of features and of hidden units.
        scaling: "norm" scales rows to the norm `input_scale`; "sqrt" first takes square roots, "tfidf" first weights
            columns by their rarity; "standard" gives dense columns zero mean and unit variance; "none" leaves them.
            "auto": "standard" for dense X; for sparse X "sqrt", or "norm" if it has negative values.
        input_scale: norm of scaled rows. The larger it is, the faster the first layer learns.
        negative_power: labels are drawn in proportion to (count + 1) to this power; 0: uniformly.
        regularizer_strength: the strength of the regularizer; None: 1 for glas, 0.05 for smoothing, 0.2 for mixup, 0.1
            for tail.
        label_shards: number of processes that share the output layer, each with a range of the labels, for objectives
            partition, lower_bound and logistic. Requires a process group whose size it divides. All processes then call
            `fit`, `predict_top`, `predict`, `score` and `save` together (docs/distributed.md).
        sparse_gradients: update only those rows of the first layer whose features occur in a batch. "auto": with more
            than 20,000 features.
        calibrate: fit probabilities of labels on the first validation set, for `predict_proba` and the threshold of
            `predict_tags`. Needs an eval_set or validation_fraction.
        precision: as in NeuralRanker; "auto": bfloat16 for an output layer of at least 262,144 weights on processors
            with instructions for it (AVX512_BF16, unless they have AMX too), otherwise float32.
        optimizer, optimizer_options, weight_decay, schedule, warmup, clip_norm, validation_fraction, compile, device,
            progress: as in NeuralRanker.

    Attributes:
        networks_, history_, best_epoch_, learning_rate_: see `NeuralEstimator`.
        n_labels_: number of labels.
        classes_: the names of the labels: tags, sorted, or `label_names` of `fit`; otherwise their numbers.
        recipe_: the hidden_sizes, epochs and ensemble that the effort sets for the data.
        path_: the path alongside the networks, a module from scaled features to the scores that are added, or None.
        calibration_: slope and intercept of the calibrated probabilities, or None.
    """

    networks_: list[Any]
    classes_: Any
    recipe_: dict[str, Any]
    path_: Any
    calibration_: tuple[float, float] | None
    other_parts: ClassVar[tuple[str, ...]] = ("scaling", "path")
    defaults_with_validation: ClassVar[dict[str, Any]] = {"early_stopping_rounds": 5}
    not_saved: ClassVar[tuple[str, ...]] = ("label_shards",)
    parameter_kinds: ClassVar[Mapping[str, Check]] = {
        **NeuralEstimator.parameter_kinds,
        "calibrate": check_flag,
        "eval_metric": _check_metrics,
    }

    def __init__(
        self,
        objective: str | Loss | Callable[..., Any] = "partition",
        *,
        effort: str = "default",
        objective_options: dict[str, Any] | None = None,
        hidden_sizes: Sequence[int] | None = None,
        activation: str = "relu",
        input_dropout: float = 0.3,
        hidden_dropout: float = 0.5,
        scaling: str = "auto",
        input_scale: float = 16.0,
        negatives: int | None = None,
        negative_power: float = 0.0,
        label_shards: int = 1,
        propensity: float = 0.0,
        skip: Any = "auto",
        balance: float | None = None,
        regularizer: str | None = None,
        regularizer_strength: float | None = None,
        sparse_gradients: Any = "auto",
        optimizer: str = "adamw",
        learning_rate: Any = 2e-3,
        weight_decay: float = 0.01,
        schedule: str = "linear",
        warmup: float = 0.0,
        clip_norm: float | None = None,
        epochs: int | None = None,
        batch_size: int = 256,
        early_stopping_rounds: int | None = None,
        eval_metric: str | Sequence[str] = "p@1",
        validation_fraction: float | None = None,
        ensemble: int | None = None,
        calibrate: bool = False,
        precision: str = "auto",
        compile: bool = False,  # noqa: A002 (torch's own name)
        device: str = "auto",
        optimizer_options: dict[str, Any] | None = None,
        random_state: int | None = None,
        progress: bool = True,
    ) -> None:
        self.objective = objective
        self.effort = effort
        self.objective_options = objective_options
        self.hidden_sizes = hidden_sizes
        self.activation = activation
        self.input_dropout = input_dropout
        self.hidden_dropout = hidden_dropout
        self.scaling = scaling
        self.input_scale = input_scale
        self.negatives = negatives
        self.negative_power = negative_power
        self.label_shards = label_shards
        self.propensity = propensity
        self.skip = skip
        self.balance = balance
        self.regularizer = regularizer
        self.regularizer_strength = regularizer_strength
        self.sparse_gradients = sparse_gradients
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.schedule = schedule
        self.warmup = warmup
        self.clip_norm = clip_norm
        self.epochs = epochs
        self.batch_size = batch_size
        self.early_stopping_rounds = early_stopping_rounds
        self.eval_metric = eval_metric
        self.validation_fraction = validation_fraction
        self.ensemble = ensemble
        self.calibrate = calibrate
        self.precision = precision
        self.compile = compile
        self.device = device
        self.optimizer_options = optimizer_options
        self.random_state = random_state
        self.progress = progress

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = False
        tags.input_tags.sparse = True
        return tags

    # Arguments

    def _rows(self, X: Any, *, reset: bool) -> Any:
        """Features, checked, as CSR or as a dense array."""
        if isinstance(X, MultilabelData):
            X = X.X
        if not reset and is_checked(X, self):
            return X
        checked: Any = validate_data(self, as_rows(X), reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32])
        return as_csr("X", checked) if is_sparse(checked) else checked

    def _data(self, X: Any, Y: Any, *, reset: bool = False) -> tuple[Any, csr_array]:
        if isinstance(X, MultilabelData):
            if Y is not None:
                raise ValueError("Y must be None when X is a MultilabelData, which holds it")
            X, Y = X.X, X.Y
        elif isinstance(X, RankingData | Ballots):
            raise ValueError(f"X must be rows with labels, got {type(X).__name__}")
        elif Y is None:
            raise ValueError(
                f"Y must be given: {type(self).__name__} requires y to be passed, but the target y is None"
            )
        check_same_index(X=X, Y=Y)
        rows = self._rows(X, reset=reset)
        return rows, label_matrix(self._matrix(Y, reset), rows.shape[0])

    def _matrix(self, Y: Any, reset: bool) -> Any:
        """Lists of tags as a matrix with a column for each name; a matrix as it is."""
        if not is_tags(Y):
            return Y
        rows = checked_tags("Y", Y)
        if reset:
            self.classes_ = learn_names(rows)
        elif self.classes_.dtype != object:
            raise ValueError("Y must be a matrix as in fit, got lists of tags: pass label_names to fit to name labels")
        return tag_matrix("Y", rows, self.classes_)

    def _learn_names(self, Y: Any, label_names: Any, count: int) -> None:
        """Set `classes_`, unless tags have."""
        self.n_labels_ = count
        if is_tags(Y):
            if label_names is not None:
                raise ValueError("label_names must be None when Y holds tags, which are the names")
        elif label_names is not None:
            self.classes_ = check_names("label_names", label_names, count)
        else:
            self.classes_ = np.arange(count)

    def _evaluation(self, eval_set: Any) -> dict[str, tuple[Any, csr_array]]:
        if eval_set is None:
            return {}
        sets = eval_set if isinstance(eval_set, list) else [eval_set]
        found = {}
        for number, given in enumerate(sets):
            pair = (given, None) if isinstance(given, MultilabelData) else given
            if not isinstance(pair, tuple) or len(pair) != 2:
                kind = type(given).__name__
                raise ValueError(f"eval_set must be MultilabelData, (X, Y) or a list of them, got {kind}")
            X, Y = self._data(*pair)
            if Y.shape[1] != self.n_labels_:
                raise ValueError(f"eval_set must have {self.n_labels_} labels like Y, got {Y.shape[1]}")
            found[f"valid_{number}" if len(sets) > 1 else "valid"] = X, Y
        return found

    def _settings(self) -> ExtremeSettings:
        from plackett.neural.extreme_fitting import ExtremeSettings

        own = {one.name: getattr(self, one.name) for one in fields(ExtremeSettings)}
        objective = find_loss(self.objective, form="sparse")
        return ExtremeSettings(**{**own, "objective": objective, "eval_metric": self._metrics})

    def _chosen(self, name: str) -> Any:
        given = getattr(self, name)
        if name == "precision" and given == "auto":
            from plackett.neural.extreme_fitting import fastest_precision
            from plackett.neural.networks import check_sizes

            sizes = check_sizes(self._chosen("hidden_sizes"))
            return fastest_precision(self._device(), sizes[-1] * self.n_labels_ if sizes else 0)
        return self.recipe_[name] if given is None else given

    def fit(
        self,
        X: Any,
        Y: Any = None,
        *,
        sample_weight: Any = None,
        label_names: Sequence[str] | None = None,
        eval_set: Any = None,
        callbacks: Sequence[Any] = (),
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
        resume: bool = True,
    ) -> Self:
        """Fit to rows with labels.

        Args:
            X: features, sparse or dense; or a MultilabelData, which contains X and Y.
            Y: (rows, labels). Sparse: the nonzero entries are a row's labels, their values grades, higher is better;
                all other labels, stored zeros included, rank below (docs/metrics.md has the rule). Dense: grades of all
                labels; NaN ranks below all others. For losses that use the size of grades (listnet, listpl, attrank,
                lambdarank, approx_ndcg) the lowest tier of graded rows has the grade min(0, lowest stored - 1).
                Or a list of tags (strings) for each row.
            label_names: the names of the labels, one per column of Y; for tags they are known.
            sample_weight: one per row.
            eval_set: MultilabelData, (X, Y) or a list of them; the first one decides.
            callbacks: functions of a `plackett.neural.Epoch`, called after each epoch; True ends training.
            checkpoint: folder for the training state, saved at most every `checkpoint_every` seconds.
            resume: resume from the checkpoint if there is one; False: start over.
        """
        import_torch("ExtremeClassifier")
        from plackett.neural.extreme_fitting import prepare_fit
        from plackett.neural.training import TaskMaker

        find_processes().agree(self._described_parameters())
        check_parameters(self)
        settings = self._settings()
        self._processes = find_processes(self.label_shards)
        rows, labels = self._data(X, Y, reset=True)
        self._learn_names(Y, label_names, int(labels.shape[1]))
        weights = _row_weights(sample_weight, rows.shape[0])
        evaluation = self._evaluation(eval_set)
        if not evaluation and self.validation_fraction is not None:
            kept, held = self._held_out(rows.shape[0], "rows")
            evaluation["valid"] = rows[held], labels[held]
            rows, labels, weights = rows[kept], labels[kept], weights[kept]
        if not weights.all():
            kept = np.flatnonzero(weights)
            rows, labels, weights = rows[kept], labels[kept], weights[kept]
        self._check_calibration(evaluation)
        device = self._device()
        prepared = prepare_fit(settings, rows, labels, weights, evaluation, self._shard(), device)
        self.recipe_, self.scaling_, self.path_ = prepared.recipe, prepared.scaling, prepared.path
        arrays = [array for pair in ((rows, labels), *evaluation.values()) for array in pair]
        self._train(
            TaskMaker(self._network_maker(), prepared.make_task, device),
            [*arrays, weights, rows.shape, labels.shape],
            has_validation=bool(evaluation),
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            resume=resume,
            callbacks=callbacks,
            processes=self._processes,
        )
        self.calibration_ = self._calibrated(*next(iter(evaluation.values()))) if self.calibrate else None
        return self

    def _check_calibration(self, evaluation: dict[str, Any]) -> None:
        if not self.calibrate:
            return
        if not evaluation:
            raise ValueError("calibrate needs an eval_set or validation_fraction, got neither")
        if self._is_sharded:
            raise ValueError("calibrate must be False with label_shards, got True: each process has some labels only")

    def _calibrated(self, rows: Any, labels: csr_array) -> tuple[float, float]:
        """Slope and intercept of the probabilities that fit these rows best."""
        from plackett.neural.calibration import fit_calibration

        has, size = without_grades(labels), max(1, _SCORES_HELD // self.n_labels_)
        starts = range(0, rows.shape[0], size)
        blocks = ((self.predict(rows[a : a + size]), has[a : a + size].toarray() > 0) for a in starts)
        found = fit_calibration(blocks)
        return found.slope, found.intercept

    def _scaled(self, X: Any) -> Any:
        """Scaled rows as CSR; as a tensor with scaling "standard"."""
        from plackett.neural.extreme_fitting import scaled_rows

        return scaled_rows(self.scaling_, X)

    def _shard(self) -> Shard:
        """The labels that this process holds."""
        found: Shard = self._processes.shard(self.n_labels_)
        return found

    def _network_maker(self) -> Callable[[], ExtremeNetwork]:
        from plackett.neural.networks import ExtremeNetwork

        sparse = self.sparse_gradients
        if sparse not in (True, False, "auto"):
            raise ValueError(f"sparse_gradients must be True, False or 'auto', got {sparse!r}")
        if sparse == "auto":
            sparse = self.n_features_in_ > _FEATURES_WITH_DENSE_GRADIENTS and self.scaling_.scaling != "standard"
        return partial(
            ExtremeNetwork,
            self.n_features_in_,
            self.n_labels_,
            self._chosen("hidden_sizes"),
            activation=self.activation,
            input_dropout=self.input_dropout,
            hidden_dropout=self.hidden_dropout,
            sparse_gradient=bool(sparse),
            sparse_output_gradient=self.negatives is not None,
            shard=self._shard(),
        )

    # Using the model

    def predict_top(self, X: Any, k: int = 5) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """The k best labels of each row and their scores, best first, (rows, k) each."""
        import_torch("predict_top")
        from plackett.neural.extreme_prediction import predict_top_labels
        from plackett.neural.small_work import threads_for

        k = check_positive("k", k)
        check_is_fitted(self, "networks_")
        if k > self.n_labels_:
            raise ValueError(f"k must be at most the number of labels, {self.n_labels_}, got {k}")
        with self._processes.guarded():
            rows = self._rows(X, reset=False)
            with threads_for(rows.shape[0], self.networks_):
                labels, scores = predict_top_labels(self.networks_, self._scaled(rows), k, self.path_)
            self._check_scores(scores, rows)
        return labels, scores

    @available_if(_is_calibrated)
    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """The probability that a row has each label, (rows, labels), calibrated on validation rows; see `calibrate`."""
        return self._probabilities(X)

    def _probabilities(self, X: Any) -> npt.NDArray[np.float64]:
        from plackett.neural.calibration import Calibration

        check_is_fitted(self, "networks_")
        if self.calibration_ is None:
            raise ValueError(_NOT_CALIBRATED)
        return Calibration(*self.calibration_).probabilities(self.predict(X))

    def predict_tags(self, X: Any, k: int | None = None, threshold: float | None = None) -> list[list[Any]]:
        """The labels of each row by name, best first.

        Args:
            X: features.
            k: number of labels per row.
            threshold: return labels with at least this probability (see `predict_proba`); with `k`, at most k of them.
        """
        if k is None and threshold is None:
            raise ValueError("predict_tags needs k or threshold, got neither")
        if threshold is None:
            return [list(self.classes_[row]) for row in self.predict_top(X, check_positive("k", k))[0]]
        check_range("threshold", threshold, 0.0, 1.0)
        most = self.n_labels_ if k is None else check_positive("k", k)
        found = []
        for row in self._probabilities(X):
            best = np.argsort(-row, kind="stable")[:most]
            found.append(list(self.classes_[best[row[best] >= threshold]]))
        return found

    def predict(self, X: Any) -> npt.NDArray[np.float32]:
        """The scores of all labels, (rows, labels). For many labels `predict_top` needs far less memory."""
        import_torch("predict")
        from plackett.neural.extreme_prediction import predict_scores
        from plackett.neural.small_work import threads_for

        check_is_fitted(self, "networks_")
        with self._processes.guarded():
            rows = self._rows(X, reset=False)
            with threads_for(rows.shape[0], self.networks_):
                scores = predict_scores(self.networks_, self._scaled(rows), self.path_)
            self._check_scores(scores, rows)
        return scores

    def rank(self, X: Any) -> npt.NDArray[np.int64]:
        """The rank of each label in each row, from 1, (rows, labels). Among equal scores the lower label is first."""
        scores = self.predict(X)
        order = np.argsort(-scores, axis=1, kind="stable")
        places = np.empty_like(order)
        np.put_along_axis(places, order, np.broadcast_to(np.arange(1, order.shape[1] + 1), order.shape), 1)
        return places

    def score(self, X: Any, Y: Any = None, *, sample_weight: Any = None) -> float:
        """nDCG@10 of the labels that rows have; with fewer than ten labels, at that number."""
        import_torch("score")
        rows, labels = self._data(X, Y)
        weights = _row_weights(sample_weight, rows.shape[0])
        k = min(10, self.n_labels_)
        values = multilabel_ndcg(self.predict_top(rows, k)[0], without_grades(labels), k=k, reduction="none")
        return float(np.average(values, weights=weights))

    def export_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write the complete model, with feature scaling and ensemble, for ONNX runtimes.

        Input "features", float32 (rows, features), dense; output "scores", float32 (rows, labels).
        """
        check_is_fitted(self, "networks_")
        if self._is_sharded:
            raise ValueError("export_onnx requires a model without shards: save it, then load it in one process")
        self._export(path, lambda network, x: network.scores(x), self.path_)

    # Models on disk

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as a folder, completely or not at all. With label_shards all processes call this together.

        The files do not depend on the number of shards: `load(path)` loads the complete model, and
        `load(path, label_shards=2)` in two processes loads half of the labels in each.
        """
        check_is_fitted(self, "networks_")
        if not self._is_sharded:
            super().save(path)
            return
        from plackett.neural.tensor_files import write_together

        name, tensors = self._processes.from_first(lambda: _temporary_file(check_folder(path))), self._tensors()
        write_together(name, tensors, {}, self._shards(tensors), self._processes)
        self._written = name
        try:
            self._processes.from_first(lambda: self._processes.is_first and super(ExtremeClassifier, self).save(path))
        finally:
            del self._written
            name.unlink(missing_ok=True)

    def _write_weights(self, path: Path) -> None:
        if self._is_sharded:
            self._written.rename(path)
        else:
            super()._write_weights(path)

    @property
    def _is_sharded(self) -> bool:
        return bool(self._processes.shards > 1)

    def _shards(self, names: Iterable[str]) -> dict[str, Shard]:
        if not self._is_sharded:
            return {}
        held = ("output.weight", "output.bias")
        of_path = ("path.weight", "path.bias", "path.shift")
        is_held = {name: name.partition(".")[2] in held or name in of_path for name in names}
        return {name: self._shard() for name, holds in is_held.items() if holds}

    @classmethod
    def load(cls, path: str | os.PathLike[str], **parameters: Any) -> Self:
        """Read a model that `save` wrote. With label_shards all processes call this together."""
        import_torch("ExtremeClassifier")
        find_processes(parameters.get("label_shards", 1))  # raise here: the error does not concern the file
        return super().load(path, **parameters)

    def _load_state(self, folder: Path, state: dict[str, Any]) -> None:
        self._processes = find_processes(self.label_shards)
        about = field(state, "about", dict)
        self.n_labels_ = check_positive("labels", about["labels"])
        self.recipe_ = field(about, "recipe", dict) if "recipe" in about else {}  # older models have none
        self.calibration_ = _read_calibration(about.get("calibration"))
        super()._load_state(folder, state)  # refuses a number of labels that is not that of the weights
        names = about.get("names")  # older models have none
        self.classes_ = np.arange(self.n_labels_) if names is None else check_names("names", names, self.n_labels_)

    def _other_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        from plackett.neural.checkpoints import add_prefix

        about = {
            "labels": self.n_labels_,
            "features": self.n_features_in_,
            "scaling": self.scaling_.scaling,
            "recipe": self.recipe_,
        }
        if self.classes_.dtype == object:
            about["names"] = self.classes_.tolist()
        if self.calibration_ is not None:
            about["calibration"] = list(self.calibration_)
        tensors = add_prefix("scaling", self.scaling_.state_dict())
        if self.path_ is not None:
            about["path"] = True
            if hasattr(self.path_, "points"):
                about["points"] = self.path_.points.shape[1]
            weights = self.path_.state_dict()  # on disk labels are rows, so that a shard is a range of them
            tensors |= add_prefix("path", {**weights, "weight": weights["weight"].T.contiguous()})
        return tensors, about

    def _set_other_state(self, tensors: dict[str, Any], about: dict[str, Any]) -> None:
        import torch

        from plackett.neural import check_weights, set_weights
        from plackett.neural.checkpoints import strip_prefix
        from plackett.neural.extreme_fitting import make_scaling
        from plackett.neural.ridge_paths import KernelPath, LinearPath

        path: LinearPath | KernelPath | None = None
        weights = strip_prefix("path", tensors)
        form = self._shard().width, "shift" in weights  # older models have none
        with torch.device("meta"):
            scaling: Any = make_scaling(about["scaling"], about["features"], self.input_scale)
            if "points" in about:
                path = KernelPath(about["features"], check_positive("points", about["points"]), *form)
            elif about.get("path"):
                path = LinearPath(about["features"], *form)
        self.scaling_ = scaling.restore(strip_prefix("scaling", tensors))
        if len(getattr(scaling, "indicated", ())):
            raise ValueError("scaling must add no columns for missing values, which this model does not take")
        self.path_ = path
        if path is not None:
            set_weights(path, {**weights, "weight": weights["weight"].T.contiguous()})
            check_weights(path)
            self.path_ = path.to(self._device())


def _read_calibration(stored: Any) -> tuple[float, float] | None:
    if stored is None:
        return None
    if not isinstance(stored, list) or len(stored) != 2:
        raise ValueError(f"calibration must hold slope and intercept, got {stored!r}")
    slope, intercept = (check_range("calibration", value, -1e150, 1e150) for value in stored)
    return slope, intercept


def _temporary_file(path: Path) -> Path:
    """A temporary file, to be moved into the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.weights")


def _row_weights(sample_weight: Any, rows: int) -> npt.NDArray[np.float64]:
    if sample_weight is None:
        return np.ones(rows)
    weights = as_numbers("sample_weight", sample_weight)
    if weights.shape != (rows,):
        raise ValueError(f"sample_weight must hold one value for each of the {rows} rows, got {weights.shape}")
    if not (np.isfinite(weights) & (weights >= 0.0)).all() or not weights.any():
        raise ValueError("sample_weight must be finite, at least 0, and not zero everywhere")
    return weights
