"""The exact likelihood as a torch operation: closed-form backward, any device.

The gradient is computed with the value, from the same nodes, and kept for the backward pass: one number an item, never
a table of nodes. Tensors in main memory go through the compiled kernel, others through `vectorised`.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from plackett.likelihood import vectorised
from plackett.likelihood.kernel import LARGEST_SCORE
from plackett.likelihood.midpoint import check_midpoint_options
from plackett.likelihood.partition import check_tol, check_top, evaluate, ranks_if_large
from plackett.likelihood.tiers import TierWeighting, make_tiers
from plackett.lists import check_offsets, offsets_from_sizes
from plackett.threads import at_most


def check_scores(scores: Tensor, name: str = "scores") -> Tensor:
    if not isinstance(scores, Tensor):
        raise TypeError(f"{name} must be a torch tensor like the other arguments, got {type(scores).__name__}")
    if not scores.dtype.is_floating_point:
        raise ValueError(f"{name} must be of a floating-point type, got {scores.dtype}")
    return scores


def tol_for(scores: Tensor, tol: float | None) -> float:
    return check_tol(tol, np.dtype(np.float64 if scores.dtype == torch.float64 else np.float32))


def numpy_of(tensor: Tensor, dtype: type) -> np.ndarray[Any, Any]:
    """A contiguous NumPy array of a tensor in main memory, without a copy where possible."""
    if tensor.dtype in (torch.float16, torch.bfloat16):
        tensor = tensor.float()
    return np.ascontiguousarray(tensor.detach().numpy(), dtype)


_TWICE = (
    "the Plackett-Luce likelihood cannot be differentiated twice by autograd: call it without create_graph=True, or "
    "take the diagonal of its Hessian from plackett.partition_derivatives"
)
_FORWARD = "the Plackett-Luce likelihood has no forward-mode derivative: use reverse mode (torch.func.grad, jacrev)"


def labels_of(tensor: Tensor) -> np.ndarray[Any, Any]:
    """Labels in main memory as float64, integers of any size kept apart."""
    if tensor.dtype in (torch.int64, torch.uint64):
        return np.ascontiguousarray(ranks_if_large(tensor.detach().numpy()), np.float64)
    return numpy_of(tensor, np.float64)


def work_type(device: torch.device) -> torch.dtype:
    """The most precise type of a device."""
    return torch.float32 if device.type == "mps" else torch.float64


def apart(labels: Tensor) -> Tensor:
    """Labels in the most precise type of their device: their ranks where it could not tell integers apart."""
    dtype = work_type(labels.device)
    return torch.unique(labels, return_inverse=True)[1].to(dtype) if _are_rounded(labels, dtype) else labels.to(dtype)


def as_numbers(labels: Tensor) -> Tensor:
    """Labels in the most precise type of their device, for losses that compute with them."""
    dtype = work_type(labels.device)
    if _are_rounded(labels, dtype):
        raise ValueError(
            f"labels must be at most {_largest_exact(dtype):,} in size for a loss that computes with them, got "
            f"{int(labels.min())} to {int(labels.max())}: pass their ranks"
        )
    return labels.to(dtype)


def _largest_exact(dtype: torch.dtype) -> int:
    return 2**53 if dtype == torch.float64 else 2**24


def _are_rounded(labels: Tensor, dtype: torch.dtype) -> bool:
    if labels.is_floating_point() or labels.dtype == torch.bool or labels.numel() == 0:
        return False
    return int(labels.max()) > _largest_exact(dtype) or int(labels.min()) < -_largest_exact(dtype)


class OnceDifferentiable(torch.autograd.Function):
    """A function with a backward pass, and no forward-mode derivative."""

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        raise RuntimeError(_FORWARD)


class NotDifferentiable(OnceDifferentiable):
    """A part of a backward pass, which refuses a derivative of its own."""

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: FunctionCtx, *_: Any) -> Any:
        raise RuntimeError(_TWICE)

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        raise RuntimeError(_TWICE)


class _ScaledGradient(NotDifferentiable):
    """gradient * factor."""

    @staticmethod
    def forward(scores: Tensor, gradient: Tensor, factor: Tensor) -> Tensor:
        return gradient * factor

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], scores: Tensor, gradient: Tensor, factor: Tensor) -> Any:
        moved = [
            x if dim is None else x.movedim(dim, 0) for x, dim in zip((scores, gradient, factor), in_dims, strict=True)
        ]
        return _ScaledGradient.apply(*moved), 0


def refuse_second_derivative(scores: Tensor, gradient: Tensor) -> Tensor:
    """The gradient itself; while a graph of the backward pass is recorded, with a node that refuses to go further."""
    if not torch.is_grad_enabled():
        return gradient
    one = torch.ones((), device=scores.device, dtype=scores.dtype)
    result: Tensor = _ScaledGradient.apply(scores, gradient, one)
    return result


_HALF = (torch.float16, torch.bfloat16)


def at_least_single(scores: Tensor) -> Tensor:
    """Half precision becomes single: sums of exponentials need the digits."""
    return scores.float() if scores.dtype in _HALF else scores


def rounded_like(value: Tensor, scores: Tensor) -> Tensor:
    """As torch's cross_entropy: a result of scores in half precision has their type, and under autocast is single."""
    if scores.dtype not in _HALF or torch.is_autocast_enabled(scores.device.type):
        return value
    return value.to(scores.dtype)


_Function = TypeVar("_Function", bound=Callable[..., Tensor])


def in_single_precision(function: _Function) -> _Function:
    """Decorator for a function of scores: those in half precision become single first, see `rounded_like`."""

    @functools.wraps(function)
    def wrapped(scores: Any, *arguments: Any, **options: Any) -> Tensor:
        if not isinstance(scores, Tensor) or scores.dtype not in _HALF:
            return function(scores, *arguments, **options)
        return rounded_like(function(scores.float(), *arguments, **options), scores)

    return cast("_Function", wrapped)


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
            flat_labels = labels_of(labels)
            tiers = make_tiers(flat_labels, offsets)
            weights = None if weighting is None else tiers.weights(weighting, numpy_of(labels, np.float64))
            value, gradient, _ = evaluate(
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
        return _ScaledGradient.apply(scores, gradient, factor), None, None, None, None, None

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
    """The value of each list, with its gradient by the scores, which is known already."""

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
        return _ScaledGradient.apply(scores, gradient, factor), None, None, None


def with_gradient(scores: Tensor, value: Tensor, gradient: Tensor, offsets: Any) -> Tensor:
    """`value`, one a list, made differentiable by the flat scores with a gradient in closed form."""
    result: Tensor = _WithGradient.apply(scores, value.to(scores.dtype), gradient.to(scores.dtype), offsets)
    return result


def _check_on_device(scores: Tensor, labels: Tensor) -> None:
    if not bool((scores.abs() <= LARGEST_SCORE).all()):
        raise ValueError(f"scores must be finite and at most {LARGEST_SCORE:g} in size")
    if not bool(torch.isfinite(labels).all()):
        raise ValueError("labels must be finite")


def _as_tensor(name: str, values: Any, device: torch.device) -> Tensor:
    try:
        return torch.as_tensor(values, device=device)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} must be a tensor or an array of numbers, got {type(values).__name__}") from None


def flat_lists(scores: Any, labels: Any, offsets: Any, where: Any) -> tuple[Tensor, Tensor, np.ndarray[Any, Any]]:
    """Items of a batch one after the other, and their offsets; the rules of `plackett.lists.make_batch`."""
    check_scores(scores)
    labels = _as_tensor("labels", labels, scores.device)
    if labels.shape != scores.shape:
        raise ValueError(f"labels must have the shape of scores, {tuple(scores.shape)}, got {tuple(labels.shape)}")
    if labels.is_complex():
        raise ValueError(f"labels must be real numbers, got {labels.dtype}")
    if scores.dim() not in (1, 2):
        raise ValueError(f"scores must have one dimension (flat lists) or two (a list in each row), got {scores.dim()}")
    if offsets is not None:
        if where is not None:
            raise ValueError("at most one of offsets and where may be given, got both")
        if scores.dim() == 2:
            raise ValueError("offsets belong to one-dimensional scores, got them with two-dimensional scores")
        bounds = offsets.cpu().numpy() if isinstance(offsets, Tensor) else offsets
        return scores, labels, check_offsets(bounds, len(scores))
    if where is None:
        if scores.dim() == 1:
            return scores, labels, np.array([0, len(scores)])
        lists, length = scores.shape
        return scores.reshape(-1), labels.reshape(-1), np.arange(lists + 1, dtype=np.int64) * length
    mask = _as_tensor("where", where, scores.device)
    if mask.dtype != torch.bool:
        raise ValueError(f"where must be boolean, got {mask.dtype}")
    if mask.shape != scores.shape:
        raise ValueError(f"where must have the shape of scores, {tuple(scores.shape)}, got {tuple(mask.shape)}")
    sizes = mask.sum(-1).reshape(-1).cpu().numpy()
    return scores[mask], labels[mask], offsets_from_sizes(sizes)


@torch.compiler.disable
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
    flat_scores, flat_labels, bounds = flat_lists(scores, labels, offsets, where)
    value: Tensor = _Partition.apply(flat_scores, flat_labels, bounds, check_top(top), tol_for(scores, tol), weighting)[
        0
    ]
    return value


def preference_log_probability(preferred: Any, others: Any, *, tol: float | None = None) -> Tensor:
    """`plackett.preference_log_probability` for torch tensors."""
    for name, tensor in (("preferred", preferred), ("others", others)):
        check_scores(tensor, name)
        if tensor.dim() == 0:
            raise ValueError(f"{name} must have at least one dimension (the items), got a single number")
        if not bool(torch.isfinite(tensor).all()):
            raise ValueError(f"{name} must be finite")
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


@torch.compiler.disable
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
    flat, flat_labels, bounds = flat_lists(scores, labels, offsets, where)
    if not bool(torch.isfinite(flat).all()):
        raise ValueError("scores must be finite")
    tiers = make_tiers(labels_of(flat_labels.cpu()), bounds)
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
