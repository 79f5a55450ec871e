"""Untrusted files: nothing in them is executed, declared sizes are not trusted, links are not followed."""

import ast
import builtins
import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import pickle
import re
import shutil
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import fuzz
import joblib
import numpy as np
import pyarrow.parquet
import pytest
import torch
from processes import run_alone
from rich.console import Console

import plackett
from plackett import data, metrics
from plackett.aggregation import load_edges
from plackett.boosted.tree_checkpoints import TreeCheckpoint
from plackett.cli.models import _trec_lines
from plackett.data import files, letor, parquet_sizes, sparse_text
from plackett.data.untrusted import parse_array, parse_arrays, parse_json, regular_file
from plackett.errors import DataError
from plackett.estimators import LinearRanker, RankAggregator, load_model, persistence
from plackett.evaluation import evaluate
from plackett.experiments import Claim, Findings, get_experiment, read_results
from plackett.experiments.document import document
from plackett.experiments.framework import CellStore
from plackett.experiments.timing import PeakMemory
from plackett.linear.summary import CoefficientSummary
from plackett.neural import History
from plackett.neural.checkpoints import read_tensors, write_tensors
from plackett.report import history_table, plot_history, summary_table
from plackett.report.page import Axis, ItemPlot, LinePlot, Section, Series, draw_picture

SOURCES = sorted(Path(plackett.__file__).parent.rglob("*.py"))


# Nothing is executed

_FORBIDDEN_MODULES = {
    "pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "marshal",
    "shelve",
    "jsonpickle",
    "yaml",
    "imp",
    "joblib",
}
_TRUSTED = {"compilation.py": ["import pickle"]}  # compiled code, in files that only the user can write
_FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}


def _faults(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (f"import {a.name}" for a in node.names if a.name.split(".")[0] in _FORBIDDEN_MODULES)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in _FORBIDDEN_MODULES:
            yield f"from {node.module} import"
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if name in _FORBIDDEN_CALLS:
                yield name
            if re.search(r"(^|\.)(np|numpy)\.load$", name) and given.get("allow_pickle") != "False":
                yield f"{name} without allow_pickle=False"
            if name == "torch.load" and given.get("weights_only") != "True":
                yield f"{name} without weights_only=True"
            if name in ("os.system", "os.popen") or given.get("shell") == "True":
                yield f"{name} with a shell"
            if name.endswith("import_module") and not isinstance(node.args[0], ast.Constant | ast.JoinedStr | ast.Name):
                yield f"{name} of something computed"


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(SOURCES[0].parent)))
def test_no_module_can_execute_data(source: Path) -> None:
    assert list(_faults(ast.parse(source.read_text()))) == _TRUSTED.get(source.name, [])


def test_search_for_executing_modules_finds_some() -> None:
    code = "import pickle\nfrom joblib import load\nnp.load(x)\ntorch.load(x)\neval(x)\nsubprocess.run(x, shell=True)"
    assert len(list(_faults(ast.parse(code)))) == 6


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("exit 1",)


def _written(write: Callable[..., Any]) -> bytes:
    target = io.BytesIO()
    write(target)
    return target.getvalue()


_OBJECTS = np.array([Trap()], dtype=object)
PICKLES = {
    "pickle": pickle.dumps(Trap()),
    "npy": _written(lambda file: np.save(file, _OBJECTS, allow_pickle=True)),
    "npz": _written(lambda file: np.savez(file, scores=_OBJECTS, coefficients=_OBJECTS)),
    "joblib": _written(lambda file: joblib.dump(Trap(), file)),
    "torch": _written(lambda file: torch.save({"weight": Trap()}, file)),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about linear trees or fits of three rounds do not matter here
        for name, make in fuzz.MODELS.items():
            make().save(folder / name)
    return {name: folder / name for name in fuzz.MODELS}


@pytest.fixture
def no_execution(monkeypatch: pytest.MonkeyPatch) -> None:
    """Detects any unpickling or evaluation, even inside an `except` that would hide it."""
    for seed, read in fuzz.READERS.values():  # compiled code is unpickled from a trusted cache
        read(seed)

    class Executed(BaseException):
        pass

    def refuse(*_: Any, **__: Any) -> Any:
        raise Executed

    for module, name in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (pickle, "_Unpickler")):
        monkeypatch.setattr(module, name, refuse)
    monkeypatch.setattr(os, "system", refuse)
    for name in ("eval", "exec"):
        original = getattr(builtins, name)
        # The import system and namedtuples execute their own code.
        monkeypatch.setattr(builtins, name, _unless_from_plackett(original, refuse))


def _unless_from_plackett(original: Callable[..., Any], refuse: Callable[..., Any]) -> Callable[..., Any]:
    import sys

    def guarded(*arguments: Any, **named: Any) -> Any:
        caller = sys._getframe(1).f_globals.get("__name__", "")
        return (
            refuse() if caller.startswith(("plackett", "numpy", "torch", "joblib")) else original(*arguments, **named)
        )

    return guarded


def _copy(folder: Path, target: Path) -> Path:
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return target


@pytest.mark.usefixtures("no_execution")
@pytest.mark.parametrize("kind", ["boosted", "neural", "extreme", "linear", "coordinate_ascent", "aggregator"])
def test_pickles_as_model_files_are_not_executed(kind: str, models: dict[str, Path], tmp_path: Path) -> None:
    for way, content in PICKLES.items():
        for name in [path.name for path in models[kind].iterdir()]:
            folder = _copy(models[kind], tmp_path / f"{way}-{name}")
            (folder / name).write_bytes(content)
            resign(folder)
            with pytest.raises(DataError):
                load_model(folder)


@pytest.mark.usefixtures("no_execution")
def test_pickles_as_data_are_not_executed() -> None:
    ranking = data.load_letor(io.BytesIO(b"1 qid:1 1:1\n0 qid:1 1:2\n"))
    for content in PICKLES.values():
        stream = io.BytesIO(content)
        stream.name = "scores.npy"
        with pytest.raises(DataError):
            data.load_scores(stream, ranking)
        for read in (data.load, data.load_letor, data.load_xmc, data.load_parquet, data.load_preflib, load_edges):
            with pytest.raises(DataError):
                read(io.BytesIO(content))


@pytest.mark.usefixtures("no_execution")
@pytest.mark.parametrize("key", ["class", "objective", "network", "activation", "optimizer", "solver", "scaling"])
@pytest.mark.parametrize("name", ["os.system", "builtins.eval", "__import__", "load_state_dict", "__class__"])
def test_names_in_a_description_must_be_known(key: str, name: str, models: dict[str, Path], tmp_path: Path) -> None:
    for kind, folder in models.items():
        changed = _copy(folder, tmp_path / kind)
        description = json.loads((changed / "plackett.json").read_text())
        place = description if key == "class" else description["parameters"]
        if key not in place:
            continue
        place[key] = name
        (changed / "plackett.json").write_text(json.dumps(description))
        try:
            model = load_model(changed)
        except DataError:
            continue
        assert key in (
            "objective",
            "optimizer",
            "solver",
            "scaling",
        )  # checked when training starts
        with pytest.raises(ValueError, match="must be one of"):
            model.fit([["a", "b"], ["b", "a"]]) if kind == "aggregator" else _fit(model)


def _fit(model: Any) -> None:
    if "extreme" in type(model).__name__.lower():
        model.fit(fuzz.X, fuzz.LABELS)
    else:
        model.fit(fuzz.X, fuzz.Y, group=fuzz.GROUP)


# Models stay in their folder


def resign(folder: Path) -> None:
    """Correct the hash of the description, as an attacker who alters a model would."""
    try:
        description = json.loads((folder / "plackett.json").read_text())
    except ValueError:
        return
    for path in folder.iterdir():
        if path.name != "plackett.json" and "sha256" in description["state"]:
            description["state"]["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "plackett.json").write_text(json.dumps(description))


@pytest.mark.parametrize("kind", ["boosted", "neural", "extreme", "linear", "coordinate_ascent", "aggregator"])
def test_links_are_not_followed(kind: str, models: dict[str, Path], tmp_path: Path) -> None:
    for number, name in enumerate(path.name for path in models[kind].iterdir()):
        folder = _copy(models[kind], tmp_path / str(number))
        (folder / name).unlink()
        (folder / name).symlink_to(models[kind] / name)
        with pytest.raises(DataError, match="expected a file, got a link, a folder, a pipe or a device"):
            load_model(folder)
    linked = tmp_path / "linked"
    linked.symlink_to(models[kind])  # the user may name the folder itself by a link
    load_model(linked)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_pipes_do_not_block_the_reader(models: dict[str, Path], tmp_path: Path) -> None:
    for name in ("plackett.json", "model.txt"):
        folder = _copy(models["boosted"], tmp_path / name)
        (folder / name).unlink()
        os.mkfifo(folder / name)
        with pytest.raises(DataError, match="a pipe"):
            load_model(folder)


def test_names_in_a_description_are_not_paths(models: dict[str, Path], tmp_path: Path, monkeypatch: Any) -> None:
    """Replace all strings of a description by paths: only files in the folder are opened."""
    opened: list[Path] = []
    original = Path.open

    def watch(self: Path, *arguments: Any, **named: Any) -> Any:
        opened.append(self)
        return original(self, *arguments, **named)

    for kind, source in models.items():
        folder = _copy(source, tmp_path / kind)
        description = json.loads((folder / "plackett.json").read_text())
        description["state"] |= {"file": "/etc/passwd", "weights": "../../x", "model": "../x"}
        description["file"] = "/etc/passwd"
        (folder / "plackett.json").write_text(json.dumps(description))
        monkeypatch.setattr(Path, "open", watch)
        load_model(folder)
        monkeypatch.undo()
        assert opened
        assert {path.parent for path in opened} == {folder}
        opened.clear()


# Declared sizes are not trusted


def _rewrite(folder: Path, target: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    copy = _copy(folder, target)
    description = json.loads((copy / "plackett.json").read_text())
    change(description)
    (copy / "plackett.json").write_text(json.dumps(description))
    return copy


def _set(*keys: str, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(description: dict[str, Any]) -> None:
        place = description
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = to

    return change


HUGE = {
    "hidden sizes": ("neural", _set("parameters", "hidden_sizes", to=[10**9])),
    "many hidden sizes": ("neural", _set("parameters", "hidden_sizes", to=[1] * 10**6)),
    "overflowing sizes": ("neural", _set("parameters", "hidden_sizes", to=[10**18, 10**18])),
    "no whole number": ("neural", _set("parameters", "hidden_sizes", to=[10**30])),
    "attention": ("neural, attention", _set("parameters", "attention_layers", to=10**9)),
    "heads": ("neural, attention", _set("parameters", "attention_heads", to=10**9)),
    "members": ("neural", _set("state", "members", to=10**9)),
    "no members": ("neural", _set("state", "members", to=0)),
    "features": ("neural", _set("n_features_in", to=10**12)),
    "features of the scaling": ("neural", _set("state", "about", "features", to=10**12)),
    "labels": ("extreme", _set("state", "about", "labels", to=10**12)),
    "labels that fit into memory": ("extreme", _set("state", "about", "labels", to=10**8)),
    "features of labels": ("extreme", _set("n_features_in", to=10**12)),
    "coefficients": ("linear", _set("n_features_in", to=10**12)),
    "items": ("aggregator", _set("state", "items", to=["a", "b"])),
    "features of items": ("aggregator", _set("n_features_in", to=10**12)),
    "classes": ("boosted, classes", _set("state", "gains", to=[1.0] * 10**5)),
    "best round": ("boosted", _set("state", "best_iteration", to=10**12)),
}


@pytest.mark.parametrize("name", HUGE)
def test_oversized_descriptions_are_refused(name: str, models: dict[str, Path], tmp_path: Path) -> None:
    kind, change = HUGE[name]
    folder = _rewrite(models[kind], tmp_path / "model", change)
    with PeakMemory() as peak, pytest.raises(DataError):
        load_model(folder)
    assert peak.added < 300_000_000  # as much as reading a model takes


def test_columns_that_a_classifier_does_not_have_are_refused(models: dict[str, Path], tmp_path: Path) -> None:
    folder = _copy(models["extreme"], tmp_path / "model")
    tensors, about = read_tensors(folder / "weights.safetensors")
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    tensors["scaling.indicated"] = torch.tensor([0])
    write_tensors(folder / "weights.safetensors", tensors, about)
    resign(folder)
    with pytest.raises(DataError, match="add no columns for missing values"):
        load_model(folder)


def test_oversized_tensors_are_refused(models: dict[str, Path], tmp_path: Path) -> None:
    folder = _copy(models["neural"], tmp_path / "model")
    path = folder / "weights.safetensors"
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    name = next(name for name in header if name != "__metadata__")
    header[name]["shape"] = [10**12]
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + size :])
    resign(folder)
    with pytest.raises(DataError, match="not a readable file of tensors"):
        load_model(folder)
    path.write_bytes((10**15).to_bytes(8, "little") + content[8:])
    resign(folder)
    with pytest.raises(DataError, match="not a readable file of tensors"):
        load_model(folder)


def _npy(descr: str, shape: str, content: bytes = b"") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (_npy("'<f8'", "(1000000000000,)"), r"shape \(1000000000000,\) does not fit 0 bytes"),
        (_npy("'<f8'", "(99999999999, 99999999999)", b"\0" * 8), "does not fit 8 bytes"),
        (_npy("'|O'", "(1,)", b"\0" * 8), "not a NumPy array of numbers or strings"),
        (_npy("[('a', '<f8')]", "(1,)", b"\0" * 8), "not a NumPy array of numbers or strings"),
        (_npy("'<i3'", "(1,)", b"\0" * 3), "of unknown type"),
        (_npy("'<U99999999'", "(9,)"), "does not fit 0 bytes"),
        (_npy("'<f8'", "(" * 5000 + ")" * 5000), "not a NumPy array of numbers or strings"),
        (_npy("'<f8'", "__import__('os').system('x')"), "not a NumPy array of numbers or strings"),
        (b"", "not a NumPy array"),
    ],
)
def test_oversized_arrays_are_refused(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_array(content)


def test_compressed_arrays_are_refused() -> None:
    bomb = io.BytesIO()
    np.savez_compressed(bomb, scores=np.zeros(10**7))
    assert len(bomb.getvalue()) < 10**5
    with pytest.raises(ValueError, match="expected uncompressed arrays, got compressed ones"):
        parse_arrays(bomb)


def test_arrays_that_share_their_bytes_are_refused() -> None:
    """Many entries of a zip archive may point at the same content."""
    import zipfile

    stored = io.BytesIO()
    with zipfile.ZipFile(stored, "w") as archive:
        archive.writestr("a.npy", bytes(100_000))
        (first,) = archive.filelist
        for number in range(50):
            copy = zipfile.ZipInfo(f"b{number}.npy")
            copy.header_offset, copy.file_size, copy.compress_size = 0, first.file_size, first.compress_size
            copy.CRC = first.CRC
            archive.filelist.append(copy)
    with pytest.raises(ValueError, match=r"larger than the file|not a file of arrays"):
        parse_arrays(stored)


def test_oversized_data_headers_are_refused() -> None:
    cases: list[tuple[Callable[..., Any], bytes, str]] = [
        (data.load_xmc, b"1 2 1000000000000\n0 0:1\n", "expected a header with the numbers of rows, features and"),
        (data.load_xmc, b"999999999 2 2\n0 0:1\n", "declares 999,999,999 rows, but 1 follow"),
        (data.load_letor, b"1 qid:1 1000000000000000:1\n", "feature index above"),
        (data.load_letor, b"1 qid:1 2000000000:1\n", "a dense array of .* is too large"),
        (
            data.load_preflib,
            b"# NUMBER ALTERNATIVES: 9999999\n1: 1,2\n",
            "declares 9,999,999 alternatives, but names 0",
        ),
        (data.load_preflib, b"# NUMBER ALTERNATIVES: 1000000000000\n1: 1\n", "at most 10,000,000 alternatives"),
        (data.load_preflib, b"# NUMBER ALTERNATIVES: 2\n9999999999999999: 1\n", "expected a ballot"),
    ]
    for read, content, message in cases:
        with pytest.raises(DataError, match=message):
            read(io.BytesIO(content))


def test_declared_labels_take_no_memory() -> None:
    code = """
    import io, json
    from plackett import data, metrics
    from plackett.experiments.timing import PeakMemory
    data.describe(data.load_xmc(io.BytesIO(b"2 3 2\\n0 0:1\\n1 0:1\\n")))
    data.load_letor(io.BytesIO(b"1 qid:1 2:1\\n"), sparse=True)
    with PeakMemory() as peak:
        found = data.load_xmc(io.BytesIO(b"2 999999999 999999999\\n0 0:1\\n999999998 0:1\\n"))
        facts = data.describe(found).facts
        sparse = data.load_letor(io.BytesIO(b"1 qid:1 2000000000:1\\n"), sparse=True)
    print(json.dumps([peak.added, facts["labels"], sparse.X.shape]))
    """
    added, labels, shape = run_alone(code)
    assert (labels, shape) == (999_999_999, [1, 2 * 10**9])
    assert added < 100_000_000


def test_metrics_take_no_memory_for_declared_labels() -> None:
    few, many = (data.load_xmc(io.BytesIO(b"3 2 %d\n0 0:1\n1 0:1\n2 0:1\n" % labels)) for labels in (9, 300_000_000))
    names = ["p@1", "recall@1", "ndcg@1"]

    def measure(rows: data.MultilabelData) -> list[float]:
        scores = data.load_scores(io.BytesIO(b"0:1\n1:1\n5:1\n"), rows)
        found = [result.value for result in evaluate(rows, {"system": scores}, names)]
        return [*found, metrics.coverage(scores, rows.Y, k=1)]

    measure(few)  # compiled
    tracemalloc.start()
    assert measure(many) == measure(few)
    with pytest.raises(ValueError, match="300,000,000 columns and 3 labels in them: too many columns for an array"):
        metrics.inverse_propensity(many.Y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10**8


def test_one_long_identifier_does_not_pad_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letor, "_MOST_CHARACTERS", 10_000)
    rows = b"0 qid:1 1:1\n" * 100
    with pytest.raises(DataError, match=r"line 101: an array of 101 identifiers of 200 bytes .* Pass ids=False"):
        data.load_letor(io.BytesIO(rows + b"1 qid:1 1:1 # " + b"x" * 200 + b"\n"))
    assert data.load_letor(io.BytesIO(rows + b"1 qid:1 1:1 # " + b"x" * 90 + b"\n")).ids is not None
    monkeypatch.setattr(sparse_text, "_BLOCK", 500)  # pieces that are small on their own
    with pytest.raises(DataError, match="101 identifiers of 200 bytes"):
        data.load_letor(io.BytesIO(rows + b"1 qid:1 1:1 # " + b"x" * 200 + b"\n"))


def test_list_sizes_that_overflow_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    path.write_bytes(b"1 1:1\n0 1:2\n")
    sizes = [9 * 10**14] * (2**64 // (9 * 10**14))
    sizes.append(2**64 - sum(sizes) + 2)
    (tmp_path / "rows.txt.query").write_text("".join(f"{size}\n" for size in sizes))
    assert int(np.array(sizes, np.int64).sum()) == 2
    with pytest.raises(DataError, match="the sizes must add up to"):
        data.load_letor(path)


# Compression


def _load_scores(source: Any) -> Any:
    return data.load_scores(source, data.RankingData(np.zeros((3, 1)), np.zeros(3), np.zeros(3), np.array([0, 3])))


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress], ids=["gz", "bz2", "xz"])
@pytest.mark.parametrize(
    ("read", "line"),
    [(data.load_letor, b"1 qid:1 1:1\n"), (data.load_preflib, b"# TITLE: x\n"), (data.load_parquet, b"PAR1" * 4)],
)
def test_decompression_bombs_are_refused(
    compress: Callable[[bytes], bytes], read: Callable[..., Any], line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a lower limit, so that the bomb can be small too."""
    monkeypatch.setattr(files, "_FREE", 1 << 16)
    monkeypatch.setattr(files, "_FREE_LINES", 1 << 16)
    monkeypatch.setattr(files, "_AT_ONCE", 1 << 14)
    bomb = compress(line * (2**20 // len(line)))
    with pytest.raises(
        DataError, match=r"bytes expand to at least .*, more than 250 times the size\. .*PLACKETT_MAX_EXPANSION"
    ):
        read(io.BytesIO(bomb))


@pytest.mark.parametrize(
    ("read", "line"),
    [(data.load_preflib, b"\n"), (data.load_rankings_csv, b"1\n"), (load_edges, b"A,B\n"), (data.load_group, b"1\n")],
)
def test_python_readers_have_a_lower_limit(
    read: Callable[..., Any], line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert files._FREE_LINES <= files._FREE >> 7  # a Python object for each line or cell
    monkeypatch.setattr(files, "_FREE_LINES", 1 << 12)
    monkeypatch.setattr(files, "_AT_ONCE", 1 << 10)
    bomb = bz2.compress(line * 2**16)
    with pytest.raises(DataError, match=r"bytes expand to at least .*, more than 250 times the size"):
        read(io.BytesIO(bomb))


def test_streams_are_not_expanded_during_detection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_FREE_LINES", 1 << 12)
    bomb = bz2.compress(b"1\n" * 2**16)
    with pytest.raises(DataError, match=r"bytes expand to at least .*, more than 250 times the size"):
        data.load(io.BytesIO(bomb), format="csv")


def test_python_readers_store_numbers_not_objects() -> None:
    """Lines take about 40 bytes each while they are read; Python lists would take over 200."""
    lines = 4000
    cases: list[tuple[Callable[..., Any], bytes]] = [
        (data.load_preflib, b"# NUMBER ALTERNATIVES: 2\n" + b"1: 1,2\n" * lines),
        (data.load_preflib, b"# NUMBER ALTERNATIVES: 2\n1: 1,2\n" + b"\n" * lines),
        (data.load_rankings_csv, b"a,b\n" + b"1,2\n" * lines),
        (data.load_rankings_csv, b"place1,place2\n" + b"a,b\n" * lines),
        (load_edges, b"a,b\n" * lines),
        (data.load_group, b"1\n" * lines),
    ]
    for read, content in cases:
        read(io.BytesIO(content))  # compiled, imported
        tracemalloc.start()
        read(io.BytesIO(content))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 150 * lines


def test_long_runs_of_one_character_take_linear_time() -> None:
    """They take linear time: in quadratic time each took minutes."""
    blanks, declared = b" " * 200_000, b"# NUMBER ALTERNATIVES: 2\n"
    assert len(data.load_preflib(io.BytesIO(b"#" + blanks + b"x\n" + declared + b"1: 1,2\n"))) == 1
    assert len(data.load_preflib(io.BytesIO(b"# TITLE: a" + blanks + b"b\n" + declared + b"1: 1,2\n"))) == 1
    for order in (b"{" + blanks + b"x", b"1" + blanks + b"x", b"{" + b"1," * 100_000, b"9" * 200_000):
        with pytest.raises(DataError, match="line 2: expected a ballot"):
            data.load_preflib(io.BytesIO(declared + b"1:" + order + b"\n"))
    with pytest.raises(DataError, match="line 2: expected at most 2 items"):
        data.load_preflib(io.BytesIO(declared + b"1:" + b"1," * 100_000 + b"1\n"))


def test_second_byte_order_mark_is_refused() -> None:
    """The first one is skipped; a second one would become part of the first name and be lost when written."""
    mark = "\ufeff".encode()
    assert data.load_rankings_csv(io.BytesIO(mark + b"a,b\n1,2\n")).names == ["a", "b"]
    with pytest.raises(DataError, match="line 1: found a second byte-order mark"):
        data.load_rankings_csv(io.BytesIO(2 * mark + b"a,b\n1,2\n"))
    ballots = data.load_rankings_csv(io.BytesIO(b"a,b\n1,2\n"))
    with pytest.raises(ValueError, match=r"names must be unique and not empty, .* byte-order mark"):
        data.dump_rankings_csv(replace(ballots, names=["\ufeffa", "b"]), io.BytesIO())


@pytest.mark.parametrize(
    ("read", "line"),
    [(data.load_letor, b"0 qid:1\n"), (data.load_letor, b"0\n"), (data.load_xmc, b"0\n"), (_load_scores, b"1\n")],
)
def test_limit_counts_arrays_as_well_as_text(
    read: Callable[..., Any], line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text itself is below the limit, but its numbers take several times as much."""
    monkeypatch.setattr(files, "_FREE", 1 << 20)
    monkeypatch.setattr(sparse_text, "_BLOCK", 1 << 16)
    text = line * (2**19 // len(line))
    header = b"%d 1 1\n" % (len(text) // len(line)) if read is data.load_xmc else b""
    with pytest.raises(DataError, match=r"bytes expand to at least 1,\d{3},\d{3}, more than 250 times"):
        read(io.BytesIO(bz2.compress(header + text)))


def test_limit_counts_dense_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_FREE", 1 << 20)
    rows = b"1 qid:1 1:1\n" * 1000 + b"1 qid:1 1:1 400:1\n"
    with pytest.raises(DataError, match=r"bytes expand to at least 3,\d{3},\d{3}"):
        data.load_letor(io.BytesIO(bz2.compress(rows)))
    assert data.load_letor(io.BytesIO(bz2.compress(rows)), sparse=True).X.shape == (1001, 400)
    assert data.load_letor(io.BytesIO(rows)).X.shape == (1001, 400)  # this one has enough stored bytes
    assert letor._MOST_DENSE * 8 <= 1 << 28


def test_limit_can_be_raised_for_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_FREE", 1 << 18)
    path = tmp_path / "letor.txt.gz"
    path.write_bytes(gzip.compress(b"1 qid:1 1:1\n" * 10**5))
    with pytest.raises(DataError, match="more than 250 times"):
        data.load_letor(path)
    monkeypatch.setenv("PLACKETT_MAX_EXPANSION", "5000")  # for arrays, which are several times the text
    assert len(data.load_letor(path).y) == 10**5
    monkeypatch.setenv("PLACKETT_MAX_EXPANSION", "many")
    with pytest.raises(ValueError, match="PLACKETT_MAX_EXPANSION must be a number or inf, got 'many'"):
        data.load_letor(path)


def test_real_compressed_data_is_accepted(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real data is far from the limit, however large it is."""
    monkeypatch.setattr(files, "_FREE", 0)
    lines = [
        f"{rng.integers(3)} qid:{i // 20} " + " ".join(f"{j}:{rng.integers(9)}" for j in range(1, 20))
        for i in range(4000)
    ]
    text = "\n".join(lines).encode()
    assert len(data.load_letor(io.BytesIO(gzip.compress(text))).y) == 4000


def test_parquet_of_repeated_values_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_FREE", 1 << 20)
    rows = 2 * 10**5
    table = data.RankingData(np.zeros((rows, 20)), np.zeros(rows), np.zeros(rows, np.int64), np.array([0, rows]))
    target = io.BytesIO()
    data.dump_parquet(table, target)
    with pytest.raises(DataError, match="bytes expand to at least 99,200,000"):
        data.load_parquet(io.BytesIO(target.getvalue()))


def _parquet(**columns: Any) -> io.BytesIO:
    target = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({"qid": [1, 1], "label": [0.0, 1.0]} | columns), target)
    target.seek(0)
    return target


def test_parquet_of_repeated_strings_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 200
    columns: dict[str, Any] = {"qid": np.ones(rows, int), "label": np.ones(rows)}
    table = _parquet(**columns, id=pyarrow.array(["x" * 10**5] * rows))
    monkeypatch.setattr(files, "_FREE", 1 << 20)
    with pytest.raises(DataError, match=r"bytes expand to at least 20,\d{3},\d{3}"):
        data.load_parquet(table)
    monkeypatch.undo()
    table.seek(0)
    ids = data.load_parquet(table).ids
    assert ids is not None
    assert all(text is ids[0] for text in ids)  # and takes the memory of one string
    table.seek(0)
    with pytest.raises(DataError, match="column 'id' must hold numbers, got string"):
        data.load_parquet(table, features=["id"])


def test_parquet_of_strings_with_shared_prefixes_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    target, rows = io.BytesIO(), 1000
    columns: dict[str, Any] = {"qid": np.ones(rows, int), "label": np.ones(rows), "id": ["x" * 10**4] * rows}
    pyarrow.parquet.write_table(
        pyarrow.table(columns), target, use_dictionary=False, column_encoding={"id": "DELTA_BYTE_ARRAY"}
    )
    target.seek(0)
    monkeypatch.setattr(files, "_FREE", 1 << 20)
    with pytest.raises(DataError, match="bytes expand to"):
        data.load_parquet(target)


def test_parquet_sizes_agree_with_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """They equal those that Arrow reports, but come from the pages: the footer may be wrong."""
    target, rows = io.BytesIO(), 1000
    columns = {"qid": np.ones(rows, int), "label": np.ones(rows), "x": np.zeros(rows), "id": ["x" * 10**4] * rows}
    pyarrow.parquet.write_table(pyarrow.table(columns), target, use_dictionary=False, compression="zstd")
    ((count, chunks),) = parquet_sizes.row_groups(target)
    about = pyarrow.parquet.read_metadata(target).row_group(0)
    assert count == rows
    for number, chunk in enumerate(chunks):
        expected, pages = about.column(number), parquet_sizes.pages_of(target, chunk)
        assert chunk.values == expected.num_values
        assert 0 <= expected.total_uncompressed_size - pages.expanded < 1000  # page headers, which Arrow counts too
        assert not pages.shares_prefixes
    monkeypatch.setattr(files, "_FREE", 1 << 20)
    with pytest.raises(DataError, match=r"bytes expand to at least 10,\d{3},\d{3}"):
        data.load_parquet(io.BytesIO(target.getvalue()))


def test_malformed_thrift_is_refused() -> None:
    deep = b"\x1c" * 100
    for content in (
        b"",
        b"\x15",
        b"\x1d\x00",
        deep,
        b"\x15" + b"\xff" * 20,
        b"\x18\xff\x7fabc",
        b"\x19\xf5\xff\xff\x7f",
    ):
        with pytest.raises((ValueError, IndexError)):
            parquet_sizes._Thrift(content).struct()
    fields = (
        b"\x15\x03\x18\x02ab\x19\x25\x02\x04\x11\x12\x1b\x00\x1c\x15\x02\x00\x17" + bytes(8) + b"\x06\x80\x01\x04\x00"
    )
    assert parquet_sizes._Thrift(fields).struct() == {
        1: -2, 2: b"ab", 3: [1, 2], 4: True, 5: False, 6: [], 7: {1: 1}, 8: bytes(8), 64: 2,
    }  # fmt: skip


def test_parquet_with_lists_in_cells_is_refused() -> None:
    nested = pyarrow.array([[1.0, 2.0], [3.0]])
    with pytest.raises(DataError, match="column 'x' must hold numbers, got list"):
        data.load_parquet(_parquet(x=nested))
    with pytest.raises(DataError, match="column 'id' must have a single value in each row, got list"):
        data.load_parquet(_parquet(id=nested))
    assert data.load_parquet(_parquet(x=nested, y=[1, 2]), features=["y"]).X.tolist() == [[1], [2]]


def test_many_table_columns_take_linear_comparisons() -> None:
    class Name(str):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Name.compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    class Table:
        column_names = tuple(Name(name) for name in ("q", "y", *(f"x{i}" for i in range(2000)), "x1"))

    with pytest.raises(DataError, match="column 'x1' occurs twice"):
        data.from_frame(Table(), query="q", label="y")
    assert 0 < Name.compared < 10 * 2003  # the square would be 4 million


def test_endless_line_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_text, "_LONGEST_LINE", 1000)
    monkeypatch.setattr(sparse_text, "_BLOCK", 400)
    with pytest.raises(DataError, match="lines must have at most 1,000 bytes"):
        data.load_letor(io.BytesIO(b"1 qid:1 " + b"1:1 " * 10**4))


def test_many_csv_columns_take_linear_time() -> None:
    header = ",".join(f"c{i}" for i in range(200_000)).encode()
    with pytest.raises(DataError, match="duplicate column name"):
        data.load_rankings_csv(io.BytesIO(header + b",c1\n1\n"))
    items = "=".join(f"c{i}" for i in range(15_000)).encode()
    with pytest.raises(DataError, match="an item occurs twice"):
        data.load_rankings_csv(io.BytesIO(b"place1,place2\n" + items + b",c14999\n"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("# NUMBER ALTERNATIVES: 2", "a number occurs twice in the header"),
        ("# ALTERNATIVE NAME 1: x", "an alternative is named twice"),
        ("# ALTERNATIVE NAME 2: a", "two alternatives have the same name"),
        ("# ALTERNATIVE NAME 0: x", "expected the number of an alternative, at least 1"),
        ("# ALTERNATIVE NAME \u0662: x", ""),  # a comment: digits of another script do not count
        ("\u0661: 1,2", "expected a ballot"),
        ("1: \u0661,2", "expected a ballot"),
        ("1: 1,2\n# NUMBER ALTERNATIVES: 1", "a number occurs twice in the header|must come before the ballots"),
        ("1: 1,2\n# ALTERNATIVE NAME 2: x", "must come before the ballots"),
    ],
)
def test_contradictory_preflib_files_are_refused(line: str, message: str) -> None:
    text = f"# NUMBER ALTERNATIVES: 3\n# ALTERNATIVE NAME 1: a\n{line}\n1: 1,2\n".encode()
    if not message:
        assert data.load_preflib(io.BytesIO(text)).names[1] == "Alternative 2"
        return
    with pytest.raises(DataError, match=message) as caught:
        data.load_preflib(io.BytesIO(text))
    assert caught.value.line == 3 + line.count("\n")


def test_preflib_name_equal_to_a_default_name_is_refused() -> None:
    with pytest.raises(DataError, match="an alternative has the default name"):
        data.load_preflib(io.BytesIO(b"# NUMBER ALTERNATIVES: 2\n# ALTERNATIVE NAME 1: Alternative 2\n1: 1,2\n"))


@pytest.mark.parametrize("line", ["a,b,1_0", "a,b,\u0661", "a,b\0", "a,b,\uff11"])
def test_lenient_number_formats_are_refused_in_comparisons(line: str) -> None:
    with pytest.raises(DataError, match="stream, line 2: ") as caught:
        load_edges(io.BytesIO(f"c,d\n{line}\n".encode()))
    assert caught.value.line == 2


def test_comparison_lines_end_at_line_breaks_only() -> None:
    assert load_edges(io.BytesIO("a\u2028x,b\r\nb,c\n".encode())).names == ["a\u2028x", "b", "c"]


def test_malformed_csv_is_refused() -> None:
    with pytest.raises(DataError, match="stream, line 1: not cells of a table"):
        load_edges(io.BytesIO(b"a," + b"b" * 200_000))


# JSON


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 10**5, "nested too deeply"),
        ('{"a": 1, "a": 2}', "the same name twice"),
        ("[NaN]", "contains NaN, which is not a finite number"),
        ("[-Infinity]", "contains -Infinity"),
        ("[1e999]", "contains 1e999"),
        ("1" * 301, "a number with more than 300 digits"),
        (b'"\xff"', "utf-8"),
        ("", "Expecting value"),
    ],
)
def test_malformed_json_is_refused(text: Any, message: str, models: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        parse_json(text)
    folder = _copy(models["linear"], tmp_path / "model")
    (folder / "plackett.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError, match=r"not a readable model"):
        load_model(folder)


def test_long_descriptions_are_refused(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persistence, "_LARGEST_DESCRIPTION", 200)
    with pytest.raises(DataError, match=r"plackett.json has more than 200 bytes"):
        load_model(models["linear"])
    with pytest.raises(ValueError, match="the description of a model must have at most 200 bytes, got"):
        RankAggregator().fit([["a", "b"], ["b", "a"]]).save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("parameters", to=[]), "parameters must be dict, got list"),
        (_set("parameters", "surprise", to=1), "surprise"),
        (_set("n_features_in", to="3"), "n_features_in must be int or NoneType, got str"),
        (_set("n_features_in", to=True), "n_features_in must be int or NoneType, got bool"),
        (_set("feature_names_in", to=["a"]), "feature_names_in must hold 3 names"),
        (_set("feature_names_in", to=[1, 2, 3]), "feature_names_in must hold 3 names"),
        (_set("state", to=None), "state must be dict, got NoneType"),
        (_set("state", to={}), "n_iter_"),
        (_set("class", to="Trap"), "a model of class Trap; expected one of"),
        (_set("format", to=99), "in format 99; expected"),
    ],
)
def test_descriptions_of_wrong_types_are_refused(
    change: Callable[[dict[str, Any]], None], message: str, models: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        load_model(_rewrite(models["linear"], tmp_path / "model", change))


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("linear", "loss_", "x"),
        ("linear", "n_lists_", []),
        ("linear", "note_", 3),
        ("linear", "n_lists_", True),
        ("coordinate_ascent", "n_iter_", None),
        ("aggregator", "log_likelihood", "x"),
        ("aggregator", "n_parameters", None),
        ("aggregator", "n_ballots", -1.0),
        ("aggregator", "n_ballots", 10**400),
        ("aggregator", "dropped_items", [None]),
    ],
)
def test_facts_of_a_fit_must_have_the_right_types(
    kind: str, name: str, value: Any, models: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="not a readable model"):
        load_model(_rewrite(models[kind], tmp_path / "model", _set("state", name, to=value)))


def test_missing_covariances_are_refused(models: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(models["aggregator"], folder)
    arrays = dict(np.load(folder / "worths.npz"))
    del arrays["covariance"]
    np.savez(folder / "worths.npz", **arrays)
    with pytest.raises(DataError, match="covariance is missing"):
        load_model(folder)


# Terminals


_HOSTILE = "[/x]\x1b]0;title\x07[bold]"
"""Markup that ends nothing, and a command to the terminal."""


@pytest.fixture
def output(plackett: Callable[..., tuple[int, str, str]]) -> Callable[..., str]:
    """Run the command with these arguments and return what it prints, without blanks."""

    def run(*arguments: object) -> str:
        code, printed, error = plackett(*arguments)
        assert code == 0, error
        assert "\x1b]0" not in printed + error
        return "".join((printed + error).split())

    return run


def test_file_names_do_not_control_the_terminal(tmp_path: Path, output: Callable[..., str]) -> None:
    rows, scores, other, model, edges, run = (tmp_path / f"{part}{_HOSTILE.replace('/', '')}" for part in "abcdef")
    rows.write_bytes(b"".join(b"%d qid:%d 1:%d\n" % (i % 2, i // 4, i % 3) for i in range(40)))
    scores.write_text("".join(f"{i % 5}\n" for i in range(40)))
    other.write_text("".join(f"{i % 7}\n" for i in range(40)))
    assert "[bold]" in output("info", rows)
    assert output("evaluate", rows, scores, other).count("\\x1b") >= 2
    assert "[bold]" in output("train", rows, "--model", "linear", "-o", model)
    assert "[bold]" in output("predict", model, rows, "-o", run)
    assert "[bold]" in output("bench", rows, "--repeats", 1)
    edges.write_text("a,b\nb,a\n")
    assert "[bold]" in output("aggregate", edges, "--edges")


def test_names_in_training_tables_do_not_control_the_terminal() -> None:
    note = CoefficientSummary([_HOSTILE], np.ones(1), np.ones(1), 0.95, _HOSTILE)
    history = History([{"epoch": 1, "loss": 1.0, _HOSTILE: 0.5}])
    for table in (summary_table(note), history_table(history)):
        console = Console(file=io.StringIO(), width=200)
        console.print(table)
        assert "\x1b]0" not in console.file.getvalue()
        assert "[/x]\\x1b" in console.file.getvalue()


def test_names_are_not_formulas(tmp_path: Path, output: Callable[..., str]) -> None:
    name = r"$\frac{$"
    edges = tmp_path / "edges.csv"
    edges.write_text(f"{name},b\nb,{name}\n")
    output("aggregate", edges, "--edges", "--plot", tmp_path / "plot.png")
    assert (tmp_path / "plot.png").exists()
    plots = [
        ItemPlot([name], [Series(name, [1.0])], Axis(name), name),
        LinePlot([Series(name, [1.0, 2.0]), Series("b", [1.0, 2.0])], Axis(name, reference=(1.0, name)), Axis(name)),
    ]
    assert draw_picture([Section(name, plots)])
    plot_history(History([{"epoch": 1, "loss": 1.0, name: 0.5}]), tmp_path / "history.png")


@pytest.mark.parametrize("ids", [["a", "b c"], ["a", ""], ["a", "b\n1 Q0 forged 1 9 plackett"], ["a", "\x1b[2J"], None])
def test_lines_of_a_run_cannot_be_forged(ids: list[str] | None, models: dict[str, Path]) -> None:
    model = load_model(models["linear"])
    named = None if ids is None else np.array(ids)
    part = data.RankingData(fuzz.X[:2], np.zeros(2), np.array([7, 7]), np.array([0, 2]), named)
    lines = [line.split() for line in _trec_lines(model, part, 2)]
    assert sorted(line[2] for line in lines) == ["0", "1"]  # row numbers, if some name is not a word
    assert [line[0] for line in lines] == ["7", "7"]
    for qid in ("a b", "", "1\n2", "\x1b"):
        with pytest.raises(ValueError, match="must be printable without blanks"):
            _trec_lines(model, replace(part, qid=np.array([qid, qid])), 2)
    lines = [line.split() for line in _trec_lines(model, replace(part, ids=np.array(["x", "y"])), 2)]
    assert sorted(line[2] for line in lines) == ["x", "y"]


# Results of experiments


def _result_file(folder: Path, **changes: Any) -> Path:
    """Write an altered copy of a stored file of results."""
    name = "plrank-table-2-full.json"
    about = json.loads((Path(__file__).parents[2] / "docs" / "reproduction" / name).read_text())
    (folder / name).write_text(json.dumps(about | changes))
    return folder


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cells": [[{"data": "<script>"}, {}]]}, "cells must hold plain text without markup, got '<script>'"),
        ({"cells": [[{"data": "a\nb"}, {}]]}, "cells must hold plain text without markup"),
        ({"cells": [[{"data": "a"}, {"[x](y)": 1}]]}, "cells must hold plain text without markup"),
        ({"cells": [[{"data": "mq2008"}]]}, "cells must be pairs"),
        ({"cells": {}}, "cells must be list, got dict"),
        ({"cells": [[{"data": "mq2008"}, {}]]}, "not results of plrank-table-2"),
        ({"cells": [[{}, {}]]}, "not results of plrank-table-2"),
        ({"versions": {"plackett": "<script>"}}, "cells must hold plain text without markup, got '<script>'"),
        ({"versions": None}, "versions must be dict"),
        ({"date": "[x](y)"}, "cells must hold plain text without markup"),
        ({"note": "<script>"}, "cells must hold plain text without markup"),
        ({"note": 1}, "note must be str, got int"),
        ({"command": "x\n<script>"}, "the command must be printable"),
        ({"command": None}, "command must be str"),
        ({"data": {"<script>": True}}, "data does not match experiment plrank-table-2"),
        ({"configuration": {}}, "configuration does not match experiment"),
        ({"experiment": "plrank-table-1"}, "experiment does not match experiment"),
        ({"scale": "quick"}, "scale does not match experiment"),
    ],
)
def test_results_of_another_experiment_are_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        document(_result_file(tmp_path, **changes), tmp_path)
    assert "plrank-table-2" in document(_result_file(tmp_path), tmp_path)


@pytest.mark.parametrize("content", [b"[" * 10**5, b"[]", b"{}", b'{"cells": 1, "cells": 2}', b"\xff", b""])
def test_files_without_results_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match="this is not a results file"):
        read_results(path)
    experiment = get_experiment("plrank-table-2")
    store = CellStore(tmp_path, experiment, "quick")
    store.put({"data": "a"}, {"value": 1})
    (kept,) = store.folder.iterdir()
    written = kept.read_bytes()
    kept.write_bytes(content)
    with pytest.raises(DataError, match="cannot read the result"):
        store.get({"data": "a"})
    kept.write_bytes(written.replace(b'"a"', b'"b"'))
    with pytest.raises(DataError, match="the result belongs to another cell"):
        store.get({"data": "a"})


def test_claims_do_not_control_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: Callable[..., str]
) -> None:
    def find(*_: Any) -> Findings:
        return Findings([], [Claim("it holds", True, _HOSTILE)])

    experiment = replace(get_experiment("plrank-table-2"), cells=lambda *_: [], find=find)
    monkeypatch.setattr("plackett.experiments.get_experiment", lambda _: experiment)
    assert "[/x]\\x1b" in output("reproduce", "plrank-table-2", "-o", tmp_path)


def test_names_do_not_control_the_terminal(tmp_path: Path, output: Callable[..., str]) -> None:
    path = tmp_path / "edges.csv"
    path.write_bytes(b"[/x]\x1b]0;title\x07,b\nb,[/x]\x1b]0;title\x07\n")
    assert "\\x1b" in output("aggregate", "--edges", path)


# Checkpoints


def test_tree_checkpoint_must_fit_the_rows(tmp_path: Path) -> None:
    """Compiled code updates as many scores as the checkpoint has, so their number must equal that of the rows."""
    target = fuzz.BoostedCheckpoint(tmp_path)
    for scores in (np.zeros(5), np.zeros((40, 2)), np.arange(40), np.full(40, np.nan)):
        content = io.BytesIO()
        np.savez(content, **{**target._arrays, "scores0": scores})
        with pytest.raises(DataError, match="scores"):
            target.run(content.getvalue())
    altered = target._arrays["model"].tobytes().replace(b"left_child=-1", b"left_child=-9")
    content = io.BytesIO()
    np.savez(content, **{**target._arrays, "model": np.frombuffer(altered, np.uint8)})
    with pytest.raises(DataError, match="left_child and right_child must name every node"):
        target.run(content.getvalue())


@pytest.mark.parametrize(
    "changes",
    [
        {"best": [1.0, float("inf")]},
        {"best": ["1", 1]},
        {"best": [1.0, 10**9]},
        {"best": [1.0]},
        {"rounds": 10**9},
        {"rounds": -1},
        {"history": {"valid": {"ndcg@10": [None]}}},
        {"history": {"valid": {"ndcg@10": [1.0] * 1000}}},
        {"history": []},
    ],
)
def test_bad_headers_of_a_tree_checkpoint_are_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    checkpoint = TreeCheckpoint(tmp_path / "state.npz", 1, "it")
    scores, history = [np.zeros(3)], {"valid": {"ndcg@10": [0.5, float("nan")]}}
    checkpoint.save(2, "tree\n\nTree=0\n\nTree=1\n", scores, history, (0.5, 1), [])
    state = checkpoint.load()
    assert state is not None
    assert (state.rounds, state.best) == (2, (0.5, 1))
    checkpoint.save(2, "tree\n\nTree=0\n\nTree=1\n", scores, {"valid": {"ndcg@10": [0, 1]}}, (1, 2), [])
    state = checkpoint.load()  # integers are converted to floats
    assert state is not None
    assert [type(value) for value in (*state.history["valid"]["ndcg@10"], state.best[0])] == [float] * 3  # type: ignore[index]
    header = {"rounds": 2, "history": history, "best": None} | changes
    checkpoint.save(header["rounds"], "tree\n\nTree=0\n\nTree=1\n", scores, header["history"], header["best"], [])
    with pytest.raises(DataError, match="not a readable checkpoint"):
        checkpoint.load()


def test_only_regular_files_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert regular_file(tmp_path / "file") == tmp_path / "file"
    with pytest.raises(DataError, match="expected a file"):
        regular_file(tmp_path)
    with pytest.raises(FileNotFoundError):
        regular_file(tmp_path / "none")


def test_linear_models_must_be_finite(models: dict[str, Path], tmp_path: Path) -> None:
    folder = _copy(models["linear"], tmp_path / "model")
    np.save(folder / "coefficients.npy", np.array([1.0, np.nan, 2.0]))
    with warnings.catch_warnings(), pytest.raises(DataError, match="the coefficients must be from"):
        LinearRanker.load(folder)
