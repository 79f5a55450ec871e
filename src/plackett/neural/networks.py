"""The torch modules of a neural model: feature scaling, hidden layers, networks for lists, networks for labels.

Feature scaling is a module because it is fitted on training data, and saved and exported with the network. It computes
in double precision, because features of ranking data can be large and nearly constant, and returns single precision.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import issparse
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from plackett.arguments import check_kind, check_positive
from plackett.losses.sparse_columns import Shard
from plackett.neural.weights import set_weights

# Feature scaling

SCALINGS = ("none", "standard", "log1p", "quantile")
ROW_SCALINGS = ("norm", "sqrt", "tfidf", "none")
MISSING = ("mean", "indicator", "error")
_KNOTS = 65
_NUMBERS_SCALED_AT_ONCE = 1 << 20


class FeatureScaling(nn.Module):
    """Scaling of feature columns.

    Args:
        scaling: "standard": zero mean and unit variance; "log1p": sign(x) log(1 + |x|), then standard; "quantile": the
            rank among the training values, from -1 to 1, interpolated; "none": unchanged.
        missing: treatment of NaN. "mean": replace it with the mean of the scaled training values; "indicator": the
            same, and add an indicator column for every feature with missing values in training; "error": refuse it.
    """

    def __init__(self, n_features: int, scaling: str = "standard", missing: str = "mean") -> None:
        super().__init__()
        if scaling not in SCALINGS:
            raise ValueError(f"scaling must be one of {', '.join(SCALINGS)}, got {scaling!r}")
        if missing not in MISSING:
            raise ValueError(f"missing must be one of {', '.join(MISSING)}, got {missing!r}")
        self.scaling, self.missing, self.n_features = scaling, missing, n_features
        zeros = torch.zeros(n_features, dtype=torch.float64)
        self.register_buffer("shift", zeros.clone())
        self.register_buffer("scale", zeros.clone() + 1.0)
        self.register_buffer("filling", zeros.clone())
        self.register_buffer("indicated", torch.zeros(0, dtype=torch.int64))
        knots = _KNOTS - 1 if scaling == "quantile" else 0
        self.register_buffer("knots", torch.zeros(knots, n_features, dtype=torch.float64))
        self.register_buffer("widths", torch.ones(knots, n_features, dtype=torch.float64))
        self.register_buffer("rises", torch.zeros(knots, n_features, dtype=torch.float64))

    shift: Tensor
    scale: Tensor
    filling: Tensor
    indicated: Tensor
    knots: Tensor
    widths: Tensor
    rises: Tensor

    @property
    def width(self) -> int:
        """The number of columns after scaling."""
        return self.n_features + len(self.indicated)

    def fit(self, X: npt.NDArray[Any]) -> FeatureScaling:
        """Fit to training rows."""
        self._check_missing(X)
        is_missing = np.isnan(X)
        if self.missing == "indicator":
            self.indicated = torch.from_numpy(np.flatnonzero(is_missing.any(0)).astype(np.int64))
        if self.scaling == "quantile":
            self._fit_quantiles(X)
        elif self.scaling != "none":
            with np.errstate(over="ignore"):
                values = _compress(np.asarray(X, np.float64)) if self.scaling == "log1p" else np.asarray(X, np.float64)
            known = np.where(is_missing, 0.0, values)
            count = np.maximum(len(X) - is_missing.sum(0), 1)
            # Divide by the largest value first, so that squares of huge features do not overflow.
            unit = np.maximum(np.abs(known).max(0, initial=0.0), np.finfo(np.float64).tiny)
            mean = (known / unit).sum(0) / count
            spread = np.sqrt((np.where(is_missing, 0.0, known / unit - mean) ** 2).sum(0) / count)
            constant = spread <= 1e-12  # relative to the largest value: rounding only
            self.shift = torch.from_numpy(mean * unit)
            self.scale = torch.from_numpy(np.where(constant, 1.0, spread * unit))
        with torch.no_grad():
            self.filling.zero_()
            total, seen = torch.zeros(self.n_features, dtype=torch.float64), torch.zeros(self.n_features)
            for rows in self._blocks(X):
                block = self._scaled(torch.from_numpy(np.array(X[rows], np.float64)))
                total, seen = total + torch.nansum(block, 0), seen + (~torch.isnan(block)).sum(0)
            self.filling = total / torch.clamp(seen, min=1)
        self.check()
        return self

    def check(self) -> None:
        """Raise an error if the fitted values cannot scale features."""
        for name, values in self.named_buffers():
            if not bool(torch.isfinite(values).all()):
                raise ValueError(f"{name} of the features must be finite: they are too large to be scaled")
        if not bool((self.scale > 0).all() and (self.widths > 0).all()):
            raise ValueError("scale and widths of the features must be above 0")
        if not bool(((self.rises >= 0) & (self.rises <= 2)).all()):  # places are from -1 to 1
            raise ValueError("rises of the features must be from 0 to 2")

    def restore(self, state: dict[str, Tensor]) -> FeatureScaling:
        """Load the `state_dict` of another scaling, whose number of indicator columns may differ."""
        indicated = state["indicated"]
        if indicated.ndim != 1 or indicated.dtype != torch.int64:
            raise ValueError(f"indicated must be a row of whole numbers, got {indicated.dtype} of {indicated.shape}")
        columns = torch.cat([torch.tensor([-1]), indicated, torch.tensor([self.n_features])])
        if not bool((torch.diff(columns) > 0).all()):
            raise ValueError(f"indicated must hold columns from 0 to {self.n_features - 1}, ascending")
        self.indicated = torch.zeros_like(indicated)
        set_weights(self, state)
        self.check()
        return self

    def _fit_quantiles(self, X: npt.NDArray[Any]) -> None:
        """Fit a piecewise linear map from values to their ranks; tied values get their mean rank."""
        levels = np.linspace(0.0, 1.0, _KNOTS)
        for column in range(self.n_features):
            values = np.sort(X[:, column][~np.isnan(X[:, column])].astype(np.float64))
            if values.size == 0:
                continue
            chosen = np.unique(np.quantile(values, levels, method="nearest"))
            left, right = np.searchsorted(values, chosen, "left"), np.searchsorted(values, chosen, "right") - 1
            places = (left + right) / max(1, len(values) - 1) - 1.0  # from -1 to 1
            steps = len(chosen) - 1
            self.shift[column] = places[0]
            self.knots[:, column] = chosen[-1]
            self.knots[:steps, column] = torch.from_numpy(chosen[:-1])
            self.widths[:steps, column] = torch.from_numpy(np.diff(chosen))
            self.rises[:steps, column] = torch.from_numpy(np.diff(places))

    def _scaled(self, x: Tensor) -> Tensor:
        if self.scaling == "quantile":
            parts = torch.clamp((x[:, None, :] - self.knots) / self.widths, 0.0, 1.0)
            return self.shift + (parts * self.rises).sum(1)
        if self.scaling == "log1p":
            x = torch.sign(x) * torch.log1p(torch.abs(x))
        return (x - self.shift) / self.scale

    def forward(self, x: Tensor) -> Tensor:
        is_missing = torch.isnan(x)
        scaled = torch.where(is_missing, self.filling, self._scaled(x.to(torch.float64)))
        if len(self.indicated):
            scaled = torch.cat([scaled, is_missing[:, self.indicated].to(torch.float64)], 1)
        return scaled.to(torch.float32)

    @torch.no_grad()
    def apply_to(self, X: npt.NDArray[Any]) -> Tensor:
        """Scale all rows, block by block."""
        self._check_missing(X)
        device = self.shift.device

        def scaled(block: npt.NDArray[Any]) -> Tensor:
            copied = np.array(block, np.float64)  # torch warns about read-only arrays
            return cast("Tensor", self(torch.from_numpy(copied).to(device)).cpu())

        blocks = list(self._blocks(X))
        if len(blocks) == 1:
            return scaled(X)
        out = torch.empty((len(X), self.width), dtype=torch.float32)
        for rows in blocks:
            out[rows] = scaled(X[rows])
        return out

    def _blocks(self, X: npt.NDArray[Any]) -> Iterator[slice]:
        """Blocks of rows, small enough for a table of rows x features x knots."""
        size = max(1, _NUMBERS_SCALED_AT_ONCE // max(1, self.n_features * max(1, len(self.knots))))
        return (slice(first, first + size) for first in range(0, len(X), size))

    def _check_missing(self, X: npt.NDArray[Any]) -> None:
        if self.missing == "error" and np.isnan(X).any():
            column = int(np.argmax(np.isnan(X).any(0)))
            raise ValueError(f"X must hold no NaN with missing='error', got some in column {column}")


def _compress(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    compressed: npt.NDArray[np.float64] = np.sign(values) * np.log1p(np.abs(values))
    return compressed


class RowScaling(nn.Module):
    """Scaling of sparse rows.

    Args:
        scaling: "norm": every row has the norm `scale`; "sqrt": the same after taking square roots of the values, with
            their signs, so that a few large values do not outweigh the others; "tfidf": the same after weighting each
            column by log((1 + n) / (1 + n_j)) + 1, where n_j of the n training rows have the column; "none": unchanged.
    """

    def __init__(self, n_features: int, scaling: str = "norm", scale: float = 1.0) -> None:
        super().__init__()
        if scaling not in ROW_SCALINGS:
            raise ValueError(f"scaling must be one of {', '.join(ROW_SCALINGS)}, got {scaling!r}")
        self.scaling, self.scale, self.n_features = scaling, scale, n_features
        self.register_buffer("column_weights", torch.ones(n_features, dtype=torch.float64))

    column_weights: Tensor

    def restore(self, state: dict[str, Tensor]) -> RowScaling:
        """Load the `state_dict` of another scaling."""
        set_weights(self, state)
        if not bool((torch.isfinite(self.column_weights) & (self.column_weights > 0)).all()):
            raise ValueError("column_weights must be finite and above 0")
        return self

    def fit(self, X: Any) -> RowScaling:
        if self.scaling == "tfidf":
            rows = np.bincount(X.indices[X.data != 0], minlength=self.n_features)
            self.column_weights = torch.from_numpy(np.log((1.0 + X.shape[0]) / (1.0 + rows)) + 1.0)
        return self

    def apply_to(self, X: Any) -> Any:
        """Scale CSR rows; the result is CSR in single precision."""
        data = X.data.astype(np.float64)
        if self.scaling == "sqrt":
            data = np.sign(data) * np.sqrt(np.abs(data))
        elif self.scaling == "tfidf":
            data *= self.column_weights.cpu().numpy()[X.indices]
        if self.scaling != "none":
            starts = X.indptr.astype(np.int64)
            largest = np.ones(X.shape[0])
            filled = np.diff(starts) > 0
            largest[filled] = np.maximum.reduceat(np.abs(data), starts[:-1][filled])  # squares could overflow
            largest[largest == 0.0] = 1.0
            data /= np.repeat(largest, np.diff(starts))
            norms = np.sqrt(np.bincount(np.repeat(np.arange(X.shape[0]), np.diff(starts)), data**2, X.shape[0]))
            norms[norms == 0.0] = 1.0
            data *= np.repeat(self.scale / norms, np.diff(starts))
        return type(X)((data.astype(np.float32), X.indices, X.indptr), shape=X.shape)

    def forward(self, x: Tensor) -> Tensor:
        """Scale dense rows, for export."""
        x = x.to(torch.float64) * self.column_weights
        if self.scaling == "sqrt":
            x = torch.sign(x) * torch.sqrt(torch.abs(x))
        if self.scaling != "none":
            norms = torch.linalg.vector_norm(x, dim=1, keepdim=True)
            x = x * (self.scale / torch.where(norms > 0, norms, 1.0))
        return x.to(torch.float32)


# Hidden layers

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU, "tanh": nn.Tanh, "elu": nn.ELU,
}  # fmt: skip


class Dropout(nn.Dropout):
    """As torch's, but on the CPU with the share rounded to 1/65,536: four numbers come from 64 random bits.

    There torch draws one number at a time, which takes as long as the product of the next layer.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0 or x.device.type != "cpu" or torch.compiler.is_compiling():
            return super().forward(x)
        dropped = min(round(self.p * 65536), 65535)  # of 65,536
        drawn = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(1 << 63), None)
        kept = drawn.view(torch.int16)[: x.numel()].view(x.shape) >= dropped - 32768
        return x * kept.to(x.dtype).mul_(65536 / (65536 - dropped))


class _Block(nn.Module):
    """A hidden layer; with `residual` its input is added if the sizes agree."""

    def __init__(
        self, width: int, size: int, activation: str, dropout: float, layer_norm: bool, residual: bool
    ) -> None:
        super().__init__()
        self.linear = nn.Linear(width, size)
        self.norm = nn.LayerNorm(size) if layer_norm else nn.Identity()
        self.activation = ACTIVATIONS[activation]()
        self.dropout = Dropout(dropout)
        self.is_residual = residual and width == size

    def forward(self, x: Tensor) -> Tensor:
        out = self.dropout(self.activation(self.norm(self.linear(x))))
        return x + out if self.is_residual else out


def check_dropout(name: str, value: Any) -> float:
    """A dropout rate, from 0 to less than 1."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0.0 <= value < 1.0:
        raise ValueError(f"{name} must be a number from 0 to less than 1, got {value!r}")
    return float(value)


def check_sizes(sizes: Any) -> list[int]:
    """The sizes of hidden layers, checked."""
    if isinstance(sizes, str) or not hasattr(sizes, "__iter__"):
        raise ValueError(f"hidden_sizes must be a sequence of whole numbers, got {sizes!r}")
    return [check_positive("hidden_sizes", size) for size in sizes]


def make_hidden(
    width: int,
    sizes: Sequence[int],
    activation: str = "relu",
    dropout: float = 0.0,
    layer_norm: bool = False,
    residual: bool = False,
) -> nn.Sequential:
    """Hidden layers of these sizes."""
    check_kind("activation", activation, str)
    if activation not in ACTIVATIONS:
        raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
    check_dropout("dropout", dropout)
    layers = []
    for size in check_sizes(sizes):
        layers.append(_Block(width, size, activation, dropout, layer_norm, residual))
        width = size
    return nn.Sequential(*layers)


# Networks for lists


class ListAttention(nn.Module):
    """Self-attention between the items of a list, without positions: the order of rows does not matter.

    Lists are padded together with lists of similar length, up to twice as long.
    """

    def __init__(self, width: int, heads: int, layers: int, dropout: float) -> None:
        super().__init__()
        if width % check_positive("attention_heads", heads):
            raise ValueError(f"attention_heads must divide the last hidden size, {width}, got {heads}")
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, dropout, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, x: Tensor, offsets: Tensor | None) -> Tensor:
        if offsets is None:  # one list
            return self.encoder(x[None])[0]
        sizes = torch.diff(offsets)
        bucket = torch.ceil(torch.log2(sizes.clamp(min=1)))
        item_bucket = torch.repeat_interleave(bucket, sizes)
        out = torch.empty_like(x)
        for number in torch.unique(item_bucket):
            rows, lengths = item_bucket == number, sizes[bucket == number]
            inside = torch.arange(int(lengths.max()), device=x.device) < lengths[:, None]  # (lists, longest)
            padded = x.new_zeros((*inside.shape, x.shape[1]))
            padded[inside] = x[rows]
            # A list without items would attend to nothing and yield NaN, so it attends to its padding.
            hidden = ~inside & (lengths > 0)[:, None]
            out[rows] = self.encoder(padded, src_key_padding_mask=hidden)[inside].to(out.dtype)
        return out


class RankingNetwork(nn.Module):
    """Scores of items: hidden layers, optional attention over the list, a linear output.

    Without `offsets` all rows are one list.
    """

    def __init__(
        self,
        width: int,
        sizes: Sequence[int],
        *,
        activation: str = "relu",
        dropout: float = 0.0,
        layer_norm: bool = False,
        residual: bool = False,
        heads: int = 4,
        layers: int = 0,
    ) -> None:
        super().__init__()
        self.hidden = make_hidden(width, sizes, activation, dropout, layer_norm, residual)
        size = sizes[-1] if len(sizes) else width
        if layers != 0:
            check_positive("attention_layers", layers, ", or 0")
        self.attention = ListAttention(size, heads, layers, dropout) if layers else None
        self.output = nn.Linear(size, 1)

    @property
    def sees_lists(self) -> bool:
        """Whether the score of an item depends on the other items of its list."""
        return self.attention is not None

    def forward(self, x: Tensor, offsets: Tensor | None) -> Tensor:
        x = self.hidden(x)
        if self.attention is not None:
            x = self.attention(x, offsets)
        return self.output(x).squeeze(1)


class OwnNetwork(nn.Module):
    """The user's own module, called with the items (rows, features), and with offsets if it takes them."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        if not isinstance(module, nn.Module):
            raise ValueError(
                f"network must be a torch module, or a function that makes one, got {type(module).__name__}"
            )
        self.module = module
        self.sees_lists = "offsets" in inspect.signature(module.forward).parameters

    def forward(self, x: Tensor, offsets: Tensor | None) -> Tensor:
        scores = self.module(x, offsets=offsets) if self.sees_lists else self.module(x)
        if scores.shape not in ((len(x),), (len(x), 1)):
            raise ValueError(f"network must give one score per row, ({len(x)},), got {tuple(scores.shape)}")
        return scores.reshape(len(x))


def own_network(network: Any, width: int) -> OwnNetwork:
    """A copy of the user's module, or the module that the user's function makes for `width` features."""
    is_made = isinstance(network, nn.Module) or not callable(network)
    return OwnNetwork(copy.deepcopy(network) if is_made else network(width))


# Networks for very many labels

_NUMBERS_DRAWN_AT_ONCE = 1 << 22


class SparseRows:
    """Rows of a CSR matrix as tensors."""

    def __init__(self, matrix: Any, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        self.shape = matrix.shape
        self._matrix = matrix
        self.columns = torch.from_numpy(matrix.indices.astype(np.int64)).to(device)
        self.offsets = torch.from_numpy(matrix.indptr.astype(np.int64)).to(device)
        self.values = torch.from_numpy(matrix.data).to(device, dtype)

    def by_column(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The columns that occur; the rows of their entries, column after column; the start of each column in them; and
        the number of each entry.
        """
        device = self.columns.device
        entries = type(self._matrix)(
            (np.arange(self._matrix.nnz), self._matrix.indices, self._matrix.indptr), shape=self.shape
        ).tocsc()
        used = np.flatnonzero(np.diff(entries.indptr))
        arrays = (used, entries.indices, entries.indptr[used], entries.data)
        used_, rows, starts, order = (torch.from_numpy(x.astype(np.int64)).to(device) for x in arrays)
        return used_, rows, starts, order


class _SparseProduct(torch.autograd.Function):
    """rows @ weight. A sparse gradient of the weight holds only the columns that occur."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, values: Tensor, rows: SparseRows, sparse_gradient: bool) -> Tensor:
        ctx.rows, ctx.sparse_gradient, ctx.like = rows, sparse_gradient, weight
        ctx.save_for_backward(values)
        return embedding_bag(
            rows.columns, weight, rows.offsets, per_sample_weights=values, mode="sum", include_last_offset=True
        )

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (values,) = ctx.saved_tensors
        used, rows, starts, order = ctx.rows.by_column()
        part = embedding_bag(rows, grad.contiguous(), starts, per_sample_weights=values[order], mode="sum")
        shape = ctx.like.shape
        if ctx.sparse_gradient:
            found = torch.sparse_coo_tensor(used[None], part, shape, is_coalesced=True, check_invariants=False)
        else:
            found = torch.zeros(shape, dtype=part.dtype, device=part.device).index_copy_(0, used, part)
        return found, None, None, None


Rows = SparseRows | Tensor


def rows_on_device(rows: Any, device: torch.device) -> Rows:
    """CSR rows as tensors, or a tensor, on a device."""
    return SparseRows(rows, device) if issparse(rows) else rows.to(device)


class SparseLinear(nn.Module):
    """A linear layer over sparse rows, an embedding bag: weight (features, size) and bias. It takes dense rows too."""

    def __init__(self, width: int, size: int, sparse_gradient: bool) -> None:
        super().__init__()
        # Rows are scaled to a norm that does not depend on the number of features, so only the size sets the scale.
        self.weight = nn.Parameter(torch.randn(width, size) * (0.5 / np.sqrt(size)))
        self.bias = nn.Parameter(torch.zeros(size))
        self.sparse_gradient = sparse_gradient

    def forward(self, rows: Rows, share: float) -> Tensor:
        """In training a `share` of the input is dropped."""
        if isinstance(rows, Tensor):
            return nn.functional.dropout(rows, share, self.training) @ self.weight + self.bias
        values = nn.functional.dropout(rows.values, share, self.training)
        product: Tensor = _SparseProduct.apply(self.weight, values, rows, self.sparse_gradient)
        return product + self.bias


class LabelLayer(nn.Linear):
    """A linear layer to the labels of a shard. Its initial weights are those rows of the unsharded layer."""

    def __init__(self, size: int, shard: Shard) -> None:
        super().__init__(size, shard.width)
        self.shard = shard
        nn.init.zeros_(self.bias)
        if not self.weight.is_meta:
            self._draw()

    def reset_parameters(self) -> None:
        """Do nothing: torch's constructor calls this before the shard is known."""

    @torch.no_grad()
    def _draw(self) -> None:
        """Draw weights as torch does for the unsharded layer, block by block, and skip the rows before the shard."""
        shard, size = self.shard, self.in_features
        rows = max(1, _NUMBERS_DRAWN_AT_ONCE // size)
        for first in range(0, shard.last, rows):
            block = nn.init.kaiming_uniform_(torch.empty(min(rows, shard.last - first), size), a=np.sqrt(5))
            kept = block[max(0, shard.first - first) :]
            start = max(first, shard.first) - shard.first
            self.weight[start : start + len(kept)] = kept


def sharded_weights(network: nn.Module) -> dict[str, Shard]:
    """The weights, by name, of which a network holds only the rows of a shard."""
    return {
        f"{name}.{part}": module.shard
        for name, module in network.named_modules()
        if isinstance(module, LabelLayer) and module.shard.count > 1
        for part in ("weight", "bias")
    }


class ExtremeNetwork(nn.Module):
    """Sparse features, hidden layers, and an output layer whose weight and bias go to the loss.

    `forward` returns the input of the output layer; without hidden layers, the scores. With a shard the output layer
    has only its labels.
    """

    def __init__(
        self,
        width: int,
        labels: int,
        sizes: Sequence[int],
        *,
        activation: str = "relu",
        input_dropout: float = 0.0,
        hidden_dropout: float = 0.0,
        sparse_gradient: bool = False,
        sparse_output_gradient: bool = False,
        shard: Shard | None = None,
    ) -> None:
        super().__init__()
        sizes = check_sizes(sizes)
        self.shard = Shard(labels) if shard is None else shard
        self.input_dropout = check_dropout("input_dropout", input_dropout)
        self.dropout = Dropout(check_dropout("hidden_dropout", hidden_dropout))
        rest = make_hidden(sizes[0] if sizes else labels, sizes[1:], activation, hidden_dropout)
        self.first = SparseLinear(width, sizes[0] if sizes else labels, sparse_gradient)
        self.activation = ACTIVATIONS[activation]()
        self.rest = rest
        self.output = LabelLayer(sizes[-1], self.shard) if sizes else None
        if self.output is None:
            nn.init.zeros_(self.first.weight)
        elif sparse_output_gradient:
            self.output.sparse_gradient = True  # type: ignore[assignment]

    def forward(self, rows: Rows) -> Tensor:
        x = self.first(rows, self.input_dropout)
        return x if self.output is None else self.rest(self.dropout(self.activation(x)))

    def output_operands(self, rows: Rows) -> tuple[Tensor, Tensor, Tensor] | Tensor:
        """Input, weight and bias of the output layer; the scores themselves if there is no hidden layer."""
        return self.operands_of(self(rows))

    def operands_of(self, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor] | Tensor:
        """As `output_operands`, from the output of the layers before the last."""
        return hidden if self.output is None else (hidden, self.output.weight, self.output.bias)

    def scores(self, rows: Rows) -> Tensor:
        """The scores of all labels, including those that other processes hold."""
        return self.scores_of(self(rows))

    def scores_of(self, hidden: Tensor) -> Tensor:
        """As `scores`, from the output of the layers before the last."""
        return gather_scores(hidden if self.output is None else self.output(hidden), self.shard)


def gather_scores(scores: Tensor, shard: Shard) -> Tensor:
    """The scores of all labels, from those of the labels that each process holds."""
    if shard.count == 1:
        return scores
    widest = -(-shard.columns // shard.count)
    padded = torch.nn.functional.pad(scores, (0, widest - shard.width))
    parts = shard.gather(padded)
    return torch.cat([part[:, : replace(shard, number=i).width] for i, part in enumerate(parts)], 1)
