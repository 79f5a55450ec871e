"""Whether the likelihood has a maximum, and which items prevent it.

Take any direction d and move the scores along it without bound. A ballot's probability goes to 0 if an item stands in a
tier above another one with a larger d, and to a positive limit if none does: in the limit the items come in the order
of d, and items with equal d among themselves as before. So the likelihood keeps a maximum in every direction but those
that no ballot contradicts, d_i >= d_j whenever i is in a tier above j. Only constant d are left just when every item
can be reached from every other by steps from an item to one ranked below it: the graph of wins is strongly connected.
(For strict rankings this is Ford's condition of 1957, and assumption 1 of Hunter 2004.) Items of one tier give no step
between each other: their tie is compatible with any difference between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import block_diag, coo_array, csr_array, eye_array
from scipy.sparse.csgraph import breadth_first_order, connected_components

from plackett.aggregation.ballots import Rankings
from plackett.data.containers import rows_of_lists
from plackett.errors import NoMaximumError

_MOST_NAMED = 10

REASONS = {
    "below": "of worth 0, because they beat none of the others",
    "above": "of infinite worth, because none of the others beats them",
    "apart": "not compared with the others",
    "unranked": "on no ballot that ranks anything",
}
"""Why items are outside a ranking, by their relation to it."""


@dataclass(frozen=True)
class Connectivity:
    """The largest strongly connected set of items, and how the others relate to it (all are masks over items).

    above       beat some of it, directly or through others, and are never beaten: worth infinite
    below       the other way round: worth 0
    apart       not compared with it, neither directly nor through others
    unranked    on no ballot that ranks some item above another
    """

    kept: npt.NDArray[np.bool_]
    above: npt.NDArray[np.bool_]
    below: npt.NDArray[np.bool_]
    apart: npt.NDArray[np.bool_]
    unranked: npt.NDArray[np.bool_]

    def left_out(self, names: Sequence[Any]) -> list[Any]:
        return [name for name, kept in zip(names, self.kept, strict=True) if not kept]

    def outside(self, names: Sequence[Any]) -> dict[str, list[Any]]:
        """The items that are not kept, by their relation to the others: a key of `REASONS`."""
        masks = {where: getattr(self, where) for where in REASONS}
        return {where: [names[i] for i in np.flatnonzero(mask).tolist()] for where, mask in masks.items() if mask.any()}

    def error(self, names: Sequence[Any]) -> NoMaximumError:
        """The error to raise if not all items are kept."""
        if self.kept.sum() > 1:
            blamed = describe_outside(self.outside(names))
            reasons = f'There are items {blamed}. Leave them out with on_infinite="drop", or give'
        else:
            reasons = "No two items beat each other, directly or through others. Give"
        return NoMaximumError(
            f"the maximum likelihood estimate does not exist. {reasons} all items a finite worth with prior=0.5",
            self.left_out(names),
        )


def describe_outside(outside: Mapping[str, Sequence[Any]]) -> str:
    """Which items are outside a ranking, and why."""
    return "; ".join(f"{REASONS[where]}: {listing(names)}" for where, names in outside.items())


def listing(names: Sequence[Any]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(map(str, names[:_MOST_NAMED])) + (f" and {more:,} more" if more > 0 else "")


class Steps(NamedTuple):
    """Who is above whom: a graph whose first nodes are the items, and which items some ballot ranks."""

    graph: csr_array
    ranked: npt.NDArray[np.bool_]


def _without_repeats(
    source: npt.NDArray[np.int32], target: npt.NDArray[np.int32], n: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """The same steps, each once if there are many over few items, so that most come many times."""
    if n * n > 4 * len(source):
        return source, target
    table = np.zeros(n * n, bool)
    table[source.astype(np.int64) * n + target] = True
    steps = np.flatnonzero(table)
    return (steps // n).astype(np.int32), (steps % n).astype(np.int32)


def step_graph(source: npt.NDArray[np.int32], target: npt.NDArray[np.int32], n: int) -> csr_array:
    """The graph of steps between n items."""
    source, target = _without_repeats(source, target, n)
    graph = coo_array((np.ones(len(source), np.int8), (source, target)), (n, n)).tocsr()
    graph.data[:] = 1
    return graph


def steps_of(rankings: Rankings) -> Steps:
    """The graph of steps down, from items to items of the tier below, in space linear in the ballots.

    Where one of two neighbouring tiers has several items they are joined through a node of their own in place of all
    pairs.
    """
    n = rankings.count
    sizes = np.diff(rankings.starts)
    upper = np.ones(len(sizes), bool)
    upper[rankings.ballot_tiers[1:] - 1] = False
    upper = np.flatnonzero(upper)
    single = (sizes[upper] == 1) & (sizes[upper + 1] == 1)
    heads = rankings.starts[upper[single]]
    sources, targets = [rankings.items[heads]], [rankings.items[heads + 1]]
    sources[0], targets[0] = _without_repeats(sources[0], targets[0], n)
    joined = upper[~single]
    nodes = (n + np.arange(len(joined))).astype(np.int32)
    for tier, ends, others in ((joined, sources, targets), (joined + 1, targets, sources)):
        ends.append(rankings.items[rows_of_lists(rankings.starts, tier)])
        others.append(np.repeat(nodes, sizes[tier]))
    source, target = np.concatenate(sources), np.concatenate(targets)
    shape = (n + len(joined), n + len(joined))
    graph = coo_array((np.ones(len(source), np.int8), (source, target)), shape).tocsr()
    return Steps(graph, np.bincount(rankings.items, minlength=n) > 0)


def _reachable_items(graph: csr_array, start: int, n: int) -> npt.NDArray[np.bool_]:
    mask = np.zeros(graph.shape[0], bool)
    mask[breadth_first_order(graph, start, directed=True, return_predecessors=False)] = True
    return mask[:n]


def connectivity(rankings: Rankings | Steps) -> Connectivity:
    """How the items are connected by wins, in time linear in the ballots."""
    graph, ranked = steps_of(rankings) if isinstance(rankings, Rankings) else rankings
    n = len(ranked)
    _, component = connected_components(graph, directed=True, connection="strong")
    component = component[:n]
    sizes = np.bincount(component)[component]
    largest = component == component[np.argmax(sizes)]  # of equally large ones, that of the first item
    nothing = np.zeros(n, bool)
    if largest.all():
        return Connectivity(largest, nothing, nothing, nothing, nothing)
    start = int(np.argmax(largest))
    down, up = _reachable_items(graph, start, n), _reachable_items(graph.T.tocsr(), start, n)
    return Connectivity(
        kept=largest,
        above=up & ~largest,
        below=down & ~largest,
        apart=ranked & ~up & ~down,
        unranked=~ranked,
    )


def is_separated(steps: Steps, X: npt.NDArray[np.float64]) -> bool:
    """Whether scores X @ b can grow without bound in a direction that some ballots support and none contradicts.

    A linear programme: among the directions d = X b with |b| <= 1 and d_i >= d_j for every step from i to j, find the
    largest sum of d_i - d_j. It is 0 unless there is such a direction. (Nodes that join tiers have a d of their own.)
    """
    from scipy.optimize import linprog

    edges = steps.graph.tocoo()
    nodes, p = edges.shape[0] - len(steps.ranked), X.shape[1]
    d = coo_array(block_diag((X, eye_array(nodes)))).tocsr() if nodes else csr_array(X)  # (nodes of the graph, b)
    differences = d[edges.row] - d[edges.col]
    bounds = [(-1.0, 1.0)] * p + [(None, None)] * nodes
    gains: Any = differences.sum(axis=0)
    constraints: Any = -differences
    found = linprog(-np.asarray(gains), A_ub=constraints, b_ub=np.zeros(constraints.shape[0]), bounds=bounds)
    scale = float(np.abs(X).max(initial=1.0))
    return found.fun is not None and found.fun < -1e-7 * scale  # the tolerance of the constraints is 1e-7
