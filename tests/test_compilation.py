"""Compiled kernels and their files: keys that cover all sources, and files that may be missing, damaged or foreign."""

import ast
import os
import pickle
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

import plackett
from plackett import compilation
from plackett.compilation import kernel

PACKAGE = Path(plackett.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))


def three_times(x):
    return 3 * x


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PLACKETT_CACHE_DIR", str(tmp_path / "cache"))
    yield tmp_path / "cache" / "kernels"
    compilation._folder.cache_clear()


def loaded(number=14):
    """Whether a new kernel was loaded rather than compiled; it must give the right result in either case."""
    fresh = kernel(three_times)
    assert fresh(number) == 3 * number
    return bool(fresh.stats.cache_hits)


# Keys


def _imported(path):
    """The modules of the package that a module imports, by Python's own grammar."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert not any(a.name.split(".")[0] == "plackett" for a in node.names), "use  from plackett... import"
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "use  from plackett... import"
            parts = (node.module or "").split(".")
            if parts[0] == "plackett":
                base = PACKAGE.joinpath(*parts[1:])
                for name in (a.name for a in node.names):
                    places = [base / f"{name}.py", base / name / "__init__.py", base.with_suffix(".py")]
                    found.add(next((p for p in places if p.is_file()), base / "__init__.py"))
    return found


KERNEL_MODULES = [path for path in SOURCES if "@kernel" in path.read_text()]


def test_keys_cover_all_sources():
    """Every import in a module that a kernel may include is found, in whatever form it is written."""
    assert len(KERNEL_MODULES) > 10
    for module in KERNEL_MODULES:
        for source in compilation._sources(module):
            assert _imported(source) <= compilation._imports(source), source
            assert _imported(source) <= compilation._sources(module)


def test_a_change_of_an_imported_module_changes_the_key(tmp_path, monkeypatch):
    monkeypatch.setattr(compilation, "__file__", str(tmp_path / "compilation.py"))
    for name, text in {
        "kernels.py": "from plackett.inner import (\n    one,\n    two,\n)\n",
        "inner/__init__.py": "from plackett.inner.deep import one, two\n",
        "inner/deep.py": "one, two = 1, 2\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    def key():
        for function in (compilation._imports, compilation._sources, compilation._hash_of_sources):
            function.cache_clear()
        return compilation._hash_of_sources(tmp_path / "kernels.py")

    try:
        before = key()
        (tmp_path / "inner" / "deep.py").write_text("one, two = 1, 3\n")
        assert key() != before
    finally:
        compilation._imports.cache_clear()
        compilation._sources.cache_clear()


@pytest.mark.parametrize("path", KERNEL_MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_kernels_return_numbers(path):
    """numba calls Python to wrap an array, where a Ctrl-C becomes a SystemError. Nor do kernels enclose variables."""
    for function in ast.parse(path.read_text()).body:
        if isinstance(function, ast.FunctionDef) and any(ast.unparse(d) == "kernel" for d in function.decorator_list):
            made = {
                target.id
                for node in ast.walk(function)
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
                for target in node.targets
                if isinstance(target, ast.Name) and ast.unparse(node.value.func).startswith("np.")
            }
            for node in ast.walk(function):
                if isinstance(node, ast.Return) and node.value is not None:
                    assert not isinstance(node.value, ast.Tuple), f"{function.name}, line {node.lineno}"
                    assert not (isinstance(node.value, ast.Name) and node.value.id in made), function.name
                    assert not any(isinstance(part, ast.Slice) for part in ast.walk(node.value)), function.name


# Files


def test_kept_and_loaded(folder):
    assert not loaded()
    assert loaded()
    assert not loaded(0.5)  # other types of arguments
    assert loaded(0.5)
    (one, _) = folder.iterdir()
    assert one.name.startswith("tests.test_compilation.three_times-")


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no modes on this system")
def test_files_are_for_their_user_alone(folder):
    before = os.umask(0)
    try:
        loaded()
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (folder.parent, folder, *folder.iterdir())] == [0o700, 0o700, 0o600]


@pytest.mark.parametrize("damage", [lambda _: b"", lambda old: old[:-1], lambda old: old[: len(old) // 2]])
def test_damaged_files_are_compiled_anew(damage, folder):
    loaded()
    (path,) = folder.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert not loaded()
    assert loaded()  # and put right


def test_a_file_under_another_name_is_not_loaded(folder):
    loaded()
    (path,) = folder.iterdir()
    content = path.read_bytes()
    loaded(0.5)
    for other in folder.iterdir():
        other.write_bytes(content)
    assert not loaded(0.5)


def test_a_full_disk(folder):
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.warns(
            UserWarning, match=r"cannot be kept, so every process compiles anew: .*kernels: File too large"
        ):
            assert not loaded()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(folder.iterdir()) == []
    assert not loaded()
    assert loaded()


def test_a_folder_that_cannot_be_made(folder):
    folder.parent.write_text("a file")
    with pytest.warns(UserWarning, match="cannot be kept"):
        assert not loaded()
    assert not list(PACKAGE.rglob("*.nb[ci]"))  # not beside the sources either


@pytest.mark.usefixtures("folder")
def test_no_home_directory(monkeypatch):
    pwd = pytest.importorskip("pwd")

    def unknown(_):
        raise KeyError("uid not found")

    for name in ("PLACKETT_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    compilation._folder.cache_clear()
    with pytest.warns(UserWarning, match="there is no home directory: set PLACKETT_CACHE_DIR"):
        assert not loaded()


class Trap:
    def __reduce__(self):
        return signal.raise_signal, (signal.SIGKILL,)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners on this system")
@pytest.mark.parametrize("foreign", ["folder of others", "open folder", "file of others", "open file"])
def test_files_of_others_are_not_executed(foreign, folder):
    """Neither read nor replaced in a folder of others, and not read where the file alone is theirs."""
    if "of others" in foreign and os.geteuid() != 0:
        pytest.skip("only root can give files away")
    loaded()
    (path,) = folder.iterdir()
    trap = pickle.dumps(Trap())
    path.write_bytes(compilation._digest(path, trap) + trap)
    theirs = folder if "folder" in foreign else path
    if "open" in foreign:
        theirs.chmod(0o777)
    else:
        os.chown(theirs, 12345, -1)
    compilation._folder.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert not loaded()
        loaded()
    said = [str(warning.message) for warning in caught]
    if theirs is folder:
        assert said == [
            f"compiled code cannot be kept, so every process compiles anew: {folder} is another user's or others can "
            "write to it: remove it, or set PLACKETT_CACHE_DIR"
        ]
    else:
        assert said == []


# Interrupted, forked

_INTERRUPTED = """
import os, signal, threading
import numpy as np
from plackett import CoordinateAscentRanker

rng = np.random.default_rng(0)
X, y = rng.standard_normal((2000, 10)), rng.integers(0, 4, 2000).astype(float)

def fit():
    return CoordinateAscentRanker(random_state=0).fit(X, y, qid=np.arange(2000) // 40)

fit()
for seconds in np.linspace(0.005, 0.1, 12):
    try:
        threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()
        while True:
            fit()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
fit()
print("and goes on")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals")
def test_ctrl_c_is_a_keyboard_interrupt():
    result = subprocess.run([sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True, check=False)  # noqa: S603
    assert result.stdout.split("\n") == ["interrupted"] * 12 + ["and goes on", ""], result.stderr[-2000:]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.usefixtures("folder")
def test_a_child_forked_while_another_thread_compiles():
    from forks import Fork
    from numba.core.compiler_lock import global_compiler_lock

    held = threading.Event()

    def compile_for_a_while():
        with global_compiler_lock:
            held.set()
            threading.Event().wait(0.3)

    compiler = threading.Thread(target=compile_for_a_while)
    compiler.start()
    held.wait()
    child = Fork(lambda: kernel(three_times)(2))
    compiler.join()
    assert child.outcome() == (6, None)
