"""PrefLib files: orders strict or tied, complete or incomplete (.soc .soi .toc .toi), and categories (.cat).

    # NUMBER ALTERNATIVES: 3
    # ALTERNATIVE NAME 1: Ada
    2: 3,{1,2}              two ballots: item 3 first, then 1 and 2 level

Items that a ballot leaves out are left out here too; `Ballots.complete` puts them last.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

import numpy as np

from plackett.data.containers import Ballots
from plackett.data.files import Source, ending, open_target, read_text, source_name
from plackett.errors import DataError
from plackett.lists import offsets_from_sizes

KINDS = ("soc", "soi", "toc", "toi", "cat")

_MOST_ITEMS = 10**7
_MOST_UNNAMED = 10**4

_HEADER = re.compile(r"#\s*([A-Z ]+?)\s*(\d{1,9})?\s*:\s*(.*?)\s*$")
_BALLOT = re.compile(r"\s*(\d{1,15})\s*:\s*(.*?)\s*$")
_TIER = re.compile(r"\d{1,9}|\{\s*(?:\d{1,9}(?:\s*,\s*\d{1,9})*)?\s*\}")
_ORDER = re.compile(rf"(?:{_TIER.pattern})(?:\s*,\s*(?:{_TIER.pattern}))*")


def load_preflib(source: Source) -> Ballots:
    """Read the ballots of a PrefLib file. The tiers of a ballot get the labels 1, 2, ... from the bottom up.

    A category of a .cat file is a tier, the first category at the top, empty ones counted.
    """
    return _Reader(source).read()


class _Reader:
    def __init__(self, source: Source) -> None:
        self._name = source_name(source)
        self._lines = [line.removesuffix("\r") for line in read_text(source).split("\n")]
        self._numbers: dict[str, int] = {}
        self._kind = ending(source).removeprefix(".")
        self._names: dict[int, str] = {}

    def _error(
        self, problem: str, line: int | None = None, text: str | None = None, remedy: str | None = None
    ) -> DataError:
        return DataError(problem, file=self._name, line=line, text=text, remedy=remedy)

    def read(self) -> Ballots:
        weights, tiers_of_ballots = [], []
        for number, line in enumerate(self._lines, 1):
            if "\0" in line:
                raise self._error("a NUL byte", number, line, "The file is damaged or not a text")
            if not line.strip():
                continue
            if line.startswith("#"):
                self._read_header(number, line)
                continue
            if not self._numbers:
                raise self._error(
                    "no header before the ballots", number, line, "Old PrefLib files lack it: fetch the current version"
                )
            found = _BALLOT.match(line)
            if not found or not (found[2] == "" or _ORDER.fullmatch(found[2])):
                raise self._error("expected a ballot such as 12: 3,{1,2}", number, line)
            weights.append(int(found[1]))
            tiers_of_ballots.append(self._read_tiers(number, line, found[2]))
        return self._assemble(weights, tiers_of_ballots)

    def _read_header(self, number: int, line: str) -> None:
        found = _HEADER.match(line)
        if not found:
            return
        key, index, value = found[1], found[2], found[3]
        if key == "ALTERNATIVE NAME" and index:
            self._names[min(int(index), _MOST_ITEMS + 1)] = value
        elif key == "DATA TYPE" and value:
            self._kind = value.lower()
        elif key.startswith("NUMBER"):
            if not (value.isascii() and value.isdecimal() and len(value) < 16):
                raise self._error("expected a whole number", number, line)
            self._numbers[key.removeprefix("NUMBER ")] = int(value)
            if key == "NUMBER ALTERNATIVES" and int(value) > _MOST_ITEMS:
                raise self._error(f"more than {_MOST_ITEMS:,} alternatives", number, line)

    def _read_tiers(self, number: int, line: str, order: str) -> list[list[int]]:
        tiers = [[int(i) for i in tier.strip("{}").split(",") if i.strip()] for tier in _TIER.findall(order)]
        items = [item for tier in tiers for item in tier]
        known = self._numbers.get("ALTERNATIVES", len(self._names))
        if items and not 1 <= min(items) <= max(items) <= known:
            raise self._error(f"items are numbered from 1 to {known}", number, line)
        if len(set(items)) != len(items):
            raise self._error("an item comes twice", number, line)
        if self._kind in ("soc", "toc") and len(items) != known:
            raise self._error(f"a .{self._kind} ballot ranks all {known} items, this one {len(items)}", number, line)
        if self._kind in ("soc", "soi") and len(tiers) != len(items):
            raise self._error(f"a .{self._kind} ballot has no ties", number, line)
        return tiers

    def _assemble(self, weights: list[int], ballots: list[list[list[int]]]) -> Ballots:
        if not ballots:
            raise self._error("the file holds no ballots")
        for key, found in (
            ("VOTERS", sum(weights)),
            ("UNIQUE ORDERS", len(ballots)),
            ("UNIQUE PREFERENCES", len(ballots)),
        ):
            if self._numbers.get(key, found) != found:
                raise self._error(
                    f"the header declares {self._numbers[key]:,} {key.lower()}, but {found:,} follow",
                    remedy="The file may be cut off",
                )
        count = self._numbers.get("ALTERNATIVES", len(self._names))
        # A damaged number must not ask for more memory than the file suggests.
        if count > _MOST_UNNAMED + 2 * len(self._names):
            raise self._error(f"the header declares {count:,} alternatives, but names {len(self._names):,}")
        if self._names and max(self._names) > count:
            raise self._error(f"the header declares {count:,} alternatives, but names number {max(self._names):,}")
        return ballots_from_tiers(
            ballots, weights, [self._names.get(i, f"Alternative {i}") for i in range(1, count + 1)], first_item=1
        )


def ballots_from_tiers(
    ballots: Iterable[list[list[int]]], weights: Iterable[float], names: list[str], first_item: int = 0
) -> Ballots:
    """Ballots from lists of tiers, best first."""
    items: list[int] = []
    labels: list[int] = []
    sizes = []
    for tiers in ballots:
        before = len(items)
        for label, tier in zip(range(len(tiers), 0, -1), tiers, strict=True):
            items += tier
            labels += [label] * len(tier)
        sizes.append(len(items) - before)
    return Ballots(
        items=np.array(items, np.int64) - first_item,
        labels=np.array(labels, np.float64),
        offsets=offsets_from_sizes(np.array(sizes, np.int64)),
        weights=np.array(list(weights), np.float64),
        names=names,
    )


def tiers_of(ballots: Ballots) -> list[list[list[int]]]:
    """Each ballot as a list of tiers of items, best first."""
    result = []
    for first, last in itertools.pairwise(ballots.offsets):
        labels = ballots.labels[first:last]
        order = np.argsort(-labels, kind="stable")
        ranked = zip(labels[order].tolist(), ballots.items[first:last][order].tolist(), strict=True)
        result.append([[item for _, item in tier] for _, tier in itertools.groupby(ranked, key=lambda pair: pair[0])])
    return result


def check_ballots(ballots: Ballots) -> None:
    """What text cannot hold: labels that are no numbers, an item twice on a ballot."""
    if not np.isfinite(ballots.labels).all():
        raise ValueError("labels must be finite to be written")
    ballot = np.repeat(np.arange(len(ballots)), np.diff(ballots.offsets))
    pairs = ballot * max(1, len(ballots.names)) + np.asarray(ballots.items, np.int64)
    if len(np.unique(pairs)) != len(pairs):
        raise ValueError("an item must be on a ballot once to be written")


def dump_preflib(ballots: Ballots, target: Source, *, title: str = "") -> None:
    """Write ballots as a PrefLib file that `load_preflib` reads back, its kind as the ballots need it.

    The order of tiers is kept, labels become 1, 2, ... from the bottom up. A name that ends with a kind (.soc, .soi,
    .toc, .toi) must be of the ballots' kind or of a wider one.
    """
    weights = np.asarray(ballots.weights)
    if not ((weights == np.floor(weights)) & (weights >= 0) & (weights < 1e15)).all():
        raise ValueError("weights must be whole numbers of at most 15 digits to be written as a PrefLib file")
    check_ballots(ballots)
    tiers = tiers_of(ballots)
    count = len(ballots.names)
    strict = all(len(tier) == 1 for ballot in tiers for tier in ballot)
    complete = bool((np.diff(ballots.offsets) == count).all())
    kind = ("s" if strict else "t") + "o" + ("c" if complete else "i")
    wanted = ending(target).removeprefix(".")
    if wanted in KINDS and wanted != kind:
        fits = wanted[:2] in ("to", kind[:2]) and wanted[2] in ("i", kind[2])
        if not fits:
            raise ValueError(f"the ballots are of kind .{kind} and do not fit into a file named .{wanted}")
        kind = wanted
    if not title.isprintable() or any(name.strip() != name or not name.isprintable() for name in ballots.names):
        raise ValueError("title and names must be printable text without blanks around it")
    lines = [
        f"# TITLE: {title}",
        f"# DATA TYPE: {kind}",
        f"# NUMBER ALTERNATIVES: {count}",
        f"# NUMBER VOTERS: {int(weights.sum())}",
        f"# NUMBER UNIQUE ORDERS: {len(ballots)}",
        *(f"# ALTERNATIVE NAME {i}: {name}" for i, name in enumerate(ballots.names, 1)),
    ]
    for weight, ballot in zip(weights.tolist(), tiers, strict=True):
        order = (",".join(str(i + 1) for i in tier) for tier in ballot)
        lines.append(f"{int(weight)}: " + ",".join(t if "," not in t else f"{{{t}}}" for t in order))
    with open_target(target) as file:
        file.write(("\n".join(lines) + "\n").encode())
