"""Models on disk: a folder of data. Loading executes nothing in it."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import math
import os
import sys
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

import plackett
from plackett.arguments import Check, check_count
from plackett.data.files import (
    can_create_files,
    check_new_folder,
    copy_mode_and_owner,
    is_mounted,
    partial_name,
    resolve_links,
    sync,
)
from plackett.data.untrusted import field, parse_json, regular_file
from plackett.errors import DataError, PlackettError
from plackett.losses.registry import FunctionName, Loss, function_name, is_function

_FORMAT = 1
_LARGEST_DESCRIPTION = 1 << 26  # bytes; parsed, they can take twenty times as much memory
_REPLACED_AT_MOST = 20  # times, while a model is read
DESCRIPTION = "plackett.json"
TREES = "model.txt"
WEIGHTS = "weights.safetensors"
COEFFICIENTS, COVARIANCE = "coefficients.npy", "covariance.npy"
WORTHS = "worths.npz"
_FILES = frozenset({DESCRIPTION, TREES, WEIGHTS, COEFFICIENTS, COVARIANCE, WORTHS})
_UNREADABLE = (
    LookupError, TypeError, ValueError, AttributeError, OSError, ArithmeticError, RuntimeError, MemoryError,
)  # fmt: skip


class SavedModel:
    """An estimator with `save` and `load`. A description holds its parameters and a summary of its state."""

    defaults_with_validation: ClassVar[dict[str, Any]] = {}
    """Parameters that the command line sets if there are validation data."""
    parameter_kinds: ClassVar[Mapping[str, Check]] = {}
    """Checks of parameters by name, for those that nothing else checks first."""
    kinds_on_disk: ClassVar[Mapping[str, Check]] = {}
    """Checks of parameters by name, for those read from a model on disk, which may come from a stranger."""
    not_saved: ClassVar[tuple[str, ...]] = ()
    """Parameters that concern the running processes, not the model."""
    saved_by_name: ClassVar[tuple[str, ...]] = ()
    """Parameters of which the name is saved where they are functions. A loaded model has it as a `FunctionName`."""

    get_params: Callable[..., dict[str, Any]]
    """A method of the estimator's other base."""
    n_features_in_: int
    feature_names_in_: npt.NDArray[np.object_]
    first_feature_: int

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as a folder, completely or not at all. It replaces an older model, but nothing else."""
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self)
        description = {
            "format": _FORMAT,
            "class": type(self).__name__,
            "plackett": plackett.__version__,
            "parameters": self._stored_parameters(),
            "n_features_in": getattr(self, "n_features_in_", None),
            "feature_names_in": list(getattr(self, "feature_names_in_", [])) or None,
            "first_feature": getattr(self, "first_feature_", 0),
        }
        if self._function_names():
            description["functions"] = self._function_names()
        with new_folder(path) as folder:
            description["state"] = self._save_state(folder)
            text = json.dumps(description, indent=1, allow_nan=False) + "\n"
            if len(text) > _LARGEST_DESCRIPTION:
                raise ValueError(
                    f"the description of a model must have at most {_LARGEST_DESCRIPTION:,} bytes, got {len(text):,}"
                )
            (folder / DESCRIPTION).write_text(text)

    def _stored_parameters(self) -> dict[str, Any]:
        given = self.get_params(deep=False)
        stored = {name: _plain(value) for name, value in given.items() if name not in self.not_saved}
        return stored | self._function_names()

    def _function_names(self) -> dict[str, str]:
        """The names of functions among the parameters, which are not saved themselves."""
        given = {name: getattr(self, name) for name in self.saved_by_name}
        return {name: function_name(value) for name, value in given.items() if is_function(value)}

    @classmethod
    def load(cls, path: str | os.PathLike[str], **parameters: Any) -> Self:
        """Read a model that `save` wrote. Nothing in it is executed.

        Functions and modules among the parameters are not saved: pass them again by name if they are needed.
        """
        folder = Path(path)
        for _ in range(_REPLACED_AT_MOST):
            before = _identity(folder)
            try:
                return cls._load(folder, parameters)
            except DataError:
                if _identity(folder) == before:
                    raise
        raise DataError("the model is being replaced faster than it can be read", file=str(folder), remedy="Try again")

    @classmethod
    def _load(cls, folder: Path, parameters: dict[str, Any]) -> Self:
        description = read_description(folder)
        if description.get("format") != _FORMAT or description["class"] != cls.__name__:
            raise DataError(
                f"a model of class {description['class']} in format {description.get('format')}; expected "
                f"{cls.__name__} in format {_FORMAT}",
                file=str(folder),
                remedy="Load it with its own class, or with the version of Plackett that wrote it",
            )
        try:
            stored = field(description, "parameters", dict)
            for name, check in cls.kinds_on_disk.items():
                if name not in parameters:
                    check(name, stored.get(name))
            model = cls(**stored | cls._read_function_names(description) | parameters)
            features = field(description, "n_features_in", int, NoneType)
            if features is not None:
                model.n_features_in_ = features
            names = field(description, "feature_names_in", list, NoneType)
            if names is not None:
                if len(names) != features or not all(isinstance(name, str) for name in names):
                    raise ValueError(f"feature_names_in must hold {features} names")
                model.feature_names_in_ = np.array(names, dtype=object)
            if "first_feature" in description:  # not in older models
                model.first_feature_ = check_count("first_feature", field(description, "first_feature", int), 0, 1)
            model._load_state(folder, field(description, "state", dict))
        except PlackettError:
            raise
        except _UNREADABLE as error:
            raise DataError(f"not a readable model ({error})", file=str(folder)) from error
        return model

    @classmethod
    def _read_function_names(cls, description: dict[str, Any]) -> dict[str, FunctionName]:
        names = field(description, "functions", dict) if "functions" in description else {}
        if not all(name in cls.saved_by_name and isinstance(value, str) for name, value in names.items()):
            raise ValueError(f"functions must name {' or '.join(cls.saved_by_name) or 'none'}, got {names}")
        return {name: FunctionName(value) for name, value in names.items()}

    @abstractmethod
    def _save_state(self, folder: Path) -> dict[str, Any]:
        """Write the fitted state. The return value goes into the description."""

    @abstractmethod
    def _load_state(self, folder: Path, state: dict[str, Any]) -> None:
        """Restore the result of `_save_state`."""


def read_description(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The description that `save` wrote, of a model of any class."""
    try:
        with regular_file(Path(path, DESCRIPTION)).open("rb") as file:
            content = file.read(_LARGEST_DESCRIPTION + 1)
        if len(content) > _LARGEST_DESCRIPTION:
            raise ValueError(f"{DESCRIPTION} has more than {_LARGEST_DESCRIPTION:,} bytes")
        found: dict[str, Any] = parse_json(content)
        if not isinstance(found, dict) or not isinstance(found.get("class"), str):
            raise ValueError("it names no class")
    except FileNotFoundError:
        raise DataError(f"not a model: there is no {DESCRIPTION}", file=os.fspath(path)) from None
    except DataError:
        raise
    except (OSError, ValueError) as error:
        raise DataError(f"not a readable model ({error})", file=os.fspath(path)) from error
    return found


def _identity(folder: Path) -> tuple[int, int] | None:
    """Identifies the model in a folder: it changes if another model replaces it. Inodes are reused, times are not."""
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


def measures_to_json(value: Any) -> Any:
    """Metrics by name, single or one per round, for JSON, which has no NaN: undefined metrics become None."""
    if isinstance(value, dict):
        return {name: measures_to_json(one) for name, one in value.items()}
    if isinstance(value, list):
        return [measures_to_json(one) for one in value]
    return value if math.isfinite(value) else None


def measures_from_json(value: Any) -> Any:
    """The inverse of `measures_to_json`."""
    if isinstance(value, dict):
        return {name: measures_from_json(one) for name, one in value.items()}
    if isinstance(value, list):
        return [measures_from_json(one) for one in value]
    if value is not None and type(value) not in (int, float):
        raise ValueError(f"measures must be numbers, got {type(value).__name__}")
    return math.nan if value is None else value


def hash_of(path: Path) -> str:
    with regular_file(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _plain(value: Any) -> Any:
    """A parameter for JSON. Functions become None: saving them would mean saving code."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.random.Generator | np.random.RandomState) or callable(value):
        return None
    if isinstance(value, Loss):
        return value.name
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def check_folder(path: str | os.PathLike[str]) -> Path:
    """The folder for a model, with links resolved; an error if it cannot be written or holds anything but a model."""
    final = resolve_links(path)
    check_new_folder(final)
    if final.exists():
        if not (final / DESCRIPTION).is_file():
            raise FileExistsError(f"{final} exists and is not a model: choose another folder")
        others = _others(final)
        if others:
            shown = ", ".join(sorted(others)[:5]) + (" and others" if len(others) > 5 else "")
            raise FileExistsError(
                f"{final} holds more than a model: {shown} would be lost. Move the rest away, or choose another folder"
            )
        if not can_create_files(final):
            raise PermissionError(f"the model {final} cannot be replaced: no permission to write to its folder")
        if is_mounted(final):
            raise OSError(
                f"the model {final} cannot be replaced, because it is a mount point: choose a folder inside it"
            )
    return final


def _others(folder: Path) -> list[str]:
    """The names in a folder that are not files of a model."""
    with os.scandir(folder) as entries:
        return [e.name for e in entries if e.name not in _FILES or not e.is_file(follow_symlinks=False)]


@contextmanager
def new_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary folder that replaces the folder at `path` when it is complete and on disk."""
    final = check_folder(path)
    old = final.stat() if final.exists() else None
    temporary = partial_name(final)
    final.parent.mkdir(parents=True, exist_ok=True)
    temporary.mkdir(0o777 if old is None else 0o700)
    try:
        yield temporary
        for file in temporary.iterdir():
            sync(file)
        if old is not None:
            copy_mode_and_owner(temporary, old)
        sync(temporary)
        _put_in_place(temporary, final)
        sync(final.parent)
    finally:
        _remove(temporary)  # unfinished, or the old model


def _remove(folder: Path) -> None:
    """Remove a model's folder. Files that someone has added since the check stay."""
    try:
        for name in _FILES:
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()
    except FileNotFoundError:
        pass
    except OSError as error:
        warnings.warn(f"could not remove {folder}: {error}", stacklevel=4)


def _put_in_place(new: Path, final: Path) -> None:
    """Rename a folder to its final name; a folder that had this name gets the name of the new one."""
    if _exchange(new, final):
        return
    try:
        new.rename(final)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        if _exchange(new, final):  # another writer was faster
            return
        old = new.with_suffix(".old")
        final.rename(old)
        try:
            new.rename(final)
        except OSError:
            old.rename(final)
            raise
        old.rename(new)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names atomically, so that neither is ever missing and the last of two writers wins; Linux only."""
    if sys.platform != "linux":
        return False
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    at_current_folder, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    paths = at_current_folder, os.fsencode(one), at_current_folder, os.fsencode(other)
    return rename is not None and rename(*paths, exchange) == 0
