"""Every loss in every family of models, by one protocol: what is free is chosen by NDCG@10 on validation.

linear   the optimum of the (penalised) loss; lambdarank, which is no function of the scores to be minimised, in a
         network without hidden layers
neural   a small perceptron, Adam, the weights of the best epoch
trees    boosted trees, the number of the best round. Losses without second derivatives are split and stepped by their
         gradients alone, whose size differs from loss to loss, so the learning rate is among what is chosen.
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

_TOL = 1e-3  # of the gradient of the mean over lists, whose sampling error is a hundred times as large with 100 lists
# One order for good, as ListMLE is published: that of the rows, which data sets must not have by relevance.
_OPTIONS: Mapping[str, Mapping[str, Any]] = {"listmle": {"ties": "stable"}}


def fit_best(family: str, loss: str, fold: Fold, configuration: Mapping[str, Any], seed: int) -> Any:
    """The model that ranks the validation lists best."""
    models = [
        model.fit(fold.train, **options) for model, options in _candidates(family, loss, fold, configuration, seed)
    ]
    return max(models, key=lambda model: mean_ndcg(model, fold.validation))


def mean_ndcg(model: Any, data: RankingData) -> float:
    return float(np.nanmean(list_ndcg(model, data)))


def list_ndcg(model: Any, data: RankingData) -> Any:
    """NDCG@10 of each list, NaN where nothing is relevant."""
    return ndcg(model.predict_data(data), data.y, k=10, offsets=data.offsets, reduction="none")


def _candidates(
    family: str, loss: str, fold: Fold, configuration: Mapping[str, Any], seed: int
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Models with what their `fit` is given beside the data."""
    validation = {"eval_set": fold.validation}
    options = dict(_OPTIONS.get(loss, {}))
    if family == "linear" and loss != "lambdarank":
        drawn = {"samples": configuration["samples"]} if loss == "listpl" else None  # it is drawn once for all
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
