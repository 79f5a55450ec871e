"""Untrusted text on a terminal."""

import sys

from rich.markup import escape

from plackett.data.text import visible


def terminal_text(text: str) -> str:
    """Make a text safe to print: control characters become visible, and nothing in it is markup.

    Characters that the terminal cannot encode become escapes here, before layout, so that tables stay aligned.

    >>> print(terminal_text("Ada\\x1bc [bold]"))
    Ada\\x1bc \\[bold]
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return escape(visible(text).encode(encoding, "backslashreplace").decode(encoding))
