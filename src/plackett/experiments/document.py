"""Generate docs/reproduction.md from stored results: what matches the papers, what does not, and why."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plackett.data.files import atomic_write
from plackett.errors import DataError
from plackett.experiments import EXPERIMENTS, get_experiment
from plackett.experiments.framework import Experiment, Findings, findings_of
from plackett.experiments.results import read_results
from plackett.report import Reproduced
from plackett.report.page import Column, Table, cell_text

_MOST_ROWS = 40
"""Longer tables appear only on the HTML pages of their experiments."""

_SHOWN_VERSIONS = ("plackett", "python", "numpy", "numba", "torch", "lightgbm")

_INTRODUCTION = """# Reproducing the papers

`plackett reproduce --document {folder}` generates this page from the results in that folder, which
come from

    plackett reproduce all --scale full --output {folder}

Each experiment has a name. `plackett reproduce NAME` repeats it at a quick scale, and `--scale full` at the scale shown
here. Both write JSON, CSV, a picture and an HTML page. Some data sets cannot be redistributed: point `--data` to your
own copies. Generated data that replace a missing data set are called stand-ins; their numbers are not compared with the
paper's.

| experiment | claims that hold here |
|---|---|
{index}
"""


def write_document(folder: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Write the document of all full-scale results in `folder` to `path`."""
    with atomic_write(path) as file:
        file.write(document(Path(folder), Path(path).parent).encode())


def document(folder: Path, start: Path) -> str:
    """Return the text of the document, with links relative to `start`."""
    sections, index = [], []
    place = Path(os.path.relpath(folder, start))
    for name in EXPERIMENTS:
        stored = folder / f"{name}-full.json"
        if not stored.exists():
            continue
        experiment = get_experiment(name)
        about, results = read_results(stored)
        _check_kind(experiment, about, stored)
        findings = findings_of(experiment, about["configuration"], results, stored)
        picture = place / f"{name}-full.png" if stored.with_suffix(".png").exists() else None
        sections.append(_section(experiment, about, findings, picture))
        counted = findings.tally("full") or "no claims"
        index.append(f"| [{experiment.title}](#{name}): {experiment.paper} | {counted} |")
    return "\n".join([_INTRODUCTION.format(folder=f"docs/{place}", index="\n".join(index)), *sections])


def _check_kind(experiment: Experiment, about: dict[str, Any], file: Path) -> None:
    """Check that the results belong to the experiment at full scale, as declared today."""
    expected = {
        "experiment": experiment.name,
        "scale": "full",
        "configuration": json.loads(json.dumps(experiment.configurations["full"])),
        "data": {name: bool(about["data"].get(name)) for name in experiment.data},
    }
    for name, value in expected.items():
        if about[name] != value:
            raise DataError(
                f"{name} does not match experiment {experiment.name}", file=str(file), remedy="Run the experiment again"
            )


def _section(experiment: Experiment, about: dict[str, Any], findings: Findings, picture: Path | None) -> str:
    parts = [f"## {experiment.name}", f"{experiment.title}: {experiment.paper}.", f"    {about['command']}"]
    if about["data"]:
        there = ", ".join(name for name, found in about["data"].items() if found)
        absent = ", ".join(name for name, found in about["data"].items() if not found)
        parts.append(f"Data: {there or 'generated'}." + (f" Not available: {absent}." if absent else ""))
    note = about.get("note")
    known = ", ".join(f"{name} {about['versions'][name]}" for name in _SHOWN_VERSIONS if name in about["versions"])
    place = about["versions"].get("processor", "a processor that was not recorded")
    parts.append(f"Computed on {about['date']} with {known}, on {place}." + (f" {note}" if note else ""))
    if picture:
        parts.append(f"![{experiment.title}]({picture})")
    if findings.claims:
        shown = {"no": "**no**"}
        verdicts = [claim.verdict("full") for claim in findings.claims]
        rows = [
            [shown.get(verdict, verdict), claim.text, claim.evidence]
            for verdict, claim in zip(verdicts, findings.claims, strict=True)
        ]
        parts.append(_table(["holds", "claim", "evidence"], rows))
    if findings.compared:
        parts.append(_table([*findings.compared_columns, "paper", "ours", "difference", "standard error"],
                            [_numbers(row) for row in findings.compared]))  # fmt: skip
    parts += [_table_with_caption(table) for table in _short_tables(findings)]
    parts += findings.remarks
    return "\n\n".join(parts) + "\n"


def _short_tables(findings: Findings) -> list[Table]:
    blocks = [block for section in findings.sections for block in section.blocks]
    return [block for block in blocks if isinstance(block, Table) and len(block.rows) <= _MOST_ROWS]


def _table_with_caption(table: Table) -> str:
    columns = [Column(column) if isinstance(column, str) else column for column in table.columns]
    titles = [f"{column.title} ({column.unit})" if column.unit else column.title for column in columns]
    rows = [[cell_text(value, column.format) for value, column in zip(row, columns, strict=True)] for row in table.rows]
    return "\n\n".join(part for part in (table.caption, _table(titles, rows)) if part)


def _numbers(row: Reproduced) -> list[str]:
    values = [row.paper, row.ours, row.difference, row.standard_error]
    return [*row.names, *("" if value is None else f"{value:.4g}" for value in values)]


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
