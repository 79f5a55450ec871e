"""Probabilities of labels from scores, calibrated on validation rows (Platt 1999).

P(row has the label) = sigmoid(slope * x + intercept), where x is the log-softmax of the scores of a row: ranking losses
leave the level of a row's scores free, and x does not depend on it. Slope and intercept maximise the likelihood of the
validation labels. There are rows x labels of these, so x is first counted in narrow bins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logsumexp

from plackett.objective import Floats

_BINS = 20_000
_LOWEST = -60.0  # of log-softmax; below it a label is as improbable as can be
_MOST_STEPS = 100


@dataclass(frozen=True)
class Calibration:
    """The two numbers of the calibration."""

    slope: float
    intercept: float

    def probabilities(self, scores: npt.NDArray[np.floating]) -> Floats:
        """The probability of each label in each row, (rows, labels)."""
        return np.asarray(expit(self.slope * relative_scores(scores) + self.intercept))


def relative_scores(scores: npt.NDArray[np.floating]) -> Floats:
    """Log-softmax over the labels of a row, at least `_LOWEST`."""
    values = scores.astype(np.float64)
    return np.maximum(values - logsumexp(values, axis=1, keepdims=True), _LOWEST)


def fit_calibration(blocks: Iterable[tuple[npt.NDArray[np.floating], npt.NDArray[np.bool_]]]) -> Calibration:
    """The maximum likelihood from blocks of rows: scores and which labels the rows have, both (rows, labels)."""
    positive, everything, sums = (np.zeros(_BINS) for _ in range(3))
    for scores, has in blocks:
        x = relative_scores(scores)
        bins = np.minimum((x - _LOWEST) * (_BINS / -_LOWEST), _BINS - 1).astype(np.int64)
        positive += np.bincount(bins[has], minlength=_BINS)
        everything += np.bincount(bins.ravel(), minlength=_BINS)
        sums += np.bincount(bins.ravel(), x.ravel(), minlength=_BINS)
    total, hits = everything.sum(), positive.sum()
    if not 0 < hits < total:
        raise ValueError("calibrate needs validation rows that have some labels and lack some, got none of one kind")
    used = everything > 0
    return _maximum(sums[used] / everything[used], positive[used], everything[used])


def _maximum(x: Floats, positive: Floats, everything: Floats) -> Calibration:
    """Newton's method with halved steps for a logistic regression on counts; the likelihood is concave.

    One prior row that has a label and one that lacks it, both at the mean, keep the optimum finite when scores separate
    the labels perfectly.
    """
    middle = float(np.average(x, weights=everything))
    spread = float(np.sqrt(np.average((x - middle) ** 2, weights=everything))) or 1.0
    z = np.append((x - middle) / spread, [3.0, -3.0])
    hits, counts = np.append(positive, [0.5, 0.5]), np.append(everything, [1.0, 1.0])
    design = np.stack([z, np.ones_like(z)])

    def likelihood(b: Floats) -> float:
        return float(hits @ (b @ design) - counts @ np.logaddexp(0.0, b @ design))

    rate = hits.sum() / counts.sum()
    b = np.array([1.0, np.log(rate / (1.0 - rate))])
    value = likelihood(b)
    for _ in range(_MOST_STEPS):
        p = expit(b @ design)
        step = np.linalg.solve((design * (counts * p * (1.0 - p))) @ design.T, design @ (hits - counts * p))
        while (after := likelihood(b + step)) < value and np.abs(step).max() > 1e-12:
            step = step / 2.0
        b, before, value = b + step, value, after
        if value - before <= 1e-12 * (1.0 + abs(value)):
            break
    return Calibration(float(b[0] / spread), float(b[1] - b[0] * middle / spread))
