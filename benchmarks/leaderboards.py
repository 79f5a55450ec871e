"""Leaderboards from comparisons: speed against evalica, choix and arena-rank; CSV; bootstrap; dead heats; memory.

    python benchmarks/leaderboards.py [--votes 1000000] [--arena environment/bin/python]

Prints tables and writes results/leaderboards.json. Every side starts from the same Python lists of names and outcomes
and ends with scores; evalica's and ours must agree. arena-rank pins versions that this project does not have: install
it in a separate environment and pass the Python of that environment as --arena. Both sides then start from a pandas
table in memory and end with ratings and sandwich intervals.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import choix
import evalica
import numpy as np
import pandas as pd
import polars as pl
from measure import report, save
from rich.console import Console

from plackett import RankAggregator
from plackett.data import Ballots, load_comparisons
from plackett.experiments.timing import interleaved

console = Console()
Votes = tuple[list[str], list[str], list[str]]


def simulate(votes: int, items: int, seed: int = 0) -> Votes:
    """Davidson's model with delta = 0.8: the names of both sides, and "left", "right" or "tie"."""
    rng = np.random.default_rng(seed)
    scores = rng.standard_normal(items)
    names = [f"model {k}" for k in range(items)]
    left = rng.integers(0, items, votes)
    right = (left + rng.integers(1, items, votes)) % items
    eta = scores[left] - scores[right]
    weights = np.stack([np.exp(eta / 2), np.full(votes, 0.8), np.exp(-eta / 2)])
    draws = rng.random(votes) * weights.sum(axis=0)
    outcome = (draws > weights[0]).astype(int) + (draws > weights[0] + weights[1])
    words = ["left", "tie", "right"]
    return [names[k] for k in left], [names[k] for k in right], [words[k] for k in outcome]


def ours(votes: Votes, ties: str) -> dict[str, float]:
    data = load_comparisons({"left": votes[0], "right": votes[1], "winner": votes[2]})
    model = RankAggregator(ties=ties).fit(data)
    return dict(zip(model.items_, model.scores_.tolist(), strict=True))


def theirs(votes: Votes, method: str) -> dict[str, float]:
    words = {"left": evalica.Winner.X, "tie": evalica.Winner.Draw, "right": evalica.Winner.Y}
    winners = [words[word] for word in votes[2]]
    function = evalica.newman if method == "newman" else evalica.bradley_terry
    found = np.log(function(votes[0], votes[1], winners).scores)
    return dict(found - found.mean())


def largest_difference(one: dict[str, float], other: dict[str, float]) -> float:
    return max(abs(one[name] - other[name]) for name in one)


def against_evalica(votes: int, items: int) -> dict[str, Any]:
    data = simulate(votes, items)
    results: dict[str, Any] = {"votes": votes, "items": items}
    rows = []
    for ties, method in (("half", "bradley_terry"), ("davidson", "newman")):
        sides = {"plackett": lambda t=ties: ours(data, t), "evalica": lambda m=method: theirs(data, m)}
        gap = largest_difference(sides["plackett"](), sides["evalica"]())
        seconds = interleaved(sides, 5)
        ratio = seconds["evalica"] / seconds["plackett"]
        results[method] = {**seconds, "ratio": ratio, "largest difference of scores": gap}
        rows.append([f'ties="{ties}" against {method}', *(f"{1e3 * s:,.0f}" for s in seconds.values()), f"{ratio:.1f}"])
    report(
        f"{votes:,} votes on {items} items, from strings to scores",
        ["", "plackett (ms)", "evalica (ms)", "ratio"], rows, console,
    )  # fmt: skip
    return results


def against_choix(votes: int, items: int) -> dict[str, Any]:
    """choix takes numbers of winners and losers: ties are left out, and numbers are made before the clock starts."""
    left, right, winner = simulate(votes, items)
    decided = [(a, b) if w == "left" else (b, a) for a, b, w in zip(left, right, winner, strict=True) if w != "tie"]
    numbers = {name: k for k, name in enumerate(sorted(set(left)))}
    pairs = [(numbers[a], numbers[b]) for a, b in decided]
    strict = ([a for a, _ in decided], [b for _, b in decided], ["left"] * len(decided))
    sides: dict[str, Callable[[], Any]] = {
        "plackett": lambda: ours(strict, "half"),
        "choix ilsr_pairwise": lambda: choix.ilsr_pairwise(items, pairs),
    }
    seconds = interleaved(sides, 1)
    ratio = seconds["choix ilsr_pairwise"] / seconds["plackett"]
    rows = [[name, f"{1e3 * s:,.0f}"] for name, s in seconds.items()]
    report(f"{len(pairs):,} decided votes on {items} items", ["", "ms"], rows, console)
    return {**seconds, "ratio": ratio}


_ARENA = """
import json, sys, time
import pandas as pd
from arena_rank.models.bradley_terry import BradleyTerry
from arena_rank.utils.data_utils import PairDataset
frame = pd.read_csv(sys.argv[1])
seconds = []
for _ in range(6):
    start = time.perf_counter()
    data = PairDataset.from_pandas(frame)
    found = BradleyTerry(n_competitors=len(data.competitors)).compute_ratings_and_cis(data)
    seconds.append(time.perf_counter() - start)
numbers = {name: [float(x) for x in found[name]] for name in ("ratings", "variances")}
print(json.dumps({"seconds": min(seconds[1:]), "items": found["competitors"], **numbers}))
"""


def against_arena(python: str, votes: int, items: int) -> dict[str, Any]:
    """The first call of either side compiles and is not counted."""
    left, right, winner = simulate(votes, items)
    words = {"left": "model_a", "tie": "tie", "right": "model_b"}
    frame = pd.DataFrame({"model_a": left, "model_b": right, "winner": [words[word] for word in winner]})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "votes.csv")
        frame.to_csv(path, index=False)
        command = [python, "-c", _ARENA, str(path)]
        found = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - our own code
    theirs = json.loads(found.stdout)

    def ours() -> RankAggregator:
        model = RankAggregator(ties="half", covariance="sandwich").fit(load_comparisons(frame))
        model.ratings()
        return model

    model = ours()
    seconds = {"plackett": interleaved({"plackett": ours}, 5)["plackett"], "arena-rank": theirs["seconds"]}
    order = [model.items_.index(item) for item in theirs["items"]]
    board = model.ratings()
    gap = board.ratings[order] - np.array(theirs["ratings"])
    errors = model.standard_errors_[order] * 400.0 / np.log(10.0)
    ratio = seconds["arena-rank"] / seconds["plackett"]
    quotient = errors / np.sqrt(theirs["variances"])
    rows = [[name, f"{1e3 * s:,.0f}"] for name, s in seconds.items()] + [["ratio", f"{ratio:.1f}"]]
    rows += [["largest difference of ratings", f"{np.ptp(gap) / 2:.2g}"]]
    rows += [["standard errors, ours / theirs", f"{quotient.min():.3f} to {quotient.max():.3f}"]]
    report(f"{votes:,} votes on {items} items: ratings and sandwich intervals", ["", "ms"], rows, console)
    return {**seconds, "ratio": ratio, "largest difference of ratings": float(np.ptp(gap) / 2)}


def csv_files(votes: int, items: int) -> dict[str, Any]:
    """From a CSV file to `Comparisons`: by our own reader, or through a table of another library."""
    left, right, winner = simulate(votes, items)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "votes.csv")
        pd.DataFrame({"left": left, "right": right, "winner": winner}).to_csv(path, index=False)
        sides: dict[str, Callable[[], Any]] = {
            "load_comparisons(path)": lambda: load_comparisons(path),
            "load_comparisons(pandas.read_csv(path))": lambda: load_comparisons(pd.read_csv(path)),
            "load_comparisons(polars.read_csv(path))": lambda: load_comparisons(pl.read_csv(path)),
        }
        seconds = interleaved(sides, 5)
    rows = [[name, f"{1e3 * s:,.0f}"] for name, s in seconds.items()]
    report(f"A CSV file of {votes:,} votes", ["", "ms"], rows, console)
    return seconds


def bootstrap_rounds() -> dict[str, Any]:
    folder = os.environ.get("PLACKETT_DATA") or Path(__file__).parents[2] / "shared" / "data"
    data = load_comparisons(Path(folder, "llmfao", "crowd-comparisons.csv.xz"))
    fitted = RankAggregator(ties="davidson").fit(data)

    def rounds() -> Any:
        return fitted._fit.draw(1000, np.random.default_rng(0))

    def fits() -> None:
        for _ in range(20):
            RankAggregator(ties="davidson").fit(data)

    seconds = interleaved({"1,000 rounds": rounds, "20 fits": fits}, 5)
    ratio = seconds["1,000 rounds"] / seconds["20 fits"]
    rows = [[name, f"{1e3 * s:,.0f}"] for name, s in seconds.items()] + [["ratio", f"{ratio:.2f}"]]
    report("Bootstrap of LLMFAO, 8,931 votes on 59 items", ["", "ms"], rows, console)
    return {**seconds, "ratio": ratio}


def dead_heats(ballots: int = 3000, length: int = 12, items: int = 50) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    scores = np.linspace(-1.0, 1.0, items)
    chosen = rng.random((ballots, items)).argpartition(length, axis=1)[:, :length]
    order = np.take_along_axis(chosen, np.argsort(-(scores[chosen] + rng.gumbel(size=chosen.shape)), axis=1), 1)
    offsets = length * np.arange(ballots + 1)
    names = [str(k) for k in range(items)]
    sides: dict[str, Callable[[], Any]] = {}
    for most in (1, 2, 3):
        labels, run = np.zeros((ballots, length)), np.ones(ballots, int)
        for place in range(1, length):
            tied = (rng.random(ballots) < 0.25) & (run < most)
            run = np.where(tied, run + 1, 1)
            labels[:, place] = labels[:, place - 1] - ~tied
        part = Ballots(order.reshape(-1), labels.reshape(-1), offsets, np.ones(ballots), names)
        sides[f"dead heats of up to {most}" if most > 1 else "strict"] = _fit(part, most)
    seconds = interleaved(sides, 5)
    rows = [[name, f"{1e3 * s:,.1f}", f"{s / seconds['strict']:.2f}"] for name, s in seconds.items()]
    report(f"{ballots:,} lists of {length} out of {items} items: fit and errors", ["", "ms", "ratio"], rows, console)
    return {name: {"seconds": s, "ratio": s / seconds["strict"]} for name, s in seconds.items()}


def _fit(ballots: Ballots, most: int) -> Callable[[], Any]:
    return lambda: RankAggregator(ties="davidson" if most > 1 else None).fit(ballots).standard_errors_


_MEMORY = """
import resource, sys
sys.path.insert(0, {folder!r})
import numpy as np, pandas as pd
from plackett import RankAggregator
from plackett.data import load_comparisons
rng = np.random.default_rng(0)
votes, items = {votes}, 100
names = np.array([f"model {{k}}" for k in range(items)], object)
left = rng.integers(0, items, votes, dtype=np.int32)
right = (left + rng.integers(1, items, votes, dtype=np.int32)) % items
words = np.array(["left", "tie", "right"], object)
frame = {{"left": names[left], "right": names[right], "winner": words[rng.integers(0, 3, votes)]}}
model = RankAggregator(ties="davidson").fit(load_comparisons(frame))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


def memory(votes: int = 10_000_000) -> dict[str, Any]:
    """Peak memory of a separate process, including its tables of strings."""
    code = _MEMORY.format(folder=str(Path(__file__).parent), votes=votes)
    start = time.perf_counter()
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - our own code
    peak = float(found.stdout)
    report("Memory", ["votes", "peak (GiB)"], [[f"{votes:,}", f"{peak:.2f}"]], console)
    return {"votes": votes, "peak GiB": peak, "seconds": time.perf_counter() - start}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--votes", type=int, default=1_000_000)
    parser.add_argument("--arena", help="the Python of an environment that has arena-rank")
    parser.add_argument("--memory-votes", type=int, default=10_000_000)
    options = parser.parse_args()
    results = {
        "evalica": against_evalica(options.votes, 100),
        "choix": against_choix(options.votes // 10, 100),
        "csv": csv_files(options.votes, 100),
        "bootstrap": bootstrap_rounds(),
        "dead heats": dead_heats(),
        "memory": memory(options.memory_votes),
    }
    if options.arena is None:
        console.print("arena-rank was left out: name the Python of an environment that has it with --arena")
    else:
        results["arena-rank"] = against_arena(options.arena, options.votes, 100)
    save(results, "leaderboards", console)


if __name__ == "__main__":
    main()
