"""Cost of extreme classification: ExtremeClassifier compared with a plain torch model with softmax cross-entropy.

    python benchmarks/extreme.py [stand-ins [wiki10-31k] [delicious-200k]]

epochs   seconds per epoch and memory on generated data shaped like Wiki10-31K and Delicious-200K; models take turns,
         each in its own process; the larger shape runs 20 steps, scaled to an epoch
million  one training step with a million labels, batch 256, hidden 256: memory beyond parameters and optimiser state
top      the best five of a million labels, compared with a dense matrix product and torch.topk
stand-ins  one network of the default effort on generated data in the shape of Wiki10-31K and Delicious-200K, with the
         exact loss for three epochs and with sampled negatives for the same time: seconds, memory, P@k on test rows

Prints tables and writes results/extreme.json; stand-ins are kept in results/extreme_stand_ins.json.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from measure import report, save
from rich.console import Console

from plackett.experiments.timing import PeakMemory, interleaved

console = Console()
HIDDEN, BATCH = 256, 128
STEPS = {"wiki10-31k": None, "delicious-200k": 20}  # None: a whole epoch
STAND_INS = ("wiki10-31k", "delicious-200k")
STAND_IN_EPOCHS = 3
TURNS = 3


def plain_model(train: Any, rows: int) -> tuple[float, float]:
    """Train a plain model; return the seconds of the steps, and the loss.

    The model is an embedding bag, ReLU and a linear layer, trained by SparseAdam and Adam with cross-entropy against
    the uniform distribution over a row's labels.
    """
    import torch
    from torch.nn.functional import embedding_bag

    torch.manual_seed(0)
    features, labels = train.X.shape[1], train.Y.shape[1]
    first = torch.nn.Parameter(torch.randn(features, HIDDEN) / HIDDEN**0.5)
    output = torch.nn.Linear(HIDDEN, labels)
    sparse = torch.optim.SparseAdam([first], 1e-3)
    dense = torch.optim.Adam(output.parameters(), 1e-3, fused=True)
    norms = np.sqrt(train.X.multiply(train.X).sum(1))
    start = time.perf_counter()
    total = 0.0
    for begin in range(0, rows, BATCH):
        x, y = train.X[begin : begin + BATCH], train.Y[begin : begin + BATCH]
        values = x.data / np.repeat(norms[begin : begin + BATCH], np.diff(x.indptr))
        weights = torch.from_numpy(values.astype(np.float32))
        hidden = torch.relu(_bag(embedding_bag, torch.from_numpy(x.indices.astype(np.int64)), first, x.indptr, weights))
        target = torch.zeros(len(norms[begin : begin + BATCH]), labels)
        row = np.repeat(np.arange(len(target)), np.diff(y.indptr))
        target[row, y.indices.astype(np.int64)] = 1.0
        target /= target.sum(1, keepdim=True).clamp(min=1.0)
        loss = torch.nn.functional.cross_entropy(output(hidden), target)
        sparse.zero_grad()
        dense.zero_grad()
        loss.backward()
        sparse.step()
        dense.step()
        total += float(loss.detach())
    return time.perf_counter() - start, total


def _bag(bag: Any, columns: Any, weight: Any, offsets: np.ndarray, values: Any) -> Any:
    import torch

    return bag(
        columns, weight, torch.from_numpy(offsets[:-1].astype(np.int64)), per_sample_weights=values, mode="sum",
        sparse=True,
    )  # fmt: skip


def our_model(train: Any, rows: int, objective: str) -> tuple[float, float]:
    from plackett import ExtremeClassifier

    model = ExtremeClassifier(
        objective, ensemble=1, skip=None, precision="float32", hidden_sizes=(HIDDEN,), input_dropout=0.0,
        hidden_dropout=0.0, optimizer="adam", weight_decay=0.0,
        learning_rate=1e-3, schedule="constant", batch_size=BATCH, epochs=1, random_state=0, progress=False,
    )  # fmt: skip
    model.fit(train.select(np.arange(rows)))
    return model.history_["seconds"][0], model.history_["loss"][0]


def one_epoch(side: str, shape: str) -> dict[str, float]:
    """Measure one epoch; must run in its own process."""
    import torch

    from plackett.data import make_multilabel_like

    train, _ = make_multilabel_like(shape, random_state=0)
    rows = len(train) if STEPS[shape] is None else STEPS[shape] * BATCH
    warm = train.select(np.arange(2 * BATCH))
    call = plain_model if side == "cross-entropy" else our_model
    options = () if side == "cross-entropy" else (side,)
    call(warm, len(warm), *options)  # load compiled kernels
    del torch
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds, _ = call(train, rows, *options)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": seconds * len(train) / rows, "peak GiB": peak / 2**20, "added GiB": (peak - before) / 2**20}


def run_epochs() -> dict[str, Any]:
    sides = ("cross-entropy", "partition", "lower_bound")
    found: dict[str, Any] = {}
    for shape in STEPS:
        turns: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
        for _ in range(TURNS if STEPS[shape] is None else 1):
            for side in sides:
                command = [sys.executable, __file__, side, shape]
                done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
                turns[side].append(json.loads(done.stdout))
        found[shape] = {
            side: {key: float(np.median([turn[key] for turn in values])) for key in values[0]}
            for side, values in turns.items()
        }
        plain = found[shape]["cross-entropy"]["seconds"]
        rows = [
            [side, f"{cell['seconds']:.1f}", f"{cell['seconds'] / plain:.2f}", f"{cell['peak GiB']:.2f}"]
            for side, cell in found[shape].items()
        ]
        scaled = "" if STEPS[shape] is None else f" (from {STEPS[shape]} steps)"
        report(f"{shape} shape{scaled}", ["loss", "s per epoch", "ratio", "peak GiB"], rows, console)
    return found


def run_million(labels: int = 1_000_000, rows: int = 256, hidden: int = 256) -> dict[str, float]:
    """Take one step of the output layer with the fused loss and Adam."""
    import torch

    from plackett.losses import linear_partition_loss

    rng = np.random.default_rng(0)
    output = torch.nn.Linear(hidden, labels)
    optimiser = torch.optim.Adam(output.parameters(), 1e-3, fused=True)
    for parameter in output.parameters():  # allocate the state before measuring what a step adds
        parameter.grad = torch.zeros_like(parameter)
    optimiser.step()
    optimiser.zero_grad(set_to_none=True)
    inputs = torch.randn(rows, hidden)
    counts = rng.integers(1, 10, rows)
    indices = np.concatenate([rng.choice(labels, count, replace=False) for count in counts])
    offsets = np.concatenate(([0], np.cumsum(counts)))

    def step() -> None:
        loss = linear_partition_loss(inputs, output.weight, output.bias, indices, offsets)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    with PeakMemory() as memory:
        step()
    start = time.perf_counter()
    step()
    found = {"seconds": time.perf_counter() - start, "added GiB": memory.added / 2**30}
    report(
        f"One step with {labels:,} labels, {rows} rows, {hidden} hidden units",
        ["s", "GiB beyond parameters and state"],
        [[f"{found['seconds']:.2f}", f"{found['added GiB']:.2f}"]],
        console,
    )
    return found


def run_top(labels: int = 1_000_000, rows: int = 256, hidden: int = 256) -> dict[str, float]:
    import torch

    from plackett.neural import top_columns

    torch.manual_seed(0)
    weight, bias, inputs = torch.randn(labels, hidden), torch.randn(labels), torch.randn(rows, hidden)
    with torch.no_grad():
        found = interleaved(
            {
                "in chunks": lambda: top_columns([(inputs, weight, bias)], 5),
                "matmul and topk": lambda: torch.addmm(bias, inputs, weight.T).topk(5, 1),
            },
            3,
        )
    ratio = found["in chunks"] / found["matmul and topk"]
    report(
        f"The best five of {labels:,} labels, {rows} rows",
        ["", "s", "ratio"],
        [[name, f"{s:.3f}", f"{s / found['matmul and topk']:.2f}"] for name, s in found.items()],
        console,
    )
    return {**found, "ratio": ratio}


def one_stand_in(shape: str, negatives: int | None, limit: float) -> dict[str, Any]:
    """Train one network of the default effort, with sampled negatives for `limit` seconds; own process."""
    from plackett import ExtremeClassifier, metrics
    from plackett.data import make_multilabel_like

    train, test = make_multilabel_like(shape, random_state=0)
    test = test.select(np.arange(len(test))[:2000])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    # The learning rate stays, because the number of epochs with sampled negatives is not known in advance.
    model = ExtremeClassifier(
        ensemble=1, epochs=STAND_IN_EPOCHS if negatives is None else 1000, schedule="constant", negatives=negatives,
        random_state=0, progress=False,
    ).fit(train, callbacks=[] if negatives is None else [lambda _: time.perf_counter() - start > limit])  # fmt: skip
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    top = model.predict_top(test.X, 5)[0]
    return {
        "rows": len(train), "units": model.recipe_["hidden_sizes"][0],
        "epochs": len(model.history_), "seconds": seconds, "peak GiB": peak / 2**20, "before GiB": before / 2**20,
        "P": [100.0 * float(metrics.multilabel_precision(top, test.Y, k=k)) for k in (1, 3, 5)],
    }  # fmt: skip


def run_stand_ins(shapes: Sequence[str]) -> None:
    """Replace these shapes in the stored results."""
    stored = Path(__file__).parent / "results" / "extreme_stand_ins.json"
    found = {name: cell for name, cell in json.loads(stored.read_text()).items() if "," in name}
    for shape in shapes:
        limit = 0.0
        for negatives in (None, 1000):
            command = [sys.executable, __file__, "stand-in", shape, str(negatives), str(limit)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
            cell = json.loads(done.stdout)
            limit = cell["seconds"]
            found[f"{shape}, {'exact' if negatives is None else f'{negatives} negatives'}"] = cell
    columns = ["loss", "units", "epochs", "s", "GiB", "P@1", "P@3", "P@5"]
    for shape in STAND_INS:
        cells = {name.split(", ")[1]: cell for name, cell in found.items() if name.startswith(shape)}
        rows = [
            [
                name, str(cell["units"]), str(cell["epochs"]), f"{cell['seconds']:.0f}", f"{cell['peak GiB']:.1f}",
                *(f"{x:.2f}" for x in cell["P"]),
            ]
            for name, cell in cells.items()
        ]  # fmt: skip
        report(f"Generated data of the shape of {shape}, one network", columns, rows, console)
    save(found, "extreme_stand_ins", console)


if __name__ == "__main__":
    if sys.argv[1:2] == ["stand-in"]:
        _, _, shape, negatives, limit = sys.argv
        print(json.dumps(one_stand_in(shape, None if negatives == "None" else int(negatives), float(limit))))
    elif sys.argv[1:2] == ["stand-ins"]:
        run_stand_ins(sys.argv[2:] or list(STAND_INS))
    elif len(sys.argv) == 3:
        print(json.dumps(one_epoch(sys.argv[1], sys.argv[2])))
    else:
        save({"million": run_million(), "top": run_top(), "epochs": run_epochs()}, "extreme", console)
