"""Ragged lists from qid, group, offsets and where."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plackett.lists import Lists, flat_lists, make_lists


@given(st.lists(st.integers(0, 5), max_size=40))
def test_qid_in_any_order_is_sorted_and_restored(qid):
    rows = np.array(qid, np.int64)
    lists = make_lists(len(rows), qid=rows)
    by_list = lists.sort(rows)
    for first, last in zip(lists.offsets[:-1], lists.offsets[1:], strict=True):
        assert len(set(by_list[first:last])) == 1
    assert len(lists) == len(set(qid))
    assert by_list[lists.offsets[:-1]].tolist() == list(dict.fromkeys(qid))  # lists in order of first appearance
    np.testing.assert_array_equal(lists.restore(by_list), rows)


@given(st.lists(st.integers(0, 3), max_size=30))
def test_rows_of_a_list_keep_their_order(qid):
    lists = make_lists(len(qid), qid=qid)
    rows = lists.sort(np.arange(len(qid)))
    for first, last in zip(lists.offsets[:-1], lists.offsets[1:], strict=True):
        assert (np.diff(rows[first:last]) > 0).all()


def test_contiguous_qid_needs_no_sorting():
    lists = make_lists(5, qid=["b", "b", "a", "c", "c"])
    assert lists.rows is None
    assert lists.offsets.tolist() == [0, 2, 3, 5]


def test_group_and_offsets_agree():
    by_group, by_offsets = make_lists(5, group=[2, 0, 3]), make_lists(5, offsets=[0, 2, 2, 5])
    np.testing.assert_array_equal(by_group.offsets, by_offsets.offsets)
    assert by_group.sizes.tolist() == [2, 0, 3]
    assert by_group.items == 5


def test_all_rows_are_one_list_by_default():
    assert make_lists(4).offsets.tolist() == [0, 4]
    assert make_lists(0).offsets.tolist() == [0, 0]


@pytest.mark.parametrize("kind", [int, float, np.uint8])
def test_offsets_of_any_integer_type_are_accepted(kind):
    assert make_lists(3, offsets=np.array([0, 1, 3]).astype(kind)).offsets.dtype == np.int64


def test_where_selects_items_of_a_padded_array():
    where = np.array([[True, True, False], [False, False, False], [False, True, True]])
    scores = np.arange(9, dtype=np.float32).reshape(3, 3)
    lists = flat_lists(scores, -scores, where=where)
    assert lists.offsets.tolist() == [0, 2, 2, 4]
    assert lists.scores.tolist() == (-lists.labels).tolist() == [0.0, 1.0, 7.0, 8.0]
    restored = lists.restore(lists.scores)
    assert restored.dtype == np.float32
    np.testing.assert_array_equal(restored, np.where(where, scores, 0.0))


@pytest.mark.parametrize(
    ("shape", "given"),
    [
        ((6,), {}),
        ((6,), {"offsets": [0, 2, 2, 6]}),
        ((6,), {"where": [True, False, True, True, False, True]}),
        ((2, 3), {}),
        ((2, 3), {"where": [[True, False, True], [False, False, True]]}),
    ],
)
def test_flat_lists_of_numpy_and_torch_are_the_same(shape, given):
    torch = pytest.importorskip("torch")
    scores, labels = np.arange(6.0).reshape(shape), np.arange(6).reshape(shape) % 3
    arrays = {name: np.array(value) for name, value in given.items()}
    ours = flat_lists(scores, labels, **arrays)
    theirs = flat_lists(
        torch.tensor(scores), torch.tensor(labels), **{name: torch.tensor(value) for name, value in arrays.items()}
    )
    np.testing.assert_array_equal(ours.offsets, theirs.offsets)
    np.testing.assert_array_equal(ours.scores, theirs.scores.numpy())
    np.testing.assert_array_equal(ours.labels, theirs.labels.numpy())


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize(
    ("shape", "given", "message"),
    [
        ((2, 3), {"offsets": [0, 6]}, "offsets belong to one-dimensional scores"),
        ((6,), {"offsets": [0, 5]}, "offsets must end with the number of items, 6, got 5"),
        ((6,), {"offsets": [0, 6], "where": [True] * 6}, "at most one of offsets and where"),
        ((6,), {"where": [1] * 6}, r"where must be boolean, got (torch\.)?int64"),
        ((6,), {"where": [True] * 5}, r"where must have the shape of scores, \(6,\), got \(5,\)"),
        ((1, 2, 3), {}, "scores must have one dimension .* got 3"),
    ],
)
def test_flat_lists_refuse_the_same_structure(kind, shape, given, message):
    array = pytest.importorskip("torch").tensor if kind == "torch" else np.array
    values = array(np.arange(6.0).reshape(shape))
    with pytest.raises(ValueError, match=message):
        flat_lists(values, values, **{name: array(value) for name, value in given.items()})


def test_restore_is_the_inverse_of_sort_for_matrices():
    lists = Lists(np.array([0, 2, 3]), np.array([2, 0, 1]))
    values = np.arange(6).reshape(3, 2)
    np.testing.assert_array_equal(lists.restore(lists.sort(values)), values)
