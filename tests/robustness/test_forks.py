"""Forks of a process that has fitted and predicted. `tests/fork_table.py` runs every combination."""

import os
import subprocess
import sys

import pytest
from fork_table import ACTIONS, WAYS, run_apart

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


@pytest.mark.parametrize("old_openmp", [False, True], ids=["threads ended", "old OpenMP"])
def test_forked_children_can_do_everything(old_openmp):
    outcomes = run_apart(list(ACTIONS), list(ACTIONS), old_openmp=old_openmp)
    assert len(outcomes) == len(WAYS) * len(ACTIONS)
    assert [outcome for outcome in outcomes if isinstance(outcome[2], str)] == []


@pytest.mark.parametrize(("parent", "child"), [("BoostedRanker", "NeuralRanker"), ("NeuralRanker", "BoostedRanker")])
@pytest.mark.parametrize("old_openmp", [False, True], ids=["threads ended", "old OpenMP"])
def test_library_loaded_only_in_the_child_works(parent, child, old_openmp):
    """LightGBM and torch share an OpenMP library if both are linked to the same name."""
    pytest.importorskip("torch")
    outcomes = run_apart([parent], [child], old_openmp=old_openmp)
    assert [outcome for outcome in outcomes if isinstance(outcome[2], str)] == []


_THREADS = """
import ctypes, os, lightgbm, torch, plackett
from plackett import threads

def tell():
    limit = ctypes.c_int(0)
    lightgbm.basic._LIB.LGBM_GetMaxThreads(ctypes.byref(limit))
    print(plackett.get_num_threads(), torch.get_num_threads(), limit.value, flush=True)

if OLD:
    threads._gnu_openmp_libraries = lambda: {"libgomp of GCC 8"}
plackett.set_num_threads(2)
torch.set_num_threads(2)
if os.fork() == 0:
    tell()
    os._exit(0)
os.wait()
tell()
"""


@pytest.mark.parametrize(("old", "child"), [(False, "2 2 -1"), (True, "1 1 1")])
def test_children_have_one_thread_only_with_old_openmp(old, child):
    pytest.importorskip("torch")
    code = _THREADS.replace("OLD", str(old))
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603
    assert found.stdout.splitlines() == [child, "2 2 -1"], found.stderr
