"""Tensors between torch and the compiled kernels: types, labels, precision, autograd functions that derive once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from plackett.arguments import check_tol, ranks_if_large

_HALF = (torch.float16, torch.bfloat16)
_TWICE = (
    "the Plackett-Luce likelihood cannot be differentiated twice by autograd: call it without create_graph=True, or "
    "take the diagonal of its Hessian from plackett.partition_derivatives"
)
_FORWARD = "the Plackett-Luce likelihood has no forward-mode derivative: use reverse mode (torch.func.grad, jacrev)"
_Function = TypeVar("_Function", bound=Callable[..., Any])


def work_type(device: torch.device) -> torch.dtype:
    """The most precise floating-point type of a device."""
    return torch.float32 if device.type == "mps" else torch.float64


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
