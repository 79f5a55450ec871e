"""Regression, cosine and KL losses on grades, each in a form that is consistent with NDCG (docs/plrank.md).

With gains G = 2^grade - 1 and the ideal DCG of the list |G|, the NDCG of a ranking is linear in g = G / |G|: if grades
are random, the best ranking sorts by the mean of g (Ravikumar, Tewari, Yang 2011). A loss is consistent if the scores
that minimise its mean do, too. Lists without a relevant document have g = 0: any ranking is ideal.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from plackett.boosted.plrank import ContextObjective, contexts_of_whole_lists, grouped_sums
from plackett.likelihood.core import make_tiers
from plackett.lists import IntArray
from plackett.objective import Floats, Leaves, ListObjective


def grades_of(labels: Floats, name: str) -> Floats:
    """The labels, checked to be grades from 0 to 60, so that the gain 2^grade - 1 is a usable number."""
    if labels.size and (labels.min() < 0 or labels.max() > 60):
        raise ValueError(
            f"labels must be grades from 0 to 60 for the objective {name!r}, got {labels.min():g} to {labels.max():g}"
        )
    return labels


def gains_of(labels: Floats, name: str) -> Floats:
    """2^grade - 1."""
    return np.asarray(np.exp2(grades_of(labels, name)) - 1.0)


def normalised_gains_of(labels: Floats, offsets: IntArray, name: str) -> Floats:
    """Gains divided by the ideal DCG of their list; 0 in lists without a relevant document.

    >>> normalised_gains_of(np.array([1.0, 0, 0, 0]), np.array([0, 2, 4]), "c-mart")
    array([1., 0., 0., 0.])
    """
    gains = gains_of(labels, name)
    sizes = np.diff(offsets)
    place = np.arange(len(labels)) - np.repeat(offsets[:-1], sizes)
    best_first = gains[make_tiers(labels, offsets).order]
    ideal = _list_sums(best_first / np.log2(2.0 + place), offsets)
    return np.asarray(gains / np.repeat(np.where(ideal > 0.0, ideal, 1.0), sizes))


def _list_sums(values: Floats, offsets: IntArray) -> Floats:
    lists = len(offsets) - 1
    return grouped_sums(values, np.repeat(np.arange(lists), np.diff(offsets)), lists)


class MART(ListObjective):
    """(score - grade)^2 / 2."""

    name: ClassVar[str] = "mart"
    has_newton_leaves: ClassVar[bool] = True
    compares_items: ClassVar[bool] = False
    is_convex = True

    def __init__(self, labels: Floats, offsets: IntArray, weights: Floats) -> None:
        super().__init__(labels, offsets, weights)
        self.target = self.target_of(labels, offsets)

    @classmethod
    def target_of(cls, labels: Floats, offsets: IntArray) -> Floats:
        """The scores that the loss asks for."""
        del offsets
        return grades_of(labels, cls.name)

    def start(self) -> float:
        """The weighted mean target, so that trees need not learn it."""
        total = self.row_weights.sum()
        return float(self.row_weights @ self.target / total) if total > 0.0 else 0.0

    def value(self, scores: Floats) -> float:
        return float(0.5 * np.sum(self.row_weights * (scores - self.target) ** 2))

    def derivatives(self, scores: Floats) -> tuple[Floats, Floats]:
        return self.row_weights * (scores - self.target), self.row_weights.copy()

    def leaf_derivatives(self, scores: Floats, leaf: Leaves, leaves: int) -> tuple[Floats, Floats]:
        gradient, hessian = self.derivatives(scores)
        return grouped_sums(gradient, leaf, leaves), grouped_sums(hessian, leaf, leaves)


class GainMART(MART):
    """(score - G)^2 / 2: the best scores are the means of G, which sort as those of g only if ideal DCGs are equal."""

    name: ClassVar[str] = "mart-gain"

    @classmethod
    def target_of(cls, labels: Floats, offsets: IntArray) -> Floats:
        del offsets
        return gains_of(labels, cls.name)


class ConsistentMART(MART):
    """(score - g)^2 / 2: the best scores are the means of g."""

    name: ClassVar[str] = "c-mart"

    @classmethod
    def target_of(cls, labels: Floats, offsets: IntArray) -> Floats:
        return normalised_gains_of(labels, offsets, cls.name)


_SMALLEST_NORM = 1e-140  # scores below it count as 0: their squares, and what is divided by them, leave float64


class CosMART(ListObjective):
    """1 - cos(scores, G) of each list with a relevant document; scores of norm 0 have a cosine of 0 and no gradient."""

    name: ClassVar[str] = "cosmart"

    def __init__(self, labels: Floats, offsets: IntArray, weights: Floats) -> None:
        super().__init__(labels, offsets, weights)
        gains = self.gains_of(labels, offsets)
        norm = np.sqrt(_list_sums(gains * gains, offsets))
        # (lists,) factors in the loss, and (rows,) gains scaled to norm 1 within each list.
        self.factor = weights * self.importance(norm)
        self.direction = gains / np.repeat(np.where(norm > 0.0, norm, 1.0), np.diff(offsets))

    @classmethod
    def gains_of(cls, labels: Floats, offsets: IntArray) -> Floats:
        del offsets
        return gains_of(labels, cls.name)

    @staticmethod
    def importance(norm: Floats) -> Floats:
        """The factor of lists whose gains have the given norm."""
        return np.sign(norm)

    def start(self) -> float:
        """1: scores of norm 0 have no direction to turn from, and gains are positive."""
        return 1.0

    def value(self, scores: Floats) -> float:
        cosine, _ = self._cosine_and_norm(scores)
        return float(np.sum(self.factor * (1.0 - cosine)))

    def derivatives(self, scores: Floats) -> tuple[Floats, Floats]:
        """The gradient, and an upper bound of the second derivative in any direction, 2 / sqrt(3) factor / |s|^2.

        With u the part of the gains across s, of length q = sqrt(1 - c^2) for the cosine c, the second derivative is
        (c (1 - s s') + u s' + s u') / |s|^2, s of norm 1; its largest eigenvalue is (c + sqrt(4 - 3 c^2)) / 2 or c, and
        the first of these is largest at c = 1 / sqrt(3).
        """
        sizes = np.diff(self.offsets)
        cosine, norm = self._cosine_and_norm(scores)
        turning = np.divide(self.factor, norm, out=np.zeros_like(norm), where=norm > 0.0)
        shrinking = np.divide(cosine, norm, out=np.zeros_like(norm), where=norm > 0.0)
        curvature = np.divide(turning, norm, out=np.zeros_like(norm), where=norm > 0.0) * (2.0 / np.sqrt(3.0))
        gradient = np.repeat(turning, sizes) * (np.repeat(shrinking, sizes) * scores - self.direction)
        return gradient, np.repeat(curvature, sizes)

    def _cosine_and_norm(self, scores: Floats) -> tuple[Floats, Floats]:
        norm = np.sqrt(_list_sums(scores * scores, self.offsets))
        norm[norm < _SMALLEST_NORM] = 0.0
        product = _list_sums(scores * self.direction, self.offsets)
        return np.divide(product, norm, out=np.zeros_like(norm), where=norm > 0.0), norm


class ConsistentCosMART(CosMART):
    """(1 - cos(scores, g)) times the norm of g.

    The cosine does not depend on the length of g. The factor makes the loss consistent: up to a constant
    the loss is |s / |s| - g|^2 / 2, so the best scores point to the mean of g, not to that of G / norm(G).
    """

    name: ClassVar[str] = "c-cosmart"

    @classmethod
    def gains_of(cls, labels: Floats, offsets: IntArray) -> Floats:
        return normalised_gains_of(labels, offsets, cls.name)

    @staticmethod
    def importance(norm: Floats) -> Floats:
        return norm


class KLMART(ContextObjective):
    """KL(softmax(G) | softmax(scores)) of each list: the best scores sort by the mean of softmax(G)."""

    name: ClassVar[str] = "klmart"

    def __init__(self, labels: Floats, offsets: IntArray, weights: Floats) -> None:
        super().__init__(labels, offsets, weights)
        self.contexts = contexts_of_whole_lists(offsets)
        wanted = self.wanted(labels, offsets)
        mass = _list_sums(wanted, offsets)
        self.scale, self.target = weights * mass, self.row_weights * wanted
        share = wanted / np.repeat(np.where(mass > 0.0, mass, 1.0), np.diff(offsets))
        # The part of the divergence that the scores do not change; shares of 0 add nothing.
        self.least = float(np.sum(self.target * np.log(np.where(share > 0.0, share, 1.0))))

    @classmethod
    def wanted(cls, labels: Floats, offsets: IntArray) -> Floats:
        """The share of the list's mass that each item should get."""
        gains = gains_of(labels, cls.name)
        sizes = np.diff(offsets)
        e = np.exp(gains - np.repeat(_list_peaks(gains, offsets), sizes))
        return np.asarray(e / np.repeat(_list_sums(e, offsets), sizes))

    def value(self, scores: Floats) -> float:
        return super().value(scores) + self.least

    def derivatives(self, scores: Floats) -> tuple[Floats, Floats]:
        """The gradient and the exact second derivative, mass * p (1 - p) with p = softmax(scores)."""
        pulls = self._values_and_pulls(scores)[1]
        scale = np.repeat(self.scale, np.diff(self.offsets))
        share = np.divide(pulls, scale, out=np.zeros_like(pulls), where=scale > 0.0)
        return pulls - self.target, pulls * np.maximum(1.0 - share, 0.0)


class ConsistentKLMART(KLMART):
    """KL(g / sum(g) | softmax(scores)) times sum(g).

    This is the generalised KL divergence of exp(scores + c) from g, with the best c for each list: a Bregman divergence
    of g, which is least, in the mean, where softmax(scores) is proportional to the mean of g.
    """

    name: ClassVar[str] = "c-klmart"

    @classmethod
    def wanted(cls, labels: Floats, offsets: IntArray) -> Floats:
        return normalised_gains_of(labels, offsets, cls.name)


def _list_peaks(values: Floats, offsets: IntArray) -> Floats:
    """The largest value of each list; 0 where it is empty."""
    peaks = np.zeros(len(offsets) - 1)
    filled = np.diff(offsets) > 0
    if len(values):
        peaks[filled] = np.maximum.reduceat(values, offsets[:-1][filled])
    return peaks


GRADE_OBJECTIVES: dict[str, type[ListObjective]] = {
    objective.name: objective
    for objective in (MART, GainMART, ConsistentMART, CosMART, ConsistentCosMART, KLMART, ConsistentKLMART)
}
