"""Optimisers and learning rate schedules."""

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
"""The factor on the learning rate after the share `done` of all steps."""


def rate_at(done: float, rate: float, schedule: str, warmup: float) -> float:
    """The learning rate after the share `done` of the training. It rises linearly over the first share `warmup`."""
    if done < warmup:
        return rate * done / warmup
    return rate * SCHEDULES[schedule]((done - warmup) / (1.0 - warmup))


def sparse_parameters(network: nn.Module) -> set[int]:
    """The ids of the parameters whose gradients are sparse."""
    return {id(module.weight) for module in network.modules() if getattr(module, "sparse_gradient", False)}


def make_optimisers(
    network: nn.Module, name: str, rate: float, weight_decay: float, options: dict[str, Any]
) -> list[torch.optim.Optimizer]:
    """One optimiser for dense gradients and, if layers have sparse gradients, SparseAdam for those.

    Weights decay; biases and norms do not. Weights with sparse gradients do not decay either, because a step updates
    only the rows that occur. AdaGrad and SGD handle sparse gradients themselves.
    """
    if name not in OPTIMISERS:
        raise ValueError(f"optimizer must be one of {', '.join(OPTIMISERS)}, got {name!r}")
    parameters = [p for p in network.parameters() if p.requires_grad]
    sparse_ids = sparse_parameters(network)
    takes_sparse = name in ("adagrad", "sgd")
    if name == "sgd" and options.get("momentum") and sparse_ids:
        raise ValueError(  # torch would keep a sparse momentum that grows with every step
            "optimizer_options must not have momentum where gradients are sparse: set sparse_gradients=False and "
            f"negatives=None, got {options}"
        )
    for_sparse_adam = [p for p in parameters if id(p) in sparse_ids and not takes_sparse]
    others = [p for p in parameters if id(p) not in sparse_ids or takes_sparse]
    if name == "sparse_adam" and others:
        name = "adam"  # for dense gradients
    groups = [
        {"params": [p for p in others if p.dim() > 1 and id(p) not in sparse_ids], "weight_decay": weight_decay},
        {"params": [p for p in others if p.dim() <= 1 or id(p) in sparse_ids], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    found: list[torch.optim.Optimizer] = []
    # The fused forms pass over memory once per step: four to six times as fast on large layers.
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
    if for_sparse_adam:
        known = {key: value for key, value in options.items() if key in ("betas", "eps", "maximize")}
        found.append(torch.optim.SparseAdam(for_sparse_adam, rate, **known))
    return found
