"""Table 2: size of the data sets and their number of features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from plackett.experiments.datasets import DataFolder
from plackett.experiments.framework import Cell, Claim, Experiment, Findings, Results
from plackett.experiments.plrank.systems import DATA, fold_of, rounded, title, usable_data
from plackett.experiments.ranking_data import STAND_INS
from plackett.report import Reproduced
from plackett.report.page import Column, Section, Table

STATISTICS = ("queries", "documents", "documents per query", "features")
PUBLISHED: Mapping[str, tuple[float, ...]] = {
    "mslr-web30k": (18_900, 2_270_000, 120, 136),
    "yahoo-ltrc": (20_000, 473_000, 23, 519),
}
"""`STATISTICS` of the training data."""

_LARGE = 473_000  # documents in the smaller of the paper's two data sets
REMARKS = (
    "Statistics describe the training lists (of the first fold), as in the paper. Constant features are not counted: "
    "Yahoo's files have 700 numbered features, of which set 1 uses 519; MQ2008's have 46.",
    "Stand-ins are generated with the shape of the paper's data but fewer lists. Their numbers are not compared with "
    "the paper's.",
    "The paper's LETOR 4.0 (2.4K queries) is MQ2007 and MQ2008 together; only MQ2008 is used here.",
)


def cells(configuration: Mapping[str, Any], data: DataFolder) -> list[Cell]:
    return [{"data": name} for name in usable_data(configuration, data)]


def run(configuration: Mapping[str, Any], cell: Cell, data: DataFolder) -> dict[str, Any]:
    train = fold_of(configuration, cell, data).train
    X = train.X if isinstance(train.X, np.ndarray) else train.X.toarray()
    counts = (len(train), len(train.y), rounded(len(train.y) / len(train)), int((np.ptp(X, axis=0) > 0.0).sum()))
    return dict(zip(STATISTICS, counts, strict=True))


def find(_: Mapping[str, Any], results: Results) -> Findings:
    rows = [
        {
            "data": cell["data"],
            **{name: result[name] for name in STATISTICS},
            "features per document of a query": rounded(result["features"] / result["documents per query"]),
        }
        for cell, result in results
    ]
    compared = [
        Reproduced([title(row["data"]), name], paper, row[name])
        for row in rows
        for name, paper in zip(STATISTICS, PUBLISHED.get(row["data"], ()), strict=False)
    ]
    columns = [Column(name, format=",.4g" if name.startswith(("documents per", "features per")) else ",d")
               for name in list(rows[0])[1:]]  # fmt: skip
    table = Table(["data", *columns], [[title(row["data"]), *list(row.values())[1:]] for row in rows])
    return Findings([Section("Sizes", [table])], _claims(rows), rows, compared, ["data", "statistic"], REMARKS)


def _claims(rows: list[dict[str, Any]]) -> list[Claim]:
    claims = []
    for row in rows:
        if row["data"] == "mq2008":
            times = _LARGE / row["documents"]
            evidence = (
                f"{row['documents']:,} documents in MQ2008, {_LARGE:,} in Yahoo's data: {times:.0f} times as many"
            )
            text = "LETOR's data are orders of magnitude smaller than the paper's"
            claims.append(Claim(text, times >= 10, evidence))
        if row["data"] in STAND_INS:
            shape = STAND_INS[row["data"]]
            near = abs(row["documents per query"] / shape.mean_length - 1.0) < 0.1 and row["features"] == shape.features
            evidence = (
                f"{row['documents per query']:.1f} documents per query and {row['features']} features; the paper has "
                f"{shape.mean_length:g} and {shape.features}"
            )
            claims.append(Claim(f"The {row['data']} has the shape that the paper reports", near, evidence))
        if row["data"] in PUBLISHED:
            wrong = [
                f"{name} {row[name]:,.6g} here, {paper:,.6g} in the paper"
                for name, paper in zip(STATISTICS, PUBLISHED[row["data"]], strict=True)
                if abs(row[name] / paper - 1.0) > 0.03  # the paper rounds, such as 19.9 to 20 thousand
            ]
            evidence = "; ".join(wrong) or "all within 3%, the rounding of the paper's numbers"
            claims.append(Claim(f"{title(row['data'])} has the size that the paper reports", not wrong, evidence))
    return claims


EXPERIMENT = Experiment(
    name="plrank-table-2",
    paper="PLRank, table 2",
    title="Statistics of the graded lists",
    configurations={
        "quick": {"data": {"mq2008": {}, "yahoo stand-in": {"lists": 300}, "mslr stand-in": {"lists": 300}}},
        "full": {
            "data": {
                **{name: {} for name in DATA}, "yahoo stand-in": {"lists": 1_000}, "mslr stand-in": {"lists": 1_000},
            },
        },
    },
    cells=cells,
    run=run,
    find=find,
    data=DATA,
    minutes={"quick": 0.1, "full": 0.5},
)  # fmt: skip
