"""Versions of Plackett and its environment, for bug reports."""

import platform
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import plackett
from plackett.threads import get_num_threads

_PACKAGES = ("numpy", "scipy", "numba", "torch", "lightgbm", "scikit-learn", "typer", "rich", "matplotlib")


def versions() -> dict[str, str]:
    """The versions of Plackett, Python and the packages it can use; "not installed" for those that are absent."""
    found = {
        "plackett": plackett.__version__,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "processor": processor(),
        "threads": str(get_num_threads()),
    }
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def processor() -> str:
    """The model of the processor, if the system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def today() -> str:
    """The date in UTC, for results that are kept."""
    return datetime.now(UTC).date().isoformat()


def show_versions() -> None:
    """Print `versions()`, one per line."""
    for name, value in versions().items():
        print(f"{name:>14}  {value}")
