"""More than one process: Dask clusters and the process groups of torchrun.

Start with `dask_workers` (one task on each worker, and what happens if one is lost) or `process_mesh` (processes that
train one network together). May import: the model families and everything below them.

dask_lists         Dask collections in parts of whole lists
dask_boosted       BoostedRanker on Dask
dask_aggregation   RankAggregator on Dask
dask_labels        evaluation on Dask
process_mesh       torch process groups as a mesh of data x labels

Dask and torch are imported where they are used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from plackett.arguments import is_dask
from plackett.distributed.dask_labels import DaskLabels
from plackett.distributed.dask_lists import DaskRows, are_dask, map_rows
from plackett.distributed.dask_workers import WorkerLostError

if TYPE_CHECKING:
    from plackett.distributed.process_mesh import LostProcessError, ProcessMesh, current_processes, join_process_group

_NEED_TORCH = ("LostProcessError", "ProcessMesh", "current_processes", "join_process_group")

__all__ = [
    "DaskLabels",
    "DaskRows",
    "LostProcessError",
    "ProcessMesh",
    "WorkerLostError",
    "are_dask",
    "current_processes",
    "is_dask",
    "join_process_group",
    "map_rows",
]


def __getattr__(name: str) -> Any:
    if name in _NEED_TORCH:
        return getattr(import_module("plackett.distributed.process_mesh"), name)
    raise AttributeError(f"module 'plackett.distributed' has no attribute {name!r}")
