"""What the neural estimators share: training with their parameters, networks on disk and in ONNX."""

from __future__ import annotations

import inspect
import logging
import os
import re
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from plackett.errors import DataError, MissingDependencyError
from plackett.estimators import parameters
from plackett.estimators.saved import (
    WEIGHTS,
    SavedModel,
    field,
    hash_of,
    measures_from_json,
    measures_to_json,
)
from plackett.fingerprint import fingerprint
from plackett.lists import check_positive

if TYPE_CHECKING:
    import torch
    from torch import nn

    from plackett.losses.sharded import Shard
    from plackett.training import History, Workers

_SET_BY_TRAINING = {
    "scores", "labels", "indices", "offsets", "where", "weights", "reduction", "generator", "negatives",
}  # fmt: skip
# Parameters that do not change what is learned: processes may differ in them, and a checkpoint may be taken up with
# others; also with another number of shards, but that is the same for all processes.
_FREE_PARAMETERS = ("progress", "device", "compile", "n_jobs")


def import_torch(what: str) -> Any:
    try:
        import torch
    except ImportError:
        raise MissingDependencyError("torch", "neural", what) from None
    return torch


def check_objective_options(
    objective: str, function: Callable[..., Any], options: dict[str, Any] | None
) -> dict[str, Any]:
    """Options of a loss that are free to choose."""
    known = sorted(set(inspect.signature(function).parameters) - _SET_BY_TRAINING)
    unknown = sorted(set(options or {}) - set(known))
    if unknown:
        raise ValueError(
            f"objective_options of {objective} must be among {', '.join(known) or 'none'}, got {', '.join(unknown)}"
        )
    return dict(options or {})


class NeuralEstimator(SavedModel):
    """Parameters of the training loop, and an ensemble of networks.

    Attributes:
        networks_: the members; history_: a `plackett.training.History` with a row an epoch; best_epoch_: the epoch that
        was best on validation; learning_rate_: the rate that was chosen.
    """

    parameter_kinds: ClassVar[Mapping[str, parameters.Check]] = {
        "objective_options": parameters.options,
        "optimizer_options": parameters.options,
        "schedule": parameters.text,
        "eval_metric": parameters.metric_names,
        "precision": parameters.text,
        "compile": parameters.flag,
        "progress": parameters.flag,
    }

    epochs: int
    optimizer: str
    learning_rate: Any
    weight_decay: float
    schedule: str
    warmup: float
    clip_norm: float | None
    early_stopping_rounds: int | None
    eval_metric: str | Sequence[str]
    validation_fraction: float | None
    ensemble: int
    precision: str
    compile: bool
    device: str
    optimizer_options: dict[str, Any] | None
    random_state: int | None
    progress: bool
    hidden_sizes: Sequence[int]

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
        return parameters.metric_names("eval_metric", self.eval_metric)

    def _device(self) -> torch.device:
        torch = import_torch(type(self).__name__)
        if self.device == "auto":
            accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
            return torch.device("cpu") if accelerator is None else torch.device(accelerator)
        try:
            device = torch.device(self.device)
            torch.empty(0, device=device).tolist()  # that it is there, and holds numbers
        except (RuntimeError, TypeError, AssertionError) as error:
            raise ValueError(f"device must be 'auto' or a device of torch, got {self.device!r}: {error}") from None
        return device

    def _held_out(self, count: int, what: str) -> tuple[Any, Any]:
        """Numbers to train on and to validate with, by `validation_fraction`; ascending."""
        share = self.validation_fraction
        if not isinstance(share, float) or not 0.0 < share < 1.0:
            raise ValueError(f"validation_fraction must be a number between 0 and 1, or None, got {share!r}")
        held = round(share * count)
        if held < 1 or held >= count:
            raise ValueError(f"validation_fraction={share} of {count} {what} leaves nothing on one side")
        order = np.random.default_rng([self._seed, 1]).permutation(count)
        return np.sort(order[held:]), np.sort(order[:held])

    def _described_parameters(self) -> dict[str, str]:
        """The parameters that change what is learned. Functions are known by name: the next process moves them."""
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
        workers: Workers,
    ) -> None:
        from plackett.training import Settings, train_members
        from plackett.training.search import check_rates

        rates = check_rates(self.learning_rate)
        if not has_validation and (self.early_stopping_rounds is not None or len(rates) > 1):
            name = "early_stopping_rounds" if self.early_stopping_rounds is not None else "learning_rate as a list"
            raise ValueError(f"{name} needs an eval_set or validation_fraction, got neither")
        settings = Settings(
            epochs=self.epochs,
            optimizer=self.optimizer,
            learning_rate=rates[0],
            weight_decay=self.weight_decay,
            schedule=self.schedule,
            warmup=self.warmup,
            clip_norm=self.clip_norm,
            patience=self.early_stopping_rounds,
            precision=self.precision,
            seed=self._seed,
            progress=self.progress,
            optimizer_options=dict(self.optimizer_options or {}),
        )
        parameters = self._described_parameters()
        parameters.pop("label_shards", None)
        of = "" if checkpoint is None and workers.world == 1 else fingerprint([parameters, *data])
        if not workers.all_have((of, checkpoint is None, resume)):
            raise ValueError(
                "X, labels, weights, eval_set, checkpoint and resume must be the same on all processes: each is given "
                "all of the data, and takes its own share of every batch"
            )
        trained = train_members(
            make_task,
            settings,
            rates=rates,
            members=check_positive("ensemble", self.ensemble),
            folder=None if checkpoint is None else Path(checkpoint),
            every=checkpoint_every,
            of=of,
            resume=resume,
            callbacks=callbacks,
            workers=workers,
        )
        self.networks_ = trained.networks
        self.history_ = trained.history
        self.best_epoch_ = trained.best_epoch
        self.learning_rate_ = trained.rate

    # Models on disk

    @property
    def _is_own(self) -> bool:
        """Whether the network is the user's, who knows its size."""
        return getattr(self, "network", None) is not None

    @abstractmethod
    def _make_network(self) -> nn.Module:
        """A network of the shape that the data and the parameters say, on the CPU."""

    @abstractmethod
    def _other_state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What was fitted beside the networks: tensors, and what goes into the description."""

    @abstractmethod
    def _set_other_state(self, tensors: dict[str, Any], about: dict[str, Any]) -> None:
        """Read it back."""

    @property
    def _is_sharded(self) -> bool:
        """Whether this process holds some rows only of what `_shards` names."""
        return False

    def _shards(self, names: Iterable[str]) -> dict[str, Shard]:  # noqa: ARG002 (for those that have some)
        """Those of the tensors on disk of which this process holds some rows only."""
        return {}

    def _tensors(self) -> dict[str, Any]:
        from plackett.training.checkpoints import with_prefix

        tensors, _ = self._other_state()
        for number, network in enumerate(self.networks_):
            tensors |= with_prefix(str(number), network.state_dict())
        return tensors

    def _write_weights(self, path: Path) -> None:
        from plackett.training.checkpoints import write_tensors

        write_tensors(path, self._tensors(), {})

    def _save_state(self, folder: Path) -> dict[str, Any]:
        from plackett.networks import check_weights
        from plackett.training.shards import open_tensors

        for network in self.networks_:
            check_weights(network)  # so that what is written can be read
        _, about = self._other_state()
        self._write_weights(folder / WEIGHTS)
        with open_tensors(folder / WEIGHTS) as stored:
            checksum = stored.checksum
        return {
            "sha256": hash_of(folder / WEIGHTS),
            "checksum": checksum,  # in place of the hash for those who read a part of the file
            "members": len(self.networks_),
            "about": about,
            "history": measures_to_json(self.history_.rows),
            "best_epoch": self.best_epoch_,
            "learning_rate": self.learning_rate_,
        }

    def _load_state(self, folder: Path, state: dict[str, Any]) -> None:
        torch = import_torch(type(self).__name__)
        from plackett.networks import check_weights, set_weights
        from plackett.training import History
        from plackett.training.checkpoints import under
        from plackett.training.shards import open_tensors

        path = folder / WEIGHTS
        expected = {"checksum": state["checksum"]} if self._is_sharded else {"sha256": state["sha256"]}
        with open_tensors(path, **expected) as stored:
            tensors, _ = stored.read(self._shards(stored.names))
        device, about = self._device(), field(state, "about", dict)
        self.networks_ = []
        try:
            if about["features"] != self.n_features_in_:
                raise ValueError(f"features must be {self.n_features_in_}, got {about['features']!r}")
            # Each layer has tensors: more of them would be made for nothing.
            layers = len(self.hidden_sizes) + getattr(self, "attention_layers", 0)
            if not 1 <= field(state, "members", int) <= len(tensors) or layers > len(tensors):
                raise ValueError(f"{state['members']} networks of {layers} layers from {len(tensors)} tensors")
            parts = ("scaling", *map(str, range(state["members"])))
            extra = [name for name in tensors if not name.startswith(tuple(f"{part}." for part in parts))]
            if extra:
                raise ValueError(f"tensor {extra[0][:80]!r} belongs to none of {state['members']} networks")
            self._set_other_state(tensors, about)
            for number in range(state["members"]):
                with nullcontext() if self._is_own else torch.device("meta"):
                    network = self._make_network()
                set_weights(network, under(str(number), tensors))
                check_weights(network)
                self.networks_.append(network.to(device).eval())
        except (RuntimeError, ValueError, TypeError, OverflowError) as error:
            raise DataError(f"the weights do not fit the description ({error})", file=str(path)) from error
        history = measures_from_json(field(state, "history", list))
        if not all(isinstance(row, dict) for row in history):
            raise ValueError("history must hold measures by name for each epoch")
        self.history_ = History(history)
        self.best_epoch_ = field(state, "best_epoch", int, NoneType)
        self.learning_rate_ = field(state, "learning_rate", float)

    def _export(self, path: str | os.PathLike[str], score: Callable[[Any, Any], Any]) -> None:
        """The whole model as an ONNX file, or nothing; `score` is what a network makes of scaled rows."""
        check_is_fitted(self, "networks_")
        torch = import_torch("export_onnx")
        try:
            import onnx  # noqa: F401
            import onnxscript  # noqa: F401
        except ImportError:
            raise MissingDependencyError("onnx", "onnx", "export_onnx") from None
        from plackett.data.files import atomic_path
        from plackett.networks import WholeModel

        with atomic_path(path) as temporary, _quiet_exporter():
            torch.onnx.export(
                WholeModel(self.scaling_, self.networks_, score).cpu().eval(),
                (torch.ones(3, self.n_features_in_),),
                temporary,
                input_names=["features"],
                output_names=["scores"],
                dynamic_shapes=({0: torch.export.Dim("rows", min=1)},),
                dynamo=True,
                external_data=False,
                verbose=False,
            )


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """torch's exporter tells of packages it does without, and of its own use of what it calls deprecated."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        logger.setLevel(before)
