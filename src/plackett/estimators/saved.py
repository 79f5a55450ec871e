"""Models on disk: a folder of data, nothing of which is executed."""

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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

import plackett
from plackett.data.files import behind_links, beside, check_new_folder, keep_owner, may_change, sync
from plackett.data.stored import parse_json, regular_file
from plackett.errors import DataError, PlackettError
from plackett.estimators.parameters import Check

_FORMAT = 1
_LARGEST_DESCRIPTION = 1 << 26  # bytes: Python takes some twenty times as many for what they can say
_LARGEST = 1e150  # about the square root of the largest number
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


class SavedModel(BaseEstimator):
    """An estimator with `save` and `load`. Its parameters and what it says of its state go into a description."""

    defaults_with_validation: ClassVar[dict[str, Any]] = {}
    """Parameters that make sense where there are validation data: the command line sets them."""
    parameter_kinds: ClassVar[Mapping[str, Check]] = {}
    """What parameters may be, by name, where nothing else looks at them first."""
    kinds_on_disk: ClassVar[Mapping[str, Check]] = {}
    """What parameters may be, by name, where a model on disk brings them: a stranger may have chosen them."""
    not_saved: ClassVar[tuple[str, ...]] = ()
    """Parameters that are about the processes at hand, not about the model."""

    def _check_kinds(self) -> None:
        for name, check in self.parameter_kinds.items():
            check(name, getattr(self, name))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as a folder: whole, or not at all. A model that is there before is replaced, nothing else."""
        check_is_fitted(self)
        description = {
            "format": _FORMAT,
            "class": type(self).__name__,
            "plackett": plackett.__version__,
            "parameters": self._stored_parameters(),
            "n_features_in": getattr(self, "n_features_in_", None),
            "feature_names_in": list(getattr(self, "feature_names_in_", [])) or None,
        }
        with new_folder(path) as folder:
            description["state"] = self._save_state(folder)
            text = json.dumps(description, indent=1, allow_nan=False) + "\n"
            if len(text) > _LARGEST_DESCRIPTION:
                raise ValueError(
                    f"the description of a model may have {_LARGEST_DESCRIPTION:,} bytes, got {len(text):,}"
                )
            (folder / DESCRIPTION).write_text(text)

    def _stored_parameters(self) -> dict[str, Any]:
        given = self.get_params(deep=False)
        return {name: _plain(value) for name, value in given.items() if name not in self.not_saved}

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
            stored = field(description, "parameters", dict)
            for name, check in cls.kinds_on_disk.items():
                if name not in parameters:
                    check(name, stored.get(name))
            model = cls(**stored | parameters)
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
    if float in kinds and type(value) is int:  # JSON has one kind of number, and many programs write 1.0 as 1
        value = float(value)
    if type(value) not in kinds:
        raise ValueError(f"{name} must be {' or '.join(kind.__name__ for kind in kinds)}, got {type(value).__name__}")
    return value


def check_numbers(name: str, values: npt.NDArray[np.float64]) -> None:
    """Of a model on disk: finite, and so small that products with others of their size are."""
    low, high = values.min(initial=0.0), values.max(initial=0.0)
    if not -_LARGEST <= low <= high <= _LARGEST:  # NaN is neither
        raise ValueError(f"{name} must be from {-_LARGEST:g} to {_LARGEST:g}, got {low} to {high}")


def measures_to_json(value: Any) -> Any:
    """Measures by name, one or one per round: NaN, of what could not be measured, is no JSON, and becomes None."""
    if isinstance(value, dict):
        return {name: measures_to_json(one) for name, one in value.items()}
    if isinstance(value, list):
        return [measures_to_json(one) for one in value]
    return value if math.isfinite(value) else None


def measures_from_json(value: Any) -> Any:
    """Read them back."""
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


def check_folder(path: str | os.PathLike[str]) -> Path:
    """Where a model of this name goes, behind links; an error if it cannot, or if anything but a model is there."""
    final = behind_links(path)
    check_new_folder(final)
    if final.exists():
        if not (final / DESCRIPTION).is_file():
            raise FileExistsError(f"{final} exists and is not a model: name another folder")
        others = _others(final)
        if others:
            shown = ", ".join(sorted(others)[:5]) + (" and others" if len(others) > 5 else "")
            raise FileExistsError(
                f"{final} holds more than a model, which would be lost: {shown}. Move that, or name another folder"
            )
        if not may_change(final):
            raise PermissionError(f"the model {final} may not be replaced: its folder may not be written to")
    return final


def _others(folder: Path) -> list[str]:
    """What is in a folder and no file of a model."""
    with os.scandir(folder) as entries:
        return [one.name for one in entries if one.name not in _FILES or not one.is_file(follow_symlinks=False)]


@contextmanager
def new_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A folder that takes its name, in place of an older one, when it is complete and on disk."""
    final = check_folder(path)
    old = final.stat() if final.exists() else None
    temporary = beside(final)
    final.parent.mkdir(parents=True, exist_ok=True)
    temporary.mkdir(0o777 if old is None else 0o700)
    try:
        yield temporary
        for file in temporary.iterdir():
            sync(file)
        if old is not None:
            keep_owner(temporary, old)
        sync(temporary)
        _put_in_place(temporary, final)
        sync(final.parent)
    finally:
        _remove(temporary)  # unfinished, or the older one


def _remove(folder: Path) -> None:
    """Remove a folder of a model. What someone has put there since it was looked at stays."""
    try:
        for name in _FILES:
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()
    except FileNotFoundError:
        pass
    except OSError as error:
        warnings.warn(f"what was to be removed stays in {folder}: {error}", stacklevel=4)


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
