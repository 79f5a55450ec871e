"""Figures 1 and 3: how well each method recovers item utilities from partitioned rankings.

AdaGrad (learning rate 0.1) trains N free parameters, one per item, on batches of 20 rankings. A fifth of the rankings
is held out for early stopping by the method's own loss. The error is the mean squared difference between the softmax of
the parameters and the true worths. PL-TopK is an oracle: it knows the order within the upper tiers.

The paper gives neither n and N of each point nor the batch size and stopping rule of this experiment. We use the
batches of 20 from figure 2 and points on the axes that the figure shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from plackett.experiments.datasets import DataFolder
from plackett.experiments.framework import Cell, Claim, Experiment, Findings, Results
from plackett.report.page import Axis, LinePlot, Section, Series, Table

METHODS = {
    "PL-Partition": "partition",
    "PL-LB": "lower_bound",
    "AttRank": "attrank",
    "RankNet": "ranknet",
    "RankSVM": "ranksvm",
    "PL-TopK": "topk",
}
ORACLE = "PL-TopK"
PAIRWISE = ("RankNet", "RankSVM")
REMARKS = (
    "The paper gives neither n and N of each point nor the number of steps. We take at most 1,000 steps, the number "
    "that the paper times in figure 2.",
    "If an item is in the upper tiers only a few times, sampling noise exceeds the bias of PL-LB, which pulls worths "
    "together like a penalty. There PL-LB is as good as the exact likelihood or better, and also better than the "
    "oracle.",
    "The number of pairs in RankNet and RankSVM grows with N times the size of the upper tiers. At N = 10,000 they "
    "have two seeds at one point. They are left out where the table has no row for them.",
)


def cells(configuration: Mapping[str, Any], _: DataFolder) -> list[Cell]:
    return [
        {"items": items, "rankings": rankings, "method": method, "seed": seed}
        for items, rankings in configuration["points"]
        for method in METHODS
        for seed in range(_seeds(configuration, items, rankings, method))
    ]


def _seeds(configuration: Mapping[str, Any], items: int, rankings: int, method: str) -> int:
    """Return the number of seeds. Slow pairwise methods get fewer at some points and none at others."""
    seeds: int = configuration["seeds"]
    fewer = [count for *point, count in configuration["fewer_pairs"] if point == [items, rankings]]
    return fewer[0] if fewer and method in PAIRWISE else seeds


def run(configuration: Mapping[str, Any], cell: Cell, _: DataFolder) -> dict[str, Any]:
    import torch

    rankings, worths = draw_rankings(cell, configuration["tiers"], configuration["top"])
    objective = BatchLoss(METHODS[cell["method"]], rankings)
    held = max(1, cell["rankings"] // 5)
    parameters = torch.zeros(cell["items"], requires_grad=True)
    optimiser = torch.optim.Adagrad([parameters], 0.1)
    generator = np.random.default_rng([cell["seed"], 1])
    best, best_loss, stale, step = parameters.detach().clone(), float("inf"), 0, 0
    while stale < configuration["patience"] and step < configuration["steps"]:
        for batch in np.array_split(
            held + generator.permutation(cell["rankings"] - held),
            max(1, (cell["rankings"] - held) // configuration["batch"]),
        ):
            optimiser.zero_grad()
            objective(parameters, batch).backward()
            optimiser.step()
            step += 1
        with torch.no_grad():
            loss = float(objective(parameters, np.arange(held)))
        stale += 1
        if loss < best_loss:
            best, best_loss, stale = parameters.detach().clone(), loss, 0
    error = torch.softmax(best.double(), 0).numpy() - worths
    return {"mse": float(np.mean(error**2)), "steps": step}


class Ranking:
    """The items in the upper tiers of a ranking, best first, with their tiers; all other items form the last tier."""

    def __init__(self, order: np.ndarray, tiers: np.ndarray, items: int) -> None:
        self.order, self.tiers, self.items = order, tiers, items


def draw_rankings(cell: Cell, tiers: int, top: int) -> tuple[list[Ranking], np.ndarray]:
    """Draw rankings as `plackett.data.make_partitions` does, but keep their order for the oracle."""
    generator = np.random.default_rng(cell["seed"])
    items = cell["items"]
    worths = np.exp(generator.uniform(0.0, np.log(items), items))
    most = min(top, items - 1)
    found = []
    for _ in range(cell["rankings"]):
        times = generator.standard_exponential(items) / worths
        first = np.argpartition(times, most - 1)[:most]
        first = first[np.argsort(times[first])]
        ends = np.sort(generator.permutation(most)[: tiers - 1]) + 1
        order = first[: ends[-1]]
        found.append(Ranking(order, tiers - 1 - np.searchsorted(ends, np.arange(len(order)), "right"), items))
    return found, worths / worths.sum()


class BatchLoss:
    """The mean loss of a method over a batch of rankings; "midpoint" is PL-Partition with the paper's own rule."""

    def __init__(self, name: str, rankings: list[Ranking]) -> None:
        self._name, self._rankings = name, rankings

    def __call__(self, parameters: Any, batch: np.ndarray) -> Any:
        import torch

        from plackett import losses, partition_log_likelihood

        chosen = [self._rankings[number] for number in batch]
        rows = len(chosen)
        if self._name in ("partition", "lower_bound", "topk"):
            indices = np.concatenate([r.order for r in chosen])
            offsets = np.concatenate(([0], np.cumsum([len(r.order) for r in chosen])))
            labels = np.concatenate(
                [-np.arange(len(r.order), dtype=float) if self._name == "topk" else r.tiers for r in chosen]
            )
            loss = losses.sparse_lower_bound_loss if self._name == "lower_bound" else losses.sparse_partition_loss
            return loss(parameters.expand(rows, -1), indices, offsets, labels=labels)
        table = torch.zeros(rows, len(parameters))
        for row, ranking in enumerate(chosen):
            table[row, torch.from_numpy(ranking.order)] = torch.from_numpy(ranking.tiers.astype(np.float32))
        if self._name == "midpoint":
            return -partition_log_likelihood(parameters.expand(rows, -1), table, quadrature="midpoint").mean()
        return losses.get_loss(self._name)(parameters.expand(rows, -1), table)


def find(configuration: Mapping[str, Any], results: Results) -> Findings:
    by: dict[tuple[int, int, str], list[float]] = {}
    for cell, result in results:
        by.setdefault((cell["items"], cell["rankings"], cell["method"]), []).append(result["mse"])
    points = sorted({(items, rankings) for items, rankings, _ in by})
    rows = []
    for items, rankings in points:
        for method in METHODS:
            values = by.get((items, rankings, method))
            if values:
                error = float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
                rows.append(
                    {"items": items, "rankings": rankings, "method": method, "mse": float(np.mean(values)), "se": error}
                )
    plots = [_plot(rows, "items", "rankings", "items N"), _plot(rows, "rankings", "items", "rankings n")]
    table = Table(
        ["items N", "rankings n", "method", "MSE", "standard error"],
        [[row["items"], row["rankings"], row["method"], row["mse"], row["se"]] for row in rows],
    )
    text = "AdaGrad, rate 0.1, batches of 20, early stopping by the method's own loss on a fifth of the rankings."
    section = Section("Error of the estimated utilities", [*(p for group in plots for p in group), table], text)
    return Findings([section], _claim_lowest_error(rows, configuration), rows, remarks=REMARKS)


def _plot(rows: list[dict[str, Any]], along: str, fixed: str, title: str) -> list[LinePlot]:
    """Draw one plot for each value of `fixed` that has several values of `along`."""
    plots = []
    for value in sorted({row[fixed] for row in rows}):
        here = [row for row in rows if row[fixed] == value]
        if len({row[along] for row in here}) < 2:
            continue
        series = []
        for method in METHODS:
            own = sorted((row for row in here if row["method"] == method), key=lambda row: row[along])
            if own:
                error = [row["se"] or 0.0 for row in own]
                mse = [row["mse"] for row in own]
                series.append(
                    Series(
                        method,
                        mse,
                        [row[along] for row in own],
                        [m - e for m, e in zip(mse, error, strict=True)],
                        [m + e for m, e in zip(mse, error, strict=True)],
                    )
                )
        caption = f"{fixed} = {value:,}; bars show standard errors over seeds"
        plots.append(
            LinePlot(series, Axis(title, log=True), Axis("mean squared error", log=True), caption, error_bars=True)
        )
    return plots


def _claim_lowest_error(rows: list[dict[str, Any]], configuration: Mapping[str, Any]) -> list[Claim]:
    """Check the paper's claim where items are seen often enough to be distinguished, and separately where they are not.

    The upper tiers end at the last of tiers - 1 places drawn from those allowed, on average at 1 - 1/tiers of them.
    """
    held: list[str] = []
    failed: list[str] = []
    scarce: list[str] = []
    for items, rankings in sorted({(row["items"], row["rankings"]) for row in rows}):
        here = {r["method"]: r["mse"] for r in rows if (r["items"], r["rankings"]) == (items, rankings)}
        others = {method: mse for method, mse in here.items() if method not in (ORACLE, "PL-Partition")}
        best = min(others, key=lambda method: others[method])
        ratio = f"{best} {others[best] / here['PL-Partition']:.3g} at N = {items:,}, n = {rankings:,}"
        upper = (1.0 - 1.0 / configuration["tiers"]) * min(configuration["top"], items - 1)
        if rankings * upper < configuration["seen"] * items:
            scarce.append(ratio)
        else:
            (held if others[best] > here["PL-Partition"] else failed).append(ratio)
    often = f"where items are in the upper tiers {configuration['seen']} times or more on average"
    relative = "next best method and its error relative to PL-Partition: "
    claims = [
        Claim(
            f"PL-Partition has the lowest error of all methods except the oracle at every (N, n) {often}",
            not failed,
            relative + "; ".join(failed + held),
        )
    ]
    if scarce:
        claims.append(
            Claim(
                "PL-Partition also has the lowest error where items are seen less often",
                all(" 0." not in ratio for ratio in scarce),
                relative + "; ".join(scarce),
            )
        )
    return claims


EXPERIMENT = Experiment(
    name="pl-partition-figure-1",
    paper="Ma et al. (2021), figures 1 and 3",
    title="Utilities recovered from partitioned rankings",
    configurations={
        "quick": {
            "points": [[40, 40], [40, 160], [120, 40]], "fewer_pairs": [], "seeds": 2, "batch": 20, "tiers": 4,
            "top": 500, "patience": 5, "steps": 200, "seen": 10,
        },
        "full": {
            "points": [
                [100, 20], [100, 100], [100, 1_000], [1_000, 20], [1_000, 200], [1_000, 1_000],
                [10_000, 100], [10_000, 1_000], [10_000, 5_000], [100_000, 1_000], [100_000, 5_000],
            ],
            "fewer_pairs": [
                [10_000, 100, 0], [10_000, 1_000, 2], [10_000, 5_000, 0], [100_000, 1_000, 0], [100_000, 5_000, 0],
            ],
            "seeds": 5, "batch": 20, "tiers": 4, "top": 500, "patience": 10, "steps": 1_000, "seen": 10,
        },
    },
    cells=cells,
    run=run,
    find=find,
    minutes={"quick": 1, "full": 45},
)  # fmt: skip
