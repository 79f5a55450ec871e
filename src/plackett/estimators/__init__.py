"""The scikit-learn contract of every model, and nothing else: parameters, argument checks, fit, predict, save, load.

Start with `ranker`, the base of all rankers (lists from qid or group, ranks from scores, `score`), then any estimator,
one per file. `network_estimator` is the base of the two that train networks, `persistence` reads and writes models,
`parameter_checks` checks parameters. Fitting itself lives in `boosted`, `linear`, `neural` and `aggregation`. May
import everything below; nothing below imports from here.
"""

import os
from typing import Any

from plackett.errors import DataError
from plackett.estimators.aggregator import RankAggregator
from plackett.estimators.boosted import BoostedRanker
from plackett.estimators.coordinate_ascent import CoordinateAscentRanker
from plackett.estimators.extreme import ExtremeClassifier
from plackett.estimators.linear import LinearRanker
from plackett.estimators.neural import NeuralRanker
from plackett.estimators.persistence import SavedModel, read_description
from plackett.estimators.ranker import BaseRanker

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
