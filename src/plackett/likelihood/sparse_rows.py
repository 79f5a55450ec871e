"""The sparse form: each row has few positives among N columns, all other columns are its bottom tier.

One pass over a row gives w_R of its other columns (`sparse_kernels`). With it the row is a short ragged list of its
positives and one item for the rest, and goes through the same likelihood as every list. Forward and backward together
read the row twice and write its gradient once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from plackett.arguments import check_finite, check_float_tensor, check_top, to_numpy, whole_numbers
from plackett.likelihood import vectorised
from plackett.likelihood.core import evaluate
from plackett.likelihood.sparse_kernels import gradient_of_others, log_sum_of_others
from plackett.likelihood.tensors import (
    NotDifferentiable,
    OnceDifferentiable,
    at_least_single,
    in_single_precision,
    numpy_labels,
    outside_graphs,
    tol_for,
    work_type,
)
from plackett.likelihood.tiers import Tiers, make_tiers
from plackett.lists import IntArray, check_offsets, offsets_from_sizes
from plackett.threads import at_most, run_over_ranges


class Positives:
    """The positive columns of each row, ascending within the row, checked; and their labels (1 by default)."""

    def __init__(self, indices: Any, offsets: Any, labels: Any, rows: int, columns: int) -> None:
        flat = whole_numbers("indices", to_numpy(indices))
        self.offsets = check_offsets(to_numpy(offsets), len(flat))
        if len(self.offsets) != rows + 1:
            raise ValueError(f"offsets must have one entry per row and one more, {rows + 1}, got {len(self.offsets)}")
        if flat.size and (flat.min() < 0 or flat.max() >= columns):
            bad = int(np.argmax((flat < 0) | (flat >= columns)))
            raise ValueError(f"indices must be columns from 0 to {columns - 1}, got {flat[bad]} at position {bad}")
        self.width = columns
        self.row = np.repeat(np.arange(rows), np.diff(self.offsets))
        # Rows stay in place, so sorting by (row, column) needs no second key.
        self.order = np.argsort(self.row * np.int64(columns) + flat, kind="stable")
        self.columns: IntArray = flat[self.order]
        repeated = (np.diff(self.columns) == 0) & (np.diff(self.row) == 0)
        if repeated.any():
            at = int(np.argmax(repeated))
            raise ValueError(
                f"indices must not repeat a column in a row, got {self.columns[at]} twice in row {self.row[at]}"
            )
        self.labels: npt.NDArray[np.float64] = np.ones(len(flat))
        if labels is not None:
            given = numpy_labels(labels.detach().cpu() if isinstance(labels, Tensor) else torch.as_tensor(labels))
            if given.shape != flat.shape:
                raise ValueError(f"labels must hold one value per index, {flat.shape}, got shape {given.shape}")
            check_finite("labels", given)
            self.labels = given[self.order]
        self._add_rest(columns)

    def _add_rest(self, columns: int) -> None:
        """Build the short lists: each row's positives and, if a column is left, one item below for the rest."""
        counts = np.diff(self.offsets)
        has_rest = counts < columns
        self.list_offsets = offsets_from_sizes(counts + has_rest)
        self.is_positive = np.ones(int(self.list_offsets[-1]), np.bool_)
        self.is_positive[self.list_offsets[1:][has_rest] - 1] = False
        self.has_rest = has_rest
        lowest = float(self.labels.min()) if self.labels.size else 0.0
        list_labels = np.full(len(self.is_positive), np.nextafter(lowest, -np.inf))
        list_labels[self.is_positive] = self.labels
        self.tiers = make_tiers(list_labels, self.list_offsets)

    def list_labels(self) -> npt.NDArray[np.float64]:
        """Labels of the short lists: their tiers, numbered."""
        labels = np.empty(len(self.is_positive))
        labels[self.tiers.order] = -np.repeat(np.arange(len(self.tiers.sizes)), self.tiers.sizes).astype(np.float64)
        return labels

    def short_lists(self, positive_scores: Any, peaks: Any, log_totals: Any) -> npt.NDArray[np.float64]:
        """Scores of the short lists, minus the peak of the other columns of the row."""
        scores = np.empty(len(self.is_positive))
        reference = np.where(self.has_rest, peaks, 0.0)
        scores[self.is_positive] = positive_scores - reference[self.row]
        scores[~self.is_positive] = log_totals[self.has_rest]
        return scores


class ShortLists(Protocol):
    """A log-likelihood of the short lists: value of each list and gradient of each item."""

    def compiled(self, scores: npt.NDArray[np.float64], tiers: Tiers) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]: ...

    def in_torch(self, scores: Tensor, labels: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]: ...


@dataclass(frozen=True)
class ExactShortLists:
    """The exact likelihood of tiers."""

    top: int
    tol: float

    def compiled(self, scores: npt.NDArray[np.float64], tiers: Tiers) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        value, gradient, _ = evaluate(scores, tiers, top=self.top, tol=self.tol, derivatives=True)
        return value, gradient

    def in_torch(self, scores: Tensor, labels: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
        return vectorised.log_likelihood_and_gradient(scores, labels, offsets, top=self.top, tol=self.tol)


class _SparseLikelihood(OnceDifferentiable):
    @staticmethod
    def forward(
        scores: Tensor, positives: Positives, short_lists: ShortLists
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Value; w_R of the other columns as peak and log total; the pull on them; the gradient of the positives."""
        if _has_kernel(scores):
            with at_most(torch.get_num_threads()):
                results = _forward_compiled(scores.detach().numpy(), positives, short_lists)
        else:
            results = _forward_vectorised(scores.detach(), positives, short_lists)
        return tuple(torch.as_tensor(x, device=scores.device) for x in results)  # type: ignore[return-value]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        scores, positives, _ = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(scores, *output[1:])
        ctx.positives = positives

    @staticmethod
    def backward(ctx: Any, grad_value: Tensor, *_: Any) -> Any:
        return _SparseGradient.apply(*ctx.saved_tensors, grad_value, ctx.positives), None, None


class _SparseGradient(NotDifferentiable):
    """The gradient by all columns; a separate function, so that torch.func passes plain tensors to it."""

    @staticmethod
    def forward(
        scores: Tensor,
        peaks: Tensor,
        log_totals: Tensor,
        pull: Tensor,
        own: Tensor,
        factor: Tensor,
        positives: Positives,
    ) -> Tensor:
        factor = factor.to(pull.dtype)
        row = torch.as_tensor(positives.row, device=scores.device)
        arguments = scores, peaks, log_totals, pull * factor, positives, own * factor[row]
        if not _has_kernel(scores):
            return _backward_vectorised(*arguments)
        with at_most(torch.get_num_threads()):
            return _backward_compiled(*arguments)


def _has_kernel(scores: Tensor) -> bool:
    return scores.device.type == "cpu"


def _forward_compiled(
    scores: npt.NDArray[Any], positives: Positives, short_lists: ShortLists
) -> tuple[npt.NDArray[Any], ...]:
    scores = np.ascontiguousarray(scores)
    peaks, log_totals = np.empty(len(scores)), np.empty(len(scores))
    run_over_ranges(
        lambda first, last: log_sum_of_others(
            first, last, scores, positives.columns, positives.offsets, peaks, log_totals
        ),
        np.arange(len(scores) + 1, dtype=np.int64) * scores.shape[1],
    )
    _check_rest(peaks + log_totals, positives)
    lists = positives.short_lists(scores[positives.row, positives.columns].astype(np.float64), peaks, log_totals)
    value, gradient = short_lists.compiled(lists, positives.tiers)
    pull = np.zeros(len(scores))
    pull[positives.has_rest] = -gradient[~positives.is_positive]
    return value.astype(scores.dtype), peaks, log_totals, pull, gradient[positives.is_positive]


def _backward_compiled(
    scores: Tensor, peaks: Tensor, log_totals: Tensor, pull: Tensor, positives: Positives, own: Tensor
) -> Tensor:
    matrix = np.ascontiguousarray(scores.numpy())
    gradient = torch.empty_like(scores, memory_format=torch.contiguous_format)
    own_typed = own.to(scores.dtype).numpy()
    out, sums = gradient.numpy(), (peaks.numpy(), log_totals.numpy(), pull.numpy())
    run_over_ranges(
        lambda first, last: gradient_of_others(
            first, last, matrix, *sums, positives.columns, positives.offsets, own_typed, out
        ),
        np.arange(len(matrix) + 1, dtype=np.int64) * matrix.shape[1],
    )
    return gradient


def _check_rest(rest: npt.NDArray[np.float64], positives: Positives) -> None:
    bad = ~np.isfinite(rest) & positives.has_rest
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(f"scores must be finite, got NaN, infinity or nothing but -infinity in row {row}")


def _forward_vectorised(scores: Tensor, positives: Positives, short_lists: ShortLists) -> tuple[Any, ...]:
    device = scores.device
    dtype = work_type(device)
    row = torch.as_tensor(positives.row, device=device)
    column = torch.as_tensor(positives.columns, device=device)
    has_rest = torch.as_tensor(positives.has_rest, device=device)
    masked = scores.index_put((row, column), scores.new_tensor(-torch.inf))
    peaks = masked.amax(1)
    safe = torch.where(has_rest, peaks, 0.0)
    log_totals = torch.where(has_rest, torch.log(torch.exp(masked - safe[:, None]).sum(1, dtype=dtype)), 0.0)
    _check_rest((safe + log_totals).double().cpu().numpy(), positives)
    is_positive = torch.as_tensor(positives.is_positive, device=device)
    lists = torch.empty(len(is_positive), device=device, dtype=dtype)
    lists[is_positive] = scores[row, column].to(dtype) - safe[row].to(dtype)
    lists[~is_positive] = log_totals[has_rest]
    list_labels = torch.as_tensor(positives.list_labels(), device=device, dtype=dtype)
    value, gradient = short_lists.in_torch(lists, list_labels, torch.as_tensor(positives.list_offsets, device=device))
    pull = torch.zeros_like(log_totals)
    pull[has_rest] = -gradient[~is_positive]
    return value.to(scores.dtype), safe.to(dtype), log_totals, pull, gradient[is_positive]


def _backward_vectorised(
    scores: Tensor, peaks: Tensor, log_totals: Tensor, pull: Tensor, positives: Positives, own: Tensor
) -> Tensor:
    gradient = torch.exp((scores - peaks[:, None].to(scores.dtype)).clamp_(max=0.0))
    gradient *= (-pull * torch.exp(-log_totals))[:, None].to(scores.dtype)
    row = torch.as_tensor(positives.row, device=scores.device)
    column = torch.as_tensor(positives.columns, device=scores.device)
    return gradient.index_put_((row, column), own.to(scores.dtype))


@outside_graphs
@in_single_precision
def sparse_partition_log_likelihood(
    scores: Tensor,
    indices: Any,
    offsets: Any,
    *,
    labels: Any = None,
    top: int | None = None,
    tol: float | None = None,
) -> Tensor:
    """The exact log-likelihood of rows whose positives are listed and whose other columns are the bottom tier.

    Args:
        scores: (rows, columns) torch tensor. A column of -inf is ignored, unless it is a positive.
        indices: the positive columns of all rows, row after row.
        offsets: where each row's positives begin, CSR style (length rows + 1).
        labels: grades of the positives, one per index; None: all equal. Columns not listed are below all of them.
        top, tol: as in `plackett.partition_log_likelihood`.

    Returns:
        One value per row, differentiable once; 0 for a row without positives.
    """
    positives = positives_of(scores, indices, offsets, labels)
    return sparse_likelihood(scores, positives, ExactShortLists(check_top(top), tol_for(scores, tol)))


def positives_of(scores: Tensor, indices: Any, offsets: Any, labels: Any) -> Positives:
    """The positives of 2-D scores, checked."""
    check_float_tensor("scores", scores)
    if scores.dim() != 2:
        raise ValueError(f"scores must have two dimensions (rows, columns), got {scores.dim()}")
    return Positives(indices, offsets, labels, *scores.shape)


def sparse_likelihood(scores: Tensor, positives: Positives, short_lists: ShortLists) -> Tensor:
    """One value per row, by any likelihood of the short lists; differentiable once."""
    value: Tensor = _SparseLikelihood.apply(at_least_single(scores), positives, short_lists)[0]
    return value.to(scores.dtype)
