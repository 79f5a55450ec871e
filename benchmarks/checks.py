"""What the checks of files and arguments cost: reading and predicting, against another version of the package.

    python benchmarks/checks.py --before FOLDER

FOLDER is a checkout of the version to compare with. The two versions take turns, each in a process of its own with one
thread, and the best time of each counts. Prints a table and writes results/checks.json.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROWS, FEATURES, LENGTH = 60_000, 20, 20
TURNS, REPEATS = 4, 15


def measure(folder: Path) -> dict[str, float]:
    """The shortest of several times of each task, in seconds."""
    import numpy as np
    from scipy.sparse import random_array

    from plackett import BoostedRanker, ExtremeClassifier, LinearRanker, NeuralRanker
    from plackett.data import (
        RankingData,
        dump_letor,
        dump_parquet,
        dump_xmc,
        load_letor,
        load_parquet,
        load_xmc,
        make_multilabel,
    )

    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((ROWS, FEATURES)), rng.integers(0, 5, ROWS)
    qid = np.repeat(np.arange(ROWS // LENGTH), LENGTH)
    letor, parquet, xmc = (folder / name for name in ("lists.txt", "lists.parquet", "labels.txt"))
    if not xmc.exists():
        data = RankingData(X, y, qid, np.arange(0, ROWS + 1, LENGTH))
        dump_letor(data, letor)
        dump_parquet(data, parquet)
        dump_xmc(make_multilabel(4000, 5000, 1000, labels_per_row=5, features_per_row=80, random_state=0), xmc)
    labels = load_xmc(xmc)
    sparse = random_array((ROWS, 2000), density=0.01, format="csr", rng=rng)
    trees = BoostedRanker(n_estimators=20, progress=False, n_jobs=1).fit(X, y, qid=qid)
    linear, on_sparse = LinearRanker().fit(X, y, qid=qid), LinearRanker().fit(sparse, y, qid=qid)
    network = NeuralRanker(hidden_sizes=(32,), epochs=1, progress=False).fit(X, y, qid=qid)
    plain: dict[str, Any] = {"skip": None} if "skip" in ExtremeClassifier().get_params() else {}
    tagger = ExtremeClassifier(hidden_sizes=(64,), epochs=1, progress=False, scaling="norm", **plain).fit(labels)
    tasks: dict[str, Callable[[], Any]] = {
        "load_letor": lambda: load_letor(letor),
        "load_parquet": lambda: load_parquet(parquet),
        "load_xmc": lambda: load_xmc(xmc),
        "BoostedRanker.predict": lambda: trees.predict(X),
        "LinearRanker.predict": lambda: linear.predict(X),
        "LinearRanker.predict, sparse": lambda: on_sparse.predict(sparse),
        "NeuralRanker.predict": lambda: network.predict(X),
        "ExtremeClassifier.predict_top": lambda: tagger.predict_top(labels.X, 5),
    }
    return {name: _shortest(task) for name, task in tasks.items()}


def _shortest(task: Callable[[], Any]) -> float:
    task()
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        task()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the version to compare with")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        print(json.dumps(measure(options.measure)))
        return
    from measure import report, save
    from rich.console import Console

    console = Console()
    sides = {"before": options.before / "src", "now": Path(__file__).parents[1] / "src"}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--before", str(options.before), "--measure", folder]
        for turn in range(TURNS):
            for name in sorted(sides, reverse=bool(turn % 2)):
                threads = {"OMP_NUM_THREADS": "1", "PLACKETT_NUM_THREADS": "1", "PYTHONPATH": str(sides[name])}
                run = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | threads)  # noqa: S603 - our own code
                found[name].append(json.loads(run.stdout.splitlines()[-1]))
    best = {name: {task: min(run[task] for run in runs) for task in runs[0]} for name, runs in found.items()}
    ratios = {task: best["now"][task] / seconds for task, seconds in best["before"].items()}
    rows = [[t, *(f"{1e3 * best[side][t]:.2f}" for side in sides), f"{ratio:.3f}"] for t, ratio in ratios.items()]
    report("Reading and predicting", ["", *(f"{side} (ms)" for side in sides), "ratio"], rows, console)
    save({"seconds": best, "ratios": ratios}, "checks", console)


if __name__ == "__main__":
    main()
