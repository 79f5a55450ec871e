"""Synthesis: simulated data, the protocol, tests of differences, and conclusions from results written by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plackett import BoostedRanker, LinearRanker, NeuralRanker
from plackett.data import make_tiered_lists
from plackett.data.splits import Fold
from plackett.experiments import DataFolder, read_results, run_experiment, write_results
from plackett.experiments.determinism import with_shuffled_rows
from plackett.experiments.framework import Results
from plackett.experiments.synthesis import real, simulation
from plackett.experiments.synthesis.differences import PairedDifference, count, differences, pays
from plackett.experiments.synthesis.fitted_models import EXACT, FAMILIES, LOSSES, OTHERS, fit_best, list_ndcg, mean_ndcg

SMALL_MODELS: dict[str, Any] = {
    "samples": 1, "l2": [1.0, 100.0], "tree_rates": [0.1], "linear_rates": [1e-2],
    "trees": {"n_estimators": 3, "num_leaves": 4, "early_stopping_rounds": 2},
    "neural": {"hidden_sizes": [4], "learning_rate": 1e-2, "epochs": 2, "early_stopping_rounds": 2},
}  # fmt: skip
SMALL: dict[str, Any] = {
    **SMALL_MODELS,
    "centre": {"upper": 0.3, "length": 20, "noise": 0.0},
    "axes": {"upper": [0.6], "length": [10], "noise": [0.3]},
    "seeds": 2, "documents": {"train": 200, "validation": 200, "test": 400}, "coefficients": [1.0, 0.5, 0.0],
}  # fmt: skip


@pytest.fixture
def nothing(tmp_path: Path) -> DataFolder:
    (tmp_path / "data").mkdir()
    return DataFolder(tmp_path / "data")


# Simulated data


def test_settings_differ_from_the_centre_in_one_quantity() -> None:
    full = simulation.EXPERIMENT.configurations["full"]
    centre, *others = simulation.settings(full)
    assert centre == full["centre"]
    assert len(others) == 9
    assert all(sum(setting[axis] != centre[axis] for axis in centre) == 1 for setting in others)


@pytest.mark.parametrize(
    ("setting", "sizes"),
    [
        ({"upper": 0.3, "length": 40, "noise": 0.0}, [28, 8, 4]),
        ({"upper": 0.9, "length": 40, "noise": 0.4}, [4, 24, 12]),
        ({"upper": 0.3, "length": 10, "noise": 0.1}, [7, 2, 1]),
    ],
)
def test_simulated_lists(setting: dict[str, Any], sizes: list[int]) -> None:
    fold, truth = simulation.make_fold(SMALL, {**setting, "seed": 3})
    for part, documents in zip(fold, (200, 200, 400), strict=True):
        assert len(part) == documents // setting["length"]
        labels = part.y.reshape(len(part), -1)
        assert all(np.bincount(row.astype(int)).tolist() == sizes for row in labels)
    np.testing.assert_allclose(truth, fold.test.X @ [1.0, 0.5, 0.0], rtol=1e-12)
    clean, _ = simulation.make_fold(SMALL, {**setting, "seed": 3})
    np.testing.assert_array_equal(clean.train.y, fold.train.y)


def test_noise_shuffles_a_share_of_each_list() -> None:
    data = make_tiered_lists(200, tier_sizes=[1] * 20, random_state=0)
    moved = simulation._shuffled(data, 0.5, np.random.default_rng(1)).y.reshape(200, 20) != data.y.reshape(200, 20)
    assert moved.sum(axis=1).max() <= 10
    # On average, a shuffle of ten different grades leaves one in place.
    assert moved.sum(axis=1).mean() == pytest.approx(9.0, abs=0.3)
    assert not (simulation._shuffled(data, 0.0, np.random.default_rng(1)).y != data.y).any()


class Fixed:
    """A model that always predicts the given scores."""

    def __init__(self, scores: Any) -> None:
        self._scores = np.asarray(scores)

    def predict_data(self, _: Any) -> Any:
        return self._scores


def test_measures_of_known_scores() -> None:
    fold, truth = simulation.make_fold(SMALL, {**SMALL["centre"], "seed": 0})
    shift = np.repeat(np.arange(len(fold.test), dtype=float), 20)  # shifting whole lists makes no difference
    right, doubled, equal = (
        simulation._measures(Fixed(s), fold.test, truth) for s in (truth + shift, 2.0 * truth, 0.0 * truth)
    )
    assert right["correlation"] == doubled["correlation"] == 1.0
    assert right["mse"] == pytest.approx(0.0, abs=1e-12)
    assert right["ndcg"] == doubled["ndcg"]
    assert right["log_likelihood"] > max(doubled["log_likelihood"], equal["log_likelihood"])
    assert equal["correlation"] == 0.0
    assert doubled["mse"] == pytest.approx(equal["mse"], rel=1e-5)  # six digits are kept


# The protocol


@pytest.mark.parametrize(
    ("family", "loss", "kind"),
    [
        ("linear", "partition", LinearRanker),
        ("linear", "lambdarank", NeuralRanker),
        ("neural", "listmle", NeuralRanker),
        ("trees", "lambdarank", BoostedRanker),
        ("trees", "listmle", BoostedRanker),
    ],
)
def test_each_family_uses_its_model(family: str, loss: str, kind: type) -> None:
    fold, _ = simulation.make_fold(SMALL, {**SMALL["centre"], "seed": 0})
    model = fit_best(family, loss, fold, SMALL, 0)
    assert type(model) is kind
    assert model.objective == loss
    if kind is NeuralRanker:
        assert tuple(model.hidden_sizes) == ((4,) if family == "neural" else ())
    if loss == "listmle":
        assert model.objective_options == {"ties": "stable"}


def test_validation_selects_the_model() -> None:
    fold, _ = simulation.make_fold(SMALL, {**SMALL["centre"], "seed": 0})
    upside_down = Fold(fold.train, replace(fold.validation, y=2.0 - fold.validation.y), fold.test)
    rates = {**SMALL, "tree_rates": [1e-9, 0.1]}  # the first leaves all scores practically equal
    assert fit_best("trees", EXACT, fold, rates, 0).learning_rate == 0.1
    strengths = {**SMALL, "l2": [1.0, 1e4]}
    for data in (fold, upside_down):
        found = {
            l2: mean_ndcg(fit_best("linear", EXACT, fold, {**SMALL, "l2": [l2]}, 0), data.validation)
            for l2 in strengths["l2"]
        }
        assert found[1.0] != found[1e4]
        best = fit_best("linear", EXACT, data, strengths, 0)
        assert best.l2 == max(found, key=lambda l2: found[l2])
    assert list_ndcg(best, fold.test).shape == (20,)


# Differences


def values_with(gains: dict[str, float], pairs: int = 12) -> dict[tuple[str, str], dict[str, Any]]:
    base = np.random.default_rng(0).normal(0.5, 0.1, pairs)
    noise = np.random.default_rng(1).normal(0.0, 0.001, (len(LOSSES), pairs))
    by_loss = {loss: base + gains.get(loss, 0.0) + noise[n] for n, loss in enumerate(LOSSES)}
    by_loss[EXACT][0] = np.nan  # a query without relevant documents
    return {("here", "linear"): by_loss}


def test_differences_and_their_verdicts() -> None:
    found = {one.loss: one for one in differences(values_with({"listmle": -0.02, "listnet": 0.02}), "holm")}
    assert {loss: one.verdict for loss, one in found.items()} == {
        "lower_bound": 0, "listmle": 1, "listpl": 0, "listnet": -1, "lambdarank": 0,
    }  # fmt: skip
    own = values_with({"listmle": -0.02})["here", "linear"]
    by_hand = (own["listmle"] - own[EXACT])[1:]
    assert found["listmle"].mean == pytest.approx(by_hand.mean(), rel=1e-12)
    assert found["listmle"].standard_error == pytest.approx(by_hand.std(ddof=1) / np.sqrt(11), rel=1e-12)
    assert count(list(found.values())) == "better in 1, worse in 1, not significantly different in 3 of 5"
    assert not pays(list(found.values()))
    assert pays(differences(values_with({"listmle": -0.02}), "holm"))
    assert not pays(differences(values_with({}), "holm"))


# From results to the page


def simulated(gain: float, growth: float) -> Results:
    """Build results in which all losses except the exact one trail by `gain`, and more where upper tiers are large."""
    results: Results = []
    for cell in simulation.cells({**SMALL, "seeds": 8}, DataFolder()):
        generator = np.random.default_rng([cell["seed"], round(10 * cell["upper"]), cell["length"]])
        result: dict[str, Any] = {}
        for family in FAMILIES:
            behind = gain + growth * (cell["upper"] > 0.5)
            result[family] = {
                loss: {
                    measure: 0.7 - behind * (loss != EXACT) + float(generator.normal(0.0, 1e-3))
                    for measure in ("ndcg", "correlation", "log_likelihood", "mse")
                }
                for loss in LOSSES
            }
        results.append((cell, result))
    return results


def test_paragraph_matches_the_results() -> None:
    pays_more = simulation.find(SMALL, simulated(0.02, 0.05))
    assert all(claim.holds for claim in pays_more.claims)
    text = pays_more.sections[0].text
    assert "better in 60, worse in 0, not significantly different in 0 of 60" in text
    assert "grows over lower_bound with the share of the list in the upper tiers" in text
    assert "shrinks over none" in text
    assert "Largest losses: none that are significant" in text

    costs = simulation.find(SMALL, simulated(-0.02, -0.05))
    assert not any(claim.holds for claim in costs.claims)
    text = costs.sections[0].text
    assert "better in 0, worse in 60" in text
    assert "grows over none" in text
    assert "Largest gains: none that are significant" in text
    assert "Largest losses: -0.07" in text

    level = simulation.find(SMALL, simulated(0.02, 0.0))
    assert [claim.holds for claim in level.claims] == [True, True, True, False, False]
    assert "grows over none. It shrinks over none" in level.sections[0].text


def test_simulation_from_training_to_the_page(nothing: DataFolder, tmp_path: Path) -> None:
    configuration = {**SMALL, "l2": [1.0], "axes": {"upper": [0.6], "length": [10], "noise": [0.3]}}
    experiment = replace(simulation.EXPERIMENT, configurations={"quick": configuration})
    results = run_experiment(experiment, "quick", tmp_path / "cells", data=nothing, progress=False)
    findings = experiment.find(configuration, results)
    assert len(findings.rows) == 4 * len(FAMILIES) * len(LOSSES)
    assert len(findings.claims) == 5
    assert [len(section.blocks) for section in findings.sections] == [1, 9, 9, 1]
    paths = write_results(experiment, "quick", results, tmp_path, data=nothing, command="plackett reproduce")
    assert [path.suffix for path in paths] == [".json", ".csv", ".html", ".png"]
    assert experiment.find(configuration, read_results(paths[0])[1]).claims == findings.claims
    cell, result = results[0]
    assert experiment.run(configuration, cell, nothing) == result


def test_rows_are_shuffled_within_lists() -> None:
    data = make_tiered_lists(5, tier_sizes=(1, 4, 15), random_state=0)
    shuffled = with_shuffled_rows(data, 0)
    assert (shuffled.X != data.X).any()
    np.testing.assert_array_equal(shuffled.qid, data.qid)
    for first, last in zip(data.offsets, data.offsets[1:], strict=False):
        before, after = (
            sorted(map(tuple, np.column_stack([d.X[first:last], d.y[first:last]]).tolist())) for d in (data, shuffled)
        )
        assert before == after


def test_real_lists_from_training_to_the_page(nothing: DataFolder, tmp_path: Path) -> None:
    plans = [
        {"data": "mslr stand-in", "lists": 6, "folds": 2, "seeds": 1},
        {"data": "mq2008", "folds": 5, "seeds": 1},
    ]
    configuration = {**SMALL_MODELS, "l2": [10.0], "plans": plans}
    experiment = replace(real.EXPERIMENT, configurations={"quick": configuration})
    results = run_experiment(experiment, "quick", tmp_path / "cells", data=nothing, progress=False)
    assert [cell["data"] for cell, _ in results] == ["mslr stand-in"] * 6
    findings = experiment.find(configuration, results)
    assert [(row["family"], row["loss"]) for row in findings.rows] == [(f, loss) for f in FAMILIES for loss in LOSSES]
    (claim,) = findings.claims
    assert "of 15" in claim.evidence
    paths = write_results(experiment, "quick", results, tmp_path, data=nothing, command="plackett reproduce")
    assert [path.suffix for path in paths] == [".json", ".csv", ".html", ".png"]


def test_claims_on_real_lists() -> None:
    for gain, holds in ((0.02, True), (-0.02, False), (0.0, False)):
        own = values_with(dict.fromkeys(OTHERS, -gain))["here", "linear"]
        result = {loss: [None if np.isnan(value) else float(value) for value in own[loss]] for loss in LOSSES}
        results: Results = [({"data": "mq2008", "family": family, "fold": 0}, result) for family in FAMILIES]
        findings = real.find({}, results)
        assert findings.claims[0].holds is holds
        assert f"{'better' if gain > 0 else 'worse'} in {15 if gain else 0}" in findings.sections[0].text


def test_verdict_needs_a_small_p_value() -> None:
    one = PairedDifference("here", "linear", "listnet", -0.1, 0.01, 0.001)
    assert [one.verdict, replace(one, mean=0.1).verdict, replace(one, p=0.05).verdict] == [1, -1, 0]
