"""Output layers sharded by column: every process of a group has the same rows and a range of the columns.

A row needs the scores of its positives, wherever they are held, and w_R of all other columns. Each process finds both
for the columns it holds, as `linear` does, and then

    forward    all-reduce MAX   the w_R of each process                                             (rows,)
               all-reduce SUM   exp(w_R of each process - max), and the scores of the positives     (rows + positives,)
    backward   all-reduce SUM   the gradient of hidden                                              (rows, features)

whatever the number of processes. After the forward pass all hold the same short lists, hence the same loss; what pulls
at w_R pulls at that of each process by its share, exp(own - whole), so the gradient is that of the whole layer. The
logistic loss treats each column by itself: only the losses of the rows are summed.

The signatures are those of `linear`, with the weight and bias of this process's columns and its `Shard`; `indices` are
columns of the whole layer. All processes of the group must call with the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, distributed
from torch.autograd.function import once_differentiable

from plackett.likelihood.sparse import Positives
from plackett.lists import IntArray
from plackett.losses.linear import check_layer, output_layer
from plackett.losses.lists import check_finite, reduce_losses
from plackett.losses.sparse import (
    check_sample,
    log_sum_of_sample,
    sampled_columns,
    short_list_likelihood,
    sparse_logistic_loss,
)


@dataclass(frozen=True)
class Shard:
    """The columns that process `number` of the `count` processes in `group` holds, of `columns` in all.

    >>> [(shard.first, shard.last) for shard in (Shard(7, number, 3) for number in range(3))]
    [(0, 2), (2, 4), (4, 7)]
    """

    columns: int
    number: int = 0
    count: int = 1
    group: Any = None

    @property
    def first(self) -> int:
        return self.columns * self.number // self.count

    @property
    def last(self) -> int:
        return self.columns * (self.number + 1) // self.count

    @property
    def width(self) -> int:
        return self.last - self.first

    def add(self, values: Tensor) -> Tensor:
        """The sum over all shards, in place."""
        if self.count > 1:
            distributed.all_reduce(values, group=self.group)
        return values

    def largest(self, values: Tensor) -> Tensor:
        """The maximum over all shards, in place."""
        if self.count > 1:
            distributed.all_reduce(values, distributed.ReduceOp.MAX, group=self.group)
        return values

    def gather(self, values: Tensor) -> list[Tensor]:
        """The values of all shards, in their order; they have one shape."""
        if self.count == 1:
            return [values]
        parts = [torch.empty_like(values) for _ in range(self.count)]
        distributed.all_gather(parts, values.contiguous(), group=self.group)
        return parts


class _Shared(torch.autograd.Function):
    """The same values on all shards, each of which has its part of their gradient."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, shard: Shard) -> Tensor:
        ctx.shard = shard
        return values.view_as(values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        # Half precision would round every partial sum.
        wide = grad.float() if grad.dtype in (torch.float16, torch.bfloat16) else grad.clone()
        return ctx.shard.add(wide.contiguous()).to(grad.dtype), None


class _Summed(torch.autograd.Function):
    """The sum over all shards of values that each has its part of."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, shard: Shard) -> Tensor:  # noqa: ARG004 (torch's signature)
        return shard.add(values.clone())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:  # noqa: ARG004
        return grad, None


class _Whole(torch.autograd.Function):
    """Scores of all positives and w_R of all columns, from those of this shard."""

    @staticmethod
    def forward(
        ctx: Any, own: Tensor, rest: Tensor, places: Tensor, positives: int, shard: Shard
    ) -> tuple[Tensor, Tensor]:
        peak = shard.largest(rest.clone())
        # No column left on any shard, or no number: the sum tells them apart, and tells all shards alike.
        peak = torch.where(torch.isfinite(peak), peak, 0.0)
        message = rest.new_zeros(len(rest) + positives)
        message[: len(rest)] = torch.exp(rest - peak)
        message[len(rest) + places] = own.to(rest.dtype)
        shard.add(message)
        whole = peak + torch.log(message[: len(rest)])
        share = torch.where(rest == -torch.inf, 0.0, torch.exp(rest - whole))
        ctx.save_for_backward(places, share)
        return message[len(rest) :].to(own.dtype), whole

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_own: Tensor, grad_rest: Tensor) -> Any:
        places, share = ctx.saved_tensors
        return grad_own[places], grad_rest * share, None, None, None


@dataclass(frozen=True)
class _Local:
    """The positives among the columns held here, by their places among all positives and in the weight given."""

    places: Tensor
    positives: Positives

    @classmethod
    def of(cls, positives: Positives, shard: Shard, held: IntArray | None, device: torch.device) -> _Local:
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


def _likelihood(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    positives: Positives,
    shard: Shard,
    kind: str,
    *,
    top: int | None = None,
    tol: float | None = None,
    chunk: int | None = None,
    negatives: tuple[Any, Any] | None = None,
    held: IntArray | None = None,
) -> Tensor:
    _check(hidden, weight, bias, shard, held)
    local = _Local.of(positives, shard, held, hidden.device)
    shared: Tensor = _Shared.apply(hidden, shard)
    if negatives is None:
        own, rest = output_layer(shared, weight, bias, local.positives, chunk)
    else:
        own, rest = _sampled(shared, weight, bias, local.positives, negatives, shard, held)
    own, rest = _Whole.apply(own, rest, local.places, len(positives.columns), shard)
    if negatives is not None:
        check_sample(rest, positives)
    check_finite("scores (hidden @ weight.T + bias)", rest[torch.as_tensor(positives.has_rest, device=rest.device)])
    return short_list_likelihood(positives, own, rest, kind, top, tol)


def _sampled(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    positives: Positives,
    negatives: tuple[Any, Any],
    shard: Shard,
    held: IntArray | None,
) -> tuple[Tensor, Tensor]:
    """The same of sampled columns, as far as they are held here; w_R is -inf where none is."""
    columns, device = sampled_columns(negatives, hidden), hidden.device
    here = (columns >= shard.first) & (columns < shard.last)
    numbers = columns[here] - shard.first
    if held is not None:
        numbers = torch.searchsorted(torch.as_tensor(held, device=device), columns[here])
    log_counts = torch.as_tensor(negatives[1], device=device)[here]
    row, column = (torch.as_tensor(x, device=device) for x in (positives.row, positives.columns))
    own, candidates = (hidden[row] * weight[column]).sum(-1), hidden @ weight[numbers].T
    if bias is not None:
        own, candidates = own + bias[column], candidates + bias[numbers]
    return own, log_sum_of_sample(candidates, numbers, log_counts, positives).double()


def sharded_partition_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    indices: Any,
    offsets: Any,
    shard: Shard,
    *,
    labels: Any = None,
    weights: Any = None,
    reduction: str = "mean",
    top: int | None = None,
    tol: float | None = None,
    chunk: int | None = None,
    negatives: tuple[Any, Any] | None = None,
    held: IntArray | None = None,
) -> Tensor:
    """`linear_partition_loss` of a layer whose columns are held by several processes; the same value on all of them.

    Args:
        negatives: columns of the whole layer, the same on all processes.
        held: the columns that the rows of weight and bias are, ascending, where they are not all of the shard.
    """
    positives = Positives(indices, offsets, labels, len(hidden), shard.columns)
    options: dict[str, Any] = {"top": top, "tol": tol, "chunk": chunk, "negatives": negatives, "held": held}
    value = _likelihood(hidden, weight, bias, positives, shard, "partition", **options)
    return reduce_losses(-value, weights, reduction)


def sharded_lower_bound_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    indices: Any,
    offsets: Any,
    shard: Shard,
    *,
    labels: Any = None,
    weights: Any = None,
    reduction: str = "mean",
    chunk: int | None = None,
    negatives: tuple[Any, Any] | None = None,
    held: IntArray | None = None,
) -> Tensor:
    """`linear_lower_bound_loss` of such a layer; arguments as in `sharded_partition_loss`."""
    positives = Positives(indices, offsets, labels, len(hidden), shard.columns)
    options: dict[str, Any] = {"chunk": chunk, "negatives": negatives, "held": held}
    value = _likelihood(hidden, weight, bias, positives, shard, "lower_bound", **options)
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
    """`sparse_logistic_loss` of such a layer. The scores of the columns held here are made as a whole."""
    _check(hidden, weight, bias, shard, None)
    local = _Local.of(Positives(indices, offsets, None, len(hidden), shard.columns), shard, None, hidden.device)
    scores = torch.nn.functional.linear(_Shared.apply(hidden, shard), weight, bias)
    part = sparse_logistic_loss(scores, local.positives.columns, local.positives.offsets, reduction="none")
    return reduce_losses(_Summed.apply(part, shard), weights, reduction)
