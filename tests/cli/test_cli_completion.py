"""Completion in shells, as `plackett --install-completion` installs it."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def test_help_offers_completion(plackett: Any) -> None:
    assert "--install-completion" in plackett("--help")[1]


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("plackett agg", "aggregate"),
        ("plackett train --obj", "--objective"),
        ("plackett reproduce plrank-f", "plrank-figure-1"),
    ],
)
def test_shells_complete_commands_options_and_names(typed: str, expected: str) -> None:
    asked = {
        "_PLACKETT_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1),
    }  # fmt: skip
    command = Path(sys.executable).with_name("plackett")
    done = subprocess.run(  # noqa: S603 - our own command
        [command], env=os.environ | asked, capture_output=True, text=True, check=True
    )
    assert expected in done.stdout.split()
