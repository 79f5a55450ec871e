"""A loss of the registry as a torch module."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from plackett.losses.registry import find_loss


class RankingLoss(nn.Module):
    """A loss by name, or a function of your own: RankingLoss("partition", top=10)(scores, labels, offsets=offsets).

    Options of the loss function are checked when the module is created.
    """

    def __init__(self, loss: Any, **options: Any) -> None:
        super().__init__()
        self.loss = find_loss(loss)
        self.name, self.function, self.options = self.loss.name, self.loss.function, options
        self.loss.check_options({key: value for key, value in options.items() if key not in ("reduction", "generator")})

    def forward(self, scores: Tensor, labels: Any, **lists: Any) -> Tensor:
        """The loss; `lists` are where or mask, offsets, qid or group, and weights, as the functions take them."""
        value: Tensor = self.function(scores, labels, **lists, **self.options)
        return value

    def extra_repr(self) -> str:
        return ", ".join([repr(self.name), *(f"{key}={value!r}" for key, value in self.options.items())])
