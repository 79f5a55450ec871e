"""Common parts of all losses of lists: scores, labels and weights of items, checked, one list after the other."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from plackett.arguments import as_tensor, check_finite, check_float_tensor, to_numpy
from plackett.likelihood.core import Tiers, make_tiers
from plackett.likelihood.torch_op import in_single_precision, numpy_labels, numpy_of
from plackett.lists import IntArray, flat_lists, make_lists, takes_mask

_Function = TypeVar("_Function", bound=Callable[..., Tensor])


@dataclass(frozen=True)
class LossLists:
    """Items of all lists, one list after the other."""

    scores: Tensor  # (items,)
    labels: Tensor  # (items,)
    offsets: IntArray

    @property
    def on_cpu(self) -> bool:
        return self.scores.device.type == "cpu"

    @property
    def count(self) -> int:
        return len(self.offsets) - 1

    def list_of(self) -> Tensor:
        """The list of each item."""
        sizes = torch.as_tensor(np.diff(self.offsets), device=self.scores.device)
        return torch.repeat_interleave(torch.arange(self.count, device=self.scores.device), sizes)

    def numpy_scores(self) -> npt.NDArray[np.float64]:
        return numpy_of(self.scores, np.float64)

    def numpy_labels(self) -> npt.NDArray[np.float64]:
        return numpy_labels(self.labels)

    def raise_not_finite(self) -> None:
        """Report the argument that made a result infinite or NaN."""
        check_finite("scores", self.scores)
        check_finite("labels", self.labels)
        raise ValueError("scores must be small enough for a finite loss, got scores that overflow")

    def tiers(self) -> Tiers:
        return make_tiers(self.numpy_labels(), self.offsets)

    @cached_property
    def have_one_length(self) -> bool:
        sizes = self.offsets[1:] - self.offsets[:-1]
        return len(sizes) > 0 and bool((sizes == sizes[0]).all()) and sizes[0] > 0

    def padded(self, values: Tensor, fill: float) -> Tensor:
        """Values as (lists, longest list), with `fill` after the end of each list."""
        if self.have_one_length:
            return values.reshape(self.count, -1)
        return values.new_full(self._padded_mask().shape, fill).masked_scatter(self._padded_mask(), values)

    def unpadded(self, values: Tensor) -> Tensor:
        if self.have_one_length:
            return values.reshape(-1)
        return values[self._padded_mask()]

    def _padded_mask(self) -> Tensor:
        sizes = torch.as_tensor(np.diff(self.offsets), device=self.scores.device)
        longest = int(sizes.max()) if len(sizes) else 0
        return torch.arange(longest, device=self.scores.device) < sizes[:, None]


def takes_lists(function: _Function) -> _Function:
    """Decorator of losses: half precision becomes single, and lists may be given by `mask`, `qid` or `group` as well.

    mask    another name for `where`
    qid     the list of each item of 1-D scores, in any order; lists are numbered by first appearance
    group   the sizes of consecutive lists
    """
    inner = takes_mask(in_single_precision(function))

    @functools.wraps(function)
    def wrapped(
        scores: Any, labels: Any, *arguments: Any, qid: Any = None, group: Any = None, **options: Any
    ) -> Tensor:
        if qid is None and group is None:
            return inner(scores, labels, *arguments, **options)
        check_float_tensor("scores", scores)
        if scores.dim() != 1 or options.get("where") is not None or options.get("mask") is not None:
            name = "group" if qid is None else "qid"
            raise ValueError(f"{name} belongs to one-dimensional scores without where, got shape {tuple(scores.shape)}")
        lists = make_lists(len(scores), offsets=options.get("offsets"), qid=to_numpy(qid), group=to_numpy(group))
        if lists.rows is not None:
            rows = torch.as_tensor(lists.rows, device=scores.device)
            scores, labels = scores[rows], as_tensor("labels", labels, scores.device)[rows]
            if options.get("item_weights") is not None:
                options["item_weights"] = as_tensor("item_weights", options["item_weights"], scores.device)[rows]
        return inner(scores, labels, *arguments, **options | {"offsets": lists.offsets})

    return cast("_Function", wrapped)


def make_loss_lists(scores: Any, labels: Any, offsets: Any, where: Any) -> LossLists:
    """The rules of `plackett.partition_log_likelihood` for shapes, `offsets` and `where`."""
    check_float_tensor("scores", scores)
    flat = flat_lists(scores, labels, offsets=offsets, where=where)
    _check_finite("scores", flat.scores)
    _check_finite("labels", flat.labels)
    return LossLists(flat.scores, flat.labels, flat.offsets)


def _check_finite(name: str, values: Tensor) -> None:
    """As `check_finite`. Usually the sum is finite, which tells it in a fifth of the time."""
    if values.is_floating_point() and not math.isfinite(values.detach().sum().item()):
        check_finite(name, values)


def flat_item_weights(lists: LossLists, item_weights: Any, where: Any) -> Tensor | None:
    """One weight of at least 0 per item, from an array in the shape of the scores; None if there are none."""
    if item_weights is None:
        return None
    given = torch.as_tensor(item_weights, device=lists.scores.device)
    weights = given[torch.as_tensor(where, device=given.device)] if where is not None else given.reshape(-1)
    if weights.shape != lists.scores.shape:
        raise ValueError(
            f"item_weights must hold one value per item, {len(lists.scores)}, got shape {tuple(given.shape)}"
        )
    weights = weights.to(lists.scores.dtype)
    if not bool(((weights >= 0.0) & weights.isfinite()).all()):
        low, high = weights.min().item(), weights.max().item()
        raise ValueError(f"item_weights must be finite and at least 0, got {low} to {high}")
    return weights
