"""Lists simulated from Plackett-Luce with a linear score: where exact ties help as tiers, lists and noise grow.

There are three grades. The upper two cover a given share of each list, and the top grade a third of that share. Each
setting varies one quantity around a central setting; all have the same number of training documents. Noise is the share
of items in each training and validation list whose grades are shuffled among them; test lists are clean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett import partition_log_likelihood
from plackett.data import RankingData, make_tiered_lists
from plackett.data.splits import Fold
from plackett.experiments.datasets import DataFolder
from plackett.experiments.determinism import one_thread
from plackett.experiments.framework import Cell, Claim, Experiment, Findings, Results
from plackett.experiments.synthesis.differences import LEVEL, PairedDifference, count, differences, pays, standard_error
from plackett.experiments.synthesis.fitted_models import EXACT, FAMILIES, LOSSES, OTHERS, fit_best, mean_ndcg
from plackett.metrics import correct
from plackett.report.page import Axis, Column, LinePlot, Section, Series, Table

Floats = npt.NDArray[np.float64]
Values = dict[tuple[str, str], dict[str, Floats]]

AXES = {
    "upper": Axis("share of the list in the upper tiers", log=True),
    "length": Axis("list length", "documents", log=True),
    "noise": Axis("share of shuffled grades"),
}
MEASURES = {
    "ndcg": "NDCG@10",
    "correlation": "correlation",
    "log_likelihood": "log-likelihood",
}
"""Higher is better. The table also has the squared error of the scores, which depends on their scale."""

CORRECTION = "benjamini-hochberg"
"""Controls the many comparisons: at most 5% of the differences called significant are expected to be false."""

REMARKS = (
    "The true scores are linear, so all three families can represent them; we compare losses within a family. All data "
    "come from the model that the exact likelihood assumes, except for the shuffled grades, which no loss assumes.",
    "Only losses that are likelihoods of the tiers estimate the scale of the scores, so the others cannot do well by "
    "squared error or likelihood. NDCG@10 and the correlation within lists ignore the scale.",
    "ListMLE uses one fixed order of tied documents, as published. ListPL draws a new order at every step or tree; the "
    "linear model averages over several draws.",
)


def settings(configuration: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the central setting and those that differ from it in one quantity."""
    centre = configuration["centre"]
    moved = [{**centre, axis: value} for axis in AXES for value in configuration["axes"][axis]]
    return list({_name(setting): setting for setting in [centre, *moved]}.values())


def _name(setting: Mapping[str, Any]) -> str:
    return ", ".join(f"{axis} {setting[axis]:g}" for axis in AXES)


def cells(configuration: Mapping[str, Any], _: DataFolder) -> list[Cell]:
    return [{**setting, "seed": seed} for seed in range(configuration["seeds"]) for setting in settings(configuration)]


def run(configuration: Mapping[str, Any], cell: Cell, _: DataFolder) -> dict[str, Any]:
    fold, truth = make_fold(configuration, cell)
    with one_thread():
        return {
            family: {
                loss: _measures(fit_best(family, loss, fold, configuration, cell["seed"]), fold.test, truth)
                for loss in LOSSES
            }
            for family in FAMILIES
        }


def make_fold(configuration: Mapping[str, Any], cell: Cell) -> tuple[Fold, Floats]:
    """Generate the data of a cell; return them with the true scores of the test lists."""
    length = cell["length"]
    upper = max(2, round(cell["upper"] * length))
    best = max(1, round(upper / 3))
    generator = np.random.default_rng([cell["seed"], length, upper, round(1000 * cell["noise"])])
    parts = [
        make_tiered_lists(
            max(1, configuration["documents"][part] // length),
            tier_sizes=(best, upper - best, length - upper),
            coefficients=configuration["coefficients"],
            random_state=generator,
        )
        for part in ("train", "validation", "test")
    ]
    noisy = [_shuffled(part, cell["noise"], generator) for part in parts[:2]]
    return Fold(noisy[0], noisy[1], parts[2]), parts[2].X @ np.array(configuration["coefficients"])


def _shuffled(data: RankingData, share: float, generator: np.random.Generator) -> RankingData:
    """Shuffle the grades of a random share of each list among those items. All lists must have the same length."""
    labels = data.y.reshape(len(data), -1).copy()
    length = labels.shape[1]
    chosen = generator.permuted(np.tile(np.arange(length), (len(data), 1)), axis=1)[:, : round(share * length)]
    among = generator.permuted(chosen, axis=1)
    np.put_along_axis(labels, chosen, np.take_along_axis(labels, among, axis=1), axis=1)
    return replace(data, y=labels.reshape(-1))


def _measures(model: Any, test: RankingData, truth: Floats) -> dict[str, float]:
    scores = model.predict_data(test)
    ours, true = (_centred(values, len(test)) for values in (scores, truth))
    likelihood = partition_log_likelihood(scores, test.y, offsets=test.offsets)
    norms = float(np.linalg.norm(ours) * np.linalg.norm(true))
    found = {
        "ndcg": mean_ndcg(model, test),
        "correlation": float(ours @ true) / norms if norms else 0.0,
        "log_likelihood": float(likelihood.sum()) / len(scores),
        "mse": float(np.mean((ours - true) ** 2)),
    }
    return {name: float(f"{value:.6g}") for name, value in found.items()}


def _centred(values: Floats, lists: int) -> Floats:
    table = values.reshape(lists, -1)
    centred: Floats = table - table.mean(axis=1, keepdims=True)
    return centred.reshape(-1)


# Findings


def _values(configuration: Mapping[str, Any], results: Results, measure: str) -> Values:
    """Return the values of each loss, one per seed, by setting and family."""
    return {
        (_name(setting), family): {
            loss: np.array([result[family][loss][measure] for cell, result in results if _name(cell) == _name(setting)])
            for loss in LOSSES
        }
        for setting in settings(configuration)
        for family in FAMILIES
    }


def find(configuration: Mapping[str, Any], results: Results) -> Findings:
    values = {measure: _values(configuration, results, measure) for measure in (*MEASURES, "mse")}
    found = {measure: differences(values[measure], CORRECTION) for measure in MEASURES}
    trends = _trends(configuration, values["ndcg"])
    rows = _rows(configuration, values, found)
    sections = [
        Section("Benefit of exact ties", [_trend_table(trends)], paragraph(found, trends)),
        *(
            Section(f"{MEASURES[measure]}: differences", _plots(configuration, measure, found[measure]))
            for measure in ("ndcg", "correlation")
        ),
        Section("All settings", [_table(rows)]),
    ]
    return Findings(sections, _claims(found, trends), rows, remarks=REMARKS)


def _rows(
    configuration: Mapping[str, Any], values: Mapping[str, Values], found: Mapping[str, list[PairedDifference]]
) -> list[dict[str, Any]]:
    tested = {(measure, one.where, one.family, one.loss): one for measure, many in found.items() for one in many}
    rows = []
    for setting in settings(configuration):
        for family in FAMILIES:
            for loss in LOSSES:
                row: dict[str, Any] = {**setting, "family": family, "loss": loss}
                for measure in (*MEASURES, "mse"):
                    row[measure] = float(np.mean(values[measure][_name(setting), family][loss]))
                for measure in MEASURES:
                    one = tested.get((measure, _name(setting), family, loss))
                    row[f"{measure}_difference"] = one and one.mean
                    row[f"{measure}_se"] = one and one.standard_error
                    row[f"{measure}_p"] = one and one.p
                rows.append(row)
    return rows


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    columns: dict[str, str | Column] = {
        **{axis: AXES[axis].title for axis in AXES}, "family": "model", "loss": "loss",
        "ndcg": Column("NDCG@10", format=".4f"), "ndcg_difference": Column("minus partition", format="+.4f"),
        "ndcg_se": Column("standard error", format=".4f"), "ndcg_p": Column("p (corrected)", format=".2g"),
        "correlation": Column("correlation", format=".4f"), "log_likelihood": Column("log-likelihood", format=".4f"),
        "mse": Column("squared error", format=".3g"),
    }  # fmt: skip
    caption = (
        "Means over seeds. Correlation and squared error compare estimated and true scores within lists; the "
        "log-likelihood is that of the tiers of the test lists, in nats per document."
    )
    return Table(list(columns.values()), [[row[key] for key in columns] for row in rows], caption)


def _plots(configuration: Mapping[str, Any], measure: str, found: Sequence[PairedDifference]) -> list[LinePlot]:
    by = {(one.where, one.family, one.loss): one for one in found}
    plots = []
    for axis in AXES:
        for family in FAMILIES:
            series = []
            for loss in OTHERS:
                points = [by[name, family, loss] for name in _names_on_axis(configuration, axis)]
                y = np.array([one.mean for one in points])
                reach = 2.0 * np.array([one.standard_error for one in points])
                series.append(Series(loss, y, _values_on_axis(configuration, axis), y - reach, y + reach))
            plots.append(
                LinePlot(
                    series, AXES[axis], Axis(f"{MEASURES[measure]} minus {EXACT}", reference=(0.0, EXACT)),
                    f"{family}, by {AXES[axis].title}; bars show two standard errors", error_bars=True,
                )
            )  # fmt: skip
    return plots


def _values_on_axis(configuration: Mapping[str, Any], axis: str) -> list[float]:
    return sorted({*configuration["axes"][axis], configuration["centre"][axis]})


def _names_on_axis(configuration: Mapping[str, Any], axis: str) -> list[str]:
    return [_name({**configuration["centre"], axis: value}) for value in _values_on_axis(configuration, axis)]


@dataclass(frozen=True)
class _Trend:
    """The gain of the exact likelihood over a loss in NDCG@10, averaged over families, at both ends of an axis.

    `p` comes from Welch's two-tailed t-test, with Holm's correction for all trends.
    """

    axis: str
    loss: str
    ends: tuple[float, float]
    gains: tuple[Floats, Floats]
    p: float

    @property
    def direction(self) -> str:
        first, last = (gain.mean() for gain in self.gains)
        if self.p >= LEVEL or first == last:
            return "no trend"
        return "grows" if last > first else "shrinks"


def _trends(configuration: Mapping[str, Any], values: Values) -> list[_Trend]:
    from scipy.stats import ttest_ind

    found = []
    for axis in AXES:
        along, names = _values_on_axis(configuration, axis), _names_on_axis(configuration, axis)
        for loss in OTHERS:
            first, last = (
                np.mean([values[name, family][EXACT] - values[name, family][loss] for family in FAMILIES], axis=0)
                for name in (names[0], names[-1])
            )
            p = float(ttest_ind(first, last, equal_var=False).pvalue)
            found.append(_Trend(axis, loss, (along[0], along[-1]), (first, last), p))
    raised = correct([one.p for one in found], "holm")
    return [replace(one, p=float(p)) for one, p in zip(found, raised, strict=True)]


def _trend_table(trends: Sequence[_Trend]) -> Table:
    columns: list[str | Column] = [
        "from", "to", "compared with", Column("gain at start", format="+.4f"), Column("standard error", format=".4f"),
        Column("gain at end", format="+.4f"), Column("standard error", format=".4f"),
        Column("p (Welch, Holm)", format=".2g"), "trend of the gain",
    ]  # fmt: skip
    rows = [
        [
            f"{AXES[one.axis].title} {one.ends[0]:g}", f"{one.ends[1]:g}", one.loss,
            *(number for gain in one.gains for number in (float(gain.mean()), standard_error(gain))),
            one.p, one.direction,
        ]
        for one in trends
    ]  # fmt: skip
    caption = "Gain of the exact likelihood in NDCG@10, averaged over the three families."
    return Table(columns, rows, caption)


def paragraph(found: Mapping[str, Sequence[PairedDifference]], trends: Sequence[_Trend]) -> str:
    """Summarise the numbers in words, for or against the exact likelihood."""
    by_measure = [f"{MEASURES[measure]}: {count(many)}" for measure, many in found.items()]
    ranking = found["ndcg"]
    by_loss = [f"{loss} {count([one for one in ranking if one.loss == loss])}" for loss in OTHERS]
    by_family = [f"{family} {count([one for one in ranking if one.family == family])}" for family in FAMILIES]
    grows = [f"{one.loss} with the {AXES[one.axis].title}" for one in trends if one.direction == "grows"]
    shrinks = [f"{one.loss} with the {AXES[one.axis].title}" for one in trends if one.direction == "shrinks"]
    worst = sorted((one for one in ranking if one.verdict < 0), key=lambda one: -one.mean)[:3]
    best = sorted((one for one in ranking if one.verdict > 0), key=lambda one: one.mean)[:3]
    return "\n\n".join(
        [
            "We compare the exact likelihood with every other loss in the same model on the same lists, once for each "
            "setting, family and loss (paired t-tests over seeds, Benjamini-Hochberg correction, 5%). Results of the "
            f"exact likelihood, by measure: {'; '.join(by_measure)}.",
            f"NDCG@10, by competing loss: {'; '.join(by_loss)}. By family: {'; '.join(by_family)}.",
            f"The gain in NDCG@10 grows over {_join_trends(grows)}. It shrinks over {_join_trends(shrinks)}.",
            f"Largest gains: {_describe_differences(best)}. Largest losses: {_describe_differences(worst)}.",
        ]
    )


def _join_trends(texts: Sequence[str]) -> str:
    return "; over ".join(texts) or "none"


def _describe_differences(found: Sequence[PairedDifference]) -> str:
    named = [f"{-one.mean:+.4f} over {one.loss} ({one.family}; {one.where})" for one in found]
    return "; ".join(named) or "none that are significant"


def _claims(found: Mapping[str, Sequence[PairedDifference]], trends: Sequence[_Trend]) -> list[Claim]:
    claims = [
        Claim(
            f"By {MEASURES[measure]}, the exact likelihood is significantly better than another loss in some "
            "comparisons and significantly worse in none",
            pays(many),
            f"the exact likelihood is {count(many)} (paired t-tests over seeds, Benjamini-Hochberg)",
        )
        for measure, many in found.items()
    ]
    for loss in ("lower_bound", "listmle"):
        (trend,) = (one for one in trends if (one.axis, one.loss) == ("upper", loss))
        ends = [f"{gain.mean():+.4f} (standard error {standard_error(gain):.4f})" for gain in trend.gains]
        claims.append(
            Claim(
                f"The larger the upper tiers, the more the exact likelihood gains over {loss} in NDCG@10",
                trend.direction == "grows",
                f"gain {ends[0]} at a share of {trend.ends[0]:g}, {ends[1]} at {trend.ends[1]:g}, averaged over "
                f"families; p = {trend.p:.2g}",
            )
        )
    return claims


_COEFFICIENTS = [1.0, 0.8, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0, 0.0]

EXPERIMENT = Experiment(
    name="synthesis-simulation",
    paper="our own experiment",
    title="Benefit of exact ties on simulated lists",
    configurations={
        "quick": {
            "centre": {"upper": 0.3, "length": 20, "noise": 0.0},
            "axes": {"upper": [0.6], "length": [10], "noise": [0.3]},
            "seeds": 2, "documents": {"train": 600, "validation": 600, "test": 2000},
            "coefficients": _COEFFICIENTS, "samples": 5, "l2": [0.01], "tree_rates": [0.1, 1.0],
            "trees": {"n_estimators": 20, "num_leaves": 8, "early_stopping_rounds": 5},
            "neural": {
                "hidden_sizes": [16], "learning_rate": 1e-2, "epochs": 6, "batch_size": 256, "early_stopping_rounds": 3,
            },
            "linear_rates": [1e-2, 1e-1],
        },
        "full": {
            "centre": {"upper": 0.3, "length": 40, "noise": 0.0},
            "axes": {"upper": [0.075, 0.15, 0.6, 0.9], "length": [10, 160], "noise": [0.1, 0.2, 0.4]},
            "seeds": 5, "documents": {"train": 4000, "validation": 4000, "test": 40000},
            "coefficients": _COEFFICIENTS, "samples": 10, "l2": [0.01], "tree_rates": [0.1, 1.0, 10.0],
            "trees": {"n_estimators": 200, "num_leaves": 8, "early_stopping_rounds": 15},
            "neural": {
                "hidden_sizes": [32], "learning_rate": 3e-3, "epochs": 30, "batch_size": 256,
                "early_stopping_rounds": 6,
            },
            "linear_rates": [1e-2, 1e-1],
        },
    },
    cells=cells,
    run=run,
    find=find,
    minutes={"quick": 1, "full": 15},
)  # fmt: skip
