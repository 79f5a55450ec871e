"""Losses by name, what each one's definition promises, and losses as modules."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from plackett.arguments import check_kind
from plackett.losses import curvature, listwise, pairwise


@dataclass(frozen=True)
class LossInfo:
    """A loss and which invariances its definition has; tests hold each entry to them.

    silent_without_preference   a list whose labels are all equal contributes no loss and no gradient
    ignores_row_order           the order of the rows of a list does not matter
    random                      every call draws anew; invariances hold in expectation
    takes_ties                  equal labels are accepted

    curvature, where there is one, goes with the options of the loss, see `plackett.losses.curvature`.
    """

    function: Callable[..., Tensor]
    silent_without_preference: bool = True
    ignores_row_order: bool = True
    random: bool = False
    takes_ties: bool = True
    curvature: curvature.Curvature | None = None


LOSSES: dict[str, LossInfo] = {
    "partition": LossInfo(listwise.partition_loss),
    "topk": LossInfo(listwise.topk_loss, takes_ties=False),
    "lower_bound": LossInfo(listwise.lower_bound_loss, curvature=curvature.lower_bound),
    "attrank": LossInfo(listwise.attrank_loss, silent_without_preference=False, curvature=curvature.attrank),
    "listnet": LossInfo(listwise.listnet_loss, silent_without_preference=False, curvature=curvature.listnet),
    "listmle": LossInfo(
        listwise.listmle_loss, silent_without_preference=False, random=True, curvature=curvature.listmle
    ),
    "listpl": LossInfo(listwise.listpl_loss, silent_without_preference=False, random=True, curvature=curvature.listpl),
    "ranknet": LossInfo(pairwise.ranknet_loss, curvature=curvature.ranknet),
    "ranksvm": LossInfo(pairwise.ranksvm_loss, curvature=curvature.ranksvm),
    "lambdarank": LossInfo(pairwise.lambdarank_loss),
    "approx_ndcg": LossInfo(pairwise.approx_ndcg_loss, curvature=curvature.approx_ndcg),
}


def get_loss(name: str) -> Callable[..., Tensor]:
    """The loss function of that name."""
    check_kind("loss", name, str)
    if name not in LOSSES:
        raise ValueError(f"loss must be one of {', '.join(LOSSES)}, got {name!r}")
    return LOSSES[name].function


class RankingLoss(nn.Module):
    """A loss of the registry as a module: RankingLoss("partition", top=10)(scores, labels, offsets=offsets).

    Options are those of the loss function; they are checked when the module is made.
    """

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__()
        self.name = name
        self.function = get_loss(name)
        self.options = options
        known = set(inspect.signature(self.function).parameters) - {"scores", "labels", "where", "offsets", "weights"}
        unknown = sorted(set(options) - known)
        if unknown:
            raise ValueError(f"options of {name} must be among {', '.join(sorted(known))}, got {', '.join(unknown)}")

    def forward(
        self, scores: Tensor, labels: Any, *, where: Any = None, offsets: Any = None, weights: Any = None
    ) -> Tensor:
        return self.function(scores, labels, where=where, offsets=offsets, weights=weights, **self.options)

    def extra_repr(self) -> str:
        return ", ".join([repr(self.name), *(f"{key}={value!r}" for key, value in self.options.items())])
