"""The `plackett` command, run in this process."""

import sys
from typing import Any

import pytest

from plackett import cli


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: Any, columns: int = 200
) -> tuple[int, str, str]:
    """Exit code, output and error output of the command on a terminal of this width."""
    monkeypatch.setattr(sys, "argv", ["plackett", *map(str, arguments)])
    monkeypatch.setenv("COLUMNS", str(columns))
    try:
        cli.main()
        code = 0
    except SystemExit as stop:
        code = int(stop.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err
