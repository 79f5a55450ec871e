"""Graded lists shaped like MSLR-WEB10K."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.arguments import check_count, check_range
from plackett.data.containers import RankingData
from plackett.lists import offsets_from_sizes

_KINDS = 7
_SHARES = np.array([0.52, 0.32, 0.13, 0.02, 0.01])  # shares of the grades 0 to 4 in MSLR-WEB10K
_CONCENTRATION = 6.0  # how closely the shares of a single list follow them
_SPREAD = 0.65  # standard deviation of the log length: in MSLR-WEB10K the mean is 120 and the median below 100
_LONGEST = 7.5  # in units of the mean length, as in MSLR-WEB10K: about 900
_SHARED_BY_LIST, _SHARED_BY_ITEM = 0.4, 0.5
_OWN_NOISE = math.sqrt(1.0 - _SHARED_BY_LIST**2 - _SHARED_BY_ITEM**2)


def make_graded_lists(
    n_lists: int = 100,
    *,
    mean_length: float = 120.0,
    n_features: int = 136,
    dtype: npt.DTypeLike = np.float64,
    random_state: int | np.random.Generator | None = None,
) -> tuple[RankingData, npt.NDArray[np.float64]]:
    """Simulate lists with grades 0 to 4 shaped like MSLR-WEB10K, and return them with the true score of each item.

    Lengths are log-normal with the given mean, rounded, between 1 and 7.5 times the mean. Features come in blocks of
    seven kinds. Each feature of the first five kinds is a function of a standard normal
    z = 0.4 l + 0.5 c + sqrt(0.59) e, where l is drawn per list and feature, c per item, e per item and feature.

        0  a ratio                 1 / (1 + exp(-z))
        1  heavy-tailed            exp(2 z)
        2  a count                 floor(exp(z))
        3  an indicator            1 if z > 0.5 else 0
        4  often zero              10 max(z, 0)
        5  constant in each list   exp(normal)
        6  noise                   normal, independent of everything

    Only the first block x0..x6 matters; the others are related to it through c. The true score is not linear:

        5 x0 + 2 x0 x3 - (log(1 + x1) - 1)^2 / 2 + log(1 + x2) + (0.2 x4 if x5 > 1 else 0)

    A list is ordered by a draw from Plackett-Luce with these scores. Its shares of grades are drawn from a Dirichlet
    distribution with means 0.52, 0.32, 0.13, 0.02 and 0.01 for the grades 0 to 4 and concentration 6, and the numbers
    of items per grade from a multinomial distribution; the best items get the highest grade.

    Args:
        dtype: type of the features, float64 or float32; float32 gives the same data, rounded.

    >>> data, truth = make_graded_lists(200, n_features=14, random_state=0)
    >>> data
    RankingData(200 lists, 23,615 items, 14 features)
    >>> [round(float(truth[data.y == grade].mean()), 1) for grade in range(3)]
    [2.2, 4.0, 5.0]
    """
    check_count("n_lists", n_lists, 0)
    check_range("mean_length", mean_length, 1.0)
    check_count("n_features", n_features, _KINDS)
    kind = np.dtype(dtype)
    if kind not in (np.dtype(np.float64), np.dtype(np.float32)):
        raise ValueError(f"dtype must be float64 or float32, got {kind}")
    generator = np.random.default_rng(random_state)
    lengths = generator.lognormal(math.log(mean_length) - _SPREAD**2 / 2.0, _SPREAD, n_lists)
    sizes = np.clip(np.rint(lengths), 1, int(_LONGEST * mean_length)).astype(np.int64)
    X, truth = _features_and_truth(sizes, n_features, kind, generator)
    list_of = np.repeat(np.arange(n_lists), sizes)
    order = np.lexsort((-truth - generator.gumbel(size=len(truth)), list_of))
    shares = generator.dirichlet(_CONCENTRATION * _SHARES, n_lists)
    counts = generator.multinomial(sizes, shares)  # (lists, grades)
    y = np.empty(len(truth))
    y[order] = np.repeat(np.tile(np.arange(5.0)[::-1], n_lists), counts[:, ::-1].reshape(-1))
    return RankingData(X=X, y=y, qid=list_of, offsets=offsets_from_sizes(sizes)), truth


def _features_and_truth(
    sizes: npt.NDArray[np.int64], n_features: int, dtype: np.dtype[Any], generator: np.random.Generator
) -> tuple[npt.NDArray[Any], npt.NDArray[np.float64]]:
    items = int(sizes.sum())
    X = np.empty((items, n_features), dtype)
    of_item = _SHARED_BY_ITEM * generator.standard_normal(items)
    first_block = []
    for j in range(n_features):
        kind = j % _KINDS
        of_list = generator.standard_normal(len(sizes))
        if kind == 5:
            values = np.repeat(np.exp(of_list), sizes)
        else:
            values = generator.standard_normal(items)
            if kind != 6:
                values *= _OWN_NOISE
                values += of_item
                values += np.repeat(_SHARED_BY_LIST * of_list, sizes)
                values = _feature(kind, values)
        X[:, j] = values
        if j < _KINDS:
            first_block.append(values)
    return X, _true_score(*first_block[:6])


def _feature(kind: int, z: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    if kind == 0:
        return 1.0 / (1.0 + np.exp(-z))
    if kind == 1:
        return np.exp(2.0 * z)
    if kind == 2:
        return np.floor(np.exp(z))
    if kind == 3:
        return (z > 0.5).astype(np.float64)
    return 10.0 * np.maximum(z, 0.0)


def _true_score(
    ratio: npt.NDArray[np.float64],
    heavy: npt.NDArray[np.float64],
    count: npt.NDArray[np.float64],
    indicator: npt.NDArray[np.float64],
    often_zero: npt.NDArray[np.float64],
    of_list: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    best_in_the_middle = -0.5 * (np.log1p(heavy) - 1.0) ** 2
    in_some_lists = np.where(of_list > 1.0, 0.2 * often_zero, 0.0)
    return 5.0 * ratio + 2.0 * ratio * indicator + best_in_the_middle + np.log1p(count) + in_some_lists
