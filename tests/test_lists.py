"""Ragged lists from qid, group, offsets and where."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plackett.lists import Lists, make_batch, make_lists


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


def test_without_anything_all_rows_are_one_list():
    assert make_lists(4).offsets.tolist() == [0, 4]
    assert make_lists(0).offsets.tolist() == [0, 0]


@pytest.mark.parametrize("kind", [int, float, np.uint8])
def test_offsets_of_any_whole_type(kind):
    assert make_lists(3, offsets=np.array([0, 1, 3]).astype(kind)).offsets.dtype == np.int64


def test_where_of_a_padded_array():
    where = np.array([[True, True, False], [False, False, False], [False, True, True]])
    batch = make_batch((3, 3), where=where)
    assert batch.offsets.tolist() == [0, 2, 2, 4]


def test_restore_is_the_inverse_of_sort_for_matrices():
    lists = Lists(np.array([0, 2, 3]), np.array([2, 0, 1]))
    values = np.arange(6).reshape(3, 2)
    np.testing.assert_array_equal(lists.restore(lists.sort(values)), values)
