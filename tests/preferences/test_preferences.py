"""Tiers from preference graphs against the transitive closure and enumeration of all partitions."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array, csr_array, csr_matrix

import plackett
from plackett.data import Ballots
from plackett.preferences import GraphTiers, ballots_from_tiers, tiers_from_graph

MODES = ("partition", "chain")


@st.composite
def acyclic_graphs(draw: Any, most: int = 8) -> tuple[int, list[tuple[int, int]]]:
    """A number of items and edges in any order, some repeated, often dense enough to have tiers."""
    n = draw(st.integers(1, most))
    ranking = draw(st.permutations(range(n)))
    pairs = [(ranking[i], ranking[j]) for i, j in itertools.combinations(range(n), 2)]
    density = draw(st.sampled_from([2, 5, 9, 10]))
    present = draw(st.lists(st.integers(1, 10), min_size=len(pairs), max_size=len(pairs)))
    chosen = [pair for pair, number in zip(pairs, present, strict=True) if number <= density]
    again = draw(st.lists(st.sampled_from(chosen), max_size=4)) if chosen else []
    return n, draw(st.permutations(chosen + again))


@st.composite
def tiered_graphs(draw: Any) -> tuple[int, list[tuple[int, int]]]:
    """All edges between the tiers of a partition of up to 8 items, and some within tiers."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4).filter(lambda sizes: sum(sizes) <= 8))
    tier = np.repeat(np.arange(len(sizes)), sizes)
    shuffled = draw(st.permutations(range(len(tier))))
    edges = []
    for i, j in itertools.combinations(range(len(tier)), 2):
        if tier[j] == tier[i] + 1 or draw(st.integers(0, 3)) == 0:
            edges.append((shuffled[i], shuffled[j]))
    return len(tier), draw(st.permutations(edges))


graphs = st.one_of(acyclic_graphs(), tiered_graphs())


def closure(n: int, edges: Any) -> np.ndarray[Any, Any]:
    """reach[a, b] says whether a path leads from a to b (Warshall's algorithm)."""
    reach = np.zeros((n, n), bool)
    for a, b in edges:
        reach[a, b] = True
    for k in range(n):
        reach |= np.outer(reach[:, k], reach[k])
    return reach


def ordered_partitions(items: tuple[int, ...], reach: np.ndarray[Any, Any]) -> list[list[set[int]]]:
    """All ordered partitions in which every pair from different tiers is implied, by trying every first tier."""
    if not items:
        return [[]]
    found = []
    for size in range(1, len(items) + 1):
        for first in itertools.combinations(items, size):
            rest = tuple(i for i in items if i not in first)
            if all(reach[a, b] for a in first for b in rest):
                found += [[set(first), *later] for later in ordered_partitions(rest, reach)]
    return found


def stated_pairs(tiers: list[list[Any]]) -> set[tuple[Any, Any]]:
    return {(a, b) for upper, lower in itertools.combinations(tiers, 2) for a in upper for b in lower}


@given(graphs)
def test_partition_is_the_finest(graph: tuple[int, list[tuple[int, int]]]) -> None:
    n, edges = graph
    reach = closure(n, edges)
    every = ordered_partitions(tuple(range(n)), reach)
    most = max(map(len, every))
    finest = [partition for partition in every if len(partition) == most]
    assert len(finest) == 1
    result = tiers_from_graph(edges, n_items=n)
    assert [set(tier) for tier in result.tiers] == finest[0]
    assert result.labels.tolist() == [
        next(most - 1 - m for m, tier in enumerate(finest[0]) if i in tier) for i in range(n)
    ]


@given(graphs)
def test_chain_is_longest_and_cannot_be_extended(graph: tuple[int, list[tuple[int, int]]]) -> None:
    n, edges = graph
    reach = closure(n, edges)
    chains = [
        kept
        for size in range(1, n + 1)
        for kept in itertools.combinations(range(n), size)
        if all(reach[a, b] or reach[b, a] for a, b in itertools.combinations(kept, 2))
    ]
    tiers = tiers_from_graph(edges, n_items=n, mode="chain").tiers
    assert len(tiers) == max(map(len, chains))  # one item from each tier forms a chain
    assert all(reach[pair] for pair in stated_pairs(tiers))
    for item in set(range(n)).difference(*tiers):
        for m in range(len(tiers)):
            extended = [[*tier, item] if m == k else tier for k, tier in enumerate(tiers)]
            assert not all(reach[pair] for pair in stated_pairs(extended))


@pytest.mark.parametrize("mode", MODES)
@given(graph=graphs)
def test_lost_edges_and_pairs_are_counted(mode: str, graph: tuple[int, list[tuple[int, int]]]) -> None:
    n, edges = graph
    reach = closure(n, edges)
    result = tiers_from_graph(edges, n_items=n, mode=mode, count_pairs=True)
    stated = stated_pairs(result.tiers)
    assert result.edges == len(set(edges))
    assert result.edges_lost == len(set(edges) - stated)
    assert result.pairs == len(stated)
    assert result.pairs_lost == reach.sum() - len(stated)
    assert result.edges_lost_share == result.edges_lost / max(len(set(edges)), 1)
    assert result.pairs_lost_share == result.pairs_lost / max(reach.sum(), 1)
    assert sorted(itertools.chain(result.left_out, *result.tiers)) == list(range(n))
    assert tiers_from_graph(edges, n_items=n, mode=mode).pairs_lost is None


@pytest.mark.parametrize("mode", MODES)
@given(graph=graphs, data=st.data())
def test_order_and_repetition_of_edges_do_not_matter(
    mode: str, graph: tuple[int, list[tuple[int, int]]], data: st.DataObject
) -> None:
    n, edges = graph
    other = data.draw(st.permutations(edges + edges[:3]))
    for cycle in ([], [(a, b) for b, a in edges[:2]]):
        expected = tiers_from_graph(edges + cycle, n_items=n, mode=mode, cycles="merge")
        result = tiers_from_graph(cycle + other, n_items=n, mode=mode, cycles="merge")
        np.testing.assert_array_equal(result.labels, expected.labels)
        assert (result.edges, result.edges_lost) == (expected.edges, expected.edges_lost)


@pytest.mark.parametrize("mode", MODES)
@given(n=st.integers(1, 7), data=st.data())
def test_cycles_are_reported_or_merged(mode: str, n: int, data: st.DataObject) -> None:
    items = st.integers(0, n - 1)
    edges = data.draw(st.lists(st.tuples(items, items), max_size=12))
    reach = closure(n, edges)
    if not np.diag(reach).any():
        assert tiers_from_graph(edges, n_items=n, mode=mode).in_cycles == 0
        return
    with pytest.raises(ValueError, match="must not form a cycle") as error:
        tiers_from_graph(edges, n_items=n, mode=mode)
    shown = [int(name) for name in str(error.value).split("got ")[1].split(";")[0].split(" > ")]
    assert shown[0] == shown[-1]
    assert len(set(shown)) == len(shown) - 1
    assert set(itertools.pairwise(shown)) <= set(edges)

    result = tiers_from_graph(edges, n_items=n, mode=mode, cycles="merge", count_pairs=True)
    together = reach & reach.T
    assert result.in_cycles == (together & ~np.eye(n, dtype=bool)).any(axis=1).sum()
    # Items of a cycle act as one: keep one item of each cycle.
    first = [int(np.argmax(together[i])) if together[i].any() else i for i in range(n)]
    nodes = sorted(set(first))
    between = [(first[a], first[b]) for a, b in edges if first[a] != first[b]]
    alone = tiers_from_graph(between, items=nodes, mode=mode)
    np.testing.assert_array_equal(result.labels, alone.labels[[nodes.index(i) for i in first]])
    stated = stated_pairs(result.tiers)
    assert result.pairs == len(stated)
    assert result.pairs + result.pairs_lost == (reach & ~together).sum()
    assert result.edges_lost == len(set(edges) - stated)


def test_long_cycle_is_abbreviated_in_the_message() -> None:
    ring = np.arange(1000)
    with pytest.raises(ValueError, match=r"got 0 > 1 > .* > 8 > \.\.\. \(991 more\) > 0;"):
        tiers_from_graph((ring, np.roll(ring, -1)))


@pytest.mark.parametrize("mode", MODES)
def test_pairs_of_large_tiers_are_counted(mode: str, rng: np.random.Generator) -> None:
    """Several blocks of 512 items with small and large tiers and cycles, against the closure by matrix products."""
    n = 1500
    edges = np.sort(rng.integers(0, n, (3 * n, 2)), axis=1)
    edges = edges[edges[:, 0] < edges[:, 1]]
    edges = np.concatenate([edges, edges[:2, ::-1], [[0, i] for i in range(1, n)]])
    reach = np.eye(n, dtype=bool)
    reach[edges[:, 0], edges[:, 1]] = True
    while True:
        longer = (reach.astype(np.float32) @ reach.astype(np.float32)) > 0
        if (longer == reach).all():
            break
        reach = longer
    result = tiers_from_graph(edges, mode=mode, cycles="merge", count_pairs=True)
    assert result.in_cycles > 2
    assert result.pairs_lost is not None
    assert result.pairs + result.pairs_lost == (reach & ~reach.T).sum()


def test_known_tiers_are_recovered(rng: np.random.Generator) -> None:
    """Edges between neighbouring tiers of a large known partition, and edges within tiers that do not split them."""
    sizes = rng.integers(1, 30, 400)
    n = sizes.sum()
    tier = rng.permutation(np.repeat(np.arange(400), sizes))
    members = [np.flatnonzero(tier == m) for m in range(400)]
    edges = [np.stack(np.meshgrid(a, b), -1).reshape(-1, 2) for a, b in itertools.pairwise(members)]
    edges += [group[[0, 1]][None] for group in members if len(group) > 2]
    shuffled = rng.permutation(np.concatenate(edges))
    result = tiers_from_graph(shuffled, n_items=n, count_pairs=True)
    assert result.labels.tolist() == (399 - tier).tolist()
    assert result.edges_lost == result.pairs_lost == (sizes > 2).sum()


FORMS = {
    "integer array": lambda e: e,
    "unsigned": lambda e: e.astype(np.uint8),
    "whole floats": lambda e: e.astype(float),
    "in Fortran order": np.asfortranarray,
    "pair of arrays": lambda e: (e[:, 0], e[:, 1]),
    "list of tuples": lambda e: list(map(tuple, e.tolist())),
    "list of arrays": list,
    "generator": lambda e: (pair for pair in e.tolist()),
    "set": lambda e: set(map(tuple, e.tolist())),
    "array of objects": lambda e: e.astype(object),
    "csr": lambda e: csr_array((np.ones(len(e)), e.T), (4, 4)),
    "csr of booleans": lambda e: csr_matrix((np.ones(len(e), bool), e.T), (4, 4)),
    "coo with repeats and zeros": lambda e: coo_array(
        (np.append(np.ones(2 * len(e)), 0.0), np.concatenate([e, e, [[3, 0]]]).T), (4, 4)
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_edges_gives_the_same_tiers(form: str) -> None:
    edges = np.array([[2, 0], [2, 3], [0, 1], [3, 1]])
    result = tiers_from_graph(FORMS[form](edges))
    assert result.tiers == [[2], [0, 3], [1]]
    assert result.labels.tolist() == [1, 0, 2, 1]
    assert result.edges == 4
    assert list(result.names) == [0, 1, 2, 3]


def test_data_frames_are_accepted() -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    columns = {"winner": ["x", "x", "y"], "loser": ["y", "z", "z"]}
    for frame in (pandas.DataFrame(columns), polars.DataFrame(columns)):
        for edges in (frame, (frame["winner"], frame["loser"])):
            assert tiers_from_graph(edges).tiers == [["x"], ["y"], ["z"]]


def test_items_can_have_any_names() -> None:
    edges = [("pear", 3), (3, ("a", "tuple"))]
    result = tiers_from_graph(edges)
    assert result.names == ["pear", 3, ("a", "tuple")]
    assert result.tiers == [["pear"], [3], [("a", "tuple")]]
    text = np.array([["b", "a"], ["c", "a"]])
    assert tiers_from_graph(text).names == ["b", "a", "c"]
    assert tiers_from_graph((text[:, 0], text[:, 1]), items=["a", "b", "c"]).labels.tolist() == [0, 1, 1]
    # Integers are names too: no item 0 is invented, and no table up to the largest integer is allocated.
    assert tiers_from_graph([(2**40, 1), (1, 7)]).names == [1, 7, 2**40]
    assert tiers_from_graph([(2**40, 1), (1, 7)]).labels.tolist() == [1, 0, 2]


def test_items_without_edges_are_included() -> None:
    edges = [("a", "b"), ("b", "c")]
    assert tiers_from_graph(edges, items="abcd").tiers == [["a", "b", "c", "d"]]
    chain = tiers_from_graph(edges, items="abcd", mode="chain")
    assert chain.tiers == [["a"], ["b"], ["c"]]
    assert chain.left_out == ["d"]
    np.testing.assert_array_equal(chain.labels, [2, 1, 0, np.nan])
    assert tiers_from_graph([(0, 1)], n_items=3).tiers == [[0, 1, 2]]
    matrix = csr_array(([1.0], ([0], [1])), (3, 3))
    assert tiers_from_graph(matrix, items=["x", "y", "z"], mode="chain").tiers == [["x"], ["y"]]
    for mode in MODES:
        for empty in ([], np.empty((0, 2)), (np.empty(0), np.empty(0)), csr_array((2, 2))):
            result = tiers_from_graph(empty, n_items=2, mode=mode, count_pairs=True)
            assert result.tiers == [[0, 1]]
            assert (result.edges, result.pairs, result.pairs_lost, result.pairs_lost_share) == (0, 0, 0, 0.0)


def test_repr_reports_what_is_lost() -> None:
    edges = [("a", "b"), ("b", "a"), ("a", "c"), ("c", "d"), ("e", "f")]
    result = tiers_from_graph(edges, mode="chain", cycles="merge", count_pairs=True)
    assert repr(result) == (
        "GraphTiers(4 items in 3 tiers, 2 left out, 2 tied by cycles, 3 of 5 edges lost (60.0%), "
        "1 of 6 pairs lost (16.7%))"
    )


def test_tiers_become_ballots() -> None:
    first = tiers_from_graph([("a", "b"), ("b", "c")], items="abcd", mode="chain")
    second = tiers_from_graph([("e", "a"), ("e", "c")])
    ballots = ballots_from_tiers(iter([first, second]), weights=[2, 1])
    assert ballots.names == ["a", "b", "c", "d", "e"]
    assert ballots.items.tolist() == [0, 1, 2, 4, 0, 2]
    assert ballots.labels.tolist() == [2, 1, 0, 1, 0, 0]
    assert ballots.offsets.tolist() == [0, 3, 6]
    assert ballots.weights.tolist() == [2, 1]
    alone = ballots_from_tiers(tiers_from_graph([(0, 1)]))
    assert isinstance(alone, Ballots)
    assert alone.names == ["0", "1"]
    assert len(ballots_from_tiers([])) == 0


def test_graphs_of_tiers_give_the_worths_of_the_tiers(rng: np.random.Generator) -> None:
    """Edges between neighbouring tiers, with a cycle for each tie, give the same worths as tiered rankings."""
    rankings, voters = [], []
    for _ in range(40):
        order = rng.permutation(list("abcdef")).tolist()
        tiers = [order[:1], order[1:3], order[3:]]
        edges = [pair for upper, lower in itertools.pairwise(tiers) for pair in itertools.product(upper, lower)]
        rankings.append(tiers)
        voters.append(tiers_from_graph([*edges, tiers[1], tiers[1][::-1]], items="abcdef", cycles="merge"))
    expected = plackett.RankAggregator().fit(rankings)
    model = plackett.RankAggregator().fit(ballots_from_tiers(voters))
    assert model.items_ == expected.items_
    np.testing.assert_allclose(model.scores_, expected.scores_, rtol=0, atol=1e-9)


def test_ballots_refuse_inconsistent_arguments() -> None:
    result = tiers_from_graph([(1, "1")])
    with pytest.raises(ValueError, match="names that differ as text"):
        ballots_from_tiers(result)
    with pytest.raises(ValueError, match=r"weights must hold one number for each of the 1 results, got shape \(2,\)"):
        ballots_from_tiers(tiers_from_graph([(0, 1)]), weights=[1, 2])


def test_lossless_tiers_describe_the_same_event_as_the_graph() -> None:
    """If nothing is lost, the likelihood of the tiers is the probability of all orders that agree with the graph."""
    edges = [(0, 2), (0, 3), (1, 2), (1, 3), (2, 4), (3, 4)]
    result = tiers_from_graph(edges, count_pairs=True)
    assert result.pairs_lost == 0
    worths = np.array([1.0, 2.5, 0.7, 0.3, 1.1])
    total = 0.0
    for order in itertools.permutations(range(5)):
        if all(order.index(a) < order.index(b) for a, b in edges):
            total += np.prod([worths[i] / worths[list(order[k:])].sum() for k, i in enumerate(order)])
    value = plackett.partition_log_likelihood(np.log(worths), result.labels)
    np.testing.assert_allclose(np.exp(value), total, rtol=1e-12)


WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "self-loop": ([("a", "b"), ("b", "b")], {}, "edges must not form a cycle, got b > b;"),
    "negative": ([(0, -1)], {}, "edges must hold item numbers of at least 0, got -1"),
    "NaN": (np.array([[0.0, 1.0], [1.0, np.nan]]), {}, r"edges must be finite, got nan at position \(1, 1\)"),
    "NaN in a list": ([(0, 1), (float("nan"), 2)], {}, r"edges must be finite, got nan at position \(1, 0\)"),
    "fractions": ([(0, 0.5)], {}, "edges must hold whole numbers, got float64"),
    "booleans": (np.ones((3, 2), bool), {}, "edges must hold whole numbers, got bool"),
    "huge integers": ([(0, 2**70)], {}, "edges must hold whole numbers"),
    "missing name": ([("a", None)], {}, "edges must not hold missing names, got None"),
    "missing name among items": ([("a", "b")], {"items": ["a", "b", None]}, "items must not hold missing names"),
    "no edges": ([], {}, "edges must hold at least one pair unless items or n_items"),
    "three columns": (np.zeros((4, 3), int), {}, r"edges as an array must have the shape \(edges, 2\), got \(4, 3\)"),
    "flat": (np.arange(4), {}, r"must have the shape \(edges, 2\), got \(4,\)"),
    "unequal sides": ((np.arange(3), np.arange(2)), {}, r"the same length, got shapes \(3,\) and \(2,\)"),
    "triples": ([(0, 1), (0, 1, 2)], {}, r"edges must hold pairs \(preferred, other\), got \(0, 1, 2\) at position 1"),
    "strings": (["ab", "cd"], {}, r"edges must hold pairs \(preferred, other\), got 'ab' at position 0"),
    "single numbers": ([0, 1], {}, "edges must hold pairs"),
    "not iterable": (7, {}, "edges must be an array or an iterable of pairs, got int"),
    "unhashable": ([(["a"], ["b"])], {}, "edges must hold names that can be keys of a dictionary"),
    "not square": (csr_array((2, 3)), {}, r"edges as a sparse matrix must be square.*got \(2, 3\)"),
    "NaN in a matrix": (csr_array(np.array([[0, np.nan], [0, 0]])), {}, "edges must be finite, got nan"),
    "unknown name": ([("a", "z")], {"items": "ab"}, "edges must name only members of items, got 'z'"),
    "repeated item": ([("a", "b")], {"items": "aba"}, "items must differ from each other, got 'a' twice"),
    "no items": ([("a", "b")], {"items": []}, "items must hold at least one name"),
    "items and n_items": ([(0, 1)], {"items": [0, 1], "n_items": 2}, "at most one of items and n_items"),
    "too few items": ([(0, 2)], {"n_items": 2}, "edges must hold item numbers below n_items, 2, got 2"),
    "n_items for names": ([("a", "b")], {"n_items": 2}, "n_items is for items numbered from 0"),
    "n_items for a matrix": (csr_array((2, 2)), {"n_items": 3}, "items or n_items must agree with the 2 rows"),
    "n_items of zero": ([(0, 1)], {"n_items": 0}, "n_items must be a whole number of at least 1, or None, got 0"),
    "mode": ([(0, 1)], {"mode": "longest"}, 'mode must be "partition" or "chain", got \'longest\''),
    "cycles": ([(0, 1)], {"cycles": "break"}, 'cycles must be "error" or "merge", got \'break\''),
}


@pytest.mark.parametrize("case", WRONG)
def test_bad_input_is_refused(case: str) -> None:
    edges, options, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        tiers_from_graph(edges, **options)


def test_tiers_are_found_for_a_million_edges(rng: np.random.Generator) -> None:
    """A total order of 100,000 items plus random edges that agree with it gives as many tiers as items."""
    n = 100_000
    ranking = rng.permutation(n)
    places = np.sort(rng.integers(0, n, (10**6, 2)), axis=1)
    places = np.concatenate([places[places[:, 0] < places[:, 1]], np.stack([np.arange(n - 1), np.arange(1, n)], 1)])
    result = tiers_from_graph(ranking[rng.permutation(places)])
    assert result.labels[ranking].tolist() == list(range(n - 1, -1, -1))
    assert result.edges_lost == 0
    assert isinstance(result, GraphTiers)
