"""Parsed arrays kept on disk, under the hash of what they were parsed from.

A change of the file, of an option or of the parser gives another hash, so what is found is what parsing would give.
Files hold plain arrays and are written whole or not at all; one that cannot be read counts as missing.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.compilation import cache_directory, source_hash
from plackett.data.files import Source, atomic_write, is_path
from plackett.threads import run_over_ranges

Arrays = Mapping[str, npt.NDArray[Any]]

_PIECE = 1 << 22


def content_hash(path: str | os.PathLike[str]) -> str:
    """Of the file's bytes: a hash of the hashes of its pieces, which are found side by side."""
    size = Path(path).stat().st_size
    digests = [b""] * -(-size // _PIECE)
    with Path(path).open("rb") as file:
        content: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""

        def digest(first: int, last: int) -> int:
            view = memoryview(content)
            for i in range(first, last):
                digests[i] = hashlib.sha256(view[i * _PIECE : (i + 1) * _PIECE]).digest()
            return 0

        run_over_ranges(digest, np.arange(len(digests) + 1) * _PIECE)
    return hashlib.sha256(b"".join(digests) + str(size).encode()).hexdigest()


def cached(
    source: Source, cache: bool | str | os.PathLike[str], options: Mapping[str, Any], parse: Callable[[], Arrays]
) -> Arrays:
    """What `parse` gives, from the cache if it is there. `cache` is a folder, or True for the user's cache folder."""
    if cache is False:
        return parse()
    if not is_path(source):
        raise ValueError("cache needs a file with a name, got a stream: pass cache=False")
    before = _stamp(source)
    folder = cache_directory() / "data" if cache is True else Path(cache)
    settings = json.dumps(options, sort_keys=True, default=str)
    key = f"{content_hash(source)}\n{settings}\n{source_hash(Path(__file__).parent)}"  # type: ignore[arg-type]
    path = folder / f"{hashlib.sha256(key.encode()).hexdigest()}.arrays"
    found = _read(path)
    if found is not None:
        return found
    arrays = parse()
    if _stamp(source) != before:  # changed while it was read: the hash may not be that of the arrays
        return arrays
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            file.write(json.dumps(list(arrays)).encode() + b"\n")
            for array in arrays.values():
                np.save(file, array, allow_pickle=False)
    except OSError as error:
        warnings.warn(f"the parsed data could not be kept in {folder}: {error}", stacklevel=4)
    return arrays


def _stamp(source: Source) -> tuple[int, int, int]:
    stat = Path(source).stat()  # type: ignore[arg-type]
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


def _read(path: Path) -> Arrays | None:
    try:
        with path.open("rb") as file:
            names = json.loads(file.readline())
            return {name: np.load(file, allow_pickle=False) for name in names}
    except (OSError, ValueError, EOFError, TypeError, MemoryError):
        return None
