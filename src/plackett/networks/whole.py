"""Feature handling and the networks of an ensemble as one module, for export."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class WholeModel(nn.Module):
    """From raw features to the mean score of the members; `score` is what a member makes of scaled features."""

    def __init__(
        self, scaling: nn.Module, networks: Sequence[nn.Module], score: Callable[[Any, Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.scaling = copy.deepcopy(scaling)
        self.members = nn.ModuleList(copy.deepcopy(network) for network in networks)
        self._score = score

    def forward(self, features: Tensor) -> Tensor:
        x = self.scaling(features)
        return torch.stack([self._score(member, x) for member in self.members]).mean(0)
