"""How long calls take and how much memory they add, for benchmarks: all sides of a comparison in the same run."""

import resource
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_SHORTEST_TURN = 0.02


def interleaved(
    sides: Mapping[str, Callable[[], Any]], repeats: int, shortest_turn: float = _SHORTEST_TURN
) -> dict[str, float]:
    """Median seconds of a call of each side. Sides take turns, so that a slow spell of the machine hits all of them.

    A turn lasts at least `shortest_turn` seconds, so that a short call finds the caches, and the threads that other
    libraries leave spinning for a while, as it leaves them itself: which is how it runs in a training loop.
    """
    calls = {}
    for name, side in sides.items():
        side()  # compile and allocate
        start = time.perf_counter()
        side()
        calls[name] = max(1, round(shortest_turn / (time.perf_counter() - start)))
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, side in sides.items():
            start = time.perf_counter()
            for _ in range(calls[name]):
                side()
            seconds[name].append((time.perf_counter() - start) / calls[name])
    return {name: statistics.median(values) for name, values in seconds.items()}


class PeakMemory:
    """Bytes that a block adds to the resident memory at its highest, by a look at it every half millisecond (Linux)."""

    def __enter__(self) -> "PeakMemory":
        self.added = 0
        self._before = resident()
        self._done = threading.Event()
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(0.0005):
            self.added = max(self.added, resident() - self._before)

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._watcher.join()


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
