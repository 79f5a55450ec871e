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

import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.distributions.kl import register_kl
from torch.nn import functional

from plackett.arguments import check_choice, check_finite
from plackett.distribution.discounts import discount_values
from plackett.distribution.given_tiers import sample_tiers, tiered_rows
from plackett.distribution.places import exposure_of_rows, top_probabilities_of_rows
from plackett.distribution.primitives import gumbel, relative_scores, suffix_logsumexp
from plackett.distribution.subsets import MOST_ITEMS_EXACT, expected_cost_of_choices
from plackett.likelihood.torch_op import partition_log_likelihood
from plackett.likelihood.vectorised import work_type

# Above this many items times places that count, the integral takes more than seconds per list, and "auto" samples.
_LARGEST_EXPOSURE = 1 << 16


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
    """Orders of N items: P(order) = prod over places m of exp(w_m) / sum over l >= m of exp(w_l), w sorted by order.

    Args:
        scores: log-worths, a floating-point tensor (..., N) with N >= 1; only differences matter.
        validate_args: check scores and arguments. None: yes, except while torch compiles or traces. The default of
            torch.distributions is not followed: torch.compile silently turns it off for the whole process.

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
        validate = not torch.compiler.is_compiling() if validate_args is None else validate_args
        if validate:
            check_finite("scores", scores)
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
        below = suffix_logsumexp(sequence[..., 1:])
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
        noise = gumbel(self._extended_shape(_check_shape(sample_shape)), scores, generator)
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
        """Full orders given that higher labels come before lower ones. Exact, O(N log N) per draw.

        P(order) / P(tiers) factorises over the tiers S (Ma et al. 2021, lemma 1), so tiers are drawn independently.
        Given the arrival time t = e^y of the first item of R, in units in which R has rate 1, the items of S arrive
        independently at exponential times cut off at t. Given S > R, y has the density proportional to

            exp(f(y)),   f(y) = y - e^y + sum_{i in S} log(1 - exp(-a_i e^y)),   a_i = exp(w_i - w_R)

        f is concave, so y is drawn by rejection from tangents (see `given_tiers.Envelope`) and the times by inversion:
        nothing is discretised, however unlikely the tiers are.

        Args:
            labels: real numbers (..., N); broadcast against scores.

        Returns:
            sample_shape + the broadcast batch shape + (N,).
        """
        scores, labels = self._with_labels(labels)
        batch, shape = scores.shape[:-1], _check_shape(sample_shape)
        rows = math.prod(batch)
        with torch.no_grad():
            tiers = tiered_rows(
                relative_scores(scores.reshape(rows, self.items).to(work_type(scores.device))),
                labels.reshape(rows, self.items),
            )
            orders = sample_tiers(tiers, math.prod(shape), generator)
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

        by the trapezoid rule, the count being Poisson-binomial. Accurate to about 1e-13 in double precision;
        probabilities below exp(-60) may come out as 0. k = 1 is `first_place_probabilities`, k >= N gives 1.
        """
        k = _check_count("k", k, 1)
        check_finite("scores", self.scores)
        if k >= self.items:
            return torch.ones_like(self.scores)
        with torch.no_grad():
            flat = self._work_scores().reshape(math.prod(self.batch_shape), self.items)
            return top_probabilities_of_rows(flat, k).reshape(self.scores.shape).to(self.scores.dtype)

    def exposure(
        self,
        discount: Any = "dcg",
        *,
        top: int | None = None,
        method: str = "auto",
        samples: int = 1024,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """E[discount of the place of i], batch_shape + (N,); sums to the sum of the discounts. Not differentiable.

        Given item i's arrival time e^y, its place is 1 plus the number of others that have arrived, so that

            E = integral z_i exp(-z_i) E[discount at 1 + the number of others that have arrived] dy

        by the same rule as `top_probabilities`, which is the case of discounts of 1. O(nodes * N * places).
        The exposure of a group, as a function that can be differentiated, is minus `losses.expected_utility_loss` with
        gain="linear" and labels of 1 for the group and 0 for all others.

        Args:
            discount: "dcg" (1 / log2(1 + place)), or a number of at least 0 for each place from the first on; all
                places after those have 0.
            top: only the first `top` places count; None: all.
            method: "exact" is the integral; "sampled" the mean over `samples` orders; "auto" takes the former unless N
                times the number of places exceeds 65,536.
        """
        check_choice("method", method, ("auto", "exact", "sampled"))
        check_finite("scores", self.scores)
        scores = self._work_scores()
        values = discount_values(discount, self.items, top)
        worths = torch.as_tensor(values, dtype=scores.dtype, device=scores.device)
        is_large = self.items * len(worths) > _LARGEST_EXPOSURE
        if method == "sampled" or (method == "auto" and is_large):
            return self._sampled_exposure(worths, _check_count("samples", samples, 1), generator).to(self.scores.dtype)
        with torch.no_grad():
            flat = relative_scores(scores.reshape(math.prod(self.batch_shape), self.items))
            return exposure_of_rows(flat, worths).reshape(self.scores.shape).to(self.scores.dtype)

    def _sampled_exposure(self, worths: Tensor, samples: int, generator: torch.Generator | None) -> Tensor:
        total = torch.zeros_like(self._work_scores())
        worth = worths.expand(*self.batch_shape, -1)
        for _ in range(samples):
            total.scatter_add_(-1, self.sample_top(len(worths), generator=generator), worth)
        return total / samples

    def entropy(self, samples: int = 1024, *, generator: torch.Generator | None = None) -> Tensor:
        """H = -sum over orders of P log P, batch_shape. Differentiable.

        Exact for N <= 12, by the recursion over the set T of the items left

            H(T) = sum_{i in T} p_i (H(T - i) - log p_i),   p = softmax of the scores of T

        For more items it is a Monte-Carlo estimate from `samples` orders; `entropy_estimate` gives its standard error.
        """
        if self.items > MOST_ITEMS_EXACT:
            return self.entropy_estimate(samples, generator=generator).estimate
        return expected_cost_of_choices(self.scores, lambda log_p, _: -log_p)

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

    # Checks.

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
        check_finite("labels", labels)
        check_finite("scores", self.scores)
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
        return self.scores.detach().to(work_type(self.scores.device))

    def _sample_relative_utilities(self, sample_shape: Sequence[int], generator: torch.Generator | None) -> Tensor:
        scores = relative_scores(self._work_scores())
        return scores + gumbel(self._extended_shape(_check_shape(sample_shape)), scores, generator)


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
    return expected_cost_of_choices(ours, lambda log_p, members: log_p - torch.log_softmax(theirs[..., members], -1))


def _broadcast_shapes(*shapes: torch.Size) -> torch.Size:
    shape: torch.Size = torch.broadcast_shapes(*shapes)
    return shape


def _first(values: Tensor, bad: Tensor) -> str:
    """The first bad value and where it is, for messages."""
    position = tuple(int(x) for x in torch.nonzero(bad)[0])
    return f"{values[position].item()} at position {position[0] if len(position) == 1 else position}"


def _check_shape(sample_shape: Any) -> torch.Size:
    try:
        shape = torch.Size(sample_shape)
    except TypeError:
        shape = torch.Size([-1])
    if min(shape, default=0) < 0:
        raise ValueError(f"sample_shape must be a sequence of whole numbers of at least 0, got {sample_shape!r}")
    return shape


def _check_count(name: str, value: Any, least: int, most: int | None = None) -> int:
    bounds = f"of at least {least}" if most is None else f"from {least} to the number of items, {most}"
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be a whole number {bounds}, got {value!r}") from None
    if number < least or (most is not None and number > most):
        raise ValueError(f"{name} must be a whole number {bounds}, got {number}")
    return number
