"""Time and memory of every loss by list length, compared with rax, and of the fused output layer.

    python benchmarks/losses.py             # all parts
    python benchmarks/losses.py pairwise    # one of rax, output_layer, pairwise, length

Prints tables and writes results/losses.json and results/losses.png. All sides take turns in this process with the same
number of threads; memory is measured in fresh processes.
"""

import json
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from measure import report, save
from rich.console import Console

import plackett
from plackett import losses
from plackett.experiments.timing import PeakMemory, interleaved
from plackett.report.versions import today

console = Console()
RESULTS = Path(__file__).parent / "results"
LENGTHS = (10**2, 10**3, 10**4, 10**5)
PAIRWISE_LENGTHS = (10**3, 10**4, 10**5, 10**6)
BATCH = 20


def paper_lists(length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Generate lists as in figure 2 of Ma et al. (2021): 20 lists, four tiers, at most 500 items in the upper three."""
    rng = np.random.default_rng(length)
    upper = min(500, length // 2)
    labels = np.zeros((BATCH, length))
    for row in labels:
        cuts = np.sort(rng.choice(np.arange(1, upper), 2, replace=False))
        row[rng.permutation(length)[:upper]] = np.repeat([3.0, 2.0, 1.0], np.diff([0, *cuts, upper]))
    return torch.tensor(rng.standard_normal((BATCH, length)), dtype=torch.float32), torch.tensor(labels)


def step(name: str, scores: torch.Tensor, labels: torch.Tensor) -> None:
    """Run forward and backward of one loss."""
    options: dict[str, Any] = {}
    if name == "topk":  # the oracle knows the order, so break its ties
        labels = labels + torch.arange(labels.numel(), dtype=torch.float64).reshape(labels.shape) / (2 * labels.numel())
    if losses.LOSSES[name].random:
        options["generator"] = torch.Generator().manual_seed(0)
    leaf = scores.detach().requires_grad_()
    losses.get_loss(name)(leaf, labels, **options).backward()


def memory_of(arguments: tuple[str, int]) -> int:
    """Return the peak bytes that one step adds, after a small first step."""
    name, length = arguments
    for n in (100, length):
        problem = paper_lists(n)
        with PeakMemory() as peak:
            step(name, *problem)
    return peak.added


def seconds_by_length(
    names: Sequence[str], lengths: Sequence[int], repeats: Callable[[int], int]
) -> dict[str, list[float]]:
    """The seconds of a step of each loss, for each length."""
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for length in lengths:
        problem = paper_lists(length)
        found = interleaved({name: lambda n=name, p=problem: step(n, *p) for name in names}, repeats(length))
        for name in names:
            seconds[name].append(found[name])
    return seconds


def against_length() -> dict[str, Any]:
    names = list(losses.LOSSES)
    seconds = seconds_by_length(names, LENGTHS, lambda length: 5 if length < 10**5 else 1)
    jobs = [(name, length) for name in names for length in LENGTHS]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as fresh:
        added = dict(zip(jobs, fresh.map(memory_of, jobs), strict=True))
    memory = {name: [added[name, length] for length in LENGTHS] for name in names}
    return {"lengths": LENGTHS, "seconds": seconds, "bytes": memory}


def pairwise() -> dict[str, Any]:
    """Compare pairwise losses with the exact likelihood on 20 lists of 100,000 items, and by list length."""
    names = ("partition", "ranknet", "ranksvm")
    problem = paper_lists(10**5)
    seconds = interleaved({name: lambda n=name: step(n, *problem) for name in names}, 9)
    growth = seconds_by_length(names, PAIRWISE_LENGTHS, lambda length: 7 if length < 10**6 else 3)
    logs = np.log(PAIRWISE_LENGTHS)
    return {
        "seconds": seconds,
        "ratio": {name: seconds[name] / seconds["partition"] for name in names},
        "lengths": PAIRWISE_LENGTHS,
        "growth": growth,
        "exponent": {name: float(np.polyfit(logs, np.log(growth[name]), 1)[0]) for name in names},
    }


def plot(result: dict[str, Any], path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 2)
    colours = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
    for i, name in enumerate(result["seconds"]):
        style = {"color": colours[i % 7], "linestyle": "-" if i < 7 else "--", "marker": "o" if i < 7 else "s"}
        axes[0].plot(result["lengths"], result["seconds"][name], label=name, markersize=4, **style)
        axes[1].plot(result["lengths"], np.array(result["bytes"][name]) / 1e6, markersize=4, **style)
    for axis, title, unit in zip(
        axes, ("Time per step", "Peak memory added by a step"), ("seconds", "MB"), strict=True
    ):
        axis.set(xscale="log", yscale="log", xlabel="items per list (20 lists)", ylabel=unit, title=title)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    axes[1].set_ylim(bottom=0.1)  # smaller values are a page or two at most
    figure.legend(loc="outside lower center", ncols=6, frameon=False)
    figure.savefig(path, dpi=150)


def against_rax() -> dict[str, Any]:
    """Time value and gradient of 256 lists of 200 items in float32; rax is jitted."""
    os.environ.setdefault(
        "XLA_FLAGS", f"--xla_cpu_multi_thread_eigen=true intra_op_parallelism_threads={torch.get_num_threads()}"
    )
    import jax
    import rax

    rng = np.random.default_rng(1)
    scores = rng.standard_normal((256, 200)).astype(np.float32)
    grades = rng.integers(0, 5, (256, 200)).astype(np.float32)
    order = np.argsort(rng.random((256, 200)), axis=1).astype(np.float32)
    target = np.exp(grades) / np.exp(grades).sum(1, keepdims=True)
    peers = {
        "listmle": (lambda w, y: rax.listmle_loss(w, y), order),
        "listnet": (lambda w, _: rax.softmax_loss(w, target), grades),
        "ranknet": (lambda w, y: rax.pairwise_logistic_loss(w, y, reduce_fn=jax.numpy.sum) / 256, grades),
        "ranksvm": (lambda w, y: rax.pairwise_hinge_loss(w, y, reduce_fn=jax.numpy.sum) / 256, grades),
        "lambdarank": (
            lambda w, y: rax.pairwise_logistic_loss(
                w, y, lambdaweight_fn=rax.dcg_lambdaweight, reduce_fn=jax.numpy.sum
            ) / 256,
            grades,
        ),
    }  # fmt: skip
    result = {}
    for name, (peer, labels) in peers.items():
        compiled = jax.jit(jax.value_and_grad(peer))
        w, y = jax.numpy.asarray(scores), jax.numpy.asarray(labels)
        mine, tensor = torch.tensor(scores), torch.tensor(labels)
        seconds = interleaved(
            {
                "plackett": lambda n=name, a=mine, b=tensor: step(n, a, b),
                "rax": lambda f=compiled, a=w, b=y: jax.block_until_ready(f(a, b)),
            },
            repeats=21,
        )
        result[name] = {**seconds, "ratio": seconds["plackett"] / seconds["rax"]}
    return result


ROWS, FEATURES, COLUMNS = 256, 256, 670_000


def _output_layer() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, np.ndarray, np.ndarray]:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(ROWS, FEATURES, generator=generator, requires_grad=True)
    weight = (torch.randn(COLUMNS, FEATURES, generator=generator) / math.sqrt(FEATURES)).requires_grad_()
    bias = torch.zeros(COLUMNS, requires_grad=True)
    indices = np.random.default_rng(0).integers(0, COLUMNS // 5, (ROWS, 5)) + np.arange(5) * (COLUMNS // 5)
    return hidden, weight, bias, indices.ravel(), np.arange(ROWS + 1) * 5


def output_layer_step(kind: str, problem: tuple[Any, ...]) -> None:
    hidden, weight, bias, indices, offsets = problem
    if kind == "fused":
        loss = losses.linear_partition_loss(hidden, weight, bias, indices, offsets)
    else:
        loss = losses.sparse_partition_loss(torch.addmm(bias, hidden, weight.T), indices, offsets)
    loss.backward()


def output_layer_memory(kind: str) -> int:
    """Return the bytes added beyond parameters and their gradients; must run in a fresh process."""
    problem = _output_layer()
    _, weight, bias, *_ = problem
    weight.grad, bias.grad = torch.zeros_like(weight), torch.zeros_like(bias)  # allocate gradients before measuring
    weight.grad.add_(0.0)
    added = 0
    for _ in range(3):
        with PeakMemory() as peak:
            output_layer_step(kind, problem)
        added = max(added, peak.added)
    # In both cases autograd creates a new gradient of the weight before adding it to the existing one.
    return added - 4 * COLUMNS * (FEATURES + 1)


def output_layer() -> dict[str, Any]:
    problem = _output_layer()
    seconds = interleaved({kind: lambda k=kind: output_layer_step(k, problem) for kind in ("fused", "plain")}, 7)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as fresh:
        fused, plain = fresh.map(output_layer_memory, ("fused", "plain"))
    return {
        "seconds": seconds,
        "bytes": {"fused": fused, "plain": plain},
        "time_ratio": seconds["fused"] / seconds["plain"],
        "memory_ratio": fused / plain,
    }


def show_rax(r: dict[str, Any]) -> None:
    report(
        "Value and gradient of 256 lists of 200 items, float32, compared with rax (jitted)",
        ["loss", "plackett (ms)", "rax (ms)", "ratio"],
        [[n, f"{x['plackett'] * 1e3:.2f}", f"{x['rax'] * 1e3:.2f}", f"{x['ratio']:.2f}"] for n, x in r.items()],
        console,
    )


def show_output_layer(r: dict[str, Any]) -> None:
    report(
        f"Output layer and loss, {ROWS} rows x {COLUMNS:,} columns, {FEATURES} features",
        ["", "fused", "plain", "ratio"],
        [
            ["seconds", *(f"{r['seconds'][k]:.2f}" for k in ("fused", "plain")), f"{r['time_ratio']:.2f}"],
            ["MB beyond parameters and gradients", *(f"{r['bytes'][k] / 1e6:.0f}" for k in ("fused", "plain")),
             f"{r['memory_ratio']:.3f}"],
        ],
        console,
    )  # fmt: skip


def show_pairwise(r: dict[str, Any]) -> None:
    report(
        "Pairwise losses: forward and backward of 20 lists of 100,000 items, and growth of the time",
        ["loss", "seconds", "ratio to partition", *(f"N = {n:,}" for n in PAIRWISE_LENGTHS), "exponent"],
        [
            [name, f"{r['seconds'][name]:.4f}", f"{r['ratio'][name]:.2f}", *(f"{s:.4f}" for s in r["growth"][name]),
             f"{r['exponent'][name]:.2f}"]
            for name in r["seconds"]
        ],
        console,
    )  # fmt: skip


def show_length(r: dict[str, Any]) -> None:
    report(
        "Seconds per step, 20 lists of N items in four tiers, at most 500 items in the upper three",
        ["loss", *(f"N = {n:,}" for n in LENGTHS)],
        [[name, *(f"{s:.4f}" for s in row)] for name, row in r["seconds"].items()],
        console,
    )
    report(
        "Peak memory added (MB)",
        ["loss", *(f"N = {n:,}" for n in LENGTHS)],
        [[name, *(f"{b / 1e6:.1f}" for b in row)] for name, row in r["bytes"].items()],
        console,
    )
    plot(r, RESULTS / "losses.png")


PARTS = {
    "rax": (against_rax, show_rax),
    "output_layer": (output_layer, show_output_layer),
    "pairwise": (pairwise, show_pairwise),
    "length": (against_length, show_length),
}


def main(
    parts: Annotated[list[str] | None, typer.Argument(help="Which to measure; the others are kept.")] = None,
) -> None:
    torch.set_num_threads(plackett.get_num_threads())
    console.print(f"{torch.get_num_threads()} threads\n")
    path = RESULTS / "losses.json"
    stored = json.loads(path.read_text()) if path.exists() else {}
    dates = stored.get("measured", {part: stored["date"] for part in PARTS if part in stored})
    results = {part: stored[part] for part in PARTS if part in stored}
    for part in parts or PARTS:
        measure, show = PARTS[part]
        results[part], dates[part] = measure(), today()
        show(results[part])
    save({"threads": torch.get_num_threads(), "measured": dates, **results}, "losses", console)


if __name__ == "__main__":
    typer.run(main)
