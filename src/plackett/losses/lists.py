"""What all losses share: the border, and the reduction over lists."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from plackett.likelihood.tiers import Tiers, make_tiers
from plackett.likelihood.torch_op import flat_lists, labels_of, numpy_of
from plackett.lists import IntArray

REDUCTIONS = ("mean", "sum", "none")


@dataclass(frozen=True)
class FlatLists:
    """Items of all lists one after the other."""

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
        return labels_of(self.labels)

    def raise_not_finite(self) -> None:
        """For a result that is not finite: say which argument is to blame."""
        check_finite("scores", self.scores)
        check_finite("labels", self.labels)
        raise ValueError("scores must be small enough for a finite loss, got scores of a size that overflows")

    def tiers(self) -> Tiers:
        return make_tiers(self.numpy_labels(), self.offsets)

    @cached_property
    def have_one_length(self) -> bool:
        sizes = np.diff(self.offsets)
        return len(sizes) > 0 and bool((sizes == sizes[0]).all()) and sizes[0] > 0

    def padded(self, values: Tensor, fill: float) -> Tensor:
        """(lists, longest) with `fill` behind the end of each list."""
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


def check_finite(name: str, values: Tensor) -> None:
    finite = torch.isfinite(values)
    if not bool(finite.all()):
        position = int(torch.nonzero(~finite)[0, 0])
        raise ValueError(f"{name} must be finite, got {values[position].item()} at item {position}")


def prepare(scores: Any, labels: Any, offsets: Any, where: Any) -> FlatLists:
    """The rules of `plackett.partition_log_likelihood` for shapes, `offsets` and `where`."""
    flat_scores, flat_labels, bounds = flat_lists(scores, labels, offsets, where)
    lists = FlatLists(flat_scores, flat_labels, bounds)
    if not lists.on_cpu:  # the compiled kernels find out by themselves
        check_finite("scores", flat_scores)
        check_finite("labels", flat_labels)
    return lists


def reduce_losses(losses: Tensor, weights: Any, reduction: str) -> Tensor:
    """One loss a list -> "mean" = sum(weight * loss) / sum(weight), "sum" = sum(weight * loss), "none" = weight * loss.

    The mean over no lists, or over lists of weight 0, is 0.
    """
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {', '.join(REDUCTIONS)}, got {reduction!r}")
    if weights is None:
        weighted, total = losses, float(len(losses))
    else:
        weight = torch.as_tensor(weights, device=losses.device, dtype=losses.dtype)
        if weight.shape != losses.shape:
            raise ValueError(f"weights must hold one value per list, {tuple(losses.shape)}, got {tuple(weight.shape)}")
        if not bool((weight >= 0).all()):
            raise ValueError(f"weights must be at least 0, got {weight.min().item()}")
        weighted, total = losses * weight, float(weight.sum())
    if reduction == "none":
        return weighted
    return weighted.sum() if reduction == "sum" else weighted.sum() / (total if total > 0.0 else 1.0)
