"""Value and derivatives of prepared partial orders: every block by its method, then put together."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import numpy.typing as npt

from plackett.errors import AccuracyWarning
from plackett.likelihood.constants import LARGEST_SCORE
from plackett.likelihood.core import evaluate_tiers, raise_bad_score
from plackett.likelihood.partial_orders.down_set_kernels import DERIVATIVES, VALUE, down_set_blocks
from plackett.likelihood.partial_orders.forest_kernels import forest_blocks
from plackett.likelihood.partial_orders.order_structure import Blocks, NestedBlocks, PartialOrders
from plackett.likelihood.partial_orders.sampling_kernels import gibbs_blocks, importance_blocks
from plackett.likelihood.partial_orders.series_kernels import series_blocks
from plackett.likelihood.partial_orders.series_steps import interpolation
from plackett.likelihood.partial_orders.structure_kernels import spread_rests, sum_rests
from plackett.likelihood.partial_orders.tree_kernels import NODES, tree_blocks
from plackett.lists import IntArray
from plackett.threads import run_over_ranges

Floats = npt.NDArray[np.float64]

DEFAULT_SAMPLES = 4096
_FEWEST_GROUPS, _MOST_GROUPS, _PER_GROUP = 8, 32, 16
_COST_PER_ITEM, _COST_PER_STATE, _COST_PER_NESTED_ITEM, _COST_PER_DRAW = 50, 500, 200_000, 40
_SMALLEST_NESTED_TOL = 1e-11  # rounding in the sums of logarithms
_SPLITS = (2, 4, 8)  # panels per octave of series-parallel orders, until they are enough
_WARNING_FACTOR = 100.0


@dataclass
class Sampler:
    """How orders are sampled: `samples` of each block, with random numbers from `rng`.

    Gibbs chains go on from call to call. With `is_fixed` every evaluation uses the same random numbers and starts
    over, as solvers need.
    """

    rng: np.random.Generator
    samples: int = DEFAULT_SAMPLES
    is_fixed: bool = False
    orders: npt.NDArray[np.int32] | None = None  # (chains, entries), where each chain is
    started: npt.NDArray[np.int64] | None = None  # (blocks,), 0 for chains that are nowhere yet
    _seeds: dict[str, npt.NDArray[np.uint64]] = field(default_factory=dict)

    @property
    def groups(self) -> int:
        """Independent groups of importance samples, and Gibbs chains: their differences give standard errors."""
        return min(max(self.samples // _PER_GROUP, _FEWEST_GROUPS), _MOST_GROUPS)

    @property
    def per_group(self) -> int:
        return -(-self.samples // self.groups)

    def states(self, purpose: str, blocks: int) -> npt.NDArray[np.uint64]:
        """A stream of random numbers for each block and group."""
        if self.is_fixed and purpose in self._seeds:
            return self._seeds[purpose].copy()
        found = self.rng.integers(0, 2**64, (blocks, self.groups), np.uint64)
        if self.is_fixed:
            self._seeds[purpose] = found.copy()
        return found


@dataclass
class OrderEvaluation:
    """By list: the value, its standard error and the effective sample size; by item: derivatives and standard errors.

    `unevenness` is the coefficient of variation of the estimates of P by independent groups, the largest of a list.
    Standard errors are 0 and effective sample sizes infinite where nothing was sampled. The curvature is exact for
    forests, tiers and trees, an upper bound for series-parallel orders and down-sets, and estimated for samples.
    """

    value: Floats
    value_error: Floats
    effective: Floats
    unevenness: Floats
    gradient: Floats
    gradient_error: Floats
    curvature: Floats


def evaluate_orders(
    orders: PartialOrders, scores: Floats, *, derivatives: bool, tol: float, sampler: Sampler, value: bool = True
) -> OrderEvaluation:
    """Value of each list and, with `derivatives`, derivatives by all scores. Without `value` samples give no values."""
    bad = np.flatnonzero(~(np.abs(scores) <= LARGEST_SCORE))
    if len(bad):
        raise_bad_score(float(scores[bad[0]]), int(bad[0]))
    rests = len(orders.rest_begin)
    extended = np.concatenate([scores, np.empty(rests)])
    sum_rests(orders.rest_begin, orders.rest_end, orders.arranged, scores, extended[orders.items :])
    size = len(extended) if derivatives else 0
    found = OrderEvaluation(*(np.zeros(orders.lists) for _ in range(4)), *(np.zeros(size) for _ in range(3)))
    found.effective[:] = np.inf
    _add_forests(orders, extended, found)
    _add_tiers(orders, extended, tol, found)
    _add_nested(orders.trees, extended, tol, _run_trees, found)
    _add_nested(orders.in_series, extended, tol, _run_series, found)
    _add_down_sets(orders, extended, found)
    if len(orders.sampled):
        local = extended[orders.sampled.items]
        if value:
            _add_importance(orders.sampled, local, sampler, found)
        if derivatives:
            _add_gibbs(orders.sampled, local, sampler, found)
    if derivatives:
        _pass_to_items(orders, extended, found)
    return found


def _pass_to_items(orders: PartialOrders, extended: Floats, found: OrderEvaluation) -> None:
    """Pass the derivatives by the worths of rests on to their items; until here errors are variances."""
    n = orders.items
    places = orders.rest_begin, orders.rest_end, orders.arranged, extended[:n], extended[n:]
    rests = found.gradient[n:], found.curvature[n:]
    spread_rests(*places, *rests, found.gradient[:n], found.curvature[:n])
    spread_rests(*places, np.zeros(len(rests[0])), found.gradient_error[n:], np.empty(n), found.gradient_error[:n])
    found.gradient, found.curvature = found.gradient[:n], found.curvature[:n]
    found.gradient_error = np.sqrt(found.gradient_error[:n])


def _add_forests(orders: PartialOrders, extended: Floats, found: OrderEvaluation) -> None:
    forests = orders.forests
    value = np.empty(len(forests.begin))
    run_over_ranges(
        lambda first, last: forest_blocks(
            first, last, forests.begin, forests.end, orders.arranged, forests.parents, extended, value, found.gradient,
            found.curvature,
        ),
        np.concatenate(([0], np.cumsum(forests.end - forests.begin))) * _COST_PER_ITEM,
    )  # fmt: skip
    np.add.at(found.value, forests.lists, value)


def _add_tiers(orders: PartialOrders, extended: Floats, tol: float, found: OrderEvaluation) -> None:
    blocks = orders.tiers
    if len(blocks.lists) == 0:
        return
    has_derivatives = found.gradient.size > 0
    value, gradient, curvature = evaluate_tiers(
        extended[blocks.items], blocks.tiers, tol=tol, derivatives=has_derivatives
    )
    np.add.at(found.value, blocks.lists, value)
    if has_derivatives:
        found.gradient[blocks.items] = gradient
        found.curvature[blocks.items] = curvature


@cache
def panel_rule() -> tuple[Floats, Floats]:
    """Gauss-Legendre nodes on [-1, 1], and the integrals from -1 to each node, and to 1, of their polynomials.

    The polynomial that is 1 at node k has the Legendre coefficients (2 m + 1) / 2 P_m(x_k) weight_k, and the integral
    of P_m from -1 to x is (P_{m+1}(x) - P_{m-1}(x)) / (2 m + 1).
    """
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    to_nodes = np.polynomial.legendre.legvander(nodes, NODES)  # (nodes, degrees)
    integrals = np.empty((NODES, NODES))
    integrals[:, 0] = nodes + 1.0
    degree = np.arange(1, NODES)
    integrals[:, 1:] = (to_nodes[:, 2:] - to_nodes[:, :-2]) / (2 * degree + 1)
    coefficients = (np.arange(NODES) + 0.5)[:, None] * to_nodes[:, :NODES].T * weights
    return nodes, np.concatenate([integrals @ coefficients, weights[None]])


def _add_nested(
    nested: NestedBlocks, extended: Floats, tol: float, run: Callable[..., None], found: OrderEvaluation
) -> None:
    """Blocks that are integrated along their structure by `run`, with scores relative to their summed worths."""
    blocks = nested.blocks
    if len(blocks) == 0:
        return
    scores = extended[blocks.items]
    peak = np.maximum.reduceat(scores, blocks.starts[:-1])
    sizes = np.diff(blocks.starts)
    total = peak + np.log(np.add.reduceat(np.exp(scores - np.repeat(peak, sizes)), blocks.starts[:-1]))
    scores -= np.repeat(total, sizes)
    value, error = np.empty(len(blocks)), np.full(len(blocks), np.inf)
    gradient, curvature = np.empty(blocks.entries), np.empty(blocks.entries)
    aim = max(tol, _SMALLEST_NESTED_TOL)
    run(nested, scores, aim, value, error, gradient, curvature)
    worst = int(np.argmax(error))
    if not np.isfinite(error[worst]):
        raise ValueError(
            f"scores of list {blocks.lists[worst]} spread too far for nested integrals, by {-scores.min():.3g}: "
            'bring them closer together, or use method="sampling"'
        )
    if not error[worst] <= _WARNING_FACTOR * aim:
        warnings.warn(
            f"the log-likelihood of list {blocks.lists[worst]} has an estimated error of {error[worst]:.1e} where "
            f'{aim:.1e} was requested: compare it with method="sampling"',
            AccuracyWarning,
            stacklevel=4,
        )
    _store_blocks(blocks, value, gradient, curvature, found)


def _run_trees(
    nested: NestedBlocks, scores: Floats, aim: float, value: Floats, error: Floats, gradient: Floats, curvature: Floats
) -> None:
    starts = nested.blocks.starts
    nodes, matrix = panel_rule()
    run_over_ranges(
        lambda first, last: tree_blocks(
            first, last, starts, nested.part_starts, nested.parts, nodes, matrix, scores, aim, value, error, gradient,
            curvature,
        ),
        starts * _COST_PER_NESTED_ITEM,
    )  # fmt: skip


def _run_series(
    nested: NestedBlocks, scores: Floats, aim: float, value: Floats, error: Floats, gradient: Floats, curvature: Floats
) -> None:
    for splits in _SPLITS:
        if not (error <= aim).all():
            _refine_series(splits, nested, scores, aim, value, error, gradient)
    curvature[:] = 1.0 - gradient  # E[exp(w) T], the information if times were seen: an upper bound


def _refine_series(
    splits: int, nested: NestedBlocks, scores: Floats, aim: float, value: Floats, error: Floats, gradient: Floats
) -> None:
    starts = nested.blocks.starts
    nodes, matrix = panel_rule()
    shifts, weights = interpolation(splits)
    run_over_ranges(
        lambda first, last: series_blocks(
            first, last, starts, nested.part_starts, nested.parts, splits, nodes, matrix, shifts, weights, scores, aim,
            value, error, gradient,
        ),
        starts * _COST_PER_NESTED_ITEM,
    )  # fmt: skip


def _store_blocks(blocks: Blocks, value: Floats, gradient: Floats, curvature: Floats, found: OrderEvaluation) -> None:
    np.add.at(found.value, blocks.lists, value)
    if found.gradient.size:
        found.gradient[blocks.items] = gradient
        found.curvature[blocks.items] = curvature


def _add_down_sets(orders: PartialOrders, extended: Floats, found: OrderEvaluation) -> None:
    blocks = orders.down_sets
    if len(blocks) == 0:
        return
    size = blocks.entries if found.gradient.size else 0
    value, gradient, curvature = np.empty(len(blocks)), np.empty(size), np.empty(size)
    states, scores = orders.states.copy(), extended[blocks.items]
    run_over_ranges(
        lambda first, last: down_set_blocks(
            first, last, blocks.starts, blocks.parent_starts, blocks.parents, scores, orders.states,
            DERIVATIVES if size else VALUE, states, value, gradient, curvature,
        ),
        np.concatenate(([0], np.cumsum(orders.states * _COST_PER_STATE))),
    )  # fmt: skip
    _store_blocks(blocks, value, gradient, curvature, found)


def _draw_cost(blocks: Blocks, draws: int) -> IntArray:
    return blocks.starts * (_COST_PER_DRAW * draws)


def _add_importance(blocks: Blocks, scores: Floats, sampler: Sampler, found: OrderEvaluation) -> None:
    log_means, effective = np.empty((2, len(blocks), sampler.groups))
    states = sampler.states("importance", len(blocks))
    run_over_ranges(
        lambda first, last: importance_blocks(
            first, last, blocks.starts, blocks.child_starts, blocks.children, blocks.parent_starts, scores,
            sampler.per_group, states, log_means, effective,
        ),
        _draw_cost(blocks, sampler.samples),
    )  # fmt: skip
    peak = log_means.max(axis=1)
    groups = np.exp(log_means - peak[:, None])
    mean = groups.mean(axis=1)
    np.add.at(found.value, blocks.lists, peak + np.log(mean))
    variance = groups.var(axis=1, ddof=1) / mean**2
    np.maximum.at(found.unevenness, blocks.lists, np.sqrt(variance))
    np.add.at(found.value_error, blocks.lists, variance / sampler.groups)
    found.value_error = np.sqrt(found.value_error)
    np.minimum.at(found.effective, blocks.lists, groups.sum(axis=1) ** 2 / (groups**2 / effective).sum(axis=1))


def burn_in(blocks: Blocks, sweeps: int) -> int:
    """Sweeps of new chains before they are used. After 4 + items / 8 no bias of 1% of the gradient was seen."""
    return 4 + int(np.diff(blocks.starts).max(initial=1)) // 8 + sweeps // 10


def sample_times(
    blocks: Blocks, scores: Floats, sampler: Sampler, *, products: IntArray | None = None
) -> tuple[Floats, Floats, Floats]:
    """Means of exp(w) T and of its square by chain, (chains, entries), and means of products of two entries.

    `products` says where the n x n products of each block begin, and ends with their number; None: none are collected.
    """
    if sampler.orders is None or sampler.started is None or sampler.is_fixed:
        sampler.orders = np.zeros((sampler.groups, blocks.entries), np.int32)
        sampler.started = np.zeros(len(blocks), np.int64)
    means, squares = np.empty((2, sampler.groups, blocks.entries))
    starts = np.zeros(len(blocks) + 1, np.int64) if products is None else products
    collected = np.zeros(int(starts[-1]))
    states = sampler.states("gibbs", len(blocks))
    burn = burn_in(blocks, sampler.per_group)
    run_over_ranges(
        lambda first, last: gibbs_blocks(
            first, last, blocks.starts, blocks.child_starts, blocks.children, blocks.parent_starts, blocks.parents,
            scores, states, sampler.orders, sampler.started, burn, sampler.per_group, starts, means, squares, collected,
        ),
        _draw_cost(blocks, sampler.groups * (burn + sampler.per_group)),
    )  # fmt: skip
    sampler.started[:] = 1
    # The sum over the items of a block is their number, whatever the times: moving all scores changes nothing.
    sizes = np.diff(blocks.starts)
    means *= np.repeat(sizes / np.add.reduceat(means, blocks.starts[:-1], axis=1), sizes, axis=1)
    return means, squares, collected


def _add_gibbs(blocks: Blocks, scores: Floats, sampler: Sampler, found: OrderEvaluation) -> None:
    means, squares, _ = sample_times(blocks, scores, sampler)
    mean = means.mean(axis=0)
    found.gradient[blocks.items] = 1.0 - mean
    found.gradient_error[blocks.items] = means.var(axis=0, ddof=1) / sampler.groups
    found.curvature[blocks.items] = np.maximum(mean - (squares.mean(axis=0) - mean**2), 0.0)
