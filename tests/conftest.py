"""Settings shared by all tests."""

import sys
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

# The first example may compile a kernel: no deadline, and the same examples in every run.
settings.register_profile(
    "plackett", deadline=None, derandomize=True, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("plackett")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20210413)


# What their tests share is costly to set up: all in one process of pytest-xdist, with --dist loadgroup.
_TOGETHER = {"test_dask", "test_shards", "test_workers"}


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.stem in _TOGETHER:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


# Tests of packages that are not installed are left out: `make test-lowest` and `make test-python` are without torch.
_OPTIONAL = (
    "torch", "safetensors", "onnx", "onnxscript", "onnxruntime", "catboost", "ir_measures", "jax", "napkinxc",
    "preflibtools", "pytrec_eval", "ranx", "rax", "xgboost",
)  # fmt: skip
_MISSING = [name for name in _OPTIONAL if find_spec(name) is None]


def _leave_out_if_missing(report: pytest.CollectReport | pytest.TestReport) -> None:
    said = str(report.longrepr) if report.failed else ""
    for name in _MISSING:
        if f"No module named '{name}" in said or f"needs {name}:" in said:
            report.outcome, report.longrepr = "skipped", (report.nodeid, 0, f"Skipped: needs {name}")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _leave_out_if_missing(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _leave_out_if_missing(report)
    return report


# Importing it instruments the readers for all tests that follow.
collect_ignore = ["fuzz_readers.py"]
