"""Scores, best labels and metrics of many rows, a block of rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from plackett.data.containers import without_grades
from plackett.metrics import MULTILABEL_METRICS, get_metric
from plackett.neural.networks import ExtremeNetwork, Rows, gather_scores, rows_on_device
from plackett.neural.ridge_paths import KernelPath, LinearPath
from plackett.neural.top_labels import Layer, top_columns

if TYPE_CHECKING:
    from plackett.neural.extreme_fitting import LabelledRows

ROWS_AT_ONCE = 1024
_SCORES_AT_ONCE = 1 << 24
# Times weights of at most 1e18 each, summed over 100,000 units, hidden units up to here give finite scores.
_LARGEST_UNIT = 1e15


def row_slices(rows: int, size: int | None = None) -> Iterator[slice]:
    """All rows, `size` at a time; None: `ROWS_AT_ONCE`."""
    step = size or ROWS_AT_ONCE
    return (slice(first, min(first + step, rows)) for first in range(0, rows, step))


def _input_blocks(networks: Sequence[ExtremeNetwork], X: Any, path: LinearPath | KernelPath | None) -> Iterator[Rows]:
    network = networks[0]
    device = next(network.parameters()).device
    # A linear model, or a path, computes all scores of a block at once.
    has_scores = network.output is None or path is not None
    size = max(1, min(ROWS_AT_ONCE, _SCORES_AT_ONCE // network.shard.columns)) if has_scores else None
    for block in row_slices(X.shape[0], size):
        yield rows_on_device(X[block], device)


@torch.no_grad()
def predict_scores(
    networks: Sequence[ExtremeNetwork], X: Any, path: LinearPath | KernelPath | None = None
) -> npt.NDArray[np.float32]:
    """The mean scores of all labels, (rows, labels), from scaled rows, plus those of the path."""
    parts = [np.zeros((0, networks[0].shard.columns), np.float32)]
    for block in _input_blocks(networks, X, path):
        scores = torch.stack([network.scores(block) for network in networks]).mean(0)
        if path is not None:
            scores += gather_scores(path(block), networks[0].shard)
        parts.append(scores.float().cpu().numpy())
    return np.concatenate(parts)


@torch.no_grad()
def predict_top_labels(
    networks: Sequence[ExtremeNetwork], X: Any, k: int, path: LinearPath | KernelPath | None = None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """The k best labels and their scores, best first, (rows, k) each, from scaled rows; scores as in `predict_scores`.

    Scores are NaN where they overflow, since the best labels are not known then.
    """
    labels, scores = [np.zeros((0, k), np.int64)], [np.zeros((0, k), np.float32)]
    for block in _input_blocks(networks, X, path):
        layers = [network.output_operands(block) for network in networks]
        extra = None if path is None else path(block)
        found, values = top_columns(layers, k, networks[0].shard, extra)
        for layer in layers if extra is None else [*layers, extra]:
            if not _is_moderate(layer):
                values[_rows_that_overflow(layer)] = torch.nan
        labels.append(found.cpu().numpy())
        scores.append(values.float().cpu().numpy())
    return np.concatenate(labels), np.concatenate(scores)


def _is_moderate(layer: Layer) -> bool:
    """Whether no score can overflow."""
    units = layer if isinstance(layer, Tensor) else layer[0]
    if units.numel() == 0:
        return True
    least, most = torch.aminmax(units)  # NaN if there is one
    return bool(least >= -_LARGEST_UNIT) and bool(most <= _LARGEST_UNIT)


def _rows_that_overflow(layer: Layer) -> list[int]:
    """Rows with a score that is not finite: comparisons with NaN would leave out labels."""
    units = layer if isinstance(layer, Tensor) else layer[0]
    suspects = torch.nonzero(~(units.abs().amax(1) <= _LARGEST_UNIT))[:, 0].tolist()  # NaN is one, too
    return [row for row in suspects if not bool(torch.isfinite(_scores_of_row(layer, row)).all())]


def _scores_of_row(layer: Layer, row: int) -> Tensor:
    if isinstance(layer, Tensor):
        return layer[row]
    hidden, weight, bias = layer
    return torch.addmv(bias, weight, hidden[row])


# Metrics


class ExtremeMetric:
    """A metric of a network by name: of the best labels of each row, or of the ranking of all labels."""

    def __init__(self, name: str, inverse_propensity: npt.NDArray[np.float64] | None) -> None:
        base, _, cutoff = name.partition("@")
        self.is_multilabel = base in MULTILABEL_METRICS
        needed = {"inverse_propensity": inverse_propensity} if base.startswith("ps") else {}
        self._function: Callable[..., Any] = get_metric(name, multilabel=self.is_multilabel, **needed)
        self.k = int(cutoff) if cutoff else 5

    def of_best_labels(self, best: npt.NDArray[np.int64], rows: LabelledRows) -> float:
        """The value from at least k best labels of each row, or all labels if there are fewer."""
        missing = max(self.k - best.shape[1], 0)
        labels = np.pad(best[:, : self.k], ((0, 0), (0, missing)), constant_values=-1)  # -1: no more labels
        return float(self._function(labels, without_grades(rows.Y)))

    def of_rows(self, scores: npt.NDArray[np.float32], labels: Any) -> npt.NDArray[np.float64]:
        """The value of each row of a block, from the scores of all labels; NaN where it is not defined."""
        return np.asarray(self._function(scores, labels, reduction="none"))


@torch.no_grad()
def evaluate_metrics(
    network: ExtremeNetwork,
    rows: LabelledRows,
    metrics: Mapping[str, ExtremeMetric],
    path: LinearPath | KernelPath | None = None,
) -> dict[str, float]:
    """All metrics from one pass of the rows through the network, and through the path if there is one."""
    deepest = max((metric.k for metric in metrics.values() if metric.is_multilabel), default=0)
    rankings = {name: metric for name, metric in metrics.items() if not metric.is_multilabel}
    best, values = [], dict[str, list[npt.NDArray[np.float64]]]({name: [] for name in rankings})
    for block in row_slices(len(rows)):
        features = rows.features(block)
        hidden, extra = network(features), None if path is None else path(features)
        if deepest:
            operands = network.operands_of(hidden)
            found, _ = top_columns([operands], min(deepest, rows.Y.shape[1]), network.shard, extra)
            best.append(found.cpu().numpy())
        if rankings:
            scores, labels = network.scores_of(hidden), rows.labels(block).table()
            if extra is not None:
                scores = scores + gather_scores(extra, network.shard)
            table = scores.float().cpu().numpy()
            for name, metric in rankings.items():
                values[name].append(metric.of_rows(table, labels))
    return {
        name: metric.of_best_labels(np.concatenate(best), rows)
        if metric.is_multilabel
        else _mean_of_known(np.concatenate(values[name]))
        for name, metric in metrics.items()
    }


def _mean_of_known(values: npt.NDArray[np.float64]) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")
