"""Label ranking: from features to a ranking of a fixed set of labels, with ties in training and in truth.

    python benchmarks/label_ranking.py

Five data sets of scikit-lr, five folds. ExtremeClassifier, linear and with a hidden layer of 256, under the exact
likelihood of ties, ListMLE with ties broken at random, and the lower bound; beside k-nearest neighbours (the mean rank
of each label among k, chosen from 5, 10, 20 on a fifth of the training rows) and a ridge regression for each label's
rank. tau-x (Emond and Mason's extension of Kendall's tau to ties) of each test row; paired tests over rows. The data
are looked for under $PLACKETT_DATA or ../shared/data. Prints tables, writes results/label_ranking.json.
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
    "input_dropout": 0.0, "hidden_dropout": 0.0, "epochs": 60, "batch_size": 64, "learning_rate": 3e-3,
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
    epochs = 15 if hidden else 30

    def fit(X: np.ndarray, grades: np.ndarray) -> Predict:
        # As many steps for small data sets as for large ones.
        options = COMMON | {"epochs": max(epochs, epochs * 2000 // len(X))}
        return ExtremeClassifier(objective, hidden_sizes=hidden, **options).fit(X, grades).predict

    return fit


def neighbours(X: np.ndarray, grades: np.ndarray) -> Predict:
    order = np.random.default_rng(0).permutation(len(X))
    held, kept = order[: len(X) // 5], order[len(X) // 5 :]

    def model(k: int) -> KNeighborsRegressor:
        return make_pipeline(StandardScaler(), KNeighborsRegressor(k))

    def tau(k: int) -> float:
        return metrics.kendall_tau(model(k).fit(X[kept], grades[kept]).predict(X[held]), grades[held], variant="x")

    return model(max((5, 10, 20), key=tau)).fit(X, grades).predict


def regressions(X: np.ndarray, grades: np.ndarray) -> Predict:
    return make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 7))).fit(X, grades).predict


SYSTEMS: dict[str, Callable[[np.ndarray, np.ndarray], Predict]] = {
    "partition, neural": network("partition", (256,)),
    "listmle, neural": network("listmle", (256,)),
    "lower bound, neural": network("lower_bound", (256,)),
    "partition, linear": network("partition", ()),
    "listmle, linear": network("listmle", ()),
    "lower bound, linear": network("lower_bound", ()),
    "k nearest neighbours": neighbours,
    "regressions": regressions,
}


def values_of(name: str) -> dict[str, np.ndarray]:
    """tau-x of every row, scored when it was in the test fold."""
    X, grades = load(name)
    found = {system: np.empty(len(X)) for system in SYSTEMS}
    for train, test in KFold(5, shuffle=True, random_state=0).split(X):
        for system, fit in SYSTEMS.items():
            scores = fit(X[train], grades[train])(X[test])
            found[system][test] = metrics.kendall_tau(scores, grades[test], variant="x", reduction="none")
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
