"""The application that commands join."""

from typing import Annotated

import typer
from rich.console import Console

import plackett

app = typer.Typer(
    help="Learning to rank with the Plackett-Luce model from tied and partial feedback.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()


def _show_version(wanted: bool) -> None:
    if wanted:
        print(plackett.__version__)
        raise typer.Exit()


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass
