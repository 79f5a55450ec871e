"""Prediction quality of ExtremeClassifier on Delicious-1K and Eurlex-4K, compared with napkinXC.

    python benchmarks/extreme_quality.py [fast] [default] [best] [times] [ablation] [shapes] [definitions]
                                          [--seeds 5] [--only eurlex-4k] [--rounds 1]

fast, default, best   ExtremeClassifier(effort=...) with random_state 0, E, 2 E, ... for ensembles of E networks: member
              m of a model with random_state s is the network of seed s + m, so no two models share a network. From the
              same networks also: without the path beside them, and one with it
ablation      on rows held out of training: parts of the recipe added alone to a plain network, and taken away alone
              from the whole; regularisers added to the whole
shapes        the default recipe, and the same with fewer or more units or epochs, on generated data of three shapes
times         seconds of a fit at efforts fast and default, and of napkinXC's label tree and binary relevance, in turns,
              --rounds times; with more than one round, the median. Quality of the peers
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
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import report, save
from rich.console import Console
from scipy.sparse import csr_matrix

from plackett import ExtremeClassifier, metrics
from plackett.data import MultilabelData, make_multilabel
from plackett.experiments import DataFolder
from plackett.experiments.multilabel_data import PLACES, load, measure_top_labels, short_name
from plackett.experiments.pl_partition.multilabel_table import EXPERIMENT, PUBLISHED, make_model
from plackett.neural.extreme_fitting import EFFORTS
from plackett.neural.networks import rows_on_device
from plackett.neural.regularizers import STRENGTHS
from plackett.report.versions import today

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
    return {
        **measure_top_labels(top, train, test),
        "PSP by rows": [round(100.0 * float(value), 3) for value in by_rows],
    }


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
            self.done[key] = {"date": today(), **result}
            console.print(f"{time.perf_counter() - start:.1f} s, {result.get('P', '')}", soft_wrap=True)
            save(dict(sorted(self.done.items())), RESULTS.stem, console)
        return self.done[key]


PARTS: dict[str, dict[str, Any]] = {  # and the options that take each away
    "path": {"skip": None},
    "square roots": {"scaling": "norm"},
    "exact likelihood": {"objective": "lower_bound"},
    "dropout": {"input_dropout": 0.0, "hidden_dropout": 0.0},
    "weight decay": {"weight_decay": 0.0},
    "falling rate": {"schedule": "constant"},
    "second network": {"ensemble": 1},
    "bfloat16": {"precision": "float32"},
}
ABLATION: dict[str, Any] = {"rows": 3000, "held out": 2500, "hidden_sizes": (128,), "epochs": 10}


@dataclass
class Parts:
    """Scores of the test rows: of each network, and of the path beside the networks."""

    train: MultilabelData
    test: MultilabelData
    path: np.ndarray
    networks: list[np.ndarray]

    def measure(self, members: int, *, path: bool = True) -> dict[str, list[float]]:
        """Measure the mean of the first networks."""
        scores = np.mean(self.networks[:members], 0) if members else np.zeros_like(self.path)
        top = np.argsort(-(scores + self.path if path else scores), axis=1, kind="stable")[:, : max(PLACES)]
        return measure(top, self.train, self.test)

    def model(self) -> dict[str, Any]:
        members = len(self.networks)
        parts = {"without the path": self.measure(members, path=False), "path alone": self.measure(0)}
        if members > 1:
            parts["one network"] = self.measure(1)
        return {"parts": parts, **self.measure(members)}


def fit_one(train: MultilabelData, effort: str, seed: int, **options: Any) -> ExtremeClassifier:
    return ExtremeClassifier(effort=effort, ensemble=1, random_state=seed, progress=False, **options).fit(train)


def run_effort(cells: Cells, effort: str, seeds: int, name: str, train: MultilabelData, test: MultilabelData) -> None:
    """Evaluate a model of each seed. The path is the same for all."""
    if sum(key.startswith(f"{effort}/{name}/") for key in cells.done) >= seeds:
        return
    model = fit_one(train, effort, 0, epochs=1)  # for the path, and the sizes that depend on it
    size, sizes = model.recipe_["ensemble"], {key: model.recipe_[key] for key in ("hidden_sizes", "epochs")}
    with torch.no_grad():
        path = model.path_(rows_on_device(model._scaled(test.X), torch.device("cpu"))).numpy()

    def work(first: int) -> dict[str, Any]:
        members = [fit_one(train, effort, seed, skip=None, **sizes) for seed in range(first, first + size)]
        return Parts(train, test, path, [member.predict(test.X) for member in members]).model()

    for first in range(0, seeds * size, size):
        cells.run(f"{effort}/{name}/{first}", partial(work, first))


def run_times(cells: Cells, name: str, train: MultilabelData, test: MultilabelData, rounds: int) -> None:
    from napkinxc.models import BR, PLT

    systems = {
        "peers/{}/PLT": partial(fit_peer, PLT),
        "times/{}/fast": partial(fit_ours, "fast"),
        "peers/{}/BR": partial(fit_peer, BR),
        "times/{}/default": partial(fit_ours, "default"),
    }
    if all(key.format(name) in cells.done for key in systems):
        return
    found: dict[str, list[tuple[float, np.ndarray]]] = {key: [] for key in systems}
    for _ in range(rounds):
        for key, system in systems.items():
            found[key].append(system(train, test))
            console.print(f"{key.format(name)}: {found[key][-1][0]:.1f} s", soft_wrap=True)
    for key, fits in found.items():
        seconds = [round(one, 1) for one, _ in fits]
        about = {"fit": float(np.median(seconds)), "rounds": seconds, **measure(fits[-1][1], train, test)}
        cells.done.pop(key.format(name), None)  # all times are those of this run
        cells.run(key.format(name), partial(dict, about))


def fit_ours(effort: str, train: MultilabelData, test: MultilabelData) -> tuple[float, np.ndarray]:
    """Seconds of the fit, and the best labels of test rows."""
    start = time.perf_counter()
    model = ExtremeClassifier(effort=effort, random_state=0, progress=False).fit(train)
    return time.perf_counter() - start, model.predict_top(test.X, max(PLACES))[0]


def fit_peer(kind: Any, train: MultilabelData, test: MultilabelData) -> tuple[float, np.ndarray]:
    """As `fit_ours`, for a model of napkinXC."""
    rows = [row.tolist() for row in np.split(train.Y.indices, train.Y.indptr[1:-1])]
    with tempfile.TemporaryDirectory() as folder:
        model = kind(folder, verbose=False, threads=os.cpu_count())
        start = time.perf_counter()
        model.fit(csr_matrix(train.X), rows)
        seconds = time.perf_counter() - start
        predicted = model.predict(csr_matrix(test.X), top_k=max(PLACES))
    top = np.full((len(test), max(PLACES)), -1, np.int64)
    for number, labels in enumerate(predicted):
        top[number, : len(labels)] = labels
    return seconds, top


def ablated_recipes() -> dict[str, dict[str, Any]]:
    """Options of the plain network, the whole recipe, and what is between them."""
    whole = {"ensemble": 2, "precision": "bfloat16"}
    plain = whole | {name: value for options in PARTS.values() for name, value in options.items()}
    found = {"plain": plain}
    for part, options in PARTS.items():
        added = {name: value for name, value in plain.items() if name not in options}
        found[f"plain + {part}"] = added | {name: whole[name] for name in options if name in whole}
    found["whole"] = whole
    found |= {f"whole - {part}": whole | options for part, options in PARTS.items()}
    return found | {f"whole + {name}": whole | {"regularizer": name} for name in STRENGTHS}


def run_ablation(cells: Cells, seeds: int, name: str, train: MultilabelData) -> None:
    order = np.random.default_rng(0).permutation(len(train))
    held, kept = np.split(order[: ABLATION["held out"] + ABLATION["rows"]], [ABLATION["held out"]])
    fitted, other = train.select(np.sort(kept)), train.select(np.sort(held))
    common = {key: ABLATION[key] for key in ("hidden_sizes", "epochs")}

    def work(options: dict[str, Any]) -> dict[str, Any]:
        found, path = [], None
        for seed in range(seeds):
            # The path is the same for all seeds.
            own = options if path is None else options | {"skip": None}
            model = ExtremeClassifier(**common, **own, random_state=100 * seed, progress=False).fit(fitted)
            path = model.path_ = model.path_ if path is None else path
            found.append(measure(model.predict_top(other.X, max(PLACES))[0], fitted, other))
        return {metric: [cell[metric] for cell in found] for metric in ("P", "PSP")}

    for recipe, options in ablated_recipes().items():
        cells.run(f"ablation/{name}/{recipe}", partial(work, options))


def show_ablation(name: str, done: dict[str, Any]) -> None:
    rows = []
    for recipe in ablated_recipes():
        if cell := done.get(f"ablation/{name}/{recipe}"):
            seeds = [{metric: cell[metric][seed] for metric in ("P", "PSP")} for seed in range(len(cell["P"]))]
            rows.append([recipe, *mean_and_error(seeds, "P")[:3], *mean_and_error(seeds, "PSP")[:3]])
    if rows:
        columns = ["", *(f"{m}@{k}" for m in ("P", "PSP") for k in PLACES[:3])]
        report(f"{short_name(name)}, {ABLATION}", columns, rows, console)


SHAPES: dict[str, dict[str, Any]] = {
    "many labels per row": {
        "n_rows": 8000, "n_features": 1000, "n_labels": 1000, "labels_per_row": 20, "features_per_row": 40,
    },
    "many rows, few labels": {
        "n_rows": 40_000, "n_features": 2000, "n_labels": 200, "labels_per_row": 3, "features_per_row": 30,
    },
    "few rows, many features": {
        "n_rows": 2000, "n_features": 30_000, "n_labels": 1000, "labels_per_row": 5, "features_per_row": 100,
    },
}  # fmt: skip
VARIANTS = {
    "as it is": (1, 1), "quarter of the units": (0.25, 1), "twice the units": (2, 1),
    "half the epochs": (1, 0.5), "twice the epochs": (1, 2),
}  # fmt: skip


@cache
def make_shape(shape: str) -> tuple[MultilabelData, MultilabelData, dict[str, Any], str]:
    """Training and 2,000 test rows, the default recipe, and the kind of path."""
    sizes = SHAPES[shape]
    data = make_multilabel(**sizes | {"n_rows": sizes["n_rows"] + 2000}, signal=0.2, random_state=0)
    train, test = data.select(range(2000, len(data))), data.select(range(2000))
    model = ExtremeClassifier(epochs=1, progress=False).fit(train)
    return train, test, model.recipe_, type(model.path_).__name__


def vary_recipe(shape: str, units: float, epochs: float) -> dict[str, Any]:
    train, test, recipe, path = make_shape(shape)
    varied = {
        "hidden_sizes": [round(units * recipe["hidden_sizes"][0])],
        "epochs": max(1, round(epochs * recipe["epochs"])),
    }
    start = time.perf_counter()
    model = ExtremeClassifier(**varied, random_state=0, progress=False).fit(train)
    seconds = round(time.perf_counter() - start, 1)
    found = measure(model.predict_top(test.X, max(PLACES))[0], train, test)
    return {"recipe": recipe, "path": path, "fit": seconds, **found}


def run_shapes(cells: Cells) -> None:
    for shape in SHAPES:
        for variant, factors in VARIANTS.items():
            cells.run(f"shapes/{shape}/{variant}", partial(vary_recipe, shape, *factors))


def show_shapes(done: dict[str, Any]) -> None:
    for shape in SHAPES:
        found = {variant: done[key] for variant in VARIANTS if (key := f"shapes/{shape}/{variant}") in done}
        rows = []
        for variant, cell in found.items():
            measures = [f"{value:.2f}" for metric in ("P", "PSP") for value in cell[metric][:3]]
            rows.append([variant, f"{cell['fit']:.1f}", *measures])
        if rows:
            columns = ["", "s", *(f"{m}@{k}" for m in ("P", "PSP") for k in PLACES[:3])]
            report(f"{shape}: {cell['recipe']}, {cell['path']}", columns, rows, console)


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
            if (key := f"times/{name}/{effort}") in done:
                console.print(f"{effort} {name}: fitted in {done[key]['fit']} s")
        for peer in ("PLT", "BR"):
            if (key := f"peers/{name}/{peer}") in done:
                rows.append([f"napkinXC {peer}", *(f"{x:.2f}" for m in ("P", "PSP") for x in done[key][m])])
                console.print(f"{key}: fitted in {done[key]['fit']} s")
        report(f"{short_name(name)}, test", ["", *(f"{m}@{k}" for m in ("P", "PSP") for k in PLACES)], rows, console)
        show_ablation(name, done)
        if f"definitions/{name}" in done:
            show_definitions(name, done)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "kinds", nargs="*", default=["fast", "default", "best", "times", "ablation", "shapes", "definitions"]
    )
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", choices=DATA_SETS)
    parser.add_argument("--rounds", type=int, default=1)
    arguments = parser.parse_args()
    kept = Cells()
    for data_set in (arguments.only,) if arguments.only else DATA_SETS:
        both = load(data_set, DataFolder())
        if "times" in arguments.kinds:
            run_times(kept, data_set, *both, arguments.rounds)
        for effort in EFFORTS:
            if effort in arguments.kinds:
                run_effort(kept, effort, arguments.seeds, data_set, *both)
        if "ablation" in arguments.kinds:
            run_ablation(kept, arguments.seeds, data_set, both[0])
        if "definitions" in arguments.kinds:
            run_definitions(kept, data_set, *both)
    if "shapes" in arguments.kinds:
        run_shapes(kept)
    show(kept.done)
    show_shapes(kept.done)
