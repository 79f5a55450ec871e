"""The folder of the real data sets; tests are skipped if their data are missing."""

import os
from pathlib import Path

import pytest


def real_data(*parts: str) -> Path:
    """A file under $PLACKETT_DATA or ../shared/data; skips the test if it is missing."""
    folders = [os.environ.get("PLACKETT_DATA"), Path(__file__).parents[2] / "shared" / "data"]
    for folder in folders:
        if folder and (path := Path(folder, *parts)).exists():
            return path
    pytest.skip(f"no {'/'.join(parts)}: set PLACKETT_DATA to the folder of the real data sets")
