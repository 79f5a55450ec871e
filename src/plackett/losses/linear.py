"""The output layer and the loss in one: scores = hidden @ weight.T + bias of very many columns, never held as a whole.

The rows need only the scores of their positives and w_R of the other columns. w_R is found chunk by chunk of columns
with a running logsumexp; the backward pass makes each chunk's scores again, turns them into probabilities and
multiplies them out at once. Four matrix products against three, and rows x chunk numbers instead of rows x columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from plackett.likelihood.sparse import Positives
from plackett.likelihood.torch_op import check_scores, refuse_second_derivative
from plackett.losses.lists import check_finite, reduce_losses
from plackett.losses.sparse import sampled_columns, sampled_rest, short_list_likelihood

_NUMBERS_AT_ONCE = 1 << 22


class _RestOfColumns(torch.autograd.Function):
    """logsumexp of hidden @ weight.T + bias over the columns of each row that are not positive."""

    @staticmethod
    def forward(hidden: Tensor, weight: Tensor, bias: Tensor | None, chunks: _Chunks) -> Tensor:
        rest = hidden.new_full((len(hidden),), -torch.inf)
        for chunk in chunks:
            rest = torch.logaddexp(rest, torch.logsumexp(chunk.scores(hidden, weight, bias), 1))
        return rest

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        hidden, weight, bias, chunks = inputs
        ctx.save_for_backward(hidden, weight, bias, output)
        ctx.chunks = chunks

    @staticmethod
    def backward(ctx: Any, grad_rest: Tensor) -> Any:
        hidden, weight, bias, rest = ctx.saved_tensors
        grad_hidden = torch.zeros_like(hidden) if ctx.needs_input_grad[0] else None
        grad_weight = torch.empty_like(weight) if ctx.needs_input_grad[1] else None
        grad_bias = torch.empty_like(bias) if bias is not None and ctx.needs_input_grad[2] else None
        # A row whose columns are all positive has rest -inf and no gradient; 0 avoids inf - inf.
        reference = torch.where(torch.isfinite(rest), rest, 0.0)
        with torch.no_grad():
            for chunk in ctx.chunks:
                pull = chunk.scores(hidden, weight, bias).sub_(reference[:, None]).exp_().mul_(grad_rest[:, None])
                part = slice(chunk.first, chunk.last)
                if grad_hidden is not None:
                    grad_hidden.addmm_(pull, weight[part])
                if grad_weight is not None:
                    torch.mm(pull.T, hidden, out=grad_weight[part])
                if grad_bias is not None:
                    torch.sum(pull, 0, out=grad_bias[part])
        return (
            None if grad_hidden is None else refuse_second_derivative(hidden, grad_hidden),
            None if grad_weight is None else refuse_second_derivative(weight, grad_weight),
            grad_bias,
            None,
        )


class _Chunk:
    """Columns first..last, and where their positives are."""

    def __init__(self, first: int, last: int, row: Tensor, column: Tensor) -> None:
        self.first, self.last, self.row, self.column = first, last, row, column

    def scores(self, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        part = slice(self.first, self.last)
        scores = hidden @ weight[part].T if bias is None else torch.addmm(bias[part], hidden, weight[part].T)
        return scores.index_put_((self.row, self.column - self.first), scores.new_tensor(-torch.inf))


class _Chunks:
    def __init__(self, positives: Positives, columns: int, width: int, device: torch.device) -> None:
        by_column = np.argsort(positives.columns, kind="stable")
        ranked = positives.columns[by_column]
        self._chunks = []
        for first in range(0, columns, width):
            last = min(first + width, columns)
            inside = by_column[np.searchsorted(ranked, first) : np.searchsorted(ranked, last)]
            row, column = (torch.as_tensor(x[inside], device=device) for x in (positives.row, positives.columns))
            self._chunks.append(_Chunk(first, last, row, column))

    def __iter__(self) -> Any:
        return iter(self._chunks)


def _prepare(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, indices: Any, offsets: Any, labels: Any
) -> tuple[Positives, Tensor]:
    """The positives and their scores."""
    check_scores(hidden, "hidden")
    check_scores(weight, "weight")
    if hidden.dim() != 2 or weight.dim() != 2 or hidden.shape[1] != weight.shape[1]:
        raise ValueError(
            f"hidden and weight must be (rows, features) and (columns, features), got {tuple(hidden.shape)} and "
            f"{tuple(weight.shape)}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"bias must hold one value per column, {len(weight)}, got {tuple(bias.shape)}")
    positives = Positives(indices, offsets, labels, len(hidden), len(weight))
    row = torch.as_tensor(positives.row, device=hidden.device)
    column = torch.as_tensor(positives.columns, device=hidden.device)
    own = (hidden[row] * weight[column]).sum(-1)
    if bias is not None:
        own = own + bias[column]
    return positives, own


def _rest(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    positives: Positives,
    chunk: int | None,
    negatives: tuple[Any, Any] | None,
) -> Tensor:
    if negatives is not None:
        columns = sampled_columns(negatives, hidden)
        candidates = hidden @ weight[columns].T
        if bias is not None:
            candidates = candidates + bias[columns]
        return sampled_rest(candidates, negatives, positives)
    width = chunk if chunk is not None else max(1024, _NUMBERS_AT_ONCE // max(1, len(hidden)))
    if not isinstance(width, int) or width < 1:
        raise ValueError(f"chunk must be a whole number of at least 1, or None, got {chunk!r}")
    rest: Tensor = _RestOfColumns.apply(hidden, weight, bias, _Chunks(positives, len(weight), width, hidden.device))
    has_rest = torch.as_tensor(positives.has_rest, device=hidden.device)
    check_finite("scores (hidden @ weight.T + bias)", rest[has_rest])
    return rest


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
) -> Tensor:
    """`sparse_partition_loss(hidden @ weight.T + bias, indices, offsets, ...)` without ever making those scores.

    Args:
        hidden, weight, bias: (rows, features), (columns, features), (columns,) or None.
        chunk: columns at a time; None: about four million scores at a time.
        negatives: (columns, log expected counts): use only these columns beside the positives, see
            `plackett.losses.sparse.sampled_rest`. The loss then does not depend on the number of columns at all.
    """
    positives, own = _prepare(hidden, weight, bias, indices, offsets, labels)
    rest = _rest(hidden, weight, bias, positives, chunk, negatives)
    return reduce_losses(-short_list_likelihood(positives, own, rest, "partition", top, tol), weights, reduction)


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
) -> Tensor:
    """`sparse_lower_bound_loss` of a linear output layer; arguments as in `linear_partition_loss`."""
    positives, own = _prepare(hidden, weight, bias, indices, offsets, labels)
    rest = _rest(hidden, weight, bias, positives, chunk, negatives)
    return reduce_losses(-short_list_likelihood(positives, own, rest, "lower_bound"), weights, reduction)
