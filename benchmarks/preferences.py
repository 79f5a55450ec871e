"""Rank-breaking: its cost, and how well models fitted to broken graphs recover the truth.

    python benchmarks/preferences.py [recovery]

Prints tables and writes results/preferences.json and results/preferences.png.
"""

import itertools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measure import exponent, report, save
from rich.console import Console

import plackett
from plackett import RankAggregator
from plackett.data import Ballots, PreferenceGraphs
from plackett.experiments.timing import PeakMemory, interleaved
from plackett.preferences import ballots_from_graphs, ballots_from_tiers, tiers_from_graph

console = Console()
Graph = Any  # (edges, 2)
Observation = Callable[[Any, np.random.Generator], Graph]

SIZES = ((10**3, 10**4), (10**4, 10**5), (10**5, 10**6), (10**6, 10**7))  # items, edges
CLOSURE_ITEMS = 3000
ITEMS, REPLICATIONS = 10, 20
VOTERS = (30, 100, 300, 1000)
SEEN = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # below this, hardly any graph has two tiers
VOTERS_OF_SHARES = 300
SAME_SHARE = 0.6
RIDGE = 0.01  # just enough to keep worths finite that the data do not determine


# Cost


def random_graph(items: int, edges: int, rng: np.random.Generator, *, all_tiers: bool = False) -> Graph:
    """Draw random edges that agree with a random order; `all_tiers` also links neighbours, so every item is a tier."""
    places = np.sort(rng.integers(0, items, (edges, 2)), axis=1)
    places = places[places[:, 0] < places[:, 1]]
    if all_tiers:
        places = np.concatenate([places, np.stack([np.arange(items - 1), np.arange(1, items)], 1)])
    return rng.permutation(items)[rng.permutation(places)]


def closure_tiers(edges: Graph, items: int) -> Any:
    """Find tiers the simple way: transitive closure by squaring, then all cuts of the order by descendants."""
    reach = np.eye(items, dtype=bool)
    reach[edges[:, 0], edges[:, 1]] = True
    while True:
        longer = reach.astype(np.float32) @ reach.astype(np.float32) > 0
        if (longer == reach).all():
            break
        reach = longer
    order = np.argsort(-reach.sum(axis=1), kind="stable")
    reach = reach[np.ix_(order, order)]
    first_unreached = np.where(reach.all(axis=1), -1, items - 1 - np.argmin(reach[:, ::-1], axis=1))
    furthest = np.maximum.accumulate(first_unreached)  # a cut at p is valid if the first p items reach all others
    begins = np.concatenate(([True], furthest[:-1] < np.arange(1, items)))
    labels = np.empty(items)
    labels[order] = begins.sum() - np.cumsum(begins)
    return labels


def costs() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    rows = []
    for items, edges in SIZES:
        graph = random_graph(items, edges, rng)
        ordered = random_graph(items, edges, rng, all_tiers=True)
        sides: dict[str, Callable[[], Any]] = {
            "partition": lambda g=graph, n=items: tiers_from_graph(g, n_items=n),
            "partition, all tiers": lambda g=ordered, n=items: tiers_from_graph(g, n_items=n),
            "chain": lambda g=graph, n=items: tiers_from_graph(g, n_items=n, mode="chain"),
        }
        if edges <= 10**6:
            sides["with lost pairs"] = lambda g=graph, n=items: tiers_from_graph(g, n_items=n, count_pairs=True)
        seconds = interleaved(sides, 3)
        with PeakMemory() as peak:
            sides["partition"]()
        rows.append({"items": items, "edges": edges, "seconds": seconds, "bytes": peak.added})
    graph = random_graph(CLOSURE_ITEMS, 10 * CLOSURE_ITEMS, rng, all_tiers=True)
    expected = tiers_from_graph(graph, n_items=CLOSURE_ITEMS).labels
    if not np.array_equal(closure_tiers(graph, CLOSURE_ITEMS), expected):
        raise AssertionError("the closure gives different tiers")
    against_closure = interleaved(
        {
            "plackett": lambda: tiers_from_graph(graph, n_items=CLOSURE_ITEMS),
            "closure in NumPy": lambda: closure_tiers(graph, CLOSURE_ITEMS),
        },
        3,
    )
    slope = exponent([row["edges"] for row in rows[1:]], [row["seconds"]["partition"] for row in rows[1:]])
    return {"sizes": rows, "exponent": slope, "closure": against_closure, "closure_tiers": int(expected.max()) + 1}


def show_costs(result: dict[str, Any]) -> None:
    names = list(result["sizes"][0]["seconds"])
    rows = [
        [f"{row['items']:,}", f"{row['edges']:,}"]
        + [f"{row['seconds'][name]:.4f}" if name in row["seconds"] else "" for name in names]
        + [f"{row['bytes'] / 2**20:,.0f}"]
        for row in result["sizes"]
    ]
    report("Seconds", ["items", "edges", *names, "MiB added"], rows, console)
    console.print(f"From {SIZES[1][1]:,} edges on, time grows as edges^{result['exponent']:.2f}.")
    ratio = result["closure"]["closure in NumPy"] / result["closure"]["plackett"]
    console.print(
        f"{CLOSURE_ITEMS:,} items, {10 * CLOSURE_ITEMS:,} edges, {result['closure_tiers']:,} tiers: the transitive "
        f"closure in NumPy takes {ratio:,.0f} times as long.\n"
    )


def chain_size() -> dict[str, float]:
    """Compare the items in the chain with the largest chain of as many tiers, on random graphs of 12 items."""
    rng = np.random.default_rng(1)
    found, most, equal = 0, 0, 0
    graphs = [
        np.argwhere(np.triu(rng.random((12, 12)) < share, 1)) for share in (0.2, 0.4, 0.6, 0.8) for _ in range(50)
    ]
    for graph in graphs:
        result = tiers_from_graph(graph, n_items=12, mode="chain")
        kept, best = 12 - len(result.left_out), _largest_chain(graph, len(result.tiers))
        found, most, equal = found + kept, most + best, equal + (kept == best)
    return {"share_of_most": found / most, "share_at_most": equal / len(graphs)}


def _largest_chain(graph: Graph, tiers: int) -> int:
    """Try every set of items of each depth after every set of the previous depth."""
    edges = set(map(tuple, graph.tolist()))
    depth = [0] * 12
    for a, b in sorted(edges):
        depth[b] = max(depth[b], depth[a] + 1)
    most: dict[tuple[int, ...], int] = {(): 0}
    for level in range(tiers):
        items = [i for i in range(12) if depth[i] == level]
        sets = itertools.chain.from_iterable(itertools.combinations(items, k) for k in range(1, len(items) + 1))
        longer = {}
        for tier in sets:
            fitting = [n for above, n in most.items() if all((a, b) in edges for a in above for b in tier)]
            if fitting:
                longer[tier] = len(tier) + max(fitting)
        most = longer
    return max(most.values())


# Recovery


def draw_orders(worths: Any, voters: int, rng: np.random.Generator) -> Any:
    """Draw orders of all items, best first, (voters, items)."""
    return np.argsort(-(worths + rng.gumbel(size=(voters, len(worths)))), axis=1)


def tiers_and_more(order: Any, rng: np.random.Generator) -> Graph:
    """Observe the order as four tiers cut at random places, plus 30% of the pairs inside tiers."""
    cuts = np.sort(rng.choice(np.arange(1, len(order)), 3, replace=False))
    tier = np.searchsorted(cuts, np.arange(len(order)), side="right")
    first, second = np.triu_indices(len(order), 1)
    seen = (tier[first] != tier[second]) | (rng.random(len(first)) < 0.3)
    return np.stack([order[first[seen]], order[second[seen]]], 1)


def some_pairs(share: float) -> Observation:
    """Observe each pair of the order with the same probability."""

    def observe(order: Any, rng: np.random.Generator) -> Graph:
        first, second = np.triu_indices(len(order), 1)
        seen = rng.random(len(first)) < share
        return np.stack([order[first[seen]], order[second[seen]]], 1)

    return observe


def same_pairs(order: Any, _: np.random.Generator) -> Graph:
    """Observe the order of a set of pairs that is the same for all voters."""
    compared = np.triu(np.random.default_rng(0).random((ITEMS, ITEMS)) < SAME_SHARE, 1)
    pairs = np.stack([order[places] for places in np.triu_indices(len(order), 1)], 1)
    return pairs[(compared | compared.T)[pairs[:, 0], pairs[:, 1]]]


def fit_tiers(graphs: list[Graph], mode: str) -> Any:
    ballots = ballots_from_tiers([tiers_from_graph(graph, n_items=ITEMS, mode=mode) for graph in graphs])
    return RankAggregator(ridge=RIDGE).fit(ballots).scores_


def fit_pairs(graphs: list[Graph], implied: bool) -> Any:
    wins = np.zeros((ITEMS, ITEMS))
    for graph in graphs:
        reach = np.zeros((ITEMS, ITEMS), bool)
        reach[graph[:, 0], graph[:, 1]] = True
        if implied:
            for k in range(ITEMS):
                reach |= np.outer(reach[:, k], reach[k])
        wins += reach
    pairs = np.argwhere(wins)
    offsets = 2 * np.arange(len(pairs) + 1)
    labels = np.tile([1.0, 0.0], len(pairs))
    ballots = Ballots(pairs.reshape(-1), labels, offsets, wins[wins > 0], [str(i) for i in range(ITEMS)])
    return RankAggregator(ridge=RIDGE).fit(ballots).scores_


def fit_graphs(graphs: list[Graph]) -> Any:
    return RankAggregator(ridge=RIDGE).fit(PreferenceGraphs.from_edges(graphs, names=range(ITEMS))).scores_


def fit_separators(graphs: list[Graph]) -> Any:
    """Scores are 0 for items that no separator is compared with."""
    scores = np.zeros(ITEMS)
    ballots = ballots_from_graphs(PreferenceGraphs.from_edges(graphs, names=range(ITEMS)), method="separators")
    if len(ballots.weights):
        model = RankAggregator(ridge=RIDGE).fit(ballots)
        scores[[int(name) for name in model.items_]] = model.scores_
    return scores - scores.mean()


METHODS: dict[str, Callable[[list[Graph]], Any]] = {
    "graph, its own likelihood": fit_graphs,
    "finest partition, exact likelihood": lambda graphs: fit_tiers(graphs, "partition"),
    "longest chain, exact likelihood": lambda graphs: fit_tiers(graphs, "chain"),
    "edges as pairwise comparisons": lambda graphs: fit_pairs(graphs, implied=False),
    "implied pairs as pairwise comparisons": lambda graphs: fit_pairs(graphs, implied=True),
    "pairs of separators, weighted": fit_separators,
}


def errors(observe: Observation, voters: int) -> dict[str, list[float]]:
    """Return the mean squared error of the log-worths for each method and replication."""
    found: dict[str, list[float]] = {name: [] for name in METHODS}
    for seed in range(REPLICATIONS):
        rng = np.random.default_rng(seed)
        worths = rng.uniform(0.0, np.log(ITEMS), ITEMS)
        worths -= worths.mean()
        graphs = [observe(order, rng) for order in draw_orders(worths, voters, rng)]
        for name, fit in METHODS.items():
            found[name].append(float(np.mean((fit(graphs) - worths) ** 2)))
    return found


def recovery() -> dict[str, Any]:
    return {
        "tiers": {n: errors(tiers_and_more, n) for n in VOTERS},
        "shares": {share: errors(some_pairs(share), VOTERS_OF_SHARES) for share in SEEN},
        "same": {n: errors(same_pairs, n) for n in VOTERS},
    }


PARTS = {
    "tiers": ("Four tiers, and 30% of the pairs inside", "voters"),
    "shares": ("Random pairs", f"share of observed pairs, {VOTERS_OF_SHARES} voters"),
    "same": (f"The same {SAME_SHARE:.0%} of pairs for all voters", "voters"),
}


def show_recovery(result: dict[str, Any]) -> None:
    for part, (title, column) in PARTS.items():
        rows = [[str(x), *(_mean_and_error(values) for values in found.values())] for x, found in result[part].items()]
        report(f"{title}: mean squared error of log-worths", [column, *METHODS], rows, console)


def _mean_and_error(values: list[float]) -> str:
    return f"{np.mean(values):.4f} ± {np.std(values, ddof=1) / np.sqrt(len(values)):.4f}"


def plot(result: dict[str, Any], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 3, sharey=True)
    for axis, (part, (title, column)) in zip(axes, PARTS.items(), strict=True):
        for name, colour, marker in zip(
            METHODS, ("#009e73", "#0072b2", "#56b4e9", "#d55e00", "#e69f00", "#cc79a7"), "^oosDv", strict=True
        ):
            values = np.array([found[name] for found in result[part].values()])
            spread = 2 * values.std(axis=1, ddof=1) / np.sqrt(REPLICATIONS)
            style = {"color": colour, "marker": marker, "markersize": 4, "capsize": 2}
            axis.errorbar(
                list(result[part]), values.mean(axis=1), spread, label=name if axis is axes[0] else None, **style
            )
        axis.set(yscale="log", xscale="log" if column == "voters" else "linear", xlabel=column)
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("mean squared error of log-worths")
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, dpi=150)


def main() -> None:
    start = time.perf_counter()
    results: dict[str, Any] = {"threads": plackett.get_num_threads()}
    if "recovery" in sys.argv[1:]:  # keep the other parts of the last run
        results |= json.loads((Path(__file__).parent / "results" / "preferences.json").read_text())
        results.pop("versions", None)
    else:
        results["costs"] = costs()
        show_costs(results["costs"])
        results["chain"] = chain_size()
        console.print(
            f"In random graphs of 12 items, chains hold {results['chain']['share_of_most']:.1%} of the items they "
            f"could, and all of them in {results['chain']['share_at_most']:.1%} of the graphs.\n"
        )
    results["recovery"] = recovery()
    show_recovery(results["recovery"])
    plot(results["recovery"], Path(__file__).parent / "results" / "preferences.png")
    save(results, "preferences", console)
    console.print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
