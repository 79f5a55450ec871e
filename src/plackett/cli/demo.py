"""plackett demo"""

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from plackett.cli.app import app, console
from plackett.cli.outputs import FIGURE


@app.command()
def demo(
    seeds: Annotated[int, typer.Option(min=1, help="How many simulated data sets to fit.")] = 12,
    output: Annotated[Path, typer.Option(help="Where to save the figure (PNG).", callback=FIGURE)] = Path("demo.png"),
) -> None:
    """Simulate tied rankings with known coefficients and recover them with and without exact treatment of ties."""
    from plackett.demo import TRUTH, fit_all
    from plackett.report import coefficient_figure, coefficient_table
    from plackett.report.terminal import shown

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        estimates = fit_all(
            range(seeds),
            lambda steps, total: progress.track(steps, total=total, description="fitting (the first run compiles)"),
        )
    console.print(coefficient_table(estimates, TRUTH))
    console.print(
        f"{seeds} data sets of 300 lists of 20 items in tiers of 1, 3, 6 and 10, order inside a tier unknown."
    )
    coefficient_figure(estimates, TRUTH, output)
    console.print(f"Figure saved to {shown(str(output))}")
