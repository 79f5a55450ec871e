"""NeuralRanker: neural networks that score the items of lists."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from plackett.arguments import Check, check_flag, check_parameters, check_positive, check_range, is_frame
from plackett.data.listed_rows import ListedRows
from plackett.data.positions import make_position_bias
from plackett.errors import DataError
from plackett.estimators.lightgbm_arguments import refuse_others
from plackett.estimators.network_estimator import NeuralEstimator, find_processes, import_torch
from plackett.estimators.ranker import ClickRanker
from plackett.lists import Lists, make_lists
from plackett.losses.registry import Loss, check_item_weighting, find_loss
from plackett.metrics import get_metric
from plackett.metrics.registry import check_metrics

if TYPE_CHECKING:
    from torch import nn


class NeuralRanker(NeuralEstimator, ClickRanker):
    """A neural network for lists of items with graded, tied or partial feedback.

    Args:
        objective: a loss of `plackett.losses` by name; "partition" is the exact likelihood of tiers. Or a function of
            your own, f(scores, labels, offsets, **options) -> one value per list, in torch, see
            `plackett.losses.own_loss`.
        hidden_sizes: sizes of the hidden layers of a perceptron; () is a linear model.
        scaling: feature scaling, fitted on the training rows and saved with the model: "standard", "log1p" (sign(x)
            log(1 + |x|), then standard), "quantile" or "none".
        missing: "mean" replaces NaN by the mean; "indicator" also adds a column that marks it; "error" refuses NaN.
        epochs: number of passes over all lists.
        batch_size: items per batch. Lists are not split.
        learning_rate: a number, or a list from which validation chooses.
        early_stopping_rounds: stop when the first metric has not improved for this many epochs, and return to the best.
        eval_metric: metrics by name, such as "ndcg@10" or ["ndcg@10", "err"].
        ensemble: number of networks to train, with seeds random_state, random_state + 1, ...; scores are their mean.
        random_state: random seed. The same seed, device and number of threads give the same model.

    Other Args:
        objective_options: options of the objective by name, such as {"top": 10}.
        activation: relu, gelu, silu, tanh or elu.
        dropout, layer_norm, residual: options of the hidden layers.
        attention_layers, attention_heads: self-attention over the list after the hidden layers. With 0 layers every
            item is scored by itself.
        network: a torch module of your own instead, or a function that makes one from the number of columns. It is
            called with the rows (items, columns), and with `offsets` if its forward takes them, and returns one score
            per row. A module is copied and starts with its own weights.
        optimizer: adam, adamw, sparse_adam, adagrad or sgd, with torch's `optimizer_options`.
        weight_decay, clip_norm: as in torch; biases do not decay.
        schedule: learning rate schedule, "constant", "linear" or "cosine", after warming up for the share `warmup` of
            the training.
        validation_fraction: share of the lists to hold out for validation if fit gets no eval_set.
        precision: "float32"; "bfloat16" or "float16" for mixed precision where the device supports it.
        compile: whether to speed the network up with torch.compile.
        device: torch device; "auto" uses an accelerator if there is one.
        position_penalty: L2 penalty on the biases of positions, where `fit` is given any.
        query_column: for DataFrames, the column with the list of each row.
        progress: show a progress bar on a terminal.

    Attributes:
        networks_, history_, best_epoch_, learning_rate_: see `NeuralEstimator`.
        scaling_: the fitted feature scaling.
        position_bias_: the learned `plackett.data.PositionBias`, the mean over the ensemble; None without position.
    """

    __metadata_request__predict: ClassVar = {"qid": True}
    defaults_with_validation: ClassVar[dict[str, Any]] = {"early_stopping_rounds": 10}
    parameter_kinds: ClassVar[Mapping[str, Check]] = {
        **NeuralEstimator.parameter_kinds,
        "layer_norm": check_flag,
        "residual": check_flag,
        "attention_heads": check_positive,
        "eval_metric": check_metrics,
        "position_penalty": partial(check_range, least=0.0),
    }

    def __init__(
        self,
        objective: str | Loss | Callable[..., Any] = "partition",
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
        position_penalty: float = 1.0,
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
        self.position_penalty = position_penalty
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
                raise ValueError(f"X must hold numbers in all columns: {error}") from None
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
        position: Any = None,
        examined: Any = None,
        item_weight: Any = None,
        eval_set: Any = None,
        eval_group: Any = None,
        eval_names: Any = None,
        callbacks: Sequence[Any] = (),
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
        resume: bool = True,
        **others: Any,
    ) -> Self:
        """Fit to rows with labels.

        Args:
            X, y: features and labels, higher is better; or a RankingData as X.
            qid, group: the list of each row, in any order, or the sizes of consecutive lists. With neither, all rows
                form one list, with a warning.
            sample_weight: one per row, constant within a list.
            position: where each row was shown, numbers or categories: the utility in training is score +
                bias[position]. Left out at prediction.
            examined: which rows were seen; the others are neither above nor below any row. A network that looks at
                whole lists sees only these in training.
            item_weight: weight of each row within its list, such as an inverse propensity; only for the objectives
                lower_bound, attrank and listnet.
                `position`, `examined` and `item_weight` may also name a column of a DataFrame (docs/clicks.md).
            eval_set: RankingData, (X, y, qid), or (X, y) with `eval_group`, or a list of them; the first one decides.
            eval_group, eval_names: the sizes of lists and the names of the evaluation sets, one entry for each.
            callbacks: functions of a `plackett.neural.Epoch`, called after each epoch; True ends training.
            checkpoint: folder for the training state, saved at most every `checkpoint_every` seconds.
            resume: resume from the checkpoint if there is one; False: start over.
        """
        refuse_others("fit", others)
        import_torch("NeuralRanker")
        from plackett.neural import FeatureScaling
        from plackett.neural.ranking_task import RankingTask, ScaledLists
        from plackett.neural.training import TaskMaker

        processes = find_processes()
        processes.agree(self._described_parameters())
        check_parameters(self)
        loss = find_loss(self.objective)
        options = loss.check_options(self.objective_options)
        check_item_weighting(self.objective, item_weight)
        check_positive("batch_size", self.batch_size)
        columns = self._click_columns(X, position, examined, item_weight)
        rows = self._with_clicks(self._training_rows(X, y, qid, group, sample_weight), columns)
        train = replace(rows, X=self._dense(rows.X))
        sets = self._evaluation_rows(eval_set, eval_group=eval_group, eval_names=eval_names)
        evaluation = {name: replace(part, X=self._dense(part.X)) for name, part in sets}
        if not evaluation and self.validation_fraction is not None:
            kept, held = self._held_out(len(rows.lists), "lists")
            evaluation["valid"], train = train.select(held), train.select(kept)
        if not train.weights.all():
            train = train.select(np.flatnonzero(train.weights))
        device = self._device()
        scaling = FeatureScaling(train.X.shape[1], self.scaling, self.missing).fit(train.X)
        self.scaling_ = scaling
        metrics = {name: get_metric(name) for name in self._metrics}
        scaled_train = ScaledLists(train, scaling, device)
        scaled_evaluation = {name: ScaledLists(part, scaling, device) for name, part in evaluation.items()}

        make_task = partial(
            RankingTask,
            train=scaled_train,
            evaluation=scaled_evaluation,
            loss=loss,
            options=options,
            batch_size=self.batch_size,
            metrics=metrics,
            compiled=self.compile,
            position_penalty=self.position_penalty,
        )
        make_network = self._network_maker()
        if train.positions is not None:
            make_network = partial(_positioned, make_network, len(train.positions))
        self._train(
            TaskMaker(make_network, make_task, device),
            [array for part in (train, *evaluation.values()) for array in _arrays_of(part)],
            has_validation=bool(evaluation),
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            resume=resume,
            callbacks=callbacks,
            processes=processes,
        )
        self._separate_biases(train)
        return self

    def _separate_biases(self, train: ListedRows) -> None:
        """Separate the trained networks from their position biases."""
        self.position_bias_ = None
        if train.positions is None:
            return
        trained: list[Any] = self.networks_  # each a `PositionedNetwork`
        biases = [one.bias.detach().double().cpu().numpy() for one in trained]
        self.networks_ = [one.network for one in trained]
        self.position_bias_ = make_position_bias(train.positions.values, np.mean(biases, axis=0))

    def _network_maker(self) -> Callable[[], nn.Module]:
        from plackett.neural.networks import RankingNetwork, own_network

        width = self.scaling_.width
        if self.network is None:
            return partial(
                RankingNetwork,
                width,
                self._chosen("hidden_sizes"),
                activation=self.activation,
                dropout=self.dropout,
                layer_norm=self.layer_norm,
                residual=self.residual,
                heads=self.attention_heads,
                layers=self.attention_layers,
            )
        return partial(own_network, self.network, width)

    # Using the model

    def predict(self, X: Any, *, qid: Any = None, group: Any = None) -> npt.NDArray[np.float64]:
        """The scores of rows, or of the rows of a RankingData.

        A network that scores an item by its list (attention, or a network of your own that takes offsets) needs qid or
        group.
        """
        check_is_fitted(self, "networks_")
        sees_lists = any(network.sees_lists for network in self.networks_)
        if sees_lists or qid is not None or group is not None:
            X, _, given = self._read_input(X, None, qid, group)
            lists = self._need_lists("predict", X, given)
        else:
            X = self._to_predict(X)
            lists = make_lists(X.shape[0])
        return self._predict_lists(X, lists)

    def _predict_lists(self, X: Any, lists: Lists) -> npt.NDArray[Any]:
        check_is_fitted(self, "networks_")
        import_torch("predict")
        from plackett.neural.ranking_task import scores_of_lists
        from plackett.neural.small_work import threads_for

        X = self._dense(self._features(X, reset=False))
        device = next(self.networks_[0].parameters()).device
        with threads_for(len(X), self.networks_):
            scaled = self._scaled(lists.sort(X)).to(device)
            found = [scores_of_lists(network, scaled, lists.offsets) for network in self.networks_]
        scores = lists.restore(found[0] if len(found) == 1 else np.mean(found, axis=0))
        self._check_scores(scores, X)
        return scores

    def _scaled(self, X: Any) -> Any:
        return self.scaling_.apply_to(X)

    def export_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write the complete model, with feature scaling and ensemble, for ONNX runtimes.

        Input "features", float32 (rows, features); output "scores", float32 (rows,). Networks that score an item by its
        list take the rows of one list at a time.
        """
        self._export(path, lambda network, x: network(x, None))

    # Models on disk

    def _other_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        from plackett.neural.checkpoints import add_prefix

        about = {"features": self.scaling_.n_features, "own_network": self._is_own}
        return add_prefix("scaling", self.scaling_.state_dict()), about | self._click_state()

    def _load_state(self, folder: Path, state: dict[str, Any]) -> None:
        if state["about"]["own_network"] and not self._is_own:
            raise DataError(
                "the model has a network of your own, which is not saved with it",
                file=str(folder),
                remedy="Pass it: load(path, network=...)",
            )
        super()._load_state(folder, state)

    def _set_other_state(self, tensors: dict[str, Any], about: dict[str, Any]) -> None:
        import torch

        from plackett.neural import FeatureScaling
        from plackett.neural.checkpoints import strip_prefix

        with torch.device("meta"):
            scaling = FeatureScaling(about["features"], self.scaling, self.missing)
        self.scaling_ = scaling.restore(strip_prefix("scaling", tensors))
        self._load_click_state(about)


def _arrays_of(rows: ListedRows) -> list[Any]:
    """All that identifies rows to train on or to validate with."""
    found = [rows.X, rows.labels, rows.offsets, rows.weights]
    if rows.positions is not None:
        found += [str(rows.positions.values.tolist()), rows.positions.codes]
    return found if rows.item_weights is None else [*found, rows.item_weights]


def _positioned(make_network: Callable[[], nn.Module], positions: int) -> nn.Module:
    from plackett.neural.ranking_task import PositionedNetwork

    return PositionedNetwork(make_network(), positions)
