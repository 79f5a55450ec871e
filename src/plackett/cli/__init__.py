"""The command line. Modules hold a group of commands each; what they do is done elsewhere."""

import sys

from rich.console import Console

from plackett.cli import aggregate, bench, data, demo, models, reproduce  # noqa: F401 - commands join the application when imported
from plackett.cli.app import app, print_whatever_comes
from plackett.errors import PlackettError

# How torch and LightGBM say it, in errors of classes that say nothing.
_NO_MEMORY = ("not enough memory", "can't allocate memory", "out of memory", "bad_alloc", "bad allocation")


def main() -> None:
    """Run the command; what users can put right is one line, not a traceback."""
    print_whatever_comes()
    try:
        app()
    except Exception as error:
        from plackett.report.terminal import shown

        message = str(error)
        if isinstance(error, MemoryError) or any(sign in message for sign in _NO_MEMORY):
            message = f"there is not enough memory{': ' if message else ''}{message.partition(chr(10))[0]}"
        elif not isinstance(error, PlackettError | ValueError | OSError):
            raise
        Console(stderr=True, soft_wrap=True).print(f"[bold red]Error:[/] {shown(message)}")
        sys.exit(1)
