"""Figure 3: boosted trees by number of rounds, on a random split into three parts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from plackett.data import concatenate, k_fold
from plackett.data.containers import RankingData
from plackett.data.splits import Fold
from plackett.experiments.datasets import DataFolder
from plackett.experiments.framework import Cell, Claim, Experiment, Findings, Results, group_results
from plackett.experiments.plrank.systems import (
    boosted,
    fold_of,
    repeatable,
    rounded,
    rounds_of,
    title,
    usable_data,
)
from plackett.report.page import Axis, Column, LinePlot, Section, Series, Table

SYSTEMS = ("PLRank(obj=1)", "PLRank(obj=3)", "PLRank(obj=6)", "LambdaMART", "McRank", "MART-2", "partition")
OTHERS = ("LambdaMART", "McRank", "MART-2")
SPLITS = 3
METRICS = {"NDCG@1": "ndcg@1", "NDCG@3": "ndcg@3", "NDCG@10": "ndcg@10"}
REMARKS = (
    "The paper's text does not give the axes of its figure; ours are the number of rounds and NDCG on the test lists. "
    "One round of McRank grows one tree per grade. No data are held out for validation, so the best point of a curve "
    "cannot be chosen without looking at the test lists: compare the end points.",
)


def cells(configuration: Mapping[str, Any], data: DataFolder) -> list[Cell]:
    return [
        {"data": name, "split": number, "system": system}
        for name in usable_data(configuration, data)
        for number in range(SPLITS)
        for system in SYSTEMS
    ]


def run(configuration: Mapping[str, Any], cell: Cell, data: DataFolder) -> dict[str, Any]:
    train, test = _splits(fold_of(configuration, cell, data))[cell["split"]]
    settings = configuration["data"][cell["data"]]
    rounds = rounds_of(cell["system"], settings)
    with repeatable():
        trees = boosted(
            cell["system"], rounds, leaves=configuration["leaves"], rate=configuration["rate"],
            eval_metric=list(METRICS.values()),
        ).fit(train, eval_set=test)  # fmt: skip
    (curves,) = trees.evals_result_.values()
    kept = range(settings["every"], rounds + 1, settings["every"])
    grown = len(curves["ndcg@10"])  # less than `rounds` if there was nothing left to split
    return {
        "rounds": list(kept),
        **{name: [rounded(curves[metric][min(k, grown) - 1]) for k in kept] for name, metric in METRICS.items()},
    }


@lru_cache(maxsize=1)
def _splits(fold: Fold) -> list[tuple[RankingData, RankingData]]:
    """Split the lists of all parts of the fold."""
    return list(k_fold(concatenate(fold), SPLITS, random_state=0))


def find(_: Mapping[str, Any], results: Results) -> Findings:
    by = group_results(results, "data", "system")
    rows = []
    for (name, system), parts in by.items():
        for k, number in enumerate(parts[0]["rounds"]):
            row: dict[str, Any] = {"data": name, "system": system, "rounds": number}
            for metric in METRICS:
                values = [part[metric][k] for part in parts]
                error = np.std(values, ddof=1) / np.sqrt(len(values))
                row |= {metric: rounded(np.mean(values)), f"{metric} se": rounded(error)}
            rows.append(row)
    names = list(dict.fromkeys(name for name, _ in by))
    sections = [_section(name, [row for row in rows if row["data"] == name]) for name in names]
    claims = [claim for name in names for claim in _claims(name, [row for row in rows if row["data"] == name])]
    return Findings(sections, claims, rows, remarks=REMARKS)


def _section(name: str, rows: list[dict[str, Any]]) -> Section:
    by = {system: [row for row in rows if row["system"] == system] for system in SYSTEMS}
    plots = [
        LinePlot(
            [
                Series(system, [row[metric] for row in own], [row["rounds"] for row in own])
                for system, own in by.items()
            ],
            Axis("rounds"),
            Axis(f"{metric} on test lists"),
            title(name),
        )
        for metric in METRICS
    ]
    shown = [name for metric in METRICS for name in (metric, f"{metric} se")]
    columns: list[str | Column] = ["system", "rounds", *(Column(name, format=".4f") for name in shown)]
    ends = [[system, own[-1]["rounds"], *(own[-1][name] for name in shown)] for system, own in by.items()]
    return Section(
        title(name),
        [*plots, Table(columns, ends, caption="After the last round; se: standard error over the three splits")],
    )


def _claims(name: str, rows: list[dict[str, Any]]) -> list[Claim]:
    ends = {row["system"]: row for row in rows}  # later rows overwrite earlier ones: the last round remains
    places = {
        metric: 1 + sum(ends[other][metric] > ends["PLRank(obj=1)"][metric] for other in OTHERS) for metric in METRICS
    }
    best = {metric: max(OTHERS, key=lambda system: ends[system][metric]) for metric in METRICS}
    ours = [system for system in SYSTEMS if system.startswith("PLRank")]
    return [
        Claim(
            f"{title(name)}: PLRank(obj=1) is among the top two of PLRank, LambdaMART, McRank and MART in every NDCG",
            max(places.values()) <= 2,
            ", ".join(f"rank {place} in {metric}" for metric, place in places.items()),
        ),
        Claim(
            f"{title(name)}: PLRank with 1, 3 and 6 orders is ahead of LambdaMART, McRank and MART",
            all(ends[system][metric] > ends[best[metric]][metric] for system in ours for metric in METRICS),
            "; ".join(
                f"{metric}: " + ", ".join(f"{system} {ends[system][metric]:.4f}" for system in (*ours, best[metric]))
                for metric in METRICS
            ),
        ),
    ]


EXPERIMENT = Experiment(
    name="plrank-figure-3",
    paper="PLRank, figure 3",
    title="Boosted trees by number of rounds, on a random split into three parts",
    configurations={
        "quick": {
            "data": {
                "mq2008": {"rounds": 20, "mcrank rounds": 20, "every": 5},
                "yahoo stand-in": {"lists": 18, "rounds": 6, "mcrank rounds": 6, "every": 2},
            },
            "leaves": 30, "rate": 0.1,
        },
        "full": {
            "data": {
                "mq2008": {"rounds": 400, "mcrank rounds": 400, "every": 10},
                "yahoo stand-in": {"lists": 180, "rounds": 100, "mcrank rounds": 100, "every": 5},
                "yahoo-ltrc": {"rounds": 1_000, "mcrank rounds": 2_500, "every": 25},
            },
            "leaves": 30, "rate": 0.1,
        },
    },
    cells=cells,
    run=run,
    find=find,
    data=("mq2008", "yahoo-ltrc"),
    minutes={"quick": 0.3, "full": 5},
)  # fmt: skip
