"""Opening and writing files: compression, streams, atomic writes."""

import bz2
import errno
import gzip
import io
import lzma
import os
import pty
import socket
import stat
import subprocess
import sys
import threading
import tty
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from backports import zstd

from plackett.data import detect_format, dump_letor, load, load_letor
from plackett.data.files import atomic_path, atomic_write, check_target, ending, is_mounted, open_target, read_lines
from plackett.errors import DataError
from plackett.estimators import persistence

TEXT = b"".join(b"%d qid:%d 1:%d 2:0.5\n" % (i % 3, i // 10, i) for i in range(500))
COMPRESS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstd.compress}


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_files_and_streams_are_read(suffix: str, tmp_path: Path) -> None:
    data = COMPRESS[suffix](TEXT)
    path = tmp_path / f"data.txt{suffix}"
    path.write_bytes(data)
    (tmp_path / "named-plainly").write_bytes(data)
    for source in (path, str(path), tmp_path / "named-plainly", io.BytesIO(data), path.open("rb")):
        assert load_letor(source).X[:, 0].tolist() == list(range(500))
        if hasattr(source, "close"):
            source.close()
    assert ending(path) == ".txt"


@pytest.mark.parametrize("suffix", COMPRESS)
def test_concatenated_compressed_members_are_read(suffix: str) -> None:
    both = COMPRESS[suffix](TEXT[:5000]) + COMPRESS[suffix](TEXT[5000:])
    assert load_letor(io.BytesIO(both)).X[:, 0].tolist() == list(range(500))


@pytest.mark.parametrize("suffix", COMPRESS)
def test_truncated_or_damaged_compressed_file_is_refused(suffix: str, tmp_path: Path) -> None:
    data = COMPRESS[suffix](TEXT)
    path = tmp_path / f"data.txt{suffix}"
    for kept in (len(data) // 2, len(data) - 1):
        path.write_bytes(data[:kept])
        with pytest.raises(DataError, match="damaged or truncated"):
            load_letor(path)
    middle = len(data) // 2
    path.write_bytes(data[:middle] + bytes(b ^ 0xFF for b in data[middle : middle + 8]) + data[middle + 8 :])
    with pytest.raises(DataError):
        load_letor(path)


def test_suffix_must_match_the_compression(tmp_path: Path) -> None:
    path = tmp_path / "data.txt.gz"
    path.write_bytes(TEXT)
    with pytest.raises(DataError, match=r"ends with .gz, but the file is not compressed"):
        load_letor(path)
    path.write_bytes(lzma.compress(TEXT))
    with pytest.raises(DataError, match=r"ends with .gz, but the file is .xz"):
        load_letor(path)


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pipe(io.RawIOBase):
        """A stream that gives a few bytes at a time and cannot seek, like a pipe."""

        def __init__(self, data: bytes) -> None:
            self._data = data

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            part, self._data = self._data[: min(3, len(buffer))], self._data[min(3, len(buffer)) :]
            buffer[: len(part)] = part
            return len(part)

    for data in (TEXT, gzip.compress(TEXT)):
        for read in (load_letor, load):
            monkeypatch.setattr(sys, "stdin", type("Stdin", (), {"buffer": io.BufferedReader(Pipe(data))}))
            assert len(read("-")) == 50
    with pytest.raises(TypeError, match="opened in binary mode"):
        load_letor(io.StringIO("1 qid:1 1:1\n"))  # type: ignore[arg-type]


def test_missing_files_raise_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_letor(tmp_path / "nothing.txt")
    with pytest.raises(DataError, match="got a folder"):
        load_letor(tmp_path)


@pytest.mark.parametrize("suffix", ["", *COMPRESS])
def test_suffix_selects_the_compression(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"data.txt{suffix}"
    data = load_letor(io.BytesIO(TEXT))
    dump_letor(data, path)
    assert load_letor(path).X.tolist() == data.X.tolist()
    if suffix:
        assert len(path.read_bytes()) < len(TEXT) / 2


def _write_half(opened: Any) -> None:
    with opened as file:
        file.write(b"half")
        raise RuntimeError("in the middle")


def test_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "data.txt"
    path.write_text("precious")
    for opened in (atomic_write(path), open_target(tmp_path / "new.txt.gz")):
        with pytest.raises(RuntimeError, match="in the middle"):
            _write_half(opened)
    assert path.read_text() == "precious"
    assert [p.name for p in tmp_path.iterdir()] == ["data.txt"]


def _by_path(path: Path) -> None:
    with atomic_path(path) as temporary:
        temporary.write_bytes(b"new")


def _by_file(path: Path) -> None:
    with atomic_write(path) as file:
        file.write(b"new")


def _by_target(path: Path) -> None:
    with open_target(path) as file:
        file.write(b"new")


WRITERS = pytest.mark.parametrize("write", [_by_path, _by_file, _by_target])


@WRITERS
def test_device_is_written_in_place(write: Callable[[Path], None], tmp_path: Path) -> None:
    null = tmp_path / "null"
    try:
        os.mknod(null, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes devices")
    before = null.stat()
    write(null)
    assert os.path.samestat(before, null.stat())
    assert stat.S_ISCHR(null.stat().st_mode)
    assert [path.name for path in tmp_path.iterdir()] == ["null"]


@WRITERS
def test_terminal_is_written_in_place(write: Callable[[Path], None]) -> None:
    master, slave = pty.openpty()
    tty.setraw(slave)
    try:
        write(Path(os.ttyname(slave)))
        assert os.read(master, 100) == b"new"
    finally:
        os.close(master)
        os.close(slave)


@WRITERS
def test_pipe_is_written_in_place(write: Callable[[Path], None], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()), daemon=True)
    reader.start()
    write(pipe)
    reader.join(20)
    assert found == [b"new"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@WRITERS
@pytest.mark.parametrize("exists", [True, False])
def test_links_are_kept(write: Callable[[Path], None], exists: bool, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target, near, far = tmp_path / "folder" / "data", tmp_path / "folder" / "near", tmp_path / "far"
    if exists:
        target.write_text("old")
    near.symlink_to("data")
    far.symlink_to("folder/near")
    write(far)
    assert far.is_symlink()
    assert near.is_symlink()
    assert target.read_bytes() == b"new"
    assert not target.is_symlink()


@WRITERS
def test_circular_links_are_refused(write: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        write(tmp_path / "a")
    assert len(list(tmp_path.iterdir())) == 2


@WRITERS
@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_mode_of_a_written_file(write: Callable[[Path], None], umask: int, tmp_path: Path) -> None:
    """A new file gets its mode from the umask, a replacement keeps the old mode."""
    old = tmp_path / "old"
    old.write_text("old")
    before = os.umask(umask)
    try:
        for mode in (0o600, 0o640, 0o666):
            old.chmod(mode)
            write(old)
            assert stat.S_IMODE(old.stat().st_mode) == mode
        write(tmp_path / "new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o666 & ~umask


@WRITERS
@pytest.mark.parametrize("name", ["x" * 255, "\U0001f600" * 63])
def test_long_names_can_be_written(write: Callable[[Path], None], name: str, tmp_path: Path) -> None:
    write(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_replacement_of_a_private_file_is_private_during_the_write(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.touch(0o600)
    with atomic_path(path) as temporary:
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600


@WRITERS
def test_owner_is_kept(write: Callable[[Path], None], tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root has files of others")
    path = tmp_path / "data"
    path.write_text("old")
    os.chown(path, 65534, 65533)
    write(path)
    assert (path.stat().st_uid, path.stat().st_gid) == (65534, 65533)
    assert path.read_bytes() == b"new"


@WRITERS
def test_file_is_written_in_place_if_its_owner_cannot_be_set(
    write: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root has files of others")
    path = tmp_path / "data"
    path.write_text("what was there before")
    os.chown(path, 65534, 65533)
    before = path.stat()

    def refuse(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr("plackett.data.files.os.chown", refuse)
    write(path)
    after = path.stat()
    assert path.read_bytes() == b"new"
    assert (after.st_ino, after.st_uid, after.st_gid) == (before.st_ino, 65534, 65533)
    assert [one.name for one in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize("output", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
@pytest.mark.parametrize("by", ["_by_path", "_by_file"])
def test_descriptor_paths_are_written_in_place(output: str, by: str, tmp_path: Path) -> None:
    """Redirected output goes where it was redirected: into a pipe, or after the existing content of a file."""
    if not Path(output).exists():
        pytest.skip(f"no {output} here")
    code = f"import test_files; print('printed'); test_files.{by}(test_files.Path({output!r}))"
    command, folder = [sys.executable, "-c", code], Path(__file__).parent
    done = subprocess.run(command, cwd=folder, capture_output=True, check=True)  # noqa: S603
    assert done.stdout == b"printed\nnew"
    log = tmp_path / "log"
    log.write_text("before\n")
    with log.open("ab") as file:
        subprocess.run(command, cwd=folder, stdout=file, check=True)  # noqa: S603
    assert log.read_bytes() == b"before\nprinted\nnew"


def test_unwritable_targets_are_refused_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_target("-")
    check_target(io.BytesIO())
    check_target(tmp_path / "new")
    with pytest.raises(IsADirectoryError, match="expected a file to write to, got the folder"):
        check_target(tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        check_target(tmp_path / "nowhere" / "x")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "x")
    with pytest.raises(FileNotFoundError, match=r"the folder .*nowhere does not exist"):
        check_target(tmp_path / "link")
    (tmp_path / "file").write_text("precious")
    with pytest.raises(NotADirectoryError):
        check_target(tmp_path / "file" / "x")
    monkeypatch.setattr("plackett.data.files._is_permitted", lambda path, _: path != tmp_path)  # root may do anything
    with pytest.raises(PermissionError, match="no permission to create a file in the folder"):
        check_target(tmp_path / "new")
    monkeypatch.setattr("plackett.data.files._is_permitted", lambda path, _: path == tmp_path)
    for write in (check_target, _by_path, _by_file, _by_target):
        with pytest.raises(PermissionError, match=r"no permission to write to .*file"):
            write(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "precious"


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(DataError, match="expected UTF-8 text") as caught:
        list(read_lines(io.BytesIO(b"good\nb\xffd")))
    assert (caught.value.line, caught.value.text) == (2, "\xffd")
    assert list(read_lines(io.BytesIO(b"\xef\xbb\xbfx\r\n\xc3\xa9"))) == ["x\r\n", "\xe9"]


def test_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"the folder .* does not exist"):
        dump_letor(load_letor(io.BytesIO(TEXT)), tmp_path / "nowhere" / "data.txt")


@pytest.mark.parametrize(
    ("name", "content", "wanted"),
    [
        ("a.txt", b"# SOURCE: x\n1 qid:1 1:2\n", "letor"),
        ("a.txt", b"2 qid:1 1:3\n", "letor"),
        ("a", b"# hello\n-1.5 3:2\n", "letor"),
        ("a.txt", b"3 4 5\n1,2 3:4\n", "xmc"),
        ("a.soc", b"", "preflib"),
        ("a.txt", b"# FILE NAME: x\n", "preflib"),
        ("a.csv.gz", gzip.compress(b"a,b\n1,2\n", mtime=0), "csv"),
        ("a.parquet", b"PAR1", "parquet"),
        ("a.bin", b"PAR1....", "parquet"),
    ],
)
def test_format_is_detected(name: str, content: bytes, wanted: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    assert detect_format(tmp_path / name) == wanted


def test_unknown_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"hello world\n")
    with pytest.raises(DataError, match="unknown format, expected one of"):
        detect_format(tmp_path / "a.txt")
    (tmp_path / "a.txt").write_bytes(b"")
    with pytest.raises(DataError, match="empty"):
        detect_format(tmp_path / "a.txt")
    with pytest.raises(ValueError, match="format must be one of"):
        load(tmp_path / "a.txt", format="xls")


# Mounted files and folders


def test_mounted_file_is_written_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers mount single files, which cannot be replaced."""
    path = tmp_path / "scores.txt"
    path.write_text("old")
    before = path.stat().st_ino

    def busy(*_: Any) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(Path, "replace", busy)
    with atomic_write(path) as file:
        file.write(b"new")
    assert (path.read_text(), path.stat().st_ino) == ("new", before)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not Path("/proc/self/mountinfo").exists(), reason="no list of mounts on this system")
def test_mount_points_are_known(tmp_path: Path) -> None:
    assert is_mounted(Path("/proc"))
    (tmp_path / "link").symlink_to("/proc")
    assert is_mounted(tmp_path / "link")
    assert not is_mounted(tmp_path)


def test_mounted_model_is_refused_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plackett.json").write_text("{}")
    monkeypatch.setattr(persistence, "is_mounted", lambda path: path == tmp_path)
    with pytest.raises(OSError, match="is a mount point: choose a folder inside it"):
        persistence.check_folder(tmp_path)


def test_sockets_are_refused_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        with pytest.raises(OSError, match="expected a file to write to, got the socket"):
            check_target("socket")
