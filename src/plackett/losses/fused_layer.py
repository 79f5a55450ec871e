"""The output layer and the loss in one: scores = hidden @ weight.T + bias of very many columns, never stored at once.

The rows need only the scores of their positives and w_R of the other columns. w_R is computed one chunk of columns at a
time with a running logsumexp. The backward pass recomputes each chunk's scores, turns them into probabilities and
multiplies them out at once: four matrix products instead of three, and rows x chunk numbers instead of rows x columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plackett.arguments import check_finite, check_float_tensor
from plackett.likelihood.sparse_kernels import gradient_of_others, log_sum_of_others
from plackett.likelihood.torch_op import (
    OnceDifferentiable,
    Positives,
    at_least_single,
    refuse_second_derivative,
    rounded_like,
)
from plackett.lists import IntArray, reduce_losses
from plackett.losses.sparse_columns import sampled_columns, sampled_rest, short_list_likelihood
from plackett.threads import at_most, run_over_ranges

_NUMBERS_AT_ONCE = 1 << 21


class _OutputLayer(OnceDifferentiable):
    """Scores of the positives, and logsumexp of the scores of the other columns of each row."""

    @staticmethod
    def forward(hidden: Tensor, weight: Tensor, bias: Tensor | None, chunks: _Chunks) -> tuple[Tensor, Tensor]:
        own = at_least_single(hidden).new_empty(chunks.positives)
        rest = hidden.new_full((len(hidden),), -torch.inf, dtype=chunks.work_type)
        for chunk in chunks:
            scores = chunk.scores(hidden, weight, bias)
            own[chunk.numbers] = scores[chunk.row, chunk.column]
            rest = torch.logaddexp(rest, chunk.log_sum_of_others(scores))
        return own, rest

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        hidden, weight, bias, chunks = inputs
        ctx.save_for_backward(hidden, weight, bias, output[1])
        ctx.chunks = chunks

    @staticmethod
    def backward(ctx: Any, grad_own: Tensor, grad_rest: Tensor) -> Any:
        hidden, weight, bias, rest = ctx.saved_tensors
        grad_hidden = torch.zeros_like(hidden) if ctx.needs_input_grad[0] else None
        grad_weight = torch.empty_like(weight) if ctx.needs_input_grad[1] else None
        grad_bias = torch.empty_like(bias) if bias is not None and ctx.needs_input_grad[2] else None
        with torch.no_grad():
            for chunk in ctx.chunks:
                pull = chunk.gradient(chunk.scores(hidden, weight, bias), rest, grad_rest, grad_own).to(weight.dtype)
                part = slice(chunk.first, chunk.last)
                if grad_hidden is not None:
                    grad_hidden.addmm_(pull, weight[part])
                if grad_weight is not None:
                    torch.mm(pull.T, hidden, out=grad_weight[part])
                if grad_bias is not None:
                    torch.sum(pull, 0, out=grad_bias[part])
        leaves = zip((hidden, weight, bias), (grad_hidden, grad_weight, grad_bias), strict=True)
        return *(None if g is None else refuse_second_derivative(x, g) for x, g in leaves), None


class _LayerChunk:
    """Columns first..last, and the positives among them: their rows, columns here, and numbers among all positives."""

    def __init__(self, first: int, last: int, positives: Positives, chunks: _Chunks) -> None:
        self.first, self.last, self.chunks = first, last, chunks
        inside = np.flatnonzero((positives.columns >= first) & (positives.columns < last))
        self._columns = positives.columns[inside] - first
        self._offsets = np.searchsorted(positives.row[inside], np.arange(len(positives.has_rest) + 1))
        self.numbers, self.row, self.column = (
            torch.as_tensor(x, device=chunks.device) for x in (inside, positives.row[inside], self._columns)
        )

    def scores(self, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The scores of this chunk, in a buffer that all chunks share."""
        part = slice(self.first, self.last)
        if hidden.dtype in (torch.float16, torch.bfloat16):
            scores = (hidden @ weight[part].T).float()
            return scores if bias is None else scores + bias[part].float()
        out = self.chunks.buffer("scores", self.last - self.first, hidden)
        if bias is None:
            return torch.mm(hidden, weight[part].T, out=out)
        return torch.addmm(bias[part], hidden, weight[part].T, out=out)

    def log_sum_of_others(self, scores: Tensor) -> Tensor:
        if not self.chunks.has_kernel:
            masked = scores.index_put_((self.row, self.column), scores.new_tensor(-torch.inf))
            return torch.logsumexp(masked, 1).to(self.chunks.work_type)
        peaks, log_totals, matrix = np.empty(len(scores)), np.empty(len(scores)), scores.numpy()
        self._run(
            lambda a, b: log_sum_of_others(a, b, matrix, self._columns, self._offsets, peaks, log_totals), matrix.shape
        )
        return torch.from_numpy(peaks + log_totals)

    def gradient(self, scores: Tensor, rest: Tensor, grad_rest: Tensor, grad_own: Tensor) -> Tensor:
        """The gradient of the loss by these scores, which it may overwrite."""
        own = grad_own[self.numbers]
        if not self.chunks.has_kernel:
            # A row whose columns are all positive has rest -inf and no gradient; 0 avoids inf - inf.
            reference = torch.where(torch.isfinite(rest), rest, 0.0).to(scores.dtype)
            pull = scores.sub_(reference[:, None]).exp_().mul_(grad_rest[:, None].to(scores.dtype))
            return pull.index_put_((self.row, self.column), own)
        pulls, matrix, own_typed = -grad_rest.numpy(), scores.numpy(), own.numpy()
        sums = rest.numpy(), np.zeros(len(rest))
        gradient = self.chunks.buffer("gradient", scores.shape[1], scores)  # in place, the kernel would not vectorise
        out = gradient.numpy()
        self._run(
            lambda a, b: gradient_of_others(a, b, matrix, *sums, pulls, self._columns, self._offsets, own_typed, out),
            matrix.shape,
        )
        return gradient

    def _run(self, call: Any, shape: tuple[int, ...]) -> None:
        with at_most(torch.get_num_threads()):
            run_over_ranges(call, np.arange(shape[0] + 1, dtype=np.int64) * shape[1])


class _Chunks:
    """All columns in chunks of `width`."""

    def __init__(self, positives: Positives, columns: int, width: int, like: Tensor) -> None:
        self.device = like.device
        self.has_kernel = like.device.type == "cpu" and like.dtype in (torch.float32, torch.float64)
        self.work_type = torch.float32 if like.device.type == "mps" else torch.float64
        self.positives = len(positives.columns)
        self._buffers: dict[str, Tensor] = {}
        self._chunks = [
            _LayerChunk(first, min(first + width, columns), positives, self) for first in range(0, columns, width)
        ]

    def buffer(self, name: str, width: int, like: Tensor) -> Tensor:
        if name not in self._buffers:
            widest = max(chunk.last - chunk.first for chunk in self._chunks)
            self._buffers[name] = like.detach().new_empty(len(like) * widest)
        return self._buffers[name][: len(like) * width].view(len(like), width)

    def __iter__(self) -> Iterator[_LayerChunk]:
        yield from self._chunks
        self._buffers.clear()  # free them between forward and backward


def check_layer(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    check_float_tensor("hidden", hidden)
    check_float_tensor("weight", weight)
    if hidden.dim() != 2 or weight.dim() != 2 or hidden.shape[1] != weight.shape[1]:
        raise ValueError(
            f"hidden and weight must be (rows, features) and (columns, features), got {tuple(hidden.shape)} and "
            f"{tuple(weight.shape)}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias must hold one value per column, {len(weight)}, got {tuple(bias.shape)}")


@dataclass(frozen=True)
class GatheredColumns:
    """Some columns of a layer. Row i of the weight given is column `columns[i]` of `total` in the layer.

    Only sampled losses take it: they need the columns that occur, and how many the layer has, which says whether a row
    has columns besides its positives.
    """

    columns: IntArray  # ascending
    total: int

    def rows_of(self, columns: IntArray) -> IntArray:
        """The rows of the weight that hold these columns."""
        rows = np.searchsorted(self.columns, columns)
        is_held = rows < len(self.columns)
        is_held[is_held] = self.columns[rows[is_held]] == columns[is_held]
        if not is_held.all():
            raise ValueError(f"gathered must hold all positives and all negatives, got none for {columns[~is_held][0]}")
        return rows


def _positives(
    indices: Any, offsets: Any, labels: Any, hidden: Tensor, weight: Tensor, gathered: GatheredColumns | None
) -> Positives:
    if gathered is None:
        return Positives(indices, offsets, labels, len(hidden), len(weight))
    if len(gathered.columns) != len(weight):
        raise ValueError(
            f"gathered must name a column for each of the {len(weight)} rows of weight, got {len(gathered.columns)}"
        )
    return Positives(indices, offsets, labels, len(hidden), gathered.total)


def _short_lists(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    indices: Any,
    offsets: Any,
    labels: Any,
    chunk: int | None,
    negatives: tuple[Any, Any] | None,
    gathered: GatheredColumns | None,
) -> tuple[Positives, Tensor, Tensor]:
    """Checked positives, their scores, and w_R of the other columns."""
    check_layer(hidden, weight, bias)
    positives = _positives(indices, offsets, labels, hidden, weight, gathered)
    if negatives is not None:
        own, rest = _own_and_sampled_rest(hidden, weight, bias, positives, negatives, gathered)
    elif gathered is not None:
        raise ValueError("gathered= requires negatives=, got None")
    else:
        own, rest = output_layer(hidden, weight, bias, positives, chunk)
    has_rest = torch.as_tensor(positives.has_rest, device=hidden.device)
    check_finite("scores (hidden @ weight.T + bias)", rest[has_rest])
    return positives, at_least_single(own), rest


def output_layer(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, positives: Positives, chunk: int | None
) -> tuple[Tensor, Tensor]:
    """Scores of the positives and w_R of the other columns, -inf where there is none, in chunks."""
    width = chunk if chunk is not None else max(1024, _NUMBERS_AT_ONCE // max(1, len(hidden)))
    if not isinstance(width, int) or width < 1:
        raise ValueError(f"chunk must be a whole number of at least 1, or None, got {chunk!r}")
    if hidden.dtype != weight.dtype and torch.is_autocast_enabled(hidden.device.type):  # as torch's own linear does
        weight, bias = weight.to(hidden.dtype), None if bias is None else bias.to(hidden.dtype)
    own, rest = _OutputLayer.apply(hidden, weight, bias, _Chunks(positives, len(weight), width, hidden))
    return own, rest


def _own_and_sampled_rest(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    positives: Positives,
    negatives: tuple[Any, Any],
    gathered: GatheredColumns | None,
) -> tuple[Tensor, Tensor]:
    sampled, column = sampled_columns(negatives, hidden), positives.columns
    if gathered is not None:
        sampled = torch.as_tensor(gathered.rows_of(sampled.cpu().numpy()), device=hidden.device)
        column = gathered.rows_of(column)
    own, candidates = positive_and_sampled_scores(hidden, weight, bias, positives.row, column, sampled)
    return own, sampled_rest(candidates, negatives, positives)


def positive_and_sampled_scores(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, row: IntArray, column: IntArray, sampled: Tensor
) -> tuple[Tensor, Tensor]:
    """Scores of the positives, (positives,), and of the sampled columns, (rows, sample)."""
    at_row, at_column = (torch.as_tensor(x, device=hidden.device) for x in (row, column))
    own, candidates = (hidden[at_row] * weight[at_column]).sum(-1), hidden @ weight[sampled].T
    if bias is not None:
        own, candidates = own + bias[at_column], candidates + bias[sampled]
    return own, candidates


def linear_partition_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    indices: Any,
    offsets: Any,
    *,
    labels: Any = None,
    weights: Any = None,
    reduction: str = "mean",
    top: int | None = None,
    tol: float | None = None,
    chunk: int | None = None,
    negatives: tuple[Any, Any] | None = None,
    gathered: GatheredColumns | None = None,
) -> Tensor:
    """`sparse_partition_loss(hidden @ weight.T + bias, indices, offsets, ...)` without ever making those scores.

    Args:
        hidden, weight, bias: (rows, features), (columns, features), (columns,) or None.
        chunk: columns at a time; None: about two million scores at a time.
        negatives: (columns, log expected counts): use only these columns besides the positives, see
            `plackett.losses.sparse_columns.sampled_rest`. The cost then does not depend on the number of columns.
        gathered: with negatives, the columns that the rows of weight and bias are, where they are not all of the layer.
            `indices` and `negatives` are columns of the layer.
    """
    positives, own, rest = _short_lists(hidden, weight, bias, indices, offsets, labels, chunk, negatives, gathered)
    value = short_list_likelihood(positives, own, rest, "partition", top, tol)
    return rounded_like(reduce_losses(-value, weights, reduction), hidden)


def linear_lower_bound_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    indices: Any,
    offsets: Any,
    *,
    labels: Any = None,
    weights: Any = None,
    reduction: str = "mean",
    chunk: int | None = None,
    negatives: tuple[Any, Any] | None = None,
    gathered: GatheredColumns | None = None,
) -> Tensor:
    """`sparse_lower_bound_loss` of a linear output layer; arguments as in `linear_partition_loss`."""
    positives, own, rest = _short_lists(hidden, weight, bias, indices, offsets, labels, chunk, negatives, gathered)
    value = short_list_likelihood(positives, own, rest, "lower_bound")
    return rounded_like(reduce_losses(-value, weights, reduction), hidden)
