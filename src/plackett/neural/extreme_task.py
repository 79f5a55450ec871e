"""Training a network for very many labels: its loss, its batches, its validation metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from plackett.data.containers import without_grades
from plackett.lists import IntArray
from plackett.losses.fused_layer import GatheredColumns
from plackett.losses.registry import Loss
from plackett.metrics import MULTILABEL_METRICS, get_metric
from plackett.neural.extreme_data import (
    BatchLabels,
    LabelledRows,
    LabelSampler,
    batches_of_rows,
    row_slices,
)
from plackett.neural.networks import ExtremeNetwork, gather_scores
from plackett.neural.regularizers import Regularizer, plain
from plackett.neural.ridge_paths import KernelPath, LinearPath
from plackett.neural.top_labels import top_columns

_SCORES_HELD = 1 << 24  # with more scores in a batch, the output layer and the loss are fused


class ExtremeLoss:
    """The loss of a batch, in the form of the objective that suits it.

    sharded   the output layer has shards
    fused     labels are sampled, or the scores of a batch would take too much memory
    sparse    otherwise; if labels have grades, only if the form takes them
    dense     otherwise, through a table of rows x labels

    Args:
        loss, options: the objective.
        shift: added to the scores of each label; None: nothing.
        sampler: draws the labels that stand for all that rows do not have; None: use all labels.
    """

    def __init__(
        self, loss: Loss, options: Mapping[str, Any], shift: Tensor | None = None, sampler: LabelSampler | None = None
    ) -> None:
        self._loss, self._options, self._shift, self._sampler = loss, options, shift, sampler

    def __call__(
        self, network: ExtremeNetwork, hidden: Tensor, labels: BatchLabels, weights: Tensor, generator: torch.Generator
    ) -> Tensor:
        """The sum of weight * loss, from the input of the output layer."""
        common = {"weights": weights, "reduction": "sum", **self._options}
        if self._sampler is not None:
            return self._sampled(network, hidden, labels, self._sampler.draw(generator), common)
        if network.shard.count > 1:
            return self._sharded(network, hidden, labels, common)
        is_large = hidden.shape[0] * labels.count > _SCORES_HELD
        if network.output is not None and self._loss.fused is not None and is_large:
            return self._fused(network, hidden, labels, common)
        scores = self.scores(network, hidden)
        if self._loss.sparse is not None and (labels.grades is None or self._loss.takes_grades):
            return self._form("sparse")(scores, labels.indices, labels.offsets, **self._grades(labels), **common)
        return self._dense(scores, labels, generator, common)

    def scores(self, network: ExtremeNetwork, hidden: Tensor) -> Tensor:
        """The scores that the loss sees."""
        return self._shifted(hidden if network.output is None else network.output(hidden)).float()

    def _form(self, form: str) -> Callable[..., Tensor]:
        function = self._loss.form(form)
        if function is None:
            raise ValueError(f"the objective {self._loss.name!r} has no {form} form")
        return function

    def _grades(self, labels: BatchLabels) -> dict[str, Any]:
        """The argument for grades, of a form that takes them."""
        if self._loss.takes_grades:
            return {"labels": labels.grades}
        if labels.grades is not None:
            raise ValueError(f"Y must not carry different grades for the objective {self._loss.name!r}")
        return {}

    def _shifted(self, scores: Tensor) -> Tensor:
        return scores if self._shift is None else scores + self._shift

    def _weight_and_bias(self, network: ExtremeNetwork, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        output: Any = network.output
        return output.weight.to(dtype), self._shifted(output.bias).to(dtype)

    def _fused(self, network: ExtremeNetwork, hidden: Tensor, labels: BatchLabels, common: Mapping[str, Any]) -> Tensor:
        layer = hidden, *self._weight_and_bias(network, hidden.dtype)
        return self._form("fused")(*layer, labels.indices, labels.offsets, **self._grades(labels), **common)

    def _sharded(
        self, network: ExtremeNetwork, hidden: Tensor, labels: BatchLabels, common: Mapping[str, Any]
    ) -> Tensor:
        layer = hidden, *self._weight_and_bias(network, hidden.dtype)
        columns = labels.indices, labels.offsets, network.shard
        return self._form("sharded")(*layer, *columns, **self._grades(labels), **common)

    def _dense(
        self, scores: Tensor, labels: BatchLabels, generator: torch.Generator, common: Mapping[str, Any]
    ) -> Tensor:
        if self._loss.dense is None:
            raise ValueError(f"Y must not carry different grades for the objective {self._loss.name!r}")
        dtype = torch.float32 if scores.device.type == "mps" else torch.float64
        table = torch.as_tensor(labels.table(), device=scores.device, dtype=dtype)
        random = {"generator": generator} if self._loss.random else {}
        return self._form("dense")(scores, table, **random, **common)

    def _sampled(
        self,
        network: ExtremeNetwork,
        hidden: Tensor,
        labels: BatchLabels,
        negatives: tuple[Tensor, Tensor],
        common: Mapping[str, Any],
    ) -> Tensor:
        """Gather the columns that occur first, so that the gradient holds no others."""
        shard, output = network.shard, network.output
        positives = torch.from_numpy(labels.indices).to(negatives[0].device)
        used = torch.unique(torch.cat([positives, negatives[0]]))
        used = used[(used >= shard.first) & (used < shard.last)]
        weight = torch.nn.functional.embedding(used - shard.first, output.weight, sparse=True)  # type: ignore[union-attr]
        bias = self._shifted(output.bias)[used - shard.first]  # type: ignore[union-attr]
        layer, columns = (hidden.float(), weight, bias), used.cpu().numpy()
        arguments = {"negatives": negatives, **self._grades(labels), **common}
        if shard.count > 1:
            return self._form("sharded")(*layer, labels.indices, labels.offsets, shard, held=columns, **arguments)
        gathered = GatheredColumns(columns, labels.count)
        return self._form("fused")(*layer, labels.indices, labels.offsets, gathered=gathered, **arguments)


class ExtremeMetric:
    """A metric of a network by name: of the best labels of each row, or of the ranking of all labels."""

    def __init__(self, name: str, inverse_propensity: npt.NDArray[np.float64] | None) -> None:
        base, _, cutoff = name.partition("@")
        self.is_multilabel = base in MULTILABEL_METRICS
        needed = {"inverse_propensity": inverse_propensity} if base.startswith("ps") else {}
        self._function: Callable[..., Any] = get_metric(name, multilabel=self.is_multilabel, **needed)
        self.k = int(cutoff) if cutoff else 5

    def of_best_labels(self, best: npt.NDArray[np.int64], rows: LabelledRows) -> float:
        """The value from at least k best labels of each row, or all labels if there are fewer."""
        missing = max(self.k - best.shape[1], 0)
        labels = np.pad(best[:, : self.k], ((0, 0), (0, missing)), constant_values=-1)  # -1: no more labels
        return float(self._function(labels, without_grades(rows.Y)))

    def of_rows(self, scores: npt.NDArray[np.float32], labels: Any) -> npt.NDArray[np.float64]:
        """The value of each row of a block, from the scores of all labels; NaN where it is not defined."""
        return np.asarray(self._function(scores, labels, reduction="none"))


@torch.no_grad()
def evaluate_metrics(
    network: ExtremeNetwork,
    rows: LabelledRows,
    metrics: Mapping[str, ExtremeMetric],
    path: LinearPath | KernelPath | None = None,
) -> dict[str, float]:
    """All metrics from one pass of the rows through the network, and through the path if there is one."""
    deepest = max((metric.k for metric in metrics.values() if metric.is_multilabel), default=0)
    rankings = {name: metric for name, metric in metrics.items() if not metric.is_multilabel}
    best, values = [], dict[str, list[npt.NDArray[np.float64]]]({name: [] for name in rankings})
    for block in row_slices(len(rows)):
        features = rows.features(block)
        hidden, extra = network(features), None if path is None else path(features)
        if deepest:
            operands = network.operands_of(hidden)
            found, _ = top_columns([operands], min(deepest, rows.Y.shape[1]), network.shard, extra)
            best.append(found.cpu().numpy())
        if rankings:
            scores, labels = network.scores_of(hidden), rows.labels(block).table()
            if extra is not None:
                scores = scores + gather_scores(extra, network.shard)
            table = scores.float().cpu().numpy()
            for name, metric in rankings.items():
                values[name].append(metric.of_rows(table, labels))
    return {
        name: metric.of_best_labels(np.concatenate(best), rows)
        if metric.is_multilabel
        else _mean_of_known(np.concatenate(values[name]))
        for name, metric in metrics.items()
    }


def _mean_of_known(values: npt.NDArray[np.float64]) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")


@dataclass
class ExtremeBatch:
    """A batch of an `ExtremeTask`: a `plackett.neural.regularizers.Batch`."""

    network: ExtremeNetwork
    rows: LabelledRows
    numbers: IntArray
    objective: ExtremeLoss
    generator: torch.Generator

    def hidden(self, features: Any) -> Tensor:
        hidden: Tensor = self.network(features)
        return hidden

    def loss(self, hidden: Tensor, labels: BatchLabels, numbers: IntArray) -> Tensor:
        total = hidden.sum()
        if not bool(torch.isfinite(total)):
            return total  # the training loop raises the error
        return self.objective(self.network, hidden, labels, self._weights(numbers), self.generator)

    def scores(self, hidden: Tensor) -> Tensor:
        return self.objective.scores(self.network, hidden)

    def label_vectors(self, labels: IntArray) -> Tensor:
        output: Any = self.network.output
        vectors: Tensor = output.weight[torch.from_numpy(labels).to(output.weight.device)]
        return vectors

    def weights(self) -> Tensor:
        return self._weights(self.numbers)

    def _weights(self, numbers: IntArray) -> Tensor:
        return torch.as_tensor(self.rows.weights[numbers], dtype=torch.float32, device=self.rows.device)


class ExtremeTask:
    """An `ExtremeNetwork` in training: a `plackett.neural.Task`."""

    def __init__(
        self,
        network: ExtremeNetwork,
        train: LabelledRows,
        evaluation: Mapping[str, LabelledRows],
        loss: ExtremeLoss,
        batch_size: int,
        metrics: Mapping[str, ExtremeMetric],
        compiled: bool,
        path: LinearPath | KernelPath | None = None,
        regularizer: Regularizer = plain,
    ) -> None:
        self._regularizer = regularizer
        self.network, self._train, self._evaluation, self._path = network, train, evaluation, path
        if compiled:  # in place, so that weights keep their names; the compiler cannot see into the sparse first layer
            network.rest.compile(dynamic=True)
        self._loss, self._batch_size, self._metrics = loss, batch_size, metrics

    def batches(self, generator: np.random.Generator) -> list[IntArray]:
        return batches_of_rows(len(self._train), self._batch_size, generator)

    def sizes(self, batch: IntArray) -> IntArray:
        return np.ones(len(batch), np.int64)

    def loss(self, batch: IntArray, generator: torch.Generator) -> tuple[Tensor, float]:
        total = self._regularizer(ExtremeBatch(self.network, self._train, batch, self._loss, generator))
        return total, float(self._train.weights[batch].sum())

    def evaluate(self) -> dict[str, float]:
        return {
            f"{name} {metric}": value
            for name, rows in self._evaluation.items()
            for metric, value in evaluate_metrics(self.network, rows, self._metrics, self._path).items()
        }
