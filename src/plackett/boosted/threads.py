"""How many threads LightGBM gets.

Its threads wait for each other many times per tree, and spin while they wait. On small data that takes longer than the
work, and where other processes want the processors it takes hundreds of times as long: a thread that waits uses up the
time of the one it waits for. So each thread gets a least amount of work.
"""

from __future__ import annotations

import os
from typing import Any

from plackett.threads import get_num_threads, is_limited_to_one

# From measurements on two processors (docs/boosted.md): below these a second thread gains nothing on an idle machine.
_CELLS = 100_000  # of the training data, rows x features
_VISITS = 100_000  # of rows to trees, in a prediction


def threads_to_fit(n_jobs: int | None, X: Any, most: int | None = None) -> int:
    """For training on X. `most` is the number of threads there are, if not `get_num_threads()`."""
    cells = X.nnz if hasattr(X, "nnz") else X.shape[0] * X.shape[1]
    return _number(n_jobs, cells // _CELLS, most)


def threads_to_predict(n_jobs: int | None, rows: int, trees: int) -> int:
    return _number(n_jobs, rows * trees // _VISITS)


def _number(n_jobs: int | None, shares: int, most: int | None = None) -> int:
    """`n_jobs` itself, up to the number of processors; -1 is all there are, -2 all but one; else by the work."""
    if is_limited_to_one():
        return 1
    there_are = get_num_threads() if most is None else most
    if n_jobs is None or n_jobs == 0:
        return max(1, min(there_are, shares))
    if n_jobs < 0:
        return max(1, there_are + 1 + n_jobs)
    return min(n_jobs, max(there_are, os.cpu_count() or 1))
