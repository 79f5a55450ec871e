"""The paper's systems, fitted and evaluated the same way for all its tables and figures.

All boosted trees use the same number of leaves, learning rate and number of rounds, without early stopping, as in the
paper. NDCG and ERR skip lists without a relevant document. Everything runs in one thread, so that results do not depend
on the machine.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning

from plackett import BoostedRanker, CoordinateAscentRanker, LinearRanker, metrics
from plackett.data.containers import RankingData
from plackett.data.splits import Fold
from plackett.experiments.datasets import DataFolder
from plackett.experiments.framework import Cell, Claim
from plackett.experiments.ranking_data import STAND_INS, load_fold
from plackett.report.page import Series
from plackett.threads import at_most, single_threaded_blas

Floats = npt.NDArray[np.float64]
Values = dict[str, Floats]  # metric -> one value per list

TREES: Mapping[str, Mapping[str, Any]] = {
    **{f"PLRank(obj={orders})": {"objective": "plrank", "n_permutations": orders} for orders in (1, 3, 6, 9, 15)},
    "LambdaMART": {"objective": "lambdamart"},
    "McRank": {"objective": "mcrank"},
    "MART-1": {"objective": "mart-gain"},
    "MART-2": {"objective": "mart"},
    "c-MART-1": {"objective": "c-mart"},
    "CosMART": {"objective": "cosmart"},
    "c-CosMART": {"objective": "c-cosmart"},
    "KLMART": {"objective": "klmart"},
    "c-KLMART": {"objective": "c-klmart"},
    "partition": {"objective": "partition"},
}
"""The paper's name of each system -> its options. `partition`, the exact likelihood of ties, is not in the paper."""

LINEAR = ("CA", "l-ListMLE")
METRICS = ("NDCG@1", "NDCG@3", "NDCG@10", "ERR")
LEVEL = 0.05  # significance level

TITLES: Mapping[str, str] = {
    "mq2008": "MQ2008",
    "mslr-sample": "MSLR sample",
    "mslr-web10k": "MSLR-WEB10K",
    "mslr-web30k": "Microsoft 30K",
    "yahoo-ltrc": "Yahoo 2010",
}
YAHOO = ("yahoo-ltrc", "yahoo stand-in")
MICROSOFT = ("mslr-web30k", "mslr-web10k", "mslr-sample", "mslr stand-in")
DATA = tuple(TITLES)
_HIGHEST_GRADE = {"mq2008": 2}  # 4 for all others


def title(name: str) -> str:
    """Return the display name of a data set; a stand-in keeps its own name."""
    return TITLES.get(name, name)


# Data


def usable_data(configuration: Mapping[str, Any], data: DataFolder) -> list[str]:
    """Return the available data sets of a configuration; stand-ins are always available."""
    return [name for name in configuration["data"] if name in STAND_INS or data.find(name)]


def fold_cells(configuration: Mapping[str, Any], data: DataFolder) -> list[Cell]:
    return [
        {"data": name, "fold": number}
        for name in usable_data(configuration, data)
        for number in range(configuration["data"][name].get("folds", 1))
    ]


def fold_of(configuration: Mapping[str, Any], cell: Cell, data: DataFolder) -> Fold:
    """Load the fold of a cell, or the first fold if the cell names none."""
    return load_fold(cell["data"], cell.get("fold", 0), data, lists=configuration["data"][cell["data"]].get("lists"))


# Fitting


@contextmanager
def repeatable() -> Iterator[None]:
    """Use one thread, and silence warnings from solvers that stop after a declared number of steps."""
    with single_threaded_blas(), at_most(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def rounds_of(system: str, settings: Mapping[str, Any]) -> int:
    return int(settings["mcrank rounds" if system == "McRank" else "rounds"])


def boosted(system: str, rounds: int, *, leaves: int, rate: float, **options: Any) -> BoostedRanker:
    return BoostedRanker(
        **TREES[system], n_estimators=rounds, num_leaves=leaves, learning_rate=rate, n_jobs=1, random_state=0,
        progress=False, **options,
    )  # fmt: skip


def coordinate_ascent(**options: Any) -> CoordinateAscentRanker:
    return CoordinateAscentRanker("ndcg@10", random_state=0, **options)


def list_mle(**options: Any) -> LinearRanker:
    """l-ListMLE: the top ten places and the paper's prior."""
    return LinearRanker("listmle", random_state=0, **options)


# Evaluation


def metrics_by_list(scores: Floats, data: RankingData, name: str) -> Values:
    """Compute each metric for every list on which it is defined."""
    options: dict[str, Any] = {"offsets": data.offsets, "reduction": "none"}
    values: dict[str, Any] = {f"NDCG@{k}": metrics.ndcg(scores, data.y, k=k, **options) for k in (1, 3, 10)}
    values["ERR"] = metrics.err(scores, data.y, max_grade=_HIGHEST_GRADE.get(name, 4), **options)
    return {metric: of_lists[~np.isnan(of_lists)] for metric, of_lists in values.items()}


def rounded(value: float | np.floating[Any]) -> float:
    """Round to six significant digits.

    >>> rounded(2 / 3)
    0.666667
    """
    return float(f"{value:.6g}")


def summarise(values: Values) -> dict[str, Any]:
    """Return the mean and standard error of each metric, and the number of lists."""
    lists = len(next(iter(values.values())))
    return {
        "lists": lists,
        "means": {metric: rounded(x.mean()) for metric, x in values.items()},
        "errors": {metric: rounded(x.std(ddof=1) / np.sqrt(lists)) for metric, x in values.items()},
    }


def pool(summaries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Combine the summaries of all folds into one.

    >>> part = {"lists": 4, "means": {"ERR": 0.5}, "errors": {"ERR": 0.2}}
    >>> pool([part, part])
    {'lists': 8, 'means': {'ERR': 0.5}, 'errors': {'ERR': 0.141421}}
    """
    share = np.array([part["lists"] for part in summaries], float)
    share /= share.sum()

    def over(kind: str, metric: str) -> Floats:
        return np.array([part[kind][metric] for part in summaries])

    known = summaries[0]["means"]
    return {
        "lists": sum(part["lists"] for part in summaries),
        "means": {metric: rounded(np.sum(share * over("means", metric))) for metric in known},
        "errors": {metric: rounded(np.linalg.norm(share * over("errors", metric))) for metric in known},
    }


def with_errors(name: str, means: Sequence[float], errors: Sequence[float], x: Sequence[float] | None = None) -> Series:
    """Build a series with a band of one standard error on either side."""
    mean, error = np.array(means), np.array(errors)
    return Series(name, list(means), x, (mean - error).tolist(), (mean + error).tolist())


# Comparisons


def values_of_lists(by: Mapping[tuple[str, ...], Sequence[Mapping[str, Any]]]) -> dict[str, dict[str, list[float]]]:
    """NDCG@10 of every list, by data set and system, from results by data set and system."""
    values: dict[str, dict[str, list[float]]] = {}
    for (name, system), parts in by.items():
        values.setdefault(name, {})[system] = [value for part in parts for value in part["ndcg@10"]]
    return values


class Pair(NamedTuple):
    """The lead of the first system over the second, and the p value of the paired t-test over lists."""

    first: str
    second: str
    difference: float
    p: float

    def __str__(self) -> str:
        return f"{self.first} over {self.second} {self.difference:+.4f} (p = {self.p:.2g})"


def paired(values: Mapping[str, Sequence[float]], pairs: Iterable[tuple[str, str]]) -> list[Pair]:
    """Compare pairs of systems, given one value per list. Holm's method corrects p values for the number of pairs."""
    wanted = list(pairs)
    tests = [metrics.compare(values[a], values[b], resamples=1) for a, b in wanted]  # the interval is not used
    p_values = metrics.correct([test.t_test for test in tests])
    return [Pair(*pair, test.difference, float(p)) for pair, test, p in zip(wanted, tests, p_values, strict=True)]


def ordering(
    text: str,
    pairs: Sequence[tuple[str, str]],
    values: Mapping[str, Mapping[str, Sequence[float]]],
    *,
    up_to_chance: bool = False,
) -> Claim:
    """Claim that the first system of each pair is ahead on every data set.

    With `up_to_chance`, claim only that none is significantly behind. The evidence names the exceptions. `values` maps
    data set and system to one value per list.
    """
    holds, evidence = True, []
    for name, by_system in values.items():
        found = paired(by_system, pairs)
        failed = [p for p in found if not (p.difference > 0.0 or (up_to_chance and p.p >= LEVEL))]
        holds &= not failed
        listed = ", ".join(f"{pair}" for pair in (failed if len(pairs) > 1 else found))
        if len(pairs) > 1:
            counted = f"true for {len(pairs) - len(failed)} of {len(pairs)} pairs"
            listed = f"{counted}, not for {listed}" if failed else counted
        evidence.append(f"{title(name)}: {listed}")
    return Claim(text, holds, "NDCG@10. " + "; ".join(evidence))


def linear_claims(values: Mapping[str, Mapping[str, Sequence[float]]]) -> list[Claim]:
    """Claim that l-ListMLE is ahead on Yahoo's data and their stand-in, and CA on Microsoft's and theirs."""
    expected = {**dict.fromkeys(YAHOO, ("l-ListMLE", "CA")), **dict.fromkeys(MICROSOFT, ("CA", "l-ListMLE"))}
    return [
        ordering(
            f"{expected[name][0]} is ahead of {expected[name][1]} on {title(name)}", [expected[name]], {name: found}
        )
        for name, found in values.items()
        if name in expected
    ]
