"""Fit every loss in every model family, under one protocol: NDCG@10 on validation selects the free parameters.

linear   the optimum of the (penalised) loss. lambdarank, which does not minimise a function of the scores, uses a
         network without hidden layers.
neural   a small perceptron trained by Adam; validation selects the epoch.
trees    boosted trees; validation selects the round and the learning rate. The rate matters because losses without
         second derivatives split and step by their gradients alone, and gradient sizes differ between losses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from plackett import BoostedRanker, LinearRanker, NeuralRanker
from plackett.data.containers import RankingData
from plackett.data.splits import Fold
from plackett.metrics import ndcg

FAMILIES = ("linear", "neural", "trees")
EXACT = "partition"
OTHERS = ("lower_bound", "listmle", "listpl", "listnet", "lambdarank")
LOSSES = (EXACT, *OTHERS)

_TOL = 1e-3  # on the gradient of the mean over lists; with 100 lists its sampling error is a hundred times larger
# One fixed order, as in the ListMLE paper: the order of the rows, which must not be sorted by relevance.
_OPTIONS: Mapping[str, Mapping[str, Any]] = {"listmle": {"ties": "stable"}}


def fit_best(family: str, loss: str, fold: Fold, configuration: Mapping[str, Any], seed: int) -> Any:
    """Fit all candidates and return the one that ranks the validation lists best."""
    models = [
        model.fit(fold.train, **options) for model, options in _candidates(family, loss, fold, configuration, seed)
    ]
    return max(models, key=lambda model: mean_ndcg(model, fold.validation))


def mean_ndcg(model: Any, data: RankingData) -> float:
    return float(np.nanmean(list_ndcg(model, data)))


def list_ndcg(model: Any, data: RankingData) -> Any:
    """Return the NDCG@10 of each list; NaN for lists without a relevant document."""
    return ndcg(model.predict_data(data), data.y, k=10, offsets=data.offsets, reduction="none")


def _candidates(
    family: str, loss: str, fold: Fold, configuration: Mapping[str, Any], seed: int
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield each model with the extra arguments of its `fit`."""
    validation = {"eval_set": fold.validation}
    options = dict(_OPTIONS.get(loss, {}))
    if family == "linear" and loss != "lambdarank":
        drawn = {"samples": configuration["samples"]} if loss == "listpl" else None  # drawn once
        for l2 in configuration["l2"]:
            model = LinearRanker(
                loss, top=None, l2=l2, inference=False, tol=_TOL, objective_options=drawn, random_state=seed
            )
            yield model, {}
    elif family == "trees":
        for rate in configuration["tree_rates"]:
            yield BoostedRanker(
                loss, objective_options=options, learning_rate=rate, n_jobs=1, random_state=seed, progress=False,
                **configuration["trees"],
            ), validation  # fmt: skip
    else:
        own = {} if family == "neural" else {"hidden_sizes": (), "learning_rate": configuration["linear_rates"]}
        yield NeuralRanker(
            loss, objective_options=options, random_state=seed, device="cpu", progress=False,
            **{**configuration["neural"], **own},
        ), validation  # fmt: skip
