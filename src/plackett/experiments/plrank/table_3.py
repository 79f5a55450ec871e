"""Table 3: number of distinct denominators when orders share them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from plackett.boosted.plrank import PLRankObjective
from plackett.data import concatenate
from plackett.data.containers import RankingData
from plackett.experiments.datasets import DataFolder
from plackett.experiments.framework import Cell, Claim, Experiment, Findings, Results
from plackett.experiments.plrank.systems import (
    DATA,
    MICROSOFT,
    YAHOO,
    fold_of,
    repeatable,
    rounded,
    title,
    usable_data,
    with_errors,
)
from plackett.report import Reproduced
from plackett.report.page import Axis, Column, LinePlot, Section, Table

ORDERS = (3, 6, 9, 12, 15, 18, 21)
YAHOO_RATIOS = (0.8672, 0.7586, 0.6965, 0.6524, 0.6197, 0.5926, 0.5708)
MICROSOFT_RATIOS = (0.8986, 0.8069, 0.7609, 0.7277, 0.7026, 0.6823, 0.6661)
PUBLISHED: Mapping[str, tuple[float, ...]] = {
    "yahoo-ltrc": YAHOO_RATIOS,
    "mslr-web30k": MICROSOFT_RATIOS,
    "mslr-web10k": MICROSOFT_RATIOS,
    "mslr-sample": MICROSOFT_RATIOS,
}
"""One ratio per number in `ORDERS`. MSLR-WEB10K and its sample consist of queries from Microsoft 30K."""

_GROUPS = 10  # groups of lists for the jackknife, left out in turn
REMARKS = (
    "The first denominator of every order is the whole list, which all orders share. Counting it lowers every ratio. "
    "The paper's ratios fit the count without it, so that is the one compared.",
    "Standard errors describe the variation between queries, by the jackknife over ten groups of lists. The MSLR "
    "sample has 86 queries with 10,000 documents, out of the paper's 30,000 queries.",
)


def cells(configuration: Mapping[str, Any], data: DataFolder) -> list[Cell]:
    return [{"data": name, "orders": orders} for name in usable_data(configuration, data) for orders in ORDERS]


def run(configuration: Mapping[str, Any], cell: Cell, data: DataFolder) -> dict[str, Any]:
    fold = fold_of(configuration, cell, data)
    lists = concatenate([replace(part, X=part.X[:, :0]) for part in fold])  # only labels matter
    with repeatable():
        ratio, with_full = _compression(lists, cell["orders"], configuration["top"])
        groups = [np.arange(len(lists)) % _GROUPS != group for group in range(_GROUPS)]
        without = [
            _compression(lists.select(np.flatnonzero(kept)), cell["orders"], configuration["top"])[0] for kept in groups
        ]
    error = np.sqrt((_GROUPS - 1) * np.var(without))
    return {"ratio": rounded(ratio), "se": rounded(error), "ratio with whole lists": rounded(with_full)}


def _compression(data: RankingData, orders: int, top: int) -> tuple[float, float]:
    """Return the compression ratios without and with the whole lists."""
    y = np.asarray(data.y, np.float64)
    objective = PLRankObjective(y, data.offsets, np.ones(len(data)), n_permutations=orders, top=top, random_state=0)
    return objective.compression(include_full=False), objective.compression()


def find(_: Mapping[str, Any], results: Results) -> Findings:
    rows = [
        {
            "data": cell["data"],
            "orders": cell["orders"],
            **result,
            "equivalent orders": rounded(result["ratio"] * cell["orders"]),
        }
        for cell, result in results
    ]
    compared = [
        Reproduced([title(row["data"]), str(row["orders"])], paper, row["ratio"], row["se"])
        for row in rows
        if row["data"] in PUBLISHED
        for paper in [PUBLISHED[row["data"]][ORDERS.index(row["orders"])]]
    ]
    by = {name: [row for row in rows if row["data"] == name] for name in dict.fromkeys(row["data"] for row in rows)}
    series = [
        with_errors(
            title(name),
            [row["ratio"] for row in found],
            [row["se"] for row in found],
            [row["orders"] for row in found],
        )
        for name, found in by.items()
    ]
    plot = LinePlot(
        series, Axis("orders"), Axis("denominators stored / all"), "Bars show standard errors", error_bars=True
    )
    columns: list[str | Column] = [
        "data", "orders", Column("ratio", format=".4f"), Column("standard error", format=".4f"),
        Column("ratio with whole lists", format=".4f"), Column("equivalent orders", format=".2f"),
    ]  # fmt: skip
    table = Table(columns, [[title(row["data"]), *list(row.values())[1:]] for row in rows])
    section = Section("Shared denominators", [plot, table])
    return Findings([section], _claims(by), rows, compared, ["data", "orders"], REMARKS)


def _claims(by: Mapping[str, list[dict[str, Any]]]) -> list[Claim]:
    ratios = {name: [row["ratio"] for row in found] for name, found in by.items()}
    falling = {name: all(a > b for a, b in pairwise(r)) for name, r in ratios.items()}
    ends = "; ".join(f"{title(name)}: {r[0]:.3f} to {r[-1]:.3f}" for name, r in ratios.items())
    claims = [Claim("The more orders, the more denominators they share", all(falling.values()), ends)]
    # Compare real data with real data, and stand-ins with stand-ins.
    for yahoo in (name for name in YAHOO if name in ratios):
        for microsoft in (
            name for name in MICROSOFT if name in ratios and ("stand-in" in name) == ("stand-in" in yahoo)
        ):
            above = sum(m > y for m, y in zip(ratios[microsoft], ratios[yahoo], strict=True))
            claims.append(
                Claim(
                    "Orders share less on Microsoft's data than on Yahoo's",
                    above == len(ORDERS),
                    f"ratio of {title(microsoft)} above {title(yahoo)} for {above} of {len(ORDERS)} numbers of orders",
                )
            )
    for name in (name for name in by if name in PUBLISHED):
        far = max(abs(ours - paper) for ours, paper in zip(ratios[name], PUBLISHED[name], strict=True))
        claims.append(
            Claim(
                f"Ratios on {title(name)} match the paper's within 0.05", far <= 0.05, f"largest difference {far:.3f}"
            )
        )
    return claims


EXPERIMENT = Experiment(
    name="plrank-table-3",
    paper="PLRank, table 3",
    title="Compression of denominators",
    configurations={
        "quick": {
            "data": {"mslr-sample": {}, "yahoo stand-in": {"lists": 60}, "mslr stand-in": {"lists": 60}}, "top": 10,
        },
        "full": {
            "data": {
                **{name: {} for name in DATA}, "yahoo stand-in": {"lists": 1_000}, "mslr stand-in": {"lists": 1_000},
            },
            "top": 10,
        },
    },
    cells=cells,
    run=run,
    find=find,
    data=DATA,
    minutes={"quick": 0.2, "full": 2},
)  # fmt: skip
