"""Models in scikit-learn's form. They share `base`: lists from qid or group, scores to ranks, models on disk."""

import json
import os
from pathlib import Path
from typing import Any

from plackett.errors import DataError
from plackett.estimators.base import DESCRIPTION, BaseRanker
from plackett.estimators.boosted import BoostedRanker

__all__ = ["MODELS", "BaseRanker", "BoostedRanker", "load_model", "make_model"]

MODELS: dict[str, type[BaseRanker]] = {"boosted": BoostedRanker}
"""Kinds of models by name."""


def make_model(kind: str, parameters: dict[str, Any]) -> Any:
    """A new model of a kind in `MODELS`."""
    if kind not in MODELS:
        raise ValueError(f"model must be one of {', '.join(MODELS)}, got {kind!r}")
    known = MODELS[kind]().get_params()
    unknown = sorted(set(parameters) - set(known))
    if unknown:
        raise ValueError(f"parameters of {kind} must be among {', '.join(known)}, got {', '.join(unknown)}")
    return MODELS[kind](**parameters)


def load_model(path: str | os.PathLike[str]) -> Any:
    """A model of any kind that `save` wrote."""
    classes = {model.__name__: model for model in MODELS.values()}
    try:
        name = json.loads((Path(path) / DESCRIPTION).read_text())["class"]
        found = classes[name]
    except FileNotFoundError:
        raise DataError(f"no model: there is no {DESCRIPTION}", file=os.fspath(path)) from None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"not a readable model ({error})", file=os.fspath(path)) from error
    return found.load(path)
