"""The interface between `RankAggregator` and its data: ballots or comparisons, in memory or on a cluster."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from plackett.aggregation.ballot_likelihood import BallotLikelihood
from plackett.aggregation.ballots import Floats, Rankings, ballots_hash, make_rankings, restrict, with_ghost
from plackett.aggregation.connectivity import Steps, steps_of
from plackett.aggregation.problem import WorthProblem
from plackett.data.containers import Ballots
from plackett.likelihood.partition import partition_derivatives

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
        """The same if all ballots are of two items: comparisons, whose ties usually mean something; else 0."""

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
    def clusters(self) -> int:
        """The number of clusters; 0 if observations are not grouped."""
        return 0

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

    def check_separation(self, parameters: Floats) -> None:  # noqa: B027 - most kinds of data have no features
        """Raise NoMaximumError if coefficients of comparisons' features ran away."""

    def check_maximum(self, *, has_ridge: bool) -> None:  # noqa: B027 - most kinds of data have nothing to check
        """Raise NoMaximumError if tie parameters have no maximum although the scores are connected."""


@dataclass(frozen=True)
class BallotsInMemory(Evidence):
    """Ballots in memory. `cluster` holds a number for each ballot, or None."""

    source: Ballots
    cluster: npt.NDArray[np.int32] | None = None
    stays: ClassVar[bool] = True

    @cached_property
    def rankings(self) -> Rankings:
        return make_rankings(self.source)

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
        return self.rankings.tied_weight

    @property
    def tied_pairs(self) -> float:
        return self.rankings.tied_weight if self.rankings.longest <= 2 else 0.0

    @property
    def ranked(self) -> npt.NDArray[np.bool_]:
        return np.bincount(self.rankings.items, minlength=self.rankings.count) > 0

    def steps(self) -> Steps:
        return steps_of(self.rankings)

    def restrict(self, kept: npt.NDArray[np.bool_]) -> BallotsInMemory:
        return replace(self, source=restrict(self.source, kept))

    def hash(self) -> str:
        return ballots_hash(self.rankings, self.names)

    def problem(
        self, X: Floats | None = None, ridge: float = 0.0, prior: float = 0.0, feature_ridge: float = 0.0
    ) -> WorthProblem:
        rankings = with_ghost(self.rankings, prior) if prior else self.rankings
        return WorthProblem(BallotLikelihood(rankings), X, ridge, feature_ridge)

    @property
    def clusters(self) -> int:
        return 0 if self.cluster is None else len(np.unique(self.cluster))

    def _gradients(self, parameters: Floats) -> csr_array:
        """The gradient of each ballot, (ballots, items)."""
        source = self.source
        items = np.asarray(source.items)
        slopes = partition_derivatives(parameters[items], np.asarray(source.labels, np.float64), offsets=source.offsets)
        return csr_array((slopes.gradient, items, source.offsets), (len(source), len(source.names)))

    def squares(self, parameters: Floats) -> Floats:
        return weighted_squares(self._gradients(parameters), np.sqrt(self.source.weights))

    def clustered_squares(self, parameters: Floats) -> Floats:
        return summed_squares(self._gradients(parameters), np.asarray(self.source.weights, np.float64), self.cluster)


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
