"""Threads for the compiled kernels.

Kernels release the interpreter lock, so ordinary Python threads run them side by side. All calls share one pool:
however many threads of a program call at once, no more than `get_num_threads()` kernels run, but for calls so small
that they are over sooner than they could be handed to another thread. A forked child starts with no pool and makes its
own. (numba's parallel layers abort when called from two threads at once, or after a fork.)
"""

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_slots: threading.Semaphore | None = None  # as many as there may be kernels running
_chosen: int | None = None
_local = threading.local()

# Below this many units of work (about a nanosecond each) handing a piece to another thread costs more than it saves.
_SMALLEST_PIECE = 100_000
_PIECES_PER_THREAD = 4


def _forget_pool() -> None:
    global _pool, _slots, _lock
    _pool, _slots = None, None
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


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
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def get_num_threads() -> int:
    """How many threads compiled kernels use together."""
    limit: int | None = getattr(_local, "limit", None)
    number = _chosen if _chosen is not None else _default_num_threads()
    return number if limit is None else min(limit, number)


def set_num_threads(number: int | None) -> None:
    """Set how many threads compiled kernels use; None returns to the default.

    The default is $PLACKETT_NUM_THREADS, else $OMP_NUM_THREADS, else the processors this process may use.
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
    takes_part = slots.acquire(blocking=alone)
    futures: list[Future[None]] = []
    try:
        futures.extend(pool.submit(work_in_slot, slots) for _ in range(min(threads, len(ranges)) - takes_part))
    except RuntimeError:  # the interpreter is shutting down and takes no more work
        takes_part = takes_part or slots.acquire()
    if takes_part:
        try:
            work()
        finally:
            slots.release()
    for future in futures:
        future.result()
    return results


def _pool_and_slots() -> tuple[ThreadPoolExecutor, threading.Semaphore]:
    global _pool, _slots
    with _lock:
        if _pool is None or _slots is None:
            number = _chosen if _chosen is not None else _default_num_threads()
            _pool = ThreadPoolExecutor(number, thread_name_prefix="plackett")
            _slots = threading.Semaphore(number)
        return _pool, _slots
