"""Texts from files on a terminal."""

import sys

from rich.markup import escape

from plackett.data.text import visible


def shown(text: str) -> str:
    """A text to print as it is: its control characters made visible, nothing in it taken as markup.

    Characters that the terminal does not have become escapes, here and not when they are printed: tables stay straight.

    >>> print(shown("Ada\\x1bc [bold]"))
    Ada\\x1bc \\[bold]
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return escape(visible(text).encode(encoding, "backslashreplace").decode(encoding))
