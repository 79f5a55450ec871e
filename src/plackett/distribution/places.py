"""The probability of a place among the first k, and the expected worth of the place.

See `PlackettLuce.top_probabilities` and `PlackettLuce.exposure` for the integrals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from plackett.likelihood.constants import LARGEST_ANGLE

# Neighbours in rank this far apart are treated as certainly in order: an error of exp(-60) per pair of items.
_BLOCK_GAP = 60.0
# The error of the rule aimed at is exp(-34) = 2e-15. With these three, halving the spacing changed no probability by
# more than 4e-15 of itself: 2 to 100 items, k = 1, 2, N / 2 and N - 1, equal, clustered, evenly spaced and random
# scores with a spread of up to 800. With up to 40 items, a spacing 1.5 times as wide was wrong by 1e-11.
_NODE_DEPTH = 34.0
_LOCAL_WINDOW = 4.0  # items whose scores differ by less have z of order one together
_LARGEST_TABLE = 1 << 22  # numbers held at a time, 32 MB


@dataclass(frozen=True)
class _Nodes:
    """Nodes of the trapezoid rule, of all rows one after the other."""

    row: Tensor  # (nodes,)
    y: Tensor  # (nodes,)
    spacing: Tensor  # (rows,)


def _straddling_block(ranked: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The best and the worst score, each (rows, 1), of the block that holds place k.

    A block is a run of ranked scores without a gap above `_BLOCK_GAP`. Items of better blocks are certainly among the
    first k, items of worse blocks are not.
    """
    index = torch.arange(ranked.shape[-1], device=ranked.device)
    apart = ranked[:, :-1] - ranked[:, 1:] > _BLOCK_GAP
    begins = functional.pad(apart, (1, 0), value=True) & (index < k)
    ends = functional.pad(apart, (0, 1), value=True) & (index >= k - 1)
    first = torch.where(begins, index, 0).amax(-1, keepdim=True)
    last = torch.where(ends, index, ranked.shape[-1]).amin(-1, keepdim=True)
    return ranked.gather(-1, first), ranked.gather(-1, last)


def _place_nodes(ranked: Tensor, spread: Tensor) -> _Nodes:
    """Nodes for each row, y = 0 being the time scale of the best item of the block; spread is the block's, (rows,).

    Left end: the integrand is at most z_i there, and P_i >= P(i first of its block) >= exp(w_i - w_best) / N, so the
    part left of -37 - log N is a share of less than 1e-16. Right end: P(arriving after y) <= exp(-exp(y - spread)),
    and given a place among the first k an item is only earlier, so the part right of spread + log 40 is a share of
    1e-17.

    Spacing: shifting the line of integration by i theta multiplies the integrand by at most about exp(c theta^2 / 2)
    and the error of the rule by exp(-2 pi theta / h), c being the number of items with z of order one at the same time
    (exp(-z) grows by exp(z (1 - cos theta)) each, all others by nothing). The best theta gives h; theta stays below
    pi / 2, where exp(-z) stops decaying.
    """
    rows, items = ranked.shape
    rising = -ranked
    within = torch.searchsorted(rising, rising + _LOCAL_WINDOW, right=True)
    crowd = (within - torch.arange(items, device=ranked.device)).amax(-1).to(ranked.dtype)  # (rows,)
    angle = torch.sqrt(2.0 * _NODE_DEPTH / crowd).clamp(max=LARGEST_ANGLE)
    spacing = 2.0 * math.pi * angle / (_NODE_DEPTH + 0.5 * crowd * angle**2)
    left, right = -37.0 - math.log(items), spread + math.log(40.0)
    number = torch.ceil((right - left) / spacing).to(torch.int64) + 1
    row = torch.repeat_interleave(torch.arange(rows, device=ranked.device), number)
    step = torch.arange(len(row), device=ranked.device) - (torch.cumsum(number, 0) - number)[row]
    return _Nodes(row, left + spacing[row] * step, spacing)


def _expected_worth(z: Tensor, worths: Tensor) -> Tensor:
    """E[worth of the number of items other than i that have arrived], for each i and node.

    z and the result are (N, nodes); `worths` are those of the counts 0 to k - 1, larger counts are worth 0. Ones give
    P(fewer than k have arrived).

    The count over all items but i is the sum of the counts before i and after i in the list: probabilities of counts
    from the front times expectations from the back. Only sums of products of positive numbers, so every result has full
    relative accuracy; taking item i out of the count over all items by division would subtract.
    """
    k = len(worths)
    arrived, waiting = -torch.expm1(-z), torch.exp(-z)
    items, nodes = z.shape
    front = z.new_zeros(items, k, nodes)  # front[i, c] = P(c of the items before i have arrived)
    front[0, 0] = 1.0
    for i in range(items - 1):
        front[i + 1] = front[i] * waiting[i]
        front[i + 1, 1:] += front[i, :-1] * arrived[i]
    back = worths[:, None].expand(k, nodes)  # back[c] = E[worth of c and those after i that have arrived]
    result = torch.empty_like(z)
    for i in range(items - 1, -1, -1):
        result[i] = (front[i] * back).sum(0)
        shifted = back[1:] * arrived[i]
        back = back * waiting[i]
        back[:-1] += shifted
    return result


def top_probabilities_of_rows(scores: Tensor, k: int) -> Tensor:
    """P(among the first k) of each item of 2-D scores, k < N."""
    ranked = scores.sort(-1, descending=True).values
    best, worst = _straddling_block(ranked, k)
    total = _integrate(scores, ranked, best, worst, scores.new_ones(k))
    total = torch.where(scores > best, 1.0, total)
    return torch.where(scores < worst, 0.0, total).clamp(max=1.0)


def exposure_of_rows(scores: Tensor, worths: Tensor) -> Tensor:
    """E[worth of the place] of each item of 2-D scores; `worths` of the first places, all others are worth 0."""
    ranked = scores.sort(-1, descending=True).values
    _, worst = _straddling_block(ranked, len(worths))
    total = _integrate(scores, ranked, ranked[:, :1], worst, worths)
    return torch.where(scores < worst, 0.0, total)


def _integrate(scores: Tensor, ranked: Tensor, best: Tensor, worst: Tensor, worths: Tensor) -> Tensor:
    """The integral over the arrival time of each item, for items from `best` down to `worst`, both (rows, 1)."""
    relative = scores - best
    nodes = _place_nodes(ranked, (best - worst)[:, 0])
    total = torch.zeros_like(scores)
    chunk = max(1, _LARGEST_TABLE // (scores.shape[-1] * len(worths)))
    for first in range(0, len(nodes.y), chunk):
        row, y = nodes.row[first : first + chunk], nodes.y[first : first + chunk]
        log_z = relative[row].T + y  # (N, nodes)
        z = torch.exp(log_z)
        arrival = torch.exp(log_z - z)  # density of the arrival time in y; log_z - inf = -inf where z overflows
        total.index_add_(0, row, (arrival * _expected_worth(z, worths) * nodes.spacing[row]).T)
    return total
