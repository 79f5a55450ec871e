"""Metrics of rankings and of extreme multi-label classification, and paired tests between systems.

    ranking      ndcg, err, average_precision, reciprocal_rank, precision, recall, kendall_tau, log_likelihood
    multilabel   few labels among many: precision, recall, nDCG, propensity-scored, coverage
    comparison   paired tests and intervals;  registry: metrics by name
    off_policy   counterfactual: the value of a policy from the logs of another
    metric_lists common parts;  ranking_kernels, multilabel_kernels: compiled code

May import the likelihood and the foundation (arguments, lists, threads, compilation), never torch. Start reading in
`ranking`.

Ranking metrics have the signature

    name(scores, labels, *, k=None, offsets=None, qid=None, group=None, where=None, weights=None, reduction="mean",
         ties="average", empty="skip", random_state=None, ...)

scores, labels  1-D: lists one after the other (`offsets`), rows with a list each (`qid`) or sizes of consecutive lists
                (`group`); without any of them, one list. 2-D: one list per row; with `where` only the marked entries
                are items. NumPy arrays, torch tensors or sequences; higher scores and labels are better
k               only the first k places count; None: all
reduction       "mean" = sum(weight * value) / sum(weight) over lists as a float, or "none" for one value per list
weights         one per list, for the mean
ties            how equal scores rank: "average" is the exact expectation over all orders of the tied items, "stable"
                ranks the item first that comes first, "random" draws an order with `random_state`
empty           the value of a list where the metric is undefined, such as one without relevant items: "skip" leaves
                it out of the mean and makes it NaN in "none"; or 0, or 1. The mean over no lists is NaN
threshold       the smallest relevant label, in metrics with binary relevance
"""

from plackett.metrics.comparison import Comparison, PairedComparisons, compare, confidence_interval, correct
from plackett.metrics.multilabel import (
    PROPENSITY_PRESETS,
    coverage,
    inverse_propensity,
    multilabel_ndcg,
    multilabel_precision,
    multilabel_recall,
    propensity_scored_ndcg,
    propensity_scored_precision,
)
from plackett.metrics.off_policy import CounterfactualEstimate, counterfactual
from plackett.metrics.ranking import (
    average_precision,
    err,
    kendall_tau,
    log_likelihood,
    ndcg,
    precision,
    recall,
    reciprocal_rank,
)
from plackett.metrics.registry import METRICS, MULTILABEL_METRICS, get_metric

__all__ = [
    "METRICS",
    "MULTILABEL_METRICS",
    "PROPENSITY_PRESETS",
    "Comparison",
    "CounterfactualEstimate",
    "PairedComparisons",
    "average_precision",
    "compare",
    "confidence_interval",
    "correct",
    "counterfactual",
    "coverage",
    "err",
    "get_metric",
    "inverse_propensity",
    "kendall_tau",
    "log_likelihood",
    "multilabel_ndcg",
    "multilabel_precision",
    "multilabel_recall",
    "ndcg",
    "precision",
    "propensity_scored_ndcg",
    "propensity_scored_precision",
    "recall",
    "reciprocal_rank",
]
