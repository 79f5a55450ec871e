"""Trees as an ONNX file, in the standard operator TreeEnsemble with double precision.

The operator compares like LightGBM: a row goes left where its feature is at most the threshold, or in the set of
categories. Missing values have a direction in each node. All in float64, so that every row takes the branches that the
model itself takes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from plackett.boosted.fitting import Gains
from plackett.data.files import atomic_path
from plackett.errors import MissingDependencyError

_LEQ, _MEMBER = 0, 6  # modes of nodes
_SUM = 1  # aggregate_function
_OPSETS = {"": 18, "ai.onnx.ml": 5}
_IR_VERSION = 10


@dataclass
class _TreeNodes:
    """The attributes of TreeEnsemble, one entry per node or leaf; names as in the standard."""

    featureids: list[int] = field(default_factory=list)
    modes: list[int] = field(default_factory=list)
    splits: list[float] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)
    children: dict[bool, list[tuple[int, bool]]] = field(default_factory=lambda: {True: [], False: []})
    members: list[float] = field(default_factory=list)  # the categories of each node in turn, each set ended by NaN
    leaf_weights: list[float] = field(default_factory=list)
    leaf_targets: list[int] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)

    def add_tree(self, structure: dict[str, Any], target: int, scale: float) -> None:
        """A tree of LightGBM's `dump_model`, in depth-first order."""
        self.roots.append(len(self.modes))
        if "leaf_value" in structure:  # the operator has no tree without a node: both branches lead to the leaf
            leaf = structure
            structure = {
                "split_feature": 0, "decision_type": "<=", "threshold": 0.0, "default_left": True,
                "missing_type": "NaN", "left_child": leaf, "right_child": leaf,
            }  # fmt: skip
        self._add(structure, target, scale)

    def _add(self, node: dict[str, Any], target: int, scale: float) -> tuple[int, bool]:
        """The number of a node or leaf, and whether it is a leaf."""
        if "leaf_value" in node:
            self.leaf_weights.append(node["leaf_value"] * scale)
            self.leaf_targets.append(target)
            return len(self.leaf_weights) - 1, True
        number = len(self.modes)
        is_member = node["decision_type"] == "=="
        categories = [int(one) for one in str(node["threshold"]).split("||")] if is_member else []
        self.featureids.append(node["split_feature"])
        self.modes.append(_MEMBER if is_member else _LEQ)
        self.splits.append(0.0 if is_member else node["threshold"])
        self.missing.append(_missing_goes_left(node, categories))
        self.members += [*map(float, categories), np.nan] if is_member else []
        for side in self.children.values():
            side.append((0, False))
        self.children[True][number] = self._add(node["left_child"], target, scale)
        self.children[False][number] = self._add(node["right_child"], target, scale)
        return number, False


def _missing_goes_left(node: dict[str, Any], categories: list[int]) -> int:
    """Whether NaN goes left. Where the training had none, LightGBM takes it for 0."""
    if node["missing_type"] == "Zero":
        raise ValueError(
            "a model trained with zero_as_missing cannot be written as ONNX, which has no such rule: train it without"
        )
    if node["decision_type"] == "==":
        return int(node["missing_type"] == "None" and 0 in categories)
    return int(node["default_left"] if node["missing_type"] == "NaN" else node["threshold"] >= 0.0)


def write_onnx(path: str | os.PathLike[str], booster: Any, gains: Gains, is_forest: bool) -> None:
    """Write an ONNX file with the input "features", float64 (rows, features), and the output "scores" (rows,)."""
    try:
        import onnx
    except ImportError:
        raise MissingDependencyError("onnx", "onnx", "export_onnx") from None
    dumped = booster.dump_model(num_iteration=-1)
    if dumped.get("pandas_categorical"):
        raise ValueError("a model with pandas categories cannot be written as ONNX: pass them as whole numbers")
    nodes = _TreeNodes()
    per_round = dumped["num_tree_per_iteration"]
    scale = per_round / max(1, len(dumped["tree_info"])) if is_forest else 1.0
    for number, tree in enumerate(dumped["tree_info"]):
        if "leaf_coeff" in str(tree.get("tree_structure", ""))[:10_000]:
            raise ValueError("a model with linear trees cannot be written as ONNX: train it without linear_tree")
        nodes.add_tree(tree["tree_structure"], number % per_round, scale)
    graph = _graph(onnx, nodes, booster.num_feature(), per_round, gains)
    opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in _OPSETS.items()]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="plackett")
    onnx.checker.check_model(model)
    with atomic_path(path) as temporary:
        onnx.save(model, temporary)


def _graph(onnx: Any, nodes: _TreeNodes, features: int, targets: int, gains: Gains) -> Any:
    make, double = onnx.helper, onnx.TensorProto.DOUBLE
    steps = [_tree_node(make, onnx.TensorProto, nodes, targets)]
    constants = []
    if gains is None:
        constants.append(make.make_tensor("axis", onnx.TensorProto.INT64, [1], [1]))
        steps.append(make.make_node("Squeeze", ["sums", "axis"], ["scores"]))
    else:  # mcrank: the expected gain of the grades
        constants.append(make.make_tensor("gains", double, [len(gains)], gains))
        steps.append(make.make_node("Softmax", ["sums"], ["probabilities"], axis=1))
        steps.append(make.make_node("MatMul", ["probabilities", "gains"], ["scores"]))
    return make.make_graph(
        steps,
        "plackett",
        [make.make_tensor_value_info("features", double, ["rows", features])],
        [make.make_tensor_value_info("scores", double, ["rows"])],
        constants,
    )


def _tree_node(make: Any, kinds: Any, nodes: _TreeNodes, targets: int) -> Any:
    attributes = dict(_attributes(make, kinds, nodes))
    return make.make_node(
        "TreeEnsemble", ["features"], ["sums"], domain="ai.onnx.ml", n_targets=targets, aggregate_function=_SUM,
        post_transform=0, **attributes,
    )  # fmt: skip


def _attributes(make: Any, kinds: Any, nodes: _TreeNodes) -> Iterator[tuple[str, Any]]:
    def tensor(name: str, kind: int, values: list[Any]) -> Any:
        return make.make_tensor(name, kind, [len(values)], values)

    yield "nodes_featureids", nodes.featureids
    yield "nodes_modes", tensor("modes", kinds.UINT8, nodes.modes)
    yield "nodes_splits", tensor("splits", kinds.DOUBLE, nodes.splits)
    yield "nodes_missing_value_tracks_true", nodes.missing
    for side, name in ((True, "true"), (False, "false")):
        yield f"nodes_{name}nodeids", [number for number, _ in nodes.children[side]]
        yield f"nodes_{name}leafs", [int(is_leaf) for _, is_leaf in nodes.children[side]]
    yield "leaf_weights", tensor("weights", kinds.DOUBLE, nodes.leaf_weights)
    yield "leaf_targetids", nodes.leaf_targets
    yield "tree_roots", nodes.roots
    if nodes.members:
        yield "membership_values", tensor("members", kinds.DOUBLE, nodes.members)
