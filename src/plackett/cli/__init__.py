"""The command line. Modules hold a group of commands each; what they do is done elsewhere."""

import sys

from rich.console import Console

from plackett.cli import aggregate, bench, data, demo, models, reproduce  # noqa: F401 - commands join the application when imported
from plackett.cli.app import app
from plackett.errors import PlackettError


def main() -> None:
    """Run the command; what users can put right is one line, not a traceback."""
    try:
        app()
    except (PlackettError, ValueError, OSError) as error:
        from plackett.report.terminal import shown

        Console(stderr=True, soft_wrap=True).print(f"[bold red]Error:[/] {shown(str(error))}")
        sys.exit(1)
