"""Compiled kernels, kept on disk between runs.

`kernel` compiles a function to machine code that runs without the interpreter lock. numba can cache such code, but it
notices changes only in the file of the function itself, not in those it calls from; after an edit or an upgrade that
would be wrong in silence. Here the cache directory carries a hash of all modules that hold compiled code, so it cannot
be.

The directory is $PLACKETT_CACHE_DIR or the user's cache directory. It holds executable code and is trusted, as
__pycache__ is: do not point it at a place that others can write to.
"""

import hashlib
import os
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import config

_LOCK = threading.Lock()

# Multiply and add may be fused; nothing may be reassociated unless a function says so.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}}
_INNER = {**_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

inner = numba.njit(**_INNER)
"""Decorator for a function that only compiled code calls."""

inner_sum = numba.njit(**{**_INNER, "fastmath": {"contract", "reassoc"}})
"""As `inner`, for sums whose order is of no importance: they are then vectorised."""

used_once = numba.njit(inline="always", **_INNER)
"""As `inner`, for a large function with one caller: merged into it, for numba compiles every level of calls anew."""


def cache_directory() -> Path:
    """Where compiled kernels are kept."""
    chosen = os.environ.get("PLACKETT_CACHE_DIR")
    if chosen:
        return Path(chosen)
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "plackett"


@cache
def source_hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def _compiled_hash() -> str:
    """Of every module of the package that compiles: any of them may call into any other."""
    package = Path(__file__).parent
    sources = {path: path.read_bytes() for path in sorted(package.rglob("*.py"))}
    digest = hashlib.sha256()
    for path, content in sources.items():
        if b"plackett.compilation import" in content:
            digest.update(path.name.encode() + b"\0" + content)
    return digest.hexdigest()[:16]


def kernel(function: Callable[..., Any]) -> Any:
    """Compile `function` on its first call, or load what an earlier process compiled."""
    dispatcher = numba.njit(**_OPTIONS)(function)
    folder = Path(function.__code__.co_filename).parent
    directory = cache_directory() / f"{folder.name}-{_compiled_hash()}"
    with _LOCK:
        # numba reads the setting once, while caching is being enabled.
        before = config.CACHE_DIR
        config.CACHE_DIR = str(directory)
        try:
            dispatcher.enable_caching()
        except (RuntimeError, OSError):
            pass  # Nowhere to write: compiled anew in every process, which is slow but right.
        finally:
            config.CACHE_DIR = before
    return dispatcher
