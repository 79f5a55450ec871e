"""Metrics of rows of many labels in compiled code: the best columns of each row, and their gain."""

import math

import numpy as np

from plackett.compilation import inner, kernel
from plackett.likelihood.kernel_parts import longest_list
from plackett.metrics.ranking_kernels import room_to_rank, top_places


@kernel
def rank_columns(first, last, data, columns, offsets, top):
    """top[b] = the columns of the largest entries of row b, best first, then -1.

    Without `columns` the rows are dense. Equal entries keep the order in which they are stored. Returns the position of
    an entry that is not finite, or -1.
    """
    order, keys, spare_keys, spare_order = room_to_rank(longest_list(offsets, first, last))
    for b in range(first, last):
        begin, end = offsets[b], offsets[b + 1]
        for i in range(begin, end):
            if not abs(data[i]) < math.inf:
                return i
        places = min(top.shape[1], end - begin)
        top_places(data[begin:end], places, order, keys, spare_keys, spare_order)
        for place in range(places):
            top[b, place] = columns[begin + order[place]] if columns.size > 0 else order[place]
        top[b, places:] = -1
    return -1


@inner
def _is_in(value, values):
    found = False
    for i in range(values.size):
        found |= values[i] == value
    return found


@inner
def _position(value, values):
    """The position of a value, or -1."""
    position = -1
    for i in range(values.size):
        position = i if values[i] == value else position
    return position


@kernel
def score_rows(first, last, top, labels, offsets, count, weights, discounts, achieved, best, found):
    """The gain of the columns in `top` for each row, the best possible gain, and which of its labels were found.

    count      number of labels; no array is that long, because a file may declare any number
    weights    one per label; empty: all 1
    achieved   sum over the places of discount x weight of the label there, if the row has it
    best       the same for the row's labels in descending order of weight
    found      marks entries of `labels`
    Returns a row whose `top` repeats a column or names one that does not exist, or -1.
    """
    longest = longest_list(offsets, first, last)
    order, keys, spare_keys, spare_order = room_to_rank(longest)
    own_weights = np.ones(longest)
    places = discounts.size
    for b in range(first, last):
        own = labels[offsets[b] : offsets[b + 1]]
        if weights.size > 0:
            for i in range(own.size):
                own_weights[i] = weights[own[i]]
        achieved[b], best[b] = 0.0, 0.0
        for place in range(places):
            column = top[b, place]
            if column < 0:
                break
            if column >= count or _is_in(column, top[b, :place]):
                return b
            position = _position(column, own)
            if position >= 0:
                achieved[b] += discounts[place] * own_weights[position]
                found[offsets[b] + position] = True
        top_places(own_weights[: own.size], min(places, own.size), order, keys, spare_keys, spare_order)
        for place in range(min(places, own.size)):
            best[b] += discounts[place] * own_weights[order[place]]
    return -1
