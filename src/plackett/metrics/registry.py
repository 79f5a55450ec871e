"""Metrics by name, such as "ndcg@10"."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from plackett.arguments import metric_names
from plackett.metrics import multilabel, ranking


@dataclass(frozen=True)
class MetricInfo:
    """A metric, whether its name may have a cut-off, and the options that the name implies."""

    function: Callable[..., Any]
    takes_k: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    needs_propensity: bool = False


METRICS: dict[str, MetricInfo] = {
    "ndcg": MetricInfo(ranking.ndcg),
    "err": MetricInfo(ranking.err),
    "map": MetricInfo(ranking.average_precision),
    "mrr": MetricInfo(ranking.reciprocal_rank),
    "p": MetricInfo(ranking.precision),
    "recall": MetricInfo(ranking.recall),
    "tau-b": MetricInfo(ranking.kendall_tau, takes_k=False, options={"variant": "b"}),
    "tau-x": MetricInfo(ranking.kendall_tau, takes_k=False, options={"variant": "x"}),
    "log-likelihood": MetricInfo(ranking.log_likelihood),
}
"""Called as metric(scores, labels, offsets=, qid=, group=, where=, weights=, reduction=, empty=); higher is better."""

MULTILABEL_METRICS: dict[str, MetricInfo] = {
    "p": MetricInfo(multilabel.multilabel_precision),
    "recall": MetricInfo(multilabel.multilabel_recall),
    "ndcg": MetricInfo(multilabel.multilabel_ndcg),
    "psp": MetricInfo(multilabel.propensity_scored_precision, needs_propensity=True),
    "psndcg": MetricInfo(multilabel.propensity_scored_ndcg, needs_propensity=True),
    "coverage": MetricInfo(multilabel.coverage),
}
"""Called as metric(scores, Y); higher is better."""


def get_metric(name: str, *, multilabel: bool = False, **options: Any) -> Callable[..., Any]:
    """The metric of that name, with "@k" for a cut-off; `options` are passed to the function.

    >>> get_metric("ndcg@1", gain="linear")([0.5, 0.1], [1, 2])
    0.5
    """
    known = MULTILABEL_METRICS if multilabel else METRICS
    match = re.fullmatch(r"([a-z-]+)(?:@([1-9][0-9]*))?", name) if isinstance(name, str) else None
    info = known.get(match[1]) if match else None
    if match is None or info is None or (match[2] and not info.takes_k):
        forms = ", ".join(f"{key}@k" if multilabel else f"{key}[@k]" if x.takes_k else key for key, x in known.items())
        raise ValueError(f"metric must be one of {forms}, got {name!r}")
    if info.needs_propensity and "inverse_propensity" not in options:
        raise ValueError(f"{name} needs inverse_propensity, one number per label, got none")
    cutoff = {"k": int(match[2])} if match[2] else {}
    return partial(info.function, **info.options, **cutoff, **options)


def check_metric(name: str, value: Any) -> None:
    """Raise ValueError unless the argument `name` is the name of a ranking metric."""
    try:
        get_metric(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def check_metrics(name: str, value: Any) -> None:
    """Raise ValueError unless the argument `name` holds one name of a ranking metric, or several."""
    for metric in metric_names(name, value):
        check_metric(name, metric)
