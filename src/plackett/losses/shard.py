"""A range of the columns of an output layer that several processes share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed


@dataclass(frozen=True)
class Shard:
    """The columns that process `number` of the `count` processes in `group` holds, out of `columns`.

    >>> [(shard.first, shard.last) for shard in (Shard(7, number, 3) for number in range(3))]
    [(0, 2), (2, 4), (4, 7)]
    """

    columns: int
    number: int = 0
    count: int = 1
    group: Any = None

    @property
    def first(self) -> int:
        return self.columns * self.number // self.count

    @property
    def last(self) -> int:
        return self.columns * (self.number + 1) // self.count

    @property
    def width(self) -> int:
        return self.last - self.first

    def add(self, values: Tensor) -> Tensor:
        """The sum over all shards, in place."""
        if self.count > 1:
            distributed.all_reduce(values, group=self.group)
        return values

    def largest(self, values: Tensor) -> Tensor:
        """The maximum over all shards, in place."""
        if self.count > 1:
            distributed.all_reduce(values, distributed.ReduceOp.MAX, group=self.group)
        return values

    def gather(self, values: Tensor) -> list[Tensor]:
        """The values of all shards, in order; all have the same shape."""
        if self.count == 1:
            return [values]
        parts = [torch.empty_like(values) for _ in range(self.count)]
        distributed.all_gather(parts, values.contiguous(), group=self.group)
        return parts
