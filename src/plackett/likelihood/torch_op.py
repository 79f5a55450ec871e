"""The exact likelihood as a torch operation: closed-form backward, any device.

The gradient is computed with the value, from the same nodes, and kept for the backward pass: one number per item, never
a table of nodes. CPU tensors go through the compiled kernel, others through `vectorised`.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plackett.arguments import check_finite, check_float_tensor, check_midpoint_options, check_top
from plackett.likelihood import vectorised
from plackett.likelihood.constants import LARGEST_SCORE
from plackett.likelihood.core import evaluate
from plackett.likelihood.tensors import (
    OnceDifferentiable,
    ScaledGradient,
    in_single_precision,
    numpy_labels,
    numpy_of,
    outside_graphs,
    tol_for,
)
from plackett.likelihood.tiers import TierWeighting, make_tiers
from plackett.lists import IntArray, flat_lists, offsets_from_sizes
from plackett.threads import at_most


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
