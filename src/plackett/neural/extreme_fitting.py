"""Fitting to rows with few of very many labels: settings by the size of the data, batches, the loss and the task.

`prepare_fit` does everything that comes before the training of the networks: it scales the features, fits the path
alongside the networks (`plackett.neural.ridge_paths`), and defines the task on which `plackett.neural.training` trains
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from plackett.arguments import check_choice, check_positive, check_range
from plackett.data.containers import has_grades, is_sparse, without_grades
from plackett.lists import IntArray
from plackett.losses.fused_layer import GatheredColumns
from plackett.losses.registry import Loss, check_form
from plackett.losses.sparse_columns import Shard
from plackett.metrics import inverse_propensity
from plackett.neural import ridge_paths
from plackett.neural.extreme_prediction import ExtremeMetric, evaluate_metrics
from plackett.neural.networks import ExtremeNetwork, FeatureScaling, Rows, RowScaling, rows_on_device
from plackett.neural.ridge_paths import KernelPath, LinearPath

if TYPE_CHECKING:
    from plackett.neural.regularizers import Regularizer

_PATHS = ("auto", "linear", "kernel")
_SCALING_CHOICES = ("auto", "norm", "sqrt", "tfidf", "standard", "none")
_SCORES_HELD = 1 << 24  # with more scores in a batch, the output layer and the loss are fused
_LARGE_LAYER = 1 << 18  # weights, beyond which products of matrices take most of the time


# Settings by the size of the data

_WIDE = 200_000  # features and labels, beyond which layers are narrower
_ROWS = 20_000  # beyond which there are fewer epochs


@dataclass(frozen=True)
class _Effort:
    """Hidden units, epochs and number of networks: without a path, with a linear one, with a kernel path."""

    alone: tuple[int, int, int]
    with_linear_path: tuple[int, int, int]
    with_kernel_path: tuple[int, int, int]
    rows_at_once: int
    """See `plackett.neural.ridge_paths.KernelRegression`."""
    largest_weight: float
    """Of the path beside the networks: many networks deserve more."""
    balance: float
    """See `plackett.neural.ridge_paths.PathLabels`: 0.8 for both precision and PSP, 0.6 for precision."""

    def networks(self, path: LinearPath | KernelPath | None) -> tuple[int, int, int]:
        if path is None:
            return self.alone
        return self.with_kernel_path if isinstance(path, KernelPath) else self.with_linear_path


EFFORTS = {
    "fast": _Effort((512, 6, 1), (512, 6, 1), (512, 6, 1), 8_192, 12.0, 0.8),
    "default": _Effort((1024, 20, 2), (1024, 15, 1), (512, 12, 1), 16_384, 12.0, 0.8),
    "best": _Effort((1024, 20, 5), (1024, 20, 5), (1024, 20, 5), 16_384, 8.0, 0.6),
}


def make_recipe(
    effort: Any, rows: int, features: int, labels: int, path: LinearPath | KernelPath | None = None
) -> dict[str, Any]:
    """hidden_sizes, epochs and ensemble.

    With a path alongside the networks, more epochs and networks gain little, and the default effort saves them.

    Weights and optimiser state take 12 bytes x units x (features + labels): units are halved until there are at most
    200,000 x 1,024 weights, but not below 128. Beyond 20,000 rows, epochs fall with the square root of the rows, to a
    quarter at most, since every epoch then has more steps.

    >>> make_recipe("default", 15_000, 5_000, 4_000)
    {'hidden_sizes': [1024], 'epochs': 20, 'ensemble': 2}
    >>> make_recipe("default", 15_000, 5_000, 4_000, LinearPath(5_000, 4_000))
    {'hidden_sizes': [1024], 'epochs': 15, 'ensemble': 1}
    >>> make_recipe("default", 200_000, 800_000, 200_000)
    {'hidden_sizes': [128], 'epochs': 6, 'ensemble': 2}
    """
    check_choice("effort", effort, tuple(EFFORTS))
    units, epochs, ensemble = EFFORTS[effort].networks(path)
    while units > 128 and units * (features + labels) > _WIDE * 1024:
        units //= 2
    share = max(0.25, min(1.0, (_ROWS / max(1, rows)) ** 0.5))
    return {"hidden_sizes": [units], "epochs": max(1, round(epochs * share)), "ensemble": ensemble}


def fastest_precision(device: torch.device, weights: int) -> str:
    """ "bfloat16" for a layer of this many weights on a processor with instructions for it, otherwise "float32".

    Only products of matrices are rounded: weights, their gradients' sums, the optimiser and the loss stay in float32.
    """
    kinds = [getattr(torch.cpu, f"_is_{name}_supported", None) for name in ("avx512_bf16", "amx_tile")]
    has_instructions, has_tiles = (None if kind is None else kind() for kind in kinds)  # older versions cannot tell
    # Where the processor has tiles (AMX), torch uses them, and some virtual machines do not allow that.
    is_fast = device.type == "cpu" and has_instructions and has_tiles is False
    return "bfloat16" if is_fast and weights >= _LARGE_LAYER else "float32"


# Rows


def batches_of_rows(rows: int, size: int, generator: np.random.Generator) -> list[IntArray]:
    """Rows in random order, in batches of `size`; the last may be smaller."""
    order = generator.permutation(rows)
    return [order[first : first + size] for first in range(0, rows, size)]


@dataclass(frozen=True)
class BatchLabels:
    """The labels of the rows of a batch."""

    indices: IntArray  # row after row
    offsets: IntArray
    grades: npt.NDArray[np.float64] | None  # one per index; None: all equal
    count: int  # all labels
    lowest: float  # the grade of labels that a row lacks, for losses of a table

    def table(self) -> npt.NDArray[np.float64]:
        """Grades of all labels, (rows, labels)."""
        grades = np.ones(len(self.indices)) if self.grades is None else self.grades
        full = np.full((len(self.offsets) - 1, self.count), self.lowest)
        full[np.repeat(np.arange(len(full)), np.diff(self.offsets)), self.indices] = grades
        return full


class LabelledRows:
    """Scaled features, labels and weights of rows.

    Args:
        X: CSR, or a tensor.
        Y: grades of the labels that rows have.
        weights: one per row.
        device: where batches go.
    """

    def __init__(self, X: Any, Y: csr_array, weights: npt.NDArray[np.float64], device: torch.device) -> None:
        self.X, self.Y, self.weights, self.device = X, Y, weights, device
        self._has_grades = has_grades(Y)
        self._lowest = min(0.0, float(Y.data.min()) - 1.0) if self._has_grades else 0.0

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def features(self, rows: IntArray | slice) -> Rows:
        """Features of some rows."""
        return rows_on_device(self.X[rows], self.device)

    def labels(self, rows: IntArray | slice) -> BatchLabels:
        """Labels of some rows."""
        chosen = self.Y[rows]
        grades = chosen.data.astype(np.float64) if self._has_grades else None
        indices, offsets = chosen.indices.astype(np.int64), chosen.indptr.astype(np.int64)
        return BatchLabels(indices, offsets, grades, self.Y.shape[1], self._lowest)


class LabelSampler:
    """Draws labels with replacement, in proportion to (count + 1) ** power."""

    def __init__(self, Y: csr_array, count: int, power: float, device: torch.device) -> None:
        frequency = (np.bincount(Y.indices, minlength=Y.shape[1]) + 1.0) ** power
        shares = frequency / frequency.sum()
        self._count = count
        self._cumulated = torch.from_numpy(np.cumsum(shares)).to(device)
        self._log_expected = torch.from_numpy(np.log(count * shares)).float().to(device)

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Columns, and for each the logarithm of its expected number in a sample."""
        points = torch.rand(self._count, generator=generator, device=self._cumulated.device, dtype=torch.float64)
        columns = torch.searchsorted(self._cumulated, points * self._cumulated[-1]).clamp_(max=len(self._cumulated) - 1)
        return columns, self._log_expected[columns]


# Loss and task


class ExtremeLoss:
    """The loss of a batch, in the form of the objective that suits it.

    sharded   the output layer has shards
    fused     labels are sampled, or the scores of a batch would take too much memory
    sparse    otherwise; if labels have grades, only if the form takes them
    dense     otherwise, through a table of rows x labels

    Args:
        loss, options: the objective.
        shift: added to the scores of each label; None: nothing.
        sampler: draws labels that stand for all those that a row lacks; None: use all labels.
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
        """First gather the columns that occur, so that the gradient holds no others."""
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


@dataclass
class ExtremeBatch:
    """A batch of an `ExtremeTask`: a `plackett.neural.regularizers.Batch`."""

    network: ExtremeNetwork
    rows: LabelledRows
    numbers: IntArray
    objective: ExtremeLoss
    generator: torch.Generator

    def plain_loss(self) -> Tensor:
        labels = self.rows.labels(self.numbers)
        return self.loss(self.hidden(self.rows.features(self.numbers)), labels, self.numbers)

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
        regularizer: Regularizer | None = None,
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
        given = ExtremeBatch(self.network, self._train, batch, self._loss, generator)
        total = given.plain_loss() if self._regularizer is None else self._regularizer(given)
        return total, float(self._train.weights[batch].sum())

    def evaluate(self) -> dict[str, float]:
        return {
            f"{name} {metric}": value
            for name, rows in self._evaluation.items()
            for metric, value in evaluate_metrics(self.network, rows, self._metrics, self._path).items()
        }


# Fitting


@dataclass(frozen=True)
class ExtremeSettings:
    """How to fit. `plackett.ExtremeClassifier` describes each setting under the same name."""

    objective: Loss
    objective_options: dict[str, Any] | None
    effort: str
    hidden_sizes: Sequence[int] | None
    scaling: str
    input_scale: float
    negatives: int | None
    negative_power: float
    label_shards: int
    propensity: float
    skip: Any
    balance: float | None
    regularizer: str | None
    regularizer_strength: float | None
    batch_size: int
    eval_metric: Sequence[str]
    precision: str
    compile: bool

    def __post_init__(self) -> None:
        """Check settings that depend on each other."""
        if self.negatives is not None:
            check_positive("negatives", self.negatives, ", or None")
            check_form("negatives", self.objective, "fused")
            self.check_hidden_layer("negatives")
        if check_positive("label_shards", self.label_shards) > 1:
            check_form("label_shards", self.objective, "sharded")
            self.check_hidden_layer("label_shards")
            if self.precision == "float16":  # each shard would scale its gradients differently
                raise ValueError("label_shards= requires precision float32 or bfloat16, got 'float16'")
        for name in ("negative_power", "propensity"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not np.isfinite(value):
                raise ValueError(f"{name} must be a number, got {value!r}")
        if self.balance is not None:
            check_range("balance", self.balance, 0.0, 10.0)
            if self.propensity != 0:
                raise ValueError(f"balance= requires propensity=0, got {self.propensity}")
        self.objective.check_options(self.objective_options, "sparse")
        check_positive("batch_size", self.batch_size)

    @property
    def is_linear(self) -> bool:
        return self.hidden_sizes is not None and not self.hidden_sizes

    def check_hidden_layer(self, argument: str) -> None:
        if self.is_linear:
            raise ValueError(f"{argument}= requires a hidden layer, got hidden_sizes=()")


def choose_scaling(scaling: str, X: Any) -> str:
    """The kind of feature scaling that suits the rows, if the user has not chosen one."""
    if scaling not in _SCALING_CHOICES:
        raise ValueError(f"scaling must be one of {', '.join(_SCALING_CHOICES)}, got {scaling!r}")
    if scaling == "standard" and is_sparse(X):
        raise ValueError("scaling='standard' needs dense X, because it would turn sparse X into dense; got sparse X")
    if scaling != "auto":
        return scaling
    if not is_sparse(X):
        return "standard"
    return "sqrt" if X.data.min(initial=0.0) >= 0.0 else "norm"


def make_scaling(kind: str, width: int, input_scale: float) -> FeatureScaling | RowScaling:
    if not isinstance(input_scale, int | float) or not input_scale > 0:
        raise ValueError(f"input_scale must be a number above 0, got {input_scale!r}")
    return FeatureScaling(width) if kind == "standard" else RowScaling(width, kind, float(input_scale))


def _fit_scaling(settings: ExtremeSettings, X: Any) -> FeatureScaling | RowScaling:
    scaling = make_scaling(choose_scaling(settings.scaling, X), X.shape[1], settings.input_scale)
    if isinstance(scaling, FeatureScaling):
        return scaling.fit(X)
    return scaling.fit(X if is_sparse(X) else csr_array(X))


def scaled_rows(scaling: FeatureScaling | RowScaling, X: Any) -> Any:
    """Scaled rows as CSR; as a tensor with scaling "standard"."""
    if isinstance(scaling, FeatureScaling):
        return scaling.apply_to(X.toarray() if is_sparse(X) else X)
    return scaling.apply_to(X if is_sparse(X) else csr_array(X))


def _make_regularizer(settings: ExtremeSettings, labels: csr_array) -> Regularizer | None:
    name, loss = settings.regularizer, settings.objective
    if name is None and settings.regularizer_strength is None:
        return None
    from plackett.neural.regularizers import make_regularizer

    made = make_regularizer(name, settings.regularizer_strength, labels)
    is_whole = settings.negatives is None and settings.label_shards == 1
    if name in ("glas", "smoothing") and not is_whole:
        raise ValueError(f"regularizer={name!r} requires all labels at once: negatives=None and label_shards=1")
    if name == "glas":
        settings.check_hidden_layer("regularizer")
    if name == "tail" and (not loss.takes_grades or has_grades(labels)):
        raise ValueError(
            "regularizer='tail' requires labels without grades and objective partition or lower_bound, got "
            f"{loss.name!r}"
        )
    return made


def _has_path(settings: ExtremeSettings, X: Any, labels: csr_array) -> bool:
    """Whether a path alongside the networks is wanted, and possible."""
    skip = settings.skip
    is_number = isinstance(skip, int | float) and not isinstance(skip, bool)
    if not (skip is None or skip in _PATHS or (is_number and np.isfinite(skip) and skip > 0)):
        raise ValueError(f"skip must be 'auto', 'linear', 'kernel', a number above 0, or None, got {skip!r}")
    if skip is None:
        return False
    rows, features = X.shape
    count = labels.shape[1]
    entries = X.nnz if is_sparse(X) else rows * features
    is_small = {
        "linear": ridge_paths.linear_path_fits(rows, features, count, entries),
        "kernel": ridge_paths.kernel_path_fits(rows, features, count),
    }
    kind = "kernel" if skip == "kernel" or (skip == "auto" and is_small["kernel"]) else "linear"
    size = f"{rows:,} rows, {features:,} features, {entries:,} entries and {count:,} labels"
    obstacles = {
        "features that are scaled, got scaling='none'": choose_scaling(settings.scaling, X) == "none",
        "at least 3 rows": rows < 3,
        "labels without grades": has_grades(labels),
        "a hidden layer, got hidden_sizes=()": settings.is_linear,
        f"{ridge_paths.LIMITS[kind]}, got {size}": not is_small[kind],
    }
    found = [text for text, holds in obstacles.items() if holds]
    if found and skip != "auto":
        raise ValueError(f"skip={skip!r} requires {found[0]}; set skip=None")
    return not found and (skip != "auto" or settings.objective.name in ("partition", "lower_bound"))


def _log_propensities(
    propensity: float, inverse: npt.NDArray[np.float64] | None, shard: Shard, device: torch.device
) -> Tensor | None:
    """`propensity` times the log propensity of each label of the shard; None: no correction."""
    if inverse is None or propensity == 0:
        return None
    logarithms = -float(propensity) * np.log(inverse[shard.first : shard.last])
    return torch.from_numpy(logarithms).float().to(device)


@dataclass(frozen=True)
class PreparedFit:
    """Everything that is fitted before the networks, and the task on which each of them is trained."""

    recipe: dict[str, Any]
    scaling: FeatureScaling | RowScaling
    path: LinearPath | KernelPath | None
    make_task: Callable[[ExtremeNetwork], ExtremeTask]


def prepare_fit(
    settings: ExtremeSettings,
    X: Any,
    labels: csr_array,
    weights: npt.NDArray[np.float64],
    evaluation: Mapping[str, tuple[Any, csr_array]],
    shard: Shard,
    device: torch.device,
) -> PreparedFit:
    """Choose settings by the size of the data, scale the features, fit the path, and define the task of the networks.

    Args:
        X, labels, weights: training rows.
        evaluation: rows and labels of the validation sets, by name.
        shard: the labels that this process holds.
    """
    check_choice("effort", settings.effort, tuple(EFFORTS))
    has_path = _has_path(settings, X, labels)
    if settings.balance is not None and not has_path:
        raise ValueError(f"balance= requires a path alongside the networks, and skip={settings.skip!r} makes none here")
    regularizer = _make_regularizer(settings, labels)
    scaling = _fit_scaling(settings, X)
    needs_propensity = (
        has_path or settings.propensity != 0 or any(name.startswith("ps") for name in settings.eval_metric)
    )
    inverse = inverse_propensity(without_grades(labels)) if needs_propensity else None
    loss = ExtremeLoss(
        settings.objective,
        settings.objective_options or {},
        _log_propensities(settings.propensity, inverse, shard, device),
        None
        if settings.negatives is None
        else LabelSampler(labels, settings.negatives, settings.negative_power, device),
    )
    train = LabelledRows(scaled_rows(scaling, X), labels, weights, device)
    path = None
    if has_path and inverse is not None:
        is_weight = not isinstance(settings.skip, str)
        balance = EFFORTS[settings.effort].balance if settings.balance is None else float(settings.balance)
        path = ridge_paths.fit_path(
            train.X,
            ridge_paths.PathLabels(labels, inverse, float(settings.propensity), balance),
            weights,
            "linear" if is_weight else settings.skip,
            weight=float(settings.skip) if is_weight else None,
            shard=shard,
            rows_at_once=EFFORTS[settings.effort].rows_at_once,
            largest_weight=EFFORTS[settings.effort].largest_weight,
        ).to(device)
    recipe = make_recipe(settings.effort, X.shape[0], X.shape[1], labels.shape[1], path)
    validation = {
        name: LabelledRows(scaled_rows(scaling, x), y, np.ones(y.shape[0]), device)
        for name, (x, y) in evaluation.items()
    }
    make_task = partial(
        ExtremeTask,
        train=train,
        evaluation=validation,
        loss=loss,
        batch_size=settings.batch_size,
        metrics={name: ExtremeMetric(name, inverse) for name in settings.eval_metric} if validation else {},
        compiled=settings.compile,
        path=path,
        regularizer=regularizer,
    )
    return PreparedFit(recipe, scaling, path, make_task)
