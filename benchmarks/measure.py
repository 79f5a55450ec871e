"""Tables and JSON files for all benchmarks; `plackett.experiments.timing` does the measuring."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """Return the slope of log time over log size, by least squares."""
    import numpy as np

    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def report(title: str, columns: list[str], rows: list[list[str]], console: Console) -> None:
    table = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    console.print()


def save(results: Mapping[str, Any], name: str, console: Console) -> None:
    """Write the results as JSON to benchmarks/results."""
    from plackett.report.versions import today, versions

    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"date": today(), "versions": versions(), **results}, indent=1) + "\n")
    console.print(f"JSON in {path.relative_to(Path(__file__).parents[1])}")
