"""The Plackett-Luce distribution over orders of N items, as a `torch.distributions.Distribution`.

Item i has the log-worth w_i (its score). An order is built from the best place down: each place goes to one of the
items that are left, with probability proportional to exp(w_i). Equivalently, each item has an independent utility
w_i + Gumbel noise and the order is by descending utility; or an independent arrival time, exponential with rate
exp(w_i), and the order is by ascending time. The samplers use the second form, `top_probabilities` and
`sample_given_tiers` the third.

Shapes: scores (..., N), batch_shape = (...), event_shape = (N,). An order holds item indices, best first, int64. Its
first k places are a prefix, (..., k). Sums over items or places below are written for one list; batches broadcast.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.distributions.kl import register_kl
from torch.nn import functional

from plackett.likelihood.torch_op import partition_log_likelihood

# Entropy and divergence sum over all 2^N sets of items that can be left; 4096 sets take
# milliseconds for one list.
MOST_ITEMS_EXACT = 12


class EntropyEstimate(NamedTuple):
    """A Monte-Carlo estimate of the entropy and its standard error, both of batch_shape."""

    estimate: Tensor
    standard_error: Tensor


class _Permutation(constraints.Constraint):
    """Each of the numbers 0 to size - 1 once along the last dimension."""

    is_discrete = True
    event_dim = 1

    def __init__(self, size: int) -> None:
        self.size = size
        super().__init__()

    def check(self, value: Tensor) -> Tensor:
        if value.shape[-1] != self.size:
            return torch.zeros(value.shape[:-1], dtype=torch.bool, device=value.device)
        return (value.sort(-1).values == torch.arange(self.size, device=value.device)).all(-1)

    def __repr__(self) -> str:
        return f"Permutation({self.size})"


class PlackettLuce(Distribution):
    """Orders of N items: P(order) = prod over places m of exp(w_m) / sum over l >= m of exp(w_l), w in order's order.

    Args:
        scores: log-worths, a floating-point tensor (..., N) with N >= 1; only differences matter.
        validate_args: check scores and arguments; None follows the default of torch.distributions.

    Samplers take an explicit `generator` (None: torch's default one), draw in double precision where the device has
    it, and are not differentiable.

    >>> d = PlackettLuce(torch.tensor([2.0, 1.0, 0.0]).log1p())  # worths 3, 2, 1
    >>> d.log_prob(torch.tensor([0, 1, 2])).exp()  # 3/6 * 2/3
    tensor(0.3333)
    >>> d.log_prob(torch.tensor([1])).exp()  # item 1 first, anything after it
    tensor(0.3333)
    """

    arg_constraints = {"scores": constraints.real_vector}  # noqa: RUF012 - the base class has an instance attribute
    has_rsample = False

    def __init__(self, scores: Tensor, validate_args: bool | None = None) -> None:
        if not isinstance(scores, Tensor):
            raise TypeError(f"scores must be a torch tensor, got {type(scores).__name__}")
        if not scores.dtype.is_floating_point:
            raise ValueError(f"scores must be of a floating-point type, got {scores.dtype}")
        if scores.dim() == 0 or scores.shape[-1] == 0:
            raise ValueError(f"scores must hold at least one item in the last dimension, got {tuple(scores.shape)}")
        self.scores = scores
        # Checked here: the constraint `real_vector` of torch lets infinities pass and fails on batches of no lists.
        validate = self._validate_args if validate_args is None else validate_args
        if validate:
            _check_finite("scores", scores)
        super().__init__(scores.shape[:-1], scores.shape[-1:], validate_args=False)
        self._validate_args = validate

    def expand(self, batch_shape: Sequence[int], _instance: PlackettLuce | None = None) -> PlackettLuce:
        new: PlackettLuce = self._get_checked_instance(PlackettLuce, _instance)
        shape = torch.Size(batch_shape)
        new.scores = self.scores.expand(shape + self.event_shape)
        super(PlackettLuce, new).__init__(shape, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> constraints.Constraint:
        """Permutations of 0 to N - 1. (`log_prob` also takes prefixes of them.)"""
        return _Permutation(self.items)

    @property
    def items(self) -> int:
        """N."""
        return self.event_shape[0]

    # Probabilities of orders.

    def log_prob(self, order: Tensor) -> Tensor:
        """log P(the first k places are `order`); k = N is the full order. O(N log N), differentiable.

            sum over m < k of log sigmoid(w_m - b_m),   b_m = logsumexp of the items left after place m

        which is w_m - logsumexp(all left at place m), rearranged: the difference of two nearly equal numbers becomes a
        log sigmoid, which keeps its relative accuracy when the order is almost certain. Items outside a prefix enter
        every b_m by their own logsumexp, never by subtraction from the total.

        Args:
            order: item indices, best first, (..., k) with 0 <= k <= N; broadcasts against batch_shape.
        """
        self._check_order(order)
        batch = self._broadcast("order", order.shape[:-1])
        order = order.expand(*batch, -1)
        w = self.scores.expand(*batch, -1)
        sequence = w.gather(-1, order)  # (..., k)
        if order.shape[-1] < self.items:
            chosen = torch.zeros_like(w, dtype=torch.bool).scatter(-1, order, True)
            rest = torch.logsumexp(w.masked_fill(chosen, -math.inf), -1, keepdim=True)
            sequence = torch.cat([sequence, rest], -1)
        below = _suffix_logsumexp(sequence[..., 1:])
        return functional.logsigmoid(sequence[..., :-1] - below).sum(-1)

    def log_prob_tiers(self, labels: Any, *, top: int | None = None, tol: float | None = None) -> Tensor:
        """log P(items with higher labels come before items with lower ones). Exact, differentiable once.

            sum over tiers m of log P(S_m > R_m),   P(S > R) = integral_0^1 prod_{i in S} (1 - u^{exp(w_i - w_R)}) du

        where S_m is a tier (equal labels), R_m everything below it, w_R = logsumexp_R(w): the sum of the probabilities
        of all orders that agree with the labels, without enumerating them. See `plackett.partition_log_likelihood`.

        Args:
            labels: real numbers (..., N), higher is better; broadcast against scores.
            top: count only the first `top` places.
            tol: relative error allowed in the probability of each tier.
        """
        scores, labels = self._with_labels(labels)
        rows = math.prod(scores.shape[:-1])
        value: Tensor = partition_log_likelihood(
            scores.reshape(rows, self.items), labels.reshape(rows, self.items), top=top, tol=tol
        )
        return value.reshape(scores.shape[:-1])

    # Samplers.

    def sample_utilities(self, sample_shape: Sequence[int] = (), *, generator: torch.Generator | None = None) -> Tensor:
        """w + Gumbel noise, sample_shape + batch_shape + (N,), in the type of the scores.

        Sorted in descending order they are a draw from the distribution. Scores of a size that swallows the noise
        (1e16 in double precision) make ties; `sample` works with differences of scores and does not suffer from it.
        """
        scores = self._work_scores()
        noise = _gumbel(self._extended_shape(torch.Size(sample_shape)), scores, generator)
        return (scores + noise).to(self.scores.dtype)

    def sample(self, sample_shape: Sequence[int] = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Full orders, sample_shape + batch_shape + (N,): argsort of w + Gumbel noise, descending. O(N log N)."""
        return self._sample_relative_utilities(sample_shape, generator).argsort(-1, descending=True)

    def sample_top(
        self, k: int, sample_shape: Sequence[int] = (), *, generator: torch.Generator | None = None
    ) -> Tensor:
        """The first k places of an order, sample_shape + batch_shape + (k,): the k largest of w + Gumbel noise."""
        k = _check_count("k", k, 1, self.items)
        return self._sample_relative_utilities(sample_shape, generator).topk(k, -1).indices

    def sample_given_tiers(
        self, labels: Any, sample_shape: Sequence[int] = (), *, generator: torch.Generator | None = None
    ) -> Tensor:
        """Full orders from the distribution given that higher labels come before lower ones. Exact, O(N log N) a draw.

        P(order) / P(tiers) factorises over the tiers S (Ma et al. 2021, lemma 1), so tiers are drawn independently.
        Given the arrival time t = e^y of the first item of R, in units in which R has rate 1, the items of S arrive
        independently at exponential times cut off at t. Given S > R, y has the density proportional to

            exp(f(y)),   f(y) = y - e^y + sum_{i in S} log(1 - exp(-a_i e^y)),   a_i = exp(w_i - w_R)

        f is concave, so y is drawn by rejection from tangents (see `_Envelope`) and the times by inversion: nothing is
        discretised, however unlikely the tiers are.

        Args:
            labels: real numbers (..., N); broadcast against scores.

        Returns:
            sample_shape + the broadcast batch shape + (N,).
        """
        scores, labels = self._with_labels(labels)
        batch, shape = scores.shape[:-1], torch.Size(sample_shape)
        rows = math.prod(batch)
        with torch.no_grad():
            tiers = _sort_into_tiers(
                _relative_scores(scores.reshape(rows, self.items).to(_work_type(scores))),
                labels.reshape(rows, self.items),
            )
            orders = _sample_tiers(tiers, math.prod(shape), generator)
        return orders.reshape(shape + batch + self.event_shape)

    # Summaries.

    @property
    def mode(self) -> Tensor:
        """The most probable order: items by descending score, equal scores by ascending index."""
        return self.scores.argsort(dim=-1, descending=True, stable=True)

    @property
    def first_place_probabilities(self) -> Tensor:
        """P(i comes first) = exp(w_i) / sum_j exp(w_j), batch_shape + (N,). Differentiable."""
        return torch.softmax(self.scores, -1)

    @property
    def pairwise_probabilities(self) -> Tensor:
        """P(i before j) = sigmoid(w_i - w_j), batch_shape + (N, N). Differentiable.

        The diagonal is 0.5, the value of the formula, so that P + P^T = 1 everywhere.
        """
        return torch.sigmoid(self.scores.unsqueeze(-1) - self.scores.unsqueeze(-2))

    @property
    def expected_rank(self) -> Tensor:
        """E[place of i] = 1 + sum over j != i of P(j before i), places from 1, batch_shape + (N,). Differentiable."""
        return 0.5 + self.pairwise_probabilities.sum(-2)  # the diagonal brings the other half

    def top_probabilities(self, k: int) -> Tensor:
        """P(i is among the first k), batch_shape + (N,); sums to k. O(nodes * N * k), not differentiable.

        Given item i's arrival time e^y, the others have arrived before it independently with probability
        p_j = 1 - exp(-z_j), z_j = exp(w_j + y), so that

            P = integral z_i exp(-z_i) P(fewer than k of the others have arrived) dy

        by the trapezoid rule, the count being Poisson-binomial. Accurate to about 1e-13 in double precision; what is
        less likely than exp(-60) may come out as 0. k = 1 is `first_place_probabilities`, k >= N gives 1.
        """
        k = _check_count("k", k, 1)
        _check_finite("scores", self.scores)
        if k >= self.items:
            return torch.ones_like(self.scores)
        with torch.no_grad():
            flat = self._work_scores().reshape(math.prod(self.batch_shape), self.items)
            return _top_probabilities(flat, k).reshape(self.scores.shape).to(self.scores.dtype)

    def entropy(self, samples: int = 1024, *, generator: torch.Generator | None = None) -> Tensor:
        """H = -sum over orders of P log P, batch_shape. Differentiable.

        Exact for N <= 12, by the recursion over the set T of the items left

            H(T) = sum_{i in T} p_i (H(T - i) - log p_i),   p = softmax of the scores of T

        For more items it is a Monte-Carlo estimate from `samples` orders; `entropy_estimate` gives its standard error.
        """
        if self.items > MOST_ITEMS_EXACT:
            return self.entropy_estimate(samples, generator=generator).estimate
        return _expected_cost_of_choices(self.scores, lambda log_p, _: -log_p)

    def entropy_estimate(self, samples: int, *, generator: torch.Generator | None = None) -> EntropyEstimate:
        """The mean of -log P over `samples` orders, at least 2, and its standard error; for any N.

        The gradient is the score-function estimate, sum over samples of (-log P - mean of the others') grad log P,
        which is unbiased; the derivative of -log P at fixed orders would be zero on average.
        """
        count = _check_count("samples", samples, 2)
        log_prob = self.log_prob(self.sample((count,), generator=generator))
        surprise = -log_prob.detach()
        deviation, mean = torch.std_mean(surprise, 0)
        advantage = (surprise - mean) * (count / (count - 1))
        pull = (advantage * log_prob).mean(0)
        return EntropyEstimate(mean + (pull - pull.detach()), deviation / math.sqrt(count))

    # Borders.

    def _check_order(self, order: Tensor) -> None:
        if not isinstance(order, Tensor) or order.dtype != torch.int64 or order.dim() == 0:
            what = f"{order.dtype} of shape {tuple(order.shape)}" if isinstance(order, Tensor) else type(order).__name__
            raise ValueError(f"order must be an int64 tensor with at least one dimension, got {what}")
        if order.shape[-1] > self.items:
            raise ValueError(f"order must hold at most {self.items} items, got {order.shape[-1]}")
        if not self._validate_args:
            return
        outside = (order < 0) | (order >= self.items)
        if bool(outside.any()):
            raise ValueError(f"order must hold item indices from 0 to {self.items - 1}, got {_first(order, outside)}")
        ranked = order.sort(-1).values
        repeated = ranked[..., 1:] == ranked[..., :-1]
        if bool(repeated.any()):
            raise ValueError(f"order must not repeat an item, got item {int(ranked[..., 1:][repeated][0])} twice")

    def _with_labels(self, labels: Any) -> tuple[Tensor, Tensor]:
        """Scores and labels of one shape."""
        labels = torch.as_tensor(labels, device=self.scores.device)
        if labels.dim() == 0 or labels.shape[-1] != self.items:
            raise ValueError(f"labels must hold {self.items} items in the last dimension, got {tuple(labels.shape)}")
        if labels.is_complex():
            raise ValueError(f"labels must be real numbers, got {labels.dtype}")
        _check_finite("labels", labels)
        _check_finite("scores", self.scores)
        batch = self._broadcast("labels", labels.shape[:-1])
        return self.scores.expand(*batch, -1), labels.expand(*batch, -1)

    def _broadcast(self, name: str, shape: torch.Size) -> torch.Size:
        try:
            return _broadcast_shapes(shape, self.batch_shape)
        except RuntimeError:
            raise ValueError(
                f"{name} must broadcast against the batch shape {tuple(self.batch_shape)}, got {tuple(shape)}"
            ) from None

    def _work_scores(self) -> Tensor:
        return self.scores.detach().to(_work_type(self.scores))

    def _sample_relative_utilities(self, sample_shape: Sequence[int], generator: torch.Generator | None) -> Tensor:
        scores = _relative_scores(self._work_scores())
        return scores + _gumbel(self._extended_shape(torch.Size(sample_shape)), scores, generator)


@register_kl(PlackettLuce, PlackettLuce)
def _kl_plackett_luce(p: PlackettLuce, q: PlackettLuce) -> Tensor:
    """KL(p, q) = sum over orders of P (log P - log Q), by the recursion of `PlackettLuce.entropy`:

    KL(T) = sum_{i in T} p_i (KL(T - i) + log p_i - log q_i).
    """
    if p.items != q.items:
        raise ValueError(f"p and q must order the same number of items, got {p.items} and {q.items}")
    if p.items > MOST_ITEMS_EXACT:
        raise ValueError(
            f"the divergence is computed for at most {MOST_ITEMS_EXACT} items, got {p.items}: estimate it by the mean "
            "of p.log_prob(x) - q.log_prob(x) over x = p.sample((samples,))"
        )
    shape = _broadcast_shapes(p.scores.shape, q.scores.shape)
    ours, theirs = p.scores.expand(shape), q.scores.expand(shape)
    return _expected_cost_of_choices(ours, lambda log_p, members: log_p - torch.log_softmax(theirs[..., members], -1))


def _broadcast_shapes(*shapes: torch.Size) -> torch.Size:
    shape: torch.Size = torch.broadcast_shapes(*shapes)
    return shape


def _first(values: Tensor, bad: Tensor) -> str:
    """The first bad value and where it is, for messages."""
    position = tuple(int(x) for x in torch.nonzero(bad)[0])
    return f"{values[position].item()} at position {position[0] if len(position) == 1 else position}"


def _check_finite(name: str, values: Tensor) -> None:
    finite = torch.isfinite(values)
    if not bool(finite.all()):
        raise ValueError(f"{name} must be finite, got {_first(values, ~finite)}")


def _check_count(name: str, value: Any, least: int, most: int | None = None) -> int:
    bounds = f"of at least {least}" if most is None else f"from {least} to the number of items, {most}"
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number {bounds}, got {value!r}") from None
    if number < least or (most is not None and number > most):
        raise ValueError(f"{name} must be a whole number {bounds}, got {number}")
    return number


# Primitives.


def _work_type(scores: Tensor) -> torch.dtype:
    return torch.float32 if scores.device.type == "mps" else torch.float64


def _suffix_logsumexp(x: Tensor) -> Tensor:
    """logsumexp of each element and all after it along the last dimension, in log2(N) doubling steps.

    torch.logcumsumexp would do forward; its backward adds log(gradient) to the scores, where scores of 1e30 swallow it
    and the gradient comes out wrong by a factor. The backward of logaddexp only forms differences of neighbours.
    """
    step = 1
    while step < x.shape[-1]:
        x = torch.cat([torch.logaddexp(x[..., :-step], x[..., step:]), x[..., -step:]], -1)
        step *= 2
    return x


# An item overtakes another that is this far ahead with probability exp(-1000), which no float64 holds.
_CERTAIN_GAP = 1000.0


def _relative_scores(scores: Tensor) -> Tensor:
    """Scores below the best one, with gaps between neighbours in rank cut to 1000.

    Utilities of these are ordered with the same probabilities, and no score is so large that it swallows the noise:
    of the scores 1e30, 0, 0 the last two must still be in random order.
    """
    ranked, order = scores.sort(-1, descending=True)
    gaps = (ranked[..., :-1] - ranked[..., 1:]).clamp(max=_CERTAIN_GAP)
    relative = functional.pad(-gaps.cumsum(-1), (1, 0))
    return torch.empty_like(relative).scatter(-1, order, relative)


def _uniform(shape: Sequence[int], like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Uniform on (0, 1): never 0, so that its logarithm is finite."""
    u = torch.rand(shape, dtype=like.dtype, device=like.device, generator=generator)
    return u.clamp_(min=0.5 * torch.finfo(like.dtype).eps)


def _exponential(shape: Sequence[int], like: Tensor, generator: torch.Generator | None) -> Tensor:
    return -_uniform(shape, like, generator).log()


def _gumbel(shape: Sequence[int], like: Tensor, generator: torch.Generator | None) -> Tensor:
    return -_exponential(shape, like, generator).log()


# Orders given tiers.


@dataclass(frozen=True)
class _ThresholdDensity:
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

    def of_tiers(self, kept: Tensor) -> _ThresholdDensity:
        """The tiers marked in `kept`, renumbered."""
        items = kept[self.tier]
        return _ThresholdDensity(self.log_odds[items], (torch.cumsum(kept, 0) - 1)[self.tier[items]])

    def repeat(self, tiers: int, times: int) -> _ThresholdDensity:
        """`times` copies of all the `tiers` tiers, one after the other."""
        shift = tiers * torch.arange(times, device=self.tier.device)
        return _ThresholdDensity(self.log_odds.repeat(times), (self.tier + shift[:, None]).flatten())


@dataclass(frozen=True)
class _Envelope:
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

    def of_tiers(self, index: Tensor) -> _Envelope:
        """The tiers at these numbers, or marked in a mask."""
        return _Envelope(*(x[index] for x in (self.top, self.left, self.left_rate, self.right, self.right_rate)))

    def propose(self, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """A draw from the normalised exp(envelope), and the envelope there."""
        shape, width = self.top.shape, self.right - self.left
        area = 1.0 / self.left_rate + width + 1.0 / self.right_rate
        place = _uniform(shape, self.top, generator) * area - 1.0 / self.left_rate
        fall = _exponential(shape, self.top, generator)
        in_left, in_right = place < 0.0, place > width
        y = torch.where(in_left, self.left - fall / self.left_rate, self.left + place)
        y = torch.where(in_right, self.right + fall / self.right_rate, y)
        return y, self.top - torch.where(in_left | in_right, fall, 0.0)


# How exactly the envelope is placed: these move the rate of acceptance a little, and never the distribution drawn from.
_LARGEST_EXCESS = 1e-3
_LARGEST_DROP = 1.5
_MOST_STEPS = 100


def _near_mode(density: _ThresholdDensity, size: Tensor) -> tuple[Tensor, Tensor]:
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


def _tangent(density: _ThresholdDensity, mode: Tensor, top: Tensor, side: int) -> tuple[Tensor, Tensor]:
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


def _make_envelope(density: _ThresholdDensity, size: Tensor) -> _Envelope:
    mode, top = _near_mode(density, size)
    return _Envelope(top, *_tangent(density, mode, top, -1), *_tangent(density, mode, top, 1))


def _sample_thresholds(density: _ThresholdDensity, envelope: _Envelope, generator: torch.Generator | None) -> Tensor:
    """y of each tier by rejection: propose from the envelope, accept with probability exp(f - envelope)."""
    y = torch.empty_like(envelope.top)
    pending = torch.arange(len(y), device=y.device)
    while len(pending):
        proposal, bound = envelope.propose(generator)
        accepted = density.log(proposal) - bound > -_exponential(proposal.shape, y, generator)
        y[pending[accepted]] = proposal[accepted]
        rejected = ~accepted
        pending = pending[rejected]
        density, envelope = density.of_tiers(rejected), envelope.of_tiers(rejected)
    return y


@dataclass(frozen=True)
class _Tiers:
    """Items of each row sorted by descending label; tiers numbered through all rows."""

    order: Tensor  # (rows, N) item at each sorted position
    tier: Tensor  # (rows, N) its tier
    log_odds: Tensor  # (rows, N) its score minus the logsumexp of everything below its tier
    size: Tensor  # (tiers,)


def _sort_into_tiers(scores: Tensor, labels: Tensor) -> _Tiers:
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
    suffix = _suffix_logsumexp(torch.cat([w, w.amin(-1, keepdim=True) - _CERTAIN_GAP], -1))  # (rows, N + 1)
    row = torch.div(begin, items, rounding_mode="floor")
    rest = suffix[row, begin - row * items + size]  # (tiers,)
    tier = (torch.cumsum(new.flatten(), 0) - 1).reshape(rows, items)
    return _Tiers(order, tier, w - rest[tier], size.to(w.dtype))


def _sample_tiers(tiers: _Tiers, samples: int, generator: torch.Generator | None) -> Tensor:
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
    density = _ThresholdDensity(bounded.flatten(), tiers.tier.flatten())
    envelope = _make_envelope(density, tiers.size)
    index = torch.arange(count, device=floor.device).repeat(samples)
    y = _sample_thresholds(density.repeat(count, samples), envelope.of_tiers(index), generator)

    shape = (samples, *tiers.order.shape)
    z = torch.exp(bounded + y.reshape(samples, count)[:, tiers.tier])  # (samples, rows, N)
    elapsed = -torch.log1p(_uniform(shape, z, generator) * torch.expm1(-z))
    by_time = (elapsed.log() - log_odds).argsort(-1)
    by_tier = tiers.tier.expand(shape).gather(-1, by_time).argsort(dim=-1, stable=True)
    return tiers.order.expand(shape).gather(-1, by_time.gather(-1, by_tier))


# Probabilities of a place among the first k.

# Neighbours in rank this far apart are taken to be in order for certain: an error of exp(-60) for each pair of items.
_BLOCK_GAP = 60.0
# The error of the rule aimed at is exp(-34) = 2e-15. With these three, halving the spacing changed no probability by
# more than 4e-15 of itself: 2 to 100 items, k = 1, 2, N / 2 and N - 1, equal, clustered, evenly spaced and random
# scores with a spread of up to 800. With up to 40 items, a spacing 1.5 times as wide was wrong by 1e-11.
_NODE_DEPTH = 34.0
_LARGEST_ANGLE = 1.25
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

    A block is a run of ranked scores without a gap above `_BLOCK_GAP`. Items of better blocks are among the first k for
    certain, items of worse blocks are not.
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

    Left end: the integrand is at most z_i there, and P_i >= P(i first of its block) >= exp(w_i - w_best) / N, so what
    lies left of -37 - log N is a share of less than 1e-16. Right end: P(arriving after y) <= exp(-exp(y - spread)),
    and given a place among the first k an item is only earlier, so what lies right of spread + log 40 is a share of
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
    angle = torch.sqrt(2.0 * _NODE_DEPTH / crowd).clamp(max=_LARGEST_ANGLE)
    spacing = 2.0 * math.pi * angle / (_NODE_DEPTH + 0.5 * crowd * angle**2)
    left, right = -37.0 - math.log(items), spread + math.log(40.0)
    number = torch.ceil((right - left) / spacing).to(torch.int64) + 1
    row = torch.repeat_interleave(torch.arange(rows, device=ranked.device), number)
    step = torch.arange(len(row), device=ranked.device) - (torch.cumsum(number, 0) - number)[row]
    return _Nodes(row, left + spacing[row] * step, spacing)


def _at_most_others(z: Tensor, k: int) -> Tensor:
    """P(fewer than k of the items other than i have arrived), for each i and node; z and the result are (N, nodes).

    The count over all items but i is the sum of the counts before i and after i in the list: probabilities of counts
    from the front times tail probabilities from the back. Only sums of products of positive numbers, so every result
    has full relative accuracy; taking item i out of the count over all items by division would subtract.
    """
    arrived, waiting = -torch.expm1(-z), torch.exp(-z)
    items, nodes = z.shape
    front = z.new_zeros(items, k, nodes)  # front[i, c] = P(c of the items before i have arrived)
    front[0, 0] = 1.0
    for i in range(items - 1):
        front[i + 1] = front[i] * waiting[i]
        front[i + 1, 1:] += front[i, :-1] * arrived[i]
    back = z.new_ones(k, nodes)  # back[c] = P(fewer than k - c of the items after i have arrived)
    result = torch.empty_like(z)
    for i in range(items - 1, -1, -1):
        result[i] = (front[i] * back).sum(0)
        shifted = back[1:] * arrived[i]
        back = back * waiting[i]
        back[:-1] += shifted
    return result


def _top_probabilities(scores: Tensor, k: int) -> Tensor:
    """P(among the first k) of each item of 2-D scores, k < N."""
    ranked = scores.sort(-1, descending=True).values
    best, worst = _straddling_block(ranked, k)
    relative = scores - best
    nodes = _place_nodes(ranked, (best - worst)[:, 0])
    total = torch.zeros_like(scores)
    chunk = max(1, _LARGEST_TABLE // (scores.shape[-1] * k))
    for first in range(0, len(nodes.y), chunk):
        row, y = nodes.row[first : first + chunk], nodes.y[first : first + chunk]
        log_z = relative[row].T + y  # (N, nodes)
        z = torch.exp(log_z)
        arrival = torch.exp(log_z - z)  # density of the arrival time in y; log_z - inf = -inf where z overflows
        total.index_add_(0, row, (arrival * _at_most_others(z, k) * nodes.spacing[row]).T)
    total = torch.where(relative > 0.0, 1.0, total)
    return torch.where(relative < worst - best, 0.0, total).clamp(max=1.0)


# Sums over all orders, by the set of items left.


@lru_cache(maxsize=MOST_ITEMS_EXACT)
def _subsets(items: int) -> list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """For each size from 1: the subsets' members, and for each member the number of the subset without it.

    Both (subsets, size); subsets of a size are numbered in lexicographic order.
    """
    layers = []
    number: dict[tuple[int, ...], int] = {(): 0}
    for size in range(1, items + 1):
        subsets = list(itertools.combinations(range(items), size))
        without = [[number[s[:j] + s[j + 1 :]] for j in range(size)] for s in subsets]
        layers.append((np.array(subsets, np.int64), np.array(without, np.int64)))
        number = {s: n for n, s in enumerate(subsets)}
    return layers


def _expected_cost_of_choices(scores: Tensor, cost: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """E[sum over places of cost(choice)], by V(T) = sum_{i in T} p_i (cost_i(T) + V(T - i)). O(N 2^N).

    `cost` takes log p and the members of all subsets of a size, (..., subsets, size) and (subsets, size).
    """
    value = scores.new_zeros(*scores.shape[:-1], 1)
    for members, without in _subsets(scores.shape[-1]):
        items = torch.as_tensor(members, device=scores.device)
        log_p = torch.log_softmax(scores[..., items], -1)
        after = value[..., torch.as_tensor(without, device=scores.device)]
        value = (log_p.exp() * (cost(log_p, items) + after)).sum(-1)
    return value[..., 0]
