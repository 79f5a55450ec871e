"""Numbers as text, and untrusted text, such as item names, made safe for terminals, pages and spreadsheets."""

import math
import re
from typing import Any

import numpy as np
import numpy.typing as npt

# Characters that move the cursor, change terminal settings, or reverse the direction of writing.
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_FORMULA = re.compile(r"'*[=+\-@]")
_NUMBER = re.compile(r"[-+]?\d+(\.\d*)?([eE][-+]?\d+)?", re.ASCII)


def visible(text: str) -> str:
    """Replace control characters with escapes.

    >>> print(visible("Ada\\x1bc"))
    Ada\\x1bc
    """
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def csv_cell(text: str) -> str:
    """Quote a text for a CSV cell: spreadsheets evaluate text that starts with = + - or @, unless a ' precedes it.

    >>> csv_cell("=1+1"), csv_cell("-1.5"), csv_cell("Ada")
    ("'=1+1", '-1.5', 'Ada')
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def parse_csv_cell(cell: str) -> str:
    """Undo `csv_cell`."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def number_texts(values: npt.NDArray[Any]) -> list[str]:
    """The shortest strings that read back as the same numbers of the array's type."""
    if values.dtype == np.float64:
        return [text.removesuffix(".0") for text in map(repr, values.tolist())]
    return [text.removesuffix(".0") for text in map(str, values)]


def parse_number(text: str) -> float:
    """Parse an ASCII number, or return NaN. `float` alone also accepts 1_000 and digits of any script."""
    if not text.isascii() or "_" in text:
        return math.nan
    try:
        return float(text)
    except ValueError:
        return math.nan
