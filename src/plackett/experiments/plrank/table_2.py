"""Table 2: how large the data sets are, and how rich in features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from plackett.experiments.datasets import DataFolder
from plackett.experiments.framework import Cell, Claim, Experiment, Findings, Results
from plackett.experiments.plrank.systems import DATA, fold_of, rounded, title, used
from plackett.experiments.ranking_data import STAND_INS
from plackett.report import Reproduced
from plackett.report.page import Column, Section, Table

STATISTICS = ("queries", "documents", "documents per query", "features")
PUBLISHED: Mapping[str, tuple[float, ...]] = {
    "mslr-web30k": (18_900, 2_270_000, 120, 136),
    "yahoo-ltrc": (20_000, 473_000, 23, 519),
}
"""`STATISTICS` of the data to learn from."""

_LARGE = 473_000  # documents of the smaller of the paper's two data sets
REMARKS = (
    "Statistics are those of the lists to learn from (of the first fold), as in the paper. Features are those that are "
    "not the same everywhere: Yahoo's files number 700, of which 519 are used in set 1, and those of MQ2008 46.",
    "Stand-ins are generated in the shape of the paper's data, with fewer lists; they are compared with nothing.",
    "The paper's LETOR 4.0 (2.4K queries) is MQ2007 and MQ2008 together; MQ2008 is here.",
)


def cells(configuration: Mapping[str, Any], data: DataFolder) -> list[Cell]:
    return [{"data": name} for name in used(configuration, data)]


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
            evidence = f"{row['documents']:,} documents in MQ2008, {_LARGE:,} in Yahoo's data: {times:.0f} times"
            claims.append(Claim("LETOR's data are orders of magnitude smaller than the paper's", times >= 10, evidence))
        if row["data"] in STAND_INS:
            shape = STAND_INS[row["data"]]
            near = abs(row["documents per query"] / shape.mean_length - 1.0) < 0.1 and row["features"] == shape.features
            evidence = (
                f"{row['documents per query']:.1f} documents a query and {row['features']} features; wanted are "
                f"{shape.mean_length:g} and {shape.features}"
            )
            claims.append(Claim(f"The {row['data']} has the shape that the paper gives", near, evidence))
        if row["data"] in PUBLISHED:
            wrong = [
                f"{name} {row[name]:,.6g} here, {paper:,.6g} there"
                for name, paper in zip(STATISTICS, PUBLISHED[row["data"]], strict=True)
                if abs(row[name] / paper - 1.0) > 0.03  # the paper's are rounded, to 19.9 as 20 thousand
            ]
            evidence = "; ".join(wrong) or "all within 3%, to which the paper's are rounded"
            claims.append(Claim(f"{title(row['data'])} has the size that the paper gives", not wrong, evidence))
    return claims


EXPERIMENT = Experiment(
    name="plrank-table-2",
    paper="PLRank, table 2",
    title="Statistics of the data of graded lists",
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
