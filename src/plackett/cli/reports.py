"""What commands that write a page share."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer


def _check_folder(path: Path | None) -> Path | None:
    """Now, not when the work is done."""
    if path is not None and not path.parent.is_dir():
        raise typer.BadParameter(f"the folder {path.parent} does not exist")
    return path


ReportOption = Annotated[
    Path | None, typer.Option(help="Write a page about it to this HTML file.", callback=_check_folder)
]


def command_line() -> str:
    """What the user typed, ready for a shell."""
    return shlex.join(["plackett", *sys.argv[1:]])
