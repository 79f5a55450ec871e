"""A Plackett-Luce model as a policy: what a ranking drawn from it earns, and how that changes with the scores.

    U = E[sum over places k of discount_k gain(item at k)],   the order drawn from the model

With p(d|k) = exp(w_d) / Z_k the probability that d is chosen at place k of a drawn order, and G_k the discounted gain
of the places from k on, the gradient by the score of d, which has place r in the order, is the expectation of

    reinforce   G_1 (1[r counts] - sum_{k <= r} p(d|k))
    pl-rank     G_{r+1} - B_r + gain_d sum_{k <= r} discount_k p(d|k) - sum_{k <= r} (G_k - B_k) p(d|k)

The second one (Oosterhuis 2021, 2022: PL-Rank) credits a choice only with what comes after it, and replaces the gain of
d itself by its expectation at every place where d could have been chosen. B_k is a baseline, the mean of G_k over the
other orders drawn: it is independent of this order, so that its terms have expectation 0, and without it the sums vary
with the size of all gains to come rather than with their differences. All sums over k <= r are running sums of
discount_k / Z_k and (G_k - B_k) / Z_k: a sampled order costs its sorting and one pass, as PL-Rank-3 has it. They are
kept as logarithms, because 1 / Z_k may overflow where exp(w_d) / Z_k never exceeds 1.

This is not the objective named "plrank" of boosted trees, which is the likelihood of observed orders (PLRank).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from plackett.arguments import check_choice, check_finite, check_positive
from plackett.distribution.discounts import discount_values
from plackett.distribution.primitives import gumbel, relative_scores, suffix_logsumexp
from plackett.distribution.subsets import MOST_ITEMS_EXACT, expected_cost_of_choices
from plackett.likelihood.tensors import work_type
from plackett.likelihood.torch_op import with_gradient
from plackett.losses.loss_lists import LossLists, make_loss_lists, reduce_losses, takes_lists
from plackett.losses.pairwise import Gain, label_gains

METHODS = ("pl-rank", "exact", "reinforce")
_LARGEST_TABLE = 1 << 22  # numbers in the largest array of samples, 32 MB


@takes_lists
def expected_utility_loss(
    scores: Tensor,
    labels: Any,
    *,
    where: Any = None,
    offsets: Any = None,
    weights: Any = None,
    reduction: str = "mean",
    discount: Any = "dcg",
    top: int | None = None,
    gain: Gain = "exp2",
    samples: int = 100,
    method: str = "pl-rank",
    generator: torch.Generator | None = None,
) -> Tensor:
    """Minus the expected discounted gain of a ranking drawn from the model (PL-Rank, Oosterhuis 2021 and 2022).

    Ties: equal labels have equal gains, so their order does not matter. Not to be confused with the objective "plrank"
    of boosted trees, which is the likelihood of observed orders.

    Args:
        discount: "dcg" (1 / log2(1 + place)), or a number of at least 0 for each place from the first on.
        top: only the first `top` places count; None: all.
        gain: "exp2" (2^label - 1), "linear" (the label), or a function of the labels.
        samples: how many orders of each list to draw.
        method: "pl-rank" and "reinforce" estimate value and gradient from samples, without bias; the latter is the
            plain policy gradient, for comparison. "exact" sums over all sets of items that can be left, for lists of up
            to 12 items.
        generator: for the samples; None: torch's default one.
    """
    lists = make_loss_lists(scores, labels, offsets, where)
    check_choice("method", method, METHODS)
    check_positive("samples", samples)
    gains = label_gains(lists, gain).detach()
    check_finite("scores", lists.scores)
    longest = int(max(lists.offsets[1:] - lists.offsets[:-1], default=0))
    values = discount_values(discount, longest, top)
    discounts = torch.as_tensor(values, dtype=work_type(lists.scores.device), device=lists.scores.device)
    if longest == 0:
        value = with_gradient(lists.scores, torch.zeros(lists.count), torch.zeros(0), lists.offsets)
    elif method == "exact":
        value = _exact(lists, gains, discounts)
    else:
        value = _sampled(lists, gains, discounts, samples, method == "reinforce", generator)
    return reduce_losses(-value, weights, reduction)


def _exact(lists: LossLists, gains: Tensor, discounts: Tensor) -> Tensor:
    """The recursion over the items left: V(T) = sum_{i in T} p_i (discount_place gain_i + V(T - i))."""
    values = []
    for first, last in zip(lists.offsets[:-1].tolist(), lists.offsets[1:].tolist(), strict=True):
        count = last - first
        if count > MOST_ITEMS_EXACT:
            raise ValueError(
                f'method "exact" takes lists of up to {MOST_ITEMS_EXACT} items, got one of {count}: choose "pl-rank"'
            )
        gain = gains[first:last].to(lists.scores.dtype)
        worth = torch.zeros(count, dtype=gain.dtype, device=gain.device)  # of each place
        counted = min(count, len(discounts))
        worth[:counted] = discounts[:counted].to(worth.dtype)

        def earned(
            _: Tensor, members: Tensor, gain: Tensor = gain, worth: Tensor = worth, count: int = count
        ) -> Tensor:
            return worth[count - members.shape[-1]] * gain[members]

        empty = lists.scores.new_zeros(())
        values.append(expected_cost_of_choices(lists.scores[first:last], earned) if count else empty)
    return torch.stack(values) if values else lists.scores.new_zeros(0)


def _sampled(
    lists: LossLists,
    gains: Tensor,
    discounts: Tensor,
    samples: int,
    reinforce: bool,
    generator: torch.Generator | None,
) -> Tensor:
    """One value per list, with the gradient of the chosen estimator."""
    scores = _relative_rows(lists, discounts.dtype)  # (lists, longest)
    gain = lists.padded(gains.to(scores.dtype), 0.0)
    total, gradient = scores.new_zeros(lists.count), torch.zeros_like(scores)
    at_once = max(2, _LARGEST_TABLE // scores.numel())
    for first in range(0, samples, at_once):
        drawn = _Draws(scores, gain, discounts, min(at_once, samples - first), generator)
        total += drawn.to_come[..., 0].sum(0)
        gradient += (drawn.reinforce() if reinforce else drawn.pl_rank()).sum(0)
    return with_gradient(lists.scores, total / samples, lists.unpadded(gradient / samples), lists.offsets)


def _relative_rows(lists: LossLists, dtype: torch.dtype) -> Tensor:
    """Scores below the best of their list, (lists, longest), -inf after its end; no gap is so large as to overflow."""
    padded = lists.padded(lists.scores.detach().to(dtype), math.inf)
    present = padded < math.inf
    lowest = torch.where(present.any(-1, keepdim=True), padded.amin(-1, keepdim=True), 0.0)
    return torch.where(present, relative_scores(torch.where(present, padded, lowest)), -math.inf)


class _Draws:
    """Orders drawn from the model, up to the last place that counts.

    chosen   (samples, lists, places), the item at each place
    won      the discounted gain there; to_come, that of this place and all after it
    """

    def __init__(
        self, scores: Tensor, gain: Tensor, discounts: Tensor, samples: int, generator: torch.Generator | None
    ) -> None:
        shape = (samples, *scores.shape)
        self.scores, self.gain = scores.expand(shape), gain
        self.chosen = (scores + gumbel(shape, scores, generator)).topk(len(discounts), -1).indices
        self.sequence = self.scores.gather(-1, self.chosen)
        self.is_item = self.sequence > -math.inf  # short lists end before the last place
        self.discount = torch.where(self.is_item, discounts, 0.0)
        self.won = self.discount * gain.expand(shape).gather(-1, self.chosen)
        self.to_come = self.won.flip(-1).cumsum(-1).flip(-1)
        rest = self.scores.scatter(-1, self.chosen, -math.inf).logsumexp(-1, keepdim=True)
        log_z = suffix_logsumexp(torch.cat([self.sequence, rest], -1))[..., :-1]
        self.log_z = torch.where(self.is_item, log_z, 0.0)

    def choice_sums(self, weights: Tensor) -> Tensor:
        """sum_{k <= r} weight_k p(d|k) for each item d, whose place is r; items without a place take part in all."""
        running = (weights.log() - self.log_z).logcumsumexp(-1)
        logs = (self.scores + running[..., -1:]).scatter(-1, self.chosen, self.sequence + running)
        return logs.exp()

    def at_place(self, values: Tensor) -> Tensor:
        """Values by place -> values by item; 0 for items without a place."""
        return torch.zeros_like(self.scores).scatter(-1, self.chosen, values)

    def pl_rank(self) -> Tensor:
        """The estimate of the gradient from each sample, (samples, lists, longest)."""
        others = len(self.to_come) - 1
        baseline = (self.to_come.sum(0) - self.to_come) / others if others else 0.0
        advantage = self.to_come - baseline
        ahead = self.choice_sums(advantage.clamp(min=0.0)) - self.choice_sums((-advantage).clamp(min=0.0))
        return self.at_place(advantage - self.won) + self.gain * self.choice_sums(self.discount) - ahead

    def reinforce(self) -> Tensor:
        """The same by the plain policy gradient: the discounted gain times the gradient of log P."""
        ones = self.is_item.to(self.scores.dtype)
        return self.to_come[..., :1] * (self.at_place(ones) - self.choice_sums(ones))
