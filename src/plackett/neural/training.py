"""Training: the processes that train together, one training run, and those of an ensemble.

All random numbers of a step come from a seed made of (seed, epoch, step). So a run that resumes from a checkpoint
needs no generator state and continues exactly as if it had never stopped.
"""

from __future__ import annotations

import inspect
import math
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, distributed, nn

from plackett.arguments import check_positive
from plackett.lists import IntArray
from plackett.losses.sparse_columns import Shard
from plackett.neural.networks import sharded_weights
from plackett.progress import progress_bar

if TYPE_CHECKING:
    from plackett.neural.checkpoints import NetworkCheckpoint

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
OPTIMISERS = ("adam", "adamw", "sparse_adam", "adagrad", "sgd")

SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda _: 1.0,
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: 0.5 * (1.0 + math.cos(math.pi * done)),
}
"""The factor on the learning rate after the share `done` of all steps."""

_GENERATOR_LOCK = threading.Lock()

Found = TypeVar("Found")


# Processes


def has_process_group() -> bool:
    """Whether this process has joined a process group of torch.distributed."""
    return distributed.is_available() and distributed.is_initialized()


class SingleProcess:
    """The processes that train a network together: here one, which holds all data and all labels.

    `plackett.distributed.ProcessMesh` is the subclass for the process groups of torch.distributed. The training loop is
    written against this interface, so it is the same for one process and for many.

    The interface is that of a mesh, data x labels. All processes hold the same data and draw the same batches. Along
    the first axis (`count`, `rank`) each computes the loss of its share of a batch. Along the second axis (`shards`,
    `number`) each holds a range of the labels. `world` is the number of processes.
    """

    world = 1
    count, rank = 1, 0
    shards, number = 1, 0

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0 and self.number == 0

    def guarded(self) -> AbstractContextManager[Any]:
        """A context in which the loss of another process raises an error that says so."""
        return nullcontext()

    def shard(self, columns: int) -> Shard:
        """The columns that this process holds."""
        return Shard(columns)

    def share(self, batch: IntArray, sizes: IntArray) -> IntArray:  # noqa: ARG002 (the interface)
        """This process's part of a batch whose lists have these sizes."""
        return batch

    def totals(self, *values: float, device: torch.device) -> list[float]:  # noqa: ARG002
        """The sums over the data axis."""
        return list(values)

    def add_gradients(self, network: nn.Module) -> None:
        """Sum the gradients over the data axis, in place."""

    def gather(self, find: Callable[[], Found]) -> list[Found]:
        """The results of `find` on all processes, by rank. If one of them fails, all do."""
        return [find()]

    def from_first(self, find: Callable[[], Found]) -> Found:
        """The first process's result of `find`, on all processes. Those that share its labels call `find` too."""
        return find()

    def decide(self, flag: bool, device: torch.device) -> bool:  # noqa: ARG002
        """The first process's flag, on all processes."""
        return flag

    def all_have(self, value: Hashable) -> bool:
        """Whether all processes have the same value."""
        return len(set(self.gather(lambda: value))) == 1

    def agree(self, named: Mapping[str, str]) -> None:
        """Raise an error on all processes if they differ in values that must be the same."""
        everywhere = self.gather(lambda: dict(named))
        for name in named:
            values = [str(one.get(name)) for one in everywhere]
            if len(set(values)) > 1:
                raise ValueError(f"{name} must be the same on all processes, got {', '.join(values)}")

    def broadcast(self, tensors: Iterable[torch.Tensor]) -> None:
        """Copy the first process's tensors to all processes, in place."""


# Tasks and settings


class Task(Protocol):
    """A network to train, with its batches, its loss and its validation metrics."""

    network: nn.Module

    def batches(self, generator: np.random.Generator) -> Sequence[IntArray]:
        """The batches of an epoch."""

    def sizes(self, batch: IntArray) -> IntArray:
        """The amount of work for each list or row of a batch."""

    def loss(self, batch: IntArray, generator: torch.Generator) -> tuple[Tensor, float]:
        """The sum of weight * loss over a batch, and the sum of the weights."""

    def evaluate(self) -> Mapping[str, float]:
        """Metrics of the validation sets by name. The first one decides. Empty without validation sets."""


@dataclass(frozen=True)
class Epoch:
    """The argument of callbacks after each epoch. If a callback returns True, training ends."""

    number: int
    history: History
    network: nn.Module


Callback = Callable[[Epoch], Any]


class History:
    """One row per epoch: epoch, loss, rate, seconds, and each metric of each validation set.

    >>> history = History([{"epoch": 1, "loss": 2.0}, {"epoch": 2, "loss": 1.5}])
    >>> history["loss"]
    [2.0, 1.5]
    """

    def __init__(self, rows: list[dict[str, Any]] | None = None) -> None:
        self.rows = [] if rows is None else rows

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(name for row in self.rows for name in row))

    def __getitem__(self, column: str) -> list[Any]:
        if column not in self.columns:
            raise KeyError(f"the history has the columns {', '.join(self.columns)}, not {column!r}")
        return [row.get(column) for row in self.rows]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __repr__(self) -> str:
        return f"History({len(self)} epochs: {', '.join(self.columns)})"


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of a training run, named like the parameters of the estimators."""

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


# Random numbers


def _renew_lock() -> None:
    global _GENERATOR_LOCK
    _GENERATOR_LOCK = threading.Lock()  # a thread of the parent process may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


@contextmanager
def seeded(number: int, device: torch.device) -> Iterator[None]:
    """Seed torch's global generator, which layers and dropout use, and restore it afterwards.

    One thread at a time: the whole process shares the generator.
    """
    devices = [device] if device.type == "cuda" else []
    with _GENERATOR_LOCK, torch.random.fork_rng(devices):
        if device.type == "cpu":  # torch.manual_seed takes a millisecond: it records its caller for other devices
            torch.default_generator.manual_seed(number)
        else:
            torch.manual_seed(number)
        yield


@dataclass(frozen=True)
class TaskMaker:
    """Makes the task of an ensemble member from its seed: `make_task` of `make_network()` with seeded weights."""

    make_network: Callable[[], nn.Module]
    make_task: Callable[[Any], Any]
    device: torch.device

    def __call__(self, seed: int) -> Any:
        with seeded(seed, self.device):
            network = self.make_network().to(self.device)
        return self.make_task(network)


@contextmanager
def _randomness(seed: Sequence[int], device: torch.device) -> Iterator[torch.Generator]:
    """Seed torch's global generator for a step; yields a generator for the loss."""
    number = int(np.random.SeedSequence(list(seed)).generate_state(1, np.uint64)[0]) >> 1
    with seeded(number, device):
        yield torch.Generator(device).manual_seed(number)


# Optimisers


def rate_at(done: float, rate: float, schedule: str, warmup: float) -> float:
    """The learning rate after the share `done` of the training. It rises linearly over the first share `warmup`."""
    if done < warmup:
        return rate * done / warmup
    return rate * SCHEDULES[schedule]((done - warmup) / (1.0 - warmup))


def sparse_parameters(network: nn.Module) -> set[int]:
    """The ids of the parameters whose gradients are sparse."""
    return {id(module.weight) for module in network.modules() if getattr(module, "sparse_gradient", False)}


def without_compiler(kind: type[torch.optim.Optimizer]) -> Any:
    """The same optimiser without the wrappers that torch puts around its methods for `torch.compile`.

    The first call of such a method imports the compiler, which takes longer than a short training. Plackett compiles
    layers, never optimisers.
    """
    names = ("add_param_group", "zero_grad", "state_dict", "load_state_dict", "step")
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in names}
    return type(kind.__name__, (kind,), {**methods, "step": torch.no_grad()(methods["step"])})


def make_optimisers(
    network: nn.Module, name: str, rate: float, weight_decay: float, options: dict[str, Any]
) -> list[torch.optim.Optimizer]:
    """One optimiser for dense gradients and, if layers have sparse gradients, SparseAdam for those.

    Weights decay; biases and norms do not. Weights with sparse gradients do not decay either, because a step updates
    only the rows that occur. AdaGrad and SGD handle sparse gradients themselves.
    """
    if name not in OPTIMISERS:
        raise ValueError(f"optimizer must be one of {', '.join(OPTIMISERS)}, got {name!r}")
    parameters = [p for p in network.parameters() if p.requires_grad]
    sparse_ids = sparse_parameters(network)
    takes_sparse = name in ("adagrad", "sgd")
    if name == "sgd" and options.get("momentum") and sparse_ids:
        raise ValueError(  # torch would keep a sparse momentum that grows with every step
            "optimizer_options must not have momentum where gradients are sparse: set sparse_gradients=False and "
            f"negatives=None, got {options}"
        )
    for_sparse_adam = [p for p in parameters if id(p) in sparse_ids and not takes_sparse]
    others = [p for p in parameters if id(p) not in sparse_ids or takes_sparse]
    if name == "sparse_adam" and others:
        name = "adam"  # for dense gradients
    groups = [
        {"params": [p for p in others if p.dim() > 1 and id(p) not in sparse_ids], "weight_decay": weight_decay},
        {"params": [p for p in others if p.dim() <= 1 or id(p) in sparse_ids], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    found: list[torch.optim.Optimizer] = []
    # The fused forms pass over memory once per step: four to six times as fast on large layers.
    fused: dict[str, Any] = {"fused": True} if all(p.device.type in ("cpu", "cuda") for p in parameters) else {}
    kinds: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "adam": lambda: without_compiler(torch.optim.Adam)(groups, rate, **fused, **options),
        "adamw": lambda: without_compiler(torch.optim.AdamW)(groups, rate, **fused, **options),
        "adagrad": lambda: without_compiler(torch.optim.Adagrad)(groups, rate, **options),
        "sgd": lambda: without_compiler(torch.optim.SGD)(groups, rate, **options),
    }
    try:
        if groups:
            found.append(kinds[name]())
    except TypeError as error:
        raise ValueError(f"optimizer_options must be options of {name}, got {options}: {error}") from error
    if for_sparse_adam:
        known = {key: value for key, value in options.items() if key in ("betas", "eps", "maximize")}
        found.append(without_compiler(torch.optim.SparseAdam)(for_sparse_adam, rate, **known))
    return found


def clip_gradients(network: nn.Module, largest: float, shards: Mapping[str, Shard] | None = None) -> None:
    """Scale all gradients down together if their norm exceeds `largest`.

    For weights in shards the norm includes the rows that other processes hold.
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


# One training


@dataclass
class Position:
    """The progress of a training run: the next epoch and step, and the running sums."""

    epoch: int = 0
    step: int = 0
    total: float = 0.0
    weight: float = 0.0
    seconds: float = 0.0
    best: float | None = None
    best_epoch: int = 0
    is_done: bool = False

    def __post_init__(self) -> None:
        """Check the fields: they may come from a file."""
        counts, sums = (
            (self.epoch, self.step, self.best_epoch),
            (self.total, self.weight, self.seconds, self.best or 0.0),
        )
        is_right = all(type(count) is int and count >= 0 for count in counts) and type(self.is_done) is bool
        if not is_right or not all(isinstance(number, int | float) for number in sums):
            raise ValueError(f"the position must hold counts and numbers, got {vars(self)}")


class Training:
    """A training in progress: optimisers, position, history, and the best weights so far."""

    def __init__(
        self, task: Task, settings: TrainingSettings, checkpoint: NetworkCheckpoint | None, processes: SingleProcess
    ) -> None:
        self.task, self.settings, self.checkpoint, self.processes = task, settings, checkpoint, processes
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
        self.position = Position()
        self.history = History()
        self.best_weights: dict[str, Tensor] = {}

    def save(self) -> None:
        if self.checkpoint is not None:
            self.processes.broadcast(self.task.network.buffers())
            self.checkpoint.save_training(self)

    def is_due(self) -> bool:
        """Whether to save a checkpoint now; the same on all processes."""
        return self.checkpoint is not None and self.processes.decide(self.checkpoint.is_due, self.device)

    def restore(self) -> None:
        """Continue from the checkpoint, if there is one."""
        has_state = self.checkpoint is not None and self.checkpoint.restore_training(self)
        at = f"one of epoch {self.position.epoch + 1}, step {self.position.step + 1}" if has_state else "none"
        self.processes.agree({"the checkpoint, on a file system that all share,": at})

    def synchronise_weights(self) -> None:
        """Start from the weights of the first process: a user's own network may differ between processes."""
        network = self.task.network
        sharded = sharded_weights(network)
        named = [*network.named_parameters(), *network.named_buffers()]
        replicated = {name: tensor for name, tensor in named if name not in sharded}
        layers = tuple((name, tensor.shape, tensor.dtype) for name, tensor in replicated.items())
        if not self.processes.all_have(layers):
            raise ValueError("the network must have the same layers on all processes, got different ones")
        self.processes.broadcast(replicated.values())

    def step(self, batch: IntArray, done: float) -> None:
        settings, position = self.settings, self.position
        rate = rate_at(done, settings.learning_rate, settings.schedule, settings.warmup)
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = rate
            optimiser.zero_grad(set_to_none=True)
        processes = self.processes
        own = processes.share(batch, self.task.sizes(batch))
        seed = (settings.seed, position.epoch, position.step, *([processes.rank] if processes.rank else []))
        with _randomness(seed, self.device) as generator:
            total, weight = torch.zeros((), device=self.device), 0.0
            with torch.autocast(
                self.device.type, PRECISIONS[settings.precision], enabled=settings.precision != "float32"
            ):
                if len(own):
                    total, weight = self.task.loss(own, generator)
            value, weight = processes.totals(float(total.detach()), weight, device=self.device)
            if not math.isfinite(value):
                raise ValueError(
                    f"the loss became {value} in epoch {position.epoch + 1}: lower learning_rate, set clip_norm, or "
                    "check the scale of the features"
                )
            if weight > 0 and total.requires_grad:
                self.scaler.scale(total / weight).backward()
        if weight > 0 and (total.requires_grad or processes.count > 1):
            processes.add_gradients(self.task.network)
            if any(parameter.grad is not None for parameter in self.task.network.parameters()):
                self._update_weights()
        position.total += value
        position.weight += weight
        position.step += 1

    def _update_weights(self) -> None:
        for optimiser in self.optimisers:
            self.scaler.unscale_(optimiser)
        if self.settings.clip_norm is not None:
            clip_gradients(self.task.network, self.settings.clip_norm, sharded_weights(self.task.network))
        # torch's AdaGrad makes sparse tensors without choosing whether to check them, and then warns that it is unset.
        with torch.sparse.check_sparse_tensor_invariants(enable=False):
            for optimiser in self.optimisers:
                self.scaler.step(optimiser)
        self.scaler.update()

    def finish_epoch(self, seconds: float) -> None:
        """Evaluate, add a row to the history, and keep the weights if they are the best so far."""
        settings, position = self.settings, self.position
        # Buffers such as the running means of batch normalisation differ: each process sees its share of the data.
        self.processes.broadcast(self.task.network.buffers())
        self.task.network.eval()
        measured = self.processes.from_first(lambda: dict(self.task.evaluate()))
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
                f"early stopping needs a number, got NaN as {name}: the metric is undefined on all validation data, "
                "for example because no item is relevant"
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
        """The text next to the progress bar."""
        if not self.history.rows:
            return f"epoch 1 of {self.settings.epochs}"
        row = self.history.rows[-1]
        shown = [f"{name} {value:.4f}" for name, value in row.items() if name not in ("epoch", "rate", "seconds")]
        return f"epoch {row['epoch']} of {self.settings.epochs}, {', '.join(shown[:2])}"


@dataclass(frozen=True)
class TrainingOutcome:
    """The history, and the best epoch by the first metric with its value; None without validation."""

    history: History
    best_epoch: int | None
    best: float | None


def train(
    task: Task,
    settings: TrainingSettings,
    *,
    checkpoint: NetworkCheckpoint | None = None,
    callbacks: Sequence[Callback] = (),
    title: str = "Training",
    processes: SingleProcess | None = None,
) -> TrainingOutcome:
    """Train the network of a task in place. With `patience` it ends with the weights of the best epoch.

    Args:
        processes: the processes that train it together; None: this one alone.
    """
    if processes is None:
        if has_process_group() and distributed.get_world_size() > 1:
            raise ValueError(
                "processes must be given inside a process group, got None: pass "
                "plackett.distributed.current_processes()"
            )
        processes = SingleProcess()
    with processes.guarded():
        return _train(Training(task, settings, checkpoint, processes), callbacks, title)


def _train(training: Training, callbacks: Sequence[Callback], title: str) -> TrainingOutcome:
    task, settings, processes = training.task, training.settings, training.processes
    training.synchronise_weights()
    training.restore()
    position, network = training.position, task.network
    network.train()
    with progress_bar(title, settings.epochs * 1000, settings.progress and processes.is_first) as show:
        while not position.is_done:
            start = time.perf_counter()
            batches = task.batches(np.random.default_rng([settings.seed, position.epoch]))
            while position.step < len(batches):
                done = (position.epoch + position.step / len(batches)) / settings.epochs
                show(int(1000 * done * settings.epochs), training.note())
                if training.is_due():
                    position.seconds += time.perf_counter() - start
                    start = time.perf_counter()
                    training.save()
                training.step(batches[position.step], done)
            training.finish_epoch(time.perf_counter() - start)
            epoch = Epoch(position.epoch, training.history, network)
            requests = [callback(epoch) for callback in callbacks]
            position.is_done = processes.decide(position.is_done or any(requests), training.device)
            if training.is_due() or position.is_done:
                training.save()
    network.eval()
    if settings.patience is not None and training.best_weights:
        network.load_state_dict(training.best_weights)
    return TrainingOutcome(training.history, position.best_epoch or None, position.best)


# Ensembles


@dataclass(frozen=True)
class TrainedEnsemble:
    """The networks of all members, the chosen rate, the best validation value of each rate, and one joint history."""

    networks: list[nn.Module]
    rate: float
    rates: dict[float, float | None]
    best_epoch: int | None
    history: History


def check_rates(rates: Any) -> list[float]:
    """One learning rate, or several to choose from, as a list."""
    values = list(rates) if isinstance(rates, list | tuple) else [rates]
    if not values or any(isinstance(r, bool) or not isinstance(r, int | float) or not r > 0 for r in values):
        raise ValueError(f"learning_rate must be a number above 0, or a list of them, got {rates!r}")
    return [float(rate) for rate in values]


def _reserved(folder: Path | None, processes: SingleProcess) -> AbstractContextManager[None]:
    """Keep other training runs out of the folder for checkpoints, if there is one."""
    if folder is None:
        return nullcontext()
    from plackett.neural.checkpoints import reserved

    return reserved(folder, processes)


def train_members(
    make_task: Callable[[int], Task],
    settings: TrainingSettings,
    *,
    rates: Sequence[float],
    members: int = 1,
    folder: Path | None = None,
    checkpoint_every: float = 60.0,
    fingerprint: str = "",
    resume: bool = True,
    callbacks: Sequence[Callback] = (),
    processes: SingleProcess | None = None,
) -> TrainedEnsemble:
    """Train the members of an ensemble one after the other, with the learning rate that is best for the first.

    Args:
        make_task: makes the task of a member from its seed.
        folder: for checkpoints, one file per run. Finished runs are not repeated.
        checkpoint_every, fingerprint: see `NetworkCheckpoint`.
        resume: continue from the checkpoints in the folder; False: start over.
        processes: the processes that train together; None: this one alone.
    """
    processes = processes or SingleProcess()
    rows: list[dict[str, Any]] = []
    has_choice = len(rates) > 1

    def run(rate: float, member: int, title: str) -> tuple[Task, TrainingOutcome]:
        seed = settings.seed + member
        task = make_task(seed)
        checkpoint = None
        if folder is not None:
            from plackett.neural.checkpoints import NetworkCheckpoint

            path = folder / f"member{member}-rate{rate!r}.safetensors"
            checkpoint = NetworkCheckpoint(path, checkpoint_every, fingerprint, processes)
            if not resume:
                checkpoint.clear()
        chosen = replace(settings, learning_rate=rate, seed=seed)
        outcome = train(task, chosen, checkpoint=checkpoint, callbacks=callbacks, title=title, processes=processes)
        keys = ({"member": member} if members > 1 else {}) | ({"learning_rate": rate} if has_choice else {})
        rows.extend(keys | row for row in outcome.history)
        return task, outcome

    with _reserved(folder, processes):
        first: tuple[float, Task, TrainingOutcome] | None = None
        found: dict[float, float | None] = {}
        best = -math.inf
        for rate in rates:
            task, outcome = run(rate, 0, f"Rate {rate:g}" if has_choice else "Training")
            if has_choice and outcome.best is None:
                raise ValueError("learning_rate as a list needs an eval_set or validation_fraction, got neither")
            found[rate] = outcome.best
            if first is None or (outcome.best is not None and outcome.best > best):
                first, best = (rate, task, outcome), -math.inf if outcome.best is None else outcome.best
        if first is None:
            raise ValueError("learning_rate must name at least one rate")
        rate, task, outcome = first
        networks = [task.network]
        networks += [run(rate, member, f"Member {member + 1} of {members}")[0].network for member in range(1, members)]
        return TrainedEnsemble(networks, rate, found, outcome.best_epoch, History(rows))
