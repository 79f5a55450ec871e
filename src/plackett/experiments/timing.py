"""Measure time and memory for benchmarks, with all sides of a comparison in the same run."""

import resource
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_SHORTEST_TURN = 0.02


def interleaved(
    sides: Mapping[str, Callable[[], Any]],
    repeats: int,
    shortest_turn: float = _SHORTEST_TURN,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the median seconds per call of each side. Sides take turns, so a slow spell of the machine hits them all.

    A turn lasts at least `shortest_turn` seconds. A short call is therefore repeated and finds the caches, and any
    threads that libraries leave spinning, in the state it left them itself, as in a training loop. With
    `time.process_time` as the clock, other work on the machine hardly matters; threads then add up.
    """
    calls = {}
    for name, side in sides.items():
        side()  # compile and allocate
        start = clock()
        side()
        calls[name] = max(1, round(shortest_turn / (clock() - start)))
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, side in sides.items():
            start = clock()
            for _ in range(calls[name]):
                side()
            seconds[name].append((clock() - start) / calls[name])
    return {name: statistics.median(values) for name, values in seconds.items()}


class PeakMemory:
    """The bytes that a block adds to resident memory at its peak (Linux).

    Linux records the peak, and a process may reset it. Where resetting is forbidden, a thread samples resident memory
    every half millisecond, which can miss short peaks.
    """

    def __enter__(self) -> "PeakMemory":
        self.added = 0
        self._before = resident()
        self._done = threading.Event()
        self._watcher = None if _forget_highest() else threading.Thread(target=self._watch)
        if self._watcher is not None:
            self._watcher.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(0.0005):
            self.added = max(self.added, resident() - self._before)

    def __exit__(self, *_: object) -> None:
        if self._watcher is None:
            self.added = max(0, _highest() - self._before)
        else:
            self._done.set()
            self._watcher.join()


def _forget_highest() -> bool:
    """Reset the recorded peak of resident memory; return False where that is not possible."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _highest() -> int:
    """Return the peak of resident memory. getrusage would not do: it inherits the peak of the parent process."""
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
