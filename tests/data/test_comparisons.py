"""`load_comparisons` and `Comparisons`."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from data_folder import real_data

from plackett.data import Comparisons, Factor, load_comparisons
from plackett.data.comparisons import concatenate_comparisons
from plackett.data.preflib import tiers_of
from plackett.errors import DataError

VOTES: dict[str, list[Any]] = {
    "model_a": ["x", "y", "x", "z"],
    "model_b": ["y", "z", "z", "x"],
    "winner": ["model_a", "tie", "model_b", "tie (bothbad)"],
    "voter": ["v", "w", "v", "v"],
    "n": [1, 2, 1, 1],
}


def rows(comparisons: Comparisons) -> list[tuple[Any, ...]]:
    assert comparisons.outcome is not None
    names = comparisons.names
    sides = [(names[i], names[j]) for i, j in zip(comparisons.left, comparisons.right, strict=True)]
    return [(*side, int(o)) for side, o in zip(sides, comparisons.outcome, strict=True)]


WANTED = [("x", "y", 1), ("y", "z", 0), ("x", "z", -1), ("z", "x", 0)]


def forms(folder: Path) -> dict[str, Any]:
    frame = pd.DataFrame(VOTES)
    frame.to_csv(folder / "votes.csv", index=False)
    frame.to_csv(folder / "votes.csv.gz", index=False, sep=";")
    frame.to_csv(folder / "votes.tsv", index=False, sep="\t")
    frame.to_parquet(folder / "votes.parquet")
    lines = [json.dumps({name: column[i] for name, column in VOTES.items()}) for i in range(4)]
    (folder / "votes.jsonl").write_text("\n".join(lines))
    return {
        "dict": VOTES,
        "pandas": frame,
        "categories": frame.astype({"model_a": "category", "winner": "category"}),
        "objects": frame.astype(object),
        "polars": pl.DataFrame(VOTES),
        "polars categories": pl.DataFrame(VOTES).with_columns(pl.col("winner").cast(pl.Categorical)),
        "lazy": pl.DataFrame(VOTES).lazy(),
        "arrow": pa.table(VOTES),
        "arrays": {name: np.array(column) for name, column in VOTES.items()},
        "csv": folder / "votes.csv",
        "semicolons": folder / "votes.csv.gz",
        "tabs": folder / "votes.tsv",
        "parquet": folder / "votes.parquet",
        "json": folder / "votes.jsonl",
        "stream": io.BytesIO((folder / "votes.csv").read_bytes()),
    }


def test_every_kind_of_table_gives_the_same_comparisons(tmp_path: Path) -> None:
    for name, form in forms(tmp_path).items():
        found = load_comparisons(form, weight="n", cluster="voter")
        assert rows(found) == WANTED, name
        assert found.weights.tolist() == [1, 2, 1, 1], name
        assert found.cluster is not None
        assert [found.cluster.names[code] for code in found.cluster.codes] == ["v", "w", "v", "v"], name


@pytest.mark.parametrize(
    ("left", "right", "winners"),
    [
        ("left", "right", ["left", "tie", "right", "draw"]),
        ("home", "away", ["home", "Draw", "away", "both"]),
        ("model_a", "model_b", ["A", "TIE", "b", "bothbad"]),
        ("item1", "item2", [1, 0.5, 0, 0.5]),
        ("item1", "item2", ["1", "0.5", "0.0", "0.5"]),
        ("white", "black", ["1-0", "1/2-1/2", "0-1", "1/2-1/2"]),
        ("team1", "team2", ["x", "tie", "z", "tie"]),
    ],
)
def test_spellings_in_use_are_understood(left: str, right: str, winners: list[Any]) -> None:
    table = {left: VOTES["model_a"], right: VOTES["model_b"], "result": winners}
    assert rows(load_comparisons(table)) == WANTED


def test_scores_of_two_sides_decide() -> None:
    table = {"home": VOTES["model_a"], "away": VOTES["model_b"], "home_goals": [3, 1, 0, 2], "away_goals": [1, 1, 2, 2]}
    assert rows(load_comparisons(table)) == WANTED
    assert rows(load_comparisons(table, winner=("home_goals", "away_goals"))) == WANTED


def test_winner_and_loser_columns_need_no_outcome() -> None:
    assert rows(load_comparisons({"winner": ["x"], "loser": ["y"]})) == [("x", "y", 1)]


def test_outcomes_can_be_spelled_by_the_user() -> None:
    table = VOTES | {"winner": [1, 0, 2, 0]}
    with pytest.raises(DataError, match=r"row 3: column 'winner' must name the winner, got 2. Say what it means"):
        load_comparisons(table)
    assert rows(load_comparisons(table, outcomes={1: "left", 0: "tie", 2: "right"})) == WANTED
    with pytest.raises(ValueError, match="outcomes must be left, right or tie, got 'lost' for 2"):
        load_comparisons(table, outcomes={2: "lost"})


@pytest.mark.parametrize(
    ("changes", "options", "problem"),
    [
        ({"winner": ["model_a", "tie", "model_c", "tie"]}, {}, "row 3: column 'winner' must name the winner"),
        ({"winner": ["model_a", None, "model_b", "tie"]}, {}, "row 2: column 'winner' must not be empty"),
        ({"model_b": ["y", "z", "x", "x"]}, {}, "row 3: model_a and model_b must differ, got 'x' twice"),
        ({"model_a": ["x", "", "x", "z"]}, {}, "row 2: column 'model_a' must not be empty"),
        ({"model_a": ["x", np.nan, "x", "z"]}, {}, "row 2: column 'model_a' must not be empty"),
        ({"n": [1, 2, -1, 1]}, {"weight": "n"}, "row 3: column 'n' must be at least 0, got -1"),
        ({"n": [1, 2, np.nan, 1]}, {"weight": "n"}, "row 3: column 'n' must hold finite numbers"),
        ({"n": [0, 0, 0, 0]}, {"weight": "n"}, "weight must be above 0 for some row, got 0 for all"),
        ({"n": [0, 0, 0, 0]}, {"weight": "m"}, "expected a column 'm', got model_a, model_b, winner, voter, n"),
        ({"voter": ["v", None, "v", "v"]}, {"cluster": "voter"}, "row 2: column 'voter' must not be empty"),
        ({"n": ["soon", "2026-01-01", "now", 1]}, {"time": "n"}, "row 1: column 'n' must hold numbers or dates"),
        ({}, {"left": "model_a"}, "left and right must be given together"),
        ({}, {"winner": ("n",)}, "winner must be a column, or the columns with the scores"),
        ({}, {"features": "n"}, "features must be a list of columns"),
        ({"left": ["x"] * 4, "right": ["y"] * 4}, {}, "cannot tell which columns are the two sides"),
        ({"result": ["x"] * 4}, {}, "cannot tell which column is the outcome"),
    ],
)
def test_bad_tables_are_refused(changes: dict[str, Any], options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        load_comparisons(VOTES | changes, **options)


def test_names_that_could_mean_a_side_are_refused() -> None:
    table = {"left": ["a", "b"], "right": ["b", "a"], "winner": ["a", "b"]}
    with pytest.raises(DataError, match="row 2: column 'winner' has 'b', which is the name of an item and may also"):
        load_comparisons(table)
    assert rows(load_comparisons(table | {"winner": ["a", "a"]} | {"left": ["a", "a"], "right": ["b", "b"]}))


def test_features_are_differences_of_column_pairs() -> None:
    table = VOTES | {"long_a": [5, 6, 7, 8], "long_b": [1, 2, 9, 4], "home": [1, 0, 0, 1]}
    found = load_comparisons(table, features={"length": ("long_a", "long_b"), "home": "home"})
    assert found.feature_names == ("length", "home")
    np.testing.assert_array_equal(found.features, [[4, 1], [4, 0], [-2, 0], [4, 1]])  # type: ignore[arg-type]
    swapped = found.swapped()
    np.testing.assert_array_equal(swapped.features, -found.features)  # type: ignore[operator, arg-type]
    assert rows(swapped) == [(right, left, -outcome) for left, right, outcome in WANTED]


def test_times_are_numbers_or_days() -> None:
    dates = ["2026-01-01", "2026-01-03", "2026-01-01T12:00", "2026/01/02"]
    found = load_comparisons(VOTES | {"n": dates}, time="n")
    assert found.time is not None
    np.testing.assert_allclose(found.time - found.time[0], [0, 2, 0.5, 1])
    frame = pd.DataFrame(VOTES | {"n": pd.to_datetime(["2026-01-01", "2026-01-03", "2026-01-02", "2026-01-05"])})
    found = load_comparisons(frame, time="n")
    assert found.time is not None
    np.testing.assert_allclose(found.time - found.time[0], [0, 2, 1, 4])


def test_ballots_and_parts_of_comparisons() -> None:
    found = load_comparisons(VOTES, weight="n", by="voter")
    names = found.names
    ballots = found.to_ballots()
    assert [[[names[i] for i in tier] for tier in tiers] for tiers in tiers_of(ballots)] == [
        [["x"], ["y"]], [["y", "z"]], [["z"], ["x"]], [["z", "x"]],
    ]  # fmt: skip
    assert ballots.weights.tolist() == [1, 2, 1, 1]
    parts = found.categories()
    assert rows(parts["w"]) == WANTED[1:2]
    assert rows(concatenate_comparisons(parts["v"], parts["w"])) == [WANTED[k] for k in (0, 2, 3, 1)]
    assert rows(found.select([2, 0])) == [WANTED[2], WANTED[0]]
    with pytest.raises(ValueError, match="rows must be from 0 to 3, got 4 to 4"):
        found.select([4])
    with pytest.raises(ValueError, match="the sides of row 0 must differ"):
        Comparisons(np.array([0]), np.array([0]), np.array([1]), ["x", "y"])


PAIR = {"left": np.array([0, 1]), "right": np.array([1, 2]), "outcome": np.array([1, 0]), "names": ["x", "y", "z"]}
INCONSISTENT: dict[str, tuple[dict[str, Any], str]] = {
    "side": ({"left": np.array([0, 3])}, "left must be from 0 to 2, got 0 to 3"),
    "length": ({"outcome": np.array([1])}, "outcome must hold one value for each of the 2 rows, got 1"),
    "outcome": (
        {"outcome": np.array([1, 2])},
        r"outcome must be 1 \(left\), 0 \(tie\) or -1 \(right\), got 2 in row 1",
    ),
    "weight": ({"weight": np.array([1.0, -1.0])}, "weight must be at least 0, got -1.0 in row 1"),
    "weights": ({"weight": np.zeros(2)}, "weight must be above 0 for some row, got 0 for all"),
    "features": (
        {"features": np.zeros((2, 2)), "feature_names": ["a"]},
        r"must have the columns a, got shape \(2, 2\)",
    ),
    "time": ({"time": np.array([0.0, np.nan])}, "time must be finite"),
}


@pytest.mark.parametrize(("changes", "message"), INCONSISTENT.values(), ids=[*INCONSISTENT])
def test_inconsistent_comparisons_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Comparisons(**PAIR | changes)


def test_joined_comparisons_match_names_and_clusters() -> None:
    one = load_comparisons(VOTES, cluster="voter")
    other = Comparisons(**PAIR | {"names": ["w", 5, "x"], "cluster": Factor(np.array([0, 1], np.int32), ["v", "u"])})
    both = concatenate_comparisons(one, other)
    assert rows(both) == [*rows(one), *rows(other)]
    assert both.cluster is not None
    assert [both.cluster.names[code] for code in both.cluster.codes] == ["v", "w", "v", "v", "v", "u"]
    assert both.names == ["x", "y", "z", "w", 5]  # these cannot be sorted
    assert repr(both).endswith("3 clusters)")
    with pytest.raises(ValueError, match="both comparisons must have cluster, or neither"):
        concatenate_comparisons(one, Comparisons(**PAIR))
    feature = {"features": np.zeros((2, 1))}
    with pytest.raises(ValueError, match="feature_names must be a, got b"):
        concatenate_comparisons(*(Comparisons(**PAIR | feature | {"feature_names": [name]}) for name in "ab"))
    with pytest.raises(ValueError, match=r"rows must mark each of the 4 rows, got shape \(3,\)"):
        one.select(np.ones(3, bool))
    for missing, use in (("categories", Comparisons.categories), ("outcomes", Comparisons.to_ballots)):
        with pytest.raises(ValueError, match=missing):
            use(Comparisons(**PAIR | {"outcome": None}))


def test_llmfao_is_read() -> None:
    found = load_comparisons(real_data("llmfao", "crowd-comparisons.csv.xz"), cluster="worker", by="prompt")
    assert repr(found) == (
        "Comparisons(8,931 comparisons of 59 items, 3,471 ties, 124 clusters, 13 categories)"
    )  # fmt: skip
