"""Ballots as `RankAggregator` sees them: what it asks of them, whether they are in memory or on a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from plackett.aggregation.ballots import Floats, Rankings, ballots_hash, prepare, restrict, with_ghost
from plackett.aggregation.connectivity import Steps, steps_of
from plackett.aggregation.model import Objective
from plackett.data.containers import Ballots


class Evidence(Protocol):
    """Ballots of some items."""

    stays: ClassVar[bool]
    """Whether it is there as long as the model."""

    @property
    def names(self) -> list[Any]: ...

    @property
    def ballots(self) -> int:
        """How many different ballots say something."""

    @property
    def weight(self) -> float:
        """How often these were cast."""

    @property
    def level(self) -> float:
        """How often ballots were cast that tie all their items, two or more: they say nothing."""

    @property
    def ranked(self) -> npt.NDArray[np.bool_]:
        """Which items are on a ballot that says something."""

    def steps(self) -> Steps:
        """Who beats whom."""

    def restrict(self, kept: npt.NDArray[np.bool_]) -> Evidence:
        """The same for some of the items."""

    def hash(self) -> str:
        """What the same ballots share."""

    def objective(self, X: Floats | None = None, ridge: float = 0.0, prior: float = 0.0) -> Objective:
        """The log-likelihood."""


@dataclass(frozen=True)
class BallotsInMemory:
    """`Evidence` of ballots in memory."""

    source: Ballots
    stays: ClassVar[bool] = True

    @cached_property
    def rankings(self) -> Rankings:
        return prepare(self.source)

    @property
    def names(self) -> list[Any]:
        return list(self.source.names)

    @property
    def ballots(self) -> int:
        return len(self.rankings)

    @property
    def weight(self) -> float:
        return float(self.rankings.weights.sum())

    @property
    def level(self) -> float:
        return self.rankings.level

    @property
    def ranked(self) -> npt.NDArray[np.bool_]:
        return np.bincount(self.rankings.items, minlength=self.rankings.count) > 0

    def steps(self) -> Steps:
        return steps_of(self.rankings)

    def restrict(self, kept: npt.NDArray[np.bool_]) -> BallotsInMemory:
        return BallotsInMemory(restrict(self.source, kept))

    def hash(self) -> str:
        return ballots_hash(self.rankings, self.names)

    def objective(self, X: Floats | None = None, ridge: float = 0.0, prior: float = 0.0) -> Objective:
        return Objective(with_ghost(self.rankings, prior) if prior else self.rankings, X, ridge)
