"""Results of the full scale, which are kept: they are those of the declared configurations, and what they show."""

import json
from pathlib import Path

import pytest

from plackett.experiments import get_experiment, read_results
from plackett.experiments.document import document

STORED = Path(__file__).parents[1] / "docs" / "reproduction"


@pytest.mark.parametrize("path", sorted(STORED.glob("*-full.json")), ids=lambda path: path.stem)
def test_stored_results_are_those_of_the_declared_configuration(path: Path) -> None:
    about, results = read_results(path)
    experiment = get_experiment(about["experiment"])
    assert about["configuration"] == json.loads(json.dumps(experiment.configurations["full"]))
    findings = experiment.find(about["configuration"], results)
    assert [vars(claim) for claim in findings.claims] == about["claims"]
    assert json.loads(json.dumps([dict(row) for row in findings.rows])) == about["rows"]


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
