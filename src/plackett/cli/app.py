"""The application that commands join."""

import codecs
import io
import sys
from typing import Annotated

import typer
from rich.console import Console

import plackett

app = typer.Typer(
    help="Learning to rank with the Plackett-Luce model from tied and partial feedback.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
console = Console()

# Replacements for characters of bars and tables that the terminal cannot encode. Other characters become escapes.
_PLAIN = str.maketrans(
    {**dict.fromkeys("█▉▊▋▌", "#"), **dict.fromkeys("▍▎▏", "."), "…": "~", "±": "+/-", "\N{EN DASH}": "-"}
)


def _replace_unencodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_PLAIN)
    return text.encode("ascii", "backslashreplace").decode(), error.end


def escape_unprintable_output() -> None:
    """Replace or escape characters that the encoding of standard output, such as ASCII or Latin-1, lacks."""
    codecs.register_error("plackett", _replace_unencodable)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="plackett")


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
