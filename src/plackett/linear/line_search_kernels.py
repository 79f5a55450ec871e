"""How a metric of lists changes along a line: the scores of the items are a + c b, and c goes from -inf to +inf.

The order of a list changes where two lines cross, and then two neighbours swap places. Only the first `places` places
count, so only they are kept in order. Two kinds of crossings can come next: of neighbours among them, or of the last of
them with the first to come up from below. Each crossing costs a scan of the places for the next one,
and a scan of all items when the last place changes hands. Crossings below, most of all n (n - 1) / 2, cost nothing.

Every rule is a sum over places of a term of the item's worth and of something that depends on the items above:

    ADDITIVE     worth * discount                   NDCG, precision, recall
    PRECISIONS   worth * (1 + hits above) / place   average precision
    CASCADE      worth * survival / place           ERR; reciprocal rank, with worths of 0 and 1
    PAIRS        concordant less discordant pairs   Kendall's tau

A swap of neighbours changes their two terms, and what is above the second of them; or, for PAIRS, one pair.

Items that tie for every c (equal a, equal b) have no order. In ADDITIVE rules each has the mean of their worths, which
makes the sum the exact mean over their orders; in the others the worst order stands for all.
"""

import math

import numpy as np

from plackett.compilation import inner, kernel
from plackett.likelihood.kernel_parts import longest_list

ADDITIVE, PRECISIONS, CASCADE, PAIRS = 0, 1, 2, 3


@inner
def _term(rule, worth, above, place, discounts):
    if rule == ADDITIVE:
        return worth * discounts[place]
    if rule == PRECISIONS:
        return worth * (1.0 + above) / (place + 1.0)
    return worth * above / (place + 1.0) if rule == CASCADE else 0.0


@inner
def _pass(rule, worth, above):
    """The state of the rule for the next place, after one more item above it."""
    if rule == PRECISIONS:
        return above + worth
    return above * (1.0 - worth) if rule == CASCADE else 0.0


@inner
def _crossing(a, b, upper, lower, now):
    """Where `lower` overtakes `upper`, not before now; never, if it is not faster."""
    gain = b[lower] - b[upper]
    return max((a[upper] - a[lower]) / gain, now) if gain > 0.0 else math.inf


@inner
def _is_ahead(a, b, worth, i, j):
    """Of two items that cross a third together, whether i is first from then on; if they tie forever, the worse is."""
    if b[i] != b[j]:
        return b[i] > b[j]
    return a[i] > a[j] or (a[i] == a[j] and worth[i] < worth[j])


@inner
def _next_from_below(a, b, worth, order, places, now):
    """The first item to overtake the last place, as a position in `order`, and when."""
    last = order[places - 1]
    best, found = math.inf, places
    for i in range(places, order.size):
        when = _crossing(a, b, last, order[i], now)
        if when < best or (when == best < math.inf and _is_ahead(a, b, worth, order[i], order[found])):
            best, found = when, i
    return best, found


@inner
def _share_worths(a, b, worth, order, rule):
    """Settle the order of items that tie for every c; equal items stand next to each other in `order`."""
    start = 0
    for i in range(1, order.size + 1):
        if i < order.size and a[order[i]] == a[order[start]] and b[order[i]] == b[order[start]]:
            continue
        if rule == ADDITIVE:
            total = 0.0
            for j in range(start, i):
                total += worth[order[j]]
            for j in range(start, i):
                worth[order[j]] = total / (i - start)
        elif i - start > 1:
            order[start:i] = order[start:i][np.argsort(worth[order[start:i]])]
        start = i


@inner
def _sweep(a, b, worth, places, rule, discounts, factor, order, above, crossings, at, change, used):
    """Append where, from c = -inf up, the list's metric changes, and by how much; returns how many there are by then.

    Changes that `at` and `change` have no room for are only counted.
    """
    _share_worths(a, b, worth, order, rule)
    above[0] = 1.0 if rule == CASCADE else 0.0
    for place in range(places - 1):
        above[place + 1] = _pass(rule, worth[order[place]], above[place])
        crossings[place] = _crossing(a, b, order[place], order[place + 1], -math.inf)
    crossings[places - 1], entering = _next_from_below(a, b, worth, order, places, -math.inf)
    while True:
        place = 0
        for i in range(1, places):
            if crossings[i] < crossings[place]:
                place = i
        now = crossings[place]
        if now == math.inf:
            return used
        if place == places - 1:
            lower, upper = order[entering], order[place]
            order[entering], order[place] = upper, lower
            delta = _term(rule, worth[lower], above[place], place, discounts)
            delta -= _term(rule, worth[upper], above[place], place, discounts)
        else:
            upper, lower = order[place], order[place + 1]
            delta = -_term(rule, worth[upper], above[place], place, discounts)
            delta -= _term(rule, worth[lower], above[place + 1], place + 1, discounts)
            order[place], order[place + 1] = lower, upper
            above[place + 1] = _pass(rule, worth[lower], above[place])
            delta += _term(rule, worth[lower], above[place], place, discounts)
            delta += _term(rule, worth[upper], above[place + 1], place + 1, discounts)
            if rule == PAIRS:
                delta = 2.0 * np.sign(worth[lower] - worth[upper])
            crossings[place] = math.inf
        if place > 0:
            crossings[place - 1] = _crossing(a, b, order[place - 1], order[place], now)
        if place + 1 < places - 1:
            crossings[place + 1] = _crossing(a, b, order[place + 1], order[place + 2], now)
        if place >= places - 2:
            crossings[places - 1], entering = _next_from_below(a, b, worth, order, places, now)
        if delta != 0.0 and factor != 0.0:
            if used < at.size:
                at[used], change[used] = now, factor * delta
            used += 1


@kernel
def changes_along_line(first, last, rest, feature, worths, offsets, factors, cutoff, rule, discounts, at, change):
    """Where c changes the metric of the lists first..last for scores rest + c feature, and by how much.

    Writes to `at` and `change` as far as there is room. Returns the number of changes.

    worths    of the items
    factors   multiply the terms of each list; lists with 0 are left out
    """
    longest = longest_list(offsets, first, last)
    above, crossings = np.empty(longest), np.empty(longest)
    used = 0
    for list_number in range(first, last):
        begin, end = offsets[list_number], offsets[list_number + 1]
        if factors[list_number] == 0.0 or end - begin < 2:
            continue
        a, b, worth = rest[begin:end].copy(), feature[begin:end].copy(), worths[begin:end].copy()
        # At c = -inf the smallest b is first, of equal ones the largest a.
        order = np.argsort(-a, kind="mergesort")
        order = order[np.argsort(b[order], kind="mergesort")]
        if b[order[0]] == b[order[-1]]:
            continue
        used = _sweep(
            a, b, worth, min(cutoff, end - begin), rule, discounts, factors[list_number], order, above, crossings,
            at, change, used,
        )  # fmt: skip
    return used
