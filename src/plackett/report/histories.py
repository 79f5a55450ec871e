"""The history of a training run as a table and a figure."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from plackett.data.files import save_figure
from plackett.errors import MissingDependencyError
from plackett.report.page.picture import plain
from plackett.report.terminal import terminal_text

_SHOWN = 12
_NOT_MEASURED = ("member", "learning_rate", "epoch", "rate", "seconds")


def history_table(history: Any, rows: int = _SHOWN) -> Table:
    """One row per epoch; a long history is reduced to evenly spaced epochs, including the first and the last."""
    table = Table(title=f"{len(history)} epochs")
    for column in history.columns:
        table.add_column(terminal_text(column), justify="right")
    count = len(history)
    kept = sorted({round(i * (count - 1) / max(1, rows - 1)) for i in range(rows)}) if count > rows else range(count)
    for number in kept:
        row = history.rows[number]
        table.add_row(*(_text(column, row.get(column)) for column in history.columns))
    return table


def _text(column: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int):
        return str(value)
    return f"{value:.1f}" if column == "seconds" else f"{value:.3g}" if column.endswith("rate") else f"{value:.4f}"


def runs_of(history: Any) -> dict[str, list[dict[str, Any]]]:
    """The rows of each member and learning rate by its name, which is empty if there is only one run."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for row in history:
        parts = [f"{name.replace('_', ' ')} {row[name]:g}" for name in ("member", "learning_rate") if name in row]
        runs.setdefault(", ".join(parts), []).append(row)
    return runs


def metrics_of(history: Any) -> list[str]:
    """The columns with a metric of a validation set."""
    return [name for name in history.columns if name not in (*_NOT_MEASURED, "loss")]


def plot_history(history: Any, path: str | os.PathLike[str]) -> None:
    """Plot the loss (top) and the validation metrics (bottom) by epoch, one line per member and learning rate."""
    figure_class = _figure_class("plot_history")
    runs, metrics = runs_of(history), metrics_of(history)
    figure = figure_class(figsize=(7.0, 5.5 if metrics else 3.2), layout="constrained")
    axes = figure.subplots(1 + bool(metrics), 1, sharex=True, squeeze=False)[:, 0]
    for name, rows in runs.items():
        epochs = [row["epoch"] for row in rows]
        axes[0].plot(epochs, [row["loss"] for row in rows], label=plain(name) or None)
        for metric in metrics:
            label = ", ".join(part for part in (metric, name) if part)
            axes[-1].plot(epochs, [row[metric] for row in rows], label=plain(label))
    axes[0].set_ylabel("training loss")
    if metrics:
        axes[-1].set_ylabel("validation")
        axes[-1].legend(fontsize="small")
    if len(runs) > 1:
        axes[0].legend(fontsize="small")
    axes[-1].set_xlabel("epoch")
    for axis in axes:
        axis.grid(alpha=0.3)
    save_figure(figure, path)


def plot_rounds(history: Mapping[str, Mapping[str, Sequence[float]]], path: str | os.PathLike[str]) -> None:
    """Plot `evals_result_` of boosted trees by round: one panel per metric, one line per data set."""
    figure_class = _figure_class("plot_rounds")
    metrics = list(dict.fromkeys(metric for found in history.values() for metric in found))
    figure = figure_class(figsize=(7.0, 0.9 + 2.3 * len(metrics)), layout="constrained")
    axes = figure.subplots(len(metrics), 1, sharex=True, squeeze=False)[:, 0]
    for axis, metric in zip(axes, metrics, strict=True):
        for name, found in history.items():
            axis.plot(range(1, 1 + len(found[metric])), found[metric], label=plain(name))
        axis.set_ylabel(plain(metric))
        axis.legend(fontsize="small")
        axis.grid(alpha=0.3)
    axes[-1].set_xlabel("round")
    save_figure(figure, path)


def _figure_class(name: str) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingDependencyError("matplotlib", "report", name) from None
    return Figure
