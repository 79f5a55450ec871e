"""Speed of linear rankers, and their quality on LETOR MQ2008.

    python benchmarks/linear.py

The first part times a sweep of coordinate ascent and the same search in plain NumPy, times fits of the exact
likelihood, and measures the coverage of its intervals. The second part compares l-ListMLE, the exact likelihood,
coordinate ascent and RankSVM over the five folds of MQ2008, which must be under $PLACKETT_DATA or ../shared/data.
Prints tables and paired tests over queries, and writes results/linear.json. `plackett reproduce plrank-figure-2` varies
the number of features.
"""

import os
import time
import warnings
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from measure import report, save
from rich.console import Console
from rich.progress import track
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

import plackett
from plackett import CoordinateAscentRanker, LinearRanker, metrics
from plackett.data import RankingData, letor_folds, load_letor, make_graded_lists, make_tiered_lists
from plackett.data.splits import Fold
from plackett.experiments.timing import interleaved
from plackett.linear.line_search import best_weight, place_metric

console = Console()


# Speed


def numpy_best_weight(rest: Any, feature: Any, labels: Any, offsets: Any, k: int) -> tuple[float, float]:
    """Return the weight with the best NDCG@k and its value: find all crossings in each list, and NDCG between them."""
    at, change, base = [], [], 0.0
    discounts = 1.0 / np.log2(np.arange(2.0, k + 2.0))
    for first, last in pairwise(offsets):
        a, b, gains = rest[first:last], feature[first:last], 2.0 ** labels[first:last] - 1.0
        ideal = np.sort(gains)[::-1][:k] @ discounts[: len(gains)]
        if ideal == 0.0:
            continue
        i, j = np.triu_indices(len(a), 1)
        different = b[i] != b[j]
        i, j = i[different], j[different]
        crossings = np.unique((a[j] - a[i]) / (b[i] - b[j]))
        if len(crossings) == 0:
            continue
        between = np.concatenate(([crossings[0] - 1.0], (crossings[1:] + crossings[:-1]) / 2.0, [crossings[-1] + 1.0]))
        order = np.argsort(-(a + between[:, None] * b), axis=1, kind="stable")[:, :k]
        values = gains[order] @ discounts[: order.shape[1]] / ideal
        at.append(crossings)
        change.append(np.diff(values))
        base += values[0]
    points, steps = np.concatenate(at), np.concatenate(change)
    order = np.argsort(points, kind="stable")
    points, totals = points[order], base + np.concatenate(([0.0], np.cumsum(steps[order])))
    ends = np.concatenate(([points[0] - 1.0], points, [points[-1] + 1.0]))
    totals[np.diff(ends) < 1e-9] = -np.inf
    best = int(np.argmax(totals))
    return (ends[best] + ends[best + 1]) / 2.0, float(totals[best])


def sweep(data: RankingData, search: Callable[[Any, Any, float], float]) -> np.ndarray:
    """Return the weights after one sweep over all features; `search(rest, feature, weight)` finds the best weight."""
    weights = np.ones(data.X.shape[1])
    scores = data.X @ weights
    for f in range(len(weights)):
        rest = scores - weights[f] * data.X[:, f]
        weights[f] = search(rest, data.X[:, f], weights[f])
        scores = rest + weights[f] * data.X[:, f]
    return weights


def coordinate_ascent_speed() -> dict[str, Any]:
    results = {}
    for name, lists, length in (("short lists", 200, 20), ("long lists", 20, 120)):
        data, _ = make_graded_lists(lists, mean_length=length, n_features=7, random_state=0)
        X = np.asfortranarray(data.X / data.X.std(axis=0))
        data = RankingData(X, data.y, data.qid, data.offsets)
        metric = place_metric("ndcg@10", data.y, data.offsets, np.ones(len(data)))

        def ours(rest: Any, feature: Any, now: float, metric: Any = metric, offsets: Any = data.offsets) -> float:
            found = best_weight(metric, offsets, rest, feature, now, 1.0, 0.0)
            return now if found is None else found.weight

        def numpy(rest: Any, feature: Any, now: float, data: RankingData = data) -> float:
            if len(np.unique(feature - np.repeat(feature[data.offsets[:-1]], np.diff(data.offsets)))) == 1:
                return now  # constant in each list
            return numpy_best_weight(rest, feature, data.y, data.offsets, 10)[0]

        # From the same starting point, both must find the same maximum along the first feature.
        rest = data.X[:, 1:] @ np.ones(6)
        values = [
            metrics.ndcg(rest + search(rest, data.X[:, 0], 1.0) * data.X[:, 0], data.y, k=10, offsets=data.offsets)
            for search in (ours, numpy)
        ]
        if abs(values[0] - values[1]) > 1e-9:
            raise AssertionError(f"the maxima differ: {values}")
        sides = {"plackett": lambda d=data, s=ours: sweep(d, s), "NumPy": lambda d=data, s=numpy: sweep(d, s)}
        results[f"{name}: {len(data)} of about {length} items"] = interleaved(sides, 3)
    rows = [[n, f"{s['plackett'] * 1e3:.1f}", f"{s['NumPy'] * 1e3:.0f}", _times(s)] for n, s in results.items()]
    report(
        "A sweep of coordinate ascent over 7 features, NDCG@10",
        ["", "ms", "NumPy (ms)", "NumPy / plackett"],
        rows,
        console,
    )
    return results


def _times(seconds: dict[str, float]) -> str:
    return f"{seconds['NumPy'] / seconds['plackett']:.0f}"


def fitting_speed() -> dict[str, Any]:
    data, _ = make_graded_lists(500, mean_length=120, n_features=136, random_state=0)
    results = {}
    for name, options in (("L-BFGS", {}), ("trust-region Newton", {"solver": "newton-cg"})):
        start = time.perf_counter()
        model = LinearRanker(**options).fit(data)
        results[name] = {"seconds": time.perf_counter() - start, "iterations": model.n_iter_, "loss": model.loss_}
        results[name]["gradient"] = model.gradient_norm_
    rows = [[n, f"{r['seconds']:.1f}", str(r["iterations"]), f"{r['gradient']:.0e}"] for n, r in results.items()]
    title = f"Fit of the exact likelihood with standard errors, {len(data.y):,} rows x 136 features"
    report(title, ["", "seconds", "iterations", "largest gradient"], rows, console)
    return results


def coverage(replications: int = 1000) -> dict[str, float]:
    """Measure how often 95% intervals contain the truth, for the exact likelihood and others; tiers of 1, 2 and 4."""
    truth = np.array([1.0, -0.5])
    hits: dict[str, list[Any]] = {name: [] for name in ("partition", "efron", "breslow", "listmle")}
    for seed in track(range(replications), "coverage", console=console):
        data = make_tiered_lists(40, tier_sizes=(1, 2, 4), coefficients=(1.0, -0.5), random_state=seed)
        for name, found in hits.items():
            model = LinearRanker(name, top=None, l2=0.0, random_state=seed).fit(data)
            low, high = model.confidence_intervals().T
            found.append((low < truth) & (truth < high))
    shares = {name: float(np.mean(found)) for name, found in hits.items()}
    rows = [[name, f"{share:.1%}"] for name, share in shares.items()]
    report(f"Coverage of 95% intervals, {replications:,} replications", ["", "share"], rows, console)
    return shares


# MQ2008


@cache
def folds() -> list[Fold]:
    folder = Path(os.environ.get("PLACKETT_DATA", Path(__file__).parents[2] / "shared" / "data")) / "mq2008"
    return list(letor_folds([load_letor(folder / f"S{k}.txt.xz") for k in range(1, 6)]))


Fit = Callable[[RankingData, RankingData], Callable[[Any], np.ndarray]]
STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0)


def ndcg10(predict: Callable[[Any], np.ndarray], data: RankingData) -> float:
    return metrics.ndcg(predict(data.X), data.y, k=10, offsets=data.offsets)


def tuned(make: Callable[[float], Any]) -> Fit:
    """Select the penalty that is best on the validation lists."""

    def fit(train: RankingData, validation: RankingData) -> Callable[[Any], np.ndarray]:
        models = [make(strength).fit(train) for strength in STRENGTHS]
        return max((model.predict for model in models), key=lambda predict: ndcg10(predict, validation))

    return fit


class RankSVM:
    """A linear support vector machine (squared hinge) on the differences of all pairs with different labels."""

    def __init__(self, strength: float) -> None:
        self.strength = strength

    def fit(self, data: RankingData) -> "RankSVM":
        pairs = []
        for first, last in pairwise(data.offsets):
            better, worse = np.nonzero(data.y[first:last, None] > data.y[None, first:last])
            pairs.append(np.stack((better, worse)) + first)
        better, worse = np.concatenate(pairs, axis=1)
        self.scale = data.X.std(axis=0)
        self.scale[self.scale == 0.0] = 1.0
        differences = (data.X[better] - data.X[worse]) / self.scale
        sign = np.where(np.arange(len(differences)) % 2, 1.0, -1.0)  # the classifier needs two classes
        # The loss sums over pairs, some hundreds per list. Their mean puts the penalty on the scale of the grid.
        svm = LinearSVC(C=100.0 / (self.strength * len(differences)), fit_intercept=False, dual=False)
        self.weights = svm.fit(differences * sign[:, None], sign).coef_[0] / self.scale
        return self

    def predict(self, X: Any) -> np.ndarray:
        return np.asarray(X @ self.weights)


def fit_listmle(train: RankingData, _validation: RankingData) -> Callable[[Any], np.ndarray]:
    return LinearRanker("listmle", random_state=0).fit(train).predict


def fit_coordinate_ascent(train: RankingData, validation: RankingData) -> Callable[[Any], np.ndarray]:
    return CoordinateAscentRanker(n_restarts=5, random_state=0).fit(train, eval_set=validation).predict


SYSTEMS: dict[str, Fit] = {
    "partition": tuned(lambda l2: LinearRanker(l2=l2)),
    "partition, top 10": tuned(lambda l2: LinearRanker(top=10, l2=l2)),
    "l-ListMLE": fit_listmle,
    "l-ListMLE, tuned prior": tuned(lambda l2: LinearRanker("listmle", l2=l2, random_state=0)),
    "ListMLE, last tier unordered": tuned(
        lambda l2: LinearRanker("listmle", l2=l2, random_state=0, objective_options={"bottom": "unordered"})
    ),
    "lower bound": tuned(lambda l2: LinearRanker("lower_bound", l2=l2)),
    "coordinate ascent": fit_coordinate_ascent,
    "RankSVM": tuned(RankSVM),
}
JUDGED = {f"NDCG@{k}": k for k in (1, 5, 10)}


def judge(predict: Callable[[Any], np.ndarray], data: RankingData) -> dict[str, np.ndarray]:
    scores = predict(data.X)
    return {
        name: metrics.ndcg(scores, data.y, k=k, offsets=data.offsets, reduction="none") for name, k in JUDGED.items()
    }


def mq2008() -> dict[str, Any]:
    values: dict[str, list[dict[str, np.ndarray]]] = {name: [] for name in SYSTEMS}
    seconds = dict.fromkeys(SYSTEMS, 0.0)
    for fold in track(folds(), "MQ2008", console=console):
        for name, fit in SYSTEMS.items():
            start = time.perf_counter()
            predict = fit(fold.train, fold.validation)
            seconds[name] += (time.perf_counter() - start) / len(folds())
            values[name].append(judge(predict, fold.test))
    pooled = {n: {m: np.concatenate([part[m] for part in parts]) for m in JUDGED} for n, parts in values.items()}
    tests = {
        m: metrics.compare({name: of_lists[m] for name, of_lists in pooled.items()}, baseline="partition")
        for m in JUDGED
    }
    p_values = {m: {test.first: test.t_test for test in found} for m, found in tests.items()}
    rows = []
    for name, of_lists in pooled.items():
        cells = [f"{np.nanmean(of_lists[m]):.4f}{'*' if p_values[m].get(name, 1.0) < 0.05 else ''}" for m in JUDGED]
        rows.append([name, *cells, f"{seconds[name]:.1f}"])
    title = "MQ2008, five folds; * differs from partition (paired t-test over queries, p < 0.05, Holm)"
    report(title, ["", *JUDGED, "seconds per fold"], rows, console)
    return {
        "means": {n: {m: float(np.nanmean(v)) for m, v in of.items()} for n, of in pooled.items()},
        "seconds a fold": seconds,
        "against partition": {
            m: {
                test.first: {"difference": test.difference, "interval": test.interval, "t_test": test.t_test}
                for test in found
            }
            for m, found in tests.items()
        },
    }


def main() -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)
    console.print(f"{plackett.get_num_threads()} threads\n")
    results: dict[str, Any] = {"threads": plackett.get_num_threads()}
    results["coordinate ascent, seconds per sweep"] = coordinate_ascent_speed()
    results["fits"] = fitting_speed()
    results["coverage"] = coverage()
    results["mq2008"] = mq2008()
    save(results, "linear", console)


if __name__ == "__main__":
    main()
