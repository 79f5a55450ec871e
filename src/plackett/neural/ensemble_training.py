"""Several trainings: one per learning rate to choose from, one per member of an ensemble."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from plackett.neural.checkpoints import NetworkCheckpoint, reserved
from plackett.neural.processes import SingleProcess
from plackett.neural.training_loop import Callback, History, Task, TrainingOutcome, TrainingSettings, train


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
        folder: for checkpoints, one file per training. Finished trainings are not repeated.
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
            path = folder / f"member{member}-rate{rate!r}.safetensors"
            checkpoint = NetworkCheckpoint(path, checkpoint_every, fingerprint, processes)
            if not resume:
                checkpoint.clear()
        chosen = replace(settings, learning_rate=rate, seed=seed)
        outcome = train(task, chosen, checkpoint=checkpoint, callbacks=callbacks, title=title, processes=processes)
        keys = ({"member": member} if members > 1 else {}) | ({"learning_rate": rate} if has_choice else {})
        rows.extend(keys | row for row in outcome.history)
        return task, outcome

    with contextlib.nullcontext() if folder is None else reserved(folder, processes):
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
