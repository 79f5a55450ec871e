"""Checks of single arguments: kinds, numbers, choices, arrays, the cut-off and the tolerance.

Every check of a value that stands for itself is here; whatever concerns the structure of lists (offsets, qid, group,
where, scores with labels) is in `plackett.lists`. Nothing below these two modules validates its input.

Each error names the argument, what was expected and what was given. torch is never imported: a tensor can only arrive
if the caller has imported it.
"""

import math
import operator
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.floating[Any]]

NO_CUTOFF = int(np.iinfo(np.int64).max)
"""The cut-off that the kernels take for `top=None`."""

# Relative error of each tier's probability. The second moments behind the curvature are less exact than the value by up
# to the square of the tier's size, which the default leaves room for.
DEFAULT_TOL = {np.dtype(np.float64): 1e-13, np.dtype(np.float32): 1e-8}
SMALLEST_TOL = 1e-15

_LARGEST = sys.float_info.max  # Python integers can exceed it
_LARGEST_EXACT = 2**53  # float64 holds every integer up to this one, but not every larger one
_LARGEST_INDEX = 2**48  # far beyond what fits into memory, far below where sums of many could overflow


# Kinds and choices.


def is_torch(value: Any) -> bool:
    """Whether `value` is a torch tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_missing(value: Any) -> bool:
    """Whether `value` is None, NaN, NaT or pandas' NA."""
    return (
        value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    )


def type_and_shape(value: Any) -> str:
    """The type of a value and its shape, if it has one, for messages."""
    shape = getattr(value, "shape", None)
    return f"{type(value).__name__} of shape {tuple(shape)}" if isinstance(shape, tuple) else type(value).__name__


def check_kind(name: str, value: Any, *kinds: type) -> None:
    """Raise ValueError unless `value` is an instance of one of the kinds."""
    if not isinstance(value, kinds):
        expected = dict.fromkeys("None" if kind is type(None) else kind.__name__ for kind in kinds)
        got = repr(value) if isinstance(value, str | int | float) else type_and_shape(value)
        raise ValueError(f"{name} must be {' or '.join(expected)}, got {got}")


def check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    """Raise ValueError unless `value` is one of the choices, in type as well as in value."""
    if not any(type(value) is type(choice) and value == choice for choice in choices):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")


# Numbers.


def check_positive(name: str, value: Any, otherwise: str = "") -> int:
    """An integer of at least 1; `otherwise` tells the user what else the caller accepts, such as ", or None"."""
    try:
        number = 0 if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        number = 0
    if number < 1:
        raise ValueError(f"{name} must be a whole number of at least 1{otherwise}, got {value!r}")
    return number


def check_count(name: str, value: Any, least: int, most: int | None = None) -> int:
    """An integer from `least` to `most`."""
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
    """A number strictly between 0 and 1."""
    if not isinstance(value, int | float | np.number) or not 0.0 < value < 1.0:
        raise ValueError(f"{name} must be a number between 0 and 1, got {value!r}")
    return float(value)


def check_top(top: Any) -> int:
    """The cut-off as the kernels take it: a number of places, or NO_CUTOFF for None."""
    return NO_CUTOFF if top is None else min(check_positive("top", top, ", or None"), NO_CUTOFF)


def check_tol(tol: Any, dtype: np.dtype[Any]) -> float:
    """The tolerance of the quadrature; None means the default of the type."""
    if tol is None:
        return DEFAULT_TOL[dtype]
    if not isinstance(tol, int | float | np.number) or not SMALLEST_TOL <= tol <= 0.1:
        raise ValueError(f"tol must be a number from {SMALLEST_TOL} to 0.1, or None, got {tol!r}")
    return float(tol)


def check_midpoint_options(top: int | None, intervals: Any, shift: Any) -> None:
    """Raise ValueError unless the midpoint rule can take the options."""
    if top is not None:
        raise ValueError(f'quadrature="midpoint" has no cut-off: top must be None, got {top!r}')
    if not isinstance(intervals, int | np.integer) or intervals < 1:
        raise ValueError(f"intervals must be a whole number of at least 1, got {intervals!r}")
    if not isinstance(shift, int | float | np.number) or not math.isfinite(shift):
        raise ValueError(f"shift must be a finite number, got {shift!r}")


# Arrays.


def as_array(name: str, values: Any) -> npt.NDArray[Any]:
    """An array of any type."""
    check_unmasked(name, values)
    try:
        return np.asarray(values)
    except ValueError as error:
        raise ValueError(
            f"{name} must be an array, or nested lists of equal lengths, got unequal ones: {error}"
        ) from None


def check_unmasked(name: str, values: Any) -> None:
    """Raise ValueError for a masked array, whose mask NumPy would silently drop."""
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(f"{name} must not be a masked array, whose mask would be lost: fill it, or leave entries out")


def as_floats(name: str, values: Any) -> FloatArray:
    """An array of float32 or float64; other real types become float64."""
    if is_torch(values):
        raise TypeError(f"{name} must be a NumPy array like the other arguments, got a torch tensor")
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(f"{name} must not be a masked array, whose mask would be lost: pass the mask as where=")
    array = as_array(name, values)
    if array.dtype not in DEFAULT_TOL:
        if array.dtype.kind not in "biuf":
            raise ValueError(f"{name} must be real numbers, got an array of {array.dtype}")
        array = array.astype(np.float64)
    return array


def to_numpy(values: Any) -> Any:
    """A torch tensor as a NumPy array, floats as float64 (NumPy lacks some half precisions); all else unchanged."""
    if not is_torch(values):
        return values
    tensor = values.detach()
    return (tensor.double() if tensor.is_floating_point() else tensor).cpu().numpy()


def as_tensor(name: str, values: Any, device: Any) -> Any:
    """A torch tensor on the device. Some other argument must be a tensor already."""
    try:
        return sys.modules["torch"].as_tensor(values, device=device)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} must be a tensor or an array of numbers, got {type(values).__name__}") from None


def check_float_type(name: str, dtype: npt.DTypeLike) -> None:
    """Raise ValueError unless `dtype` is float32 or float64."""
    if np.dtype(dtype) not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"{name} must be float32 or float64, got {dtype}")


def check_float_tensor(name: str, values: Any) -> None:
    """Raise unless `values` is a torch tensor of a floating-point type."""
    if not is_torch(values):
        raise TypeError(f"{name} must be a torch tensor like the other arguments, got {type(values).__name__}")
    if not values.dtype.is_floating_point:
        raise ValueError(f"{name} must be of a floating-point type, got {values.dtype}")


def as_numbers(name: str, values: Any) -> npt.NDArray[np.float64]:
    """An array of float64. Text is refused even if it spells a number, and integers are never rounded."""
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


def whole_numbers(name: str, values: Any) -> IntArray:
    """A 1-D array of int64, or an error if the conversion would change a value."""
    array = as_array(name, values)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, got {array.ndim} dimensions")
    if array.size == 0:
        return array.astype(np.int64)
    is_whole = array.dtype.kind in "iu" or (array.dtype.kind == "f" and bool(np.all(array == np.floor(array))))
    if not is_whole:
        raise ValueError(f"{name} must hold whole numbers, got {array.dtype}")
    if array.max() > _LARGEST_INDEX or array.min() < -_LARGEST_INDEX:
        raise ValueError(
            f"{name} must hold whole numbers of at most {_LARGEST_INDEX} in size, got {array.min()} to {array.max()}"
        )
    return array.astype(np.int64)


def check_finite(name: str, values: Any) -> None:
    """Raise ValueError at the first NaN or infinity of an array or a torch tensor."""
    if is_torch(values):
        finite = values.isfinite()
        if bool(finite.all()):
            return
        position = tuple(finite.logical_not().nonzero()[0].tolist())
        bad = values[position].item()
    else:
        array = as_array(name, values)
        if array.dtype.kind not in "biuf":
            raise ValueError(f"{name} must hold numbers, got {array.dtype}")
        finite = np.isfinite(array)
        if finite.all():
            return
        position = tuple(int(p) for p in np.unravel_index(int(np.argmin(finite)), array.shape))
        bad = array[position]
    where = position[0] if len(position) == 1 else position
    raise ValueError(f"{name} must be finite, got {bad} at position {where}")


def check_scores(scores: npt.NDArray[Any], reason: Callable[[int], str]) -> None:
    """Raise ValueError for the first row with a score that is not finite; `reason` says why, given the row."""
    finite = np.isfinite(scores)
    if not finite.all():
        row = int(np.argmin(finite.reshape(len(finite), -1).all(1)))
        raise ValueError(f"scores must be finite, got {scores[row][~finite[row]].flat[0]} for row {row}: {reason(row)}")


def check_exact(name: str, array: npt.NDArray[Any]) -> None:
    """Raise ValueError at an integer that float64 would round: different labels could become a tie."""
    if array.dtype.kind in "iu":
        if not array.size or -_LARGEST_EXACT <= int(array.min()) <= int(array.max()) <= _LARGEST_EXACT:
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
    """Whether float64 holds the integer exactly."""
    with suppress(OverflowError):
        return int(float(number)) == number
    return False


def ranks_if_large(labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Integer labels unchanged, or their ranks if float64 would round some of them."""
    is_integer = labels.dtype.kind in "iu" and labels.size > 0
    if is_integer and (labels.max() > _LARGEST_EXACT or labels.min() < -_LARGEST_EXACT):
        return np.unique(labels, return_inverse=True)[1].reshape(labels.shape)
    return labels


# Data frames and sparse matrices.


def check_same_index(**columns: Any) -> None:
    """Raise ValueError unless all pandas objects have the same index, because rows are matched by position."""
    indexed = {name: value.index for name, value in columns.items() if hasattr(value, "iloc")}
    for name, index in indexed.items():
        first = next(iter(indexed))
        if not index.equals(indexed[first]):
            raise ValueError(
                f"{name} must have the index of {first}, got a different one: pass {name}.loc[{first}.index] to match "
                f"rows by index, or {name}.to_numpy() to match them by position"
            )


def check_sparse(name: str, matrix: Any) -> Any:
    """A sparse matrix whose indices are in range, which compiled code relies on; rare formats become CSR."""
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
            f"{stored}, the number of stored values, got different ones: rebuild the matrix"
        )
    _check_inside(f"indices of {name}", matrix.indices[: starts[-1]], minor)
    return matrix


def _check_inside(name: str, indices: npt.NDArray[Any], size: int) -> None:
    if indices.dtype.kind != "i":
        raise ValueError(f"{name} must hold whole numbers, got {indices.dtype}")
    # Viewed as unsigned, negative numbers are the largest of all: one pass finds both kinds.
    if indices.size and int(indices.view(f"u{indices.itemsize}").max()) >= size:
        raise ValueError(f"{name} must be from 0 to {size - 1}, got {indices.min()} to {indices.max()}")


def as_csr(name: str, matrix: Any) -> Any:
    """A csr_array with ascending columns in each row; duplicate entries are summed, as scipy does."""
    from scipy.sparse import csr_array, issparse

    found = csr_array(check_sparse(name, matrix) if issparse(matrix) else matrix)
    if not found.has_canonical_format:
        found = found.copy()
        found.sum_duplicates()
    return found
