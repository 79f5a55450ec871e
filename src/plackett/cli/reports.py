"""The --report option and the command line that reports quote."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from plackett.cli.outputs import FILE

ReportOption = Annotated[Path | None, typer.Option(help="HTML file to write a report to.", callback=FILE)]


def command_line() -> str:
    """The command as the user typed it, quoted for a shell."""
    return shlex.join(["plackett", *sys.argv[1:]])
