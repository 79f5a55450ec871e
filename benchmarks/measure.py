"""Timing for benchmarks: every side of a comparison in the same run, medians of interleaved repeats."""

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


def interleaved(sides: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median seconds of each side. Sides take turns, so that a slow spell of the machine hits all of them."""
    for side in sides.values():
        side()  # compile, allocate, warm the caches
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, side in sides.items():
            start = time.perf_counter()
            side()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """The slope of log time against log size, by least squares."""
    import numpy as np

    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def peak_memory_of(script: str, *arguments: str) -> int:
    """Bytes that a script adds to its peak memory after it has printed its baseline, in a fresh process."""
    output = subprocess.run(  # noqa: S603  # our own interpreter
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True
    ).stdout  # fmt: skip
    return int(output.strip().splitlines()[-1])


def max_resident() -> int:
    """Peak resident bytes of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def report(title: str, columns: list[str], rows: list[list[str]], console: Console) -> None:
    table = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    console.print()


def save(results: Mapping[str, Any], name: str, console: Console) -> None:
    """Write the results as JSON beside the benchmarks' other results."""
    from plackett.environment import versions

    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"versions": versions(), **results}, indent=1) + "\n")
    console.print(f"JSON in {path.relative_to(Path(__file__).parents[1])}")
