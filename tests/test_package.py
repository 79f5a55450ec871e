"""The package: fast imports, complete API, documentation, command line, compilation cache."""

import doctest
import os
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import plackett
from plackett.compilation import cache_directory

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md"))]


def run(*arguments, **environment):
    return subprocess.run(  # noqa: S603  # our own interpreter
        [sys.executable, *arguments], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def test_import_loads_nothing_heavy():
    code = (
        "import sys, plackett; heavy = {'torch', 'lightgbm', 'numba', 'sklearn', 'scipy', 'matplotlib'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    assert run("-c", code).stdout.strip() == "[]"


def test_numpy_work_does_not_load_torch():
    code = (
        "import sys, numpy as np, plackett; plackett.partition_log_likelihood(np.zeros(3), np.array([1, 0, 0])); "
        "print('torch' in sys.modules)"
    )
    assert run("-c", code).stdout.strip() == "False"


BALLOTS = "# NUMBER ALTERNATIVES: 2\n# ALTERNATIVE NAME 1: ale\n# ALTERNATIVE NAME 2: beer\n3: 1,2\n2: 2,1\n"


@pytest.mark.parametrize(
    "code",
    [
        "import plackett; plackett.RankAggregator().fit([['a', 'b'], ['b', 'a']])",
        "from plackett.cli.app import app; import plackett.cli; app(['aggregate', 'a.soc'], standalone_mode=False)",
        "from plackett.cli.app import app; import plackett.cli; app(['info', 'a.soc'], standalone_mode=False)",
    ],
    ids=["fit", "aggregate", "info"],
)
def test_aggregation_loads_no_large_package_that_it_does_not_use(code, tmp_path):
    (tmp_path / "a.soc").write_text(BALLOTS)
    heavy = {"torch", "lightgbm", "sklearn", "pandas", "scipy.stats", "scipy.optimize", "matplotlib", "dask"}
    code = f"import os, sys; os.chdir({str(tmp_path)!r}); {code}; print('loaded', sorted({heavy} & set(sys.modules)))"
    assert run("-c", code).stdout.splitlines()[-1] == "loaded []"


@pytest.mark.skipif(find_spec("torch") is None, reason="a loss of tensors")
def test_losses_do_not_load_the_compiler_of_torch():
    code = (
        "import sys, torch; from plackett.losses import partition_loss; "
        "partition_loss(torch.zeros(3, requires_grad=True), torch.tensor([1, 0, 0])).backward(); "
        "print('torch._dynamo' in sys.modules)"
    )
    assert run("-c", code).stdout.strip() == "False"


def test_every_public_name_exists():
    for name in plackett.__all__:
        assert getattr(plackett, name) is not None
    assert set(plackett.__all__) == set(dir(plackett))
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        _ = plackett.no_such_name


def test_no_two_classes_have_the_same_name():
    places = {}
    for path in sorted((ROOT / "src" / "plackett").rglob("*.py")):
        for name in re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE):
            places.setdefault(name.lstrip("_"), []).append(str(path.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_modules_of_one_name_have_one_job():
    """The same part of another model family, or the registry of another kind of function."""
    places = {}
    for path in (ROOT / "src" / "plackett").rglob("*.py"):
        places.setdefault(path.stem, []).append(path)
    repeated = {name for name, paths in places.items() if len(paths) > 1 and not name.startswith("__")}
    assert repeated == {"fitting", "inference", "onnx_export", "registry", "solvers", "summary"}


@pytest.mark.parametrize(
    "folder", [str(path.parent.relative_to(ROOT / "src")) for path in (ROOT / "src" / "plackett").rglob("__init__.py")]
)
def test_every_package_says_where_to_start_and_what_it_may_import(folder):
    text = (ROOT / "src" / folder / "__init__.py").read_text().split('"""')[1]
    assert re.search(r"\bstart\b", text, re.IGNORECASE)
    assert re.search(r"\b[Mm]ay\s+(only\s+)?import\b|\bimports nothing else\b", text)


_PACKAGES = sorted(path.parent for path in (ROOT / "src" / "plackett").glob("*/__init__.py"))


@pytest.mark.parametrize("package", _PACKAGES, ids=lambda package: package.name)
def test_docstrings_of_packages_name_their_modules_and_what_they_import(package):
    """Kernels belong to the module that calls them, and the foundation need not be named."""
    text = (package / "__init__.py").read_text().split('"""')[1]
    inside = {path.stem for path in package.glob("*.py")} | {path.parent.name for path in package.glob("*/__init__.py")}
    modules = {name for name in inside if not name.startswith("__") and not name.endswith("_kernels")}
    assert {name for name in modules if not re.search(rf"\b{name}\b", text)} == set()
    if re.search(r"everything below|anything in Plackett|every other package", re.sub(r"\s+", " ", text)):
        return
    packages = {path.name for path in _PACKAGES} - {package.name}
    imported = {
        name
        for path in package.rglob("*.py")
        for name in re.findall(r"^ *from plackett\.(\w+)[\w.]* import", path.read_text(), re.MULTILINE)
    }
    allowed = text[re.search(r"\b[Mm]ay\s+import\b", text).start() :].split(".")[0]
    assert {name for name in imported & packages if name not in allowed} == set()


def test_lowest_versions_are_the_floors():
    """`make test-lowest` installs the lowest versions that pyproject.toml allows, except for torch."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["boosted"], *extras["report"], *extras["files"], *extras["distributed"]]
    floors = dict(re.match(r"([\w.-]+)(?:\[[^]]*\])?>=([\d.]+)", one).groups() for one in wanted)
    del floors["torch"]
    lines = (ROOT / "constraints-lowest.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert {name: re.sub(r"(\.0)*$", "", pins[name]) for name in floors} == {
        name: re.sub(r"(\.0)*$", "", floor) for name, floor in floors.items()
    }


def test_versions_are_reported(capsys):
    plackett.show_versions()
    shown = capsys.readouterr().out
    assert plackett.__version__ in shown
    assert f"numpy  {np.__version__}" in shown


def test_metadata_is_complete_and_agrees_with_the_citation():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["authors"] == [{"name": "Plackett contributors"}]
    supported = [name.rpartition(" ")[2] for name in project["classifiers"] if "Python :: 3." in name]
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert f"python: {supported}".replace("'", '"') in workflow
    assert f"\nversion: {plackett.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## {plackett.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_version_option_prints_the_version():
    assert run("-m", "plackett", "--version").stdout.strip() == plackett.__version__


def test_biases_of_the_demo_agree_with_an_independent_experiment():
    """Compare with the means over 12 seeds of an independent experiment, within four standard errors (about 0.006)."""
    from plackett.experiments.tie_bias import fit_all

    independent = {
        "exact tiers": (0.994, -0.496),
        "ties at random, all tiers": (0.550, -0.281),
        "ties at random, bottom unordered": (0.918, -0.458),
        "Efron, bottom unordered": (0.901, -0.449),
        "Breslow / lower bound, bottom unordered": (0.768, -0.381),
    }
    estimates = fit_all(range(12))
    assert set(estimates) == set(independent)
    for name, expected in independent.items():
        np.testing.assert_allclose(estimates[name].mean(axis=0), expected, atol=0.024)


@pytest.mark.skipif(find_spec("torch") is None, reason="pages use torch")
@pytest.mark.parametrize("page", PAGES)
def test_examples_on_pages_run(page):
    results = doctest.testfile(str(ROOT / page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.failed == 0


def test_cache_can_be_moved(tmp_path, monkeypatch):
    monkeypatch.setenv("PLACKETT_CACHE_DIR", str(tmp_path))
    assert cache_directory() == tmp_path


def test_works_without_a_cache_folder(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    code = (
        "import numpy as np; from plackett.data.parsing_kernels import gather as copy; "
        "out = np.zeros((1, 2), np.uint8); copy(np.array([7, 8, 9], np.uint8), np.array([[1, 3]]), out); "
        "print(out.tolist())"
    )
    result = run("-c", code, PLACKETT_CACHE_DIR=str(file))
    assert result.stdout.strip() == "[[8, 9]]", result.stderr
