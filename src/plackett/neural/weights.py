"""Weights from a file, for a module whose sizes come from the same file.

The module is made on the device "meta", where tensors have shapes but no memory. So only tensors that the file really
holds use memory, whatever sizes it claims.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

_LARGEST = 1e18
"""The largest weight whose product with a scaled feature or a hidden unit is finite in single precision."""


def set_weights(module: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Set all tensors of a module, without copying. Raises an error if names, shapes or types differ."""
    own = module.state_dict()
    wanted = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in own.items()}
    found = {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}
    if found != wanted:
        name = next(name for name in sorted({*found, *wanted}) if found.get(name) != wanted.get(name))
        raise ValueError(f"tensor {name[:80]!r} must be {wanted.get(name)}, got {found.get(name)}")
    is_meta = any(tensor.is_meta for tensor in own.values())
    module.load_state_dict(dict(tensors), assign=is_meta)


def check_weights(module: nn.Module) -> None:
    """Raise an error if a weight is not finite or too large to compute scores."""
    for name, weight in module.named_parameters():
        if weight.numel() == 0 or not weight.is_floating_point():
            continue
        low, high = (float(end) for end in torch.aminmax(weight.detach()))
        if not -_LARGEST <= low <= high <= _LARGEST:  # false for NaN, too
            raise ValueError(f"the weights {name[:80]} must be from {-_LARGEST:g} to {_LARGEST:g}, got {low} to {high}")
