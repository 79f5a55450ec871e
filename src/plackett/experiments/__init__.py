"""The experiments of the papers, each by name: `plackett reproduce NAME`.

framework      configurations, cells that are computed once, results on disk
results        JSON, CSV and a page of what was found
pl_partition   Ma et al. (2021)
"""

from importlib import import_module

from plackett.experiments.framework import SCALES, Claim, Experiment, Findings, run_experiment
from plackett.experiments.results import write_results

__all__ = [
    "EXPERIMENTS",
    "SCALES",
    "Claim",
    "Experiment",
    "Findings",
    "get_experiment",
    "run_experiment",
    "write_results",
]

EXPERIMENTS = {"pl-partition-figure-1": "pl_partition.utilities"}
"""The module that declares each."""


def get_experiment(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise ValueError(f"experiment must be one of {', '.join(EXPERIMENTS)}, got {name!r}")
    found: Experiment = import_module(f"plackett.experiments.{EXPERIMENTS[name]}").EXPERIMENT
    return found
