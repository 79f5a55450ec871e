"""What Plackett runs on, for bug reports."""

import platform
import sys
from importlib.metadata import PackageNotFoundError, version

from plackett.threads import get_num_threads

_PACKAGES = ("numpy", "scipy", "numba", "torch", "lightgbm", "scikit-learn", "typer", "rich", "matplotlib")


def versions() -> dict[str, str]:
    """The versions of Plackett, Python and the packages it can use; "not installed" where absent."""
    found = {
        "plackett": version("plackett"),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "threads": str(get_num_threads()),
    }
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def show_versions() -> None:
    """Print `versions()`, one a line."""
    for name, value in versions().items():
        print(f"{name:>14}  {value}")
