"""Compiled kernels and their cache: keys cover all sources; files may be missing, damaged or another user's."""

import ast
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
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
    """Whether a new kernel was loaded rather than compiled; checks that its result is right either way."""
    fresh = kernel(three_times)
    assert fresh(number) == 3 * number
    return bool(fresh.stats.cache_hits)


# Keys


def _imported(path):
    """The modules of the package that a module imports, according to Python's own grammar."""
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


KERNEL_MODULES = [path for path in SOURCES if re.search("@(light_)?kernel", path.read_text())]


def test_cache_keys_cover_all_sources():
    """Every import of a module that a kernel may include is found, whatever form it has."""
    assert len(KERNEL_MODULES) > 10
    for module in KERNEL_MODULES:
        for source in compilation._sources(module):
            assert _imported(source) <= compilation._imports(source), source
            assert _imported(source) <= compilation._sources(module)


def test_changing_an_imported_module_changes_the_key(tmp_path, monkeypatch):
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
    """numba calls Python to wrap an array, where a Ctrl-C becomes a SystemError. Kernels have no closures either."""
    for function in ast.parse(path.read_text()).body:
        if isinstance(function, ast.FunctionDef) and any(
            ast.unparse(d) in ("kernel", "light_kernel") for d in function.decorator_list
        ):
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


def test_kernels_are_cached_and_loaded(folder):
    assert not loaded()
    assert loaded()
    assert not loaded(0.5)  # other argument types
    assert loaded(0.5)
    (one, _) = folder.iterdir()
    assert one.name.startswith("tests.test_compilation.three_times-")


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no modes on this system")
def test_cache_files_are_private(folder):
    before = os.umask(0)
    try:
        loaded()
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (folder.parent, folder, *folder.iterdir())] == [0o700, 0o700, 0o600]


@pytest.mark.parametrize("damage", [lambda _: b"", lambda old: old[:-1], lambda old: old[: len(old) // 2]])
def test_damaged_files_are_compiled_again(damage, folder):
    loaded()
    (path,) = folder.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert not loaded()
    assert loaded()  # and repaired


def test_renamed_file_is_not_loaded(folder):
    loaded()
    (path,) = folder.iterdir()
    content = path.read_bytes()
    loaded(0.5)
    for other in folder.iterdir():
        other.write_bytes(content)
    assert not loaded(0.5)


def test_full_disk_is_only_a_warning(folder):
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.warns(
            UserWarning, match=r"cannot cache compiled code, so every process compiles again: .*kernels: File too large"
        ):
            assert not loaded()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(folder.iterdir()) == []
    assert not loaded()
    assert loaded()


def test_uncreatable_cache_folder_is_only_a_warning(folder):
    folder.parent.write_text("a file")
    with pytest.warns(UserWarning, match="cannot cache"):
        assert not loaded()
    assert not list(PACKAGE.rglob("*.nb[ci]"))  # not next to the sources either


@pytest.mark.usefixtures("folder")
def test_missing_home_directory_is_reported(monkeypatch):
    pwd = pytest.importorskip("pwd")

    def unknown(_):
        raise KeyError("uid not found")

    for name in ("PLACKETT_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    compilation._folder.cache_clear()
    with pytest.warns(UserWarning, match="no home directory found: set PLACKETT_CACHE_DIR"):
        assert not loaded()


class Trap:
    def __reduce__(self):
        return signal.raise_signal, (signal.SIGKILL,)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners on this system")
@pytest.mark.parametrize("foreign", ["folder of others", "open folder", "file of others", "open file"])
def test_files_of_other_users_are_not_executed(foreign, folder):
    """In another user's folder, files are neither read nor replaced; another user's file is not read."""
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
    messages = [str(warning.message) for warning in caught]
    if theirs is folder:
        assert messages == [
            f"cannot cache compiled code, so every process compiles again: {folder} belongs to another user, or "
            "others can write to it: remove it, or set PLACKETT_CACHE_DIR"
        ]
    else:
        assert messages == []


# Announced


@pytest.mark.usefixtures("folder")
def test_compiling_is_announced_once_in_the_log(monkeypatch, caplog):
    monkeypatch.setattr(compilation, "_announced", False)
    caplog.set_level("INFO", logger="plackett")
    loaded()
    loaded(0.5)
    (message,) = [record.getMessage() for record in caplog.records if record.name == "plackett"]
    assert message.startswith("Compiling kernels for the first call; they are kept in ")


_ONE_KERNEL = """
import numpy as np
from plackett import partition_log_likelihood
from plackett.progress import progress_bar
with progress_bar("Working", 2):
    print(partition_log_likelihood(np.zeros(3), np.array([2, 1, 0])).round(6))
"""


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="no terminals on this system")
@pytest.mark.parametrize("compiled", [False, True])
def test_compiling_is_announced_on_a_terminal(compiled, folder, monkeypatch):
    """Also under a progress bar; standard output has nothing but the result."""
    if compiled:
        monkeypatch.delenv("PLACKETT_CACHE_DIR")
        subprocess.run([sys.executable, "-c", _ONE_KERNEL], check=True, capture_output=True)  # noqa: S603
    terminal, other_end = os.openpty()
    result = subprocess.run(  # noqa: S603
        [sys.executable, "-c", _ONE_KERNEL], stdout=subprocess.PIPE, stderr=other_end, text=True, check=True
    )
    os.close(other_end)
    try:
        shown = os.read(terminal, 10_000).decode()
    except OSError:  # nothing was written
        shown = ""
    os.close(terminal)
    assert result.stdout == "[-1.791759]\n"
    assert shown.count("Compiling kernels") == (not compiled)
    if not compiled:
        assert str(folder) in shown.replace("\r\n", "")


def test_functions_are_not_compiled_again_for_constants(folder):  # noqa: ARG001
    @compilation.inner
    def shifted(x, by):
        return x + by

    @kernel
    def both(x):
        return shifted(x, 1) + shifted(x, x)

    assert both(2) == 7
    assert len(shifted.signatures) == 1


@compilation.inner_part
def _indexed(x, table, mask, i, unsigned):
    """Elements at positive, negative, constant and unsigned positions of arrays that the function only borrows."""
    half = x[1:]
    half = half[1:]
    mask[i] = x[i] > x[-1]
    table[-1, i] += 10.0
    x[unsigned] -= 0.5
    return half[i] + 2.0 * table[i, -1] + 4.0 * table[0, unsigned] + 8.0 * mask[i]


def _indexed_in_a_copy(x, table, mask, i, unsigned):
    own = np.empty(x.size)
    for k in range(x.size):
        own[k] = x[k]
    return _indexed(own, table, mask, i, unsigned) + own[unsigned]


@pytest.mark.parametrize("layout", ["C", "F", "strided"])
@pytest.mark.parametrize("i", [0, 1, -1])
def test_elements_are_those_of_numpy(i, layout, folder, monkeypatch):  # noqa: ARG001
    def arguments():
        x, table = np.arange(5.0), np.arange(12.0).reshape(3, 4)
        table = {"C": table, "F": np.asfortranarray(table), "strided": np.repeat(table, 2, axis=1)[:, ::2]}[layout]
        return x, table, np.zeros(5, bool), i, np.uint64(3)

    compiled, plain = arguments(), arguments()
    value = kernel(_indexed_in_a_copy)(*compiled)
    monkeypatch.setitem(globals(), "_indexed", _indexed.py_func)
    assert value == _indexed_in_a_copy(*plain)
    for array, expected in zip(compiled[:3], plain[:3], strict=True):
        np.testing.assert_array_equal(array, expected)


@pytest.mark.usefixtures("folder")
def test_kernels_release_what_they_allocate():
    code = """
import numba.core.runtime as runtime, numpy as np
from plackett.likelihood import partition_derivatives
from plackett.metrics import ndcg
runtime._nrt_python.memsys_enable_stats()
for repeat in range(20):
    partition_derivatives(np.arange(40.0), np.arange(40.0) % 3)
    ndcg(np.arange(40.0), np.arange(40.0) % 3, k=5)
stats = runtime.rtsys.get_allocation_stats()
assert stats.alloc == stats.free > 100, stats
"""
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603


@pytest.mark.usefixtures("folder")
def test_compiling_does_not_import_scipy_linalg():
    code = (
        "import sys, numpy as np, plackett; plackett.partition_log_likelihood(np.zeros(3), np.arange(3))\n"
        "assert 'numba.np.arraymath' in sys.modules and 'scipy.linalg' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603


@pytest.mark.usefixtures("folder")
def test_arguments_of_none_leave_their_branch_out():
    @kernel
    def doubled(x, room):
        if room is not None:
            room[0] = x
        return 2 * x

    assert doubled(2, None) == 4


# Interrupted, forked

_INTERRUPTED = """
import os, signal, threading
import numpy as np
from plackett import CoordinateAscentRanker

rng = np.random.default_rng(0)
X, y = rng.standard_normal((2000, 10)), rng.integers(0, 4, 2000).astype(float)

def fit():
    return CoordinateAscentRanker(random_state=0).fit(X, y, qid=np.arange(2000) // 40)

signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of shells ignore the signal
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
def test_ctrl_c_raises_keyboard_interrupt():
    result = subprocess.run([sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True, check=False)  # noqa: S603
    assert result.stdout.split("\n") == ["interrupted"] * 12 + ["and goes on", ""], result.stderr[-2000:]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.usefixtures("folder")
def test_child_forked_during_compilation_can_compile():
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


def test_a_newer_numba_compiles_by_itself(tmp_path):
    """`kernel_compiler` replaces parts of numba, so it is left out with versions it was not tested with."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, numba, numpy as np\n"
        "numba.version_info = numba.version_info._replace(short=(99, 0))\n"
        "from plackett.compilation import inner, inner_part, inner_sum, kernel, light_kernel\n"
        "@inner\ndef twice(x):\n    return 2.0 * x\n"
        "@inner_part\ndef square(x):\n    return twice(x) * x\n"
        "@inner_sum\ndef total(x):\n    found = 0.0\n    for i in range(x.size):\n        found += square(x[i])\n"
        "    return found\n"
        "def both(x):\n    return total(x) + twice(x[0])\n"
        "for made in (kernel(both), light_kernel(both)):\n"
        "    print(made(np.arange(4.0) + 1.0), sum(made.stats.cache_hits.values()))\n"
        "print('plackett.kernel_compiler' in sys.modules)\n"
    )
    environment = {**os.environ, "PLACKETT_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, str(script)]
    outputs = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout  # noqa: S603
        for _ in range(2)
    ]
    assert [output.split() for output in outputs] == [
        ["62.0", "0", "62.0", "1", "False"],
        ["62.0", "1", "62.0", "1", "False"],
    ]
