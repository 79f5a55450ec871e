"""Optimisers, and schedules of the learning rate as functions of how much of the training is done."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

OPTIMISERS = ("adam", "adamw", "sparse_adam", "adagrad", "sgd")

SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda _: 1.0,
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: 0.5 * (1.0 + math.cos(math.pi * done)),
}
"""The share of the learning rate when a share `done` of all steps is done."""


def rate_at(done: float, rate: float, schedule: str, warmup: float) -> float:
    """The learning rate; it rises evenly over the first share `warmup` of the training."""
    if done < warmup:
        return rate * done / warmup
    return rate * SCHEDULES[schedule]((done - warmup) / (1.0 - warmup))


def sparse_parameters(network: nn.Module) -> set[int]:
    """The ids of the parameters whose gradients are sparse."""
    return {id(module.weight) for module in network.modules() if getattr(module, "sparse_gradient", False)}


def make_optimisers(
    network: nn.Module, name: str, rate: float, weight_decay: float, options: dict[str, Any]
) -> list[torch.optim.Optimizer]:
    """One for most parameters and, where layers have sparse gradients, SparseAdam for those.

    Weights decay, biases and norms do not. Sparse rows do not decay either, for only those that occur are touched.
    AdaGrad and SGD take sparse gradients themselves.
    """
    if name not in OPTIMISERS:
        raise ValueError(f"optimizer must be one of {', '.join(OPTIMISERS)}, got {name!r}")
    parameters = [p for p in network.parameters() if p.requires_grad]
    sparse_ids = sparse_parameters(network)
    by_itself = name in ("adagrad", "sgd")
    if name == "sgd" and options.get("momentum") and sparse_ids:
        raise ValueError(  # torch would keep a sparse momentum that grows with every step
            "optimizer_options must not have momentum where gradients are sparse: set sparse_gradients=False and "
            f"negatives=None, got {options}"
        )
    apart = [p for p in parameters if id(p) in sparse_ids and not by_itself]
    rest = [p for p in parameters if id(p) not in sparse_ids or by_itself]
    if name == "sparse_adam" and rest:
        name = "adam"  # what is dense
    groups = [
        {"params": [p for p in rest if p.dim() > 1 and id(p) not in sparse_ids], "weight_decay": weight_decay},
        {"params": [p for p in rest if p.dim() <= 1 or id(p) in sparse_ids], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    found: list[torch.optim.Optimizer] = []
    # The fused forms go through memory once a step: four to six times as fast on large layers.
    fused: dict[str, Any] = {"fused": True} if all(p.device.type in ("cpu", "cuda") for p in parameters) else {}
    kinds: dict[str, Callable[..., torch.optim.Optimizer]] = {
        "adam": lambda: torch.optim.Adam(groups, rate, **fused, **options),
        "adamw": lambda: torch.optim.AdamW(groups, rate, **fused, **options),
        "adagrad": lambda: torch.optim.Adagrad(groups, rate, **options),
        "sgd": lambda: torch.optim.SGD(groups, rate, **options),
    }
    try:
        if groups:
            found.append(kinds[name]())
    except TypeError as error:
        raise ValueError(f"optimizer_options must be options of {name}, got {options}: {error}") from error
    if apart:
        known = {key: value for key, value in options.items() if key in ("betas", "eps", "maximize")}
        found.append(torch.optim.SparseAdam(apart, rate, **known))
    return found
