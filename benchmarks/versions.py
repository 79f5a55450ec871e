"""Compare the speed of this version of the package with that of another one.

    python benchmarks/versions.py likelihood losses boosted aggregation extreme reading --before FOLDER

FOLDER is a checkout of the version to compare with. Each task runs on one thread, in separate processes that alternate
between the versions, and the best time of each version counts. Freed memory stays with the process: returning it to the
system and taking it again costs up to a fifth of a short task, depending on chance. Prints a table per part and
replaces these parts in results/versions.json.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

Tasks = dict[str, Callable[[], Any]]
TURNS = 5
SECONDS = 0.7  # repeats of a task in one process go on for this long, but are at least three
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1", "PLACKETT_NUM_THREADS": "1",
    "MALLOC_TRIM_THRESHOLD_": "4000000000", "MALLOC_MMAP_THRESHOLD_": "4000000000", "MALLOC_TOP_PAD_": "200000000",
}  # fmt: skip


def likelihood(_: Path) -> Tasks:
    import numpy as np
    import torch

    import plackett

    rng = np.random.default_rng(0)
    thousands, tiers = rng.standard_normal((20, 1000)), np.tile(np.repeat([3, 2, 1, 0], [167, 167, 167, 499]), (20, 1))
    documents = 120_000
    scores, offsets = rng.standard_normal(documents), np.arange(0, documents + 1, 120)
    grades = rng.choice(np.arange(5.0), documents, p=[0.52, 0.32, 0.13, 0.02, 0.01])
    million, tenths = rng.standard_normal(1_000_000), np.repeat(np.arange(10.0), 100_000)
    wide, halves = rng.standard_normal(200_000), np.repeat([1.0, 0.0], 100_000)
    on_torch, labels = torch.tensor(thousands, requires_grad=True), torch.tensor(tiers)
    value, derivatives = plackett.partition_log_likelihood, plackett.partition_derivatives
    return {
        "value, 20 lists of 1,000": lambda: value(thousands, tiers),
        "derivatives, 20 lists of 1,000": lambda: derivatives(thousands, tiers),
        "torch, 20 lists of 1,000": lambda: value(on_torch, labels).sum().backward(),
        "derivatives, 1,000 lists of 120": lambda: derivatives(scores, grades, offsets=offsets),
        "the same, tol=1e-6": lambda: derivatives(scores, grades, offsets=offsets, tol=1e-6),
        "the same, top=10": lambda: derivatives(scores, grades, offsets=offsets, top=10),
        "value, 1,000 lists of 120, top=10": lambda: value(scores, grades, offsets=offsets, top=10),
        "derivatives, a million items in ten tiers": lambda: derivatives(million, tenths),
        "derivatives, a tier of 100,000": lambda: derivatives(wide, halves),
    }


def losses(_: Path) -> Tasks:
    import numpy as np
    import torch

    import plackett.losses

    rng = np.random.default_rng(0)
    scores = torch.tensor(rng.standard_normal((20, 1000)), requires_grad=True)
    labels = torch.tensor(rng.integers(0, 4, (20, 1000)))
    names = [
        "partition", "lower_bound", "listmle", "listpl", "listnet", "attrank", "ranknet", "ranksvm", "lambdarank",
        "approx_ndcg",
    ]  # fmt: skip

    def step(name: str) -> Callable[[], None]:
        loss = getattr(plackett.losses, f"{name}_loss")
        return lambda: loss(scores, labels).sum().backward()

    return {f"{name}_loss, 20 lists of 1,000": step(name) for name in names}


def boosted(_: Path) -> Tasks:
    import numpy as np

    from plackett import BoostedRanker
    from plackett.data import make_graded_lists

    data = make_graded_lists(400, mean_length=120, n_features=20, dtype=np.float32, random_state=0)[0]

    def fit(**options: Any) -> Callable[[], None]:
        return lambda: BoostedRanker(n_estimators=10, progress=False, n_jobs=1, **options).fit(data)

    return {
        "partition, Newton leaves": fit(leaves="newton"),
        "partition, LightGBM's leaves": fit(leaves="lightgbm"),
        "partition, top=10, Newton leaves": fit(leaves="newton", top=10),
        "partition, top=10, LightGBM's leaves": fit(leaves="lightgbm", top=10),
        "plrank, 3 permutations": fit(objective="plrank", n_permutations=3),
        "listpl": fit(objective="listpl"),
    }


def aggregation(_: Path) -> Tasks:
    import numpy as np

    from plackett import RankAggregator
    from plackett.data import Ballots

    def ballots(count: int, length: int, items: int, sizes: list[int]) -> Ballots:
        rng = np.random.default_rng(0)
        worths = rng.uniform(0.0, np.log(items), items)
        ranked = np.empty((count, length), np.int64)
        for row in ranked:
            chosen = rng.choice(items, length, replace=False)
            row[:] = chosen[np.argsort(-(worths[chosen] + rng.gumbel(size=length)))]
        labels = np.tile(np.repeat(np.arange(len(sizes), 0, -1.0), sizes), count)
        names = [str(i) for i in range(items)]
        return Ballots(ranked.reshape(-1), labels, length * np.arange(count + 1), np.ones(count), names)

    inputs = {
        "5,000 rankings of 10 of 10": ballots(5_000, 10, 10, [1] * 10),
        "20,000 rankings of 20 of 200": ballots(20_000, 20, 200, [1] * 20),
        "5,000 ballots of three tiers, 20 of 200": ballots(5_000, 20, 200, [5, 5, 10]),
        "100,000 comparisons of 50": ballots(100_000, 2, 50, [1, 1]),
    }
    tasks: Tasks = {name: lambda given=given: RankAggregator().fit(given) for name, given in inputs.items()}
    tied = inputs["5,000 ballots of three tiers, 20 of 200"]
    tasks["the same with standard errors"] = lambda: RankAggregator().fit(tied).standard_errors_
    return tasks


def extreme(_: Path) -> Tasks:
    from plackett import ExtremeClassifier
    from plackett.data import make_multilabel

    data = make_multilabel(4000, 5000, 1000, labels_per_row=5, features_per_row=80, random_state=0)
    wide = make_multilabel(1000, 5000, 30_000, labels_per_row=10, features_per_row=80, random_state=0)
    given: dict[str, Any] = {"skip": None} if "skip" in ExtremeClassifier().get_params() else {}
    given |= {
        "hidden_sizes": (128,), "input_dropout": 0.3, "hidden_dropout": 0.5, "scaling": "norm", "learning_rate": 2e-3,
        "epochs": 1, "batch_size": 256, "ensemble": 1, "precision": "float32", "random_state": 0, "progress": False,
    }  # fmt: skip
    fitted = ExtremeClassifier(**given).fit(data)
    return {
        "partition, 1,000 labels": lambda: ExtremeClassifier(**given).fit(data),
        "partition, 30,000 labels": lambda: ExtremeClassifier(**given).fit(wide),
        "the same, 500 negatives": lambda: ExtremeClassifier(negatives=500, **given).fit(wide),
        "logistic, 1,000 labels": lambda: ExtremeClassifier("logistic", **given).fit(data),
        "predict_top": lambda: fitted.predict_top(data.X, 5),
    }


def reading(folder: Path) -> Tasks:
    import numpy as np
    from scipy.sparse import random_array

    from plackett import BoostedRanker, LinearRanker, NeuralRanker
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

    rows, features, length = 60_000, 20, 20
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((rows, features)), rng.integers(0, 5, rows)
    qid = np.repeat(np.arange(rows // length), length)
    letor, parquet, xmc = (folder / name for name in ("lists.txt", "lists.parquet", "labels.txt"))
    if not xmc.exists():
        data = RankingData(X, y, qid, np.arange(0, rows + 1, length))
        dump_letor(data, letor)
        dump_parquet(data, parquet)
        dump_xmc(make_multilabel(4000, 5000, 1000, labels_per_row=5, features_per_row=80, random_state=0), xmc)
    sparse = random_array((rows, 2000), density=0.01, format="csr", rng=rng)
    trees = BoostedRanker(n_estimators=20, progress=False, n_jobs=1).fit(X, y, qid=qid)
    linear, on_sparse = LinearRanker().fit(X, y, qid=qid), LinearRanker().fit(sparse, y, qid=qid)
    network = NeuralRanker(hidden_sizes=(32,), epochs=1, progress=False).fit(X, y, qid=qid)
    return {
        "load_letor": lambda: load_letor(letor),
        "load_parquet": lambda: load_parquet(parquet),
        "load_xmc": lambda: load_xmc(xmc),
        "BoostedRanker.predict": lambda: trees.predict(X),
        "LinearRanker.predict": lambda: linear.predict(X),
        "LinearRanker.predict, sparse": lambda: on_sparse.predict(sparse),
        "NeuralRanker.predict": lambda: network.predict(X),
    }


PARTS: dict[str, Callable[[Path], Tasks]] = {
    "likelihood": likelihood,
    "losses": losses,
    "boosted": boosted,
    "aggregation": aggregation,
    "extreme": extreme,
    "reading": reading,
}


def _shortest(task: Callable[[], Any]) -> float:
    """The shortest of several times of a task, in seconds."""
    task()
    found: list[float] = []
    while len(found) < 3 or sum(found) < SECONDS:
        start = time.perf_counter()
        task()
        found.append(time.perf_counter() - start)
    return min(found)


def _in_turns(part: str, sides: dict[str, Path]) -> dict[str, dict[str, float]]:
    """The shortest time of each task of a part, by version."""
    best: dict[str, dict[str, float]] = {name: {} for name in sides}
    with tempfile.TemporaryDirectory() as folder:

        def run(side: str, task: int | None = None) -> Any:
            command = [
                sys.executable,
                __file__,
                part,
                "--folder",
                folder,
                *([] if task is None else ["--task", str(task)]),
            ]
            environment = {**os.environ, **_ENVIRONMENT, "PYTHONPATH": str(sides[side])}
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)  # noqa: S603 - our own code
            return json.loads(done.stdout.splitlines()[-1])

        for number, name in enumerate(run("now")):
            for turn in range(TURNS):
                for side in sorted(sides, reverse=bool(turn % 2)):
                    best[side][name] = min(run(side, number), best[side].get(name, math.inf))
    return best


def main(
    parts: Annotated[list[str] | None, typer.Argument(help="Which parts to measure: all unless named.")] = None,
    before: Annotated[Path | None, typer.Option(help="A checkout of the version to compare with.")] = None,
    folder: Annotated[Path | None, typer.Option(hidden=True)] = None,
    task: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    parts = parts or list(PARTS)
    if unknown := set(parts) - set(PARTS):
        raise typer.BadParameter(f"parts must be among {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")
    if folder is not None:
        warnings.simplefilter("ignore")
        tasks = PARTS[parts[0]](folder)
        print(json.dumps(list(tasks) if task is None else _shortest(list(tasks.values())[task])))
        return
    if before is None or not (before / "src" / "plackett").is_dir():
        raise typer.BadParameter(f"--before must be a checkout of another version, got {before}")
    from measure import report, save
    from rich.console import Console

    console = Console()
    sides = {"before": before / "src", "now": Path(__file__).parents[1] / "src"}
    commit = subprocess.run(["git", "-C", str(before), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)  # noqa: S603, S607
    stored = Path(__file__).parent / "results" / "versions.json"
    results = json.loads(stored.read_text()).get("parts", {}) if stored.exists() else {}
    for part in parts:
        best = _in_turns(part, sides)
        ratios = {task: best["now"][task] / seconds for task, seconds in best["before"].items()}
        rows = [[t, *(f"{1e3 * best[side][t]:.2f}" for side in sides), f"{ratio:.2f}"] for t, ratio in ratios.items()]
        report(part, ["", *(f"{side} (ms)" for side in sides), "ratio"], rows, console)
        results[part] = {"before": commit.stdout.strip(), "seconds": best, "ratios": ratios}
        save({"parts": results}, "versions", console)


if __name__ == "__main__":
    typer.run(main)
