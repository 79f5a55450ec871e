"""Kernels with Python threads, forks, joblib workers and torch."""

import math
import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import plackett
from plackett import threads

LISTS = 400


@pytest.fixture
def problem(rng):
    labels = rng.integers(0, 4, LISTS * 30).astype(float)
    return rng.standard_normal(LISTS * 30), labels, np.arange(LISTS + 1) * 30


@pytest.fixture(autouse=True)
def _default_threads():
    yield
    plackett.set_num_threads(None)


def likelihood(problem):
    scores, labels, offsets = problem
    return plackett.partition_derivatives(scores, labels, offsets=offsets)


def test_any_number_of_threads_gives_the_same_bits(problem):
    results = []
    for number in (1, 2, 7):
        plackett.set_num_threads(number)
        assert plackett.get_num_threads() == number
        results.append(likelihood(problem))
    for other in results[1:]:
        for mine, theirs in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_sixteen_concurrent_callers_get_correct_results(problem):
    plackett.set_num_threads(2)
    expected = likelihood(problem)
    with ThreadPoolExecutor(16) as callers:
        for found in callers.map(lambda _: likelihood(problem), range(64)):
            np.testing.assert_array_equal(found.gradient, expected.gradient)


class Busy:
    """Work that records how many calls run at once. The first calls wait until that many are running."""

    def __init__(self, expected):
        self.running = self.most = 0
        self.expected, self.met = expected, threading.Event()
        self.lock = threading.Lock()

    def __call__(self, first, last):
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
            if self.running >= self.expected:
                self.met.set()
        self.met.wait(600)
        threading.Event().wait(0.005)  # long enough for one too many to be noticed
        with self.lock:
            self.running -= 1
        return last - first


def test_no_more_kernels_run_than_threads():
    plackett.set_num_threads(3)
    busy, cost = Busy(3), np.arange(101) * 1_000_000
    with ThreadPoolExecutor(8) as callers:
        totals = list(callers.map(lambda _: sum(threads.run_over_ranges(busy, cost)), range(8)))
    assert totals == [100] * 8
    assert busy.most == 3


@pytest.mark.parametrize("number", [1, 2])
def test_calls_with_one_piece_take_a_slot(number):
    plackett.set_num_threads(number)
    busy = Busy(number)
    with ThreadPoolExecutor(8) as callers:
        list(callers.map(lambda _: threads.run_over_ranges(busy, np.array([0, 1_000_000])), range(8)))
    assert busy.most == number


def test_nested_calls_do_not_deadlock(problem):
    plackett.set_num_threads(2)
    expected = likelihood(problem).value.sum()

    def nested(_first, _last):
        return int(likelihood(problem).value.sum() == expected)

    assert sum(threads.run_over_ranges(nested, np.arange(9) * 1_000_000)) == 8


def test_calls_during_interpreter_shutdown_work():
    code = (
        "import atexit, numpy as np, plackett; "
        "w = np.zeros(40_000); y = np.arange(40_000) % 2; o = np.arange(0, 40_001, 20); "
        "plackett.set_num_threads(2); "
        "atexit.register(lambda: print(plackett.partition_log_likelihood(w, y, offsets=o).shape))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603
    assert result.stdout.strip() == "(2000,)", result.stderr


def test_errors_in_a_piece_reach_the_caller():
    plackett.set_num_threads(2)

    def fail(_first, _last):
        raise RuntimeError("in a thread")

    with pytest.raises(RuntimeError, match="in a thread"):
        threads.run_over_ranges(fail, np.arange(11) * 1_000_000)


def _in_child(problem, expected, queue):
    queue.put(bool(np.array_equal(likelihood(problem).value, expected)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_kernels_run_after_a_fork(problem):
    plackett.set_num_threads(2)
    expected = likelihood(problem).value  # the pool exists now, and its threads are not in the child
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    children = [context.Process(target=_in_child, args=(problem, expected, queue)) for _ in range(3)]
    for child in children:
        child.start()
    assert [queue.get(timeout=600) for _ in children] == [True] * 3
    for child in children:
        child.join(timeout=600)
        assert child.exitcode == 0


def _threads_in_worker():
    return plackett.get_num_threads()


def test_joblib_workers_share_the_processors(problem, monkeypatch):
    joblib = pytest.importorskip("joblib")
    monkeypatch.delenv("PLACKETT_NUM_THREADS", raising=False)  # it would take precedence over joblib's setting
    workers = 2
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        numbers = joblib.Parallel(n_jobs=workers)(joblib.delayed(_threads_in_worker)() for _ in range(4))
        values = joblib.Parallel(n_jobs=workers)(joblib.delayed(likelihood)(problem) for _ in range(4))
    assert numbers == [1] * 4
    for found in values:
        np.testing.assert_array_equal(found.value, likelihood(problem).value)


def test_torch_limits_the_number_of_threads(problem):
    torch = pytest.importorskip("torch")
    plackett.set_num_threads(8)
    seen = []
    original = threads.run_over_ranges

    def spy(call, cost):
        seen.append(plackett.get_num_threads())
        return original(call, cost)

    from plackett.likelihood import core

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(core, "run_over_ranges", spy)
            scores, labels, offsets = problem
            plackett.partition_log_likelihood(torch.tensor(scores), torch.tensor(labels), offsets=offsets)
    finally:
        torch.set_num_threads(before)
    assert seen == [1, 1]
    assert plackett.get_num_threads() == 8


def _ask(environment):
    code = "import plackett; print(plackett.get_num_threads())"
    return subprocess.run(  # noqa: S603  # our own interpreter
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def test_environment_sets_the_number_of_threads():
    assert _ask({"PLACKETT_NUM_THREADS": "3", "OMP_NUM_THREADS": "5"}).stdout.strip() == "3"
    assert _ask({"PLACKETT_NUM_THREADS": "", "OMP_NUM_THREADS": "5,2"}).stdout.strip() == "5"
    assert int(_ask({"PLACKETT_NUM_THREADS": "", "OMP_NUM_THREADS": "abc"}).stdout) >= 1  # not our variable: no error
    wrong = _ask({"PLACKETT_NUM_THREADS": "many"})
    assert "PLACKETT_NUM_THREADS must be a whole number of at least 1, got 'many'" in wrong.stderr


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "max 100000\n"}, math.inf),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 1.5),
        (
            "0::/user/job\n",
            {"user/job/cpu.max": "max 100000\n", "user/cpu.max": "200000 50000\n"},
            4.0,
        ),  # quota of a parent group
        ("0::/docker/4711\n", {"cpu.max": "50000 100000\n"}, 0.5),  # a container sees its group as the root
        ("0::/\n", {}, math.inf),
        ("0::/\n", {"cpu.max": "nonsense\n"}, math.inf),
        (
            "3:cpu,cpuacct:/job\n2:memory:/x\n0::/\n",
            {"cpu/job/cpu.cfs_quota_us": "300000\n", "cpu/job/cpu.cfs_period_us": "100000\n"},
            3.0,
        ),
        ("3:cpu,cpuacct:/job\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, math.inf),
        (None, {}, math.inf),  # not Linux
    ],
)
def test_container_quotas_are_read(groups, files, expected, tmp_path):
    if groups is not None:
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(groups)
    for name, content in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    assert threads._quota(tmp_path) == expected


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinity on this system")
@pytest.mark.parametrize(("quota", "expected"), [(math.inf, 8), (1.5, 2), (0.2, 1), (64.0, 8)])
def test_quotas_limit_the_number_of_threads(quota, expected, monkeypatch):
    for name in ("PLACKETT_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(threads, "_quota", lambda: quota)
    assert plackett.get_num_threads() == expected
    plackett.set_num_threads(5)
    assert plackett.get_num_threads() == 5


def test_interrupted_call_releases_all_threads():
    """Other threads stop after their current range, and the next call has all slots."""
    plackett.set_num_threads(2)
    caller, begun, interrupted, ranges = threading.get_ident(), threading.Event(), threading.Event(), []

    def call(first, _last):
        if threading.get_ident() == caller:
            begun.wait()
            raise KeyboardInterrupt
        ranges.append(first)
        begun.set()
        interrupted.wait()
        return 0

    with pytest.raises(KeyboardInterrupt):
        threads.run_over_ranges(call, np.arange(101) * 1_000_000)
    interrupted.set()
    busy = Busy(2)
    assert sum(threads.run_over_ranges(busy, np.arange(101) * 1_000_000)) == 100
    assert busy.most == 2
    assert len(ranges) == 1
