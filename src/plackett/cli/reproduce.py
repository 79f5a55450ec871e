"""plackett reproduce"""

from pathlib import Path
from typing import Annotated

import typer

from plackett.cli.app import app, console


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(help="The experiment; see --list.")] = None,
    scale: Annotated[str, typer.Option(help="quick (minutes) or full.")] = "quick",
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write what was found.")] = Path(
        "experiments"
    ),
    show: Annotated[
        bool, typer.Option("--list", help="Show what there is, what it needs and how long it takes.")
    ] = False,
) -> None:
    """Repeat an experiment of the papers. What is finished is kept: an interrupted run goes on where it was."""
    from rich.table import Table

    from plackett.experiments import EXPERIMENTS, get_experiment, run_experiment, write_results

    if show or name is None:
        table = Table("name", "what", "data", "quick", "full")
        for known in EXPERIMENTS:
            about = get_experiment(known)
            minutes = [f"{about.minutes[scale]:g} min" for scale in ("quick", "full")]
            table.add_row(known, f"{about.title} ({about.paper})", ", ".join(about.data) or "generated", *minutes)
        console.print(table)
        return
    experiment = get_experiment(name)
    results = run_experiment(experiment, scale, output / "cells")
    findings = experiment.find(experiment.configurations[scale], results)
    command = f"plackett reproduce {name} --scale {scale}"
    for claim in findings.claims:
        console.print(
            f"{'[green]holds[/]' if claim.holds else '[red]does not hold[/]'}: {claim.text}; {claim.evidence}"
        )
    for path in write_results(experiment, scale, results, findings, output, command):
        console.print(f"Written: {path}", soft_wrap=True)
