"""Output layers sharded by column: every process of a group has the same rows and a range of the columns.

A row needs the scores of its positives, wherever they are held, and w_R of all other columns. Each process computes
both for the columns it holds, as `fused_layer` does, and then

    forward    all-reduce MAX   the w_R of each process                                             (rows,)
               all-reduce SUM   exp(w_R of each process - max), and the scores of the positives     (rows + positives,)
    backward   all-reduce SUM   the gradient of hidden                                              (rows, features)

whatever the number of processes. After the forward pass all hold the same short lists, hence the same loss. The
gradient of w_R reaches the w_R of each process by its share, exp(w_R of the process - w_R), so it is the gradient of
the unsharded layer. The logistic loss treats each column by itself: only the losses of the rows are summed.

The signatures are those of `fused_layer`, with the weight and bias of this process's columns and its `Shard`.
`indices` are columns of the unsharded layer. All processes of the group must call with the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from plackett.arguments import check_finite
from plackett.likelihood.torch_op import Positives
from plackett.lists import IntArray, reduce_losses
from plackett.losses.fused_layer import check_layer, output_layer, positive_and_sampled_scores
from plackett.losses.sparse_columns import (
    Shard,
    check_sample,
    log_sum_of_sample,
    sampled_columns,
    short_list_likelihood,
    sparse_logistic_loss,
)


class _Shared(torch.autograd.Function):
    """Values that are the same on all shards. The gradient is the sum over shards."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, shard: Shard) -> Tensor:
        ctx.shard = shard
        return values.view_as(values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        # In half precision every partial sum would be rounded.
        wide = grad.float() if grad.dtype in (torch.float16, torch.bfloat16) else grad.clone()
        return ctx.shard.add(wide.contiguous()).to(grad.dtype), None


class _Summed(torch.autograd.Function):
    """The sum of the values of all shards."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, shard: Shard) -> Tensor:  # noqa: ARG004 (torch's signature)
        return shard.add(values.clone())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:  # noqa: ARG004
        return grad, None


class _CombineShards(torch.autograd.Function):
    """Scores of all positives and w_R of all columns, from those of each shard."""

    @staticmethod
    def forward(
        ctx: Any, own: Tensor, rest: Tensor, places: Tensor, positives: int, shard: Shard
    ) -> tuple[Tensor, Tensor]:
        peak = shard.largest(rest.clone())
        # Infinite if no shard has a column left, or NaN. The sum tells them apart, with the same result on all shards.
        peak = torch.where(torch.isfinite(peak), peak, 0.0)
        message = rest.new_zeros(len(rest) + positives)
        message[: len(rest)] = torch.exp(rest - peak)
        message[len(rest) + places] = own.to(rest.dtype)
        shard.add(message)
        total = peak + torch.log(message[: len(rest)])
        share = torch.where(rest == -torch.inf, 0.0, torch.exp(rest - total))
        ctx.save_for_backward(places, share)
        return message[len(rest) :].to(own.dtype), total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_own: Tensor, grad_rest: Tensor) -> Any:
        places, share = ctx.saved_tensors
        return grad_own[places], grad_rest * share, None, None, None


@dataclass(frozen=True)
class _LocalPositives:
    """The positives among the columns held here: their places among all positives, and their rows of the weight."""

    places: Tensor
    positives: Positives

    @classmethod
    def select(cls, positives: Positives, shard: Shard, held: IntArray | None, device: torch.device) -> _LocalPositives:
        inside = np.flatnonzero((positives.columns >= shard.first) & (positives.columns < shard.last))
        columns, row = positives.columns[inside], positives.row[inside]
        rows = len(positives.has_rest)
        numbers = columns - shard.first if held is None else np.searchsorted(held, columns)
        width = shard.width if held is None else len(held)
        offsets = np.searchsorted(row, np.arange(rows + 1))
        return cls(torch.as_tensor(inside, device=device), Positives(numbers, offsets, None, rows, width))


def _check(hidden: Tensor, weight: Tensor, bias: Tensor | None, shard: Shard, held: IntArray | None) -> None:
    check_layer(hidden, weight, bias)
    expected = shard.width if held is None else len(held)
    if len(weight) != expected:
        raise ValueError(f"weight must have a row for each of the {expected} columns held here, got {len(weight)}")


class ShardOptions(TypedDict, total=False):
    """Options of the likelihoods of a sharded layer.

    labels      grades of the positives, one per index
    chunk       columns at a time
    negatives   (columns of the unsharded layer, log expected counts), the same on all processes
    held        the columns that the rows of weight and bias are, ascending, where they are not all of the shard
    """

    labels: Any
    chunk: int | None
    negatives: tuple[Any, Any] | None
    held: IntArray | None


def _short_lists(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    indices: Any,
    offsets: Any,
    shard: Shard,
    options: ShardOptions,
) -> tuple[Positives, Tensor, Tensor]:
    """Checked positives, their scores, and w_R of the other columns, the same on all processes."""
    chunk, negatives, held = options.get("chunk"), options.get("negatives"), options.get("held")
    positives = Positives(indices, offsets, options.get("labels"), len(hidden), shard.columns)
    _check(hidden, weight, bias, shard, held)
    local = _LocalPositives.select(positives, shard, held, hidden.device)
    shared: Tensor = _Shared.apply(hidden, shard)
    if negatives is None:
        own, rest = output_layer(shared, weight, bias, local.positives, chunk)
    else:
        own, rest = _sampled(shared, weight, bias, local.positives, negatives, shard, held)
    own, rest = _CombineShards.apply(own, rest, local.places, len(positives.columns), shard)
    if negatives is not None:
        check_sample(rest, positives)
    check_finite("scores (hidden @ weight.T + bias)", rest[torch.as_tensor(positives.has_rest, device=rest.device)])
    return positives, own, rest


def _sampled(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    positives: Positives,
    negatives: tuple[Any, Any],
    shard: Shard,
    held: IntArray | None,
) -> tuple[Tensor, Tensor]:
    """Scores of the positives and w_R, estimated from the sampled columns held here; -inf where there is none."""
    columns, device = sampled_columns(negatives, hidden), hidden.device
    here = (columns >= shard.first) & (columns < shard.last)
    numbers = columns[here] - shard.first
    if held is not None:
        numbers = torch.searchsorted(torch.as_tensor(held, device=device), columns[here])
    log_counts = torch.as_tensor(negatives[1], device=device)[here]
    own, candidates = positive_and_sampled_scores(hidden, weight, bias, positives.row, positives.columns, numbers)
    return own, log_sum_of_sample(candidates, numbers, log_counts, positives).double()


def sharded_partition_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    indices: Any,
    offsets: Any,
    shard: Shard,
    *,
    weights: Any = None,
    reduction: str = "mean",
    top: int | None = None,
    tol: float | None = None,
    **options: Unpack[ShardOptions],
) -> Tensor:
    """`linear_partition_loss` of a layer whose columns are held by several processes; the same value on all of them."""
    positives, own, rest = _short_lists(hidden, weight, bias, indices, offsets, shard, options)
    value = short_list_likelihood(positives, own, rest, "partition", top, tol)
    return reduce_losses(-value, weights, reduction)


def sharded_lower_bound_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    indices: Any,
    offsets: Any,
    shard: Shard,
    *,
    weights: Any = None,
    reduction: str = "mean",
    **options: Unpack[ShardOptions],
) -> Tensor:
    """`linear_lower_bound_loss` of a sharded layer."""
    positives, own, rest = _short_lists(hidden, weight, bias, indices, offsets, shard, options)
    value = short_list_likelihood(positives, own, rest, "lower_bound")
    return reduce_losses(-value, weights, reduction)


def sharded_logistic_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    indices: Any,
    offsets: Any,
    shard: Shard,
    *,
    weights: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """`sparse_logistic_loss` of a sharded layer. The scores of all columns held here are in memory at once."""
    _check(hidden, weight, bias, shard, None)
    local = _LocalPositives.select(
        Positives(indices, offsets, None, len(hidden), shard.columns), shard, None, hidden.device
    )
    scores = torch.nn.functional.linear(_Shared.apply(hidden, shard), weight, bias)
    part = sparse_logistic_loss(scores, local.positives.columns, local.positives.offsets, reduction="none")
    return reduce_losses(_Summed.apply(part, shard), weights, reduction)
