"""Tables and Parquet."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

from plackett.data import RankingData, dump_parquet, frames, from_frame, load_parquet, make_graded_lists, to_arrow
from plackett.errors import DataError

COLUMNS = {
    "q": ["b", "a", "b"],
    "grade": [2, 0, 1],
    "f": [0.5, 1.5, None],
    "g": [1, 2, 3],
    "doc": ["d1", "d2", "d3"],
}


class OnlyArrow:
    """A table with nothing but the Arrow protocol."""

    def __init__(self) -> None:
        self._table = pa.table(COLUMNS)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


class OnlyInterchange:
    """A table with nothing but the interchange protocol."""

    def __dataframe__(self, **options: Any) -> Any:
        return pa.table(COLUMNS).__dataframe__(**options)


FRAMES = {
    "pandas": lambda: pd.DataFrame(COLUMNS),
    "polars": lambda: pl.DataFrame(COLUMNS),
    "arrow": lambda: pa.table(COLUMNS),
    "batch": lambda: pa.RecordBatch.from_pydict(COLUMNS),
    "chunks": lambda: pa.concat_tables([pa.table(COLUMNS).slice(0, 1), pa.table(COLUMNS).slice(1)]),
    "protocol": OnlyArrow,
    "interchange": OnlyInterchange,
}


@pytest.mark.parametrize("kind", FRAMES)
def test_every_kind_of_table_is_read(kind: str) -> None:
    data = from_frame(FRAMES[kind](), query="q", label="grade", ids="doc")
    np.testing.assert_array_equal(data.X, [[0.5, 1], [np.nan, 3], [1.5, 2]])
    assert data.y.tolist() == [2, 1, 0]
    assert data.qid.tolist() == ["b", "b", "a"]
    assert data.offsets.tolist() == [0, 2, 3]
    assert data.ids.tolist() == ["d1", "d3", "d2"]


def test_features_and_dtype_can_be_chosen() -> None:
    data = from_frame(pd.DataFrame(COLUMNS), query="q", label="grade", features=["g"], dtype=np.float32)
    assert data.X.tolist() == [[1], [3], [2]]
    assert data.X.dtype == np.float32
    assert data.ids is None


def test_nullable_and_boolean_columns_are_read() -> None:
    frame = pd.DataFrame({"q": [1, 1], "y": pd.array([1, 0], "Int64"), "a": pd.array([True, None], "boolean")})
    np.testing.assert_array_equal(from_frame(frame, query="q", label="y").X, [[1.0], [np.nan]])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"query": "z", "label": "grade"}, DataError, "expected a column 'z'"),
        ({"query": "q", "label": "grade", "features": ["zz"]}, DataError, "expected a column 'zz'"),
        ({"query": "q", "label": "grade"}, DataError, "column 'doc' must hold numbers"),
        ({"query": "q", "label": "f", "features": ["g"]}, DataError, "column 'f' must be finite, got nan in row 2"),
    ],
)
@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow"])
def test_bad_tables_are_refused(kind: str, options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        from_frame(FRAMES[kind](), **options)


@pytest.mark.parametrize(
    "column",
    [pd.to_datetime(["2020-01-01", None]), pd.to_timedelta([1, 2], "s"), ["1.5", "2"], [1 + 2j, 3.0]],
)
def test_non_numeric_columns_are_refused(column: Any) -> None:
    frame = pd.DataFrame({"q": [1, 1], "y": [1, 0], "f": column})
    with pytest.raises(DataError, match="column 'f' must hold numbers"):
        from_frame(frame, query="q", label="y")


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table])
def test_inexact_integer_labels_are_refused(kind: Any) -> None:
    frame = kind({"q": [1, 1], "y": [2**53, 2**53 + 1], "f": [2**53, 2**53 + 1]})
    with pytest.raises(DataError, match="column 'y' must hold whole numbers that float64 holds exactly"):
        from_frame(frame, query="q", label="y")
    target = io.BytesIO()
    pa.parquet.write_table(pa.table({"qid": [1, 1], "label": [2**53, 2**53 + 1], "f": [1.0, 2.0]}), target)
    with pytest.raises(DataError, match="column 'label' must hold whole numbers that float64 holds exactly"):
        load_parquet(io.BytesIO(target.getvalue()))


def test_duplicate_columns_and_missing_lists_are_refused() -> None:
    double = pd.DataFrame([[1, 1, 2]], columns=["q", "y", "y"])
    with pytest.raises(DataError, match="occurs twice"):
        from_frame(double, query="q", label="y")
    with pytest.raises(ValueError, match="features must be a list"):
        from_frame(pd.DataFrame(COLUMNS), query="q", label="grade", features="f")
    for missing in (["a", None], pd.array(["a", None], "string")):
        with pytest.raises(ValueError, match="qid must not be missing"):
            from_frame(pd.DataFrame({"q": missing, "y": [1, 2]}), query="q", label="y")


def test_decimals_and_lazy_tables_are_read() -> None:
    from decimal import Decimal

    frame = pl.DataFrame({"q": [1, 1], "y": [1, 0], "f": [Decimal("1.5"), None]})
    np.testing.assert_array_equal(from_frame(frame.lazy(), query="q", label="y").X, [[1.5], [np.nan]])


def test_compressed_parquet_is_read(tmp_path: Path) -> None:
    data = RankingData(np.ones((2, 1)), np.ones(2), np.ones(2, int), np.array([0, 2]))
    for suffix in (".gz", ".xz", ".zst"):
        dump_parquet(data, tmp_path / f"data.parquet{suffix}")
        assert load_parquet(tmp_path / f"data.parquet{suffix}").X.tolist() == [[1], [1]]


def test_non_tables_are_refused() -> None:
    with pytest.raises(TypeError, match="frame must be a table"):
        from_frame([1, 2], query="q", label="y")


@pytest.mark.parametrize("with_ids", [True, False])
def test_parquet_round_trip_is_exact(with_ids: bool, tmp_path: Path, rng: np.random.Generator) -> None:
    ids = np.array([f"d{i}" for i in range(6)]) if with_ids else None
    data = RankingData(
        rng.standard_normal((6, 3)),
        rng.integers(0, 3, 6) * 1.0,
        np.array([4, 4, 4, 9, 9, 2]),
        np.array([0, 3, 5, 6]),
        ids,
    )
    path = tmp_path / "data.parquet"
    dump_parquet(data, path)
    for source in (path, io.BytesIO(path.read_bytes())):
        found = load_parquet(source)
        assert found.X.tobytes() == data.X.tobytes()
        assert found.y.tolist() == data.y.tolist()
        assert found.qid.tolist() == data.qid.tolist()
        assert found.offsets.tolist() == data.offsets.tolist()
        assert (found.ids is None) == (not with_ids)
    assert to_arrow(data).num_rows == 6


@pytest.mark.parametrize("kept", [0, 3, 100, -1])
def test_damaged_parquet_is_refused(kept: int, tmp_path: Path) -> None:
    data = RankingData(np.ones((2, 1)), np.ones(2), np.ones(2, int), np.array([0, 2]))
    path = tmp_path / "data.parquet"
    dump_parquet(data, path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DataError, match="not a readable Parquet file"):
        load_parquet(path)


def test_threads_of_arrow_read_no_files_of_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may hold the file until Python has ended, which then hangs or aborts."""
    data = make_graded_lists(10, random_state=0)[0]
    dump_parquet(data, tmp_path / "lists.parquet")
    read, threads = pa.parquet.ParquetFile.read, []

    def spy(self: Any, *arguments: Any, use_threads: bool, **options: Any) -> Any:
        threads.append(use_threads)
        return read(self, *arguments, use_threads=use_threads, **options)

    monkeypatch.setattr(pa.parquet.ParquetFile, "read", spy)
    monkeypatch.setattr(frames, "_SMALL_TABLE", 0)
    np.testing.assert_array_equal(load_parquet(tmp_path / "lists.parquet").X, data.X)
    np.testing.assert_array_equal(load_parquet(io.BytesIO((tmp_path / "lists.parquet").read_bytes())).X, data.X)
    assert threads == [True, False]


def test_missing_parquet_raises_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_parquet(tmp_path / "nothing.parquet")


def test_missing_values_of_a_dictionary_stay_missing() -> None:
    """Arrow's own conversion turns them into the last value of the dictionary."""
    table = pa.table({"q": [1, 1, 1], "y": [0, 1, 2], "doc": pa.array(["a", None, "b"]).dictionary_encode()})
    target = io.BytesIO()
    pa.parquet.write_table(table, target)
    for data in (
        from_frame(table, query="q", label="y", ids="doc"),
        load_parquet(io.BytesIO(target.getvalue()), query="q", label="y", ids="doc"),
    ):
        assert data.ids.tolist() == ["a", None, "b"]
    numbers = pa.table({"q": [1, 1], "y": [0, 1], "f": pa.array([7, None]).dictionary_encode()})
    np.testing.assert_array_equal(from_frame(numbers, query="q", label="y").X, [[7.0], [np.nan]])
