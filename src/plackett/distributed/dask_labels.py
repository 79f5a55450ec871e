"""Labels and scores that stay in their partitions, which return the values of metrics, one per list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.distributed.dask_lists import Block, aligned_blocks, import_dask, make_layout, whole_lists

Values = dict[tuple[str, str], npt.NDArray[np.float64]]
"""Values by system and metric, one per list."""


@dataclass(frozen=True, eq=False)
class DaskLabels:
    """Labels of lists in a Dask collection, for `plackett.evaluation.evaluate`, whose scores are partitioned like them.

    Args:
        labels: one per row; or without qid and group an array whose blocks are CSR, rows with labels among many.
        qid: the list of each row; the rows of a list follow each other, but may be in several partitions.
        group: sizes of consecutive lists.
    """

    labels: Any
    qid: Any = None
    group: Any = None

    def __post_init__(self) -> None:
        if self.qid is not None and self.group is not None:
            raise ValueError("at most one of qid and group may be given, got both")

    @property
    def is_multilabel(self) -> bool:
        return self.qid is None and self.group is None

    def values(self, systems: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]) -> Values:
        """Every metric of every system, list by list."""
        dask = import_dask()
        columns = {"labels": self.labels} | {f"scores of {name}": scores for name, scores in systems.items()}
        if self.qid is not None:
            columns["qid"] = self.qid
        parts: Any = aligned_blocks(columns)
        if not self.is_multilabel:
            qid = None if self.qid is None else [block.pop("qid") for block in parts]
            layout = make_layout(parts, qid, self.group)
            parts = whole_lists(parts, layout, layout.cut(len(parts)))
        of_part = dask.delayed(_values)
        found: tuple[Values, ...] = dask.compute(*[of_part(part, list(systems), dict(functions)) for part in parts])
        return {key: np.concatenate([values[key] for values in found]) for key in found[0]}


def _values(part: Block, systems: list[str], functions: dict[str, Callable[..., Any]]) -> Values:
    group = part.get("group")
    lists = {} if group is None else {"group": group}
    return {
        (system, metric): function(part[f"scores of {system}"], part["labels"], reduction="none", **lists)
        for metric, function in functions.items()
        for system in systems
    }
