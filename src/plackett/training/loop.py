"""The training loop.

Everything random of a step is drawn from a seed made of (seed, epoch, step), so a training that is taken up from a
checkpoint needs no state of generators and goes on exactly as it would have.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from plackett.errors import DataError
from plackett.lists import IntArray, check_positive
from plackett.losses.sharded import Shard
from plackett.networks import sharded_weights
from plackett.networks.weights import set_weights
from plackett.progress import progress_bar
from plackett.training.checkpoints import (
    Checkpoint,
    Tensors,
    optimiser_state,
    restore_optimiser,
    under,
    with_prefix,
)
from plackett.training.history import History
from plackett.training.optimisers import SCHEDULES, make_optimisers, rate_at
from plackett.training.workers import Workers, losses_told

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_RANDOM = threading.Lock()


def _renew_lock() -> None:
    global _RANDOM
    _RANDOM = threading.Lock()  # another thread of the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


class Task(Protocol):
    """What is trained: a network, its batches, its loss, and what is measured of it."""

    network: nn.Module

    def batches(self, generator: np.random.Generator) -> Sequence[IntArray]:
        """The batches of an epoch."""

    def sizes(self, batch: IntArray) -> IntArray:
        """How much work each list or row of a batch is."""

    def loss(self, batch: IntArray, generator: torch.Generator) -> tuple[Tensor, float]:
        """The sum of weight * loss over a batch, and the sum of the weights."""

    def evaluate(self) -> Mapping[str, float]:
        """Measures of the validation sets by name, the one that decides first; empty without any."""


@dataclass(frozen=True)
class Epoch:
    """What a callback is told after an epoch. If it returns True, the training ends."""

    number: int
    history: History
    network: nn.Module


Callback = Callable[[Epoch], Any]


@dataclass(frozen=True)
class Settings:
    """How to train; the names are those of the estimators' parameters."""

    epochs: int = 20
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    schedule: str = "constant"
    warmup: float = 0.0
    clip_norm: float | None = None
    patience: int | None = None
    precision: str = "float32"
    seed: int = 0
    progress: bool = True
    optimizer_options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_positive("epochs", self.epochs)
        if self.schedule not in SCHEDULES:
            raise ValueError(f"schedule must be one of {', '.join(SCHEDULES)}, got {self.schedule!r}")
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, got {self.precision!r}")
        if self.patience is not None:
            check_positive("early_stopping_rounds", self.patience, ", or None")
        self._check("learning_rate", lambda rate: rate > 0, "a number above 0")
        self._check("weight_decay", lambda decay: decay >= 0, "a number of at least 0")
        self._check("warmup", lambda share: 0 <= share < 1, "a share from 0 to less than 1")
        if self.clip_norm is not None:
            self._check("clip_norm", lambda norm: norm > 0, "a number above 0, or None")

    def _check(self, name: str, holds: Callable[[float], bool], expected: str) -> None:
        value = getattr(self, name)
        if not isinstance(value, int | float) or not math.isfinite(value) or not holds(value):
            raise ValueError(f"{name} must be {expected}, got {value!r}")


@contextmanager
def seeded(number: int, device: torch.device) -> Iterator[None]:
    """torch's own generator, which layers and dropout use, seeded, and put back afterwards.

    One thread at a time: the generator is the process's.
    """
    devices = [device] if device.type == "cuda" else []
    with _RANDOM, torch.random.fork_rng(devices):
        torch.manual_seed(number)
        yield


@contextmanager
def _randomness(seed: Sequence[int], device: torch.device) -> Iterator[torch.Generator]:
    """The randomness of a step: torch's own generator, and one for the loss."""
    number = int(np.random.SeedSequence(list(seed)).generate_state(1, np.uint64)[0]) >> 1
    with seeded(number, device):
        yield torch.Generator(device).manual_seed(number)


@dataclass
class _Position:
    """How far a training is: the next step of the epoch under way, and what has been gathered."""

    epoch: int = 0
    step: int = 0
    total: float = 0.0
    weight: float = 0.0
    seconds: float = 0.0
    best: float | None = None
    best_epoch: int = 0
    is_done: bool = False

    def __post_init__(self) -> None:
        """It may come from a file."""
        counts, sums = (
            (self.epoch, self.step, self.best_epoch),
            (self.total, self.weight, self.seconds, self.best or 0.0),
        )
        is_right = all(type(count) is int and count >= 0 for count in counts) and type(self.is_done) is bool
        if not is_right or not all(isinstance(number, int | float) for number in sums):
            raise ValueError(f"a position of {vars(self)}")


class _Training:
    def __init__(self, task: Task, settings: Settings, checkpoint: Checkpoint | None, workers: Workers) -> None:
        self.task, self.settings, self.checkpoint, self.workers = task, settings, checkpoint, workers
        network = task.network
        self.device = next(network.parameters()).device
        self.optimisers = make_optimisers(
            network,
            settings.optimizer,
            settings.learning_rate,
            settings.weight_decay,
            settings.optimizer_options,
        )
        scales = settings.precision == "float16"
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=scales)
        self.position = _Position()
        self.history = History()
        self.best_weights: Tensors = {}

    # The state on disk

    def save(self) -> None:
        if self.checkpoint is None:
            return
        self.workers.spread(self.task.network.buffers())
        tensors = with_prefix("network", self.task.network.state_dict()) | with_prefix("best", self.best_weights)
        numbers = []
        for number, optimiser in enumerate(self.optimisers):
            of_optimiser, plain = optimiser_state(optimiser)
            tensors |= with_prefix(f"optimiser{number}", of_optimiser)
            numbers.append(plain)
        about = {"position": vars(self.position), "history": self.history.rows, "optimisers": numbers}
        self.checkpoint.save(tensors, {**about, "scaler": self.scaler.state_dict()}, self._shards())

    def _shards(self) -> dict[str, Shard]:
        """What of the state is held in shards: weights, and what the optimisers keep of each."""
        weights = sharded_weights(self.task.network)
        names = {id(parameter): name for name, parameter in self.task.network.named_parameters()}
        found = {f"{kind}.{name}": shard for kind in ("network", "best") for name, shard in weights.items()}
        for number, optimiser in enumerate(self.optimisers):
            parameters = [p for group in optimiser.param_groups for p in group["params"]]
            for place, parameter in enumerate(parameters):
                if names[id(parameter)] in weights:
                    found[f"optimiser{number}.{place}"] = weights[names[id(parameter)]]
        return found

    def is_due(self) -> bool:
        """Whether to keep the state now; all processes hear the same."""
        return self.checkpoint is not None and self.workers.decide(self.checkpoint.is_due, self.device)

    def restore(self) -> None:
        found = None if self.checkpoint is None else self.checkpoint.load(self._shards())
        if found is not None:
            try:
                self._set(*found)
            except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
                file = "" if self.checkpoint is None else str(self.checkpoint.path)
                raise DataError(f"not a checkpoint of this training ({error})", file=file) from error
        at = "none" if found is None else f"one of epoch {self.position.epoch + 1}, step {self.position.step + 1}"
        self.workers.agree({"the checkpoint, on a file system that all share,": at})

    def begin_alike(self) -> None:
        """Begin as the first process does: a module of the user's may have other weights on each."""
        network = self.task.network
        sharded = sharded_weights(network)
        named = [*network.named_parameters(), *network.named_buffers()]
        alike = {name: tensor for name, tensor in named if name not in sharded}
        layers = tuple((name, tensor.shape, tensor.dtype) for name, tensor in alike.items())
        if not self.workers.all_have(layers):
            raise ValueError("the network must have the same layers on all processes, got others")
        self.workers.spread(alike.values())

    def _set(self, tensors: Tensors, about: dict[str, Any]) -> None:
        set_weights(self.task.network, under("network", tensors))
        self.best_weights = under("best", tensors)
        for number, optimiser in enumerate(self.optimisers):
            restore_optimiser(optimiser, under(f"optimiser{number}", tensors), about["optimisers"][number])
        self.position = _Position(**about["position"])
        if self.position.epoch > self.settings.epochs:
            raise ValueError(f"in epoch {self.position.epoch} of {self.settings.epochs}")
        self.history = History(about["history"])
        if not all(isinstance(value, int | float) for row in self.history for value in row.values()):
            raise ValueError("a history of other things than numbers")
        if about["scaler"]:
            self.scaler.load_state_dict(about["scaler"])

    # Steps

    def step(self, batch: IntArray, done: float) -> None:
        settings, position = self.settings, self.position
        rate = rate_at(done, settings.learning_rate, settings.schedule, settings.warmup)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = rate
            optimiser.zero_grad(set_to_none=True)
        workers = self.workers
        own = workers.share(batch, self.task.sizes(batch))
        seed = (settings.seed, position.epoch, position.step, *([workers.rank] if workers.rank else []))
        with _randomness(seed, self.device) as generator:
            total, weight = torch.zeros((), device=self.device), 0.0
            with torch.autocast(
                self.device.type, PRECISIONS[settings.precision], enabled=settings.precision != "float32"
            ):
                if len(own):
                    total, weight = self.task.loss(own, generator)
            value, weight = workers.totals(float(total.detach()), weight, device=self.device)
            if not math.isfinite(value):
                raise ValueError(
                    f"the loss became {value} in epoch {position.epoch + 1}: lower learning_rate, set clip_norm, or "
                    "look at the scale of the features"
                )
            if weight > 0 and total.requires_grad:
                self.scaler.scale(total / weight).backward()
        if weight > 0 and (total.requires_grad or workers.count > 1):
            workers.add_gradients(self.task.network)
            if any(parameter.grad is not None for parameter in self.task.network.parameters()):
                self._move()
        position.total += value
        position.weight += weight
        position.step += 1

    def _move(self) -> None:
        for optimiser in self.optimisers:
            self.scaler.unscale_(optimiser)
        if self.settings.clip_norm is not None:
            clip_gradients(self.task.network, self.settings.clip_norm, sharded_weights(self.task.network))
        # torch's AdaGrad makes sparse tensors without a word on their checks, and then warns that nobody said one.
        with torch.sparse.check_sparse_tensor_invariants(enable=False):
            for optimiser in self.optimisers:
                self.scaler.step(optimiser)
        self.scaler.update()

    def finish_epoch(self, seconds: float) -> None:
        """Measure, note it, and keep the weights if they are the best so far."""
        settings, position = self.settings, self.position
        # Such as the running means of batch normalisation, which each process takes over its own share.
        self.workers.spread(self.task.network.buffers())
        self.task.network.eval()
        measured = self.workers.from_first(lambda: dict(self.task.evaluate()))
        self.task.network.train()
        position.seconds += seconds
        done = (position.epoch + 1) / settings.epochs
        self.history.rows.append(
            {
                "epoch": position.epoch + 1,
                "loss": position.total / position.weight if position.weight else 0.0,
                "rate": rate_at(min(done, 1.0), settings.learning_rate, settings.schedule, settings.warmup),
                "seconds": position.seconds,
                **measured,
            }
        )
        name, value = next(iter(measured.items()), ("", math.nan))
        if measured and math.isnan(value) and settings.patience is not None:
            raise ValueError(
                f"early stopping needs a number, got NaN as {name}: the metric is defined for none of the validation "
                "data, such as where no item is relevant"
            )
        if not math.isnan(value) and (position.best is None or value > position.best):
            position.best, position.best_epoch = value, position.epoch + 1
            if settings.patience is not None:
                weights = self.task.network.state_dict()
                self.best_weights = {name: tensor.detach().clone() for name, tensor in weights.items()}
        position.epoch += 1
        position.step, position.total, position.weight = 0, 0.0, 0.0
        stale = settings.patience is not None and position.epoch - position.best_epoch >= settings.patience
        position.is_done = position.epoch >= settings.epochs or stale

    def note(self) -> str:
        """What stands beside the progress bar."""
        if not self.history.rows:
            return f"epoch 1 of {self.settings.epochs}"
        row = self.history.rows[-1]
        shown = [f"{name} {value:.4f}" for name, value in row.items() if name not in ("epoch", "rate", "seconds")]
        return f"epoch {row['epoch']} of {self.settings.epochs}, {', '.join(shown[:2])}"


def clip_gradients(network: nn.Module, largest: float, shards: Mapping[str, Shard] | None = None) -> None:
    """Scale all gradients down together where their norm is larger; sparse ones count by their values.

    Weights in shards count with the rows that other processes hold.
    """
    gradients = {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
    norms = {
        name: torch.linalg.vector_norm(g.coalesce().values() if g.is_sparse else g) for name, g in gradients.items()
    }
    for name, shard in (shards or {}).items():
        if name in norms:
            norms[name] = shard.add(norms[name].square()).sqrt()
    norm = torch.linalg.vector_norm(torch.stack(list(norms.values())))
    factor = torch.clamp(largest / (norm + 1e-12), max=1.0)
    for gradient in gradients.values():
        gradient.mul_(factor)


@dataclass(frozen=True)
class Outcome:
    """The history, and the best epoch by the first measure with its value; None without validation."""

    history: History
    best_epoch: int | None
    best: float | None


def train(
    task: Task,
    settings: Settings,
    *,
    checkpoint: Checkpoint | None = None,
    callbacks: Sequence[Callback] = (),
    title: str = "Training",
    workers: Workers | None = None,
) -> Outcome:
    """Train the network of a task in place. With patience it ends with the weights of the best epoch.

    Inside a process group all processes train it together; `workers` says how, if not by the data alone.
    """
    with losses_told():
        return _train(_Training(task, settings, checkpoint, workers or Workers()), callbacks, title)


def _train(training: _Training, callbacks: Sequence[Callback], title: str) -> Outcome:
    task, settings, workers = training.task, training.settings, training.workers
    training.begin_alike()
    training.restore()
    position, network = training.position, task.network
    network.train()
    with progress_bar(title, settings.epochs * 1000, settings.progress and workers.is_first) as tell:
        while not position.is_done:
            start = time.perf_counter()
            batches = task.batches(np.random.default_rng([settings.seed, position.epoch]))
            while position.step < len(batches):
                done = (position.epoch + position.step / len(batches)) / settings.epochs
                tell(int(1000 * done * settings.epochs), training.note())
                if training.is_due():
                    position.seconds += time.perf_counter() - start
                    start = time.perf_counter()
                    training.save()
                training.step(batches[position.step], done)
            training.finish_epoch(time.perf_counter() - start)
            told = Epoch(position.epoch, training.history, network)
            answers = [callback(told) for callback in callbacks]
            position.is_done = workers.decide(position.is_done or any(answers), training.device)
            if training.is_due() or position.is_done:
                training.save()
    network.eval()
    if settings.patience is not None and training.best_weights:
        network.load_state_dict(training.best_weights)
    return Outcome(training.history, position.best_epoch or None, position.best)
