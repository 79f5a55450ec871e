"""PLRank: boosted trees that maximise the Plackett-Luce likelihood of orders which sort the labels (docs/plrank.md).

Not to be confused with PL-Rank (Oosterhuis 2021), which estimates policy gradients of stochastic rankings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from plackett.arguments import check_positive, check_top
from plackett.boosted.plrank_kernels import context_curvature, context_derivatives, share_contexts
from plackett.likelihood.core import make_tiers
from plackett.lists import IntArray, offsets_from_sizes
from plackett.objective import Floats, ListObjective
from plackett.threads import run_over_ranges

Int32s = npt.NDArray[np.int32]

# Measured nanoseconds.
_COST_PER_ROW, _COST_PER_CHOICE, _COST_PER_SHARE = 10, 50, 2


def grouped_sums(values: Floats, group: npt.NDArray[np.integer[Any]], groups: int) -> Floats:
    """The sum of the values of each group."""
    return np.bincount(group, values, groups).astype(np.float64)  # without values they would be integers


@dataclass(frozen=True)
class Contexts:
    """The items left in each list after the first choices of some orders; equal sets are stored once.

    Documents are numbered within their list, those that are removed from some context first.

    offsets     the lists
    rows        the row of each document, list by list
    removable   (lists,): how many documents are removed from some context
    places      list b has the places places[b] to places[b+1] - 1, and before each of them a context
    chosen      (orders, places): the document that an order chooses at a place
    owner       (orders, places): the first order with the same context, which stores it
    count       (orders, places): how many orders share the context; 0 except at its owner
    """

    offsets: IntArray
    rows: IntArray
    removable: IntArray
    places: IntArray
    chosen: Int32s
    owner: Int32s
    count: Int32s

    def run(self, call: Callable[[int, int], int], leaves: int = 0) -> None:
        """Run a kernel over all lists."""
        orders = len(self.chosen)
        cost = _COST_PER_ROW * self.offsets + orders * (_COST_PER_CHOICE + _COST_PER_SHARE * leaves) * self.places
        run_over_ranges(call, cost)


def contexts_of_whole_lists(offsets: IntArray) -> Contexts:
    """One context for each list, the list itself."""
    lists, items = len(offsets) - 1, int(offsets[-1])
    places = offsets_from_sizes(np.minimum(np.diff(offsets), 1))
    first = np.zeros((1, int(places[-1])), np.int32)
    return Contexts(offsets, np.arange(items), np.zeros(lists, np.int64), places, first, first, first + np.int32(1))


def contexts_of(chosen_rows: IntArray, places: IntArray, offsets: IntArray) -> Contexts:
    """The contexts of orders that choose the rows `chosen_rows` (orders, places), best first."""
    lists, items = len(offsets) - 1, int(offsets[-1])
    list_of = np.repeat(np.arange(lists), np.diff(offsets))
    is_last = np.zeros(chosen_rows.shape[1], np.bool_)
    is_last[places[1:][np.diff(places) > 0] - 1] = True  # the last choice is removed from no context
    is_removable = np.zeros(items, np.bool_)
    is_removable[chosen_rows[:, ~is_last]] = True
    rows = np.argsort(2 * list_of + ~is_removable, kind="stable")
    number = np.empty(items, np.int32)
    number[rows] = np.arange(items) - offsets[list_of]
    removable = np.bincount(list_of[is_removable], minlength=lists)
    chosen = number[chosen_rows]
    contexts = Contexts(offsets, rows, removable, places, chosen, np.empty_like(chosen), np.zeros_like(chosen))
    contexts.run(
        lambda first, last: share_contexts(first, last, offsets, places, chosen, contexts.owner, contexts.count)
    )
    return contexts


class ContextObjective(ListObjective):
    """A loss made of choices from contexts. For a list with contexts C and scores s it is

        scale * sum_C count_C log sum_{d in C} exp(s_d) - sum_d target_d s_d,   sum_d target_d = scale * sum_C count_C
    """  # fmt: skip

    contexts: Contexts
    scale: Floats
    """One per list, times its weight."""
    target: Floats
    """One per row, times the weight of its list."""

    has_newton_leaves: ClassVar[bool] = True
    is_convex = True

    def value(self, scores: Floats) -> float:
        return float(self._values_and_pulls(scores)[0].sum())

    def leaf_derivatives(self, scores: Floats, leaf: Int32s, leaves: int) -> tuple[Floats, Floats]:
        """The slope is the sum of the gradient; the curvature is scale * sum_C count_C p (1 - p), p = P(leaf | C)."""
        c, parts = self.contexts, dict[int, Floats]()

        def call(first: int, last: int) -> int:
            parts[first] = np.zeros(leaves)
            return int(
                context_curvature(
                    first, last, scores, leaf, self.scale, c.offsets, c.rows, c.removable, c.places, c.chosen, c.owner,
                    c.count, parts[first],
                )
            )  # fmt: skip

        c.run(call, leaves)
        slope = grouped_sums(self.derivatives(scores)[0], leaf, leaves)
        # Added in the order of the lists, whichever part finished first, so that every run gives the same sums.
        return slope, sum((parts[first] for first in sorted(parts)), np.zeros(leaves))

    def _values_and_pulls(self, scores: Floats) -> tuple[Floats, Floats]:
        """The loss of each list, and scale * sum_C count_C p(d | C) of each document."""
        c, values, pulls = self.contexts, np.empty(len(self.weights)), np.empty(len(scores))

        def call(first: int, last: int) -> int:
            return int(
                context_derivatives(
                    first, last, scores, self.target, self.scale, c.offsets, c.rows, c.removable, c.places, c.chosen,
                    c.owner, c.count, values, pulls,
                )
            )  # fmt: skip

        c.run(call)
        return values, pulls


class PLRankObjective(ContextObjective):
    """Minus the mean log-likelihood of orders that sort the labels, ties broken at random once (PLRank, algorithm 1).

    The loss of an order is the sum over its first `top` places of logsumexp(scores in the context) - score of the
    choice. It is the mean over orders, not the sum, so that their number does not change the size of a step. Trees are
    grown on the gradient alone, and the Newton steps of their leaves are exact.

    Args:
        n_permutations: how many orders are drawn for each list.
        top: how many places count; None for all.

    >>> objective = PLRankObjective(np.array([4.0, 0, 4, 4]), np.array([0, 4]), np.ones(1), top=None)
    >>> round(objective.value(np.zeros(4)), 6)  # log 4 + log 3 + log 2, whatever the order
    3.178054
    """

    options: ClassVar[tuple[str, ...]] = ("n_permutations", "random_state", "top")

    def __init__(
        self,
        labels: Floats,
        offsets: IntArray,
        weights: Floats,
        *,
        n_permutations: int = 1,
        top: int | None = 10,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        super().__init__(labels, offsets, weights)
        orders = check_positive("n_permutations", n_permutations)
        chosen_rows, places = _draw_orders(labels, offsets, orders, check_top(top), np.random.default_rng(random_state))
        self.contexts = contexts_of(chosen_rows, places, offsets)
        self.scale = weights / orders
        self.target = self.row_weights * np.bincount(chosen_rows.ravel(), minlength=len(labels)) / orders

    def derivatives(self, scores: Floats) -> tuple[Floats, Floats]:
        """The gradient, and the weight of each row's list: trees then fit the gradient by weighted least squares."""
        return self._values_and_pulls(scores)[1] - self.target, self.row_weights.copy()

    def compression(self, *, include_full: bool = True) -> float:
        """Contexts stored / contexts without sharing; `include_full` counts those before the first place, too."""
        places = self.contexts.places
        counted = np.ones(self.contexts.count.shape[1], np.bool_)
        if not include_full:
            counted[places[:-1][np.diff(places) > 0]] = False
        count = self.contexts.count[:, counted]
        return float((count > 0).mean()) if count.size else 1.0


def _draw_orders(
    labels: Floats, offsets: IntArray, orders: int, top: int, generator: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """Rows (orders, places) by descending label, those of equal label in random order, and the places of each list.

    The last document of a list is not a choice, so it has no place.
    """
    tiers = make_tiers(labels, offsets)
    tier = np.empty(len(labels), np.int64)
    tier[tiers.order] = np.repeat(np.arange(len(tiers.sizes)), tiers.sizes)
    depth = np.clip(np.diff(offsets) - 1, 0, top)
    places = offsets_from_sizes(depth)
    kept = np.arange(places[-1]) + np.repeat(offsets[:-1] - places[:-1], depth)
    drawn = [np.lexsort((generator.random(len(labels)), tier))[kept] for _ in range(orders)]
    return np.stack(drawn), places
