"""Compiled sampling of sparse rows.

Each row has its own stream of random numbers, started from its seed, so the result does not depend on how rows are
distributed to threads.
"""

import math

import numpy as np
import numpy.typing as npt

from plackett.compilation import inner, kernel
from plackett.random_kernels import GOLDEN, scramble

_Int32s = npt.NDArray[np.int32]
_Int64s = npt.NDArray[np.int64]
_Float32s = npt.NDArray[np.float32]


@inner
def _uniform(state: npt.NDArray[np.uint64]) -> float:
    """The next number of the stream in [0, 1)."""
    state[0] += GOLDEN
    return float(scramble(state[0]) >> np.uint64(11)) * 2.0**-53


@inner
def _power_law(u: float, n: int, exponent: float) -> int:
    """A number r from 0 to n - 1 with probability proportional to the integral of x^-exponent from r + 1 to r + 2.

    Inversion: the integral from 1 to x is (x^slope - 1) / slope with slope = 1 - exponent, or log x where that is 0.
    """
    slope = 1.0 - exponent
    log_end = math.log(n + 1.0)
    log_x = u * log_end if slope == 0.0 else math.log1p(u * math.expm1(slope * log_end)) / slope
    return min(int(math.exp(log_x)), n) - 1


@kernel
def draw_rows(
    first: int,
    last: int,
    seeds: npt.NDArray[np.uint64],
    label_offsets: _Int64s,
    feature_offsets: _Int64s,
    label_of_rank: _Int32s,
    feature_of_rank: _Int32s,
    signatures: _Int32s,
    exponent: float,
    signal: float,
    labels: _Int32s,
    features: _Int32s,
    counts: _Float32s,
) -> int:
    """Draw the labels, features and feature counts of rows first..last, until each row has enough distinct ones."""
    # Where a label or feature was last written. Rows are written in order: a place before the start of the row means
    # that the row does not have it yet.
    label_place = np.full(label_of_rank.size, -1, np.int64)
    feature_place = np.full(feature_of_rank.size, -1, np.int64)
    state = np.empty(1, np.uint64)
    for row in range(first, last):
        state[0] = seeds[row]
        begin, end = label_offsets[row], label_offsets[row + 1]
        place = begin
        while place < end:
            label = label_of_rank[_power_law(_uniform(state), label_of_rank.size, exponent)]
            if label_place[label] < begin:
                label_place[label] = place
                labels[place] = label
                place += 1
        n_labels = end - begin
        place = feature_offsets[row]
        while place < feature_offsets[row + 1]:
            if _uniform(state) < signal:
                label = labels[begin + int(_uniform(state) * n_labels)]
                feature = signatures[label, int(_uniform(state) * signatures.shape[1])]
            else:
                feature = feature_of_rank[_power_law(_uniform(state), feature_of_rank.size, 1.0)]
            if feature_place[feature] < feature_offsets[row]:
                feature_place[feature] = place
                features[place] = feature
                counts[place] = 1.0
                place += 1
            else:
                counts[feature_place[feature]] += 1.0
    return -1


@kernel
def weigh_rows(first: int, last: int, offsets: _Int64s, features: _Int32s, values: _Float32s, rarity: _Float32s) -> int:
    """Replace counts with (1 + log count) rarity, and scale rows to length 1."""
    for row in range(first, last):
        squares = 0.0
        for i in range(offsets[row], offsets[row + 1]):
            values[i] = (1.0 + math.log(values[i])) * rarity[features[i]]
            squares += values[i] ** 2
        for i in range(offsets[row], offsets[row + 1]):
            values[i] /= math.sqrt(squares)
    return -1
