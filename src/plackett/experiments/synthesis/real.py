"""The same losses and models on MQ2008 and the MSLR-WEB10K sample, evaluated by NDCG@10 on the test queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.experiments.datasets import DataFolder
from plackett.experiments.determinism import one_thread, with_shuffled_rows
from plackett.experiments.framework import Cell, Claim, Experiment, Findings, Results
from plackett.experiments.ranking_data import STAND_INS, load_fold
from plackett.experiments.synthesis.differences import PairedDifference, count, differences, pays
from plackett.experiments.synthesis.fitted_models import EXACT, FAMILIES, LOSSES, OTHERS, fit_best, list_ndcg
from plackett.report.page import Axis, Column, ItemPlot, Section, Series, Table

Floats = npt.NDArray[np.float64]

REMARKS = (
    "Tests are two-tailed paired t-tests of NDCG@10 (averaged over seeds) over the test queries of all folds, with "
    "Holm's correction for all comparisons on a data set. Queries without a relevant document have no NDCG.",
    "Training rows are shuffled within queries, in the same way for all losses, so that the fixed order in which "
    "ListMLE takes tied documents is not the order of the file.",
)


def cells(configuration: Mapping[str, Any], data: DataFolder) -> list[Cell]:
    return [
        {"data": plan["data"], "family": family, "fold": fold}
        for plan in configuration["plans"]
        if plan["data"] in STAND_INS or data.find(plan["data"])
        for family in FAMILIES
        for fold in range(plan["folds"])
    ]


def run(configuration: Mapping[str, Any], cell: Cell, data: DataFolder) -> dict[str, Any]:
    (plan,) = (plan for plan in configuration["plans"] if plan["data"] == cell["data"])
    fold = load_fold(cell["data"], cell["fold"], data, lists=plan.get("lists"))
    found = {}
    with one_thread():
        for loss in LOSSES:
            of_seeds = []
            for seed in range(plan["seeds"]):
                shuffled = fold._replace(train=with_shuffled_rows(fold.train, seed))
                model = fit_best(cell["family"], loss, shuffled, configuration, seed)
                of_seeds.append(list_ndcg(model, fold.test))
            found[loss] = [None if np.isnan(v) else round(float(v), 5) for v in np.mean(of_seeds, axis=0)]
    return found


# Findings


def find(_: Mapping[str, Any], results: Results) -> Findings:
    sections, claims, rows = [], [], []
    for name in dict.fromkeys(cell["data"] for cell, _ in results):
        values = {
            (name, family): _ndcg_of_queries([pair for pair in results if pair[0]["data"] == name], family)
            for family in FAMILIES
        }
        found = differences(values, "holm")
        own = _rows(values, found)
        sections.append(Section(name, [_plot(name, found), _table(own)], _text(name, found)))
        claims.append(
            Claim(
                "The exact likelihood ranks test queries significantly better than another loss in some comparisons "
                f"and significantly worse in none ({name})",
                pays(found),
                f"the exact likelihood is {count(found)} (paired t-tests over queries, Holm)",
            )
        )
        rows += own
    return Findings(sections, claims, rows, remarks=REMARKS)


def _ndcg_of_queries(results: Results, family: str) -> dict[str, Floats]:
    own = sorted((pair for pair in results if pair[0]["family"] == family), key=lambda pair: int(pair[0]["fold"]))
    return {loss: np.concatenate([np.array(result[loss], np.float64) for _, result in own]) for loss in LOSSES}


def _rows(
    values: Mapping[tuple[str, str], Mapping[str, Floats]], found: Sequence[PairedDifference]
) -> list[dict[str, Any]]:
    tested = {(one.family, one.loss): one for one in found}
    rows = []
    for (name, family), by_loss in values.items():
        for loss in LOSSES:
            one = tested.get((family, loss))
            rows.append(
                {
                    "data": name, "family": family, "loss": loss, "queries": int((~np.isnan(by_loss[loss])).sum()),
                    "ndcg": float(np.nanmean(by_loss[loss])), "difference": one and one.mean,
                    "se": one and one.standard_error, "p": one and one.p,
                }
            )  # fmt: skip
    return rows


def _plot(name: str, found: Sequence[PairedDifference]) -> ItemPlot:
    series = []
    for family in FAMILIES:
        by = {one.loss: one for one in found if one.family == family}
        y = np.array([by[loss].mean for loss in OTHERS])
        reach = 2.0 * np.array([by[loss].standard_error for loss in OTHERS])
        series.append(Series(family, y, low=y - reach, high=y + reach))
    axis = Axis(f"NDCG@10 minus {EXACT}", reference=(0.0, EXACT))
    return ItemPlot(OTHERS, series, axis, f"{name}; bars show two standard errors over queries")


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    columns: dict[str, str | Column] = {
        "family": "model", "loss": "loss", "ndcg": Column("NDCG@10", format=".4f"),
        "difference": Column("minus partition", format="+.4f"), "se": Column("standard error", format=".4f"),
        "p": Column("p (Holm)", format=".2g"),
    }  # fmt: skip
    caption = f"Test queries: {rows[0]['queries']:,}."
    return Table(list(columns.values()), [[row[key] for key in columns] for row in rows], caption)


def _text(name: str, found: Sequence[PairedDifference]) -> str:
    widest = max(2.0 * one.standard_error for one in found)
    largest = max(found, key=lambda one: abs(one.mean))
    side = "below" if largest.mean < 0 else "above"
    return (
        f"On {name}, the exact likelihood is {count(found)} comparisons with another loss in the same model. The "
        f"largest difference is {largest.loss} ({largest.family}), {abs(largest.mean):.4f} {side} the exact likelihood "
        f"(standard error {largest.standard_error:.4f}). This number of queries cannot show a difference below about "
        f"{widest:.3f}."
    )


EXPERIMENT = Experiment(
    name="synthesis-real",
    paper="our own experiment",
    title="Benefit of exact ties on real lists",
    configurations={
        "quick": {
            "plans": [
                {"data": "mslr stand-in", "lists": 12, "folds": 2, "seeds": 1},
                {"data": "mslr-sample", "folds": 1, "seeds": 1},
            ],
            "samples": 2, "l2": [10.0], "tree_rates": [0.1, 1.0],
            "trees": {"n_estimators": 10, "num_leaves": 8, "early_stopping_rounds": 5},
            "neural": {
                "hidden_sizes": [16], "learning_rate": 1e-2, "epochs": 4, "batch_size": 512, "early_stopping_rounds": 4,
            },
            "linear_rates": [1e-2, 1e-1],
        },
        "full": {
            "plans": [
                {"data": "mq2008", "folds": 5, "seeds": 1},
                {"data": "mslr-sample", "folds": 1, "seeds": 3},
                {"data": "mslr stand-in", "lists": 40, "folds": 3, "seeds": 1},
            ],
            "samples": 5, "l2": [1.0, 100.0, 10000.0], "tree_rates": [0.1, 1.0, 10.0],
            "trees": {"n_estimators": 150, "num_leaves": 16, "early_stopping_rounds": 20},
            "neural": {
                "hidden_sizes": [32], "learning_rate": 1e-3, "epochs": 30, "batch_size": 256,
                "early_stopping_rounds": 8,
            },
            "linear_rates": [1e-2, 1e-1],
        },
    },
    cells=cells,
    run=run,
    find=find,
    data=["mq2008", "mslr-sample"],
    minutes={"quick": 1, "full": 10},
)  # fmt: skip
