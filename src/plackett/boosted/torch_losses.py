"""Any loss of `plackett.losses` as an objective of trees, through its gradient."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from plackett.boosted.base import Floats, Objective
from plackett.errors import MissingDependencyError
from plackett.lists import IntArray


class LossObjective(Objective):
    """A loss by its name in `plackett.losses`. Trees are grown by least squares on its gradient.

    Losses that draw at random draw anew for every tree, from `random_state`.
    """

    splits_by_least_squares: ClassVar[bool] = True

    def __init__(
        self, name: str, labels: Floats, offsets: IntArray, weights: Floats, *, random_state: int = 0, **options: Any
    ) -> None:
        super().__init__(labels, offsets, weights)
        try:
            import torch
        except ImportError:
            raise MissingDependencyError("torch", "neural", f"the objective {name!r}") from None
        from plackett.losses import LOSSES, RankingLoss

        self._torch = torch
        if LOSSES[name].random:
            options["generator"] = torch.Generator().manual_seed(int(random_state))
        self._loss = RankingLoss(name, reduction="sum", **options)
        self._labels, self._weights = torch.from_numpy(labels), torch.from_numpy(weights)

    def _of(self, scores: Any) -> Any:
        return self._loss(scores, self._labels, offsets=self.offsets, weights=self._weights)

    def value(self, scores: Floats) -> float:
        return float(self._of(self._torch.from_numpy(scores)))

    def derivatives(self, scores: Floats) -> tuple[Floats, Floats]:
        leaf = self._torch.from_numpy(scores).requires_grad_()
        (gradient,) = self._torch.autograd.grad(self._of(leaf), leaf)
        return gradient.numpy(), np.ones(len(scores))
