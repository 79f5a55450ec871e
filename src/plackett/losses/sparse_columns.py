"""Losses of wide rows with few positives, from the indices of the positives instead of labels for all columns.

    name(scores, indices, offsets, *, labels=None, weights=None, reduction="mean", ...)

scores: (rows, columns). `indices` holds the positive columns row after row, `offsets` the start of each row. All other
columns form the bottom tier. A row without positives contributes 0. `Shard` describes columns that several processes
share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, distributed

from plackett.arguments import check_top
from plackett.likelihood.approximations import efron_or_breslow
from plackett.likelihood.core import Tiers
from plackett.likelihood.torch_op import (
    ExactShortLists,
    OnceDifferentiable,
    Positives,
    at_least_single,
    in_single_precision,
    partition_log_likelihood,
    positives_of,
    refuse_second_derivative,
    sparse_likelihood,
    tol_for,
)
from plackett.lists import reduce_losses
from plackett.losses import loss_kernels, pair_sums
from plackett.losses.listwise import lower_bound_loss
from plackett.threads import at_most, run_over_ranges

_LARGEST_BLOCK = 1 << 22  # numbers in memory at once in the torch version of the pairs


@dataclass(frozen=True)
class Shard:
    """The columns that process `number` of the `count` processes in `group` holds, out of `columns`.

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
        """The values of all shards, in order; all have the same shape."""
        if self.count == 1:
            return [values]
        parts = [torch.empty_like(values) for _ in range(self.count)]
        distributed.all_gather(parts, values.contiguous(), group=self.group)
        return parts


@dataclass(frozen=True)
class LowerBoundShortLists:
    """Breslow's likelihood plus log n_m!, see `lower_bound_loss`."""

    def compiled(self, scores: npt.NDArray[np.float64], tiers: Tiers) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        value, gradient, _ = efron_or_breslow(scores, tiers, efron=False, bottom=False)
        return value + tiers.log_factorials(), gradient

    def in_torch(self, scores: Tensor, labels: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
        leaf = scores.detach().requires_grad_()
        with torch.enable_grad():
            value = -lower_bound_loss(leaf, labels, offsets=offsets, reduction="none")
            (gradient,) = torch.autograd.grad(value.sum(), leaf)
        return value.detach(), gradient


@in_single_precision
def sparse_partition_loss(
    scores: Tensor,
    indices: Any,
    offsets: Any,
    *,
    labels: Any = None,
    weights: Any = None,
    reduction: str = "mean",
    top: int | None = None,
    tol: float | None = None,
    negatives: tuple[Any, Any] | None = None,
) -> Tensor:
    """`partition_loss` of rows with few positives, exact.

    Args:
        labels: grades of the positives, one per index; None: all equal.
        top, tol: as in `partition_loss`.
        negatives: (columns, log expected counts) of a sample of columns that stands for all the others, see
            `sampled_rest`.
    """
    positives = positives_of(scores, indices, offsets, labels)
    if negatives is not None:
        value = _sampled_likelihood(scores, positives, negatives, "partition", top, tol)
    else:
        value = sparse_likelihood(scores, positives, ExactShortLists(check_top(top), tol_for(scores, tol)))
    return reduce_losses(-value, weights, reduction)


@in_single_precision
def sparse_lower_bound_loss(
    scores: Tensor,
    indices: Any,
    offsets: Any,
    *,
    labels: Any = None,
    weights: Any = None,
    reduction: str = "mean",
    negatives: tuple[Any, Any] | None = None,
) -> Tensor:
    """`lower_bound_loss` of rows with few positives; arguments as in `sparse_partition_loss`."""
    positives = positives_of(scores, indices, offsets, labels)
    if negatives is not None:
        value = _sampled_likelihood(scores, positives, negatives, "lower_bound")
    else:
        value = sparse_likelihood(scores, positives, LowerBoundShortLists())
    return reduce_losses(-value, weights, reduction)


@in_single_precision
def sparse_ranknet_loss(
    scores: Tensor, indices: Any, offsets: Any, *, weights: Any = None, reduction: str = "mean"
) -> Tensor:
    """`ranknet_loss` over all pairs of a positive and another column. Positives count as equal."""
    return reduce_losses(_pairs(scores, indices, offsets, pair_sums.LOGISTIC), weights, reduction)


@in_single_precision
def sparse_ranksvm_loss(
    scores: Tensor, indices: Any, offsets: Any, *, weights: Any = None, reduction: str = "mean"
) -> Tensor:
    """`ranksvm_loss` over all pairs of a positive and another column. Positives count as equal."""
    return reduce_losses(_pairs(scores, indices, offsets, pair_sums.HINGE), weights, reduction)


@in_single_precision
def sparse_logistic_loss(
    scores: Tensor, indices: Any, offsets: Any, *, weights: Any = None, reduction: str = "mean"
) -> Tensor:
    """The sum over all columns of the logistic loss: -log sigmoid(score) for positives, -log sigmoid(-score) otherwise.

    It learns the probability of each label, not an order; the baseline of multi-label classification.
    """
    positives = positives_of(scores, indices, offsets, None)
    row, column = _row_and_column(positives, scores.device)
    scores = at_least_single(scores)
    # Flip signs first: softplus(score) - score of a positive with a large score would round away the rest of its row.
    signed = (-scores).index_put_((row, column), scores[row, column])
    return reduce_losses(-torch.nn.functional.logsigmoid(signed).sum(1), weights, reduction)


def _sampled_likelihood(
    scores: Tensor,
    positives: Positives,
    negatives: tuple[Any, Any],
    kind: str,
    top: int | None = None,
    tol: float | None = None,
) -> Tensor:
    row, column = _row_and_column(positives, scores.device)
    rest = sampled_rest(scores[:, sampled_columns(negatives, scores)], negatives, positives)
    return short_list_likelihood(positives, scores[row, column], rest, kind, top, tol)


def sampled_rest(candidates: Tensor, negatives: tuple[Any, Any], positives: Positives) -> Tensor:
    """w_R of each row, estimated from the scores (rows, sample) of sampled columns.

        logsumexp over the sample of (score - log expected count)

    where the expected count is the mean number of times that a sample contains the column. Its exp is unbiased; with
    every column once and counts of one it is exact. Sampled columns that are positives of the row are left out.
    """
    columns = sampled_columns(negatives, candidates)
    log_counts = torch.as_tensor(negatives[1], device=candidates.device, dtype=candidates.dtype)
    if log_counts.shape != columns.shape:
        raise ValueError(
            f"negatives must be (columns, log expected counts) of one length, got {tuple(columns.shape)} and "
            f"{tuple(log_counts.shape)}"
        )
    rest = log_sum_of_sample(candidates, columns, log_counts, positives)
    check_sample(rest, positives)
    return rest


def check_sample(rest: Tensor, positives: Positives) -> None:
    """Raise an error if the sample of a row holds only positives although the row has other columns."""
    if bool(((rest == -torch.inf) & torch.as_tensor(positives.has_rest, device=rest.device)).any()):
        raise ValueError("negatives must leave every row a column that is not positive; draw more")


def log_sum_of_sample(candidates: Tensor, columns: Tensor, log_counts: Tensor, positives: Positives) -> Tensor:
    """The sum of `sampled_rest`; -inf if the whole sample consists of positives of the row."""
    width = positives.width
    keys = torch.as_tensor(positives.row * width + positives.columns, device=columns.device)
    rows = torch.arange(len(candidates), device=columns.device)
    is_positive = torch.isin(rows[:, None] * width + columns, keys)
    shifted = (candidates - log_counts.to(candidates.dtype)).masked_fill(is_positive, -torch.inf)
    return torch.logsumexp(shifted, 1)


def short_list_likelihood(
    positives: Positives, own: Tensor, rest: Tensor, kind: str, top: int | None = None, tol: float | None = None
) -> Tensor:
    """The log-likelihood of each row from the scores of its positives and w_R, both differentiable."""
    is_positive = torch.as_tensor(positives.is_positive, device=own.device)
    has_rest = torch.as_tensor(positives.has_rest, device=own.device)
    scores = own.new_zeros(len(is_positive))
    scores = scores.masked_scatter(is_positive, own).masked_scatter(~is_positive, rest[has_rest].to(own.dtype))
    labels = torch.as_tensor(
        positives.list_labels(), device=own.device, dtype=torch.float32 if own.device.type == "mps" else torch.float64
    )
    if kind == "partition":
        value: Tensor = partition_log_likelihood(scores, labels, offsets=positives.list_offsets, top=top, tol=tol)
        return value
    return -lower_bound_loss(scores, labels, offsets=positives.list_offsets, reduction="none")


def sampled_columns(negatives: tuple[Any, Any], like: Tensor) -> Tensor:
    if not isinstance(negatives, tuple) or len(negatives) != 2:
        raise ValueError(f"negatives must be a pair (columns, log expected counts), got {type(negatives).__name__}")
    columns = torch.as_tensor(negatives[0], device=like.device)
    if columns.dim() != 1 or columns.dtype != torch.int64:
        raise ValueError(f"negatives must begin with a 1-D tensor of int64 columns, got {columns.dtype}")
    return columns


def _row_and_column(positives: Positives, device: torch.device) -> tuple[Tensor, Tensor]:
    return torch.as_tensor(positives.row, device=device), torch.as_tensor(positives.columns, device=device)


class _PairsOfRows(OnceDifferentiable):
    """The value of each row; its gradient is computed with it and kept."""

    @staticmethod
    def forward(scores: Tensor, positives: Positives, kind: int) -> tuple[Tensor, Tensor]:
        if scores.device.type == "cpu":
            return _pairs_compiled(scores.detach(), positives, kind)
        return _pairs_in_torch(scores.detach(), positives, kind)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(inputs[0], output[1])

    @staticmethod
    def backward(ctx: Any, grad_value: Tensor, _: Any) -> Any:
        scores, gradient = ctx.saved_tensors
        return refuse_second_derivative(scores, gradient * grad_value.detach()[:, None]), None, None


def _pairs(scores: Tensor, indices: Any, offsets: Any, kind: int) -> Tensor:
    positives = positives_of(scores, indices, offsets, None)
    value: Tensor = _PairsOfRows.apply(at_least_single(scores), positives, kind)[0].to(scores.dtype)
    if not bool(torch.isfinite(value).all()):
        row = int(torch.nonzero(~torch.isfinite(value))[0, 0])
        raise ValueError(f"scores must be finite, got NaN or infinity in row {row}")
    return value


def _pairs_compiled(scores: Tensor, positives: Positives, kind: int) -> tuple[Tensor, Tensor]:
    matrix = np.ascontiguousarray(scores.numpy())
    value, gradient = np.empty(len(matrix)), np.empty_like(matrix)
    cost = np.concatenate(([0], np.cumsum(np.minimum(5 * np.diff(positives.offsets) + 5, 40) * matrix.shape[1])))
    table = pair_sums.tables()
    with at_most(torch.get_num_threads()):
        run_over_ranges(
            lambda first, last: loss_kernels.pairs_of_rows(
                first, last, matrix, positives.columns, positives.offsets, kind, table, value, gradient
            ),
            cost,
        )
    return torch.from_numpy(value).to(scores.dtype), torch.from_numpy(gradient)


def _pairs_in_torch(scores: Tensor, positives: Positives, kind: int) -> tuple[Tensor, Tensor]:
    row, column = _row_and_column(positives, scores.device)
    is_negative = torch.ones_like(scores, dtype=torch.bool).index_put((row, column), torch.tensor(False))
    value, gradient = scores.new_zeros(len(scores)), torch.zeros_like(scores)
    width = max(1, _LARGEST_BLOCK // max(1, scores.shape[1]))
    for first in range(0, len(row), width):
        r, c = row[first : first + width], column[first : first + width]
        x = scores[r] - scores[r, c][:, None]  # (positives, columns)
        if kind == pair_sums.LOGISTIC:
            loss, slope = torch.nn.functional.softplus(x), torch.sigmoid(x)
        else:
            loss, slope = (1.0 + x).clamp(min=0.0), (x > -1.0).to(x.dtype)
        loss, slope = torch.where(is_negative[r], loss, 0.0), torch.where(is_negative[r], slope, 0.0)
        value.index_add_(0, r, loss.sum(1))
        gradient.index_add_(0, r, slope)
        gradient.index_put_((r, c), -slope.sum(1), accumulate=True)
    return value, gradient
