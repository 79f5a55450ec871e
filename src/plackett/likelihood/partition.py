"""The exact log-likelihood of tiered lists, NumPy in and NumPy out; torch tensors go to `torch_op`.

Shapes: a 1-D array holds lists one after the other (`offsets`; without it, one list). A 2-D array holds a list in each
row; with `where` only the marked entries are items, the others take no part and receive zero gradient. Results have one
value per list, and derivatives the shape of the scores.
"""

import math
import sys
import warnings
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from plackett.arguments import as_array
from plackett.errors import AccuracyWarning
from plackett.likelihood.kernel import DERIVATIVES, LARGEST_SCORE, NO_CUTOFF, VALUE, partition_lists
from plackett.likelihood.midpoint import midpoint_log_likelihood
from plackett.likelihood.tiers import Tiers, make_tiers
from plackett.lists import Batch, check_finite, check_positive, make_batch
from plackett.threads import run_over_ranges

FloatArray = npt.NDArray[np.floating[Any]]

# Relative error of each tier's probability. The second moments behind the curvature are less exact than the value by up
# to the square of the tier's size, which the default leaves room for.
DEFAULT_TOL = {np.dtype(np.float64): 1e-13, np.dtype(np.float32): 1e-8}
SMALLEST_TOL = 1e-15
_COST_PER_ITEM = 100
# Nats by which the quadrature aims below tol: its own estimate was seen to be off by a factor of up to 30.
_SAFETY = 3.0


class PartitionDerivatives(NamedTuple):
    """log P of each list; d log P / d score and -d2 log P / d score^2 of each item."""

    value: FloatArray
    gradient: FloatArray
    curvature: FloatArray


def is_torch(value: Any) -> bool:
    """Whether `value` is a torch tensor, found out without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def check_top(top: Any) -> int:
    """The cut-off as the kernels take it."""
    return NO_CUTOFF if top is None else min(check_positive("top", top, ", or None"), NO_CUTOFF)


def check_tol(tol: Any, dtype: np.dtype[Any]) -> float:
    if tol is None:
        return DEFAULT_TOL[dtype]
    if not isinstance(tol, int | float | np.number) or not SMALLEST_TOL <= tol <= 0.1:
        raise ValueError(f"tol must be a number from {SMALLEST_TOL} to 0.1, or None, got {tol!r}")
    return float(tol)


def depth_of(tol: float) -> float:
    """How far below its peak the kernels follow an integrand, in nats."""
    return -math.log(tol) + _SAFETY


def as_floats(name: str, values: Any) -> FloatArray:
    """An array of float32 or float64; other real types become float64."""
    if is_torch(values):
        raise TypeError(f"{name} must be a NumPy array like the other arguments, got a torch tensor")
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(f"{name} must not be a masked array, whose mask would be lost: pass the mask as where=")
    array = as_array(name, values)
    if array.dtype not in DEFAULT_TOL:
        if array.dtype.kind not in "biuf":
            raise ValueError(f"{name} must be real numbers, got an array of {array.dtype}")
        array = array.astype(np.float64)
    return array


def flatten(values: FloatArray, batch: Batch) -> npt.NDArray[np.float64]:
    """The items of a batch as a flat contiguous array of float64."""
    flat = values.reshape(-1) if batch.where is None else values[batch.where]
    return np.ascontiguousarray(flat, np.float64)


def unflatten(flat: npt.NDArray[np.float64], batch: Batch, dtype: np.dtype[Any]) -> FloatArray:
    """Items back into the shape of the input; entries that are no items become zero."""
    if batch.where is None:
        return flat.astype(dtype, copy=False).reshape(batch.shape)
    full = np.zeros(batch.shape, dtype)
    full[batch.where] = flat
    return full


def ranks_if_large(labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Integer labels as they are, or their ranks where float64 could not tell them apart."""
    if labels.dtype.kind in "iu" and labels.size and (labels.max() > 2**53 or labels.min() < -(2**53)):
        return np.unique(labels, return_inverse=True)[1].reshape(labels.shape)
    return labels


def labels_like(scores: FloatArray, labels: Any) -> FloatArray:
    if not is_torch(labels) and not isinstance(labels, np.ma.MaskedArray):
        labels = ranks_if_large(as_array("labels", labels))
    array = as_floats("labels", labels)
    if array.shape != scores.shape:
        raise ValueError(f"labels must have the shape of scores, {scores.shape}, got {array.shape}")
    return array


def evaluate(
    scores: npt.NDArray[np.float64],
    tiers: Tiers,
    *,
    top: int = NO_CUTOFF,
    tol: float,
    derivatives: bool,
    tier_weights: npt.NDArray[np.float64] | None = None,
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Value of each list, gradient and curvature of each item (empty without `derivatives`), from prepared tiers.

    `tier_weights` multiplies log P of each tier, in the order of `tiers`.
    """
    weights = np.empty(0) if tier_weights is None else np.ascontiguousarray(tier_weights, np.float64)
    lists = len(tiers.offsets) - 1
    value, error = np.empty(lists), np.empty(lists)
    items = len(scores) if derivatives else 0
    gradient, curvature = np.empty(items), np.empty(items)
    order = DERIVATIVES if derivatives else VALUE
    depth = depth_of(tol)

    def call(first: int, last: int) -> int:
        return int(
            partition_lists(
                first, last, scores, tiers.order, tiers.starts, tiers.list_tiers, weights,
                top, depth, order, value, error, gradient, curvature,
            )
        )  # fmt: skip

    for position in run_over_ranges(call, tiers.offsets * _COST_PER_ITEM):
        if position >= 0:
            raise_bad_score(float(scores[position]), position)
    if lists:
        _warn_if_inaccurate(error, tiers, tol)
    return value, gradient, curvature


def raise_bad_score(score: float, position: int) -> None:
    raise ValueError(f"scores must be finite and at most {LARGEST_SCORE:g} in size, got {score} at item {position}")


def _warn_if_inaccurate(error: npt.NDArray[np.float64], tiers: Tiers, tol: float) -> None:
    worst = int(np.argmax(error))  # NaN counts as largest
    if not error[worst] <= 100.0 * tol * (tiers.list_tiers[worst + 1] - tiers.list_tiers[worst]):
        warnings.warn(
            f"the log-likelihood of list {worst} has an estimated error of {error[worst]:.1e} where tol={tol:.1e} was "
            "asked for; please report these scores",
            AccuracyWarning,
            stacklevel=4,
        )


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
        scores: log-worths w; 1-D (lists one after the other) or 2-D (a list in each row); NumPy or torch.
        labels: any real numbers, in the shape of scores.
        offsets: where lists begin in 1-D scores, CSR style (length lists + 1). None: one list.
        where: boolean mask in the shape of scores; unmarked entries are padding.
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
    if quadrature not in ("adaptive", "midpoint"):
        raise ValueError(f'quadrature must be "adaptive" or "midpoint", got {quadrature!r}')
    if is_torch(scores):
        from plackett.likelihood import torch_op

        if quadrature == "midpoint":
            return torch_op.midpoint_log_likelihood(
                scores, labels, offsets=offsets, where=where, top=top, intervals=intervals, shift=shift
            )
        return torch_op.partition_log_likelihood(scores, labels, offsets=offsets, where=where, top=top, tol=tol)
    array = as_floats("scores", scores)
    batch = make_batch(array.shape, offsets=offsets, where=where)
    tiers = make_tiers(flatten(labels_like(array, labels), batch), batch.offsets)
    flat = flatten(array, batch)
    cutoff = check_top(top)
    if quadrature == "midpoint":
        check_finite("scores", flat)
        value = midpoint_log_likelihood(flat, tiers, top=top, intervals=intervals, shift=shift)
    else:
        value, _, _ = evaluate(flat, tiers, top=cutoff, tol=check_tol(tol, array.dtype), derivatives=False)
    return value.astype(array.dtype, copy=False)


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
    array = as_floats("scores", scores)
    batch = make_batch(array.shape, offsets=offsets, where=where)
    tiers = make_tiers(flatten(labels_like(array, labels), batch), batch.offsets)
    value, gradient, curvature = evaluate(
        flatten(array, batch), tiers, top=check_top(top), tol=check_tol(tol, array.dtype), derivatives=True
    )
    return PartitionDerivatives(
        value.astype(array.dtype, copy=False),
        unflatten(gradient, batch, array.dtype),
        unflatten(curvature, batch, array.dtype),
    )


def preference_log_probability(preferred: Any, others: Any, *, tol: float | None = None) -> Any:
    """log P(A > B): every item of A comes before every item of B, for any two disjoint sets of items.

    Args:
        preferred, others: the scores of the items of A and of B, along the last dimension; the dimensions before it
            are batches and broadcast against each other. Items outside A and B do not matter (Ma et al. 2021,
            proposition 1). NumPy or torch; torch results are differentiable.
        tol: as in `partition_log_likelihood`.

    Returns:
        One value for each element of the batch (a scalar for 1-D arguments); 0 if A or B is empty.

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
