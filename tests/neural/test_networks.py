"""Feature scaling against NumPy and scikit-learn, sparse layers, attention over lists and top columns."""

import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.preprocessing import normalize

from plackett.neural import ExtremeNetwork, FeatureScaling, RankingNetwork, RowScaling, SparseRows, top_columns
from plackett.neural import networks as network_module
from plackett.neural import top_labels as top_module
from plackett.neural.networks import Dropout, ListAttention, OwnNetwork, SparseLinear, make_hidden

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")


# Columns


def longhand(X: Any, scaling: str) -> Any:
    """Scaled columns by definition, one at a time, NaN where X is NaN."""
    out = np.full(X.shape, np.nan)
    for j in range(X.shape[1]):
        x = X[:, j].astype(np.float64)
        known = ~np.isnan(x)
        x = x[known]
        if scaling == "quantile" and x.size:
            # The mean position among the sorted values, from -1 to 1.
            below, equal = (x[:, None] > x).sum(1), (x[:, None] == x).sum(1)
            out[known, j] = (2 * below + equal - 1) / max(1, x.size - 1) - 1
            continue
        if scaling == "log1p":
            x = np.sign(x) * np.log(1.0 + np.abs(x))
        if scaling in ("standard", "log1p") and x.size:
            spread = x.std()
            x = (x - x.mean()) / (spread if spread > 1e-12 * np.abs(x).max() else 1.0)
        out[known, j] = x
    return out


def columns(rng: np.random.Generator, rows: int = 60) -> Any:
    """Ordinary, counts with ties, heavy-tailed, constant, nearly constant but large, negative."""
    return np.stack(
        [
            rng.standard_normal(rows),
            rng.poisson(1.0, rows).astype(float),
            np.exp(6.0 * rng.standard_normal(rows)),
            np.full(rows, 3.7),
            1e6 + 1e-2 * rng.standard_normal(rows),
            -rng.random(rows),
        ],
        1,
    )


@pytest.mark.parametrize("scaling", ["none", "standard", "log1p", "quantile"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_columns_match_the_definition(scaling: str, dtype: Any, rng: np.random.Generator) -> None:
    X = columns(rng).astype(dtype)
    X[rng.random(X.shape) < 0.1] = np.nan
    found = FeatureScaling(X.shape[1], scaling).fit(X).apply_to(X).numpy()
    wanted = longhand(X, scaling)
    means = np.nanmean(wanted, 0)
    # The result is in single precision.
    np.testing.assert_allclose(found, np.where(np.isnan(X), means, wanted), rtol=3e-7, atol=1e-6)
    assert found.dtype == np.float32


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=80), st.lists(st.floats(-2e6, 2e6), min_size=2, max_size=20))
def test_quantiles_rise_and_stay_within_the_training_values(values: list[float], others: list[float]) -> None:
    fitted = FeatureScaling(1, "quantile").fit(np.array(values)[:, None])
    ends = fitted.apply_to(np.array([[min(values)], [max(values)]]))[:, 0]
    points = np.sort(np.array([*values, *others, -1e300, 1e300]))
    found = fitted.apply_to(points[:, None])[:, 0]
    assert (torch.diff(found) >= 0).all()
    assert (found >= -1.0).all()
    assert (found <= 1.0).all()
    assert (found[points <= min(values)] == ends[0]).all()
    np.testing.assert_allclose(found[points >= max(values)], ends[1], atol=1e-6)  # single precision


def test_quantiles_of_many_values_are_interpolated(rng: np.random.Generator) -> None:
    X = rng.exponential(size=(5000, 1))
    found = FeatureScaling(1, "quantile").fit(X).apply_to(X)[:, 0].numpy()
    wanted = 2.0 * np.argsort(np.argsort(X[:, 0])) / (len(X) - 1) - 1.0
    # 64 linear pieces: within a piece of width 2/64, only the curvature of the distribution adds an error.
    assert np.abs(found - wanted).max() < 0.02


def test_order_of_training_rows_does_not_matter(rng: np.random.Generator) -> None:
    X = columns(rng)
    for scaling in ("standard", "log1p", "quantile"):
        first, second = (FeatureScaling(6, scaling).fit(rows).apply_to(X) for rows in (X, X[rng.permutation(60)]))
        np.testing.assert_allclose(first, second, rtol=1e-6, atol=1e-6)  # different order of sums


def test_missing_values_get_an_indicator(rng: np.random.Generator) -> None:
    X = columns(rng)
    X[3, 1] = X[5, 4] = np.nan
    fitted = FeatureScaling(6, "standard", "indicator").fit(X)
    found = fitted.apply_to(X)
    assert fitted.width == found.shape[1] == 8
    np.testing.assert_array_equal(found[:, 6:], np.isnan(X[:, [1, 4]]))
    assert abs(float(found[3, 1])) < 1e-6  # the mean of a standardised column
    assert torch.equal(found[:, :6], FeatureScaling(6, "standard", "mean").fit(X).apply_to(X))
    later = columns(rng)
    later[0, 0] = np.nan  # a column without missing values in training has no indicator: its mean is used
    assert abs(float(fitted.apply_to(later)[0, 0])) < 1e-6
    assert (fitted.apply_to(later)[:, 6:] == 0).all()


def test_missing_values_can_be_refused(rng: np.random.Generator) -> None:
    X = columns(rng)
    fitted = FeatureScaling(6, "standard", "error").fit(X)
    X[3, 4] = np.nan
    with pytest.raises(ValueError, match="X must hold no NaN with missing='error', got some in column 4"):
        FeatureScaling(6, "standard", "error").fit(X)
    with pytest.raises(ValueError, match="X must hold no NaN with missing='error', got some in column 4"):
        fitted.apply_to(X)


@pytest.mark.parametrize("scaling", network_module.SCALINGS)
@pytest.mark.parametrize("missing", ["mean", "indicator"])
def test_column_without_any_value_becomes_zero(scaling: str, missing: str, rng: np.random.Generator) -> None:
    X = rng.standard_normal((7, 3))
    X[:, 1] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = FeatureScaling(3, scaling, missing).fit(X).apply_to(X)
    assert torch.isfinite(found).all()
    assert (found[:, 1] == 0).all()


@pytest.mark.parametrize("scaling", ["standard", "log1p", "quantile"])
def test_huge_values_are_scaled_without_overflow(scaling: str) -> None:
    X = np.array([[1e300, 1e-300], [-1e300, 3e-300], [5e299, 2e-300], [0.0, 0.0]])
    found = FeatureScaling(2, scaling).fit(X).apply_to(X).numpy()
    assert np.isfinite(found).all()
    tame = X / np.array([1e300, 1e-300])
    if scaling != "log1p":
        expected = FeatureScaling(2, scaling).fit(tame).apply_to(tame)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)  # single precision
    assert (np.argsort(found[:, 0]) == np.argsort(X[:, 0])).all()


@pytest.mark.parametrize("scaling", network_module.SCALINGS)
def test_block_size_does_not_matter(scaling: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    X = columns(rng)
    X[::9, 2] = np.nan
    fitted = FeatureScaling(6, scaling, "indicator").fit(X)
    with torch.no_grad():
        module = fitted(torch.from_numpy(X))
    assert torch.equal(fitted.apply_to(X), module)
    monkeypatch.setattr(network_module, "_NUMBERS_SCALED_AT_ONCE", 7)
    again = FeatureScaling(6, scaling, "indicator").fit(X)
    torch.testing.assert_close(again.apply_to(X), fitted.apply_to(X), rtol=1e-6, atol=1e-12)  # blockwise means


def test_blocks_are_small_for_any_number_of_knots(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions of a block against all knots form one array, which both fitting and applying must bound."""
    sizes = []
    original = FeatureScaling._scaled

    def recorded_call(self: Any, x: Any) -> Any:
        sizes.append(len(x) * x.shape[1] * max(1, len(self.knots)))
        return original(self, x)

    monkeypatch.setattr(FeatureScaling, "_scaled", recorded_call)
    X = rng.standard_normal((3000, 20))
    FeatureScaling(20, "quantile").fit(X).apply_to(X)
    assert max(sizes) <= network_module._NUMBERS_SCALED_AT_ONCE


def test_scaling_is_restored_from_its_state(rng: np.random.Generator) -> None:
    X = columns(rng)
    X[2, 2] = np.nan
    for scaling in network_module.SCALINGS:
        fitted = FeatureScaling(6, scaling, "indicator").fit(X)
        again = FeatureScaling(6, scaling, "indicator").restore(fitted.state_dict())
        assert torch.equal(again.apply_to(X), fitted.apply_to(X))
        for others in ([2.0], [[2]], [6], [2, 2]):
            with pytest.raises(ValueError, match="indicated must"):
                again.restore({**fitted.state_dict(), "indicated": torch.tensor(others)})


# Rows


def sparse_rows(rng: np.random.Generator) -> csr_array:
    X = random_array((30, 12), density=0.3, format="csr", rng=rng)
    X.data[:] = rng.standard_normal(X.nnz)
    X.data[::5] = 0.0  # a stored zero
    X = X.tolil()
    X[4] = X[11] = 0.0
    return csr_array(X)


def test_rows_are_scaled_to_unit_norm(rng: np.random.Generator) -> None:
    X = sparse_rows(rng)
    found = RowScaling(12, "norm", 8.0).fit(X).apply_to(X)
    np.testing.assert_allclose(found.toarray(), 8.0 * normalize(X.toarray()), rtol=1e-6)  # single precision
    assert found.dtype == np.float32


def test_tfidf_matches_scikit_learn(rng: np.random.Generator) -> None:
    X = sparse_rows(rng)
    X.data = np.abs(X.data)
    X.eliminate_zeros()
    peer = TfidfTransformer().fit(X)
    scaling = RowScaling(12, "tfidf", 1.0).fit(X)
    np.testing.assert_allclose(scaling.column_weights, peer.idf_, rtol=1e-12)
    other = abs(sparse_rows(rng))
    np.testing.assert_allclose(scaling.apply_to(other).toarray(), peer.transform(other).toarray(), rtol=1e-6)  # single


@pytest.mark.parametrize("scaling", ["norm", "tfidf", "none"])
def test_dense_rows_match_sparse_rows(scaling: str, rng: np.random.Generator) -> None:
    X = sparse_rows(rng)
    fitted = RowScaling(12, scaling, 3.0).fit(X)
    with torch.no_grad():
        dense = fitted(torch.from_numpy(X.toarray())).numpy()
    np.testing.assert_allclose(dense, fitted.apply_to(X).toarray(), rtol=1e-6)  # single precision
    if scaling == "none":
        np.testing.assert_array_equal(dense, X.toarray().astype(np.float32))


def test_huge_tiny_and_empty_rows_are_scaled() -> None:
    X = csr_array(np.array([[3e300, 4e300, 0.0], [0.0, 0.0, 0.0], [3e-300, 0.0, -4e-300]]))
    found = RowScaling(3, "norm", 5.0).apply_to(X).toarray()
    np.testing.assert_allclose(found, [[3.0, 4.0, 0.0], [0.0, 0.0, 0.0], [3.0, 0.0, -4.0]], rtol=1e-6)  # single
    empty = csr_array((4, 3), dtype=np.float64)
    assert (RowScaling(3, "tfidf").fit(empty).apply_to(empty).toarray() == 0).all()


# The sparse layer


@pytest.mark.parametrize("sparse_gradient", [False, True])
def test_sparse_product_matches_the_dense_product(sparse_gradient: bool, rng: np.random.Generator) -> None:
    X = sparse_rows(rng)
    layer = SparseLinear(12, 5, sparse_gradient).double()
    with torch.no_grad():
        layer.bias.copy_(torch.arange(5.0))
    pull = torch.from_numpy(rng.standard_normal((30, 5)))

    def gradients(rows: Any) -> tuple[Any, Any, Any]:
        layer.zero_grad()
        out = layer(rows, 0.0)
        out.backward(pull)
        return out.detach(), layer.weight.grad, layer.bias.grad

    dense = [g.clone() for g in gradients(torch.from_numpy(X.toarray()))]
    found = gradients(SparseRows(X, CPU, torch.float64))
    assert found[1].is_sparse == sparse_gradient
    if sparse_gradient:
        occurring = np.unique(X.indices)
        assert found[1].coalesce().indices()[0].tolist() == occurring.tolist()
        found = found[0], found[1].to_dense(), found[2]
    for mine, theirs in zip(found, dense, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sparse_gradient", [False, True])
def test_sparse_product_of_empty_rows(sparse_gradient: bool) -> None:
    layer = SparseLinear(4, 2, sparse_gradient)
    out = layer(SparseRows(csr_array((3, 4), dtype=np.float32), CPU), 0.0)
    assert (out == 0).all()
    out.sum().backward()
    gradient = layer.weight.grad.to_dense() if sparse_gradient else layer.weight.grad
    assert gradient.shape == (4, 2)
    assert (gradient == 0).all()


@pytest.mark.parametrize("share", [0.001, 0.3, 0.5, 0.999, 0.999999])
def test_dropout_drops_a_share_of_the_numbers_and_scales_the_others(share: float) -> None:
    x = torch.ones(401, 1003, requires_grad=True)  # not a multiple of four
    layer = Dropout(share)

    def draw(seed: int) -> Any:
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            return layer(x)

    out = draw(1)
    assert torch.equal(out, draw(1))
    assert not torch.equal(out, draw(2))
    kept = out.detach() != 0
    used = min(round(share * 65536), 65535) / 65536
    assert used == pytest.approx(share, abs=2e-5)  # 16 random bits
    # Five standard errors of 402,203 draws; also where draws of one 64-bit number begin, and along rows and columns.
    limit = 5.0 * np.sqrt(used * (1.0 - used))
    for part in (kept, *(kept.reshape(-1)[start::4] for start in range(4)), kept[7], kept[:, 11]):
        assert abs(1.0 - float(part.double().mean()) - used) < limit / np.sqrt(part.numel()) + 5.0 / part.numel()
    values = torch.unique(out.detach()[kept])
    torch.testing.assert_close(values, torch.full_like(values, 1.0 / (1.0 - used)))
    out.sum().backward()
    assert torch.equal(x.grad, out.detach())


def test_dropout_changes_nothing_outside_training_or_with_share_0() -> None:
    x = torch.randn(5, 3)
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)
    assert Dropout(0.5)(torch.empty(0, 3)).shape == (0, 3)
    half = Dropout(0.5)(x.bfloat16())
    assert half.dtype == torch.bfloat16


def test_input_dropout_is_unbiased(rng: np.random.Generator) -> None:
    X = sparse_rows(rng)
    layer = SparseLinear(12, 20, False)
    rows = SparseRows(X, CPU)

    def draw(seed: int) -> Any:
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            return layer(rows, 0.5).detach()

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    mean = torch.stack([draw(seed) for seed in range(400)]).mean(0)
    plain = layer.eval()(rows, 0.5).detach()
    assert torch.equal(plain, layer(rows, 0.0))
    # With rate 1/2, 400 draws have a standard error of |entry| / 20; 600 sums, fixed seeds.
    assert float((mean - plain).abs().max()) < 5.0 * float(plain.abs().max()) / 20


def test_extreme_network_takes_sparse_and_dense_rows(rng: np.random.Generator) -> None:
    X = sparse_rows(rng).astype(np.float32)
    rows, dense = SparseRows(X, CPU), torch.from_numpy(X.toarray())
    for sizes in ([], [6], [6, 4]):
        network = ExtremeNetwork(12, 9, sizes, hidden_dropout=0.5, input_dropout=0.5).eval()
        assert network.scores(rows).shape == (30, 9)
        torch.testing.assert_close(network.scores(rows), network.scores(dense))
        assert network(rows).shape == (30, sizes[-1] if sizes else 9)


# Lists


def ragged(rng: np.random.Generator, sizes: list[int], width: int) -> tuple[Any, Any]:
    x = torch.from_numpy(rng.standard_normal((sum(sizes), width)).astype(np.float32))
    return x, torch.tensor(np.concatenate(([0], np.cumsum(sizes))).astype(np.int64))


SIZES = [3, 0, 1, 9, 2, 1, 0, 17, 8, 4]


def attention(layers: int = 2) -> ListAttention:
    torch.manual_seed(0)
    return ListAttention(8, 2, layers, 0.1).eval()


@pytest.mark.parametrize("with_gradients", [False, True])
def test_padded_attention_matches_attention_per_list(with_gradients: bool, rng: np.random.Generator) -> None:
    """Values and gradients of lists padded together equal those of each list alone."""
    network = attention()
    x, offsets = ragged(rng, SIZES, 8)
    pull = torch.from_numpy(rng.standard_normal(x.shape).astype(np.float32))
    with torch.set_grad_enabled(with_gradients):
        x.requires_grad_(with_gradients)
        together = network(x, offsets)
        parts = [network(x[a:b], None) for a, b in pairwise(offsets) if b > a]
        # Single precision, sums in a different order.
        torch.testing.assert_close(together, torch.cat(parts), rtol=1e-4, atol=1e-5)
        if with_gradients:
            (first,) = torch.autograd.grad(together, x, pull, retain_graph=True)
            (second,) = torch.autograd.grad(torch.cat(parts), x, pull)
            assert torch.isfinite(first).all()
            torch.testing.assert_close(first, second, rtol=1e-3, atol=1e-5)


def test_attention_ignores_the_order_of_rows(rng: np.random.Generator) -> None:
    network = attention()
    x, offsets = ragged(rng, SIZES, 8)
    order = np.concatenate(
        [a + rng.permutation(b - a) for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]
    ).astype(int)
    with torch.no_grad():
        torch.testing.assert_close(network(x[order], offsets), network(x, offsets)[order], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("number", [0, 9])
def test_attention_does_not_mix_lists(number: int, rng: np.random.Generator) -> None:
    """Lists of three and four items, which are padded together."""
    network = attention()
    x, offsets = ragged(rng, SIZES, 8)
    own = slice(offsets[number], offsets[number + 1])
    changed = x.clone()
    changed[own, 0] += 5.0  # only one feature: layer normalisation would remove a shift of all features
    with torch.no_grad():
        moved = (network(x, offsets) - network(changed, offsets)).abs().max(1).values
    assert float(moved[own].min()) > 0.1  # far above single precision
    moved[own] = 0.0
    assert (moved == 0).all()  # products of the same shape have the same sums in the same order


def test_attention_uses_the_other_items_of_a_list(rng: np.random.Generator) -> None:
    network = attention()
    x, offsets = ragged(rng, [5], 8)
    changed = x.clone()
    changed[0, 0] += 1.0  # only one feature: layer normalisation would remove a shift of all features
    with torch.no_grad():
        moved = (network(x, offsets) - network(changed, offsets)).abs().max(1).values
    assert float(moved[1:].min()) > 1e-3  # far above single precision


def test_attention_accepts_empty_input() -> None:
    network = attention()
    for sizes in ([], [0], [0, 0]):
        x, offsets = ragged(np.random.default_rng(0), sizes, 8)
        assert network(x, offsets).shape == (0, 8)


def test_perceptron_scores_items_independently(rng: np.random.Generator) -> None:
    torch.manual_seed(0)
    network = RankingNetwork(5, (8, 8), layer_norm=True, residual=True).eval()
    x, offsets = ragged(rng, SIZES, 5)
    with torch.no_grad():
        together = network(x, offsets)
        apart = torch.cat([network(x[i : i + 1], None) for i in range(len(x))])
    assert together.shape == (len(x),)
    torch.testing.assert_close(together, apart, rtol=1e-5, atol=1e-6)  # single precision, other blocks


def test_hidden_layers_match_the_formula(rng: np.random.Generator) -> None:
    torch.manual_seed(0)
    hidden = make_hidden(6, (6, 4), "tanh", layer_norm=True, residual=True).double().eval()
    x = torch.from_numpy(rng.standard_normal((7, 6)))
    (first, second) = hidden
    with torch.no_grad():
        for layer, adds in ((first, True), (second, False)):  # only layers of equal size can be added
            z = x @ layer.linear.weight.T + layer.linear.bias
            z = (z - z.mean(1, keepdim=True)) / torch.sqrt(z.var(1, keepdim=True, unbiased=False) + 1e-5)
            x, before = torch.tanh(z) + (x if adds else 0.0), x
            torch.testing.assert_close(layer(before), x, rtol=1e-12, atol=1e-12)


def test_user_networks_can_take_lists_or_items() -> None:
    x, offsets = torch.arange(6.0)[:, None], torch.tensor([0, 2, 6])

    class Lists(torch.nn.Module):
        def forward(self, x: Any, offsets: Any) -> Any:
            return x[:, 0] + len(offsets)

    assert OwnNetwork(Lists())(x, offsets).tolist() == [3, 4, 5, 6, 7, 8]
    assert OwnNetwork(torch.nn.Identity())(x, offsets).tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match=r"network must give one score per row, \(6,\), got \(6, 2\)"):
        OwnNetwork(torch.nn.Linear(1, 2))(x, offsets)


# Top columns


def by_sorting(scores: Any, k: int) -> tuple[Any, Any]:
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(scores, order, 1)


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(1, 12), st.integers(1, 3))
def test_top_columns_break_ties_by_index(seed: int, rows: int, count: int, members: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 4, (members, rows, count)).astype(np.float32)
    k = int(rng.integers(1, count + 1))
    found, values = top_columns([torch.from_numpy(s) for s in 12.0 * scores], k)  # means are exact
    columns_, wanted = by_sorting(12.0 * scores.sum(0) / members, k)
    np.testing.assert_array_equal(found, columns_)
    np.testing.assert_allclose(values, wanted, rtol=1e-6)  # single precision


@pytest.mark.parametrize("count", [1023, 1024, 1025, 2048, 5000])
@pytest.mark.parametrize("k", [1, 5, 1023])
@pytest.mark.parametrize("members", [1, 2])
@pytest.mark.parametrize("compiled", [True, False])
def test_top_columns_of_layers_match_in_chunks(
    count: int, k: int, members: int, compiled: bool, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Integers, so that there are many ties and scores are exact in any order of summation."""
    if not compiled:  # the path of other devices
        monkeypatch.setattr(top_module, "_keep_best", top_module._keep_best_in_torch)
    monkeypatch.setattr(top_module, "_NUMBERS_AT_ONCE", 1)  # chunks of 1,024 columns
    layers = [
        tuple(torch.from_numpy(rng.integers(-2, 3, shape).astype(np.float32)) for shape in ((6, 3), (count, 3), count))
        for _ in range(members)
    ]
    scores = sum(h @ w.T + b for h, w, b in layers) / members
    found, values = top_columns(layers, k)
    wanted = by_sorting(scores.numpy(), k)
    np.testing.assert_array_equal(found, wanted[0])
    np.testing.assert_array_equal(values, wanted[1])


def test_top_columns_can_be_all_columns(rng: np.random.Generator) -> None:
    scores = torch.from_numpy(rng.standard_normal((3, 8)).astype(np.float32))
    found, values = top_columns([scores], 8)
    assert torch.equal(values, scores.sort(1, descending=True).values)
    assert torch.equal(scores.gather(1, found), values)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FeatureScaling(2, "x"), "scaling must be one of none, standard, log1p, quantile, got 'x'"),
        (lambda: FeatureScaling(2, missing="x"), "missing must be one of mean, indicator, error, got 'x'"),
        (lambda: make_hidden(3, 80), "hidden_sizes must be a sequence of whole numbers, got 80"),
        (lambda: make_hidden(3, [4, 0]), "hidden_sizes must be a whole number of at least 1, got 0"),
        (lambda: make_hidden(3, [4], "x"), "activation must be one of relu, gelu, silu, tanh, elu, got 'x'"),
        (lambda: make_hidden(3, [4], dropout=-0.1), "dropout must be a number from 0 to less than 1, got -0.1"),
        (lambda: make_hidden(3, [4], dropout=1.0), "dropout must be a number from 0 to less than 1, got 1.0"),
        (lambda: ExtremeNetwork(3, 4, [0]), "hidden_sizes must be a whole number of at least 1, got 0"),
        (lambda: ExtremeNetwork(3, 4, 80), "hidden_sizes must be a sequence of whole numbers, got 80"),
        (lambda: ExtremeNetwork(3, 4, [2], input_dropout=2), "input_dropout must be a number from 0"),
        (lambda: ExtremeNetwork(3, 4, [2], hidden_dropout=-1), "hidden_dropout must be a number from 0"),
        (lambda: ExtremeNetwork(3, 4, [2], activation="x"), "activation must be one of"),
        (lambda: RankingNetwork(3, [6], layers=1, heads=4), "attention_heads must divide the last hidden size, 6"),
        (lambda: RankingNetwork(3, [6], layers=1, heads=0), "attention_heads must be a whole number of at least 1"),
        (
            lambda: RankingNetwork(3, [6], layers=-1, heads=2),
            "attention_layers must be a whole number of at least 1, or 0",
        ),
    ],
)
def test_bad_arguments_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
