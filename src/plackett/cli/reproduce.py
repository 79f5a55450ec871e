"""plackett reproduce"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plackett.cli.app import app, console
from plackett.cli.outputs import FOLDER

if TYPE_CHECKING:
    from plackett.experiments import DataFolder

_ALL = "all"


@app.command()
def reproduce(
    names: Annotated[list[str] | None, typer.Argument(help="Experiments, or all; see --list.")] = None,
    scale: Annotated[str, typer.Option(help="quick (minutes) or full.")] = "quick",
    data: Annotated[
        Path | None,
        typer.Option(help="The folder of the data sets; without it $PLACKETT_DATA, or ../shared/data."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where to write what was found.", callback=FOLDER)
    ] = Path("experiments"),
    show: Annotated[
        bool, typer.Option("--list", help="Show what there is, what it needs and how long it takes.")
    ] = False,
    document: Annotated[
        Path | None, typer.Option(help="Make reproduction.md of the full-scale results in this folder, beside it.")
    ] = None,
) -> None:
    """Repeat experiments of the papers. What is finished is kept: an interrupted run goes on where it was."""
    from plackett.experiments import EXPERIMENTS, DataFolder, get_experiment, run_experiment, write_results
    from plackett.experiments.document import write_document
    from plackett.experiments.framework import findings_of
    from plackett.report.terminal import shown

    folder = DataFolder(data)
    if document is not None:
        path = document.parent / "reproduction.md"
        write_document(document, path)
        console.print(f"Written: {shown(str(path))}", soft_wrap=True)
        return
    if show or not names:
        _show(folder)
        return
    for experiment in [get_experiment(name) for name in (EXPERIMENTS if names == [_ALL] else names)]:
        console.rule(experiment.name)
        results = run_experiment(experiment, scale, output / "cells", data=folder)
        for claim in findings_of(experiment, experiment.configurations[scale], results, output / "cells").claims:
            held = "[green]holds[/]" if claim.holds else "[red]does not hold[/]"
            console.print(f"{held}: {shown(claim.text)}; {shown(claim.evidence)}")
        command = f"plackett reproduce {experiment.name} --scale {scale}"
        for path in write_results(experiment, scale, results, output, data=folder, command=command):
            console.print(f"Written: {shown(str(path))}", soft_wrap=True)


def _show(folder: "DataFolder") -> None:
    from rich.table import Table

    from plackett.experiments import EXPERIMENTS, get_experiment
    from plackett.experiments.datasets import KNOWN

    table = Table("name", "what", "data", "quick", "full")
    for name in EXPERIMENTS:
        about = get_experiment(name)
        used = ", ".join(known if folder.find(known) else f"({known})" for known in about.data)
        minutes = [f"{about.minutes[scale]:g} min" for scale in ("quick", "full")]
        table.add_row(name, f"{about.title} ({about.paper})", used or "generated", *minutes)
    console.print(table)
    console.print("In brackets: data that are not there; stand-ins take their place, or the part is left out.")
    console.print("Folders of data, under --data, $PLACKETT_DATA or ../shared/data:")
    for name, what in KNOWN.items():
        console.print(f"  {name}: {what}", highlight=False)
