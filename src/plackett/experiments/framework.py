"""Experiments: a declared configuration, cells that are computed once, and a page built from their results.

A cell is one unit of work, such as one method with one seed on one data set. Its result is written to disk as JSON,
atomically, as soon as the cell finishes, so an interrupted run resumes where it stopped.
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
from plackett.data.untrusted import parse_json, regular_file
from plackett.errors import DataError
from plackett.experiments.datasets import DataFolder
from plackett.progress import progress_bar
from plackett.report import Reproduced
from plackett.report.page import Section

Cell = dict[str, Any]
Results = list[tuple[Cell, dict[str, Any]]]
SCALES = ("quick", "full")
NOT_JUDGED = "not judged"


@dataclass(frozen=True)
class Claim:
    """A statement from a paper, whether it holds here, and the numbers that show it."""

    text: str
    holds: bool
    evidence: str

    def verdict(self, scale: str) -> str:
        """Whether the claim holds: "yes" or "no", or "not judged" at a quick scale or on generated stand-ins."""
        if scale != "full" or "stand-in" in self.text + self.evidence:
            return NOT_JUDGED
        return "yes" if self.holds else "no"


@dataclass(frozen=True)
class Findings:
    """The conclusions drawn from the results of an experiment.

    sections   plots and tables
    claims     the paper's claims, and whether they hold here
    rows       the numbers as a table for CSV, one column per key
    compared   the paper's numbers next to ours, under `compared_columns`
    remarks    differences from the paper and their reasons, one paragraph each
    """

    sections: Sequence[Section]
    claims: Sequence[Claim] = ()
    rows: Sequence[Mapping[str, Any]] = ()
    compared: Sequence[Reproduced] = ()
    compared_columns: Sequence[str] = ()
    remarks: Sequence[str] = ()

    def tally(self, scale: str) -> str:
        """How many of the claims hold, as text; empty without claims."""
        verdicts = [claim.verdict(scale) for claim in self.claims]
        judged = len(verdicts) - verdicts.count(NOT_JUDGED)
        parts = [f"{verdicts.count('yes')} of {judged}"] if judged else []
        return ", ".join([*parts, *([f"{len(verdicts) - judged} {NOT_JUDGED}"] if judged < len(verdicts) else [])])


def group_results(results: Results, *names: str) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """The results by the values that their cells have for these names.

    >>> group_results([({"data": "a", "seed": 0}, {"x": 1}), ({"data": "a", "seed": 1}, {"x": 2})], "data")
    {('a',): [{'x': 1}, {'x': 2}]}
    """
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for cell, result in results:
        groups.setdefault(tuple(cell[name] for name in names), []).append(result)
    return groups


def _nothing(_cell: Cell, _results: Results) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper.

    configurations   one per scale, "quick" and "full"; plain values, because they are shown and hashed
    cells            list the cells of a configuration, given the available data; {"data": name, ...} if data matter
    run              compute the result of a cell
    find             draw conclusions from the results
    inherit          values a cell reuses from earlier results, such as a learning rate chosen there; they are merged
                     into the cell that `run` receives
    data             names of the data sets to use if available; see `datasets`
    minutes          approximate running time per scale, on two processors
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
    """Draw conclusions from results read from `file`; raise DataError if they do not fit the experiment."""
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
            f"these are not results of {experiment.name} ({type(error).__name__}: {error})", file=os.fspath(file)
        ) from error


class CellStore:
    """Cell results on disk, one file per cell, in one folder per experiment and configuration."""

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
                raise ValueError("the file holds no result")
            if kept.get("cell") != json.loads(json.dumps(cell)):
                raise ValueError("the result belongs to another cell")
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise DataError(
                f"cannot read the result ({error})", file=str(path), remedy="Delete the file to compute it again"
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
    """Return the results of all cells. Results already on disk are not recomputed."""
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)}, got {scale!r}")
    configuration = experiment.configurations[scale]
    store = CellStore(Path(root), experiment, scale)
    data = DataFolder() if data is None else data
    cells = experiment.cells(configuration, data)
    results: Results = []
    with progress_bar(experiment.title, len(cells), progress) as update:
        for number, cell in enumerate(cells):
            update(number, ", ".join(str(value) for value in cell.values()))
            result = store.get(cell)
            if result is None:
                result = experiment.run(configuration, {**cell, **experiment.inherit(cell, results)}, data)
                store.put(cell, result)
            results.append((cell, result))
    return results
