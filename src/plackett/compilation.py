"""Compiled kernels, kept on disk between runs.

`kernel` compiles a function to machine code that runs without the interpreter lock. numba can cache such code, but it
notices changes only in the file of the function itself, not in those it calls from; after an edit or an upgrade that
would be wrong in silence. Here the cache directory carries a hash of the module and of all it imports from, so it
cannot be.

The directory is $PLACKETT_CACHE_DIR or the user's cache directory. It holds executable code and is trusted, as
__pycache__ is: do not point it at a place that others can write to.
"""

import hashlib
import os
import re
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import config

_LOCK = threading.Lock()
_FROM_IMPORT = re.compile(r"^\s*from (plackett[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)

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
def _imports(path: Path) -> frozenset[Path]:
    """The modules of the package that a module imports from."""
    package = Path(__file__).parent
    found: set[Path] = set()
    for module, names in _FROM_IMPORT.findall(path.read_text()):
        base = package.joinpath(*module.split(".")[1:])
        candidates = [base.with_suffix(".py"), *(base / f"{name}.py" for name in re.findall(r"\w+", names))]
        found.update(candidate for candidate in candidates if candidate.is_file())
    return frozenset(found)


@cache
def _compiled_hash(path: Path) -> str:
    """Of a module and all it imports from the package, directly or not: their functions are compiled into its own."""
    reached, waiting = {path}, [path]
    while waiting:
        new = _imports(waiting.pop()) - reached
        reached |= new
        waiting += new
    digest = hashlib.sha256()
    for source in sorted(reached):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:16]


def kernel(function: Callable[..., Any]) -> Any:
    """Compile `function` on its first call, or load what an earlier process compiled."""
    dispatcher = numba.njit(**_OPTIONS)(function)
    source = Path(function.__code__.co_filename)
    directory = cache_directory() / f"{source.parent.name}-{source.stem}-{_compiled_hash(source)}"
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
