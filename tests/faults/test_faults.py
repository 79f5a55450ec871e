"""A few trials of each fault; `make faults` runs many."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TRIALS = Path(__file__).with_name("trials.py")


def trials(*faults: str, launcher: tuple[str, ...] = ()) -> dict[str, Any]:
    """Run fault=times, ... and return the counts of trials tried, survived and lost, by fault."""
    command = [*launcher, sys.executable, "-W", "error", str(TRIALS), "0", *faults]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (our own code)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


def assert_survived(results: dict[str, Any]) -> None:
    for result in results.values():
        assert result["lost"] == 0, result["losses"]
        assert result["tried"] == result["survived"] > 0


def test_training_survives_lost_processes() -> None:
    """Processes are killed or frozen, alone or as one of two."""
    assert_survived(trials("kill_alone=2", "kill_one_of_two=1", "kill_one_of_two_shards=1", "freeze_one_of_two=1"))


def test_training_survives_a_torchrun_restart() -> None:
    assert_survived(trials("elastic_restart=1"))


def test_training_survives_file_faults() -> None:
    results = trials(
        "limited_files=1", "limited_files_of_shards=1", "read_only=1", "cut_checkpoints=1", "two_writers=2",
    )  # fmt: skip
    assert_survived(results)
    assert results["cut_checkpoints"]["tried"] > 1000  # every byte of the header


def can_mount() -> bool:
    """Whether this user may mount a file system."""
    unshare = shutil.which("unshare")
    return unshare is not None and subprocess.run([unshare, "-Urm", "true"], check=False).returncode == 0  # noqa: S603


def test_training_survives_a_full_disk() -> None:
    if not can_mount():
        pytest.skip("no file system can be mounted here: unshare -Urm fails")
    assert_survived(trials("full_disk=1", launcher=("unshare", "-Urm")))
