"""Splits keep each list intact, lose nothing and duplicate nothing."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from plackett.data.containers import Ballots, MultilabelData, RankingData
from plackett.data.splits import concatenate, k_fold, letor_folds, train_validation_split
from plackett.lists import offsets_from_sizes


def ranking_data(sizes, *, first_qid=0, n_features=2, sparse=False, ids=None):
    """Lists of the given sizes; every value of a row identifies the list and the row."""
    sizes = np.asarray(sizes, np.int64)
    rows = int(sizes.sum())
    qid = first_qid + np.repeat(np.arange(len(sizes)), sizes)
    X = qid[:, None] + np.arange(1.0, rows * n_features + 1).reshape(rows, n_features) / 1000
    return RankingData(csr_array(X) if sparse else X, X[:, 0] + 1, qid, offsets_from_sizes(sizes), ids)


def make_container(kind, count):
    if kind == "lists":
        return ranking_data(1 + np.arange(count) % 3)
    if kind == "rows":
        numbers = csr_array(np.arange(1.0, count + 1)[:, None])
        return MultilabelData(numbers, numbers)
    sizes = np.full(count, 2)
    return Ballots(
        items=np.tile([0, 1], count),
        labels=np.repeat(np.arange(float(count)), 2),
        offsets=offsets_from_sizes(sizes),
        weights=np.ones(count),
        names=["a", "b"],
    )


def numbers_of(data):
    """The numbers of these lists, rows or ballots in `make_container`."""
    if isinstance(data, RankingData):
        return data.qid[data.offsets[:-1]].tolist()
    if isinstance(data, MultilabelData):
        return (data.X.data - 1).astype(int).tolist()
    return data.labels[::2].astype(int).tolist()


kinds = st.sampled_from(["lists", "rows", "ballots"])
seeds = st.one_of(st.none(), st.integers(0, 100))


@given(kinds, st.integers(2, 20), st.integers(2, 6), seeds)
def test_each_list_is_in_one_test_part(kind, count, n_splits, seed):
    count = max(count, n_splits)
    data = make_container(kind, count)
    folds = list(k_fold(data, n_splits, random_state=seed))
    assert len(folds) == n_splits
    assert sorted(number for _, test in folds for number in numbers_of(test)) == list(range(count))
    for train, test in folds:
        assert sorted(numbers_of(train) + numbers_of(test)) == list(range(count))
        assert len(test) in (count // n_splits, -(-count // n_splits))
    if seed is None:
        assert [number for _, test in folds for number in numbers_of(test)] == list(range(count))


@given(kinds, st.integers(2, 30), st.floats(0.05, 0.95), seeds)
def test_validation_part_has_the_requested_share(kind, count, share, seed):
    expected = round(share * count)
    data = make_container(kind, count)
    if not 0 < expected < count:
        with pytest.raises(ValueError, match="validation must leave at least one list in each part"):
            train_validation_split(data, share, random_state=seed)
        return
    train, validation = train_validation_split(data, share, random_state=seed)
    assert len(validation) == expected
    both = numbers_of(train) + numbers_of(validation)
    assert sorted(both) == list(range(count))
    if seed is None:
        assert both == list(range(count))


def test_seeds_shuffle_reproducibly():
    data = make_container("lists", 40)

    def first_test(seed):
        return numbers_of(next(iter(k_fold(data, random_state=seed)))[1])

    def validation(seed):
        return numbers_of(train_validation_split(data, random_state=seed)[1])

    for held_out in (first_test, validation):
        assert held_out(1) == held_out(1) == held_out(np.random.default_rng(1))
        assert held_out(1) != held_out(2)
        assert held_out(1) != held_out(None)


def test_rows_stay_with_their_list():
    data = make_container("lists", 9)
    for _, test in k_fold(data, 4, random_state=3):
        for b, number in enumerate(numbers_of(test)):
            given_rows = slice(data.offsets[number], data.offsets[number + 1])
            rows = slice(test.offsets[b], test.offsets[b + 1])
            assert np.array_equal(test.X[rows], data.X[given_rows])
            assert np.array_equal(test.y[rows], data.y[given_rows])


def test_letor_folds_rotate():
    parts = [ranking_data([1, 2], first_qid=10 * k) for k in range(1, 6)]
    folds = [[sorted({int(q) // 10 for q in part.qid}) for part in fold] for fold in letor_folds(parts)]
    assert folds == [
        [[1, 2, 3], [4], [5]],
        [[2, 3, 4], [5], [1]],
        [[3, 4, 5], [1], [2]],
        [[1, 4, 5], [2], [3]],
        [[1, 2, 5], [3], [4]],
    ]


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), min_size=3, max_size=7), st.booleans())
def test_letor_folds_use_every_list(all_sizes, sparse):
    parts = [
        ranking_data(sizes, first_qid=10 * k, n_features=1 + k % 3, sparse=sparse) for k, sizes in enumerate(all_sizes)
    ]
    everything = sorted(label for part in parts for label in part.y)
    folds = list(letor_folds(parts))
    assert sorted(label for fold in folds for label in fold.test.y) == everything
    assert sorted(label for fold in folds for label in fold.validation.y) == everything
    for fold in folds:
        assert sorted(label for part in fold for label in part.y) == everything
        assert {part.X.shape[1] for part in fold} == {max(part.X.shape[1] for part in parts)}


@pytest.mark.parametrize("sparse", [False, True])
def test_concatenate_joins_parts_in_order(sparse):
    parts = [
        ranking_data([2, 0, 1], n_features=1, sparse=sparse, ids=np.array(["a", "b", "c"])),
        ranking_data([1], first_qid=7, n_features=3, sparse=sparse, ids=np.array(["long name"])),
    ]
    data = concatenate(parts)
    assert data.offsets.tolist() == [0, 2, 2, 3, 4]
    assert data.qid.tolist() == [0, 0, 2, 7]
    assert data.ids.tolist() == ["a", "b", "c", "long name"]
    assert data.y.tolist() == [*parts[0].y, *parts[1].y]
    X = data.X.toarray() if sparse else data.X
    assert np.array_equal(X[:3, :1], parts[0].X.toarray() if sparse else parts[0].X)
    assert np.array_equal(X[:3, 1:], np.zeros((3, 2)))
    assert np.array_equal(X[3:], parts[1].X.toarray() if sparse else parts[1].X)
    assert parts[0].X.shape == (3, 1)  # as it was
    assert concatenate([data]).y.tolist() == data.y.tolist()
    assert concatenate([data, data], renumber=True).qid.tolist() == [0, 0, 2, 3, 4, 4, 6, 7]


DATA = ranking_data([1, 2, 1])
OTHER = ranking_data([1, 1], first_qid=5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: k_fold(DATA, 1), "n_splits must be at least 2, got 1"),
        (lambda: k_fold(DATA, 2.0), "n_splits must be a whole number, got 2.0"),
        (lambda: k_fold(DATA, 4), "data must have at least n_splits = 4 lists, got 3"),
        (lambda: train_validation_split(DATA, 1.0), "validation must be a number between 0 and 1, got 1.0"),
        (lambda: train_validation_split(DATA, float("nan")), "validation must be a number between 0 and 1, got nan"),
        (lambda: letor_folds([DATA, OTHER]), r"parts must contain at least 3 parts \(train, validation, test\), got 2"),
        (lambda: letor_folds([DATA, OTHER, DATA]), "qid must be unique to a part, got 0 in 2 parts"),
        (lambda: concatenate([]), "parts must contain at least one part, got none"),
        (lambda: concatenate([DATA, DATA]), "qid must be unique to a part, got 0 in 2 parts; .*renumber"),
        (
            lambda: concatenate([DATA, replace(OTHER, ids=np.arange(2))]),
            "ids must be given in all parts or in none, got them in 1 of 2",
        ),
        (
            lambda: concatenate([DATA, replace(OTHER, qid=np.array(["x", "y"]))]),
            "qid must hold numbers in all parts or in none, got int64, <U1",
        ),
        (
            lambda: concatenate([replace(DATA, ids=np.arange(4)), replace(OTHER, ids=np.array(["x", "y"]))]),
            "ids must hold numbers in all parts or in none, got int64, <U1",
        ),
        (
            lambda: concatenate([DATA, replace(OTHER, X=csr_array(OTHER.X))]),
            "X must be dense in all parts or sparse in all, got 1 dense of 2",
        ),
    ],
)
def test_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()  # immediately, not when the first fold is requested
