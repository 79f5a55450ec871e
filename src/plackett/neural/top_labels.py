"""The best columns of scores = hidden @ weight.T + bias, chunk by chunk, without storing all scores at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from plackett.losses.sparse_columns import Shard
from plackett.neural.top_kernels import keep_best
from plackett.threads import at_most, run_over_ranges

_NUMBERS_AT_ONCE = 1 << 22

Layer = tuple[Tensor, Tensor, Tensor] | Tensor
"""hidden (rows, features), weight (columns, features), bias (columns,); or scores (rows, columns)"""


def top_columns(
    layers: Sequence[Layer], k: int, shard: Shard | None = None, extra: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The k best columns and their scores, best first; scores are the mean over layers plus `extra`, (rows, columns).

    Among equal scores the lower column comes first. With a shard, the layers hold its columns, and the result is the
    best of all shards.
    """
    example = layers[0]
    rows, columns = example.shape if isinstance(example, Tensor) else (len(example[0]), len(example[1]))
    width = max(k, min(columns, max(1024, _NUMBERS_AT_ONCE // max(1, rows))))
    device = example[0].device
    best = torch.full((rows, k), -torch.inf, device=device)
    where = torch.zeros((rows, k), dtype=torch.int64, device=device)
    buffer = torch.empty(rows * width, device=device)
    for first in range(0, columns, width):
        last = min(first + width, columns)
        scores = buffer[: rows * (last - first)].view(rows, last - first)
        _mean_of(layers, first, last, scores)
        if extra is not None:
            scores.add_(extra[:, first:last])
        (_keep_best if device.type == "cpu" else _keep_best_in_torch)(scores, first, best, where)
    return (where, best) if shard is None or shard.count == 1 else _best_of_shards(where + shard.first, best, shard)


def _best_of_shards(where: Tensor, best: Tensor, shard: Shard) -> tuple[Tensor, Tensor]:
    """Merge the best of all shards. They come in column order, so a stable sort keeps ties in column order."""
    columns, scores = torch.cat(shard.gather(where), 1), torch.cat(shard.gather(best), 1)
    order = torch.sort(scores, stable=True, dim=1, descending=True).indices[:, : best.shape[1]]
    return columns.gather(1, order), scores.gather(1, order)


def _keep_best(scores: Tensor, first: int, best: Tensor, where: Tensor) -> None:
    """Merge the scores of columns first, first + 1, ... into the best of each row, in place."""
    arrays = scores.numpy(), first, best.numpy(), where.numpy()
    with at_most(torch.get_num_threads()):
        run_over_ranges(lambda a, b: keep_best(a, b, *arrays), np.arange(len(scores) + 1) * scores.shape[1])


def _keep_best_in_torch(scores: Tensor, first: int, best: Tensor, where: Tensor) -> None:
    k = best.shape[1]
    # Most chunks hold nothing better than the best so far. Their maximum shows that faster than sorting.
    better = torch.nonzero(scores.amax(1) > best[:, -1])[:, 0]
    if len(better):
        values, found = _best_of(scores[better], min(k, scores.shape[1]))
        merged = torch.cat([best[better], values], 1)
        places = torch.cat([where[better], found + first], 1)
        # Stable, so that among equal scores the lower column comes first.
        order = torch.sort(merged, stable=True, dim=1, descending=True).indices[:, :k]
        best[better], where[better] = merged.gather(1, order), places.gather(1, order)


def _best_of(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Scores and columns of the k best. Among equal scores the lower column wins; topk alone would pick any."""
    values, found = scores.topk(min(k + 1, scores.shape[1]), 1)
    tied = torch.nonzero((values[:, 1:] == values[:, :-1]).any(1))[:, 0]
    if len(tied):
        in_order = torch.sort(scores[tied], stable=True, dim=1, descending=True)
        values[tied], found[tied] = (x[:, : values.shape[1]] for x in in_order)
    return values[:, :k], found[:, :k]


def _mean_of(layers: Sequence[Layer], first: int, last: int, out: Tensor) -> None:
    """Write the mean scores of columns first to last - 1 to `out`."""
    share = 1.0 / len(layers)
    for number, layer in enumerate(layers):
        if isinstance(layer, Tensor):
            (out if number else out.zero_()).add_(layer[:, first:last], alpha=share)
        else:
            hidden, weight, bias = layer
            if number:
                out.add_(bias[first:last], alpha=share)
            start, kept = (out, 1.0) if number else (bias[first:last], share)
            torch.addmm(start, hidden, weight[first:last].T, beta=kept, alpha=share, out=out)
