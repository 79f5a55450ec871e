"""Label ranking: predict a ranking of a fixed set of labels from features, with ties in training and test rankings.

    python benchmarks/label_ranking.py

Uses five data sets of scikit-lr and five folds. ExtremeClassifier, linear and with a hidden layer of 256, is trained
with the exact likelihood of ties, ListMLE with ties broken at random, and the lower bound. The competitors are
k-nearest neighbours (mean rank of each label) and one ridge regression per label on its rank.

The true rankings consist mostly of ties: often one label stands above all others. Predictions therefore need ties too,
so scores must be cut into tiers. There are two ways. Each system uses the one with the higher tau-x on a held-out fifth
of the training rows, which also selects the number of neighbours from 5, 10 and 20:

gap    labels adjacent in score order are tied if they are closer than a gap, which is chosen on the same rows
sizes  of the tier sizes in the training rows, take those that maximise (share of rows) x P(tiers | scores), where P is
       the exact likelihood: the optimal rule for a Plackett-Luce model observed through tiers of random sizes

tau-x is Emond and Mason's extension of Kendall's tau to ties; paired tests are over rows. The data must be under
$PLACKETT_DATA or ../shared/data. Prints tables and writes results/label_ranking.json.
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

import plackett
from plackett import ExtremeClassifier, metrics

console = Console()
DATA_SETS = ("segment", "vowel", "vehicle", "pendigits", "libras")
COMMON = {
    "ensemble": 1, "input_dropout": 0.0, "hidden_dropout": 0.0, "batch_size": 128, "learning_rate": 5e-3,
    "random_state": 0, "progress": False,
}  # fmt: skip
Predict = Callable[[np.ndarray], np.ndarray]


def load(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return features and the grades of labels, higher is better."""
    folder = Path(os.environ.get("PLACKETT_DATA", Path(__file__).parents[2] / "shared" / "data")) / "label-ranking"
    table = pd.read_csv(folder / f"{name}.csv.xz")
    features = [column for column in table.columns if column.startswith("A")]
    return table[features].to_numpy(float), -table.drop(columns=features).to_numpy(float)


def network(objective: str, hidden: tuple[int, ...]) -> Callable[[np.ndarray, np.ndarray], Predict]:
    epochs = 10 if hidden else 20

    def fit(X: np.ndarray, grades: np.ndarray) -> Predict:
        # Take as many steps on small data sets as on large ones.
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
SYSTEMS: dict[str, list[Fit]] = {  # of several candidates, the best on the held-out rows is used
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
    """Return grades in which labels adjacent in score order are tied if they are closer than `gap`."""
    order = np.argsort(-scores, axis=1, kind="stable")
    descending = np.take_along_axis(scores, order, 1)
    tier = np.cumsum(-np.diff(descending, axis=1, prepend=descending[:, :1]) > gap, axis=1)
    grades = np.empty_like(scores, dtype=np.float64)
    np.put_along_axis(grades, order, -tier.astype(np.float64), 1)
    return grades


def tau(grades: np.ndarray, truth: np.ndarray) -> np.ndarray:
    return np.asarray(metrics.kendall_tau(grades, truth, variant="x", reduction="none"))


Cut = Callable[[np.ndarray], np.ndarray]


def cut_by_gap(scores: np.ndarray, truth: np.ndarray) -> Cut:
    gaps = np.unique(np.quantile(-np.diff(-np.sort(-scores, axis=1), axis=1), np.linspace(0.0, 1.0, 60)))
    best = max((-1.0, *gaps), key=lambda gap: np.nanmean(tau(with_ties(scores, gap), truth)))
    return lambda new: with_ties(new, best)


def cut_by_sizes(grades: np.ndarray) -> Cut:
    """Cut by the 50 most frequent combinations of tier sizes in these rows."""
    places = -np.sort(-grades, axis=1)
    tiers = np.cumsum(np.diff(places, axis=1, prepend=places[:, :1]) != 0, axis=1)
    kinds, counts = np.unique(tiers, axis=0, return_counts=True)
    frequent = np.argsort(-counts)[:50]
    kinds, counts = -kinds[frequent].astype(np.float64), counts[frequent]

    def cut(scores: np.ndarray) -> np.ndarray:
        order = np.argsort(-scores, axis=1, kind="stable")
        descending = np.ascontiguousarray(np.take_along_axis(scores, order, 1), np.float64)
        log_p = [
            np.log(count) + plackett.partition_log_likelihood(descending, np.broadcast_to(kind, descending.shape))
            for kind, count in zip(kinds, counts, strict=True)
        ]
        found = np.empty_like(descending)
        np.put_along_axis(found, order, kinds[np.argmax(log_p, axis=0)], 1)
        return found

    return cut


def values_of(name: str) -> dict[str, np.ndarray]:
    """Return the tau-x of every row, computed when the row was in the test fold."""
    X, grades = load(name)
    found = {system: np.empty(len(X)) for system in SYSTEMS}
    for number, (rest, test) in enumerate(KFold(5, shuffle=True, random_state=0).split(X)):
        order = np.random.default_rng(number).permutation(rest)
        held, train = order[: len(rest) // 5], order[len(rest) // 5 :]
        for system, candidates in SYSTEMS.items():
            models = [fit(X[train], grades[train]) for fit in candidates]
            on_held = [(model, np.asarray(model(X[held]))) for model in models]
            tried = [
                (np.nanmean(tau(cut(scores), grades[held])), model, cut)
                for model, scores in on_held
                for cut in (cut_by_gap(scores, grades[held]), cut_by_sizes(grades[train]))
            ]
            _, model, cut = max(tried, key=lambda one: one[0])
            found[system][test] = tau(cut(np.asarray(model(X[test]))), grades[test])
    return found


if __name__ == "__main__":
    results: dict[str, dict[str, dict[str, float]]] = {}
    for data_set in track(DATA_SETS, "Five folds per data set", console=console):
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
    console.print("* differs from partition, neural (paired t-test over rows, p < 0.05, Holm)")
    for systems in results.values():
        for cell in systems.values():
            cell["p"] = None if np.isnan(cell["p"]) else cell["p"]  # type: ignore[assignment]
    save(results, "label_ranking", console)
