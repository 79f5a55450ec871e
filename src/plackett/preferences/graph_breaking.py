"""Graphs of preferences broken into ballots: tiers, pairs, or the pairs of separators."""

from __future__ import annotations

import numpy as np

from plackett.arguments import check_choice, check_kind
from plackett.data import Ballots, PreferenceGraphs
from plackett.lists import IntArray, offsets_from_sizes
from plackett.objective import Floats
from plackett.preferences.graph_tiers import tiers_from_graph


def ballots_from_graphs(graphs: PreferenceGraphs, *, method: str = "tiers", cycles: str = "error") -> Ballots:
    """Break each graph into ballots, for models that take no graphs.

    Args:
        method: "tiers": one ballot per list, the finest tiers that the graph implies (`tiers_from_graph`); edges inside
            tiers are lost. "pairs": one ballot per edge, as if all were independent comparisons. "separators": for each
            item that the graph ranks above or below every other item of its list, one ballot for each item below it,
            of weight 1 / (number of items below it) (Khetan and Oh 2016); estimates from these are consistent where the
            places of such items do not depend on the items.
        cycles: as in `tiers_from_graph`; pairs take any graph.

    >>> graphs = PreferenceGraphs.from_edges([[("a", "b"), ("a", "c")], [("c", "a")]])
    >>> ballots_from_graphs(graphs)
    Ballots(2 ballots cast 2 times, 3 items)
    >>> ballots_from_graphs(graphs, method="pairs")
    Ballots(3 ballots cast 3 times, 3 items)
    """
    check_kind("graphs", graphs, PreferenceGraphs)
    check_choice("method", method, ("tiers", "pairs", "separators"))
    if method == "pairs":
        return _pair_ballots(graphs, graphs.edges, graphs.weights[graphs.lists_of_edges])
    if method == "tiers":
        labels = _tier_labels(graphs, cycles)
        return Ballots(graphs.items, labels, graphs.offsets, graphs.weights, _text_names(graphs))
    return _separator_ballots(graphs, _tier_labels(graphs, cycles))


def _text_names(graphs: PreferenceGraphs) -> list[str]:
    names = [str(name) for name in graphs.names]
    if len(set(names)) < len(names):
        raise ValueError("graphs must have names that differ as text, got names of different types with the same text")
    return names


def _pair_ballots(graphs: PreferenceGraphs, pairs: IntArray, weights: Floats) -> Ballots:
    """A ballot of two entries for each pair (better, worse)."""
    items = graphs.items[pairs].reshape(-1)
    offsets = 2 * np.arange(len(pairs) + 1)
    return Ballots(items, np.tile([1.0, 0.0], len(pairs)), offsets, weights, _text_names(graphs))


def _tier_labels(graphs: PreferenceGraphs, cycles: str) -> Floats:
    """The label of each entry in the finest partition of its list."""
    labels = np.zeros(len(graphs.items))
    lists = graphs.lists_of_edges
    by_list = np.argsort(lists, kind="stable")
    starts = offsets_from_sizes(np.bincount(lists, minlength=len(graphs)))
    for b in range(len(graphs)):
        first, last = int(graphs.offsets[b]), int(graphs.offsets[b + 1])
        edges = graphs.edges[by_list[starts[b] : starts[b + 1]]] - first
        if len(edges):
            labels[first:last] = tiers_from_graph(edges, n_items=last - first, cycles=cycles).labels
    return labels


def _separator_ballots(graphs: PreferenceGraphs, labels: Floats) -> Ballots:
    pairs, weights = [np.empty((0, 2), np.int64)], [np.empty(0)]
    for b in range(len(graphs)):
        first, last = int(graphs.offsets[b]), int(graphs.offsets[b + 1])
        own = labels[first:last]
        tiers, counts = np.unique(own, return_counts=True)
        for label in tiers[counts == 1][::-1]:
            below = first + np.flatnonzero(own < label)
            if len(below):
                separator = first + int(np.argmax(own == label))
                pairs.append(np.stack([np.full(len(below), separator), below], 1))
                weights.append(np.full(len(below), graphs.weights[b] / len(below)))
    return _pair_ballots(graphs, np.concatenate(pairs), np.concatenate(weights))
