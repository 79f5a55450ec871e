"""Compiled kernels, kept on disk between runs.

`kernel` compiles a function to machine code that runs without the interpreter lock. numba can keep such code, but it
notices changes only in the file of the function itself, not in those it calls from; it unpickles whatever it finds; and
a file that is cut off, or a disk that is full, ends every call with an error. So the files here are our own:

- The name of a file holds a hash of all that went into the code: the function's module and all it imports from the
  package, the types of the arguments, the processor, and the versions of Python, NumPy and numba.
- It begins with a hash of the name and of what follows. A file that is altered, cut off or under another name counts as
  missing.
- Its owner is the user or root, and nobody else can write to it or to its folder, or it is left alone: what it holds is
  executed. Nobody else can make such a file, so parents of the folder do not matter, nor is a signature needed.
- Whatever cannot be read or written is compiled in memory, with a warning if it cannot be kept.

The folder is `kernels` in $PLACKETT_CACHE_DIR or the user's cache directory. Kernels return numbers, never arrays:
numba calls Python to wrap an array, and a Ctrl-C that arrives there becomes a SystemError.
"""

import hashlib
import os
import pickle
import re
import stat
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.serialize import dumps

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


if hasattr(os, "register_at_fork"):
    # A child forked while another thread compiles would wait for that thread, which it does not have.
    os.register_at_fork(
        before=global_compiler_lock.acquire,
        after_in_parent=global_compiler_lock.release,
        after_in_child=global_compiler_lock.release,
    )


def cache_directory() -> Path:
    """Where compiled kernels and parsed data are kept."""
    chosen = os.environ.get("PLACKETT_CACHE_DIR")
    if chosen:
        return Path(chosen)
    try:
        return _user_cache_directory()
    except RuntimeError:  # of Path.home
        raise FileNotFoundError("there is no home directory: set PLACKETT_CACHE_DIR to a folder of your own") from None


def _user_cache_directory() -> Path:
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
    """The modules of the package that a module imports from. A test holds that no import takes another form."""
    package = Path(__file__).parent
    found: set[Path] = set()
    for module, names in _FROM_IMPORT.findall(path.read_text()):
        base = package.joinpath(*module.split(".")[1:])
        whole = [base.with_suffix(".py"), base / "__init__.py"]
        for name in re.findall(r"\w+", names):
            candidates = [base / f"{name}.py", base / name / "__init__.py", *whole]
            found.update([candidate for candidate in candidates if candidate.is_file()][:1])
    return frozenset(found)


@cache
def _sources(path: Path) -> frozenset[Path]:
    """A module and all it imports from the package, directly or not: their functions are compiled into its own."""
    reached, waiting = {path}, [path]
    while waiting:
        new = _imports(waiting.pop()) - reached
        reached |= new
        waiting += new
    return frozenset(reached)


@cache
def _hash_of_sources(path: Path) -> str:
    digest = hashlib.sha256()
    for source in sorted(_sources(path)):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for this user alone."""
    for missing in reversed([parent for parent in (folder, *folder.parents) if not parent.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def _is_ours(status: os.stat_result) -> bool:
    """Whether only this user and root can have written to a file or folder."""
    if not hasattr(os, "geteuid"):  # Windows: folders of a user are closed to others
        return True
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@cache
def _folder(directory: str | None) -> Path | None:  # noqa: ARG001 - asked once for each value of the variable
    """Where compiled kernels are kept, or None, with a warning, if that is not possible."""
    try:
        folder = cache_directory() / "kernels"
        make_private(folder)
        if not _is_ours(folder.stat()):
            raise PermissionError(
                f"{folder} is another user's or others can write to it: remove it, or set PLACKETT_CACHE_DIR"
            )
    except OSError as error:
        _warn(str(error))
        return None
    return folder


def _warn(problem: str) -> None:
    warnings.warn(f"compiled code cannot be kept, so every process compiles anew: {problem}", stacklevel=2)


class _Files(NullCache):
    """The files of a kernel, one for each combination of argument types; a cache as numba's dispatchers use it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        source = Path(function.__code__.co_filename)
        self._name = f"{source.parent.name}.{source.stem}.{function.__qualname__}"
        versions = (sys.version, np.__version__, numba.__version__, llvmlite.__version__)
        self._made_of = (self._name, _hash_of_sources(source), *versions)

    def _path(self, signature: Any, codegen: Any) -> Path | None:
        folder = _folder(os.environ.get("PLACKETT_CACHE_DIR"))
        made_of = repr((*self._made_of, signature, codegen.magic_tuple()))
        return folder and folder / f"{self._name}-{hashlib.sha256(made_of.encode()).hexdigest()[:32]}"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled code, or None if it has to be compiled."""
        target_context.refresh()
        path = self._path(sig, target_context.codegen())
        try:
            return path and CompileResult._rebuild(target_context, *_read(path))
        except Exception:  # whatever is wrong with the file, the code can be compiled
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep compiled code, if that is possible."""
        path = self._path(sig, data.codegen)
        if data.lifted or data.library.has_dynamic_globals:
            _warn(f"{self._name} holds addresses of this process")
        elif path is not None:
            try:
                _write(path, dumps(data._reduce()))
            except OSError as error:
                _warn(f"{path.parent}: {error.strerror}")


def _digest(path: Path, content: bytes) -> bytes:
    return hashlib.sha256(path.name.encode() + b"\0" + content).digest()


def _read(path: Path) -> Any:
    with path.open("rb") as file:
        if not _is_ours(os.fstat(file.fileno())):
            raise PermissionError(f"{path} is another user's or others can write to it")
        digest, content = file.read(hashlib.sha256().digest_size), file.read()
    if digest != _digest(path, content):
        raise ValueError(f"{path} is damaged")
    return pickle.loads(content)  # noqa: S301 - nobody but this user and root can have written it


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all: other processes may read the file at the same time."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".")  # for this user alone
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(_digest(path, content) + content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink()
        raise


def kernel(function: Callable[..., Any]) -> Any:
    """Compile `function` on its first call, or load what an earlier process compiled."""
    dispatcher = numba.njit(**_OPTIONS)(function)
    dispatcher._cache = _Files(function)
    return dispatcher
