"""RankAggregator: speed compared with choix, tied versus strict ballots, and scaling.

    python benchmarks/aggregation.py

Prints tables and writes results/aggregation.json. The sushi data must be under $PLACKETT_DATA or ../shared/data.
Each library starts from its own input format, and both must reach the same likelihood. A fit checks the ballots, merges
equal ones, checks that the maximum exists and finds it; fits with standard errors are timed separately. choix takes up
to a minute and runs once.
"""

import math
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import choix
import numpy as np
from measure import exponent, report, save
from rich.console import Console

import plackett
from plackett import RankAggregator
from plackett.data import Ballots, load_preflib
from plackett.data.preflib import tiers_of
from plackett.experiments.timing import PeakMemory, interleaved

console = Console()
SUSHI = "preflib/00014-00000001.soc"
CHOIX = {"ilsr_rankings": choix.ilsr_rankings, "mm_rankings": choix.mm_rankings, "opt_rankings": choix.opt_rankings}


def simulate(ballots: int, length: int, items: int, tiers: list[int] | None = None, seed: int = 0) -> Ballots:
    """Simulate rankings of `length` random items out of `items`, optionally reduced to tiers of the given sizes."""
    rng = np.random.default_rng(seed)
    scores = rng.uniform(0.0, math.log(items), items)
    ranked = np.empty((ballots, length), np.int64)
    for first in range(0, ballots, 10_000):
        part = ranked[first : first + 10_000]
        chosen = rng.random((len(part), items)).argpartition(length - 1, axis=1)[:, :length]
        part[:] = np.take_along_axis(chosen, np.argsort(-(scores[chosen] + rng.gumbel(size=chosen.shape)), axis=1), 1)
    sizes = [1] * length if tiers is None else tiers
    labels = np.tile(np.repeat(np.arange(len(sizes), 0, -1.0), sizes), ballots)
    names = [str(i) for i in range(items)]
    return Ballots(ranked.reshape(-1), labels, length * np.arange(ballots + 1), np.ones(ballots), names)


def as_lists(ballots: Ballots) -> list[list[int]]:
    lists = [[item for (item,) in tiers] for tiers in tiers_of(ballots)]
    return [ranking for ranking, weight in zip(lists, ballots.weights, strict=True) for _ in range(int(weight))]


def check_likelihood(ballots: Ballots, scores: Any, name: str) -> None:
    """Check that the log-likelihood is within 1e-6 nats per ballot of the maximum, which no other point exceeds."""
    model = RankAggregator().fit(ballots)
    model_value, model.scores_ = model.log_likelihood_, scores - scores.mean()
    value = float(model.predict_log_proba(ballots) @ ballots.weights)
    if not -1e-6 * len(ballots) < value - model_value < 1e-6:
        raise AssertionError(f"{name} reaches a log-likelihood of {value}, plackett {model_value}")


def against_choix(ballots: Ballots, peers: Iterable[str]) -> dict[str, float]:
    sides = {
        "plackett": lambda: RankAggregator().fit(ballots),
        "plackett, with standard errors": lambda: RankAggregator().fit(ballots).standard_errors_,
    }
    seconds = interleaved(sides, 5)
    items, lists = len(ballots.names), as_lists(ballots)
    for name in peers:
        start = time.perf_counter()
        found = CHOIX[name](items, lists)
        seconds[name] = time.perf_counter() - start
        check_likelihood(ballots, found, name)
    return seconds


def show_choix(title: str, seconds: dict[str, float]) -> dict[str, float]:
    ratios = {name: s / seconds["plackett"] for name, s in seconds.items()}
    rows = [[name, f"{s * 1e3:,.1f}", f"{ratios[name]:,.1f}"] for name, s in seconds.items()]
    report(title, ["", "ms", "relative to plackett"], rows, console)
    return ratios


def sushi() -> dict[str, Any]:
    folder = os.environ.get("PLACKETT_DATA") or Path(__file__).parents[2] / "shared" / "data"
    seconds = against_choix(load_preflib(Path(folder, SUSHI)), CHOIX)
    return {"seconds": seconds, "times_plackett": show_choix("Sushi: 5,000 orders of 10 items", seconds)}


def large() -> dict[str, Any]:
    """Time all choix methods on a few of the rankings, and the fastest of them on all."""
    part = against_choix(simulate(500, 20, 200), CHOIX)
    show_choix("500 rankings of 20 out of 200 items", part)
    best = min(CHOIX, key=lambda name: part[name])
    seconds = against_choix(simulate(100_000, 20, 200), [best])
    ratios = show_choix("100,000 rankings of 20 out of 200 items, with the fastest choix method", seconds)
    return {"part_seconds": part, "seconds": seconds, "times_plackett": ratios}


TIERS = {
    "strict": [1] * 20,
    "tiers of 2": [2] * 10,
    "tiers of 3": [3] * 6 + [2],
    "tiers of 4": [4] * 5,
    "tiers of 5": [5] * 4,
    "tiers of 10": [10] * 2,
    "tiers of 1, 3, 6, 10": [1, 3, 6, 10],
}


def ties() -> dict[str, Any]:
    ballots = {name: simulate(10_000, 20, 200, sizes) for name, sizes in TIERS.items()}
    sides = {name: lambda b=b: RankAggregator().fit(b) for name, b in ballots.items()}  # type: ignore[misc]
    seconds = interleaved(sides, 3)
    ratios = {name: s / seconds["strict"] for name, s in seconds.items()}
    rows = [[name, f"{s * 1e3:,.1f}", f"{ratios[name]:.1f}"] for name, s in seconds.items()]
    report("10,000 ballots of 20 out of 200 items", ["", "ms", "relative to strict"], rows, console)
    return {"seconds": seconds, "times_strict": ratios}


def solvers() -> dict[str, float]:
    ballots = simulate(20_000, 10, 100, [1, 2, 3, 4])
    names = ("newton", "lbfgs", "mm")
    sides = {name: lambda name=name: RankAggregator(solver=name).fit(ballots) for name in names}  # type: ignore[misc]
    seconds = interleaved(sides, 3)
    rows = [[name, f"{s * 1e3:,.1f}"] for name, s in seconds.items()]
    report("20,000 ballots in tiers of 1, 2, 3 and 4 out of 100 items", ["solver", "ms"], rows, console)
    return seconds


def growth() -> dict[str, Any]:
    sizes = [25_000, 50_000, 100_000, 200_000]
    result: dict[str, Any] = {"ballots": sizes}
    for name, tiers in (("strict", None), ("tiers of 1, 2, 3, 4", [1, 2, 3, 4])):
        ballots = {str(n): simulate(n, 10, 100, tiers) for n in sizes}
        sides = {n: lambda b=b: RankAggregator().fit(b) for n, b in ballots.items()}  # type: ignore[misc]
        seconds = list(interleaved(sides, 3).values())
        result[name] = {"seconds": seconds, "exponent": exponent(sizes, seconds)}
    rows = [
        [name, *(f"{s:.3f}" for s in result[name]["seconds"]), f"{result[name]['exponent']:.2f}"]
        for name in list(result)[1:]
    ]
    report("Seconds by number of ballots (10 out of 100 items)", ["", *map(str, sizes), "exponent"], rows, console)
    return result


def million() -> dict[str, Any]:
    result = {}
    for name, tiers in (("strict", None), ("tiers of 1, 2, 3, 4", [1, 2, 3, 4])):
        with PeakMemory() as making:
            ballots = simulate(1_000_000, 10, 100, tiers)
        start = time.perf_counter()
        with PeakMemory() as fitting:
            model = RankAggregator().fit(ballots)
            _ = model.standard_errors_
        seconds = time.perf_counter() - start
        held = sum(np.asarray(x).nbytes for x in (ballots.items, ballots.labels, ballots.offsets, ballots.weights))
        result[name] = {"seconds": seconds, "ballots_gib": held / 2**30, "fit_gib": fitting.added / 2**30}
        del ballots, model, making
    rows = [
        [name, f"{r['seconds']:.1f}", f"{r['ballots_gib']:.2f}", f"{r['fit_gib']:.2f}"] for name, r in result.items()
    ]
    columns = ["", "seconds", "ballots (GiB)", "added by the fit (GiB)"]
    report("A million ballots of 10 out of 100 items, with standard errors", columns, rows, console)
    return result


def main() -> None:
    console.print(f"{plackett.get_num_threads()} threads\n")
    results: dict[str, Any] = {"threads": plackett.get_num_threads()}
    for part in (sushi, large, ties, solvers, growth, million):
        results[part.__name__] = part()
    save(results, "aggregation", console)


if __name__ == "__main__":
    main()
