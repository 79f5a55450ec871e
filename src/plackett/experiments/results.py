"""Experiment results for machines and people: JSON, CSV, a picture and an HTML page."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plackett.data.files import atomic_write
from plackett.data.text import csv_cell, visible
from plackett.data.untrusted import parse_json, regular_file
from plackett.errors import DataError
from plackett.experiments.datasets import DataFolder
from plackett.experiments.framework import Experiment, Findings, Results
from plackett.report import reproduction_page, reproduction_table
from plackett.report.page import Page, Section, Table, draw_picture, render_page
from plackett.report.versions import today, versions

_ENVIRONMENT = ("platform", "threads")  # results do not depend on these
_KINDS = {
    "experiment": str,
    "scale": str,
    "command": str,
    "configuration": dict,
    "data": dict,
    "date": str,
    "versions": dict,
    "cells": list,
}
_MARKUP = frozenset("<>[]|&`\\")


def write_results(
    experiment: Experiment, scale: str, results: Results, folder: Path, *, data: DataFolder, command: str
) -> list[Path]:
    """Write NAME-SCALE.json, .csv, .html, and .png if there is anything to plot, to the folder; return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    findings = experiment.find(experiment.configurations[scale], results)
    stem = folder / f"{experiment.name}-{scale}"
    about: dict[str, Any] = {
        "experiment": experiment.name,
        "paper": experiment.paper,
        "scale": scale,
        "command": command,
        "configuration": experiment.configurations[scale],
        "data": {name: bool(data.find(name)) for name in experiment.data},
        "date": today(),
        "versions": {name: value for name, value in versions().items() if name not in _ENVIRONMENT},
        "claims": [vars(claim) for claim in findings.claims],
        "rows": [dict(row) for row in findings.rows],
        "cells": [[cell, result] for cell, result in results],
    }
    texts = {".json": _json(about), ".csv": _csv(findings), ".html": render_page(_page(experiment, about, findings))}
    files = {ending: text.encode() for ending, text in texts.items()}
    if picture := draw_picture(findings.sections):
        files[".png"] = picture
    for ending, content in files.items():
        with atomic_write(stem.with_suffix(ending)) as file:
            file.write(content)
    return [stem.with_suffix(ending) for ending in files]


def read_results(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Results]:
    """Read a file that `write_results` wrote: everything recorded about the run, and the results of its cells."""
    try:
        about = parse_json(regular_file(Path(path)).read_bytes(), finite=False)
        _check(about)
        return about, [(cell, result) for cell, result in about["cells"]]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"this is not a results file ({error})", file=str(path)) from error


def _check(about: Any) -> None:
    """Check the types of the values, and that no text could be read as markup in a document."""
    if not isinstance(about, dict):
        raise ValueError(f"expected a JSON object, got {type(about).__name__}")
    for name, kind in (_KINDS | ({"note": str} if "note" in about else {})).items():
        if not isinstance(about[name], kind):
            raise ValueError(f"{name} must be {kind.__name__}, got {type(about[name]).__name__}")
    if not about["command"].isprintable():
        raise ValueError("the command must be printable")
    for pair in about["cells"]:
        if not (isinstance(pair, list) and [type(part) for part in pair] == [dict, dict]):
            raise ValueError("cells must be pairs of a cell and its result")
    for text in _texts([about["date"], about.get("note"), about["versions"], about["cells"]]):
        if not text.isprintable() or _MARKUP.intersection(text):
            raise ValueError(f"date, note, versions and cells must hold plain text without markup, got {text[:40]!r}")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        yield from _texts(list(value.values()))
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)


def _json(about: dict[str, Any]) -> str:
    """One line per key and one per list entry: compact, with readable diffs."""
    lines = []
    for key, value in about.items():
        if isinstance(value, list) and value:
            entries = ",\n".join(f"  {json.dumps(entry)}" for entry in value)
            lines.append(f" {json.dumps(key)}: [\n{entries}\n ]")
        else:
            lines.append(f" {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _csv(findings: Findings) -> str:
    columns = list(dict.fromkeys(name for row in findings.rows for name in row))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {name: csv_cell(visible(value)) if isinstance(value, str) else value for name, value in row.items()}
        for row in findings.rows
    )
    return text.getvalue()


def _page(experiment: Experiment, about: dict[str, Any], findings: Findings) -> Page:
    claims = Table(
        ["claim", "holds here", "evidence"],
        [[claim.text, claim.verdict(about["scale"]), claim.evidence] for claim in findings.claims],
    )
    compared = (
        reproduction_table(findings.compared_columns, findings.compared, form=".4g") if findings.compared else None
    )
    remarks = [Section("Differences from the paper", text="\n\n".join(findings.remarks))]
    sections = [
        *([Section("Claims", [claims])] if findings.claims else []),
        *findings.sections,
        *(remarks if findings.remarks else []),
    ]
    present = {name: "real" if there else "not available" for name, there in about["data"].items()}
    return reproduction_page(
        f"{experiment.title} ({experiment.paper})",
        compared,
        sections,
        summary=_summary(findings, about["scale"]),
        configuration={"scale": about["scale"], **about["configuration"]},
        data=present or {"data": "generated by Plackett"},
        command=about["command"],
    )


def _summary(findings: Findings, scale: str) -> str:
    found = findings.tally(scale)
    return f"Claims that hold here: {found}." if found else ""
