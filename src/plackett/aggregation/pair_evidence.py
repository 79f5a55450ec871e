"""`Evidence` of comparisons of two items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import connected_components

from plackett.aggregation.ballot_kernels import INFORMATION
from plackett.aggregation.connectivity import Steps, step_graph
from plackett.aggregation.evidence import Evidence
from plackett.aggregation.pair_kernels import HALF
from plackett.aggregation.pair_likelihood import PairLikelihood
from plackett.aggregation.pair_rows import (
    LOSSES,
    TIES,
    WINS,
    Floats,
    PairRows,
    clustered_rows,
    merged_rows,
    single_rows,
    sorted_by_cluster,
)
from plackett.aggregation.problem import WorthProblem
from plackett.aggregation.tie_models import TieModel
from plackett.data.comparisons import TIE, Comparisons
from plackett.data.hashes import fingerprint
from plackett.errors import NoMaximumError
from plackett.lists import IntArray

_LEAST_INFORMATION = 1e-5  # of what a feature could give: less is left only where all outcomes are certain

_LEAST_OWN = 1e-10  # of the information of a feature: less is rounding


@dataclass(frozen=True)
class PairEvidence(Evidence):
    """Comparisons as rows of counts.

    rows       what is fitted
    clustered  the same comparisons by cluster, or None
    squared    the same rows with each weight times its decay once more, or None where weights are counts
    level      how often comparisons ended level that this model leaves out
    """

    names: list[Any]
    model: TieModel
    rows: PairRows
    clustered: PairRows | None = None
    squared: PairRows | None = None
    level: float = 0.0
    feature_names: Sequence[str] = ()
    cluster_names: Sequence[Any] = ()
    stays: ClassVar[bool] = True

    @property
    def kind(self) -> int:
        """The model of the kernels; where ties say nothing there are none left, and any of them is the same."""
        return HALF if self.model.kind is None else self.model.kind

    @property
    def ballots(self) -> int:
        return len(self.rows)

    @property
    def weight(self) -> float:
        return self.rows.weight

    @property
    def tied_weight(self) -> float:
        return self.level

    @property
    def tied_pairs(self) -> float:
        return self.level

    @property
    def ranked(self) -> npt.NDArray[np.bool_]:
        return self.rows.occurring_items()

    def steps(self) -> Steps:
        return Steps(_graph(self.rows, with_ties=True), self.rows.occurring_items())

    def restrict(self, kept: npt.NDArray[np.bool_]) -> PairEvidence:
        return replace(
            self,
            names=[name for name, keep in zip(self.names, kept, strict=True) if keep],
            rows=self.rows.restrict(kept),
            clustered=None if self.clustered is None else self.clustered.restrict(kept),
            squared=None if self.squared is None else self.squared.restrict(kept),
        )

    def hash(self) -> str:
        texts = np.array([str(name) for name in self.names])
        by_name = np.argsort(texts, kind="stable")
        places = np.empty(len(texts), np.int64)
        places[by_name] = np.arange(len(texts))
        left, right = places[self.rows.left], places[self.rows.right]
        turned = left > right
        counts = np.where(turned[:, None], self.rows.counts[:, ::-1], self.rows.counts)
        features = np.where(turned[:, None], -self.rows.features, self.rows.features)
        low, high = np.minimum(left, right), np.maximum(left, right)
        # Counts to six digits, without the rounding of their sums; 0 stays apart.
        digits = np.rint(1e6 * np.log(np.maximum(counts, 1e-300))).astype(np.int64)
        order = np.lexsort((*features.T, *digits.T, high, low))
        return fingerprint([texts[by_name].tolist(), low[order], high[order], digits[order], features[order]])

    def problem(
        self, X: Floats | None = None, ridge: float = 0.0, prior: float = 0.0, feature_ridge: float = 0.0
    ) -> WorthProblem:
        rows = self.rows.with_ghost(prior) if prior else self.rows
        return WorthProblem(PairLikelihood.from_rows(rows, self.kind), X, ridge, feature_ridge)

    @property
    def tie_names(self) -> list[str]:
        return [] if self.model.parameter is None else [self.model.parameter]

    def by_voter(self, factors: Floats) -> PairEvidence:
        rows = self.clustered
        if rows is None or rows.starts is None:
            return super().by_voter(factors)  # type: ignore[return-value]
        scaled = replace(rows, scales=np.repeat(factors, np.diff(rows.starts)), order=np.arange(len(rows)))
        return replace(self, rows=replace(scaled, starts=None, order=None), clustered=scaled)

    @property
    def voters(self) -> IntArray:
        if self.clustered is None or self.clustered.starts is None:
            return super().voters
        return np.repeat(np.arange(self.clusters), np.diff(self.clustered.starts))

    def _likelihood(self, rows: PairRows) -> PairLikelihood:
        return PairLikelihood(rows, self.kind, self.kind != HALF and self.rows.ties > 0.0)

    def squares(self, parameters: Floats) -> Floats:
        return self._likelihood(self.rows if self.squared is None else self.squared).squares(parameters)

    def clustered_squares(self, parameters: Floats) -> Floats:
        if self.clustered is None:
            raise ValueError("clusters must be given")
        return self._likelihood(self.clustered).clustered_squares(parameters)

    def variance_of_gradient(self, parameters: Floats) -> Floats | None:
        if self.squared is None:
            return None
        return self._likelihood(self.squared).evaluate(parameters, INFORMATION).information

    def check_maximum(self, *, has_ridge: bool) -> None:
        """The tie parameter grows without bound unless some cycle has more wins than ties.

        Along (d, t) with t > 0 the likelihood does not fall if d_i - d_j >= t for every win of i over j and
        |d_i - d_j| <= t for every tie (t / 2 in one of the models). Such d exist unless the steps t down a win and t up
        or down a tie have a cycle that falls: Bellman and Ford's condition. A ridge keeps d at 0, where a single win
        suffices.
        """
        if self.model.parameter is None or not self.rows.ties:
            return
        if not self.rows.counts[:, [WINS, LOSSES]].any():
            raise NoMaximumError(
                "all comparisons are ties, so that the tie parameter has no finite estimate: "
                'use prior=0.5, or ties="half"'
            )
        if has_ridge:
            return
        wins = _graph(self.rows, with_ties=False)
        _, component = connected_components(wins, directed=True, connection="strong")
        if np.bincount(component).max() > 1 or self._has_falling_cycle():
            return
        raise NoMaximumError(
            "the maximum likelihood estimate does not exist: there is no cycle of wins, so that a larger tie "
            "parameter always fits better. Give all items a finite worth with prior=0.5"
        )

    def check_features(self, *, has_penalty: bool) -> None:
        """Check that the data hold information about each feature beyond the items and the earlier features."""
        likelihood = self._likelihood(self.rows)
        n, count = likelihood.items, likelihood.coefficients
        start = np.concatenate([np.zeros(n), likelihood.start_extras()])
        information = likelihood.evaluate(start, INFORMATION).information
        first = len(start) - count
        known = [] if has_penalty else list(range(n))
        for k, name in enumerate(self.feature_names, first):
            own = information[k, k]
            if known:
                inside, across = information[np.ix_(known, known)], information[known, k]
                own -= float(across @ np.linalg.lstsq(inside, across)[0])
            if own <= _LEAST_OWN * information[k, k]:
                others = "the other features" if has_penalty else "the items and the other features"
                raise ValueError(
                    f"features must be linearly independent of each other and of the items, got {name!r}, which "
                    f"{others} determine, or which never changes: leave it out, or use feature_ridge above 0"
                )
            known.append(k)

    def check_separation(self, parameters: Floats) -> None:
        """A feature that separates wins from losses perfectly has no finite coefficient, and next to no information."""
        likelihood = self._likelihood(self.rows)
        left = np.diag(likelihood.evaluate(parameters, INFORMATION).information)[-likelihood.coefficients :]
        possible = likelihood.extra_scale()[-likelihood.coefficients :]
        share = left / np.maximum(possible, 1e-300)
        if share.min() < _LEAST_INFORMATION:
            name = self.feature_names[int(np.argmin(share))]
            raise NoMaximumError(
                f"the maximum likelihood estimate does not exist: the features, especially {name!r}, separate wins "
                "from losses perfectly. Leave it out, or use feature_ridge above 0"
            )

    def _has_falling_cycle(self) -> bool:
        rows = self.rows
        one, level, other = (rows.counts[:, k] > 0.0 for k in (WINS, TIES, LOSSES))
        source = np.concatenate([rows.left[one], rows.right[other], rows.left[level], rows.right[level]])
        target = np.concatenate([rows.right[one], rows.left[other], rows.right[level], rows.left[level]])
        length = np.where(np.arange(len(source)) < one.sum() + other.sum(), -1.0, 1.0)
        distance = np.zeros(rows.items)
        for _ in range(rows.items):
            found = distance.copy()
            np.minimum.at(found, target, distance[source] + length)
            if (found == distance).all():
                return False
            distance = found
        return True


def _graph(rows: PairRows, *, with_ties: bool) -> Any:
    """Steps from winners to losers and, if wanted, both ways between items that tied."""
    one, level, other = (rows.counts[:, k] > 0.0 for k in (WINS, TIES, LOSSES))
    if with_ties:
        one, other = one | level, other | level
    source = np.concatenate([rows.left[one], rows.right[other]])
    target = np.concatenate([rows.right[one], rows.left[other]])
    return step_graph(source, target, rows.items)


def pair_evidence(comparisons: Comparisons, model: TieModel, weights: Floats, decay: Floats | None) -> PairEvidence:
    """Comparisons with the weight of each, reduced to counts unless they have features.

    `decay` is the part of the weight that says how much a comparison counts, not how often it was seen.
    """
    total = weights if decay is None else weights * decay
    seen = total > 0.0
    level = 0.0
    if model.kind is None and comparisons.outcome is not None:
        decided = comparisons.outcome != TIE
        level = float(total[~decided].sum())
        seen &= decided
    if not seen.all():
        comparisons, weights, total = comparisons.select(seen), weights[seen], total[seen]
        decay = None if decay is None else decay[seen]
    has_features = comparisons.features is not None
    make = single_rows if has_features else merged_rows
    rows = make(comparisons, total)
    clustered, cluster_names = None, ()
    if comparisons.cluster is not None:
        used = comparisons.cluster.used()
        codes, cluster_names = used.codes, tuple(used.names)
        clustered = sorted_by_cluster(rows, codes) if has_features else clustered_rows(comparisons, total, codes)
    squared = None if decay is None else make(comparisons, total * decay)
    return PairEvidence(
        list(comparisons.names), model, rows, clustered, squared, level, tuple(comparisons.feature_names), cluster_names
    )
