"""Cost of exact objectives in boosted trees, compared with LightGBM's own lambdarank.

    python benchmarks/boosted.py

The data have 500,000 rows x 136 features in lists of about 120, with five grades. Trees have 31 leaves, and all sides
use the same LightGBM parameters. Time is the median per iteration, with sides taking turns; memory is what training
adds to a fresh process that holds the data. Prints a table and writes results/boosted.json.
"""

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import lightgbm as lgb
import numpy as np
from measure import report, save
from rich.console import Console

import plackett
from plackett.data import RankingData, make_graded_lists
from plackett.experiments.timing import PeakMemory

console = Console()
ROUNDS, TURNS = 12, 5
SIDES: dict[str, dict[str, Any]] = {
    "lambdarank of LightGBM": {},
    "partition, Newton leaves": {"objective": "partition", "leaves": "newton"},
    "partition, LightGBM's leaves": {"objective": "partition", "leaves": "lightgbm"},
    "partition, top 10, Newton leaves": {"objective": "partition", "leaves": "newton", "top": 10},
    "plrank, 3 permutations": {"objective": "plrank", "n_permutations": 3},
    "rank_xendcg of LightGBM": {"objective": "xendcg"},
}


def make_data() -> RankingData:
    return make_graded_lists(4167, mean_length=120, n_features=136, dtype=np.float32, random_state=0)[0]


def fit(side: str, data: RankingData, rounds: int = ROUNDS) -> list[float]:
    """Return the seconds of each iteration after the first, which also builds the data set."""
    stamps: list[float] = []

    def stamp(_: Any) -> None:
        stamps.append(time.perf_counter())

    if not SIDES[side]:
        params = {"objective": "lambdarank", "num_leaves": 31, "num_threads": plackett.get_num_threads()}
        params |= {"verbose": -1, "metric": "None", "deterministic": True, "force_row_wise": True, "lambda_l2": 1.0}
        dataset = lgb.Dataset(data.X, data.y, group=np.diff(data.offsets), params=params)
        lgb.train(params, dataset, rounds, callbacks=[stamp])
    else:
        plackett.BoostedRanker(n_estimators=rounds, progress=False, **SIDES[side]).fit(data, callbacks=[stamp])
    return np.diff(stamps).tolist()


def memory_of(side: str) -> int:
    """Return the peak number of bytes that training adds."""
    data = make_data()
    fit(side, data.select(range(50)), 2)  # load libraries and compile kernels
    with PeakMemory() as peak:
        fit(side, data, 4)
    return peak.added


def main() -> None:
    console.print(f"{plackett.get_num_threads()} threads\n")
    data = make_data()
    console.print(f"{data!r}\n")
    for side in SIDES:
        fit(side, data.select(range(50)), 2)
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    for _ in range(TURNS):
        for side in SIDES:
            seconds[side] += fit(side, data)
    medians = {side: float(np.median(values)) for side, values in seconds.items()}
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as fresh:
        memory = dict(zip(SIDES, fresh.map(memory_of, SIDES), strict=True))
    base = next(iter(SIDES))
    held = data.X.nbytes
    results = {
        "threads": plackett.get_num_threads(),
        "seconds": medians,
        "bytes": memory,
        "bytes_of_features": held,
        "time_ratio": {side: medians[side] / medians[base] for side in SIDES},
        "memory_ratio": {side: (memory[side] + held) / (memory[base] + held) for side in SIDES},
    }
    report(
        "Time per iteration and memory of training",
        ["", "ms", "relative to lambdarank", "MB added", "including features, relative to lambdarank"],
        [
            [side, f"{medians[side] * 1e3:.0f}", f"{results['time_ratio'][side]:.2f}", f"{memory[side] / 1e6:.0f}",
             f"{results['memory_ratio'][side]:.2f}"]
            for side in SIDES
        ],
        console,
    )  # fmt: skip
    save(results, "boosted", console)


if __name__ == "__main__":
    main()
