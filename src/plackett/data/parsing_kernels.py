"""Compiled parsing of `index:value` text.

Text is an array of bytes that ends with a line feed, so every scan terminates. Numbers are rounded correctly, as by
Python's float(): up to 19 digits by the method of Eisel and Lemire ("Number parsing at a gigabyte per second", 2021),
and longer ones if the digits beyond the 19th cannot matter. The rest (a few in a billion, or values near the limits of
the type) are recorded as hard and left to float().
"""

import math

import numpy as np

from plackett.compilation import inner, kernel

# Kinds of number, then error codes.
FINE, HARD, MISSING, NOT_A_NUMBER, INFINITE = 0, 1, 2, 3, 4
BAD_LABEL, BAD_QID, MIXED_QID, LATE_QID, NO_COLON, BAD_INDEX, LOW_INDEX, HIGH_INDEX = range(10, 18)
REPEATED_INDEX, FALLING_INDEX, BAD_VALUE, INFINITE_VALUE, HIGH_LABEL, REPEATED_LABEL, BAD_BYTE = range(18, 25)

_TAB, _LINE_FEED, _RETURN, _SPACE, _HASH, _COMMA, _COLON = 9, 10, 13, 32, 35, 44, 58

_SMALLEST_POWER, _LARGEST_POWER = -300, 280


def _powers_of_five() -> np.ndarray:
    """The leading 128 bits of 5^q as two words; rounded up for -27 <= q < 0 (5^-q fits one word), else truncated."""
    table = np.empty((_LARGEST_POWER - _SMALLEST_POWER + 1, 2), np.uint64)
    for q in range(_SMALLEST_POWER, _LARGEST_POWER + 1):
        if q >= 0:
            bits = (5**q).bit_length()
            word = 5**q << (128 - bits) if bits <= 128 else 5**q >> (bits - 128)
        else:
            word = (1 << ((5**-q).bit_length() + 127)) // 5**-q + (q >= -27)
        table[q - _SMALLEST_POWER] = word >> 64, word & (2**64 - 1)
    return table


_FIVES = _powers_of_five()
_TENS = 10.0 ** np.arange(23)  # all exact


@inner
def _high_and_low(a, b):
    """The 128-bit product of two words."""
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a1, a0, b1, b0 = a >> half, a & mask, b >> half, b & mask
    low, cross = a0 * b0, a1 * b0
    middle = a0 * b1 + (low >> half) + (cross & mask)
    return a1 * b1 + (cross >> half) + (middle >> half), (middle << half) | (low & mask)


@inner
def _scale(digits, power):
    """digits * 10^power rounded to nearest even, or NaN if that needs more than 128 bits or is near a limit."""
    if digits == np.uint64(0):
        return 0.0
    if digits < np.uint64(1 << 53) and -22 <= power <= 22:
        return np.float64(digits) / _TENS[-power] if power < 0 else np.float64(digits) * _TENS[power]
    if power < _SMALLEST_POWER or power > _LARGEST_POWER:
        return np.nan
    one = np.uint64(1)
    zeros = 0
    while digits < np.uint64(1 << 63):
        digits <<= one
        zeros += 1
    high, low = _high_and_low(digits, _FIVES[power - _SMALLEST_POWER, 0])
    if high & np.uint64(0x1FF) == np.uint64(0x1FF):
        extra, _ = _high_and_low(digits, _FIVES[power - _SMALLEST_POWER, 1])
        before = low
        low += extra
        if low < before:
            high += one
    if low == np.uint64(0xFFFFFFFFFFFFFFFF):
        return np.nan
    top = high >> np.uint64(63)
    shift = top + np.uint64(9)
    mantissa = high >> shift
    if low <= one and -4 <= power <= 23 and mantissa & np.uint64(3) == one and mantissa << shift == high:
        mantissa &= ~one  # halfway between two numbers: round to even
    mantissa = (mantissa + (mantissa & one)) >> one
    exponent = ((217706 * power) >> 16) + 63 + np.int64(top) - zeros - 52
    return math.ldexp(np.float64(mantissa), exponent)


@inner
def _ends(c):
    return c <= _HASH and (c == _SPACE or c == _LINE_FEED or c == _TAB or c == _RETURN or c == _HASH)  # noqa: SIM109


@inner
def _number(text, i):
    """Parse the number at i: its value, its end and its kind. A delimiter must follow it."""
    start = i
    negative = text[i] == 45
    if negative or text[i] == 43:
        i += 1
    digits, count, power, seen = np.uint64(0), 0, 0, 0
    ten = np.uint64(10)
    while 48 <= text[i] <= 57:
        seen += 1
        if count < 19:
            digits = digits * ten + np.uint64(text[i] - 48)
            count += digits > np.uint64(0)
        else:
            power += 1
        i += 1
    if text[i] == 46:
        i += 1
        while 48 <= text[i] <= 57:
            seen += 1
            if count < 19:
                digits = digits * ten + np.uint64(text[i] - 48)
                count += digits > np.uint64(0)
                power -= 1
            i += 1
    if seen == 0:
        return _word(text, start, i)
    long = count == 19 and seen > 19
    if text[i] | 32 == 101:
        i += 1
        below = text[i] == 45
        if below or text[i] == 43:
            i += 1
        first = i
        exponent = 0
        while 48 <= text[i] <= 57:
            exponent = min(10 * exponent + np.int64(text[i] - 48), 100_000)
            i += 1
        if i == first:
            return 0.0, i, NOT_A_NUMBER
        power += -exponent if below else exponent
    if not _ends(text[i]):
        return 0.0, i, NOT_A_NUMBER
    value = _scale(digits, power)
    if long and value != _scale(digits + np.uint64(1), power):
        value = np.nan
    if value != value:
        return 0.0, i, HARD
    return -value if negative else value, i, FINE


@inner
def _word(text, start, i):
    """Parse a token without digits: nan, inf or infinity in upper or lower case, or anything else."""
    end = i
    while not _ends(text[end]):
        end += 1
    if end - start == 0:
        return 0.0, end, MISSING
    c0, c1, c2 = text[i] | 32, text[min(i + 1, end)] | 32, text[min(i + 2, end)] | 32
    if end - i == 3 and c0 == 110 and c1 == 97 and c2 == 110:
        return np.nan, end, FINE
    if (end - i == 3 or end - i == 8) and c0 == 105 and c1 == 110 and c2 == 102:
        return 0.0, end, INFINITE
    return 0.0, end, NOT_A_NUMBER


@inner
def _whole(text, i):
    """Parse the integer at i: its value, its end, and whether it has 1 to 18 digits."""
    negative = text[i] == 45
    i += negative
    first = i
    value = 0
    while 48 <= text[i] <= 57 and i - first < 19:
        value = 10 * value + np.int64(text[i] - 48)
        i += 1
    return -value if negative else value, i, 0 < i - first < 19


@inner
def _skip_blanks(text, i):
    """Skip blanks. A carriage return counts as a blank only directly before a line feed."""
    while text[i] == _SPACE or text[i] == _TAB or (text[i] == _RETURN and text[i + 1] == _LINE_FEED):
        i += 1
    return i


@inner
def _skip_comment(text, i):
    """The end of a comment: the end of the line, or a byte that is not allowed in it."""
    while text[i] != _LINE_FEED and text[i] != 0 and not (text[i] == _RETURN and text[i + 1] != _LINE_FEED):
        i += 1
    return i


@inner
def _features(text, i, first_index, limit, sorted_only, columns, values, k, hard, state):
    """Parse `index:value` pairs from i to the end of the line or a comment. Returns where it stopped, and the new k.

    `state` has the error, its position and the number of hard values so far.
    """
    begin = k
    while True:
        i = _skip_blanks(text, i)
        if text[i] == _LINE_FEED or text[i] == _HASH:
            return i, k
        token = i
        index, i, is_whole = _whole(text, i)
        if not is_whole or text[i] != _COLON:
            state[0], state[1] = _what_token(text, token), token
            return i, k
        index -= first_index
        if index < 0 or index >= limit:
            state[0], state[1] = LOW_INDEX if index < 0 else HIGH_INDEX, token
            return i, k
        if k > begin and index <= columns[k - 1]:
            if index == columns[k - 1]:
                state[0], state[1] = REPEATED_INDEX, token
                return i, k
            if sorted_only:
                state[0], state[1] = FALLING_INDEX, token
                return i, k
        value, i, kind = _number(text, i + 1)
        if kind == HARD:
            hard[state[2], 0], hard[state[2], 1] = k, i
            state[2] += 1
        elif kind != FINE:
            state[0], state[1] = INFINITE_VALUE if kind == INFINITE else BAD_VALUE, token
            return i, k
        columns[k], values[k] = index, value
        k += 1


@inner
def _what_token(text, i):
    """Why a token is not index:value."""
    is_qid = text[i] == 113
    while not _ends(text[i]):
        if text[i] == _COLON:
            return LATE_QID if is_qid else BAD_INDEX
        i += 1
    return NO_COLON


@kernel
def parse_letor(text, first, last, first_index, limit, sorted_only, out):
    """Parse lines `label [qid:id] index:value ... [# comment]` in text[first:last], which ends with a line feed.

    `out` is y, qid, starts, columns, values, lines, comments, hard, state; state returns the error, its position and
    the numbers of hard values, rows, values, and rows with a qid. A hard label is recorded as -1 - row. Lines that are
    blank or only a comment are skipped.
    """
    y, qid, starts, columns, values, lines, comments, hard, state = out
    row, k, line, with_qid = 0, 0, 0, 0
    i = first
    state[:] = 0
    while i < last:
        i = _skip_blanks(text, i)
        if text[i] == _LINE_FEED or text[i] == _HASH:
            i = _skip_comment(text, i)
            if text[i] != _LINE_FEED:
                state[0], state[1] = BAD_BYTE, i
                break
            i += 1
            line += 1
            continue
        token = i
        label, i, kind = _number(text, i)
        if kind == HARD:
            hard[state[2], 0], hard[state[2], 1] = -1 - row, i
            state[2] += 1
        elif kind != FINE or label != label:
            state[0], state[1] = BAD_LABEL, token
            break
        y[row], starts[row], lines[row] = label, k, line
        i = _skip_blanks(text, i)
        qid[row] = 0
        if text[i] == 113 and text[i + 1] == 105 and text[i + 2] == 100 and text[i + 3] == _COLON:
            token = i
            number, i, is_whole = _whole(text, i + 4)
            if not is_whole or not _ends(text[i]):
                state[0], state[1] = BAD_QID, token
                break
            qid[row] = number
            with_qid += 1
        if with_qid != 0 and with_qid != row + 1:
            state[0], state[1] = MIXED_QID, token
            break
        i, k = _features(text, i, first_index, limit, sorted_only, columns, values, k, hard, state)
        if state[0] != FINE:
            break
        comments[row, 0] = comments[row, 1] = 0
        if text[i] == _HASH:
            comments[row, 0] = i + 1
            i = _skip_comment(text, i)
            if text[i] != _LINE_FEED:
                state[0], state[1] = BAD_BYTE, i
                break
            comments[row, 1] = i
        i += 1
        row += 1
        line += 1
    starts[row] = k
    state[3], state[4], state[5] = row, k, with_qid


@kernel
def parse_xmc(text, first, last, limit, sorted_only, n_labels, out):
    """Parse lines `label,label,... index:value ...` in text[first:last]; a row may have no labels, or be empty.

    `out` is starts, columns, values, label_starts, labels, hard, state; state is as in `parse_letor`, except that it
    ends with the number of labels.
    """
    starts, columns, values, label_starts, labels, hard, state = out
    row, k, m = 0, 0, 0
    i = first
    state[:] = 0
    while i < last:
        starts[row], label_starts[row] = k, m
        begin = i
        while not _ends(text[i]):
            token = i
            number, i, is_whole = _whole(text, i)
            if is_whole and text[i] == _COLON and m == label_starts[row]:
                i = begin  # the row has no labels and starts with a feature
                break
            if not is_whole or number < 0 or not (_ends(text[i]) or text[i] == _COMMA):
                state[0], state[1] = BAD_LABEL, token
                break
            if number >= n_labels:
                state[0], state[1] = HIGH_LABEL, token
                break
            labels[m] = number
            m += 1
            if text[i] == _COMMA:
                i += 1
                if _ends(text[i]):
                    state[0], state[1] = BAD_LABEL, token
                    break
        if state[0] == FINE:
            i, k = _features(text, i, 0, limit, sorted_only, columns, values, k, hard, state)
        if state[0] == FINE and text[i] == _HASH:
            state[0], state[1] = NO_COLON, i
        if state[0] != FINE:
            break
        i += 1
        row += 1
    starts[row], label_starts[row] = k, m
    state[3], state[4], state[5] = row, k, m


@kernel
def scatter(starts, columns, values, places, dense):
    """Write rows of sparse values into a zeroed dense array, each row at its place."""
    for row in range(starts.size - 1):
        for k in range(starts[row], starts[row + 1]):
            dense[places[row], columns[k]] = values[k]


@kernel
def sort_rows(starts, columns, values):
    """Sort each row by column. Returns the first row with a duplicate column, or -1."""
    for row in range(starts.size - 1):
        a, b = starts[row], starts[row + 1]
        rising = True
        for k in range(a + 1, b):
            rising &= columns[k] > columns[k - 1]
        if rising:
            continue
        order = np.argsort(columns[a:b])
        columns[a:b] = columns[a:b][order]
        values[a:b] = values[a:b][order]
        for k in range(a + 1, b):
            if columns[k] == columns[k - 1]:
                return row
    return -1


_DOCID = np.frombuffer(b"docid", np.uint8)


@kernel
def find_ids(text, comments):
    """Narrow comments to identifiers: the word after `docid =`, else the entire comment without surrounding blanks.

    Returns the greatest length.
    """
    width = 0
    for row in range(len(comments)):
        a, b = comments[row]
        while a < b and _ends(text[a]):
            a += 1
        while a < b and _ends(text[b - 1]):
            b -= 1
        i, same = a, 0
        while i < b and same < 5 and text[i] == _DOCID[same]:
            i, same = i + 1, same + 1
        i = _skip_blanks(text, i)
        if same == 5 and i < b and text[i] == 61:
            a = _skip_blanks(text, i + 1)
            i = a
            while i < b and not _ends(text[i]):
                i += 1
            b = i
        comments[row, 0], comments[row, 1] = a, b
        width = max(width, b - a)
    return width


@kernel
def gather(text, spans, out):
    """Copy spans of text into the rows of `out`, left-aligned."""
    for row in range(len(spans)):
        for j in range(spans[row, 1] - spans[row, 0]):
            out[row, j] = text[spans[row, 0] + j]
