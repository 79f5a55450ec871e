"""The command line, `plackett`.

Each module defines a group of commands: `data` (info, evaluate), `models` (train, predict), `aggregate`, `reproduce`,
`bench`, `compiling` (compile) and `demo`. Start with `app`, the application that they join. `outputs` checks output
files before the work starts, `comparison_options` describes tables of comparisons, and `reports` has the --report
option. Commands only parse options and print; they may import every other package, and do so inside the command, so
that `plackett --help` stays fast. Nothing imports this package.
"""

import sys

from rich.console import Console

from plackett.cli import aggregate, bench, compiling, data, demo, models, reproduce  # noqa: F401 - importing a module registers its commands
from plackett.cli.app import app, escape_unprintable_output
from plackett.errors import PlackettError

# How torch and LightGBM report it, in generic error classes.
_NO_MEMORY = ("not enough memory", "can't allocate memory", "out of memory", "bad_alloc", "bad allocation")


def main() -> None:
    """Run the command. Errors that users can fix are one line, not a traceback."""
    escape_unprintable_output()
    try:
        app()
    except Exception as error:
        from plackett.report.terminal import terminal_text

        message = str(error)
        if isinstance(error, MemoryError) or any(sign in message for sign in _NO_MEMORY):
            message = f"not enough memory{': ' if message else ''}{message.partition(chr(10))[0]}"
        elif not isinstance(error, PlackettError | ValueError | OSError):
            raise
        Console(stderr=True, soft_wrap=True).print(f"[bold red]Error:[/] {terminal_text(message)}")
        sys.exit(1)
