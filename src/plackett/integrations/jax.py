"""The exact likelihood of tiers in pure JAX, in the conventions of rax: jitted, differentiable, on any device.

    from plackett.integrations.jax import partition_loss
    loss, gradient = jax.value_and_grad(partition_loss)(scores, labels, where=where)

The mathematics is that of `plackett.likelihood.vectorised`. Shapes are static under `jax.jit`, so all items of all
lists lie in one sorted array, and sums over tiers are segment sums. Nodes are processed one after the other, so memory
stays linear in the number of items. Values are as exact as the type of the scores allows; enable x64 in JAX for
float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from plackett.arguments import DEFAULT_TOL
from plackett.likelihood.constants import LARGEST_ANGLE
from plackett.lists import takes_mask

__all__ = ["partition_loss"]

_MOST_DOUBLINGS = 6
_MOST_INTERVALS = 4096
_NEWTON_STEPS = 30
_END_STEPS = 12


@takes_mask
def partition_loss(
    scores: Any,
    labels: Any,
    *,
    where: Any = None,
    segments: Any = None,
    weights: Any = None,
    reduce_fn: Callable[..., Any] | None = jnp.mean,
) -> Any:
    """PL-Partition: minus the exact log-likelihood of the tiers of each list; a rax loss.

    Items with equal labels form a tier, whose order is unknown; higher labels are preferred.

    >>> loss = partition_loss(jnp.array([1.0, 0.5, -1.0, 0.0]), jnp.array([1, 1, 0, 0]))
    >>> print(f"{loss:.4f}")
    0.7978

    Args:
        scores, labels: (..., items), one list per row.
        where: (..., items) marks the items; None: all entries are items. `mask` is another name for it.
        segments: (..., items), several lists per row: items of a row with the same number form a list.
        weights: one weight per list, (...); with segments (..., items), of which the first item of each segment counts.
        reduce_fn: jnp.mean or jnp.sum over the lists with an item, or None: one value per list; with segments one per
            entry, as in rax: the loss of a segment stands at its first item, and the other entries are 0.

    Returns:
        The loss, in the type of the scores; half precision becomes float32. Scores or labels that are NaN give NaN. It
        can be differentiated twice, the second time in forward mode: jax.jacfwd(jax.grad(partition_loss)).
    """
    w = jnp.asarray(scores)
    if not jnp.issubdtype(w.dtype, jnp.floating):
        raise ValueError(f"scores must be floating point, got {w.dtype}")
    if w.ndim == 0:
        raise ValueError("scores must have at least one dimension (the items), got a single number")
    w = w.astype(jnp.promote_types(w.dtype, jnp.float32))
    y = _exact_labels(labels)
    is_item = jnp.ones(w.shape, bool) if where is None else jnp.asarray(where)
    segment = jnp.zeros(w.shape, jnp.int32) if segments is None else jnp.asarray(segments)
    for name, array in (("labels", y), ("where", is_item), ("segments", segment)):
        if array.shape != w.shape:
            raise ValueError(f"{name} must have the shape of scores, {w.shape}, got {array.shape}")
    if is_item.dtype != jnp.bool_:
        raise ValueError(f"where must be boolean, got {is_item.dtype}")
    value = _log_likelihood_per_item(w, y, segment, is_item)
    first = _first_items(segment, is_item)
    if segments is None:
        value, first = jnp.where(first, value, 0.0).sum(-1), is_item.any(-1)
    return _reduce(-value, first, weights, reduce_fn)


def _exact_labels(labels: Any) -> Any:
    """Labels as a JAX array; their ranks if JAX would round some of them, so that no two become equal."""
    if isinstance(labels, jax.Array):
        return labels
    given = np.asarray(labels)
    found = jnp.asarray(given)
    if found.dtype != given.dtype and (np.asarray(found) != given).any() and not np.isnan(given).any():
        return jnp.asarray(np.unique(given, return_inverse=True)[1].reshape(given.shape))
    return found


def _reduce(loss: Any, counted: Any, weights: Any, reduce_fn: Callable[..., Any] | None) -> Any:
    """`reduce_fn` over the lists that count; the mean over no list is 0, and a genuine NaN is kept."""
    weighted = loss if weights is None else loss * _check_weights(weights, loss.shape)
    if reduce_fn is None:
        return jnp.where(counted, weighted, 0.0)
    if reduce_fn is not jnp.mean:
        return reduce_fn(weighted, where=counted)
    total = jnp.sum(jnp.ones_like(loss) if weights is None else jnp.asarray(weights), where=counted)
    return jnp.sum(weighted, where=counted) / jnp.where(total > 0, total, 1.0)


def _check_weights(weights: Any, shape: tuple[int, ...]) -> Any:
    weight = jnp.asarray(weights)
    if weight.shape != shape:
        raise ValueError(f"weights must hold one value per list, {shape}, got {weight.shape}")
    return weight


def _first_items(segment: Any, is_item: Any) -> Any:
    """Marks the first item of each segment of each row, (..., items)."""
    count = segment.shape[-1]
    order = jnp.lexsort((~is_item, segment), axis=-1)  # stable: the first item of each run is the first of its segment
    by_segment, item = (jnp.take_along_axis(x, order, -1) for x in (segment, is_item))
    changes = by_segment[..., 1:] != by_segment[..., :-1]
    begins = jnp.concatenate([jnp.ones((*segment.shape[:-1], min(1, count)), bool), changes], -1)
    back = jnp.argsort(order, axis=-1)
    return jnp.take_along_axis(begins & item, back, -1)


@jax.jit  # so that calls outside a jitted function do not trace the loops each time
def _log_likelihood_per_item(scores: Any, labels: Any, segment: Any, is_item: Any) -> Any:
    """The log-likelihood of the list of each entry, in the shape of the scores; 0 for entries that are not items."""
    shape, count = scores.shape, scores.shape[-1]
    if scores.size == 0:
        return jnp.zeros(shape, scores.dtype)
    row = jnp.repeat(jnp.arange(scores.size // count), count)
    labels = jnp.where(is_item, labels, jnp.zeros_like(labels)).reshape(-1)
    w = jnp.where(is_item, scores, 0.0).reshape(-1)
    w = w + jnp.where(jnp.isnan(labels), jnp.nan, 0.0).astype(w.dtype)  # a NaN label has no tier
    tiers = _sort_into_tiers(labels, (is_item.reshape(-1), segment.reshape(-1), row))
    return _log_likelihood(w, tiers).reshape(shape)


class _TierSegments(NamedTuple):
    """Items sorted by list and descending label. Tiers and lists have consecutive numbers, one per item at most.

    order       (items,) position of each sorted item in the input
    tier, list  (items,) of each sorted item
    begin, end  (items,) first and last position of its tier
    head        (items,) whether an item is the first of its list
    is_last     (items,) whether its tier is the last of its list
    """

    order: Any
    tier: Any
    list: Any
    begin: Any
    end: Any
    head: Any
    is_last: Any


def _sort_into_tiers(labels: Any, list_keys: tuple[Any, ...]) -> _TierSegments:
    order = jnp.lexsort((labels, *list_keys))[::-1]
    head, new = _changes([key[order] for key in list_keys]), _changes([x[order] for x in (labels, *list_keys)])
    position = jnp.arange(len(order))
    tier, list_ = jnp.cumsum(new) - 1, jnp.cumsum(head) - 1
    begin = lax.cummax(jnp.where(new, position, 0))
    closes = jnp.append(new[1:], True)
    end = lax.cummin(jnp.where(closes, position, len(order)), reverse=True)
    is_last = jnp.append(head, True)[end + 1]
    return _TierSegments(order, tier, list_, begin, end, head, is_last)


def _changes(keys: list[Any]) -> Any:
    """Marks where any of the keys differs from the one before; the first position is marked."""
    changed = jnp.zeros(len(keys[0]), bool).at[0].set(True)
    for key in keys:
        changed = changed.at[1:].set(changed[1:] | (key[1:] != key[:-1]))
    return changed


@jax.custom_vjp
def _log_likelihood(w: Any, tiers: _TierSegments) -> Any:
    """The log-likelihood of the list of each item."""
    return _value_and_gradient(w, tiers)[0]


def _forward(w: Any, tiers: _TierSegments) -> tuple[Any, Any]:
    value, gradient = _value_and_gradient(w, tiers)
    return value, (gradient, tiers)


def _backward(saved: Any, cotangent: Any) -> tuple[Any, None]:
    """Each item holds the value of its list: the cotangents of a list add up."""
    gradient, tiers = saved
    of_list = jax.ops.segment_sum(cotangent[tiers.order], tiers.list, len(gradient))
    restored = jnp.zeros_like(gradient).at[tiers.order].set(of_list[tiers.list])
    return restored * gradient, None


_log_likelihood.defvjp(_forward, _backward)


def _value_and_gradient(w: Any, tiers: _TierSegments) -> tuple[Any, Any]:
    """The value of the list of each item, and the gradient, both in the order of the input."""
    count = len(w)
    x = w[tiers.order]
    below = _running_sum(_Sum(x, jnp.ones_like(x)), jnp.append(tiers.head[1:], True), reverse=True)
    rest = below.at(jnp.minimum(tiers.end + 1, count - 1))  # exp(w_R)
    log_odds = jnp.where(tiers.is_last, 0.0, (x - rest.peak) - jnp.log(rest.ratio))
    value, own = _tier_probabilities(log_odds, tiers)
    value = jnp.where(tiers.is_last & ~jnp.isnan(x), 0.0, value)  # at each item, the value of its tier
    own = jnp.where(tiers.is_last, 0.0, own)

    total = jax.ops.segment_sum(jnp.where(tiers.begin == jnp.arange(count), value, 0.0), tiers.list, count)
    pull = jax.ops.segment_sum(own, tiers.tier, count)[tiers.tier]
    closing = (tiers.end == jnp.arange(count)) & ~tiers.is_last
    pulls = _Sum(jnp.where(closing, -rest.peak, -jnp.inf), jnp.where(closing, pull / rest.ratio, 0.0))
    above = _running_sum(pulls, tiers.head, reverse=False)  # sum of G exp(-w_R)
    inherited = above.at(jnp.maximum(tiers.begin - 1, 0))
    exponent = jnp.where(tiers.head[tiers.begin], 0.0, x + inherited.peak)
    # An item's share of a tier's pull is at most the whole: only rounding of huge scores can exceed it.
    most = jax.ops.segment_sum(own, tiers.list, count)[tiers.list]
    pulled = jnp.minimum(jnp.exp(exponent) * inherited.ratio, most)
    gradient = own - jnp.where(tiers.head[tiers.begin], 0.0, pulled)
    back = jnp.zeros_like(tiers.order).at[tiers.order].set(jnp.arange(count))
    return total[tiers.list][back], gradient[back]


class _Sum(NamedTuple):
    """ratio * exp(peak). The peak is one of the scores, so that its difference from another loses no digits."""

    peak: Any
    ratio: Any

    def at(self, positions: Any) -> _Sum:
        return _Sum(self.peak[positions], self.ratio[positions])

    def add(self, other: _Sum) -> _Sum:
        peak = jnp.maximum(self.peak, other.peak)
        finite = jnp.where(peak == -jnp.inf, 0.0, peak)
        return _Sum(peak, self.ratio * jnp.exp(self.peak - finite) + other.ratio * jnp.exp(other.peak - finite))


def _running_sum(terms: _Sum, head: Any, *, reverse: bool) -> _Sum:
    """Sums from the start of each list up to each item; `head` marks the starts (the ends if `reverse`)."""

    def join(left: tuple[_Sum, Any], right: tuple[_Sum, Any]) -> tuple[_Sum, Any]:
        (a, before), (b, starts) = left, right
        both = a.add(b)
        kept = _Sum(jnp.where(starts, b.peak, both.peak), jnp.where(starts, b.ratio, both.ratio))
        return kept, before | starts

    total: _Sum = lax.associative_scan(join, (terms, head), reverse=reverse)[0]
    return total


def _tier_probabilities(log_odds: Any, tiers: _TierSegments) -> tuple[Any, Any]:
    """log P of the tier of each item and d log P / d l of each item. One item is in closed form."""
    single = tiers.begin == tiers.end
    value, gradient = _quadrature(jnp.where(single, 0.0, log_odds), tiers)
    own = jnp.where(single, log_odds, 0.0)
    return (
        jnp.where(single, jax.nn.log_sigmoid(own), value[tiers.tier]),
        jnp.where(single, jax.nn.sigmoid(-own), gradient),
    )


class _Integrand(NamedTuple):
    """exp(f(y)) of all tiers side by side, f(y) = y - e^y + sum_i log(1 - exp(-z_i)), z_i = exp(log_odds_i + y).

    Items below the rest (log odds under 0) have log(1 - exp(-z)) = log_odds + y + log((1 - exp(-z)) / z), whose last
    term is small: no digits are lost next to large negative log odds, and z may underflow.
    """

    log_odds: Any  # (items,) small enough for z to be finite
    tier: Any  # (items,)

    def sum(self, x: Any) -> Any:
        return jax.ops.segment_sum(x, self.tier, len(x), indices_are_sorted=True)

    def _z(self, y: Any) -> Any:
        z = jnp.exp(self.log_odds + y[self.tier])
        return jnp.maximum(z, jnp.finfo(z.dtype).tiny)

    def _log_factor(self, y: Any) -> Any:
        """log(1 - exp(-z)), of items below the rest without log_odds + y."""
        z = self._z(y)
        return jnp.log(-jnp.expm1(-z) / jnp.where(self.log_odds < 0.0, z, 1.0))

    def log(self, y: Any) -> Any:
        """f at one y per tier."""
        linear = jnp.where(self.log_odds < 0.0, self.log_odds + y[self.tier], 0.0)
        return y - jnp.exp(y) + self.sum(linear + self._log_factor(y))

    def log_ratio(self, y: Any, mode: Any) -> Any:
        """f(y) - f(mode), from differences of each item: sums over many items would lose digits."""
        step = y - mode
        linear = jnp.where(self.log_odds < 0.0, step[self.tier], 0.0)
        growth = jnp.exp(mode) * jnp.expm1(step)
        return step - growth + self.sum(linear + self._log_factor(y) - self._log_factor(mode))

    def phi(self, y: Any) -> tuple[Any, Any]:
        """phi_i = z_i / expm1(z_i) and z_i of each item."""
        z = self._z(y)
        return z / -jnp.expm1(-z) * jnp.exp(-z), z

    def slope_and_curvature(self, y: Any) -> tuple[Any, Any]:
        """f' = 1 - t + sum phi_i and -f'' = t + sum phi_i (z_i + phi_i - 1), t = e^y."""
        t = jnp.exp(y)
        phi, z = self.phi(y)
        return 1.0 - t + self.sum(phi), t + self.sum(phi * (z + phi - 1.0))


def _mode(integrand: _Integrand, size: Any) -> tuple[Any, Any]:
    """The maximum of f for each tier and the curvature there."""

    def unfinished(state: tuple[Any, ...]) -> Any:
        steps, _, _, _, slope, curvature = state
        return (steps < _NEWTON_STEPS) & ~(jnp.abs(slope) < 0.1 * jnp.sqrt(curvature)).all()

    def newton(state: tuple[Any, ...]) -> tuple[Any, ...]:
        steps, low, high, y, slope, curvature = state
        low, high = jnp.where(slope > 0, y, low), jnp.where(slope > 0, high, y)
        step = y + slope / curvature
        y = jnp.where((step > low) & (step < high), step, 0.5 * (low + high))
        return steps + 1, low, high, y, *integrand.slope_and_curvature(y)

    high = jnp.log1p(size)
    middle = 0.5 * high
    start = (0, jnp.zeros_like(high), high, middle, *integrand.slope_and_curvature(middle))
    _, _, _, y, _, curvature = lax.while_loop(unfinished, newton, start)
    return y, curvature


def _ends(integrand: _Integrand, mode: Any, depth: float) -> tuple[Any, Any]:
    """Where f has dropped by `depth` on both sides of the mode.

    f is concave: from a point far enough to the left Newton's method climbs to the left end without passing it.
    """
    t = jnp.exp(mode)
    right = jnp.minimum(jnp.sqrt(2.0 * depth / t), math.log1p(depth) + 2.0)

    def climb(_: int, left: Any) -> Any:
        slope, _ = integrand.slope_and_curvature(left)
        step = (-depth - integrand.log_ratio(left, mode)) / slope
        return jnp.minimum(left + jnp.maximum(step, 0.0), mode)

    return lax.fori_loop(0, _END_STEPS, climb, mode - depth / t - 1.0), mode + right


class _Grid(NamedTuple):
    """Equally spaced nodes of each tier, around its mode. They do not depend on the scores for autodiff: the rule is
    exact wherever they are, so that second derivatives come from the same nodes."""

    mode: Any  # (tiers,)
    left: Any  # (tiers,)
    width: Any  # (tiers,) from the first node to the last
    intervals: Any  # one number for all tiers

    def at(self, k: Any) -> Any:
        return self.left + self.width * (k.astype(self.left.dtype) / self.intervals.astype(self.left.dtype))

    def spacing(self) -> Any:
        return self.width / self.intervals.astype(self.left.dtype)

    def integral(self, integrand: _Integrand) -> Any:
        """The integral of exp(f - f(mode)) of each tier, by the trapezoid rule."""

        def add(k: Any, total: Any) -> Any:
            return total + jnp.exp(integrand.log_ratio(self.at(k), self.mode))

        return lax.fori_loop(jnp.int32(0), self.intervals + 1, add, jnp.zeros_like(self.mode)) * self.spacing()


def _choose_nodes(integrand: _Integrand, size: Any, tol: float) -> _Grid:
    """A spacing from the curvature, halved until values no longer change. The error falls at least quadratically."""
    depth = -math.log(tol)
    mode, curvature = _mode(integrand, size)
    angle = jnp.minimum(jnp.sqrt(2.0 * depth / curvature), LARGEST_ANGLE)
    spacing = 2.0 * math.pi * angle / (depth + 0.5 * curvature * angle**2)
    left, right = _ends(integrand, mode, depth + 3.0)
    wanted = jnp.nan_to_num(jnp.ceil((right - left) / spacing).max(), nan=8.0)
    first = _Grid(mode, left, right - left, jnp.clip(wanted, 8, _MOST_INTERVALS).astype(jnp.int32))

    def changes(state: tuple[Any, Any, Any, Any]) -> Any:
        evaluated, _, before, now = state
        settled = (jnp.abs(now - before) <= tol**0.75 * now) | jnp.isnan(now)
        return (evaluated < 2) | ((evaluated <= _MOST_DOUBLINGS) & ~settled.all())

    def double(state: tuple[Any, Any, Any, Any]) -> tuple[Any, Any, Any, Any]:
        evaluated, intervals, _, now = state
        return evaluated + 1, 2 * intervals, now, first._replace(intervals=intervals).integral(integrand)

    unknown = jnp.zeros_like(mode)
    doubled = lax.while_loop(changes, double, (0, first.intervals, unknown, unknown))[1]
    return first._replace(intervals=doubled // 2)


def _quadrature(log_odds: Any, tiers: _TierSegments) -> tuple[Any, Any]:
    """log P of each tier and d log P / d l of each item; see `plackett.likelihood.vectorised`.

    Tiers far above the rest are moved down by their `level`, and log P and its derivatives are taken from 1 - P.
    """
    dtype, tier, count = log_odds.dtype, tiers.tier, len(log_odds)
    size = jnp.maximum(jax.ops.segment_sum(jnp.ones(count, dtype), tier, count), 1.0)
    lowest = jax.ops.segment_min(log_odds, tier, count)
    far_above = (lowest > jnp.log(4.0 + 4.0 * jnp.log(size))) & jnp.isfinite(lowest)
    level = jnp.where(far_above, lowest, 0.0)
    largest = math.log(float(jnp.finfo(dtype).max)) - 20.0  # still finite after multiplication by the largest t
    integrand = _Integrand(jnp.minimum(log_odds - level[tier], largest), tier)
    fixed = _Integrand(lax.stop_gradient(integrand.log_odds), tier)
    nodes = lax.stop_gradient(_choose_nodes(fixed, size, DEFAULT_TOL[np.dtype(dtype)]))
    top = integrand.log(nodes.mode)
    epsilon = jnp.exp(-level)

    def accumulate(k: Any, sums: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        total, gradient, complement = sums
        y = nodes.at(k)
        s = jnp.exp(y)
        t = epsilon * s
        log_ratio = integrand.log_ratio(y, nodes.mode)
        weight = jnp.exp(log_ratio + jnp.where(far_above, top - level + (s - t), 0.0))
        pull = weight[tier] * integrand.phi(y)[0]
        growth = jnp.where(t > 0.0, jnp.expm1(t) / jnp.where(t > 0.0, t, 1.0), 1.0)
        return total + jnp.exp(log_ratio), gradient + pull, complement + integrand.sum(pull * growth[tier])

    nothing = jnp.zeros_like(size), jnp.zeros_like(log_odds), jnp.zeros_like(size)
    total, gradient, complement = lax.fori_loop(jnp.int32(0), nodes.intervals + 1, accumulate, nothing)
    complement = jnp.where(far_above, complement * nodes.spacing(), 0.0)
    scale = jnp.where(far_above, nodes.spacing() / (1.0 - complement), 1.0 / total)
    return jnp.where(far_above, jnp.log1p(-complement), top + jnp.log(total * nodes.spacing())), gradient * scale[tier]
