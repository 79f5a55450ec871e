"""Experiments: a declared configuration, cells that are computed once, and a page made of their results.

A cell is one unit of work, such as a method with a seed on a data set. Its result is JSON, written atomically as soon
as it is there, so a run that was interrupted goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plackett.data.files import atomic_write
from plackett.data.stored import parse_json, regular_file
from plackett.errors import DataError
from plackett.experiments.datasets import DataFolder
from plackett.progress import progress_bar
from plackett.report import Reproduced
from plackett.report.page import Section

Cell = dict[str, Any]
Results = list[tuple[Cell, dict[str, Any]]]
SCALES = ("quick", "full")


@dataclass(frozen=True)
class Claim:
    """What a paper says, whether it holds here, and the figures that show it."""

    text: str
    holds: bool
    evidence: str


@dataclass(frozen=True)
class Findings:
    """What the results of an experiment amount to.

    sections   plots and tables
    claims     what the paper says, and whether it holds here
    rows       the numbers as a table for CSV: a column a name
    compared   the paper's numbers beside ours, under `compared_columns`
    remarks    what differs from the paper and why, a paragraph each
    """

    sections: Sequence[Section]
    claims: Sequence[Claim] = ()
    rows: Sequence[Mapping[str, Any]] = ()
    compared: Sequence[Reproduced] = ()
    compared_columns: Sequence[str] = ()
    remarks: Sequence[str] = ()


def _nothing(_cell: Cell, _results: Results) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper.

    configurations   by scale, "quick" and "full": plain values, for they are shown and hashed
    cells            the cells of a configuration, with the data there are: {"data": name, ...} where it matters
    run              the result of a cell
    find             what the results amount to
    inherit          what a cell takes over from the results before it, such as a rate chosen there; `run` finds it in
                     the cell
    data             names of the data sets it uses where they are there; see `datasets`
    minutes          roughly, by scale, on two processors
    """

    name: str
    paper: str
    title: str
    configurations: Mapping[str, Mapping[str, Any]]
    cells: Callable[[Mapping[str, Any], DataFolder], list[Cell]]
    run: Callable[[Mapping[str, Any], Cell, DataFolder], dict[str, Any]]
    find: Callable[[Mapping[str, Any], Results], Findings]
    data: Sequence[str] = ()
    minutes: Mapping[str, float] = field(default_factory=dict)
    inherit: Callable[[Cell, Results], Mapping[str, Any]] = _nothing


def findings_of(
    experiment: Experiment, configuration: Mapping[str, Any], results: Results, file: str | os.PathLike[str]
) -> Findings:
    """What results that were read from files amount to; they may be those of something else."""
    try:
        return experiment.find(configuration, results)
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        StopIteration,
        TypeError,
        ValueError,
    ) as error:
        raise DataError(
            f"not results of {experiment.name} ({type(error).__name__}: {error})", file=os.fspath(file)
        ) from error


class CellStore:
    """Results of cells on disk, a file each, under a folder for the experiment and its configuration."""

    def __init__(self, root: Path, experiment: Experiment, scale: str) -> None:
        configuration = experiment.configurations[scale]
        mark = hashlib.sha256(json.dumps(configuration, sort_keys=True).encode()).hexdigest()[:8]
        self.folder = root / f"{experiment.name}-{scale}-{mark}"
        self.folder.mkdir(parents=True, exist_ok=True)

    def _path(self, cell: Cell) -> Path:
        readable = "-".join(str(value) for value in cell.values())
        mark = hashlib.sha256(json.dumps(cell, sort_keys=True).encode()).hexdigest()[:8]
        return self.folder / f"{''.join(c if c.isalnum() else '_' for c in readable)[:80]}-{mark}.json"

    def get(self, cell: Cell) -> dict[str, Any] | None:
        path = self._path(cell)
        try:
            kept = parse_json(regular_file(path).read_bytes(), finite=False)
            if not isinstance(kept, dict) or not isinstance(kept.get("result"), dict):
                raise ValueError("there is none in it")
            if kept.get("cell") != json.loads(json.dumps(cell)):
                raise ValueError("it is that of another cell")
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise DataError(
                f"not a readable result ({error})", file=str(path), remedy="Delete it to compute it again"
            ) from error
        found: dict[str, Any] = kept["result"]
        return found

    def put(self, cell: Cell, result: dict[str, Any]) -> None:
        with atomic_write(self._path(cell)) as file:
            file.write((json.dumps({"cell": cell, "result": result}, indent=1) + "\n").encode())


def run_experiment(
    experiment: Experiment,
    scale: str,
    root: str | os.PathLike[str],
    *,
    data: DataFolder | None = None,
    progress: bool = True,
) -> Results:
    """The results of all cells; those that are on disk are not computed again."""
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)}, got {scale!r}")
    configuration = experiment.configurations[scale]
    store = CellStore(Path(root), experiment, scale)
    data = DataFolder() if data is None else data
    cells = experiment.cells(configuration, data)
    results: Results = []
    with progress_bar(experiment.title, len(cells), progress) as tell:
        for number, cell in enumerate(cells):
            tell(number, ", ".join(str(value) for value in cell.values()))
            result = store.get(cell)
            if result is None:
                result = experiment.run(configuration, {**cell, **experiment.inherit(cell, results)}, data)
                store.put(cell, result)
            results.append((cell, result))
    return results
