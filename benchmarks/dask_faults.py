"""Kill a Dask worker while BoostedRanker is fitted, many times, and count how often the fit survives.

    python benchmarks/dask_faults.py

To survive, the fit must end with WorkerLostError, or with all its trees if it started without the worker; the model
must be complete or unchanged; and the next fit on the remaining workers must grow the same trees as one machine. Prints
a table and writes results/dask_faults.json.
"""

import os
import random
import signal
import threading
import time

import numpy as np
from distributed import Client, LocalCluster
from measure import report, save
from rich.console import Console

from plackett import BoostedRanker
from plackett.data import make_graded_lists
from plackett.distributed import WorkerLostError

console = Console()
TIMES, ROUNDS, LATEST_KILL = 10, 500, 2.0
DATA = make_graded_lists(100, mean_length=20, n_features=7, random_state=0)[0]


def ranker(rounds: int, leaves: str = "newton") -> BoostedRanker:
    return BoostedRanker("plrank", n_estimators=rounds, num_leaves=4, leaves=leaves, n_jobs=1, progress=False)


def trial(client: Client, leaves: str, delay: float, draw: random.Random, expected: np.ndarray) -> tuple[bool, float]:
    """Kill a worker after `delay` seconds; return whether the fit survived, and how long it took to end after that."""
    worker, process = draw.choice(sorted(client.run(os.getpid).items()))
    threading.Timer(delay, os.kill, (process, signal.SIGKILL)).start()
    model, start = ranker(ROUNDS, leaves), time.monotonic()
    try:
        whole = model.fit(DATA, client=client).booster_.num_trees() == ROUNDS
    except WorkerLostError as error:
        whole = worker in str(error) and not hasattr(model, "booster_")
    seconds = time.monotonic() - start - delay
    again = ranker(3).fit(DATA, client=client).predict(DATA.X)
    return whole and bool(np.allclose(again, expected, atol=1e-9)), seconds


def main() -> None:
    draw, expected = random.Random(1), ranker(3).fit(DATA).predict(DATA.X)  # noqa: S311 (not for secrets)
    outcomes = []
    for number in range(TIMES):
        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
            Client(cluster) as client,
        ):
            ranker(3).fit(DATA, client=client)  # load libraries and compile kernels
            leaves = ("newton", "lightgbm")[number % 2]
            outcomes.append(trial(client, leaves, draw.uniform(0.0, LATEST_KILL), draw, expected))
            console.print(f"{leaves} {outcomes[-1]}")
    survived = sum(survived for survived, _ in outcomes)
    slowest = max(seconds for _, seconds in outcomes)
    row = {"tried": TIMES, "survived": survived, "lost": TIMES - survived, "slowest": round(slowest, 1)}
    columns = ["fault", "trials", "survived", "lost", "longest time to the error (s)"]
    report("Faults on Dask", columns, [["a worker killed (kill -9)", *map(str, row.values())]], console)
    save({"results": row}, "dask_faults", console)


if __name__ == "__main__":
    main()
