"""What an objective of boosted trees is: a loss over lists with fixed labels, prepared once and evaluated often."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from plackett.lists import IntArray

Floats = npt.NDArray[np.float64]


class Objective(ABC):
    """A loss to minimise, the sum over lists of weight times the list's loss.

    labels    (rows,), the rows of a list next to each other
    offsets   list b holds the rows offsets[b] to offsets[b+1] - 1
    weights   one per list
    """

    has_newton_leaves: ClassVar[bool] = False
    """Whether `leaf_derivatives` exists."""
    is_convex: bool = True
    """Whether Newton steps can be trusted; else each is checked against the loss."""

    def __init__(self, labels: Floats, offsets: IntArray, weights: Floats) -> None:
        self.labels, self.offsets, self.weights = labels, offsets, weights
        self.row_weights = np.repeat(weights, np.diff(offsets))

    @abstractmethod
    def value(self, scores: Floats) -> float:
        """The loss."""

    @abstractmethod
    def derivatives(self, scores: Floats) -> tuple[Floats, Floats]:
        """First derivative of the loss by each score, and a positive second one for growing trees."""

    def leaf_derivatives(self, scores: Floats, leaf: npt.NDArray[np.int32], leaves: int) -> tuple[Floats, Floats]:
        """First and second derivative of the loss when all scores of a leaf move together, for each leaf."""
        del scores, leaf, leaves
        raise TypeError(f"{type(self).__name__} has no Newton leaves")

    def start(self) -> float:
        """The score that all items begin with."""
        return 0.0


def grades_of(labels: Floats, name: str) -> Floats:
    """The labels, checked to be grades of at least 0 whose gain 2^grade - 1 is a number."""
    if labels.size and (labels.min() < 0 or labels.max() > 60):
        raise ValueError(
            f"labels must be grades from 0 to 60 for the objective {name!r}, got {labels.min():g} to {labels.max():g}"
        )
    return labels


Options = dict[str, Any]
