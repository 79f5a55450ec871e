"""Plackett: learning to rank with the Plackett-Luce model from tied and partial feedback.

Names are loaded when first used, so `import plackett` is fast and needs neither numba nor torch.

This module lists the public names and imports nothing else. Packages import only from those below them, see
docs/architecture.md; to read the code, start with `likelihood.partition`, the exact likelihood, or with
`estimators.ranker`, the base of the rankers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "1.0.0rc1"

if TYPE_CHECKING:
    from plackett.ahead_of_time import compile_kernels as compile_kernels
    from plackett.distribution import PlackettLuce as PlackettLuce
    from plackett.estimators import BoostedRanker as BoostedRanker
    from plackett.estimators import CoordinateAscentRanker as CoordinateAscentRanker
    from plackett.estimators import ExtremeClassifier as ExtremeClassifier
    from plackett.estimators import LinearRanker as LinearRanker
    from plackett.estimators import NeuralRanker as NeuralRanker
    from plackett.estimators import RankAggregator as RankAggregator
    from plackett.likelihood import PartialOrderDerivatives as PartialOrderDerivatives
    from plackett.likelihood import PartialOrderLikelihood as PartialOrderLikelihood
    from plackett.likelihood import PartitionDerivatives as PartitionDerivatives
    from plackett.likelihood import partial_order_derivatives as partial_order_derivatives
    from plackett.likelihood import partial_order_log_likelihood as partial_order_log_likelihood
    from plackett.likelihood import partition_derivatives as partition_derivatives
    from plackett.likelihood import partition_log_likelihood as partition_log_likelihood
    from plackett.likelihood import preference_log_probability as preference_log_probability
    from plackett.report.versions import show_versions as show_versions
    from plackett.threads import get_num_threads as get_num_threads
    from plackett.threads import set_num_threads as set_num_threads

_HOME = {
    "BoostedRanker": "estimators",
    "CoordinateAscentRanker": "estimators",
    "ExtremeClassifier": "estimators",
    "LinearRanker": "estimators",
    "NeuralRanker": "estimators",
    "PartialOrderDerivatives": "likelihood",
    "PartialOrderLikelihood": "likelihood",
    "PartitionDerivatives": "likelihood",
    "PlackettLuce": "distribution",
    "RankAggregator": "estimators",
    "compile_kernels": "ahead_of_time",
    "get_num_threads": "threads",
    "partial_order_derivatives": "likelihood",
    "partial_order_log_likelihood": "likelihood",
    "partition_derivatives": "likelihood",
    "partition_log_likelihood": "likelihood",
    "preference_log_probability": "likelihood",
    "set_num_threads": "threads",
    "show_versions": "report.versions",
}
_MODULES = (
    "aggregation", "boosted", "data", "distributed", "distribution", "errors", "estimators", "evaluation",
    "integrations", "likelihood", "lists", "losses", "metrics", "neural", "preferences", "report",
)  # fmt: skip

__all__ = ["__version__", *_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f"plackett.{_HOME[name]}"), name)
    elif name in _MODULES:
        value = import_module(f"plackett.{name}")
    else:
        raise AttributeError(f"module 'plackett' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
