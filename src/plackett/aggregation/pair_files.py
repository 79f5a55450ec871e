"""Files of pairwise comparisons.

    winner,loser,weight         a first line such as this one is optional
    Ada,Bob,3                   Ada beat Bob three times
    Bob,Eve                     once

With loser,winner on the first line the columns are read the other way round; other headings do not say who won and are
refused. Cells are separated by commas, tabs or blanks, whichever the first line has (in this order); lines that
begin with # are comments.
"""

from __future__ import annotations

import csv
import math
from array import array

import numpy as np

from plackett.data.containers import Ballots
from plackett.data.files import Source, read_lines, source_name
from plackett.data.text import parse_number
from plackett.errors import DataError

# Words that are headings, rather than items, where the first two cells of a file are both among them.
_HEADINGS = {"from", "to", "source", "target", "item1", "item2", "item_1", "item_2"}


def load_edges(source: Source) -> Ballots:
    """Read comparisons, a line each, as ballots of two items.

    >>> import io
    >>> load_edges(io.BytesIO(b"Ada,Bob,3"))
    Ballots(1 ballots cast 3 times, 2 items)
    """
    file = source_name(source)
    numbers: dict[str, int] = {}
    items, weights = array("q"), array("d")
    delimiter, step = "", 1
    for number, ended in enumerate(read_lines(source), 1):
        line = ended.rstrip("\r\n")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        is_first = not delimiter
        delimiter = delimiter or next((mark for mark in ",\t" if mark in line), " ")
        try:
            words = line.split() if delimiter == " " else next(csv.reader([line], delimiter=delimiter))
        except csv.Error as error:
            raise DataError(f"not cells of a table ({error})", file=file, line=number, text=line) from None
        cells = [word.strip() for word in words]
        if is_first and _are_headings(cells):
            step = _direction(cells, file, number, line)
            continue
        if len(cells) not in (2, 3) or not all(cells[:2]):
            raise DataError("expected winner,loser or winner,loser,weight", file=file, line=number, text=line)
        if cells[0] == cells[1]:
            raise DataError("an item cannot beat itself", file=file, line=number, text=line)
        weights.append(_weight(cells[2], file, number, line) if len(cells) == 3 else 1.0)
        items.extend([numbers.setdefault(name, len(numbers)) for name in cells[:2][::step]])
    if not items:
        raise DataError("the file holds no comparisons", file=file)
    return Ballots(
        items=np.array(items, np.int64),
        labels=np.tile([2.0, 1.0], len(weights)),
        offsets=2 * np.arange(len(weights) + 1, dtype=np.int64),
        weights=np.array(weights),
        names=list(numbers),
    )


def _are_headings(cells: list[str]) -> bool:
    words = [cell.lower() for cell in cells]
    return "winner" in words or "loser" in words or _HEADINGS.issuperset(words[:2])


def _direction(headings: list[str], file: str, number: int, line: str) -> int:
    """1 if the winner comes first, -1 if the loser does."""
    match [heading.lower() for heading in headings]:
        case ["winner", "loser"] | ["winner", "loser", "weight" | "count"]:
            return 1
        case ["loser", "winner"] | ["loser", "winner", "weight" | "count"]:
            return -1
    raise DataError(
        "headings must be winner,loser or loser,winner, and weight or count if there is a third",
        file=file,
        line=number,
        text=line,
        remedy="If these are items, put a line winner,loser before them",
    )


def _weight(cell: str, file: str, number: int, line: str) -> float:
    weight = parse_number(cell)
    if not 0.0 <= weight < math.inf:
        raise DataError("a weight must be a number of at least 0", file=file, line=number, text=line)
    return weight
