"""Opening and writing files: any compression, streams, standard input, whole or not at all.

A source is a path, `-` for standard input, or a binary stream. What is compressed is told by its first bytes; a name
that promises a compression must keep its word, and what it expands to is limited (`check_expansion`). A target is a
path (its ending chooses the compression) or a binary stream; a file appears under its name only when it is complete.
Devices and pipes are written to, never replaced.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO, Any, TypeAlias

from plackett.errors import DataError, MissingDependencyError

Source: TypeAlias = "str | os.PathLike[str] | IO[bytes]"
"""A path, `-`, or a binary stream."""

_AT_ONCE = 1 << 22
_FREE = 1 << 28
_FREE_LINES = 1 << 21
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

    256 MiB (`free`) are always allowed, then 250 times what is stored ($PLACKETT_MAX_EXPANSION): text of real data has
    about 10.
    """
    if expanded > largest_expansion(stored, free):
        raise DataError(
            f"{stored:,} bytes expand to {expanded:,} or more, over {_most_times():g} times as many",
            file=file,
            remedy="If the file is to be trusted, set the environment variable PLACKETT_MAX_EXPANSION higher",
        )


def largest_expansion(stored: int, free: int | None = None) -> float:
    """The bytes that so many stored ones may expand to."""
    return max(_FREE if free is None else free, _most_times() * stored)


def _most_times() -> float:
    chosen = os.environ.get("PLACKETT_MAX_EXPANSION", "")
    try:
        return float(chosen or _EXPANSION)
    except ValueError:
        raise ValueError(f"PLACKETT_MAX_EXPANSION must be a number, or inf, got {chosen!r}") from None


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
        self.check_expansion(self._expanded)
        return part

    def check_expansion(self, expanded: int) -> None:
        """Refuse compressed bytes that became, or are about to become, so many in memory: text, or arrays of it."""
        if self._compressed:
            check_expansion(self._stored(), expanded, self.name, self._free)

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


def check_target(target: Source) -> None:
    """An error if nothing can be written there: now, not when the work is done. Nothing is opened or made."""
    if not isinstance(target, str | os.PathLike) or target == "-" or _descriptor(target) is not None:
        return
    path = Path(target)
    try:
        kind = path.stat().st_mode
    except FileNotFoundError:
        kind = None
    if kind is not None and stat.S_ISDIR(kind):
        raise IsADirectoryError(f"expected a file to write to, got the folder {path}")
    if kind is not None and not _may(path, os.W_OK):
        raise PermissionError(f"{path} may not be written to")
    if kind is None or stat.S_ISREG(kind):
        folder = behind_links(path).parent
        if not folder.is_dir():
            raise FileNotFoundError(f"the folder {folder} does not exist")
        if not may_change(folder):
            raise PermissionError(f"no file can be made in the folder {folder}")


def check_new_folder(path: Path) -> None:
    """An error if no folder of this name, with those above it, can be made."""
    above = next((one for one in path.absolute().parents if one.exists()), path)
    if not above.is_dir():
        raise NotADirectoryError(f"{above} is not a folder")
    if not may_change(above):
        raise PermissionError(f"no folder can be made in {above}")


def may_change(folder: Path) -> bool:
    """Whether names in a folder can be made and removed."""
    return _may(folder, os.W_OK | os.X_OK)


def _may(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def behind_links(path: str | os.PathLike[str]) -> Path:
    """Where links lead: what is replaced there leaves them as they are."""
    found = Path(os.path.realpath(path))
    if found.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))
    return found


def _descriptor(path: str | os.PathLike[str]) -> int | None:
    """The open file of this process that a path such as /dev/stdout names: whoever opened it said where to write."""
    folder = re.compile(rf"/proc/{os.getpid()}(/task/\d+)?/fd|/dev/fd")
    one = Path(path)
    for _ in range(40):  # links, as many as Linux follows
        parent = Path(os.path.realpath(one.parent))
        one = parent / one.name
        if folder.fullmatch(str(parent)) and one.name.isdecimal():
            return int(one.name)
        if not one.is_symlink():
            return None
        one = parent / one.readlink()
    return None


def _open_special(path: str | os.PathLike[str]) -> IO[bytes] | None:
    """What is written through, since it cannot be replaced: a device, a pipe, an open file. None for others."""
    number = _descriptor(path)
    if number is not None:
        if sys.stdout is not None:
            sys.stdout.flush()  # what was printed before comes before
        return os.fdopen(os.dup(number), "wb")
    named, real = Path(path), Path(os.path.realpath(path))
    # An open file of another process is a link as well, to a name that may be that of no file any more.
    is_file = named.is_file() and real.exists() and named.samefile(real)
    return None if is_file or not named.exists() else named.open("wb")


def beside(final: Path) -> Path:
    """A new name in the same folder, for what is not complete."""
    return final.with_name(f".{final.name[:60]}.{secrets.token_hex(4)}.part")  # names have up to 255 bytes


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    if os.name == "nt":  # which opens no folders, and syncs no file that is open for reading
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def keep_owner(path: Path, old: os.stat_result) -> bool:
    """Give a new file or folder the mode and the owner of the one it replaces; False if the owner may not be given."""
    new, is_kept = path.stat(), True
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.chown(path, old.st_uid, old.st_gid)
        except PermissionError:
            is_kept = False
    path.chmod(stat.S_IMODE(old.st_mode))
    return is_kept


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """The path of an empty file to write to, which takes the name asked for when it is complete and on disk.

    After an error nothing has changed. Links stay and lead to the new file, which has the mode and the owner of the one
    it replaces; where that owner may not be given, the old file gets the content of the new one. What is not a file,
    such as a device or a pipe, is not replaced: all is written to it at the end.
    """
    check_target(path)
    through = _open_special(path)
    final = behind_links(path) if through is None else Path(tempfile.gettempdir(), "output")
    old = final.stat() if through is None and final.exists() else None
    temporary = beside(final)
    try:
        # What is to be private is so from the beginning; a new file has the mode that the umask gives.
        temporary.touch(0o666 if through is None and old is None else 0o600, exist_ok=False)
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        if through is not None:
            _copy(temporary, through)
        elif old is not None and not keep_owner(temporary, old):
            _copy(temporary, final.open("wb"))
        else:
            temporary.replace(final)
    finally:
        temporary.unlink(missing_ok=True)
        if through is not None:
            through.close()


def _copy(source: Path, opened: IO[bytes]) -> None:
    with opened as target, source.open("rb") as file:
        shutil.copyfileobj(file, target)


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file that takes its name when it is complete and on disk, see `atomic_path`; or a device or pipe, as it is."""
    check_target(path)
    through = _open_special(path)
    if through is not None:
        with through:
            yield through
    else:
        with atomic_path(path) as temporary, temporary.open("wb") as file:
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


def is_standard_output(target: Source) -> bool:
    """Whether what is written there comes out where messages are printed."""
    return isinstance(target, str | os.PathLike) and (os.fspath(target) == "-" or _descriptor(target) == 1)


def save_figure(figure: Any, target: Source) -> None:
    """Write a figure of matplotlib in the format that the ending of the path names; PNG without one."""
    check_figure(target)
    picture = io.BytesIO()
    figure.savefig(picture, format=_figure_format(target), dpi=150)
    with open_target(target) as file:
        file.write(picture.getvalue())


def check_figure(target: Source) -> None:
    """An error if no figure can be written there: see `check_target`."""
    check_target(target)
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError:
        raise MissingDependencyError("matplotlib", "report", "a figure") from None
    known = FigureCanvasBase.get_supported_filetypes()
    if _figure_format(target) not in known:
        raise ValueError(f"a figure must end with one of .{', .'.join(known)}, got {source_name(target)!r}")


def _figure_format(target: Source) -> str:
    return (ending(target)[1:] if isinstance(target, str | os.PathLike) else "") or "png"
