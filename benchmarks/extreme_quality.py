"""Prediction quality of ExtremeClassifier on Delicious-1K and Eurlex-4K, compared with napkinXC.

    python benchmarks/extreme_quality.py [fast] [default] [best] [peers] [definitions] [--seeds 5] [--only eurlex-4k]

fast, default, best   ExtremeClassifier with that effort, one cell per seed; from the same fitted model also the
                      networks without the linear path, the path without the networks, and one network with it
peers                 napkinXC's binary relevance and label tree, in the same run
definitions           the definitions of PSP@k and nDCG@k that Ma et al. (2021) may have used

The protocol of Ma et al. itself is an experiment: `plackett reproduce pl-partition-table-1`.

The data must be under $PLACKETT_DATA or ../shared/data. Finished cells are kept in results/extreme_quality.json, and a
second run computes only the missing ones. Prints tables.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import report, save
from rich.console import Console
from scipy.sparse import csr_matrix

from plackett import ExtremeClassifier, metrics
from plackett.data import MultilabelData
from plackett.experiments import DataFolder
from plackett.experiments.multilabel_data import PLACES, judge, load, short_name
from plackett.experiments.pl_partition.multilabel_table import EXPERIMENT, PUBLISHED, make_model
from plackett.neural.extreme_data import rows_on_device
from plackett.report.versions import today

console = Console()
RESULTS = Path(__file__).parent / "results" / "extreme_quality.json"
DATA_SETS = ("delicious-1k", "eurlex-4k")
EFFORTS = ("fast", "default", "best")


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
        stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        self.done: dict[str, Any] = {key: cell for key, cell in stored.items() if "/" in key}

    def run(self, key: str, work: Callable[[], Any]) -> Any:
        if key not in self.done:
            console.print(f"{key} ...", end=" ", soft_wrap=True)
            start = time.perf_counter()
            result = work()
            self.done[key] = {"date": today(), "seconds": round(time.perf_counter() - start, 1), **result}
            console.print(f"{self.done[key]['seconds']} s, {result['P']}", soft_wrap=True)
            save(dict(sorted(self.done.items())), RESULTS.stem, console)
        return self.done[key]


def run_effort(cells: Cells, effort: str, seed: int, name: str, train: MultilabelData, test: MultilabelData) -> None:
    """Evaluate an effort, and its parts, which cost no further training."""

    def of(model: ExtremeClassifier, networks: list[Any], path: Any) -> dict[str, list[float]]:
        model.networks_, model.linear_path_ = networks, path
        return measure(model.predict_top(test.X, max(PLACES))[0], train, test)

    def work() -> dict[str, Any]:
        start = time.perf_counter()
        model = ExtremeClassifier(effort=effort, random_state=seed, progress=False).fit(train)
        seconds = time.perf_counter() - start
        networks, path = model.networks_, model.linear_path_
        parts = {"one network": of(model, networks[:1], path)} if len(networks) > 1 else {}
        if path is not None:
            parts["without the path"] = of(model, networks, None)
            with torch.no_grad():
                scores = path(rows_on_device(model._scaled(test.X), torch.device("cpu"))).numpy()
            parts["path alone"] = measure(np.argsort(-scores, axis=1, kind="stable")[:, : max(PLACES)], train, test)
        return {"fit": round(seconds, 1), "parts": parts, **of(model, networks, path)}

    cells.run(f"{effort}/{name}/{seed}", work)


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


def run_definitions(cells: Cells, name: str, train: MultilabelData, test: MultilabelData) -> None:
    """Compute PSP@k and nDCG@k of one network like the paper's under several definitions."""

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
        depths = {
            f"nDCG to depth {depth}": [
                round(100.0 * metrics.multilabel_ndcg(top, test.Y, k=k, depth=depth), 2) for k in PLACES
            ]
            for depth in ("k", "labels")
        }
        return {"P": measure(top, train, test)["P"], "readings": {"PSP": readings, "nDCG": depths}}

    cells.run(f"definitions/{name}", work)


def show_definitions(name: str, done: dict[str, Any]) -> None:
    """Show PSP@k and nDCG@k divided by P@k, since the networks differ a little in P@k."""
    cell, published = done[f"definitions/{name}"], PUBLISHED[name]["PL-Partition"]
    for metric, readings in cell["readings"].items():
        shares = {"published": np.array(published[metric]) / published["P"]}
        shares |= {reading: np.array(values) / cell["P"] for reading, values in readings.items()}
        rows = [[reading, *(f"{x:.3f}" for x in values)] for reading, values in shares.items()]
        title = f"{short_name(name)}: {metric}@k / P@k"
        report(title, ["definition", *(f"k = {k}" for k in PLACES)], rows, console)


def mean_and_error(cells: list[dict[str, Any]], metric: str) -> list[str]:
    values = np.array([cell[metric] for cell in cells])
    error = values.std(0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.zeros(values.shape[1])
    return [f"{m:.2f} ± {e:.2f}" for m, e in zip(values.mean(0), error, strict=True)]


def show(done: dict[str, Any]) -> None:
    for name in DATA_SETS:
        rows = []
        for effort in EFFORTS:
            cells = [done[key] for key in sorted(done) if key.startswith(f"{effort}/{name}/")]
            if cells:
                kinds = {f"{effort}, {len(cells)} seeds": cells}
                kinds |= {f"  {part}": [cell["parts"][part] for cell in cells] for part in cells[0]["parts"]}
                rows += [[text, *mean_and_error(own, "P"), *mean_and_error(own, "PSP")] for text, own in kinds.items()]
                console.print(f"{effort}/{name}: fitted in {[cell['fit'] for cell in cells]} s")
        for peer in ("PLT", "BR"):
            if (key := f"peers/{name}/{peer}") in done:
                rows.append([f"napkinXC {peer}", *(f"{x:.2f}" for m in ("P", "PSP") for x in done[key][m])])
                console.print(f"{key}: fitted in {done[key]['fit']} s")
        report(f"{short_name(name)}, test", ["", *(f"{m}@{k}" for m in ("P", "PSP") for k in PLACES)], rows, console)
        if f"definitions/{name}" in done:
            show_definitions(name, done)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="*", default=[*EFFORTS, "peers", "definitions"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", choices=DATA_SETS)
    arguments = parser.parse_args()
    kept = Cells()
    for data_set in (arguments.only,) if arguments.only else DATA_SETS:
        both = load(data_set, DataFolder())
        if "peers" in arguments.kinds:
            run_peers(kept, data_set, *both)
        for kind in EFFORTS:
            for seed in range(arguments.seeds) if kind in arguments.kinds else ():
                run_effort(kept, kind, seed, data_set, *both)
        if "definitions" in arguments.kinds:
            run_definitions(kept, data_set, *both)
    show(kept.done)
