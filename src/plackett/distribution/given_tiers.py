"""Orders drawn given tiers, exactly: rejection from a log-concave density, then independent arrival times.

See `PlackettLuce.sample_given_tiers` for the derivation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from plackett.distribution.primitives import CERTAIN_GAP, exponential, suffix_logsumexp, uniform
from plackett.likelihood.constants import DEEP_ITEMS, DEEP_LOG_Z
from plackett.likelihood.vectorised import TierIntegrand, sort_into_tiers


@dataclass(frozen=True)
class Envelope:
    """An upper bound of f: flat at `top` between two corners, falling linearly at `rate` outside. All (tiers,).

    The slopes are tangents at points where f lies d below the top, 1 <= d <= 1.5. On each side, with x the distance of
    that point from the mode, the area under exp(envelope) is at most x exp(top); f lies above its chord, so the area
    under exp(f) is at least x (1 - exp(-d)) / d exp(top). Hence at least half of all proposals are accepted, whatever
    the scores.
    """

    top: Tensor
    left: Tensor
    left_rate: Tensor
    right: Tensor
    right_rate: Tensor

    def of_tiers(self, index: Tensor) -> Envelope:
        """The tiers at these numbers, or marked in a mask."""
        return Envelope(*(x[index] for x in (self.top, self.left, self.left_rate, self.right, self.right_rate)))

    def propose(self, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """A draw from the normalised exp(envelope), and the envelope there."""
        shape, width = self.top.shape, self.right - self.left
        area = 1.0 / self.left_rate + width + 1.0 / self.right_rate
        place = uniform(shape, self.top, generator) * area - 1.0 / self.left_rate
        fall = exponential(shape, self.top, generator)
        in_left, in_right = place < 0.0, place > width
        y = torch.where(in_left, self.left - fall / self.left_rate, self.left + place)
        y = torch.where(in_right, self.right + fall / self.right_rate, y)
        return y, self.top - torch.where(in_left | in_right, fall, 0.0)


# How exactly the envelope is placed. This affects the rate of acceptance slightly, and never the distribution.
_LARGEST_EXCESS = 1e-3
_LARGEST_DROP = 1.5
_MOST_STEPS = 100


def _near_mode(integrand: TierIntegrand, size: Tensor) -> tuple[Tensor, Tensor]:
    """A point near the maximum of f of each tier and an upper bound of the maximum.

    The mode lies between 0 and log(size + 1). By concavity the maximum exceeds f(y) by at most |f'(y)| times the width
    of any interval that holds both, so the bound is safe without full convergence.
    """
    low, high = torch.zeros_like(size), torch.log1p(size)
    y = 0.5 * high
    for _ in range(_MOST_STEPS):
        slope, curvature = integrand.slope_and_curvature(y)
        low, high = torch.where(slope > 0.0, y, low), torch.where(slope > 0.0, high, y)
        if bool((slope.abs() * (high - low) <= _LARGEST_EXCESS).all()):
            break
        step = y + slope / curvature
        y = torch.where((step > low) & (step < high), step, 0.5 * (low + high))
    slope, _ = integrand.slope_and_curvature(y)
    return y, integrand.log(y) + slope.abs() * (high - low)


def _tangent(integrand: TierIntegrand, mode: Tensor, top: Tensor, side: int) -> tuple[Tensor, Tensor]:
    """Where a tangent on one side (-1 left, 1 right) of the mode reaches `top`, and its absolute slope.

    Let t = e^mode >= 1. As -f'' >= e^y, f drops by at least t (d - 1 + exp(-d)) at a distance d left of the mode, and
    by more right of it: at least 1 for d = 2 / sqrt(t). From there Newton's method for a drop of 1 approaches from
    outside, because tangents lie above a concave function.
    """
    y = mode + side * 2.0 * torch.exp(-0.5 * mode)
    drop, (slope, _) = top - integrand.log(y), integrand.slope_and_curvature(y)
    for _ in range(_MOST_STEPS):
        if bool((drop <= _LARGEST_DROP).all()):
            break
        y = y + torch.where(drop > _LARGEST_DROP, (drop - 1.0) / slope, 0.0)
        drop, (slope, _) = top - integrand.log(y), integrand.slope_and_curvature(y)
    return y + drop / slope, slope.abs()


def make_envelope(integrand: TierIntegrand, size: Tensor) -> Envelope:
    mode, top = _near_mode(integrand, size)
    return Envelope(top, *_tangent(integrand, mode, top, -1), *_tangent(integrand, mode, top, 1))


def sample_thresholds(integrand: TierIntegrand, envelope: Envelope, generator: torch.Generator | None) -> Tensor:
    """y of each tier by rejection: propose from the envelope, accept with probability exp(f - envelope)."""
    y = torch.empty_like(envelope.top)
    pending = torch.arange(len(y), device=y.device)
    while len(pending):
        proposal, bound = envelope.propose(generator)
        accepted = integrand.log(proposal) - bound > -exponential(proposal.shape, y, generator)
        y[pending[accepted]] = proposal[accepted]
        rejected = ~accepted
        pending = pending[rejected]
        integrand, envelope = integrand.of_tiers(rejected), envelope.of_tiers(rejected)
    return y


@dataclass(frozen=True)
class TieredRows:
    """Items of each row sorted by descending label; tiers are numbered consecutively over all rows."""

    order: Tensor  # (rows, N) item at each sorted position
    tier: Tensor  # (rows, N) its tier
    log_odds: Tensor  # (rows, N) its score minus the logsumexp of everything below its tier
    size: Tensor  # (tiers,)


def tiered_rows(scores: Tensor, labels: Tensor) -> TieredRows:
    """Tiers of 2-D scores and labels.

    An item of negligible worth is appended to each row: the bottom tier then beats it with certainty and is drawn like
    every other tier, given that it does.
    """
    rows, items = scores.shape
    row_of_item = torch.arange(rows, device=scores.device).repeat_interleave(items)
    tiers = sort_into_tiers(labels.flatten(), row_of_item)
    order = tiers.order.reshape(rows, items) - items * torch.arange(rows, device=scores.device)[:, None]
    tier = tiers.tier.reshape(rows, items)
    w = scores.gather(-1, order)
    suffix = suffix_logsumexp(torch.cat([w, w.amin(-1, keepdim=True) - CERTAIN_GAP], -1))  # (rows, N + 1)
    rest = suffix[tiers.list, tiers.before + tiers.size]  # (tiers,)
    return TieredRows(order, tier, w - rest[tier], tiers.size.to(w.dtype))


def sample_tiers(tiers: TieredRows, samples: int, generator: torch.Generator | None) -> Tensor:
    """Orders given the tiers, (samples, rows, N).

    With v uniform, E = -log(1 - v (1 - exp(-z))) is exponential cut off at z; E / exp(log_odds) is the arrival time.
    Where z < exp(-40) E / z is v to rounding, so log odds may be raised to a floor with z that small at all relevant
    y; log odds above the ceiling put the cut-off out of reach. Between the two nothing over- or underflows.
    """
    count = len(tiers.size)
    floor = DEEP_LOG_Z - torch.log(tiers.size + DEEP_ITEMS)
    ceiling = math.log(torch.finfo(floor.dtype).max) - 20.0
    log_odds = torch.maximum(tiers.log_odds, floor[tiers.tier])
    bounded = log_odds.clamp(max=ceiling)
    integrand = TierIntegrand(bounded.flatten(), tiers.tier.flatten())
    envelope = make_envelope(integrand, tiers.size)
    index = torch.arange(count, device=floor.device).repeat(samples)
    y = sample_thresholds(integrand.repeat(count, samples), envelope.of_tiers(index), generator)

    shape = (samples, *tiers.order.shape)
    z = torch.exp(bounded + y.reshape(samples, count)[:, tiers.tier])  # (samples, rows, N)
    elapsed = -torch.log1p(uniform(shape, z, generator) * torch.expm1(-z))
    by_time = (elapsed.log() - log_odds).argsort(-1)
    by_tier = tiers.tier.expand(shape).gather(-1, by_time).argsort(dim=-1, stable=True)
    return tiers.order.expand(shape).gather(-1, by_time.gather(-1, by_tier))
