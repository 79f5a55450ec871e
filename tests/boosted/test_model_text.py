"""Checks of LightGBM model text: models we write pass, text that could harm LightGBM does not."""

import math
import re
import warnings
from pathlib import Path
from typing import Any

import fuzz
import lightgbm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plackett.boosted.model_text import check_model_text
from plackett.errors import DataError
from plackett.estimators import BoostedRanker

RNG = np.random.default_rng(3)
X = np.column_stack([RNG.normal(size=(60, 2)), RNG.integers(0, 6, 60)])
X[::7, 0] = np.nan
Y = RNG.integers(0, 3, 60)
GROUP = [25, 35]
FEW: dict[str, Any] = {"n_estimators": 3, "num_leaves": 6, "min_child_samples": 3, "progress": False}


def fit(objective: str = "partition", **options: Any) -> BoostedRanker:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return BoostedRanker(objective, **FEW | options).fit(X, Y, group=GROUP)


def text_of(model: BoostedRanker) -> str:
    text: str = model.booster_.model_to_string(num_iteration=-1)
    return text


@pytest.fixture(scope="module")
def text() -> str:
    """Three trees, including categorical splits."""
    options = {"min_data_per_group": 1, "cat_smooth": 0.1, "max_cat_to_onehot": 1}
    found = text_of(fit(categorical_features=[2], lightgbm_params=options))
    assert "cat_threshold=" in found
    return found


@settings(max_examples=40)
@given(
    objective=st.sampled_from(["partition", "plrank", "mcrank", "lambdamart", "xendcg", "regression", "quantile"]),
    num_leaves=st.integers(2, 12),
    min_child_samples=st.sampled_from([1, 3, 200]),
    categorical=st.booleans(),
    extra=st.sampled_from(
        [
            {},
            {"boosting": "dart"},
            {"boosting": "rf"},
            {"zero_as_missing": True},
            {"use_missing": False},
            {"linear_tree": True},
            {"max_cat_to_onehot": 1, "min_data_per_group": 1, "cat_smooth": 0.1},
            {"monotone_constraints_method": "advanced"},
        ]
    ),
)  # fmt: skip
def test_saved_models_pass(
    objective: str, num_leaves: int, min_child_samples: int, categorical: bool, extra: dict[str, Any]
) -> None:
    options: dict[str, Any] = {"num_leaves": num_leaves, "min_child_samples": min_child_samples}
    if extra.get("boosting") == "rf":
        options["subsample"] = 0.5
    if "monotone_constraints_method" in extra:
        options["monotone_constraints"] = [1, -1, 0]
    elif categorical and "linear_tree" not in extra:
        options["categorical_features"] = [2]
    try:
        model = fit(objective, leaves="lightgbm", lightgbm_params=extra, **options)
    except ValueError as error:  # LightGBM does not support every combination
        assert "LightGBM" in str(error) or "a feature that can be split" in str(error)  # noqa: PT017
        return
    kept = check_model_text(text_of(model), "model.txt")
    again = lightgbm.Booster(model_str=kept)
    np.testing.assert_array_equal(again.predict(X, raw_score=True), model.booster_.predict(X, raw_score=True))


def test_split_of_all_numbers_from_missing_values_passes(tmp_path: Path) -> None:
    """LightGBM writes its threshold as inf."""
    rows = np.where(Y[:, None] > 0, np.nan, X[:, 1:2])
    model = BoostedRanker("regression", **FEW).fit(rows, Y, group=GROUP)
    assert "threshold=inf\n" in text_of(model)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(BoostedRanker.load(tmp_path / "model").predict(rows), model.predict(rows))


def test_threshold_of_a_category_is_not_inf(text: str) -> None:
    decisions = re.search(r"decision_type=(.*)", text)
    thresholds = re.search(r"threshold=(.*)", text)
    assert decisions is not None
    assert thresholds is not None
    words = thresholds[1].split()
    words[[int(word) & 1 for word in decisions[1].split()].index(1)] = "inf"
    altered = text.replace(thresholds[0], "threshold=" + " ".join(words), 1)
    with pytest.raises(DataError, match="tree"):
        check_model_text(altered, "model.txt")


def test_names_and_categories_of_pandas_pass(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"ä=b": X[:, 0], "é": pandas.Categorical.from_codes(X[:, 2].astype(int), list("uvwxyz"))})
    model = BoostedRanker(**FEW).fit(frame, Y, group=GROUP)
    model.save(tmp_path / "model")
    loaded = BoostedRanker.load(tmp_path / "model")
    assert loaded.booster_.pandas_categorical == [list("uvwxyz")]
    np.testing.assert_array_equal(loaded.predict(frame), model.predict(frame))


def test_text_after_the_trees_is_not_passed_to_lightgbm(text: str) -> None:
    assert "[forcedsplits_filename: ]" in text
    kept = check_model_text(text.replace("[forcedsplits_filename: ]", "[forcedsplits_filename: /etc/passwd]"), "m")
    assert "passwd" not in kept
    assert "parameters" not in kept


def change(name: str, new: Any) -> Any:
    """Change the value of the first line with this name, and update the size of the first tree."""

    def run(text: str) -> str:
        before = re.search(rf"^{name}=(.*)$", text, re.MULTILINE)
        assert before is not None, name
        value = new(before[1]) if callable(new) else new
        changed = text[: before.start(1)] + value + text[before.end(1) :]
        if before.start() > text.index("Tree=0"):
            size = int(re.search(r"tree_sizes=(\d+)", text)[1])  # type: ignore[index]
            changed = changed.replace(f"tree_sizes={size}", f"tree_sizes={size + len(value) - len(before[1])}", 1)
        return changed

    return run


def word(number: int, new: str) -> Any:
    def run(value: str) -> str:
        words = value.split(" ")
        words[number] = new
        return " ".join(words)

    return run


HOSTILE = {
    "a size too small": (change("tree_sizes", word(0, "10")), "tree 0: it does not begin and end where"),
    "a size too large": (change("tree_sizes", word(2, "999999")), "tree 2: it does not begin and end where"),
    "a size less": (change("tree_sizes", lambda v: v.rsplit(" ", 1)[0]), "expected 'end of trees' after 2 trees"),
    "a negative size": (change("tree_sizes", word(1, "-5")), "tree_sizes must be from 1"),
    "no trees": (change("tree_sizes", ""), "0 trees"),
    "leaves": (change("num_leaves", "2000000000"), "split_gain must hold 1999999999 numbers, got"),
    "no leaves": (change("num_leaves", "0"), "num_leaves must be from 1"),
    "categories": (change("num_cat", "0"), "expected the lines"),
    "many categories": (change("num_cat", "2000000000"), "cat_boundaries must hold 2000000001 numbers"),
    "a feature beyond": (change("split_feature", word(0, "3")), "split_feature must be from 0 to 2, got"),
    "a feature below": (change("split_feature", word(0, "-1")), "split_feature must be from 0 to 2, got"),
    "a cycle": (change("left_child", word(1, "0")), "left_child and right_child must name every node"),
    "a node twice": (change("right_child", word(0, "1")), "left_child and right_child must name every node"),
    "a leaf beyond": (change("right_child", word(0, "-1000")), "left_child and right_child must name every node"),
    "a negative infinite threshold": (change("threshold", word(0, "-inf")), "threshold must hold numbers, got"),
    "a NaN leaf": (change("leaf_value", word(0, "nan")), "leaf_value must hold numbers, got"),
    "an overflowing leaf": (change("leaf_value", word(0, "1e999")), "leaf_value must be finite"),
    "an unknown decision": (change("decision_type", word(0, "12")), "decision_type must be from 0 to 11, got"),
    "boundaries that fall": (change("cat_boundaries", lambda v: "1" + v[1:]), "cat_boundaries must begin with 0"),
    "boundaries beyond": (change("cat_boundaries", word(-1, "99999")), "cat_threshold must hold 99999 numbers"),
    "large categories": (change("cat_threshold", word(0, "4294967296")), "cat_threshold must be from 0 to 4294967295"),
    "features": (change("max_feature_idx", "1000000000"), "feature_names must hold 1000000001 words"),
    "names": (change("feature_names", "a b"), "feature_names must hold 3 words"),
    "infos": (change("feature_infos", "none none [x:y]"), "feature_infos must be none"),
    "classes": (change("num_class", "3"), "does not match num_tree_per_iteration"),
    "no classes": (change("num_tree_per_iteration", "0"), "num_tree_per_iteration must be from 1"),
    "a version": (change("version", "v9"), "version must be v4"),
    "a NUL": (lambda text: text.replace("shrinkage", "shrink\0ge", 1), "expected lines of a header"),
    "nothing": (lambda _: "", "expected lines of a header"),
    "another file": (lambda _: "root:x:0:0\n\nTree=0", "the first line must be 'tree'"),
    "no end": (lambda text: text.replace("end of trees", "end"), "expected 'end of trees'"),
    "a line twice": (lambda text: text.replace("label_index=0", "label_index=0\nlabel_index=0"), "occurs twice"),
    "an unknown line": (lambda text: text.replace("label_index", "label"), "expected the lines version"),
    "pandas' categories": (lambda text: text.replace("al:null", "al:{}"), "pandas_categorical must be"),
    "deep categories": (lambda text: text.replace("al:null", "al:" + "[" * 10**5), "nested too deeply"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_are_refused(name: str, text: str) -> None:
    alter, message = HOSTILE[name]
    with pytest.raises(DataError, match=re.escape(message)) as found:
        check_model_text(alter(text), "model.txt")
    assert str(found.value).startswith("model.txt: not a model that LightGBM can safely read: ")
    assert len(str(found.value)) < 600


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ("evil", "objective must be one of"),
        ("multiclass num_class:9", "objective must say num_class:3"),
        ("regression", "objective regression has one class, got 3"),
        ("multiclass num_class:3 x:y", "objective must be one of"),
    ],
)
def test_objectives_must_fit_the_classes(objective: str, message: str) -> None:
    text = text_of(fit("mcrank"))
    with pytest.raises(DataError, match=message):
        check_model_text(change("objective", objective)(text), "model.txt")


def chain(levels: int) -> str:
    """A tree in which every node has a leaf and the next node as children."""
    nodes = range(levels)
    lists = {
        "split_feature": [0] * levels, "split_gain": [1] * levels, "threshold": [0.5] * levels,
        "decision_type": [2] * levels, "left_child": [~i for i in nodes],
        "right_child": [*range(1, levels), ~levels], "leaf_value": [0] * (levels + 1),
        "leaf_weight": [1] * (levels + 1), "leaf_count": [1] * (levels + 1), "internal_value": [0] * levels,
        "internal_weight": [1] * levels, "internal_count": [1] * levels,
    }  # fmt: skip
    lines = [f"{name}={' '.join(map(str, values))}" for name, values in lists.items()]
    tree = (
        "\n".join(["Tree=0", f"num_leaves={levels + 1}", "num_cat=0", *lines, "is_linear=0", "shrinkage=1"]) + "\n\n\n"
    )
    head = "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=0\nmax_feature_idx=0\n"
    return f"{head}feature_names=a\nfeature_infos=none\ntree_sizes={len(tree)}\n\n{tree}end of trees\n"


def test_too_many_levels_are_refused() -> None:
    """LightGBM explains trees recursively: a million levels would overflow the stack."""
    booster = lightgbm.Booster(model_str=check_model_text(chain(2000), "model.txt"))
    assert booster.predict(np.zeros((1, 1)), pred_contrib=True).shape == (1, 2)
    with pytest.raises(DataError, match="tree 0: it has 2,001 levels, more than 2,000"):
        check_model_text(chain(2001), "model.txt")


def test_linear_leaves_are_checked() -> None:
    text = text_of(fit("regression", lightgbm_params={"linear_tree": True}))
    check_model_text(text, "model.txt")
    second = text.index("Tree=1")
    at = re.compile(r"leaf_features=(\d)").search(text, second)
    assert at is not None
    with pytest.raises(DataError, match="leaf_features must be from 0 to 2"):
        check_model_text(text[: at.start(1)] + "7" + text[at.end(1) :], "model.txt")
    counts = re.compile(r"num_features=(\d)").search(text, second)
    assert counts is not None
    with pytest.raises(DataError, match="leaf_features must hold as many numbers for each leaf as num_features says"):
        check_model_text(text[: counts.start(1)] + str(int(counts[1]) - 1) + text[counts.end(1) :], "model.txt")
    first = re.compile(r"num_features=(0) 0").search(text)  # a tree whose leaves have no features
    assert first is not None
    with pytest.raises(DataError, match="leaf_features must hold as many numbers for each leaf as num_features says"):
        check_model_text(text[: first.start(1)] + "1" + text[first.end(1) :], "model.txt")


def test_altered_models_fail_cleanly_or_predict() -> None:
    """Altered text with a matching hash, tried in a separate process."""
    names = [name for name in fuzz.TARGETS if "boosted" in name]
    found = fuzz.run_apart(names, 120, math.inf, 1, fuzz.UNHURRIED)
    assert list(found) == names, found
    for counts in found.values():
        assert counts["clean errors"] + counts["accepted"] == 120
        assert counts["clean errors"] > 40
        assert counts["accepted"] > 0


def test_contributions_of_linear_trees_are_refused() -> None:
    with pytest.raises(ValueError, match=r"this model cannot compute contributions: .*linear trees"):
        fit("regression", lightgbm_params={"linear_tree": True}).predict(X, contributions=True)
