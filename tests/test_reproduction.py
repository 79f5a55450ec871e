"""Results of the full scale, which are kept: they are those of the declared configurations, and what they show."""

import json
from pathlib import Path

import pytest

from plackett.experiments import EXPERIMENTS, get_experiment, read_results
from plackett.experiments.document import document

STORED = Path(__file__).parents[1] / "docs" / "reproduction"


def test_results_of_every_experiment_are_stored() -> None:
    assert {path.stem for path in STORED.glob("*.json")} == {f"{name}-full" for name in EXPERIMENTS}


@pytest.mark.parametrize("path", sorted(STORED.glob("*-full.json")), ids=lambda path: path.stem)
def test_stored_results_are_those_of_the_declared_configuration(path: Path) -> None:
    about, results = read_results(path)
    experiment = get_experiment(about["experiment"])
    assert about["configuration"] == json.loads(json.dumps(experiment.configurations["full"]))
    findings = experiment.find(about["configuration"], results)
    assert [vars(claim) for claim in findings.claims] == about["claims"]
    # Means and p values of all digits: other versions of libraries and other processors round the last ones otherwise.
    for row, kept in zip(json.loads(json.dumps([dict(row) for row in findings.rows])), about["rows"], strict=True):
        assert row.keys() == kept.keys()
        for name, value in row.items():
            assert value == (pytest.approx(kept[name], rel=1e-9, abs=1e-12) if isinstance(value, float) else kept[name])


def test_the_document_is_that_of_the_stored_results() -> None:
    assert (STORED.parent / "reproduction.md").read_text() == document(STORED, STORED.parent)


# What the papers say and must hold here


def claims(name: str) -> dict[str, bool]:
    about, results = read_results(STORED / f"{name}-full.json")
    found = get_experiment(name).find(about["configuration"], results)
    return {claim.text: claim.holds for claim in found.claims}


def test_utilities_are_recovered_best_by_the_exact_likelihood() -> None:
    (held,) = (holds for text, holds in claims("pl-partition-figure-1").items() if "at every (N, n)" in text)
    assert held


def test_time_approaches_that_of_the_lower_bound() -> None:
    assert claims("pl-partition-figure-2")["The time of PL-Partition approaches that of PL-LB as N grows"]


@pytest.mark.parametrize("data", ["D-1K", "E-4K"])
def test_labels_are_ranked_better_than_by_the_lower_bound(data: str) -> None:
    assert claims("pl-partition-table-1")[f"PL-Partition is above PL-LB on every measure of {data}"]


def test_whether_listpl_is_above_its_rivals_is_said_with_a_test() -> None:
    about, _ = read_results(STORED / "listpl-figure-2-full.json")
    claimed = "ListPL ranks test queries better than ListNet and ListMLE"
    evidence = [claim["evidence"] for claim in about["claims"] if claim["text"].startswith(claimed)]
    assert evidence
    assert all("p = " in text for text in evidence)
