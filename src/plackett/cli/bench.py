"""plackett bench"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from plackett.cli.app import app, console
from plackett.cli.data import read_data


@app.command()
def bench(
    file: Annotated[
        Path | None, typer.Argument(help="Your own lists, in any format. Default: simulated lists.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each method; the median is reported.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Time the exact likelihood of ties on this machine against other treatments of ties."""
    from rich.table import Table

    from plackett.data import RankingData
    from plackett.experiments.tie_costs import measure, simulated
    from plackett.report.terminal import terminal_text
    from plackett.report.versions import versions

    if file is None:
        cases = simulated()
    else:
        data = read_data(file)
        if not isinstance(data, RankingData):
            raise typer.BadParameter(f"the file must contain lists of items with grades, got {type(data).__name__}")
        cases = {str(file): data}
    timings = []
    for name, lists in cases.items():
        with console.status(f"{terminal_text(name)} (the first run compiles)", spinner="line"):  # an ASCII spinner
            timings += measure(name, lists, repeats)
    if as_json:
        print(json.dumps({"versions": versions(), "timings": [asdict(timing) for timing in timings]}, indent=1))
        return
    for name in cases:
        table = Table("value, gradient and curvature", title=terminal_text(name), title_justify="left")
        for column in ("ms", "million items per second", "relative to exact"):
            table.add_column(column, justify="right")
        for timing in (timing for timing in timings if timing.lists == name):
            speed = timing.items / timing.seconds / 1e6
            table.add_row(timing.method, f"{1e3 * timing.seconds:.2f}", f"{speed:.1f}", f"{timing.ratio:.2f}")
        console.print(table)
    console.print(f"Median of {repeats} runs of each method, {versions()['threads']} threads.")
