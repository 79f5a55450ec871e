"""The exact likelihood as torch operations: closed-form backward, any device.

**Lists.** The gradient is computed with the value, from the same nodes, and kept for the backward pass: one number per
item, never a table of nodes. CPU tensors go through the compiled kernel, others through `vectorised`.

**Rows with few positives among many columns**, the sparse form; all other columns are the bottom tier of a row. One
pass over a row gives w_R of its other columns (`sparse_kernels`). With it the row is a short ragged list of its
positives and one item for the rest, and goes through the same likelihood as every list. Forward and backward together
read the row twice and write its gradient once.

The first part, tensors between torch and the compiled kernels, serves all losses.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from plackett.arguments import (
    check_finite,
    check_float_tensor,
    check_midpoint_options,
    check_tol,
    check_top,
    ranks_if_large,
    to_numpy,
    whole_numbers,
)
from plackett.likelihood import vectorised
from plackett.likelihood.constants import LARGEST_SCORE
from plackett.likelihood.core import Tiers, TierWeighting, evaluate_tiers, make_tiers
from plackett.likelihood.sparse_kernels import gradient_of_others, log_sum_of_others
from plackett.likelihood.vectorised import work_type
from plackett.lists import IntArray, check_offsets, flat_lists, offsets_from_sizes
from plackett.threads import at_most, run_over_ranges

# Tensors: types, labels, precision, autograd functions with first derivatives only

_HALF = (torch.float16, torch.bfloat16)
_NOT_REDUCED = (torch.uint16, torch.uint32, torch.uint64)  # torch has no minimum and maximum of these
_TWICE = (
    "the Plackett-Luce likelihood cannot be differentiated twice by autograd: call it without create_graph=True, or "
    "take the diagonal of its Hessian from plackett.partition_derivatives"
)
_FORWARD = "the Plackett-Luce likelihood has no forward-mode derivative: use reverse mode (torch.func.grad, jacrev)"
_Function = TypeVar("_Function", bound=Callable[..., Any])


def tol_for(scores: Tensor, tol: float | None) -> float:
    """The tolerance for scores of this type, checked."""
    return check_tol(tol, np.dtype(np.float64 if scores.dtype == torch.float64 else np.float32))


def numpy_of(tensor: Tensor, dtype: type) -> np.ndarray[Any, Any]:
    """A CPU tensor as a contiguous NumPy array, without a copy where possible."""
    if tensor.dtype in _HALF:
        tensor = tensor.float()
    return np.ascontiguousarray(tensor.detach().numpy(), dtype)


def numpy_labels(tensor: Tensor) -> np.ndarray[Any, Any]:
    """Labels of a CPU tensor as float64, in which different integers of any size stay different."""
    if tensor.dtype in (torch.int64, torch.uint64):
        return np.ascontiguousarray(ranks_if_large(tensor.detach().numpy()), np.float64)
    return numpy_of(tensor, np.float64)


def distinct_labels(labels: Tensor) -> Tensor:
    """Labels in the most precise type of their device, or their ranks if it would round some of them."""
    dtype = work_type(labels.device)
    return torch.unique(labels, return_inverse=True)[1].to(dtype) if _are_rounded(labels, dtype) else labels.to(dtype)


def exact_labels(labels: Tensor) -> Tensor:
    """Labels in the most precise type of their device, for losses that compute with them; never rounded."""
    dtype = work_type(labels.device)
    if _are_rounded(labels, dtype):
        least, greatest = _range_of(labels)
        raise ValueError(
            f"labels must be at most {_largest_exact(dtype):,} in size for a loss that computes with them, got "
            f"{least} to {greatest}: pass their ranks"
        )
    return labels.to(dtype)


def _largest_exact(dtype: torch.dtype) -> int:
    return 2**53 if dtype == torch.float64 else 2**24


def _are_rounded(labels: Tensor, dtype: torch.dtype) -> bool:
    if labels.is_floating_point() or labels.dtype == torch.bool or labels.numel() == 0:
        return False
    least, greatest = _range_of(labels)
    return greatest > _largest_exact(dtype) or least < -_largest_exact(dtype)


def _range_of(labels: Tensor) -> tuple[int, int]:
    if labels.dtype in _NOT_REDUCED:
        values = labels.detach().cpu().numpy()
        return int(values.min()), int(values.max())
    least, greatest = torch.aminmax(labels)
    return int(least), int(greatest)


def at_least_single(scores: Tensor) -> Tensor:
    """Half precision becomes single, because sums of exponentials need the digits."""
    return scores.float() if scores.dtype in _HALF else scores


def rounded_like(value: Tensor, scores: Tensor) -> Tensor:
    """The result in the type of half-precision scores, or single under autocast, as torch's cross_entropy does."""
    if scores.dtype not in _HALF or torch.is_autocast_enabled(scores.device.type):
        return value
    return value.to(scores.dtype)


def in_single_precision(function: _Function) -> _Function:
    """Decorator: half-precision scores become single before the call; see `rounded_like` for the result."""

    @functools.wraps(function)
    def wrapped(scores: Any, *arguments: Any, **options: Any) -> Tensor:
        if not isinstance(scores, Tensor) or scores.dtype not in _HALF:
            return cast("Tensor", function(scores, *arguments, **options))
        return rounded_like(function(scores.float(), *arguments, **options), scores)

    return cast("_Function", wrapped)


class OnceDifferentiable(torch.autograd.Function):
    """A function with a backward pass but no forward-mode derivative."""

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        raise RuntimeError(_FORWARD)


class NotDifferentiable(OnceDifferentiable):
    """A part of a backward pass, which cannot be differentiated itself."""

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: FunctionCtx, *_: Any) -> Any:
        raise RuntimeError(_TWICE)

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        raise RuntimeError(_TWICE)


class ScaledGradient(NotDifferentiable):
    """gradient * factor."""

    @staticmethod
    def forward(scores: Tensor, gradient: Tensor, factor: Tensor) -> Tensor:
        return gradient * factor

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], scores: Tensor, gradient: Tensor, factor: Tensor) -> Any:
        moved = [
            x if dim is None else x.movedim(dim, 0) for x, dim in zip((scores, gradient, factor), in_dims, strict=True)
        ]
        return ScaledGradient.apply(*moved), 0


def refuse_second_derivative(scores: Tensor, gradient: Tensor) -> Tensor:
    """The gradient; if autograd records the backward pass, with a node that refuses a second derivative."""
    if not torch.is_grad_enabled():
        return gradient
    one = torch.ones((), device=scores.device, dtype=scores.dtype)
    result: Tensor = ScaledGradient.apply(scores, gradient, one)
    return result


def outside_graphs(function: _Function) -> _Function:
    """Decorator: torch.compile runs the function outside the graph (a graph break).

    As torch.compiler.disable, which by itself imports the compiler, in more time than the rest of torch takes.
    """

    @functools.wraps(function)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        if not torch.compiler.is_compiling():
            return function(*arguments, **options)
        return torch.compiler.disable(function)(*arguments, **options)

    return cast("_Function", wrapped)


# Lists


class _Partition(OnceDifferentiable):
    """Flat scores and labels, offsets -> value of each list, and the gradient (not differentiable)."""

    @staticmethod
    def forward(
        scores: Tensor, labels: Tensor, offsets: Any, top: int, tol: float, weighting: TierWeighting | None
    ) -> tuple[Tensor, Tensor]:
        if scores.device.type != "cpu":
            _check_on_device(scores, labels)
            bounds = torch.as_tensor(offsets, device=scores.device)
            return vectorised.log_likelihood_and_gradient(scores, labels, bounds, top=top, tol=tol, weighting=weighting)
        with at_most(torch.get_num_threads()):
            flat_labels = numpy_labels(labels)
            tiers = make_tiers(flat_labels, offsets)
            weights = None if weighting is None else tiers.weights(weighting, numpy_of(labels, np.float64))
            value, gradient, _ = evaluate_tiers(
                numpy_of(scores, np.float64), tiers, top=top, tol=tol, derivatives=True, tier_weights=weights
            )
        return torch.from_numpy(value).to(scores.dtype), torch.from_numpy(gradient).to(scores.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        scores, _, offsets, *_ = inputs
        _, gradient = output
        ctx.mark_non_differentiable(gradient)
        ctx.save_for_backward(scores, gradient)
        ctx.sizes = np.diff(offsets)

    @staticmethod
    def backward(ctx: Any, grad_value: Tensor, _: Any) -> Any:
        scores, gradient = ctx.saved_tensors
        sizes = torch.as_tensor(ctx.sizes, device=gradient.device)
        factor = torch.repeat_interleave(grad_value, sizes, output_size=gradient.shape[-1])
        return ScaledGradient.apply(scores, gradient, factor), None, None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, scores: Tensor, labels: Tensor, offsets: Any, *options: Any) -> Any:
        batch = info.batch_size
        scores, labels = (
            x.expand(batch, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip((scores, labels), in_dims[:2], strict=True)
        )
        tiled = offsets_from_sizes(np.tile(np.diff(offsets), batch))
        value, gradient = _Partition.apply(scores.reshape(-1), labels.reshape(-1), tiled, *options)
        lists, items = len(offsets) - 1, scores.shape[-1]
        return (value.reshape(batch, lists), gradient.reshape(batch, items)), (0, 0)


class _WithGradient(OnceDifferentiable):
    """The value of each list, with its known gradient by the scores."""

    @staticmethod
    def forward(scores: Tensor, value: Tensor, gradient: Tensor, offsets: Any) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        scores, _, gradient, offsets = inputs
        ctx.save_for_backward(scores, gradient)
        ctx.sizes = np.diff(offsets)

    @staticmethod
    def backward(ctx: Any, grad_value: Tensor) -> Any:
        scores, gradient = ctx.saved_tensors
        factor = torch.repeat_interleave(
            grad_value, torch.as_tensor(ctx.sizes, device=gradient.device), output_size=len(gradient)
        )
        return ScaledGradient.apply(scores, gradient, factor), None, None, None


def with_gradient(scores: Tensor, value: Tensor, gradient: Tensor, offsets: Any) -> Tensor:
    """`value`, one per list, made differentiable by the flat scores with a gradient in closed form."""
    result: Tensor = _WithGradient.apply(scores, value.to(scores.dtype), gradient.to(scores.dtype), offsets)
    return result


def _check_on_device(scores: Tensor, labels: Tensor) -> None:
    if not bool((scores.abs() <= LARGEST_SCORE).all()):
        raise ValueError(f"scores must be finite and at most {LARGEST_SCORE:g} in size")
    check_finite("labels", labels)


@outside_graphs
@in_single_precision
def partition_log_likelihood(
    scores: Tensor,
    labels: Any,
    *,
    offsets: Any = None,
    where: Any = None,
    top: int | None = None,
    tol: float | None = None,
    weighting: TierWeighting | None = None,
) -> Tensor:
    """`plackett.partition_log_likelihood` for torch tensors; `weighting` multiplies log P of each tier.

    Differentiable once; a second derivative raises an error. torch.compile runs it outside the graph (a graph break);
    torch.func.grad and torch.func.vmap work.
    """
    lists = flat_lists(scores, labels, offsets=offsets, where=where)
    cutoff = check_top(top)
    value: Tensor = flat_log_likelihood(
        lists.scores, lists.labels, lists.offsets, top=cutoff, tol=tol, weighting=weighting
    )
    return value


@outside_graphs
def flat_log_likelihood(
    scores: Tensor,
    labels: Tensor,
    offsets: IntArray,
    *,
    top: int,
    tol: float | None = None,
    weighting: TierWeighting | None = None,
) -> Tensor:
    """As `partition_log_likelihood`, of flat lists and a cut-off that are checked already."""
    value: Tensor = _Partition.apply(scores, labels, offsets, top, tol_for(scores, tol), weighting)[0]
    return value


def preference_log_probability(preferred: Any, others: Any, *, tol: float | None = None) -> Tensor:
    """`plackett.preference_log_probability` for torch tensors."""
    for name, tensor in (("preferred", preferred), ("others", others)):
        check_float_tensor(name, tensor)
        if tensor.dim() == 0:
            raise ValueError(f"{name} must have at least one dimension (the items), got a single number")
        check_finite(name, tensor)
    try:
        batch_shape = torch.broadcast_shapes(preferred.shape[:-1], others.shape[:-1])
    except RuntimeError:
        raise ValueError(
            "others must have batch dimensions that broadcast against those of preferred, "
            f"{tuple(preferred.shape[:-1])}, got {tuple(others.shape[:-1])}"
        ) from None
    joined = torch.cat([x.expand(*batch_shape, x.shape[-1]) for x in (preferred, others)], -1)
    rows = math.prod(batch_shape)
    labels = joined.new_zeros(joined.shape[-1])
    labels[: preferred.shape[-1]] = 1.0
    flat = joined.reshape(rows, joined.shape[-1])
    value: Tensor = partition_log_likelihood(flat, labels.expand(flat.shape), tol=tol)
    return value.reshape(batch_shape)


@outside_graphs
@in_single_precision
def midpoint_log_likelihood(
    scores: Tensor,
    labels: Any,
    *,
    offsets: Any = None,
    where: Any = None,
    top: int | None = None,
    intervals: int = 10_000,
    shift: float = 5.0,
) -> Tensor:
    """The midpoint rule of Ma et al. (2021) with autograd's own backward; see `plackett.likelihood.midpoint`."""
    check_midpoint_options(top, intervals, shift)
    lists = flat_lists(scores, labels, offsets=offsets, where=where)
    flat, bounds = lists.scores, lists.offsets
    check_finite("scores", flat)
    tiers = make_tiers(numpy_labels(lists.labels.cpu()), bounds)
    order = torch.as_tensor(tiers.order, device=scores.device)
    w = flat[order]
    log_v = torch.log((torch.arange(intervals, device=scores.device, dtype=scores.dtype) + 0.5) / intervals)
    values = []
    for b in range(len(bounds) - 1):
        starts = tiers.starts[tiers.list_tiers[b] : tiers.list_tiers[b + 1] + 1]
        value = flat.new_zeros(())
        for first, last in itertools.pairwise(starts[:-1]):
            rest = torch.logsumexp(w[last : starts[-1]], 0) + shift
            powers = torch.exp(w[first:last] + shift)[:, None] * log_v  # (items, intervals)
            integrand = (torch.exp(rest) - 1.0) * log_v + torch.log(-torch.expm1(powers)).sum(0)
            value = value + rest - math.log(intervals) + torch.logsumexp(integrand, 0)
        values.append(value)
    return torch.stack(values) if values else flat.new_zeros(0)


# Rows with few positives among many columns


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
        value, gradient, _ = evaluate_tiers(scores, tiers, top=self.top, tol=self.tol, derivatives=True)
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
