"""The exact likelihood as a torch operation: closed-form backward, any device.

The gradient is computed with the value, from the same nodes, and kept for the backward pass: one number an item, never
a table of nodes. Tensors in main memory go through the compiled kernel, others through `vectorised`.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from plackett.likelihood import vectorised
from plackett.likelihood.kernel import LARGEST_SCORE
from plackett.likelihood.midpoint import check_midpoint_options
from plackett.likelihood.partition import check_tol, check_top, evaluate
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


class SecondDerivative(torch.autograd.Function):
    """gradient * factor, whose own derivative with respect to the scores is refused."""

    @staticmethod
    def forward(scores: Tensor, gradient: Tensor, factor: Tensor) -> Tensor:
        return gradient * factor

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: FunctionCtx, *_: Any) -> Any:
        raise RuntimeError(
            "the Plackett-Luce likelihood cannot be differentiated twice by autograd: call it without "
            "create_graph=True, or take the diagonal of its Hessian from plackett.partition_derivatives"
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], scores: Tensor, gradient: Tensor, factor: Tensor) -> Any:
        moved = [
            x if dim is None else x.movedim(dim, 0) for x, dim in zip((scores, gradient, factor), in_dims, strict=True)
        ]
        return SecondDerivative.apply(*moved), 0


def refuse_second_derivative(scores: Tensor, gradient: Tensor) -> Tensor:
    """The gradient itself; while a graph of the backward pass is recorded, with a node that refuses to go further."""
    if not torch.is_grad_enabled():
        return gradient
    one = torch.ones((), device=scores.device, dtype=scores.dtype)
    result: Tensor = SecondDerivative.apply(scores, gradient, one)
    return result


class _Partition(torch.autograd.Function):
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
            flat_labels = numpy_of(labels, np.float64)
            tiers = make_tiers(flat_labels, offsets)
            weights = None if weighting is None else tiers.weights(weighting, flat_labels)
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
        return SecondDerivative.apply(scores, gradient, factor), None, None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, scores: Tensor, labels: Tensor, offsets: Any, *options: Any) -> Any:
        batch = info.batch_size
        scores, labels = (
            x.expand(batch, -1) if dim is None else x.movedim(dim, 0)
            for x, dim in zip((scores, labels), in_dims[:2], strict=True)
        )
        tiled = offsets_from_sizes(np.tile(np.diff(offsets), batch))
        value, gradient = _Partition.apply(scores.reshape(-1), labels.reshape(-1), tiled, *options)
        return (value.reshape(batch, -1), gradient.reshape(batch, -1)), (0, 0)


class _WithGradient(torch.autograd.Function):
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
        return SecondDerivative.apply(scores, gradient, factor), None, None, None


def with_gradient(scores: Tensor, value: Tensor, gradient: Tensor, offsets: Any) -> Tensor:
    """`value`, one a list, made differentiable by the flat scores with a gradient in closed form."""
    result: Tensor = _WithGradient.apply(scores, value.to(scores.dtype), gradient.to(scores.dtype), offsets)
    return result


def _check_on_device(scores: Tensor, labels: Tensor) -> None:
    if not bool((scores.abs() <= LARGEST_SCORE).all()):
        raise ValueError(f"scores must be finite and at most {LARGEST_SCORE:g} in size")
    if not bool(torch.isfinite(labels).all()):
        raise ValueError("labels must be finite")


def flat_lists(scores: Any, labels: Any, offsets: Any, where: Any) -> tuple[Tensor, Tensor, np.ndarray[Any, Any]]:
    """Items of a batch one after the other, and their offsets; the rules of `plackett.lists.make_batch`."""
    check_scores(scores)
    labels = torch.as_tensor(labels, device=scores.device)
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
        length = scores.shape[-1]
        lists = 1 if scores.dim() == 1 else scores.shape[0]
        return scores.reshape(-1), labels.reshape(-1), np.arange(lists + 1, dtype=np.int64) * length
    mask = torch.as_tensor(where, device=scores.device)
    if mask.dtype != torch.bool:
        raise ValueError(f"where must be boolean, got {mask.dtype}")
    if mask.shape != scores.shape:
        raise ValueError(f"where must have the shape of scores, {tuple(scores.shape)}, got {tuple(mask.shape)}")
    sizes = mask.sum(-1).reshape(-1).cpu().numpy()
    return scores[mask], labels[mask], offsets_from_sizes(sizes)


@torch.compiler.disable
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
    batch_shape = torch.broadcast_shapes(preferred.shape[:-1], others.shape[:-1])
    joined = torch.cat([x.expand(*batch_shape, x.shape[-1]) for x in (preferred, others)], -1)
    rows = math.prod(batch_shape)
    labels = joined.new_zeros(joined.shape[-1])
    labels[: preferred.shape[-1]] = 1.0
    flat = joined.reshape(rows, joined.shape[-1])
    value: Tensor = partition_log_likelihood(flat, labels.expand(flat.shape), tol=tol)
    return value.reshape(batch_shape)


@torch.compiler.disable
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
    tiers = make_tiers(numpy_of(flat_labels.cpu(), np.float64), bounds)
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
