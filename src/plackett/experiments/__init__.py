"""The experiments of the papers, each by name: `plackett reproduce NAME`.

framework      configurations, cells that are computed once, results on disk
datasets       where the data of the papers are; ranking_data loads graded lists or what stands in for them
results        JSON, CSV, a picture and a page of what was found; document, docs/reproduction.md of all of it
pl_partition   Ma et al. (2021)
"""

from importlib import import_module

from plackett.experiments.datasets import DataFolder
from plackett.experiments.framework import SCALES, Claim, Experiment, Findings, run_experiment
from plackett.experiments.results import read_results, write_results

__all__ = [
    "EXPERIMENTS",
    "SCALES",
    "Claim",
    "DataFolder",
    "Experiment",
    "Findings",
    "get_experiment",
    "read_results",
    "run_experiment",
    "write_results",
]

EXPERIMENTS = {"pl-partition-figure-1": "pl_partition.utilities"}
"""The module that declares each, as EXPERIMENT or by the name after a colon."""


def get_experiment(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise ValueError(f"experiment must be one of {', '.join(EXPERIMENTS)}, got {name!r}")
    module, _, attribute = EXPERIMENTS[name].partition(":")
    found: Experiment = getattr(import_module(f"plackett.experiments.{module}"), attribute or "EXPERIMENT")
    return found
