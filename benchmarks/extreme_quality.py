"""Prediction quality of ExtremeClassifier on Delicious-1K and Eurlex-4K, compared with napkinXC.

    python benchmarks/extreme_quality.py [default] [five] [peers] [propensity]

default     ExtremeClassifier with default settings (two networks), twice; each network alone; all four together
five        five networks, ensemble=5
peers       napkinXC's binary relevance and label tree, in the same run
propensity  the definitions of PSP@k that Ma et al. (2021) may have used

The protocol of Ma et al. itself is an experiment: `plackett reproduce pl-partition-table-1`.

The data must be under $PLACKETT_DATA or ../shared/data. Finished cells are kept in results/extreme_quality.json, and a
second run computes only the missing ones. Prints tables.
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
from plackett.data import MultilabelData
from plackett.experiments import DataFolder
from plackett.experiments.multilabel_data import PLACES, judge, load, short_name
from plackett.experiments.pl_partition.multilabel_table import EXPERIMENT, PUBLISHED, make_model

console = Console()
RESULTS = Path(__file__).parent / "results" / "extreme_quality.json"
DATA_SETS = ("delicious-1k", "eurlex-4k")


def measure(top: np.ndarray, train: MultilabelData, test: MultilabelData) -> dict[str, list[float]]:
    """Compute the measures of the experiments, and PSP as the mean over rows with labels."""
    inverse = metrics.inverse_propensity(train.Y)
    by_rows = [
        metrics.propensity_scored_precision(top, test.Y, inverse, k=k, normalisation="rows", empty="skip")
        for k in PLACES
    ]
    return {**judge(top, train, test), "PSP by rows": [round(100.0 * float(value), 3) for value in by_rows]}


class Cells:
    """Finished cells, saved after each one."""

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


def run_default(cells: Cells, name: str, train: MultilabelData, test: MultilabelData) -> None:
    """Evaluate ExtremeClassifier with default settings twice, each network alone, and all networks together."""

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
    """Compute PSP@k of one network like the paper's under several definitions of propensities and averaging."""

    def work() -> dict[str, Any]:
        cell = {"data": name, "method": "PL-Partition", "rate": 1e-3, "seed": 0}
        model = make_model(EXPERIMENT.configurations["full"], cell)
        top = model.fit(train).predict_top(test.X, max(PLACES))[0]
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
    """Show PSP@k divided by P@k, since the networks differ a little in P@k."""
    cell, published = done[f"propensity/{name}"], PUBLISHED[name]["PL-Partition"]
    shares = {"published": np.array(published["PSP"]) / published["P"]}
    shares |= {reading: np.array(values) / cell["P"] for reading, values in cell["readings"].items()}
    rows = [[reading, *(f"{x:.3f}" for x in values)] for reading, values in shares.items()]
    report(f"{short_name(name)}: PSP@k / P@k", ["definition", *(f"k = {k}" for k in PLACES)], rows, console)


def mean_and_error(cells: list[dict[str, Any]], metric: str) -> list[str]:
    values = np.array([cell[metric] for cell in cells])
    error = values.std(0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.zeros(values.shape[1])
    return [f"{m:.2f} ± {e:.2f}" for m, e in zip(values.mean(0), error, strict=True)]


def show(done: dict[str, Any]) -> None:
    for name in DATA_SETS:
        rows = []
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
        report(f"{short_name(name)}, test", ["", *(f"{m}@{k}" for m in ("P", "PSP") for k in PLACES)], rows, console)
        for kind in ("default/{}", "peers/{}/PLT", "peers/{}/BR"):
            if (key := kind.format(name)) in done:
                console.print(f"{key}: fitted in {done[key]['fit']} s")
        if f"propensity/{name}" in done:
            show_propensity(name, done)


if __name__ == "__main__":
    kinds = sys.argv[1:] or ["default", "five", "peers", "propensity"]
    kept = Cells()
    for data_set in DATA_SETS:
        both = load(data_set, DataFolder())
        if "default" in kinds:
            run_default(kept, data_set, *both)
        if "five" in kinds:
            run_five(kept, data_set, *both)
        if "peers" in kinds:
            run_peers(kept, data_set, *both)
        if "propensity" in kinds:
            run_propensity(kept, data_set, *both)
    show(kept.done)
