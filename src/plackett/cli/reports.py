"""What commands that write a page share."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from plackett.cli.outputs import FILE

ReportOption = Annotated[Path | None, typer.Option(help="Write a page about it to this HTML file.", callback=FILE)]


def command_line() -> str:
    """What the user typed, ready for a shell."""
    return shlex.join(["plackett", *sys.argv[1:]])
