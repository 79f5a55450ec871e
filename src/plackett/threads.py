"""Threads for the compiled kernels.

Kernels release the interpreter lock, so ordinary Python threads run them side by side. All calls share one pool:
however many threads of a program call at once, no more than `get_num_threads()` kernels run, but for calls so small
that they are over sooner than they could be handed to another thread. (numba's parallel layers abort when called from
two threads at once, or after a fork.)

A forked child has none of its parent's threads. Our own pool is made anew there. GNU's OpenMP, which LightGBM and torch
use, would wait for its old threads for ever, so they are ended before every fork and start again where they are needed.
"""

import ctypes
import itertools
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path, PurePosixPath

import numpy as np
import numpy.typing as npt

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_slots: threading.Semaphore | None = None  # as many as there may be kernels running
_chosen: int | None = None
_local = threading.local()
_openmp_ended = True  # before the latest fork
_is_limited = False

# Below this many units of work (about a nanosecond each) handing a piece to another thread costs more than it saves.
_SMALLEST_PIECE = 100_000
_PIECES_PER_THREAD = 4


_PAUSE_HARD = 2  # omp_pause_hard of omp.h


def _end_openmp_threads() -> None:
    """End the OpenMP threads of this thread, which is about to fork."""
    global _openmp_ended
    ended = [_end_threads_of(library) for library in _gnu_openmp_libraries()]
    _openmp_ended = all(ended)


def _gnu_openmp_libraries() -> set[str]:
    """Those of this process; there may be several. Other OpenMP libraries survive a fork by themselves."""
    try:
        mappings = Path("/proc/self/maps").read_text(errors="surrogateescape")
    except OSError:  # no Linux
        return set()
    return {line.split(maxsplit=5)[5] for line in mappings.splitlines() if "/libgomp" in line}


def _end_threads_of(library: str) -> bool:
    """Whether that could be done: GCC before 9 has no function for it."""
    try:
        return bool(ctypes.CDLL(library, os.RTLD_NOLOAD).omp_pause_resource_all(_PAUSE_HARD) == 0)
    except (OSError, AttributeError):
        return False


def _begin_child() -> None:
    global _pool, _slots, _lock, _chosen, _is_limited
    _pool, _slots = None, None
    _lock = threading.Lock()
    if _openmp_ended:
        return
    # OpenMP would wait for threads that are not here as soon as it wanted more than one.
    _chosen, _is_limited = 1, True
    for library in _gnu_openmp_libraries():
        with suppress(OSError, AttributeError):  # not a name that can be opened: a deleted file
            ctypes.CDLL(library, os.RTLD_NOLOAD).omp_set_num_threads(1)
    # For libraries that are not loaded yet. torch asks MKL, which would otherwise count the processors.
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    if "lightgbm.basic" in sys.modules:
        sys.modules["lightgbm.basic"]._LIB.LGBM_SetMaxThreads(ctypes.c_int(1))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_end_openmp_threads, after_in_child=_begin_child)


@cache
def _quota(root: Path = Path("/")) -> float:
    """How many processors' time the control groups of this process grant it, as those of containers do; inf: all."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # no Linux
        return math.inf
    found = math.inf
    for _, controllers, group in (line.split(":", 2) for line in lines):
        if not controllers:
            mount, read = root / "sys/fs/cgroup", _read_quota
        elif "cpu" in controllers.split(","):
            mount, read = root / "sys/fs/cgroup/cpu", _read_old_quota
        else:
            continue
        # Groups above limit those below. A container may see its own as the topmost, whatever its path is outside.
        relative = PurePosixPath(group.removeprefix("/"))
        for folder in (relative, *relative.parents):
            try:
                found = min(found, read(mount / folder))
            except (OSError, ValueError):
                continue  # not a group that is visible here, or one without a limit
    return found


def _read_quota(folder: Path) -> float:
    quota, period = (folder / "cpu.max").read_text().split()
    return int(quota) / int(period)  # "max" is no number: no limit


def _read_old_quota(folder: Path) -> float:
    """As version 1 of control groups has it; -1 means no limit."""
    quota = int((folder / "cpu.cfs_quota_us").read_text())
    return quota / int((folder / "cpu.cfs_period_us").read_text()) if quota > 0 else math.inf


def is_limited_to_one() -> bool:
    """Whether this is a forked child whose OpenMP libraries would hang with more than one thread."""
    return _is_limited


def _default_num_threads() -> int:
    """As many threads as the process may use processors; fewer where the environment says so.

    joblib and dask write OMP_NUM_THREADS and its like for their workers, so that the workers together do not use more
    threads than there are processors.
    """
    for name in ("PLACKETT_NUM_THREADS", "OMP_NUM_THREADS"):
        value = os.environ.get(name, "").split(",")[0].strip()
        if value.isdecimal() and int(value) > 0:
            return int(value)
        if value and name == "PLACKETT_NUM_THREADS":
            raise ValueError(f"the environment variable {name} must be a whole number of at least 1, got {value!r}")
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(processors, max(1, math.ceil(quota))) if (quota := _quota()) < math.inf else processors


def get_num_threads() -> int:
    """How many threads compiled kernels use together."""
    limit: int | None = getattr(_local, "limit", None)
    number = _chosen if _chosen is not None else _default_num_threads()
    return number if limit is None else min(limit, number)


def set_num_threads(number: int | None) -> None:
    """Set how many threads compiled kernels use; None returns to the default.

    The default is $PLACKETT_NUM_THREADS, else $OMP_NUM_THREADS, else the processors this process may use: those of its
    affinity, or fewer where a container grants it less time than they have.
    """
    global _chosen, _pool, _slots
    if number is not None and (isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 1):
        raise ValueError(f"number must be a whole number of at least 1, or None, got {number!r}")
    with _lock:
        _chosen = None if number is None else int(number)
        _pool, _slots = None, None  # calls under way keep theirs; its threads end with it


@contextmanager
def at_most(number: int) -> Iterator[None]:
    """Within this block, calls from this thread use at most `number` threads."""
    before = getattr(_local, "limit", None)
    _local.limit = number if before is None else min(number, before)
    try:
        yield
    finally:
        _local.limit = before


def run_over_ranges(call: Callable[[int, int], int], cost: npt.NDArray[np.integer]) -> list[int]:
    """Split units of work 0..len(cost)-1 into ranges of similar total cost and run call(first, last) on each.

    `cost` is a running total with a leading zero (such as `offsets`), in units of about a nanosecond. Returns what the
    calls return, in order.
    """
    units = len(cost) - 1
    if units <= 0:
        return []
    total = int(cost[-1])
    threads = get_num_threads()
    pieces = min(threads * _PIECES_PER_THREAD, total // _SMALLEST_PIECE, units)
    if getattr(_local, "inside", False) or total < _SMALLEST_PIECE:
        return [call(0, units)]
    wanted = np.arange(1, pieces) * (total / pieces)
    cuts = np.unique(np.concatenate(([0], np.searchsorted(cost, wanted), [units])))
    return _share_out(call, [(int(first), int(last)) for first, last in itertools.pairwise(cuts)], threads)


def _share_out(call: Callable[[int, int], int], ranges: list[tuple[int, int]], threads: int) -> list[int]:
    """Up to `threads` workers, this thread among them, each take the next range until none is left.

    A worker holds a slot while it works. This thread takes part if a slot is free at once or there is no one else to
    do the work; otherwise other callers keep all processors busy, and its ranges wait in the pool.
    """
    results = [0] * len(ranges)
    numbers = iter(range(len(ranges)))
    turn = threading.Lock()

    def work() -> None:
        _local.inside = True  # a call from within runs where it is: waiting for a slot could wait for itself
        try:
            while True:
                with turn:
                    number = next(numbers, None)
                if number is None:
                    return
                results[number] = call(*ranges[number])
        finally:
            _local.inside = False

    def work_in_slot(slots: threading.Semaphore) -> None:
        with slots:
            work()

    pool, slots = _pool_and_slots()
    alone = threads == 1 or len(ranges) == 1
    takes_part = False
    futures: list[Future[None]] = []
    try:
        try:
            takes_part = slots.acquire(blocking=alone)
            try:
                futures.extend(pool.submit(work_in_slot, slots) for _ in range(min(threads, len(ranges)) - takes_part))
            except RuntimeError:  # the interpreter is shutting down and takes no more work
                takes_part = takes_part or slots.acquire()
            if takes_part:
                work()
        finally:
            if takes_part:
                slots.release()
        for future in futures:
            future.result()
    except BaseException:  # such as KeyboardInterrupt: the others end the range they are at and take no more
        with turn:
            for _ in numbers:
                pass
        raise
    return results


def _pool_and_slots() -> tuple[ThreadPoolExecutor, threading.Semaphore]:
    global _pool, _slots
    with _lock:
        if _pool is None or _slots is None:
            number = _chosen if _chosen is not None else _default_num_threads()
            _pool = ThreadPoolExecutor(number, thread_name_prefix="plackett")
            _slots = threading.Semaphore(number)
        return _pool, _slots
