"""Figure 1: test NDCG@10 of the two linear systems, l-ListMLE and coordinate ascent, during fitting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plackett.experiments.datasets import DataFolder
from plackett.experiments.framework import Cell, Experiment, Findings, Results, group_results
from plackett.experiments.plrank.systems import (
    DATA,
    LINEAR,
    coordinate_ascent,
    fold_cells,
    fold_of,
    linear_claims,
    list_mle,
    metrics_by_list,
    pool,
    repeatable,
    summarise,
    title,
    values_of_lists,
    with_errors,
)
from plackett.report.page import Axis, Column, LinePlot, Section, Table

REMARKS = (
    "The paper's text gives the end points of its curves (table 1) and the number of iterations: 100 on Yahoo's data "
    "and 1,000 on Microsoft's. We do not know the axes of its figure. Our curves show L-BFGS iterations, with features "
    "divided by their standard deviation within lists and the paper's prior, and sweeps of coordinate ascent started "
    "from equal weights.",
    "Our coordinate ascent is exact along each feature; the method the paper cites is not.",
    "Stand-ins are generated lists with the shape of the paper's data. Their results on linear systems apply to scores "
    "from a Plackett-Luce model in which only seven features matter.",
)


def cells(configuration: Mapping[str, Any], data: DataFolder) -> list[Cell]:
    return [{**cell, "system": system} for cell in fold_cells(configuration, data) for system in LINEAR]


def run(configuration: Mapping[str, Any], cell: Cell, data: DataFolder) -> dict[str, Any]:
    fold = fold_of(configuration, cell, data)
    is_ascent = cell["system"] == "CA"
    points = []
    with repeatable():
        for steps in configuration["sweeps" if is_ascent else "iterations"]:
            # inference=False: the coordinates used for standard errors make the solver converge at once, unlike the
            # paper's.
            model = (
                coordinate_ascent(n_restarts=1, max_sweeps=steps)
                if is_ascent
                else list_mle(max_iter=steps, inference=False)
            ).fit(fold.train)
            values = metrics_by_list(model.predict(fold.test.X), fold.test, cell["data"])["NDCG@10"]
            points.append({"steps": steps, **summarise({"NDCG@10": values})})
    return {"points": points, "ndcg@10": [round(value, 5) for value in values.tolist()]}


def find(_: Mapping[str, Any], results: Results) -> Findings:
    by = group_results(results, "data", "system")
    rows = [
        {
            "data": name,
            "system": system,
            "steps": steps,
            "NDCG@10": (pooled := pool([part["points"][k] for part in parts]))["means"]["NDCG@10"],
            "se": pooled["errors"]["NDCG@10"],
        }
        for (name, system), parts in by.items()
        for k, steps in enumerate(point["steps"] for point in parts[0]["points"])
    ]
    names = dict.fromkeys(name for name, _ in by)
    plots = [_plot(name, [row for row in rows if row["data"] == name]) for name in names]
    columns: list[str | Column] = [
        "data",
        "system",
        "steps",
        Column("NDCG@10", format=".4f"),
        Column("standard error", format=".4f"),
    ]
    table = Table(columns, [[title(row["data"]), *list(row.values())[1:]] for row in rows])
    section = Section("Linear systems during fitting", [*plots, table], "Bands show standard errors over test lists.")
    return Findings([section], linear_claims(values_of_lists(by)), rows, remarks=REMARKS)


def _plot(name: str, rows: list[dict[str, Any]]) -> LinePlot:
    by = {system: [row for row in rows if row["system"] == system] for system in LINEAR}
    series = [
        with_errors(system, [row["NDCG@10"] for row in own], [row["se"] for row in own], [row["steps"] for row in own])
        for system, own in by.items()
    ]
    return LinePlot(series, Axis("iterations (sweeps for CA)", log=True), Axis("NDCG@10 on test lists"), title(name))


EXPERIMENT = Experiment(
    name="plrank-figure-1",
    paper="PLRank, figure 1",
    title="l-ListMLE and coordinate ascent during fitting",
    configurations={
        "quick": {
            "data": {"mq2008": {}, "yahoo stand-in": {"lists": 20}, "mslr stand-in": {"lists": 20}},
            "iterations": [1, 5, 20, 50], "sweeps": [1, 2],
        },
        "full": {
            "data": {
                "mq2008": {"folds": 5}, "mslr-sample": {}, "yahoo stand-in": {"lists": 300},
                "mslr stand-in": {"lists": 300}, "yahoo-ltrc": {},
                "mslr-web10k": {"folds": 5}, "mslr-web30k": {"folds": 5},
            },
            "iterations": [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000], "sweeps": [1, 2, 4, 8],
        },
    },
    cells=cells,
    run=run,
    find=find,
    data=DATA,
    minutes={"quick": 0.3, "full": 3},
)  # fmt: skip
