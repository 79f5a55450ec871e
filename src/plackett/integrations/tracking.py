"""Callbacks that send every round of trees and every epoch of networks to TensorBoard, MLflow or Weights & Biases.

    from plackett.integrations.tracking import MLflowCallback
    with mlflow.start_run():
        model.fit(train, eval_set=valid, callbacks=[MLflowCallback()])

The same callback serves BoostedRanker, lightgbm.train, NeuralRanker and ExtremeClassifier. Measures are named "valid/
ndcg@10" after the evaluation set and the metric, and "loss", "rate", "seconds" for networks; the step is the round or
epoch, from 1. A fit that trains several networks (an ensemble, several learning rates) repeats the epochs: the measures
of the second training run are named "training_2/...", and so on.
"""

from __future__ import annotations

import math
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from plackett.errors import MissingDependencyError

__all__ = ["MLflowCallback", "TensorBoardCallback", "TrackingCallback", "WandbCallback", "measures_of"]


def measures_of(event: Any) -> tuple[int, dict[str, float]]:
    """The step and the measures by name from the argument of a callback: a round of trees or an epoch of a network.

    >>> from types import SimpleNamespace
    >>> measures_of(SimpleNamespace(iteration=0, evaluation_result_list=[("valid", "ndcg@10", 0.5, True)]))
    (1, {'valid/ndcg@10': 0.5})
    """
    if hasattr(event, "evaluation_result_list"):
        results = (tuple(result)[:3] for result in event.evaluation_result_list or ())
        return event.iteration + 1, {f"{name}/{metric}": float(value) for name, metric, value in results}
    row = dict(event.history.rows[-1])
    step = int(row.pop("epoch", event.number))
    # A space separates the name of a set from that of a metric; neither contains one.
    return step, {name.replace(" ", "/"): float(value) for name, value in row.items() if value is not None}


class TrackingCallback(ABC):
    """The base of the callbacks: subclass it for another tracker and write `log`."""

    def __init__(self) -> None:
        self._step = 0
        self._training = 1

    def __call__(self, event: Any) -> None:
        step, measures = measures_of(event)
        if step <= self._step:
            self._training += 1
        self._step = step
        prefix = "" if self._training == 1 else f"training_{self._training}/"
        self.log({prefix + name: value for name, value in measures.items()}, step)

    @abstractmethod
    def log(self, measures: Mapping[str, float], step: int) -> None:
        """Send the measures of a step."""


class TensorBoardCallback(TrackingCallback):
    """Write the measures for TensorBoard: `tensorboard --logdir runs`. Needs no torch.

    Args:
        log_dir: the folder of this run.
        writer: instead of log_dir, an object with `add_scalar(name, value, step)`, such as torch's SummaryWriter.
    """

    def __init__(self, log_dir: str | os.PathLike[str] | None = None, *, writer: Any = None) -> None:
        super().__init__()
        if (log_dir is None) == (writer is None):
            raise ValueError(f"either log_dir or writer must be given, got {'neither' if log_dir is None else 'both'}")
        self._writer = EventFile(log_dir) if log_dir is not None else writer

    def log(self, measures: Mapping[str, float], step: int) -> None:
        """Write the measures of a step."""
        for name, value in measures.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()


class EventFile:
    """A file of TensorBoard events with scalars."""

    def __init__(self, log_dir: str | os.PathLike[str]) -> None:
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError:
            raise MissingDependencyError("tensorboard", "tracking", "TensorBoardCallback") from None
        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._file = EventFileWriter(os.fspath(log_dir))

    def add_scalar(self, name: str, value: float, step: int) -> None:
        """Write one value."""
        summary = self._summary(value=[self._summary.Value(tag=name, simple_value=value)])
        self._file.add_event(self._event(step=step, wall_time=time.time(), summary=summary))

    def flush(self) -> None:
        """Flush what was written to disk."""
        self._file.flush()


class MLflowCallback(TrackingCallback):
    """Send the measures to MLflow, which allows no "@" in names: "valid/ndcg@10" becomes "valid/ndcg_at_10".

    Args:
        run_id: the run to write to; None: the active one, which MLflow starts if there is none.
    """

    def __init__(self, run_id: str | None = None) -> None:
        super().__init__()
        try:
            import mlflow
        except ImportError:
            raise MissingDependencyError("mlflow", "tracking", "MLflowCallback") from None
        self._log, self._run_id = mlflow.log_metrics, run_id

    def log(self, measures: Mapping[str, float], step: int) -> None:
        """Send the measures of a step."""
        named = {re.sub(r"[^\w\-. :/]", "_", name.replace("@", "_at_")): value for name, value in measures.items()}
        self._log(named, step=step, run_id=self._run_id)


class WandbCallback(TrackingCallback):
    """Send the measures to Weights & Biases.

    Args:
        run: the run to write to; None: the current one, which `wandb.init()` has started.
    """

    def __init__(self, run: Any = None) -> None:
        super().__init__()
        try:
            import wandb
        except ImportError:
            raise MissingDependencyError("wandb", "tracking", "WandbCallback") from None
        self._run = wandb.run if run is None else run
        if self._run is None:
            raise ValueError("run must be a run of Weights & Biases, got None: call wandb.init() first")

    def log(self, measures: Mapping[str, float], step: int) -> None:
        """Send the measures of a step. The step is a separate measure, because the steps of a run cannot decrease."""
        name = "round" if self._training == 1 else f"training_{self._training}/round"
        finite = {key: value for key, value in measures.items() if math.isfinite(value)}
        self._run.log({name: step, **finite})
