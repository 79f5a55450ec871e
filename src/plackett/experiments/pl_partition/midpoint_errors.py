"""Figure 4: sensitivity of P@5 to T and c of the midpoint rule, compared with the adaptive rule, which has neither.

The network has two layers with 256 hidden ReLU units. Adam trains it at one learning rate, in batches of 128, for a few
epochs without validation: shorter than in table 1, and the same for all rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from plackett.experiments.datasets import DataFolder
from plackett.experiments.framework import Cell, Claim, Experiment, Findings, Results
from plackett.experiments.multilabel_data import load, short_name, usable_data
from plackett.report.page import Axis, Column, LinePlot, Section, Series, Table

ADAPTIVE, MIDPOINT, REFERENCE = "adaptive rule", "midpoint rule", "RankNet"
REMARKS = (
    "The paper uses only W-31K, with the protocol of table 1. We train networks for a few epochs at one learning rate, "
    "without validation, so that they differ only in the rule.",
    "The paper's figure gives its values only as curves, so we compare none of them.",
    "If T is too small for c, all nodes of the midpoint rule lie farther from 1 than the integrand reaches. The "
    "computed likelihood then grows as scores fall, and training ends with scores that are not finite.",
)
_POINTS = 1.0  # P@5 values this close count as equal
_WIDE = {"T": 10, "c": 5}


def cells(configuration: Mapping[str, Any], data: DataFolder) -> list[Cell]:
    rules = [
        {"method": ADAPTIVE},
        {"method": REFERENCE},
        *({"method": MIDPOINT, "T": T, "c": c} for T, c in configuration["rules"]),
    ]
    return [
        {"data": name, **rule, "seed": seed}
        for name in usable_data(configuration["data"], data)
        for rule in rules
        for seed in range(configuration["data"][name]["seeds"])
    ]


def run(configuration: Mapping[str, Any], cell: Cell, data: DataFolder) -> dict[str, Any]:
    """Return P@5 on the test rows; None if training ended with scores that are not finite."""
    import torch

    from plackett.experiments.determinism import one_thread
    from plackett.metrics import multilabel_precision
    from plackett.neural import RowScaling, SparseRows

    own = configuration["data"][cell["data"]]
    train, test = load(cell["data"], data)
    scaling = RowScaling(train.X.shape[1], own["scaling"], own["norm"]).fit(train.X)
    with one_thread():
        network = _train(configuration, cell, scaling.apply_to(train.X), train.Y)
        with torch.no_grad():
            scores = network.scores(SparseRows(scaling.apply_to(test.X), torch.device("cpu")))
    if not bool(torch.isfinite(scores).all()):
        return {"P@5": None}
    top = torch.topk(scores, 5).indices.numpy()
    return {"P@5": round(100.0 * float(multilabel_precision(top, test.Y, k=5)), 3)}


def _train(configuration: Mapping[str, Any], cell: Cell, X: Any, Y: Any) -> Any:
    import torch

    from plackett.neural import ExtremeNetwork, SparseRows, batches_of_rows, seeded

    device = torch.device("cpu")
    with seeded(cell["seed"], device):
        network = ExtremeNetwork(X.shape[1], Y.shape[1], configuration["hidden_sizes"])
    optimiser = torch.optim.Adam(network.parameters(), configuration["rate"])
    generator = np.random.default_rng(cell["seed"])
    for _ in range(configuration["data"][cell["data"]]["epochs"]):
        for batch in batches_of_rows(X.shape[0], configuration["batch"], generator):
            scores = network.scores(SparseRows(X[batch], device))
            if not bool(torch.isfinite(scores).all()):
                return network
            optimiser.zero_grad()
            _loss(cell, scores, torch.from_numpy(Y[batch].toarray())).backward()
            optimiser.step()
    return network


def _loss(cell: Cell, scores: Any, labels: Any) -> Any:
    from plackett import losses, partition_log_likelihood

    if cell["method"] == ADAPTIVE:
        return losses.partition_loss(scores, labels)
    if cell["method"] == REFERENCE:
        return losses.ranknet_loss(scores, labels)
    options = {"quadrature": "midpoint", "intervals": cell["T"], "shift": cell["c"]}
    return -partition_log_likelihood(scores, labels, **options).mean()


def find(configuration: Mapping[str, Any], results: Results) -> Findings:
    by: dict[tuple[Any, ...], list[Any]] = {}
    for cell, result in results:
        by.setdefault((cell["data"], cell["method"], cell.get("T"), cell.get("c")), []).append(result["P@5"])
    rows = [
        {"data": name, "method": method, "T": T, "c": c, "P@5": None if None in values else float(np.mean(values))}
        for (name, method, T, c), values in by.items()
    ]
    names = dict.fromkeys(row["data"] for row in rows)
    return Findings(
        [_section(name, rows, configuration["base"]) for name in names],
        [claim for name in names for claim in _claims(name, rows, configuration["base"])],
        rows,
        remarks=REMARKS,
    )


def _section(name: str, rows: list[dict[str, Any]], base: Mapping[str, Any]) -> Section:
    own = [row for row in rows if row["data"] == name]
    table = Table(
        ["rule", "T", "c", Column("P@5", "%", ".2f")], [[row["method"], row["T"], row["c"], row["P@5"]] for row in own]
    )
    plots = [_plot(own, "T", "c", base["c"]), _plot(own, "c", "T", base["T"])]
    return Section(short_name(name), [*plots, table])


def _plot(rows: list[dict[str, Any]], along: str, fixed: str, value: float) -> LinePlot:
    line = sorted((row for row in rows if row[fixed] == value), key=lambda row: row[along])
    x = [row[along] for row in line]
    series = [Series(f"{MIDPOINT}, {fixed} = {value:,}", [row["P@5"] for row in line], x)]
    for method in (ADAPTIVE, REFERENCE):
        series += [Series(method, [row["P@5"]] * len(x), x) for row in rows if row["method"] == method]
    caption = f"{short_name(rows[0]['data'])}: P@5 by {along}"
    return LinePlot(series, Axis(along, log=along == "T"), Axis("P@5", "%"), caption)


def _claims(name: str, rows: list[dict[str, Any]], base: Mapping[str, Any]) -> list[Claim]:
    own = [row for row in rows if row["data"] == name]
    (adaptive,) = (row["P@5"] for row in own if row["method"] == ADAPTIVE)
    rules = [row for row in own if row["method"] == MIDPOINT]
    best = max(row["P@5"] for row in rules if row["P@5"] is not None)
    near = [row for row in rules if row["P@5"] is not None and row["P@5"] >= best - _POINTS]
    intervals = [row["T"] for row in near if row["c"] == base["c"]] or [base["T"]]
    shifts = [row["c"] for row in near if row["T"] == base["T"]] or [base["c"]]
    is_wide = max(intervals) >= _WIDE["T"] * min(intervals) and max(shifts) - min(shifts) >= _WIDE["c"]
    values = ", ".join(
        f"{'not finite' if row['P@5'] is None else format(row['P@5'], '.2f')} (T = {row['T']:,}, c = {row['c']:g})"
        for row in rules
    )
    return [
        Claim(
            f"The midpoint rule is insensitive over a wide range on {short_name(name)}: P@5 stays within {_POINTS:g} "
            f"point of the best over a factor of {_WIDE['T']} in T and a range of {_WIDE['c']} in c",
            is_wide,
            f"P@5 {values}",
        ),
        Claim(
            f"The adaptive rule, which has neither T nor c, is as good as the best midpoint rule on {short_name(name)}",
            adaptive >= best - _POINTS,
            f"P@5 {adaptive:.2f}, the best of {len(rules)} midpoint rules {best:.2f}",
        ),
    ]


def _rules(base: Mapping[str, Any], intervals: list[int], shifts: list[float]) -> list[list[float]]:
    """Vary T with c at its base value, then c with T at its base value."""
    return [[T, base["c"]] for T in intervals] + [[base["T"], c] for c in shifts if c != base["c"]]


_BASE = {"T": 10_000, "c": 5.0}
_QUICK_BASE = {"T": 100, "c": 5.0}
_COMMON = {"hidden_sizes": [256], "batch": 128, "rate": 3e-3}

EXPERIMENT = Experiment(
    name="pl-partition-figure-4",
    paper="Ma et al. (2021), figure 4",
    title="Sensitivity of the midpoint rule to T and c",
    configurations={
        "quick": {
            **_COMMON,
            "base": _QUICK_BASE,
            "rules": _rules(_QUICK_BASE, [10, 100], [0.0, 5.0]),
            "data": {"wiki10-31k stand-in 1/20": {"seeds": 1, "epochs": 10, "scaling": "norm", "norm": 16.0}},
        },
        "full": {
            **_COMMON,
            "base": _BASE,
            "rules": _rules(_BASE, [10, 100, 1_000, 10_000], [0.0, 2.5, 5.0, 7.5, 10.0]),
            "data": {
                "delicious-1k": {"seeds": 1, "epochs": 2, "scaling": "none", "norm": 1.0},
                "wiki10-31k": {"seeds": 1, "epochs": 2, "scaling": "norm", "norm": 16.0},
                "wiki10-31k stand-in 1/20": {"seeds": 1, "epochs": 10, "scaling": "norm", "norm": 16.0},
            },
        },
    },
    cells=cells,
    run=run,
    find=find,
    data=("delicious-1k", "wiki10-31k"),
    minutes={"quick": 0.5, "full": 10},
)
