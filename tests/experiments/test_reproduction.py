"""Stored full-scale results: they match the declared configurations, and the key claims hold."""

import json
from pathlib import Path

import pytest

from plackett.experiments import EXPERIMENTS, get_experiment, read_results
from plackett.experiments.document import document

STORED = Path(__file__).parents[2] / "docs" / "reproduction"


def test_results_of_every_experiment_are_stored() -> None:
    assert {path.stem for path in STORED.glob("*.json")} == {f"{name}-full" for name in EXPERIMENTS}


@pytest.mark.parametrize("path", sorted(STORED.glob("*-full.json")), ids=lambda path: path.stem)
def test_stored_results_match_the_declared_configuration(path: Path) -> None:
    about, results = read_results(path)
    experiment = get_experiment(about["experiment"])
    assert about["configuration"] == json.loads(json.dumps(experiment.configurations["full"]))
    findings = experiment.find(about["configuration"], results)
    assert [vars(claim) for claim in findings.claims] == about["claims"]
    # Rows store all digits; other library versions and processors round the last ones differently.
    for row, kept in zip(json.loads(json.dumps([dict(row) for row in findings.rows])), about["rows"], strict=True):
        assert row.keys() == kept.keys()
        for name, value in row.items():
            assert value == (pytest.approx(kept[name], rel=1e-9, abs=1e-12) if isinstance(value, float) else kept[name])


def test_document_matches_the_stored_results() -> None:
    assert (STORED.parent / "reproduction.md").read_text() == document(STORED, STORED.parent)


# Claims of the papers that must hold here


def claims(name: str) -> dict[str, bool]:
    about, results = read_results(STORED / f"{name}-full.json")
    found = get_experiment(name).find(about["configuration"], results)
    return {claim.text: claim.holds for claim in found.claims}


def test_exact_likelihood_recovers_utilities_best() -> None:
    (held,) = (holds for text, holds in claims("pl-partition-figure-1").items() if "at every (N, n)" in text)
    assert held


def test_time_approaches_the_lower_bound() -> None:
    assert claims("pl-partition-figure-2")["The time of PL-Partition approaches that of PL-LB as N grows"]


@pytest.mark.parametrize("data", ["D-1K", "E-4K"])
def test_labels_are_ranked_better_than_with_the_lower_bound(data: str) -> None:
    assert claims("pl-partition-table-1")[f"PL-Partition is ahead of PL-LB in every measure on {data}"]


def test_listpl_claims_report_p_values() -> None:
    about, _ = read_results(STORED / "listpl-figure-2-full.json")
    claimed = "ListPL ranks test queries better than ListNet and ListMLE"
    evidence = [claim["evidence"] for claim in about["claims"] if claim["text"].startswith(claimed)]
    assert evidence
    assert all("p = " in text for text in evidence)
