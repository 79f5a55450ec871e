"""Training a network that scores the items of lists: data, loss and validation metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from plackett.data.containers import rows_of_lists
from plackett.data.listed_rows import ListedRows
from plackett.lists import IntArray, offsets_from_sizes
from plackett.losses.registry import Loss
from plackett.neural.networks import FeatureScaling

_ITEMS_AT_ONCE = 1 << 16
_BIAS_STEP = 10.0  # biases move this much faster than weights: they are few, and every batch informs all of them


class PositionedNetwork(nn.Module):
    """A network in training, with a bias for each position: utility = score + bias[position].

    It returns the scores of the network. The loss adds the biases; after training only `network` is used.
    """

    def __init__(self, network: nn.Module, positions: int) -> None:
        super().__init__()
        self.network = network
        self.steps = nn.Parameter(torch.zeros(positions))

    @property
    def bias(self) -> Tensor:
        """The bias of each position, with mean 0."""
        return _BIAS_STEP * (self.steps - self.steps.mean())

    def forward(self, x: Tensor, offsets: Tensor | None) -> Tensor:
        return self.network(x, offsets)


def batches_of_lists(sizes: IntArray, documents: int, generator: np.random.Generator | None) -> list[IntArray]:
    """Batches of lists with at most `documents` items together; a longer list is a batch by itself.

    The lists come in random order; without a generator, in their own order.
    """
    order = np.arange(len(sizes)) if generator is None else generator.permutation(len(sizes))
    batches, first, total = [], 0, 0
    for position, size in enumerate(sizes[order].tolist()):
        if position > first and total + size > documents:
            batches.append(order[first:position])
            first, total = position, 0
        total += size
    if first < len(order):
        batches.append(order[first:])
    return batches


class ScaledLists:
    """Rows of lists with scaled features, as tensors on a device."""

    def __init__(self, rows: ListedRows, scaling: FeatureScaling, device: torch.device) -> None:
        self.offsets, self.weights, self.sizes = rows.offsets, rows.weights, np.diff(rows.offsets)
        dtype = torch.float32 if device.type == "mps" else torch.float64
        self.X = scaling.apply_to(rows.X).to(device)
        self.labels = torch.tensor(rows.labels, dtype=dtype, device=device)  # a copy: they may be read-only
        codes, weights = rows.positions, rows.item_weights
        self.positions = None if codes is None else torch.tensor(codes.codes, device=device)
        self.item_weights = None if weights is None else torch.tensor(weights, dtype=dtype, device=device)

    def rows(self, lists: IntArray) -> Tensor:
        """The row numbers of some lists."""
        return torch.from_numpy(rows_of_lists(self.offsets, lists)).to(self.X.device)

    def batch(self, lists: IntArray) -> tuple[Tensor, Tensor, Tensor]:
        """Features, labels and offsets of some lists."""
        rows, offsets = self.rows(lists), offsets_from_sizes(self.sizes[lists])
        return self.X[rows], self.labels[rows], torch.from_numpy(offsets).to(self.X.device)

    def scores(self, network: Callable[..., Tensor]) -> npt.NDArray[np.float64]:
        """The scores of all items."""
        return scores_of_lists(network, self.X, self.offsets)


@torch.no_grad()
def scores_of_lists(network: Callable[..., Tensor], X: Tensor, offsets: IntArray) -> npt.NDArray[np.float64]:
    """The scores of all items from scaled features, some lists at a time."""
    if len(X) <= _ITEMS_AT_ONCE:
        return network(X, torch.tensor(offsets, device=X.device)).double().cpu().numpy()
    parts = []
    for lists in batches_of_lists(np.diff(offsets), _ITEMS_AT_ONCE, None):
        first, last = offsets[lists[0]], offsets[lists[-1] + 1]
        part = torch.tensor(offsets[lists[0] : lists[-1] + 2] - first, device=X.device)
        parts.append(network(X[first:last], part).double().cpu().numpy())
    return np.concatenate(parts)


class RankingTask:
    """A network that scores items, in training: a `plackett.neural.Task`."""

    def __init__(
        self,
        network: nn.Module,
        train: ScaledLists,
        evaluation: Mapping[str, ScaledLists],
        loss: Loss,
        options: Mapping[str, Any],
        batch_size: int,
        metrics: Mapping[str, Callable[..., Any]],
        compiled: bool,
        position_penalty: float = 0.0,
    ) -> None:
        self.network, self._train, self._evaluation = network, train, evaluation
        self._call = torch.compile(network, dynamic=True) if compiled else network
        self._loss, self._options = loss, options
        self._batch_size, self._metrics = batch_size, metrics
        self._penalty_per_weight = 0.5 * position_penalty / max(float(train.weights.sum()), 1e-300)

    def batches(self, generator: np.random.Generator) -> list[IntArray]:
        return batches_of_lists(self._train.sizes, self._batch_size, generator)

    def sizes(self, batch: IntArray) -> IntArray:
        return self._train.sizes[batch]

    def loss(self, batch: IntArray, generator: torch.Generator) -> tuple[Tensor, float]:
        x, labels, offsets = self._train.batch(batch)
        scores = self._call(x, offsets)
        if not bool(torch.isfinite(scores).all()):
            return scores.sum(), 1.0  # not finite either: the training loop raises the error
        weights = self._train.weights[batch]
        given: dict[str, Any] = {"generator": generator} if self._loss.random else {}
        if self._train.item_weights is not None:
            given["item_weights"] = self._train.item_weights[self._train.rows(batch)]
        utilities, penalty = scores.float(), torch.zeros((), device=x.device)
        if self._train.positions is not None and isinstance(self.network, PositionedNetwork):
            bias = self.network.bias
            utilities = utilities + bias[self._train.positions[self._train.rows(batch)]]
            penalty = self._penalty_per_weight * float(weights.sum()) * bias.square().sum()
        total = self._loss.function(
            utilities,
            labels,
            offsets=offsets,
            weights=torch.as_tensor(weights, dtype=torch.float32, device=x.device),
            reduction="sum",
            **given,
            **self._options,
        )
        return total + penalty, float(weights.sum())

    def evaluate(self) -> dict[str, float]:
        found = {}
        for name, lists in self._evaluation.items():
            scores, labels = lists.scores(self.network), lists.labels.cpu().numpy()
            for metric, function in self._metrics.items():
                value = function(scores, labels, offsets=lists.offsets, weights=lists.weights)
                found[f"{name} {metric}"] = float(value)
        return found
