"""Models on disk: a folder of data, nothing of which is executed."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

import plackett
from plackett.errors import DataError

_FORMAT = 1
DESCRIPTION = "plackett.json"


class SavedModel(BaseEstimator):
    """An estimator with `save` and `load`. Its parameters and what it says of its state go into a description."""

    defaults_with_validation: ClassVar[dict[str, Any]] = {}
    """Parameters that make sense where there are validation data: the command line sets them."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as a folder: whole, or not at all."""
        check_is_fitted(self)
        description = {
            "format": _FORMAT,
            "class": type(self).__name__,
            "plackett": plackett.__version__,
            "parameters": {name: _plain(value) for name, value in self.get_params(deep=False).items()},
            "n_features_in": getattr(self, "n_features_in_", None),
            "feature_names_in": list(getattr(self, "feature_names_in_", [])) or None,
        }
        with new_folder(Path(path)) as folder:
            description["state"] = self._save_state(folder)
            (folder / DESCRIPTION).write_text(json.dumps(description, indent=1, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str], **parameters: Any) -> Self:
        """Read a model that `save` wrote. Nothing in it is executed.

        Parameters that were functions or modules are not stored; give them again by name where they are needed.
        """
        folder = Path(path)
        description = read_description(folder)
        if description.get("format") != _FORMAT or description["class"] != cls.__name__:
            raise DataError(
                f"a model of class {description['class']} in format {description.get('format')}; expected "
                f"{cls.__name__} in format {_FORMAT}",
                file=str(folder),
                remedy="Load it with its own class, or with the version of Plackett that wrote it",
            )
        try:
            model = cls(**description["parameters"] | parameters)
            if description["n_features_in"] is not None:
                model.n_features_in_ = description["n_features_in"]
            if description["feature_names_in"] is not None:
                model.feature_names_in_ = np.array(description["feature_names_in"], dtype=object)
            model._load_state(folder, description["state"])
        except DataError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, OSError) as error:
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
        found: dict[str, Any] = json.loads(Path(path, DESCRIPTION).read_text())
        if not isinstance(found, dict) or not isinstance(found.get("class"), str):
            raise ValueError("it names no class")
    except FileNotFoundError:
        raise DataError(f"no model: there is no {DESCRIPTION}", file=os.fspath(path)) from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"not a readable model ({error})", file=os.fspath(path)) from error
    return found


def hash_of(path: Path) -> str:
    with path.open("rb") as file:
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
    mark = secrets.token_hex(4)
    temporary, old = final.with_name(f".{final.name}.{mark}.part"), final.with_name(f".{final.name}.{mark}.old")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        if final.exists():
            final.rename(old)
        temporary.rename(final)
    except BaseException:
        if old.exists():
            old.rename(final)
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    shutil.rmtree(old, ignore_errors=True)
