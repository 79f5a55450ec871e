"""Figure 2: time and memory of training steps by number of items.

The model has N free parameters and takes 1,000 steps of stochastic gradient descent on batches of 20 rankings, as in
figure 1. After a warm-up we time rounds of 20 steps and scale their median to 1,000 steps. Times are processor time in
one thread. Because processor speed varies, rounds alternate with rounds of PL-LB, and methods are compared by their
ratio to PL-LB. Memory is the peak that the steps add to the process; each method runs in its own process.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np

from plackett.experiments.datasets import DataFolder
from plackett.experiments.framework import Cell, Claim, Experiment, Findings, Results
from plackett.experiments.pl_partition.utilities import METHODS as CLOSED
from plackett.experiments.pl_partition.utilities import PAIRWISE, BatchLoss, draw_rankings
from plackett.report.page import Axis, Column, LinePlot, Section, Series, Table

MIDPOINT = "PL-Partition, midpoint rule"
METHODS = {**CLOSED, MIDPOINT: "midpoint"}
STEPS = 1_000
REMARKS = (
    "The paper measures time and CUDA memory on an Nvidia V100; we measure one processor thread and the memory of its "
    "process. Orderings and slopes are comparable, seconds and bytes are not.",
    "PL-Partition uses the adaptive rule; the paper's own rule is the midpoint rule with T = 10,000 and c = 5.",
    "Our pairwise losses loop over the pairs of a list without storing them. Their memory therefore grows like that of "
    "the other losses, and RankNet does not run out of memory at N = 100,000.",
    "Values below 0.01 MB are shown as 0.01 MB.",
)
_CLOSE = 1.25
_MEGABYTE = 1e6
_LEAST = 0.01  # megabytes; smaller readings are noise


def cells(configuration: Mapping[str, Any], _: DataFolder) -> list[Cell]:
    return [
        {"items": items, "method": method} for items in configuration["items"] for method in configuration["methods"]
    ]


def run(configuration: Mapping[str, Any], cell: Cell, _: DataFolder) -> dict[str, Any]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
        return alone.submit(measure, dict(configuration), cell).result()


def measure(configuration: Mapping[str, Any], cell: Cell) -> dict[str, Any]:
    """Measure seconds per 1,000 steps, their ratio to the reference in alternating rounds, and megabytes added."""
    from statistics import median

    from plackett.experiments.determinism import one_thread
    from plackett.experiments.timing import PeakMemory

    with one_thread():
        _steps(configuration, 30, cell["method"])(1)  # load libraries and compile kernels
        steps = _steps(configuration, cell["items"], cell["method"])
        with PeakMemory() as peak:
            steps(configuration["warm_up"])
        reference = _steps(configuration, cell["items"], configuration["reference"])
        reference(configuration["warm_up"])
        rounds: list[tuple[float, float]] = []
        while sum(own for own, _ in rounds) < configuration["seconds"]:
            rounds.append((_seconds(steps, configuration["steps"]), _seconds(reference, configuration["steps"])))
    seconds = median(own for own, _ in rounds) / configuration["steps"] * STEPS
    return {
        "seconds": float(f"{seconds:.4g}"),
        "over_reference": float(f"{median(own / other for own, other in rounds):.4g}"),
        "megabytes": float(f"{max(peak.added / _MEGABYTE, _LEAST):.4g}"),
    }


def _seconds(steps: Any, number: int) -> float:
    import time

    start = time.process_time()
    steps(number)
    return time.process_time() - start


def _steps(configuration: Mapping[str, Any], items: int, method: str) -> Any:
    """Return a function that takes a given number of steps."""
    import torch

    batch = configuration["batch"]
    count = batch * configuration["batches"]
    rankings, _ = draw_rankings(
        {"items": items, "rankings": count, "seed": 0}, configuration["tiers"], configuration["top"]
    )
    objective = BatchLoss(METHODS[method], rankings)
    batches = np.arange(count).reshape(-1, batch)
    parameters = torch.zeros(items, requires_grad=True)
    optimiser = torch.optim.SGD([parameters], 0.1)

    def take(number: int) -> None:
        for step in range(number):
            optimiser.zero_grad()
            objective(parameters, batches[step % len(batches)]).backward()
            optimiser.step()

    return take


def find(configuration: Mapping[str, Any], results: Results) -> Findings:
    rows = [{**cell, **result} for cell, result in results]
    table = Table(
        ["items N", "method", Column("time", "s"), Column("time / PL-LB", format=".3g"), Column("memory", "MB")],
        [[row["items"], row["method"], row["seconds"], row["over_reference"], row["megabytes"]] for row in rows],
    )
    plots = [
        _plot(rows, "seconds", Axis("time of 1,000 steps", "s", log=True)),
        _plot(rows, "megabytes", Axis("memory", "MB", log=True)),
    ]
    return Findings(
        [Section("Time and memory of training steps", [*plots, table])],
        _claims(rows, configuration["top"]),
        rows,
        remarks=REMARKS,
    )


def _plot(rows: list[dict[str, Any]], what: str, axis: Axis) -> LinePlot:
    methods = dict.fromkeys(row["method"] for row in rows)
    own = {method: [row for row in rows if row["method"] == method] for method in methods}
    series = [
        Series(method, [row[what] for row in found], [row["items"] for row in found]) for method, found in own.items()
    ]
    return LinePlot(series, Axis("items N", log=True), axis, f"{axis.title.capitalize()} by number of items")


def _claims(rows: list[dict[str, Any]], top: int) -> list[Claim]:
    """Compare sizes N above the limit on the upper tiers; below it, the tiers grow along with N."""
    seconds = {(row["method"], row["items"]): row["seconds"] for row in rows if row["items"] > top}
    sizes = sorted({n for _, n in seconds})
    first, last = sizes[0], sizes[-1]
    ratios = {(row["method"], row["items"]): row["over_reference"] for row in rows}

    def listed(values: list[float]) -> str:
        return ", ".join(f"{value:.3g} at N = {n:,}" for n, value in zip(sizes, values, strict=True))

    growth = {method: seconds[method, last] / seconds[method, first] for method, n in seconds if n == first}
    pairs = [growth[method] for method in growth if method in PAIRWISE]
    lists = [growth[method] for method in growth if method not in (*PAIRWISE, MIDPOINT)]
    ratio = [ratios["PL-Partition", n] for n in sizes]
    claims = [
        Claim(
            "The time of PL-Partition approaches that of PL-LB as N grows",
            ratio[-1] < ratio[0] and ratio[-1] < _CLOSE,
            f"time of PL-Partition divided by time of PL-LB: {listed(ratio)}",
        ),
        Claim(
            "The time of pairwise methods grows faster with N than that of listwise methods",
            min(pairs) > max(lists),
            f"growth factor from N = {first:,} to {last:,}: "
            + ", ".join(f"{m} {value:.3g}" for m, value in growth.items()),
        ),
    ]
    if MIDPOINT in growth:
        slower = [ratios[MIDPOINT, n] / ratios["PL-Partition", n] for n in sizes]
        evidence = f"time of the midpoint rule divided by time of the adaptive rule: {listed(slower)}"
        claims.append(Claim("The adaptive rule is faster than the midpoint rule", min(slower) > 1.0, evidence))
    return claims


EXPERIMENT = Experiment(
    name="pl-partition-figure-2",
    paper="Ma et al. (2021), figure 2",
    title="Time and memory of training steps",
    configurations={
        "quick": {
            "items": [400, 4_000], "methods": ["PL-Partition", "PL-LB", "RankNet"], "batch": 20, "batches": 2,
            "tiers": 4, "top": 200, "reference": "PL-LB", "warm_up": 2, "steps": 20, "seconds": 0.5,
        },
        "full": {
            "items": [100, 1_000, 10_000, 100_000], "methods": list(METHODS), "batch": 20, "batches": 5, "tiers": 4,
            "top": 500, "reference": "PL-LB", "warm_up": 2, "steps": 20, "seconds": 2.0,
        },
    },
    cells=cells,
    run=run,
    find=find,
    minutes={"quick": 1, "full": 8},
)  # fmt: skip
