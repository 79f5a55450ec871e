"""Models on disk: a folder of data, nothing of which is executed."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import secrets
import shutil
import sys
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

import plackett
from plackett.data.stored import parse_json, regular_file
from plackett.errors import DataError, PlackettError
from plackett.estimators.parameters import Check

_FORMAT = 1
_LARGEST_DESCRIPTION = 1 << 26  # bytes: Python takes some twenty times as many for what they can say
_REPLACED_AT_MOST = 20  # times, while a model is read
DESCRIPTION = "plackett.json"
_UNREADABLE = (
    LookupError, TypeError, ValueError, AttributeError, OSError, ArithmeticError, RuntimeError, MemoryError,
)  # fmt: skip


class SavedModel(BaseEstimator):
    """An estimator with `save` and `load`. Its parameters and what it says of its state go into a description."""

    defaults_with_validation: ClassVar[dict[str, Any]] = {}
    """Parameters that make sense where there are validation data: the command line sets them."""
    parameter_kinds: ClassVar[Mapping[str, Check]] = {}
    """What parameters may be, by name, where nothing else looks at them first."""
    not_saved: ClassVar[tuple[str, ...]] = ()
    """Parameters that are about the processes at hand, not about the model."""

    def _check_kinds(self) -> None:
        for name, check in self.parameter_kinds.items():
            check(name, getattr(self, name))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as a folder: whole, or not at all."""
        check_is_fitted(self)
        description = {
            "format": _FORMAT,
            "class": type(self).__name__,
            "plackett": plackett.__version__,
            "parameters": {
                name: _plain(value) for name, value in self.get_params(deep=False).items() if name not in self.not_saved
            },
            "n_features_in": getattr(self, "n_features_in_", None),
            "feature_names_in": list(getattr(self, "feature_names_in_", [])) or None,
        }
        with new_folder(Path(path)) as folder:
            description["state"] = self._save_state(folder)
            text = json.dumps(description, indent=1, allow_nan=False) + "\n"
            if len(text) > _LARGEST_DESCRIPTION:
                raise ValueError(
                    f"the description of a model may have {_LARGEST_DESCRIPTION:,} bytes, got {len(text):,}"
                )
            (folder / DESCRIPTION).write_text(text)

    @classmethod
    def load(cls, path: str | os.PathLike[str], **parameters: Any) -> Self:
        """Read a model that `save` wrote. Nothing in it is executed.

        Parameters that were functions or modules are not stored; give them again by name where they are needed.
        """
        folder = Path(path)
        for _ in range(_REPLACED_AT_MOST):
            before = _identity(folder)
            try:
                return cls._load(folder, parameters)
            except DataError:
                if _identity(folder) == before:
                    raise
        raise DataError("the model is replaced faster than it can be read", file=str(folder), remedy="Try again")

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
            model = cls(**field(description, "parameters", dict) | parameters)
            features = field(description, "n_features_in", int, NoneType)
            if features is not None:
                model.n_features_in_ = features
            names = field(description, "feature_names_in", list, NoneType)
            if names is not None:
                if len(names) != features or not all(isinstance(name, str) for name in names):
                    raise ValueError(f"feature_names_in must hold {features} names")
                model.feature_names_in_ = np.array(names, dtype=object)
            model._load_state(folder, field(description, "state", dict))
        except PlackettError:
            raise
        except _UNREADABLE as error:
            raise DataError(f"not a readable model ({error})", file=str(folder)) from error
        return model

    @abstractmethod
    def _save_state(self, folder: Path) -> dict[str, Any]:
        """Write what was fitted; what is returned goes into the description."""

    @abstractmethod
    def _load_state(self, folder: Path, state: dict[str, Any]) -> None:
        """Read it back."""


def read_description(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What `save` wrote about a model of any class."""
    try:
        with regular_file(Path(path, DESCRIPTION)).open("rb") as file:
            content = file.read(_LARGEST_DESCRIPTION + 1)
        if len(content) > _LARGEST_DESCRIPTION:
            raise ValueError(f"{DESCRIPTION} has more than {_LARGEST_DESCRIPTION:,} bytes")
        found: dict[str, Any] = parse_json(content)
        if not isinstance(found, dict) or not isinstance(found.get("class"), str):
            raise ValueError("it names no class")
    except FileNotFoundError:
        raise DataError(f"no model: there is no {DESCRIPTION}", file=os.fspath(path)) from None
    except DataError:
        raise
    except (OSError, ValueError) as error:
        raise DataError(f"not a readable model ({error})", file=os.fspath(path)) from error
    return found


def _identity(folder: Path) -> tuple[int, int] | None:
    """Another one when another model has taken the name of the folder: numbers of files are used again, times not."""
    try:
        found = folder.stat()
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


def field(description: dict[str, Any], name: str, *kinds: type) -> Any:
    """What stands in a description under a name, of one of these kinds."""
    value = description[name]
    if type(value) not in kinds:
        raise ValueError(f"{name} must be {' or '.join(kind.__name__ for kind in kinds)}, got {type(value).__name__}")
    return value


def hash_of(path: Path) -> str:
    with regular_file(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _plain(value: Any) -> Any:
    """A parameter as JSON has it. Functions, which cannot be stored without code, become None."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.random.Generator | np.random.RandomState) or callable(value):
        return None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


@contextmanager
def new_folder(final: Path) -> Iterator[Path]:
    """A folder that takes its name, in place of an older one, when it is complete."""
    if final.exists() and not (final / DESCRIPTION).is_file():
        raise FileExistsError(f"{final} exists and is not a model: name another folder")
    temporary = final.with_name(f".{final.name}.{secrets.token_hex(4)}.part")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        _put_in_place(temporary, final)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # unfinished, or the older one


def _put_in_place(new: Path, final: Path) -> None:
    """Give a folder its name; one that had it before gets the name of the new one."""
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
    """Swap two names at a stroke, so that there is never none, and of two writers the last one wins; on Linux."""
    if sys.platform != "linux":
        return False
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    here, exchange = -100, 2
    return rename is not None and rename(here, os.fsencode(one), here, os.fsencode(other), exchange) == 0
