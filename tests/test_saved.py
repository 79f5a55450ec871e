"""Models on disk: nothing is lost while they are written, nothing is taken that is no model."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fuzz
import numpy as np
import pytest

from plackett.estimators import load_model, saved
from plackett.estimators.saved import _FILES

KINDS = ["boosted", "neural", "extreme", "linear", "coordinate_ascent", "aggregator"]


@pytest.fixture(scope="module")
def fitted() -> Callable[[str], Any]:
    """A fitted model of a kind, one for all tests."""
    found: dict[str, Any] = {}
    return lambda kind: found[kind] if kind in found else found.setdefault(kind, fuzz.MODELS[kind]())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
@pytest.mark.parametrize("kind", KINDS)
def test_modes_of_all_files_are_those_of_the_umask(
    kind: str, umask: int, fitted: Callable[[str], Any], tmp_path: Path
) -> None:
    model, path = fitted(kind), tmp_path / "above" / "model"
    before = os.umask(umask)
    try:
        model.save(path)
    finally:
        os.umask(before)
    assert {file.name: oct(stat.S_IMODE(file.stat().st_mode)) for file in path.iterdir()} == {
        file.name: oct(0o666 & ~umask) for file in path.iterdir()
    }
    assert {file.name for file in path.iterdir()} <= _FILES
    assert stat.S_IMODE(path.stat().st_mode) == 0o777 & ~umask


def test_a_private_folder_stays_private(fitted: Callable[[str], Any], tmp_path: Path) -> None:
    path = tmp_path / "model"
    fitted("linear").save(path)
    path.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(path, 65534, 65533)
    before = path.stat()
    fitted("linear").save(path)
    after = path.stat()
    assert stat.S_IMODE(after.st_mode) == 0o700
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)
    assert after.st_ino != before.st_ino


@pytest.mark.parametrize("name", ["README.md", "data", "notes/", "model.txt/", "covariance.npy@"])
def test_files_of_others_in_the_folder(name: str, fitted: Callable[[str], Any], tmp_path: Path) -> None:
    """Refused; a folder or a link under the name of a file of a model is none."""
    path = tmp_path / "model"
    fitted("aggregator").save(path)
    before = contents(path)
    if name.endswith("/"):
        (path / name).mkdir()
    elif name.endswith("@"):
        (path / name[:-1]).symlink_to(tmp_path / "elsewhere")
    else:
        (path / name).write_text("precious")
    with pytest.raises(FileExistsError, match=rf"holds more than a model, which would be lost: {name.strip('/@')}"):
        fitted("linear").save(path)
    assert all((path / name).read_bytes() == content for name, content in before.items())
    assert (path / name.strip("@")).lstat()
    assert [one.name for one in tmp_path.iterdir()] == ["model"]


def test_files_that_others_put_there_meanwhile(
    fitted: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model"
    fitted("linear").save(path)
    original = saved._put_in_place

    def put(new: Path, final: Path) -> None:
        (final / "precious").write_text("of others")
        original(new, final)

    monkeypatch.setattr(saved, "_put_in_place", put)
    with pytest.warns(UserWarning, match=r"what was to be removed stays in .*\.part: "):
        fitted("linear").save(path)
    (left,) = tmp_path.glob(".model.*.part")
    assert contents(left) == {"precious": b"of others"}
    assert np.array_equal(fuzz.use(load_model(path)), fuzz.use(fitted("linear")))


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("kind", ["linear", "extreme"])
def test_a_link_stays_a_link(kind: str, exists: bool, fitted: Callable[[str], Any], tmp_path: Path) -> None:
    (tmp_path / "versions").mkdir()
    target, link = tmp_path / "versions" / "one", tmp_path / "current"
    if exists:
        fitted("aggregator").save(target)
    link.symlink_to("versions/one")
    fitted(kind).save(link)
    assert link.is_symlink()
    assert np.array_equal(fuzz.use(load_model(target)), fuzz.use(fitted(kind)))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["current", "versions"]
    assert [one.name for one in (tmp_path / "versions").iterdir()] == ["one"]


def test_all_is_on_disk_before_the_old_model_goes(
    fitted: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model"
    fitted("linear").save(path)
    events: list[str] = []
    sync, exchange, remove, fsync = saved.sync, saved._put_in_place, saved._remove, os.fsync
    synced: list[int] = []

    def told(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            synced.clear()
            result = function(*arguments)
            events.append(f"{name} {arguments[0].name if arguments[0] != tmp_path else 'above'}")
            assert name != "sync" or synced == [arguments[0].stat().st_ino]
            return result

        return run

    def really(handle: int) -> None:
        fsync(handle)
        synced.append(os.fstat(handle).st_ino)

    monkeypatch.setattr(os, "fsync", really)
    monkeypatch.setattr(saved, "sync", told("sync", sync))
    monkeypatch.setattr(saved, "_put_in_place", told("place", exchange))
    monkeypatch.setattr(saved, "_remove", told("remove", remove))
    fitted("linear").save(path)
    new = events[-1].removeprefix("remove ")
    files = {f"sync {name}" for name in ("plackett.json", "coefficients.npy", "covariance.npy")}
    assert set(events[:3]) == files
    assert events[3:] == [f"sync {new}", f"place {new}", "sync above", f"remove {new}"]


def test_folders_that_cannot_be_written_to(
    fitted: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(FileExistsError, match="exists and is not a model"):
        fitted("linear").save(tmp_path / "file")
    with pytest.raises(NotADirectoryError, match="file is not a folder"):
        fitted("linear").save(tmp_path / "file" / "new" / "model")
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        fitted("linear").save(tmp_path / "a")
    fitted("linear").save(tmp_path / "model")
    monkeypatch.setattr(saved, "may_change", lambda _: False)  # root may do anything
    with pytest.raises(PermissionError, match="may not be replaced"):
        fitted("linear").save(tmp_path / "model")
    monkeypatch.setattr("plackett.data.files.may_change", lambda _: False)
    with pytest.raises(PermissionError, match="no folder can be made in"):
        fitted("linear").save(tmp_path / "new" / "model")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a", "b", "file", "model"]
    assert (tmp_path / "file").read_text() == "precious"
