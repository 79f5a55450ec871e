"""Hashes that identify arrays, settings and files."""

import hashlib
import json
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import plackett
from plackett.threads import run_over_ranges

_PIECE = 1 << 22


def fingerprint(parts: Sequence[Any]) -> str:
    """Hash arrays, sparse matrices and settings. Training resumes only from a checkpoint with the same fingerprint."""
    digest = hashlib.sha256()
    for part in parts:
        arrays = [part.data, part.indices, part.indptr] if hasattr(part, "indptr") else [part]
        for array in arrays:
            if isinstance(array, np.ndarray):
                digest.update(f"{array.shape}{array.dtype}".encode())
                digest.update(np.ascontiguousarray(array).data)
            else:
                digest.update(json.dumps(array, sort_keys=True, default=str).encode())
    return digest.hexdigest()


def different_training(version: str | None) -> str:
    """Say why a checkpoint with another fingerprint is refused; `version` of Plackett wrote it, if known."""
    written = "an earlier version" if version is None else str(version)[:40]
    return (
        "the checkpoint belongs to a different training run: data or parameters differ, or the version of Plackett "
        f"(written by {written}, this is {plackett.__version__})"
    )


def content_hash(path: str | os.PathLike[str]) -> str:
    """Hash the bytes of a file: a hash of the hashes of its pieces, which are computed in parallel."""
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
