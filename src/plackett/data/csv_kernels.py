"""Compiled parsing of CSV: rows to cells, and cells to codes of their different texts.

Text is an array of bytes. Anything out of the ordinary stops the parser, which then leaves the file to the slower
reader in Python: quotes inside a cell that does not begin with one, carriage returns inside a line, rows of another
length.
"""

import numpy as np

from plackett.compilation import inner, kernel
from plackett.random_kernels import GOLDEN

FINE, UNUSUAL = 0, 1
_LINE_FEED, _RETURN, _QUOTE = 10, 13, 34


@inner
def _closing_quote(text, i, last):
    """The end of a quoted cell that begins at i, or `last` if it does not end; and whether it holds doubled quotes."""
    doubled = False
    while True:
        while i < last and text[i] != _QUOTE:
            i += 1
        if i + 1 >= last:
            return last, doubled
        if text[i + 1] != _QUOTE:
            return i, doubled
        doubled = True
        i += 2


@kernel
def split_rows(text, last, delimiter, places, spans, doubled, state):
    """Find the cells of the complete rows in text[:last], at most as many as `spans` holds. Returns their number.

    places[c] is where the spans of column c go, or -1. Empty lines are skipped. `state` receives the position after the
    last row, and FINE or UNUSUAL.
    """
    columns, room = places.size, spans.shape[1]
    i, row = 0, 0
    state[0], state[1] = 0, FINE
    while i < last and row < room:
        if text[i] == _LINE_FEED:
            i += 1
            state[0] = i
            continue
        cell = 0
        ended = False
        while not ended:
            begin, end, has_doubled = i, i, False
            if i < last and text[i] == _QUOTE:
                begin = i + 1
                end, has_doubled = _closing_quote(text, begin, last)
                i = end + 1
            else:
                while i < last and text[i] != delimiter and text[i] != _LINE_FEED and text[i] != _RETURN:
                    if text[i] == _QUOTE:
                        state[1] = UNUSUAL
                        return row
                    i += 1
                end = i
            if i >= last:  # the row goes on in the next block
                return row
            if cell < columns and places[cell] >= 0:
                spans[places[cell], row, 0], spans[places[cell], row, 1] = begin, end
                doubled[places[cell], row] = has_doubled
            cell += 1
            mark = text[i]
            i += 1
            if mark == _RETURN:
                if i >= last:
                    return row
                if text[i] == _LINE_FEED and cell == 1 and end == begin and end + 1 == i:
                    cell = -1  # an empty line
                mark = text[i]
                i += 1
                if mark != _LINE_FEED:
                    state[1] = UNUSUAL
                    return row
            ended = mark == _LINE_FEED
            if not ended and mark != delimiter:
                state[1] = UNUSUAL
                return row
        state[0] = i
        if cell == -1:
            continue
        if cell != columns:
            state[1] = UNUSUAL
            return row
        row += 1
    return row


@inner
def _hash(text, begin, end, seed):
    """A hash of bytes, eight at a time: the loads do not wait for each other, the multiplications do."""
    i, last, found = np.uint64(begin), np.uint64(end), seed
    one, eight = np.uint64(1), np.uint64(8)
    while i + eight <= last:
        word = np.uint64(0)
        for k in range(8):
            word |= np.uint64(text[i + np.uint64(k)]) << np.uint64(8 * k)
        found = (found ^ word) * GOLDEN
        found ^= found >> np.uint64(29)
        i += eight
    word = last - np.uint64(begin)
    while i < last:
        word = (word << eight) | np.uint64(text[i])
        i += one
    found = (found ^ word) * GOLDEN
    return found ^ (found >> np.uint64(32))


@inner
def _equal(one, begin, other, start, size):
    differences = np.uint8(0)
    for i in range(np.uint64(size)):
        differences |= one[np.uint64(begin) + i] ^ other[np.uint64(start) + i]
    return differences == np.uint8(0)


@kernel
def number_cells(text, spans, doubled, first, rows, slots, hashes, starts, names, count, codes):
    """The codes of the cells first..rows, by the names seen before. Returns the first row that there is no room for.

    Name k is names[starts[k]:starts[k + 1]], with the hash hashes[k]; count[0] is the number of names. `slots` is a
    table of codes by hash, -1 where it is free, its size a power of two. Cells with doubled quotes are names of their
    own.
    """
    mask = np.uint64(slots.size - 1)
    for r in range(first, rows):
        begin, end = spans[r, 0], spans[r, 1]
        size = end - begin
        own = _hash(text, begin, end, np.uint64(7) if doubled[r] else np.uint64(1))
        slot = own & mask
        code = -1
        while slots[slot] >= 0:
            k = slots[slot]
            if hashes[k] == own and starts[k + 1] - starts[k] == size and _equal(text, begin, names, starts[k], size):
                code = k
                break
            slot = (slot + np.uint64(1)) & mask
        if code < 0:
            code = count[0]
            if code >= hashes.size or starts[code] + size > names.size:
                return r
            for i in range(size):
                names[starts[code] + i] = text[begin + i]
            starts[code + 1] = starts[code] + size
            hashes[code] = own
            slots[slot] = code
            count[0] += 1
        codes[r] = code
    return rows


@kernel
def fill_slots(slots, hashes, count):
    """Enter the first `count` names in an empty table."""
    mask = np.uint64(slots.size - 1)
    for k in range(count):
        slot = hashes[k] & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = k
    return 0
