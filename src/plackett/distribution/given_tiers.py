"""Orders drawn given tiers, exactly: rejection from a log-concave density, then independent arrival times.

See `PlackettLuce.sample_given_tiers` for the derivation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from plackett.distribution.primitives import CERTAIN_GAP, exponential, suffix_logsumexp, uniform


@dataclass(frozen=True)
class ThresholdDensity:
    """exp(f(y)) of many tiers side by side, f(y) = y - e^y + sum_i log(1 - exp(-z_i)), z_i = exp(log_odds_i + y)."""

    log_odds: Tensor  # (items,) small enough for z to be finite near the mode
    tier: Tensor  # (items,)

    def log(self, y: Tensor) -> Tensor:
        z = torch.exp(self.log_odds + y[self.tier])
        return (y - torch.exp(y)).index_add(0, self.tier, torch.log(-torch.expm1(-z)))

    def slope_and_curvature(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """f' = 1 - t + sum phi_i and -f'' = t + sum phi_i (z_i + phi_i - 1), t = e^y, phi = z / expm1(z)."""
        t = torch.exp(y)
        z = torch.exp(self.log_odds + y[self.tier])
        phi = z * torch.exp(-z) / -torch.expm1(-z)
        slope = (1.0 - t).index_add(0, self.tier, phi)
        return slope, t.index_add(0, self.tier, phi * (z + phi - 1.0))

    def of_tiers(self, kept: Tensor) -> ThresholdDensity:
        """The tiers marked in `kept`, renumbered."""
        items = kept[self.tier]
        return ThresholdDensity(self.log_odds[items], (torch.cumsum(kept, 0) - 1)[self.tier[items]])

    def repeat(self, tiers: int, times: int) -> ThresholdDensity:
        """`times` copies of all the `tiers` tiers, one after the other."""
        shift = tiers * torch.arange(times, device=self.tier.device)
        return ThresholdDensity(self.log_odds.repeat(times), (self.tier + shift[:, None]).flatten())


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


# How exactly the envelope is placed: these move the rate of acceptance a little, and never the distribution drawn from.
_LARGEST_EXCESS = 1e-3
_LARGEST_DROP = 1.5
_MOST_STEPS = 100


def _near_mode(density: ThresholdDensity, size: Tensor) -> tuple[Tensor, Tensor]:
    """A point near the maximum of f of each tier and an upper bound of the maximum.

    The mode lies between 0 and log(size + 1). By concavity the maximum exceeds f(y) by at most |f'(y)| times the width
    of any interval that holds both, so the bound is safe without full convergence.
    """
    low, high = torch.zeros_like(size), torch.log1p(size)
    y = 0.5 * high
    for _ in range(_MOST_STEPS):
        slope, curvature = density.slope_and_curvature(y)
        low, high = torch.where(slope > 0.0, y, low), torch.where(slope > 0.0, high, y)
        if bool((slope.abs() * (high - low) <= _LARGEST_EXCESS).all()):
            break
        step = y + slope / curvature
        y = torch.where((step > low) & (step < high), step, 0.5 * (low + high))
    slope, _ = density.slope_and_curvature(y)
    return y, density.log(y) + slope.abs() * (high - low)


def _tangent(density: ThresholdDensity, mode: Tensor, top: Tensor, side: int) -> tuple[Tensor, Tensor]:
    """Where a tangent on one side (-1 left, 1 right) of the mode reaches `top`, and its absolute slope.

    Let t = e^mode >= 1. As -f'' >= e^y, f drops by at least t (d - 1 + exp(-d)) at a distance d left of the mode, and
    by more right of it: at least 1 for d = 2 / sqrt(t). From there Newton's method for a drop of 1 approaches from
    outside, because tangents lie above a concave function.
    """
    y = mode + side * 2.0 * torch.exp(-0.5 * mode)
    drop, (slope, _) = top - density.log(y), density.slope_and_curvature(y)
    for _ in range(_MOST_STEPS):
        if bool((drop <= _LARGEST_DROP).all()):
            break
        y = y + torch.where(drop > _LARGEST_DROP, (drop - 1.0) / slope, 0.0)
        drop, (slope, _) = top - density.log(y), density.slope_and_curvature(y)
    return y + drop / slope, slope.abs()


def make_envelope(density: ThresholdDensity, size: Tensor) -> Envelope:
    mode, top = _near_mode(density, size)
    return Envelope(top, *_tangent(density, mode, top, -1), *_tangent(density, mode, top, 1))


def sample_thresholds(density: ThresholdDensity, envelope: Envelope, generator: torch.Generator | None) -> Tensor:
    """y of each tier by rejection: propose from the envelope, accept with probability exp(f - envelope)."""
    y = torch.empty_like(envelope.top)
    pending = torch.arange(len(y), device=y.device)
    while len(pending):
        proposal, bound = envelope.propose(generator)
        accepted = density.log(proposal) - bound > -exponential(proposal.shape, y, generator)
        y[pending[accepted]] = proposal[accepted]
        rejected = ~accepted
        pending = pending[rejected]
        density, envelope = density.of_tiers(rejected), envelope.of_tiers(rejected)
    return y


@dataclass(frozen=True)
class SortedTiers:
    """Items of each row sorted by descending label; tiers numbered through all rows."""

    order: Tensor  # (rows, N) item at each sorted position
    tier: Tensor  # (rows, N) its tier
    log_odds: Tensor  # (rows, N) its score minus the logsumexp of everything below its tier
    size: Tensor  # (tiers,)


def sort_into_tiers(scores: Tensor, labels: Tensor) -> SortedTiers:
    """Tiers of 2-D scores and labels.

    A last item of negligible worth stands below each row: the bottom tier then beats it with certainty and, like all
    others, is drawn given that it does.
    """
    rows, items = scores.shape
    labels, order = labels.sort(dim=-1, descending=True, stable=True)
    w = scores.gather(-1, order)
    new = torch.ones_like(order, dtype=torch.bool)
    new[:, 1:] = labels[:, 1:] != labels[:, :-1]
    begin = torch.nonzero(new.flatten())[:, 0]
    size = torch.diff(begin, append=begin.new_tensor([rows * items]))
    suffix = suffix_logsumexp(torch.cat([w, w.amin(-1, keepdim=True) - CERTAIN_GAP], -1))  # (rows, N + 1)
    row = torch.div(begin, items, rounding_mode="floor")
    rest = suffix[row, begin - row * items + size]  # (tiers,)
    tier = (torch.cumsum(new.flatten(), 0) - 1).reshape(rows, items)
    return SortedTiers(order, tier, w - rest[tier], size.to(w.dtype))


def sample_tiers(tiers: SortedTiers, samples: int, generator: torch.Generator | None) -> Tensor:
    """Orders given the tiers, (samples, rows, N).

    With v uniform, E = -log(1 - v (1 - exp(-z))) is exponential cut off at z; E / exp(log_odds) is the arrival time.
    Where z < exp(-40) E / z is v to rounding, so log odds may be raised to a floor with z that small at all y that
    matter; log odds above the ceiling put the cut-off out of reach. Between the two nothing over- or underflows.
    """
    count = len(tiers.size)
    floor = -40.0 - torch.log(tiers.size + 50.0)
    ceiling = math.log(torch.finfo(floor.dtype).max) - 20.0
    log_odds = torch.maximum(tiers.log_odds, floor[tiers.tier])
    bounded = log_odds.clamp(max=ceiling)
    density = ThresholdDensity(bounded.flatten(), tiers.tier.flatten())
    envelope = make_envelope(density, tiers.size)
    index = torch.arange(count, device=floor.device).repeat(samples)
    y = sample_thresholds(density.repeat(count, samples), envelope.of_tiers(index), generator)

    shape = (samples, *tiers.order.shape)
    z = torch.exp(bounded + y.reshape(samples, count)[:, tiers.tier])  # (samples, rows, N)
    elapsed = -torch.log1p(uniform(shape, z, generator) * torch.expm1(-z))
    by_time = (elapsed.log() - log_odds).argsort(-1)
    by_tier = tiers.tier.expand(shape).gather(-1, by_time).argsort(dim=-1, stable=True)
    return tiers.order.expand(shape).gather(-1, by_time.gather(-1, by_tier))
