"""Classifiers from sparse features to very many labels."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse
from sklearn.utils.validation import check_is_fitted, validate_data

from plackett.arguments import as_array, as_csr, as_numbers, check_exact, check_same_index
from plackett.data.containers import Ballots, MultilabelData, RankingData, without_zeros
from plackett.estimators.base import as_rows
from plackett.estimators.neural_base import NeuralEstimator, check_objective_options, import_torch
from plackett.estimators.saved import check_folder, field
from plackett.lists import IntArray, check_positive
from plackett.metrics import MULTILABEL_METRICS, get_metric, inverse_propensity, multilabel_ndcg

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from plackett.losses.sharded import Shard

OBJECTIVES = ("partition", "lower_bound", "ranknet", "ranksvm", "logistic")
"""Objectives that need only the labels a row has. Others of `plackett.losses` go through a table of rows x labels."""

SCALINGS = ("auto", "norm", "tfidf", "standard", "none")
_FUSED = ("partition", "lower_bound")
_SHARDED = (*_FUSED, "logistic")
_ROWS_AT_ONCE = 1024
_SCORES_HELD = 1 << 24  # beyond, the output layer and the loss are fused
_FEATURES_WITH_DENSE_GRADIENTS = 20_000
_NAN_SCORES = "scores must be numbers to be ranked, got NaN: X may hold numbers that are too large for float32"


class ExtremeClassifier(NeuralEstimator):
    """A network from sparse features to many labels, of which each row has a few; or to a ranking of all labels.

    Each row's labels are a tier above all others. If `Y` carries grades, the stored values, equal grades are tiers, and
    labels that a row does not have are the lowest tier.

    Args:
        objective: "partition", the exact likelihood of the tiers; "lower_bound", "ranknet", "ranksvm", "logistic" (each
            label by itself); or, for moderate numbers of labels, any other loss of `plackett.losses`.
        objective_options: its options by name.
        hidden_sizes: units of the hidden layers; () is a linear model.
        activation: relu, gelu, silu, tanh or elu.
        input_dropout, hidden_dropout: shares of features and of hidden units dropped in training.
        scaling: "norm" scales rows to the norm `input_scale`, "tfidf" weights columns by their rarity first, "standard"
            gives dense columns zero mean and unit variance, "none" leaves them. "auto": "norm" for sparse X, "standard"
            for dense X.
        input_scale: how large rows are; the first layer learns the faster, the larger they are.
        negatives: how many labels to draw for each batch, with replacement, to stand for all that its rows do not have;
            None: all of them, exactly.
        negative_power: labels are drawn in proportion to (count + 1) to this power; 0: evenly.
        label_shards: how many processes share the output layer, each with its part of the labels, for objectives
            partition, lower_bound and logistic; inside a process group whose number of processes it divides. `fit`,
            `predict_top`, `predict`, `score` and `save` are then called by all processes alike (docs/distributed.md).
        propensity: 1 learns scores for the propensity-scored metrics: labels are missing at random with the
            propensities of Jain et al. (2016), and the model is fitted to what is seen by adding log propensity to the
            scores in training. 0: scores for what is seen. Between: in between.
        sparse_gradients: update only those rows of the first layer whose features occur in a batch. "auto": with more
            than 20,000 features.
        ensemble: how many networks to train; scores are their mean. Two by default, which is worth half a point of
            precision at twice the time: set 1 where time is short.
        optimizer, learning_rate, weight_decay, schedule, warmup, clip_norm, early_stopping_rounds, validation_fraction,
            precision, compile, device, optimizer_options, random_state, progress: as in NeuralRanker.
        epochs, batch_size: how often all rows are seen, and how many at a time.
        eval_metric: such as "p@1", "ndcg@5", "psp@3", or "tau-x" and others of rankings.

    Attributes:
        networks_, history_, best_epoch_, learning_rate_: see `NeuralEstimator`. n_labels_: how many labels there are.
    """

    networks_: list[Any]
    defaults_with_validation: ClassVar[dict[str, Any]] = {"early_stopping_rounds": 5}
    not_saved: ClassVar[tuple[str, ...]] = ("label_shards",)

    def __init__(
        self,
        objective: str = "partition",
        *,
        objective_options: dict[str, Any] | None = None,
        hidden_sizes: Sequence[int] = (1024,),
        activation: str = "relu",
        input_dropout: float = 0.3,
        hidden_dropout: float = 0.5,
        scaling: str = "auto",
        input_scale: float = 16.0,
        negatives: int | None = None,
        negative_power: float = 0.0,
        label_shards: int = 1,
        propensity: float = 0.0,
        sparse_gradients: Any = "auto",
        optimizer: str = "adamw",
        learning_rate: Any = 2e-3,
        weight_decay: float = 0.01,
        schedule: str = "linear",
        warmup: float = 0.0,
        clip_norm: float | None = None,
        epochs: int = 20,
        batch_size: int = 256,
        early_stopping_rounds: int | None = None,
        eval_metric: str | Sequence[str] = "p@1",
        validation_fraction: float | None = None,
        ensemble: int = 2,
        precision: str = "float32",
        compile: bool = False,  # noqa: A002 (torch's own name)
        device: str = "auto",
        optimizer_options: dict[str, Any] | None = None,
        random_state: int | None = None,
        progress: bool = True,
    ) -> None:
        self.objective = objective
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
        """Features as CSR or as a dense array, whole and finite."""
        if isinstance(X, MultilabelData):
            X = X.X
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
        return rows, labels_of(Y, rows.shape[0])

    def _evaluation(self, eval_set: Any) -> dict[str, tuple[Any, csr_array]]:
        if eval_set is None:
            return {}
        several = eval_set if isinstance(eval_set, list) else [eval_set]
        found = {}
        for number, one in enumerate(several):
            if isinstance(one, MultilabelData):
                one = one, None
            if not isinstance(one, tuple) or len(one) != 2:
                raise ValueError(f"eval_set must be MultilabelData, (X, Y) or a list of them, got {type(one).__name__}")
            X, Y = self._data(*one)
            if Y.shape[1] != self.n_labels_:
                raise ValueError(f"eval_set must have {self.n_labels_} labels as Y has, got {Y.shape[1]}")
            found[f"valid_{number}" if len(several) > 1 else "valid"] = X, Y
        return found

    def _objective(self) -> tuple[str, dict[str, Any]]:
        from plackett import losses
        from plackett.losses import LOSSES

        if self.objective not in (*OBJECTIVES, *LOSSES):
            known = ", ".join(dict.fromkeys((*OBJECTIVES, *LOSSES)))
            raise ValueError(f"objective must be one of {known}, got {self.objective!r}")
        if self.negatives is not None:
            check_positive("negatives", self.negatives, ", or None")
            if self.objective not in _FUSED:
                raise ValueError(f"negatives go with the objectives {', '.join(_FUSED)}, got {self.objective!r}")
            if not self.hidden_sizes:
                raise ValueError("negatives need a hidden layer, got hidden_sizes=()")
        if check_positive("label_shards", self.label_shards) > 1:
            if self.objective not in _SHARDED:
                raise ValueError(f"label_shards go with the objectives {', '.join(_SHARDED)}, got {self.objective!r}")
            if not self.hidden_sizes:
                raise ValueError("label_shards need a hidden layer, got hidden_sizes=()")
            if self.precision == "float16":  # each shard would scale its gradients by itself
                raise ValueError("label_shards go with the precisions float32 and bfloat16, got 'float16'")
        for name in ("negative_power", "propensity"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not np.isfinite(value):
                raise ValueError(f"{name} must be a number, got {value!r}")
        function = getattr(losses, f"sparse_{self.objective}_loss", None) or LOSSES[self.objective].function
        return self.objective, check_objective_options(self.objective, function, self.objective_options)

    def _scaling_of(self, X: Any) -> str:
        if self.scaling not in SCALINGS:
            raise ValueError(f"scaling must be one of {', '.join(SCALINGS)}, got {self.scaling!r}")
        if self.scaling == "standard" and is_sparse(X):
            raise ValueError("scaling='standard' needs dense X, for it would make sparse X dense; got sparse X")
        if self.scaling == "auto":
            return "norm" if is_sparse(X) else "standard"
        return self.scaling

    def fit(
        self,
        X: Any,
        Y: Any = None,
        *,
        sample_weight: Any = None,
        eval_set: Any = None,
        callbacks: Sequence[Any] = (),
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
        resume: bool = True,
    ) -> Self:
        """Fit to rows with labels.

        Args:
            X: features, sparse or dense; or a MultilabelData, which holds both.
            Y: (rows, labels). Sparse: the entries other than zero are a row's labels and their values grades, higher is
                better; all other labels, with a stored zero or without one, come below (docs/metrics.md has the rule).
                Dense: grades of all labels, NaN below all others. To losses that go by the size of grades
                (listnet, listpl, attrank, lambdarank, approx_ndcg) the lowest tier of graded rows has the grade
                min(0, lowest stored - 1).
            sample_weight: one per row.
            eval_set: MultilabelData, (X, Y) or a list of them; the first one decides.
            callbacks: functions of a `plackett.training.Epoch`, called after each; True ends the training.
            checkpoint: a folder to keep the state in, at most every `checkpoint_every` seconds.
            resume: take the training up from there if there is something; else begin anew.
        """
        torch = import_torch("ExtremeClassifier")
        from plackett.training import Workers, seeded

        Workers().agree(self._described_parameters())
        self._check_kinds()
        objective, options = self._objective()
        self._workers = Workers(self.label_shards)
        check_positive("batch_size", self.batch_size)
        rows, labels = self._data(X, Y, reset=True)
        self.n_labels_ = int(labels.shape[1])
        weights = _row_weights(sample_weight, rows.shape[0])
        evaluation = self._evaluation(eval_set)
        if not evaluation and self.validation_fraction is not None:
            kept, held = self._held_out(rows.shape[0], "rows")
            evaluation["valid"] = rows[held], labels[held]
            rows, labels, weights = rows[kept], labels[kept], weights[kept]
        if not weights.all():
            kept = np.flatnonzero(weights)
            rows, labels, weights = rows[kept], labels[kept], weights[kept]
        self._fit_scaling(rows)
        device = self._device()
        needs_propensity = self.propensity != 0 or any(name.startswith("ps") for name in self._metrics)
        inverse = inverse_propensity(level(labels)) if needs_propensity else None
        shift = None
        if inverse is not None and self.propensity != 0:
            shard = self._shard()
            of_shard = -float(self.propensity) * np.log(inverse[shard.first : shard.last])
            shift = torch.from_numpy(of_shard).float().to(device)
        train = _Rows(self._scaled(rows), labels, weights, device)
        parts = {
            name: _Rows(self._scaled(x), y, np.ones(len(y.indptr) - 1), device) for name, (x, y) in evaluation.items()
        }
        measures = {name: _Measure(name, inverse) for name in self._metrics}
        sampler = None if self.negatives is None else _Sampler(labels, self.negatives, self.negative_power, device)

        def make_task(seed: int) -> _ExtremeTask:
            with seeded(seed, device):
                network = self._make_network().to(device)
            loss = _WideLoss(objective, options, shift, sampler)
            return _ExtremeTask(network, train, parts, loss, self.batch_size, measures, self.compile)

        arrays = [a for x, y in ((rows, labels), *evaluation.values()) for a in (x, y)]
        self._train(
            make_task,
            [*arrays, weights, rows.shape, labels.shape],
            has_validation=bool(evaluation),
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            resume=resume,
            callbacks=callbacks,
            workers=self._workers,
        )
        return self

    def _make_scaling(self, kind: str, width: int) -> nn.Module:
        from plackett.networks import FeatureScaling, RowScaling

        if not isinstance(self.input_scale, int | float) or not self.input_scale > 0:
            raise ValueError(f"input_scale must be a number above 0, got {self.input_scale!r}")
        self._scaling_kind = kind
        return FeatureScaling(width) if kind == "standard" else RowScaling(width, kind, float(self.input_scale))

    def _fit_scaling(self, X: Any) -> None:
        kind = self._scaling_of(X)
        scaling: Any = self._make_scaling(kind, X.shape[1])
        self.scaling_ = scaling.fit(X if kind == "standard" or is_sparse(X) else csr_array(X))

    def _scaled(self, X: Any) -> Any:
        """CSR, or a tensor where the input is dense."""
        if self._scaling_kind == "standard":
            return self.scaling_.apply_to(X.toarray() if is_sparse(X) else X)
        return self.scaling_.apply_to(X if is_sparse(X) else csr_array(X))

    def _shard(self) -> Shard:
        """The labels that this process holds."""
        found: Shard = self._workers.shard(self.n_labels_)
        return found

    def _make_network(self) -> nn.Module:
        from plackett.networks import ExtremeNetwork

        sparse = self.sparse_gradients
        if sparse not in (True, False, "auto"):
            raise ValueError(f"sparse_gradients must be True, False or 'auto', got {sparse!r}")
        if sparse == "auto":
            sparse = self.n_features_in_ > _FEATURES_WITH_DENSE_GRADIENTS and self._scaling_kind != "standard"
        network = ExtremeNetwork(
            self.n_features_in_,
            self.n_labels_,
            self.hidden_sizes,
            activation=self.activation,
            input_dropout=self.input_dropout,
            hidden_dropout=self.hidden_dropout,
            sparse_gradient=bool(sparse),
            shard=self._shard(),
        )
        if self.negatives is not None and network.output is not None:
            network.output.sparse_gradient = True  # type: ignore[assignment]
        return network

    # Using the model

    def _blocks(self, X: Any) -> Any:
        """Input of the networks, some rows at a time."""
        check_is_fitted(self, "networks_")
        rows = self._scaled(self._rows(X, reset=False))
        device = next(self.networks_[0].parameters()).device
        # A linear model makes all scores of a block at once.
        size = _ROWS_AT_ONCE if self.hidden_sizes else max(1, min(_ROWS_AT_ONCE, _SCORES_HELD // self.n_labels_))
        for first in range(0, rows.shape[0], size):
            yield _on_device(rows[first : first + size], device)

    def predict_top(self, X: Any, k: int = 5) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """The k best labels of each row and their scores, best first, (rows, k) each."""
        torch = import_torch("predict_top")
        from plackett.networks import top_columns
        from plackett.training.workers import losses_told

        k = check_positive("k", k)
        check_is_fitted(self, "networks_")
        if k > self.n_labels_:
            raise ValueError(f"k must be at most the number of labels, {self.n_labels_}, got {k}")
        labels, scores = [np.zeros((0, k), np.int64)], [np.zeros((0, k), np.float32)]
        with torch.no_grad(), losses_told():
            for block in self._blocks(X):
                layers = [_output_layer(network, block) for network in self.networks_]
                if any(bool(torch.isnan(_of_rows(layer)).any()) for layer in layers):
                    raise ValueError(_NAN_SCORES)
                found, values = top_columns(layers, k, self.networks_[0].shard)
                labels.append(found.cpu().numpy())
                scores.append(values.float().cpu().numpy())
        return np.concatenate(labels), np.concatenate(scores)

    def predict(self, X: Any) -> npt.NDArray[np.float32]:
        """The scores of all labels, (rows, labels). For many labels `predict_top` needs far less memory."""
        torch = import_torch("predict")
        from plackett.training.workers import losses_told

        parts = [np.zeros((0, getattr(self, "n_labels_", 0)), np.float32)]
        with torch.no_grad(), losses_told():
            for block in self._blocks(X):
                scores = torch.stack([network.scores(block) for network in self.networks_]).mean(0)
                parts.append(scores.float().cpu().numpy())
        return np.concatenate(parts)

    def rank(self, X: Any) -> npt.NDArray[np.int64]:
        """The place of each label in each row, from 1, (rows, labels); of equal scores the lower label comes first."""
        scores = self.predict(X)
        if np.isnan(scores).any():
            raise ValueError(_NAN_SCORES)
        order = np.argsort(-scores, axis=1, kind="stable")
        places = np.empty_like(order)
        np.put_along_axis(places, order, np.broadcast_to(np.arange(1, order.shape[1] + 1), order.shape), 1)
        return places

    def score(self, X: Any, Y: Any = None, *, sample_weight: Any = None) -> float:
        """nDCG@10 of the labels that rows have, or of all places where there are fewer labels."""
        rows, labels = self._data(X, Y)
        weights = _row_weights(sample_weight, rows.shape[0])
        k = min(10, self.n_labels_)
        values = multilabel_ndcg(self.predict_top(rows, k)[0], level(labels), k=k, reduction="none")
        return float(np.average(values, weights=weights))

    def export_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write the whole model, feature handling and ensemble included, for ONNX runtimes.

        Input "features", float32 (rows, features), dense; output "scores", float32 (rows, labels).
        """
        check_is_fitted(self, "networks_")
        if self._is_sharded:
            raise ValueError("export_onnx needs the whole model in one process: save it, and load it without shards")
        self._export(path, lambda network, x: network.scores(x))

    # Models on disk

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as a folder: whole, or not at all. With label_shards all processes call this together.

        What is written does not depend on them: `load(path)` gives the whole model, `load(path, label_shards=2)` in two
        processes half of the labels to each.
        """
        check_is_fitted(self, "networks_")
        if not self._is_sharded:
            super().save(path)
            return
        from plackett.training.shards import write_together

        name, tensors = self._workers.from_first(lambda: _beside(check_folder(path))), self._tensors()
        write_together(name, tensors, {}, self._shards(tensors), self._workers)
        self._written = name
        try:
            self._workers.from_first(lambda: self._workers.is_first and super(ExtremeClassifier, self).save(path))
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
        return bool(self._workers.shards > 1)

    def _shards(self, names: Iterable[str]) -> dict[str, Shard]:
        if not self._is_sharded:
            return {}
        held = ("output.weight", "output.bias")
        return {name: self._shard() for name in names if name.partition(".")[2] in held}

    @classmethod
    def load(cls, path: str | os.PathLike[str], **parameters: Any) -> Self:
        """Read a model that `save` wrote. With label_shards all processes call this together."""
        import_torch("ExtremeClassifier")
        from plackett.training import Workers

        Workers(parameters.get("label_shards", 1))  # an error here, for it would be none of the file
        return super().load(path, **parameters)

    def _load_state(self, folder: Path, state: dict[str, Any]) -> None:
        from plackett.training import Workers

        self._workers = Workers(self.label_shards)
        self.n_labels_ = check_positive("labels", field(state, "about", dict)["labels"])
        super()._load_state(folder, state)

    def _other_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        from plackett.training.checkpoints import with_prefix

        about = {"labels": self.n_labels_, "features": self.n_features_in_, "scaling": self._scaling_kind}
        return with_prefix("scaling", self.scaling_.state_dict()), about

    def _set_other_state(self, tensors: dict[str, Any], about: dict[str, Any]) -> None:
        import torch

        from plackett.training.checkpoints import under

        with torch.device("meta"):
            scaling: Any = self._make_scaling(about["scaling"], about["features"])
        self.scaling_ = scaling.restore(under("scaling", tensors))


def _beside(path: Path) -> Path:
    """A file to write to, that will be moved into the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.weights")


def is_sparse(X: Any) -> bool:
    return bool(issparse(X))  # without the types that it would narrow to


def labels_of(Y: Any, rows: int) -> csr_array:
    """Grades of the labels above the lowest tier of each row, columns ascending."""
    if is_sparse(Y):
        matrix = without_zeros(as_csr("Y", Y))
        check_exact("Y", matrix.data)
    else:
        dense = as_array("Y", Y)
        if dense.dtype.kind not in "biuf":
            raise ValueError(f"Y must hold numbers, got {dense.dtype}. Unknown label type")
        if dense.ndim != 2:
            raise ValueError(f"Y must have two dimensions, (rows, labels), got shape {dense.shape}")
        if np.isinf(dense).any():
            raise ValueError("Y must be finite or NaN, got infinity")
        if dense.size and np.isnan(dense).all():
            raise ValueError("Y must grade at least one label, got NaN alone")
        check_exact("Y", dense)
        is_indicator = bool(((dense == 0) | (dense == 1)).all())  # then a row can have all labels, or none
        matrix = csr_array(dense) if is_indicator else _above_lowest(dense.astype(np.float64))
    if matrix.shape[0] != rows:
        raise ValueError(f"Y must have a row for each of the {rows} rows of X, got {matrix.shape[0]}")
    if matrix.shape[1] == 0:
        raise ValueError("Y must have at least one label, got none")
    if not np.isfinite(matrix.data).all():
        raise ValueError("Y must be finite, got NaN or infinity")
    return matrix


def _above_lowest(grades: npt.NDArray[np.float64]) -> csr_array:
    """Dense grades without the lowest tier of each row, which is what is left: NaN, or else the smallest grade."""
    has_missing = np.isnan(grades).any(1, keepdims=True)
    lowest = np.where(has_missing, -np.inf, np.nan_to_num(grades, nan=np.inf).min(1, keepdims=True, initial=np.inf))
    row, column = np.nonzero(grades > lowest)
    counts = np.bincount(row, minlength=len(grades))
    return csr_array((grades[row, column], column, np.concatenate(([0], np.cumsum(counts)))), shape=grades.shape)


def level(Y: csr_array) -> csr_array:
    """The same labels, all with grade 1."""
    return csr_array((np.ones(Y.nnz), Y.indices, Y.indptr), shape=Y.shape)


def _row_weights(sample_weight: Any, rows: int) -> npt.NDArray[np.float64]:
    if sample_weight is None:
        return np.ones(rows)
    weights = as_numbers("sample_weight", sample_weight)
    if weights.shape != (rows,):
        raise ValueError(f"sample_weight must hold one value for each of the {rows} rows, got {weights.shape}")
    if not (np.isfinite(weights) & (weights >= 0.0)).all() or not weights.any():
        raise ValueError("sample_weight must be finite, at least 0, and not zero everywhere")
    return weights


def _on_device(rows: Any, device: torch.device) -> Any:
    from plackett.networks import SparseRows

    return SparseRows(rows, device) if is_sparse(rows) else rows.to(device)


def _output_layer(network: Any, rows: Any) -> Any:
    """Input, weight and bias of the output layer; of a linear model the scores themselves."""
    hidden = network(rows)
    return hidden if network.output is None else (hidden, network.output.weight, network.output.bias)


def _of_rows(layer: Any) -> Tensor:
    """What an output layer gets, or gives if there is none behind it."""
    return layer[0] if isinstance(layer, tuple) else layer


@dataclass(frozen=True)
class _Labels:
    """The labels of the rows of a batch, as the losses take them."""

    indices: IntArray
    offsets: IntArray
    grades: npt.NDArray[np.float64] | None  # None: all level
    count: int
    lowest: float  # the grade of all others, for losses that go by a table

    def table(self) -> npt.NDArray[np.float64]:
        """(rows, labels), the lowest tier below all others."""
        grades = np.ones(len(self.indices)) if self.grades is None else self.grades
        full = np.full((len(self.offsets) - 1, self.count), self.lowest)
        full[np.repeat(np.arange(len(full)), np.diff(self.offsets)), self.indices] = grades
        return full


class _Rows:
    """Scaled features and labels of rows."""

    def __init__(self, X: Any, Y: csr_array, weights: npt.NDArray[np.float64], device: torch.device) -> None:
        self.X, self.Y, self.weights, self.device = X, Y, weights, device
        self.is_level = Y.nnz == 0 or bool((Y.data == Y.data[0]).all())
        self._lowest = 0.0 if self.is_level else min(0.0, float(Y.data.min()) - 1.0)

    def batch(self, rows: IntArray) -> tuple[Any, _Labels]:
        labels = self.Y[rows]
        grades = None if self.is_level else labels.data.astype(np.float64)
        indices, offsets = labels.indices.astype(np.int64), labels.indptr.astype(np.int64)
        return _on_device(self.X[rows], self.device), _Labels(indices, offsets, grades, self.Y.shape[1], self._lowest)


class _Sampler:
    """Labels drawn with replacement, and the logarithm of how often each is expected."""

    def __init__(self, Y: csr_array, count: int, power: float, device: torch.device) -> None:
        import torch

        frequency = (np.bincount(Y.indices, minlength=Y.shape[1]) + 1.0) ** power
        shares = frequency / frequency.sum()
        self._count = count
        self._cumulated = torch.from_numpy(np.cumsum(shares)).to(device)
        self._log_expected = torch.from_numpy(np.log(count * shares)).float().to(device)

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        import torch

        points = torch.rand(self._count, generator=generator, device=self._cumulated.device, dtype=torch.float64)
        columns = torch.searchsorted(self._cumulated, points * self._cumulated[-1]).clamp_(max=len(self._cumulated) - 1)
        return columns, self._log_expected[columns]


class _WideLoss:
    """The objective, in the form that suits its input: fused, sampled, by the labels of rows, or by all labels."""

    def __init__(self, name: str, options: dict[str, Any], shift: Tensor | None, sampler: _Sampler | None) -> None:
        from plackett import losses
        from plackett.losses import sharded

        self._name, self._options, self._shift, self._sampler = name, options, shift, sampler
        self._sparse = getattr(losses, f"sparse_{name}_loss", None)
        self._linear = getattr(losses, f"linear_{name}_loss", None)
        self._sharded = getattr(sharded, f"sharded_{name}_loss", None)
        self._of_lists = losses.LOSSES.get(name)
        self._takes_grades = name in _FUSED

    def __call__(
        self, network: Any, hidden: Tensor, labels: _Labels, weights: Tensor, generator: torch.Generator
    ) -> Tensor:
        common = {"weights": weights, "reduction": "sum", **self._options}
        if self._sampler is not None:
            return self._sampled(network, hidden, labels, generator, common)
        if network.shard.count > 1:
            return self._in_shards(network, hidden, labels, common)
        if network.output is not None and self._linear is not None and hidden.shape[0] * labels.count > _SCORES_HELD:
            weight, bias = network.output.weight, self._shifted(network.output.bias)
            total: Tensor = self._linear(
                hidden, weight.to(hidden.dtype), bias.to(hidden.dtype), labels.indices, labels.offsets,
                labels=labels.grades, **common,
            )  # fmt: skip
            return total
        scores = self._shifted(hidden if network.output is None else network.output(hidden)).float()
        if self._sparse is not None and (labels.grades is None or self._takes_grades):
            grades = {"labels": labels.grades} if self._takes_grades else {}
            return self._sparse(scores, labels.indices, labels.offsets, **grades, **common)
        return self._by_table(scores, labels, generator, common)

    def _shifted(self, scores: Tensor) -> Tensor:
        return scores if self._shift is None else scores + self._shift

    def _in_shards(self, network: Any, hidden: Tensor, labels: _Labels, common: dict[str, Any]) -> Tensor:
        if labels.grades is not None and not self._takes_grades:
            raise ValueError(f"Y must not carry different grades for the objective {self._name!r}")
        grades = {"labels": labels.grades} if self._takes_grades else {}
        weight, bias = network.output.weight, self._shifted(network.output.bias)
        total: Tensor = self._sharded(  # type: ignore[misc]
            hidden, weight.to(hidden.dtype), bias.to(hidden.dtype), labels.indices, labels.offsets, network.shard,
            **grades, **common,
        )  # fmt: skip
        return total

    def _by_table(self, scores: Tensor, labels: _Labels, generator: torch.Generator, common: dict[str, Any]) -> Tensor:
        import torch

        if self._of_lists is None:
            raise ValueError(f"Y must not carry different grades for the objective {self._name!r}")
        kind = torch.float32 if scores.device.type == "mps" else torch.float64
        table = torch.as_tensor(labels.table(), device=scores.device, dtype=kind)
        random = {"generator": generator} if self._of_lists.random else {}
        return self._of_lists.function(scores, table, **random, **common)

    def _sampled(
        self, network: Any, hidden: Tensor, labels: _Labels, generator: torch.Generator, common: dict[str, Any]
    ) -> Tensor:
        """The loss of the columns that occur, gathered first, so that the gradient holds no others."""
        import torch

        columns, log_expected = self._sampler.draw(generator)  # type: ignore[union-attr]
        own = torch.from_numpy(labels.indices).to(columns.device)
        used, shard = torch.unique(torch.cat([own, columns])), network.shard
        used = used[(used >= shard.first) & (used < shard.last)]
        weight = torch.nn.functional.embedding(used - shard.first, network.output.weight, sparse=True)
        bias = self._shifted(network.output.bias)[used - shard.first]
        # Also for a single shard: of the gathered columns alone nobody could tell a row that has all labels from one
        # whose sample happens to hold only labels that it has.
        total: Tensor = self._sharded(  # type: ignore[misc]
            hidden.float(), weight, bias, labels.indices, labels.offsets, shard, labels=labels.grades,
            negatives=(columns, log_expected), held=used.cpu().numpy(), **common,
        )  # fmt: skip
        return total


class _ExtremeTask:
    def __init__(
        self,
        network: Any,
        train: _Rows,
        evaluation: Mapping[str, _Rows],
        loss: _WideLoss,
        size: int,
        measures: Mapping[str, _Measure],
        compiled: bool,
    ) -> None:
        self.network, self._train, self._evaluation = network, train, evaluation
        if compiled:  # in place, so that weights keep their names; the sparse first layer is opaque to the compiler
            network.rest.compile(dynamic=True)
        self._loss, self._size, self._measures = loss, size, measures

    def batches(self, generator: np.random.Generator) -> list[IntArray]:
        from plackett.training import batches_of_rows

        return batches_of_rows(self._train.X.shape[0], self._size, generator)

    def sizes(self, batch: IntArray) -> IntArray:
        return np.ones(len(batch), np.int64)

    def loss(self, batch: IntArray, generator: torch.Generator) -> tuple[Tensor, float]:
        import torch

        rows, labels = self._train.batch(batch)
        hidden = self.network(rows)
        if not bool(torch.isfinite(hidden).all()):
            return hidden.sum(), 1.0  # no number: the loop says what to do
        weights = self._train.weights[batch]
        on_device = torch.as_tensor(weights, dtype=torch.float32, device=self._train.device)
        return self._loss(self.network, hidden, labels, on_device, generator), float(weights.sum())

    def evaluate(self) -> dict[str, float]:
        return {
            f"{name} {metric}": measure.of(self.network, part)
            for name, part in self._evaluation.items()
            for metric, measure in self._measures.items()
        }


class _Measure:
    """A metric of a network: of its best labels, or of the ranking of all labels."""

    def __init__(self, name: str, inverse: npt.NDArray[np.float64] | None) -> None:
        base, _, cutoff = name.partition("@")
        self._is_multilabel = base in MULTILABEL_METRICS
        needed = {"inverse_propensity": inverse} if base.startswith("ps") else {}
        self._function: Callable[..., Any] = get_metric(name, multilabel=self._is_multilabel, **needed)
        self._k = int(cutoff) if cutoff else 5

    def of(self, network: Any, rows: _Rows) -> float:
        import torch

        from plackett.networks import top_columns

        results, count = [], rows.X.shape[0]
        with torch.no_grad():
            for first in range(0, count, _ROWS_AT_ONCE):
                block, labels = rows.batch(np.arange(first, min(first + _ROWS_AT_ONCE, count)))
                if self._is_multilabel:
                    k = min(self._k, labels.count)
                    top = top_columns([_output_layer(network, block)], k, network.shard)[0].cpu().numpy()
                    results.append(np.pad(top, ((0, 0), (0, self._k - k)), constant_values=-1))  # -1: no more
                else:
                    scores = network.scores(block).float().cpu().numpy()
                    results.append(self._function(scores, labels.table(), reduction="none"))
        if self._is_multilabel:
            return float(self._function(np.concatenate(results), level(rows.Y)))
        values = np.concatenate(results)
        known = values[~np.isnan(values)]
        return float(known.mean()) if known.size else float("nan")
