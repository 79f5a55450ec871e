"""A hash of data and settings, by which a checkpoint knows its training."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np


def fingerprint(parts: Sequence[Any]) -> str:
    """A hash of arrays, sparse matrices and settings: a checkpoint is only taken up by the training that wrote it."""
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
