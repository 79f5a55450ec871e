"""Command outputs: checked before the work, devices and pipes written in place, one-line errors."""

import os
import stat
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command_line import run as run_command

from plackett import LinearRanker, cli
from plackett.data import dump_letor, dump_scores, load_scores, make_tiered_lists

MISSING = "no-such-data.txt"  # an error about the output shows that it was found before any data was read
LATE = {
    "train, a folder": (["train", MISSING, "-o", "folder"], "--output", "exists and is not a model"),
    "train, a file": (["train", MISSING, "-o", "file"], "--output", "exists and is not a model"),
    "train, below a file": (["train", MISSING, "-o", "file/model"], "--output", "file is not a folder"),
    "train, report": (["train", MISSING, "-o", "m", "--report", "folder"], "--report", "got the folder"),
    "train, plot": (["train", MISSING, "-o", "m", "--model", "neural", "--plot", "folder"], "--plot", "got the folder"),
    "train, no such figure": (["train", MISSING, "-o", "m", "--plot", "x.xyz"], "--plot", "must end with one of"),
    "train, twice": (["train", MISSING, "-o", "m", "--report", "m"], "--output", "the same as --report"),
    "train, inside": (["train", MISSING, "-o", "folder/m", "--plot", "folder/m/x.png"], "--plot", "does not exist"),
    "train, no checkpoint": (
        ["train", MISSING, "-o", "m", "--model", "linear", "--checkpoint", "c"],
        "--checkpoint",
        "has no training state",
    ),
    "aggregate, table": (["aggregate", MISSING, "-o", "x.txt"], "--output", "must end with .csv or .json"),
    "aggregate, no folder": (["aggregate", MISSING, "-o", "none/x.csv"], "--output", "none does not exist"),
    "aggregate, model": (["aggregate", MISSING, "--model", "folder"], "--model", "exists and is not a model"),
    "aggregate, plot": (["aggregate", MISSING, "--plot", "folder"], "--plot", "got the folder"),
    "aggregate, report": (["aggregate", MISSING, "--report", "none/x.html"], "--report", "none does not exist"),
    "aggregate, twice": (["aggregate", MISSING, "-o", "x.csv", "--report", "x.csv"], "--output", "same as --report"),
    "predict": (["predict", MISSING, MISSING, "-o", "folder"], "--output", "got the folder"),
    "evaluate": (["evaluate", MISSING, MISSING, "--per-list", "none/x.csv"], "--per-list", "none does not exist"),
    "demo": (["demo", "--seeds", "1", "--output", "file"], "--output", "expected a folder that can be written to"),
    "reproduce": (["reproduce", "nothing", "-o", "file"], "--output", "expected a folder that can be written to"),
}  # fmt: skip


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    """Run a command in its own folder; return its exit code, output and errors."""

    monkeypatch.chdir(tmp_path)
    return partial(run_command, monkeypatch, capsys, columns=400)


@pytest.mark.parametrize("case", LATE)
def test_outputs_are_checked_before_the_work(case: str, run: Any, tmp_path: Path) -> None:
    arguments, option, message = LATE[case]
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("precious")
    code, out, err = run(*arguments)
    assert code == 2
    assert out == ""
    assert f"Invalid value for {option}" in err.replace("'", "").replace(" / -o", "")
    assert message in " ".join(err.split())
    assert MISSING not in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
    assert (tmp_path / "file").read_text() == "precious"


def test_tree_checkpoint_is_checked_before_training(run: Any, tmp_path: Path) -> None:
    dump_letor(make_tiered_lists(5, random_state=0), tmp_path / "data.txt")
    code, _, err = run("train", "data.txt", "-o", "model", "--checkpoint", "none/state")
    assert code == 1
    assert "Error: the folder" in err
    assert "none does not exist" in err
    assert [path.name for path in tmp_path.iterdir()] == ["data.txt"]


def test_devices_pipes_and_links_are_written_in_place(run: Any, tmp_path: Path) -> None:
    """Pages, figures, tables and scores are written to existing devices, pipes and links."""
    data = make_tiered_lists(5, random_state=0)
    dump_letor(data, tmp_path / "data.txt")
    dump_scores(data.y, tmp_path / "scores.txt")
    (tmp_path / "ballots.csv").write_text("a,b,c\n1,2,3\n2,1,3\n3,2,1\n1,3,2\n")
    pipe, link = tmp_path / "pipe", tmp_path / "link.csv"
    os.mkfifo(pipe)
    link.symlink_to("table.csv")
    (tmp_path / "table.csv").touch(0o600)
    read: list[bytes] = []
    for option, beginning in (("--plot", b"\x89PNG"), ("--report", b"<!DOCTYPE html>")):
        reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
        reader.start()
        code, _, err = run("aggregate", "ballots.csv", "-o", link, option, pipe)
        reader.join(20)
        assert code == 0, err
        assert read.pop()[:20].upper().startswith(beginning.upper())
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert link.is_symlink()
    assert (tmp_path / "table.csv").read_text().startswith("rank,")
    assert stat.S_IMODE((tmp_path / "table.csv").stat().st_mode) == 0o600
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    assert run("evaluate", "data.txt", "scores.txt", "--per-list", pipe)[0] == 0
    reader.join(20)
    assert read.pop().count(b"\n") == 6


def test_standard_output_has_only_scores(tmp_path: Path) -> None:
    data = make_tiered_lists(20, random_state=0)
    dump_letor(data, tmp_path / "data.txt")
    LinearRanker().fit(data).save(tmp_path / "model")
    command = [sys.executable, "-m", "plackett", "predict", "model", "data.txt", "-o", "/dev/stdout"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)  # noqa: S603
    (tmp_path / "scores.txt").write_bytes(done.stdout)
    assert load_scores(tmp_path / "scores.txt", data).shape == data.y.shape


def _allocate() -> None:
    import torch

    torch.empty(1 << 50, dtype=torch.float64)


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("fail", "message"),
    [
        (lambda: _raise(MemoryError()), "Error: not enough memory\n"),
        (lambda: _raise(MemoryError("Unable to allocate 15 GiB")), "not enough memory: Unable to allocate 15 GiB\n"),
        (_allocate, "Error: not enough memory: "),
        (lambda: _raise(RuntimeError("CUDA out of memory.\nMore of it")), "not enough memory: CUDA out of memory.\n"),
        (lambda: _raise(OSError(28, "No space left on device")), "Error: [Errno 28] No space left on device\n"),
    ],
)
def test_user_errors_are_one_line(fail: Any, message: str, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "app", fail)
    code, out, err = run("train")
    assert (code, out) == (1, "")
    assert message in err
    assert err.count("\n") == 1


def test_program_errors_show_a_traceback(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "app", lambda: _raise(RuntimeError("a fault")))
    with pytest.raises(RuntimeError, match="a fault"):
        run("train")


def test_full_disk_while_saving_is_a_one_line_error(tmp_path: Path) -> None:
    """Simulated by a limit on the size of files."""
    dump_letor(make_tiered_lists(20, random_state=0), tmp_path / "data.txt")
    code = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)); " + (
        "from plackett.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "train", "data.txt", "-o", "model", "--model", "neural", "-p", "epochs=1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 1
    assert "Error: [Errno 27] File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["data.txt"]
