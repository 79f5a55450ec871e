"""Models in scikit-learn's form. They share `base`: lists from qid or group, scores to ranks, models on disk."""

import os
from typing import Any

from plackett.errors import DataError
from plackett.estimators.aggregator import RankAggregator
from plackett.estimators.base import BaseRanker
from plackett.estimators.boosted import BoostedRanker
from plackett.estimators.coordinate_ascent import CoordinateAscentRanker
from plackett.estimators.extreme import ExtremeClassifier
from plackett.estimators.linear import LinearRanker
from plackett.estimators.neural import NeuralRanker
from plackett.estimators.saved import SavedModel, read_description

__all__ = [
    "MODELS",
    "BaseRanker",
    "BoostedRanker",
    "CoordinateAscentRanker",
    "ExtremeClassifier",
    "LinearRanker",
    "NeuralRanker",
    "RankAggregator",
    "load_model",
    "make_model",
]

MODELS: dict[str, type[SavedModel]] = {
    "boosted": BoostedRanker,
    "neural": NeuralRanker,
    "extreme": ExtremeClassifier,
    "linear": LinearRanker,
    "coordinate_ascent": CoordinateAscentRanker,
}
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
    classes: dict[str, Any] = {model.__name__: model for model in (*MODELS.values(), RankAggregator)}
    name = read_description(path)["class"]
    if name not in classes:
        raise DataError(f"a model of class {name}; expected one of {', '.join(classes)}", file=os.fspath(path))
    return classes[name].load(path)
