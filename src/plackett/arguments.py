"""Checks of single arguments: kinds, numbers, choices, arrays, features, parameters of estimators.

Every check of a value that stands for itself is here; whatever concerns the structure of lists (offsets, qid, group,
where, scores with labels) is in `plackett.lists`. Code that these two modules have served validates nothing again.

Each error names the argument, what was expected and what was given. torch is never imported: a tensor can only arrive
if the caller has imported it.
"""

import math
import operator
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from decimal import Decimal
from functools import partial
from numbers import Real
from types import NoneType
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


def as_tensor(name: str, values: Any, device: Any, dtype: Any = None) -> Any:
    """A torch tensor on the device, of a type if given. Some other argument must be a tensor already."""
    try:
        return sys.modules["torch"].as_tensor(values, device=device, dtype=dtype)
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


# Features.


def is_frame(X: Any) -> bool:
    """Whether X is a table with named columns."""
    return hasattr(X, "columns") and hasattr(X, "dtypes")


def is_dask(collection: Any) -> bool:
    """Whether this is a Dask collection."""
    return hasattr(collection, "__dask_graph__")


def in_memory(X: Any) -> Any:
    """X unless it is lazy or on a cluster; nested lists become arrays, polars tables become pandas tables."""
    if X is None:
        raise ValueError("X must be rows of features, got None")
    if is_dask(X):
        raise ValueError(
            f"X must be in memory, got a Dask {type(X).__name__}: only fit and predict of BoostedRanker take one, "
            "and plackett.evaluation.evaluate its scores"
        )
    if hasattr(X, "collect") and not hasattr(X, "to_numpy"):
        raise ValueError(f"X must be a table in memory, got a {type(X).__name__}: pass X.collect()")
    if is_frame(X) and not hasattr(X, "iloc"):
        return X.to_pandas()
    if isinstance(X, np.ndarray) or not hasattr(X, "shape"):
        X = as_array("X", X)
    if not X.shape:
        raise ValueError(f"X must be rows of features, got {type_and_shape(X)}")
    return X


def as_rows(X: Any, *, categories: bool = False) -> Any:
    """X if it can be rows of features: an array, a sparse matrix, or a table of numbers (`categories`: or categories).

    This refuses input that scikit-learn and LightGBM would silently convert or misread: masked arrays, text that spells
    numbers, dates, complex numbers, indices out of range.
    """
    from scipy.sparse import issparse

    X = in_memory(X)
    if issparse(X):
        return check_sparse("X", X)
    if is_frame(X):
        _check_columns(X, categories)
    elif isinstance(X, np.ndarray):
        is_text = X.dtype.kind == "O" and any(isinstance(value, str | bytes) for value in X.flat)
        if is_text or X.dtype.kind in "USMm":
            raise ValueError(f"X must hold numbers, got {'texts' if is_text else X.dtype}")
    return X


def _check_columns(table: Any, categories: bool) -> None:
    """Raise ValueError at a column of a pandas table that models cannot be trained with, or cannot store."""
    kinds = list(table.dtypes.items())
    for number, (name, kind) in enumerate(kinds):
        if not _holds_numbers(table, number, kind, categories):
            allowed = "numbers, or categories that are texts or finite numbers" if categories else "numbers"
            raise ValueError(f"column {name!r} of X must hold {allowed}, got {kind}: leave it out, or convert it")
        if categories and str(name).splitlines() != [str(name)]:  # LightGBM stores all names in a line
            raise ValueError(f"column {name!r} of X must have a name of one line that is not empty")
    if categories:  # otherwise scikit-learn checks the numbers
        _refuse_infinity(table, [number for number, (_, kind) in enumerate(kinds) if not hasattr(kind, "categories")])


def _refuse_infinity(table: Any, columns: list[int]) -> None:
    """Raise ValueError at a number that is infinite."""
    found = table if len(columns) == table.shape[1] else table.iloc[:, columns]
    infinite = np.isinf(found.to_numpy(np.float64, na_value=np.nan))
    if infinite.any():
        name = found.columns[int(np.argmax(infinite.any(axis=0)))]
        raise ValueError(f"column {name!r} of X must hold finite numbers or NaN: Input X contains infinity")


def _holds_numbers(table: Any, number: int, kind: Any, categories: bool) -> bool:
    """Whether a column of a pandas table holds numbers, or categories if these are allowed."""
    if hasattr(kind, "categories"):
        if categories:
            return all(_is_plain(value) for value in kind.categories.tolist())
        return bool(kind.categories.dtype.kind in "biuf")
    if isinstance(kind, np.dtype) and kind.kind == "O":
        return all(isinstance(value, Real | Decimal) or is_missing(value) for value in table.iloc[:, number])
    return bool(kind.kind in "biuf")


def _is_plain(category: Any) -> bool:
    """Whether JSON can store a category."""
    return isinstance(category, str) or (isinstance(category, int | float) and math.isfinite(category))


def is_checked(X: Any, model: Any) -> bool:
    """Whether X needs no further check: a plain array of finite doubles with the features of the model.

    scikit-learn's checks take longer than scoring a few rows.
    """
    is_plain = type(X) is np.ndarray and X.dtype == np.float64 and X.ndim == 2 and len(X) > 0
    if not is_plain or hasattr(model, "feature_names_in_") or not 0 < X.shape[1] == model.n_features_in_:
        return False
    return math.isfinite(X.min()) and math.isfinite(X.max())


def as_features(X: Any, *, categories: bool, validate: Callable[..., Any] | None = None) -> Any:
    """Checked rows in a form that LightGBM takes: an array, a CSR matrix, or a pandas table unchanged.

    `validate` is `validate_data` of an estimator, which also compares names and number of features; None:
    `check_array`.
    """
    X = as_rows(X, categories=categories)
    if is_frame(X):
        if validate is not None:
            validate(X, skip_check_array=True)
        return X
    from scipy.sparse import csr_matrix, issparse
    from sklearn.utils.validation import check_array

    options: dict[str, Any] = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}
    found = (validate or check_array)(X, ensure_all_finite="allow-nan", **options)
    return csr_matrix(as_csr("X", found)) if issparse(found) else found  # LightGBM does not take sparse arrays


def is_all_nan(X: Any) -> bool:
    """Whether features hold no number at all."""
    if hasattr(X, "indptr"):  # entries that are not stored are 0
        return False
    parts = (X[:1], X)  # usually the first row has a number, and the others need not be read
    return all(bool((part.isna().to_numpy() if is_frame(part) else np.isnan(part)).all()) for part in parts)


# Parameters of estimators. `fit` checks them: scikit-learn wants them untouched until then.

Check = Callable[[str, Any], Any]
"""Called with the name of a parameter and its value."""


def check_parameters(estimator: Any) -> None:
    """Check each parameter that the `parameter_kinds` of an estimator name."""
    for name, check in estimator.parameter_kinds.items():
        check(name, getattr(estimator, name))


check_whole_number: Check = partial(check_count, least=-(2**31), most=2**31 - 1)


def or_none(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


def check_flag(name: str, value: Any) -> None:
    check_kind(name, value, bool, np.bool_)


def check_text(name: str, value: Any) -> None:
    check_kind(name, value, str)


def check_options(name: str, value: Any) -> None:
    check_kind(name, value, dict, NoneType)


def check_above_zero(name: str, value: Any) -> None:
    if check_range(name, value, 0.0) == 0.0:
        raise ValueError(f"{name} must be above 0, got {value}")


def check_share(name: str, value: Any) -> None:
    check_above_zero(name, value)
    check_range(name, value, 0.0, 1.0)


def check_sequence(name: str, value: Any) -> None:
    if isinstance(value, str) or not isinstance(value, Collection):
        raise ValueError(f"{name} must be a sequence or None, got {value!r}")


def check_seed(name: str, value: Any) -> None:
    try:
        np.random.default_rng(value)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} must be a whole number of at least 0, a NumPy generator or None, got {value!r}"
        ) from None


def metric_names(name: str, value: Any) -> list[str]:
    """One metric, or several, as a list."""
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, Collection) or not len(names) or not all(isinstance(one, str) for one in names):
        raise ValueError(f"{name} must name metrics, such as 'ndcg@10' or ['ndcg@10', 'err'], got {value!r}")
    return list(names)
