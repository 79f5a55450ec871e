"""The likelihood of graphs as an objective of linear models, trees and aggregation, and its information."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from plackett.arguments import DEFAULT_TOL
from plackett.likelihood.partial_orders.order_chains import OrderChains
from plackett.likelihood.partial_orders.order_evaluation import OrderEvaluation, Sampler, evaluate_orders, sample_times
from plackett.likelihood.partial_orders.order_structure import METHOD_NAMES, prepare_orders
from plackett.lists import IntArray, offsets_from_sizes
from plackett.objective import Floats, Objective

_TOL = DEFAULT_TOL[np.dtype(np.float64)]
_MOST_STATES = 1000  # down-sets of a block: a fit evaluates all lists many times, and samples cost less beyond


class PartialOrderObjective(Objective):
    """Minus the log-likelihood of graphs. It is convex, because P is the probability of a convex cone of utilities.

    Args:
        edges, offsets: as in `plackett.partial_order_log_likelihood`.
        weights: one per list.
        samples: orders sampled for each part that cannot be evaluated exactly, at each evaluation. Their chains go on
            from one evaluation to the next.
        random_state: seed of the samples.
        method, cycles: as in `plackett.partial_order_log_likelihood`.
    """

    is_convex: bool = True
    has_newton_leaves: ClassVar[bool] = False

    def __init__(
        self,
        edges: IntArray,
        offsets: IntArray,
        weights: Floats,
        *,
        samples: int = 64,
        random_state: Any = None,
        method: str = "auto",
        cycles: str = "error",
    ) -> None:
        rng = np.random.default_rng(random_state)
        self._chains = OrderChains(
            edges, offsets, samples=samples, random_state=rng, method=method, cycles=cycles, most_states=_MOST_STATES
        )
        self._edges, self._rng = edges, rng
        self.offsets, self.weights = offsets, weights
        self.row_weights = np.repeat(weights, np.diff(offsets))
        self._sampled_blocks: Any = None
        self._whole_samplers: dict[int, Sampler] = {}

    @property
    def is_exact(self) -> bool:
        """Whether nothing has to be sampled."""
        return len(self._chains.orders.sampled) == 0

    @property
    def methods(self) -> Any:
        """How each list is evaluated."""
        return METHOD_NAMES[self._chains.orders.methods]

    def evaluate(self, scores: Floats, *, derivatives: bool = True, value: bool = True) -> OrderEvaluation:
        """Values, derivatives and standard errors of log P itself, without weights."""
        orders, sampler = self._chains.start()
        found = evaluate_orders(orders, scores, derivatives=derivatives, tol=_TOL, sampler=sampler, value=value)
        self._chains.keep(None, sampler)
        return found

    def value(self, scores: Floats) -> float:
        return -float(self.evaluate(scores, derivatives=False).value @ self.weights)

    def value_and_gradient(self, scores: Floats) -> tuple[float, Floats]:
        found = self.evaluate(scores)
        return -float(found.value @ self.weights), -self.row_weights * found.gradient

    def derivatives(self, scores: Floats) -> tuple[Floats, Floats]:
        found = self.evaluate(scores, value=False)
        return -self.row_weights * found.gradient, self.row_weights * found.curvature

    def information(self, scores: Floats, design: Any, samples: int) -> Floats:
        """The observed information about parameters, design' H design with H minus the Hessian by scores, estimated.

        Louis (1982): H is the information of the arrival times minus the variance of their score, diag(E[x]) - Cov[x]
        for x = exp(w) T given the graph, both from Gibbs samples of whole graphs.
        """
        if self._sampled_blocks is None:
            self._sampled_blocks = prepare_orders(self._edges, self.offsets, "sampling").sampled
        blocks = self._sampled_blocks
        sampler = self._whole_samplers.setdefault(samples, Sampler(self._rng, samples))
        sizes = np.diff(blocks.starts)
        squares = offsets_from_sizes(sizes**2)
        means, _, products = sample_times(blocks, scores[blocks.items], sampler, products=squares)
        mean = means.mean(axis=0)
        total = np.zeros((design.shape[1], design.shape[1]))
        for b, n in enumerate(sizes.tolist()):
            inside = slice(int(blocks.starts[b]), int(blocks.starts[b + 1]))
            upper = products[squares[b] : squares[b + 1]].reshape(n, n)
            x = mean[inside]
            hessian = np.diag(x) - (upper + np.triu(upper, 1).T - np.outer(x, x))
            rows = design[blocks.items[inside]]
            part = rows.T @ (rows.T @ hessian).T if hasattr(rows, "indptr") else rows.T @ hessian @ rows
            total += self.weights[blocks.lists[b]] * np.asarray(part)
        return 0.5 * (total + total.T)
