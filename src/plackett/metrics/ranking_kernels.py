"""Metrics of ragged lists in compiled code.

Items are ranked only as deep as the cut-off requires: selection finds the score of the last place, the items above it
are sorted, and those that tie with it are collected. Tied items form a block, and the expectation over its orders is in
closed form; where ties are broken, every item is its own block.
"""

import math

import numpy as np

from plackett.compilation import inner, inner_part, inner_sum, kernel, light_kernel
from plackett.likelihood.kernel_parts import longest_list

# The worth of an item.
BINARY, LINEAR, EXP2 = 0, 1, 2
# How the worths at the places of a list are combined.
DISCOUNTED, SHARE_OF_IDEAL, PRECISIONS, FIRST, CASCADE = 0, 1, 2, 3, 4

_RUN = 16  # runs this short are sorted by comparing all pairs: no branch depends on the outcome
_LANES = 16  # values compared at a time
_MOST_LEVELS = 12  # labels with more distinct values than this are sorted
_MOST_GRADES = 4  # whole labels up to this are counted in one pass
_NEGLIGIBLE = 40.0  # exp(-40) is 4e-18, less than rounding


@inner
def _pivot(x, size, k, state):
    """A guess at the k-th largest of x[:size]. Pseudo-random places, so that no arrangement of x is a bad one.

    The largest of three values if few are wanted, the smallest if nearly all are, else the median.
    """
    a = x[(state * size) >> 31]
    state = (state * 1103515245 + 12345) & 0x7FFFFFFF
    b = x[(state * size) >> 31]
    state = (state * 1103515245 + 12345) & 0x7FFFFFFF
    c = x[(state * size) >> 31]
    low, high = min(a, b), max(a, b)
    if 4 * k < size:
        return max(high, c)
    if 4 * k > 3 * size:
        return min(low, c)
    return max(low, min(high, c))


@inner
def _compare(x, size, pivot):
    """How many of x[:size] are larger, and how many equal."""
    larger = 0
    equal = 0
    for i in range(size):
        larger += x[i] > pivot
        equal += x[i] == pivot
    return larger, equal


@inner_part
def _kth_largest(x, size, k):
    """The k-th largest of x[:size], which is overwritten: quickselect whose loops do not branch on the data."""
    state = 12345
    while True:
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        pivot = _pivot(x, size, k, state)
        larger, equal = _compare(x, size, pivot)
        if larger < k <= larger + equal:
            return pivot
        kept = 0
        if k <= larger:
            for i in range(size):
                value = x[i]
                x[kept] = value
                kept += value > pivot
        else:
            for i in range(size):
                value = x[i]
                x[kept] = value
                kept += value < pivot
            k -= larger + equal
        size = kept


@inner_part
def _sort_run(keys, items, size, sorted_keys, sorted_items):
    """Sort a few keys by counting how many come before each: more comparisons, but none to mispredict."""
    for i in range(size):
        key, place = keys[i], 0
        for j in range(size):
            place += (keys[j] > key) | ((keys[j] == key) & (j < i))
        sorted_keys[place], sorted_items[place] = key, items[i]


@inner_part
def _merge_runs(keys, items, start, middle, end, merged_keys, merged_items):
    """Merge the keys start..middle-1 and middle..end-1; returns how many pairs of the two sides swap places."""
    i, j, at, swaps = start, middle, start, 0
    while i < middle and j < end:
        from_right = keys[j] > keys[i]
        source = j if from_right else i
        merged_keys[at], merged_items[at] = keys[source], items[source]
        swaps += (middle - i) * from_right
        j += from_right
        i += not from_right
        at += 1
    for left in range(i, middle):
        merged_keys[at], merged_items[at] = keys[left], items[left]
        at += 1
    for right in range(j, end):
        merged_keys[at], merged_items[at] = keys[right], items[right]
        at += 1
    return swaps


@inner_part
def _sort_descending(keys, items, size, spare_keys, spare_items):
    """Sort keys[:size], and the items that belong to them; equal keys keep their order.

    Returns how many pairs change places, not counting those within the initial runs of `_RUN` keys.
    """
    for start in range(0, size, _RUN):
        end = min(start + _RUN, size)
        _sort_run(keys[start:end], items[start:end], end - start, spare_keys[start:end], spare_items[start:end])
    swaps, width = 0, _RUN
    while True:
        for i in range(size):
            keys[i], items[i] = spare_keys[i], spare_items[i]
        if width >= size:
            return swaps
        for start in range(0, size, 2 * width):
            middle, end = min(start + width, size), min(start + 2 * width, size)
            swaps += _merge_runs(keys, items, start, middle, end, spare_keys, spare_items)
        width *= 2


@inner
def room_to_rank(longest):
    """The working arrays of `top_places`."""
    longest = max(longest, _LANES)
    return (
        np.empty(longest + 1, np.int64),
        np.empty(longest + 1),
        np.empty(longest + 1),
        np.empty(longest + 1, np.int64),
    )


@inner_part
def _peaks_below(values, limit, peaks):
    """peaks[j] = the largest of those of the values j, j + LANES, ... that are below the limit."""
    for j in range(_LANES):
        peaks[j] = -math.inf
    whole = values.size - values.size % _LANES
    for start in range(0, whole, _LANES):
        for j in range(_LANES):
            value = values[start + j]
            peaks[j] = value if (value < limit) & (value > peaks[j]) else peaks[j]
    for i in range(whole, values.size):
        if peaks[i - whole] < values[i] < limit:
            peaks[i - whole] = values[i]


@inner_part
def top_places(values, places, order, keys, spare_keys, spare_order):
    """order[:found] = the items of the first `places` places, best first, and all that tie with the last of them.

    Equal values keep their order. The arrays have room for one extra item, because the loop writes before it knows
    whether to keep the item.
    """
    size = values.size
    if places >= size:
        for i in range(size):
            keys[i], order[i] = values[i], i
        _sort_descending(keys, order, size, spare_keys, spare_order)
        return size
    # At least `places` values reach the last of so many peaks, and few others do.
    bound = -math.inf
    if places < _LANES and size >= 4 * _LANES:
        _peaks_below(values, math.inf, keys)
        bound = _kth_largest(keys, _LANES, places)
    found = 0
    for i in range(size):
        order[found] = i
        found += values[i] >= bound
    for i in range(found):
        keys[i] = values[order[i]]
    if found <= 2 * _RUN:
        _sort_run(keys, order, found, spare_keys, spare_order)
        for i in range(found):
            order[i] = spare_order[i]
        while spare_keys[found - 1] < spare_keys[places - 1]:
            found -= 1
        return found
    last = _kth_largest(keys, found, places)
    above, ties = 0, 0
    for i in range(found):
        item = order[i]
        order[above], spare_order[ties] = item, item
        keys[above] = values[item]
        above += values[item] > last
        ties += values[item] == last
    for i in range(ties):
        order[above + i] = spare_order[i]
    _sort_descending(keys, order, above, spare_keys, spare_order)
    return above + ties


@inner_part
def _copy_list(scores, labels, begin, s, y, lowest, highest, threshold):
    """Copy a list; returns how many items are invalid, are relevant, lack a grade 0 to 4, and have at least 1, 2, 3, 4.

    Views of the shared arrays would share one reference count among all threads, which costs more than the copy.
    Unsigned positions cannot mean "from the end", a case that would prevent vectorisation.
    """
    bad, relevant, ungraded, start = 0, 0, 0, np.uint64(begin)
    one, two, three, four = 0, 0, 0, 0
    for i in range(np.uint64(y.size)):
        score, label = scores[start + i], labels[start + i]
        s[i], y[i] = score, label
        bad += not ((abs(score) < math.inf) & (label >= lowest) & (label <= highest))
        relevant += label >= threshold
        ungraded += not ((label >= 0.0) & (label <= _MOST_GRADES) & (label == math.floor(label)))
        one += label >= 1.0
        two += label >= 2.0
        three += label >= 3.0
        four += label >= 4.0
    return bad, relevant, ungraded, (one, two, three, four)


@inner
def _copy(x):
    copied = np.empty(x.size)
    for i in range(x.size):
        copied[i] = x[i]
    return copied


@inner
def _first_bad(scores, labels, lowest, highest):
    for i in range(labels.size):
        if not (abs(scores[i]) < math.inf and lowest <= labels[i] <= highest):
            return i
    return -1


@inner
def _worth(label, kind, threshold, scale):
    if kind == BINARY:
        return 1.0 if label >= threshold else 0.0
    if kind == LINEAR:
        return label * scale
    if label < 62.0 and label == math.floor(label):
        return (float(1 << int(label)) - 1.0) * scale
    return math.expm1(label * math.log(2.0)) * scale


@inner_sum
def _sum(x, start, end):
    total = 0.0
    for i in range(start, end):
        total += x[i]
    return total


@inner_sum
def _count(x, value):
    number = 0
    for i in range(x.size):
        number += x[i] == value
    return number


@inner_part
def _ideal(labels, places, kind, threshold, scale, discounts, order, keys, spare_keys, spare_order):
    """The sum of worth x discount in the best order. Grades are few: they are counted from the highest down."""
    total, place, level = 0.0, 0, math.inf
    for _ in range(_MOST_LEVELS):
        _peaks_below(labels, level, keys)
        level = keys[0]
        for j in range(1, _LANES):
            level = max(level, keys[j])
        until = min(place + _count(labels, level), places)
        total += _worth(level, kind, threshold, scale) * _sum(discounts, place, until)
        place = until
        if place == places or level <= 0.0:
            return total
    top_places(labels, places, order, keys, spare_keys, spare_order)
    total = 0.0
    for place in range(places):
        total += _worth(labels[order[place]], kind, threshold, scale) * discounts[place]
    return total


@inner
def _ideal_of_grades(at_least, places, worths, running):
    """As `_ideal`, for grades from 0 to 4. `at_least` says how many are at least 1 to 4, `worths` what they are worth.

    `running` are sums of discounts from the first place on.
    """
    total, place = 0.0, 0
    for grade in range(_MOST_GRADES, 0, -1):
        until = min(at_least[grade - 1], places)
        total += worths[grade] * (running[until] - running[place])
        place = until
    return total


@inner
def _reaching(s, bound, order):
    """order[:found] = the items that reach the bound. Unsigned numbers cannot count from the end: less to check."""
    found, one = np.uint64(0), np.uint64(1)
    for i in range(np.uint64(s.size)):
        order[found] = i
        found += one if s[i] >= bound else np.uint64(0)
    return np.int64(found)


@inner
def _peaks(values, peaks):
    """As `_peaks_below` without a limit; ignores an incomplete last row, so peaks may be too low."""
    lanes = np.uint64(_LANES)
    for j in range(lanes):
        peaks[j] = values[j]
    for row in range(np.uint64(1), np.uint64(values.size // _LANES)):
        for j in range(lanes):
            value = values[row * lanes + j]
            peaks[j] = value if value > peaks[j] else peaks[j]


@inner_part
def _rank_few(s, y, places, worths, discounts, order, keys):
    """The sum of worth x discount over few places of a long list of grades, or -1 where this method does not apply.

    The place of an item is the number of higher scores. Few items can have one of the first places: a bound that some
    more than these reach is guessed from the peaks of 16 strands. The items above it are compared pair by pair, without
    branches. With too few or too many of them, or with ties, the method does not apply. discounts[places] is 0.
    """
    _peaks(s, keys)
    mean, lowest = 0.0, keys[0]
    for i in range(_LANES):
        mean += keys[i] / _LANES
        lowest = min(lowest, keys[i])
    found = _reaching(s, lowest + (1.0 - places / (2.0 * _LANES)) * (mean - lowest), order)
    if found < places or found > 2 * _LANES:
        return -1.0
    for i in range(found):
        keys[i] = s[order[i]]
    padded = (found + 7) // 8 * 8
    for i in range(found, padded):
        keys[i] = -math.inf
    total, taken, items = 0.0, 0, 0
    candidates = keys[:padded]
    for i in range(found):
        key, place = candidates[i], 0
        for j in range(candidates.size):
            place += candidates[j] > key
        place = min(place, places)
        total += worths[int(y[order[i]])] * discounts[place]
        taken |= 1 << place
        items += place < places
    whole = (1 << places) - 1
    return total if items == places and taken & whole == whole else -1.0


# The items start..end-1 form a block, of which the places start..stop-1 count.


@inner
def _precisions(hits, before, start, end, stop):
    """E[sum over the places of relevant x hits so far / place] for a block of n items with r = `hits` relevant.

    A place holds a relevant item with probability r/n, and then each earlier place of the block one with (r-1)/(n-1)
    (McSherry & Najork 2008).
    """
    others = (hits - 1.0) / max(end - start - 1, 1)
    total = 0.0
    for place in range(start, stop):
        total += (before + 1.0 + (place - start) * others) / (place + 1.0)
    return total * hits / (end - start)


@inner
def _first(hits, start, end, stop):
    """E[1 / place of the first relevant item, if that counts]."""
    total = 0.0
    size = end - start
    chance = hits / size
    for j in range(min(stop - start, size - hits + 1)):
        total += chance / (start + j + 1.0)
        chance *= (size - j - hits) / (size - j - 1.0)
    return total


@inner_part
def _cascade(worth, means, start, end, stop):
    """E[sum over the places of (the user stops there) / place], for a user who comes to the block.

    With q = 1 - probability to stop at an item, E[product of q over the first j] is the j-th elementary symmetric mean
    of q. Adding item n to those before it, m_j(n) = ((n-j) m_j(n-1) + j q_n m_{j-1}(n-1)) / n: all terms are positive.
    By Maclaurin's inequality m_j <= m_1^j, which tells in advance where all further m_j are negligible.
    """
    size, depth = end - start, stop - start
    if size == 1:
        return worth[start] / (start + 1.0)
    going_on = 1.0 - _sum(worth, start, end) / size
    if going_on >= 1.0:
        return 0.0
    if depth * -math.log(going_on) > _NEGLIGIBLE:
        depth = int(_NEGLIGIBLE / -math.log(going_on)) + 1
    means[0] = 1.0
    for j in range(1, depth + 1):
        means[j] = 0.0
    for n in range(1, size + 1):
        q = 1.0 - worth[start + n - 1]
        for j in range(min(n, depth), 0, -1):
            means[j] = ((n - j) * means[j] + j * q * means[j - 1]) * (1.0 / n)
    total = 0.0
    for j in range(depth):
        total += (means[j] - means[j + 1]) / (start + j + 1.0)
    return total


@inner_part
def _rank_all(
    s, y, places, average, rule, kind, threshold, scale, discounts, worth, means, order, keys, spare_keys, spare_order
):
    """The value of a list by the rule, from the worths at its first places."""
    found = top_places(s, places, order, keys, spare_keys, spare_order)
    for i in range(found):
        worth[i] = _worth(y[order[i]], kind, threshold, scale)
    total, before, survives = 0.0, 0.0, 1.0
    start = 0
    while start < places:
        end = start + 1
        if average:
            while end < found and s[order[end]] == s[order[start]]:
                end += 1
        stop = min(end, places)
        if means is None:
            if end == start + 1:
                total += worth[start] * discounts[start]
            else:
                total += _sum(worth, start, end) / (end - start) * _sum(discounts, start, stop)
        elif rule == PRECISIONS:
            hits = _sum(worth, start, end)
            total += _precisions(hits, before, start, end, stop)
            before += hits
        elif rule == FIRST:
            hits = _sum(worth, start, end)
            if hits > 0.0:
                total = _first(int(hits), start, end, stop)
                break
        else:
            total += survives * _cascade(worth, means, start, end, stop)
            for i in range(start, end):
                survives *= 1.0 - worth[i]
        start = end
    return total


@light_kernel
def rank_lists(
    first, last, scores, labels, offsets, cutoff, average, rule, kind, threshold, lowest, highest, scale, discounts,
    value, relevant, by_blocks,
):  # fmt: skip
    """Value and number of relevant items of the lists first..last. Returns the position of an invalid item, or -1.

    cutoff      number of places that count
    average     average over ties; otherwise the item that comes first wins
    threshold   the smallest label of a relevant item
    lowest, highest   limits of valid labels
    discounts   weight of each place, for the rules that have one
    by_blocks   None for the rules DISCOUNTED and SHARE_OF_IDEAL: the others are not compiled then
    """
    longest = longest_list(offsets, first, last)
    s_buffer, y_buffer, worth = np.empty(longest), np.empty(longest), np.empty(longest)
    means = None if by_blocks is None else np.empty(longest + 1)
    order, keys, spare_keys, spare_order = room_to_rank(longest)
    discounts = _copy(discounts)  # see `_copy_list`
    worths = np.empty(_MOST_GRADES + 1)
    for grade in range(_MOST_GRADES + 1):
        worths[grade] = _worth(float(grade), kind, threshold, scale)
    running = np.empty(discounts.size + 1)
    running[0] = 0.0
    for place in range(discounts.size):
        running[place + 1] = running[place] + discounts[place]
    few = rule <= SHARE_OF_IDEAL and cutoff < _LANES
    first_discounts = np.empty(_LANES + 1)
    for place in range(_LANES + 1):
        first_discounts[place] = discounts[place] if few and place < min(cutoff, discounts.size) else 0.0
    for b in range(first, last):
        begin, size = offsets[b], offsets[b + 1] - offsets[b]
        s, y = s_buffer[:size], y_buffer[:size]
        bad, relevant[b], ungraded, at_least = _copy_list(scores, labels, begin, s, y, lowest, highest, threshold)
        if bad > 0:
            return begin + _first_bad(s, y, lowest, highest)
        value[b] = 0.0
        if relevant[b] == 0:
            continue
        places = min(cutoff, size)
        total = -1.0
        if few and ungraded == 0 and size >= 4 * _LANES:
            total = _rank_few(s, y, places, worths, first_discounts, order, keys)
        if total < 0.0:
            total = _rank_all(
                s, y, places, average, rule, kind, threshold, scale, discounts, worth, means, order, keys, spare_keys,
                spare_order,
            )  # fmt: skip
        if rule == SHARE_OF_IDEAL:
            if ungraded == 0:
                ideal = _ideal_of_grades(at_least, places, worths, running)
            else:
                ideal = _ideal(y, places, kind, threshold, scale, discounts, order, keys, spare_keys, spare_order)
            total = min(total / ideal, 1.0)  # more only by rounding
        value[b] = total
    return -1


@inner
def _tied_pairs(x):
    """Pairs of equal values, which stand next to each other."""
    pairs, start = 0, 0
    for i in range(1, x.size + 1):
        if i == x.size or x[i] != x[start]:
            pairs += (i - start) * (i - start - 1) // 2
            start = i
    return pairs


@inner
def _ascents_in_runs(x):
    """Pairs in ascending order within each run of `_RUN`."""
    ascents = 0
    for i in range(x.size):
        for j in range(i - i % _RUN, i):
            ascents += x[j] < x[i]
    return ascents


@kernel
def kendall_lists(first, last, scores, labels, offsets, with_ties, value, defined):
    """Kendall's tau of the lists first..last in O(n log n) (Knight 1966).

    with_ties: tau-x, in which a tie in both rankings counts as agreement; otherwise tau-b. Returns the position of an
    invalid item, or -1.
    """
    longest = longest_list(offsets, first, last)
    order_buffer, x_buffer, spare_keys, spare_order = room_to_rank(longest)
    y_buffer = np.empty(longest)
    largest = np.finfo(np.float64).max
    for b in range(first, last):
        begin, size = offsets[b], offsets[b + 1] - offsets[b]
        s, t = scores[begin : begin + size], labels[begin : begin + size]
        bad = _first_bad(s, t, -largest, largest)
        if bad >= 0:
            return begin + bad
        x, y, order = x_buffer[:size], y_buffer[:size], order_buffer[:size]
        for i in range(size):
            y[i], order[i] = t[i], i
        _sort_descending(y, order, size, spare_keys, spare_order)
        for i in range(size):
            x[i] = s[order[i]]
        _sort_descending(x, order, size, spare_keys, spare_order)  # by score, equal scores by label
        tied_in_both, start = 0, 0
        for i in range(size):
            y[i] = t[order[i]]
            if x[i] != x[start] or y[i] != y[start]:
                tied_in_both += (i - start) * (i - start - 1) // 2
                start = i
        tied_in_both += (size - start) * (size - start - 1) // 2
        discordant = _ascents_in_runs(y)
        discordant += _sort_descending(y, order, size, spare_keys, spare_order)
        pairs = size * (size - 1) // 2
        tied_scores, tied_labels = _tied_pairs(x), _tied_pairs(y)
        balance = pairs - tied_scores - tied_labels + tied_in_both - 2 * discordant  # concordant - discordant
        value[b] = 0.0
        if with_ties:
            defined[b] = pairs > 0
            if pairs > 0:
                value[b] = (balance + tied_in_both) / pairs
        else:
            defined[b] = pairs > tied_labels
            if pairs > max(tied_labels, tied_scores):
                value[b] = balance / (math.sqrt(pairs - tied_scores) * math.sqrt(pairs - tied_labels))
    return -1
