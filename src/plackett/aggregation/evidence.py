"""The interface between `RankAggregator` and its data: ballots or comparisons, in memory or on a cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from plackett.aggregation.ballot_likelihood import BallotLikelihood
from plackett.aggregation.ballots import Floats, Rankings, ballots_hash, make_rankings, restrict, with_ghost
from plackett.aggregation.connectivity import Steps, steps_of
from plackett.aggregation.problem import WorthProblem
from plackett.data.comparisons import Factor
from plackett.data.containers import Ballots
from plackett.likelihood.partition import partition_derivatives
from plackett.lists import IntArray

_NO_VOTERS = (
    "voters='reliability' needs to know who voted, and comparisons or ballots in memory: use "
    "load_comparisons(..., cluster=), or fit(..., cluster=)"
)
_NEEDS_MEMORY = "covariance must be 'model' for ballots on Dask, which stay there: fit in memory for the others"


class Evidence(ABC):
    """The data about some items."""

    stays: ClassVar[bool]
    """Whether the data stay available as long as the model exists."""
    names: list[Any]
    """The names of the items."""

    @property
    @abstractmethod
    def ballots(self) -> int:
        """The number of different observations that hold information."""

    @property
    @abstractmethod
    def weight(self) -> float:
        """How often these observations were made."""

    @property
    @abstractmethod
    def tied_weight(self) -> float:
        """How often all items of a ballot were tied and, in this model, that holds no information."""

    @property
    @abstractmethod
    def tied_pairs(self) -> float:
        """The same, of ballots of two items: comparisons, whose ties usually mean something."""

    @property
    @abstractmethod
    def ranked(self) -> npt.NDArray[np.bool_]:
        """Which items occur in an observation that holds information."""

    @abstractmethod
    def steps(self) -> Steps:
        """Which items are ranked above which; where ties are outcomes, tied items are above each other."""

    @abstractmethod
    def restrict(self, kept: npt.NDArray[np.bool_]) -> Evidence:
        """The data restricted to some of the items."""

    @abstractmethod
    def hash(self) -> str:
        """A hash that equal data share."""

    @abstractmethod
    def problem(
        self, X: Floats | None = None, ridge: float = 0.0, prior: float = 0.0, feature_ridge: float = 0.0
    ) -> WorthProblem:
        """The likelihood as a function of its parameters, with ridges and prior."""

    @property
    def tie_names(self) -> list[str]:
        """The names of the tie parameters."""
        return []

    @property
    def feature_names(self) -> Sequence[str]:
        """The names of the features of comparisons."""
        return ()

    @property
    def cluster_names(self) -> Sequence[Any]:
        """The names of the clusters; none if observations are not grouped."""
        return ()

    @property
    def clusters(self) -> int:
        """The number of clusters; 0 if observations are not grouped."""
        return len(self.cluster_names)

    def by_voter(self, factors: Floats) -> Evidence:
        """The same data with the utilities of each cluster times a factor; observations are those of one cluster."""
        del factors
        raise ValueError(_NO_VOTERS)

    @property
    def voters(self) -> IntArray:
        """The cluster of each observation of the likelihood, after `by_voter`."""
        raise ValueError(_NO_VOTERS)

    def squares(self, parameters: Floats) -> Floats:
        """The sum over observations of s s', s the gradient of one of them by the likelihood's parameters."""
        del parameters
        raise ValueError(_NEEDS_MEMORY)

    def clustered_squares(self, parameters: Floats) -> Floats:
        """The sum over clusters of s s', s the gradient of all observations of a cluster."""
        del parameters
        raise ValueError(_NEEDS_MEMORY)

    def variance_of_gradient(self, parameters: Floats) -> Floats | None:
        """The variance of the gradient if the model holds; None: the information, as where weights are counts."""
        del parameters
        return None

    def check_features(self, *, has_penalty: bool) -> None:  # noqa: B027 - most kinds of data have no features
        """Raise ValueError if comparisons' features depend on each other or, without a penalty of scores, on items."""

    def check_separation(self, parameters: Floats) -> None:  # noqa: B027 - most kinds of data have no features
        """Raise NoMaximumError if coefficients of comparisons' features diverged."""

    def check_maximum(self, *, has_ridge: bool) -> None:  # noqa: B027 - most kinds of data have nothing to check
        """Raise NoMaximumError if tie parameters have no maximum although the scores are connected."""


@dataclass(frozen=True)
class RankingEvidence(Evidence):
    """Ballots in memory, with the cluster of each, and a factor of each cluster's utilities, or None."""

    source: Ballots
    cluster: Factor | None = None
    factors: Floats | None = None
    stays: ClassVar[bool] = True
    keep_ties: ClassVar[bool]
    """Whether ballots that tie all their items hold information."""

    @cached_property
    def rankings(self) -> Rankings:
        return make_rankings(self.source, keep_ties=self.keep_ties, scales=self.scales)

    @property
    def scales(self) -> Floats | None:
        """The factor of each ballot of the source."""
        return None if self.factors is None or self.cluster is None else self.factors[self.cluster.codes]

    @property
    @abstractmethod
    def likelihood(self) -> Any:
        """The likelihood of the rankings."""

    @abstractmethod
    def gradients(self, parameters: Floats) -> csr_array:
        """The gradient of each ballot of the source, (ballots, parameters)."""

    @property
    def names(self) -> list[Any]:  # type: ignore[override]
        return list(self.source.names)

    @property
    def ballots(self) -> int:
        return len(self.rankings)

    @property
    def weight(self) -> float:
        return float(self.rankings.weights.sum())

    @property
    def tied_weight(self) -> float:
        return 0.0 if self.keep_ties else self.rankings.tied_weight

    @property
    def tied_pairs(self) -> float:
        return 0.0 if self.keep_ties else self.rankings.tied_pairs

    @property
    def ranked(self) -> npt.NDArray[np.bool_]:
        return np.bincount(self.rankings.items, minlength=self.rankings.count) > 0

    def steps(self) -> Steps:
        return steps_of(self.rankings)

    def restrict(self, kept: npt.NDArray[np.bool_]) -> Self:
        return replace(self, source=restrict(self.source, kept))

    def hash(self) -> str:
        return ballots_hash(self.rankings, self.names)

    def problem(
        self, X: Floats | None = None, ridge: float = 0.0, prior: float = 0.0, feature_ridge: float = 0.0
    ) -> WorthProblem:
        likelihood = self.likelihood
        if prior:
            likelihood = replace(likelihood, rankings=with_ghost(self.rankings, prior))
        return WorthProblem(likelihood, X, ridge, feature_ridge)

    @property
    def cluster_names(self) -> Sequence[Any]:
        return () if self.cluster is None else self.cluster.names

    def by_voter(self, factors: Floats) -> Self:
        if self.cluster is None:
            return super().by_voter(factors)  # type: ignore[return-value]
        return replace(self, factors=factors)

    @property
    def voters(self) -> IntArray:
        if self.cluster is None or self.rankings.places is None:
            return super().voters
        return self.cluster.codes[self.rankings.places >= 0].astype(np.int64)

    def squares(self, parameters: Floats) -> Floats:
        return weighted_squares(self.gradients(parameters), np.sqrt(self.source.weights))

    def clustered_squares(self, parameters: Floats) -> Floats:
        codes = None if self.cluster is None else self.cluster.codes
        return summed_squares(self.gradients(parameters), np.asarray(self.source.weights, np.float64), codes)


@dataclass(frozen=True)
class BallotsInMemory(RankingEvidence):
    """Ballots in memory, whose ties are unknown orders."""

    keep_ties: ClassVar[bool] = False

    @cached_property
    def likelihood(self) -> BallotLikelihood:
        return BallotLikelihood(self.rankings)

    def gradients(self, parameters: Floats) -> csr_array:
        source = self.source
        items = np.asarray(source.items)
        scales = 1.0 if self.scales is None else np.repeat(self.scales, np.diff(source.offsets))
        labels = np.asarray(source.labels, np.float64)
        slopes = partition_derivatives(scales * parameters[items], labels, offsets=source.offsets).gradient
        return csr_array((scales * slopes, items, source.offsets), (len(source), len(source.names)))


def weighted_squares(gradients: csr_array, roots: Floats) -> Floats:
    """The sum over rows of s s', each row times its factor."""
    rows = gradients.multiply(roots[:, None]).tocsr()
    return np.asarray((rows.T @ rows).toarray())


def summed_squares(gradients: csr_array, weights: Floats, cluster: npt.NDArray[np.int32] | None) -> Floats:
    """The sum over clusters of s s', s the weighted sum of the cluster's rows."""
    if cluster is None:
        raise ValueError("clusters must be given")
    rows = np.arange(len(cluster))
    groups = csr_array((weights, (cluster, rows)), (int(cluster.max(initial=0)) + 1, len(cluster)))
    sums = groups @ gradients
    return np.asarray((sums.T @ sums).toarray())
