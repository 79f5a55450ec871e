"""Several trainings: rates to choose from on validation, members of an ensemble."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from plackett.training.checkpoints import Checkpoint, reserved
from plackett.training.history import History
from plackett.training.loop import Callback, Outcome, Settings, Task, train
from plackett.training.workers import Workers


@dataclass(frozen=True)
class Trained:
    """The networks of all members; the rate that was chosen, by the value it reached; the history of everything."""

    networks: list[nn.Module]
    rate: float
    rates: dict[float, float | None]
    best_epoch: int | None
    history: History


def check_rates(rates: Any) -> list[float]:
    """One learning rate, or several to choose from."""
    several = list(rates) if isinstance(rates, list | tuple) else [rates]
    if not several or any(isinstance(r, bool) or not isinstance(r, int | float) or not r > 0 for r in several):
        raise ValueError(f"learning_rate must be a number above 0, or a list of them, got {rates!r}")
    return [float(rate) for rate in several]


def train_members(
    make_task: Callable[[int], Task],
    settings: Settings,
    *,
    rates: Sequence[float],
    members: int = 1,
    folder: Path | None = None,
    every: float = 60.0,
    of: str = "",
    resume: bool = True,
    callbacks: Sequence[Callback] = (),
    workers: Workers | None = None,
) -> Trained:
    """Train the members of an ensemble one after the other, with the rate that is best for the first of them.

    Args:
        make_task: gives the task of a member, by its seed.
        workers: the processes that train together; None: those of the process group, each with a part of the data.
        folder: where each training keeps its state, in a file of its own: what is finished is not repeated.
    """
    workers = workers or Workers()
    rows: list[dict[str, Any]] = []
    several = len(rates) > 1

    def run(rate: float, member: int, purpose: str) -> tuple[Task, Outcome]:
        seed = settings.seed + member
        task = make_task(seed)
        checkpoint = None
        if folder is not None:
            checkpoint = Checkpoint(folder / f"member{member}-rate{rate!r}.safetensors", every, of, workers)
            if not resume:
                checkpoint.clear()
        chosen = replace(settings, learning_rate=rate, seed=seed)
        outcome = train(task, chosen, checkpoint=checkpoint, callbacks=callbacks, title=purpose, workers=workers)
        about = ({"member": member} if members > 1 else {}) | ({"learning_rate": rate} if several else {})
        rows.extend(about | row for row in outcome.history)
        return task, outcome

    with contextlib.nullcontext() if folder is None else reserved(folder, workers):
        first: tuple[float, Task, Outcome] | None = None
        found: dict[float, float | None] = {}
        best = -math.inf
        for rate in rates:
            task, outcome = run(rate, 0, f"Rate {rate:g}" if several else "Training")
            if several and outcome.best is None:
                raise ValueError(
                    "several learning rates need an eval_set or validation_fraction to choose by, got none"
                )
            found[rate] = outcome.best
            if first is None or (outcome.best is not None and outcome.best > best):
                first, best = (rate, task, outcome), -math.inf if outcome.best is None else outcome.best
        if first is None:
            raise ValueError("learning_rate must name at least one rate")
        rate, task, outcome = first
        networks = [task.network]
        networks += [run(rate, member, f"Member {member + 1} of {members}")[0].network for member in range(1, members)]
        return Trained(networks, rate, found, outcome.best_epoch, History(rows))
