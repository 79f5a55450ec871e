"""Settings shared by all tests."""

import sys
from collections.abc import Callable, Generator, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

sys.path.insert(0, str(Path(__file__).parent))

from command_line import run

# No deadline, since the first example may compile a kernel; the same examples in every run.
settings.register_profile(
    "plackett", deadline=None, derandomize=True, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("plackett")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20210413)


@pytest.fixture
def plackett(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run the command with these arguments and return the exit code, output and error output."""
    return partial(run, monkeypatch, capsys)


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Run torch on one thread, since threads slow down small products."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# Tests with expensive shared fixtures: all in one process of pytest-xdist, with --dist loadgroup.
_TOGETHER = {"test_dask", "test_shards", "test_workers"}


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.stem in _TOGETHER:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


# Skip tests of packages that are not installed: `make test-lowest` and `make test-python` run without torch.
_OPTIONAL = (
    "torch", "safetensors", "onnx", "onnxscript", "onnxruntime", "catboost", "ir_measures", "jax", "napkinxc",
    "preflibtools", "pytrec_eval", "ranx", "rax", "xgboost", "datasets", "sentence_transformers", "transformers", "trl",
    "mlflow", "tensorboard", "wandb", "shap",
)  # fmt: skip
_MISSING = [name for name in _OPTIONAL if find_spec(name) is None]


def _leave_out_if_missing(report: pytest.CollectReport | pytest.TestReport) -> None:
    failure = str(report.longrepr) if report.failed else ""
    for name in _MISSING:
        if f"No module named '{name}" in failure or f"needs {name}:" in failure:
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


# Importing it would instrument the readers for all later tests.
collect_ignore = ["fuzz_readers.py", "integrations/scripts"]
