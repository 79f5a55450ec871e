"""Second derivatives of losses by each score, for boosted trees: exact where the loss has one, else an upper bound.

    curvature(lists, **options) -> (items,) NumPy array, never negative

of the unweighted sum of the lists' losses, with the options of the loss; the weight of a list multiplies its part. They
run on the CPU. p is softmax(scores) over the items that a choice is made from.

    lower_bound        sum over choices of p (1 - p)                                                       exact
    attrank, listnet   p (1 - p); with more places its mean over the earlier choices                       exact
    listmle, listpl    that of the orders drawn, from the same random numbers as the loss                  exact
    ranknet            sum over pairs of s (1 - s), s = sigmoid of the difference of scores                exact
    ranksvm            sum over pairs of 1 / (2 max(|x|, 1/2)), x = 1 - difference                         bound
    approx_ndcg        see `approx_ndcg`                                                                   bound

The hinge max(0, x) has no second derivative. A parabola that touches it at x with its slope there lies above it
everywhere if its curvature is at least 1 / (2 |x|), the smallest with which a Newton step cannot overshoot. Within half
a margin of the corner this exceeds 1 and is unbounded; it is held at 1, so that a step is at most one margin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from plackett.arguments import NO_CUTOFF, check_top
from plackett.likelihood.approximations import efron_or_breslow
from plackett.likelihood.core import TierWeighting, evaluate_tiers, make_tiers
from plackett.likelihood.leaves import denominator_curvature
from plackett.likelihood.torch_op import exact_labels, numpy_labels
from plackett.losses import listwise, loss_kernels, pair_sums, pairwise
from plackett.losses.closed_form import pairs_cost, softmax_target
from plackett.losses.item_weights import weighted_lower_bound_curvature
from plackett.losses.loss_lists import LossLists
from plackett.threads import at_most, run_over_ranges

Floats = npt.NDArray[np.float64]

_TOL = 1e-8


def lower_bound(lists: LossLists, *, item_weights: Any = None) -> Floats:
    if item_weights is not None:
        return weighted_lower_bound_curvature(lists, torch.as_tensor(item_weights))
    return efron_or_breslow(lists.numpy_scores(), lists.tiers(), efron=False, bottom=False)[2]


def attrank(lists: LossLists, *, item_weights: Any = None) -> Floats:
    if item_weights is not None:
        return _weighted_choice_variance(lists, lists.labels, True, item_weights)
    relevant = lists.padded((lists.labels > 0).double(), 0.0).any(-1, keepdim=True)
    return _unpadded(lists, torch.where(relevant, _choice_variance(lists), 0.0))


def listnet(
    lists: LossLists,
    *,
    top: int = 1,
    samples: int | None = None,
    psi: listwise.Psi = 1.0,
    item_weights: Any = None,
    generator: torch.Generator | None = None,
) -> Floats:
    if item_weights is not None:
        return _weighted_choice_variance(lists, listwise.mapped_labels(lists, psi), False, item_weights)
    if samples is not None:
        return listpl(lists, psi=psi, samples=samples, top=top, generator=generator)
    if check_top(top) == 1:
        return _unpadded(lists, _choice_variance(lists))
    w, y, present = listwise.padded_for_choices(lists, listwise.mapped_labels(lists, psi))
    return _unpadded(lists, _expected_choice_variance(w, y, present, top))


def listpl(
    lists: LossLists,
    *,
    psi: listwise.Psi = 1.0,
    samples: int = 1,
    top: int | None = None,
    generator: torch.Generator | None = None,
) -> Floats:
    orders = listwise.drawn_orders(lists, psi, samples, generator)
    return sum((_order_curvature(lists, keys, top) for keys in orders), np.zeros(len(lists.scores))) / samples


def listmle(
    lists: LossLists,
    *,
    ties: str = "random",
    bottom: str | None = None,
    top: int | None = None,
    position_weights: Any = None,
    generator: torch.Generator | None = None,
) -> Floats:
    if ties == "exact":
        return _order_curvature(lists, lists.labels, top)
    bottom = bottom or listwise.BOTTOM[ties]
    if ties in ("efron", "breslow"):
        return efron_or_breslow(lists.numpy_scores(), lists.tiers(), efron=ties == "efron", bottom=bottom == "ordered")[
            2
        ]
    weighting = None if position_weights is None else listwise.position_weighting(lists, position_weights)
    return _order_curvature(lists, listwise.broken_ties(lists, ties, bottom, generator), top, weighting)


def ranknet(lists: LossLists) -> Floats:
    return _pair_curvature(lists, pair_sums.LOGISTIC)


def ranksvm(lists: LossLists) -> Floats:
    return _pair_curvature(lists, pair_sums.HINGE)


def approx_ndcg(
    lists: LossLists, *, truncation: int | None = None, gain: pairwise.Gain = "exp2", temperature: float = 0.1
) -> Floats:
    """An upper bound. The loss is the sum over items of c(place), c' >= 0, where the place is a sum of sigmoids.

    Its second derivative by w_i is the sum over j, with i itself, of c'_j place_j'' + c''_j (place_j')^2. With
    v = s (1 - s) of a pair |place''| is at most the sum of v / temperature^2. Without truncation c is concave in the
    place and the second term is left out; with truncation c'' is at most gain * k (1 - k) / log2(1 + place) over the
    ideal DCG, k the share kept.
    """
    tiers = lists.tiers()
    gains = pairwise.label_gains(lists, gain).double().numpy()
    return _run(
        lists, pairs_cost(lists) * 4, loss_kernels.approx_ndcg_curvature_lists, lists.numpy_scores(), gains,
        tiers.order, tiers.starts, tiers.list_tiers, check_top(truncation), 1.0 / float(temperature),
    )  # fmt: skip


def _run(lists: LossLists, cost: Any, call: Callable[..., int], *arguments: Any) -> Floats:
    curvature = np.empty(len(lists.scores))
    with at_most(torch.get_num_threads()):
        run_over_ranges(lambda first, last: call(first, last, *arguments, curvature), cost)
    return curvature


def _pair_curvature(lists: LossLists, kind: int) -> Floats:
    tiers = lists.tiers()
    return _run(
        lists, pairs_cost(lists), loss_kernels.pair_curvature_lists,
        lists.numpy_scores(), tiers.order, tiers.starts, tiers.list_tiers, kind,
    )  # fmt: skip


def _order_curvature(
    lists: LossLists, labels: Tensor, top: int | None, weighting: TierWeighting | None = None
) -> Floats:
    """-d2 log P. It can be negative if a cut-off divides a tier; the curvature of the denominators is then larger."""
    flat_labels, scores, cutoff = numpy_labels(labels), lists.numpy_scores(), check_top(top)
    tiers = make_tiers(flat_labels, lists.offsets)
    weights = None if weighting is None else tiers.weights(weighting, flat_labels)
    _, _, curvature = evaluate_tiers(scores, tiers, top=cutoff, tol=_TOL, derivatives=True, tier_weights=weights)
    if cutoff != NO_CUTOFF and weights is None:
        return np.asarray(np.maximum(curvature, denominator_curvature(scores, tiers, cutoff)))
    return np.asarray(np.maximum(curvature, 0.0))


def _choice_variance(lists: LossLists) -> Tensor:
    """p (1 - p), (lists, longest)."""
    p = torch.softmax(lists.padded(lists.scores.detach().double(), -torch.inf), -1)
    return p * (1.0 - p)


def _weighted_choice_variance(lists: LossLists, labels: Tensor, only_positive: bool, item_weights: Any) -> Floats:
    """p (1 - p) times the total weight of the list's targets."""
    weights = torch.as_tensor(item_weights, dtype=lists.scores.dtype)
    target = softmax_target(lists, exact_labels(labels), only_positive, weights)
    return _unpadded(lists, target.sum(-1, keepdim=True) * _choice_variance(lists))


def _expected_choice_variance(w: Tensor, y: Tensor, left: Tensor, places: int) -> Tensor:
    """The sum over the first places of E[q (1 - q)], choices drawn by softmax(y) from the items left, q = softmax(w).

    V_i(T, places) = q_i(T) (1 - q_i(T)) + sum_{j in T} p_j(T) V_i(T - j, places - 1); (..., items) -> (..., items).
    """
    q = torch.where(left, torch.exp(listwise.masked_log_softmax(w, left)), 0.0)
    total = q * (1.0 - q)
    if places > 1:
        p = torch.where(left, torch.exp(listwise.masked_log_softmax(y, left)), 0.0)
        apart = ~torch.eye(w.shape[-1], dtype=torch.bool, device=w.device)
        after = _expected_choice_variance(w.unsqueeze(-2), y.unsqueeze(-2), left.unsqueeze(-2) & apart, places - 1)
        total = total + (p.unsqueeze(-1) * after).sum(-2)
    return total


def _unpadded(lists: LossLists, values: Tensor) -> Floats:
    return np.ascontiguousarray(lists.unpadded(values).numpy(), np.float64)
