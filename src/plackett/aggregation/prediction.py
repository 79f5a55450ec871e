"""Probabilities of outcomes and of rankings under a fitted model of ties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import expit

from plackett.aggregation.ballot_kernels import VALUE
from plackett.aggregation.ballots import make_rankings
from plackett.aggregation.dead_heats import DeadHeatLikelihood
from plackett.aggregation.reading import pairs_of
from plackett.aggregation.tie_models import TIE_MODELS, UNKNOWN
from plackett.data.containers import Ballots
from plackett.objective import Floats


def outcome_probabilities(ties: str | None, eta: Floats, parameters: Mapping[str, Any]) -> Floats:
    """Probabilities that left wins, that they tie, that right wins, (comparisons, 3); eta is left minus right."""
    parameter = TIE_MODELS[ties or UNKNOWN].parameter
    if parameter is None:
        return np.column_stack([expit(eta), np.zeros(len(eta)), expit(-eta)])
    value = parameters[parameter if parameter in parameters else f"{parameter}_2"].value
    if parameter == "theta":
        left, right = expit(eta - np.log(value)), expit(-eta - np.log(value))
        return np.column_stack([left, (value * value - 1.0) * left * right, right])
    root = np.exp(-0.5 * np.abs(eta))
    weights = np.column_stack([np.ones(len(eta)), value * root, root * root])
    weights[eta < 0.0] = weights[eta < 0.0, ::-1]
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def ranking_log_probabilities(ties: str, scores: Floats, parameters: Mapping[str, Any], ballots: Ballots) -> Floats:
    """The log-probability of each ballot where ties are outcomes."""
    pairs = pairs_of(ballots)
    if TIE_MODELS[ties].for_lists and (pairs is None or "delta" not in parameters):
        return _list_log_probabilities(scores, parameters, ballots)
    if pairs is None or pairs.outcome is None:
        raise ValueError(f"ties={ties!r} is for pairs, got a ranking of more items")
    if ties == "half" and not pairs.outcome.all():
        raise ValueError("ties='half' gives ties no probability of their own, got a ranking that ties two items")
    found = np.zeros(len(ballots))
    chosen = outcome_probabilities(ties, scores[pairs.left] - scores[pairs.right], parameters)
    with np.errstate(divide="ignore"):
        logs = np.log(chosen[np.arange(len(pairs)), 1 - pairs.outcome.astype(np.int64)])
    found[np.diff(ballots.offsets) == 2] = logs
    return found


def _list_log_probabilities(scores: Floats, parameters: Mapping[str, Any], ballots: Ballots) -> Floats:
    """Dead heats that the model does not know have the probability 0."""
    deltas = np.array([found.value for found in parameters.values()])
    rankings = make_rankings(ballots, keep_ties=True, merge=False)
    largest = int(np.diff(rankings.starts).max(initial=1))
    free = np.zeros(max(largest - 1, len(deltas)), bool)
    free[: len(deltas)] = deltas > 0.0
    likelihood = DeadHeatLikelihood(rankings, free)
    return likelihood.by_ballot(np.concatenate([scores, np.log(deltas[deltas > 0.0])]), VALUE).values
