"""The public functions: the log-likelihood of partial orders, NumPy in and NumPy out, torch in and torch out."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from plackett.arguments import (
    FloatArray,
    as_array,
    as_floats,
    check_choice,
    check_float_tensor,
    check_positive,
    check_tol,
    is_torch,
    to_numpy,
    whole_numbers,
)
from plackett.errors import AccuracyWarning
from plackett.graphs import CYCLES
from plackett.likelihood.partial_orders.order_evaluation import (
    DEFAULT_SAMPLES,
    OrderEvaluation,
    Sampler,
    evaluate_orders,
)
from plackett.likelihood.partial_orders.order_structure import (
    METHOD_NAMES,
    METHODS,
    MOST_STATES,
    PartialOrders,
    merge_cycles,
    prepare_orders,
)
from plackett.lists import IntArray, check_offsets

_MOST_UNEVEN = 1.0


class PartialOrderLikelihood(NamedTuple):
    """log P of each list; its standard error and effective sample size, 0 and infinite where it is exact; the method.

    `method` names how a list was evaluated: "none" (the graph says nothing), "forest", "tiers", "trees",
    "series-parallel", "down-sets" or "sampling", the last of these that a part of the graph needed. Only "sampling" is
    not exact.
    """

    value: Any
    standard_error: FloatArray
    effective_samples: FloatArray
    method: npt.NDArray[np.str_]


class PartialOrderDerivatives(NamedTuple):
    """As `PartialOrderLikelihood`, and d log P / d score of each item with its standard error."""

    value: FloatArray
    gradient: FloatArray
    standard_error: FloatArray
    gradient_standard_error: FloatArray
    effective_samples: FloatArray
    method: npt.NDArray[np.str_]


def check_edges(edges: Any, offsets: IntArray, cycles: str = "error") -> IntArray:
    """Edges as an array, (edges, 2), of numbers of items of the same list; with `cycles` "merge" without cycles."""
    check_choice("cycles", cycles, CYCLES)
    array = as_array("edges", to_numpy(edges))
    if array.size == 0:
        array = np.empty((0, 2), np.int64)
    if array.ndim != 2 or array.shape[1] != 2:
        raise ValueError(f"edges must have the shape (edges, 2), one row (better, worse) for each, got {array.shape}")
    pairs = whole_numbers("edges", array.reshape(-1)).reshape(-1, 2)
    items = int(offsets[-1])
    outside = (pairs < 0) | (pairs >= items)
    if outside.any():
        row, side = np.argwhere(outside)[0].tolist()
        raise ValueError(f"edges must hold item numbers from 0 to {items - 1}, got {pairs[row, side]} in edge {row}")
    if cycles == "error" and (loops := pairs[:, 0] == pairs[:, 1]).any():
        row = int(np.argmax(loops))
        raise ValueError(
            f"edges must join different items, got {pairs[row, 0]} > {pairs[row, 0]} in edge {row}: an item cannot be "
            'better than itself; cycles="merge" leaves such edges out'
        )
    lists = np.searchsorted(offsets, pairs, side="right") - 1
    if (apart := lists[:, 0] != lists[:, 1]).any():
        row = int(np.argmax(apart))
        raise ValueError(
            f"edges must join items of the same list, got {pairs[row, 0]} of list {lists[row, 0]} and "
            f"{pairs[row, 1]} of list {lists[row, 1]} in edge {row}"
        )
    return merge_cycles(pairs, items) if cycles == "merge" else pairs


def check_samples(samples: Any) -> int:
    return DEFAULT_SAMPLES if samples is None else check_positive("samples", samples, ", or None")


def make_orders(
    edges: Any, offsets: IntArray, *, method: str = "auto", cycles: str = "error", most_states: int = MOST_STATES
) -> PartialOrders:
    """Check edges and take their graphs apart, once for many evaluations."""
    check_choice("method", method, METHODS)
    return prepare_orders(check_edges(edges, offsets, cycles), offsets, method, most_states)


def partial_order_log_likelihood(
    scores: Any,
    edges: Any,
    *,
    offsets: Any = None,
    method: str = "auto",
    samples: int | None = None,
    random_state: int | np.random.Generator | None = None,
    tol: float | None = None,
    cycles: str = "error",
) -> PartialOrderLikelihood:
    """The Plackett-Luce log-likelihood of graphs of preferences: P(all known preferences hold), for each list.

    P is the sum of the probabilities of all orders that agree with the graph. It is exact where the structure of the
    graph allows it, otherwise estimated, with a standard error; `method` of the result says which.

    Args:
        scores: log-worths, 1-D, lists one after the other; NumPy or torch (the value is then differentiable).
        edges: (edges, 2): the first item of each row is better than the second. Items are positions in `scores`, and
            both belong to the same list. Repeated edges count once; items without edges do not matter.
        offsets: where lists begin, CSR style (length lists + 1). None: one list.
        method: "auto" takes the graph apart and uses, for each part, the first that fits: the closed form of forests,
            the integral of tiers, down-sets if there are few, integrals along trees, integrals along series-parallel
            orders, up to a million down-sets, sampling. "exact" is the same, with an error in place of sampling.
            "trees", "series-parallel", "down-sets" and "sampling" treat every connected graph by that method.
        samples: orders that are sampled for each part; None: 4096. An `AccuracyWarning` says where more are
            needed for the value.
        random_state: seed of the samples.
        tol: relative error allowed in integrals. None: 1e-13 for float64, 1e-8 for float32.
        cycles: "error" raises an error that shows a cycle; "merge" ties the items of a cycle.

    >>> import numpy as np
    >>> scores = np.array([1.0, 0.0, 0.5, -1.0])
    >>> value, error, effective, method = partial_order_log_likelihood(scores, [(0, 1), (2, 1), (2, 3)])
    >>> value.round(6), error, str(method[0])
    (array([-0.756659]), array([0.]), 'down-sets')
    """
    if is_torch(scores):
        from plackett.likelihood.partial_orders.torch_value import torch_log_likelihood

        check_float_tensor("scores", scores)
        return torch_log_likelihood(
            scores, edges, offsets=offsets, method=method, samples=samples, random_state=random_state, tol=tol,
            cycles=cycles,
        )  # fmt: skip
    flat, orders, sampler = _check_input(scores, edges, offsets, method, samples, random_state, cycles)
    found = _evaluate(flat, orders, sampler, tol, derivatives=False)
    return likelihood_of(found, orders, found.value.astype(flat.dtype, copy=False))


def partial_order_derivatives(
    scores: Any,
    edges: Any,
    *,
    offsets: Any = None,
    method: str = "auto",
    samples: int | None = None,
    random_state: int | np.random.Generator | None = None,
    tol: float | None = None,
    cycles: str = "error",
) -> PartialOrderDerivatives:
    """Value and gradient of `partial_order_log_likelihood`, and the standard errors of both (NumPy).

    Sampled gradients come from Gibbs sampling, sampled values from importance sampling: they are independent.

    >>> import numpy as np
    >>> found = partial_order_derivatives(np.zeros(3), [(0, 1), (0, 2)])
    >>> found.value.round(6), found.gradient.round(6), str(found.method[0])
    (array([-1.098612]), array([ 0.666667, -0.333333, -0.333333]), 'forest')
    """
    if is_torch(scores):
        raise TypeError(
            "partial_order_derivatives takes NumPy arrays, got a torch tensor: use partial_order_log_likelihood and "
            "autograd, or pass scores.detach().numpy()"
        )
    flat, orders, sampler = _check_input(scores, edges, offsets, method, samples, random_state, cycles)
    found = _evaluate(flat, orders, sampler, tol, derivatives=True)
    value, gradient = (x.astype(flat.dtype, copy=False) for x in (found.value, found.gradient))
    _, error, effective, names = likelihood_of(found, orders, value)
    return PartialOrderDerivatives(value, gradient, error, found.gradient_error, effective, names)


def likelihood_of(found: OrderEvaluation, orders: PartialOrders, value: Any) -> PartialOrderLikelihood:
    """The public form of an evaluation."""
    return PartialOrderLikelihood(value, found.value_error, found.effective, METHOD_NAMES[orders.methods])


def _evaluate(
    scores: FloatArray, orders: PartialOrders, sampler: Sampler, tol: Any, *, derivatives: bool
) -> OrderEvaluation:
    wide, tol = scores.astype(np.float64, copy=False), check_tol(tol, scores.dtype)
    found = evaluate_orders(orders, wide, derivatives=derivatives, tol=tol, sampler=sampler)
    _warn_if_uneven(found)
    return found


def _warn_if_uneven(found: OrderEvaluation) -> None:
    """The mean of groups that differ by more than their size is far from normal: its standard error is too small."""
    worst = int(np.argmax(found.unevenness)) if len(found.unevenness) else -1
    if worst >= 0 and found.unevenness[worst] > _MOST_UNEVEN:
        warnings.warn(
            f"the sampled value of list {worst} rests on few orders ({found.effective[worst]:.0f} effective samples), "
            f"so that its error can be several times the standard error of {found.value_error[worst]:.2g}: raise "
            "samples. Gradients, which come from other samples, are not affected",
            AccuracyWarning,
            stacklevel=4,
        )


def _check_input(
    scores: Any, edges: Any, offsets: Any, method: str, samples: Any, random_state: Any, cycles: str
) -> tuple[FloatArray, PartialOrders, Sampler]:
    """Checked scores, prepared graphs, and the sampler for those that need it."""
    flat = as_floats("scores", scores)
    if flat.ndim != 1:
        raise ValueError(f"scores must be one-dimensional, lists one after the other, got {flat.ndim} dimensions")
    bounds = np.array([0, len(flat)]) if offsets is None else check_offsets(to_numpy(offsets), len(flat))
    sampler = Sampler(np.random.default_rng(random_state), check_samples(samples))
    return flat, make_orders(edges, bounds, method=method, cycles=cycles), sampler
