"""Opening and writing files: any compression, streams, standard input, whole or not at all.

A source is a path, `-` for standard input, or a binary stream. What is compressed is told by its first bytes; a name
that promises a compression must keep its word, and what it expands to is limited (`check_expansion`). A target is a
path (its ending chooses the compression) or a binary stream; a file appears under its name only when it is complete.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO, Any, TypeAlias

from plackett.errors import DataError, MissingDependencyError

Source: TypeAlias = "str | os.PathLike[str] | IO[bytes]"
"""A path, `-`, or a binary stream."""

_AT_ONCE = 1 << 22
_FREE = 1 << 30
_FREE_LINES = 1 << 22
_EXPANSION = 250.0

_MAGIC = {".gz": b"\x1f\x8b", ".bz2": b"BZh", ".xz": b"\xfd7zXZ\x00", ".zst": b"\x28\xb5\x2f\xfd"}


def _zstd_file(raw: Any, mode: str) -> Any:
    module = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    try:
        return import_module(module).ZstdFile(raw, mode)
    except ImportError:
        raise MissingDependencyError(module, "files", "reading and writing .zst files") from None


_READERS: dict[str, Callable[[Any], Any]] = {
    ".gz": lambda raw: gzip.GzipFile(fileobj=raw),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
    ".zst": lambda raw: _zstd_file(raw, "rb"),
}
_WRITERS: dict[str, Callable[[Any], Any]] = {
    ".gz": lambda raw: gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename=""),
    ".bz2": lambda raw: bz2.BZ2File(raw, "wb"),
    ".xz": lambda raw: lzma.LZMAFile(raw, "wb"),  # noqa: SIM115 - closed where it is used
    ".zst": lambda raw: _zstd_file(raw, "wb"),
}


def source_name(source: Source) -> str:
    """How messages name it."""
    if isinstance(source, str | os.PathLike):
        return "standard input" if source == "-" else os.fspath(source)
    return str(getattr(source, "name", "stream"))


def is_path(source: Source) -> bool:
    """Whether it names a file that can be opened twice: not a stream, nor a pipe or device by name."""
    if not isinstance(source, str | os.PathLike) or source == "-":
        return False
    return Path(source).is_file() or not Path(source).exists() or Path(source).is_dir()


def is_compressed_name(source: Source) -> bool:
    return Path(source_name(source)).suffix.lower() in _MAGIC


def ending(source: Source) -> str:
    """The lower-case ending of the name, without that of a compression: data.TXT.gz -> .txt."""
    path = Path(source_name(source))
    return (path.with_suffix("") if path.suffix.lower() in _MAGIC else path).suffix.lower()


def _binary(stream: Any) -> IO[bytes]:
    if isinstance(stream, io.TextIOBase) or not (hasattr(stream, "read") or hasattr(stream, "write")):
        raise TypeError(f"expected a path or a stream opened in binary mode, got {type(stream).__name__}")
    return stream  # type: ignore[no-any-return]


def _open_raw(source: Source) -> IO[bytes]:
    if not isinstance(source, str | os.PathLike):
        return _binary(source)
    if source == "-":
        return sys.stdin.buffer
    if Path(source).is_dir():
        raise DataError("expected a file, got a folder", file=source_name(source))
    return Path(source).open("rb")


def read_stored(source: Source) -> bytes:
    """All bytes of a source as they are stored, compressed or not."""
    raw = _open_raw(source)
    try:
        return raw.read()
    finally:
        if raw is not source and source != "-":
            raw.close()


def check_expansion(stored: int, expanded: int, file: str, free: int | None = None) -> None:
    """Refuse what would take far more memory than its stored bytes suggest: a small file could fill any machine.

    A GiB (`free`) is always allowed, then 250 times what is stored ($PLACKETT_MAX_EXPANSION): text of real data has
    about 10.
    """
    chosen = os.environ.get("PLACKETT_MAX_EXPANSION", "")
    try:
        largest = float(chosen or _EXPANSION)
    except ValueError:
        raise ValueError(f"PLACKETT_MAX_EXPANSION must be a number, or inf, got {chosen!r}") from None
    if expanded > max(_FREE if free is None else free, largest * stored):
        raise DataError(
            f"{stored:,} bytes expand to {expanded:,} or more, over {largest:g} times as many",
            file=file,
            remedy="If the file is to be trusted, set the environment variable PLACKETT_MAX_EXPANSION higher",
        )


class _Joined(io.RawIOBase):
    """Bytes read ahead, then the rest of a stream that cannot seek. `given` counts what was read."""

    def __init__(self, head: bytes, rest: IO[bytes] | OpenSource) -> None:
        self._head, self._rest = head, rest
        self.given = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._head[: len(buffer)] or self._rest.read(len(buffer))
        self._head = self._head[len(data) :]
        self.given += len(data)
        buffer[: len(data)] = data
        return len(data)


def _read_head(raw: IO[bytes], size: int) -> bytes:
    head = b""
    while len(head) < size and (more := raw.read(size - len(head))):
        head += more
    return head


class OpenSource:
    """An open source: `read` decompressed bytes; `position` and `size` count the bytes as stored.

    `free` is what compressed bytes may expand to in any case, see `check_expansion`.
    """

    def __init__(self, source: Source, free: int | None = None) -> None:
        self.name = source_name(source)
        self._free = free
        self._raw = _open_raw(source)
        self._owned = self._raw is not source and source != "-"
        self.size = os.fstat(self._raw.fileno()).st_size if self._owned else 0
        try:
            self._stream = self._decompress(source)
        except BaseException:
            self.close()
            raise

    def _decompress(self, source: Source) -> Any:
        head = _read_head(self._raw, 6)
        found = next((suffix for suffix, magic in _MAGIC.items() if head.startswith(magic)), None)
        promised = Path(self.name).suffix.lower()
        if promised in _MAGIC and promised != found and is_path(source):
            raise DataError(
                f"the name ends with {promised}, but the file is {'not compressed' if found is None else found}",
                file=self.name,
                remedy="Rename it, or fetch it again",
            )
        if self._owned and self._raw.seekable():
            self._raw.seek(0)
            stored: Any = self._raw
            self._stored = self._raw.tell
        else:
            joined = _Joined(head, self._raw)
            stored = io.BufferedReader(joined)
            self._stored = lambda: joined.given
        self._compressed, self._expanded = found is not None, 0
        return stored if found is None else _READERS[found](stored)

    @property
    def position(self) -> int:
        return self._raw.tell() if self._owned and self._raw.seekable() else 0

    def read(self, size: int = -1) -> bytes:
        if not self._compressed:
            return bytes(self._stream.read(size))
        parts = []
        while size != 0 and (part := self._read_part(_AT_ONCE if size < 0 else min(size, _AT_ONCE))):
            parts.append(part)
            size -= len(part) if size > 0 else 0
        return b"".join(parts)

    def _read_part(self, size: int) -> bytes:
        try:
            part = bytes(self._stream.read(size))
        except Exception as error:  # each of the four libraries has classes of its own
            raise DataError(
                f"the compressed data is broken or cut off ({error})", file=self.name, remedy="Fetch the file again"
            ) from error
        self._expanded += len(part)
        check_expansion(self._stored(), self._expanded, self.name, self._free)
        return part

    def close(self) -> None:
        if self._owned:
            self._raw.close()


@contextmanager
def open_source(source: Source, free: int | None = None) -> Iterator[OpenSource]:
    opened = OpenSource(source, free)
    try:
        yield opened
    finally:
        opened.close()


def read_lines(source: Source) -> Iterator[str]:
    """The lines of a text file with their ends, for readers in Python. A leading byte-order mark is left out.

    Objects of Python take many times the bytes they stand for, so compressed text may expand to less than elsewhere.
    """
    name = source_name(source)
    with open_source(source, _FREE_LINES) as file:
        # Bytes that are no UTF-8 become surrogates, which are found where they are: in their line.
        text = io.TextIOWrapper(
            io.BufferedReader(_Joined(b"", file)), encoding="utf-8-sig", errors="surrogateescape", newline=""
        )
        for number, line in enumerate(text, 1):
            if number == 1 and line.startswith("\ufeff"):  # a name would begin with it, and lose it when it is written
                raise DataError("a second byte-order mark", file=name, line=1, remedy="Leave it out")
            if "\0" in line:
                raise DataError(
                    "a NUL byte", file=name, line=number, text=line, remedy="The file is damaged or not a text"
                )
            if not line.isascii():
                _check_utf8(line, name, number)
            yield line


def _check_utf8(line: str, name: str, number: int) -> None:
    try:
        line.encode()
    except UnicodeEncodeError as error:
        text = line[error.start : error.start + 20].encode("utf-8", "surrogateescape").decode("latin-1")
        raise DataError("not UTF-8 text", file=name, line=number, text=text, remedy="Convert it to UTF-8") from None


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path to write to; what is there takes the name asked for when it is complete and on disk.

    After an error nothing has changed.
    """
    final = Path(path)
    if not final.parent.is_dir():
        raise FileNotFoundError(f"the folder {final.parent} does not exist")
    temporary = final.with_name(f".{final.name}.{secrets.token_hex(4)}.part")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(final)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file that takes its name when it is complete and on disk; after an error nothing has changed."""
    with atomic_path(path) as temporary, temporary.open("xb") as file:
        yield file


@contextmanager
def open_target(target: Source) -> Iterator[IO[bytes]]:
    """A binary stream into a path, compressed as its ending says, or into an open stream as it is."""
    if not isinstance(target, str | os.PathLike):
        yield _binary(target)
    elif target == "-":
        yield sys.stdout.buffer
    else:
        compress = _WRITERS.get(Path(target).suffix.lower())
        with atomic_write(target) as raw:
            if compress is None:
                yield raw
            else:
                with compress(raw) as stream:
                    yield stream
