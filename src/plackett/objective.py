"""An objective: a loss of scores, prepared once for fixed lists and labels and then evaluated many times.

Boosted trees, linear models and rank aggregation all minimise an `Objective`; each uses the part of the contract that
it needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from plackett.lists import IntArray

Floats = npt.NDArray[np.float64]
Leaves = npt.NDArray[np.int32]


class Objective(ABC):
    """A loss to minimise: the sum over lists of the list's weight times its loss, as a function of all scores.

    Every objective has

        value(scores)                the loss
        derivatives(scores)          (gradient, curvature), both of shape (scores,): the first derivatives, and
                                     nonnegative second derivatives, either the exact diagonal of the Hessian or an
                                     upper bound that a Newton step can rely on
        gradient(scores), value_and_gradient(scores)
                                     follow from the two above; override them where one pass gives both

    Some also have

        leaf_derivatives(...)        first and second derivative when all scores of a tree's leaf move together; such a
                                     class sets `has_newton_leaves`
        hessian_products(...)        exact products of the Hessian with directions

    Scores are float64, one after the other, those of a list next to each other. No method changes its arguments, and
    labels were checked before the objective was made.
    """

    has_newton_leaves: ClassVar[bool] = False
    """Whether `leaf_derivatives` is implemented."""
    is_convex: bool = False
    """Whether every minimum is global, so that Newton steps need no check against the loss."""

    @abstractmethod
    def value(self, scores: Floats) -> float:
        """The loss."""

    @abstractmethod
    def derivatives(self, scores: Floats) -> tuple[Floats, Floats]:
        """The gradient and the curvature, one number per score."""

    def gradient(self, scores: Floats) -> Floats:
        """The derivative of the loss by each score."""
        return self.derivatives(scores)[0]

    def value_and_gradient(self, scores: Floats) -> tuple[float, Floats]:
        """The loss and its gradient."""
        return self.value(scores), self.gradient(scores)

    def leaf_derivatives(self, scores: Floats, leaf: Leaves, leaves: int) -> tuple[Floats, Floats]:
        """Slope and curvature along each of the `leaves` leaves; row i belongs to the leaf `leaf[i]`."""
        del scores, leaf, leaves
        raise TypeError(f"{type(self).__name__} does not support Newton leaves")

    def hessian_products(self, scores: Floats, directions: Floats) -> Floats:
        """The Hessian of the loss times directions, (scores, directions) -> (scores, directions)."""
        del scores, directions
        raise TypeError(f"{type(self).__name__} does not support Hessian products")

    def start(self) -> float:
        """The best common score of all items before anything is learned; 0 where only differences of scores matter."""
        return 0.0


class ListObjective(Objective):
    """An `Objective` of labelled lists, which it keeps.

    labels       (rows,), the rows of a list next to each other
    offsets      list b holds the rows offsets[b] to offsets[b+1] - 1
    weights      one per list
    row_weights  the weight of each row's list

    `options` names the keyword arguments of the constructor that a user may set by name.
    """

    options: ClassVar[tuple[str, ...]] = ()
    compares_items: ClassVar[bool] = True
    """Whether a list of one item has no loss. Regression on the labels has one."""

    def __init__(self, labels: Floats, offsets: IntArray, weights: Floats) -> None:
        self.labels, self.offsets, self.weights = labels, offsets, weights
        self.row_weights = np.repeat(weights, np.diff(offsets))
