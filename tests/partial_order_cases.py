"""Random graphs of preferences, and their probabilities by enumeration of all orders."""

import itertools
from functools import cache

import numpy as np

from plackett.data import PreferenceGraphs


def random_graph(rng, items, share):
    """Each pair of a random order with the same probability."""
    return pairs_of_order(rng, rng.permutation(items), share)


def pairs_of_order(rng, order, share):
    """Edges: each pair of the order with the same probability."""
    first, second = np.triu_indices(len(order), 1)
    seen = rng.random(len(first)) < share
    return np.stack([order[first[seen]], order[second[seen]]], 1)


def observed_graphs(rng, worths, lists, share):
    """Graphs of random pairs of orders drawn from the model, all over the same items."""
    orders = (np.argsort(-(worths + rng.gumbel(size=len(worths)))) for _ in range(lists))
    graphs = [pairs_of_order(rng, order, share) for order in orders]
    return PreferenceGraphs.from_edges(graphs, names=list(range(len(worths))))


def many_graphs(rng, count, sizes, spread=1.0):
    """Scores, edges and offsets of lists with random graphs from sparse to dense."""
    lengths = rng.choice(sizes, count)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    graphs = [random_graph(rng, n, rng.choice([0.1, 0.2, 0.35, 0.5, 0.8])) for n in lengths]
    edges = np.concatenate([graph + first for graph, first in zip(graphs, offsets[:-1], strict=True)])
    return rng.normal(0.0, spread, offsets[-1]), edges, offsets


@cache
def orders_of(items):
    return np.array(list(itertools.permutations(range(items))))


def enumerated(scores, edges):
    """log P and its gradient, summed over all orders that agree with the graph."""
    orders = orders_of(len(scores))
    places = np.argsort(orders, axis=1)
    agree = np.all([places[:, a] < places[:, b] for a, b in edges], axis=0) if len(edges) else slice(None)
    orders = orders[agree]
    worths = np.exp(scores)[orders]
    rest = np.cumsum(worths[:, ::-1], axis=1)[:, ::-1]
    probability = np.prod(worths / rest, axis=1)
    by_place = 1.0 - worths * np.cumsum(1.0 / rest, axis=1)
    gradient = np.zeros(len(scores))
    np.add.at(gradient, orders, probability[:, None] * by_place)
    return np.log(probability.sum()), gradient / probability.sum()


def all_enumerated(scores, edges, offsets):
    values, gradients = [], []
    for first, last in itertools.pairwise(offsets):
        inside = (edges[:, 0] >= first) & (edges[:, 0] < last)
        value, gradient = enumerated(scores[first:last], edges[inside] - first)
        values.append(value)
        gradients.append(gradient)
    return np.array(values), np.concatenate(gradients)


def random_series_parallel(rng, items, in_series):
    """All pairs that are known in a random order built from orders in series and in parallel."""
    if len(items) == 1:
        return []
    cut = int(rng.integers(1, len(items)))
    upper, lower = items[:cut], items[cut:]
    between = [(a, b) for a in upper for b in lower] if in_series else []
    return [*between, *(pair for part in (upper, lower) for pair in random_series_parallel(rng, part, not in_series))]
