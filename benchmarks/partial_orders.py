"""The likelihood of partial orders: its accuracy, its cost, and how well models fitted to graphs recover the truth.

    python benchmarks/partial_orders.py [accuracy | costs | recovery SHARE ...]

Without arguments everything is measured. Prints tables; results/partial_orders.json keeps the parts that were measured
before.
"""

import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measure import exponent, report, save
from rich.console import Console

import plackett
from plackett import RankAggregator, partial_order_derivatives, partition_derivatives
from plackett.data import PreferenceGraphs
from plackett.errors import AccuracyWarning
from plackett.experiments.timing import interleaved
from plackett.preferences import ballots_from_graphs

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from partial_order_cases import enumerated, observed_graphs, random_graph, random_series_parallel

console = Console()
RESULTS = Path(__file__).parent / "results" / "partial_orders.json"

COMPARED = {"forest": 2000, "tiers": 2000, "trees": 2000, "down-sets": 2000, "series-parallel": 2000}  # graphs
SIZES = (10**4, 10**5, 10**6)
CROWNS = (10, 13, 16, 18)  # pairs of items: 2^(pairs + 1) + pairs - 1 down-sets
CHAINS = (5, 8, 11, 14)  # items of each of five chains above one item: (items + 1)^5 + 1 down-sets
DIAMONDS = (2, 4, 8, 16)
FENCES = (8, 16, 32, 64)
SAMPLED_ITEMS = (25, 50, 100, 200)
ITEMS, VOTERS, SHARES, SEEDS = 50, 200, (0.2, 0.4, 0.8), 50
METHODS = ("graph", "tiers", "pairs")
RIDGE = 0.01  # just enough to keep worths finite that broken graphs do not determine
LISTS, LENGTH, RELATIVE_ERROR = 1000, 20, 0.05


# Accuracy


def some_forest(rng: np.random.Generator, items: int) -> Any:
    """Each item below one of those before it, or below none."""
    names = rng.permutation(items)
    parents = [int(rng.integers(-1, i)) for i in range(1, items)]
    return [(names[parent], names[i]) for i, parent in enumerate(parents, 1) if parent >= 0]


def some_tiers(rng: np.random.Generator, items: int) -> Any:
    labels = rng.integers(0, 4, items)
    return np.argwhere(labels[:, None] > labels)


def some_graph(rng: np.random.Generator, items: int) -> Any:
    return random_graph(rng, items, rng.choice([0.1, 0.2, 0.35, 0.5, 0.8]))


GRAPHS: dict[str, tuple[str, Callable[[np.random.Generator, int], Any]]] = {
    "forest": ("auto", some_forest),
    "tiers": ("auto", some_tiers),
    "trees": ("trees", some_graph),
    "series-parallel": (
        "series-parallel",
        lambda rng, items: random_series_parallel(rng, rng.permutation(items).tolist(), bool(rng.integers(2))),
    ),
    "down-sets": ("down-sets", some_graph),
}


def accuracy() -> dict[str, Any]:
    """The largest errors of each exact method against enumeration, over as many graphs as it evaluated."""
    results = {}
    for name, (method, make) in GRAPHS.items():
        rng = np.random.default_rng(0)
        found = {"graphs": 0, "value": 0.0, "gradient": 0.0}
        while found["graphs"] < COMPARED[name]:
            items = int(rng.integers(3, 9))
            scores, edges = rng.normal(0.0, 1.5, items), make(rng, items)
            try:
                result = partial_order_derivatives(scores, edges, method=method)
            except ValueError:  # not a tree
                continue
            if result.method[0] == name:
                value, gradient = enumerated(scores, edges)
                found["graphs"] += 1
                found["value"] = max(found["value"], float(abs(result.value[0] - value)))
                found["gradient"] = max(found["gradient"], float(np.abs(result.gradient - gradient).max()))
        results[name] = found
    return results


def show_accuracy(result: dict[str, Any]) -> None:
    rows = [
        [name, f"{found['graphs']:,}", f"{found['value']:.1e}", f"{found['gradient']:.1e}"]
        for name, found in result.items()
    ]
    report("Largest errors against enumeration, 3 to 8 items", ["method", "graphs", "value", "gradient"], rows, console)


# Cost


def random_forest(items: int, rng: np.random.Generator) -> Any:
    """Each item below one of the items before it, in random numbers."""
    parents = (rng.random(items - 1) * np.arange(1, items)).astype(np.int64)
    return rng.permutation(items)[np.stack([parents, np.arange(1, items)], 1)]


def tiers_of_two(items: int, rng: np.random.Generator) -> Any:
    """All edges from each tier of two items to the next."""
    first = np.arange(0, items - 2, 2)
    edges = np.stack([np.stack([first + a, first + 2 + b], 1) for a in range(2) for b in range(2)], 1).reshape(-1, 2)
    return rng.permutation(items)[edges]


def crown(pairs: int) -> Any:
    """Two rows of items: each upper item is above all lower ones but its own."""
    upper, lower = np.nonzero(~np.eye(pairs, dtype=bool))
    return np.stack([upper, pairs + lower], 1)


def processor_time(sides: dict[str, Callable[[], Any]]) -> dict[str, float]:
    return interleaved(sides, 3, clock=time.process_time)


def linear_costs(name: str, make: Callable[[int, np.random.Generator], Any]) -> dict[str, Any]:
    """Seconds for value and gradient, including the analysis of the graph's structure."""
    rng = np.random.default_rng(0)
    rows = {}
    for items in SIZES:
        edges, scores = make(items, rng), rng.normal(size=items)
        method = str(partial_order_derivatives(scores, edges).method[0])
        seconds = processor_time({"seconds": lambda s=scores, e=edges: partial_order_derivatives(s, e)})["seconds"]
        rows[items] = seconds
    slope = exponent(list(rows), list(rows.values()))
    return {"graphs": name, "method": method, "seconds": rows, "exponent": slope}


def chains(items: int) -> Any:
    """Five chains of so many items, all above one item."""
    places = np.arange(5 * items).reshape(5, items)
    inside = np.stack([places[:, :-1].reshape(-1), places[:, 1:].reshape(-1)], 1)
    return np.concatenate([inside, np.stack([places[:, -1], np.full(5, 5 * items)], 1)])


def diamonds(count: int) -> Any:
    """Diamonds of nine items, one above seven above one, all of them above one more item."""
    diamond = [(0, k) for k in range(1, 8)] + [(k, 8) for k in range(1, 8)]
    last = 9 * count
    return np.array([(9 * d + a, 9 * d + b) for d in range(count) for a, b in diamond] + [
        (9 * d + 8, last) for d in range(count)
    ])  # fmt: skip


def fence(items: int) -> Any:
    """0 > 1 < 2 > 3 < ..."""
    return np.array([(i, i + 1) if i % 2 == 0 else (i + 1, i) for i in range(items - 1)])


def sparse_graph(items: int) -> Any:
    """Each item above about three later ones of a random order."""
    rng = np.random.default_rng(items)
    places = np.sort(rng.integers(0, items, (3 * items, 2)), axis=1)
    return rng.permutation(items)[places[places[:, 0] < places[:, 1]]]


def method_costs(name: str, method: str, sizes: Any, make: Callable[[int], Any], size_of: Any = None) -> dict[str, Any]:
    """Seconds of value and gradient of one method on graphs of a kind, by number of items, or what size_of says."""
    rows = {}
    for size in sizes:
        edges = make(size)
        scores = np.random.default_rng(0).normal(size=int(edges.max()) + 1)

        def run(s: Any = scores, e: Any = edges) -> Any:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", AccuracyWarning)
                return partial_order_derivatives(s, e, method=method, random_state=0)

        rows[len(scores) if size_of is None else size_of(size)] = processor_time({"seconds": run})["seconds"]
    return {"graphs": name, "method": method, "seconds": rows, "exponent": exponent(list(rows), list(rows.values()))}


def sampled_gradient() -> dict[str, Any]:
    """The fewest samples with which the gradient of many lists errs by at most 5%, against the cost of tiers."""
    rng = np.random.default_rng(0)
    first, second = np.triu_indices(LENGTH, 1)
    parts = []
    for b in range(LISTS):
        order = b * LENGTH + rng.permutation(LENGTH)
        seen = rng.random(len(first)) < rng.choice([0.1, 0.2, 0.4])
        parts.append(np.stack([order[first[seen]], order[second[seen]]], 1))
    edges, offsets = np.concatenate(parts), LENGTH * np.arange(LISTS + 1)
    scores, labels = rng.normal(size=LISTS * LENGTH), rng.integers(0, 4, LISTS * LENGTH).astype(float)
    exact = partial_order_derivatives(scores, edges, offsets=offsets, method="exact").gradient
    from plackett.likelihood.partial_orders.order_evaluation import Sampler, evaluate_orders
    from plackett.likelihood.partial_orders.order_structure import prepare_orders

    orders = prepare_orders(edges, offsets, "sampling")

    def sample(samples: int) -> Any:
        sampler = Sampler(np.random.default_rng(1), samples)
        return evaluate_orders(orders, scores, derivatives=True, tol=1e-13, sampler=sampler, value=False).gradient

    samples = 32
    while (error := np.linalg.norm(sample(samples) - exact) / np.linalg.norm(exact)) > RELATIVE_ERROR:
        samples += 32
    seconds = processor_time(
        {
            "sampled": lambda: sample(samples),
            "tiers": lambda: partition_derivatives(scores, labels, offsets=offsets),
        }
    )
    return {"samples": samples, "relative_error": float(error), "seconds": seconds}


def costs() -> dict[str, Any]:
    plackett.set_num_threads(1)
    return {
        "linear": [linear_costs("forest", random_forest), linear_costs("tiers of two", tiers_of_two)],
        "methods": [
            method_costs("crowns", "down-sets", CROWNS, crown, lambda pairs: 2 ** (pairs + 1) + pairs - 1),
            method_costs("five chains", "down-sets", CHAINS, chains, lambda items: (items + 1) ** 5 + 1),
            method_costs("fences", "trees", FENCES, fence),
            method_costs("diamonds", "series-parallel", DIAMONDS, diamonds),
            method_costs("sparse graphs", "sampling", SAMPLED_ITEMS, sparse_graph),
        ],
        "sampled": sampled_gradient(),
    }


def show_costs(result: dict[str, Any]) -> None:
    rows = []
    for one in [*result["linear"], *result["methods"]]:
        seconds = ", ".join(f"{int(size):,}: {value:.4f}" for size, value in one["seconds"].items())
        rows.append([one["graphs"], one["method"], seconds, f"{one['exponent']:.2f}"])
    report(
        "Seconds of value and gradient by the number of items, or of down-sets; one thread, processor time",
        ["graphs", "method", "seconds", "exponent"],
        rows,
        console,
    )
    sampled = result["sampled"]
    ratio = sampled["seconds"]["sampled"] / sampled["seconds"]["tiers"]
    console.print(
        f"{LISTS:,} lists of {LENGTH} items: {sampled['samples']} samples give the gradient to "
        f"{sampled['relative_error']:.1%}, in {ratio:.0f} times the time of the likelihood of tiers.\n"
    )


# Recovery


def simulate(seed: int, share: float) -> tuple[Any, PreferenceGraphs]:
    """Scores uniform over log 10, and for each voter some pairs of an order drawn from them."""
    rng = np.random.default_rng(seed)
    worths = rng.uniform(0.0, np.log(10.0), ITEMS)
    return worths - worths.mean(), observed_graphs(rng, worths, VOTERS, share)


def scores_of(data: Any) -> Any:
    """Scores of all items, 0 for those that the data do not rank; and their standard errors."""
    scores, errors = np.zeros(ITEMS), np.full(ITEMS, np.nan)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = RankAggregator(ridge=RIDGE).fit(data)
            known = [int(name) for name in model.items_]
            scores[known], errors[known] = model.scores_, model.standard_errors_
    except ValueError:  # broken graphs that rank nothing
        pass
    return scores - scores.mean(), errors


def recovery(share: float) -> dict[str, Any]:
    """By method and seed: the mean squared error, and the one that standard errors predict; coverage of the graph's."""
    found: dict[str, Any] = {"predicted": {name: [] for name in METHODS}, "covered": [], "seconds": []}
    found |= {name: [] for name in METHODS}
    for seed in range(SEEDS):
        worths, graphs = simulate(seed, share)
        for name in METHODS:
            start = time.perf_counter()
            scores, errors = scores_of(graphs if name == "graph" else ballots_from_graphs(graphs, method=name))
            if name == "graph":
                found["seconds"].append(time.perf_counter() - start)
                found["covered"].append(float(np.mean(np.abs(scores - worths) < 1.959964 * errors)))
            found[name].append(float(np.mean((scores - worths) ** 2)))
            found["predicted"][name].append(float(np.mean(errors**2)) if np.isfinite(errors).all() else None)
    return found


def show_recovery(result: dict[str, Any]) -> None:
    rows = []
    for share, found in sorted(result.items()):
        graph = np.array(found["graph"])
        cells = [f"{float(share):.0%}", f"{graph.mean():.5f}"]
        for method in METHODS[1:]:
            other = np.array(found[method])
            z = (other - graph).mean() / (other - graph).std(ddof=1) * np.sqrt(SEEDS)
            cells.append(f"{other.mean():.5f}, z = {z:.1f}, worse in {np.mean(other > graph):.0%}")
        rows.append([*cells, f"{np.mean(found['covered']):.1%}", f"{np.median(found['seconds']):.1f}"])
    report(
        f"{ITEMS} items, {VOTERS} voters: mean squared error of log-worths, paired over {SEEDS} seeds",
        ["pairs seen", "graph", "tiers", "pairs", "95% intervals cover", "seconds"],
        rows,
        console,
    )
    for share, found in sorted(result.items()):
        graph, tiers = found["predicted"]["graph"], found["predicted"]["tiers"]
        if None not in tiers:
            ratio = np.array(tiers) / np.array(graph)
            console.print(
                f"{float(share):.0%}: by the observed information, variances of tiers are {ratio.mean():.4f} times "
                f"those of the graph, more with {np.mean(ratio > 1):.0%} of the seeds."
            )


def stored() -> dict[str, Any]:
    """What was measured before."""
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    return {name: results[name] for name in ("accuracy", "costs", "recovery") if name in results}


def main() -> None:
    wanted = sys.argv[1:]
    if not wanted or wanted[0] == "accuracy":
        found = accuracy()
        show_accuracy(found)
        save(stored() | {"accuracy": found}, "partial_orders", console)
    if not wanted or wanted[0] == "costs":
        measured = costs()
        show_costs(measured)
        save(stored() | {"costs": measured}, "partial_orders", console)
    if not wanted or wanted[0] == "recovery":
        for share in [float(word) for word in wanted[1:]] or SHARES:
            found = recovery(share)
            save(stored() | {"recovery": stored().get("recovery", {}) | {str(share): found}}, "partial_orders", console)
        show_recovery(stored()["recovery"])


if __name__ == "__main__":
    main()
