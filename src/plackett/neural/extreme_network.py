"""Networks from sparse features to very many labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, embedding_bag

from plackett.losses.sparse_columns import Shard
from plackett.neural.ranking_network import ACTIVATIONS, Dropout, check_share, check_sizes, make_hidden

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
            return dropout(rows, share, self.training) @ self.weight + self.bias
        values = dropout(rows.values, share, self.training)
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
        self.input_dropout = check_share("input_dropout", input_dropout)
        self.dropout = Dropout(check_share("hidden_dropout", hidden_dropout))
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
