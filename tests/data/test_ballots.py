"""PrefLib files and CSV of rankings."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_folder import real_data
from hypothesis import given
from hypothesis import strategies as st

from plackett.data import Ballots, dump_preflib, dump_rankings_csv, load_preflib, load_rankings_csv
from plackett.data.preflib import KINDS, tiers_of
from plackett.errors import DataError

HEADER = """# TITLE: test
# DATA TYPE: toi
# NUMBER ALTERNATIVES: 3
# NUMBER VOTERS: 6
# NUMBER UNIQUE ORDERS: 3
# ALTERNATIVE NAME 1: Ada
# ALTERNATIVE NAME 3: Eve: the third
"""
BODY = "3: 2,{1,3}\n2: 3\n1: {1,2}\n"


def preflib(text: str) -> Ballots:
    return load_preflib(io.BytesIO(text.encode()))


def csv(text: str, **options: Any) -> Ballots:
    return load_rankings_csv(io.BytesIO(text.encode()), **options)


def test_small_preflib_file_is_read() -> None:
    ballots = preflib(HEADER + BODY)
    assert ballots.names == ["Ada", "Alternative 2", "Eve: the third"]
    assert ballots.items.tolist() == [1, 0, 2, 2, 0, 1]
    assert ballots.labels.tolist() == [2, 1, 1, 1, 1, 1]
    assert ballots.offsets.tolist() == [0, 3, 4, 6]
    assert ballots.weights.tolist() == [3, 2, 1]


def test_complete_puts_unranked_items_last() -> None:
    ballots = preflib(HEADER + BODY).complete()
    assert tiers_of(ballots) == [[[1], [0, 2]], [[2], [0, 1]], [[0, 1], [2]]]
    assert ballots.weights.tolist() == [3, 2, 1]


@pytest.mark.parametrize(
    ("text", "problem", "line"),
    [
        ("", "no ballots", None),
        (HEADER, "no ballots", None),
        ("3\n1,Ada\n", "expected a header", 1),
        (HEADER + "3: 2,{1,3\n", "expected a ballot", 8),
        (HEADER + "x: 2\n", "expected a ballot", 8),
        (HEADER + "3 2\n", "expected a ballot", 8),
        (HEADER + "3: {1 2},3\n", "expected a ballot", 8),
        (HEADER + "3: {1,,2},3\n", "expected a ballot", 8),
        (HEADER + "3: " + "9" * 5000 + "\n", "expected a ballot", 8),
        (HEADER.replace("Ada", "A\0da") + BODY, "NUL", 6),
        (HEADER + "3: 4\n", "numbered from 1 to 3", 8),
        (HEADER + "3: 0\n", "numbered from 1 to 3", 8),
        (HEADER + "3: 1,1\n", "occurs twice", 8),
        (HEADER + "3: 2,{1,3}\n2: 3\n", "declares 6 voters, but 5 follow", None),
        (HEADER + "3: 2,{1,3}\n3: 3\n", "declares 3 unique orders, but 2 follow", None),
        (HEADER.replace("toi", "soi") + BODY, "must not have ties", 8),
        (HEADER.replace("toi", "toc") + BODY, "must rank all 3 items, got 1", 9),
        (HEADER.replace("VOTERS: 6", "VOTERS: six") + BODY, "expected a whole number", 4),
        (HEADER.replace("ALTERNATIVES: 3", "ALTERNATIVES: 2") + "1: 1\n", "declares", None),
    ],
)
def test_bad_preflib_files_are_refused(text: str, problem: str, line: int | None) -> None:
    with pytest.raises(DataError, match=problem) as caught:
        preflib(text)
    assert caught.value.line == line


@pytest.mark.parametrize(
    "name",
    [
        "00001-00000001.soi", "00001-00000001.toc", "00003-00000001.toc", "00004-00000001.soc", "00005-00000001.toi",
        "00006-00000001.toc", "00006-00000003.soc", "00014-00000001.soc", "00014-00000003.toc", "00014-00000003.toi",
        "00027-00000001.toc", "00028-00000001.soi",
    ],
)  # fmt: skip
def test_preflib_agrees_with_preflibtools(name: str) -> None:
    from preflibtools.instances import OrdinalInstance

    path = real_data("preflib", name)
    peer = OrdinalInstance()
    peer.parse_file(str(path))
    ballots = load_preflib(path)
    assert list(ballots.names) == list(peer.alternatives_name.values())
    found = [tuple(tuple(i + 1 for i in tier) for tier in ballot) for ballot in tiers_of(ballots)]
    assert found == list(peer.orders)
    assert ballots.weights.tolist() == [peer.multiplicity[order] for order in peer.orders]


def test_categories_agree_with_preflibtools() -> None:
    from preflibtools.instances import CategoricalInstance

    path = real_data("preflib", "00026-00000001.cat")
    peer = CategoricalInstance()
    peer.parse_file(str(path))
    ballots = load_preflib(path)
    assert len(ballots) == len(peer.preferences)
    for b, preference in enumerate(peer.preferences):
        part = slice(ballots.offsets[b], ballots.offsets[b + 1])
        for place, category in enumerate(preference):
            chosen = ballots.items[part][ballots.labels[part] == len(preference) - place] + 1
            assert set(chosen.tolist()) == set(category)
        assert ballots.weights[b] == peer.multiplicity[preference]


@st.composite
def any_ballots(draw: Any) -> Ballots:
    n = draw(st.integers(1, 6))
    orders = draw(st.lists(st.permutations(range(n)), min_size=1, max_size=5))
    items, labels, sizes = [], [], []
    for order in orders:
        size = draw(st.integers(0, n))
        sizes.append(size)
        items += order[:size]
        labels += draw(st.lists(st.integers(1, 3), min_size=size, max_size=size))
    return Ballots(
        np.array(items, np.int64),
        np.array(labels, np.float64),
        np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
        np.array(draw(st.lists(st.integers(1, 9), min_size=len(orders), max_size=len(orders))), np.float64),
        [f"item {i}" for i in range(n)],
    )


def sets_of(ballots: Ballots) -> list[list[set[str]]]:
    return [[{ballots.names[i] for i in tier} for tier in ballot] for ballot in tiers_of(ballots)]


@given(any_ballots())
def test_preflib_round_trip_keeps_tiers(ballots: Ballots) -> None:
    file = io.BytesIO()
    dump_preflib(ballots, file)
    file.seek(0)
    found = load_preflib(file)
    assert sets_of(found) == sets_of(ballots)
    assert found.weights.tolist() == ballots.weights.tolist()
    assert list(found.names) == list(ballots.names)


@given(any_ballots(), st.sampled_from(["ranks", "places"]))
def test_csv_round_trip_keeps_tiers(ballots: Ballots, layout: Any) -> None:
    file = io.BytesIO()
    dump_rankings_csv(ballots, file, layout=layout)
    file.seek(0)
    cast_once = bool((ballots.weights == 1).all())
    if layout == "places" and not len(ballots.items):
        return  # nothing is ranked: the table has no columns
    found = load_rankings_csv(file, layout=layout, weight=None if cast_once else "weight")
    assert sets_of(found) == sets_of(ballots)
    assert found.weights.tolist() == ballots.weights.tolist()
    if layout == "ranks":
        again = io.BytesIO()
        dump_rankings_csv(found, again)
        assert again.getvalue() == file.getvalue()


def test_preflib_kind_must_fit_the_ballots(tmp_path: Path) -> None:
    ballots = preflib(HEADER + BODY)
    dump_preflib(ballots, tmp_path / "a.toi")
    assert sets_of(load_preflib(tmp_path / "a.toi")) == sets_of(ballots)
    for kind in ("soc", "soi", "toc"):
        with pytest.raises(ValueError, match=r"must end with .toi or a more general kind"):
            dump_preflib(ballots, tmp_path / f"a.{kind}")
    strict = ballots.select([1])
    for kind in KINDS[1:4:2]:
        dump_preflib(strict, tmp_path / f"b.{kind}")
    with pytest.raises(ValueError, match="whole numbers"):
        dump_preflib(
            Ballots(ballots.items, ballots.labels, ballots.offsets, ballots.weights / 2, ballots.names),
            tmp_path / "c.toi",
        )


def test_csv_of_ranks_is_read() -> None:
    ballots = csv("a,b,c,n\n1,2.5,2.5,5\n,1,,2\n", weight="n")
    assert ballots.labels.tolist() == [-1, -2.5, -2.5, -1]
    assert sets_of(ballots) == [[{"a"}, {"b", "c"}], [{"b"}]]
    assert ballots.weights.tolist() == [5, 2]


def test_approvals_are_not_read_as_ranks() -> None:
    """As a rank, 0 would be better than 1."""
    table = b"Ada,Bob,Eve,weight\n1,0,,2\n0,1,1,1\n"
    with pytest.raises(DataError, match=r"ranks must start at 1 .*, got 0 in column Bob: '0'\. .*layout=.approvals"):
        load_rankings_csv(io.BytesIO(table))
    found = load_rankings_csv(io.BytesIO(table), layout="approvals")
    assert found.items.tolist() == [0, 1, 0, 1, 2]
    assert found.labels.tolist() == [1, 0, 0, 1, 1]
    assert found.weights.tolist() == [2, 1]
    again = io.BytesIO()
    dump_rankings_csv(found, again, layout="approvals")
    assert again.getvalue() == table
    again = io.BytesIO()
    dump_rankings_csv(found, again)  # written as ranks, which start at 1
    assert again.getvalue() == b"Ada,Bob,Eve,weight\n1,2,,2\n2,1,1,1\n"
    with pytest.raises(DataError, match=r"expected 1 .approved. or 0 .not approved. in column Ada: '2'"):
        load_rankings_csv(io.BytesIO(b"Ada,Bob\n2,0\n"), layout="approvals")
    with pytest.raises(ValueError, match="labels must be 0 or 1"):
        dump_rankings_csv(load_rankings_csv(io.BytesIO(b"a,b\n1,2\n")), io.BytesIO(), layout="approvals")


@pytest.mark.parametrize("layout", ["ranks", "places"])
def test_names_that_spreadsheets_would_evaluate_are_quoted(layout: Any) -> None:
    names = ["=1+1", "-5", "+x", "@y", "'-z", "''=", "'quoted'", "ab"]
    ballots = Ballots(np.arange(8), -np.arange(1.0, 9.0), np.array([0, 8]), np.ones(1), names)
    file = io.BytesIO()
    dump_rankings_csv(ballots, file, layout=layout, tie="~")
    cells = file.getvalue().decode().splitlines()[layout == "places"].split(",")
    assert cells == ["'=1+1", "-5", "'+x", "'@y", "''-z", "'''=", "'quoted'", "ab"]
    file.seek(0)
    assert list(load_rankings_csv(file, layout=layout, tie="~").names) == names
    with pytest.raises(ValueError, match="names must not contain control characters"):
        dump_rankings_csv(replace(ballots, names=["a\x1b", *names[1:]]), io.BytesIO(), layout=layout)


def test_csv_of_places_is_read() -> None:
    ballots = csv("place1,place2,place3\nx,y=z,\ny,,x\n")
    assert sets_of(ballots) == [[{"x"}, {"y", "z"}], [{"y"}, {"x"}]]


def test_places_are_sorted_by_number() -> None:
    assert sets_of(csv("place2,place1\nb,a\n")) == [[{"a"}, {"b"}]]


def test_weight_and_feature_columns_are_detected() -> None:
    ballots = csv("a,b,n,f\n1,2,5,0.5\n", weight="n", features="f")
    file = io.BytesIO()
    dump_rankings_csv(ballots, file)
    file.seek(0)
    found = load_rankings_csv(file)
    assert list(found.names) == ["a", "b"]
    assert found.weights.tolist() == [5]
    assert found.X.tolist() == [[0.5]]


@pytest.mark.parametrize(
    ("names", "message"),
    [(["weight", "b"], "would be misread"), (["place1", "place2"], "would be misread"), (["a", "a"], "unique")],
)
def test_names_that_would_be_misread_are_refused(names: list[str], message: str) -> None:
    ballots = Ballots(np.array([0, 1]), np.array([2.0, 1.0]), np.array([0, 2]), np.ones(1), names)
    with pytest.raises(ValueError, match=message):
        dump_rankings_csv(ballots, io.BytesIO())


def test_ballots_that_text_cannot_represent_are_refused() -> None:
    for items, labels in (([0, 0], [2.0, 1.0]), ([0, 1], [np.nan, 1.0])):
        ballots = Ballots(np.array(items), np.array(labels), np.array([0, 2]), np.ones(1), ["a", "b"])
        for dump in (dump_preflib, dump_rankings_csv):
            with pytest.raises(ValueError, match="to be written"):
                dump(ballots, io.BytesIO())


def test_duplicate_names_are_not_written_as_preflib() -> None:
    ballots = Ballots(np.array([0, 1]), np.array([2.0, 1.0]), np.array([0, 2]), np.ones(1), ["a", "a"])
    with pytest.raises(ValueError, match="names must be unique"):
        dump_preflib(ballots, io.BytesIO())


def test_csv_features_are_read() -> None:
    ballots = csv("A1,A2,L1,L2\n0.5,1,1,2\n2,3,2,1\n", items="L*", features="A*")
    assert ballots.X.tolist() == [[0.5, 1], [2, 3]]
    assert list(ballots.names) == ["L1", "L2"]
    assert sets_of(ballots) == [[{"L1"}, {"L2"}], [{"L2"}, {"L1"}]]


@pytest.mark.parametrize(
    ("text", "problem", "line"),
    [
        ("", "expected a header and at least one row", None),
        ("a,b\n", "expected a header and at least one row", None),
        ("a,b\n1\n", "expected 2 cells", 2),
        ("a,b\n1,2,3\n", "expected 2 cells", 2),
        ("a,b\n1,x\n", "expected a number in column b", 2),
        ("a,b\n1,inf\n", "expected a number in column b", 2),
        ("a,b\n1,-2\n", "expected a rank in column b", 2),
        ("a,b\n1,0.3\n", "expected a rank in column b", 2),
        ("a,a\n1,2\n", "duplicate column name", 1),
        ("a,b,c\n57,1,2\n", "expected a rank in column a", 2),
        ("place1,place_1\nx,y\n", "the same place", 1),
        ("place1,place2\nx,x\n", "an item occurs twice", 2),
        ("place1,place2\nx=,y\n", "on both sides", 2),
        ("a,b\n1,\x002\n", "NUL", 2),
        ('a,b\n1,"2\n', "not a CSV table", 2),
        (",a,b\n0,1,2\n", "a column without a name cannot be an item", 1),
        ("a,b\n1,1_0\n", "expected a number in column b", 2),
        ("a,b\n1,\u0662\n", "expected a number in column b", 2),
    ],
)
def test_bad_csv_is_refused(text: str, problem: str, line: int | None) -> None:
    with pytest.raises(DataError, match=problem) as caught:
        csv(text)
    assert caught.value.line == line


def test_bad_csv_options_are_refused() -> None:
    with pytest.raises(ValueError, match=r"items must match columns of .*, got 'Z\*'"):
        csv("a,b\n1,2\n", items="Z*")
    with pytest.raises(ValueError, match="layout must be one of"):
        csv("a,b\n1,2\n", layout="x")
    with pytest.raises(DataError, match="weights must be at least 0"):
        csv("a,b,w\n1,2,-1\n", weight="w")


def test_nascar_data_has_known_counts() -> None:
    ballots = load_rankings_csv(real_data("rankings", "nascar-2002.csv"))
    assert (len(ballots), len(ballots.names)) == (36, 87)
    assert set(np.diff(ballots.offsets)) == {43}


@pytest.mark.parametrize("name", ["segment", "vowel", "vehicle", "pendigits", "libras"])
def test_label_rankings_have_known_counts(name: str) -> None:
    ballots = load_rankings_csv(real_data("label-ranking", f"{name}.csv.xz"), items="L*", features="A*")
    assert ballots.X is not None
    assert ballots.labels.max() == -1
    assert (np.diff(ballots.offsets) == len(ballots.names)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"items": np.array([0, 3])}, "items must be from 0 to 1"),
        ({"labels": np.ones(3)}, "labels must hold one value for each of the 2 ranked items"),
        ({"weights": np.ones(2)}, "weights must hold one value for each of the 1 ballots"),
        ({"offsets": np.array([0, 1])}, "offsets must end with"),
    ],
)
def test_containers_refuse_inconsistent_arrays(change: dict[str, Any], message: str) -> None:
    parts = {"items": np.array([0, 1]), "labels": np.ones(2), "offsets": np.array([0, 2]), "weights": np.ones(1)}
    with pytest.raises(ValueError, match=message):
        Ballots(**{**parts, **change}, names=["a", "b"])
