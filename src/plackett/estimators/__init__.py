"""The scikit-learn contract of every model, and nothing else: parameters, argument checks, fit, predict, save, load.

Start with `ranker`, the base of all rankers (lists from qid or group, ranks from scores, `score`), then any estimator,
one per file: `boosted`, `linear`, `coordinate_ascent`, `neural`, `extreme`, `aggregator`. `network_estimator` is the
base of the two that train networks, `plain_estimator` that of the aggregator, and `persistence` reads and writes
models. `lightgbm_arguments` takes the arguments of LightGBM's rankers, and `plackett.arguments` has the checks of
parameters. Fitting itself lives in `boosted`, `linear`, `neural` and
`aggregation`. May import everything below; nothing below imports from here.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from plackett.errors import DataError

if TYPE_CHECKING:
    from plackett.estimators.aggregator import RankAggregator as RankAggregator
    from plackett.estimators.boosted import BoostedRanker as BoostedRanker
    from plackett.estimators.coordinate_ascent import CoordinateAscentRanker as CoordinateAscentRanker
    from plackett.estimators.extreme import ExtremeClassifier as ExtremeClassifier
    from plackett.estimators.linear import LinearRanker as LinearRanker
    from plackett.estimators.neural import NeuralRanker as NeuralRanker
    from plackett.estimators.persistence import SavedModel
    from plackett.estimators.ranker import BaseRanker as BaseRanker

    MODELS: dict[str, type[SavedModel]]
    """Kinds of models by name."""

_HOME = {
    "BaseRanker": "ranker",
    "BoostedRanker": "boosted",
    "CoordinateAscentRanker": "coordinate_ascent",
    "ExtremeClassifier": "extreme",
    "LinearRanker": "linear",
    "NeuralRanker": "neural",
    "RankAggregator": "aggregator",
}
_KINDS = {
    "boosted": "BoostedRanker",
    "neural": "NeuralRanker",
    "extreme": "ExtremeClassifier",
    "linear": "LinearRanker",
    "coordinate_ascent": "CoordinateAscentRanker",
}

__all__ = [
    "MODELS", "BaseRanker", "BoostedRanker", "CoordinateAscentRanker", "ExtremeClassifier", "LinearRanker",
    "NeuralRanker", "RankAggregator", "load_model", "make_model",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Estimators are loaded when first used: each imports other large packages."""
    if name == "MODELS":
        value: Any = {kind: _estimator(_KINDS[kind]) for kind in _KINDS}
    elif name in _HOME:
        value = _estimator(name)
    else:
        raise AttributeError(f"module 'plackett.estimators' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _estimator(name: str) -> Any:
    return getattr(import_module(f"plackett.estimators.{_HOME[name]}"), name)


def make_model(kind: str, parameters: dict[str, Any]) -> Any:
    """A new model of a kind in `MODELS`."""
    if kind not in _KINDS:
        raise ValueError(f"model must be one of {', '.join(_KINDS)}, got {kind!r}")
    model = _estimator(_KINDS[kind])
    known = model().get_params()
    unknown = sorted(set(parameters) - set(known))
    if unknown:
        raise ValueError(f"parameters of {kind} must be among {', '.join(known)}, got {', '.join(unknown)}")
    return model(**parameters)


def load_model(path: str | os.PathLike[str]) -> Any:
    """A model of any kind that `save` wrote."""
    from plackett.estimators.persistence import read_description

    classes = (*_KINDS.values(), "RankAggregator")
    name = read_description(path)["class"]
    if name not in classes:
        raise DataError(f"a model of class {name}; expected one of {', '.join(classes)}", file=os.fspath(path))
    return _estimator(name).load(path)
