"""LETOR and XMC text: exact numbers, round trips, every kind of bad file."""

import io
import lzma
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_folder import real_data
from hypothesis import given
from hypothesis import strategies as st
from processes import run_alone
from scipy.sparse import csc_array, csr_array, random_array
from sklearn.datasets import load_svmlight_file

from plackett.data import (
    MultilabelData,
    RankingData,
    dump_group,
    dump_letor,
    dump_xmc,
    load,
    load_group,
    load_letor,
    load_lightgbm,
    load_xmc,
    sparse_text,
)
from plackett.errors import DataError


def letor(text: str | bytes, **options: Any) -> RankingData:
    return load_letor(io.BytesIO(text.encode() if isinstance(text, str) else text), **options)


def xmc(text: str | bytes, **options: Any) -> MultilabelData:
    return load_xmc(io.BytesIO(text.encode() if isinstance(text, str) else text), **options)


def same_bits(found: Any, wanted: Any) -> bool:
    found, wanted = np.ascontiguousarray(found), np.ascontiguousarray(wanted)
    return found.shape == wanted.shape and found.dtype == wanted.dtype and found.tobytes() == wanted.tobytes()


# Numbers


def halfway(bits: int, power: int) -> str:
    """The decimal expansion of a point halfway between two neighbouring doubles."""
    with localcontext() as context:
        context.prec = 1200
        return format(Decimal(2 * bits + 1) * Decimal(2) ** (power - 1), "f")


number_texts = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=25, min_value=-(10**12), max_value=10**12).map(str),
    st.tuples(st.integers(0, 10**40), st.integers(-345, 268)).map(lambda p: f"{p[0]}e{p[1]}"),
    st.tuples(st.integers(2**52, 2**53 - 1), st.integers(-120, 120)).map(lambda p: halfway(*p)),
    st.tuples(st.from_regex(r"[+-]?([0-9]{1,25}\.?[0-9]{0,25}|\.[0-9]{1,25})", fullmatch=True)).map(lambda p: p[0]),
    st.sampled_from(["0", "-0", "1e22", "1e23", "9007199254740993", "5e-324", "2.2250738585072014e-308", "1e-400"]),
)


@given(st.lists(number_texts, min_size=1, max_size=40))
def test_numbers_are_rounded_like_python_floats(texts: list[str]) -> None:
    texts = [text for text in texts if np.isfinite(float(text))] or ["1"]
    labels = [f"{text}." if text.lstrip("+-").isdigit() else text for text in texts]  # integers are not rounded
    data = letor("".join(f"{label} qid:1 1:{text}\n" for label, text in zip(labels, texts, strict=True)))
    wanted = np.array([float(text) for text in texts])
    assert same_bits(data.X[:, 0], wanted)
    assert same_bits(data.y, wanted)


def test_random_bit_patterns_round_trip(rng: np.random.Generator) -> None:
    values = rng.integers(0, 2**64, 50_000, dtype=np.uint64).view(np.float64)
    values = values[np.isfinite(values)]
    assert same_bits(letor("".join(f"0 qid:1 1:{v!r}\n" for v in values.tolist())).X[:, 0], values)


@pytest.mark.parametrize("digits", [19, 20, 400, 5000])
def test_long_numbers_are_rounded_correctly(digits: int) -> None:
    text = "1." + "0" * (digits - 2) + "7"
    assert letor(f"0 qid:1 1:{text}\n").X[0, 0] == float(text)


# LETOR


def test_small_letor_file_is_read() -> None:
    data = letor(
        "# a comment\n2 qid:10 1:0.5 3:-1e-3 #docid = GX-1 inc = 1 prob = 0.5\n\n"
        "0 qid:10 2:nan # b c\r\n1\tqid:7  1:3 \n"
    )
    np.testing.assert_array_equal(data.X, [[0.5, 0, -1e-3], [0, np.nan, 0], [3, 0, 0]])
    assert data.y.tolist() == [2, 0, 1]
    assert data.qid.tolist() == [10, 10, 7]
    assert data.offsets.tolist() == [0, 2, 3]
    assert data.ids is not None
    assert data.ids.tolist() == ["GX-1", "b c", ""]


def test_without_comments_there_are_no_ids() -> None:
    assert letor("1 qid:1 1:2\n").ids is None
    assert letor("1 qid:1 1:2 # a\n", ids=False).ids is None


def test_non_ascii_ids_are_read() -> None:
    ids = letor("1 qid:1 1:2 # Äpfel\n0 qid:1 # b\n").ids
    assert ids is not None
    assert ids.tolist() == ["Äpfel", "b"]


def test_width_and_dtype_can_be_chosen() -> None:
    text = "1 qid:1 0:0.1 2:2\n"
    assert letor(text, first_index=0).X.tolist() == [[0.1, 0, 2]]
    data = letor("1 qid:1 1:0.1\n", n_features=3, dtype=np.float32)
    assert same_bits(data.X, np.array([[0.1, 0, 0]], np.float32))
    sparse = letor("1 qid:1 1:0.1 3:0\n0 qid:1\n", n_features=5, sparse=True).X
    assert sparse.shape == (2, 5)
    assert sparse.indices.tolist() == [0, 2]
    assert sparse.indptr.tolist() == [0, 2, 2]


def test_scattered_lists_can_be_grouped() -> None:
    text = "1 qid:5 1:1 # a\n2 qid:3 1:2 # b\n3 qid:5 1:3 # c\n"
    for sparse in (False, True):
        data = letor(text, scattered="group", sparse=sparse)
        X = data.X.toarray() if sparse else data.X
        assert X[:, 0].tolist() == [1, 3, 2]
        assert data.y.tolist() == [1, 3, 2]
        assert data.qid.tolist() == [5, 5, 3]
        assert data.ids.tolist() == ["a", "c", "b"]
        assert data.offsets.tolist() == [0, 2, 3]


def test_unsorted_indices_can_be_sorted() -> None:
    assert letor("1 qid:1 3:3 1:1\n", unsorted="sort").X.tolist() == [[1, 0, 3]]
    with pytest.raises(DataError, match="line 2: duplicate feature index"):
        letor("1 qid:1 1:1\n1 qid:1 3:3 1:1 3:4\n", unsorted="sort")


def test_list_sizes_are_read_from_a_query_file(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text("1 1:1\n0 1:2\n1 1:3\n")
    with pytest.raises(DataError, match="the rows have no qid"):
        load_letor(path)
    assert load_letor(path, group=[1, 2]).offsets.tolist() == [0, 1, 3]
    (tmp_path / "train.txt.query").write_text("2\n1\n")
    data = load_letor(path)
    assert data.offsets.tolist() == [0, 2, 3]
    assert data.qid.tolist() == [0, 0, 1]
    dump_group(data, tmp_path / "again.query")
    assert load_group(tmp_path / "again.query").tolist() == [2, 1]
    (tmp_path / "train.txt.query").write_text("2\n2\n")
    with pytest.raises(DataError, match=r"add up to the 3 rows of .*, got 4"):
        load_letor(path)
    with pytest.raises(ValueError, match="group must be None for a file with qids"):
        letor("1 qid:1 1:1\n", group=[1])


@pytest.mark.parametrize("ending", [".weight", ".init", ".position", ".weight.xz"])
def test_other_files_of_lightgbm_are_not_silently_ignored(ending: str, tmp_path: Path) -> None:
    path = tmp_path / ("rank.train.xz" if ending.endswith(".xz") else "rank.train")
    dump_letor(load_letor(io.BytesIO(b"1 qid:1 1:2\n0 qid:1 1:3\n")), path)
    (tmp_path / f"rank.train{ending}").write_text("2\n1\n")
    with pytest.raises(DataError, match=rf"rank.train{ending} holds .* which are not read here\. Move it"):
        load_letor(path)
    assert load_letor(path, unread="ignore").y.tolist() == [1.0, 0.0]


@pytest.mark.parametrize("beside", ["rank.train.xz.query", "rank.train.query", "rank.train.query.xz"])
def test_query_file_of_a_compressed_file_is_found(beside: str, tmp_path: Path) -> None:
    pack = {"": bytes, ".xz": lzma.compress}
    (tmp_path / "rank.train.xz").write_bytes(lzma.compress(b"1 1:1\n0 1:2\n1 1:3\n"))
    (tmp_path / beside).write_bytes(pack[".xz" if beside.endswith(".xz") else ""](b"2\n1\n"))
    assert load_letor(tmp_path / "rank.train.xz").offsets.tolist() == [0, 2, 3]


@pytest.mark.parametrize("label", ["9007199254740993", "-9007199254740993", "100000000000000000000000000000001"])
def test_inexact_integer_labels_are_refused(label: str) -> None:
    text = f"1 qid:1 1:1\n\n  {label} qid:1 1:2\n"
    with pytest.raises(DataError, match="line 3: integer label above 2\\^53 that float64 would round") as error:
        letor(text)
    assert error.value.text == label


def test_large_exact_labels_are_accepted() -> None:
    text = "".join(f"{label} qid:1 1:1\n" for label in ("9007199254740992", "1152921504606846976", "1e300", "-9.5e15"))
    assert letor(text).y.tolist() == [2.0**53, 2.0**60, 1e300, -9.5e15]


@pytest.mark.parametrize("text", ["", "\n", "x\n", "1\n-2\n", "1.5\n"])
def test_bad_query_files_are_refused(text: str) -> None:
    with pytest.raises(DataError):
        load_group(io.BytesIO(text.encode()))


@st.composite
def ranking_data(draw: Any) -> RankingData:
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    n, d = sum(sizes), draw(st.integers(1, 4))
    numbers = st.floats(allow_infinity=False, width=64)
    X = np.array(draw(st.lists(numbers, min_size=n * d, max_size=n * d))).reshape(n, d)
    y = np.array(draw(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=n, max_size=n)))
    qid = np.repeat(
        draw(st.lists(st.integers(-(10**17), 10**17), min_size=len(sizes), max_size=len(sizes), unique=True)), sizes
    )
    ids = None
    if draw(st.booleans()):
        words = st.text(
            st.characters(codec="utf-8", categories=("L", "N", "P", "S"), exclude_characters="#"), min_size=1
        )
        words = words.filter(lambda w: not w.startswith("docid") and len(w.encode()) < 200)
        ids = np.array(draw(st.lists(words, min_size=n, max_size=n)))
    return RankingData(X, y, qid, np.concatenate(([0], np.cumsum(sizes))).astype(np.int64), ids)


def assert_equal_data(found: RankingData, wanted: RankingData) -> None:
    np.testing.assert_array_equal(found.X, wanted.X)
    assert same_bits(np.signbit(found.X), np.signbit(wanted.X) & ~np.isnan(wanted.X))
    assert same_bits(found.y, wanted.y)
    assert found.qid.tolist() == wanted.qid.tolist()
    assert found.offsets.tolist() == wanted.offsets.tolist()
    assert (None if found.ids is None else found.ids.tolist()) == (None if wanted.ids is None else wanted.ids.tolist())


@given(ranking_data(), st.sampled_from([0, 1]))
def test_letor_round_trip_is_exact(data: RankingData, first_index: int) -> None:
    file = io.BytesIO()
    dump_letor(data, file, first_index=first_index)
    file.seek(0)
    assert_equal_data(load_letor(file, first_index=first_index), data)


def test_round_trip_of_float32_and_sparse_features_is_exact(rng: np.random.Generator) -> None:
    X = rng.standard_normal((5, 3)).astype(np.float32)
    data = RankingData(X, np.arange(5.0), np.zeros(5, np.int64), np.array([0, 5]))
    file = io.BytesIO()
    dump_letor(data, file)
    file.seek(0)
    assert same_bits(load_letor(file, dtype=np.float32).X, X)
    sparse = csr_array(X * (X > 0))
    file = io.BytesIO()
    dump_letor(RankingData(sparse, data.y, data.qid, data.offsets), file)
    file.seek(0)
    found = load_letor(file, sparse=True, n_features=3, dtype=np.float32).X
    assert (found != sparse).nnz == 0


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("X", np.array([[np.inf]]), "X must be finite or NaN"),
        ("y", np.array([np.nan]), "y must be finite"),
        ("qid", np.array(["a"]), "qid must hold whole numbers"),
        ("ids", np.array([" a"]), "ids must be printable"),
        ("ids", np.array(["a#b"]), "ids must be printable"),
        ("ids", np.array(["docid = 3"]), "ids must be printable"),
    ],
)
def test_data_that_text_cannot_represent_is_refused(field: str, value: Any, message: str, tmp_path: Path) -> None:
    parts: dict[str, Any] = {"X": np.ones((1, 1)), "y": np.ones(1), "qid": np.ones(1, int), "offsets": np.array([0, 1])}
    path = tmp_path / "data.txt"
    path.write_text("precious")
    with pytest.raises(ValueError, match=message):
        dump_letor(RankingData(**{**parts, field: value}), path)
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]


BAD_LINES = [
    ("x qid:1 1:1", "expected a number as the label", "x"),
    ("nan qid:1 1:1", "expected a number as the label", "nan"),
    ("inf qid:1 1:1", "expected a number as the label", "inf"),
    ("1e999 qid:1 1:1", "must be finite", "1e999"),
    ("1 qid:a 1:1", "whole number after qid", "qid:a"),
    ("1 qid: 1:1", "whole number after qid", "qid:"),
    ("1 qid:99999999999999999999 1:1", "whole number after qid", "qid:99999999999999999999"),
    ("1 1:1", "some rows have a qid and others do not", "1"),
    ("1 1:1 qid:1", "some rows have a qid and others do not", "1"),
    ("1 qid:1 1:1 qid:2", "qid must come directly after the label", "qid:2"),
    ("1 qid:1 0:1", "feature index below the first one", "0:1"),
    ("1 qid:1 -1:1", "feature index below the first one", "-1:1"),
    ("1 qid:1 2:1 1:1", "feature indices must increase", "1:1"),
    ("1 qid:1 2:1 2:1", "duplicate feature index", "2:1"),
    ("1 qid:1 9:1", "above the number of features", "9:1"),
    ("1 qid:1 99999999999999:1", "above the number of features", "99999999999999:1"),
    ("1 qid:1 1:", "expected a number as the feature value", "1:"),
    ("1 qid:1 1", "expected index:value", "1"),
    ("1 qid:1 a:1", "expected a whole number as the feature index", "a:1"),
    ("1 qid:1 1:abc", "expected a number as the feature value", "1:abc"),
    ("1 qid:1 1:1e", "expected a number as the feature value", "1:1e"),
    ("1 qid:1 1:0x10", "expected a number as the feature value", "1:0x10"),
    ("1 qid:1 1:1_0", "expected a number as the feature value", "1:1_0"),
    ("1 qid:1 1:.", "expected a number as the feature value", "1:."),
    ("1 qid:1 1:inf", "feature values must be finite", "1:inf"),
    ("1 qid:1 1:1e400", "feature values must be finite", "1e400"),
    ("1 qid:1 1:1\x00", "a NUL byte", "1:1\x00"),
    ("\x001 qid:1 1:1", "a NUL byte", "\x001"),
    ("1 qid:1 1:1 # " + "x" * 300, "identifiers must have at most 256 bytes", None),
    ("1 qid:1 1:1\r3:4", "expected", None),
    ("1 qid:1 1:1 # a\r0 qid:1 1:3 # b", "carriage return inside a line", None),
    ("1 qid:1 1:1 # a\x00b", "a NUL byte", None),
]


@pytest.mark.parametrize(("line", "problem", "text"), BAD_LINES)
def test_errors_name_the_bad_line(line: str, problem: str, text: str | None) -> None:
    good = "1 qid:1 1:0.5 2:2\n"
    with pytest.raises(DataError, match=problem) as caught:
        letor(good * 3 + "# comment\n" + line + "\n" + good, n_features=5)
    assert caught.value.line == 5
    assert caught.value.file == "stream"
    if text is not None:
        assert caught.value.text == text


def test_line_numbers_are_right_in_large_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_text, "_BLOCK", 1000)
    monkeypatch.setattr(sparse_text, "_PIECE", 100)
    lines = [f"{i % 3} qid:{i // 10} 1:{i} 2:0.5 # d{i}" for i in range(500)]
    data = letor("\n".join(lines))
    assert data.X[:, 0].tolist() == list(range(500))
    assert data.ids.tolist() == [f"d{i}" for i in range(500)]
    for at in (0, 3, 250, 499):
        bad = lines.copy()
        bad[at] = "1 qid:1 1:oops"
        with pytest.raises(DataError) as caught:
            letor("\n".join(bad))
        assert caught.value.line == at + 1
    lines.insert(300, "0 qid:2 1:1")
    with pytest.raises(DataError, match="a qid returns after other lists: 'qid:2'") as caught:
        letor("\n".join(lines))
    assert caught.value.line == 301


def test_mixed_qids_are_found_across_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_text, "_PIECE", 10)
    with pytest.raises(DataError, match="some rows have a qid") as caught:
        letor("1 qid:1 1:2\n" * 3 + "1 1:2\n" * 3)
    assert caught.value.line == 4


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n"])
def test_file_without_rows_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="no rows"):
        letor(text)


def test_index_too_large_for_a_dense_array_is_refused() -> None:
    text = "1 qid:1 2000000000:1\n"
    with pytest.raises(DataError, match="Pass sparse=True"):
        letor(text)
    assert letor(text, sparse=True).X.shape == (1, 2_000_000_000)


@pytest.mark.parametrize(
    "options",
    [{"scattered": "drop"}, {"unsorted": "x"}, {"dtype": int}, {"first_index": 2}, {"n_features": -1}, {"cache": True}],
)
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        letor("1 qid:1 1:1\n", **options)


def test_letor_agrees_with_scikit_learn(tmp_path: Path, rng: np.random.Generator) -> None:
    path = tmp_path / "data.txt"
    X = np.where(rng.random((300, 20)) < 0.5, rng.standard_normal((300, 20)), 0.0)
    data = RankingData(csr_array(X), rng.integers(0, 5, 300) * 1.0, np.repeat(np.arange(30), 10), np.arange(0, 301, 10))
    dump_letor(data, path)
    peer, y, qid = load_svmlight_file(str(path), query_id=True, n_features=20)
    found = load_letor(path, n_features=20)
    assert same_bits(found.X, peer.toarray())
    assert same_bits(found.y, y)
    assert found.qid.tolist() == qid.tolist()


def test_values_too_large_for_float32_are_refused() -> None:
    for read, text in ((letor, "1 qid:1 1:2\n1 qid:1 1:1e300\n"), (xmc, "2 1 1\n0 0:1\n0 0:1e39\n")):
        with pytest.raises(DataError, match="too large for float32") as caught:
            read(text, dtype=np.float32)
        assert caught.value.line == text.count("\n")


def test_byte_order_mark_is_skipped() -> None:
    assert letor("\ufeff1 qid:1 1:2\n").X.tolist() == [[2]]
    assert len(xmc("\ufeff1 1 1\n0 0:1\n")) == 1


def test_comments_that_are_not_utf8_are_refused() -> None:
    with pytest.raises(DataError, match="not UTF-8"):
        letor(b"1 qid:1 1:2 # \xe9a\n")
    assert len(letor(b"1 qid:1 1:2 # \xe9a\n", ids=False)) == 1


def test_other_sparse_formats_are_written_correctly() -> None:
    X = np.array([[1.0, 0.0], [2.0, 3.0]])
    unsorted = csr_array((np.array([3.0, 2.0, 1.0]), np.array([1, 0, 0]), np.array([0, 2, 3])), shape=(2, 2))
    for sparse, wanted in ((csc_array(X), X), (unsorted, unsorted.toarray())):
        file = io.BytesIO()
        dump_letor(RankingData(sparse, np.array([True, False]), np.array([1, 1]), np.array([0, 2])), file)
        file.seek(0)
        assert load_letor(file, sparse=True).X.toarray().tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"qid": np.array([2**62, 1])}, "at most 18 digits"),
        ({"qid": np.array([1, 1])}, "constant within a list and unique to it"),
        ({"offsets": np.array([0, 1, 1, 2])}, "must not be empty"),
        ({"ids": np.array(["x" * 300, "y"])}, "at most 256 bytes"),
    ],
)
def test_data_that_would_not_round_trip_is_refused(change: dict[str, Any], message: str) -> None:
    parts: dict[str, Any] = {"X": np.ones((2, 1)), "y": np.ones(2), "qid": np.array([1, 2]), "offsets": np.arange(3)}
    with pytest.raises(ValueError, match=message):
        dump_letor(RankingData(**{**parts, **change}), io.BytesIO())


# XMC


def test_small_xmc_file_is_read() -> None:
    data = xmc("5 4 3\n2,0 0:1 3:0.5\n 1:2\n1:2 2:3\n1\n\n")
    assert data.Y.toarray().tolist() == [[1, 0, 1], [0, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 0]]
    assert data.X.toarray().tolist() == [[1, 0, 0, 0.5], [0, 2, 0, 0], [0, 2, 3, 0], [0] * 4, [0] * 4]
    assert data.Y.has_canonical_format


def test_trailing_blank_lines_are_not_rows() -> None:
    assert len(xmc("1 1 1\n0 0:1\n\n\n")) == 1


@pytest.mark.parametrize(
    ("text", "problem", "line"),
    [
        ("", "the file is empty", None),
        ("1 2\n0 0:1\n", "expected a header", 1),
        ("0 qid:1 1:2\n", "expected a header", 1),
        ("2 2 2\n0 0:1\n", "declares 2 rows, but 1 follow", 1),
        ("1 2 2\n0 0:1\n0 0:1\n", "declares 1 rows, but 2 follow", 1),
        ("1 2 2\n0 2:1\n", "feature index above", 2),
        ("1 2 2\n2 0:1\n", "label above", 2),
        ("1 2 2\n-1 0:1\n", "expected a number as the label", 2),
        ("1 2 2\n0,,1 0:1\n", "expected a number as the label", 2),
        ("1 2 2\n0, 0:1\n", "expected a number as the label", 2),
        ("1 2 2\nx 0:1\n", "expected a number as the label", 2),
        ("1 2 2\n0,0 0:1\n", "duplicate label", 2),
        ("1 2 2\n0 1:1 0:1\n", "feature indices must increase", 2),
        ("1 2 2\n0 0:1 # c\n", "expected index:value", 2),
        ("1 2 2\n0 0:\n", "expected a number as the feature value", 2),
        ("1 2 2\n0 0:1\x00\n", "a NUL byte", 2),
        ("2 2 2\n0 0:1\n0 0:1 1:zz\n", "expected a number as the feature value", 3),
    ],
)
def test_bad_xmc_files_are_refused(text: str, problem: str, line: int | None) -> None:
    with pytest.raises(DataError, match=problem) as caught:
        xmc(text)
    assert caught.value.line == line


def test_xmc_round_trip_is_exact(rng: np.random.Generator, tmp_path: Path) -> None:
    X = csr_array(random_array((50, 30), density=0.2, format="csr", rng=rng))
    Y = csr_array(random_array((50, 40), density=0.05, format="csr", rng=rng))
    Y.data[:] = 1.0
    for name in ("data.txt", "data.txt.gz"):
        dump_xmc(MultilabelData(X, Y), tmp_path / name)
        found = load_xmc(tmp_path / name)
        for mine, wanted in ((found.X, X), (found.Y, Y)):
            assert mine.shape == wanted.shape
            assert (mine.toarray() == wanted.toarray()).all()
    Y.data[0] = 2.0
    with pytest.raises(ValueError, match="no grades"):
        dump_xmc(MultilabelData(X, Y), tmp_path / "graded.txt")


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_xmc_round_trip_is_exact_for_any_value(values: list[float]) -> None:
    X = csr_array((np.array(values), (np.zeros(len(values), int), np.arange(len(values)))), shape=(1, len(values)))
    file = io.BytesIO()
    dump_xmc(MultilabelData(X, csr_array((1, 3))), file)
    file.seek(0)
    assert same_bits(load_xmc(file).X.data, np.array(values))


# Real data: counts from its README


def test_mq2008_has_known_counts() -> None:
    parts = [load_letor(real_data("mq2008", f"S{i}.txt.xz")) for i in range(1, 6)]
    assert sum(len(part) for part in parts) == 784
    assert sum(len(part.y) for part in parts) == 15211
    assert {part.X.shape[1] for part in parts} == {46}
    assert set(np.concatenate([part.y for part in parts])) == {0, 1, 2}
    without = sum(int((np.maximum.reduceat(part.y, part.offsets[:-1]) == 0).sum()) for part in parts)
    assert without == 220


@pytest.mark.parametrize("name", ["train", "test"])
def test_mslr_sample_has_known_counts(name: str) -> None:
    path = real_data("mslr-sample", f"{name}.txt.xz")
    data = load_letor(path)
    assert (len(data), data.X.shape) == (43, (5000, 136))
    assert set(data.y) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(
    ("folder", "rows", "features", "labels", "unlabelled"),
    [("delicious-1k", (12920, 3185), 500, 983, None), ("eurlex-4k", (15539, 3809), 5000, 3993, (28, 6))],
)
def test_xmc_data_has_known_counts(folder: str, rows: Any, features: int, labels: int, unlabelled: Any) -> None:
    parts = [load_xmc(real_data(folder, f"{name}.txt.xz")) for name in ("train", "test")]
    assert tuple(len(part) for part in parts) == rows
    assert all(part.X.shape[1] == features and part.Y.shape[1] == labels for part in parts)
    mean = sum(part.Y.nnz for part in parts) / sum(rows)
    assert f"{mean:.2f}" == {"delicious-1k": "19.02", "eurlex-4k": "5.31"}[folder]
    if unlabelled:
        assert tuple(int((np.diff(part.Y.indptr) == 0).sum()) for part in parts) == unlabelled


# The cache


def test_cache_returns_the_same_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, folder = tmp_path / "data.txt", tmp_path / "cache"
    path.write_text("1 qid:1 1:0.5 # a\n0 qid:2 3:1\n")
    first = load_letor(path, cache=folder)
    assert len(list(folder.iterdir())) == 1
    with monkeypatch.context() as patch:
        patch.setattr(sparse_text, "parse_pieces", lambda *_: pytest.fail("parsed again"))
        assert_equal_data(load_letor(path, cache=folder), first)
    load_letor(path, cache=folder, dtype=np.float32)
    assert len(list(folder.iterdir())) == 2
    path.write_text("1 qid:1 1:0.75\n")
    assert load_letor(path, cache=folder).X.tolist() == [[0.75]]


@pytest.mark.parametrize("sparse", [False, True])
def test_damaged_cache_is_rebuilt(tmp_path: Path, sparse: bool) -> None:
    path, folder = tmp_path / "data.txt", tmp_path / "cache"
    path.write_text("1 qid:1 1:0.5 # a\n0 qid:2 3:1\n")
    load_letor(path, cache=folder, sparse=sparse)
    (kept,) = folder.iterdir()
    whole = kept.read_bytes()
    for size in range(0, len(whole), 7):
        kept.write_bytes(whole[:size])
        data = load_letor(path, cache=folder, sparse=sparse)
        X = data.X.toarray() if sparse else data.X
        assert X.tolist() == [[0.5, 0, 0], [0, 0, 1]]
        assert kept.read_bytes() == whole


def test_file_that_changes_during_reading_is_not_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, folder = tmp_path / "data.txt", tmp_path / "cache"
    path.write_text("1 qid:1 1:1\n")
    parse = sparse_text.parse_pieces

    def change_first(*arguments: Any) -> Any:
        path.write_text("1 qid:1 1:22\n")
        return parse(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(sparse_text, "parse_pieces", change_first)
        load_letor(path, cache=folder)
    path.write_text("1 qid:1 1:1\n")
    assert load_letor(path, cache=folder).X.tolist() == [[1]]


def test_unwritable_cache_is_only_a_warning(tmp_path: Path) -> None:
    path, folder = tmp_path / "data.txt", tmp_path / "cache"
    path.write_text("1 qid:1 1:0.5\n")
    folder.write_text("a file where the folder should be")
    with pytest.warns(UserWarning, match="cannot cache the parsed data"):
        assert len(load_letor(path, cache=folder)) == 1


@pytest.mark.parametrize("place", [2, 100, -1, -9])
def test_damaged_cache_is_parsed_again(place: int, tmp_path: Path) -> None:
    """A flipped bit in the names, in a header or in the numbers; `make fuzz` flips them all."""
    path, folder = tmp_path / "lists.txt", tmp_path / "cache"
    path.write_bytes(b"1 qid:1 1:0.5\n0 qid:1 1:0.25\n")
    first = load_letor(path, cache=folder)
    (stored,) = folder.iterdir()
    content = bytearray(stored.read_bytes())
    content[place] ^= 1
    stored.write_bytes(content)
    assert_equal_data(load_letor(path, cache=folder), first)
    assert stored.read_bytes() != content  # and repaired


def test_xmc_is_read_from_the_cache(tmp_path: Path) -> None:
    path = tmp_path / "data.txt"
    path.write_text("2 4 3\n2,0 0:1 3:0.5\n 1:2\n")
    first, second = (load_xmc(path, cache=tmp_path / "cache") for _ in range(2))
    assert (first.X.toarray() == second.X.toarray()).all()
    assert (first.Y.toarray() == second.Y.toarray()).all()


@pytest.mark.parametrize(
    ("digits", "dtype", "scattered"),
    [("", "float64", False), ("", "float32", False), (".2500", "float64", False), ("", "float32", True)],
)
def test_memory_is_at_most_three_times_the_result(digits: str, dtype: str, scattered: bool, tmp_path: Path) -> None:
    """Plus about 80 MB for two blocks of 16 MB of text while they are parsed.

    Runs in a fresh process, so that memory freed by other tests cannot hide what reading needs.
    """
    path = tmp_path / "data.txt"
    line = " ".join(f"{i + 1}:{i % 7}{digits}" for i in range(136))
    path.write_text("".join(f"{i % 5} qid:{i % 1000 if scattered else i // 100} {line}\n" for i in range(100_000)))
    code = f"""
    import sys
    from plackett.data import load_letor
    from plackett.experiments.timing import PeakMemory
    load_letor(sys.argv[2], dtype={dtype!r}, scattered="group")
    with PeakMemory() as peak:
        data = load_letor(sys.argv[1], dtype={dtype!r}, scattered="group")
    print([peak.added, data.X.nbytes + data.y.nbytes + data.qid.nbytes])
    """
    small = tmp_path / "small.txt"
    small.write_text("1 qid:1 1:2\n" * 100)
    added, result = run_alone(code, path, small)
    assert result <= added < 3 * result + 100_000_000


def test_lightgbm_reader_numbers_features_as_lightgbm_does(tmp_path: Path) -> None:
    """A model that LightGBM trains on a file, by its own reader, scores our X as LightGBM scores the file."""
    lightgbm = pytest.importorskip("lightgbm")
    rng = np.random.default_rng(0)
    rows = [[(k, rng.normal()) for k in sorted(rng.choice(np.arange(1, 7), 4, replace=False))] for _ in range(60)]
    lines = (f"{i % 3} " + " ".join(f"{k}:{value:.4f}" for k, value in row) for i, row in enumerate(rows))
    path = tmp_path / "rank.train"
    path.write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "rank.train.query").write_text("20\n20\n20\n")
    quiet = {"verbose": -1, "min_data_in_leaf": 2, "objective": "lambdarank", "num_threads": 1}
    booster = lightgbm.train(quiet, lightgbm.Dataset(str(path), params=quiet), 3)
    data = load_lightgbm(path)
    assert data.X.shape[1] == booster.num_feature() == 7
    assert (data.X[:, 0] == 0).all()
    np.testing.assert_array_equal(booster.predict(data.X), booster.predict(str(path)))
    assert np.ptp(booster.predict(data.X)) > 0
    assert data.first_feature == 0
    np.testing.assert_array_equal(load_letor(path).X, data.X[:, 1:])
    assert load_letor(path).first_feature == 1
    assert load(path, format="lightgbm").X.shape[1] == 7
    with pytest.raises(ValueError, match="first_index must not be given"):
        load_lightgbm(path, first_index=1)
