"""Columns of repeated values as codes, from whatever table they come."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.arguments import is_missing
from plackett.data.comparisons import Factor

MISSING = -1


class _Numbers(dict[Any, int]):
    """The number of each value, in the order of appearance."""

    def __missing__(self, value: Any) -> int:
        number = self[value] = len(self)
        return number


def factorise(column: Any) -> Factor:
    """The codes of a column, MISSING where it has no value; names are in the order of appearance.

    Columns of pandas, polars and Arrow are encoded by these libraries, lists by one dictionary: no string is compared
    with all others.
    """
    if hasattr(column, "factorize"):  # pandas
        codes, names = column.factorize()
        return _factor(codes, names.tolist())
    if hasattr(column, "to_arrow"):  # polars
        column = column.to_arrow()
    if hasattr(column, "dictionary_encode"):  # Arrow
        return _from_arrow(column)
    if isinstance(column, np.ndarray) and column.dtype.kind in "biuf":
        names, codes = np.unique(column, return_inverse=True)
        return _factor(codes.reshape(-1), names.tolist())
    return _from_values(column.tolist() if isinstance(column, np.ndarray) else column)


def _factor(codes: npt.NDArray[Any], names: list[Any]) -> Factor:
    """With MISSING for every name that is missing, blank or not a number."""
    lost = np.array([is_missing(name) or (isinstance(name, str) and not name.strip()) for name in names], bool)
    codes = codes.astype(np.int32)
    if lost.any():
        numbers = np.where(lost, MISSING, np.cumsum(~lost) - 1).astype(np.int32)
        codes = np.append(numbers, np.int32(MISSING))[codes]  # a code of -1 finds the last one
        names = [name for name, gone in zip(names, lost, strict=True) if not gone]
    return Factor(codes, names)


def _from_arrow(column: Any) -> Factor:
    if hasattr(column, "combine_chunks"):
        column = column.combine_chunks()
    encoded = column if hasattr(column, "dictionary") else column.dictionary_encode()
    if hasattr(encoded, "chunks"):
        encoded = encoded.chunk(0) if encoded.num_chunks else encoded.type.wrap_array([])
    codes = encoded.indices.cast("int32").fill_null(MISSING).to_numpy(zero_copy_only=False)
    return _factor(codes, encoded.dictionary.to_pylist())


def merge_names(codes: npt.NDArray[np.int32], names: Iterable[Any]) -> Factor:
    """The factor of codes whose names may be equal or missing."""
    numbers = _Numbers()
    places = np.fromiter(map(numbers.__getitem__, names), np.int32)
    return _factor(places[codes], list(numbers))


def _from_values(values: Iterable[Any]) -> Factor:
    numbers = _Numbers()
    # The bound method of a dict subclass calls __missing__ only for new values: all else runs in C.
    codes = np.fromiter(map(numbers.__getitem__, values), np.int32)
    return _factor(codes, list(numbers))
