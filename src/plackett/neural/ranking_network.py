"""Networks that score the items of lists."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from plackett.arguments import check_kind, check_positive

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


def check_share(name: str, value: Any) -> float:
    """A share such as a dropout rate, from 0 to less than 1."""
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
    check_share("dropout", dropout)
    layers = []
    for size in check_sizes(sizes):
        layers.append(_Block(width, size, activation, dropout, layer_norm, residual))
        width = size
    return nn.Sequential(*layers)


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
