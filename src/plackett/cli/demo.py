"""plackett demo"""

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from plackett.cli.app import app, console
from plackett.cli.outputs import FIGURE, FOLDER

if TYPE_CHECKING:
    from plackett.experiments.tie_demo import Outcome


@app.command()
def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the page and the data.", callback=FOLDER)
    ] = Path("plackett-demo"),
    seeds: Annotated[int, typer.Option(min=1, help="Number of data sets for the bias of a linear score.")] = 12,
    queries: Annotated[int, typer.Option(min=10, help="Number of training queries of each kind.")] = 300,
    picture: Annotated[
        Path | None,
        typer.Option(
            help="PNG file for a plot of how often the best result comes first; needs matplotlib.", callback=FIGURE
        ),
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Compare the exact likelihood, ListMLE, the lower bound and lambdarank on search results with ties."""
    from plackett.boosted.trainer import import_lightgbm

    import_lightgbm()  # fail before the work if the package is missing
    from plackett.data import dump_letor
    from plackett.experiments.tie_bias import fit_all
    from plackett.experiments.tie_demo import bias_line, comparison_plots, demo_page, make_data, run_demo
    from plackett.report import write_page
    from plackett.report.page import Section, draw_picture
    from plackett.report.terminal import terminal_text

    data = make_data(queries)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        outcome = run_demo(
            data,
            lambda steps, total: progress.track(steps, total=total, description="training (the first run compiles)"),
        )
        estimates = fit_all(
            range(seeds), lambda steps, total: progress.track(steps, total=total, description="measuring bias")
        )
    _show(outcome)
    console.print(bias_line(estimates))
    output.mkdir(exist_ok=True)
    train, test, page = output / "train.txt", output / "test.txt", output / "demo.html"
    dump_letor(data.train, train)
    dump_letor(data.test, test)
    commands = _next_commands(output)
    write_page(demo_page(outcome, estimates, commands), page)
    if picture is not None:
        picture.write_bytes(draw_picture([Section("", comparison_plots(outcome)[-1:])]) or b"")
    console.print(f"\nThe comparison as a page: [bold]{terminal_text(str(page))}[/]. Try next:", soft_wrap=True)
    for command in commands:
        console.print(f"  {terminal_text(command)}", soft_wrap=True, highlight=False)
    if open_page:
        typer.launch(str(page))


def _show(outcome: "Outcome") -> None:
    """Print one row per system: each metric with its interval."""
    from plackett.experiments.tie_demo import METRICS, SYSTEMS

    table = Table(
        "trees trained by", *METRICS.values(), title="Held-out queries, with 95% intervals", title_justify="left"
    )
    for system in SYSTEMS:
        found = {result.metric: result for result in outcome.results if result.system == system}
        cells = [
            f"{found[metric].value:.3f}\n{found[metric].interval[0]:.3f} to {found[metric].interval[1]:.3f}"
            for metric in METRICS
        ]
        table.add_row(system, *cells)
    console.print(table)


def _next_commands(folder: Path) -> list[str]:
    """Commands that work on the data of the demonstration, for the program as it was called."""
    name = (
        sys.argv[0] if Path(sys.argv[0]).name == "plackett" and shutil.which("plackett") != sys.argv[0] else "plackett"
    )
    model, scores = folder / "model", folder / "scores.txt"
    lines = [
        ["train", folder / "train.txt", "--test", folder / "test.txt", "-o", model, "--report", folder / "model.html"],
        ["predict", model, folder / "test.txt", "-o", scores],
        ["evaluate", folder / "test.txt", scores],
    ]
    return [shlex.join([name, *map(str, line)]) for line in lines]
