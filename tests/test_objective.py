"""The contract of `plackett.objective.Objective`: every way to a derivative gives the same number."""

import numpy as np
import pytest

from plackett.aggregation.ballot_likelihood import BallotLikelihood
from plackett.aggregation.ballots import as_ballots, make_rankings
from plackett.linear.tier_likelihood import LIKELIHOODS, make_likelihood
from plackett.objective import Objective

OFFSETS = np.array([0, 4, 5, 11])
LABELS = np.array([2.0, 1, 1, 0, 0, 3, 2, 2, 1, 1, 0])
WEIGHTS = np.array([1.0, 2.0, 0.5])


def likelihood(name, top=None):
    labels = np.arange(len(LABELS), dtype=float) if name == "topk" else LABELS
    return make_likelihood(name, labels, OFFSETS, WEIGHTS, top=top, random_state=0), len(labels)


def ballots():
    return BallotLikelihood(make_rankings(as_ballots([[0, 1, 2], [{1, 2}, 0], [2, 3], [3, {0, 1, 2}]]))), 4


CASES = {name: lambda name=name: likelihood(name) for name in LIKELIHOODS}
CASES |= {"partition, top 2": lambda: likelihood("partition", top=2), "ballots": ballots}


@pytest.mark.parametrize("case", CASES)
def test_derivatives_agree(case):
    objective, size = CASES[case]()
    scores = np.random.default_rng(0).normal(size=size)
    value, gradient = objective.value_and_gradient(scores)
    assert objective.value(scores) == pytest.approx(value, rel=1e-12)
    first, curvature = objective.derivatives(scores)
    np.testing.assert_allclose(first, gradient, atol=1e-12)
    np.testing.assert_allclose(objective.gradient(scores), gradient, atol=1e-12)
    step = 1e-5
    moves = step * np.eye(size)
    slopes = [(objective.value(scores + move) - objective.value(scores - move)) / (2 * step) for move in moves]
    np.testing.assert_allclose(slopes, gradient, atol=1e-8)  # step^2, and rounding / step
    hessian = objective.hessian_products(scores, np.eye(size))
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-8)
    assert (curvature >= np.diag(hessian) - 1e-8).all()
    if objective.is_convex:
        np.testing.assert_allclose(curvature, np.diag(hessian), atol=1e-10)


class Squares(Objective):
    def value(self, scores):
        return float(scores @ scores)

    def derivatives(self, scores):
        return 2.0 * scores, np.full(len(scores), 2.0)


def test_the_base_derives_what_it_can_and_refuses_the_rest():
    value, gradient = Squares().value_and_gradient(np.array([1.0, -2.0]))
    assert (value, gradient.tolist(), Squares().start()) == (5.0, [2.0, -4.0], 0.0)
    with pytest.raises(TypeError, match="Squares does not support Newton leaves"):
        Squares().leaf_derivatives(gradient, np.zeros(2, np.int32), 1)
    with pytest.raises(TypeError, match="Squares does not support Hessian products"):
        Squares().hessian_products(gradient, np.eye(2))
