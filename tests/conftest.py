"""Settings shared by all tests."""

import sys
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


# Importing it instruments the readers for all tests that follow.
collect_ignore = ["fuzz_readers.py"]
