"""Speed of the exact likelihood, compared with the paper's midpoint rule, log-softmax and a tree, and its scaling.

    python benchmarks/likelihood.py

Prints tables and writes results/likelihood.json. All sides run in this process with the same number of threads.
"""

import math
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from measure import exponent, report, save
from rich.console import Console

import plackett
from plackett.experiments.timing import PeakMemory, interleaved
from plackett.losses import sparse_partition_loss

console = Console()


def midpoint_batch(w: torch.Tensor, tiers: list[slice], intervals: int, shift: float) -> torch.Tensor:
    """Apply the paper's rule to a batch of lists whose tiers lie at the same places (equations 15 and 19)."""
    log_v = torch.log((torch.arange(intervals, dtype=w.dtype) + 0.5) / intervals)
    total = w.new_zeros(len(w))
    for tier in tiers:
        rest = torch.logsumexp(w[:, tier.stop :], 1) + shift
        powers = torch.exp(w[:, tier] + shift)[:, :, None] * log_v  # (lists, items, intervals)
        integrand = (torch.exp(rest) - 1.0)[:, None] * log_v + torch.log(-torch.expm1(powers)).sum(1)
        total = total + rest - math.log(intervals) + torch.logsumexp(integrand, 1)
    return total


def paper_simulation() -> dict[str, Any]:
    """Time value and gradient of 20 lists of 1,000 items, three tiers of 167, and the midpoint rule with T = 10,000.

    The midpoint rule uses its most accurate shift c from a grid. Its gradient comes from autograd, one tier and two
    lists at a time, because its table of items x intervals would not fit into memory otherwise.
    """
    rng = np.random.default_rng(0)
    labels = np.repeat([3.0, 2.0, 1.0, 0.0], [167, 167, 167, 499])
    utilities = rng.uniform(0.0, math.log(1000), 1000)
    order = np.argsort(-(utilities + rng.gumbel(size=(20, 1000))), axis=1)
    sorted_scores = utilities[order] - np.log(np.exp(utilities).sum())  # worths sum to one, as in the paper
    scores, target = torch.tensor(sorted_scores), torch.tensor(np.broadcast_to(labels, (20, 1000)).copy())
    tiers = [slice(0, 167), slice(167, 334), slice(334, 501)]

    def exact() -> torch.Tensor:
        w = scores.clone().requires_grad_()
        plackett.partition_log_likelihood(w, target).sum().backward()
        return w.grad

    def midpoint(shift: float, lists: int = 20) -> tuple[torch.Tensor, torch.Tensor]:
        values, gradients = [], []
        for first in range(0, lists, 2):
            w = scores[first : first + 2].clone().requires_grad_()
            total = 0.0
            for tier in tiers:
                part = midpoint_batch(w, [tier], 10_000, shift)
                part.sum().backward()
                total = total + part.detach()
            values.append(total)
            gradients.append(w.grad)
        return torch.cat(values), torch.cat(gradients)

    reference = plackett.partition_derivatives(sorted_scores, target.numpy(), tol=1e-15)

    def errors(value: torch.Tensor, gradient: torch.Tensor) -> tuple[float, float]:
        lists = len(value)
        return (
            float(np.abs(value.numpy() - reference.value[:lists]).max()),
            float(np.abs(gradient.numpy() - reference.gradient[:lists]).max()),
        )

    def error_with(shift: float) -> float:
        error = max(errors(*midpoint(shift, lists=2)))
        return math.inf if math.isnan(error) else error

    best_shift = min((1.0, 2.0, 3.0, 4.0, 5.0, 6.0), key=error_with)
    seconds = interleaved({"midpoint": lambda: midpoint(best_shift), "exact": exact}, repeats=3)
    many = interleaved({"exact": exact}, repeats=50)  # three repeats are too few for such a short call
    seconds["exact"] = many["exact"]
    midpoint_error = errors(*midpoint(best_shift))
    exact_error = errors(plackett.partition_log_likelihood(scores, target), exact())
    return {
        "seconds": seconds,
        "ratio": seconds["midpoint"] / seconds["exact"],
        "best_shift": best_shift,
        "midpoint_error": midpoint_error,
        "exact_error": exact_error,
    }


def sparse_positives(rows: int, columns: int, positives: int) -> dict[str, Any]:
    """Time forward and backward for few positives among many columns, and log-softmax of the same scores."""
    rng = np.random.default_rng(1)
    indices = np.concatenate([rng.choice(columns, positives, replace=False) for _ in range(rows)])
    offsets = np.arange(rows + 1) * positives
    chosen = torch.tensor(indices).reshape(rows, positives)
    scores = torch.randn(rows, columns, generator=torch.Generator().manual_seed(2), requires_grad=True)

    def partition() -> None:
        scores.grad = None
        sparse_partition_loss(scores, indices, offsets).backward()

    def log_softmax() -> None:
        scores.grad = None
        (-torch.log_softmax(scores, 1).gather(1, chosen).sum(1).mean()).backward()

    seconds = interleaved({"partition": partition, "log_softmax": log_softmax}, repeats=15)
    return {"seconds": seconds, "ratio": seconds["partition"] / seconds["log_softmax"]}


def growing_a_tree(documents: int) -> dict[str, Any]:
    """Time value, gradient and curvature for lists of 120 with five grades, and a 31-leaf tree on 136 features."""
    import lightgbm

    rng = np.random.default_rng(3)
    documents -= documents % 120
    labels = rng.choice(np.arange(5.0), documents, p=[0.52, 0.32, 0.13, 0.02, 0.01])  # shares of MSLR
    scores = rng.standard_normal(documents)
    offsets = np.arange(0, documents + 1, 120)
    features = rng.standard_normal((documents, 136), dtype=np.float32)
    options = {"verbose": -1, "num_leaves": 31, "objective": "l2", "num_threads": plackett.get_num_threads()}
    booster = lightgbm.Booster(options, lightgbm.Dataset(features, labels, params=options).construct())
    del features
    ones = np.ones(documents)
    targets = rng.standard_normal(documents)

    seconds = interleaved(
        {
            "partition, tol=1e-6": lambda: plackett.partition_derivatives(scores, labels, offsets=offsets, tol=1e-6),
            "partition, default tol": lambda: plackett.partition_derivatives(scores, labels, offsets=offsets),
            "tree": lambda: booster.update(fobj=lambda *_: (targets, ones)),
        },
        repeats=7,
    )
    return {
        "documents": documents,
        "seconds": seconds,
        "ratio": seconds["partition, tol=1e-6"] / seconds["tree"],
        "ratio_default": seconds["partition, default tol"] / seconds["tree"],
    }


def growth_with_list_length() -> dict[str, Any]:
    """Time one list in ten tiers of equal size, from a thousand to a million items."""
    rng = np.random.default_rng(4)
    sizes = [10**3, 10**4, 10**5, 10**6]
    seconds = []
    for n in sizes:
        scores, labels = rng.standard_normal(n), np.repeat(np.arange(10.0), n // 10)
        seconds.append(interleaved({"": lambda s=scores, y=labels: plackett.partition_derivatives(s, y)}, 7)[""])
    return {"sizes": sizes, "seconds": seconds, "exponent": exponent(sizes, seconds)}


def growth_with_tier_size() -> dict[str, Any]:
    """Time one tier of 10 to 100,000 items above as many others."""
    rng = np.random.default_rng(5)
    sizes = [10, 10**2, 10**3, 10**4, 10**5]
    seconds = []
    for n in sizes:
        scores, labels = rng.standard_normal(2 * n), np.repeat([1.0, 0.0], n)
        seconds.append(interleaved({"": lambda s=scores, y=labels: plackett.partition_derivatives(s, y)}, 15)[""])
    return {"sizes": sizes, "seconds": seconds, "exponent": exponent(sizes, seconds)}


def memory_of(n: int) -> int:
    """Return the peak bytes that forward and backward of one list in ten tiers add, after a first call."""
    for size in (100, n):
        labels = torch.arange(size) // (size // 10)
        scores = torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(6), requires_grad=True)
        with PeakMemory() as peak:
            plackett.partition_log_likelihood(scores, labels).sum().backward()
    return peak.added


def memory() -> dict[str, Any]:
    """Measure peak memory by number of items, each in a fresh process, which has no freed memory to reuse."""
    sizes = [10**6, 2 * 10**6, 4 * 10**6]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as fresh:
        added = list(fresh.map(memory_of, sizes))
    return {"sizes": sizes, "bytes": added, "exponent": exponent(sizes, [float(x) for x in added])}


def main() -> None:
    threads = plackett.get_num_threads()
    torch.set_num_threads(threads)
    console.print(f"{threads} threads\n")
    results: dict[str, Any] = {"threads": threads}

    r = results["paper_simulation"] = paper_simulation()
    report(
        "Value and gradient, 20 lists of 1,000 items, three tiers of 167",
        ["rule", "seconds", "error of the value", "error of the gradient"],
        [
            [f"midpoint, T = 10,000, c = {r['best_shift']:g}", f"{r['seconds']['midpoint']:.4f}",
             *(f"{e:.1e}" for e in r["midpoint_error"])],
            ["adaptive", f"{r['seconds']['exact']:.6f}", *(f"{e:.1e}" for e in r["exact_error"])],
            ["ratio", f"{r['ratio']:.0f}", "", ""],
        ],
        console,
    )  # fmt: skip
    shapes = [(128, 30_938, 19), (128, 205_443, 75)]
    results["sparse"] = [{"shape": shape, **sparse_positives(*shape)} for shape in shapes]
    report(
        "Few positives among many columns, forward and backward, float32",
        ["rows x columns, positives", "exact partition (s)", "log-softmax (s)", "ratio"],
        [
            [f"{s['shape'][0]} x {s['shape'][1]:,}, {s['shape'][2]}", f"{s['seconds']['partition']:.4f}",
             f"{s['seconds']['log_softmax']:.4f}", f"{s['ratio']:.2f}"]
            for s in results["sparse"]
        ],
        console,
    )  # fmt: skip
    r = results["tree"] = growing_a_tree(2_000_000)
    report(
        f"{r['documents']:,} documents in lists of 120, five grades: value, gradient and curvature",
        ["", "seconds", "relative to a tree"],
        [[name, f"{s:.3f}", f"{s / r['seconds']['tree']:.2f}"] for name, s in r["seconds"].items()],
        console,
    )
    for name, title, run in (
        ("list_length", "One list of N items in ten tiers", growth_with_list_length),
        ("tier_size", "One tier of n items above n others", growth_with_tier_size),
    ):
        r = results[name] = run()
        report(
            f"{title}: time grows with exponent {r['exponent']:.2f}",
            ["items", "seconds", "ns per item"],
            [[f"{n:,}", f"{s:.6f}", f"{s / n * 1e9:.0f}"] for n, s in zip(r["sizes"], r["seconds"], strict=True)],
            console,
        )
    r = results["memory"] = memory()
    report(
        f"Peak memory added by forward and backward: grows with exponent {r['exponent']:.2f}",
        ["items", "MB", "bytes per item"],
        [[f"{n:,}", f"{b / 1e6:.0f}", f"{b / n:.0f}"] for n, b in zip(r["sizes"], r["bytes"], strict=True)],
        console,
    )
    save(results, "likelihood", console)


if __name__ == "__main__":
    main()
