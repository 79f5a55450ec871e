"""Weights from a file into a module whose sizes came from the file too.

The module is made on the device "meta", where tensors have shapes but no memory: whatever sizes are claimed, memory is
taken for the tensors that are there.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

_LARGEST = 1e18
"""Of a weight: its product with a scaled feature, or with an output of such a weight, is finite in single precision."""


def set_weights(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Give a module these tensors, if they are all that it has, in shape and type. They become its own."""
    own = module.state_dict()
    wanted = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in own.items()}
    found = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}
    if found != wanted:
        name = next(name for name in sorted({*found, *wanted}) if found.get(name) != wanted.get(name))
        raise ValueError(f"tensor {name[:80]!r} must be {wanted.get(name)}, got {found.get(name)}")
    is_meta = any(tensor.is_meta for tensor in own.values())
    module.load_state_dict(dict(tensors), assign=is_meta)


def check_weights(module: nn.Module) -> None:
    """An error if a weight is no number that scores can be computed with."""
    for name, weight in module.named_parameters():
        if weight.numel() == 0 or not weight.is_floating_point():
            continue
        low, high = (float(end) for end in torch.aminmax(weight.detach()))
        if not -_LARGEST <= low <= high <= _LARGEST:  # NaN is neither
            raise ValueError(f"the weights {name[:80]} must be from {-_LARGEST:g} to {_LARGEST:g}, got {low} to {high}")
