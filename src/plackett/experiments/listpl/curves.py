"""Figure 2: NDCG@10 over epochs on train, validation and test data, with other losses under the same protocol.

The network is the paper's: three hidden layers of 80 ReLU units, trained by Adam. The paper's schedule is 1,000 epochs
at learning rate 1e-5, and its authors' code takes one step per query. With few queries this hardly moves the network,
so we add a faster schedule with learning rate 1e-3 and batches of whole lists.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett import metrics
from plackett.data.containers import RankingData
from plackett.data.splits import Fold
from plackett.experiments.datasets import DataFolder
from plackett.experiments.determinism import one_thread, with_shuffled_rows
from plackett.experiments.framework import Cell, Claim, Experiment, Findings, Results
from plackett.experiments.ranking_data import STAND_INS, load_fold
from plackett.report import Reproduced
from plackett.report.page import Axis, Column, LinePlot, Section, Series, Table

Floats = npt.NDArray[np.float64]

METHODS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "ListPL": ("listpl", {}),
    "ListNet": ("listnet", {}),
    "ListMLE": ("listmle", {"ties": "stable"}),
    "partition": ("partition", {}),
    "ListPL, psi 15": ("listpl", {"psi": 15.0}),
    "ListMLE, ties anew": ("listmle", {}),
    "lower_bound": ("lower_bound", {}),
    "attrank": ("attrank", {}),
    "ranknet": ("ranknet", {}),
    "ranksvm": ("ranksvm", {}),
    "lambdarank": ("lambdarank", {}),
    "approx_ndcg": ("approx_ndcg", {}),
}
"""Losses with their options. The first three are the paper's; plots show those before lower_bound."""

DRAWN = 6
RIVALS = ("ListNet", "ListMLE")
PAPER_P = {"ListNet": 0.00078, "ListMLE": 0.00218}
"""On MSLR-WEB10K. The paper gives its NDCG@10 as curves only."""
PAPER_DATA = "mslr-web10k"

PARTS = ("train", "validation", "test")
WEIGHTS = {"last": "after the last epoch", "best": "after the best epoch on validation"}
_POINTS = 50  # points per stored curve, each a mean over a stretch of epochs
_SIMILAR = 0.01  # NDCG@10 on the training data

REMARKS = (
    "The paper does not say how many queries make up a step. Its authors' code (rjagerman/shoelace) uses one, so 1,000 "
    "epochs of MSLR-WEB10K are six million steps, while 1,000 epochs of the sample's 32 training queries are only 32 "
    "thousand. The fast schedule compensates with a learning rate that is a hundred times higher.",
    "ListMLE follows the paper: one order, with ties broken at random, fixed for all epochs. (The order of the file "
    "would not do: it carries information, and on MQ2008 learning it harms ListMLE.) "
    '"ListMLE, ties anew" draws a new order of tied documents at every step, which removes the problem that ListPL is '
    "meant to solve. The paper leaves the mapping psi of the labels open: ListPL uses the labels as they are, and "
    '"ListPL, psi 15" uses the factor in the authors\' code. With that factor, documents of different grades hardly '
    'ever change places, so it is nearly the same as "ListMLE, ties anew".',
    "Tests are two-tailed paired t-tests of NDCG@10 (averaged over seeds) over the test queries of all folds. Queries "
    "without a relevant document have no NDCG. The paper does not say which units its test compares.",
    "Features are standardised over the training rows; the paper does not say how it scales them.",
)


def cells(configuration: Mapping[str, Any], data: DataFolder) -> list[Cell]:
    return [
        {"data": plan["data"], "schedule": plan["schedule"], "method": method, "fold": fold}
        for plan in configuration["plans"]
        if plan["data"] in STAND_INS or data.find(plan["data"])
        for method in list(METHODS)[: plan["methods"]]
        for fold in range(plan["folds"])
    ]


def run(configuration: Mapping[str, Any], cell: Cell, data: DataFolder) -> dict[str, Any]:
    (plan,) = (p for p in configuration["plans"] if all(p[key] == cell[key] for key in ("data", "schedule")))
    fold = load_fold(plan["data"], cell["fold"], data, lists=plan.get("lists"))
    objective, options = METHODS[cell["method"]]
    with one_thread():
        runs = [
            _train(objective, options, configuration["schedules"][cell["schedule"]], fold, seed)
            for seed in range(plan["seeds"])
        ]
    return {
        "curves": {part: [one[part] for one in runs] for part in PARTS},
        "best_epochs": [one["best_epoch"] for one in runs],
        "ndcg": {
            weights: [None if np.isnan(value) else round(float(value), 5) for value in of_queries]
            for weights in WEIGHTS
            for of_queries in [np.mean([one[weights] for one in runs], axis=0)]
        },
    }


def _train(
    objective: str, options: Mapping[str, Any], schedule: Mapping[str, Any], fold: Fold, seed: int
) -> dict[str, Any]:
    """Return the curve of each part, and the test NDCG@10 of each query with the weights of the last and best epoch."""
    from plackett import NeuralRanker

    epochs, last = schedule["epochs"], {}

    def keep_last(epoch: Any) -> None:
        if epoch.number == epochs:
            last.update(copy.deepcopy(epoch.network.state_dict()))

    model = NeuralRanker(
        objective, objective_options=dict(options), early_stopping_rounds=epochs, random_state=seed, device="cpu",
        progress=False, **schedule,
    )  # fmt: skip
    train = with_shuffled_rows(fold.train, seed)  # the fixed order that ListMLE uses
    model.fit(train, eval_set=[fold.validation, fold.train, fold.test], callbacks=[keep_last])
    columns = {"validation": "valid_0", "train": "valid_1", "test": "valid_2"}
    found: dict[str, Any] = {part: _mean_by_range(model.history_[f"{columns[part]} ndcg@10"]) for part in PARTS}
    found["best_epoch"] = model.best_epoch_
    found["best"] = _ndcg_of_queries(model, fold.test)
    model.networks_[0].load_state_dict(last)
    found["last"] = _ndcg_of_queries(model, fold.test)
    return found


def _ndcg_of_queries(model: Any, data: RankingData) -> Floats:
    return np.asarray(metrics.ndcg(model.predict_data(data), data.y, k=10, offsets=data.offsets, reduction="none"))


def _epoch_ranges(epochs: int) -> list[npt.NDArray[np.intp]]:
    return np.array_split(np.arange(epochs), min(epochs, _POINTS))


def _mean_by_range(curve: Sequence[float]) -> list[float]:
    return [round(float(np.mean(np.asarray(curve)[part])), 5) for part in _epoch_ranges(len(curve))]


# Findings


@dataclass(frozen=True)
class _Overfitting:
    """The rise on train and the fall elsewhere, from the best tenth of the epochs on validation to the last tenth.

    `fall_error` is the standard error of the fall on validation over folds (or seeds); None if there is only one.
    """

    rise: float
    fall: float
    fall_error: float | None
    test_fall: float

    @property
    def is_clear(self) -> bool:
        return self.rise > 0.0 and self.fall > 2.0 * (self.fall_error or 0.0)

    @property
    def described(self) -> str:
        error = "one run" if self.fall_error is None else f"standard error {self.fall_error:.4f}"
        return f"train {self.rise:+.4f}, validation {0.0 - self.fall:+.4f} ({error}), test {0.0 - self.test_fall:+.4f}"


class _Group:
    """All runs on one data set with one schedule."""

    def __init__(self, data: str, schedule: str, epochs: int, results: Results) -> None:
        self.data, self.schedule, self.epochs = data, schedule, epochs
        self._results: dict[str, list[dict[str, Any]]] = {}
        for cell, result in sorted(results, key=lambda pair: int(pair[0]["fold"])):
            self._results.setdefault(cell["method"], []).append(result)
        self.methods = [method for method in METHODS if method in self._results]

    @property
    def title(self) -> str:
        return f'{self.data}, schedule "{self.schedule}"'

    @property
    def is_by_fold(self) -> bool:
        return len(self._results[self.methods[0]]) > 1

    def curves(self, method: str, part: str) -> Floats:
        """Return one curve per fold, averaged over seeds; or one per seed if there is only one fold."""
        found = [np.array(result["curves"][part], np.float64) for result in self._results[method]]
        return np.array([curves.mean(axis=0) for curves in found]) if self.is_by_fold else found[0]

    def ndcg(self, method: str, weights: str) -> Floats:
        """Return the NDCG@10 of each test query of all folds; NaN for queries without a relevant document."""
        return np.concatenate([np.array(result["ndcg"][weights], np.float64) for result in self._results[method]])

    def best_epoch(self, method: str) -> float:
        return float(np.mean([epoch for result in self._results[method] for epoch in result["best_epochs"]]))

    def overfitting(self, method: str) -> _Overfitting:
        tenths = {}
        for part in PARTS:
            curves = self.curves(method, part)
            split = np.array_split(curves, min(10, curves.shape[1]), axis=1)
            tenths[part] = np.stack([stretch.mean(axis=1) for stretch in split], axis=1)  # (runs, tenths)
        peak = int(np.argmax(tenths["validation"].mean(axis=0)))
        falls = {part: of[:, peak] - of[:, -1] for part, of in tenths.items()}
        return _Overfitting(
            0.0 - float(falls["train"].mean()),
            float(falls["validation"].mean()),
            _standard_error(falls["validation"]),
            float(falls["test"].mean()),
        )


def _standard_error(values: Floats) -> float | None:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None


def find(configuration: Mapping[str, Any], results: Results) -> Findings:
    sections, claims, rows, compared = [], [], [], []
    for data, schedule in dict.fromkeys((cell["data"], cell["schedule"]) for cell, _ in results):
        own = [pair for pair in results if (pair[0]["data"], pair[0]["schedule"]) == (data, schedule)]
        group = _Group(data, schedule, configuration["schedules"][schedule]["epochs"], own)
        of_group = _rows(group)
        sections.append(_section(group, of_group))
        claims += _claims(group)
        rows += of_group
        compared += _compare_p_values(group)
    return Findings(sections, claims, rows, compared, ["data", "schedule", "ListPL against", "quantity"], REMARKS)


def _rows(group: _Group) -> list[dict[str, Any]]:
    values = {method: group.ndcg(method, "best") for method in group.methods}
    tests = {pair.first: pair for pair in metrics.compare(values, baseline="partition", correction="holm")}
    found = []
    for method in group.methods:
        known = values[method][~np.isnan(values[method])]
        test = tests.get(method)
        found.append(
            {
                "data": group.data, "schedule": group.schedule, "method": method, "queries": len(known),
                "ndcg_best": float(known.mean()), "se": _standard_error(known),
                "ndcg_last": float(np.nanmean(group.ndcg(method, "last"))),
                "minus_partition": None if test is None else test.difference,
                "p": None if test is None else test.t_test,
                "best_epoch": group.best_epoch(method), **vars(group.overfitting(method)),
            }
        )  # fmt: skip
    return sorted(found, key=lambda row: -float(row["ndcg_best"]))


def _section(group: _Group, rows: Sequence[Mapping[str, Any]]) -> Section:
    plots = [_plot(group, part) for part in PARTS]
    form = ".4f"
    columns: list[str | Column] = [
        "loss", Column("NDCG@10, best epoch", format=form), Column("standard error", format=form),
        Column("NDCG@10, last epoch", format=form), Column("best epoch minus partition", format=f"+{form}"),
        Column("p (t-test, Holm)", format=".3g"), Column("best epoch", format=".1f"),
        Column("rise on train", format=f"+{form}"), Column("fall on validation", format=f"+{form}"),
        Column("fall on test", format=f"+{form}"),
    ]  # fmt: skip
    keys = (
        "method", "ndcg_best", "se", "ndcg_last", "minus_partition", "p", "best_epoch", "rise", "fall", "test_fall",
    )  # fmt: skip
    caption = (
        f"Test queries: {rows[0]['queries']:,}. The best epoch is the best on validation. Rise and fall are measured "
        "from the best tenth of the epochs on validation to the last tenth."
    )
    return Section(group.title, [*plots, Table(columns, [[row[key] for key in keys] for row in rows], caption)])


def _plot(group: _Group, part: str) -> LinePlot:
    epochs = [float(stretch[-1] + 1) for stretch in _epoch_ranges(group.epochs)]
    series = []
    for method in list(METHODS)[:DRAWN]:
        if method in group.methods:
            curves = group.curves(method, part)
            mean, spread = curves.mean(axis=0), curves.std(axis=0, ddof=min(1, len(curves) - 1))
            series.append(Series(method, mean, epochs, mean - spread, mean + spread))
    over = "folds" if group.is_by_fold else "seeds"
    spread_over = "one run" if len(curves) == 1 else f"bands show one standard deviation over {over}"
    return LinePlot(series, Axis("epoch"), Axis("NDCG@10"), f"{group.title}: {part}; {spread_over}")


def _claims(group: _Group) -> list[Claim]:
    if not {"ListPL", *RIVALS} <= set(group.methods):
        return []
    return [*(_claim_better(group, weights) for weights in WEIGHTS), _similar_on_train(group), *_overfitting(group)]


def _tests(group: _Group, weights: str) -> dict[str, metrics.Comparison]:
    """Compare ListPL with each rival on the test queries, without a correction, as the paper does."""
    return {
        rival: metrics.compare(group.ndcg("ListPL", weights), group.ndcg(rival, weights), correction="none")
        for rival in RIVALS
    }


def _claim_better(group: _Group, weights: str) -> Claim:
    tests = _tests(group, weights)
    said = [f"{test.difference:+.4f} over {rival} (p = {test.t_test:.2g})" for rival, test in tests.items()]
    return Claim(
        f"ListPL ranks test queries better than ListNet and ListMLE, p < 0.05, {WEIGHTS[weights]} ({group.title})",
        all(test.difference > 0 and test.t_test < 0.05 for test in tests.values()),
        f"NDCG@10 of ListPL {tests['ListNet'].first_mean:.4f}, {', '.join(said)}; {tests['ListNet'].lists} queries",
    )


def _similar_on_train(group: _Group) -> Claim:
    ends = {method: float(group.curves(method, "train")[:, -1].mean()) for method in ("ListPL", "ListNet")}
    return Claim(
        f"ListPL is close to ListNet on train: NDCG@10 differs by less than {_SIMILAR} at the end ({group.title})",
        abs(ends["ListPL"] - ends["ListNet"]) < _SIMILAR,
        ", ".join(f"{method} {end:.4f}" for method, end in ends.items()),
    )


def _overfitting(group: _Group) -> list[Claim]:
    found = {method: group.overfitting(method) for method in ("ListPL", *RIVALS)}
    said = "; ".join(f"{method}: {of.described}" for method, of in found.items())
    since = f"change since the best tenth of the epochs on validation: {said}"
    return [
        Claim(
            f"ListNet and ListMLE overfit: they keep rising on train and fall on validation ({group.title})",
            all(found[rival].is_clear for rival in RIVALS),
            since,
        ),
        Claim(
            f"ListPL falls the least of the three on validation ({group.title})",
            all(found["ListPL"].fall < found[rival].fall for rival in RIVALS),
            since,
        ),
    ]


def _compare_p_values(group: _Group) -> list[Reproduced]:
    """Compare p values with the paper's, if the data are the paper's."""
    if not {"ListPL", *RIVALS} <= set(group.methods):
        return []
    is_papers = group.data == PAPER_DATA
    found = []
    for rival, test in _tests(group, "last").items():
        names = [group.data, group.schedule, rival]
        found.append(Reproduced([*names, "p value"], PAPER_P[rival] if is_papers else None, test.t_test))
        error = _standard_error(_differences(group, rival))
        found.append(Reproduced([*names, "difference of NDCG@10"], None, test.difference, error))
    return found


def _differences(group: _Group, rival: str) -> Floats:
    differences = group.ndcg("ListPL", "last") - group.ndcg(rival, "last")
    return differences[~np.isnan(differences)]


_NETWORK = {"hidden_sizes": [80, 80, 80], "optimizer": "adam"}

EXPERIMENT = Experiment(
    name="listpl-figure-2",
    paper="Jagerman et al. (2017), figure 2",
    title="NDCG@10 over epochs",
    configurations={
        "quick": {
            "schedules": {
                "fast": {"learning_rate": 1e-3, "epochs": 12, "batch_size": 1024, **_NETWORK},
                "paper, cut short": {"learning_rate": 1e-5, "epochs": 20, "batch_size": 1, **_NETWORK},
            },
            "plans": [
                {"data": "mslr stand-in", "schedule": "fast", "lists": 40, "folds": 2, "seeds": 1, "methods": 6},
                {"data": "mq2008", "schedule": "fast", "folds": 2, "seeds": 1, "methods": 4},
                {"data": "mslr-sample", "schedule": "paper, cut short", "folds": 1, "seeds": 1, "methods": 4},
            ],
        },
        "full": {
            "schedules": {
                "fast": {"learning_rate": 1e-3, "epochs": 40, "batch_size": 1024, **_NETWORK},
                "paper": {"learning_rate": 1e-5, "epochs": 1000, "batch_size": 1, **_NETWORK},
                "paper, larger steps": {"learning_rate": 1e-5, "epochs": 1000, "batch_size": 1024, **_NETWORK},
                "short": {"learning_rate": 1e-3, "epochs": 20, "batch_size": 1024, **_NETWORK},
            },
            "plans": [
                {"data": "mq2008", "schedule": "fast", "folds": 5, "seeds": 2, "methods": 12},
                {"data": "mslr-sample", "schedule": "fast", "folds": 1, "seeds": 5, "methods": 12},
                {"data": "mslr stand-in", "schedule": "fast", "lists": 200, "folds": 3, "seeds": 1, "methods": 6},
                {"data": "mslr-sample", "schedule": "paper", "folds": 1, "seeds": 1, "methods": 4},
                {"data": "mq2008", "schedule": "paper, larger steps", "folds": 1, "seeds": 1, "methods": 4},
                {"data": "mslr-web10k", "schedule": "short", "folds": 5, "seeds": 1, "methods": 4},
            ],
        },
    },
    cells=cells,
    run=run,
    find=find,
    data=["mq2008", "mslr-sample", PAPER_DATA],
    minutes={"quick": 1, "full": 30},
)  # fmt: skip
