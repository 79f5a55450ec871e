"""The experiments of the papers, each by name: `plackett reproduce NAME`.

framework      configurations, cells that are computed once, results on disk
datasets       where the data of the papers are; ranking_data and multilabel_data load them or what stands in for them
results        JSON, CSV, a picture and a page of what was found; document, docs/reproduction.md of all of it
pl_partition   Ma et al. (2021)
listpl         Jagerman et al. (2017)
plrank         the preprint that presents PLRank
synthesis      in none of the papers: every loss in every kind of model
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

EXPERIMENTS = {
    "pl-partition-figure-1": "pl_partition.utilities",
    "pl-partition-figure-2": "pl_partition.costs",
    "pl-partition-figure-4": "pl_partition.midpoint",
    "pl-partition-table-1": "pl_partition.multilabel",
    "pl-partition-table-2": "pl_partition.embeddings",
    "pl-partition-table-3": "pl_partition.statistics",
    "listpl-figure-2": "listpl.curves",
    "plrank-table-1": "plrank.table_1",
    "plrank-table-2": "plrank.table_2",
    "plrank-table-3": "plrank.table_3",
    "plrank-table-4": "plrank.table_4",
    "plrank-table-5": "plrank.table_5",
    "plrank-figure-1": "plrank.figure_1",
    "plrank-figure-2": "plrank.figure_2",
    "plrank-figure-3": "plrank.figure_3",
    "synthesis-simulation": "synthesis.simulation",
    "synthesis-real": "synthesis.real",
}
"""The module that declares each, as EXPERIMENT."""


def get_experiment(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise ValueError(f"experiment must be one of {', '.join(EXPERIMENTS)}, got {name!r}")
    found: Experiment = import_module(f"plackett.experiments.{EXPERIMENTS[name]}").EXPERIMENT
    return found
