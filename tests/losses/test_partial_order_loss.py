"""Graphs of preferences as containers, and their loss for networks."""

import numpy as np
import pytest

from plackett import partial_order_derivatives
from plackett.data import PreferenceGraphs, load_comparisons, load_preference_graphs
from plackett.errors import DataError
from plackett.likelihood.partial_orders.order_evaluation import Sampler, evaluate_orders
from plackett.likelihood.partial_orders.order_structure import prepare_orders

torch = pytest.importorskip("torch")
losses = pytest.importorskip("plackett.losses")


def some_graphs(count=30, sizes=(3, 5, 8), seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.choice(sizes, count)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    edges = []
    for first, n in zip(offsets[:-1], lengths, strict=True):
        order = first + rng.permutation(n)
        upper, lower = np.triu_indices(n, 1)
        seen = rng.random(len(upper)) < rng.choice([0.2, 0.5, 0.9])
        edges.append(np.stack([order[upper[seen]], order[lower[seen]]], 1))
    return PreferenceGraphs.from_rows(np.concatenate(edges), offsets, weights=rng.integers(1, 4, count)), rng


def test_loss_is_minus_the_log_likelihood():
    graphs, rng = some_graphs()
    scores = rng.normal(size=len(graphs.items))
    expected = partial_order_derivatives(scores, graphs.edges, offsets=graphs.offsets)
    leaf = torch.tensor(scores, requires_grad=True)
    each = losses.partial_order_loss(leaf, graphs, reduction="none")
    np.testing.assert_allclose(each.detach().numpy(), -graphs.weights * expected.value, rtol=0, atol=1e-12)
    mean = losses.partial_order_loss(leaf, graphs)
    assert float(mean.detach()) == pytest.approx(-(graphs.weights @ expected.value) / graphs.weights.sum())
    losses.partial_order_loss(leaf, graphs, reduction="sum").backward()
    weights = np.repeat(graphs.weights, np.diff(graphs.offsets))
    np.testing.assert_allclose(leaf.grad.numpy(), -weights * expected.gradient, rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", ["auto", "down-sets", "sampling"])
def test_selected_lists_are_evaluated_as_if_alone(method):
    graphs, rng = some_graphs(40)
    chosen = rng.permutation(40)[:13]
    part = graphs.select(chosen)
    scores = rng.normal(size=len(part.items))
    selected = prepare_orders(graphs.edges, graphs.offsets, method).select(chosen)
    alone = prepare_orders(part.edges, part.offsets, method)
    found, expected = (
        evaluate_orders(orders, scores, derivatives=True, tol=1e-13, sampler=Sampler(np.random.default_rng(0)))
        for orders in (selected, alone)
    )
    tolerance = 0.5 if method == "sampling" else 1e-12  # blocks may come in another order, with other draws
    np.testing.assert_allclose(found.value, expected.value, rtol=0, atol=tolerance)
    np.testing.assert_allclose(found.gradient, expected.gradient, rtol=0, atol=tolerance)
    np.testing.assert_array_equal(selected.methods, alone.methods)


def test_selected_lists_of_nested_integrals_are_evaluated_as_if_alone():
    diamond = np.array([(0, 1), (0, 2), (1, 3), (2, 3), (4, 3)])
    edges, offsets = np.concatenate([diamond + 5 * b for b in range(4)])[:-1], np.arange(0, 21, 5)
    graphs = PreferenceGraphs.from_rows(edges, offsets)
    scores = np.random.default_rng(4).normal(size=20)
    sampler = Sampler(np.random.default_rng(0))
    expected = partial_order_derivatives(scores, edges, offsets=offsets)
    selected = prepare_orders(graphs.edges, graphs.offsets, "series-parallel").select(np.array([3, 1]))
    rows = np.r_[15:20, 5:10]
    found = evaluate_orders(selected, scores[rows], derivatives=True, tol=1e-13, sampler=sampler)
    np.testing.assert_allclose(found.value, expected.value[[3, 1]], rtol=0, atol=1e-11)
    np.testing.assert_allclose(found.gradient, expected.gradient[rows], rtol=0, atol=1e-11)


def test_batches_of_lists_add_up_to_all():
    graphs, rng = some_graphs(24)
    chains = losses.GraphChains(graphs)
    scores = torch.tensor(rng.normal(size=len(graphs.items)))
    whole = chains.log_likelihood(scores)
    for batch in np.array_split(rng.permutation(24), 5):
        rows = np.concatenate([np.arange(graphs.offsets[b], graphs.offsets[b + 1]) for b in batch])
        part = losses.partial_order_loss(
            scores[rows], chains, lists=batch, reduction="none", weights=np.ones(len(batch))
        )
        np.testing.assert_allclose(part.numpy(), -whole[batch].numpy(), rtol=0, atol=1e-12)


def test_persistent_chains_give_gradients_without_bias():
    graphs, rng = some_graphs(6, sizes=(8,))
    scores = rng.normal(size=len(graphs.items))
    exact = partial_order_derivatives(scores, graphs.edges, offsets=graphs.offsets).gradient
    chains = losses.GraphChains(graphs, samples=16, random_state=1, method="sampling")
    total = np.zeros(len(scores))
    for epoch in range(100):
        for batch in ([0, 3, 5], [1, 2, 4]):
            rows = np.concatenate([np.arange(graphs.offsets[b], graphs.offsets[b + 1]) for b in batch])
            leaf = torch.tensor(scores[rows], requires_grad=True)
            losses.partial_order_loss(leaf, chains, lists=batch, reduction="sum", weights=np.ones(3)).backward()
            total[rows] -= leaf.grad.numpy() * (epoch >= 10) / 90
    assert np.abs(total - exact).max() < 0.1  # 1,440 sweeps
    assert np.linalg.norm(total - exact) < 0.05 * np.linalg.norm(exact)


def test_loss_trains_a_network_on_graphs():
    rng = np.random.default_rng(3)
    truth = rng.normal(size=4)
    X = rng.normal(size=(400, 4))
    times = rng.exponential(np.exp(-(X @ truth)))
    pairs = [(first + a, first + b) for first in range(0, 400, 8) for a in range(8) for b in range(a)]
    edges = [(a, b) if times[a] < times[b] else (b, a) for a, b in pairs if rng.random() < 0.4]
    graphs = losses.GraphChains(PreferenceGraphs.from_rows(edges, np.arange(0, 401, 8)))
    weight = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([weight], max_iter=50)

    def closure():
        optimiser.zero_grad()
        loss = losses.partial_order_loss(torch.tensor(X) @ weight, graphs)
        loss.backward()
        return loss

    optimiser.step(closure)
    assert np.corrcoef(weight.detach().numpy(), truth)[0, 1] > 0.98


def test_containers_from_names_and_tables():
    graphs = PreferenceGraphs.from_edges([[("a", "b"), ("c", "b")], [], [("b", "a")]], weights=[1, 2, 3])
    assert graphs.names == ["a", "b", "c"]
    assert PreferenceGraphs.from_rows([], [0, 2, 3]).edges.shape == (0, 2)
    assert graphs.offsets.tolist() == [0, 3, 3, 5]
    assert [(graphs.names[graphs.items[u]], graphs.names[graphs.items[v]]) for u, v in graphs.edges] == [
        ("a", "b"), ("c", "b"), ("b", "a"),
    ]  # fmt: skip
    table = {"voter": ["x", "y", "x"], "winner": ["a", "b", "c"], "loser": ["b", "a", "b"], "times": [1, 3, 1]}
    same = PreferenceGraphs.from_frame(table, by="voter", better="winner", worse="loser", weight="times")
    assert same.weights.tolist() == [1.0, 3.0]
    assert len(same.edges) == 3
    assert same.select([1]).edges.tolist() == [[1, 0]]
    pandas = pytest.importorskip("pandas")
    again = PreferenceGraphs.from_frame(pandas.DataFrame(table), by="voter", better="winner", worse="loser")
    np.testing.assert_array_equal(again.edges, same.edges)


def test_comparisons_are_grouped_by_voter():
    table = {"left": ["a", "b", "a"], "right": ["b", "c", "c"], "winner": ["left", "right", "tie"], "voter": [7, 7, 9]}
    comparisons = load_comparisons(table, left="left", right="right", winner="winner", cluster="voter")
    graphs = PreferenceGraphs.from_comparisons(comparisons)
    assert len(graphs) == 2
    assert [(graphs.names[graphs.items[u]], graphs.names[graphs.items[v]]) for u, v in graphs.edges] == [
        ("a", "b"), ("c", "b"),
    ]  # fmt: skip
    without = load_comparisons(table, left="left", right="right", winner="winner")
    with pytest.raises(ValueError, match="must have outcomes and a cluster"):
        PreferenceGraphs.from_comparisons(without)


def test_files_of_graphs(tmp_path):
    path = tmp_path / "edges.csv"
    path.write_text("loser,winner,voter,weight\nb,a,1,2\na,b,2,1\n")
    graphs = load_preference_graphs(path)
    assert graphs.weights.tolist() == [2.0, 1.0]
    assert [graphs.names[graphs.items[u]] for u in graphs.edges[:, 0]] == ["a", "b"]
    for text, message in (
        ("better,worse\na,b\n", "the first line must name the columns"),
        ("list,better,worse\n1,a\n", "expected 3 cells"),
        ("list,better,worse\n", "no preferences"),
        ("list,better,worse,weight\n1,a,b,much\n", "a weight must be a number"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            load_preference_graphs(path)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PreferenceGraphs.from_edges([["ab"]]), r"pairs \(better, worse\), got 'ab' in list 0"),
        (lambda: PreferenceGraphs.from_edges([[("a", None)]]), "must not hold missing names"),
        (lambda: PreferenceGraphs.from_edges([[("a", "b")]], names=["a"]), "only members of names, got 'b'"),
        (lambda: PreferenceGraphs.from_rows([(0, 5)], [0, 3]), "edges must be from 0 to 2"),
        (lambda: PreferenceGraphs.from_rows([(0, 2)], [0, 2, 3]), "entries of the same list"),
        (lambda: PreferenceGraphs.from_rows([(0, 1)], [0, 2], weights=[-1.0]), "weights must hold one finite number"),
        (lambda: PreferenceGraphs.from_frame({"list": [1], "better": ["a"]}), "table must have the column 'worse'"),
        (lambda: PreferenceGraphs.from_rows([(0, 1)], [0, 2]).select([1]), "lists must be from 0 to 0"),
        (
            lambda: losses.partial_order_loss(torch.zeros(3), PreferenceGraphs.from_rows([(0, 1)], [0, 2])),
            "scores must hold one number for each of 2 items",
        ),
        (lambda: losses.partial_order_loss(torch.zeros(3), [(0, 1)]), "graphs must be PreferenceGraphs or GraphChains"),
    ],
)
def test_bad_graphs_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
