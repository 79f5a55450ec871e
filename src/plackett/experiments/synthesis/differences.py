"""Each loss against the exact likelihood in the same family of models, on the same data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from plackett.experiments.synthesis.models import EXACT, OTHERS
from plackett.metrics import compare, correct

LEVEL = 0.05


@dataclass(frozen=True)
class Difference:
    """The mean of a loss minus that of the exact likelihood over pairs (seeds or queries).

    `p` is that of the paired two-tailed t-test, corrected for all differences that were made together.
    """

    where: str
    family: str
    loss: str
    mean: float
    exact_mean: float
    standard_error: float
    p: float

    @property
    def verdict(self) -> int:
        """1 if the exact likelihood is better than chance explains, -1 if it is worse, else 0."""
        return 0 if self.p >= LEVEL else int(-np.sign(self.mean))


def differences(
    values: Mapping[tuple[str, str], Mapping[str, npt.NDArray[np.float64]]], correction: str
) -> list[Difference]:
    """Of all (where, family), given the paired values of each loss; NaN is left out."""
    found = []
    for (where, family), by_loss in values.items():
        for loss in OTHERS:
            pair = compare(by_loss[loss], by_loss[EXACT], resamples=1)  # the interval is not used
            error = standard_error(by_loss[loss] - by_loss[EXACT])
            found.append(Difference(where, family, loss, pair.difference, pair.second_mean, error, pair.t_test))
    raised = correct([one.p for one in found], correction)
    return [replace(one, p=float(p)) for one, p in zip(found, raised, strict=True)]


def standard_error(values: npt.NDArray[np.float64]) -> float:
    """Of the mean of what is not NaN."""
    known = values[~np.isnan(values)]
    return float(known.std(ddof=1) / np.sqrt(len(known)))


def pays(found: Sequence[Difference]) -> bool:
    """Whether the exact likelihood is better somewhere and worse nowhere."""
    verdicts = [one.verdict for one in found]
    return max(verdicts) > 0 and min(verdicts) >= 0


def count(found: Sequence[Difference]) -> str:
    """In words.

    >>> count([Difference("here", "linear", "listnet", -0.1, 0.5, 0.01, 0.001)])
    'better in 1, worse in 0, not told apart in 0 of 1'
    """
    verdicts = [one.verdict for one in found]
    return (
        f"better in {verdicts.count(1)}, worse in {verdicts.count(-1)}, not told apart in {verdicts.count(0)} "
        f"of {len(verdicts)}"
    )
