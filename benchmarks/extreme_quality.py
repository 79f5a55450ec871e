"""How well labels are found: ExtremeClassifier on Delicious-1K and Eurlex-4K, beside Ma et al. (2021) and napkinXC.

    python benchmarks/extreme_quality.py [paper] [default] [five] [peers] [propensity]

paper    the protocol of Ma et al.: two layers of 256, Adam, batches of 128, the rate chosen from three and early
         stopping by a quarter of the training rows; five seeds
default  ExtremeClassifier as it is (two networks), twice; each network alone; all four together
five     five networks, ensemble=5
peers    napkinXC's binary relevance and label tree, in the same run
propensity  which reading of PSP@k the published figures can have used

The data are looked for under $PLACKETT_DATA or ../shared/data. Finished cells are kept in
results/extreme_quality.json, and a second run does only what is missing. Prints tables.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from measure import report
from rich.console import Console
from scipy.sparse import csr_matrix

from plackett import ExtremeClassifier, metrics
from plackett.data import MultilabelData, load_xmc

console = Console()
RESULTS = Path(__file__).parent / "results" / "extreme_quality.json"
DATA_SETS = {"D-1K": "delicious-1k", "E-4K": "eurlex-4k"}
PLACES = (1, 3, 5, 10)
SEEDS = 5
METHODS = {"PL-Partition": "partition", "PL-LB": "lower_bound", "RankNet": "ranknet", "RankSVM": "ranksvm"}
# The paper does not say how features are scaled. Validation prefers the words of Delicious as they are.
SCALING = {"D-1K": "none", "E-4K": "norm"}
PAPER: dict[str, Any] = {
    "ensemble": 1, "hidden_sizes": (256,), "input_dropout": 0.0, "hidden_dropout": 0.0,
    "optimizer": "adam", "weight_decay": 0.0,
    "schedule": "constant", "batch_size": 128, "epochs": 100, "early_stopping_rounds": 5, "validation_fraction": 0.25,
    "eval_metric": "ndcg@5",
}  # fmt: skip
RATES = [1e-4, 1e-3, 1e-2]
PUBLISHED = {  # Ma et al., table 1
    "D-1K": {
        "PL-Partition": {"P": (66.72, 61.30, 56.63, 47.61), "PSP": (33.22, 34.23, 35.02, 35.26)},
        "PL-LB": {"P": (66.12, 60.13, 54.72, 45.76), "PSP": (30.36, 31.69, 31.82, 31.91)},
        "RankNet": {"P": (64.11, 58.46, 53.60, 45.62), "PSP": (32.02, 32.76, 32.85, 33.27)},
        "RankSVM": {"P": (61.95, 57.05, 52.74, 44.57), "PSP": (31.03, 31.61, 32.20, 32.71)},
    },
    "E-4K": {
        "PL-Partition": {"P": (78.12, 62.81, 51.75, 33.79), "PSP": (41.93, 43.46, 45.70, 57.13)},
        "PL-LB": {"P": (66.46, 51.58, 41.35, 26.99), "PSP": (34.55, 34.37, 34.44, 42.50)},
        "RankNet": {"P": (77.57, 63.05, 52.55, 34.36), "PSP": (42.81, 45.55, 48.61, 60.83)},
        "RankSVM": {"P": (76.46, 61.88, 50.95, 32.56), "PSP": (42.71, 45.69, 47.43, 57.50)},
    },
}


def load(name: str) -> tuple[MultilabelData, MultilabelData]:
    folder = Path(os.environ.get("PLACKETT_DATA", Path(__file__).parents[2] / "shared" / "data")) / DATA_SETS[name]
    return load_xmc(folder / "train.txt.xz"), load_xmc(folder / "test.txt.xz")


def measure(top: np.ndarray, train: MultilabelData, test: MultilabelData) -> dict[str, list[float]]:
    """P, nDCG, PSP and PSnDCG at all places, in per cent; PSP by both normalisations, and over rows with labels."""
    inverse = metrics.inverse_propensity(train.Y)
    found = {
        "P": [metrics.multilabel_precision(top, test.Y, k=k) for k in PLACES],
        "nDCG": [metrics.multilabel_ndcg(top, test.Y, k=k) for k in PLACES],
        "PSP": [metrics.propensity_scored_precision(top, test.Y, inverse, k=k) for k in PLACES],
        "PSP by rows": [
            metrics.propensity_scored_precision(top, test.Y, inverse, k=k, normalisation="rows", empty="skip")
            for k in PLACES
        ],
        "PSnDCG": [metrics.propensity_scored_ndcg(top, test.Y, inverse, k=k) for k in PLACES],
    }
    return {name: [round(100.0 * float(value), 3) for value in values] for name, values in found.items()}


class Cells:
    """What is done, kept after every cell."""

    def __init__(self) -> None:
        self.done: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}

    def run(self, key: str, work: Callable[[], Any]) -> Any:
        if key not in self.done:
            console.print(f"{key} ...", end=" ", soft_wrap=True)
            start = time.perf_counter()
            result = work()
            self.done[key] = {"seconds": round(time.perf_counter() - start, 1), **result}
            RESULTS.write_text(json.dumps(dict(sorted(self.done.items())), indent=1) + "\n")
            console.print(f"{self.done[key]['seconds']} s, {result['P']}", soft_wrap=True)
        return self.done[key]


def run_paper(cells: Cells, name: str, train: MultilabelData, test: MultilabelData) -> None:
    """The rate is chosen with the first seed and kept for the others."""

    def work(objective: str, rate: Any, seed: int) -> dict[str, Any]:
        options = {**PAPER, "scaling": SCALING[name], "learning_rate": rate, "random_state": seed}
        model = ExtremeClassifier(objective, **options).fit(train)
        top = model.predict_top(test.X, max(PLACES))[0]
        return {"rate": model.learning_rate_, "epoch": model.best_epoch_, **measure(top, train, test)}

    for method, objective in METHODS.items():
        rate: Any = RATES
        for seed in range(SEEDS):
            rate = cells.run(f"paper/{name}/{method}/{seed}", partial(work, objective, rate, seed))["rate"]


def run_default(cells: Cells, name: str, train: MultilabelData, test: MultilabelData) -> None:
    """ExtremeClassifier as it is, twice with different networks; each network alone; and all networks together."""

    def of(model: ExtremeClassifier, networks: list[Any]) -> dict[str, list[float]]:
        model.networks_ = networks
        return measure(model.predict_top(test.X, max(PLACES))[0], train, test)

    def work() -> dict[str, Any]:
        models = [ExtremeClassifier(random_state=seed).fit(train) for seed in (0, 100)]
        seconds = [sum(row["seconds"] for row in m.history_ if row["epoch"] == m.epochs) for m in models]
        networks = [network for model in models for network in model.networks_]
        return {
            "runs": [of(model, model.networks_) for model in models],
            "members": [of(models[0], [network]) for network in networks],
            "fit": [round(x, 1) for x in seconds],
            **of(models[0], networks),
        }

    cells.run(f"default/{name}", work)


def run_five(cells: Cells, name: str, train: MultilabelData, test: MultilabelData) -> None:
    def work() -> dict[str, Any]:
        model = ExtremeClassifier(ensemble=5, random_state=0).fit(train)
        return measure(model.predict_top(test.X, max(PLACES))[0], train, test)

    cells.run(f"five/{name}", work)


def run_peers(cells: Cells, name: str, train: MultilabelData, test: MultilabelData) -> None:
    from napkinxc.models import BR, PLT

    rows = [row.tolist() for row in np.split(train.Y.indices, train.Y.indptr[1:-1])]

    def work(kind: Any) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            model = kind(folder, verbose=False, threads=os.cpu_count())
            start = time.perf_counter()
            model.fit(csr_matrix(train.X), rows)
            seconds = time.perf_counter() - start
            predicted = model.predict(csr_matrix(test.X), top_k=max(PLACES))
        top = np.full((len(test), max(PLACES)), -1, np.int64)
        for number, labels in enumerate(predicted):
            top[number, : len(labels)] = labels
        return {"fit": round(seconds, 1), **measure(top, train, test)}

    for kind in (PLT, BR):
        cells.run(f"peers/{name}/{kind.__name__}", partial(work, kind))


def run_propensity(cells: Cells, name: str, train: MultilabelData, test: MultilabelData) -> None:
    """PSP@k of one network of the paper's by several readings: whose labels give propensities, and what is averaged."""

    def work() -> dict[str, Any]:
        options = {**PAPER, "scaling": SCALING[name], "learning_rate": 1e-3, "random_state": 0}
        top = ExtremeClassifier(**options).fit(train).predict_top(test.X, max(PLACES))[0]
        readings = {}
        for labels, Y in (("training", train.Y), ("test", test.Y)):
            inverse = metrics.inverse_propensity(Y)
            for normalisation in ("sums", "rows"):
                readings[f"propensities of {labels} labels, {normalisation}"] = [
                    round(
                        100.0
                        * metrics.propensity_scored_precision(
                            top, test.Y, inverse, k=k, normalisation=normalisation, empty="skip"
                        ),
                        2,
                    )
                    for k in PLACES
                ]
        return {"P": measure(top, train, test)["P"], "readings": readings}

    cells.run(f"propensity/{name}", work)


def show_propensity(name: str, done: dict[str, Any]) -> None:
    """PSP@k over P@k, since the networks differ a little in P@k."""
    cell, published = done[f"propensity/{name}"], PUBLISHED[name]["PL-Partition"]
    shares = {"published": np.array(published["PSP"]) / published["P"]}
    shares |= {reading: np.array(values) / cell["P"] for reading, values in cell["readings"].items()}
    rows = [[reading, *(f"{x:.3f}" for x in values)] for reading, values in shares.items()]
    report(f"{name}: PSP@k / P@k", ["reading", *(f"k = {k}" for k in PLACES)], rows, console)


def mean_and_error(cells: list[dict[str, Any]], metric: str) -> list[str]:
    values = np.array([cell[metric] for cell in cells])
    error = values.std(0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.zeros(values.shape[1])
    return [f"{m:.2f} ± {e:.2f}" for m, e in zip(values.mean(0), error, strict=True)]


def show(done: dict[str, Any]) -> None:
    for name in DATA_SETS:
        rows = []
        for method in METHODS:
            cells = [done[key] for key in done if key.startswith(f"paper/{name}/{method}/")]
            if cells:
                rows.append([method, *mean_and_error(cells, "P"), *mean_and_error(cells, "PSP")])
            if method in PUBLISHED[name]:
                published = PUBLISHED[name][method]
                rows.append(["  published", *(f"{x:.2f}" for key in ("P", "PSP") for x in published[key])])
        if f"default/{name}" in done:
            cell = done[f"default/{name}"]
            members, runs = cell["members"], cell["runs"]
            rows.append(["one network", *mean_and_error(members, "P"), *mean_and_error(members, "PSP")])
            rows.append(["default, two", *mean_and_error(runs, "P"), *mean_and_error(runs, "PSP")])
            rows.append([f"{len(members)} together", *(f"{x:.2f}" for key in ("P", "PSP") for x in cell[key])])
        if f"five/{name}" in done:
            cell = done[f"five/{name}"]
            rows.append(["five together", *(f"{x:.2f}" for key in ("P", "PSP") for x in cell[key])])
        for peer in ("PLT", "BR"):
            if f"peers/{name}/{peer}" in done:
                cell = done[f"peers/{name}/{peer}"]
                rows.append([f"napkinXC {peer}", *(f"{x:.2f}" for key in ("P", "PSP") for x in cell[key])])
        report(f"{name}, test", ["", *(f"{m}@{k}" for m in ("P", "PSP") for k in PLACES)], rows, console)
        for kind in ("default/{}", "peers/{}/PLT", "peers/{}/BR"):
            if (key := kind.format(name)) in done:
                console.print(f"{key}: {done[key]['fit']} s to fit")
        if f"propensity/{name}" in done:
            show_propensity(name, done)


if __name__ == "__main__":
    kinds = sys.argv[1:] or ["paper", "default", "five", "peers", "propensity"]
    kept = Cells()
    for data_set in DATA_SETS:
        both = load(data_set)
        if "default" in kinds:
            run_default(kept, data_set, *both)
        if "five" in kinds:
            run_five(kept, data_set, *both)
        if "peers" in kinds:
            run_peers(kept, data_set, *both)
        if "paper" in kinds:
            run_paper(kept, data_set, *both)
        if "propensity" in kinds:
            run_propensity(kept, data_set, *both)
    show(kept.done)
