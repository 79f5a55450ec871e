"""Opening and writing: compressions, streams, wholeness."""

import bz2
import gzip
import io
import lzma
import sys
from pathlib import Path
from typing import Any

import pytest
from backports import zstd

from plackett.data import detect_format, dump_letor, load, load_letor
from plackett.data.files import atomic_write, ending, open_target, read_lines
from plackett.errors import DataError

TEXT = b"".join(b"%d qid:%d 1:%d 2:0.5\n" % (i % 3, i // 10, i) for i in range(500))
COMPRESS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstd.compress}


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_files_and_streams(suffix: str, tmp_path: Path) -> None:
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
def test_two_compressed_members_one_after_the_other(suffix: str) -> None:
    both = COMPRESS[suffix](TEXT[:5000]) + COMPRESS[suffix](TEXT[5000:])
    assert load_letor(io.BytesIO(both)).X[:, 0].tolist() == list(range(500))


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_cut_or_damaged_compressed_file(suffix: str, tmp_path: Path) -> None:
    data = COMPRESS[suffix](TEXT)
    path = tmp_path / f"data.txt{suffix}"
    for kept in (len(data) // 2, len(data) - 1):
        path.write_bytes(data[:kept])
        with pytest.raises(DataError, match="broken or cut off"):
            load_letor(path)
    middle = len(data) // 2
    path.write_bytes(data[:middle] + bytes(b ^ 0xFF for b in data[middle : middle + 8]) + data[middle + 8 :])
    with pytest.raises(DataError):
        load_letor(path)


def test_a_name_that_promises_another_compression(tmp_path: Path) -> None:
    path = tmp_path / "data.txt.gz"
    path.write_bytes(TEXT)
    with pytest.raises(DataError, match=r"ends with .gz, but the file is not compressed"):
        load_letor(path)
    path.write_bytes(lzma.compress(TEXT))
    with pytest.raises(DataError, match=r"ends with .gz, but the file is .xz"):
        load_letor(path)


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pipe(io.RawIOBase):
        """Bytes in dribs and drabs that cannot be sought, as a pipe gives them."""

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


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_letor(tmp_path / "nothing.txt")
    with pytest.raises(DataError, match="got a folder"):
        load_letor(tmp_path)


@pytest.mark.parametrize("suffix", ["", *COMPRESS])
def test_writing_compresses_by_name(suffix: str, tmp_path: Path) -> None:
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


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "data.txt"
    path.write_text("precious")
    for opened in (atomic_write(path), open_target(tmp_path / "new.txt.gz")):
        with pytest.raises(RuntimeError, match="in the middle"):
            _write_half(opened)
    assert path.read_text() == "precious"
    assert [p.name for p in tmp_path.iterdir()] == ["data.txt"]


def test_text_that_is_not_utf8() -> None:
    with pytest.raises(DataError, match="not UTF-8") as caught:
        list(read_lines(io.BytesIO(b"good\nb\xffd")))
    assert (caught.value.line, caught.value.text) == (2, "\xffd")
    assert list(read_lines(io.BytesIO(b"\xef\xbb\xbfx\r\n\xc3\xa9"))) == ["x\r\n", "\xe9"]


def test_writing_where_there_is_no_folder(tmp_path: Path) -> None:
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
def test_detection(name: str, content: bytes, wanted: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    assert detect_format(tmp_path / name) == wanted


def test_what_is_not_detected(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"hello world\n")
    with pytest.raises(DataError, match="the format is none of"):
        detect_format(tmp_path / "a.txt")
    (tmp_path / "a.txt").write_bytes(b"")
    with pytest.raises(DataError, match="empty"):
        detect_format(tmp_path / "a.txt")
    with pytest.raises(ValueError, match="format must be one of"):
        load(tmp_path / "a.txt", format="xls")
