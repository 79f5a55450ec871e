"""Data of any form as `Evidence` in memory: which model of ties applies, and what each observation weighs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.aggregation.ballots import as_ballots, check_ballot_weights, check_names, weighted
from plackett.aggregation.dead_heats import DeadHeatEvidence
from plackett.aggregation.evidence import BallotsInMemory, Evidence
from plackett.aggregation.graph_evidence import GraphEvidence, informative
from plackett.aggregation.pair_evidence import pair_evidence
from plackett.aggregation.tie_models import TIE_MODELS, UNKNOWN, TieModel, question, question_of_ballots
from plackett.arguments import as_numbers
from plackett.data.comparisons import TIE, Comparisons, Factor
from plackett.data.containers import Ballots
from plackett.data.factors import MISSING, factorise
from plackett.data.preference_graphs import PreferenceGraphs
from plackett.objective import Floats


@dataclass(frozen=True)
class Reading:
    """How to read data; the parameters of `plackett.RankAggregator` with these names."""

    ties: str | None = None
    max_tie: int | None = None
    unranked: str = "ignore"
    half_life: float | None = None
    window: float | None = None
    random_state: Any = 0


def read_evidence(data: Any, reading: Reading, sample_weight: Any, cluster: Any) -> Evidence:
    """Evidence of comparisons, or of rankings in any form."""
    if isinstance(data, Comparisons):
        return read_comparisons(prepare_comparisons(data, None, sample_weight, cluster), reading)
    if isinstance(data, PreferenceGraphs):
        return _read_graphs(data, reading, sample_weight, cluster)
    if reading.half_life is not None or reading.window is not None:
        raise ValueError("half_life and window need comparisons with a time: use load_comparisons(..., time=)")
    ballots = as_ballots(data)
    check_names(ballots.names)
    ballots = weighted(ballots, sample_weight, reading.unranked)
    return _read_ballots(ballots, reading, cluster)


def _read_graphs(graphs: PreferenceGraphs, reading: Reading, sample_weight: Any, cluster: Any) -> Evidence:
    given = {
        "ties": reading.ties not in (None, UNKNOWN),
        "unranked": reading.unranked != "ignore",
        "half_life": reading.half_life is not None,
        "window": reading.window is not None,
        "cluster": cluster is not None,
    }
    if any(given.values()):
        name = next(name for name, is_given in given.items() if is_given)
        raise ValueError(f"{name} does not apply to graphs of preferences: leave it out")
    check_names(graphs.names)
    graphs.check_acyclic()
    if sample_weight is not None:
        weights = as_numbers("sample_weight", sample_weight)
        if weights.shape != (len(graphs),):
            raise ValueError(f"sample_weight must hold one number for each of {len(graphs)} lists, got {weights.shape}")
        graphs = replace(graphs, weights=graphs.weights * weights)
    return GraphEvidence(informative(graphs), reading.random_state)


def _read_ballots(ballots: Ballots, reading: Reading, cluster: Any) -> Evidence:
    voters = None if cluster is None else cluster_of(cluster, len(ballots)).used()
    model = TIE_MODELS[UNKNOWN if reading.ties is None else reading.ties]
    if model.name == UNKNOWN:
        evidence = BallotsInMemory(ballots, voters)
        if reading.ties is None and evidence.tied_pairs:
            raise ValueError(question_of_ballots(evidence.tied_pairs, evidence.tied_weight + evidence.weight))
        return evidence
    pairs = pairs_of(ballots)
    if pairs is None and model.for_lists:
        return DeadHeatEvidence(ballots, voters, max_tie=reading.max_tie)
    if pairs is None:
        longest = int(np.diff(ballots.offsets).max())
        raise ValueError(f"ties={model.name!r} is for pairs, got a ballot of {longest} items: use ties='davidson'")
    if voters is not None:
        pairs = replace(pairs, cluster=voters.select(np.diff(ballots.offsets) == 2))
    return read_comparisons(pairs, reading)


def pairs_of(ballots: Ballots) -> Comparisons | None:
    """Ballots of two items as comparisons; None if one has more. Those with fewer hold no information."""
    sizes = np.diff(ballots.offsets)
    if sizes.max(initial=0) > 2:
        return None
    starts = np.asarray(ballots.offsets)[:-1][sizes == 2]
    items, labels = np.asarray(ballots.items), np.asarray(ballots.labels, np.float64)
    check_ballot_weights(ballots.weights, len(ballots))
    return Comparisons(
        items[starts],
        items[starts + 1],
        np.sign(labels[starts] - labels[starts + 1]).astype(np.int8),
        list(ballots.names),
        np.asarray(ballots.weights)[sizes == 2],
    )


def prepare_comparisons(comparisons: Comparisons, features: Any, sample_weight: Any, cluster: Any) -> Comparisons:
    """The comparisons with the features, weights and clusters that were given with them."""
    found = with_cluster(choose_features(comparisons, features), cluster)
    if sample_weight is None:
        return found
    return replace(found, weight=found.weights * _check_weights(sample_weight, len(found)))


def with_cluster(comparisons: Comparisons, cluster: Any) -> Comparisons:
    if cluster is None:
        return comparisons
    return replace(comparisons, cluster=cluster_of(cluster, len(comparisons)))


def cluster_of(values: Any, rows: int) -> Factor:
    """The cluster of each row."""
    factor = values if isinstance(values, Factor) else factorise(values)
    if len(factor) != rows:
        raise ValueError(f"cluster must hold one value for each of the {rows:,} rows, got {len(factor):,}")
    if (lost := factor.codes == MISSING).any():
        raise ValueError(f"cluster must not be missing, got no value in row {int(np.argmax(lost))}")
    return factor


def read_comparisons(comparisons: Comparisons, reading: Reading) -> Evidence:
    """Comparisons as evidence for the chosen model of ties; asks if none was chosen and there are ties."""
    check_names(comparisons.names)
    weights = comparisons.weights
    decay = decay_of(comparisons, reading.half_life, reading.window)
    return pair_evidence(comparisons, _model(comparisons, weights, reading.ties), weights, decay)


def _model(comparisons: Comparisons, weights: Floats, ties: str | None) -> TieModel:
    if ties is not None:
        return TIE_MODELS[ties]
    if comparisons.outcome is not None:
        tied = float(weights[comparisons.outcome == TIE].sum())
        if tied:
            raise ValueError(question(tied, float(weights.sum())))
    return TIE_MODELS[UNKNOWN]


def _check_weights(values: Any, rows: int) -> Floats:
    weights = as_numbers("sample_weight", values)
    if weights.shape != (rows,) or not np.isfinite(weights).all() or weights.min(initial=0.0) < 0.0:
        raise ValueError(
            f"sample_weight must hold a number of at least 0 for each of the {rows:,} comparisons, got "
            f"{f'{weights.min()} to {weights.max()}' if weights.shape == (rows,) else f'shape {weights.shape}'}"
        )
    return weights


def decay_of(comparisons: Comparisons, half_life: float | None, window: float | None) -> Floats | None:
    """How much each comparison counts by its age: half after `half_life`, nothing beyond `window`."""
    if half_life is None and window is None:
        return None
    if comparisons.time is None:
        raise ValueError("half_life and window need the time of comparisons: use load_comparisons(..., time=)")
    age = comparisons.time.max(initial=-np.inf) - comparisons.time
    found = np.ones(len(age)) if half_life is None else np.exp2(-age / half_life)
    return found if window is None else np.where(age <= window, found, 0.0)


def choose_features(comparisons: Comparisons, features: Any) -> Comparisons:
    """The comparisons with the chosen features: names of their own, or a table or array of differences.

    None: all that they have.
    """
    if features is None:
        return comparisons
    if _are_names(features):
        return _named_features(comparisons, list(features))
    names = [str(name) for name in features.columns] if hasattr(features, "columns") else None
    values = as_numbers("features", features.to_numpy() if hasattr(features, "to_numpy") else features)
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or len(values) != len(comparisons):
        raise ValueError(
            f"features must have one row for each of the {len(comparisons):,} comparisons, got shape {values.shape}"
        )
    names = names or [f"feature{k + 1}" for k in range(values.shape[1])]
    return replace(comparisons, features=values, feature_names=tuple(names))


def _are_names(features: Any) -> bool:
    return isinstance(features, Sequence) and all(isinstance(name, str) for name in features)


def _named_features(comparisons: Comparisons, names: list[str]) -> Comparisons:
    unknown = [name for name in names if name not in comparisons.feature_names]
    if unknown:
        known = ", ".join(comparisons.feature_names) or "none"
        raise ValueError(f"features must be among those of the comparisons ({known}), got {unknown[0]!r}")
    if not names:
        return replace(comparisons, features=None, feature_names=())
    columns: npt.NDArray[np.int64] = np.array([list(comparisons.feature_names).index(name) for name in names])
    chosen: Any = comparisons.features
    return replace(comparisons, features=chosen[:, columns], feature_names=tuple(names))
