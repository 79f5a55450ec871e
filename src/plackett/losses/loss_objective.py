"""Any loss as an `Objective` for trees and linear models: a registered loss, a `Loss`, or a function of your own.

Importing this module needs no torch; making a `LossObjective` does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from plackett.errors import MissingDependencyError
from plackett.lists import IntArray
from plackett.losses.registry import find_loss
from plackett.objective import Floats, ListObjective


class LossObjective(ListObjective):
    """A loss by its gradient, which autograd computes, and its curvature.

    A loss without a `curvature` has a second derivative of 1 for every row, times the weight of the row's list: trees
    then fit the gradient by weighted least squares.

    Args:
        loss: a name in `plackett.losses.LOSSES`, a `Loss`, or a function f(scores, labels, offsets, **options) -> one
            value per list, in torch and differentiable.
        random_state: seeds the draws of random losses.
        redraw: whether a random loss draws new numbers at every evaluation, as trees need, or always the same, as
            solvers need.
        item_weights: one per row, for losses that take them.
        options: options of the loss.
    """

    def __init__(
        self,
        loss: Any,
        labels: Floats,
        offsets: IntArray,
        weights: Floats,
        *,
        random_state: int = 0,
        redraw: bool = True,
        item_weights: Floats | None = None,
        **options: Any,
    ) -> None:
        super().__init__(labels, offsets, weights)
        found = find_loss(loss, form="curvature")
        try:
            import torch
        except ImportError:
            raise MissingDependencyError("torch", "neural", f"the objective {found.name!r}") from None
        self._torch, self._loss = torch, found
        self._options = found.check_options(options)
        self._generator = torch.Generator().manual_seed(int(random_state))
        self._first_draws = None if redraw else self._generator.get_state()
        if item_weights is not None:
            self._options["item_weights"] = torch.from_numpy(item_weights)
        if found.random or options.get("samples") is not None:
            self._options["generator"] = self._generator
        self._function, self._curvature = found.function, found.form("curvature")
        self._labels, self._weights = torch.from_numpy(labels), torch.from_numpy(weights)

    def _evaluate(self, scores: Any) -> Any:
        if self._first_draws is not None:
            self._generator.set_state(self._first_draws)
        return self._function(
            scores, self._labels, offsets=self.offsets, weights=self._weights, reduction="sum", **self._options
        )

    def value(self, scores: Floats) -> float:
        return float(self._evaluate(self._torch.from_numpy(scores)))

    def gradient(self, scores: Floats) -> Floats:
        return self.value_and_gradient(scores)[1]

    def value_and_gradient(self, scores: Floats) -> tuple[float, Floats]:
        leaf = self._torch.from_numpy(scores).requires_grad_()
        value = self._evaluate(leaf)
        if not value.requires_grad:
            raise ValueError(f"{self._loss.name!r} must compute its value from the scores with torch operations alone")
        (gradient,) = self._torch.autograd.grad(value, leaf)
        return float(value.detach()), np.asarray(gradient.numpy())

    def derivatives(self, scores: Floats) -> tuple[Floats, Floats]:
        from plackett.losses.loss_lists import make_loss_lists

        if self._curvature is None:
            return self.gradient(scores), self.row_weights.copy()
        state = self._generator.get_state()
        gradient = self.gradient(scores)
        self._generator.set_state(state)  # the curvature must belong to the same random orders as the gradient
        lists = make_loss_lists(self._torch.from_numpy(scores), self._labels, self.offsets, None)
        curvature = np.asarray(self._curvature(lists, **self._options))
        if curvature.shape != scores.shape:
            raise ValueError(
                f"the curvature of {self._loss.name} must hold one value per item, shape {scores.shape}, got "
                f"{curvature.shape}"
            )
        return gradient, curvature * self.row_weights
