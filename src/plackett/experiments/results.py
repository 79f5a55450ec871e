"""What an experiment found, for machines and for people: JSON, CSV, a picture and a page."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plackett.data.files import atomic_write
from plackett.data.stored import parse_json, regular_file
from plackett.data.text import csv_cell, visible
from plackett.environment import versions
from plackett.errors import DataError
from plackett.experiments.datasets import DataFolder
from plackett.experiments.framework import Experiment, Findings, Results
from plackett.report import reproduction_page, reproduction_table
from plackett.report.page import Page, Section, Table, draw_picture, render_page

_ENVIRONMENT = ("platform", "threads")  # of the machine, not of the result
_KINDS = {"experiment": str, "scale": str, "command": str, "configuration": dict, "data": dict, "cells": list}
_MARKUP = frozenset("<>[]|&`\\")


def write_results(
    experiment: Experiment, scale: str, results: Results, folder: Path, *, data: DataFolder, command: str
) -> list[Path]:
    """NAME-SCALE.json, .csv, .html, and .png if there is anything to draw, in the folder; the paths."""
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
    """What `write_results` wrote: all that is known about the run, and the results of its cells."""
    try:
        about = parse_json(regular_file(Path(path)).read_bytes(), finite=False)
        _check(about)
        return about, [(cell, result) for cell, result in about["cells"]]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"not a file of results ({error})", file=str(path)) from error


def _check(about: Any) -> None:
    """Kinds of values, and that no text can be taken for markup of a document."""
    if not isinstance(about, dict):
        raise ValueError("it holds no names with values")
    for name, kind in _KINDS.items():
        if not isinstance(about[name], kind):
            raise ValueError(f"{name} must be {kind.__name__}, got {type(about[name]).__name__}")
    if not about["command"].isprintable():
        raise ValueError("the command must be printable")
    for pair in about["cells"]:
        if not (isinstance(pair, list) and [type(part) for part in pair] == [dict, dict]):
            raise ValueError("cells must hold pairs of a cell and its result")
    for text in _texts(about["cells"]):
        if not text.isprintable() or _MARKUP.intersection(text):
            raise ValueError(f"cells must hold plain texts, got {text[:40]!r}")


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
    """A line a key, and a line an entry of its lists: short, and its changes can be read."""
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
        [[claim.text, "yes" if claim.holds else "no", claim.evidence] for claim in findings.claims],
    )
    compared = (
        reproduction_table(findings.compared_columns, findings.compared, form=".4g") if findings.compared else None
    )
    remarks = [Section("Where it differs from the paper, and why", text="\n\n".join(findings.remarks))]
    sections = [
        *([Section("Claims", [claims])] if findings.claims else []),
        *findings.sections,
        *(remarks if findings.remarks else []),
    ]
    present = {name: "real" if there else "not there" for name, there in about["data"].items()}
    return reproduction_page(
        f"{experiment.title} ({experiment.paper})",
        compared,
        sections,
        summary=_summary(findings),
        configuration={"scale": about["scale"], **about["configuration"]},
        data=present or {"data": "generated by Plackett"},
        command=about["command"],
    )


def _summary(findings: Findings) -> str:
    if not findings.claims:
        return ""
    held = sum(claim.holds for claim in findings.claims)
    return f"{held} of {len(findings.claims)} claims hold here."
