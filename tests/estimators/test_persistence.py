"""Saved models: nothing is lost during writing, and invalid models are refused."""

from __future__ import annotations

import copy
import json
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fuzz
import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from plackett.errors import DataError
from plackett.estimators import (
    BoostedRanker,
    ExtremeClassifier,
    LinearRanker,
    NeuralRanker,
    load_model,
    persistence,
)
from plackett.estimators.persistence import _FILES, hash_of
from plackett.neural.checkpoints import read_tensors, write_tensors

KINDS = ["boosted", "neural", "extreme", "linear", "coordinate_ascent", "aggregator"]


@pytest.fixture(scope="module")
def fitted() -> Callable[[str], Any]:
    """A fitted model of each kind, shared by all tests."""
    found: dict[str, Any] = {}
    sparse = {"extreme, sparse": lambda: ExtremeClassifier(**fuzz._SMALL).fit(csr_array(fuzz.X), fuzz.LABELS)}
    return lambda kind: found[kind] if kind in found else found.setdefault(kind, (fuzz.MODELS | sparse)[kind]())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
@pytest.mark.parametrize("kind", KINDS)
def test_file_modes_follow_the_umask(kind: str, umask: int, fitted: Callable[[str], Any], tmp_path: Path) -> None:
    model, path = fitted(kind), tmp_path / "above" / "model"
    before = os.umask(umask)
    try:
        model.save(path)
    finally:
        os.umask(before)
    assert {file.name: oct(stat.S_IMODE(file.stat().st_mode)) for file in path.iterdir()} == {
        file.name: oct(0o666 & ~umask) for file in path.iterdir()
    }
    assert {file.name for file in path.iterdir()} <= _FILES
    assert stat.S_IMODE(path.stat().st_mode) == 0o777 & ~umask


def test_private_folder_stays_private(fitted: Callable[[str], Any], tmp_path: Path) -> None:
    path = tmp_path / "model"
    fitted("linear").save(path)
    path.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(path, 65534, 65533)
    before = path.stat()
    fitted("linear").save(path)
    after = path.stat()
    assert stat.S_IMODE(after.st_mode) == 0o700
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)
    assert after.st_ino != before.st_ino


@pytest.mark.parametrize("name", ["README.md", "data", "notes/", "model.txt/", "covariance.npy@"])
def test_folders_with_other_files_are_not_replaced(name: str, fitted: Callable[[str], Any], tmp_path: Path) -> None:
    """A folder or link with the name of a model file does not count as one."""
    path = tmp_path / "model"
    fitted("aggregator").save(path)
    before = contents(path)
    if name.endswith("/"):
        (path / name).mkdir()
    elif name.endswith("@"):
        (path / name[:-1]).symlink_to(tmp_path / "elsewhere")
    else:
        (path / name).write_text("precious")
    with pytest.raises(FileExistsError, match=rf"holds more than a model: {name.strip('/@')} would be lost"):
        fitted("linear").save(path)
    assert all((path / name).read_bytes() == content for name, content in before.items())
    assert (path / name.strip("@")).lstat()
    assert [one.name for one in tmp_path.iterdir()] == ["model"]


def test_files_added_during_saving_are_kept(
    fitted: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model"
    fitted("linear").save(path)
    original = persistence._put_in_place

    def put(new: Path, final: Path) -> None:
        (final / "precious").write_text("of others")
        original(new, final)

    monkeypatch.setattr(persistence, "_put_in_place", put)
    with pytest.warns(UserWarning, match=r"could not remove .*\.part: "):
        fitted("linear").save(path)
    (left,) = tmp_path.glob(".model.*.part")
    assert contents(left) == {"precious": b"of others"}
    assert np.array_equal(fuzz.use(load_model(path)), fuzz.use(fitted("linear")))


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("kind", ["linear", "extreme"])
def test_link_stays_a_link(kind: str, exists: bool, fitted: Callable[[str], Any], tmp_path: Path) -> None:
    (tmp_path / "versions").mkdir()
    target, link = tmp_path / "versions" / "one", tmp_path / "current"
    if exists:
        fitted("aggregator").save(target)
    link.symlink_to("versions/one")
    fitted(kind).save(link)
    assert link.is_symlink()
    assert np.array_equal(fuzz.use(load_model(target)), fuzz.use(fitted(kind)))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["current", "versions"]
    assert [one.name for one in (tmp_path / "versions").iterdir()] == ["one"]


def test_new_model_is_synced_before_the_old_one_is_removed(
    fitted: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model"
    fitted("linear").save(path)
    events: list[str] = []
    sync, exchange, remove, fsync = persistence.sync, persistence._put_in_place, persistence._remove, os.fsync
    synced: list[int] = []

    def recorded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            synced.clear()
            result = function(*arguments)
            events.append(f"{name} {arguments[0].name if arguments[0] != tmp_path else 'above'}")
            assert name != "sync" or synced == [arguments[0].stat().st_ino]
            return result

        return run

    def synced_fsync(handle: int) -> None:
        fsync(handle)
        synced.append(os.fstat(handle).st_ino)

    monkeypatch.setattr(os, "fsync", synced_fsync)
    monkeypatch.setattr(persistence, "sync", recorded("sync", sync))
    monkeypatch.setattr(persistence, "_put_in_place", recorded("place", exchange))
    monkeypatch.setattr(persistence, "_remove", recorded("remove", remove))
    fitted("linear").save(path)
    new = events[-1].removeprefix("remove ")
    files = {f"sync {name}" for name in ("plackett.json", "coefficients.npy", "covariance.npy")}
    assert set(events[:3]) == files
    assert events[3:] == [f"sync {new}", f"place {new}", "sync above", f"remove {new}"]


def test_unwritable_folders_are_an_error(
    fitted: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("precious")
    with pytest.raises(FileExistsError, match="exists and is not a model"):
        fitted("linear").save(tmp_path / "file")
    with pytest.raises(FileExistsError, match="/ exists and is not a model"):
        fitted("linear").save("/")
    with pytest.raises(NotADirectoryError, match="file is not a folder"):
        fitted("linear").save(tmp_path / "file" / "new" / "model")
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        fitted("linear").save(tmp_path / "a")
    fitted("linear").save(tmp_path / "model")
    monkeypatch.setattr(persistence, "can_create_files", lambda _: False)  # root ignores permissions
    with pytest.raises(PermissionError, match="cannot be replaced: no permission"):
        fitted("linear").save(tmp_path / "model")
    monkeypatch.setattr("plackett.data.files.can_create_files", lambda _: False)
    with pytest.raises(PermissionError, match="no permission to create a folder in"):
        fitted("linear").save(tmp_path / "new" / "model")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a", "b", "file", "model"]
    assert (tmp_path / "file").read_text() == "precious"


# Non-finite numbers


def altered(model: Any, folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A saved model with changed state (in the description), arrays, tensors or trees, and matching hashes."""
    model.save(folder)
    description = json.loads((folder / "plackett.json").read_text())
    files: dict[str, Any] = {"state": description["state"]}
    for path in folder.iterdir():
        if path.suffix == ".npy":
            files[path.name] = np.load(path)
        elif path.suffix == ".npz":
            files |= dict(np.load(path))
        elif path.suffix == ".safetensors":
            files |= read_tensors(path)[0]
        elif path.suffix == ".txt":
            files[path.name] = path.read_text()
    change(files)
    for path in folder.iterdir():
        if path.suffix == ".npy":
            np.save(path, files[path.name])
        elif path.suffix == ".npz":
            np.savez(path, **{name: value for name, value in files.items() if name != "state"})
        elif path.suffix == ".safetensors":
            write_tensors(path, {name: value for name, value in files.items() if name != "state"}, {})
        elif path.suffix == ".txt":
            path.write_text(files[path.name])
    for name in ("model.txt", "weights.safetensors"):
        if (folder / name).exists():
            description["state"]["sha256"] = hash_of(folder / name)
    (folder / "plackett.json").write_text(json.dumps(description))
    return folder


def _put(name: str, value: float, at: int = 0) -> Callable[[dict[str, Any]], None]:
    """Change one number in a tensor or array."""

    def change(files: dict[str, Any]) -> None:
        files[name] = files[name].clone() if hasattr(files[name], "clone") else files[name].copy()
        files[name].reshape(-1)[at] = value

    return change


def _all(name: str, value: float) -> Callable[[dict[str, Any]], None]:
    return lambda files: files.update({name: np.full_like(files[name], value)})


def _leaves(*values: str, name: str = "leaf_value") -> Callable[[dict[str, Any]], None]:
    """Change the first leaf of each tree."""

    def change(files: dict[str, Any]) -> None:
        given = iter(values)
        header, trees = files["model.txt"].split("\n\n", 1)
        trees, rest = trees.split("end of trees")
        parts = re.split(r"(?=Tree=\d)", trees)[1:]
        parts = [re.sub(rf"(?<={name}=)\S+", next(given), part) for part in parts]
        header = re.sub(r"tree_sizes=.*", "tree_sizes=" + " ".join(str(len(part)) for part in parts), header)
        files["model.txt"] = header + "\n\n" + "".join(parts) + "end of trees" + rest

    return change


def _state(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda files: files["state"].update({name: value})


WEIGHT, SCALE = "0.hidden.0.linear.weight", "scaling.scale"
NOT_FINITE = {
    "neural, NaN": ("neural, attention", _put(WEIGHT, np.nan), "must be from"),
    "neural, infinite": ("neural, attention", _put(WEIGHT, -np.inf), "must be from"),
    "neural, 3e38": ("neural, attention", _put(WEIGHT, 3e38), "must be from"),
    "neural, scale 0": ("neural, attention", _put(SCALE, 0.0, 1), "scale and widths of the features must be above 0"),
    "neural, scale below 0": ("neural, attention", _put(SCALE, -1.0), "scale and widths of the features must be above"),
    "neural, NaN scale": ("neural, attention", _put(SCALE, np.nan), "scale of the features must be finite"),
    "neural, width 0": ("neural", _put("scaling.widths", 0.0), "scale and widths of the features must be above 0"),
    "neural, knots": ("neural", _put("scaling.knots", np.inf), "knots of the features must be finite"),
    "neural, rises": ("neural", _put("scaling.rises", 1e300), "rises of the features must be from 0 to 2"),
    "neural, filling": ("neural", _put("scaling.filling", np.nan), "filling of the features must be finite"),
    "extreme, NaN": ("extreme", _put("0.output.weight", np.nan), "must be from"),
    "extreme, bias": ("extreme", _put("0.output.bias", -3e38), "must be from"),
    "extreme, scale 0": ("extreme", _put("scaling.scale", 0.0), "scale and widths"),
    "extreme, sparse, columns": ("extreme, sparse", _put("scaling.column_weights", 0.0), "column_weights must be"),
    "linear, infinite": ("linear", _put("coefficients.npy", np.inf), "the coefficients must be from"),
    "linear, sum": ("linear", _all("coefficients.npy", 1e200), "the coefficients must be from"),
    "coordinate ascent, NaN": ("coordinate_ascent", _put("coefficients.npy", np.nan), "the coefficients must be from"),
    "aggregator, NaN": ("aggregator", _put("scores", np.nan), "scores must be from"),
    "aggregator, sum": ("aggregator", _all("scores", 1e308), "scores must be from"),
    "aggregator, covariance": ("aggregator", _put("covariance", np.inf), "covariance must be from"),
    "boosted, sum": ("boosted", _leaves("1e308", "1e308", "1e308"), "can sum to infinity"),
    "boosted, infinite": ("boosted", _leaves("1e999", "0", "0"), "leaf_value must be finite"),
    "boosted, constants": ("boosted, linear", _leaves("-9e307", "9e307", "9e307", name="leaf_const"), "can sum to inf"),
    "boosted, coefficients": (
        "boosted, linear",
        _leaves("1e200", "1e200", "1e200", name="leaf_coeff"),
        "leaf_coeff must be from",
    ),
    "boosted, classes without gains": ("boosted, classes", _state("gains", None), "a number for each of 3 classes"),
    "boosted, other gains": ("boosted, classes", _state("gains", [0.0, 1.0]), "a number for each of 3 classes"),
    "boosted, gains of one class": ("boosted", _state("gains", [1.0]), "classes, of at least two"),
    "boosted, gains of texts": ("boosted, classes", _state("gains", [0.0, "x", 1.0]), "a number for each of 3"),
    "measures": ("boosted", _state("evals_result", {"valid": {"ndcg@10": ["x"]}}), "measures must be numbers, got str"),
    "history": ("neural", _state("history", [{"loss": "x"}]), "measures must be numbers, got str"),
    "rate": ("neural", _state("learning_rate", "x"), "learning_rate must be float, got str"),
    "best epoch": ("neural", _state("best_epoch", 1.5), "best_epoch must be int or NoneType, got float"),
}  # fmt: skip


@pytest.mark.parametrize("case", NOT_FINITE)
def test_non_finite_numbers_are_refused(case: str, fitted: Callable[[str], Any], tmp_path: Path) -> None:
    kind, change, message = NOT_FINITE[case]
    load_model(altered(fitted(kind), tmp_path / "same", lambda _: None))
    with pytest.raises(DataError, match=message):
        load_model(altered(fitted(kind), tmp_path / "model", change))


@pytest.mark.parametrize("kind", ["neural", "extreme"])
@pytest.mark.parametrize("name", ["2.x", "scaling", "x", "0", "00.first.weight"])
def test_unknown_tensors_are_refused(kind: str, name: str, fitted: Callable[[str], Any], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"tensor '{name}' belongs to none of"):
        load_model(altered(fitted(kind), tmp_path / "model", lambda files: files.update({name: torch.zeros(3)})))


def test_models_that_could_not_be_loaded_are_not_saved(fitted: Callable[[str], Any], tmp_path: Path) -> None:
    for kind in ("neural", "linear", "aggregator"):
        model = copy.deepcopy(fitted(kind))
        if kind == "neural":
            next(model.networks_[1].parameters()).data[0, 0] = np.nan
        elif kind == "linear":
            model.coef_[0] = np.inf
        else:
            model.scores_ = model.scores_ * np.nan
        with pytest.raises(ValueError, match=r"must be (finite|from)"):
            model.save(tmp_path / kind)
    assert list(tmp_path.iterdir()) == []


def test_integers_are_accepted_as_floats(fitted: Callable[[str], Any], tmp_path: Path) -> None:
    """JSON has one number type: programs that rewrite a file may turn 1.0 into 1."""
    for kind, name, value in (
        ("boosted, classes", "gains", [0, 1, 3]),
        ("neural", "learning_rate", 1),
        ("linear", "loss_", 3),
        ("aggregator", "log_likelihood", -4),
    ):
        model = load_model(altered(fitted(kind), tmp_path / kind, _state(name, value)))
        found = getattr(model, name.removesuffix("_") + "_")
        assert found == value
        assert kind == "aggregator" or type(found[0] if name == "gains" else found) is float


@pytest.mark.parametrize("kind", ["boosted", "linear", "neural"])
def test_nan_metrics_are_saved(kind: str, tmp_path: Path) -> None:
    """A metric without a value for any list is NaN, which JSON does not have."""
    model = {
        "boosted": BoostedRanker(**fuzz._FEW),
        "linear": LinearRanker(),
        "neural": NeuralRanker(**fuzz._SMALL),
    }[kind]
    model.fit(fuzz.X, fuzz.Y, group=fuzz.GROUP, eval_set=(fuzz.X, np.zeros(40), np.repeat([0, 1], 20)))
    model.save(tmp_path / "model")
    found = load_model(tmp_path / "model")
    measured = found.history_["valid ndcg@10"] if kind == "neural" else found.evals_result_["valid"]["ndcg@10"]
    assert np.isnan(measured).all()


# Pickles


@pytest.mark.parametrize("module", ["pickle", "cloudpickle", "joblib"])
@pytest.mark.parametrize("kind", KINDS)
def test_pickled_models_match(kind: str, module: str, fitted: Callable[[str], Any], tmp_path: Path) -> None:
    tool, path = pytest.importorskip(module), tmp_path / "model"
    with path.open("wb") as file:
        tool.dump(fitted(kind), file)
    with path.open("rb") as file:
        found = tool.load(file)
    assert np.array_equal(fuzz.use(found), fuzz.use(fitted(kind)))
    assert found.get_params().keys() == fitted(kind).get_params().keys()
    found.save(tmp_path / "saved")
    assert np.array_equal(fuzz.use(load_model(tmp_path / "saved")), fuzz.use(fitted(kind)))
