"""RankNet and RankSVM on long lists, where pairs are summed in groups, against sums over all pairs."""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from plackett import losses  # noqa: E402  # after the check for torch
from plackett.losses import pair_sums  # noqa: E402

LOSSES = {"ranknet": losses.ranknet_loss, "ranksvm": losses.ranksvm_loss}
SPARSE = {"ranknet": losses.sparse_ranknet_loss, "ranksvm": losses.sparse_ranksvm_loss}


def all_pairs(name, scores, labels):
    """Value and gradient of one list, pair by pair in NumPy."""
    x = scores - scores[:, None]  # (preferred, other): score of the other minus score of the preferred
    pairs = labels[:, None] > labels
    if name == "ranknet":
        loss, slope = np.logaddexp(0.0, x), np.exp(-np.logaddexp(0.0, -x))
    else:
        loss, slope = np.maximum(1.0 + x, 0.0), (1.0 + x > 0.0).astype(float)
    slope = np.where(pairs, slope, 0.0)
    return np.where(pairs, loss, 0.0).sum(), slope.sum(0), slope.sum(1)


def check(name, scores, labels, rtol=1e-12, dtype=torch.float64):
    leaf = torch.tensor(scores, dtype=dtype, requires_grad=True)
    value = LOSSES[name](leaf, torch.tensor(labels), reduction="sum")
    (gradient,) = torch.autograd.grad(value, leaf)
    expected, pushed_up, pushed_down = all_pairs(name, leaf.detach().double().numpy(), labels)
    np.testing.assert_allclose(value.item(), expected, rtol=rtol)
    # Upward and downward pushes on an item may cancel, so the error is relative to each of them.
    error = np.abs(gradient.double().numpy() - (pushed_up - pushed_down))
    assert (error <= rtol * (pushed_up + pushed_down)).all(), error.max()


def is_summed_by_cells(scores, labels):
    """Whether `pairs_between` would choose cells for the logistic loss of these two tiers."""
    cells = min(np.ptp(np.floor(scores)) + 1, len(scores))
    upper = np.count_nonzero(labels)
    return upper * (len(labels) - upper) > 5 * len(scores) + 200 * cells


TIERS = {
    "two": lambda rng, n: rng.integers(0, 2, n),
    "few above many": lambda rng, n: (rng.permutation(n) < n // 10).astype(int),
    "many above few": lambda rng, n: (rng.permutation(n) >= n // 10).astype(int),
    "four": lambda rng, n: rng.integers(0, 4, n),
    "one large among small": lambda rng, n: np.where(rng.random(n) < 0.8, 20, rng.integers(0, 40, n)),
    "an order": lambda rng, n: rng.permutation(n),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("tiers", TIERS)
@pytest.mark.parametrize("spread", [0.0, 0.01, 1.0, 10.0, 200.0])
def test_long_lists_match_the_sum_over_pairs(name, tiers, spread, rng):
    check(name, spread * rng.standard_normal(900), TIERS[tiers](rng, 900))


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("gap", [3.0, 4.5, 5.0, 30.0, 300.0, 690.0])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_gaps_between_the_tiers_keep_relative_accuracy(name, gap, sign, rng):
    """With a gap of 690, each pair loses e^-690, and their sum is as accurate as any other."""
    labels = rng.integers(0, 2, 900)
    scores = rng.standard_normal(900) + sign * gap * labels
    assert is_summed_by_cells(scores, labels)
    check(name, scores, labels)


@pytest.mark.parametrize("name", LOSSES)
def test_outlying_scores_match_the_sum_over_pairs(name, rng):
    """There are more cells than items: only the occupied ones are visited."""
    labels = rng.integers(0, 2, 900)
    scores = rng.standard_normal(900)
    scores[:6] = [1e30, -1e30, 1e9, -5000.0, 1e15, 1e15 + 3.0]
    assert is_summed_by_cells(scores[6:], labels[6:])
    check(name, scores, labels)


@pytest.mark.parametrize("name", LOSSES)
def test_scores_on_cell_boundaries_match_the_sum_over_pairs(name, rng):
    scores = rng.integers(-6, 7, 900) + rng.choice([0.0, -1e-16, 1.0 - 1e-16, 5e-324], 900)
    check(name, scores, rng.integers(0, 3, 900))


@pytest.mark.parametrize("name", LOSSES)
def test_float32_matches_the_sum_over_pairs(name, rng):
    check(name, 3.0 * rng.standard_normal(900), rng.integers(0, 3, 900), rtol=1e-6, dtype=torch.float32)


@pytest.mark.parametrize("name", LOSSES)
def test_lists_of_different_lengths_match_the_sum_over_pairs(name, rng):
    sizes = [0, 1, 2, 700, 3, 40, 0, 250]
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    scores, labels = 2.0 * rng.standard_normal(offsets[-1]), rng.integers(0, 5, offsets[-1])
    found = LOSSES[name](torch.tensor(scores), torch.tensor(labels), offsets=offsets, reduction="none")
    expected = [all_pairs(name, scores[a:b], labels[a:b])[0] for a, b in itertools.pairwise(offsets)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("positives", [0, 1, 5, 300, 899, 900])
@pytest.mark.parametrize("spread", [1.0, 50.0])
def test_sparse_rows_match_the_sum_over_pairs(name, positives, spread, rng):
    scores = spread * rng.standard_normal((2, 900))
    columns = [np.sort(rng.permutation(900)[:positives]) for _ in range(2)]
    leaf = torch.tensor(scores, requires_grad=True)
    values = SPARSE[name](leaf, np.concatenate(columns), [0, positives, 2 * positives], reduction="none")
    (gradient,) = torch.autograd.grad(values.sum(), leaf)
    for row, own in enumerate(columns):
        labels = np.isin(np.arange(900), own).astype(int)
        expected, up, down = all_pairs(name, scores[row], labels)
        np.testing.assert_allclose(values[row].item(), expected, rtol=1e-12)
        np.testing.assert_allclose(gradient[row], up - down, rtol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_scores_are_refused(name, bad, rng):
    scores = rng.standard_normal(900)
    scores[700] = bad
    with pytest.raises(ValueError, match=r"scores must be finite, got .* at position 700"):
        LOSSES[name](torch.tensor(scores), torch.tensor(rng.integers(0, 2, 900)))


def test_tables_are_accurate_to_rounding():
    """The series of a cell against the logistic loss at points between the nodes."""
    table = pair_sums.tables()
    t = np.linspace(-1.0, 1.0, 41)
    basis = np.polynomial.chebyshev.chebvander(t, pair_sums.TERMS - 1)
    for distance in range(-4, 5):
        z = distance + (t[:, None] - t) / 2.0
        value = basis @ table[(distance + 4) * pair_sums.TERMS :][: pair_sums.TERMS] @ basis.T
        slope = basis @ table[(distance + 13) * pair_sums.TERMS :][: pair_sums.TERMS] @ basis.T
        np.testing.assert_allclose(value, np.logaddexp(0.0, z), rtol=1e-13)
        np.testing.assert_allclose(slope, 1.0 / (1.0 + np.exp(-z)), rtol=1e-13)
