"""Files of pairwise comparisons.

    winner,loser,weight         a first line such as this one may be there or not
    Ada,Bob,3                   Ada beat Bob three times
    Bob,Eve                     once

Cells are separated by commas, tabs or blanks, whichever the first line has (in this order); lines that begin with # are
comments.
"""

from __future__ import annotations

import csv
import math

import numpy as np

from plackett.data.containers import Ballots
from plackett.data.files import Source, read_text, source_name
from plackett.errors import DataError


def load_edges(source: Source) -> Ballots:
    """Read comparisons, a line each, as ballots of two items.

    >>> import io
    >>> load_edges(io.BytesIO(b"Ada,Bob,3"))
    Ballots(1 ballots cast 3 times, 2 items)
    """
    file = source_name(source)
    numbers: dict[str, int] = {}
    items: list[int] = []
    weights: list[float] = []
    delimiter: str | None = None
    for number, line in enumerate(read_text(source).splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if delimiter is None:
            delimiter = next((mark for mark in ",\t" if mark in line), " ")
        cells = [
            cell.strip()
            for cell in (line.split() if delimiter == " " else next(csv.reader([line], delimiter=delimiter)))
        ]
        if not items and [cell.lower() for cell in cells[:2]] == ["winner", "loser"]:
            continue
        if len(cells) not in (2, 3) or not all(cells[:2]):
            raise DataError("expected winner,loser or winner,loser,weight", file=file, line=number, text=line)
        if cells[0] == cells[1]:
            raise DataError("an item cannot beat itself", file=file, line=number, text=line)
        weights.append(_weight(cells[2], file, number, line) if len(cells) == 3 else 1.0)
        items += [numbers.setdefault(name, len(numbers)) for name in cells[:2]]
    if not items:
        raise DataError("the file holds no comparisons", file=file)
    return Ballots(
        items=np.array(items, np.int64),
        labels=np.tile([2.0, 1.0], len(weights)),
        offsets=2 * np.arange(len(weights) + 1, dtype=np.int64),
        weights=np.array(weights),
        names=list(numbers),
    )


def _weight(cell: str, file: str, number: int, line: str) -> float:
    try:
        weight = float(cell)
    except ValueError:
        weight = math.nan
    if not 0.0 <= weight < math.inf:
        raise DataError("a weight must be a number of at least 0", file=file, line=number, text=line)
    return weight
