"""Any loss of `plackett.losses` as an objective of trees, through its gradient and curvature."""

from __future__ import annotations

from typing import Any

import numpy as np

from plackett.boosted.base import Floats, Objective
from plackett.errors import MissingDependencyError
from plackett.lists import IntArray


class LossObjective(Objective):
    """A loss by its name in `plackett.losses`, with the curvature of `plackett.losses.curvature`.

    Losses that draw at random draw anew for every tree, from `random_state`.
    """

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
        self._generator = torch.Generator().manual_seed(int(random_state))
        if LOSSES[name].random or options.get("samples") is not None:
            options["generator"] = self._generator
        self._loss, self._options = RankingLoss(name, reduction="sum", **options), options
        self._curvature = LOSSES[name].curvature
        self._labels, self._weights = torch.from_numpy(labels), torch.from_numpy(weights)

    def _of(self, scores: Any) -> Any:
        return self._loss(scores, self._labels, offsets=self.offsets, weights=self._weights)

    def value(self, scores: Floats) -> float:
        return float(self._of(self._torch.from_numpy(scores)))

    def gradient(self, scores: Floats) -> Floats:
        """First derivative of the loss by each score."""
        leaf = self._torch.from_numpy(scores).requires_grad_()
        (gradient,) = self._torch.autograd.grad(self._of(leaf), leaf)
        return np.asarray(gradient.numpy())

    def derivatives(self, scores: Floats) -> tuple[Floats, Floats]:
        from plackett.losses.lists import prepare

        if self._curvature is None:
            raise TypeError(f"{self._loss.name} has no curvature for trees to be grown with")
        state = self._generator.get_state()
        gradient = self.gradient(scores)
        self._generator.set_state(state)  # the curvature is that of the orders that the gradient was of
        lists = prepare(self._torch.from_numpy(scores), self._labels, self.offsets, None)
        return gradient, self._curvature(lists, **self._options) * self.row_weights
