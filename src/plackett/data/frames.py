"""Tables: pandas, polars, Arrow, anything with the Arrow or the interchange protocol; and Parquet files of them."""

from __future__ import annotations

import io
import numbers
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from plackett.data.containers import RankingData
from plackett.data.files import (
    Source,
    check_expansion,
    is_compressed_name,
    is_path,
    open_source,
    open_target,
    source_name,
)
from plackett.errors import DataError, MissingDependencyError
from plackett.lists import is_missing, lists_from_qid


def _pyarrow(purpose: str) -> Any:
    try:
        import pyarrow
    except ImportError:
        raise MissingDependencyError("pyarrow", "files", purpose) from None
    return pyarrow


def _parquet(purpose: str) -> Any:
    _pyarrow(purpose)
    import pyarrow.parquet

    return pyarrow.parquet


def _as_table(frame: Any) -> Any:
    """Something with column names and columns by name that turn into NumPy arrays."""
    if hasattr(frame, "collect") and not hasattr(frame, "to_numpy"):
        frame = frame.collect()  # a lazy table of polars
    if hasattr(frame, "columns") and hasattr(frame, "__getitem__") and hasattr(frame, "dtypes"):
        return frame  # pandas and polars
    if hasattr(frame, "column_names"):
        return frame  # an Arrow table or record batch
    if hasattr(frame, "__arrow_c_stream__"):
        return _pyarrow("this kind of table").table(frame)
    if hasattr(frame, "__dataframe__"):
        import pyarrow.interchange

        return pyarrow.interchange.from_dataframe(frame)
    raise TypeError(f"frame must be a table (pandas, polars, Arrow, ...), got {type(frame).__name__}")


def column_names(frame: Any) -> list[str]:
    return list(frame.column_names if hasattr(frame, "column_names") else frame.columns)


def _column(frame: Any, name: str) -> npt.NDArray[Any]:
    column = frame[name]
    if hasattr(column, "type") and not hasattr(column, "chunks"):  # an Arrow array copies only when told to
        return np.asarray(column.to_numpy(zero_copy_only=False))
    return np.asarray(column.to_numpy())


def _numbers(frame: Any, source: str, name: str, missing_allowed: bool) -> npt.NDArray[Any]:
    values = _column(frame, name)
    is_numeric = values.dtype.kind in "biuf"
    if values.dtype.kind == "O":  # what has a missing value, or decimals
        missing = np.array([is_missing(value) for value in values], bool)
        is_numeric = all(isinstance(value, numbers.Real | Decimal) for value in values[~missing])
        if is_numeric:
            values = np.where(missing, np.nan, values)
    if not is_numeric:
        raise DataError(
            f"column {name!r} must hold numbers, got {values.dtype}",
            file=source,
            remedy="Leave it out by features=, or turn it into numbers",
        )
    values = values.astype(np.float64, copy=False)
    if not missing_allowed and not np.isfinite(values).all():
        at = int(np.argmin(np.isfinite(values)))
        raise DataError(f"column {name!r} must be finite, got {values[at]} in row {at}", file=source)
    return values


def from_frame(
    frame: Any,
    *,
    query: str,
    label: str,
    features: Sequence[str] | None = None,
    ids: str | None = None,
    dtype: npt.DTypeLike = np.float64,
) -> RankingData:
    """Lists of items from a table with a row an item; rows of a list need not be next to each other.

    Args:
        frame: a table of pandas, polars, Arrow, or any with the Arrow or the interchange protocol.
        query, label: the columns with the list (of any kind of value) and the label of each item.
        features: the columns of X; None: all others. Missing values become NaN.
        ids: the column that identifies items.
    """
    return _ranking_data(_as_table(frame), "table", query, label, features, ids, dtype)


def _ranking_data(
    table: Any,
    source: str,
    query: str,
    label: str,
    features: Sequence[str] | None,
    ids: str | None,
    dtype: npt.DTypeLike,
) -> RankingData:
    names = column_names(table)
    if isinstance(features, str):
        raise ValueError(f"features must be a list of columns, got the text {features!r}")
    doubled = [name for name in names if names.count(name) > 1]
    if doubled:
        raise DataError(f"column {doubled[0]!r} is there twice", file=source)
    wanted = [query, label, *([] if ids is None else [ids]), *(features or [])]
    absent = [name for name in wanted if name not in names]
    if absent:
        raise DataError(f"no column {absent[0]!r} among {', '.join(map(str, names))}", file=source)
    if features is None:
        features = [name for name in names if name not in (query, label, ids)]
    lists = lists_from_qid(_column(table, query), len(_column(table, query)))
    X = np.empty((lists.items, len(features)), dtype)
    for i, name in enumerate(features):
        X[:, i] = _numbers(table, source, name, missing_allowed=True)
    return RankingData(
        X=lists.sort(X),
        y=lists.sort(_numbers(table, source, label, missing_allowed=False)),
        qid=lists.sort(_column(table, query)),
        offsets=lists.offsets,
        ids=None if ids is None else lists.sort(_column(table, ids)),
    )


def to_arrow(data: RankingData) -> Any:
    """An Arrow table with the columns label, qid, id (if there are any) and x1, x2, ..."""
    pyarrow = _pyarrow("writing tables")
    X = data.X.toarray() if hasattr(data.X, "toarray") else data.X
    columns = {"label": data.y, "qid": data.qid}
    if data.ids is not None:
        columns["id"] = data.ids
    return pyarrow.table(columns | {f"x{i + 1}": np.ascontiguousarray(X[:, i]) for i in range(X.shape[1])})


def load_parquet(
    source: Source,
    *,
    query: str = "qid",
    label: str = "label",
    features: Sequence[str] | None = None,
    ids: str | None = None,
    dtype: npt.DTypeLike = np.float64,
) -> RankingData:
    """Read lists of items from a Parquet file; arguments as in `from_frame`, a column named id is taken as `ids`."""
    parquet = _parquet("reading Parquet files")
    try:
        if is_path(source) and not is_compressed_name(source):
            with Path(source).open("rb") as file:  # type: ignore[arg-type]
                table = _read_table(parquet, file, source_name(source))
        else:
            with open_source(source) as opened:
                table = _read_table(parquet, io.BytesIO(opened.read()), source_name(source))
    except (FileNotFoundError, PermissionError, DataError):
        raise
    except (ArithmeticError, LookupError, MemoryError, OSError, TypeError, ValueError, NotImplementedError) as error:
        raise DataError(f"not a readable Parquet file ({error})", file=source_name(source)) from error
    if ids is None and "id" in table.column_names and (features is None or "id" not in features):
        ids = "id"
    return _ranking_data(table, source_name(source), query, label, features, ids, dtype)


def _read_table(parquet: Any, file: IO[bytes], name: str) -> Any:
    """The table, if it is not too large for the bytes that hold it: repeated values take next to none."""
    stored = file.seek(0, io.SEEK_END)
    opened = parquet.ParquetFile(file)
    about = opened.metadata
    check_expansion(stored, 8 * about.num_rows * about.num_columns, name)
    return opened.read()


def dump_parquet(data: RankingData, target: Source) -> None:
    """Write lists of items as a Parquet file that `load_parquet` reads back exactly."""
    if (np.diff(data.offsets) == 0).any():
        raise ValueError("lists must not be empty to be written")
    table, parquet = to_arrow(data), _parquet("writing Parquet files")
    with open_target(target) as file:
        parquet.write_table(table, file)
