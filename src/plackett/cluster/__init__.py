"""More than one machine, by Dask: trees, aggregation and metrics of data that no machine holds whole (docs/dask.md).

lists        Dask collections in parts of whole lists
workers      one task on each worker, which can talk to each other; what happens if one is lost
boosted      BoostedRanker
aggregation  RankAggregator
labels       evaluation

Dask is imported where it is used.
"""

from plackett.cluster.labels import SpreadLabels
from plackett.cluster.lists import are_spread, is_spread, map_rows
from plackett.cluster.workers import WorkerLostError

__all__ = ["SpreadLabels", "WorkerLostError", "are_spread", "is_spread", "map_rows"]
