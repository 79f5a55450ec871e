"""PlackettLuce against enumeration of all orders, 50-digit arithmetic and identities; chi-square tests of the samplers.

Sampler tests fix their seed, so they are deterministic. With another seed, each would fail with probability
`FAILURE_RATE` even if the sampler is correct.
"""

import itertools
import math
from functools import lru_cache

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import enumerated_log_likelihood
from scipy import stats
from strategies import scores_far_apart, scores_near_zero, tiered_list

pytestmark = pytest.mark.usefixtures("one_thread")

torch = pytest.importorskip("torch")
distribution = pytest.importorskip("plackett.distribution")
given_tiers = pytest.importorskip("plackett.distribution.given_tiers")
subsets = pytest.importorskip("plackett.distribution.subsets")
PlackettLuce = distribution.PlackettLuce

FAILURE_RATE = 1e-6
SEED = 1975
INF, NAN = math.inf, math.nan

# Every enumeration below runs on every entry.
SCORES = {
    "one item": [0.3],
    "two items": [1.0, -0.5],
    "equal": [2.0, 2.0, 2.0, 2.0],
    "near": [0.3, -1.2, 0.8, 0.0, 1.9],
    "two clusters": [9.0, 8.5, 0.0, -0.5, 0.2],
    "far": [40.0, 0.0, -30.0, 5.0],
    "six": [0.1, 1.4, -0.7, 0.6, -2.0, 0.9],
}
each_scores = pytest.mark.parametrize("scores", SCORES.values(), ids=SCORES.keys())


def tensor(values, **options):
    return torch.tensor(values, dtype=torch.float64, **options)


def generator(seed=SEED):
    return torch.Generator().manual_seed(seed)


@lru_cache
def all_orders(items, places=None):
    return torch.tensor(list(itertools.permutations(range(items), places)), dtype=torch.int64)


def longhand_log_prob(scores, order):
    """log of the product of the choice probabilities, to 50 digits."""
    with mp.workdps(50):
        worths = {i: mp.e ** mp.mpf(x) for i, x in enumerate(scores)}
        total = mp.mpf(0)
        for i in order:
            total += mp.log(worths[i] / mp.fsum(worths.values()))
            del worths[i]
        return float(total)


def order_probabilities(scores):
    """All orders and their probabilities."""
    orders = all_orders(len(scores))
    return orders, tensor([longhand_log_prob(scores, order) for order in orders.tolist()]).exp()


def close(found, expected, tolerance=1e-12):
    torch.testing.assert_close(found, torch.as_tensor(expected, dtype=found.dtype), rtol=tolerance, atol=tolerance)


# log_prob


@each_scores
def test_log_prob_matches_the_product_of_the_choices(scores):
    orders, probabilities = order_probabilities(scores)
    d = PlackettLuce(tensor(scores))
    close(d.log_prob(orders), probabilities.log())
    close(d.log_prob(orders).exp().sum(), 1.0)


@each_scores
def test_probability_of_a_prefix_is_the_sum_over_its_completions(scores):
    orders, probabilities = order_probabilities(scores)
    d = PlackettLuce(tensor(scores))
    for k in range(len(scores) + 1):
        prefixes = all_orders(len(scores), k)
        completes = (orders[None, :, :k] == prefixes[:, None]).all(-1)  # (prefixes, orders)
        close(d.log_prob(prefixes).exp(), (completes * probabilities).sum(-1))


@given(st.lists(scores_far_apart, min_size=2, max_size=6), st.data())
def test_log_prob_matches_the_formula_for_any_scores(scores, data):
    order = data.draw(st.permutations(range(len(scores))))
    prefix = order[: data.draw(st.integers(1, len(scores)))]
    w = tensor(scores, requires_grad=True)
    value = PlackettLuce(w).log_prob(torch.tensor(prefix))
    expected = longhand_log_prob(scores, prefix)
    assert value.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)
    value.backward()
    assert torch.isfinite(w.grad).all()
    assert abs(w.grad.sum().item()) < 1e-12
    shifted = PlackettLuce(w.detach() + 3.0).log_prob(torch.tensor(prefix))
    assert shifted.item() == pytest.approx(expected, rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("gap", [40.0, 300.0, 700.0])
def test_almost_certain_order_keeps_relative_accuracy(gap):
    w = tensor([gap, 0.0, -gap], requires_grad=True)
    value = PlackettLuce(w).log_prob(torch.tensor([0, 1, 2]))
    value.backward()
    assert value.item() == pytest.approx(-2.0 * math.exp(-gap), rel=1e-12)
    assert w.grad[0].item() == pytest.approx(math.exp(-gap), rel=1e-12)
    assert PlackettLuce(w).log_prob(torch.tensor([2, 1, 0])).item() == pytest.approx(-3.0 * gap, rel=1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_huge_scores_have_exact_limits(dtype):
    w = torch.tensor([1e30, 1e30, -1e30, -1e30], dtype=dtype, requires_grad=True)
    value = PlackettLuce(w).log_prob(torch.arange(4))
    value.backward()
    assert value.item() == pytest.approx(2.0 * math.log(0.5), rel=1e-6)
    assert w.grad.tolist() == [0.5, -0.5, 0.5, -0.5]
    assert PlackettLuce(w).log_prob(torch.tensor([2])).item() == pytest.approx(-2e30, rel=1e-6)


def test_long_orders_keep_full_accuracy():
    items = 100_000
    w = torch.zeros(items, dtype=torch.float64, requires_grad=True)
    value = PlackettLuce(w).log_prob(torch.arange(items))
    value.backward()
    assert value.item() == pytest.approx(-math.lgamma(items + 1), rel=1e-13)
    close(w.grad[:2], [1.0 - 1.0 / items, 1.0 - 1.0 / items - 1.0 / (items - 1)])
    assert abs(w.grad.sum().item()) < 1e-8


# log_prob_tiers


@pytest.mark.parametrize("labels", list(itertools.product([0, 1, 2], repeat=4)), ids=str)
def test_probability_of_tiers_is_the_sum_over_their_orders(labels):
    scores = [0.3, -1.2, 1.8, 0.0]
    orders, probabilities = order_probabilities(scores)
    by_place = torch.tensor(labels)[orders]
    consistent = (by_place[:, 1:] <= by_place[:, :-1]).all(-1)
    close(PlackettLuce(tensor(scores)).log_prob_tiers(labels).exp(), probabilities[consistent].sum())


@given(tiered_list(most=6), st.sampled_from([None, 1, 2, 4]))
def test_tiers_support_a_cutoff(tiered, top):
    scores, labels = tiered
    found = PlackettLuce(torch.tensor(scores)).log_prob_tiers(labels, top=top)
    expected = float(enumerated_log_likelihood(scores, labels, top))
    assert found.item() == pytest.approx(expected, rel=1e-11, abs=1e-11)


def test_tiers_of_one_item_equal_an_order():
    d = PlackettLuce(torch.randn(3, 6, dtype=torch.float64, generator=generator()))
    order = d.sample(generator=generator())
    close(d.log_prob_tiers(-order.argsort(-1)), d.log_prob(order))


# Gradients

DIFFERENTIABLE = {
    "log_prob": lambda d: d.log_prob(torch.tensor([2, 0, 3, 1])),
    "log_prob of a prefix": lambda d: d.log_prob(torch.tensor([[3, 0], [1, 2]])),
    "log_prob of nothing": lambda d: d.log_prob(torch.empty(0, dtype=torch.int64)),
    "log_prob_tiers": lambda d: d.log_prob_tiers([1, 1, 0, 2]),
    "log_prob_tiers with a cut-off": lambda d: d.log_prob_tiers([1, 1, 0, 1], top=2),
    "first_place_probabilities": lambda d: d.first_place_probabilities,
    "pairwise_probabilities": lambda d: d.pairwise_probabilities,
    "expected_rank": lambda d: d.expected_rank,
    "entropy": lambda d: d.entropy(),
    "divergence from": lambda d: torch.distributions.kl_divergence(d, PlackettLuce(tensor([0.4, 0.0, -1.0, 2.0]))),
    "divergence to": lambda d: torch.distributions.kl_divergence(PlackettLuce(tensor([0.4, 0.0, -1.0, 2.0])), d),
}
each_differentiable = pytest.mark.parametrize("member", DIFFERENTIABLE.values(), ids=DIFFERENTIABLE.keys())


@each_differentiable
def test_gradients_pass_gradcheck(member):
    scores = tensor([[0.3, -0.8, 1.1, 0.3], [2.0, 2.0, -1.0, 0.0]], requires_grad=True)
    assert torch.autograd.gradcheck(lambda w: member(PlackettLuce(w)), (scores,), eps=1e-6, atol=1e-7)


@each_differentiable
@pytest.mark.parametrize("scores", [[700.0, 0.0, -700.0, 0.0], [1e30, 1e30, -1e30, 5.0], [-1e30, 0.0, 0.0, 0.0]])
def test_gradients_are_finite_at_extreme_scores(member, scores):
    w = tensor(scores, requires_grad=True)
    value = member(PlackettLuce(w))
    assert torch.isfinite(value).all()
    value.sum().backward()
    assert torch.isfinite(w.grad).all()


# Samplers


def assert_frequencies(samples, events, probabilities):
    """Chi-square test of samples (draws, k) against all possible events (n, k), with rare events pooled."""
    weights = (int(events.max()) + 1) ** torch.arange(events.shape[-1])
    codes, drawn = (events * weights).sum(-1), (samples * weights).sum(-1)
    counts = (drawn[:, None] == codes).sum(0).double()
    assert counts.sum() == len(samples), "an impossible event was drawn"
    expected = probabilities * len(samples)
    rare = expected < 10.0
    observed, expected = (torch.cat([x[~rare], x[rare].sum()[None]]) for x in (counts, expected))
    if expected[-1] < 10.0:  # too rare even when pooled: check only an upper bound
        assert stats.poisson.sf(observed[-1].item() - 1, max(expected[-1].item(), 1e-12)) > FAILURE_RATE
        observed, expected = observed[:-1], expected[:-1]
    statistic = ((observed - expected) ** 2 / expected).sum().item()
    assert len(observed) == 1 or stats.chi2.sf(statistic, len(observed) - 1) > FAILURE_RATE


@each_scores
def test_sample_has_the_right_frequencies(scores):
    samples = PlackettLuce(tensor(scores)).sample((20_000,), generator=generator())
    assert_frequencies(samples, *order_probabilities(scores))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_sample_top_has_the_right_frequencies(k):
    d = PlackettLuce(tensor(SCORES["near"]))
    events = all_orders(5, k)
    assert_frequencies(d.sample_top(k, (20_000,), generator=generator()), events, d.log_prob(events).exp())


def test_sample_utilities_has_the_right_frequencies():
    d = PlackettLuce(tensor(SCORES["near"]))
    utilities = d.sample_utilities((20_000,), generator=generator())
    for i, score in enumerate(SCORES["near"]):
        assert stats.kstest(utilities[:, i].numpy(), stats.gumbel_r(loc=score).cdf).pvalue > FAILURE_RATE
    assert torch.equal(utilities.argsort(-1, descending=True), d.sample((20_000,), generator=generator()))


def test_equal_scores_of_any_size_are_in_random_order():
    d = PlackettLuce(tensor([1e30, 0.0, 1e30, 0.0, -1e30]))
    events = torch.tensor([[0, 2, 1, 3, 4], [0, 2, 3, 1, 4], [2, 0, 1, 3, 4], [2, 0, 3, 1, 4]])
    assert_frequencies(d.sample((4000,), generator=generator()), events, torch.full((4,), 0.25))


GIVEN_TIERS = {
    "one tier": ([0.3, -1.2, 0.8, 0.0], [1, 1, 1, 1]),
    "likely": ([3.0, 4.0, 2.5, 0.0, -1.0], [1, 1, 1, 0, 0]),
    "unlikely": ([-3.0, -4.0, -2.5, 0.0, 1.0], [1, 1, 1, 0, 0]),
    "mixed": ([-8.0, 5.0, 0.5, 0.0, 1.0], [1, 1, 1, 0, 0]),
    "reversed": ([-30.0, -32.0, -31.0, 0.0, 1.0], [1, 1, 1, 0, 0]),
    "reversed by hundreds": ([-300.0, -500.0, -290.0, 0.0, 0.5], [1, 1, 1, 0, 0]),
    "far above": ([200.0, 201.0, 500.0, 0.0, 0.5], [1, 1, 1, 0, 0]),
    "three tiers": ([0.0, 1.0, 2.0, -1.0, 0.5, 0.2], [2, 1, 2, 1, 0, 1]),
    "reversed tiers": ([-5.0, 1.0, -4.0, 0.0, 6.0, 7.0], [2, 1, 2, 1, 0, 0]),
    "single items": ([0.0, 1.0, 2.0], [5.0, -1.5, 0.25]),
}


def conditional_probabilities(scores, labels):
    orders = all_orders(len(scores))
    by_place = torch.tensor(labels)[orders]
    orders = orders[(by_place[:, 1:] <= by_place[:, :-1]).all(-1)]
    log_p = tensor([longhand_log_prob(scores, order) for order in orders.tolist()])
    return orders, torch.softmax(log_p, 0)


@pytest.mark.parametrize(("scores", "labels"), GIVEN_TIERS.values(), ids=GIVEN_TIERS.keys())
def test_sample_given_tiers_has_the_right_frequencies(scores, labels):
    samples = PlackettLuce(tensor(scores)).sample_given_tiers(labels, (20_000,), generator=generator())
    assert_frequencies(samples, *conditional_probabilities(scores, labels))


def test_sample_given_tiers_supports_huge_scores():
    # The tier is so unlikely that all its orders are equally likely. In the opposite case equal scores stay random.
    below = PlackettLuce(tensor([-3000.0, 0.0, -5000.0, 1e30])).sample_given_tiers(
        [1, 1, 1, 0], (6000,), generator=generator()
    )
    events = torch.nn.functional.pad(all_orders(3), (0, 1), value=3)
    assert_frequencies(below, events, torch.full((6,), 1.0 / 6.0))
    above = PlackettLuce(tensor([1e30, 1e30, 7.0, -1e30])).sample_given_tiers(
        [1, 1, 1, 0], (2000,), generator=generator()
    )
    assert_frequencies(above, torch.tensor([[0, 1, 2, 3], [1, 0, 2, 3]]), torch.full((2,), 0.5))


@pytest.mark.parametrize("name", ["likely", "unlikely", "reversed by hundreds", "far above"])
def test_sample_given_tiers_works_without_double_precision(name, monkeypatch):
    monkeypatch.setattr("plackett.distribution.plackett_luce.work_type", lambda _: torch.float32)
    scores, labels = GIVEN_TIERS[name]
    samples = PlackettLuce(tensor(scores)).sample_given_tiers(labels, (20_000,), generator=generator())
    assert_frequencies(samples, *conditional_probabilities(scores, labels))


def test_sample_given_tiers_draws_each_list_independently():
    scores, labels = tensor([[0.5, -1.0, 0.0], [-4.0, 2.0, 0.0]]), torch.tensor([[1, 1, 0], [0, 1, 1]])
    samples = PlackettLuce(scores).sample_given_tiers(labels, (10_000,), generator=generator())
    for b in range(2):
        assert_frequencies(samples[:, b], *conditional_probabilities(scores[b].tolist(), labels[b].tolist()))


@pytest.mark.parametrize("gap", [-20.0, 0.0, 20.0])
@pytest.mark.parametrize("spread", [0.0, 5.0])
def test_sample_given_large_tiers_has_the_right_frequencies(gap, spread):
    items = 50_000
    labels = torch.arange(items) % 3
    scores = spread * torch.randn(items, dtype=torch.float64, generator=generator()) + gap * labels
    order = PlackettLuce(scores).sample_given_tiers(labels, (2,), generator=generator())
    assert (labels[order].diff() <= 0).all()
    assert torch.equal(order.sort(-1).values, torch.arange(items).expand(2, -1))


@pytest.mark.parametrize(
    "log_odds",
    [[0.0], [690.0], [-40.0, -40.0], [1.0, -2.0, 0.5], [40.0, 40.0, -3.0], [3.0] * 50, [-6.0] * 500],
    ids=lambda x: f"{x[0]:g} and {len(x) - 1} more",
)
def test_thresholds_follow_their_density(log_odds):
    # Orders barely depend on the spread of the threshold, so it is tested separately.
    draws = 20_000
    density = given_tiers.TierIntegrand(tensor(log_odds), torch.zeros(len(log_odds)).long())
    envelope = given_tiers.make_envelope(density, tensor([float(len(log_odds))]))
    found = given_tiers.sample_thresholds(
        density.repeat(1, draws), envelope.of_tiers(torch.zeros(draws).long()), generator()
    )
    grid = torch.linspace(-45.0, 12.0, 100_000, dtype=torch.float64)
    z = torch.exp(tensor(sorted(set(log_odds)))[:, None] + grid)
    times = tensor([float(log_odds.count(x)) for x in sorted(set(log_odds))])
    mass = torch.softmax(grid - torch.exp(grid) + times @ torch.log(-torch.expm1(-z)), 0)
    cdf = (mass.cumsum(0) - 0.5 * mass).numpy()
    assert stats.kstest(found.numpy(), lambda y: np.interp(y, grid.numpy(), cdf)).pvalue > FAILURE_RATE


@pytest.mark.parametrize("rest", [-5.0, 5.0, 8.0, 11.0])
def test_first_item_of_a_large_tier_has_the_right_frequency(rest):
    # P(i first | S > R) = a_i / (1 + a(S)) * P(S - i > R) / P(S > R). With 1000 items, the less likely the whole tier
    # is, the less often its better half provides the first item. This is a binomial test.
    n, draws = 1000, 400
    scores = torch.zeros(n + 1, dtype=torch.float64)
    scores[: n // 2], scores[n] = 2.0, rest
    labels = (torch.arange(n + 1) < n).double()
    d = PlackettLuce(scores)
    without = PlackettLuce(scores[1:]).log_prob_tiers(labels[1:]) - d.log_prob_tiers(labels)
    good_first = n // 2 * (d.first_place_probabilities[0] * without.exp()).item()
    first = d.sample_given_tiers(labels, (draws,), generator=generator())[:, 0]
    assert stats.binomtest(int((first < n // 2).sum()), draws, good_first).pvalue > FAILURE_RATE


@given(
    st.lists(st.one_of(scores_far_apart, scores_near_zero), min_size=1, max_size=8),
    st.integers(0, 2**31),
)
def test_envelope_bounds_the_density(log_odds, seed):
    size = tensor([float(len(log_odds))])
    density = given_tiers.TierIntegrand(tensor(log_odds).clamp(-40.0, 690.0), torch.zeros(len(log_odds)).long())
    draws = 200
    envelope = given_tiers.make_envelope(density, size).of_tiers(torch.zeros(draws).long())
    assert (envelope.left < envelope.right).all()
    y, bound = envelope.propose(generator(seed))
    gain = density.repeat(1, draws).log(y) - bound
    assert (gain <= 1e-10).all()
    # The proven acceptance rate is 0.518; its mean over 200 proposals has a standard deviation below 0.035.
    assert gain.exp().mean() > 0.518 - 5.0 * 0.035


SAMPLERS = {
    "sample": lambda d, shape, g: d.sample(shape, generator=g),
    "sample_top": lambda d, shape, g: d.sample_top(d.items, shape, generator=g),
    "sample_utilities": lambda d, shape, g: d.sample_utilities(shape, generator=g),
    "sample_given_tiers": lambda d, shape, g: d.sample_given_tiers(torch.arange(d.items) % 2, shape, generator=g),
}
each_sampler = pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS.keys())


@each_sampler
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)], ids=str)
@pytest.mark.parametrize("batch", [(), (4,), (0,), (2, 1)], ids=str)
def test_samples_have_the_right_shape(sampler, shape, batch):
    d = PlackettLuce(torch.zeros(*batch, 5))
    samples = sampler(d, shape, generator())
    assert samples.shape == (*shape, *batch, 5)
    if samples.dtype == torch.int64:
        assert d.support.check(samples).all()


@each_sampler
def test_samples_depend_only_on_the_generator(sampler):
    d = PlackettLuce(torch.randn(2, 20, requires_grad=True, generator=generator()))
    state = torch.random.get_rng_state()
    first, again, other = (sampler(d, (3,), generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(state, torch.random.get_rng_state())
    assert not first.requires_grad
    assert sampler(d, (), None).shape == (2, 20)


# Summaries


@each_scores
def test_summaries_match_enumeration(scores):
    orders, probabilities = order_probabilities(scores)
    places = orders.argsort(-1).double()  # (orders, items)
    d = PlackettLuce(tensor(scores))
    close(d.first_place_probabilities, ((places == 0).double() * probabilities[:, None]).sum(0))
    close(d.expected_rank, 1.0 + probabilities @ places)
    before = (places[:, :, None] < places[:, None, :]).double() + 0.5 * torch.eye(len(scores))
    close(d.pairwise_probabilities, (before * probabilities[:, None, None]).sum(0))
    for k in range(1, len(scores) + 2):
        close(d.top_probabilities(k), probabilities @ (places < k).double())
    worths = 1.0 / torch.log2(2.0 + places)
    close(d.exposure(), probabilities @ worths)
    close(d.exposure(top=2), probabilities @ torch.where(places < 2, worths, 0.0))
    close(d.exposure([3.0, 0.0, 0.5]), probabilities @ (3.0 * (places == 0) + 0.5 * (places == 2)).double())
    close(probabilities.max(), d.log_prob(d.mode).exp())


def test_exposure_in_batches_far_apart_and_sampled():
    scores = torch.tensor([[0.0, -200.0, -200.5, -900.0], [1e30, 0.0, 0.0, -1e30]], dtype=torch.float64)
    found = PlackettLuce(scores).exposure()
    worth = 1.0 / torch.log2(torch.arange(2.0, 6.0, dtype=torch.float64))
    ahead = torch.sigmoid(torch.tensor([0.5, 0.0], dtype=torch.float64))  # of the second item before the third
    close(found[:, 0], worth[0].expand(2))
    close(found[:, 1], ahead * worth[1] + (1.0 - ahead) * worth[2], 1e-12)
    close(found[:, 3], worth[3].expand(2))
    d = PlackettLuce(torch.randn(3, 30, generator=torch.Generator().manual_seed(0)))
    close(d.exposure([1.0] * 4), d.top_probabilities(4))
    drawn = d.exposure(top=5, method="sampled", samples=4000, generator=torch.Generator().manual_seed(1))
    assert float((drawn - d.exposure(top=5)).abs().max()) < 4.9 * 0.5 / 4000**0.5  # the discount varies by at most 1/2
    assert torch.isclose(drawn.sum(-1), (1.0 / torch.log2(torch.arange(2.0, 7.0))).sum()).all()
    with pytest.raises(ValueError, match="method must be one of 'auto', 'exact', 'sampled'"):
        d.exposure(method="integral")
    with pytest.raises(ValueError, match="discount must be"):
        d.exposure("ndcg")


def test_mode_breaks_ties_by_index():
    assert PlackettLuce(tensor([[0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]])).mode.tolist() == [
        [1, 3, 0, 2],
        [0, 1, 2, 3],
    ]


def exact_top_probabilities(scores, k):
    """Computed from P(T are the first |T| items) for all sets T of at most k items, to 700 digits."""
    items = range(len(scores))
    with mp.workdps(700):
        worths = [mp.e ** mp.mpf(x) for x in scores]
        first = {frozenset(): mp.mpf(1)}
        for _ in range(k):
            longer = {}
            for taken, probability in first.items():
                left = mp.fsum(worths[j] for j in items if j not in taken)
                for i in items:
                    if i not in taken:
                        longer[taken | {i}] = longer.get(taken | {i}, 0) + probability * worths[i] / left
            first = longer
        return [float(mp.fsum(p for taken, p in first.items() if i in taken)) for i in items]


@pytest.mark.parametrize("k", [1, 2, 4, 7])
@pytest.mark.parametrize(
    "scores",
    [
        [0.0, -1.0, 2.0, 0.5, 0.5, -3.0, 1.0, 0.1],
        [700.0, 0.0, 0.3, -700.0, -699.0, 1.0, 699.5, 2.0],
        [0.0, -12.0, -24.0, -36.0, -48.0, -60.0, -72.0, -84.0],
        [59.0, 0.0, -61.0, 58.0, 1.0, -62.0, 0.5, -0.5],
    ],
    ids=["near", "gaps of 700", "ladder", "gaps around the block limit"],
)
def test_top_probabilities_match_the_exact_values(scores, k):
    found = PlackettLuce(tensor(scores)).top_probabilities(k)
    close(found, exact_top_probabilities(scores, k), 1e-13)
    close(found.sum(), float(k))


def test_small_top_probabilities_keep_relative_accuracy():
    scores = [0.0, -30.0, -45.0, 0.5]
    found = PlackettLuce(tensor(scores)).top_probabilities(2).tolist()
    assert found == pytest.approx(exact_top_probabilities(scores, 2), rel=1e-12, abs=0.0)


@pytest.mark.parametrize(("items", "k"), [(200, 1), (200, 7), (200, 100), (200, 199), (50, 25)])
@pytest.mark.parametrize("spread", [0.0, 3.0])
def test_top_probabilities_of_many_items_are_consistent(items, k, spread):
    scores = spread * torch.randn(items, dtype=torch.float64, generator=generator())
    found = PlackettLuce(scores).top_probabilities(k)
    close(found.sum(), float(k), 1e-12)
    if spread == 0.0:
        close(found, [k / items] * items, 1e-12)
    if k == 1:
        close(found, torch.softmax(scores, 0), 1e-13)
    assert (found[scores.argsort()].diff() >= -1e-14).all()  # better items are at least as likely


def test_top_probabilities_add_up_to_the_expected_rank():
    d = PlackettLuce(4.0 * torch.randn(3, 15, dtype=torch.float64, generator=generator()))
    later = sum(1.0 - d.top_probabilities(k) for k in range(1, 15))
    close(1.0 + later, d.expected_rank)


def test_top_probabilities_support_huge_scores():
    d = PlackettLuce(tensor([1e30, 1e30, 0.0, 0.0, -1e30]))
    close(d.top_probabilities(1), [0.5, 0.5, 0.0, 0.0, 0.0])
    close(d.top_probabilities(3), [1.0, 1.0, 0.5, 0.5, 0.0])


# Entropy and divergence


@each_scores
def test_entropy_and_divergence_match_enumeration(scores):
    _, p = order_probabilities(scores)
    other = [0.7 * x for x in reversed(scores)]
    _, q = order_probabilities(other)
    ours, theirs = PlackettLuce(tensor(scores)), PlackettLuce(tensor(other))
    close(ours.entropy(), -torch.special.xlogy(p, p).sum())
    close(torch.distributions.kl_divergence(ours, theirs), (p * (p.log() - q.log())).sum())
    close(torch.distributions.kl_divergence(ours, ours), 0.0)


def test_entropy_is_consistent_at_the_limit_of_exact_computation():
    limit = subsets.MOST_ITEMS_EXACT
    assert PlackettLuce(torch.zeros(limit).double()).entropy().item() == pytest.approx(
        math.lgamma(limit + 1), rel=1e-14
    )
    estimated = PlackettLuce(torch.zeros(limit + 1).double())
    assert estimated.entropy().item() == pytest.approx(math.lgamma(limit + 2), rel=1e-13)  # uniform orders
    close(estimated.perplexity().log(), estimated.entropy())


def test_entropy_estimate_matches_the_entropy():
    w = tensor([SCORES["near"], SCORES["two clusters"]], requires_grad=True)
    d = PlackettLuce(w)
    found = d.entropy_estimate(20_000, generator=generator())
    z = (found.estimate - d.entropy()) / found.standard_error
    assert found.estimate.shape == found.standard_error.shape == (2,)
    assert 2.0 * 2.0 * stats.norm.sf(z.abs().max().item()) > FAILURE_RATE
    _, p = order_probabilities(SCORES["near"])
    variance = (p * p.log() ** 2).sum() - (p * p.log()).sum() ** 2
    close(found.standard_error[0], (variance / 20_000).sqrt().item(), 0.05)


def test_gradient_of_the_entropy_estimate_is_unbiased():
    # 400 independent gradient estimates against the exact gradient, in 4 directions (Bonferroni).
    w = tensor([0.3, -0.8, 1.1, 0.0], requires_grad=True)
    d = PlackettLuce(w)
    (exact,) = torch.autograd.grad(d.entropy(), w)
    g = generator()
    estimates = torch.stack(
        [torch.autograd.grad(d.entropy_estimate(8, generator=g).estimate, w)[0] for _ in range(400)]
    )
    z = (estimates.mean(0) - exact) / (estimates.std(0) / 20.0)
    assert 4.0 * 2.0 * stats.norm.sf(z.abs().max().item()) > FAILURE_RATE


def test_divergence_broadcasts():
    p, q = PlackettLuce(torch.randn(3, 1, 4, generator=generator())), PlackettLuce(torch.zeros(2, 4))
    found = torch.distributions.kl_divergence(p, q)
    assert found.shape == (3, 2)
    assert (found >= 0.0).all()


# Shapes, types, transformations


def test_batches_broadcast_against_orders_and_labels():
    scores = torch.randn(3, 1, 4, dtype=torch.float64, generator=generator())
    orders = torch.stack([torch.tensor([0, 1, 2, 3]), torch.tensor([3, 1, 0, 2])])
    labels = torch.tensor([[1, 0, 0, 1], [2, 1, 1, 0]])
    d = PlackettLuce(scores)
    assert (d.batch_shape, d.event_shape) == ((3, 1), (4,))
    log_prob, tiers = d.log_prob(orders), d.log_prob_tiers(labels)
    assert log_prob.shape == tiers.shape == (3, 2)
    assert d.log_prob(orders[:, None, None, :]).shape == (2, 3, 1)
    assert d.sample_given_tiers(labels, (5,)).shape == (5, 3, 2, 4)
    for b, c in itertools.product(range(3), range(2)):
        single = PlackettLuce(scores[b, 0])
        close(log_prob[b, c], single.log_prob(orders[c]))
        close(tiers[b, c], single.log_prob_tiers(labels[c]))
    for k in (1, 2, 3):
        close(d.top_probabilities(k)[1, 0], PlackettLuce(scores[1, 0]).top_probabilities(k))
    close(d.entropy()[2, 0], PlackettLuce(scores[2, 0]).entropy())


def test_expand_broadcasts_the_batch():
    d = PlackettLuce(torch.randn(3, 1, 4, generator=generator()), validate_args=False)
    wide = d.expand((2, 3, 5))
    assert isinstance(wide, PlackettLuce)
    assert (wide.batch_shape, wide.event_shape) == ((2, 3, 5), (4,))
    assert wide._validate_args is False
    assert torch.equal(wide.mode, d.mode.expand(2, 3, 5, 4))
    assert wide.sample((7,)).shape == (7, 2, 3, 5, 4)
    assert wide.log_prob(wide.sample()).shape == (2, 3, 5)
    assert torch.distributions.Independent(wide, 2).log_prob(wide.sample()).shape == (2,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_results_have_the_dtype_of_the_scores(dtype):
    scores = torch.tensor([0.5, -1.0, 2.0], dtype=dtype)
    d, reference = PlackettLuce(scores), PlackettLuce(scores.double())
    members = [
        lambda x: x.log_prob(torch.tensor([2, 0, 1])),
        lambda x: x.log_prob_tiers([1, 1, 0]),
        lambda x: x.sample_utilities((4,), generator=generator()),
        lambda x: x.first_place_probabilities,
        lambda x: x.pairwise_probabilities,
        lambda x: x.expected_rank,
        lambda x: x.top_probabilities(2),
        lambda x: x.entropy(),
        lambda x: x.entropy_estimate(50, generator=generator()).estimate,
    ]
    for member in members:
        assert member(d).dtype == dtype
        np.testing.assert_allclose(member(d).numpy(), member(reference).numpy(), rtol=1e-5)


def test_single_item_is_certain():
    d = PlackettLuce(torch.tensor([3.0]))
    assert (
        d.sample().tolist() == d.sample_top(1).tolist() == d.sample_given_tiers([7]).tolist() == d.mode.tolist() == [0]
    )
    assert d.log_prob(torch.tensor([0])).item() == d.log_prob_tiers([1]).item() == d.entropy().item() == 0.0
    assert d.top_probabilities(1).tolist() == d.expected_rank.tolist() == d.first_place_probabilities.tolist() == [1.0]


def test_empty_batch_gives_empty_results():
    d = PlackettLuce(torch.zeros(0, 3))
    assert d.log_prob(torch.arange(3)).shape == d.log_prob_tiers([1, 0, 0]).shape == d.entropy().shape == (0,)
    assert d.top_probabilities(2).shape == (0, 3)


def test_support_checks_permutations():
    check = PlackettLuce(torch.zeros(3)).support.check
    assert check(torch.tensor([[2, 0, 1], [0, 0, 1], [1, 2, 3]])).tolist() == [True, False, False]
    assert not check(torch.tensor([0, 1]))
    assert PlackettLuce.has_rsample is False
    assert repr(PlackettLuce(torch.zeros(3)).support) == "Permutation(3)"


def test_supports_torch_func():
    w = torch.randn(5, 4, dtype=torch.float64, generator=generator())
    order = torch.tensor([2, 0, 3, 1])

    def log_prob(x):
        return PlackettLuce(x, validate_args=False).log_prob(order)

    batched = torch.func.vmap(torch.func.grad(log_prob))(w)
    close(batched[3], torch.func.grad(log_prob)(w[3]))


# Bad input

THREE = torch.zeros(2, 3)
BAD_INPUT = {
    "no tensor": (lambda: PlackettLuce([1.0, 2.0]), TypeError, "scores must be a torch tensor, got list"),
    "whole numbers": (lambda: PlackettLuce(torch.arange(3)), ValueError, "scores must be of a floating-point type"),
    "one number": (lambda: PlackettLuce(torch.tensor(1.0)), ValueError, "scores must hold at least one item"),
    "no items": (lambda: PlackettLuce(torch.zeros(4, 0)), ValueError, r"scores must hold at least one.* \(4, 0\)"),
    "NaN": (lambda: PlackettLuce(torch.tensor([0.0, NAN])), ValueError, "scores must be finite, got nan at position 1"),
    "infinity": (
        lambda: PlackettLuce(torch.tensor([[0.0, 1.0], [-INF, 0.0]])),
        ValueError,
        r"scores must be finite, got -inf at position \(1, 0\)",
    ),
    "order of floats": (lambda: PlackettLuce(THREE).log_prob(torch.zeros(3)), ValueError, "order must be an int64.*32"),
    "order as a list": (lambda: PlackettLuce(THREE).log_prob([0, 1, 2]), ValueError, "order must be an int64.*list"),
    "order too long": (lambda: PlackettLuce(THREE).log_prob(torch.arange(4)), ValueError, "order .* at most 3.* got 4"),
    "index too large": (
        lambda: PlackettLuce(THREE).log_prob(torch.tensor([0, 3])),
        ValueError,
        "order must hold item indices from 0 to 2, got 3 at position 1",
    ),
    "negative index": (lambda: PlackettLuce(THREE).log_prob(torch.tensor([-1])), ValueError, "order .*0 to 2, got -1"),
    "repeated item": (
        lambda: PlackettLuce(THREE).log_prob(torch.tensor([1, 0, 1])),
        ValueError,
        "order must not repeat an item, got item 1 twice",
    ),
    "order of another batch": (
        lambda: PlackettLuce(THREE).log_prob(torch.zeros(4, 1).long()),
        ValueError,
        r"order must broadcast against the batch shape \(2,\), got \(4,\)",
    ),
    "too few labels": (lambda: PlackettLuce(THREE).log_prob_tiers([1, 0]), ValueError, "labels must hold 3 items"),
    "NaN label": (lambda: PlackettLuce(THREE).sample_given_tiers([1.0, NAN, 0.0]), ValueError, "labels .*finite.*nan"),
    "complex labels": (lambda: PlackettLuce(THREE).log_prob_tiers([1j, 0, 0]), ValueError, "labels must be real"),
    "labels of another batch": (
        lambda: PlackettLuce(THREE).log_prob_tiers(torch.zeros(4, 3)),
        ValueError,
        "labels must broadcast",
    ),
    "no place": (lambda: PlackettLuce(THREE).top_probabilities(0), ValueError, "k must be .*at least 1, got 0"),
    "half a place": (lambda: PlackettLuce(THREE).top_probabilities(1.5), ValueError, "k must be .*at least 1, got 1.5"),
    "too many places": (lambda: PlackettLuce(THREE).sample_top(4), ValueError, "k must be .*from 1 to .*3, got 4"),
    "one sample": (lambda: PlackettLuce(THREE).entropy_estimate(1), ValueError, "samples must be .*least 2, got 1"),
    "divergence of two sizes": (
        lambda: torch.distributions.kl_divergence(PlackettLuce(THREE), PlackettLuce(torch.zeros(4))),
        ValueError,
        "p and q must order the same number of items, got 3 and 4",
    ),
    "divergence of many items": (
        lambda: torch.distributions.kl_divergence(PlackettLuce(torch.zeros(13)), PlackettLuce(torch.zeros(13))),
        ValueError,
        "at most 12 items, got 13: estimate it",
    ),
}


def test_arguments_are_checked_even_if_the_default_of_torch_is_off():
    """torch.compile turns off the checks of all distributions of the process."""
    before = torch.distributions.Distribution._validate_args
    torch.distributions.Distribution.set_default_validate_args(False)
    try:
        with pytest.raises(ValueError, match="scores must be finite, got nan"):
            PlackettLuce(torch.tensor([NAN, 0.0]))
        with pytest.raises(ValueError, match="order must hold item indices from 0 to 1, got 2"):
            PlackettLuce(torch.zeros(2)).log_prob(torch.tensor([2]))
    finally:
        torch.distributions.Distribution.set_default_validate_args(before)


@pytest.mark.parametrize(("call", "error", "message"), BAD_INPUT.values(), ids=BAD_INPUT.keys())
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_validation_can_be_disabled():
    unchecked = PlackettLuce(torch.tensor([NAN, 0.0]), validate_args=False)
    assert unchecked.log_prob(torch.tensor([0, 1])).isnan()
    for member in (unchecked.top_probabilities, lambda k: unchecked.sample_given_tiers([k, 0])):
        with pytest.raises(ValueError, match="scores must be finite, got nan at position 0"):  # would never finish
            member(1)
