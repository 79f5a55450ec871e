"""Scores and best labels of many rows, a block of rows at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from plackett.neural.extreme_data import ROWS_AT_ONCE, row_slices
from plackett.neural.networks import ExtremeNetwork, Rows, gather_scores, rows_on_device
from plackett.neural.ridge_paths import KernelPath, LinearPath
from plackett.neural.top_labels import Layer, top_columns

_SCORES_AT_ONCE = 1 << 24
# Times weights of at most 1e18 each, summed over 100,000 units, hidden units up to here give finite scores.
_LARGEST_UNIT = 1e15


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
    """Rows with a score that is not finite: comparisons with NaN would leave labels out."""
    units = layer if isinstance(layer, Tensor) else layer[0]
    suspects = torch.nonzero(~(units.abs().amax(1) <= _LARGEST_UNIT))[:, 0].tolist()  # NaN is one, too
    return [row for row in suspects if not bool(torch.isfinite(_scores_of_row(layer, row)).all())]


def _scores_of_row(layer: Layer, row: int) -> Tensor:
    if isinstance(layer, Tensor):
        return layer[row]
    hidden, weight, bias = layer
    return torch.addmv(bias, weight, hidden[row])
