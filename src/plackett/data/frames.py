"""Tables (pandas, polars, Arrow, or anything with the Arrow or the interchange protocol) and Parquet files."""

from __future__ import annotations

import io
import numbers
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from types import NoneType
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from plackett.arguments import check_exact, check_kind, is_missing
from plackett.data.containers import RankingData
from plackett.data.files import (
    Source,
    check_expansion,
    is_compressed_name,
    is_path,
    largest_expansion,
    open_source,
    open_target,
    source_name,
)
from plackett.data.parquet_sizes import LARGEST_PAGE, pages_of, row_groups
from plackett.errors import DataError, MissingDependencyError
from plackett.lists import lists_from_qid

_NUMBER_SIZE = 8
_OBJECT_SIZE = 112  # bytes of a Decimal, or of a string without its characters


class _Columns(NamedTuple):
    """The roles of the columns of a table."""

    query: str
    label: str
    features: list[str]
    ids: str | None

    @property
    def all(self) -> list[str]:
        return list(dict.fromkeys([self.query, self.label, *([] if self.ids is None else [self.ids]), *self.features]))


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


def as_table(frame: Any) -> Any:
    """Convert to an object with column names, and columns by name that convert to NumPy arrays."""
    if hasattr(frame, "collect") and not hasattr(frame, "to_numpy"):
        frame = frame.collect()  # a polars LazyFrame
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
    if hasattr(column, "type") and hasattr(column.type, "index_type"):
        parts = [_values(chunk) for chunk in getattr(column, "chunks", [column])]
        return np.concatenate(parts) if parts else np.empty(0, object)
    if hasattr(column, "type") and not hasattr(column, "chunks"):  # an Arrow array copies only on request
        return np.asarray(column.to_numpy(zero_copy_only=False))
    return np.asarray(column.to_numpy())


def _values(column: Any) -> npt.NDArray[Any]:
    """Decode an Arrow dictionary array. Equal strings share one object; Arrow's own conversion would fill in nulls."""
    if not _is_text(column.type.value_type):
        return np.asarray(column.dictionary_decode().to_numpy(zero_copy_only=False))
    texts = np.array([*column.dictionary.to_pylist(), None], object)
    return np.asarray(texts[column.indices.cast("int64").fill_null(-1).to_numpy()])


def table_column(frame: Any, name: str) -> Any:
    """A column of a table from `as_table`, in the form that its library gives it."""
    return frame[name]


def column_numbers(column: Any) -> npt.NDArray[np.float64]:
    """A column of any library, or a sequence, as numbers: NaN where there is none."""
    values = np.asarray(column.to_numpy() if hasattr(column, "to_numpy") else column)
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    return np.array([_as_number(value) for value in values.tolist()], np.float64)


def _as_number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


class ParquetColumns(NamedTuple):
    """The columns of a Parquet file; `column` reads one of them as an Arrow array."""

    names: list[str]
    column: Callable[[str], Any]


def read_parquet_columns(source: Source) -> ParquetColumns:
    """Open a Parquet file to read single columns, each with the limit on its size in memory."""
    parquet, name = _parquet("reading Parquet files"), source_name(source)
    with open_source(source) as opened:
        file = io.BytesIO(opened.read())
    try:
        schema = parquet.ParquetFile(file).schema_arrow
    except (ArithmeticError, LookupError, MemoryError, OSError, TypeError, ValueError, NotImplementedError) as error:
        raise DataError(f"not a readable Parquet file ({error})", file=name) from error

    def column(wanted: str) -> Any:
        kinds = {wanted: _kind(schema.field(wanted).type)}
        _check_single(kinds, name)
        return _read_table(parquet, file, parquet.ParquetFile(file), name, kinds, frozenset(), 0)[wanted]

    return ParquetColumns(list(schema.names), column)


def _numbers(frame: Any, source: str, name: str, missing_allowed: bool) -> npt.NDArray[Any]:
    values = _column(frame, name)
    is_numeric = values.dtype.kind in "biuf"
    if values.dtype.kind == "O":  # missing values, or decimals
        missing = np.array([is_missing(value) for value in values], bool)
        is_numeric = all(isinstance(value, numbers.Real | Decimal) for value in values[~missing])
        if is_numeric:
            values = np.where(missing, np.nan, values)
    if not is_numeric:
        raise _not_numeric(name, values.dtype, source)
    if not missing_allowed:
        try:
            check_exact(f"column {name!r}", values)
        except ValueError as error:
            raise DataError(str(error), file=source) from None
    values = values.astype(np.float64, copy=False)
    if not missing_allowed and not np.isfinite(values).all():
        at = int(np.argmin(np.isfinite(values)))
        raise DataError(f"column {name!r} must be finite, got {values[at]} in row {at}", file=source)
    return values


def _not_numeric(name: str, kind: Any, source: str) -> DataError:
    return DataError(
        f"column {name!r} must hold numbers, got {kind}",
        file=source,
        remedy="Exclude it with features=, or convert it to numbers",
    )


def from_frame(
    frame: Any,
    *,
    query: str,
    label: str,
    features: Sequence[str] | None = None,
    ids: str | None = None,
    dtype: npt.DTypeLike = np.float64,
) -> RankingData:
    """Make lists of items from a table with one row per item; rows of a list need not be next to each other.

    Args:
        frame: a table from pandas, polars or Arrow, or any with the Arrow or the interchange protocol.
        query, label: the columns with the list (values of any type) and the label of each item.
        features: the columns of X. Default: all others. Missing values become NaN.
        ids: the column that identifies items.
    """
    _check_features(features)
    table = as_table(frame)
    return _ranking_data(
        table, "table", _choose_columns(column_names(table), "table", query, label, features, ids), dtype
    )


def _check_features(features: Any) -> None:
    if isinstance(features, str):
        raise ValueError(f"features must be a list of columns, got the string {features!r}")
    check_kind("features", features, Iterable, NoneType)


def _choose_columns(
    names: list[str], source: str, query: str, label: str, features: Sequence[str] | None, ids: str | None
) -> _Columns:
    counts = Counter(names)
    duplicate = next((name for name, count in counts.items() if count > 1), None)
    if duplicate is not None:
        raise DataError(f"column {duplicate!r} occurs twice", file=source)
    if features is None:
        features = [name for name in names if name not in (query, label, ids)]
    columns = _Columns(query, label, list(features), ids)
    absent = [name for name in columns.all if name not in counts]
    if absent:
        raise DataError(f"expected a column {absent[0]!r}, got {', '.join(map(str, names))}", file=source)
    return columns


def _ranking_data(table: Any, source: str, columns: _Columns, dtype: npt.DTypeLike) -> RankingData:
    qid = _column(table, columns.query)
    lists = lists_from_qid(qid, len(qid))
    X = np.empty((lists.items, len(columns.features)), dtype)
    for i, name in enumerate(columns.features):
        X[:, i] = _numbers(table, source, name, missing_allowed=True)
    return RankingData(
        X=lists.sort(X),
        y=lists.sort(_numbers(table, source, columns.label, missing_allowed=False)),
        qid=lists.sort(qid),
        offsets=lists.offsets,
        ids=None if columns.ids is None else lists.sort(_column(table, columns.ids)),
    )


def to_arrow(data: RankingData) -> Any:
    """Convert to an Arrow table with the columns label, qid, id (if there are ids) and x1, x2, ..."""
    check_kind("data", data, RankingData)
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
    """Read lists of items from a Parquet file. Arguments as in `from_frame`; `ids` defaults to a column named id."""
    parquet, name = _parquet("reading Parquet files"), source_name(source)
    _check_features(features)

    def read(file: IO[bytes]) -> tuple[Any, _Columns]:
        opened = parquet.ParquetFile(file)
        schema = opened.schema_arrow  # every access makes it again
        names = schema.names
        with_ids = "id" if ids is None and "id" in names and "id" not in (features or ()) else ids
        columns = _choose_columns(names, name, query, label, features, with_ids)
        kinds = {column: _kind(schema.field(column).type) for column in columns.all}
        _check_kinds(kinds, columns, name)
        numeric = frozenset(columns.features)
        return _read_table(parquet, file, opened, name, kinds, numeric, np.dtype(dtype).itemsize), columns

    try:
        if is_path(source) and not is_compressed_name(source) and Path(source).is_file():  # type: ignore[arg-type]
            with _open_natively(source) as file:
                table, columns = read(file)
        else:
            with open_source(source) as opened:
                table, columns = read(io.BytesIO(opened.read()))
    except (FileNotFoundError, PermissionError, DataError):
        raise
    except (ArithmeticError, LookupError, MemoryError, OSError, TypeError, ValueError, NotImplementedError) as error:
        raise DataError(f"not a readable Parquet file ({error})", file=name) from error
    try:
        return _ranking_data(table, name, columns, dtype)
    except DataError:
        raise
    except ValueError as error:  # a missing list, a string that is not UTF-8
        raise DataError(str(error), file=name) from error


def _open_natively(path: Any) -> Any:
    """A file of Arrow's own, which its threads can read without Python."""
    import pyarrow

    return pyarrow.OSFile(os.fsdecode(path))


_SMALL_TABLE = 1 << 20
"""Bytes of columns below which Arrow reads them in this thread: waking its pool costs more."""


def _read_table(
    parquet: Any,
    file: IO[bytes],
    opened: Any,
    name: str,
    kinds: dict[str, Any],
    features: frozenset[str],
    itemsize: int,
) -> Any:
    """Read the columns, unless they are too large for their stored bytes: repeated values take almost no space."""
    import pyarrow

    stored = file.seek(0, io.SEEK_END)
    expanded = _expanded(file, opened, kinds, features, itemsize)
    check_expansion(stored, expanded, name)
    # As a dictionary, a repeated string is stored once until the size of all of them is known.
    texts = [column for column, kind in kinds.items() if _is_text(kind)]
    reader = parquet.ParquetFile(file, read_dictionary=texts, metadata=opened.metadata)
    # Arrow's threads may hold a file of Python's after the call returns. If Python ends before they release it, the
    # process hangs or aborts (apache/arrow issues 33975 and 50482), so they get only files of Arrow's own.
    threads = isinstance(file, pyarrow.NativeFile) and expanded > _SMALL_TABLE
    table = reader.read(columns=list(kinds), use_threads=threads)
    check_expansion(stored, expanded + sum(_text_size(table[column]) for column in texts), name)
    return table


def _kind(kind: Any) -> Any:
    """The Arrow type of single values."""
    import pyarrow

    while isinstance(kind, pyarrow.BaseExtensionType | pyarrow.DictionaryType):
        kind = kind.storage_type if isinstance(kind, pyarrow.BaseExtensionType) else kind.value_type
    return kind


def _check_kinds(kinds: dict[str, Any], columns: _Columns, source: str) -> None:
    from pyarrow import types

    is_number = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    for name in (columns.label, *columns.features):
        if not any(test(kinds[name]) for test in is_number):
            raise _not_numeric(name, kinds[name], source)
    _check_single(kinds, source)


def _check_single(kinds: dict[str, Any], source: str) -> None:
    from pyarrow import types

    for name, kind in kinds.items():
        if types.is_nested(kind):
            raise DataError(f"column {name!r} must have a single value in each row, got {kind}", file=source)


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    texts = (types.is_string, types.is_large_string, types.is_string_view)
    return any(test(kind) for test in (*texts, types.is_binary, types.is_large_binary, types.is_binary_view))


def _expanded(file: IO[bytes], opened: Any, kinds: dict[str, Any], features: frozenset[str], itemsize: int) -> int:
    """The bytes that columns take in memory, without the characters of strings, which are not known yet.

    Features exist three times: in Arrow, in X, and in a copy of X if the rows have to be sorted.
    """
    about, schema = opened.metadata, opened.schema
    rows: int = sum(about.row_group(i).num_rows for i in range(about.num_row_groups))
    sizes = {name: _value_size(kind) + (2 * itemsize if name in features else 0) for name, kind in kinds.items()}
    # Pages are inspected unless they contain numbers and no single page could exceed the limit for the file.
    small = largest_expansion(file.seek(0, io.SEEK_END)) < LARGEST_PAGE
    inspected = {name for name, kind in kinds.items() if small or _is_text(kind)}
    total: int = rows * sum(size for name, size in sizes.items() if name not in inspected)
    if not inspected:
        return total
    leaves = {schema.column(i).path: i for i in range(len(schema.names))}
    for group_rows, chunks in row_groups(file):
        for name in inspected:
            chunk = chunks[leaves[name]]
            pages, values = pages_of(file, chunk), max(group_rows, chunk.values)
            total += max(values * sizes[name], pages.expanded)
            if pages.shares_prefixes:  # each string may repeat most of the one before
                total += values * pages.expanded
    return total


def _value_size(kind: Any) -> int:
    """The bytes of a value in memory, without the characters of a string."""
    from pyarrow import types

    if types.is_decimal(kind) or _is_text(kind):
        return _NUMBER_SIZE + _OBJECT_SIZE
    if types.is_fixed_size_binary(kind):
        return _NUMBER_SIZE + _OBJECT_SIZE + int(kind.byte_width)
    return _NUMBER_SIZE


def _text_size(column: Any) -> int:
    """The total bytes of the strings in a dictionary column."""
    from pyarrow import compute

    lengths = (compute.binary_length(chunk.dictionary).take(chunk.indices) for chunk in column.chunks)
    return sum(compute.sum(length).as_py() or 0 for length in lengths)


def dump_parquet(data: RankingData, target: Source) -> None:
    """Write lists of items to a Parquet file that `load_parquet` reads back exactly."""
    check_kind("data", data, RankingData)
    if (np.diff(data.offsets) == 0).any():
        raise ValueError("lists must not be empty to be written")
    table, parquet = to_arrow(data), _parquet("writing Parquet files")
    with open_target(target) as file:
        parquet.write_table(table, file)
