"""Checks of arguments. Each error names the argument, what was expected and what came."""

import math
import sys
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

_LARGEST = sys.float_info.max  # Python's whole numbers go beyond it
_EXACT = 2**53  # float64 holds every whole number up to it, and not every one beyond


def describe(value: Any) -> str:
    """The kind of a value, and its shape if it has one."""
    shape = getattr(value, "shape", None)
    return f"{type(value).__name__} of shape {tuple(shape)}" if isinstance(shape, tuple) else type(value).__name__


def check_kind(name: str, value: Any, *kinds: type) -> None:
    """An instance of one of the kinds."""
    if not isinstance(value, kinds):
        expected = dict.fromkeys("None" if kind is type(None) else kind.__name__ for kind in kinds)
        got = repr(value) if isinstance(value, str | int | float) else describe(value)
        raise ValueError(f"{name} must be {' or '.join(expected)}, got {got}")


def as_array(name: str, values: Any) -> npt.NDArray[Any]:
    """An array of any type."""
    check_unmasked(name, values)
    try:
        return np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} must be an array, or nested lists of equal lengths, got others: {error}") from None


def check_unmasked(name: str, values: Any) -> None:
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(f"{name} must not be a masked array, whose mask would be lost: fill it, or leave entries out")


def as_numbers(name: str, values: Any) -> npt.NDArray[np.float64]:
    """An array of float64. Texts are no numbers, even if they spell one, and whole numbers are never rounded."""
    array = as_array(name, values)
    is_numeric = array.dtype.kind in "biuf"
    if array.dtype.kind == "O":
        is_numeric = not any(isinstance(value, str | bytes) for value in array.flat)
    numbers = None
    if is_numeric:
        with suppress(TypeError, ValueError, OverflowError):
            numbers = array.astype(np.float64, copy=False)
    if numbers is None:
        raise ValueError(f"{name} must hold numbers, got {array.dtype}")
    check_exact(name, array)
    return numbers


def check_exact(name: str, array: npt.NDArray[Any]) -> None:
    """Raise ValueError at a whole number that float64 would round: labels that differ could become a tie."""
    if array.dtype.kind in "iu":
        if not array.size or -_EXACT <= int(array.min()) <= int(array.max()) <= _EXACT:
            return
    elif array.dtype.kind != "O":
        return
    for value in array.reshape(-1).tolist():
        if isinstance(value, int) and not is_exact(value):
            raise ValueError(
                f"{name} must hold whole numbers that float64 holds exactly, as it does up to 2^53, got {value}: pass "
                "their ranks, such as scipy.stats.rankdata(values, 'dense')"
            )


def is_exact(number: int) -> bool:
    """Whether float64 holds the number."""
    with suppress(OverflowError):
        return int(float(number)) == number
    return False


def check_same_index(**columns: Any) -> None:
    """Raise ValueError unless all pandas objects have the same index: rows are matched by their order alone."""
    indexed = {name: value.index for name, value in columns.items() if hasattr(value, "iloc")}
    for name, index in indexed.items():
        first = next(iter(indexed))
        if not index.equals(indexed[first]):
            raise ValueError(
                f"{name} must have the index of {first}, got another one: pass {name}.loc[{first}.index] to match rows "
                f"by index, or {name}.to_numpy() to match them by their order"
            )


def check_sparse(name: str, matrix: Any) -> Any:
    """A sparse matrix whose indices point inside it, which compiled code takes for granted; other formats as CSR."""
    if matrix.format not in ("csr", "csc", "bsr", "coo"):
        matrix = matrix.tocsr()
    rows, columns = matrix.shape
    if matrix.format == "coo":
        _check_inside(f"rows of {name}", matrix.row, rows)
        _check_inside(f"columns of {name}", matrix.col, columns)
        return matrix
    if matrix.format == "bsr":
        rows, columns = (size // block for size, block in zip(matrix.shape, matrix.blocksize, strict=True))
    major, minor = (columns, rows) if matrix.format == "csc" else (rows, columns)
    starts, stored = matrix.indptr, min(len(matrix.indices), len(matrix.data))
    if starts.shape != (major + 1,) or starts[0] != 0 or starts[-1] > stored or (starts[1:] < starts[:-1]).any():
        raise ValueError(
            f"indptr of {name} must hold {major + 1} positions that begin with 0, do not decrease and end with at most "
            f"{stored}, the number of stored values, got others: build the matrix anew"
        )
    _check_inside(f"indices of {name}", matrix.indices[: starts[-1]], minor)
    return matrix


def _check_inside(name: str, indices: npt.NDArray[Any], size: int) -> None:
    if indices.dtype.kind != "i":
        raise ValueError(f"{name} must hold whole numbers, got {indices.dtype}")
    # As unsigned numbers those below 0 are the largest of all: one pass finds both.
    if indices.size and int(indices.view(f"u{indices.itemsize}").max()) >= size:
        raise ValueError(f"{name} must be from 0 to {size - 1}, got {indices.min()} to {indices.max()}")


def as_csr(name: str, matrix: Any) -> Any:
    """A csr_array whose columns ascend within a row, each there once; what is given twice is added, as scipy does."""
    from scipy.sparse import csr_array, issparse

    found = csr_array(check_sparse(name, matrix) if issparse(matrix) else matrix)
    if not found.has_canonical_format:
        found = found.copy()
        found.sum_duplicates()
    return found


def check_count(name: str, value: Any, least: int, most: int | None = None) -> int:
    """A whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    check_range(name, value, least, _LARGEST if most is None else most)
    return int(value)


def check_range(name: str, value: Any, least: float, most: float = _LARGEST) -> float:
    """A finite number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ValueError(f"{name} must be a number, got {value!r}")
    if not -math.inf < value < math.inf:
        raise ValueError(f"{name} must be finite, got {value}")
    if value < least:
        raise ValueError(f"{name} must be at least {least:g}, got {value}")
    if value > most:
        raise ValueError(f"{name} must be at most {most:g}, got {value}")
    return float(value)


def check_fraction(name: str, value: Any) -> float:
    """A number between 0 and 1, neither of which it is."""
    if not isinstance(value, int | float | np.number) or not 0.0 < value < 1.0:
        raise ValueError(f"{name} must be a number between 0 and 1, got {value!r}")
    return float(value)
