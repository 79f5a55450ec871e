"""A Plackett-Luce model as a policy: the expected gain of a ranking drawn from it, and its gradient.

    U = E[sum over places k of discount_k gain(item at k)],   the expectation over orders drawn from the model

Let p(d|k) = exp(w_d) / Z_k be the probability that d is chosen at place k of a drawn order, given the choices before
it. The gradient with respect to the score of d, which has place r in the order, is the expectation of

    reinforce   G (1[r counts] - sum_{k <= r} p(d|k)),   where G is the discounted gain of the order

PL-Rank (Oosterhuis 2021, 2022) credits a choice with its own expected gain, and otherwise only with what comes after
it. The variance of both parts can be reduced:

- What place k earned is replaced by its expectation given the choices before it, discount_k m_k with m_k = sum_d p(d|k)
  gain_d.
- A gain that is not chosen at k is not lost: it comes at a later place. In a random order its expected discount there
  is the mean of the later discounts over the items left, so a choice decides only about b_k = discount_k - that mean.
  Compared with a random order, which earns the same whatever the scores, place k adds x_k = b_k (m_k - n_k), where n_k
  is the plain mean of the gains that are left: U = U(random order) + E[sum_k x_k].

    pl-rank     sum_{k <= r} b_k p(d|k) (gain_d - m_k) + 1[r counts] A_r - sum_{k <= r} A_k p(d|k)

A_k is the sum of x_j over the places j > k, minus a baseline: its mean over the other orders drawn. They are
independent of this one, so the baseline terms have expectation 0. Sums over k <= r decay from place to place by Z_k /
Z_{k-1} <= 1, so nothing can overflow. A sampled order costs a sort and a scan, O(n log n), as in PL-Rank-3.

This is not the objective named "plrank" of boosted trees, which is the likelihood of observed orders (PLRank).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from plackett.arguments import check_choice, check_finite, check_positive
from plackett.distribution.discounts import discount_values
from plackett.distribution.primitives import decaying_sums, gumbel, relative_scores, suffix_logsumexp
from plackett.distribution.subsets import MOST_ITEMS_EXACT, expected_cost_of_choices
from plackett.likelihood.torch_op import with_gradient
from plackett.likelihood.vectorised import work_type
from plackett.lists import reduce_losses
from plackett.losses.loss_lists import LossLists, make_loss_lists, takes_lists
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
        generator: torch generator for the samples; None: the default one.
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
        value, slope = drawn.reinforce() if reinforce else drawn.pl_rank()
        total += value
        gradient += slope
    return with_gradient(lists.scores, total / samples, lists.unpadded(gradient / samples), lists.offsets)


def _relative_rows(lists: LossLists, dtype: torch.dtype) -> Tensor:
    """Scores relative to the best of their list, (lists, longest), -inf after its end; no gap overflows."""
    padded = lists.padded(lists.scores.detach().to(dtype), math.inf)
    present = padded < math.inf
    lowest = torch.where(present.any(-1, keepdim=True), padded.amin(-1, keepdim=True), 0.0)
    return torch.where(present, relative_scores(torch.where(present, padded, lowest)), -math.inf)


def _sums_after(x: Tensor) -> Tensor:
    """The sum of all elements after each one along the last dimension."""
    return x.flip(-1).cumsum(-1).flip(-1) - x


class _Draws:
    """Orders drawn from the model, up to the last place that counts.

    chosen   (samples, lists, places), the item at each place; gain_at, its gain
    chance   exp(score) / Z there, the probability of the choice; 0 after the end of a short list
    decay    Z / Z of the place before, at most 1; and for the items without a place, after the last one
    rest     (samples, lists, longest), exp(score) of the items without a place, relative to the highest; 0 for others
    """

    def __init__(
        self, scores: Tensor, gain: Tensor, discounts: Tensor, samples: int, generator: torch.Generator | None
    ) -> None:
        shape = (samples, *scores.shape)
        self.gain, self.sizes = gain, (scores > -math.inf).sum(-1, keepdim=True)
        self.chosen = (scores + gumbel(shape, scores, generator)).topk(len(discounts), -1).indices
        sequence = scores.expand(shape).gather(-1, self.chosen)
        self.is_item = sequence > -math.inf  # short lists end before the last place
        self.discount = torch.where(self.is_item[0], discounts, 0.0)  # (lists, places)
        self.gain_at = gain.expand(shape).gather(-1, self.chosen)
        rest = scores.expand(shape).scatter(-1, self.chosen, -math.inf)
        highest = rest.amax(-1, keepdim=True)
        self.rest = (rest - torch.where(highest > -math.inf, highest, 0.0)).exp_()
        self.rest_sum = self.rest.sum(-1, keepdim=True)
        log_z = suffix_logsumexp(torch.cat([sequence, highest + self.rest_sum.log()], -1))
        # Past the end of a list log_z is -inf: its decay is 0, and nothing is carried on.
        finite = torch.where(log_z > -math.inf, log_z, 0.0)
        self.chance = (sequence - finite[..., :-1]).exp()
        self.decay = functional.pad((log_z[..., 1:] - finite[..., :-1]).exp(), (1, 0))

    def choice_sums(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """sum_{k <= r} weight_k p(d|k) for the item d at each place r, and for all other items by unit of `rest`."""
        sums = decaying_sums(functional.pad(weights, (0, 1)), self.decay)
        return self.chance * sums[..., :-1], sums[..., -1:] / self.rest_sum.clamp(min=1.0)  # 0 if nothing is left

    def sum_samples(self, at_place: Tensor, of_rest: Tensor) -> tuple[Tensor, Tensor]:
        """Sums over samples: of values by place, (lists, longest), and of `rest` times (samples, lists, factors)."""
        lists, longest = self.rest.shape[1:]
        by_list = (part.transpose(0, 1).reshape(lists, -1) for part in (self.chosen, at_place))
        total = self.rest.new_zeros(lists, longest).scatter_add(1, *by_list)
        return total, self.rest.permute(1, 2, 0) @ of_rest.transpose(0, 1)

    def expected_gains(self) -> Tensor:
        """m, the expectation of the gain at each place given the choices before it."""
        of_rest = torch.einsum("sln,ln->sl", self.rest, self.gain)[..., None] / self.rest_sum.clamp(min=1.0)
        backwards = torch.cat([of_rest, (self.chance * self.gain_at).flip(-1)], -1)
        return decaying_sums(backwards, functional.pad(self.decay[..., 1:].flip(-1), (1, 0)))[..., 1:].flip(-1)

    def pl_rank(self) -> tuple[Tensor, Tensor]:
        """Sums over samples of the estimates of the value, (lists,), and of the gradient, (lists, longest)."""
        place = torch.arange(self.discount.shape[-1], device=self.gain.device)
        left = (self.sizes - place).clamp(min=1)
        decided = self.discount - _sums_after(self.discount) / (left - 1).clamp(min=1)  # b
        expected = self.expected_gains()
        gain_left = self.gain.sum(-1, keepdim=True) - self.gain_at.cumsum(-1) + self.gain_at
        added = decided * (expected - gain_left / left)  # x
        to_come = _sums_after(added)
        others = len(added) - 1
        advantage = to_come - (to_come.sum(0) - to_come) / others if others else to_come
        weights = torch.stack([decided.expand(added.shape), decided * expected + advantage])
        (own, ahead), of_rest = self.choice_sums(weights)
        total, rest = self.sum_samples(advantage + self.gain_at * own - ahead, torch.cat(of_rest.unbind(), -1))
        at_random = self.gain.sum(-1) / self.sizes.squeeze(-1).clamp(min=1) * self.discount.sum(-1)
        return added.sum((0, -1)) + len(added) * at_random, total + self.gain * rest[..., 0] - rest[..., 1]

    def reinforce(self) -> tuple[Tensor, Tensor]:
        """The same sums for the plain policy gradient: the discounted gain times the gradient of log P."""
        reward = (self.discount * self.gain_at).sum(-1, keepdim=True)
        ones = self.is_item.to(self.rest.dtype)
        at_place, of_rest = self.choice_sums(ones)
        total, rest = self.sum_samples(reward * (ones - at_place), reward * of_rest)
        return reward.sum((0, -1)), total - rest.squeeze(-1)
