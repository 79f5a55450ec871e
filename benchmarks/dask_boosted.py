"""BoostedRanker on a Dask cluster of two workers, compared with one machine at the same settings.

    python benchmarks/dask_boosted.py

Uses generated lists, one data set for each of five seeds, and the five folds of LETOR MQ2008, which must be under
$PLACKETT_DATA or ../shared/data. The table shows test NDCG@10 with its standard deviation, the mean difference between
Dask and one machine with its standard error, the largest relative difference of the training objective after the first
tree, and the seconds per fit, with both workers on the same machine. Writes results/dask.json.
"""

import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client, LocalCluster
from measure import report, save
from rich.console import Console

from plackett import BoostedRanker, metrics
from plackett.boosted import make_objective
from plackett.data import RankingData, letor_folds, load_letor, make_graded_lists

console = Console(width=150)
SEEDS, LISTS, ROUNDS, LEAVES = 5, 2000, 30, 15

SETTINGS: list[dict[str, Any]] = [
    {"objective": "partition", "leaves": "lightgbm"},
    {"objective": "partition", "leaves": "newton"},
    {"objective": "plrank", "leaves": "lightgbm"},
    {"objective": "plrank", "leaves": "newton"},
    {"objective": "partition", "leaves": "lightgbm", "subsample": 0.7},
]


def generated(seed: int) -> tuple[RankingData, RankingData]:
    train, _ = make_graded_lists(LISTS, mean_length=20, n_features=14, random_state=seed)
    test, _ = make_graded_lists(LISTS // 2, mean_length=20, n_features=14, random_state=1000 + seed)
    return train, test


def mq2008() -> list[tuple[RankingData, RankingData]]:
    folder = Path(os.environ.get("PLACKETT_DATA", Path(__file__).parents[2] / "shared" / "data")) / "mq2008"
    if not folder.is_dir():
        console.print("MQ2008 not found: set PLACKETT_DATA to the folder with the real data sets")
        return []
    parts = [load_letor(folder / f"S{k}.txt.xz") for k in range(1, 6)]
    return [(fold.train, fold.test) for fold in letor_folds(parts)]


def fit(train: RankingData, seed: int, client: Client | None, rounds: int, **setting: Any) -> tuple[Any, float]:
    model = BoostedRanker(
        n_estimators=rounds, num_leaves=LEAVES, colsample_bytree=0.8, random_state=seed, n_jobs=1, progress=False,
        **setting,
    )  # fmt: skip
    start = time.perf_counter()
    model.fit(train, client=client)
    return model, time.perf_counter() - start


def compare(
    pairs: list[tuple[RankingData, RankingData]], setting: dict[str, Any], client: Client
) -> dict[str, list[float]]:
    """Return the measured numbers by name, one per pair of training and test lists."""
    found: dict[str, list[float]] = {}
    for seed, (train, test) in enumerate(pairs):
        options = {"random_state": seed} if setting["objective"] == "plrank" else {}
        objective = make_objective(setting["objective"], train.y, train.offsets, **options)
        first = []
        for name, where in (("one", None), ("dask", client)):
            model, seconds = fit(train, seed, where, ROUNDS, **setting)
            ndcg = metrics.ndcg(model.predict(test.X), test.y, k=10, offsets=test.offsets)
            first.append(objective.value(model.predict(train.X, num_iteration=1)))
            found.setdefault(f"ndcg@10 {name}", []).append(float(ndcg))
            found.setdefault(f"seconds {name}", []).append(seconds)
        found.setdefault("objective after one tree", []).append(abs(first[1] / first[0] - 1.0))
    return found


def main() -> None:
    results: dict[str, Any] = {}
    rows = []
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        for data, pairs in (("generated", [generated(seed) for seed in range(SEEDS)]), ("MQ2008", mq2008())):
            for setting in SETTINGS if pairs else ():
                found = compare(pairs, setting, client)
                name = ", ".join([data, *(f"{value}" for value in setting.values())])
                results[name] = found
                one, many = np.array(found["ndcg@10 one"]), np.array(found["ndcg@10 dask"])
                rows.append(
                    [
                        name,
                        f"{one.mean():.4f} ± {one.std(ddof=1):.4f}",
                        f"{many.mean():.4f} ± {many.std(ddof=1):.4f}",
                        f"{(many - one).mean():+.4f} ± {(many - one).std(ddof=1) / len(one) ** 0.5:.4f}",
                        f"{max(found['objective after one tree']):.1e}",
                        f"{statistics.median(found['seconds one']):.2f}",
                        f"{statistics.median(found['seconds dask']):.2f}",
                    ]
                )
    columns = ["data, objective, leaves, subsample", "NDCG@10, one", "NDCG@10, Dask", "difference", "objective"]
    report(
        "BoostedRanker on one machine and on two workers", [*columns, "seconds, one", "seconds, Dask"], rows, console
    )
    save({"settings": {"lists": LISTS, "rounds": ROUNDS, "leaves": LEAVES}, "results": results}, "dask", console)


if __name__ == "__main__":
    main()
