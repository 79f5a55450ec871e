"""The exact log-likelihood of tiered lists, NumPy in and NumPy out; torch tensors go to `torch_op`.

Shapes: a 1-D array holds lists one after the other (`offsets`; without it, one list). A 2-D array holds one list per
row; with `where` only the marked entries are items, and the others receive zero gradient. Values are one per list;
derivatives have the shape of the scores.
"""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from plackett.arguments import (
    FloatArray,
    as_floats,
    check_choice,
    check_finite,
    check_midpoint_options,
    check_tol,
    check_top,
    is_torch,
)
from plackett.likelihood.core import evaluate_tiers, make_tiers
from plackett.likelihood.midpoint import midpoint_log_likelihood
from plackett.lists import flat_lists, takes_mask


class PartitionDerivatives(NamedTuple):
    """log P of each list; d log P / d score and -d2 log P / d score^2 of each item."""

    value: FloatArray
    gradient: FloatArray
    curvature: FloatArray


@takes_mask
def partition_log_likelihood(
    scores: Any,
    labels: Any,
    *,
    offsets: Any = None,
    where: Any = None,
    top: int | None = None,
    quadrature: str = "adaptive",
    tol: float | None = None,
    intervals: int = 10_000,
    shift: float = 5.0,
) -> Any:
    """The exact Plackett-Luce log-likelihood of lists whose items fall into tiers.

    Items of a list with equal labels form a tier, higher labels are preferred, the order inside a tier is unknown:
    log P = sum of log P(tier > everything below it).

    Args:
        scores: log-worths w; 1-D (lists one after the other) or 2-D (one list per row); NumPy or torch.
        labels: any real numbers, in the shape of scores.
        offsets: where lists begin in 1-D scores, CSR style (length lists + 1). None: one list.
        where: boolean mask in the shape of scores; unmarked entries are padding. `mask` is another name for it.
        top: count only the first `top` places of each list. A tier that straddles the cut-off contributes the
            probability that the places left are all taken by its items.
        quadrature: "adaptive", or "midpoint" for the fixed rule of Ma et al. (2021), kept as a reference.
        tol: relative error allowed in the probability of each tier. None: 1e-13 for float64, 1e-8 for float32.
        intervals, shift: the T and c of the midpoint rule.

    Returns:
        One value per list, in the type of scores. For torch tensors it is differentiable (once).

    >>> import numpy as np
    >>> scores = np.array([2.0, 1.0, 0.0, -1.0])
    >>> partition_log_likelihood(scores, np.array([2, 1, 1, 0])).round(6)  # one first, two level, one last
    array([-0.794174])
    >>> partition_log_likelihood(scores, np.array([1, 0, 1, 0]), offsets=[0, 2, 4]).round(6)  # two lists
    array([-0.313262, -0.313262])
    """
    check_choice("quadrature", quadrature, ("adaptive", "midpoint"))
    if is_torch(scores):
        from plackett.likelihood import torch_op

        if quadrature == "midpoint":
            return torch_op.midpoint_log_likelihood(
                scores, labels, offsets=offsets, where=where, top=top, intervals=intervals, shift=shift
            )
        return torch_op.partition_log_likelihood(scores, labels, offsets=offsets, where=where, top=top, tol=tol)
    lists = flat_lists(scores, labels, offsets=offsets, where=where)
    tiers = make_tiers(lists.labels, lists.offsets)
    cutoff = check_top(top)
    if quadrature == "midpoint":
        check_midpoint_options(top, intervals, shift)
        check_finite("scores", lists.scores)
        value = midpoint_log_likelihood(lists.scores, tiers, intervals=intervals, shift=shift)
    else:
        value, _, _ = evaluate_tiers(
            lists.scores, tiers, top=cutoff, tol=check_tol(tol, lists.dtype), derivatives=False
        )
    return value.astype(lists.dtype, copy=False)


@takes_mask
def partition_derivatives(
    scores: Any,
    labels: Any,
    *,
    offsets: Any = None,
    where: Any = None,
    top: int | None = None,
    tol: float | None = None,
) -> PartitionDerivatives:
    """Value, gradient and diagonal curvature of `partition_log_likelihood`, in one pass (NumPy).

    The gradient of a list sums to zero. The curvature -d2 log P / d score^2 is positive, except with a cut-off inside a
    tier, where log P is not concave.

    >>> import numpy as np
    >>> value, gradient, curvature = partition_derivatives(np.zeros(3), np.array([1, 1, 0]))
    >>> value.round(6), gradient.round(6), curvature.round(6)
    (array([-1.098612]), array([ 0.416667,  0.416667, -0.833333]), array([0.284722, 0.284722, 0.472222]))
    """
    if is_torch(scores):
        raise TypeError(
            "partition_derivatives takes NumPy arrays, got a torch tensor: use partition_log_likelihood and autograd, "
            "or pass scores.detach().numpy()"
        )
    lists = flat_lists(scores, labels, offsets=offsets, where=where)
    tiers = make_tiers(lists.labels, lists.offsets)
    lists = replace(lists, labels=None)  # frees the memory for the results
    value, gradient, curvature = evaluate_tiers(
        lists.scores,
        tiers,
        top=check_top(top),
        tol=check_tol(tol, lists.dtype),
        derivatives=True,
    )
    return PartitionDerivatives(
        value.astype(lists.dtype, copy=False), lists.restore(gradient), lists.restore(curvature)
    )


def preference_log_probability(preferred: Any, others: Any, *, tol: float | None = None) -> Any:
    """log P(A > B): every item of A comes before every item of B, for any two disjoint sets of items.

    Args:
        preferred, others: the scores of the items of A and of B, along the last dimension; the dimensions before it
            are batches and broadcast against each other. Items outside A and B do not matter (Ma et al. 2021,
            proposition 1). NumPy or torch; torch results are differentiable.
        tol: as in `partition_log_likelihood`.

    Returns:
        One value per element of the batch (a scalar for 1-D arguments); 0 if A or B is empty.

    >>> import numpy as np
    >>> float(preference_log_probability(np.array([1.0]), np.array([0.0])).round(6))
    -0.313262
    """
    if is_torch(preferred) or is_torch(others):
        from plackett.likelihood import torch_op

        return torch_op.preference_log_probability(preferred, others, tol=tol)
    first, second = as_floats("preferred", preferred), as_floats("others", others)
    for name, array in (("preferred", first), ("others", second)):
        if array.ndim == 0:
            raise ValueError(f"{name} must have at least one dimension (the items), got a single number")
        check_finite(name, array)
    try:
        batch_shape = np.broadcast_shapes(first.shape[:-1], second.shape[:-1])
    except ValueError:
        raise ValueError(
            f"others must have batch dimensions that broadcast against those of preferred, {first.shape[:-1]}, got "
            f"{second.shape[:-1]}"
        ) from None
    joined = np.concatenate([np.broadcast_to(x, (*batch_shape, x.shape[-1])) for x in (first, second)], axis=-1)
    rows = math.prod(batch_shape)
    labels = np.broadcast_to(np.repeat([1.0, 0.0], [first.shape[-1], second.shape[-1]]), (rows, joined.shape[-1]))
    value = partition_log_likelihood(joined.reshape(rows, joined.shape[-1]), labels, tol=tol)
    return value.reshape(batch_shape)[()]
