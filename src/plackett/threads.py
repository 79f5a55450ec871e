"""Threads for the compiled kernels.

Kernels release the interpreter lock, so ordinary Python threads run them in parallel. All calls share one pool: however
many threads of a program call at once, at most `get_num_threads()` kernels run, except for calls so small that they
finish before they could be handed to another thread. (numba's parallel layers abort when called from two threads at
once, or after a fork.)

A forked child has none of its parent's threads. It gets a new pool. GNU OpenMP, which LightGBM and torch use, would
wait forever for its old threads, so they are ended before every fork and restarted when needed.
"""

import ctypes
import itertools
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_slots: threading.Semaphore | None = None  # one per kernel that may run
_chosen: int | None = None
_local = threading.local()
_openmp_ended = True  # before the latest fork
_is_limited = False

# Below this much work (in units of about a nanosecond), handing a piece to another thread costs more than it saves.
_SMALLEST_PIECE = 100_000
_PIECES_PER_THREAD = 4


_PAUSE_HARD = 2  # omp_pause_hard of omp.h


def _end_openmp_threads() -> None:
    """End the OpenMP threads started by this thread, which is about to fork."""
    global _openmp_ended
    ended = [_end_threads_of(library) for library in _gnu_openmp_libraries()]
    _openmp_ended = all(ended)


def _gnu_openmp_libraries() -> set[str]:
    """The GNU OpenMP libraries of this process; there may be several. Other OpenMP libraries survive a fork."""
    try:
        mappings = Path("/proc/self/maps").read_text(errors="surrogateescape")
    except OSError:  # not Linux
        return set()
    return {line.split(maxsplit=5)[5] for line in mappings.splitlines() if "/libgomp" in line}


def _end_threads_of(library: str) -> bool:
    """End the threads of a library. Returns whether that worked: GCC before 9 has no function for it."""
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
    # With more than one thread, OpenMP would wait for threads that do not exist here.
    _chosen, _is_limited = 1, True
    for library in _gnu_openmp_libraries():
        with suppress(OSError, AttributeError):  # the file cannot be opened, for example because it was deleted
            ctypes.CDLL(library, os.RTLD_NOLOAD).omp_set_num_threads(1)
    # For libraries that are not loaded yet. torch asks MKL, which would otherwise use all processors.
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    if "lightgbm.basic" in sys.modules:
        sys.modules["lightgbm.basic"]._LIB.LGBM_SetMaxThreads(ctypes.c_int(1))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_end_openmp_threads, after_in_child=_begin_child)


@cache
def _quota(root: Path = Path("/")) -> float:
    """The number of processors whose time the control groups (as of containers) grant this process; inf if all."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return math.inf
    found = math.inf
    for _, controllers, group in (line.split(":", 2) for line in lines):
        if not controllers:
            mount, read = root / "sys/fs/cgroup", _read_quota
        elif "cpu" in controllers.split(","):
            mount, read = root / "sys/fs/cgroup/cpu", _read_old_quota
        else:
            continue
        # Parent groups limit their children. A container may see its own group as the root, whatever its outer path.
        relative = PurePosixPath(group.removeprefix("/"))
        for folder in (relative, *relative.parents):
            try:
                found = min(found, read(mount / folder))
            except (OSError, ValueError):
                continue  # the group is not visible here, or has no limit
    return found


def _read_quota(folder: Path) -> float:
    quota, period = (folder / "cpu.max").read_text().split()
    return int(quota) / int(period)  # "max", no limit, raises ValueError


def _read_old_quota(folder: Path) -> float:
    """Read the quota of version 1 control groups; -1 means no limit."""
    quota = int((folder / "cpu.cfs_quota_us").read_text())
    return quota / int((folder / "cpu.cfs_period_us").read_text()) if quota > 0 else math.inf


def is_limited_to_one() -> bool:
    """Whether this is a forked child whose OpenMP libraries would hang with more than one thread."""
    return _is_limited


def _default_num_threads() -> int:
    """The number of processors that this process may use, or the number set in the environment.

    joblib and dask set OMP_NUM_THREADS and similar variables for their workers, so that all workers together do not use
    more threads than there are processors.
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
    """The total number of threads that compiled kernels use."""
    limit: int | None = getattr(_local, "limit", None)
    number = _chosen if _chosen is not None else _default_num_threads()
    return number if limit is None else min(limit, number)


def set_num_threads(number: int | None) -> None:
    """Set how many threads compiled kernels use; None restores the default.

    The default is $PLACKETT_NUM_THREADS, else $OMP_NUM_THREADS, else the number of processors this process may use:
    those of its affinity, or fewer if a container limits its processor time.
    """
    global _chosen, _pool, _slots
    if number is not None and (isinstance(number, bool) or not isinstance(number, int | np.integer) or number < 1):
        raise ValueError(f"number must be a whole number of at least 1, or None, got {number!r}")
    with _lock:
        _chosen = None if number is None else int(number)
        _pool, _slots = None, None  # running calls keep the old pool; its threads end with it


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

    `cost` is a running total with a leading zero (such as `offsets`), in units of about a nanosecond. Returns the
    results of the calls, in order.
    """
    units = len(cost) - 1
    if units <= 0:
        return []
    total = int(cost[-1])
    threads = get_num_threads()
    pieces = min(threads * _PIECES_PER_THREAD, total // _SMALLEST_PIECE, units)
    if getattr(_local, "inside", False) or total < 2 * _SMALLEST_PIECE:
        return [call(0, units)]
    wanted = np.arange(1, pieces) * (total / pieces)
    cuts = np.unique(np.concatenate(([0], np.searchsorted(cost, wanted), [units])))
    return _share_out(call, [(int(first), int(last)) for first, last in itertools.pairwise(cuts)], threads)


def _share_out(call: Callable[[int, int], int], ranges: list[tuple[int, int]], threads: int) -> list[int]:
    """Up to `threads` workers, including this thread, each take the next range until none is left.

    A worker holds a slot while it works. This thread takes part if a slot is free immediately or if it is the only
    worker; otherwise other callers keep all processors busy, and its ranges wait in the pool.
    """
    results = [0] * len(ranges)
    numbers = iter(range(len(ranges)))
    turn = threading.Lock()

    def work() -> None:
        _local.inside = True  # nested calls run in this thread: waiting for a slot could deadlock
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
            except RuntimeError:  # the interpreter is shutting down and accepts no more work
                takes_part = takes_part or slots.acquire()
            if takes_part:
                work()
        finally:
            if takes_part:
                slots.release()
        for future in futures:
            future.result()
    except BaseException:  # such as KeyboardInterrupt: the others finish their current range and stop
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


# Linear algebra

_SMALL_MATRIX = 1000


@cache
def _blas_controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def single_threaded_blas(size: int = 0) -> AbstractContextManager[Any]:
    """Within this block BLAS uses one thread, if matrices of this size are small enough to benefit.

    BLAS threads wait by spinning. On a busy machine this made the Cholesky factorisation of a 200 x 200 matrix a
    thousand times slower.
    """
    limited: AbstractContextManager[Any] = _blas_controller().limit(limits=1, user_api="blas")
    return limited if size <= _SMALL_MATRIX else nullcontext()
