"""Position bias in trees: utility in training = score + bias[position], both learned together.

A position is treated like a leaf of a tree that every round has: all rows at a position move together, by the Newton
step along that direction. Slope and curvature of the step are sums over the rows of what the tree is grown from, so
that biases cost little of their own. The learning rate does not slow them down: while the biases are wrong, trees learn
the positions that the old ranker chose.

But the learning rate does slow the trees down, and what they have not explained yet would be taken for bias where the
old ranker was right. So biases are those that go with scores of their full size: scores times the factor >= 1 that fits
best, which is used for nothing else.
"""

from __future__ import annotations

import numpy as np

from plackett.data.positions import Positions
from plackett.lists import IntArray
from plackett.objective import Floats, Leaves, Objective

# All biases move at once. Of two positions each would make up the whole difference, and both together twice as much:
# half a step is exact there, and with many positions it halves what is left in every round.
_SHARE = 0.5
# A position that takes nearly all clicks has hardly any curvature left, and its step no bound.
_LONGEST_STEP = 1.0
# Steps for the factor of the scores, each of which at most doubles it: a Newton step, whose curvature is too large, and
# secants.
_FACTOR_STEPS = 2


class PositionedObjective(Objective):
    """An objective of score + bias[position], for fixed biases; `learn` moves these.

    The biases are penalised by penalty / 2 times the sum of their squares. Objectives of lists do not change if all
    biases do by a constant; the mean of the biases is held at 0.
    """

    def __init__(
        self, objective: Objective, positions: Positions, offsets: IntArray, penalty: float, start: Floats | None = None
    ) -> None:
        self._objective, self._codes, self._penalty = objective, positions.codes, penalty
        self.bias = np.zeros(len(positions)) if start is None else start - start.mean()
        self.is_convex = objective.is_convex
        self.has_newton_leaves = objective.has_newton_leaves  # type: ignore[misc]  # that of the class is a default
        self._list_of = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        cells = np.unique(self._list_of * max(len(positions), 1) + self._codes)
        self._repeats = len(cells) < len(self._codes)  # a position occurs twice in a list
        self._leaf = self._codes.astype(np.int32)

    def _utilities(self, scores: Floats) -> Floats:
        return scores + self.bias[self._codes]

    def value(self, scores: Floats) -> float:
        return self._objective.value(self._utilities(scores))

    def derivatives(self, scores: Floats) -> tuple[Floats, Floats]:
        return self._objective.derivatives(self._utilities(scores))

    def leaf_derivatives(self, scores: Floats, leaf: Leaves, leaves: int) -> tuple[Floats, Floats]:
        return self._objective.leaf_derivatives(self._utilities(scores), leaf, leaves)

    def start(self) -> float:
        return self._objective.start()

    def bias_derivatives(self, scores: Floats, gradient: Floats, curvature: Floats) -> tuple[Floats, Floats]:
        """Slope and curvature of the penalised loss along each position, from the derivatives at these scores.

        Where no list has a position twice, the curvature along a position is the sum of its rows' curvatures, exactly.
        Otherwise it comes from `leaf_derivatives`; without these the sum stays, which for losses of lists is too large
        and makes steps shorter.
        """
        count = len(self.bias)
        if self._repeats and self.has_newton_leaves:
            slope, second = self.leaf_derivatives(scores, self._leaf, count)
        else:
            sums = (np.bincount(self._codes, part, count) for part in (gradient, curvature))
            slope, second = (np.asarray(sum_, np.float64) for sum_ in sums)
        return slope + self._penalty * self.bias, second + self._penalty

    def learn(self, scores: Floats, gradient: Floats, curvature: Floats) -> None:
        """Move every bias by half of its Newton step, at most `_LONGEST_STEP`, with scores of their full size."""
        full, gradient, curvature = self._full_size(scores, gradient, curvature)
        slope, second = self.bias_derivatives(full, gradient, curvature)
        step = np.where(second > 0.0, slope / np.where(second > 0.0, second, 1.0), 0.0)
        bias = self.bias - np.clip(_SHARE * step, -_LONGEST_STEP, _LONGEST_STEP)
        self.bias = bias - bias.mean()

    def _full_size(self, scores: Floats, gradient: Floats, curvature: Floats) -> tuple[Floats, Floats, Floats]:
        """The scores around the means of their lists times the factor that fits best, with the derivatives there."""
        if not self.is_convex:
            return scores, gradient, curvature
        sums = np.bincount(self._list_of, scores)
        centred = scores - (sums / np.maximum(np.bincount(self._list_of), 1))[self._list_of]
        full, factor = scores, 1.0
        slope, second = float(gradient @ centred), float(curvature @ centred**2)
        for _ in range(_FACTOR_STEPS):
            if not second > 0.0:  # equal scores
                break
            moved = min(max(factor - slope / second, 1.0), 2.0 * factor)
            if moved == factor:
                break
            full = scores + (moved - 1.0) * centred
            gradient, curvature = self.derivatives(full)
            before, slope = slope, float(gradient @ centred)
            second, factor = (slope - before) / (moved - factor), moved
        return full, gradient, curvature
