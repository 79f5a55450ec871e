"""Label ranking: from features to a ranking of a fixed set of labels, with ties in training and in truth.

    python benchmarks/label_ranking.py

Five data sets of scikit-lr, five folds. ExtremeClassifier, linear and with a hidden layer of 256, under the exact
likelihood of ties, ListMLE with ties broken at random, and the lower bound; beside k-nearest neighbours (the mean rank
of each label) and a ridge regression for each label's rank.

The truth has ties, and most of it: often one label stands above all others. So predictions need ties too. Neighbours in
the order of the scores are tied where they are closer than a gap, which is chosen for every system alike by tau-x on a
fifth of the training rows that it was not fitted to; so is the number of neighbours, from 5, 10, 20.

tau-x is Emond and Mason's extension of Kendall's tau to ties; paired tests over rows. The data are looked for under
$PLACKETT_DATA or ../shared/data. Prints tables, writes results/label_ranking.json.
"""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from measure import report, save
from rich.console import Console
from rich.progress import track
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import KFold
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from plackett import ExtremeClassifier, metrics

console = Console()
DATA_SETS = ("segment", "vowel", "vehicle", "pendigits", "libras")
COMMON = {
    "input_dropout": 0.0, "hidden_dropout": 0.0, "batch_size": 128, "learning_rate": 5e-3,
    "random_state": 0, "progress": False,
}  # fmt: skip
Predict = Callable[[np.ndarray], np.ndarray]


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Features, and grades of labels: the higher the better."""
    folder = Path(os.environ.get("PLACKETT_DATA", Path(__file__).parents[2] / "shared" / "data")) / "label-ranking"
    table = pd.read_csv(folder / f"{name}.csv.xz")
    features = [column for column in table.columns if column.startswith("A")]
    return table[features].to_numpy(float), -table.drop(columns=features).to_numpy(float)


def network(objective: str, hidden: tuple[int, ...]) -> Callable[[np.ndarray, np.ndarray], Predict]:
    epochs = 10 if hidden else 20

    def fit(X: np.ndarray, grades: np.ndarray) -> Predict:
        # As many steps for small data sets as for large ones.
        options = COMMON | {"epochs": max(epochs, epochs * 2000 // len(X))}
        return ExtremeClassifier(objective, hidden_sizes=hidden, **options).fit(X, grades).predict

    return fit


def neighbours(k: int) -> Callable[[np.ndarray, np.ndarray], Predict]:
    def fit(X: np.ndarray, grades: np.ndarray) -> Predict:
        return make_pipeline(StandardScaler(), KNeighborsRegressor(k)).fit(X, grades).predict

    return fit


def regressions(X: np.ndarray, grades: np.ndarray) -> Predict:
    return make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 7))).fit(X, grades).predict


Fit = Callable[[np.ndarray, np.ndarray], Predict]
SYSTEMS: dict[str, list[Fit]] = {  # where there are several, the better one on the held-out rows
    "partition, neural": [network("partition", (256,))],
    "listmle, neural": [network("listmle", (256,))],
    "lower bound, neural": [network("lower_bound", (256,))],
    "partition, linear": [network("partition", ())],
    "listmle, linear": [network("listmle", ())],
    "lower bound, linear": [network("lower_bound", ())],
    "k nearest neighbours": [neighbours(5), neighbours(10), neighbours(20)],
    "regressions": [regressions],
}


def with_ties(scores: np.ndarray, gap: float) -> np.ndarray:
    """Grades by which neighbours in the order of the scores are tied where they are closer than `gap`."""
    order = np.argsort(-scores, axis=1, kind="stable")
    descending = np.take_along_axis(scores, order, 1)
    tier = np.cumsum(-np.diff(descending, axis=1, prepend=descending[:, :1]) > gap, axis=1)
    grades = np.empty_like(scores, dtype=np.float64)
    np.put_along_axis(grades, order, -tier.astype(np.float64), 1)
    return grades


def tau(grades: np.ndarray, truth: np.ndarray) -> np.ndarray:
    return np.asarray(metrics.kendall_tau(grades, truth, variant="x", reduction="none"))


def best_gap(scores: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """tau-x and the gap that reaches it."""
    gaps = np.unique(np.quantile(-np.diff(-np.sort(-scores, axis=1), axis=1), np.linspace(0.0, 1.0, 60)))
    return max((float(np.nanmean(tau(with_ties(scores, gap), truth))), float(gap)) for gap in (-1.0, *gaps))


def values_of(name: str) -> dict[str, np.ndarray]:
    """tau-x of every row, scored when it was in the test fold."""
    X, grades = load(name)
    found = {system: np.empty(len(X)) for system in SYSTEMS}
    for number, (rest, test) in enumerate(KFold(5, shuffle=True, random_state=0).split(X)):
        order = np.random.default_rng(number).permutation(rest)
        held, train = order[: len(rest) // 5], order[len(rest) // 5 :]
        for system, candidates in SYSTEMS.items():
            models = [fit(X[train], grades[train]) for fit in candidates]
            tuned = [(*best_gap(np.asarray(model(X[held])), grades[held]), model) for model in models]
            _, gap, model = max(tuned, key=lambda one: one[0])
            found[system][test] = tau(with_ties(np.asarray(model(X[test])), gap), grades[test])
    return found


if __name__ == "__main__":
    results: dict[str, dict[str, dict[str, float]]] = {}
    for data_set in track(DATA_SETS, "Five folds of each", console=console):
        values = values_of(data_set)
        pairs = {pair.first: pair for pair in metrics.compare(values, baseline="partition, neural", correction="holm")}
        results[data_set] = {
            system: {
                "tau-x": float(np.nanmean(values[system])),
                "p": pairs[system].t_test if system in pairs else float("nan"),
            }
            for system in SYSTEMS
        }
    rows = []
    for system in SYSTEMS:
        row = [system]
        for data_set in DATA_SETS:
            cell = results[data_set][system]
            mark = "" if not cell["p"] < 0.05 else " *"
            row.append(f"{cell['tau-x']:.3f}{mark}")
        rows.append([*row, f"{np.mean([results[d][system]['tau-x'] for d in DATA_SETS]):.3f}"])
    report("tau-x, five folds", ["", *DATA_SETS, "mean"], rows, console)
    console.print("* differs from partition, neural: paired t-test over rows, Holm, 5 %")
    for systems in results.values():
        for cell in systems.values():
            cell["p"] = None if np.isnan(cell["p"]) else cell["p"]  # type: ignore[assignment]
    save(results, "label_ranking", console)
