"""Graded lists for experiments: folds of the real data sets, and generated stand-ins of the same shape."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import islice, pairwise
from typing import NamedTuple

from plackett.data import letor_folds, load_letor, make_graded_lists, train_validation_split
from plackett.data.splits import Fold
from plackett.experiments.datasets import DataFolder


class Shape(NamedTuple):
    """The shape of generated data; `lists` counts the training lists of one fold."""

    lists: int
    mean_length: float
    features: int


STAND_INS: Mapping[str, Shape] = {
    "mslr stand-in": Shape(18_900, 120.0, 136),
    "yahoo stand-in": Shape(19_944, 23.0, 519),
}
"""The sizes are those that Table 2 of PLRank gives for Microsoft 30K and Yahoo 2010, set 1."""


@lru_cache(maxsize=1)  # consecutive cells use the same fold
def load_fold(name: str, number: int, data: DataFolder, *, lists: int | None = None) -> Fold:
    """Load fold `number` of a data set, counted from 0. The publisher's folds are used where they exist.

    A name in `STAND_INS` is generated with `number` as the seed. It has `lists` training lists (None: as many as its
    shape says), and a third as many for validation and again for testing.

    >>> [len(part) for part in load_fold("yahoo stand-in", 0, DataFolder(), lists=9)]
    [9, 3, 3]
    """
    if name in STAND_INS:
        shape = STAND_INS[name]
        return _generated(shape._replace(lists=lists or shape.lists), number)
    if name == "mq2008":
        parts = [load_letor(data.file(name, f"S{part}.txt")) for part in range(1, 6)]
        return next(islice(letor_folds(parts), number, None))
    if name == "mslr-sample":
        train, test = (load_letor(data.file(name, f"{part}.txt")) for part in ("train", "test"))
        return Fold(*train_validation_split(train, 0.25, random_state=0), test)
    if name in ("mslr-web10k", "mslr-web30k"):
        folder = f"Fold{number + 1}"
        return Fold(*(load_letor(data.file(name, folder, part)) for part in ("train.txt", "vali.txt", "test.txt")))
    if name == "yahoo-ltrc":
        return Fold(*(load_letor(data.file(name, f"set1.{part}.txt")) for part in ("train", "valid", "test")))
    raise ValueError(f"name must be a data set with graded lists, got {name!r}")


def _generated(shape: Shape, seed: int) -> Fold:
    held = max(1, shape.lists // 3)
    generated, _ = make_graded_lists(
        shape.lists + 2 * held, mean_length=shape.mean_length, n_features=shape.features, random_state=seed
    )
    ends = (0, shape.lists, shape.lists + held, shape.lists + 2 * held)
    return Fold(*(generated.select(range(*span)) for span in pairwise(ends)))
