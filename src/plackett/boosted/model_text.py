"""LightGBM's text of a model, checked before LightGBM reads it.

LightGBM trusts the text: if sizes, counts or children are wrong, it reads beyond its arrays, loops forever or ends the
process. So everything it uses is checked here: which lines there are, the lengths of trees and arrays, that numbers are
finite, and that every node and leaf is reached exactly once. Of the text after the trees (importances, parameters of
the training) LightGBM gets only pandas' categories.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from plackett.data.untrusted import parse_json
from plackett.errors import DataError

_DEEPEST = 2000  # levels: LightGBM explains predictions by recursion, with a table of levels x levels
_LARGEST = 1e150  # of a coefficient: its product with a feature of that size is finite

_HEADER = (
    "version", "num_class", "num_tree_per_iteration", "label_index", "max_feature_idx", "objective", "average_output",
    "feature_names", "monotone_constraints", "feature_infos", "tree_sizes",
)  # fmt: skip
_OPTIONAL = ("objective", "average_output", "monotone_constraints")
_OBJECTIVES = (
    "regression", "regression_l1", "huber", "fair", "poisson", "quantile", "mape", "gamma", "tweedie", "binary",
    "multiclass", "multiclassova", "cross_entropy", "cross_entropy_lambda", "lambdarank", "rank_xendcg", "custom",
)  # fmt: skip

_SPLITS = ("split_feature", "split_gain", "threshold", "decision_type", "left_child", "right_child")
_LEAVES = ("leaf_value", "leaf_weight", "leaf_count")
_INTERNAL = ("internal_value", "internal_weight", "internal_count")
_CATEGORIES = ("cat_boundaries", "cat_threshold")
_LINEAR = ("leaf_const", "num_features", "leaf_features", "leaf_coeff")
_TREE = ("num_leaves", "num_cat", *_SPLITS, *_LEAVES, *_INTERNAL, *_CATEGORIES, "is_linear", *_LINEAR, "shrinkage")

_WHOLE = r"-?\d{1,10}"
_NUMBER = r"-?\d{1,25}(?:\.\d{1,25})?(?:e[-+]?\d{1,3})?"
_WHOLES, _NUMBERS = (re.compile(rf"(?:{one}(?: {one})*)?", re.ASCII) for one in (_WHOLE, _NUMBER))
_OPTION = re.compile(rf"sqrt|[a-z_]+:{_NUMBER}", re.ASCII)
_FEATURE_INFO = re.compile(rf"none|\[{_NUMBER}:{_NUMBER}\]|{_WHOLE}(?::{_WHOLE})*", re.ASCII)

_END, _PANDAS = "end of trees\n", "\npandas_categorical:"

Numbers = npt.NDArray[np.float64]


def check_model_text(text: str, file: str) -> str:
    """The part of a model's text that LightGBM gets: the header, the trees, and the categories of pandas."""
    try:
        return _checked(text)
    except ValueError as error:
        raise DataError(f"not a model that LightGBM can safely read: {error}", file=file) from None


def _checked(text: str) -> str:
    header, blank, body = text.partition("\n\n")
    if not blank or "\0" in text or "\r" in header:
        raise ValueError("expected lines of a header, a blank line and trees")
    features, sizes = _check_header(header)
    end, largest = 0, 0.0
    for number, size in enumerate(sizes):
        try:
            largest += _check_tree(body[end : end + size], number, features)
        except ValueError as error:
            raise ValueError(f"tree {number}: {error}") from None
        end += size
    if not body.startswith(_END, end):
        raise ValueError(f"expected {_END.strip()!r} after {len(sizes)} trees of the sizes in tree_sizes")
    if not math.isfinite(largest):
        raise ValueError("the leaves of its trees can sum to infinity")
    found = text.rfind(_PANDAS)
    categories = None if found < 0 else parse_json(text[found + len(_PANDAS) :])
    _check_categories(categories)
    return f"{header}\n\n{body[:end]}{_END}{_PANDAS}{json.dumps(categories)}\n"


def _check_header(header: str) -> tuple[int, list[int]]:
    """The number of features, and the sizes of the trees."""
    first, *lines = header.split("\n")
    if first != "tree":
        raise ValueError(f"the first line must be 'tree', got {first[:40]!r}")
    fields = _fields(lines)
    names = [name for name in _HEADER if name in fields or name not in _OPTIONAL]
    if list(fields) != names:
        raise ValueError(f"expected the lines {', '.join(names)}, got {', '.join(fields)[:200]}")
    if fields["version"] != "v4":
        raise ValueError(f"version must be v4, got {fields['version'][:20]!r}")
    _integer(fields, "label_index", 0)
    features = _integer(fields, "max_feature_idx", 0) + 1
    for name in ("feature_names", "feature_infos"):
        words = fields[name].split(" ")
        if len(words) != features or not all(words):
            raise ValueError(f"{name} must hold {features} words, as max_feature_idx says, got {len(words)}")
    if not all(_FEATURE_INFO.fullmatch(word) for word in fields["feature_infos"].split(" ")):
        raise ValueError("feature_infos must be none, [least:greatest] or categories")
    if "monotone_constraints" in fields:
        _check_within(_integers(fields, "monotone_constraints", features), "monotone_constraints", -1, 1)
    if fields.get("average_output"):
        raise ValueError("average_output must be a line of its own")
    sizes = _integers(fields, "tree_sizes")
    _check_within(sizes, "tree_sizes", 1, 2**31)
    classes = _integer(fields, "num_class", 1)
    if _integer(fields, "num_tree_per_iteration", 1) != classes or len(sizes) % classes or not len(sizes):
        raise ValueError(f"{len(sizes)} trees of {classes} classes, which does not match num_tree_per_iteration")
    _check_objective(fields.get("objective", "custom"), classes)
    return features, sizes.astype(np.int64).tolist()


def _check_objective(objective: str, classes: int) -> None:
    name, *options = objective.split(" ")
    if name not in _OBJECTIVES or not all(_OPTION.fullmatch(option) for option in options):
        raise ValueError(f"objective must be one of {', '.join(_OBJECTIVES)}, got {objective[:60]!r}")
    # The objective writes a number for each of its classes to where there is room for those of the header.
    said = [option for option in options if option.startswith("num_class:")]
    if name.startswith("multiclass") and said != [f"num_class:{classes}"]:
        raise ValueError(f"objective must say num_class:{classes}, as the header does, got {objective[:60]!r}")
    if not name.startswith("multiclass") and (said or (classes > 1 and name != "custom")):
        raise ValueError(f"objective {name} has one class, got {classes}")


def _check_categories(categories: Any) -> None:
    scalars = (str, int, float, bool, type(None))
    if categories is not None and not (
        isinstance(categories, list)
        and all(isinstance(column, list) and all(isinstance(x, scalars) for x in column) for column in categories)
    ):
        raise ValueError("pandas_categorical must be a list of lists of values")


def _check_tree(text: str, number: int, features: int) -> float:
    """The largest number that the tree can add to a score, apart from the features in linear leaves."""
    if not text.startswith(f"Tree={number}\n") or not text.endswith("\n\n\n"):
        raise ValueError("it does not begin and end where tree_sizes says")
    fields = _fields(text[:-3].split("\n")[1:])
    leaves, categories = _integer(fields, "num_leaves", 1), _integer(fields, "num_cat", 0)
    is_linear = _integer(fields, "is_linear", 0)
    left_out = (() if categories else _CATEGORIES) + (() if is_linear else _LINEAR)
    names = [name for name in _TREE if name not in left_out]
    if list(fields) != names or is_linear > 1:
        raise ValueError(f"expected the lines {', '.join(names)}, got {', '.join(fields)[:200]}")
    nodes = leaves - 1
    for name in ("split_gain", "internal_value", "internal_weight"):
        _numbers(fields, name, nodes)
    _numbers(fields, "leaf_weight", leaves)
    values = _numbers(fields, "leaf_value", leaves)
    _numbers(fields, "shrinkage", 1)
    _check_within(_integers(fields, "internal_count", nodes), "internal_count", 0, 2**31 - 1)
    _check_within(_integers(fields, "leaf_count", leaves), "leaf_count", 0, 2**31 - 1)
    _check_within(_integers(fields, "split_feature", nodes), "split_feature", 0, features - 1)
    _check_children(_integers(fields, "left_child", nodes), _integers(fields, "right_child", nodes))
    _check_decisions(fields, nodes, categories)
    if is_linear:
        values = np.append(values, _check_linear(fields, leaves, features))
    return float(np.abs(values).max())


def _check_children(left: Numbers, right: Numbers) -> None:
    """A child is a later node, or leaf i as -1 - i. If each occurs once, they form a tree."""
    nodes = len(left)
    if nodes == 0:
        return
    children = np.sort(np.concatenate([left, right]))
    if (children != np.r_[-nodes - 1 : 0, 1:nodes]).any():
        raise ValueError("left_child and right_child must name every node but the first, and every leaf, once")
    depth = [1] * nodes
    for node, pair in enumerate(zip(left.astype(int).tolist(), right.astype(int).tolist(), strict=True)):
        for child in pair:
            if 0 <= child <= node:
                raise ValueError(f"the child {child} of node {node} must come after it")
            if child > 0:
                depth[child] = depth[node] + 1
    if max(depth) > _DEEPEST:
        raise ValueError(f"it has {max(depth):,} levels, more than {_DEEPEST:,}")


def _check_decisions(fields: dict[str, str], nodes: int, categories: int) -> None:
    """Bit 0: by category; bit 1: where missing values go; bits 2 and 3: what is missing, one of three kinds."""
    decisions = _integers(fields, "decision_type", nodes).astype(np.int64)
    _check_within(decisions, "decision_type", 0, 11)
    sets = _thresholds(fields, nodes)[decisions & 1 == 1]
    if (sets != np.floor(sets)).any() or (sets < 0).any() or (sets >= categories).any():
        raise ValueError(f"the threshold of a categorical split must be one of {categories} sets of categories")
    if categories:
        ends = _integers(fields, "cat_boundaries", categories + 1)
        if ends[0] != 0 or (np.diff(ends) < 1).any():
            raise ValueError("cat_boundaries must begin with 0 and increase")
        _check_within(_integers(fields, "cat_threshold", int(ends[-1])), "cat_threshold", 0, 2**32 - 1)


def _thresholds(fields: dict[str, str], nodes: int) -> Numbers:
    """Thresholds of splits; inf separates all numbers from missing values."""
    words = fields.get("threshold", "").split(" ")
    found = _numbers({"threshold": " ".join("0" if word == "inf" else word for word in words)}, "threshold", nodes)
    found[[word == "inf" for word in words[:nodes]]] = np.inf
    return found


def _check_linear(fields: dict[str, str], leaves: int, features: int) -> Numbers:
    """Each leaf lists its features and coefficients, every one followed by a blank, and a blank at the end.

    Returns the constants of the leaves.
    """
    constants = _numbers(fields, "leaf_const", leaves)
    counts = _integers(fields, "num_features", leaves)
    _check_within(counts, "num_features", 0, features)
    for name, pattern in (("leaf_features", _WHOLES), ("leaf_coeff", _NUMBERS)):
        words = fields[name].split()
        ends = np.cumsum(counts).astype(int).tolist()
        lists = [words[a:b] for a, b in itertools.pairwise([0, *ends])]
        text = "".join("".join(f"{word} " for word in part) + " " for part in lists)
        if len(words) != ends[-1] or text != fields[name]:
            raise ValueError(f"{name} must hold as many numbers for each leaf as num_features says")
        found = _array({name: " ".join(words)}, name, pattern, len(words))
        if name == "leaf_features":
            _check_within(found, name, 0, features - 1)
        elif found.size and np.abs(found).max() > _LARGEST:
            raise ValueError(f"{name} must be from {-_LARGEST:g} to {_LARGEST:g}")
    return constants


def _fields(lines: list[str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition("=")
        if name in fields:
            raise ValueError(f"the line {name[:40]!r} occurs twice")
        fields[name] = value
    return fields


def _array(fields: dict[str, str], name: str, pattern: re.Pattern[str], length: int | None) -> Numbers:
    if name not in fields or not pattern.fullmatch(fields[name]):
        kind = "whole numbers" if pattern is _WHOLES else "numbers"
        raise ValueError(f"{name} must hold {kind}, got {fields.get(name, 'nothing')[:60]!r}")
    found = np.array(fields[name].split(), np.float64)
    if length is not None and len(found) != length:
        raise ValueError(f"{name} must hold {length} numbers, got {len(found)}")
    if not np.isfinite(found).all():
        raise ValueError(f"{name} must be finite")
    return found


def _numbers(fields: dict[str, str], name: str, length: int) -> Numbers:
    return _array(fields, name, _NUMBERS, length)


def _integers(fields: dict[str, str], name: str, length: int | None = None) -> Numbers:
    return _array(fields, name, _WHOLES, length)


def _integer(fields: dict[str, str], name: str, least: int) -> int:
    found = _integers(fields, name, 1)
    _check_within(found, name, least, 2**31 - 2)
    return int(found[0])


def _check_within(values: npt.NDArray[Any], name: str, least: int, greatest: int) -> None:
    if values.size and not least <= values.min() <= values.max() <= greatest:
        raise ValueError(f"{name} must be from {least} to {greatest}, got {values.min():.0f} to {values.max():.0f}")
