"""Costs and savings of several processes in extreme classification, and a model for many processes.

    python benchmarks/mesh.py

measured   generated data shaped like Wiki10-31K: seconds per step (in total, CPU, in messages), bytes sent and memory,
           for one process and for two, split over the data or over the labels; each process has one thread, and one
           process is also run with two threads
constants  of this machine: seconds per multiplication, per Adam parameter, per entry and per feature of the first
           layer; latency and seconds per byte of gloo between two processes
model      the same step for up to 256 processes and 10^8 labels: seconds, bytes, memory, and the point where more
           processes stop paying

Prints tables and writes results/mesh.json and results/mesh.png.
"""

import itertools
import json
import math
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measure import report, save
from rich.console import Console

console = Console()
HIDDEN, BATCH, FEW, STEPS, TURNS = 256, 128, 2, 24, 3
SIDES = {
    "one process": (1, 1, 1),
    "one process, two threads": (1, 1, 2),
    "two, data": (2, 1, 1),
    "two, labels": (2, 2, 1),
}
"""Processes, label shards, and threads per process."""


# Code that runs in separate processes


class Messages:
    """Counts the seconds spent in torch.distributed's collectives and the bytes that this process passes to them."""

    def __init__(self) -> None:
        from torch import distributed

        self.seconds, self.bytes, self.count = 0.0, 0, 0
        for name, which in (("all_reduce", 0), ("all_gather", 1), ("broadcast", 0)):
            setattr(distributed, name, self._timed(getattr(distributed, name), which))

    def _timed(self, collective: Callable[..., Any], which: int) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            start = time.perf_counter()
            found = collective(*arguments, **options)
            self.seconds += time.perf_counter() - start
            self.bytes += arguments[which].numel() * arguments[which].element_size()
            self.count += 1
            return found

        return call


def fit(folder: str, shards: int) -> dict[str, float]:
    """Train for a number of steps and measure one step."""
    from scipy.sparse import load_npz

    from plackett import ExtremeClassifier
    from plackett.distributed import join_process_group

    X, Y = (load_npz(Path(folder) / f"{name}.npz") for name in "XY")

    def run(rows: int) -> float:
        model = ExtremeClassifier(
            ensemble=1, skip=None, hidden_sizes=(HIDDEN,), input_dropout=0.0, hidden_dropout=0.0, optimizer="adam",
            weight_decay=0.0, learning_rate=1e-3, schedule="constant", batch_size=BATCH, epochs=1, random_state=0,
            label_shards=shards, progress=False,
        )  # fmt: skip
        return float(model.fit(X[:rows], Y[:rows]).history_["seconds"][0])

    messages = Messages()

    def counted(steps: int) -> dict[str, float]:
        before = time.process_time(), messages.seconds, messages.bytes, messages.count
        seconds = run(steps * BATCH)
        after = time.process_time(), messages.seconds, messages.bytes, messages.count
        names = "busy", "in messages", "MB", "messages"
        return {"seconds": seconds} | {name: b - a for name, a, b in zip(names, before, after, strict=True)}

    with join_process_group():
        run(FEW * BATCH)  # load compiled kernels
        few, all_steps = counted(FEW), counted(STEPS)
    a_step = {name: (all_steps[name] - few[name]) / (STEPS - FEW) for name in few}  # excludes the start of training
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {**a_step, "MB": a_step["MB"] / 1e6, "peak GiB": peak}


def link() -> dict[str, float]:
    """Time an all-reduce of 8 bytes and one of 64 MB between two processes."""
    import torch
    from torch import distributed

    from plackett.distributed import join_process_group

    found = {}
    with join_process_group():
        for name, numbers, times in (("small", 1, 300), ("large", 1 << 23, 5)):
            message, seconds = torch.zeros(numbers, dtype=torch.float64), []
            for _ in range(times):
                distributed.barrier()
                start = time.perf_counter()
                distributed.all_reduce(message)
                seconds.append(time.perf_counter() - start)
            found[name] = min(seconds)
    return found


def together(count: int, threads: int, *arguments: Any) -> list[Any]:
    """Run this file in `count` processes; return what they print."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    common = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    running = [
        subprocess.Popen(  # noqa: S603 (this file)
            [sys.executable, __file__, *map(str, arguments)],
            env={**os.environ, **common, "RANK": str(rank), "OMP_NUM_THREADS": str(threads)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    return [json.loads(process.communicate()[0]) for process in running]


# Measurements


def measure() -> dict[str, dict[str, float]]:
    """Return medians over turns, averaged over processes."""
    from scipy.sparse import save_npz

    from plackett.data import make_multilabel_like

    turns: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory() as folder:
        train, _ = make_multilabel_like("wiki10-31k", random_state=0)
        train = train.select(np.arange(STEPS * BATCH))
        save_npz(Path(folder) / "X.npz", train.X)
        save_npz(Path(folder) / "Y.npz", train.Y)
        for _, (side, (count, shards, threads)) in itertools.product(range(TURNS), SIDES.items()):
            parts = together(count, threads, "fit", folder, shards)
            turns[side].append({key: float(np.mean([part[key] for part in parts])) for key in parts[0]})
    found = {
        side: {key: float(np.median([t[key] for t in several])) for key in several[0]}
        for side, several in turns.items()
    }
    digits = {"seconds": 3, "busy": 3, "in messages": 3, "MB": 2, "messages": 1, "peak GiB": 2}
    rows = [[side, *(f"{x[key]:.{places}f}" for key, places in digits.items())] for side, x in found.items()]
    columns = ["", "s per step", "CPU s", "s in messages", "MB per step", "messages", "peak GiB per process"]
    report(f"Wiki10-31K shape, {STEPS} steps of {BATCH} rows, {HIDDEN} hidden units", columns, rows, console)
    return found


def constants() -> dict[str, float]:
    """Measure one thread and the link between two processes; take the best of each, as the machine may be shared."""
    import torch
    from scipy.sparse import csr_array

    from plackett.losses import linear_partition_loss
    from plackett.neural.networks import SparseLinear, SparseRows

    torch.set_num_threads(1)
    labels, entries, features = 31_000, 600, 100_000
    rng = np.random.default_rng(0)
    output = torch.nn.Linear(HIDDEN, labels)
    hidden = torch.randn(BATCH, HIDDEN, requires_grad=True)
    indices = np.concatenate([rng.choice(labels, 19, replace=False) for _ in range(BATCH)])
    offsets = np.arange(BATCH + 1) * 19

    def layer() -> None:
        linear_partition_loss(hidden, output.weight, output.bias, indices, offsets).backward()

    adam = torch.optim.Adam(output.parameters(), 1e-3, fused=True)
    columns = np.sort(rng.integers(0, features, (BATCH, entries)), 1)
    starts = np.arange(BATCH + 1) * entries
    matrix = csr_array((np.ones(BATCH * entries, np.float32), columns.reshape(-1), starts), shape=(BATCH, features))
    first = SparseLinear(features, HIDDEN, True)
    sparse = torch.optim.SparseAdam([first.weight], 1e-3)
    rows = SparseRows(matrix, torch.device("cpu"))

    def bag() -> None:
        sparse.zero_grad()
        first(rows, 0.0).sum().backward()

    def least(call: Callable[[], Any]) -> float:
        seconds = []
        for _ in range(10):
            start = time.process_time()
            call()
            seconds.append(time.process_time() - start)
        return min(seconds)

    between = together(2, 1, "link")[0]
    return {
        "s per multiplication": least(layer) / (4 * BATCH * labels * HIDDEN),
        "s per parameter": least(adam.step) / (labels * HIDDEN),
        "s per number of an entry": least(bag) / (BATCH * entries * HIDDEN),
        "s per parameter of a feature": least(sparse.step) / (len(np.unique(columns)) * HIDDEN),
        "latency": between["small"] / 2,
        "s a byte": between["large"] / (8 << 23),
    }


# Model for more processes

ROWS, POSITIVES, ENTRIES, FEATURES = 1024, 19, 600, 100_000
WORKERS = [1, 2, 4, 8, 16, 32, 64, 128, 256]
LABELS = [30_938, 10**6, 10**7, 10**8]


def touched_by(rows: float) -> float:
    """Return the number of features that occur in this many rows."""
    return FEATURES * (1 - math.exp(-rows * ENTRIES / FEATURES))


def step(c: dict[str, float], labels: int, data: int, shards: int, rows: int = ROWS) -> dict[str, float]:
    """Model one step of a mesh of `data` x `shards` processes.

    Collectives use rings, so n bytes over p processes take 2 (p - 1) latencies and 2 (p - 1) / p * n byte times. The
    sparse gradient of the first layer is gathered, which sends (p - 1) times its bytes.
    """
    own_rows, own_labels = rows / data, labels / shards

    def ring(size: float, count: int) -> tuple[float, float]:
        """Return the seconds of an all-reduce and the bytes that each process sends."""
        sent = 2 * (count - 1) / count * size
        return 2 * (count - 1) * c["latency"] + sent * c["s a byte"], sent

    exchanged = [8 * own_rows, 8 * own_rows * (1 + POSITIVES), 4 * own_rows * HIDDEN]
    messages = [ring(size, shards) for size in exchanged] + [ring(4 * own_labels * HIDDEN, data)]
    gathered = (data - 1) * touched_by(own_rows) * (4 * HIDDEN + 8)
    messages.append(((data - 1) * c["latency"] + gathered * c["s a byte"], gathered))
    compute = (
        4 * own_rows * own_labels * HIDDEN * c["s per multiplication"]
        + own_labels * HIDDEN * c["s per parameter"]
        + own_rows * ENTRIES * HIDDEN * c["s per number of an entry"]
        # Every process gathers the features of all rows.
        + touched_by(rows) * HIDDEN * c["s per parameter of a feature"]
    )
    waiting = sum(seconds for seconds, _ in messages)
    memory = 16 * own_labels * HIDDEN + 12 * FEATURES * HIDDEN + 16 * own_rows * HIDDEN + 2e8
    return {
        "seconds": compute + waiting,
        "in messages": waiting,
        "MB": sum(sent for _, sent in messages) / 1e6,
        "GiB": memory / 2**30,
    }


def best(c: dict[str, float], labels: int, workers: int, largest: float) -> dict[str, float] | None:
    """Return the fastest mesh that fits into `largest` GiB per process, or None."""
    shapes = [(workers // shards, shards) for shards in WORKERS if shards <= workers]
    found = [{"shards": shards, "data": data, **step(c, labels, data, shards)} for data, shards in shapes]
    return min((x for x in found if x["GiB"] <= largest), key=lambda x: x["seconds"], default=None)


def extrapolate(c: dict[str, float], links: dict[str, dict[str, float]], largest: float = 64.0) -> dict[str, Any]:
    found: dict[str, Any] = {"rows": ROWS, "GiB a process": largest}
    for name, between in links.items():
        rows = []
        with_link = {**c, **between}
        found[name] = {}
        for labels in LABELS:
            alone = step(with_link, labels, 1, 1)["seconds"]
            cells = {workers: best(with_link, labels, workers, largest) for workers in WORKERS}
            pays = [w for w, x in cells.items() if x is not None and alone / x["seconds"] >= 0.5 * w]
            fits = [w for w, x in cells.items() if x is not None]
            found[name][labels] = {
                "meshes": cells,
                "pays until": max(pays, default=None),
                "fits from": min(fits, default=None),
            }
            for workers in (8, 64, 256):
                x = cells[workers]
                if x is not None:
                    rows.append(
                        [f"{labels:,}", str(workers), f"{x['data']} x {x['shards']}", f"{x['seconds']:.3g}",
                         f"{x['in messages'] / x['seconds']:.0%}", f"{x['MB']:.3g}", f"{x['GiB']:.3g}",
                         f"{alone / x['seconds']:.3g}", str(max(pays, default="-"))]
                    )  # fmt: skip
        columns = [
            "labels",
            "processes",
            "data x labels",
            "s per step",
            "waiting",
            "MB per step",
            "GiB",
            "speed-up",
            "pays until",
        ]
        report(f"Model, {ROWS} rows per step; {name}", columns, rows, console)
    return found


def check(c: dict[str, float], measured: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return the seconds predicted by the model divided by those measured."""
    meshes = {"one process": (1, 1), "two, data": (2, 1), "two, labels": (1, 2)}
    return {
        side: step(c, LABELS[0], *mesh, rows=BATCH)["seconds"] / measured[side]["seconds"]
        for side, mesh in meshes.items()
    }


def draw(measured: dict[str, dict[str, float]], model: dict[str, Any], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    colours = ["#0072B2", "#D55E00", "#009E73", "#CC79A7"]
    figure = Figure(figsize=(11, 8), layout="constrained")
    FigureCanvasAgg(figure)
    (left, middle), (lower, right) = figure.subplots(2, 2)
    names = list(measured)
    rest = [measured[name]["seconds"] - measured[name]["in messages"] for name in names]
    left.barh(names, rest, color=colours[0], label="computing")
    left.barh(
        names, [measured[name]["in messages"] for name in names], left=rest, color=colours[1], label="in messages"
    )
    left.set(xlabel="seconds per step", title="Measured, shape of Wiki10-31K")
    left.set_xlim(right=1.5 * max(measured[name]["seconds"] for name in names))  # room for the legend
    left.legend(loc="lower right")
    middle.barh(names, [measured[name]["peak GiB"] for name in names], color=colours[2])
    middle.set(xlabel="peak memory per process (GiB)", title="Measured, shape of Wiki10-31K")
    for axis in (left, middle):
        axis.invert_yaxis()
    name = next(key for key in model if isinstance(model[key], dict))
    for (labels, cell), colour in zip(model[name].items(), colours, strict=True):
        known = {workers: x for workers, x in cell["meshes"].items() if x is not None}
        lower.plot(list(known), [x["seconds"] for x in known.values()], "o-", color=colour, label=f"{labels:,} labels")
        sent = {workers: x["MB"] for workers, x in known.items() if workers > 1}
        right.plot(list(sent), list(sent.values()), "o-", color=colour)
        if cell["pays until"] is not None:
            at = cell["pays until"]
            lower.plot([at], [known[at]["seconds"]], "o", color=colour, markersize=14, fillstyle="none")
    lower.set(
        xlabel="processes",
        ylabel="seconds per step",
        title="Model: best mesh; circle: last point that pays",
    )
    right.set(xlabel="processes", ylabel="MB sent per process and step", title="Model: communication")
    for axis in (lower, right):
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xticks(WORKERS, [str(w) for w in WORKERS])
        axis.grid(alpha=0.3)
    lower.legend(loc="lower left", fontsize="small")
    lower.set_ylim(bottom=0.05)
    figure.savefig(path, dpi=120)


def main() -> None:
    measured = measure()
    c = constants()
    report("Constants", ["", "ns"], [[name, f"{value * 1e9:.4g}"] for name, value in c.items()], console)
    fit_of_model = check(c, measured)
    report(
        "Model seconds / measured seconds", list(fit_of_model), [[f"{x:.2f}" for x in fit_of_model.values()]], console
    )
    network = {"latency": 50e-6, "s a byte": 1 / 1.25e9}
    links = {"this machine's own link": {}, "assumed: 10 Gbit/s, 50 microseconds": network}
    model = extrapolate(c, links)
    path = Path(__file__).parent / "results" / "mesh.png"
    draw(measured, model, path)
    save(
        {"measured": measured, "constants": c, "model over measured": fit_of_model, "model": model},
        "mesh",
        console,
    )


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main()
    elif sys.argv[1] == "fit":
        print(json.dumps(fit(sys.argv[2], int(sys.argv[3]))))
    else:
        print(json.dumps(link()))
