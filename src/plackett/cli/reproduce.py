"""plackett reproduce"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plackett.cli.app import app, console
from plackett.cli.outputs import FOLDER

if TYPE_CHECKING:
    from plackett.experiments import DataFolder

_ALL = "all"
_SHOWN = {"yes": "[green]holds[/]", "no": "[red]does not hold[/]", "not judged": "not judged"}


def _complete_name(incomplete: str) -> list[str]:
    from plackett.experiments import EXPERIMENTS

    return [name for name in (*EXPERIMENTS, _ALL) if name.startswith(incomplete)]


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Names of experiments, or all; see --list.", autocompletion=_complete_name),
    ] = None,
    scale: Annotated[str, typer.Option(help="quick (minutes) or full (hours).")] = "quick",
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with the data sets. Default: $PLACKETT_DATA, or ../shared/data."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder to write the results to.", callback=FOLDER)
    ] = Path("experiments"),
    show: Annotated[bool, typer.Option("--list", help="List the experiments, their data and their run times.")] = False,
    document: Annotated[
        Path | None, typer.Option(help="Folder with full-scale results; writes reproduction.md next to it.")
    ] = None,
) -> None:
    """Reproduce experiments from the papers. Finished parts are kept: an interrupted run resumes where it stopped."""
    from plackett.experiments import EXPERIMENTS, DataFolder, get_experiment, run_experiment, write_results
    from plackett.experiments.document import write_document
    from plackett.experiments.framework import NOT_JUDGED, findings_of
    from plackett.report.terminal import terminal_text

    folder = DataFolder(data)
    if document is not None:
        path = document.parent / "reproduction.md"
        write_document(document, path)
        console.print(f"Written: {terminal_text(str(path))}", soft_wrap=True)
        return
    if show or not names:
        _show(folder)
        return
    for experiment in [get_experiment(name) for name in (EXPERIMENTS if names == [_ALL] else names)]:
        console.rule(experiment.name)
        results = run_experiment(experiment, scale, output / "cells", data=folder)
        claims = findings_of(experiment, experiment.configurations[scale], results, output / "cells").claims
        verdicts = [claim.verdict(scale) for claim in claims]
        for claim, verdict in zip(claims, verdicts, strict=True):
            console.print(f"{_SHOWN[verdict]}: {terminal_text(claim.text)}; {terminal_text(claim.evidence)}")
        if NOT_JUDGED in verdicts:
            console.print("Claims of the papers are judged at --scale full, on the data of the papers.")
        command = f"plackett reproduce {experiment.name} --scale {scale}"
        for path in write_results(experiment, scale, results, output, data=folder, command=command):
            console.print(f"Written: {terminal_text(str(path))}", soft_wrap=True)


def _show(folder: "DataFolder") -> None:
    from plackett.experiments import EXPERIMENTS, get_experiment
    from plackett.experiments.datasets import KNOWN

    for name in EXPERIMENTS:  # lines, not a table: a narrow terminal must not cut names, which users type
        about = get_experiment(name)
        used = ", ".join(known if folder.find(known) else f"({known})" for known in about.data)
        minutes = ", ".join(f"{scale} {about.minutes[scale]:g} min" for scale in ("quick", "full"))
        console.print(f"[bold]{name}[/]", highlight=False, soft_wrap=True)
        console.print(f"  {about.title} ({about.paper})", highlight=False, soft_wrap=True)
        console.print(f"  {minutes}; data: {used or 'generated'}", highlight=False, soft_wrap=True)
    console.print("In brackets: missing data sets; substitutes are used, or that part is skipped.")
    console.print("Folders of data sets, in --data, $PLACKETT_DATA or ../shared/data:")
    for name, what in KNOWN.items():
        console.print(f"  {name}: {what}", highlight=False, soft_wrap=True)
