"""The page of benchmarks: what each measures, how to run it, and when and where its results were measured."""

import ast
import json
from pathlib import Path
from typing import Any

_NOT_SHOWN = {"measure.py"}


def _about(script: Path) -> tuple[str, str]:
    """The title and the explanation in the docstring of a script."""
    title, _, rest = (ast.get_docstring(ast.parse(script.read_text())) or script.stem).partition("\n")
    return title, rest.strip()


def _facts(path: Path, stored: dict[str, Any]) -> str:
    """One line about a file of results."""
    versions = stored["versions"]
    known = {
        "measured": stored["date"],
        "on": versions.get("processor") or versions.get("platform"),
        "threads": versions.get("threads"),
        "plackett": versions["plackett"],
        "Python": versions.get("python"),
    }
    facts = ", ".join(f"{name} {value}" for name, value in known.items() if value)
    note = f" {stored['note']}" if "note" in stored else ""
    return f"Results: [{path.name}](benchmarks/results/{path.name}) ({facts}).{note}"


def benchmark_page(folder: Path) -> str:
    """The page as Markdown. Every script is shown with the results that bear its name."""
    lines = [
        "# Benchmarks",
        "",
        "`make bench` runs the benchmarks; each is a program of its own. All sides of a comparison are measured in the",
        "same run, so ratios transfer to other machines, and seconds do not. The guides quote these results.",
        "",
    ]
    results = sorted((folder / "results").glob("*.json"))
    for script in sorted(folder.glob("*.py")):
        if script.name in _NOT_SHOWN:
            continue
        title, rest = _about(script)
        found = [path for path in results if path.stem == script.stem or f"results/{path.name}" in rest]
        lines += [f"## {script.stem}", "", title, "", f"    python benchmarks/{script.name}", ""]
        if rest:
            text = [f"    {line}" for line in rest.split("\n")]
            lines += ['??? note "About this benchmark"', "", "    ```text", *text, "    ```", ""]
        for path in found:
            lines += [_facts(path, json.loads(path.read_text())), ""]
        picture = folder / "results" / f"{script.stem}.png"
        if picture.exists():
            lines += [f"![{title}](benchmarks/results/{picture.name})", ""]
    return "\n".join(lines)
