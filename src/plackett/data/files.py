"""Opening and writing files: compression, streams, standard input, atomic writes.

A source is a path, `-` for standard input, or a binary stream. Compression is detected from the first bytes; a name
with the suffix of a compression must match the content, and the expanded size is limited (`check_expansion`). A target
is a path (its suffix selects the compression) or a binary stream; a file appears under its name only once it is
complete. Devices and pipes are written to, never replaced.
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
    ".xz": lambda raw: lzma.LZMAFile(raw, "wb"),  # noqa: SIM115 - the caller closes it
    ".zst": lambda raw: _zstd_file(raw, "wb"),
}


def source_name(source: Source) -> str:
    """The name of a source in messages."""
    if isinstance(source, str | os.PathLike):
        return "standard input" if source == "-" else os.fspath(source)
    return str(getattr(source, "name", "stream"))


def is_path(source: Source) -> bool:
    """Whether the source is a file that can be opened twice: not a stream, nor the path of a pipe or device."""
    if not isinstance(source, str | os.PathLike) or source == "-":
        return False
    return Path(source).is_file() or not Path(source).exists() or Path(source).is_dir()


def is_compressed_name(source: Source) -> bool:
    return Path(source_name(source)).suffix.lower() in _MAGIC


def ending(source: Source) -> str:
    """The lower-case suffix of the name, ignoring that of a compression: data.TXT.gz -> .txt."""
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
    """Read all bytes of a source as stored, without decompressing."""
    raw = _open_raw(source)
    try:
        return raw.read()
    finally:
        if raw is not source and source != "-":
            raw.close()


def check_expansion(stored: int, expanded: int, file: str, free: int | None = None) -> None:
    """Refuse data that would take far more memory than its stored size suggests: a small file could fill any machine.

    256 MiB (`free`) are always allowed, and beyond that 250 times the stored size ($PLACKETT_MAX_EXPANSION). Text of
    real data expands about 10 times.
    """
    if expanded > largest_expansion(stored, free):
        raise DataError(
            f"{stored:,} bytes expand to at least {expanded:,}, more than {_max_ratio():g} times the size",
            file=file,
            remedy="If you trust the file, set the environment variable PLACKETT_MAX_EXPANSION higher",
        )


def largest_expansion(stored: int, free: int | None = None) -> float:
    """The number of bytes that `stored` bytes may expand to."""
    return max(_FREE if free is None else free, _max_ratio() * stored)


def _max_ratio() -> float:
    chosen = os.environ.get("PLACKETT_MAX_EXPANSION", "")
    try:
        return float(chosen or _EXPANSION)
    except ValueError:
        raise ValueError(f"PLACKETT_MAX_EXPANSION must be a number or inf, got {chosen!r}") from None


class _Prepended(io.RawIOBase):
    """A stream that cannot seek, with bytes that were already read put back. `bytes_read` counts what was read."""

    def __init__(self, head: bytes, rest: IO[bytes] | OpenSource) -> None:
        self._head, self._rest = head, rest
        self.bytes_read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._head[: len(buffer)] or self._rest.read(len(buffer))
        self._head = self._head[len(data) :]
        self.bytes_read += len(data)
        buffer[: len(data)] = data
        return len(data)


def _read_head(raw: IO[bytes], size: int) -> bytes:
    head = b""
    while len(head) < size and (more := raw.read(size - len(head))):
        head += more
    return head


class OpenSource:
    """An open source: `read` returns decompressed bytes; `position` and `size` count stored bytes.

    `free` is the size that compressed bytes may always expand to, see `check_expansion`.
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
        suffix = Path(self.name).suffix.lower()
        if suffix in _MAGIC and suffix != found and is_path(source):
            raise DataError(
                f"the name ends with {suffix}, but the file is {'not compressed' if found is None else found}",
                file=self.name,
                remedy="Rename the file, or download it again",
            )
        if self._owned and self._raw.seekable():
            self._raw.seek(0)
            stored: Any = self._raw
            self._stored = self._raw.tell
        else:
            complete = _Prepended(head, self._raw)
            stored = io.BufferedReader(complete)
            self._stored = lambda: complete.bytes_read
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
        except Exception as error:  # each of the four libraries has its own classes
            raise DataError(
                f"the compressed data is damaged or truncated ({error})",
                file=self.name,
                remedy="Download the file again",
            ) from error
        self._expanded += len(part)
        self.check_expansion(self._expanded)
        return part

    def check_expansion(self, expanded: int) -> None:
        """Refuse compressed data that takes, or is about to take, this many bytes in memory as text or arrays."""
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
    """Yield the lines of a text file with their line endings, for readers in Python. Drops a leading byte-order mark.

    Python objects take many times the size of their text, so the limit on expansion is lower here than elsewhere.
    """
    name = source_name(source)
    with open_source(source, _FREE_LINES) as file:
        # Bytes that are not UTF-8 become surrogates, so that the error can name their line.
        text = io.TextIOWrapper(
            io.BufferedReader(_Prepended(b"", file)), encoding="utf-8-sig", errors="surrogateescape", newline=""
        )
        for number, line in enumerate(text, 1):
            if number == 1 and line.startswith("\ufeff"):  # would become part of a name, and be lost when written
                raise DataError("found a second byte-order mark", file=name, line=1, remedy="Remove it")
            if "\0" in line:
                raise DataError(
                    "found a NUL byte", file=name, line=number, text=line, remedy="The file is damaged or not text"
                )
            if not line.isascii():
                _check_utf8(line, name, number)
            yield line


def _check_utf8(line: str, name: str, number: int) -> None:
    try:
        line.encode()
    except UnicodeEncodeError as error:
        text = line[error.start : error.start + 20].encode("utf-8", "surrogateescape").decode("latin-1")
        raise DataError(
            "expected UTF-8 text", file=name, line=number, text=text, remedy="Convert the file to UTF-8"
        ) from None


def check_target(target: Source) -> None:
    """Raise an error now, rather than after the work, if the target cannot be written. Opens and creates nothing."""
    if not isinstance(target, str | os.PathLike) or target == "-" or _descriptor(target) is not None:
        return
    path = Path(target)
    try:
        kind = path.stat().st_mode
    except FileNotFoundError:
        kind = None
    if kind is not None and stat.S_ISDIR(kind):
        raise IsADirectoryError(f"expected a file to write to, got the folder {path}")
    if kind is not None and stat.S_ISSOCK(kind):
        raise OSError(f"expected a file to write to, got the socket {path}")
    if kind is not None and not _is_permitted(path, os.W_OK):
        raise PermissionError(f"no permission to write to {path}")
    if kind is None or stat.S_ISREG(kind):
        folder = resolve_links(path).parent
        if not folder.is_dir():
            raise FileNotFoundError(f"the folder {folder} does not exist")
        if not can_create_files(folder):
            raise PermissionError(f"no permission to create a file in the folder {folder}")


def check_new_folder(path: Path) -> None:
    """Raise an error if this folder and its missing parents cannot be created."""
    above = next((one for one in path.absolute().parents if one.exists()), path)
    if not above.is_dir():
        raise NotADirectoryError(f"{above} is not a folder")
    if not can_create_files(above):
        raise PermissionError(f"no permission to create a folder in {above}")


def is_mounted(path: Path) -> bool:
    """Whether a file system or a folder of one is mounted here, so that the name cannot be given to another folder."""
    try:
        lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:  # not Linux
        return os.path.ismount(path)
    places = (re.sub(rb"\\(\d{3})", lambda code: bytes([int(code[1], 8)]), line.split()[4]) for line in lines)
    return os.fsencode(os.path.realpath(path)) in places


def can_create_files(folder: Path) -> bool:
    """Whether files can be created and removed in a folder."""
    return _is_permitted(folder, os.W_OK | os.X_OK)


def _is_permitted(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def resolve_links(path: str | os.PathLike[str]) -> Path:
    """Follow symbolic links to their target, so that replacing the target leaves the links intact."""
    found = Path(os.path.realpath(path))
    if found.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))
    return found


def _descriptor(path: str | os.PathLike[str]) -> int | None:
    """The file descriptor of this process that a path such as /dev/stdout names, or None."""
    folder = re.compile(rf"/proc/{os.getpid()}(/task/\d+)?/fd|/dev/fd")
    one = Path(path)
    for _ in range(40):  # as many links as Linux follows
        parent = Path(os.path.realpath(one.parent))
        one = parent / one.name
        if folder.fullmatch(str(parent)) and one.name.isdecimal():
            return int(one.name)
        if not one.is_symlink():
            return None
        one = parent / one.readlink()
    return None


def _open_special(path: str | os.PathLike[str]) -> IO[bytes] | None:
    """Open a target that is written in place because it cannot be replaced: a device, pipe or descriptor. Else None."""
    number = _descriptor(path)
    if number is not None:
        if sys.stdout is not None:
            sys.stdout.flush()  # keeps earlier output in front
        return os.fdopen(os.dup(number), "wb")
    named, real = Path(path), Path(os.path.realpath(path))
    # An open file of another process is also a link, whose target may no longer exist.
    is_file = named.is_file() and real.exists() and named.samefile(real)
    return None if is_file or not named.exists() else named.open("wb")


def partial_name(final: Path) -> Path:
    """A new name in the same folder, for a file that is not complete yet."""
    return final.with_name(f".{final.name[:60]}.{secrets.token_hex(4)}.part")  # names are limited to 255 bytes


def sync(path: Path) -> None:
    """Wait until a file, or the entries of a folder, are on disk."""
    if os.name == "nt":  # Windows cannot open folders, nor sync a file that is open for reading
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def copy_mode_and_owner(path: Path, old: os.stat_result) -> bool:
    """Copy mode and owner from the file or folder being replaced; False if changing the owner is not permitted."""
    new, has_owner = path.stat(), True
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        try:
            os.chown(path, old.st_uid, old.st_gid)
        except PermissionError:
            has_owner = False
    path.chmod(stat.S_IMODE(old.st_mode))
    return has_owner


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield the path of an empty file, which is renamed to `path` once it is complete and on disk.

    An error leaves everything unchanged. Links are kept and lead to the new file, which has the mode and owner of the
    file it replaces; if the owner cannot be set or the file is mounted, the content is copied into the old file. A
    device or pipe is not replaced: the content is written to it at the end.
    """
    check_target(path)
    through = _open_special(path)
    final = resolve_links(path) if through is None else Path(tempfile.gettempdir(), "output")
    old = final.stat() if through is None and final.exists() else None
    temporary = partial_name(final)
    try:
        # A private file is private from the start; a new file gets its mode from the umask.
        temporary.touch(0o666 if through is None and old is None else 0o600, exist_ok=False)
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        if through is not None:
            _copy(temporary, through)
        elif old is not None and not copy_mode_and_owner(temporary, old):
            _copy(temporary, final.open("wb"))
        else:
            _replace(temporary, final)
    finally:
        temporary.unlink(missing_ok=True)
        if through is not None:
            through.close()


def _replace(new: Path, old: Path) -> None:
    try:
        new.replace(old)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        _copy(new, old.open("wb"))  # it is mounted, as single files of containers are


def _copy(source: Path, opened: IO[bytes]) -> None:
    with opened as target, source.open("rb") as file:
        shutil.copyfileobj(file, target)


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file that gets its name once it is complete and on disk, see `atomic_path`; or a device or pipe."""
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
    """Open a path for writing, compressed according to its suffix; a stream is used as it is."""
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
    """Whether the target is standard output, where messages are printed."""
    return isinstance(target, str | os.PathLike) and (os.fspath(target) == "-" or _descriptor(target) == 1)


def save_figure(figure: Any, target: Source) -> None:
    """Write a matplotlib figure in the format given by the suffix of the path; PNG if it has none."""
    check_figure(target)
    picture = io.BytesIO()
    figure.savefig(picture, format=_figure_format(target), dpi=150)
    with open_target(target) as file:
        file.write(picture.getvalue())


def check_figure(target: Source) -> None:
    """Raise an error if no figure can be written to the target, see `check_target`."""
    check_target(target)
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError:
        raise MissingDependencyError("matplotlib", "report", "a figure") from None
    known = FigureCanvasBase.get_supported_filetypes()
    if _figure_format(target) not in known:
        raise ValueError(f"the name of a figure must end with one of .{', .'.join(known)}, got {source_name(target)!r}")


def _figure_format(target: Source) -> str:
    return (ending(target)[1:] if isinstance(target, str | os.PathLike) else "") or "png"
