"""Regularisers of networks for very many labels. Each changes the loss of a batch; l is the loss of the objective.

glas       l + strength x |V V' - G|^2 / K^2,  G = (A Z^-1 + Z^-1 A) / 2
           (Guo et al. 2019). V holds the output layer's weights of the K labels of the batch, A counts the training
           rows that have both of two labels, and Z is its diagonal: the inner product of two labels is pulled to the
           mean of the shares of either's rows that have the other. The paper takes all labels; a batch is a sample.
smoothing  (1 - strength) x l + strength x m x mean over all labels of -log softmax(scores)
           for a row with m labels: a soft bottom tier, in which each label has a small chance of coming first.
mixup      a l(x, y) + (1 - a) l(x, y'),  at the features x = a x_1 + (1 - a) x_2 of two rows with labels y and y'
           (Zhang et al. 2018), a ~ Beta(strength, strength) for each batch.
tail       (1 - strength) x l + strength x l(two tiers)
           where the labels of a row that are rarer than their geometric mean form a tier above its others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array, diags_array
from torch import Tensor

from plackett.arguments import check_choice
from plackett.data.containers import without_grades
from plackett.lists import IntArray
from plackett.neural.extreme_fitting import BatchLabels, LabelledRows
from plackett.neural.networks import rows_on_device

STRENGTHS = {"glas": 1.0, "smoothing": 0.05, "mixup": 0.2, "tail": 0.1}
"""The regularisers, and the strength of each where none is given."""


class Batch(Protocol):
    """Some training rows and a network, as regularisers see them."""

    rows: LabelledRows
    numbers: IntArray
    generator: torch.Generator

    def plain_loss(self) -> Tensor:
        """The sum of weight x loss of the rows as they are."""

    def hidden(self, features: Any) -> Tensor:
        """The input of the output layer."""

    def loss(self, hidden: Tensor, labels: BatchLabels, numbers: IntArray) -> Tensor:
        """The sum of weight x loss, with the weights of these rows."""

    def scores(self, hidden: Tensor) -> Tensor:
        """The scores of all labels."""

    def label_vectors(self, labels: IntArray) -> Tensor:
        """The weights of labels in the output layer."""

    def weights(self) -> Tensor:
        """The weight of each row."""


Regularizer = Callable[[Batch], Tensor]
"""The sum of weight x loss of a batch."""


def shared_shares(Y: csr_array) -> csr_array:
    """G of glas, (labels, labels); all 0 for a label that no row has."""
    has: Any = without_grades(Y)
    both = csr_array(has.T @ has)
    counts = both.diagonal()
    share = diags_array(np.divide(1.0, counts, where=counts > 0, out=np.zeros_like(counts))) @ both
    return csr_array((share + share.T) / 2.0)


def glas_penalty(vectors: Tensor, shares: Tensor) -> Tensor:
    """|V V' - G|^2 / K^2 of K labels."""
    return (vectors @ vectors.T - shares).square().mean()


def smoothing_loss(scores: Tensor) -> Tensor:
    """The mean over labels of -log softmax(scores) of each row = logsumexp(scores) - mean(scores)."""
    return torch.logsumexp(scores, 1) - scores.mean(1)


def tail_grades(labels: BatchLabels, log_counts: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """2 for labels of a row whose log count is below their mean, 1 for its others; one per index."""
    row = np.repeat(np.arange(len(labels.offsets) - 1), np.diff(labels.offsets))
    own = log_counts[labels.indices]
    means = np.bincount(row, own, len(labels.offsets) - 1) / np.maximum(np.diff(labels.offsets), 1)
    return np.where(own < means[row] - 1e-9, 2.0, 1.0)  # equal counts are no tail, however their mean is rounded


@dataclass(frozen=True)
class Glas:
    strength: float
    shares: csr_array

    def __call__(self, batch: Batch) -> Tensor:
        used = np.unique(batch.rows.labels(batch.numbers).indices)
        vectors = batch.label_vectors(used).float()
        shares = torch.from_numpy(self.shares[used][:, used].toarray()).to(vectors)
        penalty = glas_penalty(vectors, shares) if len(used) else vectors.sum()
        return batch.plain_loss() + self.strength * batch.weights().sum() * penalty


@dataclass(frozen=True)
class Smoothing:
    strength: float

    def __call__(self, batch: Batch) -> Tensor:
        labels = batch.rows.labels(batch.numbers)
        hidden = batch.hidden(batch.rows.features(batch.numbers))
        sizes = torch.from_numpy(np.diff(labels.offsets)).to(batch.weights())
        smooth = (batch.weights() * sizes * smoothing_loss(batch.scores(hidden).float())).sum()
        return (1.0 - self.strength) * batch.loss(hidden, labels, batch.numbers) + self.strength * smooth


@dataclass(frozen=True)
class Mixup:
    strength: float

    def __call__(self, batch: Batch) -> Tensor:
        device = batch.generator.device
        seed = int(torch.randint(1 << 62, (1,), generator=batch.generator, device=device))
        rng = np.random.default_rng(seed)
        share = float(rng.beta(self.strength, self.strength))
        others = batch.numbers[rng.permutation(len(batch.numbers))]
        mixed = batch.rows.X[batch.numbers] * share + batch.rows.X[others] * (1.0 - share)
        hidden = batch.hidden(rows_on_device(mixed, batch.rows.device))
        own, other = (batch.loss(hidden, batch.rows.labels(numbers), numbers) for numbers in (batch.numbers, others))
        return share * own + (1.0 - share) * other


@dataclass(frozen=True)
class Tail:
    strength: float
    log_counts: npt.NDArray[np.float64]

    def __call__(self, batch: Batch) -> Tensor:
        labels = batch.rows.labels(batch.numbers)
        hidden = batch.hidden(batch.rows.features(batch.numbers))
        tiers = replace(labels, grades=tail_grades(labels, self.log_counts))
        one, two = (batch.loss(hidden, given, batch.numbers) for given in (labels, tiers))
        return (1.0 - self.strength) * one + self.strength * two


def make_regularizer(name: Any, strength: Any, Y: csr_array) -> Regularizer:
    """The regulariser of training rows with labels Y."""
    if name is None:
        raise ValueError(f"regularizer_strength must be None without a regularizer, got {strength!r}")
    check_choice("regularizer", name, (*STRENGTHS, None))
    strength = STRENGTHS[name] if strength is None else strength
    largest = 1.0 if name in ("smoothing", "tail") else np.inf
    is_number = isinstance(strength, int | float) and not isinstance(strength, bool)
    if not is_number or not 0.0 < strength <= largest or strength == np.inf:
        most = " and at most 1" if largest == 1.0 else ""
        raise ValueError(f"regularizer_strength of {name} must be a number above 0{most}, got {strength!r}")
    if name == "glas":
        return Glas(strength, shared_shares(Y))
    if name == "tail":
        return Tail(strength, np.log(np.bincount(Y.indices, minlength=Y.shape[1]) + 1.0))
    return Smoothing(strength) if name == "smoothing" else Mixup(strength)
