"""Texts from files on a terminal."""

import re

from rich.markup import escape

# What moves the cursor, changes the terminal's settings, or turns the direction of writing round.
_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def shown(text: str) -> str:
    """A text to print as it is: its control characters made visible, nothing in it taken as markup.

    >>> print(shown("Ada\\x1bc [bold]"))
    Ada\\x1bc \\[bold]
    """
    return escape(_CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text))
