"""The command `plackett`. This package only parses arguments and shows results; the work is done elsewhere."""

from plackett.cli.app import main

__all__ = ["main"]
