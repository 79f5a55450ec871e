"""Compare each loss with the exact likelihood in the same model family, on the same data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from plackett.experiments.synthesis.fitted_models import EXACT, OTHERS
from plackett.metrics import compare, correct

LEVEL = 0.05


@dataclass(frozen=True)
class PairedDifference:
    """The mean of a loss minus the mean of the exact likelihood, over pairs (seeds or queries).

    `p` comes from the paired two-tailed t-test, corrected for all differences computed together.
    """

    where: str
    family: str
    loss: str
    mean: float
    standard_error: float
    p: float

    @property
    def verdict(self) -> int:
        """1 if the exact likelihood is significantly better, -1 if it is significantly worse, else 0."""
        return 0 if self.p >= LEVEL else int(-np.sign(self.mean))


def differences(
    values: Mapping[tuple[str, str], Mapping[str, npt.NDArray[np.float64]]], correction: str
) -> list[PairedDifference]:
    """Compute the differences for every (where, family), given the paired values of each loss; NaN is skipped."""
    found = []
    for (where, family), by_loss in values.items():
        for loss in OTHERS:
            pair = compare(by_loss[loss], by_loss[EXACT], resamples=1)  # the interval is not used
            error = standard_error(by_loss[loss] - by_loss[EXACT])
            found.append(PairedDifference(where, family, loss, pair.difference, error, pair.t_test))
    raised = correct([one.p for one in found], correction)
    return [replace(one, p=float(p)) for one, p in zip(found, raised, strict=True)]


def standard_error(values: npt.NDArray[np.float64]) -> float:
    """Return the standard error of the mean, skipping NaN."""
    known = values[~np.isnan(values)]
    return float(known.std(ddof=1) / np.sqrt(len(known)))


def pays(found: Sequence[PairedDifference]) -> bool:
    """Return whether the exact likelihood is significantly better somewhere and worse nowhere."""
    verdicts = [one.verdict for one in found]
    return max(verdicts) > 0 and min(verdicts) >= 0


def count(found: Sequence[PairedDifference]) -> str:
    """Count the verdicts, in words.

    >>> count([PairedDifference("here", "linear", "listnet", -0.1, 0.01, 0.001)])
    'better in 1, worse in 0, not significantly different in 0 of 1'
    """
    verdicts = [one.verdict for one in found]
    return (
        f"better in {verdicts.count(1)}, worse in {verdicts.count(-1)}, not significantly different in "
        f"{verdicts.count(0)} of {len(verdicts)}"
    )
