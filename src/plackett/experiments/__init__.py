"""The experiments of three papers and two of our own, run by `plackett reproduce NAME`.

`pl_partition`, `listpl` and `plrank` hold one paper each, `synthesis` our own, `baselines` the rival classifiers.
Start reading at `framework`. `datasets`, `ranking_data` and `multilabel_data` load data, `determinism` and `timing`
serve all; `results` and `document` write reports; `tie_demo` and `tie_bias` serve `plackett demo`, `tie_costs` serves
`plackett bench`. This package may import anything in Plackett except `cli`, and only `cli` may import it. It
lives inside the package because `plackett reproduce` must work from an installed wheel.
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
    "pl-partition-figure-4": "pl_partition.midpoint_errors",
    "pl-partition-table-1": "pl_partition.multilabel_table",
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
"""Experiment name -> the module that declares it as EXPERIMENT."""


def get_experiment(name: str) -> Experiment:
    """Import and return the experiment with this name."""
    if name not in EXPERIMENTS:
        raise ValueError(f"experiment must be one of {', '.join(EXPERIMENTS)}, got {name!r}")
    found: Experiment = import_module(f"plackett.experiments.{EXPERIMENTS[name]}").EXPERIMENT
    return found
