"""Neural networks that score the items of lists."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from plackett.data.containers import rows_of_lists
from plackett.errors import DataError
from plackett.estimators import parameters
from plackett.estimators.base import BaseRanker, ListedRows, is_frame
from plackett.estimators.neural_base import NeuralEstimator, check_objective_options, import_torch
from plackett.lists import IntArray, Lists, check_positive, make_lists, offsets_from_sizes
from plackett.metrics import get_metric

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from plackett.networks import FeatureScaling

_DOCUMENTS_AT_ONCE = 1 << 16


class NeuralRanker(NeuralEstimator, BaseRanker):
    """A neural network for lists of items with graded, tied or partial feedback.

    Args:
        objective: a loss of `plackett.losses` by name; "partition" is the exact likelihood of tiers.
        objective_options: its options by name, such as {"top": 10}.
        hidden_sizes: units of the hidden layers of a perceptron; () is a linear model.
        activation: relu, gelu, silu, tanh or elu.
        dropout, layer_norm, residual: of the hidden layers.
        attention_layers, attention_heads: self-attention over the list after the hidden layers; 0 layers: every item is
            scored by itself.
        network: a torch module of your own instead, or a function that makes one from the number of columns. It gets
            the rows (items, columns), and `offsets` if its forward takes them, and returns a score a row. A module is
            copied and begins with its own weights.
        scaling: of features, fitted on the training rows and stored with the model: "standard", "log1p" (of the
            absolute value, with the sign, then standard), "quantile" or "none".
        missing: NaN becomes the "mean"; with "indicator" a column more says so; "error" refuses it.
        optimizer: adam, adamw, sparse_adam, adagrad or sgd, with `optimizer_options` of torch.
        learning_rate: a number, or a list from which validation chooses.
        weight_decay, clip_norm: as in torch; biases do not decay.
        schedule: of the learning rate: "constant", "linear" or "cosine", after a share `warmup` of the training.
        epochs: how often all lists are seen.
        batch_size: documents in a batch, made of whole lists.
        early_stopping_rounds: end when the first metric has not risen for so many epochs, and return to the best.
        eval_metric: metrics by name, such as "ndcg@10" or ["ndcg@10", "err"].
        validation_fraction: the share of lists to hold out for validation where fit gets no eval_set.
        ensemble: how many networks to train, from seeds random_state, random_state + 1, ...; scores are their mean.
        precision: "float32"; "bfloat16" or "float16" for mixed precision where the device has it.
        compile: let torch.compile make the network faster.
        device: "auto" takes an accelerator if there is one.
        query_column: for DataFrames, the column that says which list a row belongs to.
        random_state: the same seed, device and number of threads give the same model.
        progress: show a bar on a terminal.

    Attributes:
        networks_, history_, best_epoch_, learning_rate_: see `NeuralEstimator`. scaling_: the fitted feature handling.
    """

    __metadata_request__predict: ClassVar = {"qid": True}
    defaults_with_validation: ClassVar[dict[str, Any]] = {"early_stopping_rounds": 10}
    parameter_kinds: ClassVar[Mapping[str, parameters.Check]] = {
        **NeuralEstimator.parameter_kinds,
        "objective": parameters.text,
        "layer_norm": parameters.flag,
        "residual": parameters.flag,
        "attention_heads": check_positive,
        "eval_metric": parameters.ranking_metrics,
    }

    def __init__(
        self,
        objective: str = "partition",
        *,
        objective_options: dict[str, Any] | None = None,
        hidden_sizes: Sequence[int] = (80, 80, 80),
        activation: str = "relu",
        dropout: float = 0.0,
        layer_norm: bool = False,
        residual: bool = False,
        attention_layers: int = 0,
        attention_heads: int = 4,
        network: Any = None,
        scaling: str = "standard",
        missing: str = "mean",
        optimizer: str = "adam",
        learning_rate: Any = 1e-3,
        weight_decay: float = 0.0,
        schedule: str = "constant",
        warmup: float = 0.0,
        clip_norm: float | None = None,
        epochs: int = 100,
        batch_size: int = 1024,
        early_stopping_rounds: int | None = None,
        eval_metric: str | Sequence[str] = "ndcg@10",
        validation_fraction: float | None = None,
        ensemble: int = 1,
        precision: str = "float32",
        compile: bool = False,  # noqa: A002 (torch's own name)
        device: str = "auto",
        optimizer_options: dict[str, Any] | None = None,
        query_column: Any = None,
        random_state: int | None = None,
        progress: bool = True,
    ) -> None:
        self.objective = objective
        self.objective_options = objective_options
        self.hidden_sizes = hidden_sizes
        self.activation = activation
        self.dropout = dropout
        self.layer_norm = layer_norm
        self.residual = residual
        self.attention_layers = attention_layers
        self.attention_heads = attention_heads
        self.network = network
        self.scaling = scaling
        self.missing = missing
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
        self.query_column = query_column
        self.random_state = random_state
        self.progress = progress

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = self.missing != "error"
        tags.input_tags.sparse = True
        return tags

    def _dense(self, X: Any) -> npt.NDArray[Any]:
        """Features as an array of floats."""
        if is_frame(X):
            try:
                values = np.asarray(X.to_numpy(), np.float64)
            except (TypeError, ValueError) as error:
                raise ValueError(f"X must hold numbers in all columns, got others: {error}") from None
            if np.isinf(values).any():
                raise ValueError("X must hold finite numbers or NaN, got infinity")
            return values
        return X.toarray() if hasattr(X, "indptr") else X

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        qid: Any = None,
        group: Any = None,
        sample_weight: Any = None,
        eval_set: Any = None,
        callbacks: Sequence[Any] = (),
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
        resume: bool = True,
    ) -> Self:
        """Fit to rows with labels.

        Args:
            X, y: features and labels, higher is better; or X a RankingData.
            qid, group: the list of each row, in any order, or sizes of consecutive lists. Neither: one list, with a
                warning.
            sample_weight: one per row, constant within a list.
            eval_set: RankingData, (X, y, qid) or a list of them; the first one decides.
            callbacks: functions of a `plackett.training.Epoch`, called after each; True ends the training.
            checkpoint: a folder to keep the state in, at most every `checkpoint_every` seconds.
            resume: take the training up from there if there is something; else begin anew.
        """
        import_torch("NeuralRanker")
        from plackett.losses import LOSSES, RankingLoss
        from plackett.networks import FeatureScaling
        from plackett.training import Workers, seeded

        workers = Workers()
        workers.agree(self._described_parameters())
        self._check_kinds()
        if self.objective not in LOSSES:
            raise ValueError(f"objective must be one of {', '.join(LOSSES)}, got {self.objective!r}")
        function = LOSSES[self.objective].function
        loss = RankingLoss(self.objective, **check_objective_options(self.objective, function, self.objective_options))
        check_positive("batch_size", self.batch_size)
        rows = self._training_rows(X, y, qid, group, sample_weight)
        train = _Listed.from_rows(rows, self._dense(rows.X))
        evaluation = {
            name: _Listed.from_rows(part, self._dense(part.X)) for name, part in self._evaluation_rows(eval_set)
        }
        if not evaluation and self.validation_fraction is not None:
            kept, held = self._held_out(len(rows.lists), "lists")
            evaluation["valid"], train = train.select(held), train.select(kept)
        if not train.weights.all():
            train = train.select(np.flatnonzero(train.weights))
        device = self._device()
        scaling = FeatureScaling(train.X.shape[1], self.scaling, self.missing).fit(train.X)
        self.scaling_ = scaling
        metrics = {name: get_metric(name) for name in self._metrics}
        prepared = [part.on(device, scaling) for part in (train, *evaluation.values())]

        def make_task(seed: int) -> _RankingTask:
            with seeded(seed, device):
                network = self._make_network().to(device)
            return _RankingTask(
                network, prepared[0], dict(zip(evaluation, prepared[1:], strict=True)), loss, self.batch_size,
                metrics, self.compile,
            )  # fmt: skip

        self._train(
            make_task,
            [
                array
                for part in (train, *evaluation.values())
                for array in (part.X, part.labels, part.offsets, part.weights)
            ],
            has_validation=bool(evaluation),
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            resume=resume,
            callbacks=callbacks,
            workers=workers,
        )
        return self

    def _make_network(self) -> nn.Module:
        from plackett.networks.ranking import OwnNetwork, RankingNetwork

        width = self.scaling_.width
        if self.network is None:
            return RankingNetwork(
                width,
                self.hidden_sizes,
                activation=self.activation,
                dropout=self.dropout,
                layer_norm=self.layer_norm,
                residual=self.residual,
                heads=self.attention_heads,
                layers=self.attention_layers,
            )
        is_made = isinstance(self.network, import_torch("NeuralRanker").nn.Module)
        module = copy.deepcopy(self.network) if is_made or not callable(self.network) else self.network(width)
        return OwnNetwork(module)

    # Using the model

    def predict(self, X: Any, *, qid: Any = None, group: Any = None) -> npt.NDArray[np.float64]:
        """The scores of rows, or of those of a RankingData.

        A network that looks at whole lists (attention, or one of your own that takes offsets) must know them, by qid or
        group.
        """
        check_is_fitted(self, "networks_")
        sees_lists = any(network.sees_lists for network in self.networks_)
        if sees_lists or qid is not None or group is not None:
            X, _, qid, group = self._given(X, None, qid, group)
            lists = self._lists("predict", X, qid, group)
        else:
            X = self._to_predict(X)
            lists = make_lists(X.shape[0])
        return self._predict_lists(X, lists)

    def _predict_lists(self, X: Any, lists: Lists) -> npt.NDArray[Any]:
        check_is_fitted(self, "networks_")
        X = self._dense(self._features(X, reset=False))
        sorted_rows = X if lists.rows is None else X[lists.rows]
        device = next(self.networks_[0].parameters()).device
        listed = _Listed(sorted_rows, np.zeros(len(X)), lists.offsets, np.ones(len(lists))).on(device, self.scaling_)
        scores = np.mean([listed.scores(network) for network in self.networks_], axis=0)
        return lists.restore(scores)

    def export_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write the whole model, feature handling and ensemble included, for ONNX runtimes.

        Input "features", float32 (rows, features); output "scores", float32 (rows,). Networks that look at whole lists
        take the rows of one list at a time.
        """
        self._export(path, lambda network, x: network(x, None))

    # Models on disk

    def _other_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        from plackett.training.checkpoints import with_prefix

        about = {"features": self.scaling_.n_features, "own_network": self._is_own}
        return with_prefix("scaling", self.scaling_.state_dict()), about

    def _load_state(self, folder: Path, state: dict[str, Any]) -> None:
        if state["about"]["own_network"] and not self._is_own:
            raise DataError(
                "the model has a network of your own, which is not stored",
                file=str(folder),
                remedy="Give it: load(path, network=...)",
            )
        super()._load_state(folder, state)

    def _set_other_state(self, tensors: dict[str, Any], about: dict[str, Any]) -> None:
        import torch

        from plackett.networks import FeatureScaling
        from plackett.training.checkpoints import under

        with torch.device("meta"):
            scaling = FeatureScaling(about["features"], self.scaling, self.missing)
        self.scaling_ = scaling.restore(under("scaling", tensors))


class _Listed:
    """Lists of rows; after `on` they are scaled and on a device."""

    def __init__(self, X: Any, labels: Any, offsets: IntArray, weights: npt.NDArray[np.float64]) -> None:
        self.X, self.labels, self.offsets, self.weights = X, labels, offsets, weights
        self.sizes = np.diff(offsets)

    @classmethod
    def from_rows(cls, rows: ListedRows, X: npt.NDArray[Any]) -> _Listed:
        return cls(X, rows.labels, rows.offsets, rows.weights)

    def select(self, lists: IntArray) -> _Listed:
        rows = rows_of_lists(self.offsets, lists)
        return _Listed(self.X[rows], self.labels[rows], offsets_from_sizes(self.sizes[lists]), self.weights[lists])

    def on(self, device: torch.device, scaling: FeatureScaling) -> _Listed:
        import torch

        scaled = scaling.apply_to(self.X).to(device)
        kind = torch.float32 if device.type == "mps" else torch.float64
        labels = torch.tensor(self.labels, dtype=kind, device=device)  # a copy: they may be read-only
        return _Listed(scaled, labels, self.offsets, self.weights)

    def batch(self, lists: IntArray) -> tuple[Tensor, Tensor, Tensor]:
        """Rows, labels and offsets of some lists."""
        import torch

        device = self.X.device
        rows = torch.from_numpy(rows_of_lists(self.offsets, lists)).to(device)
        offsets = torch.from_numpy(offsets_from_sizes(self.sizes[lists])).to(device)
        return self.X[rows], self.labels[rows], offsets

    def scores(self, network: Callable[..., Tensor]) -> npt.NDArray[np.float64]:
        """Of all rows, whole lists at a time."""
        import torch

        from plackett.training import batches_of_lists

        parts = [np.zeros(0)]
        with torch.no_grad():
            for lists in batches_of_lists(self.sizes, _DOCUMENTS_AT_ONCE, None):
                x, _, offsets = self.batch(lists)
                parts.append(network(x, offsets).double().cpu().numpy())
        return np.concatenate(parts)


class _RankingTask:
    def __init__(
        self,
        network: nn.Module,
        train: _Listed,
        evaluation: Mapping[str, _Listed],
        loss: Any,
        documents: int,
        metrics: Mapping[str, Callable[..., Any]],
        compiled: bool,
    ) -> None:
        import torch

        from plackett.losses import LOSSES

        self.network, self._train, self._evaluation = network, train, evaluation
        self._call = torch.compile(network, dynamic=True) if compiled else network
        self._loss, self._documents, self._metrics = loss, documents, metrics
        self._is_random = LOSSES[loss.name].random

    def batches(self, generator: np.random.Generator) -> list[IntArray]:
        from plackett.training import batches_of_lists

        return batches_of_lists(self._train.sizes, self._documents, generator)

    def sizes(self, batch: IntArray) -> IntArray:
        return self._train.sizes[batch]

    def loss(self, batch: IntArray, generator: torch.Generator) -> tuple[Tensor, float]:
        import torch

        x, labels, offsets = self._train.batch(batch)
        scores = self._call(x, offsets)
        if not bool(torch.isfinite(scores).all()):
            return scores.sum(), 1.0  # no number: the loop says what to do
        weights = self._train.weights[batch]
        function = partial(self._loss.function, generator=generator) if self._is_random else self._loss.function
        total = function(
            scores.float(),
            labels,
            offsets=offsets,
            weights=torch.as_tensor(weights, dtype=torch.float32, device=x.device),
            reduction="sum",
            **self._loss.options,
        )
        return total, float(weights.sum())

    def evaluate(self) -> dict[str, float]:
        found = {}
        for name, part in self._evaluation.items():
            scores, labels = part.scores(self.network), part.labels.cpu().numpy()
            for metric, function in self._metrics.items():
                found[f"{name} {metric}"] = float(function(scores, labels, offsets=part.offsets, weights=part.weights))
        return found
