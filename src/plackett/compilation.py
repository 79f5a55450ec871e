"""Compiled kernels, cached on disk between runs.

`kernel` compiles a function to machine code that runs without the interpreter lock. numba has its own cache, but that
detects changes only in the file of the function itself, not in modules it imports functions from; it unpickles whatever
it finds; and after a truncated file or a full disk every call fails. So we write our own files:

- The file name contains a hash of everything that determines the code: the function's module and all modules of the
  package that it imports, the argument types, the processor, and the versions of Python, NumPy and numba.
- The file starts with a hash of its name and content. An altered, truncated or renamed file counts as missing.
- The file is executed, so it is used only if its owner is the user or root and nobody else can write to it or its
  folder. Nobody else can create such a file, so the parents of the folder do not matter and no signature is needed.
- If reading or writing fails, the kernel is compiled in memory, with a warning if it cannot be cached.
- A process that compiles says so once: on standard error if that is a terminal, otherwise in the log "plackett".

The folder is `kernels` in $PLACKETT_CACHE_DIR or the user's cache directory. Kernels return numbers, never arrays:
numba calls Python to wrap an array, and a Ctrl-C that arrives there becomes a SystemError.
"""

import hashlib
import logging
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
from llvmlite.binding import address_of_symbol
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.runtime import rtsys
from numba.core.serialize import dumps
from numba.core.types.misc import unliteral

_COMPILERS: dict[str, dict[str, Any]]
if numba.version_info.short <= (0, 68):
    from plackett.kernel_compiler import IncludedCompiler, KernelCompiler, LightCompiler, SeparateCompiler

    _COMPILERS = {
        "kernel": {"pipeline_class": KernelCompiler},
        "light kernel": {"pipeline_class": LightCompiler},
        "inner": {"pipeline_class": IncludedCompiler},
        "inner part": {"pipeline_class": SeparateCompiler},
    }
else:  # they replace parts of numba, and were not tested with newer versions, which compile more slowly by themselves
    _COMPILERS = {"kernel": {}, "light kernel": {}, "inner": {}, "inner part": {}}

_FROM_IMPORT = re.compile(r"^\s*from (plackett[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)

# Multiply and add may be fused; nothing may be reassociated unless a function says so.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}}
_WITHOUT_WRAPPERS = {**_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_INNER = {**_WITHOUT_WRAPPERS, **_COMPILERS["inner"]}
_PART = {**_WITHOUT_WRAPPERS, **_COMPILERS["inner part"]}


def inner(function: Callable[..., Any]) -> Any:
    """Decorator for a function that only compiled code calls. It may be inlined."""
    return _without_literals(numba.njit(**_INNER)(function))


def inner_part(function: Callable[..., Any]) -> Any:
    """As `inner`, for a large function. It is not inlined, so that it is compiled only once."""
    return _without_literals(numba.njit(**_PART)(function))


def inner_sum(function: Callable[..., Any]) -> Any:
    """As `inner_part`, for sums whose order does not matter, so that they are vectorised."""
    return _without_literals(numba.njit(**{**_PART, "fastmath": {"contract", "reassoc"}})(function))


def _without_literals(dispatcher: Any) -> Any:
    """Compile f(x, 0) as f(x, n): numba would compile the function again for the constant."""
    resolve = dispatcher.get_call_template
    dispatcher.get_call_template = lambda args, kws: resolve([unliteral(a) for a in args], kws)
    return dispatcher


if hasattr(os, "register_at_fork"):
    # A child forked while another thread compiles would wait forever for that thread, which it does not have.
    os.register_at_fork(
        before=global_compiler_lock.acquire,
        after_in_parent=global_compiler_lock.release,
        after_in_child=global_compiler_lock.release,
    )


def cache_directory() -> Path:
    """The folder where compiled kernels and parsed data are cached."""
    chosen = os.environ.get("PLACKETT_CACHE_DIR")
    if chosen:
        return Path(chosen)
    try:
        return _user_cache_directory()
    except RuntimeError:  # from Path.home
        raise FileNotFoundError("no home directory found: set PLACKETT_CACHE_DIR to a folder of your own") from None


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
    """The modules of the package that a module imports from. A test ensures that every import has this form."""
    package = Path(__file__).parent
    found: set[Path] = set()
    for module, names in _FROM_IMPORT.findall(path.read_text()):
        base = package.joinpath(*module.split(".")[1:])
        module_files = [base.with_suffix(".py"), base / "__init__.py"]
        for name in re.findall(r"\w+", names):
            candidates = [base / f"{name}.py", base / name / "__init__.py", *module_files]
            found.update([candidate for candidate in candidates if candidate.is_file()][:1])
    return frozenset(found)


@cache
def _sources(path: Path) -> frozenset[Path]:
    """A module and all modules of the package that it imports, directly or not: they are compiled into its kernels."""
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
    """Create a folder and its missing parents, accessible only to this user."""
    for missing in reversed([parent for parent in (folder, *folder.parents) if not parent.exists()]):
        missing.mkdir(mode=0o700, exist_ok=True)


def _is_ours(status: os.stat_result) -> bool:
    """Whether only this user and root can have written to a file or folder."""
    if not hasattr(os, "geteuid"):  # Windows: the folders of a user are closed to others
        return True
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@cache
def _folder(directory: str | None) -> Path | None:  # noqa: ARG001 - the cache key: evaluated once for each value of the variable
    """The folder of compiled kernels; None, with a warning, if they cannot be cached."""
    try:
        folder = cache_directory() / "kernels"
        make_private(folder)
        if not _is_ours(folder.stat()):
            raise PermissionError(
                f"{folder} belongs to another user, or others can write to it: remove it, or set PLACKETT_CACHE_DIR"
            )
    except OSError as error:
        _warn(str(error))
        return None
    return folder


_announced = False


def announce_nothing() -> None:
    """Do not say in this process that kernels are being compiled."""
    global _announced
    _announced = True


def _announce(folder: Path | None) -> None:
    if _announced:
        return
    announce_nothing()
    kept = f"they are kept in {folder}" if folder else "they cannot be kept"
    text = f"Compiling kernels for the first call; {kept}"
    if _is_terminal(sys.stderr):
        print(text, file=sys.stderr, flush=True)
    else:
        logging.getLogger("plackett").info(text)


def _is_terminal(stream: Any) -> bool:
    """Asks the file, because isatty of the stream under a progress bar is always False in rich before 15."""
    try:
        return os.isatty(stream.fileno())
    except (AttributeError, OSError, ValueError):  # no stream, no file, or a closed one
        return False


def kernel_folder() -> Path:
    """The folder of compiled kernels; an error if they cannot be kept there."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            folder = _folder(os.environ.get("PLACKETT_CACHE_DIR"))
        except UserWarning as problem:
            raise OSError(str(problem)) from None
    if folder is None:
        raise OSError("compiled kernels cannot be cached: set PLACKETT_CACHE_DIR to a folder of your own")
    return folder


def _warn(problem: str) -> None:
    warnings.warn(f"cannot cache compiled code, so every process compiles again: {problem}", stacklevel=2)


class _Files(NullCache):
    """The files of a kernel, one for each combination of argument types, with the cache interface of numba."""

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
        """Load the compiled code, or return None if it has to be compiled."""
        path = self._path(sig, target_context.codegen())
        try:
            if path is not None:
                symbols, parts = _read(path)
                _prepare(target_context, symbols)
                return CompileResult._rebuild(target_context, *parts)
        except Exception:  # whatever is wrong with the file, compile instead
            _announce(path and path.parent)
            return None
        _announce(None)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Cache compiled code, if possible."""
        path = self._path(sig, data.codegen)
        if data.lifted or data.library.has_dynamic_globals:
            _warn(f"{self._name} contains addresses of this process")
        elif path is not None:
            try:
                _write(path, dumps((_symbols(data.library), data._reduce())))
            except OSError as error:
                _warn(f"{path.parent}: {error.strerror}")


def _symbols(library: Any) -> list[str]:
    """The names that compiled code expects to find in the process, such as those of numba's memory manager."""
    module = library._final_module
    named = [*module.functions, *module.global_variables]
    return [value.name for value in named if value.is_declaration and not value.name.startswith("llvm.")]


def _prepare(target_context: Any, symbols: list[str]) -> None:
    """Load what compiled code needs to run, and no more: what numba needs only to compile takes long to load."""
    rtsys.initialize(target_context)
    if any(address_of_symbol(name) is None for name in symbols):
        target_context.refresh()


def _digest(path: Path, content: bytes) -> bytes:
    return hashlib.sha256(path.name.encode() + b"\0" + content).digest()


def _read(path: Path) -> Any:
    with path.open("rb") as file:
        if not _is_ours(os.fstat(file.fileno())):
            raise PermissionError(f"{path} belongs to another user, or others can write to it")
        digest, content = file.read(hashlib.sha256().digest_size), file.read()
    if digest != _digest(path, content):
        raise ValueError(f"{path} is damaged")
    return pickle.loads(content)  # noqa: S301 - only this user or root can have written it


def _write(path: Path, content: bytes) -> None:
    """Write atomically: other processes may read the file at the same time."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".")  # accessible only to this user
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(_digest(path, content) + content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink()
        raise


def kernel(function: Callable[..., Any], compiler: str = "kernel") -> Any:
    """Compile `function` on its first call, or load what an earlier process compiled."""
    dispatcher = numba.njit(no_cfunc_wrapper=True, **_COMPILERS[compiler], **_OPTIONS)(function)
    dispatcher._cache = _Files(function)
    return dispatcher


def light_kernel(function: Callable[..., Any]) -> Any:
    """As `kernel`, for code that a second round of optimisation does not make faster: compiled in less time."""
    return kernel(function, "light kernel")
