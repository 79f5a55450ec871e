"""Cache of parsed arrays on disk, keyed by a hash of their source.

A change to the file, an option or the parser changes the hash, so a cached entry equals what parsing would give. Files
contain plain arrays with a checksum and are written atomically; a damaged file counts as missing.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.compilation import cache_directory, source_hash
from plackett.data.files import Source, atomic_write, is_path
from plackett.data.hashes import content_hash

Arrays = Mapping[str, npt.NDArray[Any]]


def cached(
    source: Source, cache: bool | str | os.PathLike[str], options: Mapping[str, Any], parse: Callable[[], Arrays]
) -> Arrays:
    """Return the result of `parse`, from the cache if possible. `cache` is a folder, or True for the user's cache."""
    if cache is False:
        return parse()
    if not is_path(source):
        raise ValueError("cache must be False for a stream: only a file with a path can be cached")
    before = _stamp(source)
    folder = cache_directory() / "data" if cache is True else Path(cache)
    settings = json.dumps(options, sort_keys=True, default=str)
    key = f"{content_hash(source)}\n{settings}\n{source_hash(Path(__file__).parent)}"  # type: ignore[arg-type]
    path = folder / f"{hashlib.sha256(key.encode()).hexdigest()}.arrays"
    found = _read(path)
    if found is not None:
        return found
    arrays = parse()
    if _stamp(source) != before:  # changed during the read: the hash may not match the arrays
        return arrays
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as file:
            file.write(json.dumps([_checksum(arrays), *arrays]).encode() + b"\n")
            for array in arrays.values():
                np.save(file, array, allow_pickle=False)
    except OSError as error:
        warnings.warn(f"cannot cache the parsed data in {folder}: {error}", stacklevel=4)
    return arrays


def _stamp(source: Source) -> tuple[int, int, int]:
    stat = Path(source).stat()  # type: ignore[arg-type]
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


def _read(path: Path) -> Arrays | None:
    try:
        with path.open("rb") as file:
            checksum, *names = json.loads(file.readline())
            arrays = {name: np.load(file, allow_pickle=False) for name in names}
        return arrays if _checksum(arrays) == checksum else None
    except Exception:  # whatever is wrong with the file, parse again
        return None


def _checksum(arrays: Arrays) -> int:
    """A checksum of names, types, shapes and bytes: it finds damage, not forgery."""
    found = 0
    for name, array in arrays.items():
        found = zlib.crc32(f"{name} {array.dtype.str} {array.shape}".encode(), found)
        if array.nbytes:
            found = zlib.crc32(array.ravel(order="K").view(np.uint8).data, found)
    return found
