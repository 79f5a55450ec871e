"""Splits by list, row or ballot: a list is never split, and nothing is lost.

`random_state` is a seed or numpy generator that shuffles first; with None the order is kept, and every part except a
training set is a run of consecutive lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from plackett.arguments import check_count, check_fraction, check_kind
from plackett.data.containers import Ballots, MultilabelData, RankingData
from plackett.lists import IntArray, offsets_from_sizes


class Selectable(Protocol):
    """The interface shared by all containers of `plackett.data`."""

    def __len__(self) -> int: ...

    def select(self, numbers: Any, /) -> Self: ...


Data = TypeVar("Data", bound=Selectable)


class Fold(NamedTuple):
    """Training, validation and test data."""

    train: RankingData
    validation: RankingData
    test: RankingData


def k_fold(
    data: Data, n_splits: int = 5, *, random_state: int | np.random.Generator | None = None
) -> Iterator[tuple[Data, Data]]:
    """Yield pairs of training and test data. Each list (row, ballot) is in one test part; sizes differ by at most 1.

    >>> from plackett.data import make_tiered_lists
    >>> data = make_tiered_lists(7, random_state=0)
    >>> [(len(train), len(test)) for train, test in k_fold(data, 3)]
    [(4, 3), (5, 2), (5, 2)]
    """
    check_kind("data", data, RankingData, MultilabelData, Ballots)
    check_count("n_splits", n_splits, 2)
    if len(data) < n_splits:
        raise ValueError(f"data must have at least n_splits = {n_splits} lists, got {len(data)}")
    parts = np.array_split(_order(len(data), random_state), n_splits)
    return (
        (data.select(np.concatenate([*parts[:k], *parts[k + 1 :]])), data.select(parts[k])) for k in range(n_splits)
    )


def train_validation_split(
    data: Data, validation: float = 0.2, *, random_state: int | np.random.Generator | None = None
) -> tuple[Data, Data]:
    """Split into training and validation data. `validation` is the share of lists (rows, ballots) in the latter.

    >>> from plackett.data import make_tiered_lists
    >>> train, validation = train_validation_split(make_tiered_lists(10, random_state=0), 0.3, random_state=0)
    >>> len(train), len(validation)
    (7, 3)
    """
    check_kind("data", data, RankingData, MultilabelData, Ballots)
    last = round(check_fraction("validation", validation) * len(data))
    if not 0 < last < len(data):
        raise ValueError(f"validation must leave at least one list in each part, got {validation} of {len(data)} lists")
    train, held_out = np.split(_order(len(data), random_state), [len(data) - last])
    return data.select(train), data.select(held_out)


def letor_folds(parts: Sequence[RankingData]) -> Iterator[Fold]:
    """The rotating folds of LETOR. Fold k of the parts S_1..S_5 is: train on S_k, S_k+1 and S_k+2, validate on S_k+3,
    test on S_k+4, where S_1 follows S_5. Any number of parts from 3 works the same way: the last two are held out.

    Parts must be compatible, as in `concatenate`.

    >>> from plackett.data import make_tiered_lists
    >>> data = make_tiered_lists(5, random_state=0)
    >>> folds = letor_folds([data.select([i]) for i in range(5)])
    >>> [[sorted(set(part.qid.tolist())) for part in fold] for fold in folds][:2]
    [[[0, 1, 2], [3], [4]], [[1, 2, 3], [4], [0]]]
    """
    _check_parts(parts)
    if len(parts) < 3:
        raise ValueError(f"parts must contain at least 3 parts (train, validation, test), got {len(parts)}")
    _check_distinct([part.qid for part in parts])
    width = max(part.X.shape[1] for part in parts)
    same_width = [replace(part, X=_pad_columns(part.X, width)) for part in parts]
    rotations = ([*same_width[k:], *same_width[:k]] for k in range(len(parts)))
    return (Fold(concatenate(train), validation, test) for *train, validation, test in rotations)


def concatenate(parts: Sequence[RankingData], *, renumber: bool = False) -> RankingData:
    """Join the lists of all parts, in order.

    Narrower parts are padded with features that are 0. Either all parts have ids or none does, and features are dense
    in all parts or sparse in all.

    Args:
        renumber: number the lists 0, 1, ... instead of keeping their qid. If False, a qid in two parts is an error.

    >>> from plackett.data import make_tiered_lists
    >>> part = make_tiered_lists(2, tier_sizes=(1, 1), random_state=0)
    >>> concatenate([part, part], renumber=True).qid.tolist()
    [0, 0, 1, 1, 2, 2, 3, 3]
    """
    _check_parts(parts)
    if not parts:
        raise ValueError("parts must contain at least one part, got none")
    sizes = np.concatenate([np.diff(part.offsets) for part in parts])
    if not renumber:
        _check_distinct([part.qid for part in parts])
    ids = [part.ids for part in parts if part.ids is not None]
    return RankingData(
        X=_stack([part.X for part in parts]),
        y=np.concatenate([part.y for part in parts]),
        qid=np.repeat(np.arange(len(sizes)), sizes) if renumber else np.concatenate([part.qid for part in parts]),
        offsets=offsets_from_sizes(sizes),
        ids=np.concatenate(ids) if ids else None,
        first_feature=parts[0].first_feature,
    )


def _order(count: int, random_state: int | np.random.Generator | None) -> IntArray:
    return np.arange(count) if random_state is None else np.random.default_rng(random_state).permutation(count)


def _check_parts(parts: Sequence[RankingData]) -> None:
    """Check that parts are compatible."""
    check_kind("parts", parts, Sequence)
    for part in parts:
        check_kind("parts", part, RankingData)
    ids = [part.ids for part in parts if part.ids is not None]
    if ids and len(ids) < len(parts):
        raise ValueError(
            f"ids must be given in all parts or in none, got them in {len(ids)} of {len(parts)}; "
            "remove them with dataclasses.replace(part, ids=None)"
        )
    # numpy would silently turn numbers among strings into strings.
    for name, arrays in (("qid", [part.qid for part in parts]), ("ids", ids)):
        if len({array.dtype.kind in "USO" for array in arrays}) > 1:
            kinds = ", ".join(str(array.dtype) for array in arrays)
            raise ValueError(f"{name} must hold numbers in all parts or in none, got {kinds}")
    dense = sum(isinstance(part.X, np.ndarray) for part in parts)
    if 0 < dense < len(parts):
        raise ValueError(f"X must be dense in all parts or sparse in all, got {dense} dense of {len(parts)}")


def _check_distinct(qids: Sequence[npt.NDArray[Any]]) -> None:
    values, counts = np.unique(np.concatenate([np.unique(qid) for qid in qids]), return_counts=True)
    if counts.max(initial=1) > 1:
        raise ValueError(
            f"qid must be unique to a part, got {values[np.argmax(counts)]} in {counts.max()} parts; "
            "concatenate(parts, renumber=True) assigns new ones"
        )


def _pad_columns(X: Any, width: int) -> Any:
    """Pad X with columns of 0 up to `width`."""
    if X.shape[1] == width:
        return X
    if isinstance(X, np.ndarray):
        return np.pad(X, ((0, 0), (0, width - X.shape[1])))
    return type(X)((X.data, X.indices, X.indptr), shape=(X.shape[0], width))


def _stack(matrices: Sequence[Any]) -> Any:
    width = max(matrix.shape[1] for matrix in matrices)
    wide = [_pad_columns(matrix, width) for matrix in matrices]
    if isinstance(wide[0], np.ndarray):
        return np.concatenate(wide)
    from scipy.sparse import vstack

    return vstack(wide, format="csr")
