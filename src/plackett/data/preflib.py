"""PrefLib files: strict or tied, complete or incomplete orders (.soc .soi .toc .toi), and categories (.cat).

    # NUMBER ALTERNATIVES: 3
    # ALTERNATIVE NAME 1: Ada
    2: 3,{1,2}              two ballots: item 3 first, then 1 and 2 tied

Items that a ballot does not rank are left out; `Ballots.complete` puts them last.
"""

from __future__ import annotations

import itertools
import re
from array import array
from collections.abc import Iterable, Sequence

import numpy as np

from plackett.arguments import check_kind
from plackett.data.containers import Ballots, FloatArray
from plackett.data.files import Source, ending, open_target, read_lines, source_name
from plackett.errors import DataError
from plackett.lists import offsets_from_sizes

KINDS = ("soc", "soi", "toc", "toi", "cat")

_MOST_ITEMS = 10**7
_MOST_UNNAMED = 10**4

# Possessive quantifiers (++, *+), so that matching takes linear time on any line.
_KEY = re.compile(r"[A-Z ]++")
_NUMBER = r"[0-9]{1,9}+"
_TIER = re.compile(rf"{_NUMBER}|\{{\s*+(?:{_NUMBER}(?:\s*+,\s*+{_NUMBER})*+)?+\s*+\}}")
_ORDER = re.compile(rf"(?:{_TIER.pattern})(?:\s*+,\s*+(?:{_TIER.pattern}))*+")


def load_preflib(source: Source) -> Ballots:
    """Read the ballots of a PrefLib file. The tiers of a ballot get the labels 1, 2, ... from the bottom up.

    A category of a .cat file is a tier, with the first category on top; empty categories count.
    """
    return _Reader(source).read()


class _Reader:
    def __init__(self, source: Source) -> None:
        self._name = source_name(source)
        self._source = source
        self._numbers: dict[str, int] = {}
        self._kind = ending(source).removeprefix(".")
        self._names: dict[int, str] = {}
        self._known: set[str] = set()
        self._ballots = BallotArrays()
        self._voters = 0

    def _error(
        self, problem: str, line: int | None = None, text: str | None = None, remedy: str | None = None
    ) -> DataError:
        return DataError(problem, file=self._name, line=line, text=text, remedy=remedy)

    def read(self) -> Ballots:
        for number, line in enumerate(read_lines(self._source), 1):
            text = line.strip()
            if line.startswith("#"):
                self._read_header(number, text)
            elif text:
                self._read_ballot(number, text)
        return self._assemble()

    def _read_header(self, number: int, line: str) -> None:
        left, colon, value = (part.strip() for part in line[1:].partition(":"))
        key = left.rstrip("0123456789")
        index, key = left[len(key) :], key.strip()
        if not colon or not _KEY.fullmatch(key):
            return
        if key in ("ALTERNATIVE NAME", "NUMBER ALTERNATIVES") and len(self._ballots):
            raise self._error("header lines about alternatives must come before the ballots", number, line)
        if key == "ALTERNATIVE NAME":
            self._read_name(number, line, index, value)
        elif key == "DATA TYPE" and value:
            self._kind = value.lower()
        elif key.startswith("NUMBER"):
            if not _is_number(value, 15):
                raise self._error("expected a whole number", number, line)
            name = key.removeprefix("NUMBER ")
            if name in self._numbers:
                raise self._error("a number occurs twice in the header", number, line)
            self._numbers[name] = int(value)
            if name == "ALTERNATIVES" and int(value) > _MOST_ITEMS:
                raise self._error(f"expected at most {_MOST_ITEMS:,} alternatives", number, line)

    def _read_name(self, number: int, line: str, index: str, value: str) -> None:
        if not _is_number(index, 9) or int(index) == 0:
            raise self._error("expected the number of an alternative, at least 1", number, line)
        if int(index) in self._names:
            raise self._error("an alternative is named twice", number, line)
        if value in self._known:
            raise self._error("two alternatives have the same name", number, line)
        self._names[int(index)] = value
        self._known.add(value)

    @property
    def _count(self) -> int:
        return self._numbers.get("ALTERNATIVES", len(self._names))

    def _read_ballot(self, number: int, line: str) -> None:
        if not self._numbers:
            raise self._error(
                "expected a header before the ballots",
                number,
                line,
                "Old PrefLib files have none: download the current version",
            )
        if not len(self._ballots):
            self._check_alternatives()
        weight, colon, order = (part.strip() for part in line.partition(":"))
        if not (colon and _is_number(weight, 15) and (order == "" or _ORDER.fullmatch(order))):
            raise self._error("expected a ballot such as 12: 3,{1,2}", number, line)
        self._ballots.add(*items_and_labels(self._read_tiers(number, line, order)), int(weight))
        self._voters += int(weight)

    def _read_tiers(self, number: int, line: str, order: str) -> list[list[int]]:
        known = self._count
        if order.count(",") > known + _MOST_UNNAMED:  # checked before each gets an object; categories may be empty
            raise self._error(f"expected at most {known} items", number, line)
        tiers = [[int(i) for i in tier.strip("{}").split(",") if i.strip()] for tier in _TIER.findall(order)]
        items = [item for tier in tiers for item in tier]
        if items and not 1 <= min(items) <= max(items) <= known:
            raise self._error(f"items must be numbered from 1 to {known}", number, line)
        if len(set(items)) != len(items):
            raise self._error("an item occurs twice", number, line)
        if self._kind in ("soc", "toc") and len(items) != known:
            raise self._error(f"a .{self._kind} ballot must rank all {known} items, got {len(items)}", number, line)
        if self._kind in ("soc", "soi") and len(tiers) != len(items):
            raise self._error(f"a .{self._kind} ballot must not have ties", number, line)
        return tiers

    def _check_alternatives(self) -> None:
        """Refuse a damaged count that would need far more memory than the file suggests."""
        if self._count > _MOST_UNNAMED + 2 * len(self._names):
            raise self._error(f"the header declares {self._count:,} alternatives, but names {len(self._names):,}")
        if self._names and max(self._names) > self._count:
            raise self._error(
                f"the header declares {self._count:,} alternatives, but names number {max(self._names):,}"
            )

    def _assemble(self) -> Ballots:
        count = len(self._ballots)
        if not count:
            raise self._error("the file contains no ballots")
        for key, found in (("VOTERS", self._voters), ("UNIQUE ORDERS", count), ("UNIQUE PREFERENCES", count)):
            if self._numbers.get(key, found) != found:
                raise self._error(
                    f"the header declares {self._numbers[key]:,} {key.lower()}, but {found:,} follow",
                    remedy="The file may be truncated",
                )
        names = [self._names.get(i, f"Alternative {i}") for i in range(1, self._count + 1)]
        if len(set(names)) != len(names):
            raise self._error('an alternative has the default name ("Alternative" and a number) of an unnamed one')
        return self._ballots.build(names, first_item=1)


def _is_number(text: str, digits: int) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= digits


def items_and_labels(tiers: list[list[int]]) -> tuple[list[int], list[float]]:
    """Flatten tiers, best first, into items and their labels: 1, 2, ... from the bottom up."""
    labels = [float(label) for label, tier in zip(range(len(tiers), 0, -1), tiers, strict=True) for _ in tier]
    return [item for tier in tiers for item in tier], labels


class BallotArrays:
    """Collects ballots one by one in compact arrays: Python lists would take many times the memory."""

    def __init__(self) -> None:
        self._items, self._labels = array("q"), array("d")
        self._sizes, self._weights = array("q"), array("d")

    def __len__(self) -> int:
        return len(self._sizes)

    def add(self, items: Sequence[int], labels: Iterable[float], weight: float) -> None:
        self._items.extend(items)
        self._labels.extend(labels)
        self._sizes.append(len(items))
        self._weights.append(weight)

    def build(self, names: list[str], X: FloatArray | None = None, first_item: int = 0) -> Ballots:
        return Ballots(
            items=np.array(self._items, np.int64) - first_item,
            labels=np.array(self._labels, np.float64),
            offsets=offsets_from_sizes(np.array(self._sizes, np.int64)),
            weights=np.array(self._weights, np.float64),
            names=names,
            X=X,
        )


def tiers_of(ballots: Ballots) -> list[list[list[int]]]:
    """Return each ballot as a list of tiers of items, best first."""
    result = []
    for first, last in itertools.pairwise(ballots.offsets):
        labels = ballots.labels[first:last]
        order = np.argsort(-labels, kind="stable")
        ranked = zip(labels[order].tolist(), ballots.items[first:last][order].tolist(), strict=True)
        result.append([[item for _, item in tier] for _, tier in itertools.groupby(ranked, key=lambda pair: pair[0])])
    return result


def check_ballots(ballots: Ballots) -> None:
    """Refuse what text cannot represent: labels that are not finite, an item twice on a ballot."""
    check_kind("ballots", ballots, Ballots)
    if not np.isfinite(ballots.labels).all():
        raise ValueError("labels must be finite to be written")
    ballot = np.repeat(np.arange(len(ballots)), np.diff(ballots.offsets))
    pairs = ballot * max(1, len(ballots.names)) + np.asarray(ballots.items, np.int64)
    if len(np.unique(pairs)) != len(pairs):
        raise ValueError("items must occur at most once per ballot to be written")


def dump_preflib(ballots: Ballots, target: Source, *, title: str = "") -> None:
    """Write ballots to a PrefLib file that `load_preflib` reads back, with the narrowest kind that fits them.

    The order of tiers is kept; labels become 1, 2, ... from the bottom up. A file name that ends with a kind (.soc,
    .soi, .toc, .toi) must name the kind of the ballots or a wider one.
    """
    check_ballots(ballots)
    weights = np.asarray(ballots.weights)
    if not ((weights == np.floor(weights)) & (weights >= 0) & (weights < 1e15)).all():
        raise ValueError("weights must be whole numbers of at most 15 digits to be written as a PrefLib file")
    if len(set(ballots.names)) != len(ballots.names):
        raise ValueError("names must be unique to be written as a PrefLib file")
    tiers = tiers_of(ballots)
    count = len(ballots.names)
    strict = all(len(tier) == 1 for ballot in tiers for tier in ballot)
    complete = bool((np.diff(ballots.offsets) == count).all())
    kind = ("s" if strict else "t") + "o" + ("c" if complete else "i")
    wanted = ending(target).removeprefix(".")
    if wanted in KINDS and wanted != kind:
        fits = wanted[:2] in ("to", kind[:2]) and wanted[2] in ("i", kind[2])
        if not fits:
            raise ValueError(f"target must end with .{kind} or a more general kind for these ballots, got .{wanted}")
        kind = wanted
    if not title.isprintable() or any(name.strip() != name or not name.isprintable() for name in ballots.names):
        raise ValueError("title and names must be printable text without surrounding blanks")
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
