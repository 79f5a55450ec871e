"""Table 3: size of the data sets for extreme classification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plackett.experiments.datasets import DataFolder
from plackett.experiments.framework import Cell, Claim, Experiment, Findings, Results
from plackett.experiments.multilabel_data import load, short_name, usable_data
from plackett.report import Reproduced
from plackett.report.page import Section, Table

COUNTS = ("features", "labels", "training rows", "test rows")
MEANS = ("rows per label", "labels per row")
PUBLISHED: Mapping[str, tuple[float, ...]] = {
    "delicious-1k": (500, 983, 12_920, 3_185, 311.61, 19.03),
    "eurlex-4k": (5_000, 3_993, 15_539, 3_809, 25.73, 5.31),
    "wiki10-31k": (101_938, 30_938, 14_146, 6_616, 8.52, 18.64),
    "delicious-200k": (782_585, 205_443, 196_606, 100_095, 72.29, 75.54),
}
"""`COUNTS`, then `MEANS`."""

OVER_ALL_ROWS = ("delicious-1k", "eurlex-4k")
"""Data sets for which the paper averages over training and test rows; for the others, over training rows only."""

REMARKS = (
    "The paper does not say which rows its means cover. Rows per label times labels must equal labels per row times "
    "rows. With the paper's counts this holds for training and test rows together on D-1K and E-4K, and for training "
    "rows alone on W-31K and D-200K. We average in the same way, and over training rows for stand-ins.",
    "Stand-ins are generated with the shape of a data set that was not available. Their numbers are not compared with "
    "the paper's.",
)


def cells(configuration: Mapping[str, Any], data: DataFolder) -> list[Cell]:
    return [{"data": name} for name in usable_data(configuration["data"], data)]


def run(_: Mapping[str, Any], cell: Cell, data: DataFolder) -> dict[str, Any]:
    train, test = load(cell["data"], data)
    labels = train.Y.shape[1]
    parts = (train, test) if cell["data"] in OVER_ALL_ROWS else (train,)
    rows, given = sum(len(part) for part in parts), sum(part.Y.nnz for part in parts)
    counts = (train.X.shape[1], labels, len(train), len(test))
    means = (round(given / labels, 3), round(given / rows, 3))
    return dict(zip((*COUNTS, *MEANS), (*counts, *means), strict=True))


def find(_: Mapping[str, Any], results: Results) -> Findings:
    rows = [{"data": cell["data"], **{name: result[name] for name in (*COUNTS, *MEANS)}} for cell, result in results]
    compared = [
        Reproduced([short_name(row["data"]), name], paper, row[name])
        for row in rows
        for name, paper in zip((*COUNTS, *MEANS), PUBLISHED.get(row["data"], ()), strict=False)
    ]
    table = Table(["data", *COUNTS, *MEANS], [[short_name(row["data"]), *list(row.values())[1:]] for row in rows])
    claims = [_claim_equal(row) for row in rows if row["data"] in PUBLISHED]
    return Findings([Section("Sizes", [table])], claims, rows, compared, ["data", "statistic"], REMARKS)


def _claim_equal(row: Mapping[str, Any]) -> Claim:
    """Claim that counts are equal and means agree within 0.1."""
    published = dict(zip((*COUNTS, *MEANS), PUBLISHED[row["data"]], strict=True))
    differing = [name for name in COUNTS if row[name] != published[name]]
    differing += [name for name in MEANS if abs(row[name] - published[name]) > 0.1]
    evidence = "; ".join(f"{name} {row[name]:,.6g} here, {published[name]:,.6g} in the paper" for name in differing)
    text = f"{short_name(row['data'])} has the size that the paper reports"
    return Claim(text, not differing, evidence or "all counts are equal, and means agree within 0.1")


EXPERIMENT = Experiment(
    name="pl-partition-table-3",
    paper="Ma et al. (2021), table 3",
    title="Statistics of the data for extreme classification",
    configurations={
        "quick": {"data": ["delicious-1k", "wiki10-31k stand-in 1/20", "delicious-200k stand-in 1/200"]},
        "full": {
            "data": [
                "delicious-1k", "eurlex-4k", "wiki10-31k", "delicious-200k",
                "wiki10-31k stand-in", "delicious-200k stand-in 1/10",
            ],
        },
    },
    cells=cells,
    run=run,
    find=find,
    data=("delicious-1k", "eurlex-4k", "wiki10-31k", "delicious-200k"),
    minutes={"quick": 0.2, "full": 1},
)  # fmt: skip
