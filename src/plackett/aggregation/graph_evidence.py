"""Graphs of preferences as evidence about worths, and their likelihood as a function of scores."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array

from plackett.aggregation.ballot_kernels import GRADIENT, INFORMATION, VALUE
from plackett.aggregation.connectivity import Steps
from plackett.aggregation.evidence import Evidence, weighted_squares
from plackett.aggregation.problem import LARGEST_SPREAD, Derivatives, WorthProblem
from plackett.data.hashes import fingerprint
from plackett.data.preference_graphs import PreferenceGraphs
from plackett.likelihood.partial_orders.order_objective import PartialOrderObjective
from plackett.lists import offsets_from_sizes
from plackett.objective import Floats
from plackett.preferences.graph_fitting import GraphProblem

_COST_PER_ENTRY = 100_000


class _GraphCounts:
    """The number of graphs and their weight, of whatever holds `graphs`."""

    graphs: PreferenceGraphs

    @property
    def ballots(self) -> int:
        return len(self.graphs)

    @property
    def weight(self) -> float:
        return float(self.graphs.weights.sum())


@dataclass
class GraphLikelihood(_GraphCounts):
    """log P of graphs as a function of one score per item. See `plackett.aggregation.problem.WorthLikelihood`."""

    graphs: PreferenceGraphs
    random_state: Any = 0

    ties: ClassVar[int] = 0
    coefficients: ClassVar[int] = 0

    @cached_property
    def objective(self) -> PartialOrderObjective:
        graphs = self.graphs
        return PartialOrderObjective(graphs.edges, graphs.offsets, graphs.weights, random_state=self.random_state)

    @cached_property
    def design(self) -> csr_array:
        """(entries, items): which item each entry is."""
        entries = len(self.graphs.items)
        return csr_array(
            (np.ones(entries), self.graphs.items, np.arange(entries + 1)), (entries, len(self.graphs.names))
        )

    @property
    def is_exact(self) -> bool:
        """Whether no graph has to be sampled."""
        return self.objective.is_exact

    @property
    def items(self) -> int:
        return len(self.graphs.names)

    @property
    def wins(self) -> Floats:
        """The weight of the lists of each item, whose arrival in each of them is latent data of EM."""
        weights = np.repeat(self.graphs.weights, np.diff(self.graphs.offsets))
        return np.bincount(self.graphs.items, weights, minlength=self.items).astype(np.float64)

    @property
    def nbytes(self) -> int:
        return int(self.graphs.edges.nbytes + self.graphs.items.nbytes)

    def free_ties(self) -> list[bool]:
        return []

    def cost(self, order: int) -> int:
        del order
        return _COST_PER_ENTRY * len(self.graphs.items)

    def evaluate(self, parameters: Floats, order: int = GRADIENT) -> Derivatives:
        """Value and gradient, exact or sampled; the information is always sampled."""
        scores = parameters[self.graphs.items]
        found = self.objective.evaluate(scores, derivatives=order > VALUE)
        value = float(found.value @ self.graphs.weights)
        gradient = information = np.empty(0)
        if order > VALUE:
            gradient = np.asarray(self.design.T @ (self.objective.row_weights * found.gradient))
        if order >= INFORMATION:
            information = GraphProblem(self.objective, self.design, np.zeros(self.items)).information(parameters)
        return Derivatives(value, gradient, information)

    def list_gradients(self, parameters: Floats) -> csr_array:
        """The gradient of each list, (lists, items)."""
        found = self.objective.evaluate(parameters[self.graphs.items], value=False)
        shape = len(self.graphs), self.items
        return csr_array((found.gradient, self.graphs.items, self.graphs.offsets), shape)

    def null_value(self) -> float:
        return self.evaluate(np.zeros(self.items), VALUE).value

    def rescaled(self, weight: float, ballots: int) -> GraphLikelihood:
        weights = self.graphs.weights / weight * ballots
        return GraphLikelihood(replace(self.graphs, weights=weights), self.random_state)

    def start_extras(self) -> Floats:
        return np.zeros(0)

    def extra_scale(self) -> Floats:
        return np.zeros(0)

    def allows(self, parameters: Floats) -> bool:
        return bool(np.ptp(parameters) <= LARGEST_SPREAD)


@dataclass(frozen=True)
class GraphEvidence(_GraphCounts, Evidence):
    """Graphs in memory."""

    graphs: PreferenceGraphs
    random_state: Any = 0
    stays: ClassVar[bool] = True
    tied_weight: ClassVar[float] = 0.0
    tied_pairs: ClassVar[float] = 0.0

    @property
    def names(self) -> list[Any]:  # type: ignore[override]
        return list(self.graphs.names)

    @property
    def ranked(self) -> npt.NDArray[np.bool_]:
        return np.bincount(self.graphs.items[self.graphs.edges.reshape(-1)], minlength=len(self.graphs.names)) > 0

    def steps(self) -> Steps:
        better, worse = self.graphs.items[self.graphs.edges].T
        n = len(self.graphs.names)
        return Steps(csr_array(coo_array((np.ones(len(better)), (better, worse)), (n, n))), self.ranked)

    def restrict(self, kept: npt.NDArray[np.bool_]) -> GraphEvidence:
        return replace(self, graphs=informative(_without_items(self.graphs, kept)))

    def hash(self) -> str:
        graphs = self.graphs
        parts = [graphs.edges, graphs.items, graphs.offsets, graphs.weights, str(list(graphs.names))]
        return fingerprint(parts)

    def problem(
        self, X: Floats | None = None, ridge: float = 0.0, prior: float = 0.0, feature_ridge: float = 0.0
    ) -> WorthProblem:
        graphs = _with_ghost(self.graphs, prior) if prior else self.graphs
        return WorthProblem(GraphLikelihood(graphs, self.random_state), X, ridge, feature_ridge)

    def squares(self, parameters: Floats) -> Floats:
        gradients = GraphLikelihood(self.graphs, self.random_state).list_gradients(parameters)
        return weighted_squares(gradients, np.sqrt(self.graphs.weights))


def informative(graphs: PreferenceGraphs) -> PreferenceGraphs:
    """Only lists of weight above 0 that have edges."""
    edges = np.bincount(graphs.lists_of_edges, minlength=len(graphs))
    kept = np.flatnonzero((edges > 0) & (graphs.weights > 0.0))
    return graphs if len(kept) == len(graphs) else graphs.select(kept)


def _without_items(graphs: PreferenceGraphs, kept: npt.NDArray[np.bool_]) -> PreferenceGraphs:
    """The graphs among the kept items.

    No preference between kept items is lost that only a dropped one implies: kept items reach each other, so that an
    item between two of them is reached by and reaches all of them, and is kept as well.
    """
    entries = kept[graphs.items]
    place = np.cumsum(entries) - 1
    number = np.cumsum(kept) - 1
    lists = np.repeat(np.arange(len(graphs)), np.diff(graphs.offsets))[entries]
    return PreferenceGraphs(
        edges=place[graphs.edges[entries[graphs.edges].all(axis=1)]].reshape(-1, 2),
        items=number[graphs.items[entries]],
        offsets=offsets_from_sizes(np.bincount(lists, minlength=len(graphs))),
        weights=graphs.weights,
        names=[name for name, keep in zip(graphs.names, kept, strict=True) if keep],
    )


def _with_ghost(graphs: PreferenceGraphs, prior: float) -> PreferenceGraphs:
    """With one more item, which beats and loses to every other item `prior` times."""
    n, first = len(graphs.names), len(graphs.items)
    added = np.stack([np.arange(n), np.full(n, n)], 1).reshape(-1)
    pairs = first + np.arange(4 * n).reshape(-1, 2)
    pairs[n:] = pairs[n:, ::-1]
    return PreferenceGraphs(
        edges=np.concatenate([graphs.edges, pairs]),
        items=np.concatenate([graphs.items, added, added]),
        offsets=np.concatenate([graphs.offsets, first + 2 * np.arange(1, 2 * n + 1)]),
        weights=np.concatenate([graphs.weights, np.full(2 * n, prior)]),
        names=[*graphs.names, None],
    )
