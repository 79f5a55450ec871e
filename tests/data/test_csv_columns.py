"""The compiled reader of CSV columns against the reader in Python."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plackett.data import csv_columns, load_comparisons
from plackett.data.csv_columns import read_csv_columns
from plackett.data.csv_table import CsvTable
from plackett.data.factors import factorise
from plackett.data.text import parse_csv_cell
from plackett.errors import DataError

CELLS = st.text(st.sampled_from("ab,;\"\n\r '=é€"), max_size=12)


def values(factor: Any) -> list[Any]:
    return [None if code < 0 else factor.names[code] for code in factor.codes.tolist()]


def by_python(path: Path, delimiter: str, wanted: list[int]) -> list[list[Any]]:
    rows = list(CsvTable(path, delimiter))
    columns = [factorise([parse_csv_cell(row[k].strip()) for row in rows]) for k in wanted]
    return [values(column) for column in columns]


@given(
    rows=st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=12),
    delimiter=st.sampled_from(",;\t"),
    end=st.sampled_from(["\n", "\r\n"]),
    block=st.integers(1, 60),
    mark=st.booleans(),
    is_ended=st.booleans(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_columns_are_those_of_the_csv_module(
    tmp_path: Path, rows: Any, delimiter: str, end: str, block: int, mark: bool, is_ended: bool
) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator=end)
    writer.writerow(["one", "two", "three"])
    for row in rows:
        writer.writerow(row)
    written = text.getvalue().replace(end, end + end, 1)  # an empty line after the header
    path = tmp_path / "table.csv"
    path.write_bytes((b"\xef\xbb\xbf" if mark else b"") + (written if is_ended else written.rstrip("\r\n")).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_columns, "_BLOCK", block)
        patch.setattr(csv_columns, "_ROWS", 3)
        found = read_csv_columns(path, delimiter, 3, [2, 0])
    if found is not None:  # the reader in Python looks at the others
        assert [values(column) for column in found] == by_python(path, delimiter, [2, 0])
    elif "\r" not in written.replace("\r\n", "") and "\n\r" not in written.replace("\r\n", "\n"):
        # Declined, although all carriage returns are parts of line ends: only because the last row is not complete.
        assert not is_ended


def test_many_different_names_are_read(tmp_path: Path) -> None:
    """Tables of names grow; 5,000 names of up to 400 bytes."""
    names = [f"{'x' * (k % 400)}{k}" for k in range(5000)]
    path = tmp_path / "table.csv"
    path.write_text("a,b\n" + "".join(f'{name},"say ""{name}"""\n' for name in names + names))
    plain, quoted = read_csv_columns(path, ",", 2, [0, 1]) or []
    assert values(plain) == names + names
    assert values(quoted) == [f'say "{name}"' for name in names + names]
    assert len(plain.names) == len(quoted.names) == 5000


@pytest.mark.parametrize(
    "text",
    [
        "left,right,winner\na,b\n",
        "left,right,winner\na,b,left,more\n",
        'left,right,winner\na,b,"left\n',
        'left,right,winner\na,b,"left" x\n',
        "left,right,winner\na,b\0,left\n",
        b"left,right,winner,note\na,b,left,\xff\n",
    ],
)
def test_damaged_files_are_refused_as_by_the_reader_in_python(tmp_path: Path, text: str | bytes) -> None:
    path = tmp_path / "votes.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    header = 4 if b"note" in path.read_bytes() else 3
    assert read_csv_columns(path, ",", header, [0, 1, 2]) is None
    with pytest.raises(DataError, match=r"votes\.csv, line [12]|votes\.csv.*NUL|UTF-8"):
        load_comparisons(path)


def test_streams_and_standard_spellings_still_work(tmp_path: Path) -> None:
    text = b'left,right,winner\n a ,"b",left\n\'=c,b,"tie"\n'
    path = tmp_path / "votes.csv"
    path.write_bytes(text)
    for source in (path, io.BytesIO(text)):
        data = load_comparisons(source)
        assert (list(data.names), data.left.tolist(), data.right.tolist()) == (["=c", "a", "b"], [1, 0], [2, 2])
