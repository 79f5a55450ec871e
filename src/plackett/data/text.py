"""Texts of strangers, such as names of items, made harmless for terminals, pages and spreadsheets."""

import re

# What moves the cursor, changes the terminal's settings, or turns the direction of writing round.
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_FORMULA = re.compile(r"'*[=+\-@]")
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?", re.ASCII)


def visible(text: str) -> str:
    """The text with its control characters as escapes.

    >>> print(visible("Ada\\x1bc"))
    Ada\\x1bc
    """
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def csv_cell(text: str) -> str:
    """A text for a cell of CSV: spreadsheets compute what begins with = + - or @, unless there is ' before it.

    >>> csv_cell("=1+1"), csv_cell("-1.5"), csv_cell("Ada")
    ("'=1+1", '-1.5', 'Ada')
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def text_of_cell(cell: str) -> str:
    """What `csv_cell` made a cell of."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell
