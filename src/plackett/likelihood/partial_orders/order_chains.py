"""Graphs that are evaluated many times, all lists or some: prepared once, with chains that go on."""

from __future__ import annotations

from typing import Any

import numpy as np

from plackett.arguments import whole_numbers
from plackett.likelihood.partial_orders.order_evaluation import Sampler
from plackett.likelihood.partial_orders.order_likelihood import make_orders
from plackett.likelihood.partial_orders.order_structure import MOST_STATES, PartialOrders, ranges
from plackett.lists import IntArray


class OrderChains:
    """Prepared graphs, and the Gibbs chains of those parts of them that have to be sampled.

    The chains of a list go on from where they were when it was last evaluated. While scores change little in between, a
    few sweeps give a gradient without bias to speak of.

    Args:
        edges, offsets: as in `plackett.partial_order_log_likelihood`.
        method, cycles: as there.
        samples: orders sampled for each part at each evaluation.
        random_state: seed of the samples.
        most_states: down-sets up to which a part is evaluated exactly.
    """

    def __init__(
        self,
        edges: Any,
        offsets: IntArray,
        *,
        method: str = "auto",
        samples: int = 64,
        random_state: int | np.random.Generator | None = None,
        cycles: str = "error",
        most_states: int = MOST_STATES,
    ) -> None:
        self.orders = make_orders(edges, offsets, method=method, cycles=cycles, most_states=most_states)
        self._sampler = Sampler(np.random.default_rng(random_state), samples)
        sampled = self.orders.sampled
        self._chains = np.zeros((self._sampler.groups, sampled.entries), np.int32)
        self._started = np.zeros(len(sampled), np.int64)

    @property
    def offsets(self) -> IntArray:
        return self.orders.offsets

    def start(self, lists: Any = None) -> tuple[PartialOrders, Sampler]:
        """The graphs of the given lists (None: all), with the state of their chains; pass both to `keep` afterwards."""
        if lists is None:
            self._sampler.orders, self._sampler.started = self._chains, self._started
            return self.orders, self._sampler
        chosen = _check_lists(lists, self.orders.lists)
        blocks, entries = self._places(chosen)
        sampler = Sampler(
            self._sampler.rng, self._sampler.samples, orders=self._chains[:, entries], started=self._started[blocks]
        )
        return self.orders.select(chosen), sampler

    def keep(self, lists: Any, sampler: Sampler) -> None:
        """Remember where the chains of these lists have got to."""
        if lists is not None and sampler.orders is not None and sampler.started is not None:
            blocks, entries = self._places(whole_numbers("lists", lists))
            self._chains[:, entries], self._started[blocks] = sampler.orders, sampler.started

    def _places(self, lists: IntArray) -> tuple[IntArray, IntArray]:
        """The sampled blocks of lists, in the order of `PartialOrders.select`, and their entries."""
        sampled = self.orders.sampled
        place = np.full(self.orders.lists, -1, np.int64)
        place[lists] = np.arange(len(lists))
        blocks = np.flatnonzero(place[sampled.lists] >= 0)
        blocks = blocks[np.argsort(place[sampled.lists[blocks]], kind="stable")]
        return blocks, ranges(sampled.starts[:-1][blocks], np.diff(sampled.starts)[blocks])


def _check_lists(lists: Any, count: int) -> IntArray:
    chosen = whole_numbers("lists", lists)
    if chosen.size and (chosen.min() < 0 or chosen.max() >= count):
        raise ValueError(f"lists must be numbers from 0 to {count - 1}, got {chosen.min()} to {chosen.max()}")
    if len(np.unique(chosen)) < len(chosen):
        raise ValueError("lists must differ from each other, got one twice")
    return chosen
