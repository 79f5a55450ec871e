"""Paired tests of two systems by their values per list, and intervals of the means.

Values are those of a metric with reduction="none": one per list, in the same order for all systems. Skipped and
counted: lists where either value is NaN.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from plackett.arguments import as_floats, check_choice, check_fraction, to_numpy
from plackett.metrics.metric_lists import FloatArray

if TYPE_CHECKING:
    from rich.table import Table

CORRECTIONS = ("holm", "bonferroni", "benjamini-hochberg", "none")
METHODS = ("percentile", "bca")
_DRAWS_AT_ONCE = 2**20


@dataclass(frozen=True)
class Comparison:
    """Two systems on the same lists.

    difference      mean of the first minus mean of the second
    interval        bootstrap interval of the difference
    t_test          p value of the paired two-tailed t-test, corrected if there were several comparisons
    wilcoxon        p value of the two-tailed Wilcoxon signed-rank test, corrected in the same way
    lists, dropped  number of lists compared, and skipped because a value was missing
    """

    first: str
    second: str
    first_mean: float
    second_mean: float
    difference: float
    interval: tuple[float, float]
    t_test: float
    wilcoxon: float
    lists: int
    dropped: int

    def cells(self) -> list[str]:
        """The columns of a table."""
        low, high = self.interval
        return [
            self.first, self.second, f"{self.first_mean:.4f}", f"{self.second_mean:.4f}", f"{self.difference:+.4f}",
            f"[{low:+.4f}, {high:+.4f}]", f"{self.t_test:.3g}", f"{self.wilcoxon:.3g}", str(self.lists),
        ]  # fmt: skip

    def __str__(self) -> str:
        return _as_text((self,))


_COLUMNS = ("first", "second", "mean", "mean", "difference", "interval", "t-test p", "Wilcoxon p", "lists")


def _as_text(pairs: tuple[Comparison, ...]) -> str:
    rows = [list(_COLUMNS), *(pair.cells() for pair in pairs)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


@dataclass(frozen=True)
class PairedComparisons:
    """Several pairs of systems; p values are corrected for their number. Printing shows a table, in rich too."""

    pairs: tuple[Comparison, ...]
    correction: str
    confidence: float

    def __len__(self) -> int:
        return len(self.pairs)

    def __iter__(self) -> Iterator[Comparison]:
        return iter(self.pairs)

    def __getitem__(self, number: int) -> Comparison:
        return self.pairs[number]

    def __str__(self) -> str:
        return _as_text(self.pairs)

    def __rich__(self) -> Table:
        from rich.table import Table

        table = Table(caption=f"{self.confidence:.0%} intervals; correction: {self.correction}")
        for i, name in enumerate(_COLUMNS):
            table.add_column(name, justify="left" if i < 2 else "right")
        for pair in self.pairs:
            table.add_row(*(cell.replace("[", r"\[") for cell in pair.cells()))
        return table


def _values(name: str, values: Any) -> FloatArray:
    array = as_floats(name, to_numpy(values)).astype(np.float64, copy=False)
    if array.ndim != 1:
        raise ValueError(f"{name} must hold one value per list, got {array.ndim} dimensions")
    if np.isinf(array).any():
        raise ValueError(f"{name} must be finite or NaN, got {array[np.isinf(array)][0]}")
    return array


def confidence_interval(
    values: Any,
    *,
    confidence: float = 0.95,
    method: str = "percentile",
    resamples: int = 10_000,
    random_state: int | np.random.Generator | None = 0,
) -> tuple[float, float]:
    """Bootstrap interval of the mean of the values; NaN is skipped, and no values give (NaN, NaN).

    Args:
        method: "percentile", or "bca" for bias-corrected and accelerated (Efron 1987).
        random_state: a fixed seed by default, so that equal values give equal intervals.

    >>> low, high = confidence_interval([0.2, 0.4, 0.6, 0.8])
    >>> 0.2 <= low < 0.5 < high <= 0.8
    True
    """
    check_choice("method", method, METHODS)
    check_fraction("confidence", confidence)
    if isinstance(resamples, bool) or not isinstance(resamples, int | np.integer) or resamples < 1:
        raise ValueError(f"resamples must be a whole number of at least 1, got {resamples!r}")
    x = _values("values", values)
    x = x[~np.isnan(x)]
    if len(x) == 0:
        return float("nan"), float("nan")
    rng = np.random.default_rng(random_state)
    at_once = max(1, _DRAWS_AT_ONCE // len(x))
    means = np.concatenate(
        [
            x[rng.integers(0, len(x), (min(at_once, resamples - done), len(x)))].mean(axis=1)
            for done in range(0, resamples, at_once)
        ]
    )
    tails = np.array([(1.0 - confidence) / 2.0, (1.0 + confidence) / 2.0])
    if method == "bca":
        tails = _accelerated(x, means, tails)
    low, high = np.quantile(means, tails)
    return float(low), float(high)


def _accelerated(x: FloatArray, means: FloatArray, tails: FloatArray) -> FloatArray:
    """The quantiles that BCa uses in place of the tails."""
    from scipy.special import ndtr, ndtri

    deviations = x - x.mean()
    spread = float(np.sum(deviations**2))
    if spread == 0.0:
        return tails
    # Leaving item i out moves the mean by -deviation_i / (n - 1): the factor cancels in the skewness.
    acceleration = float(np.sum(deviations**3)) / (6.0 * spread**1.5)
    below = (np.sum(means < x.mean()) + np.sum(means == x.mean()) / 2.0) / len(means)
    bias = ndtri(np.clip(below, 0.5 / len(means), 1.0 - 0.5 / len(means)))
    moved = bias + ndtri(tails)
    return np.asarray(ndtr(bias + moved / (1.0 - acceleration * moved)))


def _t_test(differences: FloatArray) -> float:
    """Two-tailed p value of a mean of zero. Differences that are all equal: 1 if zero, else 0."""
    from scipy.special import stdtr

    n, mean = len(differences), float(differences.mean())
    error = float(differences.std(ddof=1)) / math.sqrt(n)
    if error == 0.0:
        return 1.0 if mean == 0.0 else 0.0
    return float(2.0 * stdtr(n - 1, -abs(mean / error)))


def _wilcoxon(differences: FloatArray) -> float:
    """Two-tailed p value of the signed-rank test without zeros; 1 if all are zero."""
    from scipy.stats import wilcoxon

    nonzero = differences[differences != 0.0]
    return float(wilcoxon(nonzero).pvalue) if len(nonzero) else 1.0


def correct(p_values: Any, correction: str = "holm") -> FloatArray:
    """p values of several comparisons, adjusted so that each can be read as if it were the only one.

    "holm" and "bonferroni" bound the chance of any false discovery, "benjamini-hochberg" the share of false ones.

    >>> correct([0.01, 0.04, 0.03]).round(4).tolist()
    [0.03, 0.06, 0.06]
    """
    check_choice("correction", correction, CORRECTIONS)
    p = as_floats("p_values", to_numpy(p_values)).astype(np.float64, copy=False)
    n, order = len(p), np.argsort(p)
    rank = np.arange(1, n + 1)
    adjusted = np.empty(n)
    if correction == "holm":
        adjusted[order] = np.maximum.accumulate(p[order] * (n - rank + 1))
    elif correction == "benjamini-hochberg":
        adjusted[order] = np.minimum.accumulate((p[order] * n / rank)[::-1])[::-1]
    else:
        adjusted = p * (n if correction == "bonferroni" else 1)
    return np.minimum(adjusted, 1.0)


@overload
def compare(
    a: Mapping[str, Any],
    b: None = None,
    *,
    baseline: str | None = None,
    correction: str = "holm",
    confidence: float = 0.95,
    method: str = "percentile",
    resamples: int = 10_000,
    random_state: int | np.random.Generator | None = 0,
) -> PairedComparisons: ...


@overload
def compare(
    a: Any,
    b: Any,
    *,
    baseline: None = None,
    correction: str = "holm",
    confidence: float = 0.95,
    method: str = "percentile",
    resamples: int = 10_000,
    random_state: int | np.random.Generator | None = 0,
) -> Comparison: ...


def compare(
    a: Any,
    b: Any = None,
    *,
    baseline: str | None = None,
    correction: str = "holm",
    confidence: float = 0.95,
    method: str = "percentile",
    resamples: int = 10_000,
    random_state: int | np.random.Generator | None = 0,
) -> Comparison | PairedComparisons:
    """Paired comparison of the values per list of two systems, or of the systems of a dict.

    Args:
        a, b: values of two systems; or `a` a dict of values by name, and no b.
        baseline: in a dict, the system to compare all others with; without it, all pairs are compared.
        correction: for several comparisons: "holm", "bonferroni", "benjamini-hochberg" or "none".
        confidence, method, resamples, random_state: see `confidence_interval`.

    >>> result = compare([0.5, 0.7, 0.9, 0.8], [0.4, 0.7, 0.6, 0.7])
    >>> round(result.difference, 3), round(result.t_test, 3)
    (0.125, 0.141)
    """
    check_choice("correction", correction, CORRECTIONS)
    if b is not None:
        if isinstance(a, Mapping) or baseline is not None:
            raise ValueError("a must be an array and baseline None when b is given, got a dict or a baseline")
        systems, pairs = {"a": a, "b": b}, [("a", "b")]
    else:
        if not isinstance(a, Mapping) or len(a) < 2:
            raise ValueError("a must be a dict of at least two systems when b is not given")
        if baseline is not None and baseline not in a:
            raise ValueError(f"baseline must be one of {', '.join(a)}, got {baseline!r}")
        systems = dict(a)
        others = [name for name in systems if name != baseline]
        pairs = list(itertools.combinations(systems, 2)) if baseline is None else [(n, baseline) for n in others]
    values = {name: _values(name, system) for name, system in systems.items()}
    rng = np.random.default_rng(random_state)
    plain = []
    for first, second in pairs:
        x, y = values[first], values[second]
        if x.shape != y.shape:
            raise ValueError(f"{second} must hold a value for each of the {len(x)} lists of {first}, got {len(y)}")
        kept = ~(np.isnan(x) | np.isnan(y))
        if kept.sum() < 2:
            raise ValueError(f"{first} and {second} must share at least two lists with values, got {kept.sum()}")
        x, y = x[kept], y[kept]
        differences = x - y
        interval = confidence_interval(
            differences, confidence=confidence, method=method, resamples=resamples, random_state=rng
        )
        plain.append(
            Comparison(
                first, second, float(x.mean()), float(y.mean()), float(differences.mean()), interval,
                _t_test(differences), _wilcoxon(differences), len(x), int((~kept).sum()),
            )
        )  # fmt: skip
    if b is not None:
        return plain[0]
    t_tests = correct([pair.t_test for pair in plain], correction)
    wilcoxons = correct([pair.wilcoxon for pair in plain], correction)
    return PairedComparisons(
        tuple(
            replace(pair, t_test=float(t), wilcoxon=float(w))
            for pair, t, w in zip(plain, t_tests, wilcoxons, strict=True)
        ),
        correction,
        confidence,
    )
