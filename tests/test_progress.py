"""The progress bar."""

import io

import pytest

from plackett import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("wanted", [True, False])
def test_bar_appears_only_if_wanted(wanted, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(progress, "_PATIENCE", -1.0)
    monkeypatch.setattr(progress, "_BETWEEN", 0.0)
    with progress.progress_bar("Training", 2, wanted) as update:
        update(1, "epoch 1")
        update(2, "epoch 2")
    assert ("Training epoch 2" in terminal.getvalue()) is wanted


def test_bar_is_silent_without_a_terminal(monkeypatch):
    output = io.StringIO()
    monkeypatch.setattr("sys.stderr", output)
    with progress.progress_bar("Training", 1, wanted=True) as update:
        update(1)
    assert output.getvalue() == ""
