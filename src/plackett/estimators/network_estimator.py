"""The common base of the neural estimators: training, models on disk, export to ONNX."""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from plackett.arguments import Check, check_flag, check_options, check_positive, check_scores, check_text, metric_names
from plackett.data.hashes import fingerprint
from plackett.data.untrusted import field
from plackett.errors import DataError, MissingDependencyError
from plackett.estimators.persistence import WEIGHTS, SavedModel, hash_of, measures_from_json, measures_to_json

if TYPE_CHECKING:
    import torch
    from torch import nn

    from plackett.losses.sparse_columns import Shard
    from plackett.neural import History
    from plackett.neural.training import SingleProcess

# Parameters that do not change the result: they may differ between processes, and between a checkpoint and the training
# that resumes from it. The number of shards may differ from the checkpoint's too, but not between processes.
_FREE_PARAMETERS = ("progress", "device", "compile", "n_jobs")


def import_torch(feature: str) -> Any:
    """The torch module; an error that names the feature if it is not installed."""
    try:
        import torch
    except ImportError:
        raise MissingDependencyError("torch", "neural", feature) from None
    return torch


def find_processes(label_shards: int = 1) -> SingleProcess:
    """The processes that train together. Without a process group, no code of `plackett.distributed` runs."""
    from plackett.neural.training import SingleProcess, has_process_group

    if check_positive("label_shards", label_shards) == 1 and not has_process_group():
        return SingleProcess()
    from plackett.distributed import current_processes

    return current_processes(label_shards)


class NeuralEstimator(SavedModel, BaseEstimator):
    """An estimator that trains an ensemble of networks.

    Attributes:
        networks_: the members of the ensemble.
        history_: a `plackett.neural.History`, one row per epoch.
        best_epoch_: the epoch with the best validation metric; None without validation.
        learning_rate_: the chosen learning rate.
    """

    parameter_kinds: ClassVar[Mapping[str, Check]] = {
        "objective_options": check_options,
        "optimizer_options": check_options,
        "schedule": check_text,
        "eval_metric": metric_names,
        "precision": check_text,
        "compile": check_flag,
        "progress": check_flag,
    }

    saved_by_name: ClassVar[tuple[str, ...]] = ("objective",)
    other_parts: ClassVar[tuple[str, ...]] = ("scaling",)
    """The prefixes of the tensors on disk that belong to no network."""

    epochs: int | None
    optimizer: str
    learning_rate: Any
    weight_decay: float
    schedule: str
    warmup: float
    clip_norm: float | None
    early_stopping_rounds: int | None
    eval_metric: str | Sequence[str]
    validation_fraction: float | None
    ensemble: int | None
    precision: str
    compile: bool
    device: str
    optimizer_options: dict[str, Any] | None
    random_state: int | None
    progress: bool
    hidden_sizes: Sequence[int] | None

    networks_: list[nn.Module]
    scaling_: Any
    history_: History
    best_epoch_: int | None
    learning_rate_: float

    @property
    def _seed(self) -> int:
        state = self.random_state
        if state is not None and (isinstance(state, bool) or not isinstance(state, int | np.integer) or state < 0):
            raise ValueError(f"random_state must be a whole number of at least 0, or None, got {state!r}")
        return int(state or 0)

    @property
    def _metrics(self) -> list[str]:
        return metric_names("eval_metric", self.eval_metric)

    @abstractmethod
    def _scaled(self, X: Any) -> Any:
        """Scaled rows, as a tensor or CSR."""

    def _chosen(self, name: str) -> Any:
        """A parameter that the data may have decided."""
        return getattr(self, name)

    def _check_scores(self, scores: Any, X: Any) -> None:
        """Raise an error for scores that are not finite, with the feature that scaling made the largest."""

        def reason(row: int) -> str:
            # Other rows of its list may be to blame, but not in a classifier, whose X may be sparse.
            first, rows = (row, X[[row]].toarray()) if hasattr(X, "toarray") else (0, X)
            scaled = self._scaled(rows)
            size = np.abs(scaled.toarray() if hasattr(scaled, "toarray") else scaled.cpu().numpy())[:, : X.shape[1]]
            at, column = np.unravel_index(int(np.argmax(np.where(np.isnan(size), np.inf, size))), size.shape)
            name = f" (feature {self.feature_labels()[column]})" if hasattr(self, "feature_labels") else ""
            return (
                f"X[{first + at}, {column}]{name} is {rows[at, column]:g}, and {size[at, column]:g} after feature "
                "scaling. X is far from the training data, or the model is damaged in its feature scale or its weights"
            )

        check_scores(scores, reason)

    def _device(self) -> torch.device:
        torch = import_torch(type(self).__name__)
        if self.device == "auto":
            accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
            return torch.device("cpu") if accelerator is None else torch.device(accelerator)
        try:
            device = torch.device(self.device)
            torch.empty(0, device=device).tolist()  # fails if the device is missing or cannot hold numbers
        except (RuntimeError, TypeError, AssertionError) as error:
            raise ValueError(f"device must be 'auto' or a device of torch, got {self.device!r}: {error}") from None
        return device

    def _held_out(self, count: int, unit: str) -> tuple[Any, Any]:
        """The numbers of the lists or rows to train on and to validate with, ascending."""
        share = self.validation_fraction
        if not isinstance(share, float) or not 0.0 < share < 1.0:
            raise ValueError(f"validation_fraction must be a number between 0 and 1, or None, got {share!r}")
        held = round(share * count)
        if held < 1 or held >= count:
            raise ValueError(f"validation_fraction={share} of {count} {unit} leaves one side empty")
        order = np.random.default_rng([self._seed, 1]).permutation(count)
        return np.sort(order[held:]), np.sort(order[:held])

    def _described_parameters(self) -> dict[str, str]:
        """The parameters that change the result, as text. Functions go by name: their address differs per process."""
        return {
            name: re.sub(r" at 0x[0-9a-f]+", "", str(value))
            for name, value in self.get_params(deep=False).items()
            if name not in _FREE_PARAMETERS
        }

    def _train(
        self,
        make_task: Callable[[int], Any],
        data: Sequence[Any],
        *,
        has_validation: bool,
        checkpoint: str | os.PathLike[str] | None,
        checkpoint_every: float,
        resume: bool,
        callbacks: Sequence[Any],
        processes: SingleProcess,
    ) -> None:
        from plackett.neural import TrainingSettings, train_members
        from plackett.neural.training import check_rates

        rates = check_rates(self.learning_rate)
        if not has_validation and (self.early_stopping_rounds is not None or len(rates) > 1):
            name = "early_stopping_rounds" if self.early_stopping_rounds is not None else "learning_rate as a list"
            raise ValueError(f"{name} needs an eval_set or validation_fraction, got neither")
        settings = TrainingSettings(
            epochs=self._chosen("epochs"),
            optimizer=self.optimizer,
            learning_rate=rates[0],
            weight_decay=self.weight_decay,
            schedule=self.schedule,
            warmup=self.warmup,
            clip_norm=self.clip_norm,
            patience=self.early_stopping_rounds,
            precision=self._chosen("precision"),
            seed=self._seed,
            progress=self.progress,
            optimizer_options=dict(self.optimizer_options or {}),
        )
        parameters = self._described_parameters()
        parameters.pop("label_shards", None)
        is_alone = checkpoint is None and processes.world == 1
        identity = "" if is_alone else fingerprint([parameters, *data])
        if not processes.all_have((identity, checkpoint is None, resume)):
            raise ValueError(
                "X, labels, weights, eval_set, checkpoint and resume must be the same on all processes: each process "
                "takes all data, and works on its own share of every batch"
            )
        trained = train_members(
            make_task,
            settings,
            rates=rates,
            members=check_positive("ensemble", self._chosen("ensemble")),
            folder=None if checkpoint is None else Path(checkpoint),
            checkpoint_every=checkpoint_every,
            fingerprint=identity,
            resume=resume,
            callbacks=callbacks,
            processes=processes,
        )
        self.networks_ = trained.networks
        self.history_ = trained.history
        self.best_epoch_ = trained.best_epoch
        self.learning_rate_ = trained.rate

    # Models on disk

    @property
    def _is_own(self) -> bool:
        """Whether the network is the user's own."""
        return getattr(self, "network", None) is not None

    @abstractmethod
    def _network_maker(self) -> Callable[[], nn.Module]:
        """A function without arguments that makes a new network for the data and the parameters, on the CPU."""

    @abstractmethod
    def _other_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The fitted state other than the networks: tensors, and values for the description."""

    @abstractmethod
    def _set_other_state(self, tensors: dict[str, Any], about: dict[str, Any]) -> None:
        """Restore the result of `_other_state`."""

    @property
    def _is_sharded(self) -> bool:
        """Whether this process holds only some rows of the tensors in `_shards`."""
        return False

    def _shards(self, names: Iterable[str]) -> dict[str, Shard]:  # noqa: ARG002 (for subclasses)
        """The tensors on disk of which this process holds only some rows."""
        return {}

    def _tensors(self) -> dict[str, Any]:
        from plackett.neural.checkpoints import add_prefix

        tensors, _ = self._other_state()
        for number, network in enumerate(self.networks_):
            tensors |= add_prefix(str(number), network.state_dict())
        return tensors

    def _write_weights(self, path: Path) -> None:
        from plackett.neural.checkpoints import write_tensors

        write_tensors(path, self._tensors(), {})

    def _save_state(self, folder: Path) -> dict[str, Any]:
        from plackett.neural import check_weights
        from plackett.neural.tensor_files import open_tensors

        for network in self.networks_:
            check_weights(network)  # a model that cannot be loaded must not be saved
        _, about = self._other_state()
        self._write_weights(folder / WEIGHTS)
        with open_tensors(folder / WEIGHTS) as stored:
            checksum = stored.checksum
        return {
            "sha256": hash_of(folder / WEIGHTS),
            "checksum": checksum,  # replaces the hash for processes that read a part of the file
            "members": len(self.networks_),
            "about": about,
            "history": measures_to_json(self.history_.rows),
            "best_epoch": self.best_epoch_,
            "learning_rate": self.learning_rate_,
        }

    def _load_state(self, folder: Path, state: dict[str, Any]) -> None:
        torch = import_torch(type(self).__name__)
        from plackett.neural import History, check_weights, set_weights
        from plackett.neural.checkpoints import strip_prefix
        from plackett.neural.tensor_files import open_tensors

        path = folder / WEIGHTS
        expected = {"checksum": state["checksum"]} if self._is_sharded else {"sha256": state["sha256"]}
        with open_tensors(path, **expected) as stored:
            tensors, _ = stored.read(self._shards(stored.names))
        device, about = self._device(), field(state, "about", dict)
        self.networks_ = []
        try:
            if about["features"] != self.n_features_in_:
                raise ValueError(f"features must be {self.n_features_in_}, got {about['features']!r}")
            # Every layer has tensors, so there are at most as many layers: refuse sizes that would only cost memory.
            layers = len(self._chosen("hidden_sizes")) + getattr(self, "attention_layers", 0)
            if not 1 <= field(state, "members", int) <= len(tensors) or layers > len(tensors):
                raise ValueError(f"expected {state['members']} networks of {layers} layers, got {len(tensors)} tensors")
            parts = (*self.other_parts, *map(str, range(state["members"])))
            extra = [name for name in tensors if not name.startswith(tuple(f"{part}." for part in parts))]
            if extra:
                raise ValueError(f"tensor {extra[0][:80]!r} belongs to none of {state['members']} networks")
            self._set_other_state(tensors, about)
            make_network = self._network_maker()
            for number in range(state["members"]):
                with nullcontext() if self._is_own else torch.device("meta"):
                    network = make_network()
                set_weights(network, strip_prefix(str(number), tensors))
                check_weights(network)
                self.networks_.append(network.to(device).eval())
        except (RuntimeError, ValueError, TypeError, OverflowError) as error:
            raise DataError(f"the weights do not fit the description ({error})", file=str(path)) from error
        history = measures_from_json(field(state, "history", list))
        if not all(isinstance(row, dict) for row in history):
            raise ValueError("history must hold metrics by name for each epoch")
        self.history_ = History(history)
        self.best_epoch_ = field(state, "best_epoch", int, NoneType)
        self.learning_rate_ = field(state, "learning_rate", float)

    def _export(
        self, path: str | os.PathLike[str], score: Callable[[Any, Any], Any], linear_path: nn.Module | None = None
    ) -> None:
        """Write an ONNX file; `score(network, x)` computes the scores of scaled rows."""
        check_is_fitted(self, "networks_")
        import_torch("export_onnx")
        from plackett.neural.onnx_export import ScaledEnsemble, write_onnx

        whole = ScaledEnsemble(self.scaling_, self.networks_, score, linear_path)
        write_onnx(path, whole, self.n_features_in_)
